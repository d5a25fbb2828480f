use untuned::problem::{Known, Problem};
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec};
use untuned::vector;

use super::{count, f_star};

/// The paper's quartic summed over the variables: `f(x) = Σ_i (L0·L1²/72·x_i⁴ + L0/4·x_i²) + f*`.
///
/// It has the same `L0` and `L1` in any dimension. Of one variable, `h = L0·L1²/6·x² + L0/2` and
/// `g = L0·L1²/18·x³ + L0/2·x`, and with `s = L1·|x|` the claim `h ≤ L0/2 + L1/2·|g|` is `(s − 3)² ≥ 0`. The Hessian is
/// diagonal, so `‖H‖ = max_i h_i ≤ L0/2 + L1/2·max_i |g_i| ≤ L0/2 + L1/2·‖g‖`, and Lemma 6 doubles both constants.
/// `L` holds on the ball `‖x‖ ≤ ‖x_0‖`, in which no variable is larger than `‖x_0‖`.
#[derive(Debug, Clone)]
pub struct SeparableQuartic {
    fourth: f64,
    second: f64,
    f_star: f64,
    dim: usize,
    x0: f64,
    start: Start,
    known: Known,
}

/// Where [`SeparableQuartic`] starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// `x_i = x0·i/d` for `i = 1 … d`: the variables behave differently.
    Spread,
    /// `x_i = x0`: all variables do the same.
    Equal,
}

pub(super) const INFO: Info = Info {
    name: "separable-quartic",
    aliases: &[],
    formula: "Σ (l0·l1²/72·x_i⁴ + l0/4·x_i²) + f*",
    parameters: &[
        count("dim", 10, 1..=10_000_000, "the number of variables"),
        Parameter {
            name: "l0",
            kind: Kind::Positive,
            default: DefaultValue::Number(1.0),
            meaning: "L0 of (L0, L1)-smoothness",
        },
        Parameter {
            name: "l1",
            kind: Kind::NonNegative,
            default: DefaultValue::Number(1.0),
            meaning: "L1 of (L0, L1)-smoothness",
        },
        Parameter {
            name: "x0",
            kind: Kind::Finite,
            default: DefaultValue::Number(5.0),
            meaning: "the largest variable of the start",
        },
        Parameter {
            name: "start",
            kind: Kind::Word(&["spread", "equal"]),
            default: DefaultValue::Word("spread"),
            meaning: "variable i starts at x0·i/dim, or all at x0",
        },
        f_star(1.0),
    ],
    reference: "Section 6.1 of the paper, summed over the variables",
    weight_decay: 0.0,
};

impl SeparableQuartic {
    /// The function of `dim` variables with these constants, from `x0` in every variable or spread up to it.
    pub fn new(dim: usize, l0: f64, l1: f64, x0: f64, start: Start, f_star: f64) -> SeparableQuartic {
        let fourth = l0 * l1 * l1 / 72.0;
        let known = Known { convex: true, f_star: Some(f_star), ..Known::default() };
        let mut problem = SeparableQuartic { fourth, second: l0 / 4.0, f_star, dim, x0, start, known };
        let radius = vector::norm(&problem.start());
        problem.known = Known {
            minimizer: Some(vec![0.0; dim]),
            l: Some(12.0 * fourth * radius * radius + l0 / 2.0),
            l_radius: Some(radius),
            l0_l1: Some((l0, l1)),
            strong_convexity: Some(l0 / 2.0),
            ..problem.known
        }
        .finite();
        problem
    }

    pub(super) fn from_spec(spec: &Spec) -> SeparableQuartic {
        let [dim, l0, l1, x0, f_star] = ["dim", "l0", "l1", "x0", "f_star"].map(|name| spec.number(name));
        let start = if spec.word("start") == "equal" { Start::Equal } else { Start::Spread };
        SeparableQuartic::new(dim as usize, l0, l1, x0, start, f_star)
    }
}

impl Problem for SeparableQuartic {
    fn dimension(&self) -> usize {
        self.dim
    }
    fn start(&self) -> Vec<f64> {
        match self.start {
            Start::Equal => vec![self.x0; self.dim],
            Start::Spread => (1..=self.dim).map(|i| self.x0 * (i as f64 / self.dim as f64)).collect(),
        }
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (fourth, second) = (self.fourth, self.second);
        let sum = vector::sum_and_slopes(x, gradient, |x| {
            let square = x * x;
            ((fourth * square + second) * square, (4.0 * fourth * square + 2.0 * second) * x)
        });
        sum + self.f_star
    }
    fn known(&self) -> &Known {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems::Quartic;

    #[test]
    fn one_variable_is_the_papers_quartic() {
        let (many, one) =
            (SeparableQuartic::new(1, 2.0, 30.0, 5.0, Start::Spread, 1.0), Quartic::new(2.0, 30.0, 5.0, 1.0));
        let (mut a, mut b) = ([0.0], [0.0]);
        assert_eq!(many.value_and_gradient(&[0.3], &mut a), one.value_and_gradient(&[0.3], &mut b));
        assert_eq!((a, many.start()), (b, one.start()));
        let (many, one) = (many.known(), one.known());
        assert!((many.l.unwrap_or(0.0) - one.l.unwrap_or(1.0)).abs() < 1e-9);
        assert_eq!(Known { l: None, ..many.clone() }, Known { l: None, ..one.clone() });
    }

    #[test]
    fn the_quick_pass_agrees_with_a_plain_sum() {
        let problem = SeparableQuartic::new(10_007, 1.0, 10.0, 5.0, Start::Spread, 1.0);
        let (x, one) = (problem.start(), Quartic::new(1.0, 10.0, 5.0, 0.0));
        let mut gradient = vec![0.0; x.len()];
        let value = problem.value_and_gradient(&x, &mut gradient);
        let plain: f64 = x.iter().map(|x| one.value(&[*x])).sum::<f64>() + 1.0;
        assert!((value - plain).abs() < 1e-12 * plain);
        for (x, g) in x.iter().zip(&gradient) {
            let mut slope = [0.0];
            one.value_and_gradient(&[*x], &mut slope);
            assert_eq!(slope[0], *g);
        }
    }
}
