//! Passes over whole buffers: formulas, copies.

use super::math::{Real, dispatch};
use super::{Cpu, lock, reserve};
use crate::device::{Dropout, Write};
use rayon::prelude::*;
use untuned::formula::{Change, Measure};
use untuned::slices;
use untuned::space::TensorRange;

/// Numbers in one part of a pass: fixed, so that the order of a sum's additions does not depend on the number of threads.
const PART: usize = 1 << 16;

/// Calls `work` with parts of the vectors and the place where each part begins, on all threads.
fn in_parts<R: Real, const M: usize>(
    start: usize,
    mut vectors: [&mut [R]; M],
    work: &(impl Fn(usize, [&mut [R]; M]) + Sync),
) {
    let parts = vectors[0].len().div_ceil(PART);
    if parts <= 1 {
        return work(start, vectors);
    }
    let half = parts / 2 * PART;
    let rest = vectors.each_mut().map(|vector| {
        let (first, rest) = std::mem::take(vector).split_at_mut(half);
        *vector = first;
        rest
    });
    rayon::join(|| in_parts(start, vectors, work), || in_parts(start + half, rest, work));
}

/// Changes vectors in one pass.
pub fn change<R: Real, F: Change<S, M, N>, const S: usize, const M: usize, const N: usize>(
    cpu: &Cpu<R>,
    _: F,
    scalars: [f64; S],
    decay: f64,
    tensors: &[TensorRange],
    change: [&mut [R]; M],
    read: [&[R]; N],
) {
    const { assert!(M > 0, "a pass changes something") };
    let len = change[0].len();
    let mut lens = change.iter().map(|vector| vector.len()).chain(read.map(<[R]>::len));
    assert!(lens.all(|other| other == len), "vectors of one length");
    let one = |start: usize, mut change: [&mut [R]; M]| {
        TensorRange::each(tensors, decay, start..start + change[0].len(), |range, info| {
            let change = change.each_mut().map(|vector| &mut vector[range.start - start..range.end - start]);
            let read = read.map(|vector| &vector[range.clone()]);
            dispatch(
                #[inline(always)]
                move || slices::change::<R, F, S, M, N>(scalars, info, change, read),
            );
        });
    };
    cpu.pool.install(|| in_parts(0, change, &one));
}

/// Sums over vectors in one pass, added in f64. Terms are computed in f64, or in the vectors' own numbers where they are
/// [narrow](Measure::NARROW): parts of a fixed size, each summed in a fixed order, then added in order.
pub fn measure<R: Real, F: Measure<S, N, K>, const S: usize, const N: usize, const K: usize>(
    cpu: &Cpu<R>,
    _: F,
    scalars: [f64; S],
    decay: f64,
    tensors: &[TensorRange],
    read: [&[R]; N],
) -> [f64; K] {
    const { assert!(N > 0 && K > 0, "a pass sums something") };
    let len = read[0].len();
    assert!(read.iter().all(|vector| vector.len() == len), "vectors of one length");
    let mut partial = lock(&cpu.partial);
    let (partial, _) = reserve(&mut partial, K * len.div_ceil(PART)).as_chunks_mut::<K>();
    let one = |(index, to): (usize, &mut [f64; K])| {
        let mut sums = slices::Sums::ZERO;
        TensorRange::each(tensors, decay, index * PART..len.min((index + 1) * PART), |range, info| {
            let read = read.map(|vector| &vector[range.clone()]);
            let before = sums;
            sums = dispatch(
                #[inline(always)]
                move || slices::measure::<R, F, S, N, K>(scalars, info, read, before),
            );
        });
        *to = sums.total();
    };
    cpu.pool.install(|| partial.par_iter_mut().enumerate().for_each(one));
    std::array::from_fn(|sum| partial.iter().map(|sums| sums[sum]).sum())
}

pub fn copy<R: Real>(cpu: &Cpu<R>, from: &[R], to: &mut [R]) {
    assert_eq!(from.len(), to.len(), "vectors of one length");
    cpu.pool.install(|| {
        to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
    });
}

/// `to += from`.
pub fn add<R: Real>(cpu: &Cpu<R>, from: &[R], to: &mut [R]) {
    assert_eq!(from.len(), to.len(), "vectors of one length");
    let one = |(to, from): (&mut [R], &[R])| {
        dispatch(
            #[inline(always)]
            || to.iter_mut().zip(from).for_each(|(to, &from)| *to += from),
        );
    };
    cpu.pool.install(|| to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(one));
}

/// `to = dropout(from)`, rows of `width`.
pub fn dropout<R: Real>(cpu: &Cpu<R>, dropout: Dropout, width: usize, from: &[R], to: &mut [R]) {
    if !dropout.is_active() {
        return copy(cpu, from, to);
    }
    let part = cpu.rows_per_part(to.len() / width, width) * width;
    let one = |(index, (to, from)): (usize, (&mut [R], &[R]))| {
        for (row, (to, from)) in to.chunks_exact_mut(width).zip(from.chunks_exact(width)).enumerate() {
            dropout.fill(index * part / width + row, to);
            dispatch(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(to, &from)| *to *= from),
            );
        }
    };
    cpu.pool.install(|| to.par_chunks_mut(part).zip(from.par_chunks(part)).enumerate().for_each(one));
}

/// Rows whose sums are added at once; fixed, so that the order of additions is.
const SUMMED_ROWS: usize = 64;

/// `out = Σ` of the rows of `from`, each as wide as `out`, or `out += Σ`.
pub fn column_sums<R: Real>(cpu: &Cpu<R>, from: &[R], out: &mut [R], write: Write) {
    let width = out.len();
    let mut partial = lock(&cpu.shared);
    let partial = reserve(&mut partial, from.len().div_ceil(SUMMED_ROWS * width) * width);
    let add = |to: &mut [R], rows: &[R], write: Write| {
        dispatch(
            #[inline(always)]
            || {
                if write == Write::Set {
                    to.fill(R::ZERO);
                }
                for row in rows.chunks_exact(width) {
                    to.iter_mut().zip(row).for_each(|(to, &from)| *to += from);
                }
            },
        );
    };
    let parts = from.par_chunks(SUMMED_ROWS * width);
    cpu.pool.install(|| {
        partial.par_chunks_mut(width).zip(parts).for_each(|(to, rows)| add(to, rows, Write::Set))
    });
    add(out, partial, write);
}
