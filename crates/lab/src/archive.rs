//! Archives of runs whose folders are too large to keep. They hold all that a report is made of, without weights.
//!
//! A run keeps its configuration, what is known of it, its summary, its evaluations and a thinned trace; a sweep its plan and the
//! commands that made it. The rows of a thinned trace are as the run wrote them, not means: figures draw two of them as one point.
//! Nothing of the machine is kept: a path becomes the name at its end.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;

use crate::report::{COMMAND, SYNTHETIC};
use crate::runs::{self, DEEPEST, Run, Standing};
use crate::sweep::{self, FAILURE, PLAN, plan_file};
use crate::synthetic::RESULTS_FILE;
use crate::traces::{TraceError, TraceRow, compressed, read_eval, read_trace};
use crate::train::Config;
use crate::train::config::ConfigError;
use crate::train::folder::{CHECKPOINT, CONFIG, EVAL, META, SUMMARY, TRACE, pretty};

/// About so many rows are kept of a trace: a run of 5000 steps takes 10 kB, and 5 kB more with a hundred measurements of the smoothness.
pub const ROWS: u64 = 200;
/// So many refused steps are kept, beside those that are kept anyway.
const MOST_REFUSED: usize = 100;
/// The key of `meta.json` that says how a trace was thinned.
const TRACE_EVERY: &str = "trace_every";

/// Why nothing can be archived.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ArchiveError {
    /// Nothing to archive.
    #[error("no run and no sweep below {path}; give a folder that `untuned reproduce`, `sweep` or `train` wrote", path = path.display())]
    Nothing { path: PathBuf },
    /// The archive would become a part of itself.
    #[error("{out} lies in {folder}; name a folder outside it with --out", out = out.display(), folder = folder.display())]
    Inside {
        /// The archive.
        out: PathBuf,
        /// What is to be archived.
        folder: PathBuf,
    },
    /// Another run or sweep is there.
    #[error("{path} belongs to another run or sweep: {difference}; name a new folder with --out", path = path.display())]
    Another {
        /// The folder or file in the archive.
        path: PathBuf,
        /// The first thing that differs.
        difference: String,
    },
    /// The folder is a run's own, with its whole trace or its weights.
    #[error("{path} holds a whole run and no archive; name a new folder with --out", path = path.display())]
    Whole { path: PathBuf },
    /// The archive's own copy of a configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file that cannot be read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl ArchiveError {
    fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ArchiveError + 'a {
        move |source| ArchiveError::Io { what, path: path.into(), source }
    }
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archived {
    /// Runs that were not there.
    pub added: usize,
    /// Runs that have ended now and had not before.
    pub replaced: usize,
    /// Runs that were there.
    pub same: usize,
    /// The bytes of all files that were written.
    pub bytes: u64,
    /// What the user should know of runs that were there and differ, one sentence each.
    pub notes: Vec<String>,
    /// What is wrong with runs that were left out, one sentence each.
    pub problems: Vec<String>,
}

/// Keeps what is below a folder in `out`, as the same tree; a run's own folder becomes one in `out`. What is there stays: only a run
/// that had not ended is replaced by the same run that has. The same runs give the same bytes.
///
/// # Errors
/// When there is nothing to keep, `out` holds something else, or a file cannot be read or written. Before the first two nothing was
/// written.
pub fn archive(folder: &Path, out: &Path, rows: u64) -> Result<Archived, ArchiveError> {
    let whole = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let (from, to) = (
        whole(folder).map_err(ArchiveError::io("find", folder))?,
        whole(out).map_err(ArchiveError::io("find", out))?,
    );
    if to.starts_with(&from) {
        return Err(ArchiveError::Inside { out: out.into(), folder: folder.into() });
    }
    let found = runs::find(folder);
    let mut archived = Archived { problems: found.problems, ..Archived::default() };
    // The run's own name, also where it was given as `.`.
    let name = from.file_name().unwrap_or_default();
    let mut folders = Vec::new();
    non_run_folders(folder, DEEPEST, &mut folders);
    let paths = MachinePaths::of(&from, &found.runs);
    let mut files = Vec::new();
    for folder_of in &folders {
        let inner = folder_of.strip_prefix(folder).unwrap_or(Path::new(""));
        files.extend(Files::of_sweep(folder_of, &out.join(inner), &paths)?);
    }
    for run in found.runs.iter().filter(|run| run.folder.join(CONFIG).is_file()) {
        let inner = run.folder.strip_prefix(folder).unwrap_or(Path::new(""));
        let target = if inner.as_os_str().is_empty() { out.join(name) } else { out.join(inner) };
        let thinned = match ArchivedRun::of(run, rows, &paths) {
            Ok(thinned) => thinned,
            Err(error) => {
                archived.problems.push(format!("{error}; the run is left out"));
                continue;
            }
        };
        match thinned.compare(&target)? {
            Compared::New => archived.added += 1,
            Compared::Better => archived.replaced += 1,
            Compared::Same => archived.same += 1,
            Compared::Other(why) => {
                archived.notes.push(format!("{} stays as it was: {why}", target.display()));
                archived.same += 1;
                continue;
            }
        }
        files.push(Files { folder: target, files: thinned.files });
    }
    if files.is_empty() && archived.problems.is_empty() && archived.same == 0 {
        return Err(ArchiveError::Nothing { path: folder.into() });
    }
    for Files { folder, files } in files {
        fs::create_dir_all(&folder).map_err(ArchiveError::io("make the folder", &folder))?;
        for (name, bytes) in files {
            archived.bytes += write(&folder.join(name), &bytes)?;
        }
    }
    Ok(archived)
}

/// Finds a folder and those below it, except the folders of runs.
fn non_run_folders(folder: &Path, deeper: usize, found: &mut Vec<PathBuf>) {
    if folder.join(CONFIG).is_file() {
        return;
    }
    found.push(folder.into());
    if deeper > 0 {
        runs::inner(folder).iter().for_each(|folder| non_run_folders(folder, deeper - 1, found));
    }
}

/// Writes a whole file unless it is there; the bytes that were written.
fn write(path: &Path, bytes: &[u8]) -> Result<u64, ArchiveError> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(0);
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let written = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&aside);
        ArchiveError::io("write", path)(source)
    })?;
    Ok(bytes.len() as u64)
}

/// Files of one folder, in the order in which they are written.
struct Files {
    folder: PathBuf,
    files: Vec<(String, Vec<u8>)>,
}

impl Files {
    /// What a report needs beside the runs: plan, commands, the synthetic experiment. Of the archive's own the longer plan and all
    /// commands stay.
    fn of_sweep(folder: &Path, out: &Path, paths: &MachinePaths) -> Result<Option<Files>, ArchiveError> {
        let mut files = Vec::new();
        if let Some(mut plan) = sweep::planned(folder) {
            plan.iter_mut().for_each(|(_, config)| strip(config));
            let there = sweep::planned(out).unwrap_or_default();
            for ((index, ours), (_, theirs)) in plan.iter().zip(&there) {
                if let Some(difference) = difference(ours, theirs) {
                    let difference = format!("in trial {index}, {difference}");
                    return Err(ArchiveError::Another { path: out.join(PLAN), difference });
                }
            }
            if plan.len() > there.len() {
                files.push((PLAN.to_string(), plan_file(&plan)));
            }
        }
        if let Ok(commands) = fs::read_to_string(folder.join(COMMAND)) {
            let mut all = fs::read_to_string(out.join(COMMAND)).unwrap_or_default();
            for line in commands.lines().map(|line| paths.strip(line)) {
                if !all.lines().any(|there| there == line) {
                    all += &format!("{line}\n");
                }
            }
            files.push((COMMAND.to_string(), all.into_bytes()));
        }
        let results = folder.join(RESULTS_FILE);
        if folder.ends_with(SYNTHETIC) && results.is_file() {
            let bytes = fs::read(&results).map_err(ArchiveError::io("read", &results))?;
            let path = out.join(RESULTS_FILE);
            if fs::read(&path).is_ok_and(|there| there != bytes) {
                let difference = "its numbers differ".to_string();
                return Err(ArchiveError::Another { path, difference });
            }
            files.push((RESULTS_FILE.to_string(), bytes));
        }
        Ok((!files.is_empty()).then(|| Files { folder: out.into(), files }))
    }
}

/// A run as it is archived.
struct ArchivedRun {
    config: Config,
    ended: bool,
    /// The summary comes last: it marks a run that has ended and is complete.
    files: Vec<(String, Vec<u8>)>,
}

/// How a run compares with the one in the archive.
enum Compared {
    /// Nothing is there.
    New,
    /// The same run is there, and had not ended.
    Better,
    /// The same bytes.
    Same,
    /// The same run with other bytes, which stay, because.
    Other(&'static str),
}

impl ArchivedRun {
    fn of(run: &Run, rows: u64, paths: &MachinePaths) -> Result<ArchivedRun, TraceError> {
        let folder = &run.folder;
        let read = |name: &str| {
            let path = folder.join(name);
            let bytes = path.is_file().then(|| fs::read(&path)).transpose();
            bytes.map_err(|source| TraceError::Io { path, source })
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        let mut config = run.config.clone();
        strip(&mut config);
        let mut files = vec![(CONFIG.to_string(), config.to_toml().into_bytes())];

        let mut trace: Vec<TraceRow> = Vec::new();
        let path = folder.join(TRACE);
        // The trace is opened with the run: without one it failed before.
        if path.exists() || compressed(&path).exists() {
            read_trace(&path, |row| trace.push(row))?;
            run.check_trace(trace.last().map_or(0, |row| row.step + 1))?;
        }
        if let Some(Value::Object(mut meta)) = read(META)?.as_deref().and_then(json) {
            // An archive's own trace is thin already, and without `meta.json` nothing could say that it is.
            let every = if path.exists() { (trace.len() as u64).div_ceil(rows.max(1)) } else { 1 };
            if every > 1 {
                thin(&mut trace, every);
                meta.insert(TRACE_EVERY.into(), every.into());
            }
            files.push((META.to_string(), pretty(&paths.strip_json(Value::Object(meta)))));
        }
        files.push((format!("{TRACE}.gz"), lines(&trace)));
        let path = folder.join(EVAL);
        if path.exists() || compressed(&path).exists() {
            let evaluations = read_eval(&path)?;
            run.check_evaluations(evaluations.last().map_or(0, |row| row.step))?;
            files.push((format!("{EVAL}.gz"), lines(&evaluations)));
        }
        let ended = matches!(run.standing, Standing::Ended(_));
        if let Some(failure) = read(FAILURE)?.as_deref().and_then(json).filter(|_| !ended) {
            files.push((FAILURE.to_string(), pretty(&paths.strip_json(failure))));
        }
        if let Some(summary) = read(SUMMARY)?.filter(|_| ended) {
            files.push((SUMMARY.to_string(), summary));
        }
        Ok(ArchivedRun { config, ended, files })
    }

    fn compare(&self, target: &Path) -> Result<Compared, ArchiveError> {
        if [TRACE, CHECKPOINT].iter().any(|name| target.join(name).exists()) {
            return Err(ArchiveError::Whole { path: target.into() });
        }
        let config = target.join(CONFIG);
        if !config.is_file() {
            return Ok(Compared::New);
        }
        if let Some(difference) = difference(&self.config, &Config::read_resolved(&config)?) {
            return Err(ArchiveError::Another { path: target.into(), difference });
        }
        let same = |(name, bytes): &(String, Vec<u8>)| fs::read(target.join(name)).is_ok_and(|b| b == *bytes);
        let had_ended = matches!(sweep::state(target), sweep::State::Ended(_));
        Ok(match (self.files.iter().all(same), had_ended, self.ended) {
            (true, ..) => Compared::Same,
            (false, false, true) => Compared::Better,
            (false, true, true) => {
                Compared::Other("the same run with other numbers, times or rows has ended there")
            }
            (false, _, false) => Compared::Other("the run that was to take its place has not ended"),
        })
    }
}

/// Leaves about every so many rows: those of every so many steps, the first and the last, every measurement of the smoothness, and the
/// refused ones as long as they are few.
fn thin(trace: &mut Vec<TraceRow>, every: u64) {
    let ends = trace.first().zip(trace.last()).map(|(first, last)| [first.step, last.step]);
    let mut refused = 0;
    trace.retain(|row| {
        refused += usize::from(row.step_size.is_none());
        row.step.is_multiple_of(every)
            || ends.is_some_and(|ends| ends.contains(&row.step))
            || row.smoothness.is_some()
            || row.step_size.is_none() && refused <= MOST_REFUSED
    });
}

/// Rows as compressed JSON lines. The header has neither a time nor a name.
fn lines(rows: &[impl Serialize]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Cannot fail: a row is plain numbers, and nothing writes to a disk.
    for row in rows {
        let _ = serde_json::to_writer(&mut encoder, row);
        let _ = encoder.write_all(b"\n");
    }
    encoder.finish().unwrap_or_default()
}

/// The first key in which two configurations differ that decides over a run's numbers, in words.
fn difference(ours: &Config, theirs: &Config) -> Option<String> {
    let (here, there) = (ours.identity(), theirs.identity());
    let differs = |key: &str, ours: &str, theirs: &str| {
        format!("{key} is {theirs} in the archive and {ours} in this run")
    };
    let shown = |value: Option<&String>| value.map_or("not set".to_string(), String::clone);
    let keys = here.keys().chain(there.keys()).find(|key| here.get(*key) != there.get(*key));
    let of_keys = keys.map(|key| differs(key, &shown(here.get(key)), &shown(there.get(key))));
    of_keys.or_else(|| (ours.data != theirs.data).then(|| differs("data", &ours.data, &theirs.data)))
}

/// Leaves of the data's path the name at its end.
fn strip(config: &mut Config) {
    config.data = name(&config.data);
}

/// The name at the end of a path.
fn name(path: &str) -> String {
    Path::new(path).file_name().map_or(path.to_string(), |name| name.to_string_lossy().into_owned())
}

/// The absolute paths of this machine, which texts may hold.
struct MachinePaths {
    /// Where the runs and their data were, which may have spaces in them. The longest first: a folder's path begins that of its file.
    known: Vec<String>,
}

impl MachinePaths {
    fn of(folder: &Path, runs: &[Run]) -> MachinePaths {
        let data = runs.iter().map(|run| run.config.data.clone());
        let all = data.chain([folder.to_string_lossy().into_owned()]);
        let mut known: Vec<String> = all.filter(|path| Path::new(path).is_absolute()).collect();
        known.sort_by_key(|path| (std::cmp::Reverse(path.len()), path.clone()));
        known.dedup();
        MachinePaths { known }
    }

    /// Replaces each absolute path in a text by the name at its end.
    fn strip(&self, words: &str) -> String {
        let known = self.known.iter().fold(words.to_string(), |words, path| words.replace(path, &name(path)));
        let mut out = String::new();
        let mut rest = known.as_str();
        while let Some(at) = rest.find('/') {
            let before = rest[..at].chars().next_back().or(out.chars().next_back());
            // `a/b` is relative, and `//` follows the scheme of an address.
            let inside = before.is_some_and(|c| c.is_alphanumeric() || "._-~/".contains(c));
            let length = rest[at..].find(|c: char| !(c.is_alphanumeric() || "/._-+@%~".contains(c)));
            let path = &rest[at..at + length.unwrap_or(rest.len() - at)];
            let is_path = !inside && !path.starts_with("//") && path.len() > 1;
            out += &rest[..at];
            out += &if is_path { name(path) } else { path.to_string() };
            rest = &rest[at + path.len()..];
        }
        out + rest
    }

    fn strip_json(&self, value: Value) -> Value {
        match value {
            Value::String(words) => Value::String(self.strip(&words)),
            Value::Array(values) => values.into_iter().map(|value| self.strip_json(value)).collect(),
            Value::Object(values) => {
                let values = values.into_iter().map(|(key, value)| (key, self.strip_json(value)));
                Value::Object(values.collect())
            }
            value => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_names() {
        let paths = MachinePaths { known: vec!["/far/my texts/a b.txt".into()] };
        for (words, wanted) in [
            ("untuned sweep /x/y/s.toml --data /data/ptb", "untuned sweep s.toml --data ptb"),
            ("untuned sweep s.toml --data '/far/my texts/a b.txt'", "untuned sweep s.toml --data 'a b.txt'"),
            ("cannot read /a/b/c.txt: No such file", "cannot read c.txt: No such file"),
            ("untuned train --set data=/a/b.txt, (/c/d)", "untuned train --set data=b.txt, (d)"),
            ("/a/b is a file; name /c/d", "b is a file; name d"),
            ("/a/folder/", "folder"),
            (
                "experiments/gpt.toml and/or 3 / 4, https://a.b/c, ../x/y",
                "experiments/gpt.toml and/or 3 / 4, https://a.b/c, ../x/y",
            ),
            ("a '/' b", "a '/' b"),
            ("", ""),
        ] {
            assert_eq!(paths.strip(words), wanted, "{words}");
        }
        let json = serde_json::json!({"a": ["/x/y", 1.5, null], "b": {"c": "on /x/z"}});
        assert_eq!(paths.strip_json(json), serde_json::json!({"a": ["y", 1.5, null], "b": {"c": "on z"}}));
    }

    #[test]
    fn rows_that_stay() {
        let row = |step: u64| TraceRow {
            step,
            loss: Some(1.0),
            objective: Some(1.0),
            grad_norm: Some(1.0),
            step_size: (!(300..600).contains(&step)).then_some(0.1),
            smoothness: (step == 77).then_some(2.0),
            estimate: None,
            seconds: None,
        };
        let mut trace: Vec<TraceRow> = (0..998).map(row).collect();
        thin(&mut trace, 10);
        let steps: Vec<u64> = trace.iter().map(|row| row.step).collect();
        assert_eq!((steps[0], steps[8], steps.last()), (0, 77, Some(&997)), "{steps:?}");
        // A hundred in steps of ten, the last, the measured, and of the first hundred refused ones those between.
        assert_eq!(steps.len(), 100 + 1 + 1 + 90);
        assert!(trace.iter().all(|kept| *kept == row(kept.step)), "rows are as they were written");
    }
}
