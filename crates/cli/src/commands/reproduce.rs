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
use untuned_lab::runs::{self, Run};
use untuned_lab::sweep::{PLAN, Plan, TRIALS};
use untuned_lab::synthetic;

use super::report::{self, PAGE};
use super::sweep::{self, Open, Work};
use super::train::Typed;
use crate::args::{Experiment, Reproduce, Scale};
use crate::end::End;
use crate::{interrupt, output};

/// Where results go when nothing else is said.
const DEFAULT_OUT: &str = "untuned-results";
/// The file that a running `reproduce` holds.
const LOCK: &str = ".lock";
/// The folder of the experiments' files.
const FILES: &str = "experiments";
const ALL: [Experiment; 4] = [Experiment::Synthetic, Experiment::Lstm, Experiment::Gpt, Experiment::T5];

pub fn run(args: &Reproduce) -> Result<(), End> {
    let wanted: Vec<Experiment> =
        ALL.into_iter().filter(|e| args.experiments.is_empty() || args.experiments.contains(e)).collect();
    let out = prepare(args, &wanted)?;
    let _lock = lock(&out)?;
    let mut open = Open::default();
    for experiment in &wanted {
        match experiment.network() {
            None => make_synthetic(args, &out)?,
            Some(name) => open.extend(make_sweep(args, &out, name)?),
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
    open.end()
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

/// Adds the command that makes an experiment again to the file that keeps them.
fn record(args: &Reproduce, out: &Path, experiment: &str) -> Result<(), End> {
    let mut words = vec!["reproduce".to_string(), experiment.to_string()];
    words.extend(["--scale".to_string(), args.scale.name().to_string()]);
    let data = default_data(args).filter(|_| experiment != SYNTHETIC);
    sweep::record(out, words, &args.shared, data)
}

/// Where the data is when it was not named: at the quick scale the comparison is on the generated corpus, whatever `UNTUNED_DATA` says.
fn default_data(args: &Reproduce) -> Option<String> {
    std::env::var("UNTUNED_DATA").ok().filter(|data| args.scale == Scale::Paper && !data.is_empty())
}

fn make_synthetic(args: &Reproduce, out: &Path) -> Result<(), End> {
    let bar = bar("synthetic", synthetic::PARTS as u64);
    let results = synthetic::run(|| bar.inc(1));
    bar.finish_and_clear();
    if interrupt::asked() {
        return Err(End::Interrupted);
    }
    record(args, out, SYNTHETIC)?;
    let folder = out.join(SYNTHETIC);
    make_folder(&folder)?;
    for (name, bytes) in synthetic::files(&results).map_err(|e| End::System(e.into()))? {
        output::write_file(&folder.join(name), &bytes)?;
    }
    Ok(())
}

/// Writes the files of a network's sweep, unless they and what was typed do not go together, and works it off; what has not ended.
fn make_sweep(args: &Reproduce, out: &Path, name: &str) -> Result<Open, End> {
    let mut shared = args.shared.clone();
    if shared.data.is_none() && default_data(args).is_none() {
        shared.set.insert(0, "data=generated".into());
    }
    if args.scale == Scale::Quick {
        // The quick comparison is the same everywhere, and networks this small gain nothing from a GPU; what was typed comes after.
        shared.set.insert(0, "device=cpu".into());
    }
    let scale = args.scale.name();
    let typed = Typed {
        data: shared.data.as_deref(),
        device: shared.device.as_deref(),
        precision: shared.precision.as_deref(),
        set: &shared.set,
        ..Typed::default()
    };
    let (files, file) = (out.join(FILES), networks::sweep_file(name));
    let text =
        |wanted: &str| networks::files(name).find(|(file, _)| *file == wanted).map_or("", |(_, text)| text);
    let origin = |file: &str| files.join(file).display().to_string();
    let experiment = |file: &str| Ok((text(file).to_string(), origin(file), name.to_string()));
    let overrides = typed.overrides(Some(scale.into()))?;
    let plan = Plan::resolve(text(&file), &origin(&file), experiment, &overrides).map_err(End::plan)?;
    sweep::check_data(&plan)?;
    make_folder(&files)?;
    for (file, text) in networks::files(name) {
        output::write_file(&files.join(file), text.as_bytes())?;
    }
    let file = files.join(file);
    let work = Work { sweep: &file, plan: &plan, out: &out.join(name), scale: Some(scale), shared: &shared };
    work.check()?;
    record(args, out, name)?;
    work.off(name)
}

/// The folder for the results: new or empty, or one of ours to go on with, or the default one, in which earlier quick results of the
/// wanted experiments are replaced.
fn prepare(args: &Reproduce, wanted: &[Experiment]) -> Result<PathBuf, End> {
    let out = args.out.as_deref().unwrap_or(Path::new(DEFAULT_OUT)).to_path_buf();
    output::check_parent(&out, "--out")?;
    if out.exists() && !out.is_dir() {
        return Err(End::Request(anyhow!("{} is a file; name a folder with --out", out.display())));
    }
    // A run that was stopped at once leaves its lock.
    let empty =
        fs::read_dir(&out).map_or(true, |entries| entries.flatten().all(|entry| entry.file_name() == LOCK));
    let ours = out.join(COMMAND).is_file();
    let refuse = |why: &str| {
        let out = out.display();
        Err(End::Request(anyhow!("{out} {why}; name a new folder with --out")))
    };
    match (empty, args.resume, ours) {
        (true, ..) => {}
        (false, true, true) => {}
        (false, true, false) => return refuse("holds no results of `untuned reproduce` to go on with"),
        (false, false, _) if args.out.is_some() || !ours => {
            return refuse("is not empty; add --resume to go on with what `untuned reproduce` left in it");
        }
        (false, false, _) => {
            let _lock = lock(&out)?;
            for experiment in wanted {
                let name = experiment.network().unwrap_or(SYNTHETIC);
                if !is_replaceable(&out.join(name)) {
                    return refuse(&format!(
                        "holds {name} with more than earlier quick results; add --resume to go on with it"
                    ));
                }
            }
            for experiment in wanted {
                let path = out.join(experiment.network().unwrap_or(SYNTHETIC));
                if path.exists() {
                    fs::remove_dir_all(&path)
                        .map_err(|e| End::io(e, format!("cannot remove {}", path.display())))?;
                }
            }
        }
    }
    make_folder(&out)?;
    Ok(out)
}

/// Takes the folder for this process: the file is locked until it is closed.
fn lock(out: &Path) -> Result<fs::File, End> {
    let path = out.join(LOCK);
    let failed = |e| End::io(e, format!("cannot write {}", path.display()));
    let file = fs::File::create(&path).map_err(failed)?;
    if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
        let out = out.display();
        return Err(End::Request(anyhow!(
            "another `untuned reproduce` works in {out}; wait for it, or name a new folder with --out"
        )));
    }
    Ok(file)
}

/// Whether an experiment's folder holds nothing but what was made here in minutes.
fn is_replaceable(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return true };
    let known = |name: &str| match folder.ends_with(SYNTHETIC) {
        true => [".json", ".csv", ".svg", ".png"].iter().any(|ending| name.ends_with(ending)),
        false => [PLAN, TRIALS, COMMAND, PAGE, "runs.csv", "figures"].contains(&name),
    };
    let quick = |run: &Run| run.config.scale == Scale::Quick.name();
    entries.flatten().all(|entry| known(&entry.file_name().to_string_lossy()))
        && runs::find(folder).runs.iter().all(quick)
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
    if !results.claims().is_empty() {
        text += &format!(
            "{}\nThe networks (Section 6.2), claim by claim:\n\n",
            compare::summary(&results.comparisons)
        );
        results.claims().iter().for_each(|claim| write_claim(&mut text, claim));
        text += "\n";
    }
    if let Some(synthetic) = &results.synthetic {
        text += "The synthetic experiment (Section 6.1), claim by claim; a / b / c / d is for L₁ = 1 / 10 / 100 / 1000:\n\n";
        synthetic.claims.iter().for_each(|claim| write_claim(&mut text, claim));
        text += "\n";
    }
    text + &format!("{}\n", page.display())
}

fn write_claim(text: &mut String, claim: &Claim) {
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
