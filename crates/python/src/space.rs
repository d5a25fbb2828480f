//! PyTorch's tensors on the CPU as the space that a method works in.
//!
//! PyTorch owns the memory. A vector is a list of addresses, one for each tensor, set before each step.

#![allow(unsafe_code)]

use half::slice::HalfFloatSliceExt;
use pulp::Arch;
use pyo3::prelude::*;
use untuned::Space;
use untuned::formula::{Change, Measure, Number, TensorInfo};
use untuned::slices::{self, Sums};
use untuned::space::SquareNorm;

use crate::threads;

/// The number of coordinates of a task. It is fixed, so that sums do not depend on the number of threads.
const TASK: usize = 1 << 16;

/// The number of 16-bit floats that are converted at a time: they stay in the L1 cache.
const TILE: usize = 1024;

/// The type of a parameter and of its gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    F64,
    F32,
    Bf16,
    F16,
}

impl Float {
    /// The type of state vectors, in which passes compute.
    pub fn wide(self) -> Float {
        if self == Float::F64 { Float::F64 } else { Float::F32 }
    }

    pub fn bytes(self) -> usize {
        match self {
            Float::F64 => 8,
            Float::F32 => 4,
            Float::Bf16 | Float::F16 => 2,
        }
    }
}

/// The options of a tensor, from Python.
#[derive(Debug, Clone, Copy, PartialEq, FromPyObject)]
pub struct TensorOptions {
    /// The tensor's factor on the run's weight decay.
    pub decay: f64,
    pub scale: f64,
    /// The tensor's factor on the run's rate.
    pub rate: f64,
    /// The tensor's share of the sums over all ranks: 1, or less where several ranks have the same numbers.
    pub share: f64,
    /// The number of elements on all ranks together.
    pub numbers: u64,
}

impl TensorOptions {
    pub const PLAIN: TensorOptions =
        TensorOptions { decay: 1.0, scale: 1.0, rate: 1.0, share: 1.0, numbers: 0 };
}

/// A tensor in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tensor {
    /// The number of elements on this rank.
    pub len: usize,
    pub float: Float,
    pub options: TensorOptions,
    /// Whether it has a gradient in this step. Other tensors do not change.
    pub active: bool,
}

/// A number for each coordinate of each tensor.
///
/// A session makes vectors without addresses. PyTorch allocates and fills them, and their addresses are set before each step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vector {
    /// One for each tensor; those of inactive tensors are not used.
    pub addresses: Vec<usize>,
    /// Whether the elements have the parameters' own type, and not that of state vectors.
    pub narrow: bool,
    /// The elements are multiplied by this factor when they are read. It takes out a GradScaler's scale: 16-bit gradients would lose
    /// digits if they were scaled down where they are.
    pub factor: Option<f64>,
}

/// The memory of a part.
#[derive(Debug, Clone, Copy)]
struct Memory {
    address: usize,
    /// The type, where it is a 16-bit float.
    narrow: Option<Float>,
    factor: Option<f64>,
}

impl Memory {
    /// Whether passes can compute with the elements as they are.
    fn is_plain(&self) -> bool {
        self.narrow.is_none() && self.factor.is_none()
    }

    /// The elements from `start` on, as many as the tile has: where they are, or converted in the tile.
    fn numbers<T: Wide>(self, tile: &mut [T], start: usize) -> &[T] {
        if !self.is_plain() {
            return load(tile, self, start);
        }
        // SAFETY: see the safety section of `impl Space for Tensors`.
        unsafe { std::slice::from_raw_parts((self.address as *const T).add(start), tile.len()) }
    }

    /// The same, to be changed. Those in the tile are not [stored](store).
    fn numbers_mut<T: Wide>(self, tile: &mut [T], start: usize) -> &mut [T] {
        if !self.is_plain() {
            return load(tile, self, start);
        }
        // SAFETY: see the safety section of `impl Space for Tensors`.
        unsafe { std::slice::from_raw_parts_mut((self.address as *mut T).add(start), tile.len()) }
    }
}

/// `each` of each entry and its index.
fn indexed<A, B, const N: usize>(entries: [A; N], mut each: impl FnMut(usize, A) -> B) -> [B; N] {
    let mut indices = 0..;
    entries.map(|entry| each(indices.next().unwrap_or(N), entry))
}

/// A part of a tensor.
#[derive(Debug, Clone, Copy)]
struct Part {
    tensor: usize,
    start: usize,
    len: usize,
}

/// The tensors of an optimizer.
#[derive(Debug, Default)]
pub struct Tensors {
    tensors: Vec<Tensor>,
    /// The parts of all active tensors, in order.
    parts: Vec<Part>,
    /// Where the parts of each task begin, and where the last ones end.
    tasks: Vec<usize>,
    pub threads: usize,
    /// Sums numbers over all ranks, where each rank has parts of the tensors. The first number is a loss, and is averaged.
    pub gather: Option<Py<PyAny>>,
}

impl Tensors {
    /// Sets the tensors of a step.
    pub fn set(&mut self, tensors: &[Tensor]) {
        let shape = |tensor: &Tensor| (tensor.len, tensor.active);
        let same = self.tensors.iter().map(shape).eq(tensors.iter().map(shape));
        self.tensors.clear();
        self.tensors.extend_from_slice(tensors);
        if !same {
            self.cut();
        }
    }

    /// Cuts the active tensors into tasks. Small tensors share one.
    fn cut(&mut self) {
        self.parts.clear();
        self.tasks.clear();
        let mut room = 0;
        for (tensor, &Tensor { len, .. }) in self.tensors.iter().enumerate().filter(|(_, t)| t.active) {
            let mut start = 0;
            while start < len {
                if room == 0 {
                    self.tasks.push(self.parts.len());
                    room = TASK;
                }
                let part = Part { tensor, start, len: room.min(len - start) };
                self.parts.push(part);
                (start, room) = (start + part.len, room - part.len);
            }
        }
        self.tasks.push(self.parts.len());
    }

    /// Runs each task on a thread. Measurements begin with the first tensor, whose gradient a backward pass writes last, and changes with
    /// the last one, which was measured last: both find the end of what went before in the cache.
    fn run(&self, backwards: bool, work: impl Fn(usize, Part) + Sync) {
        let count = self.tasks.len().saturating_sub(1);
        threads::run(self.threads, count, &|task| {
            let task = if backwards { count - 1 - task } else { task };
            (self.tasks[task]..self.tasks[task + 1]).for_each(|at| work(at, self.parts[at]));
        });
    }

    /// `Σ v²` of each tensor.
    pub fn squares(&self, v: &Vector) -> Vec<f64> {
        let mut squares = vec![0.0; self.tensors.len()];
        self.sum::<SquareNorm, 0, 1, 1>([], 0.0, [v], |tensor, [part]| squares[tensor] += part);
        squares
    }

    fn info(&self, tensor: usize, decay: f64) -> TensorInfo<f64> {
        let options = &self.tensors[tensor].options;
        TensorInfo { decay: decay * options.decay, scale: options.scale }
    }

    /// Replaces this rank's sums by those over all ranks.
    fn gather(&self, values: &mut [f64]) -> PyResult<()> {
        let Some(gather) = &self.gather else { return Ok(()) };
        let sums: Vec<f64> = Python::attach(|py| gather.call1(py, (&*values,))?.extract(py))?;
        values.copy_from_slice(&sums);
        Ok(())
    }

    /// Measures all parts, and passes on what each sums to, in order.
    fn sum<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        scalars: [f64; S],
        decay: f64,
        read: [&Vector; R],
        mut add: impl FnMut(usize, [f64; K]),
    ) {
        let mut sums = vec![[0.0; K]; self.parts.len()];
        let to = Slots(sums.as_mut_ptr());
        self.run(false, |at, part| {
            let info = self.info(part.tensor, decay);
            let found = match self.tensors[part.tensor].float.wide() {
                Float::F64 => self.measure_part::<f64, F, S, R, K>(part, scalars, info, read),
                _ => self.measure_part::<f32, F, S, R, K>(part, scalars, info, read),
            };
            // SAFETY: there is a slot for each part, and each part belongs to one task.
            unsafe { to.get().add(at).write(found) };
        });
        self.parts.iter().zip(sums).for_each(|(part, sums)| add(part.tensor, sums));
    }

    fn memory_of(&self, part: Part, vector: &Vector) -> Memory {
        let float = self.tensors[part.tensor].float;
        let kind = if vector.narrow { float } else { float.wide() };
        let narrow = (kind != kind.wide()).then_some(kind);
        let address = vector.addresses[part.tensor] + part.start * kind.bytes();
        Memory { address, narrow, factor: vector.factor }
    }

    fn change_part<T: Wide, F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        part: Part,
        scalars: [f64; S],
        info: TensorInfo<f64>,
        change: [&Vector; M],
        read: [&Vector; R],
    ) {
        let rate = self.tensors[part.tensor].options.rate;
        // The parameters are the only vector of their own type that changes.
        let slowed = change.map(|vector| rate != 1.0 && vector.narrow);
        let change = change.map(|vector| self.memory_of(part, vector));
        let read = read.map(|vector| self.memory_of(part, vector));
        if !slowed.contains(&true) && change.iter().chain(&read).all(Memory::is_plain) {
            // SAFETY: see the safety section of `impl Space for Tensors`.
            let change =
                change.map(|m| unsafe { std::slice::from_raw_parts_mut(m.address as *mut T, part.len) });
            // SAFETY: see the safety section of `impl Space for Tensors`.
            let read = read.map(|m| unsafe { std::slice::from_raw_parts(m.address as *const T, part.len) });
            return Arch::new().dispatch(
                #[inline(always)]
                move || slices::change::<T, F, S, M, R>(scalars, info, change, read),
            );
        }
        // Vectors that need no conversion are used where they are.
        let (mut changed, mut given) = ([[T::of(0.0); TILE]; M], [[T::of(0.0); TILE]; R]);
        let mut before = [T::of(0.0); TILE];
        for start in (0..part.len).step_by(TILE) {
            let len = TILE.min(part.len - start);
            let to = indexed(changed.each_mut(), |v, tile| match slowed[v] {
                true => load(&mut tile[..len], change[v], start),
                false => change[v].numbers_mut(&mut tile[..len], start),
            });
            let from = indexed(given.each_mut(), |v, tile| read[v].numbers(&mut tile[..len], start));
            for (to, _) in to.iter().zip(slowed).filter(|(_, slowed)| *slowed) {
                before[..len].copy_from_slice(to);
            }
            Arch::new().dispatch(
                #[inline(always)]
                move || slices::change::<T, F, S, M, R>(scalars, info, to, from),
            );
            for ((tile, to), slowed) in changed.iter_mut().zip(change).zip(slowed) {
                if slowed {
                    let pairs = tile[..len].iter_mut().zip(&before);
                    pairs.for_each(|(to, &from)| *to = from + T::of(rate) * (*to - from));
                }
                if slowed || !to.is_plain() {
                    store(&tile[..len], to, start);
                }
            }
        }
    }

    fn measure_part<T: Wide, F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        part: Part,
        scalars: [f64; S],
        info: TensorInfo<f64>,
        read: [&Vector; R],
    ) -> [f64; K] {
        let read = read.map(|vector| self.memory_of(part, vector));
        if read.iter().all(Memory::is_plain) {
            // SAFETY: see the safety section of `impl Space for Tensors`.
            let read = read.map(|m| unsafe { std::slice::from_raw_parts(m.address as *const T, part.len) });
            let sums = Arch::new().dispatch(
                #[inline(always)]
                move || slices::measure::<T, F, S, R, K>(scalars, info, read, Sums::ZERO),
            );
            return sums.total();
        }
        let (mut given, mut sums) = ([[T::of(0.0); TILE]; R], Sums::ZERO);
        for start in (0..part.len).step_by(TILE) {
            let len = TILE.min(part.len - start);
            let read = indexed(given.each_mut(), |v, tile| read[v].numbers(&mut tile[..len], start));
            let before = sums;
            sums = Arch::new().dispatch(
                #[inline(always)]
                move || slices::measure::<T, F, S, R, K>(scalars, info, read, before),
            );
        }
        sums.total()
    }
}

/// The beginning of a list whose slots different threads write.
struct Slots<T>(*mut T);

// SAFETY: each slot is written by one thread, and read after all have ended.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// A type that passes compute in.
trait Wide: Number + Into<f64> {
    /// Reads 16-bit floats.
    fn widen(to: &mut [Self], from: &[u16], float: Float);
    /// Rounds to 16-bit floats, ties to even.
    fn narrow(from: &[Self], to: &mut [u16], float: Float);
}

impl Wide for f32 {
    fn widen(to: &mut [f32], from: &[u16], float: Float) {
        match float {
            Float::F16 => cast_f16(from).convert_to_f32_slice(to),
            _ => Arch::new().dispatch(
                #[inline(always)]
                || {
                    to.iter_mut()
                        .zip(from)
                        .for_each(|(to, &from)| *to = f32::from_bits(u32::from(from) << 16))
                },
            ),
        }
    }

    fn narrow(from: &[f32], to: &mut [u16], float: Float) {
        match float {
            Float::F16 => cast_f16_mut(to).convert_from_f32_slice(from),
            _ => Arch::new().dispatch(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(to, &from)| *to = to_bf16(from)),
            ),
        }
    }
}

/// An f32 rounded to bf16: to nearest, ties to even. NaN stays NaN.
#[inline(always)]
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { 0x7FC0 } else { rounded as u16 }
}

fn cast_f16(numbers: &[u16]) -> &[half::f16] {
    half::slice::HalfBitsSliceExt::reinterpret_cast(numbers)
}

fn cast_f16_mut(numbers: &mut [u16]) -> &mut [half::f16] {
    half::slice::HalfBitsSliceExt::reinterpret_cast_mut(numbers)
}

impl Wide for f64 {
    fn widen(_: &mut [f64], _: &[u16], _: Float) {
        unreachable!("a parameter of f64 has nothing of 16 bits beside it")
    }

    fn narrow(_: &[f64], _: &mut [u16], _: Float) {
        unreachable!("a parameter of f64 has nothing of 16 bits beside it")
    }
}

/// Reads numbers from `start` on.
fn load<T: Wide>(to: &mut [T], Memory { address, narrow, factor }: Memory, start: usize) -> &mut [T] {
    // SAFETY: see the safety section of `impl Space for Tensors`.
    unsafe {
        match narrow {
            None => {
                to.copy_from_slice(std::slice::from_raw_parts((address as *const T).add(start), to.len()))
            }
            Some(float) => {
                T::widen(to, std::slice::from_raw_parts((address as *const u16).add(start), to.len()), float);
            }
        }
    }
    if let Some(factor) = factor {
        to.iter_mut().for_each(|v| *v = T::of(factor) * *v);
    }
    to
}

/// Writes numbers from `start` on.
fn store<T: Wide>(from: &[T], Memory { address, narrow, .. }: Memory, start: usize) {
    // SAFETY: see the safety section of `impl Space for Tensors`.
    unsafe {
        match narrow {
            None => std::slice::from_raw_parts_mut((address as *mut T).add(start), from.len())
                .copy_from_slice(from),
            Some(float) => {
                let to = std::slice::from_raw_parts_mut((address as *mut u16).add(start), from.len());
                T::narrow(from, to, float);
            }
        }
    }
}

/// `(scale·v)²`.
struct ScaledSquare;

impl Measure<1, 1, 1> for ScaledSquare {
    #[inline(always)]
    fn each<N: Number>([scale]: [N; 1], _: TensorInfo<N>, [v]: [N; 1]) -> [N; 1] {
        let v = scale * v;
        [v * v]
    }
}

/// `to = from`.
pub struct Copy;

impl Change<0, 1, 1> for Copy {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, _: [N; 1], [from]: [N; 1]) -> [N; 1] {
        [from]
    }
}

/// # Safety
/// Before a pass, `tensors::read` checks every tensor: it is dense memory of the CPU, not null, aligned, with the length and type that
/// `Tensors` has. No tensor that a pass changes (parameters, state, and what an evaluation point is written to) shares memory with
/// another. Python keeps all of them alive until the pass has ended.
impl Space for Tensors {
    type Vector = Vector;
    type Sums = Vec<f64>;
    type Error = PyErr;

    const LARGEST: f64 = f32::MAX as f64;

    fn dimension(&self) -> u64 {
        self.tensors.iter().filter(|tensor| tensor.active).map(|tensor| tensor.options.numbers).sum()
    }

    /// A vector without addresses: PyTorch allocates its tensors.
    fn zeros(&self) -> PyResult<Vector> {
        Ok(Vector::default())
    }

    /// Does nothing where a session starts: PyTorch has filled the vector.
    fn copy(&self, from: &Vector, to: &mut Vector) {
        if !to.addresses.is_empty() {
            self.change(Copy, [], 0.0, [to], [from]);
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
        let change = change.map(|vector| &*vector);
        self.run(true, |_, part| {
            let info = self.info(part.tensor, decay);
            match self.tensors[part.tensor].float.wide() {
                Float::F64 => self.change_part::<f64, F, S, M, R>(part, scalars, info, change, read),
                _ => self.change_part::<f32, F, S, M, R>(part, scalars, info, change, read),
            }
        });
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vector; R],
        sums: &mut Vec<f64>,
        at: usize,
    ) {
        let sums = &mut sums[at..at + K];
        sums.fill(0.0);
        self.sum::<F, S, R, K>(scalars, decay, read, |tensor, found| {
            let share = self.tensors[tensor].options.share;
            sums.iter_mut().zip(found).for_each(|(sum, part)| *sum += share * part);
        });
    }

    fn sums(&self, count: usize) -> PyResult<Vec<f64>> {
        Ok(vec![0.0; count])
    }

    fn read(&self, sums: &mut Vec<f64>, values: &mut [f64]) -> PyResult<()> {
        values.copy_from_slice(&sums[..values.len()]);
        self.gather(values)
    }

    /// Squares of f32 are exact in f64. Those of f64 that may have left its range are measured again in other units.
    fn norm(&self, v: &Vector, squares: f64) -> PyResult<f64> {
        let unit = 2f64.powi(600);
        let scale = match squares {
            _ if self.tensors.iter().all(|tensor| tensor.float != Float::F64) => return Ok(squares.sqrt()),
            _ if squares < 1e-280 => unit,
            f64::INFINITY => unit.recip(),
            _ => return Ok(squares.sqrt()),
        };
        // The first slot is that of the loss, and stays 0.
        let mut sums = vec![0.0; 2];
        self.measure(ScaledSquare, [scale], 0.0, [v], &mut sums, 1);
        self.gather(&mut sums)?;
        Ok(sums[1].sqrt() / scale)
    }
}
