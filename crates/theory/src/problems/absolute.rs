use untuned::problem::{Known, Problem};
use untuned::spec::{Info, Spec};
use untuned::vector;

use super::linear::{Matrix, largest_eigenvalue_bound};
use super::random::Random;
use super::{count, f_star, seed};

/// Least absolute deviations: `f(x) = ‖Ax − b‖₁ + f*` with `b = A x*`, a standard normal `A` and `x*` from the seed. It
/// starts at 0.
///
/// Convex, with kinks, so there is no `L`. The subgradient is `Aᵀ sign(Ax − b)` with `sign(0) = 0`. None is longer than
/// `G = min{√n·‖A‖, Σ_i ‖a_i‖}`: the signs have norm at most `√n`, and each contributes one row.
#[derive(Debug, Clone)]
pub struct Absolute {
    a: Matrix,
    b: Vec<f64>,
    f_star: f64,
    known: Known,
}

pub(super) const INFO: Info = Info {
    name: "absolute",
    aliases: &[],
    formula: "‖Ax − b‖₁ + f*, b = A x*, A and x* standard normal",
    parameters: &[
        count("n", 20, 1..=5_000, "the number of samples"),
        count("dim", 10, 1..=200, "the number of variables"),
        f_star(0.0),
        seed(),
    ],
    reference: "least absolute deviations; Polyak's step is optimal for it (Section 2.3 of the paper)",
    weight_decay: 0.0,
};

impl Absolute {
    /// With `n` samples of `dim` features.
    pub fn new(n: usize, dim: usize, f_star: f64, seed: u64) -> Absolute {
        let mut random = Random::new(seed);
        let a = Matrix::normal(&mut random, n, dim);
        let minimizer = random.normals(dim);
        let b = a.times(&minimizer);
        let spectral = largest_eigenvalue_bound(&a.weighted_gram(&vec![1.0; n]), dim).sqrt();
        let rows: f64 = a.rows().map(vector::norm).sum();
        let known = Known {
            convex: true,
            f_star: Some(f_star),
            minimizer: Some(minimizer),
            lipschitz: Some(rows.min((n as f64).sqrt() * spectral) * (1.0 + 1e-12)),
            ..Known::default()
        }
        .finite();
        Absolute { a, b, f_star, known }
    }

    pub(super) fn from_spec(spec: &Spec) -> Absolute {
        let [n, dim, f_star, seed] = ["n", "dim", "f_star", "seed"].map(|name| spec.number(name));
        Absolute::new(n as usize, dim as usize, f_star, seed as u64)
    }
}

impl Problem for Absolute {
    fn dimension(&self) -> usize {
        self.a.columns()
    }
    fn start(&self) -> Vec<f64> {
        vec![0.0; self.a.columns()]
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let sum = self.a.sum_over_rows(x, gradient, |i, product| {
            let r = product - self.b[i];
            // `signum` alone gives 1 at 0.
            (r.abs(), if r == 0.0 { 0.0 } else { r.signum() })
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

    #[test]
    fn the_minimum_is_exact_and_its_subgradient_is_0() {
        let problem = Absolute::new(20, 10, 3.0, 1);
        let minimizer = problem.known.minimizer.clone().expect("known by construction");
        let mut gradient = vec![1.0; 10];
        assert_eq!(problem.value_and_gradient(&minimizer, &mut gradient), 3.0);
        assert_eq!(gradient, [0.0; 10]);
    }
}
