//! A product with a matrix, its bias and its activation.

use super::commands::Launch;
use super::{Buffer, Cuda, Parameters, vector};
use crate::device::{Activation, Linear, Write};

/// A launch over `len` numbers, eight to a thread.
fn over(name: &'static str, len: usize) -> Launch {
    Launch::new(name, [len.div_ceil(8 * 256), 1, 1], 256)
}

/// `y = activation(x·Wᵀ + b)`. With an activation, `before` holds `x·Wᵀ + b`.
pub fn forward(
    cuda: &Cuda,
    layer: &Linear,
    rows: usize,
    x: &Parameters,
    input: &Buffer,
    out: &mut Buffer,
    before: Option<&mut Buffer>,
) {
    let (outputs, inputs) = (layer.weight.rows, layer.weight.columns);
    assert!(
        before.is_some() || layer.activation == Activation::None,
        "an activation needs a place for what it is applied to"
    );
    let product = match &before {
        Some(before) => before.matrix(rows, outputs),
        None => out.matrix(rows, outputs),
    };
    cuda.product(product, input.matrix(rows, inputs), cuda.weight(x, layer.weight).t(), Write::Set);
    let len = rows * outputs;
    if let Some(bias) = layer.bias {
        cuda.launch(
            Launch::over("add_bias", len)
                .with(product.address)
                .with(x.at(bias))
                .with(len as u64)
                .with(outputs),
        );
    }
    let Some(before) = before else { return };
    let width = layer.outputs();
    match layer.activation {
        Activation::None => cuda.copy_bytes(before.address(), out.address(), len * out.kind.size()),
        Activation::Gelu | Activation::GeluTanh => {
            let name = if layer.activation == Activation::Gelu { "gelu" } else { "gelu_tanh" };
            cuda.launch(over(name, len).with(before.address()).with(out.address()).with(len as u64));
        }
        Activation::GatedGelu => cuda.launch(
            match width.is_multiple_of(8) {
                true => Launch::over("gated_8", rows * width / 8),
                false => Launch::over("gated_1", rows * width),
            }
            .with(before.address())
            .with(out.address())
            .with(rows)
            .with(width),
        ),
    }
}

/// With `e` the gradient of `x·Wᵀ + b`: `dW = eᵀ·x`, `db = Σ_rows e`, `d_x = e·W`.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    cuda: &Cuda,
    layer: &Linear,
    rows: usize,
    x: &Parameters,
    input: &Buffer,
    before: Option<&mut Buffer>,
    d_out: &Buffer,
    dx: &mut Parameters,
    d_input: Option<(&mut Buffer, Write)>,
) {
    let (outputs, inputs) = (layer.weight.rows, layer.weight.columns);
    let (len, width) = (rows * outputs, layer.outputs());
    let e = match (layer.activation, before) {
        (Activation::None, _) => d_out.matrix(rows, outputs),
        (_, None) => panic!("an activation's backward pass needs what it was applied to"),
        (activation, Some(before)) => {
            let launch = match activation {
                Activation::Gelu => over("gelu_backward", len),
                Activation::GeluTanh => over("gelu_tanh_backward", len),
                _ if width.is_multiple_of(8) => Launch::over("gated_backward_8", rows * width / 8),
                _ => Launch::over("gated_backward_1", rows * width),
            };
            let launch = launch.with(before.address()).with(d_out.address());
            cuda.launch(match activation {
                Activation::GatedGelu => launch.with(rows).with(width),
                _ => launch.with(len as u64),
            });
            before.matrix(rows, outputs)
        }
    };
    if let Some(bias) = layer.bias {
        vector::column_sums(cuda, e, dx.at(bias), Write::Set);
    }
    cuda.product(dx.matrix(layer.weight), e.t(), input.matrix(rows, inputs), Write::Set);
    if let Some((d_input, write)) = d_input {
        cuda.product(d_input.matrix(rows, inputs), e, cuda.weight(x, layer.weight), write);
    }
}
