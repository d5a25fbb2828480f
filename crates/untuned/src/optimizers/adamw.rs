use super::{AdamConstants, Around, Optimizer, Space};
use crate::rule::{Observation, Refusal, Step};
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// AdamW: `x ← x·(1 − η·decay) − η·m̂/(√v̂ + eps)`.
///
/// `m` and `v` are running means of the gradient and of its square, begun at 0; `m̂ = m/(1 − β1ᵗ)` and
/// `v̂ = v/(1 − β2ᵗ)` take out what is left of that beginning, `t` counting from 1. `η` is `lr` times what warm-up and
/// schedule make of it. The decay is apart from the means, and `eps` stands outside of the root, as in
/// `torch.optim.AdamW`. The steps that are refused do not count in `t`.
///
/// References: Kingma & Ba, *Adam*, 2015; Loshchilov & Hutter, *Decoupled weight decay regularization*, 2019.
///
/// ```
/// # use untuned::Observation;
/// use untuned::optimizers::{AdamW, Around, Optimizer, Plain, Space};
///
/// let space = Plain { dimension: 2, decayed: vec![0..1] };
/// let mut adamw = AdamW::default();
/// let (mut x, mut kept) = (vec![1.0, 1.0], vec![space.zeros()?, space.zeros()?]);
/// let around = Around { weight_decay: 0.1, ..Around::default() };
/// let rate = adamw.step(&space, &Observation::new(0, 7.0, 5.0), &around, &mut x, &vec![3.0, -4.0], &mut kept)?;
/// assert_eq!(rate, 0.001);
/// // The first step has length `lr` in every coordinate, whatever the gradient's.
/// assert!((x[0] - (1.0 - 0.0001 - 0.001)).abs() < 1e-11 && (x[1] - (1.0 + 0.001)).abs() < 1e-11);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f64,
    /// `β1`, of the mean of the gradient.
    pub beta1: f64,
    /// `β2`, of the mean of its square.
    pub beta2: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// `β1ᵗ`. A product and not a power, because a library's power differs from machine to machine in the last bit.
    beta1_power: f64,
    /// `β2ᵗ`.
    beta2_power: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { lr: 0.001, beta1: 0.9, beta2: 0.999, eps: 1e-8, beta1_power: 1.0, beta2_power: 1.0 }
    }
}

impl AdamW {
    pub(super) const ENTRY: Entry = Entry {
        name: "adamw",
        aliases: &[],
        formula: "x·(1 − lr·decay) − lr·m̂/(√v̂ + eps), m̂ and v̂ the means of g and g² with weights beta1 and beta2; \
            for networks only: `untuned train`",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(0.001),
                meaning: "the learning rate",
            },
            Parameter {
                name: "beta1",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "β1, how much of the mean of g is kept in a step",
            },
            Parameter {
                name: "beta2",
                kind: Kind::Fraction,
                default: Fallback::Number(0.999),
                meaning: "β2, how much of the mean of g² is kept in a step",
            },
            Parameter {
                name: "eps",
                kind: Kind::Positive,
                default: Fallback::Number(1e-8),
                meaning: "added to √v̂",
            },
        ],
        reference: "Loshchilov & Hutter 2019; Kingma & Ba 2015",
    };

    pub(super) fn from_spec(spec: &Spec) -> Result<AdamW, SpecError> {
        let (lr, eps) = (spec.number("lr"), spec.number("eps"));
        // Where both means are 0, 0/eps is 0 only as long as eps is not.
        let smallest = f64::from(f32::MIN_POSITIVE);
        if eps < smallest {
            let why =
                format!("eps={eps:e} is 0 to a network's 32-bit floats; choose at least {smallest:.1e}");
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        let (beta1, beta2) = (spec.number("beta1"), spec.number("beta2"));
        Ok(AdamW { lr, beta1, beta2, eps, ..AdamW::default() })
    }
}

impl Optimizer for AdamW {
    fn keeps(&self) -> &'static [&'static str] {
        &["adam_m", "adam_v"]
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
        seen.check()?;
        let gradient_scale = around.gradient_scale(seen.grad_norm);
        let norm = gradient_scale * seen.grad_norm;
        if norm * norm > S::LARGEST {
            return Err(Refusal::Gradient { step: seen.step, grad_norm: seen.grad_norm });
        }
        let rate = Step::new(self.lr * around.rate, seen)?.size;
        let [m, v] = kept else { panic!("AdamW keeps two vectors, not {}", kept.len()) };
        self.beta1_power *= self.beta1;
        self.beta2_power *= self.beta2;
        let constants = AdamConstants {
            gradient_scale,
            beta1: self.beta1,
            beta2: self.beta2,
            keep: 1.0 - rate * around.weight_decay,
            size: rate / (1.0 - self.beta1_power),
            root: (1.0 - self.beta2_power).sqrt().recip(),
            eps: self.eps,
        };
        space.adam(x, gradient, m, v, &constants);
        Ok(rate)
    }
}
