//! A sweep's file, resolved to a list of trials.
//!
//! ```toml
//! experiment = "gpt.toml"             # beside this file
//! seeds = [1, 2, 3]
//! steps = [2500, 5000]                # horizons; without it, the experiment's own
//!
//! [set]                               # keys of the experiment, for every trial
//! batch = 16
//!
//! [[method]]
//! rule = "inexact-polyak"
//! steps = [5000]                      # in place of those at the top
//! seeds = [1]                         # in place of those at the top
//! scale = "paper"                     # only at this scale
//!
//! [[method]]
//! rule = "clipped-gd"
//! grid.lr = [0.1, 0.5]                # parameters of the rule, or keys of the experiment
//! grid.threshold = [1, 2, inf]
//! set.optimizer.weight_decay = 1e-6   # keys of the experiment, for this method
//! ```
//!
//! As in an experiment's file, keys at the top hold for every scale and those of `[scale.NAME]` override them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{PLAN, TRIALS, trial};
use crate::train::config::{self, ConfigError, known_key};
use crate::train::folder::{is_archived, pretty, write_synced};
use crate::train::shape::Shape;
use crate::train::{Config, Overrides, TrainError};

const KEYS: &[&str] = &["experiment", "seeds", "steps", "set", "method"];
const METHOD_KEYS: &[&str] = &["name", "rule", "seeds", "steps", "scale", "grid", "set"];
/// More trials than this are a slip of the finger.
const MOST_TRIALS: usize = 1_000_000;

/// What is wrong with a sweep.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum PlanError {
    /// A file, or a key of it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A value that makes no sense.
    #[error("{origin}: {key} is {value}; {remedy}")]
    Value { origin: String, key: String, value: String, remedy: String },
    /// A trial's configuration.
    #[error("{origin}: trial {index} ({method}): {source}")]
    Trial { origin: String, index: usize, method: String, source: Box<ConfigError> },
    /// The same trial twice.
    #[error("{origin}: trials {first} and {second} are the same run ({what}); leave one of them out")]
    Duplicate {
        origin: String,
        first: usize,
        second: usize,
        /// Rule and seed.
        what: String,
    },
    /// More trials than anybody means.
    #[error("{origin} asks for {count} trials; a sweep has at most 1000000")]
    TooMany { origin: String, count: u128 },
    /// The folder holds another sweep.
    #[error("{folder} holds another sweep: {difference}; name a new folder with --out", folder = folder.display())]
    Another {
        folder: PathBuf,
        /// The first thing that differs.
        difference: String,
    },
    /// No such trial.
    #[error("--index {index}: the sweep has {count} trials; give 0 to {last}", last = count - 1)]
    NoTrial { index: usize, count: usize },
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] TrainError),
}

/// A run of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its place in the sweep: seeds change slowest, then horizons, then methods, then the grid.
    pub index: usize,
    /// What to do.
    pub config: Config,
    /// The rule, and the keys of the experiment that the grid sets.
    pub label: String,
}

/// All runs of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The file that it came from.
    pub origin: String,
    /// The trials, by index.
    pub trials: Vec<Trial>,
}

/// A method of a sweep's file.
#[derive(Debug, Default)]
struct Method {
    name: Option<String>,
    rule: String,
    /// The only scale that it is for.
    scale: Option<String>,
    /// Its seeds: its own, or those at the top.
    seeds: Vec<i64>,
    /// Its horizons: its own, or those at the top; nothing stands for the experiment's.
    horizons: Vec<Option<i64>>,
    /// Keys and values, in the alphabetical order of the keys; the last key changes fastest.
    grid: Vec<(String, Vec<Value>)>,
    set: Vec<(String, Value)>,
}

impl Plan {
    /// Reads a sweep's file, and its experiment's file beside it.
    ///
    /// # Errors
    /// Names the file, the key and what to write instead.
    pub fn read(path: &Path, overrides: &Overrides) -> Result<Plan, PlanError> {
        let text = config::read_text(path)?;
        let beside = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let experiment = |name: &str| {
            let path = beside.join(name);
            let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            Ok((config::read_text(&path)?, path.display().to_string(), stem))
        };
        Plan::resolve(&text, &path.display().to_string(), experiment, overrides)
    }

    /// Resolves a sweep's text. `experiment` finds the text, origin and name of the experiment's file that it names.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn resolve(
        text: &str,
        origin: &str,
        experiment: impl FnOnce(&str) -> Result<(String, String, String), ConfigError>,
        overrides: &Overrides,
    ) -> Result<Plan, PlanError> {
        let file = File::resolve(text, origin, overrides.scale.as_deref())?;
        let (text, beside, name) = experiment(&file.experiment)?;
        let experiment = Experiment { text: &text, origin: &beside, name: &name };
        let trials = |method: &Method| {
            let runs = method.seeds.len() as u128 * method.horizons.len() as u128;
            method.combinations().saturating_mul(runs)
        };
        let count = file.methods.iter().map(trials).fold(0u128, u128::saturating_add);
        if count > MOST_TRIALS as u128 {
            return Err(PlanError::TooMany { origin: origin.into(), count });
        }
        let mut trials: Vec<Trial> = Vec::new();
        for seed in &file.seeds {
            for steps in &file.horizons {
                let here = |method: &&Method| method.seeds.contains(seed) && method.horizons.contains(steps);
                for method in file.methods.iter().filter(here) {
                    for point in 0..method.combinations() as usize {
                        let index = trials.len();
                        let values = file.values(method, point, *seed, *steps);
                        let config = experiment.resolve(values, overrides);
                        let config = config.and_then(|config| Shape::of(&config).map(|_| config));
                        let config = config.map_err(|source| PlanError::Trial {
                            origin: origin.into(),
                            index,
                            method: method.rule.clone(),
                            source: Box::new(source),
                        })?;
                        let label = method.label(point, &config);
                        trials.push(Trial { index, config, label });
                    }
                }
            }
        }
        let plan = Plan { origin: origin.into(), trials };
        plan.check_unique()?;
        Ok(plan)
    }

    /// The trial with this index.
    ///
    /// # Errors
    /// When there is none.
    pub fn trial(&self, index: usize) -> Result<&Trial, PlanError> {
        self.trials.get(index).ok_or(PlanError::NoTrial { index, count: self.trials.len() })
    }

    fn check_unique(&self) -> Result<(), PlanError> {
        let mut seen: HashMap<BTreeMap<String, String>, usize> = HashMap::new();
        for trial in &self.trials {
            if let Some(first) = seen.insert(trial.config.identity(), trial.index) {
                let Config { rule, seed, .. } = &trial.config;
                return Err(PlanError::Duplicate {
                    origin: self.origin.clone(),
                    first,
                    second: trial.index,
                    what: format!("{rule}, seed {seed}"),
                });
            }
        }
        Ok(())
    }

    /// Makes the sweep's folder, or checks that it is this sweep's: the plan in it may be a beginning of this one, as it is after a
    /// seed was added at the end. Any number of processes can do so at the same time.
    ///
    /// # Errors
    /// When the folder holds anything else, or cannot be written.
    pub fn claim(&self, folder: &Path) -> Result<(), PlanError> {
        if folder.exists() && !folder.is_dir() {
            let path = folder.display();
            return Err(TrainError::Request(format!("{path} is a file; name a folder with --out")).into());
        }
        fs::create_dir_all(folder).map_err(TrainError::io("make the folder", folder))?;
        if let Some(trial) = self.trials.iter().find(|t| is_archived(&trial::folder(folder, t.index))) {
            let (path, index) = (folder.display(), trial.index);
            return Err(TrainError::Request(format!(
                "{path} is an archive: of trial {index} only a thinned trace is left, and no trial can be made beside it; name a new \
                 folder with --out"
            ))
            .into());
        }
        let path = folder.join(PLAN);
        if !path.is_file() {
            check_is_empty(folder)?;
            self.write(folder, false)?;
        }
        if self.check_against(folder, &path)? { Ok(()) } else { self.write(folder, true) }
    }

    /// Writes `plan.json` aside, and lets it take its place: that of a shorter one, or where there is none. Another process may have
    /// been quicker.
    fn write(&self, folder: &Path, replace: bool) -> Result<(), PlanError> {
        let trials: Vec<_> = self.trials.iter().map(|t| (t.index, t.config.clone())).collect();
        let bytes = plan_file(&trials);
        let (path, aside) = (folder.join(PLAN), folder.join(format!("{ASIDE}{}", std::process::id())));
        write_synced(&aside, &bytes)?;
        let done = match replace {
            true => fs::rename(&aside, &path),
            false => {
                fs::hard_link(&aside, &path).or_else(|error| if path.is_file() { Ok(()) } else { Err(error) })
            }
        };
        let _ = fs::remove_file(&aside);
        Ok(done.map_err(TrainError::io("write", &path))?)
    }

    /// Whether the folder's plan is as long as this one.
    fn check_against(&self, folder: &Path, path: &Path) -> Result<bool, PlanError> {
        let bytes = fs::read(path).map_err(TrainError::io("read", path))?;
        let theirs: Vec<Line> = serde_json::from_slice(&bytes).map_err(|error| {
            let path = path.display();
            TrainError::Request(format!("{path}: {error}; name a new folder with --out"))
        })?;
        let differs = |difference| PlanError::Another { folder: folder.into(), difference };
        for (index, (theirs, ours)) in theirs.iter().zip(&self.trials).enumerate() {
            if let Some(what) = theirs.difference(ours) {
                return Err(differs(format!("in trial {index}, {what}")));
            }
        }
        let (there, here) = (theirs.len(), self.trials.len());
        if there > here {
            return Err(differs(format!("it has {there} trials, this one {here}")));
        }
        Ok(there == here)
    }
}

/// The beginning of the names of plans that are being written.
const ASIDE: &str = "plan.json.new-";

/// A folder that is to become a sweep's may hold what other processes of the same sweep begin with, and nothing else.
fn check_is_empty(folder: &Path) -> Result<(), TrainError> {
    let entries = fs::read_dir(folder).map_err(TrainError::io("read", folder))?;
    let ours = |name: &str| name == PLAN || name == TRIALS || name.starts_with(ASIDE);
    match entries.flatten().find(|entry| !ours(&entry.file_name().to_string_lossy())) {
        None => Ok(()),
        Some(entry) => {
            let (path, name) = (folder.display(), entry.file_name());
            let name = name.display();
            Err(TrainError::Request(format!(
                "{path} holds {name} and no sweep; name a new folder with --out"
            )))
        }
    }
}

/// A trial in `plan.json`: its whole configuration.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    index: usize,
    config: Config,
}

impl Line {
    /// The first key that decides over the trial's numbers and differs, in words.
    fn difference(&self, trial: &Trial) -> Option<String> {
        let (there, here) = (self.config.identity(), trial.config.identity());
        let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        let differs = |key: &str, there: Option<&String>, here: Option<&String>| {
            let shown = |value: Option<&String>| value.map_or("not set".to_string(), String::clone);
            (there != here)
                .then(|| format!("{key} is {} there and {} in this request", shown(there), shown(here)))
        };
        let in_keys = keys.into_iter().find_map(|k| differs(k, there.get(k), here.get(k)));
        in_keys.or_else(|| differs("data", Some(&self.config.data), Some(&trial.config.data)))
    }
}

/// `plan.json` of some trials.
pub(crate) fn plan_file(trials: &[(usize, Config)]) -> Vec<u8> {
    let line = |(index, config): &(usize, Config)| Line { index: *index, config: config.clone() };
    pretty(&trials.iter().map(line).collect::<Vec<_>>())
}

/// The trials that the sweep in a folder is to make; nothing where it is no sweep's, or its plan cannot be read.
pub fn planned(folder: &Path) -> Option<Vec<(usize, Config)>> {
    let lines: Vec<Line> = serde_json::from_slice(&fs::read(folder.join(PLAN)).ok()?).ok()?;
    Some(lines.into_iter().map(|line| (line.index, line.config)).collect())
}

struct Experiment<'a> {
    text: &'a str,
    origin: &'a str,
    name: &'a str,
}

impl Experiment<'_> {
    /// The configuration with these values, and those that were typed after them.
    fn resolve(&self, mut values: Vec<(String, Value)>, typed: &Overrides) -> Result<Config, ConfigError> {
        values.extend(typed.values.iter().cloned());
        let overrides = Overrides { values, ..typed.clone() };
        Config::resolve(self.text, self.origin, self.name, &overrides)
    }
}

/// A sweep's file for one scale, checked.
struct File {
    experiment: String,
    /// All seeds and horizons, in the order of trials: those at the top, then those that only methods name.
    seeds: Vec<i64>,
    horizons: Vec<Option<i64>>,
    set: Vec<(String, Value)>,
    methods: Vec<Method>,
}

impl File {
    fn resolve(text: &str, origin: &str, scale: Option<&str>) -> Result<File, PlanError> {
        let mut table = config::parse(text, origin)?;
        let scales = table.get("scale").and_then(Value::as_table);
        let scales: Vec<String> = scales.map_or_else(Vec::new, |scales| scales.keys().cloned().collect());
        let scale = config::take_scale(&mut table, origin, scale)?;
        check_keys(&table, KEYS, origin)?;
        let scale = scale.map(|(name, scale)| {
            check_keys(&scale, KEYS, &format!("{origin}, [scale.{name}]"))?;
            config::merge(&mut table, scale);
            Ok::<_, ConfigError>(name)
        });
        let scale = scale.transpose()?;
        let reader = Reader { origin };
        let experiment = match table.remove("experiment") {
            Some(Value::String(name)) => name,
            other => {
                let remedy = "name the experiment's file, such as experiment = \"gpt.toml\"";
                return Err(reader.wrong("experiment", &shown(other.as_ref()), remedy));
            }
        };
        let seeds = reader.whole_numbers("seeds", table.remove("seeds"))?;
        let horizons = match table.remove("steps") {
            None => vec![None],
            some => reader.whole_numbers("steps", some)?.into_iter().map(Some).collect(),
        };
        let set = reader.keys("set", table.remove("set"))?;
        let methods = match table.remove("method") {
            Some(Value::Array(methods)) if !methods.is_empty() => methods,
            other => {
                let remedy = "write at least one [[method]] with its rule";
                return Err(reader.wrong("method", &shown(other.as_ref()), remedy));
            }
        };
        let methods = methods.into_iter().enumerate();
        let mut methods = methods
            .map(|(at, method)| reader.method(at, method, &seeds, &horizons, &scales))
            .collect::<Result<Vec<_>, _>>()?;
        methods.retain(|method| method.scale.is_none() || method.scale == scale);
        if methods.is_empty() {
            let remedy =
                format!("choose one of the scales {}, or take `scale` from a method", scales.join(", "));
            return Err(reader.wrong("the number of methods at this scale", "0", &remedy));
        }
        let seeds = in_order(seeds, methods.iter().flat_map(|method| &method.seeds));
        let horizons = in_order(horizons, methods.iter().flat_map(|method| &method.horizons));
        Ok(File { experiment, seeds, horizons, set, methods })
    }

    /// What a trial sets.
    fn values(&self, method: &Method, point: usize, seed: i64, steps: Option<i64>) -> Vec<(String, Value)> {
        let mut values = self.set.clone();
        values.extend(method.set.iter().cloned());
        let mut rule = method.rule.clone();
        for (key, value) in method.point(point) {
            if config::is_key(key) {
                values.push((key.clone(), value.clone()));
            } else {
                rule.push(if rule.contains(':') { ',' } else { ':' });
                rule.push_str(&format!("{key}={}", plain(value)));
            }
        }
        values.push(("rule".into(), Value::String(rule)));
        values.extend(method.name.clone().map(|name| ("method".to_string(), Value::String(name))));
        values.extend(steps.map(|steps| ("steps".to_string(), Value::Integer(steps))));
        values.push(("seed".into(), Value::Integer(seed)));
        values
    }
}

impl Method {
    /// The number of points of its grid; one where there is none.
    fn combinations(&self) -> u128 {
        self.grid.iter().map(|(_, values)| values.len() as u128).fold(1, u128::saturating_mul)
    }

    /// The rule of the `point`-th, and the keys of the experiment in it.
    fn label(&self, point: usize, config: &Config) -> String {
        let keys = self.point(point).into_iter().filter(|(key, _)| config::is_key(key));
        keys.fold(config.rule.to_string(), |label, (key, value)| format!("{label}, {key}={}", plain(value)))
    }

    /// The `point`-th of them.
    fn point(&self, mut point: usize) -> Vec<(&String, &Value)> {
        let mut values = Vec::new();
        for (key, choices) in self.grid.iter().rev() {
            values.push((key, &choices[point % choices.len()]));
            point /= choices.len();
        }
        values.reverse();
        values
    }
}

/// Reads values of a sweep's file.
struct Reader<'a> {
    origin: &'a str,
}

impl Reader<'_> {
    fn wrong(&self, key: &str, value: &str, remedy: &str) -> PlanError {
        let (key, value, remedy) = (key.into(), value.into(), remedy.into());
        PlanError::Value { origin: self.origin.into(), key, value, remedy }
    }

    /// Refuses keys of an experiment that the sweep itself sets.
    fn refuse_own(&self, place: &str, key: &str) -> Result<(), PlanError> {
        let remedy = match key {
            "seed" => "give the seeds as seeds = [1, 2, 3] at the top",
            "steps" | "epochs" => {
                "give several numbers of steps as steps = [100, 200] at the top, or one in the experiment"
            }
            "rule" => "give each rule a [[method]] of its own",
            "method" => "give a method's name as its key `name`",
            "name" | "scale" => "leave it out",
            _ => return Ok(()),
        };
        Err(self.wrong(place, "set here", remedy))
    }

    /// A list of at least one number of at least 0, without repetitions.
    fn whole_numbers(&self, key: &str, value: Option<Value>) -> Result<Vec<i64>, PlanError> {
        let name = key.split(' ').next().unwrap_or(key);
        let remedy = format!("give a list of different whole numbers, such as {name} = [1, 2, 3]");
        let wrong = || self.wrong(key, &shown(value.as_ref()), &remedy);
        let Some(Value::Array(items)) = &value else { return Err(wrong()) };
        let numbers: Option<Vec<i64>> = items.iter().map(|v| v.as_integer().filter(|n| *n >= 0)).collect();
        let numbers = numbers.filter(|n| !n.is_empty()).ok_or_else(wrong)?;
        let distinct: BTreeSet<&i64> = numbers.iter().collect();
        if distinct.len() == numbers.len() { Ok(numbers) } else { Err(wrong()) }
    }

    /// A table of the experiment's keys, as dotted keys.
    fn keys(&self, key: &str, value: Option<Value>) -> Result<Vec<(String, Value)>, PlanError> {
        match value {
            None => Ok(Vec::new()),
            Some(Value::Table(table)) => {
                let keys = config::flatten(table);
                keys.keys().try_for_each(|inner| self.refuse_own(&format!("{key}.{inner}"), inner))?;
                Ok(keys.into_iter().collect())
            }
            other => {
                let remedy = "write a table of the experiment's keys, such as set.batch = 16";
                Err(self.wrong(key, &shown(other.as_ref()), remedy))
            }
        }
    }

    fn method(
        &self,
        at: usize,
        method: Value,
        seeds: &[i64],
        horizons: &[Option<i64>],
        scales: &[String],
    ) -> Result<Method, PlanError> {
        let key = format!("method {}", at + 1);
        let Value::Table(mut table) = method else {
            return Err(self.wrong(&key, &method.to_string(), "write [[method]] with its rule"));
        };
        check_keys(&table, METHOD_KEYS, &format!("{}, {key}", self.origin))?;
        let text = |value: Option<Value>, name: &str, remedy: &str| match value {
            Some(Value::String(text)) => Ok(Some(text)),
            None => Ok(None),
            other => Err(self.wrong(&format!("{name} of {key}"), &shown(other.as_ref()), remedy)),
        };
        let remedy = "name a rule, such as rule = \"inexact-polyak\"";
        let rule = text(table.remove("rule"), "rule", remedy)?;
        let rule = rule.ok_or_else(|| self.wrong(&format!("rule of {key}"), "not set", remedy))?;
        let name = text(table.remove("name"), "name", "give a text")?;
        let remedy = match scales {
            [] => "leave it out: this file has no scales".to_string(),
            scales => format!("name a scale of this file: {}", scales.join(", ")),
        };
        let scale = text(table.remove("scale"), "scale", &remedy)?;
        if let Some(unknown) = scale.iter().find(|scale| !scales.contains(scale)) {
            return Err(self.wrong(&format!("scale of {key} ({rule})"), unknown, &remedy));
        }
        let mut own = |list: &str| match table.remove(list) {
            None => Ok(None),
            some => self.whole_numbers(&format!("{list} of {key} ({rule})"), some).map(Some),
        };
        let seeds = own("seeds")?.unwrap_or_else(|| seeds.to_vec());
        let steps = own("steps")?;
        let horizons = steps.map_or_else(|| horizons.to_vec(), |steps| steps.into_iter().map(Some).collect());
        let set = self.keys(&format!("set of {key}"), table.remove("set"))?;
        let mut grid = Vec::new();
        let given = match table.remove("grid") {
            None => Table::new(),
            Some(Value::Table(grid)) => grid,
            Some(other) => {
                let remedy = "write the values of a parameter, such as grid.lr = [0.1, 1]";
                return Err(self.wrong(&format!("grid of {key}"), &other.to_string(), remedy));
            }
        };
        for (parameter, values) in config::flatten(given) {
            self.refuse_own(&format!("grid.{parameter} of {key}"), &parameter)?;
            match values {
                Value::Array(values) if !values.is_empty() => grid.push((parameter, values)),
                other => {
                    let remedy = format!("give at least one value, such as grid.{parameter} = [0.1, 1]");
                    let what = format!("grid.{parameter} of {key} ({rule})");
                    return Err(self.wrong(&what, &other.to_string(), &remedy));
                }
            }
        }
        Ok(Method { name, rule, scale, seeds, horizons, grid, set })
    }
}

/// The first ones, and of the others those that are new.
fn in_order<'a, T: Copy + Eq + Hash + 'a>(first: Vec<T>, others: impl Iterator<Item = &'a T>) -> Vec<T> {
    let mut seen = HashSet::new();
    first.into_iter().chain(others.copied()).filter(|one| seen.insert(*one)).collect()
}

fn check_keys(table: &Table, known: &[&str], origin: &str) -> Result<(), ConfigError> {
    table.keys().try_for_each(|key| known_key(key, "", known, origin))
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("not set".to_string(), Value::to_string)
}

/// A value as it stands in a rule's spec.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Float(number) => untuned::spec::number(*number),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPERIMENT: &str =
        "model = \"gpt\"\nbatch = 4\n[scale.quick]\nsteps = 10\n[scale.paper]\nsteps = 20\n";
    const SWEEP: &str = "experiment = \"x.toml\"\nseeds = [1, 2]\n\
        [[method]]\nrule = \"clipped-gd\"\ngrid.threshold = [1, inf]\ngrid.lr = [0.5, 0.1, 1e-5]\n\
        [[method]]\nrule = \"inexact-polyak\"\nset.shape.width = 32\n\
        [scale.quick]\nset.batch = 2\n\
        [scale.paper]\nseeds = [7]\nsteps = [5, 15]\n[[scale.paper.method]]\nrule = \"dog\"\ngrid.batch = [1, 2]\n";

    fn plan(text: &str, scale: Option<&str>) -> Result<Plan, String> {
        let overrides = Overrides { scale: scale.map(String::from), ..Overrides::default() };
        let experiment = |name: &str| {
            assert_eq!(name, "x.toml");
            Ok((EXPERIMENT.to_string(), "x.toml".to_string(), "x".to_string()))
        };
        Plan::resolve(text, "s.toml", experiment, &overrides).map_err(|e| e.to_string())
    }

    #[test]
    fn trials_are_a_function_of_their_index() {
        let quick = plan(SWEEP, None).unwrap();
        let found: Vec<String> =
            quick.trials.iter().map(|t| format!("{} s{}", t.config.rule, t.config.seed)).collect();
        let of_seed = |seed: u32| {
            let grid = ["0.5", "0.1", "1e-5"].iter().flat_map(|lr| ["1", "inf"].map(|c| (lr, c)));
            let rules = grid.map(|(lr, c)| format!("clipped-gd:lr={lr},threshold={c}"));
            rules.chain(["inexact-polyak".into()]).map(move |rule| format!("{rule} s{seed}"))
        };
        assert_eq!(found, of_seed(1).chain(of_seed(2)).collect::<Vec<_>>());
        assert_eq!(quick.trials[9].index, 9);
        assert!(quick.trials.iter().all(|t| t.config.batch == 2 && t.config.steps == Some(10)));
        assert_eq!(quick.trials[6].config.shape["width"], Value::Integer(32), "a method's own key");
        let paper = plan(SWEEP, Some("paper")).unwrap();
        let found = paper.trials.iter().map(|t| (t.config.seed, t.config.steps.unwrap(), t.config.batch));
        let found: Vec<_> = found.collect();
        assert_eq!(
            found,
            [(7, 5, 1), (7, 5, 2), (7, 15, 1), (7, 15, 2)],
            "the scale's methods replace the others"
        );
        assert!(matches!(quick.trial(14), Err(PlanError::NoTrial { index: 14, count: 14 })));
    }

    #[test]
    fn a_grid_with_one_value_of_a_key_changes_the_others() {
        let text = "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"clipped-gd\"\ngrid.batch = [1, 2]\ngrid.lr = [0.5]\n\
            grid.threshold = [3, 4]\n";
        let found: Vec<_> = plan(text, None).unwrap().trials.iter().map(|t| t.label.clone()).collect();
        assert_eq!(
            found,
            [
                "clipped-gd:lr=0.5,threshold=3, batch=1",
                "clipped-gd:lr=0.5,threshold=4, batch=1",
                "clipped-gd:lr=0.5,threshold=3, batch=2",
                "clipped-gd:lr=0.5,threshold=4, batch=2",
            ]
        );
    }

    #[test]
    fn a_method_can_have_horizons_of_its_own() {
        let text = "experiment = \"x.toml\"\nseeds = [1, 2]\nsteps = [3, 7]\n[[method]]\nrule = \"gd:lr=1\"\nsteps = [9, 7]\n\
            [[method]]\nrule = \"dog\"\n";
        let found = plan(text, None).unwrap().trials.into_iter();
        let found: Vec<_> =
            found.map(|t| (t.config.seed, t.config.steps.unwrap(), t.config.rule.name())).collect();
        assert_eq!(
            found,
            [
                (1, 3, "dog"),
                (1, 7, "gd"),
                (1, 7, "dog"),
                (1, 9, "gd"),
                (2, 3, "dog"),
                (2, 7, "gd"),
                (2, 7, "dog"),
                (2, 9, "gd")
            ]
        );
        let text = "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"dog\"\n[[method]]\nrule = \"dowg\"\nsteps = [4]";
        let found = plan(text, None).unwrap().trials.into_iter();
        let found: Vec<_> = found.map(|t| (t.config.steps.unwrap(), t.config.rule.name())).collect();
        assert_eq!(found, [(10, "dog"), (4, "dowg")], "the experiment's own horizon comes first");
    }

    #[test]
    fn a_method_can_have_seeds_of_its_own() {
        let text = "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"gd\"\nseeds = [2]\ngrid.lr = [1, 2]\n\
            [[method]]\nrule = \"dog\"\n";
        let found = plan(text, None).unwrap().trials.into_iter();
        let found: Vec<_> = found.map(|t| (t.index, t.config.seed, t.config.rule.name())).collect();
        assert_eq!(found, [(0, 1, "dog"), (1, 2, "gd"), (2, 2, "gd")]);
    }

    #[test]
    fn a_method_can_be_for_one_scale() {
        let text = "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"dowg\"\nscale = \"paper\"\n\
            [[method]]\nrule = \"dog\"\n[scale.quick]\n[scale.paper]\n";
        let rules = |text: &str, scale| {
            let trials = plan(text, scale)?.trials.into_iter();
            Ok(trials.map(|t| (t.index, t.config.rule.name())).collect::<Vec<_>>())
        };
        assert_eq!(rules(text, Some("paper")), Ok(vec![(0, "dowg"), (1, "dog")]));
        assert_eq!(rules(text, Some("quick")), Ok(vec![(0, "dog")]));
        assert_eq!(rules(text, None), Ok(vec![(0, "dog")]), "the default scale is quick");
        let error: Result<_, String> = rules(&text.replace("\"paper\"", "\"papre\""), Some("paper"));
        let error = error.unwrap_err();
        assert!(
            error.contains("scale of method 1 (dowg) is papre") && error.contains("paper, quick"),
            "{error}"
        );
        let error = rules(&text.replace("[scale.quick]\n[scale.paper]\n", ""), None).unwrap_err();
        assert!(error.contains("is paper") && error.contains("this file has no scales"), "{error}");
        let error = rules(&text.replace("[[method]]\nrule = \"dog\"\n", ""), None).unwrap_err();
        assert!(error.contains("methods at this scale is 0") && error.contains("paper, quick"), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        let method = "[[method]]\nrule = \"dog\"\n";
        for (text, words) in [
            (String::new(), &["experiment is not set", "gpt.toml"][..]),
            (format!("experiment = \"x.toml\"\n{method}"), &["seeds is not set", "seeds = [1, 2, 3]"]),
            (
                format!("experiment = \"x.toml\"\nseeds = [\"a\"]\n{method}"),
                &["seeds is [\"a\"]", "whole numbers"],
            ),
            (format!("experiment = \"x.toml\"\nseeds = [1.5]\n{method}"), &["seeds is [1.5]"]),
            (format!("experiment = \"x.toml\"\nseeds = []\n{method}"), &["seeds is []"]),
            (format!("experiment = \"x.toml\"\nseeds = [1, 1]\n{method}"), &["different"]),
            ("experiment = \"x.toml\"\nseeds = [1]\n".into(), &["method is not set", "[[method]]"]),
            (format!("experiment = \"x.toml\"\nseed = [1]\n{method}"), &["`seed`", "did you mean `seeds`"]),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\n{method}grid.lr = []"),
                &["grid.lr of method 1 (dog) is []"],
            ),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\n{method}grid.lr = 3"),
                &["is 3", "grid.lr = [0.1, 1]"],
            ),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\n{method}grid.gamma = [3]"),
                &["trial 0 (dog)", "gamma"],
            ),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\n{method}seeds = 3"),
                &["seeds of method 1 (dog) is 3", "such as seeds = [1, 2, 3]"],
            ),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\n{method}steps = []"),
                &["steps of method 1 (dog) is []", "such as steps = [1, 2, 3]"],
            ),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\n{method}{method}"),
                &["trials 0 and 1", "dog, seed 1"],
            ),
            (format!("experiment = \"x.toml\"\nseeds = [1]\n{method}gird.lr = [1]"), &["`gird`", "`grid`"]),
            (
                format!("experiment = \"x.toml\"\nseeds = [1]\nset.bacth = 1\n{method}"),
                &["`bacth`", "`batch`"],
            ),
            (
                "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nname = \"a\"".into(),
                &["rule of method 1 is not set"],
            ),
            (
                "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"polyac\"".into(),
                &["polyac", "polyak"],
            ),
        ] {
            let error = plan(&text, None).unwrap_err();
            assert!(words.iter().all(|w| error.contains(w)), "{words:?} in {error}");
        }
        let many = format!(
            "experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"gd\"\ngrid.lr = [{0}]\ngrid.batch = [{0}]\ngrid.evaluate_every = [{0}]",
            "1,".repeat(101)
        );
        assert!(plan(&many, None).unwrap_err().contains("1030301 trials"));
        assert!(plan(SWEEP, Some("huge")).unwrap_err().contains("no scale `huge`"));
    }

    #[test]
    fn a_folder_belongs_to_one_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        let one = plan(&SWEEP.replace("[1, 2]", "[1]"), None).unwrap();
        let two = plan(SWEEP, None).unwrap();
        let other = plan(&SWEEP.replace("0.5", "0.4"), None).unwrap();
        one.claim(&out).unwrap();
        one.claim(&out).unwrap();
        two.claim(&out).expect("a seed more is the same sweep");
        let error = one.claim(&out).unwrap_err().to_string();
        assert!(error.contains("14 trials, this one 7") && error.contains("--out"), "{error}");
        let error = other.claim(&out).unwrap_err().to_string();
        assert!(error.contains("in trial 0, rule is") && error.contains("lr=0.4"), "{error}");
        let error = one.claim(folder.path()).unwrap_err().to_string();
        assert!(error.contains("holds a and no sweep"), "{error}");
        fs::write(out.join(PLAN), "[3").unwrap();
        assert!(one.claim(&out).unwrap_err().to_string().contains("plan.json"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_plan_or_an_error(text in any::<String>()) {
            let _ = plan(&text, None);
        }

        #[test]
        fn any_grid_is_a_plan_or_an_error(key in "[a-z_.]{1,12}", values in "[0-9a-z.,\\[\\]{}\"' -]{0,16}") {
            let text = format!("experiment = \"x.toml\"\nseeds = [1]\n[[method]]\nrule = \"gd\"\ngrid.{key} = [{values}]");
            let _ = plan(&text, None);
        }
    }
}
