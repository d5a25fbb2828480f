//! Averages of the iterates, for evaluation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::formula::{Change, Number, TensorInfo};
use crate::space::Space;
use crate::spec::{Kind, SpecError, number};

/// A running average of iterates.
///
/// As a text it is `uniform`, `polynomial:8` or `ema:0.999`. The numbers are these where a text has none. `exponential` is `ema`, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
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
    pub(crate) fn take<S: Space>(self, space: &S, mean: &mut S::Vector, x: &S::Vector, count: u64) {
        match count {
            1 => space.copy(x, mean),
            _ => space.change(TakeIntoAverage, [self.weight(count)], 0.0, [mean], [x]),
        }
    }
}

/// `mean ← mean + weight·(x − mean)`.
struct TakeIntoAverage;

impl Change<1, 1, 1> for TakeIntoAverage {
    #[inline(always)]
    fn each<N: Number>([weight]: [N; 1], _: TensorInfo<N>, [mean]: [N; 1], [x]: [N; 1]) -> [N; 1] {
        [mean + weight * (x - mean)]
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Average::Uniform => f.write_str("uniform"),
            Average::Polynomial(gamma) => write!(f, "polynomial:{}", number(gamma)),
            Average::Exponential(decay) => write!(f, "ema:{}", number(decay)),
        }
    }
}

/// A text that is no average.
#[derive(Debug, Clone, PartialEq, Error)]
#[error(
    "{0:?} is no average; write \"uniform\", \"polynomial:8\" (a number of at least 0) or \"ema:0.999\" (from 0 on, below 1)"
)]
pub struct AverageError(String);

impl FromStr for Average {
    type Err = AverageError;

    fn from_str(text: &str) -> Result<Average, AverageError> {
        let (name, given) = text.split_once(':').map_or((text, None), |(name, given)| (name, Some(given)));
        let number = |default| given.map_or(Some(default), |given| given.parse().ok());
        let average = match name {
            "uniform" if given.is_none() => Some(Average::Uniform),
            "polynomial" => number(8.0).map(Average::Polynomial),
            "ema" | "exponential" => number(0.999).map(Average::Exponential),
            _ => None,
        };
        average.and_then(|average| average.check().ok()).ok_or_else(|| AverageError(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::DenseF64;

    fn averaged(average: Average, points: &[f64]) -> f64 {
        let mut mean = vec![f64::NAN];
        for (i, &x) in points.iter().enumerate() {
            average.take(&DenseF64::new(1), &mut mean, &vec![x], i as u64 + 1);
        }
        mean[0]
    }

    #[test]
    fn texts() {
        let read = |text: &str| text.parse::<Average>();
        let averages = [Average::Uniform, Average::Polynomial(0.5), Average::Exponential(0.9999)];
        for (average, text) in averages.into_iter().zip(["uniform", "polynomial:0.5", "ema:0.9999"]) {
            assert_eq!((read(text), average.to_string()), (Ok(average), text.to_string()));
        }
        assert_eq!(read("polynomial"), Ok(Average::Polynomial(8.0)));
        assert_eq!(read("ema"), read("exponential:0.999"));
        for wrong in
            ["", "mean", "uniform:", "uniform:1", "polynomial:", "polynomial:-1", "ema:1", "ema:x", "ema:nan"]
        {
            let error = read(wrong).expect_err("it is no average").to_string();
            assert!(error.starts_with(&format!("{wrong:?} is no average; write")), "{error}");
        }
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
