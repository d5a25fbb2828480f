use crate::parameters::{Parameters as _, RunInfo, Running, Start};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;

parameters! {
    /// Inexact Polyak Stepsize, Algorithm 1 of the paper: `η_t = (f − l)/(√T ‖g‖²)`.
    ///
    /// `T` is the horizon, the number of steps of the run, and `l` a lower bound of the loss. The answer of the algorithm
    /// is its **best** iterate over `x_0 … x_T`: near the optimum the steps explode by design, so the last iterate can be
    /// worse than `x_0`. Theorem 5 bounds the best one. (For networks the paper takes the last.)
    ///
    /// Reference: Takezawa, Bao, Sato, Niwa & Yamada, *Parameter-free Clipped Gradient Descent Meets Polyak*, NeurIPS 2024.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::InexactPolyak};
    ///
    /// let mut rule = InexactPolyak::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 0.175);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct InexactPolyak: "inexact-polyak" {
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
        /// after T steps: never go on, keep √T, or grow to √(t+1)
        extend: InexactPolyakExtend = Never;
    }
    state: u64,
    formula: "(f − l)/(√T ‖g‖²)",
    reference: "Takezawa, Bao, Sato, Niwa & Yamada 2024, Algorithm 1",
}

words! {
    /// What Inexact Polyak does when a run is longer than its horizon. The theorem speaks of none of these runs.
    pub enum InexactPolyakExtend {
        /// Refuse.
        Never = "never",
        /// Go on with `√T` of the horizon.
        Keep = "keep",
        /// Go on with `√(t + 1)`.
        Grow = "grow",
    }
}

impl Start for InexactPolyak {
    /// `T`.
    fn start(&self, run: &RunInfo) -> Result<u64, SpecError> {
        Ok(run.steps)
    }
}

impl StepRule for Running<InexactPolyak> {
    fn name(&self) -> &str {
        InexactPolyak::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        let horizon = self.state;
        let steps = match self.extend {
            _ if seen.step < horizon => horizon,
            InexactPolyakExtend::Never => {
                let remedy = "make it with a larger number of steps, or add `extend=keep` or `extend=grow`";
                return Err(Refusal::PastHorizon { step: seen.step, horizon, remedy });
            }
            InexactPolyakExtend::Keep => horizon.max(1),
            InexactPolyakExtend::Grow => seen.step.saturating_add(1),
        };
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound)?;
        Ok(Step::new(seen.over_squared_norm(gap.value / (steps as f64).sqrt()), seen)?.mark(gap))
    }
}
