//! Every network's loss and gradient against PyTorch's: `torch/*.json` holds what `torch/agreement.py` computed in f64.

#![allow(clippy::unwrap_used)]

use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use untuned_net::arena::{Layout, Tensor};
use untuned_net::cpu::{Cpu, math::Real};
use untuned_net::device::Device;
use untuned_net::models::{Feed, Gpt, GptShape, Lstm, LstmShape, Network, Noise, SCALARS, T5, T5Shape};
use untuned_net::random::Site;

const NOISE: Noise = Noise { seed: 3 << 32 | 11, step: 5 };

/// A network with a batch to feed it.
#[derive(Clone, Copy)]
enum Shape {
    Gpt(GptShape),
    /// With the number of positions.
    Lstm(LstmShape, usize),
    T5(T5Shape),
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    shape: Shape,
    batch: usize,
    /// Whether its results are among the golden files; others are compared only where there is PyTorch.
    golden: bool,
}

fn cases() -> Vec<Case> {
    let gpt = GptShape { vocabulary: 11, context: 9, blocks: 2, width: 12, heads: 3, dropout: 0.2 };
    let lstm = LstmShape { vocabulary: 11, embedding: 4, hidden: 5, ..LstmShape::PAPER };
    let quiet = LstmShape {
        drop_rows: 0.0,
        drop_input: 0.0,
        drop_between: 0.0,
        drop_output: 0.0,
        drop_weight: 0.0,
        ..lstm
    };
    let t5 = T5Shape {
        vocabulary: 13,
        width: 8,
        heads: 3,
        head_width: 4,
        feed_forward: 6,
        layers: 2,
        inputs: 150,
        targets: 70,
    };
    let case = |name, shape, batch, golden| Case { name, shape, batch, golden };
    vec![
        case("gpt", Shape::Gpt(GptShape { dropout: 0.0, ..gpt }), 3, true),
        case("gpt-dropout", Shape::Gpt(gpt), 3, true),
        case("lstm", Shape::Lstm(quiet, 6), 3, true),
        case("lstm-dropout", Shape::Lstm(lstm, 6), 3, true),
        case("t5", Shape::T5(t5), 2, true),
        case("gpt-small", Shape::Gpt(GptShape::SMALL), 4, false),
        case("lstm-tiny", Shape::Lstm(LstmShape::TINY, 35), 20, false),
        case("t5-tiny", Shape::T5(T5Shape::TINY), 2, false),
    ]
}

impl Case {
    fn layout(&self) -> Layout {
        match self.shape {
            Shape::Gpt(shape) => shape.layout(),
            Shape::Lstm(shape, _) => shape.layout(),
            Shape::T5(shape) => shape.layout(),
        }
    }

    /// Away from the start, where norms are 1, some biases 0, and attention is almost even; large networks not as far.
    fn weights(&self) -> Vec<f32> {
        let layout = self.layout();
        let mut x = layout.initial(7);
        let mut shift = vec![0.0; x.len()];
        Site { seed: 8, site: 0, step: 0 }.fill_normal(&mut shift, if self.golden { 0.2 } else { 0.02 });
        for tensor in layout.tensors() {
            tensor.view.range().for_each(|i| x[i] += shift[i]);
        }
        x
    }

    /// The ids that the network sees, and those that it should predict.
    fn ids(&self) -> [Vec<u32>; 2] {
        let (vocabulary, inputs, targets) = match self.shape {
            Shape::Gpt(GptShape { vocabulary, context, .. }) => (vocabulary, context, context),
            Shape::Lstm(LstmShape { vocabulary, .. }, time) => (vocabulary, time, time),
            Shape::T5(T5Shape { vocabulary, inputs, targets, .. }) => (vocabulary, inputs, targets),
        };
        [inputs, targets].map(|length| {
            let site = Site { seed: length as u64, site: 1, step: 0 };
            (0..(self.batch * length) as u64).map(|i| site.bits(i) % vocabulary as u32).collect()
        })
    }

    /// The state that an LSTM carries over: of each layer `h` and then `c`.
    fn carry(&self) -> Vec<f32> {
        let Shape::Lstm(LstmShape { embedding, hidden, layers, .. }, _) = self.shape else {
            return Vec::new();
        };
        let mut carry = vec![0.0; 2 * self.batch * ((layers - 1) * hidden + embedding)];
        Site { seed: 9, site: 0, step: 0 }.fill_normal(&mut carry, 0.5);
        carry
    }

    /// The parts of the loss, and the gradient.
    fn run<R: Real>(&self) -> (Vec<f64>, Vec<R>) {
        let device = Cpu::<R>::new(Some(2)).unwrap();
        match self.shape {
            Shape::Gpt(shape) => self.run_on(&device, Gpt::new(&device, shape, self.batch).unwrap()),
            Shape::Lstm(shape, time) => {
                self.run_on(&device, Lstm::new(&device, shape, self.batch, time).unwrap())
            }
            Shape::T5(shape) => self.run_on(&device, T5::new(&device, shape, self.batch).unwrap()),
        }
    }

    fn run_on<R: Real>(&self, device: &Cpu<R>, mut network: impl Network<Cpu<R>>) -> (Vec<f64>, Vec<R>) {
        let [inputs, targets] = self.ids();
        let feed = Feed { inputs: &inputs, targets: &targets, batch: self.batch };
        let x = device.parameters(&self.weights()).unwrap();
        let mut dx = device.parameters(&vec![0.0; x.len()]).unwrap();
        let mut scalars = device.scalars(SCALARS).unwrap();
        network.set_carry(device, &self.carry());
        network.gradient(device, feed, Some(NOISE), &x, &mut dx, &mut scalars);
        (scalars, dx)
    }
}

/// What PyTorch computed.
#[derive(Deserialize)]
struct Golden {
    loss: [f64; SCALARS],
    gradients: BTreeMap<String, Projected>,
}

/// What is kept of a gradient: its norm, its first, middle and last entry, and its products with vectors of random signs.
#[derive(Debug, Deserialize)]
struct Projected {
    norm: f64,
    entries: [f64; 3],
    signed: [f64; 4],
}

impl Projected {
    fn new(gradient: &[f64]) -> Self {
        let n = gradient.len();
        let signed = [0, 1, 2, 3].map(|index| {
            let site = Site { seed: index, site: 2, step: 0 };
            let sign = |i: usize| if site.bits(i as u64) >> 31 == 0 { 1.0 } else { -1.0 };
            gradient.iter().enumerate().map(|(i, d)| d * sign(i)).sum()
        });
        Self {
            norm: gradient.iter().map(|d| d * d).sum::<f64>().sqrt(),
            entries: [gradient[0], gradient[n / 2], gradient[n - 1]],
            signed,
        }
    }

    /// The largest difference as a part of the norm.
    fn error(&self, other: &Self) -> f64 {
        let numbers = |of: &Self| [&[of.norm], &of.entries[..], &of.signed[..]].concat();
        let differences = numbers(self).into_iter().zip(numbers(other)).map(|(a, b)| (a - b).abs());
        // Not `f64::max`, which would pass over a NaN.
        differences.fold(0.0, |most: f64, new| if most.is_nan() || new <= most { most } else { new })
            / other.norm
    }
}

#[test]
fn an_error_that_is_no_number_stays() {
    let fine = || Projected { norm: 1.0, entries: [0.0; 3], signed: [0.0; 4] };
    assert_eq!(fine().error(&fine()), 0.0);
    for at in 0..3 {
        let mut wrong = fine();
        wrong.entries[at] = f64::NAN;
        assert!(wrong.error(&fine()).is_nan(), "entry {at}");
    }
    assert!(Projected { norm: f64::NAN, ..fine() }.error(&fine()).is_nan());
}

fn check<R: Real>(case: &Case, golden: &Golden, tolerance: f64) {
    let (loss, gradient) = case.run::<R>();
    for (ours, theirs) in loss.iter().zip(golden.loss) {
        assert!((ours - theirs).abs() <= tolerance * theirs, "{}: loss {ours}, torch {theirs}", case.name);
    }
    let layout = case.layout();
    assert_eq!(layout.tensors().len(), golden.gradients.len());
    for Tensor { name, view, .. } in layout.tensors() {
        let ours: Vec<f64> = gradient[view.range()].iter().map(|&d| Real::to_f64(d)).collect();
        let (ours, theirs) = (Projected::new(&ours), &golden.gradients[name]);
        let error = ours.error(theirs);
        assert!(error <= tolerance, "{}: {name} differs by {error:e}: {ours:?}, torch {theirs:?}", case.name);
    }
}

#[test]
fn gradients_are_those_of_torch() {
    for case in cases().iter().filter(|case| case.golden) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/torch/{}.json", case.name));
        let golden: Golden = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        // The weights are drawn with the platform's logarithm and cosine, and may differ elsewhere in the last bit of f32.
        check::<f64>(case, &golden, 1e-8);
        check::<f32>(case, &golden, 1e-4);
    }
}

/// What `torch/agreement.py` reads, a safetensors file per case with the weights, the batch, and our losses and gradients, has all
/// of it, and its gradients in f32 are those in f64. With a folder in `UNTUNED_TORCH` it is left there, the larger cases too.
#[test]
fn an_export_is_whole() {
    let kept = std::env::var_os("UNTUNED_TORCH");
    let temporary = tempfile::tempdir().unwrap();
    let folder = kept.as_ref().map_or(temporary.path(), Path::new);
    std::fs::create_dir_all(folder).unwrap();
    for case in cases().into_iter().filter(|case| case.golden || kept.is_some()) {
        let (layout, x) = (case.layout(), case.weights());
        let (loss, gradient) = case.run::<f32>();
        let (loss_64, gradient_64) = case.run::<f64>();
        let mut tensors = vec![
            ("loss".to_string(), floats(&[SCALARS], &loss)),
            ("loss_64".to_string(), floats(&[SCALARS], &loss_64)),
        ];
        for (name, ids) in ["inputs", "targets"].into_iter().zip(case.ids()) {
            tensors.push((
                name.into(),
                floats(&[ids.len()], &ids.into_iter().map(f64::from).collect::<Vec<_>>()),
            ));
        }
        let carry = case.carry();
        tensors.push(("carry".into(), singles(&[carry.len()], &carry)));
        for Tensor { name, view, shape, .. } in layout.tensors() {
            tensors.push((format!("weight.{name}"), singles(shape, &x[view.range()])));
            tensors.push((format!("gradient.{name}"), singles(shape, &gradient[view.range()])));
            tensors.push((format!("gradient_64.{name}"), floats(shape, &gradient_64[view.range()])));
        }
        let settings = HashMap::from([("settings".to_string(), settings(&case).to_string())]);
        let path = folder.join(format!("{}.safetensors", case.name));
        safetensors::serialize_to_file(tensors, Some(settings), &path).unwrap();

        let bytes = std::fs::read(&path).unwrap();
        let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.len(), 5 + 3 * layout.tensors().len(), "{}", case.name);
        for Tensor { name, view, shape, .. } in layout.tensors() {
            let single = |kind: &str| -> Vec<f64> {
                let found = read.tensor(&format!("{kind}.{name}")).unwrap();
                assert_eq!(found.shape(), shape, "{}: {kind}.{name}", case.name);
                let numbers = found.data().as_chunks::<4>().0.iter();
                numbers.map(|&four| f64::from(f32::from_le_bytes(four))).collect()
            };
            assert!(
                single("weight").iter().zip(&x[view.range()]).all(|(&a, &b)| a == f64::from(b)),
                "{name}"
            );
            let exact = read.tensor(&format!("gradient_64.{name}")).unwrap().data().as_chunks::<8>().0;
            let exact: Vec<f64> = exact.iter().map(|&eight| f64::from_le_bytes(eight)).collect();
            let norm = |of: &mut dyn Iterator<Item = f64>| of.map(|v| v * v).sum::<f64>().sqrt();
            let apart = norm(&mut single("gradient").iter().zip(&exact).map(|(a, b)| a - b));
            let whole = norm(&mut exact.iter().copied());
            assert!(apart <= 1e-4 * whole, "{}: {name} differs by {apart:e} of {whole:e}", case.name);
        }
    }
}

fn settings(case: &Case) -> serde_json::Value {
    let mut settings = match case.shape {
        Shape::Gpt(shape) => serde_json::json!({
            "network": "gpt", "blocks": shape.blocks, "heads": shape.heads, "dropout": shape.dropout,
        }),
        Shape::Lstm(shape, _) => serde_json::json!({
            "network": "lstm", "layers": shape.layers, "drop_rows": shape.drop_rows, "drop_input": shape.drop_input,
            "drop_between": shape.drop_between, "drop_output": shape.drop_output, "drop_weight": shape.drop_weight,
            "activation": shape.activation, "change": shape.change,
        }),
        Shape::T5(shape) => {
            serde_json::json!({"network": "t5", "layers": shape.layers, "heads": shape.heads})
        }
    };
    settings["batch"] = case.batch.into();
    settings["seed"] = NOISE.seed.into();
    settings["step"] = NOISE.step.into();
    settings["golden"] = case.golden.into();
    settings
}

/// A tensor with its bytes.
struct Bytes(safetensors::Dtype, Vec<usize>, Vec<u8>);

fn singles(shape: &[usize], numbers: &[f32]) -> Bytes {
    Bytes(safetensors::Dtype::F32, shape.to_vec(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
}

fn floats(shape: &[usize], numbers: &[f64]) -> Bytes {
    Bytes(safetensors::Dtype::F64, shape.to_vec(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
}

impl safetensors::View for Bytes {
    fn dtype(&self) -> safetensors::Dtype {
        self.0
    }

    fn shape(&self) -> &[usize] {
        &self.1
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.2).into()
    }

    fn data_len(&self) -> usize {
        self.2.len()
    }
}
