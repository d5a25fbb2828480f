//! Two devices: a run on one that has only tensor operations, and what is on the wrong one.

use crate::support::{self, START, Six, specs};
use burn::module::Module;
use burn::tensor::{DType, Device};
use untuned_burn::{StepError, Stepper};

#[allow(deprecated, reason = "NdArray is the only device besides Flex that needs no hardware")]
fn elsewhere() -> Device {
    Device::ndarray()
}

#[test]
fn every_method_makes_the_same_steps_on_another_device() {
    for spec in specs() {
        let new = || (Stepper::new(&spec, 20).unwrap(), Six::new(&START, 4, DType::F64));
        let ((mut one, mut here), (mut two, there)) = (new(), new());
        let mut there = there.fork(&elsewhere());
        for t in 0..20 {
            here.try_step(&mut one, t).unwrap();
            there.try_step(&mut two, t).unwrap();
            let error = support::error(&here.numbers(), &there.numbers(), 1.0);
            assert!(error <= 1e-11, "{spec} at {t}: {error:.1e}");
        }
        assert_eq!(there.all().device(), elsewhere());
        assert_eq!(one.memory(), two.memory(), "{spec}");
    }
}

/// The error says how a run moves, and that works.
#[test]
fn a_module_that_moved_is_refused_and_its_state_can_move_too() {
    let (mut stepper, mut module) = (Stepper::new("prodigy", 9).unwrap(), Six::new(&START, 4, DType::F64));
    for t in 0..3 {
        module.try_step(&mut stepper, t).unwrap();
    }
    let mut moved = module.clone().fork(&elsewhere());
    let before = moved.bits();
    let error = moved.try_step(&mut stepper, 3).unwrap_err();
    assert!(matches!(&error, StepError::Device { name, .. } if name == "matrix"), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("`matrix` is on Device<NdArray") && words.contains("was on Device<Flex"),
        "{words}"
    );
    assert_eq!((moved.bits(), stepper.steps()), (before, 3));

    let mut other = Stepper::new("prodigy", 9).unwrap();
    other.load_record(stepper.to_record().unwrap(), &moved).unwrap();
    for t in 3..6 {
        let (a, b) = (module.try_step(&mut stepper, t).unwrap(), moved.try_step(&mut other, t).unwrap());
        assert!((a.rate - b.rate).abs() <= 1e-9 * a.rate, "{a:?} {b:?}");
    }
}

#[test]
fn a_gradient_on_another_device_is_refused() {
    let (mut stepper, mut module) = (Stepper::new("dog", 9).unwrap(), Six::new(&START, 4, DType::F32));
    let before = module.bits();
    let loss = module.loss(0, 0.0, 0);
    let mut gradients = module.gradients(&loss);
    let id = module.list.as_ref().unwrap().id;
    let there = gradients.remove::<1>(id).unwrap().to_device(&elsewhere());
    gradients.register(id, there);
    let error = stepper.step(loss, &mut module, gradients).unwrap_err();
    assert!(matches!(&error, StepError::Device { name, .. } if name == "the gradient of list"), "{error}");
    assert_eq!((module.bits(), stepper.steps()), (before, 0));
}

/// A module of which a part is elsewhere.
#[test]
fn parameters_may_be_on_different_devices() {
    let mut module = Six::new(&START, 4, DType::F64);
    module.list = module.list.map(|list| list.fork(&elsewhere()));
    let mut stepper = Stepper::new("adamw", 9).unwrap();
    let (matrix, list) = (module.matrix.as_ref().unwrap().val(), module.list.as_ref().unwrap().val());
    let loss = matrix.square().sum() + list.square().sum().to_device(&Device::flex());
    let gradients = module.gradients(&loss);
    let report = stepper.step(loss, &mut module, gradients).unwrap();
    let norm = 2.0 * START.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((report.grad_norm - norm).abs() < 1e-12 * norm);
    let moved = module.list.as_ref().unwrap().val();
    assert_eq!(moved.device(), elsewhere());
    assert!(moved.into_data().iter::<f64>().zip(&START[4..]).all(|(new, old)| new != *old));
}
