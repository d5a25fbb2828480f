//! A pass as one loop over the numbers of each tensor, where they lie in the memory of the CPU, with the widest instructions that it has.

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, Tensor, WithDType, bail};
use pulp::Arch;
use std::cell::RefCell;
use std::ops::Deref;
use untuned::formula::{Change, Measure, Number, TensorInfo};
use untuned::slices::{self, Sums};

/// The numbers of a tensor on the CPU, f64 or f32.
pub(crate) trait Element: Number + WithDType + Into<f64> {
    /// Those of a storage, where they are such.
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

impl Element for f32 {
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [f32]> {
        if let CpuStorage::F32(numbers) = storage { Some(numbers) } else { None }
    }
}

impl Element for f64 {
    fn of_storage(storage: &mut CpuStorage) -> Option<&mut [f64]> {
        if let CpuStorage::F64(numbers) = storage { Some(numbers) } else { None }
    }
}

/// Changes tensors of one shape.
pub(crate) fn change<T, F, const S: usize, const M: usize, const R: usize>(
    scalars: [f64; S],
    info: TensorInfo<f64>,
    change: [&Tensor; M],
    read: [&Tensor; R],
) -> Result<()>
where
    T: Element,
    F: Change<S, M, R>,
{
    let locks = read.map(|tensor| tensor.storage_and_layout());
    let given = numbers(&locks)?;
    writing(&change, &mut [], &mut |written: &mut [&mut [T]]| {
        let written = std::array::from_fn(|i| std::mem::take(&mut written[i]));
        Arch::new().dispatch(
            #[inline(always)]
            move || slices::change::<T, F, S, M, R>(scalars, info, written, given),
        );
    })
}

/// Sums over tensors of one shape.
pub(crate) fn measure<T, F, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    info: TensorInfo<f64>,
    read: [&Tensor; R],
) -> Result<[f64; K]>
where
    T: Element,
    F: Measure<S, R, K>,
{
    let locks = read.map(|tensor| tensor.storage_and_layout());
    let given = numbers(&locks)?;
    let sums = Arch::new().dispatch(
        #[inline(always)]
        move || slices::measure::<T, F, S, R, K>(scalars, info, given, Sums::ZERO),
    );
    Ok(sums.total())
}

/// The numbers of tensors that are locked.
fn numbers<'a, T: Element, const R: usize>(
    locks: &'a [(impl Deref<Target = Storage>, &Layout); R],
) -> Result<[&'a [T]; R]> {
    let mut given: [&[T]; R] = [&[]; R];
    for (slice, (storage, layout)) in given.iter_mut().zip(locks) {
        *slice = match (&**storage, layout.contiguous_offsets()) {
            (Storage::Cpu(cpu), Some((start, end))) => &cpu.as_slice::<T>()?[start..end],
            _ => bail!("a tensor that is not contiguous on the CPU"),
        };
    }
    Ok(given)
}

/// Calls `work` with the numbers of all these tensors, to be changed. Candle lends one tensor's at a time, to an operation in
/// place: each of these asks for the next.
fn writing<T: Element>(
    tensors: &[&Tensor],
    taken: &mut [&mut [T]],
    work: &mut dyn FnMut(&mut [&mut [T]]),
) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else {
        work(taken);
        return Ok(());
    };
    let next = |storage: &mut CpuStorage, layout: &Layout| {
        let (Some((start, end)), Some(numbers)) = (layout.contiguous_offsets(), T::of_storage(storage))
        else {
            bail!("a variable that is not contiguous, or of another dtype than the others")
        };
        let numbers = &mut numbers[start..end];
        let mut taken: Vec<&mut [T]> = taken.iter_mut().map(|numbers| &mut **numbers).collect();
        taken.push(numbers);
        writing(rest, &mut taken, work)
    };
    first.inplace_op1(&Lent(RefCell::new(next)))
}

/// What is done with the numbers that were lent.
struct Lent<F>(RefCell<F>);

impl<F: FnMut(&mut CpuStorage, &Layout) -> Result<()>> InplaceOp1 for Lent<F> {
    fn name(&self) -> &'static str {
        "untuned"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        (self.0.borrow_mut())(storage, layout)
    }
}
