//! What a step asks of every parameter, asked in one go: Python's own loops take as long as a step of a small network.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyWeakrefMethods, PyWeakrefReference};

/// What there is of the parameters that are trained.
type Look<'py> = (
    // The parameters, and their gradients, some of which may be None.
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    // Bytes that change with the list of parameters, and with the gradients: their identities and versions.
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    // The first gradient that has a graph, and whether no gradient is None.
    Option<usize>,
    bool,
);

/// Looks at the parameters of groups, those that are trained. Returns nothing where one of them is not the tensor that a reference,
/// of as many groups, stands for.
#[pyfunction]
pub fn look<'py>(
    py: Python<'py>,
    groups: Vec<Bound<'py, PyList>>,
    references: Vec<Bound<'py, PyList>>,
) -> PyResult<Option<Look<'py>>> {
    let (parameters, gradients) = (PyList::empty(py), PyList::empty(py));
    let (mut ids, mut marks) = (Vec::new(), Vec::new());
    let (mut with_graph, mut complete) = (None, true);
    if groups.len() != references.len() {
        return Ok(None);
    }
    for (group, references) in groups.iter().zip(&references) {
        if group.len() != references.len() {
            return Ok(None);
        }
        for (parameter, reference) in group.iter().zip(references.iter()) {
            let known = reference.cast::<PyWeakrefReference>()?.upgrade();
            if !known.is_some_and(|known| known.is(&parameter)) {
                return Ok(None);
            }
            if !parameter.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                continue;
            }
            let gradient = parameter.getattr(intern!(py, "grad"))?;
            ids.extend((parameter.as_ptr() as usize).to_ne_bytes());
            if gradient.is_none() {
                complete = false;
                marks.extend([0; 16]);
            } else {
                let version: u64 = gradient.getattr(intern!(py, "_version"))?.extract()?;
                marks.extend((gradient.as_ptr() as usize).to_ne_bytes());
                marks.extend(version.to_ne_bytes());
                if with_graph.is_none() && gradient.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                    with_graph = Some(parameters.len());
                }
            }
            parameters.append(parameter)?;
            gradients.append(gradient)?;
        }
    }
    let (ids, marks) = (PyBytes::new(py, &ids), PyBytes::new(py, &marks));
    Ok(Some((parameters, gradients, ids, marks, with_graph, complete)))
}

/// For each name, the vectors of the parameters' states. Nothing where one is missing.
#[pyfunction]
pub fn vectors_of<'py>(
    py: Python<'py>,
    state: &Bound<'py, PyDict>,
    parameters: &Bound<'py, PyList>,
    names: Vec<Bound<'py, PyString>>,
) -> PyResult<Option<Vec<Bound<'py, PyList>>>> {
    let lists: Vec<_> = names.iter().map(|_| PyList::empty(py)).collect();
    for parameter in parameters {
        let Some(of) = state.get_item(parameter)? else { return Ok(None) };
        let of = of.cast_into::<PyDict>()?;
        for (name, list) in names.iter().zip(&lists) {
            let Some(vector) = of.get_item(name)? else { return Ok(None) };
            list.append(vector)?;
        }
    }
    Ok(Some(lists))
}
