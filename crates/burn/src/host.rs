//! Passes over numbers in the processor's memory: one loop in place of many tensor operations.

use untuned::optimizers::{Change, Measure, Number};

/// Sums that are added at the same time, so that one addition does not wait for the one before.
const LANES: usize = 8;

/// A number that a parameter is made of.
pub(crate) trait Real: Number + burn::tensor::Element + Default + Into<f64> {}

impl Real for f32 {}
impl Real for f64 {}

/// Number `at` of vectors. A loop, because the standard library's `map` of arrays becomes a call when they are long.
#[inline(always)]
fn numbers<T: Real, V: AsRef<[T]>, const N: usize>(vectors: &[V; N], at: usize) -> [T; N] {
    let mut numbers = [T::default(); N];
    numbers.iter_mut().zip(vectors).for_each(|(to, vector)| *to = vector.as_ref()[at]);
    numbers
}

/// Changes vectors of one length.
pub(crate) fn change<T: Real, F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
    scalars: [f64; S],
    decay: f64,
    change: [&mut [T]; M],
    read: [&[T]; R],
) {
    let (scalars, decay) = (scalars.map(T::of), T::of(decay));
    let len = change.first().map_or(0, |vector| vector.len());
    let (mut change, read) = (change.map(|vector| &mut vector[..len]), read.map(|vector| &vector[..len]));
    for at in 0..len {
        let new = F::each(scalars, decay, numbers(&change, at), numbers(&read, at));
        change.iter_mut().zip(new).for_each(|(vector, new)| vector[at] = new);
    }
}

/// Sums over vectors of one length: the terms are computed in f64, or in the vectors' type where the formula allows it, and added in f64
/// and in a fixed order.
pub(crate) fn measure<T: Real, F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    decay: f64,
    read: [&[T]; R],
) -> [f64; K] {
    if F::NARROW {
        measure_in::<T, T, F, S, R, K>(scalars, decay, read, |number| number)
    } else {
        measure_in::<T, f64, F, S, R, K>(scalars, decay, read, T::into)
    }
}

/// The same, with terms in the type `N`.
#[inline(always)]
fn measure_in<T: Real, N: Real, F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    decay: f64,
    read: [&[T]; R],
    number: impl Fn(T) -> N,
) -> [f64; K] {
    let (scalars, decay) = (scalars.map(N::of), N::of(decay));
    let len = read.first().map_or(0, |vector| vector.len());
    let read = read.map(|vector| &vector[..len]);
    let mut sums = [[0.0; LANES]; K];
    for at in 0..len {
        let mut given = [N::default(); R];
        given.iter_mut().zip(&read).for_each(|(to, vector)| *to = number(vector[at]));
        let terms = F::each(scalars, decay, given);
        sums.iter_mut().zip(terms).for_each(|(sums, term)| sums[at % LANES] += term.into());
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// `Σ v²`, all in f64.
pub(crate) fn square_norm<T: Real>(vector: &[T]) -> f64 {
    let (whole, rest) = vector.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    let square = |number: T| {
        let number: f64 = number.into();
        number * number
    };
    for chunk in whole {
        // The length is fixed, so that this can become vector code.
        for i in 0..LANES {
            sums[i] += square(chunk[i]);
        }
    }
    let rest: f64 = rest.iter().map(|&number| square(number)).sum();
    sums.iter().sum::<f64>() + rest
}
