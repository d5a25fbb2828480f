//! T5's relative positions: which bucket an offset has, and the biases by offset.

use super::math::Real;
use crate::device::RelativeBias;

/// The bucket of `key − query`.
///
/// Half of the buckets are for keys after the query where those are seen. Of the rest the first half is one per distance, and the
/// second grows with its logarithm up to `max_distance`; farther ones share the last.
fn bucket(layer: &RelativeBias, offset: isize) -> usize {
    let all = layer.table.rows;
    let (buckets, first) = match layer.bidirectional {
        true => (all / 2, if offset > 0 { all / 2 } else { 0 }),
        false => (all, 0),
    };
    let distance = if layer.bidirectional { offset.unsigned_abs() } else { (-offset).max(0) as usize };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    // In f32 as the authors have it: the truncation depends on it.
    let grown =
        (distance as f32 / exact as f32).ln() / (layer.max_distance as f64 / exact as f64).ln() as f32;
    first + (exact + (grown * (buckets - exact) as f32) as usize).min(buckets - 1)
}

/// `out[h][key − query + queries − 1] = table[bucket(key − query)][h]`.
pub fn forward<R: Real>(layer: &RelativeBias, table: &[R], out: &mut [R]) {
    let heads = layer.table.columns;
    for (head, out) in out.chunks_exact_mut(layer.offsets()).take(heads).enumerate() {
        for (index, out) in out.iter_mut().enumerate() {
            *out = table[bucket(layer, index as isize - (layer.queries as isize - 1)) * heads + head];
        }
    }
}

/// The sum over the offsets of each bucket, in order.
pub fn backward<R: Real>(layer: &RelativeBias, d_out: &[R], d_table: &mut [R]) {
    let heads = layer.table.columns;
    d_table.fill(R::ZERO);
    for (head, d_out) in d_out.chunks_exact(layer.offsets()).take(heads).enumerate() {
        for (index, &d) in d_out.iter().enumerate() {
            d_table[bucket(layer, index as isize - (layer.queries as isize - 1)) * heads + head] += d;
        }
    }
}
