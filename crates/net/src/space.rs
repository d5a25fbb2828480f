//! The arena as the space that an optimizer with vector state works in.

use crate::arena::{Layout, View};
use crate::device::{Device, DeviceError};
use untuned::optimizers::{Change, Measure, Place, Space};

/// Parameters on a device, tensor by tensor.
#[derive(Debug)]
pub struct ArenaSpace<'a, D> {
    device: &'a D,
    len: usize,
    places: Vec<Place>,
}

impl<'a, D: Device> ArenaSpace<'a, D> {
    /// The parameters of a network, of which the matrices decay, with the scales that they begin with.
    pub fn new(device: &'a D, layout: &Layout) -> Self {
        Self { device, len: layout.len(), places: layout.places() }
    }

    /// The same, of which these tensors decay.
    pub fn decaying(mut self, decayed: &[View]) -> Self {
        for place in &mut self.places {
            place.decays = decayed.iter().any(|view| view.offset == place.range.start);
        }
        self
    }
}

impl<D: Device> Space for ArenaSpace<'_, D> {
    type Vector = D::Parameters;
    type Sums = D::Scalars;
    type Error = DeviceError;

    /// A device may compute in f32.
    const LARGEST: f64 = f32::MAX as f64;

    fn zeros(&self) -> Result<D::Parameters, DeviceError> {
        self.device.parameters(&vec![0.0; self.len])
    }

    fn copy(&self, from: &D::Parameters, to: &mut D::Parameters) {
        self.device.copy_parameters(from, to);
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut D::Parameters; M],
        read: [&D::Parameters; R],
    ) {
        self.device.change(formula, scalars, decay, &self.places, change, read);
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        read: [&D::Parameters; R],
        sums: &mut D::Scalars,
        at: usize,
    ) {
        self.device.measure(formula, scalars, decay, &self.places, read, sums, at);
    }
}
