//! Every network's gradient against differences of its loss, in f64.

#![allow(clippy::unwrap_used)]

use untuned_net::arena::Layout;
use untuned_net::cpu::Cpu;
use untuned_net::device::Device;
use untuned_net::models::{
    Feed, Gpt, GptShape, Lstm, LstmShape, Network, Noise, SCALARS, T5, T5Shape, loss_of,
};
use untuned_net::random::Site;

/// Compares the gradient with central differences in every tensor: at its largest entry and at three others, and along a random
/// direction through all of it.
fn check(
    device: &Cpu<f64>,
    network: &mut dyn Network<Cpu<f64>>,
    feed: Feed<'_>,
    noise: Option<Noise>,
    carry: &[f32],
) {
    let layout: Layout = network.layout().clone();
    // Away from the start, where some gradients vanish.
    let mut x: Vec<f64> = layout.initial(7).into_iter().map(f64::from).collect();
    let mut shift = vec![0.0; x.len()];
    Site { seed: 8, site: 0, step: 0 }.fill_normal(&mut shift, 0.1);
    for tensor in layout.tensors() {
        tensor.view.range().for_each(|i| x[i] += f64::from(shift[i]));
    }
    let mut dx = vec![f64::NAN; x.len()];
    for gap in gaps(&layout) {
        dx[gap].fill(0.0);
    }
    let mut scalars = device.scalars(SCALARS).unwrap();
    network.set_carry(device, carry);
    network.gradient(device, feed, noise, &x, &mut dx, &mut scalars);
    assert!(dx.iter().all(|d| d.is_finite()), "some gradients were not written");
    let mut objective = |x: &Vec<f64>| {
        let (mut scalars, mut unused) = (device.scalars(SCALARS).unwrap(), vec![0.0; x.len()]);
        network.set_carry(device, carry);
        network.gradient(device, feed, noise, x, &mut unused, &mut scalars);
        loss_of(&scalars).objective
    };
    for tensor in layout.tensors() {
        let range = tensor.view.range();
        let largest = range.clone().max_by(|&a, &b| dx[a].abs().total_cmp(&dx[b].abs())).unwrap();
        let norm = dx[range.clone()].iter().map(|d| d * d).sum::<f64>().sqrt();
        assert!(norm > 0.0, "{} has no gradient", tensor.name);
        let mut directions: Vec<Vec<(usize, f64)>> =
            [largest, range.start, range.start + range.len() / 3, range.end - 1]
                .map(|i| vec![(i, 1.0)])
                .to_vec();
        let n = (range.len() as f64).sqrt();
        directions.push(range.clone().map(|i| (i, if shift[i] > 0.0 { 1.0 } else { -1.0 } / n)).collect());
        for direction in directions {
            let step = 1e-5;
            let mut at = |by: f64| {
                let mut moved = x.clone();
                direction.iter().for_each(|&(i, d)| moved[i] += by * d);
                objective(&moved)
            };
            let difference = (at(step) - at(-step)) / (2.0 * step);
            let slope: f64 = direction.iter().map(|&(i, d)| dx[i] * d).sum();
            let error = (difference - slope).abs() / (norm + 1e-3);
            assert!(error < 1e-6, "{}: {difference} by differences, {slope} by the gradient", tensor.name);
        }
    }
}

fn gaps(layout: &Layout) -> Vec<std::ops::Range<usize>> {
    let ends = layout.tensors().iter().skip(1).map(|t| t.view.offset).chain([layout.len()]);
    layout.tensors().iter().zip(ends).map(|(t, end)| t.view.range().end..end).collect()
}

fn ids(count: usize, below: u32, seed: u64) -> Vec<u32> {
    let site = Site { seed, site: 1, step: 0 };
    (0..count).map(|i| site.bits(i as u64) % below).collect()
}

const NOISE: Option<Noise> = Some(Noise { seed: 3, step: 5 });

#[test]
fn gpt() {
    let device = Cpu::new(Some(2)).unwrap();
    for (dropout, context, used) in [(0.0, 7, 7), (0.2, 70, 70), (0.2, 9, 6)] {
        let shape = GptShape { vocabulary: 11, context, blocks: 2, width: 12, heads: 3, dropout };
        let mut gpt = Gpt::new(&device, shape, 2).unwrap();
        let (inputs, targets) = (ids(2 * used, 11, 1), ids(2 * used, 11, 2));
        let feed = Feed { inputs: &inputs, targets: &targets, batch: 2 };
        if used == context {
            check(&device, &mut gpt, feed, NOISE, &[]);
        } else {
            let mut dx = vec![f64::NAN; gpt.layout().len()];
            let x: Vec<f64> = gpt.layout().initial(1).into_iter().map(f64::from).collect();
            gpt.gradient(&device, feed, NOISE, &x, &mut dx, &mut vec![0.0; SCALARS]);
            let position = gpt.layout().tensors()[1].view;
            assert!(
                dx[position.range()][used * 12..].iter().all(|&d| d == 0.0),
                "positions that were not seen"
            );
        }
    }
}

#[test]
fn lstm() {
    let device = Cpu::new(Some(2)).unwrap();
    let odd = LstmShape { vocabulary: 11, embedding: 4, hidden: 5, ..LstmShape::PAPER };
    let quiet = LstmShape {
        drop_rows: 0.0,
        drop_input: 0.0,
        drop_between: 0.0,
        drop_output: 0.0,
        drop_weight: 0.0,
        activation: 0.0,
        change: 0.0,
        ..odd
    };
    // With every panel and tile full and cut off, and with matrices that the threads share out.
    let wide = LstmShape { embedding: 19, hidden: 70, layers: 2, ..odd };
    let wider = LstmShape { embedding: 3, hidden: 190, layers: 2, ..odd };
    for (shape, batch, time) in [(quiet, 3, 4), (odd, 3, 4), (odd, 3, 1), (wide, 7, 3), (wider, 6, 3)] {
        let mut lstm = Lstm::new(&device, shape, batch, time).unwrap();
        let (inputs, targets) = (ids(batch * time, 11, 1), ids(batch * time, 11, 2));
        let feed = Feed { inputs: &inputs, targets: &targets, batch };
        let widths = (shape.layers - 1) * shape.hidden + shape.embedding;
        let mut carry = vec![0.0; 2 * batch * widths];
        Site { seed: 9, site: 0, step: 0 }.fill_normal(&mut carry, 0.5);
        check(&device, &mut lstm, feed, NOISE, &carry);
    }
}

/// Heads that together are wider than the stream, texts longer than a block of attention, distances beyond the last bucket, and
/// texts shorter than the buffers.
#[test]
fn t5() {
    let device = Cpu::new(Some(2)).unwrap();
    let shape = T5Shape {
        vocabulary: 11,
        width: 7,
        heads: 3,
        head_width: 5,
        feed_forward: 6,
        layers: 2,
        inputs: 5,
        targets: 3,
    };
    for (inputs, targets, longest, layers) in [(5, 3, 0, 2), (3, 5, 9, 2), (150, 70, 0, 1)] {
        let shape = T5Shape { inputs: inputs.max(longest), targets: targets.max(longest), layers, ..shape };
        let mut t5 = T5::new(&device, shape, 3).unwrap();
        let (inputs, targets) = (ids(2 * inputs, 11, 1), ids(2 * targets, 11, 2));
        let feed = Feed { inputs: &inputs, targets: &targets, batch: 2 };
        check(&device, &mut t5, feed, NOISE, &[]);
    }
}
