//! Convergence bounds: what the theorems promise after `T` steps.

use serde::Serialize;
use untuned::MethodSpec;
use untuned::spec::number;

/// The constants that the bounds are made of. What is `None` is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Constants {
    /// `L` (Assumption 1).
    pub l: Option<f64>,
    /// `L0` (Assumption 2).
    pub l0: Option<f64>,
    /// `L1` (Assumption 2).
    pub l1: Option<f64>,
    /// `D = ‖x_0 − x*‖`.
    pub distance: Option<f64>,
    /// `σ² = f* − l`.
    pub sigma_sq: Option<f64>,
}

/// The iterate whose loss a bound limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speaks {
    /// The uniform average of `x_0 … x_{T−1}`.
    Average,
    /// The best of `x_0 … x_{T−1}`.
    Best,
    /// `x_T`.
    Last,
}

/// What a bound limits at that iterate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// `f(x) − f*`.
    Gap,
    /// `‖x − x*‖²`.
    SquaredDistance,
}

/// Where the numbers in a bound come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The paper prints them.
    Paper,
    /// The paper prints a rate only; the function's documentation derives them.
    Derived,
    /// There are none: the value is a rate, right up to a factor that nobody states.
    RateOnly,
}

/// A bound after a certain number of steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Its name in the paper.
    pub name: &'static str,
    /// The formula.
    pub formula: &'static str,
    /// Of which iterate.
    pub speaks: Speaks,
    /// Of which quantity.
    pub quantity: Quantity,
    /// Whose constants.
    pub constants: Origin,
    /// The bound; `None` where a constant is not known and for `T = 0`, where no theorem says anything. Never NaN.
    pub value: Option<f64>,
    /// The `T` from which the term without `L` is the larger one, where there is such a term.
    pub dominant_from: Option<f64>,
}

impl Bound {
    fn new(name: &'static str, formula: &'static str, speaks: Speaks, constants: Origin) -> Bound {
        Bound { name, formula, speaks, quantity: Quantity::Gap, constants, value: None, dominant_from: None }
    }

    fn value(mut self, value: Option<f64>) -> Bound {
        self.value = value.filter(|v| !v.is_nan());
        self
    }

    /// The smallest whole `T ≥ 1` with `T ≥ quotient`.
    fn dominant_from(mut self, quotient: Option<f64>) -> Bound {
        self.dominant_from = quotient.filter(|q| !q.is_nan()).map(|q| q.ceil().max(1.0));
        self
    }
}

/// `T` as a number, where the theorems speak of it.
fn horizon(steps: u64) -> Option<f64> {
    (steps > 0).then_some(steps as f64)
}

/// Theorem 1, gradient descent with `η = 1/L`: `L D²/T` at the average.
///
/// The paper prints the rate; the constant 1 is provable. With `δ_t = f(x_t) − f*`, convexity and the descent
/// `δ_{t+1} ≤ δ_t − ‖g‖²/(2L)` give
/// `‖x_{t+1} − x*‖² ≤ ‖x_t − x*‖² − (2/L)(δ_t − ‖g‖²/(2L)) ≤ ‖x_t − x*‖² − (2/L)δ_{t+1}`,
/// so `δ_1 + … + δ_{T−1} ≤ L D²/2`; smoothness at `x*` adds `δ_0 ≤ L D²/2`, and convexity bounds the average of
/// `x_0 … x_{T−1}` by `L D²/T`.
///
/// Half of it is provable too: the sharper `⟨g, x − x*⟩ ≥ δ + ‖g‖²/(2L)` of smooth convex functions turns the first
/// line into `‖x_{t+1} − x*‖² ≤ ‖x_t − x*‖² − (2/L)δ_t`.
pub fn theorem_1(c: &Constants, steps: u64) -> Bound {
    let value = || Some(c.l? * c.distance? * (c.distance? / horizon(steps)?));
    Bound::new("Theorem 1", "L D²/T", Speaks::Average, Origin::Derived).value(value())
}

/// Theorem 2, clipped gradient descent with `η = 1/L0` and `c = L0/L1`: `L0 D²/T + L L1² D⁴/T²` at the average, without
/// constants.
pub fn theorem_2(c: &Constants, steps: u64) -> Bound {
    let formula = "L0 D²/T + L L1² D⁴/T²";
    let value = || clipped_rate(c, steps, 1.0, 1.0);
    Bound::new("Theorem 2", formula, Speaks::Average, Origin::RateOnly)
        .value(value())
        .dominant_from(clipped_dominance(c, 1.0))
}

/// Theorem 3, Polyak's step size: `2 L D²/T` at the average.
///
/// The paper prints the rate; the constant 2 is provable. Polyak's step and convexity give
/// `‖x_{t+1} − x*‖² ≤ ‖x_t − x*‖² − δ_t²/‖g‖²`, and Lemma 1 `δ_t/‖g‖² ≥ 1/(2L)`: so `Σ δ_t ≤ 2L D²`, and convexity
/// bounds the average of `x_0 … x_{T−1}`.
pub fn theorem_3(c: &Constants, steps: u64) -> Bound {
    let value = || Some(2.0 * c.l? * c.distance? * (c.distance? / horizon(steps)?));
    Bound::new("Theorem 3", "2 L D²/T", Speaks::Average, Origin::Derived).value(value())
}

/// Theorem 4 with the constants of Lemma 3, Polyak's step size: `8 L0 D²/T + 64 L L1² D⁴/T²` at the best iterate.
pub fn theorem_4(c: &Constants, steps: u64) -> Bound {
    let formula = "8 L0 D²/T + 64 L L1² D⁴/T²";
    Bound::new("Theorem 4", formula, Speaks::Best, Origin::Paper)
        .value(clipped_rate(c, steps, 8.0, 64.0))
        .dominant_from(clipped_dominance(c, 8.0))
}

/// `a L0 D²/T + b L L1² D⁴/T²`.
fn clipped_rate(c: &Constants, steps: u64, a: f64, b: f64) -> Option<f64> {
    let d_sq_over_t = c.distance? * (c.distance? / horizon(steps)?);
    let clipped = c.l1? * d_sq_over_t;
    Some(a * c.l0? * d_sq_over_t + b * c.l? * clipped * clipped)
}

/// The two terms of [`clipped_rate`] are equal at `T = (b/a) L L1² D²/L0`.
fn clipped_dominance(c: &Constants, ratio: f64) -> Option<f64> {
    let clipped = c.l1? * c.distance?;
    quotient(ratio * c.l? * clipped * clipped, c.l0?)
}

/// `a/b`, where `0/0` is 0: what is not there dominates from nowhere.
fn quotient(a: f64, b: f64) -> Option<f64> {
    Some(if a == 0.0 { 0.0 } else { a / b })
}

const INEXACT: &str = "(8 L0 D² + 2 σ²)/√T + 128 L1² L D⁴/T + 8 L1² σ⁴ L/(L0² T)";

/// Lemma 4, Inexact Polyak where `f(x_t) − f* ≥ σ²/√T` for all `t`:
/// `(8 L0 D² + 2σ²)/√T + 128 L1² L D⁴/T + 8 L1² σ⁴ L/(L0² T)` at the best iterate.
pub fn lemma_4(c: &Constants, steps: u64) -> Bound {
    inexact("Lemma 4", c, steps)
}

/// Theorem 5 with the constants of Lemma 5, Inexact Polyak: the bound of [`lemma_4`] without its condition, for where
/// that fails some iterate is within `σ²/√T`, which is half of the term `2σ²/√T`.
///
/// `L` is needed on the ball `‖x − x*‖ ≤ D` only, also when the run leaves it: as long as the condition of Lemma 4
/// holds the distance to `x*` does not grow, and once it fails the bound holds already.
pub fn theorem_5(c: &Constants, steps: u64) -> Bound {
    inexact("Theorem 5", c, steps)
}

fn inexact(name: &'static str, c: &Constants, steps: u64) -> Bound {
    // The bound as a/√T + b/T.
    let terms = || {
        let (l, l0, l1, d) = (c.l?, c.l0?, c.l1?, c.distance?);
        let sigma_sq = c.sigma_sq.filter(|s| *s >= 0.0)?;
        let far = l1 * d * d;
        let loose = quotient(l1 * sigma_sq, l0)?;
        Some((8.0 * l0 * d * d + 2.0 * sigma_sq, 128.0 * l * far * far + 8.0 * l * loose * loose))
    };
    let value = || terms().and_then(|(a, b)| horizon(steps).map(|t| a / t.sqrt() + b / t));
    let root = || terms().and_then(|(a, b)| quotient(b, a));
    Bound::new(name, INEXACT, Speaks::Best, Origin::Paper).value(value()).dominant_from(root().map(|r| r * r))
}

/// Table 1's rate of DecSPS, `(max{L, 1/η_0} D_T² + σ²)/√T`, without constants; its source bounds the average.
///
/// `d_t` is `D_T = max_t ‖x_t − x*‖` and `first_step` is `η_0`, both of the run.
pub fn decsps_rate(c: &Constants, d_t: Option<f64>, first_step: Option<f64>, steps: u64) -> Bound {
    let value = || {
        let steepest = c.l?.max(1.0 / first_step?);
        Some((steepest * d_t? * d_t? + c.sigma_sq?) / horizon(steps)?.sqrt())
    };
    let formula = "(max{L, 1/η_0} D_T² + σ²)/√T";
    Bound::new("Table 1, DecSPS", formula, Speaks::Average, Origin::RateOnly).value(value())
}

/// Table 1's rate of AdaSPS, `L D_T² σ/√T + L² D_T⁴/T`, without constants; its source bounds the average.
///
/// Its terms have the units of a loss only for a `c_p` whose unit is 1/√loss and whose value is of the order 1: with
/// the default `c_p = c_scale/√(f_0 − l)` read the ratio with care.
pub fn adasps_rate(c: &Constants, d_t: Option<f64>, steps: u64) -> Bound {
    let value = || {
        let (t, reach) = (horizon(steps)?, c.l? * d_t? * d_t?);
        Some(reach * c.sigma_sq?.sqrt() / t.sqrt() + reach * (reach / t))
    };
    let formula = "L D_T² σ/√T + L² D_T⁴/T";
    Bound::new("Table 1, AdaSPS", formula, Speaks::Average, Origin::RateOnly).value(value())
}

/// Polyak's step size on a function whose gradients are no longer than `G`: `G D/√T` at the best iterate.
///
/// `Σ δ_t²/‖g_t‖² ≤ D²` (see [`theorem_3`]) and `‖g_t‖ ≤ G` give `T·min δ_t² ≤ G² D²`.
pub fn polyak_lipschitz(c: &Constants, lipschitz: Option<f64>, steps: u64) -> Bound {
    let value = || Some(lipschitz? * c.distance? / horizon(steps)?.sqrt());
    Bound::new("Polyak, G-Lipschitz", "G D/√T", Speaks::Best, Origin::Derived).value(value())
}

/// Polyak's step size on an L-smooth, µ-strongly convex function: `‖x_T − x*‖² ≤ D² (1 − µ/(4L))^T`.
///
/// Each step shrinks the squared distance by `δ_t²/‖g‖² ≥ δ_t/(2L)` (Lemma 1), and `δ_t ≥ (µ/2)‖x_t − x*‖²`.
pub fn polyak_strongly_convex(c: &Constants, strong_convexity: Option<f64>, steps: u64) -> Bound {
    let value = || {
        let shrink = (-strong_convexity? / (4.0 * c.l?)).ln_1p() * horizon(steps)?;
        let root = c.distance? * (shrink / 2.0).exp();
        Some(root * root)
    };
    let formula = "D² (1 − µ/(4L))^T";
    let bound = Bound::new("Polyak, µ-convex", formula, Speaks::Last, Origin::Derived);
    Bound { quantity: Quantity::SquaredDistance, ..bound }.value(value())
}

/// The rule of Theorem 1, `gd:lr=1/L`; `None` where `L` is not known or has no reciprocal.
pub fn theorem_1_rule(c: &Constants) -> Option<MethodSpec> {
    format!("gd:lr={}", number(1.0 / c.l?)).parse().ok()
}

/// The rule of Theorem 2, `clipped-gd:lr=1/L0,threshold=L0/L1`; `None` where the constants are not known or have no
/// such quotients. `L1 = 0` clips nothing.
pub fn theorem_2_rule(c: &Constants) -> Option<MethodSpec> {
    let (l0, l1) = (c.l0?, c.l1?);
    format!("clipped-gd:lr={},threshold={}", number(1.0 / l0), number(l0 / l1)).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L = 10, L0 = 2, L1 = 3, D = 4, σ² = 9.
    const C: Constants =
        Constants { l: Some(10.0), l0: Some(2.0), l1: Some(3.0), distance: Some(4.0), sigma_sq: Some(9.0) };

    #[track_caller]
    fn near(got: Option<f64>, want: f64) {
        let got = got.expect("a value");
        assert!((got - want).abs() <= 1e-14 * want.abs(), "{got} is not {want}");
    }

    #[test]
    fn values_by_hand() {
        near(theorem_1(&C, 100).value, 1.6);
        // L0 D²/T = 0.32; L L1² D⁴/T² = 10·9·256/10⁴ = 2.304.
        near(theorem_2(&C, 100).value, 2.624);
        near(theorem_3(&C, 100).value, 3.2);
        near(theorem_4(&C, 100).value, 8.0 * 0.32 + 64.0 * 2.304);
        // (8·2·16 + 18)/10 + 128·9·10·256/100 + 8·9·81·10/(4·100).
        near(lemma_4(&C, 100).value, 27.4 + 29491.2 + 145.8);
        assert_eq!(theorem_5(&C, 100).value, lemma_4(&C, 100).value);
        // D_T = 5, η_0 = 0.05: (20·25 + 9)/10.
        near(decsps_rate(&C, Some(5.0), Some(0.05), 100).value, 50.9);
        near(decsps_rate(&C, Some(5.0), Some(0.5), 100).value, 25.9);
        // 10·25·3/10 + 100·625/100.
        near(adasps_rate(&C, Some(5.0), 100).value, 700.0);
        near(polyak_lipschitz(&C, Some(6.0), 100).value, 2.4);
        near(polyak_strongly_convex(&C, Some(20.0), 3).value, 2.0);
    }

    #[test]
    fn dominance_by_hand() {
        // 8·10·9·16/2 and the equality of the terms there.
        near(theorem_4(&C, 1).dominant_from, 5760.0);
        near(theorem_4(&C, 5760).value, 2.0 * 8.0 * 2.0 * 16.0 / 5760.0);
        near(theorem_2(&C, 1).dominant_from, 720.0);
        let (a, b): (f64, f64) = (274.0, 2_949_120.0 + 14_580.0);
        near(theorem_5(&C, 1).dominant_from, ((b / a) * (b / a)).ceil());
        let plain = Constants { l1: Some(0.0), ..C };
        assert_eq!(theorem_5(&plain, 1).dominant_from, Some(1.0));
        assert_eq!(theorem_4(&plain, 1).dominant_from, Some(1.0));
    }

    #[test]
    fn nothing_is_nan() {
        let zero = Constants {
            l: Some(0.0),
            l0: Some(0.0),
            l1: Some(0.0),
            distance: Some(0.0),
            sigma_sq: Some(0.0),
        };
        let above = Constants { sigma_sq: Some(-1.0), ..C };
        let huge = Constants { l: Some(1e300), l1: Some(1e300), distance: Some(1e300), ..C };
        for c in [Constants::default(), zero, above, huge, C] {
            for steps in [0, 1, 7, u64::MAX] {
                for bound in [
                    theorem_1(&c, steps),
                    theorem_2(&c, steps),
                    theorem_3(&c, steps),
                    theorem_4(&c, steps),
                    lemma_4(&c, steps),
                    theorem_5(&c, steps),
                    decsps_rate(&c, Some(0.0), Some(0.0), steps),
                    decsps_rate(&c, None, None, steps),
                    adasps_rate(&c, Some(1e200), steps),
                    polyak_lipschitz(&c, Some(0.0), steps),
                    polyak_strongly_convex(&c, Some(0.0), steps),
                ] {
                    assert!(bound.value.is_none_or(|v| v >= 0.0), "{bound:?}");
                    assert!(bound.dominant_from.is_none_or(|t| t >= 1.0), "{bound:?}");
                    assert!(steps > 0 || bound.value.is_none(), "{bound:?}");
                }
            }
        }
        assert_eq!(theorem_5(&above, 10).value, None, "a lower bound above the minimum is none");
    }

    #[test]
    fn rules_of_the_theorems() {
        assert_eq!(theorem_1_rule(&C).unwrap().to_string(), "gd:lr=0.1");
        let clipped = theorem_2_rule(&C).unwrap();
        assert_eq!(clipped.spec().number("lr"), 0.5);
        assert_eq!(clipped.spec().number("threshold"), 2.0 / 3.0);
        let plain = theorem_2_rule(&Constants { l1: Some(0.0), ..C }).unwrap();
        assert_eq!(plain.to_string(), "clipped-gd:lr=0.5,threshold=inf");
        assert_eq!(theorem_1_rule(&Constants { l: Some(0.0), ..C }), None);
        assert_eq!(theorem_1_rule(&Constants::default()), None);
    }
}
