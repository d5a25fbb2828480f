//! Candle's operations, for formulas on any device and for numbers of 16 bits.

use candle_core::{DType, Device, Result, Tensor};
use untuned::optimizers::interpreter::Tensors;

/// Those of tensors of one shape.
pub(crate) struct OneShape;

impl Tensors for OneShape {
    type Tensor = Tensor;
    type Error = candle_core::Error;

    fn add(a: Tensor, b: Tensor) -> Result<Tensor> {
        a.add(&b)
    }

    fn subtract(a: Tensor, b: Tensor) -> Result<Tensor> {
        a.sub(&b)
    }

    fn multiply(a: Tensor, b: Tensor) -> Result<Tensor> {
        a.mul(&b)
    }

    fn divide(a: Tensor, b: Tensor) -> Result<Tensor> {
        a.div(&b)
    }

    fn add_number(a: Tensor, number: f64) -> Result<Tensor> {
        a.affine(1.0, number)
    }

    fn multiply_number(a: Tensor, number: f64) -> Result<Tensor> {
        a.affine(number, 0.0)
    }

    fn divide_number(a: Tensor, number: f64) -> Result<Tensor> {
        a.div(&OneShape::filled(&a, number)?)
    }

    fn negate(a: Tensor) -> Result<Tensor> {
        a.neg()
    }

    fn root(a: Tensor) -> Result<Tensor> {
        a.sqrt()
    }

    fn absolute(a: Tensor) -> Result<Tensor> {
        a.abs()
    }

    fn above(a: Tensor, b: Tensor, then: Tensor, otherwise: Tensor) -> Result<Tensor> {
        a.gt(&b)?.where_cond(&then, &otherwise)
    }

    /// In the memory of one number.
    fn filled(like: &Tensor, number: f64) -> Result<Tensor> {
        scalar(number, like.dtype(), like.device())?.broadcast_as(like.shape())
    }
}

/// A number on a device; not as f64, which some do not know.
pub(crate) fn scalar(number: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    match dtype {
        DType::F64 => Tensor::new(number, device),
        _ => Tensor::new(number as f32, device)?.to_dtype(dtype),
    }
}
