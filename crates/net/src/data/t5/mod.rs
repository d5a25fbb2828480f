//! T5's data: SentencePiece ids of documents, cut into chunks, with spans replaced by sentinels.
//!
//! Raffel et al., *Exploring the limits of transfer learning with a unified text-to-text transformer*, 2020, Section 3.1.4; the
//! spans are those of `random_spans_noise_mask` in the authors' code.

mod spans;
mod tokenizer;

pub use spans::{Corruption, DENSITY, Examples, MEAN_SPAN, Pairs};
pub use tokenizer::{Chunks, ChunksState, Tokenizer};

use super::c4::C4Error;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Why there are no examples for T5.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum T5Error {
    /// The tokenizer's file cannot be read.
    #[error("{path} is not a tokenizer ({reason}); give T5's tokenizer.json", path = path.display())]
    Tokenizer { path: PathBuf, reason: String },
    /// The tokenizer lacks a token that the objective needs.
    #[error("{path} has no token {token}; give T5's tokenizer.json", path = path.display())]
    NoToken { path: PathBuf, token: &'static str },
    /// A text that cannot be encoded.
    #[error("a document of {bytes} bytes that starts with {start:?} cannot be encoded: {reason}")]
    Encode {
        bytes: usize,
        /// Its first characters.
        start: String,
        reason: String,
    },
    /// A document cannot be read.
    #[error(transparent)]
    Documents(#[from] C4Error),
    /// Spans that cannot be drawn.
    #[error(
        "chunks of {raw} ids cannot be corrupted with density {density} and mean span {mean_span}: {reason}"
    )]
    Shape {
        /// The length of a chunk.
        raw: usize,
        /// The share of noise.
        density: f64,
        /// The mean length of a span.
        mean_span: f64,
        reason: String,
    },
    /// A chunk of the wrong length.
    #[error("a chunk has {found} ids and should have {raw}")]
    ChunkLength {
        found: usize,
        /// The planned one.
        raw: usize,
    },
    /// Not one batch of chunks.
    #[error(
        "{found} ids are too few: a batch of {batch} chunks of {raw} needs {needed}; give more documents or a smaller batch"
    )]
    TooShort {
        /// How many ids there are.
        found: usize,
        /// How many there must be.
        needed: usize,
        /// Chunks in a batch.
        batch: usize,
        /// Ids in a chunk.
        raw: usize,
    },
}

/// The ids that the objective adds to the text's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Special {
    /// `</s>`, the end of a document and of a sequence.
    pub end: u32,
    /// `<extra_id_0>`; the next sentinels are the ids below it.
    pub first_sentinel: u32,
    /// How many sentinels there are.
    pub sentinels: u32,
}
