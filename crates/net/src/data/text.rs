//! Text by characters, as nanoGPT's `shakespeare_char` prepares it: the sorted distinct characters are the ids 0, 1, ….

use super::{ReadError, Splits, read_text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The distinct characters of a text, sorted; a character's index is its id. Serializes as the string of its characters.
///
/// ```
/// use untuned_net::data::text::Vocabulary;
///
/// let vocabulary = Vocabulary::new("banana");
/// assert_eq!(vocabulary.encode("nab")?, [2, 0, 1]);
/// assert_eq!(vocabulary.decode(&[1, 0, 2])?, "ban");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Vocabulary {
    characters: Vec<char>,
}

impl From<String> for Vocabulary {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<Vocabulary> for String {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.characters.into_iter().collect()
    }
}

impl Vocabulary {
    /// The characters of a text.
    pub fn new(text: &str) -> Self {
        Self { characters: text.chars().collect::<BTreeSet<_>>().into_iter().collect() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.characters.len()
    }

    /// True for the vocabulary of the empty text.
    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// The characters in the order of their ids.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// The ids of a text's characters.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, UnknownCharacter> {
        text.chars()
            .enumerate()
            .map(|(position, character)| match self.characters.binary_search(&character) {
                Ok(id) => Ok(id as u32),
                Err(_) => Err(UnknownCharacter { character, position }),
            })
            .collect()
    }

    /// The text that the ids stand for.
    pub fn decode(&self, ids: &[u32]) -> Result<String, UnknownId> {
        ids.iter()
            .enumerate()
            .map(|(position, &id)| {
                let known = self.characters.get(id as usize);
                known.copied().ok_or(UnknownId { id, position, len: self.len() })
            })
            .collect()
    }
}

/// A character that the vocabulary lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the character {character:?} at position {position} (from 0) is not one of those trained on; leave it out or train on text with it"
)]
pub struct UnknownCharacter {
    /// The character.
    pub character: char,
    /// How many characters stand before it.
    pub position: usize,
}

/// An id past the end of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id {id} at position {position} (from 0) does not exist: the vocabulary's ids are below {len}")]
pub struct UnknownId {
    /// The id.
    pub id: u32,
    /// How many ids stand before it.
    pub position: usize,
    /// The size of the vocabulary.
    pub len: usize,
}

/// Why a file is no text to train on.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A split does not hold one window and the character after it.
    #[error(
        "{path} is too short: its {split} split holds {found} characters, a context of {context} needs {needed}; \
         give a file of at least {total} characters or a context below {found}",
        path = path.display(), needed = context.saturating_add(1), total = context.saturating_add(1).saturating_mul(20)
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// The split.
        split: &'static str,
        /// Its length.
        found: usize,
        /// The context.
        context: usize,
    },
}

/// A text as ids, split, with its vocabulary (over all of the text, as upstream).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The characters.
    pub vocabulary: Vocabulary,
    /// 90 % to train on, 5 % to validate, 5 % to test.
    pub splits: Splits,
}

impl Text {
    /// Any UTF-8 file whose splits hold at least one window of `context` characters each.
    pub fn read(path: &Path, context: usize) -> Result<Self, TextError> {
        let text = Self::new(&read_text(path)?);
        for (split, ids) in text.splits.named() {
            if ids.len() <= context {
                return Err(TextError::TooShort { path: path.into(), split, found: ids.len(), context });
            }
        }
        Ok(text)
    }

    /// A text at hand.
    pub fn new(text: &str) -> Self {
        let vocabulary = Vocabulary::new(text);
        // Every character is known: the vocabulary is this text's own.
        let ids = vocabulary.encode(text).unwrap_or_default();
        Self { vocabulary, splits: Splits::of(&ids) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_by_hand() {
        let text = Text::new("to be or\n");
        assert_eq!(text.vocabulary.characters(), ['\n', ' ', 'b', 'e', 'o', 'r', 't']);
        assert_eq!(*text.splits.train, [6, 4, 1, 2, 3, 1, 4, 5]);
        assert_eq!((text.splits.validation.len(), &*text.splits.test), (0, &[0][..]));
        assert_eq!(Vocabulary::new("éa€").characters(), ['a', 'é', '€'], "by code point");
    }

    #[test]
    fn what_is_unknown_is_named() {
        let vocabulary = Vocabulary::new("abé");
        let unknown = vocabulary.encode("éx").unwrap_err();
        assert_eq!(unknown, UnknownCharacter { character: 'x', position: 1 });
        assert!(unknown.to_string().contains("'x' at position 1"));
        assert_eq!(vocabulary.decode(&[2, 3]), Err(UnknownId { id: 3, position: 1, len: 3 }));
        assert!(Vocabulary::new("").is_empty());
    }

    #[test]
    fn a_short_file_says_how_long_it_must_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("short.txt");
        std::fs::write(&path, "x".repeat(79)).unwrap();
        let error = Text::read(&path, 4).unwrap_err().to_string();
        assert!(error.contains("short.txt") && error.contains("at least 100 characters"), "{error}");
        std::fs::write(&path, "x".repeat(100)).unwrap();
        assert_eq!(Text::read(&path, 4).unwrap().splits.validation.len(), 5);
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert!(matches!(Text::read(&path, 4), Err(TextError::Read(ReadError::NotUtf8 { .. }))));
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in "\\PC*", other in any::<String>()) {
            let vocabulary = Vocabulary::new(&text);
            prop_assert_eq!(vocabulary.decode(&vocabulary.encode(&text).unwrap()).unwrap(), &text[..]);
            prop_assert!(vocabulary.characters().windows(2).all(|pair| pair[0] < pair[1]));
            let json = serde_json::to_string(&vocabulary).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Vocabulary>(&json).unwrap(), &vocabulary);
            if let Err(unknown) = vocabulary.encode(&other) {
                prop_assert_eq!(other.chars().nth(unknown.position), Some(unknown.character));
                prop_assert!(!text.contains(unknown.character));
            }
        }

        #[test]
        fn any_bytes_are_text_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), context in 0usize..20) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("any");
            std::fs::write(&path, &bytes).unwrap();
            match Text::read(&path, context) {
                Ok(text) => prop_assert!(text.splits.named().iter().all(|(_, ids)| ids.len() > context)),
                Err(error) => prop_assert!(error.to_string().contains("any")),
            }
        }
    }
}
