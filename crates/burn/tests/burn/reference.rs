//! Every method walks in a Burn module as it does over plain f64 vectors, both with loops over memory and with tensor operations.

use crate::cases::problem;
use crate::support::{START, Six, error, method, specs, step};
use burn::tensor::DType;
use untuned::{DenseF64, Optimizer as _, Session};
use untuned_burn::Stepper;

const STEPS: u64 = 60;
const DECAY: f64 = 0.01;
const DECAYED: usize = 4;

/// The points of a run of the library's reference, and its rates.
fn reference(spec: &str) -> Vec<(Vec<f64>, f64)> {
    let method = method(spec, STEPS);
    let decayed = if method.decays_everything() { START.len() } else { DECAYED };
    let mut session = Session::new(method, DenseF64::new(START.len()).decaying(0..decayed)).unwrap();
    session.options.weight_decay = DECAY;
    let mut x = START.to_vec();
    let step = |t| {
        let (loss, gradient) = problem(&x, t);
        let report = session.advance(loss, &mut x, &gradient);
        let rate = report.unwrap_or_else(|refusal| panic!("{spec}: {refusal}")).rate;
        (x.clone(), rate)
    };
    (0..STEPS).map(step).collect()
}

/// The largest differences in a number of the first points, relative to the largest number, and in a rate.
fn errors(spec: &str, dtype: DType, loops: bool, points: usize) -> (f64, f64) {
    let mut stepper = Stepper::new(spec, STEPS).unwrap().weight_decay(DECAY).unwrap().loops(loops);
    let mut module = Six::new(&START, DECAYED, dtype);
    let (mut worst, mut worst_rate): (f64, f64) = (0.0, 0.0);
    for (t, (point, rate)) in (0..).zip(reference(spec)).take(points) {
        let report = step(&mut stepper, &mut module, t);
        assert_eq!(report.step, t);
        worst = worst.max(error(&module.numbers(), &point, 1e-3));
        worst_rate = worst_rate.max(error(&[report.rate], &[rate], 1e-12));
    }
    assert_eq!(stepper.reads(), points as u64, "{spec}: one read a step");
    (worst, worst_rate)
}

#[test]
fn in_f64_to_rounding() {
    let mut wrong = Vec::new();
    for spec in specs() {
        // From d0 = 1e-6 the first x_0 − x are of that size: a rounding of x is 1e-10 of them.
        let tolerance = if spec.starts_with("prodigy") { 1e-9 } else { 1e-11 };
        for loops in [true, false] {
            let (point, rate) = errors(&spec, DType::F64, loops, STEPS as usize);
            if point.max(rate) > tolerance {
                wrong.push(format!("{spec}, loops {loops}: {point:.1e}, rate {rate:.1e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A few steps: some methods make much of a rounding later. Those that begin with a distance of 1e-6 or so find another one for a
/// while, because f32 rounds x by as much: here they begin with more.
#[test]
fn in_f32_to_its_rounding() {
    let mut wrong = Vec::new();
    for spec in specs() {
        let first = match spec.split(':').next() {
            Some("prodigy") if !spec.contains("d0") => "d0=0.01",
            Some("mechanic") => "s_init=0.001",
            Some("dog") => "eps_rel=0.003",
            _ => "",
        };
        let spec = match (first, spec.contains(':')) {
            ("", _) => spec,
            (first, true) => format!("{spec},{first}"),
            (first, false) => format!("{spec}:{first}"),
        };
        for loops in [true, false] {
            let (point, rate) = errors(&spec, DType::F32, loops, 8);
            if point > 1e-5 || rate > 2e-5 {
                wrong.push(format!("{spec}, loops {loops}: {point:.1e}, rate {rate:.1e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Loops and tensor operations round alike, but add sums up in another order: points differ by 1e-12 in f64 and 2e-6 in f32 at most.
#[test]
fn loops_and_tensor_operations_agree() {
    for spec in specs() {
        for dtype in [DType::F32, DType::F64] {
            let run = |loops| {
                let mut stepper = Stepper::new(&spec, 20).unwrap().weight_decay(DECAY).unwrap().loops(loops);
                let mut module = Six::new(&START, DECAYED, dtype);
                let mut points = Vec::new();
                for t in 0..20 {
                    step(&mut stepper, &mut module, t);
                    points.push(module.numbers());
                }
                points
            };
            let (loops, operations) = (run(true), run(false));
            let largest = if dtype == DType::F64 { 1e-12 } else { 2e-6 };
            for (a, b) in loops.iter().zip(&operations) {
                let wrong = error(a, b, 1.0);
                assert!(wrong <= largest, "{spec}, {dtype:?}: {wrong:.1e}: {a:?} and {b:?}");
            }
        }
    }
}
