use super::momo_model::{DECAY_FIRST, Model, USE_FSTAR};
use super::{At, Change, Here, Keep, Measure, Named, Number, Optimizer, Space, shared};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::{LOWER_BOUND, Setting};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// MoMo-Adam, Adam's direction with a Polyak step: `x ← (x − τ·d/D)/(1 + η·λ)`, `τ = min{η/ρ, max(h, 0)/⟨d, d/D⟩}`.
///
/// `d` and `v` are running means of the gradient and of its square with the weights `beta1` and `beta2`, begun at 0, and
/// `D = √(v/(1 − beta2ᵗ)) + eps`, `ρ = 1 − beta1ᵗ`, `t` from 1. `h` and the bound are those of [`Momo`](super::Momo) with its
/// `bias_correction=yes`, as is all that is said there of decay, groups and clipping.
///
/// Published disagreements: with `divide=no` the decay is AdamW's `x·(1 − η·λ)` before the step (an option of the authors' code); with
/// `decay_first=yes` the division comes before the step (optax).
///
/// Reference: Schaipp, Ohana, Eickenberg, Defazio & Gower, *MoMo: Momentum models for adaptive learning rates*, 2024.
///
/// ```
/// # use untuned::{Observation, OptimizerSpec, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, Plain, At};
///
/// let spec = "momo-adam:beta1=0.5,beta2=0.5,eps=1,lr=10";
/// let mut momo = spec.parse::<OptimizerSpec>()?.build(&Setting::new(9))?;
/// let (space, around, mut x) = (Plain::new(1), Around::default(), vec![8.0]);
/// let mut kept = Keep::all(&space, &momo.keeps(), &x)?;
/// let at = At { space: &space, around: &around, x: &mut x, gradient: &vec![3.0], kept: &mut kept };
/// let mut sums = vec![0.0; 1 + momo.measures()];
/// momo.measure(&at, &mut sums, 0);
/// let step = momo.step(&Observation::new(0, 6.0, 3.0), &sums[1..], at)?;
/// // d = 3/2, v = 9/2, D = √9 + 1, f̄ = 3, γ = 12: h = 3 − 12 + 12, over (9/4)/4.
/// assert!((step.size - 16.0 / 3.0).abs() < 1e-14);
/// assert!((x[0] - 6.0).abs() < 1e-14, "8 − 16/3 · (3/2)/4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MomoAdam {
    /// The largest step.
    pub lr: f64,
    /// `β1`, of the means of gradient and loss.
    pub beta1: f64,
    /// `β2`, of the mean of the squares.
    pub beta2: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// Where and how the decay is.
    decay: Decay,
    model: Model,
    /// `β1ᵗ`.
    beta1_power: f64,
    /// `β2ᵗ`.
    beta2_power: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Decay {
    /// `x/(1 + η·λ)` after the step.
    Last,
    /// `x/(1 + η·λ)` before the step.
    First,
    /// `x·(1 − η·λ)` before the step.
    Multiply,
}

impl Named for MomoAdam {
    const ENTRY: Entry = Entry {
        name: "momo-adam",
        aliases: &[],
        formula: "x − min{lr/ρ, (f̄ − ρ·l + ⟨d, x⟩ − γ)/⟨d, d/D⟩}·d/D, D = √v̂ + eps, d, f̄, γ and v the means of g, f, ⟨g, x⟩ and g²",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(0.01),
                meaning: "the largest step",
            },
            Parameter {
                name: "beta1",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "β1, how much of the means of g, f and ⟨g, x⟩ is kept in a step",
            },
            shared::BETA2,
            shared::EPS,
            LOWER_BOUND,
            USE_FSTAR,
            Parameter {
                name: "divide",
                kind: Kind::Word(&["yes", "no"]),
                default: Fallback::Word("yes"),
                meaning: "weight decay as x/(1 + lr·decay), or as AdamW's x·(1 − lr·decay)",
            },
            DECAY_FIRST,
        ],
        reference: "Schaipp, Ohana, Eickenberg, Defazio & Gower 2024",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<MomoAdam, SpecError> {
        super::check_eps(spec, "eps")?;
        let (lr, eps) = (spec.number("lr"), spec.number("eps"));
        let (beta1, beta2) = (spec.number("beta1"), spec.number("beta2"));
        let decay = match (spec.word("divide"), spec.word("decay_first")) {
            ("yes", "no") => Decay::Last,
            ("yes", _) => Decay::First,
            _ if spec.is_given("decay_first") => {
                let why =
                    "`decay_first` is for divide=yes: otherwise the decay always comes first".to_string();
                return Err(SpecError::Unfit { owner: spec.name(), why });
            }
            _ => Decay::Multiply,
        };
        let model = Model::new(spec);
        Ok(MomoAdam { lr, beta1, beta2, eps, decay, model, beta1_power: 1.0, beta2_power: 1.0 })
    }
}

impl MomoAdam {
    /// `β1, 1 − β1, β2, 1 − β2`, what multiplies the root of the coming `v`, and `eps`.
    fn scalars(&self) -> [f64; 6] {
        let root = (1.0 - self.beta2_power * self.beta2).sqrt().recip();
        [self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2, root, self.eps]
    }
}

/// The coming `d`, `v` and `d/D`.
#[inline(always)]
fn means<N: Number>([old_d, new_d, old_v, new_v, root, eps]: [N; 6], d: N, v: N, g: N) -> (N, N, N) {
    let d = old_d * d + new_d * g;
    let v = old_v * v + new_v * g * g;
    (d, v, d / (root * v.sqrt() + eps))
}

/// `‖g‖²`, and `⟨x, d⟩`, `⟨x, g⟩` and `⟨d, d/D⟩` of the coming means.
struct Products;

impl Measure<6, 4, 4> for Products {
    #[inline(always)]
    fn each<N: Number>(scalars: [N; 6], _: Here<N>, [x, d, v, g]: [N; 4]) -> [N; 4] {
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
        Here { decay, .. }: Here<N>,
        [x, d, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let (d, v, direction) = means([old_d, new_d, old_v, new_v, root, eps], d, v, g);
        let zero = N::of(0.0);
        [decay.above(zero, (first * x - decayed * direction) * last, x - plain * direction), d, v]
    }
}

/// State: two vectors. A step is a pass that reads 4 vectors and one that reads 4 and writes 3.
impl Optimizer for MomoAdam {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("momo_d"), Keep::zeros("momo_v")]
    }

    fn measures(&self) -> usize {
        3
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let read = [&*at.x, &at.kept[0], &at.kept[1], at.gradient];
        at.space.measure(Products, self.scalars(), 0.0, read, sums, first);
        true
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        super::check_square::<S>(seen, 1.0)?;
        let beta1_power = self.beta1_power * self.beta1;
        let lr = self.lr * at.around.rate;
        let (model, answer) =
            self.model.step::<S>(seen, sums, self.beta1, 1.0 - beta1_power, lr, at.around.weight_decay)?;
        let [d, v] = at.kept else { panic!("MoMo-Adam keeps two vectors, not {}", at.kept.len()) };
        let [old_d, new_d, old_v, new_v, root, eps] = self.scalars();
        let product = lr * at.around.weight_decay;
        let (first, last) = match self.decay {
            Decay::Last => (1.0, 1.0 / (1.0 + product)),
            Decay::First => (1.0 / (1.0 + product), 1.0),
            Decay::Multiply => (1.0 - product, 1.0),
        };
        let scalars = [old_d, new_d, old_v, new_v, root, eps, answer.plain, answer.step.size, first, last];
        at.space.change(Shrink, scalars, at.around.weight_decay, [at.x, d, v], [at.gradient]);
        (self.model, self.beta1_power) = (model, beta1_power);
        self.beta2_power *= self.beta2;
        Ok(answer.step)
    }

    fn clips(&self) -> bool {
        false
    }

    fn concern(&self) -> Option<String> {
        self.model.concern()
    }
}
