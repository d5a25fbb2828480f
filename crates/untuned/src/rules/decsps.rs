use super::{LOWER_BOUND, Named, Setting};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule, over_square};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// DecSPS: `η_t = min{(f − l)/‖g‖², c_{t−1} η_{t−1}}/c_t` with `c_t = c0 √(t+1)`; at `t = 0` the second term is `c0 γ`.
///
/// The product `c_t η_t` never increases, so neither does the step. A step whose numerator is 0 has size 0 and is not
/// remembered: it would stop the run for good.
///
/// Published disagreement, as `grad_shift`: the authors' toy scripts divide by `‖g‖²`, their real-data scripts by
/// `‖g + 1e-4‖²`, the shift added to every entry.
///
/// Reference: Orvieto, Lacoste-Julien & Loizou, *Dynamics of SGD with stochastic Polyak stepsizes*, 2022.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "decsps".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 8.0, 2.0))?.size, 2.0);
/// assert_eq!(rule.step(&Observation::new(3, 8.0, 1.0))?.size, 1.0, "the smaller of 8 and 2, over √4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decsps {
    /// `c_0`.
    pub c0: f64,
    /// `γ_b`, the largest first step.
    pub gamma: f64,
    /// `l`.
    pub lower_bound: f64,
    /// Added to every entry of the gradient before its norm is taken.
    pub grad_shift: f64,
    /// `c_t η_t` of the last step; at first `c0 γ`.
    reach: f64,
}

impl Named for Decsps {
    const ENTRY: Entry = Entry {
        name: "decsps",
        aliases: &[],
        formula: "min{(f − l)/‖g‖², c_{t−1} η_{t−1}}/c_t, c_t = c0 √(t+1); c0·gamma in place of the second at t = 0",
        parameters: &[
            Parameter {
                name: "c0",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "c_0, the scale of the decreasing sequence",
            },
            Parameter {
                name: "gamma",
                kind: Kind::Positive,
                default: Fallback::Number(10.0),
                meaning: "γ_b, the largest first step",
            },
            LOWER_BOUND,
            Parameter {
                name: "grad_shift",
                kind: Kind::NonNegative,
                default: Fallback::Number(0.0),
                meaning: "added to every entry of g in ‖g‖²: 0 in the authors' toy scripts, 1e-4 in the real-data ones",
            },
        ],
        reference: "Orvieto, Lacoste-Julien & Loizou 2022",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Decsps, SpecError> {
        let (c0, gamma) = (spec.number("c0"), spec.number("gamma"));
        let reach = c0 * gamma;
        if !reach.is_normal() {
            let why = format!("c0·gamma is {reach:e}; choose values whose product is an ordinary number");
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        let (lower_bound, grad_shift) = (spec.number("lower_bound"), spec.number("grad_shift"));
        Ok(Decsps { c0, gamma, lower_bound, grad_shift, reach })
    }
}

impl StepRule for Decsps {
    fn needs(&self) -> Needs {
        Needs { grad_sum: self.grad_shift != 0.0, ..Needs::default() }
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        if gap.value == 0.0 {
            return Ok(Step::new(0.0, seen)?.mark(gap));
        }
        let norm = if self.grad_shift == 0.0 { seen.grad_norm } else { shifted_norm(seen, self.grad_shift)? };
        let reach = over_square(gap.value, norm).min(self.reach);
        let step = Step::new(reach / (seen.step as f64 + 1.0).sqrt() / self.c0, seen)?;
        self.reach = reach;
        Ok(step)
    }
}

/// `‖g + s·1‖` from `‖g‖` and the sum of `g`.
fn shifted_norm(seen: &Observation, shift: f64) -> Result<f64, Refusal> {
    let sum = seen.grad_sum.ok_or(Refusal::Missing { step: seen.step, what: "grad_sum" })?;
    let entries = seen.dimension as f64;
    let squared = seen.grad_norm * seen.grad_norm + 2.0 * shift * sum + entries * shift * shift;
    if squared.is_normal() && squared > 0.0 {
        return Ok(squared.sqrt());
    }
    // Where a square leaves the range: in units of the larger part.
    let root = entries.sqrt();
    let unit = seen.grad_norm.max(shift * root);
    let (norm, shifted) = (seen.grad_norm / unit, shift * root / unit);
    let squared = norm * norm + 2.0 * (shift / unit) * (sum / unit) + shifted * shifted;
    Ok(unit * squared.max(0.0).sqrt())
}
