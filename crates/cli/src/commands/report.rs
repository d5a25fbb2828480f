//! `untuned report`: the figures and the page, from files alone.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use untuned_lab::compare;
use untuned_lab::live;
use untuned_lab::networks;
use untuned_lab::report::{ReportError, Results};
use untuned_lab::runs;

use crate::args::Report;
use crate::end::End;
use crate::{interrupt, output};

/// The page's file.
pub const PAGE: &str = "report.html";

pub fn run(args: &Report) -> Result<(), End> {
    if args.live {
        return show(args);
    }
    interrupt::at_once();
    let make = |folders: &[PathBuf], page: &Path| {
        let results = Results::read(folders).map_err(End::results)?;
        output::check_parent(page, "--out")?;
        if let Some(path) = &args.record {
            record(&results, path)?;
        }
        write(&results, page)?;
        output::print(&format!("{}\n", page.display()))
    };
    match &args.out {
        None if args.record.is_some() && args.folders.len() > 1 => Err(End::Request(anyhow!(
            "--record with several folders: name the page of all of them with --out"
        ))),
        Some(page) => make(&args.folders, page),
        None => {
            args.folders.iter().try_for_each(|folder| make(std::slice::from_ref(folder), &folder.join(PAGE)))
        }
    }
}

/// Writes the verdicts that the program shows beside those of smaller runs.
fn record(results: &Results, path: &Path) -> Result<(), End> {
    let bytes = networks::record(&results.networks).ok_or_else(|| {
        End::Request(anyhow!(
            "--record keeps verdicts on runs of the scales `{}`, with Inexact Polyak beside another method; here are none",
            networks::FULL_SCALES.join("` and `")
        ))
    })?;
    output::check_parent(path, "--record")?;
    output::write_file(path, &bytes)
}

/// Writes the page, and the figures and tables beside it.
pub fn write(results: &Results, page: &Path) -> Result<(), End> {
    for problem in &results.problems {
        output::say(&format!("note: {problem}"));
    }
    let beside = page.parent().unwrap_or(Path::new(""));
    for (name, bytes) in results.figure_files().map_err(|e| End::System(e.into()))? {
        let path = beside.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|e| End::io(e, format!("cannot make the folder {}", folder.display())))?;
        }
        output::write_file(&path, &bytes)?;
    }
    if !results.comparisons.is_empty() {
        let csv = compare::csv(&results.comparisons).map_err(|e| End::System(e.into()))?;
        output::write_file(&beside.join("runs.csv"), &csv)?;
    }
    output::write_file(page, results.page().html().as_bytes())
}

/// The page of some folders, made again when their runs change.
struct Folders<'a> {
    folders: &'a [PathBuf],
}

impl live::Source for Folders<'_> {
    fn stamp(&self) -> u64 {
        self.folders.iter().map(|folder| runs::stamp(folder)).fold(0, |all, one| all.rotate_left(7) ^ one)
    }

    fn page(&self) -> Result<String, String> {
        let results = Results::read(self.folders).map_err(|error| error.to_string())?;
        Ok(results.page().html())
    }
}

/// Serves the page on loopback until Ctrl-C.
fn show(args: &Report) -> Result<(), End> {
    if args.out.is_some() {
        return Err(End::Request(anyhow!(
            "--out and --live: the live page is served, not written; leave one out"
        )));
    }
    Results::read(&args.folders).map(drop).or_else(|error| match error {
        // Runs may begin later.
        ReportError::Nothing { .. } => Ok(()),
        error => Err(End::results(error)),
    })?;
    let listener: TcpListener = live::bind(args.port).map_err(|error| {
        End::io(error, format!("cannot listen on port {} of this machine", args.port.unwrap_or(0)))
    })?;
    let address = listener.local_addr().map_err(|e| End::io(e, "cannot listen on this machine".into()))?;
    output::print(&format!("http://{address}/\n"))?;
    output::say("the page follows the runs; Ctrl-C ends it");
    live::serve(listener, &Folders { folders: &args.folders }, &interrupt::asked)
        .map_err(|e| End::io(e, "cannot serve the page".into()))
}

impl End {
    /// A report that could not be made.
    pub fn results(error: ReportError) -> End {
        match error {
            ReportError::Read { path, source } => End::io(source, format!("cannot read {}", path.display())),
            error => End::request(error),
        }
    }
}
