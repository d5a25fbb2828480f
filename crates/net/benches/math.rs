//! The functions of the activations and the masks of dropout, per number (`Gelem/s` is the reciprocal of ns per number).

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use untuned_net::cpu::math;
use untuned_net::random::Site;

/// In the cache of the first level, with the two results.
const N: usize = 2048;

fn functions(c: &mut Criterion) {
    let x: Vec<f32> = (0..N).map(|i| (i as f32 / N as f32 - 0.5) * 10.0).collect();
    let g: Vec<f32> = (0..N).map(|i| (i as f32).sin()).collect();
    let mut group = c.benchmark_group("f32");
    group.throughput(Throughput::Elements(N as u64));
    let mut out = vec![0f32; N];
    let mut other = vec![0f32; N];
    type Function = fn(&[f32], &mut [f32]);
    let maps: [(&str, Function); 6] = [
        ("exp", math::exp),
        ("tanh", math::tanh),
        ("sigmoid", math::sigmoid),
        ("erf", math::erf),
        ("gelu", math::gelu),
        ("gelu_tanh", math::gelu_tanh),
    ];
    for (name, function) in maps {
        group.bench_function(name, |b| b.iter(|| function(black_box(&x), &mut out)));
    }
    type Function2 = fn(&[f32], &[f32], &mut [f32]);
    let maps: [(&str, Function2); 3] = [
        ("gelu_backward", math::gelu_backward),
        ("gelu_tanh_backward", math::gelu_tanh_backward),
        ("gated_gelu", math::gated_gelu),
    ];
    for (name, function) in maps {
        group.bench_function(name, |b| b.iter(|| function(black_box(&x), &g, &mut out)));
    }
    group.bench_function("gated_gelu_backward", |b| {
        b.iter(|| math::gated_gelu_backward(black_box(&x), &g, &x, &mut out, &mut other))
    });
}

fn random(c: &mut Criterion) {
    let site = Site { seed: 1, site: 2, step: 3 };
    let mut group = c.benchmark_group("random");
    group.throughput(Throughput::Elements(N as u64));
    let mut out = vec![0f32; N];
    group.bench_function("fill_dropout", |b| {
        b.iter(|| black_box(site).fill_dropout(0, &mut out, black_box(0.1)))
    });
    group
        .bench_function("fill_dropout from 3", |b| b.iter(|| black_box(site).fill_dropout(3, &mut out, 0.1)));
    group.bench_function("fill_uniform", |b| b.iter(|| black_box(site).fill_uniform(&mut out, 0.0, 1.0)));
    group.bench_function("block by block", |b| {
        b.iter(|| {
            for (block, out) in out.chunks_exact_mut(4).enumerate() {
                for (out, bits) in out.iter_mut().zip(black_box(site).block(block as u64)) {
                    *out = if bits < 0x1999_9A00 { 0.0 } else { 1.0 / 0.9 };
                }
            }
        })
    });
}

criterion_group!(benches, functions, random);
criterion_main!(benches);
