//! Training one model in several ways, from the same weights and with the same batches, and a table of what came out.

use std::time::Instant;

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams, SgdConfig};
use burn::tensor::Tensor;
use untuned_burn::{StepError, Stepper};

/// A way to train.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code)] // Each example uses two of them.
pub enum Way {
    /// A method of this library, without a learning rate.
    Untuned(&'static str),
    /// Burn's own SGD at this rate.
    Sgd(f64),
    /// Burn's own AdamW at this rate.
    AdamW(f64),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Untuned(spec) => spec.to_string(),
            Way::Sgd(rate) => format!("Burn's SGD, lr = {rate}"),
            Way::AdamW(rate) => format!("Burn's AdamW, lr = {rate}"),
        }
    }
}

/// Trains clones of `model` in all ways and prints a row for each: `loss` gives the loss of a step's batch, and `judge` the loss and the
/// accuracy on text or pictures that were not trained on.
pub fn compare<M: Module>(
    model: &M,
    steps: usize,
    ways: &[Way],
    loss: impl Fn(&M, usize) -> Tensor<1>,
    judge: impl Fn(&M) -> (f64, f64),
) -> Result<(), StepError> {
    println!(
        "{:<28} {:>12} {:>10} {:>10} {:>12}",
        "method", "train loss", "test loss", "accuracy", "ms a step"
    );
    for &way in ways {
        let (trained, losses, seconds) = train(model.clone(), steps, way, &loss)?;
        // The mean over the last batches, because one says little.
        let last = &losses[steps - steps.min(20)..];
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        let (test, accuracy) = judge(&trained);
        println!(
            "{:<28} {mean:>12.4} {test:>10.4} {:>9.1}% {:>12.3}",
            way.name(),
            100.0 * accuracy,
            1e3 * seconds / steps as f64
        );
    }
    Ok(())
}

fn train<M: Module>(
    mut model: M,
    steps: usize,
    way: Way,
    loss: &impl Fn(&M, usize) -> Tensor<1>,
) -> Result<(M, Vec<f64>, f64), StepError> {
    let mut losses = Vec::with_capacity(steps);
    let begin = Instant::now();
    let (mut optimizer, rate) = match way {
        Way::Untuned(spec) => {
            let mut stepper = Stepper::new(spec, steps as u64)?;
            for step in 0..steps {
                let loss = loss(&model, step);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                losses.push(stepper.step(loss, &mut model, gradients)?.loss);
            }
            return Ok((stepper.evaluated(&model)?, losses, begin.elapsed().as_secs_f64()));
        }
        Way::Sgd(rate) => (SgdConfig::new().init(), rate),
        Way::AdamW(rate) => (AdamWConfig::new().init(), rate),
    };
    for step in 0..steps {
        let loss = loss(&model, step);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        losses.push(loss.into_scalar::<f64>());
        model = optimizer.step(rate, model, gradients);
    }
    Ok((model, losses, begin.elapsed().as_secs_f64()))
}
