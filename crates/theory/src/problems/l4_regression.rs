use crate::vector::step_in_place;
use untuned::problem::{Known, Problem};
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec, SpecError};
use untuned::vector;

use super::linear::{Matrix, cholesky_solve, largest_eigenvalue_bound, newton};
use super::random::Random;
use super::{count, seed};

/// Regression with the fourth power: `f(x) = (1/n) Σ_i (a_i·x − b_i)⁴`, with a standard normal `A` and
/// `b = A x̄ + noise·z`, all from the seed. It starts at 0.
///
/// Without noise `f* = 0` at `x̄`. With noise Newton's method finds the minimum at construction, and the dual problem
/// proves it: for every `y` with `Aᵀy = 0`, `f* ≥ (1/n) Σ_i (r_i y_i − 3(|y_i|/4)^{4/3})`, where `r = Ax − b` for any
/// `x`. (Each summand is at most `r_i⁴`, by Young's inequality, and `Σ r_i y_i = −b·y` is the same at every `x`.) At the
/// minimum `y_i = 4r_i³` makes this an equality; here that `y` is projected onto `Aᵀy = 0`, and `f*` is known only where
/// the bound is within 1e-12 of `f` (relative where `f > 1`). Unlike `‖g‖²/(2µ)` this needs no strong convexity, which
/// the function lacks where residuals vanish.
///
/// `L` holds on `‖x − x*‖ ≤ R = ‖x_0 − x*‖`: there `|a_i·x − b_i| ≤ ρ_i = |r_i*| + R‖a_i‖`, so
/// `∇²f ≼ (12/n) Σ ρ_i² a_i a_iᵀ`, whose largest eigenvalue is `L`. `L0` and `L1` are not known.
#[derive(Debug, Clone)]
pub struct L4Regression {
    a: Matrix,
    b: Vec<f64>,
    known: Known,
}

pub(super) const INFO: Info = Info {
    name: "l4-regression",
    aliases: &[],
    formula: "mean (a_i·x − b_i)⁴, b = A x̄ + noise·z, A, x̄ and z standard normal",
    parameters: &[
        count("n", 100, 1..=5_000, "the number of samples, at least dim"),
        count("dim", 10, 1..=200, "the number of variables"),
        Parameter {
            name: "noise",
            kind: Kind::NonNegative,
            default: DefaultValue::Number(0.1),
            meaning: "standard deviation of the noise; with 0 the minimum is 0",
        },
        seed(),
    ],
    reference: "a convex problem beyond L-smoothness, as in the (L0, L1) literature",
    weight_decay: 0.0,
};

impl L4Regression {
    /// With `n` samples of `dim` features; without at least `dim` samples the minimum is not known under noise.
    pub fn new(n: usize, dim: usize, noise: f64, seed: u64) -> L4Regression {
        let mut random = Random::new(seed);
        let a = Matrix::normal(&mut random, n, dim);
        let truth = random.normals(dim);
        let b = a.times(&truth).iter().map(|v| v + noise * random.normal()).collect();
        let mut problem = L4Regression { a, b, known: Known { convex: true, ..Known::default() } };

        let minimum = if noise == 0.0 { Some((truth, 0.0)) } else { problem.find_minimum() };
        if let Some((x, f_star)) = minimum {
            let radius = vector::norm(&x);
            let l = problem.smoothness(&x, radius);
            problem.known = Known {
                f_star: Some(f_star),
                minimizer: Some(x),
                l: Some(l),
                l_radius: Some(radius),
                ..problem.known
            }
            .finite();
        }
        problem
    }

    pub(super) fn from_spec(spec: &Spec) -> Result<L4Regression, SpecError> {
        let [n, dim, noise, seed] = ["n", "dim", "noise", "seed"].map(|name| spec.number(name));
        if n < dim {
            let why = format!("n={n} samples are too few for dim={dim} variables; n must be at least dim");
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        Ok(L4Regression::new(n as usize, dim as usize, noise, seed as u64))
    }

    fn residuals(&self, x: &[f64]) -> Vec<f64> {
        self.a.times(x).iter().zip(&self.b).map(|(p, b)| p - b).collect()
    }

    fn hessian(&self, x: &[f64]) -> Vec<f64> {
        let n = self.b.len() as f64;
        let weights: Vec<f64> = self.residuals(x).iter().map(|r| 12.0 / n * r * r).collect();
        self.a.weighted_gram(&weights)
    }

    /// The minimiser and the minimum, if the dual bound proves them.
    fn find_minimum(&self) -> Option<(Vec<f64>, f64)> {
        let x = newton(self, L4Regression::hessian);
        let value = self.value(&x);
        let gap = value - self.dual_bound(&x)?;
        (gap <= 1e-12 * value.max(1.0)).then_some((x, value))
    }

    /// A lower bound of `f*` from the residuals at `x`; the better, the nearer `x` is to the minimum.
    fn dual_bound(&self, x: &[f64]) -> Option<f64> {
        let n = self.b.len();
        if n < x.len() {
            // AᵀA is singular, and what rounding makes of it would prove nothing.
            return None;
        }
        let gram = self.a.weighted_gram(&vec![1.0; n]);
        let r = self.residuals(x);
        let mut y: Vec<f64> = r.iter().map(|r| 4.0 * r * r * r).collect();
        // The second projection removes what the first one left by rounding.
        for _ in 0..2 {
            let outside = cholesky_solve(&gram, &self.a.transposed_times(&y))?;
            step_in_place(&mut y, 1.0, &self.a.times(&outside));
        }
        let terms = r.iter().zip(&y).map(|(r, y)| r * y - 3.0 * (y.abs() / 4.0).powf(4.0 / 3.0));
        Some(terms.sum::<f64>() / n as f64)
    }

    /// An `L` for the points no farther than `radius` from `x`.
    fn smoothness(&self, x: &[f64], radius: f64) -> f64 {
        let n = self.b.len() as f64;
        let largest = |(row, r): (&[f64], &f64)| r.abs() + radius * vector::norm(row);
        let weights: Vec<f64> =
            self.a.rows().zip(&self.residuals(x)).map(largest).map(|most| 12.0 / n * most * most).collect();
        largest_eigenvalue_bound(&self.a.weighted_gram(&weights), x.len())
    }
}

impl Problem for L4Regression {
    fn dimension(&self) -> usize {
        self.a.columns()
    }
    fn start(&self) -> Vec<f64> {
        vec![0.0; self.a.columns()]
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let n = self.b.len() as f64;
        let sum = self.a.sum_over_rows(x, gradient, |i, product| {
            let r = product - self.b[i];
            (r * r * r * r, 4.0 / n * r * r * r)
        });
        sum / n
    }
    fn known(&self) -> &Known {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dual_bound_is_below_and_meets_the_minimum() {
        for (n, dim, noise) in [(100, 10, 0.1), (12, 10, 1.0), (10, 10, 1.0), (5_000, 3, 1e3), (50, 1, 1e-3)]
        {
            let problem = L4Regression::new(n, dim, noise, 5);
            let f_star = problem.known.f_star.expect("proved");
            let far = problem.dual_bound(&problem.start()).expect("a regular matrix");
            assert!(far <= f_star * (1.0 + 1e-12), "n={n} dim={dim}: {far} > {f_star}");
        }
    }

    #[test]
    fn without_noise_the_truth_is_the_minimum() {
        let problem = L4Regression::new(30, 4, 0.0, 5);
        let minimizer = problem.known.minimizer.clone().expect("the truth");
        assert_eq!(problem.value(&minimizer), 0.0);
    }

    #[test]
    fn what_cannot_be_proved_is_not_known() {
        assert_eq!(L4Regression::new(3, 5, 0.1, 1).known.f_star, None, "fewer samples than variables");
        assert_eq!(L4Regression::new(30, 5, 1e200, 1).known.f_star, None, "the fourth power overflows");
    }
}
