use super::momo_model::{DECAY_FIRST, Model, USE_FSTAR};
use super::{At, Change, Here, Keep, Measure, Named, Number, Optimizer, Space, shared};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::{LOWER_BOUND, Setting};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// MoMo, momentum with a Polyak step: `x ← (x − τ·d)/(1 + η·λ)`, `τ = min{η/ρ, max(h, 0)/‖d‖²}`.
///
/// `d`, `f̄` and `γ` are running means with the weight `beta` of the gradient, the loss and `⟨g, x⟩`; they begin with the first values, and
/// `ρ = 1`. With `bias_correction=yes` they begin with 0, and `ρ = 1 − betaᵗ`, `t` from 1. `h = (1 + η·λ)·(f̄ − ρ·l − γ) + ⟨d, x⟩` is how
/// far the mean of the linear models of all losses is above the bound `l` at `x`. `η` is `lr`, the largest step, times what warm-up and
/// schedule make of it, and `λ` the weight decay. Where only some coordinates decay, those that do not have the `τ` of `λ = 0`, as the
/// authors' code has it for groups of parameters; the rate reported is that of the others.
///
/// With `use_fstar=yes` the bound is estimated: `l ← max(l_0, (f̄ + ⟨d, x⟩ − γ − τ‖d‖²/2)/ρ)` after every step, and before one the bound
/// is halved to `max(l_0, (h + (1 + η·λ)·ρ·l)/(2(1 + η·λ)·ρ))` where `h < 0`; `l_0` is `lower_bound`.
///
/// Published disagreement, as `decay_first`: the authors' code divides by `1 + η·λ` after the step, optax before it.
/// The gradient is taken as it is: the step is measured before its norm is known, so nothing is clipped.
///
/// Reference: Schaipp, Ohana, Eickenberg, Defazio & Gower, *MoMo: Momentum models for adaptive learning rates*, 2024.
///
/// ```
/// # use untuned::{Observation, OptimizerSpec, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, Plain, At};
///
/// let mut momo = "momo:beta=0.5,lr=10".parse::<OptimizerSpec>()?.build(&Setting::new(9))?;
/// let (space, around, mut x) = (Plain::new(1), Around::default(), vec![8.0]);
/// let mut kept = Keep::all(&space, &momo.keeps(), &x)?;
/// // d = 4, f̄ = 8, γ = 32: h = 8 − 32 + 32, τ = 8/16. Then d = 3, f̄ = 6, γ = (32 + 2·6)/2: h = 6 − 22 + 3·6, τ = 2/9.
/// for (t, (loss, gradient, tau, wanted)) in [(8.0, 4.0, 0.5, 6.0), (4.0, 2.0, 2.0 / 9.0, 16.0 / 3.0)].into_iter().enumerate() {
///     let seen = Observation::new(t as u64, loss, gradient);
///     let at = At { space: &space, around: &around, x: &mut x, gradient: &vec![gradient], kept: &mut kept };
///     let mut sums = vec![0.0; 1 + momo.measures()];
///     momo.measure(&at, &mut sums, 0);
///     assert_eq!(momo.step(&seen, &sums[1..], at)?.size, tau);
///     assert!((x[0] - wanted).abs() < 1e-15);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Momo {
    /// The largest step.
    pub lr: f64,
    /// How much of the means is kept in a step.
    pub beta: f64,
    /// Whether the means begin with 0 and are corrected for it.
    pub bias_correction: bool,
    /// Whether the decay comes before the step.
    pub decay_first: bool,
    model: Model,
    /// `betaᵗ`; 1 before the first step.
    beta_power: f64,
}

impl Named for Momo {
    const ENTRY: Entry = Entry {
        name: "momo",
        aliases: &[],
        formula: "x − min{lr, (f̄ − l + ⟨d, x⟩ − γ)/‖d‖²}·d, d, f̄ and γ the means of g, f and ⟨g, x⟩ with weight beta",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "the largest step",
            },
            Parameter {
                name: "beta",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "how much of the means is kept in a step",
            },
            LOWER_BOUND,
            Parameter {
                name: "bias_correction",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "means that begin with the first values, or with 0 and are corrected for it",
            },
            USE_FSTAR,
            DECAY_FIRST,
        ],
        reference: "Schaipp, Ohana, Eickenberg, Defazio & Gower 2024",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Momo, SpecError> {
        let (lr, beta) = (spec.number("lr"), spec.number("beta"));
        let bias_correction = shared::yes(spec, "bias_correction");
        let decay_first = shared::yes(spec, "decay_first");
        Ok(Momo { lr, beta, bias_correction, decay_first, model: Model::new(spec), beta_power: 1.0 })
    }
}

impl Momo {
    /// How much of the means is kept in the coming step.
    fn kept_weight(&self) -> f64 {
        if self.beta_power == 1.0 && !self.bias_correction { 0.0 } else { self.beta }
    }
}

/// `‖g‖²`, `⟨x, d⟩`, `⟨x, g⟩` and `‖d‖²`, where `d` is the coming mean `old·d + new·g`.
struct Products;

impl Measure<2, 3, 4> for Products {
    #[inline(always)]
    fn each<N: Number>([old, new]: [N; 2], _: Here<N>, [x, d, g]: [N; 3]) -> [N; 4] {
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
        Here { decay, .. }: Here<N>,
        [x, d]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let d = old * d + new * g;
        let zero = N::of(0.0);
        [decay.above(zero, (first * x - decayed * d) * last, x - plain * d), d]
    }
}

/// State: one vector. A step is a pass that reads 3 vectors and one that reads 3 and writes 2.
impl Optimizer for Momo {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("momo_d")]
    }

    fn measures(&self) -> usize {
        3
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let old = self.kept_weight();
        at.space.measure(Products, [old, 1.0 - old], 0.0, [&*at.x, &at.kept[0], at.gradient], sums, first);
        true
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        let (old, beta_power) = (self.kept_weight(), self.beta_power * self.beta);
        let correction = if self.bias_correction { 1.0 - beta_power } else { 1.0 };
        let lr = self.lr * at.around.rate;
        let (model, answer) =
            self.model.step::<S>(seen, sums, old, correction, lr, at.around.weight_decay)?;
        let [d] = at.kept else { panic!("MoMo keeps one vector, not {}", at.kept.len()) };
        let shrink = 1.0 / (1.0 + lr * at.around.weight_decay);
        let (first, last) = if self.decay_first { (shrink, 1.0) } else { (1.0, shrink) };
        let scalars = [old, 1.0 - old, answer.plain, answer.step.size, first, last];
        at.space.change(Shrink, scalars, at.around.weight_decay, [at.x, d], [at.gradient]);
        (self.model, self.beta_power) = (model, beta_power);
        Ok(answer.step)
    }

    fn clips(&self) -> bool {
        false
    }

    fn concern(&self) -> Option<String> {
        self.model.concern()
    }
}
