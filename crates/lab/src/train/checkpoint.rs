//! Checkpoints: everything that a run needs to go on to the same bits, written so that a kill at any moment leaves a whole one.
//!
//! A checkpoint is a folder `step-000001000`: `weights.safetensors`, `state.safetensors` where a rule or network keeps more,
//! `vocabulary.json` and `state.json`, which holds the checksums of the others and of itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use untuned::{Method, SessionState};
use untuned_net::arena::Layout;
use untuned_net::data::t5::ChunksState;

use super::data::{Description, Vocabulary, hex};
use super::error::TrainError;
use super::folder::{pretty, sync_folder, write_synced};

/// Changes when an older program could not read a checkpoint, or would read it wrongly. Other initial weights for a seed are no
/// reason to change it: a checkpoint holds `x_0` and `‖x_0‖` where the method needs them.
const FORMAT: u32 = 3;
/// Checkpoints that are kept: a damaged one must have one before it.
const KEPT: usize = 2;

const STATE: &str = "state.json";
const WEIGHTS: &str = "weights.safetensors";
const EXTRA: &str = "state.safetensors";
const VOCABULARY: &str = "vocabulary.json";
const TOKENIZER: &str = "tokenizer.json";
/// Where a checkpoint is written before it takes its place, and where one goes to be removed.
const NEW: &str = ".new";
const OLD: &str = ".old";

/// The numbers of a checkpoint that are not arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The version of this form.
    pub format: u32,
    /// The network.
    pub model: String,
    /// Its sizes.
    pub shape: BTreeMap<String, serde_json::Value>,
    /// Steps that have been made.
    pub step: u64,
    /// The method with its numbers; its vectors are among the arrays.
    pub session: SessionState<Method>,
    /// Steps that were refused.
    pub refusals: u64,
    /// The evaluation with the lowest validation loss.
    pub best_evaluation: Option<Evaluation>,
    /// The last evaluation.
    pub last_evaluation: Option<Evaluation>,
    /// The length of `trace.jsonl`.
    pub trace_bytes: u64,
    /// The length of `eval.jsonl`.
    pub eval_bytes: u64,
    /// Time that the run has taken.
    pub seconds: f64,
    /// What it trains on.
    pub data: Description,
    /// The run's configuration, as far as it decides over numbers.
    pub config: BTreeMap<String, String>,
    /// How far its files have been read, where they are read on the way.
    pub position: Option<ChunksState>,
    /// The other files with their SHA-256.
    pub files: BTreeMap<String, String>,
    /// Of this file, with nothing here.
    pub sha256: String,
}

/// The losses of the weights at a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// The step.
    pub step: u64,
    /// On the validation split; nothing where it was not finite.
    pub validation: Option<f64>,
    /// On the test split.
    pub test: Option<f64>,
}

/// The arrays of a checkpoint beside the weights, by name.
pub type Extra = BTreeMap<String, Vec<f32>>;

/// A checkpoint in memory.
#[derive(Debug)]
pub struct Checkpoint {
    /// The numbers.
    pub state: State,
    /// The parameters as they stand in the arena.
    pub weights: Vec<f32>,
    /// Other arrays.
    pub extra: Extra,
    /// What ids stand for.
    pub vocabulary: Vocabulary,
}

impl State {
    /// The first state of a run.
    pub fn new(
        model: &str,
        shape: BTreeMap<String, serde_json::Value>,
        method: Method,
        data: Description,
        config: BTreeMap<String, String>,
    ) -> State {
        State {
            format: FORMAT,
            model: model.into(),
            shape,
            step: 0,
            session: SessionState::new(method),
            refusals: 0,
            best_evaluation: None,
            last_evaluation: None,
            trace_bytes: 0,
            eval_bytes: 0,
            seconds: 0.0,
            data,
            config,
            position: None,
            files: BTreeMap::new(),
            sha256: String::new(),
        }
    }

    fn checksum(&self) -> String {
        hex(&Sha256::digest(pretty(&State { sha256: String::new(), ..self.clone() })))
    }

    /// Reads `state.json`.
    fn parse(bytes: &[u8]) -> Result<State, String> {
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| format!("{STATE}: {e}"))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => {
                let age = if format < u64::from(FORMAT) { "an older" } else { "a newer" };
                return Err(format!(
                    "{age} version of this program wrote it (format {format}); this one reads format {FORMAT}"
                ));
            }
            None => return Err(format!("{STATE} has no format")),
        }
        let state = State::deserialize(value).map_err(|e| format!("{STATE}: {e}"))?;
        if state.checksum() == state.sha256 { Ok(state) } else { Err(format!("{STATE} is damaged")) }
    }
}

/// Writes a checkpoint into the folder of checkpoints and removes all but the newest two.
///
/// # Errors
/// When the disk is full or refuses; the checkpoints before are as they were.
pub fn write(folder: &Path, mut checkpoint: Checkpoint, layout: &Layout) -> Result<Checkpoint, TrainError> {
    fs::create_dir_all(folder).map_err(TrainError::io("make the folder", folder))?;
    if let Vocabulary::Tokenizer { path, .. } = &checkpoint.vocabulary {
        copy_once(path, &folder.join(TOKENIZER))?;
    }
    let new = folder.join(NEW);
    let written = write_aside(&new, &mut checkpoint, layout);
    if written.is_err() {
        // Room for those who come after, where the disk is full.
        let _ = fs::remove_dir_all(&new);
    }
    written?;
    let target = folder.join(name(checkpoint.state.step));
    if target.exists() {
        remove(folder, &target)?;
    }
    fs::rename(&new, &target).map_err(TrainError::io("write", &target))?;
    sync_folder(folder)?;
    for old in list(folder)?.iter().rev().skip(KEPT) {
        remove(folder, old)?;
    }
    Ok(checkpoint)
}

fn write_aside(new: &Path, checkpoint: &mut Checkpoint, layout: &Layout) -> Result<(), TrainError> {
    if new.exists() {
        fs::remove_dir_all(new).map_err(TrainError::io("remove", new))?;
    }
    fs::create_dir(new).map_err(TrainError::io("make the folder", new))?;
    let tensors = layout
        .tensors()
        .iter()
        .map(|tensor| (tensor.name.clone(), tensor.shape.clone(), &checkpoint.weights[tensor.view.range()]));
    let mut files = vec![(WEIGHTS, arrays(tensors)?), (VOCABULARY, pretty(&checkpoint.vocabulary))];
    if !checkpoint.extra.is_empty() {
        let extra = checkpoint.extra.iter();
        files.push((EXTRA, arrays(extra.map(|(name, v)| (name.clone(), vec![v.len()], &v[..])))?));
    }
    let sums = files.iter().map(|(name, bytes)| (name.to_string(), hex(&Sha256::digest(bytes))));
    checkpoint.state.files = sums.collect();
    checkpoint.state.sha256 = checkpoint.state.checksum();
    files.push((STATE, pretty(&checkpoint.state)));
    for (name, bytes) in files {
        write_synced(&new.join(name), &bytes)?;
    }
    sync_folder(new)
}

/// Arrays in the form of safetensors.
fn arrays<'a>(arrays: impl Iterator<Item = (String, Vec<usize>, &'a [f32])>) -> Result<Vec<u8>, TrainError> {
    let arrays: Vec<(String, Vec<usize>, Vec<u8>)> = arrays
        .map(|(name, shape, v)| (name, shape, v.iter().flat_map(|x| x.to_le_bytes()).collect()))
        .collect();
    let wrong = |error: safetensors::SafeTensorError| TrainError::Request(format!("safetensors: {error}"));
    let views = arrays.iter().map(|(name, shape, bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.as_str(), view)).map_err(wrong)
    });
    safetensors::serialize(views.collect::<Result<Vec<_>, _>>()?, None).map_err(wrong)
}

fn copy_once(from: &Path, to: &Path) -> Result<(), TrainError> {
    if to.is_file() {
        return Ok(());
    }
    let bytes = fs::read(from).map_err(TrainError::io("read", from))?;
    let new = to.with_extension("new");
    write_synced(&new, &bytes)?;
    fs::rename(&new, to).map_err(TrainError::io("write", to))
}

/// Renamed first, so that a kill in between leaves no checkpoint with files missing.
fn remove(folder: &Path, checkpoint: &Path) -> Result<(), TrainError> {
    let old = folder.join(OLD);
    if old.exists() {
        fs::remove_dir_all(&old).map_err(TrainError::io("remove", &old))?;
    }
    fs::rename(checkpoint, &old).map_err(TrainError::io("remove", checkpoint))?;
    fs::remove_dir_all(&old).map_err(TrainError::io("remove", &old))
}

/// Removes the checkpoints of later steps.
///
/// # Errors
/// When the system refuses.
pub fn remove_after(folder: &Path, step: u64) -> Result<(), TrainError> {
    for path in list(folder)?.iter().filter(|path| step_of(path).is_some_and(|s| s > step)) {
        remove(folder, path)?;
    }
    Ok(())
}

fn name(step: u64) -> String {
    format!("step-{step:09}")
}

pub(super) fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

/// The checkpoints, oldest first.
///
/// # Errors
/// When the folder cannot be read; one that does not exist holds none.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(TrainError::io("read", folder))?,
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| step_of(path).is_some()).collect();
    found.sort_by_key(|path| step_of(path));
    Ok(found)
}

/// What a checkpoint must fit to.
pub struct Expected<'a> {
    /// The network's name.
    pub model: &'a str,
    /// What the run trains on, where it is to go on.
    pub data: Option<&'a Description>,
    /// Its [configuration](super::Config::identity), where it is to go on.
    pub config: Option<&'a BTreeMap<String, String>>,
    /// Its sizes; nothing where they come from the checkpoint.
    pub shape: Option<&'a BTreeMap<String, serde_json::Value>>,
    /// The lengths of `trace.jsonl` and `eval.jsonl` as they are.
    pub lengths: Option<(u64, u64)>,
}

/// The newest checkpoint that is whole, with what is wrong with newer ones; nothing where there are none at all.
///
/// # Errors
/// When there are checkpoints and none can be used.
pub fn newest(
    folder: &Path,
    expected: &Expected<'_>,
    layout: impl Fn(&State, &Vocabulary) -> Result<Layout, TrainError>,
) -> Result<(Option<Checkpoint>, Vec<String>), TrainError> {
    let mut problems = Vec::new();
    for path in list(folder)?.iter().rev() {
        match read(path, expected, &layout) {
            Ok(checkpoint) => return Ok((Some(checkpoint), problems)),
            Err(reason) => problems.push(format!("{} cannot be used: {reason}", path.display())),
        }
    }
    if problems.is_empty() {
        return Ok((None, problems));
    }
    let problems = problems.join("\n  ");
    Err(TrainError::Request(format!("no checkpoint can be used; begin again in a new folder\n  {problems}")))
}

/// Reads one checkpoint; an error says what is wrong with it.
fn read(
    path: &Path,
    expected: &Expected<'_>,
    layout: impl Fn(&State, &Vocabulary) -> Result<Layout, TrainError>,
) -> Result<Checkpoint, String> {
    let file = |name: &str| {
        let path = path.join(name);
        // A pipe would be waited for without end.
        match fs::metadata(&path) {
            Ok(found) if !found.is_file() => Err(format!("{name} is not a file")),
            _ => fs::read(&path).map_err(|e| format!("{name} cannot be read: {e}")),
        }
    };
    let state = State::parse(&file(STATE)?)?;
    check(&state, expected)?;
    let whole = |name: &str| {
        let bytes = file(name)?;
        match state.files.get(name) {
            Some(sum) if *sum == hex(&Sha256::digest(&bytes)) => Ok(bytes),
            Some(_) => Err(format!("{name} is damaged")),
            None => Err(format!("{STATE} does not know {name}")),
        }
    };
    let mut vocabulary: Vocabulary =
        serde_json::from_slice(&whole(VOCABULARY)?).map_err(|e| format!("{VOCABULARY}: {e}"))?;
    if let Vocabulary::Tokenizer { path: tokenizer, .. } = &mut vocabulary {
        *tokenizer = path.with_file_name(TOKENIZER);
    }
    let layout = layout(&state, &vocabulary).map_err(|e| e.to_string())?;
    let weights = read_weights(&whole(WEIGHTS)?, &layout).map_err(|e| format!("{WEIGHTS}: {e}"))?;
    let extra = match state.files.contains_key(EXTRA) {
        true => read_arrays(&whole(EXTRA)?).map_err(|e| format!("{EXTRA}: {e}"))?,
        false => Extra::new(),
    };
    Ok(Checkpoint { state, weights, extra, vocabulary })
}

fn check(state: &State, expected: &Expected<'_>) -> Result<(), String> {
    if state.model != expected.model {
        return Err(format!("it is of the model {}, not {}", state.model, expected.model));
    }
    if let Some(now) = expected.data.filter(|now| **now != state.data) {
        let (then, now) = (&state.data.what, &now.what);
        return Err(format!(
            "the data is not what the run began with ({then}; now {now}, with other bytes or sizes); give the same data"
        ));
    }
    if let Some(now) = expected.config {
        let shown =
            |of: &BTreeMap<String, String>, key: &String| of.get(key).map_or("not set".into(), String::clone);
        let mut keys = state.config.keys().chain(now.keys());
        if let Some(key) = keys.find(|key| state.config.get(*key) != now.get(*key)) {
            let (then, now) = (shown(&state.config, key), shown(now, key));
            return Err(format!("it was made with {key} = {then}, and config.toml says {now}"));
        }
    }
    for (key, value) in expected.shape.into_iter().flatten() {
        match state.shape.get(key) {
            Some(found) if found == value => {}
            found => {
                let found = found.map_or("nothing".into(), ToString::to_string);
                return Err(format!("it is of another shape: {key} is {found}, not {value}"));
            }
        }
    }
    if let Some((trace, eval)) = expected.lengths
        && (trace < state.trace_bytes || eval < state.eval_bytes)
    {
        return Err("trace.jsonl or eval.jsonl is shorter than when it was written".into());
    }
    Ok(())
}

/// Weights into the arena; names and sizes must be those of the network, and nothing else.
pub fn read_weights(bytes: &[u8], layout: &Layout) -> Result<Vec<f32>, String> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    if tensors.len() != layout.tensors().len() {
        return Err(format!("{} tensors, where the network has {}", tensors.len(), layout.tensors().len()));
    }
    let mut weights = vec![0.0; layout.len()];
    for tensor in layout.tensors() {
        let found = tensors.tensor(&tensor.name).map_err(|e| e.to_string())?;
        if found.shape() != tensor.shape || found.dtype() != Dtype::F32 {
            let (name, shape, wanted) = (&tensor.name, found.shape(), &tensor.shape);
            return Err(format!("{name} is {:?} {shape:?}, not F32 {wanted:?}", found.dtype()));
        }
        for (to, four) in weights[tensor.view.range()].iter_mut().zip(found.data().chunks_exact(4)) {
            *to = f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
    }
    Ok(weights)
}

/// Any arrays of f32.
pub fn read_arrays(bytes: &[u8]) -> Result<Extra, String> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let arrays = tensors.iter().map(|(name, view)| match view.dtype() {
        Dtype::F32 => {
            let numbers = view.data().chunks_exact(4);
            Ok((name.to_string(), numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()))
        }
        other => Err(format!("{name} is {other:?}, not F32")),
    });
    arrays.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use untuned_net::arena::Initial;
    use untuned_net::data::text;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.matrix("up", 3, 5, Initial::Normal(1.0));
        layout.vector("bias", 3, Initial::Constant(1.0));
        layout
    }

    fn checkpoint(step: u64) -> Checkpoint {
        let data = Description {
            what: "x".into(),
            train_ids: None,
            validation_ids: 1,
            test_ids: 1,
            sha256: Vec::new(),
            corpus_seed: Some(1),
            entropy: Some(0.1 + 0.2),
            best_loss: None,
        };
        let rule: untuned::MethodSpec = "inexact-polyak".parse().unwrap();
        let rule = rule.build(&untuned::RunInfo::new(10)).unwrap();
        let shape = BTreeMap::from([("width".to_string(), 5.into())]);
        Checkpoint {
            state: State { step, ..State::new("gpt", shape, rule, data, BTreeMap::new()) },
            weights: layout().initial(step),
            extra: Extra::from([("carry".into(), vec![1.5, -0.0])]),
            vocabulary: Vocabulary::Characters(text::Vocabulary::new("abc")),
        }
    }

    fn expected() -> Expected<'static> {
        Expected { model: "gpt", data: None, config: None, shape: None, lengths: None }
    }

    fn find(folder: &Path) -> Result<(Option<Checkpoint>, Vec<String>), TrainError> {
        newest(folder, &expected(), |_, _| Ok(layout()))
    }

    #[test]
    fn it_reads_back_and_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert!(find(folder.path()).unwrap().0.is_none());
        for step in [0, 7, 20] {
            write(folder.path(), checkpoint(step), &layout()).unwrap();
        }
        let kept: Vec<_> = list(folder.path()).unwrap().iter().map(|p| step_of(p)).collect();
        assert_eq!(kept, [Some(7), Some(20)]);
        let found = find(folder.path()).unwrap().0.unwrap();
        let wanted = checkpoint(20);
        assert_eq!((found.weights, found.extra), (wanted.weights, wanted.extra));
        assert_eq!((found.state.step, found.vocabulary), (20, wanted.vocabulary));
        assert_eq!(found.state.session, wanted.state.session);
        // The same step again takes the other's place.
        write(folder.path(), checkpoint(20), &layout()).unwrap();
        remove_after(folder.path(), 7).unwrap();
        assert_eq!(list(folder.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_one_is_named_and_the_one_before_is_used() {
        for file in [STATE, WEIGHTS, EXTRA, VOCABULARY] {
            for damage in ["flip", "cut", "remove"] {
                let folder = tempfile::tempdir().unwrap();
                write(folder.path(), checkpoint(1), &layout()).unwrap();
                write(folder.path(), checkpoint(2), &layout()).unwrap();
                let path = folder.path().join(name(2)).join(file);
                let mut bytes = fs::read(&path).unwrap();
                match damage {
                    // A letter of the text, or a bit of the last number.
                    "flip" => {
                        let at = bytes.len() - 4;
                        bytes[at] ^= 1;
                        fs::write(&path, bytes).unwrap();
                    }
                    "cut" => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                    _ => fs::remove_file(&path).unwrap(),
                }
                let (found, problems) = find(folder.path()).unwrap();
                assert_eq!(found.unwrap().state.step, 1, "{file} {damage}");
                assert!(problems[0].contains("step-000000002") && problems[0].contains(file), "{problems:?}");
            }
        }
    }

    #[test]
    fn another_model_shape_or_configuration_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), checkpoint(1), &layout()).unwrap();
        let shape = BTreeMap::from([("width".to_string(), 6.into())]);
        let other = BTreeMap::from([("seed".to_string(), "2".to_string())]);
        for (expected, words) in [
            (Expected { model: "t5", ..expected() }, "of the model gpt, not t5"),
            (Expected { shape: Some(&shape), ..expected() }, "width is 5, not 6"),
            (
                Expected { config: Some(&other), ..expected() },
                "made with seed = not set, and config.toml says 2",
            ),
        ] {
            let error = newest(folder.path(), &expected, |_, _| Ok(layout())).unwrap_err();
            assert!(error.is_request() && error.to_string().contains(words), "{error}");
        }
    }

    /// Before format 3 the method stood under `rule`, without the numbers of a session.
    #[test]
    fn another_format_is_refused_and_both_are_named() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), checkpoint(1), &layout()).unwrap();
        let path = folder.path().join(name(1)).join(STATE);
        let text = fs::read_to_string(&path).unwrap();
        for other in (1..FORMAT).chain([FORMAT + 1]) {
            let text = text.replace("\"format\": 3", &format!("\"format\": {other}"));
            fs::write(&path, text.replace("\"session\"", "\"rule\"")).unwrap();
            let error = find(folder.path()).unwrap_err();
            let age = if other < FORMAT { "an older" } else { "a newer" };
            let words =
                format!("{age} version of this program wrote it (format {other}); this one reads format 3");
            assert!(error.is_request() && error.to_string().contains(&words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = State::parse(&bytes);
            let _ = read_weights(&bytes, &layout());
            let _ = read_arrays(&bytes);
        }

        #[test]
        fn any_change_of_a_file_is_seen(file in 0usize..4, at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), checkpoint(3), &layout()).unwrap();
            let path = folder.path().join(name(3)).join([STATE, WEIGHTS, EXTRA, VOCABULARY][file]);
            let mut bytes = fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            // White space between the values of state.json is the one thing that may change.
            if let Ok((Some(found), _)) = find(folder.path()) {
                prop_assert_eq!(found.weights, checkpoint(3).weights);
            }
        }
    }
}
