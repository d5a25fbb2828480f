//! What several optimizers have in common: Adam's means and their correction, a pass, and an estimate that grows.

use serde::{Deserialize, Serialize};

use crate::formula::{Change, Number, TensorInfo};
use crate::rule::{Observation, Step, StepKind};
use crate::spec::number;

/// A step that leaves the parameters where they are.
pub(super) fn standing(seen: &Observation) -> Step {
    let kind = if seen.grad_norm == 0.0 { StepKind::Stationary } else { StepKind::Regular };
    Step { kind, ..Step::STATIONARY }
}

/// The correction for means that start at 0. The powers are products, because a library's power differs from machine to machine in
/// the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BiasCorrection {
    /// `β1ᵗ` and `β2ᵗ` of the steps made.
    powers: [f64; 2],
}

impl BiasCorrection {
    /// Before the first step.
    pub(super) const START: BiasCorrection = BiasCorrection { powers: [1.0, 1.0] };

    /// What holds after one step more.
    pub(super) fn next(self, beta1: f64, beta2: f64) -> BiasCorrection {
        BiasCorrection { powers: [self.powers[0] * beta1, self.powers[1] * beta2] }
    }

    /// `1 − β1ᵗ`.
    pub(super) fn mean(self) -> f64 {
        1.0 - self.powers[0]
    }

    /// `√(1 − β2ᵗ)`.
    pub(super) fn root(self) -> f64 {
        (1.0 - self.powers[1]).sqrt()
    }

    /// What multiplies a rate.
    pub(super) fn rate(self) -> f64 {
        self.root() / self.mean()
    }
}

/// Adam's next `m` and `v`, the means of `g` and `g²`.
#[inline(always)]
pub(super) fn moments<N: Number>([old_m, new_m, old_v, new_v]: [N; 4], [m, v]: [N; 2], g: N) -> [N; 2] {
    [old_m * m + new_m * g, old_v * v + new_v * g * g]
}

/// Adam with a third mean: the new `x`, `m`, `v` and `s`; the decay is added to `g` (`couple = 1`) or shrinks `x` by `shrink` times it.
pub(super) struct Adapt;

impl Change<10, 4, 1> for Adapt {
    #[inline(always)]
    fn each<N: Number>(
        [couple, shrink, old_m, new_m, old_v, new_v, old_s, new_s, size, eps]: [N; 10],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, m, v, s]: [N; 4],
        [g]: [N; 1],
    ) -> [N; 4] {
        let g = g + couple * decay * x;
        let [m, v] = moments([old_m, new_m, old_v, new_v], [m, v], g);
        [x * (N::of(1.0) - shrink * decay) - size * m / (v.sqrt() + eps), m, v, old_s * s + new_s * g]
    }
}

/// A number that a method raises until it fits, and how it grew.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub(super) value: f64,
    /// The steps made.
    pub(super) steps: u64,
    /// What it was before it grew at every step since.
    before: f64,
    /// How many steps ago that was.
    growing: u64,
}

impl Estimate {
    /// After this many steps an estimate that has never moved is worth a warning: the published runs leave the start within tens.
    pub(super) const PATIENCE: u64 = 100;
    /// Far from a solution the loss looks like a line, on which D-Adaptation grows √3 times a step and Prodigy more; close to it
    /// an estimate grows little or not at all.
    const GROWING: f64 = 1.5;
    /// A growth by this factor without a break leads from the usual start of 1e-6 beyond any distance that a network goes.
    const ENDLESS: f64 = 1e10;

    pub(super) fn new(value: f64) -> Estimate {
        Estimate { value, steps: 0, before: value, growing: 0 }
    }

    /// What holds after a step that ends with this value.
    pub(super) fn next(self, value: f64) -> Estimate {
        let steps = self.steps + 1;
        if self.value > 0.0 && value > Estimate::GROWING * self.value {
            Estimate { value, steps, growing: self.growing + 1, ..self }
        } else {
            Estimate { value, steps, before: value, growing: 0 }
        }
    }

    /// A warning of an estimate of the distance that has not left its start, or grows without end.
    pub(super) fn warning(&self, start: f64, remedy: &str) -> Option<String> {
        if self.steps >= Estimate::PATIENCE && self.value == start {
            let (start, steps) = (number(start), self.steps);
            return Some(format!(
                "the estimate of the distance is still d0 = {start} after {steps} steps; try {remedy}"
            ));
        }
        self.endless("the estimate of the distance", "growth_rate=1.02, a smaller lr or a warm-up")
    }

    /// A warning of an estimate that grows without end.
    pub(super) fn endless(&self, name: &str, remedy: &str) -> Option<String> {
        let Estimate { value, before, growing, .. } = self;
        (*value > Estimate::ENDLESS * before).then(|| {
            format!(
                "{name} grows without end: from {before:.1e} to {value:.1e} in {growing} steps without a break; try {remedy}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_estimate_is_named_after_a_hundred_steps() {
        let mut estimate = Estimate::new(1e-6);
        for _ in 0..99 {
            estimate = estimate.next(1e-6);
        }
        assert_eq!(estimate.warning(1e-6, "d0=1e-4"), None);
        estimate = estimate.next(1e-6);
        let words = estimate.warning(1e-6, "d0=1e-4").expect("stuck");
        assert!(words.contains("d0 = 1e-6 after 100 steps") && words.contains("d0=1e-4"), "{words}");
        assert_eq!(estimate.next(1.1e-6).warning(1e-6, ""), None, "it has left its start");
    }

    /// 4¹⁶ = 4.3e9 is not endless yet, 4¹⁷ = 1.7e10 is.
    #[test]
    fn endless_growth_is_growth_without_a_break() {
        let mut estimate = Estimate::new(1.0);
        for _ in 0..16 {
            estimate = estimate.next(4.0 * estimate.value);
        }
        assert_eq!(estimate.warning(1.0, ""), None);
        assert_eq!(estimate.next(1.4 * estimate.value).next(9.0 * estimate.value).warning(1.0, ""), None);
        let words = estimate.next(4.0 * estimate.value).warning(1.0, "").expect("17 times");
        assert!(words.contains("from 1.0e0 to 1.7e10 in 17 steps"), "{words}");
    }

    /// A scale may begin at 0: what comes after that is its start.
    #[test]
    fn growth_from_nothing_is_not_endless() {
        assert_eq!(Estimate::new(0.0).next(1e-6).next(1e-5).endless("", ""), None);
    }

    #[test]
    fn the_correction_after_two_steps() {
        let correction = BiasCorrection::START.next(0.5, 0.5).next(0.5, 0.5);
        assert_eq!((correction.mean(), correction.root()), (0.75, 0.75f64.sqrt()));
        assert_eq!(correction.rate(), 0.75f64.sqrt() / 0.75);
    }
}
