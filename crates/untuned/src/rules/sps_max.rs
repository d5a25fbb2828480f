use super::{LOWER_BOUND, Named, Setting, over_padded_square};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// SPS_max, the capped stochastic Polyak step: `η_t = min{(f − l)/(c‖g‖² + eps), cap_t}`.
///
/// With `cap=constant` the cap is `max_step`. With `cap=smooth`, the authors' default in their code, it is
/// `gamma^(1/epoch) · η_{t−1}`: the step grows by the factor `gamma` in an epoch of `epoch` steps at most, from `first_step` on.
/// A step whose numerator is 0 has size 0 and is not remembered: it would stop the run for good.
///
/// Published disagreement, as `c`: 0.5 in the theory and as the code's default, 0.2 in the experiments with networks.
/// The authors' code makes no step where `‖g‖ < 1e-8`; here only a gradient of 0 is stationary.
///
/// Reference: Loizou, Vaswani, Laradji & Lacoste-Julien, *Stochastic Polyak step-size for SGD*, 2021.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "sps-max:max_step=3,eps=0".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 8.0, 4.0))?.size, 1.0, "8/(16/2)");
/// assert_eq!(rule.step(&Observation::new(1, 8.0, 2.0))?.size, 3.0, "at most 3, and not 8/(4/2)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpsMax {
    /// `c`.
    pub c: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// `l`.
    pub lower_bound: f64,
    cap: Cap,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Cap {
    Constant {
        #[serde(with = "super::infinite")]
        max_step: f64,
    },
    Smooth {
        /// `gamma^(1/epoch)`.
        growth: f64,
        /// The last step that was not 0; `first_step` at first.
        last: f64,
    },
}

impl Named for SpsMax {
    const ENTRY: Entry = Entry {
        name: "sps-max",
        aliases: &[],
        formula: "min{(f − l)/(c‖g‖² + eps), cap}, the cap being max_step or gamma^(1/epoch)·η_{t−1}",
        parameters: &[
            Parameter {
                name: "c",
                kind: Kind::Positive,
                default: Fallback::Number(0.5),
                meaning: "c: 0.5 in the theory and the authors' code, 0.2 in their experiments with networks",
            },
            Parameter {
                name: "cap",
                kind: Kind::Word(&["constant", "smooth"]),
                default: Fallback::Word("constant"),
                meaning: "a constant, or growing from step to step as in the authors' smooth iteration",
            },
            Parameter {
                name: "max_step",
                kind: Kind::PositiveOrInfinite,
                default: Fallback::Number(f64::INFINITY),
                meaning: "γ_b, the largest step, for cap=constant",
            },
            Parameter {
                name: "first_step",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "what the first step is compared to, for cap=smooth",
            },
            Parameter {
                name: "gamma",
                kind: Kind::Positive,
                default: Fallback::Number(2.0),
                meaning: "how much the step may grow in an epoch, for cap=smooth",
            },
            Parameter {
                name: "epoch",
                kind: Kind::Whole(1, 1_000_000_000),
                default: Fallback::Number(500.0),
                meaning: "the number of steps of an epoch, for cap=smooth",
            },
            Parameter {
                name: "eps",
                kind: Kind::NonNegative,
                default: Fallback::Number(1e-8),
                meaning: "added to c‖g‖²",
            },
            LOWER_BOUND,
        ],
        reference: "Loizou, Vaswani, Laradji & Lacoste-Julien 2021",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<SpsMax, SpecError> {
        let smooth = spec.word("cap") == "smooth";
        let (others, other): (&[&str], _) =
            if smooth { (&["max_step"], "constant") } else { (&["first_step", "gamma", "epoch"], "smooth") };
        if let Some(key) = others.iter().find(|key| spec.is_given(key)) {
            let why = format!("`{key}` is for cap={other}");
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        let cap = if smooth {
            let growth = spec.number("gamma").powf(1.0 / spec.number("epoch"));
            Cap::Smooth { growth, last: spec.number("first_step") }
        } else {
            Cap::Constant { max_step: spec.number("max_step") }
        };
        let (c, eps, lower_bound) = (spec.number("c"), spec.number("eps"), spec.number("lower_bound"));
        Ok(SpsMax { c, eps, lower_bound, cap })
    }
}

impl StepRule for SpsMax {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        if gap.value == 0.0 {
            return Ok(Step::new(0.0, seen)?.mark(gap));
        }
        let candidate = over_padded_square(gap.value, self.c, seen.grad_norm, self.eps);
        let cap = match self.cap {
            Cap::Constant { max_step } => max_step,
            Cap::Smooth { growth, last } => growth * last,
        };
        // Not `min`, which a candidate that is no number would lose.
        let step = Step::new(if candidate > cap { cap } else { candidate }, seen)?;
        if let Cap::Smooth { last, .. } = &mut self.cap {
            if step.size > 0.0 {
                *last = step.size;
            }
        }
        Ok(step)
    }
}
