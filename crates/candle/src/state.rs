//! What is saved of a run, and read again: one safetensors file with the variables, what the method keeps beside them, and in its
//! metadata the numbers.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use untuned::average::Average;
use untuned::optimizers::{Method, Optimizer as _, Space as _};

use crate::{Error, Untuned};

/// The key of the metadata.
const KEY: &str = "untuned";

/// The vector of the variables themselves, beside the names of those that a method keeps.
const VARIABLES: &str = "variables";

/// The numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    made_for: MadeFor,
    step: u64,
    rate: f64,
    x0_norm: f64,
    scales: Vec<f64>,
    method: Method,
}

/// What must be the same.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadeFor {
    spec: String,
    steps: u64,
    f_star: Option<f64>,
    weight_decay: f64,
    clip: Option<f64>,
    average: Option<Average>,
}

impl std::fmt::Display for MadeFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` for {} steps", self.spec, self.steps)?;
        if let Some(f_star) = self.f_star {
            write!(f, " to the minimum {f_star}")?;
        }
        write!(f, ", weight decay {}", self.weight_decay)?;
        if let Some(clip) = self.clip {
            write!(f, ", clipped to {clip}")?;
        }
        match self.average {
            Some(average) => write!(f, ", averaged ({average:?})"),
            None => Ok(()),
        }
    }
}

impl Untuned {
    /// Writes the variables that are trained and all of the optimizer's state to one file. It is written beside its place first: there
    /// is never half a file.
    ///
    /// # Errors
    /// When the file cannot be written, or the learning rate that was set cannot be used; what was there before is still there.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        if self.broken {
            return Err(Error::Broken);
        }
        // A file has no way to write NaN.
        self.check_rate()?;
        let numbers = Numbers {
            made_for: self.made_for(),
            step: self.step,
            rate: self.rate,
            x0_norm: self.x0_norm,
            scales: self.space.scales.clone(),
            method: self.method.clone(),
        };
        let wrong = |why: String| Error::File { path: path.to_path_buf(), why };
        let text = serde_json::to_string(&numbers).map_err(|error| wrong(error.to_string()))?;
        let mut tensors = BTreeMap::new();
        for (name, tensor) in self.tensors() {
            // There the bytes can be had without an error.
            tensors.insert(name, tensor.detach().to_device(&Device::Cpu)?.contiguous()?);
        }
        let metadata = HashMap::from([(KEY.to_string(), text)]);
        let bytes = safetensors::serialize(tensors.iter(), Some(metadata))
            .map_err(|error| wrong(error.to_string()))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".partial");
        let written = fs::write(&beside, bytes)
            .and_then(|()| fs::File::open(&beside)?.sync_all())
            .and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            // What is left of it is of no use to anybody.
            let _ = fs::remove_file(&beside);
            wrong(error.to_string())
        })
    }

    /// Goes on where [`Untuned::save`] was called, to the same bits: the variables, too, are what they were then.
    ///
    /// # Errors
    /// When the file cannot be read, or is of another method, another number of steps, weight decay or clipping, or of other variables;
    /// nothing has changed then.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let wrong = |why: String| Error::File { path: path.to_path_buf(), why };
        let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| wrong(error.to_string()))?;
        let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get(KEY));
        let text = text.ok_or_else(|| wrong("this is no state of an optimizer of untuned".to_string()))?;
        let numbers: Numbers = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let here = self.made_for();
        if numbers.made_for != here {
            return Err(wrong(format!("it was saved with {}, and here is {here}", numbers.made_for)));
        }
        if numbers.method.keeps() != self.method.keeps() {
            return Err(wrong("its numbers are of another method than they say".to_string()));
        }
        let device = self.x[0].device();
        let mut saved = candle_core::safetensors::load_buffer(&bytes, device)
            .map_err(|error| wrong(error.to_string()))?;
        let mut vectors = Vec::new();
        for (name, like) in self.tensors() {
            let tensor = saved.remove(&name).ok_or_else(|| wrong(format!("it has no tensor {name:?}")))?;
            let [there, here] = [&tensor, like].map(|tensor| (tensor.dims().to_vec(), tensor.dtype()));
            if there != here {
                let kind = |(shape, dtype): &(Vec<usize>, candle_core::DType)| {
                    format!("{} of shape {shape:?}", dtype.as_str())
                };
                return Err(wrong(format!("{name:?} is {} there, and {} here", kind(&there), kind(&here))));
            }
            vectors.push(tensor);
        }
        if let Some(name) = saved.keys().min() {
            let why = format!("it has {name:?}, and here is no such variable; was another one frozen?");
            return Err(wrong(why));
        }
        if numbers.scales.len() != self.x.len() {
            let (there, here) = (numbers.scales.len(), self.x.len());
            return Err(wrong(format!("it is of {there} variables, and here are {here}")));
        }
        // From here on only the device can fail.
        self.broken = true;
        let mut vectors = vectors.chunks(self.x.len()).map(<[Tensor]>::to_vec);
        for to in std::iter::once(&mut self.x).chain(&mut self.kept) {
            if let Some(from) = vectors.next() {
                self.space.copy(&from, to);
            }
        }
        self.space.check()?;
        self.broken = false;
        (self.step, self.rate, self.x0_norm) = (numbers.step, numbers.rate, numbers.x0_norm);
        self.space.scales = numbers.scales;
        self.method = numbers.method;
        Ok(())
    }

    fn made_for(&self) -> MadeFor {
        let setting = self.config.setting;
        MadeFor {
            spec: self.config.method.to_string(),
            steps: setting.steps,
            f_star: setting.f_star,
            weight_decay: self.config.weight_decay,
            clip: self.config.clip,
            average: self.config.average,
        }
    }

    /// Every tensor, with its name in a file: the variables, then what is kept beside them.
    fn tensors(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let keeps = self.method.keeps();
        let names = std::iter::once(VARIABLES).chain(keeps.into_iter().map(|keep| keep.name));
        let vectors = std::iter::once(&self.x).chain(&self.kept);
        names.zip(vectors).flat_map(|(vector, tensors)| {
            let named = move |(variable, tensor): (&crate::variables::Variable, _)| {
                (format!("{vector}.{}", variable.key), tensor)
            };
            self.variables.iter().zip(tensors).map(named)
        })
    }
}
