use super::shared::{self, Adapt, BiasCorrection, Estimate};
use super::{
    Around, At, Here, Keep, Measure, Named, Number, Optimizer, Space, check_eps, check_held, check_square,
    check_sums,
};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// D-Adaptation for Adam: the rate is an estimate `d` of the distance to a solution, `x ← x − m/(√v + eps)`.
///
/// With `δ = d·lr` and `q = √β2`, in this order:
/// - `r ← q·r + (1 − q)·δ·⟨g, s/(√v + eps)⟩`;
/// - `m ← β1·m + (1 − β1)·δ·g`, `v ← β2·v + (1 − β2)·g²`, `s ← q·s + (1 − q)·δ·g`;
/// - `d ← max(d, r/((1 − q)·‖s‖₁))`, growing by at most `growth_rate` in a step.
///
/// `bias_correction=yes` multiplies `δ` with `√(1 − β2ᵗ)/(1 − β1ᵗ)`; the authors' code leaves it out unless asked, optax always has
/// it. Weight decay adds `decay·x` to `g` (`decouple=no`, the authors' default) or subtracts `δ·decay·x` from `x` (`decouple=yes`, as
/// in optax). A step of rate 0 changes nothing, and one that ends with `s = 0` no more than `m`, `v` and `s`.
///
/// Warm-up and schedule multiply `lr`. The gradient is taken as it is: [`Around::clip`] has no effect.
///
/// Reference: Defazio & Mishchenko, *Learning-rate-free learning by D-Adaptation*, 2023.
///
/// ```
/// # use untuned::{Observation, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let spec: OptimizerSpec = "d-adapt-adam:lr=6,beta1=0.5,beta2=0.25,eps=1e-9,d0=0.5".parse()?;
/// let mut adam = spec.build(&Setting::new(3))?;
/// let (space, around) = (Plain::new(2), Around::default());
/// let (mut x, gradient, mut sums) = (vec![1.0, 1.0], vec![3.0, -4.0], vec![0.0; 3]);
/// let mut kept = Keep::all(&space, &adam.keeps(), &x)?;
/// let mut sizes = Vec::new();
/// for t in 0..3 {
///     let at = At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
///     adam.measure(&at, &mut sums, 0);
///     sizes.push(adam.step(&Observation::new(t, 7.0, 5.0), &sums[1..], at)?.size);
///     if t == 0 {
///         // m = 0.5·3·g over √v = √0.75·|g|.
///         assert!((x[0] - (1.0 - 1.5 / 0.75f64.sqrt())).abs() < 1e-8);
///     }
/// }
/// // s = 1.5·g and √v = √0.75·|g| make r = 0.5·3·1.5·7/√0.75; with s = 2.25·g after it, d = r/(0.5·2.25·7) = 2/√0.75.
/// assert!(sizes[..2] == [3.0, 3.0] && (sizes[2] - 12.0 / 0.75f64.sqrt()).abs() < 1e-7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DAdaptAdam {
    /// Multiplies the estimate.
    pub lr: f64,
    /// `β1`, of the mean of the gradient.
    pub beta1: f64,
    /// `β2`, of the mean of its square.
    pub beta2: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
    /// Whether weight decay is apart from the means.
    pub decouple: bool,
    /// Whether the rate is corrected for means that begin at 0.
    pub bias_correction: bool,
    /// The first estimate.
    pub d0: f64,
    /// By how much the estimate may grow in a step, where there is a limit.
    pub growth_rate: Option<f64>,
    /// `d`.
    estimate: Estimate,
    /// `r`.
    numerator: f64,
    correction: BiasCorrection,
}

impl Default for DAdaptAdam {
    fn default() -> DAdaptAdam {
        DAdaptAdam {
            lr: 1.0,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            decouple: false,
            bias_correction: false,
            d0: 1e-6,
            growth_rate: None,
            estimate: Estimate::new(1e-6),
            numerator: 0.0,
            correction: BiasCorrection::START,
        }
    }
}

impl Named for DAdaptAdam {
    const ENTRY: Entry = Entry {
        name: "d-adapt-adam",
        aliases: &[],
        formula: "Adam with the rate lr·d, d the largest r/‖s‖₁ so far, r and s means of ⟨g, s/(√v + eps)⟩ and g with weights \
            lr·d·√beta2^age",
        parameters: &[
            shared::LR,
            shared::BETA1,
            shared::BETA2,
            shared::EPS,
            Parameter {
                name: "decouple",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "weight decay apart from the means (AdamW, optax), or added to g",
            },
            shared::BIAS_CORRECTION,
            shared::D0,
            shared::GROWTH_RATE,
        ],
        reference: "Defazio & Mishchenko 2023",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<DAdaptAdam, SpecError> {
        let (eps, d0) = (spec.number("eps"), spec.number("d0"));
        check_eps(spec, "eps")?;
        Ok(DAdaptAdam {
            lr: spec.number("lr"),
            beta1: spec.number("beta1"),
            beta2: spec.number("beta2"),
            eps,
            decouple: shared::yes(spec, "decouple"),
            bias_correction: shared::yes(spec, "bias_correction"),
            d0,
            growth_rate: shared::growth_rate(spec),
            estimate: Estimate::new(d0),
            ..DAdaptAdam::default()
        })
    }
}

impl DAdaptAdam {
    /// `δ`.
    fn rate(&self, around: &Around) -> f64 {
        let correction = self.correction.next(self.beta1, self.beta2);
        let corrected = if self.bias_correction { correction.rate() } else { 1.0 };
        self.estimate.value * self.lr * around.rate * corrected
    }

    /// The weight decay that is added to the gradient.
    fn coupled(&self, around: &Around) -> f64 {
        if self.decouple { 0.0 } else { around.weight_decay }
    }
}

/// `‖g‖²`, and with the decay in `g`, `⟨g, s/(√v + eps)⟩` with the old `s` and `v`, and `‖s‖₁` with the new `s`.
struct Sums;

impl Measure<3, 4, 3> for Sums {
    #[inline(always)]
    fn each<N: Number>(
        [old_s, new_s, eps]: [N; 3],
        Here { decay, .. }: Here<N>,
        [x, g, v, s]: [N; 4],
    ) -> [N; 3] {
        let coupled = g + decay * x;
        [g * g, coupled * s / (v.sqrt() + eps), (old_s * s + new_s * coupled).abs()]
    }
}

/// State: three vectors. A step is two passes: the first reads 4 vectors, the second reads 5 and writes 4.
impl Optimizer for DAdaptAdam {
    fn keeps(&self) -> Vec<Keep> {
        vec![Keep::zeros("d_adapt_m"), Keep::zeros("d_adapt_v"), Keep::zeros("d_adapt_s")]
    }

    fn measures(&self) -> usize {
        2
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let root = self.beta2.sqrt();
        let scalars = [root, (1.0 - root) * self.rate(at.around), self.eps];
        at.space.measure(
            Sums,
            scalars,
            self.coupled(at.around),
            [&*at.x, at.gradient, &at.kept[1], &at.kept[2]],
            sums,
            first,
        );
        true
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        check_square::<S>(seen, 1.0)?;
        let rate = self.rate(at.around);
        let step = Step::new(rate, seen)?;
        let &[product, norm] = sums else { panic!("D-Adaptation measures two sums, not {}", sums.len()) };
        check_sums(seen, &["⟨g, s/√v⟩", "‖s‖₁"], sums)?;
        check_held::<S>(seen, &[rate, rate * seen.grad_norm])?;
        if rate == 0.0 {
            return Ok(step);
        }
        let (old, root) = (self.estimate.value, self.beta2.sqrt());
        let step = if norm > 0.0 {
            let numerator = root * self.numerator + (1.0 - root) * rate * product;
            let found = numerator / ((1.0 - root) * norm);
            check_sums(seen, &["the estimate of the distance"], &[found])?;
            let limit = old * self.growth_rate.unwrap_or(f64::INFINITY);
            self.numerator = numerator;
            self.estimate = self.estimate.next(old.max(found.min(limit)));
            self.correction = self.correction.next(self.beta1, self.beta2);
            step
        } else {
            shared::standing(seen)
        };
        // The rate is in `m` already.
        let moves = if norm > 0.0 { 1.0 } else { 0.0 };
        let (couple, shrink) = if self.decouple { (0.0, step.size) } else { (1.0, 0.0) };
        let scalars = [
            couple,
            shrink,
            self.beta1,
            (1.0 - self.beta1) * rate,
            self.beta2,
            1.0 - self.beta2,
            root,
            (1.0 - root) * rate,
            moves,
            self.eps,
        ];
        let [m, v, s] = at.kept else { panic!("D-Adaptation keeps three vectors, not {}", at.kept.len()) };
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
        self.estimate.concern(self.d0, &format!("d0={:.0e}", 100.0 * self.d0))
    }
}
