//! Makes the steps of a module.

use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use untuned::optimizers::{Around, At, Keep, Method, Optimizer as _, OptimizerSpec};
use untuned::{Observation, Setting, StepKind};

use crate::module::Taken;
use crate::reads::Reads;
use crate::record::MadeFor;
use crate::space::{Parameters, Part, Slot, Sums, Vector};
use crate::{Accumulated, StepError};

/// Makes the steps of a module with any rule or optimizer of the library.
///
/// The parameters that require a gradient are trained, each one once: a parameter that is used in several places stays one. One without a
/// gradient in a batch has the gradient 0. Loss, norm and all that the method measures are read from the device together, once a step.
///
/// Half-precision parameters are squared and computed in f32, and what is kept beside them is f32; the parameters themselves are rounded
/// after every step, so that a step below their resolution is lost.
#[derive(Debug, Clone)]
pub struct Stepper {
    pub(crate) method: Method,
    pub(crate) made_for: MadeFor,
    pub(crate) around: Around,
    loops: bool,
    pub(crate) keeps_best: bool,
    pub(crate) step: u64,
    /// What belongs to the module, from the first step on.
    pub(crate) state: Option<State>,
    pub(crate) reads: Reads,
}

/// The vectors of a run.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) parameters: Arc<Parameters>,
    pub(crate) kept: Vec<Vector>,
    pub(crate) x0_norm: f64,
    /// The lowest loss and the parameters that it was measured at, where they are kept.
    pub(crate) best: Option<(f64, Vector)>,
}

/// What a step was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The number of the step, from 0.
    pub step: u64,
    /// The loss before it; the mean of several batches.
    pub loss: f64,
    /// The norm of the whole gradient, before any clipping; that of the mean over several batches.
    pub grad_norm: f64,
    /// The effective learning rate: what a unit of the (preconditioned) gradient was multiplied with.
    pub rate: f64,
    /// Whether it was an ordinary step, one without a gradient, or one below the rule's lower bound.
    pub kind: StepKind,
    /// Whether the loss is the lowest so far, where [the best](Stepper::keep_best) is kept.
    pub best: bool,
}

impl Stepper {
    /// A rule or an optimizer from its text, such as `inexact-polyak`, `polyak-adam` or `adamw:lr=0.01`, for a run of `steps` steps.
    ///
    /// # Errors
    /// When the text is wrong, or the rule needs something that it does not give.
    pub fn new(spec: &str, steps: u64) -> Result<Stepper, StepError> {
        let spec: OptimizerSpec = spec.parse()?;
        let mut stepper = Stepper::from_method(spec.build(&Setting::new(steps))?);
        stepper.made_for = stepper.made_for.text(&spec, steps);
        stepper.around.weight_decay = spec.weight_decay();
        Ok(stepper)
    }

    /// A method that was made elsewhere, for instance with an average of its points; nothing decays.
    pub fn from_method(method: Method) -> Stepper {
        Stepper {
            made_for: MadeFor::new(&method),
            method,
            around: Around::default(),
            loops: true,
            keeps_best: false,
            step: 0,
            state: None,
            reads: Reads::default(),
        }
    }

    /// Weight decay: `x·(1 − rate·decay)`, in place of [the method's own](OptimizerSpec::weight_decay). A scalar rule applies it to all
    /// parameters, an optimizer to the matrices (of rank 2 or more).
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn weight_decay(mut self, decay: f64) -> Result<Stepper, StepError> {
        check("the weight decay", decay, decay >= 0.0, "0 or more")?;
        self.around.weight_decay = decay;
        Ok(self)
    }

    /// Scales the whole gradient to this norm where it is longer. (Burn's own clipping is for each tensor alone.)
    ///
    /// # Errors
    /// When it is not positive, or the method takes the gradient as it is: scalar rules and those that measure it before its norm is known.
    pub fn clip(mut self, norm: f64) -> Result<Stepper, StepError> {
        check("the clipping norm", norm, norm > 0.0, "above 0")?;
        if !self.method.clips() {
            return Err(StepError::Clip { method: name(&self.method) });
        }
        self.around.clip = Some(norm);
        Ok(self)
    }

    /// Keeps a copy of the parameters with the lowest loss, for [`Stepper::best`]. It is the loss that the steps are given: with batches,
    /// that of the luckiest one.
    pub fn keep_best(mut self) -> Stepper {
        self.keeps_best = true;
        self
    }

    /// Whether passes are loops over memory where a device has it in reach (Flex), which is much faster and the default, or tensor
    /// operations everywhere. Said before the first step.
    pub fn loops(mut self, loops: bool) -> Stepper {
        self.loops = loops;
        self
    }

    /// Multiplies the method's rate from the next step on: for warm-up and schedules.
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn set_rate(&mut self, factor: f64) -> Result<(), StepError> {
        check("the factor of the rate", factor, factor >= 0.0, "0 or more")?;
        self.around.rate = factor;
        Ok(())
    }

    /// Makes a step: the loss is the one that was differentiated, and the gradients are all of this module.
    ///
    /// # Errors
    /// A refused step leaves the module, the method and its vectors exactly as they were, and does not count.
    pub fn step<M: Module, const D: usize>(
        &mut self,
        loss: Tensor<D>,
        module: &mut M,
        gradients: GradientsParams,
    ) -> Result<Report, StepError> {
        self.advance(module, gradients, vec![one(loss)?])
    }

    /// Makes one step of several batches or replicas: loss and gradient are their means.
    ///
    /// # Errors
    /// As [`Stepper::step`]; or when nothing was added up.
    pub fn step_mean<M: Module>(
        &mut self,
        batches: Accumulated,
        module: &mut M,
    ) -> Result<Report, StepError> {
        if batches.losses.is_empty() {
            return Err(StepError::NoBatch);
        }
        self.advance(module, batches.gradients, batches.losses)
    }

    fn advance<M: Module>(
        &mut self,
        module: &mut M,
        gradients: GradientsParams,
        losses: Vec<Tensor<1>>,
    ) -> Result<Report, StepError> {
        let known = self.state.as_ref().map(|state| state.parameters.clone());
        let known = known.as_ref().map_or(&[][..], |known| &known.slots);
        let mut taken = Taken::take(module, gradients, known);
        let mut x = std::mem::take(&mut taken.x);
        let mut stepped = None;
        let result = taken.check().and_then(|()| self.fit(&taken)).and_then(|state| {
            let parameters = state.parameters.clone();
            let parts = x.drain(..).enumerate().map(|(at, tensor)| parameters.part(at, tensor));
            let mut vector = Vector(parts.collect());
            let gradients = std::mem::take(&mut taken.gradients);
            let gradients = gradients.into_iter().enumerate().map(|(at, gradient)| match gradient {
                Some(gradient) => parameters.part(at, gradient),
                None => parameters.zero(at),
            });
            let result = self.step_vectors(state, &mut vector, Vector(gradients.collect()), losses);
            stepped = Some(vector.0);
            result
        });
        taken.put(module, stepped.unwrap_or_else(|| x.into_iter().map(Part::Device).collect()));
        result
    }

    /// The state for a module: the one of the steps before where it fits, or a new one.
    fn fit(&mut self, taken: &Taken) -> Result<State, StepError> {
        if taken.gradients.iter().all(Option::is_none) {
            return Err(StepError::NoGradient { parameters: taken.slots.len() });
        }
        match self.state.take() {
            Some(state) => match same(&state.parameters.slots, &taken.slots) {
                Ok(()) => Ok(state),
                Err(error) => {
                    self.state = Some(state);
                    Err(error)
                }
            },
            None => Ok(State::new(self.parameters(taken.slots.clone()))),
        }
    }

    pub(crate) fn parameters(&self, slots: Vec<Arc<Slot>>) -> Parameters {
        Parameters::new(slots, self.method.is_scalar(), self.loops)
    }

    fn step_vectors(
        &mut self,
        mut state: State,
        x: &mut Vector,
        mut gradient: Vector,
        losses: Vec<Tensor<1>>,
    ) -> Result<Report, StepError> {
        let first = self.step == 0;
        if first {
            let parameters = Parameters::clone(&state.parameters).scaled(x, &self.reads)?;
            state.parameters = Arc::new(parameters);
            let Ok(kept) = Keep::all(&*state.parameters, &self.method.keeps(), x);
            state.kept = kept;
        }
        let result = self.step_in(&mut state, x, &mut gradient, losses);
        // What a first step that was refused has kept is of a point that may not be the first one.
        if result.is_ok() || !first {
            self.state = Some(state);
        }
        result
    }

    fn step_in(
        &mut self,
        state: &mut State,
        x: &mut Vector,
        gradient: &mut Vector,
        losses: Vec<Tensor<1>>,
    ) -> Result<Report, StepError> {
        let Stepper { method, around, step, .. } = self;
        let State { parameters, kept, x0_norm, best } = state;
        let count = losses.len();
        if count > 1 {
            parameters.scale((count as f64).recip(), gradient);
        }
        // The loss, ‖x_0‖², ‖g‖², and what the method measures.
        let mut sums = Sums::new(3 + method.measures());
        losses.into_iter().for_each(|loss| sums.add(0, loss));
        if *step == 0 {
            parameters.square_norm(x, &mut sums, 1);
        }
        if !method.measure(&At { space: &**parameters, around, x, gradient, kept }, &mut sums, 2) {
            parameters.square_norm(gradient, &mut sums, 2);
        }
        let sums = sums.read(&self.reads)?;
        let (loss, grad_norm) = (sums[0] / count as f64, sums[2].sqrt());
        if *step == 0 {
            *x0_norm = norm_of_start(sums[1])?;
        }
        let (x0_norm, dimension) = (*x0_norm, parameters.dimension());
        let seen = Observation { x0_norm, dimension, ..Observation::new(*step, loss, grad_norm) };
        let lower = best.as_ref().is_none_or(|(lowest, _)| loss < *lowest);
        let here = (self.keeps_best && loss.is_finite() && lower).then(|| x.clone());
        let at = At { space: &**parameters, around, x, gradient, kept };
        let made = method.step(&seen, &sums[3..], at)?;
        let report =
            Report { step: *step, loss, grad_norm, rate: made.size, kind: made.kind, best: here.is_some() };
        if let Some(here) = here {
            *best = Some((loss, here));
        }
        *step += 1;
        Ok(report)
    }

    /// The module at the point to be evaluated: that of the average, or of Schedule-Free, and for all others the module as it is.
    ///
    /// # Errors
    /// When the module is not the one of the steps.
    pub fn evaluated<M: Module>(&self, module: &M) -> Result<M, StepError> {
        let mut evaluated = module.clone();
        let Some(State { parameters, kept, .. }) = &self.state else { return Ok(evaluated) };
        let taken = self.look(parameters, module)?;
        let parts = taken.x.iter().enumerate().map(|(at, x)| parameters.part(at, x.clone()));
        let x = Vector(parts.collect());
        // The point is of the parameters' types, and not of those that they are computed in.
        let mut to = x.clone();
        if self.method.evaluated(&**parameters, &x, kept, &mut to) {
            taken.put(&mut evaluated, to.0);
        }
        Ok(evaluated)
    }

    /// The module at the lowest loss so far and that loss, where [it is kept](Stepper::keep_best).
    ///
    /// # Errors
    /// When the module is not the one of the steps.
    pub fn best<M: Module>(&self, module: &M) -> Result<Option<(f64, M)>, StepError> {
        let Some(State { parameters, best: Some((loss, x)), .. }) = &self.state else { return Ok(None) };
        let mut best = module.clone();
        self.look(parameters, module)?.put(&mut best, x.0.clone());
        Ok(Some((*loss, best)))
    }

    fn look<M: Module>(&self, parameters: &Parameters, module: &M) -> Result<Taken, StepError> {
        let mut taken = Taken::look(module, &GradientsParams::new(), &parameters.slots);
        taken.check()?;
        same(&parameters.slots, &taken.slots)?;
        Ok(taken)
    }

    /// The bytes that are kept beside the parameters: none for most scalar rules, a copy of the parameters for those that need the
    /// distance from the start, several for optimizers; and the best point. 0 before the first step.
    pub fn memory(&self) -> usize {
        let Some(state) = &self.state else { return 0 };
        let best = state.best.iter().map(|(_, best)| best);
        state.kept.iter().chain(best).map(Vector::bytes).sum()
    }

    /// How many steps were made.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// How often numbers were read from a device, for tests of how often the processor waits for it: once for every step, refused ones
    /// included, and once for each vector of a record. Memory that passes [loop](Stepper::loops) over is not read.
    pub fn reads(&self) -> u64 {
        self.reads.count()
    }

    /// The method, with its numbers.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// What a user should know of how it goes, in words: an estimate that is stuck, a rate that grows without end.
    pub fn concern(&self) -> Option<String> {
        self.method.concern()
    }
}

impl State {
    pub(crate) fn new(parameters: Parameters) -> State {
        State { parameters: Arc::new(parameters), kept: Vec::new(), x0_norm: 0.0, best: None }
    }
}

/// The norm of the first parameters from their square, which a record could not hold were it not finite.
pub(crate) fn norm_of_start(square: f64) -> Result<f64, StepError> {
    if square.is_finite() { Ok(square.sqrt()) } else { Err(StepError::Start { square }) }
}

/// The loss as a list of one number, without autodiff.
pub(crate) fn one<const D: usize>(loss: Tensor<D>) -> Result<Tensor<1>, StepError> {
    match loss.shape().num_elements() {
        1 => Ok(loss.inner().reshape([1])),
        numbers => Err(StepError::Loss { numbers }),
    }
}

fn check(what: &'static str, value: f64, fits: bool, must: &'static str) -> Result<(), StepError> {
    if fits && value.is_finite() { Ok(()) } else { Err(StepError::Setting { what, value, must }) }
}

/// The name of a method, as in its text.
pub(crate) fn name(method: &Method) -> String {
    fn find(value: &serde_json::Value) -> Option<&str> {
        let object = value.as_object()?;
        object.get("rule").and_then(|name| name.as_str()).or_else(|| object.values().find_map(find))
    }
    let value = serde_json::to_value(method).unwrap_or_default();
    find(&value).unwrap_or("the method").to_string()
}

/// Refuses parameters that are not those of the steps before.
pub(crate) fn same(before: &[Arc<Slot>], now: &[Arc<Slot>]) -> Result<(), StepError> {
    let differ = |what: String| Err(StepError::Module { what });
    for (before, now) in before.iter().zip(now).filter(|(before, now)| !Arc::ptr_eq(before, now)) {
        if before.id != now.id {
            return differ(format!("`{}` has taken the place of `{}`", now.name, before.name));
        }
        if before.device != now.device {
            let (found, expected) = (format!("{:?}", now.device), format!("{:?}", before.device));
            return Err(StepError::Device { name: now.name.to_string(), found, expected });
        }
        if (before.dtype, &before.shape) != (now.dtype, &now.shape) {
            let was = format!("it was {:?} of the shape {:?}", before.dtype, before.shape);
            let is = format!("`{}` is {:?} of the shape {:?}", now.name, now.dtype, now.shape);
            return differ(format!("{is}, and {was}"));
        }
    }
    if before.len() != now.len() {
        return differ(format!(
            "{} parameters require a gradient, and before there were {}",
            now.len(),
            before.len()
        ));
    }
    Ok(())
}
