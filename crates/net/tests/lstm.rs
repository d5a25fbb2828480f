//! The AWD-LSTM beyond its gradient: sizes, the first loss, both types, threads, and what it carries.

#![allow(clippy::unwrap_used)]

use untuned_net::cpu::Cpu;
use untuned_net::cpu::math::Real;
use untuned_net::device::Device;
use untuned_net::models::{Feed, Lstm, LstmShape, Network, Noise, SCALARS, loss_of};
use untuned_net::random::Site;

const NOISE: Option<Noise> = Some(Noise { seed: 3, step: 5 });

fn ids(count: usize, below: usize, seed: u64) -> Vec<u32> {
    let site = Site { seed, site: 1, step: 0 };
    (0..count).map(|i| site.bits(i as u64) % below as u32).collect()
}

/// A network with its parameters on a device.
struct Trained<R: Real> {
    device: Cpu<R>,
    lstm: Lstm<Cpu<R>>,
    x: Vec<R>,
}

impl<R: Real> Trained<R> {
    fn new(threads: usize, shape: LstmShape, batch: usize, longest: usize) -> Self {
        let device = Cpu::new(Some(threads)).unwrap();
        let lstm = Lstm::new(&device, shape, batch, longest).unwrap();
        let x = device.parameters(&lstm.layout().initial(1)).unwrap();
        Self { device, lstm, x }
    }

    fn gradient(&mut self, feed: Feed<'_>, noise: Option<Noise>) -> (Vec<f64>, Vec<R>) {
        let (mut dx, mut scalars) = (vec![R::ZERO; self.x.len()], vec![0.0; SCALARS]);
        self.lstm.gradient(&self.device, feed, noise, &self.x, &mut dx, &mut scalars);
        (scalars, dx)
    }

    fn loss(&mut self, feed: Feed<'_>) -> Vec<f64> {
        // What was there before must not stay.
        let mut scalars = vec![f64::NAN; SCALARS];
        self.lstm.loss(&self.device, feed, &self.x, &mut scalars);
        scalars
    }

    fn logits(&mut self, inputs: &[u32], vocabulary: usize) -> Vec<f32> {
        let mut logits = vec![f32::NAN; vocabulary];
        self.lstm.next_logits(&self.device, inputs, &self.x, &mut logits).unwrap();
        logits
    }
}

#[test]
fn parameters() {
    assert_eq!(LstmShape::PAPER.layout().parameters(), 24_221_600);
    let layout = LstmShape::TINY.layout();
    let names: Vec<&str> = layout.tensors().iter().map(|tensor| &*tensor.name).collect();
    assert_eq!(names[0], "embedding");
    assert_eq!(
        names[9..],
        [
            "layers.2.input_weight",
            "layers.2.hidden_weight",
            "layers.2.input_bias",
            "layers.2.hidden_bias",
            "decoder_bias"
        ]
    );
    assert_eq!(layout.tensors()[9].shape, [256, 128]);
}

#[test]
fn at_the_start_every_word_is_as_likely() {
    let mut tiny = Trained::<f32>::new(2, LstmShape::TINY, 4, 10);
    let (inputs, targets) = (ids(40, 1000, 1), ids(40, 1000, 2));
    let feed = Feed { inputs: &inputs, targets: &targets, batch: 4 };
    let loss = tiny.loss(feed);
    assert!((loss[0] - 1000f64.ln()).abs() < 0.01, "{loss:?}");
    assert_eq!(loss[1..], [0.0; 2], "evaluation has no regularizers");
    tiny.lstm.set_carry(&tiny.device, &[]);
    let (scalars, _) = tiny.gradient(feed, None);
    assert_eq!(scalars[0], loss[0], "without noise the loss is that of evaluation");
    assert!(scalars[1] > 0.0 && scalars[2] > 0.0 && loss_of(&scalars).objective > loss[0]);
}

#[test]
fn both_types_agree() {
    let (inputs, targets) = (ids(12 * 20, 1000, 1), ids(12 * 20, 1000, 2));
    let feed = Feed { inputs: &inputs, targets: &targets, batch: 12 };
    let mut narrow = Trained::<f32>::new(2, LstmShape::TINY, 12, 20);
    let mut wide = Trained::<f64>::new(2, LstmShape::TINY, 12, 20);
    // The second batch starts with a carry.
    for _ in 0..2 {
        let ((found, dx), (exact, exact_dx)) = (narrow.gradient(feed, NOISE), wide.gradient(feed, NOISE));
        for (found, exact) in found.iter().zip(&exact) {
            assert!((found / exact - 1.0).abs() < 1e-5, "{found} and {exact}");
        }
        for tensor in narrow.lstm.layout().tensors() {
            let range = tensor.view.range();
            let norm = |terms: &mut dyn Iterator<Item = f64>| terms.map(|t| t * t).sum::<f64>().sqrt();
            let exact = &exact_dx[range.clone()];
            let error = norm(&mut dx[range].iter().zip(exact).map(|(&f, &e)| f64::from(f) - e));
            let error = error / norm(&mut exact.iter().copied());
            assert!(error < 1e-4, "{}: {error}", tensor.name);
        }
    }
}

/// Matrices that threads share out, and small ones, for which they share out the sequences instead.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let shared_out = LstmShape { vocabulary: 300, embedding: 100, hidden: 210, ..LstmShape::PAPER };
    for (shape, batch, time) in [(LstmShape::TINY, 20, 7), (LstmShape::TINY, 23, 5), (shared_out, 33, 4)] {
        let inputs = ids(batch * time, shape.vocabulary, 1);
        let feed = Feed { inputs: &inputs, targets: &inputs, batch };
        let results = [1, 2, 3].map(|threads| {
            let mut trained = Trained::<f32>::new(threads, shape, batch, time);
            let first = trained.gradient(feed, NOISE);
            (first, trained.gradient(feed, NOISE), trained.lstm.carry(&trained.device).unwrap())
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{batch} × {time}");
    }
}

#[test]
fn the_carry_goes_on_where_it_was_put_back() {
    let shape = LstmShape { vocabulary: 50, ..LstmShape::TINY };
    let (inputs, other) = (ids(6 * 8, 50, 1), ids(2 * 9, 50, 2));
    let feed = Feed { inputs: &inputs, targets: &inputs, batch: 6 };
    let mut trained = Trained::<f32>::new(2, shape, 6, 9);
    assert!(trained.lstm.carry(&trained.device).unwrap().is_empty(), "zeros");
    let first = trained.gradient(feed, NOISE);
    let carry = trained.lstm.carry(&trained.device).unwrap();
    assert_eq!(carry.len(), 2 * 6 * (128 + 128 + 64));
    let second = trained.gradient(feed, NOISE);
    assert_ne!(first.0, second.0, "the carry moved on");

    // Evaluation with fewer sequences, and sampling, in between.
    trained.lstm.set_carry(&trained.device, &[]);
    trained.loss(Feed { inputs: &other, targets: &other, batch: 2 });
    trained.lstm.set_carry(&trained.device, &carry);
    trained.logits(&other, 50);
    assert_eq!(trained.gradient(feed, NOISE), second);
    trained.lstm.set_carry(&trained.device, &[]);
    assert_eq!(trained.gradient(feed, NOISE), first);
}

#[test]
fn logits_are_those_of_the_loss() {
    let shape = LstmShape { vocabulary: 50, ..LstmShape::TINY };
    let prompt = ids(17, 50, 1);
    let (mut short, mut long) = (Trained::<f32>::new(2, shape, 3, 5), Trained::<f32>::new(2, shape, 1, 17));
    let logits = short.logits(&prompt, 50);
    for (a, b) in logits.iter().zip(long.logits(&prompt, 50)) {
        assert!((a - b).abs() < 1e-5, "in parts as in one piece");
    }
    let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
    long.loss(Feed { inputs: &prompt[..16], targets: &prompt[..16], batch: 1 });
    let loss = long.loss(Feed { inputs: &prompt[16..], targets: &[7], batch: 1 })[0];
    assert!((sum.ln() - f64::from(logits[7]) - loss).abs() < 1e-5);
}
