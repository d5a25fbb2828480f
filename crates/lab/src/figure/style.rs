//! How a series looks: colour, dash pattern and marker, each of them enough to tell it from its neighbours.

/// The look of one series. Two series of one figure should differ in all three, so that it reads in black and white too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Style {
    /// Colour of line, markers and band.
    pub color: Color,
    /// Dash pattern of the line.
    pub dash: Dash,
    /// Shape of the markers.
    pub marker: Marker,
}

impl Style {
    /// The `i`-th style; the first 24 are different, the first six also differ pairwise in colour, dash and marker.
    pub fn nth(i: usize) -> Style {
        let again = i / Color::ALL.len();
        Style {
            color: Color::ALL[i % Color::ALL.len()],
            dash: Dash::ALL[i % Dash::ALL.len()],
            marker: Marker::ALL[(i + again) % Marker::ALL.len()],
        }
    }
}

/// Hands out styles by key, so that a method looks the same in every figure made with one palette.
///
/// ```
/// use untuned_lab::figure::{Palette, Style};
/// let mut palette = Palette::new(["gd", "clipped-gd"]);
/// assert_eq!(palette.style("clipped-gd"), Style::nth(1));
/// assert_eq!(palette.style("dog"), Style::nth(2), "a new key gets the next style and keeps it");
/// assert_eq!(palette.style("dog"), Style::nth(2));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Palette {
    keys: Vec<String>,
}

impl Palette {
    /// A palette in which the given keys have the first styles, in this order.
    pub fn new<K: Into<String>>(keys: impl IntoIterator<Item = K>) -> Palette {
        Palette { keys: keys.into_iter().map(Into::into).collect() }
    }

    /// The style of a key; a key not seen before takes the next free one.
    pub fn style(&mut self, key: &str) -> Style {
        let i = self.keys.iter().position(|k| k == key).unwrap_or_else(|| {
            self.keys.push(key.into());
            self.keys.len() - 1
        });
        Style::nth(i)
    }
}

/// Colours that people with any common colour blindness can tell apart (Okabe and Ito's, without the yellow that vanishes
/// on white, with Tol's wine), ordered so that neighbours differ in lightness; then four more for figures with many methods,
/// where dash and marker must help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say what they are")]
pub enum Color {
    Blue,
    Vermilion,
    Green,
    Purple,
    Orange,
    Ink,
    Sky,
    Wine,
    Olive,
    Indigo,
    Rose,
    Gray,
}

impl Color {
    /// Every colour, in the order of [`Style::nth`].
    pub const ALL: [Color; 12] = [
        Color::Blue,
        Color::Vermilion,
        Color::Green,
        Color::Purple,
        Color::Orange,
        Color::Ink,
        Color::Sky,
        Color::Wine,
        Color::Olive,
        Color::Indigo,
        Color::Rose,
        Color::Gray,
    ];

    /// As `#rrggbb`, on white.
    pub fn hex(self) -> &'static str {
        match self {
            Color::Blue => "#0072b2",
            Color::Vermilion => "#d55e00",
            Color::Green => "#009e73",
            Color::Purple => "#b85c92",
            Color::Orange => "#e69f00",
            Color::Ink => "#222222",
            Color::Sky => "#56b4e9",
            Color::Wine => "#882255",
            Color::Olive => "#8a8a2e",
            Color::Indigo => "#44319c",
            Color::Rose => "#cc6677",
            Color::Gray => "#808890",
        }
    }

    /// For a page: the custom property `--series-blue` and so on, else the colour on white; ink follows the text.
    pub(super) fn css(self) -> &'static str {
        match self {
            Color::Blue => "var(--series-blue, #0072b2)",
            Color::Vermilion => "var(--series-vermilion, #d55e00)",
            Color::Green => "var(--series-green, #009e73)",
            Color::Purple => "var(--series-purple, #b85c92)",
            Color::Orange => "var(--series-orange, #e69f00)",
            Color::Ink => "var(--series-ink, currentColor)",
            Color::Sky => "var(--series-sky, #56b4e9)",
            Color::Wine => "var(--series-wine, #882255)",
            Color::Olive => "var(--series-olive, #8a8a2e)",
            Color::Indigo => "var(--series-indigo, #44319c)",
            Color::Rose => "var(--series-rose, #cc6677)",
            Color::Gray => "var(--series-gray, #808890)",
        }
    }
}

/// Dash patterns, short enough to repeat twice in a legend entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say what they are")]
pub enum Dash {
    Solid,
    Dashed,
    DashDot,
    Dotted,
    LongDash,
    DashDotDot,
}

impl Dash {
    /// Every pattern, in the order of [`Style::nth`].
    pub const ALL: [Dash; 6] =
        [Dash::Solid, Dash::Dashed, Dash::DashDot, Dash::Dotted, Dash::LongDash, Dash::DashDotDot];

    /// Value of `stroke-dasharray` in px; `None` for a solid line.
    pub(super) fn pattern(self) -> Option<&'static str> {
        match self {
            Dash::Solid => None,
            Dash::Dashed => Some("5 2"),
            Dash::DashDot => Some("6.5 1.8 1.6 1.8"),
            Dash::Dotted => Some("1.7 1.7"),
            Dash::LongDash => Some("10 2.5"),
            Dash::DashDotDot => Some("6 1.6 1.5 1.6 1.5 1.6"),
        }
    }
}

/// Marker shapes. There is no triangle pointing down: at the lower edge it says that a value has no place on a log axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say what they are")]
pub enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Ring,
    Plus,
    Star,
}

impl Marker {
    /// Every shape, in the order of [`Style::nth`].
    pub const ALL: [Marker; 8] = [
        Marker::Circle,
        Marker::Square,
        Marker::Triangle,
        Marker::Diamond,
        Marker::Cross,
        Marker::Ring,
        Marker::Plus,
        Marker::Star,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn styles_are_different() {
        let all: HashSet<Style> = (0..24).map(Style::nth).collect();
        assert_eq!(all.len(), 24);
        for (i, j) in (0..6).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let (a, b) = (Style::nth(i), Style::nth(j));
            assert!(a.color != b.color && a.dash != b.dash && a.marker != b.marker, "{i} and {j}");
        }
        assert_ne!(Style::nth(0).marker, Style::nth(12).marker);
        assert_eq!((0..12).map(|i| Style::nth(i).color).collect::<HashSet<_>>().len(), 12);
    }
}
