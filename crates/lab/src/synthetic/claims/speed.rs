//! Claims 1 to 6: how many steps each method needs, and how that grows with `L1`.

use super::super::steps::{StepsRow, growth_exponent, steps_per_decade};
use super::super::{L1, MOST_STEPS};
use super::{Decided, Facts, Verdict, list};

/// Steps that grow like a power of `L1` above this exponent depend on `L1`; GD's grow like `L1^1`.
const A_POWER: f64 = 0.5;

/// "Does not depend on L1", quantified: `Holds` when the last count is at most a quarter above the first, `HoldsInPart`
/// when it grows slower than [`A_POWER`] of `L1`.
fn independence(row: &StepsRow) -> Verdict {
    let (first, last) = (row.steps[0], row.steps[L1.len() - 1]);
    match (first, last) {
        (Some(first), Some(last)) if last as f64 <= 1.25 * first as f64 => Verdict::Holds,
        (Some(_), Some(_)) if growth_exponent(&row.steps) < A_POWER => Verdict::HoldsInPart,
        _ => Verdict::DoesNotHold,
    }
}

fn weaker(a: Verdict, b: Verdict) -> Verdict {
    if a == b { a } else { Verdict::HoldsInPart }
}

pub(super) fn gd_slows_down(facts: &Facts) -> Decided {
    let row = facts.steps("gd");
    let slower = row.steps.windows(2).all(|w| w[0].unwrap_or(MOST_STEPS) < w[1].unwrap_or(MOST_STEPS + 1));
    let exponent = facts.exponent("gd");
    Decided {
        verdict: Verdict::of(slower && exponent > A_POWER),
        measured: format!("{} steps with the best rate of the grid: like L₁^{exponent:.2}", list(row)),
        table: facts.table(&["gd", "gd-theorem-1"]),
    }
}

pub(super) fn clipping_does_not(facts: &Facts) -> Decided {
    let (here, there) = (facts.steps("clipped-gd"), facts.steps("clipped-gd-other-start"));
    let paper = facts.steps("clipped-gd-paper-other-start");
    Decided {
        verdict: weaker(independence(here), weaker(independence(there), independence(paper))),
        measured: format!(
            "{} steps with the best pair from x₀ = 5, {} from x₀ = 4.7; the paper's pair (0.1, 10) needs {} from 5, \
             where lr·c divides x₀, and {} from 4.7",
            list(here),
            list(there),
            list(facts.steps("clipped-gd-paper")),
            list(paper)
        ),
        table: facts.table(&[
            "clipped-gd",
            "clipped-gd-other-start",
            "clipped-gd-paper",
            "clipped-gd-paper-other-start",
            "clipped-gd-theorem-2",
        ]),
    }
}

pub(super) fn polyak_does_not(facts: &Facts) -> Decided {
    let row = facts.steps("polyak");
    let added = steps_per_decade(&row.steps).unwrap_or(f64::NAN);
    Decided {
        verdict: independence(row),
        measured: format!(
            "{} steps: {added:.1} more per decade of L₁, so logarithmic rather than none",
            list(row)
        ),
        table: facts.table(&["polyak"]),
    }
}

pub(super) fn decreasing_steps_degrade(facts: &Facts) -> Decided {
    let keys = ["decsps", "adasps", "adasps-c-p-1"];
    let degrade = keys.map(|key| facts.exponent(key) > A_POWER);
    let [dec, ada, ada_1] = keys.map(|key| list(facts.steps(key)));
    Decided {
        verdict: Verdict::among(&degrade),
        measured: format!("DecSPS: {dec} steps; AdaSPS: {ada}; AdaSPS with c_p = 1: {ada_1}"),
        table: facts.table(&keys),
    }
}

pub(super) fn inexact_polyak_does_not(facts: &Facts) -> Decided {
    let (fixed, smallest) = (facts.steps("inexact-polyak"), facts.steps("inexact-polyak-horizon"));
    let per_decade = |row: &StepsRow| steps_per_decade(&row.steps).unwrap_or(f64::NAN);
    let first = fixed.steps[0].unwrap_or(MOST_STEPS) as f64;
    let ratio = fixed.steps[L1.len() - 1].unwrap_or(MOST_STEPS) as f64 / first;
    Decided {
        verdict: weaker(independence(fixed), independence(smallest)),
        measured: format!(
            "{} steps at T = 10,000: {:.0} more per decade of L₁, {ratio:.1} times as many for a thousandfold L₁ \
             (GD: {:.0} times); the smallest T that gets there is {}",
            list(fixed),
            per_decade(fixed),
            facts.steps("gd").steps[L1.len() - 1].unwrap_or(MOST_STEPS) as f64
                / facts.steps("gd").steps[0].unwrap_or(1) as f64,
            list(smallest)
        ),
        table: facts.table(&[
            "inexact-polyak",
            "inexact-polyak-horizon",
            "anytime-polyak",
            "adaptive-polyak",
        ]),
    }
}

pub(super) fn polyak_matches_clipping(facts: &Facts) -> Decided {
    let [polyak, clipped, gd] =
        ["polyak", "clipped-gd-theorem-2", "gd-theorem-1"].map(|key| facts.steps(key));
    let no_slower = |a: &StepsRow, b: &StepsRow| {
        a.steps.iter().zip(&b.steps).all(|(a, b)| a.unwrap_or(MOST_STEPS + 1) <= b.unwrap_or(MOST_STEPS + 1))
    };
    Decided {
        verdict: Verdict::among(&[no_slower(polyak, clipped), no_slower(polyak, gd)]),
        measured: format!(
            "Polyak: {} steps; clipped GD with (1/L₀, L₀/L₁): {}, because a clipped step is 1/L₁ long; GD with 1/L: {}",
            list(polyak),
            list(clipped),
            list(gd)
        ),
        table: facts.table(&["polyak", "clipped-gd-theorem-2", "gd-theorem-1"]),
    }
}
