//! What a refused step leaves, and what is refused.

use crate::support::{START, Six, device, specs, step};
use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};
use untuned::{Refusal, StepKind};
use untuned_burn::{Report, StepError, Stepper};

fn stepper(spec: &str) -> Stepper {
    Stepper::new(spec, 20).unwrap()
}

fn state(stepper: &Stepper) -> Vec<u8> {
    stepper.to_record().unwrap().into_bytes().unwrap().to_vec()
}

#[test]
fn a_loss_or_gradient_that_is_not_finite_changes_nothing() {
    for spec in specs() {
        for loops in [true, false] {
            for steps in [0, 3] {
                let mut stepper = stepper(&spec).loops(loops);
                let mut module = Six::new(&START, 4, DType::F32);
                for t in 0..steps {
                    step(&mut stepper, &mut module, t);
                }
                let before = (module.bits(), state(&stepper), stepper.steps());
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let loss = module.loss(steps, 0.0, 0);
                    let gradients = module.gradients(&loss);
                    let refused = stepper.step(loss * bad, &mut module, gradients).unwrap_err();
                    assert!(matches!(refused, StepError::Refused(Refusal::Loss { .. })), "{spec}: {refused}");

                    let loss = module.loss(steps, 0.0, 0);
                    let mut gradients = module.gradients(&loss);
                    let id = module.list.as_ref().unwrap().id;
                    let gradient = gradients.remove::<1>(id).unwrap() * bad;
                    gradients.register(id, gradient);
                    let refused = stepper.step(loss, &mut module, gradients).unwrap_err();
                    assert!(matches!(refused, StepError::Refused(_)), "{spec}: {refused}");
                    assert_eq!((module.bits(), state(&stepper), stepper.steps()), before, "{spec}");
                }
                // The module is still of use, and so is the method.
                step(&mut stepper, &mut module, steps);
                assert_ne!(module.bits(), before.0, "{spec}");
                assert!(module.matrix.as_ref().unwrap().is_require_grad());
            }
        }
    }
}

#[test]
fn an_error_says_what_and_what_to_do() {
    let mut module = Six::new(&START, 4, DType::F32);
    let loss = module.loss(0, 0.0, 0);
    let gradients = module.gradients(&loss);
    let error = stepper("inexact-polyak").step(loss * f32::NAN, &mut module, gradients).unwrap_err();
    let words = error.to_string();
    assert!(words.contains("step 0: the loss is NaN") && words.contains("leave this batch out"), "{words}");

    let error = Stepper::new("inexact-polak", 1).unwrap_err().to_string();
    assert!(error.contains("did you mean `inexact-polyak`?"), "{error}");
    let error = Stepper::new("polyak", 1).unwrap_err();
    assert!(matches!(error, StepError::Spec(_)), "{error}");
}

#[test]
fn a_zero_gradient_is_a_step_of_size_0() {
    let mut module = Six::new(&START, 4, DType::F32);
    let before = module.bits();
    let loss = (module.all() * 0.0).sum() + 1.0;
    let gradients = module.gradients(&loss);
    let report = stepper("inexact-polyak").step(loss, &mut module, gradients).unwrap();
    assert_eq!((report.rate, report.kind, report.grad_norm), (0.0, StepKind::Stationary, 0.0));
    assert_eq!(module.bits(), before);
}

#[test]
fn the_loss_is_one_number() {
    let mut module = Six::new(&START, 4, DType::F32);
    let before = module.bits();
    let loss = module.loss(0, 0.0, 0);
    let gradients = module.gradients(&loss);
    let error = stepper("dog").step(module.all(), &mut module, gradients).unwrap_err();
    assert_eq!(error, StepError::Loss { numbers: 6 });
    assert_eq!(module.bits(), before);
}

/// A loss of 1 with a gradient of this norm.
fn step_of_norm(
    stepper: &mut Stepper,
    module: &mut Six,
    norm: f64,
    dtype: DType,
) -> Result<Report, StepError> {
    let loss = (module.all() * 0.0).sum() + 1.0;
    let mut gradients = module.gradients(&loss);
    let id = module.list.as_ref().unwrap().id;
    let first = Tensor::<1>::from_data(TensorData::new(vec![norm, 0.0], [2]), (&device().inner(), dtype));
    gradients.remove::<1>(id).unwrap();
    gradients.register(id, first);
    stepper.step(loss, module, gradients)
}

/// 1/‖g‖² is 1e40.
#[test]
fn a_rate_that_f32_cannot_hold_is_refused() {
    for spec in ["polyak-bound", "polyak:f_star=0"] {
        for loops in [true, false] {
            let mut stepper = stepper(spec).loops(loops);
            let mut module = Six::new(&START, 4, DType::F32);
            let before = (module.bits(), state(&stepper));
            let result = step_of_norm(&mut stepper, &mut module, 1e-20, DType::F32);
            assert!(matches!(result, Err(StepError::Refused(_))), "{spec}: {result:?}");
            assert_eq!((module.bits(), state(&stepper)), before, "{spec}");
        }
    }
}

/// What the README says of the ends of the range.
#[test]
fn the_range_of_the_norm() {
    for loops in [true, false] {
        let step = |norm, dtype| {
            let mut module = Six::new(&START, 4, dtype);
            step_of_norm(&mut stepper("gd:lr=1e-200").loops(loops), &mut module, norm, dtype)
        };
        let norm = |norm, dtype| step(norm, dtype).unwrap().grad_norm / norm;
        for (number, dtype) in
            [(1e-153, DType::F64), (1e154, DType::F64), (1e-37, DType::F32), (1e38, DType::F32)]
        {
            assert!((norm(number, dtype) - 1.0).abs() < 1e-6, "{number} {dtype:?}");
        }
        let nothing = step(1e-162, DType::F64).unwrap();
        assert_eq!((nothing.grad_norm, nothing.kind), (0.0, StepKind::Stationary));
        let error = step(1.4e154, DType::F64).unwrap_err();
        assert!(matches!(error, StepError::Refused(Refusal::Gradient { .. })), "{error}");
    }
}

/// Gradients of another module, whose parameters have other ids.
#[test]
fn gradients_of_another_module_are_refused() {
    let mut module = Six::new(&START, 4, DType::F32);
    let other = Six::new(&START, 4, DType::F32);
    let before = module.bits();
    let loss = other.loss(0, 0.0, 0);
    let gradients = other.gradients(&loss);
    let error = stepper("adamw").step(loss, &mut module, gradients).unwrap_err();
    assert_eq!(error, StepError::NoGradient { parameters: 2 });
    assert_eq!(module.bits(), before);
}

#[test]
fn a_parameter_without_a_gradient_has_the_gradient_0() {
    for loops in [true, false] {
        let mut module = Six::new(&START, 4, DType::F32);
        let mut stepper = stepper("adamw:lr=0.1").weight_decay(0.0).unwrap().loops(loops);
        let before = module.bits();
        let loss = module.list.as_ref().unwrap().val().square().sum();
        let gradients = module.gradients(&loss);
        let report = stepper.step(loss, &mut module, gradients).unwrap();
        assert_eq!(module.bits()[..4], before[..4]);
        assert_ne!(module.bits()[4..], before[4..]);
        assert!((report.grad_norm - 2.0 * 1.5f64.hypot(0.25)).abs() < 1e-6);
    }
}

#[test]
fn frozen_parameters_stay_and_count_for_nothing() {
    let mut module = Six::new(&START, 4, DType::F32);
    module.matrix = module.matrix.map(|matrix| matrix.set_require_grad(false));
    let mut stepper = stepper("prodigy:d0=0.1").weight_decay(0.5).unwrap();
    let before = module.bits();
    for t in 0..3 {
        step(&mut stepper, &mut module, t);
    }
    assert_eq!(module.bits()[..4], before[..4]);
    assert_ne!(module.bits()[4..], before[4..]);
    assert_eq!(stepper.memory(), 4 * 2 * 4, "four vectors of two numbers");
}

#[test]
fn another_module_type_or_shape_is_refused() {
    let mut stepper = stepper("adamw");
    let mut module = Six::new(&START, 4, DType::F32);
    step(&mut stepper, &mut module, 0);
    let refused = |stepper: &mut Stepper, module: &mut Six| {
        let before = module.bits();
        let loss = module.loss(1, 0.0, 0);
        let gradients = module.gradients(&loss);
        let error = stepper.step(loss, module, gradients).unwrap_err();
        assert_eq!(module.bits(), before);
        error.to_string()
    };
    let words = refused(&mut stepper, &mut Six::new(&START, 4, DType::F32));
    assert!(words.contains("`matrix` has taken the place of `matrix`"), "{words}");

    let mut half = module.clone();
    half.list =
        half.list.map(|list| list.map(|list| list.inner().cast(DType::F16).autodiff().require_grad()));
    let loss =
        half.list.as_ref().unwrap().val().cast(DType::F32).sum() + half.matrix.as_ref().unwrap().val().sum();
    let gradients = half.gradients(&loss);
    let error = stepper.step(loss, &mut half, gradients).unwrap_err().to_string();
    assert!(error.contains("`list` is F16 of the shape [2], and it was F32"), "{error}");

    let mut fewer = module.clone();
    fewer.list = fewer.list.map(|list| list.set_require_grad(false));
    let words = refused(&mut stepper, &mut fewer);
    assert!(words.contains("1 parameters require a gradient, and before there were 2"), "{words}");
    // And with the module itself it goes on.
    step(&mut stepper, &mut module, 1);
}

#[test]
fn a_gradient_of_another_type_is_refused() {
    let mut module = Six::new(&START, 4, DType::F32);
    let before = module.bits();
    let loss = module.loss(0, 0.0, 0);
    let mut gradients = module.gradients(&loss);
    let id = module.list.as_ref().unwrap().id;
    let half = gradients.remove::<1>(id).unwrap().cast(DType::F16);
    gradients.register(id, half);
    let error = stepper("dog").step(loss, &mut module, gradients).unwrap_err().to_string();
    assert!(
        error.contains("`list` is F32 of the shape [2] and its gradient F16 of the shape [2]"),
        "{error}"
    );
    assert_eq!(module.bits(), before);
}

/// A method that needs `‖x_0‖` refuses parameters that are not finite, or whose squares are not.
#[test]
fn a_start_that_is_not_finite_is_refused() {
    for (bad, dtype) in [(f64::INFINITY, DType::F32), (f64::NAN, DType::F32), (1e200, DType::F64)] {
        for loops in [true, false] {
            let mut module = Six::new(&[1.0, bad, 0.5, 3.0, -1.5, 0.25], 4, dtype);
            let mut stepper = stepper("dog").loops(loops);
            let loss = module.list.as_ref().unwrap().val().square().sum();
            let (before, gradients) = (module.bits(), module.gradients(&loss));
            let error = stepper.step(loss, &mut module, gradients).unwrap_err();
            let what = "x0_norm";
            assert!(
                matches!(error, StepError::Refused(Refusal::NotFinite { what: found, .. }) if found == what),
                "{error}"
            );
            assert_eq!((module.bits(), stepper.steps()), (before, 0));
        }
    }
}

/// Passes change memory in place, but not that of a copy which somebody keeps, nor of the tensors that somebody took out.
#[test]
fn a_clone_of_the_module_stays_as_it_was() {
    for spec in specs() {
        let (mut stepper, mut module) = (stepper(&spec), Six::new(&START, 4, DType::F32));
        for t in 0..3 {
            let (kept, tensor, before) = (module.clone(), module.list.as_ref().unwrap().val(), module.bits());
            step(&mut stepper, &mut module, t);
            assert_ne!(module.bits(), before, "{spec}");
            assert_eq!(kept.bits(), before, "{spec}");
            let tensor: Vec<u64> = tensor.into_data().iter::<f64>().map(f64::to_bits).collect();
            assert_eq!(tensor, before[4..], "{spec}");
        }
    }
}

#[test]
fn memory_is_counted() {
    for (spec, vectors) in [("inexact-polyak", 0), ("dog", 1), ("adaptive-polyak", 2), ("prodigy", 4)] {
        let mut stepper = stepper(spec);
        let mut module = Six::new(&START, 4, DType::F32);
        assert_eq!(stepper.memory(), 0);
        step(&mut stepper, &mut module, 0);
        assert_eq!(stepper.memory(), vectors * 6 * 4, "{spec}");
    }
}

/// Layers of Burn with their own ranks, a parameter of rank 4 among them; and the parameters keep what they are.
#[test]
fn parameters_of_every_rank() {
    #[derive(Module, Debug)]
    struct Ranks {
        linear: burn::nn::Linear,
        conv: Param<Tensor<4>>,
        not_trained: Param<Tensor<3>>,
    }
    let device = device();
    let conv = Tensor::<4>::ones([2, 3, 1, 2], &device).require_grad();
    let not_trained = Tensor::<3>::ones([1, 2, 3], &device);
    let mut module = Ranks {
        linear: LinearConfig::new(3, 2).init(&device),
        conv: Param::from_tensor(conv),
        not_trained: Param::from_tensor(not_trained).set_require_grad(false),
    };
    let mut stepper = stepper("polyak-adam").weight_decay(0.1).unwrap();
    for _ in 0..3 {
        let out = module.linear.forward(Tensor::<2>::ones([4, 3], &device));
        let loss = out.square().mean() + module.conv.val().square().mean() + module.not_trained.val().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &module);
        assert_eq!(gradients.len(), 3);
        stepper.step(loss, &mut module, gradients).unwrap();
    }
    assert_eq!(module.conv.dims(), [2, 3, 1, 2]);
    assert_eq!(module.linear.weight.dims(), [3, 2]);
    assert!(module.linear.weight.is_require_grad() && !module.not_trained.is_require_grad());
    assert!(module.conv.val().into_data().iter::<f32>().all(|number| number < 1.0));
}
