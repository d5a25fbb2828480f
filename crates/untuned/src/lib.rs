//! Training without tuning: the step size and the clipping threshold set themselves.
//!
//! ```
//! use untuned::{Function, Problem, RuleSpec, Setting, minimize};
//!
//! // The paper's quartic with L0 = 1 and L1 = 1000; its minimum is 1.
//! let problem = Function::new(vec![5.0], |x, gradient| {
//!     gradient[0] = 1e6 / 18.0 * x[0].powi(3) + x[0] / 2.0;
//!     1e6 / 72.0 * x[0].powi(4) + x[0].powi(2) / 4.0 + 1.0
//! });
//! let spec: RuleSpec = "inexact-polyak".parse()?;
//! let mut rule = spec.build(&Setting::new(10_000))?;
//! let run = minimize(&problem, &mut rule, &problem.start(), 10_000)?;
//! assert!(run.best.loss - 1.0 < 0.02, "no learning rate, no clipping threshold");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`rules`]: every step-size rule, one file each; [`StepRule`] is the interface to write your own.
//! - [`optimizers`]: methods that keep vectors beside the parameters, such as AdamW, and the vectors that they work on.
//! - [`Problem`]: a function to minimise, with what is known of it; [`Function`] wraps a closure.
//! - [`minimize()`]: the deterministic loop with trace, best iterate and average iterate.
//!
//! The crate `untuned-theory` has test problems and the paper's theory.

pub mod average;
pub mod minimize;
pub mod optimizers;
pub mod problem;
pub mod rule;
pub mod rules;
pub mod spec;
pub mod vector;

pub use minimize::{Minimizer, Outcome, Run, minimize};
pub use optimizers::OptimizerSpec;
pub use problem::{Function, Known, Problem};
pub use rule::{Needs, Observation, Point, Refusal, Step, StepKind, StepRule};
pub use rules::{Rule, RuleSpec, Setting};
pub use spec::SpecError;

/// The examples in the README and in CONTRIBUTING compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../CONTRIBUTING.md")]
mod documents {}
