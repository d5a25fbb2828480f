//! Plots that a paper can print, as SVG and PNG, from plain data.
//!
//! The SVG is written here rather than by `plotters`, because one source must serve the file, the PNG and the interactive
//! page (hover values, toggles), with classes and data attributes, which the backends of `plotters` do not write.
//!
//! ```
//! use untuned_lab::figure::{Axis, Figure, Panel, Series, Style};
//!
//! let steps = 1..=1000;
//! let gap = |rate: f64| steps.clone().map(|t| (t as f64, 1e3 * (-rate * t as f64).exp())).collect::<Vec<_>>();
//! let panel = Panel::new(Axis::linear("step"), Axis::log("f(x_{t}) − f*"))
//!     .title("L_{1} = 1000")
//!     .series(Series::new("Gradient descent", Style::nth(0), gap(0.001)))
//!     .series(Series::new("Inexact Polyak", Style::nth(1), gap(0.03)));
//! let figure = Figure::new([panel]).width(336.0);
//! assert!(figure.svg().starts_with("<svg"));
//! assert_eq!(figure.png(2.0)?[1..4], *b"PNG");
//! # Ok::<(), untuned_lab::figure::FigureError>(())
//! ```
//!
//! **Labels** are plain text; `^{…}` and `_{…}` make super- and subscripts.
//!
//! **What has no place on an axis is said, not hidden.** On a log axis a value of 0 or less takes the line down to the lower
//! edge and puts `▼` there; an infinite value takes it out of the plot, which an arrow head outside the frame says, as it does
//! for any line that ends outside the visible range.
//! The legend explains the signs that occur. A value that is not a number breaks the line. A point whose x has no place (step 0
//! on a log axis) is left out and counted in the series' `data-hidden`.
//!
//! **A range found from the data** holds every point, except those of a diverging series (one that reaches +∞ or ends 10¹² times
//! higher than it began) that lie above everything else: such a curve leaves the plot instead of flattening the others.
//!
//! **A heat map** ([`Panel::heat`]) prints each cell's value and shades it: the darker, the lower. `▲` is above the scale, `✗`
//! diverged, `–` was not run; a solid frame is what the selection chose, a dotted one what the paper chose.
//!
//! **For scripts:** `g.panel` has the mapping from data to pixels (`data-x0`, `data-x1`, `data-xscale` and the same for y; the
//! plot area as `data-left`, `data-top`, `data-width`, `data-height`), `g.series` has `data-key`, `data-name` and
//! `data-points="x,y x,y …"` (six digits, decimated), `data-shape` and, for a method, `data-method` (its name) and `data-color`;
//! `g.legend-entry` has `data-key`; `g.cell` has `data-row`, `data-column` and `data-value`; `--natural` is the figure's
//! width. Ink is `currentColor`; the page may set
//! `--figure-paper` and `--series-blue`, `--series-vermilion`, ….

mod cells;
mod decimate;
mod export;
mod heat;
mod labels;
mod layout;
mod methods;
mod scale;
mod signs;
mod style;
mod svg;
mod text;
mod trace;

pub use export::{FigureError, files};
pub use heat::{Cell, Content, HeatMap};
pub use methods::{method_name, method_order, method_style};
pub use scale::Scale;
pub use style::{Color, Dash, Marker, Palette, Style};
pub use text::font_face_css;

/// One or more panels in a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// A line above everything; papers leave it to the caption.
    pub title: Option<String>,
    /// The plots, row by row.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
    /// Where the names of the series stand.
    pub legend: Legend,
    /// Width in px of 1/96 inch. At the default of 672 (7 inches, a full text width) every label is at least 7 pt high.
    pub width: f64,
}

impl Figure {
    /// A figure 7 inches wide, with up to three panels in a row and a shared legend.
    pub fn new(panels: impl IntoIterator<Item = Panel>) -> Figure {
        let panels: Vec<Panel> = panels.into_iter().collect();
        let widest = panels.iter().filter_map(|p| p.cells.as_ref()).map(|map| map.columns.len()).max();
        // Three digits need a cell about 34 px wide, and the names of the rows about 50 px beside it.
        let room = widest.map_or(3, |cells| 672 / (50 + 34 * cells));
        let columns = if panels.len() == 4 { 2 } else { panels.len().min(3) };
        let columns = columns.min(room).max(1);
        Figure { title: None, panels, columns, legend: Legend::Bottom, width: 672.0 }
    }

    /// With this title.
    pub fn title(self, title: impl Into<String>) -> Figure {
        Figure { title: Some(title.into()), ..self }
    }

    /// With this many panels in a row.
    pub fn columns(self, columns: usize) -> Figure {
        Figure { columns, ..self }
    }

    /// With this legend.
    pub fn legend(self, legend: Legend) -> Figure {
        Figure { legend, ..self }
    }

    /// With this width, in px of 1/96 inch; 336 fits one column of a two-column paper.
    pub fn width(self, width: f64) -> Figure {
        Figure { width, ..self }
    }

    /// The same figure with a log y axis where it is linear, and the other way round; `None` where there are no curves or one
    /// has a value that is not positive. Ranges are found from the data.
    pub fn other_scale(&self) -> Option<Figure> {
        let curves = || self.panels.iter().filter(|p| p.cells.is_none());
        let mut values = curves().flat_map(|p| &p.series).flat_map(|s| &s.points).map(|p| p.1).peekable();
        values.peek()?;
        // NaN is a break in the line, not a value.
        if values.any(|y| y <= 0.0) {
            return None;
        }
        let scale = match curves().next()?.y.scale {
            Scale::Linear => Scale::Log10,
            Scale::Log10 => Scale::Linear,
        };
        let mut other = self.clone();
        for panel in other.panels.iter_mut().filter(|p| p.cells.is_none() && p.y.scale != scale) {
            (panel.y.scale, panel.y.range) = (scale, Range::Auto);
        }
        Some(other)
    }
}

/// Where the names of the series stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Legend {
    /// Once below all panels; series with the same key are one entry.
    Bottom,
    /// In each panel, in its emptiest corner.
    Inside,
    /// Nowhere.
    None,
}

/// One plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// A line above the plot.
    pub title: Option<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, the last one on top.
    pub series: Vec<Series>,
    /// Short lines in the emptiest corner of the plot.
    pub notes: Vec<String>,
    /// The cells of a heat map, which then stand in place of the series.
    pub cells: Option<HeatMap>,
}

impl Panel {
    /// An empty plot.
    pub fn new(x: Axis, y: Axis) -> Panel {
        Panel { title: None, x, y, series: Vec::new(), notes: Vec::new(), cells: None }
    }

    /// A heat map, with the names of what its columns and its rows are.
    pub fn heat(columns: impl Into<String>, rows: impl Into<String>, map: HeatMap) -> Panel {
        Panel { cells: Some(map), ..Panel::new(Axis::linear(columns), Axis::linear(rows)) }
    }

    /// With this title.
    pub fn title(self, title: impl Into<String>) -> Panel {
        Panel { title: Some(title.into()), ..self }
    }

    /// With one more series.
    pub fn series(mut self, series: Series) -> Panel {
        self.series.push(series);
        self
    }

    /// With one more note.
    pub fn note(mut self, note: impl Into<String>) -> Panel {
        self.notes.push(note.into());
        self
    }
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Its name; an empty one takes no room.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
    /// Its visible part.
    pub range: Range,
}

impl Axis {
    /// A linear axis with a range found from the data.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, range: Range::Auto }
    }

    /// A logarithmic axis with a range found from the data.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log10, range: Range::Auto }
    }

    /// With this range.
    pub fn range(self, lo: f64, hi: f64) -> Axis {
        Axis { range: Range::Fixed(lo, hi), ..self }
    }
}

/// The visible part of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Found from the data.
    Auto,
    /// From the first to the second value; one that cannot be drawn (empty, not finite, 0 on a log axis) counts as `Auto`.
    Fixed(f64, f64),
}

/// One curve, cloud of points or level.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the page and the legend know it by: the same key is the same method.
    pub key: String,
    /// Its name in the legend.
    pub name: String,
    /// How it looks.
    pub style: Style,
    /// `(x, y)`, x ascending unless it is a scatter. Any number of points: about 600 that look the same are drawn.
    pub points: Vec<(f64, f64)>,
    /// `(low, high)` around each point, drawn as a pale area.
    pub band: Option<Vec<(f64, f64)>>,
    /// Which points have a marker.
    pub marks: Marks,
    /// What its points are drawn as.
    pub shape: Shape,
    /// Whether its name stands beside each point; for a few points.
    pub labelled: bool,
    /// Whether the key is that of a method, which a page can switch off in all figures at once.
    pub method: bool,
}

impl Series {
    /// A curve whose key is its name, with spread markers and no band.
    pub fn new(name: impl Into<String>, style: Style, points: impl Into<Vec<(f64, f64)>>) -> Series {
        let name = name.into();
        Series {
            key: name.clone(),
            name,
            style,
            points: points.into(),
            band: None,
            marks: Marks::Spread,
            shape: Shape::Line,
            labelled: false,
            method: false,
        }
    }

    /// A method's curve, with its name and its style.
    pub fn method(key: &str, points: impl Into<Vec<(f64, f64)>>) -> Series {
        Series::new(method_name(key), method_style(key), points).key(key)
    }

    /// A constant: a horizontal line over the whole width of the panel.
    pub fn level(name: impl Into<String>, style: Style, y: f64) -> Series {
        // The place on the x axis is that of no data.
        Series { shape: Shape::Level, ..Series::new(name, style, [(f64::NAN, y)]) }
    }

    /// With the key of a method.
    pub fn key(self, key: impl Into<String>) -> Series {
        Series { key: key.into(), method: true, ..self }
    }

    /// With a band from `low` to `high` around each point; a level has one point.
    pub fn band(self, band: impl Into<Vec<(f64, f64)>>) -> Series {
        Series { band: Some(band.into()), ..self }
    }

    /// With these markers.
    pub fn marks(self, marks: Marks) -> Series {
        Series { marks, ..self }
    }

    /// As points without a line, in any order.
    pub fn scatter(self) -> Series {
        Series { shape: Shape::Points, ..self }
    }

    /// With its name beside each point.
    pub fn labelled(self) -> Series {
        Series { labelled: true, ..self }
    }
}

/// What the points of a series are drawn as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A line from point to point.
    Line,
    /// Points without a line: small and half transparent where there are many, and then one in each place.
    Points,
    /// A horizontal line over the whole width, at the y of the first point.
    Level,
}

/// Which points of a series have a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// None.
    None,
    /// A few, evenly over the width of the plot and at other places for each series; all, where there are few points.
    Spread,
    /// Every k-th point, beginning with the first.
    Every(usize),
}
