//! Whole networks: their loss, every tensor of their gradient, and some steps of training.

use super::operations::Numbers;
use super::report::Output;
use std::ops::Range;
use untuned_net::device::{Device, DeviceError};
use untuned_net::formulas::Combine;
use untuned_net::models::{
    Feed, Gpt, GptShape, Lstm, LstmShape, Network, Noise, SCALARS, T5, T5Shape, loss_of,
};
use untuned_net::random::Site;

/// A network and the sizes of its batches.
#[derive(Debug, Clone, Copy)]
pub enum Net {
    Gpt { shape: GptShape, batch: usize },
    Lstm { shape: LstmShape, batch: usize, time: usize },
    T5 { shape: T5Shape, batch: usize },
}

/// Sizes that no block of a kernel divides.
const ODD_GPT: GptShape =
    GptShape { vocabulary: 65, context: 70, blocks: 2, width: 48, heads: 3, dropout: 0.2 };
const ODD_LSTM: LstmShape = LstmShape { vocabulary: 300, embedding: 100, hidden: 210, ..LstmShape::PAPER };
const ODD_T5: T5Shape = T5Shape {
    vocabulary: 300,
    width: 40,
    heads: 3,
    head_width: 16,
    feed_forward: 36,
    layers: 2,
    inputs: 130,
    targets: 70,
};

/// The networks of which gradients are compared.
pub fn networks() -> Vec<(&'static str, Net)> {
    let two = GptShape { blocks: 2, ..GptShape::PAPER };
    vec![
        ("odd GPT", Net::Gpt { shape: ODD_GPT, batch: 3 }),
        ("tiny GPT", Net::Gpt { shape: GptShape::TINY, batch: 4 }),
        ("two blocks of the paper's GPT", Net::Gpt { shape: two, batch: 4 }),
        ("odd LSTM", Net::Lstm { shape: ODD_LSTM, batch: 33, time: 4 }),
        ("tiny LSTM", Net::Lstm { shape: LstmShape::TINY, batch: 12, time: 20 }),
        ("odd T5", Net::T5 { shape: ODD_T5, batch: 3 }),
        ("tiny T5", Net::T5 { shape: T5Shape::TINY, batch: 2 }),
    ]
}

/// Those that are trained.
pub fn trained() -> Vec<(&'static str, Net)> {
    vec![
        ("GPT", Net::Gpt { shape: GptShape { dropout: 0.2, ..GptShape::TINY }, batch: 4 }),
        ("LSTM", Net::Lstm { shape: LstmShape::TINY, batch: 12, time: 20 }),
        ("T5", Net::T5 { shape: ODD_T5, batch: 3 }),
    ]
}

impl Net {
    fn build<D: Device + 'static>(&self, device: &D) -> Result<Box<dyn Network<D>>, DeviceError>
    where
        D::Buffer: Send,
        D::Ids: Send,
    {
        Ok(match *self {
            Net::Gpt { shape, batch } => Box::new(Gpt::new(device, shape, batch)?),
            Net::Lstm { shape, batch, time } => Box::new(Lstm::new(device, shape, batch, time)?),
            Net::T5 { shape, batch } => Box::new(T5::new(device, shape, batch)?),
        })
    }

    fn vocabulary(&self) -> usize {
        match self {
            Net::Gpt { shape, .. } => shape.vocabulary,
            Net::Lstm { shape, .. } => shape.vocabulary,
            Net::T5 { shape, .. } => shape.vocabulary,
        }
    }

    /// The inputs and targets of a batch, and how many sequences they are.
    fn batch(&self, seed: u64) -> (Vec<u32>, Vec<u32>, usize) {
        let (inputs, targets, batch) = match *self {
            Net::Gpt { shape, batch } => (shape.context, shape.context, batch),
            Net::Lstm { batch, time, .. } => (time, time, batch),
            Net::T5 { shape, batch } => (shape.inputs, shape.targets, batch),
        };
        let ids = |length: usize, site: u32| {
            let (site, below) = (Site { seed, site, step: 0 }, self.vocabulary() as u32);
            (0..(batch * length) as u64).map(|index| site.bits(index) % below).collect()
        };
        (ids(inputs, 1), ids(targets, 2), batch)
    }
}

/// The loss and gradient of two batches, the loss without noise, and the logits of what comes next.
pub fn gradients<D: Device + 'static>(
    net: &Net,
    device: &D,
    numbers: Numbers,
    noise: Option<Noise>,
) -> Result<Vec<Output>, DeviceError>
where
    D::Buffer: Send,
    D::Ids: Send,
{
    let mut network = net.build(device)?;
    let layout = network.layout().clone();
    let x = device.parameters(&numbers.rounded(layout.initial(7)))?;
    let mut poison = vec![0.0; layout.len()];
    layout.tensors().iter().for_each(|tensor| poison[tensor.view.range()].fill(f32::NAN));
    let mut dx = device.parameters(&poison)?;
    let mut scalars = device.scalars(SCALARS)?;
    let mut outputs = Vec::new();
    let mut record = |name: String, values: Vec<f64>| outputs.push(Output { name, values, mask: false });
    let mut read = vec![0.0; SCALARS];
    // The second batch starts with what an LSTM carries.
    for batch in 1..=2 {
        let (inputs, targets, sequences) = net.batch(batch);
        let feed = Feed { inputs: &inputs, targets: &targets, batch: sequences };
        network.gradient(device, feed, noise, &x, &mut dx, &mut scalars);
        device.read(&scalars, &mut read)?;
        record(format!("loss {batch}"), vec![loss_of(&read).objective]);
        let mut values = vec![0.0; layout.len()];
        device.get_parameters(&dx, &mut values)?;
        for tensor in layout.tensors() {
            let values = values[tensor.view.range()].iter().map(|&value| value.into()).collect();
            record(format!("{} {batch}", tensor.name), values);
        }
    }
    let (inputs, targets, sequences) = net.batch(3);
    let feed = Feed { inputs: &inputs, targets: &targets, batch: sequences };
    network.loss(device, feed, &x, &mut scalars);
    device.read(&scalars, &mut read)?;
    record("loss without noise".into(), read);
    network.set_source(device, &inputs[..20], &x);
    let mut logits = vec![0.0; net.vocabulary()];
    network.next_logits(device, &targets[..9], &x, &mut logits)?;
    record("logits".into(), logits.into_iter().map(f64::from).collect());
    Ok(outputs)
}

/// Where a training stands.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub parameters: Vec<f32>,
    pub carry: Vec<f32>,
    /// The loss and the gradient's square norm of every step.
    pub seen: Vec<[f64; 2]>,
}

impl State {
    /// Whether all bits are the same.
    pub fn is(&self, other: &State) -> bool {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let seen =
            |state: &State| state.seen.iter().flatten().map(|value| value.to_bits()).collect::<Vec<u64>>();
        bits(&self.parameters) == bits(&other.parameters)
            && bits(&self.carry) == bits(&other.carry)
            && seen(self) == seen(other)
    }
}

/// Some steps of training, from the start or from where another training stood, each step's operations together or one by one.
pub fn train<D: Device + 'static>(
    net: &Net,
    device: &D,
    steps: Range<u32>,
    together: bool,
    from: Option<State>,
) -> Result<State, DeviceError>
where
    D::Buffer: Send,
    D::Ids: Send,
{
    let mut network = net.build(device)?;
    let layout = network.layout().clone();
    let State { mut parameters, carry, mut seen } =
        from.unwrap_or_else(|| State { parameters: layout.initial(7), carry: Vec::new(), seen: Vec::new() });
    let mut x = device.parameters(&parameters)?;
    network.set_carry(device, &carry);
    let mut dx = device.parameters(&vec![0.0; layout.len()])?;
    let mut scalars = device.scalars(SCALARS + 1)?;
    for step in steps {
        let (inputs, targets, sequences) = net.batch(u64::from(step));
        let feed = Feed { inputs: &inputs, targets: &targets, batch: sequences };
        let noise = Some(Noise { seed: 3, step });
        let mut work = || {
            network.gradient(device, feed, noise, &x, &mut dx, &mut scalars);
            device.square_norm(&dx, &mut scalars, SCALARS);
            device.change(Combine, [1.0, -0.01], 0.0, &[], [&mut x], [&dx]);
        };
        match together {
            true => device.together(work),
            false => work(),
        }
        let mut read = vec![0.0; SCALARS + 1];
        device.read(&scalars, &mut read)?;
        seen.push([loss_of(&read).objective, read[SCALARS]]);
    }
    device.get_parameters(&x, &mut parameters)?;
    Ok(State { parameters, carry: network.carry(device)?, seen })
}
