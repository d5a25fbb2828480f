//! Kernels: compiled at first use for the device at hand, and kept on disk.
//!
//! An entry is found by a hash of everything that it was made of, and holds a hash of itself: what is damaged, cut short or
//! foreign is compiled again. A folder that cannot be written only costs time.
#![allow(unsafe_code)]

use super::commands::ARGUMENTS;
use super::driver::Context;
use super::formula::{self, Kernel, Pass};
use super::libraries;
use crate::device::DeviceError;
use cudarc::driver::sys;
use cudarc::nvrtc::sys as nvrtc;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use untuned::formula::Program as Formula;

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

/// What a compiler's thread may put on its stack: it recurses deeply.
const STACK: usize = 32 << 20;

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

fn failed(reason: String) -> DeviceError {
    DeviceError::Failed { device: "NVRTC".into(), reason }
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
/// As there.
pub fn compile_text(topic: &str, text: &str, architecture: &str, bf16: bool) -> Result<Vec<u8>, DeviceError> {
    let version = libraries::load_compiler()?;
    let said = |what: &str, result| match result {
        nvrtc::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        // SAFETY: the compiler answers with a text of its own.
        result => Err(failed(format!("{topic}.cu: {what}: {}", unsafe {
            CStr::from_ptr(nvrtc::nvrtcGetErrorString(result)).to_string_lossy()
        }))),
    };
    let as_c = |text: String| CString::new(text).map_err(|_| failed(format!("{topic}.cu holds a zero byte")));
    // The compiler's messages name the topic's file and its lines, not those of the two put together.
    let source = as_c(format!("#line 1 \"common.cuh\"\n{COMMON}\n#line 1 \"{topic}.cu\"\n{text}\n"))?;
    let name = as_c(format!("{topic}.cu"))?;
    let options = options(architecture, bf16).into_iter().map(as_c).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let none = std::ptr::null();
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: all texts end with a zero byte and outlive the calls; the compiler writes as many bytes as it said before.
    unsafe {
        let (to, source) = (&mut program.0, source.as_ptr());
        said("start", nvrtc::nvrtcCreateProgram(to, source, name.as_ptr(), 0, none, none))?;
        let result = nvrtc::nvrtcCompileProgram(program.0, addresses.len() as c_int, addresses.as_ptr());
        if result != nvrtc::nvrtcResult::NVRTC_SUCCESS {
            let mut size = 0;
            said("log", nvrtc::nvrtcGetProgramLogSize(program.0, &mut size))?;
            let mut log = vec![0u8; size];
            said("log", nvrtc::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()))?;
            let log = String::from_utf8_lossy(&log);
            let (log, (major, minor)) = (log.trim_end_matches(['\0', '\n']), version);
            return Err(failed(format!("{topic}.cu for {architecture} with {major}.{minor}: {log}")));
        }
        let mut size = 0;
        said("result", nvrtc::nvrtcGetCUBINSize(program.0, &mut size))?;
        let mut binary = vec![0u8; size];
        said("result", nvrtc::nvrtcGetCUBIN(program.0, binary.as_mut_ptr().cast()))?;
        Ok(binary)
    }
}

/// Ends with the scope.
struct Program(nvrtc::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it was made by the compiler and is not used again.
            unsafe { nvrtc::nvrtcDestroyProgram(&mut self.0) };
        }
    }
}

fn options(architecture: &str, bf16: bool) -> Vec<String> {
    let bf16 = u32::from(bf16);
    let architecture = format!("--gpu-architecture={architecture}");
    vec![architecture, "--std=c++17".into(), "--fmad=true".into(), format!("-DBF16={bf16}")]
}

/// What the compiler calls a compute capability: with its own instructions from 9.0 on.
///
/// # Errors
/// When the compiler is missing or too old to know it.
pub fn architecture((major, minor): (u32, u32)) -> Result<String, DeviceError> {
    let number = 10 * major + minor;
    let known = architectures()?;
    if !known.contains(&number) {
        let (major, minor) = libraries::load_compiler()?;
        let reason =
            format!("{major}.{minor} does not know GPUs of sm_{number}; install that of a newer CUDA");
        return Err(failed(reason));
    }
    Ok(format!("sm_{number}{}", if major >= 9 { "a" } else { "" }))
}

/// The architectures that the compiler knows: 80 is `sm_80`.
///
/// # Errors
/// When there is no compiler.
pub fn architectures() -> Result<Vec<u32>, DeviceError> {
    libraries::load_compiler()?;
    let mut count = 0;
    // SAFETY: the compiler writes a number, and then as many numbers.
    let known = unsafe {
        nvrtc::nvrtcGetNumSupportedArchs(&mut count);
        let mut known = vec![0; count.max(0) as usize];
        nvrtc::nvrtcGetSupportedArchs(known.as_mut_ptr());
        known
    };
    Ok(known.into_iter().map(|number| number as u32).collect())
}

/// Where compiled kernels are kept: `kernels` in the folder that `UNTUNED_CACHE` names, else `untuned/kernels` in the user's folder
/// for caches.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let ours = variable("UNTUNED_CACHE").or_else(|| Some(caches()?.join("untuned")));
    ours.map(|folder| folder.join("kernels"))
}

/// Whether a file can be made in a folder, or where it does not exist in the one that it would be made in.
pub(super) fn try_to_write(folder: &Path) -> std::io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let path = there.join(temporary_name());
    std::fs::write(&path, [])?;
    std::fs::remove_file(path)
}

/// A name that no other thread and no other process uses.
fn temporary_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(".{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
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
    let key = key(topic, text, architecture, bf16)?;
    let kept = folder.and_then(|folder| entry(&folder.join(file_name(topic, &key)), &key));
    match kept {
        Some(binary) => Ok((binary, false)),
        None => Ok((rebuild(folder, topic, text, architecture, bf16)?, true)),
    }
}

/// Compiles a text and puts it into the folder, where that can be written.
fn rebuild(
    folder: Option<&Path>,
    topic: &str,
    text: &str,
    architecture: &str,
    bf16: bool,
) -> Result<Vec<u8>, DeviceError> {
    let binary = compile_text(topic, text, architecture, bf16)?;
    if let Some(folder) = folder {
        let key = key(topic, text, architecture, bf16)?;
        let entry = [&checksum(&key, &binary)[..], &binary].concat();
        let temporary = folder.join(temporary_name());
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&temporary, entry))
            .and_then(|()| std::fs::rename(&temporary, folder.join(file_name(topic, &key))));
        if written.is_err() {
            let _ = std::fs::remove_file(temporary);
        }
    }
    Ok(binary)
}

/// Everything that the kernels are made of.
fn key(topic: &str, text: &str, architecture: &str, bf16: bool) -> Result<[u8; 32], DeviceError> {
    let (major, minor) = libraries::load_compiler()?;
    let mut hash = Sha256::new();
    let version = format!("NVRTC {major}.{minor}, untuned {}", env!("CARGO_PKG_VERSION"));
    let options = options(architecture, bf16).join(" ");
    for part in [topic, COMMON, text, &options, &version] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Ok(hash.finalize().into())
}

fn file_name(topic: &str, key: &[u8; 32]) -> String {
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{topic}-{digits}.cubin")
}

/// Of an entry's content, and of where it belongs.
fn checksum(key: &[u8; 32], binary: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(key).chain_update(binary).finalize().into()
}

/// What an entry holds, if it is whole.
fn entry(path: &Path, key: &[u8; 32]) -> Option<Vec<u8>> {
    let content = std::fs::read(path).ok()?;
    let (sum, binary) = content.split_at_checked(32)?;
    (sum == checksum(key, binary)).then(|| binary.to_vec())
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
            architecture: architecture(context.capability).map_err(|error| named(context, error))?,
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
                let binary = rebuild(folder.as_deref(), topic, text, &self.architecture, bf16);
                self.load_binary(&binary.map_err(ours)?)
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
