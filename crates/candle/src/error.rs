use std::fmt;
use std::path::PathBuf;

use candle_core::{DType, DeviceLocation};
use thiserror::Error;
use untuned::{Refusal, SpecError};

/// Why there was no step, or no optimizer. Except for [`Error::Broken`], and for [`Error::Candle`] on a device that fails, nothing
/// has changed.
///
/// Through Candle's traits `?` makes this Candle's error. [`Error::of`] gets it back.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// There is no such method, or it lacks something.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A number of the configuration, or the learning rate that was set, cannot be used.
    #[error("{what} is {value}; it must be {want}")]
    Number {
        what: &'static str,
        value: f64,
        /// What would do.
        want: &'static str,
    },
    /// Clipping has no effect on this method.
    #[error(
        "`{method}` sees the gradient as it is, so that clipping has no effect: leave `clip` out, or choose another method"
    )]
    NoClipping { method: String },
    /// There is nothing to train.
    #[error("there are no variables to train: all are frozen or hold integers, or none were given")]
    NoVariables,
    /// Two variables have one name.
    #[error("two variables are called {name:?}: what is saved under a name must be one of them")]
    OneName { name: String },
    /// The variables are not finite.
    #[error("the norm of the variables is {norm}{}", because(names))]
    Start {
        norm: f64,
        /// Those that hold what is not finite.
        names: Vec<String>,
    },
    /// No variable has a name that is declared frozen.
    #[error("frozen: no variable is called {name:?} or begins with it and a dot; there are {}", list(known))]
    Frozen {
        /// What was declared.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The variables are not all of one kind.
    #[error(
        "{} is {} on {}, and {} is {} on {}: all variables that are trained must be of one dtype and on one device; freeze the others, or convert them",
        _0.name, _0.dtype.as_str(), device_name(&_0.device), _1.name, _1.dtype.as_str(), device_name(&_1.device)
    )]
    Mixed(Box<Kind>, Box<Kind>),
    /// A variable of numbers that cannot be trained.
    #[error("{name} is {}: only f64, f32, f16 and bf16 can be trained; freeze it, or convert it", dtype.as_str())]
    Dtype { name: String, dtype: DType },
    /// Variables got no gradient.
    #[error(
        "no gradient reached {}. Candle's fused `layer_norm`, `rms_norm`, `softmax_last_dim`, `rope` and `sdpa` have none and do not say so: \
         train with `layer_norm_slow`, `RmsNorm::forward_diff`, `softmax`, `rope_slow`. List variables to leave unchanged in `frozen`",
        list(names)
    )]
    NoGradient { names: Vec<String> },
    /// A gradient does not fit its variable.
    #[error("the gradient of {name} has the {what} {gradient}, the variable {variable}")]
    Gradient { name: String, what: &'static str, gradient: String, variable: String },
    /// The loss is not one number.
    #[error("the loss is {} of shape {shape:?}; it must be one floating-point number: take the mean", dtype.as_str())]
    Loss { shape: Vec<usize>, dtype: DType },
    /// The method needs the loss, and got only gradients.
    #[error(
        "`{method}` needs the loss, which `step` does not see: call `backward_step(&loss)`, or `step_with_loss(&gradients, &loss)`"
    )]
    LossNeeded { method: String },
    /// The method refused the step: a loss or a gradient is not finite, or too large, or the run is longer than it was made for.
    #[error("{refusal}{}", because(variables))]
    Refused {
        refusal: Refusal,
        /// The variables that are not finite, or whose gradients are not.
        variables: Vec<String>,
    },
    /// A step failed halfway, and cannot be taken back.
    #[error("an earlier step failed halfway on its device: load what was saved last")]
    Broken,
    /// A file cannot be written or read, or is of something else.
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    /// Candle could not do something.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}

/// A variable's name, dtype and device.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Kind {
    pub name: String,
    pub dtype: DType,
    pub device: DeviceLocation,
}

impl Error {
    /// The error of this crate that an error of Candle carries.
    pub fn of(error: &candle_core::Error) -> Option<&Error> {
        use candle_core::Error as Outer;
        match error {
            // Candle's `Context` puts any error there: Candle's, or this one as it is.
            Outer::WrappedContext { wrapped, .. } => {
                let ours = wrapped.downcast_ref::<Shown>().map(|shown| &shown.0);
                match (ours.or_else(|| wrapped.downcast_ref::<Error>()), wrapped.downcast_ref::<Outer>()) {
                    (Some(Error::Candle(inner)), _) | (None, Some(inner)) => Error::of(inner),
                    (ours, _) => ours,
                }
            }
            Outer::WithBacktrace { inner, .. }
            | Outer::WithPath { inner, .. }
            | Outer::Context { inner, .. } => Error::of(inner),
            _ => None,
        }
    }
}

/// Candle shows what it carries with `Debug`.
struct Shown(Error);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Shown {}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> candle_core::Error {
        match error {
            Error::Candle(error) => error,
            // Its `Wrapped` carries only a text.
            other => candle_core::Error::WrappedContext {
                wrapped: Box::new(Shown(other)),
                context: "untuned".into(),
            },
        }
    }
}

/// Names the variables at fault, where they are known.
fn because(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(", because of {}", list(names)) }
}

/// Names for a message: not hundreds of them.
fn list(names: &[String]) -> String {
    const MOST: usize = 12;
    let mut text = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += &format!(" and {} more", names.len() - MOST);
    }
    text
}

/// The name of a device, for messages.
pub(crate) fn device_name(device: &DeviceLocation) -> String {
    match device {
        DeviceLocation::Cpu => "the CPU".to_string(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
    }
}
