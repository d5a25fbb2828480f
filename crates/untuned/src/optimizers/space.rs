use std::ops::Range;

use super::formula::{Change, Measure};

/// The vectors that an optimizer works on, and the passes over them that it is made of.
///
/// A pass is a [formula](super::formula) for every coordinate and reads and writes every number once, because passes are bound by
/// memory. Plain vectors are [`Plain`]; a device's buffer or a framework's tensors implement this beside it.
pub trait Space {
    /// The parameters, their gradient, or what an optimizer keeps beside them.
    type Vector;
    /// Sums that were measured and not yet read.
    type Sums;
    /// Why there is no room for a vector, or why sums cannot be read.
    type Error;

    /// The largest number that a vector holds: a gradient whose square is beyond it cannot be averaged.
    const LARGEST: f64;

    /// A vector of zeros.
    ///
    /// # Errors
    /// When there is no room for it.
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

    /// Sums in one pass; the sums, in f64, go to the places from `at` on.
    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Self::Vector; R],
        sums: &mut Self::Sums,
        at: usize,
    );
}

/// Plain vectors of f64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The length of a vector.
    pub dimension: usize,
    /// The coordinates that decay, in order.
    pub decayed: Vec<Range<usize>>,
}

impl Plain {
    /// Vectors of this length, in which nothing decays.
    pub fn new(dimension: usize) -> Plain {
        Plain { dimension, decayed: Vec::new() }
    }

    /// Calls `work` for ranges that together are all coordinates, each with what decays in it.
    fn ranges(&self, decay: f64, mut work: impl FnMut(Range<usize>, f64)) {
        let mut done = 0;
        for range in &self.decayed {
            work(done..range.start, 0.0);
            work(range.clone(), decay);
            done = range.end;
        }
        work(done..self.dimension, 0.0);
    }
}

impl Space for Plain {
    type Vector = Vec<f64>;
    type Sums = Vec<f64>;
    type Error = std::convert::Infallible;

    const LARGEST: f64 = f64::MAX;

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
        self.ranges(decay, |range, decay| {
            for i in range {
                let new = F::each(scalars, decay, change.each_ref().map(|v| v[i]), read.map(|v| v[i]));
                change.iter_mut().zip(new).for_each(|(to, new)| to[i] = new);
            }
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
        self.ranges(decay, |range, decay| {
            for i in range {
                let terms = F::each(scalars, decay, read.map(|v| v[i]));
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        });
    }
}
