use crate::parameters::{Parameters as _, Running};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule};

parameters! {
    /// Gradient descent: `η_t = lr`.
    ///
    /// With `lr = 1/L` it converges at the rate of Theorem 1 (Nesterov, *Lectures on Convex Optimization*, 2018,
    /// Corollary 2.1.2). On mini-batches it is SGD.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::Gd};
    ///
    /// let mut rule = Gd { lr: 0.1 }.build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 0.1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Gd: "gd" or "sgd" {
        /// the learning rate
        lr: f64 = required, Positive;
    }
    formula: "lr",
    reference: "Nesterov 2018, Corollary 2.1.2 (Theorem 1 of the paper)",
}

impl StepRule for Running<Gd> {
    fn name(&self) -> &str {
        Gd::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        Step::new(self.lr, seen)
    }
}
