//! The trainable parameters of a module as the space that a method works in.

use std::convert::Infallible;
use std::sync::Arc;

use burn::module::ParamId;
use burn::tensor::{DType, Device, Element, Tensor, TensorData};
use pulp::Arch;
use untuned::optimizers::formula::Program;
use untuned::optimizers::interpreter::{Plan, Value};
use untuned::optimizers::slices::{self, Sums as Lanes};
use untuned::optimizers::{Change, Here, Measure, Number, Space, scales};

use crate::StepError;
use crate::reads::Reads;
use crate::tensors::Lists;

/// `g²`.
struct Square;

impl Measure<0, 1, 1> for Square {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: Here<N>, [g]: [N; 1]) -> [N; 1] {
        [g * g]
    }
}

/// A pass that changes memory, with the widest instructions that the processor has.
fn change_memory<T: Number, F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
    scalars: [f64; S],
    here: Here<f64>,
    change: [&mut [T]; M],
    read: [&[T]; R],
) {
    Arch::new().dispatch(
        #[inline(always)]
        move || slices::change::<T, F, S, M, R>(scalars, here, change, read),
    );
}

/// A pass that sums over memory, likewise.
fn measure_memory<
    T: Number + Into<f64>,
    F: Measure<S, R, K>,
    const S: usize,
    const R: usize,
    const K: usize,
>(
    scalars: [f64; S],
    here: Here<f64>,
    read: [&[T]; R],
) -> [f64; K] {
    let sums = Arch::new().dispatch(
        #[inline(always)]
        move || slices::measure::<T, F, S, R, K>(scalars, here, read, Lanes::ZERO),
    );
    sums.total()
}

/// `Σ g²`.
fn square_norm<T: Number + Into<f64>>(vector: &[T]) -> f64 {
    let [sum] = measure_memory::<T, Square, 0, 1, 1>([], Here { decay: 0.0, scale: 1.0 }, [vector]);
    sum
}

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

    /// What its numbers are computed in: half-precision ones in F32.
    pub(crate) fn wide(&self) -> DType {
        if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }
}

/// The numbers of one parameter, as a list.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// In the processor's memory, and of the type that it is computed in.
    Host(TensorData),
    /// Wherever the device has it.
    Device(Tensor<1>),
}

impl Part {
    /// As a tensor of the parameter's shape, whose rank is `D`.
    pub(crate) fn shaped<const D: usize>(self, slot: &Slot) -> Tensor<D> {
        let shape: [usize; D] = std::array::from_fn(|i| slot.shape[i]);
        match self {
            Part::Host(data) => {
                let (bytes, _, dtype) = data.into_parts();
                Tensor::from_data(TensorData::from_bytes(bytes, shape, dtype), (&slot.device, dtype))
            }
            Part::Device(tensor) => tensor.reshape(shape),
        }
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

/// Sums in f64, of which some are still on a device.
#[derive(Debug)]
pub(crate) struct Sums {
    known: Vec<f64>,
    /// What must be added, and where.
    pending: Vec<(usize, Tensor<1>)>,
}

impl Sums {
    pub(crate) fn new(count: usize) -> Sums {
        Sums { known: vec![0.0; count], pending: Vec::new() }
    }

    fn clear(&mut self, from: usize, count: usize) {
        self.known[from..from + count].fill(0.0);
        self.pending.retain(|(place, _)| !(from..from + count).contains(place));
    }

    /// Adds a tensor of one number to a sum.
    pub(crate) fn add(&mut self, place: usize, number: Tensor<1>) {
        self.pending.push((place, number));
    }

    /// Reads all that is still on a device, at once.
    pub(crate) fn read(mut self, reads: &Reads) -> Result<Vec<f64>, StepError> {
        let (places, tensors): (Vec<usize>, Vec<Tensor<1>>) = self.pending.into_iter().unzip();
        for (place, data) in places.into_iter().zip(reads.read(tensors)?) {
            self.known[place] += data.iter::<f64>().sum::<f64>();
        }
        Ok(self.known)
    }
}

/// The parameters that a method works on, each one once, in the order in which the module has them.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    pub(crate) slots: Vec<Arc<Slot>>,
    /// Of each parameter, whether it decays.
    decays: Vec<bool>,
    /// Of each parameter, how large its numbers are at the start, beside those of the others.
    pub(crate) scales: Vec<f64>,
    /// Of each parameter, whether it is in the processor's memory and passes over it are loops.
    host: Vec<bool>,
    /// Whether a pass changes anything.
    moves: bool,
}

impl Parameters {
    /// `all_decay`, or only the matrices. With `loops`, passes are loops where memory can be had without a copy.
    pub(crate) fn new(slots: Vec<Arc<Slot>>, all_decay: bool, loops: bool) -> Parameters {
        let decays = slots.iter().map(|slot| all_decay || slot.shape.len() >= 2).collect();
        let host = slots.iter().map(|slot| loops && slot.dtype == slot.wide() && is_flex(&slot.device));
        Parameters { host: host.collect(), scales: vec![1.0; slots.len()], slots, decays, moves: true }
    }

    /// The same, in which nothing changes: a method's step then only says its size.
    pub(crate) fn still(self) -> Parameters {
        Parameters { moves: false, ..self }
    }

    /// How many numbers there are.
    pub(crate) fn dimension(&self) -> u64 {
        self.slots.iter().map(|slot| slot.len() as u64).sum()
    }

    /// The numbers of a parameter, its gradient or what is kept beside it; without a copy where nobody else has them.
    pub(crate) fn part(&self, at: usize, tensor: Tensor<1>) -> Part {
        if self.host[at] { Part::Host(tensor.into_data()) } else { Part::Device(tensor) }
    }

    /// The same as a tensor.
    pub(crate) fn tensor(&self, at: usize, part: Part) -> Tensor<1> {
        match part {
            Part::Host(data) => {
                let dtype = data.dtype();
                Tensor::from_data(data, (&self.slots[at].device, dtype))
            }
            Part::Device(tensor) => tensor,
        }
    }

    /// Zeros for one parameter, of the type that it is computed in.
    pub(crate) fn zero(&self, at: usize) -> Part {
        let slot = &self.slots[at];
        self.part(at, Tensor::zeros([slot.len()], (&slot.device, slot.wide())))
    }

    /// `Σ v²`: squared in f64 where the device has it, else in f32, also for half-precision numbers; the parameters' sums are added in
    /// f64 anyway.
    pub(crate) fn square_norm(&self, vector: &Vector, sums: &mut Sums, at: usize) {
        sums.clear(at, 1);
        vector.0.iter().zip(&self.slots).for_each(|(part, slot)| add_square(part, slot, sums, at));
    }

    /// The same, with the scales of this point.
    pub(crate) fn scaled(mut self, x: &Vector, reads: &Reads) -> Result<Parameters, StepError> {
        let matrix = |slot: &Slot| slot.shape.len() >= 2;
        // A matrix alone has nothing beside it.
        if self.slots.iter().filter(|slot| matrix(slot)).count() > 1 {
            let mut sums = Sums::new(self.slots.len());
            let parts = x.0.iter().zip(&self.slots).enumerate();
            parts.for_each(|(at, (part, slot))| add_square(part, slot, &mut sums, at));
            let squares = sums.read(reads)?;
            let sizes = self.slots.iter().zip(squares).map(|(slot, sum)| (matrix(slot), slot.len(), sum));
            self.scales = scales(sizes);
        }
        Ok(self)
    }

    fn here(&self, at: usize, decay: f64) -> Here<f64> {
        Here { decay: if self.decays[at] { decay } else { 0.0 }, scale: self.scales[at] }
    }
}

/// Adds `Σ v²` of one parameter to a sum.
fn add_square(part: &Part, slot: &Slot, sums: &mut Sums, at: usize) {
    match part {
        Part::Host(data) if slot.dtype == DType::F64 => sums.known[at] += square_norm(slice::<f64>(data)),
        Part::Host(data) => sums.known[at] += square_norm(slice::<f32>(data)),
        Part::Device(tensor) => {
            let wide = cast(tensor.clone(), widest(slot));
            sums.pending.push((at, (wide.clone() * wide).sum()));
        }
    }
}

/// Whether a device's tensors are in the processor's memory and `into_data` gives them without a copy. Burn has no question for it: the
/// backend's name is in what a device prints. Without it passes are tensor operations, and right as well.
fn is_flex(device: &Device) -> bool {
    format!("{device:?}").starts_with("Device<Flex(")
}

/// F64 where the device has that, else F32.
fn widest(slot: &Slot) -> DType {
    if slot.device.supports_dtype(DType::F64) { DType::F64 } else { slot.wide() }
}

fn cast(tensor: Tensor<1>, dtype: DType) -> Tensor<1> {
    if tensor.dtype() == dtype { tensor } else { tensor.cast(dtype) }
}

fn slice<T: Element>(data: &TensorData) -> &[T] {
    data.as_slice().expect("numbers in memory are of the type that they are computed in")
}

fn all<T: Element, const N: usize>(parts: [&Part; N]) -> [&[T]; N] {
    parts.map(|part| match part {
        Part::Host(data) => slice(data),
        Part::Device(_) => unreachable!("all vectors of a parameter are in the same place"),
    })
}

fn all_mut<T: Element, const N: usize>(parts: [&mut Part; N]) -> [&mut [T]; N] {
    parts.map(|part| match part {
        Part::Host(data) => {
            data.as_mut_slice().expect("numbers in memory are of the type that they are computed in")
        }
        Part::Device(_) => unreachable!("all vectors of a parameter are in the same place"),
    })
}

fn on_device(part: &Part) -> &Tensor<1> {
    match part {
        Part::Device(tensor) => tensor,
        Part::Host(_) => unreachable!("all vectors of a parameter are in the same place"),
    }
}

/// `v ← factor·v`.
struct Scale;

impl Change<1, 1, 0> for Scale {
    #[inline(always)]
    fn each<N: Number>([factor]: [N; 1], _: Here<N>, [v]: [N; 1], []: [N; 0]) -> [N; 1] {
        [factor * v]
    }
}

impl Parameters {
    /// `v ← factor·v`.
    pub(crate) fn scale(&self, factor: f64, vector: &mut Vector) {
        self.change(Scale, [factor], 0.0, [vector], []);
    }
}

impl Space for Parameters {
    type Vector = Vector;
    type Sums = Sums;
    type Error = Infallible;

    /// Parameters may be of F32.
    const LARGEST: f64 = f32::MAX as f64;

    fn zeros(&self) -> Result<Vector, Infallible> {
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
        mut change: [&mut Vector; M],
        read: [&Vector; R],
    ) {
        if !self.moves {
            return;
        }
        let mut plan = None;
        for (at, slot) in self.slots.iter().enumerate() {
            let mut new = change.each_mut().map(|vector| &mut vector.0[at]);
            let given = read.map(|vector| &vector.0[at]);
            let here = self.here(at, decay);
            if self.host[at] {
                if slot.dtype == DType::F64 {
                    change_memory::<f64, F, S, M, R>(scalars, here, all_mut(new), all(given));
                } else {
                    change_memory::<f32, F, S, M, R>(scalars, here, all_mut(new), all(given));
                }
                continue;
            }
            let plan = plan.get_or_insert_with(|| Plan::new(Program::of_change::<F, S, M, R>()));
            let types = new.each_ref().map(|part| on_device(part).dtype());
            let narrow = slot.wide() != DType::F64;
            let Ok(results) = plan.run::<Lists>(narrow, &scalars, here, |i| {
                let tensor = match new.get_mut(i) {
                    // Nobody needs what is there any more.
                    Some(Part::Device(tensor)) => tensor.extract(),
                    _ => on_device(given[i - M]).clone(),
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
        let mut plans = None;
        for (at, slot) in self.slots.iter().enumerate() {
            let given = read.map(|vector| &vector.0[at]);
            let here = self.here(at, decay);
            if self.host[at] {
                let terms = if slot.dtype == DType::F64 {
                    measure_memory::<f64, F, S, R, K>(scalars, here, all(given))
                } else {
                    measure_memory::<f32, F, S, R, K>(scalars, here, all(given))
                };
                sums.known[first..].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
                continue;
            }
            let plans = plans.get_or_insert_with(|| {
                let plan = |narrow: bool| {
                    Plan::new(Program::of_measure::<F, S, R, K>().only(|term| F::NARROW[term] == narrow))
                };
                [true, false].map(|narrow| (narrow, plan(narrow)))
            });
            for (narrow, plan) in plans {
                let dtype = if *narrow { slot.wide() } else { widest(slot) };
                let vector = |i: usize| Ok(cast(on_device(given[i]).clone(), dtype));
                let Ok(terms) = plan.run::<Lists>(dtype != DType::F64, &scalars, here, vector);
                let places = (0..K).filter(|&term| F::NARROW[term] == *narrow).map(|term| first + term);
                for (place, value) in places.zip(terms) {
                    match value {
                        Value::Tensor(terms) => sums.pending.push((place, cast(terms, widest(slot)).sum())),
                        Value::Number(term) => sums.known[place] += term * slot.len() as f64,
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(x − y)²`, `(x + y)²` and `(x − y)²`, the second of which may be narrow.
    struct Squares;

    impl Measure<0, 2, 3> for Squares {
        const NARROW: [bool; 3] = [false, true, false];

        #[inline(always)]
        fn each<N: Number>(_: [N; 0], _: Here<N>, [x, y]: [N; 2]) -> [N; 3] {
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
                let parameters = Parameters::new(vec![Arc::new(slot)], true, loops);
                let full =
                    |value: f64| Vector(vec![parameters.part(0, Tensor::full([9], value, (&device, dtype)))]);
                let (x, y) = (full(3e-25), full(2e-25));
                let mut sums = Sums::new(3);
                parameters.measure(Squares, [], 0.0, [&x, &y], &mut sums, 0);
                let sums = sums.read(&Reads::default()).unwrap();
                assert!((sums[0].sqrt() / 3e-25 - 1.0).abs() < 0.02, "{dtype:?}, loops {loops}: {sums:?}");
                assert_eq!((sums[1], sums[2]), (0.0, sums[0]), "{dtype:?}, loops {loops}");
            }
        }
    }
}
