//! What the traces of a method's runs say, in bounded memory: as many bins as a figure can show, whatever their length.

use std::collections::BTreeMap;

use rayon::prelude::*;
use untuned::theory::{Line, Probe, Regression};

use super::{Comparison, Method, Spread};
use crate::runs::{Run, Standing};
use crate::traces::{Band, Binned, DEFAULT_BINS, TraceError, read_eval, read_trace};
use crate::train::folder::{EVAL, TRACE};

/// Points of the local smoothness that are kept of a method.
const MOST_POINTS: usize = 1 << 14;

/// A method's curves over its seeds.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// The training loss.
    pub train: Band,
    /// The test loss at every evaluation that all seeds have.
    pub test: Vec<(u64, Spread)>,
    /// The step size η.
    pub step_size: Band,
    /// The length η‖g‖ of the step.
    pub length: Band,
    /// ‖g‖.
    pub grad_norm: Band,
    /// Where it was measured, ‖g‖ and the local smoothness.
    pub smoothness: Vec<[f64; 2]>,
    /// What could not be read, one sentence each; the run is left out.
    pub problems: Vec<String>,
}

/// What the local smoothness of a method's runs fits to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The lowest line L₀ + L₁‖g‖ above all points.
    pub line: Line,
    /// The least-squares line, and the correlation.
    pub regression: Regression,
}

/// The curves of every method of a comparison, by horizon and method. Traces are read once, however many figures and claims ask.
#[derive(Debug, Clone, Default)]
pub struct AllCurves(BTreeMap<(u64, String), Curves>);

impl AllCurves {
    /// Reads all of them, on all cores.
    pub fn read(comparison: &Comparison) -> AllCurves {
        let horizons = comparison.horizons();
        let methods: Vec<Method<'_>> = horizons.iter().flat_map(|h| comparison.methods(*h)).collect();
        let read = |method: &Method<'_>| ((method.horizon, method.key.clone()), Curves::read(method));
        AllCurves(methods.par_iter().map(read).collect())
    }

    /// Those of a method.
    pub fn of(&self, method: &Method<'_>) -> Option<&Curves> {
        self.0.get(&(method.horizon, method.key.clone()))
    }

    /// What could not be read, one sentence each.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.0.values().flat_map(|curves| &curves.problems)
    }
}

/// One run's.
struct Binnings {
    loss: Binned,
    step_size: Binned,
    length: Binned,
    grad_norm: Binned,
    smoothness: Vec<[f64; 2]>,
}

impl Curves {
    /// Reads the runs that stand for the method's seeds; where it has no grid, also those that have not ended.
    fn read(method: &Method<'_>) -> Curves {
        let mut runs: Vec<&Run> = method.all_chosen().iter().map(|chosen| chosen.run).collect();
        if !method.is_tuned() {
            runs.extend(method.runs.iter().filter(|run| run.standing == Standing::Unfinished));
        }
        let mut curves = Curves::default();
        let mut evaluations = Vec::new();
        for run in runs {
            match Binnings::read(run, method.horizon).and_then(|b| Ok((b, tests(run)?))) {
                Ok((binned, tests)) => {
                    curves.add(binned);
                    evaluations.push(tests);
                }
                Err(error) => curves.problems.push(format!("{error}; the run is left out of the figures")),
            }
        }
        curves.test = common(&evaluations);
        curves
    }

    /// The line of Assumption 2 above all points, and the regression through them; nothing with fewer than two points.
    pub fn smoothness_fit(&self) -> Option<Fit> {
        // Every step counts, also one longer than 1/L₁, of which the assumption says nothing: with most of a network's steps
        // left out, a line through three points would remain.
        let mut probe = Probe::new(Some(0.0));
        self.smoothness.iter().for_each(|[norm, smoothness]| probe.push(*norm, *smoothness, 0.0));
        let reading = probe.read();
        let (line, regression) = reading.envelope.zip(reading.regression)?;
        Some(Fit { line, regression })
    }

    fn add(&mut self, run: Binnings) {
        for (band, binned) in [
            (&mut self.train, run.loss),
            (&mut self.step_size, run.step_size),
            (&mut self.length, run.length),
            (&mut self.grad_norm, run.grad_norm),
        ] {
            // Cannot fail: all runs of a method are binned for the same number of steps.
            let _ = band.add(&binned);
        }
        let room = MOST_POINTS.saturating_sub(self.smoothness.len());
        self.smoothness.extend(run.smoothness.into_iter().take(room));
    }
}

impl Binnings {
    fn read(run: &Run, steps: u64) -> Result<Binnings, TraceError> {
        let new = || Binned::new(steps, DEFAULT_BINS);
        let mut binned = Binnings {
            loss: new(),
            step_size: new(),
            length: new(),
            grad_norm: new(),
            smoothness: Vec::new(),
        };
        read_trace(&run.folder.join(TRACE), |row| {
            binned.loss.add(row.step, row.loss);
            binned.grad_norm.add(row.step, row.grad_norm);
            let length = row.step_size.zip(row.grad_norm).map(|(size, norm)| size * norm);
            binned.step_size.add(row.step, row.step_size);
            binned.length.add(row.step, length);
            if let (Some(norm), Some(smoothness)) = (row.grad_norm, row.smoothness)
                && binned.smoothness.len() < MOST_POINTS
            {
                binned.smoothness.push([norm, smoothness]);
            }
        })?;
        Ok(binned)
    }
}

/// The test losses of a run by step.
fn tests(run: &Run) -> Result<BTreeMap<u64, Option<f64>>, TraceError> {
    let rows = read_eval(&run.folder.join(EVAL))?.into_iter();
    Ok(rows.filter(|row| row.split == "test").map(|row| (row.step, row.loss)).collect())
}

/// The evaluations that all runs have; the mean of fewer seeds would be another curve.
fn common(runs: &[BTreeMap<u64, Option<f64>>]) -> Vec<(u64, Spread)> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    let at = |step: &u64, value: &Option<f64>| {
        let rest = others.iter().map(|run| run.get(step).copied().flatten());
        let values: Option<Vec<f64>> = std::iter::once(*value).chain(rest).collect();
        Some((*step, Spread::of(&values?)?))
    };
    first.iter().filter_map(|(step, value)| at(step, value)).collect()
}
