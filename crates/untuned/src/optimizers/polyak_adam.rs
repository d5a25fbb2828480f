use serde::{Deserialize, Serialize};

use super::shared::Estimate;
use super::{
    At, Change, Here, Keep, Measure, Named, Number, Optimizer, Space, check_eps, check_held, check_square,
    check_sums, shared,
};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::{LOWER_BOUND, Setting};
use crate::spec::{self, Entry, Fallback, Kind, Parameter, Spec, SpecError};

/// A Polyak step in Adam's geometry: no learning rate, no clipping, no warm-up.
///
/// With `D = √v̂ + eps`, `v̂` being Adam's mean of `g²`, and `s` the [scale](super::scales) of a coordinate's tensor:
///
/// `m ← β1·m + (1 − β1)·g/D`, `x ← x − η·s·m`, `η = max(factor·mean(f − l)/mean(Σ s·g²/D), dog·R/√G) · (1 − t/T)`.
///
/// Both means are exponential with the weight `average`, corrected for their beginning at 0, as `v̂` is; `m` is not. They are
/// `1/(1 − average)` steps long. Once so many are made, `Σ s·g²/D` is [measured](Optimizer::measure) only as often as twelve times in
/// that length, one step in eight for 0.99, and stands for the steps since the last time; the distance `R` below is measured with it
/// where the run is a sixteenth longer than when it last was. A step costs what AdamW's does, to 2 % in a long run.
///
/// For fixed `D` and `s`, without momentum and means, the first of the two is Polyak's step (a `factor` of it) in the norm
/// `‖x‖² = Σ x²·D/s`, and the second is DoG's in the same norm: `R` is the greatest distance from the start so far, and `G` the sum of
/// `Σ s·g²/D` over all steps. Polyak's step is short where batches are noisy, because their noise counts in `Σ s·g²/D` but not in `f`;
/// DoG's sees how far the parameters have come, and takes over there.
///
/// What is proved, for convex `f` with minimum `f*`, fixed `D` and `s`, no momentum, no means and `dog=0`, with `σ² = f* − l`: a step
/// with the factor `a` brings `x` nearer to a minimum, `‖x⁺ − x*‖² ≤ ‖x − x*‖² − η·[(2 − a)(f − f*) − a·σ²]`, so that it makes progress
/// as long as `f − f* > aσ²/(2 − a)`, which is `σ²/3` for `a = ½`. With the means, `a` becomes `a·κ` with
/// `κ = mean(f − l)·Σsg²/D / ((f − l)·mean(Σsg²/D))`; `cap=yes` keeps `a·κ ≤ 1`, and with it DoG's step, too. What part of the
/// batch's own Polyak step was made is the method's [estimate](Optimizer::estimate). Momentum, a `D` that moves, DoG's step, batches and
/// the decay to 0 are measured only.
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
/// let mut sums = vec![0.0; 1 + method.measures()];
/// method.measure(&at, &mut sums, 0);
/// let step = method.step(&Observation::new(0, 14.0, 5.0), &sums[1..], at)?;
/// // √v̂ is |g| at first, so that Σs·g²/D = 7, η = ½·14/7, and m = 0.1·(1, −1).
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
    /// How much of DoG's step is made at least.
    pub dog: f64,
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
    /// The means of `f − l` and of `Σs·g²/D`.
    gap: Mean,
    square: Mean,
    /// `G`, the sum of `Σs·g²/D`.
    total: f64,
    /// `R²`, the greatest `Σ(x − x0)²·D/s` that was measured, and the step that measured it last.
    far: f64,
    far_at: u64,
    /// The steps made, and those since the last one that measured.
    steps: u64,
    behind: u64,
    /// The first loss.
    first: f64,
    /// What part of the batch's own Polyak step was made when it measured last, the decay aside; nothing where that is 0 or too small.
    part: Option<f64>,
}

impl Named for PolyakAdam {
    const ENTRY: Entry = Entry {
        name: "polyak-adam",
        aliases: &[],
        formula: "x − η·m, m the mean of g/D with weight beta1, D = √v̂ + eps, η = max(factor·mean(f − l)/mean(Σg²/D), dog·R/√G)·(1 − t/T), R² = max Σ(x − x0)²·D, G the sum of all Σg²/D; each tensor in units of its size",
        parameters: &[
            LOWER_BOUND,
            Parameter {
                name: "factor",
                kind: Kind::Positive,
                default: Fallback::Number(0.5),
                meaning: "what part of Polyak's step is made",
            },
            Parameter {
                name: "dog",
                kind: Kind::NonNegative,
                default: Fallback::Number(1.5),
                meaning: "how much of DoG's step is made at least",
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
            dog: spec.number("dog"),
            average: spec.number("average"),
            beta1: spec.number("beta1"),
            beta2: spec.number("beta2"),
            eps: spec.number("eps"),
            cap: shared::yes(spec, "cap"),
            horizon: (spec.word("decay") == "linear").then_some(setting.steps),
            beta2_power: 1.0,
            gap: Mean::default(),
            square: Mean::default(),
            total: 0.0,
            far: 0.0,
            far_at: 0,
            steps: 0,
            behind: 0,
            first: 0.0,
            part: None,
        })
    }
}

/// An exponential mean that begins with nothing, and what weight the values in it have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// With one value more, of which `keep` is the weight of all before.
    fn with(self, keep: f64, value: f64) -> Mean {
        Mean { sum: keep * self.sum + (1.0 - keep) * value, weight: keep * self.weight + (1.0 - keep) }
    }

    /// The mean of the values that it has.
    fn value(self) -> f64 {
        self.sum / self.weight
    }
}

/// The next `v`, and `D` from it.
#[inline(always)]
fn geometry<N: Number>([old, new, root, eps]: [N; 4], v: N, g: N) -> (N, N) {
    let v = old * v + new * g * g;
    (v, root * v.sqrt() + eps)
}

/// `Σ g²` and `Σ s·g²/D`.
struct Squares;

impl Measure<4, 2, 2> for Squares {
    const NARROW: [bool; 2] = [false, true];

    #[inline(always)]
    fn each<N: Number>(scalars: [N; 4], here: Here<N>, [v, g]: [N; 2]) -> [N; 2] {
        let d = geometry(scalars, v, g).1;
        [g * g, g * (g / d) * here.scale]
    }
}

/// `Σ g²`, `Σ s·g²/D` and `Σ (x − x0)²·D/s`.
struct SquaresAndDistance;

impl Measure<4, 4, 3> for SquaresAndDistance {
    const NARROW: [bool; 3] = [false, true, true];

    #[inline(always)]
    fn each<N: Number>(scalars: [N; 4], here: Here<N>, [v, g, x, start]: [N; 4]) -> [N; 3] {
        let [norm, square] = Squares::each(scalars, here, [v, g]);
        let (d, moved) = (geometry(scalars, v, g).1, x - start);
        [norm, square, moved * moved * d / here.scale]
    }
}

/// The next `m`.
#[inline(always)]
fn direction<N: Number>([old, new]: [N; 2], m: N, g: N, d: N) -> N {
    old * m + new * g / d
}

/// `m ← β1·m + (1 − β1)·g/D`, `x ← x·(1 − decay·s) − η·s·m`; nothing decays beyond 0.
struct Descend;

impl Change<7, 3, 1> for Descend {
    #[inline(always)]
    fn each<N: Number>(
        [old, new, root, eps, old_m, new_m, size]: [N; 7],
        Here { decay, scale }: Here<N>,
        [x, m, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let (v, d) = geometry([old, new, root, eps], v, g);
        let m = direction([old_m, new_m], m, g, d);
        [x * (N::of(1.0) - decay * scale).max(N::of(0.0)) - size * (scale * m), m, v]
    }
}

impl PolyakAdam {
    /// The parts that the means' length is divided into, a value of `Σs·g²/D` for each.
    const PARTS: f64 = 12.0;
    /// The parts that the steps before are divided into: when one more is made, the distance is measured again.
    const FAR_PARTS: u64 = 16;

    /// Whether the step that comes needs `Σs·g²/D`: the last one is as old as a part of the means' length, or the means are not full
    /// yet, or each batch counts for itself.
    fn is_due(&self) -> bool {
        let length = (1.0 - self.average).recip();
        let full = self.steps as f64 >= length;
        self.cap || !full || (self.behind + 1) as f64 >= (length / Self::PARTS).floor()
    }

    /// Whether a step that needs `Σs·g²/D` needs the distance, too.
    fn is_far_due(&self) -> bool {
        self.steps - self.far_at >= self.steps / Self::FAR_PARTS
    }

    /// The scalars of [`geometry`] in the step that comes.
    fn geometry(&self) -> [f64; 4] {
        let root = (1.0 - self.beta2_power * self.beta2).sqrt().recip();
        [self.beta2, 1.0 - self.beta2, root, self.eps]
    }
}

/// State: three vectors. A step is a pass that reads 4 and writes 3; one that measures reads 2 before, and where it measures the distance 4.
impl Optimizer for PolyakAdam {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("direction"), Keep::zeros("squares"), Keep::parameters("start")]
    }

    fn measures(&self) -> usize {
        2
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let (scalars, v, start) = (self.geometry(), &at.kept[1], &at.kept[2]);
        let due = self.is_due();
        if due && self.is_far_due() {
            let read = [v, at.gradient, &*at.x, start];
            at.space.measure(SquaresAndDistance, scalars, 0.0, read, sums, first);
        } else if due {
            at.space.measure(Squares, scalars, 0.0, [v, at.gradient], sums, first);
        }
        due
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        assert_eq!(sums.len(), self.measures(), "the sums that it measures");
        check_square::<S>(seen, 1.0)?;
        let due = self.is_due();
        let far_due = due && self.is_far_due();
        let measured = if far_due { 2 } else { usize::from(due) };
        check_sums(seen, &["Σg²/D", "Σ(x − x0)²·D"], &sums[..measured])?;
        if let Some(horizon) = self.horizon.filter(|horizon| seen.step >= *horizon) {
            let remedy = "make it with a larger number of steps, or add `decay=none`";
            return Err(Refusal::PastHorizon { step: seen.step, horizon, remedy });
        }
        let gap = seen.above(self.lower_bound);
        let mean_gap = self.gap.with(self.average, gap.value);
        let (mut mean_square, mut total, mut far) = (self.square, self.total, self.far);
        if due {
            let keep = (0..=self.behind).map(|_| self.average).product();
            mean_square = mean_square.with(keep, sums[0]);
            total += (self.behind + 1) as f64 * sums[0];
        }
        if far_due {
            far = far.max(sums[1]);
        }
        let polyak = |gap: f64, square: f64| if square > 0.0 { gap / square } else { 0.0 };
        let mut size = self.factor * polyak(mean_gap.value(), mean_square.value());
        if total > 0.0 {
            size = size.max(self.dog * far.sqrt() / total.sqrt());
        }
        let mut part = self.part;
        if due {
            let own = polyak(gap.value, sums[0]);
            if self.cap {
                size = size.min(own);
            }
            part = Some(size / own).filter(|part| part.is_finite());
        }
        let left = self.horizon.map_or(1.0, |horizon| (horizon - seen.step) as f64 / horizon as f64);
        let step = Step::new(size * left * at.around.rate, seen)?.mark(gap);
        check_held::<S>(seen, &[step.size])?;
        let [old, new, root, eps] = self.geometry();
        let scalars = [old, new, root, eps, self.beta1, 1.0 - self.beta1, step.size];
        let [m, v, _] = at.kept else { panic!("polyak-adam keeps three vectors, not {}", at.kept.len()) };
        let decay = step.size * at.around.weight_decay;
        at.space.change(Descend, scalars, decay, [at.x, m, v], [at.gradient]);
        self.beta2_power *= self.beta2;
        if self.steps == 0 {
            self.first = seen.loss;
        }
        if far_due {
            self.far_at = self.steps;
        }
        self.steps += 1;
        self.behind = if due { 0 } else { self.behind + 1 };
        (self.gap, self.square, self.total, self.far) = (mean_gap, mean_square, total, far);
        self.part = part;
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    /// What part of the batch's own Polyak step was made in the last step that measured, the decay aside.
    fn estimate(&self) -> Option<f64> {
        self.part
    }

    fn concern(&self) -> Option<String> {
        let PolyakAdam { steps, first, lower_bound, factor, dog, .. } = self;
        let mean = lower_bound + self.gap.value();
        (*steps >= Estimate::PATIENCE && mean > *first).then(|| {
            let (less, dog) = (0.5 * factor, 0.5 * dog);
            let (mean, first) = (spec::loss(mean), spec::loss(*first));
            format!(
                "the mean loss is {mean} after {steps} steps, and the first was {first}: the steps may be too long, as where the loss \
                 cannot come near lower_bound = {lower_bound}; try factor={less},dog={dog}"
            )
        })
    }
}
