//! Text from a trained run.

use std::path::Path;

use untuned_net::cpu::Cpu;
use untuned_net::device::Device;
use untuned_net::models::Network;
use untuned_net::random::{Draws, Site};

use super::checkpoint::{self, Checkpoint, Expected};
use super::config::Config;
use super::data::Vocabulary;
use super::error::TrainError;
use super::folder::{CHECKPOINT, CONFIG};
use super::shape::Shape;

/// The site of the drawn text.
const SAMPLES: u32 = 0x5A3B_0001;

/// What to write.
#[derive(Debug, Clone)]
pub struct Request {
    /// What the text begins with.
    pub prompt: String,
    /// How many characters or words to add.
    pub length: usize,
    /// 0 takes the likeliest, 1 draws by the network's probabilities.
    pub temperature: f64,
    /// Of the draws.
    pub seed: u64,
}

/// A sample, and what the user should know.
#[derive(Debug)]
pub struct Sampled {
    /// The prompt and what follows it.
    pub text: String,
    /// The steps that the weights were trained for.
    pub step: u64,
    /// About damaged checkpoints.
    pub notes: Vec<String>,
}

/// Text from the newest checkpoint of a run's folder.
///
/// # Errors
/// When there is no such run, or the prompt holds what it was not trained on.
pub fn sample(run: &Path, request: &Request, threads: Option<usize>) -> Result<Sampled, TrainError> {
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
    let cpu = Cpu::<f32>::new(threads)?;
    cpu.inside(|| sample_on(&cpu, run, &config, request))
}

fn sample_on<D>(device: &D, run: &Path, config: &Config, request: &Request) -> Result<Sampled, TrainError>
where
    D: Device + 'static,
    D::Buffer: Send,
    D::Ids: Send,
{
    let shape = Shape::of(config)?;
    let network = |vocabulary: usize| -> Result<Box<dyn Network<D>>, TrainError> {
        Ok(shape.with_vocabulary(vocabulary).network(device, 1, shape.longest())?)
    };
    let rows = |state: &checkpoint::State| {
        let rows = state.shape.get("vocabulary").and_then(serde_json::Value::as_u64);
        let rows =
            rows.and_then(|rows| usize::try_from(rows).ok()).filter(|rows| (1..=1 << 24).contains(rows));
        rows.ok_or_else(|| TrainError::Request("the checkpoint does not say how many ids there are".into()))
    };
    let expected = Expected { model: config.model.name(), shape: None, lengths: None };
    let (found, notes) = checkpoint::newest(&run.join(CHECKPOINT), &expected, |state, _| {
        Ok(network(rows(state)?)?.layout().clone())
    })?;
    let Some(Checkpoint { state, weights, vocabulary, .. }) = found else {
        let run = run.display();
        return Err(TrainError::Request(format!("{run} has no checkpoint yet; train it first")));
    };
    let mut ids = encode(&vocabulary, &request.prompt)?;
    let mut network = network(rows(&state)?)?;
    let x = device.parameters(&weights)?;
    let mut logits = vec![0.0; rows(&state)?];
    let mut draws = Site { seed: request.seed, site: SAMPLES, step: 0 }.draws();
    for _ in 0..request.length {
        network.next_logits(device, &ids, &x, &mut logits)?;
        ids.push(choose(&logits, request.temperature, &mut draws));
    }
    Ok(Sampled { text: decode(&vocabulary, &ids)?, step: state.step, notes })
}

/// The prompt's ids. An empty prompt stands for the beginning of a line.
fn encode(vocabulary: &Vocabulary, prompt: &str) -> Result<Vec<u32>, TrainError> {
    let unknown = |what: &str, missing: Vec<String>| {
        let missing = missing.join(", ");
        TrainError::Request(format!("--prompt holds {what} that the run was not trained on: {missing}"))
    };
    let ids = match vocabulary {
        Vocabulary::Characters(known) => {
            let mut missing: Vec<char> =
                prompt.chars().filter(|c| known.characters().binary_search(c).is_err()).collect();
            missing.sort_unstable();
            missing.dedup();
            if !missing.is_empty() {
                return Err(unknown("characters", missing.iter().map(|c| format!("{c:?}")).collect()));
            }
            let line = known.encode("\n").unwrap_or_else(|_| vec![0]);
            known.encode(prompt).ok().filter(|ids| !ids.is_empty()).unwrap_or(line)
        }
        Vocabulary::Words(known) => {
            let missing = prompt.split_whitespace().filter(|word| known.encode(word).is_err());
            let missing: Vec<String> = missing.map(|word| format!("{word:?}")).collect();
            if !missing.is_empty() {
                return Err(unknown("words", missing));
            }
            let line = vec![known.id(untuned_net::data::words::END).unwrap_or(0)];
            known.encode(prompt).ok().filter(|ids| !ids.is_empty()).unwrap_or(line)
        }
        Vocabulary::Pieces(_) | Vocabulary::Tokenizer { .. } => {
            return Err(TrainError::Request(
                "a T5 fills in spans and does not go on with a text; `sample` reads runs of gpt and lstm"
                    .into(),
            ));
        }
    };
    Ok(ids)
}

fn decode(vocabulary: &Vocabulary, ids: &[u32]) -> Result<String, TrainError> {
    let text = match vocabulary {
        Vocabulary::Characters(known) => known.decode(ids),
        Vocabulary::Words(known) => known.decode(ids),
        Vocabulary::Pieces(_) | Vocabulary::Tokenizer { .. } => Ok(String::new()),
    };
    text.map_err(|error| TrainError::Request(error.to_string()))
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
