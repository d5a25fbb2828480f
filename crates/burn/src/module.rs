//! Takes the trainable parameters out of a module, each one once, and puts them back.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, GradientCheckpointingStrategy, Tensor};

use crate::StepError;
use crate::space::Slot;

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
    pub(crate) slots: Vec<Slot>,
    /// The parameters as lists, without autodiff.
    pub(crate) x: Vec<Tensor<1>>,
    /// Their gradients, where they have one.
    pub(crate) gradients: Vec<Option<Tensor<1>>>,
    contexts: Vec<Context>,
    places: HashMap<ParamId, usize>,
    /// The ids that stand in several places.
    tied: HashSet<ParamId>,
    path: Vec<String>,
    /// The first thing that is wrong.
    error: Option<StepError>,
}

impl Taken {
    /// Takes the parameters out of a module, so that nobody else has them and they can be changed in place; the module is not usable
    /// until they are [back](Taken::put). The names of those that are `known` from the step before are not made again.
    pub(crate) fn take<M: Module>(module: &mut M, gradients: GradientsParams, known: &[Slot]) -> Taken {
        let mut take = Take { taken: Taken::default(), gradients, known };
        *module = module.clone().map(&mut take);
        take.taken
    }

    /// The same without taking: the module has them, too.
    pub(crate) fn look<M: Module>(module: &M, gradients: &GradientsParams) -> Taken {
        let mut look = Look { taken: Taken::default(), gradients };
        module.visit(&mut look);
        look.taken
    }

    fn name(&self) -> Arc<str> {
        self.path.join(".").into()
    }

    /// Refuses what cannot be trained.
    pub(crate) fn check(&mut self) -> Result<(), StepError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Puts parameters back, all places with the same id sharing one; there are as many of them as slots.
    pub(crate) fn put<M: Module>(self, module: &mut M, x: Vec<Tensor<1>>) {
        let mut put = Put { x, made: HashMap::new(), taken: self };
        *module = module.clone().map(&mut put);
    }

    /// Remembers a parameter and its gradient, where it was not seen in another place.
    fn enter<const D: usize>(
        &mut self,
        param: &Param<Tensor<D>>,
        gradient: Option<Tensor<D>>,
        known: &[Slot],
    ) {
        if self.places.contains_key(&param.id) {
            self.tied.insert(param.id);
            return;
        }
        let tensor = param.base();
        let (dtype, device) = (tensor.dtype(), tensor.device().inner());
        let name = match known.get(self.slots.len()) {
            Some(slot) if slot.id == param.id => slot.name.clone(),
            _ => self.name(),
        };
        let shape: Vec<usize> = tensor.dims().to_vec();
        let what = |dtype: DType, dims: &[usize]| format!("{dtype:?} of the shape {dims:?}");
        let mut wrong = None;
        if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Flex32) {
            wrong = Some(StepError::Type { name: name.to_string(), dtype });
        } else if let Some(gradient) = &gradient {
            if (gradient.dtype(), &gradient.dims()[..]) != (dtype, &shape[..]) {
                let (parameter, gradient) = (what(dtype, &shape), what(gradient.dtype(), &gradient.dims()));
                wrong = Some(StepError::Gradient { name: name.to_string(), parameter, gradient });
            } else if gradient.device() != device {
                let (found, expected) = (format!("{:?}", gradient.device()), format!("{device:?}"));
                wrong = Some(StepError::Device { name: format!("the gradient of {name}"), found, expected });
            }
        }
        self.error = self.error.take().or(wrong);
        self.places.insert(param.id, self.slots.len());
        self.contexts.push(Context::of(&tensor));
        let flat = |tensor: Tensor<D>| {
            let len = tensor.shape().num_elements();
            tensor.inner().reshape([len])
        };
        self.slots.push(Slot { id: param.id, name, shape, dtype, device });
        self.x.push(flat(tensor));
        self.gradients.push(gradient.map(flat));
    }
}

struct Take<'a> {
    taken: Taken,
    gradients: GradientsParams,
    known: &'a [Slot],
}

impl ModuleMapper for Take<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.taken.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.taken.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        let gradient = self.gradients.remove(param.id);
        self.taken.enter(&param, gradient, self.known);
        let device = self.taken.slots[self.taken.places[&param.id]].device.clone();
        param.map(|_| Tensor::empty([0; D], &device))
    }
}

struct Look<'a> {
    taken: Taken,
    gradients: &'a GradientsParams,
}

impl ModuleVisitor for Look<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.taken.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.taken.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            let gradient = self.gradients.get(param.id);
            self.taken.enter(param, gradient, &[]);
        }
    }
}

struct Put {
    taken: Taken,
    x: Vec<Tensor<1>>,
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
        let shape: [usize; D] = std::array::from_fn(|i| self.taken.slots[place].shape[i]);
        let tensor = self.x[place].extract().reshape(shape);
        let tensor = self.taken.contexts[place].restore(tensor, id);
        if self.taken.tied.contains(&id) {
            self.made.insert(id, Box::new(tensor.clone()));
        }
        param.map(|_| tensor)
    }
}
