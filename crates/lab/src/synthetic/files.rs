//! The experiment's results as files: one JSON file with everything, and tables as CSV.

use std::io;

use serde::Serialize;
use thiserror::Error;

use super::claims::CLAIMS;
use super::grid::{RATES, THRESHOLDS};
use super::panels::PANELS;
use super::{L1, Synthetic};

/// The file that holds everything; figures and report are made from it alone.
pub const RESULTS_FILE: &str = "synthetic.json";

/// Results that were not written by this program, or by another version of it.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// Not the JSON that [`files`] writes.
    #[error("not the results of the synthetic experiment: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of the right form with parts missing or too many.
    #[error("not the results of the synthetic experiment: {what} has {found} entries, not {wanted}")]
    Count {
        /// The part.
        what: String,
        /// Its entries.
        found: usize,
        /// What it should have.
        wanted: usize,
    },
}

/// Reads what [`files`] wrote as [`RESULTS_FILE`].
///
/// # Errors
/// When the text is anything else.
pub fn read(text: &str) -> Result<Synthetic, ResultsError> {
    let results: Synthetic = serde_json::from_str(text)?;
    let expect = |what: &str, found: usize, wanted: usize| match found == wanted {
        true => Ok(()),
        false => Err(ResultsError::Count { what: what.to_string(), found, wanted }),
    };
    expect("panels", results.panels.len(), PANELS.len())?;
    for panel in &results.panels {
        let drawn = L1.iter().filter(|l1| panel.curves.iter().any(|c| c.l1 == **l1 && !c.points.is_empty()));
        expect(&format!("the panel {}", panel.key), drawn.count(), L1.len())?;
        expect(&format!("the panel {}", panel.key), panel.curves.len(), L1.len())?;
    }
    expect("claims", results.claims.len(), CLAIMS)?;
    for l1 in L1 {
        let pairs = RATES.into_iter().flat_map(|lr| THRESHOLDS.into_iter().map(move |c| (lr, c)));
        let cells = results.grid.for_l1(l1).cells;
        let right = cells
            .iter()
            .zip(pairs)
            .filter(|(cell, (lr, c))| cell.lr == *lr && cell.threshold.unwrap_or(f64::INFINITY) == *c);
        let wanted = RATES.len() * THRESHOLDS.len();
        expect(&format!("the grid for L1 = {l1}"), cells.len(), wanted)?;
        expect(&format!("the grid for L1 = {l1}"), right.count(), wanted)?;
    }
    for row in &results.steps {
        expect(&row.key, row.steps.len(), L1.len())?;
        expect(&row.key, row.rules.len(), L1.len())?;
    }
    Ok(results)
}

/// All data files: name and content.
///
/// # Errors
/// When the results cannot be written as JSON or CSV, which would be a mistake of ours.
pub fn files(results: &Synthetic) -> io::Result<Vec<(String, Vec<u8>)>> {
    Ok(vec![
        (RESULTS_FILE.to_string(), json(results)?),
        ("claims.json".to_string(), json(&results.claims)?),
        ("curves.csv".to_string(), curves(results)?),
        ("steps.csv".to_string(), steps(results)?),
        ("grid.csv".to_string(), table(&results.grid.cells)?),
    ])
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn table<T: Serialize>(rows: impl IntoIterator<Item = T>) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(io::Error::other)?;
    }
    writer.into_inner().map_err(|e| io::Error::other(e.to_string()))
}

#[derive(Serialize)]
struct Point<'a> {
    panel: &'a str,
    l1: f64,
    rule: &'a str,
    /// The step of the run, or the horizon, whichever the panel's abscissa is.
    step: u64,
    gap: f64,
}

fn curves(results: &Synthetic) -> io::Result<Vec<u8>> {
    let points = results.panels.iter().flat_map(|panel| {
        panel.curves.iter().flat_map(|curve| {
            let point =
                |&(step, gap)| Point { panel: &panel.key, l1: curve.l1, rule: &curve.rule, step, gap };
            curve.points.iter().map(point)
        })
    });
    table(points)
}

#[derive(Serialize)]
struct Steps<'a> {
    method: &'a str,
    l1: f64,
    rule: &'a str,
    /// Empty where the run did not get there.
    steps: Option<u64>,
}

fn steps(results: &Synthetic) -> io::Result<Vec<u8>> {
    let rows = results.steps.iter().flat_map(|row| {
        let cells = L1.iter().zip(&row.rules).zip(&row.steps);
        cells.map(|((&l1, rule), &steps)| Steps { method: &row.key, l1, rule, steps })
    });
    table(rows)
}
