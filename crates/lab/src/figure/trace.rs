//! A curve as a path inside its plot area.

use super::decimate::{Item, MOST_POINTS};
use super::layout::{Area, Curve, Plot};
use super::svg::push_px;
use super::{Marks, Shape};

/// What is drawn of one curve, in px.
#[derive(Default)]
pub(super) struct Trace {
    /// The line as path data.
    pub line: String,
    /// Where the line goes, about every 6 px: to find an empty corner.
    pub ink: Vec<(f64, f64)>,
    /// Whether the line goes up and down so densely that a dash pattern along it would look like gaps in the data.
    pub noisy: bool,
    /// Where the value is 0 or less on a log axis.
    pub below: Vec<f64>,
    /// Where the line leaves through the upper edge and does not come back.
    pub up: Vec<f64>,
    /// Likewise through the lower edge.
    pub down: Vec<f64>,
    /// Where the markers stand.
    pub marks: Vec<(f64, f64)>,
    /// Whether there are more points than are drawn.
    pub thinned: bool,
}

type Px = (f64, f64);

struct Pen {
    area: Area,
    out: Trace,
    /// The end of the path so far.
    at: Option<Px>,
    /// The last point, inside or not.
    last: Option<Px>,
    /// Points since the last break.
    run: usize,
    /// The upper (true) or lower edge and the place where the line last left through it.
    left_by: Option<(bool, f64)>,
}

impl Pen {
    fn inside(&self, p: Px) -> bool {
        let e = 1e-6;
        p.0 >= self.area.left - e
            && p.0 <= self.area.right() + e
            && p.1 >= self.area.top - e
            && p.1 <= self.area.bottom() + e
    }

    fn to(&mut self, p: Px) {
        self.run += 1;
        if let Some(last) = self.last.replace(p) {
            self.segment(last, p);
        }
    }

    fn segment(&mut self, a: Px, b: Px) {
        let Some((from, to)) = clip(a, b, &self.area) else { return };
        if self.at != Some(from) {
            self.out.line.push('M');
            self.push(from);
        }
        self.out.line.push('L');
        self.push(to);
        self.at = Some(to);
        self.left_by = match () {
            () if b.1 < self.area.top - 1e-6 => Some((true, to.0)),
            () if b.1 > self.area.bottom() + 1e-6 => Some((false, to.0)),
            () => None,
        };
        let parts = ((to.0 - from.0).hypot(to.1 - from.1) / 6.0).ceil().max(1.0);
        let along = |i: usize| i as f64 / parts;
        self.out.ink.extend(
            (0..=parts as usize)
                .map(along)
                .map(|s| (from.0 + s * (to.0 - from.0), from.1 + s * (to.1 - from.1))),
        );
    }

    fn push(&mut self, p: Px) {
        push_px(&mut self.out.line, p.0);
        self.out.line.push(',');
        push_px(&mut self.out.line, p.1);
    }

    /// Ends a run. A point between two breaks becomes a dot as wide as the line.
    fn lift(&mut self) {
        match (self.last.take(), self.left_by.take()) {
            (Some(p), _) if self.run == 1 && self.inside(p) => {
                self.out.line.push('M');
                self.push((p.0 - 0.75, p.1));
                self.out.line.push_str("h1.5");
                self.out.ink.push(p);
            }
            (_, Some((true, x))) => self.out.up.push(x),
            (_, Some((false, x))) => self.out.down.push(x),
            _ => {}
        }
        (self.run, self.at) = (0, None);
    }
}

pub(super) fn trace(plot: &Plot, curve: &Curve, nth: usize) -> Trace {
    let area = plot.area;
    if curve.series.shape == Shape::Points {
        return scatter(plot, curve);
    }
    let mut pen = Pen { area, out: Trace::default(), at: None, last: None, run: 0, left_by: None };
    // While the values are off the axis, the lower edge at the last of them: the line comes back from there.
    let mut off: Option<f64> = None;
    for item in &curve.items {
        match *item {
            Item::Point(x, y) => {
                if let Some(x) = off.take() {
                    pen.to((x, area.bottom()));
                }
                pen.to((plot.px(x), plot.py(y)));
            }
            Item::Gap => {
                off = None;
                pen.lift();
            }
            Item::Below(x, _) => {
                let x = plot.px(x);
                if off.is_none() {
                    if pen.last.is_some() {
                        pen.to((x, area.bottom()));
                    }
                    let crowded = pen.out.below.last().is_some_and(|b| (b - x).abs() < 12.0);
                    if !crowded && x >= area.left - 1e-6 && x <= area.right() + 1e-6 {
                        pen.out.below.push(x);
                    }
                    pen.left_by = None;
                    pen.lift();
                }
                off = Some(x);
            }
            Item::Infinite(x, up) => {
                if let Some(last) = pen.last {
                    // One pixel further than the edge: the line leaves the plot, unless it already has.
                    let (gone, edge) = match up {
                        true => (last.1 < area.top, area.top - 1.0),
                        false => (last.1 > area.bottom(), area.bottom() + 1.0),
                    };
                    pen.to((if gone { last.0 } else { plot.px(x) }, edge));
                }
                off = None;
                pen.lift();
            }
        }
    }
    pen.lift();
    let mut out = pen.out;
    let climbed: f64 = out.ink.windows(2).map(|w| (w[1].1 - w[0].1).abs()).sum();
    out.noisy = climbed > 3.0 * area.height;
    out.marks = marks(plot, curve, nth);
    out
}

/// Points without a line. Those above or below the plot have signs at its edges, at most one in 12 px.
fn scatter(plot: &Plot, curve: &Curve) -> Trace {
    let area = plot.area;
    let mut out = Trace::default();
    let sign = |at: &mut Vec<f64>, x: f64| {
        if x >= area.left && x <= area.right() && at.iter().all(|other| (other - x).abs() >= 12.0) {
            at.push(x);
        }
    };
    for item in &curve.items {
        match *item {
            Item::Point(x, y) => {
                let at = (plot.px(x), plot.py(y));
                let e = 1e-6;
                if at.1 < area.top - e {
                    sign(&mut out.up, at.0);
                } else if at.1 > area.bottom() + e {
                    sign(&mut out.down, at.0);
                } else if at.0 >= area.left - e && at.0 <= area.right() + e {
                    out.marks.push(at);
                }
            }
            Item::Below(x, _) => sign(&mut out.below, plot.px(x)),
            Item::Infinite(x, true) => sign(&mut out.up, plot.px(x)),
            Item::Infinite(x, false) => sign(&mut out.down, plot.px(x)),
            Item::Gap => {}
        }
    }
    out.ink = out.marks.clone();
    out.thinned = curve.series.points.len() > MOST_POINTS && curve.items.len() < curve.series.points.len();
    out
}

/// The part of a segment inside the area (Liang and Barsky).
fn clip(a: Px, b: Px, area: &Area) -> Option<(Px, Px)> {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let (mut from, mut to) = (0f64, 1f64);
    let edges =
        [(-dx, a.0 - area.left), (dx, area.right() - a.0), (-dy, a.1 - area.top), (dy, area.bottom() - a.1)];
    for (slope, room) in edges {
        if slope == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if slope < 0.0 {
            from = from.max(room / slope);
        } else {
            to = to.min(room / slope);
        }
    }
    let at = |s: f64| match s {
        0.0 => a,
        1.0 => b,
        s => (a.0 + s * dx, a.1 + s * dy),
    };
    (from <= to).then(|| (at(from), at(to)))
}

/// Outline of a band as path data.
pub(super) fn band(plot: &Plot, curve: &Curve) -> String {
    let mut path = String::new();
    for run in curve.band.split(Option::is_none) {
        let edge = |value: f64| match value {
            f64::NEG_INFINITY => plot.area.bottom() + 1e4,
            f64::INFINITY => plot.area.top - 1e4,
            value => plot.py(value),
        };
        let side = |pick: fn(&(f64, f64, f64)) -> f64| -> Vec<Px> {
            let points: Vec<Px> = run.iter().flatten().map(|b| (plot.px(b.0), edge(pick(b)))).collect();
            pressed(&points, &plot.area)
        };
        let (low, high) = (side(|b| b.1), side(|b| b.2));
        if low.len() < 2 || high.len() < 2 {
            continue;
        }
        for (i, p) in high.iter().chain(low.iter().rev()).enumerate() {
            path.push(if i == 0 { 'M' } else { 'L' });
            push_px(&mut path, p.0);
            path.push(',');
            push_px(&mut path, p.1);
        }
        path.push('Z');
    }
    path
}

/// A line with what lies above or below the area pressed onto its edge, and cut at its sides.
fn pressed(points: &[Px], area: &Area) -> Vec<Px> {
    let mut out: Vec<Px> = Vec::with_capacity(points.len());
    for pair in points.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if b.0 < area.left || a.0 > area.right() {
            continue;
        }
        let mut cuts = vec![0.0, 1.0];
        let mut cut = |from: f64, to: f64, edge: f64| {
            if (from < edge) != (to < edge) {
                cuts.push((edge - from) / (to - from));
            }
        };
        cut(a.1, b.1, area.top);
        cut(a.1, b.1, area.bottom());
        cut(a.0, b.0, area.left);
        cut(a.0, b.0, area.right());
        cuts.sort_by(f64::total_cmp);
        for s in cuts {
            let (x, y) = (a.0 + s * (b.0 - a.0), a.1 + s * (b.1 - a.1));
            let p = (x.clamp(area.left, area.right()), y.clamp(area.top, area.bottom()));
            if out.last() != Some(&p) {
                out.push(p);
            }
        }
    }
    out
}

fn marks(plot: &Plot, curve: &Curve, nth: usize) -> Vec<Px> {
    let points = &curve.series.points;
    let area = plot.area;
    let place = |p: &(f64, f64)| -> Option<Px> {
        if !plot.x.scale.shows(p.0) || !plot.y.scale.shows(p.1) {
            return None;
        }
        let at = (plot.px(p.0), plot.py(p.1));
        let e = 1e-6;
        let inside = at.0 >= area.left - e
            && at.0 <= area.right() + e
            && at.1 >= area.top - e
            && at.1 <= area.bottom() + e;
        inside.then_some(at)
    };
    match curve.series.marks {
        Marks::None => Vec::new(),
        // More than one in 3 px is a smear, and a million of them a huge file.
        Marks::Every(k) => {
            let mut kept: Vec<Px> = Vec::new();
            for at in points.iter().step_by(k.max(1)).filter_map(place) {
                if kept.last().is_none_or(|l| (l.0 - at.0).hypot(l.1 - at.1) >= 3.0) && kept.len() < 1000 {
                    kept.push(at);
                }
            }
            kept
        }
        Marks::Spread if points.len() <= 12 => points.iter().filter_map(place).collect(),
        Marks::Spread => {
            let shown: Vec<(f64, Px)> = curve
                .items
                .iter()
                .filter_map(|i| if let Item::Point(x, y) = *i { Some((x, place(&(x, y))?)) } else { None })
                .collect();
            // The way along the line in strides of 12 px, so that noise does not count as way.
            let mut way = vec![0.0; shown.len()];
            let (mut total, mut anchor) = (0.0, shown.first().map_or((0.0, 0.0), |s| s.1));
            for (way, (_, at)) in way.iter_mut().zip(&shown) {
                let moved = (at.0 - anchor.0).hypot(at.1 - anchor.1);
                *way = total + moved;
                if moved >= 12.0 {
                    (total, anchor) = (*way, *at);
                }
            }
            let count = (area.width / 38.0).clamp(3.0, 12.0).round();
            let spacing = (area.width / count).max(total / (2.0 * count));
            // Golden section: any number of series keep their markers apart.
            let mut next = spacing * (0.35 + nth as f64 * 0.618_034).fract();
            let mut kept = Vec::new();
            for (i, (x, at)) in shown.iter().enumerate() {
                if way[i] < next || way[i] == 0.0 {
                    continue;
                }
                // Between two kept points, which are extremes, lies a typical one.
                let index = |x: f64| points.partition_point(|p| p.0 < x);
                let middle = shown.get(i + 1).map(|after| (index(*x) + index(after.0)) / 2);
                let typical = middle.and_then(|m| place(points.get(m)?)).filter(|m| (m.0 - at.0).abs() < 2.0);
                kept.push(typical.unwrap_or(*at));
                next += spacing * ((way[i] - next) / spacing + 1.0).floor();
            }
            if kept.is_empty() {
                kept.extend(shown.get(shown.len() / 2).map(|s| s.1));
            }
            kept
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 0.0, top: 0.0, width: 10.0, height: 10.0 };

    #[test]
    fn segments_are_cut_at_the_edges() {
        assert_eq!(clip((1.0, 1.0), (9.0, 9.0), &AREA), Some(((1.0, 1.0), (9.0, 9.0))));
        assert_eq!(clip((5.0, 5.0), (5.0, -5.0), &AREA), Some(((5.0, 5.0), (5.0, 0.0))));
        assert_eq!(clip((-5.0, 5.0), (15.0, 5.0), &AREA), Some(((0.0, 5.0), (10.0, 5.0))));
        assert_eq!(clip((-5.0, 0.0), (0.0, -5.0), &AREA), None);
        assert_eq!(clip((1.0, -1.0), (9.0, -1.0), &AREA), None);
    }

    #[test]
    fn bands_are_pressed_onto_the_edges() {
        let line = [(-5.0, 5.0), (5.0, 5.0), (10.0, 15.0)];
        assert_eq!(pressed(&line, &AREA), [(0.0, 5.0), (5.0, 5.0), (7.5, 10.0), (10.0, 10.0)]);
    }
}
