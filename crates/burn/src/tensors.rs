//! Burn's operations, for formulas on any device.

use std::convert::Infallible;

use burn::tensor::Tensor;
use untuned::optimizers::interpreter::Tensors;

/// Those of a list of numbers.
pub(crate) struct Lists;

type Computed = Result<Tensor<1>, Infallible>;

impl Tensors for Lists {
    type Tensor = Tensor<1>;
    type Error = Infallible;

    fn add(a: Tensor<1>, b: Tensor<1>) -> Computed {
        Ok(a.add(b))
    }

    fn subtract(a: Tensor<1>, b: Tensor<1>) -> Computed {
        Ok(a.sub(b))
    }

    fn multiply(a: Tensor<1>, b: Tensor<1>) -> Computed {
        Ok(a.mul(b))
    }

    fn divide(a: Tensor<1>, b: Tensor<1>) -> Computed {
        Ok(a.div(b))
    }

    fn add_number(a: Tensor<1>, number: f64) -> Computed {
        Ok(a.add_scalar(number))
    }

    fn multiply_number(a: Tensor<1>, number: f64) -> Computed {
        Ok(a.mul_scalar(number))
    }

    fn divide_number(a: Tensor<1>, number: f64) -> Computed {
        Ok(a.div_scalar(number))
    }

    fn negate(a: Tensor<1>) -> Computed {
        Ok(a.neg())
    }

    fn root(a: Tensor<1>) -> Computed {
        Ok(a.sqrt())
    }

    fn absolute(a: Tensor<1>) -> Computed {
        Ok(a.abs())
    }

    fn above(a: Tensor<1>, b: Tensor<1>, then: Tensor<1>, otherwise: Tensor<1>) -> Computed {
        Ok(otherwise.mask_where(a.greater(b), then))
    }

    fn filled(like: &Tensor<1>, number: f64) -> Computed {
        Ok(like.full_like(number))
    }
}
