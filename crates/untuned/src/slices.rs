//! Passes over numbers in memory, for spaces whose vectors are slices: loops that the compiler makes vector code of.
//!
//! All is inlined, so that a caller can compile a pass for the instructions of the CPU at hand.

use crate::formula::{Change, Measure, Number, TensorInfo};

/// Coordinates that go through a formula side by side, each into sums of its own: a vector of AVX-512 in f32.
pub const LANES: usize = 16;

/// The pairs of vectors, at least one of them changed, that the compiler proves apart at run time before a loop of vector code.
const PROVED_APART: usize = 8;

/// Number `at` of vectors. A loop, because the standard library's `map` of arrays becomes a call when they are long.
#[inline(always)]
fn numbers<V: AsRef<[T]>, T: Number, const N: usize>(vectors: &[V; N], at: usize) -> [T; N] {
    let mut numbers = [T::of(0.0); N];
    numbers.iter_mut().zip(vectors).for_each(|(to, vector)| *to = vector.as_ref()[at]);
    numbers
}

/// Puts number `at` of vectors.
#[inline(always)]
fn put<V: AsMut<[T]>, T: Number, const N: usize>(vectors: &mut [V; N], at: usize, numbers: [T; N]) {
    vectors
        .iter_mut()
        .zip(&numbers)
        .for_each(|(vector, &number)| vector.as_mut()[at] = number.flush_subnormal());
}

/// The numbers of vectors from `at` on, as many as there are lanes.
#[inline(always)]
fn lanes<V: AsRef<[T]>, T: Number, const N: usize>(vectors: &[V; N], at: usize) -> [[T; LANES]; N] {
    let mut lanes = [[T::of(0.0); LANES]; N];
    lanes
        .iter_mut()
        .zip(vectors)
        .for_each(|(to, vector)| to.copy_from_slice(&vector.as_ref()[at..at + LANES]));
    lanes
}

/// `values`, in the type of a slice.
#[inline(always)]
fn narrow<T: Number, const N: usize>(values: [f64; N]) -> [T; N] {
    let mut numbers = [T::of(0.0); N];
    numbers.iter_mut().zip(&values).for_each(|(to, from)| *to = T::of(*from));
    numbers
}

/// Changes vectors of one length, of one tensor.
///
/// # Panics
/// When a vector is shorter than the first that is changed.
#[inline(always)]
pub fn change<T: Number, F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
    scalars: [f64; S],
    info: TensorInfo<f64>,
    change: [&mut [T]; M],
    read: [&[T]; R],
) {
    let (scalars, info) = (narrow(scalars), info.of());
    let len = change.first().map_or(0, |vector| vector.len());
    let (mut change, read) = (change.map(|vector| &mut vector[..len]), read.map(|vector| &vector[..len]));
    // Few vectors are proved apart from each other before the loop, which then is the fastest. Where they are many, lanes are copied
    // out and back, so that none needs to be.
    let whole = if M * M.saturating_sub(1) / 2 + M * R <= PROVED_APART { 0 } else { len / LANES * LANES };
    for at in (0..whole).step_by(LANES) {
        let (mut changed, given) = (lanes(&change, at), lanes(&read, at));
        for lane in 0..LANES {
            let old = numbers(&changed, lane);
            put(&mut changed, lane, F::each(scalars, info, old, numbers(&given, lane)));
        }
        change.iter_mut().zip(&changed).for_each(|(to, from)| to[at..at + LANES].copy_from_slice(from));
    }
    for at in whole..len {
        let old = numbers(&change, at);
        put(&mut change, at, F::each(scalars, info, old, numbers(&read, at)));
    }
}

/// Sums in f64 that are being added up, in lanes.
#[derive(Debug, Clone, Copy)]
pub struct Sums<const K: usize>([[f64; LANES]; K]);

impl<const K: usize> Sums<K> {
    /// Nothing yet.
    pub const ZERO: Sums<K> = Sums([[0.0; LANES]; K]);

    /// The sums, the lanes joined by halves.
    pub fn total(self) -> [f64; K] {
        self.0.map(|mut lanes| {
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for lane in 0..width {
                    lanes[lane] += lanes[lane + width];
                }
            }
            lanes[0]
        })
    }

    /// Adds the terms of one coordinate to a lane.
    #[inline(always)]
    fn add<T: Number + Into<f64>, F: Measure<S, R, K>, const S: usize, const R: usize>(
        &mut self,
        scalars: [f64; S],
        info: TensorInfo<f64>,
        read: [T; R],
        lane: usize,
    ) {
        let mut wide = [0.0; R];
        wide.iter_mut().zip(&read).for_each(|(to, from)| *to = (*from).into());
        // What a term is not taken from is not computed: the compiler leaves it out.
        let (wide, own) = (F::each(scalars, info, wide), F::each(narrow(scalars), info.of(), read));
        for (term, lanes) in self.0.iter_mut().enumerate() {
            lanes[lane] += if F::NARROW[term] { own[term].into() } else { wide[term] };
        }
    }
}

/// Adds the terms of vectors of one length, of one tensor, to sums. Terms are computed in f64, or in the vectors' own
/// numbers where they are [narrow](Measure::NARROW).
///
/// # Panics
/// When a vector is shorter than the first.
#[inline(always)]
pub fn measure<T, F, const S: usize, const R: usize, const K: usize>(
    scalars: [f64; S],
    info: TensorInfo<f64>,
    read: [&[T]; R],
    mut sums: Sums<K>,
) -> Sums<K>
where
    T: Number + Into<f64>,
    F: Measure<S, R, K>,
{
    let len = read.first().map_or(0, |vector| vector.len());
    let read = read.map(|vector| &vector[..len]);
    let whole = len / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let given = lanes(&read, at);
        for lane in 0..LANES {
            sums.add::<T, F, S, R>(scalars, info, numbers(&given, lane), lane);
        }
    }
    for at in whole..len {
        sums.add::<T, F, S, R>(scalars, info, numbers(&read, at), at - whole);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: TensorInfo<f64> = TensorInfo { decay: 0.25, scale: 3.0 };

    /// Three vectors are many: lanes are copied.
    struct Mix;

    impl Change<1, 3, 3> for Mix {
        fn each<N: Number>(
            [a]: [N; 1],
            TensorInfo { decay, scale }: TensorInfo<N>,
            [x, y, z]: [N; 3],
            [g, h, k]: [N; 3],
        ) -> [N; 3] {
            [x * (N::of(1.0) - decay) - a * g, y + scale * h, z * k]
        }
    }

    struct Add;

    impl Change<1, 1, 1> for Add {
        fn each<N: Number>([a]: [N; 1], _: TensorInfo<N>, [x]: [N; 1], [g]: [N; 1]) -> [N; 1] {
            [x + a * g]
        }
    }

    struct Squares;

    impl Measure<1, 2, 2> for Squares {
        fn each<N: Number>([a]: [N; 1], _: TensorInfo<N>, [x, g]: [N; 2]) -> [N; 2] {
            [a * x * x, g]
        }
    }

    struct Both;

    impl Measure<0, 1, 2> for Both {
        const NARROW: [bool; 2] = [true, false];

        fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, [x]: [N; 1]) -> [N; 2] {
            [x * x, x * x]
        }
    }

    /// Of any length, whole lanes or not.
    #[test]
    fn every_coordinate_once() {
        for len in [0, 1, 15, 16, 17, 64, 100] {
            let vector = |k: usize| (0..len).map(|i| (i * k % 23) as f64 - 7.0).collect::<Vec<f64>>();
            let [mut x, mut y, mut z] = [1, 2, 3].map(vector);
            let [g, h, k] = [4, 5, 6].map(vector);
            let wanted: Vec<[f64; 3]> =
                (0..len).map(|i| Mix::each([0.5], INFO, [x[i], y[i], z[i]], [g[i], h[i], k[i]])).collect();
            change::<f64, Mix, 1, 3, 3>([0.5], INFO, [&mut x, &mut y, &mut z], [&g, &h, &k]);
            assert_eq!((0..len).map(|i| [x[i], y[i], z[i]]).collect::<Vec<_>>(), wanted);

            let before = x.clone();
            change::<f64, Add, 1, 1, 1>([2.0], INFO, [&mut x], [&g]);
            assert!((0..len).all(|i| x[i] == before[i] + 2.0 * g[i]));

            // Small integers: exact in any order.
            let squared = measure::<f64, Squares, 1, 2, 2>;
            let once = squared([2.0], INFO, [&g, &h], Sums::ZERO);
            let squares: f64 = g.iter().map(|g| 2.0 * g * g).sum();
            assert_eq!(once.total(), [squares, h.iter().sum()]);
            assert_eq!(squared([2.0], INFO, [&g, &h], once).total()[0], 2.0 * squares, "goes on");
        }
    }

    /// A mean that decays ends at 0, and not at the smallest number whose product with the weight is rounded to itself.
    #[test]
    fn what_is_too_small_for_all_its_digits_is_0() {
        struct Fade;

        impl Change<1, 2, 0> for Fade {
            fn each<N: Number>([keep]: [N; 1], _: TensorInfo<N>, [x, y]: [N; 2], _: [N; 0]) -> [N; 2] {
                [keep * x, keep * y]
            }
        }

        let (smallest, next) = (f32::MIN_POSITIVE, f32::MIN_POSITIVE * 0.5);
        let (mut x, mut y) = ([smallest; 20], [-1e-30f32; 20]);
        change::<f32, Fade, 1, 2, 0>([1.0], INFO, [&mut x, &mut y], []);
        assert!((x, y) == ([smallest; 20], [-1e-30; 20]) && next > 0.0);
        change::<f32, Fade, 1, 2, 0>([0.5], INFO, [&mut x, &mut y], []);
        assert_eq!((x, y), ([0.0; 20], [-0.5e-30; 20]));
        (0..500).for_each(|_| change::<f32, Fade, 1, 2, 0>([0.9], INFO, [&mut x, &mut y], []));
        assert_eq!(y, [0.0; 20]);
        // A 64-bit float is as it is, and what is no number stays none.
        let (mut wide, mut other) = ([1e-310f64; 3], [1.0; 3]);
        change::<f64, Fade, 1, 2, 0>([0.5], INFO, [&mut wide, &mut other], []);
        assert_eq!((wide, other), ([0.5e-310; 3], [0.5; 3]));
        change::<f32, Fade, 1, 2, 0>([f64::NAN], INFO, [&mut x, &mut y], []);
        assert!(x.iter().all(|x| x.is_nan()));
    }

    /// The square of 1e-30 is no 32-bit float.
    #[test]
    fn terms_are_wide_unless_they_may_be_narrow() {
        let small = [1e-30f32; 20];
        let [wide, _] = measure::<f32, Squares, 1, 2, 2>([1.0], INFO, [&small, &small], Sums::ZERO).total();
        assert!((wide / 2e-59 - 1.0).abs() < 1e-6, "{wide}");
        let [narrow, beside] = measure::<f32, Both, 0, 1, 2>([], INFO, [&small], Sums::ZERO).total();
        assert!(narrow == 0.0 && (beside / 2e-59 - 1.0).abs() < 1e-6, "{narrow} {beside}");
    }
}
