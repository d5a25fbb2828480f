//! A method's parameters as a struct of plain numbers, written down once.
//!
//! `parameters!` makes of one list the struct with its documentation, its `Default`, its spec string both ways, and its row in the
//! catalog. `build` checks the parameters and gives the method before its first step, a [`Running`].

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::spec::{Info, Spec, SpecError, Value};

/// What a method may need to know of the run that it is made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunInfo {
    /// `T`, the number of steps of the run.
    pub steps: u64,
    /// `f*`, where it is known.
    pub f_star: Option<f64>,
}

impl RunInfo {
    /// A run of `steps` steps whose minimum is not known.
    pub fn new(steps: u64) -> RunInfo {
        RunInfo { steps, f_star: None }
    }

    /// A run of `steps` steps on `problem`.
    pub fn of<P: Problem + ?Sized>(problem: &P, steps: u64) -> RunInfo {
        RunInfo { steps, f_star: problem.known().f_star }
    }
}

/// The parameters of a method of the catalog.
pub trait Parameters: fmt::Debug + Clone + PartialEq + Default {
    /// Its row in the catalog.
    const INFO: Info;

    /// The numbers that change from step to step.
    type State: fmt::Debug + Clone + PartialEq;

    /// The parameters that a checked spec string gives.
    fn from_spec(spec: &Spec) -> Self;

    /// The values, in the order of [`Info::parameters`]; none where a default is derived.
    fn values(&self) -> Vec<Option<Value>>;
}

/// How a method begins.
pub(crate) trait Start: Parameters {
    /// The state before the first step. What does not fit together, or not the run, is refused.
    fn start(&self, run: &RunInfo) -> Result<Self::State, SpecError>;
}

/// A built method: its checked parameters, and the numbers that change from step to step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: Serialize, P::State: Serialize",
    deserialize = "P: Deserialize<'de>, P::State: Deserialize<'de>"
))]
pub struct Running<P: Parameters> {
    parameters: P,
    pub(crate) state: P::State,
}

/// The method before its first step, its parameters checked.
pub(crate) fn build<P: Start>(parameters: P, run: &RunInfo) -> Result<Running<P>, SpecError> {
    for (parameter, value) in P::INFO.parameters.iter().zip(parameters.values()) {
        parameter.check(P::INFO.name, value)?;
    }
    let state = parameters.start(run)?;
    Ok(Running { parameters, state })
}

impl<P: Parameters> Running<P> {
    /// The parameters that it was made with.
    pub fn parameters(&self) -> &P {
        &self.parameters
    }
}

/// A method's parameters can be read where it runs; they do not change there.
impl<P: Parameters> Deref for Running<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.parameters
    }
}

/// A type that a parameter may have.
pub(crate) trait ParameterType: Sized {
    fn from_value(value: Option<Value>) -> Self;
    fn to_value(&self) -> Option<Value>;
}

impl ParameterType for f64 {
    fn from_value(value: Option<Value>) -> f64 {
        match value {
            Some(Value::Number(v)) => v,
            _ => f64::NAN,
        }
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::Number(*self))
    }
}

impl ParameterType for u64 {
    fn from_value(value: Option<Value>) -> u64 {
        f64::from_value(value) as u64
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::Number(*self as f64))
    }
}

impl ParameterType for bool {
    fn from_value(value: Option<Value>) -> bool {
        value == Some(Value::Word("yes"))
    }
    fn to_value(&self) -> Option<Value> {
        Some(Value::Word(if *self { "yes" } else { "no" }))
    }
}

impl<T: ParameterType> ParameterType for Option<T> {
    fn from_value(value: Option<Value>) -> Option<T> {
        value.map(|value| T::from_value(Some(value)))
    }
    fn to_value(&self) -> Option<Value> {
        self.as_ref().and_then(T::to_value)
    }
}

/// An error about parameters that exclude each other, or do not fit the run.
pub(crate) fn unfit<P: Parameters>(why: impl Into<String>) -> SpecError {
    SpecError::Unfit { owner: P::INFO.name, why: why.into() }
}

/// Refuses a parameter that has no effect with the chosen option. A parameter at its default counts as not set. `others` names the
/// parameters, and `belongs` the option that they need.
pub(crate) fn refuse_others<P: Parameters>(
    parameters: &P,
    others: &[&str],
    belongs: &str,
) -> Result<(), SpecError> {
    let spec = Spec::of(&P::INFO, parameters.values());
    match others.iter().find(|key| spec.is_given(key)) {
        Some(key) => {
            let why = format!("`{key}` belongs to {belongs}; add that, or leave `{key}` out");
            Err(unfit::<P>(why))
        }
        None => Ok(()),
    }
}

/// Refuses an `eps` that is 0 in 32-bit floats: where all numbers of a coordinate are 0, 0/eps is 0 only as long as eps is not.
pub(crate) fn check_eps<P: Parameters>(name: &str, eps: f64) -> Result<(), SpecError> {
    let smallest = f64::from(f32::MIN_POSITIVE);
    if eps >= smallest {
        return Ok(());
    }
    let why = format!("{name}={eps:e} is 0 to a network's 32-bit floats; choose at least {smallest:.1e}");
    Err(unfit::<P>(why))
}

/// Defines a method's parameters. Each one has its documentation, type, default and kind on two lines:
///
/// - `lr: f64 = 0.001, Positive;` is a number;
/// - `lr: f64 = required, Positive;` must be given;
/// - `threshold: f64 = inf, PositiveOrInfinite;` may be infinite;
/// - `beta3: Option<f64> = "√beta2", Fraction;` follows from something else where it is not given;
/// - `epoch: u64 = 500, Whole(1, 1_000_000_000);` is a whole number;
/// - `nesterov: bool = false;` is `yes` or `no` in a text;
/// - `extend: InexactPolyakExtend = Never;` is a word, of an enum that `words!` made.
///
/// A field's documentation ends with its default and its range.
///
/// A method whose state is not empty says `state: Type,` and implements [`Start`].
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        pub struct $name:ident: $text:literal $(or $alias:literal)* {
            $(
                #[doc = $meaning:literal]
                $field:ident: $type:ident $(<$inner:ident>)? = $default:tt $(, $kind:ident $(($low:tt, $high:tt))?)?;
            )*
        }
        $(state: $state:ty,)?
        formula: $formula:expr,
        reference: $reference:expr,
        $(weight_decay: $decay:expr,)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(
                #[doc = $meaning]
                #[doc = ""]
                #[doc = parameters!(@doc $type $default $($kind $(($low, $high))?)?)]
                pub $field: $type $(<$inner>)?,
            )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: parameters!(@value $type $default),)* }
            }
        }

        impl $name {
            /// The method, ready for a run.
            ///
            /// # Errors
            /// When a parameter is not what it must be, or the method needs something that neither it nor the run gives.
            pub fn build(self, run: &$crate::parameters::RunInfo) -> Result<$crate::parameters::Running<$name>, $crate::spec::SpecError> {
                $crate::parameters::build(self, run)
            }
        }

        impl $crate::parameters::Parameters for $name {
            const INFO: $crate::spec::Info = $crate::spec::Info {
                name: $text,
                aliases: &[$($alias),*],
                formula: $formula,
                parameters: &[$(
                    $crate::spec::Parameter {
                        name: stringify!($field),
                        kind: parameters!(@kind $type $($kind $(($low, $high))?)?),
                        default: parameters!(@default $type $default),
                        meaning: $meaning.trim_ascii_start(),
                    },
                )*],
                reference: $reference,
                weight_decay: 0.0 $(+ $decay)?,
            };

            type State = parameters!(@state $($state)?);

            fn from_spec(spec: &$crate::spec::Spec) -> $name {
                $name { $($field: $crate::parameters::ParameterType::from_value(spec.value(stringify!($field))),)* }
            }

            fn values(&self) -> Vec<Option<$crate::spec::Value>> {
                vec![$($crate::parameters::ParameterType::to_value(&self.$field),)*]
            }
        }

        parameters!(@start $name $($state)?);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                use $crate::parameters::Parameters;
                const INFO: &$crate::spec::Info = &<$name as Parameters>::INFO;
                $crate::spec::Spec::of(INFO, self.values()).fmt(f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                use $crate::parameters::Parameters;
                const CATALOG: &[&$crate::spec::Info] = &[&<$name as Parameters>::INFO];
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                let spec = $crate::spec::Spec::parse(&text, "method", CATALOG).map_err(serde::de::Error::custom)?;
                Ok($name::from_spec(&spec))
            }
        }
    };
    (@state) => { () };
    (@state $state:ty) => { $state };
    (@start $name:ident $state:ty) => {};
    (@start $name:ident) => {
        impl $crate::parameters::Start for $name {
            fn start(&self, _: &$crate::parameters::RunInfo) -> Result<(), $crate::spec::SpecError> {
                Ok(())
            }
        }
    };
    (@value f64 required) => { f64::NAN };
    (@value f64 inf) => { f64::INFINITY };
    (@value Option $derived:tt) => { None };
    (@value $type:ident $default:ident) => { parameters!(@word $type $default) };
    (@value $type:ident $default:tt) => { $default };
    (@word bool $default:ident) => { $default };
    (@word $type:ident $default:ident) => { $type::$default };
    (@default f64 required) => { $crate::spec::DefaultValue::Required };
    (@default f64 inf) => { $crate::spec::DefaultValue::Number(f64::INFINITY) };
    (@default f64 $default:tt) => { $crate::spec::DefaultValue::Number($default) };
    (@default u64 $default:tt) => { $crate::spec::DefaultValue::Number($default as f64) };
    (@default bool true) => { $crate::spec::DefaultValue::Word("yes") };
    (@default bool false) => { $crate::spec::DefaultValue::Word("no") };
    (@default Option $derived:tt) => { $crate::spec::DefaultValue::Derived($derived) };
    (@default $type:ident $default:ident) => { $crate::spec::DefaultValue::Word($type::$default.word()) };
    (@doc f64 required $($kind:tt)+) => {
        concat!(" Required: ", parameters!(@range $($kind)+), ". `build` refuses the NaN of `Default`.")
    };
    (@doc f64 inf $($kind:tt)+) => { concat!(" Default: infinite; ", parameters!(@range $($kind)+), ".") };
    (@doc Option $derived:tt $($kind:tt)+) => {
        concat!(" `None`: ", $derived, ". `Some`: ", parameters!(@range $($kind)+), ".")
    };
    (@doc $type:ident $default:tt) => { concat!(" Default: `", stringify!($default), "`.") };
    (@doc $type:ident $default:tt $($kind:tt)+) => {
        concat!(" Default: ", stringify!($default), "; ", parameters!(@range $($kind)+), ".")
    };
    (@range Finite) => { "finite" };
    (@range NonNegative) => { "0 or more" };
    (@range Positive) => { "above 0" };
    (@range PositiveOrInfinite) => { "above 0, or infinite" };
    (@range Fraction) => { "from 0 on, below 1" };
    (@range Whole ($low:tt, $high:tt)) => { concat!("from ", stringify!($low), " to ", stringify!($high)) };
    (@kind bool) => { $crate::spec::Kind::Word(&["no", "yes"]) };
    (@kind $type:ident) => { $crate::spec::Kind::Word($type::WORDS) };
    (@kind $type:ident $kind:ident) => { $crate::spec::Kind::$kind };
    (@kind $type:ident $kind:ident ($low:tt, $high:tt)) => { $crate::spec::Kind::$kind($low, $high) };
}

/// Defines an enum whose variants are the words of a parameter.
macro_rules! words {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            pub(crate) const WORDS: &'static [&'static str] = &[$($word),*];

            pub(crate) const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl $crate::parameters::ParameterType for $name {
            fn from_value(value: Option<$crate::spec::Value>) -> $name {
                match value {
                    $(Some($crate::spec::Value::Word($word)) => $name::$variant,)*
                    other => unreachable!("{other:?} is not one of {:?}", $name::WORDS),
                }
            }
            fn to_value(&self) -> Option<$crate::spec::Value> {
                Some($crate::spec::Value::Word(self.word()))
            }
        }
    };
}
