//! What a device must be able to do: layer-sized operations on buffers that it owns, so that each device can fuse as it likes.
//!
//! An operation returns nothing: a device that works behind the host's back reports what went wrong at the next
//! [`Device::read`]. Losses and norms stay on the device, in [`Device::Scalars`], until they are read, once a step.
//!
//! Every operation is a deterministic function of its inputs, whatever the number of threads.

use crate::arena::View;
use crate::random::Site;
use untuned::formula::{Change, Measure};
use untuned::space::{SquareDistance, SquareNorm, TensorRange};
use untuned_cuda::device::MemoryError;

/// Why a device could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Not enough memory.
    #[error("{device}: {needed} bytes are needed, {free}; take a smaller batch or preset")]
    OutOfMemory {
        /// The device.
        device: String,
        /// The bytes that were asked for.
        needed: u64,
        /// What is known of the free ones.
        free: String,
    },
    /// The driver or the device failed.
    #[error("{device} failed: {reason}")]
    Failed {
        /// The device.
        device: String,
        /// What it said.
        reason: String,
    },
}

impl From<untuned_cuda::Failure> for DeviceError {
    fn from(untuned_cuda::Failure { part, reason }: untuned_cuda::Failure) -> DeviceError {
        DeviceError::Failed { device: part, reason }
    }
}

impl From<MemoryError> for DeviceError {
    fn from(error: MemoryError) -> DeviceError {
        match error {
            MemoryError::Failed(failure) => failure.into(),
            MemoryError::Full { device, needed, free } => DeviceError::OutOfMemory { device, needed, free },
        }
    }
}

/// What a buffer is for: a device may hold activations in fewer bits than statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Inputs and outputs of layers, and their gradients.
    Activation,
    /// Means, deviations, logarithms of sums: in f32 or better.
    Statistic,
}

/// Whether a gradient is written or added to what is there (a tied matrix gets its gradient from two places).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Overwrites.
    Set,
    /// Adds.
    Add,
}

/// Numbers set to 0 with a probability, the others divided by its complement. The mask is a function of the site, so that
/// backward makes it again and nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The random numbers; number `i` decides over element `i` of the mask.
    pub site: Site,
    /// The probability to become 0.
    pub probability: f32,
    /// After so many rows the mask repeats: "locked" dropout has the batch here, other dropout `usize::MAX`.
    pub period: usize,
}

impl Dropout {
    /// None at all.
    pub const NONE: Dropout =
        Dropout { site: Site { seed: 0, site: 0, step: 0 }, probability: 0.0, period: usize::MAX };

    /// Whether it changes anything.
    pub fn is_active(&self) -> bool {
        self.probability > 0.0
    }
}

/// The normalisation of a row: `y = w ∘ (x − mean)/√(variance + ε)`, or without the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Norm {
    /// LayerNorm without a bias.
    Layer {
        /// ε.
        epsilon: f64,
    },
    /// RMSNorm: `y = w ∘ x/√(mean(x²) + ε)`.
    Rms {
        /// ε.
        epsilon: f64,
    },
}

/// What follows a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `x·Φ(x)`.
    Gelu,
    /// `½x(1 + tanh(√(2/π)(x + 0.044715x³)))`.
    GeluTanh,
    /// The product has two halves `a` and `g`: tanh-GELU(a) ∘ g, half as wide.
    GatedGelu,
}

/// A product with a matrix: `y = activation(x·Wᵀ + b)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// `W`, outputs × inputs.
    pub weight: View,
    /// `b`, where there is one.
    pub bias: Option<View>,
    /// What follows.
    pub activation: Activation,
}

impl Linear {
    /// Without bias and activation.
    pub fn plain(weight: View) -> Self {
        Self { weight, bias: None, activation: Activation::None }
    }

    /// The width of `y`.
    pub fn outputs(&self) -> usize {
        match self.activation {
            Activation::GatedGelu => self.weight.rows / 2,
            _ => self.weight.rows,
        }
    }
}

/// The sizes of an attention: `softmax(scale · q·kᵀ + bias)·v` for every sequence and head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Heads of each.
    pub heads: usize,
    /// The width of a head.
    pub width: usize,
    /// Positions that ask.
    pub queries: usize,
    /// Positions that answer.
    pub keys: usize,
    /// Whether a query sees only keys at its own position and before.
    pub causal: bool,
    /// What the products are multiplied by.
    pub scale: f64,
    /// Dropout of the weights after the softmax; the element of sequence b, head h, query i and key j is
    /// ((b·heads + h)·queries + i)·K + j, with K = keys rounded up to a multiple of 4.
    pub dropout: Dropout,
}

/// Part of the columns of a buffer: rows of `stride` numbers, of which those from `offset` on belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// The first number.
    pub offset: usize,
    /// From row to row.
    pub stride: usize,
}

/// Where an attention finds its queries, keys and values: head h of each stands at column `h · width` of its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Queries.
    pub q: Columns,
    /// Keys.
    pub k: Columns,
    /// Values.
    pub v: Columns,
}

/// The relative positions of T5: one learned number per head and bucket of distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativeBias {
    /// Buckets × heads.
    pub table: View,
    /// Positions that ask.
    pub queries: usize,
    /// Positions that answer.
    pub keys: usize,
    /// Whether keys after the query have buckets of their own.
    pub bidirectional: bool,
    /// Distances from here on share the last bucket.
    pub max_distance: usize,
}

impl RelativeBias {
    /// The length of the biases of one head: one for every offset `key − query`, from −(queries − 1) to keys − 1.
    pub fn offsets(&self) -> usize {
        self.queries + self.keys - 1
    }
}

/// An LSTM over a whole sequence.
///
/// `i, f, g, o` = σ, σ, tanh, σ of `W_ih·x_t + b_ih + (M ∘ W_hh)·h_{t−1} + b_hh`; `c_t = f∘c_{t−1} + i∘g`; `h_t = o∘tanh(c_t)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lstm {
    /// Positions in time.
    pub time: usize,
    /// Sequences side by side; row `t·batch + b` of a buffer is position t of sequence b.
    pub batch: usize,
    /// 4·hidden × inputs.
    pub input_weight: View,
    /// 4·hidden × hidden.
    pub hidden_weight: View,
    /// 4·hidden.
    pub input_bias: View,
    /// 4·hidden.
    pub hidden_bias: View,
    /// `M`: dropout of the hidden-to-hidden matrix, one mask per pass, element by element in its own order.
    pub weight_drop: Dropout,
}

impl Lstm {
    /// The width of `h` and `c`.
    pub fn hidden(&self) -> usize {
        self.hidden_weight.columns
    }

    /// The width of `x`.
    pub fn inputs(&self) -> usize {
        self.input_weight.columns
    }
}

/// The embedding of ids: row `r` of the output is `M_d ∘ (m_id · E[id] + P[r mod positions])`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Embedding {
    /// `E`, vocabulary × width.
    pub table: View,
    /// `P`, positions × width, and how many of its rows are used.
    pub positions: Option<(View, usize)>,
    /// `m`: dropout of whole rows of `E`; element `id` decides over row `id`.
    pub row_dropout: Dropout,
    /// `M_d`.
    pub dropout: Dropout,
}

/// The product with the output matrix, and the cross-entropy of its softmax: mean over rows of `−log softmax(W·h + b)[target]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// `W`, vocabulary × width.
    pub weight: View,
    /// `b`.
    pub bias: Option<View>,
    /// Whether the gradient of `W` is written or added.
    pub into: Write,
}

/// A device: buffers, and the operations of the networks on them.
///
/// In every operation `x` are the parameters and `dx` their gradient. Buffers may be longer than what an operation uses.
pub trait Device: Sized {
    /// All parameters, or all gradients.
    type Parameters;
    /// Activations.
    type Buffer;
    /// Ids of tokens: words, characters or subwords.
    type Ids;
    /// A few f64 numbers: losses and norms.
    type Scalars;

    /// The device as a user writes it: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// Runs `work` where the device's operations cost least.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        work()
    }

    /// Runs `work`, whose operations a device may collect and start at once. Nothing is read inside.
    fn together<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    /// Parameters from the host. The numbers are f32 whatever the device computes in.
    fn parameters(&self, values: &[f32]) -> Result<Self::Parameters, DeviceError>;
    /// Overwrites parameters.
    fn set_parameters(&self, to: &mut Self::Parameters, values: &[f32]);
    /// Parameters to the host.
    fn get_parameters(&self, from: &Self::Parameters, values: &mut [f32]) -> Result<(), DeviceError>;
    /// A buffer of zeros.
    fn buffer(&self, len: usize, kind: Kind) -> Result<Self::Buffer, DeviceError>;
    /// Overwrites the start of a buffer.
    fn set_buffer(&self, to: &mut Self::Buffer, values: &[f32]);
    /// The start of a buffer to the host.
    fn get_buffer(&self, from: &Self::Buffer, values: &mut [f32]) -> Result<(), DeviceError>;
    /// Room for ids.
    fn ids(&self, len: usize) -> Result<Self::Ids, DeviceError>;
    /// Overwrites the start of the ids.
    fn set_ids(&self, to: &mut Self::Ids, values: &[u32]);
    /// Room for scalars, all 0.
    fn scalars(&self, len: usize) -> Result<Self::Scalars, DeviceError>;
    /// Waits for everything before, and reads the scalars.
    fn read(&self, from: &Self::Scalars, values: &mut [f64]) -> Result<(), DeviceError>;

    /// Changes parameters in one pass, as [`Space::change`](untuned::Space::change) says, with what holds in
    /// these tensors, which stand in order.
    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        tensors: &[TensorRange],
        change: [&mut Self::Parameters; M],
        read: [&Self::Parameters; R],
    );
    /// Sums over parameters in one pass, as [`Space::measure`](untuned::Space::measure) says, with `tensors` as above.
    /// The sums, in f64, go to `to` from index `at` on.
    #[allow(clippy::too_many_arguments)]
    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        tensors: &[TensorRange],
        read: [&Self::Parameters; R],
        to: &mut Self::Scalars,
        at: usize,
    );
    /// `scalars[at] = ‖v‖²`.
    fn square_norm(&self, v: &Self::Parameters, scalars: &mut Self::Scalars, at: usize) {
        self.measure(SquareNorm, [], 0.0, &[], [v], scalars, at);
    }
    /// `scalars[at] = ‖a − b‖²`.
    fn square_distance(
        &self,
        a: &Self::Parameters,
        b: &Self::Parameters,
        scalars: &mut Self::Scalars,
        at: usize,
    ) {
        self.measure(SquareDistance, [], 0.0, &[], [a, b], scalars, at);
    }
    /// `to = from`.
    fn copy_parameters(&self, from: &Self::Parameters, to: &mut Self::Parameters);
    /// Sets the view to 0.
    fn clear(&self, parameters: &mut Self::Parameters, view: View);
    /// `to = from` over the first `len` numbers.
    fn copy(&self, len: usize, from: &Self::Buffer, to: &mut Self::Buffer);
    /// Sets the first `len` numbers to 0.
    fn clear_buffer(&self, len: usize, buffer: &mut Self::Buffer);
    /// `to += from` over the first `len` numbers.
    fn add(&self, len: usize, from: &Self::Buffer, to: &mut Self::Buffer);

    /// The embedding of the first `rows` ids.
    fn embedding(
        &self,
        layer: &Embedding,
        rows: usize,
        x: &Self::Parameters,
        ids: &Self::Ids,
        out: &mut Self::Buffer,
    );
    /// Adds to the gradient of the table, and writes that of the positions. The rows of an id are added in order.
    fn embedding_backward(
        &self,
        layer: &Embedding,
        rows: usize,
        ids: &Self::Ids,
        d_out: &Self::Buffer,
        dx: &mut Self::Parameters,
    );

    /// `stream_out = stream_in + dropout(branch)`, then `out = norm(stream_out)`; `statistics` keeps two numbers a row.
    /// Without a branch the stream itself is normalised and `stream_out` is not touched.
    #[allow(clippy::too_many_arguments)]
    fn add_norm(
        &self,
        norm: Norm,
        weight: View,
        rows: usize,
        x: &Self::Parameters,
        stream_in: &Self::Buffer,
        branch: Option<(&Self::Buffer, Dropout, &mut Self::Buffer)>,
        out: &mut Self::Buffer,
        statistics: &mut Self::Buffer,
    );
    /// From the gradient of `out`: writes that of the weight, adds to `d_stream` what came through the norm, and writes
    /// `d_branch = dropout(d_stream)`. `stream` is what was normalised.
    #[allow(clippy::too_many_arguments)]
    fn add_norm_backward(
        &self,
        norm: Norm,
        weight: View,
        rows: usize,
        x: &Self::Parameters,
        stream: &Self::Buffer,
        statistics: &Self::Buffer,
        d_out: &Self::Buffer,
        dx: &mut Self::Parameters,
        d_stream: &mut Self::Buffer,
        d_branch: Option<(&mut Self::Buffer, Dropout)>,
    );

    /// `out = activation(input·Wᵀ + b)`. With an activation, `before` keeps what it was applied to.
    fn linear(
        &self,
        layer: &Linear,
        rows: usize,
        x: &Self::Parameters,
        input: &Self::Buffer,
        out: &mut Self::Buffer,
        before: Option<&mut Self::Buffer>,
    );
    /// From the gradient of `out`: writes those of the weight and the bias, and writes or adds that of the input. With an
    /// activation, `before` is overwritten with its gradient.
    #[allow(clippy::too_many_arguments)]
    fn linear_backward(
        &self,
        layer: &Linear,
        rows: usize,
        x: &Self::Parameters,
        input: &Self::Buffer,
        before: Option<&mut Self::Buffer>,
        d_out: &Self::Buffer,
        dx: &mut Self::Parameters,
        d_input: Option<(&mut Self::Buffer, Write)>,
    );

    /// `out`: row by row, the heads side by side. `logs` keeps the logarithm of the sum of exponentials for every (sequence,
    /// head, query). `bias` holds [`RelativeBias::offsets`] numbers for every head.
    #[allow(clippy::too_many_arguments)]
    fn attention(
        &self,
        layer: &Attention,
        heads: Heads,
        q: &Self::Buffer,
        kv: &Self::Buffer,
        bias: Option<&Self::Buffer>,
        out: &mut Self::Buffer,
        logs: &mut Self::Buffer,
    );
    /// Writes the gradients of queries, keys and values at the same columns where those stand; adds to `d_bias`. `d_kv` is
    /// `None` where keys and values stand in the same buffer as queries.
    #[allow(clippy::too_many_arguments)]
    fn attention_backward(
        &self,
        layer: &Attention,
        heads: Heads,
        q: &Self::Buffer,
        kv: &Self::Buffer,
        bias: Option<&Self::Buffer>,
        out: &Self::Buffer,
        logs: &Self::Buffer,
        d_out: &Self::Buffer,
        d_q: &mut Self::Buffer,
        d_kv: Option<&mut Self::Buffer>,
        d_bias: Option<&mut Self::Buffer>,
    );

    /// The bias of every head and offset.
    fn relative_bias(&self, layer: &RelativeBias, x: &Self::Parameters, out: &mut Self::Buffer);
    /// Writes the gradient of the table.
    fn relative_bias_backward(&self, layer: &RelativeBias, d_out: &Self::Buffer, dx: &mut Self::Parameters);

    /// `h_1 … h_time` from the inputs and the state before them. `carry` holds `h` and then `c`, batch × hidden each, and is
    /// replaced by the state after the last position. `gates` (time·batch × 4·hidden), `cells` and `out` (each (time + 1)·batch
    /// × hidden, the state before the first position in front) are stored for the backward pass. `carry` and `cells`, which add
    /// up over time, are of the kind [`Kind::Statistic`].
    #[allow(clippy::too_many_arguments)]
    fn lstm(
        &self,
        layer: &Lstm,
        x: &Self::Parameters,
        input: &Self::Buffer,
        carry: &mut Self::Buffer,
        gates: &mut Self::Buffer,
        cells: &mut Self::Buffer,
        out: &mut Self::Buffer,
    );
    /// From the gradient of `h_1 … h_time`: writes those of the weights, both biases and the inputs. `gates` is overwritten
    /// with its gradient. No gradient leaves through the carry.
    #[allow(clippy::too_many_arguments)]
    fn lstm_backward(
        &self,
        layer: &Lstm,
        x: &Self::Parameters,
        input: &Self::Buffer,
        gates: &mut Self::Buffer,
        cells: &Self::Buffer,
        out: &Self::Buffer,
        d_out: &Self::Buffer,
        dx: &mut Self::Parameters,
        d_input: &mut Self::Buffer,
    );

    /// `to = dropout(from[skip_rows..])` over `rows` rows of `width`.
    fn dropout(
        &self,
        dropout: Dropout,
        rows: usize,
        width: usize,
        from: (&Self::Buffer, usize),
        to: &mut Self::Buffer,
    );

    /// The regularizers of an LSTM's last layer, over time × batch × width: `scalars[at] = α·mean(dropped²)` and
    /// `scalars[at + 1] = β·mean((h_{t+1} − h_t)²)`, `h` being the rows of `raw` after the first `batch`.
    #[allow(clippy::too_many_arguments)]
    fn regularizers(
        &self,
        shape: Regularizers,
        dropped: &Self::Buffer,
        raw: &Self::Buffer,
        scalars: &mut Self::Scalars,
        at: usize,
    );
    /// `d_raw = dropout(d_dropped + 2α·dropped/n) + ` the gradient of the second: the backward pass through the last dropout.
    fn regularizers_backward(
        &self,
        shape: Regularizers,
        dropped: &Self::Buffer,
        raw: &Self::Buffer,
        d_dropped: &Self::Buffer,
        d_raw: &mut Self::Buffer,
    );

    /// `scalars[at]` = the mean cross-entropy. With `gradient`, writes that of `h`, and writes or adds that of the weight and
    /// the bias.
    #[allow(clippy::too_many_arguments)]
    fn head(
        &self,
        layer: &Head,
        rows: usize,
        x: &Self::Parameters,
        h: &Self::Buffer,
        targets: &Self::Ids,
        scalars: &mut Self::Scalars,
        at: usize,
        gradient: Option<(&mut Self::Buffer, &mut Self::Parameters)>,
    );

    /// The logits `W·h + b` of one row, for sampling.
    fn logits(
        &self,
        layer: &Head,
        row: usize,
        x: &Self::Parameters,
        h: &Self::Buffer,
        out: &mut [f32],
    ) -> Result<(), DeviceError>;
}

/// The sizes and factors of an LSTM's regularizers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regularizers {
    /// Positions in time.
    pub time: usize,
    /// Sequences side by side.
    pub batch: usize,
    /// The width of `h`.
    pub width: usize,
    /// α: of the activations (AR).
    pub activation: f64,
    /// β: of their change in time (TAR).
    pub change: f64,
    /// The dropout between `raw` and `dropped`.
    pub dropout: Dropout,
}
