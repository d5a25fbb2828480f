//! An optimizer of one's own with a vector of state: the sign of the momentum, as in Lion.
//!
//! `cargo run --release -p untuned --example own_optimizer`

use untuned::formula::{Change, Number, TensorInfo};
use untuned::optimizer::{Optimizer, named};
use untuned::prelude::*;

/// `m ← β·m + (1 − β)·g`, `x ← x·(1 − η·decay) − η·sign(m)`.
#[derive(Debug, Clone)]
struct SignMomentum {
    lr: f64,
    beta: f64,
}

/// What the pass computes for every coordinate, on every device.
struct SignStep;

impl Change<3, 2, 1> for SignStep {
    fn each<N: Number>(
        [size, scale, beta]: [N; 3],
        info: TensorInfo<N>,
        [x, m]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let (zero, one) = (N::of(0.0), N::of(1.0));
        let m = beta * m + (one - beta) * (scale * g);
        let sign = m.above(zero, one, zero) - (-m).above(zero, one, zero);
        [x * (one - info.decay) - size * sign, m]
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
    ) -> Result<Step, SessionError<S::Error>> {
        let [m] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let step = Step::new(self.lr * options.rate, &seen)?;
        let scalars = [step.size, options.gradient_scale(seen.grad_norm), self.beta];
        context.change(SignStep, scalars, step.size * options.weight_decay, [x, m], [gradient]);
        Ok(step)
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problem = Function::new(vec![3.0, -2.0], |x, gradient| {
        gradient.copy_from_slice(&[2.0 * x[0], 20.0 * x[1]]);
        x[0] * x[0] + 10.0 * x[1] * x[1]
    });
    let run = minimize(&problem, SignMomentum { lr: 0.01, beta: 0.9 }, &problem.start(), 500)?;
    println!("{}: loss {:.2e} after 500 steps", run.outcome.word(), run.best.loss);
    assert!(run.best.loss < 0.01, "{}", run.best.loss);
    Ok(())
}
