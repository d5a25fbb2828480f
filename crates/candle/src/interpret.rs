//! A pass as tensor operations: for any device, and for numbers of 16 bits.

use candle_core::{DType, Device, Result, Tensor};
use untuned::optimizers::formula::{Operation, Program};

/// What an operation gives: a number stays one as long as no tensor meets it.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(f64),
    Tensor(Tensor),
}

/// Computes a program of tensors of one shape, dtype and device.
pub(crate) fn compute(
    program: &Program,
    scalars: &[f64],
    decay: f64,
    vectors: &[Tensor],
) -> Result<Vec<Value>> {
    let used = program.used();
    let mut values: Vec<Value> = Vec::with_capacity(program.operations.len());
    for (operation, used) in program.operations.iter().zip(used) {
        let at = |place: usize| &values[place];
        let value = match *operation {
            _ if !used => Value::Number(0.0),
            Operation::Scalar(i) => Value::Number(scalars[i]),
            Operation::Decay => Value::Number(decay),
            Operation::Vector(i) => Value::Tensor(vectors[i].clone()),
            Operation::Constant(value) => Value::Number(value),
            Operation::Add(a, b) => match (at(a), at(b)) {
                (Value::Number(a), Value::Number(b)) => Value::Number(a + b),
                (Value::Tensor(x), &Value::Number(b)) | (&Value::Number(b), Value::Tensor(x)) => {
                    Value::Tensor(x.affine(1.0, b)?)
                }
                (Value::Tensor(x), Value::Tensor(y)) => Value::Tensor(x.add(y)?),
            },
            Operation::Subtract(a, b) => match (at(a), at(b)) {
                (Value::Number(a), Value::Number(b)) => Value::Number(a - b),
                (Value::Tensor(x), &Value::Number(b)) => Value::Tensor(x.affine(1.0, -b)?),
                (&Value::Number(a), Value::Tensor(y)) => Value::Tensor(y.affine(-1.0, a)?),
                (Value::Tensor(x), Value::Tensor(y)) => Value::Tensor(x.sub(y)?),
            },
            Operation::Multiply(a, b) => match (at(a), at(b)) {
                (Value::Number(a), Value::Number(b)) => Value::Number(a * b),
                (Value::Tensor(x), &Value::Number(b)) | (&Value::Number(b), Value::Tensor(x)) => {
                    Value::Tensor(x.affine(b, 0.0)?)
                }
                (Value::Tensor(x), Value::Tensor(y)) => Value::Tensor(x.mul(y)?),
            },
            Operation::Divide(a, b) => match (at(a), at(b)) {
                (Value::Number(a), Value::Number(b)) => Value::Number(a / b),
                (a, b) => {
                    let (a, b) = pair(a, b)?;
                    Value::Tensor(a.broadcast_div(&b)?)
                }
            },
            Operation::Negate(a) => match at(a) {
                Value::Number(a) => Value::Number(-a),
                Value::Tensor(x) => Value::Tensor(x.neg()?),
            },
            Operation::Root(a) => match at(a) {
                Value::Number(a) => Value::Number(a.sqrt()),
                Value::Tensor(x) => Value::Tensor(x.sqrt()?),
            },
            Operation::Absolute(a) => match at(a) {
                Value::Number(a) => Value::Number(a.abs()),
                Value::Tensor(x) => Value::Tensor(x.abs()?),
            },
            // Not the tensors' own maximum: which of the two a comparison with NaN gives is a part of the formula.
            Operation::Larger(a, b) => above([at(a), at(b), at(a), at(b)])?,
            Operation::Smaller(a, b) => above([at(b), at(a), at(a), at(b)])?,
            Operation::Above(a, b, c, d) => above([at(a), at(b), at(c), at(d)])?,
        };
        values.push(value);
    }
    Ok(program.results.iter().map(|&place| values[place].clone()).collect())
}

/// The third where the first is above the second, else the fourth.
fn above(values: [&Value; 4]) -> Result<Value> {
    let [a, b, then, otherwise] = values;
    if let (Value::Number(a), Value::Number(b)) = (a, b) {
        return Ok(if a > b { then.clone() } else { otherwise.clone() });
    }
    let tensor = |value: &&Value| match value {
        Value::Tensor(tensor) => Some(tensor.clone()),
        Value::Number(_) => None,
    };
    let Some(like) = values.iter().find_map(tensor) else { unreachable!("two numbers have been compared") };
    let wide = |value: &Value| -> Result<Tensor> { lift(value, &like)?.broadcast_as(like.shape()) };
    Ok(Value::Tensor(wide(a)?.gt(&wide(b)?)?.where_cond(&wide(then)?, &wide(otherwise)?)?))
}

/// Both as tensors, of which at least one is one already.
fn pair(a: &Value, b: &Value) -> Result<(Tensor, Tensor)> {
    let ((Value::Tensor(like), _) | (_, Value::Tensor(like))) = (a, b) else {
        unreachable!("one is a tensor")
    };
    Ok((lift(a, like)?, lift(b, like)?))
}

/// A number as a tensor without dimensions.
fn lift(value: &Value, like: &Tensor) -> Result<Tensor> {
    match value {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        Value::Number(number) => scalar(*number, like.dtype(), like.device()),
    }
}

/// A number on a device; not as f64, which some do not know.
pub(crate) fn scalar(number: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    match dtype {
        DType::F64 => Tensor::new(number, device),
        _ => Tensor::new(number as f32, device)?.to_dtype(dtype),
    }
}
