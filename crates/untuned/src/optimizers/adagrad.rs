use super::{At, Change, Here, Keep, Named, Number, Optimizer, Space};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Adagrad: `x ← x − η_t·g/(√s + eps)`, where `s` is `initial_accumulator` and the sum of all `g²`.
///
/// `η_t = lr/(1 + t·lr_decay)`, `t` from 0, times what warm-up and schedule make of it. The decay is a penalty, `λ·x` in the gradient, as
/// in `torch.optim.Adagrad`. The steps that are refused do not count in `t`.
///
/// Published disagreement, as `eps_inside`: torch adds `eps` to the root (and begins with 0 and 1e-10), optax to the sum under it
/// (and begins with 0.1 and 1e-7).
///
/// Reference: Duchi, Hazan & Singer, *Adaptive subgradient methods*, 2011.
///
/// ```
/// # use untuned::{Observation, OptimizerSpec, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, Plain, At};
///
/// let spec = "adagrad:lr=6,lr_decay=1,initial_accumulator=16,eps=1";
/// let mut adagrad = spec.parse::<OptimizerSpec>()?.build(&Setting::new(9))?;
/// let (space, mut x) = (Plain::new(1), vec![8.0]);
/// let mut kept = Keep::all(&space, &adagrad.keeps(), &x)?;
/// // 8 − 6·3/(√(16 + 9) + 1) and, at half the rate, 5 − 3·12/(√(25 + 144) + 1).
/// for (t, (gradient, wanted)) in [(3.0, 5.0), (12.0, 5.0 - 36.0 / 14.0)].into_iter().enumerate() {
///     let seen = Observation::new(t as u64, 1.0, gradient);
///     let at = At { space: &space, around: &Around::default(), x: &mut x, gradient: &vec![gradient], kept: &mut kept };
///     adagrad.step(&seen, &[], at)?;
///     assert_eq!(x[0], wanted);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adagrad {
    /// The learning rate.
    pub lr: f64,
    /// How fast the rate falls.
    pub lr_decay: f64,
    /// What the sum begins with. It is added when the sum is used: the vector itself begins with 0.
    pub initial_accumulator: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// Whether `eps` is under the root.
    pub eps_inside: bool,
    /// `t`.
    steps: u64,
    /// The sum of all `‖g‖²`, which no coordinate's is beyond.
    squares: f64,
}

impl Named for Adagrad {
    const ENTRY: Entry = Entry {
        name: "adagrad",
        aliases: &[],
        formula: "x − lr/(1 + t·lr_decay)·g/(√s + eps), s = initial_accumulator + Σg²",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(0.01),
                meaning: "the learning rate",
            },
            Parameter {
                name: "lr_decay",
                kind: Kind::NonNegative,
                default: Fallback::Number(0.0),
                meaning: "how fast the rate falls: by 1 + t·lr_decay",
            },
            Parameter {
                name: "initial_accumulator",
                kind: Kind::NonNegative,
                default: Fallback::Number(0.0),
                meaning: "what the sum of g² begins with",
            },
            Parameter {
                name: "eps",
                kind: Kind::Positive,
                default: Fallback::Number(1e-10),
                meaning: "keeps the denominator from 0",
            },
            Parameter {
                name: "eps_inside",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "eps added to the root (torch) or under it (optax)",
            },
        ],
        reference: "Duchi, Hazan & Singer 2011",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Adagrad, SpecError> {
        let (lr, lr_decay, eps) = (spec.number("lr"), spec.number("lr_decay"), spec.number("eps"));
        super::check_eps(spec, "eps")?;
        let (initial_accumulator, eps_inside) =
            (spec.number("initial_accumulator"), spec.word("eps_inside") == "yes");
        Ok(Adagrad { lr, lr_decay, initial_accumulator, eps, eps_inside, steps: 0, squares: 0.0 })
    }
}

/// `d = scale·g + decay·x`, `s ← s + d²`, `x ← x − size·d/(√(s + inside) + outside)`.
struct SumOfSquares;

impl Change<4, 2, 1> for SumOfSquares {
    #[inline(always)]
    fn each<N: Number>(
        [scale, size, inside, outside]: [N; 4],
        Here { decay, .. }: Here<N>,
        [x, s]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let d = scale * g + decay * x;
        let s = s + d * d;
        [x - size * d / ((s + inside).sqrt() + outside), s]
    }
}

/// State: one vector. A step is one pass: it reads 3 vectors and writes 2.
impl Optimizer for Adagrad {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("adagrad_sum")]
    }

    fn step<S: Space>(&mut self, seen: &Observation, _: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        let scale = at.around.gradient_scale(seen.grad_norm);
        let norm = scale * seen.grad_norm;
        let squares = self.squares + norm * norm;
        if squares > S::LARGEST {
            return Err(Refusal::TooLarge { step: seen.step, grad_norm: seen.grad_norm });
        }
        let step = Step::new(self.lr * at.around.rate / (1.0 + self.steps as f64 * self.lr_decay), seen)?;
        super::check_held::<S>(seen, &[step.size])?;
        let [sum] = at.kept else { panic!("Adagrad keeps one vector, not {}", at.kept.len()) };
        let (inside, outside) = if self.eps_inside { (self.eps, 0.0) } else { (0.0, self.eps) };
        let scalars = [scale, step.size, self.initial_accumulator + inside, outside];
        at.space.change(SumOfSquares, scalars, at.around.weight_decay, [at.x, sum], [at.gradient]);
        (self.steps, self.squares) = (self.steps + 1, squares);
        Ok(step)
    }
}
