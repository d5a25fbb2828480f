//! Names beside points, where they cover neither each other nor a point.

use super::layout::Area;
use super::text::{Weight, width};

/// A name beside a point, in px: its text is anchored at its start and stands on its baseline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Label {
    pub text: String,
    pub left: f64,
    pub baseline: f64,
}

/// From the centre of a point to its label.
const AWAY: f64 = 7.0;

/// By how much a label is nearer to its own point than to any other.
const NEARER: f64 = 0.5;

/// Places a label beside each point, in order: in the first of eight places around the point that is free and nearer to it than to
/// any other point. Those that cross the frame come last, moved inside. Where there is none the point has no label: the legend names it.
pub(super) fn place(points: &[((f64, f64), &str)], area: &Area, size: f64) -> Vec<Option<Label>> {
    let mut taken: Vec<Area> = points.iter().map(|(point, _)| around(*point)).collect();
    let mut label = |index: usize| {
        let (point, text) = points[index];
        let free = |at: &Area| taken.iter().all(|other| common(at, other) == 0.0);
        let own = |at: &Area| {
            let others = points.iter().enumerate().filter(|(other, _)| *other != index);
            others.map(|(_, (other, _))| distance(*other, at)).all(|far| far >= distance(point, at) + NEARER)
        };
        let places = places(point, width(text, size, Weight::Regular), size);
        let (moved, whole): (Vec<Area>, Vec<Area>) = places.into_iter().partition(|at| crosses(at, area));
        let mut in_order = whole.into_iter().chain(moved.into_iter().map(|at| inside(at, area)));
        let best = in_order.find(|at| free(at) && own(at))?;
        taken.push(best);
        Some(Label { text: text.into(), left: best.left, baseline: best.top + 0.82 * size })
    };
    (0..points.len()).map(&mut label).collect()
}

fn crosses(at: &Area, area: &Area) -> bool {
    at.left < area.left || at.top < area.top || at.right() > area.right() || at.bottom() > area.bottom()
}

/// The rectangle, moved as little as brings it inside; one that is too large begins at the area's left and top.
fn inside(at: Area, area: &Area) -> Area {
    let left = at.left.min(area.right() - at.width).max(area.left);
    let top = at.top.min(area.bottom() - at.height).max(area.top);
    Area { left, top, ..at }
}

/// Right, left, above, below, then the corners.
fn places((x, y): (f64, f64), w: f64, h: f64) -> [Area; 8] {
    let at = |left: f64, top: f64| Area { left, top, width: w, height: h };
    let (right, left, above, below) = (x + AWAY, x - AWAY - w, y - AWAY - h, y + AWAY);
    [
        at(right, y - h / 2.0),
        at(left, y - h / 2.0),
        at(x - w / 2.0, above),
        at(x - w / 2.0, below),
        at(right, above),
        at(right, below),
        at(left, above),
        at(left, below),
    ]
}

fn around((x, y): (f64, f64)) -> Area {
    Area { left: x - 4.0, top: y - 4.0, width: 8.0, height: 8.0 }
}

/// From a point to the nearest point of a rectangle.
fn distance((x, y): (f64, f64), at: &Area) -> f64 {
    (x - x.clamp(at.left, at.right())).hypot(y - y.clamp(at.top, at.bottom()))
}

/// The area that two rectangles share.
fn common(a: &Area, b: &Area) -> f64 {
    let x = a.right().min(b.right()) - a.left.max(b.left);
    let y = a.bottom().min(b.bottom()) - a.top.max(b.top);
    x.max(0.0) * y.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 0.0, top: 0.0, width: 300.0, height: 200.0 };

    fn boxes(points: &[((f64, f64), &str)]) -> Vec<Area> {
        let of = |l: &Label| Area {
            left: l.left,
            top: l.baseline - 8.2,
            width: width(&l.text, 10.0, Weight::Regular),
            height: 10.0,
        };
        place(points, &AREA, 10.0).iter().flatten().map(of).collect()
    }

    #[test]
    fn labels_cover_neither_each_other_nor_a_point_nor_the_frame() {
        let points = [
            ((4.0, 4.0), "Inexact Polyak"),
            ((296.0, 100.0), "Clipped SGD"),
            ((296.0, 108.0), "SGD"),
            ((150.0, 198.0), "AdamW"),
            ((160.0, 198.0), "DoG"),
        ];
        let boxes = boxes(&points);
        for (i, a) in boxes.iter().enumerate() {
            assert!((common(a, &AREA) - a.width * a.height).abs() < 1e-9, "{i} leaves the frame");
            assert!(points.iter().all(|p| common(a, &around(p.0)) == 0.0), "{i} covers a point");
            assert!(boxes.iter().skip(i + 1).all(|b| common(a, b) == 0.0), "{i} covers another");
        }
    }

    #[test]
    fn where_there_is_no_room_some_have_none() {
        let points: Vec<_> = (0..20).map(|i| ((100.0, 100.0 + f64::from(i)), "Inexact Polyak")).collect();
        let boxes = boxes(&points);
        assert!((2..10).contains(&boxes.len()), "{}", boxes.len());
        for (i, a) in boxes.iter().enumerate() {
            assert!(points.iter().all(|p| common(a, &around(p.0)) == 0.0), "{i} covers a point");
            assert!(boxes.iter().skip(i + 1).all(|b| common(a, b) < 1e-9), "{i} covers another");
        }
    }

    #[test]
    fn alone_a_label_stands_at_the_right() {
        let labels = place(&[((100.0, 100.0), "DoG")], &AREA, 10.0);
        let label = labels[0].as_ref().unwrap();
        assert_eq!((label.left, label.baseline), (107.0, 103.2));
    }

    /// At the frame's left a name that would cross it above the point stands to the right of it instead.
    #[test]
    fn a_label_is_moved_only_where_no_other_place_is_left() {
        let points = [((4.0, 60.0), "Inexact Polyak"), ((4.0, 64.0), "Schedule-Free AdamW")];
        let labels = place(&points, &AREA, 10.0);
        let left: Vec<f64> = labels.iter().flatten().map(|label| label.left).collect();
        assert_eq!(left, [4.0 + AWAY; 2]);
    }

    /// Beside two points 4 px apart a name could be either's: it stands above the upper and below the lower. Two in one place have none.
    #[test]
    fn a_label_is_nearest_to_its_own_point() {
        let points = [((100.0, 60.0), "DoG"), ((100.0, 64.0), "AdamW"), ((100.0, 90.0), "SGD")];
        let labels = place(&points, &AREA, 10.0);
        let texts: Vec<_> =
            labels.iter().map(|label| label.as_ref().map(|label| label.text.as_str())).collect();
        assert_eq!(texts, [Some("DoG"), Some("AdamW"), Some("SGD")]);
        let tops: Vec<f64> = labels.iter().flatten().map(|label| label.baseline - 8.2).collect();
        assert!(tops[0] + 10.0 < 60.0 && tops[1] > 64.0, "above the upper and below the lower: {tops:?}");

        let points = [((100.0, 60.0), "DoG"), ((100.0, 60.0), "AdamW"), ((100.0, 90.0), "SGD")];
        let labels = place(&points, &AREA, 10.0);
        assert_eq!(labels.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
    }
}
