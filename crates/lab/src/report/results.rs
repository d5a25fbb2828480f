//! What a report is about: everything that was found below some folders.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Page, html, networks, synthetic as synthetic_sections};
use crate::claims::Claim;
use crate::compare::{self, AllCurves, Comparison, Drawn, compare};
use crate::figure::{self, Figure, FigureError};
use crate::networks::{Claims, claims, with_recorded};
use crate::runs::{self, Run};
use crate::synthetic::{self, Synthetic};
use crate::train::Config;

/// The file with the command that made a folder's results.
pub const COMMAND: &str = "command.txt";
/// The folder of the synthetic experiment's results.
pub const SYNTHETIC: &str = "synthetic";

/// Why nothing can be reported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ReportError {
    /// A folder that is not there, or is none.
    #[error("{path} is not a folder; give one that `untuned reproduce`, `sweep` or `train` wrote", path = path.display())]
    NoFolder { path: PathBuf },
    /// Nothing below it.
    #[error(
        "no run and no results of `untuned reproduce` below {path}; give a folder that `untuned reproduce`, `sweep` or `train` wrote",
        path = path.display()
    )]
    Nothing { path: PathBuf },
    /// The synthetic experiment's results.
    #[error("{path} is not what `untuned reproduce` writes; run that again: {source}", path = path.display())]
    Synthetic { path: PathBuf, source: synthetic::ResultsError },
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Everything that was found.
#[derive(Debug)]
pub struct Results {
    /// The synthetic experiment.
    pub synthetic: Option<Synthetic>,
    /// The runs, by experiment.
    pub comparisons: Vec<Comparison>,
    /// The twelve claims on networks; none where no run has to do with them.
    pub networks: Claims,
    /// The figures of each comparison.
    figures: Vec<Vec<Drawn>>,
    /// The figures over several comparisons.
    leagues: Vec<Drawn>,
    /// The commands that made them, where they are known.
    commands: Vec<String>,
    /// What was left out, because it cannot be read or is a copy, one sentence each.
    pub problems: Vec<String>,
}

impl Results {
    /// Reads what is below some folders.
    ///
    /// # Errors
    /// When a folder has nothing to report, or the synthetic experiment's file is damaged. A damaged run is a problem, not an error.
    pub fn read(folders: &[PathBuf]) -> Result<Results, ReportError> {
        let (mut found, mut runs, mut problems, mut commands) = (None, Vec::new(), Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for folder in folders {
            if !folder.is_dir() {
                return Err(ReportError::NoFolder { path: folder.clone() });
            }
            let synthetic = read_synthetic(folder)?;
            let mut below = runs::find(folder);
            if synthetic.is_none() && below.runs.is_empty() && below.problems.is_empty() {
                return Err(ReportError::Nothing { path: folder.clone() });
            }
            found = found.or(synthetic);
            commands.extend(fs::read_to_string(folder.join(COMMAND)));
            if folders.len() == 1 {
                below.runs.iter_mut().for_each(|run| run.name_in(folder));
            }
            // The same folder, given twice or inside another, counts once.
            below.runs.retain(|run| {
                seen.insert(fs::canonicalize(&run.folder).unwrap_or_else(|_| run.folder.clone()))
            });
            runs.extend(below.runs);
            problems.extend(below.problems);
        }
        drop_copies(&mut runs, &mut problems);
        let comparisons = compare(runs);
        let curves: Vec<AllCurves> = comparisons.iter().map(AllCurves::read).collect();
        problems.extend(curves.iter().flat_map(|curves| curves.problems().cloned()));
        let both = || comparisons.iter().zip(&curves);
        let figures = both().map(|(comparison, curves)| compare::draw(comparison, curves)).collect();
        let leagues = compare::leagues(&comparisons);
        let compared = comparisons.iter().any(|c| {
            let methods = c.main_horizon().map_or(Vec::new(), |horizon| c.methods(horizon));
            methods.len() > 1 && methods.iter().any(|method| method.key == "inexact-polyak")
        });
        let networks =
            if compared { with_recorded(claims(&both().collect::<Vec<_>>())) } else { Claims::default() };
        Ok(Results { synthetic: found, comparisons, networks, figures, leagues, commands, problems })
    }

    /// The claims on networks.
    pub fn claims(&self) -> &[Claim] {
        &self.networks.claims
    }

    /// The page.
    pub fn page(&self) -> Page {
        let mut lead = String::from("<p>What the paper claims, measured again.");
        for (what, claims) in [
            ("networks", self.claims()),
            ("synthetic experiment", self.synthetic.as_ref().map_or(&[], |s| &s.claims)),
        ] {
            if !claims.is_empty() {
                lead += &format!(" On the {what}: {}", html::tally(claims));
            }
        }
        lead += "</p>";
        if !self.problems.is_empty() {
            let list: String =
                self.problems.iter().map(|p| format!("<li>{}</li>", html::escape(p))).collect();
            lead += &format!("<div class=problems><p>Left out of this page:</p><ul>{list}</ul></div>");
        }
        lead += &format!(
            "<p class=meta>Version {}; <code>untuned report DIR</code> makes this page again.",
            env!("CARGO_PKG_VERSION")
        );
        if !self.commands.is_empty() {
            lead += &format!(
                " The runs were made by</p>{}<p class=meta>",
                html::code(self.commands.join("").trim_end())
            );
        }
        lead += "</p>";
        let mut sections = Vec::new();
        if !self.claims().is_empty() {
            sections.push(networks::claims(self.claims()));
        }
        if !self.leagues.is_empty() {
            sections.push(networks::leagues(&self.leagues));
        }
        for (at, (comparison, figures)) in self.comparisons.iter().zip(&self.figures).enumerate() {
            sections.push(networks::section(comparison, figures, &format!("experiment-{at}")));
        }
        if !self.claims().is_empty() {
            sections.push(networks::notes());
        }
        if let Some(results) = &self.synthetic {
            sections.extend(synthetic_sections::sections(results));
        }
        Page { title: "Parameter-free clipped gradient descent meets Polyak".into(), lead, sections }
    }

    /// All figures as files: folder below the report's, name and content.
    ///
    /// # Errors
    /// When a figure cannot be rendered, which would be a mistake of ours.
    pub fn figure_files(&self) -> Result<Vec<(PathBuf, Vec<u8>)>, FigureError> {
        let mut files = Vec::new();
        if let Some(results) = &self.synthetic {
            let figures = synthetic::figures(results);
            let drawn = figure::files(figures.iter().map(|(name, figure)| (*name, figure)))?;
            files.extend(drawn.into_iter().map(|(name, bytes)| (Path::new(SYNTHETIC).join(name), bytes)));
        }
        let all: Vec<(&str, &Figure)> = self
            .leagues
            .iter()
            .chain(self.figures.iter().flatten())
            .map(|drawn| (drawn.file.as_str(), &drawn.figure))
            .collect();
        let drawn = figure::files(all)?;
        files.extend(drawn.into_iter().map(|(name, bytes)| (Path::new("figures").join(name), bytes)));
        Ok(files)
    }

    /// All claims, those on networks first.
    pub fn all_claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims().iter().chain(self.synthetic.iter().flat_map(|results| &results.claims))
    }
}

/// Of runs that are the same, as after a folder was copied, the first counts.
fn drop_copies(runs: &mut Vec<Run>, problems: &mut Vec<String>) {
    let mut seen: HashMap<_, String> = HashMap::new();
    runs.retain(|run| {
        let Config { name, scale, data, .. } = &run.config;
        let key = (name.clone(), scale.clone(), data.clone(), run.config.identity());
        let first = seen.entry(key).or_insert_with(|| run.name.clone());
        let is_first = *first == run.name;
        if !is_first {
            problems.push(format!("{} is the same run as {first}, which counts", run.name));
        }
        is_first
    });
}

fn read_synthetic(folder: &Path) -> Result<Option<Synthetic>, ReportError> {
    let path = folder.join(SYNTHETIC).join(synthetic::RESULTS_FILE);
    match fs::read(&path) {
        Ok(bytes) => match synthetic::read(&String::from_utf8_lossy(&bytes)) {
            Ok(results) => Ok(Some(results)),
            Err(source) => Err(ReportError::Synthetic { path, source }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReportError::Read { path, source }),
    }
}
