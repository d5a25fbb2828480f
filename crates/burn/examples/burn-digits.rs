//! Handwritten digits: a small network with and without a learning rate, side by side.
//!
//! `cargo run --release -p untuned-burn --example burn-digits`
//!
//! The 1,797 pictures of 8×8 points ship with `smartcore`; every fifth is kept for the test.

mod models;
mod shared;

use models::Digits;
use shared::{Way, compare};

fn main() -> Result<(), untuned_burn::StepError> {
    let data = Digits::load();
    let model = data.network(128);
    println!("Digits: a network of 64, 128 and 10 units, batches of 128, 1,000 steps.\n");
    let ways = [
        Way::Untuned("inexact-polyak"),
        Way::Untuned("level-polyak"),
        Way::Untuned("polyak-adam"),
        Way::Untuned("prodigy"),
        Way::Sgd(0.01),
        Way::Sgd(0.1),
        Way::Sgd(1.0),
    ];
    compare(&model, 1000, &ways, |model, step| data.loss(model, step, 128), |model| data.judge(model))
}
