//! The product with the output matrix, and the cross-entropy of its softmax, forward and backward in one.

use super::commands::Launch;
use super::product::{Matrix, Type};
use super::{Buffer, Cuda, Ids, Parameters, Scratch, vector};
use crate::arena::View;
use crate::device::{DeviceError, Head, Write};

/// The most logits that are held at once; more rows are taken in turns.
const LOGITS: usize = 1 << 29;
/// Up to this vocabulary a row is a warp's, beyond it a block's.
const NARROW: usize = 2048;

/// The mean over rows of `−log softmax(W·h + b)[target]`, and with `e = (softmax − one_hot)/rows`: `d_h = e·W`, `dW = eᵀ·h`,
/// `db = Σ_rows e`. Logits are in f32, whatever `h` is in.
#[allow(clippy::too_many_arguments)]
pub fn loss(
    cuda: &Cuda,
    layer: &Head,
    rows: usize,
    x: &Parameters,
    h: &Buffer,
    targets: &Ids,
    to: u64,
    mut gradient: Option<(&mut Buffer, &mut Parameters)>,
) {
    let (vocabulary, width) = (layer.weight.rows, layer.weight.columns);
    // Rows begin at multiples of 16 bytes, which products like.
    let stride = vocabulary.next_multiple_of(8);
    let turn = (LOGITS / stride).clamp(1, rows.max(1));
    let logits = cuda.scratch(Scratch::Logits, 4 * turn * stride);
    let losses = cuda.scratch(Scratch::Losses, 8 * rows);
    let gradients = match gradient {
        Some(_) => cuda.scratch(Scratch::LogitGradients, turn * stride * h.kind.size()),
        None => 0,
    };
    // Products of whole eights are faster. Backward, what stands behind the matrix in the arena is multiplied with zeros.
    let whole = layer.weight.offset + stride * width <= x.len;
    let padded = View { rows: if whole { stride } else { vocabulary }, ..layer.weight };
    let weight = cuda.weight(x, padded);
    for first in (0..rows).step_by(turn) {
        let count = turn.min(rows - first);
        let inputs = Matrix::new(h.at(first * width), count, width, h.kind);
        let outputs = Matrix::strided(logits, count, padded.rows, stride, Type::F32);
        cuda.product(outputs, inputs, weight.t(), Write::Set);
        let launch = match vocabulary <= NARROW {
            true => Launch::new("cross_entropy_warp", [count.div_ceil(8), 1, 1], 256),
            false => Launch::new("cross_entropy_block", [count, 1, 1], 512),
        };
        cuda.launch(
            launch
                .with(logits)
                .with(stride as u64)
                .with(layer.bias.map_or(0, |bias| x.at(bias)))
                .with(count)
                .with(vocabulary)
                .with(targets.address() + 4 * first as u64)
                .with(losses + 8 * first as u64)
                .with(gradients)
                .with(stride as u64)
                .with((1.0 / rows as f64) as f32),
        );
        let Some((d_h, dx)) = &mut gradient else { continue };
        let e = Matrix::strided(gradients, count, padded.rows, stride, h.kind);
        cuda.product(Matrix::new(d_h.at(first * width), count, width, d_h.kind), e, weight, Write::Set);
        let e = Matrix::strided(gradients, count, vocabulary, stride, h.kind);
        let write = if first == 0 { layer.into } else { Write::Add };
        cuda.product(dx.matrix(layer.weight), e.t(), inputs, write);
        if let Some(bias) = layer.bias {
            vector::column_sums(cuda, e, dx.at(bias), write);
        }
    }
    vector::sum_doubles(cuda, losses, rows, 1.0 / rows as f64, to);
}

/// The logits of one row.
pub fn logits(
    cuda: &Cuda,
    layer: &Head,
    row: usize,
    x: &Parameters,
    h: &Buffer,
    out: &mut [f32],
) -> Result<(), DeviceError> {
    let (vocabulary, width) = (layer.weight.rows, layer.weight.columns);
    let to = cuda.scratch(Scratch::Logits, 4 * vocabulary);
    cuda.launch(
        Launch::new("logits_of_row", [vocabulary.div_ceil(8), 1, 1], 256)
            .with(x.at(layer.weight))
            .with(layer.bias.map_or(0, |bias| x.at(bias)))
            .with(h.at(row * width))
            .with(vocabulary)
            .with(width)
            .with(to),
    );
    cuda.download(to, out)
}
