//! The networks as a whole: sizes, where they start, and that precision and threads do not matter.

#![allow(clippy::unwrap_used)]

use untuned_net::arena::{Initial, Layout};
use untuned_net::cpu::{Cpu, math::Real};
use untuned_net::device::Device;
use untuned_net::models::{Feed, Gpt, GptShape, LstmShape, Network, Noise, SCALARS, T5, T5Shape, loss_of};
use untuned_net::random::Site;

fn ids(count: usize, below: usize, seed: u64) -> Vec<u32> {
    let site = Site { seed, site: 1, step: 0 };
    (0..count).map(|i| site.bits(i as u64) % below as u32).collect()
}

#[test]
fn parameters_are_as_many_as_upstream() {
    let gpt = GptShape::PAPER.layout();
    assert_eq!(gpt.parameters(), 10_745_088);
    assert_eq!(gpt.parameters() - gpt.tensors()[1].view.len(), 10_646_784, "without positions");
    assert_eq!(LstmShape::PAPER.layout().parameters(), 24_221_600);
    assert_eq!(T5Shape::PAPER.layout().parameters(), 247_577_856);
}

/// The mean of `‖x_0‖²` and its deviation: a normal number's square has mean σ² and variance 2σ⁴.
fn square_norm(layout: &Layout) -> (f64, f64) {
    let (mut mean, mut variance) = (0.0, 0.0);
    for tensor in layout.tensors() {
        let n = tensor.view.len() as f64;
        match tensor.initial {
            Initial::Constant(value) => mean += n * f64::from(value * value),
            Initial::Normal(deviation) => {
                mean += n * deviation.powi(2);
                variance += 2.0 * n * deviation.powi(4);
            }
            Initial::Uniform(bound) => {
                mean += n * bound.powi(2) / 3.0;
                variance += n * bound.powi(4) * 4.0 / 45.0;
            }
        }
    }
    (mean, variance.sqrt())
}

fn drawn_square_norm(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum()
}

#[test]
fn t5_starts_as_far_from_zero_as_upstream() {
    assert!((square_norm(&T5Shape::PAPER.layout()).0.sqrt() - 7042.5).abs() < 0.1);
    let tiny = T5Shape::TINY.layout();
    let (mean, deviation) = square_norm(&tiny);
    let drawn = drawn_square_norm(&tiny.initial(1));
    assert!((drawn - mean).abs() < 4.0 * deviation, "{drawn}, expected {mean} ± {deviation}");
}

/// The loss and gradient of a network, as f64.
fn gradient<R: Real>(
    network: &mut impl Network<Cpu<R>>,
    device: &Cpu<R>,
    feed: Feed<'_>,
    noise: Option<Noise>,
) -> (f64, Vec<f64>) {
    let x = device.parameters(&network.layout().initial(7)).unwrap();
    let mut dx = device.parameters(&vec![0.0; x.len()]).unwrap();
    let mut scalars = device.scalars(SCALARS).unwrap();
    network.gradient(device, feed, noise, &x, &mut dx, &mut scalars);
    (loss_of(&scalars).objective, dx.into_iter().map(Real::to_f64).collect())
}

fn loss<R: Real>(network: &mut impl Network<Cpu<R>>, device: &Cpu<R>, feed: Feed<'_>) -> f64 {
    let x = device.parameters(&network.layout().initial(7)).unwrap();
    loss_at(network, device, feed, &x)
}

fn loss_at<R: Real>(network: &mut impl Network<Cpu<R>>, device: &Cpu<R>, feed: Feed<'_>, x: &Vec<R>) -> f64 {
    let mut scalars = device.scalars(SCALARS).unwrap();
    network.loss(device, feed, x, &mut scalars);
    loss_of(&scalars).objective
}

/// All logits are near 0: the embedding, 0.02, times a normalised row of 128 numbers gives a deviation of 0.23, which adds half its
/// square to ln 65.
#[test]
fn gpt_starts_near_a_uniform_guess() {
    let device = Cpu::<f32>::new(Some(2)).unwrap();
    let mut gpt = Gpt::new(&device, GptShape::TINY, 4).unwrap();
    let (inputs, targets) = (ids(4 * 64, 65, 1), ids(4 * 64, 65, 2));
    let loss = loss(&mut gpt, &device, Feed { inputs: &inputs, targets: &targets, batch: 4 });
    let expected = 65_f64.ln() + 0.02 * 0.02 * 128.0 / 2.0;
    assert!((loss - expected).abs() < 0.05, "{loss}, expected {expected}");
}

/// The loss of a T5's first batch, at these weights.
fn first_loss(shape: T5Shape, batch: usize, x: &Vec<f32>) -> f64 {
    let device = Cpu::<f32>::new(Some(2)).unwrap();
    let mut t5 = T5::new(&device, shape, batch).unwrap();
    let [inputs, targets] = [(shape.inputs, 1), (shape.targets, 2)]
        .map(|(length, seed)| ids(batch * length, shape.vocabulary, seed));
    loss_at(&mut t5, &device, Feed { inputs: &inputs, targets: &targets, batch }, x)
}

/// A normalised row of 768 numbers has the length √768, and the head's numbers have deviation 1, so logits have the deviation
/// σ = 27.7. The largest is so far above the others that the logarithm of the sum of exponentials is that one, and the target's is 0
/// in the mean: the loss is σ times the mean of the largest of V normal numbers, which is 3.24 for 1,000.
#[test]
fn t5_starts_with_a_loss_of_ninety() {
    let loss = first_loss(T5Shape::TINY, 2, &T5Shape::TINY.layout().initial(7));
    println!("T5's first loss: {loss:.2}");
    // 228 targets, each with a deviation of √(σ² + (0.35σ)²) = 29.
    assert!((loss - 90.0).abs() < 4.0 * 29.0 / 228_f64.sqrt(), "{loss}");
}

/// As above, but the largest of 32,128 normal numbers has the mean 4.14: 115, which is upstream's "about 114". All 247 million
/// parameters, 1 GB.
#[test]
fn t5_of_the_paper_starts_as_upstream() {
    let x = T5Shape::PAPER.layout().initial(1);
    let norm = drawn_square_norm(&x).sqrt();
    // 0.7 is its deviation.
    assert!((norm - 7042.5).abs() < 4.0 * 0.7, "{norm}");
    let loss = first_loss(T5Shape::PAPER, 1, &x);
    println!("‖x_0‖ = {norm:.2}, the first loss is {loss:.2}");
    assert!((loss - 115.0).abs() < 4.0 * 29.0 / 114_f64.sqrt(), "{loss}");
}

const GPT: GptShape = GptShape { vocabulary: 65, context: 70, blocks: 2, width: 48, heads: 3, dropout: 0.2 };
const SMALL_T5: T5Shape = T5Shape {
    vocabulary: 300,
    width: 40,
    heads: 3,
    head_width: 16,
    feed_forward: 36,
    layers: 2,
    inputs: 130,
    targets: 70,
};
const NOISE: Option<Noise> = Some(Noise { seed: 3, step: 5 });

/// The loss and gradient of both networks on small shapes.
fn both<R: Real>(threads: usize, noise: Option<Noise>) -> [(f64, Vec<f64>); 2] {
    let device = Cpu::<R>::new(Some(threads)).unwrap();
    let (inputs, targets) = (ids(3 * 70, 65, 1), ids(3 * 70, 65, 2));
    let mut gpt = Gpt::new(&device, GPT, 3).unwrap();
    let of_gpt = gradient(&mut gpt, &device, Feed { inputs: &inputs, targets: &targets, batch: 3 }, noise);
    let (inputs, targets) = (ids(3 * 130, 300, 1), ids(3 * 70, 300, 2));
    let mut t5 = T5::new(&device, SMALL_T5, 3).unwrap();
    let of_t5 = gradient(&mut t5, &device, Feed { inputs: &inputs, targets: &targets, batch: 3 }, noise);
    [of_gpt, of_t5]
}

#[test]
fn threads_do_not_change_a_bit() {
    let one = both::<f32>(1, NOISE);
    for threads in [2, 3] {
        for (name, (one, more)) in ["GPT", "T5"].iter().zip(one.iter().zip(&both::<f32>(threads, NOISE))) {
            assert_eq!(one.0.to_bits(), more.0.to_bits(), "{name}'s loss with {threads} threads");
            let same = one.1.iter().zip(&more.1).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name}'s gradient with {threads} threads");
        }
    }
}

#[test]
fn single_precision_agrees_with_double() {
    for (name, (single, double)) in
        ["GPT", "T5"].iter().zip(both::<f32>(2, NOISE).iter().zip(&both::<f64>(2, NOISE)))
    {
        let relative = (single.0 - double.0).abs() / double.0;
        let error: f64 = single.1.iter().zip(&double.1).map(|(a, b)| (a - b).powi(2)).sum();
        let norm: f64 = double.1.iter().map(|a| a.powi(2)).sum();
        let error = (error / norm).sqrt();
        println!("{name}: the loss differs by {relative:.1e} of itself, the gradient by {error:.1e}");
        assert!(relative < 1e-6 && error < 1e-5, "{name}: loss {relative:e}, gradient {error:e}");
    }
}

#[test]
fn evaluation_is_the_loss_without_noise() {
    let device = Cpu::<f32>::new(Some(2)).unwrap();
    let [of_gpt, of_t5] = both::<f32>(2, None);
    let (inputs, targets) = (ids(3 * 70, 65, 1), ids(3 * 70, 65, 2));
    let mut gpt = Gpt::new(&device, GPT, 3).unwrap();
    assert_eq!(loss(&mut gpt, &device, Feed { inputs: &inputs, targets: &targets, batch: 3 }), of_gpt.0);
    let (inputs, targets) = (ids(3 * 130, 300, 1), ids(3 * 70, 300, 2));
    let mut t5 = T5::new(&device, SMALL_T5, 3).unwrap();
    assert_eq!(loss(&mut t5, &device, Feed { inputs: &inputs, targets: &targets, batch: 3 }), of_t5.0);
}

/// What is said next has the logits that the loss is made of: the losses of an answer's tokens, asked for one by one, add up to it.
#[test]
fn answers_follow_the_source() {
    let device = Cpu::<f64>::new(Some(2)).unwrap();
    let mut t5 = T5::new(&device, SMALL_T5, 1).unwrap();
    let (inputs, targets) = (ids(20, 300, 1), ids(6, 300, 2));
    let expected = loss(&mut t5, &device, Feed { inputs: &inputs, targets: &targets, batch: 1 });
    let x = device.parameters(&t5.layout().initial(7)).unwrap();
    t5.set_source(&device, &inputs, &x);
    let mut logits = vec![0.0; 300];
    let mut sum = 0.0;
    for (place, &target) in targets.iter().enumerate() {
        t5.next_logits(&device, &targets[..place], &x, &mut logits).unwrap();
        let exponentials: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        sum += exponentials.ln() - f64::from(logits[target as usize]);
    }
    assert!((sum / 6.0 - expected).abs() < 1e-5, "{} token by token, {expected} at once", sum / 6.0);
}
