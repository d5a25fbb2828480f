//! The data that the networks train on: readers of files, and batches that are a function of the seed and their number.

pub mod batches;
pub mod c4;
pub mod corpus;
pub mod files;
pub mod t5;
pub mod text;
pub mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a text file could not be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ReadError {
    /// It does not exist, or the system refused.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// It is a folder, a pipe or a device.
    #[error("{path} is not a file; give a file with text in it", path = path.display())]
    NotAFile { path: PathBuf },
    /// There is nothing in it.
    #[error("{path} is empty; give a file with text in it", path = path.display())]
    Empty { path: PathBuf },
    /// It is not UTF-8.
    #[error(
        "{path} is not UTF-8 text: line {line}, byte {byte} of the file; convert it first, for example with iconv -t UTF-8",
        path = path.display()
    )]
    NotUtf8 {
        path: PathBuf,
        /// The line of the first bad byte, counted from 1.
        line: usize,
        /// The position of the first bad byte in the file, counted from 0.
        byte: usize,
    },
}

/// A whole file of text that is not empty.
fn read_text(path: &Path) -> Result<String, ReadError> {
    let io = |source| ReadError::Io { path: path.into(), source };
    // A pipe would be waited for without end.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(ReadError::NotAFile { path: path.into() });
    }
    let bytes = std::fs::read(path).map_err(io)?;
    if bytes.is_empty() {
        return Err(ReadError::Empty { path: path.into() });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..byte].iter().filter(|&&b| b == b'\n').count();
        ReadError::NotUtf8 { path: path.into(), line, byte }
    })?;
    // The mark that some editors put in front of UTF-8 is not part of the text.
    Ok(text.strip_prefix('\u{feff}').map(String::from).unwrap_or(text))
}

/// The ids to train on, to choose by and to test on. Shared, so that batches of each kind can hold the same ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splits {
    /// What the gradients see.
    pub train: Arc<[u32]>,
    /// What hyperparameters are chosen by.
    pub validation: Arc<[u32]>,
    /// What results are reported on.
    pub test: Arc<[u32]>,
}

impl Splits {
    /// The first 90 % train (rounded down); of the rest the first half validates (rounded down) and the second tests.
    pub fn of(ids: &[u32]) -> Self {
        // By parts of ten: `9 * len` could overflow.
        let train = ids.len() / 10 * 9 + ids.len() % 10 * 9 / 10;
        let validation = (ids.len() - train) / 2;
        let (train, rest) = ids.split_at(train);
        let (validation, test) = rest.split_at(validation);
        Self { train: train.into(), validation: validation.into(), test: test.into() }
    }

    /// The three with their names, in order.
    pub fn named(&self) -> [(&'static str, &Arc<[u32]>); 3] {
        [("train", &self.train), ("validation", &self.validation), ("test", &self.test)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_by_hand() {
        let lengths = |n: u32| {
            let all: Vec<u32> = (0..n).collect();
            let splits = Splits::of(&all);
            let joined: Vec<u32> = splits.named().iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
            assert_eq!(joined, all, "in order, nothing lost");
            splits.named().map(|(_, ids)| ids.len())
        };
        assert_eq!(lengths(0), [0, 0, 0]);
        assert_eq!(lengths(10), [9, 0, 1]);
        assert_eq!(lengths(19), [17, 1, 1]);
        assert_eq!(lengths(100), [90, 5, 5]);
        assert_eq!(lengths(1_115_394), [1_003_854, 55_770, 55_770]);
    }

    #[test]
    fn bad_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        assert!(read_text(&path).unwrap_err().to_string().contains("words.txt"));
        assert!(matches!(read_text(folder.path()), Err(ReadError::NotAFile { .. })));
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(read_text(&path), Err(ReadError::Empty { .. })));
        std::fs::write(&path, b"ab\nc\xff").unwrap();
        assert!(matches!(read_text(&path), Err(ReadError::NotUtf8 { line: 2, byte: 4, .. })));
        std::fs::write(&path, "\u{feff}ab\nc\u{e9}").unwrap();
        assert_eq!(read_text(&path).unwrap(), "ab\ncé");
    }
}
