//! GPT after nanoGPT: pre-LayerNorm blocks without biases, exact GELU, the head tied to the embedding of the characters.

use super::{Feed, Network, Noise};
use crate::arena::{Initial, Layout, View};
use crate::device::{
    Activation, Attention, Columns, Device, DeviceError, Dropout, Embedding, Head, Heads, Kind, Linear, Norm,
    Write,
};

/// The sizes of a GPT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GptShape {
    /// Different ids.
    pub vocabulary: usize,
    /// Positions that it sees.
    pub context: usize,
    /// Blocks of attention and MLP.
    pub blocks: usize,
    /// The width of the stream.
    pub width: usize,
    /// Heads of each attention.
    pub heads: usize,
    /// The probability of dropout everywhere.
    pub dropout: f32,
}

impl GptShape {
    /// The shape that a CPU trains in a minute.
    pub const TINY: GptShape =
        GptShape { vocabulary: 65, context: 64, blocks: 4, width: 128, heads: 4, dropout: 0.0 };
    /// The shape for a laptop.
    pub const SMALL: GptShape =
        GptShape { vocabulary: 65, context: 128, blocks: 6, width: 256, heads: 8, dropout: 0.2 };
    /// The paper's, and nanoGPT's for Shakespeare.
    pub const PAPER: GptShape =
        GptShape { vocabulary: 65, context: 256, blocks: 6, width: 384, heads: 6, dropout: 0.2 };

    /// Its parameters, without a device.
    pub fn layout(&self) -> Layout {
        self.views().0
    }

    fn views(&self) -> (Layout, Views) {
        let GptShape { vocabulary, context, blocks, width, .. } = *self;
        let mut layout = Layout::default();
        let normal = Initial::Normal(0.02);
        // Projections into the stream: there are two a block, and their variances add up.
        let residual = Initial::Normal(0.02 / (2.0 * blocks as f64).sqrt());
        let token = layout.matrix("token", vocabulary, width, normal);
        let position = layout.matrix("position", context, width, normal);
        let blocks: Vec<Block> = (0..blocks)
            .map(|index| {
                let mut matrix = |name: &str, rows, columns, initial| {
                    Linear::plain(layout.matrix(format!("blocks.{index}.{name}"), rows, columns, initial))
                };
                let qkv = matrix("attention.qkv", 3 * width, width, normal);
                let projection = matrix("attention.projection", width, width, residual);
                let up = matrix("mlp.up", 4 * width, width, normal);
                let down = matrix("mlp.down", width, 4 * width, residual);
                let mut norm = |name: &str| {
                    layout.vector(format!("blocks.{index}.{name}"), width, Initial::Constant(1.0))
                };
                Block {
                    attention_norm: norm("attention.norm"),
                    qkv,
                    projection,
                    mlp_norm: norm("mlp.norm"),
                    up: Linear { activation: Activation::Gelu, ..up },
                    down,
                }
            })
            .collect();
        let norm = layout.vector("norm", width, Initial::Constant(1.0));
        (layout, Views { token, position, blocks, norm })
    }

    /// Dropout at a site: 0 is the embedding; block `i` has 3i + 1 on the attention's weights, 3i + 2 on its branch and 3i + 3 on
    /// the MLP's.
    fn dropout(&self, site: usize, noise: Option<Noise>) -> Dropout {
        Noise::dropout(noise, site, self.dropout, usize::MAX)
    }
}

const NORM: Norm = Norm::Layer { epsilon: 1e-5 };

/// The parameters of a block.
#[derive(Debug, Clone, Copy)]
struct Block {
    attention_norm: View,
    qkv: Linear,
    projection: Linear,
    mlp_norm: View,
    up: Linear,
    down: Linear,
}

/// Where the parameters stand.
struct Views {
    token: View,
    position: View,
    blocks: Vec<Block>,
    norm: View,
}

/// What the backward pass needs of a block.
struct Saved<D: Device> {
    attention_in: D::Buffer,
    attention_statistics: D::Buffer,
    qkv: D::Buffer,
    logs: D::Buffer,
    attended: D::Buffer,
    /// The stream between attention and MLP.
    middle: D::Buffer,
    mlp_in: D::Buffer,
    mlp_statistics: D::Buffer,
    before: D::Buffer,
    up: D::Buffer,
    /// The stream after the block.
    out: D::Buffer,
}

/// A GPT on a device.
pub struct Gpt<D: Device> {
    shape: GptShape,
    layout: Layout,
    views: Views,
    saved: Vec<Saved<D>>,
    inputs: D::Ids,
    targets: D::Ids,
    /// The stream before the first block.
    stream: D::Buffer,
    /// Forward, a branch's output on its way into the stream; backward, the gradient of a branch.
    branch: D::Buffer,
    head_in: D::Buffer,
    head_statistics: D::Buffer,
    d_stream: D::Buffer,
    d_narrow: D::Buffer,
    d_wide: D::Buffer,
}

impl<D: Device> Gpt<D> {
    /// With buffers for batches of up to `batch` windows.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn new(device: &D, shape: GptShape, batch: usize) -> Result<Self, DeviceError> {
        let GptShape { context, width, heads, .. } = shape;
        let (layout, views) = shape.views();
        let rows = batch * context;
        let buffer = |columns: usize| device.buffer(rows * columns, Kind::Activation);
        let statistics = |columns: usize| device.buffer(rows * columns, Kind::Statistic);
        let saved = views
            .blocks
            .iter()
            .map(|_| {
                Ok(Saved {
                    attention_in: buffer(width)?,
                    attention_statistics: statistics(2)?,
                    qkv: buffer(3 * width)?,
                    logs: statistics(heads)?,
                    attended: buffer(width)?,
                    middle: buffer(width)?,
                    mlp_in: buffer(width)?,
                    mlp_statistics: statistics(2)?,
                    before: buffer(4 * width)?,
                    up: buffer(4 * width)?,
                    out: buffer(width)?,
                })
            })
            .collect::<Result<_, DeviceError>>()?;
        Ok(Self {
            shape,
            layout,
            views,
            saved,
            inputs: device.ids(rows)?,
            targets: device.ids(rows)?,
            stream: buffer(width)?,
            branch: buffer(width)?,
            head_in: buffer(width)?,
            head_statistics: statistics(2)?,
            d_stream: buffer(width)?,
            d_narrow: buffer(width)?,
            d_wide: buffer(4 * width)?,
        })
    }

    fn embedding(&self, length: usize, noise: Option<Noise>) -> Embedding {
        Embedding {
            table: self.views.token,
            positions: Some((self.views.position, length)),
            row_dropout: Dropout::NONE,
            dropout: self.shape.dropout(0, noise),
        }
    }

    fn attention(&self, batch: usize, length: usize, dropout: Dropout) -> (Attention, Heads) {
        let GptShape { width, heads, .. } = self.shape;
        let part = |index: usize| Columns { offset: index * width, stride: 3 * width };
        let attention = Attention {
            batch,
            heads,
            width: width / heads,
            queries: length,
            keys: length,
            causal: true,
            scale: 1.0 / ((width / heads) as f64).sqrt(),
            dropout,
        };
        (attention, Heads { q: part(0), k: part(1), v: part(2) })
    }

    fn head(&self) -> Head {
        Head { weight: self.views.token, bias: None, into: Write::Set }
    }

    /// Up to the input of the head, which is left in `head_in`.
    fn forward(&mut self, device: &D, inputs: &[u32], batch: usize, noise: Option<Noise>, x: &D::Parameters) {
        let (rows, length) = (inputs.len(), inputs.len() / batch);
        device.set_ids(&mut self.inputs, inputs);
        device.embedding(&self.embedding(length, noise), rows, x, &self.inputs, &mut self.stream);
        for index in 0..self.views.blocks.len() {
            let [on_weights, on_attention] = [1, 2].map(|site| self.shape.dropout(3 * index + site, noise));
            let (attention, heads) = self.attention(batch, length, on_weights);
            let block = self.views.blocks[index];
            let (before, rest) = self.saved.split_at_mut(index);
            let saved = &mut rest[0];
            match before.last_mut() {
                None => device.add_norm(
                    NORM,
                    block.attention_norm,
                    rows,
                    x,
                    &self.stream,
                    None,
                    &mut saved.attention_in,
                    &mut saved.attention_statistics,
                ),
                Some(last) => device.add_norm(
                    NORM,
                    block.attention_norm,
                    rows,
                    x,
                    &last.middle,
                    Some((&self.branch, self.shape.dropout(3 * index, noise), &mut last.out)),
                    &mut saved.attention_in,
                    &mut saved.attention_statistics,
                ),
            }
            device.linear(&block.qkv, rows, x, &saved.attention_in, &mut saved.qkv, None);
            let qkv = &saved.qkv;
            device.attention(&attention, heads, qkv, qkv, None, &mut saved.attended, &mut saved.logs);
            device.linear(&block.projection, rows, x, &saved.attended, &mut self.branch, None);
            device.add_norm(
                NORM,
                block.mlp_norm,
                rows,
                x,
                before.last().map_or(&self.stream, |last| &last.out),
                Some((&self.branch, on_attention, &mut saved.middle)),
                &mut saved.mlp_in,
                &mut saved.mlp_statistics,
            );
            device.linear(&block.up, rows, x, &saved.mlp_in, &mut saved.up, Some(&mut saved.before));
            device.linear(&block.down, rows, x, &saved.up, &mut self.branch, None);
        }
        let last = self.views.blocks.len() - 1;
        let dropout = self.shape.dropout(3 * last + 3, noise);
        let saved = &mut self.saved[last];
        let branch = Some((&self.branch, dropout, &mut saved.out));
        let (out, statistics) = (&mut self.head_in, &mut self.head_statistics);
        device.add_norm(NORM, self.views.norm, rows, x, &saved.middle, branch, out, statistics);
    }

    /// From the gradient of the head's input, in `d_narrow`, to those of all parameters.
    fn backward(
        &mut self,
        device: &D,
        rows: usize,
        batch: usize,
        noise: Option<Noise>,
        x: &D::Parameters,
        dx: &mut D::Parameters,
    ) {
        let (length, width) = (rows / batch, self.shape.width);
        device.clear_buffer(rows * width, &mut self.d_stream);
        let last = self.views.blocks.len() - 1;
        device.add_norm_backward(
            NORM,
            self.views.norm,
            rows,
            x,
            &self.saved[last].out,
            &self.head_statistics,
            &self.d_narrow,
            dx,
            &mut self.d_stream,
            Some((&mut self.branch, self.shape.dropout(3 * last + 3, noise))),
        );
        for index in (0..self.views.blocks.len()).rev() {
            let [on_weights, on_attention] = [1, 2].map(|site| self.shape.dropout(3 * index + site, noise));
            let (attention, heads) = self.attention(batch, length, on_weights);
            let block = self.views.blocks[index];
            let (before, rest) = self.saved.split_at_mut(index);
            let saved = &mut rest[0];
            let (wide, narrow) = (&mut self.d_wide, &mut self.d_narrow);
            device.linear_backward(
                &block.down,
                rows,
                x,
                &saved.up,
                None,
                &self.branch,
                dx,
                Some((wide, Write::Set)),
            );
            let d_in = Some((&mut *narrow, Write::Set));
            device.linear_backward(
                &block.up,
                rows,
                x,
                &saved.mlp_in,
                Some(&mut saved.before),
                wide,
                dx,
                d_in,
            );
            device.add_norm_backward(
                NORM,
                block.mlp_norm,
                rows,
                x,
                &saved.middle,
                &saved.mlp_statistics,
                narrow,
                dx,
                &mut self.d_stream,
                Some((&mut self.branch, on_attention)),
            );
            let d_in = Some((&mut *narrow, Write::Set));
            device.linear_backward(&block.projection, rows, x, &saved.attended, None, &self.branch, dx, d_in);
            let (qkv, out, logs) = (&saved.qkv, &saved.attended, &saved.logs);
            device.attention_backward(&attention, heads, qkv, qkv, None, out, logs, narrow, wide, None, None);
            let d_in = Some((&mut *narrow, Write::Set));
            device.linear_backward(&block.qkv, rows, x, &saved.attention_in, None, wide, dx, d_in);
            let (stream, d_branch) = match index {
                0 => (&self.stream, None),
                _ => (&before[index - 1].out, Some((&mut self.branch, self.shape.dropout(3 * index, noise)))),
            };
            device.add_norm_backward(
                NORM,
                block.attention_norm,
                rows,
                x,
                stream,
                &saved.attention_statistics,
                narrow,
                dx,
                &mut self.d_stream,
                d_branch,
            );
        }
        device.embedding_backward(&self.embedding(length, noise), rows, &self.inputs, &self.d_stream, dx);
    }
}

impl<D: Device> Network<D> for Gpt<D>
where
    D::Buffer: Send,
    D::Ids: Send,
{
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn gradient(
        &mut self,
        device: &D,
        feed: Feed<'_>,
        noise: Option<Noise>,
        x: &D::Parameters,
        dx: &mut D::Parameters,
        scalars: &mut D::Scalars,
    ) {
        let rows = feed.inputs.len();
        self.forward(device, feed.inputs, feed.batch, noise, x);
        device.set_ids(&mut self.targets, feed.targets);
        let head = self.head();
        let gradient = Some((&mut self.d_narrow, &mut *dx));
        device.head(&head, rows, x, &self.head_in, &self.targets, scalars, 0, gradient);
        self.backward(device, rows, feed.batch, noise, x, dx);
    }

    fn loss(&mut self, device: &D, feed: Feed<'_>, x: &D::Parameters, scalars: &mut D::Scalars) {
        self.forward(device, feed.inputs, feed.batch, None, x);
        device.set_ids(&mut self.targets, feed.targets);
        device.head(&self.head(), feed.inputs.len(), x, &self.head_in, &self.targets, scalars, 0, None);
    }

    fn next_logits(
        &mut self,
        device: &D,
        inputs: &[u32],
        x: &D::Parameters,
        logits: &mut [f32],
    ) -> Result<(), DeviceError> {
        let seen = &inputs[inputs.len().saturating_sub(self.shape.context)..];
        self.forward(device, seen, 1, None, x);
        device.logits(&self.head(), seen.len() - 1, x, &self.head_in, logits)
    }
}
