//! Matrix products, and the views of memory that they work on.
//!
//! The only file with `unsafe` code besides `attention.rs` and `lstm.rs`: the `gemm` crate takes pointers, and the
//! tasks of one product write to parts of one matrix that are not contiguous.
#![allow(unsafe_code)]

use super::math::Real;
use std::marker::PhantomData;

/// A matrix to read.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, R> {
    data: &'a [R],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, R> Matrix<'a, R> {
    /// `rows` × `columns` with `stride` numbers from row to row.
    ///
    /// # Panics
    /// When the data are too short.
    pub fn new(data: &'a [R], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(data.len() >= extent(rows, columns, stride), "a matrix reaches beyond its data");
        Self { data, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// The same matrix, transposed.
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// All numbers from the first to the last, gaps included.
    pub fn numbers(self) -> &'a [R] {
        self.data
    }

    /// One row of a matrix that is not transposed.
    pub fn row(self, row: usize) -> &'a [R] {
        assert_eq!(self.column_stride, 1, "a row whose numbers stand side by side");
        &self.data[row * self.row_stride..][..self.columns]
    }

    fn part(self, rows: (usize, usize), columns: (usize, usize)) -> Self {
        let at = rows.0 * self.row_stride + columns.0 * self.column_stride;
        Self { data: &self.data[at..], rows: rows.1, columns: columns.1, ..self }
    }
}

/// The numbers from the first to the last of a matrix.
fn extent(rows: usize, columns: usize, stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * stride + columns }
}

/// A matrix to write, row by row with a stride.
#[derive(Debug)]
pub struct MatrixMut<'a, R> {
    data: *mut R,
    rows: usize,
    columns: usize,
    stride: usize,
    owner: PhantomData<&'a mut R>,
}

// SAFETY: it is a `&mut [R]` with gaps.
unsafe impl<R: Send> Send for MatrixMut<'_, R> {}

impl<'a, R: Real> MatrixMut<'a, R> {
    /// `rows` × `columns` with `stride` numbers from row to row.
    ///
    /// # Panics
    /// When the data are too short.
    pub fn new(data: &'a mut [R], rows: usize, columns: usize, stride: usize) -> Self {
        Shared::new(data).into_matrix(rows, columns, stride)
    }

    /// Two matrices side by side or one below the other: the first has `at` rows (or columns).
    fn split(self, at: usize, by_rows: bool) -> (Self, Self) {
        let first = if by_rows { (at, self.columns) } else { (self.rows, at) };
        let second = if by_rows { (self.rows - at, self.columns) } else { (self.rows, self.columns - at) };
        let skip = if by_rows { at * self.stride } else { at };
        let of = |data, (rows, columns)| Self { data, rows, columns, ..self };
        // SAFETY: the second part starts within the matrix or, when it is empty, nothing of it is touched.
        (of(self.data, first), of(unsafe { self.data.add(skip) }, second))
    }
}

/// A buffer whose parts several tasks write at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a, R> {
    data: *mut R,
    len: usize,
    owner: PhantomData<&'a mut R>,
}

// SAFETY: every access is through an unsafe function whose caller promises that parts do not overlap.
unsafe impl<R: Send> Send for Shared<'_, R> {}
unsafe impl<R: Send> Sync for Shared<'_, R> {}

impl<'a, R: Real> Shared<'a, R> {
    /// The whole of a buffer.
    pub fn new(data: &'a mut [R]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), owner: PhantomData }
    }

    fn into_matrix(self, rows: usize, columns: usize, stride: usize) -> MatrixMut<'a, R> {
        assert!(self.len >= extent(rows, columns, stride), "a matrix reaches beyond its data");
        MatrixMut { data: self.data, rows, columns, stride, owner: PhantomData }
    }

    /// A matrix within the buffer.
    ///
    /// # Safety
    /// As long as it lives, no other task touches its numbers.
    pub unsafe fn matrix(
        &self,
        offset: usize,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> MatrixMut<'a, R> {
        assert!(offset <= self.len, "a matrix starts beyond its data");
        // SAFETY: within the buffer.
        let rest = Self { data: unsafe { self.data.add(offset) }, len: self.len - offset, ..*self };
        rest.into_matrix(rows, columns, stride)
    }

    /// Numbers side by side within the buffer.
    ///
    /// # Safety
    /// As long as they are borrowed, no other task touches them.
    pub unsafe fn slice(&self, offset: usize, len: usize) -> &'a mut [R] {
        assert!(offset <= self.len && len <= self.len - offset, "a part reaches beyond its data");
        // SAFETY: within the buffer, and the caller promises that nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(offset), len) }
    }

    /// The same to read.
    ///
    /// # Safety
    /// As long as they are borrowed, no task writes them.
    pub unsafe fn read(&self, offset: usize, len: usize) -> &'a [R] {
        assert!(offset <= self.len && len <= self.len - offset, "a part reaches beyond its data");
        // SAFETY: within the buffer, and the caller promises that nobody writes them.
        unsafe { std::slice::from_raw_parts(self.data.add(offset), len) }
    }
}

/// Asks the CPU to fetch what will be read soon.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// Whether a product overwrites what was there or adds to it.
pub use crate::device::Write;

/// `c = alpha · a·b`, or `c += alpha · a·b`, on this thread.
///
/// Each number of `c` is a sum over the inner dimension in an order that depends on that dimension alone, as long as `c` is
/// larger than 64 × 64: so parts of a product have the bits of the whole.
pub fn product<R: Real>(c: MatrixMut<'_, R>, a: Matrix<'_, R>, b: Matrix<'_, R>, alpha: R, write: Write) {
    assert_eq!((c.rows, a.columns, b.columns), (a.rows, b.rows, c.columns), "sizes of a product");
    if c.rows == 0 || c.columns == 0 {
        return;
    }
    // SAFETY: `extent` was checked where each matrix was made, and `c` is borrowed mutably, so it overlaps neither `a` nor `b`.
    unsafe {
        gemm::gemm(
            c.rows,
            c.columns,
            a.columns,
            c.data,
            1,
            c.stride as isize,
            write == Write::Add,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            R::ONE,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Parts of a product have at least so many rows or columns: more than the size at which `gemm` sums in another order.
const LEAST_PART: usize = 96;
/// Multiplications below which a product is not worth a second thread.
const LEAST_WORK: usize = 1 << 18;

/// The same product on up to `threads` threads of the pool at hand: the longer side of `c` is cut in equal parts.
pub fn parallel_product<R: Real>(
    c: MatrixMut<'_, R>,
    a: Matrix<'_, R>,
    b: Matrix<'_, R>,
    alpha: R,
    write: Write,
    threads: usize,
) {
    let by_rows = c.rows >= c.columns;
    let side = c.rows.max(c.columns);
    let worth = (c.rows * c.columns * a.columns / LEAST_WORK).max(1);
    let parts = threads.min(side / LEAST_PART).min(worth);
    if parts <= 1 {
        return product(c, a, b, alpha, write);
    }
    let (left, right) = (parts / 2, parts - parts / 2);
    // Whole vectors on both sides.
    let at = (side * left / parts).next_multiple_of(16);
    let (first, second) = c.split(at, by_rows);
    let ((a1, b1), (a2, b2)) = if by_rows {
        ((a.part((0, at), (0, a.columns)), b), (a.part((at, side - at), (0, a.columns)), b))
    } else {
        ((a, b.part((0, b.rows), (0, at))), (a, b.part((0, b.rows), (at, side - at))))
    };
    rayon::join(
        || parallel_product(first, a1, b1, alpha, write, left),
        || parallel_product(second, a2, b2, alpha, write, right),
    );
}
