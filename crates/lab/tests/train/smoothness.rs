//! The local smoothness in the trace.

use std::fs;

use untuned_lab::train::checkpoint::{read_arrays, read_weights};
use untuned_lab::train::data::{Data, Filled};
use untuned_lab::train::{Config, Shape};
use untuned_net::cpu::Cpu;
use untuned_net::device::Device;
use untuned_net::models::{Noise, SCALARS};

use crate::{Bench, GPT, LSTM, T5, rows};

const NETWORKS: [(&str, &str); 3] = [("gpt", GPT), ("lstm", LSTM), ("t5", T5)];

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}

/// The last step's, from the checkpoints before and after it: the batch, the masks and the carry of that step, in f64.
fn by_hand(bench: &Bench, run: &str, step: u64) -> f64 {
    let config = Config::read_resolved(&bench.path(run).join("config.toml")).unwrap();
    let shape = Shape::of(&config).unwrap();
    let mut data = Data::open(&config, &shape).unwrap();
    let shape = shape.fitted(data.ids, data.longest_target);
    let cpu = Cpu::<f64>::new(Some(1)).unwrap();
    let mut network = shape.network(&cpu, config.batch, data.longest).unwrap();
    let layout = network.layout().clone();

    let mut filled = Filled::default();
    for n in 0..=step {
        assert!(data.training.fill(n, &mut filled).unwrap());
    }
    assert!(!filled.starts_afresh);
    let file = |step: u64, name: &str| {
        fs::read(bench.path(run).join(format!("checkpoint/step-{step:09}/{name}.safetensors")))
    };
    let carry = file(step, "state").map_or(Vec::new(), |bytes| read_arrays(&bytes).unwrap()["carry"].clone());
    assert_eq!(carry.is_empty(), !run.starts_with("lstm"));
    let weights = [step, step + 1].map(|at| read_weights(&file(at, "weights").unwrap(), &layout).unwrap());
    let gradients = weights.each_ref().map(|weights| {
        let x = cpu.parameters(weights).unwrap();
        let mut gradient = x.clone();
        let mut scalars = cpu.scalars(SCALARS).unwrap();
        network.set_carry(&cpu, &carry);
        let noise = Noise { seed: config.seed, step: step as u32 };
        network.gradient(&cpu, filled.feed(), Some(noise), &x, &mut gradient, &mut scalars);
        let mut values = vec![0.0; layout.len()];
        cpu.get_parameters(&gradient, &mut values).unwrap();
        values
    });
    distance(&gradients[0], &gradients[1]) / distance(&weights[0], &weights[1])
}

#[test]
fn it_is_that_of_two_checkpoints() {
    let bench = Bench::new();
    for (name, text) in NETWORKS {
        let set = [
            "rule=gd:lr=0.5",
            "steps=3",
            "checkpoint_every=1",
            "smoothness_every=2",
            "optimizer.weight_decay=0.1",
        ];
        bench.train(&bench.open(text, name, &set, false), 2, None);
        let trace = rows(&bench.path(name).join("trace.jsonl"));
        assert!(trace[0]["smoothness"].is_f64() && trace[1].get("smoothness").is_none(), "{trace:?}");
        let (found, wanted) = (trace[2]["smoothness"].as_f64().unwrap(), by_hand(&bench, name, 2));
        assert!((found / wanted - 1.0).abs() < 1e-4, "{name}: {found} instead of {wanted}");
    }
}

#[test]
fn measuring_changes_nothing_and_resumes_to_the_same_bits() {
    let bench = Bench::new();
    for (name, text) in NETWORKS {
        let plain = ["rule=adaptive-polyak", "optimizer.weight_decay=0.1"];
        let measured = [plain[0], plain[1], "smoothness_every=2"];
        let [without, with, parts] = ["without", "with", "parts"].map(|run| format!("{name}-{run}"));
        bench.train(&bench.open(text, &without, &plain, false), 2, None);
        bench.train(&bench.open(text, &with, &measured, false), 2, None);
        let mut left = bench.left(&with, 9);
        let measurements = left.1.iter().filter(|row| row.contains(",\"smoothness\":")).count();
        assert_eq!(measurements, 5, "{name}: at steps 0, 2, 4, 6 and 8");
        for row in &mut left.1 {
            row.truncate(row.find(",\"smoothness\"").unwrap_or(row.len()));
        }
        assert_eq!(left, bench.left(&without, 9), "{name}");

        bench.train(&bench.open(text, &parts, &measured, false), 1, Some(4));
        bench.train(&bench.open(text, &parts, &measured, true), 3, None);
        assert_eq!(bench.left(&parts, 9), bench.left(&with, 9), "{name}");
    }
}

#[test]
fn it_is_left_out_where_there_is_none() {
    let bench = Bench::new();
    // The first step is so small that the weights stay; that of the other run makes them infinite, and the next are refused.
    for (run, rule) in [("still", "rule=gd:lr=1e-30"), ("wild", "rule=adamw:lr=3e37")] {
        bench.train(&bench.open(GPT, run, &[rule, "steps=2", "smoothness_every=1"], false), 2, None);
        let trace = rows(&bench.path(run).join("trace.jsonl"));
        assert!(trace.len() == 2 && trace.iter().all(|row| row.get("smoothness").is_none()), "{trace:?}");
    }
}
