//! The encoder or the decoder: functions that each add to a stream.
//!
//! `s_0` = embedding, `s_{i+1} = s_i + f_i(norm_i(s_i))`, and the output is `norm_n(s_n)`.

use super::T5Shape;
use crate::arena::View;
use crate::device::{
    Attention, Columns, Device, DeviceError, Dropout, Embedding, Heads, Kind, Linear, Norm, RelativeBias,
    Write,
};

const NORM: Norm = Norm::Rms { epsilon: 1e-6 };
/// Distances from here on share a bucket.
const MAX_DISTANCE: usize = 128;

/// How many texts, and how many tokens each has.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub batch: usize,
    pub length: usize,
}

impl Sizes {
    pub fn of(ids: &[u32], batch: usize) -> Self {
        Self { batch, length: ids.len() / batch }
    }

    pub fn rows(&self) -> usize {
        self.batch * self.length
    }
}

/// The parameters of one `f_i`.
#[derive(Debug, Clone, Copy)]
pub enum Function {
    /// `softmax(q·kᵀ + bias)·v`, and a product back into the stream. Where there is no `kv`, keys and values are of the stream
    /// itself and `q` gives queries, keys and values side by side; else they are of the encoder's output, without a bias.
    Attention { q: Linear, kv: Option<Linear>, out: Linear },
    /// `W_o·(gelu(W_0·x) ∘ W_1·x)`.
    FeedForward { up: Linear, down: Linear },
}

/// The parameters of a stack.
pub struct StackViews {
    pub relative_bias: View,
    /// One more than functions.
    pub norms: Vec<View>,
    pub functions: Vec<Function>,
}

/// What the backward pass needs of one norm.
struct Normed<D: Device> {
    weight: View,
    /// What is normalised.
    stream: D::Buffer,
    statistics: D::Buffer,
    out: D::Buffer,
}

/// A function and what its backward pass needs.
enum Sublayer<D: Device> {
    Attention {
        q: Linear,
        out: Linear,
        /// The queries, and in self-attention keys and values.
        queries: D::Buffer,
        /// Keys and values of the encoder's output.
        source: Option<(Linear, D::Buffer)>,
        logs: D::Buffer,
        attended: D::Buffer,
    },
    FeedForward {
        up: Linear,
        down: Linear,
        before: D::Buffer,
        gated: D::Buffer,
    },
}

/// Room that both stacks use in turn.
pub struct Work<D: Device> {
    /// Forward, a branch's output; backward, the gradient of what a function's first or last product reads.
    narrow: D::Buffer,
    /// The gradient of queries, keys and values side by side, or of a gate's output.
    wide: D::Buffer,
    /// The gradient of the encoder's keys and values.
    d_source: D::Buffer,
}

impl<D: Device> Work<D> {
    pub fn new(device: &D, shape: T5Shape, encoder: Sizes, decoder: Sizes) -> Result<Self, DeviceError> {
        let inner = shape.inner();
        let rows = encoder.rows().max(decoder.rows());
        let buffer = |rows: usize, columns: usize| device.buffer(rows * columns, Kind::Activation);
        Ok(Self {
            narrow: buffer(rows, inner.max(shape.width))?,
            wide: buffer(rows, shape.feed_forward.max(3 * inner))?,
            d_source: buffer(encoder.rows(), 2 * inner)?,
        })
    }
}

/// A stack on a device.
pub struct Stack<D: Device> {
    shape: T5Shape,
    /// The decoder looks only back; the encoder both ways.
    causal: bool,
    relative_bias: View,
    embedding: Embedding,
    norms: Vec<Normed<D>>,
    sublayers: Vec<Sublayer<D>>,
    ids: D::Ids,
    /// The bias of every head and offset, the same in all layers; its gradient is their sum.
    bias: D::Buffer,
    d_bias: D::Buffer,
    d_stream: D::Buffer,
    /// The gradient of the output.
    d_out: D::Buffer,
}

impl<D: Device> Stack<D> {
    /// With buffers for texts of `sizes`, and for a decoder those of the `source`.
    pub fn new(
        device: &D,
        shape: T5Shape,
        views: StackViews,
        embedding: View,
        sizes: Sizes,
        source: Option<Sizes>,
    ) -> Result<Self, DeviceError> {
        let T5Shape { width, heads, .. } = shape;
        let (rows, inner) = (sizes.rows(), shape.inner());
        let buffer = |columns: usize| device.buffer(rows * columns, Kind::Activation);
        let statistics = |len: usize| device.buffer(len, Kind::Statistic);
        let normed = |&weight: &View| {
            let (stream, out) = (buffer(width)?, buffer(width)?);
            Ok(Normed { weight, stream, statistics: statistics(2 * rows)?, out })
        };
        let sublayer = |&function: &Function| {
            Ok(match function {
                Function::Attention { q, kv, out } => Sublayer::Attention {
                    q,
                    out,
                    queries: buffer(q.outputs())?,
                    source: match (kv, source) {
                        (Some(kv), Some(source)) => {
                            Some((kv, device.buffer(source.rows() * kv.outputs(), Kind::Activation)?))
                        }
                        _ => None,
                    },
                    logs: statistics(heads * rows)?,
                    attended: buffer(inner)?,
                },
                Function::FeedForward { up, down } => Sublayer::FeedForward {
                    up,
                    down,
                    before: buffer(2 * shape.feed_forward)?,
                    gated: buffer(shape.feed_forward)?,
                },
            })
        };
        let biases = heads * (2 * sizes.length - 1);
        Ok(Self {
            shape,
            causal: source.is_some(),
            relative_bias: views.relative_bias,
            embedding: Embedding {
                table: embedding,
                positions: None,
                row_dropout: Dropout::NONE,
                dropout: Dropout::NONE,
            },
            norms: views.norms.iter().map(normed).collect::<Result<_, DeviceError>>()?,
            sublayers: views.functions.iter().map(sublayer).collect::<Result<_, DeviceError>>()?,
            ids: device.ids(rows)?,
            bias: statistics(biases)?,
            d_bias: statistics(biases)?,
            d_stream: buffer(width)?,
            d_out: buffer(width)?,
        })
    }

    /// The output.
    pub fn out(&self) -> &D::Buffer {
        &self.norms[self.sublayers.len()].out
    }

    /// The output, and the buffer for its gradient.
    pub fn out_and_gradient(&mut self) -> (&D::Buffer, &mut D::Buffer) {
        (&self.norms[self.sublayers.len()].out, &mut self.d_out)
    }

    fn relative_bias(&self, length: usize) -> RelativeBias {
        RelativeBias {
            table: self.relative_bias,
            queries: length,
            keys: length,
            bidirectional: !self.causal,
            max_distance: MAX_DISTANCE,
        }
    }

    /// The output from `ids`; a decoder also needs the encoder's output and its sizes.
    pub fn forward(
        &mut self,
        device: &D,
        sizes: Sizes,
        ids: &[u32],
        source: Option<(&D::Buffer, Sizes)>,
        x: &D::Parameters,
        work: &mut Work<D>,
    ) {
        let rows = sizes.rows();
        let branch = &mut work.narrow;
        device.set_ids(&mut self.ids, ids);
        device.relative_bias(&self.relative_bias(sizes.length), x, &mut self.bias);
        let first = &mut self.norms[0];
        device.embedding(&self.embedding, rows, x, &self.ids, &mut first.stream);
        let Normed { weight, stream, statistics, out } = first;
        device.add_norm(NORM, *weight, rows, x, stream, None, out, statistics);
        for (index, sublayer) in self.sublayers.iter_mut().enumerate() {
            let (before, after) = self.norms.split_at_mut(index + 1);
            let (before, after) = (&before[index], &mut after[0]);
            match sublayer {
                Sublayer::Attention { q, out, queries, source: cross, logs, attended } => {
                    device.linear(q, rows, x, &before.out, queries, None);
                    match (cross, source) {
                        (Some((kv, projected)), Some((memory, from))) => {
                            let (layer, heads) = cross_attention(&self.shape, sizes, from);
                            device.linear(kv, from.rows(), x, memory, projected, None);
                            device.attention(&layer, heads, queries, projected, None, attended, logs);
                        }
                        _ => {
                            let (layer, heads) = self_attention(&self.shape, sizes, self.causal);
                            let bias = Some(&self.bias);
                            device.attention(&layer, heads, queries, queries, bias, attended, logs);
                        }
                    }
                    device.linear(out, rows, x, attended, branch, None);
                }
                Sublayer::FeedForward { up, down, before: gate, gated } => {
                    device.linear(up, rows, x, &before.out, gated, Some(gate));
                    device.linear(down, rows, x, gated, branch, None);
                }
            }
            let added = Some((&*branch, Dropout::NONE, &mut after.stream));
            let (out, statistics) = (&mut after.out, &mut after.statistics);
            device.add_norm(NORM, after.weight, rows, x, &before.stream, added, out, statistics);
        }
    }

    /// From the gradient of the output to those of the stack's parameters; adds to that of the embedding, and to that of the
    /// encoder's output.
    pub fn backward(
        &mut self,
        device: &D,
        sizes: Sizes,
        mut source: Option<(&D::Buffer, &mut D::Buffer, Sizes)>,
        x: &D::Parameters,
        dx: &mut D::Parameters,
        work: &mut Work<D>,
    ) {
        let rows = sizes.rows();
        let relative_bias = self.relative_bias(sizes.length);
        let Work { narrow, wide, d_source } = work;
        let d_stream = &mut self.d_stream;
        device.clear_buffer(rows * self.shape.width, d_stream);
        device.clear_buffer(self.shape.heads * relative_bias.offsets(), &mut self.d_bias);
        let Normed { weight, stream, statistics, .. } = &self.norms[self.sublayers.len()];
        device.add_norm_backward(NORM, *weight, rows, x, stream, statistics, &self.d_out, dx, d_stream, None);
        for (sublayer, normed) in self.sublayers.iter_mut().zip(&self.norms).rev() {
            match sublayer {
                Sublayer::Attention { q, out, queries, source: cross, logs, attended } => {
                    let d_attended = Some((&mut *narrow, Write::Set));
                    device.linear_backward(out, rows, x, attended, None, d_stream, dx, d_attended);
                    match (cross, &mut source) {
                        (Some((kv, projected)), Some((memory, d_memory, from))) => {
                            let (layer, heads) = cross_attention(&self.shape, sizes, *from);
                            device.attention_backward(
                                &layer,
                                heads,
                                queries,
                                projected,
                                None,
                                attended,
                                logs,
                                narrow,
                                wide,
                                Some(d_source),
                                None,
                            );
                            let d_memory = Some((&mut **d_memory, Write::Add));
                            device.linear_backward(kv, from.rows(), x, memory, None, d_source, dx, d_memory);
                        }
                        _ => {
                            let (layer, heads) = self_attention(&self.shape, sizes, self.causal);
                            device.attention_backward(
                                &layer,
                                heads,
                                queries,
                                queries,
                                Some(&self.bias),
                                attended,
                                logs,
                                narrow,
                                wide,
                                None,
                                Some(&mut self.d_bias),
                            );
                        }
                    }
                    let d_normed = Some((&mut *narrow, Write::Set));
                    device.linear_backward(q, rows, x, &normed.out, None, wide, dx, d_normed);
                }
                Sublayer::FeedForward { up, down, before, gated } => {
                    let d_gated = Some((&mut *wide, Write::Set));
                    device.linear_backward(down, rows, x, gated, None, d_stream, dx, d_gated);
                    let d_normed = Some((&mut *narrow, Write::Set));
                    device.linear_backward(up, rows, x, &normed.out, Some(before), wide, dx, d_normed);
                }
            }
            let Normed { weight, stream, statistics, .. } = normed;
            device.add_norm_backward(NORM, *weight, rows, x, stream, statistics, narrow, dx, d_stream, None);
        }
        device.relative_bias_backward(&relative_bias, &self.d_bias, dx);
        device.embedding_backward(&self.embedding, rows, &self.ids, d_stream, dx);
    }
}

/// Queries, keys and values side by side in one buffer.
fn self_attention(shape: &T5Shape, sizes: Sizes, causal: bool) -> (Attention, Heads) {
    let inner = shape.inner();
    let part = |index: usize| Columns { offset: index * inner, stride: 3 * inner };
    let heads = Heads { q: part(0), k: part(1), v: part(2) };
    (Attention { causal, ..attention(shape, sizes, sizes) }, heads)
}

/// Keys and values side by side in a buffer of their own.
fn cross_attention(shape: &T5Shape, sizes: Sizes, source: Sizes) -> (Attention, Heads) {
    let inner = shape.inner();
    let part = |index: usize| Columns { offset: index * inner, stride: 2 * inner };
    let heads = Heads { q: Columns { offset: 0, stride: inner }, k: part(0), v: part(1) };
    (attention(shape, sizes, source), heads)
}

fn attention(shape: &T5Shape, queries: Sizes, keys: Sizes) -> Attention {
    Attention {
        batch: queries.batch,
        heads: shape.heads,
        width: shape.head_width,
        queries: queries.length,
        keys: keys.length,
        causal: false,
        scale: 1.0,
        dropout: Dropout::NONE,
    }
}
