//! The networks of the paper. So far: the randomness and the data that they train on.

pub mod cpu;
pub mod data;
pub mod random;
