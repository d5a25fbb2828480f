//! Passes over buffers number by number, and sums of partial results.

use super::commands::Launch;
use super::product::{Matrix, Type};
use super::{Buffer, Cuda, Parameters, Scratch};
use crate::device::{Dropout, Write};

/// Threads of a block here, and the numbers that each takes at a time.
pub const BLOCK: usize = 256;
const EACH: usize = 4;

/// Blocks for a pass over `len` numbers, each thread taking [`EACH`] at a time: as many as run at once.
pub fn blocks(cuda: &Cuda, len: usize) -> usize {
    len.div_ceil(BLOCK * EACH).clamp(1, 8 * cuda.context.multiprocessors as usize)
}

/// `scale` times the sum of squares, or of squared distances, of numbers in buffers.
pub fn reduce_buffers(cuda: &Cuda, a: u64, b: Option<u64>, len: usize, scale: f64, to: u64) {
    let blocks = blocks(cuda, len);
    let partial = cuda.scratch(Scratch::Partial, 8 * blocks);
    let name = if b.is_some() { "sum_square_distance_buffer" } else { "sum_squares_buffer" };
    cuda.launch(
        Launch::new(name, [blocks, 1, 1], BLOCK)
            .with(a)
            .with(b.unwrap_or(a))
            .with(len as u64)
            .with(partial)
            .with(cuda.ticket_address())
            .with(to)
            .with(scale),
    );
}

/// Brings the parameters' copy in bf16 up to date, where there is one.
pub fn narrow(cuda: &Cuda, x: &Parameters) {
    if x.narrow_address() != 0 {
        cuda.launch(
            Launch::new("narrow", [blocks(cuda, x.len), 1, 1], BLOCK)
                .with(x.narrow_address())
                .with(x.address())
                .with(x.len as u64),
        );
    }
}

/// `to += from`.
pub fn add(cuda: &Cuda, len: usize, from: &Buffer, to: &mut Buffer) {
    debug_assert_eq!(from.kind, to.kind);
    let name = match (to.kind, cuda.kind()) {
        (Type::F32, Type::Bf16) => "add_statistic",
        _ => "add",
    };
    cuda.launch(Launch::over(name, len).with(from.address()).with(to.address()).with(len as u64));
}

/// `to = M ∘ from`.
pub fn dropout(cuda: &Cuda, dropout: Dropout, rows: usize, width: usize, from: u64, to: &mut Buffer) {
    dropout_to(cuda, dropout, rows, width, from, to.address(), to.kind);
}

/// The same between addresses.
pub fn dropout_to(cuda: &Cuda, dropout: Dropout, rows: usize, width: usize, from: u64, to: u64, kind: Type) {
    let len = rows * width;
    if !dropout.is_active() {
        return cuda.copy_bytes(from, to, len * kind.size());
    }
    let repeat = dropout.period.saturating_mul(width);
    let fours = len.is_multiple_of(4)
        && (repeat == usize::MAX || repeat.is_multiple_of(4))
        && from.is_multiple_of(4 * kind.size() as u64);
    let launch = match fours {
        true => Launch::over("dropout_4", len / 4),
        false => Launch::over("dropout_1", len),
    };
    cuda.launch(
        launch.with(from).with(to).with(len).with(repeat.min(u32::MAX as usize)).dropout(cuda, dropout),
    );
}

/// The most parts that the rows of a column sum are cut in.
const PARTS: usize = 64;

/// The sums of the columns of a matrix of activations.
pub fn column_sums(cuda: &Cuda, from: Matrix, to: u64, write: Write) {
    let part = from.rows.div_ceil(PARTS).max(64);
    let parts = from.rows.div_ceil(part);
    let partial = cuda.scratch(Scratch::Partial, 4 * parts * from.columns);
    cuda.launch(
        Launch::new("column_parts_of_buffer", [from.columns.div_ceil(32), parts, 1], BLOCK)
            .with(from.address)
            .with(from.rows as u64)
            .with(from.columns)
            .with(from.stride as u64)
            .with(part)
            .with(partial),
    );
    sum_parts(cuda, partial, parts, from.columns, to, write);
}

/// The sums over parts, which stand one after the other, of each column.
pub fn sum_parts(cuda: &Cuda, partial: u64, parts: usize, columns: usize, to: u64, write: Write) {
    cuda.launch(
        Launch::new("column_sums", [columns.div_ceil(32), 1, 1], 1024)
            .with(partial)
            .with(parts)
            .with(columns)
            .with(to)
            .with(write == Write::Add),
    );
}

/// `scale` times the sum of numbers in f64.
pub fn sum_doubles(cuda: &Cuda, from: u64, len: usize, scale: f64, to: u64) {
    let partial = cuda.scratch(Scratch::Sums, 8);
    cuda.launch(
        Launch::new("sum_doubles", [1, 1, 1], 1024)
            .with(from)
            .with(len as u64)
            .with(partial)
            .with(cuda.ticket_address())
            .with(to)
            .with(scale),
    );
}
