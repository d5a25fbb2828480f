//! Why a training run could not begin or go on.

use std::io;
use std::path::{Path, PathBuf};

use untuned::spec::SpecError;
use untuned_net::data::ReadError;
use untuned_net::data::batches::BatchError;
use untuned_net::data::c4::C4Error;
use untuned_net::data::corpus::CorpusError;
use untuned_net::data::t5::T5Error;
use untuned_net::data::text::TextError;
use untuned_net::device::DeviceError;

use super::config::ConfigError;
use crate::traces::TraceError;

/// Why a training run could not begin or go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum TrainError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The rule.
    #[error(transparent)]
    Rule(#[from] SpecError),
    /// A text that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A text that is no text to train on.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Too little of it for one batch.
    #[error(transparent)]
    Batches(#[from] BatchError),
    /// T5's examples.
    #[error(transparent)]
    T5(#[from] T5Error),
    /// T5's documents.
    #[error(transparent)]
    Documents(#[from] C4Error),
    /// The generated corpus.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The run's own lines.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Two processes, one run.
    #[error("another process writes {path}; wait for it, or name another folder with --out", path = path.display())]
    Busy { path: PathBuf },
    /// Anything else that the user can fix.
    #[error("{0}")]
    Request(String),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A batch that the device has no memory for, and one that it has memory for.
    #[error(
        "{device}: {needed} bytes are needed, {free}; batch = {batch} does not fit, batch = {fits} fits: give --set batch={fits}"
    )]
    Batch {
        device: String,
        /// The bytes that it had no room for.
        needed: u64,
        /// What is known of the free ones.
        free: String,
        batch: usize,
        /// What was tried and had room.
        fits: usize,
    },
    /// Files of the run.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl TrainError {
    /// An input or output error while doing `what` with `path`, for `map_err`.
    pub(crate) fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> TrainError + 'a {
        move |source| TrainError::Io { what, path: path.into(), source }
    }

    /// Whether the request was wrong, not the system: exit code 2, not 4.
    pub fn is_request(&self) -> bool {
        use io::ErrorKind::{
            AlreadyExists, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        };
        match self {
            TrainError::Device(_) | TrainError::Batch { .. } => false,
            TrainError::Io { source, .. } | TrainError::Trace(TraceError::Io { source, .. }) => matches!(
                source.kind(),
                NotFound | PermissionDenied | IsADirectory | NotADirectory | AlreadyExists | InvalidInput
            ),
            _ => true,
        }
    }
}
