//! The regularizers of an LSTM's last layer.

use super::math::{Real, dispatch};
use super::{Cpu, vector};
use crate::device::Regularizers;
use rayon::prelude::*;
use untuned::space::{SquareDistance, SquareNorm};

/// `α·mean(dropped²)` and `β·mean((h_{t+1} − h_t)²)`. With one position nothing changes in time.
pub fn forward<R: Real>(cpu: &Cpu<R>, shape: Regularizers, dropped: &[R], raw: &[R]) -> [f64; 2] {
    let state = shape.batch * shape.width;
    let n = shape.time * state;
    let changes = n - state;
    let [activation] = vector::measure(cpu, SquareNorm, [], 0.0, &[], [&dropped[..n]]);
    let [change] =
        vector::measure(cpu, SquareDistance, [], 0.0, &[], [&raw[2 * state..n + state], &raw[state..n]]);
    [shape.activation * (activation / n as f64), shape.change * change / changes.max(1) as f64]
}

/// `d_raw_t = M ∘ (d_dropped_t + 2α·dropped_t/n) + 2β/m·((h_t − h_{t−1}) − (h_{t+1} − h_t))`, with `n` numbers, `m` changes, and
/// no change before the first position and after the last.
pub fn backward<R: Real>(
    cpu: &Cpu<R>,
    shape: Regularizers,
    dropped: &[R],
    raw: &[R],
    d_dropped: &[R],
    d_raw: &mut [R],
) {
    let Regularizers { time, batch, width, dropout, .. } = shape;
    let (rows, state) = (time * batch, batch * width);
    let activation = R::from_f64(2.0 * shape.activation / (rows * width) as f64);
    let change = R::from_f64(2.0 * shape.change / ((time - 1).max(1) * state) as f64);
    let part = cpu.rows_per_part(rows, width);
    let one = |(index, to): (usize, &mut [R])| {
        for (row, to) in to.chunks_exact_mut(width).enumerate() {
            let row = index * part + row;
            let at = row * width..(row + 1) * width;
            let row_of = |row: usize| &raw[row * width..][..width];
            // The state before the first position stands in front of `raw`.
            let h = row_of(row + batch);
            let before = if row < batch { h } else { row_of(row) };
            let after = if row + batch < rows { row_of(row + 2 * batch) } else { h };
            dropout.fill(row, to);
            dispatch(
                #[inline(always)]
                || {
                    for (u, (&d, &dropped)) in d_dropped[at.clone()].iter().zip(&dropped[at]).enumerate() {
                        let bend = (h[u] - before[u]) - (after[u] - h[u]);
                        to[u] = to[u] * (d + activation * dropped) + change * bend;
                    }
                },
            );
        }
    };
    cpu.pool.install(|| d_raw[..rows * width].par_chunks_mut(part * width).enumerate().for_each(one));
}
