//! The options of a run: several batches in a step, frozen tensors, averages, clipping; and what it reports.

use super::*;

fn losses(out: &Path) -> Vec<f64> {
    rows(&out.join("trace.jsonl")).iter().map(|row| row["loss"].as_f64().unwrap()).collect()
}

fn arrays(out: &Path, step: u64, file: &str) -> std::collections::BTreeMap<String, Vec<f32>> {
    let path = out.join(format!("checkpoint/step-{step:09}/{file}.safetensors"));
    read_arrays(&fs::read(path).unwrap()).unwrap().into_iter().collect()
}

/// With a rate that moves nothing, the losses of single batches are known, and those of steps with three of them are their means.
#[test]
fn a_step_of_several_batches_has_their_mean_loss() {
    let bench = Bench::new();
    for (name, text) in [("gpt", GPT), ("t5", T5)] {
        let single = ["rule=gd:lr=1e-30", "steps=6"];
        bench.train(&bench.open(text, &format!("{name}-one"), &single, false), 2, None);
        let several = ["rule=gd:lr=1e-30", "steps=2", "accumulate=3"];
        bench.train(&bench.open(text, &format!("{name}-three"), &several, false), 2, None);
        let one = losses(&bench.path(&format!("{name}-one")));
        let three = losses(&bench.path(&format!("{name}-three")));
        assert_eq!((one.len(), three.len()), (6, 2));
        for (mean, parts) in three.iter().zip(one.chunks(3)) {
            let wanted = parts.iter().sum::<f64>() / 3.0;
            assert!((mean - wanted).abs() < 1e-12 * wanted, "{name}: {three:?} {one:?}");
            assert!(parts[0] != parts[1], "different batches");
        }
    }
}

#[test]
fn steps_of_several_batches_and_averages_resume_to_the_same_bits() {
    let bench = Bench::new();
    for (name, text) in [("gpt", GPT), ("lstm", LSTM), ("t5", T5)] {
        let set = ["rule=adamw:lr=0.01", "accumulate=2", "optimizer.average=ema:0.5"];
        resumes_to_the_same_bits(&bench, text, &format!("{name}-several"), &set);
        let set = ["rule=dog:eps_rel=0.01", "optimizer.average=polynomial"];
        resumes_to_the_same_bits(&bench, text, &format!("{name}-average"), &set);
    }
}

/// The epochs of the LSTM hold as many steps as whole groups of batches.
#[test]
fn epochs_of_several_batches_a_step() {
    let bench = Bench::new();
    let (_, one) = bench.train(&bench.open(LSTM, "one", &["epochs=2"], false), 2, None);
    let set = ["epochs=2", "accumulate=4"];
    let (_, four) = bench.train(&bench.open(LSTM, "four", &set, false), 2, None);
    assert!(one.made % 4 > 0 && four.made == one.made / 4, "{} {}", one.made, four.made);
}

#[test]
fn what_is_frozen_stays_and_nothing_counts_its_gradient() {
    let bench = Bench::new();
    for rule in ["inexact-polyak", "adamw:lr=0.01"] {
        let (decay, rule_key) = ("optimizer.weight_decay=0.5", format!("rule={rule}"));
        let free = format!("{rule}-free");
        bench.train(&bench.open(GPT, &free, &[decay, &rule_key, "steps=3"], false), 2, None);
        let names = arrays(&bench.path(&free), 3, "weights").into_keys();
        let first = names.into_iter().find(|name| name.starts_with("blocks.0.")).unwrap();
        let group = first.rsplit_once('.').unwrap().0;
        let frozen = format!("frozen=[{group:?}]");
        let set = [decay, &rule_key, "steps=3", &frozen];
        let out = format!("{rule}-frozen");
        bench.train(&bench.open(GPT, &out, &set, false), 2, None);
        let (start, end) = (arrays(&bench.path(&out), 0, "weights"), arrays(&bench.path(&out), 3, "weights"));
        let inside = |name: &str| name.starts_with(&format!("{group}."));
        assert!(start.keys().any(|name| inside(name)) && start.keys().any(|name| !inside(name)));
        for (name, before) in &start {
            assert_eq!(*before == end[name], inside(name), "{rule}: {name}");
        }
        let norm = |out: &str| rows(&bench.path(out).join("trace.jsonl"))[0]["grad_norm"].as_f64().unwrap();
        assert!(norm(&out) < norm(&free), "{rule}");
    }
    let opened = bench.open(GPT, "unknown", &["frozen=[\"nothing\"]"], false);
    let error = train(&opened, &Options::default(), &mut StopAfter::default()).unwrap_err();
    assert!(error.is_request() && error.to_string().contains("\"nothing\""), "{error}");
    assert!(error.to_string().contains("the nearest is "), "{error}");
    assert!(!bench.path("unknown").exists(), "and the right name can be given");
}

/// What is evaluated and left is the average or, of Schedule-Free, its own mean; training goes on from another point.
#[test]
fn another_point_is_evaluated_and_left() {
    let bench = Bench::new();
    let plain = ["rule=adamw:lr=0.01"];
    bench.train(&bench.open(GPT, "plain", &plain, false), 2, None);
    let averaged = ["rule=adamw:lr=0.01", "optimizer.average=ema:0.5"];
    bench.train(&bench.open(GPT, "averaged", &averaged, false), 2, None);
    let (plain, averaged) = (bench.path("plain"), bench.path("averaged"));
    assert_eq!(trace(&plain), trace(&averaged), "training is the same");
    let (weights, left) = (arrays(&plain, 9, "weights"), arrays(&averaged, 9, "weights"));
    assert_ne!(weights, left);
    let state = arrays(&averaged, 9, "state");
    assert_eq!(state.keys().collect::<Vec<_>>(), ["average", "m", "trained", "v"]);
    let trained = &state["trained"];
    let packed: usize = weights.values().map(Vec::len).sum();
    assert_eq!(trained.len(), packed);
    let mut sorted = [trained.clone(), weights.values().flatten().copied().collect()];
    sorted.iter_mut().for_each(|values: &mut Vec<f32>| values.sort_by(f32::total_cmp));
    assert_eq!(sorted[0], sorted[1], "the same numbers, in another order of the tensors");
    let text = |out: &Path| fs::read_to_string(out.join("eval.jsonl")).unwrap();
    assert_ne!(text(&plain), text(&averaged));

    bench.train(&bench.open(GPT, "free", &["rule=schedule-free-adamw"], false), 2, None);
    let free = bench.path("free");
    let state = arrays(&free, 9, "state");
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    assert!(distance(&state["trained"], &state["z"]) > 0.0);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let bench = Bench::new();
    let file = bench.path("x.toml");
    fs::write(&file, GPT).unwrap();
    for (set, words) in [
        (&["rule=prodigy", "optimizer.clip=1"][..], &["optimizer.clip is 1", "prodigy does not clip"][..]),
        (&["optimizer.clip=1"], &["inexact-polyak does not clip"]),
        (&["accumulate=0"], &["accumulate is 0", "from 1"]),
        (&["accumulate=2", "smoothness_every=1"], &["accumulate is 2", "smoothness_every"]),
        (&["steps=4000000000", "accumulate=2"], &["accumulate is 2", "4294967295"]),
        (&["optimizer.average=median"], &["\"median\" is no average", "ema:0.999", "in `optimizer.average`"]),
        (&["optimizer.average=ema:1"], &["ema:1", "below 1"]),
        (&["optimizer.average=polynomial:-5"], &["polynomial:-5", "at least 0"]),
        (&["optimizer.average=polynomial:inf"], &["polynomial:inf", "at least 0"]),
    ] {
        let mut overrides = Overrides::default();
        set.iter().for_each(|text| overrides.set(text).unwrap());
        let error = folder::open(&file, &overrides, None, false).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    }
}

#[test]
fn a_bound_above_the_loss_is_noted_once() {
    let bench = Bench::new();
    let set = ["rule=inexact-polyak:lower_bound=100"];
    let (_, watch) = bench.train(&bench.open(GPT, "bound", &set, false), 2, None);
    let notes: Vec<_> = watch.notes.iter().filter(|note| note.contains("lower_bound")).collect();
    assert_eq!(notes.len(), 1, "{:?}", watch.notes);
    assert!(notes[0].contains("step 0") && notes[0].contains("inexact-polyak"), "{notes:?}");
}

/// An estimate that cannot grow: after a hundred steps one note, however often the run is evaluated.
#[test]
fn a_stuck_estimate_is_noted_once() {
    let bench = Bench::new();
    let set = ["rule=prodigy:d_coef=1e-9", "steps=130", "evaluate_every=5", "batch=1"];
    let (_, watch) = bench.train(&bench.open(GPT, "stuck", &set, false), 2, None);
    let notes: Vec<_> = watch.notes.iter().filter(|note| note.contains("d0")).collect();
    assert_eq!(notes.len(), 1, "{:?}", watch.notes);
}

/// Without what is frozen, and with the same batch: the smoothness is that of the rest, far from the frozen gradient over the step.
#[test]
fn the_smoothness_leaves_out_what_is_frozen() {
    let bench = Bench::new();
    let set = ["rule=gd:lr=1e-4", "steps=2", "smoothness_every=1"];
    let measured = |out: &str, set: &[&str]| {
        bench.train(&bench.open(GPT, out, set, false), 2, None);
        rows(&bench.path(out).join("trace.jsonl"))[0]["smoothness"].as_f64().unwrap()
    };
    let free = measured("free", &set);
    let frozen = measured("frozen", &[&set[..], &["frozen=[\"blocks\"]"]].concat());
    assert!(frozen < 3.0 * free, "{frozen} {free}");
}

#[test]
fn an_epoch_with_too_few_batches_is_refused() {
    let bench = Bench::new();
    let opened = bench.open(LSTM, "few", &["epochs=1", "accumulate=1000"], false);
    let error = train(&opened, &Options::default(), &mut StopAfter::default()).unwrap_err();
    assert!(error.is_request() && error.to_string().contains("accumulate is 1000"), "{error}");
}
