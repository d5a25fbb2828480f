//! The local smoothness along a run: `‖∇f(x_{t+1}) − ∇f(x_t)‖ / ‖x_{t+1} − x_t‖`, `f` being the objective of step `t`'s batch.

use untuned_net::arena::View;
use untuned_net::device::{Device, DeviceError};
use untuned_net::models::{Feed, Network, Noise, SCALARS};

/// Where the measurements stand after the parts of the loss.
const CHANGE: usize = SCALARS;
const DISTANCE: usize = SCALARS + 1;
const READ: usize = SCALARS + 2;

/// Measures the local smoothness at some steps, and leaves the run as it was.
pub(super) struct Probe<D: Device> {
    every: u64,
    /// `x_t` as it was: a step may have had decay in it, or have begun at another point.
    x: D::Parameters,
    /// `∇f(x_t)`.
    gradient: D::Parameters,
    /// `∇f(x_{t+1})`.
    next_gradient: D::Parameters,
    /// What the network carried into step `t`.
    carry: Vec<f32>,
    scalars: D::Scalars,
}

impl<D: Device> Probe<D> {
    /// With room for this many numbers, every so many steps.
    pub(super) fn new(device: &D, len: usize, every: u64) -> Result<Self, DeviceError> {
        let zeros = vec![0.0; len];
        Ok(Self {
            every,
            x: device.parameters(&zeros)?,
            gradient: device.parameters(&zeros)?,
            next_gradient: device.parameters(&zeros)?,
            carry: Vec::new(),
            scalars: device.scalars(READ)?,
        })
    }

    /// Whether this step is measured.
    pub(super) fn is_due(&self, step: u64) -> bool {
        step.is_multiple_of(self.every)
    }

    /// Before the step's gradient: keeps the carry, which that gradient moves on.
    pub(super) fn before_gradient(
        &mut self,
        device: &D,
        network: &dyn Network<D>,
    ) -> Result<(), DeviceError> {
        self.carry = network.carry(device)?;
        Ok(())
    }

    /// Before the update: keeps the point with its gradient.
    pub(super) fn before_update(&mut self, device: &D, x: &D::Parameters, gradient: &D::Parameters) {
        device.copy_parameters(x, &mut self.x);
        device.copy_parameters(gradient, &mut self.gradient);
    }

    /// After the update to `x`: the local smoothness without what is frozen; nothing where the point did not move or a number is not finite.
    pub(super) fn after_update(
        &mut self,
        device: &D,
        network: &mut dyn Network<D>,
        feed: Feed<'_>,
        noise: Noise,
        x: &D::Parameters,
        frozen: &[View],
    ) -> Result<Option<f64>, DeviceError> {
        let carried = network.carry(device)?;
        network.set_carry(device, &self.carry);
        network.gradient(device, feed, Some(noise), x, &mut self.next_gradient, &mut self.scalars);
        frozen.iter().for_each(|&view| device.clear(&mut self.next_gradient, view));
        network.set_carry(device, &carried);
        device.square_distance(&self.next_gradient, &self.gradient, &mut self.scalars, CHANGE);
        device.square_distance(x, &self.x, &mut self.scalars, DISTANCE);
        let mut values = [0.0; READ];
        device.read(&self.scalars, &mut values)?;
        let (change, distance) = (values[CHANGE].sqrt(), values[DISTANCE].sqrt());
        let smoothness = change / distance;
        // A distance of 0 gives no finite number; an infinite one would give 0.
        Ok((distance.is_finite() && smoothness.is_finite()).then_some(smoothness))
    }
}
