use std::ops::ControlFlow;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use untuned::minimize::Iterate;
use untuned::{MethodSpec, Minimizer, Outcome, RunInfo};
use untuned_theory::problems::Quartic;

use super::grid::Grid;
use super::{F_STAR, L1, LONG, SHORT, X0, measure};

/// One panel of a figure: a method, one curve per `L1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PanelData {
    /// A short name for files and links.
    pub key: String,
    /// The panel's title.
    pub title: String,
    /// Whether it is one of the six panels of the paper's Figure 1.
    pub in_paper: bool,
    /// What stands on the horizontal axis.
    pub abscissa: Abscissa,
    /// One per `L1`.
    pub curves: Vec<Curve>,
}

/// What the horizontal axis of a panel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Abscissa {
    /// The step `t` of one run; the gap is that of `x_t`.
    Step,
    /// The horizon `T`: every point is a run of its own, and the gap that of its best iterate.
    Horizon,
}

/// One line of a panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// `L1` of the quartic.
    pub l1: f64,
    /// The rule that ran.
    pub rule: String,
    /// `(step or horizon, gap)`; beyond 200 steps about a hundred points per decade are kept.
    pub points: Vec<(u64, f64)>,
    /// Where the run diverged, if it did.
    pub diverged: Option<u64>,
}

/// How a panel is computed.
pub(super) struct Panel {
    key: &'static str,
    title: &'static str,
    in_paper: bool,
    steps: u64,
    kind: Kind,
}

enum Kind {
    /// The same rule for every `L1`.
    Fixed(&'static str),
    /// A rule made from `L1`.
    Made(fn(f64) -> String),
    /// Inexact Polyak, one run per horizon.
    Horizons(&'static str),
}

const fn panel(key: &'static str, title: &'static str, in_paper: bool, steps: u64, kind: Kind) -> Panel {
    Panel { key, title, in_paper, steps, kind }
}

pub(super) const PANELS: &[Panel] = &[
    panel("gd", "Gradient descent, tuned", true, SHORT, Kind::Made(tuned_gd)),
    panel("clipped-gd", "Clipped GD, tuned", true, SHORT, Kind::Made(tuned_clipped)),
    panel("polyak", "Polyak stepsize", true, SHORT, Kind::Fixed("polyak")),
    panel("decsps", "DecSPS", true, LONG, Kind::Fixed("decsps")),
    panel("adasps", "AdaSPS", true, LONG, Kind::Fixed("adasps")),
    panel("inexact-polyak", "Inexact Polyak Stepsize", true, LONG, Kind::Horizons("inexact-polyak")),
    panel("clipped-gd-theorem-2", "Clipped GD, Theorem 2", false, LONG, Kind::Made(theorem_2)),
    panel("polyak-bound", "Polyak with a lower bound", false, SHORT, Kind::Fixed("polyak-bound")),
    panel("adasps-c-p-1", "AdaSPS, c_p = 1", false, LONG, Kind::Fixed("adasps:c_p=1")),
    panel("dog", "DoG", false, LONG, Kind::Fixed("dog")),
    panel("inexact-polyak-run", "Inexact Polyak, one run", false, LONG, Kind::Fixed("inexact-polyak")),
    panel("anytime-polyak", "Anytime Polyak", false, LONG, Kind::Fixed("anytime-polyak")),
    panel("adaptive-polyak", "Adaptive Polyak", false, SHORT, Kind::Fixed("adaptive-polyak")),
    panel(
        "adaptive-polyak-epochs",
        "Adaptive Polyak, epochs",
        false,
        SHORT,
        Kind::Fixed("adaptive-polyak:variant=epochs"),
    ),
    panel("level-polyak", "Level Polyak", false, SHORT, Kind::Fixed("level-polyak")),
];

fn tuned_gd(l1: f64) -> String {
    Grid::of(l1, X0, SHORT).select(true).cell.rule()
}

/// The grid's pair; among exact ties the paper's, so that the panel can be laid beside the paper's.
fn tuned_clipped(l1: f64) -> String {
    let selection = Grid::of(l1, X0, SHORT).select(false);
    if selection.ties.contains(&selection.paper) { selection.paper.rule() } else { selection.cell.rule() }
}

/// Theorem 1's rate, `1/L` on the ball around the minimiser that holds the start.
pub(super) fn theorem_1(l1: f64) -> String {
    format!("gd:lr={}", 1.0 / (l1 * l1 * X0 * X0 / 6.0 + 0.5))
}

/// Theorem 2's rate `1/L0` and threshold `L0/L1`.
pub(super) fn theorem_2(l1: f64) -> String {
    format!("clipped-gd:lr=1,threshold={}", 1.0 / l1)
}

pub(super) fn all(done: &(impl Fn() + Sync)) -> Vec<PanelData> {
    let compute = |panel: &Panel| {
        let data = panel.compute();
        done();
        data
    };
    PANELS.par_iter().map(compute).collect()
}

impl Panel {
    fn compute(&self) -> PanelData {
        let abscissa =
            if matches!(self.kind, Kind::Horizons(_)) { Abscissa::Horizon } else { Abscissa::Step };
        let curve = |&l1: &f64| match self.kind {
            Kind::Fixed(rule) => along_a_run(rule, l1, self.steps),
            Kind::Made(make) => along_a_run(&make(l1), l1, self.steps),
            Kind::Horizons(rule) => over_horizons(rule, l1, self.steps),
        };
        PanelData {
            key: self.key.to_string(),
            title: self.title.to_string(),
            in_paper: self.in_paper,
            abscissa,
            curves: L1.iter().map(curve).collect(),
        }
    }
}

fn along_a_run(rule: &str, l1: f64, steps: u64) -> Curve {
    let problem = Quartic::new(1.0, l1, X0, F_STAR);
    let spec: MethodSpec = rule.parse().unwrap_or_else(|e| panic!("{rule}: {e}"));
    let mut built = spec.build_rule(&RunInfo::of(&problem, steps)).unwrap_or_else(|e| panic!("{spec}: {e}"));
    let mut points = Vec::new();
    let mut watch = |i: &Iterate<'_>| {
        if i.loss.is_finite() && (kept(i.step) || i.step == steps) {
            points.push((i.step, i.loss - F_STAR));
        }
        ControlFlow::Continue(())
    };
    let run = Minimizer::new(&problem).trace(false).average(None).observe(&mut watch);
    let run = run.run(&mut built, &[X0], steps).unwrap_or_else(|e| panic!("{spec}: {e}"));
    let diverged = match run.outcome {
        Outcome::Diverged { step } => Some(step),
        _ => None,
    };
    Curve { l1, rule: spec.to_string(), points, diverged }
}

fn over_horizons(rule: &str, l1: f64, longest: u64) -> Curve {
    let mut points: Vec<(u64, f64)> = Vec::new();
    // Sixteen horizons per decade.
    for index in 0.. {
        let horizon = 10f64.powf(f64::from(index) / 16.0).round() as u64;
        if horizon > longest {
            break;
        }
        if points.last().is_none_or(|&(last, _)| last < horizon) {
            points.push((horizon, measure(rule, l1, X0, horizon, horizon, false).best_gap));
        }
    }
    Curve { l1, rule: rule.to_string(), points, diverged: None }
}

/// Whether step `t` is among about a hundred per decade.
fn kept(t: u64) -> bool {
    let slot = |t: u64| ((t as f64).log10() * 100.0).floor();
    t <= 200 || slot(t) != slot(t - 1)
}
