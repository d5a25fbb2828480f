//! What both MoMo methods have in common: two parameters, and a model of the loss.

use super::{Space, shared};
use crate::rule::{Observation, Refusal, Step, StepKind};
use crate::spec::{Fallback, Kind, Parameter, Spec};
use serde::{Deserialize, Serialize};

pub(super) const USE_FSTAR: Parameter = Parameter {
    name: "use_fstar",
    kind: Kind::Word(&["no", "yes"]),
    default: Fallback::Word("no"),
    meaning: "estimate a bound above lower_bound on the way",
};

pub(super) const DECAY_FIRST: Parameter = Parameter {
    name: "decay_first",
    kind: Kind::Word(&["no", "yes"]),
    default: Fallback::Word("no"),
    meaning: "divide by 1 + lr·decay after the step (the authors' code) or before it (optax)",
};

/// The numbers of both MoMo methods: the means of the loss and of `⟨g, x⟩`, and the bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Model {
    lower_bound: f64,
    use_fstar: bool,
    /// The bound in use; `lower_bound` or an estimate above it.
    bound: f64,
    /// `f̄`.
    loss: f64,
    /// `γ`.
    inner: f64,
    /// The lowest loss below `lower_bound`, where there was one.
    below: Option<f64>,
}

/// What a model answers: the step where there is decay, and the size where there is none.
pub(super) struct Answer {
    pub(super) step: Step,
    pub(super) plain: f64,
}

impl Model {
    pub(super) fn new(spec: &Spec) -> Model {
        let (lower_bound, use_fstar) = (spec.number("lower_bound"), shared::yes(spec, "use_fstar"));
        Model { lower_bound, use_fstar, bound: lower_bound, loss: 0.0, inner: 0.0, below: None }
    }

    /// The model after this observation, and the step. `sums` are `⟨x, d⟩`, `⟨x, g⟩` and `‖d‖²`, the last in the method's geometry;
    /// `old` is how much of the means is kept, `correction` is `ρ`.
    pub(super) fn step<S: Space>(
        &self,
        seen: &Observation,
        sums: &[f64],
        old: f64,
        correction: f64,
        lr: f64,
        decay: f64,
    ) -> Result<(Model, Answer), Refusal> {
        seen.check()?;
        super::check_sums(seen, &["⟨x, d⟩", "⟨x, g⟩", "‖d‖²"], sums)?;
        let &[dot, inner, norm] = sums else { panic!("MoMo measures three sums, not {}", sums.len()) };
        let mut model = self.clone();
        model.loss = old * self.loss + (1.0 - old) * seen.loss;
        model.inner = old * self.inner + (1.0 - old) * inner;
        let gap = seen.above(self.lower_bound);
        if gap.below {
            model.below = Some(self.below.unwrap_or(seen.loss).min(seen.loss));
        }

        let longest = Step::new(lr / correction, seen)?.size;
        let above = |bound: f64, grown: f64| grown * (model.loss - correction * bound - model.inner) + dot;
        let size = |bound: f64, grown: f64| {
            if norm == 0.0 { 0.0 } else { (above(bound, grown).max(0.0) / norm).min(longest) }
        };
        let grown = 1.0 + lr * decay;
        let mut bound = self.bound;
        if self.use_fstar && above(bound, grown) < 0.0 {
            bound = (above(0.0, grown) / (2.0 * grown * correction)).max(self.lower_bound);
        }
        let (decayed, plain) = (size(bound, grown), size(bound, 1.0));
        if self.use_fstar {
            bound =
                ((model.loss + dot - model.inner - 0.5 * decayed * norm) / correction).max(self.lower_bound);
        }
        // A size that a vector cannot be multiplied with, or a model that is no number.
        let longer = decayed.max(plain);
        super::check_held::<S>(seen, &[longer, longer * norm.sqrt()])?;
        if !(above(bound, grown).is_finite() && bound.is_finite()) {
            let (step, loss, grad_norm) = (seen.step, seen.loss, seen.grad_norm);
            return Err(Refusal::Overflow { step, loss, grad_norm, size: decayed });
        }
        model.bound = bound;
        let mut step = Step::new(decayed, seen)?.mark(gap);
        if norm == 0.0 {
            step.kind = StepKind::Stationary;
        }
        Ok((model, Answer { step, plain }))
    }

    pub(super) fn concern(&self) -> Option<String> {
        let (bound, lowest) = (self.lower_bound, self.below?);
        Some(format!(
            "the loss went down to {lowest}, below lower_bound={bound}: steps are too short or 0 near and below the bound; \
             choose a bound below every loss"
        ))
    }
}
