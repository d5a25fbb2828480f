use super::over_padded_square;
use crate::parameters::{Parameters as _, RunInfo, Running, Start, refuse_others};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;

parameters! {
    /// SPS_max, the capped stochastic Polyak step: `η_t = min{(f − l)/(c‖g‖² + eps), cap_t}`.
    ///
    /// With `cap=constant` the cap is `max_step`. With `cap=smooth`, the authors' default in their code, it is
    /// `gamma^(1/epoch) · η_{t−1}`: the step grows by the factor `gamma` in an epoch of `epoch` steps at most, from `first_step` on.
    /// A step whose numerator is 0 has size 0 and is not remembered: it would stop the run for good.
    ///
    /// Published disagreement, as `c`: 0.5 in the theory and as the code's default, 0.2 in the experiments with networks.
    /// The authors' code makes no step where `‖g‖ < 1e-8`; here only a gradient of 0 is stationary.
    ///
    /// Reference: Loizou, Vaswani, Laradji & Lacoste-Julien, *Stochastic Polyak step-size for SGD*, 2021.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::SpsMax};
    ///
    /// let mut rule = SpsMax { max_step: 3.0, eps: 0.0, ..Default::default() }.build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 8.0, 4.0))?.size, 1.0, "8/(16/2)");
    /// assert_eq!(rule.step(&Observation::new(1, 8.0, 2.0))?.size, 3.0, "at most 3, and not 8/(4/2)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct SpsMax: "sps-max" {
        /// c: 0.5 in the theory and the authors' code, 0.2 in their experiments with networks
        c: f64 = 0.5, Positive;
        /// the limit of the step: constant (max_step) or smooth (grows from step to step)
        cap: SpsMaxCap = Constant;
        /// γ_b, the largest step, for cap=constant
        max_step: f64 = inf, PositiveOrInfinite;
        /// η_{−1}, the step before the first, for cap=smooth
        first_step: f64 = 1.0, Positive;
        /// how much the step may grow in an epoch, for cap=smooth
        gamma: f64 = 2.0, Positive;
        /// the number of steps of an epoch, for cap=smooth
        epoch: u64 = 500, Whole(1, 1_000_000_000);
        /// added to c‖g‖²
        eps: f64 = 1e-8, NonNegative;
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
    }
    state: f64,
    formula: "min{(f − l)/(c‖g‖² + eps), cap}, the cap being max_step or gamma^(1/epoch)·η_{t−1}",
    reference: "Loizou, Vaswani, Laradji & Lacoste-Julien 2021",
}

words! {
    /// What limits the step of [`SpsMax`].
    pub enum SpsMaxCap {
        /// `max_step`.
        Constant = "constant",
        /// `gamma^(1/epoch)` times the step before.
        Smooth = "smooth",
    }
}

impl Start for SpsMax {
    /// The last step that was not 0; `first_step` at first.
    fn start(&self, _: &RunInfo) -> Result<f64, SpecError> {
        match self.cap {
            SpsMaxCap::Constant => refuse_others(self, &["first_step", "gamma", "epoch"], "cap=smooth")?,
            SpsMaxCap::Smooth => refuse_others(self, &["max_step"], "cap=constant")?,
        }
        Ok(self.first_step)
    }
}

impl StepRule for Running<SpsMax> {
    fn name(&self) -> &str {
        SpsMax::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound)?;
        if gap.value == 0.0 {
            return Ok(Step::new(0.0, seen)?.mark(gap));
        }
        let candidate = over_padded_square(gap.value, self.c, seen.grad_norm, self.eps);
        let cap = match self.cap {
            SpsMaxCap::Constant => self.max_step,
            SpsMaxCap::Smooth => self.gamma.powf(1.0 / self.epoch as f64) * self.state,
        };
        // Not `min`, which a candidate that is no number would lose.
        let step = Step::new(if candidate > cap { cap } else { candidate }, seen)?;
        if step.size > 0.0 {
            self.state = step.size;
        }
        Ok(step)
    }
}
