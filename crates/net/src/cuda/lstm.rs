//! An LSTM over a whole sequence.
//!
//! What does not depend on the position before is one product over all positions. Rows that do not start at multiples of 16 bytes
//! (1150 numbers in bf16) are copied to where they do: cuBLASLt's fast kernels ask for it.
//!
//! What does depend on it is one kernel for all positions where the hidden-to-hidden matrix fits the multiprocessors' shared memory
//! ([`Share`]), and otherwise a product and a kernel at every position.

use super::commands::Launch;
use super::product::{Matrix, Type};
use super::{Buffer, Cuda, Parameters, Scratch};
use crate::arena::View;
use crate::device::{Dropout, Lstm, Write};

/// Rows that one block adds up for the gradient of the biases.
const BIAS_ROWS: usize = 64;

/// As in `lstm.cu`: threads of a block that stays for all positions, and tiles of 8 sequences that it has at most.
const THREADS: usize = 256;
const TILES: usize = 5;
/// Numbers of a row that a warp takes at a time.
const CHUNK: usize = 32;
/// The kernels for one to five tiles of 16 rows of the matrix.
const FORWARD: [&str; 5] =
    ["lstm_forward_1", "lstm_forward_2", "lstm_forward_3", "lstm_forward_4", "lstm_forward_5"];
const BACKWARD: [&str; 5] =
    ["lstm_backward_1", "lstm_backward_2", "lstm_backward_3", "lstm_backward_4", "lstm_backward_5"];
/// Bytes between counters, so that blocks that wait for different ones do not disturb each other.
const COUNTER: usize = 128;

/// How blocks share the units and the sequences when all positions are one kernel.
///
/// A block keeps its rows of the matrix in shared memory, and reads the state of its sequences at every position: the fewer
/// sequences it has, the less it reads, but the more rows it needs to have. On an H200 with 80 sequences and 1150 units, two groups
/// of 40 sequences and 58 blocks of 80 rows (184 KB) in each.
#[derive(Debug, PartialEq)]
struct Share {
    /// Groups of sequences.
    groups: usize,
    /// Tiles of 8 sequences in a group.
    tiles: usize,
    /// Tiles of 16 rows of the matrix in a block.
    rows: usize,
    /// Blocks, or teams of `team` blocks, that share the units.
    blocks: usize,
    team: usize,
    /// Bytes of shared memory.
    shared: usize,
}

impl Share {
    /// Where it fits: `team` blocks together have 4 · `team` units for every tile of rows.
    fn new(cuda: &Cuda, layer: &Lstm, team: usize) -> Option<Self> {
        let (multiprocessors, shared_memory) = (cuda.context.multiprocessors, cuda.context.shared_memory);
        let share = Self::of(layer.batch, layer.hidden(), team, multiprocessors as usize);
        share.filter(|share| cuda.kind() == Type::Bf16 && share.shared <= shared_memory as usize)
    }

    /// On so many multiprocessors.
    fn of(batch: usize, hidden: usize, team: usize, multiprocessors: usize) -> Option<Self> {
        let groups = batch.div_ceil(8 * TILES);
        let tiles = batch.div_ceil(8 * groups);
        let most = multiprocessors / (groups * team);
        let rows = hidden.div_ceil((4 * team * most).max(1));
        let blocks = hidden.div_ceil(4 * team * rows);
        // The matrix, the warps' sums for a tile of rows, the block's sums, the biases.
        let shared = hidden.div_ceil(CHUNK) * rows * 1024
            + THREADS * TILES * 16
            + 16 * rows * (8 * TILES + 1) * 4
            + 16 * rows * 4;
        let fits = most > 0 && rows <= FORWARD.len();
        fits.then_some(Self { groups, tiles, rows, blocks, team, shared })
    }

    /// Counters, all 0, and after them so many rows of state, with zeros, for every sequence.
    fn state(&self, cuda: &Cuda, layer: &Lstm, rows: usize) -> (u64, u64) {
        let counters = COUNTER * self.groups * (1 + self.blocks);
        let row = 2 * layer.hidden().next_multiple_of(CHUNK);
        let bytes = counters + self.groups * 8 * self.tiles * rows * row;
        let address = cuda.scratch(Scratch::LstmState, bytes);
        cuda.zero_bytes(address, bytes);
        (address, address + counters as u64)
    }
}

/// The length of rows that start at multiples of 16 bytes.
fn padded(columns: usize, kind: Type) -> usize {
    columns.next_multiple_of(16 / kind.size())
}

/// Room for padded rows, as many as `gates` has at the longest: then it stays where it is while the number of positions varies.
fn rows_room(cuda: &Cuda, layer: &Lstm, gates: &Buffer, stride: usize) -> u64 {
    cuda.scratch(Scratch::LstmRows, gates.len / (4 * layer.hidden()) * stride * cuda.kind().size())
}

/// Activations as a factor of products: where they stand, or as a copy with padded rows.
fn factor(cuda: &Cuda, layer: &Lstm, gates: &Buffer, from: u64, columns: usize) -> Matrix {
    let (rows, kind, stride) = (layer.time * layer.batch, cuda.kind(), padded(columns, cuda.kind()));
    if stride == columns {
        return Matrix::new(from, rows, columns, kind);
    }
    let to = rows_room(cuda, layer, gates, stride);
    let launch = Launch::over("lstm_pad", rows * stride / 4);
    cuda.launch(launch.with(from).with(to).with(rows).with(columns).with(stride));
    Matrix::new(to, rows, stride, kind)
}

/// `M ∘ W` with padded rows.
fn masked(cuda: &Cuda, to: Scratch, x: &Parameters, view: View, drop: Dropout) -> Matrix {
    let (kind, stride) = (cuda.kind(), padded(view.columns, cuda.kind()));
    let to = cuda.scratch(to, view.rows * stride * kind.size());
    let launch = Launch::over("lstm_mask", view.len() / 4).with(x.at(view)).with(to);
    cuda.launch(launch.with(view.len() / 4).with(view.columns).with(stride).dropout(cuda, drop));
    Matrix::new(to, view.rows, stride, kind)
}

/// `W_ih` as a factor of products.
fn input_weight(cuda: &Cuda, layer: &Lstm, x: &Parameters) -> Matrix {
    match padded(layer.inputs(), cuda.kind()) == layer.inputs() {
        true => cuda.weight(x, layer.input_weight),
        false => masked(cuda, Scratch::LstmInput, x, layer.input_weight, Dropout::NONE),
    }
}

/// The gradient `M ∘ (eᵀ·before)` of a matrix.
fn weight_gradient(cuda: &Cuda, dx: &mut Parameters, view: View, e: Matrix, before: Matrix, drop: Dropout) {
    if before.columns == view.columns && !drop.is_active() {
        return cuda.product(dx.matrix(view), e.t(), before, Write::Set);
    }
    let room = cuda.scratch(Scratch::LstmGradient, 4 * view.rows * before.columns);
    cuda.product(Matrix::new(room, view.rows, before.columns, Type::F32), e.t(), before, Write::Set);
    let launch = Launch::over("lstm_mask_gradient", view.len() / 4).with(room).with(dx.at(view));
    cuda.launch(launch.with(view.len() / 4).with(view.columns).with(before.columns).dropout(cuda, drop));
}

/// As [`Device::lstm`](crate::device::Device::lstm) says.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    cuda: &Cuda,
    layer: &Lstm,
    x: &Parameters,
    input: &Buffer,
    carry: &mut Buffer,
    gates: &mut Buffer,
    cells: &mut Buffer,
    out: &mut Buffer,
) {
    let (hidden, rows) = (layer.hidden(), layer.time * layer.batch);
    let weight = input_weight(cuda, layer, x);
    let input = factor(cuda, layer, gates, input.address(), layer.inputs());
    cuda.product(gates.matrix(rows, 4 * hidden), input, weight.t(), Write::Set);

    let weight = masked(cuda, Scratch::LstmHidden, x, layer.hidden_weight, layer.weight_drop);
    match Share::new(cuda, layer, 1) {
        None => positions(cuda, layer, x, weight, carry, gates, cells, out),
        Some(share) => together(cuda, layer, &share, x, weight, carry, gates, cells, out),
    }
}

/// All positions in one kernel.
#[allow(clippy::too_many_arguments)]
fn together(
    cuda: &Cuda,
    layer: &Lstm,
    share: &Share,
    x: &Parameters,
    weight: Matrix,
    carry: &mut Buffer,
    gates: &mut Buffer,
    cells: &mut Buffer,
    out: &mut Buffer,
) {
    let (counters, state) = share.state(cuda, layer, 2);
    let grid = [share.blocks, share.groups, 1];
    let launch = Launch::new(FORWARD[share.rows - 1], grid, THREADS)
        .shared(share.shared)
        .cooperative()
        .with(weight.address)
        .with(weight.stride)
        .with(x.at(layer.input_bias))
        .with(x.at(layer.hidden_bias))
        .with(carry.address())
        .with(gates.address())
        .with(cells.address())
        .with(out.address())
        .with(state)
        .with(counters);
    cuda.launch(launch.with(layer.time).with(layer.batch).with(layer.hidden()).with(share.tiles));
}

/// Position by position, a product and a kernel each.
#[allow(clippy::too_many_arguments)]
fn positions(
    cuda: &Cuda,
    layer: &Lstm,
    x: &Parameters,
    weight: Matrix,
    carry: &mut Buffer,
    gates: &mut Buffer,
    cells: &mut Buffer,
    out: &mut Buffer,
) {
    let (batch, hidden, stride) = (layer.batch, layer.hidden(), weight.columns);
    let (count, kind) = (batch * hidden, cuda.kind());
    let bytes = batch * stride * kind.size();
    let state = Matrix::new(cuda.scratch(Scratch::LstmState, bytes), batch, stride, kind);
    let room = cuda.scratch(Scratch::LstmGradient, 4 * 4 * count);
    let sums = Matrix::new(room, batch, 4 * hidden, Type::F32);
    cuda.zero_bytes(state.address, bytes);
    let launch = Launch::over("lstm_begin", count).with(carry.address()).with(cells.address());
    let launch = launch.with(out.address()).with(state.address);
    cuda.launch(launch.with(batch).with(hidden).with(stride));
    for position in 0..layer.time {
        cuda.product(sums, state, weight.t(), Write::Set);
        let launch = Launch::over("lstm_position", count)
            .with(sums.address)
            .with(x.at(layer.input_bias))
            .with(x.at(layer.hidden_bias))
            .with(gates.at(position * 4 * count))
            .with(cells.at(position * count))
            .with(out.at(position * count))
            .with(state.address);
        cuda.launch(launch.with(batch).with(hidden).with(stride));
    }
    let last = layer.time * count;
    let launch = Launch::over("lstm_end", count).with(carry.address()).with(cells.at(last));
    cuda.launch(launch.with(out.at(last)).with(count));
}

/// As [`Device::lstm_backward`](crate::device::Device::lstm_backward) says.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    cuda: &Cuda,
    layer: &Lstm,
    x: &Parameters,
    input: &Buffer,
    gates: &mut Buffer,
    cells: &Buffer,
    out: &Buffer,
    d_out: &Buffer,
    dx: &mut Parameters,
    d_input: &mut Buffer,
) {
    let (hidden, inputs, rows) = (layer.hidden(), layer.inputs(), layer.time * layer.batch);
    let weight = masked(cuda, Scratch::LstmHidden, x, layer.hidden_weight, layer.weight_drop);
    match Share::new(cuda, layer, 4) {
        None => positions_backward(cuda, layer, weight, gates, cells, d_out),
        Some(share) => together_backward(cuda, layer, &share, weight, gates, cells, d_out),
    }

    let e = gates.matrix(rows, 4 * hidden);
    let before = factor(cuda, layer, gates, input.address(), inputs);
    weight_gradient(cuda, dx, layer.input_weight, e, before, Dropout::NONE);
    let before = factor(cuda, layer, gates, out.address(), hidden);
    weight_gradient(cuda, dx, layer.hidden_weight, e, before, layer.weight_drop);
    bias_gradient(cuda, layer, e, dx);

    let weight = input_weight(cuda, layer, x);
    if weight.columns == inputs {
        return cuda.product(d_input.matrix(rows, inputs), e, weight, Write::Set);
    }
    let room = rows_room(cuda, layer, gates, weight.columns);
    cuda.product(Matrix::new(room, rows, weight.columns, cuda.kind()), e, weight, Write::Set);
    let launch = Launch::over("lstm_unpad", (rows * inputs).div_ceil(4)).with(room).with(d_input.address());
    cuda.launch(launch.with(rows).with(inputs).with(weight.columns));
}

/// From the last position to the first in one kernel: `gates` becomes `e`.
fn together_backward(
    cuda: &Cuda,
    layer: &Lstm,
    share: &Share,
    weight: Matrix,
    gates: &mut Buffer,
    cells: &Buffer,
    d_out: &Buffer,
) {
    let (counters, state) = share.state(cuda, layer, 2 * 4);
    // What each block of a team found for each of them.
    let teams = share.groups * share.blocks;
    let exchange = cuda.scratch(Scratch::LstmGradient, 4 * teams * 16 * (4 * share.rows * 8 * TILES));
    let grid = [share.team, share.blocks, share.groups];
    let launch = Launch::new(BACKWARD[share.rows - 1], grid, THREADS)
        .shared(share.shared)
        .cooperative()
        .with(weight.address)
        .with(weight.stride)
        .with(gates.address())
        .with(cells.address())
        .with(d_out.address())
        .with(state)
        .with(exchange)
        .with(counters);
    cuda.launch(launch.with(layer.time).with(layer.batch).with(layer.hidden()).with(share.tiles));
}

/// From the last position to the first, a kernel and a product each: `gates` becomes `e`.
fn positions_backward(
    cuda: &Cuda,
    layer: &Lstm,
    weight: Matrix,
    gates: &mut Buffer,
    cells: &Buffer,
    d_out: &Buffer,
) {
    let (batch, hidden, stride) = (layer.batch, layer.hidden(), weight.columns);
    let count = batch * hidden;
    let d_cells = cuda.scratch(Scratch::LstmState, 4 * count);
    let room = cuda.scratch(Scratch::LstmGradient, 4 * batch * stride);
    let sums = Matrix::new(room, batch, stride, Type::F32);
    for position in (0..layer.time).rev() {
        let e = Matrix::new(gates.at(position * 4 * count), batch, 4 * hidden, cuda.kind());
        let launch = Launch::over("lstm_position_backward", count)
            .with(sums.address)
            .with(e.address)
            .with(cells.at(position * count))
            .with(d_out.at(position * count))
            .with(d_cells);
        cuda.launch(launch.with(batch).with(hidden).with(stride).with(position + 1 == layer.time));
        if position > 0 {
            cuda.product(sums, e, weight, Write::Set);
        }
    }
}

/// Both biases' gradient: the sums of the columns of `e`.
fn bias_gradient(cuda: &Cuda, layer: &Lstm, e: Matrix, dx: &mut Parameters) {
    let parts = e.rows.div_ceil(BIAS_ROWS);
    let partial = cuda.scratch(Scratch::Partial, 4 * parts * e.columns);
    let grid = [(e.columns / 4).div_ceil(256), parts, 1];
    let launch = Launch::new("lstm_bias_partial", grid, 256).with(e.address).with(partial);
    cuda.launch(launch.with(e.rows).with(e.columns).with(BIAS_ROWS));
    let launch = Launch::over("lstm_bias", e.columns).with(partial);
    let launch = launch.with(dx.at(layer.input_bias)).with(dx.at(layer.hidden_bias));
    cuda.launch(launch.with(parts).with(e.columns));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H200: its multiprocessors, and the bytes of shared memory that a block can have.
    const H200: (usize, usize) = (132, 227 << 10);

    #[test]
    fn the_papers_layers_fit_an_h200() {
        for (hidden, team, rows, blocks) in
            [(1150, 1, 5, 58), (1150, 4, 5, 15), (400, 1, 2, 50), (400, 4, 2, 13)]
        {
            let share =
                Share::of(80, hidden, team, H200.0).unwrap_or_else(|| panic!("{hidden} units, {team}"));
            assert_eq!(
                (share.groups, share.tiles, share.rows, share.blocks),
                (2, 5, rows, blocks),
                "{hidden}"
            );
            assert!(share.shared <= H200.1, "{hidden} units: {} bytes", share.shared);
        }
    }

    #[test]
    fn every_unit_and_sequence_has_a_block() {
        for hidden in [1, 20, 33, 128, 400, 1150, 5000] {
            for batch in [1, 8, 20, 40, 41, 80, 128, 5000] {
                for team in [1, 4] {
                    let Some(share) = Share::of(batch, hidden, team, H200.0) else { continue };
                    let name = format!("{hidden} units, {batch} sequences: {share:?}");
                    assert!(share.groups * share.blocks * team <= H200.0, "{name}");
                    assert!(share.tiles <= TILES && share.groups * share.tiles * 8 >= batch, "{name}");
                    assert!(share.blocks * team * 4 * share.rows >= hidden, "{name}");
                }
            }
        }
        assert_eq!(Share::of(80, 5000, 1, H200.0), None);
        assert_eq!(Share::of(5000, 20, 4, H200.0), None);
    }
}
