//! What is visible in each panel, and where it stands.

use super::decimate::{Item, MOST_COLUMNS, decimate, decimate_band, thin};
use super::scale::{Scale, Span, Tick, Ticks};
use super::text::{Weight, width};
use super::{Axis, Figure, HeatMap, Panel, Range, Series, Shape};
use std::borrow::Cow;

/// Font sizes in px of 1/96 inch: 7 pt are 9.34 px.
pub(super) const TICK_SIZE: f64 = 10.0;
pub(super) const LABEL_SIZE: f64 = 11.0;
pub(super) const TITLE_SIZE: f64 = 11.5;
pub(super) const FIGURE_SIZE: f64 = 13.5;
pub(super) const LEGEND_SIZE: f64 = 10.5;
pub(super) const NOTE_SIZE: f64 = 9.6;
const SMALLEST: f64 = 9.4;

/// Length of a tick.
pub(super) const TICK: f64 = 3.5;
/// Between tick and tick label.
pub(super) const TICK_GAP: f64 = 3.0;
/// Around the whole figure.
pub(super) const MARGIN: f64 = 6.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// A series reduced to what can be seen of it.
pub(super) struct Curve<'a> {
    pub series: Cow<'a, Series>,
    pub items: Vec<Item>,
    pub band: Vec<Option<(f64, f64, f64)>>,
    pub hidden: usize,
}

pub(super) struct Plot<'a> {
    pub panel: &'a Panel,
    pub curves: Vec<Curve<'a>>,
    pub x: Span,
    pub y: Span,
    pub x_ticks: Vec<Tick>,
    pub y_ticks: Vec<Tick>,
    pub x_label: String,
    pub y_label: String,
    pub area: Area,
    /// Distance of the y label's baseline from the plot: the same in a whole column.
    pub y_label_away: f64,
}

impl Plot<'_> {
    pub fn px(&self, x: f64) -> f64 {
        self.area.left + self.area.width * self.x.unit(x)
    }

    pub fn py(&self, y: f64) -> f64 {
        self.area.bottom() - self.area.height * self.y.unit(y)
    }
}

/// Places the panels; returns them with the figure's width and the height used so far.
pub(super) fn layout(figure: &Figure) -> (Vec<Plot<'_>>, f64, f64) {
    let full = if figure.width.is_finite() { figure.width.clamp(160.0, 4000.0) } else { 672.0 };
    let columns = figure.columns.clamp(1, figure.panels.len().max(1));
    let ratio = if columns == 1 { 0.62 } else { 0.8 };
    // Ticks are chosen for about the size that the plots will have; their labels then decide the exact size.
    let about = (full / columns as f64 - 52.0).max(60.0);
    let mut plots: Vec<Plot> =
        figure.panels.iter().map(|p| plot(p, about, (about * ratio).min(380.0))).collect();

    let mut rooms = vec![0f64; columns];
    let mut away = vec![0f64; columns];
    for (i, plot) in plots.iter().enumerate() {
        let labels = plot.y_ticks.iter().filter_map(|t| t.label.as_deref());
        let widest = labels.map(|l| width(l, TICK_SIZE, Weight::Regular)).fold(0.0, f64::max);
        let beside = TICK + TICK_GAP + widest;
        let column = i % columns;
        away[column] = away[column].max(beside + 6.0);
        let label = if plot.y_label.is_empty() { 0.0 } else { 6.0 + LABEL_SIZE };
        rooms[column] = rooms[column].max(beside + label);
    }
    let (gap, after_last) = (13.0, 9.0);
    let between = gap * (columns - 1) as f64 + after_last;
    let plot_width = ((full - 2.0 * MARGIN - rooms.iter().sum::<f64>() - between) / columns as f64).max(60.0);
    let height = |panel: &Panel| match &panel.cells {
        None => (plot_width * ratio).min(380.0),
        Some(map) => {
            let cell = (0.5 * plot_width / map.columns.len().max(1) as f64).clamp(15.0, 24.0);
            cell * map.rows.len().max(1) as f64
        }
    };

    let mut top = MARGIN + if figure.title.is_some() { FIGURE_SIZE + 10.0 } else { 0.0 };
    for row in plots.chunks_mut(columns) {
        let titled = row.iter().any(|p| p.panel.title.is_some());
        let labelled = row.iter().any(|p| !p.x_label.is_empty());
        top += if titled { TITLE_SIZE + 8.0 } else { 8.0 };
        let mut left = MARGIN;
        let mut tallest = 0f64;
        for (i, plot) in row.iter_mut().enumerate() {
            left += rooms[i];
            let height = height(plot.panel);
            tallest = tallest.max(height);
            plot.area = Area { left, top, width: plot_width, height };
            plot.y_label_away = away[i];
            left += plot_width + gap;
        }
        top += tallest + TICK + TICK_GAP + TICK_SIZE + if labelled { LABEL_SIZE + 5.0 } else { 0.0 } + 9.0;
    }
    (plots, full, top)
}

/// The label's size, smaller than usual where it would not fit, but never below 7 pt.
pub(super) fn fitted(label: &str, size: f64, weight: Weight, room: f64) -> f64 {
    let natural = width(label, size, weight);
    if natural <= room { size } else { (size * room / natural).max(SMALLEST.min(size)) }
}

fn plot(panel: &Panel, about_width: f64, about_height: f64) -> Plot<'_> {
    if let Some(map) = &panel.cells {
        return table(panel, map);
    }
    let xs = || panel.series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let x = fixed(&panel.x).unwrap_or_else(|| Span::around(panel.x.scale, xs(), 0.02));
    // A little finer than the pixels of a screen.
    let columns = ((1.3 * about_width) as usize).clamp(100, MOST_COLUMNS);
    let curves: Vec<Curve> = panel.series.iter().map(|s| curve(s, x, panel.y.scale, columns)).collect();
    let y = fixed(&panel.y).unwrap_or_else(|| y_span(&curves, panel.y.scale));
    let x_ticks = x.ticks((about_width / if x.scale == Scale::Linear { 42.0 } else { 30.0 }) as usize);
    let y_ticks = y.ticks((about_height / if y.scale == Scale::Linear { 24.0 } else { 17.0 }) as usize);
    Plot {
        panel,
        curves,
        x,
        y,
        x_label: with_exponent(&panel.x.label, &x_ticks),
        y_label: with_exponent(&panel.y.label, &y_ticks),
        x_ticks: x_ticks.list,
        y_ticks: y_ticks.list,
        area: Area { left: 0.0, top: 0.0, width: 0.0, height: 0.0 },
        y_label_away: 0.0,
    }
}

/// A heat map's cells are 1 wide and 1 high, with row 0 at the top; a tick stands in the middle of each.
fn table<'a>(panel: &'a Panel, map: &HeatMap) -> Plot<'a> {
    let span = |cells: usize| Span { scale: Scale::Linear, lo: 0.0, hi: cells.max(1) as f64 };
    let tick = |at: f64, name: &String| Tick { at, label: Some(name.clone()) };
    let columns = map.columns.iter().enumerate().map(|(i, name)| tick(i as f64 + 0.5, name));
    let rows = map.rows.iter().rev().enumerate().map(|(i, name)| tick(i as f64 + 0.5, name));
    Plot {
        panel,
        curves: Vec::new(),
        x: span(map.columns.len()),
        y: span(map.rows.len()),
        x_label: panel.x.label.clone(),
        y_label: panel.y.label.clone(),
        x_ticks: columns.collect(),
        y_ticks: rows.collect(),
        area: Area { left: 0.0, top: 0.0, width: 0.0, height: 0.0 },
        y_label_away: 0.0,
    }
}

fn fixed(axis: &Axis) -> Option<Span> {
    match axis.range {
        Range::Auto => None,
        Range::Fixed(lo, hi) => Span::fixed(axis.scale, lo, hi),
    }
}

fn with_exponent(label: &str, ticks: &Ticks) -> String {
    match (ticks.exponent, label) {
        (0, label) => label.into(),
        (e, "") => format!("×10^{{{e}}}").replace('-', "−"),
        (e, label) => format!("{label}  (×10^{{{}}})", e.to_string().replace('-', "−")),
    }
}

fn curve(series: &Series, x: Span, y: Scale, columns: usize) -> Curve<'_> {
    let series =
        if series.shape == Shape::Level { Cow::Owned(drawn_out(series, x)) } else { Cow::Borrowed(series) };
    let (items, hidden) = match series.shape {
        Shape::Points => thin(&series.points, x, y),
        Shape::Line | Shape::Level => decimate(&series.points, x, y, columns),
    };
    let band = series
        .band
        .as_ref()
        .map(|band| decimate_band(&series.points, band, x, y, columns))
        .unwrap_or_default();
    Curve { series, items, band, hidden }
}

/// A level as 41 points over the whole width: a pointer is never further than 1/80 of it from one.
fn drawn_out(level: &Series, x: Span) -> Series {
    let y = level.points.first().map_or(f64::NAN, |p| p.1);
    let band = level.band.as_ref().and_then(|band| band.first());
    Series {
        points: (0..=40).map(|i| (x.at(f64::from(i) / 40.0), y)).collect(),
        band: band.map(|&around| vec![around; 41]),
        ..level.clone()
    }
}

fn values<'a>(curve: &'a Curve) -> impl DoubleEndedIterator<Item = f64> + 'a {
    curve.items.iter().filter_map(|i| if let Item::Point(_, y) = i { Some(*y) } else { None })
}

/// Whether a series reaches +∞ or ends 10¹² times higher than it began.
fn diverges(curve: &Curve) -> bool {
    let grown = match (values(curve).next(), values(curve).next_back()) {
        (Some(first), Some(last)) => {
            last.abs() > 1e12 * first.abs().max(f64::MIN_POSITIVE) && last.abs() > 1e12
        }
        _ => false,
    };
    grown || curve.items.iter().any(|i| matches!(i, Item::Infinite(_, true)))
}

/// The range of everything but the tops of diverging series.
fn y_span(curves: &[Curve], scale: Scale) -> Span {
    let (wild, calm): (Vec<&Curve>, Vec<&Curve>) = curves.iter().partition(|c| diverges(c));
    let bands = curves.iter().flat_map(|c| c.band.iter().flatten()).flat_map(|b| [b.1, b.2]);
    let settled: Vec<f64> =
        calm.iter().flat_map(|c| values(c)).chain(bands).filter(|&v| scale.shows(v)).collect();
    let starts = wild.iter().filter_map(|c| values(c).next());
    let top = starts.chain(settled.iter().copied()).fold(f64::NEG_INFINITY, f64::max);
    // Where every series diverges, a decade above their starts shows that they rise.
    let top = if settled.is_empty() { top + 9.0 * top.abs() } else { top };
    let rising = wild.iter().flat_map(|c| values(c)).filter(|&v| v <= top);
    Span::around(scale, rising.chain(settled.iter().copied()), 0.04)
}

#[cfg(test)]
mod tests {
    use super::super::Style;
    use super::*;

    fn span(series: &[&[f64]], scale: Scale) -> Span {
        let with_x = |ys: &[f64]| ys.iter().enumerate().map(|(i, &y)| (i as f64, y)).collect::<Vec<_>>();
        let series: Vec<Series> =
            series.iter().map(|ys| Series::new("", Style::nth(0), with_x(ys))).collect();
        let x = Span { scale: Scale::Linear, lo: 0.0, hi: 10.0 };
        y_span(&series.iter().map(|s| curve(s, x, scale, 300)).collect::<Vec<_>>(), scale)
    }

    #[test]
    fn a_diverging_series_does_not_flatten_the_others() {
        let calm = [100.0, 1.0, 0.01];
        let s = span(&[&calm, &[100.0, 1e40, 1e300, f64::INFINITY, f64::NAN]], Scale::Log10);
        assert!(s.hi > 100.0 && s.hi < 300.0 && s.lo < 0.01, "{s:?}");
        let s = span(&[&calm, &[100.0, 1e10, 1e200]], Scale::Log10);
        assert!(s.hi < 300.0, "{s:?}");
        let s = span(&[&[2.0, 1e40, f64::INFINITY]], Scale::Log10);
        assert!(s.lo < 2.0 && s.hi > 19.0 && s.hi < 40.0, "{s:?}");
    }

    #[test]
    fn a_rising_series_is_shown_in_full() {
        let s = span(&[&[1e-6, 1e-3, 10.0], &[5.0, 4.0, 3.0]], Scale::Log10);
        assert!(s.lo < 1e-6 && s.hi > 10.0, "{s:?}");
    }
}
