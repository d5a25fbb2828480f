//! Handwritten digits, side by side: methods without a learning rate, and Candle's own optimizers at three rates each.
//!
//! `cargo run --release -p untuned-candle --example candle-digits`

mod shared;

use shared::{Method, digits::Digits, race};

fn main() -> candle_core::Result<()> {
    println!("8×8 digits, 1438 to learn from and 359 to test; 64-256-128-10, batch 64, 1000 steps\n");
    let methods = [
        Method::Untuned("inexact-polyak"),
        Method::Untuned("polyak-adam"),
        Method::Untuned("prodigy"),
        Method::Sgd(0.01),
        Method::Sgd(0.1),
        Method::Sgd(1.0),
        Method::AdamW(0.0001),
        Method::AdamW(0.001),
        Method::AdamW(0.01),
    ];
    race(&Digits::new()?, &methods, 1000)
}
