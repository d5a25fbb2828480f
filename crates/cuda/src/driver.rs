//! What the driver says.
#![allow(unsafe_code, reason = "calls of the driver")]

use cudarc::driver::sys;
use std::ffi::{CStr, c_int};

/// What the driver says of a result.
pub fn words(result: sys::CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver writes a pointer to a text of its own, or null.
    let said = unsafe {
        sys::cuGetErrorString(result, &mut text);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    match said {
        Some(said) => format!("{said} ({result:?})"),
        None => format!("{result:?}"),
    }
}

/// What its maker calls a device.
pub fn model_name(device: sys::CUdevice) -> String {
    let mut name = [0u8; 256];
    // SAFETY: the driver writes at most as many bytes, the last of them 0.
    unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device) };
    CStr::from_bytes_until_nul(&name)
        .map_or_else(|_| "GPU".into(), |name| name.to_string_lossy().into_owned())
}
