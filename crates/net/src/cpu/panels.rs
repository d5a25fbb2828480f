//! Products of few rows with one large matrix, step after step: a task multiplies one panel of the packed matrix with tiles of rows.
//!
//! The `gemm` crate packs the matrix at every call, and reaches 25 to 55 GFLOP/s with 20 rows; this reaches 100 of the 115 that a core
//! of Zen 4 has. Every number is one sum over the inner dimension in its order, so that neither tiles nor threads change its bits.

use super::math::{Real, dispatch};
use super::matrix::prefetch;
use super::{Cpu, reserve};
use rayon::prelude::*;
use std::ops::Range;

/// Sequences in a tile: 5 × 64 sums are 20 of the 32 vector registers of AVX-512, and 20 or 80 sequences are whole tiles.
pub const ROWS: usize = 5;
/// Columns in a panel of the packed matrix.
pub const WIDTH: usize = 64;
/// Inner positions that a panel's tiles take in turns: 16 KiB of the panel in f32, half of the cache of the first level.
const BLOCK: usize = 64;
/// Numbers of the packed matrix that every thread may read for itself, 512 KiB in f32. A larger matrix is shared out.
const SMALL: usize = 1 << 17;
/// Numbers in a cache line, in f32.
const LINE: usize = 16;

/// The sums of one tile in one panel.
pub type Sums<R> = [[R; WIDTH]; ROWS];

/// The room for one pass: the packed matrix, the rows that it is multiplied with (tile by tile, `inner` × [`ROWS`] each) at this
/// position and at the next, and the gradient of the cells.
pub struct Room<'a, R> {
    pub panels: &'a mut [R],
    pub rows: &'a mut [R],
    pub d_cells: &'a mut [R],
}

impl<'a, R: Real> Room<'a, R> {
    pub fn new(scratch: &'a mut Vec<R>, panels: usize, inner: usize, batch: usize, d_cells: usize) -> Self {
        let (matrix, rows) = (panels * inner * WIDTH, batch.div_ceil(ROWS) * inner * ROWS);
        // One cache line more, to start where one starts.
        let all = reserve(scratch, matrix + 2 * rows + d_cells + LINE);
        let skip = all.as_ptr().align_offset(64).min(LINE);
        let (panels, rest) = all[skip..].split_at_mut(matrix);
        let (rows, rest) = rest.split_at_mut(2 * rows);
        // The rows beyond the batch are multiplied, too.
        rows.fill(R::ZERO);
        rest[..d_cells].fill(R::ZERO);
        Self { panels, rows, d_cells: &mut rest[..d_cells] }
    }
}

/// `sums += aᵀ·b` over the inner dimension, one position after the other. Lines of `ahead` are fetched on the way.
#[inline(always)]
fn multiply<R: Real>(a: &[[R; ROWS]], b: &[[R; WIDTH]], ahead: &[[R; LINE]], sums: &mut Sums<R>) {
    let mut local = *sums;
    let mut ahead = ahead.iter();
    for (a, b) in a.iter().zip(b) {
        if let Some(line) = ahead.next() {
            prefetch(line);
        }
        for row in 0..ROWS {
            for column in 0..WIDTH {
                local[row][column] = a[row].mul_add(b[column], local[row][column]);
            }
        }
    }
    *sums = local;
}

/// Adds the product of some tiles with one panel, in blocks of the inner dimension so that all tiles find a block in the cache;
/// they share out the fetching of the next block, which comes from far away.
pub fn multiply_tiles<R: Real>(tiles: &[R], panel: &[R], inner: usize, sums: &mut [Sums<R>]) {
    let (lines, _) = panel.as_chunks::<LINE>();
    let (panel, _) = panel.as_chunks::<WIDTH>();
    let (tiles, _) = tiles.as_chunks::<ROWS>();
    let share = (BLOCK * WIDTH / LINE).div_ceil(sums.len());
    for start in (0..inner).step_by(BLOCK) {
        let block = start..inner.min(start + BLOCK);
        let mut ahead = lines.get(block.end * WIDTH / LINE..).unwrap_or(&[]).chunks(share);
        for (tile, sums) in tiles.chunks_exact(inner).zip(sums.iter_mut()) {
            let (a, b) = (&tile[block.clone()], &panel[block.clone()]);
            let ahead = ahead.next().unwrap_or(&[]);
            dispatch(
                #[inline(always)]
                || multiply(a, b, ahead, sums),
            );
        }
    }
}

/// Calls `one(step, panel, tiles)` for all steps in order; `matrix` is the length of the packed one. Threads share out the panels of each step or, when the matrix is small,
/// the tiles: then none waits for the others, which would take 5 to 20 µs at every step.
pub fn sweep<R: Real>(
    cpu: &Cpu<R>,
    steps: usize,
    panels: usize,
    tiles: usize,
    matrix: usize,
    one: impl Fn(usize, usize, Range<usize>) + Sync,
) {
    cpu.pool.install(|| {
        if matrix <= SMALL {
            let share = tiles.div_ceil(cpu.threads());
            (0..tiles.div_ceil(share)).into_par_iter().for_each(|part| {
                let tiles = part * share..tiles.min((part + 1) * share);
                (0..steps).for_each(|step| (0..panels).for_each(|panel| one(step, panel, tiles.clone())));
            });
        } else {
            for step in 0..steps {
                (0..panels).into_par_iter().for_each(|panel| one(step, panel, 0..tiles));
            }
        }
    });
}
