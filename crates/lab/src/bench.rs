//! How long a training step, an update and a rule take on this machine.

use std::cell::Cell;
use std::ops::Range;
use std::time::Instant;

use serde::Serialize;
use untuned::optimizers::formula::Program;
use untuned::optimizers::{
    Around, At, Change, Keep, Measure, Method, Optimizer as _, OptimizerSpec, Plain, Space,
};
use untuned::{Observation, Rule, Setting, StepRule};
use untuned_net::arena::{Initial, Layout};
use untuned_net::device::Device;
use untuned_net::models::{Feed, Noise, SCALARS, loss_of};
use untuned_net::random::Site;
use untuned_net::space::ArenaSpace;

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
        for step in 0..WARM_UP.saturating_add(steps) {
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
            device.update(&mut x, &dx, seen.objective / (5000f64.sqrt() * values[SCALARS]));
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

/// The gradient's norm and the update: at least one pass over memory each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UpdateTime {
    /// The rule or optimizer.
    pub rule: String,
    /// Where it ran.
    pub device: String,
    /// What the GPU's maker calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// What networks compute in there; parameters are f32 in any case.
    pub precision: &'static str,
    /// Parameters.
    pub params: usize,
    /// The time of all passes: the mean over the steps, each taken as the median of those that read and write as much.
    pub ms: f64,
    /// What the passes read and write, the mean over the steps: for Inexact Polyak 16, the norm reading the gradient, the update reading both and writing one.
    pub bytes_per_param: f64,
    /// That by the time.
    pub bytes_per_s: f64,
    /// The same of a plain copy between the steps, 8 bytes per parameter: what this memory can do.
    pub copy_bytes_per_s: f64,
}

/// Parameters of [`update`]: 256 MiB of them, more than any cache holds.
const UPDATED: usize = 1 << 26;

/// Steps of a method before those that are timed: early in a run it may do more. They are made on a single number.
const STEPS_BEFORE: u64 = 1000;
/// Updates are timed in so many at least, because a method need not do the same in each: after its first thousand `polyak-adam` measures in
/// one of eight, and the distance in one of sixty-four.
const BLOCK: u64 = 64;

/// Times at least `steps` updates of a method in the middle of a run, each until it is done.
///
/// # Errors
/// When the method cannot be built or refuses a step, or the device cannot be opened, has too little memory, or fails.
pub fn update(
    rule: &OptimizerSpec,
    steps: u32,
    place: Place,
    threads: Option<usize>,
) -> Result<UpdateTime, TrainError> {
    let steps = u64::from(WARM_UP) + u64::from(steps).max(1).next_multiple_of(BLOCK);
    let mut method = rule.build(&Setting { steps: STEPS_BEFORE + steps, f_star: Some(0.0) })?;
    pretend(&mut method, 0..STEPS_BEFORE);
    place.run(threads, UpdateBench { rule: rule.to_string(), method, steps })
}

struct UpdateBench {
    rule: String,
    /// After the steps before those that are timed.
    method: Method,
    /// Those that are timed, and [`WARM_UP`] before them.
    steps: u64,
}

impl Work for UpdateBench {
    type Output = UpdateTime;

    fn on<D>(self, device: &D, opened: &OpenedPlace<'_>) -> Result<UpdateTime, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        let UpdateBench { rule, mut method, steps } = self;
        let steps = STEPS_BEFORE..STEPS_BEFORE + steps;
        let vectors = pretend(&mut method.clone(), steps.clone()).split_off(WARM_UP as usize);
        let bytes = 4.0 * vectors.iter().sum::<usize>() as f64 / vectors.len() as f64;
        let mut layout = Layout::default();
        layout.matrix("all", 1 << 13, UPDATED >> 13, Initial::Uniform(1.0));
        let mut values = layout.initial(1);
        let space = ArenaSpace::new(device, &layout);
        let (mut x, to) = (device.parameters(&values)?, device.parameters(&values)?);
        values.iter_mut().for_each(|value| *value = -*value);
        // To and fro, so that no estimate of a distance grows without end.
        let gradients = [to, device.parameters(&values)?];
        let mut copied = device.parameters(&values)?;
        drop(values);
        let mut kept = Keep::all(&space, &method.keeps(), &x)?;
        let around = Around { weight_decay: 0.1, ..Around::default() };
        let mut values = vec![0.0; 1 + method.measures()];
        let mut scalars = device.scalars(values.len())?;
        let (mut times, mut copies) = (Vec::new(), Vec::new());
        for step in steps {
            let gradient = &gradients[(step % 2) as usize];
            let start = Instant::now();
            device.copy_parameters(gradient, &mut copied);
            device.read(&scalars, &mut values)?;
            let copy = start.elapsed().as_secs_f64() * 1e3;
            let start = Instant::now();
            let at = At { space: &space, around: &around, x: &mut x, gradient, kept: &mut kept };
            if !method.measure(&at, &mut scalars, 0) {
                device.square_norm(gradient, &mut scalars, 0);
            }
            device.read(&scalars, &mut values)?;
            let seen = Observation::new(step, 1.0, values[0].sqrt());
            let stepped = method.step(&seen, &values[1..], at);
            stepped.map_err(|refusal| TrainError::Request(refusal.to_string()))?;
            device.read(&scalars, &mut values)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            copies.push(copy);
        }
        let ms = mean_of_kinds(&vectors, &times[WARM_UP as usize..]);
        let rate = |bytes: f64, ms: f64| UPDATED as f64 * bytes / ms * 1e3;
        Ok(UpdateTime {
            rule,
            device: device.name(),
            gpu: opened.model().map(String::from),
            precision: opened.place.precision(),
            params: UPDATED,
            ms,
            bytes_per_param: bytes,
            bytes_per_s: rate(bytes, ms),
            copy_bytes_per_s: rate(8.0, median(copies)),
        })
    }
}

/// The mean of times, each taken as the median of those of its kind: a slow moment counts for nothing.
fn mean_of_kinds(kinds: &[usize], times: &[f64]) -> f64 {
    let of = |kind: usize| {
        times.iter().zip(kinds).filter(move |(_, other)| **other == kind).map(|(time, _)| *time)
    };
    kinds.iter().map(|&kind| median(of(kind).collect())).sum::<f64>() / kinds.len() as f64
}

/// Makes steps of a method on a single number, and counts how many vectors each reads and writes, the norm included.
fn pretend(method: &mut Method, steps: Range<u64>) -> Vec<usize> {
    let (space, around) = (Counter::default(), Around::default());
    let mut x = vec![1.0];
    let Ok(mut kept) = Keep::all(&space, &method.keeps(), &x);
    space.vectors.set(0);
    let mut sums = vec![0.0; 1 + method.measures()];
    let count = |step: u64| {
        let gradient = vec![if step.is_multiple_of(2) { 0.5 } else { -0.5 }];
        let at = At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
        if !method.measure(&at, &mut sums, 0) {
            space.count(1);
        }
        let made = method.step(&Observation::new(step, 1.0, 0.5), &sums[1..], at);
        let vectors = space.vectors.take();
        // A refusal has no traffic, and the timed steps will say so.
        if made.is_ok() { vectors } else { 0 }
    };
    steps.map(count).collect()
}

/// One number, and a count of the vectors that passes over it read and write.
struct Counter {
    plain: Plain,
    vectors: Cell<usize>,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter { plain: Plain::new(1), vectors: Cell::new(0) }
    }
}

impl Counter {
    fn count(&self, vectors: usize) {
        self.vectors.set(self.vectors.get() + vectors);
    }
}

impl Space for Counter {
    type Vector = Vec<f64>;
    type Sums = Vec<f64>;
    type Error = std::convert::Infallible;

    const LARGEST: f64 = Plain::LARGEST;

    fn zeros(&self) -> Result<Vec<f64>, Self::Error> {
        self.plain.zeros()
    }

    fn copy(&self, from: &Vec<f64>, to: &mut Vec<f64>) {
        self.count(2);
        self.plain.copy(from, to);
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut Vec<f64>; M],
        read: [&Vec<f64>; R],
    ) {
        self.count(Program::of_change::<F, S, M, R>().reads() + M);
        self.plain.change(formula, scalars, decay, change, read);
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vec<f64>; R],
        sums: &mut Vec<f64>,
        at: usize,
    ) {
        self.count(Program::of_measure::<F, S, R, K>().reads());
        self.plain.measure(formula, scalars, decay, read, sums, at);
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
    use untuned::spec::Fallback;

    #[test]
    fn the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 3.0);
        assert!(median(vec![]).is_nan());
    }

    /// Counted by hand: x, g and what is kept, read and written.
    #[test]
    fn the_traffic_of_a_step() {
        let counts = |spec: &str| {
            let setting = Setting { steps: STEPS_BEFORE + BLOCK, f_star: None };
            let mut method = spec.parse::<OptimizerSpec>().unwrap().build(&setting).unwrap();
            pretend(&mut method, 0..STEPS_BEFORE);
            pretend(&mut method, STEPS_BEFORE..STEPS_BEFORE + BLOCK)
        };
        let sum = |spec: &str| counts(spec).into_iter().sum::<usize>();
        let block = BLOCK as usize;
        assert_eq!((sum("inexact-polyak"), sum("adamw")), ((1 + 3) * block, (1 + 7) * block));
        assert_eq!((sum("dog"), sum("prodigy")), ((1 + 2 + 3) * block, (4 + 9) * block));
        // The norm comes with the sum of one step of eight, and once with the distance.
        assert_eq!(sum("polyak-adam"), (1 + 7) * block + block / 8 + 2);
        assert_eq!(sum("polyak-adam:cap=yes"), (2 + 7) * block + 2);
    }

    /// What is timed is what a method does, and not that it refuses.
    #[test]
    fn no_method_refuses_the_steps_before() {
        for entry in untuned::optimizers::catalog() {
            let required =
                entry.parameters.iter().filter(|parameter| parameter.default == Fallback::Required);
            let given: Vec<String> = required.map(|parameter| format!("{}=0.5", parameter.name)).collect();
            let spec =
                format!("{}{}{}", entry.name, if given.is_empty() { "" } else { ":" }, given.join(","));
            let setting = Setting { steps: STEPS_BEFORE + 1, f_star: Some(0.0) };
            let mut method = spec.parse::<OptimizerSpec>().unwrap().build(&setting).unwrap();
            let vectors = pretend(&mut method, 0..STEPS_BEFORE + 1);
            assert!(vectors.iter().all(|&vectors| vectors >= 4), "{spec}: {vectors:?}");
        }
    }

    #[test]
    fn a_slow_moment_counts_for_nothing() {
        assert_eq!(mean_of_kinds(&[8, 8, 8, 9], &[1.0, 70.0, 1.0, 5.0]), (3.0 + 5.0) / 4.0);
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
