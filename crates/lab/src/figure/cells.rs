//! Writes the cells of a heat map.

use std::fmt::Write;

use super::HeatMap;
use super::heat::look;
use super::layout::{Area, NOTE_SIZE};
use super::signs::Signs;
use super::svg::{Text, Writer};

impl Writer {
    /// A frame just inside a cell: dark on a white edge, so that it is seen on every shade.
    pub fn frame(&mut self, area: &Area, dotted: bool) {
        let inset = if dotted { 1.6 } else { 1.0 };
        let inner = Area {
            left: area.left + inset,
            top: area.top + inset,
            width: (area.width - 2.0 * inset).max(0.0),
            height: (area.height - 2.0 * inset).max(0.0),
        };
        let dash = if dotted { " stroke-dasharray=\"2 2\"" } else { "" };
        for (color, thick, dash) in [("#ffffff", 3.2, ""), ("#000000", 1.8, dash)] {
            self.out.push_str("<rect class=\"frame\" fill=\"none\"");
            self.rect(&inner);
            let _ = writeln!(self.out, " stroke=\"{color}\" stroke-width=\"{thick}\"{dash}/>");
        }
    }

    pub fn box_of(&mut self, area: &Area, fill: &str) {
        self.out.push_str("<rect");
        self.rect(area);
        self.attribute("fill", fill);
        self.out.push_str("/>\n");
    }

    /// The cells of a heat map.
    pub fn cells(&mut self, map: &HeatMap, area: &Area, signs: &mut Signs) {
        signs.see_map(map);
        let span = map.span();
        let (w, h) =
            (area.width / map.columns.len().max(1) as f64, area.height / map.rows.len().max(1) as f64);
        let at = |row: usize, column: usize| Area {
            left: area.left + column as f64 * w,
            top: area.top + row as f64 * h,
            width: w,
            height: h,
        };
        let mut framed = Vec::new();
        for (row, row_name) in map.rows.iter().enumerate() {
            for (column, column_name) in map.columns.iter().enumerate() {
                let cell = map.cell(row, column);
                let look = look(cell, span, NOTE_SIZE, w - 3.0);
                signs.see_cell(cell, &look);
                let place = at(row, column);
                self.out.push_str("<g class=\"cell\"");
                self.attribute("data-row", row_name);
                self.attribute("data-column", column_name);
                self.attribute("data-value", &look.said);
                self.out.push_str(">\n");
                // Without a fill it still takes the pointer.
                let fill = look.fill.as_deref().unwrap_or("transparent");
                // Half a pixel wider: no paper is seen between neighbours.
                self.box_of(&Area { width: w + 0.4, height: h + 0.4, ..place }, fill);
                let ink = if look.fill.is_some() { look.ink } else { self.paint.ink() };
                let text = Text { size: NOTE_SIZE, fill: Some(ink), ..Text::default() };
                self.text(&look.text, place.left + w / 2.0, place.top + h / 2.0 + 0.36 * NOTE_SIZE, text);
                self.out.push_str("</g>\n");
                framed.extend((cell.selected || cell.paper).then_some((place, cell)));
            }
        }
        self.out.push_str("<g class=\"frames\" pointer-events=\"none\">\n");
        for (place, cell) in framed {
            let inner = if cell.selected && cell.paper { 3.2 } else { 0.0 };
            if cell.selected {
                self.frame(&place, false);
            }
            if cell.paper {
                let inside = Area {
                    left: place.left + inner,
                    top: place.top + inner,
                    width: place.width - 2.0 * inner,
                    height: place.height - 2.0 * inner,
                };
                self.frame(&inside, true);
            }
        }
        self.out.push_str("</g>\n");
    }
}
