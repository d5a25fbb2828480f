//! The numbers that a network computes with, and the functions of its activations.
//!
//! Everything is generic over [`Real`]: `f32` for training, `f64` so that finite differences can prove a gradient. The functions
//! of `f32` are polynomials without branches, so that a plain loop over them becomes vector code where the instruction set allows
//! it. That set is chosen at run time: such a loop belongs into [`dispatch`]. The kernels on slices do that themselves.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// A floating-point type that networks compute with.
///
/// On a variable that is an `f32` by name, `x.exp()` is the standard library's; `Real::exp(x)` is this one.
pub trait Real:
    Copy
    + Send
    + Sync
    + PartialEq
    + PartialOrd
    + Default
    + Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
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
    /// The larger one; `other` where the two do not compare. One instruction, unlike the standard library's.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    /// The smaller one; `other` where the two do not compare.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
    /// Without its sign.
    fn abs(self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// 1/x.
    #[inline(always)]
    fn recip(self) -> Self {
        Self::ONE / self
    }
    /// √x.
    fn sqrt(self) -> Self;
    /// x·y + z, rounded once.
    ///
    /// One instruction inside a [`dispatch`] on any processor that has it; outside of one on x86 a slow call of a function.
    fn mul_add(self, factor: Self, summand: Self) -> Self;
    /// ln x, by the standard library for both types: not for inner loops.
    fn ln(self) -> Self;
    /// eˣ. In `f32` within 1 ulp where the result is normal.
    fn exp(self) -> Self;
    /// tanh x. In `f32` within 2 ulp.
    fn tanh(self) -> Self;
    /// 1/(1 + e⁻ˣ). In `f32` within 3 ulp where it is above 3e-39, and 0 below.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        (Self::ONE + Real::exp(-self)).recip()
    }
    /// The error function. In `f32` within 2e-7, relative to its value.
    fn erf(self) -> Self;
    /// Φ(x) and φ(x): the distribution function and the density of the normal distribution, which share their exponential. In
    /// `f32` Φ is exact to a relative 2e-7·(1 + x²) on both sides.
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
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
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
        let x = Real::min(89.0, Real::max(-104.0, self));
        let (p, k) = exp_parts(x);
        // In two factors, because 2ᵏ alone may be too small or too large.
        let half = k >> 1;
        (1.0 + p) * power_of_2(half) * power_of_2(k.wrapping_sub(half))
    }
    #[inline(always)]
    fn tanh(self) -> f32 {
        // (e²ᵗ − 1)/(e²ᵗ + 1), where 1 is subtracted before anything is rounded. At t = 10 it is 1.
        let (p, k) = exp_parts(2.0 * Real::min(10.0, f32::abs(self)));
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
    fn abs(self) -> f64 {
        f64::abs(self)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
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

/// Runs `work` compiled for the best instruction set that this processor has.
///
/// That holds for what is inlined into it: closures, and functions marked `#[inline(always)]`. Choosing costs a few nanoseconds: once
/// per row, not per number. From inside of one, call the functions on numbers, not another kernel.
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

/// The argument of the sigmoid in [`gelu_tanh_of`], 2√(2/π)·(x + 0.044715x³), and its derivative.
#[inline(always)]
fn gelu_tanh_argument<R: Real>(x: R) -> (R, R) {
    let number = R::from_f64;
    let factor = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    // The sigmoid is 0 or 1 beyond; without the limits the square of a large number would be infinite.
    let x = number(100.0).min(number(-100.0).max(x));
    let s = x * x;
    let value = x * s.mul_add(number(0.044715 * factor), number(factor));
    (value, s.mul_add(number(3.0 * 0.044715 * factor), number(factor)))
}

/// x·(1 + tanh(√(2/π)·(x + 0.044715x³)))/2, T5's approximation of [`gelu_of`]; computed as x·sigmoid(2·…), which is the same.
#[inline(always)]
pub fn gelu_tanh_of<R: Real>(x: R) -> R {
    x * gelu_tanh_argument(x).0.sigmoid()
}

/// [`gelu_tanh_of`] and its derivative.
#[inline(always)]
pub fn gelu_tanh_and_slope<R: Real>(x: R) -> (R, R) {
    let (argument, slope) = gelu_tanh_argument(x);
    let sigmoid = argument.sigmoid();
    let value = x * sigmoid;
    (value, (value * slope).mul_add(R::ONE - sigmoid, sigmoid))
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
        || {
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
        || {
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
        || {
            for ((((da, dg), &a), &g), &dout) in da.iter_mut().zip(dg).zip(a).zip(g).zip(dout) {
                let (value, slope) = gelu_tanh_and_slope(a);
                *da = dout * g * slope;
                *dg = dout * value;
            }
        },
    );
}
