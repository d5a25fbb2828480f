//! Local smoothness along a run.

use serde::Serialize;

use crate::inequalities::{Pair, within};

/// Collects, per step, `(‖g_t‖, ‖g_{t+1} − g_t‖/‖x_{t+1} − x_t‖)` and fits the line `L0 + L1‖g‖` of Assumption 2.
///
/// Assumption 2 speaks of pairs no farther apart than `1/L1`. Where `L1` is known, longer steps are left out as they
/// come; where it is not, [`Probe::read`] leaves out those longer than `1/L1` of its own fit, fits again, and so on
/// until nothing changes or [`Probe::ROUNDS`] fits were made.
///
/// The line is lowest where the run made most of its steps. Where smoothness is not linear in `‖g‖` (the quartic's grows
/// like `‖g‖^⅔` far out) its `L0` is larger and its `L1` smaller than those that serve everywhere, and the clipping that
/// follows from it describes the region that the run saw.
///
/// Steps so short that rounding makes up more than a thousandth of the gradients' difference say nothing of the
/// function, and an envelope would follow the worst of them: they are left out and counted. Of a run of more than
/// [`Probe::MOST`] steps a part is kept, evenly spread.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    l1: Option<f64>,
    points: Vec<Point>,
    too_long: u64,
    unclear: u64,
    /// Of so many points one is kept.
    stride: u64,
    /// Points seen since the last that was kept.
    since: u64,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    grad_norm: f64,
    smoothness: f64,
    length: f64,
}

/// `smoothness = L0 + L1·‖g‖`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Line {
    /// At `‖g‖ = 0`.
    pub l0: f64,
    /// Per unit of `‖g‖`.
    pub l1: f64,
}

/// The least-squares line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Regression {
    /// The line; nothing keeps its coefficients positive.
    pub line: Line,
    /// Pearson's; `None` where all smoothnesses are equal.
    pub correlation: Option<f64>,
}

/// A clipped gradient descent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Clipping {
    /// `1/L0`.
    pub lr: f64,
    /// `c = L0/L1`; `None` where nothing is clipped, `L1 = 0`.
    pub threshold: Option<f64>,
}

/// What a [`Probe`] found.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Reading {
    /// How many steps the lines were fitted to.
    pub points: u64,
    /// How many were longer than `1/L1`.
    pub too_long: u64,
    /// How many were too short for the rounding of the gradients, or not finite.
    pub unclear: u64,
    /// The line above all points with the least total slack, `L0, L1 ≥ 0`.
    pub envelope: Option<Line>,
    /// The line through the middle.
    pub regression: Option<Regression>,
    /// Whether the steps left out are those longer than `1/L1` of this envelope (or of the known `L1`).
    pub settled: bool,
}

impl Reading {
    /// The clipped gradient descent whose parameters Theorem 2 takes from the envelope, `lr = 1/L0` and `c = L0/L1`;
    /// `None` without an envelope or where `1/L0` is not finite.
    pub fn clipping(&self) -> Option<Clipping> {
        let Line { l0, l1 } = self.envelope?;
        let lr = 1.0 / l0;
        let threshold = l0 / l1;
        lr.is_finite().then_some(Clipping { lr, threshold: threshold.is_finite().then_some(threshold) })
    }
}

impl Probe {
    /// The most fits that [`Probe::read`] makes where `L1` is not known.
    pub const ROUNDS: usize = 32;

    /// An empty probe; `l1` where it is known.
    pub fn new(l1: Option<f64>) -> Probe {
        Probe { l1, stride: 1, ..Probe::default() }
    }

    /// The most points that are kept; of a longer run every second, fourth, … is.
    pub const MOST: usize = 1 << 18;

    /// Room for this many steps, so that [`Probe::see`] does not allocate.
    pub fn reserve(&mut self, steps: usize) {
        self.points.reserve(steps.min(Self::MOST));
    }

    /// Takes a step from `x` to `y` of the pair.
    pub fn see(&mut self, pair: &Pair) {
        if pair.distance == 0.0 {
            return;
        }
        if pair.error > 1e-3 * pair.gradient_difference {
            self.unclear += 1;
        } else {
            self.push(pair.grad_norm, pair.gradient_difference / pair.distance, pair.distance);
        }
    }

    /// Takes one point: `‖g_t‖`, the smoothness between `x_t` and `x_{t+1}`, and the length of that step.
    pub fn push(&mut self, grad_norm: f64, smoothness: f64, length: f64) {
        let point = Point { grad_norm, smoothness, length };
        if [grad_norm, smoothness, length].iter().any(|v| !(v.is_finite() && *v >= 0.0)) {
            self.unclear += 1;
        } else if self.l1.is_some_and(|l1| !within(length, l1)) {
            self.too_long += 1;
        } else {
            self.keep(point);
        }
    }

    fn keep(&mut self, point: Point) {
        self.since += 1;
        if self.since < self.stride {
            return;
        }
        self.since = 0;
        if self.points.len() == Self::MOST {
            let mut odd = false;
            self.points.retain(|_| {
                odd = !odd;
                odd
            });
            self.stride = self.stride.max(1) * 2;
        }
        self.points.push(point);
    }

    /// Fits both lines.
    pub fn read(&self) -> Reading {
        let mut kept = self.points.clone();
        let mut envelope = fit_envelope(&kept);
        let mut settled = envelope.is_some();
        if self.l1.is_none() {
            for _ in 1..Self::ROUNDS {
                let Some(line) = envelope else { break };
                let next: Vec<Point> =
                    self.points.iter().filter(|p| within(p.length, line.l1)).copied().collect();
                settled = same(&next, &kept);
                if settled || next.is_empty() {
                    break;
                }
                kept = next;
                envelope = fit_envelope(&kept);
            }
        }
        Reading {
            points: kept.len() as u64,
            too_long: self.too_long + (self.points.len() - kept.len()) as u64,
            unclear: self.unclear,
            envelope,
            regression: fit_regression(&kept),
            settled,
        }
    }
}

/// Both are selections by length from the same points: equal where they have as many and the same longest step.
fn same(a: &[Point], b: &[Point]) -> bool {
    let longest = |points: &[Point]| points.iter().fold(0.0, |m: f64, p| m.max(p.length));
    a.len() == b.len() && longest(a) == longest(b)
}

/// Powers of two near the largest values of both coordinates (1 in place of 0): in these units nothing overflows, what
/// underflows does not matter beside the largest, and scaling rounds nothing.
fn units(points: &[Point]) -> (f64, f64) {
    let unit = |of: fn(&Point) -> f64| {
        let largest = points.iter().map(of).fold(0.0, f64::max);
        let power = f64::from_bits(largest.to_bits() & f64::INFINITY.to_bits());
        if largest > 0.0 { power.max(f64::MIN_POSITIVE) } else { 1.0 }
    };
    (unit(|p| p.grad_norm), unit(|p| p.smoothness))
}

/// The line `a + b·x` above all points `(x_i, y_i) ≥ 0` with `a, b ≥ 0` and the least `Σ (a + b·x_i − y_i)`.
///
/// The sum is `n(a + b·x̄) − Σ y_i`: the line must be as low as it can be at the mean abscissa `x̄`. For a slope `b` the
/// best intercept is `a(b) = max(0, m(b))` with `m(b) = max_i(y_i − b·x_i)`.
///
/// - Without the signs, `m(b) + b·x̄` is convex in `b` and least at the slope of the edge of the upper hull above `x̄`;
///   at a vertex both neighbours are as good, and so is every slope between: the flatter is taken.
/// - `m` never increases and reaches 0 at `b_0 = max y_i/x_i` (never, where some `y_i > 0` has `x_i = 0`). Beyond
///   `b_0` the height is `b·x̄`, which only grows: so no slope above `b_0` is needed.
/// - On `[0, b_0]` the signs cost nothing, and a convex function is least at its minimiser clamped to the interval:
///   a falling edge becomes the level line at `max y_i`, an edge with a negative intercept the ray of slope `b_0`.
///
/// One point, or points above each other, have no edge: every slope up to `b_0` is as good, and the level line is taken.
fn fit_envelope(points: &[Point]) -> Option<Line> {
    if points.is_empty() {
        return None;
    }
    let (x_unit, y_unit) = units(points);
    let mut scaled: Vec<(f64, f64)> =
        points.iter().map(|p| (p.grad_norm / x_unit, p.smoothness / y_unit)).collect();
    let mean = scaled.iter().map(|p| p.0).sum::<f64>() / scaled.len() as f64;
    let steepest = scaled.iter().map(|&(x, y)| if y == 0.0 { 0.0 } else { y / x }).fold(0.0, f64::max);

    scaled.sort_by(|p, q| p.0.total_cmp(&q.0).then(q.1.total_cmp(&p.1)));
    scaled.dedup_by_key(|p| p.0);
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for &p in &scaled {
        while let [.., a, b] = hull[..] {
            let turns_left = (b.0 - a.0) * (p.1 - a.1) >= (p.0 - a.0) * (b.1 - a.1);
            if !turns_left {
                break;
            }
            hull.pop();
        }
        hull.push(p);
    }
    let right = hull.partition_point(|p| p.0 <= mean).min(hull.len() - 1);
    let slope = if right == 0 {
        0.0
    } else {
        let (a, b) = (hull[right - 1], hull[right]);
        (b.1 - a.1) / (b.0 - a.0)
    };
    let slope = slope.max(0.0).min(steepest);
    // A slope that is no ordinary number in the points' own units becomes the level line.
    let per_unit = y_unit / x_unit;
    let slope = if (slope * per_unit).is_normal() { slope } else { 0.0 };
    // Over the hull's edge the intercept is the same for both ends but for rounding; the maximum over all points
    // makes the line lie above them whatever the hull's arithmetic did.
    let intercept = scaled.iter().map(|&(x, y)| y - slope * x).fold(0.0, f64::max);
    let line = Line { l0: intercept * y_unit, l1: if slope == 0.0 { 0.0 } else { slope * per_unit } };
    (line.l0.is_finite() && line.l1.is_finite()).then_some(line)
}

/// `None` with fewer than two abscissae.
fn fit_regression(points: &[Point]) -> Option<Regression> {
    let (x_unit, y_unit) = units(points);
    let n = points.len() as f64;
    let scaled = || points.iter().map(|p| (p.grad_norm / x_unit, p.smoothness / y_unit));
    let (x_mean, y_mean) = scaled().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x / n, sy + y / n));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in scaled() {
        let (dx, dy) = (x - x_mean, y - y_mean);
        xx += dx * dx;
        xy += dx * dy;
        yy += dy * dy;
    }
    // Equal values leave at most their rounding about the mean.
    let nothing = n * (f64::EPSILON * n).powi(2);
    if points.len() < 2 || xx <= nothing {
        return None;
    }
    let slope = xy / xx;
    let line = Line { l0: (y_mean - slope * x_mean) * y_unit, l1: slope * (y_unit / x_unit) };
    let correlation = (yy > nothing).then(|| (xy / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0));
    (line.l0.is_finite() && line.l1.is_finite()).then_some(Regression { line, correlation })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(points: &[(f64, f64)]) -> Reading {
        let mut probe = Probe::new(Some(0.0));
        for &(x, y) in points {
            probe.push(x, y, 1.0);
        }
        probe.read()
    }

    fn envelope(points: &[(f64, f64)]) -> Line {
        read(points).envelope.unwrap()
    }

    #[test]
    fn envelopes_by_hand() {
        // The hull is (0,1), (2,4), (6,5), the mean 2.75: the edge from (2,4) to (6,5).
        assert_eq!(envelope(&[(0.0, 1.0), (2.0, 4.0), (3.0, 2.0), (6.0, 5.0)]), Line { l0: 3.5, l1: 0.25 });
        // With more weight on the left the mean is 0.8 and the edge from (0,1) to (2,4).
        let left = [(0.0, 1.0), (0.0, 0.5), (2.0, 4.0), (0.0, 0.0), (2.0, 1.0)];
        assert_eq!(envelope(&left), Line { l0: 1.0, l1: 1.5 });
        assert_eq!(envelope(&[(0.0, 3.0), (1.0, 1.0), (2.0, 2.0)]), Line { l0: 3.0, l1: 0.0 }, "falling");
        assert_eq!(envelope(&[(1.0, 1.0), (2.0, 8.0)]), Line { l0: 0.0, l1: 4.0 }, "negative intercept");
        // A vertex above the mean: of the slopes 1 … 0 the flattest.
        assert_eq!(envelope(&[(0.0, 0.0), (1.0, 1.0), (2.0, 1.0)]), Line { l0: 1.0, l1: 0.0 });
    }

    #[test]
    fn degenerate() {
        assert_eq!(read(&[]), Reading::default());
        assert_eq!(envelope(&[(3.0, 2.0)]), Line { l0: 2.0, l1: 0.0 });
        assert_eq!(envelope(&[(3.0, 2.0), (3.0, 5.0), (3.0, 1.0)]), Line { l0: 5.0, l1: 0.0 });
        assert_eq!(read(&[(3.0, 2.0), (3.0, 5.0)]).regression, None);
        assert_eq!(envelope(&[(0.0, 0.0), (1.0, 0.0)]), Line { l0: 0.0, l1: 0.0 });
        assert_eq!(read(&[(0.0, 0.0), (1.0, 0.0)]).clipping(), None);
        let odd = read(&[(f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0)]);
        assert_eq!((odd.envelope, odd.unclear), (None, 3));
        let flat = read(&[(0.0, 2.0), (1.0, 2.0), (4.0, 2.0)]);
        assert_eq!(flat.clipping(), Some(Clipping { lr: 0.5, threshold: None }));
        assert_eq!(flat.regression.unwrap().correlation, None);
        let tiny = read(&[(1e-300, 1e-300), (2e-300, 3e-300), (3e-300, 4e-300)]).envelope.unwrap();
        assert!((tiny.l1 - 1.0).abs() < 1e-12 && (tiny.l0 / 1e-300 - 1.0).abs() < 1e-12);
        let huge = read(&[(1e300, 1e300), (2e300, 1.5e300)]).envelope.unwrap();
        assert!((huge.l1 - 0.5).abs() < 1e-12);
    }

    #[test]
    fn regression_by_hand() {
        let r = read(&[(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)]).regression.unwrap();
        assert!((r.line.l1 - 0.5).abs() < 1e-15 && (r.line.l0 - 1.5).abs() < 1e-15);
        assert!((r.correlation.unwrap() - 0.5).abs() < 1e-15);
    }

    #[test]
    fn long_steps_are_left_out() {
        let mut known = Probe::new(Some(2.0));
        let mut unknown = Probe::new(None);
        for i in 0..10 {
            let x = f64::from(i);
            for probe in [&mut known, &mut unknown] {
                probe.push(x, 1.0 + 2.0 * x, 0.01);
            }
        }
        // Steps longer than 1/L1 = ½, far above the line, at a gradient where the steep part of the hull is.
        for probe in [&mut known, &mut unknown] {
            probe.push(9.0, 100.0, 3.0);
        }
        for probe in [known, unknown] {
            let reading = probe.read();
            assert_eq!(reading.points + reading.too_long, 11);
            assert!(reading.settled);
            let line = reading.envelope.unwrap();
            assert_eq!(reading.too_long, 1);
            assert!((line.l0 - 1.0).abs() < 1e-12 && (line.l1 - 2.0).abs() < 1e-12);
        }
    }

    /// Two kinds of steps that exclude each other: no selection is its own answer.
    #[test]
    fn what_does_not_settle_ends_and_says_so() {
        let mut probe = Probe::new(None);
        probe.push(0.0, 1.0, 0.1);
        probe.push(1.0, 1.0, 0.1);
        probe.push(1.0, 11.0, 1.0);
        let reading = probe.read();
        assert!(!reading.settled);
        assert!(reading.envelope.is_some());
    }
}
