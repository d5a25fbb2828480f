use crate::parameters::{Parameters as _, RunInfo, Running, Start, unfit};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;

parameters! {
    /// Polyak's step size: `η_t = (f − f*)/‖g‖²`.
    ///
    /// It needs the minimum `f*`, and then converges like clipped gradient descent with the best rate and threshold
    /// (Theorem 4). Reference: Polyak, *Introduction to Optimization*, 1987.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::Polyak};
    ///
    /// let mut rule = Polyak { f_star: Some(1.0) }.build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 7.0, 2.0))?.size, 1.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Polyak: "polyak" {
        /// f*, the minimum of the loss
        f_star: Option<f64> = "from the problem, where it is known", Finite;
    }
    state: f64,
    formula: "(f − f*)/‖g‖²",
    reference: "Polyak 1987; Theorems 3 and 4 of the paper",
}

impl Start for Polyak {
    fn start(&self, run: &RunInfo) -> Result<f64, SpecError> {
        let known = self.f_star.or(run.f_star.filter(|f| f.is_finite()));
        let why = "the minimum is not known here; write `polyak:f_star=…`, or use `inexact-polyak`";
        known.ok_or_else(|| unfit::<Polyak>(why))
    }
}

impl StepRule for Running<Polyak> {
    fn name(&self) -> &str {
        Polyak::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.state)?;
        Ok(Step::new(seen.over_squared_norm(gap.value), seen)?.mark(gap))
    }
}
