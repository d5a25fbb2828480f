//! The one small interface of every scalar step-size rule: an [`Observation`] in, a [`Step`] or a [`Refusal`] out.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A scalar rule: "what is the step size now?".
///
/// It never sees a vector. The parameters and the gradient belong to the caller, `x_0` and the best iterate to the
/// [session](crate::Session).
///
/// # Contract
/// An error leaves the rule exactly as it was; so does a stationary point (`‖g‖ = 0`), whose step has size 0.
/// A size is finite and never negative.
pub trait StepRule {
    /// Its name, for messages.
    fn name(&self) -> &str {
        short_type_name::<Self>()
    }

    /// What the rule needs beyond the gradient's norm, the same in all steps. By default: the loss.
    fn needs(&self) -> Needs {
        Needs::LOSS
    }

    /// The step from the point just observed.
    ///
    /// # Errors
    /// Refuses what it cannot answer, before any of its state changes.
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal>;
}

impl<R: StepRule + ?Sized> StepRule for &mut R {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn needs(&self) -> Needs {
        (**self).needs()
    }
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        (**self).step(seen)
    }
}

/// The last word of a type's path, without its parameters.
pub(crate) fn short_type_name<T: ?Sized>() -> &'static str {
    let path = std::any::type_name::<T>();
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

/// What a method needs, so that nobody pays for what is not used. An [`Observation`] that lacks a needed value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// The loss, in [`Observation::loss`].
    pub loss: bool,
    /// `‖x_0‖`, in [`Observation::x0_norm`].
    pub x0_norm: bool,
    /// `‖x_t − x_0‖`, in [`Observation::distance`].
    pub distance: bool,
    /// The sum of the gradient's entries, in [`Observation::grad_sum`].
    pub grad_sum: bool,
    /// The number of parameters, in [`Observation::dimension`].
    pub dimension: bool,
    /// The best iterate and its gradient: the rule may answer with [`Point::Best`]. The loss says which one that is, and is needed then.
    pub best: bool,
    /// `x_0` and its gradient: the rule may answer with [`Point::Origin`].
    pub origin: bool,
    /// The vector `x_0`, in [`Vectors::x0`](crate::optimizer::Vectors::x0).
    pub x0: bool,
    /// The scales of tensors, in [`TensorInfo::scale`](crate::formula::TensorInfo::scale): the method is shape-aware.
    pub scales: bool,
}

impl Needs {
    /// Nothing but the gradient and its norm.
    pub const NOTHING: Needs = Needs {
        loss: false,
        x0_norm: false,
        distance: false,
        grad_sum: false,
        dimension: false,
        best: false,
        origin: false,
        x0: false,
        scales: false,
    };

    /// The loss alone.
    pub const LOSS: Needs = Needs { loss: true, ..Needs::NOTHING };

    /// Refuses a step that breaks the contract: a size that is not finite or is negative, or a point that the rule did not ask to be
    /// kept.
    #[inline]
    pub(crate) fn allow(self, next: &Step, seen: &Observation) -> Result<(), Refusal> {
        Step::new(next.size, seen)?;
        let step = seen.step;
        match next.from {
            Point::Best if !self.best => Err(Refusal::Missing { step, what: "best" }),
            Point::Origin if !self.origin => Err(Refusal::Missing { step, what: "origin" }),
            _ => Ok(()),
        }
    }
}

/// What is known of the point `x_t` when a method is asked.
///
/// A rule reads a value that may be missing with the method of the same name: [`Observation::distance`] refuses an observation
/// without a distance. [`StepRule::needs`] says that a session has to measure it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// `t`, from 0.
    pub step: u64,
    /// `‖g‖` over all parameters; a norm and not its square, so that a gradient below 1.5e-162 is not lost.
    pub grad_norm: f64,
    /// The loss that was differentiated.
    pub loss: Option<f64>,
    /// `‖x_0‖`.
    pub x0_norm: Option<f64>,
    /// `‖x_t − x_0‖`.
    pub distance: Option<f64>,
    /// The sum of the gradient's entries.
    pub grad_sum: Option<f64>,
    /// The number of parameters.
    pub dimension: Option<u64>,
    /// The largest step size that the floats of the parameters hold. [`Step::new`] refuses a larger one, before a rule changes.
    pub max_size: f64,
}

impl Observation {
    /// Nothing yet.
    pub(crate) const UNKNOWN: Observation = Observation {
        step: 0,
        grad_norm: f64::NAN,
        loss: None,
        x0_norm: None,
        distance: None,
        grad_sum: None,
        dimension: None,
        max_size: f64::INFINITY,
    };

    /// The loss and the gradient's norm at step `step`. A method that [needs](Needs) more refuses it.
    pub fn new(step: u64, loss: f64, grad_norm: f64) -> Observation {
        Observation { step, grad_norm, loss: Some(loss), ..Observation::UNKNOWN }
    }

    /// Refuses values that are not finite, and values that are needed and missing. A [`Session`](crate::Session) does this before
    /// every step. A rule does it too, for callers without a session.
    ///
    /// # Errors
    /// Names the value and the step.
    #[inline]
    pub fn check(&self, needs: Needs) -> Result<(), Refusal> {
        let mut sum = self.grad_norm;
        let mut missing = needs.dimension && self.dimension.is_none();
        for (_, needed, value) in self.numbers(needs) {
            match value {
                Some(value) => sum += value.abs(),
                None => missing |= needed,
            }
        }
        // The terms of a finite sum are finite: one comparison for all.
        if sum <= f64::MAX && self.grad_norm >= 0.0 && !missing { Ok(()) } else { self.check_each(needs) }
    }

    /// The numbers that may be missing: name, whether it is needed, value.
    #[inline(always)]
    fn numbers(&self, needs: Needs) -> [(&'static str, bool, Option<f64>); 4] {
        [
            ("loss", needs.loss || needs.best, self.loss),
            ("x0_norm", needs.x0_norm, self.x0_norm),
            ("distance", needs.distance, self.distance),
            ("grad_sum", needs.grad_sum, self.grad_sum),
        ]
    }

    #[cold]
    fn check_each(&self, needs: Needs) -> Result<(), Refusal> {
        let step = self.step;
        if let Some(loss) = self.loss.filter(|loss| !loss.is_finite()) {
            return Err(Refusal::Loss { step, loss });
        }
        if !(self.grad_norm.is_finite() && self.grad_norm >= 0.0) {
            return Err(Refusal::Gradient { step, grad_norm: self.grad_norm });
        }
        for (what, needed, value) in self.numbers(needs) {
            match value {
                Some(value) if !value.is_finite() => return Err(Refusal::NotFinite { step, what, value }),
                None if needed => return Err(Refusal::Missing { step, what }),
                _ => {}
            }
        }
        if needs.dimension && self.dimension.is_none() {
            return Err(Refusal::Missing { step, what: "dimension" });
        }
        Ok(())
    }

    /// `f − l`, at least 0.
    ///
    /// # Errors
    /// Refuses an observation without a loss.
    #[inline]
    pub fn above(&self, bound: f64) -> Result<Gap, Refusal> {
        let value = self.loss()? - bound;
        Ok(Gap { value: value.max(0.0), below: value < 0.0 })
    }

    /// The refusal of a step whose size, or length, no float can hold.
    pub fn overflow(&self, size: f64) -> Refusal {
        let &Observation { step, loss, grad_norm, .. } = self;
        Refusal::Overflow { step, loss: loss.unwrap_or(f64::NAN), grad_norm, size }
    }

    /// `numerator/‖g‖²` without losing a norm whose square underflows; infinite where the quotient overflows.
    #[inline]
    pub fn over_squared_norm(&self, numerator: f64) -> f64 {
        over_square(numerator, self.grad_norm)
    }
}

/// A method for each value that may be missing.
macro_rules! required {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        impl Observation {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Refuses an observation without it.
                #[inline]
                pub fn $name(&self) -> Result<$type, Refusal> {
                    self.$name.ok_or(Refusal::Missing { step: self.step, what: stringify!($name) })
                }
            )*
        }
    };
}

required! {
    /// The loss.
    loss: f64;
    /// `‖x_0‖`.
    x0_norm: f64;
    /// `‖x_t − x_0‖`.
    distance: f64;
    /// The sum of the gradient's entries.
    grad_sum: f64;
    /// The number of parameters.
    dimension: u64;
}

/// `numerator/norm²`, also where `norm²` is not a normal number.
#[inline]
pub fn over_square(numerator: f64, norm: f64) -> f64 {
    let squared = norm * norm;
    if squared.is_normal() { numerator / squared } else { numerator / norm / norm }
}

/// `f − l`, clamped at 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap {
    /// `max(f − l, 0)`.
    pub value: f64,
    /// Whether the loss was below the bound.
    pub below: bool,
}

/// The answer of a rule: `x_{t+1} = from − size · gradient at from`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The step size.
    pub size: f64,
    /// The point that the step starts from.
    pub from: Point,
    /// What the loop should count and report.
    pub kind: StepKind,
}

/// The point that a step starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u64)] // As wide as the numbers beside it: see `StepKind`.
pub enum Point {
    /// The point just observed.
    Here,
    /// The best iterate so far (ties go to the later one).
    Best,
    /// `x_0`.
    Origin,
}

/// Whether a step is an ordinary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "kebab-case")]
// As wide as the numbers beside it: bytes that are written one by one and copied eight at a time make the CPU wait, about 5 ns a step.
#[repr(u64)]
pub enum StepKind {
    /// The formula's value.
    Regular,
    /// The gradient was 0: the size is 0.
    Stationary,
    /// The loss was below the rule's lower bound: the numerator was clamped at 0.
    BelowBound,
}

impl Step {
    /// The step at a stationary point.
    pub const STATIONARY: Step = Step { size: 0.0, from: Point::Here, kind: StepKind::Stationary };

    /// A step of this size from the point just observed.
    ///
    /// # Errors
    /// Refuses a size that is not finite, is negative, or is above [`Observation::max_size`].
    #[inline]
    pub fn new(size: f64, seen: &Observation) -> Result<Step, Refusal> {
        if (0.0..=f64::MAX).contains(&size) && size <= seen.max_size {
            Ok(Step { size, from: Point::Here, kind: StepKind::Regular })
        } else {
            Err(seen.overflow(size))
        }
    }

    /// The same step, marked when its numerator was clamped.
    #[inline]
    pub fn mark(mut self, gap: Gap) -> Step {
        if gap.below {
            self.kind = StepKind::BelowBound;
        }
        self
    }

    /// The same step, from another point.
    #[inline]
    pub fn starting_at(mut self, point: Point) -> Step {
        self.from = point;
        self
    }
}

/// Why a method made no step. Its state is what it was before.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[non_exhaustive]
pub enum Refusal {
    /// The loss is NaN or infinite.
    #[error("step {step}: the loss is {loss}")]
    Loss { step: u64, loss: f64 },
    /// The gradient's norm is NaN, infinite or negative.
    #[error("step {step}: the gradient's norm is {grad_norm}")]
    Gradient { step: u64, grad_norm: f64 },
    /// The gradient's norm is finite, and its square is not a number that the parameters can hold.
    #[error(
        "step {step}: the gradient's norm is {grad_norm:e}, too large to be squared; clip it or begin nearer"
    )]
    TooLarge { step: u64, grad_norm: f64 },
    /// Another measured value is NaN or infinite.
    #[error("step {step}: {what} is {value}")]
    NotFinite { step: u64, what: &'static str, value: f64 },
    /// The observation lacks what the method [needs](StepRule::needs): `what` is the field of [`Needs`].
    #[error("step {step}: the method needs `{what}`, and the observation does not have it")]
    Missing { step: u64, what: &'static str },
    /// The formula's value, or the length of its step, cannot be held by the floats of the parameters. A loss that is not known is NaN.
    #[error("step {step}: the step size is {size:e} (loss {loss:e}, gradient norm {grad_norm:e})")]
    Overflow { step: u64, loss: f64, grad_norm: f64, size: f64 },
    /// An [option](crate::StepOptions) of the step cannot be used.
    #[error("step {step}: the option `{what}` is {value}; it must be {must}")]
    Option { step: u64, what: &'static str, value: f64, must: &'static str },
    /// The run is longer than the horizon that the method was made for.
    #[error("step {step}: the method was made for {horizon} steps; {remedy}")]
    PastHorizon { step: u64, horizon: u64, remedy: &'static str },
}

impl Refusal {
    /// Whether the loss, the gradient or another measured value is not finite.
    pub fn is_not_finite(&self) -> bool {
        matches!(self, Refusal::Loss { .. } | Refusal::Gradient { .. } | Refusal::NotFinite { .. })
    }
}
