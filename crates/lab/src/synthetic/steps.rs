use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::panels::{theorem_1, theorem_2};
use super::{L1, LONG, OTHER_X0, X0, grid, measure};

/// "Reached" means a gap of at most this.
pub const GAP: f64 = 1e-2;
/// No run is longer than this.
pub const MOST_STEPS: u64 = 1_000_000;

/// One method: the steps to a gap of [`GAP`] for every `L1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepsRow {
    /// A short name for files and code.
    pub key: String,
    /// The method, in words.
    pub method: String,
    /// The rule for every `L1`.
    pub rules: Vec<String>,
    /// The first step with a gap of at most [`GAP`]; `None`: more than [`MOST_STEPS`].
    pub steps: Vec<Option<u64>>,
}

pub(super) struct Method {
    key: &'static str,
    name: &'static str,
    find: fn(f64) -> (Option<u64>, String),
}

const fn method(key: &'static str, name: &'static str, find: fn(f64) -> (Option<u64>, String)) -> Method {
    Method { key, name, find }
}

pub(super) const METHODS: &[Method] = &[
    method("gd", "GD, best rate of the grid", |l1| grid::fewest_steps(l1, X0, true)),
    method("gd-theorem-1", "GD, 1/L (Theorem 1)", |l1| reached(&theorem_1(l1), l1, X0, MOST_STEPS)),
    method("clipped-gd", "Clipped GD, best pair of the grid", |l1| grid::fewest_steps(l1, X0, false)),
    method("clipped-gd-other-start", "Clipped GD, best pair, from x₀ = 4.7", |l1| {
        grid::fewest_steps(l1, OTHER_X0, false)
    }),
    method("clipped-gd-paper", "Clipped GD (0.1, 10), the paper's pair", |l1| {
        reached(PAPER_PAIR, l1, X0, MOST_STEPS)
    }),
    method("clipped-gd-paper-other-start", "Clipped GD (0.1, 10), from x₀ = 4.7", |l1| {
        reached(PAPER_PAIR, l1, OTHER_X0, MOST_STEPS)
    }),
    method("clipped-gd-theorem-2", "Clipped GD, Theorem 2", |l1| reached(&theorem_2(l1), l1, X0, MOST_STEPS)),
    method("polyak", "Polyak", |l1| reached("polyak", l1, X0, MOST_STEPS)),
    method("decsps", "DecSPS", |l1| reached("decsps", l1, X0, MOST_STEPS)),
    method("adasps", "AdaSPS", |l1| reached("adasps", l1, X0, MOST_STEPS)),
    method("adasps-c-p-1", "AdaSPS, c_p = 1", |l1| reached("adasps:c_p=1", l1, X0, MOST_STEPS)),
    method("dog", "DoG", |l1| reached("dog", l1, X0, MOST_STEPS)),
    method("inexact-polyak", "Inexact Polyak, T = 10,000", |l1| reached("inexact-polyak", l1, X0, LONG)),
    method("inexact-polyak-horizon", "Inexact Polyak, smallest T that gets there", smallest_horizon),
    method("anytime-polyak", "Anytime Polyak", |l1| reached("anytime-polyak", l1, X0, MOST_STEPS)),
    method("adaptive-polyak", "Adaptive Polyak", |l1| reached("adaptive-polyak", l1, X0, MOST_STEPS)),
    method("adaptive-polyak-epochs", "Adaptive Polyak, epochs, T = 10,000", |l1| {
        reached("adaptive-polyak:variant=epochs", l1, X0, LONG)
    }),
    method("level-polyak", "Level Polyak", |l1| reached("level-polyak", l1, X0, MOST_STEPS)),
    method("polyak-bound", "Polyak with a lower bound", |l1| reached("polyak-bound", l1, X0, MOST_STEPS)),
];

/// The pair that the paper selects for L1 = 10, 100 and 1000.
pub(super) const PAPER_PAIR: &str = "clipped-gd:lr=0.1,threshold=10";

/// The first step of a run of `horizon` steps with a gap of at most [`GAP`], and the rule.
fn reached(rule: &str, l1: f64, x0: f64, horizon: u64) -> (Option<u64>, String) {
    (measure(rule, l1, x0, horizon, horizon, true).reached, rule.to_string())
}

fn smallest_horizon(l1: f64) -> (Option<u64>, String) {
    let reaches = |&t: &u64| measure("inexact-polyak", l1, X0, t, t, true).reached.is_some();
    ((1..=LONG).find(reaches), "inexact-polyak".to_string())
}

pub(super) fn table(done: &(impl Fn() + Sync)) -> Vec<StepsRow> {
    let row = |m: &Method| {
        let found: Vec<(Option<u64>, String)> = L1.par_iter().map(|&l1| (m.find)(l1)).collect();
        done();
        let (steps, rules) = found.into_iter().unzip();
        StepsRow { key: m.key.to_string(), method: m.name.to_string(), rules, steps }
    };
    METHODS.par_iter().map(row).collect()
}

/// `p` of the power law `steps ~ L1^p` between the first and the last `L1`; a lower bound of it where the last is
/// beyond [`MOST_STEPS`].
pub fn growth_exponent(steps: &[Option<u64>]) -> f64 {
    let at = |s: &Option<u64>| s.unwrap_or(MOST_STEPS).max(1) as f64;
    let decades = (L1[L1.len() - 1] / L1[0]).log10();
    steps.last().map_or(f64::NAN, |last| (at(last) / at(&steps[0])).log10() / decades)
}

/// How many steps are added per tenfold `L1`, on average; `None` where the last count is beyond [`MOST_STEPS`].
pub fn steps_per_decade(steps: &[Option<u64>]) -> Option<f64> {
    let decades = (L1[L1.len() - 1] / L1[0]).log10();
    let (first, last) = (steps.first().copied()??, steps.last().copied()??);
    Some((last as f64 - first as f64) / decades)
}
