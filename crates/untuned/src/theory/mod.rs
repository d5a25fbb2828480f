//! The paper's theory as functions: what it assumes, what it proves, and what a run makes of both.
//!
//! - [`inequalities`](assumption_1): every assumption, lemma and proposition as a [`Check`] of two numbers.
//! - [`bounds`](theorem_1): every convergence bound as a [`Bound`] with the iterate that it speaks of.
//! - [`Probe`]: local smoothness along a run, and the clipped gradient descent that it amounts to.
//! - [`Explainer`]: an observer that does all of this along a run and renders it as text.
//!
//! Numbering as in the compiled paper: Theorems 1–5, Propositions 1–3, Lemmas 1–6, Assumptions 1–2.
//!
//! ```
//! use untuned::theory::Explainer;
//! use untuned::{Minimizer, Problem, RuleSpec, Setting, problems::Quartic};
//!
//! let problem = Quartic::new(1.0, 10.0, 5.0, 1.0);
//! let spec: RuleSpec = "inexact-polyak".parse()?;
//! let mut rule = spec.build(&Setting::of(&problem, 1000))?;
//! let mut explainer = Explainer::new(&problem, &spec, 0.0, 1000);
//! let run = Minimizer::new(&problem).observe(&mut explainer).run(&mut rule, &problem.start(), 1000)?;
//! let explanation = explainer.finish(&run);
//! assert!(explanation.inequalities.iter().all(|tally| tally.violated == 0));
//! println!("{}", explanation.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bounds;
mod explain;
mod inequalities;
mod probe;
mod render;

pub use bounds::{
    Bound, Constants, Origin, Quantity, Speaks, adasps_rate, decsps_rate, lemma_4, polyak_lipschitz,
    polyak_strongly_convex, theorem_1, theorem_1_rule, theorem_2, theorem_2_rule, theorem_3, theorem_4,
    theorem_5,
};
pub use explain::{Accuracy, Explainer, Explanation, Judged, Judgement, StepSizes, Tally};
pub use inequalities::{
    Check, Gap, Pair, Verdict, assumption_1, assumption_2, lemma_1, lemma_2, lemma_6, proposition_1,
    proposition_2, proposition_3, proposition_3_pair,
};
pub use probe::{Clipping, Line, Probe, Reading, Regression};
