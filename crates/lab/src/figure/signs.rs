//! Signs that need a word in the legend, and the row that explains them.

use super::heat::{Look, Sign, hex, shade};
use super::layout::{Area, MARGIN, NOTE_SIZE};
use super::svg::{Text, Writer};
use super::text::{Weight, width};
use super::trace::Trace;
use super::{Cell, HeatMap};

/// The signs that occur in a figure.
#[derive(Default)]
pub(super) struct Signs {
    below: bool,
    leaves: bool,
    thinned: bool,
    /// What the shades of a heat map stand for.
    shades: Option<String>,
    above: bool,
    diverged: bool,
    not_run: bool,
    selected: bool,
    paper: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Below,
    Leaves,
    Shades,
    Character(&'static str),
    Frame { dotted: bool },
}

const GAP: f64 = 16.0;
const SAMPLE: f64 = 14.0;
const ROW: f64 = NOTE_SIZE + 4.0;

impl Signs {
    pub fn see_trace(&mut self, trace: &Trace) {
        self.below |= !trace.below.is_empty();
        self.leaves |= !trace.up.is_empty() || !trace.down.is_empty();
        self.thinned |= trace.thinned;
    }

    pub fn see_map(&mut self, map: &HeatMap) {
        self.shades.get_or_insert_with(|| map.value.label.clone());
    }

    pub fn see_cell(&mut self, cell: Cell, look: &Look) {
        self.above |= look.sign == Some(Sign::Above);
        self.diverged |= look.sign == Some(Sign::Diverged);
        self.not_run |= look.sign == Some(Sign::NotRun);
        self.selected |= cell.selected;
        self.paper |= cell.paper;
    }

    fn words(&self) -> Vec<(Kind, String)> {
        let shades = self.shades.as_ref().map(|label| match label.is_empty() {
            true => "low to high".to_string(),
            false => format!("{label}, low to high"),
        });
        let rest = [
            (self.below, Kind::Below, "0 or less, which a log axis cannot show"),
            (self.leaves, Kind::Leaves, "leaves the plot"),
            (self.thinned, Kind::Character("•"), "one point for all that share its place"),
            (self.above, Kind::Character("▲"), "above the scale"),
            (self.diverged, Kind::Character("✗"), "diverged"),
            (self.not_run, Kind::Character("–"), "not run"),
            (self.selected, Kind::Frame { dotted: false }, "selected"),
            (self.paper, Kind::Frame { dotted: true }, "the paper's choice"),
        ];
        let rest = rest.into_iter().filter(|r| r.0).map(|(_, kind, word)| (kind, word.to_string()));
        shades.into_iter().map(|word| (Kind::Shades, word)).chain(rest).collect()
    }
}

fn sample(kind: Kind) -> f64 {
    if matches!(kind, Kind::Shades) { 46.0 } else { SAMPLE }
}

impl Writer {
    /// The signs with their meanings, in as many rows as they need, with the top at `top`; returns the height.
    pub fn signs(&mut self, signs: &Signs, full: f64, top: f64) -> f64 {
        let of = |(kind, word): &(Kind, String)| sample(*kind) + width(word, NOTE_SIZE, Weight::Regular);
        let total = |row: &[(Kind, String)]| row.iter().map(of).sum::<f64>() + GAP * (row.len() as f64 - 1.0);
        let mut rows: Vec<Vec<(Kind, String)>> = Vec::new();
        for entry in signs.words() {
            match rows.last_mut() {
                Some(row) if total(row) + GAP + of(&entry) <= full - 2.0 * MARGIN => row.push(entry),
                _ => rows.push(vec![entry]),
            }
        }
        if rows.is_empty() {
            return 0.0;
        }
        self.out.push_str("<g class=\"signs\">\n");
        let mut y = top + 2.0;
        for row in &rows {
            let mut left = (full - total(row)) / 2.0;
            for entry in row {
                self.sign(entry.0, left, y);
                let text = Text { size: NOTE_SIZE, anchor: "start", opacity: 0.8, ..Text::default() };
                self.text(&entry.1, left + sample(entry.0), y + NOTE_SIZE, text);
                left += of(entry) + GAP;
            }
            y += ROW;
        }
        self.out.push_str("</g>\n");
        y - top
    }

    fn sign(&mut self, kind: Kind, left: f64, y: f64) {
        let (ink, paper) = (self.paint.ink(), self.paint.paper());
        let side = NOTE_SIZE - 1.0;
        match kind {
            Kind::Below => self.below_sign(left + 5.0, y + NOTE_SIZE, ink, paper),
            Kind::Leaves => self.leave_sign(left + 5.0, y + 0.5 * NOTE_SIZE, 1.0, ink),
            Kind::Character(sign) => {
                self.text(sign, left + 5.0, y + NOTE_SIZE, Text { size: NOTE_SIZE, ..Text::default() });
            }
            Kind::Frame { dotted } => {
                self.frame(&Area { left, top: y + 1.0, width: side, height: side }, dotted);
            }
            Kind::Shades => {
                for i in 0..5 {
                    let left = left + f64::from(i) * 8.0;
                    self.filled(
                        &Area { left, top: y + 1.0, width: 8.0, height: side },
                        &hex(shade(f64::from(i) / 4.0)),
                    );
                }
            }
        }
    }
}
