//! `untuned-candle` in one program: each would have all of Candle in it.

#![allow(clippy::unwrap_used)]

#[path = "../../../untuned/tests/official/cases.rs"]
mod cases;

mod golden;
mod gradients;
mod own;
mod readme;
mod reference;
mod refusals;
mod resume;
mod scales;
mod support;
mod variables;
