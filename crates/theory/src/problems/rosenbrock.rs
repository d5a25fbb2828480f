use untuned::problem::{Known, Problem};
use untuned::spec::{Info, Spec};

use super::count;

/// Rosenbrock's valley: `f(x) = Σ_{i<d} 100·(x_{i+1} − x_i²)² + (1 − x_i)²`, from `(−1.2, 1, −1.2, 1, …)`.
///
/// It is not convex: nothing that the paper proves applies to it. `f* = 0` at `(1, …, 1)`.
#[derive(Debug, Clone)]
pub struct Rosenbrock {
    dim: usize,
    known: Known,
}

pub(super) const INFO: Info = Info {
    name: "rosenbrock",
    aliases: &[],
    formula: "Σ 100·(x_{i+1} − x_i²)² + (1 − x_i)², not convex",
    parameters: &[count("dim", 2, 2..=10_000_000, "the number of variables")],
    reference: "Rosenbrock 1960",
    weight_decay: 0.0,
};

impl Rosenbrock {
    /// In `dim` variables, at least two.
    pub fn new(dim: usize) -> Rosenbrock {
        let known =
            Known { convex: false, f_star: Some(0.0), minimizer: Some(vec![1.0; dim]), ..Known::default() };
        Rosenbrock { dim, known }
    }

    pub(super) fn from_spec(spec: &Spec) -> Rosenbrock {
        Rosenbrock::new(spec.number("dim") as usize)
    }
}

impl Problem for Rosenbrock {
    fn dimension(&self) -> usize {
        self.dim
    }
    fn start(&self) -> Vec<f64> {
        (0..self.dim).map(|i| if i % 2 == 0 { -1.2 } else { 1.0 }).collect()
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        gradient.fill(0.0);
        let mut sum = 0.0;
        for i in 1..x.len() {
            let here = x[i - 1];
            let (off, rest) = (x[i] - here * here, 1.0 - here);
            sum += 100.0 * off * off + rest * rest;
            gradient[i - 1] -= 400.0 * off * here + 2.0 * rest;
            gradient[i] += 200.0 * off;
        }
        sum
    }
    fn known(&self) -> &Known {
        &self.known
    }
}
