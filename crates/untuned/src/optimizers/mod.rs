//! Optimizers with vector state, one file each, and what they share with the scalar rules: a spec string and a run.
//!
//! A scalar rule answers with a step size and never sees a vector. An [`Optimizer`] moves the parameters itself, through the passes
//! of a [`Space`]. Its numbers serialize; its vectors belong to the space, and whoever runs it keeps and saves them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rule::{Needs, Observation, Refusal, StepRule};
use crate::rules::{RULES, Rule, Setting};
use crate::spec::{Entry, Spec, SpecError};

mod adamw;
mod space;

pub use adamw::AdamW;
pub use space::{AdamConstants, Plain, Space};

/// A method that keeps vectors beside the parameters.
///
/// # Contract
/// An error leaves the optimizer, the parameters and the vectors exactly as they were.
pub trait Optimizer {
    /// The names of the vectors that it keeps, in the order in which [`Optimizer::step`] gets them. All begin as zeros.
    fn keeps(&self) -> &'static [&'static str];

    /// Makes the step from the point just observed, and says its rate: the learning rate times [`Around::rate`].
    ///
    /// # Errors
    /// Refuses what it cannot answer, before anything changes.
    ///
    /// # Panics
    /// When `kept` are not as many vectors as [`Optimizer::keeps`] names.
    fn step<S: Space>(
        &mut self,
        space: &S,
        seen: &Observation,
        around: &Around,
        x: &mut S::Vector,
        gradient: &S::Vector,
        kept: &mut [S::Vector],
    ) -> Result<f64, Refusal>;
}

/// What a run puts around an optimizer's step.
#[derive(Debug, Clone, Copy, PartialEq)]
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

/// Any of the optimizers, with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum AnyOptimizer {
    AdamW(AdamW),
}

/// All optimizers with vector state.
pub const OPTIMIZERS: &[&Entry] = &[&AdamW::ENTRY];

impl Optimizer for AnyOptimizer {
    fn keeps(&self) -> &'static [&'static str] {
        match self {
            AnyOptimizer::AdamW(adamw) => adamw.keeps(),
        }
    }

    fn step<S: Space>(
        &mut self,
        space: &S,
        seen: &Observation,
        around: &Around,
        x: &mut S::Vector,
        gradient: &S::Vector,
        kept: &mut [S::Vector],
    ) -> Result<f64, Refusal> {
        match self {
            AnyOptimizer::AdamW(adamw) => adamw.step(space, seen, around, x, gradient, kept),
        }
    }
}

/// A scalar rule or an optimizer, with its numbers. What serde writes of it reads back to the same bits, as for [`Rule`], and a
/// rule is written as it is alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Method {
    Rule(Rule),
    Optimizer(AnyOptimizer),
}

impl Method {
    /// What must be measured or kept for it beyond the loss and the gradient's norm.
    pub fn needs(&self) -> Needs {
        match self {
            Method::Rule(rule) => rule.needs(),
            Method::Optimizer(_) => Needs::default(),
        }
    }

    /// The names of the vectors that it keeps.
    pub fn keeps(&self) -> &'static [&'static str] {
        match self {
            Method::Rule(_) => &[],
            Method::Optimizer(optimizer) => optimizer.keeps(),
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
/// # use untuned::{Setting, optimizers::OptimizerSpec};
/// let spec: OptimizerSpec = "adamw:beta2=0.99".parse()?;
/// assert_eq!((spec.name(), spec.spec().number("lr")), ("adamw", 0.001));
/// assert_eq!(spec.build(&Setting::new(100))?.keeps(), ["adam_m", "adam_v"]);
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
        if self.name() == AdamW::ENTRY.name {
            return Ok(Method::Optimizer(AnyOptimizer::AdamW(AdamW::from_spec(&self.0)?)));
        }
        Rule::from_spec(&self.0, setting).map(Method::Rule)
    }

    /// Whether it is an optimizer with vector state and not a scalar rule.
    pub fn is_optimizer(&self) -> bool {
        OPTIMIZERS.iter().any(|entry| entry.name == self.name())
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
