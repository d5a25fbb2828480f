//! `report.html`: one file with the claims, the figures and the tables, that needs no network.

use std::fmt::Write;

use untuned::spec::number;

use crate::figure;
use crate::synthetic::{self, Cell, GAP, L1, Synthetic, Verdict};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// The page for the synthetic experiment.
pub fn page(results: &Synthetic) -> String {
    let mut body = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        body,
        "<header><h1>Parameter-free clipped gradient descent meets Polyak</h1>\
         <p class=lead>What the paper claims of its synthetic experiment, measured again. {}</p>\
         <p class=meta>Made by <code>untuned reproduce</code>, version {}; \
         <code>untuned report DIR</code> makes this page again from <code>synthetic/synthetic.json</code>.</p></header>",
        tally(results),
        escape(&results.version)
    );
    claims(&mut body, results);
    figures(&mut body, results);
    steps(&mut body, results);
    grid(&mut body, results);
    body.push_str(NOTES);
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>untuned: the synthetic experiment</title>\
         <style>{}\n{STYLE}</style></head>\n<body><main>{body}</main><script>{SCRIPT}</script></body></html>\n",
        figure::font_face_css()
    )
}

fn tally(results: &Synthetic) -> String {
    let of = |verdict| results.claims.iter().filter(|c| c.verdict == verdict).count();
    let [holds, part, not] = [Verdict::Holds, Verdict::HoldsInPart, Verdict::DoesNotHold].map(of);
    format!(
        "Of {} claims {holds} hold, {part} hold in part, and of {not} nothing holds.",
        results.claims.len()
    )
}

fn claims(out: &mut String, results: &Synthetic) {
    out.push_str("<section id=claims><h2>The claims</h2><p>Four numbers with slashes are for L₁ = 1 / 10 / 100 / 1000. \
         “Does not depend on L₁” holds where the steps to a gap of 1e-2 grow by at most a quarter from L₁ = 1 to 1000, and in part \
         where they grow slower than √L₁.</p><ol class=claims>");
    for claim in &results.claims {
        let class = match claim.verdict {
            Verdict::Holds => "yes",
            Verdict::HoldsInPart => "part",
            Verdict::DoesNotHold => "no",
        };
        let _ = write!(
            out,
            "<li id=claim-{}><p class=claim>{} <span class=\"verdict {class}\">{}</span></p><p>{}.</p>\
             <details><summary>the numbers</summary>{}</details></li>",
            claim.number,
            escape(&claim.claim),
            claim.verdict.words(),
            escape(&claim.measured),
            table(&claim.table)
        );
    }
    out.push_str("</ol></section>");
}

fn figures(out: &mut String, results: &Synthetic) {
    out.push_str("<section id=figures><h2>The figures</h2><p>Point at a curve to read its values; press a name in a legend to hide it.</p>");
    for (file, figure) in synthetic::figures(results) {
        let caption = escape(synthetic::caption(file));
        let _ = write!(
            out,
            "<figure id={file}><div class=scroll>{}</div><figcaption>{caption}</figcaption></figure>",
            figure.svg()
        );
    }
    out.push_str("</section>");
}

fn steps(out: &mut String, results: &Synthetic) {
    let mut rows = vec![
        std::iter::once("method".to_string()).chain(L1.map(|l1| format!("L₁ = {l1}"))).collect::<Vec<_>>(),
    ];
    rows[0].extend(["more per decade of L₁".to_string(), "exponent of L₁".to_string()]);
    for row in &results.steps {
        let mut cells = vec![row.method.clone()];
        cells.extend(row.steps.iter().map(|s| s.map_or("> 1e6".to_string(), |s| s.to_string())));
        cells.push(synthetic::steps_per_decade(&row.steps).map_or("–".to_string(), |d| format!("{d:.1}")));
        let least = if row.steps.contains(&None) { "≥ " } else { "" };
        cells.push(format!("{least}{:.2}", synthetic::growth_exponent(&row.steps)));
        rows.push(cells);
    }
    let _ = write!(
        out,
        "<section id=steps><h2>Steps to a gap of {}</h2><p>The first step t with f(x_t) − f* ≤ {GAP}; the last column is p of \
         steps ~ L₁^p between L₁ = 1 and 1000. No run is longer than a million steps.</p>{}</section>",
        number(GAP),
        table(&rows)
    );
}

fn grid(out: &mut String, results: &Synthetic) {
    let _ = write!(
        out,
        "<section id=grid><h2>The grid search</h2><p>The gap after {} steps for every rate (rows) and threshold (columns); \
         ✗ diverged. Framed: what the grid selects (smallest gap, then the fewest steps to {GAP}, then the larger rate, then the \
         smaller threshold); dotted: the paper's choice.</p><div class=grids>",
        results.grid.steps
    );
    for l1 in L1 {
        let runs = results.grid.for_l1(l1);
        let selected = runs.select(false);
        let _ = write!(
            out,
            "<div class=scroll><table class=heat><caption>L₁ = {l1}</caption><tr><th>lr \\ c</th>"
        );
        let thresholds: Vec<Option<f64>> =
            runs.cells.iter().take_while(|c| c.lr == runs.cells[0].lr).map(|c| c.threshold).collect();
        for c in &thresholds {
            let _ = write!(out, "<th>{}</th>", c.map_or("∞".to_string(), number));
        }
        out.push_str("</tr>");
        for cells in runs.cells.chunks(thresholds.len()) {
            let _ = write!(out, "<tr><th>{}</th>", number(cells[0].lr));
            for cell in cells {
                let ours = if *cell == selected.cell { " ours" } else { "" };
                let paper = if *cell == selected.paper { " paper" } else { "" };
                let _ = write!(out, "<td class=\"{}{ours}{paper}\">{}</td>", shade(cell), gap(cell));
            }
            out.push_str("</tr>");
        }
        out.push_str("</table></div>");
    }
    out.push_str("</div></section>");
}

fn gap(cell: &Cell) -> String {
    match cell.last_gap {
        None => "✗".to_string(),
        Some(0.0) => "0".to_string(),
        Some(gap) => format!("{gap:.0e}"),
    }
}

/// One of seven shades, from a gap of 1e-12 and less to one of 1 and more.
fn shade(cell: &Cell) -> String {
    match cell.last_gap {
        None => "bad".to_string(),
        Some(gap) => format!("s{}", ((gap.max(1e-12).log10() + 12.0) / 2.0).clamp(0.0, 6.0) as u32),
    }
}

fn table(rows: &[Vec<String>]) -> String {
    let mut out = "<div class=scroll><table>".to_string();
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out + "</table></div>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const NOTES: &str = "<section id=notes><h2>Where this differs from the paper, and why</h2><ul>\
<li>The paper does not print the number of steps. We take 500 for GD, clipped GD and Polyak and 10,000 for DecSPS and AdaSPS; \
the Inexact Polyak panel shows the best gap of one run per horizon T.</li>\
<li>The function is not L-smooth on the whole line: L = L₀L₁²x₀²/6 + L₀/2 holds on |x| ≤ |x₀|, and statements that need L are \
checked only there.</li>\
<li>Theorems 1 to 3 are printed without constants. We print the rate, and for Theorems 1 and 3 the constants that we can prove.</li>\
<li>Near the optimum Inexact Polyak is chaotic: two correct programs that round differently part ways after some tens of steps, so \
single late values mean little. Slopes are taken over starts close to the paper's.</li>\
<li>Slips in the paper: Lemma 6 needs ‖x − y‖ ≤ 1/L₁ (printed: 1/L₀); the second line of Proposition 3's proof ends with + L₀/2 \
(printed: + L₀); Section 6.2 cites Theorem 4 where Theorem 5 is meant; two figures share a label.</li>\
</ul></section>";
