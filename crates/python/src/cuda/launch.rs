//! Calls of the driver: kernels, copies and functions of the host, in the order of a stream.
#![allow(unsafe_code, reason = "calls of the driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};

use cudarc::driver::sys;
use untuned_cuda::Failure;
use untuned_cuda::compile::{STACK, Source, architecture, cache_folder};
use untuned_cuda::device::Context;

use super::kernels::{self, Kernel};

/// A stream. Zero is the default one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(pub usize);

impl Stream {
    fn raw(self) -> sys::CUstream {
        self.0 as sys::CUstream
    }

    /// Whether what is started here is recorded for a graph, and not done now.
    pub fn is_capturing(self, context: &Context) -> Result<bool, Failure> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the driver writes a number.
        context.check(unsafe { sys::cuStreamIsCapturing(self.raw(), &mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Waits until all that was started here is done.
    pub fn wait(self, context: &Context) -> Result<(), Failure> {
        // SAFETY: the stream lives.
        context.check(unsafe { sys::cuStreamSynchronize(self.raw()) })
    }

    /// Lets what is started here later wait until an event.
    pub fn after(self, context: &Context, event: &Event) -> Result<(), Failure> {
        // SAFETY: the stream and the event live.
        context.check(unsafe { sys::cuStreamWaitEvent(self.raw(), event.0, 0) })
    }

    /// Copies to the device.
    ///
    /// # Safety
    /// Both addresses have so many bytes. The host's are pinned, and nobody changes them until the copy is made.
    pub unsafe fn upload(self, context: &Context, from: u64, to: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller says.
        context.check(unsafe { sys::cuMemcpyHtoDAsync_v2(to, from as *const c_void, bytes, self.raw()) })
    }

    /// Copies to the host.
    ///
    /// # Safety
    /// As [`Stream::upload`]; nobody reads the host's bytes before the copy is made.
    pub unsafe fn download(self, context: &Context, from: u64, to: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller says.
        context.check(unsafe { sys::cuMemcpyDtoHAsync_v2(to as *mut c_void, from, bytes, self.raw()) })
    }

    /// Writes a word when all that was started before is done.
    ///
    /// # Safety
    /// The word is in pinned memory, and there until then.
    pub unsafe fn write(self, context: &Context, word: u64, value: u32) -> Result<(), Failure> {
        // SAFETY: as the caller says.
        context.check(unsafe { sys::cuStreamWriteValue32_v2(self.raw(), word, value, 0) })
    }

    /// Lets what is started here later wait until a word has this value.
    ///
    /// # Safety
    /// As [`Stream::write`], and somebody will write the value.
    pub unsafe fn wait_for(self, context: &Context, word: u64, value: u32) -> Result<(), Failure> {
        let equal = sys::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_EQ as u32;
        // SAFETY: as the caller says.
        context.check(unsafe { sys::cuStreamWaitValue32_v2(self.raw(), word, value, equal) })
    }

    /// Calls a function of the host. It must not call the driver.
    ///
    /// # Safety
    /// The function may be called with `data` when the stream comes there, in a graph again and again.
    pub unsafe fn call(
        self,
        context: &Context,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<(), Failure> {
        // SAFETY: as the caller says.
        context.check(unsafe { sys::cuLaunchHostFunc(self.raw(), Some(function), data) })
    }

    /// Starts a kernel.
    ///
    /// # Safety
    /// The kernel takes these arguments, each in the first bytes of its entry, and the memory that they name is there.
    pub unsafe fn launch(
        self,
        context: &Context,
        function: Function,
        blocks: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), Failure> {
        let none = std::ptr::null_mut();
        // SAFETY: as the caller says.
        context.check(unsafe {
            sys::cuLaunchKernel(
                function.0 as sys::CUfunction,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                self.raw(),
                arguments.as_mut_ptr(),
                none,
            )
        })
    }
}

/// A stream of our own.
#[derive(Debug)]
pub struct SideStream(pub Stream);

impl SideStream {
    pub fn new(context: &Context) -> Result<SideStream, Failure> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes a handle.
        context.check(unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(SideStream(Stream(stream as usize)))
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and is not used again.
        unsafe { sys::cuStreamDestroy_v2(self.0.raw()) };
    }
}

/// A moment in a stream.
#[derive(Debug)]
pub struct Event(sys::CUevent);

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub fn new(context: &Context) -> Result<Event, Failure> {
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the driver writes a handle.
        context.check(unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Event(event))
    }

    /// Makes it the moment when all that was started in a stream is done.
    pub fn record(&self, context: &Context, stream: Stream) -> Result<(), Failure> {
        // SAFETY: both live.
        context.check(unsafe { sys::cuEventRecord(self.0, stream.raw()) })
    }

    /// Whether it has come, or was never recorded.
    pub fn has_come(&self) -> bool {
        // SAFETY: it lives.
        unsafe { sys::cuEventQuery(self.0) == sys::CUresult::CUDA_SUCCESS }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and is not used again.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// While it lives, this thread may call what the driver forbids while a graph is recorded, such as allocations.
pub struct Relaxed(sys::CUstreamCaptureMode);

impl Relaxed {
    pub fn new() -> Relaxed {
        let mut mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the driver exchanges the mode of this thread.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        Relaxed(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.0) };
    }
}

/// A kernel on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(usize);

/// The kernels that are on a device.
#[derive(Debug, Default)]
pub struct Kernels {
    modules: Vec<usize>,
    functions: HashMap<String, Function>,
}

impl Kernels {
    /// Compiles those that are not there yet, in one piece, or takes them from the cache.
    pub fn load(&mut self, context: &Context, kernels: &[Kernel]) -> Result<(), Failure> {
        let mut new: Vec<Kernel> = kernels.to_vec();
        new.retain(|kernel| !self.functions.contains_key(&kernel.name));
        if new.is_empty() && !self.functions.is_empty() {
            return Ok(());
        }
        let architecture = architecture(context.capability)?;
        let module = match load(context, &compiled(&new, &architecture, false)?) {
            // The driver refuses what was kept: it is compiled anew.
            Err(_) => load(context, &compiled(&new, &architecture, true)?)?,
            Ok(module) => module,
        };
        self.modules.push(module);
        for name in new.into_iter().map(|kernel| kernel.name).chain(["add_up".to_string()]) {
            let as_c = CString::new(name.as_str()).expect("names of kernels hold no zero byte");
            let mut function = std::ptr::null_mut();
            // SAFETY: the module lives, and the driver writes a handle.
            context.check(unsafe {
                sys::cuModuleGetFunction(&mut function, module as sys::CUmodule, as_c.as_ptr())
            })?;
            self.functions.entry(name).or_insert(Function(function as usize));
        }
        Ok(())
    }

    /// A kernel that was loaded.
    pub fn function(&self, name: &str) -> Function {
        self.functions[name]
    }

    /// Takes the kernels off the device. None of them runs any more.
    pub fn unload(&mut self) {
        for module in self.modules.drain(..) {
            // SAFETY: as the caller says.
            unsafe { sys::cuModuleUnload(module as sys::CUmodule) };
        }
        self.functions.clear();
    }
}

/// Compiles kernels, without a look at the cache.
pub fn compile(kernels: &[Kernel], architecture: &str) -> Result<Vec<u8>, Failure> {
    with_source(kernels, |source| source.compile(architecture))
}

/// Takes kernels from the cache, or compiles them and puts them there.
fn compiled(kernels: &[Kernel], architecture: &str, anew: bool) -> Result<Vec<u8>, Failure> {
    let folder = cache_folder();
    let folder = folder.as_deref();
    with_source(kernels, |source| match anew {
        true => source.rebuild(folder, architecture),
        false => source.cached(folder, architecture).map(|(binary, _)| binary),
    })
}

/// Works on a thread whose stack is large enough for the compiler.
fn with_source<T: Send>(
    kernels: &[Kernel],
    work: impl FnOnce(Source<'_>) -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let text = kernels::source(kernels);
    std::thread::scope(|scope| {
        let work = || work(Source { name: "python", text: &text, options: &[] });
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(Failure { part: "NVRTC".into(), reason: error.to_string() }),
        }
    })
}

fn load(context: &Context, binary: &[u8]) -> Result<usize, Failure> {
    let mut module = std::ptr::null_mut();
    // SAFETY: the driver reads a compiled program, whose length stands in it, and writes a handle.
    context.check(unsafe { sys::cuModuleLoadData(&mut module, binary.as_ptr().cast()) })?;
    Ok(module as usize)
}
