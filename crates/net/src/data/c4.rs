//! C4's documents: gzipped files ("shards") with one JSON object `{"text": …}` a line, read one line at a time.

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest line that is read: 64 MiB.
pub const LONGEST_LINE: usize = 64 << 20;

/// Why the documents cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum C4Error {
    /// A shard is a folder, a pipe or a device.
    #[error("{path} is not a file; give shards in C4's form (.json.gz)", path = path.display())]
    NotAFile { path: PathBuf },
    /// A folder or shard does not exist, or the system refused.
    #[error("cannot read {path}: {source}", path = path.display())]
    Open { path: PathBuf, source: std::io::Error },
    /// There is nothing to read.
    #[error("no documents in {path}; give files named like c4-train.00000-of-01024.json.gz", path = path.display())]
    Nothing {
        /// The folder, or the last shard.
        path: PathBuf,
    },
    /// The file is damaged, cut short or not gzip.
    #[error("{shard}: line {line} cannot be unpacked ({source}); fetch the file again", shard = shard.display())]
    Gzip {
        shard: PathBuf,
        /// The line, counted from 1.
        line: u64,
        source: std::io::Error,
    },
    /// A line is not a JSON object with a string as `text`.
    #[error("{shard}: line {line} is not a JSON object with a text ({source}); fix or remove the line", shard = shard.display())]
    Json {
        shard: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong, and at which column.
        source: serde_json::Error,
    },
    /// A line has no field `text`.
    #[error("{shard}: line {line} has no field \"text\"; fix or remove the line", shard = shard.display())]
    NoText {
        shard: PathBuf,
        /// The line, counted from 1.
        line: u64,
    },
    /// A line does not end.
    #[error("{shard}: line {line} is longer than {longest} bytes; split the document", shard = shard.display())]
    TooLong {
        shard: PathBuf,
        /// The line, counted from 1.
        line: u64,
        longest: usize,
    },
}

/// The shards of a folder, every `*.json.gz` sorted by name; or the one that is given as a file.
pub fn shards(path: &Path) -> Result<Vec<PathBuf>, C4Error> {
    let open = |source| C4Error::Open { path: path.into(), source };
    // A pipe or a device would be read without end.
    let file = |shard: PathBuf| match std::fs::metadata(&shard) {
        Ok(found) if !found.is_file() => Err(C4Error::NotAFile { path: shard }),
        Ok(_) => Ok(shard),
        Err(source) => Err(C4Error::Open { path: shard, source }),
    };
    if !std::fs::metadata(path).map_err(open)?.is_dir() {
        return Ok(vec![file(path.into())?]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(open)? {
        let entry = entry.map_err(open)?;
        if entry.file_name().to_string_lossy().ends_with(".json.gz") {
            found.push(file(entry.path())?);
        }
    }
    found.sort();
    if found.is_empty() { Err(C4Error::Nothing { path: path.into() }) } else { Ok(found) }
}

/// How far the documents have been read: enough to read on from there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The shard's place in the list.
    pub shard: usize,
    /// The lines of it that have been read.
    pub line: u64,
}

/// The texts of all documents, in order. Ends after the first error.
#[derive(Debug)]
pub struct Documents {
    shards: Vec<PathBuf>,
    position: Position,
    open: Option<BufReader<MultiGzDecoder<BufReader<File>>>>,
    line: Vec<u8>,
    longest: usize,
}

#[derive(Deserialize)]
struct Line {
    text: Option<String>,
}

impl Documents {
    /// The documents of these shards.
    pub fn new(shards: Vec<PathBuf>) -> Self {
        Self::resume(shards, Position::default())
    }

    /// The documents of these shards from a position on. The lines before it are unpacked but not parsed.
    pub fn resume(shards: Vec<PathBuf>, position: Position) -> Self {
        Self { shards, position, open: None, line: Vec::new(), longest: LONGEST_LINE }
    }

    /// Where the next document is read.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next line into `self.line`; `false` at the end of the shard.
    fn read_line(&mut self, reader: &mut impl BufRead, shard: &Path, line: u64) -> Result<bool, C4Error> {
        self.line.clear();
        // One byte more than is allowed tells a long line from a line of exactly that length.
        let read = reader.take(self.longest as u64 + 1).read_until(b'\n', &mut self.line);
        read.map_err(|source| C4Error::Gzip { shard: shard.into(), line, source })?;
        if self.line.len() > self.longest && self.line.last() != Some(&b'\n') {
            return Err(C4Error::TooLong { shard: shard.into(), line, longest: self.longest });
        }
        Ok(!self.line.is_empty())
    }

    fn read(&mut self) -> Result<Option<String>, C4Error> {
        loop {
            let Some(shard) = self.shards.get(self.position.shard).cloned() else { return Ok(None) };
            let mut reader = match self.open.take() {
                Some(reader) => reader,
                None => {
                    let file =
                        File::open(&shard).map_err(|source| C4Error::Open { path: shard.clone(), source })?;
                    let mut reader =
                        BufReader::with_capacity(1 << 16, MultiGzDecoder::new(BufReader::new(file)));
                    for line in 1..=self.position.line {
                        if !self.read_line(&mut reader, &shard, line)? {
                            break;
                        }
                    }
                    reader
                }
            };
            // A position that was read from a file can be anything.
            let line = self.position.line.saturating_add(1);
            if !self.read_line(&mut reader, &shard, line)? {
                self.position = Position { shard: self.position.shard + 1, line: 0 };
                continue;
            }
            let parsed: Line = serde_json::from_slice(&self.line).map_err(|source| C4Error::Json {
                shard: shard.clone(),
                line,
                source,
            })?;
            let text = parsed.text.ok_or(C4Error::NoText { shard, line })?;
            self.position.line = line;
            self.open = Some(reader);
            return Ok(Some(text));
        }
    }
}

impl Iterator for Documents {
    type Item = Result<String, C4Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let document = self.read();
        if document.is_err() {
            self.shards.clear();
        }
        document.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use std::io::Write;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    /// The texts up to the first error, and its words.
    fn read(bytes: &[u8], longest: usize) -> (Vec<String>, Option<C4Error>) {
        let folder = Folder::new();
        let mut documents = Documents::new(vec![folder.put("x.json.gz", bytes)]);
        documents.longest = longest;
        let mut texts = Vec::new();
        for document in documents.by_ref() {
            match document {
                Ok(text) => texts.push(text),
                Err(error) => {
                    assert!(documents.next().is_none(), "nothing after an error");
                    return (texts, Some(error));
                }
            }
        }
        (texts, None)
    }

    #[test]
    fn shards_in_order_other_fields_ignored() {
        let folder = Folder::new();
        folder.put("c4-train.00001-of-01024.json.gz", &gz(b"{\"text\":\"third\"}"));
        let two = b"{\"url\":\"u\",\"text\":\"fir\\u00e9\\nst\",\"n\":{\"a\":[1]}}\n{\"text\":\"second\"}\n";
        folder.put("c4-train.00000-of-01024.json.gz", &gz(two));
        folder.put("readme.txt", b"not a shard");
        folder.put("empty.json.gz", &gz(b""));
        let list = shards(folder.0.path()).unwrap();
        assert_eq!(list.len(), 3);
        let all: Vec<String> = Documents::new(list.clone()).map(Result::unwrap).collect();
        assert_eq!(all, ["firé\nst", "second", "third"]);
        // Reading on from every position gives the rest.
        let mut documents = Documents::new(list.clone());
        for done in 0..=3 {
            let rest: Vec<String> =
                Documents::resume(list.clone(), documents.position()).map(Result::unwrap).collect();
            assert_eq!(rest, all[done..]);
            documents.next();
        }
        assert_eq!(
            Documents::resume(list, Position { shard: 0, line: 99 }).count(),
            1,
            "past the end: the next shard"
        );
        assert_eq!(shards(&folder.put("one.gz", b"")).unwrap().len(), 1);
    }

    #[test]
    fn members_one_after_the_other_are_one_file() {
        let both = [gz(b"{\"text\":\"a\"}\n{\"te"), gz(b"xt\":\"b\"}\n")].concat();
        let (texts, error) = read(&both, LONGEST_LINE);
        assert!(error.is_none() && texts == ["a", "b"], "{error:?}");
    }

    #[test]
    fn errors_name_shard_and_line() {
        let good = "{\"text\":\"good\"}\n";
        let after_good = |bad: &str| read(&gz(format!("{good}{bad}\n{good}").as_bytes()), LONGEST_LINE);
        for bad in ["{\"text\":", "", "[]", "{\"text\":1}", "{\"text\":\"a\"}{}", "{\"text\":\"\\ud800\"}"] {
            let (texts, error) = after_good(bad);
            let error = error.unwrap();
            assert!(texts.len() == 1 && matches!(error, C4Error::Json { line: 2, .. }), "{bad}: {error}");
            assert!(error.to_string().contains("x.json.gz: line 2"), "{error}");
        }
        for bad in ["{}", "{\"txt\":\"a\"}", "{\"text\":null}"] {
            assert!(matches!(after_good(bad).1, Some(C4Error::NoText { line: 2, .. })), "{bad}");
        }
        let not_utf8 = read(&gz(b"{\"text\":\"\xff\"}"), LONGEST_LINE).1;
        assert!(matches!(not_utf8, Some(C4Error::Json { line: 1, .. })), "{not_utf8:?}");
        for bad in [&b"plain text"[..], b"", b"\x1f", b"\x1f\x8b"] {
            assert!(matches!(read(bad, LONGEST_LINE).1, Some(C4Error::Gzip { line: 1, .. })), "{bad:?}");
        }
        let folder = Folder::new();
        assert!(matches!(shards(folder.0.path()), Err(C4Error::Nothing { .. })));
        let missing = folder.0.path().join("missing.json.gz");
        assert!(matches!(shards(&missing), Err(C4Error::Open { .. })));
        let error = Documents::new(vec![missing]).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("missing.json.gz"), "{error}");
    }

    /// `{"text":"aaaa"}` is 15 bytes; the end of the line does not count.
    #[test]
    fn long_lines_are_refused_at_the_limit() {
        let lines = gz(b"{\"text\":\"aaaa\"}\n{\"text\":\"aaaaa\"}\n");
        let (texts, error) = read(&lines, 15);
        assert!(texts == ["aaaa"] && matches!(error, Some(C4Error::TooLong { line: 2, longest: 15, .. })));
        assert_eq!(read(&lines, 16).0.len(), 2);
        assert_eq!(read(&gz(b"{\"text\":\"aaaa\"}"), 15).0.len(), 1);
        // 200 MB of blanks without an end, packed into 200 kB: stopped at 64 MiB.
        let bomb = gz(&vec![b' '; 200_000_000]);
        assert!(matches!(read(&bomb, LONGEST_LINE).1, Some(C4Error::TooLong { line: 1, .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes, LONGEST_LINE);
            read(&gz(&bytes), LONGEST_LINE);
            read(&gz(&bytes), 20);
        }

        #[test]
        fn any_texts_read_back_and_a_cut_file_is_noticed(texts in proptest::collection::vec(any::<String>(), 1..20), cut: prop::sample::Index, flip: u8) {
            let lines: String = texts.iter().map(|text| serde_json::json!({ "text": text }).to_string() + "\n").collect();
            let packed = gz(lines.as_bytes());
            let (all, error) = read(&packed, LONGEST_LINE);
            prop_assert!(error.is_none());
            prop_assert_eq!(&all, &texts);
            let at = cut.index(packed.len());
            let (some, error) = read(&packed[..at], LONGEST_LINE);
            prop_assert!(matches!(error, Some(C4Error::Gzip { .. })), "cut at {at}: {error:?}");
            prop_assert_eq!(&some[..], &texts[..some.len()], "what came before the cut is right");
            let mut damaged = packed;
            damaged[at] ^= flip;
            read(&damaged, LONGEST_LINE);
        }
    }
}
