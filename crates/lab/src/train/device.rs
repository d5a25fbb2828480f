//! The device and precision of a run: as a user writes them, checked, and opened.

use std::sync::OnceLock;

use untuned_net::cpu::Cpu;
use untuned_net::cuda::{Cuda, Precision, libraries};
use untuned_net::device::{Device, DeviceError};

use super::config::ConfigError;
use super::error::TrainError;

/// The word that leaves the choice to the program.
pub const AUTO: &str = "auto";

/// A device, and what it computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The CPU, in f32.
    Cpu,
    /// A GPU.
    Cuda {
        /// Its number.
        ordinal: u32,
        /// What it computes in.
        precision: Precision,
    },
}

/// Work that any device can do.
pub trait Work {
    /// What comes out.
    type Output;

    /// Does it on this device.
    ///
    /// # Errors
    /// When the request is wrong or the system fails.
    fn on<D>(self, device: &D, open_device: &OpenDevice<'_>) -> Result<Self::Output, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send;
}

/// What is known of a device once it is open.
pub struct OpenDevice<'a> {
    /// Which device, and its precision.
    pub choice: DeviceChoice,
    /// The threads of the host that compute.
    pub threads: usize,
    /// The GPU, and the bytes of its memory that were taken before any work.
    gpu: Option<(&'a Cuda, u64)>,
}

impl OpenDevice<'_> {
    /// What the GPU's maker calls it.
    pub fn model(&self) -> Option<&str> {
        self.gpu.map(|(cuda, _)| cuda.model())
    }

    /// The device and what it computes in, in words.
    pub fn words(&self) -> String {
        match self.model() {
            Some(model) => {
                format!("{} ({model}) in {}", self.choice.device(), self.choice.precision())
            }
            None if self.threads == 1 => "1 thread".into(),
            None => format!("{} threads", self.threads),
        }
    }

    /// The most memory that the work held, where the system says so: the whole process on the CPU; on a GPU, which gives nothing
    /// back before the end, what is taken now and was not before.
    pub fn peak_bytes(&self) -> Option<u64> {
        match self.gpu {
            None => peak_of_process(),
            Some((cuda, before)) => cuda.memory().ok().map(|memory| taken(memory).saturating_sub(before)),
        }
    }
}

fn taken((free, total): (u64, u64)) -> u64 {
    total.saturating_sub(free)
}

/// The most memory that this process has held.
fn peak_of_process() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

impl DeviceChoice {
    /// The choice that these words name. A device of `auto` is the first GPU that can be used, else the CPU. A precision of `auto`
    /// is bf16 on a GPU and f32 on the CPU.
    ///
    /// # Errors
    /// Says what to write instead.
    pub fn of(device: &str, precision: &str) -> Result<DeviceChoice, ConfigError> {
        let wrong = |key: &str, value: &str, remedy: &str| {
            Err(ConfigError::Value { key: key.into(), value: value.into(), remedy: remedy.into() })
        };
        let wanted = match precision {
            AUTO => None,
            "f32" => Some(Precision::F32),
            "tf32" => Some(Precision::Tf32),
            "bf16" => Some(Precision::Bf16),
            other => return wrong("precision", other, "give auto, f32, tf32 or bf16"),
        };
        let ordinal = match device {
            "cpu" => None,
            "cuda" => Some(0),
            AUTO => first_gpu(),
            other => match other.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(ordinal)) => Some(ordinal),
                Some(Err(_)) => return wrong("device", other, "give the GPU's number, such as cuda:0"),
                None => return wrong("device", other, "give cpu, auto or cuda:0"),
            },
        };
        match (ordinal, wanted) {
            (Some(ordinal), wanted) => {
                Ok(DeviceChoice::Cuda { ordinal, precision: wanted.unwrap_or(Precision::Bf16) })
            }
            (None, None | Some(Precision::F32)) => Ok(DeviceChoice::Cpu),
            (None, Some(_)) if device == AUTO => {
                let remedy =
                    "and no GPU can be used here: `untuned doctor` says why; the CPU computes in f32";
                wrong("precision", precision, remedy)
            }
            (None, Some(_)) => {
                wrong("precision", precision, "the CPU computes in f32: give f32 or auto, or device cuda:0")
            }
        }
    }

    /// The device as a user writes it.
    pub fn device(self) -> String {
        match self {
            DeviceChoice::Cpu => "cpu".into(),
            DeviceChoice::Cuda { ordinal, .. } => format!("cuda:{ordinal}"),
        }
    }

    /// The device without its number: all GPUs are one kind.
    pub fn kind(self) -> &'static str {
        match self {
            DeviceChoice::Cpu => "cpu",
            DeviceChoice::Cuda { .. } => "cuda",
        }
    }

    /// What it computes in, as a user writes it.
    pub fn precision(self) -> &'static str {
        match self {
            DeviceChoice::Cpu => Precision::F32.name(),
            DeviceChoice::Cuda { precision, .. } => precision.name(),
        }
    }

    /// Opens the device, which compiles the kernels of a GPU where that was not done before, and does the work on it.
    ///
    /// # Errors
    /// When the device cannot be opened, and what the work returns.
    pub fn run<W>(self, threads: Option<usize>, work: W) -> Result<W::Output, TrainError>
    where
        W: Work + Send,
        W::Output: Send,
    {
        match self {
            DeviceChoice::Cpu => {
                let cpu = Cpu::<f32>::new(threads)?;
                let opened = OpenDevice { choice: self, threads: cpu.threads(), gpu: None };
                cpu.inside(|| work.on(&cpu, &opened))
            }
            DeviceChoice::Cuda { ordinal, precision } => {
                let cuda = Cuda::new(ordinal, precision).map_err(|error| self.explained(error))?;
                let before = taken(cuda.memory()?);
                work.on(&cuda, &OpenDevice { choice: self, threads: 1, gpu: Some((&cuda, before)) })
            }
        }
    }

    /// The error of opening the device. A GPU that does not exist is the request's fault, not the system's.
    fn explained(self, error: DeviceError) -> TrainError {
        let gpus = libraries::survey().gpus;
        if gpus.is_empty() || gpus.iter().any(|gpu| gpu.name == self.device()) {
            return error.into();
        }
        let known: Vec<_> = gpus.iter().map(|gpu| format!("{} ({})", gpu.name, gpu.model)).collect();
        let (device, known) = (self.device(), known.join(", "));
        TrainError::Request(format!("there is no {device} here; there is {known}"))
    }

    /// Opens the device and closes it again, before many processes use it: a missing library is reported once, and kernels are
    /// compiled once.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn check(self) -> Result<(), TrainError> {
        struct Nothing;
        impl Work for Nothing {
            type Output = ();
            fn on<D: Device>(self, _: &D, _: &OpenDevice<'_>) -> Result<(), TrainError> {
                Ok(())
            }
        }
        self.run(Some(1), Nothing)
    }
}

/// The first GPU that can be used; looked for once.
fn first_gpu() -> Option<u32> {
    static FOUND: OnceLock<Option<u32>> = OnceLock::new();
    *FOUND.get_or_init(libraries::first_gpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_as_they_are_written() {
        let cuda = |ordinal, precision| DeviceChoice::Cuda { ordinal, precision };
        for (device, precision, choice) in [
            ("cpu", "auto", DeviceChoice::Cpu),
            ("cpu", "f32", DeviceChoice::Cpu),
            ("cuda", "auto", cuda(0, Precision::Bf16)),
            ("cuda:3", "tf32", cuda(3, Precision::Tf32)),
            ("cuda:0", "f32", cuda(0, Precision::F32)),
        ] {
            let found = DeviceChoice::of(device, precision).unwrap();
            assert_eq!(found, choice);
            assert_eq!(DeviceChoice::of(&found.device(), found.precision()).unwrap(), choice, "reads back");
        }
        let auto = libraries::first_gpu().map_or(DeviceChoice::Cpu, |first| cuda(first, Precision::Bf16));
        assert_eq!(DeviceChoice::of("auto", "auto").unwrap(), auto);
    }

    #[test]
    fn mistakes_have_a_remedy() {
        for (device, precision, words) in [
            ("tpu", "auto", "device is tpu; give cpu, auto or cuda:0"),
            ("cuda:x", "auto", "device is cuda:x; give the GPU's number"),
            ("cuda:", "auto", "device is cuda:; give the GPU's number"),
            ("cuda:99999999999", "auto", "give the GPU's number"),
            ("cpu", "bf16", "precision is bf16; the CPU computes in f32"),
            ("cpu", "f16", "precision is f16; give auto, f32, tf32 or bf16"),
        ] {
            let error = DeviceChoice::of(device, precision).unwrap_err().to_string();
            assert!(error.contains(words), "{words} in {error}");
        }
    }
}
