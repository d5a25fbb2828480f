//! What the Schedule-Free methods share: how the average is weighted, and how it is written.

use serde::{Deserialize, Serialize};

use super::{Change, Here, Number, Space, shared};
use crate::rule::{Observation, Refusal, Step};
use crate::spec::{Fallback, Kind, Parameter, Spec, SpecError};

pub(super) const WARMUP_STEPS: Parameter = Parameter {
    name: "warmup_steps",
    kind: Kind::Whole(0, 1_000_000_000_000),
    default: Fallback::Number(0.0),
    meaning: "the rate of the t-th step is t/warmup_steps of its whole until it is all of it",
};

pub(super) const LATE_WARMUP: Parameter = Parameter {
    name: "late_warmup",
    kind: Kind::Word(&["no", "yes"]),
    default: Fallback::Word("no"),
    meaning: "whether the warm-up of a step, but not of its weight, is one step behind: it begins at 0 (optax)",
};

pub(super) const R: Parameter = Parameter {
    name: "r",
    kind: Kind::NonNegative,
    default: Fallback::Number(0.0),
    meaning: "the t-th point has the weight tʳ in the average",
};

pub(super) const WEIGHT_LR_POWER: Parameter = Parameter {
    name: "weight_lr_power",
    kind: Kind::NonNegative,
    default: Fallback::Number(2.0),
    meaning: "a point's weight in the average is the largest rate so far to this power",
};

/// A parameter that is a fraction and not 0: without it, the average could not be told from `y` and `z`.
pub(super) fn above_zero(spec: &Spec, name: &str) -> Result<f64, SpecError> {
    let value = spec.number(name);
    if value > 0.0 {
        return Ok(value);
    }
    let why = format!("{name}={value} leaves no trace of the average in the parameters; choose one above 0");
    Err(SpecError::Unfit { owner: spec.name(), why })
}

/// The weights of the average.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Averaging {
    warmup_steps: u64,
    late_warmup: bool,
    r: f64,
    weight_lr_power: f64,
    /// The steps made.
    steps: u64,
    largest_rate: f64,
    weight_sum: f64,
}

impl Default for Averaging {
    fn default() -> Averaging {
        Averaging {
            warmup_steps: 0,
            late_warmup: false,
            r: 0.0,
            weight_lr_power: 2.0,
            steps: 0,
            largest_rate: 0.0,
            weight_sum: 0.0,
        }
    }
}

impl Averaging {
    pub(super) fn from_spec(spec: &Spec) -> Averaging {
        Averaging {
            warmup_steps: spec.number("warmup_steps") as u64,
            late_warmup: shared::yes(spec, "late_warmup"),
            r: spec.number("r"),
            weight_lr_power: spec.number("weight_lr_power"),
            ..Averaging::default()
        }
    }

    /// What holds after a step with this rate before warm-up, the rate that the step then has, and the weight `c` of its point in
    /// the average.
    pub(super) fn next(&self, rate: f64, seen: &Observation) -> Result<(Averaging, Step, f64), Refusal> {
        let steps = self.steps + 1;
        let warm = |count: u64| {
            if count < self.warmup_steps { count as f64 / self.warmup_steps as f64 } else { 1.0 }
        };
        let step = Step::new(rate * warm(if self.late_warmup { self.steps } else { steps }), seen)?;
        let largest_rate = self.largest_rate.max(rate * warm(steps));
        let weight = power(steps as f64, self.r) * power(largest_rate, self.weight_lr_power);
        let weight_sum = self.weight_sum + weight;
        if !weight_sum.is_finite() {
            let (step, loss, grad_norm) = (seen.step, seen.loss, seen.grad_norm);
            return Err(Refusal::Overflow { step, loss, grad_norm, size: rate });
        }
        let c = if weight_sum > 0.0 { weight / weight_sum } else { 0.0 };
        Ok((Averaging { steps, largest_rate, weight_sum, ..self.clone() }, step, c))
    }
}

/// The power, without a library's where its exponent is one of the usual: those differ from machine to machine in the last bit.
fn power(base: f64, exponent: f64) -> f64 {
    match exponent {
        0.0 => 1.0,
        1.0 => base,
        2.0 => base * base,
        _ => base.powf(exponent),
    }
}

/// `y + part·(z − y)`.
struct Between;

impl Change<1, 1, 2> for Between {
    #[inline(always)]
    fn each<N: Number>([part]: [N; 1], _: Here<N>, _: [N; 1], [y, z]: [N; 2]) -> [N; 1] {
        [y + part * (z - y)]
    }
}

/// Writes the average `x̄` that `y = (1 − beta)·z + beta·x̄` has in it.
pub(super) fn write_average<S: Space>(
    space: &S,
    beta: f64,
    y: &S::Vector,
    z: &S::Vector,
    to: &mut S::Vector,
) {
    space.change(Between, [1.0 - beta.recip()], 0.0, [to], [y, z]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Observation {
        Observation::new(0, 1.0, 1.0)
    }

    /// The rates and weights of steps with these rates.
    fn walk(mut averaging: Averaging, rates: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut next = |&rate: &f64| {
            let (after, step, c) = averaging.next(rate, &seen()).expect("finite");
            averaging = after;
            (step.size, c)
        };
        rates.iter().map(&mut next).unzip()
    }

    /// By hand: weights 1·1, 2·2, 3·2 with r = 1 and the largest rates 1, 2, 2.
    #[test]
    fn weights_by_hand() {
        let averaging = Averaging { r: 1.0, weight_lr_power: 1.0, ..Averaging::default() };
        let (rates, weights) = walk(averaging, &[1.0, 2.0, 0.5]);
        assert_eq!((rates, weights), (vec![1.0, 2.0, 0.5], vec![1.0, 0.8, 6.0 / 11.0]));
    }

    #[test]
    fn a_rate_of_zero_has_no_weight_and_one_that_overflows_is_refused() {
        assert_eq!(walk(Averaging::default(), &[0.0]).1, [0.0]);
        assert!(Averaging::default().next(1e200, &seen()).is_err());
    }

    /// The weights are those of the early warm-up in both: 1 and 4 of the first two, squared rates, then 4.
    #[test]
    fn the_warm_up_counts_from_one_or_late_from_zero() {
        let early = Averaging { warmup_steps: 2, ..Averaging::default() };
        let late = Averaging { late_warmup: true, ..early.clone() };
        let weights = vec![1.0, 0.8, 4.0 / 9.0];
        assert_eq!(walk(early, &[2.0; 3]), (vec![1.0, 2.0, 2.0], weights.clone()));
        assert_eq!(walk(late, &[2.0; 3]), (vec![0.0, 1.0, 2.0], weights));
    }
}
