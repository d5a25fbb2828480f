use untuned::problem::{Known, Problem};
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec};

use super::f_star;

/// The paper's synthetic function (Section 6.1): `f(x) = L0·L1²/72·x⁴ + L0/4·x² + f*`.
///
/// It is (L0, L1)-smooth (Proposition 3) and not L-smooth: its `L` holds on `|x| ≤ |x_0|`.
#[derive(Debug, Clone)]
pub struct Quartic {
    fourth: f64,
    second: f64,
    f_star: f64,
    x0: f64,
    known: Known,
}

pub(super) const INFO: Info = Info {
    name: "quartic",
    aliases: &[],
    formula: "l0·l1²/72·x⁴ + l0/4·x² + f*",
    parameters: &[
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
            meaning: "the start",
        },
        f_star(1.0),
    ],
    reference: "Section 6.1 of the paper",
    weight_decay: 0.0,
};

impl Quartic {
    /// The function with these constants; the paper has `l0 = 1`, `x0 = 5`, `f_star = 1`.
    pub fn new(l0: f64, l1: f64, x0: f64, f_star: f64) -> Quartic {
        let known = Known {
            convex: true,
            f_star: Some(f_star),
            minimizer: Some(vec![0.0]),
            l: Some(l0 * l1 * l1 * x0 * x0 / 6.0 + l0 / 2.0),
            l_radius: Some(x0.abs()),
            l0_l1: Some((l0, l1)),
            lipschitz: None,
            strong_convexity: Some(l0 / 2.0),
        }
        .finite();
        Quartic { fourth: l0 * l1 * l1 / 72.0, second: l0 / 4.0, f_star, x0, known }
    }

    pub(super) fn from_spec(spec: &Spec) -> Quartic {
        let [l0, l1, x0, f_star] = ["l0", "l1", "x0", "f_star"].map(|name| spec.number(name));
        Quartic::new(l0, l1, x0, f_star)
    }
}

impl Problem for Quartic {
    fn dimension(&self) -> usize {
        1
    }
    fn start(&self) -> Vec<f64> {
        vec![self.x0]
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (x, square) = (x[0], x[0] * x[0]);
        gradient[0] = (4.0 * self.fourth * square + 2.0 * self.second) * x;
        (self.fourth * square + self.second) * square + self.f_star
    }
    fn known(&self) -> &Known {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_that_overflows_is_not_known() {
        let known = Quartic::new(1.0, 1e200, 5.0, 1.0).known;
        assert_eq!((known.l, known.l_radius), (None, None));
        assert_eq!((known.l0_l1, known.f_star), (Some((1.0, 1e200)), Some(1.0)));
    }
}
