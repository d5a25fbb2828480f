//! The part of the Python package `untuned` that is written in Rust: the library's methods on torch's tensors, and `minimize`.

mod cuda;
mod look;
mod minimize;
mod reference;
mod session;
mod space;
mod tensors;
mod threads;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use untuned::average::AverageError;
use untuned::spec::{DefaultValue, Kind, Value};
use untuned::{Average, MethodSpec, SpecError};

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Reads `uniform`, `polynomial:8` or `ema:0.999`.
fn average(text: &str) -> PyResult<Average> {
    text.parse().map_err(|error: AverageError| wrong(error))
}

/// All methods with their parameters, as dictionaries.
#[pyfunction]
fn catalog(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for info in untuned::catalog() {
        let method = PyDict::new(py);
        method.set_item("name", info.name)?;
        method.set_item("formula", info.formula)?;
        method.set_item("reference", info.reference)?;
        method.set_item("weight_decay", info.weight_decay)?;
        let parameters = PyList::empty(py);
        for parameter in info.parameters {
            let row = PyDict::new(py);
            row.set_item("name", parameter.name)?;
            row.set_item("meaning", parameter.meaning)?;
            let (kind, words) = match parameter.kind {
                Kind::Whole(..) => ("whole", None),
                Kind::Word(&["no", "yes"]) => ("bool", None),
                Kind::Word(words) => ("word", Some(words)),
                _ => ("number", None),
            };
            row.set_item("kind", kind)?;
            row.set_item("words", words)?;
            row.set_item("required", parameter.default == DefaultValue::Required)?;
            match parameter.default {
                DefaultValue::Number(number) if kind == "whole" => row.set_item("default", number as u64)?,
                DefaultValue::Number(number) => row.set_item("default", number)?,
                DefaultValue::Word(word) if kind == "bool" => row.set_item("default", word == "yes")?,
                DefaultValue::Word(word) => row.set_item("default", word)?,
                DefaultValue::Required | DefaultValue::Derived(_) => row.set_item("default", None::<f64>)?,
            }
            let derived = match parameter.default {
                DefaultValue::Derived(from) => Some(from),
                _ => None,
            };
            row.set_item("derived", derived)?;
            parameters.append(row)?;
        }
        method.set_item("parameters", parameters)?;
        list.append(method)?;
    }
    Ok(list)
}

/// Reads a spec string, and returns the method's name, the parameters that it gives, and the spec as it is printed.
#[pyfunction]
fn parse<'py>(py: Python<'py>, spec: &str) -> PyResult<(&'static str, Bound<'py, PyDict>, String)> {
    let spec: MethodSpec = spec.parse().map_err(|error: SpecError| wrong(error))?;
    let given = PyDict::new(py);
    for parameter in spec.spec().info().parameters {
        let name = parameter.name;
        match (spec.spec().value(name), parameter.kind) {
            _ if !spec.spec().is_given(name) => {}
            (Some(Value::Number(number)), Kind::Whole(..)) => given.set_item(name, number as u64)?,
            (Some(Value::Number(number)), _) => given.set_item(name, number)?,
            (Some(Value::Word(word)), Kind::Word(&["no", "yes"])) => given.set_item(name, word == "yes")?,
            (Some(Value::Word(word)), _) => given.set_item(name, word)?,
            (None, _) => {}
        }
    }
    Ok((spec.name(), given, spec.to_string()))
}

/// The scale of each tensor, given whether it is a matrix, how many numbers it has, and the sum of their squares.
#[pyfunction]
fn scales(tensors: Vec<(bool, usize, f64)>) -> Vec<f64> {
    untuned::space::scales(tensors)
}

#[pymodule]
fn _untuned(module: &Bound<'_, PyModule>) -> PyResult<()> {
    threads::import();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SUMS", cuda::SUMS)?;
    module.add("Refused", module.py().get_type::<session::Refused>())?;
    module.add("StepsNeeded", module.py().get_type::<session::StepsNeeded>())?;
    module.add("TensorMismatch", module.py().get_type::<tensors::TensorMismatch>())?;
    module.add_class::<session::Session>()?;
    module.add_class::<reference::Reference>()?;
    module.add_function(wrap_pyfunction!(catalog, module)?)?;
    module.add_function(wrap_pyfunction!(parse, module)?)?;
    module.add_function(wrap_pyfunction!(scales, module)?)?;
    module.add_function(wrap_pyfunction!(look::look, module)?)?;
    module.add_function(wrap_pyfunction!(look::vectors_of, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::check::unplanned, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::check::compile_kernels, module)?)?;
    module.add_function(wrap_pyfunction!(session::panics, module)?)?;
    module.add_function(wrap_pyfunction!(session::thread_pool, module)?)?;
    module.add_function(wrap_pyfunction!(tensors::is_dense, module)?)?;
    module.add_function(wrap_pyfunction!(minimize::minimize, module)?)?;
    Ok(())
}
