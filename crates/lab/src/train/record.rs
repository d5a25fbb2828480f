//! What a run writes down on its way: `trace.jsonl`, `eval.jsonl`, and the sinks beside them.

use std::path::{Path, PathBuf};

use super::error::TrainError;
use super::folder::{EVAL, Lines, TRACE};
use super::sinks::{Sink, Sinks};
use crate::traces::{EvalRow, TraceRow, read_eval};

/// What is written reaches the system at least this often, so that others can watch it grow.
const FLUSH_SECONDS: f64 = 1.0;

/// The files of a run that grow with it.
pub(super) struct Record {
    folder: PathBuf,
    trace: Lines,
    eval: Lines,
    sinks: Vec<Box<dyn Sink>>,
    flushed: f64,
    first_evaluation: Option<EvalRow>,
}

impl Record {
    /// Opens the files of JSON lines, or makes them, and takes them for this process alone.
    pub(super) fn open(folder: &Path) -> Result<Record, TrainError> {
        Ok(Record {
            folder: folder.into(),
            trace: Lines::open(folder.join(TRACE))?,
            eval: Lines::open(folder.join(EVAL))?,
            sinks: Vec::new(),
            flushed: 0.0,
            first_evaluation: None,
        })
    }

    /// The lengths of `trace.jsonl` and `eval.jsonl` on the disk.
    pub(super) fn found(&self) -> Result<(u64, u64), TrainError> {
        Ok((self.trace.found()?, self.eval.found()?))
    }

    /// Keeps the first bytes of `trace.jsonl` and `eval.jsonl` and goes on after them.
    pub(super) fn cut(&mut self, trace_bytes: u64, eval_bytes: u64) -> Result<(), TrainError> {
        self.trace.cut(trace_bytes)?;
        self.eval.cut(eval_bytes)?;
        self.first_evaluation = read_eval(&self.folder.join(EVAL))?.first().copied();
        Ok(())
    }

    /// Begins the sinks with the rows that are kept, which took this many seconds.
    pub(super) fn add(&mut self, sinks: Sinks, seconds: f64) -> Result<(), TrainError> {
        self.sinks = sinks.with_those_in(&self.folder).open(&self.folder, seconds)?;
        Ok(())
    }

    /// The first row of `eval.jsonl`, which is of the validation split.
    pub(super) fn first_evaluation(&self) -> Option<&EvalRow> {
        self.first_evaluation.as_ref()
    }

    /// Adds a step.
    pub(super) fn step(&mut self, row: &TraceRow) -> Result<(), TrainError> {
        self.trace.push(row)?;
        for sink in &mut self.sinks {
            sink.step(row)?;
        }
        let seconds = row.seconds.unwrap_or(self.flushed);
        if seconds - self.flushed > FLUSH_SECONDS {
            self.trace.flush()?;
            self.flush_sinks()?;
            self.flushed = seconds;
        }
        Ok(())
    }

    /// Adds an evaluation, which can be seen at once.
    pub(super) fn evaluation(&mut self, row: &EvalRow) -> Result<(), TrainError> {
        self.first_evaluation.get_or_insert(*row);
        self.eval.push(row)?;
        for sink in &mut self.sinks {
            sink.evaluation(row)?;
        }
        self.eval.flush()?;
        self.flush_sinks()
    }

    /// Waits until the disk has everything; the lengths of `trace.jsonl` and `eval.jsonl`.
    pub(super) fn sync(&mut self) -> Result<(u64, u64), TrainError> {
        self.flush_sinks()?;
        Ok((self.trace.sync()?, self.eval.sync()?))
    }

    fn flush_sinks(&mut self) -> Result<(), TrainError> {
        self.sinks.iter_mut().try_for_each(|sink| sink.flush())
    }
}
