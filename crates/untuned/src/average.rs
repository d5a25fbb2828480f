//! Averages of the iterates, for evaluation.

use serde::{Deserialize, Serialize};

use crate::spec::{Kind, SpecError};
use crate::vector;

/// A running average of iterates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Average {
    /// The uniform mean; Theorems 1, 2 and 3 speak of it.
    Uniform,
    /// Polynomial decay: `x̄_t = (1 − w) x̄_{t−1} + w x_t`, `w = (γ + 1)/(γ + t)`, `t` from 1 (Shamir & Zhang 2013).
    /// The authors of DoG call it mandatory, with `γ = 8`. It is 0 or more.
    Polynomial(f64),
    /// Exponential decay: `x̄_t = d·x̄_{t−1} + (1 − d)·x_t`, begun with the first point itself, as `torch.optim.swa_utils` does.
    /// `d` is 0 or more, and below 1.
    Exponential(f64),
}

impl Average {
    /// The same average, if its number can be used. A session and `minimize` call this.
    ///
    /// # Errors
    /// Names the number, and what it must be.
    pub fn check(self) -> Result<Average, SpecError> {
        match self {
            Average::Uniform => Ok(()),
            Average::Polynomial(gamma) => Kind::NonNegative.check("Average::Polynomial", "γ", gamma),
            Average::Exponential(decay) => Kind::Fraction.check("Average::Exponential", "d", decay),
        }
        .map(|()| self)
    }

    /// The weight of the `count`-th point of the average, counted from 1.
    pub fn weight(self, count: u64) -> f64 {
        match self {
            Average::Uniform => 1.0 / count as f64,
            Average::Polynomial(gamma) => (gamma + 1.0) / (gamma + count as f64),
            Average::Exponential(_) if count <= 1 => 1.0,
            Average::Exponential(decay) => 1.0 - decay,
        }
    }

    /// Takes `x` into `mean` as its `count`-th point, counted from 1.
    pub fn add(self, mean: &mut [f64], x: &[f64], count: u64) {
        if count == 1 {
            mean.copy_from_slice(x);
        } else {
            vector::average_into(mean, self.weight(count), x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn averaged(average: Average, points: &[f64]) -> f64 {
        let mut mean = [f64::NAN];
        for (i, &x) in points.iter().enumerate() {
            average.add(&mut mean, &[x], i as u64 + 1);
        }
        mean[0]
    }

    #[test]
    fn numbers_that_cannot_be_used_are_named() {
        let exponential = [0.0, 0.999].map(Average::Exponential);
        for fine in [Average::Uniform, Average::Polynomial(0.0)].into_iter().chain(exponential) {
            assert_eq!(fine.check(), Ok(fine));
        }
        let words = |average: Average| average.check().expect_err("it cannot be used").to_string();
        for bad in [-5.0, f64::NAN, f64::INFINITY] {
            let polynomial = words(Average::Polynomial(bad));
            let said =
                format!("`Average::Polynomial`: γ={bad} does not work, γ must be a finite number, 0 or more");
            assert_eq!(polynomial, said);
        }
        for bad in [-0.1, 1.0, f64::NAN] {
            let said = format!(
                "`Average::Exponential`: d={bad} does not work, d must be a number from 0 on, below 1"
            );
            assert_eq!(words(Average::Exponential(bad)), said);
        }
    }

    #[test]
    fn uniform_is_the_mean() {
        assert_eq!(averaged(Average::Uniform, &[1.0, 2.0, 3.0, 6.0]), 3.0);
    }

    /// By hand: w_1 = 9/9, w_2 = 9/10, w_3 = 9/11.
    #[test]
    fn polynomial_decay_by_hand() {
        assert_eq!(averaged(Average::Polynomial(8.0), &[4.0]), 4.0);
        assert!((averaged(Average::Polynomial(8.0), &[4.0, 14.0]) - 13.0).abs() < 1e-15);
        assert!((averaged(Average::Polynomial(8.0), &[4.0, 14.0, 24.0]) - 22.0).abs() < 1e-14);
        assert!(
            (averaged(Average::Polynomial(0.0), &[1.0, 2.0, 6.0]) - 3.0).abs() < 1e-15,
            "γ = 0 is the mean"
        );
    }
    /// By hand: 4, then 3 parts of it and one of 8, then 3 parts of that and one of 1.
    #[test]
    fn exponential_decay_by_hand() {
        assert_eq!([1, 2, 3].map(|count| Average::Exponential(0.75).weight(count)), [1.0, 0.25, 0.25]);
        assert_eq!(averaged(Average::Exponential(0.75), &[4.0]), 4.0);
        assert_eq!(averaged(Average::Exponential(0.75), &[4.0, 8.0]), 5.0);
        assert_eq!(averaged(Average::Exponential(0.75), &[4.0, 8.0, 1.0]), 4.0);
    }
}
