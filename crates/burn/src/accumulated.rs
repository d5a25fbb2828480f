//! Several batches, or several replicas, in one step.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::StepError;
use crate::reads::Reads;
use crate::stepper::one;

/// Losses and gradients of several batches or replicas, added up. [`Stepper::step_mean`](crate::Stepper::step_mean) divides both by
/// their number.
///
/// Burn's own `GradientsAccumulator` also adds up, but it does not say how many gradients there are. A step with its gradients and the
/// loss of one batch is another step.
#[derive(Default)]
pub struct Accumulated {
    pub(crate) gradients: GradientsParams,
    pub(crate) losses: Vec<Tensor<1>>,
}

impl Accumulated {
    /// Nothing yet.
    pub fn new() -> Accumulated {
        Accumulated::default()
    }

    /// Adds a batch: its loss, and the gradients of the module's parameters. The gradients may be on another device.
    ///
    /// # Errors
    /// When the loss is not one number; nothing is added then.
    pub fn add<T: Module, const D: usize>(
        &mut self,
        loss: Tensor<D>,
        module: &T,
        gradients: GradientsParams,
    ) -> Result<(), StepError> {
        self.losses.push(one(loss)?);
        module.visit(&mut Add { sum: &mut self.gradients, gradients, seen: HashSet::new() });
        Ok(())
    }

    /// How many batches there are.
    pub fn count(&self) -> usize {
        self.losses.len()
    }
}

struct Add<'a> {
    sum: &'a mut GradientsParams,
    gradients: GradientsParams,
    seen: HashSet<ParamId>,
}

impl ModuleVisitor for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let gradient = gradient.to_device(&param.lazy_device().inner());
        let sum = match self.sum.remove::<D>(param.id) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.sum.register(param.id, sum);
    }
}

/// The loss of replicas that each make their own step. All must see the same loss, to the last bit, or they come apart.
///
/// # Errors
/// When they differ, are none, or are not one number each.
pub fn agreed<const D: usize>(losses: impl IntoIterator<Item = Tensor<D>>) -> Result<f64, StepError> {
    let losses = losses.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    let numbers = Reads::default().read(losses)?;
    let numbers: Vec<f64> = numbers.iter().flat_map(|data| data.iter::<f64>()).collect();
    let &[first, ..] = numbers.as_slice() else { return Err(StepError::NoBatch) };
    match numbers.iter().position(|loss| loss.to_bits() != first.to_bits()) {
        Some(replica) => Err(StepError::Disagreement { replica, found: numbers[replica], first }),
        None => Ok(first),
    }
}
