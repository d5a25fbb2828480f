//! The entropy of a [`Language`]: the loss that no model can beat.
//!
//! **Words.** With `P` the chain's transition probabilities and `π` its stationary distribution, the entropy rate is
//! `h = −Σ_u π_u Σ_w P_uw ln P_uw` nats per token. A model that sees the last token can reach it; more context does not help.
//!
//! **Characters.** A token `w` takes `len(w)` letters and one character more: `n` words and the end of their sentence have
//! `n − 1` spaces and `".\n"`. That is `C = 1 + Σ_w π_w len(w)` characters per token on average, `EOS` having no letters, and
//! the rate per character is `h / C`. For spelling adds no randomness and loses none: the tokens determine the characters, and
//! because words are distinct and a space or a full stop ends them, the characters determine all tokens but for one cut word
//! at either end of the text. The entropies of `n` characters and of the tokens under them thus differ by a bounded amount,
//! which division by `n` makes vanish. Letter by letter it is the same sum: the previous word and the prefix typed so far
//! determine the next character's probabilities, and by the chain rule the entropies of a word's letters add up to that of
//! the word (a test computes both sums).
//!
//! **With less context.** A model whose window begins anywhere does not know what stood before it. The best prediction from
//! the characters seen so far is the filter's ([`Filter`]): the distribution of the hidden state of the text given what was
//! seen, carried on character by character (the forward algorithm). Its expected entropy after `k` characters is the smallest
//! loss possible there, and it falls with `k` to the rate.

use std::ops::Range;

use super::{EOS, ESTIMATE, Language};
use crate::random::Site;

/// A mean over a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean loss in nats.
    pub nats: f64,
    /// Its standard error; infinite for a sample of one.
    pub standard_error: f64,
}

impl Estimate {
    /// The mean of independent numbers.
    pub fn of(sample: &[f64]) -> Self {
        let n = sample.len() as f64;
        let nats = sample.iter().sum::<f64>() / n;
        let variance = if sample.len() < 2 {
            f64::INFINITY
        } else {
            sample.iter().map(|x| (x - nats) * (x - nats)).sum::<f64>() / (n - 1.0)
        };
        Self { nats, standard_error: (variance / n).sqrt() }
    }
}

impl Language {
    /// How often each token occurs: `π = πP`.
    pub fn stationary(&self) -> &[f64] {
        &self.stationary
    }

    /// The entropy rate in nats per token: the best loss of a model that has seen at least one token, such as an LSTM that
    /// carries its state.
    pub fn entropy_rate_words(&self) -> f64 {
        self.stationary
            .iter()
            .zip(&self.successors)
            .map(|(pi, row)| pi * entropy(row.iter().map(|(_, p)| *p)))
            .sum()
    }

    /// The mean number of characters per token: its letters and one.
    pub fn characters_per_token(&self) -> f64 {
        1.0 + self
            .stationary
            .iter()
            .zip(&self.spellings)
            .map(|(pi, word)| pi * word.len() as f64)
            .sum::<f64>()
    }

    /// The entropy rate in nats per character: the best loss of a model that has seen the whole text before.
    pub fn entropy_rate_characters(&self) -> f64 {
        self.entropy_rate_words() / self.characters_per_token()
    }

    /// The best mean loss over all `context` tokens of a window, the first of which is predicted from nothing.
    ///
    /// NaN for a context of 0.
    pub fn best_loss_words(&self, context: usize) -> f64 {
        self.best_loss_words_seeing(0..context)
    }

    /// The best mean loss over positions that see so many tokens of a window: seeing none costs the entropy of `π`, seeing
    /// any the rate.
    ///
    /// A GPT that reads tokens `0..context` and predicts tokens `1..=context` sees `1..context + 1`. NaN for an empty range.
    pub fn best_loss_words_seeing(&self, seen: Range<usize>) -> f64 {
        let positions = seen.len() as f64;
        let blind = if seen.contains(&0) { 1.0 } else { 0.0 };
        (blind * entropy(self.stationary.iter().copied()) + (positions - blind) * self.entropy_rate_words())
            / positions
    }

    /// The best mean loss over all `context` characters of a window, the first of which is predicted from nothing.
    ///
    /// Each position is averaged exactly over its next character, and the characters before it over `windows` fresh windows.
    /// NaN for a context of 0 or no windows.
    pub fn best_loss_characters(&self, context: usize, windows: u32) -> Estimate {
        self.best_loss_characters_seeing(0..context, windows)
    }

    /// The best mean loss over positions that see so many characters of a window.
    ///
    /// A GPT that reads characters `0..context` and predicts characters `1..=context` sees `1..context + 1`. NaN for an empty
    /// range or no windows.
    pub fn best_loss_characters_seeing(&self, seen: Range<usize>, windows: u32) -> Estimate {
        let loss = |n| {
            let draws = Site { seed: self.seed, site: ESTIMATE, step: n }.draws();
            let window = self.character_window_from(draws, seen.end);
            let mut filter = self.filter();
            let mut sum = 0.0;
            for (k, character) in window.chars().enumerate() {
                if seen.contains(&k) {
                    sum += entropy(filter.predict().into_iter());
                }
                filter.observe(character);
            }
            sum / seen.len() as f64
        };
        Estimate::of(&(0..windows).map(loss).collect::<Vec<_>>())
    }

    /// The best prediction of the characters of a window that begins anywhere.
    pub fn filter(&self) -> Filter<'_> {
        let belief = self.stationary_states().enumerate().filter(|(_, p)| *p > 0.0);
        Filter {
            language: self,
            belief: belief.map(|(s, p)| (s as u32, p)).collect(),
            sums: vec![0.0; self.states.len()],
        }
    }

    /// The best prediction of the characters of a text that is known to begin with a sentence.
    pub fn filter_from_start(&self) -> Filter<'_> {
        let belief =
            self.successors[EOS as usize].iter().map(|&(to, p)| (self.states.first(EOS, to), p)).collect();
        Filter { language: self, belief, sums: vec![0.0; self.states.len()] }
    }

    /// How often a character of an endless text is each of the states.
    pub(super) fn stationary_states(&self) -> impl Iterator<Item = f64> {
        let all = self.characters_per_token();
        let after_end = self.stationary[EOS as usize];
        (0..self.states.len()).map(move |state| {
            let (token, position) = self.states.token_and_position(state);
            // No space is written before the first word of a sentence.
            let unwritten =
                if position == 0 && token != EOS { after_end * self.probability(EOS, token) } else { 0.0 };
            ((self.stationary[token as usize] - unwritten) / all).max(0.0)
        })
    }
}

/// The hidden states of a text: a token, and which of its characters (a word's are a space and its letters; those of the end of
/// a sentence are `.` and a new line).
#[derive(Debug, Clone)]
pub(super) struct States {
    /// By state: its token.
    owners: Vec<u32>,
    /// By state: the number of its character in the alphabet.
    characters: Vec<u8>,
    /// By token: its first state; one more at the end.
    begins: Vec<u32>,
}

impl States {
    pub(super) fn new(spellings: &[String], alphabet: &[char]) -> Self {
        let mut states = Self { owners: Vec::new(), characters: Vec::new(), begins: vec![0] };
        let number = |character| alphabet.binary_search(&character).unwrap_or_default() as u8;
        for (token, spelling) in spellings.iter().enumerate() {
            let (head, tail) = if token == EOS as usize { ('.', "\n") } else { (' ', spelling.as_str()) };
            states.characters.extend(std::iter::once(head).chain(tail.chars()).map(number));
            states.owners.resize(states.characters.len(), token as u32);
            states.begins.push(states.characters.len() as u32);
        }
        states
    }

    fn len(&self) -> usize {
        self.owners.len()
    }

    /// The state's token, and the position of its character in the token.
    fn token_and_position(&self, state: usize) -> (u32, u32) {
        let token = self.owners[state];
        (token, state as u32 - self.begins[token as usize])
    }

    /// The state's token, and its characters from the state on.
    pub(super) fn rest(&self, state: usize) -> (u32, &[u8]) {
        let token = self.owners[state];
        (token, &self.characters[state..self.begins[token as usize + 1] as usize])
    }

    /// Where `token` begins when it follows `previous`.
    fn first(&self, previous: u32, token: u32) -> u32 {
        self.begins[token as usize] + u32::from(previous == EOS)
    }
}

/// The best prediction of the next character from those before it: the forward algorithm over the hidden states of the text.
#[derive(Debug, Clone)]
pub struct Filter<'a> {
    language: &'a Language,
    /// The possible states of the next character, with their probabilities.
    belief: Vec<(u32, f64)>,
    /// By state; all zero between calls.
    sums: Vec<f64>,
}

impl Filter<'_> {
    /// The probabilities of the next character, in the order of [`Language::alphabet`]; all 0 after a text that the language
    /// cannot produce.
    pub fn predict(&self) -> Vec<f64> {
        let mut probabilities = vec![0.0; self.language.alphabet.len()];
        for &(state, p) in &self.belief {
            probabilities[usize::from(self.language.states.characters[state as usize])] += p;
        }
        probabilities
    }

    /// Takes the next character and returns the probability that it had.
    pub fn observe(&mut self, character: char) -> f64 {
        let Language { states, successors, alphabet, .. } = self.language;
        let number = alphabet.binary_search(&character).ok();
        self.belief.retain(|(state, _)| Some(usize::from(states.characters[*state as usize])) == number);
        let probability: f64 = self.belief.iter().map(|(_, p)| p).sum();
        let mut reached = Vec::new();
        let mut reach = |state: u32, p: f64| {
            if self.sums[state as usize] == 0.0 {
                reached.push(state);
            }
            self.sums[state as usize] += p;
        };
        for &(state, p) in &self.belief {
            let (token, rest) = states.rest(state as usize);
            if rest.len() > 1 {
                reach(state + 1, p / probability);
            } else {
                for &(next, transition) in &successors[token as usize] {
                    reach(states.first(token, next), p / probability * transition);
                }
            }
        }
        self.belief.clear();
        for state in reached {
            self.belief.push((state, std::mem::take(&mut self.sums[state as usize])));
        }
        probability
    }
}

/// `−Σ p ln p`.
fn entropy(probabilities: impl Iterator<Item = f64>) -> f64 {
    probabilities.filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum()
}

/// The solution of `π = πP` by power iteration.
///
/// It iterates `(P + I) / 2`, which has the same solution and no eigenvalue near −1. Every word is followed by the end of a
/// sentence with a probability that does not shrink with the language, so some hundred steps reach the last bits.
pub(super) fn stationary(successors: &[Vec<(u32, f64)>]) -> Vec<f64> {
    let tokens = successors.len();
    let mut pi = vec![1.0 / tokens as f64; tokens];
    let mut change = f64::INFINITY;
    for _ in 0..10_000 {
        let mut next: Vec<f64> = pi.iter().map(|p| p / 2.0).collect();
        for (p, row) in pi.iter().zip(successors) {
            for &(to, transition) in row {
                next[to as usize] += p / 2.0 * transition;
            }
        }
        let sum: f64 = next.iter().sum();
        next.iter_mut().for_each(|p| *p /= sum);
        let before = change;
        change = pi.iter().zip(&next).map(|(old, new)| (old - new).abs()).sum();
        pi = next;
        // Steps shrink until rounding is all that is left of them.
        if change < 1e-12 && change >= before || change == 0.0 {
            break;
        }
    }
    pi
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::data::corpus::{Recipe, Split};

    fn languages() -> Vec<Language> {
        let recipes =
            [Recipe::CHARACTERS, Recipe::DOCUMENTS, Recipe { tokens: 9, successors: 3, sentences: 2.0 }];
        recipes
            .into_iter()
            .flat_map(|recipe| (1..4).map(move |seed| Language::new(recipe, seed).unwrap()))
            .collect()
    }

    /// Words that are prefixes of others, and shared letters: `a`, `ab` and `b`.
    fn toy() -> Language {
        let spellings = ["", "a", "ab", "b"].map(String::from).to_vec();
        let successors = vec![
            vec![(1, 0.6), (2, 0.3), (3, 0.1)],
            vec![(0, 0.2), (1, 0.1), (3, 0.7)],
            vec![(0, 0.5), (1, 0.25), (2, 0.25)],
            vec![(0, 0.15), (2, 0.85)],
        ];
        Language::from_parts(3, 2.0, spellings, successors)
    }

    /// `π` by elimination without subtractions (Grassmann, Taksar & Heyman 1985): exact to the last bits, at the cost of the
    /// cube of the number of tokens.
    fn eliminated(successors: &[Vec<(u32, f64)>]) -> Vec<f64> {
        let n = successors.len();
        let mut p = vec![vec![0.0; n]; n];
        for (row, successors) in p.iter_mut().zip(successors) {
            successors.iter().for_each(|&(to, q)| row[to as usize] = q);
        }
        for k in (1..n).rev() {
            let out: f64 = p[k][..k].iter().sum();
            let (above, rest) = p.split_at_mut(k);
            for row in above {
                row[k] /= out;
                for j in 0..k {
                    row[j] += row[k] * rest[0][j];
                }
            }
        }
        let mut pi = vec![1.0];
        while pi.len() < n {
            let k = pi.len();
            pi.push(pi.iter().zip(&p).map(|(pi, row)| pi * row[k]).sum());
        }
        let sum: f64 = pi.iter().sum();
        pi.iter().map(|x| x / sum).collect()
    }

    #[test]
    fn the_stationary_distribution_is_one() {
        for language in languages().iter().chain([&toy(), &Language::new(Recipe::WORDS, 1).unwrap()]) {
            let pi = language.stationary();
            assert!((pi.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut after = vec![0.0; pi.len()];
            for (p, row) in pi.iter().zip(&language.successors) {
                row.iter().for_each(|&(to, q)| after[to as usize] += p * q);
            }
            for (before, after) in pi.iter().zip(after) {
                assert!((before - after).abs() < 1e-14 && *before > 0.0, "{before} {after}");
            }
            for (pi, exact) in pi.iter().zip(eliminated(&language.successors)) {
                assert!((pi - exact).abs() < 1e-13, "{pi} {exact}");
            }
        }
    }

    #[test]
    fn the_stationary_states_are_stationary() {
        for language in languages().iter().chain([&toy()]) {
            let before: Vec<f64> = language.stationary_states().collect();
            assert!((before.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut after = vec![0.0; before.len()];
            for (state, p) in before.iter().enumerate() {
                let (token, rest) = language.states.rest(state);
                if rest.len() > 1 {
                    after[state + 1] += p;
                } else {
                    for &(to, q) in language.successors(token) {
                        after[language.states.first(token, to) as usize] += p * q;
                    }
                }
            }
            assert!(before.iter().zip(after).all(|(before, after)| (before - after).abs() < 1e-13));
        }
    }

    /// The entropy per character, summed over what is known: the previous token `u` and the prefix typed so far.
    fn rate_by_prefix(language: &Language) -> f64 {
        let mut sum = 0.0;
        let mut characters = 0.0;
        for (u, pi) in language.stationary().iter().enumerate() {
            let words: Vec<_> = language.successors[u].iter().filter(|(w, _)| *w != EOS).collect();
            let mut prefixes: BTreeMap<&str, BTreeMap<char, f64>> = BTreeMap::new();
            for &&(w, p) in &words {
                let word = language.spellings[w as usize].as_str();
                for (i, letter) in word.char_indices() {
                    *prefixes.entry(&word[..i]).or_default().entry(letter).or_default() += p;
                }
                let end = language.probability(w, EOS);
                let next = prefixes.entry(word).or_default();
                *next.entry('.').or_default() += p * end;
                *next.entry(' ').or_default() += p * (1.0 - end);
                // The new line after the full stop costs nothing.
                characters += pi * p * end;
            }
            for next in prefixes.values() {
                let weight: f64 = next.values().sum();
                sum += pi * weight * entropy(next.values().map(|p| p / weight));
                characters += pi * weight;
            }
        }
        sum / characters
    }

    #[test]
    fn the_entropy_of_characters_is_the_same_letter_by_letter() {
        for language in languages().iter().chain([&toy()]) {
            let (rate, other) = (language.entropy_rate_characters(), rate_by_prefix(language));
            assert!((rate - other).abs() < 1e-10, "{rate} {other}");
        }
    }

    /// Fresh text costs its entropy: within five standard errors, over independent windows or streams.
    #[test]
    fn the_rates_are_those_of_fresh_text() {
        for language in
            [Language::new(Recipe::CHARACTERS, 1).unwrap(), Language::new(Recipe::WORDS, 1).unwrap(), toy()]
        {
            let cost = |n| {
                let window = language.word_window(Split::Test, n, 1001);
                window.windows(2).map(|pair| -language.probability(pair[0], pair[1]).ln()).sum::<f64>()
                    / 1000.0
            };
            let found = Estimate::of(&(0..400).map(cost).collect::<Vec<_>>());
            let rate = language.entropy_rate_words();
            assert!(
                found.standard_error < 0.003 && (found.nats - rate).abs() < 5.0 * found.standard_error,
                "{found:?} {rate}"
            );

            let cost = |n| {
                let mut filter = language.filter_from_start();
                let text = language.characters(Split::Validation, n, 10_000);
                text.chars().map(|character| -filter.observe(character).ln()).sum::<f64>() / 10_000.0
            };
            let found = Estimate::of(&(0..100).map(cost).collect::<Vec<_>>());
            let rate = language.entropy_rate_characters();
            assert!(
                found.standard_error < 0.002 && (found.nats - rate).abs() < 5.0 * found.standard_error,
                "{found:?} {rate}"
            );
        }
    }

    /// The probability of every text of `length` characters from anywhere, by going through all tokens that can make it.
    fn enumerated(language: &Language, length: usize) -> BTreeMap<String, f64> {
        fn extend(
            language: &Language,
            text: &str,
            token: u32,
            p: f64,
            length: usize,
            texts: &mut BTreeMap<String, f64>,
        ) {
            if text.len() >= length {
                *texts.entry(text[..length].into()).or_default() += p;
                return;
            }
            for &(next, q) in language.successors(token) {
                let mut longer = String::from(text);
                language.push(&mut longer, token, next);
                extend(language, &longer, next, p * q, length, texts);
            }
        }
        let mut texts = BTreeMap::new();
        for (u, pi) in language.stationary().iter().enumerate() {
            for &(w, p) in language.successors(u as u32) {
                let mut written = String::new();
                language.push(&mut written, u as u32, w);
                for i in 0..written.len() {
                    extend(language, &written[i..], w, pi * p, length, &mut texts);
                }
            }
        }
        let sum: f64 = texts.values().sum();
        assert!((sum - language.characters_per_token()).abs() < 1e-12, "{sum}");
        texts.values_mut().for_each(|p| *p /= sum);
        texts
    }

    /// Drawn windows have the probabilities of all texts, and drawn tokens those of the table: each within five standard errors.
    #[test]
    fn text_is_drawn_by_its_probabilities() {
        let language = toy();
        let agree = |found: f64, p: f64, n: f64| (found / n - p).abs() < 5.0 * (p * (1.0 - p) / n).sqrt();
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for n in 0..300_000 {
            *counts.entry(language.character_window(Split::Train, n, 3)).or_default() += 1.0;
        }
        let texts = enumerated(&language, 3);
        assert!(counts.keys().all(|text| texts.contains_key(text)));
        for (text, p) in texts {
            assert!(agree(counts[&text], p, 300_000.0), "{text:?}: {} {p}", counts[&text] / 300_000.0);
        }
        let words = language.words(Split::Train, 0, 1_000_001);
        for token in 0..4 {
            let after: Vec<u32> =
                words.windows(2).filter(|pair| pair[0] == token).map(|pair| pair[1]).collect();
            for next in 0..4 {
                let found = after.iter().filter(|&&to| to == next).count() as f64;
                let p = language.probability(token, next);
                assert!(
                    found == 0.0 && p == 0.0 || agree(found, p, after.len() as f64),
                    "{token} {next} {found} {p}"
                );
            }
        }
        for token in 0..4 {
            let first = |n: &u32| language.word_window(Split::Train, *n, 1) == [token];
            let found = (0..100_000).filter(first).count() as f64;
            assert!(agree(found, language.stationary()[token as usize], 1e5), "{token} {found}");
        }
    }

    #[test]
    fn the_filter_agrees_with_going_through_all_texts() {
        let language = toy();
        let mut blocks = vec![0.0];
        for length in 1..10 {
            let texts = enumerated(&language, length);
            for (text, p) in &texts {
                let mut filter = language.filter();
                let filtered: f64 = text.chars().map(|character| filter.observe(character)).product();
                assert!((filtered - p).abs() < 1e-14, "{text:?}: {filtered} {p}");
            }
            blocks.push(entropy(texts.into_values()));
        }
        // Conditional entropies: the exact best loss after 0, 1, … characters.
        let losses: Vec<f64> = blocks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0] + 1e-12), "{losses:?}");
        // Words of at most two letters: after eight characters a whole word has been seen, and the state is known.
        assert!((losses[8] - language.entropy_rate_characters()).abs() < 1e-12, "{losses:?}");
        for seen in [0..1, 0..9, 1..9, 4..7] {
            let exact = losses[seen.clone()].iter().sum::<f64>() / seen.len() as f64;
            let found = language.best_loss_characters_seeing(seen.clone(), 20_000);
            // The entropy at position 0 is the same in every window.
            assert!(
                found.standard_error < 0.005
                    && (found.nats - exact).abs() < 5.0 * found.standard_error + 1e-12,
                "{seen:?}: {found:?} {exact}"
            );
        }
    }

    #[test]
    fn predictions_are_distributions() {
        for language in languages().iter().chain([&toy()]) {
            for (mut filter, text) in [
                (language.filter(), language.character_window(Split::Train, 7, 500)),
                (language.filter_from_start(), language.characters(Split::Train, 7, 500)),
            ] {
                for character in text.chars() {
                    let next = filter.predict();
                    assert!((next.iter().sum::<f64>() - 1.0).abs() < 1e-12 && next.iter().all(|&p| p >= 0.0));
                    let at = language.alphabet().binary_search(&character).unwrap();
                    assert_eq!(filter.observe(character), next[at]);
                }
            }
        }
        let language = toy();
        let mut filter = language.filter();
        assert_eq!((filter.observe('?'), filter.predict().iter().sum()), (0.0, 0.0));
    }

    #[test]
    fn more_context_costs_less_down_to_the_rate() {
        for language in [Language::new(Recipe::CHARACTERS, 1).unwrap(), toy()] {
            let rate = language.entropy_rate_characters();
            let losses =
                [1, 2, 4, 8, 16, 64, 256].map(|context| language.best_loss_characters(context, 1000));
            for pair in losses.windows(2) {
                let error = pair[0].standard_error.hypot(pair[1].standard_error);
                assert!(pair[1].nats < pair[0].nats + 5.0 * error, "{pair:?}");
            }
            for (loss, context) in losses.iter().zip([1, 2, 4, 8, 16, 64, 256]) {
                assert!(loss.nats > rate - 5.0 * loss.standard_error, "{context} {loss:?} {rate}");
            }
            let late = language.best_loss_characters_seeing(200..300, 1000);
            assert!((late.nats - rate).abs() < 5.0 * late.standard_error, "{late:?} {rate}");
            // Position 0 knows the frequencies of characters only.
            assert!(losses[0].standard_error < 1e-12 && losses[0].nats > 2.0 * rate);

            let words: Vec<f64> = (1..100).map(|context| language.best_loss_words(context)).collect();
            assert!(words.windows(2).all(|pair| pair[1] < pair[0]));
            assert!((words[0] - entropy(language.stationary().iter().copied())).abs() < 1e-14);
            assert_eq!(language.best_loss_words_seeing(1..2), language.entropy_rate_words());
            assert!((language.best_loss_words(1_000_000_000) - language.entropy_rate_words()).abs() < 1e-8);
        }
    }

    #[test]
    fn no_positions_and_no_windows_have_no_loss() {
        let language = toy();
        assert!(language.best_loss_words(0).is_nan());
        assert!(
            language.best_loss_characters(0, 10).nats.is_nan()
                && language.best_loss_characters(5, 0).nats.is_nan()
        );
        assert!(language.best_loss_characters(5, 1).standard_error.is_infinite());
    }
}
