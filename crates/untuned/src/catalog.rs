//! The catalog of all methods, and spec strings that name them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::optimizers::{Method, OPTIMIZERS};
use crate::parameters::RunInfo;
use crate::rules::{RULES, Rule};
use crate::spec::{Info, Spec, SpecError};

/// All methods: the scalar rules, and after them the optimizers.
pub fn catalog() -> Vec<&'static Info> {
    RULES.iter().chain(OPTIMIZERS).copied().collect()
}

/// A method and its parameters, checked, as a text: `inexact-polyak`, `adamw:lr=0.001,beta2=0.99`.
///
/// ```
/// use untuned::{MethodSpec, Optimizer, RunInfo};
///
/// let spec: MethodSpec = "adamw:beta2=0.99".parse()?;
/// assert_eq!((spec.name(), spec.spec().number("lr")), ("adamw", 0.001));
/// assert_eq!(spec.build(&RunInfo::new(100))?.state().len(), 2);
/// # Ok::<(), untuned::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MethodSpec(Spec);

impl MethodSpec {
    /// The method, ready for a run.
    ///
    /// # Errors
    /// When it needs something that neither the spec nor the run gives.
    pub fn build(&self, run: &RunInfo) -> Result<Method, SpecError> {
        Method::from_spec(&self.0, run)
    }

    /// The scalar rule, ready for a run.
    ///
    /// # Errors
    /// As [`MethodSpec::build`]; and when the method is no scalar rule.
    pub fn build_rule(&self, run: &RunInfo) -> Result<Rule, SpecError> {
        let why =
            "this is an optimizer with state vectors, not a scalar rule; use a rule such as `inexact-polyak`";
        let no_rule = SpecError::Unfit { owner: self.name(), why: why.to_string() };
        Rule::from_spec(&self.0, run).unwrap_or(Err(no_rule))
    }

    /// Whether it is a scalar rule, and not an optimizer with vector state.
    pub fn is_rule(&self) -> bool {
        RULES.iter().any(|info| info.name == self.name())
    }

    /// The [weight decay](crate::StepOptions::weight_decay) of a network where nothing else is asked for: 0.1 for `polyak-adam`, 0.01
    /// for `adamw`, as in torch, and none for the others.
    pub fn weight_decay(&self) -> f64 {
        self.0.info().weight_decay
    }

    /// The name of the method.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The checked parameters.
    pub fn spec(&self) -> &Spec {
        &self.0
    }
}

impl FromStr for MethodSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<MethodSpec, SpecError> {
        Spec::parse(text, "method", &catalog()).map(MethodSpec)
    }
}

impl fmt::Display for MethodSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for MethodSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MethodSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MethodSpec, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
