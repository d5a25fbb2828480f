//! AdamW in an arena: against the library's plain one, with any number of threads, and the gaps stay 0.

#![allow(clippy::unwrap_used)]

use std::ops::Range;
use untuned::Observation;
use untuned::optimizers::{AdamW, Around, Optimizer, Plain, Space};
use untuned_net::arena::{Initial, Layout};
use untuned_net::cpu::Cpu;
use untuned_net::cpu::math::Real;
use untuned_net::random::Site;
use untuned_net::space::ArenaSpace;

const STEPS: u32 = 30;

/// Matrices and vectors with gaps and without, shorter than a part of a pass, longer, and across its ends.
fn layout() -> Layout {
    let mut layout = Layout::default();
    layout.vector("first", 5, Initial::Normal(1.0));
    layout.matrix("small", 3, 7, Initial::Normal(1.0));
    layout.matrix("large", 300, 501, Initial::Normal(1.0));
    layout.vector("norm", 70_001, Initial::Normal(1.0));
    let parts = ["q", "k"].map(|name| (name.to_string(), 33, Initial::Normal(1.0)));
    layout.stacked(&parts, 5);
    layout.vector("last", 3, Initial::Normal(1.0));
    layout
}

/// The gradient of a step, of very different sizes, 0 in the gaps.
fn gradient(layout: &Layout, step: u32) -> Vec<f32> {
    let mut values = vec![0.0; layout.len()];
    for (site, tensor) in layout.tensors().iter().enumerate() {
        let deviation = 10f64.powi(3 - 2 * site as i32);
        Site { seed: 3, site: site as u32, step }.fill_normal(&mut values[tensor.view.range()], deviation);
    }
    values
}

/// The point after all steps, with `m` and `v`.
fn walk<S: Space>(
    space: &S,
    layout: &Layout,
    mut x: S::Vector,
    vector: impl Fn(&[f32]) -> S::Vector,
) -> [S::Vector; 3]
where
    S::Error: std::fmt::Debug,
{
    let mut adamw = AdamW::default();
    (adamw.lr, adamw.beta2) = (0.01, 0.99);
    let mut kept = [space.zeros().unwrap(), space.zeros().unwrap()];
    for step in 0..STEPS {
        let values = gradient(layout, step);
        let norm = values.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
        let rate = f64::from(step + 1) / f64::from(STEPS);
        let around = Around { rate, clip: Some(1000.0), weight_decay: 0.3 };
        let seen = Observation::new(u64::from(step), 1.0, norm);
        adamw.step(space, &seen, &around, &mut x, &vector(&values), &mut kept).unwrap();
    }
    let [m, v] = kept;
    [x, m, v]
}

fn walk_on<R: Real>(threads: usize) -> [Vec<R>; 3] {
    let (cpu, layout) = (Cpu::<R>::new(Some(threads)).unwrap(), layout());
    let vector = |values: &[f32]| values.iter().map(|&v| R::from_f32(v)).collect::<Vec<R>>();
    walk(&ArenaSpace::new(&cpu, &layout), &layout, vector(&layout.initial(1)), vector)
}

fn plain() -> [Vec<f64>; 3] {
    let layout = layout();
    let vector = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let matrices = ["small", "large", "q", "k"];
    let tensors = layout.tensors().iter().filter(|tensor| matrices.contains(&tensor.name.as_str()));
    let decayed: Vec<Range<usize>> = tensors.map(|tensor| tensor.view.range()).collect();
    assert_eq!(decayed.len(), 4);
    let space = Plain { dimension: layout.len(), decayed };
    walk(&space, &layout, vector(&layout.initial(1)), vector)
}

/// The largest difference, as a part of what the plain one has, or of 1 where that is smaller and `small` says so.
fn worst<R: Real>(got: &[R], want: &[f64], small: f64) -> f64 {
    let errors = got.iter().zip(want).map(|(got, want)| (got.to_f64() - want).abs() / want.abs().max(small));
    errors.fold(0.0, f64::max)
}

#[test]
fn it_is_the_plain_one() {
    let want = plain();
    for (index, got) in walk_on::<f64>(2).iter().enumerate() {
        assert!(worst(got, &want[index], 1e-9) < 1e-12, "array {index} in f64");
    }
    let [x, m, v] = walk_on::<f32>(2);
    // Thirty roundings of numbers near 1; a mean of gradients of both signs loses some more.
    assert!(worst(&x, &want[0], 1.0) < 1e-5, "{}", worst(&x, &want[0], 1.0));
    assert!(worst(&v, &want[2], f64::MIN_POSITIVE) < 1e-5, "{}", worst(&v, &want[2], f64::MIN_POSITIVE));
    for tensor in layout().tensors() {
        let (m, want) = (&m[tensor.view.range()], &want[1][tensor.view.range()]);
        let largest = want.iter().fold(0.0f64, |most, m| most.max(m.abs()));
        assert!(worst(m, want, largest) < 1e-6, "{}: {}", tensor.name, worst(m, want, largest));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let one = walk_on::<f32>(1);
    for threads in [2, 3, 7] {
        assert!(walk_on::<f32>(threads) == one, "{threads} threads");
    }
}

#[test]
fn gaps_stay_zero() {
    let layout = layout();
    let mut gap = vec![true; layout.len()];
    for tensor in layout.tensors() {
        gap[tensor.view.range()].fill(false);
    }
    assert!(gap.iter().any(|&gap| gap));
    for array in walk_on::<f32>(2) {
        let bits = array.iter().zip(&gap).filter(|(_, gap)| **gap).map(|(value, _)| value.to_bits());
        assert!(bits.clone().count() > 20 && bits.into_iter().all(|bits| bits == 0));
    }
}
