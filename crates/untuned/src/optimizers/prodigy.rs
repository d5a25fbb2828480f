use super::shared::{self, Adapt, BiasCorrection, Estimate};
use super::{
    Around, At, Here, Keep, Measure, Named, Number, Optimizer, Space, check_held, check_square, check_sums,
};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError, number};
use serde::{Deserialize, Serialize};

/// Prodigy: Adam whose rate is an estimate `d` of the distance to a solution, `x ← x·(1 − δ·decay) − δ·m/(√v + d'·eps)`.
///
/// With `δ = d·lr` and `d'` the estimate after the step:
/// - `m ← β1·m + (1 − β1)·d·g`, `v ← β2·v + (1 − β2)·d²·g²`;
/// - `s ← β3·s + (d/d0)·δ·g` and `r ← β3·r + (d/d0)·δ·⟨g, x_0 − x⟩`;
/// - `d̂ = d_coef·r/‖s‖₁`; the estimate grows to the largest `d̂` so far, by at most `growth_rate` in a step.
///
/// `bias_correction=yes` multiplies `δ` with `√(1 − β2ᵗ)/(1 − β1ᵗ)`; the authors' code leaves it out unless asked, optax always has
/// it. `safeguard_warmup=yes` leaves `lr` out of `s`. `decouple=no` adds `decay·x` to `g` instead. Without `m` (`beta1=0`) the step
/// has `d'·g` in its place, as in the authors' code. A step of rate 0 changes nothing, and one that ends with `s = 0` no more than `m`,
/// `v` and `s`.
///
/// Warm-up and schedule multiply `lr`. The gradient is taken as it is: [`Around::clip`] has no effect. The authors' `slice_p` leaves
/// coordinates out of the estimate to save memory; it is not offered.
///
/// Reference: Mishchenko & Defazio, *Prodigy: an expeditiously adaptive parameter-free learner*, 2024.
///
/// ```
/// # use untuned::{Observation, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let spec: OptimizerSpec = "prodigy:beta2=0.99,beta3=0,d_coef=4,d0=0.5".parse()?;
/// let mut prodigy = spec.build(&Setting::new(3))?;
/// let (space, around) = (Plain::new(2), Around::default());
/// let (mut x, gradient, mut sums) = (vec![1.0, 1.0], vec![3.0, -4.0], vec![0.0; 3]);
/// let mut kept = Keep::all(&space, &prodigy.keeps(), &x)?;
/// let mut sizes = Vec::new();
/// for t in 0..3 {
///     let at = At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
///     prodigy.measure(&at, &mut sums, 0);
///     sizes.push(prodigy.step(&Observation::new(t, 7.0, 5.0), &sums[1..], at)?.size);
///     if t == 0 {
///         // m/√v is 0.1·d·g/(0.1·d·|g|): the first step has length d0 in every coordinate.
///         assert!((x[0] - 0.5).abs() < 1e-6 && (x[1] - 1.5).abs() < 1e-6);
///     }
/// }
/// // The second sees ⟨g, x_0 − x⟩ = 0.5·7 and ‖s‖₁ = 0.5·7, so that d̂ = 4·0.5; the third goes with it.
/// assert!(sizes[..2] == [0.5, 0.5] && (sizes[2] - 2.0).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prodigy {
    /// Multiplies the estimate.
    pub lr: f64,
    /// `β1`, of the mean of the gradient.
    pub beta1: f64,
    /// `β2`, of the mean of its square.
    pub beta2: f64,
    /// `β3`, of the sums behind the estimate.
    pub beta3: f64,
    /// Keeps the denominator from 0, times the estimate.
    pub eps: f64,
    /// Whether weight decay is apart from the means.
    pub decouple: bool,
    /// Whether the rate is corrected for means that begin at 0.
    pub bias_correction: bool,
    /// Whether `lr` is left out of `s`.
    pub safeguard_warmup: bool,
    /// The first estimate.
    pub d0: f64,
    /// Multiplies every new estimate.
    pub d_coef: f64,
    /// By how much the estimate may grow in a step, where there is a limit.
    pub growth_rate: Option<f64>,
    /// `d`.
    estimate: Estimate,
    /// The largest `d̂`, or `d0`.
    largest: f64,
    /// `r`.
    numerator: f64,
    correction: BiasCorrection,
}

impl Default for Prodigy {
    fn default() -> Prodigy {
        Prodigy {
            lr: 1.0,
            beta1: 0.9,
            beta2: 0.999,
            beta3: 0.999f64.sqrt(),
            eps: 1e-8,
            decouple: true,
            bias_correction: false,
            safeguard_warmup: false,
            d0: 1e-6,
            d_coef: 1.0,
            growth_rate: None,
            estimate: Estimate::new(1e-6),
            largest: 1e-6,
            numerator: 0.0,
            correction: BiasCorrection::START,
        }
    }
}

impl Named for Prodigy {
    const ENTRY: Entry = Entry {
        name: "prodigy",
        aliases: &[],
        formula: "Adam with the rate lr·d, d the largest d_coef·r/‖s‖₁ so far, r and s sums of ⟨g, x_0 − x⟩ and g with weights \
            d²·beta3^age",
        parameters: &[
            shared::LR,
            shared::BETA1,
            shared::BETA2,
            Parameter {
                name: "beta3",
                kind: Kind::Fraction,
                default: Fallback::Derived("√beta2"),
                meaning: "β3, how much of the sums behind the estimate is kept in a step",
            },
            shared::EPS,
            Parameter {
                name: "decouple",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("yes"),
                meaning: "weight decay apart from the means (AdamW), or added to g",
            },
            shared::BIAS_CORRECTION,
            Parameter {
                name: "safeguard_warmup",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "leave the rate out of s, for runs with a warm-up",
            },
            shared::D0,
            Parameter {
                name: "d_coef",
                kind: Kind::Positive,
                default: Fallback::Number(1.0),
                meaning: "multiplies every new estimate",
            },
            shared::GROWTH_RATE,
        ],
        reference: "Mishchenko & Defazio 2024",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<Prodigy, SpecError> {
        let (beta2, eps, d0) = (spec.number("beta2"), spec.number("eps"), spec.number("d0"));
        let smallest = f64::from(f32::MIN_POSITIVE);
        if d0 * eps < smallest {
            let product = number(d0 * eps);
            let why = format!(
                "d0·eps = {product} is 0 to a network's 32-bit floats; choose them so that it is at least {smallest:.1e}"
            );
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        Ok(Prodigy {
            lr: spec.number("lr"),
            beta1: spec.number("beta1"),
            beta2,
            beta3: spec.optional("beta3").unwrap_or(beta2.sqrt()),
            eps,
            decouple: shared::yes(spec, "decouple"),
            bias_correction: shared::yes(spec, "bias_correction"),
            safeguard_warmup: shared::yes(spec, "safeguard_warmup"),
            d0,
            d_coef: spec.number("d_coef"),
            growth_rate: shared::growth_rate(spec),
            estimate: Estimate::new(d0),
            largest: d0,
            ..Prodigy::default()
        })
    }
}

impl Prodigy {
    /// `δ`, and what `s` gets of the gradient.
    fn rates(&self, around: &Around) -> (f64, f64) {
        let d = self.estimate.value;
        let correction = self.correction.next(self.beta1, self.beta2);
        let corrected = if self.bias_correction { correction.rate() } else { 1.0 };
        let rate = d * self.lr * around.rate * corrected;
        (rate, d / self.d0 * if self.safeguard_warmup { d } else { rate })
    }

    /// The weight decay that is added to the gradient.
    fn coupled(&self, around: &Around) -> f64 {
        if self.decouple { 0.0 } else { around.weight_decay }
    }
}

/// `‖g‖²`, and with the decay in `g`, `⟨g, x_0 − x⟩` and `‖s‖₁` with the new `s`.
struct Sums;

impl Measure<2, 4, 3> for Sums {
    #[inline(always)]
    fn each<N: Number>(
        [old_s, new_s]: [N; 2],
        Here { decay, .. }: Here<N>,
        [x, g, s, start]: [N; 4],
    ) -> [N; 3] {
        let coupled = g + decay * x;
        [g * g, coupled * (start - x), (old_s * s + new_s * coupled).abs()]
    }
}

/// State: four vectors. A step is two passes: the first reads 4 vectors, the second reads 5 and writes 4.
impl Optimizer for Prodigy {
    fn keeps(&self) -> Vec<Keep> {
        vec![
            Keep::zeros("prodigy_m"),
            Keep::zeros("prodigy_v"),
            Keep::zeros("prodigy_s"),
            Keep::parameters("prodigy_x0"),
        ]
    }

    fn measures(&self) -> usize {
        2
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let scalars = [self.beta3, self.rates(at.around).1];
        at.space.measure(
            Sums,
            scalars,
            self.coupled(at.around),
            [&*at.x, at.gradient, &at.kept[2], &at.kept[3]],
            sums,
            first,
        );
        true
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        check_square::<S>(seen, 1.0)?;
        let (rate, new_s) = self.rates(at.around);
        let step = Step::new(rate, seen)?;
        let &[product, norm] = sums else { panic!("Prodigy measures two sums, not {}", sums.len()) };
        check_sums(seen, &["⟨g, x_0 − x⟩", "‖s‖₁"], sums)?;
        // What is kept has the estimate in it: `m` once, `v` twice.
        let longest = self.estimate.value * seen.grad_norm;
        check_held::<S>(seen, &[rate, rate * longest, longest * longest, new_s, new_s * seen.grad_norm])?;
        if rate == 0.0 {
            return Ok(step);
        }
        let old = self.estimate.value;
        let step = if norm > 0.0 {
            let numerator = self.beta3 * self.numerator + old / self.d0 * rate * product;
            let found = self.d_coef * numerator / norm;
            check_sums(seen, &["the estimate of the distance"], &[found])?;
            let grown = if old == self.d0 { old.max(found) } else { old };
            self.numerator = numerator;
            self.largest = self.largest.max(found);
            let limit = grown * self.growth_rate.unwrap_or(f64::INFINITY);
            self.estimate = self.estimate.next(self.largest.min(limit));
            self.correction = self.correction.next(self.beta1, self.beta2);
            step
        } else {
            shared::standing(seen)
        };
        let d = self.estimate.value;
        let size = if self.beta1 > 0.0 { step.size } else { step.size * d / old };
        let (couple, shrink) = if self.decouple { (0.0, step.size) } else { (1.0, 0.0) };
        let scalars = [
            couple,
            shrink,
            self.beta1,
            old * (1.0 - self.beta1),
            self.beta2,
            old * old * (1.0 - self.beta2),
            self.beta3,
            new_s,
            size,
            d * self.eps,
        ];
        let [m, v, s, _] = at.kept else { panic!("Prodigy keeps four vectors, not {}", at.kept.len()) };
        at.space.change(Adapt, scalars, at.around.weight_decay, [at.x, m, v, s], [at.gradient]);
        Ok(step)
    }

    fn clips(&self) -> bool {
        false
    }

    /// `d`.
    fn estimate(&self) -> Option<f64> {
        Some(self.estimate.value)
    }

    fn concern(&self) -> Option<String> {
        self.estimate.concern(self.d0, &format!("d0={:.0e} or d_coef=2", 100.0 * self.d0))
    }
}
