//! Why a step was not made.

use burn::store::RecordError;
use burn::tensor::DType;
use thiserror::Error;
use untuned::{Refusal, SessionError, SpecError};

/// Why no step was made. The module and the method are as they were.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum StepError {
    /// The method's text is wrong, or the method needs something that was not given.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The method refuses the step: the loss or the gradient is not finite, or the formula's value is not.
    #[error("{0}; the module is as it was: leave this batch out, or look at its data")]
    Refused(#[from] Refusal),
    /// The loss is not one number.
    #[error("the loss has {numbers} numbers and not one; take its mean, and differentiate that")]
    Loss { numbers: usize },
    /// Nothing was added up before the step.
    #[error("no batch was added before the step; call `Accumulated::add` for each")]
    NoBatch,
    /// Replicas have different losses, and would go apart.
    #[error(
        "replica {replica} has the loss {found} and replica 0 has {first}; give all of them the mean of all losses"
    )]
    Disagreement {
        /// The first replica that differs.
        replica: usize,
        found: f64,
        /// The loss of the first one.
        first: f64,
    },
    /// No parameter of the module has a gradient.
    #[error(
        "none of the module's {parameters} trainable parameters has a gradient; make the gradients with \
        `GradientsParams::from_grads(loss.backward(), &module)`, of this module"
    )]
    NoGradient {
        /// How many parameters require a gradient.
        parameters: usize,
    },
    /// A parameter is of a type that cannot be trained.
    #[error(
        "`{name}` is {dtype:?}; cast it to F32, F64, F16 or BF16 to train it, or freeze it with `no_grad`"
    )]
    Type {
        /// The parameter's path in the module.
        name: String,
        dtype: DType,
    },
    /// A gradient is of another type or shape than its parameter.
    #[error("`{name}` is {parameter} and its gradient {gradient}; both must be alike")]
    Gradient {
        /// The parameter's path in the module.
        name: String,
        /// Type and shape of the parameter.
        parameter: String,
        /// Type and shape of the gradient.
        gradient: String,
    },
    /// A parameter or its gradient is on another device than before.
    #[error(
        "`{name}` is on {found} and was on {expected}; save the state with `to_record`, move the module with `fork`, and load \
        the state into a new stepper"
    )]
    Device {
        /// The parameter's path in the module.
        name: String,
        found: String,
        expected: String,
    },
    /// The module is not the one of the steps before.
    #[error("the module is another one than before: {what}; a new stepper is needed for it")]
    Module {
        /// The first difference.
        what: String,
    },
    /// The method takes the gradient as it is.
    #[error("`{method}` takes the gradient as it is: clipping has no effect on it; leave `clip` out")]
    Clip { method: String },
    /// An option of the step cannot be used.
    #[error("{what} is {value}; it must be {must}")]
    Option { what: &'static str, value: f64, must: &'static str },
    /// The rule jumps back to points that it keeps, which a rate alone cannot do.
    #[error(
        "`{rule}` jumps back to earlier points, which a learning rate cannot express; use `Stepper` for it"
    )]
    Jumps { rule: String },
    /// The rule needs the initial parameters, and a scheduler's record cannot hold them.
    #[error(
        "`{rule}` needs the initial parameters, which a scheduler's record does not hold; call `Rate::start_from`"
    )]
    NoStart { rule: String },
    /// A record has another layout.
    #[error(
        "the record was written by {} version (format {found}), and this one reads format {reads}",
        if found < reads { "an older" } else { "a newer" }
    )]
    Format { found: u32, reads: u32 },
    /// A record does not fit.
    #[error("the record does not fit: {0}")]
    Record(String),
    /// The device could not be read.
    #[error("the device could not be read: {0}")]
    Read(String),
}

impl From<SessionError<StepError>> for StepError {
    fn from(error: SessionError<StepError>) -> StepError {
        match error {
            SessionError::Refused(refusal) => StepError::Refused(refusal),
            SessionError::Device(error) => error,
        }
    }
}

macro_rules! record_errors {
    ($($type:ty),*) => {
        $(impl From<$type> for StepError {
            fn from(error: $type) -> StepError {
                StepError::Record(error.to_string())
            }
        })*
    };
}

record_errors!(RecordError, burn_pack::Error, serde_json::Error);
