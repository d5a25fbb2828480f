//! `untuned reproduce`: the paper's experiments, and what became of its claims.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use untuned_lab::claims::Claim;
use untuned_lab::compare;
use untuned_lab::networks;
use untuned_lab::report::{COMMAND, Results, SYNTHETIC};
use untuned_lab::sweep::Plan;
use untuned_lab::synthetic;

use super::report::{self, PAGE};
use super::sweep::{self, Work};
use super::train::Typed;
use crate::args::{Experiment, Reproduce, Scale};
use crate::end::End;
use crate::{interrupt, output};

/// Where results go when nothing else is said.
const DEFAULT_OUT: &str = "untuned-results";
/// The folder of the experiments' files.
const FILES: &str = "experiments";
const ALL: [Experiment; 4] = [Experiment::Synthetic, Experiment::Lstm, Experiment::Gpt, Experiment::T5];

pub fn run(args: &Reproduce) -> Result<(), End> {
    let wanted: Vec<Experiment> =
        ALL.into_iter().filter(|e| args.experiments.is_empty() || args.experiments.contains(e)).collect();
    let out = prepare(args)?;
    output::write_file(&out.join(COMMAND), format!("{}\n", command(args)).as_bytes())?;
    let mut failed = Vec::new();
    for experiment in &wanted {
        match experiment.network() {
            None => make_synthetic(&out)?,
            Some(name) => failed.extend(make_sweep(args, &out, name)?),
        }
    }
    let results = Results::read(std::slice::from_ref(&out)).map_err(End::results)?;
    let page = out.join(PAGE);
    report::write(&results, &page)?;
    if args.json {
        output::print_json(&results.all_claims().collect::<Vec<_>>())?;
    } else {
        output::print(&summary(&results, &page))?;
    }
    sweep::failures(failed)
}

impl Experiment {
    /// The name of a network's experiment.
    fn network(self) -> Option<&'static str> {
        match self {
            Experiment::Synthetic => None,
            Experiment::Lstm => Some("lstm"),
            Experiment::Gpt => Some("gpt"),
            Experiment::T5 => Some("t5"),
        }
    }
}

impl Scale {
    fn name(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Paper => "paper",
        }
    }
}

/// The command that makes the same again.
fn command(args: &Reproduce) -> String {
    let mut command = "untuned reproduce".to_string();
    for experiment in &args.experiments {
        command += &format!(" {}", experiment.network().unwrap_or(SYNTHETIC));
    }
    command += &format!(" --scale {}", args.scale.name());
    let shared = &args.shared;
    // Writing to a string cannot fail.
    for set in &shared.set {
        let _ = write!(command, " --set {set}");
    }
    if let Some(data) = &shared.data {
        let _ = write!(command, " --data {}", data.display());
    }
    command
}

fn make_synthetic(out: &Path) -> Result<(), End> {
    let bar = bar("synthetic", synthetic::PARTS as u64);
    let results = synthetic::run(|| bar.inc(1));
    bar.finish_and_clear();
    if interrupt::asked() {
        return Err(End::Interrupted);
    }
    let folder = out.join(SYNTHETIC);
    make_folder(&folder)?;
    for (name, bytes) in synthetic::files(&results).map_err(|e| End::System(e.into()))? {
        output::write_file(&folder.join(name), &bytes)?;
    }
    Ok(())
}

/// Writes the files of a network's sweep and works it off; why trials failed, one sentence each.
fn make_sweep(args: &Reproduce, out: &Path, name: &str) -> Result<Vec<String>, End> {
    let files = out.join(FILES);
    make_folder(&files)?;
    for (file, text) in networks::files(name) {
        output::write_file(&files.join(file), text.as_bytes())?;
    }
    let mut shared = args.shared.clone();
    if args.scale == Scale::Quick && shared.data.is_none() {
        // Whatever `UNTUNED_DATA` says: at this scale the comparison is on the generated corpus.
        shared.set.push("data=generated".into());
    }
    let scale = args.scale.name();
    let typed = Typed {
        data: shared.data.as_deref(),
        device: shared.device.as_deref(),
        set: &shared.set,
        ..Typed::default()
    };
    let sweep = files.join(networks::sweep_file(name));
    let plan = Plan::read(&sweep, &typed.overrides(Some(scale.into()))?).map_err(End::plan)?;
    let work = Work { sweep: &sweep, plan: &plan, out: &out.join(name), scale: Some(scale), shared: &shared };
    work.off(name)
}

/// The folder for the results: new or empty, or one to go on with, or the default one with earlier quick results, which go.
fn prepare(args: &Reproduce) -> Result<PathBuf, End> {
    let out = args.out.as_deref().unwrap_or(Path::new(DEFAULT_OUT)).to_path_buf();
    output::check_parent(&out, "--out")?;
    if out.exists() && !out.is_dir() {
        return Err(End::Request(anyhow!("{} is a file; name a folder with --out", out.display())));
    }
    let empty = fs::read_dir(&out).map_or(true, |mut entries| entries.next().is_none());
    if !empty && !args.resume {
        if args.out.is_some() || !is_replaceable(&out) {
            let out = out.display();
            return Err(End::Request(anyhow!(
                "{out} is not empty; add --resume to go on with what is in it, or name a new folder with --out"
            )));
        }
        for name in OURS {
            let path = out.join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if path.exists() {
                removed.map_err(|e| End::io(e, format!("cannot remove {}", path.display())))?;
            }
        }
    }
    make_folder(&out)?;
    Ok(out)
}

/// What `reproduce` writes.
const OURS: [&str; 9] = [COMMAND, SYNTHETIC, "lstm", "gpt", "t5", FILES, "figures", "runs.csv", PAGE];

/// Whether a folder holds nothing but what `reproduce` writes, made in minutes.
fn is_replaceable(out: &Path) -> bool {
    let Ok(entries) = fs::read_dir(out) else { return false };
    let ours = entries.flatten().all(|e| OURS.contains(&e.file_name().to_string_lossy().as_ref()));
    let quick = |run: &untuned_lab::runs::Run| run.config.scale == Scale::Quick.name();
    ours && untuned_lab::runs::find(out).runs.iter().all(quick)
}

fn make_folder(path: &Path) -> Result<(), End> {
    match fs::create_dir(path) {
        Err(_) if path.is_dir() => Ok(()),
        made => made.map_err(|e| End::io(e, format!("cannot make the folder {}", path.display()))),
    }
}

fn bar(name: &str, parts: u64) -> ProgressBar {
    if !output::progress_is_seen() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}");
    let bar = ProgressBar::new(parts).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(name.to_string())
}

/// What came out and the table of claims, for a terminal.
fn summary(results: &Results, page: &Path) -> String {
    let mut text = String::new();
    if !results.claims.is_empty() {
        text += &format!(
            "{}\nThe networks (Section 6.2), claim by claim:\n\n",
            compare::summary(&results.comparisons)
        );
        results.claims.iter().for_each(|claim| tell(&mut text, claim));
        text += "\n";
    }
    if let Some(synthetic) = &results.synthetic {
        text += "The synthetic experiment (Section 6.1), claim by claim; a / b / c / d is for L₁ = 1 / 10 / 100 / 1000:\n\n";
        synthetic.claims.iter().for_each(|claim| tell(&mut text, claim));
        text += "\n";
    }
    text + &format!("{}\n", page.display())
}

fn tell(text: &mut String, claim: &Claim) {
    let Claim { number, claim: what, verdict, measured, recorded, .. } = claim;
    let recorded = recorded.as_ref().map_or(String::new(), |r| format!(" (at full scale: {r})"));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} {number:2}. {what} {}{recorded}", verdict.mark(), verdict.words());
    for line in wrap(measured, 92) {
        let _ = writeln!(text, "       {line}");
    }
}

/// Lines of at most `width` characters, broken between words.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_string());
        } else {
            let space = if lines[last].is_empty() { "" } else { " " };
            lines[last] = format!("{}{space}{word}", lines[last]);
        }
    }
    lines
}
