use super::{FACTOR, Named, Setting};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use crate::vector;
use serde::{Deserialize, Serialize};

/// DoG, distance over gradients: `η_t = lr · r̄_t/√G_t`.
///
/// `r̄_0 = eps_rel (1 + ‖x_0‖)`, `r̄_t = max(r̄_{t−1}, ‖x_t − x_0‖)`, `G_t = Σ_{s≤t}‖g_s‖² + eps`. It looks at no loss.
/// The authors call a weighted average of the iterates mandatory for evaluation
/// ([`Average::Polynomial`](crate::average::Average) with γ = 8); the paper plots the raw iterate. With `first_step` the first step
/// has that size, and `r̄_0` is 0.
///
/// Published disagreement, as `eps_each`: the authors' code adds `eps` once, their readme at every step.
///
/// Reference: Ivgi, Hinder & Carmon, *DoG is SGD's best friend*, 2023.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "dog:eps_rel=0.5,eps=0".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// let mut seen = Observation { x0_norm: 1.0, distance: Some(0.0), ..Observation::new(0, 7.0, 3.0) };
/// assert_eq!(rule.step(&seen)?.size, 1.0 / 3.0);
/// seen = Observation { step: 1, distance: Some(2.0), grad_norm: 4.0, ..seen };
/// assert_eq!(rule.step(&seen)?.size, 2.0 / 5.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dog {
    /// Multiplies the step.
    pub lr: f64,
    /// The size of the first step, where it is given.
    pub first_step: Option<f64>,
    /// `ε_rel`, the first guess of the distance relative to `1 + ‖x_0‖`.
    pub eps_rel: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// Whether `eps` is added at every step rather than once.
    pub eps_each: bool,
    /// `r̄_t`.
    radius: Option<f64>,
    /// `√G_t`: the root and not the sum, so that norms whose squares leave the range are not lost.
    root: f64,
}

impl Named for Dog {
    const ENTRY: Entry = Entry {
        name: "dog",
        aliases: &[],
        formula: "lr·r̄_t/√(Σ_{s≤t}‖g_s‖² + eps), r̄_t = max(eps_rel (1 + ‖x_0‖), max_{s≤t}‖x_s − x_0‖)",
        parameters: &[
            Parameter {
                name: "eps_rel",
                kind: Kind::Positive,
                default: Fallback::Number(1e-6),
                meaning: "ε_rel, the first guess of the distance relative to 1 + ‖x_0‖",
            },
            Parameter {
                name: "eps",
                kind: Kind::NonNegative,
                default: Fallback::Number(1e-8),
                meaning: "added to the sum of squared norms",
            },
            Parameter {
                name: "eps_each",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "eps at every step (the authors' readme) or once (their code)",
            },
            FACTOR,
            Parameter {
                name: "first_step",
                kind: Kind::Positive,
                default: Fallback::Derived("eps_rel"),
                meaning: "the size of the first step, in place of what eps_rel makes of it",
            },
        ],
        reference: "Ivgi, Hinder & Carmon 2023",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Dog, SpecError> {
        let (eps_rel, eps, eps_each) =
            (spec.number("eps_rel"), spec.number("eps"), spec.word("eps_each") == "yes");
        let (lr, first_step) = (spec.number("lr"), spec.optional("first_step"));
        if first_step.is_some() && spec.is_given("eps_rel") {
            let why = "`eps_rel` and `first_step` both say how long the first step is; give one of them";
            return Err(SpecError::Unfit { owner: spec.name(), why: why.to_string() });
        }
        let root = if eps_each { 0.0 } else { eps.sqrt() };
        Ok(Dog { lr, first_step, eps_rel, eps, eps_each, radius: None, root })
    }
}

impl StepRule for Dog {
    fn needs(&self) -> Needs {
        Needs { distance: true, ..Needs::default() }
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        let distance = seen.distance.ok_or(Refusal::Missing { step: seen.step, what: "distance" })?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        if !seen.x0_norm.is_finite() {
            return Err(Refusal::NotFinite { step: seen.step, what: "x0_norm", value: seen.x0_norm });
        }
        let first = self.first_step.filter(|_| self.radius.is_none());
        let guess = if self.first_step.is_some() { 0.0 } else { self.eps_rel * (1.0 + seen.x0_norm) };
        let radius = self.radius.unwrap_or(guess).max(distance);
        let eps = if self.eps_each { self.eps.sqrt() } else { 0.0 };
        let root = vector::norm(&[self.root, seen.grad_norm, eps]);
        if root.is_infinite() {
            let (step, loss, grad_norm) = (seen.step, seen.loss, seen.grad_norm);
            return Err(Refusal::Overflow { step, loss, grad_norm, size: 0.0 });
        }
        let step = Step::new(first.unwrap_or(self.lr * radius / root), seen)?;
        (self.radius, self.root) = (Some(radius), root);
        Ok(step)
    }
}
