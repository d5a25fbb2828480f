//! A text, and a small transformer that guesses its next character.

use candle_core::{D, DType, Device, Result, Tensor, bail};
use candle_nn::{Embedding, Linear, Module, VarBuilder, embedding, linear, loss, ops};

use super::{Random, Task};

const CONTEXT: usize = 32;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const BLOCKS: usize = 1;
const BATCH: usize = 16;

pub struct Characters {
    /// Of each character the number of its kind.
    train: Vec<u32>,
    test: Vec<u32>,
    kinds: usize,
    /// −∞ where a character would see a later one.
    mask: Tensor,
}

pub struct Model {
    characters: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
}

struct Block {
    before: Norm,
    attention: Linear,
    mix: Linear,
    after: Norm,
    wide: Linear,
    narrow: Linear,
}

/// Candle's own has no gradient where it is fused: `layer_norm_slow` has.
struct Norm {
    scale: Tensor,
    shift: Tensor,
}

impl Norm {
    fn new(builder: VarBuilder) -> Result<Norm> {
        Ok(Norm { scale: builder.get(WIDTH, "scale")?, shift: builder.get(WIDTH, "shift")? })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm_slow(x, &self.scale, &self.shift, 1e-5)
    }
}

impl Characters {
    /// The last tenth of the text is for the test.
    pub fn new(text: &str) -> Result<Characters> {
        let mut kinds: Vec<char> = text.chars().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let numbers: Vec<u32> =
            text.chars().map(|c| kinds.binary_search(&c).map_or(0, |number| number as u32)).collect();
        let (train, test) = numbers.split_at(numbers.len() / 10 * 9);
        if test.len() <= CONTEXT {
            bail!("the text has {} characters; give one of at least {}", numbers.len(), 10 * (CONTEXT + 2));
        }
        let see = |i: usize| (0..CONTEXT).map(move |j| if j > i { f32::NEG_INFINITY } else { 0.0 });
        let mask: Vec<f32> = (0..CONTEXT).flat_map(see).collect();
        let mask = Tensor::from_vec(mask, (CONTEXT, CONTEXT), &Device::Cpu)?;
        Ok(Characters { train: train.to_vec(), test: test.to_vec(), kinds: kinds.len(), mask })
    }

    /// How many kinds of characters there are, and how many to learn from.
    pub fn size(&self) -> (usize, usize) {
        (self.kinds, self.train.len())
    }

    /// The answers for pieces of a text that begin at these places, and what comes next in truth.
    fn answers(&self, model: &Model, text: &[u32], places: &[usize]) -> Result<(Tensor, Tensor)> {
        let piece = |shift: usize| {
            let numbers: Vec<u32> =
                places.iter().flat_map(|&i| &text[i + shift..i + shift + CONTEXT]).copied().collect();
            Tensor::from_vec(numbers, (places.len(), CONTEXT), &Device::Cpu)
        };
        let mut x = model.characters.forward(&piece(0)?)?.broadcast_add(model.places.embeddings())?;
        for block in &model.blocks {
            x = (&x + self.attend(block, &block.before.forward(&x)?)?)?;
            let hidden = block.wide.forward(&block.after.forward(&x)?)?.relu()?;
            x = (x + block.narrow.forward(&hidden)?)?;
        }
        let answers = model.head.forward(&model.norm.forward(&x)?)?;
        Ok((answers.flatten_to(1)?, piece(1)?.flatten_all()?))
    }

    fn attend(&self, block: &Block, x: &Tensor) -> Result<Tensor> {
        let (batch, size) = (x.dim(0)?, WIDTH / HEADS);
        let all = block.attention.forward(x)?.reshape((batch, CONTEXT, 3, HEADS, size))?;
        let part = |i: usize| all.narrow(2, i, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (query, key, value) = (part(0)?, part(1)?, part(2)?);
        let scores = (query.matmul(&key.t()?.contiguous()?)? * (size as f64).sqrt().recip())?;
        let weights = ops::softmax(&scores.broadcast_add(&self.mask)?, D::Minus1)?;
        block.mix.forward(&weights.matmul(&value)?.transpose(1, 2)?.reshape((batch, CONTEXT, WIDTH))?)
    }
}

impl Task for Characters {
    type Model = Model;

    fn model(&self, builder: VarBuilder) -> Result<Model> {
        let block = |i: usize| {
            let builder = builder.pp(format!("blocks.{i}"));
            Ok(Block {
                before: Norm::new(builder.pp("before"))?,
                attention: linear(WIDTH, 3 * WIDTH, builder.pp("attention"))?,
                mix: linear(WIDTH, WIDTH, builder.pp("mix"))?,
                after: Norm::new(builder.pp("after"))?,
                wide: linear(WIDTH, 4 * WIDTH, builder.pp("wide"))?,
                narrow: linear(4 * WIDTH, WIDTH, builder.pp("narrow"))?,
            })
        };
        Ok(Model {
            characters: embedding(self.kinds, WIDTH, builder.pp("characters"))?,
            places: embedding(CONTEXT, WIDTH, builder.pp("places"))?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_>>()?,
            norm: Norm::new(builder.pp("norm"))?,
            head: linear(WIDTH, self.kinds, builder.pp("head"))?,
        })
    }

    fn loss(&self, model: &Model, random: &mut Random) -> Result<Tensor> {
        let places: Vec<usize> = (0..BATCH).map(|_| random.below(self.train.len() - CONTEXT)).collect();
        let (answers, truth) = self.answers(model, &self.train, &places)?;
        loss::cross_entropy(&answers, &truth)
    }

    fn test(&self, model: &Model) -> Result<(f32, f32)> {
        let places: Vec<usize> = (0..self.test.len() - CONTEXT).step_by(CONTEXT).take(64).collect();
        let (answers, truth) = self.answers(model, &self.test, &places)?;
        let right = answers.argmax(D::Minus1)?.eq(&truth)?.to_dtype(DType::F32)?.mean_all()?.to_scalar()?;
        Ok((loss::cross_entropy(&answers, &truth)?.to_scalar()?, right))
    }
}
