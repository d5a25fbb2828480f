//! Span corruption, and the batches made by it.

use super::{Special, T5Error};
use crate::random::Site;
use std::sync::Arc;

/// The site of the spans.
const SPANS: u32 = 0xDA7A_0003;
/// The share of a chunk that is noise, in T5.
pub const DENSITY: f64 = 0.15;
/// The mean length of a span of noise, in T5.
pub const MEAN_SPAN: f64 = 3.0;

/// Span corruption: a chunk of `raw` ids becomes an input in which each span of noise is one sentinel, and a target that lists
/// the sentinels, each followed by its span; both end with `</s>`.
///
/// With n = round(raw · density) ids of noise in s = round(n / mean span) spans, the input has raw − n + s + 1 ids and the target
/// n + s + 1: for T5's 568 that is n = 85, s = 28, hence 512 and 114. The lengths of the spans, and of what stands between them,
/// are each a uniformly random way to cut n (raw − n) ids into s parts of at least one; a chunk begins with ids that are not noise.
///
/// ```
/// use untuned_net::data::t5::{Corruption, DENSITY, MEAN_SPAN, Special};
///
/// let special = Special { end: 1, first_sentinel: 32_099, sentinels: 100 };
/// let t5 = Corruption::new(568, DENSITY, MEAN_SPAN, special)?;
/// assert_eq!((t5.input_length(), t5.target_length()), (512, 114));
/// # Ok::<(), untuned_net::data::t5::T5Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corruption {
    raw: usize,
    noise: usize,
    spans: usize,
    special: Special,
}

impl Corruption {
    /// Checks that the spans fit, and that there are sentinels for them.
    pub fn new(raw: usize, density: f64, mean_span: f64, special: Special) -> Result<Self, T5Error> {
        let refuse = |reason: String| Err(T5Error::Shape { raw, density, mean_span, reason });
        if raw < 2 {
            return refuse("a chunk needs at least 2 ids".into());
        }
        // Written so that NaN is refused too.
        if !(density > 0.0 && density < 1.0 && mean_span >= 1.0) {
            return refuse("the density must be between 0 and 1, the mean span at least 1".into());
        }
        let noise = ((raw as f64 * density).round_ties_even() as usize).clamp(1, raw - 1);
        let spans = ((noise as f64 / mean_span).round_ties_even() as usize).clamp(1, noise.min(raw - noise));
        if spans > special.sentinels as usize {
            return refuse(format!("{spans} spans need as many sentinels, there are {}", special.sentinels));
        }
        if spans - 1 > special.first_sentinel as usize {
            let first = special.first_sentinel;
            return refuse(format!("{spans} spans need as many sentinels, and the first has the id {first}"));
        }
        Ok(Self { raw, noise, spans, special })
    }

    /// The longest chunks whose inputs have at most `inputs` ids: 568 for T5's 512.
    pub fn for_inputs(
        inputs: usize,
        density: f64,
        mean_span: f64,
        special: Special,
    ) -> Result<Self, T5Error> {
        let mut fits = Self::new(2, density, mean_span, special)?;
        while let Ok(longer) = Self::new(fits.raw + 1, density, mean_span, special) {
            if longer.input_length() > inputs {
                break;
            }
            fits = longer;
        }
        if fits.input_length() > inputs {
            let reason =
                format!("inputs of {inputs} ids are too short, give {} or more", fits.input_length());
            return Err(T5Error::Shape { raw: fits.raw, density, mean_span, reason });
        }
        Ok(fits)
    }

    /// The length of a chunk.
    pub fn raw_length(&self) -> usize {
        self.raw
    }

    /// The ids of a chunk that are noise.
    pub fn noise(&self) -> usize {
        self.noise
    }

    /// The spans of noise in a chunk.
    pub fn spans(&self) -> usize {
        self.spans
    }

    /// The length of an input.
    pub fn input_length(&self) -> usize {
        self.raw - self.noise + self.spans + 1
    }

    /// The length of a target.
    pub fn target_length(&self) -> usize {
        self.noise + self.spans + 1
    }

    /// For each span how many ids are kept before it and how many it has: a function of the seed and the example's number.
    pub fn lengths(&self, seed: u64, example: u64) -> impl Iterator<Item = (usize, usize)> + use<> {
        let site = Site { seed, site: SPANS, step: example as u32 };
        // The upper half of the example's number is the upper half of the counter; 2³² draws are enough for one example.
        let first = example >> 32 << 32;
        let noise = Parts { items: self.noise, parts: self.spans, site, draw: first };
        let kept = Parts { items: self.raw - self.noise, parts: self.spans, site, draw: first + (1 << 31) };
        kept.zip(noise)
    }

    /// Appends the example's input and target, of [`input_length`](Self::input_length) and
    /// [`target_length`](Self::target_length) ids.
    pub fn corrupt(
        &self,
        chunk: &[u32],
        seed: u64,
        example: u64,
        inputs: &mut Vec<u32>,
        targets: &mut Vec<u32>,
    ) -> Result<(), T5Error> {
        if chunk.len() != self.raw {
            return Err(T5Error::ChunkLength { found: chunk.len(), raw: self.raw });
        }
        let mut rest = chunk;
        for (sentinel, (kept, noise)) in self.lengths(seed, example).enumerate() {
            let sentinel = self.special.first_sentinel - sentinel as u32;
            let (before, after) = rest.split_at(kept);
            let (span, after) = after.split_at(noise);
            inputs.extend_from_slice(before);
            inputs.push(sentinel);
            targets.push(sentinel);
            targets.extend_from_slice(span);
            rest = after;
        }
        inputs.push(self.special.end);
        targets.push(self.special.end);
        Ok(())
    }
}

/// The lengths of `parts` parts of at least one item each, every way to cut as likely as the others: each gap between two items
/// is a cut with probability (cuts left) / (gaps left).
struct Parts {
    items: usize,
    parts: usize,
    site: Site,
    draw: u64,
}

impl Iterator for Parts {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.parts == 0 {
            return None;
        }
        self.parts -= 1;
        if self.parts == 0 {
            return Some(self.items);
        }
        let mut length = 0;
        loop {
            let gaps = self.items - 1;
            (self.items, length) = (self.items - 1, length + 1);
            let bits = self.site.block(self.draw);
            self.draw += 1;
            let bits = u64::from(bits[0]) | u64::from(bits[1]) << 32;
            if (u128::from(bits) * gaps as u128) >> 64 < self.parts as u128 {
                return Some(length);
            }
        }
    }
}

/// A batch for T5, row by row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// What the encoder sees: `rows` × `input_length`.
    pub inputs: Vec<u32>,
    /// What the decoder should say: `rows` × `target_length`.
    pub targets: Vec<u32>,
    /// The number of examples.
    pub rows: usize,
    /// The ids of an input.
    pub input_length: usize,
    /// The ids of a target.
    pub target_length: usize,
}

impl Pairs {
    /// Keeps at most the first `rows` examples.
    pub fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.inputs.truncate(self.rows * self.input_length);
        self.targets.truncate(self.rows * self.target_length);
    }
}

/// T5's batches from ids in memory, over and over: example k is chunk k modulo their number, with spans from the seed and k, so
/// that each pass has new ones.
#[derive(Debug, Clone)]
pub struct Examples {
    ids: Arc<[u32]>,
    corruption: Corruption,
    batch: usize,
    seed: u64,
}

impl Examples {
    /// Batches of `batch` examples; there must be ids for one.
    pub fn new(
        ids: impl Into<Arc<[u32]>>,
        corruption: Corruption,
        batch: usize,
        seed: u64,
    ) -> Result<Self, T5Error> {
        let (ids, raw) = (ids.into(), corruption.raw);
        let needed = batch.max(1).saturating_mul(raw);
        if ids.len() < needed || batch == 0 {
            return Err(T5Error::TooShort { found: ids.len(), needed, batch, raw });
        }
        Ok(Self { ids, corruption, batch, seed })
    }

    /// The number of whole chunks.
    pub fn chunks(&self) -> usize {
        self.ids.len() / self.corruption.raw
    }

    /// The n-th batch.
    pub fn fill(&self, n: u64, batch: &mut Pairs) {
        batch.inputs.clear();
        batch.targets.clear();
        batch.rows = self.batch;
        (batch.input_length, batch.target_length) =
            (self.corruption.input_length(), self.corruption.target_length());
        let raw = self.corruption.raw;
        for row in 0..self.batch {
            let example = n.wrapping_mul(self.batch as u64).wrapping_add(row as u64);
            let at = (example % self.chunks() as u64) as usize * raw;
            let chunk = &self.ids[at..at + raw];
            let done =
                self.corruption.corrupt(chunk, self.seed, example, &mut batch.inputs, &mut batch.targets);
            debug_assert!(done.is_ok(), "the chunk has the planned length");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const SPECIAL: Special = Special { end: 1, first_sentinel: 32_099, sentinels: 100 };

    fn corrupted(corruption: &Corruption, chunk: &[u32], seed: u64, example: u64) -> (Vec<u32>, Vec<u32>) {
        let (mut inputs, mut targets) = (vec![], vec![]);
        corruption.corrupt(chunk, seed, example, &mut inputs, &mut targets).unwrap();
        (inputs, targets)
    }

    /// What follows each sentinel, sentinels being 32000 and above, and what stands before the first; without the final `</s>`.
    fn by_sentinel(ids: &[u32]) -> (Vec<u32>, Vec<(u32, Vec<u32>)>) {
        let (end, ids) = ids.split_last().unwrap();
        assert_eq!(*end, 1);
        let (mut before, mut spans) = (vec![], Vec::<(u32, Vec<u32>)>::new());
        for &id in ids {
            match spans.last_mut() {
                _ if id >= 32_000 => spans.push((id, vec![])),
                Some((_, span)) => span.push(id),
                None => before.push(id),
            }
        }
        (before, spans)
    }

    fn restored(inputs: &[u32], targets: &[u32]) -> Vec<u32> {
        let (mut all, kept) = by_sentinel(inputs);
        let (nothing, spans) = by_sentinel(targets);
        assert!(nothing.is_empty() && kept.len() == spans.len());
        for ((in_input, after), (in_target, span)) in kept.into_iter().zip(spans) {
            assert_eq!(in_input, in_target);
            all.extend(span);
            all.extend(after);
        }
        all
    }

    #[test]
    fn lengths_by_hand() {
        let t5 = Corruption::new(568, DENSITY, MEAN_SPAN, SPECIAL).unwrap();
        // 568 · 0.15 = 85.2, 85 / 3 = 28.3; 568 − 85 + 28 + 1 = 512; 85 + 28 + 1 = 114.
        assert_eq!((t5.noise(), t5.spans(), t5.input_length(), t5.target_length()), (85, 28, 512, 114));
        assert_eq!(Corruption::for_inputs(512, DENSITY, MEAN_SPAN, SPECIAL).unwrap(), t5);
        // 1137 · 0.15 = 170.6 → 171, 171 / 3 = 57, 1137 − 171 + 58 = 1024; 141 · 0.15 = 21.2 → 21, 141 − 21 + 8 = 128.
        for (inputs, raw, targets) in [(1024, 1137, 229), (128, 141, 29)] {
            let other = Corruption::for_inputs(inputs, DENSITY, MEAN_SPAN, SPECIAL).unwrap();
            assert_eq!(
                (other.raw_length(), other.input_length(), other.target_length()),
                (raw, inputs, targets)
            );
        }
        // Halves round to even: 10 · 0.25 = 2.5 → 2, 2 / 3 → 1.
        let small = Corruption::new(10, 0.25, 3.0, SPECIAL).unwrap();
        assert_eq!((small.noise(), small.spans()), (2, 1));
    }

    /// One span: what is kept comes first, the noise is at the end, whatever the seed.
    #[test]
    fn one_span_by_hand() {
        let small = Corruption::new(5, 0.4, 3.0, SPECIAL).unwrap();
        let expected = (vec![10, 11, 12, 32_099, 1], vec![32_099, 13, 14, 1]);
        assert_eq!(corrupted(&small, &[10, 11, 12, 13, 14], 7, 7), expected);
    }

    #[test]
    fn two_spans_by_hand() {
        // 6 ids, 3 of noise in 2 spans: lengths (1, 2) or (2, 1) for the noise and for what is kept.
        let small = Corruption::new(6, 0.5, 1.5, SPECIAL).unwrap();
        assert_eq!((small.noise(), small.spans()), (3, 2));
        let chunk = [10, 11, 12, 13, 14, 15];
        let expected = |lengths: &[(usize, usize)]| match lengths {
            [(1, 1), (2, 2)] => (vec![10, 32_099, 12, 13, 32_098, 1], vec![32_099, 11, 32_098, 14, 15, 1]),
            [(1, 2), (2, 1)] => (vec![10, 32_099, 13, 14, 32_098, 1], vec![32_099, 11, 12, 32_098, 15, 1]),
            [(2, 1), (1, 2)] => (vec![10, 11, 32_099, 13, 32_098, 1], vec![32_099, 12, 32_098, 14, 15, 1]),
            [(2, 2), (1, 1)] => (vec![10, 11, 32_099, 14, 32_098, 1], vec![32_099, 12, 13, 32_098, 15, 1]),
            other => panic!("{other:?}"),
        };
        let mut seen = HashMap::<Vec<(usize, usize)>, u32>::new();
        for example in 0..8000 {
            let lengths: Vec<_> = small.lengths(3, example).collect();
            assert_eq!(corrupted(&small, &chunk, 3, example), expected(&lengths));
            *seen.entry(lengths).or_default() += 1;
        }
        // Four ways, each √(8000 · 1/4 · 3/4) = 38.7 about 2000.
        assert!(
            seen.len() == 4 && seen.values().all(|&n| (f64::from(n) - 2000.0).abs() < 5.0 * 38.7),
            "{seen:?}"
        );
    }

    /// 6 items in 3 parts: C(5, 2) = 10 ways, each as likely.
    #[test]
    fn every_way_to_cut_is_as_likely() {
        let mut seen = HashMap::<Vec<usize>, u32>::new();
        for step in 0..20_000 {
            let site = Site { seed: 1, site: SPANS, step };
            let parts: Vec<usize> = Parts { items: 6, parts: 3, site, draw: 0 }.collect();
            assert!(parts.iter().sum::<usize>() == 6 && parts.iter().all(|&part| part > 0));
            *seen.entry(parts).or_default() += 1;
        }
        assert!(
            seen.len() == 10 && seen.values().all(|&n| (f64::from(n) - 2000.0).abs() < 5.0 * 42.4),
            "{seen:?}"
        );
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        for (raw, density, span) in [
            (1, 0.15, 3.0),
            (9, 0.0, 3.0),
            (9, 1.0, 3.0),
            (9, f64::NAN, 3.0),
            (9, 0.5, 0.5),
            (9, 0.5, f64::NAN),
        ] {
            assert!(Corruption::new(raw, density, span, SPECIAL).is_err(), "{raw} {density} {span}");
        }
        let error = Corruption::new(4000, DENSITY, MEAN_SPAN, SPECIAL).unwrap_err().to_string();
        assert!(error.contains("200 spans") && error.contains("there are 100"), "{error}");
        assert!(Corruption::for_inputs(2, DENSITY, MEAN_SPAN, SPECIAL).is_err());
        let t5 = Corruption::new(568, DENSITY, MEAN_SPAN, SPECIAL).unwrap();
        assert!(t5.corrupt(&[0; 567], 0, 0, &mut vec![], &mut vec![]).is_err());
        assert!(Examples::new(vec![0; 567], t5, 1, 0).is_err());
        assert!(Examples::new(vec![0; 568], t5, 0, 0).is_err());
        assert!(Examples::new(vec![0; 568], t5, usize::MAX, 0).is_err());
    }

    #[test]
    fn batches_are_a_function_of_seed_and_number() {
        let small = Corruption::new(20, 0.3, 2.0, SPECIAL).unwrap();
        let ids: Vec<u32> = (100..170).collect();
        let fill = |seed, n| {
            let mut batch = Pairs::default();
            Examples::new(ids.clone(), small, 2, seed).unwrap().fill(n, &mut batch);
            batch
        };
        assert_eq!(fill(1, u64::MAX), fill(1, u64::MAX));
        assert_ne!(fill(1, 0), fill(2, 0));
        let batch = fill(1, 1);
        assert_eq!(
            (batch.rows, batch.input_length, batch.target_length),
            (2, small.input_length(), small.target_length())
        );
        // Three chunks: the second batch holds chunks 2 and 3 mod 3 = 0; the last ten ids are left out.
        let chunk = |row: usize| {
            let inputs = &batch.inputs[row * batch.input_length..][..batch.input_length];
            restored(inputs, &batch.targets[row * batch.target_length..][..batch.target_length])
        };
        assert_eq!((chunk(0), chunk(1)), (ids[40..60].to_vec(), ids[..20].to_vec()));
        // The same chunks one pass later have other spans.
        assert_ne!(fill(1, 0), fill(1, 3));
    }

    proptest! {
        #[test]
        fn inputs_and_targets_restore_the_chunk(raw in 2usize..700, seed: u64, example: u64, density in 0.05f64..0.6, span in 1.0f64..6.0) {
            let special = Special { sentinels: 32_000, first_sentinel: 64_000, ..SPECIAL };
            let corruption = Corruption::new(raw, density, span, special).unwrap();
            let chunk: Vec<u32> = (0..raw as u32).map(|i| 2 + i).collect();
            let (inputs, targets) = corrupted(&corruption, &chunk, seed, example);
            prop_assert_eq!((inputs.len(), targets.len()), (corruption.input_length(), corruption.target_length()));
            prop_assert_eq!(&restored(&inputs, &targets), &chunk);
            let (before, kept) = by_sentinel(&inputs);
            let (_, spans) = by_sentinel(&targets);
            prop_assert_eq!(spans.iter().map(|(_, span)| span.len()).sum::<usize>(), corruption.noise());
            prop_assert_eq!(spans.len(), corruption.spans());
            // The spans alternate: none is empty, nor what stands between; the last span ends the chunk.
            prop_assert!(!before.is_empty() && spans.iter().all(|(_, span)| !span.is_empty()));
            let (last, between) = kept.split_last().unwrap();
            prop_assert!(last.1.is_empty() && between.iter().all(|(_, kept)| !kept.is_empty()));
            // The sentinels count down from the first.
            prop_assert!(spans.iter().enumerate().all(|(k, (id, _))| *id == 64_000 - k as u32));
            prop_assert_eq!(corrupted(&corruption, &chunk, seed, example), (inputs, targets));
        }
    }
}
