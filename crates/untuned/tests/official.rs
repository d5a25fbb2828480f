//! Every method walks as its official implementation does: `official/official.py` drove that one over a small problem in f64 and
//! wrote down where it went, `official/METHOD.json`; here ours goes the same way.

#![allow(clippy::unwrap_used)]

#[path = "official/cases.rs"]
mod cases;

use std::collections::BTreeSet;

use cases::{Case, EVERY, EXACT, Golden, MOMENTUM, PRODIGY, problem};
use untuned::optimizers::{Around, At, Keep, Method, OPTIMIZERS, Optimizer, OptimizerSpec, Plain, catalog};
use untuned::{Observation, Setting, vector};

/// A test for each method: its name, how far it may be from the official one, relative to the largest coordinate, and the cases
/// that are left out, as words in the spec, each with the reason.
macro_rules! methods {
    ($($test:ident: $name:literal within $tolerance:expr $(, without $words:expr => $why:literal)*;)*) => {
        $(#[test]
        fn $test() {
            walks_as_the_official($name, $tolerance, &[$(($words, $why)),*]);
        })*

        /// The methods with an official implementation.
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
    prodigy: "prodigy" within PRODIGY;
    schedule_free_adamw: "schedule-free-adamw" within EXACT;
    schedule_free_sgd: "schedule-free-sgd" within EXACT;
    sgd_momentum: "sgd-momentum" within EXACT;
    sps_max: "sps-max" within EXACT;
}

/// Methods without an official implementation.
const OURS: &[&str] = &["polyak-adam"];

/// Every optimizer has a trace and every trace a method. A rule of the paper has no official implementation but DoG.
#[test]
fn every_optimizer_has_a_trace_and_every_trace_a_method() {
    let methods: BTreeSet<_> = METHODS.iter().map(|name| name.to_string()).collect();
    let traces: BTreeSet<_> = cases::names().into_iter().collect();
    assert_eq!(traces, methods, "the files of `official` and the methods of this test");
    let known: BTreeSet<_> = catalog().iter().map(|entry| entry.name.to_string()).collect();
    let missing: Vec<_> = methods.difference(&known).collect();
    assert!(missing.is_empty(), "no methods: {missing:?}");
    for entry in OPTIMIZERS {
        assert!(methods.contains(entry.name) || OURS.contains(&entry.name), "{} has no trace", entry.name);
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

/// The largest error, and where it is.
fn walk(golden: &Golden, case: &Case) -> (f64, String) {
    let spec: OptimizerSpec = case.spec.parse().unwrap_or_else(|error| panic!("{}: {error}", case.spec));
    let mut method = spec.build(&Setting::new(golden.steps)).unwrap();
    let decayed = 0..case.decayed.unwrap_or(golden.decayed);
    let space = Plain::new(golden.start.len()).decaying(decayed.clone());
    let mut around = Around { weight_decay: case.around.weight_decay, clip: case.around.clip, rate: 1.0 };
    // The official codes of scalar rules add λ·x to the gradient: to a rule that is another problem.
    let mut penalty = 0.0;
    if matches!(method, Method::Rule(_)) {
        std::mem::swap(&mut penalty, &mut around.weight_decay);
    }
    let mut x = golden.start.clone();
    let mut judged = x.clone();
    let mut kept = Keep::all(&space, &method.keeps(), &x).unwrap();
    let mut sums = vec![0.0; 1 + method.measures()];
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
        let (loss, mut gradient) = problem(&x, t);
        decayed.clone().for_each(|i| gradient[i] += penalty * x[i]);
        around.rate = case.around.rate(t);
        let x0_norm = vector::norm(&golden.start);
        let norm = vector::norm(&gradient);
        let dimension = golden.start.len() as u64;
        let seen = Observation { x0_norm, dimension, ..Observation::new(t, loss, norm) };
        let at = At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
        method.measure(&at, &mut sums, 0);
        let step = method.step(&seen, &sums[1..], at).unwrap();
        if (t + 1) % EVERY == 0 {
            let row = (t / EVERY) as usize;
            compare(&x, &case.points[row], "the point", t);
            let differs = method.evaluated(&space, &x, &kept, &mut judged);
            assert_eq!(differs, case.evaluation.is_some(), "{}: the evaluated point", case.spec);
            if let Some(evaluation) = &case.evaluation {
                compare(&judged, &evaluation[row], "the evaluated point", t);
            }
            if let Some(rates) = case.rates.as_ref().filter(|_| !rate_of_another_group(case)) {
                compare(&[step.size], &[rates[row]], "the rate", t);
            }
        }
    }
    assert_eq!(case.points.len() as u64, golden.steps / EVERY);
    worst
}
