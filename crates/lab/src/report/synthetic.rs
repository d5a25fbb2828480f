//! The sections of the synthetic experiment.

use untuned::spec::number;

use super::Section;
use super::html;
use crate::figure::{self, Axis, Figure, HeatMap, Panel, Range, Scale};
use crate::synthetic::{self, GAP, Grid, L1, Synthetic};

/// Claims, figures, tables and notes, in the order of the page.
pub fn sections(results: &Synthetic) -> Vec<Section> {
    vec![
        Section::new(
            "claims",
            "The claims on the synthetic experiment",
            html::claims("synthetic", CLAIMS, &results.claims),
        ),
        Section::new("figures", "Its figures", figures(results)),
        Section::new("steps", format!("Steps to a gap of {}", number(GAP)), steps(results)),
        Section::new("grid", "Its grid search", grid(results)),
        Section::new("notes", "Where it differs from the paper, and why", NOTES),
    ]
}

const CLAIMS: &str = "Four numbers with slashes are for L₁ = 1 / 10 / 100 / 1000. \
    “Does not depend on L₁” holds where the steps to a gap of 1e-2 grow by at most a quarter from L₁ = 1 to 1000, and in part \
    where they grow slower than √L₁.";

fn figures(results: &Synthetic) -> String {
    let intro =
        "<p>Point at a curve to read its values; press a name in a legend to hide it there, or in the bar above to hide it everywhere.</p>".to_string();
    synthetic::figures(results)
        .iter()
        .fold(intro, |out, (file, figure)| out + &html::figure(file, figure, synthetic::caption(file)))
}

fn steps(results: &Synthetic) -> String {
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
    format!(
        "<p>The first step t with f(x_t) − f* ≤ {GAP}; the last column is p of steps ~ L₁^p between L₁ = 1 and 1000. \
         No run is longer than a million steps.</p>{}",
        html::table(&rows)
    )
}

fn grid(results: &Synthetic) -> String {
    let caption = format!(
        "The gap after {} steps for every rate and threshold. Selected: the smallest gap, then the fewest steps to {GAP}, then \
         the larger rate, then the smaller threshold.",
        results.grid.steps
    );
    let panels = L1.map(|l1| heat(&results.grid.for_l1(l1)).title(format!("L_{{1}} = {l1}")));
    html::figure("grid-search", &Figure::new(panels), &caption)
}

/// The grid for one `L1`.
fn heat(grid: &Grid) -> Panel {
    let chosen = grid.select(false);
    let thresholds: Vec<String> = grid
        .cells
        .iter()
        .take_while(|c| c.lr == grid.cells[0].lr)
        .map(|c| c.threshold.map_or("∞".to_string(), number))
        .collect();
    let cells = grid.cells.iter().map(|cell| {
        let content = cell.last_gap.map_or_else(figure::Cell::diverged, figure::Cell::value);
        content.selected(*cell == chosen.cell).paper(*cell == chosen.paper)
    });
    // Below 1e-12 and above 1 the shade says nothing more.
    let value = Axis { label: "gap".into(), scale: Scale::Log10, range: Range::Fixed(1e-12, 1.0) };
    let map = HeatMap {
        rows: grid.cells.chunks(thresholds.len()).map(|row| number(row[0].lr)).collect(),
        cells: cells.collect(),
        columns: thresholds,
        value,
    };
    Panel::heat("threshold", "learning rate", map)
}

const NOTES: &str = "<ul>\
<li>The paper does not print the number of steps. We take 500 for GD, clipped GD and Polyak and 10,000 for DecSPS and AdaSPS; \
the Inexact Polyak panel shows the best gap of one run per horizon T.</li>\
<li>The function is not L-smooth on the whole line: L = L₀L₁²x₀²/6 + L₀/2 holds on |x| ≤ |x₀|, and statements that need L are \
checked only there.</li>\
<li>Theorems 1 to 3 are printed without constants. We print the rate, and for Theorems 1 and 3 the constants that we can prove.</li>\
<li>Near the optimum Inexact Polyak is chaotic: two correct programs that round differently part ways after some tens of steps, so \
single late values mean little. Slopes are taken over starts close to the paper's.</li>\
<li>Slips in the paper: Lemma 6 needs ‖x − y‖ ≤ 1/L₁ (printed: 1/L₀); the second line of Proposition 3's proof ends with + L₀/2 \
(printed: + L₀); Section 6.2 cites Theorem 4 where Theorem 5 is meant; two figures share a label.</li>\
</ul>";
