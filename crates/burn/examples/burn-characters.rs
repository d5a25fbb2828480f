//! A small model of text that reads 16 characters and says the next: with and without a learning rate, side by side.
//!
//! `cargo run --release -p untuned-burn --example burn-characters [TEXT.txt]`
//!
//! Without a file it reads the repository's Apache licence. The last tenth of the text is kept for the test.

mod models;
mod shared;

use models::Characters;
use shared::{Way, compare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?,
        None => include_str!("../../../LICENSE-APACHE").to_string(),
    };
    let data = Characters::new(&text)?;
    let model = data.network();
    println!(
        "Text of {} characters, {} of them different; batches of 64, 800 steps.\n",
        data.len(),
        data.kinds()
    );
    let ways = [
        Way::Untuned("inexact-polyak"),
        Way::Untuned("level-polyak"),
        Way::Untuned("polyak-adam"),
        Way::Untuned("prodigy"),
        Way::AdamW(0.0001),
        Way::AdamW(0.001),
        Way::AdamW(0.01),
    ];
    compare(&model, 800, &ways, |model, step| data.loss(model, step, 64), |model| data.judge(model))?;
    Ok(())
}
