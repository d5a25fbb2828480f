//! The experiment's figures, from its results alone.

use super::{Abscissa, GAP, L1, PanelData, StepsRow, Synthetic};
use crate::figure::{Axis, Figure, Panel, Series, Style, method_style};

/// File names (without ending) and captions.
const CAPTIONS: [(&str, &str); 3] = [
    (
        "figure-1",
        "Figure 1 of the paper, made again: the gap f(x_t) − f* of six methods on f(x) = L₀L₁²/72·x⁴ + L₀/4·x² + f* with L₀ = 1, \
         x₀ = 5, f* = 1, lower bound 0. GD and clipped GD with the rates and thresholds that the grid search selects (clipped GD: \
         the paper's pair, which ties exactly with the grid's best). Inexact Polyak: the best gap of one run per horizon T. Gaps \
         below 2·10⁻¹⁶ are rounding.",
    ),
    (
        "figure-2",
        "Beyond the paper, the same function: clipped GD with Theorem 2's step sizes, Polyak with a lower bound, AdaSPS with c_p = 1, DoG, one \
         run of Inexact Polyak with T = 10,000, and the rules without a horizon.",
    ),
    (
        "figure-3",
        "Steps to a gap of 1e-2 against L₁. A horizontal line would be independence of L₁; GD, clipped GD with Theorem 2's step sizes, \
         DecSPS, AdaSPS and DoG grow about like L₁ or faster, the Polyak family like its logarithm. A line that leaves the plot needs more than a million steps.",
    ),
];

/// The methods of the summary, with their names in its legend.
const SUMMARY: [(&str, &str); 8] = [
    ("gd", "GD, tuned"),
    ("clipped-gd-theorem-2", "Clipped GD, Theorem 2"),
    ("decsps", "DecSPS"),
    ("adasps", "AdaSPS"),
    ("dog", "DoG"),
    ("inexact-polyak", "Inexact Polyak, T = 10⁴"),
    ("level-polyak", "Level Polyak"),
    ("polyak", "Polyak (knows f*)"),
];

/// All figures with their file names (without ending).
pub fn figures(results: &Synthetic) -> Vec<(&'static str, Figure)> {
    let (paper, beyond): (Vec<&PanelData>, Vec<&PanelData>) = results.panels.iter().partition(|p| p.in_paper);
    let grid =
        |panels: &[&PanelData]| Figure::new(panels.iter().enumerate().map(|(i, p)| gaps(i, p))).columns(3);
    vec![
        (CAPTIONS[0].0, grid(&paper)),
        (CAPTIONS[1].0, grid(&beyond)),
        (CAPTIONS[2].0, summary(&results.steps)),
    ]
}

/// The caption of the figure with this file name.
pub fn caption(file: &str) -> &'static str {
    CAPTIONS.iter().find(|(name, _)| *name == file).map_or("", |(_, caption)| caption)
}

fn gaps(index: usize, data: &PanelData) -> Panel {
    let letter = char::from(b'a' + index as u8);
    let (x, y) = match data.abscissa {
        Abscissa::Step => ("step t", "f(x_{t}) − f*"),
        Abscissa::Horizon => ("horizon T", "best f(x_{t}) − f*"),
    };
    let most = data.curves.iter().flat_map(|c| &c.points).map(|p| p.0).max().unwrap_or(1) as f64;
    let mut panel = Panel::new(Axis::log(x).range(1.0, most), Axis::log(y).range(1e-16, 1e8))
        .title(format!("({letter}) {}", data.title.replace("c_p", "c_{p}")));
    for curve in &data.curves {
        let at = L1.iter().position(|&l1| l1 == curve.l1).unwrap_or(0);
        let mut points: Vec<(f64, f64)> = curve.points.iter().map(|&(t, gap)| (t as f64, gap)).collect();
        if let Some(step) = curve.diverged {
            points.push((step as f64, f64::INFINITY));
        }
        panel = panel.series(Series::new(format!("L_{{1}} = {}", curve.l1), Style::nth(at), points));
    }
    panel
}

fn summary(steps: &[StepsRow]) -> Figure {
    let label = format!("steps to a gap of {GAP}");
    let mut panel = Panel::new(Axis::log("L_{1}"), Axis::log(label).range(1.0, 1e6));
    for (key, name) in SUMMARY {
        if let Some(row) = steps.iter().find(|row| row.key == key) {
            let points =
                L1.iter().zip(&row.steps).map(|(&l1, s)| (l1, s.map_or(f64::INFINITY, |s| s as f64)));
            // A method with parameters of its own looks as its rule does.
            let rule = row.rules.first().map_or(key, |spec| spec.split(':').next().unwrap_or(spec));
            panel = panel.series(Series::new(name, method_style(rule), points.collect::<Vec<_>>()).key(key));
        }
    }
    Figure::new([panel]).width(560.0)
}
