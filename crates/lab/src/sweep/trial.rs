//! One trial of a sweep: a run like any other, in a folder that its index gives.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plan::Trial;
use super::{FAILURE, TRIALS};
use crate::train::folder::{CHECKPOINT, CONFIG, SUMMARY, TRACE, open_resolved, pretty, write_whole};
use crate::train::{Config, Ended, Options, Summary, TrainError, Watch, train};

/// Why a trial failed: the result of a trial that has no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In words.
    pub error: String,
}

/// Where a trial stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Nothing was done.
    Waiting,
    /// Something was done: it runs, or was stopped or killed.
    Begun,
    /// It ended, well or diverged.
    Ended(Box<Summary>),
    /// It failed, and is tried again when the sweep is.
    Failed(Failure),
}

/// The folder of a trial.
pub fn folder(out: &Path, index: usize) -> PathBuf {
    out.join(TRIALS).join(format!("{index:04}"))
}

/// Where the trial in a folder stands.
pub fn state(folder: &Path) -> State {
    if let Some(summary) = read(&folder.join(SUMMARY)) {
        State::Ended(summary)
    } else if let Some(failure) = read(&folder.join(FAILURE)) {
        State::Failed(failure)
    } else if folder.join(CONFIG).is_file() {
        State::Begun
    } else {
        State::Waiting
    }
}

/// A pipe would be waited for without end.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    let bytes = path.is_file().then(|| fs::read(path).ok()).flatten();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// Makes a trial, or goes on with it. Where `options` drop the weights, no checkpoint is left of one that has ended: those of a sweep of
/// the paper's networks would fill a disk. That it failed is recorded in its folder, so that it is a result too; that another process
/// works on it is not.
///
/// # Errors
/// When the trial's request is wrong or the system fails. A trial that diverges is no error.
pub fn run_trial(
    trial: &Trial,
    out: &Path,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Ended, TrainError> {
    let folder = folder(out, trial.index);
    let run = |watch: &mut dyn Watch| {
        match fs::remove_file(folder.join(FAILURE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TrainError::io("remove", &folder.join(FAILURE))(error));
            }
            _ => {}
        }
        let ended = train(&open_resolved(trial.config.clone(), &folder)?, options, watch)?;
        if ended.summary.is_some() && options.drops_weights {
            let path = folder.join(CHECKPOINT);
            match fs::remove_dir_all(&path) {
                Err(error) if path.exists() => return Err(TrainError::io("remove", &path)(error)),
                _ => {}
            }
        }
        Ok(ended)
    };
    run(watch).map_err(|error| match error {
        TrainError::Busy { .. } => error,
        error => recorded(&folder, &trial.config, error),
    })
}

/// Writes into a trial's folder what it was to do and why it failed. Where that cannot be written either, the error says both.
pub fn recorded(folder: &Path, config: &Config, error: TrainError) -> TrainError {
    let failure = Failure { error: error.to_string() };
    let write = || {
        fs::create_dir_all(folder).map_err(TrainError::io("make the folder", folder))?;
        if !folder.join(CONFIG).is_file() {
            write_whole(folder, CONFIG, config.to_toml().as_bytes())?;
        }
        write_whole(folder, FAILURE, &pretty(&failure))
    };
    match write() {
        Ok(()) => error,
        Err(second) if second.to_string() == error.to_string() => error,
        Err(second) => TrainError::Request(format!("{error}; and that could not be recorded: {second}")),
    }
}

/// The last whole line of a trial's trace.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Tail {
    /// The step.
    pub step: u64,
    /// Its loss; nothing where it was not finite.
    pub loss: Option<f64>,
}

/// More than any line of a trace has.
const LONGEST_LINE: u64 = 1024;

/// How far a trial has come; nothing where it has not begun.
pub fn tail(folder: &Path) -> Option<Tail> {
    let mut file = File::open(folder.join(TRACE)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(2 * LONGEST_LINE))).ok()?;
    let mut end = Vec::new();
    file.take(2 * LONGEST_LINE).read_to_end(&mut end).ok()?;
    let mut lines = end.rsplit(|byte| *byte == b'\n').skip(1);
    serde_json::from_slice(lines.next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TRACE);
        assert_eq!(tail(folder.path()), None);
        for (text, found) in [
            ("", None),
            ("{\"step\":0,\"loss\":3.5}", None),
            ("{\"step\":0,\"loss\":3.5}\n", Some(Tail { step: 0, loss: Some(3.5) })),
            ("{\"step\":0,\"loss\":3.5}\n{\"step\":1,\"lo", Some(Tail { step: 0, loss: Some(3.5) })),
            ("{\"step\":8,\"loss\":1}\n{\"step\":9,\"loss\":null}\n", Some(Tail { step: 9, loss: None })),
            ("x\n", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(tail(folder.path()), found, "{text:?}");
        }
        let long: String =
            (0..5000).map(|i| format!("{{\"step\":{i},\"loss\":1.5,\"seconds\":2.25}}\n")).collect();
        fs::write(&path, long).unwrap();
        assert_eq!(tail(folder.path()), Some(Tail { step: 4999, loss: Some(1.5) }));
    }
}
