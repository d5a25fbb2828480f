//! A variable that got no gradient is named before anything changes; those that are frozen may lack one.

use crate::support::{self, numbers};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Module, VarBuilder, VarMap, layer_norm, linear, ops, rms_norm};
use untuned_candle::{Config, Error, Untuned};

fn model() -> (VarMap, VarBuilder<'static>, Tensor) {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let x = Tensor::new(&[[0.5f32, -1., 2.], [1., 0.25, -0.5]], &Device::Cpu).unwrap();
    (variables, builder, x)
}

fn all(variables: &VarMap) -> Vec<(String, Vec<f64>)> {
    let mut all: Vec<_> =
        variables.data().lock().unwrap().iter().map(|(name, var)| (name.clone(), numbers(var))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Those without a gradient, after a step that must not change anything.
fn missing(variables: &VarMap, loss: &Tensor) -> Vec<String> {
    let mut optimizer = Untuned::of(variables, Config::new("inexact-polyak", 10).unwrap()).unwrap();
    let before = all(variables);
    let error = optimizer.backward_step(loss).unwrap_err();
    assert_eq!(all(variables), before);
    assert_eq!(optimizer.steps(), 0);
    let Error::NoGradient { names } = &error else { panic!("{error}") };
    assert!(names.iter().all(|name| error.to_string().contains(name)), "{error}");
    names.clone()
}

#[test]
fn fused_layer_norm_is_found() {
    let (variables, builder, x) = model();
    let first = linear(3, 4, builder.pp("first")).unwrap();
    let norm = layer_norm(4, 1e-5, builder.pp("norm")).unwrap();
    let last = linear(4, 1, builder.pp("last")).unwrap();
    let out = |x: &Tensor| last.forward(&norm.forward(&first.forward(x)?)?)?.sqr()?.mean_all();
    assert_eq!(
        missing(&variables, &out(&x).unwrap()),
        ["first.bias", "first.weight", "norm.bias", "norm.weight"]
    );
    // What the message says to do.
    let slow = |x: &Tensor| {
        let x = ops::layer_norm_slow(&first.forward(x)?, norm.weight(), norm.bias().unwrap(), 1e-5)?;
        last.forward(&x)?.sqr()?.mean_all()
    };
    let mut optimizer = Untuned::of(&variables, Config::new("inexact-polyak", 10).unwrap()).unwrap();
    optimizer.backward_step(&slow(&x).unwrap()).unwrap();
}

#[test]
fn fused_rms_norm_is_found() {
    let (variables, builder, x) = model();
    let first = linear(3, 4, builder.pp("first")).unwrap();
    let norm = rms_norm(4, 1e-5, builder.pp("norm")).unwrap();
    let last = linear(4, 1, builder.pp("last")).unwrap();
    let hidden = first.forward(&x).unwrap();
    let loss = |hidden: Tensor| last.forward(&hidden).unwrap().sqr().unwrap().mean_all().unwrap();
    assert_eq!(
        missing(&variables, &loss(norm.forward(&hidden).unwrap())),
        ["first.bias", "first.weight", "norm.weight"]
    );
    let mut optimizer = Untuned::of(&variables, Config::new("inexact-polyak", 10).unwrap()).unwrap();
    optimizer.backward_step(&loss(norm.forward_diff(&hidden).unwrap())).unwrap();
}

/// Of an attention's parts only the queries and keys lose their gradients.
#[test]
fn fused_softmax_is_found() {
    let (variables, builder, x) = model();
    let [query, key, value] = ["query", "key", "value"].map(|name| linear(3, 3, builder.pp(name)).unwrap());
    let scores = query.forward(&x).unwrap().matmul(&key.forward(&x).unwrap().t().unwrap()).unwrap();
    let loss = |weights: Tensor| {
        let mixed = weights.matmul(&value.forward(&x).unwrap()).unwrap();
        mixed.sqr().unwrap().mean_all().unwrap()
    };
    let names = missing(&variables, &loss(ops::softmax_last_dim(&scores).unwrap()));
    assert_eq!(names, ["key.bias", "key.weight", "query.bias", "query.weight"]);
    let mut optimizer = Untuned::of(&variables, Config::new("inexact-polyak", 10).unwrap()).unwrap();
    optimizer.backward_step(&loss(ops::softmax(&scores, 1).unwrap())).unwrap();
}

/// By a name that stands for several, by a whole name, and by the variable itself.
#[test]
fn frozen_variables_stay_and_count_for_nothing() {
    let (variables, builder, x) = model();
    let first = linear(3, 4, builder.pp("first")).unwrap();
    let norm = layer_norm(4, 1e-5, builder.pp("norm")).unwrap();
    let last = linear(4, 1, builder.pp("last")).unwrap();
    let loss = last
        .forward(&norm.forward(&first.forward(&x).unwrap()).unwrap())
        .unwrap()
        .sqr()
        .unwrap()
        .mean_all()
        .unwrap();
    let norm_weight = variables.data().lock().unwrap()["norm.weight"].clone();
    let config = Config {
        frozen: vec!["first".into(), "norm.bias".into()],
        frozen_vars: vec![norm_weight],
        weight_decay: 0.5,
        ..Config::new("inexact-polyak", 10).unwrap()
    };
    let mut optimizer = Untuned::of(&variables, config).unwrap();
    let before = all(&variables);
    let report = optimizer.backward_step(&loss).unwrap();
    for ((name, before), (_, after)) in before.iter().zip(all(&variables)) {
        assert_eq!(*before == after, !name.starts_with("last"), "{name}");
    }
    let gradients = loss.backward().unwrap();
    let square = |name: &str| {
        let var = variables.data().lock().unwrap()[name].clone();
        numbers(&Var::from_tensor(gradients.get(&var).unwrap()).unwrap()).iter().map(|g| g * g).sum::<f64>()
    };
    let norm = (square("last.weight") + square("last.bias")).sqrt();
    assert!((report.grad_norm - norm).abs() < 1e-6 * norm);
}

#[test]
fn a_frozen_name_that_nobody_has_is_an_error() {
    let (variables, builder, _) = model();
    linear(3, 4, builder.pp("first")).unwrap();
    for name in ["fist", "firs", "first.", "first.weigh"] {
        let config = Config { frozen: vec![name.into()], ..Config::new("inexact-polyak", 10).unwrap() };
        let error = Untuned::of(&variables, config).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("first.bias, first.weight"), "{error}");
    }
    let config = Config { frozen: vec!["first".into()], ..Config::new("inexact-polyak", 10).unwrap() };
    assert!(matches!(Untuned::of(&variables, config), Err(Error::NoVariables)));
}

#[test]
fn a_gradient_that_does_not_fit_is_an_error() {
    let var = Var::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    let mut optimizer = Untuned::new(vec![var.clone()], Config::new("dog", 10).unwrap()).unwrap();
    let mut store = candle_core::backprop::GradStore::default();
    store.insert(&var, Tensor::zeros((3, 2), DType::F32, &Device::Cpu).unwrap());
    let error = optimizer.step(&store).unwrap_err().to_string();
    assert!(error.contains("variable 0 of shape [2, 3]") && error.contains("shape [3, 2]"), "{error}");
    store.insert(&var, Tensor::zeros((2, 3), DType::F64, &Device::Cpu).unwrap());
    let error = optimizer.step(&store).unwrap_err().to_string();
    assert!(error.contains("dtype f64, the variable f32"), "{error}");
}

/// A gradient that is not laid out as its variable, and one that is the variable itself.
#[test]
fn gradients_of_any_layout() {
    for fused in [true, false] {
        let var = Var::new(&[[1f32, 2., 3.], [4., 5., 6.]], &Device::Cpu).unwrap();
        let config = || Config { fused, ..Config::new("gd:lr=0.5", 10).unwrap() };
        let mut optimizer = Untuned::new(vec![var.clone()], config()).unwrap();
        let mut store = candle_core::backprop::GradStore::default();
        store.insert(
            &var,
            Tensor::new(&[[2f32, 4.], [6., 8.], [10., 12.]], &Device::Cpu).unwrap().t().unwrap(),
        );
        optimizer.step(&store).unwrap();
        assert_eq!(numbers(&var), [0.0, -1.0, -2.0, 2.0, 1.0, 0.0]);
        store.insert(&var, var.as_tensor().clone());
        optimizer.step(&store).unwrap();
        assert_eq!(numbers(&var), [0.0, -0.5, -1.0, 1.0, 0.5, 0.0]);
    }
}

/// The mean of two batches, and both at once: the same step.
#[test]
fn batches_that_are_put_together() {
    let run = |apart: bool| {
        let var = Var::new(&[[1f32, -2.]], &Device::Cpu).unwrap();
        let batches = [[[0.5f32, 1.], [2., -1.]], [[1.5, 0.], [-0.5, 3.]]]
            .map(|x| Tensor::new(&x, &Device::Cpu).unwrap());
        let loss = |x: &Tensor| x.matmul(&var.t().unwrap()).unwrap().sqr().unwrap().mean_all().unwrap();
        let mut optimizer =
            Untuned::new(vec![var.clone()], Config::new("inexact-polyak", 3).unwrap()).unwrap();
        for _ in 0..3 {
            if apart {
                let [one, two] = batches.each_ref().map(|x| (loss(x) / 2.0).unwrap());
                let mut gradients = one.backward().unwrap();
                gradients.extend(two.backward().unwrap()).unwrap();
                optimizer.step_with_loss(&gradients, &(one + two).unwrap()).unwrap();
            } else {
                optimizer.backward_step(&loss(&Tensor::cat(&batches, 0).unwrap())).unwrap();
            }
        }
        numbers(&var)
    };
    assert!(support::difference(&run(true), &run(false)) < 1e-6);
}
