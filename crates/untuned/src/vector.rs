//! The few vector operations of the loop, one pass over memory each.
//!
//! Sums use sixteen accumulators in a fixed order: enough to keep two additions per cycle in flight with the two-wide
//! instructions that every x86-64 has, and the same bits every time. Vectors of different lengths panic.

const LANES: usize = 16;

#[inline]
fn reduce(a: &[f64], b: &[f64], term: impl Fn(f64, f64) -> f64) -> f64 {
    assert_eq!(a.len(), b.len(), "vectors of one length");
    let mut sums = [0.0; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f64 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(&x, &y)| term(x, y)).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += term(x[lane], y[lane]);
        }
    }
    gather(sums) + tail
}

#[inline]
fn gather(mut sums: [f64; LANES]) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

/// As [`reduce`], over one vector: reading it twice would double the loads.
#[inline]
fn reduce_one(v: &[f64], term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let chunks = v.chunks_exact(LANES);
    let tail: f64 = chunks.remainder().iter().map(|&x| term(x)).sum();
    for x in chunks {
        for lane in 0..LANES {
            sums[lane] += term(x[lane]);
        }
    }
    gather(sums) + tail
}

/// `Σ v_i`.
pub fn sum(v: &[f64]) -> f64 {
    reduce_one(v, |x| x)
}

/// `Σ a_i b_i`.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    reduce(a, b, |x, y| x * y)
}

/// Writes `slope(x_i)` to `out_i` and sums `value(x_i)`, where `both` gives the two: a separable function and its
/// gradient in one pass.
pub fn sum_and_slopes(x: &[f64], out: &mut [f64], both: impl Fn(f64) -> (f64, f64)) -> f64 {
    let mut sums = [0.0; LANES];
    let (mut x_chunks, mut out_chunks) = (x.chunks_exact(LANES), out.chunks_exact_mut(LANES));
    for (x, out) in x_chunks.by_ref().zip(out_chunks.by_ref()) {
        for lane in 0..LANES {
            let (value, slope) = both(x[lane]);
            sums[lane] += value;
            out[lane] = slope;
        }
    }
    let mut tail = 0.0;
    for (&x, out) in x_chunks.remainder().iter().zip(out_chunks.into_remainder()) {
        let (value, slope) = both(x);
        tail += value;
        *out = slope;
    }
    gather(sums) + tail
}

/// `‖v‖`, exact to rounding for any finite entries: where the squares leave the normal range they are scaled first.
pub fn norm(v: &[f64]) -> f64 {
    if let [only] = v {
        return only.abs();
    }
    scaled_root(reduce_one(v, |x| x * x), v.iter().copied())
}

/// `‖a − b‖`, with the same care as [`norm`].
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    if let ([a], [b]) = (a, b) {
        return (a - b).abs();
    }
    scaled_root(reduce(a, b, |x, y| (x - y) * (x - y)), a.iter().zip(b).map(|(x, y)| x - y))
}

/// The root of `squares`, the sum of the squared `entries`; summed again in units near the largest one where that
/// sum is too small to be exact or has overflowed.
fn scaled_root(squares: f64, entries: impl Iterator<Item = f64> + Clone) -> f64 {
    if squares.is_finite() && squares > 1e-280 {
        return squares.sqrt();
    }
    if squares.is_nan() {
        return f64::NAN;
    }
    let largest = entries.clone().fold(0.0, |m: f64, x| m.max(x.abs()));
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    // A power of two, so that scaling rounds nothing.
    let unit = f64::from_bits(largest.to_bits() & f64::INFINITY.to_bits()).max(f64::MIN_POSITIVE);
    unit * entries.map(|x| (x / unit) * (x / unit)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_every_length() {
        for n in 0..40 {
            let v: Vec<f64> = (1..=n).map(f64::from).collect();
            let n = f64::from(n);
            assert_eq!(sum(&v), n * (n + 1.0) / 2.0);
            assert_eq!(dot(&v, &v), n * (n + 1.0) * (2.0 * n + 1.0) / 6.0);
            let mut slopes = vec![f64::NAN; v.len()];
            assert_eq!(sum_and_slopes(&v, &mut slopes, |x| (x * x, 2.0 * x)), dot(&v, &v));
            assert!(slopes.iter().zip(&v).all(|(s, x)| *s == 2.0 * x));
        }
    }

    #[test]
    fn norms_at_the_edges_of_the_range() {
        assert_eq!(norm(&[3.0, 4.0]), 5.0);
        let (tiny, huge) = (2f64.powi(-600), 2f64.powi(700));
        assert_eq!(norm(&[3.0 * tiny, 4.0 * tiny]), 5.0 * tiny);
        assert_eq!(norm(&[3.0 * huge, 4.0 * huge]), 5.0 * huge);
        assert_eq!(norm(&[0.0, 0.0]), 0.0);
        assert_eq!(norm(&[f64::MIN_POSITIVE * 0.25, 0.0]), f64::MIN_POSITIVE * 0.25);
        assert!(norm(&[f64::NAN, 1.0]).is_nan());
        assert!(norm(&[f64::INFINITY, f64::NAN]).is_nan());
        assert_eq!(norm(&[f64::NEG_INFINITY, 1.0]), f64::INFINITY);
        assert_eq!(distance(&[3.0 * tiny, 0.0], &[0.0, 4.0 * tiny]), 5.0 * tiny);
        assert_eq!(distance(&[7.0], &[9.5]), 2.5);
    }
}
