//! T5's relative positions. Which bucket an offset has is decided on the host, where the CPU's function says it.

use super::commands::Launch;
use super::{Buffer, Cuda, Parameters};
use crate::cpu::relative_bias::bucket;
use crate::device::RelativeBias;

/// The address of the buckets of all offsets.
fn buckets(cuda: &Cuda, layer: &RelativeBias) -> u64 {
    let first = 1 - layer.queries as isize;
    let buckets: Vec<u32> =
        (0..layer.offsets()).map(|index| bucket(layer, first + index as isize) as u32).collect();
    cuda.table(&buckets)
}

/// `out[h][key − query + queries − 1] = table[bucket(key − query)][h]`.
pub fn forward(cuda: &Cuda, layer: &RelativeBias, x: &Parameters, out: &mut Buffer) {
    let (offsets, heads) = (layer.offsets(), layer.table.columns);
    cuda.launch(
        Launch::over("relative_bias", offsets * heads)
            .with(x.at(layer.table))
            .with(buckets(cuda, layer))
            .with(offsets)
            .with(heads)
            .with(out.address()),
    );
}

/// The sum over the offsets of each bucket.
pub fn backward(cuda: &Cuda, layer: &RelativeBias, d_out: &Buffer, dx: &mut Parameters) {
    let (all, heads) = (layer.table.rows, layer.table.columns);
    cuda.launch(
        Launch::new("relative_bias_backward", [(all * heads).div_ceil(8), 1, 1], 256)
            .with(d_out.address())
            .with(buckets(cuda, layer))
            .with(layer.offsets())
            .with(heads)
            .with(all)
            .with(dx.at(layer.table)),
    );
}
