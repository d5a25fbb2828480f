//! Several batches or replicas in a step.

use crate::support::{self, START, Six, device, specs};
use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Tensor};
use untuned_burn::{Accumulated, StepError, Stepper, agreed};

fn batch(module: &Six, t: u64) -> (Tensor<1>, GradientsParams) {
    let loss = module.loss(t, 0.0, 0);
    let gradients = module.gradients(&loss);
    (loss, gradients)
}

/// Four batches are one batch that is four times as long: its loss is the mean, and so is its gradient.
#[test]
fn accumulated_gradients_are_sums_and_steps_are_of_means() {
    for spec in specs() {
        let (mut sum, mut whole) = (Six::new(&START, 4, DType::F64), Six::new(&START, 4, DType::F64));
        let mut steppers = [(); 2].map(|()| Stepper::new(&spec, 20).unwrap());
        for t in 0..6 {
            let mut batches = Accumulated::new();
            for part in 0..4 {
                let (loss, gradients) = batch(&sum, 4 * t + part);
                batches.add(loss, &sum, gradients).unwrap();
            }
            assert_eq!(batches.count(), 4);
            let one = steppers[0].step_mean(batches, &mut sum).unwrap();
            let losses = (0..4).map(|part| whole.loss(4 * t + part, 0.0, 0));
            let loss = losses.reduce(|a, b| a + b).unwrap() / 4.0;
            let gradients = whole.gradients(&loss);
            let other = steppers[1].step(loss, &mut whole, gradients).unwrap();
            let near = |a: &[f64], b: &[f64]| support::error(a, b, 1e-3) <= 1e-9;
            assert!(
                near(&[one.loss], &[other.loss]) && near(&[one.grad_norm], &[other.grad_norm]),
                "{spec}: {one:?} {other:?}"
            );
            assert!(near(&sum.numbers(), &whole.numbers()), "{spec} at {t}");
        }
    }
}

/// Why this is a trap: Burn's own accumulator gives a sum, and the loss of one batch does not belong to it.
#[test]
fn burns_accumulator_is_a_sum() {
    let module = Six::new(&START, 4, DType::F64);
    let mut accumulator = GradientsAccumulator::new();
    for _ in 0..3 {
        accumulator.accumulate(&module, batch(&module, 0).1);
    }
    let (loss, gradients) = batch(&module, 0);
    let alone = Stepper::new("dog", 9).unwrap().step(loss.clone(), &mut module.clone(), gradients).unwrap();
    let three = Stepper::new("dog", 9).unwrap().step(loss, &mut module.clone(), accumulator.grads()).unwrap();
    assert!((three.grad_norm / alone.grad_norm - 3.0).abs() < 1e-12);
}

/// Two replicas with the same ids, each with its batch.
#[test]
fn replicas_in_one_step() {
    let mut module = Six::new(&START, 4, DType::F32);
    let replicas = [module.clone().fork(&device()), module.clone().fork(&device())];
    let mut batches = Accumulated::new();
    for (t, replica) in replicas.iter().enumerate() {
        let (loss, gradients) = batch(replica, t as u64);
        batches.add(loss, &module, gradients).unwrap();
    }
    let report = Stepper::new("inexact-polyak", 9).unwrap().step_mean(batches, &mut module).unwrap();
    let losses = [0, 1].map(|t| f64::from(replicas[0].loss(t, 0.0, 0).into_scalar::<f32>()));
    assert!((report.loss - (losses[0] + losses[1]) / 2.0).abs() < 1e-6);
}

#[test]
fn replicas_that_step_for_themselves_must_agree_on_the_loss() {
    let loss = |number: f32| Tensor::<1>::from_floats([number], &device());
    assert_eq!(agreed([loss(0.5), loss(0.5), loss(0.5)]), Ok(0.5));
    let error = agreed([loss(0.5), loss(0.5), loss(0.5000001)]).unwrap_err();
    assert!(matches!(error, StepError::Disagreement { replica: 2, first: 0.5, .. }), "{error}");
    assert!(error.to_string().contains("the mean of all losses"), "{error}");
    assert_eq!(agreed(Vec::<Tensor<1>>::new()), Err(StepError::NoBatch));
}

#[test]
fn a_batch_that_is_not_finite_refuses_the_step() {
    let mut module = Six::new(&START, 4, DType::F32);
    let before = module.bits();
    let mut stepper = Stepper::new("level-polyak", 9).unwrap();
    let mut batches = Accumulated::new();
    for factor in [1.0, f32::NAN] {
        let (loss, gradients) = batch(&module, 0);
        batches.add(loss * factor, &module, gradients).unwrap();
    }
    assert!(matches!(stepper.step_mean(batches, &mut module), Err(StepError::Refused(_))));
    assert_eq!(stepper.step_mean(Accumulated::new(), &mut module), Err(StepError::NoBatch));
    assert_eq!(
        Accumulated::new().add(module.all(), &module, GradientsParams::new()),
        Err(StepError::Loss { numbers: 6 })
    );
    assert_eq!(module.bits(), before);
}
