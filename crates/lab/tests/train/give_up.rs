//! Runs that are given up.

use untuned_lab::train::Outcome;

use crate::{Bench, GPT, LSTM, rows};

/// Steps that change no weight: no evaluation, of those at 0, 4, 8 and 9, is below the first.
const STILL: &str = "rule=gd:lr=1e-30";

#[test]
fn a_run_that_is_no_better_than_at_first_ends() {
    let bench = Bench::new();
    for (after, wanted) in [("0.4", 4), ("0.45", 8), ("1", 9)] {
        let set = [STILL, &format!("give_up_after={after}")];
        let (ended, watch) = bench.train(&bench.open(GPT, after, &set, false), 2, None);
        assert_eq!((ended.outcome, watch.made), (Outcome::GivenUp { step: wanted }, wanted), "{after}");
        let summary = ended.summary.unwrap();
        let last = rows(&bench.path(after).join("eval.jsonl"));
        let [validation, test] = &last[last.len() - 2..] else { panic!("two splits") };
        assert_eq!(validation["step"], wanted);
        assert_eq!((summary.diverged, summary.steps), (true, wanted));
        assert_eq!(summary.final_validation_loss, validation["loss"].as_f64());
        assert_eq!(summary.final_test_loss, test["loss"].as_f64());
        let (again, watch) = bench.train(&bench.open(GPT, after, &set, true), 2, None);
        assert_eq!((again.outcome, watch.made), (Outcome::Already, 0), "{after}");
        assert_eq!(again.summary, Some(summary));
    }
}

#[test]
fn the_first_evaluation_is_remembered() {
    let bench = Bench::new();
    let set = [STILL, "give_up_after=0.1"];
    let (ended, _) = bench.train(&bench.open(GPT, "parts", &set, false), 2, Some(2));
    assert_eq!(ended.outcome, Outcome::Interrupted { step: 2 });
    let (ended, _) = bench.train(&bench.open(GPT, "parts", &set, true), 2, None);
    assert_eq!(ended.outcome, Outcome::GivenUp { step: 4 });
    // Killed before its summary was written, it comes to the same end.
    std::fs::remove_file(bench.path("parts/summary.json")).unwrap();
    let (ended, watch) = bench.train(&bench.open(GPT, "parts", &set, true), 2, None);
    assert_eq!((ended.outcome, watch.made), (Outcome::GivenUp { step: 4 }, 0));
}

#[test]
fn a_loss_that_is_not_finite_ends_it_too() {
    let bench = Bench::new();
    let set = ["rule=adamw:lr=1e30", "give_up_after=0.1", "checkpoint_every=1"];
    let (ended, _) = bench.train(&bench.open(LSTM, "wild", &set, false), 2, None);
    assert_eq!(ended.outcome, Outcome::GivenUp { step: 4 });
    assert!(ended.summary.is_some_and(|summary| summary.diverged && summary.final_validation_loss.is_none()));
    let kept: Vec<_> = std::fs::read_dir(bench.path("wild/checkpoint")).unwrap().flatten().collect();
    // Even with such weights the second batch has a loss, but no later one has.
    let finite: Vec<bool> =
        rows(&bench.path("wild/trace.jsonl")).iter().map(|row| row["loss"].is_number()).collect();
    assert_eq!(finite, [true, true, false, false]);
    assert!(
        kept.len() == 1 && kept[0].path().ends_with("step-000000001"),
        "the last one that is good: {kept:?}"
    );
}

#[test]
fn a_run_that_learns_or_is_not_asked_goes_on() {
    let bench = Bench::new();
    for (name, set) in [
        ("learns", &["rule=gd:lr=0.1", "give_up_after=0.01"][..]),
        ("still", &[STILL]),
        ("none", &["steps=0", "give_up_after=1"]),
    ] {
        let (ended, _) = bench.train(&bench.open(GPT, name, set, false), 2, None);
        assert_eq!(ended.outcome, Outcome::Finished, "{name}");
    }
}
