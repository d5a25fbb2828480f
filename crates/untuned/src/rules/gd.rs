use super::{LR, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Gradient descent: `η_t = lr`.
///
/// With `lr = 1/L` it converges at the rate of Theorem 1 (Nesterov, *Lectures on Convex Optimization*, 2018,
/// Corollary 2.1.2). On mini-batches it is SGD.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "gd:lr=0.1".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 0.1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gd {
    /// The learning rate.
    pub lr: f64,
}

impl Named for Gd {
    const ENTRY: Entry = Entry {
        name: "gd",
        aliases: &["sgd"],
        formula: "lr",
        parameters: &[LR],
        reference: "Nesterov 2018, Corollary 2.1.2 (Theorem 1 of the paper)",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Gd, SpecError> {
        Ok(Gd { lr: spec.number("lr") })
    }
}

impl StepRule for Gd {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        Step::new(self.lr, seen)
    }
}
