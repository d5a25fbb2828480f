//! One page on loopback that tells browsers when it changed. No file is ever served, so no path leads to one.
//!
//! Two paths and one method need the standard library's sockets and `httparse`; the servers among the crates bring an asynchronous
//! runtime, or are not kept up.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SCRIPT: &str = include_str!("live.js");

/// The most bytes of a request's line and headers; browsers send about 1 KiB.
const LONGEST_REQUEST: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
const MOST_CONNECTIONS: usize = 64;

/// How often whoever waits looks whether the server stops: well within the half second that stopping may take.
const TICK: Duration = Duration::from_millis(100);
/// How often new connections are looked for: a page load waits for at most this.
const ACCEPT_TICK: Duration = Duration::from_millis(20);

/// How long things take. The tests are faster.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Between two looks at the stamp.
    check: Duration,
    /// At least, between two pages.
    page: Duration,
    /// Between two signs of life on a stream of events.
    alive: Duration,
    /// At most, until a request is complete.
    request: Duration,
    /// At most, until an answer is taken.
    answer: Duration,
}

const PACE: Pace = Pace {
    check: Duration::from_secs(1),
    page: Duration::from_secs(2),
    alive: Duration::from_secs(15),
    request: Duration::from_secs(5),
    answer: Duration::from_secs(30),
};

/// What is shown.
pub trait Source: Sync {
    /// A number that changes when the page would. Asked about once a second, so it must be cheap.
    fn stamp(&self) -> u64;

    /// The whole page, or why there is none now. Made at most every two seconds, whoever looks. What a browser brings up to
    /// date is its `<main>`.
    ///
    /// # Errors
    /// Words for the reader; the page is tried again until there is one.
    fn page(&self) -> Result<String, String>;
}

/// Listens on this port of 127.0.0.1, or on any free one.
///
/// # Errors
/// When the port is taken or not allowed.
pub fn bind(port: Option<u16>) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0)))
}

/// Serves the page until `stop` says so, which is asked all the time. It then returns within half a second, unless the
/// source is making a page: that is waited for.
///
/// # Errors
/// When the listener cannot be used. What clients do is no error.
pub fn serve(listener: TcpListener, source: &dyn Source, stop: &dyn Fn() -> bool) -> io::Result<()> {
    serve_at(PACE, listener, source, stop)
}

fn serve_at(
    pace: Pace,
    listener: TcpListener,
    source: &dyn Source,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    // Later than any number of a server before this one, whose pages may still be open.
    let version = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let stamp = source.stamp();
    let shown = Mutex::new(Shown::new(version, source.page()));
    let server = Server { pace, port, shown, stopping: AtomicBool::new(false), open: AtomicUsize::new(0) };
    thread::scope(|scope| {
        let watcher = thread::Builder::new().name("live-page".into());
        watcher.spawn_scoped(scope, || server.watch(source, stamp))?;
        while !stop() {
            // No error of one connection, nor a lack of descriptors, ends the server.
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(ACCEPT_TICK);
                continue;
            };
            let Some(permit) = Permit::take(&server.open) else {
                turn_away(stream);
                continue;
            };
            let talk = || {
                let _permit = permit;
                // The client is gone: nobody is left to tell.
                let _ = server.talk(stream);
            };
            // Without a thread the connection is closed, and the browser tries again.
            let _ = thread::Builder::new().name("live-client".into()).spawn_scoped(scope, talk);
        }
        server.stopping.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// The page as it is sent, the same for all.
#[derive(Debug, Clone)]
struct Shown {
    version: u64,
    status: &'static str,
    html: Arc<str>,
    /// Why the source had no page.
    problem: Option<String>,
}

impl Shown {
    fn new(version: u64, page: Result<String, String>) -> Shown {
        let script = format!("<script data-version={version}>{SCRIPT}</script>");
        let (status, mut html, problem) = match page {
            Ok(html) => ("200 OK", html, None),
            Err(problem) => ("500 Internal Server Error", problem_page(&problem), Some(problem)),
        };
        let end = html.rfind("</body>").unwrap_or(html.len());
        html.insert_str(end, &script);
        Shown { version, status, html: html.into(), problem }
    }
}

fn problem_page(problem: &str) -> String {
    let problem = problem.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>untuned: no page</title></head>\
         <body><main><h1>There is no page now</h1><p>{problem}</p><p>The page returns when this is fixed.</p></main>\
         </body></html>\n"
    )
}

/// What all connections share.
struct Server {
    pace: Pace,
    port: u16,
    shown: Mutex<Shown>,
    stopping: AtomicBool,
    open: AtomicUsize,
}

impl Server {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Makes the page again whenever the stamp changed, and while there is none.
    fn watch(&self, source: &dyn Source, mut stamp: u64) {
        let (mut checked, mut made) = (Instant::now(), Instant::now());
        while !self.stops() {
            thread::sleep(TICK.min(self.pace.check));
            if checked.elapsed() < self.pace.check || made.elapsed() < self.pace.page {
                continue;
            }
            checked = Instant::now();
            let now = source.stamp();
            let (version, problem) = {
                let shown = self.shown();
                (shown.version, shown.problem.clone())
            };
            if now == stamp && problem.is_none() {
                continue;
            }
            let page = source.page();
            made = Instant::now();
            if now != stamp || page.as_ref().err() != problem.as_ref() {
                *self.shown() = Shown::new(version + 1, page);
            }
            stamp = now;
        }
    }

    /// Answers one request; every connection has only one.
    fn talk(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        let mut client = Client { stream, server: self };
        let Some(asked) = client.request()? else { return Ok(()) };
        match asked {
            Asked::Page => {
                let shown = self.shown().clone();
                client.answer(shown.status, "text/html; charset=utf-8", &shown.html)?;
            }
            Asked::Events => return client.events(),
            Asked::Icon => client.answer("204 No Content", "text/plain", "")?,
            Asked::Wrong(status) => client.answer(status, "text/plain", &format!("{status}\n"))?,
        }
        client.close()
    }
}

/// One of the connections that may be open at once.
struct Permit<'a>(&'a AtomicUsize);

impl Permit<'_> {
    fn take(open: &AtomicUsize) -> Option<Permit<'_>> {
        let taken = open.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(open);
        (taken < MOST_CONNECTIONS).then_some(permit)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers one connection too many without ever waiting for it.
fn turn_away(mut stream: TcpStream) {
    let status = "503 Service Unavailable";
    let answer = format!("{}{status}\n", head(status, "text/plain", Some(status.len() + 1)));
    // A client that cannot take 500 bytes at once goes without them.
    let _ = stream.set_nonblocking(true).and_then(|()| {
        // What is left unread makes the system cut the answer off.
        let _ = stream.read(&mut [0; LONGEST_REQUEST]);
        stream.write_all(answer.as_bytes())?;
        stream.shutdown(Shutdown::Write)
    });
}

/// The beginning of an answer; one without a length goes on until the connection is closed.
fn head(status: &str, content_type: &str, length: Option<usize>) -> String {
    let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{length}{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         font-src data:; img-src data:; connect-src 'self'\r\nConnection: close\r\n\r\n"
    )
}

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Page,
    Events,
    Icon,
    /// Nothing that it can have: the status.
    Wrong(&'static str),
}

const MALFORMED: Asked = Asked::Wrong("400 Bad Request");
const FORBIDDEN: Asked = Asked::Wrong("403 Forbidden");
const TOO_LARGE: Asked = Asked::Wrong("431 Request Header Fields Too Large");

/// Reads a request; nothing where it is not complete.
fn understand(bytes: &[u8], port: u16) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(status) if status.is_partial() => return None,
        Ok(_) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(TOO_LARGE),
        Err(_) => return Some(MALFORMED),
    }
    let values = |name: &'static str| {
        let named = request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value)
    };
    let asked = if values("host").count() != 1 {
        MALFORMED
    } else if !values("host").all(|host| is_ours(host, port)) {
        // Another name that leads here: a page from elsewhere would read this one.
        FORBIDDEN
    } else if !values("origin")
        .all(|origin| origin.strip_prefix(b"http://").is_some_and(|o| is_ours(o, port)))
    {
        FORBIDDEN
    } else if request.method != Some("GET") {
        Asked::Wrong("405 Method Not Allowed")
    } else {
        // Whatever follows a question mark, as some editors' browsers add it, changes nothing.
        match request.path.and_then(|path| path.split('?').next()) {
            Some("/") => Asked::Page,
            Some("/events") => Asked::Events,
            Some("/favicon.ico") => Asked::Icon,
            _ => Asked::Wrong("404 Not Found"),
        }
    };
    Some(asked)
}

/// Whether a host and port are this server by one of the names of loopback.
fn is_ours(host: &[u8], port: u16) -> bool {
    ["127.0.0.1", "localhost", "[::1]"].into_iter().any(|name| {
        let full = host.eq_ignore_ascii_case(format!("{name}:{port}").as_bytes());
        // Browsers leave the usual port out.
        full || port == 80 && host.eq_ignore_ascii_case(name.as_bytes())
    })
}

/// One connection. It never waits for longer than a tick without looking whether the server stops.
struct Client<'a> {
    stream: TcpStream,
    server: &'a Server,
}

impl Client<'_> {
    /// What the client wants; nothing where it says nothing at all.
    fn request(&mut self) -> io::Result<Option<Asked>> {
        let until = Instant::now() + self.server.pace.request;
        let mut bytes = [0; LONGEST_REQUEST];
        let mut length = 0;
        loop {
            let more = match self.read(&mut bytes[length..], until) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && length > 0 => {
                    return Ok(Some(Asked::Wrong("408 Request Timeout")));
                }
                more => more?,
            };
            length += more;
            match understand(&bytes[..length], self.server.port) {
                Some(asked) => return Ok(Some(asked)),
                None if length == LONGEST_REQUEST => return Ok(Some(TOO_LARGE)),
                None if more == 0 => return Ok((length > 0).then_some(MALFORMED)),
                None => {}
            }
        }
    }

    fn answer(&mut self, status: &str, content_type: &str, body: &str) -> io::Result<()> {
        let until = Instant::now() + self.server.pace.answer;
        // 204 must not have a length.
        let length = (!body.is_empty()).then_some(body.len());
        self.write(head(status, content_type, length).as_bytes(), until)?;
        self.write(body.as_bytes(), until)
    }

    /// Sends the number of the page at once, and then whenever it changes.
    fn events(&mut self) -> io::Result<()> {
        let Pace { alive, request, .. } = self.server.pace;
        self.write(head("200 OK", "text/event-stream", None).as_bytes(), Instant::now() + request)?;
        let mut sent = None;
        let mut last = Instant::now();
        loop {
            let version = self.server.shown().version;
            let line = if sent != Some(version) {
                format!("data: {version}\n\n")
            } else if last.elapsed() >= alive {
                // Ignored by browsers; it finds out who is gone without a word.
                ": alive\n\n".to_string()
            } else {
                String::new()
            };
            if !line.is_empty() {
                self.write(line.as_bytes(), Instant::now() + request)?;
                (sent, last) = (Some(version), Instant::now());
            }
            match self.read(&mut [0], Instant::now() + TICK) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                // It closed the stream, or says what nobody asked for.
                _ => return Ok(()),
            }
        }
    }

    /// Lets the client take the answer: closed while it still sends, the connection would be reset.
    fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let until = Instant::now() + self.server.pace.request;
        let mut left = 1 << 20;
        let mut bytes = [0; LONGEST_REQUEST];
        while left > 0 {
            let more = self.read(&mut bytes, until)?;
            if more == 0 {
                break;
            }
            left -= more.min(left);
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
        self.patiently(until, |stream| stream.read(bytes))
    }

    fn write(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.patiently(until, |stream| stream.write(bytes))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Tries until it is done, the time is over, or the server stops.
    fn patiently(
        &mut self,
        until: Instant,
        mut act: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        use io::ErrorKind::{ConnectionAborted, Interrupted, TimedOut, WouldBlock};
        loop {
            if self.server.stops() {
                return Err(ConnectionAborted.into());
            }
            match act(&mut self.stream) {
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock | Interrupted) => {
                    if Instant::now() >= until {
                        return Err(TimedOut.into());
                    }
                }
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    const FAST: Pace = Pace {
        check: Duration::from_millis(40),
        page: Duration::from_millis(80),
        alive: Duration::from_millis(300),
        request: Duration::from_millis(500),
        answer: Duration::from_secs(1),
    };

    /// A page that a test changes.
    struct Changing {
        stamp: AtomicU64,
        made: AtomicU64,
        page: Mutex<Result<String, String>>,
    }

    impl Changing {
        fn new(page: Result<&str, &str>) -> Changing {
            let page = Mutex::new(page.map(String::from).map_err(String::from));
            Changing { stamp: AtomicU64::new(7), made: AtomicU64::new(0), page }
        }

        fn set(&self, page: Result<&str, &str>) {
            *self.page.lock().unwrap() = page.map(String::from).map_err(String::from);
        }

        fn change(&self, html: &str) {
            self.set(Ok(html));
            self.stamp.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Source for Changing {
        fn stamp(&self) -> u64 {
            self.stamp.load(Ordering::SeqCst)
        }

        fn page(&self) -> Result<String, String> {
            self.made.fetch_add(1, Ordering::SeqCst);
            self.page.lock().unwrap().clone()
        }
    }

    /// Stops the server even where a test fails.
    struct Stopping<'a>(&'a AtomicBool);

    impl Drop for Stopping<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Runs a test against a server, with its port; how long the server took to stop.
    fn with_server(pace: Pace, source: &Changing, test: impl FnOnce(u16)) -> Duration {
        let listener = bind(None).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let server =
                scope.spawn(|| serve_at(pace, listener, source, &|| stop.load(Ordering::SeqCst)).unwrap());
            let stopping = Stopping(&stop);
            test(port);
            drop(stopping);
            let start = Instant::now();
            server.join().unwrap();
            start.elapsed()
        })
    }

    fn connect(port: u16) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    }

    /// Everything that the server says before it closes the connection. A test that waits 5 s for that fails.
    fn read_all(mut stream: &TcpStream) -> String {
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} after {bytes:?}"),
        }
        String::from_utf8(bytes).unwrap()
    }

    fn send(port: u16, bytes: &[u8]) -> String {
        let mut stream = connect(port);
        stream.write_all(bytes).unwrap();
        read_all(&stream)
    }

    fn get(port: u16, path: &str) -> String {
        send(port, format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())
    }

    fn status(answer: &str) -> &str {
        answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or("none")
    }

    /// A stream of events; the next line of it that is not empty.
    struct Events(BufReader<TcpStream>);

    impl Events {
        fn open(port: u16) -> Events {
            let mut stream = connect(port);
            write!(stream, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
            let mut events = Events(BufReader::new(stream));
            assert_eq!(events.line(), "HTTP/1.1 200 OK");
            let mut kind = false;
            loop {
                let mut line = String::new();
                events.0.read_line(&mut line).unwrap();
                kind |= line == "Content-Type: text/event-stream\r\n";
                if line == "\r\n" {
                    assert!(kind);
                    return events;
                }
            }
        }

        fn line(&mut self) -> String {
            loop {
                let mut line = String::new();
                assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
                if !line.trim().is_empty() {
                    return line.trim().to_string();
                }
            }
        }

        /// The number of the next event.
        fn version(&mut self) -> u64 {
            loop {
                if let Some(version) = self.line().strip_prefix("data: ") {
                    return version.parse().unwrap();
                }
            }
        }
    }

    const PAGE: &str = "<html><body><main>first</main></body></html>";

    #[test]
    fn every_path_and_method_has_its_status() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let paths = [
                ("/", "200"),
                ("/?editor=1", "200"),
                ("/favicon.ico", "204"),
                ("/../../etc/passwd", "404"),
                ("/..%2f..%2fetc/passwd", "404"),
                ("//", "404"),
                ("/index.html", "404"),
                ("/live.js", "404"),
                ("http://elsewhere/", "404"),
            ];
            for (path, wanted) in paths {
                assert_eq!(status(&get(port, path)), wanted, "{path}");
            }
            for method in ["POST", "HEAD", "PUT", "OPTIONS", "get"] {
                let request = format!("{method} / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\nbody");
                let answer = send(port, request.as_bytes());
                assert_eq!(status(&answer), "405", "{method}");
                assert!(answer.contains("\r\nAllow: GET\r\n"));
            }
            for garbage in
                ["\x16\x03\x01\x02", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n"]
            {
                assert_eq!(status(&send(port, garbage.as_bytes())), "400", "{garbage:?}");
            }
            assert!(!get(port, "/favicon.ico").contains("Content-Length"));
        });
    }

    #[test]
    fn the_page_has_its_headers_and_the_script() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let answer = get(port, "/");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            for line in [
                "Content-Type: text/html; charset=utf-8".to_string(),
                "Cache-Control: no-store".to_string(),
                "X-Content-Type-Options: nosniff".to_string(),
                "Cross-Origin-Resource-Policy: same-origin".to_string(),
                "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                 font-src data:; img-src data:; connect-src 'self'"
                    .to_string(),
                format!("Content-Length: {}", body.len()),
            ] {
                assert!(head.split("\r\n").any(|found| found == line), "{line} in {head}");
            }
            let (before, after) = PAGE.split_at(PAGE.find("</body>").unwrap());
            assert!(body.starts_with(&format!("{before}<script data-version=")), "{body}");
            assert!(body.ends_with(&format!("{SCRIPT}</script>{after}")), "{body}");
        });
    }

    #[test]
    fn the_script_goes_before_the_last_end_of_the_body() {
        let html = |page: &str| Shown::new(5, Ok(page.into())).html.to_string();
        let script = format!("<script data-version=5>{SCRIPT}</script>");
        assert_eq!(html("</body>a</body>b"), format!("</body>a{script}</body>b"));
        assert_eq!(html("no end"), format!("no end{script}"));
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("</body>"));
    }

    #[test]
    fn only_the_names_of_loopback_are_answered() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let other = port ^ 1;
            let hosts = [
                (format!("127.0.0.1:{port}"), "200"),
                (format!("localhost:{port}"), "200"),
                (format!("LocalHost:{port}"), "200"),
                (format!("[::1]:{port}"), "200"),
                ("localhost".to_string(), "403"),
                (format!("localhost:{other}"), "403"),
                (format!("elsewhere.example:{port}"), "403"),
                (format!("localhost:{port}.elsewhere.example"), "403"),
                (format!("x@localhost:{port}"), "403"),
                (String::new(), "403"),
            ];
            for (host, wanted) in hosts {
                for path in ["/", "/favicon.ico", "/nothing"] {
                    let answer =
                        send(port, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
                    let good = status(&answer) != "403" && status(&answer) != "400";
                    assert_eq!(good, wanted == "200", "{host} {path}: {answer}");
                    assert!(good || !answer.contains("first"));
                }
                if wanted == "403" {
                    let answer = send(port, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
                    assert_eq!(status(&answer), "403", "{host}");
                }
            }
            let host = format!("Host: localhost:{port}");
            for headers in ["X: y".to_string(), format!("{host}\r\n{host}")] {
                let request = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
                assert_eq!(status(&send(port, request.as_bytes())), "400", "{headers}");
            }
            let origins = [
                (format!("http://localhost:{port}"), "200"),
                (format!("http://127.0.0.1:{port}"), "200"),
                (format!("https://localhost:{port}"), "403"),
                (format!("http://localhost:{other}"), "403"),
                ("http://elsewhere.example".to_string(), "403"),
                ("null".to_string(), "403"),
            ];
            for (origin, wanted) in origins {
                let request = format!("GET / HTTP/1.1\r\n{host}\r\nOrigin: {origin}\r\n\r\n");
                assert_eq!(status(&send(port, request.as_bytes())), wanted, "{origin}");
            }
        });
        assert!(is_ours(b"localhost", 80) && !is_ours(b"localhost", 81));
    }

    #[test]
    fn every_listener_hears_of_a_change_and_the_page_is_made_once() {
        let source = Changing::new(Ok(PAGE));
        with_server(FAST, &source, |port| {
            let mut listeners: Vec<Events> = (0..8).map(|_| Events::open(port)).collect();
            let first: Vec<u64> = listeners.iter_mut().map(Events::version).collect();
            assert!(first.iter().all(|version| *version == first[0]));
            assert!(get(port, "/").contains(&format!("data-version={}>", first[0])));
            for (nth, text) in ["second", "third"].into_iter().enumerate() {
                source.change(&format!("<main>{text}</main></body>"));
                let next = first[0] + nth as u64 + 1;
                for events in &mut listeners {
                    assert_eq!(events.version(), next);
                }
                let page = get(port, "/");
                assert!(page.contains(text) && page.contains(&format!("data-version={next}>")), "{page}");
            }
            assert_eq!(Events::open(port).version(), first[0] + 2, "who comes later hears of the newest");
        });
        assert_eq!(source.made.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn pages_are_not_made_faster_than_the_pace() {
        let source = Changing::new(Ok(PAGE));
        let pace = Pace { page: Duration::from_millis(300), ..FAST };
        let start = Instant::now();
        with_server(pace, &source, |_| {
            while start.elapsed() < Duration::from_millis(1000) {
                source.change(PAGE);
                thread::sleep(Duration::from_millis(10));
            }
        });
        let made = u128::from(source.made.load(Ordering::SeqCst));
        let most = 1 + start.elapsed().as_millis() / pace.page.as_millis();
        assert!(made >= 2 && made <= most, "{made} pages, at most {most}");
    }

    #[test]
    fn a_problem_is_shown_and_goes_away_by_itself() {
        let source = Changing::new(Err("no <runs> & nothing"));
        with_server(FAST, &source, |port| {
            let answer = get(port, "/");
            assert_eq!(status(&answer), "500");
            assert!(answer.contains("no &lt;runs&gt; &amp; nothing") && answer.contains(SCRIPT), "{answer}");
            let mut events = Events::open(port);
            let first = events.version();
            // The stamp stays: the page is tried again all the same.
            source.set(Ok(PAGE));
            assert_eq!(events.version(), first + 1);
            let answer = get(port, "/");
            assert_eq!(status(&answer), "200");
            assert!(answer.contains("first"));
        });
    }

    #[test]
    fn a_quiet_stream_has_signs_of_life() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let start = Instant::now();
            let mut events = Events::open(port);
            events.version();
            assert_eq!(events.line(), ": alive");
            assert_eq!(events.line(), ": alive");
            assert!(start.elapsed() >= 2 * FAST.alive, "{:?}", start.elapsed());
        });
    }

    #[test]
    fn a_slow_request_ends_and_blocks_nobody() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let start = Instant::now();
            let mut slow = connect(port);
            let request = format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\nX: {}", "x".repeat(1000));
            for byte in request.bytes() {
                if slow.write_all(&[byte]).is_err() || start.elapsed() > FAST.request + 2 * TICK {
                    break;
                }
                assert_eq!(status(&get(port, "/favicon.ico")), "204");
            }
            let answer = read_all(&slow);
            assert_eq!(status(&answer), "408", "{answer}");
        });
    }

    #[test]
    fn a_long_request_is_refused() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let request = |length| {
                let start = format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\nX: ");
                let filling = "x".repeat(length - start.len() - 4);
                format!("{start}{filling}\r\n\r\n")
            };
            assert_eq!(status(&send(port, request(LONGEST_REQUEST).as_bytes())), "200");
            assert_eq!(status(&send(port, request(LONGEST_REQUEST + 1).as_bytes())), "431");
            assert_eq!(status(&send(port, request(20 * LONGEST_REQUEST).as_bytes())), "431");
            let many = "X: y\r\n".repeat(MOST_HEADERS);
            let many = format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n{many}\r\n");
            assert_eq!(status(&send(port, many.as_bytes())), "431");
        });
    }

    #[test]
    fn one_connection_too_many_is_turned_away() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let mut listeners: Vec<Events> = (0..MOST_CONNECTIONS).map(|_| Events::open(port)).collect();
            for _ in 0..3 {
                assert_eq!(status(&get(port, "/")), "503");
            }
            // A closed tab is noticed long before the next sign of life.
            listeners.truncate(MOST_CONNECTIONS - 1);
            thread::sleep(4 * TICK);
            assert_eq!(status(&get(port, "/")), "200");
        });
    }

    #[test]
    fn who_does_not_read_blocks_nobody_and_is_dropped() {
        let large = format!("{}</body>", "x".repeat(32 << 20));
        with_server(FAST, &Changing::new(Ok(&large)), |port| {
            let mut stalled = connect(port);
            write!(stalled, "GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").unwrap();
            thread::sleep(3 * TICK);
            assert_eq!(status(&get(port, "/favicon.ico")), "204");
            thread::sleep(FAST.answer + 2 * TICK);
            let mut bytes = Vec::new();
            let _ = stalled.read_to_end(&mut bytes);
            assert!(bytes.len() < large.len(), "{}", bytes.len());
            assert_eq!(status(&get(port, "/favicon.ico")), "204");
        });
    }

    #[test]
    fn stopping_ends_everything_within_half_a_second() {
        let large = format!("{}</body>", "x".repeat(32 << 20));
        let (mut streams, mut events) = (Vec::new(), None);
        // At the true pace, at which every other limit is far away.
        let took = with_server(PACE, &Changing::new(Ok(&large)), |port| {
            let mut opened = Events::open(port);
            opened.version();
            events = Some(opened);
            // One does not read its page, one does not end its request, one says nothing.
            for said in
                [format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"), "GET".into(), String::new()]
            {
                let mut stream = connect(port);
                stream.write_all(said.as_bytes()).unwrap();
                streams.push(stream);
            }
            thread::sleep(Duration::from_millis(300));
        });
        assert!(took < Duration::from_millis(500), "{took:?}");
        let mut rest = String::new();
        let _ = events.unwrap().0.read_to_string(&mut rest);
        assert_eq!(rest.trim(), "");
    }

    #[test]
    fn only_loopback_is_bound() {
        let listener = bind(None).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.ip() == Ipv4Addr::LOCALHOST && address.port() != 0);
        assert!(bind(Some(address.port())).is_err(), "the port is taken");
        drop(listener);
        assert_eq!(bind(Some(address.port())).unwrap().local_addr().unwrap(), address);
    }

    const RIGHT: &str = "GET /events HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n\r\n";

    /// Requests with a slip, and bytes that are none.
    fn anything() -> impl Strategy<Value = Vec<u8>> {
        let slip = (0..RIGHT.len(), any::<u8>(), any::<bool>()).prop_map(|(at, byte, cut)| {
            let mut bytes = RIGHT.as_bytes().to_vec();
            bytes[at] = byte;
            if cut { bytes[..at].to_vec() } else { bytes }
        });
        prop_oneof![proptest::collection::vec(any::<u8>(), 0..600), slip]
    }

    #[test]
    fn any_bytes_are_answered_or_closed() {
        with_server(FAST, &Changing::new(Ok(PAGE)), |port| {
            let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
            let tested = runner.run(&anything(), |bytes| {
                let mut stream = connect(port);
                // The server may answer and close before everything is sent.
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(Shutdown::Write);
                let answer = read_all(&stream);
                let refused = ["400", "403", "404", "405", "431"].contains(&status(&answer));
                prop_assert!(refused || answer.is_empty() && bytes.is_empty(), "{bytes:?}: {answer}");
                Ok(())
            });
            tested.unwrap();
            assert_eq!(status(&get(port, "/")), "200");
        });
    }

    #[test]
    fn a_request_is_understood_when_its_last_byte_came() {
        assert!((0..RIGHT.len()).all(|end| understand(&RIGHT.as_bytes()[..end], 1).is_none()));
        assert_eq!(understand(RIGHT.as_bytes(), 1), Some(Asked::Events));
    }

    proptest! {
        #[test]
        fn what_was_understood_stays_so(bytes in anything()) {
            let whole = understand(&bytes, 1);
            let early = (0..bytes.len()).filter_map(|end| understand(&bytes[..end], 1)).next();
            prop_assert!(early.is_none() || early == whole, "{:?} {:?}", early, whole);
        }
    }
}
