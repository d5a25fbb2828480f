use super::schedule_free::{self, Averaging, Weighting};
use super::shared::BiasCorrection;
use crate::formula::{Change, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, check_square, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps};
use crate::rule::Step;
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// Schedule-Free AdamW: as [`ScheduleFreeSgd`](super::ScheduleFreeSgd), with `u = g/(√v̂ + eps)` in place of the gradient and
    /// `beta1` in place of the momentum.
    ///
    /// `v` is the running mean of `g²`, which starts at 0, and `v̂ = v/(1 − β2ᵗ)`. Published disagreements:
    /// - `bias_correction=rate`, in which the paper's experiments were made: `v̂ = v`, and the rate is multiplied with `√(1 − β2ᵗ)`,
    ///   also where it weighs the average;
    /// - `decay_at=z` adds `decay·z` to `u`, as the authors' reference implementation can, and not `decay·y`.
    ///
    /// Reference: Defazio, Yang, Mehta, Mishchenko, Khaled & Cutkosky, *The road less scheduled*, 2024.
    ///
    /// ```
    /// use untuned::optimizers::ScheduleFreeAdamW;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let free = ScheduleFreeAdamW { lr: 2.0, beta1: 0.5, eps: 1e-12, ..Default::default() };
    /// let mut session = Session::new(free.build(&RunInfo::new(2))?, DenseF64::new(1))?;
    /// let mut y = vec![8.0];
    /// for _ in 0..2 {
    ///     session.advance(7.0, &mut y, &vec![0.25])?;
    /// }
    /// // Whatever the gradient's length, z = 8 − 2 − 2; the average is that of 6 and 4, and y is halfway between 5 and 4.
    /// let average = session.evaluate(&y, |average| average[0])?;
    /// assert!((y[0] - 4.5).abs() < 1e-10 && (average - 5.0).abs() < 1e-10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ScheduleFreeAdamW: "schedule-free-adamw" {
        /// the learning rate
        lr: f64 = 0.0025, Positive;
        /// how far y is on the way from z to the average; above 0
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.999, Fraction;
        /// added to the root of the mean of g²
        eps: f64 = 1e-8, Positive;
        /// warm-up steps: step t uses t/warmup_steps of the rate
        warmup_steps: u64 = 0, Whole(0, 1_000_000_000_000);
        /// start the warm-up at 0, one step later (optax); the weights stay the same
        late_warmup: bool = false;
        /// the t-th point has the weight tʳ in the average
        r: f64 = 0.0, NonNegative;
        /// a point's weight in the average is the largest rate so far to this power
        weight_lr_power: f64 = 2.0, NonNegative;
        /// where the bias correction goes: moment (the mean of g²) or rate (the paper's experiments)
        bias_correction: ScheduleFreeCorrection = Moment;
        /// the point that weight decay uses: y or z
        decay_at: ScheduleFreeDecayAt = Y;
    }
    state: ScheduleFreeAdamWState,
    formula: "z ← z − lr·g(y)/(√v̂ + eps), y between z and the average of all z, which is evaluated",
    reference: "Defazio et al. 2024",
}

words! {
    /// Where the bias correction of [`ScheduleFreeAdamW`] goes.
    pub enum ScheduleFreeCorrection {
        /// Into the mean of `g²`.
        Moment = "moment",
        /// Into the rate.
        Rate = "rate",
    }
}

words! {
    /// The point that weight decay uses in [`ScheduleFreeAdamW`].
    pub enum ScheduleFreeDecayAt {
        /// `y`, the parameters that are trained.
        Y = "y",
        /// `z`, the point that makes the steps.
        Z = "z",
    }
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFreeAdamWState {
    /// What the weights of the average depend on.
    averaging: Averaging,
    /// The correction for a mean that starts at 0.
    correction: BiasCorrection,
}

impl Start for ScheduleFreeAdamW {
    fn start(&self, _: &RunInfo) -> Result<ScheduleFreeAdamWState, SpecError> {
        schedule_free::check_above_zero::<ScheduleFreeAdamW>("beta1", self.beta1)?;
        check_eps::<ScheduleFreeAdamW>("eps", self.eps)?;
        Ok(ScheduleFreeAdamWState { averaging: Averaging::START, correction: BiasCorrection::START })
    }
}

impl ScheduleFreeAdamW {
    fn weighting(&self) -> Weighting {
        let &ScheduleFreeAdamW { warmup_steps, late_warmup, r, weight_lr_power, .. } = self;
        Weighting { warmup_steps, late_warmup, r, weight_lr_power }
    }
}

/// `v ← β2·v + (1 − β2)·g²`, `z ← z − rate·u` and `y ← y + c·(z − y) − share·u` with the old `z`, where `u = g/(root·√v + eps)` with
/// the scaled gradient, plus the decay at `z` (`at_z = 1`) or `y`.
struct Free;

impl Change<9, 3, 1> for Free {
    #[inline(always)]
    fn each<N: Number>(
        [scale, c, share, rate, old_v, new_v, root, eps, at_z]: [N; 9],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [y, z, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let g = scale * g;
        let v = old_v * v + new_v * g * g;
        let u = g / (root * v.sqrt() + eps) + decay * at_z.above(N::of(0.5), z, y);
        [y + c * (z - y) - share * u, z - rate * u, v]
    }
}

/// State: two vectors. A step is one pass: it reads 4 vectors and writes 3.
impl Optimizer for Running<ScheduleFreeAdamW> {
    fn name(&self) -> &str {
        ScheduleFreeAdamW::INFO.name
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::copy("z"), StateVector::zeros("v")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x: y, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [z, v] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let scale = options.gradient_scale(seen.grad_norm);
        check_square::<S>(&seen, scale)?;
        let correction = self.state.correction.next(self.beta1, self.beta2);
        let (corrected, root) = match self.bias_correction {
            ScheduleFreeCorrection::Moment => (1.0, correction.root().recip()),
            ScheduleFreeCorrection::Rate => (correction.root(), 1.0),
        };
        let rate = self.lr * options.rate * corrected;
        let (averaging, step, c) = self.state.averaging.next(self.weighting(), rate, &seen)?;
        check_held::<S>(&seen, &[step.size])?;
        self.state = ScheduleFreeAdamWState { averaging, correction };
        let share = step.size * (1.0 - self.beta1 * (1.0 - c));
        let at_z = match self.decay_at {
            ScheduleFreeDecayAt::Y => 0.0,
            ScheduleFreeDecayAt::Z => 1.0,
        };
        let scalars = [scale, c, share, step.size, self.beta2, 1.0 - self.beta2, root, self.eps, at_z];
        context.change(Free, scalars, options.weight_decay, [y, z, v], [gradient]);
        Ok(step)
    }

    fn has_evaluation_point(&self) -> bool {
        true
    }

    /// The average.
    fn write_evaluation_point<S: Space>(
        &self,
        space: &S,
        x: &S::Vector,
        state: &[S::Vector],
        to: &mut S::Vector,
    ) {
        let z = &state[0];
        schedule_free::write_average(space, self.beta1, x, z, to);
    }
}
