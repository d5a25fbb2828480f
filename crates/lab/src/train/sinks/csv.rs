//! `trace.csv` and `eval.csv`: a column per key of the JSON lines, empty where there is no number.

use std::fs::File;
use std::path::{Path, PathBuf};

use csv::{Writer, WriterBuilder};
use serde::Serialize;

use super::Sink;
use crate::traces::{EvalRow, TraceRow};
use crate::train::error::TrainError;

pub(super) const TRACE_CSV: &str = "trace.csv";
const EVAL_CSV: &str = "eval.csv";

const TRACE_COLUMNS: [&str; 8] =
    ["step", "loss", "objective", "grad_norm", "step_size", "smoothness", "estimate", "seconds"];
const EVAL_COLUMNS: [&str; 3] = ["step", "split", "loss"];

pub(super) struct Csv {
    trace: Table,
    eval: Table,
}

impl Csv {
    /// Begins both files, in place of those that were there.
    pub(super) fn create(folder: &Path) -> Result<Csv, TrainError> {
        let trace = Table::create(folder.join(TRACE_CSV), &TRACE_COLUMNS)?;
        let eval = Table::create(folder.join(EVAL_CSV), &EVAL_COLUMNS)?;
        Ok(Csv { trace, eval })
    }
}

impl Sink for Csv {
    fn step(&mut self, row: &TraceRow) -> Result<(), TrainError> {
        let TraceRow { step, loss, objective, grad_norm, step_size, smoothness, estimate, seconds } = row;
        self.trace.push((step, loss, objective, grad_norm, step_size, smoothness, estimate, seconds))
    }

    fn evaluation(&mut self, row: &EvalRow) -> Result<(), TrainError> {
        self.eval.push((row.step, row.split, row.loss))
    }

    fn flush(&mut self) -> Result<(), TrainError> {
        self.trace.flush()?;
        self.eval.flush()
    }
}

/// One file with its header.
struct Table {
    path: PathBuf,
    writer: Writer<File>,
}

impl Table {
    fn create(path: PathBuf, columns: &[&str]) -> Result<Table, TrainError> {
        let file = File::create(&path).map_err(TrainError::io("write", &path))?;
        let mut table = Table { path, writer: WriterBuilder::new().has_headers(false).from_writer(file) };
        table.push(columns)?;
        Ok(table)
    }

    fn push(&mut self, row: impl Serialize) -> Result<(), TrainError> {
        let written = self.writer.serialize(row).map_err(std::io::Error::from);
        written.map_err(TrainError::io("write", &self.path))
    }

    fn flush(&mut self) -> Result<(), TrainError> {
        self.writer.flush().map_err(TrainError::io("write", &self.path))
    }
}
