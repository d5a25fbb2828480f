use crate::parameters::{Parameters as _, RunInfo, Running, Start, unfit};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// AdaSPS: `η_t = min{(f − l)/(c_p ‖g‖² √(Σ_{s≤t}(f_s − l))), η_{t−1}}`, `η_{−1} = ∞`.
    ///
    /// By default `c_p = c_scale/√(f_0 − l)`, so that with `c_scale = 1` the first step is Polyak's; a constant `c_p` can be
    /// given instead, and behaves very differently. A step whose numerator is 0 has size 0 and is not remembered: it would
    /// stop the run for good.
    ///
    /// Proved against a 256-bit computation of the formula, for both kinds of `c_p`; the authors' scripts were not run.
    ///
    /// Reference: Jiang & Stich, *Adaptive SGD with Polyak stepsize and line-search*, 2023.
    ///
    /// ```
    /// use untuned::{Observation, RunInfo, StepRule, rules::Adasps};
    ///
    /// let mut rule = Adasps::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 9.0, 3.0))?.size, 1.0);
    /// let second = rule.step(&Observation::new(1, 16.0, 8.0))?;
    /// assert!((second.size - 0.15).abs() < 1e-15, "16·3/(64·√(9 + 16))");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Adasps: "adasps" {
        /// c_p = c_scale/√(f_0 − l); with 1 the first step is Polyak's
        c_scale: f64 = 1.0, Positive;
        /// a constant c_p instead
        c_p: Option<f64> = "from c_scale", Positive;
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
    }
    state: Sum,
    formula: "min{(f − l)/(c_p ‖g‖² √(Σ_{s≤t}(f_s − l))), η_{t−1}}, c_p = c_scale/√(f_0 − l)",
    reference: "Jiang & Stich 2023",
}

/// What is known of the steps before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// `√(f_0 − l)`.
    first_root: Option<f64>,
    /// `Σ (f_s − l)`.
    sum: f64,
    /// `η_{t−1}`.
    previous: Option<f64>,
}

impl Start for Adasps {
    fn start(&self, _: &RunInfo) -> Result<Sum, SpecError> {
        if self.c_p.is_some() && self.c_scale != Adasps::default().c_scale {
            return Err(unfit::<Adasps>("`c_scale` and `c_p` exclude each other; keep one of them"));
        }
        Ok(Sum::default())
    }
}

impl StepRule for Running<Adasps> {
    fn name(&self) -> &str {
        Adasps::INFO.name
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
        let first_root = self.state.first_root.unwrap_or_else(|| gap.value.sqrt());
        let sum = self.state.sum + gap.value;
        if sum.is_infinite() {
            return Err(seen.overflow(0.0));
        }
        let factor = match self.c_p {
            None => first_root / sum.sqrt() / self.c_scale,
            Some(c_p) => 1.0 / sum.sqrt() / c_p,
        };
        // The order of the product matters only where a part of it leaves the range although the whole does not.
        let product = seen.over_squared_norm(gap.value * factor);
        let candidate =
            if product.is_normal() { product } else { seen.over_squared_norm(gap.value) * factor };
        let step = Step::new(self.state.previous.map_or(candidate, |p| candidate.min(p)), seen)?;
        self.state = Sum { first_root: Some(first_root), sum, previous: Some(step.size) };
        Ok(step)
    }
}
