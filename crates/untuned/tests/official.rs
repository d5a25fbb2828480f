//! Every method walks as its official implementation does: `official/official.py` drove that one over a small problem in f64 and
//! wrote down where it went, `official/METHOD.json`; here ours goes the same way. `polyak-adam` is ours and has no official
//! implementation: `official/polyak_adam.py` computes it a second time, from its formula and the whole history of a run.

#![allow(clippy::unwrap_used)]

#[path = "official/cases.rs"]
mod cases;
mod support;

use std::collections::BTreeSet;

use cases::{Case, EVERY, EXACT, Golden, MOMENTUM, PRODIGY, problem};
use support::{Run, build};
use untuned::optimizers::OPTIMIZERS;
use untuned::space::{TensorRange, scales};
use untuned::{DenseF64, Method, StepOptions, catalog};

/// A test for each method: its name, how far it may be from the official one, relative to the largest coordinate, and the cases
/// that are left out, as words in the spec, each with the reason.
macro_rules! methods {
    ($($test:ident: $name:literal within $tolerance:expr $(, without $words:expr => $why:literal)*;)*) => {
        $(#[test]
        fn $test() {
            walks_as_the_official($name, $tolerance, &[$(($words, $why)),*]);
        })*

        /// The methods with a trace.
        const METHODS: &[&str] = &[$($name),*];
    };
}

methods! {
    adagrad: "adagrad" within EXACT;
    adamw: "adamw" within EXACT;
    ali_g: "ali-g" within EXACT, without MOMENTUM => "a scalar rule has no momentum";
    cocob: "cocob" within EXACT;
    d_adapt_adam: "d-adapt-adam" within EXACT;
    d_adapt_sgd: "d-adapt-sgd" within EXACT;
    dog: "dog" within EXACT;
    dowg: "dowg" within EXACT;
    mechanic: "mechanic" within EXACT;
    momo: "momo" within EXACT;
    momo_adam: "momo-adam" within EXACT;
    polyak_adam: "polyak-adam" within EXACT;
    prodigy: "prodigy" within PRODIGY;
    schedule_free_adamw: "schedule-free-adamw" within EXACT;
    schedule_free_sgd: "schedule-free-sgd" within EXACT;
    sgd_momentum: "sgd-momentum" within EXACT;
    sps_max: "sps-max" within EXACT;
}

/// Every optimizer has a trace and every trace a method. A rule of the paper has no official implementation but DoG.
#[test]
fn every_optimizer_has_a_trace_and_every_trace_a_method() {
    let methods: BTreeSet<_> = METHODS.iter().map(|name| name.to_string()).collect();
    let traces: BTreeSet<_> = cases::names().into_iter().collect();
    assert_eq!(traces, methods, "the files of `official` and the methods of this test");
    let known: BTreeSet<_> = catalog().iter().map(|info| info.name.to_string()).collect();
    let missing: Vec<_> = methods.difference(&known).collect();
    assert!(missing.is_empty(), "no methods: {missing:?}");
    for info in OPTIMIZERS {
        assert!(methods.contains(info.name), "{} has no trace", info.name);
    }
}

fn walks_as_the_official(name: &str, tolerance: f64, without: &[(&str, &str)]) {
    let golden = cases::read(name);
    assert!(!golden.cases.is_empty());
    let left_out = |case: &Case| without.iter().any(|(words, _)| case.spec.contains(words));
    for (words, why) in without {
        assert!(golden.cases.iter().any(|case| case.spec.contains(words)), "no case has {words} ({why})");
    }
    let mut wrong = Vec::new();
    for case in golden.cases.iter().filter(|case| !left_out(case)) {
        assert_eq!(case.spec.split(':').next(), Some(name));
        let (error, place) = walk(&golden, case);
        if error.is_nan() || error > tolerance {
            let package = case.package.as_ref().unwrap_or(&golden.package);
            let note = case.note.as_deref().unwrap_or("");
            wrong.push(format!(
                "{}: {error:.1e} {place}from {} of {package}; {note}",
                case.spec, case.official
            ));
        }
    }
    assert!(wrong.is_empty(), "allowed is {tolerance:.1e}:\n{}", wrong.join("\n"));
}

/// MoMo has a rate for each group of parameters: `official.py` wrote down the last one, which does not decay; ours reports the other.
fn rate_of_another_group(case: &Case) -> bool {
    case.spec.starts_with("momo") && case.around.weight_decay > 0.0 && case.decayed.is_none()
}

/// The tensors of a trace, with their scales at the start.
fn tensors(golden: &Golden) -> Vec<TensorRange> {
    let mut end = 0;
    let ranges = golden.tensors.iter().map(|tensor| {
        end += tensor.length;
        end - tensor.length..end
    });
    let ranges: Vec<_> = ranges.collect();
    let squares = ranges.iter().map(|range| golden.start[range.clone()].iter().map(|x| x * x).sum());
    let sizes =
        golden.tensors.iter().zip(squares).map(|(tensor, squares)| (tensor.matrix, tensor.length, squares));
    let scales = scales(sizes);
    assert!(scales.iter().any(|scale| *scale > 2.0), "{scales:?}");
    let all = ranges.into_iter().zip(&golden.tensors).zip(scales);
    all.map(|((range, tensor), scale)| TensorRange { range, decays: tensor.decays, scale }).collect()
}

/// The largest error, and where it is.
fn walk(golden: &Golden, case: &Case) -> (f64, String) {
    let method = build(&case.spec, golden.steps);
    let decayed = 0..case.decayed.unwrap_or(golden.decayed);
    let space = if golden.tensors.is_empty() {
        DenseF64::new(golden.start.len()).decaying(decayed.clone())
    } else {
        DenseF64 { dimension: golden.start.len(), tensors: tensors(golden) }
    };
    let mut options =
        StepOptions { weight_decay: case.around.weight_decay, clip: case.around.clip, rate: 1.0 };
    // The official codes of scalar rules add λ·x to the gradient: to a rule that is another problem.
    let mut penalty = 0.0;
    if matches!(method, Method::Rule(_)) {
        std::mem::swap(&mut penalty, &mut options.weight_decay);
    }
    let mut run = Run::new(method, space, &golden.start);
    run.session.options = options;
    let mut worst = (0.0, String::new());
    let mut compare = |got: &[f64], want: &[f64], what: &str, t: u64| {
        assert_eq!(got.len(), want.len());
        let scale = want.iter().fold(0.0, |scale: f64, want| scale.max(want.abs()));
        for (got, want) in got.iter().zip(want) {
            let error = (got - want).abs() / scale;
            if error.is_nan() || error > worst.0 {
                worst = (error, format!("at step {t}, {what}: {got} and not {want}, "));
            }
        }
    };
    for t in 0..golden.steps {
        let (loss, mut gradient) = problem(&run.x, t);
        decayed.clone().for_each(|i| gradient[i] += penalty * run.x[i]);
        run.session.options.rate = case.around.rate(t);
        let rate = run.step(loss, &gradient).unwrap().rate;
        if (t + 1) % EVERY == 0 {
            let row = (t / EVERY) as usize;
            compare(&run.x, &case.points[row], "the point", t);
            let differs = run.session.has_evaluation_point();
            assert_eq!(differs, case.evaluation.is_some(), "{}: the evaluated point", case.spec);
            if let Some(evaluation) = &case.evaluation {
                compare(&run.evaluated(), &evaluation[row], "the evaluated point", t);
            }
            if let Some(rates) = case.rates.as_ref().filter(|_| !rate_of_another_group(case)) {
                compare(&[rate], &[rates[row]], "the rate", t);
            }
        }
    }
    assert_eq!(case.points.len() as u64, golden.steps / EVERY);
    worst
}
