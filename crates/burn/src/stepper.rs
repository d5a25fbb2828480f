//! Makes the steps of a module.

use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use untuned::{Average, MadeFor, Method, MethodSpec, Optimizer, RunInfo, Session, StepKind, StepOptions};

use crate::module::{Taken, check_same};
use crate::reads::Reads;
use crate::space::{Parameters, Slot, Vector};
use crate::{Accumulated, StepError};

/// Makes the steps of a module with any method: one of the library, or an [`Optimizer`] or [`StepRule`](untuned::StepRule) of your own.
///
/// The parameters that require a gradient are trained, each one once: a parameter that is used in several places stays one. A parameter
/// without a gradient in a batch has the gradient 0. Loss, norm and all that the method measures are read from the device together.
///
/// Half-precision parameters are computed in f32, and the vectors beside them are f32. The parameters themselves are rounded after every
/// step: a step below their resolution is lost.
///
/// ```
/// use untuned::RunInfo;
/// use untuned::optimizers::Prodigy;
/// use untuned_burn::Stepper;
///
/// let text = Stepper::new("prodigy:d0=1e-5", 100)?;
/// let typed = Stepper::from_method(Prodigy { d0: 1e-5, ..Default::default() }.build(&RunInfo::new(100))?);
/// # Ok::<(), untuned_burn::StepError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Stepper<M = Method> {
    pub(crate) made_for: MadeFor<M>,
    pub(crate) options: StepOptions,
    loops: bool,
    keeps_best: bool,
    /// From the first step on.
    pub(crate) session: Option<Session<M, Parameters>>,
    /// The lowest loss and its parameters.
    pub(crate) best: Option<(f64, Vector)>,
    reads: Reads,
}

/// What a step was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The number of the step, from 0.
    pub step: u64,
    /// The loss before it; the mean of several batches.
    pub loss: f64,
    /// The norm of the whole gradient, before any clipping; that of the mean over several batches.
    pub grad_norm: f64,
    /// The effective learning rate: what a unit of the (preconditioned) gradient was multiplied with.
    pub rate: f64,
    /// Whether it was an ordinary step, one without a gradient, or one below the method's lower bound.
    pub kind: StepKind,
    /// Whether the loss is the lowest so far, where [the best](Stepper::keep_best) is kept.
    pub best: bool,
}

impl Report {
    pub(crate) fn new(made: untuned::Report, best: bool) -> Report {
        let untuned::Report { step, loss, grad_norm, rate, kind, .. } = made;
        Report { step, loss: loss.unwrap_or(f64::NAN), grad_norm, rate, kind, best }
    }
}

impl Stepper {
    /// A method from its text, such as `inexact-polyak`, `polyak-adam` or `adamw:lr=0.01`, for a run of `steps` steps.
    ///
    /// # Errors
    /// When the text is wrong, or the method needs something that it does not give.
    pub fn new(spec: &str, steps: u64) -> Result<Stepper, StepError> {
        let spec: MethodSpec = spec.parse()?;
        let mut stepper = Stepper::from_method(spec.build(&RunInfo::new(steps))?);
        stepper.made_for.text = Some((spec.to_string(), steps));
        Ok(stepper)
    }
}

impl<M: Optimizer + Clone> Stepper<M> {
    /// A method of any type, before its first step.
    pub fn from_method(method: M) -> Stepper<M> {
        let weight_decay = method.default_weight_decay();
        Stepper {
            made_for: MadeFor::new(method),
            options: StepOptions { weight_decay, ..StepOptions::default() },
            loops: true,
            keeps_best: false,
            session: None,
            best: None,
            reads: Reads::default(),
        }
    }

    /// Averages the points. The average is then what [`Stepper::evaluated`] gives. Set this before the first step.
    ///
    /// # Errors
    /// When its number [cannot be used](Average::check).
    pub fn average(mut self, average: Average) -> Result<Stepper<M>, StepError> {
        self.made_for.average = Some(average.check()?);
        Ok(self)
    }

    /// Weight decay: `x·(1 − rate·decay)`, in place of [the method's own](Optimizer::default_weight_decay). A scalar rule applies it to
    /// all parameters, an optimizer to the matrices (of rank 2 or more).
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn weight_decay(mut self, decay: f64) -> Result<Stepper<M>, StepError> {
        self.options = checked(StepOptions { weight_decay: decay, ..self.options })?;
        Ok(self)
    }

    /// Scales the whole gradient to this norm where it is longer. (Burn's own clipping is for each tensor alone.)
    ///
    /// # Errors
    /// When it is not positive, or when clipping has no effect on the method: see [`Optimizer::clips`].
    pub fn clip(mut self, norm: f64) -> Result<Stepper<M>, StepError> {
        self.options = checked(StepOptions { clip: Some(norm), ..self.options })?;
        match self.method().clips() {
            true => Ok(self),
            false => Err(StepError::Clip { method: self.method().name().to_string() }),
        }
    }

    /// Keeps a copy of the parameters with the lowest loss, for [`Stepper::best`]; ties go to the later one. The loss is the one that
    /// the steps are given: with batches, that of the luckiest one.
    pub fn keep_best(mut self) -> Stepper<M> {
        self.keeps_best = true;
        self
    }

    /// Whether passes are loops over memory where a device has it in reach (Flex), or tensor operations everywhere. Loops are much faster,
    /// and the default. Set this before the first step.
    pub fn loops(mut self, loops: bool) -> Stepper<M> {
        self.loops = loops;
        self
    }

    /// Multiplies the method's rate from the next step on: for warm-up and schedules.
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn set_rate(&mut self, factor: f64) -> Result<(), StepError> {
        self.options = checked(StepOptions { rate: factor, ..self.options })?;
        Ok(())
    }

    /// Makes a step: the loss is the one that was differentiated, and the gradients are all of this module.
    ///
    /// # Errors
    /// A refused step leaves the module, the method and its vectors exactly as they were, and does not count.
    pub fn step<T: Module, const D: usize>(
        &mut self,
        loss: Tensor<D>,
        module: &mut T,
        gradients: GradientsParams,
    ) -> Result<Report, StepError> {
        self.advance(module, gradients, vec![one(loss)?])
    }

    /// Makes one step of several batches or replicas: loss and gradient are their means.
    ///
    /// # Errors
    /// As [`Stepper::step`]; or when nothing was added up.
    pub fn step_mean<T: Module>(
        &mut self,
        batches: Accumulated,
        module: &mut T,
    ) -> Result<Report, StepError> {
        if batches.losses.is_empty() {
            return Err(StepError::NoBatch);
        }
        self.advance(module, batches.gradients, batches.losses)
    }

    fn advance<T: Module>(
        &mut self,
        module: &mut T,
        gradients: GradientsParams,
        losses: Vec<Tensor<1>>,
    ) -> Result<Report, StepError> {
        let known = self.session.as_ref().map_or(&[][..], |session| &session.space().slots);
        let mut taken = Taken::take(module, &gradients, known);
        // What nobody else has can be changed in place.
        drop(gradients);
        let mut x = taken.x.drain(..).collect();
        let result = self.step_from(&mut x, &mut taken, losses);
        taken.put(module, x);
        result
    }

    fn step_from(
        &mut self,
        x: &mut Vector,
        taken: &mut Taken,
        losses: Vec<Tensor<1>>,
    ) -> Result<Report, StepError> {
        taken.check_gradients()?;
        if let Some(session) = &mut self.session {
            check_same(&session.space().slots, &taken.slots)?;
            session.space().hold(x);
        } else {
            let mut space = self.parameters(taken.slots.clone());
            space.hold(x);
            if self.method().needs().scales {
                space.take_scales(x)?;
            }
            self.session = Some(self.new_session(space)?);
        }
        let Stepper { session: Some(session), options, keeps_best, best, .. } = self else {
            unreachable!("made above")
        };
        let count = losses.len();
        let gradient = session.space().mean_gradient(std::mem::take(&mut taken.gradients), count);
        session.sums().set(0, losses);
        session.options = *options;
        let before = keeps_best.then(|| x.clone());
        let made = session.advance_reading(x, &gradient, |sums| Some(sums[0] / count as f64));
        if session.steps() == 0 {
            // The next step may be from another point, which then has the scales of the start.
            self.session = None;
        }
        let mut report = Report::new(made?, false);
        let is_lower = best.as_ref().is_none_or(|(lowest, _)| report.loss <= *lowest);
        if let Some(before) = before.filter(|_| is_lower) {
            *best = Some((report.loss, before));
            report.best = true;
        }
        Ok(report)
    }

    pub(crate) fn parameters(&self, slots: Vec<Arc<Slot>>) -> Parameters {
        Parameters::new(slots, self.method().decays_everything(), self.loops, self.reads.clone())
    }

    /// The method before its first step, with room for the loss.
    pub(crate) fn new_session(&self, space: Parameters) -> Result<Session<M, Parameters>, StepError> {
        Ok(Session::reserving(self.made_for.method.clone(), space, 1)?.average(self.made_for.average)?)
    }

    /// The module at the point to evaluate: the average, the point of a Schedule-Free method, or the module as it is.
    ///
    /// # Errors
    /// When the module is not the one of the steps.
    pub fn evaluated<T: Module>(&self, module: &T) -> Result<T, StepError> {
        let mut evaluated = module.clone();
        if let Some(session) = &self.session {
            let mut taken = look(session, module)?;
            let mut x = taken.x.drain(..).collect();
            session.space().hold(&mut x);
            // The point has the parameters' types, and not those that they are computed in.
            let mut point = x.clone();
            session.write_evaluation_point(&x, &mut point);
            taken.put(&mut evaluated, point);
        }
        Ok(evaluated)
    }

    /// The lowest loss so far and the module at it, where [it is kept](Stepper::keep_best).
    ///
    /// # Errors
    /// When the module is not the one of the steps.
    pub fn best<T: Module>(&self, module: &T) -> Result<Option<(f64, T)>, StepError> {
        let (Some(session), Some((loss, x))) = (&self.session, &self.best) else { return Ok(None) };
        let mut best = module.clone();
        look(session, module)?.put(&mut best, x.clone());
        Ok(Some((*loss, best)))
    }

    /// The bytes that are kept beside the parameters: none for most scalar rules, a copy of the parameters for those that need the
    /// distance from the start, several for optimizers; and the best point. 0 before the first step.
    pub fn memory(&self) -> usize {
        let vectors = self.session.iter().flat_map(|session| session.vectors().map(|(_, vector)| vector));
        vectors.chain(self.best.iter().map(|(_, best)| best)).map(Vector::bytes).sum()
    }

    /// How many steps were made.
    pub fn steps(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::steps)
    }

    /// How often numbers were read from a device, which makes the CPU wait: once a step, refused ones included. A shape-aware method
    /// (`polyak-adam`) with two or more matrices reads once more before its first step. A record reads once for each of its vectors.
    /// Memory that passes [loop](Stepper::loops) over is not read. Clones of a stepper have one count.
    pub fn reads(&self) -> u64 {
        self.reads.count()
    }

    /// The method, with its numbers.
    pub fn method(&self) -> &M {
        self.session.as_ref().map_or(&self.made_for.method, Session::method)
    }

    /// A warning if the run looks wrong: an estimate that never moves, or a rate that grows without bound.
    pub fn warning(&self) -> Option<String> {
        self.method().warning()
    }
}

/// The parameters of a module, which must be the one of the steps before.
fn look<M: Optimizer, T: Module>(session: &Session<M, Parameters>, module: &T) -> Result<Taken, StepError> {
    let slots = &session.space().slots;
    let mut taken = Taken::look(module, &GradientsParams::new(), slots);
    taken.check()?;
    check_same(slots, &taken.slots)?;
    Ok(taken)
}

/// The loss as a list of one number, without autodiff.
pub(crate) fn one<const D: usize>(loss: Tensor<D>) -> Result<Tensor<1>, StepError> {
    match loss.shape().num_elements() {
        1 => Ok(loss.inner().reshape([1])),
        numbers => Err(StepError::Loss { numbers }),
    }
}

/// The options, if they can be used.
fn checked(options: StepOptions) -> Result<StepOptions, StepError> {
    match options.wrong() {
        Some((what, value, must)) => Err(StepError::Option { what, value, must }),
        None => Ok(options),
    }
}
