//! Parts of a page: tables, figures, claims.

use std::fmt::Write;

use crate::claims::{Claim, Verdict};
use crate::figure::Figure;

/// Text as HTML, for content and for quoted attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table whose first row is its header.
pub fn table(rows: &[Vec<String>]) -> String {
    let mut out = "<div class=scroll><table>".to_string();
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in row {
            // Writing to a string cannot fail.
            let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out + "</table></div>"
}

/// A figure with its caption. Where all values are positive it is written with a linear and with a log axis, the one it was
/// made with first, and the page has a button that switches.
pub fn figure(id: &str, figure: &Figure, caption: &str) -> String {
    let mut out = format!("<figure id=\"{}\"><div class=scroll>", escape(id));
    let _ = write!(out, "<div class=variant>{}</div>", figure.svg());
    if let Some(other) = figure.other_scale() {
        let _ = write!(out, "<div class=variant hidden>{}</div>", other.svg());
    }
    let _ = write!(out, "</div><figcaption>{}</figcaption></figure>", escape(caption));
    out
}

/// A list of claims with their verdicts and the numbers behind them; claim 3 has the id `claim-PREFIX-3`. The introduction is
/// plain text.
pub fn claims(prefix: &str, intro: &str, claims: &[Claim]) -> String {
    let mut out = format!("<p>{}</p><ol class=claims>", escape(intro));
    for claim in claims {
        let class = match claim.verdict {
            Verdict::Holds => "yes",
            Verdict::HoldsInPart => "part",
            Verdict::DoesNotHold => "no",
            Verdict::NotDecided => "open",
        };
        let recorded = claim.recorded.as_ref().map_or(String::new(), |recorded| {
            format!(" <span class=recorded>at full scale: {}</span>", escape(recorded))
        });
        let _ = write!(
            out,
            "<li id=\"claim-{}-{}\" value={}><p class=claim>{} <span class=\"verdict {class}\">{} {}</span>{recorded}</p><p>{}.</p>{}</li>",
            escape(prefix),
            claim.number,
            claim.number,
            escape(&claim.claim),
            claim.verdict.mark(),
            claim.verdict.words(),
            escape(&claim.measured),
            details("the numbers", &table(&claim.table))
        );
    }
    out + "</ol>"
}

/// How many claims hold, in one sentence.
pub fn tally(claims: &[Claim]) -> String {
    let of = |verdict| claims.iter().filter(|c| c.verdict == verdict).count();
    let [holds, part, not, open] =
        [Verdict::Holds, Verdict::HoldsInPart, Verdict::DoesNotHold, Verdict::NotDecided].map(of);
    let open = if open == 0 { String::new() } else { format!(" {open} are not decided at this scale.") };
    format!("Of {} claims {holds} hold, {part} hold in part, and of {not} nothing holds.{open}", claims.len())
}

/// Something that opens when its summary is pressed, and in print. The summary is plain text.
pub fn details(summary: &str, html: &str) -> String {
    format!("<details><summary>{}</summary>{html}</details>", escape(summary))
}

/// A block of text as it is, such as a command.
pub fn code(text: &str) -> String {
    format!("<pre class=scroll><code>{}</code></pre>", escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Panel, Series, Style};

    fn claim(number: u32, verdict: Verdict, recorded: Option<&str>) -> Claim {
        Claim {
            number,
            claim: "a < b".into(),
            verdict,
            measured: "1 & 2".into(),
            table: vec![vec!["<h>".into()], vec!["1".into()]],
            recorded: recorded.map(Into::into),
        }
    }

    #[test]
    fn claims_have_ids_verdicts_and_the_recorded_one() {
        let html = claims(
            "lstm",
            "x < y",
            &[claim(1, Verdict::NotDecided, Some("holds")), claim(7, Verdict::Holds, None)],
        );
        assert!(html.contains("id=\"claim-lstm-1\"") && html.contains("id=\"claim-lstm-7\""), "{html}");
        assert!(html.contains("? not decided at this scale") && html.contains("✓ holds"));
        assert_eq!(html.matches("at full scale: holds").count(), 1);
        for escaped in ["x &lt; y", "a &lt; b", "1 &amp; 2", "&lt;h&gt;"] {
            assert!(html.contains(escaped), "{escaped}");
        }
        let open = [claim(1, Verdict::NotDecided, None), claim(2, Verdict::Holds, None)];
        assert_eq!(tally(&open[1..]), "Of 1 claims 1 hold, 0 hold in part, and of 0 nothing holds.");
        assert!(tally(&open).ends_with("1 are not decided at this scale."));
    }

    #[test]
    fn a_figure_has_both_axes_where_every_value_is_positive() {
        let of = |ys: [f64; 3]| {
            let points: Vec<(f64, f64)> = ys.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
            let panel = Panel::new(Axis::linear("t"), Axis::log("loss"));
            figure("f", &Figure::new([panel.series(Series::new("s", Style::nth(0), points))]), "c")
        };
        let both = of([3.0, 2.0, f64::INFINITY]);
        let scale = |html: &str, name: &str| html.find(&format!("data-yscale=\"{name}\""));
        assert!(scale(&both, "log10") < scale(&both, "linear") && scale(&both, "log10").is_some());
        assert_eq!(both.matches("variant hidden").count(), 1);
        assert_eq!(scale(&of([3.0, 0.0, 1.0]), "linear"), None);
    }

    #[test]
    fn code_is_shown_as_it_is() {
        assert_eq!(code("a <b>\n c"), "<pre class=scroll><code>a &lt;b&gt;\n c</code></pre>");
    }
}
