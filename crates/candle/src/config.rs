use candle_core::Var;
use untuned::{Average, Method, MethodSpec, Optimizer, RunInfo, StepOptions};

use crate::Error;

/// What an optimizer is made from: a method of the library, or one of your own, and step options.
///
/// ```
/// # use untuned_candle::Config;
/// use untuned::{RunInfo, optimizers::Prodigy};
///
/// let config = Config { frozen: vec!["embedding".into()], ..Config::new("prodigy:d0=1e-5", 1000)? };
/// let typed = Config::of(Prodigy { d0: 1e-5, ..Default::default() }.build(&RunInfo::new(1000))?);
/// assert_eq!(Config::new("polyak-adam", 1000)?.weight_decay, 0.1, "its own");
/// assert!(Config::new("prodogy", 1000).unwrap_err().to_string().contains("did you mean `prodigy`?"));
/// # Ok::<(), untuned_candle::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config<M = Method> {
    /// The method before its first step: anything that implements [`untuned::Optimizer`], so also any [`untuned::StepRule`].
    pub method: M,
    /// The text that the method was made from, and the number of steps, where there is one. Messages and files have it.
    pub text: Option<(String, u64)>,
    /// `λ` in `x·(1 − η·λ)`. With a scalar rule all variables decay, with an optimizer those of two or more dimensions. At first it is
    /// [the method's own](Optimizer::default_weight_decay).
    pub weight_decay: f64,
    /// The whole gradient is scaled to this norm where it is longer. Methods whose sums are measured before the norm is known refuse it.
    pub clip: Option<f64>,
    /// An average of the points, for [`evaluate`](crate::Untuned::evaluate).
    pub average: Option<Average>,
    /// The variables that stay as they are, by their names; `"encoder"` stands for all that begin with `encoder.`, too.
    pub frozen: Vec<String>,
    /// More variables that stay as they are.
    pub frozen_vars: Vec<Var>,
    /// Whether a pass over f32 or f64 on the CPU is one loop. Without it, and elsewhere, a pass is made of tensor operations. They are
    /// slower, and add in another order: in f64 the points of 10 steps agree to 1e-12, and to 1e-9 for methods that estimate a
    /// distance from a tiny first one.
    pub fused: bool,
}

impl Config {
    /// A method of the library as a text (`inexact-polyak`, `prodigy`, `adamw:lr=0.01`), for a run of this many steps.
    ///
    /// # Errors
    /// When there is no such method, or it has no such parameter, or it lacks one.
    pub fn new(method: &str, steps: u64) -> Result<Config, Error> {
        let spec: MethodSpec = method.parse()?;
        let config = Config::of(spec.build(&RunInfo::new(steps))?);
        Ok(Config { text: Some((spec.to_string(), steps)), ..config })
    }
}

impl<M: Optimizer> Config<M> {
    /// Any method, with no step option but its own weight decay.
    pub fn of(method: M) -> Config<M> {
        Config {
            text: None,
            weight_decay: method.default_weight_decay(),
            method,
            clip: None,
            average: None,
            frozen: Vec::new(),
            frozen_vars: Vec::new(),
            fused: true,
        }
    }

    /// Whether the method looks at the loss.
    pub fn needs_loss(&self) -> bool {
        self.method.needs().loss
    }

    /// The options around a step.
    pub(crate) fn options(&self) -> StepOptions {
        StepOptions { weight_decay: self.weight_decay, clip: self.clip, ..StepOptions::default() }
    }

    /// Refuses numbers that cannot be used.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check(&self.options())?;
        if self.clip.is_some() && !self.method.clips() {
            return Err(Error::NoClipping { method: self.method.name().to_string() });
        }
        self.average.map(Average::check).transpose()?;
        Ok(())
    }
}

/// Refuses options that cannot be used.
pub(crate) fn check(options: &StepOptions) -> Result<(), Error> {
    match options.wrong() {
        Some(("rate", value, want)) => {
            Err(Error::Number { what: "the learning rate that was set", value, want })
        }
        Some((what, value, want)) => Err(Error::Number { what, value, want }),
        None => Ok(()),
    }
}
