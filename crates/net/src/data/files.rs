//! Data files that are known by name, their checksums, and downloads that are verified before they exist.

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

/// A file that experiments use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownFile {
    /// What it is called on the command line; up to a dot, the data set that it belongs to.
    pub name: &'static str,
    /// Where it stands in a data folder.
    pub path: &'static str,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: &'static str,
    /// Where it can be fetched, or `None` where it must be obtained by hand.
    pub url: Option<&'static str>,
    /// What it is, and whose.
    pub what: &'static str,
    /// What its owners allow.
    pub licence: &'static str,
}

const PTB: &str = "Penn Treebank in Mikolov's preprocessing";
const LDC: &str = "the Linguistic Data Consortium's, for research, not to be passed on";

/// Every known file.
pub const KNOWN: [KnownFile; 5] = [
    KnownFile {
        name: "tiny-shakespeare",
        path: "tinyshakespeare/input.txt",
        size: 1_115_394,
        sha256: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        url: Some(
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ),
        what: "Shakespeare by characters, from karpathy/char-rnn",
        licence: "public domain",
    },
    KnownFile {
        name: "ptb.train",
        path: "ptb/ptb.train.txt",
        size: 5_101_618,
        sha256: "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        url: None,
        what: PTB,
        licence: LDC,
    },
    KnownFile {
        name: "ptb.valid",
        path: "ptb/ptb.valid.txt",
        size: 399_782,
        sha256: "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        url: None,
        what: PTB,
        licence: LDC,
    },
    KnownFile {
        name: "ptb.test",
        path: "ptb/ptb.test.txt",
        size: 449_945,
        sha256: "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        url: None,
        what: PTB,
        licence: LDC,
    },
    KnownFile {
        name: "t5-tokenizer",
        path: "t5-tokenizer/tokenizer.json",
        size: 2_424_035,
        sha256: "652ffdfc379606bad8edfb653f92dcf28e2e5dbf1cdfe50d685d29b2cad12dd6",
        url: None,
        what: "T5 v1.1's SentencePiece model as saved by Hugging Face's T5TokenizerFast",
        licence: "Apache-2.0",
    },
];

/// The most bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// What a file was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// Why a file is not what it should be, or could not be fetched.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum FileError {
    /// A name that is not known.
    #[error("no data is known as {name:?}; the names are {}", KNOWN.map(|file| file.name).join(", "))]
    Unknown { name: String },
    /// A checksum that was asked for is none.
    #[error("{sha256:?} is not a SHA-256: give 64 hexadecimal digits")]
    NotAHash {
        /// What was given.
        sha256: String,
    },
    /// The system refused.
    #[error("cannot {verb} {path}: {source}", path = path.display())]
    Io { verb: &'static str, path: PathBuf, source: io::Error },
    /// A file of another size.
    #[error("{what} has {found} bytes where {expected} were expected")]
    Size {
        /// The file or address.
        what: String,
        /// Its size; for a download that does not end, one more than expected.
        found: u64,
        expected: u64,
    },
    /// A file with other bytes.
    #[error("{what} has SHA-256 {found} where {expected} was expected")]
    Hash {
        /// The file or address.
        what: String,
        found: String,
        expected: String,
    },
    /// Another file is in the way.
    #[error("{path} exists and is not the file to fetch ({reason}); move it away or give another path", path = path.display())]
    InTheWay {
        path: PathBuf,
        /// How it differs.
        reason: Box<FileError>,
    },
    /// The server said no.
    #[error("{url}: the server answered {status}; check the address")]
    Status { url: String, status: u16 },
    /// The connection failed or broke off.
    #[error("{url}: {reason}; check the address and the connection, and try again")]
    Connection { url: String, reason: String },
    /// Whoever watched the download asked to stop it.
    #[error("{url}: the download was stopped")]
    Stopped { url: String },
}

impl KnownFile {
    /// The data set that it belongs to, of which it may be the only file.
    pub fn set(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(set, _)| set)
    }
}

/// The names of all data sets and, where a set has several files, of each: tiny-shakespeare, ptb, ptb.train, ….
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in KNOWN.iter().flat_map(|file| [file.set(), file.name]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The file that a name stands for.
pub fn known(name: &str) -> Result<&'static KnownFile, FileError> {
    KNOWN.iter().find(|file| file.name == name).ok_or_else(|| FileError::Unknown { name: name.into() })
}

/// The files that a name stands for: one, or all of a data set.
pub fn named(name: &str) -> Result<Vec<&'static KnownFile>, FileError> {
    let files: Vec<_> = KNOWN.iter().filter(|file| file.name == name || file.set() == name).collect();
    if files.is_empty() { Err(FileError::Unknown { name: name.into() }) } else { Ok(files) }
}

/// Checks that a file is the one that a name stands for.
pub fn check(name: &str, path: &Path) -> Result<Report, FileError> {
    let file = known(name)?;
    verify(path, file.size, file.sha256)
}

/// Checks a file's size, then its SHA-256, reading it in chunks.
pub fn verify(path: &Path, size: u64, sha256: &str) -> Result<Report, FileError> {
    let sha256 = parse_hash(sha256)?;
    let read = |source| FileError::Io { verb: "read", path: path.into(), source };
    // Before it is opened: opening a pipe would wait for somebody to write.
    let metadata = fs::metadata(path).map_err(read)?;
    if !metadata.is_file() {
        return Err(read(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")));
    }
    let (what, found) = (path.display().to_string(), metadata.len());
    if found != size {
        return Err(FileError::Size { what, found, expected: size });
    }
    let file = File::open(path).map_err(read)?;
    // One more than expected is enough to see that a file grows under our hands.
    let found = sum(&mut file.take(size.saturating_add(1))).map_err(read)?;
    compare(what, found, (size, sha256), path)
}

fn parse_hash(sha256: &str) -> Result<String, FileError> {
    if sha256.len() == 64 && sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        Ok(sha256.to_ascii_lowercase())
    } else {
        Err(FileError::NotAHash { sha256: sha256.into() })
    }
}

fn compare(
    what: String,
    found: (u64, String),
    expected: (u64, String),
    path: &Path,
) -> Result<Report, FileError> {
    if found.0 != expected.0 {
        Err(FileError::Size { what, found: found.0, expected: expected.0 })
    } else if found.1 != expected.1 {
        Err(FileError::Hash { what, found: found.1, expected: expected.1 })
    } else {
        Ok(Report { path: path.into(), size: found.0, sha256: found.1 })
    }
}

/// The number and SHA-256 of all bytes, read in chunks of 64 KiB.
fn sum(from: &mut impl Read) -> io::Result<(u64, String)> {
    let mut buffer = vec![0; CHUNK];
    let (mut size, mut hash) = (0, Sha256::new());
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((size, hexadecimal(hash))),
            Ok(read) => {
                hash.update(&buffer[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Folders that were made for a file, removed again unless the file is there.
struct Folders {
    made: Vec<PathBuf>,
}

impl Folders {
    fn create(folder: &Path) -> Result<Self, FileError> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let mut folders = Self { made: Vec::new() };
        let missing: Vec<&Path> = folder.ancestors().take_while(missing).collect();
        for path in missing.into_iter().rev() {
            match fs::create_dir(path) {
                Ok(()) => folders.made.push(path.into()),
                Err(_) if path.is_dir() => {}
                Err(source) => return Err(FileError::Io { verb: "create", path: path.into(), source }),
            }
        }
        Ok(folders)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            // A folder with something in it stays.
            let _ = fs::remove_dir(path);
        }
    }
}

/// A file beside the one to be, removed again unless it is kept.
struct Aside {
    path: PathBuf,
}

impl Aside {
    fn create(target: &Path) -> Result<(Self, File), FileError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let path = target.with_file_name(name);
        match File::create_new(&path) {
            Ok(file) => Ok((Self { path }, file)),
            Err(source) => Err(FileError::Io { verb: "create", path: target.into(), source }),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // After the renaming there is nothing left to remove.
        let _ = fs::remove_file(&self.path);
    }
}

/// Fetches a file over HTTP or HTTPS, unless it is there already.
///
/// The bytes go into a file beside `path`, which becomes `path` only after its size and SHA-256 were found right: `path` is either
/// the whole file or not there, and no folder is left that was made for a file that is not. Reading stops one byte past `size`. A
/// different file at `path` is left alone, and an error.
///
/// `watch` gets the number of bytes that have come, after every chunk and ten times a second while nothing comes; it can stop the
/// download.
pub fn fetch(
    url: &str,
    path: &Path,
    size: u64,
    sha256: &str,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Report, FileError> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .build();
    fetch_with(&config.into(), url, path, size, sha256, watch)
}

fn fetch_with(
    agent: &ureq::Agent,
    url: &str,
    path: &Path,
    size: u64,
    sha256: &str,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Report, FileError> {
    let sha256 = parse_hash(sha256)?;
    if path.exists() {
        return verify(path, size, &sha256)
            .map_err(|reason| FileError::InTheWay { path: path.into(), reason: Box::new(reason) });
    }
    let write = |source| FileError::Io { verb: "write", path: path.into(), source };
    // Before anything is asked of the server. In this order: what is declared first is dropped last.
    let _folders = Folders::create(path.parent().unwrap_or(Path::new("")))?;
    let (aside, mut file) = Aside::create(path)?;
    let chunks = receive(agent, url, size)?;
    let (mut found, mut hash) = (0, Sha256::new());
    loop {
        match chunks.recv_timeout(Duration::from_millis(100)) {
            Ok(chunk) => {
                let chunk = chunk?;
                hash.update(&chunk);
                file.write_all(&chunk).map_err(write)?;
                found += chunk.len() as u64;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if watch(found).is_break() {
            return Err(FileError::Stopped { url: url.into() });
        }
    }
    let report = compare(url.into(), (found, hexadecimal(hash)), (size, sha256), path)?;
    file.sync_all().map_err(write)?;
    drop(file);
    fs::rename(&aside.path, path).map_err(write)?;
    Ok(report)
}

/// The chunks of a download, or what went wrong last, from a thread of its own: a server that says nothing keeps only that thread
/// waiting. It ends when nobody receives any more, at the latest with the next timeout.
fn receive(
    agent: &ureq::Agent,
    url: &str,
    size: u64,
) -> Result<Receiver<Result<Vec<u8>, FileError>>, FileError> {
    let (sender, receiver) = mpsc::sync_channel(4);
    let (agent, address) = (agent.clone(), url.to_owned());
    let work = move || {
        if let Err(error) = send(&agent, &address, size, &sender) {
            // Nobody receives any more: nobody to tell.
            let _ = sender.send(Err(error));
        }
    };
    let thread = thread::Builder::new().name("download".into()).spawn(work);
    thread.map_err(|error| FileError::Connection { url: url.into(), reason: error.to_string() })?;
    Ok(receiver)
}

fn send(
    agent: &ureq::Agent,
    url: &str,
    size: u64,
    sender: &SyncSender<Result<Vec<u8>, FileError>>,
) -> Result<(), FileError> {
    let response = agent.get(url).call().map_err(|error| match error {
        ureq::Error::StatusCode(status) => FileError::Status { url: url.into(), status },
        error => FileError::Connection { url: url.into(), reason: error.to_string() },
    })?;
    let body = response.into_body();
    if let Some(found) = body.content_length().filter(|&length| length != size) {
        return Err(FileError::Size { what: url.into(), found, expected: size });
    }
    let mut body = body.into_reader().take(size.saturating_add(1));
    loop {
        let mut chunk = vec![0; CHUNK];
        match body.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                chunk.truncate(read);
                if sender.send(Ok(chunk)).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(FileError::Connection { url: url.into(), reason: error.to_string() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// The example of the standard (FIPS 180-4).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn go_on(_: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A server on loopback that answers one request with these bytes, then `endless` blanks until nobody listens.
    fn serve(answer: String, endless: bool) -> (String, JoinHandle<u64>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            assert!(request.starts_with(b"GET /file HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
            let mut sent = 0;
            while endless && sent < 1 << 30 && stream.write_all(&[b' '; 1 << 16]).is_ok() {
                sent += 1 << 16;
            }
            sent
        });
        (url, server)
    }

    /// Fetches from such a server to `abc` in a folder; what came of it, and what is in the folder afterwards.
    fn get(answer: &str, size: u64, sha256: &str) -> (Result<Report, FileError>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let (url, server) = serve(answer.into(), false);
        let path = folder.path().join("made/for/abc");
        let result = fetch_with(&direct(), &url, &path, size, sha256, &mut go_on);
        server.join().unwrap();
        if result.is_ok() {
            assert_eq!(fs::read(&path).unwrap(), b"abc");
            return (result, names(&folder.path().join("made/for")));
        }
        (result, names(folder.path()))
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Without the proxy that the environment may name.
    fn direct() -> ureq::Agent {
        ureq::Agent::config_builder()
            .proxy(None)
            .timeout_per_read(Some(Duration::from_secs(5)))
            .build()
            .into()
    }

    #[test]
    fn a_good_download_is_kept() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        ] {
            let (result, names) = get(answer, 3, &ABC.to_uppercase());
            assert_eq!(result.unwrap().sha256, ABC);
            assert_eq!(names, ["abc"]);
        }
    }

    #[test]
    fn a_bad_download_leaves_nothing() {
        let nothing = Vec::<String>::new();
        let wrong_hash = get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabd", 3, ABC);
        assert!(matches!(wrong_hash.0, Err(FileError::Hash { .. })), "{wrong_hash:?}");
        let wrong_length = get("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", 3, ABC);
        assert!(
            matches!(wrong_length.0, Err(FileError::Size { found: 2, expected: 3, .. })),
            "{wrong_length:?}"
        );
        let short = get("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab", 3, ABC);
        assert!(matches!(short.0, Err(FileError::Size { found: 2, expected: 3, .. })), "{short:?}");
        let closed = get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 3, ABC);
        assert!(matches!(closed.0, Err(FileError::Connection { .. })), "{closed:?}");
        let closed_at_once = get("", 3, ABC);
        assert!(matches!(closed_at_once.0, Err(FileError::Connection { .. })), "{closed_at_once:?}");
        let broken = get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nxyz", 3, ABC);
        assert!(matches!(broken.0, Err(FileError::Connection { .. })), "{broken:?}");
        let missing = get("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 3, ABC);
        assert!(matches!(missing.0, Err(FileError::Status { status: 404, .. })), "{missing:?}");
        for (_, names) in [wrong_hash, wrong_length, short, closed, closed_at_once, broken, missing] {
            assert_eq!(names, nothing);
        }
    }

    #[test]
    fn an_endless_download_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let (url, server) = serve("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc".into(), true);
        let error = fetch_with(&direct(), &url, &folder.path().join("abc"), 3, ABC, &mut go_on).unwrap_err();
        assert!(matches!(error, FileError::Size { found: 4, expected: 3, .. }), "{error}");
        // The server got rid of no more than the buffers on the way hold.
        assert!(server.join().unwrap() < 64 << 20);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_download_is_watched_and_can_be_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/abc");
        let (url, server) = serve("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc".into(), false);
        let mut seen = Vec::new();
        let mut watch = |bytes| {
            seen.push(bytes);
            ControlFlow::Continue(())
        };
        fetch_with(&direct(), &url, &path, 3, ABC, &mut watch).unwrap();
        server.join().unwrap();
        assert!(seen.is_sorted() && seen.last() == Some(&3), "{seen:?}");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();

        // Nobody answers: a listener that accepts nothing. The watch is asked all the same.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", silent.local_addr().unwrap());
        let mut times = 0;
        let mut watch = |bytes| {
            assert!(bytes == 0 && path.parent().unwrap().is_dir());
            times += 1;
            if times == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let error = fetch_with(&direct(), &url, &path, 3, ABC, &mut watch).unwrap_err();
        assert!(matches!(error, FileError::Stopped { .. }), "{error}");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_cannot_be_written_is_not_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for path in ["file/abc", "file/made/abc"] {
            let path = folder.path().join(path);
            let error =
                fetch_with(&direct(), "http://127.0.0.1:9/file", &path, 3, ABC, &mut go_on).unwrap_err();
            assert!(matches!(error, FileError::Io { verb: "create", .. }), "{error}");
        }
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn names_are_files_or_sets() {
        let all = ["tiny-shakespeare", "ptb", "ptb.train", "ptb.valid", "ptb.test", "t5-tokenizer"];
        assert_eq!(super::names(), all);
        let files = |name| named(name).map(|files| files.iter().map(|file| file.name).collect::<Vec<_>>());
        assert_eq!(files("ptb").unwrap(), ["ptb.train", "ptb.valid", "ptb.test"]);
        assert_eq!(files("ptb.valid").unwrap(), ["ptb.valid"]);
        assert_eq!(files("t5-tokenizer").unwrap(), ["t5-tokenizer"]);
        assert!(files("ptb.").is_err() && files("").is_err() && files("train").is_err());
    }

    #[test]
    fn what_is_there_is_not_fetched_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        // Port 9 discards; nothing is asked of it.
        let url = "http://127.0.0.1:9/file";
        fs::write(&path, "abc").unwrap();
        assert_eq!(fetch_with(&direct(), url, &path, 3, ABC, &mut go_on).unwrap().size, 3);
        fs::write(&path, "mine").unwrap();
        let error = fetch_with(&direct(), url, &path, 3, ABC, &mut go_on).unwrap_err();
        assert!(matches!(error, FileError::InTheWay { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let nobody = fetch_with(&direct(), url, &folder.path().join("other"), 3, ABC, &mut go_on);
        assert!(matches!(nobody, Err(FileError::Connection { .. })), "{nobody:?}");
        for url in ["", "file", "ftp://127.0.0.1/x", "http://", "\u{0}"] {
            let wrong = fetch_with(&direct(), url, &folder.path().join("other"), 3, ABC, &mut go_on);
            assert!(matches!(wrong, Err(FileError::Connection { .. })), "{url:?}: {wrong:?}");
        }
        assert_eq!(names(folder.path()), ["abc"]);
    }

    #[test]
    fn files_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        fs::write(&path, "abc").unwrap();
        assert_eq!(
            verify(&path, 3, ABC).unwrap(),
            Report { path: path.clone(), size: 3, sha256: ABC.into() }
        );
        assert!(matches!(verify(&path, 4, ABC), Err(FileError::Size { found: 3, expected: 4, .. })));
        assert!(matches!(verify(&path, 3, &ABC.replace('b', "c")), Err(FileError::Hash { .. })));
        assert!(matches!(verify(&path, 3, "ba78"), Err(FileError::NotAHash { .. })));
        let error = verify(folder.path(), 3, ABC).unwrap_err().to_string();
        assert!(error.ends_with("it is not a file"), "{error}");
        #[cfg(unix)]
        assert!(verify(Path::new("/dev/zero"), 0, ABC).is_err(), "a device does not end");
        let error = check("tiny-shakespear", &path).unwrap_err().to_string();
        assert!(error.contains("tiny-shakespeare, ptb.train, ptb.valid, ptb.test, t5-tokenizer"), "{error}");
        let error = check("ptb.test", &path).unwrap_err().to_string();
        assert!(error.contains("3 bytes where 449945"), "{error}");
        assert!(KNOWN.iter().all(|file| parse_hash(file.sha256).is_ok()));
    }
}
