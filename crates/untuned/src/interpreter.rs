//! A formula as the operations of a framework's tensors: for devices that only the framework reaches.

use crate::formula::{Operation, Program, TensorInfo};

/// A framework's operations. The tensors of a run are of one shape, type and device.
pub trait Tensors {
    /// A number for each coordinate.
    type Tensor: Clone;
    /// Why the framework could not compute something.
    type Error;

    /// `a + b`.
    fn add(a: Self::Tensor, b: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `a − b`.
    fn subtract(a: Self::Tensor, b: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `a·b`.
    fn multiply(a: Self::Tensor, b: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `a/b`.
    fn divide(a: Self::Tensor, b: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `a + number`.
    fn add_number(a: Self::Tensor, number: f64) -> Result<Self::Tensor, Self::Error>;
    /// `a·number`.
    fn multiply_number(a: Self::Tensor, number: f64) -> Result<Self::Tensor, Self::Error>;
    /// `a/number`, and not its product with `1/number`, which is rounded twice.
    fn divide_number(a: Self::Tensor, number: f64) -> Result<Self::Tensor, Self::Error>;
    /// `−a`.
    fn negate(a: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `√a`.
    fn root(a: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `|a|`.
    fn absolute(a: Self::Tensor) -> Result<Self::Tensor, Self::Error>;
    /// `then` where `a > b`, else `otherwise`; so also where one of the two is not a number.
    fn above(
        a: Self::Tensor,
        b: Self::Tensor,
        then: Self::Tensor,
        otherwise: Self::Tensor,
    ) -> Result<Self::Tensor, Self::Error>;
    /// A tensor like another one, of one number.
    fn filled(like: &Self::Tensor, number: f64) -> Result<Self::Tensor, Self::Error>;
}

/// What an operation gives: a number stays one as long as no tensor meets it.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Value<T> {
    Number(f64),
    Tensor(T),
}

/// A program, and when each of its values is needed last.
#[derive(Debug)]
pub struct Plan {
    program: Program,
    used: Vec<bool>,
    /// The last operation that needs the value; none where the value is a result.
    last: Vec<Option<usize>>,
}

impl Plan {
    /// For a program.
    pub fn new(program: Program) -> Plan {
        let used = program.used();
        let mut last = vec![None; used.len()];
        for (at, operation) in program.operations.iter().enumerate().filter(|&(at, _)| used[at]) {
            operation.operands().for_each(|operand| last[operand] = Some(at));
        }
        program.results.iter().for_each(|&place| last[place] = None);
        Plan { program, used, last }
    }

    /// The program's results. With `narrow`, the tensors are of f32, and numbers are rounded to that after every operation, as a loop
    /// over the coordinates does it.
    ///
    /// # Errors
    /// Those of the operations and of `vector`.
    pub fn run<F: Tensors>(
        &self,
        narrow: bool,
        scalars: &[f64],
        info: TensorInfo<f64>,
        mut vector: impl FnMut(usize) -> Result<F::Tensor, F::Error>,
    ) -> Result<Vec<Value<F::Tensor>>, F::Error> {
        let mut values: Vec<Option<Value<F::Tensor>>> = vec![None; self.used.len()];
        for (now, &operation) in self.program.operations.iter().enumerate().filter(|&(at, _)| self.used[at]) {
            let operands: Vec<usize> = operation.operands().collect();
            // A value that is not needed again is moved, so that the framework may compute in its place.
            let mut operands = operands.iter().enumerate().map(|(i, &place)| {
                let again = self.last[place] != Some(now) || operands[i + 1..].contains(&place);
                if again { values[place].clone() } else { values[place].take() }
            });
            let mut next = || operands.next().flatten().expect("an operand is computed before it is used");
            let value = match operation {
                Operation::Scalar(i) => Value::Number(scalars[i]),
                Operation::Decay => Value::Number(info.decay),
                Operation::Scale => Value::Number(info.scale),
                Operation::Vector(i) => Value::Tensor(vector(i)?),
                Operation::Constant(value) => Value::Number(value),
                Operation::Add(..) => add::<F>(next(), next())?,
                Operation::Subtract(..) => subtract::<F>(next(), next())?,
                Operation::Multiply(..) => multiply::<F>(next(), next())?,
                Operation::Divide(..) => divide::<F>(next(), next())?,
                Operation::Negate(_) => one(next(), |a| -a, F::negate)?,
                Operation::Root(_) => one(next(), f64::sqrt, F::root)?,
                Operation::Absolute(_) => one(next(), f64::abs, F::absolute)?,
                Operation::Larger(..) => {
                    let (a, b) = (next(), next());
                    above::<F>(a.clone(), b.clone(), a, b)?
                }
                Operation::Smaller(..) => {
                    let (a, b) = (next(), next());
                    above::<F>(b.clone(), a.clone(), a, b)?
                }
                Operation::Above(..) => above::<F>(next(), next(), next(), next())?,
            };
            values[now] = Some(match value {
                Value::Number(value) if narrow => Value::Number(f64::from(value as f32)),
                other => other,
            });
        }
        let result = |&place: &usize| values[place].clone().expect("a result is computed");
        Ok(self.program.results.iter().map(result).collect())
    }
}

fn one<T, E>(a: Value<T>, number: fn(f64) -> f64, tensor: fn(T) -> Result<T, E>) -> Result<Value<T>, E> {
    Ok(match a {
        Value::Number(a) => Value::Number(number(a)),
        Value::Tensor(a) => Value::Tensor(tensor(a)?),
    })
}

type Computed<F> = Result<Value<<F as Tensors>::Tensor>, <F as Tensors>::Error>;

fn add<F: Tensors>(a: Value<F::Tensor>, b: Value<F::Tensor>) -> Computed<F> {
    Ok(match (a, b) {
        (Value::Number(a), Value::Number(b)) => Value::Number(a + b),
        (Value::Tensor(a), Value::Number(b)) | (Value::Number(b), Value::Tensor(a)) => {
            Value::Tensor(F::add_number(a, b)?)
        }
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(F::add(a, b)?),
    })
}

fn subtract<F: Tensors>(a: Value<F::Tensor>, b: Value<F::Tensor>) -> Computed<F> {
    Ok(match (a, b) {
        (Value::Number(a), Value::Number(b)) => Value::Number(a - b),
        (Value::Tensor(a), Value::Number(b)) => Value::Tensor(F::add_number(a, -b)?),
        (Value::Number(a), Value::Tensor(b)) => Value::Tensor(F::add_number(F::negate(b)?, a)?),
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(F::subtract(a, b)?),
    })
}

fn multiply<F: Tensors>(a: Value<F::Tensor>, b: Value<F::Tensor>) -> Computed<F> {
    Ok(match (a, b) {
        (Value::Number(a), Value::Number(b)) => Value::Number(a * b),
        // What does not decay is multiplied with 1.
        (Value::Tensor(a), Value::Number(1.0)) | (Value::Number(1.0), Value::Tensor(a)) => Value::Tensor(a),
        (Value::Tensor(a), Value::Number(b)) | (Value::Number(b), Value::Tensor(a)) => {
            Value::Tensor(F::multiply_number(a, b)?)
        }
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(F::multiply(a, b)?),
    })
}

fn divide<F: Tensors>(a: Value<F::Tensor>, b: Value<F::Tensor>) -> Computed<F> {
    Ok(match (a, b) {
        (Value::Number(a), Value::Number(b)) => Value::Number(a / b),
        (Value::Tensor(a), Value::Number(b)) => Value::Tensor(F::divide_number(a, b)?),
        (Value::Number(a), Value::Tensor(b)) => Value::Tensor(F::divide(F::filled(&b, a)?, b)?),
        (Value::Tensor(a), Value::Tensor(b)) => Value::Tensor(F::divide(a, b)?),
    })
}

/// `then` where `a` is above `b`, else `otherwise`.
fn above<F: Tensors>(
    a: Value<F::Tensor>,
    b: Value<F::Tensor>,
    then: Value<F::Tensor>,
    otherwise: Value<F::Tensor>,
) -> Computed<F> {
    let like = match (&a, &b) {
        (Value::Number(a), Value::Number(b)) => return Ok(if a > b { then } else { otherwise }),
        (Value::Tensor(like), _) | (_, Value::Tensor(like)) => like.clone(),
    };
    let tensor = |value: Value<F::Tensor>| match value {
        Value::Number(number) => F::filled(&like, number),
        Value::Tensor(tensor) => Ok(tensor),
    };
    Ok(Value::Tensor(F::above(tensor(a)?, tensor(b)?, tensor(then)?, tensor(otherwise)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formula::{Change, Number};

    /// Tensors of f32; each operation says no where it would compute an operand that is 13.
    struct Lists;

    fn each(a: Vec<f32>, work: impl Fn(f32) -> f32) -> Result<Vec<f32>, &'static str> {
        if a.contains(&13.0) { Err("unlucky") } else { Ok(a.into_iter().map(work).collect()) }
    }

    fn both(a: Vec<f32>, b: Vec<f32>, work: impl Fn(f32, f32) -> f32) -> Result<Vec<f32>, &'static str> {
        Ok(a.into_iter().zip(b).map(|(a, b)| work(a, b)).collect())
    }

    impl Tensors for Lists {
        type Tensor = Vec<f32>;
        type Error = &'static str;

        fn add(a: Vec<f32>, b: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            both(a, b, |a, b| a + b)
        }
        fn subtract(a: Vec<f32>, b: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            both(a, b, |a, b| a - b)
        }
        fn multiply(a: Vec<f32>, b: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            both(a, b, |a, b| a * b)
        }
        fn divide(a: Vec<f32>, b: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            both(a, b, |a, b| a / b)
        }
        fn add_number(a: Vec<f32>, number: f64) -> Result<Vec<f32>, &'static str> {
            each(a, |a| a + number as f32)
        }
        fn multiply_number(a: Vec<f32>, number: f64) -> Result<Vec<f32>, &'static str> {
            each(a, |a| a * number as f32)
        }
        fn divide_number(a: Vec<f32>, number: f64) -> Result<Vec<f32>, &'static str> {
            each(a, |a| a / number as f32)
        }
        fn negate(a: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            each(a, |a| -a)
        }
        fn root(a: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            each(a, f32::sqrt)
        }
        fn absolute(a: Vec<f32>) -> Result<Vec<f32>, &'static str> {
            each(a, f32::abs)
        }
        fn above(
            a: Vec<f32>,
            b: Vec<f32>,
            then: Vec<f32>,
            otherwise: Vec<f32>,
        ) -> Result<Vec<f32>, &'static str> {
            let chosen = a.iter().zip(&b).zip(then.iter().zip(&otherwise));
            Ok(chosen.map(|((a, b), (then, otherwise))| if a > b { *then } else { *otherwise }).collect())
        }
        fn filled(like: &Vec<f32>, number: f64) -> Result<Vec<f32>, &'static str> {
            Ok(vec![number as f32; like.len()])
        }
    }

    /// Every operation, between tensors, between numbers, and between both in both orders.
    struct Everything;

    impl Change<3, 2, 1> for Everything {
        fn each<N: Number>(
            [a, b, c]: [N; 3],
            TensorInfo { decay, scale }: TensorInfo<N>,
            [x, y]: [N; 2],
            [g]: [N; 1],
        ) -> [N; 2] {
            let one = N::of(1.0);
            let numbers = ((a + b) * (one - decay) / (scale * c) - a).sqrt().abs();
            let mixed = (a + x) * (y + b) + (a - x) * (y - b) - (a * x) / (y * b) + (a / y) / b - (x / a);
            let chosen = a.above(b, x, y) + x.above(a, g, b) - a.above(x, c, g) + x.above(y, a, b);
            let ends = x.max(y).min(g) + a.max(x) - x.min(b) + a.max(b) - (-g).abs() * one;
            [mixed + numbers * chosen, ends + (x * x + y / g).abs().sqrt()]
        }
    }

    const SCALARS: [f64; 3] = [0.3, 0.1, 0.7];
    const HERE: TensorInfo<f64> = TensorInfo { decay: 0.01, scale: 0.8 };

    fn run(x: &[f32], y: &[f32], g: &[f32]) -> Result<Vec<Vec<f32>>, &'static str> {
        let plan = Plan::new(Program::of_change::<Everything, 3, 2, 1>());
        let results = plan.run::<Lists>(true, &SCALARS, HERE, |i| Ok([x, y, g][i].to_vec()))?;
        let tensor = |value| match value {
            Value::Tensor(tensor) => tensor,
            Value::Number(number) => panic!("{number} is no tensor"),
        };
        Ok(results.into_iter().map(tensor).collect())
    }

    #[test]
    fn tensors_get_what_a_loop_over_f32_computes() {
        let x = [1.0, -2.5, 0.3, f32::NAN, 1e-3];
        let y = [0.5, 3.0, 0.2, 1.0, -7.0];
        let g = [-1.5, 0.25, 2.0, 0.5, f32::INFINITY];
        let got = run(&x, &y, &g).unwrap();
        for i in 0..x.len() {
            let want = Everything::each(SCALARS.map(|s| s as f32), HERE.of(), [x[i], y[i]], [g[i]]);
            for (got, want) in got.iter().zip(want) {
                assert_eq!(got[i].to_bits(), want.to_bits(), "{} and not {want} at {i}", got[i]);
            }
        }
    }

    #[test]
    fn what_the_framework_cannot_do_ends_it() {
        assert_eq!(run(&[13.0], &[1.0], &[1.0]), Err("unlucky"));
    }

    /// A formula of numbers alone gives a number, f32 or f64.
    #[test]
    fn numbers_stay_numbers() {
        struct Third;
        impl Change<1, 1, 0> for Third {
            fn each<N: Number>([a]: [N; 1], _: TensorInfo<N>, _: [N; 1], _: [N; 0]) -> [N; 1] {
                [a / N::of(3.0)]
            }
        }
        let plan = Plan::new(Program::of_change::<Third, 1, 1, 0>());
        for (narrow, third) in [(true, f64::from(1.0f32 / 3.0)), (false, 1.0 / 3.0)] {
            let results = plan.run::<Lists>(narrow, &[1.0], HERE, |_| Err("not needed")).unwrap();
            assert!(matches!(results[..], [Value::Number(number)] if number == third), "{results:?}");
        }
    }
}
