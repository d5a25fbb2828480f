use crate::parameters::{Parameters as _, Running};
use crate::rule::{Observation, Refusal, Step, StepRule};

parameters! {
    /// Inexact Polyak without a horizon: `η_t = (f − l)/(√(t+1) ‖g‖²)`.
    ///
    /// It can be stopped or continued at any step. **Theorem 5 does not cover it**: it is proved for the constant `√T` only.
    /// Ours, after Algorithm 1 of the paper.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::AnytimePolyak};
    ///
    /// let mut rule = AnytimePolyak::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(3, 7.0, 2.0))?.size, 0.875);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct AnytimePolyak: "anytime-polyak" {
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
    }
    formula: "(f − l)/(√(t+1) ‖g‖²)",
    reference: "ours, after Algorithm 1; outside the paper's theorem",
}

impl StepRule for Running<AnytimePolyak> {
    fn name(&self) -> &str {
        AnytimePolyak::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound)?;
        let root = (seen.step as f64 + 1.0).sqrt();
        Ok(Step::new(seen.over_squared_norm(gap.value / root), seen)?.mark(gap))
    }
}
