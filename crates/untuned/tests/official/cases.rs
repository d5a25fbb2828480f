//! The traces of the official implementations, for the tests of the library and of the adapters: what `official.py` wrote, and for our
//! own method `polyak_adam.py`; and the problem that they were made on.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What was written of a method.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// Whose implementation it is.
    pub package: String,
    pub steps: u64,
    pub start: Vec<f64>,
    /// How many coordinates decay, where a case does not say otherwise.
    pub decayed: usize,
    /// The tensors, where the method measures each in units of its size.
    #[serde(default)]
    pub tensors: Vec<Tensor>,
    pub cases: Vec<Case>,
}

/// A tensor of the start, behind those before it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    pub length: usize,
    pub matrix: bool,
    pub decays: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub spec: String,
    /// Whose implementation it is, where it is not that of the file.
    pub package: Option<String>,
    #[serde(default)]
    pub around: Surroundings,
    pub decayed: Option<usize>,
    /// The expression that made the official optimizer.
    pub official: String,
    /// What else the trace is.
    pub note: Option<String>,
    /// The point after every tenth step.
    pub points: Vec<Vec<f64>>,
    /// The point to be judged, where it is another one.
    pub evaluation: Option<Vec<Vec<f64>>>,
    /// The rate of the step that led to the point.
    pub rates: Option<Vec<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Surroundings {
    #[serde(default)]
    pub weight_decay: f64,
    /// The rate of step `t` is multiplied by `min((t + 1)/(warmup + 1), 1)`.
    #[serde(default)]
    pub warmup: u64,
    pub clip: Option<f64>,
}

impl Surroundings {
    /// What multiplies the rate of step `t`.
    pub fn rate(&self, t: u64) -> f64 {
        ((t + 1) as f64 / (self.warmup + 1) as f64).min(1.0)
    }
}

/// A point is written down after so many steps.
pub const EVERY: u64 = 10;

/// Both sides compute in f64 and differ in the last bits of a step; what the problem makes of that in 200 steps is below this.
pub const EXACT: f64 = 1e-11;

/// From d0 = 1e-6 Prodigy's first x_0 − x are of that size: a rounding of x is 1e-10 of them.
pub const PRODIGY: f64 = 1e-9;

/// The cases of ALI-G that are left out: a scalar rule has no momentum.
pub const MOMENTUM: &str = "momentum";

/// The folder with the traces.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../untuned/tests/official")
}

/// What was written of a method.
pub fn read(name: &str) -> Golden {
    let path = folder().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"))
}

/// The methods of which there are traces.
pub fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let json = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let names = json.map(|path| path.file_stem().unwrap().to_str().unwrap().to_string());
    // A file that is of no single method.
    names.filter(|name| name != "averages").collect()
}

/// All methods that can be followed, each with how far another computation may be from them, relative to the largest coordinate.
/// A method that measures tensors in units of their size is not among them: here there are no tensors.
pub fn all() -> Vec<(f64, Golden)> {
    let mut all = Vec::new();
    for name in names() {
        let mut golden = read(&name);
        if !golden.tensors.is_empty() {
            continue;
        }
        golden.cases.retain(|case| !(name == "ali-g" && case.spec.contains(MOMENTUM)));
        all.push((if name == "prodigy" { PRODIGY } else { EXACT }, golden));
    }
    all
}

/// `Σ (a/2)x² + (b/4)x⁴ + 4` with `a` = 0.5, 1, …, 3 and `b` = 0.1, 0.2, …, 0.6, and a push that changes from step to step.
pub fn problem(x: &[f64], t: u64) -> (f64, Vec<f64>) {
    let of = |(x, i): (&f64, u64)| {
        let (index, push) = (i as f64, 0.25 * (((t * i) % 7) as f64 - 3.0));
        let loss = 0.25 * index * x * x + 0.025 * index * x * x * x * x + push * x;
        (loss, 0.5 * index * x + 0.1 * index * x * x * x + push)
    };
    let (losses, gradient): (Vec<f64>, Vec<f64>) = x.iter().zip(1..).map(of).unzip();
    (losses.iter().sum::<f64>() + 4.0, gradient)
}
