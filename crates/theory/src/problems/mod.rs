//! Test problems, one file each, and the table that knows them all.

use std::fmt;
use std::str::FromStr;

use untuned::problem::Problem;
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec, SpecError};

mod absolute;
mod l4_regression;
mod linear;
mod logistic;
mod quadratic;
mod quartic;
mod random;
mod rosenbrock;
mod separable_quartic;
mod sum_exp;

pub use absolute::Absolute;
pub use l4_regression::L4Regression;
pub use logistic::{DataError, Logistic};
pub use quadratic::Quadratic;
pub use quartic::Quartic;
pub use rosenbrock::Rosenbrock;
pub use separable_quartic::{SeparableQuartic, Start};
pub use sum_exp::SumExp;

/// A problem that can be made from a spec string.
struct Row {
    info: &'static Info,
    build: fn(&Spec) -> Result<Box<dyn Problem + Send>, SpecError>,
}

const TABLE: &[Row] = &[
    Row { info: &quartic::INFO, build: |spec| Ok(Box::new(Quartic::from_spec(spec))) },
    Row { info: &separable_quartic::INFO, build: |spec| Ok(Box::new(SeparableQuartic::from_spec(spec))) },
    Row { info: &quadratic::INFO, build: |spec| Ok(Box::new(Quadratic::from_spec(spec)?)) },
    Row { info: &sum_exp::INFO, build: |spec| Ok(Box::new(SumExp::from_spec(spec))) },
    #[cfg(feature = "datasets")]
    Row { info: &logistic::INFO, build: |spec| Ok(Box::new(Logistic::from_spec(spec)?)) },
    Row { info: &l4_regression::INFO, build: |spec| Ok(Box::new(L4Regression::from_spec(spec)?)) },
    Row { info: &absolute::INFO, build: |spec| Ok(Box::new(Absolute::from_spec(spec))) },
    Row { info: &rosenbrock::INFO, build: |spec| Ok(Box::new(Rosenbrock::from_spec(spec))) },
];

/// All problems, the paper's first.
pub fn catalog() -> Vec<&'static Info> {
    TABLE.iter().map(|row| row.info).collect()
}

/// A problem and its parameters, checked, as a text: `quartic:l1=1000`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProblemSpec(Spec);

impl ProblemSpec {
    /// The problem itself.
    ///
    /// # Errors
    /// When the parameters do not fit together.
    pub fn build(&self) -> Result<Box<dyn Problem + Send>, SpecError> {
        let row = TABLE.iter().find(|row| row.info.name == self.0.name());
        (row.expect("a parsed spec names a problem of the table").build)(&self.0)
    }

    /// The problem's name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The checked parameters.
    pub fn spec(&self) -> &Spec {
        &self.0
    }
}

impl FromStr for ProblemSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<ProblemSpec, SpecError> {
        Spec::parse(text, "problem", &catalog()).map(ProblemSpec)
    }
}

impl fmt::Display for ProblemSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The parameter `f_star` of the problems whose minimum can be chosen.
const fn f_star(default: f64) -> Parameter {
    let default = DefaultValue::Number(default);
    Parameter { name: "f_star", kind: Kind::Finite, default, meaning: "f*, the minimum, added as a constant" }
}

/// A parameter that counts: variables, samples.
const fn count(
    name: &'static str,
    default: u64,
    limits: std::ops::RangeInclusive<u64>,
    meaning: &'static str,
) -> Parameter {
    let kind = Kind::Whole(*limits.start(), *limits.end());
    Parameter { name, kind, default: DefaultValue::Number(default as f64), meaning }
}

/// The parameter `seed` of the problems with random data.
const fn seed() -> Parameter {
    // Whole numbers up to 2^53 are exact as `f64`, which is what a spec keeps.
    count("seed", 1, 0..=1 << 53, "which random data")
}

/// `count` numbers from `first` to `last`, evenly spaced on a logarithmic scale; both ends are exact.
fn log_spaced(first: f64, last: f64, count: usize) -> Vec<f64> {
    let (low, high) = (first.ln(), last.ln());
    let mut spaced: Vec<f64> =
        (0..count).map(|i| (low + (high - low) * i as f64 / (count - 1).max(1) as f64).exp()).collect();
    if let [only_or_first, ..] = spaced.as_mut_slice() {
        *only_or_first = first;
    }
    if let [_, .., end] = spaced.as_mut_slice() {
        *end = last;
    }
    spaced
}
