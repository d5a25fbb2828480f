//! The lines of `trace.jsonl` and `eval.jsonl`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::TrainError;

/// A line of `trace.jsonl`. Numbers that were not finite are nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TraceRow {
    pub step: u64,
    pub loss: Option<f64>,
    pub objective: Option<f64>,
    pub grad_norm: Option<f64>,
    pub step_size: Option<f64>,
    /// Left out where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothness: Option<f64>,
    pub seconds: f64,
}

/// A line of `eval.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EvalRow {
    pub step: u64,
    pub split: Split,
    pub loss: Option<f64>,
}

/// What was evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Split {
    Validation,
    Test,
}

/// A number that JSON can hold.
pub(super) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The rows of a file, one after the other.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
) -> Result<impl Iterator<Item = Result<T, TrainError>>, TrainError> {
    let file = File::open(path).map_err(TrainError::io("read", path))?;
    Ok(BufReader::new(file).lines().map(move |line| {
        let line = line.map_err(TrainError::io("read", path))?;
        serde_json::from_str(&line)
            .map_err(|error| TrainError::Request(format!("{}: {error}", path.display())))
    }))
}
