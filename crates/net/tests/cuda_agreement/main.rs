//! The GPU against the CPU in f64: every operation, whole networks, and that the same seed gives the same bits.
//!
//! Needs a GPU. Without one the tests say so and pass, unless `UNTUNED_REQUIRE_GPU` is set. That the checks themselves are right is
//! seen anywhere: the CPU in f32 passes them.

#![allow(clippy::unwrap_used)]

#[path = "../methods/mod.rs"]
mod methods;
mod networks;
mod operations;
mod report;

use networks::{Net, State};
use operations::{Numbers, Operation};
use report::{Report, attempt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use untuned_net::cpu::Cpu;
use untuned_net::cuda::{Cuda, Precision, libraries};
use untuned_net::device::{Device, DeviceError, Kind};
use untuned_net::models::Noise;

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Tf32, Precision::Bf16];
const NOISE: Option<Noise> = Some(Noise { seed: 3, step: 5 });

/// The right to use the GPU, if there is one. One test at a time: the driver's context goes with the last device, and an error in it
/// does, too.
fn gpu() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if libraries::first_gpu().is_some() {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let survey = libraries::survey();
    let problems = [survey.driver.problem, survey.nvrtc.problem, survey.cublaslt.problem];
    let reason = problems.into_iter().flatten().next().unwrap_or_else(|| format!("{:?}", survey.gpus));
    assert!(std::env::var_os("UNTUNED_REQUIRE_GPU").is_none(), "UNTUNED_REQUIRE_GPU is set: {reason}");
    println!("skipped: {reason}");
    None
}

/// A device that is opened when it is needed, and again after an error.
struct Reopened {
    precision: Precision,
    cuda: Option<Cuda>,
}

impl Reopened {
    fn new(precision: Precision) -> Self {
        Self { precision, cuda: None }
    }

    fn attempt<T>(&mut self, work: impl FnOnce(&Cuda) -> Result<T, DeviceError>) -> Result<T, String> {
        let done = attempt(|| {
            let cuda = match &mut self.cuda {
                Some(cuda) => cuda,
                none => none.insert(Cuda::new(0, self.precision)?),
            };
            work(cuda)
        });
        if done.is_err() {
            self.cuda = None;
        }
        done
    }
}

fn tolerance_of_operations(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::Tf32 => 2e-3,
        Precision::Bf16 => 2e-2,
    }
}

fn numbers(index: usize, precision: Precision) -> Numbers {
    Numbers { seed: 1000 + index as u64, bf16: precision == Precision::Bf16 }
}

fn operations_agree(precision: Precision) {
    let Some(_turn) = gpu() else { return };
    let (cpu, mut report, mut index) = (Cpu::<f64>::new(None).unwrap(), Report::default(), 0);
    let tolerance = tolerance_of_operations(precision);
    for (group, operations) in operations::operations() {
        let mut device = Reopened::new(precision);
        for operation in operations {
            index += 1;
            let (name, numbers) =
                (format!("{} {group}: {operation:?}", precision.name()), numbers(index, precision));
            let exact = operations::run(&operation, &cpu, numbers).unwrap();
            match device.attempt(|cuda| operations::run(&operation, cuda, numbers)) {
                Ok(found) => report.compare(&name, &found, &exact, tolerance, 0.0),
                Err(reason) => report.fail(&name, reason),
            }
        }
    }
    report.finish(&format!("operations in {}", precision.name()));
}

#[test]
fn operations_in_f32() {
    operations_agree(Precision::F32);
}

#[test]
fn operations_in_tf32() {
    operations_agree(Precision::Tf32);
}

#[test]
fn operations_in_bf16() {
    operations_agree(Precision::Bf16);
}

/// The CPU in f32 is another device.
#[test]
fn operations_on_the_cpu() {
    let (narrow, wide) = (Cpu::<f32>::new(Some(2)).unwrap(), Cpu::<f64>::new(Some(2)).unwrap());
    let mut report = Report::default();
    for (index, operation) in operations::small_operations().into_iter().enumerate() {
        for precision in [Precision::F32, Precision::Bf16] {
            let numbers = numbers(index, precision);
            let exact = operations::run(&operation, &wide, numbers).unwrap();
            let found = operations::run(&operation, &narrow, numbers).unwrap();
            report.compare(&format!("{operation:?}"), &found, &exact, 1e-5, 0.0);
        }
    }
    report.finish("operations on the CPU");
}

/// Errors of a tensor's gradient, and of the loss; and below which part of the whole gradient a tensor counts as so large.
///
/// T5's logits start with a deviation of 28: a factor that is rounded to bf16 (2⁻⁹) or TF32 (2⁻¹²) moves them by 0.05 or 0.007, and
/// the softmax's numbers, which all gradients come from, by as large a part of themselves.
fn tolerance_of_networks(net: &Net, precision: Precision) -> (f64, f64) {
    match (precision, net) {
        (Precision::F32, _) => (1e-4, 1e-6),
        (Precision::Tf32, Net::T5 { .. }) => (3e-2, 1e-3),
        (Precision::Tf32, _) => (1e-2, 1e-3),
        (Precision::Bf16, Net::T5 { .. }) => (2e-1, 1e-3),
        (Precision::Bf16, _) => (5e-2, 1e-3),
    }
}

/// The whole gradient's size, as a part of which small tensors are seen.
fn floor(outputs: &[report::Output], part: f64) -> f64 {
    let gradients =
        outputs.iter().filter(|output| output.name.ends_with(" 1") && !output.name.starts_with("loss"));
    part * gradients.flat_map(|output| &output.values).map(|value| value * value).sum::<f64>().sqrt()
}

fn networks_agree(precision: Precision) {
    let Some(_turn) = gpu() else { return };
    let (cpu, mut report) = (Cpu::<f64>::new(None).unwrap(), Report::default());
    for (name, net) in networks::networks() {
        let mut device = Reopened::new(precision);
        let (tolerance, part) = tolerance_of_networks(&net, precision);
        for noise in [None, NOISE] {
            let name = format!("{} {name}, {}", precision.name(), noise.map_or("no noise", |_| "noise"));
            let numbers = numbers(0, precision);
            let exact = networks::gradients(&net, &cpu, numbers, noise).unwrap();
            match device.attempt(|cuda| networks::gradients(&net, cuda, numbers, noise)) {
                Ok(found) => report.compare(&name, &found, &exact, tolerance, floor(&exact, part)),
                Err(reason) => report.fail(&name, reason),
            }
        }
    }
    report.finish(&format!("networks in {}", precision.name()));
}

#[test]
fn networks_in_f32() {
    networks_agree(Precision::F32);
}

#[test]
fn networks_in_tf32() {
    networks_agree(Precision::Tf32);
}

#[test]
fn networks_in_bf16() {
    networks_agree(Precision::Bf16);
}

#[test]
fn networks_on_the_cpu() {
    let (narrow, wide) = (Cpu::<f32>::new(Some(2)).unwrap(), Cpu::<f64>::new(Some(2)).unwrap());
    let mut report = Report::default();
    for (name, net) in networks::networks().into_iter().filter(|(name, _)| name.starts_with("odd")) {
        let numbers = numbers(0, Precision::F32);
        let exact = networks::gradients(&net, &wide, numbers, NOISE).unwrap();
        let found = networks::gradients(&net, &narrow, numbers, NOISE).unwrap();
        report.compare(name, &found, &exact, 1e-4, floor(&exact, 1e-6));
    }
    report.finish("networks on the CPU");
}

/// Five steps twice with graphs, which begin at the second time the same comes; without; and stopped in between.
fn trains_alike(report: &mut Report, name: &str, mut train: impl FnMut(bool, bool) -> Result<State, String>) {
    let first = match train(true, false) {
        Ok(first) => first,
        Err(reason) => return report.fail(name, reason),
    };
    println!("{name}: loss and ‖g‖² {:?}", first.seen);
    let finite = first.seen.iter().flatten().all(|seen| seen.is_finite());
    report.check(&format!("{name}: finite"), f64::from(!finite), 0.0);
    for (how, together, stopped) in
        [("again", true, false), ("one by one", false, false), ("stopped and continued", true, true)]
    {
        match train(together, stopped) {
            Ok(other) => {
                let pairs = first.parameters.iter().zip(&other.parameters);
                let differ = pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                report.check(&format!("{name}, {how}: parameters that differ"), differ as f64, 0.0);
                report.check(&format!("{name}, {how}: not the same bits"), f64::from(!first.is(&other)), 0.0);
            }
            Err(reason) => report.fail(&format!("{name}, {how}"), reason),
        }
    }
}

/// Training, whole or stopped after three of five steps and continued on a fresh network.
fn training<D: Device + 'static>(
    net: &Net,
    device: &D,
    together: bool,
    stopped: bool,
) -> Result<State, DeviceError>
where
    D::Buffer: Send,
    D::Ids: Send,
{
    if !stopped {
        return networks::train(net, device, 0..5, together, None);
    }
    let half = networks::train(net, device, 0..3, together, None)?;
    networks::train(net, device, 3..5, together, Some(half))
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let Some(_turn) = gpu() else { return };
    let mut report = Report::default();
    for precision in PRECISIONS {
        for (name, net) in networks::trained() {
            trains_alike(&mut report, &format!("{} {name}", precision.name()), |together, stopped| {
                Reopened::new(precision).attempt(|cuda| training(&net, cuda, together, stopped))
            });
        }
    }
    report.finish("the same bits");
}

#[test]
fn the_same_seed_gives_the_same_bits_on_the_cpu() {
    let (cpu, mut report) = (Cpu::<f32>::new(Some(2)).unwrap(), Report::default());
    for (name, net) in networks::trained() {
        trains_alike(&mut report, name, |together, stopped| {
            attempt(|| training(&net, &cpu, together, stopped))
        });
    }
    report.finish("the same bits");
}

#[test]
fn errors_say_what_is_wrong() {
    let Some(_turn) = gpu() else { return };
    let cuda = Cuda::new(0, Precision::F32).unwrap();
    let too_long = cuda.buffer(250_000_000_000_000, Kind::Statistic).err().unwrap();
    println!("{too_long}");
    let DeviceError::OutOfMemory { device, needed, free } = &too_long else { panic!("{too_long}") };
    assert_eq!((device.as_str(), *needed), ("cuda:0", 1_000_000_000_000_000));
    assert!(free.starts_with("and a buffer has at most "), "{free}");
    // Each of these could be had alone; together they are more than any GPU has.
    let mut held = Vec::new();
    let full = loop {
        match cuda.buffer(1 << 31, Kind::Statistic) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
        assert!(held.len() < 1000, "a GPU with 8 TB");
    };
    println!("after {} buffers: {full}", held.len());
    let DeviceError::OutOfMemory { needed, free, .. } = &full else { panic!("{full}") };
    assert_eq!(*needed, 4 << 31);
    assert!(free.contains("are free") && free.starts_with(|first: char| first.is_ascii_digit()), "{free}");
    drop(held);
    let operation = Operation::Sums { len: 1000 };
    operations::run(&operation, &cuda, numbers(0, Precision::F32)).expect("the device goes on after it");
    let error = Cuda::new(9999, Precision::F32).unwrap_err().to_string();
    println!("{error}");
    assert!(error.starts_with("cuda:9999 failed: the"), "{error}");
    println!("{:#?}", libraries::survey());
}

/// For `compute-sanitizer`: every kernel, on small shapes, and nothing else.
#[test]
fn every_kernel_once() {
    let Some(_turn) = gpu() else { return };
    let mut report = Report::default();
    for precision in PRECISIONS {
        let mut device = Reopened::new(precision);
        for (index, operation) in operations::small_operations().into_iter().enumerate() {
            let done = device.attempt(|cuda| operations::run(&operation, cuda, numbers(index, precision)));
            if let Err(reason) = done {
                report.fail(&format!("{} {operation:?}", precision.name()), reason);
            }
        }
    }
    report.finish("every kernel once");
}
