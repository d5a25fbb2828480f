//! The networks of the paper: their layers and models, a device to run them on, their randomness and the data that they train on.

pub mod arena;
pub mod cpu;
pub mod cuda;
pub mod data;
pub mod device;
pub mod formulas;
pub mod models;
pub mod random;
pub mod space;
