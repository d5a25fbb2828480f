//! Formulas as kernels: the text of each is made from its [`Program`], and compiled when the device first needs it.
//!
//! A kernel is bound by memory: threads take 16 bytes at a time, and as many blocks as run at once go over the whole. It loads what
//! the formula uses, and stores what it changes, with the copy in bf16 where there is one.
//!
//! Changes are computed in f32. The terms of sums are computed and added in f64, where a product of f32 is exact and leaves no
//! range; only quotients and roots, which take some twenty operations of f64 each, are f32. Sums have a fixed order.

use super::commands::Launch;
use super::vector::{BLOCK, blocks};
use super::{Cuda, Parameters, Scratch};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Mutex;
use untuned::formula::{Operation, Program};
use untuned::space::TensorRange;
use untuned_cuda::arithmetic::Arithmetic;

/// Stands in front of every formula's kernel.
const SHARED: &str = include_str!("formula.cuh");

/// What a formula's pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Its results replace the numbers of the first vectors.
    Change,
    /// Its results are summed.
    Measure,
}

/// A formula as a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Its name: that of the formula, and a hash of its text.
    pub name: &'static str,
    /// How many arguments it takes.
    pub arguments: usize,
    /// Whether it takes the ranges of tensors, because it uses what holds in them.
    pub placed: bool,
}

/// The kernel of a formula, and its text.
pub fn kernel(pass: Pass, program: &Program) -> (Kernel, String) {
    let used = program.used();
    let mut operations = program.operations.iter().zip(&used);
    let placed = operations.any(|(at, &used)| used && matches!(at, Operation::Decay | Operation::Scale));
    let parameters = parameters(pass, program, placed);
    let body = body(pass, program, &used, placed);
    let code = format!("({}) {{\n{body}}}\n", parameters.join(", "));
    let hash: String = Sha256::digest(&code)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let word: String = program
        .name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
    let name = intern(format!("{word}_{hash}"));
    let text = format!("{SHARED}\nextern \"C\" __global__ void {name}{code}");
    (Kernel { name, arguments: parameters.len(), placed }, text)
}

/// The same text for good. Formulas are few, and each is kept once.
fn intern(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = super::lock(&NAMES);
    match names.get(name.as_str()) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}

/// What a pass computes with.
fn arithmetic(pass: Pass) -> Arithmetic {
    match pass {
        Pass::Change => Arithmetic::Single,
        Pass::Measure => Arithmetic::Mixed,
    }
}

/// The type of its numbers.
fn number(pass: Pass) -> &'static str {
    arithmetic(pass).number()
}

fn parameters(pass: Pass, program: &Program, placed: bool) -> Vec<String> {
    let mut parameters = Vec::new();
    for vector in 0..program.vectors {
        match pass == Pass::Change && vector < program.results.len() {
            true => parameters.extend([format!("float* v{vector}"), format!("bf16* narrow{vector}")]),
            false => parameters.push(format!("const float* v{vector}")),
        }
    }
    parameters.push("u64 len".into());
    let number = number(pass);
    if placed {
        parameters.extend([
            "const TensorRange* tensors".into(),
            "u32 count".into(),
            format!("{number} decay"),
        ]);
    }
    parameters.extend((0..program.scalars).map(|scalar| format!("{number} s{scalar}")));
    if pass == Pass::Measure {
        parameters.extend(["double* partial", "u32* ticket", "double* to"].map(String::from));
    }
    parameters
}

/// Joins what `each` makes of these vectors.
fn list(vectors: &[usize], each: impl Fn(usize) -> String) -> String {
    vectors.iter().map(|&vector| each(vector)).collect::<Vec<_>>().join(", ")
}

fn body(pass: Pass, program: &Program, used: &[bool], placed: bool) -> String {
    let results = program.results.len();
    let changed: Vec<usize> = (0..if pass == Pass::Change { results } else { 0 }).collect();
    let loads = |vector| {
        let mut pairs = program.operations.iter().zip(used);
        pairs.any(|(at, &used)| used && *at == Operation::Vector(vector))
    };
    let loaded: Vec<usize> = (0..program.vectors).filter(|&vector| loads(vector)).collect();
    let held: Vec<usize> =
        (0..program.vectors).filter(|&vector| vector < changed.len() || loads(vector)).collect();

    let mut text = String::new();
    // A line; writing to a text cannot fail.
    let mut line = |line: String| _ = writeln!(text, "{line}");
    if pass == Pass::Measure {
        line(format!("    double sums[{results}] = {{}};"));
    }
    line("    GRID_STRIDE_4(i, len) {".into());
    line("        bool whole = i + 4 <= len;".into());
    if !held.is_empty() {
        line(format!("        Four {};", list(&held, |v| format!("x{v} = {{}}"))));
    }
    if !loaded.is_empty() {
        line("        if (whole) {".into());
        line(format!("            {};", list(&loaded, |v| format!("x{v} = load4(v{v} + i)"))));
        line("        } else {".into());
        line("#pragma unroll".into());
        line("            for (int k = 0; k < 4; k++)".into());
        let load = list(&loaded, |v| format!("x{v}.v[k] = v{v}[i + k]"));
        line(format!("                if (i + k < len) {load};"));
        line("        }".into());
    }
    if placed {
        let number = number(pass);
        line(format!("        TensorInfo<{number}> info = info4(tensors, count, i, decay);"));
    }
    line("#pragma unroll".into());
    line("        for (int k = 0; k < 4; k++) {".into());
    for (index, operation) in program.operations.iter().enumerate().filter(|&(index, _)| used[index]) {
        let at = |index| operand(pass, program, index);
        if let Some(value) = arithmetic(pass).computed(*operation, at) {
            line(format!("            {} t{index} = {value};", number(pass)));
        }
    }
    // Results may be numbers of other vectors, which none may overwrite before.
    for (result, &index) in program.results.iter().enumerate() {
        line(format!("            {} r{result} = {};", number(pass), operand(pass, program, index)));
    }
    match pass {
        Pass::Change => line(format!("            {};", list(&changed, |v| format!("x{v}.v[k] = r{v}")))),
        Pass::Measure => {
            let sums: Vec<usize> = (0..results).collect();
            let add = list(&sums, |sum| format!("sums[{sum}] += r{sum}"));
            line(format!("            if (whole || i + k < len) {add};"));
        }
    }
    line("        }".into());
    if pass == Pass::Change {
        line("        if (whole) {".into());
        line(format!("            {};", list(&changed, |v| format!("store4(v{v} + i, x{v})"))));
        for v in &changed {
            line(format!("            if (narrow{v}) store4(narrow{v} + i, x{v});"));
        }
        line("        } else {".into());
        line("#pragma unroll".into());
        line("            for (int k = 0; k < 4; k++) {".into());
        line("                if (i + k >= len) continue;".into());
        line(format!("                {};", list(&changed, |v| format!("v{v}[i + k] = x{v}.v[k]"))));
        for v in &changed {
            line(format!("                if (narrow{v}) store(narrow{v} + i + k, x{v}.v[k]);"));
        }
        line("            }".into());
        line("        }".into());
    }
    line("    }".into());
    if pass == Pass::Measure {
        line("    finish_sums(sums, partial, ticket, to, 1.0);".into());
    }
    text
}

/// The name of an operation's value in the kernel. What is computed is called by the operation's index.
fn operand(pass: Pass, program: &Program, index: usize) -> String {
    arithmetic(pass).operand(program, index, |given| match given {
        Operation::Scalar(scalar) => format!("s{scalar}"),
        Operation::Decay => "info.decay[k]".into(),
        Operation::Scale => "info.scale[k]".into(),
        Operation::Vector(vector) if pass == Pass::Change => format!("x{vector}.v[k]"),
        Operation::Vector(vector) => format!("(double)x{vector}.v[k]"),
        other => unreachable!("{other:?} is not given"),
    })
}

/// The kernel of a formula on this device. Where it cannot be had, the next read says why.
fn find(cuda: &Cuda, pass: Pass, program: Program) -> Option<Kernel> {
    cuda.kernels.formula(pass, program).map_err(|error| cuda.fail(error)).ok()
}

/// The table of the tensors, and how many there are.
fn table(cuda: &Cuda, tensors: &[TensorRange]) -> (u64, usize) {
    let filled = tensors.iter().filter(|tensor| !tensor.range.is_empty());
    let row = |tensor: &TensorRange| {
        let scale = (tensor.scale as f32).to_bits();
        [tensor.range.start as u32, tensor.range.end as u32, u32::from(tensor.decays), scale]
    };
    let rows: Vec<u32> = filled.flat_map(row).collect();
    (cuda.table(&rows), rows.len() / 4)
}

/// Changes vectors in one pass.
pub(super) fn change(
    cuda: &Cuda,
    program: Program,
    scalars: &[f64],
    decay: f64,
    tensors: &[TensorRange],
    change: &[&mut Parameters],
    read: &[&Parameters],
) {
    let len = change[0].len;
    let mut lens = change.iter().map(|vector| vector.len).chain(read.iter().map(|vector| vector.len));
    assert!(lens.all(|other| other == len), "vectors of one length");
    let Some(kernel) = find(cuda, Pass::Change, program) else { return };
    let mut launch = Launch::new(kernel.name, [blocks(cuda, len), 1, 1], BLOCK);
    launch = change.iter().fold(launch, |launch, v| launch.with(v.address()).with(v.narrow_address()));
    launch = read.iter().fold(launch, |launch, v| launch.with(v.address())).with(len as u64);
    if kernel.placed {
        let (table, count) = table(cuda, tensors);
        launch = launch.with(table).with(count).with(decay as f32);
    }
    cuda.launch(scalars.iter().fold(launch, |launch, &scalar| launch.with(scalar as f32)));
}

/// Sums over vectors in one pass; `sums` of them go to `to` and behind it. Each block sums its part, and the last one the blocks'
/// sums, in order.
pub(super) fn measure(
    cuda: &Cuda,
    program: Program,
    scalars: &[f64],
    decay: f64,
    tensors: &[TensorRange],
    read: &[&Parameters],
    to: u64,
) {
    let (len, sums) = (read[0].len, program.results.len());
    assert!(read.iter().all(|vector| vector.len == len), "vectors of one length");
    let Some(kernel) = find(cuda, Pass::Measure, program) else { return };
    let blocks = blocks(cuda, len);
    let partial = cuda.scratch(Scratch::Partial, 8 * sums * blocks);
    let mut launch = Launch::new(kernel.name, [blocks, 1, 1], BLOCK);
    launch = read.iter().fold(launch, |launch, v| launch.with(v.address())).with(len as u64);
    if kernel.placed {
        let (table, count) = table(cuda, tensors);
        launch = launch.with(table).with(count).with(decay);
    }
    launch = scalars.iter().fold(launch, |launch, &scalar| launch.with(scalar));
    cuda.launch(launch.with(partial).with(cuda.ticket_address()).with(to));
}
