//! What the examples have in common: numbers that repeat, two tasks, and a race of methods over the same batches.

#![allow(dead_code)]

pub mod characters;
pub mod digits;

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Optimizer, SGD, VarBuilder, VarMap};
use untuned_candle::{Config, Untuned};

/// SplitMix64. Candle's own numbers cannot be repeated on the CPU.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From −1 to 1.
    pub fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// A network, and what it is trained and tested on.
pub trait Task {
    type Model;

    /// The network, with its variables in the builder.
    fn model(&self, builder: VarBuilder) -> Result<Self::Model>;

    /// The loss of a batch.
    fn loss(&self, model: &Self::Model, random: &mut Random) -> Result<Tensor>;

    /// The loss of all that the training has not seen, and the part of it that is answered right.
    fn test(&self, model: &Self::Model) -> Result<(f32, f32)>;
}

/// A network with its first weights: uniform within ±1/√inputs for matrices, as the seed has them; 1 for scales, 0 for other vectors.
pub fn begin<T: Task>(task: &T, seed: u64) -> Result<(VarMap, T::Model)> {
    let variables = VarMap::new();
    let model = task.model(VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
    let mut random = Random::new(seed);
    let mut all: Vec<_> = match variables.data().lock() {
        Ok(data) => data.clone().into_iter().collect(),
        Err(_) => Vec::new(),
    };
    all.sort_by(|a, b| a.0.cmp(&b.0));
    for (_, var) in all.iter().filter(|(_, var)| var.rank() == 2) {
        let bound = (var.dims()[1] as f32).sqrt().recip();
        let numbers: Vec<f32> = (0..var.elem_count()).map(|_| bound * random.signed()).collect();
        var.set(&Tensor::from_vec(numbers, var.shape(), &Device::Cpu)?)?;
    }
    for (name, var) in all.iter().filter(|(_, var)| var.rank() < 2) {
        var.set(&if name.ends_with("scale") { var.ones_like()? } else { var.zeros_like()? })?;
    }
    Ok((variables, model))
}

/// What the network is trained with.
#[derive(Clone, Copy)]
pub enum Method {
    Untuned(&'static str),
    Sgd(f64),
    AdamW(f64),
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Method::Untuned(spec) => write!(f, "untuned {spec}"),
            Method::Sgd(lr) => write!(f, "Candle's SGD, rate {lr}"),
            Method::AdamW(lr) => write!(f, "Candle's AdamW, rate {lr}"),
        }
    }
}

/// Trains with each method, from the same weights and over the same batches, and prints a row for each.
pub fn race<T: Task>(task: &T, methods: &[Method], steps: u64) -> Result<()> {
    println!("{:<28} {:>12} {:>10} {:>10} {:>10}", "method", "train loss", "test loss", "right", "ms a step");
    for method in methods {
        let (variables, model) = begin(task, 1)?;
        let (loss, time) = match *method {
            Method::Untuned(spec) => {
                let mut optimizer = Untuned::of(&variables, Config::new(spec, steps)?)?;
                let result = train(task, &model, &mut optimizer, steps)?;
                optimizer.finish()?;
                result
            }
            Method::Sgd(lr) => train(task, &model, &mut SGD::new(variables.all_vars(), lr)?, steps)?,
            Method::AdamW(lr) => train(task, &model, &mut AdamW::new_lr(variables.all_vars(), lr)?, steps)?,
        };
        let (test, right) = task.test(&model)?;
        let (right, time) = (100.0 * right, 1e3 * time.as_secs_f64() / steps as f64);
        println!("{:<28} {loss:>12.4} {test:>10.4} {right:>8.1} % {time:>10.3}", method.to_string());
    }
    Ok(())
}

/// The mean loss of the last twentieth of the batches, and how long it took.
fn train<T: Task, O: Optimizer>(
    task: &T,
    model: &T::Model,
    optimizer: &mut O,
    steps: u64,
) -> Result<(f32, Duration)> {
    let mut random = Random::new(2);
    let begin = Instant::now();
    let (mut sum, mut count) = (0.0, 0);
    for step in 0..steps {
        let loss = task.loss(model, &mut random)?;
        optimizer.backward_step(&loss)?;
        if step >= steps - steps.div_ceil(20) {
            sum += loss.to_scalar::<f32>()?;
            count += 1;
        }
    }
    Ok((sum / count as f32, begin.elapsed()))
}
