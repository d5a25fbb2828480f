#![doc = include_str!("../README.md")]

mod config;
mod error;
mod fused;
mod optimizer;
mod space;
mod state;
mod tensors;
mod variables;

pub use config::Config;
pub use error::{Error, Kind};
pub use optimizer::Untuned;
pub use untuned::Report;
