use super::{LOWER_BOUND, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Polyak's step size with a lower bound in place of the minimum: `η_t = (f − l)/‖g‖²`.
///
/// The paper's "straightforward" variant (Section 4.1). It does not converge where `l < f*`: near the optimum `f − l`
/// stays positive while `‖g‖` vanishes, and the step explodes. For networks this, with `l = 0`, is what the paper
/// calls "Polyak with f* = 0".
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "polyak-bound".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 1.75);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolyakBound {
    /// `l`.
    pub lower_bound: f64,
}

impl Named for PolyakBound {
    const ENTRY: Entry = Entry {
        name: "polyak-bound",
        aliases: &[],
        formula: "(f − l)/‖g‖²",
        parameters: &[LOWER_BOUND],
        reference: "Section 4.1 of the paper; Loizou et al. 2021",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<PolyakBound, SpecError> {
        Ok(PolyakBound { lower_bound: spec.number("lower_bound") })
    }
}

impl StepRule for PolyakBound {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        Ok(Step::new(seen.over_squared_norm(gap.value), seen)?.mark(gap))
    }
}
