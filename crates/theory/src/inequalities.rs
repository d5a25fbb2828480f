//! Assumptions, lemmas and propositions as pairs of numbers.
//!
//! # What rounding is allowed
//! With `ε = 2⁻⁵²`:
//! - each side is a product of a handful of factors: `8ε` of the larger side;
//! - a measured gap `f − f*` carries the half unit in the last place of `f` and that of `f*`, however small the gap
//!   is: `ε·max(|f|, |f*|)`, carried through the inequality;
//! - a measured difference of gradients carries the error of both: `4ε·(‖∇f(x)‖ + ‖∇f(y)‖)`;
//! - gaps and gradients near the end of the range were made from numbers that had already lost digits there: 2.2e-308,
//!   the smallest normal number.
//!
//! Nothing more: a check that is off by a thousandth fails wherever the numbers can show it, and where they cannot
//! (a gap of the size of its own rounding) the [`Verdict`] says so.

use serde::Serialize;
use untuned::rule::over_square;
use untuned::vector;

/// The rounding of the arithmetic on either side, relative to the larger one.
const SIDES: f64 = 8.0 * f64::EPSILON;

/// The error of a gradient, relative to its norm.
const GRADIENT: f64 = 4.0 * f64::EPSILON;

/// An inequality with its two sides: `left ≤ right`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Check {
    /// The side that must not be larger.
    pub left: f64,
    /// The side that must not be smaller.
    pub right: f64,
    /// By how much the measured sides may contradict the inequality without contradicting the true one.
    pub rounding: f64,
}

/// What a [`Check`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds by more than rounding.
    Clear,
    /// The sides are equal up to rounding: they decide nothing.
    WithinRounding,
    /// It fails by more than rounding.
    Fails,
}

impl Check {
    /// The inequality, with the sides' own rounding added to `rounding`; `None` where a side is NaN.
    pub fn new(left: f64, right: f64, rounding: f64) -> Option<Check> {
        let rounding = rounding + SIDES * left.abs().max(right.abs()).min(f64::MAX);
        (!left.is_nan() && !right.is_nan() && !rounding.is_nan()).then_some(Check { left, right, rounding })
    }

    /// Whether `left ≤ right`, up to rounding.
    pub fn holds(&self) -> bool {
        self.verdict() != Verdict::Fails
    }

    /// Whether it holds, and whether rounding could have decided that.
    pub fn verdict(&self) -> Verdict {
        if self.left == self.right || self.rounding.is_infinite() && self.left.is_finite() {
            Verdict::WithinRounding
        } else if self.left > self.right + self.rounding {
            Verdict::Fails
        } else if self.left + self.rounding <= self.right {
            Verdict::Clear
        } else {
            Verdict::WithinRounding
        }
    }

    /// `right − left`.
    pub fn slack(&self) -> f64 {
        self.right - self.left
    }

    /// `left/(right + rounding)`: how tight the inequality is; above 1 exactly where it fails.
    pub fn ratio(&self) -> f64 {
        let room = self.right + self.rounding;
        if self.left <= 0.0 && room >= 0.0 {
            0.0
        } else if room <= 0.0 {
            f64::INFINITY
        } else if room.is_infinite() {
            if self.left.is_finite() { 0.0 } else { 1.0 }
        } else {
            self.left / room
        }
    }
}

/// A measured `f − f*`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap {
    /// The difference as measured; rounding can make it negative.
    pub value: f64,
    /// How far it may be from the true one.
    pub error: f64,
}

impl Gap {
    /// From the two losses, which are taken to be rounded and otherwise right: the error is
    /// `ε·max(|f|, |f*|)`, and never below the smallest normal number.
    pub fn measured(loss: f64, f_star: f64) -> Gap {
        let error = f64::EPSILON * loss.abs().max(f_star.abs()) + f64::MIN_POSITIVE;
        Gap { value: loss - f_star, error }
    }

    /// The same with a further absolute error, say of an `f*` that is known to 1e-12.
    pub fn with_error(self, error: f64) -> Gap {
        Gap { error: self.error + error, ..self }
    }
}

/// Two points, as the assumptions see them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// `‖x − y‖`.
    pub distance: f64,
    /// `‖∇f(x) − ∇f(y)‖`.
    pub gradient_difference: f64,
    /// `‖∇f(x)‖`.
    pub grad_norm: f64,
    /// `‖∇f(y)‖`.
    pub other_grad_norm: f64,
    /// How far the gradient difference may be from the true one.
    pub error: f64,
}

impl Pair {
    /// Measures the points `(x, ∇f(x))` and `(y, ∇f(y))`.
    pub fn measured((x, gx): (&[f64], &[f64]), (y, gy): (&[f64], &[f64])) -> Pair {
        Pair::with_norms((x, gx, vector::norm(gx)), (y, gy, vector::norm(gy)))
    }

    /// As [`Pair::measured`], where the gradients' norms are at hand.
    pub(super) fn with_norms(
        (x, gx, grad_norm): (&[f64], &[f64], f64),
        (y, gy, other_grad_norm): (&[f64], &[f64], f64),
    ) -> Pair {
        Pair {
            distance: vector::distance(x, y),
            gradient_difference: vector::distance(gx, gy),
            grad_norm,
            other_grad_norm,
            error: GRADIENT * grad_norm + GRADIENT * other_grad_norm + f64::MIN_POSITIVE,
        }
    }

    /// The same with a further absolute error of the gradients.
    pub fn with_error(self, error: f64) -> Pair {
        Pair { error: self.error + error, ..self }
    }

    /// Whether the points are no farther apart than `1/L1`; always, for `L1 = 0`.
    ///
    /// A billionth is allowed on top: the clipped steps of Theorem 2 are exactly `1/L1` long, and adding them to a point
    /// rounds them either way.
    pub fn within(&self, l1: f64) -> bool {
        within(self.distance, l1)
    }

    fn check(&self, smoothness: f64) -> Option<Check> {
        if self.distance == 0.0 {
            return None;
        }
        Check::new(self.gradient_difference, smoothness * self.distance, self.error)
    }
}

pub(crate) fn within(distance: f64, l1: f64) -> bool {
    l1 == 0.0 || distance <= (1.0 + 1e-9) / l1
}

/// Assumption 1, L-smoothness: `‖∇f(x) − ∇f(y)‖ ≤ L‖x − y‖`. `None` for equal points.
pub fn assumption_1(pair: &Pair, l: f64) -> Option<Check> {
    pair.check(l)
}

/// Assumption 2, (L0, L1)-smoothness: `‖∇f(x) − ∇f(y)‖ ≤ (L0 + L1‖∇f(x)‖)‖x − y‖`. `None` for equal points and for
/// those farther apart than `1/L1`.
///
/// It is assumed for both orders of the points, so the smaller of the two norms stands on the right.
pub fn assumption_2(pair: &Pair, l0: f64, l1: f64) -> Option<Check> {
    if !pair.within(l1) {
        return None;
    }
    pair.check(l0 + l1 * pair.grad_norm.min(pair.other_grad_norm))
}

/// Lemma 6: `‖∇f(x) − ∇f(y)‖ ≤ 2(L0 + L1‖∇f(x)‖)‖x − y‖` where `‖∇²f‖ ≤ L0 + L1‖∇f‖`. `None` for equal points and
/// for those farther apart than `1/L1`.
///
/// The paper prints the condition as `‖x − y‖ ≤ 1/L0`, a slip: its source (Zhang et al. 2020, Lemma A.2) has `1/L1`,
/// and `f' = (e^{x/10} − 1)/100`, for which `L0 = 1/1000` and `L1 = 1/10`, breaks the bound a thousandfold between 0 and
/// 100. On the same constants it is twice as weak as Assumption 2.
pub fn lemma_6(pair: &Pair, l0: f64, l1: f64) -> Option<Check> {
    if !pair.within(l1) {
        return None;
    }
    pair.check(2.0 * (l0 + l1 * pair.grad_norm.min(pair.other_grad_norm)))
}

/// `‖g‖²/(2·smoothness) ≤ f − f*`; `None` where the left side is too small for a 64-bit float.
fn quadratic(grad_norm: f64, smoothness: f64, gap: Gap) -> Option<Check> {
    let root = if grad_norm == 0.0 { 0.0 } else { grad_norm / (2.0 * smoothness).sqrt() };
    let left = root * root;
    if grad_norm != 0.0 && left < f64::MIN_POSITIVE {
        return None;
    }
    Check::new(left, gap.value, gap.error)
}

/// Lemma 1: `‖g‖²/(2L) ≤ f − f*` for an L-smooth function. `None` where the left side underflows.
pub fn lemma_1(grad_norm: f64, gap: Gap, l: f64) -> Option<Check> {
    quadratic(grad_norm, l, gap)
}

/// Lemma 2: `‖g‖²/(2(L0 + L1‖g‖)) ≤ f − f*` for an (L0, L1)-smooth function. `None` where the left side underflows.
pub fn lemma_2(grad_norm: f64, gap: Gap, l0: f64, l1: f64) -> Option<Check> {
    quadratic(grad_norm, l0 + l1 * grad_norm, gap)
}

/// `left ≤ (f − f*)/‖g‖²`; `None` for `g = 0`.
fn polyak_step(left: f64, grad_norm: f64, gap: Gap) -> Option<Check> {
    if grad_norm == 0.0 {
        return None;
    }
    Check::new(left, over_square(gap.value, grad_norm), over_square(gap.error, grad_norm))
}

/// Proposition 1: `min{1/(4L0), 1/(4L1‖g‖)} ≤ (f − f*)/‖g‖²`, Polyak's step is no shorter than a quarter of the
/// clipped one. `None` for `g = 0`.
pub fn proposition_1(grad_norm: f64, gap: Gap, l0: f64, l1: f64) -> Option<Check> {
    // The larger denominator is the smaller quotient; dividing twice keeps L1‖g‖ from overflowing.
    let left = (0.25 / l0).min(0.25 / l1 / grad_norm);
    polyak_step(left, grad_norm, gap)
}

/// Proposition 2: `1/(2L) ≤ (f − f*)/‖g‖²`, Polyak's step is no shorter than half of gradient descent's. `None` for
/// `g = 0`.
pub fn proposition_2(grad_norm: f64, gap: Gap, l: f64) -> Option<Check> {
    polyak_step(0.5 / l, grad_norm, gap)
}

/// Proposition 3, the quartic's Hessian: `|f''(x)| ≤ L0/2 + L1/2·|f'(x)|` for `f = L0·L1²/72·x⁴ + L0/4·x² + f*`.
/// `None` where a side overflows.
///
/// By the inequality of means `L1·x²/6 + 3/(2·L1) ≥ |x|`, with equality at `|x| = 3/L1`, where both sides are `2·L0`.
pub fn proposition_3(x: f64, l0: f64, l1: f64) -> Option<Check> {
    let scaled = l1 * x;
    let hessian = l0 * (scaled * scaled / 6.0 + 0.5);
    // L1·f'(x), which is finite also where f'(x) is not.
    let l1_gradient = l0 * (scaled * scaled / 18.0 + 0.5) * scaled;
    let check = Check::new(hessian, l0 / 2.0 + l1_gradient.abs() / 2.0, 0.0)?;
    (check.left.is_finite() && check.right.is_finite()).then_some(check)
}

/// Proposition 3 as it is stated: Assumption 2 for the quartic at the points `x` and `y`.
pub fn proposition_3_pair(x: f64, y: f64, l0: f64, l1: f64) -> Option<Check> {
    let gradient = |x: f64| (l0 * (l1 * x) * (l1 * x) / 18.0 + l0 / 2.0) * x;
    assumption_2(&Pair::measured((&[x], &[gradient(x)]), (&[y], &[gradient(y)])), l0, l1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Gap {
        Gap { value, error: 0.0 }
    }

    fn pair(distance: f64, gradient_difference: f64, norms: (f64, f64)) -> Pair {
        Pair { distance, gradient_difference, grad_norm: norms.0, other_grad_norm: norms.1, error: 0.0 }
    }

    #[test]
    fn sides_by_hand() {
        let p = pair(0.5, 3.0, (4.0, 6.0));
        let sides = |check: Option<Check>| check.map(|c| (c.left, c.right));
        assert_eq!(sides(assumption_1(&p, 7.0)), Some((3.0, 3.5)));
        assert_eq!(sides(assumption_2(&p, 1.0, 2.0)), Some((3.0, 4.5)), "(1 + 2·min(4, 6))·0.5");
        assert_eq!(sides(lemma_6(&p, 1.0, 2.0)), Some((3.0, 9.0)));
        assert_eq!(sides(lemma_1(6.0, exact(5.0), 2.0)), Some((9.0, 5.0)), "36/4");
        assert_eq!(sides(lemma_2(6.0, exact(5.0), 6.0, 2.0)), Some((1.0, 5.0)), "36/(2·18)");
        assert_eq!(sides(proposition_1(2.0, exact(6.0), 0.5, 2.0)), Some((0.0625, 1.5)));
        assert_eq!(sides(proposition_1(2.0, exact(6.0), 8.0, 2.0)), Some((0.03125, 1.5)));
        assert_eq!(sides(proposition_2(2.0, exact(6.0), 4.0)), Some((0.125, 1.5)));
        assert_eq!(sides(proposition_3(6.0, 1.0, 1.0)), Some((6.5, 8.0)), "36/6 + ½; ½ + ½·(216/18 + 3)");
        // f'(½) = (½)³/18 + ½·½ = 37/144.
        let c = proposition_3_pair(0.0, 0.5, 1.0, 1.0).unwrap();
        assert!((c.left - 37.0 / 144.0).abs() < 1e-16 && c.right == 0.5);
    }

    #[test]
    fn where_they_do_not_apply() {
        let far = pair(0.51, 3.0, (4.0, 6.0));
        assert_eq!(assumption_2(&far, 1.0, 2.0), None);
        assert_eq!(lemma_6(&far, 1.0, 2.0), None);
        assert!(assumption_2(&far, 1.0, 0.0).is_some(), "L1 = 0 has no limit");
        assert!(assumption_1(&far, 1.0).is_some());
        assert_eq!(assumption_1(&pair(0.0, 0.0, (1.0, 1.0)), 1.0), None);
        assert_eq!(proposition_1(0.0, exact(1.0), 1.0, 1.0), None);
        assert_eq!(proposition_2(0.0, exact(1.0), 1.0), None);
        assert_eq!(lemma_1(f64::NAN, exact(1.0), 1.0), None);
        assert_eq!(proposition_3(1e200, 1.0, 1.0), None);
    }

    #[test]
    fn tiny_and_huge_norms_are_not_squared_away() {
        assert_eq!(lemma_1(1e-170, exact(0.0), 1.0), None, "1e-340/2 is no 64-bit float");
        let scaled = lemma_1(1e-170, exact(1e-41), 1e-300).unwrap();
        assert!((scaled.left / 5e-41 - 1.0).abs() < 1e-15 && !scaled.holds());
        let huge = lemma_1(1e200, exact(1e150), 1e300).unwrap();
        assert!((huge.left / 5e99 - 1.0).abs() < 1e-15 && huge.verdict() == Verdict::Clear);
        assert!(!lemma_1(1e200, exact(1e300), 1.0).unwrap().holds());
        assert!(proposition_2(1e-170, exact(1e-200), 1.0).unwrap().right > 1e130);
        assert!(proposition_1(1e300, exact(1e300), 1e-20, 1e300).unwrap().left == 0.0);
    }

    /// For `f = x²/4 + 1` Lemma 1 is an equality: only the allowance for the gap's rounding lets it hold, and it is
    /// not so wide that a constant off by a thousandth would pass where the gap is 1e-10.
    #[test]
    fn the_allowance_is_the_rounding_and_no_more() {
        let (mut below, mut close) = (0, 0);
        for i in 1..2000 {
            let x = 1.017_f64.powi(-i);
            let gap = Gap::measured(x * x / 4.0 + 1.0, 1.0);
            let check = lemma_1(x / 2.0, gap, 0.5).unwrap();
            assert!(check.holds(), "{check:?}");
            assert!(proposition_2(x / 2.0, gap, 0.5).unwrap().holds());
            below += usize::from(check.left > check.right);
            close += usize::from(check.verdict() == Verdict::WithinRounding);
            if gap.value > 1e-10 {
                assert!(!lemma_1(x / 2.0, gap, 0.4995).unwrap().holds());
                assert!(!proposition_2(x / 2.0, gap, 0.4995).unwrap().holds());
                assert!(!lemma_2(x / 2.0, gap, 0.4995, 0.0).unwrap().holds());
            }
        }
        assert!(below > 300 && close > 1900, "{below} {close}");
    }

    #[test]
    fn verdicts_slack_and_ratio() {
        let check = |left, right, rounding| Check { left, right, rounding };
        assert_eq!(check(1.0, 2.0, 0.5).verdict(), Verdict::Clear);
        assert_eq!(check(1.0, 1.2, 0.5).verdict(), Verdict::WithinRounding);
        assert_eq!(check(1.2, 1.0, 0.5).verdict(), Verdict::WithinRounding);
        assert_eq!(check(2.0, 1.0, 0.5).verdict(), Verdict::Fails);
        assert_eq!(check(2.0, 1.0, f64::INFINITY).verdict(), Verdict::WithinRounding);
        assert_eq!(check(f64::INFINITY, 1.0, f64::INFINITY).ratio(), 1.0);
        assert_eq!(check(1.0, 2.0, 0.0).slack(), 1.0);
        assert_eq!(check(1.0, 2.0, 0.0).ratio(), 0.5);
        assert_eq!(check(1.0, -1.0, 0.5).ratio(), f64::INFINITY);
        assert_eq!(check(0.0, 0.0, 0.0).ratio(), 0.0);
    }

    /// At `|x| = 3/L1` both sides are `2·L0`.
    #[test]
    fn proposition_3_is_tight() {
        for l1 in [1e-3, 0.7, 1.0, 10.0, 1e3, 1e9] {
            for l0 in [1e-5, 1.0, 3.3] {
                let check = proposition_3(3.0 / l1, l0, l1).unwrap();
                assert_eq!(check.verdict(), Verdict::WithinRounding, "{check:?}");
                assert!((check.left / (2.0 * l0) - 1.0).abs() < 1e-15);
                let wrong = Check::new(check.left * 1.001, check.right, 0.0).unwrap();
                assert!(!wrong.holds());
            }
        }
    }

    /// `f' = (e^{x/10} − 1)/100` has `f'' = 1/1000 + f'/10`: points 100 apart meet the printed condition `≤ 1/L0`.
    #[test]
    fn lemma_6_needs_one_over_l1() {
        let (l0, l1) = (1e-3, 0.1);
        let gradient = |x: f64| 0.01 * ((x / 10.0).exp() - 1.0);
        let hessian = |x: f64| 1e-3 * (x / 10.0).exp();
        assert!((0..100).all(|x| hessian(x.into()) <= (l0 + l1 * gradient(x.into())) * (1.0 + 1e-12)));
        let at = |y: f64| Pair::measured((&[0.0], &[gradient(0.0)]), (&[y], &[gradient(y)]));
        assert!(lemma_6(&at(10.0), l0, l1).unwrap().holds());
        let far = at(100.0);
        assert!(far.distance <= 1.0 / l0 && lemma_6(&far, l0, l1).is_none());
        assert!(far.gradient_difference > 100.0 * 2.0 * l0 * far.distance);
    }
}
