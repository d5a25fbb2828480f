//! Experiments with [`untuned`]: traces, figures, reports, and the paper's experiments.

pub mod bench;
pub mod figure;
pub mod report;
pub mod runs;
pub mod sweep;
pub mod synthetic;
pub mod trace;
pub mod train;
