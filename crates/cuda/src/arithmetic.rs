//! The operations of a formula as expressions of CUDA C++.

use untuned::formula::{Operation, Program};

/// What a kernel computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// f32.
    Single,
    /// f64, where a product of f32 is exact and leaves no range; only quotients and roots, which take some twenty operations of f64
    /// each, are f32.
    Mixed,
    /// f64.
    Double,
}

impl Arithmetic {
    /// The type of its numbers.
    pub fn number(self) -> &'static str {
        match self {
            Arithmetic::Single => "float",
            Arithmetic::Mixed | Arithmetic::Double => "double",
        }
    }

    /// What an operation is called: what is given by `given`, a constant by its bits, and what is computed by its place.
    pub fn operand(self, program: &Program, place: usize, given: impl Fn(Operation) -> String) -> String {
        match program.operations[place] {
            // The bits, because a text with all digits has no infinities.
            Operation::Constant(value) => match self {
                Arithmetic::Single => {
                    format!("__uint_as_float({:#x}u) /* {value} */", (value as f32).to_bits())
                }
                _ => format!("__longlong_as_double({:#x}ull) /* {value} */", value.to_bits()),
            },
            operation @ (Operation::Scalar(_)
            | Operation::Decay
            | Operation::Scale
            | Operation::Vector(_)) => given(operation),
            _ => format!("t{place}"),
        }
    }

    /// What an operation computes from operands that `at` names; `None` for what is given.
    pub fn computed(self, operation: Operation, at: impl Fn(usize) -> String) -> Option<String> {
        let narrow = |place: usize| match self {
            Arithmetic::Mixed => format!("(float)({})", at(place)),
            _ => at(place),
        };
        let suffix = if self == Arithmetic::Single { "f" } else { "" };
        Some(match operation {
            Operation::Scalar(_)
            | Operation::Decay
            | Operation::Scale
            | Operation::Vector(_)
            | Operation::Constant(_) => return None,
            Operation::Add(a, b) => format!("{} + {}", at(a), at(b)),
            Operation::Subtract(a, b) => format!("{} - {}", at(a), at(b)),
            Operation::Multiply(a, b) => format!("{} * {}", at(a), at(b)),
            Operation::Divide(a, b) => format!("{} / {}", narrow(a), narrow(b)),
            Operation::Negate(a) => format!("-({})", at(a)),
            Operation::Root(a) if self == Arithmetic::Double => format!("sqrt({})", at(a)),
            Operation::Root(a) => format!("sqrtf({})", narrow(a)),
            Operation::Absolute(a) => format!("fabs{suffix}({})", at(a)),
            // Not `fmaxf`: where the two do not compare, the CPU takes the second.
            Operation::Larger(a, b) => format!("{0} > {1} ? {0} : {1}", at(a), at(b)),
            Operation::Smaller(a, b) => format!("{0} < {1} ? {0} : {1}", at(a), at(b)),
            Operation::Above(a, b, c, d) => format!("{} > {} ? {} : {}", at(a), at(b), at(c), at(d)),
        })
    }
}
