//! The linear algebra that finds the minimum and the constants of the problems on data.

use crate::vector::{step_in_place, step_into};
use untuned::problem::Problem;
use untuned::vector;

use super::random::Random;

/// A dense matrix, row by row.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    entries: Vec<f64>,
    columns: usize,
}

impl Matrix {
    /// Of these entries, row by row; `columns` is at least 1.
    pub(super) fn new(entries: Vec<f64>, columns: usize) -> Matrix {
        Matrix { entries, columns }
    }

    /// With standard normal entries.
    pub(super) fn normal(random: &mut Random, rows: usize, columns: usize) -> Matrix {
        Matrix::new(random.normals(rows * columns), columns)
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.entries.chunks_exact(self.columns)
    }

    /// `A x`.
    pub(super) fn times(&self, x: &[f64]) -> Vec<f64> {
        self.rows().map(|row| vector::dot(row, x)).collect()
    }

    /// `Aᵀ y`.
    pub(super) fn transposed_times(&self, y: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.columns];
        for (row, y) in self.rows().zip(y) {
            step_in_place(&mut sum, -y, row);
        }
        sum
    }

    /// `Σ_i φ_i(a_i·x)` and its gradient in one pass over `A`; `term(i, a_i·x)` gives `φ_i` and its derivative.
    pub(super) fn sum_over_rows(
        &self,
        x: &[f64],
        gradient: &mut [f64],
        term: impl Fn(usize, f64) -> (f64, f64),
    ) -> f64 {
        gradient.fill(0.0);
        let mut sum = 0.0;
        for (i, row) in self.rows().enumerate() {
            let (value, slope) = term(i, vector::dot(row, x));
            sum += value;
            step_in_place(gradient, -slope, row);
        }
        sum
    }

    /// `Σ_i weights_i a_i a_iᵀ`.
    pub(super) fn weighted_gram(&self, weights: &[f64]) -> Vec<f64> {
        let d = self.columns;
        let mut gram = vec![0.0; d * d];
        for (row, weight) in self.rows().zip(weights) {
            for i in 0..d {
                step_in_place(&mut gram[i * d..=i * d + i], -weight * row[i], &row[..=i]);
            }
        }
        for i in 0..d {
            for j in 0..i {
                gram[j * d + i] = gram[i * d + j];
            }
        }
        gram
    }
}

/// The solution of `matrix · x = rhs` for a symmetric positive definite matrix, by Cholesky; `None` for any other.
pub(super) fn cholesky_solve(matrix: &[f64], rhs: &[f64]) -> Option<Vec<f64>> {
    let d = rhs.len();
    let mut l = matrix.to_vec();
    for i in 0..d {
        for j in 0..=i {
            let rest = l[i * d + j] - vector::dot(&l[i * d..i * d + j], &l[j * d..j * d + j]);
            if i != j {
                l[i * d + j] = rest / l[j * d + j];
            } else if rest > 0.0 && rest.is_finite() {
                l[i * d + i] = rest.sqrt();
            } else {
                return None;
            }
        }
    }
    let mut x = rhs.to_vec();
    for i in 0..d {
        x[i] = (x[i] - vector::dot(&l[i * d..i * d + i], &x[..i])) / l[i * d + i];
    }
    for i in (0..d).rev() {
        x[i] /= l[i * d + i];
        let (done, now) = x.split_at_mut(i);
        step_in_place(done, now[0], &l[i * d..i * d + i]);
    }
    Some(x)
}

/// An upper bound of the largest eigenvalue `λ` of a symmetric positive semidefinite `d × d` matrix `M`, above it by
/// less than the factor `d^(1/2048)`, half a percent for `d = 10⁴`.
///
/// `λ^k ≤ ‖M^k‖_F ≤ √d·λ^k`, and ten squarings give `k = 1024`. Unlike power iteration this cannot stop below `λ`.
pub(super) fn largest_eigenvalue_bound(matrix: &[f64], d: usize) -> f64 {
    let mut power = matrix.to_vec();
    // `M^k = e^log · power`, with `power` near 1 so that nothing overflows.
    let mut log = 0.0;
    for _ in 0..10 {
        let size = vector::norm(&power);
        if size == 0.0 || !size.is_finite() {
            return size;
        }
        power.iter_mut().for_each(|v| *v /= size);
        log = 2.0 * (log + size.ln());
        let row = |i: usize| &power[i * d..(i + 1) * d];
        power = (0..d * d).map(|at| vector::dot(row(at / d), row(at % d))).collect();
    }
    // Rounding moves the result by about d·1e-16 in relative terms; the last factor covers it.
    ((log + vector::norm(&power).ln()) / 1024.0).exp() * (1.0 + 1e-12)
}

/// Newton's method with step halving from the problem's start. It ends where no step helps any more, after at most
/// 100 steps; how near to the minimum that is, the caller must certify.
pub(super) fn newton<P: Problem>(problem: &P, hessian: impl Fn(&P, &[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut x = problem.start();
    let (mut g, mut trial, mut trial_g) = (x.clone(), x.clone(), x.clone());
    let mut f = problem.value_and_gradient(&x, &mut g);
    for _ in 0..100 {
        let Some(direction) = damped_solve(hessian(problem, &x), &g) else { break };
        let slope = vector::dot(&g, &direction);
        // Near the minimum rounding hides how f falls, and the gradient still shows progress.
        let near = slope <= 1e-12 * f.abs();
        let halvings = if near { 1 } else { 60 };
        let accepted = (0..halvings).map(|k| 0.5f64.powi(k)).find_map(|size| {
            step_into(&mut trial, &x, size, &direction);
            let value = problem.value_and_gradient(&trial, &mut trial_g);
            let better = if near {
                vector::norm(&trial_g) < 0.5 * vector::norm(&g)
            } else {
                value <= f - 0.25 * size * slope
            };
            better.then_some(value)
        });
        let Some(value) = accepted else { break };
        f = value;
        std::mem::swap(&mut x, &mut trial);
        std::mem::swap(&mut g, &mut trial_g);
    }
    x
}

/// [`cholesky_solve`] with as little added to the diagonal as it takes.
fn damped_solve(mut matrix: Vec<f64>, rhs: &[f64]) -> Option<Vec<f64>> {
    let d = rhs.len();
    let largest = (0..d).map(|i| matrix[i * d + i]).fold(0.0, f64::max);
    for damping in [0.0, 1e-14, 1e-11, 1e-8, 1e-5] {
        (0..d).for_each(|i| matrix[i * d + i] += damping * largest);
        if let Some(solution) = cholesky_solve(&matrix, rhs) {
            return Some(solution);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cholesky_solves_and_refuses() {
        let a = Matrix::normal(&mut Random::new(3), 20, 7);
        let gram = a.weighted_gram(&[1.0; 20]);
        let x: Vec<f64> = (1..=7).map(f64::from).collect();
        let rhs = a.transposed_times(&a.times(&x));
        let solved = cholesky_solve(&gram, &rhs).expect("positive definite");
        assert!(vector::distance(&solved, &x) < 1e-11, "{solved:?}");
        assert_eq!(cholesky_solve(&[1.0, 2.0, 2.0, 1.0], &[1.0, 1.0]), None);
        assert_eq!(cholesky_solve(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn the_eigenvalue_bound_is_above_and_near() {
        for scale in [1e-200, 1.0, 1e200] {
            // Eigenvalues 3 and 1.
            let bound = largest_eigenvalue_bound(&[2.0 * scale, scale, scale, 2.0 * scale], 2) / scale;
            assert!((3.0..3.0 * 1.001).contains(&bound), "{bound}");
        }
        assert_eq!(largest_eigenvalue_bound(&[0.0; 9], 3), 0.0);
        assert!(!largest_eigenvalue_bound(&[f64::INFINITY], 1).is_finite());
        // All eigenvalues equal is the worst case.
        let identity: Vec<f64> = (0..100).map(|i| f64::from(u8::from(i % 11 == 0))).collect();
        let bound = largest_eigenvalue_bound(&identity, 10);
        assert!((1.0..1.0012).contains(&bound), "{bound}");
    }
}
