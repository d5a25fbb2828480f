use super::shared::Estimate;
use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, StepOptions, Vectors, check_held, check_square,
    check_sums, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start};
use crate::rule::{Needs, Step};
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// D-Adaptation for SGD: dual averaging whose rate is an estimate `d` of the distance to a solution.
    ///
    /// With `λ = d·lr/‖g_0‖`, where `g_0` is the first gradient:
    /// - `r ← r + λ·⟨g, s⟩`, then `s ← s + λ·g`;
    /// - `x ← momentum·x + (1 − momentum)·(x_0 − s)`;
    /// - `d ← max(d, 2·r/‖s‖)`, growing by at most `growth_rate` in a step.
    ///
    /// Weight decay adds `decay·x` to `g`, but not in `‖g_0‖`, as in the authors' code. Unlike there:
    /// - each coordinate has its own weight decay, and not that of the first parameter group;
    /// - a run waits for its first non-zero gradient;
    /// - a step of rate 0 changes nothing;
    /// - `d` stays when `s` returns to 0.
    ///
    /// Warm-up and schedule multiply `lr`. The gradient is taken as it is: [`StepOptions::clip`](crate::StepOptions::clip) has no
    /// effect.
    ///
    /// Reference: Defazio & Mishchenko, *Learning-rate-free learning by D-Adaptation*, 2023.
    ///
    /// ```
    /// use untuned::optimizers::DAdaptSgd;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let sgd = DAdaptSgd { d0: 0.5, ..Default::default() };
    /// let mut session = Session::new(sgd.build(&RunInfo::new(4))?, DenseF64::new(2))?;
    /// let (mut x, gradient, mut rates) = (vec![1.0, 1.0], vec![3.0, -4.0], Vec::new());
    /// for _ in 0..4 {
    ///     rates.push(session.advance(7.0, &mut x, &gradient)?.rate);
    /// }
    /// // ‖s‖ = d0, 2·d0, 3·d0 and r = 0, d0², 3·d0²: 2·r/‖s‖ is 0, then d0, then 2·d0, which the fourth step has.
    /// assert!(rates[..3] == [0.1; 3] && (rates[3] - 0.2).abs() < 1e-15);
    /// assert!((x[0] - (1.0 - 0.5 * 3.0)).abs() < 1e-15 && (x[1] - (1.0 + 0.5 * 4.0)).abs() < 1e-15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct DAdaptSgd: "d-adapt-sgd" {
        /// multiplies the rate that the method finds; leave it at 1
        lr: f64 = 1.0, Positive;
        /// the weight of the old x
        momentum: f64 = 0.0, Fraction;
        /// the first estimate of the distance to a solution; it only grows
        d0: f64 = 1e-6, Positive;
        /// the estimate grows by at most this factor in a step
        growth_rate: f64 = inf, PositiveOrInfinite;
    }
    state: DAdaptSgdState,
    formula: "x_0 − s, s the sum of d·lr·g/‖g_0‖, d the largest 2·r/‖s‖ so far, r the sum of ⟨d·lr·g/‖g_0‖, s⟩",
    reference: "Defazio & Mishchenko 2023",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DAdaptSgdState {
    /// `d`.
    estimate: Estimate,
    /// `r`.
    numerator: f64,
    /// `‖g_0‖`, from the first gradient on that is not 0.
    first_norm: Option<f64>,
}

impl Start for DAdaptSgd {
    fn start(&self, _: &RunInfo) -> Result<DAdaptSgdState, SpecError> {
        Ok(DAdaptSgdState { estimate: Estimate::new(self.d0), numerator: 0.0, first_norm: None })
    }
}

impl Running<DAdaptSgd> {
    /// `λ`.
    fn rate(&self, options: &StepOptions, first_norm: f64) -> f64 {
        self.state.estimate.value * self.lr * options.rate / first_norm
    }
}

/// `‖g‖²`, and with the decay in `g`, `⟨g, s⟩` and `‖s‖²` with the new `s`.
struct Sums;

impl Measure<1, 3, 3> for Sums {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>([rate]: [N; 1], TensorInfo { decay, .. }: TensorInfo<N>, [x, g, s]: [N; 3]) -> [N; 3] {
        let coupled = g + decay * x;
        let new = s + rate * coupled;
        [g * g, coupled * s, new * new]
    }
}

/// `s ← s + rate·g` and `x ← old_weight·x + (1 − old_weight)·(x_0 − s)`.
struct Adapt;

impl Change<2, 2, 2> for Adapt {
    #[inline(always)]
    fn each<N: Number>(
        [rate, old_weight]: [N; 2],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, s]: [N; 2],
        [g, x0]: [N; 2],
    ) -> [N; 2] {
        let s = s + rate * (g + decay * x);
        [old_weight * x + (N::of(1.0) - old_weight) * (x0 - s), s]
    }
}

/// State: `x_0` and one vector. A step is two passes: the first reads 3 vectors, the second reads 4 and writes 2.
impl Optimizer for Running<DAdaptSgd> {
    fn name(&self) -> &str {
        DAdaptSgd::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { x0: true, ..Needs::NOTHING }
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("s")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let x0 = vectors.x0();
        let Vectors { x, gradient, state, .. } = vectors;
        let [s] = named(state);
        let options = context.options;
        let DAdaptSgdState { estimate, numerator, first_norm } = self.state;
        // At the first gradient its norm is not known yet, nor needed: s is 0, and with it r and the estimate from it.
        let measured_rate = first_norm.map_or(1.0, |norm| self.rate(options, norm));
        let (seen, [_, product, square]) =
            context.observe_with(Sums, [measured_rate], options.weight_decay, [&*x, gradient, &*s])?;
        check_square::<S>(&seen, 1.0)?;
        let first_norm = first_norm.unwrap_or(seen.grad_norm);
        if first_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let rate = self.rate(options, first_norm);
        let step = Step::new(rate, &seen)?;
        check_sums(&seen, &["⟨g, s⟩", "‖s‖²"], &[product, square])?;
        check_held::<S>(&seen, &[rate, rate * seen.grad_norm])?;
        if rate == 0.0 {
            return Ok(step);
        }
        let norm = square.sqrt();
        let old = estimate.value;
        let numerator = numerator + rate * product;
        let found = if norm > 0.0 { 2.0 * numerator / norm } else { old };
        check_sums(&seen, &["the estimate of the distance"], &[found])?;
        let limit = old * self.growth_rate;
        self.state = DAdaptSgdState {
            estimate: estimate.next(old.max(found.min(limit))),
            numerator,
            first_norm: Some(first_norm),
        };
        context.change(Adapt, [rate, self.momentum], options.weight_decay, [x, s], [gradient, x0]);
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    /// `d`.
    fn estimate(&self) -> Option<f64> {
        Some(self.state.estimate.value)
    }

    fn warning(&self) -> Option<String> {
        self.state.estimate.warning(self.d0, &format!("d0={:.0e}", 100.0 * self.d0))
    }
}
