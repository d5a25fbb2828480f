//! The addresses of PyTorch's tensors, checked before they are used.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyList};

use crate::space::{Float, Tensor, TensorOptions, Vector};

pyo3::create_exception!(
    _untuned,
    TensorMismatch,
    PyTypeError,
    "A tensor is not what a step needs: (vector, index, what, text)."
);

/// The vectors of a step, as errors name them: what is written, the parameters, the gradients, and the state vectors from 0 on.
pub const TO: isize = -3;
pub const PARAMETERS: isize = -2;
pub const GRADIENTS: isize = -1;

/// DLPack's description of a tensor.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: (i32, i32),
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

/// DLPack's table of functions, of version 1.
#[repr(C)]
struct DlApi {
    version: (u32, u32),
    previous: *const c_void,
    unused: [*const c_void; 3],
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
}

/// Where tensors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    /// The n-th NVIDIA GPU.
    Cuda(u32),
    /// Another one, which cannot be used.
    Other,
}

/// A tensor in memory.
struct Found<'a> {
    address: usize,
    device: Device,
    float: Option<Float>,
    shape: Cow<'a, [i64]>,
    strides: Cow<'a, [i64]>,
}

/// How tensors are described: by DLPack's table where PyTorch has one, which takes a tenth of the time, else by their methods.
enum Describe {
    DlPack(unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int),
    Methods,
}

fn describe(py: Python<'_>) -> PyResult<&'static Describe> {
    static DESCRIBE: PyOnceLock<Describe> = PyOnceLock::new();
    DESCRIBE.get_or_try_init(py, || {
        let tensor = py.import("torch")?.getattr("Tensor")?;
        let Ok(capsule) = tensor.getattr("__dlpack_c_exchange_api__") else { return Ok(Describe::Methods) };
        let Ok(capsule) = capsule.cast_into::<PyCapsule>() else { return Ok(Describe::Methods) };
        let Ok(table) = capsule.pointer_checked(Some(c"dlpack_exchange_api")) else {
            return Ok(Describe::Methods);
        };
        // SAFETY: a capsule of this name holds such a table, which lives as long as torch.
        let table = unsafe { &*table.as_ptr().cast::<DlApi>() };
        Ok(match table.describe {
            Some(describe) if table.version.0 == 1 => Describe::DlPack(describe),
            _ => Describe::Methods,
        })
    })
}

impl Describe {
    fn tensor<'a>(&self, tensor: &'a Bound<'_, PyAny>) -> PyResult<Found<'a>> {
        match self {
            Describe::DlPack(describe) => Describe::by_dlpack(*describe, tensor),
            Describe::Methods => Describe::by_methods(tensor),
        }
    }

    fn by_dlpack<'a>(
        describe: unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int,
        tensor: &'a Bound<'_, PyAny>,
    ) -> PyResult<Found<'a>> {
        let mut found = std::mem::MaybeUninit::<DlTensor>::zeroed();
        // SAFETY: the function is torch's, and the caller has checked that this is a torch.Tensor. It fills the description, or sets
        // an error.
        let found = unsafe {
            if describe(tensor.as_ptr().cast(), found.as_mut_ptr()) != 0 {
                return Err(PyErr::fetch(tensor.py()));
            }
            found.assume_init()
        };
        let list = |numbers: *const i64| -> Cow<'a, [i64]> {
            Cow::Borrowed(match found.dimensions {
                0 => &[],
                // SAFETY: shape and strides have so many numbers. They are torch's own, and live as long as the tensor.
                count => unsafe { std::slice::from_raw_parts(numbers, count as usize) },
            })
        };
        Ok(Found {
            address: found.data as usize + found.offset as usize,
            device: match found.device {
                (1, _) => Device::Cpu,
                (2, ordinal) => Device::Cuda(ordinal as u32),
                _ => Device::Other,
            },
            float: match (found.code, found.bits, found.lanes) {
                (2, 64, 1) => Some(Float::F64),
                (2, 32, 1) => Some(Float::F32),
                (2, 16, 1) => Some(Float::F16),
                (4, 16, 1) => Some(Float::Bf16),
                _ => None,
            },
            shape: list(found.shape),
            strides: list(found.strides),
        })
    }

    fn by_methods<'a>(tensor: &Bound<'_, PyAny>) -> PyResult<Found<'a>> {
        let device = tensor.getattr("device")?;
        let device = match device.getattr("type")?.extract::<String>()?.as_str() {
            "cpu" => Device::Cpu,
            "cuda" => Device::Cuda(device.getattr("index")?.extract()?),
            _ => Device::Other,
        };
        Ok(Found {
            address: if device == Device::Other { 0 } else { tensor.call_method0("data_ptr")?.extract()? },
            device,
            float: match tensor.getattr("dtype")?.str()?.to_cow()?.as_ref() {
                "torch.float64" => Some(Float::F64),
                "torch.float32" => Some(Float::F32),
                "torch.bfloat16" => Some(Float::Bf16),
                "torch.float16" => Some(Float::F16),
                _ => None,
            },
            shape: Cow::Owned(tensor.getattr("shape")?.extract()?),
            strides: Cow::Owned(tensor.call_method0("stride")?.extract()?),
        })
    }
}

impl Found<'_> {
    fn len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// Whether the elements fill a block of memory, in any order of dimensions.
    fn is_dense(&self) -> bool {
        fn fill(sides: impl Iterator<Item = (i64, i64)>) -> bool {
            let mut want = 1;
            sides.into_iter().all(|(stride, size)| {
                let fits = stride == want;
                want *= size;
                fits
            })
        }
        // Most have their dimensions in order.
        self.len() == 0 || fill(self.sides().rev()) || {
            let mut sides: Vec<(i64, i64)> = self.sides().collect();
            sides.sort_unstable();
            fill(sides.into_iter())
        }
    }

    /// The strides and sizes of the dimensions with more than one element.
    fn sides(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> {
        self.strides
            .iter()
            .zip(self.shape.iter())
            .map(|(&stride, &size)| (stride, size))
            .filter(|side| side.1 != 1)
    }

    /// Whether the elements of another tensor of this shape have the same order in memory.
    fn is_laid_out_as(&self, other: &Found) -> bool {
        self.len() == 0 || self.sides().eq(other.sides())
    }
}

/// Whether the elements of a tensor fill a block of memory, in any order of dimensions.
#[pyfunction]
pub fn is_dense(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(describe(tensor.py())?.tensor(tensor)?.is_dense())
}

/// The tensors of a step as Python has them. Each list has one for each parameter.
pub struct Lists<'a, 'py> {
    pub parameters: &'a Bound<'py, PyList>,
    /// A gradient that is None makes its tensor inactive: nothing else of it is read.
    pub gradients: Option<&'a Bound<'py, PyList>>,
    pub state: &'a [Bound<'py, PyList>],
    /// Tensors like the parameters, which are written.
    pub to: Option<&'a Bound<'py, PyList>>,
}

/// The tensors of a step, with their addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// Where all of them are.
    pub device: Device,
    pub tensors: Vec<Tensor>,
    pub x: Vector,
    pub gradient: Vector,
    pub state: Vec<Vector>,
    pub to: Vector,
}

fn mismatch(vector: isize, index: usize, what: &'static str, text: String) -> PyErr {
    TensorMismatch::new_err((vector, index, what, text))
}

/// Describes a tensor, and checks that it is on the device of the others, which the first one names.
fn describe_on<'a>(
    (describe, tensor_type): (&Describe, &Bound<'_, PyAny>),
    device: &mut Option<Device>,
    vector: isize,
    index: usize,
    tensor: &'a Bound<'_, PyAny>,
) -> PyResult<Found<'a>> {
    if !tensor.is_instance(tensor_type)? {
        return Err(mismatch(vector, index, "tensor", format!("it is no tensor but {}", tensor.get_type())));
    }
    let found =
        describe.tensor(tensor).map_err(|error| mismatch(vector, index, "tensor", error.to_string()))?;
    if found.device == Device::Other || *device.get_or_insert(found.device) != found.device {
        return Err(mismatch(vector, index, "device", "it is on another device".to_string()));
    }
    Ok(found)
}

/// Reads the addresses of the tensors of a step, and checks that passes can use them. There are options for each tensor. What was read
/// in the last step is not compared with itself again.
pub fn read(options: &[TensorOptions], lists: &Lists<'_, '_>, last: Option<&Read>) -> PyResult<Read> {
    let Lists { parameters, gradients, state, to } = *lists;
    let count = parameters.len();
    let mut others = gradients.into_iter().chain(state).chain(to);
    if options.len() != count || others.any(|list| list.len() != count) {
        return Err(PyTypeError::new_err("the lists of a step must have one entry for each parameter"));
    }
    let py = parameters.py();
    let tensor_type = py.import("torch")?.getattr("Tensor")?;
    let describe = (describe(py)?, &tensor_type);
    let vector = |narrow| Vector { addresses: Vec::with_capacity(count), narrow, factor: None };
    let mut device = None;
    let mut read = Read {
        device: Device::Cpu,
        tensors: Vec::with_capacity(count),
        x: vector(true),
        gradient: vector(true),
        state: state.iter().map(|_| vector(false)).collect(),
        to: vector(true),
    };
    for (index, parameter) in parameters.iter().enumerate() {
        let gradient = gradients.map(|list| list.get_item(index)).transpose()?;
        if gradient.as_ref().is_some_and(|gradient| gradient.is_none()) {
            read.tensors.push(Tensor { len: 0, float: Float::F32, options: options[index], active: false });
            for vector in [&mut read.x, &mut read.gradient, &mut read.to].into_iter().chain(&mut read.state) {
                vector.addresses.push(0);
            }
            continue;
        }
        let here = describe_on(describe, &mut device, PARAMETERS, index, &parameter)?;
        let Some(float) = here.float else {
            return Err(mismatch(PARAMETERS, index, "dtype", "it does not hold floats".to_string()));
        };
        if !here.is_dense() {
            let text = "its elements do not fill a block of memory".to_string();
            return Err(mismatch(PARAMETERS, index, "layout", text));
        }
        let len = here.len();
        let take = |vector: isize, found: &Found, want: Float, to: &mut Vector| {
            if found.float != Some(want) {
                let text = format!("its type is {:?}, and {want:?} is needed", found.float);
                return Err(mismatch(vector, index, "dtype", text));
            }
            if found.shape != here.shape {
                let text = format!("its shape is {:?}, and the parameter's is {:?}", found.shape, here.shape);
                return Err(mismatch(vector, index, "shape", text));
            }
            if !found.is_laid_out_as(&here) || !found.address.is_multiple_of(want.bytes()) {
                let text = "its elements have another order in memory".to_string();
                return Err(mismatch(vector, index, "layout", text));
            }
            if len > 0 && found.address == 0 {
                return Err(mismatch(vector, index, "memory", "it has no memory".to_string()));
            }
            to.addresses.push(found.address);
            Ok(())
        };
        take(PARAMETERS, &here, float, &mut read.x)?;
        if let Some(gradient) = gradient {
            let found = describe_on(describe, &mut device, GRADIENTS, index, &gradient)?;
            take(GRADIENTS, &found, float, &mut read.gradient)?;
        }
        for (at, (list, vector)) in state.iter().zip(&mut read.state).enumerate() {
            let (at, tensor) = (at as isize, list.get_item(index)?);
            take(at, &describe_on(describe, &mut device, at, index, &tensor)?, float.wide(), vector)?;
        }
        if let Some(to) = to {
            let tensor = to.get_item(index)?;
            take(TO, &describe_on(describe, &mut device, TO, index, &tensor)?, float, &mut read.to)?;
        }
        read.tensors.push(Tensor { len, float, options: options[index], active: true });
    }
    read.device = device.unwrap_or(Device::Cpu);
    if last != Some(&read) {
        read.check_overlaps()?;
    }
    Ok(read)
}

impl Read {
    /// Checks that nothing that a pass changes shares memory with something else.
    fn check_overlaps(&self) -> PyResult<()> {
        // Ranges of memory, and whether a pass may change them.
        let mut ranges = Vec::with_capacity(self.tensors.len() * (3 + self.state.len()));
        let state = self.state.iter().zip(0..).map(|(vector, at)| (at, vector));
        let vectors = [(PARAMETERS, &self.x), (GRADIENTS, &self.gradient), (TO, &self.to)];
        let vectors = state.chain(vectors).filter(|(_, v)| v.addresses.len() == self.tensors.len());
        for (vector, Vector { addresses, narrow, .. }) in vectors {
            for (index, (&address, tensor)) in addresses.iter().zip(&self.tensors).enumerate() {
                let float = if *narrow { tensor.float } else { tensor.float.wide() };
                if tensor.active && tensor.len > 0 {
                    let end = address + tensor.len * float.bytes();
                    ranges.push((address, end, vector != GRADIENTS, vector, index));
                }
            }
        }
        // Gradients may share memory with each other, because nothing changes them.
        ranges.sort_unstable();
        let (mut changed_until, mut read_until) = (0, 0);
        for (start, end, changes, vector, index) in ranges {
            if start < changed_until || (changes && start < read_until) {
                return Err(mismatch(vector, index, "overlap", "it shares memory with another".to_string()));
            }
            if changes {
                changed_until = end;
            } else {
                read_until = end.max(read_until);
            }
        }
        Ok(())
    }
}
