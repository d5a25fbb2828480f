//! Documents as T5's ids, without a tokenizer: a word is a token.

use super::{CorpusError, Language};

/// T5's vocabulary for a [`Language`]: padding 0, end of document 1, unknown 2, then the language's tokens (the end of a sentence
/// first), and 100 sentinels at the top, from the highest down.
///
/// ```
/// use untuned_net::data::corpus::{Language, Recipe, Split, T5Vocabulary};
///
/// let language = Language::new(Recipe::DOCUMENTS, 1)?;
/// let vocabulary = T5Vocabulary::new(&language, 1000)?;
/// let document = vocabulary.of_tokens(&language.document(Split::Train, 0));
/// assert_eq!(document.last(), Some(&T5Vocabulary::END));
/// assert_eq!(vocabulary.sentinel(0), Some(999));
/// # Ok::<(), untuned_net::data::corpus::CorpusError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct T5Vocabulary<'a> {
    language: &'a Language,
    size: u32,
}

impl<'a> T5Vocabulary<'a> {
    /// Fills a batch; never predicted.
    pub const PADDING: u32 = 0;
    /// Ends a document.
    pub const END: u32 = 1;
    /// A word that the language does not have.
    pub const UNKNOWN: u32 = 2;
    /// The number of sentinels.
    pub const SENTINELS: u32 = 100;
    const FIRST: u32 = 3;

    /// A vocabulary of `size` tokens.
    pub fn new(language: &'a Language, size: u32) -> Result<Self, CorpusError> {
        let needed = Self::FIRST + language.tokens() as u32 + Self::SENTINELS;
        if size < needed {
            return Err(CorpusError::Vocabulary { given: size, needed });
        }
        Ok(Self { language, size })
    }

    /// The number of tokens.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The `k`-th sentinel, which stands for the `k`-th span that was cut out.
    pub fn sentinel(&self, k: u32) -> Option<u32> {
        (k < Self::SENTINELS).then(|| self.size - 1 - k)
    }

    /// The ids of a document, which is given as tokens of the language. The last id is [`T5Vocabulary::END`].
    pub fn of_tokens(&self, document: &[u32]) -> Vec<u32> {
        let known = |&token: &u32| {
            if (token as usize) < self.language.tokens() { Self::FIRST + token } else { Self::UNKNOWN }
        };
        document.iter().map(known).chain([Self::END]).collect()
    }

    /// The ids of a document's text. The last id is [`T5Vocabulary::END`].
    pub fn of_text(&self, document: &str) -> Vec<u32> {
        let tokens = self.language.read(document);
        tokens
            .map(|token| token.map_or(Self::UNKNOWN, |token| Self::FIRST + token))
            .chain([Self::END])
            .collect()
    }

    /// What an id stands for, in T5's names for the special tokens; nothing where the vocabulary has no use for it.
    pub fn name(&self, id: u32) -> Option<String> {
        match id {
            Self::PADDING => Some("<pad>".into()),
            Self::END => Some("</s>".into()),
            Self::UNKNOWN => Some("<unk>".into()),
            _ if id >= self.size => None,
            _ if id >= self.size - Self::SENTINELS => Some(format!("<extra_id_{}>", self.size - 1 - id)),
            Self::FIRST => Some(".".into()),
            _ => self.language.name(id - Self::FIRST).map(String::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::corpus::{EOS, Recipe, Split};

    #[test]
    fn tokens_and_text_give_the_same_ids() {
        let language = Language::new(Recipe::DOCUMENTS, 1).unwrap();
        let vocabulary = T5Vocabulary::new(&language, 1000).unwrap();
        for n in 0..100 {
            let document = language.document(Split::Train, n);
            let ids = vocabulary.of_tokens(&document);
            assert_eq!(ids, vocabulary.of_text(&language.render(&document).unwrap()));
            assert!(ids.iter().all(|&id| id == T5Vocabulary::END || (3..3 + 256).contains(&id)));
            assert_eq!(ids.iter().filter(|&&id| id == T5Vocabulary::END).count(), 1);
        }
        let word = language.name(9).unwrap();
        assert_eq!(
            vocabulary.of_text(&format!("{word} xyz {word}.")),
            [12, T5Vocabulary::UNKNOWN, 12, 3 + EOS, T5Vocabulary::END]
        );
        assert_eq!(vocabulary.of_tokens(&[u32::MAX]), [T5Vocabulary::UNKNOWN, T5Vocabulary::END]);
        assert_eq!(vocabulary.of_text(""), [T5Vocabulary::END]);
    }

    #[test]
    fn names_are_those_of_t5() {
        let language = Language::new(Recipe::DOCUMENTS, 1).unwrap();
        let vocabulary = T5Vocabulary::new(&language, 1000).unwrap();
        let name = |id| vocabulary.name(id);
        assert_eq!([0, 1, 2, 3].map(|p| name(p).unwrap()), ["<pad>", "</s>", "<unk>", "."]);
        assert_eq!([999, 900].map(|p| name(p).unwrap()), ["<extra_id_0>", "<extra_id_99>"]);
        assert_eq!(
            (vocabulary.sentinel(99), vocabulary.sentinel(100), vocabulary.size()),
            (Some(900), None, 1000)
        );
        assert_eq!(name(4).as_deref(), language.name(1));
        assert_eq!((name(3 + 256), name(1000), name(u32::MAX)), (None, None, None));
    }

    #[test]
    fn a_vocabulary_that_is_too_small_is_refused() {
        let language = Language::new(Recipe::WORDS, 1).unwrap();
        assert_eq!(
            T5Vocabulary::new(&language, 1102).err(),
            Some(CorpusError::Vocabulary { given: 1102, needed: 1103 })
        );
        assert!(T5Vocabulary::new(&language, 1103).is_ok());
    }
}
