use super::schedule_free::{self, Averaging};
use super::{At, Change, Here, Keep, Named, Number, Optimizer, Space, check_held, check_square};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Schedule-Free SGD: steps at `z`, gradients at `y` between `z` and the average `x̄` of its path; the average is evaluated.
///
/// With `γ = lr` times what warm-up makes of it, and `c` the weight of the new `z` in the average:
/// - `z ← z − γ·g(y)`, `x̄ ← (1 − c)·x̄ + c·z`, `y ← (1 − momentum)·z + momentum·x̄`;
/// - `c = w/Σw`, `w = tʳ·(largest γ so far)^weight_lr_power`, `t` from 1.
///
/// The parameters that are trained are `y`, and `x̄ = y + (1 − 1/momentum)·(z − y)` is never kept: [`Optimizer::evaluated`] writes it.
/// Weight decay adds `decay·y` to `g`. In the first `warmup_steps` steps the rate is `t/warmup_steps` of its whole, besides what a
/// run's own warm-up and schedule make of it; with `late_warmup=yes`, as in optax, it is `(t − 1)/warmup_steps` in the step, but not
/// in the weight.
///
/// Reference: Defazio, Yang, Mehta, Mishchenko, Khaled & Cutkosky, *The road less scheduled*, 2024.
///
/// ```
/// # use untuned::{Observation, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let mut free = "schedule-free-sgd:lr=0.5,momentum=0.5".parse::<OptimizerSpec>()?.build(&Setting::new(2))?;
/// let (space, around) = (Plain::new(1), Around::default());
/// let (mut y, mut average) = (vec![8.0], vec![0.0]);
/// let mut kept = Keep::all(&space, &free.keeps(), &y)?;
/// for t in 0..2 {
///     let at = At { space: &space, around: &around, x: &mut y, gradient: &vec![4.0], kept: &mut kept };
///     assert_eq!(free.step(&Observation::new(t, 7.0, 4.0), &[], at)?.size, 0.5);
/// }
/// // z = 8 − 2 − 2, the average is that of 6 and 4, and y is halfway between 5 and 4.
/// assert!(free.evaluated(&space, &y, &kept, &mut average));
/// assert_eq!((y[0], kept[0][0], average[0]), (4.5, 4.0, 5.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFreeSgd {
    /// The learning rate.
    pub lr: f64,
    /// How far `y` is on the way from `z` to the average.
    pub momentum: f64,
    averaging: Averaging,
}

impl Default for ScheduleFreeSgd {
    fn default() -> ScheduleFreeSgd {
        ScheduleFreeSgd { lr: 1.0, momentum: 0.9, averaging: Averaging::default() }
    }
}

impl Named for ScheduleFreeSgd {
    const ENTRY: Entry = Entry {
        name: "schedule-free-sgd",
        aliases: &[],
        formula: "z ← z − lr·g(y), y between z and the average of all z, which is evaluated",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "the learning rate",
            },
            Parameter {
                name: "momentum",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "how far y is on the way from z to the average; above 0",
            },
            schedule_free::WARMUP_STEPS,
            schedule_free::LATE_WARMUP,
            schedule_free::R,
            schedule_free::WEIGHT_LR_POWER,
        ],
        reference: "Defazio et al. 2024",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<ScheduleFreeSgd, SpecError> {
        let momentum = schedule_free::above_zero(spec, "momentum")?;
        Ok(ScheduleFreeSgd { lr: spec.number("lr"), momentum, averaging: Averaging::from_spec(spec) })
    }
}

/// `z ← z − rate·g` and `y ← y + c·(z − y) − share·g` with the old `z`, `g` being the scaled gradient plus the decay.
struct Free;

impl Change<4, 2, 1> for Free {
    #[inline(always)]
    fn each<N: Number>(
        [scale, c, share, rate]: [N; 4],
        Here { decay, .. }: Here<N>,
        [y, z]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let g = scale * g + decay * y;
        [y + c * (z - y) - share * g, z - rate * g]
    }
}

/// State: one vector. A step is one pass: it reads 3 vectors and writes 2.
impl Optimizer for ScheduleFreeSgd {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::parameters("schedule_free_z")]
    }

    fn step<S: Space>(&mut self, seen: &Observation, _: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        let scale = at.around.gradient_scale(seen.grad_norm);
        check_square::<S>(seen, scale)?;
        let (averaging, step, c) = self.averaging.next(self.lr * at.around.rate, seen)?;
        check_held::<S>(seen, &[step.size, step.size * scale * seen.grad_norm])?;
        let [z] = at.kept else { panic!("Schedule-Free SGD keeps one vector, not {}", at.kept.len()) };
        self.averaging = averaging;
        let scalars = [scale, c, step.size * (1.0 - self.momentum * (1.0 - c)), step.size];
        at.space.change(Free, scalars, at.around.weight_decay, [at.x, z], [at.gradient]);
        Ok(step)
    }

    fn evaluated<S: Space>(&self, space: &S, x: &S::Vector, kept: &[S::Vector], to: &mut S::Vector) -> bool {
        schedule_free::write_average(space, self.momentum, x, &kept[0], to);
        true
    }
}
