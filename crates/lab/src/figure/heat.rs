//! Heat maps: a value for every pair of two hyperparameters.

use super::scale::Span;
use super::text::{Weight, width};
use super::{Axis, Range};

/// Rows and columns of cells, coloured by their values: the darker, the lower.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// Names of the rows, from the top.
    pub rows: Vec<String>,
    /// Names of the columns, from the left.
    pub columns: Vec<String>,
    /// Row by row; missing ones were not run.
    pub cells: Vec<Cell>,
    /// What the cells hold, and the scale of the colours: a value above its range is marked `▲`.
    pub value: Axis,
}

impl HeatMap {
    /// The cell in this row and column.
    pub(super) fn cell(&self, row: usize, column: usize) -> Cell {
        self.cells.get(row * self.columns.len() + column).copied().unwrap_or_else(Cell::not_run)
    }

    /// The values at the dark and at the pale end.
    pub(super) fn span(&self) -> Span {
        let fixed = match self.value.range {
            Range::Fixed(lo, hi) => Span::fixed(self.value.scale, lo, hi),
            Range::Auto => None,
        };
        let values = self.cells.iter().filter_map(|c| c.finite());
        fixed.unwrap_or_else(|| Span::around(self.value.scale, values, 0.0))
    }
}

/// One cell of a heat map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// What was found.
    pub content: Content,
    /// Framed with a solid line: what the selection chose.
    pub selected: bool,
    /// Framed with a dotted line: what the paper chose.
    pub paper: bool,
}

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// A value; one that is not finite counts as diverged.
    Value(f64),
    /// The run diverged.
    Diverged,
    /// There is no such run.
    NotRun,
}

impl Cell {
    /// A cell with a value.
    pub fn value(value: f64) -> Cell {
        Cell { content: Content::Value(value), selected: false, paper: false }
    }

    /// A run that diverged.
    pub fn diverged() -> Cell {
        Cell { content: Content::Diverged, ..Cell::value(0.0) }
    }

    /// A run that was not made.
    pub fn not_run() -> Cell {
        Cell { content: Content::NotRun, ..Cell::value(0.0) }
    }

    /// With a solid frame, if so.
    pub fn selected(self, selected: bool) -> Cell {
        Cell { selected, ..self }
    }

    /// With a dotted frame, if so.
    pub fn paper(self, paper: bool) -> Cell {
        Cell { paper, ..self }
    }

    fn finite(self) -> Option<f64> {
        match self.content {
            Content::Value(v) if v.is_finite() => Some(v),
            _ => None,
        }
    }
}

/// How a cell looks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Look {
    /// `#rrggbb`; without one the paper is seen.
    pub fill: Option<String>,
    /// Colour of the text; without a fill it is the ink's.
    pub ink: &'static str,
    /// What stands in it.
    pub text: String,
    /// What a pointer reads.
    pub said: String,
    pub sign: Option<Sign>,
}

/// Signs that the legend explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Above,
    Diverged,
    NotRun,
}

const DIVERGED: [f64; 3] = [208.0, 208.0, 208.0];

/// How a cell looks on a scale, with text that is at most `room` wide.
pub(super) fn look(cell: Cell, span: Span, size: f64, room: f64) -> Look {
    let Some(value) = cell.finite() else {
        let (fill, text, said, sign) = match cell.content {
            Content::NotRun => (None, "–", "not run", Sign::NotRun),
            _ => (Some(hex(DIVERGED)), "✗", "diverged", Sign::Diverged),
        };
        return Look { fill, ink: "#000000", text: text.into(), said: said.into(), sign: Some(sign) };
    };
    // A value without a place on a log scale, such as a gap of 0, is the lowest there is.
    let unit = if span.scale.shows(value) { span.unit(value) } else { 0.0 };
    let above = unit > 1.0 + 1e-9;
    let color = shade(unit.clamp(0.0, 1.0));
    let before = if above { "▲" } else { "" };
    let fits = |text: &String| width(text, size, Weight::Regular) <= room;
    let texts = (1..=3).rev().map(|digits| format!("{before}{}", short(value, digits)));
    Look {
        ink: if luminance(color) > 0.179 { "#000000" } else { "#ffffff" },
        fill: Some(hex(color)),
        text: texts.into_iter().find(fits).unwrap_or_else(|| before.into()),
        said: format!("{}{}", short(value, 5), if above { ", above the scale" } else { "" }),
        sign: above.then_some(Sign::Above),
    }
}

/// From dark to pale blue: every channel rises, so that the order of the values is the order of the lightness.
pub(super) fn shade(unit: f64) -> [f64; 3] {
    const STOPS: [[f64; 3]; 4] =
        [[8.0, 40.0, 92.0], [38.0, 110.0, 176.0], [140.0, 190.0, 222.0], [238.0, 245.0, 252.0]];
    let along = unit * (STOPS.len() - 1) as f64;
    let at = (along as usize).min(STOPS.len() - 2);
    let mix = |channel: usize| {
        let (a, b) = (STOPS[at][channel], STOPS[at + 1][channel]);
        a + (along - at as f64) * (b - a)
    };
    [mix(0), mix(1), mix(2)]
}

pub(super) fn hex(color: [f64; 3]) -> String {
    let [r, g, b] = color.map(|c| c.round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Relative luminance as WCAG 2 defines it. At 0.179 black and white text have the same contrast.
fn luminance(color: [f64; 3]) -> f64 {
    let linear = |c: f64| {
        let c = c / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2])
}

/// A number with so many digits, as short as can be: `2.31`, `0.04`, `1e−8`.
fn short(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = match exponent {
        -2..=2 => format!("{value:.*}", (digits as i32 - 1 - exponent).max(0) as usize),
        3 if digits > 1 => format!("{value:.*}", digits.saturating_sub(4)),
        _ if mantissa.contains('.') => {
            format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    };
    short.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    const SPAN: Span = Span { scale: Scale::Linear, lo: 1.0, hi: 5.0 };

    #[test]
    fn lower_is_darker_and_text_can_be_read() {
        let mut last = -1.0;
        for i in 0..=100 {
            let color = shade(f64::from(i) / 100.0);
            let light = luminance(color);
            assert!(light > last, "{i}");
            last = light;
            let ink = look(Cell::value(1.0 + 0.04 * f64::from(i)), SPAN, 9.0, 99.0).ink;
            let text = if ink == "#ffffff" { 1.0 } else { 0.0 };
            let contrast = (light.max(text) + 0.05) / (light.min(text) + 0.05);
            assert!(contrast >= 4.5, "{i}: {contrast}");
        }
        assert!(last > 0.85 && luminance(shade(0.0)) < 0.03);
    }

    #[test]
    fn states_have_their_signs() {
        let of = |cell| {
            let look = look(cell, SPAN, 9.6, 40.0);
            (look.text, look.said, look.sign)
        };
        let wanted = |text: &str, said: &str, sign| (text.to_string(), said.to_string(), sign);
        assert_eq!(of(Cell::value(2.3456)), wanted("2.35", "2.3456", None));
        assert_eq!(of(Cell::value(12.34)), wanted("▲12.3", "12.340, above the scale", Some(Sign::Above)));
        assert_eq!(of(Cell::value(f64::NAN)), wanted("✗", "diverged", Some(Sign::Diverged)));
        assert_eq!(of(Cell::diverged()), wanted("✗", "diverged", Some(Sign::Diverged)));
        assert_eq!(of(Cell::not_run()), wanted("–", "not run", Some(Sign::NotRun)));
    }

    #[test]
    fn numbers_lose_digits_before_they_leave_the_cell() {
        let text = |room| look(Cell::value(2.3456), SPAN, 10.0, room).text;
        assert_eq!([40.0, 18.0, 8.0, 1.0].map(text), ["2.35", "2.3", "2", ""]);
        assert_eq!([5512.0, 9.96, 0.05].map(|v| short(v, 1)), ["6e3", "10", "0.05"]);
        assert_eq!(short(5512.34, 5), "5512.3");
        assert_eq!(
            [1e-8, 4.4e-16, 123.4, 1e5, 0.0].map(|v| short(v, 2)),
            ["1e−8", "4.4e−16", "123", "1e5", "0"]
        );
    }

    #[test]
    fn zero_is_the_lowest_on_a_log_scale() {
        let span = Span { scale: Scale::Log10, lo: 1e-16, hi: 1.0 };
        assert_eq!(look(Cell::value(0.0), span, 9.0, 40.0).fill, Some(hex(shade(0.0))));
        assert_eq!(look(Cell::value(1.0), span, 9.0, 40.0).fill, Some(hex(shade(1.0))));
    }

    #[test]
    fn missing_cells_were_not_run() {
        let value = Axis::linear("loss").range(0.0, 3.0);
        let map = HeatMap {
            rows: vec!["a".into(), "b".into()],
            columns: vec!["c".into(), "d".into()],
            cells: vec![Cell::value(1.0), Cell::value(9.0), Cell::value(2.0)],
            value: value.clone(),
        };
        assert_eq!((map.cell(1, 0), map.cell(1, 1)), (Cell::value(2.0), Cell::not_run()));
        assert_eq!((map.span().lo, map.span().hi), (0.0, 3.0));
        let free = HeatMap { value: Axis { range: Range::Auto, ..value }, ..map };
        assert_eq!((free.span().lo, free.span().hi), (1.0, 9.0));
    }
}
