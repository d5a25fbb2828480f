//! The arena as the space that a method works in.

use crate::arena::{Layout, View};
use crate::device::{Device, DeviceError};
use untuned::formula::{Change, Measure};
use untuned::space::TensorRange;
use untuned::{Optimizer, Space};

/// Parameters on a device, tensor by tensor.
#[derive(Debug)]
pub struct ArenaSpace<'a, D> {
    device: &'a D,
    len: usize,
    parameters: usize,
    tensors: Vec<TensorRange>,
    /// What stays as it is.
    frozen: Vec<View>,
}

impl<'a, D: Device> ArenaSpace<'a, D> {
    /// The parameters of a network. The method says whether everything decays or only matrices do, and whether it looks at scales.
    pub fn new(device: &'a D, layout: &Layout, method: &impl Optimizer) -> Self {
        let mut tensors = layout.tensor_ranges();
        for tensor in &mut tensors {
            tensor.decays |= method.decays_everything();
            if !method.needs().scales {
                tensor.scale = 1.0;
            }
        }
        Self { device, len: layout.len(), parameters: layout.parameters(), tensors, frozen: Vec::new() }
    }

    /// The same, where these tensors stay as they are: they do not decay, and their gradient is
    /// [cleared](ArenaSpace::clear_frozen).
    pub fn freezing(mut self, frozen: Vec<View>) -> Self {
        for tensor in &mut self.tensors {
            tensor.decays &= !frozen.iter().any(|view| view.offset == tensor.range.start);
        }
        self.frozen = frozen;
        self
    }

    /// The tensors that stay as they are.
    pub fn frozen(&self) -> &[View] {
        &self.frozen
    }

    /// Sets the gradient of the tensors that stay as they are to 0.
    pub fn clear_frozen(&self, gradient: &mut D::Parameters) {
        self.frozen.iter().for_each(|&view| self.device.clear(gradient, view));
    }
}

impl<D: Device> Space for ArenaSpace<'_, D> {
    type Vector = D::Parameters;
    type Sums = D::Scalars;
    type Error = DeviceError;

    /// A device may compute in f32.
    const LARGEST: f64 = f32::MAX as f64;

    fn dimension(&self) -> u64 {
        self.parameters as u64
    }

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
        self.device.change(formula, scalars, decay, &self.tensors, change, read);
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
        self.device.measure(formula, scalars, decay, &self.tensors, read, sums, at);
    }

    fn sums(&self, count: usize) -> Result<D::Scalars, DeviceError> {
        self.device.scalars(count)
    }

    fn read(&self, sums: &mut D::Scalars, values: &mut [f64]) -> Result<(), DeviceError> {
        self.device.read(sums, values)
    }

    fn measure_norm(&self, v: &D::Parameters, sums: &mut D::Scalars, at: usize) {
        self.device.square_norm(v, sums, at);
    }
}
