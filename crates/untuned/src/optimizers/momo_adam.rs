use super::momo_model::{Model, ModelInput};
use super::shared::{BiasCorrection, moments};
use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::optimizer::{Optimizer, SessionError, StateVector, StepContext, Vectors, check_square, named};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps, unfit};
use crate::rule::{Needs, Step};
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// MoMo-Adam, Adam's direction with a Polyak step: `x ← (x − τ·d/D)/(1 + η·λ)`, `τ = min{η/ρ, max(h, 0)/⟨d, d/D⟩}`.
    ///
    /// `d` and `v` are running means of the gradient and of its square with the weights `beta1` and `beta2`. They start at 0, and
    /// `D = √(v/(1 − beta2ᵗ)) + eps`, `ρ = 1 − beta1ᵗ`, `t` from 1. `h` and the bound are those of [`Momo`](super::Momo) with its
    /// `bias_correction=yes`, as is all that is said there of decay, groups and clipping.
    ///
    /// Published disagreements: with `divide=no` the decay is AdamW's `x·(1 − η·λ)` before the step (an option of the authors' code);
    /// with `decay_first=yes` the division comes before the step (optax).
    ///
    /// Reference: Schaipp, Ohana, Eickenberg, Defazio & Gower, *MoMo: Momentum models for adaptive learning rates*, 2024.
    ///
    /// ```
    /// use untuned::optimizers::MomoAdam;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let momo = MomoAdam { beta1: 0.5, beta2: 0.5, eps: 1.0, lr: 10.0, ..Default::default() };
    /// let mut session = Session::new(momo.build(&RunInfo::new(1))?, DenseF64::new(1))?;
    /// let mut x = vec![8.0];
    /// let report = session.advance(6.0, &mut x, &vec![3.0])?;
    /// // d = 3/2, v = 9/2, D = √9 + 1, f̄ = 3, γ = 12: h = 3 − 12 + 12, over (9/4)/4.
    /// assert!((report.rate - 16.0 / 3.0).abs() < 1e-14);
    /// assert!((x[0] - 6.0).abs() < 1e-14, "8 − 16/3 · (3/2)/4");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct MomoAdam: "momo-adam" {
        /// the largest step
        lr: f64 = 0.01, Positive;
        /// β1, the weight of the old means of g, f and ⟨g, x⟩
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.999, Fraction;
        /// added to the root of the mean of g²
        eps: f64 = 1e-8, Positive;
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
        /// estimate a bound above lower_bound on the way
        use_fstar: bool = false;
        /// decay by x/(1 + lr·decay); no uses AdamW's x·(1 − lr·decay)
        divide: bool = true;
        /// apply weight decay before the step (optax); no applies it after (authors)
        decay_first: bool = false;
    }
    state: MomoAdamState,
    formula: "x − min{lr/ρ, (f̄ − ρ·l + ⟨d, x⟩ − γ)/⟨d, d/D⟩}·d/D, D = √v̂ + eps, d, f̄, γ and v the means of g, f, ⟨g, x⟩ and g²",
    reference: "Schaipp, Ohana, Eickenberg, Defazio & Gower 2024",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MomoAdamState {
    /// The means of the loss and of `⟨g, x⟩`, and the bound.
    model: Model,
    /// `β1ᵗ` and `β2ᵗ`.
    correction: BiasCorrection,
}

impl Start for MomoAdam {
    fn start(&self, _: &RunInfo) -> Result<MomoAdamState, SpecError> {
        check_eps::<MomoAdam>("eps", self.eps)?;
        if self.decay_first && !self.divide {
            let why = "`decay_first` is for divide=yes: otherwise the decay always comes first";
            return Err(unfit::<MomoAdam>(why));
        }
        Ok(MomoAdamState { model: Model::new(self.lower_bound), correction: BiasCorrection::START })
    }
}

/// The coming `d`, `v` and `d/D`.
#[inline(always)]
fn means<N: Number>([old_d, new_d, old_v, new_v, root, eps]: [N; 6], d: N, v: N, g: N) -> (N, N, N) {
    let [d, v] = moments([old_d, new_d, old_v, new_v], [d, v], g);
    (d, v, d / (root * v.sqrt() + eps))
}

/// `‖g‖²`, and `⟨x, d⟩`, `⟨x, g⟩` and `⟨d, d/D⟩` of the coming means.
struct Products;

impl Measure<6, 4, 4> for Products {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>(scalars: [N; 6], _: TensorInfo<N>, [x, d, v, g]: [N; 4]) -> [N; 4] {
        let (d, _, direction) = means(scalars, d, v, g);
        [g * g, x * d, x * g, d * direction]
    }
}

/// The coming `d` and `v`, and `x ← (first·x − τ·d/D)·last`: where the coordinate decays, `τ` is `decayed`, else it is `plain`, and `first`
/// and `last` are 1.
struct Shrink;

impl Change<10, 3, 1> for Shrink {
    #[inline(always)]
    fn each<N: Number>(
        [old_d, new_d, old_v, new_v, root, eps, plain, decayed, first, last]: [N; 10],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, d, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let (d, v, direction) = means([old_d, new_d, old_v, new_v, root, eps], d, v, g);
        let zero = N::of(0.0);
        [decay.above(zero, (first * x - decayed * direction) * last, x - plain * direction), d, v]
    }
}

/// State: two vectors. A step is a pass that reads 4 vectors and one that reads 4 and writes 3.
impl Optimizer for Running<MomoAdam> {
    fn name(&self) -> &str {
        MomoAdam::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs::LOSS
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m"), StateVector::zeros("v")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [d, v] = named(state);
        let options = context.options;
        let correction = self.state.correction.next(self.beta1, self.beta2);
        let [old_d, new_d, old_v, new_v] = [self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2];
        let (root, eps) = (correction.root().recip(), self.eps);
        let scalars = [old_d, new_d, old_v, new_v, root, eps];
        let (seen, [_, dot, inner, norm]) =
            context.observe_with(Products, scalars, 0.0, [&*x, &*d, &*v, gradient])?;
        check_square::<S>(&seen, 1.0)?;
        let lr = self.lr * options.rate;
        let input = ModelInput {
            lower_bound: self.lower_bound,
            use_fstar: self.use_fstar,
            old_weight: self.beta1,
            correction: correction.mean(),
            lr,
            decay: options.weight_decay,
        };
        let (model, answer) = self.state.model.step::<S>(&seen, [dot, inner, norm], &input)?;
        let product = lr * options.weight_decay;
        let (first, last) = match (self.divide, self.decay_first) {
            (true, false) => (1.0, 1.0 / (1.0 + product)),
            (true, true) => (1.0 / (1.0 + product), 1.0),
            (false, _) => (1.0 - product, 1.0),
        };
        let scalars = [old_d, new_d, old_v, new_v, root, eps, answer.plain, answer.step.size, first, last];
        context.change(Shrink, scalars, options.weight_decay, [x, d, v], [gradient]);
        self.state = MomoAdamState { model, correction };
        Ok(answer.step)
    }

    fn clips(&self) -> bool {
        false
    }

    fn warning(&self) -> Option<String> {
        self.state.model.warning(self.lower_bound)
    }
}
