//! A method of your own trains a Burn module: a step-size rule in ten lines, and an optimizer with a vector of its own.
//!
//! `cargo run --release -p untuned-burn --example burn-own-method`

use burn::module::Module;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use untuned::formula::{Change, Number, TensorInfo};
use untuned::optimizer::{check_held, named};
use untuned::{
    Observation, Optimizer, Refusal, SessionError, Space, StateVector, Step, StepContext, StepRule, Vectors,
};
use untuned_burn::{StepError, Stepper};

const STEPS: u64 = 500;

/// A rule only says how long a step is. This one halves its rate where the loss has risen.
///
/// To train, it need only be a [`StepRule`] and `Clone`. `PartialEq` and serde are for saving a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Halving {
    /// The size of the last step.
    pub rate: f64,
    /// The loss before it.
    pub before: Option<f64>,
}

impl StepRule for Halving {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        let loss = seen.loss()?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let rose = self.before.is_some_and(|before| loss > before);
        let step = Step::new(if rose { self.rate / 2.0 } else { self.rate }, seen)?;
        (self.rate, self.before) = (step.size, Some(loss));
        Ok(step)
    }
}

/// An optimizer moves the parameters itself. This one is Signum: every number moves by the same length, down the sign of a mean of its
/// gradients. The length decays to 0 over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signum {
    /// The length of the first step.
    pub rate: f64,
    /// The weight of the old mean in the new one.
    pub keep: f64,
    /// The steps of the run.
    pub steps: u64,
}

/// What happens to each number: `m ← keep·m + (1 − keep)·g`, `x ← x·(1 − decay) − size·sign(m)`. Every device runs this formula.
struct Move;

impl Change<2, 2, 1> for Move {
    fn each<N: Number>([size, keep]: [N; 2], info: TensorInfo<N>, [x, m]: [N; 2], [g]: [N; 1]) -> [N; 2] {
        let (zero, one) = (N::of(0.0), N::of(1.0));
        let m = keep * m + (one - keep) * g;
        let sign = m.above(zero, one, zero) - (-m).above(zero, one, zero);
        [x * (one - info.decay) - size * sign, m]
    }
}

impl Optimizer for Signum {
    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let seen = context.observe()?;
        let left = self.steps.saturating_sub(seen.step) as f64 / self.steps as f64;
        let step = Step::new(self.rate * left * context.options.rate, &seen)?;
        check_held::<S>(&seen, &[step.size])?;
        let [m] = named(state);
        let decay = step.size * context.options.weight_decay;
        context.change(Move, [step.size, self.keep], decay, [x, m], [gradient]);
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    fn default_weight_decay(&self) -> f64 {
        0.001
    }
}

#[derive(Module, Debug)]
struct Network {
    first: Linear,
    relu: Relu,
    second: Linear,
}

impl Network {
    fn new(device: &Device) -> Network {
        device.seed(1);
        let (first, second) = (LinearConfig::new(2, 32).init(device), LinearConfig::new(32, 1).init(device));
        Network { first, relu: Relu::new(), second }
    }

    /// The mean square error.
    fn loss(&self, x: Tensor<2>, y: Tensor<2>) -> Tensor<1> {
        (self.second.forward(self.relu.forward(self.first.forward(x))) - y).square().mean()
    }
}

/// Trains a network on `y = sin(a) + b²`, and returns the first loss and the last one.
fn train<M: Optimizer + Clone>(method: M) -> Result<(f64, f64), StepError> {
    let device = Device::flex().autodiff();
    let points = (0..200).map(|i| [f64::from(i) * 0.03 - 3.0, f64::from(i % 9) * 0.25 - 1.0]);
    let y: Vec<f64> = points.clone().map(|[a, b]| a.sin() + b * b).collect();
    let x: Vec<f64> = points.flatten().collect();
    let x = Tensor::<2>::from_data(TensorData::new(x, [200, 2]), &device);
    let y = Tensor::<2>::from_data(TensorData::new(y, [200, 1]), &device);

    let mut network = Network::new(&device);
    let mut stepper = Stepper::from_method(method);
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let loss = network.loss(x.clone(), y.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        losses.push(stepper.step(loss, &mut network, gradients)?.loss);
    }
    Ok((losses[0], losses[losses.len() - 1]))
}

/// Trains with both.
pub fn main() -> Result<(), StepError> {
    let trained = [
        ("Halving", train(Halving { rate: 0.1, before: None })?),
        ("Signum", train(Signum { rate: 0.01, keep: 0.9, steps: STEPS })?),
    ];
    for (name, (first, last)) in trained {
        println!("{name:<10} loss {first:.4} at first, {last:.4} at last");
        assert!(last < 0.2 * first, "the loss falls");
    }
    Ok(())
}
