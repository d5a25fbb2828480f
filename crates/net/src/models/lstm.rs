//! The AWD-LSTM: LSTMs one above the other with dropped weights, the decoder tied to the embedding of the words.

use super::{Feed, Network, Noise};
use crate::arena::{Initial, Layout, View};
use crate::device::{self, Device, DeviceError, Dropout, Embedding, Head, Kind, Regularizers, Write};

/// The sizes of an AWD-LSTM and what regularizes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LstmShape {
    /// Different words.
    pub vocabulary: usize,
    /// The width of the embedding, and of the last layer, whose output meets the same matrix again.
    pub embedding: usize,
    /// The width of the other layers.
    pub hidden: usize,
    /// LSTMs one above the other.
    pub layers: usize,
    /// The probability to drop a word's whole row of the embedding. The decoder's side of the matrix is not touched.
    pub drop_rows: f32,
    /// Dropout of the first layer's input, one mask per sequence as between layers and of the output.
    pub drop_input: f32,
    /// Dropout between layers.
    pub drop_between: f32,
    /// Dropout of the last layer's output.
    pub drop_output: f32,
    /// Dropout of every hidden-to-hidden matrix, one mask per step.
    pub drop_weight: f32,
    /// α of the regularizer of the activations.
    pub activation: f64,
    /// β of the regularizer of their change in time.
    pub change: f64,
}

/// The parameters of a layer.
#[derive(Debug, Clone, Copy)]
struct Layer {
    input_weight: View,
    hidden_weight: View,
    input_bias: View,
    hidden_bias: View,
}

/// Where the parameters stand.
struct Views {
    embedding: View,
    layers: Vec<Layer>,
    decoder_bias: View,
}

impl LstmShape {
    /// The paper's.
    pub const PAPER: LstmShape = LstmShape {
        vocabulary: 10_000,
        embedding: 400,
        hidden: 1150,
        layers: 3,
        drop_rows: 0.1,
        drop_input: 0.65,
        drop_between: 0.3,
        drop_output: 0.4,
        drop_weight: 0.5,
        activation: 2.0,
        change: 1.0,
    };
    /// The shape for a laptop.
    pub const SMALL: LstmShape = LstmShape { embedding: 200, hidden: 400, ..Self::PAPER };
    /// The shape that a CPU trains in a minute.
    pub const TINY: LstmShape = LstmShape { vocabulary: 1_000, embedding: 64, hidden: 128, ..Self::PAPER };

    /// The parameters.
    pub fn layout(&self) -> Layout {
        self.views().0
    }

    fn views(&self) -> (Layout, Views) {
        let mut layout = Layout::default();
        let embedding = layout.matrix("embedding", self.vocabulary, self.embedding, Initial::Uniform(0.1));
        let mut inputs = self.embedding;
        let layers = (0..self.layers)
            .map(|index| {
                let hidden = self.width(index);
                let initial = Initial::Uniform(1.0 / (hidden as f64).sqrt());
                let name = |part: &str| format!("layers.{index}.{part}");
                let layer = Layer {
                    input_weight: layout.matrix(name("input_weight"), 4 * hidden, inputs, initial),
                    hidden_weight: layout.matrix(name("hidden_weight"), 4 * hidden, hidden, initial),
                    input_bias: layout.vector(name("input_bias"), 4 * hidden, initial),
                    hidden_bias: layout.vector(name("hidden_bias"), 4 * hidden, initial),
                };
                inputs = hidden;
                layer
            })
            .collect();
        let decoder_bias = layout.vector("decoder_bias", self.vocabulary, Initial::Constant(0.0));
        (layout, Views { embedding, layers, decoder_bias })
    }

    /// The width of a layer's output.
    fn width(&self, layer: usize) -> usize {
        if layer + 1 == self.layers { self.embedding } else { self.hidden }
    }

    /// Dropout of a layer's output: site `2·layer + 3`. Site 0 is the rows of the embedding, and site 1 the first layer's input.
    fn after(&self, layer: usize, batch: usize, noise: Option<Noise>) -> Dropout {
        let probability = if layer + 1 == self.layers { self.drop_output } else { self.drop_between };
        Noise::dropout(noise, 2 * layer + 3, probability, batch)
    }

    /// Dropout of a layer's hidden-to-hidden matrix: site `2·layer + 2`.
    fn weight_drop(&self, layer: usize, noise: Option<Noise>) -> Dropout {
        Noise::dropout(noise, 2 * layer + 2, self.drop_weight, usize::MAX)
    }
}

/// What a layer carries from batch to batch, and what its backward pass needs.
struct Saved<D: Device> {
    /// `h` and then `c` of every sequence.
    carry: D::Buffer,
    gates: D::Buffer,
    cells: D::Buffer,
    out: D::Buffer,
    /// `out` after dropout: the next layer's input.
    dropped: D::Buffer,
}

/// An AWD-LSTM on a device.
pub struct Lstm<D: Device> {
    shape: LstmShape,
    layout: Layout,
    views: Views,
    /// The most sequences and the most positions of a batch.
    batch: usize,
    longest: usize,
    saved: Vec<Saved<D>>,
    /// How many sequences the carry belongs to; 0 when it is all zeros and fits any number.
    carried: usize,
    inputs: D::Ids,
    targets: D::Ids,
    embedded: D::Buffer,
    /// The gradient of a layer's output.
    d_out: D::Buffer,
    /// The gradient of a layer's input.
    d_in: D::Buffer,
}

impl<D: Device> Lstm<D> {
    /// With buffers for batches of up to `batch` sequences and `longest` positions.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn new(device: &D, shape: LstmShape, batch: usize, longest: usize) -> Result<Self, DeviceError> {
        let (layout, views) = shape.views();
        let rows = batch * longest;
        let buffer = |len: usize| device.buffer(len, Kind::Activation);
        // Cells add up over time, from batch to batch.
        let statistic = |len: usize| device.buffer(len, Kind::Statistic);
        let saved = (0..shape.layers)
            .map(|layer| {
                let width = shape.width(layer);
                Ok(Saved {
                    carry: statistic(2 * batch * width)?,
                    gates: buffer(rows * 4 * width)?,
                    cells: statistic((rows + batch) * width)?,
                    out: buffer((rows + batch) * width)?,
                    dropped: buffer(rows * width)?,
                })
            })
            .collect::<Result<_, DeviceError>>()?;
        let widest = shape.embedding.max(shape.hidden);
        Ok(Self {
            shape,
            layout,
            views,
            batch,
            longest,
            saved,
            carried: 0,
            inputs: device.ids(rows)?,
            targets: device.ids(rows)?,
            embedded: buffer(rows * shape.embedding)?,
            d_out: buffer(rows * widest)?,
            d_in: buffer(rows * widest)?,
        })
    }

    fn embedding(&self, batch: usize, noise: Option<Noise>) -> Embedding {
        Embedding {
            table: self.views.embedding,
            positions: None,
            row_dropout: Noise::dropout(noise, 0, self.shape.drop_rows, usize::MAX),
            dropout: Noise::dropout(noise, 1, self.shape.drop_input, batch),
        }
    }

    fn layer(&self, index: usize, time: usize, batch: usize, noise: Option<Noise>) -> device::Lstm {
        let Layer { input_weight, hidden_weight, input_bias, hidden_bias } = self.views.layers[index];
        let weight_drop = self.shape.weight_drop(index, noise);
        device::Lstm { time, batch, input_weight, hidden_weight, input_bias, hidden_bias, weight_drop }
    }

    fn head(&self) -> Head {
        Head { weight: self.views.embedding, bias: Some(self.views.decoder_bias), into: Write::Set }
    }

    fn regularizers(&self, time: usize, batch: usize, noise: Option<Noise>) -> Regularizers {
        let LstmShape { embedding: width, activation, change, layers, .. } = self.shape;
        let dropout = self.shape.after(layers - 1, batch, noise);
        Regularizers { time, batch, width, activation, change, dropout }
    }

    /// Up to the input of the head, which is left in the last layer's `dropped`. The carry moves on.
    fn forward(&mut self, device: &D, inputs: &[u32], batch: usize, noise: Option<Noise>, x: &D::Parameters) {
        assert!([0, batch].contains(&self.carried), "a carry of {} sequences for {batch}", self.carried);
        let (rows, time) = (inputs.len(), inputs.len() / batch);
        device.set_ids(&mut self.inputs, inputs);
        device.embedding(&self.embedding(batch, noise), rows, x, &self.inputs, &mut self.embedded);
        for index in 0..self.shape.layers {
            let layer = self.layer(index, time, batch, noise);
            let (before, rest) = self.saved.split_at_mut(index);
            let input = before.last().map_or(&self.embedded, |last| &last.dropped);
            let Saved { carry, gates, cells, out, dropped } = &mut rest[0];
            device.lstm(&layer, x, input, carry, gates, cells, out);
            let after = self.shape.after(index, batch, noise);
            device.dropout(after, rows, layer.hidden(), (out, batch), dropped);
        }
        self.carried = batch;
    }

    /// From the gradient of the last layer's output, in `d_out`, to those of all parameters.
    fn backward(
        &mut self,
        device: &D,
        rows: usize,
        batch: usize,
        noise: Option<Noise>,
        x: &D::Parameters,
        dx: &mut D::Parameters,
    ) {
        for index in (0..self.shape.layers).rev() {
            let layer = self.layer(index, rows / batch, batch, noise);
            let (before, rest) = self.saved.split_at_mut(index);
            let input = before.last().map_or(&self.embedded, |last| &last.dropped);
            let Saved { gates, cells, out, .. } = &mut rest[0];
            device.lstm_backward(&layer, x, input, gates, cells, out, &self.d_out, dx, &mut self.d_in);
            if index > 0 {
                let dropout = self.shape.after(index - 1, batch, noise);
                device.dropout(dropout, rows, layer.inputs(), (&self.d_in, 0), &mut self.d_out);
            }
        }
        device.embedding_backward(&self.embedding(batch, noise), rows, &self.inputs, &self.d_in, dx);
    }

    /// The last layer's output, raw and after dropout.
    fn last(&self) -> &Saved<D> {
        &self.saved[self.shape.layers - 1]
    }
}

impl<D: Device> Network<D> for Lstm<D>
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
        let regularizers = self.regularizers(rows / feed.batch, feed.batch, noise);
        let Saved { out, dropped, .. } = &self.saved[self.shape.layers - 1];
        let gradient = Some((&mut self.d_in, &mut *dx));
        device.head(&head, rows, x, dropped, &self.targets, scalars, 0, gradient);
        device.regularizers(regularizers, dropped, out, scalars, 1);
        device.regularizers_backward(regularizers, dropped, out, &self.d_in, &mut self.d_out);
        self.backward(device, rows, feed.batch, noise, x, dx);
    }

    fn loss(&mut self, device: &D, feed: Feed<'_>, x: &D::Parameters, scalars: &mut D::Scalars) {
        let rows = feed.inputs.len();
        self.forward(device, feed.inputs, feed.batch, None, x);
        device.set_ids(&mut self.targets, feed.targets);
        let Saved { out, dropped, .. } = self.last();
        device.head(&self.head(), rows, x, dropped, &self.targets, scalars, 0, None);
        // They do not count here: with factors of 0, they are 0.
        let regularizers = self.regularizers(rows / feed.batch, feed.batch, None);
        let none = Regularizers { activation: 0.0, change: 0.0, ..regularizers };
        device.regularizers(none, dropped, out, scalars, 1);
    }

    /// From a carry of zeros; the network's own is put back.
    fn next_logits(
        &mut self,
        device: &D,
        inputs: &[u32],
        x: &D::Parameters,
        logits: &mut [f32],
    ) -> Result<(), DeviceError> {
        let carry = self.carry(device)?;
        self.set_carry(device, &[]);
        for part in inputs.chunks(self.longest) {
            self.forward(device, part, 1, None, x);
        }
        let last = (inputs.len() - 1) % self.longest;
        device.logits(&self.head(), last, x, &self.last().dropped, logits)?;
        self.set_carry(device, &carry);
        Ok(())
    }

    fn carry(&self, device: &D) -> Result<Vec<f32>, DeviceError> {
        let mut carry = Vec::new();
        for (index, saved) in self.saved.iter().enumerate() {
            let start = carry.len();
            carry.resize(start + 2 * self.carried * self.shape.width(index), 0.0);
            device.get_buffer(&saved.carry, &mut carry[start..])?;
        }
        Ok(carry)
    }

    fn set_carry(&mut self, device: &D, carry: &[f32]) {
        let widths: usize = (0..self.shape.layers).map(|layer| self.shape.width(layer)).sum();
        self.carried = carry.len() / (2 * widths);
        let mut rest = carry;
        for (index, saved) in self.saved.iter_mut().enumerate() {
            let width = self.shape.width(index);
            let part;
            (part, rest) = rest.split_at(2 * self.carried * width);
            match self.carried {
                0 => device.clear_buffer(2 * self.batch * width, &mut saved.carry),
                _ => device.set_buffer(&mut saved.carry, part),
            }
        }
    }
}
