//! The generated corpus: a small language made from a seed, whose best possible loss is known.
//!
//! The language is a Markov chain over tokens. Token 0 is the end of a sentence, [`EOS`]; the others are words. A token has a
//! short list of successors with probabilities, and the next token depends on nothing but the last one.
//!
//! **The chain is irreducible and aperiodic for every seed.** All tokens lie on one random cycle, and each has the next one on
//! it among its successors: any token can be reached from any other. Every word has the end of a sentence among its successors
//! too. So with `c₁, c₂` the first two words of the cycle after `EOS`, both `EOS → c₁ → EOS` and `EOS → c₁ → c₂ → EOS` are
//! possible: returns in 2 and in 3 tokens, which have no common divisor. The stationary distribution is therefore unique, and
//! averages over a long text converge to it.
//!
//! The text comes as tokens ([`Language::words`]), as characters ([`Language::characters`]: words with a space between them,
//! sentences that end in `".\n"`) and as documents of several sentences ([`Language::document`]), which T5 reads as
//! [`T5Vocabulary`]'s ids. Only sums, products and quotients make the language, so it is the same on every machine.
//!
//! ```
//! use untuned_net::data::corpus::{Language, Recipe, Split};
//!
//! let language = Language::new(Recipe::CHARACTERS, 1)?;
//! let text = language.characters(Split::Train, 0, 200);
//! assert_eq!(text.len(), 200);
//! // A model that has seen all of the text before pays this many nats for a character, and no model pays less.
//! let rate = language.entropy_rate_characters();
//! // One that sees 1 to 64 characters of a window pays more.
//! let best = language.best_loss_characters_seeing(1..65, 200);
//! assert!(best.nats > rate);
//! # Ok::<(), untuned_net::data::corpus::CorpusError>(())
//! ```

mod entropy;
mod vocabulary;

use std::collections::HashMap;

pub use entropy::{Estimate, Filter};
pub use vocabulary::T5Vocabulary;

use crate::random::{Draws, Site};

/// The token that ends a sentence: `<eos>` among words, `".\n"` among characters.
pub const EOS: u32 = 0;

const ONSETS: &[u8] = b"bdfghklmnprstvz";
const VOWELS: &[u8] = b"aeiou";
const CODAS: &[u8] = b"lmnrst";

/// The uses of randomness, far from the small numbers that layers take.
const SITES: u32 = 0x636F_7200;
const TABLE: u32 = SITES;
const SPELLING: u32 = SITES + 1;
const ESTIMATE: u32 = SITES + 2;
const STREAMS: u32 = SITES + 16;
const WORD_WINDOWS: u32 = SITES + 32;
const CHARACTER_WINDOWS: u32 = SITES + 48;
const DOCUMENTS: u32 = SITES + 64;

/// Why a corpus could not be made or a text not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CorpusError {
    /// The number of tokens is out of range.
    #[error("a language of {0} tokens: it needs from 3 to 100,000, the end of a sentence among them")]
    Tokens(usize),
    /// The number of successors is out of range.
    #[error(
        "{successors} successors for each of {tokens} tokens: it needs at least 2, and at most 256 or the number of words"
    )]
    Successors {
        /// What was asked for.
        successors: usize,
        /// The size of the language.
        tokens: usize,
    },
    /// The mean number of sentences in a document is out of range.
    #[error("documents of {0} sentences on average: it needs a number from 1 to 1,000,000")]
    Sentences(f64),
    /// A text contains a word that the language does not have.
    #[error("the language has no word {word:?} (word {at} of the text, counted from 0)")]
    UnknownWord {
        /// The word.
        word: String,
        /// How many words stand before it.
        at: usize,
    },
    /// A number that is no token.
    #[error("the language has no token {0}")]
    UnknownToken(u32),
    /// Too few tokens for the words, the three special tokens and the sentinels.
    #[error("a vocabulary of {given} tokens is too small for this language: it needs {needed}")]
    Vocabulary {
        /// What was asked for.
        given: u32,
        /// The smallest one that suffices.
        needed: u32,
    },
}

/// The size of a language.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// The number of tokens: the words and [`EOS`].
    pub tokens: usize,
    /// The number of successors of each token. A sentence has about this many words.
    pub successors: usize,
    /// The mean number of sentences in a document; the number is geometric, from 1.
    pub sentences: f64,
}

impl Recipe {
    /// For a GPT on characters: 640 transitions to learn, about 0.55 nats per character.
    pub const CHARACTERS: Self = Self { tokens: 64, successors: 10, sentences: 6.0 };
    /// For an LSTM on 1,000 words: about 1.8 nats per word.
    pub const WORDS: Self = Self { tokens: 1000, successors: 8, sentences: 6.0 };
    /// For a T5 with 1,000 tokens, 103 of which are special: about 1.8 nats per word, 55 tokens per document.
    pub const DOCUMENTS: Self = Self { tokens: 256, successors: 8, sentences: 6.0 };
}

/// Which part of the text: all three are drawn from one language and are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// To train on.
    Train,
    /// To choose by.
    Validation,
    /// To report.
    Test,
}

/// A language: its words, what follows what, and all text in it.
///
/// Every text has a number: the `n`-th of a split is a function of the seed, the split and `n`, and a longer text of the same
/// number begins with the shorter one.
#[derive(Debug, Clone)]
pub struct Language {
    seed: u64,
    sentences: f64,
    /// By token; empty for `EOS`.
    spellings: Vec<String>,
    ids: HashMap<String, u32>,
    /// By token: its successors with their probabilities.
    successors: Vec<Vec<(u32, f64)>>,
    stationary: Vec<f64>,
    alphabet: Vec<char>,
    states: entropy::States,
}

impl Language {
    /// The language of a seed.
    pub fn new(recipe: Recipe, seed: u64) -> Result<Self, CorpusError> {
        let Recipe { tokens, successors, sentences } = recipe;
        if !(3..=100_000).contains(&tokens) {
            return Err(CorpusError::Tokens(tokens));
        }
        if !(2..=256.min(tokens - 1)).contains(&successors) {
            return Err(CorpusError::Successors { successors, tokens });
        }
        if !(1.0..=1e6).contains(&sentences) {
            return Err(CorpusError::Sentences(sentences));
        }
        let table = table(tokens, successors, Site { seed, site: TABLE, step: 0 }.draws());
        let spellings = spellings(tokens, Site { seed, site: SPELLING, step: 0 }.draws());
        Ok(Self::from_parts(seed, sentences, spellings, table))
    }

    fn from_parts(
        seed: u64,
        sentences: f64,
        spellings: Vec<String>,
        successors: Vec<Vec<(u32, f64)>>,
    ) -> Self {
        let mut alphabet: Vec<char> =
            "\n .".chars().chain(spellings.iter().flat_map(|s| s.chars())).collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let ids = spellings.iter().enumerate().skip(1).map(|(id, word)| (word.clone(), id as u32)).collect();
        let stationary = entropy::stationary(&successors);
        let states = entropy::States::new(&spellings, &alphabet);
        Self { seed, sentences, spellings, ids, successors, stationary, alphabet, states }
    }

    /// The number of tokens, [`EOS`] among them.
    pub fn tokens(&self) -> usize {
        self.spellings.len()
    }

    /// The name of a token: the word, or `<eos>`.
    pub fn name(&self, token: u32) -> Option<&str> {
        if token == EOS { Some("<eos>") } else { self.spellings.get(token as usize).map(String::as_str) }
    }

    /// The token of a word.
    pub fn token(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    /// What can follow a token, with probabilities that sum to 1; nothing after a number that is no token.
    pub fn successors(&self, token: u32) -> &[(u32, f64)] {
        self.successors.get(token as usize).map_or(&[], Vec::as_slice)
    }

    /// The probability that `next` follows `token`.
    pub fn probability(&self, token: u32, next: u32) -> f64 {
        self.successors(token).iter().find(|(to, _)| *to == next).map_or(0.0, |(_, p)| *p)
    }

    /// The characters of all texts, sorted; a character's id is its index here.
    pub fn alphabet(&self) -> &[char] {
        &self.alphabet
    }

    /// The `n`-th stream of a split: tokens without end, from the beginning of a sentence.
    pub fn stream(&self, split: Split, n: u32) -> Tokens<'_> {
        self.tokens_after(EOS, self.draws(STREAMS, split, n))
    }

    /// The first `count` tokens of the `n`-th stream.
    pub fn words(&self, split: Split, n: u32, count: usize) -> Vec<u32> {
        self.stream(split, n).take(count).collect()
    }

    /// The first `count` characters of the `n`-th stream.
    pub fn characters(&self, split: Split, n: u32, count: usize) -> String {
        self.continued(String::new(), self.stream(split, n), count)
    }

    /// The `n`-th window of tokens: `count` of them from anywhere in an endless text.
    pub fn word_window(&self, split: Split, n: u32, count: usize) -> Vec<u32> {
        let mut draws = self.draws(WORD_WINDOWS, split, n);
        let first = pick(self.stationary.iter().copied(), &mut draws) as u32;
        std::iter::once(first).chain(self.tokens_after(first, draws)).take(count).collect()
    }

    /// The `n`-th window of characters: `count` of them from anywhere in an endless text, in the middle of a word too.
    pub fn character_window(&self, split: Split, n: u32, count: usize) -> String {
        self.character_window_from(self.draws(CHARACTER_WINDOWS, split, n), count)
    }

    /// The `n`-th document: sentences, each with its [`EOS`].
    pub fn document(&self, split: Split, n: u32) -> Vec<u32> {
        let mut draws = self.draws(DOCUMENTS, split, n);
        let mut left = 1;
        while draws.uniform() >= 1.0 / self.sentences {
            left += 1;
        }
        let mut document = Vec::new();
        let mut tokens = self.tokens_after(EOS, draws);
        while left > 0 {
            let token = tokens.draw();
            document.push(token);
            left -= usize::from(token == EOS);
        }
        document
    }

    /// Tokens as text.
    pub fn render(&self, tokens: &[u32]) -> Result<String, CorpusError> {
        let (mut text, mut previous) = (String::new(), EOS);
        for &token in tokens {
            if token as usize >= self.tokens() {
                return Err(CorpusError::UnknownToken(token));
            }
            self.push(&mut text, previous, token);
            previous = token;
        }
        Ok(text)
    }

    /// Text as tokens, the inverse of [`Language::render`]; any white space separates words.
    ///
    /// A text that was cut in the middle of a word ends in an unknown word, or in the shorter one that it then spells.
    pub fn parse(&self, text: &str) -> Result<Vec<u32>, CorpusError> {
        let mut at = 0;
        let mut tokens = Vec::new();
        for token in self.read(text) {
            tokens.push(token.map_err(|word| CorpusError::UnknownWord { word: word.into(), at })?);
            at += usize::from(tokens.last() != Some(&EOS));
        }
        Ok(tokens)
    }

    /// The tokens of a text, and the words that are none.
    fn read<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Result<u32, &'a str>> {
        text.split_whitespace().flat_map(|part| {
            let (word, end) = part.strip_suffix('.').map_or((part, None), |word| (word, Some(Ok(EOS))));
            let word = (!word.is_empty()).then(|| self.token(word).ok_or(word));
            word.into_iter().chain(end)
        })
    }

    fn draws(&self, site: u32, split: Split, n: u32) -> Draws {
        Site { seed: self.seed, site: site + split as u32, step: n }.draws()
    }

    fn tokens_after(&self, previous: u32, draws: Draws) -> Tokens<'_> {
        Tokens { language: self, previous, draws }
    }

    fn push(&self, text: &mut String, previous: u32, token: u32) {
        if token == EOS {
            text.push_str(".\n");
        } else {
            if previous != EOS {
                text.push(' ');
            }
            text.push_str(&self.spellings[token as usize]);
        }
    }

    /// Goes on with `text` to `count` characters, all of which are ASCII.
    fn continued(&self, mut text: String, mut tokens: Tokens<'_>, count: usize) -> String {
        while text.len() < count {
            let previous = tokens.previous;
            let token = tokens.draw();
            self.push(&mut text, previous, token);
        }
        text.truncate(count);
        text
    }

    fn character_window_from(&self, mut draws: Draws, count: usize) -> String {
        let state = pick(self.stationary_states(), &mut draws);
        let (token, rest) = self.states.rest(state);
        let text = rest.iter().map(|&character| self.alphabet[usize::from(character)]).collect();
        self.continued(text, self.tokens_after(token, draws), count)
    }
}

/// The tokens of a stream, without end.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    language: &'a Language,
    previous: u32,
    draws: Draws,
}

impl Tokens<'_> {
    fn draw(&mut self) -> u32 {
        let successors = &self.language.successors[self.previous as usize];
        self.previous = successors[pick(successors.iter().map(|(_, p)| *p), &mut self.draws)].0;
        self.previous
    }
}

impl Iterator for Tokens<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Some(self.draw())
    }
}

/// Draws an index with these probabilities.
fn pick(probabilities: impl Iterator<Item = f64>, draws: &mut Draws) -> usize {
    let mut left = draws.uniform();
    let mut last = 0;
    for (index, p) in probabilities.enumerate() {
        // Where rounding leaves the sum a hair below the drawn number, the last possible index takes it.
        if p > 0.0 {
            last = index;
        }
        if left < p {
            return index;
        }
        left -= p;
    }
    last
}

/// What follows what: the next token on a cycle through all, the end of a sentence after every word, and others.
fn table(tokens: usize, successors: usize, mut draws: Draws) -> Vec<Vec<(u32, f64)>> {
    let mut cycle: Vec<u32> = (0..tokens as u32).collect();
    for i in (2..tokens).rev() {
        cycle.swap(i, 1 + draws.below(i as u64) as usize);
    }
    let mut table = vec![Vec::new(); tokens];
    for (i, &token) in cycle.iter().enumerate() {
        let mut row = vec![cycle[(i + 1) % tokens]];
        if token != EOS && row[0] != EOS {
            row.push(EOS);
        }
        while row.len() < successors {
            // Low numbers are more frequent, as some words of any language are.
            let u = draws.uniform();
            let other = 1 + ((tokens - 1) as f64 * u * u) as u32;
            if other != token && !row.contains(&other) {
                row.push(other);
            }
        }
        let weights: Vec<f64> = row.iter().map(|_| draws.uniform()).map(|u| 0.05 + u * u).collect();
        let sum: f64 = weights.iter().sum();
        table[token as usize] = row.into_iter().zip(weights).map(|(to, weight)| (to, weight / sum)).collect();
    }
    table
}

/// Distinct words of one to a few syllables; those of low numbers are shorter.
fn spellings(tokens: usize, mut draws: Draws) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let mut spellings = vec![String::new()];
    let letter =
        |draws: &mut Draws, letters: &[u8]| char::from(letters[draws.below(letters.len() as u64) as usize]);
    for rank in 1..tokens {
        let likely_long = if rank < tokens / 2 { 8 } else { 2 };
        for attempt in 0.. {
            // The longer it takes to find a free word, the longer the word.
            let syllables = 1 + u64::from(draws.below(likely_long) == 0) + attempt / 8;
            let mut word = String::new();
            for _ in 0..syllables {
                word.push(letter(&mut draws, ONSETS));
                word.push(letter(&mut draws, VOWELS));
            }
            if draws.below(4) == 0 {
                word.push(letter(&mut draws, CODAS));
            }
            if seen.insert(word.clone()) {
                spellings.push(word);
                break;
            }
        }
    }
    spellings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recipe(tokens: usize, successors: usize) -> Recipe {
        Recipe { tokens, successors, sentences: 3.0 }
    }

    /// The tokens that `steps` can reach from `from`, in any number of steps.
    fn reached(steps: &[Vec<u32>], from: u32) -> usize {
        let mut seen = vec![false; steps.len()];
        let mut open = vec![from];
        while let Some(token) = open.pop() {
            if !std::mem::replace(&mut seen[token as usize], true) {
                open.extend(&steps[token as usize]);
            }
        }
        seen.iter().filter(|&&s| s).count()
    }

    /// The greatest common divisor of all round trips: that of `depth(from) + 1 − depth(to)` over all transitions, with
    /// depths by breadth-first search.
    fn period(steps: &[Vec<u32>]) -> u64 {
        let mut depth = vec![u64::MAX; steps.len()];
        depth[0] = 0;
        let mut queue = std::collections::VecDeque::from([0u32]);
        while let Some(token) = queue.pop_front() {
            for &to in &steps[token as usize] {
                if depth[to as usize] == u64::MAX {
                    depth[to as usize] = depth[token as usize] + 1;
                    queue.push_back(to);
                }
            }
        }
        let mut period = 0;
        for (token, row) in steps.iter().enumerate() {
            for &to in row {
                let (mut a, mut b) = (period, (depth[token] + 1).abs_diff(depth[to as usize]));
                while b > 0 {
                    (a, b) = (b, a % b);
                }
                period = a;
            }
        }
        period
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn every_language_is_irreducible_and_aperiodic(
            seed in any::<u64>(), tokens in 3usize..120, share in 0.0..1.0f64,
        ) {
            let successors = 2 + (share * share * (tokens - 3) as f64) as usize;
            let language = Language::new(recipe(tokens, successors), seed).unwrap();
            let mut steps = vec![Vec::new(); tokens];
            let mut back = vec![Vec::new(); tokens];
            for token in 0..tokens as u32 {
                let row = language.successors(token);
                prop_assert_eq!(row.len(), successors);
                prop_assert!((row.iter().map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-14);
                for &(to, p) in row {
                    prop_assert!(p > 0.0 && to != token);
                    steps[token as usize].push(to);
                    back[to as usize].push(token);
                }
                steps[token as usize].sort_unstable();
                steps[token as usize].dedup();
                prop_assert_eq!(steps[token as usize].len(), successors, "a successor twice");
            }
            prop_assert_eq!(reached(&steps, EOS), tokens);
            prop_assert_eq!(reached(&back, EOS), tokens);
            prop_assert_eq!(period(&steps), 1);
        }

        #[test]
        fn text_reads_back(seed in any::<u64>(), n in any::<u32>(), count in 0usize..300) {
            let language = Language::new(recipe(50, 4), seed).unwrap();
            let words = language.words(Split::Test, n, count);
            let text = language.render(&words).unwrap();
            prop_assert_eq!(language.parse(&text).unwrap(), words);
            prop_assert_eq!(language.characters(Split::Test, n, text.len()), text);
        }

        #[test]
        fn any_text_and_recipe_get_an_answer(
            text in ".{0,40}", seed in any::<u64>(), tokens in 0usize..9, successors in 0usize..9, sentences in any::<f64>(),
        ) {
            let fits = (3..9).contains(&tokens) && (2..tokens).contains(&successors) && (1.0..=1e6).contains(&sentences);
            let language = Language::new(Recipe { tokens, successors, sentences }, seed);
            prop_assert_eq!(language.is_ok(), fits);
            let language = Language::new(recipe(3, 2), seed).unwrap();
            let _ = (language.parse(&text), T5Vocabulary::new(&language, 200).unwrap().of_text(&text));
            let mut filter = language.filter();
            for character in text.chars() {
                let predicted: f64 = filter.predict().iter().sum();
                prop_assert!(predicted == 0.0 || (predicted - 1.0).abs() < 1e-12);
                filter.observe(character);
            }
        }
    }

    #[test]
    fn a_text_is_a_function_of_seed_split_and_number() {
        let [one, again, other] = [1, 1, 2].map(|seed| Language::new(Recipe::CHARACTERS, seed).unwrap());
        let texts = |language: &Language| {
            let mut texts = Vec::new();
            for split in [Split::Train, Split::Validation, Split::Test] {
                for n in [0, 1, u32::MAX] {
                    texts.push(language.characters(split, n, 300));
                    texts.push(language.character_window(split, n, 300));
                    texts.push(language.render(&language.word_window(split, n, 100)).unwrap());
                    // Nine together: one alone can be a single short sentence, twice the same by chance.
                    let documents =
                        (0..9).flat_map(|k| language.document(split, n.wrapping_mul(99).wrapping_add(k)));
                    texts.push(language.render(&documents.collect::<Vec<_>>()).unwrap());
                }
            }
            texts
        };
        assert_eq!(texts(&one), texts(&again));
        let mut all = [texts(&one), texts(&other)].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "two texts are the same");
        assert_ne!(one.spellings, other.spellings);
        assert!(one.characters(Split::Train, 3, 500).starts_with(&one.characters(Split::Train, 3, 123)));
    }

    /// A change here changes every recorded loss.
    #[test]
    fn the_text_of_seed_1_stays_as_it_is() {
        let language = Language::new(Recipe::CHARACTERS, 1).unwrap();
        assert_eq!(
            language.characters(Split::Train, 0, 60),
            "be.\nva sa ka lege mo nadu to ba net kasa to va sa vare veges"
        );
    }

    #[test]
    fn characters_are_few_and_sorted() {
        let language = Language::new(Recipe::CHARACTERS, 1).unwrap();
        assert!(language.alphabet().len() <= 26 + 3 && language.alphabet().is_sorted());
        let mut found: Vec<char> = language.characters(Split::Train, 0, 100_000).chars().collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, language.alphabet(), "a vocabulary built from the text is the same");
    }

    #[test]
    fn words_are_distinct_and_named() {
        for recipe in [Recipe::CHARACTERS, Recipe::WORDS, Recipe::DOCUMENTS, recipe(20_000, 2)] {
            let language = Language::new(recipe, 5).unwrap();
            assert_eq!(language.ids.len(), recipe.tokens - 1);
            for token in 1..recipe.tokens as u32 {
                assert_eq!(language.token(language.name(token).unwrap()), Some(token));
            }
            assert_eq!((language.name(EOS), language.name(recipe.tokens as u32)), (Some("<eos>"), None));
        }
    }

    /// The mean number of sentences of 4,000 documents, geometric with mean 6 and deviation √30, within five standard errors.
    #[test]
    fn documents_are_sentences() {
        let language = Language::new(Recipe::DOCUMENTS, 1).unwrap();
        let documents: Vec<_> = (0..4000).map(|n| language.document(Split::Train, n)).collect();
        assert!(documents.iter().all(|d| d.first() != Some(&EOS) && d.last() == Some(&EOS)));
        let sentences = documents.iter().flatten().filter(|&&t| t == EOS).count() as f64 / 4000.0;
        assert!((sentences - 6.0).abs() < 5.0 * 30f64.sqrt() / 4000f64.sqrt(), "{sentences}");
        assert!(documents.iter().any(|d| d.iter().filter(|&&t| t == EOS).count() == 1));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let language = Language::new(Recipe::CHARACTERS, 1).unwrap();
        let word = language.name(5).unwrap();
        let text = format!("{word} {word}.\nxyz {word}.\n");
        assert_eq!(language.parse(&text), Err(CorpusError::UnknownWord { word: "xyz".into(), at: 2 }));
        assert_eq!(language.render(&[1, 64]), Err(CorpusError::UnknownToken(64)));
        assert_eq!(Language::new(recipe(2, 2), 0).err(), Some(CorpusError::Tokens(2)));
        assert!(Language::new(Recipe { sentences: f64::NAN, ..Recipe::WORDS }, 0).is_err());
    }
}
