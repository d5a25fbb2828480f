use crate::parameters::{Parameters as _, RunInfo, Running, Start, refuse_others};
use crate::rule::{Needs, Observation, Point, Refusal, Step, StepKind, StepRule, over_square};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

parameters! {
    /// Polyak's step size with a lower bound that is refined on the way: `η_t = (f − f̃)/(s ‖g‖²)`.
    ///
    /// Two variants:
    /// - `variant=continuous` (default, ours): full steps (`s = 1`); when a step fails to improve the best value, go back to
    ///   the best iterate and set `f̃ ← (best + f̃)/2`. No horizon.
    /// - `variant=epochs` (Hazan & Kakade, *Revisiting the Polyak step size*, 2019, Algorithm 2): half steps (`s = 2`) in
    ///   `epochs` epochs of `T/epochs` steps; after each, `f̃ ← (best of the epoch + f̃)/2`, and the next starts again from
    ///   `x_0` (`restart=origin`, as published) or from the best iterate (`restart=best`).
    ///
    /// The bound may pass `f*`. A loss that reaches it disproves it, and `f̃` is set again, sixteen times as far below that
    /// loss as it was when it was last refined: without that, the continuous variant stops short of the optimum in two or
    /// more dimensions.
    ///
    /// ```
    /// use untuned::{Observation, Point, RunInfo, StepRule, rules::AdaptivePolyak};
    ///
    /// let mut rule = AdaptivePolyak::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 8.0, 2.0))?.size, 2.0, "a full step: 8/4");
    /// let back = rule.step(&Observation::new(1, 9.0, 1.0))?;
    /// assert_eq!((back.size, back.from), (1.0, Point::Best), "worse: the bound is now 4, (8 − 4)/4 from the best point");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct AdaptivePolyak: "adaptive-polyak" {
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
        /// continuous (ours): full steps, refined on failure; epochs: as Hazan & Kakade
        variant: AdaptivePolyakVariant = Continuous;
        /// K, the number of epochs, of T/K steps rounded up
        epochs: Option<u64> = "log2(T), rounded up", Whole(1, 1_000_000);
        /// where an epoch starts: x_0 (as published) or the best iterate
        restart: AdaptivePolyakRestart = Origin;
    }
    state: AdaptiveState,
    formula: "(f − f̃)/(s ‖g‖²), f̃ ← (best + f̃)/2: after a step that fails to improve (s = 1) or every T/K steps (s = 2)",
    reference: "Hazan & Kakade 2019, Algorithm 2; the continuous variant is ours",
}

words! {
    /// The variants of [`AdaptivePolyak`].
    pub enum AdaptivePolyakVariant {
        /// Refine when a step fails to improve.
        Continuous = "continuous",
        /// Refine after every epoch, then start again.
        Epochs = "epochs",
    }
}

words! {
    /// Where an epoch of [`AdaptivePolyak`] starts.
    pub enum AdaptivePolyakRestart {
        /// From `x_0`.
        Origin = "origin",
        /// From the best iterate.
        Best = "best",
    }
}

/// What is known of the steps before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveState {
    /// The epochs of `variant=epochs`.
    epochs: Option<Epochs>,
    /// `f̃`, the refined bound.
    bound: f64,
    /// How far `f̃` was below the value that it was set from.
    aim: Option<f64>,
    /// The best point so far.
    best: Option<PastPoint>,
    /// `x_0`, for epochs that start there.
    origin: Option<PastPoint>,
    /// The smallest loss of the current epoch.
    epoch_best: Option<f64>,
}

/// How the steps of a run are divided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Epochs {
    /// `T`.
    horizon: u64,
    /// The steps of an epoch.
    length: NonZeroU64,
}

impl Epochs {
    /// By default log2(T) of them, rounded up.
    fn new(run: &RunInfo, count: Option<u64>) -> Epochs {
        let steps = run.steps.max(1);
        let log2_up = u64::from(u64::BITS - (steps - 1).leading_zeros());
        let length = steps.div_ceil(count.unwrap_or(log2_up.max(1)));
        Epochs { horizon: run.steps, length: NonZeroU64::new(length).unwrap_or(NonZeroU64::MIN) }
    }
}

/// What the rule remembers of a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct PastPoint {
    loss: f64,
    grad_norm: f64,
}

impl Start for AdaptivePolyak {
    fn start(&self, run: &RunInfo) -> Result<AdaptiveState, SpecError> {
        let epochs = match self.variant {
            AdaptivePolyakVariant::Epochs => Some(Epochs::new(run, self.epochs)),
            AdaptivePolyakVariant::Continuous => {
                refuse_others(self, &["epochs", "restart"], "variant=epochs")?;
                None
            }
        };
        Ok(AdaptiveState {
            epochs,
            bound: self.lower_bound,
            aim: None,
            best: None,
            origin: None,
            epoch_best: None,
        })
    }
}

/// How much farther down a bound is set that was disproved. Twice as far still stops short on narrow valleys; all the way to
/// `l` makes the steps explode close to the optimum.
const FARTHER: f64 = 16.0;

impl Running<AdaptivePolyak> {
    /// `f̃` as it stands.
    pub fn bound(&self) -> f64 {
        self.state.bound
    }

    /// Where an epoch starts, or the continuous variant goes back to.
    fn restart(&self) -> Point {
        match (self.variant, self.restart) {
            (AdaptivePolyakVariant::Epochs, AdaptivePolyakRestart::Origin) => Point::Origin,
            _ => Point::Best,
        }
    }
}

impl StepRule for Running<AdaptivePolyak> {
    fn name(&self) -> &str {
        AdaptivePolyak::INFO.name
    }

    fn needs(&self) -> Needs {
        let restart = self.restart();
        Needs { best: restart == Point::Best, origin: restart == Point::Origin, ..Needs::LOSS }
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        let AdaptiveState { epochs, bound, aim, best, origin, epoch_best } = self.state;
        if let Some(Epochs { horizon, .. }) = epochs.filter(|epochs| seen.step >= epochs.horizon) {
            let remedy =
                "make it with a larger number of steps, or use `variant=continuous`, which has no horizon";
            return Err(Refusal::PastHorizon { step: seen.step, horizon, remedy });
        }
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let here = PastPoint { loss: seen.loss()?, grad_norm: seen.grad_norm };
        let improved = best.is_none_or(|b| here.loss < b.loss);
        // Ties go to the later point, as in the session, which keeps the point itself.
        let best = best.filter(|b| b.loss < here.loss).unwrap_or(here);
        let origin = origin.unwrap_or(here);
        let epoch_best = epoch_best.map_or(here.loss, |b| b.min(here.loss));

        // A loss that reaches the refined bound disproves it.
        let aim = aim.unwrap_or((here.loss - self.lower_bound).max(0.0));
        let (trusted, aim) = if here.loss <= bound {
            ((here.loss - FARTHER * aim).max(self.lower_bound), FARTHER * aim)
        } else {
            (bound, aim)
        };

        let restart = self.restart();
        let (due, shrink, reached) = match epochs {
            Some(Epochs { length, .. }) => (seen.step > 0 && seen.step % length == 0, 2.0, epoch_best),
            None => (!improved, 1.0, best.loss),
        };
        let start = if restart == Point::Origin { origin } else { best };
        // From a point that is no better than the bound there is no step: then the run goes on from here.
        let refine = due && start.loss > trusted;
        let bound = if refine { midpoint(reached, trusted) } else { trusted };
        let aim = if refine { reached - bound } else { aim };
        let (point, at) = if refine { (restart, start) } else { (Point::Here, here) };
        let gap = at.loss - bound;
        let size = over_square(gap.max(0.0) / shrink, at.grad_norm);
        let mut step = Step::new(size, seen)?.starting_at(point);
        if gap < 0.0 {
            step.kind = StepKind::BelowBound;
        }

        self.state = AdaptiveState {
            bound,
            aim: Some(aim.clamp(0.0, f64::MAX)),
            best: Some(best),
            origin: Some(origin),
            epoch_best: Some(if refine { start.loss } else { epoch_best }),
            ..self.state
        };
        Ok(step)
    }
}

/// `(a + b)/2` without overflow.
fn midpoint(a: f64, b: f64) -> f64 {
    a / 2.0 + b / 2.0
}
