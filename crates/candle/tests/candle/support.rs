//! A small problem, and every method on it: with plain f64 vectors, and with Candle's variables.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use untuned::spec::{DefaultValue, Kind};
use untuned::{DenseF64, Method, Optimizer, Session, StepOptions, catalog};
use untuned_candle::{Config, Error, Report, Untuned};

pub const START: [f64; 7] = [1.0, -2.0, 0.5, 3.0, -1.5, 0.25, -0.75];

/// The coordinates that are a matrix, and the others are a vector.
pub const MATRIX: usize = 4;

/// `Σ (i/2)·x_i²`, pushed about from step to step, and 9.
pub fn problem(x: &[f64], t: u64) -> (f64, Vec<f64>) {
    let push = |i: u64| 0.5 * (((t * i) % 5) as f64 - 2.0);
    let loss = x.iter().zip(1..).map(|(x, i)| 0.5 * i as f64 * x * x + push(i) * x).sum::<f64>() + 9.0;
    (loss, x.iter().zip(1..).map(|(x, i)| i as f64 * x + push(i)).collect())
}

/// Every method of the library with its defaults, and each of the optimizers once with each word of each of its options.
pub fn specs() -> Vec<String> {
    let mut specs = vec!["prodigy:beta1=0,d0=0.01".to_string()];
    for entry in catalog() {
        let needed = match entry.name {
            "gd" => ":lr=0.1",
            "clipped-gd" => ":lr=0.1,threshold=1",
            "polyak" => ":f_star=0",
            _ => "",
        };
        specs.push(format!("{}{needed}", entry.name));
        for parameter in entry.parameters {
            let Kind::Word(words) = parameter.kind else { continue };
            for word in words.iter().filter(|word| parameter.default != DefaultValue::Word(word)) {
                let spec = format!("{}:{}={word}", entry.name, parameter.name);
                if needed.is_empty() && Config::new(&spec, 100).is_ok() {
                    specs.push(spec);
                }
            }
        }
    }
    assert!(specs.len() > 40, "{specs:?}");
    specs
}

/// A run with plain vectors.
pub struct Reference<M = Method> {
    pub session: Session<M, DenseF64>,
    pub x: Vec<f64>,
}

impl<M: Optimizer + Clone> Reference<M> {
    pub fn new(config: &Config<M>, start: &[f64], matrix: usize) -> Reference<M> {
        let decayed = if config.method.decays_everything() { start.len() } else { matrix };
        Reference::of(config, start, DenseF64::new(start.len()).decaying(0..decayed))
    }

    pub fn of(config: &Config<M>, start: &[f64], space: DenseF64) -> Reference<M> {
        let mut session =
            Session::new(config.method.clone(), space).unwrap().average(config.average).unwrap();
        session.options = StepOptions { rate: 1.0, clip: config.clip, weight_decay: config.weight_decay };
        Reference { session, x: start.to_vec() }
    }

    pub fn step(&mut self, loss: f64, gradient: &Vec<f64>) -> Report {
        self.session.advance(loss, &mut self.x, gradient).unwrap()
    }

    pub fn evaluated(&self) -> Vec<f64> {
        self.session.evaluate(&self.x, Vec::clone).unwrap()
    }
}

/// The same run with two of Candle's variables: a matrix of one column, and a vector.
pub struct Run<M = Method> {
    pub optimizer: Untuned<M>,
    pub vars: [Var; 2],
}

impl<M: Optimizer + Clone> Run<M> {
    pub fn new(config: Config<M>, start: &[f64], matrix: usize, dtype: DType) -> Run<M> {
        let vars = [(&start[..matrix], vec![matrix, 1]), (&start[matrix..], vec![start.len() - matrix])].map(
            |(numbers, shape)| {
                let tensor = Tensor::from_slice(numbers, shape, &Device::Cpu).unwrap();
                Var::from_tensor(&tensor.to_dtype(dtype).unwrap()).unwrap()
            },
        );
        let names = ["layer.weight", "layer.bias"].map(String::from);
        // A name that comes first in the alphabet is given last: the order is that of the names.
        let optimizer = Untuned::named(names.into_iter().zip(vars.clone()), config).unwrap();
        Run { optimizer, vars }
    }

    pub fn x(&self) -> Vec<f64> {
        self.vars.iter().flat_map(numbers).collect()
    }

    pub fn gradients(&self, gradient: &[f64]) -> GradStore {
        let mut store = GradStore::default();
        let mut rest = gradient;
        for var in &self.vars {
            let (part, after) = rest.split_at(var.elem_count());
            let tensor = Tensor::from_slice(part, var.shape(), &Device::Cpu).unwrap();
            store.insert(var, tensor.to_dtype(var.dtype()).unwrap());
            rest = after;
        }
        store
    }

    pub fn step(&mut self, loss: f64, gradient: &[f64]) -> Result<Report, Error> {
        let loss = Tensor::new(loss, &Device::Cpu).unwrap();
        self.optimizer.step_with_loss(&self.gradients(gradient), &loss)
    }

    pub fn step_on_problem(&mut self, t: u64) -> Result<Report, Error> {
        let (loss, gradient) = problem(&self.x(), t);
        self.step(loss, &gradient)
    }

    pub fn evaluated(&mut self) -> Vec<f64> {
        let vars = self.vars.clone();
        self.optimizer.evaluate(|| vars.iter().flat_map(numbers).collect()).unwrap()
    }
}

pub fn numbers(var: &Var) -> Vec<f64> {
    var.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The largest difference, relative to the largest number.
pub fn difference(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1e-300, |scale: f64, want| scale.max(want.abs()));
    let worst = |worst: f64, (got, want): (&f64, &f64)| match (got - want).abs() / scale {
        error if error.is_nan() => f64::INFINITY,
        error => worst.max(error),
    };
    got.iter().zip(want).fold(0.0, worst)
}

#[test]
fn what_is_not_a_number_differs() {
    assert_eq!(difference(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
    for got in [[f64::NAN, 4.0], [1.0, f64::NAN], [1.0, f64::INFINITY]] {
        assert_eq!(difference(&got, &[1.0, 4.0]), f64::INFINITY, "{got:?}");
    }
    assert_eq!(difference(&[1.0], &[f64::NAN]), f64::INFINITY);
}
