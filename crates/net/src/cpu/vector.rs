//! Passes over whole buffers: norms, updates, copies.

use super::lanes::{LANES, fold};
use super::math::{Real, dispatch};
use super::{Cpu, lock, reserve};
use crate::arena::View;
use crate::device::{Dropout, Write};
use rayon::prelude::*;
use untuned::optimizers::AdamConstants;

/// Numbers in one part of a sum: fixed, so that the order of additions does not depend on the number of threads.
const PART: usize = 1 << 16;

/// `Σ term(i)` over `i` in `0..len`, in f64: parts of a fixed size, each summed in a fixed order, then added in order.
fn sum_of<R: Real>(cpu: &Cpu<R>, len: usize, part: impl Fn(std::ops::Range<usize>) -> f64 + Sync) -> f64 {
    let mut partial = lock(&cpu.partial);
    let partial = reserve(&mut partial, len.div_ceil(PART));
    let fill = |(index, sum): (usize, &mut f64)| {
        *sum = part(index * PART..len.min((index + 1) * PART));
    };
    cpu.pool.install(|| partial.par_iter_mut().enumerate().for_each(fill));
    partial.iter().sum()
}

/// The sum of `term` over one part.
#[inline(always)]
fn lanes<R: Real>(a: &[R], b: &[R], term: impl Fn(f64, f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.0.iter().zip(b.0) {
        for lane in 0..LANES {
            sums[lane] += term(a[lane].to_f64(), b[lane].to_f64());
        }
    }
    for (lane, (a, b)) in a.1.iter().zip(b.1).enumerate() {
        sums[lane] += term(a.to_f64(), b.to_f64());
    }
    fold(sums, |a, b| a + b)
}

/// `Σ term(a, b)`.
fn sum_over<R: Real>(cpu: &Cpu<R>, a: &[R], b: &[R], term: impl Fn(f64, f64) -> f64 + Sync) -> f64 {
    assert_eq!(a.len(), b.len(), "vectors of one length");
    sum_of(cpu, a.len(), |part| {
        let (a, b) = (&a[part.clone()], &b[part]);
        dispatch(
            #[inline(always)]
            || lanes(a, b, &term),
        )
    })
}

pub fn square_norm<R: Real>(cpu: &Cpu<R>, v: &[R]) -> f64 {
    sum_over(
        cpu,
        v,
        v,
        #[inline(always)]
        |v, _| v * v,
    )
}

pub fn square_distance<R: Real>(cpu: &Cpu<R>, a: &[R], b: &[R]) -> f64 {
    sum_over(
        cpu,
        a,
        b,
        #[inline(always)]
        |a, b| (a - b) * (a - b),
    )
}

pub fn sum<R: Real>(cpu: &Cpu<R>, v: &[R]) -> f64 {
    sum_over(
        cpu,
        v,
        v,
        #[inline(always)]
        |v, _| v,
    )
}

/// `to = (1 − decay)·from − size·gradient`; `from` is `to` itself where it is not given.
pub fn update<R: Real>(
    cpu: &Cpu<R>,
    to: &mut [R],
    from: Option<&[R]>,
    gradient: &[R],
    size: f64,
    decay: f64,
) {
    assert_eq!(to.len(), gradient.len(), "vectors of one length");
    let (keep, size) = (R::from_f64(1.0 - decay), R::from_f64(size));
    let one = |index: usize, to: &mut [R]| {
        let at = index * PART..index * PART + to.len();
        let gradient = &gradient[at.clone()];
        match from {
            None if decay == 0.0 => dispatch(
                #[inline(always)]
                || to.iter_mut().zip(gradient).for_each(|(to, &g)| *to -= size * g),
            ),
            None => dispatch(
                #[inline(always)]
                || to.iter_mut().zip(gradient).for_each(|(to, &g)| *to = *to * keep - size * g),
            ),
            Some(from) => dispatch(
                #[inline(always)]
                || {
                    for ((to, &from), &g) in to.iter_mut().zip(&from[at.clone()]).zip(gradient) {
                        *to = from * keep - size * g;
                    }
                },
            ),
        }
    };
    cpu.pool.install(|| to.par_chunks_mut(PART).enumerate().for_each(|(index, to)| one(index, to)));
}

/// `m ← β1·m + (1 − β1)·g`, `v ← β2·v + (1 − β2)·g²`, `x ← keep·x − size·m/(root·√v + eps)`; where nothing decays, `keep` is 1.
pub fn adam<R: Real>(
    cpu: &Cpu<R>,
    x: &mut [R],
    gradient: &[R],
    m: &mut [R],
    v: &mut [R],
    constants: &AdamConstants,
    decayed: &[View],
) {
    let len = x.len();
    assert!([gradient.len(), m.len(), v.len()].iter().all(|&other| other == len), "vectors of one length");
    let one = |index: usize, x: &mut [R], m: &mut [R], v: &mut [R]| {
        let (start, end) = (index * PART, index * PART + x.len());
        let mut pass = |from: usize, to: usize, keep: f64| {
            let (g, part) = (&gradient[from..to], from - start..to - start);
            let (x, m, v) = (&mut x[part.clone()], &mut m[part.clone()], &mut v[part]);
            dispatch(
                #[inline(always)]
                || adam_part(x, g, m, v, &AdamConstants { keep, ..*constants }),
            );
        };
        let mut done = start;
        let first = decayed.partition_point(|view| view.range().end <= start);
        for view in decayed[first..].iter().take_while(|view| view.offset < end) {
            let (from, to) = (view.offset.max(start), view.range().end.min(end));
            pass(done, from, 1.0);
            pass(from, to, constants.keep);
            done = to;
        }
        pass(done, end, 1.0);
    };
    cpu.pool.install(|| {
        let parts = x.par_chunks_mut(PART).zip(m.par_chunks_mut(PART)).zip(v.par_chunks_mut(PART));
        parts.enumerate().for_each(|(index, ((x, m), v))| one(index, x, m, v));
    });
}

/// The same over one part, with one `keep`.
#[inline(always)]
fn adam_part<R: Real>(x: &mut [R], gradient: &[R], m: &mut [R], v: &mut [R], constants: &AdamConstants) {
    let AdamConstants { gradient_scale, beta1, beta2, keep, size, root, eps } = *constants;
    let (scale, keep, size) = (R::from_f64(gradient_scale), R::from_f64(keep), R::from_f64(size));
    let (root, eps) = (R::from_f64(root), R::from_f64(eps));
    let (old_m, new_m) = (R::from_f64(beta1), R::from_f64(1.0 - beta1));
    let (old_v, new_v) = (R::from_f64(beta2), R::from_f64(1.0 - beta2));
    for (((x, &g), m), v) in x.iter_mut().zip(gradient).zip(m).zip(v) {
        let g = scale * g;
        *m = old_m * *m + new_m * g;
        *v = old_v * *v + new_v * g * g;
        *x = keep * *x - size * *m / (root * Real::sqrt(*v) + eps);
    }
}

pub fn copy<R: Real>(cpu: &Cpu<R>, from: &[R], to: &mut [R]) {
    assert_eq!(from.len(), to.len(), "vectors of one length");
    cpu.pool.install(|| {
        to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
    });
}

/// `to += from`.
pub fn add<R: Real>(cpu: &Cpu<R>, from: &[R], to: &mut [R]) {
    assert_eq!(from.len(), to.len(), "vectors of one length");
    let one = |(to, from): (&mut [R], &[R])| {
        dispatch(
            #[inline(always)]
            || to.iter_mut().zip(from).for_each(|(to, &from)| *to += from),
        );
    };
    cpu.pool.install(|| to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(one));
}

/// `to = dropout(from)`, rows of `width`.
pub fn dropout<R: Real>(cpu: &Cpu<R>, dropout: Dropout, width: usize, from: &[R], to: &mut [R]) {
    if !dropout.is_active() {
        return copy(cpu, from, to);
    }
    let part = cpu.rows_per_part(to.len() / width, width) * width;
    let one = |(index, (to, from)): (usize, (&mut [R], &[R]))| {
        for (row, (to, from)) in to.chunks_exact_mut(width).zip(from.chunks_exact(width)).enumerate() {
            dropout.fill(index * part / width + row, to);
            dispatch(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(to, &from)| *to *= from),
            );
        }
    };
    cpu.pool.install(|| to.par_chunks_mut(part).zip(from.par_chunks(part)).enumerate().for_each(one));
}

/// Rows whose sums are added at once; fixed, so that the order of additions is.
const SUMMED_ROWS: usize = 64;

/// `out = Σ` of the rows of `from`, each as wide as `out`, or `out += Σ`.
pub fn column_sums<R: Real>(cpu: &Cpu<R>, from: &[R], out: &mut [R], write: Write) {
    let width = out.len();
    let mut partial = lock(&cpu.shared);
    let partial = reserve(&mut partial, from.len().div_ceil(SUMMED_ROWS * width) * width);
    let add = |to: &mut [R], rows: &[R], write: Write| {
        dispatch(
            #[inline(always)]
            || {
                if write == Write::Set {
                    to.fill(R::ZERO);
                }
                for row in rows.chunks_exact(width) {
                    to.iter_mut().zip(row).for_each(|(to, &from)| *to += from);
                }
            },
        );
    };
    let parts = from.par_chunks(SUMMED_ROWS * width);
    cpu.pool.install(|| {
        partial.par_chunks_mut(width).zip(parts).for_each(|(to, rows)| add(to, rows, Write::Set))
    });
    add(out, partial, write);
}
