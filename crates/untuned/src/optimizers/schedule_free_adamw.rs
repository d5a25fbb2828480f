use super::schedule_free::{self, Averaging};
use super::shared::{self, BiasCorrection};
use super::{At, Change, Here, Keep, Named, Number, Optimizer, Space, check_eps, check_held, check_square};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Schedule-Free AdamW: as [`ScheduleFreeSgd`](super::ScheduleFreeSgd), with `u = g/(√v̂ + eps)` in place of the gradient and `beta1`
/// in place of the momentum.
///
/// `v` is the running mean of `g²`, begun at 0, and `v̂ = v/(1 − β2ᵗ)`. Published disagreements:
/// - `bias_correction=rate`, in which the paper's experiments were made: `v̂ = v`, and the rate is multiplied with `√(1 − β2ᵗ)`, also
///   where it weighs the average;
/// - `decay_at=z` adds `decay·z` to `u`, as the authors' reference implementation can, and not `decay·y`.
///
/// Reference: Defazio, Yang, Mehta, Mishchenko, Khaled & Cutkosky, *The road less scheduled*, 2024.
///
/// ```
/// # use untuned::{Observation, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let spec: OptimizerSpec = "schedule-free-adamw:lr=2,beta1=0.5,eps=1e-12".parse()?;
/// let mut free = spec.build(&Setting::new(2))?;
/// let (space, around) = (Plain::new(1), Around::default());
/// let (mut y, mut average) = (vec![8.0], vec![0.0]);
/// let mut kept = Keep::all(&space, &free.keeps(), &y)?;
/// for t in 0..2 {
///     let at = At { space: &space, around: &around, x: &mut y, gradient: &vec![0.25], kept: &mut kept };
///     free.step(&Observation::new(t, 7.0, 0.25), &[], at)?;
/// }
/// // Whatever the gradient's length, z = 8 − 2 − 2; the average is that of 6 and 4, and y is halfway between 5 and 4.
/// assert!(free.evaluated(&space, &y, &kept, &mut average));
/// assert!((y[0] - 4.5).abs() < 1e-10 && (average[0] - 5.0).abs() < 1e-10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFreeAdamW {
    /// The learning rate.
    pub lr: f64,
    /// How far `y` is on the way from `z` to the average.
    pub beta1: f64,
    /// `β2`, of the mean of the gradient's square.
    pub beta2: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// Whether the rate is corrected for a mean that begins at 0, and not the mean.
    pub correct_rate: bool,
    /// Whether `z` decays, and not `y`.
    pub decay_at_z: bool,
    averaging: Averaging,
    correction: BiasCorrection,
}

impl Default for ScheduleFreeAdamW {
    fn default() -> ScheduleFreeAdamW {
        ScheduleFreeAdamW {
            lr: 0.0025,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            correct_rate: false,
            decay_at_z: false,
            averaging: Averaging::default(),
            correction: BiasCorrection::START,
        }
    }
}

impl Named for ScheduleFreeAdamW {
    const ENTRY: Entry = Entry {
        name: "schedule-free-adamw",
        aliases: &[],
        formula: "z ← z − lr·g(y)/(√v̂ + eps), y between z and the average of all z, which is evaluated",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(0.0025),
                meaning: "the learning rate",
            },
            Parameter {
                name: "beta1",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "how far y is on the way from z to the average; above 0",
            },
            shared::BETA2,
            shared::EPS,
            schedule_free::WARMUP_STEPS,
            schedule_free::LATE_WARMUP,
            schedule_free::R,
            schedule_free::WEIGHT_LR_POWER,
            Parameter {
                name: "bias_correction",
                kind: Kind::Word(&["moment", "rate"]),
                default: Fallback::Word("moment"),
                meaning: "of the mean of g² itself, or in the rate (the paper's experiments)",
            },
            Parameter {
                name: "decay_at",
                kind: Kind::Word(&["y", "z"]),
                default: Fallback::Word("y"),
                meaning: "the point whose decay is added to the step",
            },
        ],
        reference: "Defazio et al. 2024",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<ScheduleFreeAdamW, SpecError> {
        let (beta1, eps) = (schedule_free::above_zero(spec, "beta1")?, spec.number("eps"));
        check_eps(spec, "eps")?;
        Ok(ScheduleFreeAdamW {
            lr: spec.number("lr"),
            beta1,
            beta2: spec.number("beta2"),
            eps,
            correct_rate: spec.word("bias_correction") == "rate",
            decay_at_z: spec.word("decay_at") == "z",
            averaging: Averaging::from_spec(spec),
            correction: BiasCorrection::START,
        })
    }
}

/// `v ← β2·v + (1 − β2)·g²`, `z ← z − rate·u` and `y ← y + c·(z − y) − share·u` with the old `z`, where `u = g/(root·√v + eps)` with
/// the scaled gradient, plus the decay at `z` (`at_z = 1`) or `y`.
struct Free;

impl Change<9, 3, 1> for Free {
    #[inline(always)]
    fn each<N: Number>(
        [scale, c, share, rate, old_v, new_v, root, eps, at_z]: [N; 9],
        Here { decay, .. }: Here<N>,
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
impl Optimizer for ScheduleFreeAdamW {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::parameters("schedule_free_z"), Keep::zeros("schedule_free_v")]
    }

    fn step<S: Space>(&mut self, seen: &Observation, _: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        let scale = at.around.gradient_scale(seen.grad_norm);
        check_square::<S>(seen, scale)?;
        let correction = self.correction.next(self.beta1, self.beta2);
        let (corrected, root) =
            if self.correct_rate { (correction.root(), 1.0) } else { (1.0, correction.root().recip()) };
        let (averaging, step, c) = self.averaging.next(self.lr * at.around.rate * corrected, seen)?;
        check_held::<S>(seen, &[step.size])?;
        let [z, v] = at.kept else {
            panic!("Schedule-Free AdamW keeps two vectors, not {}", at.kept.len());
        };
        (self.averaging, self.correction) = (averaging, correction);
        let share = step.size * (1.0 - self.beta1 * (1.0 - c));
        let at_z = f64::from(u8::from(self.decay_at_z));
        let scalars = [scale, c, share, step.size, self.beta2, 1.0 - self.beta2, root, self.eps, at_z];
        at.space.change(Free, scalars, at.around.weight_decay, [at.x, z, v], [at.gradient]);
        Ok(step)
    }

    fn evaluated<S: Space>(&self, space: &S, x: &S::Vector, kept: &[S::Vector], to: &mut S::Vector) -> bool {
        schedule_free::write_average(space, self.beta1, x, &kept[0], to);
        true
    }
}
