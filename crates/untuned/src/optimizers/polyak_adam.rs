use serde::{Deserialize, Serialize};

use super::shared::Estimate;
use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, check_square, check_sums, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps};
use crate::rule::{Needs, Refusal, Step};
use crate::space::Space;
use crate::spec::{self, SpecError};

parameters! {
    /// A Polyak step in Adam's geometry: no learning rate, no clipping, no warm-up.
    ///
    /// With `D = √v̂ + eps`, `v̂` being Adam's mean of `g²`, and `s` the [scale](crate::space::scales) of a coordinate's tensor:
    ///
    /// `m ← β1·m + (1 − β1)·g/D`, `x ← x − η·s·m`, `η = max(factor·mean(f − l)/mean(Σ s·g²/D), dog·R/√G) · (1 − t/T)`.
    ///
    /// Both means are exponential with the weight `average`. They start at 0 and are corrected for that, as `v̂` is; `m` is not. They
    /// are `1/(1 − average)` steps long. Once so many steps are made, `Σ s·g²/D` is measured only about twelve times in that length, one
    /// step in eight for 0.99. A measured value stands for the steps since the last one. The distance `R` below is measured with it
    /// where the run is a sixteenth longer than when it last was. A step costs what AdamW's does, to 2 % in a long run.
    ///
    /// For fixed `D` and `s`, without momentum and means, the first of the two is Polyak's step (a `factor` of it) in the norm
    /// `‖x‖² = Σ x²·D/s`, and the second is DoG's in the same norm: `R` is the greatest distance from the start so far, and `G` the sum
    /// of `Σ s·g²/D` over all steps. Polyak's step is short where batches are noisy, because their noise counts in `Σ s·g²/D` but not in
    /// `f`. DoG's sees how far the parameters have come, and takes over there.
    ///
    /// What is proved, for convex `f` with minimum `f*`, fixed `D` and `s`, no momentum, no means and `dog=0`, with `σ² = f* − l`: a step
    /// with the factor `a` brings `x` nearer to a minimum, `‖x⁺ − x*‖² ≤ ‖x − x*‖² − η·[(2 − a)(f − f*) − a·σ²]`, so that it makes
    /// progress as long as `f − f* > aσ²/(2 − a)`, which is `σ²/3` for `a = ½`. With the means, `a` becomes `a·κ` with
    /// `κ = mean(f − l)·Σsg²/D / ((f − l)·mean(Σsg²/D))`; `cap=yes` keeps `a·κ ≤ 1`, and with it DoG's step, too. The method's
    /// [estimate](crate::Optimizer::estimate) is what part of the batch's own Polyak step was made. Momentum, a `D` that moves, DoG's
    /// step, batches and a rate that falls to 0 are measured only.
    ///
    /// ```
    /// use untuned::optimizers::PolyakAdam;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let method = PolyakAdam { eps: 1e-30, ..Default::default() };
    /// let mut session = Session::new(method.build(&RunInfo::new(10))?, DenseF64::new(2))?;
    /// let mut x = vec![1.0, 1.0];
    /// let report = session.advance(14.0, &mut x, &vec![3.0, -4.0])?;
    /// // √v̂ is |g| at first, so that Σs·g²/D = 7, η = ½·14/7, and m = 0.1·(1, −1).
    /// assert!((report.rate - 1.0).abs() < 1e-15);
    /// assert!((x[0] - 0.9).abs() < 1e-15 && (x[1] - 1.1).abs() < 1e-15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct PolyakAdam: "polyak-adam" {
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
        /// fraction of Polyak's step
        factor: f64 = 0.5, Positive;
        /// the step is at least this many DoG steps
        dog: f64 = 1.5, NonNegative;
        /// the weight of the old means of f − l and of Σg²/D
        average: f64 = 0.99, Fraction;
        /// β1, the weight of the old mean of g
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.99, Fraction;
        /// added to the root of the mean of g²
        eps: f64 = 1e-8, Positive;
        /// limit the rate to the current batch's Polyak step
        cap: bool = false;
        /// how the rate falls: linear (to 0 at the end of the run) or none
        decay: PolyakAdamDecay = Linear;
    }
    state: PolyakAdamState,
    formula: "x − η·m, m the mean of g/D with weight beta1, D = √v̂ + eps, η = max(factor·mean(f − l)/mean(Σg²/D), \
        dog·R/√G)·(1 − t/T), R² = max Σ(x − x0)²·D, G the sum of all Σg²/D; each tensor in units of its size",
    reference: "this project; after Polyak 1987 and Kingma & Ba 2015",
    weight_decay: 0.1,
}

words! {
    /// How the rate of [`PolyakAdam`] falls.
    pub enum PolyakAdamDecay {
        /// In a line, to 0 at the end of the run.
        Linear = "linear",
        /// Not at all.
        None = "none",
    }
}

/// What is known of the steps before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PolyakAdamState {
    /// `T`, where the rate falls to 0.
    horizon: Option<u64>,
    /// `β2ᵗ`, a product as in AdamW.
    beta2_power: f64,
    /// The mean of `f − l`.
    gap: Mean,
    /// The mean of `Σs·g²/D`.
    square: Mean,
    /// `G`, the sum of `Σs·g²/D`.
    total_squares: f64,
    /// `R²`, the greatest `Σ(x − x0)²·D/s` that was measured.
    farthest_squared: f64,
    /// The step that measured the distance last.
    farthest_measured_at: u64,
    /// The steps made.
    steps: u64,
    /// The steps since the last one that measured.
    unmeasured_steps: u64,
    /// The first loss.
    first_loss: f64,
    /// What part of the batch's own Polyak step was made when it measured last, without the factor `1 − t/T`; nothing where that step
    /// is 0 or too small.
    polyak_share: Option<f64>,
}

impl Start for PolyakAdam {
    fn start(&self, run: &RunInfo) -> Result<PolyakAdamState, SpecError> {
        check_eps::<PolyakAdam>("eps", self.eps)?;
        Ok(PolyakAdamState {
            horizon: (self.decay == PolyakAdamDecay::Linear).then_some(run.steps),
            beta2_power: 1.0,
            gap: Mean::default(),
            square: Mean::default(),
            total_squares: 0.0,
            farthest_squared: 0.0,
            farthest_measured_at: 0,
            steps: 0,
            unmeasured_steps: 0,
            first_loss: 0.0,
            polyak_share: None,
        })
    }
}

/// An exponential mean that starts with nothing, and what weight the values in it have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    /// The weighted sum of the values.
    sum: f64,
    /// The sum of their weights.
    weight: f64,
}

impl Mean {
    /// With one value more.
    fn with(self, old_weight: f64, value: f64) -> Mean {
        let new_weight = 1.0 - old_weight;
        Mean {
            sum: old_weight * self.sum + new_weight * value,
            weight: old_weight * self.weight + new_weight,
        }
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
    const HAS_NORM: bool = true;
    const NARROW: [bool; 2] = [false, true];

    #[inline(always)]
    fn each<N: Number>(scalars: [N; 4], TensorInfo { scale, .. }: TensorInfo<N>, [v, g]: [N; 2]) -> [N; 2] {
        let d = geometry(scalars, v, g).1;
        [g * g, g * (g / d) * scale]
    }
}

/// `Σ g²`, `Σ s·g²/D` and `Σ (x − x0)²·D/s`.
struct SquaresAndDistance;

impl Measure<4, 4, 3> for SquaresAndDistance {
    const HAS_NORM: bool = true;
    const NARROW: [bool; 3] = [false, true, true];

    #[inline(always)]
    fn each<N: Number>(scalars: [N; 4], info: TensorInfo<N>, [v, g, x, x0]: [N; 4]) -> [N; 3] {
        let [norm, square] = Squares::each(scalars, info, [v, g]);
        let (d, moved) = (geometry(scalars, v, g).1, x - x0);
        [norm, square, moved * moved * d / info.scale]
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
        TensorInfo { decay, scale }: TensorInfo<N>,
        [x, m, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let (v, d) = geometry([old, new, root, eps], v, g);
        let m = direction([old_m, new_m], m, g, d);
        [x * (N::of(1.0) - decay * scale).max(N::of(0.0)) - size * (scale * m), m, v]
    }
}

impl Running<PolyakAdam> {
    /// The parts that the means' length is divided into, a value of `Σs·g²/D` for each.
    const PARTS: f64 = 12.0;
    /// The parts that the steps before are divided into: when one more is made, the distance is measured again.
    const FAR_PARTS: u64 = 16;

    /// Whether the step that comes needs `Σs·g²/D`: the last one is as old as a part of the means' length, or the means are not full
    /// yet, or each batch counts for itself.
    fn is_due(&self) -> bool {
        let length = (1.0 - self.average).recip();
        let full = self.state.steps as f64 >= length;
        self.cap || !full || (self.state.unmeasured_steps + 1) as f64 >= (length / Self::PARTS).floor()
    }

    /// Whether a step that needs `Σs·g²/D` needs the distance, too.
    fn is_far_due(&self) -> bool {
        let PolyakAdamState { steps, farthest_measured_at, .. } = self.state;
        steps - farthest_measured_at >= steps / Self::FAR_PARTS
    }

    /// The scalars of [`geometry`] in the step that comes.
    fn geometry(&self) -> [f64; 4] {
        let root = (1.0 - self.state.beta2_power * self.beta2).sqrt().recip();
        [self.beta2, 1.0 - self.beta2, root, self.eps]
    }
}

/// State: `x_0` and two vectors. A step is a pass that reads 4 vectors and writes 3. A step that measures reads 2 before it, and 4
/// where it measures the distance.
impl Optimizer for Running<PolyakAdam> {
    fn name(&self) -> &str {
        PolyakAdam::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { x0: true, scales: true, ..Needs::LOSS }
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m"), StateVector::zeros("v")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let x0 = vectors.x0();
        let Vectors { x, gradient, state, .. } = vectors;
        let [m, v] = named(state);
        let options = context.options;
        let geometry = self.geometry();
        let due = self.is_due();
        let (seen, square, distance_squared) = if due && self.is_far_due() {
            let read = [&*v, gradient, &*x, x0];
            let (seen, [_, square, distance_squared]) =
                context.observe_with(SquaresAndDistance, geometry, 0.0, read)?;
            (seen, Some(square), Some(distance_squared))
        } else if due {
            let (seen, [_, square]) = context.observe_with(Squares, geometry, 0.0, [&*v, gradient])?;
            (seen, Some(square), None)
        } else {
            (context.observe()?, None, None)
        };
        check_square::<S>(&seen, 1.0)?;
        check_sums(&seen, &["Σg²/D"], square.as_slice())?;
        check_sums(&seen, &["Σ(x − x0)²·D"], distance_squared.as_slice())?;
        let mut next = self.state;
        if let Some(horizon) = next.horizon.filter(|horizon| seen.step >= *horizon) {
            let remedy = "make it with a larger number of steps, or add `decay=none`";
            return Err(Refusal::PastHorizon { step: seen.step, horizon, remedy }.into());
        }
        let gap = seen.above(self.lower_bound)?;
        next.gap = next.gap.with(self.average, gap.value);
        if let Some(square) = square {
            let old_weight = (0..=next.unmeasured_steps).map(|_| self.average).product();
            next.square = next.square.with(old_weight, square);
            next.total_squares += (next.unmeasured_steps + 1) as f64 * square;
            next.unmeasured_steps = 0;
        } else {
            next.unmeasured_steps += 1;
        }
        if let Some(distance_squared) = distance_squared {
            next.farthest_squared = next.farthest_squared.max(distance_squared);
            next.farthest_measured_at = next.steps;
        }
        let polyak = |gap: f64, square: f64| if square > 0.0 { gap / square } else { 0.0 };
        let mut size = self.factor * polyak(next.gap.value(), next.square.value());
        if next.total_squares > 0.0 {
            size = size.max(self.dog * next.farthest_squared.sqrt() / next.total_squares.sqrt());
        }
        if let Some(square) = square {
            let own = polyak(gap.value, square);
            if self.cap {
                size = size.min(own);
            }
            next.polyak_share = Some(size / own).filter(|share| share.is_finite());
        }
        let left = next.horizon.map_or(1.0, |horizon| (horizon - seen.step) as f64 / horizon as f64);
        let step = Step::new(size * left * options.rate, &seen)?.mark(gap);
        check_held::<S>(&seen, &[step.size])?;
        if next.steps == 0 {
            next.first_loss = seen.loss()?;
        }
        next.beta2_power *= self.beta2;
        next.steps += 1;
        self.state = next;
        let [old, new, root, eps] = geometry;
        let scalars = [old, new, root, eps, self.beta1, 1.0 - self.beta1, step.size];
        context.change(Descend, scalars, step.size * options.weight_decay, [x, m, v], [gradient]);
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    fn default_weight_decay(&self) -> f64 {
        PolyakAdam::INFO.weight_decay
    }

    /// What part of the batch's own Polyak step was made in the last step that measured, without the factor `1 − t/T`.
    fn estimate(&self) -> Option<f64> {
        self.state.polyak_share
    }

    fn warning(&self) -> Option<String> {
        let PolyakAdamState { steps, first_loss, gap, .. } = self.state;
        let lower_bound = self.lower_bound;
        let mean = lower_bound + gap.value();
        (steps >= Estimate::PATIENCE && mean > first_loss).then(|| {
            let (factor, dog) = (0.5 * self.factor, 0.5 * self.dog);
            let (mean, first) = (spec::loss(mean), spec::loss(first_loss));
            format!(
                "the mean loss is {mean} after {steps} steps, and the first was {first}: the steps may be too long. \
                 Try factor={factor},dog={dog}, or a lower_bound nearer to the smallest loss (now {lower_bound})"
            )
        })
    }
}
