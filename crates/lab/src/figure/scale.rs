//! Axes: from values to positions, ranges found from the data, and ticks.

/// How an axis maps values to positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; 0 and negative values have no place.
    Log10,
}

impl Scale {
    /// Whether the value has a place on such an axis.
    pub(super) fn shows(self, value: f64) -> bool {
        value.is_finite() && (self == Scale::Linear || value > 0.0)
    }

    fn forward(self, value: f64) -> f64 {
        if self == Scale::Log10 { value.log10() } else { value }
    }

    fn back(self, value: f64) -> f64 {
        if self == Scale::Log10 { 10f64.powf(value) } else { value }
    }

    pub(super) fn name(self) -> &'static str {
        if self == Scale::Log10 { "log10" } else { "linear" }
    }
}

/// The visible part of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    pub scale: Scale,
    pub lo: f64,
    pub hi: f64,
}

/// Ranges stay within this, so that their width is finite and a log axis needs no subnormal numbers.
const LIMIT: f64 = 1e300;

impl Span {
    /// A range given by the user, if it can be drawn.
    pub fn fixed(scale: Scale, lo: f64, hi: f64) -> Option<Span> {
        let fits = scale.shows(lo) && scale.shows(hi) && lo < hi && lo.abs().max(hi.abs()) <= LIMIT;
        let wide = hi - lo > 1e-12 * lo.abs().max(hi.abs()) && lo.abs().max(hi.abs()) > 1e-300;
        (fits && wide && (scale == Scale::Linear || lo >= 1.0 / LIMIT)).then_some(Span { scale, lo, hi })
    }

    /// The range of the values that have a place on the axis, widened by the share `pad` at each end. Where there is only
    /// one value, a range around it; where there is none, 0 to 1 (1 to 10 on a log axis).
    pub fn around(scale: Scale, values: impl IntoIterator<Item = f64>, pad: f64) -> Span {
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|&v| scale.shows(v)) {
            (lo, hi) = (lo.min(value), hi.max(value));
        }
        if lo > hi {
            (lo, hi) = if scale == Scale::Log10 { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        let least = if scale == Scale::Log10 { 1.0 / LIMIT } else { -LIMIT };
        let (mut a, mut b) = (scale.forward(lo.clamp(least, LIMIT)), scale.forward(hi.clamp(least, LIMIT)));
        let size = a.abs().max(b.abs());
        if b - a <= 1e-9 * size || size < 1e-300 {
            let half = match scale {
                Scale::Log10 => 1.0,
                Scale::Linear if size < 1e-300 => 1.0,
                Scale::Linear => 0.1 * size,
            };
            (a, b) = (a - half, b + half);
        } else {
            (a, b) = (a - pad * (b - a), b + pad * (b - a));
        }
        if scale == Scale::Log10 {
            (a, b) = (a.max(-307.0), b.min(308.0));
        }
        Span { scale, lo: scale.back(a), hi: scale.back(b) }
    }

    /// Position of a value that the scale shows: 0 at the lower end, 1 at the upper one, bounded far outside.
    pub fn unit(&self, value: f64) -> f64 {
        let (a, b) = (self.scale.forward(self.lo), self.scale.forward(self.hi));
        ((self.scale.forward(value) - a) / (b - a)).clamp(-1e4, 1e4)
    }

    /// The value at a position.
    pub fn at(&self, unit: f64) -> f64 {
        let (a, b) = (self.scale.forward(self.lo), self.scale.forward(self.hi));
        self.scale.back(a + unit * (b - a))
    }

    /// Ticks with at most about `most` labels.
    pub fn ticks(&self, most: usize) -> Ticks {
        match self.scale {
            Scale::Linear => linear_ticks(self.lo, self.hi, most),
            Scale::Log10 => log_ticks(self.lo, self.hi, most),
        }
    }
}

/// A tick; a minor one has no label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub at: f64,
    pub label: Option<String>,
}

/// Ticks in ascending order; labels are to be multiplied by `10^exponent`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ticks {
    pub list: Vec<Tick>,
    pub exponent: i32,
}

/// `10^exponent`, correctly rounded (`powi` is not for negative exponents).
fn power(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(0.0)
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(lo: f64, hi: f64, most: usize) -> Ticks {
    let raw = (hi - lo) / most.max(2) as f64;
    let mut decade = raw.log10().floor() as i32;
    let factor = match raw / power(decade) {
        r if r <= 1.0 + 1e-9 => 1,
        r if r <= 2.0 + 1e-9 => 2,
        r if r <= 5.0 + 1e-9 => 5,
        _ => {
            decade += 1;
            1
        }
    };
    let step = factor as f64 * power(decade);
    // Dividing by a whole power of ten rounds once: the tick 0.3 is the number 0.3.
    let value = |k: i64| {
        let whole = (k * factor) as f64;
        if decade < 0 && decade > -300 { whole / power(-decade) } else { whole * power(decade) }
    };
    let (first, last) = ((lo / step - 1e-9).ceil() as i64, (hi / step + 1e-9).floor() as i64);
    let values: Vec<f64> = (first..=last).map(value).collect();
    let largest = values.iter().fold(0f64, |m, v| m.max(v.abs()));
    let exponent = if largest == 0.0 || (1e-3..1e5).contains(&largest) {
        0
    } else {
        // Through text, because log10 of 1000 may lie below 3.
        format!("{largest:e}").split('e').nth(1).and_then(|e| e.parse().ok()).unwrap_or(0)
    };
    let decimals = (exponent - decade).max(0) as usize;
    let label = |v: f64| format!("{:.decimals$}", v / power(exponent)).replace('-', "−");
    Ticks { list: values.into_iter().map(|at| Tick { at, label: Some(label(at)) }).collect(), exponent }
}

/// Powers of ten, every n-th labelled where there are many; 1, 2, 5 within a decade or two; linear ticks within less.
fn log_ticks(lo: f64, hi: f64, most: usize) -> Ticks {
    let (first, last) = ((lo.log10() - 1e-9).ceil() as i32, (hi.log10() + 1e-9).floor() as i32);
    let mantissas = |labelled: &[u32], exponents: bool| -> Vec<Tick> {
        let decades = (first - 1..=last).flat_map(|e| (1..10).map(move |m| (m, e)));
        let ticks = decades.map(|(m, e)| Tick {
            at: f64::from(m) * power(e),
            label: labelled.contains(&m).then(|| match exponents {
                true => format!("10^{{{}}}", minus(e)),
                false => number(f64::from(m) * power(e)),
            }),
        });
        ticks.filter(|t| t.at >= lo * (1.0 - 1e-9) && t.at <= hi * (1.0 + 1e-9)).collect()
    };
    let labels = |list: &[Tick]| list.iter().filter(|t| t.label.is_some()).count();
    if last <= first {
        let list = mantissas(&[1, 2, 5], false);
        if (2..=most.max(3)).contains(&labels(&list)) {
            return Ticks { list, exponent: 0 };
        }
        let mut ticks = linear_ticks(lo, hi, most.min(4));
        ticks.list.retain(|t| t.at > 0.0);
        return ticks;
    }
    let strides = [1, 2, 3, 4, 5, 10, 20, 25, 50, 100, 200, 300];
    let count = |stride: i32| ((last - first) / stride + 1) as usize;
    let stride = strides.into_iter().find(|&s| count(s) <= most.max(2)).unwrap_or(600);
    if stride == 1 {
        return Ticks { list: mantissas(&[1], true), exponent: 0 };
    }
    let aligned = (first..=last).filter(|e| e % stride == 0).count() >= 2;
    let anchor = if aligned { 0 } else { first };
    // Unlabelled decades only where they do not crowd.
    let minor = if stride <= 5 { 1 } else { stride };
    let list = (first..=last).filter(|e| (e - anchor) % minor == 0).map(|e| Tick {
        at: power(e),
        label: ((e - anchor) % stride == 0).then(|| format!("10^{{{}}}", minus(e))),
    });
    Ticks { list: list.collect(), exponent: 0 }
}

fn minus(e: i32) -> String {
    e.to_string().replace('-', "−")
}

/// A number for a label: plain where that is short, else `2×10^{−7}`.
fn number(value: f64) -> String {
    if (1e-3..1e5).contains(&value.abs()) {
        return format!("{value}").replace('-', "−");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power = format!("10^{{{exponent}}}").replace('-', "−");
    if mantissa == "1" { power } else { format!("{}×{power}", mantissa.replace('-', "−")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &Ticks) -> Vec<&str> {
        ticks.list.iter().filter_map(|t| t.label.as_deref()).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        let t = linear_ticks(0.0, 1.0, 5);
        assert_eq!(labels(&t), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(t.list[3].at, 0.6, "not 0.6000000000000001");
        assert_eq!(labels(&linear_ticks(-0.31, 0.29, 5)), ["−0.2", "0.0", "0.2"]);
        assert_eq!(labels(&linear_ticks(3.9, 10.9, 5)), ["4", "6", "8", "10"]);
        assert_eq!(labels(&linear_ticks(0.0, 10_000.0, 4)), ["0", "5000", "10000"]);
        assert_eq!(labels(&linear_ticks(0.0, 10_000.0, 5)), ["0", "2000", "4000", "6000", "8000", "10000"]);
    }

    #[test]
    fn large_and_small_linear_ticks_share_an_exponent() {
        let t = linear_ticks(0.0, 2e6, 4);
        assert_eq!((labels(&t), t.exponent), (vec!["0.0", "0.5", "1.0", "1.5", "2.0"], 6));
        let t = linear_ticks(-3e-7, 1e-7, 4);
        assert_eq!((labels(&t), t.exponent), (vec!["−3", "−2", "−1", "0", "1"], -7));
    }

    #[test]
    fn log_ticks_are_decades() {
        let t = log_ticks(0.5, 2e3, 6);
        assert_eq!(labels(&t), ["10^{0}", "10^{1}", "10^{2}", "10^{3}"]);
        let minor: Vec<f64> = t.list.iter().filter(|t| t.label.is_none()).map(|t| t.at).collect();
        assert_eq!(
            minor[..6],
            [0.5, 0.6, 0.7, 0.8, 0.9, 2.0].map(|v: f64| if v < 1.0 { (v * 10.0) * 0.1 } else { v })
        );
        assert_eq!(minor.len(), 5 + 3 * 8 + 1);
        assert_eq!(
            labels(&log_ticks(1e-16, 1e5, 8)),
            ["10^{−15}", "10^{−12}", "10^{−9}", "10^{−6}", "10^{−3}", "10^{0}", "10^{3}"]
        );
        assert_eq!(labels(&log_ticks(1e1, 1e9, 2)), ["10^{1}", "10^{6}"]);
    }

    #[test]
    fn narrow_log_axes_have_labels_too() {
        assert_eq!(labels(&log_ticks(1.5, 30.0, 5)), ["2", "5", "10", "20"]);
        assert_eq!(labels(&log_ticks(3.1, 3.9, 5)), ["3.2", "3.4", "3.6", "3.8"]);
        assert_eq!(labels(&log_ticks(1.5e-7, 7e-7, 5)), ["2×10^{−7}", "5×10^{−7}"]);
    }

    #[test]
    fn ranges_survive_every_input() {
        let span = |scale, values: &[f64]| Span::around(scale, values.iter().copied(), 0.05);
        assert_eq!(span(Scale::Linear, &[0.0, 10.0]), Span { scale: Scale::Linear, lo: -0.5, hi: 10.5 });
        assert_eq!(span(Scale::Linear, &[]), Span { scale: Scale::Linear, lo: -0.05, hi: 1.05 });
        let s = span(Scale::Log10, &[0.0, -1.0, f64::NAN, f64::INFINITY, 1e-4, 1e4]);
        assert!((s.lo.log10() + 4.4).abs() < 1e-9 && (s.hi.log10() - 4.4).abs() < 1e-9, "{s:?}");
        let awkward = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            5e-324,
            1e-310,
            f64::MAX,
            f64::MIN,
            f64::NAN,
            f64::INFINITY,
            1e16,
            1e16 + 2.0,
            1e-300,
        ];
        for scale in [Scale::Linear, Scale::Log10] {
            for (a, b) in awkward.iter().flat_map(|&a| awkward.map(|b| (a, b))) {
                let s = span(scale, &[a, b]);
                assert!(s.lo < s.hi && s.lo.is_finite() && s.hi.is_finite(), "{scale:?} {a} {b}: {s:?}");
                let ticks = s.ticks(5);
                assert!(ticks.list.len() < 100, "{scale:?} {a} {b}: {}", ticks.list.len());
                assert!(
                    ticks.list.iter().all(|t| (-1e-6..=1.0 + 1e-6).contains(&s.unit(t.at))),
                    "{s:?} {ticks:?}"
                );
                assert!(labels(&ticks).len() >= 2, "{s:?} {ticks:?}");
            }
        }
        assert_eq!(Span::fixed(Scale::Log10, 0.0, 1.0), None);
        assert_eq!(Span::fixed(Scale::Linear, 1.0, 1.0), None);
        assert_eq!(Span::fixed(Scale::Linear, f64::NAN, 1.0), None);
    }
}
