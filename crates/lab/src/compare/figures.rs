//! The figures of a comparison, from its runs' folders alone.

use std::collections::BTreeSet;

use untuned::spec::number;
use untuned_theory::probe::Line;

use super::curves::{AllCurves, Curves};
use super::{Comparison, Method, Spread, parameter};
use crate::figure::{
    Axis, Cell, Content, Figure, HeatMap, Marks, Panel, Series, Style, method_name, method_style,
};
use crate::runs::{Horizon, Run};
use crate::traces::{Band, BandBin};
use crate::train::Model;

/// A figure with its place.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// The name of its files, without ending.
    pub file: String,
    /// What is seen.
    pub caption: String,
    /// The figure.
    pub figure: Figure,
}

/// All figures of a comparison.
pub fn draw(comparison: &Comparison, curves: &AllCurves) -> Vec<Drawn> {
    let Some(horizon) = comparison.main_horizon() else { return Vec::new() };
    let planned = with_curves(comparison, horizon, curves);
    let methods = begun(planned.clone());
    let mut drawn = vec![losses(comparison, horizon, &methods)];
    drawn.extend(losses_with_all(comparison, horizon, &methods));
    drawn.extend(hyperparameters(comparison, horizon, &planned));
    drawn.extend(horizons(comparison, curves));
    drawn.push(steps(comparison, horizon, &methods));
    drawn.extend(smoothness(comparison, &methods));
    drawn.extend(cost(comparison, horizon, &methods));
    drawn
}

type Read<'a> = Vec<(Method<'a>, &'a Curves)>;

fn with_curves<'a>(comparison: &'a Comparison, horizon: Horizon, curves: &'a AllCurves) -> Read<'a> {
    let methods = comparison.methods(horizon).into_iter();
    methods.filter_map(|method| curves.of(&method).map(|curves| (method, curves))).collect()
}

/// The methods of which there is anything to see.
fn begun(methods: Read<'_>) -> Read<'_> {
    methods.into_iter().filter(|(_, curves)| curves.train.seeds > 0).collect()
}

/// The mean of the seeds, in an area that holds every value of every seed. Where a seed has none the line breaks.
fn of_band(key: &str, band: &Band) -> Series {
    let whole = |bin: &BandBin| bin.means.filter(|_| bin.seeds == band.seeds);
    let point = |bin: &BandBin| (bin.from as f64, whole(bin).map_or(f64::NAN, |means| means.mean));
    let range = |bin: &BandBin| match (whole(bin), bin.lowest, bin.highest) {
        (Some(_), Some(lowest), Some(highest)) => (lowest, highest),
        _ => (f64::NAN, f64::NAN),
    };
    let points: Vec<(f64, f64)> = band.bins.iter().map(point).collect();
    let range: Vec<(f64, f64)> = band.bins.iter().map(range).collect();
    Series::method(key, points).band(range)
}

fn of_tests(key: &str, tests: &[(u64, Option<Spread>)]) -> Series {
    let point = |(step, s): &(u64, Option<Spread>)| (*step as f64, s.map_or(f64::NAN, |s| s.mean));
    let range = |(_, s): &(u64, Option<Spread>)| s.map_or((f64::NAN, f64::NAN), |s| (s.low, s.high));
    let points: Vec<(f64, f64)> = tests.iter().map(point).collect();
    let series = Series::method(key, points);
    let several = tests.iter().any(|(_, s)| s.is_some_and(|s| s.count > 1));
    if several { series.band(tests.iter().map(range).collect::<Vec<_>>()) } else { series }
}

/// What the curves are means of, and which of them are means of fewer seeds.
fn over_seeds(methods: &Read<'_>) -> String {
    let most = methods.iter().map(|(_, curves)| curves.train.seeds).max().unwrap_or(0);
    let mut words = match most {
        1 => "One seed; the pale area holds every value.".to_string(),
        most => format!("Mean of {most} seeds; the pale area holds every value of every seed."),
    };
    for (method, curves) in methods.iter().filter(|(_, curves)| curves.train.seeds < most) {
        words += &format!(" {}: of {} only.", method.name(), curves.train.seeds);
    }
    words + &thinned(methods)
}

/// “ One in 25 steps was kept of the traces.”
fn thinned(methods: &Read<'_>) -> String {
    match methods.iter().map(|(_, curves)| curves.every).max() {
        Some(every @ 2..) => format!(" One in {every} steps was kept of the traces."),
        _ => String::new(),
    }
}

/// “ Not shown, because they diverged: DoG.”
fn without_diverged(methods: &Read<'_>) -> String {
    let names: Vec<String> = methods.iter().filter(|(m, _)| m.diverged()).map(|(m, _)| m.name()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" Not shown, because they diverged: {}.", names.join(", "))
    }
}

/// “SGD and Clipped SGD: what the grid selects for each seed.”
fn tuned(methods: &Read<'_>) -> String {
    let names: Vec<String> = methods.iter().filter(|(m, _)| m.is_tuned()).map(|(m, _)| m.name()).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            " {}: with the parameters that the validation loss selects for each seed.",
            names.join(" and ")
        ),
    }
}

fn two_panels<'a>(methods: impl Iterator<Item = &'a (Method<'a>, &'a Curves)>, log: bool) -> [Panel; 2] {
    let y = |label: &str| if log { Axis::log(label) } else { Axis::linear(label) };
    let mut train = Panel::new(Axis::linear("step"), y("training loss"));
    let mut test = Panel::new(Axis::linear("step"), y("test loss"));
    for (method, curves) in methods {
        train = train.series(of_band(&method.key, &curves.train));
        test = test.series(of_tests(&method.key, &curves.test));
    }
    [train, test]
}

/// Whether the losses span more than a decade.
fn wide(methods: &[&(Method<'_>, &Curves)]) -> bool {
    let tests = methods.iter().flat_map(|(_, curves)| &curves.test).filter_map(|(_, s)| s.map(|s| s.mean));
    let (low, high) = tests.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    low > 0.0 && high > 10.0 * low
}

/// Whether the others can be seen beside it: it did not diverge, and its test loss was never above that of the first weights.
fn is_calm(method: &Method<'_>, curves: &Curves) -> bool {
    let first =
        curves.test.first().and_then(|(_, spread)| *spread).map_or(f64::INFINITY, |spread| spread.high);
    !method.diverged()
        && curves.test.iter().all(|(_, spread)| spread.is_none_or(|spread| spread.high <= first))
}

/// The paper's Figure 3: without the methods that diverge.
fn losses(comparison: &Comparison, horizon: Horizon, methods: &Read<'_>) -> Drawn {
    let (calm, wild): (Vec<_>, Vec<_>) = methods.iter().partition(|(method, curves)| is_calm(method, curves));
    let left_out: Vec<String> = wild.iter().map(|(method, _)| method.name()).collect();
    let mut panels = two_panels(calm.iter().copied(), wide(&calm));
    if let Some(best) = comparison.best_loss {
        panels[1] = panels[1].clone().note(format!("best possible loss {best:.3}"));
    }
    let mut caption = format!(
        "{}: training and test loss, T = {horizon} ({}). {}{}",
        comparison.title(),
        comparison.data,
        over_seeds(methods),
        tuned(methods)
    );
    if !left_out.is_empty() {
        caption.push_str(&format!(
            " Left out here, because they diverged or their test loss was above that of the first weights: {}.",
            left_out.join(", ")
        ));
    }
    Drawn { file: format!("{}-losses", comparison.slug), caption, figure: Figure::new(panels).columns(2) }
}

/// The appendix's version, with those that diverge, on a log axis.
fn losses_with_all(comparison: &Comparison, horizon: Horizon, methods: &Read<'_>) -> Option<Drawn> {
    methods.iter().any(|(method, curves)| !is_calm(method, curves)).then(|| {
        let caption = format!(
            "{}: the same with all methods, T = {horizon}. A line ends where a seed's loss was not finite.",
            comparison.title()
        );
        let figure = Figure::new(two_panels(methods.iter(), true)).columns(2);
        Drawn { file: format!("{}-losses-all", comparison.slug), caption, figure }
    })
}

/// What the paper's grid selected: rate and threshold.
fn papers_choice(model: Model) -> &'static [(f64, f64)] {
    const NONE: f64 = f64::INFINITY;
    match model {
        Model::Lstm => &[(10.0, NONE), (10.0, 0.5), (50.0, 1.0), (50.0, 0.5)],
        Model::Gpt => &[(0.001, NONE), (0.001, 10.0)],
        Model::T5 => &[(0.1, NONE), (0.05, NONE), (1.0, 2.0)],
    }
}

/// The paper's Figure 2: the final test loss for every rate and threshold, and against the rate with the other methods as levels.
fn hyperparameters(comparison: &Comparison, horizon: Horizon, methods: &Read<'_>) -> Vec<Drawn> {
    let find = |key: &str| methods.iter().map(|(method, _)| method).find(|method| method.key == key);
    let (gd, clipped) = (find("gd"), find("clipped-gd"));
    let Some(grid) = clipped.or(gd).filter(|method| method.is_tuned()) else { return Vec::new() };
    let all: Vec<&Run> = grid.grid().collect();
    let place =
        |run: &Run| Some((parameter(run, "lr")?, parameter(run, "threshold").unwrap_or(f64::INFINITY)));
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    let places: Vec<(f64, f64)> = all.iter().filter_map(|run| place(run)).collect();
    let mut rates = sorted(places.iter().map(|p| p.0).collect());
    let thresholds = sorted(places.iter().map(|p| p.1).collect());
    rates.reverse();
    let chosen: Vec<(f64, f64)> =
        [gd, clipped].iter().flatten().flat_map(|m| m.all_chosen()).filter_map(|c| place(c.run)).collect();
    let of_paper = if comparison.scale == "paper" { papers_choice(comparison.model) } else { &[] };
    let cell = |rate: f64, threshold: f64| {
        let here: Vec<&&Run> = all.iter().filter(|run| place(run) == Some((rate, threshold))).collect();
        // Of the seeds that have ended: a pair need not be in the grid of every seed.
        let ended = here.iter().filter_map(|run| run.summary());
        let losses: Vec<f64> =
            ended.map(|s| s.final_test_loss.filter(|_| !s.diverged).unwrap_or(f64::NAN)).collect();
        let cell = match Spread::of(&losses) {
            Some(_) if losses.iter().any(|loss| loss.is_nan()) => Cell::diverged(),
            Some(spread) => Cell::value(spread.mean),
            None => Cell::not_run(),
        };
        let is = |places: &[(f64, f64)]| places.contains(&(rate, threshold));
        Cell { selected: is(&chosen), paper: is(of_paper), ..cell }
    };
    let cells: Vec<Cell> = rates
        .iter()
        .flat_map(|r| thresholds.iter().map(move |c| (*r, *c)))
        .map(|(r, c)| cell(r, c))
        .collect();
    let shown = |values: &[f64]| {
        values.iter().map(|v| if v.is_finite() { number(*v) } else { "∞".to_string() }).collect::<Vec<_>>()
    };
    // From the lowest loss to that of the first weights: what is above it learned nothing.
    let first = methods.iter().filter_map(|(_, c)| c.test.first()?.1).map(|s| s.mean).reduce(f64::max);
    let lowest = cells.iter().filter_map(|c| if let Content::Value(v) = c.content { Some(v) } else { None });
    let lowest = lowest.reduce(f64::min);
    let far = lowest.zip(first).is_some_and(|(lowest, first)| first > 3.0 * lowest);
    let mut value = if far { Axis::log("final test loss") } else { Axis::linear("final test loss") };
    if let (Some(lowest), Some(first)) = (lowest, first) {
        value = value.range(lowest, first.max(lowest * (1.0 + 1e-6)));
    }
    let map = HeatMap { rows: shown(&rates), columns: shown(&thresholds), cells, value };
    let heat = Panel::heat("clipping threshold", "learning rate", map).title("Final test loss");
    let seeds = match grid.seeds().len() {
        1 => "One seed.".to_string(),
        count => {
            let in_all = |pair: &(f64, f64)| {
                let here = all.iter().filter(|run| place(run) == Some(*pair) && run.summary().is_some());
                let ended: BTreeSet<u64> = here.map(|run| run.config.seed).collect();
                ended.is_empty() || ended.len() == count
            };
            let fewer = if places.iter().all(in_all) { "" } else { ", or of those that have ended" };
            format!("Mean of {count} seeds{fewer}.")
        }
    };
    let dotted = if of_paper.is_empty() { "" } else { "; dotted: what the paper selected" };
    let name = comparison.title();
    vec![
        Drawn {
            file: format!("{}-hyperparameters", comparison.slug),
            caption: format!(
                "{name}: the final test loss for every learning rate and clipping threshold (∞ is plain SGD), T = {horizon}. {seeds} ✗: at \
                 least one seed diverged. Framed: what the validation loss selects for a seed{dotted}. The scale ends at the loss of the first \
                 weights."
            ),
            figure: Figure::new([heat]),
        },
        Drawn {
            file: format!("{}-rates", comparison.slug),
            caption: format!(
                "{name}: the final test loss against the learning rate, T = {horizon}; clipped SGD with the threshold that the validation \
                 loss selects for each rate and seed, and the methods that were not tuned as levels. {seeds} A line leaves the plot where at \
                 least one seed diverged.{}",
                without_diverged(methods)
            ),
            figure: Figure::new([against_the_rate(methods, grid, &rates)]).width(560.0),
        },
    ]
}

/// The mean test loss against the rate: SGD's, and clipped SGD's with the threshold that the validation loss selects at that rate.
fn against_the_rate(methods: &Read<'_>, grid: &Method<'_>, rates: &[f64]) -> Panel {
    let mut panel = Panel::new(Axis::log("learning rate"), Axis::linear("final test loss"));
    let mut line = |key: &str, with: &dyn Fn(&Run) -> bool| {
        let at = |rate: f64| {
            // Nothing where none has ended.
            let of_seed = |seed: &u64| {
                let here = grid.grid().filter(|run| {
                    run.config.seed == *seed && parameter(run, "lr") == Some(rate) && with(run)
                });
                let ended: Vec<_> = here.filter_map(|run| run.summary()).collect();
                let left = ended.iter().filter(|summary| !summary.diverged);
                let best = left.filter_map(|s| Some((s.final_validation_loss?, s.final_test_loss?)));
                let best = best.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, test)| test);
                (!ended.is_empty()).then(|| best.unwrap_or(f64::INFINITY))
            };
            let tests: Vec<f64> = grid.seeds().iter().filter_map(of_seed).collect();
            Some((rate, Spread::of(&tests)?.mean))
        };
        let points: Vec<(f64, f64)> = rates.iter().rev().filter_map(|rate| at(*rate)).collect();
        panel = panel.clone().series(Series::method(key, points));
    };
    line("gd", &|run| parameter(run, "threshold").is_none());
    line("clipped-gd", &|_| true);
    for (method, _) in methods.iter().filter(|(method, _)| !method.is_tuned() && !method.diverged()) {
        if let Some(spread) = method.test() {
            let level = Series::level(method_name(&method.key), method_style(&method.key), spread.mean);
            panel = panel.series(level.key(&method.key));
        }
    }
    panel
}

/// The appendix's comparison of horizons.
fn horizons(comparison: &Comparison, curves: &AllCurves) -> Option<Drawn> {
    let horizons = comparison.horizons();
    (horizons.len() > 1).then(|| {
        let panel = |horizon: &Horizon| {
            let methods = begun(with_curves(comparison, *horizon, curves));
            let calm: Vec<_> = methods.iter().filter(|(m, curves)| is_calm(m, curves)).collect();
            let y = if wide(&calm) { Axis::log("test loss") } else { Axis::linear("test loss") };
            let panel = Panel::new(Axis::linear("step"), y).title(format!("T = {horizon}"));
            calm.iter().fold(panel, |panel, (method, curves)| panel.series(of_tests(&method.key, &curves.test)))
        };
        let caption = format!(
            "{}: the test loss for different numbers of steps T. Inexact Polyak's step size has √T in it, so each T is another run. \
             Methods that diverged, or whose test loss was above that of the first weights, are left out.",
            comparison.title()
        );
        let figure = Figure::new(horizons.iter().map(panel));
        Drawn { file: format!("{}-horizons", comparison.slug), caption, figure }
    })
}

/// Beyond the paper: step size, length of the step, norm of the gradient.
fn steps(comparison: &Comparison, horizon: Horizon, methods: &Read<'_>) -> Drawn {
    let panel = |label: &str, of: fn(&Curves) -> &Band| {
        let panel = Panel::new(Axis::linear("step"), Axis::log(label));
        methods.iter().fold(panel, |panel, (method, curves)| panel.series(of_band(&method.key, of(curves))))
    };
    let caption = format!(
        "{}: the step size η, the length of the step η‖g‖, and the gradient's norm ‖g‖, T = {horizon}. Clipping with threshold c keeps \
         η‖g‖ below lr·c while ‖g‖ is above c: where a method's step size falls as the gradient grows and its length stays level, it \
         clips by itself, at lr·c = that level. AdamW's η multiplies a normalised direction, so that its length is another one.{}",
        comparison.title(),
        thinned(methods)
    );
    let panels = [
        panel("step size η", |c| &c.step_size),
        panel("length η‖g‖", |c| &c.length),
        panel("gradient norm ‖g‖", |c| &c.grad_norm),
    ];
    Drawn { file: format!("{}-steps", comparison.slug), caption, figure: Figure::new(panels) }
}

/// The methods whose smoothness is drawn, where it was measured.
const PROBED: [&str; 3] = ["inexact-polyak", "clipped-gd", "dog"];

/// Beyond the paper: local smoothness against the gradient's norm, with the line of Assumption 2.
fn smoothness(comparison: &Comparison, methods: &Read<'_>) -> Option<Drawn> {
    let measured = methods.iter().filter(|(m, c)| PROBED.contains(&m.key.as_str()) && c.smoothness.len() > 1);
    let panels: Vec<Panel> = measured
        .map(|(method, curves)| {
            let points: Vec<(f64, f64)> = curves.smoothness.iter().map(|p| (p[0], p[1])).collect();
            let (low, high) =
                points.iter().fold((f64::INFINITY, 0.0f64), |(l, h), p| (l.min(p.0), h.max(p.0)));
            let line = |l0: f64, l1: f64| {
                let x = |i: u32| low * (high / low).powf(f64::from(i) / 40.0);
                (0..=40).map(x).map(|x| (x, l0 + l1 * x)).collect::<Vec<_>>()
            };
            let mut panel = Panel::new(Axis::log("gradient norm ‖g‖"), Axis::log("local smoothness"))
                .title(method.name())
                .series(Series::method(&method.key, points).scatter());
            if let Some(fit) = curves.smoothness_fit() {
                let lines =
                    [("upper line L_{0} + L_{1}‖g‖", 5, fit.line), ("regression", 7, fit.regression.line)];
                for (name, style, Line { l0, l1 }) in lines {
                    panel =
                        panel.series(Series::new(name, Style::nth(style), line(l0, l1)).marks(Marks::None));
                }
                let Line { l0, l1 } = fit.line;
                panel = panel.note(format!("L_{{0}} = {}, L_{{1}} = {}", short(l0), short(l1)));
                if let Some(r) = fit.regression.correlation {
                    panel = panel.note(format!("correlation {r:.2}"));
                }
            }
            panel
        })
        .collect();
    (!panels.is_empty()).then(|| {
        let caption = format!(
            "{}: ‖∇f(x_{{t+1}}) − ∇f(x_t)‖/‖x_{{t+1}} − x_t‖ against ‖∇f(x_t)‖, both gradients on the same batch with the same dropout. \
             (L₀, L₁)-smoothness is an upper line. It is the lowest one above all points, steps longer than 1/L₁ included, of which the \
             assumption says nothing.",
            comparison.title()
        );
        Drawn { file: format!("{}-smoothness", comparison.slug), caption, figure: Figure::new(panels) }
    })
}

/// Two digits.
fn short(v: f64) -> String {
    if v == 0.0 || (0.01..1000.0).contains(&v) { format!("{v:.2}") } else { format!("{v:.1e}") }
}

/// Beyond the paper: what the loss cost in training steps.
fn cost(comparison: &Comparison, horizon: Horizon, methods: &Read<'_>) -> Option<Drawn> {
    let calm = methods.iter().map(|(method, _)| method).filter(|method| !method.diverged());
    let points: Vec<(&str, f64, f64)> = calm
        .filter_map(|method| Some((method.key.as_str(), method.cost()? as f64, method.test()?.mean)))
        .collect();
    (points.len() > 1).then(|| {
        let (low, high) =
            points.iter().fold((f64::INFINITY, 0.0f64), |(low, high), p| (low.min(p.2), high.max(p.2)));
        let loss = if low > 0.0 && high > 3.0 * low { Axis::log } else { Axis::linear };
        let panel =
            Panel::new(Axis::log("training steps for one seed, the grid included"), loss("final test loss"));
        let panel = points.iter().fold(panel, |panel, (key, cost, loss)| {
            panel.series(Series::method(key, vec![(*cost, *loss)]).scatter().labelled())
        });
        let caption = format!(
            "{}: what tuning costs. The test loss at the end, T = {horizon}, against the training steps that one seed needed, with \
             all runs of the grid for a method that has one.{}",
            comparison.title(),
            without_diverged(methods)
        );
        let figure = Figure::new([panel]).width(560.0);
        Drawn { file: format!("{}-cost", comparison.slug), caption, figure }
    })
}
