use super::{LOWER_BOUND, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// AdaSPS: `η_t = min{(f − l)/(c_p ‖g‖² √(Σ_{s≤t}(f_s − l))), η_{t−1}}`, `η_{−1} = ∞`.
///
/// By default `c_p = c_scale/√(f_0 − l)`, so that with `c_scale = 1` the first step is Polyak's; a constant `c_p` can be
/// given instead, and behaves very differently. A step whose numerator is 0 has size 0 and is not remembered: it would
/// stop the run for good.
///
/// Reference: Jiang & Stich, *Adaptive SGD with Polyak stepsize and line-search*, 2023.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "adasps".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 9.0, 3.0))?.size, 1.0);
/// let second = rule.step(&Observation::new(1, 16.0, 8.0))?;
/// assert!((second.size - 0.15).abs() < 1e-15, "16·3/(64·√(9 + 16))");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adasps {
    /// How `c_p` is chosen.
    pub c: CScale,
    /// `l`.
    pub lower_bound: f64,
    /// The root of the first positive `f − l`.
    first_root: Option<f64>,
    /// `Σ (f_s − l)`.
    sum: f64,
    /// The last step.
    previous: Option<f64>,
}

/// How AdaSPS gets its `c_p`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CScale {
    /// `c_scale/√(f_0 − l)`.
    Relative(f64),
    /// A constant.
    Constant(f64),
}

impl Named for Adasps {
    const ENTRY: Entry = Entry {
        name: "adasps",
        aliases: &[],
        formula: "min{(f − l)/(c_p ‖g‖² √(Σ_{s≤t}(f_s − l))), η_{t−1}}, c_p = c_scale/√(f_0 − l)",
        parameters: &[
            Parameter {
                name: "c_scale",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "c_p = c_scale/√(f_0 − l); with 1 the first step is Polyak's",
            },
            Parameter {
                name: "c_p",
                kind: Kind::Positive,
                default: Fallback::Derived("from c_scale"),
                meaning: "a constant c_p instead",
            },
            LOWER_BOUND,
        ],
        reference: "Jiang & Stich 2023",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Adasps, SpecError> {
        let c = match spec.optional("c_p") {
            Some(_) if spec.is_given("c_scale") => {
                let why = "`c_scale` and `c_p` exclude each other; keep one of them".to_string();
                return Err(SpecError::Unfit { owner: spec.name(), why });
            }
            Some(c_p) => CScale::Constant(c_p),
            None => CScale::Relative(spec.number("c_scale")),
        };
        Ok(Adasps { c, lower_bound: spec.number("lower_bound"), first_root: None, sum: 0.0, previous: None })
    }
}

impl StepRule for Adasps {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound);
        if gap.value == 0.0 {
            return Ok(Step::new(0.0, seen)?.mark(gap));
        }
        let first_root = self.first_root.unwrap_or_else(|| gap.value.sqrt());
        let sum = self.sum + gap.value;
        if sum.is_infinite() {
            let (step, loss, grad_norm) = (seen.step, seen.loss, seen.grad_norm);
            return Err(Refusal::Overflow { step, loss, grad_norm, size: 0.0 });
        }
        let factor = match self.c {
            CScale::Relative(scale) => first_root / sum.sqrt() / scale,
            CScale::Constant(c_p) => 1.0 / sum.sqrt() / c_p,
        };
        // The order of the product matters only where a part of it leaves the range although the whole does not.
        let product = seen.over_squared_norm(gap.value * factor);
        let candidate =
            if product.is_normal() { product } else { seen.over_squared_norm(gap.value) * factor };
        let step = Step::new(self.previous.map_or(candidate, |p| candidate.min(p)), seen)?;
        (self.first_root, self.sum, self.previous) = (Some(first_root), sum, Some(step.size));
        Ok(step)
    }
}
