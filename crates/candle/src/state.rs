//! What is saved of a run, and read again: one safetensors file with the variables, what the method keeps beside them, and in its
//! metadata the numbers.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor, Var};
use safetensors::SafeTensors;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use untuned::{MadeFor, Optimizer, SessionState, Space as _, StepOptions};

use crate::config::check;
use crate::variables::Variable;
use crate::{Error, Untuned};

/// The key of the metadata.
const KEY: &str = "untuned";

/// The layout of the numbers. Files of the first have none.
const FORMAT: u64 = 4;

/// The vector of the variables themselves, beside the names of the session's vectors.
const VARIABLES: &str = "variables";

/// The numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    format: u64,
    made_for: MadeFor<Value>,
    options: StepOptions,
    scales: Vec<f64>,
    session: Value,
}

impl<M: Optimizer> Untuned<M> {
    /// Writes the variables that are trained and all of the optimizer's state to one file. It is written beside its place first: there
    /// is never half a file.
    ///
    /// # Errors
    /// When the file cannot be written, or the learning rate that was set cannot be used; what was there before is still there.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error>
    where
        M: Clone + Serialize,
    {
        let path = path.as_ref();
        if self.broken {
            return Err(Error::Broken);
        }
        // A file has no way to write NaN.
        check(&self.session.options)?;
        let wrong = |why: String| Error::File { path: path.to_path_buf(), why };
        let failed = |error: serde_json::Error| wrong(error.to_string());
        let numbers = Numbers {
            format: FORMAT,
            made_for: self.made_for().map_err(failed)?,
            options: self.session.options,
            scales: self.session.space().scales.clone(),
            session: serde_json::to_value(self.session.save()).map_err(failed)?,
        };
        let text = serde_json::to_string(&numbers).map_err(failed)?;
        let mut tensors = BTreeMap::new();
        for (name, tensor) in self.tensors() {
            // There the bytes can be had without an error.
            let tensor = tensor.detach().to_device(&Device::Cpu)?.contiguous()?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(wrong(format!(
                    "two tensors are called {name:?}: a state vector needs another name"
                )));
            }
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
    /// When the file cannot be read, or is of another method, other parameters, another weight decay, clipping or average, or of other
    /// variables; nothing has changed then.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error>
    where
        M: Serialize + DeserializeOwned,
    {
        let path = path.as_ref();
        let wrong = |why: String| Error::File { path: path.to_path_buf(), why };
        let failed = |error: serde_json::Error| wrong(error.to_string());
        let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| wrong(error.to_string()))?;
        let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get(KEY));
        let text = text.ok_or_else(|| wrong("this is no state of an optimizer of untuned".to_string()))?;
        let numbers: Value = serde_json::from_str(text).map_err(failed)?;
        let format = numbers.get("format").and_then(Value::as_u64).unwrap_or(1);
        if format != FORMAT {
            let version = if format < FORMAT { "an older version" } else { "a newer version" };
            return Err(wrong(format!(
                "{version} wrote it (format {format}); this one reads format {FORMAT}"
            )));
        }
        let numbers: Numbers = serde_json::from_value(numbers).map_err(failed)?;
        let here = self.made_for().map_err(failed)?;
        let difference = numbers.made_for.difference(&here, Value::to_string);
        if let Some(difference) = difference.or_else(|| numbers.options.difference(&self.session.options)) {
            return Err(wrong(difference));
        }
        let state: SessionState<M> = serde_json::from_value(numbers.session).map_err(failed)?;
        if !self.session.accepts(&state) {
            return Err(wrong("it is damaged: its numbers are of another method than it says".to_string()));
        }
        let mut saved = candle_core::safetensors::load_buffer(&bytes, self.x[0].device())
            .map_err(|error| wrong(error.to_string()))?;
        let mut vectors = Vec::new();
        for (name, like) in self.tensors() {
            let tensor = saved.remove(&name).ok_or_else(|| wrong(format!("it has no tensor {name:?}")))?;
            let kind = |tensor: &Tensor| format!("{} of shape {:?}", tensor.dtype().as_str(), tensor.dims());
            let [there, here] = [&tensor, like].map(kind);
            if there != here {
                return Err(wrong(format!("{name:?} is {there} in the file, and {here} in this optimizer")));
            }
            vectors.push(Var::from_tensor(&tensor)?.into_inner());
        }
        if let Some(name) = saved.keys().min() {
            let why = format!("it has {name:?}, and this optimizer has no such variable; check `frozen`");
            return Err(wrong(why));
        }
        let count = self.x.len();
        if numbers.scales.len() != count {
            let saved = numbers.scales.len();
            return Err(wrong(format!("it has {saved} variables, and this optimizer has {count}")));
        }
        // From here on only the device can fail.
        self.broken = true;
        let kept = vectors.split_off(count);
        self.session.space().copy(&vectors, &mut self.x);
        self.session.space().check()?;
        let mut kept = kept.chunks(count).map(<[Tensor]>::to_vec);
        self.session.load(state, &self.x, |_, name, to| {
            *to = kept.next().ok_or_else(|| wrong(format!("it has no vector {name:?}")))?;
            Ok::<(), Error>(())
        })?;
        self.session.space_mut().scales = numbers.scales;
        self.session.options.rate = numbers.options.rate;
        self.broken = false;
        Ok(())
    }

    /// How the run began, the method as a file has it.
    fn made_for(&self) -> Result<MadeFor<Value>, serde_json::Error>
    where
        M: Serialize,
    {
        let MadeFor { name, method, text, average } = &self.made_for;
        let method = serde_json::to_value(method)?;
        Ok(MadeFor { name: name.clone(), method, text: text.clone(), average: *average })
    }

    /// Every tensor, with its name in a file: the variables, then the session's vectors.
    fn tensors(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let vectors = std::iter::once((VARIABLES, &self.x)).chain(self.session.vectors());
        vectors.flat_map(|(vector, tensors)| {
            let named =
                move |(variable, tensor): (&Variable, _)| (format!("{vector}.{}", variable.key), tensor);
            self.variables.iter().zip(tensors).map(named)
        })
    }
}
