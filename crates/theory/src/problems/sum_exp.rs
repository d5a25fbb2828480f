use crate::vector::{step_in_place, step_into};
use untuned::problem::{Known, Problem};
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec};
use untuned::vector;

use super::random::Random;
use super::{count, log_spaced, seed};

/// A sum of exponentials in rotated coordinates:
/// `f(x) = Σ_i w_i·(exp(a_i u_i) + exp(−a_i u_i))/2` with `u = Q(x − x*)`, `w_i = 1/a_i²`, and `a_i` log-spaced from 1
/// to `sharpness`. `Q` is orthogonal and `x*` lies at a chosen distance from the start 0; both follow from the seed.
///
/// Everything is exact. `f* = Σ w_i`. The Hessian is `Qᵀ diag(w_i a_i² cosh(a_i u_i)) Q`, so `µ = min w_i a_i² = 1`. Since
/// `cosh z ≤ 1 + |sinh z|` and the gradient in rotated coordinates is `w_i a_i sinh(a_i u_i)`,
/// `‖H‖ ≤ h0 + h1‖∇f‖` with `h0 = max w_i a_i² = 1` and `h1 = max a_i`; by Lemma 6, `L0 = 2·h0` and `L1 = 2·h1`.
/// `L = max w_i a_i² cosh(a_i D)` holds on the ball of radius `D = ‖x_0 − x*‖`, and is exponentially larger than `L0`.
#[derive(Debug, Clone)]
pub struct SumExp {
    /// The unit normals of the reflections whose product is `Q`.
    mirrors: Vec<Vec<f64>>,
    weights: Vec<f64>,
    exponents: Vec<f64>,
    minimizer: Vec<f64>,
    known: Known,
}

pub(super) const INFO: Info = Info {
    name: "sum-exp",
    aliases: &[],
    formula: "Σ cosh(a_i u_i)/a_i², u = Q(x − x*), a_i log-spaced from 1 to sharpness",
    parameters: &[
        count("dim", 10, 1..=1_000_000, "the number of variables"),
        Parameter {
            name: "sharpness",
            kind: Kind::Positive,
            default: DefaultValue::Number(10.0),
            meaning: "the exponent of the last direction; L1 is twice the largest",
        },
        Parameter {
            name: "distance",
            kind: Kind::NonNegative,
            default: DefaultValue::Number(3.0),
            meaning: "‖x0 − x*‖",
        },
        seed(),
    ],
    reference: "the Hessian form of (L0, L1)-smoothness: Zhang et al. 2020, and Lemma 6 of the paper",
    weight_decay: 0.0,
};

/// Four reflections mix all the variables and cost four passes; a dense `Q` would cost `d` of them.
const REFLECTIONS: usize = 4;

impl SumExp {
    /// The function of `dim` variables whose last exponent is `sharpness`, with `x*` at this distance from the start.
    pub fn new(dim: usize, sharpness: f64, distance: f64, seed: u64) -> SumExp {
        let mut random = Random::new(seed);
        let mut direction = || {
            let mut v = random.normals(dim);
            let norm = vector::norm(&v);
            v.iter_mut().for_each(|v| *v /= norm);
            v
        };
        let mirrors = (0..REFLECTIONS).map(|_| direction()).collect();
        let minimizer: Vec<f64> = direction().iter().map(|v| v * distance).collect();
        // A single direction has the sharpness itself.
        let exponents = if dim == 1 { vec![sharpness] } else { log_spaced(1.0, sharpness, dim) };
        let weights: Vec<f64> = exponents.iter().map(|a| 1.0 / (a * a)).collect();

        let largest = |f: &dyn Fn(f64, f64) -> f64| {
            let values = weights.iter().zip(&exponents).map(|(w, a)| f(*w, *a));
            // `f64::max` would lose a NaN: a weight that underflowed times a factor that overflowed.
            values.fold(0.0, |m: f64, v| if v <= m || m.is_nan() { m } else { v })
        };
        let radius = vector::norm(&minimizer);
        let flattest = 1.0 / largest(&|w, a| 1.0 / (w * a * a));
        let known = Known {
            convex: true,
            f_star: Some(weights.iter().sum()),
            minimizer: Some(minimizer.clone()),
            l: Some(largest(&|w, a| w * a * a * (a * radius).cosh())),
            l_radius: Some(radius),
            l0_l1: Some((2.0 * largest(&|w, a| w * a * a), 2.0 * largest(&|_, a| a))),
            lipschitz: None,
            strong_convexity: Some(flattest),
        }
        .finite();
        SumExp { mirrors, weights, exponents, minimizer, known }
    }

    pub(super) fn from_spec(spec: &Spec) -> SumExp {
        let [dim, sharpness, distance, seed] =
            ["dim", "sharpness", "distance", "seed"].map(|name| spec.number(name));
        SumExp::new(dim as usize, sharpness, distance, seed as u64)
    }
}

/// `v ← v − 2(n·v)n`.
fn reflect(v: &mut [f64], normal: &[f64]) {
    let size = 2.0 * vector::dot(normal, v);
    step_in_place(v, size, normal);
}

impl Problem for SumExp {
    fn dimension(&self) -> usize {
        self.minimizer.len()
    }
    fn start(&self) -> Vec<f64> {
        vec![0.0; self.minimizer.len()]
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        step_into(gradient, x, 1.0, &self.minimizer);
        self.mirrors.iter().for_each(|normal| reflect(gradient, normal));
        let mut sum = 0.0;
        for ((u, a), w) in gradient.iter_mut().zip(&self.exponents).zip(&self.weights) {
            let z = a * *u;
            sum += w * z.cosh();
            *u = w * a * z.sinh();
        }
        self.mirrors.iter().rev().for_each(|normal| reflect(gradient, normal));
        sum
    }
    fn known(&self) -> &Known {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_the_formulas() {
        let problem = SumExp::new(5, 8.0, 2.0, 7);
        let known = problem.known();
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() <= 1e-12 * b);
        assert!(near(known.l, 16f64.cosh()), "{known:?}");
        assert!(near(known.strong_convexity, 1.0) && near(known.l_radius, 2.0), "{known:?}");
        assert!(near(known.l0_l1.map(|l| l.0), 2.0) && near(known.l0_l1.map(|l| l.1), 16.0));
        // The minimum is attained to the last bit.
        assert_eq!(known.f_star, Some(problem.value(&problem.minimizer)));
    }

    #[test]
    fn constants_that_leave_the_range_are_not_known() {
        let huge = SumExp::new(3, 1e300, 1.0, 1).known;
        assert_eq!((huge.l, huge.l_radius, huge.strong_convexity), (None, None, None));
        assert_eq!(SumExp::new(3, 1e-300, 1.0, 1).known.f_star, None);
    }
}
