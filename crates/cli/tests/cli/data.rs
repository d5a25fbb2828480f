//! `untuned data`, against a server on loopback and files that are not right. The real files are used where they are here.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::{errors, json, program};

/// The size of tiny-shakespeare.
const SIZE: usize = 1_115_394;

/// The program with arguments split at spaces, in a folder of its own, with nothing of the data and proxies of this environment.
fn alone(arguments: &str, folder: &Path) -> Command {
    let mut command = program();
    command.args(arguments.split_whitespace()).current_dir(folder).env_remove("UNTUNED_DATA");
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy);
    }
    command
}

fn run(arguments: &str, folder: &Path) -> Output {
    alone(arguments, folder).output().expect("the program starts")
}

/// A server that answers one request.
fn serve(answer: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/file", listener.local_addr().expect("an address"));
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let (mut request, mut byte) = (Vec::new(), [0]);
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("readable") == 1 {
            request.push(byte[0]);
        }
        answer(stream);
    });
    (url, server)
}

/// An answer with this length in its head and these bytes; a client that leaves early is no failure of the server's.
fn body(length: usize, bytes: Vec<u8>) -> impl FnOnce(TcpStream) {
    move |mut stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

#[test]
fn a_download_that_fails_is_the_systems_and_leaves_nothing() {
    type Answer = Box<dyn FnOnce(TcpStream) + Send>;
    let status = |line: &'static str| move |mut stream: TcpStream| drop(stream.write_all(line.as_bytes()));
    let answers: Vec<(&str, Answer)> = vec![
        (
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            Box::new(body(SIZE, vec![b'x'; SIZE])),
        ),
        ("try again", Box::new(body(SIZE, vec![b'x'; SIZE / 2]))),
        ("has 7 bytes where 1115394 were expected", Box::new(body(7, b"nothing".to_vec()))),
        (
            "has 3 bytes where 1115394 were expected",
            Box::new(status("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")),
        ),
        ("answered 404", Box::new(status("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))),
        ("answered 503", Box::new(status("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"))),
        ("127.0.0.1", Box::new(status("no HTTP at all\r\n\r\n"))),
        ("127.0.0.1", Box::new(drop)),
    ];
    for (wanted, answer) in answers {
        let folder = tempfile::tempdir().expect("a folder");
        let (url, server) = serve(answer);
        let output =
            run(&format!("data fetch tiny-shakespeare --out new --json --from {url}"), folder.path());
        server.join().expect("the server ends");
        assert_eq!(output.status.code(), Some(4), "{wanted}: {}", errors(&output));
        assert!(errors(&output).contains(wanted), "{wanted}: {}", errors(&output));
        assert!(output.stdout.is_empty() && is_empty(folder.path()), "{wanted}");
    }
}

#[test]
fn a_connection_that_is_refused_is_the_systems_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let output = run(&format!("data fetch tiny-shakespeare --from http://{address}/file"), folder.path());
    assert_eq!(output.status.code(), Some(4), "{}", errors(&output));
    assert!(errors(&output).to_lowercase().contains("refused"), "{}", errors(&output));
    assert!(is_empty(folder.path()));
}

/// Once while half of the file is there, once before the server says anything: both end at once, and leave nothing.
#[test]
fn ctrl_c_leaves_nothing_of_a_download() {
    for half in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (url, server) = serve(move |stream| {
            let held = stream.try_clone().expect("a handle");
            if half {
                body(SIZE, vec![b'x'; SIZE / 2])(stream);
            }
            let _ = stopped.recv();
            drop(held);
        });
        let child = alone(&format!("data fetch tiny-shakespeare --from {url}"), folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let started = Instant::now();
        let part = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        let written = || {
            let entries = fs::read_dir(folder.path().join("untuned-data/tinyshakespeare"));
            entries.ok()?.next().map(|entry| part(entry.expect("an entry").path()) >= 1000)
        };
        while written() != Some(half) {
            assert!(started.elapsed() < Duration::from_secs(60), "the download does not start");
            sleep(Duration::from_millis(5));
        }
        let asked = Instant::now();
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let output = child.wait_with_output().expect("the program ends");
        assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
        assert!(asked.elapsed() < Duration::from_secs(20), "not only with the server's timeout");
        assert!(errors(&output).contains("not finished"), "{}", errors(&output));
        assert!(is_empty(folder.path()), "neither a part nor a folder");
        drop(stop);
        server.join().expect("the server ends");
    }
}

/// Nothing is asked of port 9.
#[test]
fn a_folder_that_cannot_be_used_is_the_requests_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("writable");
    let nobody = "--from http://127.0.0.1:9/file";
    for (out, wanted) in [
        ("file", "file is a file; name a folder with --out"),
        ("file/below", "is not a folder"),
        ("no/such/folder", "mkdir -p no/such"),
        ("/proc/none", "name another folder with --out"),
    ] {
        if out.starts_with("/proc") && !Path::new("/proc/self").exists() {
            continue;
        }
        let output = run(&format!("data fetch tiny-shakespeare {nobody} --out {out}"), folder.path());
        assert_eq!(output.status.code(), Some(2), "{out}: {}", errors(&output));
        assert!(errors(&output).contains(wanted), "{out}: {}", errors(&output));
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);

    let locked = folder.path().join("locked");
    fs::create_dir(&locked).expect("writable");
    let mut rights = fs::metadata(&locked).expect("there").permissions();
    rights.set_readonly(true);
    fs::set_permissions(&locked, rights).expect("ours");
    if fs::write(locked.join("probe"), "").is_ok() {
        println!("skipped: this user writes into folders without the right to");
        return;
    }
    let output = run(&format!("data fetch tiny-shakespeare {nobody} --out locked"), folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("name another folder with --out"), "{}", errors(&output));
}

#[test]
fn a_file_in_the_way_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data/tinyshakespeare/input.txt");
    fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
    fs::write(&path, "mine").expect("writable");
    let mut command = alone("data fetch tiny-shakespeare --from http://127.0.0.1:9/file", folder.path());
    let output = command.env("UNTUNED_DATA", "data").output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("move it away"), "{}", errors(&output));
    assert_eq!(fs::read(&path).expect("there"), b"mine");
}

#[test]
fn what_has_no_address_is_to_be_given_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, wanted) in [
        (
            "data fetch ptb.valid --out data",
            &["Linguistic Data Consortium", "data/ptb/ptb.valid.txt", "`untuned data check ptb.valid data`"]
                [..],
        ),
        ("data fetch ptb", &["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"]),
        ("data fetch t5-tokenizer", &["untuned-data/t5-tokenizer/tokenizer.json", "Apache-2.0"]),
        ("data fetch ptb --from http://127.0.0.1:9/x", &["name one of ptb.train, ptb.valid, ptb.test"]),
    ] {
        let output = run(arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", errors(&output));
        for words in wanted {
            assert!(errors(&output).contains(words), "{arguments}: {words}: {}", errors(&output));
        }
        assert!(is_empty(folder.path()) && output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn files_that_are_not_right_say_what_was_expected_and_what_to_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let ptb = folder.path().join("ptb");
    fs::create_dir(&ptb).expect("writable");
    fs::write(ptb.join("ptb.test.txt"), vec![b'x'; 449_945]).expect("writable");
    fs::write(ptb.join("ptb.valid.txt"), "short").expect("writable");
    fs::write(folder.path().join("text"), "To be").expect("writable");
    let test = "ptb.test.txt has SHA-256";
    for (arguments, wanted) in [
        (
            "data check tiny-shakespeare",
            &["does not exist", "1115394 bytes", "`untuned data fetch tiny-shakespeare`"][..],
        ),
        (
            "data check tiny-shakespeare text",
            &["text has 5 bytes where 1115394 were", "`untuned data fetch tiny-shakespeare`"],
        ),
        (
            "data check tiny-shakespeare .",
            &["./tinyshakespeare/input.txt does not", "tiny-shakespeare --out .`"],
        ),
        ("data check tiny-shakespeare text/below", &["text/below does not exist"]),
        ("data check ptb.test ptb/ptb.test.txt", &[test, "dd65dff31e70846b2a60", "by hand", "Consortium"]),
        ("data check ptb.valid ptb", &["ptb/ptb.valid.txt has 5 bytes where 399782 were expected"]),
        ("data check ptb .", &[test, "ptb.train.txt does not exist", "has 5 bytes where 399782"]),
        ("data check ptb text", &["ptb is 3 files", "ptb.train, ptb.valid, ptb.test"]),
        ("data check ptb nowhere", &["nowhere does not exist"]),
        ("data check t5-tokenizer /dev/zero", &["it is not a file"]),
        ("data check ptb.tran", &["ptb.train"]),
        ("data check", &["<NAME>"]),
        ("data fetch shakespeare", &["tiny-shakespeare"]),
        ("data --json check ptb", &["--json"]),
    ] {
        let output = run(arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", errors(&output));
        for words in wanted {
            assert!(errors(&output).contains(words), "{arguments}: {words}: {}", errors(&output));
        }
        assert!(output.stdout.is_empty(), "{arguments}: nothing on standard output");
    }

    let output = run("data check ptb --json ptb", folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let found = json(&output);
    assert!(found.as_array().is_some_and(|files| files.iter().all(|file| file["good"] == false)), "{found}");
    assert!(found[0]["found"].is_null() && found[0]["expected"]["size"] == 5_101_618);
    assert!(found[1]["found"]["size"] == 5 && found[1]["found"]["sha256"].is_null());
    assert!(found[2]["found"]["sha256"].as_str().is_some_and(|sum| sum.len() == 64));
}

#[test]
fn the_list_says_what_is_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, size: usize| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, vec![b'x'; size]).expect("writable");
    };
    put("data/ptb/ptb.valid.txt", 399_782);
    put("data/ptb/ptb.test.txt", 7);
    let listed = json(&run("data list --json --data data", folder.path()));
    let states: Vec<_> = listed.as_array().expect("a list").iter().map(|file| &file["state"]).collect();
    assert_eq!(states, ["missing", "missing", "found", "differs", "missing"]);
    for file in listed.as_array().expect("a list") {
        for key in ["name", "set", "what", "licence", "sha256", "path"] {
            assert!(file[key].is_string(), "{key} of {file}");
        }
        assert!(file["size"].is_u64() && file.get("url").is_some(), "{file}");
    }
    let named = alone("data --json", folder.path()).env("UNTUNED_DATA", "data").output();
    assert_eq!(json(&named.expect("it starts")), listed, "the environment's folder, without `list`");
    let nowhere = alone("data --json", folder.path()).env("UNTUNED_DATA", "").output().expect("it starts");
    assert_eq!(json(&nowhere)[2]["path"], "untuned-data/ptb/ptb.valid.txt", "empty is not set");
    let output = run("data --data data", folder.path());
    let words = String::from_utf8(output.stdout).expect("UTF-8");
    for wanted in ["ptb.valid (of ptb)", "1,115,394 bytes; public domain", "found: data/ptb/ptb.valid.txt"] {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
}

/// With the real file, where `UNTUNED_DATA` has it: fetched from loopback, checked, not fetched again.
#[test]
fn the_real_file_is_fetched_and_checked() {
    let real =
        std::env::var_os("UNTUNED_DATA").map(|data| Path::new(&data).join("tinyshakespeare/input.txt"));
    let Some(bytes) = real.and_then(|path| fs::read(path).ok()) else {
        println!("skipped: set UNTUNED_DATA to a folder with tinyshakespeare/input.txt");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (url, server) = serve(body(SIZE, bytes.clone()));
    let arguments = format!("data fetch tiny-shakespeare --json --from {url}");
    for downloaded in [true, false] {
        let output = run(&arguments, folder.path());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let value = json(&output);
        assert!(value[0]["downloaded"] == downloaded && value[0]["size"] == SIZE, "{value}");
    }
    server.join().expect("the server ends");
    let path = folder.path().join("untuned-data/tinyshakespeare/input.txt");
    assert!(fs::read(&path).expect("there") == bytes);
    assert_eq!(fs::read_dir(path.parent().expect("a parent")).expect("a folder").count(), 1, "no parts");
    let output = run("data check tiny-shakespeare", folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("tiny-shakespeare is right: "));
    assert_eq!(run("data fetch tiny-shakespeare", folder.path()).status.code(), Some(0), "already there");
}
