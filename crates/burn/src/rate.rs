//! A scalar rule as a learning-rate scheduler.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use untuned::{MadeFor, MethodSpec, Rule, RunInfo, Session, SessionState, StepRule};

use crate::module::{Taken, check_alike};
use crate::reads::Reads;
use crate::record::Saved;
use crate::space::{Parameters, Slot, Vector};
use crate::stepper::one;
use crate::{Report, StepError};

/// A scalar rule as Burn's [`LrScheduler`], for plain `SgdConfig::new().init()` in Burn's own `Learner`.
///
/// A scheduler sees neither the loss nor the gradient. Burn trains a batch, asks the scheduler and then steps, in this order. So the
/// model has a clone of the `Rate`, which is the same one, and shows it both with [`Rate::observe`]:
/// [the code](crate#in-burns-own-training).
///
/// The steps are those of [`Stepper`](crate::Stepper) with the same rule, to the last bit, as long as SGD has no momentum, weight decay
/// or clipping of its own. With several batches or devices a step, Burn adds gradients up: the rule then sees the means, and the rate is
/// divided by the number of batches. Replicas that each make their own step (`ddp`) each need a `Rate` of their own and the mean of their
/// losses ([`agreed`](crate::agreed) checks that).
///
/// A refused step has the rate 0, and [`Rate::error`] says why. Where a number is not finite, the gradients are taken away: the module
/// stays as it was.
pub struct Rate<R = Rule> {
    inner: Arc<Mutex<Inner<R>>>,
}

struct Inner<R> {
    made_for: MadeFor<R>,
    /// After the last step that was made.
    state: SessionState<R>,
    /// From the first batch on. Its steps change no vector.
    session: Option<Session<R, Parameters>>,
    seen: Seen,
    /// What the batches since the last step lead to.
    next: Option<Result<(SessionState<R>, Report), StepError>>,
    last: Option<Report>,
    error: Option<StepError>,
}

/// The batches since the last step.
#[derive(Default)]
struct Seen {
    batches: usize,
    /// The sum over the batches.
    loss: f64,
    /// The sums over the batches.
    gradients: Vec<Option<Tensor<1>>>,
    /// Whether no batch can lead to a step any more.
    broken: bool,
}

impl<R> Clone for Rate<R> {
    fn clone(&self) -> Rate<R> {
        Rate { inner: self.inner.clone() }
    }
}

impl<R: StepRule> fmt::Debug for Rate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        let name = StepRule::name(&inner.made_for.method);
        f.debug_struct("Rate").field("rule", &name).field("last", &inner.last).finish()
    }
}

impl Rate {
    /// A scalar rule from its text, such as `inexact-polyak` or `dog`, for a run of `steps` steps.
    ///
    /// # Errors
    /// When the text is wrong or that of an optimizer, or the rule jumps back to earlier points.
    pub fn new(spec: &str, steps: u64) -> Result<Rate, StepError> {
        let spec: MethodSpec = spec.parse()?;
        let rate = Rate::from_rule(spec.build_rule(&RunInfo::new(steps))?)?;
        rate.lock().made_for.text = Some((spec.to_string(), steps));
        Ok(rate)
    }
}

impl<R> Rate<R> {
    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: StepRule + Clone> Rate<R> {
    /// A rule of any type, before its first step.
    ///
    /// # Errors
    /// When the rule jumps back to earlier points.
    pub fn from_rule(rule: R) -> Result<Rate<R>, StepError> {
        let needs = StepRule::needs(&rule);
        if needs.best || needs.origin {
            return Err(StepError::Jumps { rule: StepRule::name(&rule).to_string() });
        }
        let inner = Inner {
            state: SessionState::new(rule.clone()),
            made_for: MadeFor::new(rule),
            session: None,
            seen: Seen::default(),
            next: None,
            last: None,
            error: None,
        };
        Ok(Rate { inner: Arc::new(Mutex::new(inner)) })
    }

    /// Shows a batch to the rule: the loss that was differentiated and the gradients of the module, before the step that they lead to.
    pub fn observe<T: Module, const D: usize>(
        &self,
        module: &T,
        loss: &Tensor<D>,
        gradients: &mut GradientsParams,
    ) {
        let mut inner = self.lock();
        if !inner.seen.broken {
            inner.seen.batches += 1;
            let next = inner.observe(module, loss, gradients);
            inner.seen.broken = match &next {
                Ok(_) => false,
                // With more batches the rule may have an answer, unless a number is not finite.
                Err(StepError::Refused(refusal)) => refusal.is_not_finite(),
                Err(_) => true,
            };
            inner.next = Some(next);
        }
        if inner.seen.broken {
            *gradients = GradientsParams::new();
        }
    }

    /// The parameters of the start, for a rule that needs the distance from them and whose record is loaded: a scheduler's record has
    /// only numbers. Call this before or after loading it.
    ///
    /// # Errors
    /// When they cannot be trained.
    pub fn start_from<T: Module>(&self, module: &T) -> Result<(), StepError> {
        let mut inner = self.lock();
        let mut taken = Taken::look(module, &GradientsParams::new(), &[]);
        taken.check()?;
        let mut session = inner.new_session(taken.slots)?;
        let mut x = taken.x.into_iter().collect();
        session.space().hold(&mut x);
        session.start(&x)?;
        inner.session = Some(session);
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
        let inner = self.lock();
        let vectors = inner.session.iter().flat_map(|session| session.vectors());
        vectors.map(|(_, vector)| vector.bytes()).sum()
    }
}

impl<R: StepRule + Clone> Inner<R> {
    fn new_session(&self, slots: Vec<Arc<Slot>>) -> Result<Session<R, Parameters>, StepError> {
        let space = Parameters::new(slots, true, true, Reads::default()).still();
        Session::reserving(self.made_for.method.clone(), space, 1)
    }

    /// What the batches so far, with this one, lead to.
    fn observe<T: Module, const D: usize>(
        &mut self,
        module: &T,
        loss: &Tensor<D>,
        gradients: &GradientsParams,
    ) -> Result<(SessionState<R>, Report), StepError> {
        let loss = one(loss.clone())?;
        let known = self.session.as_ref().map_or(&[][..], |session| &session.space().slots);
        let mut taken = Taken::look(module, gradients, known);
        taken.check_gradients()?;
        if self.session.is_none() {
            self.session = Some(self.new_session(taken.slots.clone())?);
        }
        let Inner { session: Some(session), state, seen, .. } = self else { unreachable!("made above") };
        session.rewind(state.clone());
        let keeps_start = !session.vector_names().is_empty();
        if keeps_start && session.steps() > 0 && session.vectors().next().is_none() {
            return Err(StepError::NoStart { rule: StepRule::name(session.method()).to_string() });
        }
        let Parameters { slots, .. } = session.space();
        // A replica's module is on a device of its own, and the module of the start may have had other ids.
        check_alike(slots, &taken.slots)?;
        seen.gradients.resize(slots.len(), None);
        for ((sum, gradient), slot) in seen.gradients.iter_mut().zip(taken.gradients).zip(slots) {
            let gradient = gradient.map(|gradient| gradient.to_device(&slot.device));
            *sum = match (sum.take(), gradient) {
                (Some(sum), Some(gradient)) => Some(sum + gradient),
                (sum, gradient) => sum.or(gradient),
            };
        }
        let gradient = session.space().mean_gradient(seen.gradients.clone(), seen.batches);
        let mut x = Vector::default();
        if keeps_start {
            x = taken.x.into_iter().zip(slots).map(|(x, slot)| x.to_device(&slot.device)).collect();
            session.space().hold(&mut x);
        }
        session.sums().set(0, vec![loss]);
        let made = session.advance_reading(&mut x, &gradient, |sums| {
            seen.loss += sums[0];
            Some(seen.loss / seen.batches as f64)
        })?;
        Ok((session.save(), Report::new(made, false)))
    }

    /// The rate of the next step, for the sum of the gradients.
    fn rate(&mut self) -> Result<f64, StepError> {
        let seen = std::mem::take(&mut self.seen);
        let next = self.next.take();
        let next =
            next.expect("no batch was shown since the last step: call `Rate::observe` in `TrainStep::step`");
        if let (Err(_), Some(session)) = (&next, &mut self.session) {
            session.rewind(self.state.clone());
            if session.steps() == 0 {
                // The next step may be from another point, which then is the start.
                self.session = None;
            }
        }
        let (state, report) = next?;
        self.state = state;
        self.last = Some(report);
        Ok(report.rate / seen.batches as f64)
    }
}

impl<R> LrScheduler for Rate<R>
where
    R: StepRule + Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static,
{
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

    /// The rule's state. A record of Burn's schedulers has numbers and no text: eight bytes of text are one number.
    fn to_record(&self) -> LrSchedulerRecord {
        let inner = self.lock();
        let saved = Saved::new(inner.made_for.clone(), inner.state.clone());
        let text = serde_json::to_vec(&saved).expect("a rule's numbers are written as text");
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
        let Some(text) = read_text(&record) else { panic!("the record is not the state of a `Rate`") };
        let saved = Saved::read(&text, &inner.made_for).unwrap_or_else(|error| panic!("{error}"));
        (inner.state, inner.seen, inner.next) = (saved.state, Seen::default(), None);
        (inner.last, inner.error) = (None, None);
    }
}

fn read_text(record: &LrSchedulerRecord) -> Option<Vec<u8>> {
    let len: usize = record.scalar("bytes")?;
    let mut text = Vec::with_capacity(len.next_multiple_of(8).min(1 << 16));
    for i in 0..len.div_ceil(8) {
        text.extend(record.scalar::<u64>(&i.to_string())?.to_le_bytes());
    }
    text.truncate(len);
    Some(text)
}
