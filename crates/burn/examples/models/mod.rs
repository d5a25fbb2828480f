//! The data and the networks of the examples.

#![allow(dead_code)] // Each example uses one of them.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Int, Tensor, TensorData};

fn device() -> Device {
    Device::flex().autodiff()
}

fn integers(numbers: Vec<i64>) -> Tensor<1, Int> {
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), &device())
}

/// The loss and how often the most likely class is the right one.
fn judged(logits: Tensor<2>, targets: Tensor<1, Int>) -> (f64, f64) {
    let [count, _] = logits.dims();
    let right = logits.clone().argmax(1).reshape([count]).equal(targets.clone()).int().sum();
    let loss = CrossEntropyLossConfig::new().init(&device()).forward(logits, targets);
    (loss.into_scalar::<f64>(), right.into_scalar::<i64>() as f64 / count as f64)
}

/// A row of pseudo-random numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end
    }
}

/// Two layers.
#[derive(Module, Debug)]
pub struct Network {
    first: Linear,
    relu: Relu,
    second: Linear,
}

impl Network {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.second.forward(self.relu.forward(self.first.forward(x)))
    }
}

/// The digits of `smartcore`.
pub struct Digits {
    train: Vec<([f32; 64], i64)>,
    test: Vec<([f32; 64], i64)>,
}

impl Digits {
    pub fn load() -> Digits {
        let data = smartcore::dataset::digits::load_dataset();
        let mut digits = Digits { train: Vec::new(), test: Vec::new() };
        for (i, (points, &class)) in data.data.chunks(64).zip(&data.target).enumerate() {
            let mut picture = [0.0; 64];
            picture.iter_mut().zip(points).for_each(|(to, &point)| *to = point / 16.0);
            let part = if i % 5 == 0 { &mut digits.test } else { &mut digits.train };
            part.push((picture, class as i64));
        }
        digits
    }

    pub fn network(&self, width: usize) -> Network {
        device().seed(1);
        let first = LinearConfig::new(64, width).init(&device());
        let network =
            Network { first, relu: Relu::new(), second: LinearConfig::new(width, 10).init(&device()) };
        // Weights are made when they are first used.
        self.judge(&network);
        network
    }

    fn batch(&self, items: impl Iterator<Item = ([f32; 64], i64)>) -> (Tensor<2>, Tensor<1, Int>) {
        let (pictures, classes): (Vec<[f32; 64]>, Vec<i64>) = items.unzip();
        let shape = [pictures.len(), 64];
        (Tensor::from_data(TensorData::new(pictures.concat(), shape), &device()), integers(classes))
    }

    pub fn loss(&self, model: &Network, step: usize, batch: usize) -> Tensor<1> {
        let mut numbers = Numbers(step as u64 + 1);
        let (x, y) = self.batch((0..batch).map(|_| self.train[numbers.below(self.train.len())]));
        CrossEntropyLossConfig::new().init(&device()).forward(model.forward(x), y)
    }

    pub fn judge(&self, model: &Network) -> (f64, f64) {
        let (x, y) = self.batch(self.test.iter().copied());
        judged(model.forward(x), y)
    }
}

/// Characters that are read to say the next one.
const CONTEXT: usize = 16;

/// The vectors of the characters, and two layers.
#[derive(Module, Debug)]
pub struct Reader {
    embedding: Embedding,
    network: Network,
}

impl Reader {
    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        self.network.forward(self.embedding.forward(ids).flatten(1, 2))
    }
}

/// A text as numbers of characters.
pub struct Characters {
    ids: Vec<i64>,
    kinds: usize,
    /// Where the test begins.
    end: usize,
}

impl Characters {
    pub fn new(text: &str) -> Result<Characters, String> {
        let mut kinds: Vec<char> = text.chars().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let id = |c: char| kinds.binary_search(&c).map_or(0, |at| at as i64);
        let ids: Vec<i64> = text.chars().map(id).collect();
        if ids.len() < 1000 {
            return Err(format!("the text has {} characters; give one of at least 1,000", ids.len()));
        }
        Ok(Characters { end: ids.len() * 9 / 10, kinds: kinds.len(), ids })
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn kinds(&self) -> usize {
        self.kinds
    }

    pub fn network(&self) -> Reader {
        device().seed(1);
        let network = Network {
            first: LinearConfig::new(CONTEXT * 24, 192).init(&device()),
            relu: Relu::new(),
            second: LinearConfig::new(192, self.kinds).init(&device()),
        };
        let reader = Reader { embedding: EmbeddingConfig::new(self.kinds, 24).init(&device()), network };
        // Weights are made when they are first used.
        self.judge(&reader);
        reader
    }

    fn batch(&self, starts: impl Iterator<Item = usize>) -> (Tensor<2, Int>, Tensor<1, Int>) {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for start in starts {
            x.extend(&self.ids[start..start + CONTEXT]);
            y.push(self.ids[start + CONTEXT]);
        }
        (integers(x).reshape([y.len(), CONTEXT]), integers(y))
    }

    pub fn loss(&self, model: &Reader, step: usize, batch: usize) -> Tensor<1> {
        let mut numbers = Numbers(step as u64 + 1);
        let (x, y) = self.batch((0..batch).map(|_| numbers.below(self.end - CONTEXT)));
        CrossEntropyLossConfig::new().init(&device()).forward(model.forward(x), y)
    }

    pub fn judge(&self, model: &Reader) -> (f64, f64) {
        // At most 1,000 places, evenly over the test.
        let places = self.ids.len() - CONTEXT - self.end;
        let every = places.div_ceil(1000);
        let (x, y) = self.batch((self.end..self.end + places).step_by(every));
        judged(model.forward(x), y)
    }
}
