//! Text by words, as awd-lstm-lm reads the Penn Treebank: words between white space, one `<eos>` after each line, ids by
//! first appearance over the train, then the validation, then the test file.

use super::text::UnknownId;
use super::{ReadError, Splits, read_text};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// The end of a line.
pub const END: &str = "<eos>";
/// What stands for rare words in the Penn Treebank.
pub const UNKNOWN: &str = "<unk>";

/// The distinct words, in order of appearance; a word's index is its id. Serializes as the list of its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Vocabulary {
    words: Vec<String>,
    ids: HashMap<String, u32>,
}

impl TryFrom<Vec<String>> for Vocabulary {
    type Error = RepeatedWord;

    fn try_from(words: Vec<String>) -> Result<Self, RepeatedWord> {
        let mut vocabulary = Self::default();
        for (position, word) in words.into_iter().enumerate() {
            if vocabulary.id_or_add(&word) as usize != position {
                return Err(RepeatedWord { word, position });
            }
        }
        Ok(vocabulary)
    }
}

impl From<Vocabulary> for Vec<String> {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.words
    }
}

impl Vocabulary {
    fn id_or_add(&mut self, word: &str) -> u32 {
        if let Some(&id) = self.ids.get(word) {
            return id;
        }
        let id = self.words.len() as u32;
        self.words.push(word.to_owned());
        self.ids.insert(word.to_owned(), id);
        id
    }

    /// The ids of a text's words, new words being added.
    fn extend(&mut self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        for line in text.lines() {
            ids.extend(line.split_whitespace().map(|word| self.id_or_add(word)));
            ids.push(self.id_or_add(END));
        }
        ids
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The words in the order of their ids.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// A word's id.
    pub fn id(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    /// The ids of a prompt's words, without ends of lines. A word that is not known is `<unk>` where the vocabulary has that
    /// word, and an error where it does not.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, UnknownWord> {
        let unknown = self.id(UNKNOWN);
        text.split_whitespace()
            .enumerate()
            .map(|(position, word)| {
                let id = self.id(word).or(unknown);
                id.ok_or_else(|| UnknownWord { word: word.to_owned(), position })
            })
            .collect()
    }

    /// The words that the ids stand for, with a space between two words and a new line for `<eos>`.
    pub fn decode(&self, ids: &[u32]) -> Result<String, UnknownId> {
        let mut text = String::new();
        for (position, &id) in ids.iter().enumerate() {
            let word = self.words.get(id as usize);
            match word.ok_or(UnknownId { id, position, len: self.len() })?.as_str() {
                END => text.push('\n'),
                word => {
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push(' ');
                    }
                    text.push_str(word);
                }
            }
        }
        Ok(text)
    }
}

/// A list of words that is no vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the word {word:?} at position {position} (from 0) stands in the vocabulary twice")]
pub struct RepeatedWord {
    /// The word.
    pub word: String,
    /// Where it stands the second time.
    pub position: usize,
}

/// A word that the vocabulary lacks, in a vocabulary without `<unk>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the word {word:?} at position {position} (from 0) is not one of those trained on; leave it out or train on text with it"
)]
pub struct UnknownWord {
    /// The word.
    pub word: String,
    /// How many words stand before it.
    pub position: usize,
}

/// A text as ids of words, split, with its vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// The words.
    pub vocabulary: Vocabulary,
    /// What to train, validate and test on.
    pub splits: Splits,
}

impl Words {
    /// Three files, such as `ptb.train.txt`, `ptb.valid.txt` and `ptb.test.txt`.
    pub fn read_three(train: &Path, validation: &Path, test: &Path) -> Result<Self, ReadError> {
        Ok(Self::from_three(&read_text(train)?, &read_text(validation)?, &read_text(test)?))
    }

    /// The files `ptb.train.txt`, `ptb.valid.txt` and `ptb.test.txt` of a folder.
    pub fn read_folder(folder: &Path) -> Result<Self, ReadError> {
        let file = |split: &str| folder.join(format!("ptb.{split}.txt"));
        Self::read_three(&file("train"), &file("valid"), &file("test"))
    }

    /// One file: of its words and ends of lines the first 90 % train, the next 5 % validate, the last 5 % test.
    pub fn read_one(path: &Path) -> Result<Self, ReadError> {
        Ok(Self::from_one(&read_text(path)?))
    }

    /// Three texts at hand.
    pub fn from_three(train: &str, validation: &str, test: &str) -> Self {
        let mut vocabulary = Vocabulary::default();
        let [train, validation, test] = [train, validation, test].map(|text| vocabulary.extend(text).into());
        Self { vocabulary, splits: Splits { train, validation, test } }
    }

    /// One text at hand.
    pub fn from_one(text: &str) -> Self {
        let mut vocabulary = Vocabulary::default();
        let ids = vocabulary.extend(text);
        Self { vocabulary, splits: Splits::of(&ids) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_by_hand() {
        let words = Words::from_three(" the cat \n the  <unk> sat\n", "a cat\n\n", "sat a dog");
        assert_eq!(words.vocabulary.words(), ["the", "cat", "<eos>", "<unk>", "sat", "a", "dog"]);
        assert_eq!(*words.splits.train, [0, 1, 2, 0, 3, 4, 2]);
        assert_eq!(*words.splits.validation, [5, 1, 2, 2], "an empty line is its end");
        assert_eq!(*words.splits.test, [4, 5, 6, 2], "the last line needs no new line");
        assert_eq!(words.vocabulary.encode("the mouse sat").unwrap(), [0, 3, 4]);
        assert_eq!(words.vocabulary.decode(&words.splits.train).unwrap(), "the cat\nthe <unk> sat\n");
        assert_eq!(words.vocabulary.decode(&[7]), Err(UnknownId { id: 7, position: 0, len: 7 }));
    }

    #[test]
    fn one_file_is_split_and_windows_lines_end_once() {
        let words = Words::from_one("a b\r\n".repeat(10).as_str());
        assert_eq!(words.vocabulary.words(), ["a", "b", "<eos>"]);
        assert_eq!(words.splits.named().map(|(_, ids)| ids.len()), [27, 1, 2]);
    }

    #[test]
    fn unknown_words_and_files_are_named() {
        let words = Words::from_one("a b");
        let unknown = words.vocabulary.encode("b c").unwrap_err();
        assert!(unknown.to_string().contains("\"c\" at position 1"), "{unknown}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ptb.train.txt"), "a b\n").unwrap();
        assert!(Words::read_folder(folder.path()).unwrap_err().to_string().contains("ptb.valid.txt"));
        std::fs::write(folder.path().join("ptb.valid.txt"), "").unwrap();
        let error = Words::read_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("ptb.valid.txt is empty"), "{error}");
        let twice = serde_json::from_str::<Vocabulary>(r#"["a","b","a"]"#).unwrap_err();
        assert!(twice.to_string().contains("\"a\" at position 2"), "{twice}");
    }

    proptest! {
        #[test]
        fn any_text_is_words(text in any::<String>()) {
            let words = Words::from_one(&text);
            let total: usize = words.splits.named().iter().map(|(_, ids)| ids.len()).sum();
            prop_assert_eq!(total, text.split_whitespace().count() + text.lines().count());
            let json = serde_json::to_string(&words.vocabulary).unwrap();
            prop_assert_eq!(serde_json::from_str::<Vocabulary>(&json).unwrap(), words.vocabulary);
        }
    }
}
