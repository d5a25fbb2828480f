//! Takes the trainable parameters out of a module, each one once, and puts them back.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, GradientCheckpointingStrategy, Tensor};

use crate::StepError;
use crate::space::{Part, Slot, Vector};

/// Makes parameters that have the same id the same again: every one becomes the first of them.
///
/// Burn loads a record into each place of a module alone. A parameter that is used in two places then has two values with two
/// gradients, and [`GradientsParams`] keeps only the last of these. Call this after loading weights into a module that shares
/// parameters. [`Stepper::step`](crate::Stepper::step) itself never lets them come apart.
pub fn tie<T: Module>(module: T) -> T {
    /// The first value of each id.
    struct Tie(HashMap<ParamId, Box<dyn Any>>);

    impl ModuleMapper for Tie {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let id = param.id;
            let Some(first) = self.0.get(&id).and_then(|first| first.downcast_ref::<Tensor<D>>()) else {
                self.0.insert(id, Box::new(param.base()));
                return param;
            };
            param.map(|_| first.clone())
        }
    }

    module.map(&mut Tie(HashMap::new()))
}

/// What a parameter is besides its numbers.
#[derive(Debug, Clone)]
struct Context {
    checkpointing: Option<GradientCheckpointingStrategy>,
    distributed: bool,
}

impl Context {
    fn of<const D: usize>(tensor: &Tensor<D>) -> Context {
        let checkpointing = tensor.gradient_checkpointing_strategy();
        Context { checkpointing, distributed: tensor.is_distributed() }
    }

    /// A parameter like the one before, a leaf of the graph.
    fn restore<const D: usize>(&self, tensor: Tensor<D>, id: ParamId) -> Tensor<D> {
        let mut tensor = tensor.autodiff();
        if let Some(strategy) = self.checkpointing {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        tensor = tensor.require_grad();
        if self.distributed { tensor.set_distributed(id) } else { tensor }
    }
}

/// The trainable parameters of a module, and what is needed to put them back.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) slots: Vec<Arc<Slot>>,
    /// The parameters as lists, without autodiff.
    pub(crate) x: Vec<Tensor<1>>,
    /// Their gradients, where they have one.
    pub(crate) gradients: Vec<Option<Tensor<1>>>,
    contexts: Vec<Context>,
    places: HashMap<ParamId, usize>,
    /// The ids that stand in several places.
    tied: HashSet<ParamId>,
    /// The first thing that is wrong.
    error: Option<StepError>,
}

impl Taken {
    /// Takes the parameters out of a module, so that nobody else has them and they can be changed in place. The module is of no use
    /// until they are [back](Taken::put). A parameter that is `known` from the step before is not described again.
    pub(crate) fn take<T: Module>(module: &mut T, gradients: &GradientsParams, known: &[Arc<Slot>]) -> Taken {
        let (taken, path) = (Taken::default(), Vec::new());
        let mut take = Take { taken, gradients, known, path };
        *module = module.clone().map(&mut take);
        take.taken
    }

    /// The same without taking: the module has them, too.
    pub(crate) fn look<T: Module>(module: &T, gradients: &GradientsParams, known: &[Arc<Slot>]) -> Taken {
        Taken::take(&mut module.clone(), gradients, known)
    }

    /// Refuses parameters that cannot be trained.
    pub(crate) fn check(&mut self) -> Result<(), StepError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Refuses, in addition, a module without any gradient.
    pub(crate) fn check_gradients(&mut self) -> Result<(), StepError> {
        self.check()?;
        if self.gradients.iter().all(Option::is_none) {
            return Err(StepError::NoGradient { parameters: self.slots.len() });
        }
        Ok(())
    }

    /// Puts parameters back, as many as there are slots. All places with the same id share one.
    pub(crate) fn put<T: Module>(self, module: &mut T, x: Vector) {
        let x = x.0.into_iter().map(Some).collect();
        let mut put = Put { x, made: HashMap::new(), taken: self };
        *module = module.clone().map(&mut put);
    }
}

/// Refuses parameters that are not those of the steps before.
pub(crate) fn check_same(before: &[Arc<Slot>], now: &[Arc<Slot>]) -> Result<(), StepError> {
    for (before, now) in before.iter().zip(now).filter(|(before, now)| !Arc::ptr_eq(before, now)) {
        if before.id != now.id {
            let what = format!("`{}` has taken the place of `{}`", now.name, before.name);
            return Err(StepError::Module { what });
        }
        if before.device != now.device {
            let (found, expected) = (format!("{:?}", now.device), format!("{:?}", before.device));
            return Err(StepError::Device { name: now.name.to_string(), found, expected });
        }
    }
    check_alike(before, now)
}

/// Refuses parameters of other types or shapes than those of the steps before. Ids and devices may be others.
pub(crate) fn check_alike(before: &[Arc<Slot>], now: &[Arc<Slot>]) -> Result<(), StepError> {
    let differ = |what: String| Err(StepError::Module { what });
    for (before, now) in before.iter().zip(now).filter(|(before, now)| !Arc::ptr_eq(before, now)) {
        if (before.dtype, &before.shape) != (now.dtype, &now.shape) {
            return differ(format!("`{}` is {}, and it was {}", now.name, now.what(), before.what()));
        }
    }
    if before.len() != now.len() {
        let (before, now) = (before.len(), now.len());
        return differ(format!("{now} parameters require a gradient, and before there were {before}"));
    }
    Ok(())
}

/// Type and shape, in words.
fn what(dtype: DType, shape: &[usize]) -> String {
    format!("{dtype:?} of the shape {shape:?}")
}

impl Slot {
    fn what(&self) -> String {
        what(self.dtype, &self.shape)
    }

    /// The reason why it cannot be trained with this gradient.
    fn wrong<const D: usize>(&self, gradient: Option<&Tensor<D>>) -> Option<StepError> {
        let (name, dtype) = (|| self.name.to_string(), self.dtype);
        if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Flex32) {
            return Some(StepError::Type { name: name(), dtype });
        }
        let gradient = gradient?;
        if (gradient.dtype(), &gradient.dims()[..]) != (dtype, &self.shape[..]) {
            let (parameter, gradient) = (self.what(), what(gradient.dtype(), &gradient.dims()));
            return Some(StepError::Gradient { name: name(), parameter, gradient });
        }
        let device = gradient.device();
        (device != self.device).then(|| {
            let (found, expected) = (format!("{device:?}"), format!("{:?}", self.device));
            StepError::Device { name: format!("the gradient of {}", self.name), found, expected }
        })
    }
}

struct Take<'a> {
    taken: Taken,
    gradients: &'a GradientsParams,
    known: &'a [Arc<Slot>],
    /// The names that lead to the parameter at hand.
    path: Vec<String>,
}

impl ModuleMapper for Take<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        let id = param.id;
        param.map(|tensor| {
            let device = tensor.device().inner();
            self.enter(id, tensor);
            Tensor::empty([0; D], &device)
        })
    }
}

impl Take<'_> {
    /// Remembers a parameter and its gradient, where it was not seen in another place.
    fn enter<const D: usize>(&mut self, id: ParamId, tensor: Tensor<D>) {
        let taken = &mut self.taken;
        if taken.places.contains_key(&id) {
            taken.tied.insert(id);
            return;
        }
        taken.contexts.push(Context::of(&tensor));
        let (tensor, gradient) = (tensor.inner(), self.gradients.get::<D>(id));
        let (dtype, device, shape) = (tensor.dtype(), tensor.device(), tensor.dims());
        let is_it = |slot: &&Arc<Slot>| {
            (slot.id, slot.dtype, &slot.shape[..], &slot.device) == (id, dtype, &shape[..], &device)
        };
        let slot = self.known.get(taken.slots.len()).filter(is_it).cloned().unwrap_or_else(|| {
            let (name, shape) = (self.path.join(".").into(), shape.to_vec());
            Arc::new(Slot { id, name, shape, dtype, device: device.clone() })
        });
        if taken.error.is_none() {
            taken.error = slot.wrong(gradient.as_ref());
        }
        taken.places.insert(id, taken.slots.len());
        taken.slots.push(slot);
        let list = |tensor: Tensor<D>| tensor.flatten::<1>(0, D - 1);
        taken.x.push(list(tensor));
        taken.gradients.push(gradient.map(|gradient| list(gradient.inner())));
    }
}

struct Put {
    taken: Taken,
    x: Vec<Option<Part>>,
    /// What was put, so that the next place with the same id gets the same.
    made: HashMap<ParamId, Box<dyn Any>>,
}

impl ModuleMapper for Put {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = param.id;
        let Some(&place) = self.taken.places.get(&id) else { return param };
        if let Some(made) = self.made.get(&id).and_then(|made| made.downcast_ref::<Tensor<D>>()) {
            return param.map(|_| made.clone());
        }
        let Some(part) = self.x[place].take() else { return param };
        let slot = &self.taken.slots[place];
        let tensor = part.tensor(std::array::from_fn(|i| slot.shape[i]), &slot.device);
        let tensor = self.taken.contexts[place].restore(tensor, id);
        if self.taken.tied.contains(&id) {
            self.made.insert(id, Box::new(tensor.clone()));
        }
        param.map(|_| tensor)
    }
}
