use super::{FACTOR, Named, Setting};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use crate::vector;
use serde::{Deserialize, Serialize};

/// DoWG, distance over weighted gradients: `η_t = lr · r̄_t²/(√v_t + eps)`.
///
/// `r̄_0² = r2`, `r̄_t = max(r̄_{t−1}, ‖x_t − x_0‖)`, `v_t = Σ_{s≤t} r̄_s²‖g_s‖²`. It looks at no loss. The authors' code has one number,
/// `eps`, for both `eps` and `r2`, a squared distance; `lr` and `r2` come from optax.
///
/// Reference: Khaled, Mishchenko & Jin, *DoWG unleashed*, 2023.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "dowg:r2=4,eps=2".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// let mut seen = Observation { distance: Some(0.0), ..Observation::new(0, 7.0, 3.0) };
/// assert_eq!(rule.step(&seen)?.size, 0.5, "4/(√(4·9) + 2)");
/// seen = Observation { step: 1, distance: Some(4.0), grad_norm: 2.0, ..seen };
/// assert_eq!(rule.step(&seen)?.size, 4.0 / 3.0, "16/(√(36 + 16·4) + 2)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dowg {
    /// Multiplies the step.
    pub lr: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// `r̄_t`; at first `√r2`.
    radius: f64,
    /// `√v_t`: the root and not the sum, so that norms whose squares leave the range are not lost.
    root: f64,
}

impl Named for Dowg {
    const ENTRY: Entry = Entry {
        name: "dowg",
        aliases: &[],
        formula: "lr·r̄_t²/(√(Σ_{s≤t} r̄_s²‖g_s‖²) + eps), r̄_t² = max(r2, max_{s≤t}‖x_s − x_0‖²)",
        parameters: &[
            FACTOR,
            Parameter {
                name: "r2",
                kind: Kind::Positive,
                default: Fallback::Derived("eps"),
                meaning: "the first guess of the squared distance",
            },
            Parameter {
                name: "eps",
                kind: Kind::NonNegative,
                default: Fallback::Number(1e-4),
                meaning: "added to the root of the sum",
            },
        ],
        reference: "Khaled, Mishchenko & Jin 2023",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Dowg, SpecError> {
        let (lr, eps) = (spec.number("lr"), spec.number("eps"));
        let squared = spec.optional("r2").unwrap_or(eps);
        if squared == 0.0 {
            let why = "with eps=0 the first distance is 0 and nothing ever moves; give `r2`".to_string();
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        Ok(Dowg { lr, eps, radius: squared.sqrt(), root: 0.0 })
    }
}

impl StepRule for Dowg {
    fn needs(&self) -> Needs {
        Needs { distance: true, ..Needs::default() }
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        let distance = seen.distance.ok_or(Refusal::Missing { step: seen.step, what: "distance" })?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let radius = self.radius.max(distance);
        let root = vector::norm(&[self.root, radius * seen.grad_norm]);
        if root.is_infinite() {
            let (step, loss, grad_norm) = (seen.step, seen.loss, seen.grad_norm);
            return Err(Refusal::Overflow { step, loss, grad_norm, size: 0.0 });
        }
        let step = Step::new(radius / (root + self.eps) * radius * self.lr, seen)?;
        (self.radius, self.root) = (radius, root);
        Ok(step)
    }
}
