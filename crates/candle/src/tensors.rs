//! Candle's operations, for formulas on any device and for numbers of 16 bits.

use candle_core::{DType, Result, Tensor};
use untuned::interpreter::Tensors;

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

    /// In the memory of one number. Only f64 is made from f64: some devices have none.
    fn filled(like: &Tensor, number: f64) -> Result<Tensor> {
        let one = match like.dtype() {
            DType::F64 => Tensor::new(number, like.device()),
            dtype => Tensor::new(number as f32, like.device())?.to_dtype(dtype),
        };
        one?.broadcast_as(like.shape())
    }
}
