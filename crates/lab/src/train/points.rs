//! The points that a run keeps on the device: the current one, and what the rule asks for beyond it.

use untuned::{Needs, Point, Step};
use untuned_net::device::{Device, DeviceError};

use super::checkpoint::Extra;
use super::error::TrainError;

/// The current point with its gradient, the best one with its gradient, `x_0` with its gradient.
///
/// The best is kept without copying: when the current point is the best, the next one is written beside it; when not, in its
/// place.
pub(super) struct Points<D: Device> {
    x: Vec<D::Parameters>,
    gradient: Vec<D::Parameters>,
    here: usize,
    best: Option<Best>,
    x0: Option<D::Parameters>,
    origin_gradient: Option<D::Parameters>,
    has_origin_gradient: bool,
    needs: Needs,
}

#[derive(Debug, Clone, Copy)]
struct Best {
    at: usize,
    objective: f64,
}

/// The names of arrays in a checkpoint.
const BEST: &str = "best";
const BEST_GRADIENT: &str = "best_gradient";
const ORIGIN_GRADIENT: &str = "origin_gradient";

impl<D: Device> Points<D> {
    /// At `x0`.
    pub(super) fn new(device: &D, x0: &[f32], needs: Needs) -> Result<Self, DeviceError> {
        let count = if needs.best { 2 } else { 1 };
        let zeros = vec![0.0; x0.len()];
        let make = |values: &[f32], wanted: bool| match wanted {
            true => device.parameters(values).map(Some),
            false => Ok(None),
        };
        Ok(Self {
            x: (0..count).map(|_| device.parameters(x0)).collect::<Result<_, _>>()?,
            gradient: (0..count).map(|_| device.parameters(&zeros)).collect::<Result<_, _>>()?,
            here: 0,
            best: None,
            x0: make(x0, needs.distance || needs.origin)?,
            origin_gradient: make(&zeros, needs.origin)?,
            has_origin_gradient: false,
            needs,
        })
    }

    /// The current point.
    pub(super) fn x(&self) -> &D::Parameters {
        &self.x[self.here]
    }

    /// The current point, and where its gradient goes.
    pub(super) fn here(&mut self) -> (&D::Parameters, &mut D::Parameters) {
        (&self.x[self.here], &mut self.gradient[self.here])
    }

    /// The current point, to be moved where it stands, and its gradient: for a method that keeps no other point.
    pub(super) fn in_place(&mut self) -> (&mut D::Parameters, &D::Parameters) {
        (&mut self.x[self.here], &self.gradient[self.here])
    }

    /// The gradient of the current point.
    pub(super) fn gradient(&self) -> &D::Parameters {
        &self.gradient[self.here]
    }

    /// `x_0`, where the rule needs it.
    pub(super) fn x0(&self) -> Option<&D::Parameters> {
        self.x0.as_ref()
    }

    /// Makes the step that a rule answered with.
    ///
    /// The current point, with this objective, becomes the best where none was better, and its gradient that of `x_0` where it
    /// is `x_0`: only now, because a refused step leaves everything as it was.
    pub(super) fn advance(
        &mut self,
        device: &D,
        objective: f64,
        step: Step,
        decay: f64,
    ) -> Result<(), String> {
        if self.needs.best && self.best.is_none_or(|best| objective <= best.objective) {
            self.best = Some(Best { at: self.here, objective });
        }
        if let (false, Some(kept)) = (self.has_origin_gradient, &mut self.origin_gradient) {
            device.copy_parameters(&self.gradient[self.here], kept);
            self.has_origin_gradient = true;
        }
        let to = self.best.map_or(self.here, |best| 1 - best.at);
        let (at, gradient) = match step.from {
            Point::Here => (Some(self.here), &self.gradient[self.here]),
            Point::Best => {
                let best =
                    self.best.ok_or("the rule goes back to the best point, which it did not ask for")?;
                (Some(best.at), &self.gradient[best.at])
            }
            Point::Origin => {
                let kept = self.origin_gradient.as_ref();
                (None, kept.ok_or("the rule goes back to x_0, which it did not ask for")?)
            }
        };
        let (target, other) = match &mut self.x[..] {
            [first, second] if to == 0 => (first, Some(&*second)),
            [first, second] => (second, Some(&*first)),
            both => (&mut both[0], None),
        };
        let from = match at {
            Some(at) if at == to => None,
            Some(_) => other,
            None => self.x0.as_ref(),
        };
        device.update(target, from, gradient, step.size, decay);
        self.here = to;
        Ok(())
    }

    /// The lowest objective so far, where the rule asks for the point.
    pub(super) fn best_objective(&self) -> Option<f64> {
        self.best.map(|best| best.objective)
    }

    /// The arrays that a checkpoint needs beside the current point and `x_0`, which the seed gives again.
    pub(super) fn save(&self, device: &D, len: usize, extra: &mut Extra) -> Result<(), DeviceError> {
        let mut keep = |name: &str, from: &D::Parameters| {
            let mut values = vec![0.0; len];
            device.get_parameters(from, &mut values)?;
            extra.insert(name.into(), values);
            Ok(())
        };
        if let Some(best) = self.best {
            keep(BEST, &self.x[best.at])?;
            keep(BEST_GRADIENT, &self.gradient[best.at])?;
        }
        match &self.origin_gradient {
            Some(gradient) if self.has_origin_gradient => keep(ORIGIN_GRADIENT, gradient),
            _ => Ok(()),
        }
    }

    /// Takes the place that a checkpoint describes.
    pub(super) fn restore(
        &mut self,
        device: &D,
        weights: &[f32],
        best_objective: Option<f64>,
        extra: &Extra,
    ) -> Result<(), TrainError> {
        let array = |name: &str| match extra.get(name) {
            Some(values) if values.len() == weights.len() => Ok(values),
            _ => Err(TrainError::Request(format!("the checkpoint has no array {name} of the right length"))),
        };
        self.here = 0;
        device.set_parameters(&mut self.x[0], weights);
        if let (true, Some(objective)) = (self.needs.best, best_objective) {
            device.set_parameters(&mut self.x[1], array(BEST)?);
            device.set_parameters(&mut self.gradient[1], array(BEST_GRADIENT)?);
            self.best = Some(Best { at: 1, objective });
        }
        if let (Some(gradient), true) = (&mut self.origin_gradient, extra.contains_key(ORIGIN_GRADIENT)) {
            device.set_parameters(gradient, array(ORIGIN_GRADIENT)?);
            self.has_origin_gradient = true;
        }
        Ok(())
    }
}
