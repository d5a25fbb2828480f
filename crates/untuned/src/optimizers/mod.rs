//! Optimizers with vector state, one file each, and the table that knows them all.
//!
//! A new optimizer is a new file, its `mod` line and its line in `optimizers!` below. Its passes are [formulas](crate::formula),
//! written once: every [space](crate::Space) runs them.

use serde::{Deserialize, Serialize};

use crate::optimizer::{Optimizer, SessionError, StateVector, StepContext, Vectors};
use crate::parameters::{Parameters as _, RunInfo, Running};
use crate::rule::{Needs, Step};
use crate::rules::Rule;
use crate::space::Space;
use crate::spec::{Info, Spec, SpecError};

mod adagrad;
mod adamw;
mod cocob;
mod d_adapt_adam;
mod d_adapt_sgd;
mod mechanic;
mod momo;
mod momo_adam;
mod momo_model;
mod polyak_adam;
mod prodigy;
mod schedule_free;
mod schedule_free_adamw;
mod schedule_free_sgd;
mod sgd_momentum;
mod shared;

pub use mechanic::{MechanicBase, MechanicForm};
pub use polyak_adam::PolyakAdamDecay;
pub use schedule_free_adamw::{ScheduleFreeCorrection, ScheduleFreeDecayAt};

macro_rules! optimizers {
    ($($module:ident::$name:ident $(= $text:literal)?),* $(,)?) => {
        $(pub use $module::$name;)*

        /// Any method of the catalog, with its numbers: a scalar rule, or an optimizer with vector state.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "method", rename_all = "kebab-case")]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Method {
            #[serde(rename = "scalar-rule")]
            Rule(Rule),
            $($(#[serde(rename = $text)])? $name(Running<$name>),)*
        }

        /// All optimizers with vector state.
        pub const OPTIMIZERS: &[&Info] = &[$(&$name::INFO,)*];

        impl Method {
            /// The method that a checked spec string names.
            pub(crate) fn from_spec(spec: &Spec, run: &RunInfo) -> Result<Method, SpecError> {
                $(if spec.name() == $name::INFO.name {
                    return $name::from_spec(spec).build(run).map(Method::$name);
                })*
                match Rule::from_spec(spec, run) {
                    Some(rule) => rule.map(Method::Rule),
                    None => unreachable!("a parsed spec names a method of the catalog"),
                }
            }
        }

        impl Optimizer for Method {
            fn name(&self) -> &str {
                each!(self, method => method.name())
            }
            fn needs(&self) -> Needs {
                each!(self, method => Optimizer::needs(method))
            }
            fn state(&self) -> Vec<StateVector> {
                each!(self, method => method.state())
            }
            fn step<S: Space>(
                &mut self,
                context: &mut StepContext<'_, S>,
                vectors: Vectors<'_, S>,
            ) -> Result<Step, SessionError<S::Error>> {
                each!(self, method => Optimizer::step(method, context, vectors))
            }
            fn has_evaluation_point(&self) -> bool {
                each!(self, method => method.has_evaluation_point())
            }
            fn write_evaluation_point<S: Space>(
                &self,
                space: &S,
                x: &S::Vector,
                state: &[S::Vector],
                to: &mut S::Vector,
            ) {
                each!(self, method => method.write_evaluation_point(space, x, state, to))
            }
            fn steps_from(&self) -> bool {
                each!(self, method => method.steps_from())
            }
            fn clips(&self) -> bool {
                each!(self, method => method.clips())
            }
            fn decays_everything(&self) -> bool {
                each!(self, method => method.decays_everything())
            }
            fn default_weight_decay(&self) -> f64 {
                each!(self, method => method.default_weight_decay())
            }
            fn estimate(&self) -> Option<f64> {
                each!(self, method => method.estimate())
            }
            fn warning(&self) -> Option<String> {
                each!(self, method => method.warning())
            }
        }

        /// The same expression for each variant of [`Method`].
        macro_rules! each {
            ($on:expr, $variable:ident => $expression:expr) => {
                match $on {
                    Method::Rule($variable) => $expression,
                    $(Method::$name($variable) => $expression,)*
                }
            };
        }
        use each;
    };
}

// In checkpoints a variant is its name in kebab case, or the text behind it.
optimizers! {
    sgd_momentum::SgdMomentum,
    adagrad::Adagrad,
    adamw::AdamW = "adamw",
    momo::Momo,
    momo_adam::MomoAdam,
    cocob::Cocob,
    d_adapt_sgd::DAdaptSgd,
    d_adapt_adam::DAdaptAdam,
    prodigy::Prodigy,
    schedule_free_sgd::ScheduleFreeSgd,
    schedule_free_adamw::ScheduleFreeAdamW = "schedule-free-adamw",
    mechanic::Mechanic,
    polyak_adam::PolyakAdam,
}
