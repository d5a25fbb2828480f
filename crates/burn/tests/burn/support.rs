//! A small module and problem that several tests share.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use untuned::spec::{DefaultValue, Kind};
use untuned::{Method, MethodSpec, Optimizer, RunInfo, catalog};
use untuned_burn::{Report, StepError, Stepper};

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

    /// Makes a step from this module.
    pub fn try_step<M: Optimizer + Clone>(
        &mut self,
        stepper: &mut Stepper<M>,
        t: u64,
    ) -> Result<Report, StepError> {
        let loss = self.loss(t, 0.0, 0);
        let gradients = self.gradients(&loss);
        stepper.step(loss, self, gradients)
    }
}

/// The same, where nothing stands against it.
pub fn step<M: Optimizer + Clone>(stepper: &mut Stepper<M>, module: &mut Six, t: u64) -> Report {
    module.try_step(stepper, t).unwrap()
}

/// The largest error, relative to the largest number or `least`. A number that is missing or not a number is infinitely wrong.
pub fn error(got: &[f64], want: &[f64], least: f64) -> f64 {
    let scale = want.iter().fold(least, |scale: f64, want| scale.max(want.abs()));
    let relative = |(got, want): (&f64, &f64)| match (got - want).abs() / scale {
        error if error.is_nan() => f64::INFINITY,
        error => error,
    };
    let missing = if got.len() == want.len() { 0.0 } else { f64::INFINITY };
    got.iter().zip(want).map(relative).fold(missing, f64::max)
}

#[test]
fn what_is_not_a_number_is_wrong() {
    assert_eq!(error(&[1.0, 2.0], &[1.0, 4.0], 0.0), 0.5);
    for got in [&[f64::NAN, 4.0][..], &[1.0, f64::NAN], &[1.0, f64::INFINITY], &[1.0]] {
        assert_eq!(error(got, &[1.0, 4.0], 0.0), f64::INFINITY, "{got:?}");
    }
    assert_eq!(error(&[1.0], &[f64::NAN], 0.0), f64::INFINITY);
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
            for word in words.iter().filter(|word| parameter.default != DefaultValue::Word(word)) {
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
    let spec: MethodSpec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    spec.build(&RunInfo::new(steps)).unwrap_or_else(|error| panic!("{error}"))
}
