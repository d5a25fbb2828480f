//! Experiments with [`untuned`]: traces, figures, reports, and the paper's experiments.

pub mod archive;
pub mod bench;
pub mod claims;
pub mod compare;
pub mod figure;
pub mod live;
pub mod networks;
pub mod report;
pub mod runs;
pub mod sweep;
pub mod synthetic;
pub mod trace;
pub mod traces;
pub mod train;
