//! A parameter that a module uses in two places is one parameter.

use crate::support::{device, specs};
use burn::module::{Module, Param};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::Tensor;
use untuned_burn::{Stepper, tie};

#[derive(Module, Debug)]
struct Tied {
    embedding: Param<Tensor<2>>,
    /// The same parameter as the embedding.
    head: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl Tied {
    fn new() -> Tied {
        let weight = Tensor::<2>::from_floats([[0.5, -1.0], [2.0, 0.25]], &device()).require_grad();
        let bias = Tensor::<1>::from_floats([0.1, -0.2], &device()).require_grad();
        let embedding = Param::from_tensor(weight);
        Tied { head: embedding.clone(), embedding, bias: Param::from_tensor(bias) }
    }

    fn loss(&self) -> Tensor<1> {
        let x = Tensor::<2>::from_floats([[1.0, 2.0], [-1.0, 0.5]], &device());
        let hidden = x.matmul(self.embedding.val()).matmul(self.head.val().transpose());
        (hidden + self.bias.val().unsqueeze::<2>() - 1.0).square().mean()
    }

    fn step(&mut self, stepper: &mut Stepper) -> untuned_burn::Report {
        let loss = self.loss();
        let gradients = GradientsParams::from_grads(loss.backward(), self);
        stepper.step(loss, self, gradients).unwrap()
    }

    fn numbers(&self) -> [Vec<f32>; 2] {
        [&self.embedding, &self.head].map(|param| param.val().into_data().iter().collect())
    }
}

#[test]
fn stays_one_and_counts_once() {
    for spec in specs() {
        for loops in [true, false] {
            let mut module = Tied::new();
            let mut stepper = Stepper::new(&spec, 20).unwrap().loops(loops);
            let start = module.numbers();
            for t in 0..5 {
                let loss = module.loss();
                let gradients = GradientsParams::from_grads(loss.backward(), &module);
                let squares = |tensor: Vec<f64>| tensor.iter().map(|number| number * number).sum::<f64>();
                let weight = gradients.get::<2>(module.embedding.id).unwrap().into_data().iter().collect();
                let bias = gradients.get::<1>(module.bias.id).unwrap().into_data().iter().collect();
                let norm = (squares(weight) + squares(bias)).sqrt();
                let report = stepper.step(loss, &mut module, gradients).unwrap();
                assert!((report.grad_norm / norm - 1.0).abs() < 1e-6, "{spec} at {t}");
                let [embedding, head] = module.numbers();
                assert_eq!(embedding, head, "{spec} at {t}: the places came apart");
            }
            assert_ne!(module.numbers(), start, "{spec}");
        }
    }
    let mut stepper = Stepper::new("adamw", 20).unwrap();
    Tied::new().step(&mut stepper);
    assert_eq!(stepper.memory(), 2 * 6 * 4, "two vectors of 4 + 2 numbers");
}

/// Why this is a trap: Burn's own optimizers change the first place only.
#[test]
fn burns_own_optimizer_lets_them_come_apart() {
    let mut module = Tied::new();
    let loss = module.loss();
    let gradients = GradientsParams::from_grads(loss.backward(), &module);
    module = SgdConfig::new().init().step(0.01, module, gradients);
    let [embedding, head] = module.numbers();
    assert_ne!(embedding, head);
}

/// A loaded record fills every place for itself; the gradient of one of them is lost until they are one again.
#[test]
fn a_loaded_module_is_tied_again() {
    let (mut module, mut stepper) = (Tied::new(), Stepper::new("polyak:f_star=0", 20).unwrap());
    module.step(&mut stepper);
    let loaded = Tied::new().load_record(module.clone().into_record());
    assert_eq!((loaded.embedding.id, loaded.head.id), (module.head.id, module.head.id), "ids are kept");
    let mut tied = tie(loaded.clone());
    let gradient = |module: &Tied| {
        let gradients = GradientsParams::from_grads(module.loss().backward(), module);
        gradients.get::<2>(module.embedding.id).unwrap().into_data().iter::<f32>().collect::<Vec<_>>()
    };
    assert_eq!(gradient(&tied), gradient(&module));
    assert_ne!(gradient(&loaded), gradient(&module), "without it, a part of the gradient is missing");
    let mut resumed = Stepper::new("polyak:f_star=0", 20).unwrap();
    resumed.load_record(stepper.to_record().unwrap(), &tied).unwrap();
    for _ in 0..5 {
        assert_eq!(tied.step(&mut resumed), module.step(&mut stepper));
        assert_eq!(tied.numbers(), module.numbers());
    }
}
