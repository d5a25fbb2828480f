//! The three networks of the paper.

mod gpt;
mod lstm;
mod t5;

pub use gpt::{Gpt, GptShape};
pub use lstm::{Lstm, LstmShape};
pub use t5::{T5, T5Shape};

use crate::arena::Layout;
use crate::device::{Device, DeviceError, Dropout};
use crate::random::Site;

/// What a network is fed: GPT's windows and T5's texts row by row, the LSTM's sequences position by position.
#[derive(Debug, Clone, Copy)]
pub struct Feed<'a> {
    /// The ids that it sees.
    pub inputs: &'a [u32],
    /// The ids that it should predict.
    pub targets: &'a [u32],
    /// How many sequences they belong to.
    pub batch: usize,
}

/// The loss of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The mean cross-entropy.
    pub plain: f64,
    /// What is differentiated: with regularizers, where the network has them.
    pub objective: f64,
}

/// The randomness of one training step. Evaluation has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise {
    /// The run's seed.
    pub seed: u64,
    /// The step.
    pub step: u32,
}

/// The first site of dropout; each layer's is a number after it.
const DROPOUT: u32 = 0xD509_0000;

impl Noise {
    /// Dropout at the `index`-th site of a network.
    fn dropout(noise: Option<Noise>, index: usize, probability: f32, period: usize) -> Dropout {
        match noise {
            Some(Noise { seed, step }) if probability > 0.0 => {
                Dropout { site: Site { seed, site: DROPOUT + index as u32, step }, probability, period }
            }
            _ => Dropout::NONE,
        }
    }
}

/// How many scalars a network writes: the loss, and two regularizers.
pub const SCALARS: usize = 3;

/// A network on a device, with the buffers for its largest batch.
pub trait Network<D: Device>: Send {
    /// Its parameters.
    fn layout(&self) -> &Layout;

    /// The gradient of the batch's objective at `x` into `dx`, and the parts of the loss into the first [`SCALARS`] scalars. The
    /// carry moves on.
    fn gradient(
        &mut self,
        device: &D,
        feed: Feed<'_>,
        noise: Option<Noise>,
        x: &D::Parameters,
        dx: &mut D::Parameters,
        scalars: &mut D::Scalars,
    );

    /// The parts of the loss alone, without randomness. The carry moves on.
    fn loss(&mut self, device: &D, feed: Feed<'_>, x: &D::Parameters, scalars: &mut D::Scalars);

    /// What an encoder reads before [`Network::next_logits`] is asked for the decoder's answer; it is forgotten at the next
    /// gradient or loss. Networks without an encoder have no use for it.
    fn set_source(&mut self, _device: &D, _source: &[u32], _x: &D::Parameters) {}

    /// The logits of what follows the last position of `inputs`, for sampling: one sequence, without randomness. For T5, `inputs`
    /// is what the decoder has said so far, at first nothing.
    ///
    /// # Errors
    /// When the device fails.
    fn next_logits(
        &mut self,
        device: &D,
        inputs: &[u32],
        x: &D::Parameters,
        logits: &mut [f32],
    ) -> Result<(), DeviceError>;

    /// What is carried from batch to batch: the LSTM's hidden state. Others have none.
    ///
    /// # Errors
    /// When the device fails.
    fn carry(&self, _device: &D) -> Result<Vec<f32>, DeviceError> {
        Ok(Vec::new())
    }

    /// Replaces the carry; nothing stands for zeros.
    fn set_carry(&mut self, _device: &D, _carry: &[f32]) {}
}

/// The loss from the scalars that a network wrote.
pub fn loss_of(scalars: &[f64]) -> Loss {
    Loss { plain: scalars[0], objective: scalars[0] + scalars[1] + scalars[2] }
}
