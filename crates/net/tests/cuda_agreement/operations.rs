//! Every operation of a device, written once for all of them, on random numbers that are the same on all of them.
//!
//! What an operation overwrites is NaN before, and so is what stands behind the part of a buffer that it may use.

use super::methods::{self, Again, Everything, Watch};
use super::report::Output;
use untuned::formula::{Change, Measure, Program};
use untuned::space::TensorRange;
use untuned_net::arena::{Initial, Layout, View};
use untuned_net::device::{
    self, Activation, Columns, Device, DeviceError, Dropout, Heads, Kind, Norm, Regularizers, Write,
};
use untuned_net::formulas::Combine;
use untuned_net::random::Site;

/// Where the numbers come from.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub seed: u64,
    /// Whether they are rounded to bf16, so that a device that stores them so starts with the same.
    pub bf16: bool,
}

impl Numbers {
    pub fn rounded(&self, mut values: Vec<f32>) -> Vec<f32> {
        if self.bf16 {
            for value in &mut values {
                let bits = value.to_bits();
                *value = f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000);
            }
        }
        values
    }
}

/// An operation, in one shape and with one choice of options.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Sums {
        len: usize,
    },
    Update {
        len: usize,
    },
    /// The formula that uses every operation.
    Everything {
        len: usize,
    },
    /// Every formula of a rule or optimizer.
    Method {
        spec: &'static str,
        width: usize,
    },
    Buffers {
        len: usize,
        kind: Kind,
    },
    Dropout {
        rows: usize,
        width: usize,
        skip: usize,
        period: usize,
    },
    Embedding {
        rows: usize,
        vocabulary: usize,
        width: usize,
        used: usize,
        row_drop: f32,
        drop: f32,
        period: usize,
    },
    AddNorm {
        norm: Norm,
        rows: usize,
        width: usize,
        branch: bool,
        drop: f32,
    },
    Linear {
        rows: usize,
        inputs: usize,
        outputs: usize,
        activation: Activation,
        bias: bool,
        write: Option<Write>,
    },
    /// A product after the weights were changed in every way that there is.
    ChangedWeights,
    Attention {
        batch: usize,
        heads: usize,
        width: usize,
        queries: usize,
        keys: usize,
        how: How,
    },
    RelativeBias {
        heads: usize,
        queries: usize,
        keys: usize,
        bidirectional: bool,
    },
    Lstm {
        time: usize,
        batch: usize,
        inputs: usize,
        hidden: usize,
        drop: f32,
    },
    Regularizers {
        time: usize,
        batch: usize,
        width: usize,
        drop: f32,
    },
    Head {
        rows: usize,
        vocabulary: usize,
        width: usize,
        bias: bool,
        gradient: Option<Write>,
    },
}

/// The options of an attention.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    pub causal: bool,
    pub bias: bool,
    pub drop: f32,
    /// Keys and values in a buffer of their own.
    pub apart: bool,
    /// Values by which the output shows the weights themselves, and with them the mask.
    pub weights: bool,
}

/// All operations in groups.
pub fn operations() -> Vec<(&'static str, Vec<Operation>)> {
    let layer = Norm::Layer { epsilon: 1e-5 };
    let rms = Norm::Rms { epsilon: 1e-6 };
    let vectors = [1, 5, 1000, 70_001, 3_000_000].map(|len| Operation::Sums { len });
    let updates = [5, 70_001].map(|len| Operation::Update { len });
    let everything = [1, 6, 1003, 70_001, 3_000_001].map(|len| Operation::Everything { len });
    let buffers = [Kind::Activation, Kind::Statistic].map(|kind| Operation::Buffers { len: 5001, kind });
    let dropouts = [(24, 33, 2, 4), (5, 64, 0, usize::MAX), (12, 400, 3, 3), (7, 1, 0, 2)]
        .map(|(rows, width, skip, period)| Operation::Dropout { rows, width, skip, period });
    let embeddings = [
        (70, 65, 48, 0, 0.0, 0.0, usize::MAX),
        (300, 65, 384, 100, 0.0, 0.2, usize::MAX),
        (70, 65, 48, 35, 0.0, 0.0, usize::MAX),
        (60, 30, 20, 0, 0.3, 0.65, 6),
        (60, 30, 33, 12, 0.3, 0.4, usize::MAX),
        (500, 1000, 64, 0, 0.1, 0.65, 20),
    ]
    .map(|(rows, vocabulary, width, used, row_drop, drop, period)| Operation::Embedding {
        rows,
        vocabulary,
        width,
        used,
        row_drop,
        drop,
        period,
    });
    let mut norms = Vec::new();
    for norm in [layer, rms] {
        for (rows, width) in [(5, 19), (70, 48), (33, 384), (130, 768)] {
            for (branch, drop) in [(false, 0.0), (true, 0.0), (true, 0.3)] {
                norms.push(Operation::AddNorm { norm, rows, width, branch, drop });
            }
        }
    }
    let mut products = vec![Operation::ChangedWeights];
    for activation in [Activation::None, Activation::Gelu, Activation::GeluTanh, Activation::GatedGelu] {
        for (rows, inputs, outputs) in [(70, 48, 96), (3, 20, 30), (256, 384, 1536)] {
            for (bias, write) in
                [(false, Some(Write::Set)), (true, Some(Write::Add)), (true, None), (false, Some(Write::Add))]
            {
                products.push(Operation::Linear { rows, inputs, outputs, activation, bias, write });
            }
        }
    }
    let mut attentions = Vec::new();
    let none = How::default();
    for width in [20, 32, 64, 128] {
        for (queries, keys, how) in [
            (70, 70, How { causal: true, ..none }),
            (130, 130, How { causal: true, drop: 0.2, ..none }),
            (67, 67, How { bias: true, ..none }),
            (70, 70, How { bias: true, causal: true, ..none }),
            (45, 130, How { apart: true, ..none }),
            (130, 45, How { apart: true, bias: true, drop: 0.2, ..none }),
            (1, 9, How { apart: true, ..none }),
        ] {
            attentions.push(Operation::Attention { batch: 2, heads: 3, width, queries, keys, how });
        }
        let how = How { drop: 0.3, weights: true, ..none };
        let masked = Operation::Attention { batch: 2, heads: 3, width, queries: 77, keys: width, how };
        let (apart, causal) = (How { apart: true, ..how }, How { causal: true, ..how });
        let square =
            Operation::Attention { batch: 2, heads: 2, width, queries: width, keys: width, how: causal };
        attentions.extend([with_how(masked, apart), square]);
    }
    // As in the paper's networks: GPT, T5's encoder, and its decoder on the encoder's output.
    let of_the_paper = [
        (4, 6, 256, 256, How { causal: true, drop: 0.2, ..none }),
        (2, 12, 512, 512, How { bias: true, ..none }),
        (2, 12, 114, 512, How { apart: true, ..none }),
    ];
    attentions.extend(of_the_paper.map(|(batch, heads, queries, keys, how)| Operation::Attention {
        batch,
        heads,
        width: 64,
        queries,
        keys,
        how,
    }));
    let biases =
        [(3, 9, 12, true), (3, 12, 9, false), (12, 512, 512, true), (12, 114, 114, false), (4, 1, 1, true)]
            .map(|(heads, queries, keys, bidirectional)| Operation::RelativeBias {
                heads,
                queries,
                keys,
                bidirectional,
            });
    let lstms = [
        (1, 12, 64, 128, 0.5),
        (2, 12, 128, 64, 0.5),
        (7, 12, 64, 128, 0.0),
        (20, 4, 30, 50, 0.5),
        (4, 33, 100, 210, 0.5),
        (3, 1, 64, 128, 0.0),
        (5, 80, 400, 1150, 0.5),
        (5, 80, 1150, 400, 0.5),
    ]
    .map(|(time, batch, inputs, hidden, drop)| Operation::Lstm { time, batch, inputs, hidden, drop });
    let regularizers = [(5, 4, 30, 0.4), (1, 4, 30, 0.4), (12, 20, 400, 0.4), (7, 3, 64, 0.0)]
        .map(|(time, batch, width, drop)| Operation::Regularizers { time, batch, width, drop });
    let mut heads = Vec::new();
    for (rows, vocabulary, width) in
        [(70, 65, 48), (300, 65, 384), (33, 1000, 64), (5, 7, 3), (40, 32_128, 64)]
    {
        for (bias, gradient) in [
            (false, None),
            (true, None),
            (false, Some(Write::Set)),
            (true, Some(Write::Set)),
            (true, Some(Write::Add)),
        ] {
            heads.push(Operation::Head { rows, vocabulary, width, bias, gradient });
        }
    }
    let methods = methods(21).into_iter().chain([Operation::Method { spec: "adamw", width: 2501 }]);
    vec![
        ("vectors", vectors.into_iter().chain(updates).chain(everything).collect()),
        ("methods", methods.collect()),
        ("buffers", buffers.into_iter().chain(dropouts).collect()),
        ("embeddings", embeddings.into()),
        ("norms", norms),
        ("products", products),
        ("attentions", attentions),
        ("relative biases", biases.into()),
        ("LSTMs", lstms.into()),
        ("regularizers", regularizers.into()),
        ("heads", heads),
    ]
}

/// All rules and optimizers. Their names are kept for good, as an operation can be copied.
fn methods(width: usize) -> Vec<Operation> {
    let specs = methods::specs().into_iter().map(|spec| &*spec.leak());
    specs.map(|spec| Operation::Method { spec, width }).collect()
}

fn with_how(operation: Operation, how: How) -> Operation {
    match operation {
        Operation::Attention { batch, heads, width, queries, keys, .. } => {
            Operation::Attention { batch, heads, width, queries, keys, how }
        }
        other => other,
    }
}

/// Few and small ones that together start every kernel.
pub fn small_operations() -> Vec<Operation> {
    let (layer, rms) = (Norm::Layer { epsilon: 1e-5 }, Norm::Rms { epsilon: 1e-6 });
    let linear = |activation, bias, write| Operation::Linear {
        rows: 35,
        inputs: 48,
        outputs: 96,
        activation,
        bias,
        write: Some(write),
    };
    let attention =
        |width, queries, keys, how| Operation::Attention { batch: 1, heads: 2, width, queries, keys, how };
    let head = |bias, gradient| Operation::Head { rows: 20, vocabulary: 65, width: 48, bias, gradient };
    let none = How::default();
    let mut all = vec![
        Operation::Sums { len: 3001 },
        Operation::Update { len: 3001 },
        Operation::Everything { len: 3001 },
        Operation::Buffers { len: 501, kind: Kind::Activation },
        Operation::Buffers { len: 501, kind: Kind::Statistic },
        Operation::Dropout { rows: 12, width: 33, skip: 2, period: 4 },
        Operation::Embedding {
            rows: 30,
            vocabulary: 17,
            width: 48,
            used: 10,
            row_drop: 0.3,
            drop: 0.4,
            period: usize::MAX,
        },
        Operation::Embedding {
            rows: 30,
            vocabulary: 17,
            width: 33,
            used: 10,
            row_drop: 0.0,
            drop: 0.0,
            period: 4,
        },
        Operation::Embedding {
            rows: 30,
            vocabulary: 600,
            width: 33,
            used: 0,
            row_drop: 0.3,
            drop: 0.4,
            period: 4,
        },
        linear(Activation::None, true, Write::Set),
        linear(Activation::Gelu, false, Write::Add),
        linear(Activation::GeluTanh, true, Write::Add),
        linear(Activation::GatedGelu, false, Write::Set),
        linear(Activation::GatedGelu, true, Write::Set),
        Operation::Linear {
            rows: 35,
            inputs: 48,
            outputs: 90,
            activation: Activation::GatedGelu,
            bias: false,
            write: Some(Write::Set),
        },
        Operation::ChangedWeights,
        attention(20, 70, 70, How { causal: true, drop: 0.2, ..none }),
        attention(32, 70, 70, How { bias: true, causal: true, ..none }),
        attention(64, 70, 70, How { causal: true, drop: 0.2, ..none }),
        attention(64, 70, 70, How { bias: true, ..none }),
        attention(64, 33, 70, How { apart: true, ..none }),
        attention(128, 70, 33, How { apart: true, bias: true, drop: 0.2, ..none }),
        Operation::RelativeBias { heads: 3, queries: 9, keys: 12, bidirectional: true },
        Operation::Lstm { time: 3, batch: 5, inputs: 30, hidden: 50, drop: 0.5 },
        Operation::Lstm { time: 3, batch: 12, inputs: 64, hidden: 128, drop: 0.0 },
        Operation::Regularizers { time: 4, batch: 3, width: 30, drop: 0.4 },
        head(false, None),
        head(true, Some(Write::Set)),
        head(true, Some(Write::Add)),
        Operation::Head { rows: 5, vocabulary: 2100, width: 48, bias: true, gradient: Some(Write::Set) },
    ];
    for norm in [layer, rms] {
        for (width, branch, drop) in [(48, false, 0.0), (48, true, 0.3), (384, true, 0.0), (19, true, 0.3)] {
            all.push(Operation::AddNorm { norm, rows: 9, width, branch, drop });
        }
    }
    // Two to five tiles of rows of the matrix in a block, on 132 multiprocessors.
    for hidden in [300, 530, 800, 1060] {
        all.push(Operation::Lstm { time: 2, batch: 41, inputs: 30, hidden, drop: 0.5 });
    }
    // The other numbers of chunks that a row in registers has.
    for width in [200, 500, 768, 1000] {
        all.push(Operation::AddNorm { norm: layer, rows: 9, width, branch: true, drop: 0.3 });
    }
    all.extend(methods(3));
    all
}

/// A device with what was put on it and what came out.
struct Place<'a, D: Device> {
    device: &'a D,
    numbers: Numbers,
    /// The next use of randomness.
    site: u32,
    outputs: Vec<Output>,
}

/// The length of a buffer of which `len` numbers are used: behind the last whole 16 bytes or more there are some to watch.
fn padded(len: usize) -> usize {
    len.next_multiple_of(8) + 8
}

impl<D: Device> Place<'_, D> {
    fn normal(&mut self, len: usize, deviation: f64) -> Vec<f32> {
        let mut values = vec![0.0; len];
        self.site += 1;
        Site { seed: self.numbers.seed, site: self.site, step: 0 }.fill_normal(&mut values, deviation);
        self.numbers.rounded(values)
    }

    fn ids(&mut self, len: usize, below: usize) -> Result<D::Ids, DeviceError> {
        self.site += 1;
        let site = Site { seed: self.numbers.seed, site: self.site, step: 0 };
        let values: Vec<u32> = (0..len as u64).map(|index| site.bits(index) % below as u32).collect();
        let mut ids = self.device.ids(len)?;
        self.device.set_ids(&mut ids, &values);
        Ok(ids)
    }

    fn dropout(&mut self, probability: f32, period: usize) -> Dropout {
        self.site += 1;
        Dropout { site: Site { seed: self.numbers.seed, site: self.site, step: 3 }, probability, period }
    }

    /// A buffer of these numbers, with NaN behind them.
    fn holds(&self, values: &[f32], kind: Kind) -> Result<D::Buffer, DeviceError> {
        let mut buffer = self.device.buffer(padded(values.len()), kind)?;
        let mut all = values.to_vec();
        all.resize(padded(values.len()), f32::NAN);
        self.device.set_buffer(&mut buffer, &all);
        Ok(buffer)
    }

    /// Random activations.
    fn given(&mut self, len: usize) -> Result<D::Buffer, DeviceError> {
        let values = self.normal(len, 1.0);
        self.holds(&values, Kind::Activation)
    }

    /// What is to be overwritten.
    fn poisoned(&self, len: usize, kind: Kind) -> Result<D::Buffer, DeviceError> {
        self.holds(&vec![f32::NAN; len], kind)
    }

    fn parameters(&mut self, layout: &Layout) -> Result<D::Parameters, DeviceError> {
        self.site += 1;
        let values = layout.initial(self.numbers.seed + u64::from(self.site));
        self.device.parameters(&self.numbers.rounded(values))
    }

    /// A gradient: what is added to is random, all else NaN, but the gaps between tensors are 0.
    fn gradient(&mut self, layout: &Layout, added: &[View]) -> Result<D::Parameters, DeviceError> {
        let mut values = vec![0.0; layout.len()];
        for tensor in layout.tensors() {
            let to = &mut values[tensor.view.range()];
            match added.contains(&tensor.view) {
                true => to.copy_from_slice(&self.normal(tensor.view.len(), 0.1)),
                false => to.fill(f32::NAN),
            }
        }
        self.device.parameters(&values)
    }

    fn record_values(&mut self, name: &str, values: impl IntoIterator<Item = f64>, mask: bool) {
        self.outputs.push(Output { name: name.into(), values: values.into_iter().collect(), mask });
    }

    fn record(&mut self, name: &str, buffer: &D::Buffer, len: usize) -> Result<(), DeviceError> {
        self.record_masked(name, buffer, len, false)
    }

    fn record_masked(
        &mut self,
        name: &str,
        buffer: &D::Buffer,
        len: usize,
        mask: bool,
    ) -> Result<(), DeviceError> {
        let mut values = vec![0.0; padded(len)];
        self.device.get_buffer(buffer, &mut values)?;
        let changed = values[len.next_multiple_of(8)..].iter().filter(|value| !value.is_nan()).count();
        if changed > 0 {
            self.record_values(&format!("{name}: {changed} numbers behind it were changed"), [], false);
        }
        self.record_values(name, values[..len].iter().map(|&value| value.into()), mask);
        Ok(())
    }

    /// Each tensor, and the gaps between them, which stay 0.
    fn record_parameters(
        &mut self,
        layout: &Layout,
        from: &D::Parameters,
        masked: &[View],
    ) -> Result<(), DeviceError> {
        let mut values = vec![0.0; layout.len()];
        self.device.get_parameters(from, &mut values)?;
        for tensor in layout.tensors() {
            let part = &mut values[tensor.view.range()];
            let mask = masked.contains(&tensor.view);
            self.outputs.push(Output {
                name: tensor.name.clone(),
                values: part.iter().map(|&value| value.into()).collect(),
                mask,
            });
            part.fill(0.0);
        }
        self.record_values("gaps between tensors", values.into_iter().map(f64::from), false);
        Ok(())
    }

    fn record_scalars(&mut self, names: &[&str], scalars: &D::Scalars) -> Result<(), DeviceError> {
        let mut values = vec![0.0; names.len()];
        self.device.read(scalars, &mut values)?;
        for (name, value) in names.iter().zip(values) {
            self.record_values(name, [value], false);
        }
        Ok(())
    }
}

fn vector_layout(len: usize, names: &[&str]) -> Vec<Layout> {
    let layout = |name: &&str| {
        let mut layout = Layout::default();
        layout.vector(*name, len, Initial::Normal(1.0));
        layout
    };
    names.iter().map(layout).collect()
}

/// Runs an operation and, where there is one, its backward pass.
pub fn run<D: Device>(
    operation: &Operation,
    device: &D,
    numbers: Numbers,
) -> Result<Vec<Output>, DeviceError> {
    let mut place = Place { device, numbers, site: 0, outputs: Vec::new() };
    let to = &mut place;
    match *operation {
        Operation::Sums { len } => sums(to, len),
        Operation::Update { len } => update(to, len),
        Operation::Everything { len } => everything(to, len),
        Operation::Method { spec, width } => method(to, spec, width),
        Operation::Buffers { len, kind } => buffers(to, len, kind),
        Operation::Dropout { rows, width, skip, period } => dropout(to, rows, width, skip, period),
        Operation::Embedding { .. } => embedding(to, operation),
        Operation::AddNorm { norm, rows, width, branch, drop } => {
            add_norm(to, norm, rows, width, branch, drop)
        }
        Operation::Linear { .. } => linear(to, operation),
        Operation::ChangedWeights => changed_weights(to),
        Operation::Attention { .. } => attention(to, operation),
        Operation::RelativeBias { heads, queries, keys, bidirectional } => {
            relative_bias(to, heads, queries, keys, bidirectional)
        }
        Operation::Lstm { time, batch, inputs, hidden, drop } => {
            lstm(to, [time, batch, inputs, hidden], drop)
        }
        Operation::Regularizers { time, batch, width, drop } => regularizers(to, time, batch, width, drop),
        Operation::Head { rows, vocabulary, width, bias, gradient } => {
            head(to, [rows, vocabulary, width], bias, gradient)
        }
    }?;
    Ok(place.outputs)
}

type Done = Result<(), DeviceError>;

fn sums<D: Device>(place: &mut Place<'_, D>, len: usize) -> Done {
    let layouts = vector_layout(len, &["a", "b"]);
    let (a, b) = (place.parameters(&layouts[0])?, place.parameters(&layouts[1])?);
    let mut scalars = place.device.scalars(3)?;
    place.device.square_norm(&a, &mut scalars, 0);
    place.device.square_distance(&a, &b, &mut scalars, 1);
    place.device.square_norm(&b, &mut scalars, 2);
    place.record_scalars(&["‖a‖²", "‖a − b‖²", "‖b‖²"], &scalars)
}

fn update<D: Device>(place: &mut Place<'_, D>, len: usize) -> Done {
    let layouts = vector_layout(len, &["x", "gradient", "copy"]);
    let (mut x, gradient) = (place.parameters(&layouts[0])?, place.parameters(&layouts[1])?);
    let mut copy = place.gradient(&layouts[2], &[])?;
    place.device.change(Combine, [1.0, -0.25], 0.0, &[], [&mut x], [&gradient]);
    place.record_parameters(&layouts[0], &x, &[])?;
    place.device.copy_parameters(&x, &mut copy);
    let middle = View { offset: len / 3, rows: 1, columns: len / 3 };
    place.device.clear(&mut copy, middle);
    place.record_parameters(&layouts[2], &copy, &[layouts[2].tensors()[0].view])
}

/// On vectors of any length, of which parts decay that begin and end anywhere.
fn everything<D: Device>(place: &mut Place<'_, D>, len: usize) -> Done {
    let [x, y, g] = [place.normal(len, 1.0), place.normal(len, 2.0), place.normal(len, 1.0)];
    let device = place.device;
    let (mut x, mut y, g) = (device.parameters(&x)?, device.parameters(&y)?, device.parameters(&g)?);
    let tensor = |start, len, decays, scale| TensorRange { range: start..start + len, decays, scale };
    let mut tensors = vec![
        tensor(1, 1, true, 0.5),
        tensor(3, 2, false, 2.0),
        tensor(5, 1, true, 1.5),
        tensor(6, 0, true, 9.0),
        tensor(len / 2, len / 3, true, 3.0),
    ];
    tensors.retain(|tensor| tensor.range.end <= len);
    tensors.sort_by_key(|tensor| tensor.range.start);
    tensors.dedup_by(|next, tensor| next.range.start < tensor.range.end);
    let mut scalars = device.scalars(5)?;
    device.measure(Everything, [0.3, 0.2], 0.25, &tensors, [&x, &g], &mut scalars, 1);
    for _ in 0..3 {
        device.change(Everything, [0.3, 0.2], 0.25, &tensors, [&mut x, &mut y], [&g]);
    }
    place.record_scalars(&["before", "quotients", "choices", "sum", "behind"], &scalars)?;
    for (name, vector) in [("x", &x), ("y", &y)] {
        let mut values = vec![0.0; len];
        device.get_parameters(vector, &mut values)?;
        place.record_values(name, values.into_iter().map(f64::from), false);
    }
    Ok(())
}

/// Runs every formula of a method on the device, when it first comes and once more, with the method's numbers: before the first
/// step some of them are 0.
struct OnDevice<'a, 'b, D: Device> {
    place: &'a mut Place<'b, D>,
    layout: &'a Layout,
    seen: Vec<Program>,
    done: Done,
}

impl<D: Device> OnDevice<'_, '_, D> {
    fn is_new(&mut self, program: Program) -> bool {
        let before = self.seen.iter().filter(|seen| **seen == program).count();
        let new = self.done.is_ok() && before < 2;
        if new {
            self.seen.push(program);
        }
        new
    }

    fn vectors<const N: usize>(&self, values: [&[f64]; N]) -> Result<[D::Parameters; N], DeviceError> {
        let vectors = values.map(|values| {
            let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            self.place.device.parameters(&values)
        });
        let vectors: Vec<_> = vectors.into_iter().collect::<Result<_, _>>()?;
        Ok(vectors.try_into().unwrap_or_else(|_| unreachable!("as many as before")))
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        before: [&[f64]; M],
        read: [&[f64]; R],
    ) -> Done {
        let (mut vectors, read) = (self.vectors(before)?, self.vectors(read)?);
        let (device, tensors) = (self.place.device, self.layout.tensor_ranges());
        device.change(formula, scalars, decay, &tensors, vectors.each_mut(), read.each_ref());
        vectors.iter().try_for_each(|vector| self.place.record_parameters(self.layout, vector, &[]))
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        read: [&[f64]; R],
    ) -> Done {
        let vectors = self.vectors(read)?;
        let (device, tensors) = (self.place.device, self.layout.tensor_ranges());
        let mut sums = device.scalars(K)?;
        device.measure(formula, scalars, decay, &tensors, vectors.each_ref(), &mut sums, 0);
        self.place.record_scalars(&["a sum"; K], &sums)
    }
}

impl<D: Device> Watch for OnDevice<'_, '_, D> {
    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        before: [&[f64]; M],
        read: [&[f64]; R],
        _: [&[f64]; M],
    ) {
        if self.is_new(Program::of_change::<F, S, M, R>()) {
            self.done = OnDevice::change(self, formula, scalars, decay, before, read);
        }
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        read: [&[f64]; R],
    ) {
        if self.is_new(Program::of_measure::<F, S, R, K>()) {
            self.done = OnDevice::measure(self, formula, scalars, decay, read);
        }
    }
}

fn method<D: Device>(place: &mut Place<'_, D>, spec: &str, width: usize) -> Done {
    let mut layout = Layout::default();
    layout.vector("first", 5, Initial::Normal(1.0));
    layout.matrix("small", 3, 7, Initial::Normal(1.0));
    layout.matrix("large", 300, width, Initial::Normal(1.0));
    layout.vector("norm", 140 * width, Initial::Normal(1.0));
    let parts = ["q", "k"].map(|name| (name.to_string(), 33, Initial::Normal(1.0)));
    layout.stacked(&parts, 5);
    layout.vector("last", 3, Initial::Normal(1.0));
    let watch = OnDevice { place, layout: &layout, seen: Vec::new(), done: Ok(()) };
    methods::walk(spec, &layout, watch).done
}

fn buffers<D: Device>(place: &mut Place<'_, D>, len: usize, kind: Kind) -> Done {
    let (a, b) = (place.normal(len, 1.0), place.normal(len, 1.0));
    let (a, mut b) = (place.holds(&a, kind)?, place.holds(&b, kind)?);
    place.device.add(len - 5, &a, &mut b);
    place.record("sum", &b, len)?;
    let mut copy = place.poisoned(len, kind)?;
    place.device.copy(len, &b, &mut copy);
    place.record("copy", &copy, len)?;
    // An even number, as a device may clear by two.
    place.device.clear_buffer(len / 4 * 2, &mut copy);
    place.record_masked("cleared", &copy, len, true)
}

fn dropout<D: Device>(
    place: &mut Place<'_, D>,
    rows: usize,
    width: usize,
    skip: usize,
    period: usize,
) -> Done {
    let from = place.given((rows + skip) * width)?;
    for probability in [0.3, 0.0] {
        let dropout = place.dropout(probability, period);
        let mut to = place.poisoned(rows * width, Kind::Activation)?;
        place.device.dropout(dropout, rows, width, (&from, skip), &mut to);
        place.record_masked(&format!("with {probability}"), &to, rows * width, true)?;
    }
    Ok(())
}

fn embedding<D: Device>(place: &mut Place<'_, D>, operation: &Operation) -> Done {
    let &Operation::Embedding { rows, vocabulary, width, used, row_drop, drop, period } = operation else {
        unreachable!()
    };
    let mut layout = Layout::default();
    let table = layout.matrix("table", vocabulary, width, Initial::Normal(1.0));
    // Two positions more than are used.
    let positions =
        (used > 0).then(|| (layout.matrix("positions", used + 2, width, Initial::Normal(1.0)), used));
    let row_dropout = place.dropout(row_drop, usize::MAX);
    let dropout = place.dropout(drop, period);
    let layer = device::Embedding { table, positions, row_dropout, dropout };
    let (x, ids) = (place.parameters(&layout)?, place.ids(rows, vocabulary)?);
    let mut out = place.poisoned(rows * width, Kind::Activation)?;
    place.device.embedding(&layer, rows, &x, &ids, &mut out);
    place.record_masked("out", &out, rows * width, true)?;
    let d_out = place.given(rows * width)?;
    let mut dx = place.gradient(&layout, &[table])?;
    place.device.embedding_backward(&layer, rows, &ids, &d_out, &mut dx);
    place.record_parameters(&layout, &dx, &[])
}

fn add_norm<D: Device>(
    place: &mut Place<'_, D>,
    norm: Norm,
    rows: usize,
    width: usize,
    branch: bool,
    drop: f32,
) -> Done {
    let (mut layout, numbers) = (Layout::default(), rows * width);
    let weight = layout.vector("weight", width, Initial::Normal(1.0));
    let dropout = place.dropout(drop, usize::MAX);
    let (x, stream, added) = (place.parameters(&layout)?, place.given(numbers)?, place.given(numbers)?);
    let mut next = place.poisoned(numbers, Kind::Activation)?;
    let mut out = place.poisoned(numbers, Kind::Activation)?;
    let mut statistics = place.poisoned(2 * rows, Kind::Statistic)?;
    let with = branch.then_some((&added, dropout, &mut next));
    place.device.add_norm(norm, weight, rows, &x, &stream, with, &mut out, &mut statistics);
    place.record("out", &out, numbers)?;
    if branch {
        place.record("stream", &next, numbers)?;
    }
    let (d_out, mut d_stream) = (place.given(numbers)?, place.given(numbers)?);
    let (mut dx, mut d_branch) = (place.gradient(&layout, &[])?, place.poisoned(numbers, Kind::Activation)?);
    let stream = if branch { &next } else { &stream };
    let to = branch.then_some((&mut d_branch, dropout));
    place.device.add_norm_backward(
        norm,
        weight,
        rows,
        &x,
        stream,
        &statistics,
        &d_out,
        &mut dx,
        &mut d_stream,
        to,
    );
    place.record_parameters(&layout, &dx, &[])?;
    place.record("d_stream", &d_stream, numbers)?;
    if branch {
        place.record_masked("d_branch", &d_branch, numbers, true)?;
    }
    Ok(())
}

fn linear<D: Device>(place: &mut Place<'_, D>, operation: &Operation) -> Done {
    let &Operation::Linear { rows, inputs, outputs, activation, bias, write } = operation else {
        unreachable!()
    };
    let mut layout = Layout::default();
    let weight = layout.matrix("weight", outputs, inputs, Initial::Normal((inputs as f64).sqrt().recip()));
    let bias = bias.then(|| layout.vector("bias", outputs, Initial::Normal(1.0)));
    let layer = device::Linear { weight, bias, activation };
    let (x, input) = (place.parameters(&layout)?, place.given(rows * inputs)?);
    let (all, width) = (rows * outputs, layer.outputs());
    let mut out = place.poisoned(rows * width, Kind::Activation)?;
    let mut before = place.poisoned(all, Kind::Activation)?;
    let active = activation != Activation::None;
    place.device.linear(&layer, rows, &x, &input, &mut out, active.then_some(&mut before));
    place.record("out", &out, rows * width)?;
    if active {
        place.record("before", &before, all)?;
    }
    let (d_out, mut dx) = (place.given(rows * width)?, place.gradient(&layout, &[])?);
    let mut d_input = match write {
        Some(Write::Add) => place.given(rows * inputs)?,
        _ => place.poisoned(rows * inputs, Kind::Activation)?,
    };
    let to = write.map(|write| (&mut d_input, write));
    let before = active.then_some(&mut before);
    place.device.linear_backward(&layer, rows, &x, &input, before, &d_out, &mut dx, to);
    place.record_parameters(&layout, &dx, &[])?;
    if write.is_some() {
        place.record("d_input", &d_input, rows * inputs)?;
    }
    Ok(())
}

fn changed_weights<D: Device>(place: &mut Place<'_, D>) -> Done {
    let (rows, inputs, outputs) = (35, 48, 40);
    let mut layout = Layout::default();
    let weight = layout.matrix("weight", outputs, inputs, Initial::Normal(1.0));
    let layer = device::Linear::plain(weight);
    let (device, input) = (place.device, place.given(rows * inputs)?);
    let (mut x, other) = (place.parameters(&layout)?, place.parameters(&layout)?);
    let mut m = place.parameters(&layout)?;
    let tensors = [TensorRange { range: weight.range(), decays: true, scale: 2.0 }];
    for change in ["nothing", "update", "a formula", "set", "clear", "copy"] {
        match change {
            "update" => device.change(Combine, [1.0, -0.5], 0.0, &[], [&mut x], [&other]),
            "a formula" => device.change(Everything, [0.3, 0.2], 0.25, &tensors, [&mut m, &mut x], [&other]),
            "set" => {
                let values = place.normal(layout.len(), 1.0);
                device.set_parameters(&mut x, &values);
            }
            "clear" => device.clear(&mut x, View { rows: outputs / 2, ..weight }),
            "copy" => device.copy_parameters(&other, &mut x),
            _ => {}
        }
        let mut out = place.poisoned(rows * outputs, Kind::Activation)?;
        device.linear(&layer, rows, &x, &input, &mut out, None);
        place.record(&format!("after {change}"), &out, rows * outputs)?;
    }
    Ok(())
}

fn attention<D: Device>(place: &mut Place<'_, D>, operation: &Operation) -> Done {
    let &Operation::Attention { batch, heads, width, queries, keys, how } = operation else { unreachable!() };
    let How { causal, bias, drop, apart, weights } = how;
    let inner = heads * width;
    let at = |offset, stride| Columns { offset, stride };
    let places = match apart {
        true => Heads { q: at(0, inner), k: at(0, 2 * inner), v: at(inner, 2 * inner) },
        false => Heads { q: at(0, 3 * inner), k: at(inner, 3 * inner), v: at(2 * inner, 3 * inner) },
    };
    let dropout = place.dropout(drop, usize::MAX);
    let scale = (width as f64).sqrt().recip();
    let layer = device::Attention { batch, heads, width, queries, keys, causal, scale, dropout };
    let mut kv = place.normal(batch * keys * places.k.stride, 1.0);
    if weights {
        for (row, values) in kv.chunks_exact_mut(places.v.stride).enumerate() {
            for (column, value) in values[places.v.offset..][..inner].iter_mut().enumerate() {
                *value = if column % width == row % keys { 1.0 } else { 0.0 };
            }
        }
    }
    let (q, kv_len) = (place.normal(batch * queries * places.q.stride, 1.0), kv.len());
    let kv = place.holds(&kv, Kind::Activation)?;
    let q_len = if apart { q.len() } else { kv_len };
    let apart_q = if apart { Some(place.holds(&q, Kind::Activation)?) } else { None };
    let q = apart_q.as_ref().unwrap_or(&kv);
    let offsets = heads * (queries + keys - 1);
    let biases = place.normal(offsets, 1.0);
    let biases = if bias { Some(place.holds(&biases, Kind::Statistic)?) } else { None };
    let mut out = place.poisoned(batch * queries * inner, Kind::Activation)?;
    let mut logs = place.poisoned(batch * heads * queries, Kind::Statistic)?;
    place.device.attention(&layer, places, q, &kv, biases.as_ref(), &mut out, &mut logs);
    place.record_masked("out", &out, batch * queries * inner, weights)?;
    place.record("logs", &logs, batch * heads * queries)?;
    let d_out = place.given(batch * queries * inner)?;
    let (mut d_q, mut d_kv) =
        (place.poisoned(q_len, Kind::Activation)?, place.poisoned(kv_len, Kind::Activation)?);
    let d_bias = place.normal(offsets, 1.0);
    let mut d_bias = if bias { Some(place.holds(&d_bias, Kind::Statistic)?) } else { None };
    let to = apart.then_some(&mut d_kv);
    let (biases, d) = (biases.as_ref(), d_bias.as_mut());
    place.device.attention_backward(&layer, places, q, &kv, biases, &out, &logs, &d_out, &mut d_q, to, d);
    place.record(if apart { "d_q" } else { "d_qkv" }, &d_q, q_len)?;
    if apart {
        place.record("d_kv", &d_kv, kv_len)?;
    }
    if let Some(d_bias) = &d_bias {
        place.record("d_bias", d_bias, offsets)?;
    }
    Ok(())
}

fn relative_bias<D: Device>(
    place: &mut Place<'_, D>,
    heads: usize,
    queries: usize,
    keys: usize,
    bidirectional: bool,
) -> Done {
    let mut layout = Layout::default();
    let table = layout.matrix("table", 32, heads, Initial::Normal(1.0));
    let layer = device::RelativeBias { table, queries, keys, bidirectional, max_distance: 128 };
    let (x, len) = (place.parameters(&layout)?, heads * layer.offsets());
    let mut out = place.poisoned(len, Kind::Statistic)?;
    place.device.relative_bias(&layer, &x, &mut out);
    place.record("out", &out, len)?;
    let d_out = place.normal(len, 1.0);
    let (d_out, mut dx) = (place.holds(&d_out, Kind::Statistic)?, place.gradient(&layout, &[])?);
    place.device.relative_bias_backward(&layer, &d_out, &mut dx);
    place.record_parameters(&layout, &dx, &[])
}

fn lstm<D: Device>(place: &mut Place<'_, D>, [time, batch, inputs, hidden]: [usize; 4], drop: f32) -> Done {
    let mut layout = Layout::default();
    let initial = Initial::Uniform((hidden as f64).sqrt().recip());
    let input_weight = layout.matrix("input_weight", 4 * hidden, inputs, initial);
    let hidden_weight = layout.matrix("hidden_weight", 4 * hidden, hidden, initial);
    let input_bias = layout.vector("input_bias", 4 * hidden, initial);
    let hidden_bias = layout.vector("hidden_bias", 4 * hidden, initial);
    let weight_drop = place.dropout(drop, usize::MAX);
    let layer =
        device::Lstm { time, batch, input_weight, hidden_weight, input_bias, hidden_bias, weight_drop };
    let (rows, state) = (time * batch, batch * hidden);
    let (x, input) = (place.parameters(&layout)?, place.given(rows * inputs)?);
    let carry = place.normal(2 * state, 0.5);
    let mut carry = place.holds(&carry, Kind::Statistic)?;
    let mut gates = place.poisoned(rows * 4 * hidden, Kind::Activation)?;
    let mut cells = place.poisoned((time + 1) * state, Kind::Statistic)?;
    let mut out = place.poisoned((time + 1) * state, Kind::Activation)?;
    place.device.lstm(&layer, &x, &input, &mut carry, &mut gates, &mut cells, &mut out);
    place.record("out", &out, (time + 1) * state)?;
    place.record("carry", &carry, 2 * state)?;
    let (d_out, mut dx) = (place.given(rows * hidden)?, place.gradient(&layout, &[])?);
    let mut d_input = place.poisoned(rows * inputs, Kind::Activation)?;
    let (saved, d) = ((&mut gates, &cells, &out), &mut d_input);
    place.device.lstm_backward(&layer, &x, &input, saved.0, saved.1, saved.2, &d_out, &mut dx, d);
    place.record_parameters(&layout, &dx, &[hidden_weight])?;
    place.record("d_input", &d_input, rows * inputs)
}

fn regularizers<D: Device>(
    place: &mut Place<'_, D>,
    time: usize,
    batch: usize,
    width: usize,
    drop: f32,
) -> Done {
    let (rows, numbers) = (time * batch, time * batch * width);
    let dropout = place.dropout(drop, batch);
    let shape = Regularizers { time, batch, width, activation: 2.0, change: 1.0, dropout };
    let raw = place.given(numbers + batch * width)?;
    let mut dropped = place.poisoned(numbers, Kind::Activation)?;
    place.device.dropout(dropout, rows, width, (&raw, batch), &mut dropped);
    let mut scalars = place.device.scalars(3)?;
    place.device.regularizers(shape, &dropped, &raw, &mut scalars, 1);
    place.record_scalars(&["untouched", "of the activations", "of their change"], &scalars)?;
    // As small as the gradient of a mean is.
    let d_dropped = place.normal(numbers, 1.0 / numbers as f64);
    let d_dropped = place.holds(&d_dropped, Kind::Activation)?;
    let mut d_raw = place.poisoned(numbers, Kind::Activation)?;
    place.device.regularizers_backward(shape, &dropped, &raw, &d_dropped, &mut d_raw);
    place.record("d_raw", &d_raw, numbers)
}

fn head<D: Device>(
    place: &mut Place<'_, D>,
    [rows, vocabulary, width]: [usize; 3],
    bias: bool,
    gradient: Option<Write>,
) -> Done {
    let mut layout = Layout::default();
    let initial = Initial::Normal(2.0 * (width as f64).sqrt().recip());
    let weight = layout.matrix("weight", vocabulary, width, initial);
    let bias = bias.then(|| layout.vector("bias", vocabulary, Initial::Normal(1.0)));
    let layer = device::Head { weight, bias, into: gradient.unwrap_or(Write::Set) };
    let (x, h) = (place.parameters(&layout)?, place.given(rows * width)?);
    let targets = place.ids(rows, vocabulary)?;
    let mut scalars = place.device.scalars(2)?;
    let added: Vec<View> = match gradient {
        Some(Write::Add) => layout.tensors().iter().map(|tensor| tensor.view).collect(),
        _ => Vec::new(),
    };
    let (mut d_h, mut dx) =
        (place.poisoned(rows * width, Kind::Activation)?, place.gradient(&layout, &added)?);
    let to = gradient.map(|_| (&mut d_h, &mut dx));
    place.device.head(&layer, rows, &x, &h, &targets, &mut scalars, 1, to);
    place.record_scalars(&["untouched", "loss"], &scalars)?;
    if gradient.is_some() {
        place.record("d_h", &d_h, rows * width)?;
        place.record_parameters(&layout, &dx, &[])?;
    }
    let mut logits = vec![f32::NAN; vocabulary];
    place.device.logits(&layer, rows - 1, &x, &h, &mut logits)?;
    place.record_values("logits", logits.into_iter().map(f64::from), false);
    Ok(())
}
