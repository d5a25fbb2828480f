//! Lists of tensors as the space that a method works in.

use std::cell::RefCell;

use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use untuned::Space;
use untuned::formula::{Change, Measure, Number, Program, TensorInfo};
use untuned::interpreter::{Plan, Tensors as _, Value};
use untuned::space::SquareNorm;

use crate::fused;
use crate::tensors::OneShape;
use crate::variables::{Variable, place_of};

/// One tensor for each variable, in their order.
#[derive(Debug)]
pub(crate) struct Tensors {
    /// The shape of each, and whether it decays.
    shapes: Vec<(Shape, bool)>,
    /// The scale of each: 1 for methods that do not need it.
    pub(crate) scales: Vec<f64>,
    device: Device,
    /// The type of state vectors, and of what is computed: f32 for variables of 16 bits.
    wide: DType,
    /// Whether a pass is a loop.
    fused: bool,
    /// The first thing that Candle could not do: a pass has no way to say so.
    failure: RefCell<Option<candle_core::Error>>,
}

/// Sums, and parts of sums that are still on the device.
#[derive(Debug)]
pub(crate) struct Sums {
    numbers: Vec<f64>,
    parts: Vec<(usize, Tensor)>,
}

impl Sums {
    /// Sets `count` sums to 0.
    fn clear(&mut self, at: usize, count: usize) {
        self.numbers[at..at + count].fill(0.0);
        self.parts.retain(|(index, _)| !(at..at + count).contains(index));
    }

    /// Sets a sum to the one number of a tensor, which stays on its device until the sums are read.
    pub(crate) fn set(&mut self, at: usize, number: &Tensor) -> Result<()> {
        self.clear(at, 1);
        self.parts.push((at, number.detach().reshape(())?));
        Ok(())
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread read sums.
    pub(crate) static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
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

/// What sums are added in: f64, except on Metal, which has none. There a tensor's part is f32, and the parts are added in f64.
fn accumulator(device: &Device) -> DType {
    if device.is_metal() { DType::F32 } else { DType::F64 }
}

impl Tensors {
    /// For these variables, of one kind. `decays` says of a variable whether it decays.
    pub(crate) fn new(variables: &[Variable], decays: impl Fn(&Var) -> bool, fused: bool) -> Tensors {
        let (dtype, device) = (variables[0].var.dtype(), variables[0].var.device().clone());
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        Tensors {
            shapes: variables.iter().map(|v| (v.var.shape().clone(), decays(&v.var))).collect(),
            scales: vec![1.0; variables.len()],
            fused: fused && device.is_cpu() && dtype == wide,
            device,
            wide,
            failure: RefCell::new(None),
        }
    }

    /// What Candle could not do since this was asked last.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// `Σ v²` of each tensor, all in one read.
    pub(crate) fn squares(&self, v: &Vec<Tensor>) -> Result<Vec<f64>> {
        let mut values = vec![0.0; v.len()];
        let mut sums = self.sums(v.len())?;
        self.sum(SquareNorm, [], 0.0, [v], &mut sums, |i| i);
        self.read(&mut sums, &mut values)?;
        Ok(values)
    }

    /// Does something for every variable, until it fails.
    fn each(&self, decay: f64, mut work: impl FnMut(usize, TensorInfo<f64>) -> Result<()>) {
        if self.failure.borrow().is_some() {
            return;
        }
        for (i, (_, decays)) in self.shapes.iter().enumerate() {
            let info = TensorInfo { decay: if *decays { decay } else { 0.0 }, scale: self.scales[i] };
            if let Err(error) = work(i, info) {
                *self.failure.borrow_mut() = Some(error);
                return;
            }
        }
    }

    /// Adds the terms of each tensor to the sums from the index on that `at` says.
    fn sum<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vec<Tensor>; R],
        sums: &mut Sums,
        at: impl Fn(usize) -> usize,
    ) {
        if self.fused {
            return self.each(decay, |i, info| {
                let read = read.map(|vector| &vector[i]);
                let parts: [f64; K] = match self.wide {
                    DType::F64 => fused::measure::<f64, F, S, R, K>(scalars, info, read)?,
                    _ => fused::measure::<f32, F, S, R, K>(scalars, info, read)?,
                };
                sums.numbers[at(i)..].iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
                Ok(())
            });
        }
        let plan = Plan::new(Program::of_measure::<F, S, R, K>());
        let dtype = accumulator(&self.device);
        self.each(decay, |i, info| {
            let given = given(read.map(|vector| vector[i].clone()), dtype)?;
            let narrow = dtype != DType::F64;
            let terms = plan.run::<OneShape>(narrow, &scalars, info, |i| Ok(given[i].clone()))?;
            for (k, term) in terms.into_iter().enumerate() {
                match term {
                    Value::Tensor(term) => sums.parts.push((at(i) + k, term.sum_all()?)),
                    Value::Number(term) => {
                        sums.numbers[at(i) + k] += term * self.shapes[i].0.elem_count() as f64;
                    }
                }
            }
            Ok(())
        });
    }
}

/// Tensors to compute with. They are no variables: nobody wants a gradient of this.
fn given(tensors: impl IntoIterator<Item = Tensor>, dtype: DType) -> Result<Vec<Tensor>> {
    tensors.into_iter().map(|tensor| tensor.detach().to_dtype(dtype)).collect()
}

/// Writes `new` into a tensor that is a variable.
fn set(to: &Tensor, new: &Tensor) -> Result<()> {
    Var::from_tensor(to)?.set(&new.to_dtype(to.dtype())?)
}

impl Space for Tensors {
    type Vector = Vec<Tensor>;
    type Sums = Sums;
    type Error = candle_core::Error;

    /// The numbers may be f32, or computed as such.
    const LARGEST: f64 = f32::MAX as f64;

    fn dimension(&self) -> u64 {
        self.shapes.iter().map(|(shape, _)| shape.elem_count() as u64).sum()
    }

    fn zeros(&self) -> Result<Vec<Tensor>> {
        let one =
            |(shape, _): &(Shape, bool)| Var::zeros(shape, self.wide, &self.device).map(Var::into_inner);
        self.shapes.iter().map(one).collect()
    }

    fn copy(&self, from: &Vec<Tensor>, to: &mut Vec<Tensor>) {
        self.each(0.0, |i, _| set(&to[i], &from[i]));
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut Vec<Tensor>; M],
        read: [&Vec<Tensor>; R],
    ) {
        let change = change.map(|vector| &*vector);
        if self.fused {
            return self.each(decay, |i, info| {
                let (change, read) = (change.map(|vector| &vector[i]), read.map(|vector| &vector[i]));
                match self.wide {
                    DType::F64 => fused::change::<f64, F, S, M, R>(scalars, info, change, read),
                    _ => fused::change::<f32, F, S, M, R>(scalars, info, change, read),
                }
            });
        }
        let plan = Plan::new(Program::of_change::<F, S, M, R>());
        self.each(decay, |i, info| {
            let tensors = change.iter().chain(&read).map(|vector| vector[i].clone());
            let given = given(tensors, self.wide)?;
            let narrow = self.wide != DType::F64;
            let new = plan.run::<OneShape>(narrow, &scalars, info, |i| Ok(given[i].clone()))?;
            let new = new.into_iter().map(|value| match value {
                // A result that is one of the vectors as it was must not see what is written before it.
                Value::Tensor(new) if given.iter().any(|given| place_of(given) == place_of(&new)) => {
                    new.force_contiguous()
                }
                Value::Tensor(new) => Ok(new),
                Value::Number(new) => OneShape::filled(&given[0], new),
            });
            for (to, new) in change.iter().zip(new.collect::<Result<Vec<_>>>()?) {
                set(&to[i], &new)?;
            }
            Ok(())
        });
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vec<Tensor>; R],
        sums: &mut Sums,
        at: usize,
    ) {
        sums.clear(at, K);
        self.sum(formula, scalars, decay, read, sums, |_| at);
    }

    fn sums(&self, count: usize) -> Result<Sums> {
        Ok(Sums { numbers: vec![0.0; count], parts: Vec::new() })
    }

    /// All in one read. Says also what the passes before it could not do.
    fn read(&self, sums: &mut Sums, values: &mut [f64]) -> Result<()> {
        #[cfg(test)]
        READS.set(READS.get() + 1);
        let parts = std::mem::take(&mut sums.parts);
        self.check()?;
        if !parts.is_empty() {
            let dtype = accumulator(&self.device);
            let same = |(_, part): &(usize, Tensor)| part.to_device(&self.device)?.to_dtype(dtype);
            let together = Tensor::stack(&parts.iter().map(same).collect::<Result<Vec<_>>>()?, 0)?;
            let read: Vec<f64> = together.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_vec1()?;
            parts.iter().zip(read).for_each(|((at, _), part)| sums.numbers[*at] += part);
        }
        values.copy_from_slice(&sums.numbers[..values.len()]);
        Ok(())
    }

    /// Where the squares may have left the range of the sums, they are measured again in other units.
    fn norm(&self, v: &Vec<Tensor>, squares: f64) -> Result<f64> {
        let (small, unit) = match (accumulator(&self.device), self.wide) {
            (DType::F64, DType::F64) => (1e-280, 2f64.powi(600)),
            // Squares of f32 are exact in f64.
            (DType::F64, _) => return Ok(squares.sqrt()),
            _ => (1e-30, 2f64.powi(80)),
        };
        let scale = match squares {
            _ if squares < small => unit,
            f64::INFINITY => unit.recip(),
            _ => return Ok(squares.sqrt()),
        };
        let (mut sums, mut values) = (self.sums(1)?, [0.0]);
        self.measure(ScaledSquare, [scale], 0.0, [v], &mut sums, 0);
        self.read(&mut sums, &mut values)?;
        Ok(values[0].sqrt() / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x, y ← y, x`.
    struct Swap;

    impl Change<0, 2, 0> for Swap {
        #[inline(always)]
        fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, [x, y]: [N; 2], _: [N; 0]) -> [N; 2] {
            [y, x]
        }
    }

    /// A result that is a vector of before is written after that vector has changed.
    #[test]
    fn vectors_can_change_places() {
        let tensor = |numbers: [f32; 2]| Var::new(&numbers, &Device::Cpu).map(Var::into_inner);
        for fused in [true, false] {
            let variable = Variable {
                key: "w".into(),
                name: "w".into(),
                var: Var::zeros(2, DType::F32, &Device::Cpu).unwrap(),
            };
            let space = Tensors::new(&[variable], |_| false, fused);
            let (mut x, mut y) = (vec![tensor([1.0, 2.0]).unwrap()], vec![tensor([3.0, 4.0]).unwrap()]);
            space.change(Swap, [], 0.0, [&mut x, &mut y], []);
            space.check().unwrap();
            let numbers = [&x, &y].map(|vector| vector[0].to_vec1::<f32>().unwrap());
            assert_eq!(numbers, [[3.0, 4.0], [1.0, 2.0]], "fused {fused}");
        }
    }
}
