use super::{LOWER_BOUND, Named, Setting, over_padded_square};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// ALI-G: `η_t = min{(f − l)/(‖g‖² + eps), max_lr}`.
///
/// The authors assume interpolation, `l = 0`: every sample can be fitted. Their code has Nesterov momentum and a projection onto a
/// ball as options, both off by default; a scalar rule has neither.
///
/// Reference: Berrada, Zisserman & Kumar, *Training neural networks for and by interpolation*, 2020.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "ali-g:max_lr=0.5,eps=7".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 4.0, 3.0))?.size, 0.25, "4/(9 + 7)");
/// assert_eq!(rule.step(&Observation::new(1, 32.0, 3.0))?.size, 0.5, "at most 0.5, and not 32/(9 + 7)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AliG {
    /// The largest step.
    #[serde(with = "super::infinite")]
    pub max_lr: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// `l`.
    pub lower_bound: f64,
}

impl Named for AliG {
    const ENTRY: Entry = Entry {
        name: "ali-g",
        aliases: &[],
        formula: "min{(f − l)/(‖g‖² + eps), max_lr}",
        parameters: &[
            Parameter {
                name: "max_lr",
                kind: Kind::PositiveOrInfinite,
                default: Fallback::Number(f64::INFINITY),
                meaning: "the largest step",
            },
            Parameter {
                name: "eps",
                kind: Kind::NonNegative,
                default: Fallback::Number(1e-5),
                meaning: "added to ‖g‖²",
            },
            LOWER_BOUND,
        ],
        reference: "Berrada, Zisserman & Kumar 2020",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<AliG, SpecError> {
        let (max_lr, eps) = (spec.number("max_lr"), spec.number("eps"));
        Ok(AliG { max_lr, eps, lower_bound: spec.number("lower_bound") })
    }
}

impl StepRule for AliG {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        let candidate = over_padded_square(gap.value, 1.0, seen.grad_norm, self.eps);
        // Not `min`, which a candidate that is no number would lose.
        Ok(Step::new(if candidate > self.max_lr { self.max_lr } else { candidate }, seen)?.mark(gap))
    }
}
