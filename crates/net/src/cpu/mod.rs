//! Networks on the processor: the kernels, with the instruction set chosen at run time.
pub mod math;
