//! The training loop: batch, gradient, one small read-back, rule, update; with its trace, evaluations and checkpoints.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use untuned::optimizer::Optimizer as _;
use untuned::{Report, RunInfo, StepKind};
use untuned_net::device::Device;
use untuned_net::models::{Network, Noise, SCALARS, loss_of};

use super::checkpoint::{self, Checkpoint, Evaluation, Expected, Extra, State};
use super::config::{Config, Interval, KeepBest};
use super::data::{Ahead, Data, Description, Filled};
use super::device::{OpenDevice, Work};
use super::error::TrainError;
use super::evaluate::evaluate;
use super::fit;
use super::folder::{CHECKPOINT, CONFIG, META, Opened, SUMMARY, TRACE, pretty, write_whole};
use super::probe::Probe;
use super::record::Record;
use super::shape::Shape;
use super::sinks::Sinks;
use super::stepper::{self, Stepper};
use super::summary::Summary;
use crate::traces::{EvalRow, Split, TraceRow};

/// Arrays of a checkpoint.
const CARRY: &str = "carry";
/// The current point, where the weights of a checkpoint are those of another one: that which is evaluated.
const TRAINED: &str = "trained";
pub(super) const BEST_VALIDATION: &str = "best_validation";

/// Who watches a run, and may stop it.
pub trait Watch: Send {
    /// The run begins, or goes on.
    fn begins(&mut self, _beginning: &Beginning<'_>) {}
    /// A step was made or refused.
    fn stepped(&mut self, _stepped: &Stepped) {}
    /// The weights were evaluated.
    fn evaluated(&mut self, _evaluation: &Evaluation) {}
    /// Something that the user should know.
    fn note(&mut self, _text: &str) {}
    /// Whether to stop: asked after every step.
    fn stop(&self) -> bool {
        false
    }
}

/// What is known when a run begins.
#[derive(Debug)]
pub struct Beginning<'a> {
    /// What it trains on.
    pub data: &'a Description,
    /// The number of parameters.
    pub parameters: usize,
    /// The number of steps.
    pub steps: u64,
    /// The steps that an earlier part of the run made.
    pub done: u64,
    /// The device, in words.
    pub device: String,
}

/// A step.
#[derive(Debug, Clone, Copy)]
pub struct Stepped {
    /// Its number.
    pub step: u64,
    /// The mean cross-entropy.
    pub loss: f64,
    /// The step size; nothing where it was refused.
    pub size: Option<f64>,
    /// The ids that the network read.
    pub tokens: usize,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All steps were made.
    Finished,
    /// It had ended before.
    Already,
    /// Too many steps in a row were refused.
    Refused {
        /// The last of them.
        step: u64,
        /// Why.
        reason: String,
    },
    /// An evaluation was no better than the first when the configuration's `give_up_after` was reached.
    GivenUp {
        /// The step of that evaluation.
        step: u64,
    },
    /// It was stopped.
    Interrupted {
        /// Steps that are kept.
        step: u64,
    },
}

/// What a run leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// What came out; nothing where it was stopped.
    pub summary: Option<Summary>,
    /// Steps that were refused.
    pub refusals: u64,
    /// The best possible loss, where the data has one.
    pub best_loss: Option<f64>,
}

/// `meta.json`.
#[derive(Debug, Serialize)]
struct Meta<'a> {
    version: &'static str,
    device: String,
    /// What the GPU's maker calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'a str>,
    precision: &'static str,
    threads: usize,
    model: &'static str,
    shape: std::collections::BTreeMap<String, serde_json::Value>,
    parameters: usize,
    steps: u64,
    data: &'a Description,
    started_unix_seconds: u64,
}

/// How a run is made, beside what decides over its numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Threads that compute; nothing stands for as many as the machine has.
    pub threads: Option<usize>,
    /// What is written beside the trace.
    pub sinks: Sinks,
    /// Whether the weights are of no use once the run has ended: checkpoints are then those that it needs to go on.
    pub drops_weights: bool,
}

/// Makes a run, or goes on with it. Sinks that the folder has go on too.
///
/// # Errors
/// When the request is wrong or the system fails. A run that diverges is not an error: it is an [`Outcome`].
pub fn train(opened: &Opened, options: &Options, watch: &mut dyn Watch) -> Result<Ended, TrainError> {
    for note in &opened.notes {
        watch.note(note);
    }
    if let Some(ended) = already_ended(opened)? {
        options.sinks.open(&opened.folder, ended.summary.as_ref().map_or(0.0, |summary| summary.seconds))?;
        return Ok(ended);
    }
    let device = opened.config.device_choice()?;
    Shape::of(&opened.config)?.check_on(device, opened.config.batch)?;
    let training = Training { opened, options, watch };
    device.run(options.threads, training).map_err(|error| fit::with_batch_that_fits(error, &opened.config))
}

fn already_ended(opened: &Opened) -> Result<Option<Ended>, TrainError> {
    let path = opened.folder.join(SUMMARY);
    if !(opened.resume && path.is_file()) {
        return Ok(None);
    }
    let bytes = fs::read(&path).map_err(TrainError::io("read", &path))?;
    let summary = serde_json::from_slice(&bytes).map_err(|error| {
        TrainError::Request(format!("{}: {error}; remove the file to let the run go on", path.display()))
    })?;
    Ok(Some(Ended { outcome: Outcome::Already, summary: Some(summary), refusals: 0, best_loss: None }))
}

struct Training<'a> {
    opened: &'a Opened,
    options: &'a Options,
    watch: &'a mut dyn Watch,
}

impl Work for Training<'_> {
    type Output = Ended;

    fn on<D>(self, device: &D, open_device: &OpenDevice<'_>) -> Result<Ended, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        let Training { opened, options, watch } = self;
        let config = &opened.config;
        let shape = Shape::of(config)?;
        let data = Data::open(config, &shape)?;
        let shape = shape.fitted(data.ids, data.longest_target);
        let method = config.rule.build(&RunInfo { steps: data.steps, f_star: data.description.best_loss })?;
        let network = shape.network(device, config.batch, data.longest)?;
        let parameters = network.layout().parameters();
        // Before anything is written: a run that began cannot be asked for with another name.
        stepper::frozen_views(network.layout(), &config.frozen)?;

        let folder = &opened.folder;
        fs::create_dir_all(folder).map_err(TrainError::io("make the folder", folder))?;
        let mut record = Record::open(folder)?;
        let state = State::new(
            config.model.name(),
            shape.entries(),
            method,
            data.description.clone(),
            config.identity(),
        );
        let found = find_checkpoint(folder, &state, network.as_ref(), &record, watch)?;
        let kept = found.as_ref().map_or(&state, |found| &found.state);
        let (done, seconds) = (kept.step, kept.seconds);
        record.cut(kept.trace_bytes, kept.eval_bytes)?;
        if found.is_none() {
            let meta = Meta {
                version: env!("CARGO_PKG_VERSION"),
                device: device.name(),
                gpu: open_device.model(),
                precision: open_device.choice.precision(),
                threads: open_device.threads,
                model: config.model.name(),
                shape: shape.entries(),
                parameters,
                steps: data.steps,
                data: &data.description,
                started_unix_seconds: std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |since| since.as_secs()),
            };
            write_whole(folder, CONFIG, config.to_toml().as_bytes())?;
            write_whole(folder, META, &pretty(&meta))?;
        }
        record.add(options.sinks, seconds)?;
        let (description, steps) = (&data.description, data.steps);
        watch.begins(&Beginning { data: description, parameters, steps, done, device: open_device.words() });
        let mut trainer = Trainer::new(device, config, data, network, state, folder, record)?;
        if let Some(found) = found {
            trainer.restore(found)?;
        }
        trainer.drops_weights = options.drops_weights;
        trainer.run(watch)
    }
}

/// The newest checkpoint of the run that can be used, if it has any; those after it are removed.
fn find_checkpoint<D: Device>(
    folder: &Path,
    state: &State,
    network: &dyn Network<D>,
    record: &Record,
    watch: &mut dyn Watch,
) -> Result<Option<Checkpoint>, TrainError> {
    let folder = folder.join(CHECKPOINT);
    let expected = Expected {
        model: &state.model,
        data: Some(&state.data),
        config: Some(&state.config),
        shape: Some(&state.shape),
        lengths: Some(record.found()?),
    };
    let (found, problems) = checkpoint::newest(&folder, &expected, |_, _| Ok(network.layout().clone()))?;
    for problem in problems {
        watch.note(&format!("{problem}; the one before it is used"));
    }
    if let Some(found) = &found {
        checkpoint::remove_after(&folder, found.state.step)?;
    }
    Ok(found)
}

struct Trainer<'a, D: Device> {
    device: &'a D,
    config: &'a Config,
    data: Data,
    network: Box<dyn Network<D>>,
    probe: Option<Probe<D>>,
    stepper: Stepper<'a, D>,
    /// The losses of evaluations.
    scalars: D::Scalars,
    filled: Filled,
    /// The batch of the next step, which is made while the device works.
    ahead: Ahead,
    /// What a checkpoint holds beside the arrays; its `session` is that of the last one.
    state: State,
    refused_in_row: u64,
    /// The warnings that were given.
    warned: Vec<String>,
    best_validation: Option<Vec<f32>>,
    folder: &'a Path,
    record: Record,
    started: Instant,
    /// The time of the run's earlier parts.
    seconds_before: f64,
    drops_weights: bool,
}

impl<'a, D: Device> Trainer<'a, D> {
    fn new(
        device: &'a D,
        config: &'a Config,
        data: Data,
        network: Box<dyn Network<D>>,
        state: State,
        folder: &'a Path,
        record: Record,
    ) -> Result<Self, TrainError> {
        let (layout, method) = (network.layout(), state.session.method.clone());
        let probe = config.smoothness_every.map(|every| Probe::new(device, layout.len(), every));
        let x0 = layout.initial(config.seed);
        let stepper = Stepper::new(device, layout, &x0, method, config, data.steps)?;
        Ok(Self {
            device,
            config,
            data,
            network,
            probe: probe.transpose()?,
            stepper,
            scalars: device.scalars(SCALARS)?,
            filled: Filled::default(),
            ahead: Ahead::default(),
            state,
            refused_in_row: 0,
            warned: Vec::new(),
            best_validation: None,
            folder,
            record,
            started: Instant::now(),
            seconds_before: 0.0,
            drops_weights: false,
        })
    }

    /// Goes on from a checkpoint.
    fn restore(&mut self, found: Checkpoint) -> Result<(), TrainError> {
        let Checkpoint { state, weights, mut extra, .. } = found;
        let layout = self.network.layout();
        for (name, values) in extra.iter_mut().filter(|(name, _)| *name != CARRY) {
            *values = layout.unpacked(values).ok_or_else(|| {
                let (found, wanted) = (values.len(), layout.parameters());
                TrainError::Request(format!(
                    "the checkpoint's {name} has {found} numbers instead of {wanted}"
                ))
            })?;
        }
        let trained = match self.stepper.has_evaluation_point() {
            false => &weights,
            true => extra
                .get(TRAINED)
                .ok_or_else(|| TrainError::Request(format!("the checkpoint has no array {TRAINED}")))?,
        };
        self.stepper.restore(self.device, trained, state.session.clone(), &extra)?;
        self.network.set_carry(self.device, &extra.remove(CARRY).unwrap_or_default());
        self.best_validation = extra.remove(BEST_VALIDATION);
        self.data.training.seek(state.position.clone());
        self.seconds_before = state.seconds;
        self.state = state;
        Ok(())
    }

    fn run(mut self, watch: &mut dyn Watch) -> Result<Ended, TrainError> {
        let begun_at = self.state.step;
        let mut last_good = begun_at.saturating_sub(1);
        // A run of fewer steps is refused when all of them are.
        let most_refusals = u64::from(self.config.max_refusals).min(self.data.steps);
        while self.state.step < self.data.steps {
            let step = self.state.step;
            let evaluate = match self.config.evaluate_every {
                Interval::Steps(every) => step.is_multiple_of(every),
                Interval::Epoch => self.batches(step).any(|n| self.data.training.starts_epoch(n)),
            };
            if evaluate && self.evaluate_once(watch)? {
                return self.given_up(last_good);
            }
            let first = step == 0 && !self.drops_weights;
            if first || step.is_multiple_of(self.config.checkpoint_every) && step > begun_at {
                self.checkpoint()?;
            }
            if watch.stop() {
                return self.interrupted();
            }
            match self.step(watch)? {
                Ok(_) => last_good = step,
                Err(reason) if self.refused_in_row >= most_refusals => {
                    self.forget_after(last_good)?;
                    return self.end(Outcome::Refused { step, reason });
                }
                Err(_) => {}
            }
        }
        if self.evaluate_once(watch)? {
            return self.given_up(last_good);
        }
        if !self.drops_weights {
            self.checkpoint()?;
        }
        self.end(Outcome::Finished)
    }

    /// One step; `Err` inside is a refusal, which leaves parameters and method as they were.
    fn step(&mut self, watch: &mut dyn Watch) -> Result<Result<Report, String>, TrainError> {
        let device = self.device;
        let step = self.state.step;
        let (mut parts, tokens) = self.gradient()?;
        let mut probe = self.probe.as_mut().filter(|probe| probe.is_due(step));
        if let Some(probe) = &mut probe {
            probe.before_update(device, self.stepper.x(), self.stepper.gradient());
        }
        let batches = self.config.accumulate as f64;
        let answer = self.stepper.advance(|values| {
            add_part(&mut parts, values, batches);
            loss_of(&parts).objective
        })?;
        let loss = loss_of(&parts);
        let smoothness = match probe {
            Some(probe) if answer.is_ok() => {
                let (feed, noise) = (self.filled.feed(), Noise { seed: self.config.seed, step: step as u32 });
                let (x, frozen) = (self.stepper.x(), self.stepper.frozen());
                probe.after_update(device, self.network.as_mut(), feed, noise, x, frozen)?
            }
            _ => None,
        };
        if let Ok(Report { kind: StepKind::BelowBound, .. }) = answer {
            let rule = &self.config.rule;
            let bound = if rule.spec().info().has("lower_bound") { "lower_bound" } else { "f_star" };
            let (objective, rule) = (loss.objective, rule.name());
            let words = format!("step {step}: the loss {objective} is below the {bound} of {rule}");
            self.warn_once("below the bound", words, watch);
        }
        if answer.is_ok() {
            self.refused_in_row = 0;
        } else {
            self.refused_in_row += 1;
            self.state.refusals += 1;
            // What led here may be what is not finite.
            self.network.set_carry(device, &[]);
        }
        self.state.step += 1;

        let (size, seconds) = (answer.as_ref().ok().map(|report| report.rate), self.seconds());
        let row = TraceRow {
            step,
            loss: finite(loss.plain),
            objective: finite(loss.objective),
            grad_norm: finite(self.stepper.grad_norm()),
            step_size: size,
            smoothness,
            estimate: self.stepper.method().estimate().filter(|_| size.is_some()).and_then(finite),
            seconds: Some(seconds),
        };
        self.record.step(&row)?;
        watch.stepped(&Stepped { step, loss: loss.plain, size, tokens });
        Ok(answer)
    }

    /// The gradient at the current point; the parts of the loss but those of the last batch, which are still on the device; and how
    /// many ids were read. Of several batches loss and gradient are the means.
    fn gradient(&mut self) -> Result<([f64; SCALARS], usize), TrainError> {
        let (device, step, last) = (self.device, self.state.step, self.config.accumulate - 1);
        let (mut parts, mut tokens) = ([0.0; SCALARS], 0);
        for (part, n) in self.batches(step).enumerate() {
            if !self.ahead.take(n, &mut self.data.training, &mut self.filled)? {
                return Err(TrainError::Request(format!("there is no batch {n} for step {step}")));
            }
            if self.filled.starts_afresh {
                self.network.set_carry(device, &[]);
            }
            if let Some(probe) = self.probe.as_mut().filter(|probe| probe.is_due(step)) {
                probe.before_gradient(device, self.network.as_ref())?;
            }
            let (feed, noise) = (self.filled.feed(), Noise { seed: self.config.seed, step: n as u32 });
            device.together(|| {
                let (x, gradient, sums) = self.stepper.batch_buffers();
                self.network.gradient(device, feed, Some(noise), x, gradient, sums);
                self.stepper.take_gradient(part);
            });
            if n + 1 < self.batches(self.data.steps).start {
                self.ahead.fill(n + 1, &mut self.data.training);
            }
            tokens += self.filled.tokens();
            if part < last {
                let mut values = [0.0; SCALARS];
                device.read(self.stepper.batch_buffers().2, &mut values)?;
                add_part(&mut parts, &values, self.config.accumulate as f64);
            }
        }
        Ok((parts, tokens))
    }

    fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }

    /// Warns the user, once.
    fn warn_once(&mut self, what: &str, words: String, watch: &mut dyn Watch) {
        if !self.warned.iter().any(|warned| warned == what) {
            self.warned.push(what.into());
            watch.note(&words);
        }
    }

    /// Evaluates the current weights, unless that was done before, and says whether the run is to be given up.
    fn evaluate_once(&mut self, watch: &mut dyn Watch) -> Result<bool, TrainError> {
        let step = self.state.step;
        if let Some(last) = self.state.last_evaluation.filter(|last| last.step == step) {
            return Ok(self.is_hopeless(&last));
        }
        let (network, x) = (self.network.as_mut(), self.stepper.evaluated());
        let (filled, scalars) = (&mut self.filled, &mut self.scalars);
        let validation = evaluate(self.device, network, x, &mut self.data.validation, filled, scalars)?;
        let test = evaluate(self.device, network, x, &mut self.data.test, filled, scalars)?;
        self.record.evaluation(&EvalRow { step, split: Split::Validation, loss: validation })?;
        self.record.evaluation(&EvalRow { step, split: Split::Test, loss: test })?;
        let evaluation = Evaluation { step, validation, test };
        let best = self.state.best_evaluation.and_then(|best| best.validation);
        if validation.is_some_and(|new| best.is_none_or(|best| new < best)) {
            self.state.best_evaluation = Some(evaluation);
            if self.config.keep_best == KeepBest::Validation {
                self.best_validation = Some(self.weights()?);
            }
        }
        self.state.last_evaluation = Some(evaluation);
        watch.evaluated(&evaluation);
        if let Some(warning) = self.stepper.method().warning() {
            let words = format!("step {step}: {warning}");
            self.warn_once("warning", words, watch);
        }
        Ok(self.is_hopeless(&evaluation))
    }

    /// Whether an evaluation is late enough to be judged, and no better than the first.
    fn is_hopeless(&self, evaluation: &Evaluation) -> bool {
        let (after, first) = (self.config.give_up_after, self.record.first_evaluation());
        let Some((after, first)) = after.zip(first) else { return false };
        let late = evaluation.step > first.step && evaluation.step as f64 >= after * self.data.steps as f64;
        // What is finite is better than what is not.
        late && evaluation.validation.is_none_or(|now| first.loss.is_some_and(|first| now >= first))
    }

    /// The weights that the run would leave if it ended here.
    fn weights(&mut self) -> Result<Vec<f32>, TrainError> {
        let mut weights = vec![0.0; self.network.layout().len()];
        self.device.get_parameters(self.stepper.evaluated(), &mut weights)?;
        Ok(weights)
    }

    /// The numbers of a step's batches.
    fn batches(&self, step: u64) -> std::ops::Range<u64> {
        let every = self.config.accumulate as u64;
        step * every..(step + 1) * every
    }

    /// Writes a checkpoint, unless the last step was refused: the weights may be what is wrong.
    fn checkpoint(&mut self) -> Result<bool, TrainError> {
        if self.refused_in_row > 0 {
            return Ok(false);
        }
        (self.state.trace_bytes, self.state.eval_bytes) = self.record.sync()?;
        self.state.seconds = self.seconds();
        self.state.position = self.ahead.position(&self.data.training);
        let weights = self.weights()?;
        let mut extra = Extra::new();
        self.state.session = self.stepper.save(self.device, weights.len(), &mut extra)?;
        if self.stepper.has_evaluation_point() {
            let mut trained = vec![0.0; weights.len()];
            self.device.get_parameters(self.stepper.x(), &mut trained)?;
            extra.insert(TRAINED.into(), trained);
        }
        if let Some(best) = &self.best_validation {
            extra.insert(BEST_VALIDATION.into(), best.clone());
        }
        for values in extra.values_mut() {
            *values = self.network.layout().packed(values);
        }
        let carry = self.network.carry(self.device)?;
        if !carry.is_empty() {
            extra.insert(CARRY.into(), carry);
        }
        let (state, vocabulary) = (self.state.clone(), self.data.vocabulary.clone());
        let whole = Checkpoint { state, weights, extra, vocabulary };
        checkpoint::write(&self.folder.join(CHECKPOINT), whole, self.network.layout())?;
        Ok(true)
    }

    /// Removes checkpoints whose own loss was refused, but never the last one.
    fn forget_after(&self, step: u64) -> Result<(), TrainError> {
        let folder = self.folder.join(CHECKPOINT);
        let kept = checkpoint::list(&folder)?.iter().any(|path| checkpoint::step_of(path) <= Some(step));
        if kept { checkpoint::remove_after(&folder, step) } else { Ok(()) }
    }

    fn interrupted(mut self) -> Result<Ended, TrainError> {
        self.checkpoint()?;
        let kept = checkpoint::list(&self.folder.join(CHECKPOINT))?;
        let step = kept.last().and_then(|path| checkpoint::step_of(path)).unwrap_or(0);
        Ok(self.ended(Outcome::Interrupted { step }, None))
    }

    fn given_up(mut self, last_good: u64) -> Result<Ended, TrainError> {
        if !self.drops_weights && !self.checkpoint()? {
            self.forget_after(last_good)?;
        }
        let step = self.state.step;
        self.end(Outcome::GivenUp { step })
    }

    fn end(mut self, outcome: Outcome) -> Result<Ended, TrainError> {
        self.record.sync()?;
        self.state.seconds = self.seconds();
        let summary = Summary::of(self.config, &self.state, &self.folder.join(TRACE), &outcome)?;
        write_whole(self.folder, SUMMARY, &pretty(&summary))?;
        Ok(self.ended(outcome, Some(summary)))
    }

    fn ended(self, outcome: Outcome, summary: Option<Summary>) -> Ended {
        let best_loss = self.data.description.best_loss;
        Ended { outcome, summary, refusals: self.state.refusals, best_loss }
    }
}

/// Adds the parts of one batch's loss to the means over `batches` of them.
fn add_part(means: &mut [f64; SCALARS], values: &[f64], batches: f64) {
    means.iter_mut().zip(values).for_each(|(mean, value)| *mean += value / batches);
}

/// A number that JSON can hold.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
