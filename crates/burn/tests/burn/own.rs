//! A rule and an optimizer of the example, outside the library, train a module.

#[path = "../../examples/burn-own-method.rs"]
mod example;

use crate::support::{START, Six, step};
use burn::lr_scheduler::LrScheduler;
use burn::optim::SgdConfig;
use burn::tensor::DType;
use example::{Halving, Signum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use untuned::optimizers::Prodigy;
use untuned::{Optimizer, RunInfo};
use untuned_burn::{Rate, StepError, Stepper};

const HALVING: Halving = Halving { rate: 0.25, before: None };
const SIGNUM: Signum = Signum { rate: 0.2, keep: 0.5, steps: 40 };

#[test]
fn the_example_trains() {
    example::main().unwrap();
}

/// Trains, saves in the middle, and goes on from what was saved.
fn train<M>(method: M, dtype: DType, loops: bool) -> (f64, f64)
where
    M: Optimizer + Clone + PartialEq + Serialize + DeserializeOwned,
{
    let new = || Stepper::from_method(method.clone()).loops(loops);
    let (mut whole, mut module) = (new(), Six::new(&START, 4, dtype));
    let first = step(&mut whole, &mut module, 0).loss;
    for t in 1..20 {
        step(&mut whole, &mut module, t);
    }
    let (mut parts, mut other) = (new(), module.clone());
    parts.load_record(whole.to_record().unwrap(), &other).unwrap();
    let mut last = f64::NAN;
    for t in 20..40 {
        let report = step(&mut whole, &mut module, t);
        assert_eq!(step(&mut parts, &mut other, t), report);
        assert_eq!(other.bits(), module.bits(), "at {t}");
        last = report.loss;
    }
    assert!(parts.method() == whole.method());
    (first, last)
}

#[test]
fn train_a_module_and_go_on_bit_for_bit() {
    for (dtype, loops) in [(DType::F32, true), (DType::F32, false), (DType::F64, true), (DType::BF16, true)] {
        let (first, last) = train(HALVING, dtype, loops);
        assert!(last < 0.5 * first, "{dtype:?}, loops {loops}: {first} to {last}");
        let (first, last) = train(SIGNUM, dtype, loops);
        assert!(last < 0.5 * first, "{dtype:?}, loops {loops}: {first} to {last}");
    }
}

#[test]
fn a_stepper_takes_the_weight_decay_of_the_method() {
    let end = |stepper: Stepper<Signum>| {
        let (mut stepper, mut module) = (stepper, Six::new(&START, 4, DType::F64));
        for t in 0..3 {
            step(&mut stepper, &mut module, t);
        }
        (module.bits(), stepper.memory())
    };
    let new = || Stepper::from_method(SIGNUM);
    assert_eq!(end(new()), end(new().weight_decay(0.001).unwrap()));
    assert_ne!(end(new()), end(new().weight_decay(0.0).unwrap()));
    assert_eq!(end(new()).1, 6 * 8, "one vector");
}

/// A method of the library by its type makes the steps of the one that its text names.
#[test]
fn typed_methods() {
    let (mut text, mut one) = (Stepper::new("prodigy:d0=0.01", 9).unwrap(), Six::new(&START, 4, DType::F32));
    let prodigy = Prodigy { d0: 0.01, ..Default::default() }.build(&RunInfo::new(9)).unwrap();
    let (mut typed, mut other) = (Stepper::from_method(prodigy), Six::new(&START, 4, DType::F32));
    for t in 0..9 {
        assert_eq!(step(&mut text, &mut one, t), step(&mut typed, &mut other, t));
        assert_eq!(one.bits(), other.bits(), "at {t}");
    }
    assert_eq!(typed.method().d0, 0.01);
    let other = Prodigy { d0: 0.1, ..Default::default() }.build(&RunInfo::new(9)).unwrap();
    let error = Stepper::from_method(other).load_record(typed.to_record().unwrap(), &one).unwrap_err();
    assert!(matches!(&error, StepError::Record(why) if why.contains("d0=0.01")), "{error}");
}

/// A rule as Burn's scheduler makes the steps of the stepper.
#[test]
fn a_rule_as_a_scheduler() {
    let (mut rate, mut one) = (Rate::from_rule(HALVING).unwrap(), Six::new(&START, 4, DType::F32));
    let (mut stepper, mut other) = (Stepper::from_method(HALVING), Six::new(&START, 4, DType::F32));
    for t in 0..9 {
        if t == 5 {
            let mut loaded = Rate::from_rule(HALVING).unwrap();
            loaded.load_record(rate.to_record());
            rate = loaded;
        }
        let loss = one.loss(t, 0.0, 0);
        let mut gradients = one.gradients(&loss);
        rate.observe(&one, &loss, &mut gradients);
        one = SgdConfig::new().init().step(rate.step(), one.clone(), gradients);
        assert_eq!(rate.last(), Some(step(&mut stepper, &mut other, t)));
        assert_eq!(one.bits(), other.bits(), "at {t}");
    }
    assert!(format!("{rate:?}").contains("Halving"), "{rate:?}");
}
