//! Training without tuning for [Burn](burn): any rule or optimizer of [`untuned`] makes the steps of a module.
//!
//! ```
//! # use burn::{nn::LinearConfig, optim::GradientsParams, tensor::{Device, Tensor}};
//! use untuned_burn::Stepper;
//!
//! # fn main() -> Result<(), untuned_burn::StepError> {
//! # let device = Device::flex().autodiff();
//! # let mut model = LinearConfig::new(2, 1).init(&device);
//! # let x = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, -1.0]], &device);
//! # let mut losses = Vec::new();
//! let mut stepper = Stepper::new("inexact-polyak", 100)?; // no learning rate; 100 steps
//! # for _ in 0..100 {
//! let loss = (model.forward(x.clone()) - 1.0).square().mean();
//! let grads = GradientsParams::from_grads(loss.backward(), &model);
//! let report = stepper.step(loss, &mut model, grads)?; // a refused step leaves the model as it was
//! # losses.push(report.loss);
//! # }
//! # assert!(losses[99] < 0.1 * losses[0] && losses.len() == 100);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Stepper`]: makes the steps in a loop of your own, with every method.
//! - [`Rate`]: a learning-rate scheduler for Burn's own `Learner`, with every scalar rule that does not jump back.
//! - [`Accumulated`]: several batches, or several replicas, in one step.
//!
//! All formulas are the library's. Here are only the vectors that they work on: the parameters of a module, each one once.

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

/// The example in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
