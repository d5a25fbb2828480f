//! A method that measures tensors in units of their size finds the sizes at the start, and keeps them.

use crate::cases::{self, EVERY, EXACT, problem};
use crate::support::{self, device, method};
use burn::module::{Module, Param};
use burn::optim::{GradientsParams, OptimizerRecord};
use burn::tensor::{DType, Tensor, TensorData};
use untuned::space::TensorRange;
use untuned::{DenseF64, Session};
use untuned_burn::Stepper;

/// Two matrices of the sizes 3 and ⅓, of which 1 is typical, and a list.
const START: [f64; 6] = [3.0, -3.0, 1.0 / 3.0, -1.0 / 3.0, -1.5, 0.25];
const STEPS: u64 = 40;

#[derive(Module, Debug)]
struct Three {
    large: Param<Tensor<2>>,
    small: Param<Tensor<2>>,
    list: Param<Tensor<1>>,
}

impl Three {
    fn new(start: &[f64; 6]) -> Three {
        let pair = |at: usize| {
            let data = TensorData::new(start[at..at + 2].to_vec(), [2]);
            Tensor::<1>::from_data(data, (&device(), DType::F64))
        };
        Three {
            large: Param::from_tensor(pair(0).reshape([2, 1]).require_grad()),
            small: Param::from_tensor(pair(2).reshape([1, 2]).require_grad()),
            list: Param::from_tensor(pair(4).require_grad()),
        }
    }

    fn all(&self) -> Tensor<1> {
        let [large, small] = [&self.large, &self.small].map(|matrix| matrix.val().flatten::<1>(0, 1));
        Tensor::cat(vec![large, small, self.list.val()], 0)
    }

    fn numbers(&self) -> Vec<f64> {
        self.all().into_data().iter::<f64>().collect()
    }
}

/// A step on a function whose loss and gradient at the point are those of the problem.
fn step(stepper: &mut Stepper, module: &mut Three, t: u64) {
    let (loss, gradient) = problem(&module.numbers(), t);
    let x = module.all();
    let gradient = Tensor::<1>::from_data(TensorData::new(gradient, [6]), (&device(), DType::F64));
    let loss = ((x.clone() - x.detach()) * gradient).sum() + loss;
    let gradients = GradientsParams::from_grads(loss.backward(), module);
    stepper.step(loss, module, gradients).unwrap();
}

fn stepper(loops: bool) -> Stepper {
    Stepper::new("polyak-adam", STEPS).unwrap().weight_decay(0.05).unwrap().loops(loops)
}

#[test]
fn matrices_move_by_their_size() {
    let tensor = |range, decays, scale| TensorRange { range, decays, scale };
    let tensors = vec![tensor(0..2, true, 3.0), tensor(2..4, true, 1.0 / 3.0), tensor(4..6, false, 1.0)];
    for loops in [true, false] {
        let space = DenseF64 { dimension: 6, tensors: tensors.clone() };
        let mut session = Session::new(method("polyak-adam", STEPS), space).unwrap();
        session.options.weight_decay = 0.05;
        let mut x = START.to_vec();
        let (mut stepper, mut module) = (stepper(loops), Three::new(&START));
        for t in 0..STEPS {
            let (loss, gradient) = problem(&x, t);
            session.advance(loss, &mut x, &gradient).unwrap();
            step(&mut stepper, &mut module, t);
            for (got, want) in module.numbers().iter().zip(&x) {
                assert!((got - want).abs() < 1e-11, "loops {loops} at {t}: {got} and not {want}");
            }
        }
    }
}

/// Over several hundred steps: after the first hundred most steps measure nothing.
#[test]
fn walks_as_the_reference_in_python() {
    let golden = cases::read("polyak-adam");
    // Without weight decay: the reference has a matrix that does not decay, and here all matrices do.
    let case = &golden.cases[0];
    assert!(case.spec == "polyak-adam" && case.around.weight_decay == 0.0);
    let start: &[f64; 6] = golden.start.as_slice().try_into().unwrap();
    for loops in [true, false] {
        let mut stepper =
            Stepper::new(&case.spec, golden.steps).unwrap().weight_decay(0.0).unwrap().loops(loops);
        let mut module = Three::new(start);
        let mut points = case.points.iter();
        for t in 0..golden.steps {
            step(&mut stepper, &mut module, t);
            if (t + 1) % EVERY == 0 {
                let error = support::error(&module.numbers(), points.next().unwrap(), 0.0);
                assert!(error <= EXACT, "loops {loops} at {t}: {error:.1e}");
            }
        }
        assert!(points.next().is_none());
    }
}

/// Only a method that is shape-aware reads the matrices before its first step, and memory in reach is not read at all.
#[test]
fn a_step_reads_once() {
    for (spec, loops, first) in [
        ("adamw", false, 1),
        ("inexact-polyak", false, 1),
        ("polyak-adam", false, 2),
        ("polyak-adam", true, 1),
    ] {
        let (mut stepper, mut module) = (Stepper::new(spec, STEPS).unwrap().loops(loops), Three::new(&START));
        for t in 0..3 {
            step(&mut stepper, &mut module, t);
            assert_eq!(stepper.reads(), first + t, "{spec}, loops {loops} at {t}");
        }
    }
}

#[test]
fn the_sizes_of_the_start_are_saved() {
    let (mut whole, mut module) = (stepper(true), Three::new(&START));
    (0..20).for_each(|t| step(&mut whole, &mut module, t));
    let bytes = whole.to_record().unwrap().into_bytes().unwrap();
    let (mut parts, mut other) = (stepper(true), module.clone());
    parts.load_record(OptimizerRecord::from_bytes(bytes).unwrap(), &other).unwrap();
    for t in 20..STEPS {
        step(&mut whole, &mut module, t);
        step(&mut parts, &mut other, t);
        assert_eq!(other.numbers(), module.numbers(), "at {t}");
    }
}

/// A refused first step leaves no scales behind.
#[test]
fn the_sizes_are_those_of_the_first_step_made() {
    let other = [30.0, -30.0, 0.1, -0.1, -1.5, 0.25];
    let (mut refused, mut broken) = (stepper(false), Three::new(&other));
    let loss = broken.all().sum() * f64::NAN;
    let gradients = GradientsParams::from_grads(loss.backward(), &broken);
    assert!(refused.step(loss, &mut broken, gradients).is_err());
    let (mut one, mut two) = (Three::new(&START), Three::new(&START));
    step(&mut refused, &mut one, 0);
    step(&mut stepper(false), &mut two, 0);
    assert_eq!(one.numbers(), two.numbers());
}
