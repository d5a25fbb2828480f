//! `untuned data`.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;
use untuned_net::data::files::{self, FileError, KnownFile};

use crate::args::{Data, DataCheck, DataCommand, DataFetch, DataList};
use crate::end::End;
use crate::{interrupt, output};

/// Where data is looked for and fetched to when nothing else is said.
const DEFAULT_FOLDER: &str = "untuned-data";
const VARIABLE: &str = "UNTUNED_DATA";

pub fn run(args: &Data) -> Result<(), End> {
    match &args.command {
        None => list(&args.list),
        Some(DataCommand::List(args)) => list(args),
        Some(DataCommand::Check(args)) => check(args),
        Some(DataCommand::Fetch(args)) => fetch(args),
    }
}

/// The data folder: the one given, or the environment's, or the default.
fn folder(given: Option<&Path>) -> PathBuf {
    let named = || env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    given.map(Path::to_path_buf).or_else(named).unwrap_or_else(|| DEFAULT_FOLDER.into())
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    set: &'static str,
    what: &'static str,
    licence: &'static str,
    size: u64,
    sha256: &'static str,
    url: Option<&'static str>,
    path: PathBuf,
    /// `found` is by size alone; `untuned data check` reads the bytes.
    state: &'static str,
}

fn list(args: &DataList) -> Result<(), End> {
    let folder = folder(args.data.as_deref());
    let listed = files::KNOWN.iter().map(|file| {
        let path = folder.join(file.path);
        let state = match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() == file.size => "found",
            Ok(_) => "differs",
            Err(_) => "missing",
        };
        let KnownFile { name, what, licence, size, sha256, url, .. } = *file;
        Listed { name, set: file.set(), what, licence, size, sha256, url, path, state }
    });
    let listed: Vec<Listed> = listed.collect();
    if args.json {
        return output::print_json(&listed);
    }
    let mut text = String::new();
    for file in &listed {
        let set = if file.set == file.name { String::new() } else { format!(" (of {})", file.set) };
        let how = if file.url.is_some() {
            format!("`untuned data fetch {}` downloads it", file.name)
        } else {
            "to be given by hand".to_string()
        };
        let here = match file.state {
            "found" => format!("found: {}", file.path.display()),
            "differs" => format!("not what it should be: {}", file.path.display()),
            _ => format!("not found: {}; {how}", file.path.display()),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}{set}\n    {}\n    {} bytes; {}\n    {here}\n",
            file.name,
            file.what,
            HumanCount(file.size),
            file.licence
        );
    }
    output::print(&format!("{}\n", text.trim_end()))
}

/// What `check --json` prints of each file.
#[derive(Serialize)]
struct Checked {
    name: &'static str,
    path: PathBuf,
    good: bool,
    expected: Sum,
    /// Null for a file that is not there or cannot be read.
    found: Option<Found>,
}

#[derive(Serialize)]
struct Sum {
    size: u64,
    sha256: &'static str,
}

#[derive(Serialize)]
struct Found {
    size: u64,
    /// Null where the size tells enough.
    sha256: Option<String>,
}

fn check(args: &DataCheck) -> Result<(), End> {
    let wanted = files::named(&args.name).map_err(End::request)?;
    let whole = args.path.as_deref().filter(|path| !path.is_dir());
    if let (Some(path), [_, _, ..]) = (whole, &wanted[..]) {
        let (name, names) = (&args.name, wanted.iter().map(|file| file.name).collect::<Vec<_>>().join(", "));
        let shown = path.display();
        return Err(End::Request(if path.exists() {
            anyhow!("{name} is {} files, and {shown} is one; name one of {names}, or a folder", wanted.len())
        } else {
            anyhow!("{shown} does not exist; name the folder with {names}")
        }));
    }
    let folder = folder(args.path.as_deref());
    let (mut checked, mut wrong) = (Vec::new(), Vec::new());
    for file in wanted {
        let path = whole.map_or_else(|| place(file, &folder), Path::to_path_buf);
        let result = files::verify(&path, file.size, file.sha256);
        let found = match &result {
            Ok(report) => Some(Found { size: report.size, sha256: Some(report.sha256.clone()) }),
            Err(FileError::Size { found, .. }) => Some(Found { size: *found, sha256: None }),
            Err(FileError::Hash { found, .. }) => {
                Some(Found { size: file.size, sha256: Some(found.clone()) })
            }
            Err(_) => None,
        };
        let expected = Sum { size: file.size, sha256: file.sha256 };
        checked.push(Checked { name: file.name, path: path.clone(), good: result.is_ok(), expected, found });
        if let Err(error) = result {
            wrong.push(refusal(file, args, &path, error));
        }
    }
    let printed = if args.json {
        output::print_json(&checked)
    } else {
        let good = checked.iter().filter(|file| file.good);
        let lines = good.map(|file| format!("{} is right: {}\n", file.name, file.path.display()));
        output::print(&lines.collect::<String>())
    };
    unless_unread(printed)?;
    match wrong.len() {
        0 | 1 => wrong.pop().map_or(Ok(()), Err),
        _ => Err(together(wrong)),
    }
}

/// A reader that went away changes nothing of what is found or fetched.
fn unless_unread(printed: Result<(), End>) -> Result<(), End> {
    printed.or_else(|end| if matches!(end, End::BrokenPipe) { Ok(()) } else { Err(end) })
}

/// Where a file stands in a folder: at its place in a data folder, or right there.
fn place(file: &KnownFile, folder: &Path) -> PathBuf {
    let place = folder.join(file.path);
    let right_there = Path::new(file.path).file_name().map(|name| folder.join(name));
    match right_there {
        Some(path) if !place.exists() && path.exists() => path,
        _ => place,
    }
}

/// What is wrong with a file, and what to type.
fn refusal(file: &KnownFile, args: &DataCheck, path: &Path, error: FileError) -> End {
    let KnownFile { name, size, sha256, what, licence, url, .. } = file;
    let whole = args.path.as_deref().is_some_and(|path| !path.is_dir());
    let missing = matches!(&error, FileError::Io { source, .. } if is_missing(source));
    let how = if url.is_some() {
        let move_away = if whole || missing { "" } else { "move it away, then " };
        let out = args.path.as_deref().filter(|_| !whole);
        let out = out.map_or(String::new(), |folder| format!(" --out {}", folder.display()));
        format!("{move_away}type `untuned data fetch {name}{out}`")
    } else {
        let which = if missing { "it" } else { "the right one" };
        format!("put {which} there by hand: {what} ({licence})")
    };
    match error {
        FileError::Io { .. } if missing => End::Request(anyhow!(
            "{name}: {} does not exist, a file of {size} bytes with SHA-256 {sha256} was expected; {how}",
            path.display()
        )),
        FileError::Io { verb, path, source } => {
            End::io(source, format!("{name}: cannot {verb} {}", path.display()))
        }
        error => End::Request(anyhow!("{name}: {error}; {how}")),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Several ends as one: the system's failure where there is one.
fn together(ends: Vec<End>) -> End {
    let system = ends.iter().any(|end| matches!(end, End::System(_)));
    let words = ends.into_iter().filter_map(|end| match end {
        End::Request(error) | End::System(error) => Some(format!("{error:#}")),
        _ => None,
    });
    let error = anyhow!("{}", words.collect::<Vec<_>>().join("\nerror: "));
    if system { End::System(error) } else { End::Request(error) }
}

/// What `fetch --json` prints of each file.
#[derive(Debug, Serialize)]
struct Fetched {
    name: &'static str,
    path: PathBuf,
    size: u64,
    sha256: String,
    /// False for a file that was there and right.
    downloaded: bool,
}

fn fetch(args: &DataFetch) -> Result<(), End> {
    let wanted = files::named(&args.name).map_err(End::request)?;
    let out = folder(args.out.as_deref());
    let option = if args.out.is_some() { "--out" } else { "the data folder" };
    output::check_parent(&out, option)?;
    if out.exists() && !out.is_dir() {
        return Err(End::Request(anyhow!("{} is a file; name a folder with --out", out.display())));
    }
    if args.from.is_some() && wanted.len() > 1 {
        let names = wanted.iter().map(|file| file.name).collect::<Vec<_>>().join(", ");
        return Err(End::Request(anyhow!("--from is the address of one file; name one of {names}")));
    }
    // All that cannot be had is said before anything is downloaded.
    if let Some(from) =
        args.from.as_ref().filter(|url| !url.starts_with("http://") && !url.starts_with("https://"))
    {
        return Err(End::Request(anyhow!(
            "--from {from}: give an address that begins with http:// or https://"
        )));
    }
    let url = |file: &KnownFile| args.from.as_deref().or(file.url);
    let by_hand = wanted.iter().filter(|file| url(file).is_none() && !out.join(file.path).exists());
    let refused: Vec<End> = by_hand.map(|file| no_address(file, args, &out)).collect();
    if !refused.is_empty() {
        return Err(together(refused));
    }
    let mut all = Vec::new();
    for file in wanted {
        let fetched = fetch_one(file, url(file).unwrap_or_default(), &out)?;
        if !args.json {
            let word = if fetched.downloaded { "downloaded" } else { "already there" };
            unless_unread(output::print(&format!("{}, {word}: {}\n", fetched.name, fetched.path.display())))?;
        }
        all.push(fetched);
    }
    if args.json { output::print_json(&all) } else { Ok(()) }
}

/// That a file must be given by hand, and how.
fn no_address(file: &KnownFile, args: &DataFetch, out: &Path) -> End {
    let KnownFile { name, what, licence, size, .. } = file;
    let folder = args.out.as_deref().map_or(String::new(), |out| format!(" {}", out.display()));
    End::Request(anyhow!(
        "{name} has no address on the web: {what} ({licence}); put the file of {size} bytes at {} by hand, then type \
         `untuned data check {name}{folder}`",
        out.join(file.path).display()
    ))
}

fn fetch_one(file: &KnownFile, url: &str, out: &Path) -> Result<Fetched, End> {
    let path = out.join(file.path);
    let there = path.exists();
    let bar = if there { ProgressBar::hidden() } else { progress_bar(file) };
    let mut watch = |bytes| {
        bar.set_position(bytes);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = files::fetch(url, &path, file.size, file.sha256, &mut watch);
    bar.finish_and_clear();
    let report = result.map_err(|error| failure(error, &path))?;
    let (size, sha256) = (report.size, report.sha256);
    Ok(Fetched { name: file.name, path, size, sha256, downloaded: !there })
}

/// A server that does not answer or sends something else is the system's failure, a folder that cannot be used the request's.
fn failure(error: FileError, path: &Path) -> End {
    match error {
        FileError::Io { verb, path, source } => {
            match End::io(source, format!("cannot {verb} {}", path.display())) {
                End::Request(error) => End::Request(anyhow!("{error:#}; name another folder with --out")),
                end => end,
            }
        }
        FileError::Stopped { .. } => {
            output::say(&format!("{} is not there: its download was not finished", path.display()));
            End::Interrupted
        }
        error @ (FileError::Size { .. } | FileError::Hash { .. }) => End::System(anyhow!(
            "{error}; nothing was kept; try again later, or put the right file at {} by hand",
            path.display()
        )),
        error @ (FileError::Status { .. } | FileError::Connection { .. }) => End::System(error.into()),
        error => End::Request(error.into()),
    }
}

fn progress_bar(file: &KnownFile) -> ProgressBar {
    if !output::progress_is_seen() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes}, {eta} left");
    let bar = ProgressBar::new(file.size).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(file.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A file with the bytes `abc`, the example of FIPS 180-4.
    const ABC: KnownFile = KnownFile {
        name: "abc",
        path: "letters/abc.txt",
        size: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        url: None,
        what: "three letters",
        licence: "public domain",
    };

    #[test]
    fn a_file_is_downloaded_once() {
        let proxies = ["ALL_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy"];
        if proxies.iter().any(|name| env::var_os(name).is_some()) {
            println!("skipped: a proxy is set, which cannot reach the server of this test");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/abc", listener.local_addr().expect("an address"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a request");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("readable") > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").expect("writable");
        });
        let folder = tempfile::tempdir().expect("a folder");
        let first = fetch_one(&ABC, &url, folder.path()).expect("downloaded");
        server.join().expect("one request");
        assert!(first.downloaded && first.sha256 == ABC.sha256 && first.size == 3);
        assert_eq!(fs::read(&first.path).expect("there"), b"abc");
        // The server is gone: nothing more is asked of it.
        let second = fetch_one(&ABC, &url, folder.path()).expect("there");
        assert!(!second.downloaded && second.path == first.path);
        fs::write(&first.path, "abd").expect("writable");
        let end = fetch_one(&ABC, &url, folder.path()).expect_err("in the way");
        assert!(matches!(&end, End::Request(error) if error.to_string().contains("move it away")), "{end:?}");
        assert_eq!(fs::read(&first.path).expect("there"), b"abd", "left alone");
    }

    #[test]
    fn files_are_found_at_their_place_or_right_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let at_place = folder.path().join(ABC.path);
        assert_eq!(place(&ABC, folder.path()), at_place);
        fs::write(folder.path().join("abc.txt"), "").expect("writable");
        assert_eq!(place(&ABC, folder.path()), folder.path().join("abc.txt"));
        fs::create_dir(folder.path().join("letters")).expect("writable");
        fs::write(&at_place, "").expect("writable");
        assert_eq!(place(&ABC, folder.path()), at_place);
    }
}
