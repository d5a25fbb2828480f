//! Makes the step of a run: a scalar rule's or an optimizer's, with what the configuration puts around it.

use untuned::optimizers::{Around, Method, Optimizer as _, Space as _};
use untuned::{Observation, Point, Step, StepKind, StepRule};
use untuned_net::arena::Layout;
use untuned_net::device::{Device, DeviceError};
use untuned_net::space::ArenaSpace;

use super::checkpoint::Extra;
use super::config::Optimizer;
use super::error::TrainError;
use super::points::Points;
use super::schedule;

/// What surrounds the method, and the vectors that it keeps on the device.
pub(super) struct Stepper<'a, D: Device> {
    space: ArenaSpace<'a, D>,
    names: &'static [&'static str],
    /// As many as `names`.
    kept: Vec<D::Parameters>,
    optimizer: Optimizer,
    steps: u64,
}

impl<'a, D: Device> Stepper<'a, D> {
    /// At the beginning of a run of `steps` steps.
    pub(super) fn new(
        device: &'a D,
        layout: &Layout,
        method: &Method,
        optimizer: Optimizer,
        steps: u64,
    ) -> Result<Self, DeviceError> {
        let (space, names) = (ArenaSpace::new(device, layout), method.keeps());
        let kept = names.iter().map(|_| space.zeros()).collect::<Result<_, _>>()?;
        Ok(Self { space, names, kept, optimizer, steps })
    }

    /// One step from the point that was observed; its size is the effective one, after warm-up and schedule. `Err` is a refusal,
    /// which leaves everything as it was.
    pub(super) fn step(
        &mut self,
        device: &D,
        method: &mut Method,
        points: &mut Points<D>,
        seen: &Observation,
    ) -> Result<Step, String> {
        let rate = schedule::rate(&self.optimizer, seen.step, self.steps);
        let Optimizer { clip, weight_decay, .. } = self.optimizer;
        match method {
            Method::Rule(rule) => {
                let mut next = rule.step(seen).map_err(|refusal| refusal.to_string())?;
                next.size *= rate;
                points.advance(device, seen.loss, next, next.size * weight_decay).map(|()| next)
            }
            Method::Optimizer(optimizer) => {
                let around = Around { rate, clip, weight_decay };
                let (x, gradient) = points.in_place();
                let size = optimizer
                    .step(&self.space, seen, &around, x, gradient, &mut self.kept)
                    .map_err(|refusal| refusal.to_string())?;
                Ok(Step { size, from: Point::Here, kind: StepKind::Regular })
            }
        }
    }

    /// The arrays that a checkpoint needs.
    pub(super) fn save(&self, device: &D, len: usize, extra: &mut Extra) -> Result<(), DeviceError> {
        for (name, from) in self.names.iter().zip(&self.kept) {
            let mut values = vec![0.0; len];
            device.get_parameters(from, &mut values)?;
            extra.insert(name.to_string(), values);
        }
        Ok(())
    }

    /// Takes the place that a checkpoint describes.
    pub(super) fn restore(&mut self, device: &D, extra: &Extra) -> Result<(), TrainError> {
        for (name, to) in self.names.iter().zip(&mut self.kept) {
            let values = extra
                .get(*name)
                .ok_or_else(|| TrainError::Request(format!("the checkpoint has no array {name}")))?;
            device.set_parameters(to, values);
        }
        Ok(())
    }
}
