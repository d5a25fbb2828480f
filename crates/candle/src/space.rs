//! Lists of tensors as the space that a method works in.

use std::cell::RefCell;

use candle_core::{DType, Device, Result, Tensor, Var};
use untuned::optimizers::formula::Program;
use untuned::optimizers::interpreter::{Plan, Value};
use untuned::optimizers::{Change, Here, Measure, Space, scales};

use crate::fused;
use crate::tensors::{OneShape, scalar};
use crate::variables::{Variable, place_of};

/// One tensor for each variable, in their order.
#[derive(Debug)]
pub(crate) struct Tensors {
    /// The shape of each, and whether it decays.
    shapes: Vec<(Vec<usize>, bool)>,
    /// Of each, how large its numbers are at the start, beside those of the others.
    pub(crate) scales: Vec<f64>,
    device: Device,
    /// Of what a method keeps and computes with: numbers of 16 bits are f32 there.
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

#[cfg(test)]
thread_local! {
    /// How often this thread read sums.
    pub(crate) static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Sums {
    pub(crate) fn new(count: usize) -> Sums {
        Sums { numbers: vec![0.0; count], parts: Vec::new() }
    }

    /// All sums, and the loss, in one read.
    pub(crate) fn read(mut self, loss: Option<&Tensor>) -> Result<(Vec<f64>, Option<f64>)> {
        #[cfg(test)]
        READS.set(READS.get() + 1);
        let device = self.parts.first().map(|(_, part)| part.device());
        let alone = |loss: &Tensor| {
            let device = device.unwrap_or(loss.device());
            loss.detach().reshape(())?.to_device(device)
        };
        let loss = loss.map(alone).transpose()?;
        let on_device: Vec<&Tensor> = self.parts.iter().map(|(_, part)| part).chain(&loss).collect();
        let Some(first) = on_device.first() else { return Ok((self.numbers, None)) };
        let dtype = accumulator(first.device());
        let same = |tensor: &&Tensor| tensor.to_dtype(dtype);
        let together = Tensor::stack(&on_device.iter().map(same).collect::<Result<Vec<_>>>()?, 0)?;
        let values: Vec<f64> = match dtype {
            DType::F64 => together.to_vec1()?,
            _ => together.to_vec1::<f32>()?.into_iter().map(f64::from).collect(),
        };
        self.parts.iter().zip(&values).for_each(|((at, _), value)| self.numbers[*at] += value);
        let loss = loss.and(values.last().copied());
        Ok((self.numbers, loss))
    }
}

/// What sums are added in: f64, except on Metal, which has none. There a tensor's part is f32, and the parts are added in f64.
fn accumulator(device: &Device) -> DType {
    if device.is_metal() { DType::F32 } else { DType::F64 }
}

impl Tensors {
    /// For these variables, of one kind; `decays` says of a variable whether it decays.
    pub(crate) fn new(
        variables: &[Variable],
        decays: impl Fn(&Var) -> bool,
        fused: bool,
    ) -> Result<Option<Tensors>> {
        let Some(Variable { var: first, .. }) = variables.first() else { return Ok(None) };
        let wide = if first.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let fused = fused && first.device().is_cpu() && first.dtype() == wide;
        let sizes = variables.iter().map(|variable| {
            let var = &variable.var;
            let matrix = var.rank() >= 2;
            Ok((matrix, var.elem_count(), if matrix { square_sum(var)? } else { 0.0 }))
        });
        Ok(Some(Tensors {
            scales: scales(sizes.collect::<Result<Vec<_>>>()?),
            shapes: variables.iter().map(|v| (v.var.dims().to_vec(), decays(&v.var))).collect(),
            device: first.device().clone(),
            wide,
            fused,
            failure: RefCell::new(None),
        }))
    }

    /// What Candle could not do since this was asked last.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// The sum of squares below which it is not exact, and a unit that makes larger ones of small numbers. Squares of f32 are always
    /// exact in f64.
    pub(crate) fn units(&self) -> Option<(f64, f64)> {
        match (accumulator(&self.device), self.wide) {
            (DType::F64, DType::F64) => Some((1e-280, 2f64.powi(600))),
            (DType::F64, _) => None,
            _ => Some((1e-30, 2f64.powi(80))),
        }
    }

    /// Does something for every variable, until it fails.
    fn each(&self, decay: f64, mut work: impl FnMut(usize, Here<f64>) -> Result<()>) {
        if self.failure.borrow().is_some() {
            return;
        }
        for (i, (_, decays)) in self.shapes.iter().enumerate() {
            let here = Here { decay: if *decays { decay } else { 0.0 }, scale: self.scales[i] };
            if let Err(error) = work(i, here) {
                *self.failure.borrow_mut() = Some(error);
                return;
            }
        }
    }

    /// Tensors to compute with. They are no variables: nobody wants a gradient of this.
    fn given(&self, tensors: impl IntoIterator<Item = Tensor>, dtype: DType) -> Result<Vec<Tensor>> {
        tensors.into_iter().map(|tensor| tensor.detach().to_dtype(dtype)).collect()
    }
}

/// `Σ v²`.
fn square_sum(var: &Var) -> Result<f64> {
    let dtype = accumulator(var.device());
    let sum = var.as_detached_tensor().to_dtype(dtype)?.sqr()?.sum_all()?;
    match dtype {
        DType::F64 => sum.to_scalar(),
        _ => Ok(f64::from(sum.to_scalar::<f32>()?)),
    }
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

    fn zeros(&self) -> Result<Vec<Tensor>> {
        let one = |(shape, _): &(Vec<usize>, bool)| Var::zeros(shape.as_slice(), self.wide, &self.device);
        self.shapes.iter().map(|shape| one(shape).map(Var::into_inner)).collect()
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
            return self.each(decay, |i, here| {
                let (change, read) = (change.map(|vector| &vector[i]), read.map(|vector| &vector[i]));
                match self.wide {
                    DType::F64 => fused::change::<f64, F, S, M, R>(scalars, here, change, read),
                    _ => fused::change::<f32, F, S, M, R>(scalars, here, change, read),
                }
            });
        }
        let plan = Plan::new(Program::of_change::<F, S, M, R>());
        self.each(decay, |i, here| {
            let tensors = change.iter().chain(&read).map(|vector| vector[i].clone());
            let given = self.given(tensors, self.wide)?;
            let narrow = self.wide != DType::F64;
            let mut new = plan.run::<OneShape>(narrow, &scalars, here, |i| Ok(given[i].clone()))?;
            // A result that is one of the vectors as it was must not see what is written before it.
            for value in &mut new {
                match value {
                    Value::Tensor(tensor)
                        if given.iter().any(|given| place_of(given) == place_of(tensor)) =>
                    {
                        *tensor = tensor.force_contiguous()?;
                    }
                    _ => {}
                }
            }
            for (to, new) in change.iter().map(|vector| &vector[i]).zip(new) {
                match new {
                    Value::Tensor(new) => set(to, &new)?,
                    Value::Number(new) => {
                        set(to, &scalar(new, self.wide, &self.device)?.broadcast_as(to.shape())?)?
                    }
                }
            }
            Ok(())
        });
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vec<Tensor>; R],
        sums: &mut Sums,
        at: usize,
    ) {
        sums.numbers[at..at + K].fill(0.0);
        if self.fused {
            return self.each(decay, |i, here| {
                let read = read.map(|vector| &vector[i]);
                let parts: [f64; K] = match self.wide {
                    DType::F64 => fused::measure::<f64, F, S, R, K>(scalars, here, read)?,
                    _ => fused::measure::<f32, F, S, R, K>(scalars, here, read)?,
                };
                sums.numbers[at..].iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
                Ok(())
            });
        }
        let plan = Plan::new(Program::of_measure::<F, S, R, K>());
        let dtype = accumulator(&self.device);
        self.each(decay, |i, here| {
            let given = self.given(read.map(|vector| vector[i].clone()), dtype)?;
            let narrow = dtype != DType::F64;
            let terms = plan.run::<OneShape>(narrow, &scalars, here, |i| Ok(given[i].clone()))?;
            for (k, term) in terms.into_iter().enumerate() {
                match term {
                    Value::Tensor(term) => sums.parts.push((at + k, term.sum_all()?)),
                    Value::Number(term) => sums.numbers[at + k] += term * read[0][i].elem_count() as f64,
                }
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use untuned::optimizers::Number;

    /// `x, y ← y, x`.
    struct Swap;

    impl Change<0, 2, 0> for Swap {
        #[inline(always)]
        fn each<N: Number>(_: [N; 0], _: Here<N>, [x, y]: [N; 2], _: [N; 0]) -> [N; 2] {
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
            let space = Tensors::new(&[variable], |_| false, fused).unwrap().unwrap();
            let (mut x, mut y) = (vec![tensor([1.0, 2.0]).unwrap()], vec![tensor([3.0, 4.0]).unwrap()]);
            space.change(Swap, [], 0.0, [&mut x, &mut y], []);
            space.check().unwrap();
            let numbers = [&x, &y].map(|vector| vector[0].to_vec1::<f32>().unwrap());
            assert_eq!(numbers, [[3.0, 4.0], [1.0, 2.0]], "fused {fused}");
        }
    }
}
