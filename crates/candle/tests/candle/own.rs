//! A method that the library does not have: one of the example's, or one that can do nothing but make steps.

#[path = "../../examples/candle-own-method.rs"]
mod example;

use crate::resume::goes_on;
use crate::support::{MATRIX, Reference, Run, START, difference, problem};
use candle_core::{DType, Device, Tensor, Var};
use example::{BoldDriver, SignMomentum};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use untuned::optimizers::Prodigy;
use untuned::rules::InexactPolyak;
use untuned::{
    Needs, Observation, Optimizer, Refusal, RunInfo, SessionError, Space, StateVector, Step, StepContext,
    StepRule, Vectors,
};
use untuned_candle::{Config, Error, Untuned};

const SIGNS: SignMomentum = SignMomentum { lr: 0.05, beta: 0.8 };
const BOLD: BoldDriver = BoldDriver { size: 0.02, last_loss: None };

fn config<M: Optimizer>(method: M, fused: bool) -> Config<M> {
    Config { weight_decay: 0.05, fused, ..Config::of(method) }
}

#[test]
fn the_example_trains() {
    example::main().unwrap();
}

/// The largest error of 40 steps beside plain f64 vectors.
fn error<M: Optimizer + Clone>(method: M, fused: bool) -> f64 {
    let config = config(method, fused);
    let mut reference = Reference::new(&config, &START, MATRIX);
    let mut run = Run::new(config, &START, MATRIX, DType::F64);
    let mut worst: f64 = 0.0;
    for t in 0..40 {
        let (loss, gradient) = problem(&reference.x, t);
        let (want, got) = (reference.step(loss, &gradient), run.step(loss, &gradient).unwrap());
        worst = worst.max(difference(&[got.rate], &[want.rate])).max(difference(&run.x(), &reference.x));
    }
    worst
}

#[test]
fn own_methods_follow_the_reference() {
    for fused in [true, false] {
        assert!(error(SIGNS, fused) < 1e-13, "fused {fused}");
        assert!(error(BOLD, fused) < 1e-13, "fused {fused}");
    }
}

#[test]
fn own_methods_go_on_bit_for_bit() {
    for (dtype, fused) in [(DType::F32, true), (DType::F64, false), (DType::BF16, false)] {
        goes_on(&config(SIGNS, fused), dtype);
        goes_on(&config(BOLD, fused), dtype);
    }
}

/// A method made with its type is the one that the text makes.
#[test]
fn typed_parameters() {
    let typed = Prodigy { d0: 1e-3, ..Default::default() }.build(&RunInfo::new(20)).unwrap();
    let mut typed = Run::new(Config::of(typed), &START, MATRIX, DType::F32);
    let mut text = Run::new(Config::new("prodigy:d0=0.001", 20).unwrap(), &START, MATRIX, DType::F32);
    for t in 0..20 {
        assert_eq!(typed.step_on_problem(t).unwrap(), text.step_on_problem(t).unwrap());
        assert_eq!(typed.x(), text.x());
    }
    assert_eq!(typed.optimizer.method().estimate(), text.optimizer.method().estimate());
    goes_on(&Config::of(Prodigy::default().build(&RunInfo::new(40)).unwrap()), DType::F32);
}

/// No `Debug`, no serde: that is only for files.
#[test]
fn a_method_need_only_make_steps() {
    #[derive(Clone)]
    struct Schedule(Rc<dyn Fn(u64) -> f64>);
    impl StepRule for Schedule {
        fn needs(&self) -> Needs {
            Needs::NOTHING
        }
        fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
            Step::new(self.0(seen.step), seen)
        }
    }
    let var = Var::new(&[8f64], &Device::Cpu).unwrap();
    let half = Config::of(Schedule(Rc::new(|step| if step < 2 { 0.5 } else { 1.0 })));
    assert!(!half.needs_loss());
    let mut optimizer = Untuned::new(vec![var.clone()], half).unwrap();
    let mut gradients = candle_core::backprop::GradStore::default();
    gradients.insert(&var, Tensor::new(&[2f64], &Device::Cpu).unwrap());
    let rates = [0, 1, 2].map(|_| optimizer.step(&gradients).unwrap().rate);
    assert_eq!((rates, var.to_vec1::<f64>().unwrap()), ([0.5, 0.5, 1.0], vec![4.0]));
    // A rule that does not say otherwise needs the loss.
    let mut bold = Untuned::new(vec![var], Config::of(BOLD)).unwrap();
    let error = bold.step(&gradients).unwrap_err();
    assert!(matches!(&error, Error::LossNeeded { method } if method == "BoldDriver"), "{error}");
}

/// A file of another method is refused, and so is one whose names would not tell its vectors apart.
#[test]
fn files_of_own_methods() {
    #[derive(Clone, Serialize, Deserialize)]
    struct Keeper {
        #[serde(skip)]
        same_name: bool,
    }
    impl Optimizer for Keeper {
        fn state(&self) -> Vec<StateVector> {
            vec![StateVector::zeros(if self.same_name { "variables" } else { "kept" })]
        }
        fn step<S: Space>(
            &mut self,
            context: &mut StepContext<'_, S>,
            _: Vectors<'_, S>,
        ) -> Result<Step, SessionError<S::Error>> {
            Ok(Step::new(0.0, &context.observe()?)?)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let keeper = |same_name| Run::new(Config::of(Keeper { same_name }), &START, MATRIX, DType::F32).optimizer;
    let error = keeper(true).save(&path).unwrap_err().to_string();
    assert!(error.contains("two tensors are called \"variables.layer.bias\""), "{error}");
    assert!(!path.exists());
    keeper(false).save(&path).unwrap();
    keeper(false).load(&path).unwrap();
    let error = keeper(true).load(&path).unwrap_err().to_string();
    assert!(error.contains("its numbers are of another method than it says"), "{error}");
    let mut signs = Run::new(Config::of(SIGNS), &START, MATRIX, DType::F32);
    let error = signs.optimizer.load(&path).unwrap_err().to_string();
    assert!(error.contains("the state of `Keeper`") && error.contains("this is `SignMomentum`"), "{error}");
}

/// A file of a method that was made with its type says what the method began as: its name does not tell its parameters.
#[test]
fn files_of_other_parameters() {
    fn refused<M>(saved: M, here: M, words: [&str; 2])
    where
        M: Optimizer + Clone + Serialize + DeserializeOwned,
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let run = |method| Run::new(Config::of(method), &START, MATRIX, DType::F32);
        let (mut saved, mut here) = (run(saved), run(here));
        for t in 0..3 {
            saved.step_on_problem(t).unwrap();
        }
        saved.optimizer.save(&path).unwrap();
        let error = here.optimizer.load(&path).unwrap_err().to_string();
        let (there, ours) = error.split_once(", and this is ").unwrap();
        assert!(there.contains("began as") && there.contains(words[0]), "{error}");
        assert!(ours.contains("began as") && ours.contains(words[1]), "{error}");
        assert_eq!((here.optimizer.steps(), here.x()), (0, START.to_vec()));
        // Steps of its own do not make it another method.
        saved.step_on_problem(3).unwrap();
        saved.optimizer.load(&path).unwrap();
        assert_eq!(saved.optimizer.steps(), 3);
    }
    let prodigy = |d0| Prodigy { d0, ..Default::default() }.build(&RunInfo::new(40)).unwrap();
    let words = ["`prodigy` that began as {\"parameters\":\"prodigy:d0=0.01\"", "d0=0.1"];
    refused(prodigy(0.01), prodigy(0.1), words);
    let polyak = |steps| InexactPolyak::default().build(&RunInfo::new(steps)).unwrap();
    refused(polyak(40), polyak(80), ["40", "80"]);
    refused(SIGNS, SignMomentum { lr: 0.25, ..SIGNS }, ["0.05", "0.25"]);
}
