//! Half precision: squared and computed in f32, and only the parameters themselves are half.

use crate::support::{START, Six, device, specs};
use burn::module::Param;
use burn::tensor::{DType, Tensor};
use untuned::{DenseF64, Session};
use untuned_burn::{StepError, Stepper};

/// 300² is beyond f16, and (3e-4)² below its resolution.
#[test]
fn a_half_precision_gradient_is_squared_in_f32() {
    for (number, within) in [(300.0, 1e-3), (3e-4, 1e-3)] {
        for dtype in [DType::F16, DType::BF16] {
            let mut module = Six::new(&[1.0; 6], 0, dtype);
            let loss = module.all().sum();
            let mut gradients = module.gradients(&loss);
            let id = module.list.as_ref().unwrap().id;
            gradients.register(id, Tensor::<1>::full([6], number, (&device().inner(), dtype)));
            let report =
                Stepper::new("inexact-polyak", 4).unwrap().step(loss, &mut module, gradients).unwrap();
            let norm = number * 6f64.sqrt();
            let within = if dtype == DType::BF16 { 4e-3 } else { within };
            assert!(
                (report.grad_norm / norm - 1.0).abs() < within,
                "{dtype:?}: {} and not {norm}",
                report.grad_norm
            );
        }
    }
}

#[test]
fn every_method_steps_half_precision_parameters() {
    for spec in specs() {
        for dtype in [DType::F16, DType::BF16] {
            let mut module = Six::new(&START, 4, dtype);
            let mut stepper = Stepper::new(&spec, 20).unwrap().weight_decay(0.01).unwrap();
            for t in 0..6 {
                let loss = module.loss(t, 0.0, 0);
                let gradients = module.gradients(&loss);
                match stepper.step(loss, &mut module, gradients) {
                    Ok(_) => {}
                    // The loss of a long step may be beyond f16.
                    Err(StepError::Refused(_)) if dtype == DType::F16 => break,
                    Err(error) => panic!("{spec}, {dtype:?}: {error}"),
                }
                assert_eq!(module.all().dtype(), dtype, "{spec}");
                assert!(module.list.as_ref().unwrap().is_require_grad());
            }
            assert!(stepper.steps() > 0, "{spec}, {dtype:?}: no step was made");
            let session = Session::new(stepper.method().clone(), DenseF64::new(6)).unwrap();
            let vectors = session.vector_names().len();
            assert_eq!(stepper.memory(), vectors * 6 * 4, "{spec}: vectors are f32");
        }
    }
}

/// The largest number of f16 is 65504, and what a step writes is not looked at.
#[test]
fn a_step_beyond_f16_is_infinite() {
    let mut module = Six::new(&[65000.0; 6], 0, DType::F16);
    let loss = module.all().mean();
    let mut gradients = module.gradients(&loss);
    let id = module.list.as_ref().unwrap().id;
    gradients.register(id, Tensor::<1>::full([6], -1000.0, (&device().inner(), DType::F16)));
    let loss = Tensor::<1>::from_floats([1.0], &device());
    Stepper::new("gd:lr=1", 4).unwrap().step(loss, &mut module, gradients).unwrap();
    assert_eq!(module.numbers(), [f64::INFINITY; 6]);
}

/// What is kept between steps is not half: Adam's mean of g² of 1e-8 is 1e-11 after the first step, 0 in f16.
#[test]
fn the_means_of_adam_are_not_half() {
    let run = |dtype| {
        let mut module = Six::new(&[1.0; 6], 0, dtype);
        let mut stepper = Stepper::new("adamw:lr=0.125,eps=1e-30", 4).unwrap();
        let loss = module.all().sum();
        let mut gradients = module.gradients(&loss);
        let id = module.list.as_ref().unwrap().id;
        gradients.register(id, Tensor::<1>::full([6], 1e-4, (&device().inner(), dtype)));
        stepper.step(loss, &mut module, gradients).unwrap();
        module.numbers()
    };
    assert_eq!(run(DType::F16), [0.875; 6], "the first step has length lr");
}

/// Parameters of several types in one module.
#[test]
fn types_may_differ_from_parameter_to_parameter() {
    let mut module = Six::new(&START, 4, DType::F32);
    let list = Tensor::<1>::from_floats([-1.5, 0.25], &device()).inner().cast(DType::BF16);
    module.list = Some(Param::from_tensor(list.autodiff().require_grad()));
    let mut stepper = Stepper::new("polyak-adam", 20).unwrap();
    let mut losses = Vec::new();
    for _ in 0..20 {
        let list = module.list.as_ref().unwrap().val().cast(DType::F32);
        let loss = list.square().sum() + module.matrix.as_ref().unwrap().val().square().sum();
        let gradients = module.gradients(&loss);
        losses.push(stepper.step(loss, &mut module, gradients).unwrap().loss);
    }
    assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
    assert_eq!(module.list.unwrap().val().dtype(), DType::BF16);
}
