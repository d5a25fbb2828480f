//! The formulas of the passes that every device has, beside those of the optimizers.

use untuned::formula::{Change, Number, TensorInfo};

/// `x ← part·g`: the first of several gradients whose mean is wanted.
pub struct Part;

impl Change<1, 1, 1> for Part {
    #[inline(always)]
    fn each<N: Number>([part]: [N; 1], _: TensorInfo<N>, _: [N; 1], [g]: [N; 1]) -> [N; 1] {
        [part * g]
    }
}

/// `x ← a·x + b·y`: the others.
pub struct Combine;

impl Change<2, 1, 1> for Combine {
    #[inline(always)]
    fn each<N: Number>([a, b]: [N; 2], _: TensorInfo<N>, [x]: [N; 1], [y]: [N; 1]) -> [N; 1] {
        [a * x + b * y]
    }
}
