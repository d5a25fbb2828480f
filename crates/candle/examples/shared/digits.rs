//! Handwritten digits of 8×8 pixels, the data that ships with `smartcore`, and a network of three layers.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder, linear, loss};

use super::{Random, Task};

const PIXELS: usize = 64;
const DIGITS: usize = 10;
const BATCH: usize = 64;

pub struct Digits {
    train: (Tensor, Tensor),
    test: (Tensor, Tensor),
}

impl Digits {
    /// All pictures; every fifth is for the test.
    pub fn new() -> Result<Digits> {
        let data = smartcore::dataset::digits::load_dataset();
        let part = |test: bool| -> Result<(Tensor, Tensor)> {
            let is = |i: &usize| (i % 5 == 4) == test;
            let chosen: Vec<usize> = (0..data.num_samples).filter(is).collect();
            let row = |&i: &usize| data.data[PIXELS * i..PIXELS * (i + 1)].iter().map(|pixel| pixel / 16.0);
            let pixels: Vec<f32> = chosen.iter().flat_map(row).collect();
            let digits: Vec<u32> = chosen.iter().map(|&i| data.target[i] as u32).collect();
            let pixels = Tensor::from_vec(pixels, (chosen.len(), PIXELS), &Device::Cpu)?;
            Ok((pixels, Tensor::from_vec(digits, chosen.len(), &Device::Cpu)?))
        };
        Ok(Digits { train: part(false)?, test: part(true)? })
    }
}

impl Task for Digits {
    type Model = [Linear; 3];

    fn model(&self, builder: VarBuilder) -> Result<[Linear; 3]> {
        Ok([
            linear(PIXELS, 256, builder.pp("first"))?,
            linear(256, 128, builder.pp("second"))?,
            linear(128, DIGITS, builder.pp("last"))?,
        ])
    }

    fn loss(&self, model: &[Linear; 3], random: &mut Random) -> Result<Tensor> {
        let (pixels, digits) = &self.train;
        let chosen: Vec<u32> = (0..BATCH).map(|_| random.below(digits.elem_count()) as u32).collect();
        let chosen = Tensor::from_vec(chosen, BATCH, &Device::Cpu)?;
        let answers = forward(model, &pixels.index_select(&chosen, 0)?)?;
        loss::cross_entropy(&answers, &digits.index_select(&chosen, 0)?)
    }

    fn test(&self, model: &[Linear; 3]) -> Result<(f32, f32)> {
        let (pixels, digits) = &self.test;
        let answers = forward(model, pixels)?;
        let right = answers.argmax(D::Minus1)?.eq(digits)?.to_dtype(DType::F32)?.mean_all()?.to_scalar()?;
        Ok((loss::cross_entropy(&answers, digits)?.to_scalar()?, right))
    }
}

fn forward([first, second, last]: &[Linear; 3], pixels: &Tensor) -> Result<Tensor> {
    last.forward(&second.forward(&first.forward(pixels)?.relu()?)?.relu()?)
}
