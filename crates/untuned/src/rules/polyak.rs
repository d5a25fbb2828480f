use super::{Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Polyak's step size: `η_t = (f − f*)/‖g‖²`.
///
/// It needs the minimum `f*`, and then converges like clipped gradient descent with the best rate and threshold
/// (Theorem 4). Reference: Polyak, *Introduction to Optimization*, 1987.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "polyak:f_star=1".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 1.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Polyak {
    /// `f*`.
    pub f_star: f64,
}

impl Named for Polyak {
    const ENTRY: Entry = Entry {
        name: "polyak",
        aliases: &[],
        formula: "(f − f*)/‖g‖²",
        parameters: &[Parameter {
            name: "f_star",
            kind: Kind::Finite,
            default: Fallback::Derived("from the problem, where it is known"),
            meaning: "f*, the minimum of the loss",
        }],
        reference: "Polyak 1987; Theorems 3 and 4 of the paper",
    };

    fn from_spec(spec: &Spec, setting: &Setting) -> Result<Polyak, SpecError> {
        let f_star =
            spec.optional("f_star").or(setting.f_star.filter(|f| f.is_finite())).ok_or_else(|| {
                SpecError::Unfit {
                    owner: spec.name(),
                    why: "the minimum is not known here; write `polyak:f_star=…`, or use `inexact-polyak`"
                        .to_string(),
                }
            })?;
        Ok(Polyak { f_star })
    }
}

impl StepRule for Polyak {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.f_star);
        Ok(Step::new(seen.over_squared_norm(gap.value), seen)?.mark(gap))
    }
}
