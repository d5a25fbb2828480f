//! The scalar cost of one step of every rule.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use untuned::rules::RULES;
use untuned::spec::DefaultValue;
use untuned::{MethodSpec, Observation, RunInfo, StepRule};

/// The rule with its required parameters set to 0.1, and the options that cost something.
fn specs() -> Vec<String> {
    let plain = RULES.iter().map(|entry| {
        let required = entry.parameters.iter().filter(|p| p.default == DefaultValue::Required);
        let pairs: Vec<String> = required.map(|p| format!("{}=0.1", p.name)).collect();
        if pairs.is_empty() { entry.name.to_string() } else { format!("{}:{}", entry.name, pairs.join(",")) }
    });
    plain
        .chain(["adaptive-polyak:variant=epochs".to_string(), "decsps:grad_shift=1e-4".to_string()])
        .collect()
}

fn observations() -> Vec<Observation> {
    let seen = |t: u64| Observation {
        x0_norm: Some(5.0),
        distance: Some(0.01 * t as f64),
        grad_sum: Some(0.1),
        dimension: Some(1),
        ..Observation::new(t, 3.0 + 1.0 / (t + 1) as f64, 1.0 + (t % 7) as f64)
    };
    (0..1024).map(seen).collect()
}

fn one_step(c: &mut Criterion) {
    let observations = observations();
    let mut group = c.benchmark_group("rule");
    for spec in specs() {
        let parsed: MethodSpec = spec.parse().expect("the specs are valid");
        let run = RunInfo { steps: 1024, f_star: Some(1.0) };
        let mut rule = parsed.build_rule(&run).expect("the run knows f*");
        let mut at = 0;
        group.bench_function(&spec, |b| {
            b.iter(|| {
                at = (at + 1) % observations.len();
                rule.step(black_box(&observations[at]))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, one_step);
criterion_main!(benches);
