use crate::parameters::{Parameters as _, RunInfo, Running, Start, unfit};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule, over_square};
use crate::spec::SpecError;

parameters! {
    /// DecSPS: `η_t = min{(f − l)/‖g‖², c_{t−1} η_{t−1}}/c_t` with `c_t = c0 √(t+1)`; at `t = 0` the second term is `c0 γ`.
    ///
    /// The product `c_t η_t` never increases, so neither does the step. A step whose numerator is 0 has size 0 and is not
    /// remembered: it would stop the run for good.
    ///
    /// Published disagreement, as `grad_shift`: the authors' toy scripts divide by `‖g‖²`, their real-data scripts by
    /// `‖g + 1e-4‖²`, the shift added to every entry.
    ///
    /// Proved against a 256-bit computation of the formula, with and without the shift; the authors' scripts were not run.
    ///
    /// Reference: Orvieto, Lacoste-Julien & Loizou, *Dynamics of SGD with stochastic Polyak stepsizes*, 2022.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::Decsps};
    ///
    /// let mut rule = Decsps::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 8.0, 2.0))?.size, 2.0);
    /// assert_eq!(rule.step(&Observation::new(3, 8.0, 1.0))?.size, 1.0, "the smaller of 8 and 2, over √4");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Decsps: "decsps" {
        /// c_0, the scale of the decreasing sequence
        c0: f64 = 1.0, Positive;
        /// γ_b, the largest first step
        gamma: f64 = 10.0, Positive;
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
        /// added to every entry of g in ‖g‖²: 0 in the authors' toy scripts, 1e-4 in the real-data ones
        grad_shift: f64 = 0.0, NonNegative;
    }
    state: f64,
    formula: "min{(f − l)/‖g‖², c_{t−1} η_{t−1}}/c_t, c_t = c0 √(t+1); c0·gamma in place of the second at t = 0",
    reference: "Orvieto, Lacoste-Julien & Loizou 2022",
}

impl Start for Decsps {
    /// `c_t η_t` of the last step; at first `c0 γ`.
    fn start(&self, _: &RunInfo) -> Result<f64, SpecError> {
        let reach = self.c0 * self.gamma;
        if !reach.is_normal() {
            let why = format!("c0·gamma is {reach:e}; choose values whose product is an ordinary number");
            return Err(unfit::<Decsps>(why));
        }
        Ok(reach)
    }
}

impl StepRule for Running<Decsps> {
    fn name(&self) -> &str {
        Decsps::INFO.name
    }

    fn needs(&self) -> Needs {
        let shifted = self.grad_shift != 0.0;
        Needs { grad_sum: shifted, dimension: shifted, ..Needs::LOSS }
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
        let norm = if self.grad_shift == 0.0 { seen.grad_norm } else { shifted_norm(seen, self.grad_shift)? };
        let reach = over_square(gap.value, norm).min(self.state);
        let step = Step::new(reach / (seen.step as f64 + 1.0).sqrt() / self.c0, seen)?;
        self.state = reach;
        Ok(step)
    }
}

/// `‖g + s·1‖` from `‖g‖` and the sum of `g`.
fn shifted_norm(seen: &Observation, shift: f64) -> Result<f64, Refusal> {
    let (sum, entries) = (seen.grad_sum()?, seen.dimension()? as f64);
    let squared = seen.grad_norm * seen.grad_norm + 2.0 * shift * sum + entries * shift * shift;
    if squared.is_normal() && squared > 0.0 {
        return Ok(squared.sqrt());
    }
    // Where a square leaves the range: in units of the larger part.
    let root = entries.sqrt();
    let unit = seen.grad_norm.max(shift * root);
    let (norm, shifted) = (seen.grad_norm / unit, shift * root / unit);
    let squared = norm * norm + 2.0 * (shift / unit) * (sum / unit) + shifted * shifted;
    Ok(unit * squared.max(0.0).sqrt())
}
