//! A product with a matrix, its bias and its activation.

use super::math::{self, Real, dispatch};
use super::matrix::{Matrix, MatrixMut, Write};
use super::{Cpu, vector};
use crate::device::{Activation, Linear};
use rayon::prelude::*;

/// `y = activation(x·Wᵀ + b)`. With an activation, `before` holds `x·Wᵀ + b`.
pub fn forward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Linear,
    rows: usize,
    x: &[R],
    input: &[R],
    out: &mut [R],
    before: Option<&mut [R]>,
) {
    let (outputs, inputs) = (layer.weight.rows, layer.weight.columns);
    let weight = Matrix::new(&x[layer.weight.range()], outputs, inputs, inputs);
    let input = Matrix::new(input, rows, inputs, inputs);
    let bias = layer.bias.map(|bias| &x[bias.range()]);
    let product = |to: &mut [R]| {
        cpu.product(MatrixMut::new(to, rows, outputs, outputs), input, weight.t(), Write::Set);
        let Some(bias) = bias else { return };
        let one = |to: &mut [R]| {
            dispatch(
                #[inline(always)]
                || to.iter_mut().zip(bias).for_each(|(to, &bias)| *to += bias),
            );
        };
        cpu.pool.install(|| to[..rows * outputs].par_chunks_mut(outputs).for_each(one));
    };
    let Some(before) = before else {
        assert_eq!(
            layer.activation,
            Activation::None,
            "an activation needs a place for what it is applied to"
        );
        return product(out);
    };
    product(before);
    let width = layer.outputs();
    let part = cpu.rows_per_part(rows, outputs);
    let one = |(out, before): (&mut [R], &[R])| match layer.activation {
        Activation::None => out.copy_from_slice(before),
        Activation::Gelu => math::gelu(before, out),
        Activation::GeluTanh => math::gelu_tanh(before, out),
        Activation::GatedGelu => {
            for (out, before) in out.chunks_exact_mut(width).zip(before.chunks_exact(outputs)) {
                let (a, g) = before.split_at(width);
                math::gated_gelu(a, g, out);
            }
        }
    };
    let work = out[..rows * width].par_chunks_mut(part * width);
    let before = &before[..rows * outputs];
    cpu.pool.install(|| work.zip(before.par_chunks(part * outputs)).for_each(one));
}

/// With `e = d_out ∘ activation'(before)`, which overwrites `before`: `dW = eᵀ·x`, `db = Σ_rows e`, `d_x = e·W`.
#[allow(clippy::too_many_arguments)]
pub fn backward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Linear,
    rows: usize,
    x: &[R],
    input: &[R],
    before: Option<&mut [R]>,
    d_out: &[R],
    dx: &mut [R],
    d_input: Option<(&mut [R], Write)>,
) {
    let (outputs, inputs) = (layer.weight.rows, layer.weight.columns);
    let e = match before {
        Some(before) if layer.activation != Activation::None => {
            activation_backward(cpu, layer, rows, &mut before[..rows * outputs], d_out);
            &*before
        }
        _ => d_out,
    };
    let e = Matrix::new(&e[..rows * outputs], rows, outputs, outputs);
    let input = Matrix::new(input, rows, inputs, inputs);
    let weight = Matrix::new(&x[layer.weight.range()], outputs, inputs, inputs);
    let d_weight = &mut dx[layer.weight.range()];
    cpu.product(MatrixMut::new(d_weight, outputs, inputs, inputs), e.t(), input, Write::Set);
    if let Some(bias) = layer.bias {
        vector::column_sums(cpu, e.numbers(), &mut dx[bias.range()], Write::Set);
    }
    if let Some((d_input, write)) = d_input {
        cpu.product(MatrixMut::new(d_input, rows, inputs, inputs), e, weight, write);
    }
}

/// `before = d_out ∘ activation'(before)`.
fn activation_backward<R: Real>(cpu: &Cpu<R>, layer: &Linear, rows: usize, before: &mut [R], d_out: &[R]) {
    let (outputs, width) = (layer.weight.rows, layer.outputs());
    let part = cpu.rows_per_part(rows, outputs);
    let one = |(before, d_out): (&mut [R], &[R])| {
        dispatch(
            #[inline(always)]
            || match layer.activation {
                Activation::None => {}
                Activation::Gelu => {
                    for (x, &d) in before.iter_mut().zip(d_out) {
                        *x = d * math::gelu_and_slope(*x).1;
                    }
                }
                Activation::GeluTanh => {
                    for (x, &d) in before.iter_mut().zip(d_out) {
                        *x = d * math::gelu_tanh_and_slope(*x).1;
                    }
                }
                Activation::GatedGelu => {
                    for (before, d_out) in before.chunks_exact_mut(outputs).zip(d_out.chunks_exact(width)) {
                        let (a, g) = before.split_at_mut(width);
                        for ((a, g), &d) in a.iter_mut().zip(g).zip(d_out) {
                            let (value, slope) = math::gelu_tanh_and_slope(*a);
                            *a = d * *g * slope;
                            *g = d * value;
                        }
                    }
                }
            },
        );
    };
    let d_out = &d_out[..rows * width];
    cpu.pool
        .install(|| before.par_chunks_mut(part * outputs).zip(d_out.par_chunks(part * width)).for_each(one));
}
