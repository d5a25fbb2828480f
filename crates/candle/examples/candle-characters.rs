//! A small transformer on the characters of a text, side by side: methods without a learning rate, and Candle's own optimizers at
//! three rates each.
//!
//! `RAYON_NUM_THREADS=1 cargo run --release -p untuned-candle --example candle-characters [TEXT FILE]`; without a file it is the Apache
//! license. On a busy machine Candle's threads wait for each other in products as small as these: one is the quicker.

mod shared;

use shared::{Method, characters::Characters, race};

fn main() -> candle_core::Result<()> {
    let text = match std::env::args().nth(1) {
        Some(path) => {
            std::fs::read_to_string(&path).map_err(|error| candle_core::Error::from(error).with_path(path))?
        }
        None => include_str!("../../../LICENSE-APACHE").to_string(),
    };
    let task = Characters::new(&text)?;
    let (kinds, count) = task.size();
    println!("{count} characters of {kinds} kinds; one block of width 64, context 32, batch 16, 300 steps\n");
    let methods = [
        Method::Untuned("inexact-polyak"),
        Method::Untuned("polyak-adam"),
        Method::Untuned("prodigy"),
        Method::Sgd(0.01),
        Method::Sgd(0.1),
        Method::Sgd(1.0),
        Method::AdamW(0.0003),
        Method::AdamW(0.003),
        Method::AdamW(0.03),
    ];
    race(&task, &methods, 300)
}
