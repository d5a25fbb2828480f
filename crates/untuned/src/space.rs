//! Where a method's vectors live, and the passes over them.

use std::ops::Range;

use crate::formula::{Change, Measure, Number, TensorInfo};
use crate::{slices, vector};

/// The vectors that a method works on, and the passes over them that it is made of.
///
/// A pass is a [formula](crate::formula) for every coordinate. It reads and writes every number once, because memory bounds its
/// speed. [`DenseF64`] is the space of plain vectors; a device's buffer or a framework's tensors implement this trait beside it.
pub trait Space {
    /// The parameters, their gradient, or a state vector.
    type Vector;
    /// Sums that were measured and not read yet.
    type Sums;
    /// Why there is no memory for a vector, or why sums cannot be read.
    type Error;

    /// The largest number that a vector holds. A gradient whose square exceeds it cannot be averaged.
    const LARGEST: f64;

    /// The number of parameters.
    fn dimension(&self) -> u64;

    /// A vector of zeros.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn zeros(&self) -> Result<Self::Vector, Self::Error>;

    /// `to = from`.
    fn copy(&self, from: &Self::Vector, to: &mut Self::Vector);

    /// Changes vectors in one pass.
    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut Self::Vector; M],
        read: [&Self::Vector; R],
    );

    /// Sums in one pass. The sums, in f64, go to the indices from `at` on.
    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Self::Vector; R],
        sums: &mut Self::Sums,
        at: usize,
    );

    /// Room for this many sums.
    ///
    /// # Errors
    /// When there is no memory for them.
    fn sums(&self, count: usize) -> Result<Self::Sums, Self::Error>;

    /// Waits for the sums, and reads the first `values.len()` of them. A [`Session`](crate::Session) does this once a step.
    ///
    /// # Errors
    /// When the device fails.
    fn read(&self, sums: &mut Self::Sums, values: &mut [f64]) -> Result<(), Self::Error>;

    /// Measures `Σ v²`.
    fn measure_norm(&self, v: &Self::Vector, sums: &mut Self::Sums, at: usize) {
        self.measure(SquareNorm, [], 0.0, [v], sums, at);
    }

    /// `‖v‖`, given `Σ v²` as it was measured. A space may measure again where the squares left the range of floats.
    ///
    /// # Errors
    /// When the device fails.
    fn norm(&self, _v: &Self::Vector, squares: f64) -> Result<f64, Self::Error> {
        Ok(squares.sqrt())
    }

    /// Measures `Σ (a − b)²`. A space that knows `‖a − b‖` at once returns it, and measures nothing.
    fn measure_distance(
        &self,
        a: &Self::Vector,
        b: &Self::Vector,
        sums: &mut Self::Sums,
        at: usize,
    ) -> Option<f64> {
        self.measure(SquareDistance, [], 0.0, [a, b], sums, at);
        None
    }
}

/// `v²`.
pub struct SquareNorm;

impl Measure<0, 1, 1> for SquareNorm {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, [v]: [N; 1]) -> [N; 1] {
        [v * v]
    }
}

/// `(a − b)²`.
pub struct SquareDistance;

impl Measure<0, 2, 1> for SquareDistance {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, [a, b]: [N; 2]) -> [N; 1] {
        [(a - b) * (a - b)]
    }
}

/// A tensor's coordinates in a vector, and what formulas know of them.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRange {
    /// Its coordinates.
    pub range: Range<usize>,
    /// Whether weight decay applies to it.
    pub decays: bool,
    /// The size of its numbers at the start, relative to the other tensors: see [`scales`].
    pub scale: f64,
}

impl TensorRange {
    /// Calls `work` for ranges that together are all coordinates of `part`, in order. The tensors stand in order; between them nothing
    /// decays, and the scale is 1.
    pub fn each(
        tensors: &[TensorRange],
        decay: f64,
        part: Range<usize>,
        mut work: impl FnMut(Range<usize>, TensorInfo<f64>),
    ) {
        if tensors.is_empty() && !part.is_empty() {
            return work(part, TensorInfo { decay: 0.0, scale: 1.0 });
        }
        let first = tensors.partition_point(|tensor| tensor.range.end <= part.start);
        let mut done = part.start;
        let mut until = |end: usize, decay: f64, scale: f64| {
            if end > done {
                work(done..end, TensorInfo { decay, scale });
                done = end;
            }
        };
        for tensor in tensors[first..].iter().take_while(|tensor| tensor.range.start < part.end) {
            until(tensor.range.start, 0.0, 1.0);
            until(tensor.range.end.min(part.end), if tensor.decays { decay } else { 0.0 }, tensor.scale);
        }
        until(part.end, 0.0, 1.0);
    }
}

/// Returns one scale per tensor. Each tensor is given as: whether it is a matrix, how many numbers it has, and the sum of their
/// squares.
///
/// The scale of a matrix is the root mean square of its numbers, divided by the geometric mean over all numbers of matrices. Vectors get
/// the scale 1: they start with zeros or ones, which say nothing of how far they have to go. A matrix of zeros gets 1, too.
pub fn scales(tensors: impl IntoIterator<Item = (bool, usize, f64)>) -> Vec<f64> {
    let known = |(matrix, len, squares): (bool, usize, f64)| {
        let log = 0.5 * (squares / len as f64).ln();
        (len as f64, Some(log).filter(|log| matrix && log.is_finite()))
    };
    let logs: Vec<(f64, Option<f64>)> = tensors.into_iter().map(known).collect();
    // Beside the first of them, so that sizes that are all the same are 1 to the last bit.
    let first = logs.iter().find_map(|&(_, log)| log).unwrap_or(0.0);
    let known = logs.iter().filter_map(|&(len, log)| Some((len, log? - first)));
    let (numbers, sum) =
        known.fold((0.0, 0.0), |(numbers, sum), (len, log)| (numbers + len, sum + len * log));
    let size = |log: f64| (log - first - sum / numbers).exp();
    logs.into_iter().map(|(_, log)| log.map_or(1.0, size)).collect()
}

/// Plain vectors of f64.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseF64 {
    /// The length of a vector.
    pub dimension: usize,
    /// The tensors in it, in order.
    pub tensors: Vec<TensorRange>,
}

impl DenseF64 {
    /// Vectors of this length. Nothing decays, and all scales are 1.
    pub fn new(dimension: usize) -> DenseF64 {
        DenseF64 { dimension, tensors: Vec::new() }
    }

    /// The same, where these coordinates decay.
    pub fn decaying(self, range: Range<usize>) -> DenseF64 {
        DenseF64 { tensors: vec![TensorRange { range, decays: true, scale: 1.0 }], ..self }
    }
}

impl Space for DenseF64 {
    type Vector = Vec<f64>;
    type Sums = Vec<f64>;
    type Error = std::convert::Infallible;

    const LARGEST: f64 = f64::MAX;

    fn dimension(&self) -> u64 {
        self.dimension as u64
    }

    fn zeros(&self) -> Result<Vec<f64>, Self::Error> {
        Ok(vec![0.0; self.dimension])
    }

    fn copy(&self, from: &Vec<f64>, to: &mut Vec<f64>) {
        to.copy_from_slice(from);
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        mut change: [&mut Vec<f64>; M],
        read: [&Vec<f64>; R],
    ) {
        TensorRange::each(&self.tensors, decay, 0..self.dimension, |range, info| {
            let change = change.each_mut().map(|v| &mut v[range.clone()]);
            slices::change::<f64, F, S, M, R>(scalars, info, change, read.map(|v| &v[range.clone()]));
        });
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vec<f64>; R],
        sums: &mut Vec<f64>,
        at: usize,
    ) {
        let sums = &mut sums[at..at + K];
        sums.fill(0.0);
        TensorRange::each(&self.tensors, decay, 0..self.dimension, |range, info| {
            for i in range {
                let terms = F::each(scalars, info, read.map(|v| v[i]));
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        });
    }

    fn sums(&self, count: usize) -> Result<Vec<f64>, Self::Error> {
        Ok(vec![0.0; count])
    }

    fn read(&self, sums: &mut Vec<f64>, values: &mut [f64]) -> Result<(), Self::Error> {
        values.copy_from_slice(&sums[..values.len()]);
        Ok(())
    }

    /// Nothing: [`DenseF64::norm`] makes its own pass.
    fn measure_norm(&self, _: &Vec<f64>, _: &mut Vec<f64>, _: usize) {}

    /// Exact also where the squares leave the range of f64.
    fn norm(&self, v: &Vec<f64>, _: f64) -> Result<f64, Self::Error> {
        Ok(vector::norm(v))
    }

    /// Exact also where the squares leave the range of f64.
    fn measure_distance(&self, a: &Vec<f64>, b: &Vec<f64>, _: &mut Vec<f64>, _: usize) -> Option<f64> {
        Some(vector::distance(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: √(8/2) = 2 and √(32/2) = 4; their geometric mean over four numbers is √8.
    #[test]
    fn a_matrix_has_the_size_of_its_numbers_beside_the_others() {
        let found = scales([(true, 2, 8.0), (false, 3, 3.0), (true, 2, 32.0), (true, 5, 0.0)]);
        let wanted = [0.5f64.sqrt(), 1.0, 2f64.sqrt(), 1.0];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-15), "{found:?}");
        // Three numbers of size e⁴ and one of size 1: typical is e³.
        let [large, small] = scales([(true, 3, 3.0 * 8f64.exp()), (true, 1, 1.0)])[..] else { panic!("two") };
        assert!((large.ln() - 1.0).abs() < 1e-14 && (small.ln() + 3.0).abs() < 1e-14, "{large} {small}");
        assert_eq!(scales([(true, 7, 0.3), (false, 3, 3.0)]), [1.0, 1.0], "one has nothing beside it");
        assert_eq!(scales([(false, 3, 3.0), (true, 1, 0.0)]), [1.0, 1.0]);
        assert_eq!(scales([(true, 1, f64::NAN), (true, 1, f64::INFINITY), (true, 0, 0.0)]), [1.0; 3]);
    }

    #[test]
    fn every_coordinate_of_a_part_once() {
        let tensor = |range: Range<usize>, decays, scale| TensorRange { range, decays, scale };
        let tensors = [
            tensor(1..3, true, 2.0),
            tensor(3..3, true, 9.0),
            tensor(3..6, false, 4.0),
            tensor(8..9, true, 0.5),
        ];
        let wanted = |i: usize| match i {
            1 | 2 => (0.1, 2.0),
            3..6 => (0.0, 4.0),
            8 => (0.1, 0.5),
            _ => (0.0, 1.0),
        };
        for start in 0..11 {
            for end in start..11 {
                let mut seen = Vec::new();
                TensorRange::each(&tensors, 0.1, start..end, |range, TensorInfo { decay, scale }| {
                    assert!(!range.is_empty());
                    seen.extend(range.map(|i| (i, (decay, scale))));
                });
                assert_eq!(seen, (start..end).map(|i| (i, wanted(i))).collect::<Vec<_>>());
            }
        }
    }
}
