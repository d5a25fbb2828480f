//! What the traces of a method's runs say, in bounded memory: as many bins as a figure can show, whatever their length.

use std::collections::BTreeMap;

use rayon::prelude::*;
use untuned_theory::probe::{Line, Probe, Regression};

use super::{Comparison, Method, Spread};
use crate::runs::{Horizon, Run, Standing};
use crate::traces::{Band, Binned, DEFAULT_BINS, Split, TraceError, read_eval, read_trace};
use crate::train::folder::{CONFIG, EVAL, TRACE};

/// Points of the local smoothness that are kept of a method.
const MOST_POINTS: usize = 1 << 14;

/// A method's curves over its seeds.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// The training loss.
    pub train: Band,
    /// The test loss at every evaluation; nothing where a seed has none, or one that is not finite.
    pub test: Vec<(u64, Option<Spread>)>,
    /// The largest ratio of a seed's test loss and the lowest before it; infinite where it was not finite.
    pub rise: Option<f64>,
    /// The step size η.
    pub step_size: Band,
    /// The length η‖g‖ of the step.
    pub length: Band,
    /// ‖g‖.
    pub grad_norm: Band,
    /// Where it was measured, ‖g‖ and the local smoothness.
    pub smoothness: Vec<[f64; 2]>,
    /// From one row of the traces to the next there are so many steps; more than one where they were thinned.
    pub every: u64,
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
pub struct AllCurves(BTreeMap<(Horizon, String), Curves>);

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
            // A planned one that has not begun has no curve.
            let begun = |run: &&&Run| run.folder.join(CONFIG).is_file();
            let unfinished = method.runs.iter().filter(|run| run.standing == Standing::Unfinished);
            runs.extend(unfinished.filter(begun));
        }
        // The epochs of different seeds have different numbers of steps: what all of them have is shown.
        let steps = runs.iter().filter_map(|run| run.steps()).min().unwrap_or(0);
        let every = runs.iter().map(|run| run.trace_every()).max().unwrap_or(1);
        let mut curves = Curves { every, ..Curves::default() };
        let bins = bins(steps, every);
        let mut evaluations = Vec::new();
        for run in runs {
            match Binnings::read(run, steps, bins).and_then(|b| Ok((b, tests(run)?))) {
                Ok((binned, tests)) => {
                    curves.add(binned);
                    evaluations.push(tests);
                }
                Err(error) => curves.problems.push(format!("{error}; the run is left out of the figures")),
            }
        }
        let measured = evaluations.iter().filter(|tests| !tests.is_empty());
        curves.rise = measured.map(|tests| largest_rise(tests)).reduce(f64::max);
        curves.test = common(&evaluations, matches!(method.horizon, Horizon::Epochs(_)));
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
    fn read(run: &Run, steps: u64, bins: usize) -> Result<Binnings, TraceError> {
        let new = || Binned::new(steps, bins);
        let mut binned = Binnings {
            loss: new(),
            step_size: new(),
            length: new(),
            grad_norm: new(),
            smoothness: Vec::new(),
        };
        let mut made = 0;
        read_trace(&run.folder.join(TRACE), |row| {
            made = row.step + 1;
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
        run.check_trace(made)?;
        Ok(binned)
    }
}

/// A thinned trace has so many rows in a bin: one batch's loss alone is noisier than the mean of those that were left out.
const ROWS_OF_A_BIN: u64 = 2;

/// The bins for traces with a row for every so many steps: no bin is without one, so that no line breaks.
fn bins(steps: u64, every: u64) -> usize {
    match every {
        0 | 1 => DEFAULT_BINS,
        every => ((steps / (every * ROWS_OF_A_BIN)) as usize).clamp(1, DEFAULT_BINS),
    }
}

/// The test losses of a run.
fn tests(run: &Run) -> Result<Vec<(u64, Option<f64>)>, TraceError> {
    let rows = read_eval(&run.folder.join(EVAL))?;
    run.check_evaluations(rows.last().map_or(0, |row| row.step))?;
    let rows = rows.into_iter();
    Ok(rows.filter(|row| row.split == Split::Test).map(|row| (row.step, row.loss)).collect())
}

/// The evaluations of all runs side by side: at the same step, or, where epochs are counted, after the same number of them. A mean of
/// fewer seeds would be another curve: it is left open.
fn common(runs: &[Vec<(u64, Option<f64>)>], by_number: bool) -> Vec<(u64, Option<Spread>)> {
    let Some(longest) = runs.iter().rev().max_by_key(|run| run.len()) else { return Vec::new() };
    let at = |(number, (step, _)): (usize, &(u64, Option<f64>))| {
        let find = |run: &Vec<(u64, Option<f64>)>| match by_number {
            true => run.get(number).and_then(|(_, loss)| *loss),
            false => run.iter().find(|(other, _)| other == step).and_then(|(_, loss)| *loss),
        };
        let values: Option<Vec<f64>> = runs.iter().map(find).collect();
        (*step, values.and_then(|values| Spread::of(&values)))
    };
    longest.iter().enumerate().map(at).collect()
}

/// The largest ratio of a test loss and the lowest before it.
fn largest_rise(tests: &[(u64, Option<f64>)]) -> f64 {
    let (mut lowest, mut rise) = (f64::INFINITY, 1.0f64);
    for (_, loss) in tests {
        let loss = loss.unwrap_or(f64::INFINITY);
        rise = rise.max(if loss.is_finite() { loss / lowest } else { f64::INFINITY });
        lowest = lowest.min(loss);
    }
    rise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bin_of_a_thinned_trace_has_rows() {
        assert_eq!([bins(5000, 1), bins(30, 1)], [DEFAULT_BINS; 2]);
        for (steps, every) in [(5000, 25), (7500, 38), (1000, 5), (65_536, 328), (401, 3), (10, 9)] {
            let mut binned = Binned::new(steps, bins(steps, every));
            (0..steps).step_by(every as usize).for_each(|step| binned.add(step, Some(1.0)));
            let fewest = binned.bins().iter().map(|bin| bin.count).min();
            assert!(fewest >= Some(1), "{steps} steps, every {every}: {fewest:?}");
        }
    }

    #[test]
    fn evaluations_are_laid_side_by_side() {
        let (a, b) =
            (vec![(0, Some(4.0)), (10, None), (20, Some(2.0))], vec![(0, Some(2.0)), (10, Some(1.0))]);
        let spread = Spread { mean: 3.0, low: 2.0, high: 4.0, count: 2 };
        assert_eq!(common(&[a.clone(), b.clone()], false), [(0, Some(spread)), (10, None), (20, None)]);
        let sparse = vec![(0, Some(4.0)), (20, Some(6.0))];
        assert_eq!(common(&[a.clone(), sparse], false)[2].1.map(|s| s.mean), Some(4.0), "at the same step");
        let shifted = vec![(0, Some(2.0)), (11, Some(1.0)), (19, Some(4.0))];
        let by_number = common(&[a.clone(), shifted], true);
        assert_eq!((by_number[2].0, by_number[2].1.unwrap().mean), (20, 3.0), "after two epochs");
        assert_eq!((largest_rise(&a), largest_rise(&b)), (f64::INFINITY, 1.0));
        assert_eq!(largest_rise(&[(0, Some(4.0)), (1, Some(2.0)), (2, Some(3.0))]), 1.5);
    }
}
