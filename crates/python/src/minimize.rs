//! `minimize` for a function of Python.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use untuned::minimize::{Iterate, Snapshot};
use untuned::{Known, MethodSpec, Minimizer, Problem, RunInfo, SpecError};

use crate::{average, wrong};

/// A function that takes the bytes of a point, and returns its value and the bytes of its gradient.
struct Function {
    function: Py<PyAny>,
    start: Vec<f64>,
    known: Known,
    /// The first exception that came out of it. It is not called again then.
    failed: Mutex<Option<PyErr>>,
}

impl Function {
    fn call(&self, x: &[f64], gradient: &mut [f64]) -> PyResult<f64> {
        Python::attach(|py| {
            let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_ne_bytes()).collect();
            let answer = self.function.call1(py, (PyBytes::new(py, &bytes),))?;
            let (value, slopes): (f64, Bound<'_, PyBytes>) = answer.extract(py)?;
            let slopes = slopes.as_bytes();
            if slopes.len() != size_of_val(gradient) {
                let (given, wanted) = (slopes.len() / size_of::<f64>(), gradient.len());
                let text = format!("the gradient has {given} numbers, and x has {wanted}");
                return Err(PyValueError::new_err(text));
            }
            for (to, from) in gradient.iter_mut().zip(slopes.as_chunks().0) {
                *to = f64::from_ne_bytes(*from);
            }
            Ok(value)
        })
    }
}

impl Problem for Function {
    fn dimension(&self) -> usize {
        self.start.len()
    }

    fn start(&self) -> Vec<f64> {
        self.start.clone()
    }

    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_none() {
            match self.call(x, gradient) {
                Ok(value) => return value,
                Err(error) => *failed = Some(error),
            }
        }
        f64::NAN
    }

    fn known(&self) -> &Known {
        &self.known
    }
}

/// Minimises a function from `x0` on, all vectors being bytes of f64.
#[pyfunction]
pub fn minimize<'py>(
    py: Python<'py>,
    function: Py<PyAny>,
    x0: &[u8],
    spec: &str,
    steps: u64,
    f_star: Option<f64>,
    averaging: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let spec: MethodSpec = spec.parse().map_err(|error: SpecError| wrong(error))?;
    let start: Vec<f64> = x0.as_chunks().0.iter().map(|&bytes| f64::from_ne_bytes(bytes)).collect();
    let known = Known { f_star, ..Known::default() };
    let problem = Function { function, start, known, failed: Mutex::new(None) };
    let method = spec.build(&RunInfo::of(&problem, steps)).map_err(wrong)?;
    let mut stop = |_: &Iterate<'_>| {
        let failed = problem.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let kind = averaging.map(average).transpose()?;
    let run = Minimizer::new(&problem).observe(&mut stop).average(kind);
    let run = run.run(method, &problem.start, steps).map_err(wrong)?;
    if let Some(error) = problem.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (result, rows) = (PyDict::new(py), &run.trace);
    let point = |name: &str, Snapshot { step, loss, x, .. }: &Snapshot| {
        let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_ne_bytes()).collect();
        result.set_item(name, (*step, *loss, PyBytes::new(py, &bytes)))
    };
    point("last", &run.last)?;
    point("best", &run.best)?;
    if let Some(average) = &run.average {
        point("average", average)?;
    }
    result.set_item("outcome", run.outcome.word())?;
    result.set_item("warning", run.warning)?;
    result.set_item("losses", rows.iter().map(|row| row.loss).collect::<Vec<_>>())?;
    result.set_item("grad_norms", rows.iter().map(|row| row.grad_norm).collect::<Vec<_>>())?;
    result.set_item("rates", rows.iter().filter_map(|row| row.step_size).collect::<Vec<_>>())?;
    Ok(result)
}
