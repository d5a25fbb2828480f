use super::{LOWER_BOUND, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Inexact Polyak Stepsize, Algorithm 1 of the paper: `η_t = (f − l)/(√T ‖g‖²)`.
///
/// `T` is the horizon, the number of steps of the run, and `l` a lower bound of the loss. The answer of the algorithm
/// is its **best** iterate over `x_0 … x_T`: near the optimum the steps explode by design, so the last iterate can be
/// worse than `x_0`. Theorem 5 bounds the best one. (For networks the paper takes the last.)
///
/// Reference: Takezawa, Bao, Sato, Niwa & Yamada, *Parameter-free Clipped Gradient Descent Meets Polyak*, NeurIPS 2024.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "inexact-polyak".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 0.175);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InexactPolyak {
    /// `l`.
    pub lower_bound: f64,
    /// `T`.
    pub horizon: u64,
    /// What happens after `T` steps.
    pub extend: Extend,
}

/// What Inexact Polyak does when a run is longer than its horizon. The theorem speaks of none of these runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extend {
    /// Refuse.
    Never,
    /// Go on with `√T` of the horizon.
    Keep,
    /// Go on with `√(t + 1)`.
    Grow,
}

impl Named for InexactPolyak {
    const ENTRY: Entry = Entry {
        name: "inexact-polyak",
        aliases: &[],
        formula: "(f − l)/(√T ‖g‖²)",
        parameters: &[
            LOWER_BOUND,
            Parameter {
                name: "extend",
                kind: Kind::Word(&["never", "keep", "grow"]),
                default: Fallback::Word("never"),
                meaning: "after T steps: never go on, keep √T, or grow to √(t+1)",
            },
        ],
        reference: "Takezawa, Bao, Sato, Niwa & Yamada 2024, Algorithm 1",
    };

    fn from_spec(spec: &Spec, setting: &Setting) -> Result<InexactPolyak, SpecError> {
        let extend = match spec.word("extend") {
            "keep" => Extend::Keep,
            "grow" => Extend::Grow,
            _ => Extend::Never,
        };
        Ok(InexactPolyak { lower_bound: spec.number("lower_bound"), horizon: setting.steps, extend })
    }
}

impl StepRule for InexactPolyak {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        let steps = match self.extend {
            _ if seen.step < self.horizon => self.horizon,
            Extend::Never => {
                let remedy = "make it with a larger number of steps, or add `extend=keep` or `extend=grow`";
                return Err(Refusal::PastHorizon { step: seen.step, horizon: self.horizon, remedy });
            }
            Extend::Keep => self.horizon.max(1),
            Extend::Grow => seen.step.saturating_add(1),
        };
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        Ok(Step::new(seen.over_squared_norm(gap.value / (steps as f64).sqrt()), seen)?.mark(gap))
    }
}
