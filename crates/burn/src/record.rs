//! The state of a run in Burn's own format, burnpack, and as Burn's own type for the state of optimizers.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use burn::module::Module;
use burn::optim::{GradientsParams, OptimizerRecord};
use burn::tensor::{Tensor, TensorData};
use burn_pack::{Reader, Writer};
use serde::{Deserialize, Serialize};
use untuned::optimizers::{Around, Method, Optimizer as _};

use crate::StepError;
use crate::module::Taken;
use crate::reads::Reads;
use crate::space::{Parameters, Vector};
use crate::stepper::{State, Stepper, name};

/// The key of the numbers in a record's metadata.
const KEY: &str = "untuned";

/// What is not a vector.
#[derive(Serialize, Deserialize)]
struct Numbers {
    made_for: MadeFor,
    method: Method,
    around: Around,
    step: u64,
    x0_norm: f64,
    /// Of each parameter; none where all are 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scales: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    best: Option<f64>,
}

/// What a state and what it is loaded into must have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MadeFor {
    /// The method before its first step.
    method: Method,
    /// Its text and the number of steps, where they are known.
    text: Option<(String, u64)>,
}

impl MadeFor {
    pub(crate) fn new(method: &Method) -> MadeFor {
        MadeFor { method: method.clone(), text: None }
    }

    pub(crate) fn text(self, spec: &impl Display, steps: u64) -> MadeFor {
        MadeFor { text: Some((spec.to_string(), steps)), ..self }
    }

    /// What is different here, in words; nothing where a state may be loaded. One method may have several texts.
    pub(crate) fn difference(&self, here: &MadeFor) -> Option<String> {
        let steps = |made: &MadeFor| made.text.as_ref().map(|&(_, steps)| steps);
        let other_steps = steps(self).zip(steps(here)).is_some_and(|(there, here)| there != here);
        if self.method == here.method && !other_steps {
            return None;
        }
        let words = |made: &MadeFor| {
            let average = match &made.method {
                Method::Averaged(averaged) => format!(", averaged ({:?})", averaged.average),
                _ => String::new(),
            };
            match &made.text {
                Some((spec, steps)) => format!("`{spec}` for {steps} steps{average}"),
                None => format!("`{}`{average}", name(&made.method)),
            }
        };
        let (mut there, mut ours) = (words(self), words(here));
        if self.text.is_none() || here.text.is_none() {
            // The text does not say the numbers.
            let numbers = |made: &MadeFor| serde_json::to_string(&made.method).unwrap_or_default();
            there = format!("{there} that began as {}", numbers(self));
            ours = format!("{ours} that began as {}", numbers(here));
        }
        Some(format!("it is the state of {there}, and this is {ours}"))
    }
}

/// What was put around the steps of a state and is different here, in words. The factor of the rate changes in a run, and is part of
/// its state.
fn other_around(there: &Around, here: &Around) -> Option<String> {
    let clip = |around: &Around| around.clip.map_or("none".to_string(), |norm| norm.to_string());
    let (what, there, here) = if there.weight_decay != here.weight_decay {
        ("weight decay", there.weight_decay.to_string(), here.weight_decay.to_string())
    } else if there.clip != here.clip {
        ("clipping norm", clip(there), clip(here))
    } else {
        return None;
    };
    Some(format!("its {what} is {there}, and here it is {here}; say the same before loading"))
}

impl Stepper {
    /// The state, to be saved and [loaded](Stepper::load_record): a run that goes on from it makes the same steps to the last bit. The
    /// module is saved by Burn.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub fn to_record(&self) -> Result<OptimizerRecord, StepError> {
        let mut tensors = Vec::new();
        let (mut x0_norm, mut scales, mut lowest) = (0.0, Vec::new(), None);
        if let Some(state) = &self.state {
            x0_norm = state.x0_norm;
            if state.parameters.scales.iter().any(|&scale| scale != 1.0) {
                scales.clone_from(&state.parameters.scales);
            }
            for (keep, vector) in self.method.keeps().iter().zip(&state.kept) {
                pack(&state.parameters, keep.name, vector, &self.reads, &mut tensors)?;
            }
            if let Some((loss, vector)) = &state.best {
                lowest = Some(*loss);
                pack(&state.parameters, "best_point", vector, &self.reads, &mut tensors)?;
            }
        }
        let (made_for, method) = (self.made_for.clone(), self.method.clone());
        let (around, step) = (self.around, self.step);
        let numbers = Numbers { made_for, method, around, step, x0_norm, scales, best: lowest };
        let writer = Writer::new(tensors).with_metadata(KEY, &serde_json::to_string(&numbers)?);
        Ok(OptimizerRecord::from_bytes(writer.into_bytes()?)?)
    }

    /// Goes on from a saved state with the module that it belongs to, which was loaded before: Burn's records keep the ids of parameters,
    /// by which the vectors are found.
    ///
    /// # Errors
    /// When the record is of another method, one with other numbers or another average, of a run of another length, weight decay or
    /// clipping, or of another module. The stepper is as it was then.
    pub fn load_record<M: Module>(&mut self, record: OptimizerRecord, module: &M) -> Result<(), StepError> {
        let reader = Reader::from_bytes(record.into_bytes()?)?;
        let text = reader.metadata().get(KEY);
        let text = text.ok_or_else(|| StepError::Record("it is not the state of a `Stepper`".to_string()))?;
        let numbers: Numbers = serde_json::from_str(text)?;
        let difference = numbers.made_for.difference(&self.made_for);
        if let Some(difference) = difference.or_else(|| other_around(&numbers.around, &self.around)) {
            return Err(StepError::Record(difference));
        }
        if numbers.method.keeps() != self.method.keeps() {
            return Err(StepError::Record("its numbers are of another method than it says".to_string()));
        }
        let mut tensors = HashMap::new();
        for tensor in reader.into_tensors()? {
            let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
            tensors.insert(name, TensorData::from_bytes(bytes, shape, dtype));
        }
        let mut state = None;
        if numbers.step > 0 {
            let mut taken = Taken::look(module, &GradientsParams::new(), &[]);
            taken.check()?;
            let mut parameters = self.parameters(taken.slots);
            let kept = numbers.method.keeps();
            let kept = kept.iter().map(|keep| unpack(&parameters, keep.name, &mut tensors));
            let kept = kept.collect::<Result<_, _>>()?;
            let best = match numbers.best {
                Some(loss) => Some((loss, unpack(&parameters, "best_point", &mut tensors)?)),
                None => None,
            };
            if !numbers.scales.is_empty() {
                if numbers.scales.len() != parameters.slots.len() {
                    let (there, here) = (numbers.scales.len(), parameters.slots.len());
                    let why = format!("it is of {there} parameters, and the module has {here}");
                    return Err(StepError::Record(why));
                }
                parameters.scales.clone_from(&numbers.scales);
            }
            state = Some(State { kept, x0_norm: numbers.x0_norm, best, ..State::new(parameters) });
        }
        if let Some(name) = tensors.keys().min() {
            return Err(StepError::Record(format!("no parameter of the module has the vector `{name}`")));
        }
        self.method = numbers.method;
        self.around.rate = numbers.around.rate;
        self.step = numbers.step;
        self.state = state;
        Ok(())
    }

    /// Writes [the state](Stepper::to_record) to a burnpack file.
    ///
    /// # Errors
    /// When the device cannot be read or the file not be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), StepError> {
        Ok(self.to_record()?.save(path)?)
    }

    /// [Goes on](Stepper::load_record) from a burnpack file.
    ///
    /// # Errors
    /// When the file cannot be read or does not fit.
    pub fn load<M: Module>(&mut self, path: impl AsRef<Path>, module: &M) -> Result<(), StepError> {
        self.load_record(OptimizerRecord::load(path)?, module)
    }
}

fn pack(
    parameters: &Parameters,
    name: &str,
    vector: &Vector,
    reads: &Reads,
    to: &mut Vec<burn_pack::Tensor>,
) -> Result<(), StepError> {
    let tensors = vector.0.iter().enumerate().map(|(at, part)| parameters.tensor(at, part.clone()));
    let tensors = tensors.collect();
    for (slot, data) in parameters.slots.iter().zip(reads.read(tensors)?) {
        let (bytes, shape, dtype) = data.into_parts();
        let id = slot.id.val();
        to.push(burn_pack::Tensor::new(format!("{id}.{name}"), dtype, shape, Some(id), bytes));
    }
    Ok(())
}

fn unpack(
    parameters: &Parameters,
    name: &str,
    tensors: &mut HashMap<String, TensorData>,
) -> Result<Vector, StepError> {
    let mut vector = Vector::default();
    for (at, slot) in parameters.slots.iter().enumerate() {
        let data = tensors.remove(&format!("{}.{name}", slot.id.val()));
        let missing = || StepError::Record(format!("it has no vector `{name}` of `{}`", slot.name));
        let data = data.ok_or_else(missing)?;
        let allowed = [slot.wide(), slot.dtype];
        if data.num_elements() != slot.len() || !allowed.contains(&data.dtype()) {
            let has = format!("{} numbers of {:?}", data.num_elements(), data.dtype());
            let needs = format!("{} of {:?}", slot.len(), slot.wide());
            let what = format!("`{name}` of `{}` has {has}, and needs {needs}", slot.name);
            return Err(StepError::Record(what));
        }
        let dtype = data.dtype();
        let tensor = Tensor::from_data(data, (&slot.device, dtype));
        vector.0.push(parameters.part(at, tensor));
    }
    Ok(vector)
}
