//! Training without tuning: the step size and the clipping threshold set themselves.
//!
//! ```
//! use untuned::{Problem, RuleSpec, Setting, minimize, problems::Quartic};
//!
//! let problem = Quartic::new(1.0, 1000.0, 5.0, 1.0);
//! let spec: RuleSpec = "inexact-polyak".parse()?;
//! let mut rule = spec.build(&Setting::of(&problem, 10_000))?;
//! let run = minimize(&problem, &mut rule, &problem.start(), 10_000)?;
//! assert!(run.best.loss - 1.0 < 0.02, "no learning rate, no clipping threshold");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`rules`]: every step-size rule, one file each; [`StepRule`] is the interface to write your own.
//! - [`optimizers`]: methods that keep vectors beside the parameters, such as AdamW, and the vectors that they work on.
//! - [`problems`]: test problems with what is known of them; [`problems::Function`] wraps a closure.
//! - [`minimize()`]: the deterministic loop with trace, best iterate and average iterate.
//! - [`theory`]: the paper's assumptions, lemmas, theorems and rates as functions, and a probe for local smoothness.

pub mod average;
pub mod minimize;
pub mod optimizers;
pub mod problem;
pub mod problems;
pub mod rule;
pub mod rules;
pub mod spec;
pub mod theory;
pub mod vector;

pub use minimize::{Minimizer, Outcome, Run, minimize};
pub use optimizers::OptimizerSpec;
pub use problem::{Known, Problem};
pub use problems::ProblemSpec;
pub use rule::{Needs, Observation, Point, Refusal, Step, StepKind, StepRule};
pub use rules::{Rule, RuleSpec, Setting};
pub use spec::SpecError;

/// The examples in the README and in CONTRIBUTING compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../CONTRIBUTING.md")]
mod documents {}
