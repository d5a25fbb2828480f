//! The trainable parameters of a module as the space that a method works in.

use std::sync::Arc;

use burn::module::ParamId;
use burn::tensor::{DType, Device, Element, Tensor, TensorData};
use pulp::Arch;
use untuned::Space;
use untuned::formula::{Change, Measure, Number, Program, TensorInfo};
use untuned::interpreter::{Plan, Value};
use untuned::slices;
use untuned::space::{SquareNorm, scales};

use crate::StepError;
use crate::reads::Reads;
use crate::tensors::Lists;

/// A trainable parameter of a module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slot {
    pub(crate) id: ParamId,
    /// Its path in the module.
    pub(crate) name: Arc<str>,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// Without autodiff.
    pub(crate) device: Device,
}

impl Slot {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn is_matrix(&self) -> bool {
        self.shape.len() >= 2
    }

    /// The type that its numbers are computed in: F32 for half precision.
    pub(crate) fn wide(&self) -> DType {
        if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// F64 where the device has it, else F32.
    fn widest(&self) -> DType {
        if self.device.supports_dtype(DType::F64) { DType::F64 } else { self.wide() }
    }
}

/// The numbers of one parameter, as a list. All vectors have a parameter's numbers in the same place.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// In the CPU's memory, in the type that they are computed in.
    Host(TensorData),
    /// Wherever the device has them.
    Device(Tensor<1>),
}

impl Part {
    /// As a tensor of this shape.
    pub(crate) fn tensor<const D: usize>(self, shape: [usize; D], device: &Device) -> Tensor<D> {
        match self {
            Part::Host(data) => {
                let (bytes, _, dtype) = data.into_parts();
                Tensor::from_data(TensorData::from_bytes(bytes, shape, dtype), (device, dtype))
            }
            Part::Device(tensor) => tensor.reshape(shape),
        }
    }

    fn slice<T: Element>(&self) -> &[T] {
        let Part::Host(data) = self else { unreachable!("the numbers are in memory") };
        data.as_slice().expect("numbers in memory have the type that they are computed in")
    }

    fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        let Part::Host(data) = self else { unreachable!("the numbers are in memory") };
        data.as_mut_slice().expect("numbers in memory have the type that they are computed in")
    }

    fn on_device(&self) -> &Tensor<1> {
        let Part::Device(tensor) = self else { unreachable!("the numbers are on a device") };
        tensor
    }
}

/// A number for every number of every parameter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vector(pub(crate) Vec<Part>);

impl Vector {
    /// The bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Host(data) => data.as_bytes().len(),
            Part::Device(tensor) => tensor.shape().num_elements() * tensor.dtype().size(),
        };
        self.0.iter().map(bytes).sum()
    }
}

impl FromIterator<Tensor<1>> for Vector {
    fn from_iter<I: IntoIterator<Item = Tensor<1>>>(tensors: I) -> Vector {
        Vector(tensors.into_iter().map(Part::Device).collect())
    }
}

/// Sums in f64. Some are still on a device.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    known: Vec<f64>,
    /// What is to be added, and where.
    pending: Vec<(usize, Tensor<1>)>,
}

impl Sums {
    fn clear(&mut self, from: usize, count: usize) {
        self.known[from..from + count].fill(0.0);
        self.pending.retain(|(place, _)| !(from..from + count).contains(place));
    }

    /// Makes the sum of these tensors, each of one number.
    pub(crate) fn set(&mut self, place: usize, tensors: Vec<Tensor<1>>) {
        self.clear(place, 1);
        self.pending.extend(tensors.into_iter().map(|tensor| (place, tensor)));
    }
}

/// The parameters that a method works on, each one once, in the order of the module.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    pub(crate) slots: Vec<Arc<Slot>>,
    /// Whether each parameter decays.
    decays: Vec<bool>,
    /// How large each parameter's numbers are at the start, relative to the others.
    pub(crate) scales: Vec<f64>,
    /// Whether each parameter is in the CPU's memory, so that passes over it are loops.
    host: Vec<bool>,
    /// Whether a method's pass changes anything.
    moves: bool,
    pub(crate) reads: Reads,
}

impl Parameters {
    /// Everything decays, or only the matrices. With `loops`, passes are loops where memory is in reach without a copy.
    pub(crate) fn new(
        slots: Vec<Arc<Slot>>,
        decays_everything: bool,
        loops: bool,
        reads: Reads,
    ) -> Parameters {
        let decays = slots.iter().map(|slot| decays_everything || slot.is_matrix()).collect();
        let host = slots.iter().map(|slot| loops && slot.dtype == slot.wide() && is_flex(&slot.device));
        let (host, scales) = (host.collect(), vec![1.0; slots.len()]);
        Parameters { slots, decays, scales, host, moves: true, reads }
    }

    /// The same, where a method's step changes nothing and only has a size.
    pub(crate) fn still(self) -> Parameters {
        Parameters { moves: false, ..self }
    }

    fn part(&self, at: usize, tensor: Tensor<1>) -> Part {
        if self.host[at] { Part::Host(tensor.into_data()) } else { Part::Device(tensor) }
    }

    /// Takes the numbers into memory where passes are loops, without a copy where nobody else has them.
    pub(crate) fn hold(&self, vector: &mut Vector) {
        for (at, part) in vector.0.iter_mut().enumerate() {
            if let Part::Device(tensor) = part {
                *part = self.part(at, tensor.extract());
            }
        }
    }

    fn zero(&self, at: usize) -> Part {
        let slot = &self.slots[at];
        self.part(at, Tensor::zeros([slot.len()], (&slot.device, slot.wide())))
    }

    /// The mean gradient of `count` batches, from the sums of their gradients. A missing gradient is 0.
    pub(crate) fn mean_gradient(&self, sums: Vec<Option<Tensor<1>>>, count: usize) -> Vector {
        let part =
            |(at, sum): (usize, Option<_>)| sum.map_or_else(|| self.zero(at), |sum| self.part(at, sum));
        let mut mean = Vector(sums.into_iter().enumerate().map(part).collect());
        if count > 1 {
            self.pass::<Scale, 1, 1, 0>([(count as f64).recip()], 0.0, [&mut mean], []);
        }
        mean
    }

    /// Takes the scales of this point. A matrix alone has nothing beside it.
    pub(crate) fn take_scales(&mut self, x: &Vector) -> Result<(), StepError> {
        let count = self.slots.len();
        if self.slots.iter().filter(|slot| slot.is_matrix()).count() > 1 {
            let (mut sums, mut squares) = (self.sums(count)?, vec![0.0; count]);
            self.measure_parts::<SquareNorm, 0, 1, 1>([], 0.0, [x], &mut sums, |at| at);
            self.read(&mut sums, &mut squares)?;
            let sizes = self.slots.iter().zip(squares).map(|(slot, sum)| (slot.is_matrix(), slot.len(), sum));
            self.scales = scales(sizes);
        }
        Ok(())
    }

    fn info(&self, at: usize, decay: f64) -> TensorInfo<f64> {
        TensorInfo { decay: if self.decays[at] { decay } else { 0.0 }, scale: self.scales[at] }
    }

    fn pass<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        scalars: [f64; S],
        decay: f64,
        mut change: [&mut Vector; M],
        read: [&Vector; R],
    ) {
        let mut plan = None;
        for (at, slot) in self.slots.iter().enumerate() {
            let mut new = change.each_mut().map(|vector| &mut vector.0[at]);
            let given = read.map(|vector| &vector.0[at]);
            let info = self.info(at, decay);
            if self.host[at] {
                if slot.dtype == DType::F64 {
                    change_memory::<f64, F, S, M, R>(scalars, info, new, given);
                } else {
                    change_memory::<f32, F, S, M, R>(scalars, info, new, given);
                }
                continue;
            }
            let plan = plan.get_or_insert_with(|| Plan::new(Program::of_change::<F, S, M, R>()));
            let types = new.each_ref().map(|part| part.on_device().dtype());
            let narrow = slot.wide() != DType::F64;
            let Ok(results) = plan.run::<Lists>(narrow, &scalars, info, |i| {
                let tensor = match new.get_mut(i) {
                    // Nobody needs the old numbers any more.
                    Some(Part::Device(tensor)) => tensor.extract(),
                    _ => given[i - M].on_device().clone(),
                };
                Ok(cast(tensor, slot.wide()))
            });
            for ((to, dtype), value) in new.iter_mut().zip(types).zip(results) {
                let value = match value {
                    Value::Tensor(tensor) => cast(tensor, dtype),
                    Value::Number(value) => Tensor::full([slot.len()], value, (&slot.device, dtype)),
                };
                **to = Part::Device(value);
            }
        }
    }

    /// Adds the terms of each parameter to the sums from its place on.
    fn measure_parts<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        scalars: [f64; S],
        decay: f64,
        read: [&Vector; R],
        sums: &mut Sums,
        place: impl Fn(usize) -> usize,
    ) {
        let mut plans = None;
        for (at, slot) in self.slots.iter().enumerate() {
            let read = read.map(|vector| &vector.0[at]);
            let (info, first) = (self.info(at, decay), place(at));
            if self.host[at] {
                let terms = if slot.dtype == DType::F64 {
                    measure_memory::<f64, F, S, R, K>(scalars, info, read)
                } else {
                    measure_memory::<f32, F, S, R, K>(scalars, info, read)
                };
                sums.known[first..].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
                continue;
            }
            let plans = plans.get_or_insert_with(|| {
                let program =
                    |narrow| Program::of_measure::<F, S, R, K>().only(|term| F::NARROW[term] == narrow);
                [true, false].map(|narrow| (narrow, Plan::new(program(narrow))))
            });
            for (narrow, plan) in plans {
                let dtype = if *narrow { slot.wide() } else { slot.widest() };
                let vector = |i: usize| Ok(cast(read[i].on_device().clone(), dtype));
                let Ok(terms) = plan.run::<Lists>(dtype != DType::F64, &scalars, info, vector);
                let places = (0..K).filter(|&term| F::NARROW[term] == *narrow).map(|term| first + term);
                for (place, value) in places.zip(terms) {
                    match value {
                        Value::Tensor(terms) => sums.pending.push((place, cast(terms, slot.widest()).sum())),
                        Value::Number(term) => sums.known[place] += term * slot.len() as f64,
                    }
                }
            }
        }
    }
}

/// A pass that changes memory, with the widest instructions of the CPU.
fn change_memory<T: Number + Element, F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
    scalars: [f64; S],
    info: TensorInfo<f64>,
    change: [&mut Part; M],
    read: [&Part; R],
) {
    let (change, read) = (change.map(Part::slice_mut), read.map(Part::slice));
    Arch::new().dispatch(
        #[inline(always)]
        move || slices::change::<T, F, S, M, R>(scalars, info, change, read),
    );
}

/// A pass that sums over memory, likewise.
fn measure_memory<T, F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    info: TensorInfo<f64>,
    read: [&Part; R],
) -> [f64; K]
where
    T: Number + Element + Into<f64>,
{
    let read = read.map(Part::slice);
    let sums = Arch::new().dispatch(
        #[inline(always)]
        move || slices::measure::<T, F, S, R, K>(scalars, info, read, slices::Sums::ZERO),
    );
    sums.total()
}

/// Whether a device's tensors are in the CPU's memory and `into_data` gives them without a copy. Burn has no question for it: the
/// backend's name is in what a device prints. Where it is not found, passes are tensor operations, which are right as well.
fn is_flex(device: &Device) -> bool {
    format!("{device:?}").starts_with("Device<Flex(")
}

fn cast(tensor: Tensor<1>, dtype: DType) -> Tensor<1> {
    if tensor.dtype() == dtype { tensor } else { tensor.cast(dtype) }
}

/// `v ← factor·v`.
struct Scale;

impl Change<1, 1, 0> for Scale {
    #[inline(always)]
    fn each<N: Number>([factor]: [N; 1], _: TensorInfo<N>, [v]: [N; 1], []: [N; 0]) -> [N; 1] {
        [factor * v]
    }
}

impl Space for Parameters {
    type Vector = Vector;
    type Sums = Sums;
    type Error = StepError;

    /// Parameters may be F32.
    const LARGEST: f64 = f32::MAX as f64;

    fn dimension(&self) -> u64 {
        self.slots.iter().map(|slot| slot.len() as u64).sum()
    }

    fn zeros(&self) -> Result<Vector, StepError> {
        Ok(Vector((0..self.slots.len()).map(|at| self.zero(at)).collect()))
    }

    fn copy(&self, from: &Vector, to: &mut Vector) {
        for (from, to) in from.0.iter().zip(&mut to.0) {
            match (from, to) {
                (Part::Device(from), Part::Device(to)) => *to = cast(from.clone(), to.dtype()),
                (from, to) => *to = from.clone(),
            }
        }
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut Vector; M],
        read: [&Vector; R],
    ) {
        if self.moves {
            self.pass::<F, S, M, R>(scalars, decay, change, read);
        }
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vector; R],
        sums: &mut Sums,
        first: usize,
    ) {
        sums.clear(first, K);
        self.measure_parts::<F, S, R, K>(scalars, decay, read, sums, |_| first);
    }

    fn sums(&self, count: usize) -> Result<Sums, StepError> {
        Ok(Sums { known: vec![0.0; count], pending: Vec::new() })
    }

    /// Reads all sums that are still on a device at once.
    fn read(&self, sums: &mut Sums, values: &mut [f64]) -> Result<(), StepError> {
        let (places, tensors): (Vec<usize>, Vec<Tensor<1>>) = sums.pending.drain(..).unzip();
        for (place, data) in places.into_iter().zip(self.reads.read(tensors)?) {
            sums.known[place] += data.iter::<f64>().sum::<f64>();
        }
        values.copy_from_slice(&sums.known[..values.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(x − y)²`, `(x + y)²` and `(x − y)²`; the second may be narrow.
    struct Squares;

    impl Measure<0, 2, 3> for Squares {
        const NARROW: [bool; 3] = [false, true, false];

        #[inline(always)]
        fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, [x, y]: [N; 2]) -> [N; 3] {
            [(x - y) * (x - y), (x + y) * (x + y), (x - y) * (x - y)]
        }
    }

    /// The square of 1e-25 is 0 in f32.
    #[test]
    fn terms_are_f64_but_where_they_may_be_narrow() {
        let device = Device::flex();
        for dtype in [DType::F32, DType::BF16] {
            for loops in [true, false] {
                let (id, name) = (ParamId::new(), Arc::from("x"));
                let slot = Slot { id, name, shape: vec![9], dtype, device: device.clone() };
                let space = Parameters::new(vec![Arc::new(slot)], true, loops, Reads::default());
                let full =
                    |value: f64| Vector(vec![space.part(0, Tensor::full([9], value, (&device, dtype)))]);
                let (mut sums, mut values) = (space.sums(3).unwrap(), [0.0; 3]);
                space.measure(Squares, [], 0.0, [&full(3e-25), &full(2e-25)], &mut sums, 0);
                space.read(&mut sums, &mut values).unwrap();
                assert!(
                    (values[0].sqrt() / 3e-25 - 1.0).abs() < 0.02,
                    "{dtype:?}, loops {loops}: {values:?}"
                );
                assert_eq!((values[1], values[2]), (0.0, values[0]), "{dtype:?}, loops {loops}");
            }
        }
    }
}
