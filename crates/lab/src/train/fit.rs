//! A batch that fits a GPU's memory, for the words of an error.

use untuned::RunInfo;
use untuned_net::device::{Device, DeviceError};
use untuned_net::models::{Feed, Noise, SCALARS};

use super::config::Config;
use super::data::Data;
use super::device::{DeviceChoice, OpenDevice, Work};
use super::error::TrainError;
use super::probe::Probe;
use super::shape::Shape;
use super::stepper::Stepper;

/// The error of a run; where a GPU had too little memory, with a batch that fits. The CPU's memory is not filled to find one:
/// others use it too.
pub(super) fn with_batch_that_fits(error: TrainError, config: &Config) -> TrainError {
    let TrainError::Device(DeviceError::OutOfMemory { device, needed, free }) = error else { return error };
    let gpu = config.device_choice().ok().filter(|choice| *choice != DeviceChoice::Cpu);
    // Each try opens the GPU afresh: one that ran out of memory does nothing more.
    let fits = gpu.and_then(|gpu| {
        halved(config.batch, |batch| gpu.run(Some(1), Trial { config: &Config { batch, ..config.clone() } }))
    });
    match fits {
        Some(fits) => TrainError::Batch { device, needed, free, batch: config.batch, fits },
        None => DeviceError::OutOfMemory { device, needed, free }.into(),
    }
}

/// The first of ½, ¼, … of the batch that there is memory for; nothing when something else goes wrong.
fn halved(batch: usize, mut try_it: impl FnMut(usize) -> Result<(), TrainError>) -> Option<usize> {
    let mut smaller = batch / 2;
    while smaller > 0 {
        match try_it(smaller) {
            Ok(()) => return Some(smaller),
            Err(TrainError::Device(DeviceError::OutOfMemory { .. })) => smaller /= 2,
            Err(_) => return None,
        }
    }
    None
}

/// Everything that a run keeps on the device, and one gradient: what lies between takes its room in the first.
struct Trial<'a> {
    config: &'a Config,
}

impl Work for Trial<'_> {
    type Output = ();

    fn on<D>(self, device: &D, _: &OpenDevice<'_>) -> Result<(), TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        let config = self.config;
        let shape = Shape::of(config)?;
        let data = Data::open(config, &shape)?;
        let shape = shape.fitted(data.ids, data.longest_target);
        let method = config.rule.build(&RunInfo { steps: data.steps, f_star: data.description.best_loss })?;
        let mut network = shape.network(device, config.batch, data.longest)?;
        let len = network.layout().len();
        let _probe = config.smoothness_every.map(|every| Probe::new(device, len, every)).transpose()?;
        let x0 = vec![0.0; len];
        let mut stepper = Stepper::new(device, network.layout(), &x0, method, config, data.steps)?;
        let (inputs, targets) = (config.batch * data.longest, config.batch * data.longest_target);
        let (inputs, targets) = (vec![0; inputs], vec![0; targets]);
        let feed = Feed { inputs: &inputs, targets: &targets, batch: config.batch };
        let noise = Noise { seed: config.seed, step: 0 };
        let (x, gradient, sums) = stepper.batch_buffers();
        network.gradient(device, feed, Some(noise), x, gradient, sums);
        Ok(device.read(sums, &mut [0.0; SCALARS])?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Overrides;
    use super::*;

    fn out_of_memory() -> TrainError {
        DeviceError::OutOfMemory { device: "cuda:0".into(), needed: 9, free: "5 of 8 are free".into() }.into()
    }

    #[test]
    fn batches_are_halved_until_one_fits() {
        let room = |most: usize| move |batch| if batch <= most { Ok(()) } else { Err(out_of_memory()) };
        assert_eq!(halved(100, room(30)), Some(25));
        assert_eq!(halved(100, room(50)), Some(50));
        assert_eq!(halved(100, room(1)), Some(1));
        assert_eq!(halved(100, room(0)), None);
        assert_eq!(halved(1, room(1)), None);
        assert_eq!(halved(8, |_| Err(TrainError::Request("another error".into()))), None);
        let TrainError::Device(DeviceError::OutOfMemory { device, needed, free }) = out_of_memory() else {
            panic!("as made");
        };
        let error = TrainError::Batch { device, needed, free, batch: 64, fits: 32 };
        assert!(!error.is_request());
        let words = "cuda:0: 9 bytes are needed, 5 of 8 are free; batch = 64 does not fit, batch = 32 fits";
        assert!(error.to_string().starts_with(words), "{error}");
    }

    #[test]
    fn a_trial_has_what_every_network_needs() {
        for model in ["gpt", "lstm", "t5"] {
            let text =
                format!("model = \"{model}\"\nsteps = 3\nbatch = 2\ndevice = \"cpu\"\nsmoothness_every = 1");
            let config = Config::resolve(&text, "x.toml", "x", &Overrides::default()).unwrap();
            DeviceChoice::Cpu.run(Some(2), Trial { config: &config }).unwrap();
        }
        let config =
            Config::resolve("model = \"gpt\"\nsteps = 1\ndevice = \"cpu\"", "x", "x", &Overrides::default());
        let error = with_batch_that_fits(out_of_memory(), &config.unwrap());
        assert!(matches!(error, TrainError::Device(_)), "{error}: the CPU's memory is not filled");
    }
}
