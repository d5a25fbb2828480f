use super::{At, Change, Here, Keep, Named, Number, Optimizer, Space};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// COCOB, continuous coin betting: `x ← x_0 + (L + R)·θ/(L·max(G + L, alpha·L))`, in every coordinate by itself.
///
/// `L` is the largest `|g|` so far, at least `eps`; `G` is the sum of all `|g|`, `θ` the sum of all `−g`, and the reward
/// `R ← max(R − g·(x − x_0), 0)` is what the bets on the sign of the next gradient have won. It has no learning rate: what warm-up and
/// schedule make of 1 multiplies the gradient, as in optax, and is reported as the rate. The decay is a penalty, `λ·x` in the gradient.
///
/// Reference: Orabona & Tommasi, *Training deep networks without learning rates through coin betting*, 2017.
///
/// ```
/// # use untuned::{Observation, OptimizerSpec, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, Plain, At};
///
/// let mut cocob = "cocob:alpha=4".parse::<OptimizerSpec>()?.build(&Setting::new(9))?;
/// let (space, mut x) = (Plain::new(1), vec![8.0]);
/// let mut kept = Keep::all(&space, &cocob.keeps(), &x)?;
/// // L = 2, G = 2, θ = −2, R = 0: 8 − 2·2/(2·8). Then G = 4, θ = −4, R = 2·0.25: 8 − 2.5·4/(2·8).
/// for (t, wanted) in [7.75, 7.375].into_iter().enumerate() {
///     let at = At { space: &space, around: &Around::default(), x: &mut x, gradient: &vec![2.0], kept: &mut kept };
///     cocob.step(&Observation::new(t as u64, 1.0, 2.0), &[], at)?;
///     assert_eq!(x[0], wanted);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cocob {
    /// Roughly the number of steps in which it warms up.
    pub alpha: f64,
    /// The smallest `L`.
    pub eps: f64,
}

impl Named for Cocob {
    const ENTRY: Entry = Entry {
        name: "cocob",
        aliases: &[],
        formula: "x_0 + (L + R)·θ/(L·max(G + L, alpha·L)), L = max|g|, G = Σ|g|, θ = −Σg, R = Σ−g·(x − x_0)",
        parameters: &[
            Parameter {
                name: "alpha",
                kind: Kind::NonNegative,
                default: Fallback::Number(100.0),
                meaning: "roughly the number of steps in which it warms up",
            },
            Parameter {
                name: "eps",
                kind: Kind::Positive,
                default: Fallback::Number(1e-8),
                meaning: "the smallest L",
            },
        ],
        reference: "Orabona & Tommasi 2017",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Cocob, SpecError> {
        super::check_eps(spec, "eps")?;
        Ok(Cocob { alpha: spec.number("alpha"), eps: spec.number("eps") })
    }
}

/// `d = rate·(scale·g + decay·x)`, `L ← max(L, |d|)`, `θ ← θ − d`, `G ← G + |d|`, `R ← max(R − d·(x − x_0), 0)`,
/// `x ← x_0 + (R/L' + 1)·θ/max(G + L', α·L')` with `L' = max(L, eps)`: quotients first, because the products leave the range of floats.
struct Bet;

impl Change<4, 5, 2> for Bet {
    #[inline(always)]
    fn each<N: Number>(
        [scale, rate, alpha, eps]: [N; 4],
        Here { decay, .. }: Here<N>,
        [x, theta, sum, largest, reward]: [N; 5],
        [start, g]: [N; 2],
    ) -> [N; 5] {
        let d = rate * (scale * g + decay * x);
        let largest = largest.max(d.abs());
        let theta = theta - d;
        let sum = sum + d.abs();
        let reward = (reward - d * (x - start)).max(N::of(0.0));
        let scale = largest.max(eps);
        let bet = (reward / scale + N::of(1.0)) * (theta / (sum + scale).max(alpha * scale));
        [start + bet, theta, sum, largest, reward]
    }
}

/// State: five vectors. A step is one pass: it reads 7 vectors and writes 5.
impl Optimizer for Cocob {
    fn keeps(&self) -> Vec<Keep> {
        vec![
            Keep::parameters("x0"),
            Keep::zeros("cocob_theta"),
            Keep::zeros("cocob_sum"),
            Keep::zeros("cocob_largest"),
            Keep::zeros("cocob_reward"),
        ]
    }

    fn step<S: Space>(&mut self, seen: &Observation, _: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        let scale = at.around.gradient_scale(seen.grad_norm);
        let step = Step::new(at.around.rate, seen)?;
        super::check_square::<S>(seen, scale)?;
        super::check_held::<S>(seen, &[step.size, step.size * scale * seen.grad_norm])?;
        let [start, theta, sum, largest, reward] = at.kept else {
            panic!("COCOB keeps five vectors, not {}", at.kept.len())
        };
        let (scalars, change) =
            ([scale, step.size, self.alpha, self.eps], [at.x, theta, sum, largest, reward]);
        at.space.change(Bet, scalars, at.around.weight_decay, change, [start, at.gradient]);
        Ok(step)
    }
}
