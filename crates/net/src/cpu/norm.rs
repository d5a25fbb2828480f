//! LayerNorm and RMSNorm, with the residual addition before them.

use super::lanes::{LANES, fold};
use super::math::{Real, dispatch};
use super::{Cpu, lock, reserve};
use crate::device::{Dropout, Norm};
use rayon::prelude::*;

/// `Σ term(i)` in [`LANES`] sums side by side.
#[inline(always)]
fn sum<R: Real>(len: usize, term: impl Fn(usize) -> R) -> R {
    let mut sums = [R::ZERO; LANES];
    let whole = len / LANES * LANES;
    let mut at = 0;
    while at < whole {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += term(at + lane);
        }
        at += LANES;
    }
    for (lane, sum) in sums.iter_mut().enumerate().take(len - whole) {
        *sum += term(whole + lane);
    }
    fold(sums, |a, b| a + b)
}

/// Some rows of what a norm writes: its output, statistics and stream.
type Part<'a, R> = ((&'a mut [R], &'a mut [R]), &'a mut [R]);

/// `stream = stream_in + M∘branch`; `out = w ∘ (stream − mean)·r` with `r = 1/√(variance + ε)`, and for RMSNorm mean 0.
/// `statistics` holds mean and `r` of each row.
#[allow(clippy::too_many_arguments)]
pub fn forward<R: Real>(
    cpu: &Cpu<R>,
    norm: Norm,
    weight: &[R],
    rows: usize,
    stream_in: &[R],
    branch: Option<(&[R], Dropout, &mut [R])>,
    out: &mut [R],
    statistics: &mut [R],
) {
    let width = weight.len();
    let part = cpu.rows_per_part(rows, width);
    let (out, statistics) = (&mut out[..rows * width], &mut statistics[..rows * 2]);
    match branch {
        None => {
            let one = |((out, statistics), stream): ((&mut [R], &mut [R]), &[R])| {
                let rows = out.chunks_exact_mut(width).zip(statistics.chunks_exact_mut(2));
                for ((out, statistics), stream) in rows.zip(stream.chunks_exact(width)) {
                    normalise(norm, weight, stream, out, statistics);
                }
            };
            let work = out.par_chunks_mut(part * width).zip(statistics.par_chunks_mut(part * 2));
            cpu.pool.install(|| work.zip(stream_in[..rows * width].par_chunks(part * width)).for_each(one));
        }
        Some((branch, dropout, stream)) => {
            let one = |(index, ((out, statistics), stream)): (usize, Part<'_, R>)| {
                let first = index * part;
                let rows = out.chunks_exact_mut(width).zip(statistics.chunks_exact_mut(2));
                for (row, ((out, statistics), stream)) in rows.zip(stream.chunks_exact_mut(width)).enumerate()
                {
                    let row = first + row;
                    let (from, branch) =
                        (&stream_in[row * width..][..width], &branch[row * width..][..width]);
                    dropout.fill(row, stream);
                    dispatch(
                        #[inline(always)]
                        || {
                            for ((stream, &from), &branch) in stream.iter_mut().zip(from).zip(branch) {
                                *stream = stream.mul_add(branch, from);
                            }
                        },
                    );
                    normalise(norm, weight, stream, out, statistics);
                }
            };
            let work = out.par_chunks_mut(part * width).zip(statistics.par_chunks_mut(part * 2));
            let work = work.zip(stream[..rows * width].par_chunks_mut(part * width));
            cpu.pool.install(|| work.enumerate().for_each(one));
        }
    }
}

/// One row of [`forward`].
fn normalise<R: Real>(norm: Norm, weight: &[R], stream: &[R], out: &mut [R], statistics: &mut [R]) {
    let n = weight.len();
    dispatch(
        #[inline(always)]
        || {
            let (stream, out) = (&stream[..n], &mut out[..n]);
            let count = R::from_f64(n as f64);
            let (mean, epsilon) = match norm {
                Norm::Layer { epsilon } => (sum(n, |i| stream[i]) / count, epsilon),
                Norm::Rms { epsilon } => (R::ZERO, epsilon),
            };
            let variance = sum(n, |i| (stream[i] - mean) * (stream[i] - mean)) / count;
            let scale = (variance + R::from_f64(epsilon)).sqrt().recip();
            for i in 0..n {
                out[i] = (stream[i] - mean) * scale * weight[i];
            }
            statistics[0] = mean;
            statistics[1] = scale;
        },
    );
}

/// Rows whose part of the weight's gradient is summed at once; fixed, so that the order of additions is.
const PART: usize = 32;

/// With `x̂ = (stream − mean)·r` and `e = w∘d_out`: `dw = Σ_rows d_out∘x̂`; `d_stream += r·(e − mean(e) − x̂·mean(e∘x̂))`, for RMSNorm
/// without `mean(e)`; then `d_branch = M∘d_stream`.
#[allow(clippy::too_many_arguments)]
pub fn backward<R: Real>(
    cpu: &Cpu<R>,
    norm: Norm,
    weight: &[R],
    rows: usize,
    stream: &[R],
    statistics: &[R],
    d_out: &[R],
    d_weight: &mut [R],
    d_stream: &mut [R],
    d_branch: Option<(&mut [R], Dropout)>,
) {
    let n = weight.len();
    let parts = rows.div_ceil(PART);
    let mut partial = lock(&cpu.shared);
    let partial = reserve(&mut partial, parts * n);
    let dropout = d_branch.as_ref().map(|(_, dropout)| *dropout);
    let one = |index: usize, partial: &mut [R], d_stream: &mut [R], mut d_branch: Option<&mut [R]>| {
        partial.fill(R::ZERO);
        for (row, d_stream) in d_stream.chunks_exact_mut(n).enumerate() {
            let at = index * PART + row;
            let (stream, d_out) = (&stream[at * n..][..n], &d_out[at * n..][..n]);
            let (mean, scale) = (statistics[2 * at], statistics[2 * at + 1]);
            dispatch(
                #[inline(always)]
                || {
                    let (partial, d_stream, weight) = (&mut partial[..n], &mut d_stream[..n], &weight[..n]);
                    let count = R::from_f64(n as f64);
                    let hat = |i: usize| (stream[i] - mean) * scale;
                    let centre = match norm {
                        Norm::Layer { .. } => sum(n, |i| weight[i] * d_out[i]) / count,
                        Norm::Rms { .. } => R::ZERO,
                    };
                    let slope = sum(n, |i| weight[i] * d_out[i] * hat(i)) / count;
                    for i in 0..n {
                        let hat = hat(i);
                        partial[i] += d_out[i] * hat;
                        d_stream[i] += scale * (weight[i] * d_out[i] - centre - hat * slope);
                    }
                },
            );
            if let (Some(d_branch), Some(dropout)) = (&mut d_branch, dropout) {
                let d_branch = &mut d_branch[row * n..][..n];
                dropout.fill(at, d_branch);
                dispatch(
                    #[inline(always)]
                    || d_branch.iter_mut().zip(&*d_stream).for_each(|(to, &from)| *to *= from),
                );
            }
        }
    };
    let d_stream = &mut d_stream[..rows * n];
    cpu.pool.install(|| {
        let work = partial.par_chunks_mut(n).zip(d_stream.par_chunks_mut(PART * n)).enumerate();
        match d_branch {
            Some((d_branch, _)) => work.zip(d_branch[..rows * n].par_chunks_mut(PART * n)).for_each(
                |((index, (partial, d_stream)), d_branch)| one(index, partial, d_stream, Some(d_branch)),
            ),
            None => work.for_each(|(index, (partial, d_stream))| one(index, partial, d_stream, None)),
        }
    });
    dispatch(
        #[inline(always)]
        || {
            d_weight.fill(R::ZERO);
            for partial in partial.chunks_exact(n) {
                d_weight.iter_mut().zip(partial).for_each(|(to, &from)| *to += from);
            }
        },
    );
}
