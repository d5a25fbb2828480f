use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use untuned::spec::number;

use super::{L1, MOST_STEPS, SHORT, X0, measure};

/// The learning rates of the appendix.
pub const RATES: [f64; 9] = [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8];
/// The clipping thresholds of the appendix; the last one clips nothing.
pub const THRESHOLDS: [f64; 8] = [0.01, 0.1, 1.0, 5.0, 10.0, 15.0, 20.0, f64::INFINITY];
/// What the paper's table selects for every `L1`: the rate of GD, and the pair of clipped GD.
pub const PAPER: [(f64, (f64, f64)); 4] =
    [(1e-1, (0.1, 20.0)), (1e-3, (0.1, 10.0)), (1e-5, (0.1, 10.0)), (1e-7, (0.1, 10.0))];

/// The grid search of Appendix D.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// The steps of every run.
    pub steps: u64,
    /// All runs: `L1` by `L1`, rate by rate, threshold by threshold.
    pub cells: Vec<Cell>,
}

/// One run of the grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// `L1` of the quartic.
    pub l1: f64,
    /// The learning rate.
    pub lr: f64,
    /// The threshold; `None` clips nothing.
    pub threshold: Option<f64>,
    /// The gap after the last step; `None` where the run diverged.
    pub last_gap: Option<f64>,
    /// The smallest gap.
    pub best_gap: f64,
    /// The first step with a gap of 1e-2.
    pub reached: Option<u64>,
}

/// What the grid selects for one `L1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// The selected cell: the smallest last gap; among equals the one that reached a gap of 1e-2 first, then the larger
    /// rate, then the smaller threshold.
    pub cell: Cell,
    /// All cells with exactly the same last gap, the selected one among them.
    pub ties: Vec<Cell>,
    /// How many cells have a smaller last gap than the paper's choice.
    pub better_than_paper: usize,
    /// The paper's choice.
    pub paper: Cell,
}

impl Cell {
    fn run(l1: f64, x0: f64, steps: u64, lr: f64, threshold: f64) -> Cell {
        let seen = measure(&rule(lr, Some(threshold)), l1, x0, steps, steps, false);
        Cell {
            l1,
            lr,
            threshold: threshold.is_finite().then_some(threshold),
            last_gap: seen.last_gap.is_finite().then_some(seen.last_gap),
            best_gap: seen.best_gap,
            reached: seen.reached,
        }
    }

    /// The spec of the rule that ran.
    pub fn rule(&self) -> String {
        rule(self.lr, self.threshold)
    }

    /// The pair as the paper writes it.
    pub fn pair(&self) -> String {
        format!("({}, {})", number(self.lr), self.threshold.map_or("∞".to_string(), number))
    }
}

fn rule(lr: f64, threshold: Option<f64>) -> String {
    match threshold {
        Some(c) if c.is_finite() => format!("clipped-gd:lr={},threshold={}", number(lr), number(c)),
        _ => format!("gd:lr={}", number(lr)),
    }
}

impl Grid {
    /// All runs for all `L1`.
    pub(super) fn search() -> Grid {
        let cells = L1.par_iter().flat_map(|&l1| Grid::of(l1, X0, SHORT).cells).collect();
        Grid { steps: SHORT, cells }
    }

    /// All runs for one `L1`.
    pub(super) fn of(l1: f64, x0: f64, steps: u64) -> Grid {
        let pairs = RATES.into_iter().flat_map(|lr| THRESHOLDS.into_iter().map(move |c| (lr, c)));
        Grid { steps, cells: pairs.map(|(lr, c)| Cell::run(l1, x0, steps, lr, c)).collect() }
    }

    /// The runs for one `L1`.
    pub fn for_l1(&self, l1: f64) -> Grid {
        Grid { steps: self.steps, cells: self.cells.iter().filter(|c| c.l1 == l1).cloned().collect() }
    }

    /// The choice among the runs of one `L1`: of plain GD, or of all pairs.
    ///
    /// # Panics
    /// When the grid has no runs, or runs of several `L1`.
    pub fn select(&self, plain: bool) -> Selection {
        let among: Vec<&Cell> = self.cells.iter().filter(|c| !plain || c.threshold.is_none()).collect();
        let l1 = among[0].l1;
        assert!(among.iter().all(|c| c.l1 == l1), "a selection is made for one L1");
        let order = |c: &Cell| {
            let gap = c.last_gap.unwrap_or(f64::INFINITY);
            (gap, c.reached.unwrap_or(MOST_STEPS + 1) as f64, -c.lr, c.threshold.unwrap_or(f64::INFINITY))
        };
        let least =
            |a: &&&Cell, b: &&&Cell| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal);
        let cell = (*among.iter().min_by(least).unwrap_or(&among[0])).clone();
        let ties = among.iter().filter(|c| c.last_gap == cell.last_gap).map(|c| (*c).clone()).collect();
        let at = L1.iter().position(|&v| v == l1).unwrap_or(0);
        let (lr, pair) = PAPER[at];
        let wanted = if plain { (lr, None) } else { (pair.0, Some(pair.1)) };
        let paper = among.iter().find(|c| (c.lr, c.threshold) == wanted).unwrap_or(&among[0]);
        let gap = |c: &Cell| c.last_gap.unwrap_or(f64::INFINITY);
        Selection {
            ties,
            better_than_paper: among.iter().filter(|c| gap(c) < gap(paper)).count(),
            paper: (*paper).clone(),
            cell,
        }
    }
}

/// The fewest steps to a gap of 1e-2 that any rate (and, unless `plain`, any threshold) of the grid needs, and its rule.
pub(super) fn fewest_steps(l1: f64, x0: f64, plain: bool) -> (Option<u64>, String) {
    let mut most = MOST_STEPS;
    let mut found = (None, rule(RATES[0], None));
    for lr in RATES {
        for c in THRESHOLDS {
            if plain && c.is_finite() {
                continue;
            }
            let rule = rule(lr, Some(c));
            if let Some(steps) = measure(&rule, l1, x0, most, most, true).reached
                && found.0.is_none_or(|fewest| steps < fewest)
            {
                (most, found) = (steps, (Some(steps), rule));
            }
        }
    }
    found
}
