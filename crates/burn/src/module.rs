//! Takes the trainable parameters out of a module, each one once, and puts them back.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, GradientCheckpointingStrategy, Tensor};

use crate::StepError;
use crate::space::{Part, Slot};

/// Makes parameters that have the same id the same again: every one becomes the first of them.
///
/// Burn loads a record into every place of a module for itself. A parameter that is used in two places then has two values with two
/// gradients, of which [`GradientsParams`] keeps only the last. Call this after loading weights into a module that shares parameters;
/// [`Stepper::step`](crate::Stepper::step) itself never lets them come apart.
pub fn tie<M: Module>(module: M) -> M {
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
    path: Path,
    /// The first thing that is wrong.
    error: Option<StepError>,
}

/// Where in the module a parameter is: names with points between them.
#[derive(Default)]
struct Path {
    text: String,
    /// How long it was before each of its names.
    before: Vec<usize>,
}

impl Path {
    fn enter(&mut self, name: &str) {
        self.before.push(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(name);
    }

    fn exit(&mut self) {
        self.text.truncate(self.before.pop().unwrap_or(0));
    }
}

impl Taken {
    /// Takes the parameters out of a module, so that nobody else has them and they can be changed in place; the module is not usable
    /// until they are [back](Taken::put). Those that are as they are `known` from the step before are not described again.
    pub(crate) fn take<M: Module>(module: &mut M, gradients: GradientsParams, known: &[Arc<Slot>]) -> Taken {
        let mut take = Take { taken: Taken::default(), gradients, known };
        *module = module.clone().map(&mut take);
        take.taken
    }

    /// The same without taking: the module has them, too.
    pub(crate) fn look<M: Module>(module: &M, gradients: &GradientsParams, known: &[Arc<Slot>]) -> Taken {
        let mut look = Look { taken: Taken::default(), gradients, known };
        module.visit(&mut look);
        look.taken
    }

    /// Refuses what cannot be trained.
    pub(crate) fn check(&mut self) -> Result<(), StepError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Puts parameters back, all places with the same id sharing one; there are as many of them as slots.
    pub(crate) fn put<M: Module>(self, module: &mut M, x: Vec<Part>) {
        let x = x.into_iter().map(Some).collect();
        let mut put = Put { x, made: HashMap::new(), taken: self };
        *module = module.clone().map(&mut put);
    }

    /// Remembers a parameter and its gradient, where it was not seen in another place.
    fn enter<const D: usize>(
        &mut self,
        id: ParamId,
        tensor: Tensor<D>,
        gradient: Option<Tensor<D>>,
        known: &[Arc<Slot>],
    ) {
        if self.places.contains_key(&id) {
            self.tied.insert(id);
            return;
        }
        self.contexts.push(Context::of(&tensor));
        let tensor = tensor.inner();
        let (dtype, device, shape) = (tensor.dtype(), tensor.device(), tensor.dims());
        let is_it = |slot: &&Arc<Slot>| {
            (slot.id, slot.dtype, &slot.shape[..], &slot.device) == (id, dtype, &shape[..], &device)
        };
        let slot = match known.get(self.slots.len()).filter(is_it) {
            Some(slot) => slot.clone(),
            None => {
                let (name, shape) = (self.path.text.as_str().into(), shape.to_vec());
                Arc::new(Slot { id, name, shape, dtype, device })
            }
        };
        self.error = self.error.take().or_else(|| slot.wrong(gradient.as_ref()));
        self.places.insert(id, self.slots.len());
        let len = slot.len();
        self.slots.push(slot);
        self.x.push(tensor.reshape([len]));
        self.gradients.push(gradient.map(|gradient| {
            let len = gradient.shape().num_elements();
            gradient.inner().reshape([len])
        }));
    }
}

impl Slot {
    /// What stands against training it with this gradient.
    fn wrong<const D: usize>(&self, gradient: Option<&Tensor<D>>) -> Option<StepError> {
        let (name, dtype) = (|| self.name.to_string(), self.dtype);
        if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Flex32) {
            return Some(StepError::Type { name: name(), dtype });
        }
        let gradient = gradient?;
        if (gradient.dtype(), &gradient.dims()[..]) != (dtype, &self.shape[..]) {
            let what = |dtype: DType, dims: &[usize]| format!("{dtype:?} of the shape {dims:?}");
            let (parameter, gradient) = (what(dtype, &self.shape), what(gradient.dtype(), &gradient.dims()));
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
    gradients: GradientsParams,
    known: &'a [Arc<Slot>],
}

impl ModuleMapper for Take<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.taken.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.taken.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        let id = param.id;
        let gradient = self.gradients.remove(id);
        param.map(|tensor| {
            self.taken.enter(id, tensor, gradient, self.known);
            Tensor::empty([0; D], &self.taken.slots[self.taken.places[&id]].device)
        })
    }
}

struct Look<'a> {
    taken: Taken,
    gradients: &'a GradientsParams,
    known: &'a [Arc<Slot>],
}

impl ModuleVisitor for Look<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.taken.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.taken.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            let gradient = self.gradients.get(param.id);
            self.taken.enter(param.id, param.base(), gradient, self.known);
        }
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
        let tensor = self.taken.contexts[place].restore(part.shaped(&self.taken.slots[place]), id);
        if self.taken.tied.contains(&id) {
            self.made.insert(id, Box::new(tensor.clone()));
        }
        param.map(|_| tensor)
    }
}
