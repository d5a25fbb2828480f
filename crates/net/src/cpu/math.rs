//! The numbers that a network computes with, and the functions of its activations.
//!
//! Everything is generic over [`Real`]: `f32` for training, `f64` so that finite differences can prove a gradient. The functions
//! of `f32` are polynomials without branches, so that a plain loop over them becomes vector code where the instruction set allows
//! it. That set is chosen at run time: such a loop belongs into [`dispatch`]. The kernels on slices do that themselves.

use std::fmt::Debug;
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};
use untuned::formula::Number;

/// A floating-point type that networks compute with, and formulas too.
///
/// On a variable that is an `f32` by name, `x.exp()` is the standard library's; `Real::exp(x)` is this one.
pub trait Real:
    Number
    + Into<f64>
    + Send
    + Sync
    + PartialEq
    + PartialOrd
    + Default
    + Debug
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// −∞.
    const NEG_INFINITY: Self;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The same number: every type here holds those of `f32`.
    fn from_f32(value: f32) -> Self;
    /// The same number: `f64` holds those of every type here.
    fn to_f64(self) -> f64;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// 1/x.
    #[inline(always)]
    fn recip(self) -> Self {
        Self::ONE / self
    }
    /// x·y + z, rounded once.
    ///
    /// One instruction inside a [`dispatch`] on any CPU that has it; outside of one on x86 a slow call of a function.
    fn mul_add(self, factor: Self, summand: Self) -> Self;
    /// ln x, by the standard library for both types: not for inner loops.
    fn ln(self) -> Self;
    /// eˣ. In `f32` within 1.1 ulp where the result is normal.
    fn exp(self) -> Self;
    /// tanh x. In `f32` within 2.5 ulp.
    fn tanh(self) -> Self;
    /// 1/(1 + e⁻ˣ). In `f32` within 3 ulp where it is above 3e-39, and 0 below.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        (Self::ONE + Real::exp(-self)).recip()
    }
    /// The error function. In `f32` within 2e-7, relative to its value.
    fn erf(self) -> Self;
    /// Φ(x) and φ(x): the distribution function and the density of the normal distribution, which share their exponential. In
    /// `f32` both are within a relative 5e-7·(1 + x²), where they are normal numbers.
    fn normal(self) -> (Self, Self);
}

/// 1/√(2π).
const DENSITY_AT_0: f64 = 0.398_942_280_401_432_7;
/// 1.5·2²³: adding it rounds a number below 2²² to a whole one, which is then the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// `(p, k)` with eˣ = (1 + p)·2ᵏ, |x| ≤ 150; `k` is any number when `x` is NaN, and then `p` is NaN.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, i32) {
    let rounded = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let k = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let whole = rounded - ROUND;
    // ln 2 in two parts; the first has few enough bits that its product is exact.
    let r = whole.mul_add(-0.693_359_4, x);
    let r = whole.mul_add(2.121_944_4e-4, r);
    // (eʳ − 1 − r)/r² within 1.5e-7 for |r| ≤ ln 2/2.
    let q = 0.001_390_153_1_f32.mul_add(r, 0.008_363_74);
    let q = q.mul_add(r, 0.041_666_86);
    let q = q.mul_add(r, 0.166_665_73);
    let q = q.mul_add(r, 0.5);
    ((r * r).mul_add(q, r), k)
}

/// 2ᵏ for −127 < k < 128.
#[inline(always)]
fn power_of_2(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// erfcx(t/√2)/2 = (1 − Φ(t))·exp(t²/2), for 0 ≤ t ≤ 14.5 within a relative 5e-8 before rounding, and something finite for a
/// larger t, where the other factor is 0.
#[inline(always)]
fn normal_tail(t: f32) -> f32 {
    let w = 1.0 / t.mul_add(0.35, 1.0);
    let p = (-0.029_157_98_f32).mul_add(w, 0.144_031_24);
    let p = p.mul_add(w, -0.255_839_38);
    let p = p.mul_add(w, 0.159_319_79);
    let p = p.mul_add(w, -0.023_212_19);
    let p = p.mul_add(w, 0.105_552_346);
    let p = p.mul_add(w, 0.119_821_35);
    let p = p.mul_add(w, 0.139_863_5);
    let p = p.mul_add(w, 0.139_621_3);
    p * w
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
    #[inline(always)]
    fn mul_add(self, factor: f32, summand: f32) -> f32 {
        f32::mul_add(self, factor, summand)
    }
    #[inline(always)]
    fn ln(self) -> f32 {
        f32::ln(self)
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        // Between numbers whose results are 0 and ∞; NaN stays.
        let x = Number::min(89.0, Number::max(-104.0, self));
        let (p, k) = exp_parts(x);
        // In two factors, because 2ᵏ alone may be too small or too large.
        let half = k >> 1;
        (1.0 + p) * power_of_2(half) * power_of_2(k.wrapping_sub(half))
    }
    #[inline(always)]
    fn tanh(self) -> f32 {
        // (e²ᵗ − 1)/(e²ᵗ + 1), where 1 is subtracted before anything is rounded. At t = 10 it is 1.
        let (p, k) = exp_parts(2.0 * Number::min(10.0, f32::abs(self)));
        let scale = power_of_2(k);
        let e = scale.mul_add(p, scale - 1.0);
        (e / (e + 2.0)).copysign(self)
    }
    #[inline(always)]
    fn erf(self) -> f32 {
        let (t, s) = (f32::abs(self), self * self);
        let tail = 2.0 * normal_tail(std::f32::consts::SQRT_2 * t) * Real::exp(-s);
        let p = (-5.941_222e-4_f32).mul_add(s, 0.004_983_469_4);
        let p = p.mul_add(s, -0.026_760_029);
        let p = p.mul_add(s, 0.112_816_356);
        let p = p.mul_add(s, -0.376_124_77);
        let p = p.mul_add(s, 0.128_379_1);
        if t < 0.93 { p.mul_add(self, self) } else { (1.0 - tail).copysign(self) }
    }
    #[inline(always)]
    fn normal(self) -> (f32, f32) {
        let e = Real::exp(-0.5 * self * self);
        let tail = normal_tail(f32::abs(self)) * e;
        (if self > 0.0 { 1.0 - tail } else { tail }, e * DENSITY_AT_0 as f32)
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> f64 {
        value
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f64 {
        f64::from(value)
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
    #[inline(always)]
    fn mul_add(self, factor: f64, summand: f64) -> f64 {
        f64::mul_add(self, factor, summand)
    }
    #[inline(always)]
    fn ln(self) -> f64 {
        f64::ln(self)
    }
    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn tanh(self) -> f64 {
        f64::tanh(self)
    }
    #[inline(always)]
    fn erf(self) -> f64 {
        libm::erf(self)
    }
    #[inline(always)]
    fn normal(self) -> (f64, f64) {
        let cdf = 0.5 * libm::erfc(-self * std::f64::consts::FRAC_1_SQRT_2);
        (cdf, DENSITY_AT_0 * (-0.5 * self * self).exp())
    }
}

/// Runs `work` compiled for the best instruction set that this CPU has.
///
/// That holds for what is inlined into it: closures, and functions marked `#[inline(always)]`. Choosing costs a few nanoseconds:
/// once per row, not per number. From inside of one, call the functions on numbers, not another kernel.
///
/// `work` should own what it captures (`move`): numbers behind references are read again after every write, and branched on.
#[inline(always)]
pub fn dispatch<T>(work: impl FnOnce() -> T) -> T {
    pulp::Arch::new().dispatch(work)
}

/// x·Φ(x) and its derivative, Φ(x) + x·φ(x).
#[inline(always)]
pub fn gelu_and_slope<R: Real>(x: R) -> (R, R) {
    let (cdf, density) = x.normal();
    (x * cdf, x.mul_add(density, cdf))
}

/// x·Φ(x).
#[inline(always)]
pub fn gelu_of<R: Real>(x: R) -> R {
    x * x.normal().0
}

/// `x` between −100 and 100, beyond which the sigmoid in [`gelu_tanh_of`] is 0 or 1 (and the square of a number could be infinite),
/// the argument of that sigmoid, 2√(2/π)·(x + 0.044715x³), and the argument's derivative.
#[inline(always)]
fn gelu_tanh_parts<R: Real>(x: R) -> (R, R, R) {
    let number = R::from_f64;
    let factor = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    let x = number(100.0).min(number(-100.0).max(x));
    let s = x * x;
    let argument = x * s.mul_add(number(0.044715 * factor), number(factor));
    (x, argument, s.mul_add(number(3.0 * 0.044715 * factor), number(factor)))
}

/// x·(1 + tanh(√(2/π)·(x + 0.044715x³)))/2, T5's approximation of [`gelu_of`]; computed as x·sigmoid(2·…), which is the same.
#[inline(always)]
pub fn gelu_tanh_of<R: Real>(x: R) -> R {
    x * gelu_tanh_parts(x).1.sigmoid()
}

/// [`gelu_tanh_of`] and its derivative.
#[inline(always)]
pub fn gelu_tanh_and_slope<R: Real>(x: R) -> (R, R) {
    let (limited, argument, slope) = gelu_tanh_parts(x);
    let e = (-argument).exp();
    let sigmoid = (R::ONE + e).recip();
    // 1 − sigmoid, without cancellation.
    let other = if argument > R::ZERO { e * sigmoid } else { R::ONE - sigmoid };
    (x * sigmoid, (limited * sigmoid * slope).mul_add(other, sigmoid))
}

/// `out = function(x)`, where `function` is one of the functions on numbers here, or a closure.
///
/// # Panics
/// When the lengths differ, as every kernel here.
#[inline]
pub fn map<R: Real>(x: &[R], out: &mut [R], function: impl Fn(R) -> R) {
    assert_eq!(x.len(), out.len(), "as many results as numbers");
    dispatch(
        #[inline(always)]
        move || {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = function(x);
            }
        },
    );
}

/// `out = function(x, y)`.
#[inline]
pub fn map2<R: Real>(x: &[R], y: &[R], out: &mut [R], function: impl Fn(R, R) -> R) {
    assert!(x.len() == out.len() && y.len() == out.len(), "as many results as numbers");
    dispatch(
        #[inline(always)]
        move || {
            for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
                *out = function(x, y);
            }
        },
    );
}

/// `out = exp(x)`.
pub fn exp<R: Real>(x: &[R], out: &mut [R]) {
    map(x, out, R::exp);
}

/// `out = tanh(x)`.
pub fn tanh<R: Real>(x: &[R], out: &mut [R]) {
    map(x, out, R::tanh);
}

/// `out = sigmoid(x)`.
pub fn sigmoid<R: Real>(x: &[R], out: &mut [R]) {
    map(x, out, R::sigmoid);
}

/// `out = erf(x)`.
pub fn erf<R: Real>(x: &[R], out: &mut [R]) {
    map(x, out, R::erf);
}

/// `out = x·Φ(x)`, see [`gelu_of`].
pub fn gelu<R: Real>(x: &[R], out: &mut [R]) {
    map(x, out, gelu_of);
}

/// The gradient of [`gelu`]: `dx = dy·(Φ(x) + x·φ(x))`.
pub fn gelu_backward<R: Real>(x: &[R], dy: &[R], dx: &mut [R]) {
    map2(
        x,
        dy,
        dx,
        #[inline(always)]
        |x, dy| dy * gelu_and_slope(x).1,
    );
}

/// T5's approximation of [`gelu`], see [`gelu_tanh_of`].
pub fn gelu_tanh<R: Real>(x: &[R], out: &mut [R]) {
    map(x, out, gelu_tanh_of);
}

/// The gradient of [`gelu_tanh`].
pub fn gelu_tanh_backward<R: Real>(x: &[R], dy: &[R], dx: &mut [R]) {
    map2(
        x,
        dy,
        dx,
        #[inline(always)]
        |x, dy| dy * gelu_tanh_and_slope(x).1,
    );
}

/// `out = gelu_tanh(a)·g`.
pub fn gated_gelu<R: Real>(a: &[R], g: &[R], out: &mut [R]) {
    map2(
        a,
        g,
        out,
        #[inline(always)]
        |a, g| gelu_tanh_of(a) * g,
    );
}

/// The gradients of [`gated_gelu`]: `da = dout·g·gelu_tanh'(a)` and `dg = dout·gelu_tanh(a)`.
pub fn gated_gelu_backward<R: Real>(a: &[R], g: &[R], dout: &[R], da: &mut [R], dg: &mut [R]) {
    let n = dout.len();
    assert!([a.len(), g.len(), da.len(), dg.len()] == [n; 4], "as many gradients as numbers");
    dispatch(
        #[inline(always)]
        move || {
            for ((((da, dg), &a), &g), &dout) in da.iter_mut().zip(dg).zip(a).zip(g).zip(dout) {
                let (value, slope) = gelu_tanh_and_slope(a);
                *da = dout * g * slope;
                *dg = dout * value;
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 97th bit pattern between −`limit` and `limit`, subnormals included, and a dense grid near 0.
    fn sweep(limit: f32) -> Vec<f32> {
        let positive = (0..=limit.to_bits()).step_by(97).map(f32::from_bits);
        let dense = (0..=200_000).map(|i| (i as f32 * 5e-5).min(limit));
        let all: Vec<f32> = positive.chain(dense).collect();
        all.iter().flat_map(|&x| [x, -x]).collect()
    }

    fn results(function: fn(&[f32], &mut [f32]), x: &[f32]) -> Vec<f32> {
        let mut out = vec![f32::NAN; x.len()];
        function(x, &mut out);
        out
    }

    /// The largest of `error(x, result)`, and where it is.
    fn worst(
        function: fn(&[f32], &mut [f32]),
        x: &[f32],
        error: impl Fn(f64, f64) -> f64,
    ) -> (f64, f32, f32) {
        let mut worst = (0.0, 0.0, 0.0);
        for (&x, y) in x.iter().zip(results(function, x)) {
            assert!(!y.is_nan(), "at {x}");
            let error = error(f64::from(x), f64::from(y));
            // A NaN is the worst.
            if error.is_nan() || error > worst.0 {
                worst = (error, x, y);
            }
        }
        worst
    }

    fn relative(result: f64, exact: f64) -> f64 {
        if result == exact { 0.0 } else { ((result - exact) / exact).abs() }
    }

    /// The distance in units of the last place of a normal f32.
    fn ulps(result: f64, exact: f64) -> f64 {
        let unit = f64::from(exact.abs() as f32).log2().floor().max(-126.0) - 23.0;
        if result == exact { 0.0 } else { (result - exact).abs() / unit.exp2() }
    }

    #[test]
    fn exponentials() {
        let x: Vec<f32> = sweep(88.722_83);
        let normal: Vec<f32> = x.iter().copied().filter(|&x| x > -87.336_54).collect();
        let found = worst(exp, &normal, |x, y| ulps(y, x.exp()));
        assert!(found.0 <= 1.1, "{found:?}");
        // Results without a full mantissa: within one of the smallest numbers.
        let below: Vec<f32> = (0..=200_000).map(|i| -87.34 - i as f32 * 1e-4).collect();
        let found = worst(exp, &below, |x, y| (y - x.exp()).abs() / f64::from(f32::from_bits(1)));
        assert!(found.0 <= 1.1, "{found:?}");
    }

    #[test]
    fn hyperbolic_tangents() {
        let found = worst(tanh, &sweep(f32::MAX), |x, y| (y - x.tanh()).abs());
        assert!(found.0 <= 1.2e-7, "{found:?}");
        let found = worst(tanh, &sweep(f32::MAX), |x, y| ulps(y, x.tanh()));
        assert!(found.0 <= 2.5, "{found:?}");
    }

    #[test]
    fn sigmoids() {
        let exact = |x: f64| 1.0 / (1.0 + (-x).exp());
        let found = worst(sigmoid, &sweep(f32::MAX), |x, y| (y - exact(x)).abs());
        assert!(found.0 <= 1.2e-7, "{found:?}");
        let found = worst(sigmoid, &sweep(87.0), |x, y| ulps(y, exact(x)));
        assert!(found.0 <= 3.0, "{found:?}");
    }

    #[test]
    fn error_functions() {
        let found = worst(erf, &sweep(f32::MAX), |x, y| (y - libm::erf(x)).abs());
        assert!(found.0 <= 2e-7, "{found:?}");
        let normal: Vec<f32> = sweep(f32::MAX).into_iter().filter(|x| x.abs() > 1.2e-38).collect();
        let found = worst(erf, &normal, |x, y| relative(y, libm::erf(x)));
        assert!(found.0 <= 2e-7, "{found:?}");
        let found =
            worst(erf, &sweep(1.2e-38), |x, y| (y - libm::erf(x)).abs() / f64::from(f32::from_bits(1)));
        assert!(found.0 <= 2.0, "{found:?}");
    }

    #[test]
    fn normal_distributions() {
        let error = |x: f64, y: f64, exact: f64| relative(y, exact) / (1.0 + x * x);
        // Down to where Φ leaves the normal numbers.
        let x: Vec<f32> = sweep(f32::MAX).into_iter().filter(|&x| x > -12.9).collect();
        let found = worst(|x, out| map(x, out, |x| x.normal().0), &x, |x, y| error(x, y, x.normal().0));
        assert!(found.0 <= 5e-7, "{found:?}");
        let x = sweep(12.9);
        let found = worst(|x, out| map(x, out, |x| x.normal().1), &x, |x, y| error(x, y, x.normal().1));
        assert!(found.0 <= 5e-7, "{found:?}");
        let found = worst(gelu, &sweep(1e30), |x, y| (y - gelu_of(x)).abs() / x.abs().max(1.0));
        assert!(found.0 <= 5e-7, "{found:?}");
        let found = worst(gelu_tanh, &sweep(1e30), |x, y| (y - gelu_tanh_of(x)).abs() / x.abs().max(1.0));
        assert!(found.0 <= 5e-7, "{found:?}");
    }

    #[test]
    fn limits() {
        let x = [f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0, f32::NAN, f32::MAX, f32::MIN, 1e-45, -1e-45];
        let check = |function, expected: [f32; 9]| {
            // Long enough for the vectors, and the part that is left over.
            let found = results(function, &x.repeat(11));
            for (i, y) in found.into_iter().enumerate() {
                let expected = expected[i % 9];
                let same = y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan();
                assert!(same, "at {}: {y} and not {expected}", x[i % 9]);
            }
        };
        let (infinity, nan) = (f32::INFINITY, f32::NAN);
        check(exp, [0.0, infinity, 1.0, 1.0, nan, infinity, 0.0, 1.0, 1.0]);
        check(tanh, [-1.0, 1.0, -0.0, 0.0, nan, 1.0, -1.0, 1e-45, -1e-45]);
        check(sigmoid, [0.0, 1.0, 0.5, 0.5, nan, 1.0, 0.0, 0.5, 0.5]);
        check(erf, [-1.0, 1.0, -0.0, 0.0, nan, 1.0, -1.0, 1e-45, -1e-45]);
        let cdf = |x: &[f32], out: &mut [f32]| map(x, out, |x| x.normal().0);
        let around_0 = results(cdf, &[0.0])[0];
        assert!((around_0 - 0.5).abs() < 1e-7);
        check(cdf, [0.0, 1.0, around_0, around_0, nan, 1.0, 0.0, around_0, around_0]);
        for function in [gelu_backward, gelu_tanh_backward] {
            let mut slopes = [0f32; 4];
            function(&[f32::MAX, f32::MIN, 1e20, -1e20], &[1.0; 4], &mut slopes);
            assert_eq!(slopes, [1.0, 0.0, 1.0, 0.0]);
        }
    }

    /// NaN goes through every kernel, forward and backward: a run that diverged must be seen.
    #[test]
    fn not_a_number_stays() {
        let (x, ones) = ([f32::NAN; 37], [1f32; 37]);
        for function in [exp, tanh, sigmoid, erf, gelu, gelu_tanh] {
            assert!(results(function, &x).iter().all(|y| y.is_nan()));
        }
        for function in [gelu_backward, gelu_tanh_backward, gated_gelu] {
            for (x, y) in [(&x, &ones), (&ones, &x)] {
                let mut out = [0f32; 37];
                function(x, y, &mut out);
                assert!(out.iter().all(|y| y.is_nan()));
            }
        }
    }

    /// The textbook forms, in f64.
    #[test]
    fn definitions() {
        for i in -800..=800 {
            let x = f64::from(i) * 0.01;
            let exact = 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()));
            assert!((gelu_of(x) - exact).abs() < 1e-15 * 8.0, "{x}");
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            let tanh = 0.5 * x * (1.0 + inner.tanh());
            assert!((gelu_tanh_of(x) - tanh).abs() < 1e-15 * 8.0, "{x}");
        }
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let x: Vec<f64> = (-700..=700).map(|i| f64::from(i) * 0.01 + 1e-3).collect();
        let n = x.len();
        let g: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
        let dy: Vec<f64> = (0..n).map(|i| (i as f64).cos()).collect();
        let h = 1e-5;
        let near = |found: f64, expected: f64, x: f64| {
            assert!((found - expected).abs() < 1e-9, "at {x}: {found} and not {expected}");
        };
        type Kernels = (fn(&[f64], &mut [f64]), fn(&[f64], &[f64], &mut [f64]));
        let pairs: [Kernels; 2] = [(gelu, gelu_backward), (gelu_tanh, gelu_tanh_backward)];
        let moved = |by: f64| x.iter().map(|x| x + by).collect::<Vec<f64>>();
        for (forward, backward) in pairs {
            let (mut up, mut down, mut dx) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
            forward(&moved(h), &mut up);
            forward(&moved(-h), &mut down);
            backward(&x, &dy, &mut dx);
            (0..n).for_each(|i| near(dx[i], dy[i] * (up[i] - down[i]) / (2.0 * h), x[i]));
        }
        let gated = |a: &[f64], g: &[f64]| {
            let mut out = vec![0.0; n];
            gated_gelu(a, g, &mut out);
            out
        };
        let (mut da, mut dg) = (vec![0.0; n], vec![0.0; n]);
        gated_gelu_backward(&x, &g, &dy, &mut da, &mut dg);
        let (up, down) = (gated(&moved(h), &g), gated(&moved(-h), &g));
        (0..n).for_each(|i| near(da[i], dy[i] * (up[i] - down[i]) / (2.0 * h), x[i]));
        let by = |by: f64| g.iter().map(|g| g + by).collect::<Vec<f64>>();
        let (up, down) = (gated(&x, &by(h)), gated(&x, &by(-h)));
        (0..n).for_each(|i| near(dg[i], dy[i] * (up[i] - down[i]) / (2.0 * h), x[i]));
    }

    /// The gradients in f32 are those in f64.
    #[test]
    fn gradients_agree_in_both_types() {
        let x: Vec<f32> = (-14_000..=14_000).map(|i| i as f32 * 1e-3).collect();
        let wide = |v: &[f32]| v.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let n = x.len();
        let g: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
        let near = |found: &[f32], exact: &[f64]| {
            for i in 0..n {
                assert!(
                    (f64::from(found[i]) - exact[i]).abs() < 5e-7 * exact[i].abs().max(1.0),
                    "at {}",
                    x[i]
                );
            }
        };
        type Kernels = (fn(&[f32], &[f32], &mut [f32]), fn(&[f64], &[f64], &mut [f64]));
        let kernels: [Kernels; 3] = [
            (gelu_backward, gelu_backward),
            (gelu_tanh_backward, gelu_tanh_backward),
            (gated_gelu, gated_gelu),
        ];
        let (mut found, mut exact) = (vec![0f32; n], vec![0f64; n]);
        for (narrow, full) in kernels {
            narrow(&x, &g, &mut found);
            full(&wide(&x), &wide(&g), &mut exact);
            near(&found, &exact);
        }
        let (mut other, mut other_exact) = (vec![0f32; n], vec![0f64; n]);
        gated_gelu_backward(&x, &g, &g, &mut found, &mut other);
        gated_gelu_backward(&wide(&x), &wide(&g), &wide(&g), &mut exact, &mut other_exact);
        near(&found, &exact);
        near(&other, &other_exact);
    }

    /// A number alone and in the middle of a vector, inside of a dispatch and outside: the same bits.
    #[test]
    fn the_place_in_a_slice_does_not_matter() {
        let x: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) * 0.05).collect();
        for (kernel, one) in [
            (exp as fn(&[f32], &mut [f32]), <f32 as Real>::exp as fn(f32) -> f32),
            (tanh, <f32 as Real>::tanh),
            (sigmoid, <f32 as Real>::sigmoid),
            (erf, <f32 as Real>::erf),
            (gelu, gelu_of),
            (gelu_tanh, gelu_tanh_of),
        ] {
            let all = results(kernel, &x);
            assert!((0..x.len()).all(|i| all[i].to_bits() == one(x[i]).to_bits()));
        }
    }

    #[test]
    #[should_panic(expected = "as many results")]
    fn lengths_must_agree() {
        gelu(&[0f32; 3], &mut [0f32; 2]);
    }
}
