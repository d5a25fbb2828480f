//! Mechanic has its two bases inside its own formulas, and is no wrapper of any method. A wrapper would need a vector for the base's
//! step and two passes more: one that writes it and one that reads it. To fuse a base's own formula into Mechanic's, arrays of `S + 3`
//! scalars and `R + 1` vectors would have to be written for any `S` and `R`, which Rust cannot express; and the base's step taken as
//! `x' − x` would be rounded at the size of `x`.

use super::shared::{BiasCorrection, Estimate, moments};
use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, check_square, check_sums, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps, refuse_others};
use crate::rule::{Needs, Step};
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
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
    /// The base is `adamw`, with decoupled weight decay, or `sgd-momentum`: `b ← momentum·b + g + decay·x`, `u = −lr·b`.
    /// Warm-up and schedule multiply its `lr`. The reported rate is `S·lr`. The gradient is taken as it is: [`StepOptions::clip`](crate::StepOptions::clip) has no effect.
    ///
    /// Reference: Cutkosky, Defazio & Mehta, *Mechanic: a learning rate tuner*, 2023.
    ///
    /// ```
    /// use untuned::optimizers::{Mechanic, MechanicBase};
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let base = MechanicBase::SgdMomentum;
    /// let mechanic = Mechanic { base, momentum: 0.0, s_init: Some(0.5), s_decay: 0.0, betas: 1, eps: 1e-12, ..Default::default() };
    /// let mut session = Session::new(mechanic.build(&RunInfo::new(2))?, DenseF64::new(1))?;
    /// let mut x = vec![8.0];
    /// for rate in [450_000.0, 450_000.5] {
    ///     // First h = 0 and s = 0.5·0.9e-6/1e-12. Then Δ = −4 and h = −16: m = 16, v = 256, r = 16·s, and s = (8 + 16·s)/16.
    ///     assert!((session.advance(7.0, &mut x, &vec![4.0])?.rate / rate - 1.0).abs() < 1e-9);
    /// }
    /// assert!((x[0] / (8.0 - 8.0 * 450_000.5) - 1.0).abs() < 1e-9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Mechanic: "mechanic" {
        /// whose steps are scaled
        base: MechanicBase = AdamW;
        /// the base's learning rate; leave it at 1
        lr: f64 = 1.0, Positive;
        /// the weight of the old sum of g in base=sgd-momentum
        momentum: f64 = 0.9, Fraction;
        /// β1, the weight of the old mean of g
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.999, Fraction;
        /// added to √v̂ of base=adamw
        base_eps: f64 = 1e-8, Positive;
        /// which of the authors' two implementations
        form: MechanicForm = Torch;
        /// initial wealth; about the first scale
        s_init: Option<f64> = "1e-8, with form=optax 1e-6", Positive;
        /// strength of the pull towards 0 in h
        s_decay: f64 = 0.01, NonNegative;
        /// the number of scales that are summed, with β = 0.9, 0.99, …
        betas: u64 = 6, Whole(1, 15);
        /// added to √v of a scale, to ‖x‖ and to S
        eps: f64 = 1e-8, Positive;
        /// store Δ as a vector; no computes it from x − x_0
        store_delta: bool = false;
    }
    state: MechanicState,
    formula: "x_0 + S·Δ, Δ the sum of the base's steps, S the sum of scales that bet on the sign of ⟨Δ, g⟩",
    reference: "Cutkosky, Defazio & Mehta 2023",
}

words! {
    /// The optimizers whose steps [`Mechanic`] scales.
    pub enum MechanicBase {
        /// AdamW, with decoupled weight decay.
        AdamW = "adamw",
        /// SGD with momentum.
        SgdMomentum = "sgd-momentum",
    }
}

words! {
    /// The authors' two implementations of [`Mechanic`].
    pub enum MechanicForm {
        /// That for PyTorch.
        Torch = "torch",
        /// That in optax.
        Optax = "optax",
    }
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MechanicState {
    bettors: Vec<Bettor>,
    /// `S`.
    scale: Estimate,
    correction: BiasCorrection,
}

/// One of the scales whose sum is taken, which bets on the sign of `h`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bettor {
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

    /// What it is after a bet that came out as `h`, given its part of the initial wealth.
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

impl Mechanic {
    fn is_optax(&self) -> bool {
        self.form == MechanicForm::Optax
    }

    fn first_wealth(&self) -> f64 {
        self.s_init.unwrap_or(if self.is_optax() { 1e-6 } else { 1e-8 })
    }
}

impl Start for Mechanic {
    fn start(&self, _: &RunInfo) -> Result<MechanicState, SpecError> {
        match self.base {
            MechanicBase::AdamW => refuse_others(self, &["momentum"], "base=sgd-momentum")?,
            MechanicBase::SgdMomentum => refuse_others(self, &["beta1", "beta2", "base_eps"], "base=adamw")?,
        }
        check_eps::<Mechanic>("base_eps", self.base_eps)?;
        let bettor = |place: u64| Bettor::new(place as i32, self.is_optax(), self.first_wealth());
        let bettors: Vec<_> = (1..=self.betas).map(bettor).collect();
        let scale = Estimate::new(bettors.iter().map(|bettor| bettor.scale).sum());
        Ok(MechanicState { bettors, scale, correction: BiasCorrection::START })
    }
}

/// The base's step and its new means. The decay is the rate's part of it.
#[inline(always)]
fn adamw<N: Number>(
    [old_m, new_m, old_v, new_v, size, root, eps]: [N; 7],
    decay: N,
    [x, m, v, g]: [N; 4],
) -> [N; 3] {
    let [m, v] = moments([old_m, new_m, old_v, new_v], [m, v], g);
    [-(decay * x + size * m / (root * v.sqrt() + eps)), m, v]
}

/// The base's step and its new sum.
#[inline(always)]
fn sgd<N: Number>([momentum, rate]: [N; 2], decay: N, [x, b, g]: [N; 3]) -> [N; 2] {
    let b = momentum * b + g + decay * x;
    [-(rate * b), b]
}

/// `g²`, `Δ·g`, `Δ·p` and `p²`, where `p` is `x` in optax and `x + u` otherwise, `u` being the base's step.
#[inline(always)]
fn terms<N: Number>(optax: N, x: N, u: N, g: N, delta: N) -> [N; 4] {
    let p = optax.above(N::of(0.5), x, x + u);
    [g * g, delta * g, delta * p, p * p]
}

/// `Δ`: what is stored, or `(x − x_0)/(S + eps)`.
#[inline(always)]
fn delta<N: Number>(stored: N, inverse: N, x: N, x0_or_delta: N) -> N {
    stored.above(N::of(0.5), x0_or_delta, (x - x0_or_delta) * inverse)
}

/// The sums with the base AdamW.
struct AdamSums;

impl Measure<10, 5, 4> for AdamSums {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>(
        [optax, stored, inverse, old_m, new_m, old_v, new_v, size, root, eps]: [N; 10],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, m, v, g, x0_or_delta]: [N; 5],
    ) -> [N; 4] {
        let [u, _, _] = adamw([old_m, new_m, old_v, new_v, size, root, eps], decay, [x, m, v, g]);
        terms(optax, x, u, g, delta(stored, inverse, x, x0_or_delta))
    }
}

/// The sums with the base SGD.
struct SgdSums;

impl Measure<5, 4, 4> for SgdSums {
    const HAS_NORM: bool = true;

    #[inline(always)]
    fn each<N: Number>(
        [optax, stored, inverse, momentum, rate]: [N; 5],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, b, g, x0_or_delta]: [N; 4],
    ) -> [N; 4] {
        let [u, _] = sgd([momentum, rate], decay, [x, b, g]);
        terms(optax, x, u, g, delta(stored, inverse, x, x0_or_delta))
    }
}

/// The step with the base AdamW.
struct AdamStep;

impl Change<9, 3, 2> for AdamStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, inverse, old_m, new_m, old_v, new_v, size, root, eps]: [N; 9],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, m, v]: [N; 3],
        [g, x0]: [N; 2],
    ) -> [N; 3] {
        let [u, m, v] = adamw([old_m, new_m, old_v, new_v, size, root, eps], decay, [x, m, v, g]);
        [x0 + scale * ((x - x0) * inverse + u), m, v]
    }
}

/// The step with the base AdamW where `Δ` is stored.
struct AdamStoredStep;

impl Change<8, 4, 2> for AdamStoredStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, old_m, new_m, old_v, new_v, size, root, eps]: [N; 8],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, m, v, delta]: [N; 4],
        [g, x0]: [N; 2],
    ) -> [N; 4] {
        let [u, m, v] = adamw([old_m, new_m, old_v, new_v, size, root, eps], decay, [x, m, v, g]);
        let delta = delta + u;
        [x0 + scale * delta, m, v, delta]
    }
}

/// The step with the base SGD.
struct SgdStep;

impl Change<4, 2, 2> for SgdStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, inverse, momentum, rate]: [N; 4],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, b]: [N; 2],
        [g, x0]: [N; 2],
    ) -> [N; 2] {
        let [u, b] = sgd([momentum, rate], decay, [x, b, g]);
        [x0 + scale * ((x - x0) * inverse + u), b]
    }
}

/// The step with the base SGD where `Δ` is stored.
struct SgdStoredStep;

impl Change<3, 3, 2> for SgdStoredStep {
    #[inline(always)]
    fn each<N: Number>(
        [scale, momentum, rate]: [N; 3],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, b, delta]: [N; 3],
        [g, x0]: [N; 2],
    ) -> [N; 3] {
        let [u, b] = sgd([momentum, rate], decay, [x, b, g]);
        let delta = delta + u;
        [x0 + scale * delta, b, delta]
    }
}

/// State: `x_0`, two vectors of the base AdamW or one of SGD, and one more where `Δ` is stored. A step is two passes. With AdamW the
/// first reads 5 vectors, the second reads 5 and writes 3; with SGD it is 4, 4 and 2. Where `Δ` is stored the first reads it and not
/// `x_0`, and the second reads and writes one more.
impl Optimizer for Running<Mechanic> {
    fn name(&self) -> &str {
        Mechanic::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { x0: true, ..Needs::NOTHING }
    }

    fn state(&self) -> Vec<StateVector> {
        let base: &[&str] = match self.base {
            MechanicBase::AdamW => &["m", "v"],
            MechanicBase::SgdMomentum => &["momentum"],
        };
        let stored = self.store_delta.then_some("delta");
        base.iter().copied().chain(stored).map(StateVector::zeros).collect()
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let x0 = vectors.x0();
        let Vectors { x, gradient, state, .. } = vectors;
        let (state, stored) = state.split_at_mut(state.len() - usize::from(self.store_delta));
        let options = context.options;
        let MechanicState { bettors, scale: before, correction } = &self.state;
        let (before, rate) = (*before, self.lr * options.rate);
        let inverse = (before.value + self.eps).recip();
        let [optax, stores] = [self.is_optax(), self.store_delta].map(|flag| f64::from(u8::from(flag)));
        let next = correction.next(self.beta1, self.beta2);
        let (size, root) = (rate / next.mean(), next.root().recip());
        let (beta1, beta2) = (self.beta1, self.beta2);
        let [old_m, new_m, old_v, new_v, eps] = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, self.base_eps];
        // AdamW's decay has the rate in it; SGD's is added to the gradient.
        let (decay, longest) = match self.base {
            MechanicBase::AdamW => (rate * options.weight_decay, size),
            MechanicBase::SgdMomentum => (options.weight_decay, rate),
        };

        let x0_or_delta = stored.first().unwrap_or(x0);
        let (seen, [_, product, along, square]) = match (self.base, &*state) {
            (MechanicBase::AdamW, [m, v]) => {
                let scalars = [optax, stores, inverse, old_m, new_m, old_v, new_v, size, root, eps];
                context.observe_with(AdamSums, scalars, decay, [&*x, m, v, gradient, x0_or_delta])?
            }
            (_, [b, ..]) => {
                let scalars = [optax, stores, inverse, self.momentum, rate];
                context.observe_with(SgdSums, scalars, decay, [&*x, b, gradient, x0_or_delta])?
            }
            _ => unreachable!("a base keeps a vector"),
        };
        check_square::<S>(&seen, 1.0)?;
        Step::new(rate, &seen)?;
        let pull = self.s_decay * before.value * seen.grad_norm / (square.sqrt() + self.eps);
        let h = product + pull * along;
        check_sums(&seen, &["⟨Δ, g⟩", "⟨Δ, p⟩", "‖p‖²", "h"], &[product, along, square, h])?;
        let part = self.first_wealth() / bettors.len() as f64;
        let bet = |bettor: &Bettor| bettor.next(h, self.is_optax(), part, self.eps);
        let bettors: Vec<_> = bettors.iter().map(bet).collect();
        let scale = bettors.iter().map(|bettor| bettor.scale).sum::<f64>();
        let step = Step::new(Step::new(scale, &seen)?.size * rate, &seen)?;
        let longest = match self.base {
            MechanicBase::AdamW => longest,
            MechanicBase::SgdMomentum => longest * seen.grad_norm,
        };
        check_held::<S>(&seen, &[rate, longest, scale, scale * longest])?;

        self.state = MechanicState { bettors, scale: before.next(scale), correction: next };
        let read = [gradient, x0];
        match (self.base, stored) {
            (MechanicBase::AdamW, []) => {
                let [m, v] = named(state);
                let scalars = [scale, inverse, old_m, new_m, old_v, new_v, size, root, eps];
                context.change(AdamStep, scalars, decay, [x, m, v], read);
            }
            (MechanicBase::AdamW, [delta, ..]) => {
                let [m, v] = named(state);
                let scalars = [scale, old_m, new_m, old_v, new_v, size, root, eps];
                context.change(AdamStoredStep, scalars, decay, [x, m, v, delta], read);
            }
            (MechanicBase::SgdMomentum, []) => {
                let [b] = named(state);
                context.change(SgdStep, [scale, inverse, self.momentum, rate], decay, [x, b], read);
            }
            (MechanicBase::SgdMomentum, [delta, ..]) => {
                let [b] = named(state);
                context.change(SgdStoredStep, [scale, self.momentum, rate], decay, [x, b, delta], read);
            }
        }
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    /// `S`.
    fn estimate(&self) -> Option<f64> {
        Some(self.state.scale.value)
    }

    fn warning(&self) -> Option<String> {
        let MechanicState { bettors, scale, .. } = &self.state;
        let nothing = bettors.iter().all(|bettor| bettor.reward <= 0.0);
        if scale.steps >= Estimate::PATIENCE && nothing {
            let (steps, scale, larger) = (scale.steps, scale.value, 100.0 * self.first_wealth());
            return Some(format!(
                "none of its bets has won after {steps} steps, and its scale is {scale:.1e}; try s_init={larger:.0e}"
            ));
        }
        scale.endless("the scale", "a smaller s_init or a warm-up")
    }
}
