//! An LSTM over a whole sequence, and the regularizers of its last layer.

use super::Cpu;
use super::math::Real;
use crate::device::{Lstm, Regularizers};

#[allow(clippy::too_many_arguments)]
pub fn forward<R: Real>(
    _cpu: &Cpu<R>,
    _layer: &Lstm,
    _x: &[R],
    _input: &[R],
    _carry: &mut [R],
    _gates: &mut [R],
    _cells: &mut [R],
    _out: &mut [R],
) {
    unimplemented!()
}

#[allow(clippy::too_many_arguments)]
pub fn backward<R: Real>(
    _cpu: &Cpu<R>,
    _layer: &Lstm,
    _x: &[R],
    _input: &[R],
    _gates: &mut [R],
    _cells: &[R],
    _out: &[R],
    _d_out: &[R],
    _dx: &mut [R],
    _d_input: &mut [R],
) {
    unimplemented!()
}

pub fn regularizers<R: Real>(_cpu: &Cpu<R>, _shape: Regularizers, _dropped: &[R], _raw: &[R]) -> [f64; 2] {
    unimplemented!()
}

pub fn regularizers_backward<R: Real>(
    _cpu: &Cpu<R>,
    _shape: Regularizers,
    _dropped: &[R],
    _raw: &[R],
    _d_dropped: &[R],
    _d_raw: &mut [R],
) {
    unimplemented!()
}
