//! How long a training step, an update and a rule take on this machine.

use std::time::Instant;

use serde::Serialize;
use untuned::{Observation, Rule, StepRule};
use untuned_net::device::Device;
use untuned_net::models::{Feed, Noise, SCALARS, loss_of};
use untuned_net::random::Site;

use crate::train::place::{OpenedPlace, Work};
use crate::train::{Model, Place, Preset, Shape, TrainError};

/// Steps before the clock counts: buffers grow and caches fill in the first.
const WARM_UP: u32 = 3;

/// A training step: forward, backward, norm, rule and update.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTime {
    /// `gpt`, `lstm` or `t5`.
    pub model: &'static str,
    /// Where it ran.
    pub device: String,
    /// What the GPU's maker calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// What it computed in.
    pub precision: &'static str,
    /// Sequences in a batch.
    pub batch: usize,
    /// Parameters.
    pub params: usize,
    /// The median time from one reading of loss and norm to the next, with the update between them.
    pub ms: f64,
    /// Ids that the network reads (T5: those of the encoder) by that median.
    pub tokens_per_s: f64,
    /// The last loss.
    pub loss: f64,
    /// The most memory that the process held; on a GPU the bytes of its memory that the run took, without what the driver
    /// takes for itself. Unknown where the system does not say.
    pub peak_bytes: Option<u64>,
    /// Seconds from the start of the process to the end of the first step: opening the device, compiling kernels where they were
    /// not kept, initial weights.
    pub first_step_s: f64,
}

/// A training step that is to be timed.
#[derive(Debug, Clone, Copy)]
pub struct StepBench {
    /// The network.
    pub model: Model,
    /// Its size.
    pub preset: Preset,
    /// Sequences in a batch.
    pub batch: usize,
    /// Steps that are timed.
    pub steps: u32,
    /// When the process started.
    pub started: Instant,
}

/// Times training steps of a network on random ids, with Inexact Polyak's sizes.
///
/// # Errors
/// When the device cannot be opened, has too little memory, or fails.
pub fn step(bench: StepBench, place: Place, threads: Option<usize>) -> Result<StepTime, TrainError> {
    place.run(threads, bench)
}

impl Work for StepBench {
    type Output = StepTime;

    fn on<D>(self, device: &D, opened: &OpenedPlace<'_>) -> Result<StepTime, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        let StepBench { model, preset, batch, steps, started } = self;
        let shape = Shape::preset(model, preset);
        let (inputs, targets) = shape.lengths();
        let mut network = shape.network(device, batch, inputs)?;
        let params = network.layout().parameters();
        let mut x = device.parameters(&network.layout().initial(1))?;
        let mut dx = device.parameters(&vec![0.0; network.layout().len()])?;
        let mut scalars = device.scalars(SCALARS + 1)?;
        let ids = |site: u32, step: u32, to: &mut [u32]| {
            let site = Site { seed: 1, site, step };
            to.iter_mut()
                .enumerate()
                .for_each(|(i, id)| *id = site.bits(i as u64) % shape.vocabulary() as u32);
        };
        let batch_of = |step: u32, (seen, wanted): &mut (Vec<u32>, Vec<u32>)| {
            ids(1, step, seen);
            ids(2, step, wanted);
        };
        let mut now = (vec![0; batch * inputs], vec![0; batch * targets]);
        let mut next = now.clone();
        batch_of(0, &mut now);
        let (mut times, mut first_step_s) = (Vec::new(), f64::NAN);
        let (mut loss, mut start) = (f64::NAN, Instant::now());
        for step in 0..WARM_UP + steps {
            let feed = Feed { inputs: &now.0, targets: &now.1, batch };
            device.together(|| {
                network.gradient(device, feed, Some(Noise { seed: 1, step }), &x, &mut dx, &mut scalars);
                device.square_norm(&dx, &mut scalars, SCALARS);
            });
            // As in training, while the device works.
            batch_of(step + 1, &mut next);
            std::mem::swap(&mut now, &mut next);
            let mut values = [0.0; SCALARS + 1];
            device.read(&scalars, &mut values)?;
            if step >= WARM_UP {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            start = Instant::now();
            let seen = loss_of(&values);
            device.update(&mut x, None, &dx, seen.objective / (5000f64.sqrt() * values[SCALARS]), 0.0);
            if step == 0 {
                // Waits for the update.
                device.read(&scalars, &mut values)?;
                first_step_s = started.elapsed().as_secs_f64();
            }
            loss = seen.plain;
        }
        let ms = median(times);
        Ok(StepTime {
            model: model.name(),
            device: device.name(),
            gpu: opened.model().map(String::from),
            precision: opened.place.precision(),
            batch,
            params,
            ms,
            tokens_per_s: (batch * inputs) as f64 / ms * 1e3,
            loss,
            peak_bytes: opened.peak_bytes(),
            first_step_s,
        })
    }
}

/// The gradient's norm and the update: one pass over memory each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UpdateTime {
    /// Where it ran.
    pub device: String,
    /// What the GPU's maker calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// What networks compute in there; parameters are f32 in any case.
    pub precision: &'static str,
    /// Parameters.
    pub params: usize,
    /// The median time of both passes.
    pub ms: f64,
    /// 16 bytes per parameter by that median: the norm reads the gradient, the update reads both and writes one.
    pub bytes_per_s: f64,
    /// The same of a plain copy between the passes, 8 bytes per parameter: what this memory can do.
    pub copy_bytes_per_s: f64,
}

/// Parameters of [`update`]: 256 MiB of them, more than any cache holds.
const UPDATED: usize = 1 << 26;

/// Times `steps` updates, each until it is done.
///
/// # Errors
/// When the device cannot be opened, has too little memory, or fails.
pub fn update(steps: u32, place: Place, threads: Option<usize>) -> Result<UpdateTime, TrainError> {
    place.run(threads, UpdateBench { steps })
}

struct UpdateBench {
    steps: u32,
}

impl Work for UpdateBench {
    type Output = UpdateTime;

    fn on<D>(self, device: &D, opened: &OpenedPlace<'_>) -> Result<UpdateTime, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        let mut values = vec![0.0; UPDATED];
        Site { seed: 1, site: 3, step: 0 }.fill_uniform(&mut values, -1.0, 1.0);
        let (mut x, gradient) = (device.parameters(&values)?, device.parameters(&values)?);
        let mut copied = device.parameters(&values)?;
        drop(values);
        let mut scalars = device.scalars(1)?;
        let (mut times, mut copies) = (Vec::new(), Vec::new());
        let mut values = [0.0];
        for step in 0..WARM_UP + self.steps {
            let start = Instant::now();
            device.copy_parameters(&gradient, &mut copied);
            device.read(&scalars, &mut values)?;
            let copy = start.elapsed().as_secs_f64() * 1e3;
            let start = Instant::now();
            device.square_norm(&gradient, &mut scalars, 0);
            device.read(&scalars, &mut values)?;
            device.update(&mut x, None, &gradient, 1e-3 / values[0], 0.0);
            device.read(&scalars, &mut values)?;
            if step >= WARM_UP {
                times.push(start.elapsed().as_secs_f64() * 1e3);
                copies.push(copy);
            }
        }
        let ms = median(times);
        let rate = |bytes: f64, ms: f64| UPDATED as f64 * bytes / ms * 1e3;
        Ok(UpdateTime {
            device: device.name(),
            gpu: opened.model().map(String::from),
            precision: opened.place.precision(),
            params: UPDATED,
            ms,
            bytes_per_s: rate(16.0, ms),
            copy_bytes_per_s: rate(8.0, median(copies)),
        })
    }
}

/// A rule's own arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleTime {
    /// The rule, with its parameters.
    pub rule: String,
    /// The median time of one step.
    pub ns: f64,
}

/// Steps of a rule between two looks at the clock.
const RULE_STEPS: u64 = 1000;

/// Times a rule on a slowly falling loss, `steps` times a thousand steps.
///
/// # Errors
/// When the rule refuses the loss.
pub fn rule(name: String, rule: &Rule, steps: u32) -> Result<RuleTime, untuned::Refusal> {
    let mut times = Vec::new();
    for _ in 0..steps {
        let mut rule = rule.clone();
        let start = Instant::now();
        for step in 0..RULE_STEPS {
            let fall = 1.0 / (step + 1) as f64;
            let seen = Observation {
                x0_norm: 10.0,
                distance: Some(fall),
                grad_sum: Some(fall),
                dimension: 1000,
                ..Observation::new(step, 1.0 + fall, 1.0 + fall)
            };
            std::hint::black_box(rule.step(std::hint::black_box(&seen))?);
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / RULE_STEPS as f64);
    }
    Ok(RuleTime { rule: name, ns: median(times) })
}

/// The middle one; the upper one of two.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 3.0);
        assert!(median(vec![]).is_nan());
    }

    #[test]
    fn a_step_is_timed_and_its_loss_is_that_of_guessing() {
        let (model, preset, started) = (Model::Gpt, Preset::Tiny, Instant::now());
        let bench = StepBench { model, preset, batch: 1, steps: 1, started };
        let time = step(bench, Place::Cpu, Some(1)).unwrap();
        assert_eq!((time.model, time.batch, time.params), ("gpt", 1, 804_096));
        assert!(time.ms > 0.0 && (time.loss - 65f64.ln()).abs() < 0.2, "{time:?}");
        assert!(time.first_step_s * 1e3 > time.ms / 10.0, "{time:?}");
        assert!(time.peak_bytes.is_none_or(|bytes| bytes > 3 * 4 * 804_096));
    }
}
