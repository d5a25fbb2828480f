//! Other forms of what a run writes down.
//!
//! A sink is a function of `trace.jsonl` and `eval.jsonl`: whenever a run begins or goes on, its files are written anew from the
//! rows that are kept, and then grow. The JSON lines themselves are not a sink: a checkpoint knows their length and cuts them.

mod csv;
mod tensorboard;

use std::path::Path;

use super::error::TrainError;
use super::folder::{EVAL, TRACE};
use crate::traces::{EvalRow, TraceRow, read_eval, read_trace};

/// Takes the rows of a run in the order in which they are made.
pub(super) trait Sink {
    /// A step was made or refused.
    fn step(&mut self, row: &TraceRow) -> Result<(), TrainError>;
    /// A split was evaluated.
    fn evaluation(&mut self, row: &EvalRow) -> Result<(), TrainError>;
    /// Hands everything to the system, so that others can read it.
    fn flush(&mut self) -> Result<(), TrainError>;
}

/// Which forms are asked for. They change no number of a run and are no part of its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sinks {
    /// `trace.csv` and `eval.csv`.
    pub csv: bool,
    /// Events for TensorBoard in the folder `tensorboard`.
    pub tensorboard: bool,
}

impl Sinks {
    /// With those that an earlier part of the run began: they would else end where no checkpoint did.
    pub(super) fn with_those_in(self, folder: &Path) -> Sinks {
        Sinks {
            csv: self.csv || folder.join(csv::TRACE_CSV).exists(),
            tensorboard: self.tensorboard || folder.join(tensorboard::FOLDER).exists(),
        }
    }

    /// Writes the files anew from the rows in the run's folder, which took this many seconds; they are ready to take more.
    pub(super) fn open(self, folder: &Path, seconds: f64) -> Result<Vec<Box<dyn Sink>>, TrainError> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if self.csv {
            sinks.push(Box::new(csv::Csv::create(folder)?));
        }
        if self.tensorboard {
            sinks.push(Box::new(tensorboard::TensorBoard::create(folder, seconds)?));
        }
        if !sinks.is_empty() {
            replay(folder, &mut sinks)?;
        }
        Ok(sinks)
    }
}

/// Gives the rows of a folder to the sinks in the order in which they were made: weights are evaluated before the step from them.
fn replay(folder: &Path, sinks: &mut [Box<dyn Sink>]) -> Result<(), TrainError> {
    let evaluations = read_eval(&folder.join(EVAL))?;
    let mut evaluations = evaluations.iter().peekable();
    let mut written = Ok(());
    read_trace(&folder.join(TRACE), |row| {
        let mut write = || {
            while let Some(evaluation) = evaluations.next_if(|evaluation| evaluation.step <= row.step) {
                sinks.iter_mut().try_for_each(|sink| sink.evaluation(evaluation))?;
            }
            sinks.iter_mut().try_for_each(|sink| sink.step(&row))
        };
        if written.is_ok() {
            written = write();
        }
    })?;
    written?;
    for evaluation in evaluations {
        sinks.iter_mut().try_for_each(|sink| sink.evaluation(evaluation))?;
    }
    sinks.iter_mut().try_for_each(|sink| sink.flush())
}
