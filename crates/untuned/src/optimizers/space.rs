use std::ops::Range;

use super::formula::{Change, Here, Measure};

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

/// Where a tensor stands in a vector, and what holds there.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Its coordinates.
    pub range: Range<usize>,
    /// Whether it decays.
    pub decays: bool,
    /// How large its numbers are at the start, beside those of the other tensors: see [`scales`].
    pub scale: f64,
}

impl Place {
    /// Calls `work` for ranges that together are all coordinates of `part`, in order, each with what holds there. The places stand in
    /// order; between them nothing decays, and the scale is 1.
    pub fn each(
        places: &[Place],
        decay: f64,
        part: Range<usize>,
        mut work: impl FnMut(Range<usize>, Here<f64>),
    ) {
        let first = places.partition_point(|place| place.range.end <= part.start);
        let mut done = part.start;
        let mut until = |end: usize, decay: f64, scale: f64| {
            if end > done {
                work(done..end, Here { decay, scale });
                done = end;
            }
        };
        for place in places[first..].iter().take_while(|place| place.range.start < part.end) {
            until(place.range.start, 0.0, 1.0);
            until(place.range.end.min(part.end), if place.decays { decay } else { 0.0 }, place.scale);
        }
        until(part.end, 0.0, 1.0);
    }
}

/// The scales of tensors, of each of which is told whether it is a matrix, how many numbers it has, and the sum of their squares.
///
/// A matrix has the root mean square of its numbers, divided by what is typical, the geometric mean over all numbers of matrices. Of a
/// vector, which begins with zeros or ones that say nothing of how far they have to go, and of a matrix of zeros, it is 1.
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
pub struct Plain {
    /// The length of a vector.
    pub dimension: usize,
    /// The tensors in it, in order.
    pub places: Vec<Place>,
}

impl Plain {
    /// Vectors of this length, in which nothing decays, and everything is of one size.
    pub fn new(dimension: usize) -> Plain {
        Plain { dimension, places: Vec::new() }
    }

    /// The same, of which these coordinates decay.
    pub fn decaying(self, range: Range<usize>) -> Plain {
        Plain { places: vec![Place { range, decays: true, scale: 1.0 }], ..self }
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
        Place::each(&self.places, decay, 0..self.dimension, |range, here| {
            for i in range {
                let new = F::each(scalars, here, change.each_ref().map(|v| v[i]), read.map(|v| v[i]));
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
        Place::each(&self.places, decay, 0..self.dimension, |range, here| {
            for i in range {
                let terms = F::each(scalars, here, read.map(|v| v[i]));
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        });
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
        let place = |range: Range<usize>, decays, scale| Place { range, decays, scale };
        let places =
            [place(1..3, true, 2.0), place(3..3, true, 9.0), place(3..6, false, 4.0), place(8..9, true, 0.5)];
        let here = |i: usize| match i {
            1 | 2 => (0.1, 2.0),
            3..6 => (0.0, 4.0),
            8 => (0.1, 0.5),
            _ => (0.0, 1.0),
        };
        for start in 0..11 {
            for end in start..11 {
                let mut seen = Vec::new();
                Place::each(&places, 0.1, start..end, |range, Here { decay, scale }| {
                    assert!(!range.is_empty());
                    seen.extend(range.map(|i| (i, (decay, scale))));
                });
                assert_eq!(seen, (start..end).map(|i| (i, here(i))).collect::<Vec<_>>());
            }
        }
    }
}
