use crate::parameters::{Parameters as _, Running};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule};

parameters! {
    /// Clipped gradient descent: `η_t = lr · min(1, c/‖g‖)`, with the norm over all parameters.
    ///
    /// With `lr = 1/L0` and `c = L0/L1` it converges at the rate of Theorem 2 (Koloskova, Hendrikx & Stich, *Revisiting
    /// gradient clipping*, 2023, Theorem 2.3). `c = inf` is plain gradient descent. On mini-batches it is clipped SGD.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::ClippedGd};
    ///
    /// let mut rule = ClippedGd { lr: 0.1, threshold: 10.0 }.build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 7.0, 40.0))?.size, 0.025);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ClippedGd: "clipped-gd" or "clipped-sgd" {
        /// the learning rate
        lr: f64 = required, Positive;
        /// c, the longest gradient that is not shortened; inf for none
        threshold: f64 = required, PositiveOrInfinite;
    }
    formula: "lr · min(1, threshold/‖g‖)",
    reference: "Koloskova, Hendrikx & Stich 2023, Theorem 2.3 (Theorem 2 of the paper)",
}

impl StepRule for Running<ClippedGd> {
    fn name(&self) -> &str {
        ClippedGd::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        Step::new(self.lr * (self.threshold / seen.grad_norm).min(1.0), seen)
    }
}
