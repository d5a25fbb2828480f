//! `untuned reproduce` and `untuned report`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use untuned_lab::report;
use untuned_lab::synthetic::{self, Synthetic};

use crate::args::{Report, Reproduce};
use crate::end::End;
use crate::{interrupt, output};

/// Where results go when nothing else is said.
const DEFAULT_OUT: &str = "untuned-results";
const EXPERIMENT: &str = "synthetic";
const PAGE: &str = "report.html";

pub fn reproduce(args: &Reproduce) -> Result<(), End> {
    // There is one experiment, one device, and no smaller scale of it yet: naming them or not is the same.
    let Reproduce { experiments: _, scale: _, device: _, out, json } = args;
    let out = prepare(out.as_deref())?;
    let bar = bar("synthetic", synthetic::PARTS as u64);
    let results = synthetic::run(|| bar.inc(1));
    bar.finish_and_clear();
    if interrupt::asked() {
        return Err(End::Interrupted);
    }
    let folder = out.join(EXPERIMENT);
    make_folder(&folder)?;
    for (name, bytes) in synthetic::files(&results).map_err(|e| End::System(e.into()))? {
        output::write_file(&folder.join(name), &bytes)?;
    }
    let page = out.join(PAGE);
    draw(&results, &folder, &page)?;
    if *json { output::print_json(&results.claims) } else { output::print(&summary(&results, &page)) }
}

pub fn report(args: &Report) -> Result<(), End> {
    if args.out.is_some() && args.folders.len() > 1 {
        let count = args.folders.len();
        return Err(End::Request(anyhow!(
            "--out names one page, and {count} folders were given; leave --out out"
        )));
    }
    for dir in &args.folders {
        let folder = dir.join(EXPERIMENT);
        let file = folder.join(synthetic::RESULTS_FILE);
        let bytes = fs::read(&file).with_context(|| {
            format!(
                "{} holds no results of `untuned reproduce`: cannot read {}",
                dir.display(),
                file.display()
            )
        });
        let text = String::from_utf8_lossy(&bytes.map_err(End::Request)?).into_owned();
        let results = synthetic::read(&text)
            .with_context(|| {
                format!("{} is not what `untuned reproduce` writes; run that again", file.display())
            })
            .map_err(End::Request)?;
        let page = args.out.clone().unwrap_or_else(|| dir.join(PAGE));
        output::check_parent(&page, "--out")?;
        draw(&results, &folder, &page)?;
        output::print(&format!("{}\n", page.display()))?;
    }
    Ok(())
}

/// The figures and the page, from the results alone.
fn draw(results: &Synthetic, folder: &Path, page: &Path) -> Result<(), End> {
    for (name, bytes) in synthetic::figure_files(results).map_err(|e| End::System(e.into()))? {
        output::write_file(&folder.join(name), &bytes)?;
    }
    output::write_file(page, report::page(results).as_bytes())
}

/// The folder for the results: new or empty, or the default one with an earlier run's.
fn prepare(given: Option<&Path>) -> Result<PathBuf, End> {
    let out = given.unwrap_or(Path::new(DEFAULT_OUT)).to_path_buf();
    output::check_parent(&out, "--out")?;
    if out.exists() && !out.is_dir() {
        return Err(End::Request(anyhow!("{} is a file; name a folder with --out", out.display())));
    }
    let ours = given.is_none() && out.join(EXPERIMENT).join(synthetic::RESULTS_FILE).is_file();
    let empty = fs::read_dir(&out).map_or(true, |mut entries| entries.next().is_none());
    if !empty && !ours {
        let out = out.display();
        return Err(End::Request(anyhow!(
            "{out} is not empty; name a new folder with --out, or empty this one"
        )));
    }
    make_folder(&out)?;
    Ok(out)
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

/// The table of claims for a terminal.
fn summary(results: &Synthetic, page: &Path) -> String {
    let mut text = "The synthetic experiment (Section 6.1), claim by claim; a / b / c / d is for L₁ = 1 / 10 / 100 / 1000:\n\n".to_string();
    for claim in &results.claims {
        let mark = claim.verdict.mark();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark} {:2}. {} {}", claim.number, claim.claim, claim.verdict.words());
        for line in wrap(&claim.measured, 92) {
            let _ = writeln!(text, "       {line}");
        }
    }
    let _ = writeln!(text, "\n{}", page.display());
    text
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
