//! What the Schedule-Free methods share: how the average is weighted, and how it is written.

use serde::{Deserialize, Serialize};

use crate::formula::{Change, Number, TensorInfo};
use crate::parameters::{Parameters, unfit};
use crate::rule::{Observation, Refusal, Step};
use crate::space::Space;
use crate::spec::SpecError;

/// Refuses a fraction that is 0: with it, nothing in `y` and `z` tells where the average is.
pub(super) fn check_above_zero<P: Parameters>(name: &str, value: f64) -> Result<(), SpecError> {
    if value > 0.0 {
        return Ok(());
    }
    let why = format!("{name}={value} leaves no trace of the average in the parameters; choose one above 0");
    Err(unfit::<P>(why))
}

/// The parameters that both methods have, for the rates and the weights of points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weighting {
    pub(super) warmup_steps: u64,
    pub(super) late_warmup: bool,
    pub(super) r: f64,
    pub(super) weight_lr_power: f64,
}

/// What the weights of the next points depend on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Averaging {
    /// The steps made.
    steps: u64,
    /// The largest rate so far.
    largest_rate: f64,
    /// The sum of all weights.
    weight_sum: f64,
}

impl Averaging {
    /// Before the first step.
    pub(super) const START: Averaging = Averaging { steps: 0, largest_rate: 0.0, weight_sum: 0.0 };

    /// What holds after a step with this rate before warm-up, the rate that the step then has, and the weight `c` of its point in
    /// the average.
    pub(super) fn next(
        self,
        weighting: Weighting,
        rate: f64,
        seen: &Observation,
    ) -> Result<(Averaging, Step, f64), Refusal> {
        let Weighting { warmup_steps, late_warmup, r, weight_lr_power } = weighting;
        let steps = self.steps + 1;
        let warm = |count: u64| if count < warmup_steps { count as f64 / warmup_steps as f64 } else { 1.0 };
        let step = Step::new(rate * warm(if late_warmup { self.steps } else { steps }), seen)?;
        let largest_rate = self.largest_rate.max(rate * warm(steps));
        let weight = power(steps as f64, r) * power(largest_rate, weight_lr_power);
        let weight_sum = self.weight_sum + weight;
        if !weight_sum.is_finite() {
            return Err(seen.overflow(rate));
        }
        let c = if weight_sum > 0.0 { weight / weight_sum } else { 0.0 };
        Ok((Averaging { steps, largest_rate, weight_sum }, step, c))
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
    fn each<N: Number>([part]: [N; 1], _: TensorInfo<N>, _: [N; 1], [y, z]: [N; 2]) -> [N; 1] {
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

    /// As the methods have it by default.
    const DEFAULT: Weighting =
        Weighting { warmup_steps: 0, late_warmup: false, r: 0.0, weight_lr_power: 2.0 };

    fn seen() -> Observation {
        Observation::new(0, 1.0, 1.0)
    }

    /// The rates and weights of steps with these rates.
    fn walk(weighting: Weighting, rates: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut averaging = Averaging::START;
        let mut next = |&rate: &f64| {
            let (after, step, c) = averaging.next(weighting, rate, &seen()).expect("finite");
            averaging = after;
            (step.size, c)
        };
        rates.iter().map(&mut next).unzip()
    }

    /// By hand: weights 1·1, 2·2, 3·2 with r = 1 and the largest rates 1, 2, 2.
    #[test]
    fn weights_by_hand() {
        let weighting = Weighting { r: 1.0, weight_lr_power: 1.0, ..DEFAULT };
        let (rates, weights) = walk(weighting, &[1.0, 2.0, 0.5]);
        assert_eq!((rates, weights), (vec![1.0, 2.0, 0.5], vec![1.0, 0.8, 6.0 / 11.0]));
    }

    #[test]
    fn a_rate_of_zero_has_no_weight_and_one_that_overflows_is_refused() {
        assert_eq!(walk(DEFAULT, &[0.0]).1, [0.0]);
        assert!(Averaging::START.next(DEFAULT, 1e200, &seen()).is_err());
    }

    /// The weights are those of the early warm-up in both: 1 and 4 of the first two, squared rates, then 4.
    #[test]
    fn the_warm_up_counts_from_one_or_late_from_zero() {
        let early = Weighting { warmup_steps: 2, ..DEFAULT };
        let late = Weighting { late_warmup: true, ..early };
        let weights = vec![1.0, 0.8, 4.0 / 9.0];
        assert_eq!(walk(early, &[2.0; 3]), (vec![1.0, 2.0, 2.0], weights.clone()));
        assert_eq!(walk(late, &[2.0; 3]), (vec![0.0, 1.0, 2.0], weights));
    }
}
