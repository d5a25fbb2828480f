//! Every scalar rule, one file each, and the table that knows them all.
//!
//! A new rule is a new file, its `mod` line and its line in `rules!` below. The command line, the listings and the contract test
//! take it from there.

use serde::{Deserialize, Serialize};

use crate::parameters::{Parameters as _, RunInfo, Running};
use crate::rule::{Needs, Observation, Refusal, Step, StepRule, over_square};
use crate::spec::{Info, Spec, SpecError};
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

pub use adaptive_polyak::{AdaptivePolyakRestart, AdaptivePolyakVariant};
pub use inexact_polyak::InexactPolyakExtend;
pub use sps_max::SpsMaxCap;

macro_rules! rules {
    ($($module:ident::$name:ident),* $(,)?) => {
        $(pub use $module::$name;)*

        /// Any of the rules, with its state.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "rule", rename_all = "kebab-case")]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Rule {
            $($name(Running<$name>),)*
        }

        /// All rules in the order of the paper, then those beyond it.
        pub const RULES: &[&Info] = &[$(&$name::INFO,)*];

        impl Rule {
            /// The rule that a checked spec string names; none where that is no scalar rule.
            pub(crate) fn from_spec(spec: &Spec, run: &RunInfo) -> Option<Result<Rule, SpecError>> {
                $(if spec.name() == $name::INFO.name {
                    return Some($name::from_spec(spec).build(run).map(Rule::$name));
                })*
                None
            }
        }

        impl StepRule for Rule {
            fn name(&self) -> &str {
                match self { $(Rule::$name(rule) => rule.name(),)* }
            }
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

/// `numerator/(c·norm² + eps)`, also where a square leaves the range of floats.
fn over_padded_square(numerator: f64, c: f64, norm: f64, eps: f64) -> f64 {
    let squared = c * norm * norm;
    if squared.is_normal() {
        return numerator / (squared + eps);
    }
    over_square(numerator, vector::norm(&[c.sqrt() * norm, eps.sqrt()]))
}
