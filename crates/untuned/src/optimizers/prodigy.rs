use super::shared::{self, Adapt, BiasCorrection, Estimate};
use crate::formula::{Measure, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, StepOptions, Vectors, check_held, check_square,
    check_sums, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, unfit};
use crate::rule::{Needs, Step};
use crate::space::Space;
use crate::spec::{SpecError, number};
use serde::{Deserialize, Serialize};

parameters! {
    /// Prodigy: Adam whose rate is an estimate `d` of the distance to a solution, `x ← x·(1 − δ·decay) − δ·m/(√v + d'·eps)`.
    ///
    /// With `δ = d·lr` and `d'` the estimate after the step:
    /// - `m ← β1·m + (1 − β1)·d·g`, `v ← β2·v + (1 − β2)·d²·g²`;
    /// - `s ← β3·s + (d/d0)·δ·g` and `r ← β3·r + (d/d0)·δ·⟨g, x_0 − x⟩`;
    /// - `d̂ = d_coef·r/‖s‖₁`; the estimate grows to the largest `d̂` so far, by at most `growth_rate` in a step.
    ///
    /// `bias_correction=yes` multiplies `δ` with `√(1 − β2ᵗ)/(1 − β1ᵗ)`; the authors' code leaves it out unless asked, optax always has
    /// it. `safeguard_warmup=yes` leaves `lr` out of `s`. `decouple=no` adds `decay·x` to `g` instead. Without `m` (`beta1=0`) the step
    /// has `d'·g` in its place, as in the authors' code. A step of rate 0 changes nothing, and one that ends with `s = 0` no more than `m`,
    /// `v` and `s`.
    ///
    /// Warm-up and schedule multiply `lr`. The gradient is taken as it is: [`StepOptions::clip`](crate::StepOptions::clip) has no effect. The authors' `slice_p` leaves
    /// coordinates out of the estimate to save memory; it is not offered.
    ///
    /// Reference: Mishchenko & Defazio, *Prodigy: an expeditiously adaptive parameter-free learner*, 2024.
    ///
    /// ```
    /// use untuned::optimizers::Prodigy;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let prodigy = Prodigy { beta2: 0.99, beta3: Some(0.0), d_coef: 4.0, d0: 0.5, ..Default::default() };
    /// let mut session = Session::new(prodigy.build(&RunInfo::new(3))?, DenseF64::new(2))?;
    /// let (mut x, gradient, mut rates) = (vec![1.0, 1.0], vec![3.0, -4.0], Vec::new());
    /// for t in 0..3 {
    ///     rates.push(session.advance(7.0, &mut x, &gradient)?.rate);
    ///     if t == 0 {
    ///         // m/√v is 0.1·d·g/(0.1·d·|g|): the first step has length d0 in every coordinate.
    ///         assert!((x[0] - 0.5).abs() < 1e-6 && (x[1] - 1.5).abs() < 1e-6);
    ///     }
    /// }
    /// // The second sees ⟨g, x_0 − x⟩ = 0.5·7 and ‖s‖₁ = 0.5·7, so that d̂ = 4·0.5; the third goes with it.
    /// assert!(rates[..2] == [0.5, 0.5] && (rates[2] - 2.0).abs() < 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Prodigy: "prodigy" {
        /// multiplies the rate that the method finds; leave it at 1
        lr: f64 = 1.0, Positive;
        /// β1, the weight of the old mean of g
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.999, Fraction;
        /// β3, the weight of the old sums behind the estimate
        beta3: Option<f64> = "√beta2", Fraction;
        /// added to the root of the mean of g²
        eps: f64 = 1e-8, Positive;
        /// decoupled weight decay (AdamW); no adds it to g
        decouple: bool = true;
        /// Adam's bias correction (authors: off; optax: always on)
        bias_correction: bool = false;
        /// leave the rate out of s, for runs with a warm-up
        safeguard_warmup: bool = false;
        /// the first estimate of the distance to a solution; it only grows
        d0: f64 = 1e-6, Positive;
        /// multiplies every new estimate
        d_coef: f64 = 1.0, Positive;
        /// the estimate grows by at most this factor in a step
        growth_rate: f64 = inf, PositiveOrInfinite;
    }
    state: ProdigyState,
    formula: "Adam with the rate lr·d, d the largest d_coef·r/‖s‖₁ so far, r and s sums of ⟨g, x_0 − x⟩ and g with weights \
        d²·beta3^age",
    reference: "Mishchenko & Defazio 2024",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProdigyState {
    /// `d`.
    estimate: Estimate,
    /// The largest `d̂`, or `d0`.
    largest: f64,
    /// `r`.
    numerator: f64,
    correction: BiasCorrection,
}

impl Start for Prodigy {
    fn start(&self, _: &RunInfo) -> Result<ProdigyState, SpecError> {
        let (product, smallest) = (self.d0 * self.eps, f64::from(f32::MIN_POSITIVE));
        if product < smallest {
            let product = number(product);
            return Err(unfit::<Prodigy>(format!(
                "d0·eps = {product} is 0 to a network's 32-bit floats; choose them so that it is at least {smallest:.1e}"
            )));
        }
        Ok(ProdigyState {
            estimate: Estimate::new(self.d0),
            largest: self.d0,
            numerator: 0.0,
            correction: BiasCorrection::START,
        })
    }
}

impl Running<Prodigy> {
    /// `δ`, and what `s` gets of the gradient.
    fn rates(&self, options: &StepOptions) -> (f64, f64) {
        let d = self.state.estimate.value;
        let correction = self.state.correction.next(self.beta1, self.beta2);
        let corrected = if self.bias_correction { correction.rate() } else { 1.0 };
        let rate = d * self.lr * options.rate * corrected;
        (rate, d / self.d0 * if self.safeguard_warmup { d } else { rate })
    }
}

/// `‖g‖²`, and with the decay in `g`, `⟨g, x_0 − x⟩` and `‖s‖₁` with the new `s`.
struct Sums;

impl Measure<2, 4, 3> for Sums {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>(
        [old_s, new_s]: [N; 2],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, g, s, x0]: [N; 4],
    ) -> [N; 3] {
        let coupled = g + decay * x;
        [g * g, coupled * (x0 - x), (old_s * s + new_s * coupled).abs()]
    }
}

/// State: `x_0` and three vectors. A step is two passes: the first reads 4 vectors, the second reads 5 and writes 4.
impl Optimizer for Running<Prodigy> {
    fn name(&self) -> &str {
        Prodigy::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { x0: true, ..Needs::NOTHING }
    }

    fn state(&self) -> Vec<StateVector> {
        ["m", "v", "s"].map(StateVector::zeros).to_vec()
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let x0 = vectors.x0();
        let Vectors { x, gradient, state, .. } = vectors;
        let [m, v, s] = named(state);
        let options = context.options;
        let beta3 = self.beta3.unwrap_or(self.beta2.sqrt());
        let (rate, new_s) = self.rates(options);
        let coupled = if self.decouple { 0.0 } else { options.weight_decay };
        let read = [&*x, gradient, &*s, x0];
        let (seen, [_, product, norm]) = context.observe_with(Sums, [beta3, new_s], coupled, read)?;
        check_square::<S>(&seen, 1.0)?;
        let step = Step::new(rate, &seen)?;
        check_sums(&seen, &["⟨g, x_0 − x⟩", "‖s‖₁"], &[product, norm])?;
        // The state vectors have the estimate in them: `m` once, `v` twice.
        let ProdigyState { estimate, largest, numerator, correction } = self.state;
        let old = estimate.value;
        let longest = old * seen.grad_norm;
        check_held::<S>(&seen, &[rate, rate * longest, longest * longest, new_s, new_s * seen.grad_norm])?;
        if rate == 0.0 {
            return Ok(step);
        }
        let step = if norm > 0.0 {
            let numerator = beta3 * numerator + old / self.d0 * rate * product;
            let found = self.d_coef * numerator / norm;
            check_sums(&seen, &["the estimate of the distance"], &[found])?;
            let grown = if old == self.d0 { old.max(found) } else { old };
            let largest = largest.max(found);
            self.state = ProdigyState {
                estimate: estimate.next(largest.min(grown * self.growth_rate)),
                largest,
                numerator,
                correction: correction.next(self.beta1, self.beta2),
            };
            step
        } else {
            shared::standing(&seen)
        };
        let d = self.state.estimate.value;
        let size = if self.beta1 > 0.0 { step.size } else { step.size * d / old };
        let (couple, shrink) = if self.decouple { (0.0, step.size) } else { (1.0, 0.0) };
        let scalars = [
            couple,
            shrink,
            self.beta1,
            old * (1.0 - self.beta1),
            self.beta2,
            old * old * (1.0 - self.beta2),
            beta3,
            new_s,
            size,
            d * self.eps,
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
        self.state.estimate.warning(self.d0, &format!("d0={:.0e} or d_coef=2", 100.0 * self.d0))
    }
}
