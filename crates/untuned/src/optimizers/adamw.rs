use super::{At, Change, Here, Keep, Named, Number, Optimizer, Space, shared};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
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
/// use untuned::optimizers::{AdamW, Around, Keep, Optimizer, Plain, At};
///
/// let space = Plain::new(2).decaying(0..1);
/// let mut adamw = AdamW::default();
/// let mut x = vec![1.0, 1.0];
/// let mut kept = Keep::all(&space, &adamw.keeps(), &x)?;
/// let around = Around { weight_decay: 0.1, ..Around::default() };
/// let at = At { space: &space, around: &around, x: &mut x, gradient: &vec![3.0, -4.0], kept: &mut kept };
/// let step = adamw.step(&Observation::new(0, 7.0, 5.0), &[], at)?;
/// assert_eq!(step.size, 0.001);
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

impl Named for AdamW {
    const ENTRY: Entry = Entry {
        name: "adamw",
        aliases: &[],
        formula: "x·(1 − lr·decay) − lr·m̂/(√v̂ + eps), m̂ and v̂ the means of g and g² with weights beta1 and beta2",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(0.001),
                meaning: "the learning rate",
            },
            shared::BETA1,
            shared::BETA2,
            shared::EPS,
        ],
        reference: "Loshchilov & Hutter 2019; Kingma & Ba 2015",
    };

    /// As in torch.
    const WEIGHT_DECAY: f64 = 0.01;

    fn from_spec(spec: &Spec, _: &Setting) -> Result<AdamW, SpecError> {
        let (lr, eps) = (spec.number("lr"), spec.number("eps"));
        super::check_eps(spec, "eps")?;
        let (beta1, beta2) = (spec.number("beta1"), spec.number("beta2"));
        Ok(AdamW { lr, beta1, beta2, eps, ..AdamW::default() })
    }
}

/// `m ← β1·m + (1 − β1)·g`, `v ← β2·v + (1 − β2)·g²`, `x ← x·(1 − decay) − size·m/(root·√v + eps)`, with `g` the scaled gradient.
struct Adam;

impl Change<8, 3, 1> for Adam {
    #[inline(always)]
    fn each<N: Number>(
        [scale, old_m, new_m, old_v, new_v, size, root, eps]: [N; 8],
        Here { decay, .. }: Here<N>,
        [x, m, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let g = scale * g;
        let m = old_m * m + new_m * g;
        let v = old_v * v + new_v * g * g;
        [x * (N::of(1.0) - decay) - size * m / (root * v.sqrt() + eps), m, v]
    }
}

/// State: two vectors. A step is one pass: it reads 4 vectors and writes 3.
impl Optimizer for AdamW {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("adam_m"), Keep::zeros("adam_v")]
    }

    fn step<S: Space>(&mut self, seen: &Observation, _: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        let scale = at.around.gradient_scale(seen.grad_norm);
        super::check_square::<S>(seen, scale)?;
        let step = Step::new(self.lr * at.around.rate, seen)?;
        let rate = step.size;
        let (beta1_power, beta2_power) = (self.beta1_power * self.beta1, self.beta2_power * self.beta2);
        let (size, root) = (rate / (1.0 - beta1_power), (1.0 - beta2_power).sqrt().recip());
        super::check_held::<S>(seen, &[size])?;
        (self.beta1_power, self.beta2_power) = (beta1_power, beta2_power);
        let [m, v] = at.kept else { panic!("AdamW keeps two vectors, not {}", at.kept.len()) };
        let scalars =
            [scale, self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2, size, root, self.eps];
        at.space.change(Adam, scalars, rate * at.around.weight_decay, [at.x, m, v], [at.gradient]);
        Ok(step)
    }
}
