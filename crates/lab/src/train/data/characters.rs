//! GPT's data: the generated corpus by characters, or any text file.

use std::path::Path;

use untuned_net::data::Splits;
use untuned_net::data::batches::{ConsecutiveWindows, RandomWindows};
use untuned_net::data::corpus::{Language, Recipe, Split};
use untuned_net::data::text::{Text, Vocabulary as Characters};

use super::{Batches, CORPUS_SEED, Data, Description, Vocabulary, cut, find, sha256_of};
use crate::train::config::{Config, GENERATED};
use crate::train::error::TrainError;

/// Characters of the generated corpus: about twice of what a quick run sees, so that none is seen often.
const TRAIN: usize = 2_000_000;
const EVALUATE: usize = 100_000;
/// Windows over which the best possible loss is averaged: its standard error is then below 0.005 nats.
const WINDOWS: u32 = 1000;

/// Windows of `context` characters.
pub(super) fn open(config: &Config, context: usize) -> Result<Data, TrainError> {
    let (text, what, sha256, best) = match config.data.as_str() {
        GENERATED => generated(context)?,
        path => {
            let file = find(Path::new(path), &["input.txt", "tinyshakespeare/input.txt"])?;
            let text = Text::read(&file, context)?;
            let sha256 = sha256_of(&file)?;
            (text, format!("characters of {}", sha256.0), vec![sha256], None)
        }
    };
    let Text { vocabulary, splits } = text;
    let steps = config.steps.unwrap_or(0);
    let evaluation = |ids| -> Result<_, TrainError> {
        let ids = cut(ids, config.evaluate_tokens);
        Ok(Batches::Consecutive(ConsecutiveWindows::new(ids, context, config.batch)?))
    };
    Ok(Data {
        description: Description {
            what,
            train_ids: Some(splits.train.len() as u64),
            validation_ids: splits.validation.len() as u64,
            test_ids: splits.test.len() as u64,
            corpus_seed: sha256.is_empty().then_some(CORPUS_SEED),
            sha256,
            entropy: best.map(|(entropy, _)| entropy),
            best_loss: best.map(|(_, best)| best),
        },
        ids: vocabulary.len(),
        vocabulary: Vocabulary::Characters(vocabulary),
        steps,
        longest: context,
        longest_target: context,
        training: Batches::Random(RandomWindows::new(
            splits.train.clone(),
            context,
            config.batch,
            config.seed,
        )?),
        validation: evaluation(&splits.validation)?,
        test: evaluation(&splits.test)?,
    })
}

type Generated = (Text, String, Vec<(String, String)>, Option<(f64, f64)>);

fn generated(context: usize) -> Result<Generated, TrainError> {
    if context >= EVALUATE {
        let remedy = format!("the generated corpus has {EVALUATE} characters to evaluate on: give less");
        return Err(TrainError::Request(format!("shape.context is {context}; {remedy}")));
    }
    let language = Language::new(Recipe::CHARACTERS, CORPUS_SEED)?;
    let vocabulary = Characters::new(&language.alphabet().iter().collect::<String>());
    let ids = |split, count| {
        // Every character is of the language's alphabet.
        vocabulary.encode(&language.characters(split, 0, count)).unwrap_or_default().into()
    };
    let splits = Splits {
        train: ids(Split::Train, TRAIN),
        validation: ids(Split::Validation, EVALUATE),
        test: ids(Split::Test, EVALUATE),
    };
    // A window of many positions averages over more text: fewer of them are enough.
    let windows = WINDOWS.min((WINDOWS as usize * 64).div_ceil(context) as u32).max(20);
    let best = language.best_loss_characters_seeing(1..context + 1, windows).nats;
    let known = (language.entropy_rate_characters(), best);
    let what = "generated corpus, characters".to_string();
    Ok((Text { vocabulary, splits }, what, Vec::new(), Some(known)))
}
