//! The product with the output matrix, and the cross-entropy of its softmax, forward and backward in one.

use super::lanes::{exponentials, largest};
use super::math::{Real, dispatch};
use super::matrix::{Matrix, MatrixMut, Write};
use super::{Cpu, lock, reserve, vector};
use crate::device::Head;
use rayon::prelude::*;

/// The most logits that are held at once; more rows are taken in turns.
const LOGITS: usize = 1 << 24;
/// The mean over rows of `−log softmax(W·h + b)[target]`, and with `e = (softmax − one_hot)/rows`: `d_h = e·W`, `dW = eᵀ·h`,
/// `db = Σ_rows e`.
pub fn loss<R: Real>(
    cpu: &Cpu<R>,
    layer: &Head,
    x: &[R],
    h: &[R],
    targets: &[u32],
    mut gradient: Option<(&mut [R], &mut [R])>,
) -> f64 {
    let (vocabulary, width, rows) = (layer.weight.rows, layer.weight.columns, targets.len());
    let weight = Matrix::new(&x[layer.weight.range()], vocabulary, width, width);
    let bias = layer.bias.map(|bias| &x[bias.range()]);
    let (mut logits, mut losses) = (lock(&cpu.shared_logits), lock(&cpu.partial));
    let turn = (LOGITS / vocabulary).clamp(1, rows.max(1));
    let logits = reserve(&mut logits, turn * vocabulary);
    let losses = reserve(&mut losses, rows);
    let scale = gradient.is_some().then(|| R::from_f64(1.0 / rows as f64));
    for (index, targets) in targets.chunks(turn).enumerate() {
        let (first, rows) = (index * turn, targets.len());
        let logits = &mut logits[..rows * vocabulary];
        let h = Matrix::new(&h[first * width..], rows, width, width);
        cpu.product(MatrixMut::new(logits, rows, vocabulary, vocabulary), h, weight.t(), Write::Set);
        let losses = &mut losses[first..first + rows];
        let work = logits.par_chunks_mut(vocabulary).zip(losses).zip(targets);
        cpu.pool.install(|| {
            work.for_each(|((logits, loss), &target)| {
                *loss = softmax_row(logits, bias, target as usize, scale)
            });
        });
        let Some((d_h, dx)) = &mut gradient else { continue };
        let e = Matrix::new(logits, rows, vocabulary, vocabulary);
        let d_h = MatrixMut::new(&mut d_h[first * width..], rows, width, width);
        cpu.product(d_h, e, weight, Write::Set);
        let write = if index == 0 { layer.into } else { Write::Add };
        let d_weight = MatrixMut::new(&mut dx[layer.weight.range()], vocabulary, width, width);
        cpu.product(d_weight, e.t(), h, write);
        if let Some(bias) = layer.bias {
            vector::column_sums(cpu, logits, &mut dx[bias.range()], write);
        }
    }
    losses.iter().sum::<f64>() / rows as f64
}

/// The loss of one row; `row ← (softmax − one_hot)·scale` where a gradient is wanted.
fn softmax_row<R: Real>(row: &mut [R], bias: Option<&[R]>, target: usize, scale: Option<R>) -> f64 {
    dispatch(
        #[inline(always)]
        || {
            if let Some(bias) = bias {
                row.iter_mut().zip(bias).for_each(|(value, &bias)| *value += bias);
            }
            let most = largest(row);
            let at_target = row[target] - most;
            let sum = exponentials(row, most).into_iter().map(Real::to_f64).sum::<f64>();
            if let Some(scale) = scale {
                let factor = scale / R::from_f64(sum);
                row.iter_mut().for_each(|value| *value *= factor);
                row[target] -= scale;
            }
            sum.ln() - at_target.to_f64()
        },
    )
}

/// The logits of one row.
pub fn logits<R: Real>(layer: &Head, row: usize, x: &[R], h: &[R], out: &mut [f32]) {
    let width = layer.weight.columns;
    let h = &h[row * width..][..width];
    let weight = &x[layer.weight.range()];
    for (index, (out, weight)) in out.iter_mut().zip(weight.chunks_exact(width)).enumerate() {
        let sum: f64 = weight.iter().zip(h).map(|(w, h)| w.to_f64() * h.to_f64()).sum();
        *out = (sum + layer.bias.map_or(0.0, |bias| x[bias.range()][index].to_f64())) as f32;
    }
}
