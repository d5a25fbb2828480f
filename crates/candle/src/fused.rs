//! A pass as one loop over the numbers of each tensor, where they lie in the memory of the CPU.
//!
//! Sixteen coordinates at a time go through small arrays: the compiler then knows that nothing overlaps, and vectorizes.

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, Tensor, WithDType, bail};
use std::cell::RefCell;
use untuned::optimizers::{Change, Measure, Number};

const LANES: usize = 16;

/// The numbers of a tensor on the CPU, f64 or f32.
pub(crate) trait Element: Number + WithDType + Default {
    /// Those of a storage, where they are such.
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [Self]>;

    /// As f64.
    fn wide(self) -> f64;
}

impl Element for f32 {
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [f32]> {
        if let CpuStorage::F32(numbers) = storage { Some(numbers) } else { None }
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Element for f64 {
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [f64]> {
        if let CpuStorage::F64(numbers) = storage { Some(numbers) } else { None }
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

/// Changes tensors of one shape.
pub(crate) fn change<T, F, const S: usize, const M: usize, const R: usize>(
    scalars: [f64; S],
    decay: f64,
    change: [&Tensor; M],
    read: [&Tensor; R],
) -> Result<()>
where
    T: Element,
    F: Change<S, M, R>,
{
    let locks = read.map(|tensor| tensor.storage_and_layout());
    let mut slices: [&[T]; R] = [&[]; R];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&locks) {
        *slice = numbers(storage, layout)?;
    }
    let (scalars, decay) = (scalars.map(T::of), T::of(decay));
    writing(&change, &mut [], &mut |written: &mut [&mut [T]]| {
        let written = std::array::from_fn(|i| std::mem::take(&mut written[i]));
        run_change::<T, F, S, M, R>(scalars, decay, written, slices);
    })
}

/// Sums over tensors of one shape. The terms are computed in f64, too.
pub(crate) fn measure<T, F, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    decay: f64,
    read: [&Tensor; R],
) -> Result<[f64; K]>
where
    T: Element,
    F: Measure<S, R, K>,
{
    let locks = read.map(|tensor| tensor.storage_and_layout());
    let mut slices: [&[T]; R] = [&[]; R];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&locks) {
        *slice = numbers(storage, layout)?;
    }
    Ok(run_measure::<T, F, S, R, K>(scalars, decay, slices))
}

fn numbers<'a, T: Element>(storage: &'a Storage, layout: &Layout) -> Result<&'a [T]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(cpu), Some((start, end))) => Ok(&cpu.as_slice::<T>()?[start..end]),
        _ => bail!("a tensor that is not contiguous on the CPU"),
    }
}

/// Calls `work` with the numbers of all these tensors, to be changed. Candle lends one tensor's at a time, to an operation in
/// place: each of these asks for the next.
fn writing<T: Element>(
    tensors: &[&Tensor],
    taken: &mut [&mut [T]],
    work: &mut dyn FnMut(&mut [&mut [T]]),
) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else {
        work(taken);
        return Ok(());
    };
    let next = |storage: &mut CpuStorage, layout: &Layout| {
        let (Some((start, end)), Some(numbers)) = (layout.contiguous_offsets(), T::of_storage(storage))
        else {
            bail!("a variable that is not contiguous, or of another dtype than the others")
        };
        let numbers = &mut numbers[start..end];
        let mut taken: Vec<&mut [T]> = taken.iter_mut().map(|numbers| &mut **numbers).collect();
        taken.push(numbers);
        writing(rest, &mut taken, work)
    };
    first.inplace_op1(&Lent(RefCell::new(next)))
}

/// What is done with the numbers that were lent.
struct Lent<F>(RefCell<F>);

impl<F: FnMut(&mut CpuStorage, &Layout) -> Result<()>> InplaceOp1 for Lent<F> {
    fn name(&self) -> &'static str {
        "untuned"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        (self.0.borrow_mut())(storage, layout)
    }
}

/// Number `at` of vectors. A loop, because the standard library's `map` of arrays becomes a call when they are long.
#[inline(always)]
fn each<V: AsRef<[T]>, T: Copy, const N: usize>(vectors: &[V; N], at: usize, nothing: T) -> [T; N] {
    let mut numbers = [nothing; N];
    numbers.iter_mut().zip(vectors).for_each(|(to, vector)| *to = vector.as_ref()[at]);
    numbers
}

/// Puts number `at` of vectors.
#[inline(always)]
fn put<V: AsMut<[T]>, T: Copy, const N: usize>(vectors: &mut [V; N], at: usize, numbers: [T; N]) {
    vectors.iter_mut().zip(&numbers).for_each(|(vector, &number)| vector.as_mut()[at] = number);
}

fn run_change<T, F, const S: usize, const M: usize, const R: usize>(
    scalars: [T; S],
    decay: T,
    mut rests: [&mut [T]; M],
    read: [&[T]; R],
) where
    T: Element,
    F: Change<S, M, R>,
{
    let mut chunks: [&mut [[T; LANES]]; M] = std::array::from_fn(|_| Default::default());
    for (rest, chunks) in rests.iter_mut().zip(&mut chunks) {
        (*chunks, *rest) = std::mem::take(rest).as_chunks_mut();
    }
    let given = read.map(|vector| vector.as_chunks::<LANES>().0);
    let count = chunks.first().map_or(0, |chunks| chunks.len());
    for at in 0..count {
        let mut lanes = each(&chunks, at, [T::default(); LANES]);
        let given = each(&given, at, [T::default(); LANES]);
        for lane in 0..LANES {
            let old = each(&lanes, lane, T::default());
            put(&mut lanes, lane, F::each(scalars, decay, old, each(&given, lane, T::default())));
        }
        put(&mut chunks, at, lanes);
    }
    let given = read.map(|vector| vector.as_chunks::<LANES>().1);
    for at in 0..rests.first().map_or(0, |rest| rest.len()) {
        let old = each(&rests, at, T::default());
        put(&mut rests, at, F::each(scalars, decay, old, each(&given, at, T::default())));
    }
}

fn run_measure<T, F, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    decay: f64,
    read: [&[T]; R],
) -> [f64; K]
where
    T: Element,
    F: Measure<S, R, K>,
{
    let mut sums = [[0.0; LANES]; K];
    let chunks = read.map(|vector| vector.as_chunks::<LANES>().0);
    for at in 0..chunks.first().map_or(0, |chunks| chunks.len()) {
        let given = each(&chunks, at, [T::default(); LANES]);
        for lane in 0..LANES {
            add_terms::<T, F, S, R, K>(scalars, decay, each(&given, lane, T::default()), &mut sums, lane);
        }
    }
    let rests = read.map(|vector| vector.as_chunks::<LANES>().1);
    for at in 0..rests.first().map_or(0, |rest| rest.len()) {
        add_terms::<T, F, S, R, K>(scalars, decay, each(&rests, at, T::default()), &mut sums, at);
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// Adds the terms of one coordinate to a lane.
#[inline(always)]
fn add_terms<T, F, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    decay: f64,
    read: [T; R],
    sums: &mut [[f64; LANES]; K],
    lane: usize,
) where
    T: Element,
    F: Measure<S, R, K>,
{
    let mut wide = [0.0; R];
    wide.iter_mut().zip(&read).for_each(|(to, from)| *to = from.wide());
    let terms = F::each(scalars, decay, wide);
    sums.iter_mut().zip(&terms).for_each(|(lanes, term)| lanes[lane] += term);
}
