//! A scalar rule as a learning-rate scheduler.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use untuned::optimizers::{Around, At, Keep, Method, Optimizer as _, Scalar};
use untuned::{Observation, RuleSpec, Setting, StepRule as _};

use crate::module::Taken;
use crate::reads::Reads;
use crate::record::MadeFor;
use crate::space::{Parameters, Slot, Sums, Vector};
use crate::stepper::{name, norm_of_start, one, same};
use crate::{Report, StepError};

/// A scalar rule as Burn's [`LrScheduler`], for plain `SgdConfig::new().init()` in Burn's own `Learner`.
///
/// A scheduler sees neither the loss nor the gradient. Burn trains a batch, asks the scheduler and then steps, in this order; so the model
/// has a copy of the `Rate`, which is the same one, and shows it both:
///
/// ```rs
/// #[derive(Module, Debug)]
/// struct Model { ..., #[module(skip)] rate: Rate }
///
/// impl TrainStep for Model {
///     fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
///         let item = self.forward(batch);
///         let mut output = TrainOutput::new(self, item.loss.backward(), item);
///         self.rate.observe(self, &output.item.loss, &mut output.grads);
///         output
///     }
/// }
///
/// let rate = Rate::new("inexact-polyak", steps)?;
/// let learner = Learner::new(Model::new(rate.clone(), &device), SgdConfig::new().init(), rate);
/// ```
///
/// The steps are those of [`Stepper`](crate::Stepper) with the same rule, to the last bit, as long as SGD has no momentum, weight decay or
/// clipping of its own. With several batches or devices a step, Burn adds gradients up: the rule then sees the means, and the rate is divided by
/// the number of batches. Replicas that step for themselves (`ddp`) each need a `Rate` of their own and the mean of their losses
/// ([`agreed`](crate::agreed) checks that).
///
/// A step that the rule refuses has the rate 0 and is kept in [`Rate::error`]; where the loss or the gradient is not finite the gradients
/// are taken away, so that the module stays as it was.
#[derive(Clone)]
pub struct Rate {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    method: Method,
    made_for: MadeFor,
    step: u64,
    x0_norm: f64,
    /// The parameters, from the first batch on, and the same for steps that only say their size.
    parameters: Option<(Parameters, Parameters)>,
    /// The parameters of the beginning, where the rule needs them.
    kept: Vec<Vector>,
    seen: Seen,
    last: Option<Report>,
    error: Option<StepError>,
}

/// What was seen since the last step.
#[derive(Default)]
struct Seen {
    batches: usize,
    /// The sum over the batches.
    loss: f64,
    /// The sum over the batches.
    gradient: Option<Vec<Tensor<1>>>,
    /// Of the mean over the batches.
    grad_norm: f64,
    /// What the rule measures, with the mean of the gradients.
    sums: Vec<f64>,
    refused: Option<StepError>,
}

/// What a record holds.
#[derive(Serialize, Deserialize)]
struct Numbers {
    made_for: MadeFor,
    method: Method,
    step: u64,
    x0_norm: f64,
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Rate").field("rule", &name(&inner.method)).field("step", &inner.step).finish()
    }
}

impl Rate {
    /// A scalar rule from its text, such as `inexact-polyak` or `dog`, for a run of `steps` steps.
    ///
    /// # Errors
    /// When the text is wrong or of an optimizer, or the rule jumps back to earlier points.
    pub fn new(spec: &str, steps: u64) -> Result<Rate, StepError> {
        let spec: RuleSpec = spec.parse()?;
        let rule = spec.build(&Setting::new(steps))?;
        let needs = rule.needs();
        if needs.best || needs.origin {
            return Err(StepError::Jumps { rule: spec.to_string() });
        }
        let mut inner = Inner::new(Method::Rule(Scalar::new(rule)));
        inner.made_for = inner.made_for.text(&spec, steps);
        Ok(Rate { inner: Arc::new(Mutex::new(inner)) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a batch to the rule: the loss that was differentiated and the gradients of the module, before the step that they lead to.
    pub fn observe<M: Module, const D: usize>(
        &self,
        module: &M,
        loss: &Tensor<D>,
        gradients: &mut GradientsParams,
    ) {
        let mut inner = self.lock();
        if let Err(error) = inner.observe(module, loss, gradients) {
            *gradients = GradientsParams::new();
            inner.seen.refused.get_or_insert(error);
        }
        inner.seen.batches += 1;
    }

    /// The parameters of the beginning, for a rule that needs the distance from them and whose record is loaded: a scheduler's record holds
    /// only numbers. May be said before or after loading it.
    ///
    /// # Errors
    /// When they cannot be trained.
    pub fn start_from<M: Module>(&self, module: &M) -> Result<(), StepError> {
        let mut inner = self.lock();
        let mut taken = Taken::look(module, &GradientsParams::new(), &[]);
        taken.check()?;
        inner.start(&taken);
        Ok(())
    }

    /// The last step that was made.
    pub fn last(&self) -> Option<Report> {
        self.lock().last
    }

    /// Why the last step was refused, where it was.
    pub fn error(&self) -> Option<StepError> {
        self.lock().error.clone()
    }

    /// The bytes that are kept: a copy of the parameters for a rule that needs the distance from the start, else nothing.
    pub fn memory(&self) -> usize {
        self.lock().kept.iter().map(Vector::bytes).sum()
    }
}

impl Inner {
    /// Before the first step.
    fn new(method: Method) -> Inner {
        Inner {
            made_for: MadeFor::new(&method),
            method,
            step: 0,
            x0_norm: 0.0,
            parameters: None,
            kept: Vec::new(),
            seen: Seen::default(),
            last: None,
            error: None,
        }
    }

    /// Keeps what the rule needs of the beginning.
    fn start(&mut self, taken: &Taken) {
        let parameters = Parameters::new(taken.slots.clone(), true, true);
        let parts = taken.x.iter().enumerate().map(|(at, x)| parameters.part(at, x.clone()));
        let keeps = self.method.keeps();
        if !keeps.is_empty() {
            let Ok(kept) = Keep::all(&parameters, &keeps, &Vector(parts.collect()));
            self.kept = kept;
        }
        let still = parameters.clone().still();
        self.parameters = Some((parameters, still));
    }

    fn observe<M: Module, const D: usize>(
        &mut self,
        module: &M,
        loss: &Tensor<D>,
        gradients: &mut GradientsParams,
    ) -> Result<(), StepError> {
        let loss = one(loss.clone())?;
        let known = self.parameters.as_ref().map_or(&[][..], |(parameters, _)| &parameters.slots);
        let mut taken = Taken::look(module, gradients, known);
        taken.check()?;
        if taken.gradients.iter().all(Option::is_none) {
            return Err(StepError::NoGradient { parameters: taken.slots.len() });
        }
        match &self.parameters {
            None if self.step > 0 && !self.method.keeps().is_empty() => {
                return Err(StepError::NoStart { rule: name(&self.method) });
            }
            None => self.start(&taken),
            Some((parameters, _)) => {
                // A replica's module is on a device of its own, and the module of the beginning may have had other ids.
                let alike = |(at, slot): (usize, &Arc<Slot>)| match parameters.slots.get(at) {
                    Some(known) if !Arc::ptr_eq(slot, known) => {
                        let (id, device) = (known.id, known.device.clone());
                        Arc::new(Slot { id, device, ..Slot::clone(slot) })
                    }
                    _ => slot.clone(),
                };
                let slots: Vec<_> = taken.slots.iter().enumerate().map(alike).collect();
                same(&parameters.slots, &slots)?;
            }
        }
        let Inner { method, parameters: Some((parameters, _)), kept, seen, .. } = self else {
            unreachable!("set above")
        };
        let there = |at: usize, tensor: Tensor<1>| tensor.to_device(&parameters.slots[at].device);
        let gradient = taken.gradients.drain(..).enumerate().map(|(at, gradient)| match gradient {
            Some(gradient) => there(at, gradient),
            None => parameters.tensor(at, parameters.zero(at)),
        });
        let gradient: Vec<Tensor<1>> = match seen.gradient.take() {
            Some(sum) => sum.into_iter().zip(gradient).map(|(sum, gradient)| sum + gradient).collect(),
            None => gradient.collect(),
        };
        let part = |(at, tensor): (usize, &Tensor<1>)| parameters.part(at, tensor.clone());
        let mut vector = Vector(gradient.iter().enumerate().map(part).collect());
        if seen.batches > 0 {
            parameters.scale(((seen.batches + 1) as f64).recip(), &mut vector);
        }
        // As in a `Stepper`: the loss, ‖x_0‖², ‖g‖², and what the method measures.
        let mut sums = Sums::new(3 + method.measures());
        sums.add(0, loss);
        let mut x = Vector::default();
        if self.step == 0 || !kept.is_empty() {
            let tensors = taken.x.drain(..).enumerate().map(|(at, x)| parameters.part(at, there(at, x)));
            x.0.extend(tensors);
        }
        if self.step == 0 {
            parameters.square_norm(&x, &mut sums, 1);
        }
        let around = Around::default();
        let at = At { space: &*parameters, around: &around, x: &mut x, gradient: &vector, kept };
        if !method.measure(&at, &mut sums, 2) {
            parameters.square_norm(&vector, &mut sums, 2);
        }
        let sums = sums.read(&Reads::default())?;
        if self.step == 0 {
            self.x0_norm = norm_of_start(sums[1])?;
        }
        let (loss, grad_norm) = (sums[0], sums[2].sqrt());
        Observation::new(self.step, loss, grad_norm).check()?;
        seen.loss += loss;
        (seen.grad_norm, seen.sums) = (grad_norm, sums[3..].to_vec());
        seen.gradient = Some(gradient);
        Ok(())
    }

    /// The rate of the next step, for the sum of the gradients.
    fn rate(&mut self) -> Result<f64, StepError> {
        let seen = std::mem::take(&mut self.seen);
        assert!(
            seen.batches > 0,
            "no batch was shown since the last step: call `Rate::observe` in `TrainStep::step`"
        );
        if let Some(error) = seen.refused {
            return Err(error);
        }
        let Inner { method, parameters: Some((_, parameters)), kept, step, .. } = self else {
            unreachable!("set with the first batch")
        };
        let (count, grad_norm) = (seen.batches as f64, seen.grad_norm);
        let loss = seen.loss / count;
        let (x0_norm, dimension) = (self.x0_norm, parameters.dimension());
        let observed = Observation { x0_norm, dimension, ..Observation::new(*step, loss, grad_norm) };
        let (around, mut nothing) = (Around::default(), Vector::default());
        let at =
            At { space: &*parameters, around: &around, x: &mut nothing, gradient: &Vector::default(), kept };
        let made = method.step(&observed, &seen.sums, at)?;
        let report = Report { step: *step, loss, grad_norm, rate: made.size, kind: made.kind, best: false };
        self.last = Some(report);
        *step += 1;
        Ok(made.size / count)
    }
}

impl LrScheduler for Rate {
    /// The rate of the step from the batches that were shown since the last one, or 0 where it is refused.
    ///
    /// # Panics
    /// When no batch was shown: training with no rate at all would go unnoticed.
    fn step(&mut self) -> f64 {
        let mut inner = self.lock();
        let result = inner.rate();
        inner.error = result.as_ref().err().cloned();
        result.unwrap_or(0.0)
    }

    /// The rule's state. A record of Burn's schedulers holds numbers and no text: its bytes stand eight to a number.
    fn to_record(&self) -> LrSchedulerRecord {
        let inner = self.lock();
        let (made_for, method) = (inner.made_for.clone(), inner.method.clone());
        let numbers = Numbers { made_for, method, step: inner.step, x0_norm: inner.x0_norm };
        let text = serde_json::to_vec(&numbers).expect("a rule's numbers are written as text");
        let mut record = LrSchedulerRecord::new().with_scalar("bytes", text.len());
        for (i, word) in text.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            record = record.with_scalar(&i.to_string(), u64::from_le_bytes(bytes));
        }
        record
    }

    /// # Panics
    /// When the record is not that of the same rule with the same parameters, for a run of the same length.
    fn load_record(&mut self, record: LrSchedulerRecord) {
        let mut inner = self.lock();
        let Some(Numbers { made_for, method, step, x0_norm }) = read(&record) else {
            panic!("the record is not the state of a `Rate`")
        };
        if let Some(difference) = made_for.difference(&inner.made_for) {
            panic!("the record does not fit: {difference}")
        }
        (inner.method, inner.step, inner.x0_norm) = (method, step, x0_norm);
        (inner.seen, inner.last, inner.error) = (Seen::default(), None, None);
    }
}

fn read(record: &LrSchedulerRecord) -> Option<Numbers> {
    let len: usize = record.scalar("bytes")?;
    let mut text = Vec::with_capacity(len.next_multiple_of(8).min(1 << 16));
    for i in 0..len.div_ceil(8) {
        text.extend(record.scalar::<u64>(&i.to_string())?.to_le_bytes());
    }
    serde_json::from_slice(text.get(..len)?).ok()
}
