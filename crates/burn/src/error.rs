//! Why a step was not made.

use burn::store::RecordError;
use burn::tensor::DType;
use thiserror::Error;
use untuned::{Refusal, SessionError, SpecError};

/// Why no step was made. The module and the method are as they were.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum StepError {
    /// The method's text is wrong, or the method needs something that was not given.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The method refuses the step: the loss or the gradient is not finite, or the formula's value is not.
    #[error("{0}; the module is as it was: leave this batch out, or look at its data")]
    Refused(#[from] Refusal),
    /// The loss is not one number.
    #[error("the loss has {numbers} numbers and not one; take its mean, and differentiate that")]
    Loss {
        /// How many it has.
        numbers: usize,
    },
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
        /// Its loss.
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
        /// Its type.
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
        /// Where it is now.
        found: String,
        /// Where it was.
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
    Clip {
        /// The method.
        method: String,
    },
    /// A number around a step makes no sense.
    #[error("{what} is {value}; it must be finite and {must}")]
    Setting {
        /// What was set.
        what: &'static str,
        /// The value.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// The rule jumps back to points that it keeps, which a rate alone cannot do.
    #[error(
        "`{rule}` jumps back to earlier points, which a learning rate cannot express; use `Stepper` for it"
    )]
    Jumps {
        /// The rule.
        rule: String,
    },
    /// The rule needs the parameters of the beginning, and a scheduler's record cannot hold them.
    #[error(
        "`{rule}` needs the parameters of the beginning after a record was loaded; call `Rate::start_from` with them"
    )]
    NoStart {
        /// The rule.
        rule: String,
    },
    /// A record has another layout.
    #[error(
        "the record was written by {} version (format {found}), and this one reads format {reads}",
        if found < reads { "an older" } else { "a newer" }
    )]
    Format {
        /// The number of its layout.
        found: u32,
        /// The number of the layout that is read here.
        reads: u32,
    },
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
