//! What everything that runs on an NVIDIA GPU shares: the libraries, the compiler with its cache, and formulas as CUDA C++.
//!
//! Nothing here needs CUDA to build. The driver and the compiler are looked for when they are first used.

pub mod arithmetic;
pub mod compile;
pub mod device;
pub mod driver;
pub mod libraries;

use thiserror::Error;

/// Why something on a GPU is not possible.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{part}: {reason}")]
pub struct Failure {
    /// What failed: a device like `cuda:0`, or `NVRTC`.
    pub part: String,
    /// What it said.
    pub reason: String,
}
