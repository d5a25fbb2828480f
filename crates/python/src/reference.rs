//! The library's own f64 vectors, for tests of what is computed on torch's tensors.

use pyo3::prelude::*;
use untuned::space::TensorRange;
use untuned::{DenseF64, Method, MethodSpec, Report, SessionError, SpecError};

use crate::session::{build, refused};
use crate::{average, wrong};

/// A session over plain vectors of f64.
#[pyclass]
pub struct Reference {
    session: untuned::Session<Method, DenseF64>,
    x: Vec<f64>,
}

#[pymethods]
impl Reference {
    /// `tensors` has the length of each, whether it decays, and its scale.
    #[new]
    fn new(
        spec: &str,
        total_steps: Option<u64>,
        x0: Vec<f64>,
        tensors: Vec<(usize, bool, f64)>,
        averaging: Option<&str>,
    ) -> PyResult<Reference> {
        let spec: MethodSpec = spec.parse().map_err(|error: SpecError| wrong(error))?;
        let mut start = 0;
        let tensors = tensors.into_iter().map(|(len, decays, scale)| {
            start += len;
            TensorRange { range: start - len..start, decays, scale }
        });
        let space = DenseF64 { dimension: x0.len(), tensors: tensors.collect() };
        let Ok(mut session) = untuned::Session::new(build(&spec, total_steps)?, space);
        if let Some(text) = averaging {
            session = session.average(average(text)?).map_err(wrong)?;
        }
        Ok(Reference { session, x: x0 })
    }

    /// The point.
    #[getter]
    fn x(&self) -> Vec<f64> {
        self.x.clone()
    }

    /// The point to evaluate.
    #[getter]
    fn evaluation_point(&self) -> Vec<f64> {
        let mut to = self.x.clone();
        self.session.write_evaluation_point(&self.x, &mut to);
        to
    }

    /// Makes a step, and returns its effective rate.
    fn step(&mut self, loss: f64, gradient: Vec<f64>, rate: f64, weight_decay: f64) -> PyResult<f64> {
        (self.session.options.rate, self.session.options.weight_decay) = (rate, weight_decay);
        match self.session.advance(loss, &mut self.x, &gradient) {
            Ok(Report { rate, .. }) => Ok(rate),
            Err(SessionError::Refused(refusal)) => Err(refused(refusal)),
            Err(SessionError::Device(never)) => match never {},
        }
    }
}
