//! T5's relative positions: which bucket an offset has, and the biases by offset.

use super::math::Real;
use crate::device::RelativeBias;

/// The bucket of `key − query`.
///
/// Half of the buckets are for keys after the query where those are seen. Of the rest the first half is one per distance, and the
/// second grows with its logarithm up to `max_distance`; farther ones share the last.
pub fn bucket(layer: &RelativeBias, offset: isize) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::View;

    fn layer(bidirectional: bool) -> RelativeBias {
        let table = View { offset: 0, rows: 32, columns: 1 };
        RelativeBias { table, queries: 512, keys: 512, bidirectional, max_distance: 128 }
    }

    /// The first distances of the buckets that grow, from `8·2^(k/2)` for the encoder and `16·2^(3k/16)` for the decoder, rounded up.
    const ENCODER: [usize; 7] = [12, 16, 23, 32, 46, 64, 91];
    const DECODER: [usize; 15] = [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113];

    #[test]
    fn buckets_begin_where_the_formula_says() {
        for distance in 0..512_usize {
            let grown = |exact: usize, starts: &[usize]| match distance < exact {
                true => distance,
                false => exact + starts.iter().filter(|&&start| start <= distance).count(),
            };
            let (encoder, decoder) = (grown(8, &ENCODER), grown(16, &DECODER));
            let offset = distance as isize;
            assert_eq!(bucket(&layer(true), -offset), encoder, "{distance} back");
            assert_eq!(
                bucket(&layer(true), offset),
                encoder + if distance > 0 { 16 } else { 0 },
                "{distance} on"
            );
            assert_eq!(bucket(&layer(false), -offset), decoder, "{distance} back in the decoder");
            assert_eq!(bucket(&layer(false), offset), 0, "{distance} on in the decoder");
        }
    }
}
