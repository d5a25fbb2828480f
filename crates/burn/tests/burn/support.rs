//! A small module and problem that several tests share.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use untuned::Setting;
use untuned::optimizers::{Method, OptimizerSpec, catalog};
use untuned::spec::{Fallback, Kind};
use untuned_burn::Stepper;

pub const START: [f64; 6] = [1.0, -2.0, 0.5, 3.0, -1.5, 0.25];

pub fn device() -> Device {
    Device::flex().autodiff()
}

/// Six numbers: a matrix, which decays, and a list, which does not. Either may be missing.
#[derive(Module, Debug)]
pub struct Six {
    pub matrix: Option<Param<Tensor<2>>>,
    pub list: Option<Param<Tensor<1>>>,
}

impl Six {
    pub fn new(start: &[f64], decayed: usize, dtype: DType) -> Six {
        let tensor = |numbers: &[f64]| {
            let data = TensorData::new(numbers.to_vec(), [numbers.len()]);
            Tensor::<1>::from_data(data, (&device(), dtype))
        };
        let (matrix, list) = start.split_at(decayed);
        let as_matrix = |list: Tensor<1>| list.reshape([decayed, 1]).require_grad();
        Six {
            matrix: (!matrix.is_empty()).then(|| Param::from_tensor(as_matrix(tensor(matrix)))),
            list: (!list.is_empty()).then(|| Param::from_tensor(tensor(list).require_grad())),
        }
    }

    pub fn all(&self) -> Tensor<1> {
        let matrix = self.matrix.as_ref().map(|matrix| matrix.val().flatten::<1>(0, 1));
        Tensor::cat([matrix, self.list.as_ref().map(Param::val)].into_iter().flatten().collect(), 0)
    }

    pub fn numbers(&self) -> Vec<f64> {
        self.all().into_data().iter::<f64>().collect()
    }

    /// To the last bit.
    pub fn bits(&self) -> Vec<u64> {
        self.numbers().into_iter().map(f64::to_bits).collect()
    }

    /// `Σ (a/2)x² + (b/4)x⁴ + 4` with `a` = 0.5, 1, …, 3 and `b` = 0.1, 0.2, …, 0.6, and a push that changes from step to step; and
    /// `penalty/2·‖x‖²` of the first `decayed` numbers.
    pub fn loss(&self, t: u64, penalty: f64, decayed: usize) -> Tensor<1> {
        let x = self.all();
        let (dtype, device) = (x.dtype(), x.device());
        let list = |of: &dyn Fn(usize) -> f64| {
            let numbers: Vec<f64> = (0..START.len()).map(of).collect();
            Tensor::<1>::from_data(TensorData::new(numbers, [START.len()]), (&device, dtype))
        };
        let index = list(&|i| (i + 1) as f64);
        let push = list(&|i| 0.25 * (((t * (i as u64 + 1)) % 7) as f64 - 3.0));
        let extra = list(&|i| if i < decayed { penalty } else { 0.0 });
        let square = x.clone() * x.clone();
        let quartic = square.clone() * square.clone();
        let terms = index.clone() * square.clone() * 0.25 + index * quartic * 0.025 + push * x;
        terms.sum() + 4.0 + (extra * square).sum() * 0.5
    }

    pub fn gradients(&self, loss: &Tensor<1>) -> GradientsParams {
        GradientsParams::from_grads(loss.backward(), self)
    }
}

/// The text of a method with the parameters that it cannot do without here, and options.
pub fn spec(name: &str, options: &[String]) -> String {
    let given = match name {
        "gd" => "lr=0.05",
        "clipped-gd" => "lr=0.05,threshold=2",
        "polyak" => "f_star=3",
        "schedule-free-sgd" => "lr=0.05",
        "sgd-momentum" => "lr=0.02",
        // Without a limit its steps are long here, and a rounding grows tenfold in each.
        "sps-max" => "max_step=0.1",
        _ => "",
    };
    let parameters = [given].into_iter().chain(options.iter().map(String::as_str));
    let parameters: Vec<&str> = parameters.filter(|parameter| !parameter.is_empty()).collect();
    format!("{name}{}{}", if parameters.is_empty() { "" } else { ":" }, parameters.join(","))
}

/// Every method of the library; each also with each word of each of its options.
pub fn specs() -> Vec<String> {
    let mut specs = vec![
        "adaptive-polyak:variant=epochs,epochs=4".to_string(),
        "decsps:grad_shift=0.01".to_string(),
        "prodigy:beta1=0,d0=0.01".to_string(),
    ];
    for entry in catalog() {
        specs.push(spec(entry.name, &[]));
        for parameter in entry.parameters {
            let Kind::Word(words) = parameter.kind else { continue };
            for word in words.iter().filter(|word| parameter.default != Fallback::Word(word)) {
                let with = spec(entry.name, &[format!("{}={word}", parameter.name)]);
                // Some words need another parameter, too.
                specs.extend(Stepper::new(&with, 9).is_ok().then_some(with));
            }
        }
    }
    assert!(specs.len() > 40, "{specs:?}");
    specs
}

pub fn method(spec: &str, steps: u64) -> Method {
    let spec: OptimizerSpec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    spec.build(&Setting::new(steps)).unwrap_or_else(|error| panic!("{error}"))
}
