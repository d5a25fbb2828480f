//! From any number of points to about 600 that look the same.

use super::scale::{Scale, Span};
use std::collections::HashSet;

/// Most columns of the envelope; two points in each.
pub(super) const MOST_COLUMNS: usize = 300;

/// What a series does next, in data coordinates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Item {
    Point(f64, f64),
    /// A value that is not a number, or has no place on the x axis: the line breaks.
    Gap,
    /// A value without a place on the log axis: 0 or less.
    Below(f64, f64),
    /// ±∞ at this x; whether it is +∞.
    Infinite(f64, bool),
}

fn item(x: f64, y: f64, x_scale: Scale, y_scale: Scale) -> Item {
    if !x_scale.shows(x) || y.is_nan() {
        Item::Gap
    } else if y.is_infinite() {
        Item::Infinite(x, y > 0.0)
    } else if y_scale.shows(y) {
        Item::Point(x, y)
    } else {
        Item::Below(x, y)
    }
}

/// Assigns points to columns by their x; by their index where x is not ascending, which keeps the number bounded.
struct Columns {
    span: Span,
    count: usize,
    by_index: Option<usize>,
    /// The current column and the part of it in which no logarithm is needed to know it.
    known: (i64, f64, f64),
}

impl Columns {
    fn new(points: &[(f64, f64)], span: Span, count: usize) -> Columns {
        let mut last = f64::NEG_INFINITY;
        let ascending = points.iter().filter(|p| !p.0.is_nan()).all(|p| {
            let fine = p.0 >= last;
            last = p.0;
            fine
        });
        Columns { span, count, by_index: (!ascending).then_some(points.len()), known: (-1, 0.0, 0.0) }
    }

    /// −1 and `count` are the ones outside the visible range. A value without a place stays in the current column.
    fn of(&mut self, index: usize, x: f64, current: i64) -> i64 {
        if let Some(len) = self.by_index {
            return (index * self.count / len) as i64;
        }
        let (column, from, to) = self.known;
        if x >= from && x < to {
            return column;
        }
        if !self.span.scale.shows(x) {
            return current;
        }
        let unit = self.span.unit(x);
        if unit < -1e-9 {
            -1
        } else if unit > 1.0 + 1e-9 {
            self.count as i64
        } else {
            let column = ((unit * self.count as f64) as i64).clamp(0, self.count as i64 - 1);
            let end = (column as f64 + 1.0 - 1e-6) / self.count as f64;
            self.known = (column, x, self.span.at(end));
            column
        }
    }
}

/// The points that show the same line: in each column its lowest and highest one, with breaks and excursions off the
/// axis, and the first and the last one of all. Also the number of points that have no place on the x axis.
pub(super) fn decimate(points: &[(f64, f64)], x: Span, y: Scale, count: usize) -> (Vec<Item>, usize) {
    let mut columns = Columns::new(points, x, count);
    let mut kept = Vec::with_capacity(points.len().min(2 * count + 8));
    let mut hidden = 0;
    let mut column = -1;
    let mut open = Column::default();
    for (i, &(px, py)) in points.iter().enumerate() {
        hidden += usize::from(!x.scale.shows(px));
        let here = columns.of(i, px, column);
        if here != column {
            open.flush(column, count, &mut kept);
            (open, column) = (Column::default(), here);
        }
        open.add(i, item(px, py, x.scale, y));
    }
    open.flush(column, count, &mut kept);
    let (first, last) = (points.first(), points.last());
    if let (Some(first), Some(last)) = (first, last) {
        if kept.first().is_some_and(|k| k.0 != 0) && columns.of(0, first.0, -1) >= 0 {
            kept.insert(0, (0, item(first.0, first.1, x.scale, y)));
        }
        let end = points.len() - 1;
        if kept.last().is_some_and(|k| k.0 != end) && columns.of(end, last.0, 0) < count as i64 {
            kept.push((end, item(last.0, last.1, x.scale, y)));
        }
    }
    (kept.into_iter().map(|(_, item)| item).collect(), hidden)
}

/// About the most points of a scatter that are drawn.
pub(super) const MOST_POINTS: usize = 1000;

/// The points of a scatter that show the same cloud: one in each occupied cell of the finest lattice with at most
/// [`MOST_POINTS`] of them, and the lowest, highest, leftmost and rightmost one. Also the number without a place on the x axis.
pub(super) fn thin(points: &[(f64, f64)], x: Span, y: Scale) -> (Vec<Item>, usize) {
    let items: Vec<Item> =
        points.iter().map(|p| item(p.0, p.1, x.scale, y)).filter(|i| *i != Item::Gap).collect();
    let hidden = points.iter().filter(|p| !x.scale.shows(p.0)).count();
    if items.len() <= MOST_POINTS {
        return (items, hidden);
    }
    let ys = items.iter().filter_map(|i| if let Item::Point(_, y) = i { Some(*y) } else { None });
    let y = Span::around(y, ys, 0.0);
    // Off the axis only the place along it matters.
    let place = |item: &Item| match *item {
        Item::Point(px, py) => (x.unit(px), y.unit(py)),
        Item::Below(px, _) => (x.unit(px), -2.0),
        Item::Infinite(px, up) => (x.unit(px), if up { 4.0 } else { -4.0 }),
        Item::Gap => (0.0, 0.0),
    };
    let mut kept = Vec::new();
    for cells in [256.0, 181.0, 128.0, 91.0, 64.0, 45.0, 30.0] {
        let mut taken = HashSet::new();
        let cell = |item: &Item| {
            let (u, v) = place(item);
            ((u.clamp(-0.1, 1.1) * cells) as i32, (v * cells) as i32)
        };
        kept = (0..items.len()).filter(|&i| taken.insert(cell(&items[i]))).collect();
        if kept.len() <= MOST_POINTS {
            break;
        }
    }
    let on_axis = || (0..items.len()).filter(|&i| matches!(items[i], Item::Point(..)));
    let along_x = |a: &usize, b: &usize| place(&items[*a]).0.total_cmp(&place(&items[*b]).0);
    let along_y = |a: &usize, b: &usize| place(&items[*a]).1.total_cmp(&place(&items[*b]).1);
    kept.extend(on_axis().min_by(along_x).into_iter().chain(on_axis().max_by(along_x)));
    kept.extend(on_axis().min_by(along_y).into_iter().chain(on_axis().max_by(along_y)));
    kept.sort_unstable();
    kept.dedup();
    (kept.into_iter().map(|i| items[i]).collect(), hidden)
}

#[derive(Default)]
struct Column {
    first: Option<(usize, Item)>,
    last: Option<(usize, Item)>,
    lowest: Option<(usize, f64, Item)>,
    highest: Option<(usize, f64, Item)>,
    gap: Option<(usize, Item)>,
    below: [Option<(usize, Item)>; 2],
    infinite: [Option<(usize, Item)>; 2],
}

impl Column {
    fn add(&mut self, i: usize, item: Item) {
        self.first.get_or_insert((i, item));
        self.last = Some((i, item));
        match item {
            Item::Point(_, y) => {
                if self.lowest.is_none_or(|l| y < l.1) {
                    self.lowest = Some((i, y, item));
                }
                if self.highest.is_none_or(|h| y > h.1) {
                    self.highest = Some((i, y, item));
                }
            }
            Item::Gap => self.gap = Some((i, item)),
            Item::Below(..) => {
                self.below[0].get_or_insert((i, item));
                self.below[1] = Some((i, item));
            }
            Item::Infinite(..) => {
                self.infinite[0].get_or_insert((i, item));
                self.infinite[1] = Some((i, item));
            }
        }
    }

    fn flush(&self, column: i64, columns: usize, kept: &mut Vec<(usize, Item)>) {
        let start = kept.len();
        if column < 0 {
            kept.extend(self.last);
        } else if column >= columns as i64 {
            kept.extend(self.first);
        } else {
            kept.extend(self.lowest.map(|(i, _, item)| (i, item)));
            kept.extend(self.highest.map(|(i, _, item)| (i, item)));
            kept.extend(
                [self.gap, self.below[0], self.below[1], self.infinite[0], self.infinite[1]]
                    .into_iter()
                    .flatten(),
            );
        }
        let new = &mut kept[start..];
        new.sort_by_key(|k| k.0);
        kept.dedup_by_key(|k| k.0);
    }
}

/// A band's `(x, low, high)` likewise: per column the lowest low and the highest high; `None` breaks it. What lies off the
/// axis comes back as an infinite value.
pub(super) fn decimate_band(
    points: &[(f64, f64)],
    band: &[(f64, f64)],
    x: Span,
    y: Scale,
    count: usize,
) -> Vec<Option<(f64, f64, f64)>> {
    let mut columns = Columns::new(points, x, count);
    let mut kept = Vec::new();
    let mut column = -1;
    let mut open: Option<(f64, f64, f64, f64)> = None;
    let flush = |column: i64, open: Option<(f64, f64, f64, f64)>, kept: &mut Vec<_>| {
        if let Some((from, to, lo, hi)) = open {
            if from < to && column >= 0 {
                kept.push(Some((from, lo, hi)));
            }
            kept.push(Some((to, lo, hi)));
        }
    };
    for (i, (&(px, _), &(a, b))) in points.iter().zip(band).enumerate() {
        let off = |v: f64| if y.shows(v) || v == f64::INFINITY { v } else { f64::NEG_INFINITY };
        let here = columns.of(i, px, column);
        let (lo, hi) = (off(a.min(b)), off(a.max(b)));
        let broken =
            !x.scale.shows(px) || a.is_nan() || b.is_nan() || hi == f64::NEG_INFINITY || lo == f64::INFINITY;
        if here != column || broken {
            flush(column, open.take(), &mut kept);
            column = here;
        }
        if broken {
            if kept.last().is_some_and(Option::is_some) {
                kept.push(None);
            }
            continue;
        }
        open = Some(match open {
            Some((from, _, l, h)) if here >= 0 && here < count as i64 => (from, px, l.min(lo), h.max(hi)),
            Some(first) if here >= count as i64 => first,
            _ => (px, px, lo, hi),
        });
    }
    flush(column, open, &mut kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: usize = MOST_COLUMNS;
    const X: Span = Span { scale: Scale::Linear, lo: 0.0, hi: 1e6 };

    fn ys(items: &[Item]) -> impl Iterator<Item = f64> {
        items.iter().filter_map(|i| if let Item::Point(_, y) = i { Some(*y) } else { None })
    }

    #[test]
    fn the_envelope_survives() {
        let mut points: Vec<(f64, f64)> =
            (0..1_000_000).map(|i| (f64::from(i), 2.0 + (f64::from(i) * 12.9898).sin())).collect();
        points[123_456].1 = 77.0;
        points[654_321].1 = 1e-9;
        for x in [X, Span { scale: Scale::Log10, lo: 1.0, hi: 1e6 }] {
            let (items, hidden) = decimate(&points, x, Scale::Log10, COLUMNS);
            assert!(items.len() <= 2 * COLUMNS + 3, "{}", items.len());
            assert_eq!(ys(&items).fold(0.0, f64::max), 77.0);
            assert_eq!(ys(&items).fold(9.0, f64::min), 1e-9);
            assert_eq!(items[items.len() - 1], Item::Point(points[999_999].0, points[999_999].1));
            assert_eq!(hidden, usize::from(x.scale == Scale::Log10));
            let envelope = |points: &mut dyn Iterator<Item = (f64, f64)>| {
                let mut found = vec![(f64::INFINITY, f64::NEG_INFINITY); COLUMNS + 1];
                for (px, py) in points.filter(|p| x.scale.shows(p.0)) {
                    let (lo, hi) = &mut found[(x.unit(px) * COLUMNS as f64) as usize];
                    (*lo, *hi) = (lo.min(py), hi.max(py));
                }
                found
            };
            let mut kept =
                items.iter().filter_map(|i| if let Item::Point(x, y) = i { Some((*x, *y)) } else { None });
            assert_eq!(envelope(&mut kept), envelope(&mut points.iter().copied()));
        }
    }

    #[test]
    fn few_points_are_all_kept() {
        let points: Vec<(f64, f64)> = (0..200).map(|i| (f64::from(i) * 5e3, f64::from(i % 7))).collect();
        let (items, _) = decimate(&points, X, Scale::Linear, COLUMNS);
        assert_eq!(items, points.iter().map(|p| Item::Point(p.0, p.1)).collect::<Vec<_>>());
    }

    #[test]
    fn breaks_and_excursions_are_kept() {
        let points =
            [(1.0, 5.0), (2.0, 0.0), (3.0, f64::NAN), (4.0, f64::INFINITY), (5.0, -1.0), (f64::NAN, 1.0)];
        let (items, hidden) = decimate(&points, Span { lo: 0.0, hi: 6.0, ..X }, Scale::Log10, COLUMNS);
        let wanted = [
            Item::Point(1.0, 5.0),
            Item::Below(2.0, 0.0),
            Item::Gap,
            Item::Infinite(4.0, true),
            Item::Below(5.0, -1.0),
            Item::Gap,
        ];
        assert_eq!((items.as_slice(), hidden), (wanted.as_slice(), 1));
    }

    #[test]
    fn outside_the_range_one_neighbour_is_kept() {
        let points: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i), f64::from(i))).collect();
        let (items, _) = decimate(&points, Span { lo: 49.5, hi: 52.5, ..X }, Scale::Linear, COLUMNS);
        assert_eq!(items, [49.0, 50.0, 51.0, 52.0, 53.0].map(|v| Item::Point(v, v)));
    }

    #[test]
    fn unsorted_points_stay_bounded() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|i| ((f64::from(i) * 0.7).sin() * 5e5 + 5e5, (f64::from(i) * 0.3).cos()))
            .collect();
        let (items, _) = decimate(&points, X, Scale::Linear, COLUMNS);
        assert!(items.len() <= 2 * COLUMNS + 2);
    }

    #[test]
    fn a_scatter_keeps_its_extremes_and_every_region() {
        let mut points: Vec<(f64, f64)> = (0..50_000)
            .map(|i| ((f64::from(i) * 0.7).sin() * 4e5 + 5e5, (f64::from(i) * 0.31).cos() + 2.0))
            .collect();
        // Each extreme shares its place with a point before it.
        (points[776], points[777]) = ((999_990.0, 2.0), (999_999.0, 2.0));
        (points[887], points[888]) = ((500_000.0, 76.99), (500_000.0, 77.0));
        points[999] = (f64::NAN, 1.0);
        let (items, hidden) = thin(&points, X, Scale::Log10);
        assert!(items.len() <= MOST_POINTS + 4 && items.len() > 400, "{}", items.len());
        assert_eq!(hidden, 1);
        assert!(
            items.contains(&Item::Point(999_999.0, 2.0)) && items.contains(&Item::Point(500_000.0, 77.0))
        );
        let cell = |x: f64, y: f64| ((x / 1e5) as i64, (y * 4.0) as i64);
        let regions = |cells: &mut dyn Iterator<Item = (i64, i64)>| cells.collect::<HashSet<_>>().len();
        let all = regions(&mut points.iter().filter(|p| !p.0.is_nan()).map(|p| cell(p.0, p.1)));
        let seen = regions(
            &mut items
                .iter()
                .filter_map(|i| if let Item::Point(x, y) = i { Some(cell(*x, *y)) } else { None }),
        );
        assert!(seen as f64 > 0.9 * all as f64, "{seen} of {all}");
        let few = [(3.0, 1.0), (1.0, f64::INFINITY), (2.0, 0.0)];
        let wanted = [Item::Point(3.0, 1.0), Item::Infinite(1.0, true), Item::Below(2.0, 0.0)];
        assert_eq!(thin(&few, X, Scale::Log10).0, wanted);
    }

    #[test]
    fn bands_keep_their_envelope() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i) * 100.0, 1.0)).collect();
        let mut band: Vec<(f64, f64)> = points.iter().map(|_| (0.5, 2.0)).collect();
        (band[5_000], band[7_000], band[9_000]) = ((0.1, 9.0), (-1.0, 1.0), (f64::NAN, 1.0));
        let kept = decimate_band(&points, &band, X, Scale::Log10, COLUMNS);
        assert!(kept.len() <= 2 * COLUMNS + 4, "{}", kept.len());
        assert!(kept.iter().flatten().any(|b| b.1 == 0.1) && kept.iter().flatten().any(|b| b.2 == 9.0));
        assert!(kept.iter().flatten().any(|b| b.1 == f64::NEG_INFINITY));
        assert_eq!(kept.iter().filter(|b| b.is_none()).count(), 1);
    }
}
