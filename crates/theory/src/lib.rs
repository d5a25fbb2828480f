//! The theory behind [`untuned`]: convex test problems, and the paper as functions: what it assumes, what it proves, and
//! what a run makes of both.
//!
//! - [`problems`]: test problems with what is known of them.
//! - [`inequalities`]: every assumption, lemma and proposition as a [`Check`](inequalities::Check) of two numbers.
//! - [`bounds`]: every convergence bound as a [`Bound`](bounds::Bound) with the iterate that it speaks of.
//! - [`probe`]: local smoothness along a run, and the clipped gradient descent that it amounts to.
//! - [`explain`]: an observer that does all of this along a run and renders it as text.
//!
//! Numbering as in the compiled paper: Theorems 1–5, Propositions 1–3, Lemmas 1–6, Assumptions 1–2.
//!
//! ```
//! use untuned::{MethodSpec, Minimizer, Problem, RunInfo};
//! use untuned_theory::{Explainer, problems::Quartic};
//!
//! let problem = Quartic::new(1.0, 10.0, 5.0, 1.0);
//! let spec: MethodSpec = "inexact-polyak".parse()?;
//! let mut rule = spec.build_rule(&RunInfo::of(&problem, 1000))?;
//! let mut explainer = Explainer::new(&problem, &spec, 0.0, 1000);
//! let run = Minimizer::new(&problem).observe(&mut explainer).run(&mut rule, &problem.start(), 1000)?;
//! let explanation = explainer.finish(&run);
//! assert!(explanation.inequalities.iter().all(|tally| tally.violated == 0));
//! println!("{}", explanation.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bounds;
pub mod explain;
pub mod inequalities;
pub mod probe;
pub mod problems;
mod render;
mod vector;

pub use explain::{Explainer, Explanation};
pub use probe::Probe;
pub use problems::ProblemSpec;
