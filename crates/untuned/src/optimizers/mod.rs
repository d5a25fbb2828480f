//! Optimizers with vector state, one file each, and what they share with the scalar rules: a spec string and a run.
//!
//! A scalar rule answers with a step size and never sees a vector. An [`Optimizer`] moves the parameters itself, through the passes
//! of a [`Space`]. Its numbers serialize; its vectors belong to the space, and whoever runs it keeps and saves them. Any rule is an
//! optimizer through [`Scalar`].
//!
//! A new optimizer is a new file, its `mod` line and its line in `optimizers!` below. Its passes are [formulas](formula), written
//! once: every space runs them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::average::Average;
use crate::rule::{Observation, Refusal, Step};
use crate::rules::{RULES, Rule, Setting};
use crate::spec::{Entry, Spec, SpecError};

mod adagrad;
mod adamw;
mod averaged;
mod cocob;
mod d_adapt_adam;
mod d_adapt_sgd;
pub mod formula;
pub mod interpreter;
mod mechanic;
mod momo;
mod momo_adam;
mod momo_model;
mod polyak_adam;
mod prodigy;
mod scalar;
mod schedule_free;
mod schedule_free_adamw;
mod schedule_free_sgd;
mod sgd_momentum;
mod shared;
pub mod slices;
mod space;

pub use averaged::Averaged;
pub use formula::{Change, Here, Measure, Number};
pub use mechanic::MechanicBase;
pub use scalar::Scalar;
pub use space::{Place, Plain, Space, scales};

/// A method that keeps vectors beside the parameters.
///
/// A step has two halves, so that a device is asked only once: [`Optimizer::measure`] sums over the vectors without changing any,
/// and [`Optimizer::step`], which is told loss, norm and sums, changes them.
///
/// # Contract
/// An error leaves the optimizer, the parameters and the vectors exactly as they were. A coordinate whose numbers are all 0 stays
/// 0 and adds nothing to a sum: the gaps of an arena and parameters without a gradient are such coordinates.
pub trait Optimizer {
    /// The vectors that it keeps, in the order in which it gets them.
    fn keeps(&self) -> Vec<Keep>;

    /// How many sums it measures, beside the gradient's squared norm.
    fn measures(&self) -> usize {
        0
    }

    /// Measures what the next step needs to know; the sums go to the places behind `first`, which stay as they are where that step
    /// needs none. Where a pass for them reads the gradient in any case, its squared norm goes to `first`, and the answer is `true`:
    /// nobody then needs another pass for it. After the vectors that it keeps there may be others, of somebody around it.
    fn measure<S: Space>(&self, _at: &At<'_, S>, _sums: &mut S::Sums, _first: usize) -> bool {
        false
    }

    /// Makes the step from the point just observed, and reports it: its size is the effective rate, what a unit of the
    /// (preconditioned) gradient was multiplied with, after [`Around::rate`].
    ///
    /// # Errors
    /// Refuses what it cannot answer, before anything changes.
    ///
    /// # Panics
    /// When the vectors or sums are not as many as [`Optimizer::keeps`] and [`Optimizer::measures`] say.
    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal>;

    /// Writes the point to be evaluated to `to` where it is not the one that is trained, and says whether it did.
    fn evaluated<S: Space>(
        &self,
        _space: &S,
        _x: &S::Vector,
        _kept: &[S::Vector],
        _to: &mut S::Vector,
    ) -> bool {
        false
    }

    /// Whether [`Around::clip`] has an effect: what is measured before the norm is known is measured of the gradient as it is.
    fn clips(&self) -> bool {
        true
    }

    /// The number that it finds out on the way, as its last step left it, where it has one: its documentation says which.
    fn estimate(&self) -> Option<f64> {
        None
    }

    /// What a user should know of how it goes, in words: an estimate that is stuck, a rate that grows without end.
    fn concern(&self) -> Option<String> {
        None
    }
}

/// A vector that an optimizer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Its name, in checkpoints too.
    pub name: &'static str,
    /// What it is before the first step.
    pub start: Start,
}

/// What a kept vector is before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Zeros.
    Zeros,
    /// A copy of the parameters.
    Parameters,
}

impl Keep {
    /// A vector that begins with zeros.
    pub const fn zeros(name: &'static str) -> Keep {
        Keep { name, start: Start::Zeros }
    }

    /// A vector that begins as a copy of the parameters.
    pub const fn parameters(name: &'static str) -> Keep {
        Keep { name, start: Start::Parameters }
    }

    /// The vectors that an optimizer keeps, as they are before the first step.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn all<S: Space>(space: &S, keeps: &[Keep], x: &S::Vector) -> Result<Vec<S::Vector>, S::Error> {
        let make = |keep: &Keep| {
            let mut vector = space.zeros()?;
            if keep.start == Start::Parameters {
                space.copy(x, &mut vector);
            }
            Ok(vector)
        };
        keeps.iter().map(make).collect()
    }
}

/// Where an optimizer is: its space, what surrounds its step, and its vectors.
#[derive(Debug)]
pub struct At<'a, S: Space> {
    /// What the vectors are of, and who makes passes over them.
    pub space: &'a S,
    /// What the run puts around the step.
    pub around: &'a Around,
    /// The parameters.
    pub x: &'a mut S::Vector,
    /// Their gradient.
    pub gradient: &'a S::Vector,
    /// What [`Optimizer::keeps`] names.
    pub kept: &'a mut [S::Vector],
}

/// What a run puts around an optimizer's step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// Multiplies the learning rate: warm-up and schedule.
    pub rate: f64,
    /// The gradient is scaled to this norm where it is longer.
    pub clip: Option<f64>,
    /// `λ` in `x·(1 − η·λ)`.
    pub weight_decay: f64,
}

impl Default for Around {
    /// Nothing.
    fn default() -> Around {
        Around { rate: 1.0, clip: None, weight_decay: 0.0 }
    }
}

impl Around {
    /// What multiplies a gradient of this norm: `min(1, clip/(‖g‖ + 1e-6))`, the 1e-6 being that of
    /// `torch.nn.utils.clip_grad_norm_`.
    pub fn gradient_scale(&self, grad_norm: f64) -> f64 {
        self.clip.map_or(1.0, |clip| (clip / (grad_norm + 1e-6)).min(1.0))
    }
}

/// An optimizer that can be made from a spec string.
trait Named: Optimizer + Sized {
    const ENTRY: Entry;

    /// The [weight decay](Around::weight_decay) that belongs to it on networks.
    const WEIGHT_DECAY: f64 = 0.0;

    fn from_spec(spec: &Spec, setting: &Setting) -> Result<Self, SpecError>;
}

/// Refuses an `eps` that is 0 in 32-bit floats: where all numbers of a coordinate are 0, 0/eps is 0 only as long as eps is not.
fn check_eps(spec: &Spec, name: &str) -> Result<(), SpecError> {
    let (eps, smallest) = (spec.number(name), f64::from(f32::MIN_POSITIVE));
    if eps >= smallest {
        return Ok(());
    }
    let why = format!("{name}={eps:e} is 0 to a network's 32-bit floats; choose at least {smallest:.1e}");
    Err(SpecError::Unfit { owner: spec.name(), why })
}

/// Refuses a gradient whose square, after the clipping, a vector of the space cannot hold.
fn check_square<S: Space>(seen: &Observation, scale: f64) -> Result<(), Refusal> {
    let norm = scale * seen.grad_norm;
    if norm * norm > S::LARGEST {
        return Err(Refusal::TooLarge { step: seen.step, grad_norm: seen.grad_norm });
    }
    Ok(())
}

/// Refuses numbers that a vector's floats cannot hold: to those of 32 bits 1e40 is infinite, and infinity times 0 is not a number.
fn check_held<S: Space>(seen: &Observation, numbers: &[f64]) -> Result<(), Refusal> {
    match numbers.iter().find(|number| number.is_nan() || number.abs() > S::LARGEST) {
        Some(&size) => {
            let &Observation { step, loss, grad_norm, .. } = seen;
            Err(Refusal::Overflow { step, loss, grad_norm, size })
        }
        None => Ok(()),
    }
}

/// Refuses sums that are not finite: a gradient or a parameter is not, or is too large.
fn check_sums(seen: &Observation, names: &[&'static str], sums: &[f64]) -> Result<(), Refusal> {
    for (&what, &value) in names.iter().zip(sums) {
        if !value.is_finite() {
            return Err(Refusal::NotFinite { step: seen.step, what, value });
        }
    }
    Ok(())
}

macro_rules! optimizers {
    ($($module:ident :: $name:ident = $word:literal),* $(,)?) => {
        $(pub use $module::$name;)*

        /// Any of the optimizers with vector state, with its numbers.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "rule")]
        #[allow(missing_docs)]
        pub enum AnyOptimizer {
            $(#[serde(rename = $word)] $name($name),)*
        }

        /// All optimizers with vector state.
        pub const OPTIMIZERS: &[&Entry] = &[$(&<$name as Named>::ENTRY,)*];

        impl AnyOptimizer {
            fn weight_decay(name: &str) -> Option<f64> {
                $(if name == $word {
                    return Some(<$name as Named>::WEIGHT_DECAY);
                })*
                None
            }

            fn from_spec(spec: &Spec, setting: &Setting) -> Option<Result<AnyOptimizer, SpecError>> {
                $(if spec.name() == $word {
                    return Some($name::from_spec(spec, setting).map(AnyOptimizer::$name));
                })*
                None
            }
        }

        either!(AnyOptimizer: $($name),*);
    };
}

/// An [`Optimizer`] that is one of several.
macro_rules! either {
    ($type:ident: $($name:ident),*) => {
        impl Optimizer for $type {
            fn keeps(&self) -> Vec<Keep> {
                match self { $($type::$name(one) => one.keeps(),)* }
            }
            fn measures(&self) -> usize {
                match self { $($type::$name(one) => one.measures(),)* }
            }
            fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
                match self { $($type::$name(one) => one.measure(at, sums, first),)* }
            }
            fn step<S: Space>(
                &mut self,
                seen: &Observation,
                sums: &[f64],
                at: At<'_, S>,
            ) -> Result<Step, Refusal> {
                match self { $($type::$name(one) => one.step(seen, sums, at),)* }
            }
            fn evaluated<S: Space>(
                &self,
                space: &S,
                x: &S::Vector,
                kept: &[S::Vector],
                to: &mut S::Vector,
            ) -> bool {
                match self { $($type::$name(one) => one.evaluated(space, x, kept, to),)* }
            }
            fn clips(&self) -> bool {
                match self { $($type::$name(one) => one.clips(),)* }
            }
            fn estimate(&self) -> Option<f64> {
                match self { $($type::$name(one) => one.estimate(),)* }
            }
            fn concern(&self) -> Option<String> {
                match self { $($type::$name(one) => one.concern(),)* }
            }
        }
    };
}

optimizers! {
    sgd_momentum::SgdMomentum = "sgd-momentum",
    adagrad::Adagrad = "adagrad",
    adamw::AdamW = "adamw",
    momo::Momo = "momo",
    momo_adam::MomoAdam = "momo-adam",
    cocob::Cocob = "cocob",
    d_adapt_sgd::DAdaptSgd = "d-adapt-sgd",
    d_adapt_adam::DAdaptAdam = "d-adapt-adam",
    prodigy::Prodigy = "prodigy",
    schedule_free_sgd::ScheduleFreeSgd = "schedule-free-sgd",
    schedule_free_adamw::ScheduleFreeAdamW = "schedule-free-adamw",
    mechanic::Mechanic = "mechanic",
    polyak_adam::PolyakAdam = "polyak-adam",
}

/// A scalar rule or an optimizer, or the average of either, with its numbers. What serde writes of it reads back to the same bits,
/// as for [`Rule`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Method {
    Rule(Scalar<Rule>),
    Optimizer(AnyOptimizer),
    Averaged(Box<Averaged<Method>>),
}

either!(Method: Rule, Optimizer, Averaged);

impl Method {
    /// The same, with an average of its points to be evaluated.
    pub fn averaged(self, average: Average) -> Method {
        Method::Averaged(Box::new(Averaged::new(self, average)))
    }

    /// Whether it is a scalar rule, averaged or not.
    pub fn is_scalar(&self) -> bool {
        match self {
            Method::Rule(_) => true,
            Method::Optimizer(_) => false,
            Method::Averaged(averaged) => averaged.optimizer.is_scalar(),
        }
    }
}

/// All rules, and after them all optimizers.
pub fn catalog() -> Vec<&'static Entry> {
    RULES.iter().chain(OPTIMIZERS).copied().collect()
}

/// A rule or an optimizer and its parameters, checked, as a text: `inexact-polyak`, `adamw:lr=0.001,beta2=0.99`.
///
/// ```
/// # use untuned::{Setting, optimizers::{Optimizer, OptimizerSpec}};
/// let spec: OptimizerSpec = "adamw:beta2=0.99".parse()?;
/// assert_eq!((spec.name(), spec.spec().number("lr")), ("adamw", 0.001));
/// assert_eq!(spec.build(&Setting::new(100))?.keeps().len(), 2);
/// # Ok::<(), untuned::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerSpec(Spec);

impl OptimizerSpec {
    /// The method, ready for a run.
    ///
    /// # Errors
    /// When it needs something that neither the spec nor the setting gives.
    pub fn build(&self, setting: &Setting) -> Result<Method, SpecError> {
        match AnyOptimizer::from_spec(&self.0, setting) {
            Some(optimizer) => optimizer.map(Method::Optimizer),
            None => Rule::from_spec(&self.0, setting).map(|rule| Method::Rule(Scalar::new(rule))),
        }
    }

    /// Whether it is an optimizer with vector state and not a scalar rule.
    pub fn is_optimizer(&self) -> bool {
        OPTIMIZERS.iter().any(|entry| entry.name == self.name())
    }

    /// The [weight decay](Around::weight_decay) that a network is to have where nothing else is asked for: 0.1 for `polyak-adam`, 0.01
    /// for `adamw`, as in torch, and none for the others.
    pub fn weight_decay(&self) -> f64 {
        AnyOptimizer::weight_decay(self.name()).unwrap_or(0.0)
    }

    /// The name of the rule or optimizer.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The checked parameters.
    pub fn spec(&self) -> &Spec {
        &self.0
    }
}

impl FromStr for OptimizerSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<OptimizerSpec, SpecError> {
        Spec::parse(text, "rule", &catalog()).map(OptimizerSpec)
    }
}

impl fmt::Display for OptimizerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for OptimizerSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OptimizerSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OptimizerSpec, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
