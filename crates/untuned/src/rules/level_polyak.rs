use super::{LOWER_BOUND, Named, Setting};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::{Entry, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Polyak's step size towards a target level below the best value: `η_t = (f − f̃)/‖g‖²`, `f̃ = max(l, best − δ)`.
///
/// `δ` starts as `f_0 − l`. It is halved, and `f̃` set anew, when two steps in a row fail to improve the best value: the aim
/// was too low. It is doubled, and `f̃` set anew, once the best value has come half of `δ` closer: the aim was within reach.
/// So `f̃` finds `f*` from both sides, without a horizon and without going back, and the steps become Polyak's own. For
/// deterministic losses: on mini-batches the best value says little.
///
/// Ours; after the adjustable target levels of Nedić & Bertsekas, *Incremental subgradient methods for nondifferentiable
/// optimization*, 2001, whose `δ` shrinks whenever the level is not reached. We know of no theorem for this form.
///
/// ```
/// # use untuned::{Observation, Setting, StepRule, RuleSpec};
/// let mut rule = "level-polyak".parse::<RuleSpec>()?.build(&Setting::new(100))?;
/// assert_eq!(rule.step(&Observation::new(0, 8.0, 2.0))?.size, 2.0, "towards 0: 8/4");
/// assert_eq!(rule.step(&Observation::new(1, 9.0, 1.0))?.size, 9.0, "no better than 8, once: 9/1");
/// assert_eq!(rule.step(&Observation::new(2, 9.0, 1.0))?.size, 5.0, "twice: δ is 4, (9 − (8 − 4))/1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelPolyak {
    /// `l`.
    pub lower_bound: f64,
    /// The rest of the state, from the first step on.
    level: Option<Level>,
}

/// What the rule aims at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Level {
    /// The smallest loss so far.
    best: f64,
    /// The best value when `target` was set.
    from: f64,
    /// `f̃`; `from − target` is `δ`.
    target: f64,
    /// Whether the last step failed to improve.
    failed: bool,
}

impl Named for LevelPolyak {
    const ENTRY: Entry = Entry {
        name: "level-polyak",
        aliases: &[],
        formula: "(f − f̃)/‖g‖², f̃ = max(l, best − δ): δ halves after two steps that fail to improve, doubles when half of it is gained",
        parameters: &[LOWER_BOUND],
        reference: "ours, after Nedić & Bertsekas 2001; no theorem",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<LevelPolyak, SpecError> {
        Ok(LevelPolyak { lower_bound: spec.number("lower_bound"), level: None })
    }
}

impl LevelPolyak {
    /// The level after this loss was seen.
    fn next(&self, loss: f64) -> Level {
        let aim = |best: f64, delta: f64| Level {
            best,
            from: best,
            target: (best - delta).max(self.lower_bound),
            failed: false,
        };
        let Some(level) = self.level else {
            return aim(loss, (loss - self.lower_bound).max(0.0));
        };
        let Level { best, from, target, failed } = level;
        match () {
            () if loss >= best && failed => aim(best, (best - target) / 2.0),
            () if loss >= best => Level { failed: true, ..level },
            () if loss <= from - (from - target) / 2.0 => aim(loss, 2.0 * (from - target)),
            () => Level { best: loss, failed: false, ..level },
        }
    }
}

impl StepRule for LevelPolyak {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let level = self.next(seen.loss);
        let gap = seen.above(level.target);
        let step = Step::new(seen.over_squared_norm(gap.value), seen)?.mark(gap);
        self.level = Some(level);
        Ok(step)
    }
}
