use super::shared::{self, BiasCorrection, Estimate};
use super::{
    At, Change, Here, Keep, Measure, Named, Number, Optimizer, Space, check_eps, check_held, check_square,
    check_sums,
};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Mechanic: finds the scale `S` of another optimizer's steps, `x = x_0 + S·Δ`, `Δ` being the sum of those steps.
///
/// `u` is the step that the base would make from `x`. With `h = ⟨Δ, g + s_decay·S·‖g‖/(‖p‖ + eps)·p⟩`, where `p = x + u`:
/// - `Δ ← Δ + u`;
/// - for each of `betas` weights `β = 0.9, 0.99, …`: `m ← max(β·m, |h|)`, `v ← β²·v + h²`, `r ← max(β·r − s·h, 0)`,
///   `s ← (s_init·m/betas + r)/(√v + eps)`, with `m` begun at 1e-6 and all else at 0;
/// - `S = Σ s`.
///
/// `Δ` is `(x − x_0)/(S + eps)`, or kept as a vector of its own (`store_delta=yes`): in 32 bits the first loses what is far smaller
/// than `x`. Published disagreements, as `form=optax`: `p = x`; `m ← max(β·m, |h| + eps)`, begun at 0; `s` begun at `s_init`; in `r`,
/// which may fall below 0 and then counts as 0, `h` is limited to `±m` with the `m` before; `s_init` is 1e-6 and not 1e-8.
///
/// The base is `adamw`, with weight decay apart from the means, or `sgd-momentum`: `b ← momentum·b + g + decay·x`, `u = −lr·b`.
/// Warm-up and schedule multiply its `lr`. The reported rate is `S·lr`. The gradient is taken as it is: [`Around::clip`](super::Around::clip) has no effect.
///
/// Reference: Cutkosky, Defazio & Mehta, *Mechanic: a learning rate tuner*, 2023.
///
/// ```
/// # use untuned::{Observation, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let spec: OptimizerSpec = "mechanic:base=sgd-momentum,momentum=0,s_init=0.5,s_decay=0,betas=1,eps=1e-12".parse()?;
/// let mut mechanic = spec.build(&Setting::new(2))?;
/// let (space, around) = (Plain::new(1), Around::default());
/// let (mut x, gradient, mut sums) = (vec![8.0], vec![4.0], vec![0.0; 4]);
/// let mut kept = Keep::all(&space, &mechanic.keeps(), &x)?;
/// for t in 0..2 {
///     let at = At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
///     mechanic.measure(&at, &mut sums, 0);
///     let size = mechanic.step(&Observation::new(t, 7.0, 4.0), &sums[1..], at)?.size;
///     // First h = 0 and s = 0.5·0.9e-6/1e-12. Then Δ = −4 and h = −16: m = 16, v = 256, r = 16·s, and s = (8 + 16·s)/16.
///     assert!((size / [450_000.0, 450_000.5][t as usize] - 1.0).abs() < 1e-9);
/// }
/// assert!((x[0] / (8.0 - 8.0 * 450_000.5) - 1.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mechanic {
    /// Whose steps are scaled.
    pub base: MechanicBase,
    /// The base's learning rate.
    pub lr: f64,
    /// Whether all is as in optax.
    pub optax: bool,
    /// The first wealth.
    pub s_init: f64,
    /// How much `x` is pulled to 0 in `h`.
    pub s_decay: f64,
    /// Keeps denominators from 0.
    pub eps: f64,
    /// Whether `Δ` is kept.
    pub store_delta: bool,
    bettors: Vec<Bettor>,
    /// `S`.
    scale: Estimate,
    correction: BiasCorrection,
}

/// The optimizers whose steps [`Mechanic`] scales.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum MechanicBase {
    #[serde(rename = "adamw")]
    AdamW {
        beta1: f64,
        beta2: f64,
        eps: f64,
    },
    SgdMomentum {
        momentum: f64,
    },
}

/// One of the scales whose sum is taken, which bets on the sign of `h`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Bettor {
    beta: f64,
    /// `s`.
    scale: f64,
    /// `m`.
    largest: f64,
    /// `v`.
    square: f64,
    /// `r`.
    reward: f64,
}

impl Bettor {
    /// The one with `β = 1 − 10^−place`, `place` from 1.
    fn new(place: i32, optax: bool, s_init: f64) -> Bettor {
        let beta = 1.0 - 10f64.powi(place).recip();
        let (scale, largest) = if optax { (s_init, 0.0) } else { (0.0, 1e-6) };
        Bettor { beta, scale, largest, square: 0.0, reward: 0.0 }
    }

    /// What it is after a bet that came out as `h`, given its part of the first wealth.
    fn next(self, h: f64, optax: bool, part: f64, eps: f64) -> Bettor {
        let square = self.beta * self.beta * self.square + h * h;
        let (largest, reward) = if optax {
            let limited = h.clamp(-self.largest, self.largest);
            ((self.beta * self.largest).max(h.abs() + eps), self.beta * self.reward - limited * self.scale)
        } else {
            let reward = self.beta * self.reward - self.scale * h;
            ((self.beta * self.largest).max(h.abs()), reward.max(0.0))
        };
        let scale = (largest * part + reward.max(0.0)) / (square.sqrt() + eps);
        Bettor { scale, largest, square, reward, ..self }
    }
}

impl Named for Mechanic {
    const ENTRY: Entry = Entry {
        name: "mechanic",
        aliases: &[],
        formula: "x_0 + S·Δ, Δ the sum of the base's steps, S the sum of scales that bet on the sign of ⟨Δ, g⟩",
        parameters: &[
            Parameter {
                name: "base",
                kind: Kind::Word(&["adamw", "sgd-momentum"]),
                default: Fallback::Word("adamw"),
                meaning: "whose steps are scaled",
            },
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "the base's learning rate; 1 is meant",
            },
            Parameter {
                name: "momentum",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "how much of the sum of g is kept in a step of base=sgd-momentum",
            },
            shared::BETA1,
            shared::BETA2,
            Parameter {
                name: "base_eps",
                kind: Kind::Positive,
                default: Fallback::Number(1e-8),
                meaning: "added to √v̂ of base=adamw",
            },
            Parameter {
                name: "form",
                kind: Kind::Word(&["torch", "optax"]),
                default: Fallback::Word("torch"),
                meaning: "which of the authors' two implementations",
            },
            Parameter {
                name: "s_init",
                kind: Kind::Positive,
                default: Fallback::Derived("1e-8, with form=optax 1e-6"),
                meaning: "the first wealth, about the first scale",
            },
            Parameter {
                name: "s_decay",
                kind: Kind::NonNegative,
                default: Fallback::Number(0.01),
                meaning: "how much x is pulled to 0 in h",
            },
            Parameter {
                name: "betas",
                kind: Kind::Whole(1, 15),
                default: Fallback::Number(6.0),
                meaning: "the number of scales that are summed, with β = 0.9, 0.99, …",
            },
            Parameter {
                name: "eps",
                kind: Kind::Positive,
                default: Fallback::Number(1e-8),
                meaning: "added to √v of a scale, to ‖x‖ and to S",
            },
            Parameter {
                name: "store_delta",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "whether Δ is kept and not computed from x − x_0",
            },
        ],
        reference: "Cutkosky, Defazio & Mehta 2023",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Mechanic, SpecError> {
        let adamw = spec.word("base") == "adamw";
        let others: &[&str] = if adamw { &["momentum"] } else { &["beta1", "beta2", "base_eps"] };
        if let Some(key) = others.iter().find(|key| spec.is_given(key)) {
            let other = if adamw { "sgd-momentum" } else { "adamw" };
            let why = format!("`{key}` belongs to base={other}; add that, or leave `{key}` out");
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        let base = if adamw {
            let eps = spec.number("base_eps");
            check_eps(spec, "base_eps")?;
            MechanicBase::AdamW { beta1: spec.number("beta1"), beta2: spec.number("beta2"), eps }
        } else {
            MechanicBase::SgdMomentum { momentum: spec.number("momentum") }
        };
        let optax = spec.word("form") == "optax";
        let s_init = spec.optional("s_init").unwrap_or(if optax { 1e-6 } else { 1e-8 });
        let bettors: Vec<_> =
            (1..=spec.number("betas") as i32).map(|place| Bettor::new(place, optax, s_init)).collect();
        Ok(Mechanic {
            base,
            lr: spec.number("lr"),
            optax,
            s_init,
            s_decay: spec.number("s_decay"),
            eps: spec.number("eps"),
            store_delta: shared::yes(spec, "store_delta"),
            scale: Estimate::new(bettors.iter().map(|bettor| bettor.scale).sum()),
            bettors,
            correction: BiasCorrection::START,
        })
    }
}

impl Mechanic {
    /// What [`adamw`] needs.
    fn adamw(&self, rate: f64, beta1: f64, beta2: f64, eps: f64) -> [f64; 7] {
        let correction = self.correction.next(beta1, beta2);
        let (size, root) = (rate / correction.mean(), correction.root().recip());
        [beta1, 1.0 - beta1, beta2, 1.0 - beta2, size, root, eps]
    }

    /// `1/(S + eps)`.
    fn inverse(&self) -> f64 {
        (self.scale.value + self.eps).recip()
    }
}

/// The base's step and its new means; the decay is the rate's part of it.
#[inline(always)]
fn adamw<N: Number>(
    [old_m, new_m, old_v, new_v, size, root, eps]: [N; 7],
    decay: N,
    [x, m, v, g]: [N; 4],
) -> [N; 3] {
    let m = old_m * m + new_m * g;
    let v = old_v * v + new_v * g * g;
    [-(decay * x + size * m / (root * v.sqrt() + eps)), m, v]
}

/// The base's step and its new sum.
#[inline(always)]
fn sgd<N: Number>([momentum, rate]: [N; 2], decay: N, [x, b, g]: [N; 3]) -> [N; 2] {
    let b = momentum * b + g + decay * x;
    [-(rate * b), b]
}

/// `g²`, `Δ·g`, `Δ·p` and `p²`, where `p` is `x`, after the base's step unless `before = 1`.
#[inline(always)]
fn terms<N: Number>(before: N, x: N, u: N, g: N, delta: N) -> [N; 4] {
    let p = before.above(N::of(0.5), x, x + u);
    [g * g, delta * g, delta * p, p * p]
}

/// The sums with the base AdamW.
struct AdamSums;

impl Measure<9, 5, 4> for AdamSums {
    #[inline(always)]
    fn each<N: Number>(
        [before, inverse, a, b, c, d, e, f, h]: [N; 9],
        Here { decay, .. }: Here<N>,
        [x, m, v, g, start]: [N; 5],
    ) -> [N; 4] {
        let [u, _, _] = adamw([a, b, c, d, e, f, h], decay, [x, m, v, g]);
        terms(before, x, u, g, (x - start) * inverse)
    }
}

/// The sums with the base AdamW where `Δ` is kept.
struct AdamStoredSums;

impl Measure<8, 5, 4> for AdamStoredSums {
    #[inline(always)]
    fn each<N: Number>(
        [before, a, b, c, d, e, f, h]: [N; 8],
        Here { decay, .. }: Here<N>,
        [x, m, v, g, delta]: [N; 5],
    ) -> [N; 4] {
        let [u, _, _] = adamw([a, b, c, d, e, f, h], decay, [x, m, v, g]);
        terms(before, x, u, g, delta)
    }
}

/// The sums with the base SGD.
struct SgdSums;

impl Measure<4, 4, 4> for SgdSums {
    #[inline(always)]
    fn each<N: Number>(
        [before, inverse, momentum, rate]: [N; 4],
        Here { decay, .. }: Here<N>,
        [x, b, g, start]: [N; 4],
    ) -> [N; 4] {
        let [u, _] = sgd([momentum, rate], decay, [x, b, g]);
        terms(before, x, u, g, (x - start) * inverse)
    }
}

/// The sums with the base SGD where `Δ` is kept.
struct SgdStoredSums;

impl Measure<3, 4, 4> for SgdStoredSums {
    #[inline(always)]
    fn each<N: Number>(
        [before, momentum, rate]: [N; 3],
        Here { decay, .. }: Here<N>,
        [x, b, g, delta]: [N; 4],
    ) -> [N; 4] {
        let [u, _] = sgd([momentum, rate], decay, [x, b, g]);
        terms(before, x, u, g, delta)
    }
}

/// The step with the base AdamW.
struct AdamStep;

impl Change<9, 3, 2> for AdamStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, inverse, a, b, c, d, e, f, h]: [N; 9],
        Here { decay, .. }: Here<N>,
        [x, m, v]: [N; 3],
        [g, start]: [N; 2],
    ) -> [N; 3] {
        let [u, m, v] = adamw([a, b, c, d, e, f, h], decay, [x, m, v, g]);
        [start + scale * ((x - start) * inverse + u), m, v]
    }
}

/// The step with the base AdamW where `Δ` is kept.
struct AdamStoredStep;

impl Change<8, 4, 2> for AdamStoredStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, a, b, c, d, e, f, h]: [N; 8],
        Here { decay, .. }: Here<N>,
        [x, m, v, delta]: [N; 4],
        [g, start]: [N; 2],
    ) -> [N; 4] {
        let [u, m, v] = adamw([a, b, c, d, e, f, h], decay, [x, m, v, g]);
        let delta = delta + u;
        [start + scale * delta, m, v, delta]
    }
}

/// The step with the base SGD.
struct SgdStep;

impl Change<4, 2, 2> for SgdStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, inverse, momentum, rate]: [N; 4],
        Here { decay, .. }: Here<N>,
        [x, b]: [N; 2],
        [g, start]: [N; 2],
    ) -> [N; 2] {
        let [u, b] = sgd([momentum, rate], decay, [x, b, g]);
        [start + scale * ((x - start) * inverse + u), b]
    }
}

/// The step with the base SGD where `Δ` is kept.
struct SgdStoredStep;

impl Change<3, 3, 2> for SgdStoredStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, momentum, rate]: [N; 3],
        Here { decay, .. }: Here<N>,
        [x, b, delta]: [N; 3],
        [g, start]: [N; 2],
    ) -> [N; 3] {
        let [u, b] = sgd([momentum, rate], decay, [x, b, g]);
        let delta = delta + u;
        [start + scale * delta, b, delta]
    }
}

/// State: `x_0`, two vectors of the base AdamW or one of SGD, and one more where `Δ` is kept. A step is two passes. With AdamW the
/// first reads 5 vectors, the second reads 5 and writes 3; with SGD it is 4, 4 and 2. Where `Δ` is kept the first reads it and not
/// `x_0`, and the second reads and writes one more.
impl Optimizer for Mechanic {
    fn keeps(&self) -> Vec<Keep> {
        let mut keeps = vec![Keep::parameters("mechanic_x0")];
        match self.base {
            MechanicBase::AdamW { .. } => {
                keeps.extend([Keep::zeros("mechanic_m"), Keep::zeros("mechanic_v")])
            }
            MechanicBase::SgdMomentum { .. } => keeps.push(Keep::zeros("mechanic_b")),
        }
        if self.store_delta {
            keeps.push(Keep::zeros("mechanic_delta"));
        }
        keeps
    }

    fn measures(&self) -> usize {
        3
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let (rate, inverse, before) =
            (self.lr * at.around.rate, self.inverse(), f64::from(u8::from(self.optax)));
        let (x, g, kept) = (&*at.x, at.gradient, &*at.kept);
        match self.base {
            MechanicBase::AdamW { beta1, beta2, eps } => {
                let [a, b, c, d, e, f, h] = self.adamw(rate, beta1, beta2, eps);
                let decay = rate * at.around.weight_decay;
                if self.store_delta {
                    let read = [x, &kept[1], &kept[2], g, &kept[3]];
                    let scalars = [before, a, b, c, d, e, f, h];
                    at.space.measure(AdamStoredSums, scalars, decay, read, sums, first);
                } else {
                    let read = [x, &kept[1], &kept[2], g, &kept[0]];
                    let scalars = [before, inverse, a, b, c, d, e, f, h];
                    at.space.measure(AdamSums, scalars, decay, read, sums, first);
                }
            }
            MechanicBase::SgdMomentum { momentum } => {
                let decay = at.around.weight_decay;
                if self.store_delta {
                    let read = [x, &kept[1], g, &kept[2]];
                    at.space.measure(SgdStoredSums, [before, momentum, rate], decay, read, sums, first);
                } else {
                    let read = [x, &kept[1], g, &kept[0]];
                    let scalars = [before, inverse, momentum, rate];
                    at.space.measure(SgdSums, scalars, decay, read, sums, first);
                }
            }
        }
        true
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        check_square::<S>(seen, 1.0)?;
        let rate = Step::new(self.lr * at.around.rate, seen)?.size;
        let &[product, along, square] = sums else {
            panic!("Mechanic measures three sums, not {}", sums.len());
        };
        let pull = self.s_decay * self.scale.value * seen.grad_norm / (square.sqrt() + self.eps);
        let h = product + pull * along;
        check_sums(seen, &["⟨Δ, g⟩", "⟨Δ, p⟩", "‖p‖²", "h"], &[product, along, square, h])?;
        let part = self.s_init / self.bettors.len() as f64;
        let bettors: Vec<_> =
            self.bettors.iter().map(|bettor| bettor.next(h, self.optax, part, self.eps)).collect();
        let scale = bettors.iter().map(|bettor| bettor.scale).sum::<f64>();
        let step = Step::new(Step::new(scale, seen)?.size * rate, seen)?;
        let longest = match self.base {
            MechanicBase::AdamW { beta1, beta2, .. } => rate / self.correction.next(beta1, beta2).mean(),
            MechanicBase::SgdMomentum { .. } => rate * seen.grad_norm,
        };
        check_held::<S>(seen, &[rate, longest, scale, scale * longest])?;

        let inverse = self.inverse();
        self.bettors = bettors;
        self.scale = self.scale.next(scale);
        match self.base {
            MechanicBase::AdamW { beta1, beta2, eps } => {
                let [a, b, c, d, e, f, h] = self.adamw(rate, beta1, beta2, eps);
                self.correction = self.correction.next(beta1, beta2);
                let decay = rate * at.around.weight_decay;
                match at.kept {
                    [start, m, v] => {
                        let scalars = [scale, inverse, a, b, c, d, e, f, h];
                        at.space.change(AdamStep, scalars, decay, [at.x, m, v], [at.gradient, start]);
                    }
                    [start, m, v, delta] => {
                        let scalars = [scale, a, b, c, d, e, f, h];
                        at.space.change(
                            AdamStoredStep,
                            scalars,
                            decay,
                            [at.x, m, v, delta],
                            [at.gradient, start],
                        );
                    }
                    other => panic!("Mechanic with AdamW keeps three or four vectors, not {}", other.len()),
                }
            }
            MechanicBase::SgdMomentum { momentum } => {
                let decay = at.around.weight_decay;
                match at.kept {
                    [start, b] => {
                        let scalars = [scale, inverse, momentum, rate];
                        at.space.change(SgdStep, scalars, decay, [at.x, b], [at.gradient, start]);
                    }
                    [start, b, delta] => {
                        let scalars = [scale, momentum, rate];
                        at.space.change(
                            SgdStoredStep,
                            scalars,
                            decay,
                            [at.x, b, delta],
                            [at.gradient, start],
                        );
                    }
                    other => panic!("Mechanic with SGD keeps two or three vectors, not {}", other.len()),
                }
            }
        }
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    /// `S`.
    fn estimate(&self) -> Option<f64> {
        Some(self.scale.value)
    }

    fn concern(&self) -> Option<String> {
        let nothing = self.bettors.iter().all(|bettor| bettor.reward <= 0.0);
        if self.scale.steps >= Estimate::PATIENCE && nothing {
            let (steps, scale, larger) = (self.scale.steps, self.scale.value, 100.0 * self.s_init);
            let words = format!(
                "none of its bets has won after {steps} steps, and its scale is {scale:.1e}; try s_init={larger:.0e}"
            );
            return Some(words);
        }
        self.scale.endless("the scale", "a smaller s_init or a warm-up")
    }
}
