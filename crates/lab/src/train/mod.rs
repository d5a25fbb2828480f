//! Training a network: from an experiment's file to a run's folder that can be stopped and resumed at any moment.
//!
//! The way through: [`Config`] (what to do) → [`place`] (the device) → [`data`] (batches) → [`shape`] (the network) → [`run`] (the
//! loop) → [`folder`], [`sinks`] and [`checkpoint`] (what is kept). [`sample`] reads a run's folder and writes text.

pub mod checkpoint;
pub mod config;
pub mod data;
mod error;
mod evaluate;
mod fit;
pub mod folder;
pub mod place;
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
pub use error::TrainError;
pub use place::Place;
pub use run::{Ended, Options, Outcome, Watch, train};
pub use shape::Shape;
pub use sinks::Sinks;
pub use summary::Summary;
