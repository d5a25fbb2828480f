use serde::{Deserialize, Serialize};

use super::{At, Change, Here, Keep, Measure, Number, Optimizer, Space};
use crate::rule::{Needs, Observation, Point, Refusal, Step, StepRule};

/// A scalar rule as an optimizer: `x ← (1 − η·λ)·from − η·g(from)`, with the points that the rule [needs](Needs) kept beside `x`.
///
/// Warm-up and schedule multiply the rule's size. A rule sees the gradient as it is: [`Around::clip`](super::Around::clip) has no effect.
///
/// An error leaves everything as it was, as long as the rule keeps its contract: an answer that breaks it is refused after the rule
/// has changed.
///
/// State: none, or `x_0` for rules that need the distance from it, 2 vectors for those that go back to the best point, 2 for those
/// that go back to `x_0`. A step is one pass that reads 2 vectors and writes one, and one of 2 vectors before it for the distance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scalar<R> {
    /// The rule.
    #[serde(rename = "scalar")]
    pub rule: R,
    /// The lowest loss so far, where the best point is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    best: Option<f64>,
    /// Whether the gradient of `x_0` is kept already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    origin: bool,
}

impl<R: StepRule> Scalar<R> {
    /// The rule before its first step.
    pub fn new(rule: R) -> Scalar<R> {
        Scalar { rule, best: None, origin: false }
    }

    fn keeps_start(needs: Needs) -> bool {
        needs.distance || needs.origin
    }
}

/// `(x − x_0)²`.
struct SquareDistance;

impl Measure<0, 2, 1> for SquareDistance {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: Here<N>, [x, start]: [N; 2]) -> [N; 1] {
        [(x - start) * (x - start)]
    }
}

/// `g²` and `g`.
struct SquareAndSum;

impl Measure<0, 1, 2> for SquareAndSum {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: Here<N>, [g]: [N; 1]) -> [N; 2] {
        [g * g, g]
    }
}

/// `x ← x·(1 − decay) − size·g`.
pub(super) struct Descend;

impl Change<1, 1, 1> for Descend {
    #[inline(always)]
    fn each<N: Number>([size]: [N; 1], Here { decay, .. }: Here<N>, [x]: [N; 1], [g]: [N; 1]) -> [N; 1] {
        [x * (N::of(1.0) - decay) - size * g]
    }
}

/// `x ← from·(1 − decay) − size·g`.
struct DescendFrom;

impl Change<1, 1, 2> for DescendFrom {
    #[inline(always)]
    fn each<N: Number>([size]: [N; 1], Here { decay, .. }: Here<N>, _: [N; 1], [from, g]: [N; 2]) -> [N; 1] {
        [from * (N::of(1.0) - decay) - size * g]
    }
}

impl<R: StepRule + Clone> Optimizer for Scalar<R> {
    fn keeps(&self) -> Vec<Keep> {
        let needs = self.rule.needs();
        let mut keeps = Vec::new();
        if Self::keeps_start(needs) {
            keeps.push(Keep::parameters("x0"));
        }
        if needs.best {
            keeps.extend([Keep::zeros("best"), Keep::zeros("best_gradient")]);
        }
        if needs.origin {
            keeps.push(Keep::zeros("origin_gradient"));
        }
        keeps
    }

    fn clips(&self) -> bool {
        false
    }

    fn measures(&self) -> usize {
        let needs = self.rule.needs();
        usize::from(needs.grad_sum) + usize::from(needs.distance)
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        let needs = self.rule.needs();
        if needs.grad_sum {
            at.space.measure(SquareAndSum, [], 0.0, [at.gradient], sums, first);
        }
        if needs.distance {
            let place = first + 1 + usize::from(needs.grad_sum);
            at.space.measure(SquareDistance, [], 0.0, [&*at.x, &at.kept[0]], sums, place);
        }
        needs.grad_sum
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        let needs = self.rule.needs();
        let mut sums = sums.iter().copied();
        let mut next_sum = |wanted: bool| wanted.then(|| sums.next().expect("as many sums as it measures"));
        let grad_sum = next_sum(needs.grad_sum);
        let seen = Observation { distance: next_sum(needs.distance).map(f64::sqrt), grad_sum, ..*seen };
        let mut rule = self.rule.clone();
        let next = rule.step(&seen).and_then(|next| needs.allow(next, &seen))?;
        let size = next.size * at.around.rate;
        super::check_held::<S>(&seen, &[size, size * seen.grad_norm])?;
        self.rule = rule;

        let (start, kept) = at.kept.split_at_mut(usize::from(Self::keeps_start(needs)));
        let (best, origin) = kept.split_at_mut(if needs.best { 2 } else { 0 });
        if needs.best && self.best.is_none_or(|best| seen.loss <= best) {
            at.space.copy(at.x, &mut best[0]);
            at.space.copy(at.gradient, &mut best[1]);
            self.best = Some(seen.loss);
        }
        if needs.origin && !self.origin {
            at.space.copy(at.gradient, &mut origin[0]);
            self.origin = true;
        }
        let decay = size * at.around.weight_decay;
        match next.from {
            Point::Here => at.space.change(Descend, [size], decay, [at.x], [at.gradient]),
            Point::Best => at.space.change(DescendFrom, [size], decay, [at.x], [&best[0], &best[1]]),
            Point::Origin => at.space.change(DescendFrom, [size], decay, [at.x], [&start[0], &origin[0]]),
        }
        Ok(Step { size, ..next })
    }
}
