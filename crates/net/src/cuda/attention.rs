//! Attention without materialised scores: blocks of queries or keys pass over the other side, and the backward pass computes the
//! scores again. `flash.cu` has kernels for bf16 and the usual widths of a head, `attention.cu` those for everything else.

use super::commands::Launch;
use super::product::Type;
use super::{Buffer, Cuda, Scratch, WIDEST_HEAD};
use crate::device::{Attention, Columns, Heads};

/// Threads of a block, fast or general.
const BLOCK: usize = 128;
/// Queries or keys of a block, general.
const GENERAL_ROWS: usize = 16;
/// Keys or queries that a fast block loads at a time.
const TILE: usize = 64;

/// The kernels for an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernels {
    forward: &'static str,
    backward_queries: &'static str,
    backward_keys: &'static str,
    /// Queries or keys of a block.
    rows: usize,
    /// Bytes of shared memory, in the order above.
    shared: [usize; 3],
}

impl Kernels {
    /// Those that use the tensor cores, where the width has some.
    fn fast(layer: &Attention, biased: bool, diagonals: bool) -> Option<Self> {
        let (forward, backward_queries, backward_keys) = match layer.width {
            32 => ("flash_forward_32", "flash_backward_queries_32", "flash_backward_keys_32"),
            64 => ("flash_forward_64", "flash_backward_queries_64", "flash_backward_keys_64"),
            128 => ("flash_forward_128", "flash_backward_queries_128", "flash_backward_keys_128"),
            _ => return None,
        };
        let rows = if layer.width > 64 { 64 } else { 128 };
        // Rows are 16 bytes longer than need be. A block has its own, once or twice, and two times two tiles of the other side.
        let (row, ring) = (2 * layer.width + 16, 2 * TILE);
        // All biases that a block needs and 16 more, twice.
        let biases =
            |others: usize| if biased { 2 * 4 * (others.next_multiple_of(TILE) + rows + 16) } else { 0 };
        // Sums along the diagonals of each of 4 warps.
        let along = if diagonals { 4 * 4 * (layer.keys.next_multiple_of(TILE) + 32) } else { 0 };
        // Logarithms, row sums and words of masks.
        let statistics = 4 * (2 + rows / 32) * ring;
        let shared = [
            (rows + 2 * ring) * row + biases(layer.keys),
            (2 * rows + 2 * ring) * row + biases(layer.keys) + along,
            (2 * rows + 2 * ring) * row + statistics + biases(layer.queries),
        ];
        Some(Self { forward, backward_queries, backward_keys, rows, shared })
    }

    /// Those for every width and type.
    fn general(layer: &Attention) -> Self {
        let padded = layer.width.next_multiple_of(32);
        // Two times the block's own rows and two times 32 of the other side, in f32.
        let rows = 4 * (2 * GENERAL_ROWS * padded + 2 * 32 * (padded + 1));
        Self {
            forward: "attention_forward",
            backward_queries: "attention_backward_queries",
            backward_keys: "attention_backward_keys",
            rows: GENERAL_ROWS,
            // The diagonals of 4 × 32 numbers of each of 4 warps.
            shared: [rows, rows + 4 * 4 * (32 + 4), rows],
        }
    }

    /// The fast ones where type and width have some, scores keep their order when scaled, rows begin at multiples of 16 bytes,
    /// indices fit 32 bits and shared memory suffices.
    fn new(cuda: &Cuda, layer: &Attention, heads: Heads, biased: bool, diagonals: bool) -> Self {
        let aligned = |columns: Columns| columns.offset.is_multiple_of(8) && columns.stride.is_multiple_of(8);
        let rows = layer.batch * layer.queries.max(layer.keys);
        let widest =
            [heads.q.stride, heads.k.stride, heads.v.stride, layer.heads * layer.width].into_iter().max();
        let room = cuda.context.shared_memory as usize;
        Self::fast(layer, biased, diagonals)
            .filter(|_| cuda.kind() == Type::Bf16 && layer.scale > 0.0)
            .filter(|_| [heads.q, heads.k, heads.v].into_iter().all(aligned))
            .filter(|_| widest.is_some_and(|widest| u32::try_from(rows * widest).is_ok()))
            .filter(|kernels| u32::try_from(kernels.masks(layer) / 4).is_ok())
            .filter(|kernels| kernels.shared.iter().all(|&bytes| bytes <= room))
            .unwrap_or_else(|| Self::general(layer))
    }

    /// A kernel with what all of them take first, the sizes and what the scores are made of (queries, keys and values, biases): a
    /// block for some rows of every sequence and head.
    fn launch(
        &self,
        name: &'static str,
        rows: usize,
        shared: usize,
        layer: &Attention,
        heads: Heads,
        (q, kv, bias): (&Buffer, &Buffer, Option<&Buffer>),
    ) -> Launch {
        let tiles = rows.div_ceil(self.rows);
        // With a causal mask the fast ones begin with the tiles that take longest.
        let grid = match self.are_fast() && layer.causal {
            true => [layer.heads, layer.batch, tiles],
            false => [tiles, layer.heads, layer.batch],
        };
        let launch = Launch::new(name, grid, BLOCK)
            .shared(shared)
            .with(layer.heads)
            .with(layer.queries)
            .with(layer.keys)
            .with(layer.causal)
            .with(layer.scale as f32)
            .with(heads.q.stride)
            .with(heads.k.stride)
            .with(heads.v.stride);
        // The fast ones know the width.
        let launch = if self.are_fast() { launch } else { launch.with(layer.width) };
        launch
            .with(q.at(heads.q.offset))
            .with(kv.at(heads.k.offset))
            .with(kv.at(heads.v.offset))
            .with(bias.map_or(0, Buffer::address))
    }

    fn are_fast(&self) -> bool {
        self.rows != GENERAL_ROWS
    }

    /// Bytes of the masks that the fast kernels store: 32 bits for every query and 32 keys, of whole blocks.
    fn masks(&self, layer: &Attention) -> usize {
        match self.are_fast() && layer.dropout.is_active() {
            true => 4 * layer.batch * layer.heads * layer.queries * 4 * layer.keys.div_ceil(128),
            false => 0,
        }
    }
}

fn check(layer: &Attention) {
    assert!(layer.width <= WIDEST_HEAD, "a head has at most {WIDEST_HEAD} columns, not {}", layer.width);
}

/// `out = (M ∘ softmax(scale·q·kᵀ + bias))·v`.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    cuda: &Cuda,
    layer: &Attention,
    heads: Heads,
    q: &Buffer,
    kv: &Buffer,
    bias: Option<&Buffer>,
    out: &mut Buffer,
    logs: &mut Buffer,
) {
    check(layer);
    let kernels = Kernels::new(cuda, layer, heads, bias.is_some(), false);
    let launch = kernels
        .launch(kernels.forward, layer.queries, kernels.shared[0], layer, heads, (q, kv, bias))
        .with(out.address())
        .with(logs.address());
    // The backward pass reads the masks instead of making them again, which would take longer than its products.
    let launch = match (kernels.are_fast(), kernels.masks(layer)) {
        (false, _) => launch,
        (true, 0) => launch.with(0u64),
        (true, bytes) => launch.with(cuda.attach(logs, bytes)),
    };
    cuda.launch(launch.dropout(cuda, layer.dropout));
}

/// The gradients of queries; of keys and values; and of the biases, from the sums that the first kernel left.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    cuda: &Cuda,
    layer: &Attention,
    heads: Heads,
    q: &Buffer,
    kv: &Buffer,
    bias: Option<&Buffer>,
    out: &Buffer,
    logs: &Buffer,
    d_out: &Buffer,
    d_q: &mut Buffer,
    d_kv: Option<&mut Buffer>,
    d_bias: Option<&mut Buffer>,
) {
    check(layer);
    let kernels = Kernels::new(cuda, layer, heads, bias.is_some(), d_bias.is_some());
    let masks = logs.attached.as_ref();
    let mask_bytes = masks.map_or(0, |memory| memory.bytes);
    // Where the forward pass stored no masks, the general ones make them again.
    let kernels = if kernels.masks(layer) <= mask_bytes { kernels } else { Kernels::general(layer) };
    let pairs = layer.batch * layer.heads;
    let inner = cuda.scratch(Scratch::AttentionSums, 4 * pairs * layer.queries);
    // What came from the forward pass, and what the kernel of the queries hands to that of the keys.
    let handed = |launch: Launch| {
        let launch = launch.with(logs.address());
        let masks = masks.map_or(0, |memory| memory.address);
        let launch = if kernels.are_fast() { launch.with(masks) } else { launch };
        launch.with(inner)
    };
    let diagonals = pairs * layer.queries.div_ceil(kernels.rows) * (layer.keys + kernels.rows - 1);
    let partial = d_bias.as_ref().map_or(0, |_| cuda.scratch(Scratch::AttentionBias, 4 * diagonals));
    let factors = (q, kv, bias);
    let d_kv = d_kv.as_deref().unwrap_or(d_q);
    let queries = handed(
        kernels
            .launch(kernels.backward_queries, layer.queries, kernels.shared[1], layer, heads, factors)
            .with(out.address())
            .with(d_out.address()),
    );
    cuda.launch(queries.with(d_q.at(heads.q.offset)).with(partial).dropout(cuda, layer.dropout));
    let keys = handed(
        kernels
            .launch(kernels.backward_keys, layer.keys, kernels.shared[2], layer, heads, factors)
            .with(d_out.address()),
    );
    let keys = keys.with(d_kv.at(heads.k.offset)).with(d_kv.at(heads.v.offset));
    cuda.launch(keys.dropout(cuda, layer.dropout));
    if let Some(d_bias) = d_bias {
        let offsets = layer.queries + layer.keys - 1;
        cuda.launch(
            Launch::new("attention_backward_bias", [offsets.div_ceil(32), layer.heads, 1], 1024)
                .with(d_bias.address())
                .with(partial)
                .with(layer.batch)
                .with(layer.heads)
                .with(layer.queries)
                .with(layer.keys)
                .with(kernels.rows),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Dropout;

    fn layer(width: usize) -> Attention {
        let (batch, heads, queries, keys) = (128, 12, 512, 512);
        Attention { batch, heads, width, queries, keys, causal: false, scale: 1.0, dropout: Dropout::NONE }
    }

    /// A block can have 99 KiB on every device from compute capability 8.0 on, 163 KiB on 8.0 and 227 KiB on 9.0.
    #[test]
    fn shared_memory_suffices() {
        let most = |kernels: Kernels| kernels.shared.into_iter().max().unwrap();
        assert!((1..=WIDEST_HEAD).all(|width| most(Kernels::general(&layer(width))) <= 99 << 10));
        assert!(
            [32, 64]
                .into_iter()
                .all(|width| most(Kernels::fast(&layer(width), true, true).unwrap()) <= 99 << 10)
        );
        assert!(most(Kernels::fast(&layer(128), true, true).unwrap()) <= 163 << 10);
    }
}
