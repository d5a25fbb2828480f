//! The regularizers of an LSTM's last layer.

use super::commands::Launch;
use super::{Buffer, Cuda, vector};
use crate::device::Regularizers;

/// `α·mean(dropped²)` and `β·mean((h_{t+1} − h_t)²)`. With one position nothing changes in time.
pub fn forward(cuda: &Cuda, shape: Regularizers, dropped: &Buffer, raw: &Buffer, first: u64, second: u64) {
    let state = shape.batch * shape.width;
    let n = shape.time * state;
    let changes = n - state;
    vector::reduce_buffers(cuda, dropped.address(), None, n, shape.activation / n as f64, first);
    let scale = shape.change / changes.max(1) as f64;
    vector::reduce_buffers(cuda, raw.at(2 * state), Some(raw.at(state)), changes, scale, second);
}

/// `d_raw_t = M ∘ (d_dropped_t + 2α·dropped_t/n) + 2β/m·((h_t − h_{t−1}) − (h_{t+1} − h_t))`, with `n` numbers and `m` changes.
pub fn backward(
    cuda: &Cuda,
    shape: Regularizers,
    dropped: &Buffer,
    raw: &Buffer,
    d_dropped: &Buffer,
    d_raw: &mut Buffer,
) {
    let Regularizers { time, batch, width, .. } = shape;
    let rows = time * batch;
    let changes = (time - 1).max(1) * batch * width;
    cuda.launch(
        Launch::over("regularizers_backward", rows * width)
            .with(dropped.address())
            .with(raw.address())
            .with(d_dropped.address())
            .with(d_raw.address())
            .with(rows as u64)
            .with(batch)
            .with(width)
            .with((2.0 * shape.activation / (rows * width) as f64) as f32)
            .with((2.0 * shape.change / changes as f64) as f32)
            .dropout(cuda, shape.dropout),
    );
}
