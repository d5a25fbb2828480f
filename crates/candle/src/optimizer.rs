use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use untuned::{MadeFor, Method, Optimizer, Refusal, Report, Session, SessionError, Space as _, space};

use crate::config::check;
use crate::space::Tensors;
use crate::variables::{self, Variable};
use crate::{Config, Error};

/// Any method of [`untuned`], or one of your own, as an optimizer of Candle.
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
pub struct Untuned<M = Method> {
    pub(crate) session: Session<M, Tensors>,
    pub(crate) variables: Vec<Variable>,
    /// The variables' own tensors: to change one is to change the variable.
    pub(crate) x: Vec<Tensor>,
    pub(crate) made_for: MadeFor<M>,
    /// Whether a device failed in the middle of a change.
    pub(crate) broken: bool,
}

impl<M: Optimizer + Clone> Untuned<M> {
    /// For all variables of a map. Messages and files have their names.
    ///
    /// # Errors
    /// When the configuration cannot be used, or not with these variables.
    pub fn of(variables: &VarMap, config: Config<M>) -> Result<Untuned<M>, Error> {
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
        config: Config<M>,
    ) -> Result<Untuned<M>, Error> {
        Untuned::begin(variables::named(variables), config)
    }

    /// For these variables. They are numbered in the order in which they were made, whatever the order of the list.
    ///
    /// # Errors
    /// When the configuration cannot be used, or not with these variables.
    pub fn new(variables: Vec<Var>, config: Config<M>) -> Result<Untuned<M>, Error> {
        Untuned::begin(variables::numbered(variables), config)
    }

    fn begin(variables: Vec<Variable>, config: Config<M>) -> Result<Untuned<M>, Error> {
        config.check()?;
        let variables = variables::trained(variables, &config)?;
        let options = config.options();
        let Config { method, text, average, fused, .. } = config;
        let x: Vec<_> = variables.iter().map(|variable| variable.var.as_tensor().clone()).collect();
        let decays = |var: &Var| method.decays_everything() || var.rank() >= 2;
        let mut space = Tensors::new(&variables, decays, fused);
        let squares = space.squares(&x)?;
        let norm = space.norm(&x, squares.iter().sum())?;
        if !norm.is_finite() {
            return Err(Error::Start { norm, names: variables::not_finite(&variables, &x) });
        }
        if method.needs().scales {
            let size = |(x, squares): (&Tensor, f64)| (x.rank() >= 2, x.elem_count(), squares);
            space.scales = space::scales(x.iter().zip(squares).map(size));
        }
        let mut session = Session::reserving(method.clone(), space, 1)?.average(average)?;
        session.options = options;
        session.start(&x)?;
        session.space().check()?;
        let made_for = MadeFor { text, average, ..MadeFor::new(method) };
        Ok(Untuned { session, variables, x, made_for, broken: false })
    }
}

impl<M: Optimizer> Untuned<M> {
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
        let method = self.method();
        if method.needs().loss {
            return Err(Error::LossNeeded { method: method.name().to_string() });
        }
        self.make(gradients, None)
    }

    fn make(&mut self, gradients: &GradStore, loss: Option<&Tensor>) -> Result<Report, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        check(&self.session.options)?;
        let gradient = variables::gradients(&self.variables, gradients)?;
        if let Some(loss) = loss {
            self.session.sums().set(0, loss)?;
        }
        let number = |read: &[f64]| loss.map(|_| read[0]);
        match self.session.advance_reading(&mut self.x, &gradient, number) {
            Ok(report) => {
                let changed = self.session.space().check();
                self.broken = changed.is_err();
                changed.map(|()| report).map_err(Error::from)
            }
            Err(SessionError::Refused(refusal)) => Err(self.refused(refusal, &gradient)),
            Err(SessionError::Device(error)) => Err(error.into()),
        }
    }

    /// A refusal, with the names of the variables whose gradients are not finite, or else of those that are not finite themselves.
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
        self.session.last()
    }

    /// The steps that were made, those before a [`load`](Untuned::load) included.
    pub fn steps(&self) -> u64 {
        self.session.steps()
    }

    /// The method, with its numbers.
    pub fn method(&self) -> &M {
        self.session.method()
    }

    /// A warning if the run looks wrong: an estimate that never moves, or a rate that grows without bound.
    pub fn warning(&self) -> Option<String> {
        self.method().warning()
    }

    /// The memory, in bytes, of the vectors beside the variables: none for most scalar rules, a copy of the variables for those that
    /// measure the distance from the start, up to five for optimizers. Beside variables of 16 bits the vectors are f32.
    pub fn kept_bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        self.session.vectors().flat_map(|(_, vector)| vector).map(bytes).sum()
    }

    /// Calls `work` with the variables at the point to evaluate. For Schedule-Free methods and with an [average](Config::average) that is
    /// not the point that is trained. Afterwards the variables are as they were, also when `work` panics.
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

    /// Leaves the variables at the point to evaluate.
    ///
    /// # Errors
    /// When there is no memory for another copy of the variables, or an earlier step failed halfway.
    pub fn finish(mut self) -> Result<(), Error> {
        self.move_to_evaluated()?;
        Ok(())
    }

    /// Puts the point to evaluate into the variables, where it is another one, and returns the one that is trained.
    fn move_to_evaluated(&mut self) -> Result<Option<Vec<Tensor>>, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        if !self.session.has_evaluation_point() {
            return Ok(None);
        }
        let space = self.session.space();
        let mut trained = space.zeros()?;
        space.copy(&self.x, &mut trained);
        space.check()?;
        self.session.write_evaluation_point(&trained, &mut self.x);
        if let Err(error) = space.check() {
            self.put_back(&trained)?;
            return Err(error.into());
        }
        Ok(Some(trained))
    }

    fn put_back(&mut self, trained: &Vec<Tensor>) -> Result<(), Error> {
        let space = self.session.space();
        space.copy(trained, &mut self.x);
        let back = space.check();
        self.broken |= back.is_err();
        Ok(back?)
    }
}

impl<M: Optimizer + Clone> candle_nn::Optimizer for Untuned<M> {
    type Config = Config<M>;

    fn new(vars: Vec<Var>, config: Config<M>) -> candle_core::Result<Untuned<M>> {
        Ok(Untuned::new(vars, config)?)
    }

    fn step(&mut self, grads: &GradStore) -> candle_core::Result<()> {
        self.step(grads)?;
        Ok(())
    }

    /// What multiplies the rate that the method finds: 1, where nothing else was set. The rate itself is in [`Report::rate`].
    fn learning_rate(&self) -> f64 {
        self.session.options.rate
    }

    /// Sets what multiplies the rate that the method finds: a warm-up, or a schedule. What cannot be used is refused by the next step.
    fn set_learning_rate(&mut self, lr: f64) {
        self.session.options.rate = lr;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use candle_core::{DType, Device};

    use untuned::Average;

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

    /// The start is read once, and that read has the scales of all matrices, for a method that needs them.
    #[test]
    fn the_start_is_read_once() {
        for fused in [true, false] {
            for matrices in [1, 2, 7] {
                for (method, scaled) in [("adamw", false), ("polyak-adam", true)] {
                    let matrix =
                        |i: usize| Var::from_tensor(&Tensor::full(1.0 + i as f32, (2, 3), &Device::Cpu)?);
                    let vars = (0..matrices).map(matrix).collect::<Result<_, _>>().unwrap();
                    let before = READS.get();
                    let config = Config { fused, ..Config::new(method, 10).unwrap() };
                    let optimizer = Untuned::new(vars, config).unwrap();
                    assert_eq!(READS.get() - before, 1, "{method}, {matrices}, fused {fused}");
                    let scales = &optimizer.session.space().scales;
                    assert_eq!(
                        scales.iter().any(|&scale| scale != 1.0),
                        scaled && matrices > 1,
                        "{scales:?}"
                    );
                }
            }
        }
    }

    /// A change that fails cannot be taken back: only a load helps then. A measurement that fails has changed nothing.
    #[test]
    fn a_step_that_fails() {
        for (method, broken) in [("gd:lr=1", true), ("dog", false)] {
            let var = Var::new(&[1f32], &Device::Cpu).unwrap();
            let mut optimizer = Untuned::new(vec![var.clone()], Config::new(method, 10).unwrap()).unwrap();
            let x = std::mem::replace(&mut optimizer.x[0], Tensor::new(&[1f64], &Device::Cpu).unwrap());
            let loss = var.sum_all().unwrap();
            assert!(matches!(optimizer.backward_step(&loss), Err(Error::Candle(_))), "{method}");
            optimizer.x[0] = x;
            assert_eq!(matches!(optimizer.backward_step(&loss), Err(Error::Broken)), broken, "{method}");
            assert_eq!(matches!(optimizer.evaluate(|| ()), Err(Error::Broken)), broken, "{method}");
            assert_eq!(optimizer.finish().is_err(), broken, "{method}");
        }
    }
}
