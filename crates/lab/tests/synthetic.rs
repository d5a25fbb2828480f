//! The synthetic experiment: numbers that can be had by hand, and the way from results to figures.

#![allow(clippy::unwrap_used)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use untuned_lab::report::{self, Page};
use untuned_lab::synthetic::{
    self, Cell, Grid, L1, MOST_STEPS, PARTS, SHORT, Synthetic, Verdict, growth_exponent, measure,
    steps_per_decade,
};

/// One run of the experiment for all tests.
fn results() -> &'static Synthetic {
    static RESULTS: OnceLock<Synthetic> = OnceLock::new();
    RESULTS.get_or_init(|| {
        let parts = AtomicUsize::new(0);
        let results = synthetic::run(|| {
            parts.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(parts.into_inner(), PARTS, "the progress bar ends where it should");
        results
    })
}

fn steps(key: &str) -> &'static [Option<u64>] {
    &results().steps.iter().find(|row| row.key == key).unwrap().steps
}

/// A clipped step with lr = 0.1, c = 10 is 1 long: from 5 the fifth lands on 0, from 4.7 it jumps between 0.7 and −0.3, where
/// at L1 = 1000 both gradients are far above 10 and both gaps above 1e-2.
#[test]
fn the_papers_pair_reaches_the_optimum_only_where_its_steps_divide_the_start() {
    assert_eq!(steps("clipped-gd-paper")[3], Some(5));
    assert_eq!(steps("clipped-gd-paper-other-start")[3], None);
    assert_eq!(measure("clipped-gd:lr=0.1,threshold=10", 1000.0, 5.0, 5, 5, false).last_gap, 0.0);
}

/// With Theorem 2's pair a clipped step is 1/L1 long and the gap is 1e-2 from |x| ≈ 0.029 on at L1 = 1000: 4.971·1000 steps.
#[test]
fn theorem_2_walks_at_1_over_l1() {
    let wanted = (5.0 - (0.01f64 * 72.0 / 1e6).powf(0.25)) * 1000.0;
    let got = steps("clipped-gd-theorem-2")[3].unwrap() as f64;
    assert!((got - wanted).abs() <= 2.0, "{got} against {wanted}");
}

/// While x⁴ dominates, a Polyak step is x ← ¾x: from 5 to a gap of 1e-2 in ln(5/0.029)/ln(4/3) steps at L1 = 1000.
#[test]
fn polyak_shrinks_x_by_a_quarter() {
    let wanted = (5.0 / (0.01f64 * 72.0 / 1e6).powf(0.25)).ln() / (4f64 / 3.0).ln();
    let got = steps("polyak")[3].unwrap() as f64;
    assert!((got - wanted.ceil()).abs() <= 1.0, "{got} against {wanted}");
}

#[test]
fn the_smallest_horizon_is_the_smallest() {
    for (l1, horizon) in L1.into_iter().zip(steps("inexact-polyak-horizon")) {
        let horizon = horizon.unwrap();
        let reaches = |t: u64| measure("inexact-polyak", l1, 5.0, t, t, false).best_gap <= 1e-2;
        assert!(reaches(horizon) && (1..horizon).all(|t| !reaches(t)), "L1 = {l1}");
    }
}

#[test]
fn no_run_is_longer_than_the_limit() {
    assert_eq!(steps("decsps")[3], None);
    assert!(results().steps.iter().flat_map(|row| &row.steps).flatten().all(|s| *s <= MOST_STEPS));
}

#[test]
fn growth_by_hand() {
    let counts = [Some(10), Some(20), Some(30), Some(10_000)];
    assert!((growth_exponent(&counts) - 1.0).abs() < 1e-12, "a thousandfold over three decades");
    assert_eq!(steps_per_decade(&counts), Some(3330.0));
    let beyond = [Some(1000), None, None, None];
    assert!((growth_exponent(&beyond) - 1.0).abs() < 1e-12, "at least: 1e6 over 1000");
    assert_eq!(steps_per_decade(&beyond), None);
}

#[test]
fn a_selection_lists_its_ties() {
    let cell = |lr: f64, threshold: Option<f64>, last_gap: Option<f64>, reached: Option<u64>| Cell {
        l1: 10.0,
        lr,
        threshold,
        last_gap,
        best_gap: 0.0,
        reached,
    };
    let grid = Grid {
        steps: SHORT,
        cells: vec![
            cell(1.0, None, None, None),
            cell(0.1, Some(10.0), Some(0.0), Some(13)),
            cell(0.1, Some(20.0), Some(0.0), Some(11)),
            cell(0.01, Some(5.0), Some(1e-3), Some(2)),
            cell(0.001, None, Some(0.5), None),
        ],
    };
    let chosen = grid.select(false);
    assert_eq!(chosen.cell.pair(), "(0.1, 20)", "the smallest gap, then the fewest steps");
    assert_eq!(chosen.ties.len(), 2);
    assert_eq!((chosen.paper.pair().as_str(), chosen.better_than_paper), ("(0.1, 10)", 0));
    assert_eq!(
        grid.select(true).cell.rule(),
        "gd:lr=0.001",
        "among plain GD; a run that diverged is never chosen"
    );
}

#[test]
fn the_grid_is_the_appendix() {
    assert_eq!(results().grid.cells.len(), 4 * 9 * 8);
    // Known in advance: GD's best rate is ten times the paper's wherever the two are not tied.
    for (l1, lr) in [(10.0, 1e-2), (100.0, 1e-4), (1000.0, 1e-6)] {
        let chosen = results().grid.for_l1(l1).select(true);
        assert_eq!((chosen.cell.lr, chosen.paper.lr), (lr, lr / 10.0));
        assert!(results().grid.for_l1(l1).select(false).ties.len() > 1, "the clipped pairs tie");
    }
}

/// The verdicts, so that a change of any of them is seen and not slipped in.
#[test]
fn the_verdicts() {
    let by_verdict = |verdict| {
        let claims = results().claims.iter().filter(|c| c.verdict == verdict);
        claims.map(|c| c.number).collect::<Vec<_>>()
    };
    assert_eq!(by_verdict(Verdict::Holds), [1, 4, 6, 7, 8, 9, 10, 11, 13]);
    assert_eq!(by_verdict(Verdict::HoldsInPart), [2, 3, 5, 12, 14, 15]);
    assert_eq!(by_verdict(Verdict::DoesNotHold), Vec::<u32>::new());
    assert!(results().claims.iter().all(|c| c.table.len() > 1), "numbers behind every claim");
}

#[test]
fn results_survive_their_file_and_give_the_same_figures() {
    let files = synthetic::files(results()).unwrap();
    let (_, json) = files.iter().find(|(name, _)| name == synthetic::RESULTS_FILE).unwrap();
    let text = String::from_utf8(json.clone()).unwrap();
    let back = synthetic::read(&text).unwrap();
    assert!(&back == results());
    let svgs = |r: &Synthetic| synthetic::figures(r).into_iter().map(|(_, f)| f.svg()).collect::<Vec<_>>();
    assert_eq!(svgs(&back), svgs(results()));
    let figures = synthetic::figures(&back);
    assert_eq!(figures[0].1.panels.len(), 6, "the paper's six panels");
    assert!(figures.iter().all(|(name, figure)| {
        !synthetic::caption(name).is_empty() && figure.panels.iter().all(|p| !p.series.is_empty())
    }));
}

/// A damaged file is an error in words, never a panic later on.
#[test]
fn damaged_results_are_refused() {
    let json = serde_json::to_value(results()).unwrap();
    let damaged = |damage: &dyn Fn(&mut serde_json::Value)| {
        let mut value = json.clone();
        damage(&mut value);
        synthetic::read(&value.to_string()).unwrap_err().to_string()
    };
    let pop = |list: &mut serde_json::Value| drop(list.as_array_mut().unwrap().pop());
    assert!(damaged(&|v| pop(&mut v["panels"])).contains("panels has 14 entries, not 15"));
    assert!(damaged(&|v| pop(&mut v["grid"]["cells"])).contains("the grid for L1 = 1000 has 71 entries"));
    assert!(
        damaged(&|v| v["grid"]["cells"][0]["l1"] = 3.5.into()).contains("the grid for L1 = 1 has 71 entries")
    );
    assert!(damaged(&|v| pop(&mut v["steps"][2]["steps"])).contains("clipped-gd has 3 entries, not 4"));
    assert!(
        damaged(&|v| v["grid"]["cells"][0]["lr"] = 0.5.into()).contains("the grid for L1 = 1 has 71 entries")
    );
    assert!(
        damaged(&|v| v["panels"][1]["curves"][0]["l1"] = 7.into())
            .contains("the panel clipped-gd has 3 entries")
    );
    assert!(
        damaged(&|v| v["panels"][0]["curves"][2]["points"] = serde_json::json!([]))
            .contains("the panel gd has 3")
    );
    assert!(damaged(&|v| pop(&mut v["claims"])).contains("claims has 14 entries"));
    assert!(damaged(&|v| v["claims"][0]["verdict"] = "perhaps".into()).contains("perhaps"));
    let text = json.to_string();
    for end in [0, 1, 100, text.len() / 2, text.len() - 1] {
        assert!(synthetic::read(&text[..end]).is_err());
    }
}

#[test]
fn the_page_is_whole() {
    let sections = report::synthetic::sections(results());
    let page = Page { title: "x".into(), lead: String::new(), sections }.html();
    for claim in &results().claims {
        assert!(page.contains(&format!("id=\"claim-synthetic-{}\"", claim.number)));
    }
    for tag in ["table", "figure", "section", "details", "svg"] {
        let count = |text: &str| page.matches(text).count();
        assert_eq!(
            count(&format!("<{tag}")) - count(&format!("<{tag}caption")),
            count(&format!("</{tag}>")),
            "{tag}"
        );
    }
}
