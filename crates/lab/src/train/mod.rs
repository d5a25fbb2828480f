//! Training a network: from an experiment's file to a run's folder that can be stopped and resumed at any moment.
//!
//! The way through: [`Config`] (what to do) → [`device`] (where it computes) → [`data`] (batches) → [`shape`] (the network) → [`run`] (the
//! loop) → [`folder`], [`sinks`] and [`checkpoint`] (what is kept). [`sample`] reads a run's folder and writes text.

pub mod checkpoint;
pub mod config;
pub mod data;
pub mod device;
mod error;
mod evaluate;
mod fit;
pub mod folder;
mod probe;
mod record;
pub mod run;
pub mod sample;
mod schedule;
pub mod shape;
pub mod sinks;
mod stepper;
mod summary;

pub use config::{Config, Model, Overrides, Preset};
pub use device::DeviceChoice;
pub use error::TrainError;
pub use run::{Ended, Options, Outcome, Watch, train};
pub use shape::Shape;
pub use sinks::Sinks;
pub use summary::Summary;
