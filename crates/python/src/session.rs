//! A session of the library on PyTorch's tensors.

use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use untuned::{
    Average, Method, MethodSpec, Optimizer as _, Refusal, Report, RunInfo, SessionError, SpecError,
};

use crate::cuda::{self, Engine, Given, Loss, Stream};
use crate::space::{Tensor, TensorOptions, Tensors, Vector};
use crate::tensors::{self, Device, Lists, Read};
use crate::{average, wrong};

pyo3::create_exception!(
    _untuned,
    Refused,
    PyException,
    "A step was refused: (kind, text). Nothing has changed."
);
pyo3::create_exception!(_untuned, StepsNeeded, PyValueError, "The method needs the number of steps.");

/// The methods whose parameters move from where they are, each by its rate times something. Only for these can groups have rates of
/// their own: the others compute the parameters anew from state, or estimate one distance for all.
const OWN_RATES: [&str; 19] = [
    "gd",
    "clipped-gd",
    "polyak",
    "polyak-bound",
    "inexact-polyak",
    "decsps",
    "adasps",
    "dog",
    "anytime-polyak",
    "level-polyak",
    "sps-max",
    "ali-g",
    "dowg",
    "sgd-momentum",
    "adagrad",
    "adamw",
    "momo",
    "momo-adam",
    "polyak-adam",
];

/// The methods whose rate depends on the weight decay: there is one for all that decays.
const ONE_DECAY: [&str; 2] = ["momo", "momo-adam"];

/// A method at work. PyTorch owns the parameters, the gradients and the state vectors.
#[pyclass]
pub struct Session {
    session: untuned::Session<Method, Tensors>,
    spec: MethodSpec,
    average: Option<Average>,
    options: Vec<TensorOptions>,
    /// The tensors that were read last.
    last: Option<Read>,
    /// Makes the steps where the parameters are on a GPU. The session has its numbers once it is [settled](Session::settle).
    engine: Option<Engine>,
}

/// How a run on a GPU goes: the last step's rate and norm, the steps, the estimate, the warning, the refused steps, those in a row, and
/// the new refusals, each with its kind, its text and its number in the row.
type Progress =
    (Option<(f64, f64)>, u64, Option<f64>, Option<String>, u64, u64, Vec<(&'static str, String, u64)>);

fn failed(error: cuda::Error) -> PyErr {
    PyRuntimeError::new_err(error)
}

/// The method that a spec names. The number of steps may be missing for a method that does not use it.
pub fn build(spec: &MethodSpec, steps: Option<u64>) -> PyResult<Method> {
    let build = |steps| spec.build(&RunInfo::new(steps)).map_err(wrong);
    if let Some(steps) = steps {
        return build(steps);
    }
    let method = build(1_000)?;
    if method == build(2_000)? { Ok(method) } else { Err(StepsNeeded::new_err(spec.name())) }
}

/// The kind of a refusal.
fn kind(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Missing { .. } => "missing",
        Refusal::PastHorizon { .. } => "past-horizon",
        _ => "step",
    }
}

/// A refusal, for Python.
pub fn refused(refusal: Refusal) -> PyErr {
    Refused::new_err((kind(&refusal), refusal.to_string()))
}

impl Session {
    /// Reads the tensors of a step, and remembers them.
    fn read(&mut self, lists: &Lists<'_, '_>) -> PyResult<Read> {
        if lists.state.len() != self.session.vector_names().len() {
            return Err(PyValueError::new_err("the list of state vectors has another length"));
        }
        let read = tensors::read(&self.options, lists, self.last.as_ref())?;
        self.last = Some(read.clone());
        Ok(read)
    }

    /// The engine, where the tensors are on its GPU.
    fn engine_on(&mut self, device: Device) -> PyResult<&mut Engine> {
        match &mut self.engine {
            Some(engine) if device == Device::Cuda(engine.ordinal) => Ok(engine),
            _ => Err(PyRuntimeError::new_err("the tensors are on another device than the engine")),
        }
    }

    /// Sets the tensors and the addresses of a step.
    fn set_addresses(&mut self, tensors: &[Tensor], state: Vec<Vector>, threads: usize) {
        let space = self.session.space_mut();
        space.set(tensors);
        space.threads = threads;
        self.session.vectors_mut().zip(state).for_each(|((_, to), from)| *to = from);
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(spec: &str, total_steps: Option<u64>, averaging: Option<&str>) -> PyResult<Session> {
        let spec: MethodSpec = spec.parse().map_err(|error: SpecError| wrong(error))?;
        let method = build(&spec, total_steps)?;
        let average = averaging.map(average).transpose()?;
        let session = untuned::Session::reserving(method, Tensors::default(), 1)?;
        let mut session = session.average(average).map_err(wrong)?;
        session.start(&Vector::default())?;
        Ok(Session { session, spec, average, options: Vec::new(), last: None, engine: None })
    }

    /// The method and its parameters.
    #[getter]
    fn spec(&self) -> String {
        self.spec.to_string()
    }

    /// The method's name.
    #[getter]
    fn name(&self) -> &'static str {
        self.spec.name()
    }

    /// Whether groups of parameters can have rates of their own.
    #[getter]
    fn takes_group_rates(&self) -> bool {
        OWN_RATES.contains(&self.spec.name())
    }

    /// Whether all that decays must decay alike.
    #[getter]
    fn takes_one_decay(&self) -> bool {
        ONE_DECAY.contains(&self.spec.name())
    }

    /// The names of the vectors that torch keeps, and whether each begins as a copy of the parameters.
    #[getter]
    fn vectors(&self) -> Vec<(&'static str, bool)> {
        let copied: Vec<_> = self
            .session
            .method()
            .state()
            .into_iter()
            .filter(|v| v.copies_parameters)
            .map(|v| v.name)
            .collect();
        // The best point begins as a copy, too, for the sake of parameters that come late.
        let copies = |name| copied.contains(&name) || ["x0", "average", "best"].contains(&name);
        self.session.vector_names().into_iter().map(|name| (name, copies(name))).collect()
    }

    #[getter]
    fn needs_loss(&self) -> bool {
        self.session.method().needs().loss
    }

    #[getter]
    fn needs_scales(&self) -> bool {
        self.session.method().needs().scales
    }

    #[getter]
    fn decays_everything(&self) -> bool {
        self.session.method().decays_everything()
    }

    #[getter]
    fn default_weight_decay(&self) -> f64 {
        self.session.method().default_weight_decay()
    }

    #[getter]
    fn has_evaluation_point(&self) -> bool {
        self.session.has_evaluation_point()
    }

    /// The number of the step that comes, from 0.
    #[getter]
    fn steps(&self) -> u64 {
        self.session.steps()
    }

    /// The number that the method estimates on the way.
    #[getter]
    fn estimate(&self) -> Option<f64> {
        self.session.method().estimate()
    }

    /// What a user should know of how the run goes.
    #[getter]
    fn warning(&self) -> Option<String> {
        self.session.method().warning()
    }

    /// Sets the options of each tensor.
    fn configure(&mut self, options: Vec<TensorOptions>) {
        self.options = options;
    }

    /// Makes a step, and returns its effective rate and the gradient's norm. Lists have one tensor for each parameter. The gradient is
    /// multiplied by `grad_factor` when it is read. `gather` adds up numbers over ranks that have parts of the tensors, and makes the
    /// mean of the first one, which is the loss.
    #[allow(clippy::too_many_arguments)]
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        parameters: &Bound<'py, PyList>,
        gradients: &Bound<'py, PyList>,
        state: Vec<Bound<'py, PyList>>,
        loss: Option<f64>,
        rate: f64,
        weight_decay: f64,
        threads: usize,
        grad_factor: Option<f64>,
        gather: Option<Py<PyAny>>,
    ) -> PyResult<(f64, f64)> {
        let lists = Lists { parameters, gradients: Some(gradients), state: &state, to: None };
        let Read { tensors, mut x, mut gradient, state, .. } = self.read(&lists)?;
        gradient.factor = grad_factor;
        self.set_addresses(&tensors, state, threads);
        (self.session.options.rate, self.session.options.weight_decay) = (rate, weight_decay);
        self.session.space_mut().gather = gather;
        self.session.sums()[0] = loss.unwrap_or(0.0);
        let session = &mut self.session;
        let made = py.detach(|| session.advance_reading(&mut x, &gradient, |read| loss.map(|_| read[0])));
        self.session.space_mut().gather = None;
        match made {
            Ok(Report { rate, grad_norm, .. }) => Ok((rate, grad_norm)),
            Err(SessionError::Refused(refusal)) => Err(refused(refusal)),
            Err(SessionError::Device(error)) => Err(error),
        }
    }

    /// Makes steps on the n-th GPU from now on, where so many were refused before, and in a row.
    fn use_gpu(&mut self, py: Python<'_>, ordinal: u32, refused: u64, in_a_row: u64) -> PyResult<()> {
        self.settle(py)?;
        if self.engine.as_ref().is_none_or(|engine| engine.ordinal != ordinal) {
            let (state, average) = (self.session.save(), self.average);
            self.engine = None;
            let made = py.detach(|| Engine::new(ordinal, state, average, (refused, in_a_row)));
            self.engine = Some(made.map_err(failed)?);
        }
        Ok(())
    }

    /// Makes steps on the CPU from now on.
    fn leave_gpu(&mut self, py: Python<'_>) -> PyResult<()> {
        self.settle(py)?;
        let engine = self.engine.take();
        py.detach(|| drop(engine));
        Ok(())
    }

    /// Gives the first half of a step to the GPU: what is measured goes to the tensor at `sums`, behind the loss, which is a number or
    /// the address of one, and a flag for infinities that a GradScaler found.
    #[allow(clippy::too_many_arguments)]
    fn measure<'py>(
        &mut self,
        py: Python<'py>,
        parameters: &Bound<'py, PyList>,
        gradients: &Bound<'py, PyList>,
        state: Vec<Bound<'py, PyList>>,
        loss: Option<f64>,
        loss_address: u64,
        rate: f64,
        weight_decay: f64,
        found_infinite: u64,
        grad_scale: u64,
        stream: usize,
        sums: u64,
    ) -> PyResult<()> {
        let lists = Lists { parameters, gradients: Some(gradients), state: &state, to: None };
        let Read { device, tensors, x, gradient, state, to } = self.read(&lists)?;
        let tensors = cuda::Tensors::new(tensors, x, gradient, state, to);
        let loss = match (loss, loss_address) {
            (Some(loss), _) => Loss::Known(loss),
            (None, 0) => Loss::None,
            (None, address) => Loss::At(address),
        };
        let stream = Stream(stream);
        let given = Given { stream, loss, found_infinite, grad_scale, rate, weight_decay };
        let engine = self.engine_on(device)?;
        py.detach(|| engine.measure(&tensors, given, sums)).map_err(failed)
    }

    /// Gives the second half of a step to the GPU.
    fn change(&mut self, py: Python<'_>, sums: u64) -> PyResult<()> {
        let Some(engine) = &mut self.engine else {
            return Err(PyRuntimeError::new_err("nothing was measured"));
        };
        py.detach(|| engine.change(sums)).map_err(failed)
    }

    /// How the run goes, as far as the GPU has come. Nothing where there is none.
    fn progress(&mut self) -> PyResult<Option<Progress>> {
        let Some(engine) = &mut self.engine else { return Ok(None) };
        let found = engine.progress().map_err(failed)?;
        let refusals = found
            .refusals
            .into_iter()
            .map(|r| (kind(&r.refusal), r.refusal.to_string(), r.in_a_row))
            .collect();
        let (last, steps, estimate) = (found.last, found.steps, found.estimate);
        Ok(Some((last, steps, estimate, found.warning, found.refused, found.in_a_row, refusals)))
    }

    /// Waits until the GPU has made all steps, and takes over its numbers.
    fn settle(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(engine) = &self.engine {
            py.detach(|| engine.wait()).map_err(failed)?;
            self.session.rewind(engine.save());
        }
        Ok(())
    }

    /// `Σ x²` of each tensor.
    fn squares<'py>(
        &mut self,
        py: Python<'py>,
        parameters: &Bound<'py, PyList>,
        threads: usize,
        stream: usize,
        sums: u64,
    ) -> PyResult<Vec<f64>> {
        let lists = Lists { parameters, gradients: None, state: &[], to: None };
        let read = tensors::read(&vec![TensorOptions::PLAIN; parameters.len()], &lists, None)?;
        if read.device == Device::Cpu {
            let mut space = Tensors::default();
            space.set(&read.tensors);
            space.threads = threads;
            return Ok(py.detach(|| space.squares(&read.x)));
        }
        let engine = self.engine_on(read.device)?;
        let tensors = cuda::Tensors::new(read.tensors, read.x, read.gradient, read.state, read.to);
        py.detach(|| engine.squares(&tensors, Stream(stream), sums)).map_err(failed)
    }

    /// Counts a step that was not made.
    fn skip(&mut self) {
        self.session.skip();
    }

    /// Writes the point to evaluate to tensors like the parameters.
    fn write_evaluation_point<'py>(
        &mut self,
        py: Python<'py>,
        parameters: &Bound<'py, PyList>,
        state: Vec<Bound<'py, PyList>>,
        to: &Bound<'py, PyList>,
        threads: usize,
        stream: usize,
    ) -> PyResult<()> {
        let lists = Lists { parameters, gradients: None, state: &state, to: Some(to) };
        let Read { device, mut tensors, x, gradient, state, mut to } = self.read(&lists)?;
        // The point is written as it is.
        tensors.iter_mut().for_each(|tensor| tensor.options.rate = 1.0);
        if device != Device::Cpu {
            let tensors = cuda::Tensors::new(tensors, x, gradient, state, to);
            let engine = self.engine_on(device)?;
            return py.detach(|| engine.write_evaluation_point(&tensors, Stream(stream))).map_err(failed);
        }
        self.set_addresses(&tensors, state, threads);
        let session = &self.session;
        py.detach(|| session.write_evaluation_point(&x, &mut to));
        Ok(())
    }

    /// The numbers of the session as JSON. The vectors are torch's to save.
    fn save(&self) -> PyResult<String> {
        serde_json::to_string(&self.session.save())
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Goes on from saved numbers, where so many steps were refused, and in a row.
    fn load(&mut self, py: Python<'_>, text: &str, refused: u64, in_a_row: u64) -> PyResult<()> {
        let state: untuned::SessionState<Method> = serde_json::from_str(text).map_err(wrong)?;
        if !self.session.accepts(&state) {
            return Err(PyValueError::new_err("the numbers are of another method"));
        }
        self.settle(py)?;
        if let Some(engine) = &mut self.engine {
            engine.rewind(state.clone(), refused, in_a_row);
        }
        self.session.rewind(state);
        Ok(())
    }
}

/// The pool of threads that passes run on, for a test.
#[pyfunction]
pub fn thread_pool() -> &'static str {
    crate::threads::pool()
}

/// Panics on a thread of a pass, for a test: it must become an exception.
#[pyfunction]
pub fn panics(py: Python<'_>, threads: usize) {
    py.detach(|| crate::threads::run(threads, 100, &|task| assert!(task != 50, "task {task}")));
}
