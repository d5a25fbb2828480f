//! What both MoMo methods have in common: a model of the loss.

use crate::optimizer::{check_held, check_sums};
use crate::rule::{Observation, Refusal, Step, StepKind};
use crate::space::Space;
use serde::{Deserialize, Serialize};

/// The numbers of both MoMo methods: the means of the loss and of `⟨g, x⟩`, and the bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Model {
    /// The bound in use; `lower_bound` or an estimate above it.
    bound: f64,
    /// `f̄`.
    loss: f64,
    /// `γ`.
    inner: f64,
    /// The lowest loss below `lower_bound`, where there was one.
    below: Option<f64>,
}

/// What a step depends on beside the observation.
pub(super) struct ModelInput {
    /// `l_0`.
    pub(super) lower_bound: f64,
    /// Whether a bound above `l_0` is estimated.
    pub(super) use_fstar: bool,
    /// The weight of the old means.
    pub(super) old_weight: f64,
    /// `ρ`.
    pub(super) correction: f64,
    /// `η`.
    pub(super) lr: f64,
    /// `λ`.
    pub(super) decay: f64,
}

/// What a model answers: the step where there is decay, and the size where there is none.
pub(super) struct Answer {
    pub(super) step: Step,
    pub(super) plain: f64,
}

impl Model {
    /// The model before the first step.
    pub(super) fn new(lower_bound: f64) -> Model {
        Model { bound: lower_bound, loss: 0.0, inner: 0.0, below: None }
    }

    /// The model after this observation, and the step. `sums` are `⟨x, d⟩`, `⟨x, g⟩` and `‖d‖²`, the last in the method's geometry.
    pub(super) fn step<S: Space>(
        &self,
        seen: &Observation,
        sums: [f64; 3],
        input: &ModelInput,
    ) -> Result<(Model, Answer), Refusal> {
        let &ModelInput { lower_bound, use_fstar, old_weight, correction, lr, decay } = input;
        check_sums(seen, &["⟨x, d⟩", "⟨x, g⟩", "‖d‖²"], &sums)?;
        let [dot, inner, norm] = sums;
        let latest = seen.loss()?;
        let loss = old_weight * self.loss + (1.0 - old_weight) * latest;
        let inner = old_weight * self.inner + (1.0 - old_weight) * inner;
        let gap = seen.above(lower_bound)?;
        let below = if gap.below { Some(self.below.unwrap_or(latest).min(latest)) } else { self.below };

        let longest = Step::new(lr / correction, seen)?.size;
        let above = |bound: f64, grown: f64| grown * (loss - correction * bound - inner) + dot;
        let size = |bound: f64, grown: f64| {
            if norm == 0.0 { 0.0 } else { (above(bound, grown).max(0.0) / norm).min(longest) }
        };
        let grown = 1.0 + lr * decay;
        let mut bound = self.bound;
        if use_fstar && above(bound, grown) < 0.0 {
            bound = (above(0.0, grown) / (2.0 * grown * correction)).max(lower_bound);
        }
        let (decayed, plain) = (size(bound, grown), size(bound, 1.0));
        if use_fstar {
            bound = ((loss + dot - inner - 0.5 * decayed * norm) / correction).max(lower_bound);
        }
        // A size that a vector cannot be multiplied with, or a model that is no number.
        let longer = decayed.max(plain);
        check_held::<S>(seen, &[longer, longer * norm.sqrt()])?;
        if !(above(bound, grown).is_finite() && bound.is_finite()) {
            return Err(seen.overflow(decayed));
        }
        let mut step = Step::new(decayed, seen)?.mark(gap);
        if norm == 0.0 {
            step.kind = StepKind::Stationary;
        }
        Ok((Model { bound, loss, inner, below }, Answer { step, plain }))
    }

    /// A warning of losses below the bound.
    pub(super) fn warning(&self, lower_bound: f64) -> Option<String> {
        let lowest = self.below?;
        Some(format!(
            "the loss fell to {lowest}, below lower_bound={lower_bound}, where steps become 0; choose a bound below every loss"
        ))
    }
}
