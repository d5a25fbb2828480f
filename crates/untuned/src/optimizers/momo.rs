use super::momo_model::{Model, ModelInput};
use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::optimizer::{Optimizer, SessionError, StateVector, StepContext, Vectors, named};
use crate::parameters::{Parameters as _, RunInfo, Running, Start};
use crate::rule::{Needs, Step};
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// MoMo, momentum with a Polyak step: `x ← (x − τ·d)/(1 + η·λ)`, `τ = min{η/ρ, max(h, 0)/‖d‖²}`.
    ///
    /// `d`, `f̄` and `γ` are running means with the weight `beta` of the gradient, the loss and `⟨g, x⟩`; they begin with the first
    /// values, and `ρ = 1`. With `bias_correction=yes` they begin with 0, and `ρ = 1 − betaᵗ`, `t` from 1.
    /// `h = (1 + η·λ)·(f̄ − ρ·l − γ) + ⟨d, x⟩` is how far the mean of the linear models of all losses is above the bound `l` at `x`.
    /// `η` is `lr`, the largest step, times the schedule's factor, and `λ` the weight decay. Coordinates without weight decay use the
    /// `τ` of `λ = 0`, as in the authors' parameter groups. The reported rate is that of the decayed ones.
    ///
    /// With `use_fstar=yes` the bound is estimated: `l ← max(l_0, (f̄ + ⟨d, x⟩ − γ − τ‖d‖²/2)/ρ)` after every step, and before one the
    /// bound is halved to `max(l_0, (h + (1 + η·λ)·ρ·l)/(2(1 + η·λ)·ρ))` where `h < 0`; `l_0` is `lower_bound`.
    ///
    /// Published disagreement, as `decay_first`: the authors' code divides by `1 + η·λ` after the step, optax before it.
    /// The gradient is taken as it is, because the step is measured before its norm is known:
    /// [`StepOptions::clip`](crate::StepOptions::clip) has no effect.
    ///
    /// Reference: Schaipp, Ohana, Eickenberg, Defazio & Gower, *MoMo: Momentum models for adaptive learning rates*, 2024.
    ///
    /// ```
    /// use untuned::optimizers::Momo;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let momo = Momo { beta: 0.5, lr: 10.0, ..Default::default() };
    /// let mut session = Session::new(momo.build(&RunInfo::new(2))?, DenseF64::new(1))?;
    /// let mut x = vec![8.0];
    /// // d = 4, f̄ = 8, γ = 32: h = 8 − 32 + 32, τ = 8/16. Then d = 3, f̄ = 6, γ = (32 + 2·6)/2: h = 6 − 22 + 3·6, τ = 2/9.
    /// for (loss, gradient, tau, wanted) in [(8.0, 4.0, 0.5, 6.0), (4.0, 2.0, 2.0 / 9.0, 16.0 / 3.0)] {
    ///     assert_eq!(session.advance(loss, &mut x, &vec![gradient])?.rate, tau);
    ///     assert!((x[0] - wanted).abs() < 1e-15);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Momo: "momo" {
        /// the largest step
        lr: f64 = 1.0, Positive;
        /// the weight of the old means
        beta: f64 = 0.9, Fraction;
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
        /// start the means at 0 and correct the bias; no starts them at the first values
        bias_correction: bool = false;
        /// estimate a bound above lower_bound on the way
        use_fstar: bool = false;
        /// apply weight decay before the step (optax); no applies it after (authors)
        decay_first: bool = false;
    }
    state: MomoState,
    formula: "x − min{lr, (f̄ − l + ⟨d, x⟩ − γ)/‖d‖²}·d, d, f̄ and γ the means of g, f and ⟨g, x⟩ with weight beta",
    reference: "Schaipp, Ohana, Eickenberg, Defazio & Gower 2024",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MomoState {
    /// The means of the loss and of `⟨g, x⟩`, and the bound.
    model: Model,
    /// `betaᵗ`; 1 before the first step.
    beta_power: f64,
}

impl Start for Momo {
    fn start(&self, _: &RunInfo) -> Result<MomoState, SpecError> {
        Ok(MomoState { model: Model::new(self.lower_bound), beta_power: 1.0 })
    }
}

impl Running<Momo> {
    /// The weight of the old means in the coming step.
    fn old_weight(&self) -> f64 {
        if self.state.beta_power == 1.0 && !self.bias_correction { 0.0 } else { self.beta }
    }
}

/// `‖g‖²`, `⟨x, d⟩`, `⟨x, g⟩` and `‖d‖²`, where `d` is the coming mean `old·d + new·g`.
struct Products;

impl Measure<2, 3, 4> for Products {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>([old, new]: [N; 2], _: TensorInfo<N>, [x, d, g]: [N; 3]) -> [N; 4] {
        let d = old * d + new * g;
        [g * g, x * d, x * g, d * d]
    }
}

/// `d ← old·d + new·g`, `x ← (first·x − τ·d)·last`: where the coordinate decays, `first` or `last` is `shrink` and `τ` is `decayed`, else
/// both are 1 and `τ` is `plain`.
struct Shrink;

impl Change<6, 2, 1> for Shrink {
    #[inline(always)]
    fn each<N: Number>(
        [old, new, plain, decayed, first, last]: [N; 6],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, d]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let d = old * d + new * g;
        let zero = N::of(0.0);
        [decay.above(zero, (first * x - decayed * d) * last, x - plain * d), d]
    }
}

/// State: one vector. A step is a pass that reads 3 vectors and one that reads 3 and writes 2.
impl Optimizer for Running<Momo> {
    fn name(&self) -> &str {
        Momo::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs::LOSS
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [d] = named(state);
        let options = context.options;
        let old = self.old_weight();
        let (seen, [_, dot, inner, norm]) =
            context.observe_with(Products, [old, 1.0 - old], 0.0, [&*x, &*d, gradient])?;
        let beta_power = self.state.beta_power * self.beta;
        let lr = self.lr * options.rate;
        let input = ModelInput {
            lower_bound: self.lower_bound,
            use_fstar: self.use_fstar,
            old_weight: old,
            correction: if self.bias_correction { 1.0 - beta_power } else { 1.0 },
            lr,
            decay: options.weight_decay,
        };
        let (model, answer) = self.state.model.step::<S>(&seen, [dot, inner, norm], &input)?;
        let shrink = 1.0 / (1.0 + lr * options.weight_decay);
        let (first, last) = if self.decay_first { (shrink, 1.0) } else { (1.0, shrink) };
        let scalars = [old, 1.0 - old, answer.plain, answer.step.size, first, last];
        context.change(Shrink, scalars, options.weight_decay, [x, d], [gradient]);
        self.state = MomoState { model, beta_power };
        Ok(answer.step)
    }

    fn clips(&self) -> bool {
        false
    }

    fn warning(&self) -> Option<String> {
        self.state.model.warning(self.lower_bound)
    }
}
