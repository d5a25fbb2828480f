//! What a step costs beside Burn's own SGD: whole training steps (forward, backward, update) of the examples' networks, in one run.
//!
//! `cargo run --release -p untuned-burn --example burn-overhead [ROUNDS]`
//!
//! Every round makes the same steps in every way, one after the other; a ratio is taken within a round, and the median over the rounds is
//! printed. So a machine that is busy for a while changes little.

mod models;

use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams, SgdConfig};
use burn::tensor::Tensor;
use models::{Characters, Digits};
use untuned_burn::{Rate, StepError, Stepper};

/// Steps of one way in one round.
const STEPS: usize = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(60), |rounds| rounds.parse())?;
    if rounds == 0 {
        return Err("0 rounds measure nothing; give at least 1".into());
    }
    let digits = Digits::load();
    let model = digits.network(128);
    println!("Digits, batches of 128, {} parameters", model.num_params());
    measure(&model, rounds, |model, step| digits.loss(model, step, 128))?;
    let text = Characters::new(include_str!("../../../LICENSE-APACHE"))?;
    let model = text.network();
    println!("\nCharacters, batches of 64, {} parameters", model.num_params());
    measure(&model, rounds, |model, step| text.loss(model, step, 64))?;
    Ok(())
}

fn measure<M: Module>(
    model: &M,
    rounds: usize,
    loss: impl Fn(&M, usize) -> Tensor<1>,
) -> Result<(), StepError> {
    let steps = (rounds * STEPS) as u64;
    let mut sgd = SgdConfig::new().init();
    let mut adamw = AdamWConfig::new().init();
    let mut steppers = Vec::new();
    for spec in ["inexact-polyak", "dog", "adamw", "polyak-adam", "prodigy"] {
        steppers.push((spec, Stepper::new(spec, steps)?));
    }
    let mut rate = Rate::new("inexact-polyak", steps)?;
    let mut models = vec![Some(model.clone()); steppers.len() + 3];
    let names: Vec<String> = ["Burn's SGD", "Burn's AdamW", "inexact-polyak as scheduler"]
        .into_iter()
        .chain(steppers.iter().map(|(spec, _)| *spec))
        .map(str::to_string)
        .collect();
    let mut ms: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for round in 0..rounds {
        // The order turns from round to round.
        for way in (0..names.len()).map(|way| (way + round) % names.len()) {
            let Some(mut model) = models[way].take() else { unreachable!("put back below") };
            let begin = Instant::now();
            for step in round * STEPS..(round + 1) * STEPS {
                let loss = loss(&model, step);
                let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
                match way {
                    0 => model = sgd.step(0.01, model, gradients),
                    1 => model = adamw.step(0.001, model, gradients),
                    2 => {
                        rate.observe(&model, &loss, &mut gradients);
                        model = sgd.step(rate.step(), model, gradients);
                    }
                    _ => drop(steppers[way - 3].1.step(loss, &mut model, gradients)?),
                }
            }
            ms[way].push(begin.elapsed().as_secs_f64() * 1e3 / STEPS as f64);
            models[way] = Some(model);
        }
    }
    println!("{:<28} {:>10} {:>14} {:>18}", "update", "ms a step", "ratio to SGD", "least to greatest");
    for (name, times) in names.iter().zip(&ms) {
        let ratios: Vec<f64> = times.iter().zip(&ms[0]).map(|(time, sgd)| time / sgd).collect();
        let (least, median, greatest) = spread(ratios);
        let range = format!("{least:.3} to {greatest:.3}");
        println!("{name:<28} {:>10.3} {median:>14.3} {range:>18}", spread(times.clone()).1);
    }
    Ok(())
}

fn spread(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    (numbers[0], numbers[numbers.len() / 2], numbers[numbers.len() - 1])
}
