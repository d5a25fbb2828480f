//! Writes the cells of a heat map.

use std::fmt::Write;

use super::heat::{Look, look};
use super::layout::{Area, NOTE_SIZE};
use super::signs::Signs;
use super::svg::{Text, Writer};
use super::text::plain;
use super::{Cell, HeatMap};

impl Writer {
    /// The cells of a heat map over the whole area, then the frames on top of them.
    pub fn cells(&mut self, map: &HeatMap, area: &Area, signs: &mut Signs) {
        signs.see_map(map);
        let span = map.span();
        let width = area.width / map.columns.len().max(1) as f64;
        let height = area.height / map.rows.len().max(1) as f64;
        let mut framed: Vec<(Area, Cell)> = Vec::new();
        for (row, row_name) in map.rows.iter().enumerate() {
            for (column, column_name) in map.columns.iter().enumerate() {
                let cell = map.cell(row, column);
                let look = look(cell, span, NOTE_SIZE, width - 3.0);
                signs.see_cell(cell, &look);
                let left = area.left + column as f64 * width;
                let place = Area { left, top: area.top + row as f64 * height, width, height };
                self.out.push_str("<g class=\"cell\"");
                self.attribute("data-row", &plain(row_name));
                self.attribute("data-column", &plain(column_name));
                self.attribute("data-value", &look.said);
                self.out.push_str(">\n");
                self.cell(&place, &look);
                self.out.push_str("</g>\n");
                framed.push((place, cell));
            }
        }
        self.out.push_str("<g class=\"frames\" pointer-events=\"none\">\n");
        for (place, cell) in framed {
            if cell.selected {
                self.frame(&place, false);
            }
            if cell.paper {
                // Inside the other frame where there is one.
                self.frame(&shrunk(&place, if cell.selected { 3.2 } else { 0.0 }), true);
            }
        }
        self.out.push_str("</g>\n");
    }

    fn cell(&mut self, place: &Area, look: &Look) {
        // Without a fill it still takes the pointer. A little wider, so that no paper is seen between neighbours.
        let wider = Area { width: place.width + 0.4, height: place.height + 0.4, ..*place };
        self.filled(&wider, look.fill.as_deref().unwrap_or("transparent"));
        let ink = if look.fill.is_some() { look.ink } else { self.paint.ink() };
        let middle = (place.left + place.width / 2.0, place.top + place.height / 2.0);
        let text = Text { size: NOTE_SIZE, fill: Some(ink), ..Text::default() };
        self.text(&look.text, middle.0, middle.1 + 0.36 * NOTE_SIZE, text);
    }

    /// A frame just inside a cell: dark on a white edge, so that it is seen on every shade.
    pub fn frame(&mut self, area: &Area, dotted: bool) {
        let inner = shrunk(area, if dotted { 1.6 } else { 1.0 });
        let dash = if dotted { " stroke-dasharray=\"2 2\"" } else { "" };
        for (color, thick, dash) in [("#ffffff", 3.2, ""), ("#000000", 1.8, dash)] {
            self.out.push_str("<rect class=\"frame\" fill=\"none\"");
            self.rect(&inner);
            let _ = writeln!(self.out, " stroke=\"{color}\" stroke-width=\"{thick}\"{dash}/>");
        }
    }

    /// A rectangle of one colour.
    pub fn filled(&mut self, area: &Area, fill: &str) {
        self.out.push_str("<rect");
        self.rect(area);
        self.attribute("fill", fill);
        self.out.push_str("/>\n");
    }
}

fn shrunk(area: &Area, by: f64) -> Area {
    Area {
        left: area.left + by,
        top: area.top + by,
        width: (area.width - 2.0 * by).max(0.0),
        height: (area.height - 2.0 * by).max(0.0),
    }
}
