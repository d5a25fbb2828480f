//! Formulas as kernels over many tensors: the text of each is made from its [`Program`].
//!
//! A kernel is bound by memory. A block takes a chunk of a tensor, and a thread four numbers at a time. A kernel loads what the formula
//! uses, and stores what it changes.
//!
//! Changes are computed in f32, or in f64 where the parameters are. The terms of sums are computed and added in f64; of f32, only
//! quotients and roots are f32. Sums have a fixed order.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use untuned::formula::{Operation, Program};
use untuned_cuda::arithmetic::Arithmetic;

use super::plan::Planned;
use super::script::{GRADIENT, Kind, PARAMETERS};
use crate::space::Float;

/// Stands in front of the kernels.
const SHARED: &str = include_str!("kernels.cuh");

/// The numbers of a chunk.
pub const CHUNK: usize = 1 << 15;
/// The threads of a block.
pub const BLOCK: u32 = 512;
/// The most blocks for each multiprocessor. Each has one chunk, or the few of a large model.
pub const MOST_BLOCKS: u32 = 100;
/// The most passes that measure.
pub const MOST_MEASURES: usize = 16;

/// What a kernel's vector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Parameters,
    Gradient,
    /// Of the parameters' type, like a point to evaluate.
    Narrow,
    State,
}

/// A kernel: its name and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    text: String,
}

/// A source of kernels, each once, with all that they need.
pub fn source(kernels: &[Kernel]) -> String {
    let all: BTreeSet<&str> = kernels.iter().map(|kernel| kernel.text.as_str()).collect();
    let all: Vec<&str> = all.into_iter().collect();
    format!("#define CHUNK {CHUNK}ull\n#define BLOCK {BLOCK}\n{SHARED}\n{}", all.join("\n"))
}

/// The CUDA type of a parameter.
fn stored(float: Float) -> &'static str {
    match float {
        Float::F64 => "double",
        Float::F32 => "float",
        Float::Bf16 => "bf16",
        Float::F16 => "f16",
    }
}

/// The kernel of a pass over tensors of a type. There are `state` vectors of state.
pub fn kernel(planned: &Planned, float: Float, state: usize) -> Kernel {
    let (kind, program) = (planned.pass.kind, &planned.program);
    let roles: Vec<Role> = planned.pass.vectors.iter().map(|&place| role(place, state)).collect();
    let changed = if kind == Kind::Change { program.results.len() } else { 0 };
    let arithmetic = match (kind, float) {
        (_, Float::F64) => Arithmetic::Double,
        (Kind::Change, _) => Arithmetic::Single,
        (Kind::Measure { .. }, _) => Arithmetic::Mixed,
    };
    let text = body(program, changed, &roles, arithmetic, float);
    let letters = program.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let word: String = letters.collect();
    let name = format!("{word}_{}_{:016x}", stored(float), hash(&text));
    let parameters: Vec<String> = (0..roles.len()).map(|v| format!(", u32 i{v}")).collect();
    let head = format!(
        "extern \"C\" __global__ void __launch_bounds__(BLOCK) {name}(const Chunk* chunks, u32 first, u32 count, const Tensor* tensors, \
         const u64* addresses, u32 stride, const double* scalars, const float* grad_scale, double* partial{})",
        parameters.concat()
    );
    Kernel { name, text: format!("{head} {{\n{text}}}\n") }
}

fn role(place: usize, state: usize) -> Role {
    match place {
        PARAMETERS => Role::Parameters,
        GRADIENT => Role::Gradient,
        _ if place < super::script::STATE + state => Role::State,
        _ => Role::Narrow,
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn body(program: &Program, changed: usize, roles: &[Role], arithmetic: Arithmetic, float: Float) -> String {
    let used = program.used();
    let loads = |vector: usize| {
        let mut pairs = program.operations.iter().zip(&used);
        // The old number stays in part where a tensor's rate is not 1.
        (vector < changed && roles[vector] == Role::Parameters)
            || pairs.any(|(at, &used)| used && *at == Operation::Vector(vector))
    };
    let wide = stored(float.wide());
    let of = |vector: usize| if roles[vector] == Role::State { wide } else { stored(float) };
    let (number, terms) = (arithmetic.number(), program.results.len());
    let mut text = String::new();
    // A line; writing to a text cannot fail.
    let mut line = |line: &str| _ = writeln!(text, "{line}");
    line("    if (scalars[0] == 0.0) return;");
    for scalar in 0..program.scalars {
        line(&format!("    const {number} s{scalar} = ({number})scalars[{}];", 2 + scalar));
    }
    if (0..roles.len()).any(|v| roles[v] == Role::Gradient && loads(v)) {
        line(&format!("    const {wide} factor = factor_of<{wide}>(grad_scale);"));
    }
    if changed == 0 {
        line("    __shared__ double room[32];");
    }
    line("    for (u32 at = blockIdx.x; at < count; at += gridDim.x) {");
    // Changes begin with the chunks that were measured last: they are still in the cache.
    let at = if changed == 0 { "first + at" } else { "first + count - 1 - at" };
    line(&format!("        const u32 place = {at};"));
    line("        const Chunk chunk = chunks[place];");
    line("        const Tensor tensor = tensors[chunk.tensor];");
    line("        const u64 start = chunk.number * CHUNK;");
    line("        const u32 len = (u32)(tensor.len - start < CHUNK ? tensor.len - start : CHUNK);");
    for vector in 0..roles.len() {
        let (of, constant) = (of(vector), if vector < changed { "" } else { "const " });
        line(&format!(
            "        {constant}{of}* v{vector} = ({constant}{of}*)addresses[(u64)i{vector} * stride + chunk.tensor] + start;"
        ));
    }
    let aligned: Vec<String> = (0..roles.len()).map(|v| format!("is_aligned(v{v})")).collect();
    line(&format!("        const bool aligned = {};", aligned.join(" && ")));
    let uses =
        |wanted: Operation| program.operations.iter().zip(&used).any(|(at, &used)| used && *at == wanted);
    if uses(Operation::Decay) {
        line(&format!("        const {number} decay = ({number})(scalars[1] * tensor.decay);"));
    }
    if uses(Operation::Scale) {
        line(&format!("        const {number} scale = ({number})tensor.scale;"));
    }
    if roles[..changed].contains(&Role::Parameters) {
        line(&format!("        const {wide} rate = ({wide})tensor.rate;"));
    }
    if changed == 0 {
        line(&format!("        double sums[{terms}] = {{}};"));
    }
    line("        for (u32 i = 4 * threadIdx.x; i < len; i += 4 * BLOCK) {");
    line("            const bool whole = aligned && i + 4 <= len;");
    for (vector, &role) in roles.iter().enumerate() {
        if loads(vector) {
            let load = format!("load<{wide}>(v{vector} + i, len - i, whole)");
            let load = if role == Role::Gradient { format!("times({load}, factor)") } else { load };
            line(&format!("            Four<{wide}> x{vector} = {load};"));
        } else if vector < changed {
            line(&format!("            Four<{wide}> x{vector};"));
        }
    }
    line("#pragma unroll");
    line("            for (int k = 0; k < 4; k++) {");
    let operand = |place: usize| {
        arithmetic.operand(program, place, |given| match given {
            Operation::Scalar(scalar) => format!("s{scalar}"),
            Operation::Decay => "decay".into(),
            Operation::Scale => "scale".into(),
            Operation::Vector(vector) => format!("({number})x{vector}.v[k]"),
            other => unreachable!("{other:?} is not given"),
        })
    };
    for (place, operation) in program.operations.iter().enumerate().filter(|&(place, _)| used[place]) {
        if let Some(value) = arithmetic.computed(*operation, operand) {
            line(&format!("                const {number} t{place} = {value};"));
        }
    }
    // Results may be numbers of other vectors, which none may overwrite before.
    for (result, &place) in program.results.iter().enumerate() {
        line(&format!("                const {number} r{result} = {};", operand(place)));
    }
    for (vector, role) in roles.iter().enumerate().take(changed) {
        let value = match role {
            Role::Parameters => {
                format!("rate == 1 ? r{vector} : x{vector}.v[k] + rate * (r{vector} - x{vector}.v[k])")
            }
            _ => format!("r{vector}"),
        };
        line(&format!("                x{vector}.v[k] = {value};"));
    }
    if changed == 0 {
        let add: Vec<String> = (0..terms).map(|term| format!("sums[{term}] += r{term};")).collect();
        line(&format!("                if (whole || i + k < len) {{ {} }}", add.join(" ")));
    }
    line("            }");
    for vector in 0..changed {
        line(&format!("            store(v{vector} + i, x{vector}, len - i, whole);"));
    }
    line("        }");
    if changed == 0 {
        for term in 0..terms {
            line(&format!("        const double sum{term} = block_sum(sums[{term}], room);"));
            line(&format!(
                "        if (threadIdx.x == 0) partial[(u64)place * {terms} + {term}] = sum{term};"
            ));
        }
    }
    line("    }");
    text
}
