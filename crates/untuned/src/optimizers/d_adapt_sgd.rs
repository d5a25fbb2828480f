use super::shared::{self, Estimate};
use super::{
    Around, At, Change, Here, Keep, Measure, Named, Number, Optimizer, Space, check_held, check_square,
    check_sums,
};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// D-Adaptation for SGD: dual averaging whose rate is an estimate `d` of the distance to a solution.
///
/// With `λ = d·lr/‖g_0‖`, where `g_0` is the first gradient:
/// - `r ← r + λ·⟨g, s⟩`, then `s ← s + λ·g`;
/// - `x ← momentum·x + (1 − momentum)·(x_0 − s)`;
/// - `d ← max(d, 2·r/‖s‖)`, growing by at most `growth_rate` in a step.
///
/// Weight decay adds `decay·x` to `g`, but not in `‖g_0‖`, as in the authors' code; there, other than here, the decay of the first
/// group is that of all. A run that begins with zero gradients stands still until the first one that is not, a step of rate 0 changes
/// nothing, and `d` stays where `s` comes back to 0: the authors' code fails in these cases.
///
/// Warm-up and schedule multiply `lr`. The gradient is taken as it is: [`Around::clip`] has no effect.
///
/// Reference: Defazio & Mishchenko, *Learning-rate-free learning by D-Adaptation*, 2023.
///
/// ```
/// # use untuned::{Observation, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let mut sgd = "d-adapt-sgd:d0=0.5".parse::<OptimizerSpec>()?.build(&Setting::new(4))?;
/// let (space, around) = (Plain::new(2), Around::default());
/// let (mut x, gradient, mut sums) = (vec![1.0, 1.0], vec![3.0, -4.0], vec![0.0; 3]);
/// let mut kept = Keep::all(&space, &sgd.keeps(), &x)?;
/// let mut sizes = Vec::new();
/// for t in 0..4 {
///     let at = At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
///     sgd.measure(&at, &mut sums, 0);
///     sizes.push(sgd.step(&Observation::new(t, 7.0, 5.0), &sums[1..], at)?.size);
/// }
/// // ‖s‖ = d0, 2·d0, 3·d0 and r = 0, d0², 3·d0²: 2·r/‖s‖ is 0, then d0, then 2·d0, which the fourth step has.
/// assert!(sizes[..3] == [0.1; 3] && (sizes[3] - 0.2).abs() < 1e-15);
/// assert!((x[0] - (1.0 - 0.5 * 3.0)).abs() < 1e-15 && (x[1] - (1.0 + 0.5 * 4.0)).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DAdaptSgd {
    /// Multiplies the estimate.
    pub lr: f64,
    /// How much of `x` is kept in a step.
    pub momentum: f64,
    /// The first estimate.
    pub d0: f64,
    /// By how much the estimate may grow in a step, where there is a limit.
    pub growth_rate: Option<f64>,
    /// `d`.
    estimate: Estimate,
    /// `r`.
    numerator: f64,
    /// `‖g_0‖`, from the first gradient on that is not 0.
    first_norm: Option<f64>,
}

impl Default for DAdaptSgd {
    fn default() -> DAdaptSgd {
        DAdaptSgd {
            lr: 1.0,
            momentum: 0.0,
            d0: 1e-6,
            growth_rate: None,
            estimate: Estimate::new(1e-6),
            numerator: 0.0,
            first_norm: None,
        }
    }
}

impl Named for DAdaptSgd {
    const ENTRY: Entry = Entry {
        name: "d-adapt-sgd",
        aliases: &[],
        formula: "x_0 − s, s the sum of d·lr·g/‖g_0‖, d the largest 2·r/‖s‖ so far, r the sum of ⟨d·lr·g/‖g_0‖, s⟩",
        parameters: &[
            shared::LR,
            Parameter {
                name: "momentum",
                kind: Kind::Fraction,
                default: Fallback::Number(0.0),
                meaning: "how much of x is kept in a step",
            },
            shared::D0,
            shared::GROWTH_RATE,
        ],
        reference: "Defazio & Mishchenko 2023",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<DAdaptSgd, SpecError> {
        let d0 = spec.number("d0");
        Ok(DAdaptSgd {
            lr: spec.number("lr"),
            momentum: spec.number("momentum"),
            d0,
            growth_rate: shared::growth_rate(spec),
            estimate: Estimate::new(d0),
            ..DAdaptSgd::default()
        })
    }
}

impl DAdaptSgd {
    /// `λ`.
    fn rate(&self, around: &Around, first_norm: f64) -> f64 {
        self.estimate.value * self.lr * around.rate / first_norm
    }
}

/// `‖g‖²`, and with the decay in `g`, `⟨g, s⟩` and `‖s‖²` with the new `s`.
struct Sums;

impl Measure<1, 3, 3> for Sums {
    #[inline(always)]
    fn each<N: Number>([rate]: [N; 1], Here { decay, .. }: Here<N>, [x, g, s]: [N; 3]) -> [N; 3] {
        let coupled = g + decay * x;
        let new = s + rate * coupled;
        [g * g, coupled * s, new * new]
    }
}

/// `s ← s + rate·g` and `x ← keep·x + (1 − keep)·(x_0 − s)`.
struct Adapt;

impl Change<2, 2, 2> for Adapt {
    #[inline(always)]
    fn each<N: Number>(
        [rate, keep]: [N; 2],
        Here { decay, .. }: Here<N>,
        [x, s]: [N; 2],
        [g, start]: [N; 2],
    ) -> [N; 2] {
        let s = s + rate * (g + decay * x);
        [keep * x + (N::of(1.0) - keep) * (start - s), s]
    }
}

/// State: two vectors. A step is two passes: the first reads 3 vectors, the second reads 4 and writes 2.
impl Optimizer for DAdaptSgd {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("d_adapt_s"), Keep::parameters("d_adapt_x0")]
    }

    fn measures(&self) -> usize {
        2
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        // At the first gradient its norm is not known yet, nor needed: s is 0, and with it r and the estimate from it.
        let rate = self.first_norm.map_or(1.0, |norm| self.rate(at.around, norm));
        at.space.measure(
            Sums,
            [rate],
            at.around.weight_decay,
            [&*at.x, at.gradient, &at.kept[0]],
            sums,
            first,
        );
        true
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        check_square::<S>(seen, 1.0)?;
        let first_norm = self.first_norm.unwrap_or(seen.grad_norm);
        if first_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let rate = self.rate(at.around, first_norm);
        let step = Step::new(rate, seen)?;
        let &[product, square] = sums else { panic!("D-Adaptation measures two sums, not {}", sums.len()) };
        check_sums(seen, &["⟨g, s⟩", "‖s‖²"], sums)?;
        check_held::<S>(seen, &[rate, rate * seen.grad_norm])?;
        if rate == 0.0 {
            return Ok(step);
        }
        let norm = square.sqrt();
        let old = self.estimate.value;
        let numerator = self.numerator + rate * product;
        let found = if norm > 0.0 { 2.0 * numerator / norm } else { old };
        check_sums(seen, &["the estimate of the distance"], &[found])?;
        let limit = old * self.growth_rate.unwrap_or(f64::INFINITY);

        self.first_norm = Some(first_norm);
        self.numerator = numerator;
        self.estimate = self.estimate.next(old.max(found.min(limit)));
        let [s, start] = at.kept else { panic!("D-Adaptation keeps two vectors, not {}", at.kept.len()) };
        at.space.change(
            Adapt,
            [rate, self.momentum],
            at.around.weight_decay,
            [at.x, s],
            [at.gradient, start],
        );
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
        self.estimate.concern(self.d0, &format!("d0={:.0e}", 100.0 * self.d0))
    }
}
