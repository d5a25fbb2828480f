use crate::parameters::{Parameters as _, RunInfo, Running, Start, unfit};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;
use crate::vector;
use serde::{Deserialize, Serialize};

parameters! {
    /// DoWG, distance over weighted gradients: `η_t = lr · r̄_t²/(√v_t + eps)`.
    ///
    /// `r̄_0² = r2`, `r̄_t = max(r̄_{t−1}, ‖x_t − x_0‖)`, `v_t = Σ_{s≤t} r̄_s²‖g_s‖²`. It does not use the loss. The authors' code has one number,
    /// `eps`, for both `eps` and `r2`, a squared distance; `lr` and `r2` come from optax.
    ///
    /// Reference: Khaled, Mishchenko & Jin, *DoWG unleashed*, 2023.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::Dowg};
    ///
    /// let mut rule = Dowg { r2: Some(4.0), eps: 2.0, ..Default::default() }.build(&RunInfo::new(100))?;
    /// let mut seen = Observation { distance: Some(0.0), ..Observation::new(0, 7.0, 3.0) };
    /// assert_eq!(rule.step(&seen)?.size, 0.5, "4/(√(4·9) + 2)");
    /// seen = Observation { step: 1, distance: Some(4.0), grad_norm: 2.0, ..seen };
    /// assert_eq!(rule.step(&seen)?.size, 4.0 / 3.0, "16/(√(36 + 16·4) + 2)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Dowg: "dowg" {
        /// multiplies the step
        lr: f64 = 1.0, Positive;
        /// the first guess of the squared distance
        r2: Option<f64> = "eps", Positive;
        /// added to the root of the sum
        eps: f64 = 1e-4, NonNegative;
    }
    state: DowgState,
    formula: "lr·r̄_t²/(√(Σ_{s≤t} r̄_s²‖g_s‖²) + eps), r̄_t² = max(r2, max_{s≤t}‖x_s − x_0‖²)",
    reference: "Khaled, Mishchenko & Jin 2023",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DowgState {
    /// `r̄_t`; at first `√r2`.
    radius: f64,
    /// `√v_t`: the root and not the sum, so that norms whose squares leave the range are not lost.
    root: f64,
}

impl Start for Dowg {
    fn start(&self, _: &RunInfo) -> Result<DowgState, SpecError> {
        let squared = self.r2.unwrap_or(self.eps);
        if squared == 0.0 {
            return Err(unfit::<Dowg>(
                "with eps=0 the first distance is 0 and nothing ever moves; give `r2`",
            ));
        }
        Ok(DowgState { radius: squared.sqrt(), root: 0.0 })
    }
}

impl StepRule for Running<Dowg> {
    fn name(&self) -> &str {
        Dowg::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { distance: true, ..Needs::NOTHING }
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let radius = self.state.radius.max(seen.distance()?);
        let root = vector::norm(&[self.state.root, radius * seen.grad_norm]);
        if root.is_infinite() {
            return Err(seen.overflow(0.0));
        }
        let step = Step::new(radius / (root + self.eps) * radius * self.lr, seen)?;
        self.state = DowgState { radius, root };
        Ok(step)
    }
}
