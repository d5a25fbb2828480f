//! A device's primary context, and memory on the device and on the host.
#![allow(unsafe_code, reason = "calls of the driver")]

use crate::Failure;
use crate::driver::{model_name, words};
use crate::libraries::{self, LEAST_CAPABILITY};
use cudarc::driver::sys;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::Arc;
use thiserror::Error;

/// The driver's answer, as an error of this device.
fn check(device: &str, result: sys::CUresult) -> Result<(), Failure> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Failure { part: device.into(), reason: words(result) })
}

/// Why there is no memory.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MemoryError {
    /// The device failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The device has too little.
    #[error("{device}: {needed} bytes are needed, and {free}")]
    Full {
        /// As a user writes it.
        device: String,
        /// How many bytes.
        needed: u64,
        /// What is free, in words.
        free: String,
    },
}

/// A device and its primary context.
pub struct Context {
    /// As a user writes it.
    pub device: String,
    /// What its maker calls it.
    pub model: String,
    /// Major and minor.
    pub capability: (u32, u32),
    /// The number of its multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory that a block can have.
    pub shared_memory: u32,
    handle: sys::CUcontext,
    ordinal: sys::CUdevice,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context of the n-th device. The programs of a process share it.
    ///
    /// # Errors
    /// When there is no driver or no such device, or when the device is too old.
    pub fn new(ordinal: u32) -> Result<Arc<Self>, Failure> {
        let device = format!("cuda:{ordinal}");
        libraries::load_driver(&device)?;
        let mut handle = std::ptr::null_mut();
        let (mut found, mut count) = (0, 0);
        // SAFETY: every pointer is to a value of the type that the driver writes.
        unsafe {
            check(&device, sys::cuInit(0))?;
            check(&device, sys::cuDeviceGetCount(&mut count))?;
            if i64::from(ordinal) >= i64::from(count) {
                let reason = match count {
                    0 => "the driver finds no GPU".to_string(),
                    1 => "the only GPU is cuda:0".to_string(),
                    _ => format!("the GPUs are cuda:0 to cuda:{}", count - 1),
                };
                return Err(Failure { part: device, reason });
            }
            check(&device, sys::cuDeviceGet(&mut found, ordinal as c_int))?;
        }
        let attribute = |attribute| -> Result<u32, Failure> {
            let mut value = 0;
            // SAFETY: as above.
            check(&device, unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, found) })?;
            Ok(value as u32)
        };
        use sys::CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let model = model_name(found);
        if capability.0 < LEAST_CAPABILITY {
            let reason = format!(
                "{model} has compute capability {}.{}; {LEAST_CAPABILITY}.0 or later is needed",
                capability.0, capability.1
            );
            return Err(Failure { part: device, reason });
        }
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_memory = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        // SAFETY: as above.
        check(&device, unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, found) })?;
        Ok(Arc::new(Self {
            device,
            model,
            capability,
            multiprocessors,
            shared_memory,
            handle,
            ordinal: found,
        }))
    }

    /// Makes this the context of the calling thread.
    pub fn enter(&self) {
        // SAFETY: the context lives as long as self.
        unsafe { sys::cuCtxSetCurrent(self.handle) };
    }

    /// Makes this the context of the calling thread, until what is returned is dropped: the context before it is then the thread's
    /// again.
    #[must_use]
    pub fn visit(&self) -> Visit {
        // SAFETY: the context lives as long as self.
        unsafe { sys::cuCtxPushCurrent_v2(self.handle) };
        Visit(PhantomData)
    }

    /// The driver's answer as an error of this device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn check(&self, result: sys::CUresult) -> Result<(), Failure> {
        check(&self.device, result)
    }

    /// Waits until the device has done all that this process gave it.
    ///
    /// # Errors
    /// What the driver says, also of something that failed before.
    pub fn synchronize(&self) -> Result<(), Failure> {
        let _visit = self.visit();
        // SAFETY: the context lives.
        self.check(unsafe { sys::cuCtxSynchronize() })
    }

    /// Free and all bytes.
    ///
    /// # Errors
    /// When the device fails.
    pub fn memory(&self) -> Result<(u64, u64), Failure> {
        let _visit = self.visit();
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes both.
        self.check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.ordinal) };
    }
}

/// While it lives, a context is that of the calling thread.
pub struct Visit(PhantomData<*const ()>);

impl Drop for Visit {
    fn drop(&mut self) {
        let mut left = std::ptr::null_mut();
        // SAFETY: the driver writes a handle.
        unsafe { sys::cuCtxPopCurrent_v2(&mut left) };
    }
}

/// Memory on the device.
pub struct Memory {
    context: Arc<Context>,
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
}

impl Memory {
    /// What is in it is anything.
    ///
    /// # Errors
    /// When there is too little, or the device fails.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, MemoryError> {
        let _visit = context.visit();
        let (mut address, bytes) = (0, bytes.max(16).next_multiple_of(16));
        // SAFETY: the driver writes an address.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = match context.memory() {
                    Ok((free, total)) => format!("{free} of {total} are free"),
                    Err(_) => "how many are free is not known".into(),
                };
                Err(MemoryError::Full { device: context.device.clone(), needed: bytes as u64, free })
            }
            result => {
                context.check(result)?;
                Ok(Self { context: context.clone(), address, bytes })
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _visit = self.context.visit();
        // SAFETY: it was allocated by `new`; the driver waits for work that uses it.
        unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Memory on the host that the device reads and writes directly.
pub struct Pinned {
    context: Arc<Context>,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: plain memory.
unsafe impl Send for Pinned {}
// SAFETY: it is written only through `&mut`, or by the device while nobody reads it.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Zeros.
    ///
    /// # Errors
    /// When there is no such memory.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Failure> {
        let _visit = context.visit();
        let (mut address, bytes) = (std::ptr::null_mut(), bytes.max(16));
        // SAFETY: the driver writes an address, at which there are so many bytes.
        unsafe {
            context.check(sys::cuMemAllocHost_v2(&mut address, bytes))?;
            std::ptr::write_bytes(address.cast::<u8>(), 0, bytes);
        }
        Ok(Self { context: context.clone(), address, bytes })
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// The numbers in it. Nobody may write them meanwhile: the device only between a command and the next wait.
    pub fn as_slice<N: Copy>(&self) -> &[N] {
        // SAFETY: the memory is aligned for any number and was zeroed.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes / size_of::<N>()) }
    }

    /// The numbers in it.
    pub fn as_mut_slice<N: Copy>(&mut self) -> &mut [N] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.bytes / size_of::<N>()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _visit = self.context.visit();
        // SAFETY: it was allocated by `new`; after the wait no command reads or writes it.
        unsafe {
            sys::cuCtxSynchronize();
            sys::cuMemFreeHost(self.address);
        }
    }
}
