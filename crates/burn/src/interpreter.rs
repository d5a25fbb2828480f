//! Runs a formula's [`Program`] with tensor operations, on any device.

use burn::tensor::{DType, Tensor};
use untuned::optimizers::formula::{Operation, Program};

/// A scalar is computed here and not on the device.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // A few dozen at a time, and a box would be an allocation for each.
pub(crate) enum Value {
    Scalar(f64),
    Tensor(Tensor<1>),
}

/// A program, and when each of its values is needed last.
pub(crate) struct Plan {
    program: Program,
    used: Vec<bool>,
    /// The last operation that needs the value; none where the value is a result.
    last: Vec<Option<usize>>,
}

impl Plan {
    pub(crate) fn new(program: Program) -> Plan {
        let used = program.used();
        let mut last = vec![None; used.len()];
        for (at, operation) in program.operations.iter().enumerate().filter(|&(at, _)| used[at]) {
            operation.operands().for_each(|operand| last[operand] = Some(at));
        }
        program.results.iter().for_each(|&place| last[place] = None);
        Plan { program, used, last }
    }

    /// The results for vectors of the type `dtype`, F32 or F64, in which scalars are rounded, too.
    pub(crate) fn run(
        &self,
        dtype: DType,
        scalars: &[f64],
        decay: f64,
        mut vector: impl FnMut(usize) -> Tensor<1>,
    ) -> Vec<Value> {
        let mut values: Vec<Option<Value>> = vec![None; self.used.len()];
        for (now, &operation) in self.program.operations.iter().enumerate().filter(|&(at, _)| self.used[at]) {
            let operands: Vec<usize> = operation.operands().collect();
            // A value that is not needed again is moved, so that the device may compute in its place.
            let mut operands = operands.iter().enumerate().map(|(i, &place)| {
                let again = self.last[place] != Some(now) || operands[i + 1..].contains(&place);
                if again { values[place].clone() } else { values[place].take() }
            });
            let mut next = || operands.next().flatten().expect("an operand is computed before it is used");
            let value = match operation {
                Operation::Scalar(i) => Value::Scalar(scalars[i]),
                Operation::Decay => Value::Scalar(decay),
                Operation::Vector(i) => Value::Tensor(vector(i)),
                Operation::Constant(value) => Value::Scalar(value),
                Operation::Add(..) => add(next(), next()),
                Operation::Subtract(..) => subtract(next(), next()),
                Operation::Multiply(..) => multiply(next(), next()),
                Operation::Divide(..) => divide(next(), next()),
                Operation::Negate(_) => one(next(), |a| -a, Tensor::neg),
                Operation::Root(_) => one(next(), f64::sqrt, Tensor::sqrt),
                Operation::Absolute(_) => one(next(), f64::abs, Tensor::abs),
                Operation::Larger(..) => {
                    let (a, b) = (next(), next());
                    above(a.clone(), b.clone(), a, b)
                }
                Operation::Smaller(..) => {
                    let (a, b) = (next(), next());
                    above(b.clone(), a.clone(), a, b)
                }
                Operation::Above(..) => above(next(), next(), next(), next()),
            };
            values[now] = Some(value.rounded(dtype));
        }
        let result = |&place: &usize| values[place].clone().expect("a result is computed");
        self.program.results.iter().map(result).collect()
    }
}

impl Value {
    /// A scalar as the type of the vectors holds it: the operations then round as those of a loop over the numbers.
    fn rounded(self, dtype: DType) -> Value {
        match self {
            Value::Scalar(value) if dtype != DType::F64 => Value::Scalar(f64::from(value as f32)),
            other => other,
        }
    }

    /// As a tensor like another one.
    fn like(self, other: &Tensor<1>) -> Tensor<1> {
        match self {
            Value::Scalar(value) => other.full_like(value),
            Value::Tensor(tensor) => tensor,
        }
    }
}

fn one(a: Value, scalar: fn(f64) -> f64, tensor: fn(Tensor<1>) -> Tensor<1>) -> Value {
    match a {
        Value::Scalar(a) => Value::Scalar(scalar(a)),
        Value::Tensor(a) => Value::Tensor(tensor(a)),
    }
}

fn add(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(a + b),
        (Value::Tensor(a), Value::Scalar(b)) | (Value::Scalar(b), Value::Tensor(a)) => {
            Value::Tensor(a.add_scalar(b))
        }
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(a.add(b)),
    }
}

fn subtract(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(a - b),
        (Value::Tensor(a), Value::Scalar(b)) => Value::Tensor(a.sub_scalar(b)),
        (Value::Scalar(a), Value::Tensor(b)) => Value::Tensor(b.neg().add_scalar(a)),
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(a.sub(b)),
    }
}

fn multiply(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(a * b),
        // What does not decay is multiplied with 1.
        (Value::Tensor(a), Value::Scalar(1.0)) | (Value::Scalar(1.0), Value::Tensor(a)) => Value::Tensor(a),
        (Value::Tensor(a), Value::Scalar(b)) | (Value::Scalar(b), Value::Tensor(a)) => {
            Value::Tensor(a.mul_scalar(b))
        }
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(a.mul(b)),
    }
}

fn divide(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(a / b),
        (Value::Tensor(a), Value::Scalar(b)) => Value::Tensor(a.div_scalar(b)),
        (Value::Scalar(a), Value::Tensor(b)) => Value::Tensor(b.full_like(a).div(b)),
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(a.div(b)),
    }
}

/// `then` where `a` is above `b`, else `otherwise`.
fn above(a: Value, b: Value, then: Value, otherwise: Value) -> Value {
    let (a, b) = match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => return if a > b { then } else { otherwise },
        (Value::Tensor(a), b) => (a.clone(), b.like(&a)),
        (a, Value::Tensor(b)) => (a.like(&b), b),
    };
    let (then, otherwise) = (then.like(&a), otherwise.like(&a));
    Value::Tensor(otherwise.mask_where(a.greater(b), then))
}
