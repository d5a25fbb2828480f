//! A method that measures tensors in units of their size finds the sizes at the start, and keeps them.

use crate::cases::{self, EVERY, EXACT};
use crate::support::{Reference, difference, numbers, problem};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use untuned::DenseF64;
use untuned::space::TensorRange;
use untuned_candle::{Config, Untuned};

/// Two matrices of the sizes 3 and ⅓, of which 1 is typical, and a vector.
const START: [f64; 7] = [3.0, -3.0, 1.0 / 3.0, -1.0 / 3.0, -1.5, 0.25, -0.75];
const SHAPES: [(usize, &[usize]); 3] = [(0, &[2, 1]), (2, &[1, 2]), (4, &[3])];
const STEPS: u64 = 40;

fn config(fused: bool) -> Config {
    Config { weight_decay: 0.05, fused, ..Config::new("polyak-adam", STEPS).unwrap() }
}

fn reference() -> Reference {
    let tensor = |range, decays, scale| TensorRange { range, decays, scale };
    let tensors = vec![tensor(0..2, true, 3.0), tensor(2..4, true, 1.0 / 3.0), tensor(4..7, false, 1.0)];
    Reference::of(&config(true), &START, DenseF64 { tensors, ..DenseF64::new(START.len()) })
}

struct Run {
    vars: Vec<Var>,
    optimizer: Untuned,
}

impl Run {
    fn new(start: &[f64], fused: bool) -> Run {
        Run::of(start, &SHAPES, config(fused))
    }

    /// Tensors are given by where they begin in `start`, and their shape.
    fn of(start: &[f64], shapes: &[(usize, &[usize])], config: Config) -> Run {
        let var = |&(at, shape): &(usize, &[usize])| {
            let part = &start[at..at + shape.iter().product::<usize>()];
            Var::from_tensor(&Tensor::from_slice(part, shape, &Device::Cpu).unwrap()).unwrap()
        };
        let vars: Vec<Var> = shapes.iter().map(var).collect();
        Run { optimizer: Untuned::new(vars.clone(), config).unwrap(), vars }
    }

    fn x(&self) -> Vec<f64> {
        self.vars.iter().flat_map(numbers).collect()
    }

    fn step(&mut self, t: u64) {
        self.step_on(problem, t);
    }

    fn step_on(&mut self, problem: fn(&[f64], u64) -> (f64, Vec<f64>), t: u64) {
        let (loss, gradient) = problem(&self.x(), t);
        let mut store = GradStore::default();
        let mut rest = gradient.as_slice();
        for var in &self.vars {
            let (part, after) = rest.split_at(var.elem_count());
            store.insert(var, Tensor::from_slice(part, var.shape(), &Device::Cpu).unwrap());
            rest = after;
        }
        self.optimizer.step_with_loss(&store, &Tensor::new(loss, &Device::Cpu).unwrap()).unwrap();
    }
}

#[test]
fn matrices_move_by_their_size() {
    for fused in [true, false] {
        let (mut reference, mut run) = (reference(), Run::new(&START, fused));
        for t in 0..STEPS {
            let (loss, gradient) = problem(&reference.x, t);
            reference.step(loss, &gradient);
            run.step(t);
            let error = difference(&run.x(), &reference.x);
            assert!(error < 1e-11, "fused {fused} at {t}: {error:.1e}");
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
    let shapes: [(usize, &[usize]); 3] = [(0, &[2, 1]), (2, &[1, 2]), (4, &[2])];
    for fused in [true, false] {
        let config = Config { weight_decay: 0.0, fused, ..Config::new(&case.spec, golden.steps).unwrap() };
        let mut run = Run::of(&golden.start, &shapes, config);
        let mut points = case.points.iter();
        for t in 0..golden.steps {
            run.step_on(cases::problem, t);
            if (t + 1) % EVERY == 0 {
                let error = difference(&run.x(), points.next().unwrap());
                assert!(error <= EXACT, "fused {fused} at {t}: {error:.1e}");
            }
        }
        assert!(points.next().is_none());
    }
}

#[test]
fn the_sizes_of_the_start_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let mut whole = Run::new(&START, true);
    (0..20).for_each(|t| whole.step(t));
    whole.optimizer.save(&path).unwrap();
    let mut other = Run::new(&[0.5; 7], true);
    other.optimizer.load(&path).unwrap();
    for t in 20..STEPS {
        whole.step(t);
        other.step(t);
        assert_eq!(other.x(), whole.x());
    }
}
