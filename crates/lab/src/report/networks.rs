//! The sections of comparisons of runs.

use super::Section;
use super::html;
use crate::claims::Claim;
use crate::compare::{self, Comparison, Drawn};

/// The twelve claims.
pub fn claims(claims: &[Claim]) -> Section {
    Section::new("network-claims", "The claims on networks", html::claims("networks", CLAIMS, claims))
}

const CLAIMS: &str = "Losses are means over the seeds, at the last step; “the best” is the evaluation with the lowest validation \
    loss. One method is below another where the ranges of their seeds do not overlap; where they do, or where there is one seed, \
    their order is not decided. “Far above” and “much higher” are by a quarter, “well below the initial loss” by a quarter, “unstable” a \
    seed's test loss of 1.5 times an earlier one, “last ≈ best” within 2 %, “correlates” above 0.5.";

/// The methods on all networks.
pub fn leagues(figures: &[Drawn]) -> Section {
    let figures = figures.iter().map(|drawn| html::figure(&drawn.file, &drawn.figure, &drawn.caption));
    Section::new("all-networks", "The methods on all networks", figures.collect::<String>())
}

/// What each method reached, the figures, and every run.
pub fn section(comparison: &Comparison, figures: &[Drawn], id: &str) -> Section {
    let mut out = format!(
        "<p>{} {} trained on {}{}.</p>",
        match comparison.parameters {
            Some(parameters) => format!("{} parameters,", grouped(parameters)),
            None => "A network".to_string(),
        },
        html::escape(&format!("scale {},", comparison.scale)),
        html::escape(&comparison.data),
        comparison.best_loss.map_or(String::new(), |best| format!("; the best possible loss is {best:.4}"))
    );
    for horizon in comparison.horizons() {
        out += &format!("<h3>T = {horizon}</h3>{}", html::table(&compare::results(comparison, horizon)));
    }
    for drawn in figures {
        out += &html::figure(&drawn.file, &drawn.figure, &drawn.caption);
    }
    let rows = compare::run_table(comparison);
    let more = comparison.runs.len().saturating_sub(compare::MOST_ROWS);
    let more = match more {
        0 => String::new(),
        more => format!("<p>{more} more are in <code>runs.csv</code>.</p>"),
    };
    let all = format!(
        "<p>Each folder holds the run's whole configuration; <code>untuned train FOLDER/config.toml --out NEW</code> makes it again.</p>{}{}{more}",
        html::code(&compare::common_configuration(comparison)),
        html::table(&rows)
    );
    out += &html::details(&format!("all {} runs and their configuration", comparison.runs.len()), &all);
    Section::new(id, format!("{} ({})", comparison.title(), comparison.slug), out)
}

/// `24221600` as `24,221,600`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Where the network experiments differ from the paper.
pub fn notes() -> Section {
    Section::new("network-notes", "Where the networks differ from the paper, and why", NOTES)
}

const NOTES: &str = "<ul>\
<li>At the scale <code>quick</code> the networks are small and trained on a generated language, for minutes on a CPU. Its best \
possible loss is known, so that Polyak's rule can be run with the true f*, which the paper cannot. Verdicts at this scale are about \
these small networks; <code>--scale paper</code> is the paper's.</li>\
<li>The paper prints T only for Nano-GPT's appendix (2500 and 7500). The others are those of the projects that it builds on: 200 epochs \
of the LSTM, 5000 steps of Nano-GPT, 65,536 of T5.</li>\
<li>Nano-GPT's text has no test split upstream: of its last tenth the first half validates and the second half tests.</li>\
<li>T5 is trained on the documents that are given with <code>--data</code>, in C4's form; C4 itself is 300 GB.</li>\
<li>No clipping is run once, as SGD, and counts as the threshold ∞ of clipped SGD's grid.</li>\
<li>The paper's Figure 2 leaves out runs that are not finite, and DecSPS and AdaSPS on T5; here they are marked.</li>\
<li>AdamW as in nanoGPT (rate 0.001, β₂ 0.99, clipping at 1, warm-up of 100 steps, cosine to a tenth) is a yardstick from outside the \
paper, with these settings on every network.</li>\
</ul>";

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_in_groups_of_three() {
        let written = [7, 999, 1000, 24_221_600].map(super::grouped);
        assert_eq!(written, ["7", "999", "1,000", "24,221,600"]);
    }
}
