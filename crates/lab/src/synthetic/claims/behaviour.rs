//! Claims 10, 11, 13 and 15: step sizes, thresholds and the grid search.

use untuned::spec::number;

use super::super::grid::{Cell, PAPER, RATES, THRESHOLDS};
use super::super::panels::{theorem_1, theorem_2};
use super::super::steps::PAPER_PAIR;
use super::super::{GAP, L1, LONG, Measured, SHORT, X0, measure};
use super::{Decided, Facts, Verdict, first_gradient, header, row, short, shorts};

pub(super) fn lower_bound_explodes(_: &Facts) -> Decided {
    let runs = L1.map(|l1| measure("polyak-bound", l1, X0, SHORT, SHORT, false));
    let grown = [0, 1, 2, 3].map(|i| runs[i].largest_step / runs[i].first_step);
    let explodes = grown.iter().all(|g| *g > 1e3);
    let stays = runs.iter().all(|r| r.last_gap > GAP);
    let table = vec![
        header("500 steps"),
        row("largest step / first step", grown.map(short)),
        row("best gap", runs.iter().map(|r| short(r.best_gap))),
        row("last gap", runs.iter().map(|r| short(r.last_gap))),
        row("largest |x_t| / |x₀|", runs.iter().map(|r| short(r.spread))),
    ];
    let least = grown.iter().fold(f64::INFINITY, |m, g| m.min(*g));
    Decided {
        verdict: Verdict::among(&[explodes, stays]),
        measured: format!(
            "The step grows at least {}-fold within 500 steps; the last gap is {}",
            short(least),
            shorts(runs.iter().map(|r| r.last_gap))
        ),
        table,
    }
}

pub(super) fn who_grows(_: &Facts) -> Decided {
    let runs = |rule: fn(f64) -> String| L1.map(|l1| measure(&rule(l1), l1, X0, LONG, LONG, false));
    let shrinking: [(&str, [Measured; 4]); 3] = [
        ("DecSPS", runs(|_| "decsps".to_string())),
        ("AdaSPS", runs(|_| "adasps".to_string())),
        ("AdaSPS, c_p = 1", runs(|_| "adasps:c_p=1".to_string())),
    ];
    let growing: [(&str, [Measured; 4]); 3] = [
        ("Polyak", runs(|_| "polyak".to_string())),
        ("Clipped GD, Theorem 2", runs(theorem_2)),
        ("Clipped GD (0.1, 10)", runs(|_| PAPER_PAIR.to_string())),
    ];
    let growth = |r: &Measured| r.largest_step / r.first_step;
    let mut table = vec![header("steps larger than the one before; largest step / first step")];
    for (name, runs) in shrinking.iter().chain(&growing) {
        table.push(row(name, runs.iter().map(|r| format!("{}; {}", r.increases, short(growth(r))))));
    }
    let increased: u64 = shrinking.iter().flat_map(|(_, runs)| runs).map(|r| r.increases).sum();
    // At L1 = 1 the paper's pair clips nothing: growth is asked for from L1 = 10 on.
    let grow = growing.iter().all(|(_, runs)| runs[1..].iter().all(|r| growth(r) > 1.5));
    Decided {
        verdict: Verdict::among(&[increased == 0, grow]),
        measured: format!(
            "DecSPS and AdaSPS: {increased} of 120,000 steps are larger than the one before; the largest step over the first \
             is {} for Polyak and {} for clipped GD with (0.1, 10)",
            shorts(growing[0].1.iter().map(growth)),
            shorts(growing[2].1.iter().map(growth))
        ),
        table,
    }
}

pub(super) fn thresholds(facts: &Facts) -> Decided {
    let mut table = vec![header("fewest steps to a gap of 1e-2 over the rates, at most 500")];
    let fewest = |l1: f64, c: f64| {
        let wanted = c.is_finite().then_some(c);
        let cells = facts.grid.cells.iter().filter(|cell| cell.l1 == l1 && cell.threshold == wanted);
        cells.filter_map(|cell| cell.reached).min()
    };
    for c in THRESHOLDS {
        let name = if c.is_finite() { format!("c = {}", number(c)) } else { "c = ∞ (GD)".to_string() };
        table.push(row(&name, L1.map(|l1| fewest(l1, c).map_or("> 500".to_string(), |s| s.to_string()))));
    }
    // Above every gradient of the run nothing is clipped: the run is GD's, bit for bit.
    let too_large = L1.map(|l1| {
        let gd = theorem_1(l1);
        let clipped = format!("clipped-{gd},threshold={}", 10.0 * first_gradient(l1));
        measure(&gd, l1, X0, SHORT, SHORT, false) == measure(&clipped, l1, X0, SHORT, SHORT, false)
    });
    let or_more = |steps: Option<u64>| steps.unwrap_or(SHORT + 1);
    let too_small = L1.map(|l1| or_more(fewest(l1, THRESHOLDS[0])) >= 10 * or_more(fewest(l1, 10.0)));
    // At L1 = 1 no gradient is longer than 10: there is nothing to clip.
    let right = [1, 2, 3].map(|i| or_more(fewest(L1[i], 10.0)) < or_more(fewest(L1[i], f64::INFINITY)));
    let all = |parts: &[bool]| parts.iter().all(|p| *p);
    Decided {
        verdict: Verdict::among(&[all(&too_large), all(&too_small), all(&right)]),
        measured: format!(
            "A threshold of ten times ‖∇f(x₀)‖ gives GD's run to the last bit for {} of 4 L₁; c = 0.01 needs at least ten times \
             the steps of c = 10 for {} of 4; c = 10 needs fewer steps than no clipping for {} of 3 L₁ ≥ 10",
            too_large.iter().filter(|p| **p).count(),
            too_small.iter().filter(|p| **p).count(),
            right.iter().filter(|p| **p).count()
        ),
        table,
    }
}

pub(super) fn selected_hyperparameters(facts: &Facts) -> Decided {
    let mut table = vec![
        [
            "",
            "GD: ours",
            "the paper's",
            "clipped GD: ours",
            "exact ties",
            "the paper's",
            "better than the paper's",
        ]
        .map(str::to_string)
        .to_vec(),
    ];
    let mut same = Vec::new();
    let mut tied = Vec::new();
    let mut rates = Vec::new();
    for (l1, (paper_lr, paper_pair)) in L1.into_iter().zip(PAPER) {
        let runs = facts.grid.for_l1(l1);
        let (gd, clipped) = (runs.select(true), runs.select(false));
        same.push(gd.ties.iter().any(|t| t.lr == paper_lr));
        same.push(clipped.ties.iter().any(|t| (t.lr, t.threshold) == (paper_pair.0, Some(paper_pair.1))));
        tied.push(clipped.ties.len());
        rates.push(number(gd.cell.lr));
        table.push(vec![
            format!("L₁ = {l1}"),
            format!("{} (gap {})", number(gd.cell.lr), gap(&gd.cell)),
            format!("{} (gap {})", number(paper_lr), gap(&gd.paper)),
            format!("{} (gap {})", clipped.cell.pair(), gap(&clipped.cell)),
            clipped.ties.iter().map(Cell::pair).collect::<Vec<_>>().join(" "),
            format!("{} (gap {})", clipped.paper.pair(), gap(&clipped.paper)),
            format!("{} of {}", clipped.better_than_paper, RATES.len() * THRESHOLDS.len()),
        ]);
    }
    let agree = same.iter().filter(|s| **s).count();
    Decided {
        verdict: Verdict::among(&same),
        measured: format!(
            "{agree} of the table's 8 entries have the smallest gap after {SHORT} steps or tie with it; the grid's rates of GD are {}, \
             the table's {}; {} pairs of clipped GD tie exactly, the table's among them",
            rates.join(" / "),
            PAPER.map(|(lr, _)| number(lr)).join(" / "),
            tied.iter().map(ToString::to_string).collect::<Vec<_>>().join(" / ")
        ),
        table,
    }
}

fn gap(cell: &Cell) -> String {
    match cell.last_gap {
        None => "diverged".to_string(),
        // Zero in double precision; that proves no optimum.
        Some(gap) if gap < f64::EPSILON => "< 2.2e-16".to_string(),
        Some(gap) => short(gap),
    }
}
