//! Every method follows the library's own f64 vectors, in f64 and in f32, as loops and as tensor operations.

use crate::support::{MATRIX, Reference, Run, START, difference, problem, specs};
use candle_core::{DType, Device, Tensor, Var};
use untuned::Average;
use untuned_candle::{Config, Untuned};

const STEPS: u64 = 60;

fn config(spec: &str, fused: bool) -> Config {
    Config { weight_decay: 0.05, fused, ..Config::new(spec, STEPS).unwrap() }
}

/// The largest error of the points of a run with Candle's variables whose gradients are those at the reference's points.
fn error(config: Config, dtype: DType) -> f64 {
    let spec = config.text.clone().unwrap().0;
    let mut reference = Reference::new(&config, &START, MATRIX);
    let mut run = Run::new(config, &START, MATRIX, dtype);
    let mut worst: f64 = 0.0;
    for t in 0..STEPS {
        let (loss, gradient) = problem(&reference.x, t);
        let want = reference.step(loss, &gradient);
        let got = run.step(loss, &gradient).unwrap_or_else(|error| panic!("{spec} at {t}: {error}"));
        assert_eq!((got.step, got.kind, got.loss), (t, want.kind, want.loss), "{spec}");
        worst = worst.max(difference(&[got.rate], &[want.rate])).max(difference(&run.x(), &reference.x));
        worst = worst.max(difference(&run.evaluated(), &reference.evaluated()));
    }
    worst
}

/// Sums of other orders differ in the last bits. From d0 = 1e-6 on, x_0 − x is so small that a rounding of x is 1e-10 of it; the bound
/// that MoMo-Adam estimates is a difference of sums.
fn tolerance(spec: &str) -> f64 {
    match spec.split(':').next() {
        Some("prodigy" | "d-adapt-sgd" | "d-adapt-adam") => 1e-9,
        Some("momo-adam") => 1e-11,
        _ => 1e-12,
    }
}

#[test]
fn every_method_follows_the_reference_in_f64() {
    for spec in specs() {
        for fused in [true, false] {
            let error = error(config(&spec, fused), DType::F64);
            assert!(error < tolerance(&spec), "{spec}, fused {fused}: {error:.1e}");
        }
    }
}

/// Methods that begin with a distance of 1e-6 or so find another one for a while, because f32 rounds x by as much: here they begin
/// with more.
#[test]
fn every_method_follows_the_reference_in_f32() {
    for spec in specs() {
        let name = spec.split(':').next().unwrap();
        let first = match name {
            "prodigy" if !spec.contains("d0") => "d0=0.1",
            "mechanic" => "s_init=0.1",
            "dog" => "eps_rel=0.1",
            "dowg" => "r2=0.01",
            _ => "",
        };
        let spec = match (first, spec.contains(':')) {
            ("", _) => spec,
            (first, true) => format!("{spec},{first}"),
            (first, false) => format!("{spec}:{first}"),
        };
        for fused in [true, false] {
            let error = error(config(&spec, fused), DType::F32);
            assert!(error < 3e-4, "{spec}, fused {fused}: {error:.1e}");
        }
    }
}

#[test]
fn averages_follow_the_reference() {
    for spec in ["dog", "adamw:lr=0.1", "polyak-adam"] {
        for average in [Average::Uniform, Average::Polynomial(8.0), Average::Exponential(0.9)] {
            for fused in [true, false] {
                let config = Config { average: Some(average), ..config(spec, fused) };
                let error = error(config, DType::F64);
                assert!(error < 1e-12, "{spec}, {average:?}, fused {fused}: {error:.1e}");
            }
        }
    }
}

#[test]
fn clipping_is_of_the_whole_gradient() {
    for spec in ["adamw:lr=0.1", "sgd-momentum:lr=0.1"] {
        for fused in [true, false] {
            let clipped = Config { clip: Some(1.5), ..config(spec, fused) };
            assert!(error(clipped, DType::F64) < 1e-12, "{spec}, fused {fused}");
        }
    }
}

/// Over a length that is not a multiple of anything.
#[test]
fn loops_and_tensor_operations_agree() {
    let start: Vec<f64> = (0..1003).map(|i| ((i * 37) % 101) as f64 / 50.0 - 1.0).collect();
    for spec in specs() {
        let [mut one, mut two] = [true, false].map(|fused| {
            let config = Config { fused, ..Config::new(&spec, STEPS).unwrap() };
            Run::new(config, &start, 600, DType::F64)
        });
        for t in 0..10 {
            let gradient: Vec<f64> = one
                .x()
                .iter()
                .zip(0..)
                .map(|(x, i)| 0.3 * x + ((t * i) % 11) as f64 / 100.0 - 0.05)
                .collect();
            let loss = 40.0 - t as f64;
            let (a, b) = (one.step(loss, &gradient).unwrap(), two.step(loss, &gradient).unwrap());
            assert!(
                difference(&[a.rate, a.grad_norm], &[b.rate, b.grad_norm]) < tolerance(&spec),
                "{spec}: {a:?} {b:?}"
            );
            let error = difference(&one.x(), &two.x());
            assert!(error < tolerance(&spec), "{spec} at {t}: {error:.1e}");
        }
    }
}

/// In f16 the square of 2^-13 is 0 and that of 2^9 infinite; in bf16 a sum of 4096 ones stops at 256.
#[test]
fn half_precision_gradients_are_squared_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        for (value, count) in [(2f64.powi(-13), 64), (512.0, 64), (1.0, 4096)] {
            let ones = Tensor::ones(count, dtype, &Device::Cpu).unwrap();
            let var = Var::from_tensor(&ones).unwrap();
            let mut optimizer =
                Untuned::new(vec![var.clone()], Config::new("inexact-polyak", 1).unwrap()).unwrap();
            let loss = (var.as_tensor() * value).unwrap().to_dtype(DType::F32).unwrap().sum_all().unwrap();
            let report = optimizer.backward_step(&loss).unwrap();
            assert_eq!(report.grad_norm, value * (count as f64).sqrt(), "{dtype:?}, {value}");
        }
    }
}

/// What is kept beside numbers of 16 bits is f32: a few steps lead where those in f32 do.
#[test]
fn methods_train_half_precision() {
    for (dtype, allowed) in [(DType::F16, 0.003), (DType::BF16, 0.05)] {
        for spec in ["inexact-polyak", "dog:eps_rel=0.01", "adamw:lr=0.05", "polyak-adam", "cocob"] {
            let [half, single] = [dtype, DType::F32].map(|dtype| {
                let mut run = Run::new(Config::new(spec, STEPS).unwrap(), &START, MATRIX, dtype);
                (0..10).for_each(|t| _ = run.step_on_problem(t).unwrap());
                run.x()
            });
            assert_ne!(single, START);
            let error = difference(&half, &single);
            assert!(error < allowed, "{spec} in {dtype:?}: {error:.1e}");
        }
    }
}
