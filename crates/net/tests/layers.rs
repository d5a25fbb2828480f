//! Every operation of the device: its gradient against central differences in f64, in shapes and options that no network has.

use untuned_net::arena::{Initial, Layout, View};
use untuned_net::cpu::Cpu;
use untuned_net::device::{
    Activation, Attention, Columns, Device, Dropout, Embedding, Head, Heads, Kind, Linear, Norm,
    RelativeBias, Write,
};
use untuned_net::formulas::Combine;
use untuned_net::random::Site;

type Buffer = Vec<f64>;

fn cpu() -> Cpu<f64> {
    Cpu::new(Some(2)).expect("two threads")
}

fn normal(len: usize, site: u32) -> Buffer {
    let mut values = vec![0.0; len];
    Site { seed: 5, site, step: 0 }.fill_normal(&mut values, 1.0);
    values.into_iter().map(f64::from).collect()
}

fn dropout(probability: f32, period: usize) -> Dropout {
    Dropout { site: Site { seed: 9, site: 77, step: 3 }, probability, period }
}

/// `value(at)` is a scalar function; `gradient` claims to be its gradient. Compared in every coordinate.
fn check(name: &str, at: &Buffer, gradient: &[f64], value: impl Fn(&Buffer) -> f64) {
    let norm = gradient.iter().map(|d| d * d).sum::<f64>().sqrt();
    assert!(norm > 0.0, "{name}: no gradient");
    for i in 0..at.len() {
        let moved = |by: f64| {
            let mut at = at.clone();
            at[i] += by;
            value(&at)
        };
        let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        let error = (difference - gradient[i]).abs() / (norm + 1e-3);
        assert!(error < 1e-6, "{name}, number {i}: {difference} by differences, {} by backward", gradient[i]);
    }
}

fn weighted(out: &[f64], weights: &[f64]) -> f64 {
    out.iter().zip(weights).map(|(out, weight)| out * weight).sum()
}

#[test]
fn linear_with_every_activation_and_bias() {
    let (cpu, rows, inputs) = (cpu(), 3, 4);
    for activation in [Activation::None, Activation::Gelu, Activation::GeluTanh, Activation::GatedGelu] {
        for biased in [false, true] {
            let mut layout = Layout::default();
            let weight = layout.matrix("weight", 6, inputs, Initial::Normal(1.0));
            let bias = layout.vector("bias", 6, Initial::Normal(1.0));
            let layer = Linear { weight, bias: biased.then_some(bias), activation };
            let (x, input) = (normal(layout.len(), 1), normal(rows * inputs, 2));
            let width = layer.outputs();
            let weights = normal(rows * width, 3);
            let forward = |x: &Buffer, input: &Buffer| {
                let (mut out, mut before) = (vec![0.0; rows * width], vec![0.0; rows * 6]);
                let saved = (activation != Activation::None).then_some(&mut before);
                cpu.linear(&layer, rows, x, input, &mut out, saved);
                (out, before)
            };
            let (_, mut before) = forward(&x, &input);
            let (mut dx, mut d_input) = (vec![0.0; layout.len()], vec![0.5; rows * inputs]);
            let saved = (activation != Activation::None).then_some(&mut before);
            let to = Some((&mut d_input, Write::Add));
            cpu.linear_backward(&layer, rows, &x, &input, saved, &weights, &mut dx, to);
            let name = format!("{activation:?}, bias {biased}");
            check(&name, &x, &dx, |x| weighted(&forward(x, &input).0, &weights));
            let added: Buffer = d_input.iter().map(|d| d - 0.5).collect();
            check(&name, &input, &added, |input| weighted(&forward(&x, input).0, &weights));
        }
    }
}

#[test]
fn both_norms_with_and_without_a_branch() {
    let (cpu, rows, width) = (cpu(), 5, 19);
    for norm in [Norm::Layer { epsilon: 1e-3 }, Norm::Rms { epsilon: 1e-3 }] {
        let mut layout = Layout::default();
        let weight = layout.vector("weight", width, Initial::Constant(1.0));
        let (x, stream, branch) = (normal(layout.len(), 1), normal(rows * width, 2), normal(rows * width, 3));
        let (weights, above) = (normal(rows * width, 4), normal(rows * width, 5));
        let drop = dropout(0.3, usize::MAX);
        // What is differentiated: the normalised rows and, as the way goes on, the stream itself.
        let forward = |x: &Buffer, stream: &Buffer, branch: &Buffer| {
            let (mut next, mut out, mut statistics) =
                (vec![0.0; rows * width], vec![0.0; rows * width], vec![0.0; rows * 2]);
            let with = Some((branch, drop, &mut next));
            cpu.add_norm(norm, weight, rows, x, stream, with, &mut out, &mut statistics);
            (next, out, statistics)
        };
        let value = |x: &Buffer, stream: &Buffer, branch: &Buffer| {
            let (next, out, _) = forward(x, stream, branch);
            weighted(&out, &weights) + weighted(&next, &above)
        };
        let (next, _, statistics) = forward(&x, &stream, &branch);
        let (mut dx, mut d_stream, mut d_branch) =
            (vec![0.0; x.len()], above.clone(), vec![0.0; rows * width]);
        let to = Some((&mut d_branch, drop));
        cpu.add_norm_backward(
            norm,
            weight,
            rows,
            &x,
            &next,
            &statistics,
            &weights,
            &mut dx,
            &mut d_stream,
            to,
        );
        check("weight", &x, &dx, |x| value(x, &stream, &branch));
        check("stream", &stream, &d_stream, |stream| value(&x, stream, &branch));
        check("branch", &branch, &d_branch, |branch| value(&x, &stream, branch));

        // Without a branch it is the same as with one of zeros and no dropout.
        let (mut out, mut statistics) = (vec![0.0; rows * width], vec![0.0; rows * 2]);
        cpu.add_norm(norm, weight, rows, &x, &stream, None, &mut out, &mut statistics);
        let (mut next, mut same) = (vec![0.0; rows * width], vec![0.0; rows * width]);
        let zeros = vec![0.0; rows * width];
        let with = Some((&zeros, Dropout::NONE, &mut next));
        cpu.add_norm(norm, weight, rows, &x, &stream, with, &mut same, &mut statistics);
        assert_eq!((out, stream), (same, next));
    }
}

#[test]
fn attention_of_every_kind() {
    let cpu = cpu();
    // (queries, keys, causal, bias, dropout): more than one block of 64 queries in the third.
    for (queries, keys, causal, biased, drop) in [
        (3, 5, false, false, 0.0),
        (4, 4, true, true, 0.3),
        (67, 67, true, false, 0.2),
        (5, 3, false, true, 0.2),
    ] {
        let (batch, heads, width) = (2, 2, 3);
        let layer = Attention {
            batch,
            heads,
            width,
            queries,
            keys,
            causal,
            scale: 0.7,
            dropout: dropout(drop, usize::MAX),
        };
        // Values in front of keys, and a gap, to see that columns are found by what `Heads` says.
        let inner = heads * width;
        let at = |offset, stride| Columns { offset, stride };
        let places = Heads { q: at(1, inner + 1), k: at(inner, 2 * inner + 2), v: at(0, 2 * inner + 2) };
        let q = normal(batch * queries * (inner + 1) + 1, 1);
        let kv = normal(batch * keys * (2 * inner + 2), 2);
        let offsets = queries + keys - 1;
        let bias = biased.then(|| normal(heads * offsets, 3));
        let weights = normal(batch * queries * inner, 4);
        let forward = |q: &Buffer, kv: &Buffer, bias: Option<&Buffer>| {
            let (mut out, mut logs) =
                (vec![0.0; batch * queries * inner], vec![0.0; batch * heads * queries]);
            cpu.attention(&layer, places, q, kv, bias, &mut out, &mut logs);
            (out, logs)
        };
        let value =
            |q: &Buffer, kv: &Buffer, bias: Option<&Buffer>| weighted(&forward(q, kv, bias).0, &weights);
        let (out, logs) = forward(&q, &kv, bias.as_ref());
        let (mut d_q, mut d_kv) = (vec![0.0; q.len()], vec![0.0; kv.len()]);
        let mut d_bias = bias.as_ref().map(|bias| vec![0.0; bias.len()]);
        cpu.attention_backward(
            &layer,
            places,
            &q,
            &kv,
            bias.as_ref(),
            &out,
            &logs,
            &weights,
            &mut d_q,
            Some(&mut d_kv),
            d_bias.as_mut(),
        );
        let name = format!("{queries} × {keys}");
        check(&format!("{name}: q"), &q, &d_q, |q| value(q, &kv, bias.as_ref()));
        check(&format!("{name}: k, v"), &kv, &d_kv, |kv| value(&q, kv, bias.as_ref()));
        if let (Some(bias), Some(d_bias)) = (&bias, &d_bias) {
            check(&format!("{name}: bias"), bias, d_bias, |bias| value(&q, &kv, Some(bias)));
        }
    }
}

#[test]
fn embedding_with_everything() {
    let (cpu, width, rows) = (cpu(), 5, 8);
    let mut layout = Layout::default();
    let table = layout.matrix("table", 6, width, Initial::Normal(1.0));
    let positions = layout.matrix("positions", 4, width, Initial::Normal(1.0));
    let ids = vec![0, 5, 2, 2, 1, 5, 5, 3];
    let (x, weights) = (normal(layout.len(), 1), normal(rows * width, 2));
    for (positions, row_drop, drop) in [
        (None, Dropout::NONE, Dropout::NONE),
        (Some((positions, 4)), dropout(0.4, usize::MAX), dropout(0.3, usize::MAX)),
        (Some((positions, 2)), Dropout::NONE, dropout(0.3, 4)),
    ] {
        let layer = Embedding { table, positions, row_dropout: row_drop, dropout: drop };
        let forward = |x: &Buffer| {
            let mut out = vec![0.0; rows * width];
            cpu.embedding(&layer, rows, x, &ids, &mut out);
            out
        };
        let mut dx = vec![0.0; layout.len()];
        cpu.embedding_backward(&layer, rows, &ids, &weights, &mut dx);
        check("embedding", &x, &dx, |x| weighted(&forward(x), &weights));
    }
}

#[test]
fn head_with_bias() {
    let (cpu, rows, vocabulary, width) = (cpu(), 5, 7, 3);
    let mut layout = Layout::default();
    let weight = layout.matrix("weight", vocabulary, width, Initial::Normal(1.0));
    let bias = layout.vector("bias", vocabulary, Initial::Normal(1.0));
    let (x, h, targets) = (normal(layout.len(), 1), normal(rows * width, 2), vec![0, 6, 3, 3, 1]);
    for bias in [None, Some(bias)] {
        let layer = Head { weight, bias, into: Write::Set };
        let loss = |x: &Buffer, h: &Buffer| {
            let mut scalars = vec![0.0];
            cpu.head(&layer, rows, x, h, &targets, &mut scalars, 0, None);
            scalars[0]
        };
        let (mut d_h, mut dx, mut scalars) = (vec![0.0; rows * width], vec![0.0; layout.len()], vec![0.0]);
        cpu.head(&layer, rows, &x, &h, &targets, &mut scalars, 0, Some((&mut d_h, &mut dx)));
        assert_eq!(scalars[0], loss(&x, &h));
        check("x", &x, &dx, |x| loss(x, &h));
        let (adding, mut sum) = (Head { into: Write::Add, ..layer }, vec![0.5; layout.len()]);
        cpu.head(&adding, rows, &x, &h, &targets, &mut scalars, 0, Some((&mut d_h, &mut sum)));
        assert!((0..21).all(|i| (sum[i] - 0.5 - dx[i]).abs() < 1e-12), "added, not written");
        check("h", &h, &d_h, |h| loss(&x, h));
        // The first row by hand.
        let mut logits = vec![0.0f32; vocabulary];
        cpu.logits(&layer, 0, &x, &h, &mut logits).unwrap();
        let by_hand = |j: usize| {
            (0..width).map(|k| x[weight.offset + j * width + k] * h[k]).sum::<f64>()
                + bias.map_or(0.0, |bias| x[bias.offset + j])
        };
        assert!((0..vocabulary).all(|j| (f64::from(logits[j]) - by_hand(j)).abs() < 1e-6));
    }
}

/// More logits than are held at once (2²⁴): rows are taken in turns, and the sums are those of two halves.
#[test]
fn a_head_in_turns() {
    let (cpu, rows, vocabulary, width) = (Cpu::<f32>::new(Some(2)).unwrap(), 300, 70_000, 2);
    let mut layout = Layout::default();
    let weight = layout.matrix("weight", vocabulary, width, Initial::Normal(1.0));
    let bias = layout.vector("bias", vocabulary, Initial::Normal(1.0));
    let layer = Head { weight, bias: Some(bias), into: Write::Set };
    let x = layout.initial(1);
    let h: Vec<f32> = normal(rows * width, 2).into_iter().map(|v| v as f32).collect();
    let targets: Vec<u32> = (0..rows as u32).map(|i| i * 233).collect();
    let run = |h: &[f32], targets: &[u32]| {
        let (mut d_h, mut dx, mut scalars) = (vec![0.0; h.len()], vec![0.0; x.len()], vec![0.0]);
        let gradient = Some((&mut d_h, &mut dx));
        cpu.head(&layer, targets.len(), &x, &h.to_vec(), &targets.to_vec(), &mut scalars, 0, gradient);
        (scalars[0], d_h, dx)
    };
    let (loss, d_h, dx) = run(&h, &targets);
    let (first, second) = (run(&h[..300], &targets[..150]), run(&h[300..], &targets[150..]));
    assert!((loss - (first.0 + second.0) / 2.0).abs() < 1e-6);
    let close = |a: f32, b: f32| (a - b).abs() < 1e-6 * (1.0 + b.abs());
    assert!((0..300).all(|i| close(d_h[i], first.1[i] / 2.0) && close(d_h[300 + i], second.1[i] / 2.0)));
    assert!(dx.iter().zip(first.2.iter().zip(&second.2)).all(|(&d, (a, b))| close(d, (a + b) / 2.0)));
}

#[test]
fn relative_bias() {
    let cpu = cpu();
    let mut layout = Layout::default();
    let table = layout.matrix("table", 8, 3, Initial::Normal(1.0));
    for bidirectional in [false, true] {
        let layer = RelativeBias { table, queries: 9, keys: 12, bidirectional, max_distance: 7 };
        let (x, weights) = (normal(layout.len(), 1), normal(3 * layer.offsets(), 2));
        let mut dx = vec![0.0; layout.len()];
        cpu.relative_bias_backward(&layer, &weights, &mut dx);
        check("table", &x, &dx, |x| {
            let mut out = vec![0.0; 3 * layer.offsets()];
            cpu.relative_bias(&layer, x, &mut out);
            weighted(&out, &weights)
        });
    }
}

#[test]
fn passes_over_whole_buffers() {
    let cpu = cpu();
    // More than one part of a sum, and a rest.
    let n = (1 << 16) + 13;
    let (a, b) = (normal(n, 1), normal(n, 2));
    let mut scalars = cpu.scalars(2).unwrap();
    cpu.square_norm(&a, &mut scalars, 0);
    cpu.square_distance(&a, &b, &mut scalars, 1);
    let close =
        |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9 * n as f64, "{found} {wanted}");
    close(scalars[0], a.iter().map(|a| a * a).sum());
    close(scalars[1], a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum());

    let mut to = a.clone();
    cpu.change(Combine, [1.0, -0.25], 0.0, &[], [&mut to], [&b]);
    assert!((0..n).all(|i| to[i] == a[i] - 0.25 * b[i]));
    let mut to = a.clone();
    cpu.add(n - 5, &b, &mut to);
    assert!((0..n).all(|i| to[i] == if i < n - 5 { a[i] + b[i] } else { a[i] }));
    cpu.copy(7, &b, &mut to);
    assert!(to[..7] == b[..7] && to[7] == a[7] + b[7]);
    cpu.clear_buffer(3, &mut to);
    cpu.clear(&mut to, View { offset: 5, rows: 2, columns: 2 });
    let zeros: Vec<usize> = (0..12).filter(|&i| to[i] == 0.0).collect();
    assert_eq!(zeros, [0, 1, 2, 5, 6, 7, 8]);
    assert_eq!(cpu.buffer(3, Kind::Statistic).unwrap(), [0.0; 3]);
}

/// The mask repeats after `period` rows, and what is kept grows by 1/(1 − p).
#[test]
fn locked_dropout() {
    let (cpu, rows, width) = (cpu(), 12, 1000);
    let from = vec![1.0; (rows + 2) * width];
    let mut to = vec![0.0; rows * width];
    cpu.dropout(dropout(0.25, 4), rows, width, (&from, 2), &mut to);
    assert!(to.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-15));
    assert_eq!(to[..4 * width], to[4 * width..8 * width]);
    assert_ne!(to[..width], to[width..2 * width]);
    let dropped = to[..4 * width].iter().filter(|&&v| v == 0.0).count() as f64;
    // 4000 draws: a deviation of √(4000 · ¼ · ¾) = 27.4.
    assert!((dropped - 1000.0).abs() < 5.0 * 27.4, "{dropped}");
}
