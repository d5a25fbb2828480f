//! For tests without a GPU: whether every pass of a method is planned, and whether its kernels compile.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use untuned::{SessionState, SpecError};
use untuned_cuda::libraries;

use super::kernels::{self, Kernel};
use super::plan::{self, Options, Rehearsal, SUMS};
use super::run::SCALARS;
use super::{launch, script, words};
use crate::space::Float;
use crate::{average, wrong};

/// Makes steps with numbers that are made up, in part impossible, and returns the first pass that was not planned: a test of the plans.
#[pyfunction]
pub fn unplanned(
    spec: &str,
    total_steps: Option<u64>,
    averaging: Option<&str>,
    steps: u64,
) -> PyResult<Option<String>> {
    let mut session = session_of(spec, total_steps, averaging)?;
    let rehearsal = Rehearsal::new(&session, OPTIONS);
    let mut scalars = vec![0.0; SCALARS];
    let mut seed = 1u64;
    let mut number = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
        // From 1e-9 to 1e9, some of them negative, and sometimes none at all.
        match seed >> 58 {
            0 => f64::NAN,
            1 => 0.0,
            sign => {
                let size = 10f64.powf((seed >> 11 & 0xFFFF) as f64 / 3641.0 - 9.0);
                if sign < 8 { -size } else { size }
            }
        }
    };
    for _ in 0..steps {
        let measures = plan::measures(&mut session, OPTIONS);
        let mut sums: Vec<f64> = (0..SUMS).map(|_| number()).collect();
        sums[plan::RESERVED..plan::RESERVED + 4].iter_mut().for_each(|sum| *sum = sum.abs());
        let (made, changes) = plan::changes(&mut session, OPTIONS, sums);
        if made.is_err() {
            session.skip();
        }
        let changes = if made.is_ok() { changes } else { Vec::new() };
        for (plan, passes) in [(&rehearsal.measures, &measures), (&rehearsal.changes, &changes)] {
            if let Err(problem) = plan.write(passes, &mut scalars) {
                return Ok(Some(problem));
            }
        }
    }
    Ok(None)
}

/// Compiles the kernels of a method for an architecture like `sm_90`, and returns their names; nothing where there is no compiler.
#[pyfunction]
pub fn compile_kernels(
    spec: &str,
    total_steps: Option<u64>,
    averaging: Option<&str>,
    architecture: &str,
) -> PyResult<Option<Vec<String>>> {
    if libraries::load_compiler().is_err() {
        return Ok(None);
    }
    let session = session_of(spec, total_steps, averaging)?;
    let rehearsal = Rehearsal::new(&session, OPTIONS);
    let state = session.vector_names().len();
    let floats = [Float::F32, Float::Bf16, Float::F16, Float::F64];
    let planned = || rehearsal.measures.0.iter().chain(&rehearsal.changes.0);
    let kernels: Vec<Kernel> = floats
        .into_iter()
        .flat_map(|float| planned().map(move |p| kernels::kernel(p, float, state)))
        .collect();
    launch::compile(&kernels, architecture).map_err(|failure| PyRuntimeError::new_err(words(failure)))?;
    Ok(Some(kernels.into_iter().map(|kernel| kernel.name).collect()))
}

/// The options of a step of a test.
const OPTIONS: Options = Options { rate: 1.0, weight_decay: 0.01, has_loss: true, dimension: 100 };

fn session_of(spec: &str, total_steps: Option<u64>, averaging: Option<&str>) -> PyResult<script::Session> {
    let spec = spec.parse().map_err(|error: SpecError| wrong(error))?;
    let method = crate::session::build(&spec, total_steps)?;
    Ok(plan::session(SessionState::new(method), averaging.map(average).transpose()?))
}
