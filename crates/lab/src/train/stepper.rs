//! Makes the steps of a run: the point, its gradient, the method's vectors, and what the configuration puts around a step.

use untuned::optimizers::{Around, At, Keep, Method, Optimizer as _, Space as _};
use untuned::{Observation, Step};
use untuned_net::arena::{Layout, Tensor, View};
use untuned_net::device::{Device, DeviceError};
use untuned_net::formulas::{Combine, Part};
use untuned_net::space::ArenaSpace;

use super::checkpoint::Extra;
use super::config::{Config, Optimizer};
use super::error::TrainError;
use super::schedule;

/// The vectors of a run on its device.
pub(super) struct Stepper<'a, D: Device> {
    device: &'a D,
    space: ArenaSpace<'a, D>,
    x: D::Parameters,
    gradient: D::Parameters,
    /// The mean of the gradients of a step's batches so far, where there are several.
    mean: Option<D::Parameters>,
    batches: usize,
    /// What stays as it is: its gradient is 0, and it does not decay.
    frozen: Vec<View>,
    keeps: Vec<Keep>,
    /// As many as `keeps`.
    kept: Vec<D::Parameters>,
    /// Room for the point to be evaluated, where that is not the current one.
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
    /// At `x0`, the beginning of a run of `steps` steps.
    pub(super) fn new(
        device: &'a D,
        layout: &Layout,
        x0: &[f32],
        method: &Method,
        config: &Config,
        steps: u64,
    ) -> Result<Self, TrainError> {
        let frozen = frozen_views(layout, &config.frozen)?;
        // Scalar rules decay everything, as in the paper's experiments; optimizers decay matrices.
        let mut decayed = match method.is_scalar() {
            true => layout.tensors().iter().map(|tensor| tensor.view).collect(),
            false => layout.matrices(),
        };
        decayed.retain(|view| !frozen.contains(view));
        let space = ArenaSpace::new(device, layout).decaying(&decayed);
        let (x, keeps) = (device.parameters(x0)?, method.keeps());
        let kept = Keep::all(&space, &keeps, &x)?;
        let mean = if config.accumulate > 1 { Some(space.zeros()?) } else { None };
        let mut evaluated = space.zeros()?;
        let evaluated = method.evaluated(&space, &x, &kept, &mut evaluated).then_some(evaluated);
        Ok(Self {
            device,
            gradient: space.zeros()?,
            space,
            x,
            mean,
            batches: config.accumulate,
            frozen,
            keeps,
            kept,
            evaluated,
            optimizer: config.optimizer,
            steps,
        })
    }

    /// The current point.
    pub(super) fn x(&self) -> &D::Parameters {
        &self.x
    }

    /// The gradient of the current point.
    pub(super) fn gradient(&self) -> &D::Parameters {
        &self.gradient
    }

    /// The current point, and where its gradient goes.
    pub(super) fn here(&mut self) -> (&D::Parameters, &mut D::Parameters) {
        (&self.x, &mut self.gradient)
    }

    /// The views that stay as they are.
    pub(super) fn frozen(&self) -> &[View] {
        &self.frozen
    }

    /// Takes the gradient of a step's `n`-th batch, counted from 0. After the last of them [`Stepper::gradient`] is their mean.
    pub(super) fn take_gradient(&mut self, n: usize) {
        for &view in &self.frozen {
            self.device.clear(&mut self.gradient, view);
        }
        let Some(mean) = &mut self.mean else { return };
        let part = (self.batches as f64).recip();
        // No vector takes another's place: a CUDA graph belongs to addresses.
        match n {
            0 => self.space.change(Part, [part], 0.0, [mean], [&self.gradient]),
            _ if n + 1 < self.batches => {
                self.space.change(Combine, [1.0, part], 0.0, [mean], [&self.gradient])
            }
            _ => self.space.change(Combine, [part, 1.0], 0.0, [&mut self.gradient], [mean]),
        }
    }

    /// The point that the run would leave if it ended here.
    pub(super) fn evaluated(&mut self, method: &Method) -> &D::Parameters {
        match &mut self.evaluated {
            None => &self.x,
            Some(to) => {
                method.evaluated(&self.space, &self.x, &self.kept, to);
                to
            }
        }
    }

    /// Whether that is another one than the current one.
    pub(super) fn evaluates_another(&self) -> bool {
        self.evaluated.is_some()
    }

    fn around(&self, step: u64) -> Around {
        let Optimizer { clip, weight_decay, .. } = self.optimizer;
        Around { rate: schedule::rate(&self.optimizer, step, self.steps), clip, weight_decay }
    }

    /// Measures the gradient's squared norm, and behind it what else the method's step wants to know.
    pub(super) fn measure(&mut self, method: &Method, step: u64, sums: &mut D::Scalars, first: usize) {
        let around = self.around(step);
        let Self { device, space, x, gradient, kept, .. } = self;
        if !method.measure(&At { space, around: &around, x, gradient, kept }, sums, first) {
            device.square_norm(gradient, sums, first);
        }
    }

    /// One step from the point that was observed; its size is the effective one, after warm-up and schedule. `Err` is a refusal,
    /// which leaves everything as it was.
    pub(super) fn step(
        &mut self,
        method: &mut Method,
        seen: &Observation,
        sums: &[f64],
    ) -> Result<Step, String> {
        let around = self.around(seen.step);
        let Self { space, x, gradient, kept, .. } = self;
        let at = At { space, around: &around, x, gradient, kept };
        method.step(seen, sums, at).map_err(|refusal| refusal.to_string())
    }

    /// The arrays that a checkpoint needs beside the current point.
    pub(super) fn save(&self, device: &D, len: usize, extra: &mut Extra) -> Result<(), DeviceError> {
        for (keep, from) in self.keeps.iter().zip(&self.kept) {
            let mut values = vec![0.0; len];
            device.get_parameters(from, &mut values)?;
            extra.insert(keep.name.to_string(), values);
        }
        Ok(())
    }

    /// Takes the place that a checkpoint describes.
    pub(super) fn restore(&mut self, device: &D, x: &[f32], extra: &Extra) -> Result<(), TrainError> {
        device.set_parameters(&mut self.x, x);
        for (keep, to) in self.keeps.iter().zip(&mut self.kept) {
            let name = keep.name;
            let values = extra
                .get(name)
                .ok_or_else(|| TrainError::Request(format!("the checkpoint has no array {name}")))?;
            device.set_parameters(to, values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Overrides;
    use super::*;
    use untuned::Setting;
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
        let mut method = config.method(&Setting::new(3)).unwrap();
        let x0 = layout.initial(1);
        let mut stepper = Stepper::new(&device, &layout, &x0, &method, &config, 3).unwrap();
        for step in 0..2 {
            for (n, value) in [3.0, -6.0, 9.0].into_iter().enumerate() {
                device.set_parameters(stepper.here().1, &[value; 32]);
                stepper.take_gradient(n);
            }
            let mut mean = vec![0.0; 32];
            device.get_parameters(stepper.gradient(), &mut mean).unwrap();
            assert_eq!((mean[0], mean[15], mean[16]), (2.0, 2.0, 0.0), "step {step}");
            let mut sums = device.scalars(1).unwrap();
            stepper.measure(&method, step, &mut sums, 0);
            stepper.step(&mut method, &Observation::new(step, 1.0, 8.0), &[]).unwrap();
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
