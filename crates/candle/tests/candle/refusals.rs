//! A step that cannot be answered is refused, and nothing has changed; errors say what, and can be had from Candle's.

use crate::support::{self, MATRIX, Run, START, problem, specs};
use candle_core::{Context as _, DType, Device, Tensor, Var};
use candle_nn::Optimizer;
use untuned::{Average, Refusal, StepKind};
use untuned_candle::{Config, Error, Untuned};

fn state(run: &Run) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    run.optimizer.save(folder.path().join("state")).unwrap();
    std::fs::read(folder.path().join("state")).unwrap()
}

#[test]
fn what_is_not_finite_is_refused_by_every_method() {
    for spec in specs() {
        for fused in [true, false] {
            let config = Config { fused, ..Config::new(&spec, 50).unwrap() };
            let mut run = Run::new(config, &START, MATRIX, DType::F32);
            for t in 0..3 {
                run.step_on_problem(t).unwrap();
            }
            let before = state(&run);
            let (loss, gradient) = problem(&run.x(), 3);
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let error = run.step(bad, &gradient).unwrap_err();
                assert!(
                    matches!(error, Error::Refused { refusal: Refusal::Loss { .. }, .. }),
                    "{spec}: {error}"
                );
                assert_eq!(state(&run), before, "{spec}");
                let mut gradient = gradient.clone();
                gradient[5] = bad;
                let error = run.step(loss, &gradient).unwrap_err();
                let Error::Refused { variables, .. } = &error else { panic!("{spec}: {error}") };
                assert_eq!(variables, &["layer.bias"], "{spec}: {error}");
                assert_eq!(state(&run), before, "{spec}");
            }
            run.step(loss, &gradient).unwrap();
        }
    }
}

#[test]
fn the_variable_with_the_bad_gradient_is_named() {
    let mut run = Run::new(Config::new("inexact-polyak", 50).unwrap(), &START, MATRIX, DType::F32);
    let mut gradient = vec![1.0; START.len()];
    gradient[5] = f64::NAN;
    let error = run.step(1.0, &gradient).unwrap_err().to_string();
    assert_eq!(error, "step 0: the gradient's norm is NaN, because of layer.bias");
}

/// A measure speaks of it, where the gradient's norm does not.
#[test]
fn a_variable_that_is_not_finite_is_named() {
    let mut run = Run::new(Config::new("dog", 50).unwrap(), &START, MATRIX, DType::F32);
    run.vars[1].set(&Tensor::new(&[1f32, f32::NAN, 2.], &Device::Cpu).unwrap()).unwrap();
    let error = run.step(1.0, &[1.0; START.len()]).unwrap_err().to_string();
    assert_eq!(error, "step 0: distance is NaN, because of layer.bias");
    for (bad, norm) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let [good, bad] = [2.0, bad].map(|x| Var::new(&[1f32, x], &Device::Cpu).unwrap());
        let names = [("good".to_string(), good), ("bad".to_string(), bad)];
        let error = Untuned::named(names, Config::new("dog", 50).unwrap()).unwrap_err().to_string();
        assert_eq!(error, format!("the norm of the variables is {norm}, because of bad"));
    }
}

/// A rate of 1e40 is infinite in f32, and a step with it NaN where the gradient is 0.
#[test]
fn a_rate_that_the_variables_cannot_hold_is_refused() {
    for fused in [true, false] {
        let config = Config { fused, ..Config::new("polyak-bound", 50).unwrap() };
        let mut run = Run::new(config, &START, MATRIX, DType::F32);
        let before = state(&run);
        let mut gradient = vec![0.0; START.len()];
        gradient[2] = 1e-20;
        let error = run.step(1.0, &gradient).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!(run.x(), START);
        assert_eq!(state(&run), before);
    }
}

#[test]
fn an_average_that_cannot_be_used_is_refused() {
    for (average, words) in [
        (Average::Polynomial(-5.0), "γ=-5 does not work, γ must be a finite number, 0 or more"),
        (Average::Exponential(1.0), "d=1 does not work, d must be a number from 0 on, below 1"),
    ] {
        let config = Config { average: Some(average), ..Config::new("dog", 50).unwrap() };
        let error = Untuned::new(vec![Var::new(&[1f32], &Device::Cpu).unwrap()], config).unwrap_err();
        assert!(matches!(error, Error::Spec(_)) && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_method_that_needs_the_loss_says_so() {
    let mut needing = 0;
    for spec in specs() {
        let config = Config::new(&spec, 50).unwrap();
        let needs = config.needs_loss();
        let steps = |loss: f64| {
            let mut run = Run::new(config.clone(), &START, MATRIX, DType::F64);
            for t in 0..6 {
                let (_, gradient) = problem(&run.x(), t);
                run.step(loss * (t + 1) as f64, &gradient).unwrap();
            }
            run.x()
        };
        assert_eq!(steps(1e-3) != steps(5.0), needs, "{spec}");
        let mut run = Run::new(config, &START, MATRIX, DType::F64);
        let gradients = run.gradients(&problem(&START, 0).1);
        match run.optimizer.step(&gradients) {
            Ok(report) => assert!(!needs && report.loss.is_none(), "{spec}"),
            Err(error) => {
                needing += 1;
                assert!(needs && error.to_string().contains("backward_step(&loss)"), "{spec}: {error}");
                assert_eq!(run.x(), START);
            }
        }
    }
    assert!(needing > 10);
}

#[test]
fn candles_error_carries_ours() {
    let var = Var::new(&[1f32, 2.], &Device::Cpu).unwrap();
    let mut optimizer =
        <Untuned as Optimizer>::new(vec![var.clone()], Config::new("inexact-polyak", 1).unwrap()).unwrap();
    let nan = (var.sum_all().unwrap() * f64::NAN).unwrap();
    let error = Optimizer::backward_step(&mut optimizer, &nan).unwrap_err();
    let ours = Error::of(&error).unwrap();
    assert!(matches!(ours, Error::Refused { refusal: Refusal::Loss { step: 0, .. }, .. }), "{error}");
    assert!(error.to_string().starts_with("step 0: the loss is NaN"), "{error}");
    let error = error.context("in the first epoch");
    assert!(Error::of(&error).is_some());
    // The `context` of a result, of Candle's errors, of ours, and of both.
    let candles = Optimizer::backward_step(&mut optimizer, &nan).context("in the second").unwrap_err();
    let ours = optimizer.backward_step(&nan).context("in the third");
    let twice = ours.with_context(|| "in the run").unwrap_err();
    let ours = optimizer.backward_step(&nan).context("in the fourth").unwrap_err();
    let carried: Result<(), Error> = Err(Error::Candle(Error::NoVariables.into()));
    let carried = carried.context("in the end").unwrap_err();
    for error in [candles, ours, twice] {
        assert!(matches!(Error::of(&error), Some(Error::Refused { .. })), "{error}");
    }
    assert!(matches!(Error::of(&carried), Some(Error::NoVariables)), "{carried}");
    let other: Result<(), std::fmt::Error> = Err(std::fmt::Error);
    assert!(Error::of(&other.context("other").unwrap_err()).is_none());
    assert!(Error::of(&candle_core::Error::Msg("other".into())).is_none());
    // A run that is longer than the method was made for.
    let loss = || var.sqr().unwrap().sum_all().unwrap();
    Optimizer::backward_step(&mut optimizer, &loss()).unwrap();
    let error = Optimizer::backward_step(&mut optimizer, &loss()).unwrap_err();
    assert!(
        matches!(Error::of(&error), Some(Error::Refused { refusal: Refusal::PastHorizon { .. }, .. })),
        "{error}"
    );
}

#[test]
fn a_loss_that_is_not_one_number_is_an_error() {
    let var = Var::new(&[1f32, 2.], &Device::Cpu).unwrap();
    let mut optimizer = Untuned::new(vec![var.clone()], Config::new("inexact-polyak", 10).unwrap()).unwrap();
    let error = optimizer.backward_step(&var.sqr().unwrap()).unwrap_err().to_string();
    assert!(error.contains("f32 of shape [2]") && error.contains("take the mean"), "{error}");
    let count = var.sqr().unwrap().sum_all().unwrap().to_dtype(DType::U32).unwrap();
    assert!(optimizer.backward_step(&count).is_err());
    // One number in any shape, of any floats.
    let loss = var.sqr().unwrap().sum_keepdim(0).unwrap().to_dtype(DType::BF16).unwrap();
    assert_eq!(optimizer.backward_step(&loss).unwrap().loss, Some(5.0));
}

#[test]
fn numbers_that_cannot_be_used_are_refused() {
    let var = || vec![Var::new(&[1f32, 2.], &Device::Cpu).unwrap()];
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        let config = Config { weight_decay: bad, ..Config::new("adamw", 10).unwrap() };
        let error = Untuned::new(var(), config).unwrap_err().to_string();
        assert!(error.contains("weight_decay") && error.contains(&bad.to_string()), "{error}");
        let config = Config { clip: Some(bad), ..Config::new("adamw", 10).unwrap() };
        assert!(matches!(Untuned::new(var(), config), Err(Error::Number { what: "clip", .. })));
        let vars = var();
        let mut optimizer = Untuned::new(vars.clone(), Config::new("adamw", 10).unwrap()).unwrap();
        optimizer.set_learning_rate(bad);
        let error =
            optimizer.backward_step(&vars[0].sqr().unwrap().sum_all().unwrap()).unwrap_err().to_string();
        assert!(error.contains("learning rate"), "{error}");
    }
    let config = Config { clip: Some(1.0), ..Config::new("polyak-adam", 10).unwrap() };
    let error = Untuned::new(var(), config).unwrap_err().to_string();
    assert!(error.contains("`polyak-adam`") && error.contains("clipping has no effect"), "{error}");
}

#[test]
fn a_zero_gradient_is_a_step_of_nothing() {
    for spec in specs() {
        let config = Config { weight_decay: 0.0, ..Config::new(&spec, 50).unwrap() };
        let mut run = Run::new(config, &START, MATRIX, DType::F64);
        for _ in 0..3 {
            run.step(1.0, &[0.0; START.len()]).unwrap();
        }
        assert!(support::difference(&run.x(), &START) < 1e-14, "{spec}: {:?}", run.x());
    }
}

/// In f64 a norm of 1e-200 is not 0, and one of 1e200 not infinite.
#[test]
fn norms_at_the_edges_of_the_range() {
    for fused in [true, false] {
        for size in [1e-200, 1e-310, 1e200] {
            let config = Config { fused, ..Config::new("clipped-gd:lr=0.1,threshold=1", 5).unwrap() };
            let mut run = Run::new(config, &START, MATRIX, DType::F64);
            let mut gradient = vec![0.0; START.len()];
            (gradient[0], gradient[6]) = (3.0 * size, -4.0 * size);
            let report = run.step(1.0, &gradient).unwrap();
            assert!((report.grad_norm / size - 5.0).abs() < 1e-10, "{report:?}");
            assert_eq!(report.kind, StepKind::Regular);
        }
    }
    // In f32 all squares are f64.
    let var = Var::zeros(4, DType::F32, &Device::Cpu).unwrap();
    let mut optimizer = Untuned::new(vec![var.clone()], Config::new("gd:lr=1e-40", 5).unwrap()).unwrap();
    let mut store = candle_core::backprop::GradStore::default();
    store.insert(&var, Tensor::full(1e30f32, 4, &Device::Cpu).unwrap());
    let norm = optimizer.step(&store).unwrap().grad_norm;
    assert!((norm - 2e30).abs() < 1e24, "{norm}");
}
