//! Makes the steps of a run: the point, its gradient, and the session of the method.

use untuned::{Method, Report, Session, SessionError, SessionState, Space as _, StepOptions};
use untuned_net::arena::{Layout, Tensor, View};
use untuned_net::device::{Device, DeviceError};
use untuned_net::formulas::{Combine, Part};
use untuned_net::models::SCALARS;
use untuned_net::space::ArenaSpace;

use super::checkpoint::Extra;
use super::config::{Config, Optimizer};
use super::error::TrainError;
use super::schedule;

/// The vectors of a run on its device.
pub(super) struct Stepper<'a, D: Device> {
    session: Session<Method, ArenaSpace<'a, D>>,
    x: D::Parameters,
    gradient: D::Parameters,
    /// The mean of the gradients of a step's batches so far, where there are several.
    mean: Option<D::Parameters>,
    batches: usize,
    /// Memory for the point to evaluate, where that is not the current one.
    evaluated: Option<D::Parameters>,
    optimizer: Optimizer,
    steps: u64,
}

/// The views of the tensors that `frozen` names.
///
/// # Errors
/// When there is no such tensor.
pub(super) fn frozen_views(layout: &Layout, frozen: &[String]) -> Result<Vec<View>, TrainError> {
    let is = |tensor: &str, name: &str| {
        tensor.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let tensors = layout.tensors();
    if let Some(name) = frozen.iter().find(|name| !tensors.iter().any(|tensor| is(&tensor.name, name))) {
        let near = |tensor: &&Tensor| -> usize { strsim::damerau_levenshtein(&tensor.name, name) };
        let nearest = tensors.iter().min_by_key(near).map_or("", |tensor| &tensor.name);
        return Err(TrainError::Request(format!(
            "frozen: no tensor is called {name:?} or begins with it and a dot; the nearest is {nearest:?}"
        )));
    }
    let chosen = tensors.iter().filter(|tensor| frozen.iter().any(|name| is(&tensor.name, name)));
    Ok(chosen.map(|tensor| tensor.view).collect())
}

impl<'a, D: Device> Stepper<'a, D> {
    /// At `x0`, the start of a run of `steps` steps.
    pub(super) fn new(
        device: &'a D,
        layout: &Layout,
        x0: &[f32],
        method: Method,
        config: &Config,
        steps: u64,
    ) -> Result<Self, TrainError> {
        let frozen = frozen_views(layout, &config.frozen)?;
        let space = ArenaSpace::new(device, layout, &method).freezing(frozen);
        let x = device.parameters(x0)?;
        let gradient = space.zeros()?;
        let mean = if config.accumulate > 1 { Some(space.zeros()?) } else { None };
        let mut session = Session::reserving(method, space, SCALARS)?.average(config.optimizer.average)?;
        session.start(&x)?;
        let evaluated = session.has_evaluation_point().then(|| session.space().zeros()).transpose()?;
        let (batches, optimizer) = (config.accumulate, config.optimizer);
        Ok(Self { session, x, gradient, mean, batches, evaluated, optimizer, steps })
    }

    /// The current point.
    pub(super) fn x(&self) -> &D::Parameters {
        &self.x
    }

    /// The gradient of the current point.
    pub(super) fn gradient(&self) -> &D::Parameters {
        &self.gradient
    }

    /// What a batch's gradient needs: the current point, and the buffers for its gradient and its loss.
    pub(super) fn batch_buffers(&mut self) -> (&D::Parameters, &mut D::Parameters, &mut D::Scalars) {
        (&self.x, &mut self.gradient, self.session.sums())
    }

    /// The views that stay as they are.
    pub(super) fn frozen(&self) -> &[View] {
        self.session.space().frozen()
    }

    /// The method, with its numbers.
    pub(super) fn method(&self) -> &Method {
        self.session.method()
    }

    /// The norm of the last step's gradient.
    pub(super) fn grad_norm(&self) -> f64 {
        self.session.seen().map_or(f64::NAN, |seen| seen.grad_norm)
    }

    /// Takes the gradient of a step's `n`-th batch, counted from 0. After the last of them [`Stepper::gradient`] is their mean.
    pub(super) fn take_gradient(&mut self, n: usize) {
        let space = self.session.space();
        space.clear_frozen(&mut self.gradient);
        let Some(mean) = &mut self.mean else { return };
        let part = (self.batches as f64).recip();
        // Vectors are never swapped: a CUDA graph belongs to addresses.
        match n {
            0 => space.change(Part, [part], 0.0, [mean], [&self.gradient]),
            _ if n + 1 < self.batches => space.change(Combine, [1.0, part], 0.0, [mean], [&self.gradient]),
            _ => space.change(Combine, [part, 1.0], 0.0, [&mut self.gradient], [mean]),
        }
    }

    /// The point that the run would leave if it ended here.
    pub(super) fn evaluated(&mut self) -> &D::Parameters {
        match &mut self.evaluated {
            None => &self.x,
            Some(to) => {
                self.session.write_evaluation_point(&self.x, to);
                to
            }
        }
    }

    /// Whether the point to evaluate is another one than the current one.
    pub(super) fn has_evaluation_point(&self) -> bool {
        self.evaluated.is_some()
    }

    /// Makes a step. `loss` computes the loss from the scalars of [`Stepper::batch_buffers`], once they are read. The inner `Err` is a
    /// refusal: nothing changes, but the step counts.
    pub(super) fn advance(
        &mut self,
        loss: impl FnOnce(&[f64]) -> f64,
    ) -> Result<Result<Report, String>, DeviceError> {
        let Optimizer { clip, weight_decay, .. } = self.optimizer;
        let rate = schedule::rate(&self.optimizer, self.session.steps(), self.steps);
        self.session.options = StepOptions { rate, clip, weight_decay };
        match self.session.advance_reading(&mut self.x, &self.gradient, |values| Some(loss(values))) {
            Ok(report) => Ok(Ok(report)),
            Err(SessionError::Refused(refusal)) => {
                self.session.skip();
                Ok(Err(refusal.to_string()))
            }
            Err(SessionError::Device(error)) => Err(error),
        }
    }

    /// What a checkpoint needs beside the current point: the numbers, and the arrays.
    pub(super) fn save(
        &self,
        device: &D,
        len: usize,
        extra: &mut Extra,
    ) -> Result<SessionState<Method>, DeviceError> {
        for (name, from) in self.session.vectors() {
            let mut values = vec![0.0; len];
            device.get_parameters(from, &mut values)?;
            extra.insert(name.to_string(), values);
        }
        Ok(self.session.save())
    }

    /// Goes on from a checkpoint.
    pub(super) fn restore(
        &mut self,
        device: &D,
        x: &[f32],
        state: SessionState<Method>,
        extra: &Extra,
    ) -> Result<(), TrainError> {
        device.set_parameters(&mut self.x, x);
        self.session.load(state, &self.x, |_, name, to| {
            let missing = || TrainError::Request(format!("the checkpoint has no array {name}"));
            device.set_parameters(to, extra.get(name).ok_or_else(missing)?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Overrides;
    use super::*;
    use untuned::RunInfo;
    use untuned_net::arena::Initial;
    use untuned_net::cpu::Cpu;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.matrix("matrix", 1, 16, Initial::Constant(1.0));
        layout.vector("norm", 16, Initial::Constant(1.0));
        layout
    }

    /// The gradient of three batches of which each is a constant, and where a step of gradient descent with the rate 1 leads.
    #[test]
    fn the_gradient_of_several_batches_is_their_mean() {
        let text = "model = \"gpt\"\nsteps = 3\nrule = \"gd:lr=1\"\naccumulate = 3\nfrozen = [\"norm\"]\n\
            optimizer.weight_decay = 0.5\ndevice = \"cpu\"\n";
        let config = Config::resolve(text, "x", "x", &Overrides::default()).unwrap();
        let (device, layout) = (Cpu::<f32>::new(Some(2)).unwrap(), layout());
        let method = config.rule.build(&RunInfo::new(3)).unwrap();
        let x0 = layout.initial(1);
        let mut stepper = Stepper::new(&device, &layout, &x0, method, &config, 3).unwrap();
        for step in 0..2 {
            for (n, value) in [3.0, -6.0, 9.0].into_iter().enumerate() {
                device.set_parameters(stepper.batch_buffers().1, &[value; 32]);
                stepper.take_gradient(n);
            }
            let mut mean = vec![0.0; 32];
            device.get_parameters(stepper.gradient(), &mut mean).unwrap();
            assert_eq!((mean[0], mean[15], mean[16]), (2.0, 2.0, 0.0), "step {step}");
            let report = stepper.advance(|_| 1.0).unwrap().unwrap();
            assert_eq!((report.step, report.grad_norm), (step, 8.0));
        }
        let mut x = vec![0.0; 32];
        device.get_parameters(stepper.x(), &mut x).unwrap();
        // 1·(1 − 0.5) − 2, and from there the same; what is frozen does not decay.
        assert_eq!((x[0], x[16]), (-1.5 * 0.5 - 2.0, 1.0));
    }

    #[test]
    fn names_stand_for_all_that_begins_with_them_and_a_dot() {
        let mut layout = Layout::default();
        let parts = ["a.b", "a.c", "ab"].map(|name| layout.vector(name, 3, Initial::Constant(0.0)));
        let views = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            frozen_views(&layout, &names).map_err(|error| error.to_string())
        };
        assert_eq!(views(&["a"]).unwrap(), parts[..2]);
        assert_eq!(views(&["a.c", "ab"]).unwrap(), parts[1..]);
        assert!(views(&["a.d"]).unwrap_err().contains("\"a.d\""));
        assert!(views(&["a."]).unwrap_err().contains("nearest is"));
    }
}
