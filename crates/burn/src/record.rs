//! The state of a run in Burn's own format, burnpack, and as Burn's own type for the state of optimizers.

use std::collections::HashMap;
use std::path::Path;

use burn::module::Module;
use burn::optim::{GradientsParams, OptimizerRecord};
use burn::tensor::{Tensor, TensorData};
use burn_pack::{Reader, Writer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use untuned::{MadeFor, Optimizer, SessionState, StepOptions};

use crate::StepError;
use crate::module::Taken;
use crate::space::{Parameters, Vector};
use crate::stepper::Stepper;

/// The key of the numbers in a record's metadata.
const KEY: &str = "untuned";

/// The number of a record's layout. It changes with the names of fields and vectors.
const FORMAT: u32 = 2;

/// What a record has beside its vectors.
#[derive(Serialize, Deserialize)]
pub(crate) struct Saved<M> {
    format: u32,
    made_for: MadeFor<M>,
    pub(crate) state: SessionState<M>,
    #[serde(default)]
    options: StepOptions,
    /// One for each parameter; none where all are 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scales: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    best: Option<f64>,
}

impl<M: Optimizer + Serialize + DeserializeOwned + PartialEq> Saved<M> {
    pub(crate) fn new(made_for: MadeFor<M>, state: SessionState<M>) -> Saved<M> {
        let (options, scales) = (StepOptions::default(), Vec::new());
        Saved { format: FORMAT, made_for, state, options, scales, best: None }
    }

    /// Reads what was written of a run that began as the one here did.
    pub(crate) fn read(text: &[u8], here: &MadeFor<M>) -> Result<Saved<M>, StepError> {
        #[derive(Deserialize)]
        struct Format {
            format: Option<u32>,
        }
        let Format { format } = serde_json::from_slice(text)?;
        // The first layout has no number.
        let found = format.unwrap_or(1);
        if found != FORMAT {
            return Err(StepError::Format { found, reads: FORMAT });
        }
        let saved: Saved<M> = serde_json::from_slice(text)?;
        let written = |method: &M| serde_json::to_string(method).unwrap_or_default();
        match saved.made_for.difference(here, written) {
            Some(difference) => Err(StepError::Record(difference)),
            None => Ok(saved),
        }
    }
}

impl<M: Optimizer + Clone + PartialEq + Serialize + DeserializeOwned> Stepper<M> {
    /// The state, to be saved and [loaded](Stepper::load_record): a run that goes on from it makes the same steps to the last bit. Burn
    /// saves the module.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub fn to_record(&self) -> Result<OptimizerRecord, StepError> {
        let mut tensors = Vec::new();
        let mut saved = Saved::new(self.made_for.clone(), SessionState::new(self.made_for.method.clone()));
        saved.options = self.options;
        if let Some(session) = &self.session {
            saved.state = session.save();
            let space = session.space();
            if space.scales.iter().any(|&scale| scale != 1.0) {
                saved.scales.clone_from(&space.scales);
            }
            saved.best = self.best.as_ref().map(|(loss, _)| *loss);
            let best = self.best.iter().map(|(_, vector)| ("best_point", vector));
            for (name, vector) in session.vectors().chain(best) {
                pack(space, name, vector, &mut tensors)?;
            }
        }
        let writer = Writer::new(tensors).with_metadata(KEY, &serde_json::to_string(&saved)?);
        Ok(OptimizerRecord::from_bytes(writer.into_bytes()?)?)
    }

    /// Goes on from a saved state. The module of that state is loaded before: Burn's records keep the ids of parameters, and the vectors
    /// are found by these.
    ///
    /// # Errors
    /// When the record has another method, other parameters of the method, another number of steps, average, weight decay, clipping or
    /// module. The stepper is as it was then.
    pub fn load_record<T: Module>(&mut self, record: OptimizerRecord, module: &T) -> Result<(), StepError> {
        let reader = Reader::from_bytes(record.into_bytes()?)?;
        let text = reader.metadata().get(KEY);
        let text = text.ok_or_else(|| StepError::Record("it is not the state of a `Stepper`".to_string()))?;
        let saved = Saved::read(text.as_bytes(), &self.made_for)?;
        if let Some(difference) = saved.options.difference(&self.options) {
            return Err(StepError::Record(difference));
        }
        let mut tensors = HashMap::new();
        for tensor in reader.into_tensors()? {
            let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
            tensors.insert(name, TensorData::from_bytes(bytes, shape, dtype));
        }
        let mut taken = Taken::look(module, &GradientsParams::new(), &[]);
        taken.check()?;
        let mut space = self.parameters(taken.slots);
        let mut x = taken.x.into_iter().collect();
        space.hold(&mut x);
        if !saved.scales.is_empty() {
            let (there, here) = (saved.scales.len(), space.scales.len());
            if there != here {
                let why = format!("it has {there} parameters, and the module has {here}");
                return Err(StepError::Record(why));
            }
            space.scales = saved.scales;
        }
        let mut session = self.new_session(space)?;
        if !session.accepts(&saved.state) {
            return Err(StepError::Record(
                "it is damaged: its numbers are of another method than it says".to_string(),
            ));
        }
        session.rewind(saved.state.clone());
        let mut best = None;
        if session.steps() > 0 {
            session.load(saved.state, &x, |space, name, to| {
                *to = unpack(space, name, &mut tensors)?;
                Ok::<(), StepError>(())
            })?;
            if let Some(loss) = saved.best {
                best = Some((loss, unpack(session.space(), "best_point", &mut tensors)?));
            }
        }
        if let Some(name) = tensors.keys().min() {
            return Err(StepError::Record(format!("no parameter of the module has the vector `{name}`")));
        }
        self.options.rate = saved.options.rate;
        self.session = Some(session).filter(|session| session.steps() > 0);
        self.best = best;
        Ok(())
    }

    /// Writes [the state](Stepper::to_record) to a burnpack file.
    ///
    /// # Errors
    /// When the device cannot be read or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), StepError> {
        Ok(self.to_record()?.save(path)?)
    }

    /// [Goes on](Stepper::load_record) from a burnpack file.
    ///
    /// # Errors
    /// When the file cannot be read or does not fit.
    pub fn load<T: Module>(&mut self, path: impl AsRef<Path>, module: &T) -> Result<(), StepError> {
        self.load_record(OptimizerRecord::load(path)?, module)
    }
}

fn pack(
    space: &Parameters,
    name: &str,
    vector: &Vector,
    to: &mut Vec<burn_pack::Tensor>,
) -> Result<(), StepError> {
    let lists = vector.0.iter().zip(&space.slots);
    let lists = lists.map(|(part, slot)| part.clone().tensor([slot.len()], &slot.device)).collect();
    for (slot, data) in space.slots.iter().zip(space.reads.read(lists)?) {
        let (bytes, shape, dtype) = data.into_parts();
        let id = slot.id.val();
        to.push(burn_pack::Tensor::new(format!("{id}.{name}"), dtype, shape, Some(id), bytes));
    }
    Ok(())
}

fn unpack(
    space: &Parameters,
    name: &str,
    tensors: &mut HashMap<String, TensorData>,
) -> Result<Vector, StepError> {
    let mut lists = Vec::new();
    for slot in &space.slots {
        let data = tensors.remove(&format!("{}.{name}", slot.id.val()));
        let missing = || StepError::Record(format!("it has no vector `{name}` of `{}`", slot.name));
        let data = data.ok_or_else(missing)?;
        let (count, dtype) = (data.num_elements(), data.dtype());
        if count != slot.len() || ![slot.wide(), slot.dtype].contains(&dtype) {
            let needs = format!("{} of {:?}", slot.len(), slot.wide());
            let why =
                format!("`{name}` of `{}` has {count} numbers of {dtype:?}, and needs {needs}", slot.name);
            return Err(StepError::Record(why));
        }
        lists.push(Tensor::from_data(data, (&slot.device, dtype)));
    }
    let mut vector = lists.into_iter().collect();
    space.hold(&mut vector);
    Ok(vector)
}
