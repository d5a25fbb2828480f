//! The interface of every method: what it needs, which vectors it keeps, and how it makes a step.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::rule::{Needs, Observation, Point, Refusal, Step, StepRule, short_type_name};
use crate::space::Space;

/// A method that moves the parameters itself and may keep vectors beside them.
///
/// A [`Session`](crate::Session) drives it. Every [`StepRule`] is an optimizer: `x ← (1 − η·λ)·x − η·g`. If both
/// traits are in scope, write `StepRule::needs(self)`.
///
/// # Contract
/// An error leaves the optimizer, the parameters and the vectors exactly as they were. A coordinate whose numbers are all 0 stays
/// 0 and adds nothing to a sum: padding and parameters without a gradient are such coordinates.
pub trait Optimizer {
    /// Its name, for messages.
    fn name(&self) -> &str {
        short_type_name::<Self>()
    }

    /// What it needs beyond the gradient and its norm, the same in all steps.
    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    /// The vectors that it keeps, in the order in which [`Vectors::state`] has them.
    fn state(&self) -> Vec<StateVector> {
        Vec::new()
    }

    /// Observes the point, and makes the step. The returned size is the effective learning rate: the factor of the (preconditioned)
    /// gradient, [`StepOptions::rate`] included.
    ///
    /// # Errors
    /// Refuses what it cannot answer, before anything changes.
    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>>;

    /// Whether the point to evaluate is not the one that is trained.
    fn has_evaluation_point(&self) -> bool {
        false
    }

    /// Writes the point to evaluate to `to`. Called only where [`Optimizer::has_evaluation_point`] says so.
    fn write_evaluation_point<S: Space>(
        &self,
        _space: &S,
        _x: &S::Vector,
        _state: &[S::Vector],
        _to: &mut S::Vector,
    ) {
    }

    /// Whether [`StepOptions::clip`] has an effect. Methods that measure the gradient before its norm is known ignore it.
    fn clips(&self) -> bool {
        true
    }

    /// Whether weight decay applies to every tensor, and not only to matrices. Scalar rules decay everything, as in the paper.
    fn decays_everything(&self) -> bool {
        false
    }

    /// The default weight decay for networks.
    fn default_weight_decay(&self) -> f64 {
        0.0
    }

    /// The current estimate, such as Prodigy's `d`. The method's documentation says which.
    fn estimate(&self) -> Option<f64> {
        None
    }

    /// Whether a step takes the current point from [`Points::from`] where there is one, and then only writes `x`. For scalar rules.
    #[doc(hidden)]
    fn steps_from(&self) -> bool {
        false
    }

    /// A warning if the run looks wrong: an estimate that never moves, or a rate that grows without bound.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// A vector that an optimizer keeps beside the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateVector {
    /// Its name, in checkpoints too. The session has vectors of its own: `x0`, `origin_gradient`, `best`, `best_gradient`, `average`.
    pub name: &'static str,
    /// Whether it starts as a copy of the parameters, and not with zeros.
    pub copies_parameters: bool,
}

impl StateVector {
    /// A vector that starts with zeros.
    pub const fn zeros(name: &'static str) -> StateVector {
        StateVector { name, copies_parameters: false }
    }

    /// A vector that starts as a copy of the parameters.
    pub const fn copy(name: &'static str) -> StateVector {
        StateVector { name, copies_parameters: true }
    }
}

/// The options of a step: rate, clipping, weight decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepOptions {
    /// Multiplies the learning rate: warm-up and schedule.
    pub rate: f64,
    /// The gradient is scaled to this norm where it is longer.
    pub clip: Option<f64>,
    /// `λ` in `x·(1 − η·λ)`.
    pub weight_decay: f64,
}

impl Default for StepOptions {
    /// No schedule, no clipping, no decay.
    fn default() -> StepOptions {
        StepOptions { rate: 1.0, clip: None, weight_decay: 0.0 }
    }
}

impl StepOptions {
    /// The first option that cannot be used, its value, and what it must be: a rate and a decay are finite and not negative, and a
    /// clipping threshold is finite and above 0.
    #[inline]
    pub fn wrong(&self) -> Option<(&'static str, f64, &'static str)> {
        let StepOptions { rate, clip, weight_decay } = *self;
        let fits = |value: f64| (0.0..=f64::MAX).contains(&value);
        match clip {
            _ if !fits(rate) => Some(("rate", rate, "finite, and 0 or more")),
            _ if !fits(weight_decay) => Some(("weight_decay", weight_decay, "finite, and 0 or more")),
            Some(clip) if !fits(clip) || clip == 0.0 => Some(("clip", clip, "finite, and above 0")),
            _ => None,
        }
    }

    /// Refuses options that [cannot be used](StepOptions::wrong).
    ///
    /// # Errors
    /// Names the option.
    #[inline]
    pub fn check(&self, step: u64) -> Result<(), Refusal> {
        match self.wrong() {
            Some((what, value, must)) => Err(Refusal::Option { step, what, value, must }),
            None => Ok(()),
        }
    }

    /// What multiplies a gradient of this norm: `min(1, clip/(‖g‖ + 1e-6))`, the 1e-6 being that of
    /// `torch.nn.utils.clip_grad_norm_`.
    pub fn gradient_scale(&self, grad_norm: f64) -> f64 {
        self.clip.map_or(1.0, |clip| (clip / (grad_norm + 1e-6)).min(1.0))
    }
}

/// The vectors of a step.
#[derive(Debug)]
pub struct Vectors<'a, S: Space> {
    /// The parameters.
    pub x: &'a mut S::Vector,
    /// Their gradient.
    pub gradient: &'a S::Vector,
    /// What [`Optimizer::state`] names.
    pub state: &'a mut [S::Vector],
    pub(crate) points: Points<'a, S>,
}

impl<'a, S: Space> Vectors<'a, S> {
    /// The parameters of the start, for a method that [needs](Needs::x0) them.
    ///
    /// # Panics
    /// When the method did not say that it needs them.
    pub fn x0(&self) -> &'a S::Vector {
        self.points.x0.expect("a method that uses `x0` says so in `needs`")
    }
}

/// The state vectors by name: `let [m, v] = named(vectors.state);`.
///
/// # Panics
/// When there are not `N` of them.
pub fn named<V, const N: usize>(state: &mut [V]) -> [&mut V; N] {
    let count = state.len();
    let state: Option<&mut [V; N]> = state.try_into().ok();
    state.unwrap_or_else(|| panic!("the method declares {count} state vectors and uses {N}")).each_mut()
}

/// The points that a rule may start from.
#[derive(Debug)]
pub(crate) struct Points<'a, S: Space> {
    /// The current point, where `x` is memory for the next one.
    pub(crate) from: Option<&'a S::Vector>,
    pub(crate) x0: Option<&'a S::Vector>,
    pub(crate) vectors: &'a mut JumpVectors<S::Vector>,
    pub(crate) kept: &'a mut JumpPoints,
}

/// The vectors of the points that a rule may go back to, beside `x_0`.
#[derive(Debug, Clone)]
pub(crate) struct JumpVectors<V> {
    pub(crate) origin_gradient: Option<V>,
    /// The best point and its gradient.
    pub(crate) best: Option<[V; 2]>,
}

/// Which of the points that a rule may go back to are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JumpPoints {
    /// The lowest loss so far, where the best point is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) best: Option<f64>,
    /// Whether the gradient of `x_0` is kept already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) origin: bool,
}

/// Indices in the sums of a session, behind those that the caller reserved. A pass that has the norm among its terms begins there.
pub(crate) const X0_NORM: usize = 0;
pub(crate) const DISTANCE: usize = 1;
pub(crate) const GRAD_SUM: usize = 2;
pub(crate) const NORM: usize = 3;
pub(crate) const OWN: usize = 4;

/// The most sums that a method may measure in a step.
pub const MOST_SUMS: usize = 8;

/// Computes the loss of a step from the numbers that the caller reserved, once they are read.
pub(crate) type ReservedLoss<'a> = &'a mut dyn FnMut(&[f64]) -> Option<f64>;

/// A step in the making: a method observes the point through it, and changes vectors in its space.
pub struct StepContext<'a, S: Space> {
    /// The space of the vectors.
    pub space: &'a S,
    /// The options of the step.
    pub options: &'a StepOptions,
    pub(crate) needs: &'a Needs,
    pub(crate) gradient: &'a S::Vector,
    /// The parameters of the start, while their norm is not known.
    pub(crate) x0: Option<&'a S::Vector>,
    /// The loss, where it is not in `seen`.
    pub(crate) loss: Option<ReservedLoss<'a>>,
    /// How many sums the caller reserved.
    pub(crate) reserved: usize,
    pub(crate) norm_measured: bool,
    /// How many sums there are to read, those of the caller included.
    pub(crate) measured: usize,
    pub(crate) sums: &'a mut S::Sums,
    pub(crate) values: &'a mut Vec<f64>,
    /// What is known of the point. It is filled where it stands: beside a rule, copies of it take long.
    pub(crate) seen: &'a mut Observation,
}

impl<S: Space> StepContext<'_, S> {
    /// Reads loss, norm and all that the method [needs](Optimizer::needs), in one read.
    ///
    /// # Errors
    /// When the device fails, or when a value is not finite or is missing.
    #[inline]
    pub fn observe(&mut self) -> Result<Observation, SessionError<S::Error>> {
        self.read()?;
        Ok(*self.seen)
    }

    #[inline(always)]
    fn read(&mut self) -> Result<(), SessionError<S::Error>> {
        self.fill().map_err(SessionError::Device)?;
        self.seen.check(*self.needs)?;
        self.options.check(self.seen.step)?;
        Ok(())
    }

    #[inline(always)]
    fn fill(&mut self) -> Result<(), S::Error> {
        if !self.norm_measured {
            self.space.measure_norm(self.gradient, self.sums, self.reserved + NORM);
        }
        let values = &mut self.values[..self.measured];
        self.space.read(self.sums, values)?;
        let (reserved, measured) = values.split_at(self.reserved);
        let seen = &mut *self.seen;
        seen.grad_norm = self.space.norm(self.gradient, measured[NORM])?;
        if let (Some(x0), None) = (self.x0, seen.x0_norm) {
            seen.x0_norm = Some(self.space.norm(x0, measured[X0_NORM])?);
        }
        if let Some(loss) = self.loss.take() {
            seen.loss = loss(reserved);
        }
        if self.needs.distance && seen.distance.is_none() {
            seen.distance = Some(measured[DISTANCE].sqrt());
        }
        seen.grad_sum = self.needs.grad_sum.then(|| measured[GRAD_SUM]);
        // The step and its length, after the schedule; a little less, so that no rounding leads beyond.
        seen.max_size = (1.0 - 1e-14) * S::LARGEST / (seen.grad_norm.max(1.0) * self.options.rate);
        Ok(())
    }

    /// As [`StepContext::observe`], with sums of the method's own from one pass before it.
    ///
    /// # Errors
    /// As [`StepContext::observe`].
    pub fn observe_with<F: Measure<S_, R, K>, const S_: usize, const R: usize, const K: usize>(
        &mut self,
        formula: F,
        scalars: [f64; S_],
        decay: f64,
        read: [&S::Vector; R],
    ) -> Result<(Observation, [f64; K]), SessionError<S::Error>> {
        const { assert!(K <= MOST_SUMS, "more sums than a method may measure") };
        let at = self.reserved + if F::HAS_NORM { NORM } else { OWN };
        self.space.measure(formula, scalars, decay, read, self.sums, at);
        self.norm_measured |= F::HAS_NORM;
        self.measured = at + K;
        let seen = self.observe()?;
        let mut sums = [0.0; K];
        sums.copy_from_slice(&self.values[at..at + K]);
        Ok((seen, sums))
    }

    /// Changes vectors in one pass.
    pub fn change<F: Change<C, M, R>, const C: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; C],
        decay: f64,
        change: [&mut S::Vector; M],
        read: [&S::Vector; R],
    ) {
        self.space.change(formula, scalars, decay, change, read);
    }
}

/// Why a session made no step.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SessionError<E> {
    /// The method refused it. Nothing has changed, unless a rule's answer broke [its contract](StepRule): the rule has changed then.
    #[error(transparent)]
    Refused(Refusal),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(E),
}

impl<E> From<Refusal> for SessionError<E> {
    fn from(refusal: Refusal) -> SessionError<E> {
        SessionError::Refused(refusal)
    }
}

/// Refuses a gradient whose square, after the clipping, a vector of the space cannot hold.
pub fn check_square<S: Space>(seen: &Observation, scale: f64) -> Result<(), Refusal> {
    let norm = scale * seen.grad_norm;
    if norm * norm > S::LARGEST {
        return Err(Refusal::TooLarge { step: seen.step, grad_norm: seen.grad_norm });
    }
    Ok(())
}

/// Refuses numbers that a vector's floats cannot hold: in 32 bits 1e40 is infinite, and infinity times 0 is not a number.
pub fn check_held<S: Space>(seen: &Observation, numbers: &[f64]) -> Result<(), Refusal> {
    match numbers.iter().find(|number| number.is_nan() || number.abs() > S::LARGEST) {
        Some(&size) => Err(seen.overflow(size)),
        None => Ok(()),
    }
}

/// Refuses sums that are not finite: a gradient or a parameter is not, or is too large.
pub fn check_sums(seen: &Observation, names: &[&'static str], sums: &[f64]) -> Result<(), Refusal> {
    for (&what, &value) in names.iter().zip(sums) {
        if !value.is_finite() {
            return Err(Refusal::NotFinite { step: seen.step, what, value });
        }
    }
    Ok(())
}

/// `x ← x·(1 − decay) − size·g`.
pub(crate) struct Descend;

impl Change<1, 1, 1> for Descend {
    #[inline(always)]
    fn each<N: Number>([size]: [N; 1], info: TensorInfo<N>, [x]: [N; 1], [g]: [N; 1]) -> [N; 1] {
        [x * (N::of(1.0) - info.decay) - size * g]
    }
}

/// `x ← from·(1 − decay) − size·g`.
struct DescendFrom;

impl Change<1, 1, 2> for DescendFrom {
    #[inline(always)]
    fn each<N: Number>([size]: [N; 1], info: TensorInfo<N>, _: [N; 1], [from, g]: [N; 2]) -> [N; 1] {
        [from * (N::of(1.0) - info.decay) - size * g]
    }
}

/// A scalar rule is an optimizer: `x ← (1 − η·λ)·from − η·g(from)`, where `from` is the current point, the best one or `x_0`.
///
/// Warm-up and schedule multiply the rule's size. The rule sees the gradient as it is: [`StepOptions::clip`] has no effect. An answer
/// that breaks the rule's contract is refused after the rule has changed.
///
/// State: `x_0` if the rule needs the distance from it; the best point and its gradient if it goes back there; `x_0` and its gradient if
/// it goes back to the start. A step is one pass that reads 2 vectors and writes one, and one of 2 vectors before it for the distance.
impl<R: StepRule> Optimizer for R {
    fn name(&self) -> &str {
        StepRule::name(self)
    }

    fn needs(&self) -> Needs {
        StepRule::needs(self)
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        context.read()?;
        let Vectors { x, gradient, points, .. } = vectors;
        let next = StepRule::step(self, context.seen)?;
        context.needs.allow(&next, context.seen)?;
        let size = next.size * context.options.rate;
        let Points { from, x0, vectors: JumpVectors { origin_gradient, best }, kept } = points;
        if let (Some([point, point_gradient]), Some(loss)) = (&mut *best, context.seen.loss) {
            if kept.best.is_none_or(|lowest| loss <= lowest) {
                context.space.copy(from.unwrap_or(x), point);
                context.space.copy(gradient, point_gradient);
                kept.best = Some(loss);
            }
        }
        if let Some(to) = origin_gradient.as_mut().filter(|_| !kept.origin) {
            context.space.copy(gradient, to);
            kept.origin = true;
        }
        let decay = size * context.options.weight_decay;
        let (from, gradient) = match (next.from, &*best, x0.zip(origin_gradient.as_ref())) {
            (Point::Best, Some([best, best_gradient]), _) => (Some(best), best_gradient),
            (Point::Origin, _, Some((x0, origin_gradient))) => (Some(x0), origin_gradient),
            _ => (from, gradient),
        };
        match from {
            Some(from) => context.change(DescendFrom, [size], decay, [x], [from, gradient]),
            None => context.change(Descend, [size], decay, [x], [gradient]),
        }
        Ok(Step { size, ..next })
    }

    fn steps_from(&self) -> bool {
        true
    }

    fn clips(&self) -> bool {
        false
    }

    fn decays_everything(&self) -> bool {
        true
    }
}
