//! The font, widths of labels, and labels with super- and subscripts.

use base64::{Engine, engine::general_purpose::STANDARD};
use resvg::usvg::fontdb;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

const REGULAR: &[u8] = include_bytes!("../../assets/fonts/Inter-Regular.subset.otf");
const SEMIBOLD: &[u8] = include_bytes!("../../assets/fonts/Inter-SemiBold.subset.otf");

/// Size of a super- or subscript relative to its text.
const SCRIPT: f64 = 0.74;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    Regular,
    SemiBold,
}

/// The figures' font as `@font-face` rules with data URIs, for a page that embeds [`Figure::svg`](super::Figure::svg).
pub fn font_face_css() -> String {
    [(REGULAR, 400), (SEMIBOLD, 600)]
        .map(|(data, weight)| {
            format!(
                "@font-face{{font-family:Inter;font-style:normal;font-weight:{weight};\
                 src:url(data:font/otf;base64,{}) format(\"opentype\")}}\n",
                STANDARD.encode(data)
            )
        })
        .concat()
}

/// Only the embedded font, so that a figure looks the same on every machine; parsed once.
pub(super) fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_source(fontdb::Source::Binary(Arc::new(REGULAR)));
        fonts.load_font_source(fontdb::Source::Binary(Arc::new(SEMIBOLD)));
        fonts.set_sans_serif_family("Inter");
        Arc::new(fonts)
    };
    FONTS.get_or_init(load).clone()
}

/// Width of a label in px; without kerning, which changes it by about a percent.
pub(super) fn width(label: &str, size: f64, weight: Weight) -> f64 {
    static ADVANCES: OnceLock<[HashMap<char, f64>; 2]> = OnceLock::new();
    let tables = ADVANCES.get_or_init(|| [REGULAR, SEMIBOLD].map(|font| advances(font).unwrap_or_default()));
    let table = &tables[usize::from(weight == Weight::SemiBold)];
    let em = |text: &str| text.chars().map(|c| table.get(&c).copied().unwrap_or(0.6)).sum::<f64>();
    runs(label)
        .map(|(script, text)| em(text) * if script == Script::None { size } else { size * SCRIPT })
        .sum()
}

/// Advance width of every character of an OpenType font with a format 4 `cmap`, in em.
fn advances(font: &[u8]) -> Option<HashMap<char, f64>> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(font.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_be_bytes(font.get(at..at + 4)?.try_into().ok()?) as usize);
    let table = |tag: &[u8]| {
        let records = (0..usize::from(u16_at(4)?)).map(|i| 12 + 16 * i);
        u32_at(records.into_iter().find(|&r| font.get(r..r + 4) == Some(tag))? + 8)
    };
    let (cmap, hmtx) = (table(b"cmap")?, table(b"hmtx")?);
    let per_em = f64::from(u16_at(table(b"head")? + 18)?);
    let metrics = usize::from(u16_at(table(b"hhea")? + 34)?);
    let map = cmap + u32_at(cmap + 8)?;
    let double_segments = usize::from(u16_at(map + 6)?);
    let mut found = HashMap::new();
    for at in (map + 14..map + 14 + double_segments).step_by(2) {
        let (start, delta) = (at + 2 + double_segments, at + 2 + 2 * double_segments);
        let offset_at = delta + double_segments;
        let (first, last, offset) = (u16_at(start)?, u16_at(at)?, usize::from(u16_at(offset_at)?));
        for code in first..=last.min(0xfffe) {
            let glyph = match offset {
                0 => code.wrapping_add(u16_at(delta)?),
                _ => match u16_at(offset_at + offset + 2 * usize::from(code - first))? {
                    0 => continue,
                    glyph => glyph.wrapping_add(u16_at(delta)?),
                },
            };
            let advance = u16_at(hmtx + 4 * usize::from(glyph).min(metrics - 1))?;
            found.extend(char::from_u32(code.into()).map(|c| (c, f64::from(advance) / per_em)));
        }
    }
    Some(found)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    None,
    Super,
    Sub,
}

/// Splits `10^{−8}` into text and scripts; `^` and `_` without a brace are plain characters.
fn runs(label: &str) -> impl Iterator<Item = (Script, &str)> {
    let mut rest = label;
    std::iter::from_fn(move || {
        let script = match rest.get(..2) {
            Some("^{") => Script::Super,
            Some("_{") => Script::Sub,
            _ => Script::None,
        };
        if let (Script::Super | Script::Sub, Some(end)) = (script, rest.find('}')) {
            let run = (script, &rest[2..end]);
            rest = &rest[end + 1..];
            return Some(run);
        }
        let skip = rest.chars().next()?.len_utf8();
        let next = [rest[skip..].find("^{"), rest[skip..].find("_{")].into_iter().flatten().min();
        let (run, after) = rest.split_at(next.map_or(rest.len(), |n| n + skip));
        rest = after;
        Some((Script::None, run))
    })
}

/// A label without its markup: `10^{−8}` as `10−8`, for attributes that a program reads.
pub(super) fn plain(label: &str) -> String {
    runs(label).map(|(_, text)| text).collect()
}

/// Writes a label as the content of a `<text>` element of the given size.
pub(super) fn write_label(out: &mut String, label: &str, size: f64) {
    let mut shift = 0.0;
    for (script, text) in runs(label) {
        let wanted = match script {
            Script::None => 0.0,
            Script::Super => -0.36 * size,
            Script::Sub => 0.16 * size,
        };
        if wanted == shift && script == Script::None {
            escape(out, text);
            continue;
        }
        let _ = write!(out, "<tspan dy=\"{:.2}\"", wanted - shift);
        if script != Script::None {
            let _ = write!(out, " font-size=\"{:.2}\"", size * SCRIPT);
        }
        out.push('>');
        escape(out, text);
        out.push_str("</tspan>");
        shift = wanted;
    }
}

/// Appends text, escaped for XML content and attributes; characters that XML 1.0 cannot hold are left out.
pub(super) fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {}
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_labels_need() {
        for font in [REGULAR, SEMIBOLD] {
            let table = advances(font).unwrap();
            let missing: String = "AZaz09−×·√∞≤≥≈≠±‖∥½→←↑↓✓✗∂∇∑∏∫…–ℓ⁰¹²³⁴⁵⁶⁷⁸⁹⁻₀₁₂₃₄₅₆₇₈₉αβγηλΔ*"
                .chars()
                .filter(|c| !table.contains_key(c))
                .collect();
            assert_eq!(missing, "");
        }
        let faces: Vec<_> = fonts().faces().map(|f| (f.families[0].0.clone(), f.weight.0)).collect();
        assert_eq!(faces, [("Inter".to_string(), 400), ("Inter".to_string(), 600)]);
    }

    #[test]
    fn widths_are_those_of_the_font() {
        // Advances read with fonttools: "m" 2448, "i" 668 of 2816 units per em.
        let (m, i) = (width("m", 1.0, Weight::Regular), width("i", 1.0, Weight::Regular));
        assert_eq!((m, i), (2448.0 / 2816.0, 668.0 / 2816.0));
        assert!(width("m", 1.0, Weight::SemiBold) > m);
        assert!(
            (width("a^{m}", 10.0, Weight::Regular) - width("a", 10.0, Weight::Regular) - 7.4 * m).abs()
                < 1e-9
        );
    }

    #[test]
    fn scripts_are_found() {
        let of = |label| runs(label).collect::<Vec<_>>();
        assert_eq!(of("10^{−8}"), [(Script::None, "10"), (Script::Super, "−8")]);
        assert_eq!(
            of("x_{t}^{2} y"),
            [(Script::None, "x"), (Script::Sub, "t"), (Script::Super, "2"), (Script::None, " y")]
        );
        assert_eq!(of("eps_rel^"), [(Script::None, "eps_rel^")]);
        assert_eq!(of("a_{b"), [(Script::None, "a"), (Script::None, "_{b")]);
        assert_eq!(of("_{√"), [(Script::None, "_{√")]);
        assert_eq!(plain("L_{1} = 10^{3}"), "L1 = 103");
    }
}
