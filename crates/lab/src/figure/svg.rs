//! Writes the SVG.

use super::decimate::Item;
use super::labels::{self, Label};
use super::layout::{
    Area, Curve, FIGURE_SIZE, LABEL_SIZE, LEGEND_SIZE, MARGIN, NOTE_SIZE, Plot, TICK, TICK_GAP, TICK_SIZE,
    TITLE_SIZE, fitted, layout,
};
use super::signs::Signs;
use super::text::{Weight, escape, plain, width, write_label};
use super::trace::{Trace, band, trace};
use super::{Color, Figure, Legend, Marker, Marks, Series, Shape, Style, method_name};
use std::fmt::Write;

/// For what the SVG is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    /// In a page, which may be dark: the text's colour and custom properties.
    Page,
    /// On white: fixed colours.
    File,
}

impl Paint {
    pub fn ink(self) -> &'static str {
        if self == Paint::Page { "currentColor" } else { Color::Ink.hex() }
    }

    pub fn paper(self) -> &'static str {
        if self == Paint::Page { "var(--figure-paper, #fff)" } else { "#ffffff" }
    }

    fn color(self, color: Color) -> &'static str {
        if self == Paint::Page { color.css() } else { color.hex() }
    }
}

pub(super) fn write(figure: &Figure, paint: Paint) -> String {
    let (plots, full, mut bottom) = layout(figure);
    let mut writer = Writer { out: String::new(), paint };
    let mut signs = Signs::default();
    if let Some(title) = &figure.title {
        let size = fitted(title, FIGURE_SIZE, Weight::SemiBold, full - 2.0 * MARGIN);
        writer.text(
            title,
            full / 2.0,
            MARGIN + FIGURE_SIZE,
            Text { size, weight: Weight::SemiBold, ..Text::default() },
        );
    }
    for (i, plot) in plots.iter().enumerate() {
        writer.panel(plot, i, figure.legend == Legend::Inside, &mut signs);
    }
    let mut entries: Vec<&Series> = Vec::new();
    for series in figure.panels.iter().flat_map(|p| &p.series).filter(|_| figure.legend == Legend::Bottom) {
        if !series.name.is_empty() && entries.iter().all(|e| e.key != series.key) {
            entries.push(series);
        }
    }
    bottom += writer.legend(&entries, full, bottom);
    bottom += writer.signs(&signs, full, bottom);
    let height = (bottom + MARGIN - 2.0).ceil();

    // The content of an image is hidden from screen readers; on a page its legend can be pressed.
    let role = if paint == Paint::Page { "group" } else { "img" };
    let mut out = String::with_capacity(writer.out.len() + 512);
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" role=\"{role}\" width=\"{full}\" height=\"{height}\" \
         viewBox=\"0 0 {full} {height}\" font-family=\"Inter, sans-serif\" font-size=\"{TICK_SIZE}\" fill=\"{}\"",
        paint.ink()
    );
    if paint == Paint::Page {
        let _ = write!(out, " style=\"--natural:{full}px\"");
    }
    if let Some(title) = figure.title.as_ref().or(figure.panels.first().and_then(|p| p.title.as_ref())) {
        out.push_str(" aria-label=\"");
        escape(&mut out, &plain(title));
        out.push('"');
    }
    out.push_str(">\n");
    if paint == Paint::File {
        let _ = writeln!(out, "<rect width=\"{full}\" height=\"{height}\" fill=\"{}\"/>", paint.paper());
    }
    out.push_str(&writer.out);
    out.push_str("</svg>\n");
    out
}

/// How a label looks.
pub(super) struct Text {
    pub size: f64,
    pub weight: Weight,
    pub anchor: &'static str,
    pub upright: bool,
    pub opacity: f64,
    /// Its colour; without one the figure's ink.
    pub fill: Option<&'static str>,
}

impl Default for Text {
    fn default() -> Text {
        Text {
            size: TICK_SIZE,
            weight: Weight::Regular,
            anchor: "middle",
            upright: true,
            opacity: 1.0,
            fill: None,
        }
    }
}

/// The SVG so far.
pub(super) struct Writer {
    pub out: String,
    pub paint: Paint,
}

impl Writer {
    pub fn attribute(&mut self, name: &str, value: &str) {
        let _ = write!(self.out, " {name}=\"");
        escape(&mut self.out, value);
        self.out.push('"');
    }

    fn number(&mut self, name: &str, value: f64) {
        let _ = write!(self.out, " {name}=\"");
        push_px(&mut self.out, value);
        self.out.push('"');
    }

    pub fn text(&mut self, label: &str, x: f64, y: f64, text: Text) {
        self.out.push_str("<text");
        if text.upright {
            self.number("x", x);
            self.number("y", y);
        } else {
            let _ = write!(self.out, " transform=\"translate({x:.2} {y:.2}) rotate(-90)\"");
        }
        if text.anchor != "start" {
            self.attribute("text-anchor", text.anchor);
        }
        if text.size != TICK_SIZE {
            self.number("font-size", text.size);
        }
        if text.weight == Weight::SemiBold {
            self.attribute("font-weight", "600");
        }
        if text.opacity < 1.0 {
            self.number("fill-opacity", text.opacity);
        }
        if let Some(fill) = text.fill {
            self.attribute("fill", fill);
        }
        self.out.push('>');
        write_label(&mut self.out, label, text.size);
        self.out.push_str("</text>\n");
    }

    fn panel(&mut self, plot: &Plot, index: usize, with_legend: bool, signs: &mut Signs) {
        let area = plot.area;
        let _ = write!(self.out, "<g class=\"panel\" data-panel=\"{index}\"");
        for (name, span) in [("x", plot.x), ("y", plot.y)] {
            // Full precision: a script inverts the mapping with these.
            let _ = write!(self.out, " data-{name}0=\"{:e}\" data-{name}1=\"{:e}\"", span.lo, span.hi);
            let _ = write!(self.out, " data-{name}scale=\"{}\"", span.scale.name());
        }
        self.number("data-left", area.left);
        self.number("data-top", area.top);
        self.number("data-width", area.width);
        self.number("data-height", area.height);
        self.attribute("data-xlabel", &plain(&plot.panel.x.label));
        self.attribute("data-ylabel", &plain(&plot.panel.y.label));
        if let Some(map) = &plot.panel.cells {
            self.attribute("data-value", &plain(&map.value.label));
        }
        self.out.push_str(">\n");

        self.axes(plot);
        if let Some(map) = &plot.panel.cells {
            self.cells(map, &area, signs);
            self.out.push_str("</g>\n");
            return;
        }
        let traces: Vec<Trace> = plot.curves.iter().enumerate().map(|(i, c)| trace(plot, c, i)).collect();
        let mut labels = point_labels(plot, &traces);
        for ((curve, trace), labels) in plot.curves.iter().zip(&traces).zip(&mut labels) {
            signs.see_trace(trace);
            self.curve(plot, curve, trace, std::mem::take(labels));
        }
        let nothing = traces.iter().all(|t| t.ink.is_empty() && t.below.is_empty() && t.marks.is_empty());
        if nothing {
            let at = (area.left + area.width / 2.0, area.top + area.height / 2.0);
            self.text("nothing to show", at.0, at.1, Text { opacity: 0.6, ..Text::default() });
        }
        self.corner(plot, &traces, with_legend);
        self.hit(&area);
        self.out.push_str("</g>\n");
    }

    /// An invisible box that takes the pointer.
    fn hit(&mut self, area: &Area) {
        self.out.push_str("<rect class=\"hit\" fill=\"none\" pointer-events=\"all\"");
        self.rect(area);
        self.out.push_str("/>\n");
    }

    fn curve(&mut self, plot: &Plot, curve: &Curve, trace: &Trace, labels: Vec<Label>) {
        let series = &curve.series;
        let color = self.paint.color(series.style.color);
        self.out.push_str("<g class=\"series\"");
        self.attribute("data-key", &series.key);
        self.attribute("data-name", &plain(&series.name));
        if curve.hidden > 0 {
            let _ = write!(self.out, " data-hidden=\"{}\"", curve.hidden);
        }
        if self.paint == Paint::Page {
            self.script_data(curve, color);
        }
        self.out.push_str(">\n");
        let outline = band(plot, curve);
        if !outline.is_empty() {
            let _ = writeln!(
                self.out,
                "<path class=\"band\" d=\"{outline}\" fill=\"{color}\" fill-opacity=\"0.16\"/>"
            );
        }
        if trace.noisy && series.style.dash.pattern().is_some() {
            let _ = writeln!(
                self.out,
                "<path class=\"noise\" d=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-opacity=\"0.45\"/>",
                trace.line
            );
        }
        if !trace.line.is_empty() {
            self.line(&trace.line, series.style);
        }
        match series.shape {
            Shape::Points if trace.marks.len() > FEW => self.dots(color, &trace.marks),
            _ => self.markers(series.style, &trace.marks),
        }
        self.edge_signs(color, trace, &plot.area);
        for label in labels {
            let text = Text { size: NOTE_SIZE, anchor: "start", ..Text::default() };
            self.text(&label.text, label.left, label.baseline, text);
        }
        self.out.push_str("</g>\n");
    }

    /// What a page's script reads of a series.
    fn script_data(&mut self, curve: &Curve, color: &str) {
        let series = &curve.series;
        if series.method {
            let name = method_name(&series.key);
            self.attribute("data-method", if name == series.key { &series.name } else { name });
            self.attribute("data-color", color);
        }
        if series.shape == Shape::Level {
            self.attribute("data-shape", "level");
        }
        self.out.push_str(" data-points=\"");
        push_points(&mut self.out, &curve.items);
        self.out.push('"');
    }

    /// Small and half transparent, each by itself, so that crowds are darker.
    fn dots(&mut self, color: &str, at: &[(f64, f64)]) {
        let _ = writeln!(self.out, "<g class=\"dots\" fill=\"{color}\" fill-opacity=\"0.45\">");
        for &(x, y) in at {
            self.out.push_str("<circle");
            self.number("cx", x);
            self.number("cy", y);
            self.out.push_str(" r=\"1.6\"/>\n");
        }
        self.out.push_str("</g>\n");
    }

    pub fn rect(&mut self, area: &Area) {
        self.number("x", area.left);
        self.number("y", area.top);
        self.number("width", area.width);
        self.number("height", area.height);
    }

    fn axes(&mut self, plot: &Plot) {
        let Area { left, top, width: w, height: h } = plot.area;
        let (right, bottom) = (plot.area.right(), plot.area.bottom());
        let (mut grid, mut ticks) = (String::new(), String::new());
        for tick in &plot.x_ticks {
            let x = plot.px(tick.at);
            let length = if tick.label.is_some() { TICK } else { 0.55 * TICK };
            push_move(&mut ticks, x, bottom, 'v', length);
            if tick.label.is_some() {
                push_move(&mut grid, x, top, 'v', h);
            }
        }
        for tick in &plot.y_ticks {
            let y = plot.py(tick.at);
            let length = if tick.label.is_some() { TICK } else { 0.55 * TICK };
            push_move(&mut ticks, left, y, 'h', -length);
            if tick.label.is_some() {
                push_move(&mut grid, left, y, 'h', w);
            }
        }
        let ink = self.paint.ink();
        if plot.panel.cells.is_some() {
            (grid, ticks) = (String::new(), String::new());
        } else {
            push_move(&mut ticks, left, top, 'v', h);
            push_move(&mut ticks, left, bottom, 'h', w);
        }
        let _ = writeln!(
            self.out,
            "<path class=\"grid\" d=\"{grid}\" fill=\"none\" stroke=\"{ink}\" stroke-opacity=\"0.13\" stroke-width=\"0.6\"/>"
        );
        let _ = writeln!(
            self.out,
            "<path class=\"axis\" d=\"{ticks}\" fill=\"none\" stroke=\"{ink}\" stroke-opacity=\"0.75\" \
             stroke-width=\"0.8\" stroke-linecap=\"square\"/>"
        );
        self.out.push_str("<g class=\"ticks\">\n");
        for (tick, label) in plot.x_ticks.iter().filter_map(|t| Some((t, t.label.as_deref()?))) {
            let y = bottom + TICK + TICK_GAP + 0.78 * TICK_SIZE;
            self.text(label, plot.px(tick.at), y, Text::default());
        }
        for (tick, label) in plot.y_ticks.iter().filter_map(|t| Some((t, t.label.as_deref()?))) {
            let y = plot.py(tick.at) + 0.36 * TICK_SIZE;
            self.text(label, left - TICK - TICK_GAP, y, Text { anchor: "end", ..Text::default() });
        }
        self.out.push_str("</g>\n");
        let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
        if !plot.x_label.is_empty() {
            let size = fitted(&plot.x_label, LABEL_SIZE, Weight::Regular, w + 16.0);
            let y = bottom + TICK + TICK_GAP + TICK_SIZE + LABEL_SIZE + 2.5;
            self.text(&plot.x_label, middle.0, y, Text { size, ..Text::default() });
        }
        if !plot.y_label.is_empty() {
            let size = fitted(&plot.y_label, LABEL_SIZE, Weight::Regular, h + 16.0);
            self.text(
                &plot.y_label,
                left - plot.y_label_away,
                middle.1,
                Text { size, upright: false, ..Text::default() },
            );
        }
        if let Some(title) = &plot.panel.title {
            let size = fitted(title, TITLE_SIZE, Weight::SemiBold, w + 24.0);
            self.text(title, middle.0, top - 7.5, Text { size, weight: Weight::SemiBold, ..Text::default() });
        }
    }

    fn line(&mut self, path: &str, style: Style) {
        let color = self.paint.color(style.color);
        let _ = write!(
            self.out,
            "<path class=\"line\" d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" stroke-linejoin=\"round\""
        );
        if let Some(pattern) = style.dash.pattern() {
            let _ = write!(self.out, " stroke-dasharray=\"{pattern}\"");
        }
        self.out.push_str("/>\n");
    }

    fn markers(&mut self, style: Style, at: &[(f64, f64)]) {
        if at.is_empty() {
            return;
        }
        let (color, paper) = (self.paint.color(style.color), self.paint.paper());
        let mut path = String::new();
        for &(x, y) in at {
            push_marker(&mut path, style.marker, x, y);
        }
        let _ = match style.marker {
            Marker::Cross | Marker::Plus => {
                // A pale edge, as the filled shapes have, from a wider stroke below.
                let _ = writeln!(
                    self.out,
                    "<path class=\"marks\" d=\"{path}\" stroke=\"{paper}\" stroke-width=\"2.9\"/>"
                );
                writeln!(
                    self.out,
                    "<path class=\"marks\" d=\"{path}\" stroke=\"{color}\" stroke-width=\"1.6\"/>"
                )
            }
            Marker::Ring => writeln!(
                self.out,
                "<path class=\"marks\" d=\"{path}\" fill=\"{paper}\" stroke=\"{color}\" stroke-width=\"1.3\"/>"
            ),
            _ => writeln!(
                self.out,
                "<path class=\"marks\" d=\"{path}\" fill=\"{color}\" stroke=\"{paper}\" stroke-width=\"0.6\"/>"
            ),
        };
    }

    /// `▼` on the lower edge for values that the axis cannot show; arrow heads outside where the line leaves the plot.
    fn edge_signs(&mut self, color: &str, trace: &Trace, area: &Area) {
        let paper = self.paint.paper();
        for &x in &trace.below {
            self.below_sign(x, area.bottom(), color, paper);
        }
        for &x in &trace.up {
            self.leave_sign(x, area.top - 5.2, 1.0, color);
        }
        for &x in &trace.down {
            self.leave_sign(x, area.bottom() + 5.2, -1.0, color);
        }
    }

    pub fn below_sign(&mut self, x: f64, tip: f64, color: &str, paper: &str) {
        let _ = writeln!(
            self.out,
            "<path class=\"below\" d=\"M{x:.2},{tip:.2}l-4,-6.6h8z\" fill=\"{color}\" stroke=\"{paper}\" stroke-width=\"0.6\"/>"
        );
    }

    pub fn leave_sign(&mut self, x: f64, tip: f64, down: f64, color: &str) {
        let _ = writeln!(
            self.out,
            "<path class=\"leaves\" d=\"M{:.2},{:.2}l3.2,{:.2}l3.2,{:.2}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
            x - 3.2,
            tip + 3.9 * down,
            -3.9 * down,
            3.9 * down
        );
    }

    /// Notes, and the legend if it stands inside, in the corner with the least ink.
    fn corner(&mut self, plot: &Plot, traces: &[Trace], with_legend: bool) {
        let entries: Vec<&Series> = match with_legend {
            true => plot.panel.series.iter().filter(|s| !s.name.is_empty()).collect(),
            false => Vec::new(),
        };
        let notes = &plot.panel.notes;
        if entries.is_empty() && notes.is_empty() {
            return;
        }
        let entry_width = entries.iter().map(|s| entry_width(&s.name)).fold(0.0, f64::max);
        let note_width = notes.iter().map(|n| width(n, NOTE_SIZE, Weight::Regular)).fold(0.0, f64::max);
        let (w, pad) = (entry_width.max(note_width) + 8.0, 5.0);
        let h = entries.len() as f64 * ENTRY_HEIGHT + notes.len() as f64 * (NOTE_SIZE + 3.0) + 5.0;
        let area = plot.area;
        let (near, far) = (area.left + pad, area.right() - pad - w);
        let (high, low) = (area.top + pad, area.bottom() - pad - h);
        let ink = |(left, top): (f64, f64)| {
            let inside = |p: &&(f64, f64)| {
                p.0 > left - 3.0 && p.0 < left + w + 3.0 && p.1 > top - 3.0 && p.1 < top + h + 3.0
            };
            // A point below the notes is lost, a line is seen on both sides of them.
            let weight = |t: &Trace| if t.line.is_empty() { 8 } else { 1 };
            traces.iter().map(|t| weight(t) * t.ink.iter().filter(inside).count()).sum::<usize>()
        };
        let corners = [(far, high), (near, low), (near, high), (far, low)];
        let Some((left, top)) = corners.into_iter().min_by_key(|&c| ink(c)) else { return };
        let _ = write!(
            self.out,
            "<g class=\"corner\">\n<rect fill=\"{}\" fill-opacity=\"0.8\"",
            self.paint.paper()
        );
        self.rect(&Area { left, top, width: w, height: h });
        self.out.push_str("/>\n");
        let mut y = top + 2.5;
        for series in entries {
            self.entry(series, left + 4.0, y + ENTRY_HEIGHT / 2.0);
            y += ENTRY_HEIGHT;
        }
        for note in notes {
            y += NOTE_SIZE + 3.0;
            let text = Text { size: NOTE_SIZE, anchor: "start", opacity: 0.8, ..Text::default() };
            match left == far {
                true => self.text(note, left + w - 4.0, y - 2.5, Text { anchor: "end", ..text }),
                false => self.text(note, left + 4.0, y - 2.5, text),
            }
        }
        self.out.push_str("</g>\n");
    }

    fn entry(&mut self, series: &Series, left: f64, middle: f64) {
        self.out.push_str("<g class=\"legend-entry\"");
        self.attribute("data-key", &series.key);
        self.out.push_str(">\n");
        let (width, height) = (entry_width(&series.name), ENTRY_HEIGHT);
        self.hit(&Area { left, top: middle - height / 2.0, width, height });
        if series.shape != Shape::Points {
            let mut path = String::new();
            push_move(&mut path, left, middle, 'h', SAMPLE);
            self.line(&path, series.style);
        }
        if series.shape == Shape::Points && series.points.len() > FEW {
            let color = self.paint.color(series.style.color);
            self.dots(color, &[-6.0, 0.0, 6.0].map(|away| (left + SAMPLE / 2.0 + away, middle)));
        } else if series.marks != Marks::None {
            self.markers(series.style, &[(left + SAMPLE / 2.0, middle)]);
        }
        let text = Text { size: LEGEND_SIZE, anchor: "start", ..Text::default() };
        self.text(&series.name, left + SAMPLE + SAMPLE_GAP, middle + 0.36 * LEGEND_SIZE, text);
        self.out.push_str("</g>\n");
    }

    /// The shared legend with its top at `top`; returns its height.
    fn legend(&mut self, entries: &[&Series], full: f64, top: f64) -> f64 {
        let mut y = top;
        let widths: Vec<f64> = entries.iter().map(|s| entry_width(&s.name)).collect();
        let columns = legend_columns(&widths, full - 2.0 * MARGIN);
        if !entries.is_empty() {
            self.out.push_str("<g class=\"legend\">\n");
            let total = columns.iter().sum::<f64>() + ENTRY_GAP * (columns.len() - 1) as f64;
            for row in entries.chunks(columns.len()) {
                let mut left = (full - total) / 2.0;
                for (series, column) in row.iter().zip(&columns) {
                    self.entry(series, left, y + ENTRY_HEIGHT / 2.0);
                    left += column + ENTRY_GAP;
                }
                y += ENTRY_HEIGHT;
            }
            self.out.push_str("</g>\n");
        }
        y - top
    }
}

/// Up to so many points of a scatter have the series' marker; more are dots.
const FEW: usize = 24;

const SAMPLE: f64 = 30.0;
const SAMPLE_GAP: f64 = 5.0;
const ENTRY_GAP: f64 = 18.0;
const ENTRY_HEIGHT: f64 = 15.0;

/// The names beside points, series by series, placed together so that they do not cover each other.
fn point_labels(plot: &Plot, traces: &[Trace]) -> Vec<Vec<Label>> {
    let named = |i: usize| plot.curves[i].series.labelled;
    let points: Vec<(usize, (f64, f64))> = (0..traces.len())
        .filter(|&i| named(i))
        .flat_map(|i| traces[i].marks.iter().take(FEW).map(move |&at| (i, at)))
        .collect();
    let names: Vec<_> = points.iter().map(|&(i, at)| (at, plot.curves[i].series.name.as_str())).collect();
    let mut labels = vec![Vec::new(); traces.len()];
    for (label, (i, _)) in labels::place(&names, &plot.area, NOTE_SIZE).into_iter().zip(points) {
        labels[i].extend(label);
    }
    labels
}

fn entry_width(name: &str) -> f64 {
    SAMPLE + SAMPLE_GAP + width(name, LEGEND_SIZE, Weight::Regular)
}

/// Widths of the legend's columns: as many as fit, then as few as give the same number of rows.
fn legend_columns(widths: &[f64], room: f64) -> Vec<f64> {
    let of = |n: usize| -> Vec<f64> {
        (0..n).map(|c| widths.iter().skip(c).step_by(n).copied().fold(0.0, f64::max)).collect()
    };
    let fits = |n: usize| of(n).iter().sum::<f64>() + ENTRY_GAP * (n - 1) as f64 <= room;
    let most = (1..=widths.len()).rev().find(|&n| fits(n)).unwrap_or(1);
    let rows = widths.len().div_ceil(most);
    let balanced = (1..=most).find(|&n| widths.len().div_ceil(n) == rows && fits(n)).unwrap_or(most);
    of(balanced)
}

/// Appends a coordinate, to a hundredth of a pixel.
pub(super) fn push_px(out: &mut String, value: f64) {
    let hundredths = (value * 100.0).round() as i64;
    let (whole, rest) = (hundredths.abs() / 100, hundredths.abs() % 100);
    if hundredths < 0 {
        out.push('-');
    }
    let _ = match rest {
        0 => write!(out, "{whole}"),
        r if r % 10 == 0 => write!(out, "{whole}.{}", r / 10),
        r => write!(out, "{whole}.{r:02}"),
    };
}

fn push_move(path: &mut String, x: f64, y: f64, command: char, length: f64) {
    path.push('M');
    push_px(path, x);
    path.push(',');
    push_px(path, y);
    path.push(command);
    push_px(path, length);
}

fn push_marker(path: &mut String, marker: Marker, x: f64, y: f64) {
    let _ = match marker {
        Marker::Circle => write!(path, "M{:.2},{y:.2}a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z", x - 3.0),
        Marker::Ring => write!(path, "M{:.2},{y:.2}a2.6,2.6 0 1,0 5.2,0a2.6,2.6 0 1,0 -5.2,0z", x - 2.6),
        Marker::Square => write!(path, "M{:.2},{:.2}h5.4v5.4h-5.4z", x - 2.7, y - 2.7),
        Marker::Triangle => write!(path, "M{x:.2},{:.2}l3.5,6h-7z", y - 3.8),
        Marker::Diamond => write!(path, "M{x:.2},{:.2}l3.7,3.7l-3.7,3.7l-3.7,-3.7z", y - 3.7),
        Marker::Cross => write!(path, "M{:.2},{:.2}l5.2,5.2m0,-5.2l-5.2,5.2", x - 2.6, y - 2.6),
        Marker::Plus => write!(path, "M{:.2},{y:.2}h7.2m-3.6,-3.6v7.2", x - 3.6),
        Marker::Star => {
            for i in 0..10 {
                let (radius, angle) =
                    (if i % 2 == 0 { 4.2 } else { 1.8 }, f64::from(i) * std::f64::consts::PI / 5.0);
                let (px, py) = (x + radius * angle.sin(), y - radius * angle.cos());
                let _ = write!(path, "{}{px:.2},{py:.2}", if i == 0 { 'M' } else { 'L' });
            }
            path.push('z');
            Ok(())
        }
    };
}

/// Appends `x,y x,y …` with six significant digits.
fn push_points(out: &mut String, items: &[Item]) {
    let mut first = true;
    for item in items {
        let (x, y) = match *item {
            Item::Point(x, y) => (x, y),
            Item::Below(x, y) => (x, y),
            Item::Gap | Item::Infinite(..) => continue,
        };
        if !std::mem::take(&mut first) {
            out.push(' ');
        }
        push_value(out, x);
        out.push(',');
        push_value(out, y);
    }
}

fn push_value(out: &mut String, value: f64) {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        let _ = write!(out, "{}", value as i64);
        return;
    }
    let text = format!("{value:.5e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(e @ -3..=5) => {
            let fixed = format!("{value:.*}", (5 - e) as usize);
            out.push_str(if fixed.contains('.') {
                fixed.trim_end_matches('0').trim_end_matches('.')
            } else {
                &fixed
            });
        }
        _ => {
            out.push_str(mantissa.trim_end_matches('0').trim_end_matches('.'));
            out.push('e');
            out.push_str(exponent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let px = |v| {
            let mut s = String::new();
            push_px(&mut s, v);
            s
        };
        assert_eq!(
            [1.0, -0.001, 2.5, -7.12345, 0.05, f64::NAN].map(px),
            ["1", "0", "2.5", "-7.12", "0.05", "0"]
        );
        let value = |v| {
            let mut s = String::new();
            push_value(&mut s, v);
            s
        };
        let values = [10000.0, 0.1 + 0.2, 1.23456789e-8, 1e300, 123456.7, 0.0, -1.5, 0.00123456789];
        let wanted = ["10000", "0.3", "1.23457e-8", "1e300", "123457", "0", "-1.5", "0.00123457"];
        assert_eq!(values.map(value), wanted);
    }

    #[test]
    fn legends_are_balanced() {
        assert_eq!(legend_columns(&[100.0; 4], 600.0).len(), 4);
        assert_eq!(legend_columns(&[100.0; 6], 600.0).len(), 3, "3 + 3 rather than 5 + 1");
        assert_eq!(legend_columns(&[900.0], 600.0).len(), 1);
    }
}
