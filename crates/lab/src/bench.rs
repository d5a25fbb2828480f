//! How long a training step, an update and a rule take on this machine.

use std::cell::Cell;
use std::time::Instant;

use serde::Serialize;
use untuned::formula::{Change, Measure, Program};
use untuned::rules::{InexactPolyak, InexactPolyakExtend};
use untuned::{
    DenseF64, Method, MethodSpec, Observation, Rule, RunInfo, Session, SessionError, Space, StepRule,
};
use untuned_net::arena::{Initial, Layout};
use untuned_net::device::{Device, DeviceError};
use untuned_net::models::{Feed, Noise, SCALARS, loss_of};
use untuned_net::random::Site;
use untuned_net::space::ArenaSpace;

use crate::train::device::{OpenDevice, Work};
use crate::train::{DeviceChoice, Model, Preset, Shape, TrainError};

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
pub fn step(bench: StepBench, device: DeviceChoice, threads: Option<usize>) -> Result<StepTime, TrainError> {
    device.run(threads, bench)
}

impl Work for StepBench {
    type Output = StepTime;

    fn on<D>(self, device: &D, open_device: &OpenDevice<'_>) -> Result<StepTime, TrainError>
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
        // As in a run of 5000 steps, however many are timed.
        let method = InexactPolyak { extend: InexactPolyakExtend::Keep, ..Default::default() }
            .build(&RunInfo::new(5000))?;
        let space = ArenaSpace::new(device, network.layout(), &method);
        let mut session = Session::reserving(method, space, SCALARS)?;
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
                let noise = Noise { seed: 1, step };
                network.gradient(device, feed, Some(noise), &x, &mut dx, session.sums());
            });
            // As in training, while the device works.
            batch_of(step + 1, &mut next);
            std::mem::swap(&mut now, &mut next);
            let advanced = session.advance_reading(&mut x, &dx, |values| {
                if step >= WARM_UP {
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                start = Instant::now();
                let seen = loss_of(values);
                loss = seen.plain;
                Some(seen.objective)
            });
            advanced.map_err(failed)?;
            if step == 0 {
                // Waits for the update.
                device.read(session.sums(), &mut [0.0; SCALARS])?;
                first_step_s = started.elapsed().as_secs_f64();
            }
        }
        let ms = median(times);
        Ok(StepTime {
            model: model.name(),
            device: device.name(),
            gpu: open_device.model().map(String::from),
            precision: open_device.choice.precision(),
            batch,
            params,
            ms,
            tokens_per_s: (batch * inputs) as f64 / ms * 1e3,
            loss,
            peak_bytes: open_device.peak_bytes(),
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
    rule: &MethodSpec,
    steps: u32,
    device: DeviceChoice,
    threads: Option<usize>,
) -> Result<UpdateTime, TrainError> {
    let steps = u64::from(WARM_UP) + u64::from(steps).max(1).next_multiple_of(BLOCK);
    let method = rule.build(&RunInfo { steps: STEPS_BEFORE + steps, f_star: Some(0.0) })?;
    let mut pretended = Pretended::new(method);
    pretended.advance(STEPS_BEFORE);
    device.run(threads, UpdateBench { rule: rule.to_string(), pretended, steps })
}

struct UpdateBench {
    rule: String,
    /// After the steps before those that are timed.
    pretended: Pretended,
    /// Those that are timed, and [`WARM_UP`] before them.
    steps: u64,
}

impl Work for UpdateBench {
    type Output = UpdateTime;

    fn on<D>(self, device: &D, open_device: &OpenDevice<'_>) -> Result<UpdateTime, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        let UpdateBench { rule, mut pretended, steps } = self;
        let state = pretended.session.save();
        let vectors = pretended.advance(steps).split_off(WARM_UP as usize);
        let bytes = 4.0 * vectors.iter().sum::<usize>() as f64 / vectors.len() as f64;
        let mut layout = Layout::default();
        layout.matrix("all", 1 << 13, UPDATED >> 13, Initial::Uniform(1.0));
        let mut values = layout.initial(1);
        let space = ArenaSpace::new(device, &layout, &state.method);
        let (mut x, to) = (device.parameters(&values)?, device.parameters(&values)?);
        values.iter_mut().for_each(|value| *value = -*value);
        // To and fro, so that no estimate of a distance grows without end.
        let gradients = [to, device.parameters(&values)?];
        let mut copied = device.parameters(&values)?;
        drop(values);
        let mut session = Session::new(state.method.clone(), space)?;
        session.options.weight_decay = 0.1;
        session.start(&x)?;
        session.rewind(state);
        let (mut times, mut copies) = (Vec::new(), Vec::new());
        for step in 0..steps {
            let gradient = &gradients[(step % 2) as usize];
            let start = Instant::now();
            device.copy_parameters(gradient, &mut copied);
            device.read(session.sums(), &mut [0.0])?;
            let copy = start.elapsed().as_secs_f64() * 1e3;
            let start = Instant::now();
            session.advance(1.0, &mut x, gradient).map_err(failed)?;
            device.read(session.sums(), &mut [0.0])?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            copies.push(copy);
        }
        let ms = mean_of_kinds(&vectors, &times[WARM_UP as usize..]);
        let rate = |bytes: f64, ms: f64| UPDATED as f64 * bytes / ms * 1e3;
        Ok(UpdateTime {
            rule,
            device: device.name(),
            gpu: open_device.model().map(String::from),
            precision: open_device.choice.precision(),
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

/// A refused step is the fault of the request.
fn failed(error: SessionError<DeviceError>) -> TrainError {
    match error {
        SessionError::Refused(refusal) => TrainError::Request(refusal.to_string()),
        SessionError::Device(error) => error.into(),
    }
}

/// A method on a single number, whose vectors are counted.
struct Pretended {
    session: Session<Method, Counter>,
    x: Vec<f64>,
}

impl Pretended {
    fn new(method: Method) -> Pretended {
        let Ok(session) = Session::new(method, Counter::default());
        let mut pretended = Pretended { session, x: vec![1.0] };
        let Ok(()) = pretended.session.start(&pretended.x);
        pretended.session.space().vectors.set(0);
        pretended
    }

    /// Makes steps, and counts how many vectors each reads and writes, the norm included. A refused step has none, and the timed steps
    /// will say so.
    fn advance(&mut self, steps: u64) -> Vec<usize> {
        let one = |_| {
            let gradient = vec![if self.session.steps().is_multiple_of(2) { 0.5 } else { -0.5 }];
            let made = self.session.advance(1.0, &mut self.x, &gradient);
            if made.is_err() {
                self.session.skip();
            }
            let vectors = self.session.space().vectors.take();
            if made.is_ok() { vectors } else { 0 }
        };
        (0..steps).map(one).collect()
    }
}

/// One number, and a count of the vectors that passes over it read and write.
struct Counter {
    plain: DenseF64,
    vectors: Cell<usize>,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter { plain: DenseF64::new(1), vectors: Cell::new(0) }
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

    const LARGEST: f64 = DenseF64::LARGEST;

    fn dimension(&self) -> u64 {
        self.plain.dimension()
    }

    fn zeros(&self) -> Result<Vec<f64>, Self::Error> {
        self.plain.zeros()
    }

    fn sums(&self, count: usize) -> Result<Vec<f64>, Self::Error> {
        self.plain.sums(count)
    }

    fn read(&self, sums: &mut Vec<f64>, values: &mut [f64]) -> Result<(), Self::Error> {
        self.plain.read(sums, values)
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
                x0_norm: Some(10.0),
                distance: Some(fall),
                grad_sum: Some(fall),
                dimension: Some(1000),
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
    use untuned::spec::DefaultValue;

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
            let run = RunInfo { steps: STEPS_BEFORE + BLOCK, f_star: None };
            let mut pretended = Pretended::new(spec.parse::<MethodSpec>().unwrap().build(&run).unwrap());
            pretended.advance(STEPS_BEFORE);
            pretended.advance(BLOCK)
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
        for info in untuned::catalog() {
            let required =
                info.parameters.iter().filter(|parameter| parameter.default == DefaultValue::Required);
            let given: Vec<String> = required.map(|parameter| format!("{}=0.5", parameter.name)).collect();
            let spec = format!("{}{}{}", info.name, if given.is_empty() { "" } else { ":" }, given.join(","));
            let run = RunInfo { steps: STEPS_BEFORE + 1, f_star: Some(0.0) };
            let method = spec.parse::<MethodSpec>().unwrap().build(&run).unwrap();
            let vectors = Pretended::new(method).advance(STEPS_BEFORE + 1);
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
        let time = step(bench, DeviceChoice::Cpu, Some(1)).unwrap();
        assert_eq!((time.model, time.batch, time.params), ("gpt", 1, 804_096));
        assert!(time.ms > 0.0 && (time.loss - 65f64.ln()).abs() < 0.2, "{time:?}");
        assert!(time.first_step_s * 1e3 > time.ms / 10.0, "{time:?}");
        assert!(time.peak_bytes.is_none_or(|bytes| bytes > 3 * 4 * 804_096));
    }
}
