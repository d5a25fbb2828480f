use super::shared::{self, Adapt, BiasCorrection, Estimate};
use crate::formula::{Measure, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, StepOptions, Vectors, check_held, check_square,
    check_sums, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps};
use crate::rule::Step;
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// D-Adaptation for Adam: the rate is an estimate `d` of the distance to a solution, `x ← x − m/(√v + eps)`.
    ///
    /// With `δ = d·lr` and `q = √β2`, in this order:
    /// - `r ← q·r + (1 − q)·δ·⟨g, s/(√v + eps)⟩`;
    /// - `m ← β1·m + (1 − β1)·δ·g`, `v ← β2·v + (1 − β2)·g²`, `s ← q·s + (1 − q)·δ·g`;
    /// - `d ← max(d, r/((1 − q)·‖s‖₁))`, growing by at most `growth_rate` in a step.
    ///
    /// `bias_correction=yes` multiplies `δ` with `√(1 − β2ᵗ)/(1 − β1ᵗ)`; the authors' code leaves it out unless asked, optax always has
    /// it. Weight decay adds `decay·x` to `g` (`decouple=no`, the authors' default) or subtracts `δ·decay·x` from `x` (`decouple=yes`,
    /// as in optax). A step of rate 0 changes nothing, and one that ends with `s = 0` no more than `m`, `v` and `s`.
    ///
    /// Warm-up and schedule multiply `lr`. The gradient is taken as it is: [`StepOptions::clip`](crate::StepOptions::clip) has no
    /// effect.
    ///
    /// Reference: Defazio & Mishchenko, *Learning-rate-free learning by D-Adaptation*, 2023.
    ///
    /// ```
    /// use untuned::optimizers::DAdaptAdam;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let adam = DAdaptAdam { lr: 6.0, beta1: 0.5, beta2: 0.25, eps: 1e-9, d0: 0.5, ..Default::default() };
    /// let mut session = Session::new(adam.build(&RunInfo::new(3))?, DenseF64::new(2))?;
    /// let (mut x, gradient, mut rates) = (vec![1.0, 1.0], vec![3.0, -4.0], Vec::new());
    /// for t in 0..3 {
    ///     rates.push(session.advance(7.0, &mut x, &gradient)?.rate);
    ///     if t == 0 {
    ///         // m = 0.5·3·g over √v = √0.75·|g|.
    ///         assert!((x[0] - (1.0 - 1.5 / 0.75f64.sqrt())).abs() < 1e-8);
    ///     }
    /// }
    /// // s = 1.5·g and √v = √0.75·|g| make r = 0.5·3·1.5·7/√0.75; with s = 2.25·g after it, d = r/(0.5·2.25·7) = 2/√0.75.
    /// assert!(rates[..2] == [3.0, 3.0] && (rates[2] - 12.0 / 0.75f64.sqrt()).abs() < 1e-7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct DAdaptAdam: "d-adapt-adam" {
        /// multiplies the rate that the method finds; leave it at 1
        lr: f64 = 1.0, Positive;
        /// β1, the weight of the old mean of g
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.999, Fraction;
        /// added to the root of the mean of g²
        eps: f64 = 1e-8, Positive;
        /// decoupled weight decay (AdamW); no adds it to g
        decouple: bool = false;
        /// Adam's bias correction (authors: off; optax: always on)
        bias_correction: bool = false;
        /// the first estimate of the distance to a solution; it only grows
        d0: f64 = 1e-6, Positive;
        /// the estimate grows by at most this factor in a step
        growth_rate: f64 = inf, PositiveOrInfinite;
    }
    state: DAdaptAdamState,
    formula: "Adam with the rate lr·d, d the largest r/‖s‖₁ so far, r and s means of ⟨g, s/(√v + eps)⟩ and g with weights \
        lr·d·√beta2^age",
    reference: "Defazio & Mishchenko 2023",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DAdaptAdamState {
    /// `d`.
    estimate: Estimate,
    /// `r`.
    numerator: f64,
    /// The correction for means that start at 0.
    correction: BiasCorrection,
}

impl Start for DAdaptAdam {
    fn start(&self, _: &RunInfo) -> Result<DAdaptAdamState, SpecError> {
        check_eps::<DAdaptAdam>("eps", self.eps)?;
        Ok(DAdaptAdamState {
            estimate: Estimate::new(self.d0),
            numerator: 0.0,
            correction: BiasCorrection::START,
        })
    }
}

impl Running<DAdaptAdam> {
    /// `δ`.
    fn rate(&self, options: &StepOptions) -> f64 {
        let correction = self.state.correction.next(self.beta1, self.beta2);
        let corrected = if self.bias_correction { correction.rate() } else { 1.0 };
        self.state.estimate.value * self.lr * options.rate * corrected
    }
}

/// `‖g‖²`, and with the decay in `g`, `⟨g, s/(√v + eps)⟩` with the old `s` and `v`, and `‖s‖₁` with the new `s`.
struct Sums;

impl Measure<3, 4, 3> for Sums {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>(
        [old_s, new_s, eps]: [N; 3],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, g, v, s]: [N; 4],
    ) -> [N; 3] {
        let coupled = g + decay * x;
        [g * g, coupled * s / (v.sqrt() + eps), (old_s * s + new_s * coupled).abs()]
    }
}

/// State: three vectors. A step is two passes: the first reads 4 vectors, the second reads 5 and writes 4.
impl Optimizer for Running<DAdaptAdam> {
    fn name(&self) -> &str {
        DAdaptAdam::INFO.name
    }

    fn state(&self) -> Vec<StateVector> {
        ["m", "v", "s"].map(StateVector::zeros).to_vec()
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [m, v, s] = named(state);
        let options = context.options;
        let rate = self.rate(options);
        let root = self.beta2.sqrt();
        let new_s = (1.0 - root) * rate;
        let coupled = if self.decouple { 0.0 } else { options.weight_decay };
        let read = [&*x, gradient, &*v, &*s];
        let (seen, [_, product, norm]) =
            context.observe_with(Sums, [root, new_s, self.eps], coupled, read)?;
        check_square::<S>(&seen, 1.0)?;
        let step = Step::new(rate, &seen)?;
        check_sums(&seen, &["⟨g, s/√v⟩", "‖s‖₁"], &[product, norm])?;
        check_held::<S>(&seen, &[rate, rate * seen.grad_norm])?;
        if rate == 0.0 {
            return Ok(step);
        }
        let DAdaptAdamState { estimate, numerator, correction } = self.state;
        let old = estimate.value;
        let step = if norm > 0.0 {
            let numerator = root * numerator + (1.0 - root) * rate * product;
            let found = numerator / ((1.0 - root) * norm);
            check_sums(&seen, &["the estimate of the distance"], &[found])?;
            let limit = old * self.growth_rate;
            self.state = DAdaptAdamState {
                estimate: estimate.next(old.max(found.min(limit))),
                numerator,
                correction: correction.next(self.beta1, self.beta2),
            };
            step
        } else {
            shared::standing(&seen)
        };
        // The rate is in `m` already.
        let moves = if norm > 0.0 { 1.0 } else { 0.0 };
        let (couple, shrink) = if self.decouple { (0.0, step.size) } else { (1.0, 0.0) };
        let scalars = [
            couple,
            shrink,
            self.beta1,
            (1.0 - self.beta1) * rate,
            self.beta2,
            1.0 - self.beta2,
            root,
            new_s,
            moves,
            self.eps,
        ];
        context.change(Adapt, scalars, options.weight_decay, [x, m, v, s], [gradient]);
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
