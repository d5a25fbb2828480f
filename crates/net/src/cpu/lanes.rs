//! Sums and maxima in a fixed number of lanes side by side, so that every instruction set and every number of threads adds in the
//! same order. For loops inside a [`dispatch`](super::math::dispatch).

use super::math::Real;
use untuned::formula::Number;

/// Numbers that are added or compared side by side: a vector of AVX-512 in f32.
pub const LANES: usize = 16;

/// Joins the lanes by halves.
#[inline(always)]
pub fn fold<R: Real>(mut lanes: [R; LANES], join: impl Fn(R, R) -> R) -> R {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

/// The largest number of a row.
#[inline(always)]
pub fn largest<R: Real>(row: &[R]) -> R {
    let mut most = [R::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            most[lane] = Number::max(most[lane], chunk[lane]);
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        most[lane] = Number::max(most[lane], value);
    }
    fold(most, Number::max)
}

/// `row ← exp(row − shift)`, and the sums of its lanes.
#[inline(always)]
pub fn exponentials<R: Real>(row: &mut [R], shift: R) -> [R; LANES] {
    let mut sums = [R::ZERO; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = Real::exp(chunk[lane] - shift);
            sums[lane] += chunk[lane];
        }
    }
    for (lane, value) in rest.iter_mut().enumerate() {
        *value = Real::exp(*value - shift);
        sums[lane] += *value;
    }
    sums
}
