//! Kernels: compiled at first use for the device at hand, and kept on disk.
#![allow(unsafe_code)]

use super::commands::ARGUMENTS;
use super::formula::{self, Kernel, Pass};
use crate::device::DeviceError;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::path::Path;
use std::sync::{Arc, Mutex};
use untuned::formula::Program as Formula;
use untuned_cuda::compile::{STACK, Source};
pub use untuned_cuda::compile::{architecture, architectures, cache_folder};
use untuned_cuda::device::Context;

/// Stands in front of every source.
const COMMON: &str = include_str!("common.cuh");

/// Every topic's kernels.
const SOURCES: [(&str, &str); 10] = [
    ("attention", include_str!("attention.cu")),
    ("embedding", include_str!("embedding.cu")),
    ("flash", include_str!("flash.cu")),
    ("head", include_str!("head.cu")),
    ("linear", include_str!("linear.cu")),
    ("lstm", include_str!("lstm.cu")),
    ("norm", include_str!("norm.cu")),
    ("regularizers", include_str!("regularizers.cu")),
    ("relative_bias", include_str!("relative_bias.cu")),
    ("vector", include_str!("vector.cu")),
];

/// Every topic with the text of its kernels.
pub fn sources() -> &'static [(&'static str, &'static str)] {
    &SOURCES
}

/// The compiler's errors as those of a device.
fn named(context: &Context, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Failed { device, reason } => {
            DeviceError::Failed { device: context.device.clone(), reason: format!("{device} {reason}") }
        }
        other => other,
    }
}

/// Does something with a source that stands behind what all share.
fn with_source<T>(topic: &str, text: &str, bf16: bool, work: impl FnOnce(Source<'_>) -> T) -> T {
    // The compiler's messages name the topic's file and its lines, not those of the two put together.
    let text = format!("#line 1 \"common.cuh\"\n{COMMON}\n#line 1 \"{topic}.cu\"\n{text}\n");
    let options = [if bf16 { "-DBF16=1" } else { "-DBF16=0" }];
    work(Source { name: topic, text: &text, options: &options })
}

/// Compiles a topic's kernels for an architecture like `sm_90a`. Needs no GPU.
///
/// # Errors
/// When there is no compiler, it does not know the architecture, or the source has errors: its log.
pub fn compile(topic: &str, architecture: &str, bf16: bool) -> Result<Vec<u8>, DeviceError> {
    compile_text(topic, text(topic), architecture, bf16)
}

fn text(topic: &str) -> &'static str {
    let found = SOURCES.iter().find(|(name, _)| *name == topic);
    found.unwrap_or_else(|| panic!("no kernels are called {topic}")).1
}

/// As [`compile`], with another text.
///
/// # Errors
/// As [`compile`].
pub fn compile_text(topic: &str, text: &str, architecture: &str, bf16: bool) -> Result<Vec<u8>, DeviceError> {
    Ok(with_source(topic, text, bf16, |source| source.compile(architecture))?)
}

/// A topic's kernels, from the folder or compiled and put there; whether they were compiled.
///
/// # Errors
/// As [`compile`].
pub fn cached(
    folder: Option<&Path>,
    topic: &str,
    architecture: &str,
    bf16: bool,
) -> Result<(Vec<u8>, bool), DeviceError> {
    cached_text(folder, topic, text(topic), architecture, bf16)
}

/// As [`cached`], with another text.
///
/// # Errors
/// As [`compile`].
pub fn cached_text(
    folder: Option<&Path>,
    topic: &str,
    text: &str,
    architecture: &str,
    bf16: bool,
) -> Result<(Vec<u8>, bool), DeviceError> {
    Ok(with_source(topic, text, bf16, |source| source.cached(folder, architecture))?)
}

/// What [`cached_text`] says of sources, each in a thread of its own.
fn cached_all<const N: usize>(
    sources: [(&str, &str); N],
    architecture: &str,
    bf16: bool,
) -> [Result<(Vec<u8>, bool), DeviceError>; N] {
    let folder = cache_folder();
    let folder = folder.as_deref();
    std::thread::scope(|scope| {
        let threads = sources.map(|(topic, text)| {
            let work = move || cached_text(folder, topic, text, architecture, bf16);
            (work, std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work))
        });
        threads.map(|(work, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No thread can be had: here, then.
            Err(_) => work(),
        })
    })
}

/// The compiled kernels of a device.
pub struct Kernels {
    context: Arc<Context>,
    architecture: String,
    modules: Vec<sys::CUmodule>,
    functions: Mutex<HashMap<&'static str, sys::CUfunction>>,
    formulas: Mutex<Vec<Loaded>>,
}

/// A formula whose kernel is on the device.
struct Loaded {
    pass: Pass,
    program: Formula,
    kernel: Kernel,
    module: sys::CUmodule,
}

impl Kernels {
    /// All kernels for this device, but for those of formulas.
    ///
    /// # Errors
    /// When one cannot be compiled, or the driver refuses it.
    pub fn load(context: &Arc<Context>, bf16: bool) -> Result<Self, DeviceError> {
        let mut kernels = Self {
            context: context.clone(),
            architecture: architecture(context.capability).map_err(|error| named(context, error.into()))?,
            modules: Vec::with_capacity(SOURCES.len()),
            functions: Mutex::default(),
            formulas: Mutex::default(),
        };
        let binaries = cached_all(SOURCES, &kernels.architecture, bf16);
        for (source, binary) in SOURCES.into_iter().zip(binaries) {
            let module = kernels.module(source, bf16, binary)?;
            kernels.modules.push(module);
        }
        Ok(kernels)
    }

    /// Gives a source's binary to the driver, and a fresh one where it refuses one that was kept.
    fn module(
        &self,
        (topic, text): (&str, &str),
        bf16: bool,
        binary: Result<(Vec<u8>, bool), DeviceError>,
    ) -> Result<sys::CUmodule, DeviceError> {
        let ours = |error| named(&self.context, error);
        let (binary, fresh) = binary.map_err(ours)?;
        match self.load_binary(&binary) {
            Err(_) if !fresh => {
                let folder = cache_folder();
                let binary = with_source(topic, text, bf16, |source| {
                    source.rebuild(folder.as_deref(), &self.architecture)
                });
                self.load_binary(&binary.map_err(|error| ours(error.into()))?)
            }
            module => module,
        }
    }

    /// The kernel of a formula, which is compiled when it first comes.
    ///
    /// # Errors
    /// When it cannot be compiled, or the driver refuses it.
    pub fn formula(&self, pass: Pass, program: Formula) -> Result<Kernel, DeviceError> {
        let mut formulas = super::lock(&self.formulas);
        let same = |known: &&Loaded| known.pass == pass && known.program == program;
        if let Some(known) = formulas.iter().find(same) {
            return Ok(known.kernel);
        }
        let (kernel, text) = formula::kernel(pass, &program);
        if kernel.arguments > ARGUMENTS {
            let (name, count) = (program.name, kernel.arguments);
            let reason = format!("the formula {name} makes a kernel of {count} arguments, not {ARGUMENTS}");
            return Err(DeviceError::Failed { device: self.context.device.clone(), reason });
        }
        let source = (kernel.name, text.as_str());
        // What activations are stored in does not matter to it.
        let bf16 = false;
        let [binary] = cached_all([source], &self.architecture, bf16);
        let module = self.module(source, bf16, binary)?;
        let function = self.find(kernel.name, &[module]);
        super::lock(&self.functions).insert(kernel.name, function);
        formulas.push(Loaded { pass, program, kernel, module });
        Ok(kernel)
    }

    fn load_binary(&self, binary: &[u8]) -> Result<sys::CUmodule, DeviceError> {
        self.context.enter();
        let mut module = std::ptr::null_mut();
        // SAFETY: the driver reads a compiled program, whose length stands in it, and writes a handle.
        self.context.check(unsafe { sys::cuModuleLoadData(&mut module, binary.as_ptr().cast()) })?;
        Ok(module)
    }

    /// A kernel by its name, allowed all the shared memory that there is.
    ///
    /// # Panics
    /// When no source has such a kernel.
    pub fn function(&self, name: &'static str) -> sys::CUfunction {
        *super::lock(&self.functions).entry(name).or_insert_with(|| self.find(name, &self.modules))
    }

    fn find(&self, name: &str, modules: &[sys::CUmodule]) -> sys::CUfunction {
        use sys::CUfunction_attribute_enum as Attribute;
        self.context.enter();
        let as_c = CString::new(name).expect("names of kernels hold no zero byte");
        let mut function = std::ptr::null_mut();
        // SAFETY: the modules live, and the driver writes a handle.
        let found = modules.iter().any(|&module| unsafe {
            sys::cuModuleGetFunction(&mut function, module, as_c.as_ptr()) == sys::CUresult::CUDA_SUCCESS
        });
        assert!(found, "no source has a kernel that is called {name}");
        let mut fixed = 0;
        // SAFETY: the function lives, and the driver writes a number.
        unsafe {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
            sys::cuFuncGetAttribute(&mut fixed, attribute, function);
            let left = self.context.shared_memory as c_int - fixed;
            sys::cuFuncSetAttribute(
                function,
                Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                left,
            );
        }
        function
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        self.context.enter();
        let formulas = std::mem::take(&mut *super::lock(&self.formulas));
        for module in self.modules.drain(..).chain(formulas.into_iter().map(|loaded| loaded.module)) {
            // SAFETY: none of its kernels runs any more: the device waits before it drops them.
            unsafe { sys::cuModuleUnload(module) };
        }
    }
}
