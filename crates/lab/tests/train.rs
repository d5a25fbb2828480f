//! Training runs through the library: every rule, every network, stopped and resumed.
#![allow(clippy::unwrap_used)]

#[path = "train/give_up.rs"]
mod give_up;
#[path = "train/options.rs"]
mod options;
#[path = "train/shards.rs"]
mod shards;
#[path = "train/sinks.rs"]
mod sinks;
#[path = "train/smoothness.rs"]
mod smoothness;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use untuned::catalog;
use untuned_lab::train::checkpoint::read_arrays;
use untuned_lab::train::folder::{self, Opened};
use untuned_lab::train::run::Stepped;
use untuned_lab::train::{Ended, Options, Outcome, Overrides, Watch, train};

const GPT: &str =
    "model = \"gpt\"\nbatch = 2\nsteps = 9\nevaluate_every = 4\ncheckpoint_every = 3\nevaluate_tokens = 64
[shape]\ncontext = 8\nblocks = 1\nwidth = 16\nheads = 2\ndropout = 0.1\n";
const LSTM: &str =
    "model = \"lstm\"\nbatch = 3\nsteps = 9\nevaluate_every = 4\ncheckpoint_every = 3\nevaluate_tokens = 64
[shape]\nbptt = 10\nembedding = 16\nhidden = 16\nlayers = 2\n";
const T5: &str = "model = \"t5\"\nbatch = 2\nsteps = 9\nevaluate_every = 4\ncheckpoint_every = 3\nevaluate_tokens = 64
[shape]\ninputs = 16\nwidth = 16\nheads = 2\nhead_width = 8\nfeed_forward = 32\nlayers = 1\nvocabulary = 400\n";

/// Stops a run after some steps.
#[derive(Default)]
struct StopAfter {
    steps: Option<u64>,
    made: u64,
    refused: u64,
    notes: Vec<String>,
}

impl Watch for StopAfter {
    fn stepped(&mut self, stepped: &Stepped) {
        self.made += 1;
        self.refused += u64::from(stepped.size.is_none());
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.into());
    }
    fn stop(&self) -> bool {
        self.steps.is_some_and(|steps| self.made >= steps)
    }
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let sentence = "the quick brown fox jumps over the lazy dog\nand sleeps\n";
        fs::write(folder.path().join("text.txt"), sentence.repeat(40)).unwrap();
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, experiment: &str, out: &str, set: &[&str], resume: bool) -> Opened {
        let file = self.path("x.toml");
        fs::write(&file, experiment).unwrap();
        let mut overrides = Overrides::default();
        if !experiment.contains("t5") {
            overrides.default_data = Some(self.path("text.txt").to_string_lossy().into());
        }
        for text in set {
            overrides.set(text).unwrap();
        }
        folder::open(&file, &overrides, Some(&self.path(out)), resume).unwrap()
    }

    fn train(&self, opened: &Opened, threads: usize, stop: Option<u64>) -> (Ended, StopAfter) {
        self.train_as(opened, &Options { threads: Some(threads), ..Options::default() }, stop)
    }

    fn train_as(&self, opened: &Opened, options: &Options, stop: Option<u64>) -> (Ended, StopAfter) {
        let mut watch = StopAfter { steps: stop, ..StopAfter::default() };
        (train(opened, options, &mut watch).unwrap(), watch)
    }

    /// The last weights, the trace without times, and the evaluations.
    fn left(&self, out: &str, step: u64) -> (Vec<u8>, Vec<String>, String) {
        let out = self.path(out);
        let weights = fs::read(out.join(format!("checkpoint/step-{step:09}/weights.safetensors"))).unwrap();
        (weights, trace(&out), fs::read_to_string(out.join("eval.jsonl")).unwrap())
    }
}

fn rows(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn trace(out: &Path) -> Vec<String> {
    let text = fs::read_to_string(out.join("trace.jsonl")).unwrap();
    text.lines().map(|line| line.split(",\"seconds\"").next().unwrap().to_string()).collect()
}

/// A rule with the parameters that it cannot do without.
fn spec(name: &str) -> String {
    match name {
        "gd" => "gd:lr=0.01".into(),
        "clipped-gd" => "clipped-gd:lr=0.1,threshold=1".into(),
        "polyak" => "polyak:f_star=0".into(),
        _ => name.into(),
    }
}

#[test]
fn every_rule_trains_and_resumes_to_the_same_bits() {
    let bench = Bench::new();
    for entry in catalog() {
        let (name, rule) = (entry.name, format!("rule={}", spec(entry.name)));
        let whole = bench.open(GPT, &format!("{name}-whole"), &[&rule], false);
        let (ended, watch) = bench.train(&whole, 2, None);
        assert_eq!((ended.outcome, watch.made, watch.refused), (Outcome::Finished, 9, 0), "{name}");

        let parts = format!("{name}-parts");
        let (ended, _) = bench.train(&bench.open(GPT, &parts, &[&rule], false), 1, Some(5));
        assert_eq!(ended.outcome, Outcome::Interrupted { step: 5 }, "{name}");
        let (ended, watch) = bench.train(&bench.open(GPT, &parts, &[&rule], true), 3, None);
        assert_eq!((ended.outcome, watch.made), (Outcome::Finished, 4), "{name}");
        assert_eq!(bench.left(&parts, 9), bench.left(&format!("{name}-whole"), 9), "{name}");
    }
}

#[test]
fn every_network_resumes_to_the_same_bits() {
    let bench = Bench::new();
    for (name, text) in [("gpt", GPT), ("lstm", LSTM), ("t5", T5)] {
        // This rule keeps the most points beside the weights, and decay and the best weights are kept with it.
        let rule =
            ["rule=adaptive-polyak", "optimizer.weight_decay=0.1", "keep_best=validation", "max_refusals=9"];
        let adamw = [
            "rule=adamw:lr=0.01",
            "optimizer.weight_decay=0.1",
            "optimizer.clip=0.5",
            "optimizer.warmup=4",
            "optimizer.schedule=cosine",
        ];
        resumes_to_the_same_bits(&bench, text, &format!("{name}-rule"), &rule);
        resumes_to_the_same_bits(&bench, text, &format!("{name}-adamw"), &adamw);
    }
}

fn resumes_to_the_same_bits(bench: &Bench, text: &str, name: &str, set: &[&str]) {
    let (ended, _) = bench.train(&bench.open(text, &format!("{name}-whole"), set, false), 2, None);
    assert_eq!(ended.outcome, Outcome::Finished, "{name}");
    let parts = format!("{name}-parts");
    let mut threads = 1;
    for resume in [false, true, true] {
        let (ended, _) = bench.train(&bench.open(text, &parts, set, resume), threads, Some(2));
        assert!(matches!(ended.outcome, Outcome::Interrupted { .. }), "{name}");
        threads += 1;
    }
    let (ended, watch) = bench.train(&bench.open(text, &parts, set, true), threads, None);
    assert_eq!((ended.outcome, watch.made), (Outcome::Finished, 3), "{name}");
    assert_eq!(bench.left(&parts, 9), bench.left(&format!("{name}-whole"), 9), "{name}");

    let again = bench.train(&bench.open(text, &parts, set, true), 1, None);
    assert_eq!((again.0.outcome, again.1.made), (Outcome::Already, 0), "{name}");
}

/// Of such a run no weights of its beginning or end are written, and the rest is that of any run; killed before its first
/// checkpoint, it begins again.
#[test]
fn dropped_weights_are_those_that_nothing_goes_on_from() {
    let bench = Bench::new();
    let options = Options { threads: Some(1), drops_weights: true, ..Options::default() };
    let checkpoints = || {
        let entries = fs::read_dir(bench.path("dropped/checkpoint")).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    bench.train(&bench.open(GPT, "whole", &[], false), 2, None);
    let (ended, _) = bench.train_as(&bench.open(GPT, "dropped", &[], false), &options, Some(2));
    assert_eq!(ended.outcome, Outcome::Interrupted { step: 2 });
    assert_eq!(checkpoints(), ["step-000000002"]);
    fs::remove_dir_all(bench.path("dropped/checkpoint")).unwrap();
    let (ended, watch) = bench.train_as(&bench.open(GPT, "dropped", &[], true), &options, None);
    assert_eq!((ended.outcome, watch.made), (Outcome::Finished, 9));
    assert_eq!(checkpoints(), ["step-000000003", "step-000000006"]);
    assert_eq!(trace(&bench.path("dropped")), trace(&bench.path("whole")));
    let evaluated = |name: &str| fs::read_to_string(bench.path(name).join("eval.jsonl")).unwrap();
    assert_eq!(evaluated("dropped"), evaluated("whole"));
}

#[test]
fn the_generated_corpus_gives_polyak_its_minimum() {
    let bench = Bench::new();
    for (name, text) in [("gpt", GPT), ("lstm", LSTM)] {
        let opened = bench.open(text, name, &["rule=polyak", "steps=3", "data=generated"], false);
        let (ended, watch) = bench.train(&opened, 2, None);
        assert_eq!((watch.made, watch.refused), (3, 0), "{name}");
        assert!(ended.best_loss.is_some_and(|best| best > 0.3 && best < 2.5), "{:?}", ended.best_loss);
    }
}

#[test]
fn epochs_have_their_steps_and_no_steps_are_a_run() {
    let bench = Bench::new();
    let (ended, watch) = bench.train(&bench.open(LSTM, "epochs", &["epochs=2"], false), 2, None);
    assert_eq!(ended.outcome, Outcome::Finished);
    assert_eq!(ended.summary.unwrap().steps, watch.made);
    assert!(watch.made > 4, "{}", watch.made);
    let (ended, _) = bench.train(&bench.open(GPT, "none", &["steps=0"], false), 2, None);
    let summary = ended.summary.unwrap();
    assert_eq!((summary.steps, summary.final_train_loss, summary.diverged), (0, None, false));
    assert!(summary.final_test_loss.is_some() && summary.best_validation_loss.is_some());
}

/// 600 words in 3 columns of 200 rows: an epoch is evaluated at its first step, wherever its sequences end.
#[test]
fn an_evaluation_at_every_epoch() {
    let bench = Bench::new();
    let set = ["epochs=3", "evaluate_every=\"epoch\""];
    let (ended, watch) = bench.train(&bench.open(LSTM, "epochs", &set, false), 2, None);
    assert_eq!(ended.outcome, Outcome::Finished);
    let steps: Vec<u64> = rows(&bench.path("epochs/eval.jsonl"))
        .iter()
        .filter(|row| row["split"] == "test")
        .map(|row| row["step"].as_u64().unwrap())
        .collect();
    assert_eq!((steps.len(), steps[0], steps[3]), (4, 0, watch.made), "{steps:?}");
    assert!(steps[1] > 1 && steps[2] > steps[1] + 1 && steps[3] > steps[2] + 1, "{steps:?}");
}

/// The rates of a run with warm-up and cosine, by hand, for a rule and for AdamW; and what a checkpoint of AdamW holds.
#[test]
fn warm_up_and_cosine_stand_in_the_trace() {
    let bench = Bench::new();
    let around = ["optimizer.warmup=1", "optimizer.schedule=cosine", "optimizer.final_rate=0.5"];
    for rule in ["rule=gd:lr=0.02", "rule=adamw:lr=0.02"] {
        let set = [&[rule, "steps=5"][..], &around].concat();
        let (ended, _) = bench.train(&bench.open(GPT, rule, &set, false), 2, None);
        assert_eq!(ended.outcome, Outcome::Finished);
        let sizes: Vec<f64> = trace(&bench.path(rule))
            .iter()
            .map(|row| row.rsplit(':').next().unwrap().trim_end_matches('}').parse().unwrap())
            .collect();
        // After one step of warm-up, the cosine of 0, a quarter, a half and three quarters of half a turn.
        let root = 0.5f64.sqrt();
        let wanted = [0.5, 1.0, 0.75 + 0.25 * root, 0.75, 0.75 - 0.25 * root].map(|rate| 0.02 * rate);
        assert_eq!(sizes.len(), wanted.len());
        assert!(sizes.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-15), "{sizes:?} {wanted:?}");
    }
    let last = bench.path("rule=adamw:lr=0.02/checkpoint/step-000000005");
    let arrays = read_arrays(&fs::read(last.join("state.safetensors")).unwrap()).unwrap();
    assert_eq!(arrays.keys().collect::<Vec<_>>(), ["m", "v"]);
    assert!(arrays["v"].iter().all(|v| *v >= 0.0) && arrays["v"].iter().any(|v| *v > 0.0));
    let state: Value = serde_json::from_slice(&fs::read(last.join("state.json")).unwrap()).unwrap();
    let session = &state["session"];
    assert_eq!((&session["step"], &session["method"]["method"]), (&5.into(), &"adamw".into()), "{session}");
}

#[test]
fn only_matrices_decay_with_adamw() {
    let bench = Bench::new();
    let weights = |decay: &str| {
        let set = ["rule=adamw:lr=0.01", "steps=1", &format!("optimizer.weight_decay={decay}")];
        bench.train(&bench.open(GPT, decay, &set, false), 2, None);
        bench.left(decay, 1).0
    };
    let (without, with) = (weights("0"), weights("10"));
    let (without, with) = (read_arrays(&without).unwrap(), read_arrays(&with).unwrap());
    for (name, weights) in &without {
        let same = with[name] == *weights;
        assert_eq!(same, name.contains("norm"), "{name}");
    }
}

#[test]
fn a_diverging_run_keeps_its_last_good_checkpoint() {
    let bench = Bench::new();
    let set = ["rule=adamw:lr=3e37", "checkpoint_every=1", "max_refusals=3", "steps=50"];
    let (ended, watch) = bench.train(&bench.open(GPT, "run", &set, false), 2, None);
    assert!(matches!(ended.outcome, Outcome::Refused { step: 3, .. }), "{:?}", ended.outcome);
    assert_eq!((watch.made, watch.refused, ended.refusals), (4, 3, 3));
    assert!(ended.summary.is_some_and(|summary| summary.diverged && summary.steps == 4));
    let rows = trace(&bench.path("run"));
    assert!(rows[1].ends_with("\"step_size\":null") && rows[1].contains("\"loss\":null"), "{rows:?}");
    let kept: Vec<_> = fs::read_dir(bench.path("run/checkpoint")).unwrap().flatten().collect();
    assert_eq!(kept.len(), 1, "the one whose own loss was not finite is gone");
    assert!(kept[0].path().ends_with("step-000000000"));
}
