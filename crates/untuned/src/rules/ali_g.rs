use super::over_padded_square;
use crate::parameters::{Parameters as _, Running};
use crate::rule::{Observation, Refusal, Step, StepRule};

parameters! {
    /// ALI-G: `η_t = min{(f − l)/(‖g‖² + eps), max_lr}`.
    ///
    /// The authors assume interpolation, `l = 0`: every sample can be fitted. Their code has Nesterov momentum and a projection onto a
    /// ball as options, both off by default; a scalar rule has neither.
    ///
    /// Reference: Berrada, Zisserman & Kumar, *Training neural networks for and by interpolation*, 2020.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::AliG};
    ///
    /// let mut rule = AliG { max_lr: 0.5, eps: 7.0, ..Default::default() }.build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 4.0, 3.0))?.size, 0.25, "4/(9 + 7)");
    /// assert_eq!(rule.step(&Observation::new(1, 32.0, 3.0))?.size, 0.5, "at most 0.5, and not 32/(9 + 7)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct AliG: "ali-g" {
        /// the largest step
        max_lr: f64 = inf, PositiveOrInfinite;
        /// added to ‖g‖²
        eps: f64 = 1e-5, NonNegative;
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
    }
    formula: "min{(f − l)/(‖g‖² + eps), max_lr}",
    reference: "Berrada, Zisserman & Kumar 2020",
}

impl StepRule for Running<AliG> {
    fn name(&self) -> &str {
        AliG::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound)?;
        let candidate = over_padded_square(gap.value, 1.0, seen.grad_norm, self.eps);
        // Not `min`, which a candidate that is no number would lose.
        Ok(Step::new(if candidate > self.max_lr { self.max_lr } else { candidate }, seen)?.mark(gap))
    }
}
