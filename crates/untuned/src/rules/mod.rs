//! Every scalar rule, one file each, and the table that knows them all.
//!
//! A new rule is a new file, its `mod` line and its line in `rules!` below; the command line, the listings and the contract test
//! take it from there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::optimizers::OPTIMIZERS;
use crate::problem::Problem;
use crate::rule::{Needs, Observation, Refusal, Step, StepRule, over_square};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use crate::vector;

mod adaptive_polyak;
mod adasps;
mod ali_g;
mod anytime_polyak;
mod clipped_gd;
mod decsps;
mod dog;
mod dowg;
mod gd;
mod inexact_polyak;
mod level_polyak;
mod polyak;
mod polyak_bound;
mod sps_max;

/// What a rule may need to know of the run it is made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// `T`, the number of steps of the run.
    pub steps: u64,
    /// `f*`, where the problem knows it.
    pub f_star: Option<f64>,
}

impl Setting {
    /// A run of `steps` steps on a problem whose minimum is not known.
    pub fn new(steps: u64) -> Setting {
        Setting { steps, f_star: None }
    }

    /// A run of `steps` steps on `problem`.
    pub fn of<P: Problem + ?Sized>(problem: &P, steps: u64) -> Setting {
        Setting { steps, f_star: problem.known().f_star }
    }
}

/// A rule that can be made from a spec string.
trait Named: StepRule + Sized {
    const ENTRY: Entry;

    fn from_spec(spec: &Spec, setting: &Setting) -> Result<Self, SpecError>;
}

macro_rules! rules {
    ($($module:ident :: $name:ident),* $(,)?) => {
        $(pub use $module::$name;)*

        /// Any of the rules, with its state. What serde writes of it reads back to the same bits, in any format that
        /// keeps 64-bit floats exactly (`serde_json` needs its feature `float_roundtrip`).
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "rule", rename_all = "kebab-case")]
        #[allow(missing_docs)]
        pub enum Rule {
            $($name($name),)*
        }

        /// All rules in the order of the paper, then those beyond it.
        pub const RULES: &[&Entry] = &[$(&<$name as Named>::ENTRY,)*];

        impl Rule {
            pub(crate) fn from_spec(spec: &Spec, setting: &Setting) -> Result<Rule, SpecError> {
                $(if spec.name() == <$name as Named>::ENTRY.name {
                    return Ok(Rule::$name($name::from_spec(spec, setting)?));
                })*
                unreachable!("a parsed spec names a rule of the table")
            }
        }

        impl StepRule for Rule {
            fn needs(&self) -> Needs {
                match self { $(Rule::$name(rule) => rule.needs(),)* }
            }
            fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
                match self { $(Rule::$name(rule) => rule.step(seen),)* }
            }
        }
    };
}

rules! {
    gd::Gd,
    clipped_gd::ClippedGd,
    polyak::Polyak,
    polyak_bound::PolyakBound,
    inexact_polyak::InexactPolyak,
    decsps::Decsps,
    adasps::Adasps,
    dog::Dog,
    anytime_polyak::AnytimePolyak,
    adaptive_polyak::AdaptivePolyak,
    level_polyak::LevelPolyak,
    sps_max::SpsMax,
    ali_g::AliG,
    dowg::Dowg,
}

pub use adaptive_polyak::Variant;
pub use adasps::CScale;
pub use inexact_polyak::Extend;

/// A rule and its parameters, checked, as a text: `decsps:c0=1,gamma=10`.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSpec(Spec);

impl RuleSpec {
    /// The rule, ready for a run.
    ///
    /// # Errors
    /// When the rule needs something that neither the spec nor the setting gives.
    pub fn build(&self, setting: &Setting) -> Result<Rule, SpecError> {
        Rule::from_spec(&self.0, setting)
    }

    /// The rule's name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The checked parameters.
    pub fn spec(&self) -> &Spec {
        &self.0
    }
}

impl FromStr for RuleSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<RuleSpec, SpecError> {
        let name = text.split(':').next().unwrap_or(text).trim();
        if let Some(optimizer) = OPTIMIZERS.iter().find(|entry| entry.name == name) {
            let why = "it keeps vectors beside the parameters and is no scalar rule; take one such as `inexact-polyak`";
            return Err(SpecError::Unfit { owner: optimizer.name, why: why.to_string() });
        }
        Spec::parse(text, "rule", RULES).map(RuleSpec)
    }
}

impl fmt::Display for RuleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for RuleSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RuleSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RuleSpec, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The parameter `lower_bound` that most rules have.
pub(crate) const LOWER_BOUND: Parameter = Parameter {
    name: "lower_bound",
    kind: Kind::Finite,
    default: Fallback::Number(0.0),
    meaning: "l, a value that the loss never goes below",
};

/// The parameter `lr` of the rules that are tuned.
const LR: Parameter =
    Parameter { name: "lr", kind: Kind::Positive, default: Fallback::Required, meaning: "the learning rate" };

/// The parameter `lr` of the rules that need none: a factor, 1 by default.
const FACTOR: Parameter = Parameter {
    name: "lr",
    kind: Kind::Positive,
    default: Fallback::Number(1.0),
    meaning: "multiplies the step",
};

/// `numerator/(c·norm² + eps)`, also where a square leaves the range of floats.
fn over_padded_square(numerator: f64, c: f64, norm: f64, eps: f64) -> f64 {
    let squared = c * norm * norm;
    if squared.is_normal() {
        return numerator / (squared + eps);
    }
    over_square(numerator, vector::norm(&[c.sqrt() * norm, eps.sqrt()]))
}

/// Serde for a number that may be infinite: JSON has no infinity, so it is written as the word `inf`.
mod infinite {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Word(String),
    }

    pub(super) fn serialize<S: Serializer>(v: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        let written = if v.is_finite() { Written::Number(*v) } else { Written::Word(v.to_string()) };
        written.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(v) => Ok(v),
            Written::Word(word) => word.parse().map_err(serde::de::Error::custom),
        }
    }
}
