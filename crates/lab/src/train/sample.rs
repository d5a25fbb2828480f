//! Text from a trained run: GPT and the LSTM go on with a prompt, T5 fills in its gaps.

use std::path::Path;

use serde_json::Value;
use untuned_net::data::t5::Tokenizer;
use untuned_net::data::words::END;
use untuned_net::device::Device;
use untuned_net::random::{Draws, Site};

use super::checkpoint::{self, Checkpoint, Expected, State};
use super::config::Config;
use super::data::Vocabulary;
use super::device::{DeviceChoice, OpenDevice, Work};
use super::error::TrainError;
use super::folder::{CHECKPOINT, CONFIG, SUMMARY};
use super::run::BEST_VALIDATION;
use super::shape::Shape;

/// The site of the drawn text.
const SAMPLES: u32 = 0x5A3B_0001;
/// Larger sizes in a checkpoint are not ours.
const LARGEST: u64 = 1 << 24;
/// The first gap, as T5's vocabularies spell it.
const GAP: &str = "<extra_id_0>";
/// The end of a text in T5's vocabularies.
const T5_END: &str = "</s>";

/// What to write.
#[derive(Debug, Clone)]
pub struct Request {
    /// What the text begins with; for T5 a text with gaps `<extra_id_0>`, `<extra_id_1>`, ….
    pub prompt: String,
    /// How many characters, words or tokens to add.
    pub length: usize,
    /// 0 takes the likeliest, 1 draws by the network's probabilities.
    pub temperature: f64,
    /// Of the draws.
    pub seed: u64,
    /// Whether to take the weights with the lowest validation loss in place of the last.
    pub best: bool,
}

/// A sample, and what the user should know.
#[derive(Debug)]
pub struct Sampled {
    /// The prompt and what follows it; for T5 what stands in its gaps.
    pub text: String,
    /// The steps that the weights were trained for.
    pub step: u64,
    /// About damaged checkpoints.
    pub notes: Vec<String>,
}

/// Text from the newest checkpoint of a run's folder. Where it was trained does not matter.
///
/// # Errors
/// When there is no such run, or the prompt holds what it was not trained on.
pub fn sample(
    run: &Path,
    request: &Request,
    device: DeviceChoice,
    threads: Option<usize>,
) -> Result<Sampled, TrainError> {
    if !(request.temperature.is_finite() && request.temperature >= 0.0) {
        let given = request.temperature;
        return Err(TrainError::Request(format!("--temperature {given}: give a number of at least 0")));
    }
    let config = run.join(CONFIG);
    if !config.is_file() {
        let (run, config) = (run.display(), config.display());
        return Err(TrainError::Request(format!(
            "{run} is not a run's folder: {config} does not exist; `untuned train` makes one"
        )));
    }
    let config = Config::read_resolved(&config)?;
    Shape::of(&config)?.check_on(device, 1)?;
    device.run(threads, Sampling { run, config: &config, request })
}

struct Sampling<'a> {
    run: &'a Path,
    config: &'a Config,
    request: &'a Request,
}

impl Work for Sampling<'_> {
    type Output = Sampled;

    fn on<D>(self, device: &D, _: &OpenDevice<'_>) -> Result<Sampled, TrainError>
    where
        D: Device + 'static,
        D::Buffer: Send,
        D::Ids: Send,
    {
        sample_on(device, self.run, self.config, self.request)
    }
}

fn sample_on<D>(device: &D, run: &Path, config: &Config, request: &Request) -> Result<Sampled, TrainError>
where
    D: Device + 'static,
    D::Buffer: Send,
    D::Ids: Send,
{
    let planned = Shape::of(config)?;
    let fitted = |state: &State| -> Result<Shape, TrainError> {
        // Only T5 has targets of their own length.
        let targets = size(state, "targets").unwrap_or(1);
        Ok(planned.fitted(size(state, "vocabulary")?, targets))
    };
    let network = |shape: Shape| shape.network(device, 1, shape.longest());
    let expected =
        Expected { model: config.model.name(), data: None, config: None, shape: None, lengths: None };
    let (found, notes) = checkpoint::newest(&run.join(CHECKPOINT), &expected, |state, _| {
        Ok(network(fitted(state)?)?.layout().clone())
    })?;
    let Some(Checkpoint { state, weights, mut extra, vocabulary }) = found else {
        let remedy = match run.join(SUMMARY).is_file() {
            false => "no checkpoint yet; train it first".to_string(),
            true => format!(
                "no weights: a sweep keeps those of ended trials with --keep-weights only, and an archive has none; \
                 `untuned train {} --out NEW` makes the run again",
                run.join(CONFIG).display()
            ),
        };
        return Err(TrainError::Request(format!("{} has {remedy}", run.display())));
    };
    let shape = fitted(&state)?;
    let vocabulary = Reader::new(vocabulary)?;
    let prompt = vocabulary.encode(&request.prompt)?;
    let mut network = network(shape)?;
    let best = extra.remove(BEST_VALIDATION).and_then(|best| network.layout().unpacked(&best));
    let weights = match (request.best, best) {
        (false, _) => weights,
        (true, Some(best)) => best,
        (true, None) => {
            let remedy = "train it with --set keep_best=validation, or leave --best out";
            return Err(TrainError::Request(format!("{} kept no best weights; {remedy}", run.display())));
        }
    };
    let x = device.parameters(&weights)?;
    let fills_gaps = matches!(shape, Shape::T5(_));
    if fills_gaps {
        check_length(&prompt, shape.longest())?;
        network.set_source(device, &prompt, &x);
    }
    let (mut ids, end) = if fills_gaps { (Vec::new(), vocabulary.end()) } else { (prompt, None) };
    // The beginning of a line that a prompt without anything in it stands for is not part of the text.
    let nothing = match shape {
        Shape::Gpt(_) => request.prompt.is_empty(),
        _ => request.prompt.trim().is_empty(),
    };
    let hidden = if nothing { ids.len() } else { 0 };
    let mut logits = vec![0.0; size(&state, "vocabulary")?];
    let mut draws = Site { seed: request.seed, site: SAMPLES, step: 0 }.draws();
    for _ in 0..request.length.min(shape.most_said().saturating_sub(1)) {
        network.next_logits(device, &ids, &x, &mut logits)?;
        ids.push(choose(&logits, request.temperature, &mut draws));
        if end.is_some() && ids.last().copied() == end {
            break;
        }
    }
    Ok(Sampled { text: vocabulary.decode(&ids[hidden..])?, step: state.step, notes })
}

/// A size that the checkpoint states.
fn size(state: &State, key: &str) -> Result<usize, TrainError> {
    let found = state.shape.get(key).and_then(Value::as_u64).filter(|size| (1..=LARGEST).contains(size));
    let found = found.map(|size| size as usize);
    found.ok_or_else(|| TrainError::Request(format!("the checkpoint does not say its {key}")))
}

fn check_length(prompt: &[u32], most: usize) -> Result<(), TrainError> {
    if prompt.len() <= most {
        return Ok(());
    }
    let found = prompt.len();
    Err(TrainError::Request(format!("--prompt has {found} tokens and the network reads {most}; give less")))
}

/// A vocabulary that reads prompts.
enum Reader {
    Plain(Vocabulary),
    Tokenizer(Box<Tokenizer>),
}

impl Reader {
    fn new(vocabulary: Vocabulary) -> Result<Reader, TrainError> {
        Ok(match vocabulary {
            Vocabulary::Tokenizer { path, .. } => Reader::Tokenizer(Box::new(Tokenizer::read(&path)?)),
            plain => Reader::Plain(plain),
        })
    }

    /// The prompt's ids. An empty prompt stands for the beginning of a line.
    fn encode(&self, prompt: &str) -> Result<Vec<u32>, TrainError> {
        match self {
            Reader::Plain(Vocabulary::Characters(known)) => {
                let missing = prompt.chars().filter(|c| known.characters().binary_search(c).is_err());
                refuse("characters", missing.map(|c| format!("{c:?}")).collect())?;
                let line = known.encode("\n").unwrap_or_else(|_| vec![0]);
                Ok(known.encode(prompt).ok().filter(|ids| !ids.is_empty()).unwrap_or(line))
            }
            Reader::Plain(Vocabulary::Words(known)) => {
                let missing = prompt.split_whitespace().filter(|word| known.encode(word).is_err());
                refuse("words", missing.map(|word| format!("{word:?}")).collect())?;
                let line = vec![known.id(END).unwrap_or(0)];
                Ok(known.encode(prompt).ok().filter(|ids| !ids.is_empty()).unwrap_or(line))
            }
            Reader::Plain(Vocabulary::Tokens(names)) => {
                let id = |word: &str| names.iter().position(|name| name == word).map(|id| id as u32);
                let prompt = with_a_gap(prompt);
                let missing = prompt.split_whitespace().filter(|word| id(word).is_none());
                refuse("words", missing.map(|word| format!("{word:?}")).collect())?;
                Ok(prompt.split_whitespace().chain([T5_END]).filter_map(id).collect())
            }
            Reader::Plain(Vocabulary::Tokenizer { .. }) => Ok(Vec::new()),
            Reader::Tokenizer(tokenizer) => encode_with_gaps(tokenizer, &with_a_gap(prompt)),
        }
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TrainError> {
        let text = match self {
            Reader::Plain(Vocabulary::Characters(known)) => known.decode(ids),
            Reader::Plain(Vocabulary::Words(known)) => known.decode(ids),
            Reader::Plain(Vocabulary::Tokens(names)) => {
                let name = |id: &u32| names.get(*id as usize).filter(|name| !name.is_empty());
                return Ok(ids.iter().filter_map(name).cloned().collect::<Vec<_>>().join(" "));
            }
            Reader::Plain(Vocabulary::Tokenizer { .. }) => return Ok(String::new()),
            Reader::Tokenizer(tokenizer) => return Ok(tokenizer.decode(ids)?),
        };
        text.map_err(|error| TrainError::Request(error.to_string()))
    }

    /// What ends T5's answer.
    fn end(&self) -> Option<u32> {
        match self {
            Reader::Plain(Vocabulary::Tokens(names)) => {
                names.iter().position(|name| name == T5_END).map(|id| id as u32)
            }
            Reader::Plain(_) => None,
            Reader::Tokenizer(tokenizer) => Some(tokenizer.special().end),
        }
    }
}

/// Refuses a prompt of which these parts are not known.
fn refuse(what: &str, mut missing: Vec<String>) -> Result<(), TrainError> {
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort_unstable();
    missing.dedup();
    let missing = missing.join(", ");
    Err(TrainError::Request(format!("--prompt holds {what} that the run was not trained on: {missing}")))
}

/// A text without a gap has one at its end.
fn with_a_gap(prompt: &str) -> String {
    if prompt.contains(GAP) { prompt.into() } else { format!("{prompt} {GAP}") }
}

/// The ids of the text between gaps, the gaps themselves and the end.
fn encode_with_gaps(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>, TrainError> {
    let special = tokenizer.special();
    let (mut ids, mut rest) = (Vec::new(), prompt);
    for gap in 0..special.sentinels {
        let Some((before, after)) = rest.split_once(&format!("<extra_id_{gap}>")) else { break };
        let text = tokenizer.encode(before)?;
        // Without its end: the text goes on.
        ids.extend_from_slice(&text[..text.len().saturating_sub(1)]);
        ids.push(special.first_sentinel - gap);
        rest = after;
    }
    ids.extend(tokenizer.encode(rest)?);
    Ok(ids)
}

/// The likeliest id, or one drawn by its probability `∝ exp(logit/temperature)`.
fn choose(logits: &[f32], temperature: f64, draws: &mut Draws) -> u32 {
    let best = (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best });
    if temperature == 0.0 {
        return best as u32;
    }
    let top = f64::from(logits[best]);
    let weight = |logit: &f32| ((f64::from(*logit) - top) / temperature).exp();
    let sum: f64 = logits.iter().map(weight).sum();
    let mut left = draws.uniform() * sum;
    for (id, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return id as u32;
        }
    }
    // Rounding, or a logit that is not a number.
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_and_drawn() {
        let mut draws = Site { seed: 1, site: SAMPLES, step: 0 }.draws();
        let logits = [0.0, (3.0f32).ln(), f32::NEG_INFINITY];
        assert_eq!(choose(&logits, 0.0, &mut draws), 1);
        let ones = (0..4000).filter(|_| choose(&logits, 1.0, &mut draws) == 1).count();
        assert!((2850..3150).contains(&ones), "{ones}: three in four");
        assert!((choose(&[f32::NAN; 3], 1.0, &mut draws) as usize) < 3);
    }

    #[test]
    fn a_gap_is_added_where_there_is_none() {
        assert_eq!(with_a_gap("a b"), "a b <extra_id_0>");
        assert_eq!(with_a_gap("a <extra_id_0> b"), "a <extra_id_0> b");
    }
}
