//! What came out of a run, from its trace and its evaluations.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::checkpoint::State;
use super::config::Config;
use super::error::TrainError;
use super::run::Outcome;
use crate::traces::read_trace;

/// `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The rule.
    pub rule: String,
    /// The steps that were made, refused ones included.
    pub steps: u64,
    /// The seed.
    pub seed: u64,
    /// The loss of the last batch.
    pub final_train_loss: Option<f64>,
    /// The validation loss of the last weights; nothing where refused steps ended the run.
    pub final_validation_loss: Option<f64>,
    /// Their test loss.
    pub final_test_loss: Option<f64>,
    /// The lowest validation loss of all evaluations.
    pub best_validation_loss: Option<f64>,
    /// The test loss at the same step.
    pub best_test_loss: Option<f64>,
    /// A loss was not finite, the mean of the last 1 % of the training losses is above the first, refused steps ended the run, or
    /// it was given up.
    pub diverged: bool,
    /// The time that it took.
    pub seconds: f64,
}

impl Summary {
    /// The summary of a run whose trace is on the disk and that ended so.
    pub(super) fn of(
        config: &Config,
        state: &State,
        trace: &Path,
        outcome: &Outcome,
    ) -> Result<Summary, TrainError> {
        let refused = matches!(outcome, Outcome::Refused { .. });
        let given_up = matches!(outcome, Outcome::GivenUp { .. });
        let losses = losses(trace)?;
        let (last, best) = (state.last_evaluation.filter(|_| !refused), state.best_evaluation);
        Ok(Summary {
            rule: config.rule.to_string(),
            steps: losses.len() as u64,
            seed: config.seed,
            final_train_loss: losses.last().copied().flatten(),
            final_validation_loss: last.and_then(|e| e.validation),
            final_test_loss: last.and_then(|e| e.test),
            best_validation_loss: best.and_then(|e| e.validation),
            best_test_loss: best.and_then(|e| e.test),
            diverged: refused || given_up || diverged(&losses),
            seconds: state.seconds,
        })
    }
}

/// The training losses; nothing for one that was not finite.
fn losses(trace: &Path) -> Result<Vec<Option<f64>>, TrainError> {
    let mut losses = Vec::new();
    read_trace(trace, |row| losses.push(row.objective.and(row.loss)))?;
    Ok(losses)
}

fn diverged(losses: &[Option<f64>]) -> bool {
    let Some(losses) = losses.iter().copied().collect::<Option<Vec<f64>>>() else { return true };
    let last = &losses[losses.len() - losses.len().div_ceil(100)..];
    losses.first().is_some_and(|first| last.iter().sum::<f64>() / last.len() as f64 > *first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diverged_by_hand() {
        assert!(!diverged(&[]));
        assert!(!diverged(&[Some(1.0)]));
        assert!(diverged(&[Some(1.0), None, Some(0.5)]));
        assert!(diverged(&[Some(1.0), Some(1.5)]));
        // Of 200 losses the last two count: 0.5 and 1.4 have a mean below 1.
        let mut losses = vec![Some(1.0); 200];
        (losses[198], losses[199]) = (Some(0.5), Some(1.4));
        assert!(!diverged(&losses));
        losses[198] = Some(0.7);
        assert!(diverged(&losses));
    }
}
