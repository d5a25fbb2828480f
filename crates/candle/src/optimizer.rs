use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use untuned::optimizers::{
    Around, At, Here, Keep, Measure, Method, Number, Optimizer as _, Plain, Space as _,
};
use untuned::{Observation, Refusal};

use crate::space::{Sums, Tensors};
use crate::variables::{self, Variable};
use crate::{Config, Error, Report};

/// Any method of [`untuned`] as an optimizer of Candle.
///
/// It is a [`candle_nn::Optimizer`]. Its own methods of the same names do the same, and return a [`Report`] or this crate's [`Error`].
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, VarBuilder, VarMap, linear, loss};
/// use untuned_candle::{Config, Untuned};
///
/// # fn main() -> candle_core::Result<()> {
/// let variables = VarMap::new();
/// let model = linear(2, 1, VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
/// let x = Tensor::new(&[[0f32, 1.], [1., 0.], [1., 1.]], &Device::Cpu)?;
/// let y = Tensor::new(&[[1f32], [2.], [3.]], &Device::Cpu)?;
///
/// let mut optimizer = Untuned::of(&variables, Config::new("polyak-adam", 300)?)?;
/// for _ in 0..300 {
///     optimizer.backward_step(&loss::mse(&model.forward(&x)?, &y)?)?;
/// }
/// assert!(optimizer.last().unwrap().loss.unwrap() < 0.05);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Untuned {
    pub(crate) config: Config,
    pub(crate) variables: Vec<Variable>,
    pub(crate) space: Tensors,
    pub(crate) method: Method,
    /// The variables' own tensors: to change one is to change the variable.
    pub(crate) x: Vec<Tensor>,
    pub(crate) kept: Vec<Vec<Tensor>>,
    /// The step that comes.
    pub(crate) step: u64,
    /// What multiplies the method's rate.
    pub(crate) rate: f64,
    pub(crate) x0_norm: f64,
    last: Option<Report>,
    /// Whether a device failed in the middle of a change.
    pub(crate) broken: bool,
}

/// `(scale·g)²`.
struct Square;

impl Measure<1, 1, 1> for Square {
    #[inline(always)]
    fn each<N: Number>([scale]: [N; 1], _: Here<N>, [g]: [N; 1]) -> [N; 1] {
        let g = scale * g;
        [g * g]
    }
}

impl Untuned {
    /// For all variables of a map. Messages and files have their names.
    ///
    /// # Errors
    /// When the configuration cannot be used, or not with these variables.
    pub fn of(variables: &VarMap, config: Config) -> Result<Untuned, Error> {
        let names = match variables.data().lock() {
            Ok(data) => data.clone(),
            // A thread that panicked can have left out variables, but no half ones.
            Err(poisoned) => poisoned.into_inner().clone(),
        };
        Untuned::named(names, config)
    }

    /// For these variables, with their names.
    ///
    /// # Errors
    /// When the configuration cannot be used, or not with these variables.
    pub fn named(
        variables: impl IntoIterator<Item = (String, Var)>,
        config: Config,
    ) -> Result<Untuned, Error> {
        Untuned::begin(variables::named(variables), config)
    }

    /// For these variables. They are numbered in the order in which they were made, whatever the order of the list.
    ///
    /// # Errors
    /// When the configuration cannot be used, or not with these variables.
    pub fn new(variables: Vec<Var>, config: Config) -> Result<Untuned, Error> {
        Untuned::begin(variables::numbered(variables), config)
    }

    fn begin(variables: Vec<Variable>, config: Config) -> Result<Untuned, Error> {
        let method = config.build()?;
        let variables = variables::trained(variables, &config)?;
        // Scalar rules decay everything, as in the paper's experiments; optimizers decay matrices.
        let decays = |var: &Var| method.is_scalar() || var.rank() >= 2;
        let space = Tensors::new(&variables, decays, config.fused)?.ok_or(Error::NoVariables)?;
        let x: Vec<_> = variables.iter().map(|variable| variable.var.as_tensor().clone()).collect();
        let kept = Keep::all(&space, &method.keeps(), &x)?;
        space.check()?;
        let mut squares = Sums::new(1);
        space.measure(Square, [1.0], 0.0, [&x], &mut squares, 0);
        let (x0_norm, ..) = read(&space, &x, squares, None)?;
        if !x0_norm.is_finite() {
            return Err(Error::Start { norm: x0_norm, names: variables::not_finite(&variables, &x) });
        }
        let (step, rate) = (0, 1.0);
        Ok(Untuned {
            config,
            variables,
            space,
            method,
            x,
            kept,
            step,
            rate,
            x0_norm,
            last: None,
            broken: false,
        })
    }

    /// Differentiates the loss, and makes a step.
    ///
    /// # Errors
    /// When a variable got no gradient, or the step is refused; nothing has changed then.
    pub fn backward_step(&mut self, loss: &Tensor) -> Result<Report, Error> {
        check_loss(loss)?;
        self.make(&loss.backward()?, Some(loss))
    }

    /// Makes a step with gradients of one's own, and the loss that they are of. Those of several batches that
    /// [`GradStore::extend`] put together are sums: divide each loss by the number of batches before it is differentiated, and give
    /// the sum of these losses.
    ///
    /// # Errors
    /// As [`Untuned::backward_step`].
    pub fn step_with_loss(&mut self, gradients: &GradStore, loss: &Tensor) -> Result<Report, Error> {
        check_loss(loss)?;
        self.make(gradients, Some(loss))
    }

    /// Makes a step of a method that does not look at the loss.
    ///
    /// # Errors
    /// As [`Untuned::backward_step`]; and when the method [needs the loss](Config::needs_loss).
    pub fn step(&mut self, gradients: &GradStore) -> Result<Report, Error> {
        if self.config.needs_loss() {
            return Err(Error::LossNeeded { method: self.config.method.name() });
        }
        self.make(gradients, None)
    }

    fn make(&mut self, gradients: &GradStore, loss: Option<&Tensor>) -> Result<Report, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        self.check_rate()?;
        let gradient = variables::gradients(&self.variables, gradients)?;
        let around =
            Around { rate: self.rate, clip: self.config.clip, weight_decay: self.config.weight_decay };
        let Untuned { space, method, x, kept, .. } = self;
        let mut sums = Sums::new(1 + method.measures());
        if !method.measure(&At { space, around: &around, x, gradient: &gradient, kept }, &mut sums, 0) {
            space.measure(Square, [1.0], 0.0, [&gradient], &mut sums, 0);
        }
        let (grad_norm, sums, loss) = read(space, &gradient, sums, loss)?;
        let seen = Observation {
            x0_norm: self.x0_norm,
            dimension: x.iter().map(|tensor| tensor.elem_count() as u64).sum(),
            ..Observation::new(self.step, loss.unwrap_or(0.0), grad_norm)
        };
        let at = At { space, around: &around, x, gradient: &gradient, kept };
        let made = match method.step(&seen, &sums, at) {
            Ok(made) => made,
            Err(refusal) => return Err(self.refused(refusal, &gradient)),
        };
        if let Err(error) = space.check() {
            self.broken = true;
            return Err(error.into());
        }
        let report = Report { step: self.step, loss, grad_norm, rate: made.size, kind: made.kind };
        self.step += 1;
        self.last = Some(report);
        Ok(report)
    }

    pub(crate) fn check_rate(&self) -> Result<(), Error> {
        if self.rate.is_finite() && self.rate >= 0.0 {
            return Ok(());
        }
        let what = "the learning rate that was set";
        Err(Error::Number { what, value: self.rate, want: "finite, and 0 or more" })
    }

    /// A refusal, with the names of those whose gradients are no numbers, or where these are, of those that are none themselves.
    fn refused(&self, refusal: Refusal, gradient: &[Tensor]) -> Error {
        let mut variables = Vec::new();
        if matches!(refusal, Refusal::Gradient { .. } | Refusal::NotFinite { .. }) {
            variables = variables::not_finite(&self.variables, gradient);
        }
        if variables.is_empty() && matches!(refusal, Refusal::NotFinite { .. }) {
            variables = variables::not_finite(&self.variables, &self.x);
        }
        Error::Refused { refusal, variables }
    }

    /// The last step that was made here.
    pub fn last(&self) -> Option<&Report> {
        self.last.as_ref()
    }

    /// The steps that were made, those before a [`load`](Untuned::load) included.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// What a user should know of how it goes, in words: an estimate that is stuck, a rate that grows without end.
    pub fn concern(&self) -> Option<String> {
        self.method.concern()
    }

    /// The memory, in bytes, of what the method keeps beside the variables: nothing for most scalar rules, a copy of the variables
    /// for those that measure the distance from the start, up to five for optimizers. Beside numbers of 16 bits it keeps those of 32.
    pub fn kept_bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        self.kept.iter().flatten().map(bytes).sum()
    }

    /// Does something with the variables at the point to be evaluated, which for Schedule-Free methods and with an
    /// [average](Config::average) is another one than the one that is trained. Afterwards the variables are as they were, also when the
    /// work panics.
    ///
    /// # Errors
    /// When there is no memory for another copy of the variables, or an earlier step failed halfway.
    pub fn evaluate<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let Some(trained) = self.move_to_evaluated()? else { return Ok(work()) };
        let result = catch_unwind(AssertUnwindSafe(work));
        let back = self.put_back(&trained);
        match result {
            Ok(result) => back.map(|()| result),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Leaves the variables at the point to be evaluated.
    ///
    /// # Errors
    /// When there is no memory for another copy of the variables, or an earlier step failed halfway.
    pub fn finish(mut self) -> Result<(), Error> {
        self.move_to_evaluated()?;
        Ok(())
    }

    /// Puts the point to be evaluated into the variables, where it is another one, and returns the one that is trained.
    fn move_to_evaluated(&mut self) -> Result<Option<Vec<Tensor>>, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        if !self.has_other_point() {
            return Ok(None);
        }
        let mut trained = self.space.zeros()?;
        self.space.copy(&self.x, &mut trained);
        self.space.check()?;
        self.method.evaluated(&self.space, &trained, &self.kept, &mut self.x);
        if let Err(error) = self.space.check() {
            self.put_back(&trained)?;
            return Err(error.into());
        }
        Ok(Some(trained))
    }

    fn put_back(&mut self, trained: &Vec<Tensor>) -> Result<(), Error> {
        self.space.copy(trained, &mut self.x);
        let back = self.space.check();
        self.broken |= back.is_err();
        Ok(back?)
    }

    /// Whether the point to be evaluated is another one. In a space of no dimensions it costs nothing to ask.
    fn has_other_point(&self) -> bool {
        let kept = vec![Vec::new(); self.kept.len()];
        self.method.evaluated(&Plain::new(0), &Vec::new(), &kept, &mut Vec::new())
    }
}

impl candle_nn::Optimizer for Untuned {
    type Config = Config;

    fn new(vars: Vec<Var>, config: Config) -> candle_core::Result<Untuned> {
        Ok(Untuned::new(vars, config)?)
    }

    fn step(&mut self, grads: &GradStore) -> candle_core::Result<()> {
        self.step(grads)?;
        Ok(())
    }

    /// What multiplies the rate that the method finds: 1, where nothing else was set. The rate itself is in [`Report::rate`].
    fn learning_rate(&self) -> f64 {
        self.rate
    }

    /// Sets what multiplies the rate that the method finds: a warm-up, or a schedule. What cannot be used is refused by the next step.
    fn set_learning_rate(&mut self, lr: f64) {
        self.rate = lr;
    }

    fn backward_step(&mut self, loss: &Tensor) -> candle_core::Result<()> {
        self.backward_step(loss)?;
        Ok(())
    }
}

fn check_loss(loss: &Tensor) -> Result<(), Error> {
    if loss.elem_count() == 1 && loss.dtype().is_float() {
        return Ok(());
    }
    Err(Error::Loss { shape: loss.dims().to_vec(), dtype: loss.dtype() })
}

/// The norm of a vector whose sum of squares is the first of the sums, the others, and the loss: all in one read. A sum of squares
/// that is too small to be exact, or has overflowed, is made again in other units.
fn read(
    space: &Tensors,
    vector: &Vec<Tensor>,
    sums: Sums,
    loss: Option<&Tensor>,
) -> Result<(f64, Vec<f64>, Option<f64>), Error> {
    space.check()?;
    let (mut numbers, loss) = sums.read(loss)?;
    let squares = numbers.remove(0);
    let scale = match space.units() {
        Some((small, unit)) if squares < small => unit,
        Some((_, unit)) if squares == f64::INFINITY => unit.recip(),
        _ => return Ok((squares.sqrt(), numbers, loss)),
    };
    let mut again = Sums::new(1);
    space.measure(Square, [scale], 0.0, [vector], &mut again, 0);
    space.check()?;
    Ok((again.read(None)?.0[0].sqrt() / scale, numbers, loss))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use candle_core::{DType, Device};
    use untuned::average::Average;

    use super::*;
    use crate::space::READS;

    fn optimizer(value: f32, dtype: DType, fused: bool) -> (Untuned, Var) {
        let values = Tensor::full(value, 3, &Device::Cpu).unwrap();
        let var = Var::from_tensor(&values.to_dtype(dtype).unwrap()).unwrap();
        let average = Some(Average::Uniform);
        let config = Config { fused, average, ..Config::new("momo", 10).unwrap() };
        (Untuned::new(vec![var.clone()], config).unwrap(), var)
    }

    /// A second one is only for squares that f64 may not hold: those of f64.
    #[test]
    fn a_step_reads_once() {
        for (dtype, fused, reads_of_zero) in [
            (DType::F32, true, 1),
            (DType::F32, false, 1),
            (DType::BF16, false, 1),
            (DType::F64, true, 2),
            (DType::F64, false, 2),
        ] {
            for (x, want) in [(0.0, reads_of_zero), (1.0, 1)] {
                let (mut optimizer, var) = optimizer(x, dtype, fused);
                let before = READS.get();
                optimizer.backward_step(&var.sqr().unwrap().sum_all().unwrap()).unwrap();
                assert_eq!(READS.get() - before, want, "{dtype:?} {fused} {x}");
            }
        }
    }

    #[test]
    fn what_is_broken_is_not_evaluated() {
        let (mut optimizer, _) = optimizer(1.0, DType::F32, true);
        optimizer.broken = true;
        assert!(matches!(optimizer.evaluate(|| ()), Err(Error::Broken)));
        assert!(matches!(optimizer.finish(), Err(Error::Broken)));
    }
}
