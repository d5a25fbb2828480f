//! Training without tuning: the step size and the clipping threshold set themselves.
//!
//! In a loop of your own, a [`Session`] makes the steps:
//!
//! ```
//! use untuned::prelude::*;
//!
//! let steps = 300;
//! let method = PolyakAdam::default().build(&RunInfo::new(steps))?; // no learning rate, no clipping, no warm-up
//! let mut session = Session::new(method, DenseF64::new(2))?;
//! let mut x = vec![3.0, -2.0];
//! for _ in 0..steps {
//!     let loss = x[0] * x[0] + 10.0 * x[1] * x[1];
//!     let gradient = vec![2.0 * x[0], 20.0 * x[1]];
//!     session.advance(loss, &mut x, &gradient)?;
//! }
//! assert!(x[0].abs() < 0.1 && x[1].abs() < 0.1, "{x:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`minimize()`] is the whole loop for a function:
//!
//! ```
//! use untuned::prelude::*;
//!
//! // The quartic of the paper with L0 = 1 and L1 = 1000; its minimum is 1.
//! let problem = Function::new(vec![5.0], |x, gradient| {
//!     gradient[0] = 1e6 / 18.0 * x[0].powi(3) + x[0] / 2.0;
//!     1e6 / 72.0 * x[0].powi(4) + x[0].powi(2) / 4.0 + 1.0
//! });
//! let rule = InexactPolyak::default().build(&RunInfo::new(10_000))?;
//! let run = minimize(&problem, rule, &problem.start(), 10_000)?;
//! assert!(run.best.loss - 1.0 < 0.02);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`rules`]: every scalar step-size rule, one file each; [`StepRule`] is the interface to write your own.
//! - [`optimizers`]: methods that keep vectors beside the parameters, such as AdamW and Prodigy; [`Optimizer`] is their interface.
//! - [`MethodSpec`]: any of them by a text, such as `prodigy:d0=1e-5`; [`catalog()`] lists all.
//! - [`Session`]: drives a method over the vectors of a [`Space`]: plain ones ([`DenseF64`]), a GPU's, a framework's tensors.
//! - [`formula`]: what a pass over vectors computes, written once for all devices.
//!
//! The methods implement "Parameter-free Clipped Gradient Descent Meets Polyak" (Takezawa et al., NeurIPS 2024), all that it is
//! compared with, and the family of methods that find their own rate. The crate `untuned-theory` has the paper's theory and test
//! problems.

#[macro_use]
pub mod parameters;

pub mod average;
pub mod catalog;
pub mod formula;
pub mod interpreter;
pub mod made_for;
pub mod minimize;
pub mod optimizer;
pub mod optimizers;
pub mod problem;
pub mod rule;
pub mod rules;
pub mod session;
pub mod slices;
pub mod space;
pub mod spec;
pub mod vector;

pub use average::Average;
pub use catalog::{MethodSpec, catalog};
pub use made_for::MadeFor;
pub use minimize::{Minimizer, Outcome, Run, minimize};
pub use optimizer::{Optimizer, SessionError, StateVector, StepContext, StepOptions, Vectors};
pub use optimizers::Method;
pub use parameters::{RunInfo, Running};
pub use problem::{Function, Known, Problem};
pub use rule::{Needs, Observation, Point, Refusal, Step, StepKind, StepRule};
pub use rules::Rule;
pub use session::{Report, Session, SessionState};
pub use space::{DenseF64, Space};
pub use spec::SpecError;

/// What most programs need: the methods, the session, and `minimize`.
pub mod prelude {
    pub use crate::optimizers::*;
    pub use crate::rules::*;
    pub use crate::{
        Average, DenseF64, Function, MethodSpec, Needs, Observation, Problem, Refusal, Report, RunInfo,
        Session, SessionError, Space, StateVector, Step, StepContext, StepOptions, StepRule, Vectors,
        minimize,
    };
}

/// The examples in the README and in CONTRIBUTING compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../CONTRIBUTING.md")]
mod documents {}
