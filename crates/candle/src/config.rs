use candle_core::Var;
use untuned::Setting;
use untuned::average::Average;
use untuned::optimizers::{Method, Optimizer as _, OptimizerSpec};

use crate::Error;

/// What an optimizer is made from.
///
/// ```
/// # use untuned_candle::Config;
/// let config = Config { weight_decay: 0.1, frozen: vec!["embedding".into()], ..Config::new("prodigy", 1000)? };
/// assert_eq!(Config::new("polyak-adam", 1000)?.weight_decay, 0.1, "its own");
/// assert!(Config::new("prodogy", 1000).unwrap_err().to_string().contains("did you mean `prodigy`?"));
/// # Ok::<(), untuned_candle::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// The method and its parameters: `inexact-polyak`, `prodigy`, `adamw:lr=0.01`.
    pub method: OptimizerSpec,
    /// The number of steps of the run, and the smallest loss where it is known.
    pub setting: Setting,
    /// `λ` in `x·(1 − η·λ)`. With a scalar rule all variables decay, with an optimizer those of two or more dimensions. At first it is
    /// [the method's own](OptimizerSpec::weight_decay).
    pub weight_decay: f64,
    /// The whole gradient is scaled to this norm where it is longer. Methods whose sums are measured before the norm is known refuse it.
    pub clip: Option<f64>,
    /// An average of the points, for [`evaluate`](crate::Untuned::evaluate).
    pub average: Option<Average>,
    /// The variables that stay as they are, by their names; `"encoder"` stands for all that begin with `encoder.`, too.
    pub frozen: Vec<String>,
    /// More variables that stay as they are.
    pub frozen_vars: Vec<Var>,
    /// Whether a pass over f32 or f64 on the CPU is one loop. Without it, and elsewhere, a pass is made of tensor operations: slower,
    /// and the same to rounding.
    pub fused: bool,
}

impl Config {
    /// A method, as a text, for a run of this many steps, with nothing around it but its own weight decay.
    ///
    /// # Errors
    /// When there is no such method, or it has no such parameter.
    pub fn new(method: &str, steps: u64) -> Result<Config, Error> {
        let method: OptimizerSpec = method.parse()?;
        let weight_decay = method.weight_decay();
        Ok(Config {
            method,
            setting: Setting::new(steps),
            weight_decay,
            clip: None,
            average: None,
            frozen: Vec::new(),
            frozen_vars: Vec::new(),
            fused: true,
        })
    }

    /// Whether the method looks at the loss: those that do have a bound of it.
    pub fn needs_loss(&self) -> bool {
        let entry = self.method.spec().entry();
        entry.has("lower_bound") || entry.has("f_star")
    }

    /// The method, with all numbers of the configuration checked.
    pub(crate) fn build(&self) -> Result<Method, Error> {
        let check = |fits: bool, what, value, want| match fits {
            true => Ok(()),
            false => Err(Error::Number { what, value, want }),
        };
        let decay = self.weight_decay;
        check(decay.is_finite() && decay >= 0.0, "weight_decay", decay, "finite, and 0 or more")?;
        if let Some(clip) = self.clip {
            check(clip.is_finite() && clip > 0.0, "clip", clip, "finite and above 0")?;
        }
        match self.average {
            Some(Average::Polynomial(gamma)) => {
                check(gamma.is_finite() && gamma >= 0.0, "the average's γ", gamma, "finite, and 0 or more")?
            }
            Some(Average::Exponential(part)) => {
                check((0.0..1.0).contains(&part), "the average's decay", part, "0 or more, and below 1")?
            }
            Some(Average::Uniform) | None => {}
        }
        let method = self.method.build(&self.setting)?;
        if self.clip.is_some() && !method.clips() {
            return Err(Error::NoClipping { method: self.method.name() });
        }
        Ok(match self.average {
            Some(average) => method.averaged(average),
            None => method,
        })
    }
}
