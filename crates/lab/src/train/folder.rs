//! A run's folder: the files in it, how they are written so that a reader never sees half of one, and how they are cut.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::config::{Config, ConfigError, Overrides};
use super::error::TrainError;
use crate::traces::compressed;

/// The resolved configuration.
pub const CONFIG: &str = "config.toml";
/// What the run was made with.
pub const META: &str = "meta.json";
/// One line a step.
pub const TRACE: &str = "trace.jsonl";
/// One line an evaluation and split.
pub const EVAL: &str = "eval.jsonl";
/// The folder of the checkpoints.
pub const CHECKPOINT: &str = "checkpoint";
/// What came out; written last, so that it marks a run that ended.
pub const SUMMARY: &str = "summary.json";
/// The folder of runs whose folder was not named.
pub const RUNS: &str = "untuned-runs";

/// A run to begin or to go on with.
#[derive(Debug)]
pub struct Opened {
    /// What to do.
    pub config: Config,
    /// The run's folder.
    pub folder: PathBuf,
    /// Whether the folder may hold an earlier part of the run.
    pub resume: bool,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Resolves an experiment and finds its folder, without writing anything.
///
/// # Errors
/// When the configuration is wrong, the folder is used by something else, or the run in it is another one.
pub fn open(
    experiment: &Path,
    overrides: &Overrides,
    out: Option<&Path>,
    resume: bool,
) -> Result<Opened, TrainError> {
    let config = Config::read(experiment, overrides)?;
    let folder = out.map_or_else(|| default_folder(&config), Path::to_path_buf);
    if folder.exists() && !folder.is_dir() {
        let path = folder.display();
        return Err(TrainError::Request(format!("{path} is a file; name a folder with --out")));
    }
    let empty = fs::read_dir(&folder).map_or(true, |mut entries| entries.next().is_none());
    if !empty && !resume {
        let path = folder.display();
        return Err(TrainError::Request(format!(
            "{path} is not empty; add --resume to go on with the run in it, or name a new folder with --out"
        )));
    }
    check_can_go_on(&folder)?;
    let saved = folder.join(CONFIG);
    if !saved.is_file() {
        check_is_ours(&folder)?;
        return Ok(Opened { config, folder, resume, notes: Vec::new() });
    }
    let mut saved = Config::read_resolved(&saved)?;
    // Without --scale the run's own is meant.
    let same_scale = Overrides { scale: Some(saved.scale.clone()), ..overrides.clone() };
    let config = if overrides.scale.is_some() {
        config
    } else {
        Config::read(experiment, &same_scale).unwrap_or(config)
    };
    let typed = overrides.values.iter().map(|(key, _)| key.as_str());
    let typed: Vec<&str> = typed.chain(["model"]).chain(overrides.scale.as_ref().map(|_| "scale")).collect();
    if typed.contains(&"device") {
        move_to(&mut saved, &config);
    }
    config.check_against(&saved, &typed, &folder)?;
    let notes = config.differences(&saved).into_iter().map(|(key, now, saved)| {
        format!("{key} would now be {now}; the run goes on with {saved}, as it began")
    });
    Ok(Opened { notes: notes.collect(), config: saved, folder, resume })
}

/// Opens the folder of a run whose configuration is resolved, to begin with it or to go on.
///
/// # Errors
/// When the folder is used by something else, or the run in it is another one.
pub fn open_resolved(config: Config, folder: &Path) -> Result<Opened, TrainError> {
    check_can_go_on(folder)?;
    let path = folder.join(CONFIG);
    if path.is_file() {
        let mut saved = Config::read_resolved(&path)?;
        move_to(&mut saved, &config);
        if let Some((key, given, saved)) = config.differences(&saved).into_iter().next() {
            return Err(ConfigError::Contradiction { key, saved, given, folder: folder.into() }.into());
        }
    } else {
        check_is_ours(folder)?;
    }
    Ok(Opened { config, folder: folder.into(), resume: true, notes: Vec::new() })
}

/// A GPU's number is no part of a run: it goes on with any of them.
fn move_to(saved: &mut Config, asked: &Config) {
    if let (Ok(from), Ok(to)) = (saved.device_choice(), asked.device_choice())
        && from.kind() == to.kind()
    {
        saved.device = asked.device.clone();
    }
}

/// `untuned-runs/NAME-SCALE-RULE-sSEED`.
fn default_folder(config: &Config) -> PathBuf {
    let Config { name, scale, rule, seed, .. } = config;
    let name = format!("{name}-{scale}-{rule}-s{seed}");
    let plain = |c: char| if c.is_alphanumeric() || "-_.=".contains(c) { c } else { '-' };
    Path::new(RUNS).join(name.chars().map(plain).collect::<String>())
}

/// A folder without a configuration may hold what a run that was killed at once left, and nothing else.
fn check_is_ours(folder: &Path) -> Result<(), TrainError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let empty = entry.metadata().is_ok_and(|found| found.len() == 0);
        // The trace is opened, and so locked, before the configuration is written.
        let ours = name == aside(CONFIG).as_str() || empty && (name == TRACE || name == EVAL);
        if !ours {
            let (path, name) = (folder.display(), name.display());
            return Err(TrainError::Request(format!(
                "{path} holds {name} but no {CONFIG}: it is not a run's folder; name another with --out"
            )));
        }
    }
    Ok(())
}

/// Whether the folder is what `untuned archive` keeps of a run.
pub fn is_archived(folder: &Path) -> bool {
    compressed(&folder.join(TRACE)).is_file()
}

/// An archive has neither weights nor the whole trace: a run that had not ended is lost to it.
fn check_can_go_on(folder: &Path) -> Result<(), TrainError> {
    if !is_archived(folder) || folder.join(SUMMARY).exists() {
        return Ok(());
    }
    let path = folder.display();
    Err(TrainError::Request(format!(
        "{path} is the archive of a run that had not ended, without its weights: it cannot go on; name a new folder with --out to begin anew"
    )))
}

/// Where a file is written before it takes its place.
fn aside(name: &str) -> String {
    format!("{name}.new")
}

/// Writes a whole file: aside, synced, renamed.
pub(crate) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), TrainError> {
    let (path, new) = (folder.join(name), folder.join(aside(name)));
    let written = write_synced(&new, bytes)
        .and_then(|()| fs::rename(&new, &path).map_err(TrainError::io("write", &path)))
        .and_then(|()| sync_folder(folder));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Writes a file and waits until the disk has it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(TrainError::io("write", path))
}

/// Waits until the disk has the names in a folder.
pub(super) fn sync_folder(path: &Path) -> Result<(), TrainError> {
    // Only Unix lets a folder be synced; elsewhere renaming is all there is.
    if cfg!(unix) {
        File::open(path).and_then(|folder| folder.sync_all()).map_err(TrainError::io("write", path))?;
    }
    Ok(())
}

/// A value as indented JSON with a new line at the end.
pub(crate) fn pretty(value: &impl Serialize) -> Vec<u8> {
    // Cannot fail: no map has keys that are not strings, and nothing writes to a disk.
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// A file of JSON lines that grows at its end.
pub(super) struct Lines {
    path: PathBuf,
    file: BufWriter<File>,
    length: u64,
}

impl Lines {
    /// Opens the file, or makes it, and takes it for this process alone.
    pub(super) fn open(path: PathBuf) -> Result<Lines, TrainError> {
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let file = opened.map_err(TrainError::io("open", &path))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(TrainError::Busy { path });
        }
        Ok(Lines { path, file: BufWriter::new(file), length: 0 })
    }

    /// The length of the file on the disk.
    pub(super) fn found(&self) -> Result<u64, TrainError> {
        let metadata = self.file.get_ref().metadata();
        Ok(metadata.map_err(TrainError::io("read", &self.path))?.len())
    }

    /// Keeps the first bytes and goes on after them.
    pub(super) fn cut(&mut self, length: u64) -> Result<(), TrainError> {
        let file = self.file.get_mut();
        let done = file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length)));
        done.map_err(TrainError::io("cut", &self.path))?;
        self.length = length;
        Ok(())
    }

    /// Adds a line.
    pub(super) fn push(&mut self, value: &impl Serialize) -> Result<(), TrainError> {
        let mut counted = Counted { inner: &mut self.file, bytes: 0 };
        let written = serde_json::to_writer(&mut counted, value).map_err(std::io::Error::from);
        let written = written.and_then(|()| counted.write_all(b"\n"));
        self.length += counted.bytes;
        written.map_err(TrainError::io("write", &self.path))
    }

    /// Hands everything to the system, so that others can read it.
    pub(super) fn flush(&mut self) -> Result<(), TrainError> {
        self.file.flush().map_err(TrainError::io("write", &self.path))
    }

    /// Waits until the disk has everything; the length of the file.
    pub(super) fn sync(&mut self) -> Result<u64, TrainError> {
        self.flush()?;
        self.file.get_ref().sync_data().map_err(TrainError::io("write", &self.path))?;
        Ok(self.length)
    }
}

/// Counts what passes through.
struct Counted<'a> {
    inner: &'a mut BufWriter<File>,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_on_any_gpu_and_on_no_other_kind_of_device() {
        let folder = tempfile::tempdir().unwrap();
        let (run, file) = (folder.path().join("run"), folder.path().join("x.toml"));
        fs::create_dir(&run).unwrap();
        fs::write(&file, "model = \"gpt\"\nsteps = 1\ndevice = \"cuda:1\"").unwrap();
        let overrides = |device: Option<&str>| {
            let mut overrides = Overrides::default();
            if let Some(device) = device {
                overrides.set(&format!("device={device}")).unwrap();
            }
            overrides
        };
        let config = |device| Config::read(&file, &overrides(Some(device))).unwrap();
        fs::write(run.join(CONFIG), config("cuda:0").to_toml()).unwrap();
        let device =
            |typed| open(&file, &overrides(typed), Some(&run), true).map(|opened| opened.config.device);
        assert_eq!(device(None).unwrap(), "cuda:0", "where it began");
        assert_eq!(device(Some("cuda:2")).unwrap(), "cuda:2");
        assert!(device(Some("cpu")).unwrap_err().to_string().contains("device is \"cuda:0\""));
        assert_eq!(open_resolved(config("cuda:2"), &run).unwrap().config.device, "cuda:2");
        assert!(open_resolved(config("cpu"), &run).unwrap_err().to_string().contains("device is \"cuda:0\""));
    }

    #[test]
    fn a_run_that_was_killed_before_its_configuration_can_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        for name in [TRACE, EVAL, "config.toml.new"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(check_is_ours(folder.path()).is_ok());
        fs::write(folder.path().join(TRACE), "{}").unwrap();
        assert!(check_is_ours(folder.path()).unwrap_err().to_string().contains(TRACE), "another's trace");
    }
}
