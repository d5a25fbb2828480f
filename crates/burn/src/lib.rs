#![doc = include_str!("../README.md")]

mod accumulated;
mod error;
mod module;
mod rate;
mod reads;
mod record;
mod space;
mod stepper;
mod tensors;

pub use accumulated::{Accumulated, agreed};
pub use error::StepError;
pub use module::tie;
pub use rate::Rate;
pub use stepper::{Report, Stepper};
