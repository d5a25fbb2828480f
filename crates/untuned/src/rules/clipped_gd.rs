use super::{LR, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Clipped gradient descent: `η_t = lr · min(1, c/‖g‖)`, with the norm over all parameters.
///
/// With `lr = 1/L0` and `c = L0/L1` it converges at the rate of Theorem 2 (Koloskova, Hendrikx & Stich, *Revisiting
/// gradient clipping*, 2023, Theorem 2.3). `c = inf` is plain gradient descent. On mini-batches it is clipped SGD.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "clipped-gd:lr=0.1,threshold=10".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 7.0, 40.0))?.size, 0.025);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClippedGd {
    /// The learning rate.
    pub lr: f64,
    /// `c`; infinite for no clipping.
    #[serde(with = "super::infinite")]
    pub threshold: f64,
}

impl Named for ClippedGd {
    const ENTRY: Entry = Entry {
        name: "clipped-gd",
        aliases: &["clipped-sgd"],
        formula: "lr · min(1, threshold/‖g‖)",
        parameters: &[
            LR,
            Parameter {
                name: "threshold",
                kind: Kind::PositiveOrInfinite,
                default: Fallback::Required,
                meaning: "c, the longest gradient that is not clipped; inf clips nothing",
            },
        ],
        reference: "Koloskova, Hendrikx & Stich 2023, Theorem 2.3 (Theorem 2 of the paper)",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<ClippedGd, SpecError> {
        Ok(ClippedGd { lr: spec.number("lr"), threshold: spec.number("threshold") })
    }
}

impl StepRule for ClippedGd {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        Step::new(self.lr * (self.threshold / seen.grad_norm).min(1.0), seen)
    }
}
