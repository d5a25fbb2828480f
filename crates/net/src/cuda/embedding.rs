//! Rows of a table by id, with positions added.

use super::commands::Launch;
use super::product::Matrix;
use super::{Buffer, Cuda, Ids, LONGEST, Parameters, Scratch};
use crate::device::{Dropout, Embedding, Write};

/// Up to this many ids, the table's gradient is a product with the ids as a one-hot matrix.
const FEW: usize = 512;
/// The table's rows that a block of `embed_backward` has.
const IDS: usize = 8;

/// `out[r] = M_d ∘ (m_id · E[id] + P[r mod positions])`.
pub fn forward(cuda: &Cuda, layer: &Embedding, rows: usize, x: &Parameters, ids: &Ids, out: &mut Buffer) {
    let width = layer.table.columns;
    let (positions, used) = layer.positions.map_or((0, 1), |(view, used)| (x.at(view), used));
    let launch = match width.is_multiple_of(4) {
        true => Launch::over("embed_4", rows * width / 4),
        false => Launch::over("embed_1", rows * width),
    };
    cuda.launch(
        launch
            .with(x.at(layer.table))
            .with(positions)
            .with(used)
            .with(ids.address())
            .with(rows)
            .with(width)
            .with(out.address())
            .dropout(cuda, layer.row_dropout)
            .dropout(cuda, layer.dropout),
    );
}

/// `dE[id] += m_id · M_d ∘ d_out[r]` over the rows with that id; `dP[p] = Σ M_d ∘ d_out[r]` over those at position p.
pub fn backward(cuda: &Cuda, layer: &Embedding, rows: usize, ids: &Ids, d_out: &Buffer, dx: &mut Parameters) {
    let (vocabulary, width) = (layer.table.rows, layer.table.columns);
    let columns = vocabulary.next_multiple_of(8);
    let few = vocabulary <= FEW && rows * columns <= LONGEST;
    // What is used more than once is masked once.
    let masked = match (few || layer.positions.is_some()) && layer.dropout.is_active() {
        true => {
            let to = cuda.scratch(Scratch::Masked, rows * width * d_out.kind.size());
            super::vector::dropout_to(cuda, layer.dropout, rows, width, d_out.address(), to, d_out.kind);
            to
        }
        false => d_out.address(),
    };
    if few {
        let hot = cuda.scratch(Scratch::OneHot, rows * columns * d_out.kind.size());
        cuda.launch(
            Launch::over("one_hot", rows * columns)
                .with(ids.address())
                .with(rows)
                .with(columns)
                .with(hot)
                .dropout(cuda, layer.row_dropout),
        );
        let hot = Matrix::strided(hot, rows, vocabulary, columns, d_out.kind);
        let d_rows = Matrix::new(masked, rows, width, d_out.kind);
        cuda.product(dx.matrix(layer.table), hot.t(), d_rows, Write::Add);
    } else {
        let dropout = if masked == d_out.address() { layer.dropout } else { Dropout::NONE };
        cuda.launch(
            Launch::new("embed_backward", [vocabulary.div_ceil(IDS), 1, 1], 256)
                .with(ids.address())
                .with(rows)
                .with(masked)
                .with(vocabulary)
                .with(width)
                .with(dx.at(layer.table))
                .dropout(cuda, layer.row_dropout)
                .dropout(cuda, dropout),
        );
    }
    let Some((view, used)) = layer.positions else { return };
    let launch = match width.is_multiple_of(4) {
        true => Launch::new("position_sums_4", [view.len().div_ceil(4 * 32), 1, 1], 256),
        false => Launch::new("position_sums_1", [view.len().div_ceil(32), 1, 1], 256),
    };
    cuda.launch(launch.with(masked).with(rows).with(used).with(view.rows).with(width).with(dx.at(view)));
}
