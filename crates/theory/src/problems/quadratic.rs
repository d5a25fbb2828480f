use untuned::problem::{Known, Problem};
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec, SpecError};
use untuned::vector;

use super::{count, f_star, log_spaced};

/// An ill-conditioned bowl: `f(x) = ½ Σ_i λ_i x_i² + f*`, with `λ_i` log-spaced from 1 down to `1/condition`.
///
/// Everything is exact: `L = 1`, `µ = 1/condition`, and (L0, L1)-smooth with `L0 = L`, `L1 = 0`. Any axis-aligned
/// bowl is as hard for gradient methods as its rotations, which is why there is no rotation.
#[derive(Debug, Clone)]
pub struct Quadratic {
    eigenvalues: Vec<f64>,
    scale: f64,
    f_star: f64,
    known: Known,
}

pub(super) const INFO: Info = Info {
    name: "quadratic",
    aliases: &[],
    formula: "½ Σ λ_i x_i² + f*, λ_i log-spaced from 1 to 1/condition",
    parameters: &[
        count("dim", 10, 1..=10_000_000, "the number of variables"),
        Parameter {
            name: "condition",
            kind: Kind::Positive,
            default: DefaultValue::Number(100.0),
            meaning: "largest over smallest eigenvalue, 1 or more",
        },
        Parameter {
            name: "scale",
            kind: Kind::Finite,
            default: DefaultValue::Number(1.0),
            meaning: "every variable of the start",
        },
        f_star(0.0),
    ],
    reference: "textbook",
    weight_decay: 0.0,
};

impl Quadratic {
    /// The bowl in `dim` variables that starts at `x_i = scale`. A single variable has the eigenvalue 1.
    pub fn new(dim: usize, condition: f64, scale: f64, f_star: f64) -> Quadratic {
        let eigenvalues = log_spaced(1.0, 1.0 / condition, dim);
        let l = eigenvalues.iter().copied().fold(f64::NAN, f64::max);
        let known = Known {
            convex: true,
            f_star: Some(f_star),
            minimizer: Some(vec![0.0; dim]),
            l: Some(l),
            l_radius: None,
            l0_l1: Some((l, 0.0)),
            lipschitz: None,
            strong_convexity: Some(eigenvalues.iter().copied().fold(f64::NAN, f64::min)),
        }
        .finite();
        Quadratic { eigenvalues, scale, f_star, known }
    }

    pub(super) fn from_spec(spec: &Spec) -> Result<Quadratic, SpecError> {
        let [dim, condition, scale, f_star] =
            ["dim", "condition", "scale", "f_star"].map(|name| spec.number(name));
        if condition < 1.0 {
            let why = format!("condition={condition} does not work, condition must be 1 or more");
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        Ok(Quadratic::new(dim as usize, condition, scale, f_star))
    }
}

impl Problem for Quadratic {
    fn dimension(&self) -> usize {
        self.eigenvalues.len()
    }
    fn start(&self) -> Vec<f64> {
        vec![self.scale; self.eigenvalues.len()]
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        for ((g, x), eigenvalue) in gradient.iter_mut().zip(x).zip(&self.eigenvalues) {
            *g = eigenvalue * x;
        }
        0.5 * vector::dot(x, gradient) + self.f_star
    }
    fn known(&self) -> &Known {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spectrum_has_exact_ends() {
        let quadratic = Quadratic::new(3, 100.0, 1.0, 0.0);
        assert_eq!((quadratic.eigenvalues[0], quadratic.eigenvalues[2]), (1.0, 0.01));
        assert!((quadratic.eigenvalues[1] - 0.1).abs() < 1e-16);
        assert_eq!((quadratic.known.l, quadratic.known.strong_convexity), (Some(1.0), Some(0.01)));
        assert_eq!(Quadratic::new(1, 100.0, 1.0, 0.0).eigenvalues, [1.0]);
    }
}
