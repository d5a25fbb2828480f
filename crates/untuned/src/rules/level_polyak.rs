use crate::parameters::{Parameters as _, RunInfo, Running, Start};
use crate::rule::{Observation, Refusal, Step, StepRule};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
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
    /// use untuned::{Observation, RunInfo, StepRule, rules::LevelPolyak};
    ///
    /// let mut rule = LevelPolyak::default().build(&RunInfo::new(100))?;
    /// assert_eq!(rule.step(&Observation::new(0, 8.0, 2.0))?.size, 2.0, "towards 0: 8/4");
    /// assert_eq!(rule.step(&Observation::new(1, 9.0, 1.0))?.size, 9.0, "no better than 8, once: 9/1");
    /// assert_eq!(rule.step(&Observation::new(2, 9.0, 1.0))?.size, 5.0, "twice: δ is 4, (9 − (8 − 4))/1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct LevelPolyak: "level-polyak" {
        /// l, a value that the loss never goes below
        lower_bound: f64 = 0.0, Finite;
    }
    state: Option<Level>,
    formula: "(f − f̃)/‖g‖², f̃ = max(l, best − δ): δ halves after two steps that fail to improve, doubles when half of it is gained",
    reference: "ours, after Nedić & Bertsekas 2001; no theorem",
}

/// What the rule aims at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The smallest loss so far.
    best: f64,
    /// The best value when `target` was set.
    from: f64,
    /// `f̃`; `from − target` is `δ`.
    target: f64,
    /// Whether the last step failed to improve.
    failed: bool,
}

impl Start for LevelPolyak {
    /// Nothing before the first step.
    fn start(&self, _: &RunInfo) -> Result<Option<Level>, SpecError> {
        Ok(None)
    }
}

impl Running<LevelPolyak> {
    /// The level after this loss was seen.
    fn next(&self, loss: f64) -> Level {
        let aim = |best: f64, delta: f64| Level {
            best,
            from: best,
            target: (best - delta).max(self.lower_bound),
            failed: false,
        };
        let Some(level) = self.state else {
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

impl StepRule for Running<LevelPolyak> {
    fn name(&self) -> &str {
        LevelPolyak::INFO.name
    }

    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let level = self.next(seen.loss()?);
        let gap = seen.above(level.target)?;
        let step = Step::new(seen.over_squared_norm(gap.value), seen)?.mark(gap);
        self.state = Some(level);
        Ok(step)
    }
}
