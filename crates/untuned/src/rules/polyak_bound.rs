use crate::parameters::{Parameters as _, Running};
use crate::rule::{Observation, Refusal, Step, StepRule};

parameters! {
    /// Polyak's step size with a lower bound in place of the minimum: `η_t = (f − l)/‖g‖²`.
    ///
    /// The paper's "straightforward" variant (Section 4.1). It does not converge where `l < f*`: near the optimum `f − l`
    /// stays positive while `‖g‖` vanishes, and the step explodes. For networks this, with `l = 0`, is what the paper
    /// calls "Polyak with f* = 0".
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::PolyakBound};
    ///
    /// let mut rule = PolyakBound::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 1.75);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct PolyakBound: "polyak-bound" {
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
    }
    formula: "(f − l)/‖g‖²",
    reference: "Section 4.1 of the paper; Loizou et al. 2021",
}

impl StepRule for Running<PolyakBound> {
    fn name(&self) -> &str {
        PolyakBound::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound)?;
        Ok(Step::new(seen.over_squared_norm(gap.value), seen)?.mark(gap))
    }
}
