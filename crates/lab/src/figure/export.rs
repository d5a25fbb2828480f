//! SVG text, SVG with outlines, PNG.

use super::{Figure, svg, text};
use rayon::prelude::*;
use resvg::{tiny_skia, usvg};

/// Most pixels on one side of a PNG.
const LARGEST: f64 = 32_768.0;

/// Why a figure could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The SVG did not parse: a bug of this module.
    #[error("the figure's SVG is not valid: {0}")]
    Svg(#[from] usvg::Error),
    /// A PNG with no pixels or too many.
    #[error(
        "a PNG of {width:.0} × {height:.0} pixels (scale {scale}) cannot be made: each side must have 1 to 32768"
    )]
    Size {
        /// The scale asked for.
        scale: f32,
        /// Width that it would have.
        width: f64,
        /// Height that it would have.
        height: f64,
    },
    /// The encoder failed.
    #[error("the PNG could not be encoded: {0}")]
    Png(String),
}

/// 288 pixels per inch: a figure of 7 inches is 2016 pixels wide.
const PNG_SCALE: f32 = 3.0;

/// Figures as files, SVG and PNG: name and content. Letters are outlines, so they look the same everywhere.
///
/// # Errors
/// When a figure cannot be rendered, which would be a mistake of ours.
pub fn files<'a>(
    figures: impl IntoIterator<Item = (&'a str, &'a Figure)>,
) -> Result<Vec<(String, Vec<u8>)>, FigureError> {
    let figures: Vec<(&str, &Figure)> = figures.into_iter().collect();
    let draw = |(name, figure): &(&str, &Figure)| {
        let (svg, png) = rayon::join(|| figure.svg_outlined(), || figure.png(PNG_SCALE));
        Ok([(format!("{name}.svg"), svg?.into_bytes()), (format!("{name}.png"), png?)])
    };
    let drawn: Result<Vec<_>, FigureError> = figures.par_iter().map(draw).collect();
    Ok(drawn?.into_iter().flatten().collect())
}

impl Figure {
    /// The SVG for a page: text as text in the family Inter (see [`font_face_css`](super::font_face_css)), ink in
    /// `currentColor`, no background, data for scripts.
    pub fn svg(&self) -> String {
        svg::write(self, svg::Paint::Page)
    }

    /// The SVG for a file: text as outlines, dark ink on white; it looks the same everywhere.
    pub fn svg_outlined(&self) -> Result<String, FigureError> {
        let options = usvg::WriteOptions {
            coordinates_precision: 3,
            transforms_precision: 5,
            indent: usvg::Indent::None,
            attributes_indent: usvg::Indent::None,
            ..usvg::WriteOptions::default()
        };
        Ok(self.tree()?.to_string(&options))
    }

    /// A PNG with dark ink on white; `scale` 1 is 96 pixels per inch, 2 suits screens, 4 print.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, FigureError> {
        let tree = self.tree()?;
        let side = |length: f32| (f64::from(length) * f64::from(scale)).round();
        let (width, height) = (side(tree.size().width()), side(tree.size().height()));
        let fits = |side: f64| (1.0..=LARGEST).contains(&side);
        let pixmap = if fits(width) && fits(height) {
            tiny_skia::Pixmap::new(width as u32, height as u32)
        } else {
            None
        };
        let mut pixmap = pixmap.ok_or(FigureError::Size { scale, width, height })?;
        resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|e| FigureError::Png(e.to_string()))
    }

    fn tree(&self) -> Result<usvg::Tree, FigureError> {
        let options =
            usvg::Options { fontdb: text::fonts(), font_family: "Inter".into(), ..usvg::Options::default() };
        Ok(usvg::Tree::from_str(&svg::write(self, svg::Paint::File), &options)?)
    }
}
