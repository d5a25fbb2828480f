use serde::{Deserialize, Serialize};

use super::shared::Estimate;
use super::{
    At, Change, Keep, Measure, Named, Number, Optimizer, Space, check_eps, check_held, check_square,
    check_sums, shared,
};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::{LOWER_BOUND, Setting};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};

/// A Polyak step in Adam's geometry: no learning rate, no clipping, no warm-up.
///
/// With `D = √v̂ + eps`, `v̂` being Adam's mean of `g²`:
///
/// `m ← β1·m + (1 − β1)·g/D`, `x ← x − η·m`, `η = factor · mean(f − l)/mean(Σ g²/D) · (1 − t/T)`.
///
/// Both means are exponential with the weight `average`, corrected for their beginning at 0, as `v̂` is; `m` is not. For a fixed
/// `D`, without momentum and means, this is Polyak's step (a `factor` of it) for the function `y ↦ f(D^{−½}y)`.
///
/// What is proved, for convex `f` with minimum `f*`, a fixed `D`, no momentum and no means, with `σ² = f* − l`: a step with the
/// factor `a` brings `x` nearer to a minimum, `‖x⁺ − x*‖²_D ≤ ‖x − x*‖²_D − η·[(2 − a)(f − f*) − a·σ²]`, so that it makes progress
/// as long as `f − f* > aσ²/(2 − a)`, which is `σ²/3` for `a = ½`. With the means, `a` becomes `a·κ` with
/// `κ = mean(f − l)·Σg²/D / ((f − l)·mean(Σg²/D))`; `cap=yes` keeps `a·κ ≤ 1`, and `a·κ`, the part of the batch's own Polyak step
/// that was made, is the method's [estimate](Optimizer::estimate). Momentum, a `D` that moves, batches and the decay to
/// 0 are measured only.
///
/// ```
/// # use untuned::{Observation, Setting, optimizers::OptimizerSpec};
/// use untuned::optimizers::{Around, Keep, Optimizer, Plain, At};
///
/// let mut method = "polyak-adam:eps=1e-30".parse::<OptimizerSpec>()?.build(&Setting::new(10))?;
/// let (space, around) = (Plain::new(2), Around::default());
/// let mut x = vec![1.0, 1.0];
/// let mut kept = Keep::all(&space, &method.keeps(), &x)?;
/// let at = At { space: &space, around: &around, x: &mut x, gradient: &vec![3.0, -4.0], kept: &mut kept };
/// let mut sums = vec![0.0; method.measures()];
/// method.measure(&at, &mut sums, 0);
/// let step = method.step(&Observation::new(0, 14.0, 5.0), &sums, at)?;
/// // √v̂ is |g| at first, so that Σg²/D = 7, η = ½·14/7, and m = 0.1·(1, −1).
/// assert!((step.size - 1.0).abs() < 1e-15);
/// assert!((x[0] - 0.9).abs() < 1e-15 && (x[1] - 1.1).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolyakAdam {
    /// `l`, a value that the loss never goes below.
    pub lower_bound: f64,
    /// What part of Polyak's step is made.
    pub factor: f64,
    /// How much of the two means is kept in a step.
    pub average: f64,
    /// `β1`.
    pub beta1: f64,
    /// `β2`.
    pub beta2: f64,
    /// Keeps `D` from 0.
    pub eps: f64,
    /// Whether `η` is at most Polyak's step of the batch at hand.
    pub cap: bool,
    /// `T`, where the rate decays.
    horizon: Option<u64>,
    /// `β2ᵗ`, a product as in AdamW.
    beta2_power: f64,
    /// Means of `f − l` and of `Σg²/D`, not corrected.
    gap: f64,
    square: f64,
    /// The steps made.
    steps: u64,
    /// The first loss.
    first: f64,
    /// What part of the batch's own Polyak step was made last, the decay aside; nothing where that is 0 or too small.
    part: Option<f64>,
}

impl Named for PolyakAdam {
    const ENTRY: Entry = Entry {
        name: "polyak-adam",
        aliases: &[],
        formula: "x − η·m, m the mean of g/D with weight beta1, D = √v̂ + eps, η = factor·mean(f − l)/mean(Σg²/D)·(1 − t/T)",
        parameters: &[
            LOWER_BOUND,
            Parameter {
                name: "factor",
                kind: Kind::Positive,
                default: Fallback::Number(0.5),
                meaning: "what part of Polyak's step is made",
            },
            Parameter {
                name: "average",
                kind: Kind::Fraction,
                default: Fallback::Number(0.99),
                meaning: "how much of the means of f − l and of Σg²/D is kept in a step",
            },
            shared::BETA1,
            Parameter { default: Fallback::Number(0.99), ..shared::BETA2 },
            shared::EPS,
            Parameter {
                name: "cap",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "whether η is at most Polyak's step of the batch at hand",
            },
            Parameter {
                name: "decay",
                kind: Kind::Word(&["linear", "none"]),
                default: Fallback::Word("linear"),
                meaning: "whether η decays to 0 at the horizon",
            },
        ],
        reference: "this project; after Polyak 1987 and Kingma & Ba 2015",
    };

    const WEIGHT_DECAY: f64 = 0.1;

    fn from_spec(spec: &Spec, setting: &Setting) -> Result<PolyakAdam, SpecError> {
        check_eps(spec, "eps")?;
        Ok(PolyakAdam {
            lower_bound: spec.number("lower_bound"),
            factor: spec.number("factor"),
            average: spec.number("average"),
            beta1: spec.number("beta1"),
            beta2: spec.number("beta2"),
            eps: spec.number("eps"),
            cap: shared::yes(spec, "cap"),
            horizon: (spec.word("decay") == "linear").then_some(setting.steps),
            beta2_power: 1.0,
            gap: 0.0,
            square: 0.0,
            steps: 0,
            first: 0.0,
            part: None,
        })
    }
}

/// The next `v`, and `D` from it.
#[inline(always)]
fn geometry<N: Number>([old, new, root, eps]: [N; 4], v: N, g: N) -> (N, N) {
    let v = old * v + new * g * g;
    (v, root * v.sqrt() + eps)
}

/// `Σ g²/D`.
struct Square;

impl Measure<4, 2, 1> for Square {
    const NARROW: bool = true;

    #[inline(always)]
    fn each<N: Number>(scalars: [N; 4], _: N, [v, g]: [N; 2]) -> [N; 1] {
        [g * (g / geometry(scalars, v, g).1)]
    }
}

/// The next `m`.
#[inline(always)]
fn direction<N: Number>([old, new]: [N; 2], m: N, g: N, d: N) -> N {
    old * m + new * g / d
}

/// `m ← β1·m + (1 − β1)·g/D`, `x ← x·(1 − decay) − η·m`.
struct Descend;

impl Change<7, 3, 1> for Descend {
    #[inline(always)]
    fn each<N: Number>(
        [old, new, root, eps, old_m, new_m, size]: [N; 7],
        decay: N,
        [x, m, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let (v, d) = geometry([old, new, root, eps], v, g);
        let m = direction([old_m, new_m], m, g, d);
        [x * (N::of(1.0) - decay) - size * m, m, v]
    }
}

impl PolyakAdam {
    /// The scalars of [`geometry`] in the step that comes.
    fn geometry(&self) -> [f64; 4] {
        let root = (1.0 - self.beta2_power * self.beta2).sqrt().recip();
        [self.beta2, 1.0 - self.beta2, root, self.eps]
    }
}

/// State: two vectors. A step is a pass that reads 2 vectors, and one that reads 4 and writes 3.
impl Optimizer for PolyakAdam {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("direction"), Keep::zeros("squares")]
    }

    fn measures(&self) -> usize {
        1
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) {
        at.space.measure(Square, self.geometry(), 0.0, [&at.kept[1], at.gradient], sums, first);
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        assert_eq!(sums.len(), self.measures(), "the sums that it measures");
        check_square::<S>(seen, 1.0)?;
        check_sums(seen, &["Σg²/D"], sums)?;
        let square = sums[0];
        if let Some(horizon) = self.horizon.filter(|horizon| seen.step >= *horizon) {
            let remedy = "make it with a larger number of steps, or add `decay=none`";
            return Err(Refusal::PastHorizon { step: seen.step, horizon, remedy });
        }
        let gap = seen.above(self.lower_bound);
        let mean = |old: f64, new: f64| self.average * old + (1.0 - self.average) * new;
        let (mean_gap, mean_square) = (mean(self.gap, gap.value), mean(self.square, square));
        let polyak = |gap: f64, square: f64| if square > 0.0 { gap / square } else { 0.0 };
        // What the means lack of their beginning is the same for both.
        let mut size = self.factor * polyak(mean_gap, mean_square);
        let own = polyak(gap.value, square);
        if self.cap {
            size = size.min(own);
        }
        let part = Some(size / own).filter(|part| part.is_finite());
        let left = self.horizon.map_or(1.0, |horizon| (horizon - seen.step) as f64 / horizon as f64);
        let step = Step::new(size * left * at.around.rate, seen)?.mark(gap);
        check_held::<S>(seen, &[step.size])?;
        let [old, new, root, eps] = self.geometry();
        let scalars = [old, new, root, eps, self.beta1, 1.0 - self.beta1, step.size];
        let [m, v] = at.kept else { panic!("polyak-adam keeps two vectors, not {}", at.kept.len()) };
        // A step may be of any size, but nothing decays beyond 0.
        let decay = (step.size * at.around.weight_decay).min(1.0);
        at.space.change(Descend, scalars, decay, [at.x, m, v], [at.gradient]);
        self.beta2_power *= self.beta2;
        if self.steps == 0 {
            self.first = seen.loss;
        }
        self.steps += 1;
        (self.gap, self.square, self.part) = (mean_gap, mean_square, part);
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    /// What part of the batch's own Polyak step was made, the decay aside: `a·κ`.
    fn estimate(&self) -> Option<f64> {
        self.part
    }

    fn concern(&self) -> Option<String> {
        let PolyakAdam { steps, first, lower_bound, factor, .. } = self;
        let mean = lower_bound + self.gap / (1.0 - self.average.powf(*steps as f64));
        (*steps >= Estimate::PATIENCE && mean > *first).then(|| {
            let less = 0.5 * factor;
            format!(
                "the mean loss is {mean:.4} after {steps} steps, and the first was {first:.4}: the steps may be too long, as where the loss \
                 cannot come near lower_bound = {lower_bound}; try factor={less}"
            )
        })
    }
}
