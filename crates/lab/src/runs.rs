//! The runs below some folders, as they stand: finished, failed, or in the middle.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::sweep::{self, State};
use crate::train::folder::{CHECKPOINT, CONFIG, META};
use crate::train::{Config, Summary};

/// A run's folder, read.
#[derive(Debug, Clone)]
pub struct Run {
    /// The folder.
    pub folder: PathBuf,
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
}

/// What is read of the data's description.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Data {
    /// In words.
    pub what: String,
    /// The best possible loss, where it is known.
    pub best_loss: Option<f64>,
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
    /// What came out, where it ended.
    pub fn summary(&self) -> Option<&Summary> {
        match &self.standing {
            Standing::Ended(summary) => Some(summary),
            _ => None,
        }
    }

    /// The steps that it was to make: its horizon.
    pub fn horizon(&self) -> Option<u64> {
        self.meta.as_ref().map(|meta| meta.steps).or(self.config.steps)
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
const DEEPEST: usize = 8;

/// Finds the runs below a folder, or in it. Links are not followed.
pub fn find(folder: &Path) -> Found {
    let mut found = Found::default();
    search(folder, DEEPEST, &mut found);
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
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut inner: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != CHECKPOINT)
        .map(|entry| entry.path())
        .collect();
    inner.sort();
    if deeper > 0 {
        inner.iter().for_each(|folder| search(folder, deeper - 1, found));
    }
}

fn read(folder: &Path) -> Result<Run, String> {
    let config = Config::read_resolved(&folder.join(CONFIG)).map_err(|error| error.to_string())?;
    let meta = match fs::read(folder.join(META)) {
        Err(_) => None,
        Ok(bytes) => Some(
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{}: {error}; the run is left out", folder.join(META).display()))?,
        ),
    };
    let standing = match sweep::state(folder) {
        State::Ended(summary) => Standing::Ended(summary),
        State::Failed(failure) => Standing::Failed(failure.error),
        State::Waiting | State::Begun => Standing::Unfinished,
    };
    Ok(Run { folder: folder.into(), config, meta, standing })
}
