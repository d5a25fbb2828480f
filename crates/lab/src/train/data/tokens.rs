//! T5's data: the generated corpus by documents, or shards in C4's form, with spans that are to be filled in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use untuned_net::data::c4;
use untuned_net::data::corpus::{Language, Recipe, Split, T5Vocabulary};
use untuned_net::data::t5::{
    Chunks, ChunksState, Corruption, DENSITY, Examples, MEAN_SPAN, Pairs, Special, Tokenizer,
};

use super::{Batches, CORPUS_SEED, Data, Description, Passes, Vocabulary, sha256_of, sha256_of_start};
use crate::train::config::{Config, GENERATED};
use crate::train::error::TrainError;

/// Tokens of the generated corpus.
const TRAIN: usize = 1_000_000;
const EVALUATE: usize = 64_000;
/// The most ids that are read of files for each split of an evaluation.
const MOST_EVALUATED: usize = 1 << 20;
/// Every run evaluates on the same spans.
const EVALUATION_SEED: u64 = 0;
/// A shard with one of these in its name is for evaluation only.
const HELD_OUT: [&str; 3] = ["validation", "heldout", "test"];

/// Examples whose inputs have at most `inputs` ids, for a network with `rows` different ones.
pub(super) fn open(config: &Config, inputs: usize, rows: usize) -> Result<Data, TrainError> {
    match config.data.as_str() {
        GENERATED => generated(config, inputs, rows),
        path => shards(config, inputs, rows, Path::new(path)),
    }
}

fn generated(config: &Config, inputs: usize, rows: usize) -> Result<Data, TrainError> {
    let language = Language::new(Recipe::DOCUMENTS, CORPUS_SEED)?;
    let size = u32::try_from(rows).unwrap_or(u32::MAX);
    let vocabulary = T5Vocabulary::new(&language, size)?;
    let special =
        Special { end: T5Vocabulary::END, first_sentinel: size - 1, sentinels: T5Vocabulary::SENTINELS };
    let corruption = Corruption::for_inputs(inputs, DENSITY, MEAN_SPAN, special)?;
    let ids = |split, count: usize| -> Arc<[u32]> {
        let documents = (0..).flat_map(|n| vocabulary.of_tokens(&language.document(split, n)));
        documents.take(count).collect()
    };
    let (validation, test) = (ids(Split::Validation, EVALUATE), ids(Split::Test, EVALUATE));
    Ok(Data {
        description: Description {
            what: "generated corpus, documents".into(),
            train_ids: Some(TRAIN as u64),
            validation_ids: validation.len() as u64,
            test_ids: test.len() as u64,
            sha256: Vec::new(),
            corpus_seed: Some(CORPUS_SEED),
            entropy: None,
            best_loss: None,
        },
        vocabulary: Vocabulary::Tokens((0..size).map(|id| vocabulary.name(id).unwrap_or_default()).collect()),
        ids: rows,
        steps: config.steps.unwrap_or(0),
        longest: corruption.input_length(),
        longest_target: corruption.target_length(),
        training: Batches::Examples(
            Examples::new(ids(Split::Train, TRAIN), corruption, config.batch, config.seed)?,
            Passes::Endless,
        ),
        validation: evaluation(validation, corruption, config)?,
        test: evaluation(test, corruption, config)?,
    })
}

/// Every whole chunk of the ids once; at least one.
fn evaluation(ids: Arc<[u32]>, corruption: Corruption, config: &Config) -> Result<Batches, TrainError> {
    let ids = super::cut(&ids, config.evaluate_tokens.map(|most| most.max(corruption.raw_length())));
    let batch = config.batch.min(ids.len() / corruption.raw_length()).max(1);
    let examples = Examples::new(ids, corruption, batch, EVALUATION_SEED)?;
    Ok(Batches::Examples(examples, Passes::Once { batch }))
}

fn shards(config: &Config, inputs: usize, rows: usize, path: &Path) -> Result<Data, TrainError> {
    let all = c4::shards(path)?;
    let file = tokenizer_file(path)?;
    let tokenizer = Arc::new(Tokenizer::read(&file)?);
    if tokenizer.len() > rows {
        let (file, known) = (file.display(), tokenizer.len());
        return Err(TrainError::Request(format!(
            "{file} has {known} tokens and the network {rows} rows; give --set shape.vocabulary={known} or more"
        )));
    }
    let corruption = Corruption::for_inputs(inputs, DENSITY, MEAN_SPAN, tokenizer.special())?;
    let (train, held_out) = split_shards(all, path)?;
    let limit = config.evaluate_tokens.unwrap_or(MOST_EVALUATED).min(MOST_EVALUATED);
    let limit = limit.max(corruption.raw_length());
    let mut evaluated = Vec::new();
    for chunk in
        Chunks::new(held_out.clone(), tokenizer.clone(), corruption.raw_length(), ChunksState::default())
    {
        evaluated.extend(chunk?);
        if evaluated.len() >= 2 * limit {
            break;
        }
    }
    // Whole chunks: the first half validates, the second tests.
    let half = evaluated.len() / corruption.raw_length() / 2 * corruption.raw_length();
    let (validation, test) = evaluated.split_at(half);
    let (validation, test): (Arc<[u32]>, Arc<[u32]>) = (validation.into(), test.into());
    // By their beginnings: the whole of C4 would take an hour to read.
    let mut sha256: Vec<_> =
        train.iter().chain(&held_out).map(|f| sha256_of_start(f)).collect::<Result<_, _>>()?;
    sha256.push(sha256_of(&file)?);
    // A damaged shard should be known before a run's folder is made.
    Stream::new(train.clone(), tokenizer.clone(), corruption, config).fill(0, &mut Pairs::default())?;
    let folder = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Data {
        description: Description {
            what: format!("documents of {folder}"),
            train_ids: None,
            validation_ids: validation.len() as u64,
            test_ids: test.len() as u64,
            corpus_seed: None,
            entropy: None,
            best_loss: None,
            sha256,
        },
        vocabulary: Vocabulary::Tokenizer { sha256: sha256_of(&file)?.1, path: file },
        ids: rows,
        steps: config.steps.unwrap_or(0),
        longest: corruption.input_length(),
        longest_target: corruption.target_length(),
        training: Batches::Stream(Box::new(Stream::new(train, tokenizer, corruption, config))),
        validation: evaluation(validation, corruption, config)?,
        test: evaluation(test, corruption, config)?,
    })
}

/// The shards to train on and those to evaluate on.
fn split_shards(shards: Vec<PathBuf>, path: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), TrainError> {
    let name =
        |shard: &Path| shard.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let (held_out, mut train): (Vec<_>, Vec<_>) =
        shards.into_iter().partition(|shard| HELD_OUT.iter().any(|word| name(shard).contains(word)));
    // Where some say that they are for training, the others are something else.
    if train.iter().any(|shard| name(shard).contains("train")) {
        train.retain(|shard| name(shard).contains("train"));
    }
    if train.is_empty() || held_out.is_empty() {
        let path = path.display();
        return Err(TrainError::Request(format!(
            "{path} needs shards to train on and one to evaluate on, with `validation`, `heldout` or `test` in its name"
        )));
    }
    Ok((train, held_out))
}

/// `tokenizer.json` in the folder, or in a folder `t5-tokenizer` in it or beside it.
fn tokenizer_file(path: &Path) -> Result<PathBuf, TrainError> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let candidates = ["tokenizer.json", "t5-tokenizer/tokenizer.json", "../t5-tokenizer/tokenizer.json"];
    candidates.iter().map(|name| folder.join(name)).find(|file| file.is_file()).ok_or_else(|| {
        let folder = folder.display();
        TrainError::Request(format!(
            "{folder} has no tokenizer.json, nor has a folder t5-tokenizer in it or beside it; put T5's there"
        ))
    })
}

/// T5's batches read from files as they are needed, over and over. Batches must be asked for in order.
pub struct Stream {
    shards: Vec<PathBuf>,
    tokenizer: Arc<Tokenizer>,
    corruption: Corruption,
    chunks: Chunks,
    batch: usize,
    seed: u64,
}

impl Stream {
    fn new(
        shards: Vec<PathBuf>,
        tokenizer: Arc<Tokenizer>,
        corruption: Corruption,
        config: &Config,
    ) -> Stream {
        let length = corruption.raw_length();
        let chunks = Chunks::new(shards.clone(), tokenizer.clone(), length, ChunksState::default());
        Stream { shards, tokenizer, corruption, chunks, batch: config.batch, seed: config.seed }
    }

    pub(super) fn state(&self) -> ChunksState {
        self.chunks.state()
    }

    pub(super) fn seek(&mut self, state: ChunksState) {
        self.chunks = self.from(state);
    }

    fn from(&self, state: ChunksState) -> Chunks {
        Chunks::new(self.shards.clone(), self.tokenizer.clone(), self.corruption.raw_length(), state)
    }

    pub(super) fn fill(&mut self, n: u64, pairs: &mut Pairs) -> Result<(), TrainError> {
        pairs.inputs.clear();
        pairs.targets.clear();
        pairs.rows = self.batch;
        (pairs.input_length, pairs.target_length) =
            (self.corruption.input_length(), self.corruption.target_length());
        for row in 0..self.batch as u64 {
            let chunk = match self.chunks.next() {
                Some(chunk) => chunk?,
                None => {
                    // All documents were read: from the beginning.
                    self.chunks = self.from(ChunksState::default());
                    let too_few = || TrainError::Request("the shards do not hold one chunk of text".into());
                    self.chunks.next().ok_or_else(too_few)??
                }
            };
            let example = n.wrapping_mul(self.batch as u64).wrapping_add(row);
            self.corruption.corrupt(&chunk, self.seed, example, &mut pairs.inputs, &mut pairs.targets)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Filled;
    use super::*;
    use crate::train::Overrides;

    /// Seven chunks in batches of three: the last has one.
    #[test]
    fn every_chunk_is_evaluated_once() {
        let special = Special { end: 1, first_sentinel: 99, sentinels: 10 };
        let corruption = Corruption::new(10, DENSITY, MEAN_SPAN, special).unwrap();
        let text = "model = \"t5\"\nbatch = 3\nsteps = 1";
        let config = Config::resolve(text, "test", "test", &Overrides::default()).unwrap();
        let mut batches = evaluation((0..75).map(|i| 10 + i % 50).collect(), corruption, &config).unwrap();
        let (mut filled, mut rows) = (Filled::default(), Vec::new());
        while batches.fill(rows.len() as u64, &mut filled).unwrap() {
            let feed = filled.feed();
            assert_eq!(feed.inputs.len(), feed.batch * corruption.input_length());
            assert_eq!(feed.targets.len(), feed.batch * corruption.target_length());
            rows.push(feed.batch);
        }
        assert_eq!(rows, [3, 3, 1]);
    }
}
