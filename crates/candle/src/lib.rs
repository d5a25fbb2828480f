//! Training without tuning for [Candle](candle_core): any rule and any optimizer of [`untuned`] as a [`candle_nn::Optimizer`].
//!
//! - [`Untuned`]: the optimizer. [`Untuned::of`] takes a `VarMap`, [`Untuned::backward_step`] the loss.
//! - [`Config`]: the method as a text, the number of steps, and what is put around a step.
//! - [`Report`]: what is to be said of a step.
//! - [`Error`]: why there was none.

mod config;
mod error;
mod fused;
mod optimizer;
mod report;
mod space;
mod state;
mod tensors;
mod variables;

pub use config::Config;
pub use error::{Error, Kind};
pub use optimizer::Untuned;
pub use report::Report;

/// The examples in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod documents {}
