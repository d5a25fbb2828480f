//! An experiment's file and what overrides it, resolved to one flat configuration.
//!
//! The keys at the top of the file hold for every scale, those of `[scale.NAME]` override them, and what was typed overrides both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use untuned::average::Average;
use untuned::optimizer::Optimizer as _;
use untuned::{MethodSpec, RunInfo, StepOptions};

use super::device::{AUTO, DeviceChoice};

/// The scale that is taken when none is named.
const DEFAULT_SCALE: &str = "quick";
/// The word that stands for the generated corpus.
pub const GENERATED: &str = "generated";
/// More steps than this do not fit the counter of the random numbers.
const MOST_STEPS: u64 = u32::MAX as u64;
/// A batch beyond this is a slip of the finger, and so are as many batches in a step.
const LARGEST_BATCH: usize = 1 << 20;
/// A method's name must fit beside a curve.
const LONGEST_METHOD: usize = 60;

const KEYS: &[&str] = &[
    "name",
    "scale",
    "model",
    "preset",
    "rule",
    "steps",
    "epochs",
    "seed",
    "batch",
    "accumulate",
    "frozen",
    "data",
    "device",
    "precision",
    "evaluate_every",
    "evaluate_tokens",
    "checkpoint_every",
    "keep_best",
    "max_refusals",
    "give_up_after",
    "smoothness_every",
    "method",
    "shape",
    "optimizer",
];
const OPTIMIZER_KEYS: &[&str] = &["weight_decay", "clip", "warmup", "schedule", "final_rate", "average"];
/// The part of the rate that nanoGPT keeps at the end of its cosine.
const FINAL_RATE: f64 = 0.1;

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not TOML, or a key has the wrong type.
    #[error("{origin}: {reason}")]
    Toml {
        /// The file, or the option.
        origin: String,
        reason: String,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key `{key}`{hint} (known: {known})")]
    UnknownKey {
        /// The file, or the option.
        origin: String,
        key: String,
        /// The nearest known one, as words.
        hint: String,
        known: String,
    },
    /// A scale that the file does not have.
    #[error("{origin} has no scale `{scale}` (it has: {known})")]
    UnknownScale { origin: String, scale: String, known: String },
    /// A value that makes no sense.
    #[error("{key} is {value}; {remedy}")]
    Value { key: String, value: String, remedy: String },
    /// `--set` without an equals sign.
    #[error("--set {given}: write --set key=value, such as --set batch=16 or --set shape.width=64")]
    NoValue { given: String },
    /// An option that contradicts the run that is to go on.
    #[error(
        "{key} is {saved} in {folder} and {given} in this request; leave it out to go on, or name a new folder with --out",
        folder = folder.display()
    )]
    Contradiction { key: String, saved: String, given: String, folder: PathBuf },
}

/// Which network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Nano-GPT on characters.
    Gpt,
    /// AWD-LSTM on words.
    Lstm,
    /// T5 on tokens of a SentencePiece vocabulary.
    T5,
}

impl Model {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Model::Gpt => "gpt",
            Model::Lstm => "lstm",
            Model::T5 => "t5",
        }
    }
}

/// How large a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// For tests and a first look.
    Tiny,
    /// For a laptop.
    Small,
    /// The paper's.
    Paper,
}

/// Whether the best weights are kept beside the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepBest {
    /// No.
    #[default]
    None,
    /// Those with the lowest validation loss.
    Validation,
}

/// When a run is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Interval {
    /// Every so many steps.
    Steps(u64),
    /// At the beginning of every epoch: `"epoch"`.
    Epoch,
}

impl TryFrom<Value> for Interval {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match &value {
            Value::String(word) if word == "epoch" => Ok(Interval::Epoch),
            Value::Integer(steps) if *steps > 0 => Ok(Interval::Steps(steps.unsigned_abs())),
            _ => Err(format!("evaluate_every is {value}; give a number of steps, at least 1, or \"epoch\"")),
        }
    }
}

impl From<Interval> for Value {
    fn from(interval: Interval) -> Value {
        match interval {
            Interval::Steps(steps) => Value::Integer(i64::try_from(steps).unwrap_or(i64::MAX)),
            Interval::Epoch => Value::String("epoch".into()),
        }
    }
}

/// What follows the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// The step size as it is.
    #[default]
    Constant,
    /// Half a cosine, down to [`Optimizer::final_rate`].
    Cosine,
}

/// Options of the update step.
///
/// Options at their default are not written, except the weight decay: runs from before an option existed resume unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Optimizer {
    /// `x ← x·(1 − η·weight_decay) − η·g`: all parameters with a scalar rule, only the matrices with an optimizer, some of which add
    /// it to the gradient instead, as they are published. Where it is not given it is [the method's own](MethodSpec::weight_decay).
    pub weight_decay: f64,
    /// An optimizer's gradient is scaled to this norm where it is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// The steps in which the step size grows to what it is.
    #[serde(skip_serializing_if = "is_zero")]
    pub warmup: u64,
    /// What follows the warm-up.
    #[serde(skip_serializing_if = "is_constant")]
    pub schedule: Schedule,
    /// What is left of the step size at the end of the cosine.
    #[serde(skip_serializing_if = "is_usual_final_rate")]
    pub final_rate: f64,
    /// The average of the points that is evaluated, and that is what the run leaves: `"polynomial"` or `"polynomial:8"`,
    /// `"ema:0.999"`, `"uniform"`.
    #[serde(skip_serializing_if = "Option::is_none", with = "average")]
    pub average: Option<Average>,
}

/// An average as it is written.
mod average {
    use super::Average;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &Option<Average>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(average) => to.collect_str(average),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Average>, D::Error> {
        let read = String::deserialize(from)?.parse();
        read.map(Some).map_err(D::Error::custom)
    }
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer {
            weight_decay: 0.0,
            clip: None,
            warmup: 0,
            schedule: Schedule::Constant,
            final_rate: FINAL_RATE,
            average: None,
        }
    }
}

fn is_zero(warmup: &u64) -> bool {
    *warmup == 0
}

fn is_constant(schedule: &Schedule) -> bool {
    *schedule == Schedule::Constant
}

fn is_usual_final_rate(rate: &f64) -> bool {
    *rate == FINAL_RATE
}

impl Optimizer {
    /// Its keys, dotted, with their values.
    pub fn keys(&self) -> BTreeMap<String, String> {
        let table = Table::try_from(self).unwrap_or_default();
        table.into_iter().map(|(key, value)| (format!("optimizer.{key}"), value.to_string())).collect()
    }
}

/// A run, resolved: every key has its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The experiment's name: that of its file, unless it says another.
    pub name: String,
    /// The scale that was taken.
    pub scale: String,
    /// The network.
    pub model: Model,
    /// Its size.
    pub preset: Preset,
    /// The rule or optimizer.
    pub rule: MethodSpec,
    /// The number of steps; or else `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The number of epochs, for the LSTM; or else `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// What all randomness of the run comes from.
    pub seed: u64,
    /// Windows, columns or documents side by side.
    pub batch: usize,
    /// Batches in a step: loss and gradient are the means over them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: usize,
    /// Tensors, or beginnings of their names, that stay as they are: their gradient counts as 0, and they do not decay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<String>,
    /// `generated`, or a file or folder.
    pub data: String,
    /// Where to compute.
    pub device: String,
    /// What to compute in.
    #[serde(default = "auto")]
    pub precision: String,
    /// When the weights are evaluated, beside the first and the last.
    pub evaluate_every: Interval,
    /// At most so many ids of each split are evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluate_tokens: Option<usize>,
    /// Steps from one checkpoint to the next.
    pub checkpoint_every: u64,
    /// Whether the best weights are kept.
    #[serde(default)]
    pub keep_best: KeepBest,
    /// So many refused steps in a row end the run.
    pub max_refusals: u32,
    /// From this fraction of the steps on, an evaluation that is no better than the first ends the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub give_up_after: Option<f64>,
    /// Steps from one measurement of the local smoothness to the next; each costs a second gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothness_every: Option<u64>,
    /// What figures call the method: runs of one method with different parameters are its grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Sizes that differ from the preset's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shape: BTreeMap<String, Value>,
    /// What surrounds the rule.
    #[serde(default)]
    pub optimizer: Optimizer,
}

fn auto() -> String {
    AUTO.into()
}

fn one() -> usize {
    1
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

/// What was typed beside the experiment's file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--scale`.
    pub scale: Option<String>,
    /// Keys, dotted where they stand in a table, and values; later ones win.
    pub values: Vec<(String, Value)>,
    /// Where the data is when neither the file nor `values` says so.
    pub default_data: Option<String>,
}

impl Overrides {
    /// Adds one `key=value` of `--set`. The value is TOML; what is not is taken as a string.
    ///
    /// # Errors
    /// When there is no equals sign.
    pub fn set(&mut self, text: &str) -> Result<(), ConfigError> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| ConfigError::NoValue { given: text.to_string() })?;
        let value = value.trim();
        let parsed = toml::from_str::<Table>(&format!("value = {value}"));
        // More than one key means that the value held a new line: then it is a string.
        let parsed = parsed.ok().filter(|t| t.len() == 1).and_then(|mut t| t.remove("value"));
        self.values.push((key.trim().to_string(), parsed.unwrap_or_else(|| Value::String(value.into()))));
        Ok(())
    }
}

impl Config {
    /// Reads an experiment's file and resolves it.
    ///
    /// # Errors
    /// Names the file, the key and what to write instead.
    pub fn read(path: &Path, overrides: &Overrides) -> Result<Config, ConfigError> {
        let text = read_text(path)?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Config::resolve(&text, &path.display().to_string(), &name, overrides)
    }

    /// Resolves an experiment's text; `origin` is what errors call it.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn resolve(
        text: &str,
        origin: &str,
        name: &str,
        overrides: &Overrides,
    ) -> Result<Config, ConfigError> {
        let mut table = parse(text, origin)?;
        let scale = take_scale(&mut table, origin, overrides.scale.as_deref())?;
        check_keys(&table, origin)?;
        let mut resolved = defaults(name);
        merge(&mut resolved, table);
        if let Some((name, scale)) = scale {
            let origin = format!("{origin}, [scale.{name}]");
            check_keys(&scale, &origin)?;
            merge(&mut resolved, scale);
            resolved.insert("scale".into(), Value::String(name));
        }
        for (key, value) in &overrides.values {
            let given = dotted(key, value.clone());
            check_keys(&given, "--set")?;
            if given.contains_key("scale") {
                let remedy = "name the scale with --scale".to_string();
                return Err(ConfigError::Value { key: "scale".into(), value: value.to_string(), remedy });
            }
            merge(&mut resolved, given);
        }
        if !resolved.contains_key("data") {
            let data = overrides.default_data.clone().unwrap_or_else(|| GENERATED.into());
            resolved.insert("data".into(), Value::String(data));
        }
        let decays = resolved.get("optimizer").is_some_and(|table| table.get("weight_decay").is_some());
        let beside = if overrides.values.is_empty() { "" } else { " with the options beside it" };
        let mut config = from_table(resolved, &format!("{origin}{beside}"))?;
        if !decays {
            config.optimizer.weight_decay = config.rule.weight_decay();
        }
        config.settle()?;
        config.data = absolute(&config.data);
        Ok(config)
    }

    /// Reads what [`Config::to_toml`] wrote into a run's folder.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn read_resolved(path: &Path) -> Result<Config, ConfigError> {
        let origin = path.display().to_string();
        let bytes = read_file(path)?;
        let table = parse(&String::from_utf8_lossy(&bytes), &origin)?;
        check_keys(&table, &origin)?;
        let mut config = from_table(table, &origin)?;
        config.settle()?;
        Ok(config)
    }

    /// Checks every value and decides what was left to the program.
    fn settle(&mut self) -> Result<(), ConfigError> {
        self.check()?;
        let choice = self.device_choice()?;
        (self.device, self.precision) = (choice.device(), choice.precision().into());
        Ok(())
    }

    /// The number of batches to train on, where the number of steps is given.
    pub fn batches(&self) -> Option<u64> {
        self.steps.map(|steps| steps.saturating_mul(self.accumulate as u64))
    }

    /// The device and the precision to compute in.
    ///
    /// # Errors
    /// When there is no such device or precision.
    pub fn device_choice(&self) -> Result<DeviceChoice, ConfigError> {
        DeviceChoice::of(&self.device, &self.precision)
    }

    /// The configuration as TOML.
    pub fn to_toml(&self) -> String {
        // Cannot fail: there is nothing in a configuration that TOML does not know. `check` bounds the seed.
        toml::to_string(self).unwrap_or_default()
    }

    /// What decides over a run's numbers, beside its data: every key with its value, but for names and paths. Of the device
    /// only the kind counts, not a GPU's number.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let mut keys = flat(self);
        for key in ["name", "scale", "data", "method"] {
            keys.remove(key);
        }
        if let Ok(choice) = self.device_choice() {
            for (key, word) in [("device", choice.kind()), ("precision", choice.precision())] {
                keys.insert(key.into(), Value::String(word.into()));
            }
        }
        keys.into_iter().map(|(key, value)| (key, value.to_string())).collect()
    }

    /// The keys that were typed and differ from those of the run in `folder`.
    ///
    /// # Errors
    /// Names the first one, with both values.
    pub fn check_against(&self, saved: &Config, typed: &[&str], folder: &Path) -> Result<(), ConfigError> {
        let (ours, theirs) = (flat(self), flat(saved));
        // A table that was typed stands for all keys in it.
        let is_typed = |key: &&String| {
            typed.iter().any(|typed| {
                key.strip_prefix(typed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        for key in ours.keys().chain(theirs.keys()).filter(is_typed) {
            let shown = |of: &BTreeMap<String, Value>| of.get(key).map_or("not set".into(), Value::to_string);
            let (given, saved) = (shown(&ours), shown(&theirs));
            if given != saved {
                let (key, folder) = (key.clone(), folder.into());
                return Err(ConfigError::Contradiction { key, saved, given, folder });
            }
        }
        Ok(())
    }

    /// The keys whose values differ, with ours and theirs.
    pub fn differences(&self, other: &Config) -> Vec<(String, String, String)> {
        let (ours, theirs) = (flat(self), flat(other));
        let keys: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let shown = |of: &BTreeMap<String, Value>, key: &String| {
            of.get(key).map_or("not set".to_string(), Value::to_string)
        };
        let all = keys.into_iter().map(|key| (key.clone(), shown(&ours, key), shown(&theirs, key)));
        all.filter(|(_, a, b)| a != b).collect()
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: &str, value: &dyn std::fmt::Display, remedy: &str| {
            Err(ConfigError::Value { key: key.into(), value: value.to_string(), remedy: remedy.into() })
        };
        match (self.steps, self.epochs) {
            (None, None) => return wrong("steps", &"not set", "give steps, or epochs for the LSTM"),
            (Some(steps), Some(_)) => {
                return wrong("steps", &steps, "and epochs is set too: give one of them");
            }
            (Some(steps), _) if steps > MOST_STEPS => {
                return wrong("steps", &steps, "give at most 4294967295");
            }
            (_, Some(0)) => return wrong("epochs", &0, "give at least 1"),
            (_, Some(epochs)) if self.model != Model::Lstm => {
                return wrong("epochs", &epochs, "only the LSTM reads its text in epochs: give steps");
            }
            _ => {}
        }
        if i64::try_from(self.seed).is_err() {
            return wrong("seed", &self.seed, "give at most 9223372036854775807");
        }
        if !(1..=LARGEST_BATCH).contains(&self.batch) {
            return wrong("batch", &self.batch, "give a number from 1 to 1048576");
        }
        if !(1..=LARGEST_BATCH).contains(&self.accumulate) {
            return wrong("accumulate", &self.accumulate, "give a number of batches from 1 to 1048576");
        }
        if self.batches().is_some_and(|batches| batches > MOST_STEPS) {
            return wrong("accumulate", &self.accumulate, "a run has at most 4294967295 batches");
        }
        if self.accumulate > 1 && self.smoothness_every.is_some() {
            let remedy = "the smoothness is measured on one batch: leave smoothness_every out";
            return wrong("accumulate", &self.accumulate, remedy);
        }
        if self.evaluate_every == Interval::Epoch && self.model != Model::Lstm {
            return wrong("evaluate_every", &"epoch", "only the LSTM reads its text in epochs: give steps");
        }
        if self.checkpoint_every == 0 {
            return wrong("checkpoint_every", &0, "give a number of steps, at least 1");
        }
        if self.max_refusals == 0 {
            return wrong("max_refusals", &0, "give at least 1");
        }
        if let Some(after) = self.give_up_after.filter(|after| !(*after > 0.0 && *after <= 1.0)) {
            return wrong("give_up_after", &after, "give a fraction of the steps, above 0 and at most 1");
        }
        if self.smoothness_every == Some(0) {
            return wrong("smoothness_every", &0, "give a number of steps, at least 1");
        }
        if let Some(method) = &self.method
            && (method.trim().is_empty()
                || method.chars().count() > LONGEST_METHOD
                || method.contains(char::is_control))
        {
            let remedy = "give a name of 1 to 60 characters, without control characters";
            return wrong("method", &format!("{method:?}"), remedy);
        }
        if self.evaluate_tokens.is_some_and(|tokens| tokens < 2) {
            return wrong("evaluate_tokens", &self.evaluate_tokens.unwrap_or(0), "give at least 2");
        }
        let Optimizer { weight_decay, clip, warmup, final_rate, .. } = self.optimizer;
        if let Some((what, value, _)) = (StepOptions { rate: 1.0, clip, weight_decay }).wrong() {
            let remedy = match what {
                "clip" => "give a number above 0, or leave it out to clip nothing",
                _ => "give a number of at least 0",
            };
            return wrong(&format!("optimizer.{what}"), &value, remedy);
        }
        if let Some(clip) = clip {
            // What else a method needs to be built is another's to say.
            let run = RunInfo { f_star: Some(0.0), ..RunInfo::new(1) };
            if self.rule.build(&run).is_ok_and(|method| !method.clips()) {
                let remedy = format!(
                    "{} does not clip; leave it out, or take adamw or clipped-gd:lr=0.1,threshold={clip}",
                    self.rule.name()
                );
                return wrong("optimizer.clip", &clip, &remedy);
            }
        }
        if warmup > MOST_STEPS {
            return wrong("optimizer.warmup", &warmup, "give at most 4294967295 steps");
        }
        if !(0.0..=1.0).contains(&final_rate) {
            return wrong("optimizer.final_rate", &final_rate, "give a number from 0 to 1");
        }
        if self.name.is_empty() || self.name.contains(['/', '\\', '\0']) {
            return wrong("name", &format!("{:?}", self.name), "give a name that can be part of a folder's");
        }
        Ok(())
    }
}

/// A whole file; a pipe or a device would be read without end.
fn read_file(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.into(), source };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        let reason = "not a file; give an experiment's file, such as experiments/gpt.toml".into();
        return Err(ConfigError::Toml { origin: path.display().to_string(), reason });
    }
    fs::read(path).map_err(failed)
}

/// A whole file as text.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    String::from_utf8(read_file(path)?).map_err(|error| ConfigError::Toml {
        origin: path.display().to_string(),
        reason: format!("not UTF-8 text: {}", error.utf8_error()),
    })
}

/// Whether a dotted key belongs to an experiment.
pub(crate) fn is_key(key: &str) -> bool {
    KEYS.contains(&key.split('.').next().unwrap_or_default())
}

fn defaults(name: &str) -> Table {
    let mut table = Table::new();
    let text = |value: &str| Value::String(value.into());
    for (key, value) in [
        ("name", text(name)),
        ("scale", text(DEFAULT_SCALE)),
        ("preset", text("tiny")),
        ("rule", text("inexact-polyak")),
        ("seed", Value::Integer(1)),
        ("batch", Value::Integer(8)),
        ("device", text(AUTO)),
        ("precision", text(AUTO)),
        ("evaluate_every", Value::Integer(100)),
        ("checkpoint_every", Value::Integer(500)),
        ("max_refusals", Value::Integer(10)),
    ] {
        table.insert(key.into(), value);
    }
    table
}

pub(crate) fn parse(text: &str, origin: &str) -> Result<Table, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::Toml {
        origin: origin.into(),
        reason: error.to_string().trim_end().to_string(),
    })
}

fn from_table(table: Table, origin: &str) -> Result<Config, ConfigError> {
    Config::deserialize(Value::Table(table)).map_err(|error| ConfigError::Toml {
        origin: origin.into(),
        reason: error.to_string().trim_end().replace('\n', " "),
    })
}

/// Takes the table of the wanted scale out of an experiment's file, with its name.
pub(crate) fn take_scale(
    table: &mut Table,
    origin: &str,
    wanted: Option<&str>,
) -> Result<Option<(String, Table)>, ConfigError> {
    let mut scales = match table.remove("scale") {
        None => Table::new(),
        Some(Value::Table(scales)) => scales,
        // A run's resolved configuration is an experiment too: that of its one scale.
        Some(Value::String(scale)) if wanted.is_none_or(|wanted| wanted == scale) => {
            return Ok(Some((scale, Table::new())));
        }
        Some(other) => {
            let reason = format!("scale is {other}; write tables [scale.quick], [scale.paper]");
            return Err(ConfigError::Toml { origin: origin.into(), reason });
        }
    };
    if scales.is_empty() && wanted.is_none() {
        return Ok(None);
    }
    let scale = wanted.unwrap_or(DEFAULT_SCALE).to_string();
    let known = scales.keys().cloned().collect::<Vec<_>>().join(", ");
    match scales.remove(&scale) {
        Some(Value::Table(values)) => Ok(Some((scale, values))),
        Some(other) => {
            let reason = format!("scale.{scale} is {other}; write a table [scale.{scale}]");
            Err(ConfigError::Toml { origin: origin.into(), reason })
        }
        None => {
            let known = if known.is_empty() { "none".into() } else { known };
            Err(ConfigError::UnknownScale { origin: origin.into(), scale, known })
        }
    }
}

/// Refuses keys that do not exist. Those of `[shape]` are the network's own and checked with it.
fn check_keys(table: &Table, origin: &str) -> Result<(), ConfigError> {
    for key in table.keys() {
        known_key(key, "", KEYS, origin)?;
    }
    if let Some(Value::Table(optimizer)) = table.get("optimizer") {
        for key in optimizer.keys() {
            known_key(key, "optimizer.", OPTIMIZER_KEYS, origin)?;
        }
    }
    Ok(())
}

/// Refuses a key that is not among the known ones, and names the nearest.
pub(crate) fn known_key(key: &str, prefix: &str, known: &[&str], origin: &str) -> Result<(), ConfigError> {
    if known.contains(&key) {
        return Ok(());
    }
    // A long key is no slip of the finger, and the distance takes time.
    let near =
        known.iter().map(|k| (strsim::damerau_levenshtein(key, k), k)).min().filter(|_| key.len() <= 80);
    let hint = match near {
        Some((distance, name)) if distance <= 2.max(name.len() / 3) => {
            format!(", did you mean `{prefix}{name}`?")
        }
        _ => String::new(),
    };
    let known = known.iter().map(|k| format!("{prefix}{k}")).collect::<Vec<_>>().join(", ");
    Err(ConfigError::UnknownKey { origin: origin.into(), key: format!("{prefix}{key}"), hint, known })
}

/// Overrides `base`, tables key by key. `steps` and `epochs` replace each other.
pub(crate) fn merge(base: &mut Table, over: Table) {
    let both = over.contains_key("steps") && over.contains_key("epochs");
    for (key, value) in over {
        match key.as_str() {
            "steps" if !both => drop(base.remove("epochs")),
            "epochs" if !both => drop(base.remove("steps")),
            _ => {}
        }
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => merge(inner, over),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// `a.b = value` as a table.
fn dotted(key: &str, value: Value) -> Table {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = match rest {
        Some(rest) => Value::Table(dotted(rest, value)),
        None => value,
    };
    Table::from_iter([(first.to_string(), value)])
}

/// The values by dotted key.
pub(crate) fn flat(config: &Config) -> BTreeMap<String, Value> {
    flatten(Table::try_from(config).unwrap_or_default())
}

/// A table's values by dotted key.
pub(crate) fn flatten(table: Table) -> BTreeMap<String, Value> {
    fn add(table: Table, prefix: &str, out: &mut BTreeMap<String, Value>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => add(inner, &format!("{prefix}{key}."), out),
                value => drop(out.insert(format!("{prefix}{key}"), value)),
            }
        }
    }
    let mut out = BTreeMap::new();
    add(table, "", &mut out);
    out
}

/// A path that holds from any folder; the word for the generated corpus stays.
fn absolute(data: &str) -> String {
    match std::path::absolute(data) {
        Ok(path) if data != GENERATED => path.to_string_lossy().into_owned(),
        _ => data.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "model = \"gpt\"\nbatch = 4\n[optimizer]\nweight_decay = 0.5\n\
        [scale.quick]\nsteps = 10\n[scale.quick.shape]\nwidth = 32\n[scale.paper]\nsteps = 20\nbatch = 64\n";

    const ADAMW: &[&str] = &[
        "rule=adamw:lr=0.001,beta2=0.99",
        "optimizer.clip=1",
        "optimizer.warmup=100",
        "optimizer.schedule=cosine",
        "optimizer.final_rate=0",
    ];

    fn overrides(scale: Option<&str>, set: &[&str]) -> Overrides {
        let mut overrides = Overrides { scale: scale.map(String::from), ..Overrides::default() };
        for text in set {
            overrides.set(text).unwrap();
        }
        overrides
    }

    fn resolve(text: &str, scale: Option<&str>, set: &[&str]) -> Result<Config, String> {
        Config::resolve(text, "x.toml", "x", &overrides(scale, set)).map_err(|e| e.to_string())
    }

    #[test]
    fn layers_override_each_other() {
        let quick = resolve(TEXT, None, &["device=cpu"]).unwrap();
        assert_eq!((quick.steps, quick.batch, &quick.scale[..]), (Some(10), 4, "quick"));
        assert_eq!(quick.shape["width"], Value::Integer(32));
        assert_eq!(
            (quick.optimizer.weight_decay, &quick.device[..], &quick.data[..]),
            (0.5, "cpu", GENERATED)
        );
        let paper = resolve(TEXT, Some("paper"), &["optimizer.weight_decay=0", "rule=gd:lr=0.1"]).unwrap();
        assert_eq!((paper.steps, paper.batch, paper.optimizer.weight_decay), (Some(20), 64, 0.0));
        assert_eq!((paper.rule.to_string().as_str(), paper.shape.is_empty()), ("gd:lr=0.1", true));
        let lstm = resolve(TEXT, None, &["model=lstm", "epochs=3"]).unwrap();
        assert_eq!((lstm.steps, lstm.epochs), (None, Some(3)), "epochs replace steps");
        let decay =
            |set: &[&str]| resolve("model = \"gpt\"\nsteps = 3", None, set).unwrap().optimizer.weight_decay;
        assert_eq!(
            [decay(&[]), decay(&["rule=adamw"]), decay(&["rule=polyak-adam"])],
            [0.0, 0.01, 0.1],
            "the method's own"
        );
        assert_eq!(decay(&["rule=polyak-adam", "optimizer.weight_decay=0"]), 0.0);
    }

    #[test]
    fn the_resolved_copy_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        for config in [
            resolve(TEXT, None, &["evaluate_tokens=100", "keep_best=validation"]).unwrap(),
            resolve(TEXT, None, &["give_up_after=0.1", "smoothness_every=7", "method=Inexact Polyak"])
                .unwrap(),
            resolve(TEXT, Some("paper"), &["rule=clipped-gd:lr=0.1,threshold=inf", "data=a/b.txt"]).unwrap(),
            resolve(TEXT, None, ADAMW).unwrap(),
        ] {
            fs::write(&path, config.to_toml()).unwrap();
            assert_eq!(Config::read_resolved(&path).unwrap(), config);
        }
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        for (text, scale, set, words) in [
            (TEXT, None, &["bacth=3"][..], &["`bacth`", "did you mean `batch`"][..]),
            (TEXT, None, &["optimizer.decay=3"], &["`optimizer.decay`", "optimizer.weight_decay"]),
            (TEXT, None, &["batch=0"], &["batch is 0", "from 1"]),
            (TEXT, None, &["batch=many"], &["many", "batch"]),
            (TEXT, None, &["batch=-1"], &["batch"]),
            (TEXT, None, &["epochs=2"], &["epochs is 2", "give steps"]),
            (TEXT, None, &["give_up_after=0"], &["give_up_after is 0", "above 0"]),
            (TEXT, None, &["give_up_after=1.5"], &["give_up_after is 1.5", "at most 1"]),
            (TEXT, None, &["give_up_after=nan"], &["give_up_after is NaN", "above 0"]),
            (TEXT, None, &["smoothness_every=0"], &["smoothness_every is 0", "at least 1"]),
            (TEXT, None, &["smoothness_every=-1"], &["smoothness_every"]),
            (TEXT, None, &["method="], &["method is \"\"", "1 to 60"]),
            (TEXT, None, &["method=a\tb"], &["method is \"a\\tb\"", "control"]),
            (TEXT, None, &[&format!("method={}", "é".repeat(61))], &["1 to 60"]),
            (TEXT, None, &["device=cuda:x"], &["cuda:x", "the GPU's number"]),
            (TEXT, None, &["device=tpu"], &["tpu", "give cpu"]),
            (TEXT, None, &["device=cpu", "precision=bf16"], &["precision is bf16", "give f32"]),
            (TEXT, None, &["precision=half"], &["precision is half", "bf16"]),
            (TEXT, None, &["rule=polyac"], &["polyac", "polyak"]),
            (TEXT, None, &["rule=adamv"], &["adamv", "did you mean `adamw`?"]),
            (TEXT, None, &["optimizer.clip=1"], &["optimizer.clip is 1", "clipped-gd:lr=0.1,threshold=1"]),
            (TEXT, None, &["rule=adamw", "optimizer.clip=0"], &["optimizer.clip is 0", "above 0"]),
            (TEXT, None, &["rule=adamw", "optimizer.clip=inf"], &["optimizer.clip is inf", "leave it out"]),
            (TEXT, None, &["optimizer.warmup=-1"], &["optimizer", "-1"]),
            (TEXT, None, &["optimizer.warmup=4294967296"], &["optimizer.warmup is 4294967296", "at most"]),
            (TEXT, None, &["optimizer.schedule=linear"], &["linear", "constant", "cosine"]),
            (TEXT, None, &["optimizer.final_rate=1.5"], &["optimizer.final_rate is 1.5", "from 0 to 1"]),
            (TEXT, None, &["optimizer.final_rate=nan"], &["optimizer.final_rate is NaN", "from 0 to 1"]),
            (TEXT, None, &["optimizer.final=1"], &["`optimizer.final`", "optimizer.final_rate"]),
            (TEXT, None, &["preset=huge"], &["huge", "tiny"]),
            (TEXT, None, &["scale=paper"], &["--scale"]),
            (TEXT, Some("papr"), &[], &["papr", "paper, quick"]),
            ("model = \"gpt\"", Some("quick"), &[], &["quick", "none"]),
            ("model = \"gpt\"", None, &[], &["steps is not set"]),
            ("steps = 3", None, &[], &["model"]),
            ("modle = \"gpt\"", None, &[], &["modle", "did you mean `model`"]),
            ("model = \"gpt\"\nsteps = 3\nepochs = 2", None, &[], &["one of them"]),
            ("model = ", None, &[], &["x.toml", "line 1"]),
            ("scale = 3", None, &[], &["[scale.quick]"]),
            ("scale.quick = 3", None, &[], &["[scale.quick]"]),
        ] {
            let error = resolve(text, scale, set).unwrap_err();
            assert!(words.iter().all(|w| error.contains(w)), "{words:?} in {error}");
        }
        assert!(Overrides::default().set("batch").unwrap_err().to_string().contains("--set key=value"));
    }

    #[test]
    fn a_name_is_no_part_of_the_identity() {
        let plain = resolve(TEXT, None, &[]).unwrap();
        let named = resolve(TEXT, None, &[&format!("method={}", "é".repeat(60)), "name=y"]).unwrap();
        assert_eq!(named.identity(), plain.identity());
        let other = resolve(TEXT, None, &["give_up_after=1", "smoothness_every=1"]).unwrap();
        assert_eq!(other.identity().len(), plain.identity().len() + 2);
    }

    #[test]
    fn the_device_and_its_precision_are_part_of_the_identity_and_its_number_is_not() {
        let identity = |set: &[&str]| resolve(TEXT, None, set).unwrap().identity();
        let (cpu, first) = (identity(&["device=cpu"]), identity(&["device=cuda"]));
        assert_eq!((&cpu["device"][..], &cpu["precision"][..]), ("\"cpu\"", "\"f32\""));
        assert_eq!((&first["device"][..], &first["precision"][..]), ("\"cuda\"", "\"bf16\""));
        assert_eq!(identity(&["device=cuda:1", "precision=bf16"]), first);
        assert_ne!(identity(&["device=cuda:0", "precision=f32"]), first);
        // A copy from before there was a precision.
        let text = resolve(TEXT, None, &["device=cpu"]).unwrap().to_toml();
        assert!(text.contains("precision = \"f32\"\n"), "{text}");
        let old: Config = toml::from_str(&text.replace("precision = \"f32\"\n", "")).unwrap();
        assert_eq!(old.identity(), cpu);
    }

    #[test]
    fn what_surrounds_the_rule_is_written_where_it_was_set() {
        let plain = resolve(TEXT, None, &[]).unwrap().to_toml();
        assert!(plain.ends_with("[optimizer]\nweight_decay = 0.5\n"), "{plain}");
        let config = resolve(TEXT, None, ADAMW).unwrap();
        let wanted =
            "weight_decay = 0.5\nclip = 1.0\nwarmup = 100\nschedule = \"cosine\"\nfinal_rate = 0.0\n";
        assert!(config.to_toml().ends_with(wanted), "{}", config.to_toml());
        assert_eq!(config.identity()["optimizer.clip"], "1.0");
        let usual = resolve(TEXT, None, &["optimizer.schedule=cosine"]).unwrap();
        assert_eq!((usual.optimizer.final_rate, usual.optimizer.clip), (0.1, None));
    }

    #[test]
    fn contradictions_name_both_values() {
        let (saved, asked) = (resolve(TEXT, None, &[]).unwrap(), resolve(TEXT, None, &["seed=2"]).unwrap());
        let error = asked.check_against(&saved, &["seed"], Path::new("runs/a")).unwrap_err().to_string();
        assert!(error.contains("seed is 1 in runs/a and 2 in this request"), "{error}");
        assert!(asked.check_against(&saved, &["batch"], Path::new("runs/a")).is_ok());
        assert_eq!(asked.differences(&saved), [("seed".into(), "2".into(), "1".into())]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_an_error(text in any::<String>(), set in any::<String>()) {
            let mut given = Overrides::default();
            let _ = given.set(&set);
            let _ = Config::resolve(&text, "x.toml", "x", &given);
            let _ = Config::resolve(TEXT, "x.toml", "x", &given);
        }

        #[test]
        fn any_value_of_any_key_is_a_configuration_or_an_error(
            key in proptest::sample::select(KEYS), value in "[0-9a-z.\\[\\]{}=\"' -]{0,12}"
        ) {
            if let Ok(config) = resolve(TEXT, None, &[&format!("{key}={value}")]) {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("config.toml");
                fs::write(&path, config.to_toml()).unwrap();
                prop_assert_eq!(Config::read_resolved(&path).unwrap(), config);
            }
        }
    }
}
