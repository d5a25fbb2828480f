//! The loop in one dimension and in a million, beside the memory floor of the same buffers.
//!
//! A step must read the gradient for its norm (8 bytes per variable) and read `x` and the gradient and write `x` for
//! the update (24 bytes); the problem's own gradient comes on top. The floor is what the machine reads and copies.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use untuned::{MethodSpec, Minimizer, Problem, RunInfo, vector};
use untuned_theory::ProblemSpec;

const MANY: usize = 1_000_000;
const STEPS: u64 = 100;

fn run(problem: &dyn Problem, rule: &str, steps: u64) -> f64 {
    let spec: MethodSpec = rule.parse().expect("the rule is valid");
    let rule = spec.build(&RunInfo::of(problem, steps)).expect("the problem knows f*");
    let run = Minimizer::new(problem).trace(false).average(None).run(rule, &problem.start(), steps);
    run.expect("the start fits").best.loss
}

fn one_dimension(c: &mut Criterion) {
    let problem: ProblemSpec = "quartic:l1=10".parse().expect("the problem is valid");
    let problem = problem.build().expect("the problem is valid");
    let mut group = c.benchmark_group("minimize in 1 dimension");
    group.throughput(Throughput::Elements(10_000));
    for rule in ["polyak", "inexact-polyak", "decsps", "dog"] {
        group.bench_function(BenchmarkId::new(rule, "10000 steps"), |b| {
            b.iter(|| run(problem.as_ref(), rule, 10_000))
        });
    }
    group.finish();
}

fn a_million(c: &mut Criterion) {
    let problem: ProblemSpec = format!("separable-quartic:dim={MANY}").parse().expect("the problem is valid");
    let problem = problem.build().expect("the problem is valid");
    let (x, mut gradient) = (problem.start(), vec![0.0; MANY]);
    problem.value_and_gradient(&x, &mut gradient);
    let mut group = c.benchmark_group("a million variables");
    group.sample_size(30);

    group.throughput(Throughput::Bytes(8 * MANY as u64));
    group.bench_function("floor: read", |b| b.iter(|| bare_read(black_box(&gradient))));
    group.bench_function("norm", |b| b.iter(|| vector::norm(black_box(&gradient))));

    let mut target = x.clone();
    group.throughput(Throughput::Bytes(16 * MANY as u64));
    group.bench_function("floor: copy", |b| b.iter(|| black_box(&mut target).copy_from_slice(black_box(&x))));
    group.throughput(Throughput::Bytes(24 * MANY as u64));
    group.bench_function("update in place", |b| {
        b.iter(|| step_in_place(black_box(&mut target), 1e-9, black_box(&gradient)));
    });
    group.bench_function("update beside", |b| {
        b.iter(|| step_into(black_box(&mut target), black_box(&x), 1e-9, black_box(&gradient)));
    });

    group.throughput(Throughput::Elements(1));
    group.bench_function("the problem's value and gradient", |b| {
        b.iter(|| problem.value_and_gradient(black_box(&x), black_box(&mut gradient)));
    });
    group.sample_size(20);
    group.throughput(Throughput::Elements(STEPS));
    group.bench_function("floor: 100 steps", |b| b.iter(|| bare_passes(problem.as_ref(), STEPS)));
    group
        .bench_function("minimize, 100 steps", |b| b.iter(|| run(problem.as_ref(), "inexact-polyak", STEPS)));
    group.finish();
}

/// `x ← x − size·g`.
fn step_in_place(x: &mut [f64], size: f64, gradient: &[f64]) {
    x.iter_mut().zip(gradient).for_each(|(x, g)| *x -= size * g);
}

/// `to ← from − size·g`.
fn step_into(to: &mut [f64], from: &[f64], size: f64, gradient: &[f64]) {
    to.iter_mut().zip(from).zip(gradient).for_each(|((to, x), g)| *to = x - size * g);
}

/// Reads everything and does next to nothing with it.
fn bare_read(v: &[f64]) -> u64 {
    let mut sums = [0u64; 16];
    for chunk in v.chunks_exact(16) {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(x.to_bits());
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// The passes of a step over the same buffers and nothing else: the problem's gradient, a bare read of it, and a bare
/// `x' = x − s·g` beside `x`, which keeps the best iterate without a copy.
fn bare_passes(problem: &dyn Problem, steps: u64) -> f64 {
    let start = problem.start();
    let (mut x, mut next, mut gradient) = (start.clone(), vec![0.0; MANY], vec![0.0; MANY]);
    let mut sum = 0.0;
    for _ in 0..steps {
        sum += problem.value_and_gradient(&x, &mut gradient);
        sum += bare_read(&gradient) as f64;
        step_into(&mut next, &x, 1e-9, &gradient);
        std::mem::swap(&mut x, &mut next);
    }
    black_box(&start);
    sum
}

criterion_group!(benches, one_dimension, a_million);
criterion_main!(benches);
