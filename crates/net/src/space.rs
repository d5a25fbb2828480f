//! The arena as the space that an optimizer with vector state works in.

use crate::arena::{Layout, View};
use crate::device::{Device, DeviceError};
use untuned::optimizers::{AdamConstants, Space};

/// Parameters on a device, of which the matrices decay.
#[derive(Debug)]
pub struct ArenaSpace<'a, D> {
    device: &'a D,
    len: usize,
    decayed: Vec<View>,
}

impl<'a, D: Device> ArenaSpace<'a, D> {
    /// The parameters of a network.
    pub fn new(device: &'a D, layout: &Layout) -> Self {
        Self { device, len: layout.len(), decayed: layout.matrices() }
    }
}

impl<D: Device> Space for ArenaSpace<'_, D> {
    type Vector = D::Parameters;
    type Error = DeviceError;

    /// A device may compute in f32.
    const LARGEST: f64 = f32::MAX as f64;

    fn zeros(&self) -> Result<D::Parameters, DeviceError> {
        self.device.parameters(&vec![0.0; self.len])
    }

    fn adam(
        &self,
        x: &mut D::Parameters,
        gradient: &D::Parameters,
        m: &mut D::Parameters,
        v: &mut D::Parameters,
        constants: &AdamConstants,
    ) {
        self.device.adam(x, gradient, m, v, constants, &self.decayed);
    }
}
