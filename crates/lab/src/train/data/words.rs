//! The LSTM's data: the generated corpus by words, the Penn Treebank, or any text file.

use std::path::Path;

use untuned_net::data::Splits;
use untuned_net::data::batches::{Horizon, Sequences};
use untuned_net::data::corpus::{Language, Recipe, Split};
use untuned_net::data::words::{Vocabulary as ByWord, Words};

use super::{Batches, CORPUS_SEED, Data, Description, Vocabulary, cut, find, sha256_of};
use crate::train::config::{Config, GENERATED, Preset};
use crate::train::error::TrainError;

/// Words of the generated corpus: as many as the Penn Treebank has.
const TRAIN: usize = 1_000_000;
const EVALUATE: usize = 80_000;
/// Columns that a split is evaluated in, as upstream validates; each begins without having seen anything.
const EVALUATION_COLUMNS: usize = 10;
/// The file that tells a folder with the Penn Treebank.
const TREEBANK: &str = "ptb.train.txt";

/// Columns of sequences of about `bptt` words.
pub(super) fn open(config: &Config, bptt: usize) -> Result<Data, TrainError> {
    let (words, what, sha256, entropy) = match config.data.as_str() {
        GENERATED => generated(config.preset)?,
        path => {
            let (words, what, sha256) = read(Path::new(path))?;
            (words, what, sha256, None)
        }
    };
    let Words { vocabulary, splits } = words;
    let horizon = match (config.epochs, config.batches()) {
        (Some(epochs), _) => Horizon::Epochs(epochs),
        (None, batches) => Horizon::Steps(usize::try_from(batches.unwrap_or(0)).unwrap_or(usize::MAX)),
    };
    let training = Sequences::training(splits.train.clone(), config.batch, bptt, config.seed, horizon)?;
    let (found, accumulate) = (training.steps(), config.accumulate);
    if found > 0 && found < accumulate {
        return Err(TrainError::Request(format!(
            "accumulate is {accumulate}, and there are {found} batches; give at most {found}"
        )));
    }
    let columns = EVALUATION_COLUMNS.min(config.batch);
    let evaluation = |ids| -> Result<_, TrainError> {
        Ok(Sequences::evaluation(cut(ids, config.evaluate_tokens), columns, bptt)?)
    };
    let (validation, test) = (evaluation(&splits.validation)?, evaluation(&splits.test)?);
    let longest = [&training, &validation, &test].map(|s| s.longest()).into_iter().max().unwrap_or(bptt);
    Ok(Data {
        description: Description {
            what,
            train_ids: Some(splits.train.len() as u64),
            validation_ids: splits.validation.len() as u64,
            test_ids: splits.test.len() as u64,
            corpus_seed: sha256.is_empty().then_some(CORPUS_SEED),
            sha256,
            entropy,
            best_loss: entropy,
        },
        ids: vocabulary.len(),
        vocabulary: Vocabulary::Words(vocabulary),
        // What is left over at the end of the epochs is no step.
        steps: (found / accumulate) as u64,
        longest,
        longest_target: longest,
        training: Batches::Sequences(training),
        validation: Batches::Sequences(validation),
        test: Batches::Sequences(test),
    })
}

type Read = (Words, String, Vec<(String, String)>);

fn read(path: &Path) -> Result<Read, TrainError> {
    let file = find(path, &[TREEBANK, "ptb/ptb.train.txt"])?;
    let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let folder = file.parent().filter(|_| name == TREEBANK);
    let Some(folder) = folder else {
        return Ok((Words::read_one(&file)?, format!("words of {name}"), vec![sha256_of(&file)?]));
    };
    let words = Words::read_folder(folder)?;
    let files = ["train", "valid", "test"].map(|split| folder.join(format!("ptb.{split}.txt")));
    let sha256 = files.iter().map(|file| sha256_of(file)).collect::<Result<_, _>>()?;
    Ok((words, "words of the Penn Treebank".into(), sha256))
}

type Generated = (Words, String, Vec<(String, String)>, Option<f64>);

fn generated(preset: Preset) -> Result<Generated, TrainError> {
    // As many words as the preset's network of the paper has rows for.
    let tokens = if preset == Preset::Tiny { Recipe::WORDS.tokens } else { 10_000 };
    let language = Language::new(Recipe { tokens, ..Recipe::WORDS }, CORPUS_SEED)?;
    let names: Vec<String> =
        (0..tokens as u32).filter_map(|id| language.name(id)).map(String::from).collect();
    let vocabulary = ByWord::try_from(names).map_err(|error| TrainError::Request(error.to_string()))?;
    let splits = Splits {
        train: language.words(Split::Train, 0, TRAIN).into(),
        validation: language.words(Split::Validation, 0, EVALUATE).into(),
        test: language.words(Split::Test, 0, EVALUATE).into(),
    };
    let entropy = language.entropy_rate_words();
    Ok((Words { vocabulary, splits }, "generated corpus, words".into(), Vec::new(), Some(entropy)))
}
