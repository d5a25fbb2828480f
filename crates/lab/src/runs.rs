//! The runs below some folders, as they stand: finished, failed, or in the middle.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::Deserialize;

use crate::sweep::{self, FAILURE, State};
use crate::synthetic::RESULTS_FILE;
use crate::traces::{TraceError, compressed};
use crate::train::folder::{CONFIG, EVAL, META, SUMMARY, TRACE};
use crate::train::{Config, Summary};

/// A run's folder, read.
#[derive(Debug, Clone)]
pub struct Run {
    /// The folder.
    pub folder: PathBuf,
    /// What tables call it: the folder, as seen from the one that was searched.
    pub name: String,
    /// What it was to do.
    pub config: Config,
    /// What is known since it began; nothing where it failed before.
    pub meta: Option<Meta>,
    /// How it stands.
    pub standing: Standing,
}

/// What is read of `meta.json`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Meta {
    /// The program's.
    pub version: String,
    /// Where it computed.
    pub device: String,
    /// The number of parameters.
    pub parameters: u64,
    /// The number of steps.
    pub steps: u64,
    /// What it trained on.
    pub data: Data,
    /// In an archive, of a trace that was thinned: every so many steps have a row.
    pub trace_every: Option<u64>,
}

/// What is read of the data's description.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Data {
    /// In words.
    pub what: String,
    /// The best possible loss, where it is known.
    pub best_loss: Option<f64>,
}

/// How long a run was to be: `T`, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Horizon {
    /// So many steps.
    Steps(u64),
    /// So many epochs, whose steps differ from seed to seed.
    Epochs(u32),
}

impl fmt::Display for Horizon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Horizon::Steps(steps) => write!(f, "{steps}"),
            Horizon::Epochs(1) => write!(f, "1 epoch"),
            Horizon::Epochs(epochs) => write!(f, "{epochs} epochs"),
        }
    }
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// It ended, well or diverged.
    Ended(Box<Summary>),
    /// It failed.
    Failed(String),
    /// It runs, or was stopped or killed.
    Unfinished,
}

impl Run {
    /// Names it as seen from a folder.
    pub fn name_in(&mut self, folder: &Path) {
        let inner = self.folder.strip_prefix(folder).unwrap_or(&self.folder);
        self.name = if inner.as_os_str().is_empty() { ".".into() } else { inner.display().to_string() };
    }

    /// What came out, where it ended.
    pub fn summary(&self) -> Option<&Summary> {
        match &self.standing {
            Standing::Ended(summary) => Some(summary),
            _ => None,
        }
    }

    /// How long it was to be.
    pub fn horizon(&self) -> Horizon {
        match (self.config.steps, self.config.epochs) {
            (Some(steps), _) => Horizon::Steps(steps),
            (None, epochs) => Horizon::Epochs(epochs.unwrap_or(0)),
        }
    }

    /// The steps that it was to make, where that is known: an epoch's depend on the seed.
    pub fn steps(&self) -> Option<u64> {
        self.meta.as_ref().map(|meta| meta.steps).or(self.config.steps)
    }

    /// From one row of its trace to the next there are so many steps: one, unless it was thinned.
    pub fn trace_every(&self) -> u64 {
        self.meta.as_ref().and_then(|meta| meta.trace_every).unwrap_or(1).max(1)
    }

    /// Refuses the trace of a run that has ended where it goes no further than so many steps.
    pub(crate) fn check_trace(&self, found: u64) -> Result<(), TraceError> {
        self.check_whole(TRACE, found, self.summary())
    }

    /// The same for its evaluations; the last one of a run whose weights are not finite may be missing.
    pub(crate) fn check_evaluations(&self, found: u64) -> Result<(), TraceError> {
        self.check_whole(EVAL, found, self.summary().filter(|summary| summary.final_test_loss.is_some()))
    }

    fn check_whole(&self, name: &str, found: u64, ended: Option<&Summary>) -> Result<(), TraceError> {
        match ended.map(|summary| summary.steps).filter(|steps| found < *steps) {
            Some(steps) => Err(TraceError::Short { path: self.folder.join(name), found, steps }),
            None => Ok(()),
        }
    }

    /// What figures call its method: the runs of a method with different parameters are its grid.
    pub fn method(&self) -> String {
        self.config.method.clone().unwrap_or_else(|| self.config.rule.name().to_string())
    }
}

/// The runs that were found, and what could not be read.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// By the names of their folders.
    pub runs: Vec<Run>,
    /// What is wrong with folders that look like a run's, one sentence each.
    pub problems: Vec<String>,
}

/// So deep a folder is searched.
pub(crate) const DEEPEST: usize = 8;

/// Finds the runs below a folder, or in it. Links are not followed.
pub fn find(folder: &Path) -> Found {
    let mut found = Found::default();
    search(folder, DEEPEST, &mut found);
    found.runs.sort_by(|a, b| a.folder.cmp(&b.folder));
    found
}

fn search(folder: &Path, deeper: usize, found: &mut Found) {
    if folder.join(CONFIG).is_file() {
        match read(folder) {
            Ok(run) => found.runs.push(run),
            Err(problem) => found.problems.push(problem),
        }
        return;
    }
    let planned = sweep::planned(folder).unwrap_or_default();
    for (index, config) in planned {
        let folder = sweep::folder(folder, index);
        if !folder.join(CONFIG).is_file() {
            // It is to be made: what is missing is counted, not overlooked.
            let name = folder.display().to_string();
            found.runs.push(Run { folder, name, config, meta: None, standing: Standing::Unfinished });
        }
    }
    if deeper > 0 {
        inner(folder).iter().for_each(|folder| search(folder, deeper - 1, found));
    }
}

fn read(folder: &Path) -> Result<Run, String> {
    let config = Config::read_resolved(&folder.join(CONFIG)).map_err(|error| error.to_string())?;
    let damaged = |name: &str, error: serde_json::Error| {
        format!("{}: {error}; the run is left out", folder.join(name).display())
    };
    let bytes = |name: &str| {
        let path = folder.join(name);
        path.is_file().then(|| fs::read(path).ok()).flatten()
    };
    if let Some(bytes) = bytes(SUMMARY) {
        serde_json::from_slice::<Summary>(&bytes).map_err(|error| damaged(SUMMARY, error))?;
    }
    let meta = match bytes(META) {
        None => None,
        Some(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| damaged(META, error))?),
    };
    let standing = match sweep::state(folder) {
        State::Ended(summary) => Standing::Ended(summary),
        State::Failed(failure) => Standing::Failed(failure.error),
        State::Waiting | State::Begun => Standing::Unfinished,
    };
    Ok(Run { folder: folder.into(), name: folder.display().to_string(), config, meta, standing })
}

/// A number that changes when a run below the folder begins, goes on or ends.
pub fn stamp(folder: &Path) -> u64 {
    let mut all = 0;
    stamp_into(folder, DEEPEST, &mut all);
    all
}

fn stamp_into(folder: &Path, deeper: usize, all: &mut u64) {
    let is_run = folder.join(CONFIG).is_file();
    let names: &[&str] = if is_run { &[CONFIG, TRACE, EVAL, SUMMARY, FAILURE] } else { &[RESULTS_FILE] };
    let archived = [TRACE, EVAL].map(|name| compressed(&folder.join(name)));
    for path in names.iter().map(|name| folder.join(name)).chain(archived) {
        if let Ok(found) = fs::metadata(path) {
            let changed = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let changed = changed.map_or(0, |since| since.as_nanos() as u64);
            // A multiplication by an odd number mixes; the order of the folders counts.
            *all = (*all ^ changed ^ found.len().rotate_left(32))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(5);
        }
    }
    if !is_run && deeper > 0 {
        inner(folder).iter().for_each(|folder| stamp_into(folder, deeper - 1, all));
    }
}

/// The folders in a folder, by name.
pub(crate) fn inner(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut inner: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    inner.sort();
    inner
}
