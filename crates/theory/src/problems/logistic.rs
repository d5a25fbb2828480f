use crate::vector::step_in_place;
use thiserror::Error;
use untuned::problem::{Known, Problem};
#[cfg(feature = "datasets")]
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec, SpecError};
use untuned::vector;

use super::linear::{Matrix, largest_eigenvalue_bound, newton};

/// Logistic regression: `f(w) = (1/n) Σ_i ln(1 + exp(−y_i a_i·w)) + l2/2·‖w‖²`, with labels `y_i = ±1`.
///
/// The last variable is the intercept: every `a_i` ends with a 1. It is regularised like the others, so that `µ = l2`
/// holds in all directions. `L = ¼·λmax(AᵀA/n) + l2`, and `L0 = L`, `L1 = 0`.
///
/// The minimum is found by Newton's method at construction, which takes `O(n·d²)` per step, and is known only where
/// `f − f* ≤ ‖∇f‖²/(2·l2)` proves it to 1e-12. With `l2 = 0` nothing proves it, and on separable data, such as the
/// named problem's, there is no minimiser at all.
///
/// ```
/// use untuned::Problem;
/// use untuned_theory::problems::Logistic;
///
/// let hours = [[0.5], [1.0], [1.5], [2.0], [2.5], [3.0]];
/// let passed = [false, false, true, false, true, true];
/// let problem = Logistic::new(&hours, &passed, 0.01)?;
/// assert_eq!(problem.dimension(), 2);
/// assert!(problem.known().f_star.is_some_and(|f| f < problem.value(&problem.start())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Logistic {
    /// `y_i a_i`: the labels are multiplied in.
    signed: Matrix,
    l2: f64,
    known: Known,
}

/// Data that a problem cannot be made of.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum DataError {
    /// There is no sample.
    #[error("there is no sample; at least one is needed")]
    Empty,
    /// Not one label per sample.
    #[error("there are {labels} labels for {samples} samples; each sample needs one")]
    Labels {
        /// How many labels.
        labels: usize,
        /// How many samples.
        samples: usize,
    },
    /// A sample with another number of features than the first.
    #[error("sample {sample} has {given} features, the first one {wanted}")]
    Ragged {
        /// Which one.
        sample: usize,
        /// Its features.
        given: usize,
        /// The first sample's.
        wanted: usize,
    },
    /// A feature is NaN or infinite.
    #[error("feature {feature} of sample {sample} is {value}; it must be finite")]
    NotFinite {
        /// Which sample.
        sample: usize,
        /// Which feature.
        feature: usize,
        /// Its value.
        value: f64,
    },
    /// `l2` is negative, NaN or infinite.
    #[error("l2 is {0}; it must be a finite number, 0 or more")]
    L2(f64),
}

#[cfg(feature = "datasets")]
pub(super) const INFO: Info = Info {
    name: "logistic",
    aliases: &[],
    formula: "mean ln(1 + exp(−y_i a_i·w)) + l2/2·‖w‖² on the breast-cancer data, standardised, with intercept",
    parameters: &[Parameter {
        name: "l2",
        kind: Kind::NonNegative,
        default: DefaultValue::Number(1e-3),
        meaning: "strength of the regularisation; with 0 there is no minimiser",
    }],
    reference: "Wolberg, Street and Mangasarian: Breast Cancer Wisconsin (Diagnostic), UCI 1995",
    weight_decay: 0.0,
};

impl Logistic {
    /// On a user's own samples, as they are (scale them first where their features differ in size); `true` is `+1`.
    ///
    /// # Errors
    /// When the data do not fit together or are not finite, and when `l2` is negative.
    pub fn new<R: AsRef<[f64]>>(features: &[R], labels: &[bool], l2: f64) -> Result<Logistic, DataError> {
        let first = features.first().ok_or(DataError::Empty)?.as_ref().len();
        if labels.len() != features.len() {
            return Err(DataError::Labels { labels: labels.len(), samples: features.len() });
        }
        if !(l2.is_finite() && l2 >= 0.0) {
            return Err(DataError::L2(l2));
        }
        let mut signed = Vec::with_capacity(features.len() * (first + 1));
        for (sample, (row, label)) in features.iter().zip(labels).enumerate() {
            let row = row.as_ref();
            if row.len() != first {
                return Err(DataError::Ragged { sample, given: row.len(), wanted: first });
            }
            if let Some(feature) = row.iter().position(|v| !v.is_finite()) {
                return Err(DataError::NotFinite { sample, feature, value: row[feature] });
            }
            let sign = if *label { 1.0 } else { -1.0 };
            signed.extend(row.iter().chain(&[1.0]).map(|v| sign * v));
        }
        let mut problem = Logistic { signed: Matrix::new(signed, first + 1), l2, known: Known::default() };
        problem.known = problem.find_out();
        Ok(problem)
    }

    fn find_out(&self) -> Known {
        let (d, n) = (self.signed.columns(), self.signed.rows().len());
        let gram = self.signed.weighted_gram(&vec![1.0 / n as f64; n]);
        let l = largest_eigenvalue_bound(&gram, d) / 4.0 + self.l2;
        // Without the regularisation no gradient is longer than the mean sample.
        let mean_norm = self.signed.rows().map(vector::norm).sum::<f64>() / n as f64;
        let known = Known {
            convex: true,
            l: Some(l),
            l0_l1: Some((l, 0.0)),
            lipschitz: (self.l2 == 0.0).then_some(mean_norm * (1.0 + 1e-12)),
            strong_convexity: Some(self.l2),
            ..Known::default()
        };
        if self.l2 == 0.0 {
            return known.finite();
        }
        let w = newton(self, Logistic::hessian);
        let mut gradient = vec![0.0; d];
        let value = self.value_and_gradient(&w, &mut gradient);
        let norm = vector::norm(&gradient);
        let proved = norm * (norm / (2.0 * self.l2)) <= 1e-12;
        Known { f_star: proved.then_some(value), minimizer: proved.then_some(w), ..known }.finite()
    }

    fn hessian(&self, w: &[f64]) -> Vec<f64> {
        let n = self.signed.rows().len() as f64;
        let curvature = |margin: f64| sigmoid(margin) * sigmoid(-margin) / n;
        let weights: Vec<f64> = self.signed.times(w).into_iter().map(curvature).collect();
        let mut hessian = self.signed.weighted_gram(&weights);
        hessian.iter_mut().step_by(w.len() + 1).for_each(|v| *v += self.l2);
        hessian
    }

    #[cfg(feature = "datasets")]
    pub(super) fn from_spec(spec: &Spec) -> Result<Logistic, SpecError> {
        let (features, labels) = breast_cancer();
        Logistic::new(&features, &labels, spec.number("l2"))
            .map_err(|wrong| SpecError::Unfit { owner: spec.name(), why: wrong.to_string() })
    }
}

/// `1/(1 + e^{−z})`, without overflow.
fn sigmoid(z: f64) -> f64 {
    let small = (-z.abs()).exp();
    (if z >= 0.0 { 1.0 } else { small }) / (1.0 + small)
}

/// 569 samples with 30 features each, scaled to mean 0 and standard deviation 1.
#[cfg(feature = "datasets")]
fn breast_cancer() -> (Vec<Vec<f64>>, Vec<bool>) {
    let data = smartcore::dataset::breast_cancer::load_dataset();
    let n = data.num_samples as f64;
    let mut rows: Vec<Vec<f64>> = data
        .data
        .chunks_exact(data.num_features)
        .map(|r| r.iter().map(|v| f64::from(*v)).collect())
        .collect();
    for j in 0..data.num_features {
        let mean = rows.iter().map(|r| r[j]).sum::<f64>() / n;
        let deviation = (rows.iter().map(|r| (r[j] - mean) * (r[j] - mean)).sum::<f64>() / n).sqrt();
        rows.iter_mut().for_each(|r| r[j] = (r[j] - mean) / deviation);
    }
    (rows, data.target.iter().map(|y| *y != 0).collect())
}

impl Problem for Logistic {
    fn dimension(&self) -> usize {
        self.signed.columns()
    }
    fn start(&self) -> Vec<f64> {
        vec![0.0; self.signed.columns()]
    }
    fn value_and_gradient(&self, w: &[f64], gradient: &mut [f64]) -> f64 {
        let n = self.signed.rows().len() as f64;
        // ln(1 + e^{−m}) = max(0, −m) + ln(1 + e^{−|m|}), which never overflows.
        let loss = self.signed.sum_over_rows(w, gradient, |_, margin| {
            ((-margin).max(0.0) + (-margin.abs()).exp().ln_1p(), -sigmoid(-margin) / n)
        }) / n;
        if self.l2 == 0.0 {
            // Not 0 times a square that may have overflowed.
            return loss;
        }
        step_in_place(gradient, -self.l2, w);
        loss + 0.5 * self.l2 * vector::dot(w, w)
    }
    fn known(&self) -> &Known {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_data_are_named() {
        let one = [vec![1.0]];
        let of = |rows: &[Vec<f64>], labels: &[bool], l2| Logistic::new(rows, labels, l2).map(|_| ());
        assert_eq!(of(&[], &[], 1.0), Err(DataError::Empty));
        assert_eq!(of(&one, &[], 1.0), Err(DataError::Labels { labels: 0, samples: 1 }));
        assert_eq!(of(&one, &[true], -1.0), Err(DataError::L2(-1.0)));
        let ragged = DataError::Ragged { sample: 1, given: 2, wanted: 1 };
        assert_eq!(of(&[vec![1.0], vec![1.0, 2.0]], &[true, false], 1.0), Err(ragged));
        let infinite = of(&[vec![f64::INFINITY]], &[true], 1.0);
        assert_eq!(infinite, Err(DataError::NotFinite { sample: 0, feature: 0, value: f64::INFINITY }));
        assert_eq!(of(&[vec![]], &[true], 1.0), Ok(()), "an intercept alone is a model too");
    }

    #[test]
    fn separable_data_without_regularisation_have_no_minimum() {
        let problem = Logistic::new(&[[-1.0], [1.0]], &[false, true], 0.0).expect("fine data");
        let known = problem.known();
        assert_eq!((known.f_star, &known.minimizer, known.strong_convexity), (None, &None, None));
        assert!(known.l.is_some() && known.lipschitz.is_some());
        assert!(problem.value(&[1e5, 0.0]) < 1e-300, "the loss falls for ever");
    }

    #[test]
    fn huge_margins_do_not_overflow() {
        let problem = Logistic::new(&[[-1.0], [1.0]], &[true, true], 0.0).expect("fine data");
        let mut gradient = [0.0; 2];
        let value = problem.value_and_gradient(&[1e300, 0.0], &mut gradient);
        assert!((value - 5e299).abs() < 1e285 && gradient[0] == 0.5, "{value} {gradient:?}");
    }
}
