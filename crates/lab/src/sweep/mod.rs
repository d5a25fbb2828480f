//! Many runs of one experiment: a grid of parameters × seeds × methods from one file, worked off by processes side by side.
//!
//! The way through: [`Plan`] (the file becomes a list of trials, each a function of its index) → [`work`] (processes that each run
//! [`run_trial`]) → the trials' folders, which are those of ordinary runs, below [`TRIALS`].

mod plan;
mod trial;
mod workers;

pub(crate) use plan::plan_file;
pub use plan::{Plan, PlanError, Trial, planned};
pub use trial::{Failure, State, Tail, folder, recorded, run_trial, state, tail};
pub use workers::{BUSY, Progress, work};

/// The folder of the trials' folders.
pub const TRIALS: &str = "trials";
/// Why a trial failed, in its folder.
pub const FAILURE: &str = "failure.json";
/// What a sweep's folder is for.
pub const PLAN: &str = "plan.json";
