//! What a training step costs beside one with Candle's own optimizers: both in turns, in one run, on both examples.
//!
//! `RAYON_NUM_THREADS=1 cargo run --release -p untuned-candle --example candle-overhead`

mod shared;

use std::time::Instant;

use candle_core::Result;
use candle_nn::{AdamW, Optimizer, SGD};
use shared::{Random, Task, begin, characters::Characters, digits::Digits};
use untuned_candle::{Config, Untuned};

const ROUNDS: usize = 41;

fn main() -> Result<()> {
    println!(
        "{:<12} {:<16} {:>12} {:<8} {:>12} {:>8}",
        "task", "untuned", "ms a step", "Candle's", "ms a step", "ratio"
    );
    let digits = Digits::new()?;
    let characters = Characters::new(include_str!("../../../LICENSE-APACHE"))?;
    for (spec, peer) in
        [("inexact-polyak", "SGD"), ("dog", "SGD"), ("adamw", "AdamW"), ("polyak-adam", "AdamW")]
    {
        compare("digits", &digits, spec, peer, 40)?;
        compare("characters", &characters, spec, peer, 4)?;
    }
    Ok(())
}

fn compare<T: Task>(name: &str, task: &T, spec: &str, peer: &str, steps: usize) -> Result<()> {
    let (variables, model) = begin(task, 1)?;
    let [theirs, ours, ratio] = match peer {
        "SGD" => rounds(task, &model, SGD::new(variables.all_vars(), 0.05)?, spec, steps)?,
        _ => rounds(task, &model, AdamW::new_lr(variables.all_vars(), 0.001)?, spec, steps)?,
    };
    println!("{name:<12} {spec:<16} {ours:>12.3} {peer:<8} {theirs:>12.3} {ratio:>8.3}");
    Ok(())
}

/// Medians over the rounds: the time of a step of the peer, that of ours, and the ratio within a round.
fn rounds<T: Task, O: Optimizer>(
    task: &T,
    peer_model: &T::Model,
    mut peer: O,
    spec: &str,
    steps: usize,
) -> Result<[f64; 3]> {
    let (variables, model) = begin(task, 1)?;
    let mut untuned = Untuned::of(&variables, Config::new(spec, (steps * ROUNDS) as u64)?)?;
    let (mut peer_random, mut random) = (Random::new(2), Random::new(2));
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let mut one = || time(task, peer_model, &mut peer, &mut peer_random, steps);
        let mut two = || time(task, &model, &mut untuned, &mut random, steps);
        // Who is second finds a warmer machine: they take turns.
        let (theirs, ours) = if round % 2 == 0 {
            let theirs = one()?;
            (theirs, two()?)
        } else {
            let ours = two()?;
            (one()?, ours)
        };
        all.iter_mut().zip([theirs, ours, ours / theirs]).for_each(|(all, one)| all.push(one));
    }
    Ok(all.map(median))
}

/// Milliseconds of a step.
fn time<T: Task, O: Optimizer>(
    task: &T,
    model: &T::Model,
    optimizer: &mut O,
    random: &mut Random,
    steps: usize,
) -> Result<f64> {
    let begin = Instant::now();
    for _ in 0..steps {
        optimizer.backward_step(&task.loss(model, random)?)?;
    }
    Ok(1e3 * begin.elapsed().as_secs_f64() / steps as f64)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
