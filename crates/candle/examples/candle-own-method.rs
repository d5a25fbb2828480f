//! An optimizer and a step-size rule that the library does not have, written here. Each trains a model of Candle.
//!
//! `cargo run --release -p untuned-candle --example candle-own-method`

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder, VarMap, linear, loss};
use serde::{Deserialize, Serialize};
use untuned::formula::{Change, Number, TensorInfo};
use untuned::optimizer::{check_held, named};
use untuned::{
    Needs, Observation, Optimizer, Refusal, SessionError, Space, StateVector, Step, StepContext, StepRule,
    Vectors,
};
use untuned_candle::{Config, Untuned};

/// Signs of a momentum: `m ← β·m + (1 − β)·g`, `x ← x·(1 − η·λ) − η·sign(m)`.
///
/// Serde is for `save` and `load`; to train, it need only be an [`Optimizer`] and `Clone`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SignMomentum {
    /// The rate `η`.
    pub lr: f64,
    /// `β`.
    pub beta: f64,
}

/// The formula for every coordinate, for all devices.
struct SignStep;

impl Change<3, 2, 1> for SignStep {
    #[inline(always)]
    fn each<N: Number>(
        [beta, scale, rate]: [N; 3],
        info: TensorInfo<N>,
        [x, m]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let (zero, one) = (N::of(0.0), N::of(1.0));
        let m = beta * m + (one - beta) * (scale * g);
        let sign = m.above(zero, one, zero) - (-m).above(zero, one, zero);
        [x * (one - info.decay) - rate * sign, m]
    }
}

impl Optimizer for SignMomentum {
    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> std::result::Result<Step, SessionError<S::Error>> {
        let [m] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let step = Step::new(self.lr * options.rate, &seen)?;
        let scale = options.gradient_scale(seen.grad_norm);
        check_held::<S>(&seen, &[step.size, scale * seen.grad_norm])?;
        let decay = step.size * options.weight_decay;
        context.change(SignStep, [self.beta, scale, step.size], decay, [x, m], [gradient]);
        Ok(step)
    }
}

/// The bold driver: the step size grows by a twentieth, and is halved when the loss has risen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoldDriver {
    /// The size of the last step.
    pub size: f64,
    /// The loss before it.
    pub last_loss: Option<f64>,
}

impl StepRule for BoldDriver {
    fn step(&mut self, seen: &Observation) -> std::result::Result<Step, Refusal> {
        seen.check(Needs::LOSS)?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let loss = seen.loss()?;
        let factor = if self.last_loss.is_some_and(|last| loss > last) { 0.5 } else { 1.05 };
        let step = Step::new(factor * self.size, seen)?;
        *self = BoldDriver { size: step.size, last_loss: Some(loss) };
        Ok(step)
    }
}

/// Fits `sin(3a)·b` with a network of two layers. Returns the first loss and the last.
pub fn train<M: Optimizer + Clone>(method: M, steps: usize) -> Result<[f64; 2]> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let (first, second) = (linear(2, 32, builder.pp("first"))?, linear(32, 1, builder.pp("second"))?);
    let grid = (0..121).map(|i| [(i % 11) as f32 / 5.0 - 1.0, (i / 11) as f32 / 5.0 - 1.0]);
    let values: Vec<f32> = grid.clone().map(|[a, b]| (3.0 * a).sin() * b).collect();
    let x = Tensor::from_vec(grid.flatten().collect::<Vec<f32>>(), (121, 2), &Device::Cpu)?;
    let y = Tensor::from_vec(values, (121, 1), &Device::Cpu)?;

    let mut optimizer = Untuned::of(&variables, Config::of(method))?;
    let mut losses = Vec::new();
    for _ in 0..steps {
        let answer = second.forward(&first.forward(&x)?.tanh()?)?;
        losses.extend(optimizer.backward_step(&loss::mse(&answer, &y)?)?.loss);
    }
    Ok([losses[0], losses[steps - 1]])
}

/// Both methods.
pub fn main() -> Result<()> {
    let sign_momentum = train(SignMomentum { lr: 0.01, beta: 0.9 }, 300)?;
    let bold_driver = train(BoldDriver { size: 0.1, last_loss: None }, 300)?;
    for (name, [first, last]) in [("SignMomentum", sign_momentum), ("BoldDriver", bold_driver)] {
        println!("{name:<14} the loss falls from {first:.4} to {last:.4}");
        assert!(last < 0.5 * first, "{name}");
    }
    Ok(())
}
