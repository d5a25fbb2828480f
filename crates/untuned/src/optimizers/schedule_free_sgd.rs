use super::schedule_free::{self, Averaging, Weighting};
use crate::formula::{Change, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, check_square, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start};
use crate::rule::Step;
use crate::space::Space;
use crate::spec::SpecError;

parameters! {
    /// Schedule-Free SGD: steps at `z`, gradients at `y` between `z` and the average `x̄` of its path; the average is evaluated.
    ///
    /// With `γ` the rate after warm-up, and `c` the weight of the new `z` in the average:
    /// - `z ← z − γ·g(y)`, `x̄ ← (1 − c)·x̄ + c·z`, `y ← (1 − momentum)·z + momentum·x̄`;
    /// - `c = w/Σw`, `w = tʳ·(largest γ so far)^weight_lr_power`, `t` from 1.
    ///
    /// The parameters that are trained are `y`. The average `x̄ = y + (1 − 1/momentum)·(z − y)` is never kept:
    /// [`Optimizer::write_evaluation_point`](crate::Optimizer::write_evaluation_point) computes it. Weight decay adds `decay·y` to `g`.
    /// `γ` is `lr` times the schedule's factor, and `t/warmup_steps` of that in the first `warmup_steps` steps. With `late_warmup=yes`,
    /// as in optax, the step uses `(t − 1)/warmup_steps`; its weight does not.
    ///
    /// Reference: Defazio, Yang, Mehta, Mishchenko, Khaled & Cutkosky, *The road less scheduled*, 2024.
    ///
    /// ```
    /// use untuned::optimizers::ScheduleFreeSgd;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let free = ScheduleFreeSgd { lr: 0.5, momentum: 0.5, ..Default::default() };
    /// let mut session = Session::new(free.build(&RunInfo::new(2))?, DenseF64::new(1))?;
    /// let mut y = vec![8.0];
    /// for _ in 0..2 {
    ///     assert_eq!(session.advance(7.0, &mut y, &vec![4.0])?.rate, 0.5);
    /// }
    /// // z = 8 − 2 − 2, the average is that of 6 and 4, and y is halfway between 5 and 4.
    /// let z: Vec<_> = session.vectors().map(|(name, vector)| (name, vector[0])).collect();
    /// assert_eq!((y[0], z), (4.5, vec![("z", 4.0)]));
    /// assert_eq!(session.evaluate(&y, |average| average[0])?, 5.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ScheduleFreeSgd: "schedule-free-sgd" {
        /// the learning rate
        lr: f64 = 1.0, Positive;
        /// how far y is on the way from z to the average; above 0
        momentum: f64 = 0.9, Fraction;
        /// warm-up steps: step t uses t/warmup_steps of the rate
        warmup_steps: u64 = 0, Whole(0, 1_000_000_000_000);
        /// start the warm-up at 0, one step later (optax); the weights stay the same
        late_warmup: bool = false;
        /// the t-th point has the weight tʳ in the average
        r: f64 = 0.0, NonNegative;
        /// a point's weight in the average is the largest rate so far to this power
        weight_lr_power: f64 = 2.0, NonNegative;
    }
    state: Averaging,
    formula: "z ← z − lr·g(y), y between z and the average of all z, which is evaluated",
    reference: "Defazio et al. 2024",
}

impl Start for ScheduleFreeSgd {
    fn start(&self, _: &RunInfo) -> Result<Averaging, SpecError> {
        schedule_free::check_above_zero::<ScheduleFreeSgd>("momentum", self.momentum)?;
        Ok(Averaging::START)
    }
}

impl ScheduleFreeSgd {
    fn weighting(&self) -> Weighting {
        let &ScheduleFreeSgd { warmup_steps, late_warmup, r, weight_lr_power, .. } = self;
        Weighting { warmup_steps, late_warmup, r, weight_lr_power }
    }
}

/// `z ← z − rate·g` and `y ← y + c·(z − y) − share·g` with the old `z`, `g` being the scaled gradient plus the decay.
struct Free;

impl Change<4, 2, 1> for Free {
    #[inline(always)]
    fn each<N: Number>(
        [scale, c, share, rate]: [N; 4],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [y, z]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let g = scale * g + decay * y;
        [y + c * (z - y) - share * g, z - rate * g]
    }
}

/// State: one vector. A step is one pass: it reads 3 vectors and writes 2.
impl Optimizer for Running<ScheduleFreeSgd> {
    fn name(&self) -> &str {
        ScheduleFreeSgd::INFO.name
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::copy("z")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x: y, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [z] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let scale = options.gradient_scale(seen.grad_norm);
        check_square::<S>(&seen, scale)?;
        let (averaging, step, c) = self.state.next(self.weighting(), self.lr * options.rate, &seen)?;
        check_held::<S>(&seen, &[step.size, step.size * scale * seen.grad_norm])?;
        self.state = averaging;
        let share = step.size * (1.0 - self.momentum * (1.0 - c));
        context.change(Free, [scale, c, share, step.size], options.weight_decay, [y, z], [gradient]);
        Ok(step)
    }

    fn has_evaluation_point(&self) -> bool {
        true
    }

    /// `x̄`.
    fn write_evaluation_point<S: Space>(
        &self,
        space: &S,
        x: &S::Vector,
        state: &[S::Vector],
        to: &mut S::Vector,
    ) {
        let z = &state[0];
        schedule_free::write_average(space, self.momentum, x, z, to);
    }
}
