//! The tables of a comparison: what each method reached, and every run.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;

use serde::Serialize;
use untuned::spec::loss;

use super::{Comparison, Method, Outcome, Spread};
use crate::runs::{Horizon, Run, Standing};
use crate::train::config::flat;

/// What each method reached after so many steps: a header and rows.
pub fn results(comparison: &Comparison, horizon: Horizon) -> Vec<Vec<String>> {
    let header = [
        "method",
        "parameters",
        "validation loss",
        "test loss",
        "range",
        "test loss of the best",
        "steps for a seed",
        "",
    ];
    let mut table = vec![header.map(String::from).to_vec()];
    for method in comparison.methods(horizon) {
        table.push(vec![
            method.name(),
            parameters(&method),
            shown_loss(method.spread(|summary| summary.final_validation_loss)),
            shown_loss(method.test()),
            shown_range(method.test()),
            shown_loss(method.best_test()),
            method.cost().map_or("–".to_string(), |cost| cost.to_string()),
            remarks(&method),
        ]);
    }
    table
}

/// The mean of the seeds' losses.
pub(crate) fn shown_loss(spread: Option<Spread>) -> String {
    spread.map_or("–".to_string(), |spread| loss(spread.mean))
}

/// From the lowest to the highest of them.
pub(crate) fn shown_range(spread: Option<Spread>) -> String {
    spread.map_or("–".to_string(), |spread| format!("{} to {}", loss(spread.low), loss(spread.high)))
}

/// The parameters that stand for the seeds, once where they are the same.
pub(crate) fn parameters(method: &Method<'_>) -> String {
    if !method.is_tuned() {
        return method.variants().into_iter().next().unwrap_or_default();
    }
    let of_seed = |seed: &u64| match method.outcome(*seed) {
        Outcome::Chosen(chosen) => method.variant(chosen.run),
        Outcome::AllDiverged => "all diverged".to_string(),
        Outcome::Unfinished => "not finished".to_string(),
    };
    let chosen: Vec<String> = method.seeds().iter().map(of_seed).collect();
    match chosen.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) => first.clone(),
        chosen => chosen.join(" / "),
    }
}

/// What a reader should know beside the numbers.
fn remarks(method: &Method<'_>) -> String {
    let mut words = Vec::new();
    if method.diverged() {
        words.push("diverged".to_string());
    }
    if method.is_tuned() {
        let lost = method.grid().filter_map(|run| run.summary()).filter(|s| s.diverged).count();
        words.push(format!("{lost} of {} runs diverged", method.grid().count()));
    }
    let (unfinished, failed) = method.missing();
    for (count, what) in [(unfinished, "not finished"), (failed, "failed")] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    words.join("; ")
}

/// All comparisons for a terminal.
pub fn summary(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    for comparison in comparisons {
        for horizon in comparison.horizons() {
            let methods = comparison.methods(horizon);
            let seeds = methods.iter().map(|m| m.seeds().len()).max().unwrap_or(0);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} ({}, {}), T = {horizon}, {seeds} seed{}",
                comparison.title(),
                comparison.scale,
                comparison.data,
                if seeds == 1 { "" } else { "s" }
            );
            for method in methods {
                let test = match (method.test(), method.diverged()) {
                    (Some(spread), false) if spread.count > 1 => {
                        format!("{}  ({})", loss(spread.mean), shown_range(Some(spread)))
                    }
                    (Some(spread), false) => loss(spread.mean),
                    (_, true) => "diverged".to_string(),
                    (None, false) => "–".to_string(),
                };
                let selected =
                    if method.is_tuned() { format!("  {}", parameters(&method)) } else { String::new() };
                let missing = match method.missing() {
                    (0, 0) => String::new(),
                    (unfinished, failed) => format!("  [{unfinished} not finished, {failed} failed]"),
                };
                let _ = writeln!(text, "  {:<18} test {test}{selected}{missing}", method.name());
            }
        }
    }
    text
}

/// A run in `runs.csv`.
#[derive(Debug, Serialize)]
struct Row<'a> {
    folder: &'a str,
    experiment: &'a str,
    scale: &'a str,
    model: &'a str,
    method: String,
    rule: String,
    seed: u64,
    steps: Option<u64>,
    /// Other keys in which the runs of the experiment differ.
    other_keys: String,
    standing: &'a str,
    diverged: Option<bool>,
    train_loss: Option<f64>,
    validation_loss: Option<f64>,
    test_loss: Option<f64>,
    best_validation_loss: Option<f64>,
    best_test_loss: Option<f64>,
    seconds: Option<f64>,
    error: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn of(run: &'a Run, differing: &BTreeSet<String>) -> Row<'a> {
        let summary = run.summary();
        let (standing, error) = match &run.standing {
            Standing::Ended(_) => ("ended", None),
            Standing::Failed(error) => ("failed", Some(error.as_str())),
            Standing::Unfinished => ("unfinished", None),
        };
        Row {
            folder: &run.name,
            experiment: &run.config.name,
            scale: &run.config.scale,
            model: run.config.model.name(),
            method: run.method(),
            rule: run.config.rule.to_string(),
            seed: run.config.seed,
            steps: run.steps(),
            other_keys: values(run, differing),
            standing,
            diverged: summary.map(|s| s.diverged),
            train_loss: summary.and_then(|s| s.final_train_loss),
            validation_loss: summary.and_then(|s| s.final_validation_loss),
            test_loss: summary.and_then(|s| s.final_test_loss),
            best_validation_loss: summary.and_then(|s| s.best_validation_loss),
            best_test_loss: summary.and_then(|s| s.best_test_loss),
            seconds: summary.map(|s| s.seconds),
            error,
        }
    }
}

/// Every run of the comparisons as CSV.
///
/// # Errors
/// When it cannot be written as CSV, which would be a mistake of ours.
pub fn csv(comparisons: &[Comparison]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for comparison in comparisons {
        let differing = differing(comparison);
        for run in &comparison.runs {
            writer.serialize(Row::of(run, &differing)).map_err(io::Error::other)?;
        }
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// More rows than anybody reads; the file `runs.csv` has all.
pub const MOST_ROWS: usize = 1000;

/// Every run: a header and at most [`MOST_ROWS`] rows.
pub fn runs(comparison: &Comparison) -> Vec<Vec<String>> {
    let differing = differing(comparison);
    let header = [
        "folder",
        "rule",
        "seed",
        "T",
        "other keys",
        "validation loss",
        "test loss",
        "seconds",
        "how it ended",
    ];
    let mut table = vec![header.map(String::from).to_vec()];
    for run in comparison.runs.iter().take(MOST_ROWS) {
        let summary = run.summary();
        let shown = |value: Option<f64>| value.map_or("–".to_string(), loss);
        let ended = match &run.standing {
            Standing::Ended(summary) if summary.diverged => "diverged".to_string(),
            Standing::Ended(_) => "finished".to_string(),
            Standing::Failed(error) => format!("failed: {error}"),
            Standing::Unfinished => "not finished".to_string(),
        };
        table.push(vec![
            run.name.clone(),
            run.config.rule.to_string(),
            run.config.seed.to_string(),
            run.horizon().to_string(),
            values(run, &differing),
            shown(summary.and_then(|s| s.final_validation_loss)),
            shown(summary.and_then(|s| s.final_test_loss)),
            summary.map_or("–".to_string(), |s| format!("{:.1}", s.seconds)),
            ended,
        ]);
    }
    table
}

/// A run's values of some keys.
fn values(run: &Run, keys: &BTreeSet<String>) -> String {
    let all = flat(&run.config);
    let values = keys.iter().filter_map(|key| Some(format!("{key} = {}", all.get(key)?)));
    values.collect::<Vec<_>>().join(", ")
}

/// The keys in which runs differ, beside rule, seed and T.
fn differing(comparison: &Comparison) -> BTreeSet<String> {
    let mut all = comparison.runs.iter().map(|run| flat(&run.config));
    let Some(first) = all.next() else { return BTreeSet::new() };
    let mut differing = BTreeSet::new();
    for keys in all {
        let both = first.keys().chain(keys.keys());
        differing.extend(both.filter(|key| first.get(*key) != keys.get(*key)).cloned());
    }
    for shown in ["rule", "seed", "steps", "epochs"] {
        differing.remove(shown);
    }
    differing
}

/// The keys that all runs share, with their values; the others stand beside the runs.
pub fn common_configuration(comparison: &Comparison) -> String {
    let Some(first) = comparison.runs.first() else { return String::new() };
    let differing = differing(comparison);
    let own = ["rule", "seed", "steps", "epochs"];
    let shared = flat(&first.config)
        .into_iter()
        .filter(|(key, _)| !own.contains(&key.as_str()) && !differing.contains(key));
    shared.map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join("\n")
}
