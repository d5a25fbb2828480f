use crate::parameters::{Parameters as _, RunInfo, Running, Start, unfit};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;
use crate::vector;
use serde::{Deserialize, Serialize};

parameters! {
    /// DoG, distance over gradients: `η_t = lr · r̄_t/√G_t`.
    ///
    /// `r̄_0 = eps_rel (1 + ‖x_0‖)`, `r̄_t = max(r̄_{t−1}, ‖x_t − x_0‖)`, `G_t = Σ_{s≤t}‖g_s‖² + eps`. It does not use the loss.
    /// The authors call a weighted average of the iterates mandatory for evaluation
    /// ([`Average::Polynomial`](crate::average::Average) with γ = 8); the paper plots the raw iterate. With `first_step` the first step
    /// has that size, and `r̄_0` is 0.
    ///
    /// Published disagreement, as `eps_each`: the authors' code adds `eps` once, their readme at every step.
    ///
    /// Reference: Ivgi, Hinder & Carmon, *DoG is SGD's best friend*, 2023.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::Dog};
    ///
    /// let mut rule = Dog { eps_rel: 0.5, eps: 0.0, ..Default::default() }.build(&RunInfo::new(100))?;
    /// let mut seen = Observation { x0_norm: Some(1.0), distance: Some(0.0), ..Observation::new(0, 7.0, 3.0) };
    /// assert_eq!(rule.step(&seen)?.size, 1.0 / 3.0);
    /// seen = Observation { step: 1, distance: Some(2.0), grad_norm: 4.0, ..seen };
    /// assert_eq!(rule.step(&seen)?.size, 2.0 / 5.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Dog: "dog" {
        /// ε_rel, the first guess of the distance relative to 1 + ‖x_0‖
        eps_rel: f64 = 1e-6, Positive;
        /// added to the sum of squared norms
        eps: f64 = 1e-8, NonNegative;
        /// add eps at every step (readme); no adds it once (code)
        eps_each: bool = false;
        /// multiplies the step
        lr: f64 = 1.0, Positive;
        /// the size of the first step; replaces eps_rel
        first_step: Option<f64> = "from eps_rel", Positive;
    }
    state: DogState,
    formula: "lr·r̄_t/√(Σ_{s≤t}‖g_s‖² + eps), r̄_t = max(eps_rel (1 + ‖x_0‖), max_{s≤t}‖x_s − x_0‖)",
    reference: "Ivgi, Hinder & Carmon 2023",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DogState {
    /// `r̄_t`.
    radius: Option<f64>,
    /// `√G_t`: the root and not the sum, so that norms whose squares leave the range are not lost.
    root: f64,
}

impl Start for Dog {
    fn start(&self, _: &RunInfo) -> Result<DogState, SpecError> {
        if self.first_step.is_some() && self.eps_rel != Dog::default().eps_rel {
            let why = "`eps_rel` and `first_step` both say how long the first step is; give one of them";
            return Err(unfit::<Dog>(why));
        }
        Ok(DogState { radius: None, root: if self.eps_each { 0.0 } else { self.eps.sqrt() } })
    }
}

impl StepRule for Running<Dog> {
    fn name(&self) -> &str {
        Dog::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { distance: true, x0_norm: self.first_step.is_none(), ..Needs::NOTHING }
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let (first, radius) = match (self.state.radius, self.first_step) {
            (Some(radius), _) => (None, radius),
            (None, None) => (None, self.eps_rel * (1.0 + seen.x0_norm()?)),
            (None, first) => (first, 0.0),
        };
        let radius = radius.max(seen.distance()?);
        let eps = if self.eps_each { self.eps.sqrt() } else { 0.0 };
        let root = vector::norm(&[self.state.root, seen.grad_norm, eps]);
        if root.is_infinite() {
            return Err(seen.overflow(0.0));
        }
        let step = Step::new(first.unwrap_or(self.lr * radius / root), seen)?;
        self.state = DogState { radius: Some(radius), root };
        Ok(step)
    }
}
