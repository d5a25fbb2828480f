//! A branch is added to the stream, and the stream is normalised row by row.

use super::commands::Launch;
use super::{Buffer, Cuda, Parameters, Scratch, vector};
use crate::arena::View;
use crate::device::{Dropout, Norm, Write};

/// The kernels by how many chunks of 128 numbers a row has, and how many warps a block of the backward pass can have: as many
/// as a multiprocessor's registers hold.
const KERNELS: [(usize, &str, &str, usize); 6] = [
    (1, "norm_forward_1", "norm_backward_1", 25),
    (2, "norm_forward_2", "norm_backward_2", 25),
    (3, "norm_forward_3", "norm_backward_3", 25),
    (4, "norm_forward_4", "norm_backward_4", 16),
    (6, "norm_forward_6", "norm_backward_6", 12),
    (8, "norm_forward_8", "norm_backward_8", 12),
];

/// The kernels for a width, and the warps of those that hold a row in registers.
fn kernels(width: usize) -> (&'static str, &'static str, Option<usize>) {
    let fits = KERNELS.iter().find(|(chunks, ..)| width.is_multiple_of(4) && width <= 128 * chunks);
    fits.map_or(("norm_forward_any", "norm_backward_any", None), |&(_, forward, backward, warps)| {
        (forward, backward, Some(warps))
    })
}

fn parts(norm: Norm) -> (bool, f32) {
    match norm {
        Norm::Layer { epsilon } => (false, epsilon as f32),
        Norm::Rms { epsilon } => (true, epsilon as f32),
    }
}

/// `stream_out = stream_in + M∘branch`, `out = w∘(stream_out − mean)·r`.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    cuda: &Cuda,
    norm: Norm,
    weight: View,
    rows: usize,
    x: &Parameters,
    stream_in: &Buffer,
    branch: Option<(&Buffer, Dropout, &mut Buffer)>,
    out: &mut Buffer,
    statistics: &mut Buffer,
) {
    let (rms, epsilon) = parts(norm);
    let (added, dropout, stream_out) = match &branch {
        Some((branch, dropout, to)) => (branch.address(), *dropout, to.address()),
        None => (0, Dropout::NONE, 0),
    };
    let width = weight.len();
    // Four rows in a block: short blocks end evenly.
    cuda.launch(
        Launch::new(kernels(width).0, [rows.div_ceil(4), 1, 1], 128)
            .with(rows)
            .with(width)
            .with(rms)
            .with(epsilon)
            .with(x.at(weight))
            .with(stream_in.address())
            .with(added)
            .with(stream_out)
            .with(out.address())
            .with(statistics.address())
            .dropout(cuda, dropout),
    );
}

/// With `x̂ = (stream − mean)·r` and `e = w∘d_out`: `dw = Σ_rows d_out∘x̂`; `d_stream += r·(e − mean(e) − x̂·mean(e∘x̂))`, for RMSNorm
/// without `mean(e)`; then `d_branch = M∘d_stream`.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    cuda: &Cuda,
    norm: Norm,
    weight: View,
    rows: usize,
    x: &Parameters,
    stream: &Buffer,
    statistics: &Buffer,
    d_out: &Buffer,
    dx: &mut Parameters,
    d_stream: &mut Buffer,
    d_branch: Option<(&mut Buffer, Dropout)>,
) {
    let (rms, _) = parts(norm);
    let (branch, dropout) = match &d_branch {
        Some((branch, dropout)) => (branch.address(), *dropout),
        None => (0, Dropout::NONE),
    };
    let width = weight.len();
    let (_, kernel, in_registers) = kernels(width);
    // One block for each multiprocessor leaves few partial sums; where those are in memory, one warp is a block.
    let multiprocessors = cuda.context.multiprocessors as usize;
    let (warps, blocks) = match in_registers {
        // No more warps than take equally many rows.
        Some(most) => {
            (rows.div_ceil(multiprocessors * rows.div_ceil(multiprocessors * most)), multiprocessors)
        }
        None => (1, 8 * multiprocessors),
    };
    let blocks = blocks.min(rows.div_ceil(warps));
    let partial = cuda.scratch(Scratch::Partial, 4 * blocks * width);
    cuda.launch(
        Launch::new(kernel, [blocks, 1, 1], 32 * warps)
            .shared(in_registers.map_or(0, |_| 4 * warps * width))
            .with(rows)
            .with(width)
            .with(rms)
            .with(x.at(weight))
            .with(stream.address())
            .with(statistics.address())
            .with(d_out.address())
            .with(d_stream.address())
            .with(branch)
            .with(partial)
            .dropout(cuda, dropout),
    );
    vector::sum_parts(cuda, partial, blocks, width, dx.at(weight), Write::Set);
}
