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
    method: &'static str,
    find: fn(f64) -> (Option<u64>, String),
}

pub(super) const METHODS: &[Method] = &[
    Method { key: "gd", method: "GD, best rate of the grid", find: |l1| grid::fewest_steps(l1, X0, true) },
    Method {
        key: "gd-theorem-1",
        method: "GD, 1/L (Theorem 1)",
        find: |l1| fixed(theorem_1(l1), l1, MOST_STEPS),
    },
    Method {
        key: "clipped-gd",
        method: "Clipped GD, best pair of the grid",
        find: |l1| grid::fewest_steps(l1, X0, false),
    },
    Method {
        key: "clipped-gd-other-start",
        method: "Clipped GD, best pair, from x₀ = 4.7",
        find: |l1| grid::fewest_steps(l1, OTHER_X0, false),
    },
    Method {
        key: "clipped-gd-paper",
        method: "Clipped GD (0.1, 10), the paper's pair",
        find: |l1| fixed(PAPER_PAIR.into(), l1, MOST_STEPS),
    },
    Method {
        key: "clipped-gd-paper-other-start",
        method: "Clipped GD (0.1, 10), from x₀ = 4.7",
        find: |l1| {
            (measure(PAPER_PAIR, l1, OTHER_X0, MOST_STEPS, MOST_STEPS, true).reached, PAPER_PAIR.to_string())
        },
    },
    Method {
        key: "clipped-gd-theorem-2",
        method: "Clipped GD, Theorem 2",
        find: |l1| fixed(theorem_2(l1), l1, MOST_STEPS),
    },
    Method { key: "polyak", method: "Polyak", find: |l1| fixed("polyak".into(), l1, MOST_STEPS) },
    Method { key: "decsps", method: "DecSPS", find: |l1| fixed("decsps".into(), l1, MOST_STEPS) },
    Method { key: "adasps", method: "AdaSPS", find: |l1| fixed("adasps".into(), l1, MOST_STEPS) },
    Method {
        key: "adasps-c-p-1",
        method: "AdaSPS, c_p = 1",
        find: |l1| fixed("adasps:c_p=1".into(), l1, MOST_STEPS),
    },
    Method { key: "dog", method: "DoG", find: |l1| fixed("dog".into(), l1, MOST_STEPS) },
    Method {
        key: "inexact-polyak",
        method: "Inexact Polyak, T = 10,000",
        find: |l1| fixed("inexact-polyak".into(), l1, LONG),
    },
    Method {
        key: "inexact-polyak-horizon",
        method: "Inexact Polyak, smallest T that gets there",
        find: smallest_horizon,
    },
    Method {
        key: "anytime-polyak",
        method: "Anytime Polyak",
        find: |l1| fixed("anytime-polyak".into(), l1, MOST_STEPS),
    },
    Method {
        key: "adaptive-polyak",
        method: "Adaptive Polyak",
        find: |l1| fixed("adaptive-polyak".into(), l1, MOST_STEPS),
    },
    Method {
        key: "adaptive-polyak-epochs",
        method: "Adaptive Polyak, epochs, T = 10,000",
        find: |l1| fixed("adaptive-polyak:variant=epochs".into(), l1, LONG),
    },
    Method {
        key: "level-polyak",
        method: "Level Polyak",
        find: |l1| fixed("level-polyak".into(), l1, MOST_STEPS),
    },
    Method {
        key: "polyak-bound",
        method: "Polyak with a lower bound",
        find: |l1| fixed("polyak-bound".into(), l1, MOST_STEPS),
    },
];

/// The pair that the paper selects for L1 = 10, 100 and 1000.
pub(super) const PAPER_PAIR: &str = "clipped-gd:lr=0.1,threshold=10";

fn fixed(rule: String, l1: f64, horizon: u64) -> (Option<u64>, String) {
    (measure(&rule, l1, X0, horizon, horizon, true).reached, rule)
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
        StepsRow { key: m.key.to_string(), method: m.method.to_string(), rules, steps }
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
