//! Training without tuning for [Candle](candle_core): any method of [`untuned`], or one of your own, as a [`candle_nn::Optimizer`].
//!
//! - [`Untuned`]: the optimizer. [`Untuned::of`] takes a `VarMap`, [`Untuned::backward_step`] the loss.
//! - [`Config`]: the method, and what is put around a step.
//! - [`Report`]: what a step was.
//! - [`Error`]: why there was none.

mod config;
mod error;
mod fused;
mod optimizer;
mod space;
mod state;
mod tensors;
mod variables;

pub use config::Config;
pub use error::{Error, Kind};
pub use optimizer::Untuned;
pub use untuned::Report;

/// The examples in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod documents {}
