use super::{LOWER_BOUND, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Inexact Polyak without a horizon: `η_t = (f − l)/(√(t+1) ‖g‖²)`.
///
/// It can be stopped or continued at any step. **Theorem 5 does not cover it**: it is proved for the constant `√T` only.
/// Ours, after Algorithm 1 of the paper.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "anytime-polyak".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(3, 7.0, 2.0))?.size, 0.875);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnytimePolyak {
    /// `l`.
    pub lower_bound: f64,
}

impl Named for AnytimePolyak {
    const ENTRY: Entry = Entry {
        name: "anytime-polyak",
        aliases: &[],
        formula: "(f − l)/(√(t+1) ‖g‖²)",
        parameters: &[LOWER_BOUND],
        reference: "ours, after Algorithm 1; outside the paper's theorem",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<AnytimePolyak, SpecError> {
        Ok(AnytimePolyak { lower_bound: spec.number("lower_bound") })
    }
}

impl StepRule for AnytimePolyak {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        let root = (seen.step as f64 + 1.0).sqrt();
        Ok(Step::new(seen.over_squared_norm(gap.value / root), seen)?.mark(gap))
    }
}
