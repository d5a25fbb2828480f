//! Batches of ids: the n-th is a function of the seed and n, so that a run resumes anywhere without a state to save.

use crate::random::Site;
use std::sync::Arc;

/// The site of the windows that GPT trains on.
const WINDOWS: u32 = 0xDA7A_0001;
/// The site of the LSTM's sequence lengths.
const LENGTHS: u32 = 0xDA7A_0002;

/// The most sequences that are planned: 1.6 GB of memory.
const MOST_STEPS: usize = 100_000_000;

/// A rectangle of ids and what should be predicted at each, row by row. Reused from step to step: filling one that has been
/// filled before allocates nothing, up to the largest size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The ids that the model sees: `rows` × `columns`.
    pub inputs: Vec<u32>,
    /// The ids that follow them: `rows` × `columns`.
    pub targets: Vec<u32>,
    /// Windows for GPT, positions in time for the LSTM.
    pub rows: usize,
    /// Positions in time for GPT, columns of the text for the LSTM.
    pub columns: usize,
}

impl Batch {
    fn start(&mut self, rows: usize, columns: usize) {
        self.inputs.clear();
        self.targets.clear();
        (self.rows, self.columns) = (rows, columns);
    }

    /// `count` ids from `at` on, and those one later.
    fn push(&mut self, ids: &[u32], at: usize, count: usize) {
        self.inputs.extend_from_slice(&ids[at..at + count]);
        self.targets.extend_from_slice(&ids[at + 1..at + 1 + count]);
    }
}

/// Why there are no batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A size that must be positive is 0.
    #[error("{name} is 0; give at least 1")]
    Zero {
        /// Which one.
        name: &'static str,
    },
    /// The ids do not fill one batch.
    #[error(
        "{found} ids are too few: {batch} columns or windows of {length} need {needed}; give more text, or make them smaller"
    )]
    TooShort {
        /// How many ids there are.
        found: usize,
        /// How many there must be.
        needed: usize,
        /// The batch size that was asked for.
        batch: usize,
        /// The context or sequence length that was asked for.
        length: usize,
    },
    /// A plan that memory might not hold.
    #[error(
        "sequences are planned ahead, at most {MOST_STEPS} of them; ask for fewer steps, epochs or batches a step"
    )]
    TooLong,
}

fn positive(sizes: &[(&'static str, usize)]) -> Result<(), BatchError> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some(&(name, _)) => Err(BatchError::Zero { name }),
        None => Ok(()),
    }
}

/// GPT's training batches: `batch` windows of `context` ids, each start as likely as any other, with replacement.
///
/// ```
/// use untuned_net::data::batches::{Batch, RandomWindows};
///
/// let windows = RandomWindows::new((0..100).collect::<Vec<u32>>(), 8, 4, 1)?;
/// let mut batch = Batch::default();
/// windows.fill(1_000_000, &mut batch);
/// assert_eq!((batch.rows, batch.columns), (4, 8));
/// assert_eq!(batch.targets[0], batch.inputs[1]);
/// # Ok::<(), untuned_net::data::batches::BatchError>(())
/// ```
#[derive(Debug, Clone)]
pub struct RandomWindows {
    ids: Arc<[u32]>,
    context: usize,
    batch: usize,
    site: Site,
}

impl RandomWindows {
    /// Windows of `context` ids, and one more as the last target.
    pub fn new(
        ids: impl Into<Arc<[u32]>>,
        context: usize,
        batch: usize,
        seed: u64,
    ) -> Result<Self, BatchError> {
        let ids = ids.into();
        positive(&[("the context", context), ("the batch", batch)])?;
        if ids.len() <= context {
            let needed = context.saturating_add(1);
            return Err(BatchError::TooShort { found: ids.len(), needed, batch, length: context });
        }
        Ok(Self { ids, context, batch, site: Site { seed, site: WINDOWS, step: 0 } })
    }

    /// Where window `row` of batch `n` starts: ⌊random · (ids − context)⌋.
    fn start(&self, n: u64, row: usize) -> usize {
        let bits = self.site.block(n.wrapping_mul(self.batch as u64).wrapping_add(row as u64));
        let bits = u64::from(bits[0]) | u64::from(bits[1]) << 32;
        ((u128::from(bits) * (self.ids.len() - self.context) as u128) >> 64) as usize
    }

    /// The n-th batch: `batch` × `context`.
    pub fn fill(&self, n: u64, batch: &mut Batch) {
        batch.start(self.batch, self.context);
        for row in 0..self.batch {
            batch.push(&self.ids, self.start(n, row), self.context);
        }
    }
}

/// GPT's evaluation batches: windows one after the other, so that every id but the first is a target exactly once.
///
/// The windows of `context` ids come `batch` at a time; the last of these batches may have fewer rows, and a rest of fewer than
/// `context` ids is a batch of one shorter row. The loss over the split is the mean weighted by `inputs.len()`.
#[derive(Debug, Clone)]
pub struct ConsecutiveWindows {
    ids: Arc<[u32]>,
    context: usize,
    batch: usize,
}

impl ConsecutiveWindows {
    /// Windows of up to `context` ids, up to `batch` at a time.
    pub fn new(ids: impl Into<Arc<[u32]>>, context: usize, batch: usize) -> Result<Self, BatchError> {
        let ids = ids.into();
        positive(&[("the context", context), ("the batch", batch)])?;
        if ids.len() < 2 {
            return Err(BatchError::TooShort { found: ids.len(), needed: 2, batch, length: context });
        }
        Ok(Self { ids, context, batch })
    }

    /// Windows of the whole context.
    fn whole(&self) -> usize {
        (self.ids.len() - 1) / self.context
    }

    /// The number of batches.
    pub fn batches(&self) -> usize {
        self.whole().div_ceil(self.batch) + usize::from(!(self.ids.len() - 1).is_multiple_of(self.context))
    }

    /// The n-th batch. `false`, with the batch untouched, when there are no more.
    pub fn fill(&self, n: usize, batch: &mut Batch) -> bool {
        if n >= self.batches() {
            return false;
        }
        // No overflow: `n` is below the number of batches.
        let rows = self.whole().saturating_sub(n * self.batch).min(self.batch);
        if rows == 0 {
            let at = self.whole() * self.context;
            let count = self.ids.len() - 1 - at;
            batch.start(1, count);
            batch.push(&self.ids, at, count);
        } else {
            batch.start(rows, self.context);
            for row in 0..rows {
                batch.push(&self.ids, (n * self.batch + row) * self.context, self.context);
            }
        }
        true
    }
}

/// The length of the `index`-th sequence of an epoch: max(5, ⌊N(base, 5)⌋), the base being `bptt` with probability 0.95 and
/// `bptt`/2 otherwise (Merity, Keskar & Socher, *Regularizing and optimizing LSTM language models*, 2018).
pub fn sequence_length(bptt: usize, seed: u64, epoch: u32, index: u64) -> usize {
    let bits = Site { seed, site: LENGTHS, step: epoch }.block(index);
    let unit = |bits: u32| f64::from(bits) / 4_294_967_296.0;
    let base = if unit(bits[0]) < 0.95 { bptt as f64 } else { bptt as f64 / 2.0 };
    // Box and Muller's method; 1 − unit is in (0, 1], so that the logarithm is finite.
    let normal = (-2.0 * (1.0 - unit(bits[1])).ln()).sqrt() * (std::f64::consts::TAU * unit(bits[2])).cos();
    (base + 5.0 * normal).floor().max(5.0) as usize
}

/// How far a plan of training sequences reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// Whole epochs.
    Epochs(u32),
    /// Exactly so many batches; the last epoch may be cut short.
    Steps(usize),
}

/// Where a sequence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The epoch, from 0.
    pub epoch: u32,
    /// The first row.
    pub offset: usize,
    /// The number of rows.
    pub length: usize,
    /// True for the first of an epoch: the hidden state is zero before it, and carried over otherwise.
    pub starts_epoch: bool,
}

/// The LSTM's batches: the text cut into `batch` columns of equal length, which are read side by side, `length` rows at a time.
///
/// All lengths are drawn ahead, so that the number of steps of each epoch and the largest length are known. A batch holds `length`
/// rows (time) of `batch` ids; the targets are the ids one row below. Ids beyond `batch` · ⌊ids / batch⌋ are left out, as upstream.
#[derive(Debug, Clone)]
pub struct Sequences {
    ids: Arc<[u32]>,
    batch: usize,
    rows: usize,
    /// The first row and the length of each step.
    steps: Vec<(usize, usize)>,
    /// The first step of each epoch.
    epochs: Vec<usize>,
    longest: usize,
}

impl Sequences {
    /// Training: lengths from [`sequence_length`], the last of an epoch being what is left. As upstream, a rest of one row is left out.
    pub fn training(
        ids: impl Into<Arc<[u32]>>,
        batch: usize,
        bptt: usize,
        seed: u64,
        horizon: Horizon,
    ) -> Result<Self, BatchError> {
        // Three rows: upstream's loop takes a sequence only where two targets or more are left.
        let mut plan = Self::columns(ids.into(), batch, bptt, 3)?;
        let (epochs, steps) = match horizon {
            Horizon::Epochs(epochs) => (epochs, usize::MAX),
            Horizon::Steps(steps) => (u32::MAX, steps),
        };
        if matches!(horizon, Horizon::Steps(steps) if steps > MOST_STEPS) {
            return Err(BatchError::TooLong);
        }
        for epoch in 0..epochs {
            if plan.steps.len() >= steps {
                break;
            }
            plan.add_epoch(2, steps.min(MOST_STEPS + 1), |index| sequence_length(bptt, seed, epoch, index));
            if plan.steps.len() > MOST_STEPS {
                return Err(BatchError::TooLong);
            }
        }
        Ok(plan)
    }

    /// Evaluation: one epoch of `bptt` rows at a time, the last being shorter, up to the last row. With one column every id but the
    /// first is a target exactly once.
    pub fn evaluation(ids: impl Into<Arc<[u32]>>, batch: usize, bptt: usize) -> Result<Self, BatchError> {
        let mut plan = Self::columns(ids.into(), batch, bptt, 2)?;
        plan.add_epoch(1, usize::MAX, |_| bptt);
        Ok(plan)
    }

    fn columns(ids: Arc<[u32]>, batch: usize, bptt: usize, least: usize) -> Result<Self, BatchError> {
        positive(&[("the batch", batch), ("the sequence length", bptt)])?;
        let rows = ids.len() / batch;
        if rows < least {
            let needed = batch.saturating_mul(least);
            return Err(BatchError::TooShort { found: ids.len(), needed, batch, length: bptt });
        }
        Ok(Self { ids, batch, rows, steps: Vec::new(), epochs: Vec::new(), longest: 0 })
    }

    /// Sequences from the first row on while at least `least` targets are left and there are fewer than `most` steps in all.
    fn add_epoch(&mut self, least: usize, most: usize, length: impl Fn(u64) -> usize) {
        self.epochs.push(self.steps.len());
        let (mut offset, mut index) = (0, 0);
        while self.rows - 1 - offset >= least && self.steps.len() < most {
            let length = length(index).min(self.rows - 1 - offset);
            self.steps.push((offset, length));
            self.longest = self.longest.max(length);
            (offset, index) = (offset + length, index + 1);
        }
    }

    /// The number of batches in all.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The number of epochs, the last of which may be cut short by [`Horizon::Steps`].
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// The number of batches of an epoch; 0 past the last.
    pub fn steps_of_epoch(&self, epoch: usize) -> usize {
        let end = |epoch: usize| self.epochs.get(epoch).copied().unwrap_or(self.steps.len());
        end(epoch.saturating_add(1)) - end(epoch)
    }

    /// The length of the longest sequence.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The columns side by side.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Where the n-th sequence stands.
    pub fn sequence(&self, n: usize) -> Option<Sequence> {
        let &(offset, length) = self.steps.get(n)?;
        let epoch = self.epochs.partition_point(|&first| first <= n) - 1;
        Some(Sequence { epoch: epoch as u32, offset, length, starts_epoch: offset == 0 })
    }

    /// The n-th batch: `length` × `batch`. `None`, with the batch untouched, when there are no more.
    pub fn fill(&self, n: usize, batch: &mut Batch) -> Option<Sequence> {
        let sequence = self.sequence(n)?;
        batch.start(sequence.length, self.batch);
        for row in sequence.offset..sequence.offset + sequence.length {
            let column = |column: usize, row: usize| self.ids[column * self.rows + row];
            batch.inputs.extend((0..self.batch).map(|c| column(c, row)));
            batch.targets.extend((0..self.batch).map(|c| column(c, row + 1)));
        }
        Some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count_up(to: u32) -> Vec<u32> {
        (0..to).collect()
    }

    fn random(windows: &RandomWindows, n: u64) -> Batch {
        let mut batch = Batch::default();
        windows.fill(n, &mut batch);
        batch
    }

    #[test]
    fn windows_are_a_function_of_seed_and_number() {
        let windows = |seed| RandomWindows::new(count_up(1000), 8, 4, seed).unwrap();
        let later = random(&windows(1), u64::MAX);
        assert_eq!(later, random(&windows(1), u64::MAX));
        assert_ne!(random(&windows(1), 0), random(&windows(2), 0));
        assert_ne!(random(&windows(1), 0), random(&windows(1), 1));
        // A batch that held something else before is the same.
        let mut used = Batch { inputs: vec![9; 100], targets: vec![9; 3], rows: 1, columns: 7 };
        windows(1).fill(u64::MAX, &mut used);
        assert_eq!(used, later);
    }

    /// 5 ids and a context of 2: the starts are 0, 1 and 2, a third each.
    #[test]
    fn windows_start_everywhere_equally_often() {
        let windows = RandomWindows::new(count_up(5), 2, 10, 3).unwrap();
        let mut starts = [0u32; 3];
        for n in 0..3000 {
            let batch = random(&windows, n);
            for (input, target) in batch.inputs.chunks(2).zip(batch.targets.chunks(2)) {
                assert_eq!((input[1], target), (input[0] + 1, &[input[0] + 1, input[0] + 2][..]));
                starts[input[0] as usize] += 1;
            }
        }
        // 30,000 draws: a deviation of √(30000 · 1/3 · 2/3) = 81.6.
        assert!(starts.iter().all(|&count| (f64::from(count) - 1e4).abs() < 5.0 * 81.6), "{starts:?}");
        let only = RandomWindows::new(count_up(3), 2, 1, 3).unwrap();
        assert_eq!((random(&only, 7).inputs, random(&only, 7).targets), (vec![0, 1], vec![1, 2]));
    }

    #[test]
    fn consecutive_windows_by_hand() {
        // 11 targets, context 3, two at a time: 2 + 1 windows of 3, then a rest of 2.
        let windows = ConsecutiveWindows::new(count_up(12), 3, 2).unwrap();
        assert_eq!(windows.batches(), 3);
        let mut batch = Batch::default();
        assert!(windows.fill(0, &mut batch));
        assert_eq!((batch.rows, batch.columns), (2, 3));
        assert_eq!(
            (&batch.inputs[..], &batch.targets[..]),
            (&[0, 1, 2, 3, 4, 5][..], &[1, 2, 3, 4, 5, 6][..])
        );
        assert!(windows.fill(1, &mut batch));
        assert_eq!((batch.rows, batch.columns, &batch.targets[..]), (1, 3, &[7, 8, 9][..]));
        assert!(windows.fill(2, &mut batch));
        assert_eq!((batch.rows, batch.columns), (1, 2));
        assert_eq!((&batch.inputs[..], &batch.targets[..]), (&[9, 10][..], &[10, 11][..]));
        assert!(!windows.fill(3, &mut batch) && !windows.fill(usize::MAX, &mut batch));
    }

    #[test]
    fn columns_by_hand() {
        // 11 ids in 2 columns: 0–4 and 5–9; the 10 is left out. Sequences of 3: rows 0–2, then row 3.
        let sequences = Sequences::evaluation(count_up(11), 2, 3).unwrap();
        assert_eq!((sequences.steps(), sequences.longest(), sequences.batch()), (2, 3, 2));
        let mut batch = Batch::default();
        let first = sequences.fill(0, &mut batch).unwrap();
        assert_eq!(first, Sequence { epoch: 0, offset: 0, length: 3, starts_epoch: true });
        assert_eq!((batch.rows, batch.columns), (3, 2));
        assert_eq!(
            (&batch.inputs[..], &batch.targets[..]),
            (&[0, 5, 1, 6, 2, 7][..], &[1, 6, 2, 7, 3, 8][..])
        );
        let second = sequences.fill(1, &mut batch).unwrap();
        assert_eq!(second, Sequence { epoch: 0, offset: 3, length: 1, starts_epoch: false });
        assert_eq!((&batch.inputs[..], &batch.targets[..]), (&[3, 8][..], &[4, 9][..]));
        assert_eq!(sequences.fill(2, &mut batch), None);
    }

    /// Upstream's loop, `while i < rows - 2`, written out again; a thousand epochs, because a rest of one row comes once in seventy.
    #[test]
    fn an_epoch_is_upstreams_loop() {
        const EPOCHS: u32 = 1000;
        let (rows, seed) = (500, 4);
        let sequences =
            Sequences::training(count_up(3 * rows), 3, 70, seed, Horizon::Epochs(EPOCHS)).unwrap();
        let (mut n, mut left_out) = (0, 0);
        for epoch in 0..EPOCHS {
            let (mut i, mut index) = (0, 0);
            while i < rows as usize - 2 {
                let length = sequence_length(70, seed, epoch, index).min(rows as usize - 1 - i);
                let expected = Sequence { epoch, offset: i, length, starts_epoch: i == 0 };
                assert_eq!(sequences.sequence(n), Some(expected));
                (i, index, n) = (i + length, index + 1, n + 1);
            }
            assert_eq!(sequences.steps_of_epoch(epoch as usize), index as usize);
            left_out += u32::from(i == rows as usize - 2);
        }
        assert!(left_out > 0, "the case of one row left was seen");
        assert_eq!((sequences.steps(), sequences.epochs()), (n, EPOCHS as usize));
        assert_eq!(sequences.steps_of_epoch(EPOCHS as usize) + sequences.steps_of_epoch(usize::MAX), 0);
    }

    #[test]
    fn a_longer_horizon_keeps_what_was_planned() {
        let plan = |horizon| Sequences::training(count_up(3000), 4, 35, 9, horizon).unwrap();
        let (short, long, epochs) =
            (plan(Horizon::Steps(50)), plan(Horizon::Steps(90)), plan(Horizon::Epochs(9)));
        assert_eq!((short.steps(), long.steps(), epochs.epochs()), (50, 90, 9));
        assert!(
            (0..50).all(|n| short.sequence(n) == long.sequence(n) && short.sequence(n) == epochs.sequence(n))
        );
        assert_eq!((plan(Horizon::Steps(0)).steps(), plan(Horizon::Epochs(0)).steps()), (0, 0));
        assert_eq!(plan(Horizon::Steps(0)).epochs(), 0);
        // A horizon at the end of an epoch starts no empty one.
        let first = epochs.steps_of_epoch(0);
        assert_eq!(plan(Horizon::Steps(first)).epochs(), 1);
    }

    /// Mean 0.95 · 69.5 + 0.05 · 34.5 = 67.75 (⌊·⌋ takes a half); a short base once in twenty; deviation 5 about each.
    #[test]
    fn the_lengths_have_their_distribution() {
        let n = 100_000u64;
        let lengths: Vec<f64> = (0..n).map(|index| sequence_length(70, 5, 2, index) as f64).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (short, long): (Vec<f64>, Vec<f64>) = lengths.iter().partition(|&&length| length < 52.5);
        // Standard errors: √(0.05 · 0.95 / 100000) = 0.00069; 5 / √5000 = 0.071; 5 / √95000 = 0.0163.
        assert!((short.len() as f64 / n as f64 - 0.05).abs() < 5.0 * 0.00069, "{}", short.len());
        assert!((mean(&short) - 34.5).abs() < 5.0 * 0.071, "{}", mean(&short));
        assert!((mean(&long) - 69.5).abs() < 5.0 * 0.0163, "{}", mean(&long));
        let deviation = mean(&long.iter().map(|l| (l - 69.5).powi(2)).collect::<Vec<_>>()).sqrt();
        // Variance 25 + 1/12 for the rounding.
        assert!((deviation - 25.083f64.sqrt()).abs() < 0.06, "{deviation}");
        let least = (0..10_000).map(|index| sequence_length(6, 5, 2, index)).min();
        assert_eq!(least, Some(5));
        assert!(sequence_length(usize::MAX, 5, 2, 0) > 70, "no overflow");
    }

    /// 929,589 ids in 80 columns: the 172.0 ± 1.8 steps an epoch of the reference runs.
    #[test]
    fn the_penn_treebank_has_172_steps_an_epoch() {
        let sequences = Sequences::training(vec![0; 929_589], 80, 70, 1, Horizon::Epochs(200)).unwrap();
        let mean = sequences.steps() as f64 / 200.0;
        assert!((mean - 172.0).abs() < 5.0 * 1.8 / 200f64.sqrt(), "{mean}");
        let squares = (0..200).map(|epoch| (sequences.steps_of_epoch(epoch) as f64 - mean).powi(2));
        let deviation = (squares.sum::<f64>() / 200.0).sqrt();
        assert!((deviation - 1.8).abs() < 5.0 * 1.8 / 400f64.sqrt(), "{deviation}");
        assert!((85..110).contains(&sequences.longest()), "{}", sequences.longest());
    }

    #[test]
    fn too_little_is_refused() {
        let error = RandomWindows::new(count_up(8), 8, 4, 1).unwrap_err();
        assert_eq!(error, BatchError::TooShort { found: 8, needed: 9, batch: 4, length: 8 });
        assert!(RandomWindows::new(vec![], usize::MAX, 1, 1).is_err());
        assert_eq!(
            ConsecutiveWindows::new(count_up(8), 0, 4).unwrap_err(),
            BatchError::Zero { name: "the context" }
        );
        assert!(ConsecutiveWindows::new(count_up(1), 1, 1).is_err());
        assert!(Sequences::evaluation(count_up(3), 2, 1).is_err());
        assert!(Sequences::evaluation(count_up(3), usize::MAX, 1).is_err());
        assert!(Sequences::training(count_up(5), 2, 1, 0, Horizon::Steps(1)).is_err());
        assert!(Sequences::training(count_up(6), 2, 0, 0, Horizon::Steps(1)).is_err());
        let endless = Sequences::training(count_up(6), 2, 1, 0, Horizon::Steps(usize::MAX)).unwrap_err();
        assert!(endless.to_string().contains("at most 100000000"), "{endless}");
        assert!(Sequences::training(count_up(6), 2, 1, 0, Horizon::Steps(1)).is_ok());
    }

    proptest! {
        #[test]
        fn evaluation_covers_every_target_once(len in 2u32..400, context in 1usize..30, batch in 1usize..6) {
            let windows = ConsecutiveWindows::new(count_up(len), context, batch).unwrap();
            let (mut filled, mut inputs, mut targets, mut n) = (Batch::default(), vec![], vec![], 0);
            while windows.fill(n, &mut filled) {
                prop_assert!(filled.rows <= batch && filled.columns <= context);
                prop_assert_eq!(filled.inputs.len(), filled.rows * filled.columns);
                inputs.extend_from_slice(&filled.inputs);
                targets.extend_from_slice(&filled.targets);
                n += 1;
            }
            prop_assert_eq!(n, windows.batches());
            prop_assert_eq!(inputs, count_up(len - 1));
            prop_assert_eq!(targets, (1..len).collect::<Vec<_>>());
        }

        /// Each column reads its part of the text in order; at most one target of it is left out in training, none in evaluation.
        #[test]
        fn columns_read_on(len in 3u32..600, batch in 1usize..6, bptt in 1usize..20, seed: u64, train: bool) {
            let rows = len as usize / batch;
            prop_assume!(rows >= 3);
            let sequences = if train {
                Sequences::training(count_up(len), batch, bptt, seed, Horizon::Epochs(1)).unwrap()
            } else {
                Sequences::evaluation(count_up(len), batch, bptt).unwrap()
            };
            let (mut filled, mut at) = (Batch::default(), 0);
            for n in 0..sequences.steps() {
                let sequence = sequences.fill(n, &mut filled).unwrap();
                prop_assert_eq!((sequence.offset, filled.rows, filled.columns), (at, sequence.length, batch));
                prop_assert!(sequence.length <= sequences.longest() && sequence.starts_epoch == (n == 0));
                for (row, (inputs, targets)) in filled.inputs.chunks(batch).zip(filled.targets.chunks(batch)).enumerate() {
                    for column in 0..batch {
                        let id = (column * rows + at + row) as u32;
                        prop_assert_eq!((inputs[column], targets[column]), (id, id + 1));
                    }
                }
                at += sequence.length;
            }
            prop_assert!(at == rows - 1 || train && at == rows - 2);
        }
    }
}
