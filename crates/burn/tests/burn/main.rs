//! `untuned-burn` in one program: each would have all of Burn in it.

#![allow(clippy::unwrap_used)]

#[path = "../../../untuned/tests/official/cases.rs"]
mod cases;

mod batches;
mod contract;
mod devices;
mod golden;
mod half;
mod options;
mod own;
mod readme;
mod reference;
mod resume;
mod scales;
mod scheduler;
mod support;
mod tied;
