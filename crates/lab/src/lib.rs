//! Experiments with [`untuned`]: traces, figures, reports, and the paper's experiments.

pub mod bench;
pub mod claims;
pub mod figure;
pub mod live;
pub mod report;
pub mod runs;
pub mod sweep;
pub mod synthetic;
pub mod trace;
pub mod traces;
pub mod train;
