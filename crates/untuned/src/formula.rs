//! Formulas: what a pass over vectors computes for every coordinate, written once for all devices.
//!
//! A formula is generic over the [`Number`]s that it computes with. With f64 or f32 it is a loop that the compiler fuses; with
//! [`Symbol`]s it is recorded as a [`Program`], from which a device makes a kernel.

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::rule::short_type_name;

/// What a formula computes with.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// A constant of the formula.
    fn of(value: f64) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The size without the sign.
    fn abs(self) -> Self;
    /// The larger one; `other` where the two do not compare. One instruction, unlike the standard library's.
    fn max(self, other: Self) -> Self;
    /// The smaller one; `other` where the two do not compare.
    fn min(self, other: Self) -> Self;
    /// `then` where this is above `limit`, else `otherwise`. Both are computed.
    fn above(self, limit: Self, then: Self, otherwise: Self) -> Self;
    /// 0 in place of an f32 that is subnormal, and this number otherwise. Passes store this. Means of gradients that stay at 0 decay
    /// to subnormal numbers, never to 0, and some CPUs compute with them many times slower.
    #[inline(always)]
    fn flush_subnormal(self) -> Self {
        self
    }
}

macro_rules! number {
    ($type:ty, $smallest:expr) => {
        impl Number for $type {
            #[inline(always)]
            fn of(value: f64) -> $type {
                value as $type
            }
            #[inline(always)]
            fn sqrt(self) -> $type {
                <$type>::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> $type {
                <$type>::abs(self)
            }
            #[inline(always)]
            fn max(self, other: $type) -> $type {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn min(self, other: $type) -> $type {
                if self < other { self } else { other }
            }
            #[inline(always)]
            fn above(self, limit: $type, then: $type, otherwise: $type) -> $type {
                if self > limit { then } else { otherwise }
            }
            #[inline(always)]
            fn flush_subnormal(self) -> $type {
                if self.abs() < $smallest { 0.0 } else { self }
            }
        }
    };
}

number!(f64, 0.0);
number!(f32, f32::MIN_POSITIVE);

/// Values of a tensor that a formula may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorInfo<N> {
    /// The pass's weight decay where the tensor decays, and 0 elsewhere.
    pub decay: N,
    /// The size of the tensor's numbers at the start, relative to the other tensors: see [`scales`](crate::space::scales). Only a
    /// method that [needs it](crate::Needs::scales) may use it.
    pub scale: N,
}

impl TensorInfo<f64> {
    /// The same in another number type.
    #[inline(always)]
    pub fn of<N: Number>(self) -> TensorInfo<N> {
        TensorInfo { decay: N::of(self.decay), scale: N::of(self.scale) }
    }
}

/// A pass that changes `M` vectors, given `R` others and `S` scalars.
pub trait Change<const S: usize, const M: usize, const R: usize> {
    /// The new numbers of a coordinate.
    fn each<N: Number>(scalars: [N; S], info: TensorInfo<N>, change: [N; M], read: [N; R]) -> [N; M];
}

/// A pass that sums `K` terms over all coordinates of `R` vectors, given `S` scalars.
pub trait Measure<const S: usize, const R: usize, const K: usize> {
    /// Whether the first term is `g²`: nobody then needs another pass for the gradient's norm.
    const HAS_NORM: bool = false;

    /// Which terms a space may compute in its vectors' own type, and only sum in f64. Roots and quotients in f64 can take longer than
    /// reading the vectors. In f32 such a term has 24 bits, and must not overflow where its formula in f64 would not.
    const NARROW: [bool; K] = [false; K];

    /// The terms of a coordinate.
    fn each<N: Number>(scalars: [N; S], info: TensorInfo<N>, read: [N; R]) -> [N; K];
}

/// One operation of a [`Program`]; operands are the indices of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Operation {
    /// The scalar with this number.
    Scalar(usize),
    /// The weight decay of the coordinate.
    Decay,
    /// The scale of the coordinate.
    Scale,
    /// A number of this vector: first those that change, then those that are read.
    Vector(usize),
    Constant(f64),
    Add(usize, usize),
    Subtract(usize, usize),
    Multiply(usize, usize),
    Divide(usize, usize),
    Negate(usize),
    Root(usize),
    Absolute(usize),
    Larger(usize, usize),
    Smaller(usize, usize),
    /// The third where the first is above the second, else the fourth.
    Above(usize, usize, usize, usize),
}

/// A formula as a list of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The name of the formula's type, for messages and kernels.
    pub name: &'static str,
    /// The number of scalars.
    pub scalars: usize,
    /// The number of vectors, both changed and read.
    pub vectors: usize,
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// The indices of the results: the new numbers of the first vectors, or the terms of the sums.
    pub results: Vec<usize>,
}

impl Program {
    /// What a pass does that changes vectors.
    pub fn of_change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>() -> Program {
        record::<F>(S, M + R, || {
            let scalars = std::array::from_fn(|i| Symbol::record(Operation::Scalar(i)));
            let info = Symbol::info();
            let change = std::array::from_fn(|i| Symbol::record(Operation::Vector(i)));
            let read = std::array::from_fn(|i| Symbol::record(Operation::Vector(M + i)));
            F::each(scalars, info, change, read).map(|symbol| symbol.0).to_vec()
        })
    }

    /// What a pass sums.
    pub fn of_measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>() -> Program {
        record::<F>(S, R, || {
            let scalars = std::array::from_fn(|i| Symbol::record(Operation::Scalar(i)));
            let info = Symbol::info();
            let read = std::array::from_fn(|i| Symbol::record(Operation::Vector(i)));
            F::each(scalars, info, read).map(|symbol| symbol.0).to_vec()
        })
    }
}

fn record<F>(scalars: usize, vectors: usize, formula: impl FnOnce() -> Vec<usize>) -> Program {
    let before = RECORD.with(|record| std::mem::take(&mut *record.borrow_mut()));
    let results = formula();
    let operations = RECORD.with(|record| std::mem::replace(&mut *record.borrow_mut(), before));
    Program { name: short_type_name::<F>(), scalars, vectors, operations, results }
}

thread_local! {
    static RECORD: RefCell<Vec<Operation>> = const { RefCell::new(Vec::new()) };
}

/// A number that is not known yet: what is done with it is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Symbol(usize);

impl Symbol {
    fn record(operation: Operation) -> Symbol {
        RECORD.with(|record| {
            let mut record = record.borrow_mut();
            record.push(operation);
            Symbol(record.len() - 1)
        })
    }

    fn info() -> TensorInfo<Symbol> {
        TensorInfo { decay: Symbol::record(Operation::Decay), scale: Symbol::record(Operation::Scale) }
    }
}

macro_rules! operator {
    ($trait:ident, $function:ident, $operation:ident) => {
        impl $trait for Symbol {
            type Output = Symbol;
            fn $function(self, other: Symbol) -> Symbol {
                Symbol::record(Operation::$operation(self.0, other.0))
            }
        }
    };
}

operator!(Add, add, Add);
operator!(Sub, sub, Subtract);
operator!(Mul, mul, Multiply);
operator!(Div, div, Divide);

impl Neg for Symbol {
    type Output = Symbol;
    fn neg(self) -> Symbol {
        Symbol::record(Operation::Negate(self.0))
    }
}

impl Number for Symbol {
    fn of(value: f64) -> Symbol {
        Symbol::record(Operation::Constant(value))
    }
    fn sqrt(self) -> Symbol {
        Symbol::record(Operation::Root(self.0))
    }
    fn abs(self) -> Symbol {
        Symbol::record(Operation::Absolute(self.0))
    }
    fn max(self, other: Symbol) -> Symbol {
        Symbol::record(Operation::Larger(self.0, other.0))
    }
    fn min(self, other: Symbol) -> Symbol {
        Symbol::record(Operation::Smaller(self.0, other.0))
    }
    fn above(self, limit: Symbol, then: Symbol, otherwise: Symbol) -> Symbol {
        Symbol::record(Operation::Above(self.0, limit.0, then.0, otherwise.0))
    }
}

impl Program {
    /// Which operations the results need.
    pub fn used(&self) -> Vec<bool> {
        let mut used = vec![false; self.operations.len()];
        self.results.iter().for_each(|&place| used[place] = true);
        for place in (0..used.len()).rev() {
            if used[place] {
                self.operations[place].operands().for_each(|operand| used[operand] = true);
            }
        }
        used
    }

    /// The same with only these results, each chosen by its number.
    pub fn only(mut self, chosen: impl Fn(usize) -> bool) -> Program {
        let results = self.results.iter().enumerate().filter(|&(number, _)| chosen(number));
        self.results = results.map(|(_, &place)| place).collect();
        self
    }

    /// How many vectors a pass reads.
    pub fn reads(&self) -> usize {
        let reads = |(at, &used): (&Operation, &bool)| used && matches!(at, Operation::Vector(_));
        self.operations.iter().zip(&self.used()).filter(|&pair| reads(pair)).count()
    }

    /// Computes the program with plain numbers, as a device would: the reference for those who make kernels of it.
    pub fn compute(&self, scalars: &[f64], info: TensorInfo<f64>, vectors: &[f64]) -> Vec<f64> {
        let mut values: Vec<f64> = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            let at = |place: usize| values[place];
            values.push(match *operation {
                Operation::Scalar(i) => scalars[i],
                Operation::Decay => info.decay,
                Operation::Scale => info.scale,
                Operation::Vector(i) => vectors[i],
                Operation::Constant(value) => value,
                Operation::Add(a, b) => at(a) + at(b),
                Operation::Subtract(a, b) => at(a) - at(b),
                Operation::Multiply(a, b) => at(a) * at(b),
                Operation::Divide(a, b) => at(a) / at(b),
                Operation::Negate(a) => -at(a),
                Operation::Root(a) => at(a).sqrt(),
                Operation::Absolute(a) => at(a).abs(),
                Operation::Larger(a, b) => Number::max(at(a), at(b)),
                Operation::Smaller(a, b) => Number::min(at(a), at(b)),
                Operation::Above(a, b, c, d) => at(a).above(at(b), at(c), at(d)),
            });
        }
        self.results.iter().map(|&place| values[place]).collect()
    }
}

impl Operation {
    /// The indices of its operands.
    pub fn operands(self) -> impl Iterator<Item = usize> {
        let all = match self {
            Operation::Scalar(_)
            | Operation::Decay
            | Operation::Scale
            | Operation::Vector(_)
            | Operation::Constant(_) => [None; 4],
            Operation::Negate(a) | Operation::Root(a) | Operation::Absolute(a) => [Some(a), None, None, None],
            Operation::Add(a, b)
            | Operation::Subtract(a, b)
            | Operation::Multiply(a, b)
            | Operation::Divide(a, b)
            | Operation::Larger(a, b)
            | Operation::Smaller(a, b) => [Some(a), Some(b), None, None],
            Operation::Above(a, b, c, d) => [Some(a), Some(b), Some(c), Some(d)],
        };
        all.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses every operation.
    struct Everything;

    impl Change<2, 2, 1> for Everything {
        fn each<N: Number>(
            [a, b]: [N; 2],
            TensorInfo { decay, scale }: TensorInfo<N>,
            [x, y]: [N; 2],
            [g]: [N; 1],
        ) -> [N; 2] {
            let r = (a * g * g + N::of(0.5)).sqrt();
            [x - decay * x - scale * b / r, (-y).abs().max(g).min(N::of(3.0)) + x.above(b, g, y)]
        }
    }

    /// Does not look at what it changes.
    struct Overwrite;

    impl Change<0, 1, 1> for Overwrite {
        fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, _: [N; 1], [g]: [N; 1]) -> [N; 1] {
            [g + g]
        }
    }

    struct Terms;

    impl Measure<1, 2, 2> for Terms {
        fn each<N: Number>(
            [a]: [N; 1],
            TensorInfo { decay, scale }: TensorInfo<N>,
            [x, g]: [N; 2],
        ) -> [N; 2] {
            [a * x * g, (g + decay * x).abs() / scale]
        }
    }

    #[test]
    fn a_program_computes_what_its_formula_does() {
        let change = Program::of_change::<Everything, 2, 2, 1>();
        assert_eq!((change.name, change.scalars, change.vectors), ("Everything", 2, 3));
        assert_eq!((change.reads(), Program::of_change::<Overwrite, 0, 1, 1>().reads()), (3, 1));
        let measure = Program::of_measure::<Terms, 1, 2, 2>();
        for [x, y, g] in [[1.0, -2.0, 3.0], [-0.25, 0.5, -4.0], [0.0, 0.0, 0.0], [7.0, 1e-3, 2.5]] {
            let info = TensorInfo { decay: 0.01, scale: 1.5 };
            let direct = Everything::each([0.3, 0.2], info, [x, y], [g]);
            assert_eq!(change.compute(&[0.3, 0.2], info, &[x, y, g]), direct);
            assert_eq!(measure.compute(&[0.3], info, &[x, g]), Terms::each([0.3], info, [x, g]));
        }
    }

    #[test]
    fn programs_do_not_mix() {
        assert_eq!(Program::of_measure::<Terms, 1, 2, 2>(), Program::of_measure::<Terms, 1, 2, 2>());
    }
}
