//! T5 v1.1: an encoder reads a text with gaps, and a decoder says what stood in them. No biases, no dropout, an untied head.

mod stack;

use super::{Feed, Network, Noise};
use crate::arena::{Initial, Layout, View};
use crate::device::{Activation, Device, DeviceError, Head, Linear, Write};
use stack::{Function, Sizes, Stack, StackViews, Work};

/// The sizes of a T5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct T5Shape {
    /// The number of different tokens.
    pub vocabulary: usize,
    /// The width of the streams.
    pub width: usize,
    /// Heads of each attention.
    pub heads: usize,
    /// The width of a head; all heads together need not be as wide as the stream.
    pub head_width: usize,
    /// The width between the two products of a feed-forward layer.
    pub feed_forward: usize,
    /// Layers of the encoder, and as many of the decoder.
    pub layers: usize,
    /// The most tokens that the encoder reads.
    pub inputs: usize,
    /// The most tokens that the decoder says.
    pub targets: usize,
}

/// Buckets of the relative positions.
const BUCKETS: usize = 32;
/// What the decoder sees in front of its first token: padding.
const START: u32 = 0;

impl T5Shape {
    /// The paper's width and two layers of each kind: its norms and first loss grow like the paper's.
    pub const TINY: T5Shape = T5Shape { vocabulary: 1_000, feed_forward: 256, layers: 2, ..T5Shape::PAPER };
    /// The shape for a laptop.
    pub const SMALL: T5Shape =
        T5Shape { vocabulary: 1_000, width: 256, heads: 4, feed_forward: 512, layers: 6, ..T5Shape::PAPER };
    /// The paper's: T5 v1.1 base.
    pub const PAPER: T5Shape = T5Shape {
        vocabulary: 32_128,
        width: 768,
        heads: 12,
        head_width: 64,
        feed_forward: 2048,
        layers: 12,
        inputs: 512,
        targets: 114,
    };

    /// Its parameters, without a device.
    pub fn layout(&self) -> Layout {
        self.views().0
    }

    fn views(&self) -> (Layout, Views) {
        let mut layout = Layout::default();
        let one = Initial::Normal(1.0);
        let embedding = layout.matrix("embedding", self.vocabulary, self.width, one);
        let encoder = self.stack_views(&mut layout, "encoder", false);
        let decoder = self.stack_views(&mut layout, "decoder", true);
        let head = layout.matrix("head", self.vocabulary, self.width, one);
        (layout, Views { embedding, encoder, decoder, head })
    }

    /// Matrices start with the deviation fan-in^−½, and q with (width · head_width)^−½, which stands for the scaling that the
    /// attention leaves out.
    fn stack_views(&self, layout: &mut Layout, stack: &str, cross: bool) -> StackViews {
        let T5Shape { width, heads, head_width, feed_forward, .. } = *self;
        let inner = self.inner();
        let fan = |numbers: usize| Initial::Normal((numbers as f64).sqrt().recip());
        let relative_bias = layout.matrix(format!("{stack}.relative_bias"), BUCKETS, heads, fan(width));
        let (mut norms, mut functions) = (Vec::new(), Vec::new());
        for layer in 0..self.layers {
            let sublayers = ["attention", "cross", "feed_forward"];
            for sublayer in sublayers.into_iter().filter(|&name| cross || name != "cross") {
                let name = |part: &str| format!("{stack}.{layer}.{sublayer}.{part}");
                let q = (name("q"), inner, fan(width * head_width));
                let [k, v] = ["k", "v"].map(|part| (name(part), inner, fan(width)));
                functions.push(match sublayer {
                    "attention" => Function::Attention {
                        q: Linear::plain(layout.stacked(&[q, k, v], width)),
                        kv: None,
                        out: Linear::plain(layout.matrix(name("o"), width, inner, fan(inner))),
                    },
                    "cross" => Function::Attention {
                        q: Linear::plain(layout.stacked(&[q], width)),
                        kv: Some(Linear::plain(layout.stacked(&[k, v], width))),
                        out: Linear::plain(layout.matrix(name("o"), width, inner, fan(inner))),
                    },
                    _ => {
                        let up = ["wi_0", "wi_1"].map(|part| (name(part), feed_forward, fan(width)));
                        let up = Linear::plain(layout.stacked(&up, width));
                        let down = layout.matrix(name("wo"), width, feed_forward, fan(feed_forward));
                        Function::FeedForward {
                            up: Linear { activation: Activation::GatedGelu, ..up },
                            down: Linear::plain(down),
                        }
                    }
                });
                norms.push(layout.vector(name("norm"), width, Initial::Constant(1.0)));
            }
        }
        norms.push(layout.vector(format!("{stack}.norm"), width, Initial::Constant(1.0)));
        StackViews { relative_bias, norms, functions }
    }

    /// The width of all heads together.
    fn inner(&self) -> usize {
        self.heads * self.head_width
    }
}

/// Where the parameters stand.
struct Views {
    embedding: View,
    encoder: StackViews,
    decoder: StackViews,
    head: View,
}

/// A T5 on a device.
pub struct T5<D: Device> {
    layout: Layout,
    embedding: View,
    head: Head,
    encoder: Stack<D>,
    decoder: Stack<D>,
    work: Work<D>,
    targets: D::Ids,
    /// The targets shifted right by one, with [`START`] in front.
    shifted: Vec<u32>,
    /// The sizes of what [`Network::set_source`] gave the encoder.
    source: Option<Sizes>,
}

impl<D: Device> T5<D> {
    /// With buffers for batches of up to `batch` texts.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn new(device: &D, shape: T5Shape, batch: usize) -> Result<Self, DeviceError> {
        let (layout, views) = shape.views();
        let encoder = Sizes { batch, length: shape.inputs };
        let decoder = Sizes { batch, length: shape.targets };
        Ok(Self {
            layout,
            embedding: views.embedding,
            head: Head { weight: views.head, bias: None, into: Write::Set },
            encoder: Stack::new(device, shape, views.encoder, views.embedding, encoder, None)?,
            decoder: Stack::new(device, shape, views.decoder, views.embedding, decoder, Some(encoder))?,
            work: Work::new(device, shape, encoder, decoder)?,
            targets: device.ids(decoder.rows())?,
            shifted: Vec::new(),
            source: None,
        })
    }

    /// Up to the input of the head, which is the decoder's output. Gives the sizes of both stacks.
    fn forward(&mut self, device: &D, feed: Feed<'_>, x: &D::Parameters) -> [Sizes; 2] {
        let [encoder, decoder] = [feed.inputs, feed.targets].map(|ids| Sizes::of(ids, feed.batch));
        self.shifted.clear();
        for targets in feed.targets.chunks_exact(decoder.length) {
            self.shifted.push(START);
            self.shifted.extend_from_slice(&targets[..targets.len() - 1]);
        }
        device.set_ids(&mut self.targets, feed.targets);
        self.source = None;
        self.encoder.forward(device, encoder, feed.inputs, None, x, &mut self.work);
        let source = Some((self.encoder.out(), encoder));
        self.decoder.forward(device, decoder, &self.shifted, source, x, &mut self.work);
        [encoder, decoder]
    }
}

impl<D: Device> Network<D> for T5<D>
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
        _noise: Option<Noise>,
        x: &D::Parameters,
        dx: &mut D::Parameters,
        scalars: &mut D::Scalars,
    ) {
        let [encoder, decoder] = self.forward(device, feed, x);
        let (h, d_h) = self.decoder.out_and_gradient();
        let gradient = Some((d_h, &mut *dx));
        device.head(&self.head, decoder.rows(), x, h, &self.targets, scalars, 0, gradient);
        // Both stacks look their ids up in the same table, and add to its gradient.
        device.clear(dx, self.embedding);
        let (memory, d_memory) = self.encoder.out_and_gradient();
        device.clear_buffer(encoder.rows() * self.embedding.columns, d_memory);
        let source = Some((memory, d_memory, encoder));
        self.decoder.backward(device, decoder, source, x, dx, &mut self.work);
        self.encoder.backward(device, encoder, None, x, dx, &mut self.work);
    }

    fn loss(&mut self, device: &D, feed: Feed<'_>, x: &D::Parameters, scalars: &mut D::Scalars) {
        let [_, decoder] = self.forward(device, feed, x);
        device.head(&self.head, decoder.rows(), x, self.decoder.out(), &self.targets, scalars, 0, None);
    }

    fn set_source(&mut self, device: &D, source: &[u32], x: &D::Parameters) {
        let sizes = Sizes::of(source, 1);
        self.encoder.forward(device, sizes, source, None, x, &mut self.work);
        self.source = Some(sizes);
    }

    /// # Panics
    /// Without a source.
    fn next_logits(
        &mut self,
        device: &D,
        inputs: &[u32],
        x: &D::Parameters,
        logits: &mut [f32],
    ) -> Result<(), DeviceError> {
        let source = self.source.expect("a decoder needs a source");
        self.shifted.clear();
        self.shifted.push(START);
        self.shifted.extend_from_slice(inputs);
        let sizes = Sizes::of(&self.shifted, 1);
        let source = Some((self.encoder.out(), source));
        self.decoder.forward(device, sizes, &self.shifted, source, x, &mut self.work);
        device.logits(&self.head, inputs.len(), x, self.decoder.out(), logits)
    }
}
