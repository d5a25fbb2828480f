//! Which variables are trained: each once, whatever the order, and all of one kind.

use crate::support::numbers;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::VarMap;
use untuned_candle::{Config, Error, Untuned};

fn var(values: &[f32]) -> Var {
    Var::from_slice(values, values.len(), &Device::Cpu).unwrap()
}

fn half_squares(vars: &[&Var]) -> Tensor {
    let one = |var: &&Var| (var.sqr().unwrap().sum_all().unwrap() * 0.5).unwrap();
    vars.iter().map(one).reduce(|a, b| (a + b).unwrap()).unwrap()
}

/// `x·x` with one variable on both sides: its gradient is 2x, once.
#[test]
fn a_variable_that_is_given_twice_counts_once() {
    for fused in [true, false] {
        let run = |names: &[&str]| {
            let (tied, other) = (var(&[1.0, -2.0]), var(&[3.0]));
            let variables = VarMap::new();
            for name in names {
                variables.data().lock().unwrap().insert(name.to_string(), tied.clone());
            }
            variables.data().lock().unwrap().insert("other".to_string(), other.clone());
            let config = Config { fused, ..Config::new("dog:eps_rel=0.1", 5).unwrap() };
            let mut optimizer = Untuned::of(&variables, config).unwrap();
            let norms: Vec<_> = (0..5)
                .map(|_| {
                    let loss = (half_squares(&[&other])
                        + (tied.as_tensor() * tied.as_tensor()).unwrap().sum_all())
                    .unwrap();
                    optimizer.backward_step(&loss).unwrap().grad_norm
                })
                .collect();
            (norms, numbers(&tied), numbers(&other), optimizer.kept_bytes())
        };
        let once = run(&["embedding"]);
        assert_eq!(once.0[0], (4.0f64 + 16.0 + 9.0).sqrt());
        assert_eq!(once.3, 3 * 4, "a copy of three numbers of f32");
        assert_eq!(run(&["embedding", "head"]), once);
        let tied = var(&[1.0, -2.0]);
        let mut optimizer =
            Untuned::new(vec![tied.clone(), tied.clone()], Config::new("gd:lr=0.5", 5).unwrap()).unwrap();
        assert_eq!(optimizer.backward_step(&half_squares(&[&tied])).unwrap().grad_norm, 5f64.sqrt());
        assert_eq!(numbers(&tied), [0.5, -1.0]);
    }
}

/// `VarMap::all_vars` has another order in every run.
#[test]
fn the_order_of_a_list_does_not_matter() {
    let run = |order: [usize; 3]| {
        let vars = [var(&[1.0, 2.0]), var(&[3.0, 4.0]), var(&[0.1])];
        let list = order.map(|i| vars[i].clone()).to_vec();
        let mut optimizer = Untuned::new(list, Config::new("prodigy", 20).unwrap()).unwrap();
        for _ in 0..20 {
            optimizer.backward_step(&half_squares(&[&vars[0], &vars[1], &vars[2]])).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        optimizer.save(folder.path().join("state")).unwrap();
        std::fs::read(folder.path().join("state")).unwrap()
    };
    let first = run([0, 1, 2]);
    assert_eq!(run([2, 0, 1]), first);
    assert_eq!(run([1, 2, 0]), first);
}

#[test]
fn kinds_do_not_mix() {
    let single = var(&[1.0]);
    let double = Var::zeros(2, DType::F64, &Device::Cpu).unwrap();
    let named = || [("a".to_string(), single.clone()), ("b".to_string(), double.clone())];
    let error = Untuned::named(named(), Config::new("dog", 5).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Mixed(..)));
    let text = error.to_string();
    assert!(text.contains("a is f32 on the CPU, and b is f64") && text.contains("freeze"), "{text}");
    let config = Config { frozen: vec!["b".into()], ..Config::new("dog", 5).unwrap() };
    assert!(Untuned::named(named(), config).is_ok());
}

/// What is saved under a name must be one variable.
#[test]
fn two_variables_under_one_name_are_an_error() {
    let (one, two) = (var(&[1.0]), var(&[2.0]));
    let named = |second: &Var| [("w".to_string(), one.clone()), ("w".to_string(), second.clone())];
    let config = || Config::new("dog", 5).unwrap();
    let error = Untuned::named(named(&two), config()).unwrap_err();
    assert!(matches!(&error, Error::OneName { name } if name == "w"), "{error}");
    assert!(Untuned::named(named(&one), config()).is_ok(), "it is one variable");
    let frozen = Config { frozen_vars: vec![two.clone()], ..config() };
    assert!(Untuned::named(named(&two), frozen).is_ok(), "one of them is trained");
}

/// As Candle's own optimizers do: a mask or a counter has no gradient.
#[test]
fn integers_are_left_alone() {
    let (x, mask) = (var(&[1.0]), Var::zeros(3, DType::U32, &Device::Cpu).unwrap());
    let mut optimizer = Untuned::new(vec![x.clone(), mask], Config::new("gd:lr=0.5", 5).unwrap()).unwrap();
    optimizer.backward_step(&half_squares(&[&x])).unwrap();
    assert_eq!(numbers(&x), [0.5]);
    assert!(matches!(Untuned::new(vec![], Config::new("dog", 5).unwrap()), Err(Error::NoVariables)));
}

/// With a scalar rule everything decays, with an optimizer the matrices.
#[test]
fn what_decays() {
    for (spec, vector_decays) in [("gd:lr=0.5", true), ("sgd-momentum:lr=0.5,momentum=0", false)] {
        for fused in [true, false] {
            let matrix = Var::ones((2, 2), DType::F32, &Device::Cpu).unwrap();
            let vector = Var::ones(2, DType::F32, &Device::Cpu).unwrap();
            let config = Config { weight_decay: 0.5, fused, ..Config::new(spec, 5).unwrap() };
            let mut optimizer = Untuned::new(vec![matrix.clone(), vector.clone()], config).unwrap();
            let mut store = candle_core::backprop::GradStore::default();
            store.insert(&matrix, matrix.zeros_like().unwrap());
            store.insert(&vector, vector.zeros_like().unwrap());
            // A gradient of 0 is no step of a scalar rule; a tiny one is.
            store.insert(&vector, (vector.zeros_like().unwrap() + 1e-30).unwrap());
            optimizer.step(&store).unwrap();
            assert_eq!(numbers(&matrix), [0.75; 4], "{spec}");
            assert_eq!(numbers(&vector), if vector_decays { [0.75; 2] } else { [1.0; 2] }, "{spec}");
        }
    }
}

/// A rule that measures the distance from the start keeps the start, and says so.
#[test]
fn memory_is_told() {
    for (spec, dtype, copies) in [
        ("inexact-polyak", DType::F32, 0),
        ("dog", DType::F32, 4),
        ("dog", DType::F64, 8),
        ("dog", DType::BF16, 4),
        ("adamw", DType::F32, 8),
        ("cocob", DType::F32, 20),
    ] {
        let var = Var::zeros(10, dtype, &Device::Cpu).unwrap();
        let optimizer = Untuned::new(vec![var], Config::new(spec, 5).unwrap()).unwrap();
        assert_eq!(optimizer.kept_bytes(), 10 * copies, "{spec} {dtype:?}");
    }
}
