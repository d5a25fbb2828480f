//! What a run trains on: a source of text becomes batches to train on, batches to evaluate on, a vocabulary and a description.

mod characters;
mod tokens;
mod words;

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use untuned_net::data::batches::{Batch, ConsecutiveWindows, RandomWindows, Sequences};
use untuned_net::data::t5::{ChunksState, Examples, Pairs};
use untuned_net::data::{text, words as by_word};
use untuned_net::models::Feed;

use super::config::Config;
use super::error::TrainError;
use super::shape::Shape;
pub use tokens::Stream;

/// The generated corpus is the same for every run, so that runs with different seeds can be compared.
const CORPUS_SEED: u64 = 1;

/// Everything that a run needs of its data.
pub struct Data {
    /// What it is, for `meta.json` and to recognise it again.
    pub description: Description,
    /// What the ids stand for.
    pub vocabulary: Vocabulary,
    /// The number of different ids; may be larger than the vocabulary.
    pub ids: usize,
    /// The number of steps of the run.
    pub steps: u64,
    /// The longest sequence of any batch.
    pub longest: usize,
    /// The longest sequence of targets.
    pub longest_target: usize,
    /// The n-th batch to train on is a function of the seed and n.
    pub training: Batches,
    /// The validation split from beginning to end.
    pub validation: Batches,
    /// The test split from beginning to end.
    pub test: Batches,
}

/// What data is, by content and not by place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// In words.
    pub what: String,
    /// The ids to train on; nothing where documents are read as they are needed.
    pub train_ids: Option<u64>,
    /// The ids to validate on.
    pub validation_ids: u64,
    /// The ids to test on.
    pub test_ids: u64,
    /// The files with their SHA-256 (T5's shards: that of their beginning); none where the text is generated.
    pub sha256: Vec<(String, String)>,
    /// The seed of the generated corpus.
    pub corpus_seed: Option<u64>,
    /// Nats per id that a model pays which has seen all of the text before.
    pub entropy: Option<f64>,
    /// The best possible mean loss of this model: `f*`.
    pub best_loss: Option<f64>,
}

/// What ids stand for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vocabulary {
    /// Characters.
    Characters(text::Vocabulary),
    /// Words.
    Words(by_word::Vocabulary),
    /// The generated corpus' tokens by id, empty where an id has no use. Checkpoints call them pieces.
    #[serde(rename = "pieces")]
    Tokens(Vec<String>),
    /// Those of a tokenizer, whose file stands beside the checkpoints.
    Tokenizer {
        /// Of its bytes.
        sha256: String,
        /// Where it was read.
        #[serde(skip)]
        path: std::path::PathBuf,
    },
}

/// Batches by number.
pub enum Batches {
    /// GPT's for training.
    Random(RandomWindows),
    /// GPT's for evaluation.
    Consecutive(ConsecutiveWindows),
    /// The LSTM's.
    Sequences(Sequences),
    /// T5's from memory: over and over, or every chunk once, the last batch being smaller.
    Examples(Examples, Passes),
    /// T5's from files.
    Stream(Box<Stream>),
}

/// How often chunks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Without end.
    Endless,
    /// Once, in batches of so many.
    Once {
        /// Chunks in a batch.
        batch: usize,
    },
}

/// A batch, reused from step to step.
#[derive(Debug, Default)]
pub struct Filled {
    batch: Batch,
    pairs: Pairs,
    paired: bool,
    sequences: usize,
    /// Whether what is carried must be zero before it.
    pub starts_afresh: bool,
}

impl Filled {
    /// As a network is fed.
    pub fn feed(&self) -> Feed<'_> {
        let (inputs, targets) = match self.paired {
            true => (&self.pairs.inputs, &self.pairs.targets),
            false => (&self.batch.inputs, &self.batch.targets),
        };
        Feed { inputs, targets, batch: self.sequences }
    }

    /// How many ids the network reads.
    pub fn tokens(&self) -> usize {
        if self.paired { self.pairs.inputs.len() + self.pairs.targets.len() } else { self.batch.inputs.len() }
    }
}

impl Batches {
    /// The n-th batch. False when there are no more.
    ///
    /// # Errors
    /// When a file that is read on the way is damaged.
    pub fn fill(&mut self, n: u64, filled: &mut Filled) -> Result<bool, TrainError> {
        let index = usize::try_from(n).unwrap_or(usize::MAX);
        filled.paired = matches!(self, Batches::Examples(..) | Batches::Stream(_));
        filled.starts_afresh = false;
        match self {
            Batches::Random(windows) => windows.fill(n, &mut filled.batch),
            Batches::Consecutive(windows) => {
                if !windows.fill(index, &mut filled.batch) {
                    return Ok(false);
                }
            }
            Batches::Sequences(sequences) => match sequences.fill(index, &mut filled.batch) {
                Some(sequence) => filled.starts_afresh = sequence.starts_epoch,
                None => return Ok(false),
            },
            Batches::Examples(examples, Passes::Endless) => examples.fill(n, &mut filled.pairs),
            Batches::Examples(examples, Passes::Once { batch }) => {
                let left = examples.chunks().saturating_sub(index.saturating_mul(*batch));
                if left == 0 {
                    return Ok(false);
                }
                examples.fill(n, &mut filled.pairs);
                filled.pairs.truncate(left);
            }
            Batches::Stream(stream) => stream.fill(n, &mut filled.pairs)?,
        }
        // The LSTM's rows are positions in time; everyone else's are sequences.
        filled.sequences = match self {
            Batches::Sequences(_) => filled.batch.columns,
            _ if filled.paired => filled.pairs.rows,
            _ => filled.batch.rows,
        };
        Ok(true)
    }

    /// Whether the n-th batch is the first of an epoch.
    pub fn starts_epoch(&self, n: u64) -> bool {
        match self {
            Batches::Sequences(sequences) => usize::try_from(n)
                .ok()
                .and_then(|n| sequences.sequence(n))
                .is_some_and(|sequence| sequence.starts_epoch),
            _ => n == 0,
        }
    }

    /// Where a stream of files stands, for a checkpoint.
    pub fn position(&self) -> Option<ChunksState> {
        match self {
            Batches::Stream(stream) => Some(stream.state()),
            _ => None,
        }
    }

    /// Reads on from a checkpoint's position.
    pub fn seek(&mut self, position: Option<ChunksState>) {
        if let (Batches::Stream(stream), Some(position)) = (self, position) {
            stream.seek(position);
        }
    }
}

/// A batch that is made before its step.
#[derive(Debug, Default)]
pub struct Ahead {
    filled: Filled,
    made: Option<Made>,
}

/// What came of a batch that was made early. An error waits for the batch's step.
#[derive(Debug)]
struct Made {
    n: u64,
    /// Where the batches stood before it.
    position: Option<ChunksState>,
    result: Result<bool, TrainError>,
}

impl Ahead {
    /// Makes the n-th batch.
    pub fn fill(&mut self, n: u64, batches: &mut Batches) {
        let position = batches.position();
        let result = batches.fill(n, &mut self.filled);
        self.made = Some(Made { n, position, result });
    }

    /// The n-th batch: the one that was made, or else made now. False when there are no more.
    ///
    /// # Errors
    /// As [`Batches::fill`].
    pub fn take(&mut self, n: u64, batches: &mut Batches, filled: &mut Filled) -> Result<bool, TrainError> {
        match self.made.take() {
            Some(made) if made.n == n => {
                std::mem::swap(filled, &mut self.filled);
                made.result
            }
            _ => batches.fill(n, filled),
        }
    }

    /// Where the batches stand for a checkpoint: before the one that was made and not taken.
    pub fn position(&self, batches: &Batches) -> Option<ChunksState> {
        match &self.made {
            Some(made) => made.position.clone(),
            None => batches.position(),
        }
    }
}

impl Data {
    /// Reads or makes the data of a run.
    ///
    /// # Errors
    /// When it does not exist, is damaged, or is too short for one batch.
    pub fn open(config: &Config, shape: &Shape) -> Result<Data, TrainError> {
        match shape {
            Shape::Gpt(shape) => characters::open(config, shape.context),
            Shape::Lstm(_, bptt) => words::open(config, *bptt),
            Shape::T5(shape) => tokens::open(config, shape.inputs, shape.vocabulary),
        }
    }
}

/// At most `limit` ids.
fn cut(ids: &std::sync::Arc<[u32]>, limit: Option<usize>) -> std::sync::Arc<[u32]> {
    match limit {
        Some(limit) if limit < ids.len() => ids[..limit].into(),
        _ => ids.clone(),
    }
}

/// The first of these that exists, in a folder that was given; the path itself where it is a file.
fn find(path: &Path, inside: &[&str]) -> Result<std::path::PathBuf, TrainError> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    inside.iter().map(|name| path.join(name)).find(|file| file.exists()).ok_or_else(|| {
        let (path, names) = (path.display(), inside.join(" or "));
        TrainError::Request(format!("{path} holds no {names}; give a text file or such a folder with --data"))
    })
}

/// A file's name and the SHA-256 of its bytes.
fn sha256_of(path: &Path) -> Result<(String, String), TrainError> {
    hash_of(path, u64::MAX)
}

/// A file's name and length, and the SHA-256 of its first MiB.
fn sha256_of_start(path: &Path) -> Result<(String, String), TrainError> {
    let length = std::fs::metadata(path).map_err(TrainError::io("read", path))?.len();
    let (name, hash) = hash_of(path, 1 << 20)?;
    Ok((format!("{name} ({length} bytes, the first MiB)"), hash))
}

fn hash_of(path: &Path, most: u64) -> Result<(String, String), TrainError> {
    let file = std::fs::File::open(path).map_err(TrainError::io("read", path))?;
    let mut file = std::io::Read::take(file, most);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match std::io::Read::read(&mut file, &mut buffer).map_err(TrainError::io("read", path))? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok((name, hex(&hash.finalize())))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
