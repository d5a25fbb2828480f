//! Milliseconds of an AWD-LSTM's gradient and of one layer, the best of several, and the floor: its FLOP at 220 GFLOP/s, which
//! two cores of Zen 4 reach in large products.

#![allow(clippy::unwrap_used)]

use std::time::Instant;
use untuned_net::arena::{Initial, Layout};
use untuned_net::cpu::Cpu;
use untuned_net::device::{self, Device, Dropout, Kind};
use untuned_net::models::{Feed, Lstm, LstmShape, Network, Noise, SCALARS};
use untuned_net::random::Site;

const TIME: usize = 70;

/// The least seconds of `count` calls, after one that is not counted.
fn best(count: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut seconds = || {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..count).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

fn report(name: &str, seconds: f64, flop: f64) {
    let floor = flop / 220e9;
    println!(
        "{name:32} {:8.1} ms  {:5.0} GFLOP/s  floor {:7.1} ms",
        seconds * 1e3,
        flop / seconds / 1e9,
        floor * 1e3
    );
}

fn gradient(device: &Cpu<f32>, name: &str, shape: LstmShape, batch: usize, count: usize) {
    let mut lstm = Lstm::new(device, shape, batch, TIME).unwrap();
    let x = device.parameters(&lstm.layout().initial(1)).unwrap();
    let (mut dx, mut scalars) = (vec![0.0; x.len()], device.scalars(SCALARS).unwrap());
    let site = Site { seed: 1, site: 1, step: 0 };
    let ids: Vec<u32> = (0..batch * TIME).map(|i| site.bits(i as u64) % shape.vocabulary as u32).collect();
    let feed = Feed { inputs: &ids, targets: &ids, batch };
    // Every matrix meets every row three times: once forward and twice backward.
    let matrices: usize =
        lstm.layout().tensors().iter().filter(|tensor| tensor.shape.len() == 2).map(|t| t.view.len()).sum();
    let noise = Some(Noise { seed: 1, step: 1 });
    let seconds = best(count, || lstm.gradient(device, feed, noise, &x, &mut dx, &mut scalars));
    report(&format!("gradient, {name}, {batch} × {TIME}"), seconds, (6 * matrices * batch * TIME) as f64);
}

/// One layer with narrow inputs: nearly all is the recurrence, and backward the gradient of its matrix.
fn recurrence(device: &Cpu<f32>, hidden: usize, batch: usize, count: usize) {
    let mut layout = Layout::default();
    let initial = Initial::Uniform(1.0 / (hidden as f64).sqrt());
    let layer = device::Lstm {
        time: TIME,
        batch,
        input_weight: layout.matrix("input_weight", 4 * hidden, 1, initial),
        hidden_weight: layout.matrix("hidden_weight", 4 * hidden, hidden, initial),
        input_bias: layout.vector("input_bias", 4 * hidden, initial),
        hidden_bias: layout.vector("hidden_bias", 4 * hidden, initial),
        weight_drop: Dropout { probability: 0.5, ..Dropout::NONE },
    };
    let x = device.parameters(&layout.initial(1)).unwrap();
    let mut dx = vec![0.0; x.len()];
    let buffer = |rows: usize, width: usize| device.buffer(rows * width, Kind::Activation).unwrap();
    let rows = TIME * batch;
    let (input, mut d_input, d_out) = (buffer(rows, 1), buffer(rows, 1), buffer(rows, hidden));
    let (mut carry, mut gates) = (buffer(2 * batch, hidden), buffer(rows, 4 * hidden));
    let (mut cells, mut out) = (buffer(rows + batch, hidden), buffer(rows + batch, hidden));
    let flop = (2 * 4 * hidden * hidden * rows) as f64;
    let seconds =
        best(count, || device.lstm(&layer, &x, &input, &mut carry, &mut gates, &mut cells, &mut out));
    report(&format!("recurrence, {hidden}, {batch} × {TIME}"), seconds, flop);
    let seconds = best(count, || {
        device.lstm_backward(&layer, &x, &input, &mut gates, &cells, &out, &d_out, &mut dx, &mut d_input);
    });
    report(&format!("backward, {hidden}, {batch} × {TIME}"), seconds, 2.0 * flop);
}

fn main() {
    let device = Cpu::<f32>::new(None).unwrap();
    device.inside(|| {
        for (hidden, batch, count) in
            [(1150, 20, 5), (1150, 80, 3), (400, 20, 20), (128, 20, 100), (128, 80, 50)]
        {
            recurrence(&device, hidden, batch, count);
        }
        gradient(&device, "tiny", LstmShape::TINY, 20, 50);
        gradient(&device, "tiny", LstmShape::TINY, 80, 20);
        gradient(&device, "small", LstmShape::SMALL, 20, 10);
        gradient(&device, "paper", LstmShape::PAPER, 20, 5);
    });
}
