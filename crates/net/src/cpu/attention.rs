//! Attention in blocks of queries: the scores of a block live in scratch, and backward computes them again.
#![allow(unsafe_code)]

use super::lanes::{LANES, exponentials, fold, largest};
use super::math::{Real, dispatch};
use super::matrix::{Matrix, MatrixMut, Shared, Write, product};
use super::{Cpu, lock, reserve};
use crate::device::{Attention, Columns, Heads};
use rayon::prelude::*;

/// Queries in one block.
const BLOCK: usize = 64;
/// One sequence and head, and one block of its queries.
#[derive(Clone, Copy)]
struct Block {
    sequence: usize,
    head: usize,
    /// The first query.
    first: usize,
    /// How many.
    count: usize,
    /// How many keys the last of them sees; none sees more.
    keys: usize,
}

impl Block {
    fn new(layer: &Attention, pair: usize, block: usize) -> Self {
        let first = block * BLOCK;
        let count = BLOCK.min(layer.queries - first);
        let keys = if layer.causal { layer.keys.min(first + count) } else { layer.keys };
        Self { sequence: pair / layer.heads, head: pair % layer.heads, first, count, keys }
    }

    /// The block's rows of queries, or of what is as tall as they are.
    fn queries<'a, R>(&self, layer: &Attention, data: &'a [R], at: Columns) -> Matrix<'a, R> {
        let row = self.sequence * layer.queries + self.first;
        Matrix::new(
            &data[at.offset + row * at.stride + self.head * layer.width..],
            self.count,
            layer.width,
            at.stride,
        )
    }

    /// The keys or values that the block sees.
    fn keys<'a, R>(&self, layer: &Attention, data: &'a [R], at: Columns) -> Matrix<'a, R> {
        let row = self.sequence * layer.keys;
        Matrix::new(
            &data[at.offset + row * at.stride + self.head * layer.width..],
            self.keys,
            layer.width,
            at.stride,
        )
    }

    /// How many keys query `i` of the block sees.
    fn visible(&self, layer: &Attention, i: usize) -> usize {
        if layer.causal { self.keys.min(self.first + i + 1) } else { self.keys }
    }

    /// The biases of query `i`, key by key.
    fn bias<'a, R>(&self, layer: &Attention, bias: &'a [R], i: usize) -> &'a [R] {
        // Offset key − query = 0 stands at queries − 1.
        let start = self.head * (layer.queries + layer.keys - 1) + layer.queries - 1 - (self.first + i);
        &bias[start..]
    }

    /// The dropout multipliers of query `i`.
    fn mask<R: Real>(&self, layer: &Attention, i: usize, out: &mut [R]) {
        let row = (self.sequence * layer.heads + self.head) * layer.queries + self.first + i;
        let first = row as u64 * layer.keys.next_multiple_of(4) as u64;
        layer.dropout.site.fill_dropout(first, out, layer.dropout.probability);
    }

    /// Where the numbers of its queries stand in a list of (sequence, head, query).
    fn row(&self, layer: &Attention) -> usize {
        (self.sequence * layer.heads + self.head) * layer.queries + self.first
    }
}

fn blocks(layer: &Attention) -> usize {
    layer.queries.div_ceil(BLOCK)
}

/// `row ← exp(row − max)/Σ`, and the logarithm of the sum of exponentials of what was there.
#[inline(always)]
fn softmax<R: Real>(row: &mut [R]) -> R {
    let most = largest(row);
    let sum = fold(exponentials(row, most), |a, b| a + b);
    let scale = sum.recip();
    row.iter_mut().for_each(|value| *value *= scale);
    most + sum.ln()
}

/// `out = (M ∘ softmax(scale·q·kᵀ + bias))·v`.
#[allow(clippy::too_many_arguments)]
pub fn forward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Attention,
    heads: Heads,
    q: &[R],
    kv: &[R],
    bias: Option<&[R]>,
    out: &mut [R],
    logs: &mut [R],
) {
    let width = layer.heads * layer.width;
    let (out, logs) = (Shared::new(out), Shared::new(logs));
    let tasks = layer.batch * layer.heads * blocks(layer);
    let one = |task: usize| {
        let block = Block::new(layer, task / blocks(layer), task % blocks(layer));
        cpu.with_scratch((BLOCK + 1) * layer.keys, |scratch| {
            let (scores, mask) = scratch.split_at_mut(BLOCK * layer.keys);
            let n = block.keys;
            let (q, k) = (block.queries(layer, q, heads.q), block.keys(layer, kv, heads.k));
            product(
                MatrixMut::new(scores, block.count, n, n),
                q,
                k.t(),
                R::from_f64(layer.scale),
                Write::Set,
            );
            // SAFETY: no other task has this sequence, head and block.
            let logs = unsafe { logs.slice(block.row(layer), block.count) };
            for (i, (row, log)) in scores.chunks_exact_mut(n).zip(logs).enumerate() {
                let (seen, unseen) = row.split_at_mut(block.visible(layer, i));
                if let Some(bias) = bias {
                    let bias = block.bias(layer, bias, i);
                    dispatch(
                        #[inline(always)]
                        || seen.iter_mut().zip(bias).for_each(|(s, &b)| *s += b),
                    );
                }
                *log = dispatch(
                    #[inline(always)]
                    || softmax(seen),
                );
                unseen.fill(R::ZERO);
                if layer.dropout.is_active() {
                    let mask = &mut mask[..seen.len()];
                    block.mask(layer, i, mask);
                    dispatch(
                        #[inline(always)]
                        || seen.iter_mut().zip(&*mask).for_each(|(s, &m)| *s *= m),
                    );
                }
            }
            let row = block.sequence * layer.queries + block.first;
            // SAFETY: as above; heads stand side by side.
            let out = unsafe {
                out.matrix(row * width + block.head * layer.width, block.count, layer.width, width)
            };
            let weights = Matrix::new(scores, block.count, n, n);
            product(out, weights, block.keys(layer, kv, heads.v), R::ONE, Write::Set);
        });
    };
    cpu.pool.install(|| (0..tasks).into_par_iter().for_each(one));
}

/// What [`backward`] needs of the forward pass.
pub struct Saved<'a, R> {
    pub q: &'a [R],
    pub kv: &'a [R],
    pub bias: Option<&'a [R]>,
    pub out: &'a [R],
    pub logs: &'a [R],
}

/// With `P` the softmax and `M` the mask: `dv = (M∘P)ᵀ·d_out`; `dP = M∘(d_out·vᵀ)`; `dS = P∘(dP − rowsum(d_out∘out))`;
/// `dq = scale·dS·k`; `dk = scale·dSᵀ·q`; `d_bias[j − i] += dS[i, j]`.
///
/// A task has one sequence and head, and takes its blocks from the last to the first: the last sees all keys, so it writes
/// their gradients, and the others add.
#[allow(clippy::too_many_arguments)]
pub fn backward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Attention,
    heads: Heads,
    saved: Saved<'_, R>,
    d_out: &[R],
    d_q: &mut [R],
    d_kv: Option<&mut [R]>,
    d_bias: Option<&mut [R]>,
) {
    let Saved { q, kv, bias, out, logs } = saved;
    let offsets = layer.queries + layer.keys - 1;
    let across = Columns { offset: 0, stride: layer.heads * layer.width };
    let d_q = Shared::new(d_q);
    let d_kv = d_kv.map_or(d_q, Shared::new);
    let pairs = layer.batch * layer.heads;
    let mut partial = lock(&cpu.shared);
    let partial = reserve(&mut partial, if d_bias.is_some() { pairs * offsets } else { 0 });
    let sums = Shared::new(partial);
    let scale = R::from_f64(layer.scale);

    let one = |pair: usize| {
        // SAFETY (here and below): no other task has this sequence and head.
        let mut d_bias = d_bias.is_some().then(|| unsafe { sums.slice(pair * offsets, offsets) });
        if let Some(d_bias) = &mut d_bias {
            d_bias.fill(R::ZERO);
        }
        let one_block = |index: usize, scratch: &mut [R]| {
            let block = Block::new(layer, pair, index);
            let n = block.keys;
            let (weights, scratch) = scratch.split_at_mut(BLOCK * layer.keys);
            let (d_weights, masks) = scratch.split_at_mut(BLOCK * layer.keys);
            let queries = block.queries(layer, q, heads.q);
            let (k, v) = (block.keys(layer, kv, heads.k), block.keys(layer, kv, heads.v));
            let d_rows = block.queries(layer, d_out, across);
            let rows = block.queries(layer, out, across);
            product(MatrixMut::new(weights, block.count, n, n), queries, k.t(), scale, Write::Set);
            product(MatrixMut::new(d_weights, block.count, n, n), d_rows, v.t(), R::ONE, Write::Set);
            let logs = &logs[block.row(layer)..][..block.count];
            for i in 0..block.count {
                let seen = block.visible(layer, i);
                let row = i * n..i * n + seen;
                let (p, dp) = (&mut weights[i * n..][..n], &mut d_weights[i * n..][..n]);
                p[seen..].fill(R::ZERO);
                dp[seen..].fill(R::ZERO);
                let (p, dp) = (&mut p[..seen], &mut dp[..seen]);
                let mask = layer.dropout.is_active().then(|| {
                    let mask = &mut masks[row];
                    block.mask(layer, i, mask);
                    &*mask
                });
                let bias = bias.map(|bias| &block.bias(layer, bias, i)[..seen]);
                let (d_row, out_row) = (d_rows.row(i), rows.row(i));
                dispatch(
                    #[inline(always)]
                    || {
                        if let Some(bias) = bias {
                            p.iter_mut().zip(bias).for_each(|(p, &bias)| *p += bias);
                        }
                        let log = logs[i];
                        p.iter_mut().for_each(|p| *p = Real::exp(*p - log));
                        let mut inner = [R::ZERO; LANES];
                        for (index, (&d, &out)) in d_row.iter().zip(out_row).enumerate() {
                            inner[index % LANES] += d * out;
                        }
                        let inner = fold(inner, |a, b| a + b);
                        match mask {
                            Some(mask) => {
                                for ((p, dp), &mask) in p.iter_mut().zip(dp).zip(mask) {
                                    *dp = *p * (mask * *dp - inner);
                                    *p *= mask;
                                }
                            }
                            None => p.iter().zip(dp).for_each(|(&p, dp)| *dp = p * (*dp - inner)),
                        }
                    },
                );
                if let Some(d_bias) = &mut d_bias {
                    let start = layer.queries - 1 - (block.first + i);
                    let (to, from) = (&mut d_bias[start..][..seen], &d_weights[i * n..][..seen]);
                    dispatch(
                        #[inline(always)]
                        || to.iter_mut().zip(from).for_each(|(to, &from)| *to += from),
                    );
                }
            }
            let write = if index + 1 == blocks(layer) { Write::Set } else { Write::Add };
            let (weights, d_weights) =
                (Matrix::new(weights, block.count, n, n), Matrix::new(d_weights, block.count, n, n));
            let column = block.head * layer.width;
            let keys_of = |at: Columns| unsafe {
                let row = block.sequence * layer.keys;
                d_kv.matrix(at.offset + row * at.stride + column, n, layer.width, at.stride)
            };
            product(keys_of(heads.v), weights.t(), d_rows, R::ONE, write);
            product(keys_of(heads.k), d_weights.t(), queries, scale, write);
            let row = block.sequence * layer.queries + block.first;
            let to = unsafe {
                d_q.matrix(
                    heads.q.offset + row * heads.q.stride + column,
                    block.count,
                    layer.width,
                    heads.q.stride,
                )
            };
            product(to, d_weights, k, scale, Write::Set);
        };
        let mut one_block = one_block;
        cpu.with_scratch(3 * BLOCK * layer.keys, |scratch| {
            for index in (0..blocks(layer)).rev() {
                one_block(index, scratch);
            }
        });
    };
    cpu.pool.install(|| (0..pairs).into_par_iter().for_each(one));

    let Some(d_bias) = d_bias else { return };
    for (pair, sums) in partial.chunks_exact(offsets).enumerate() {
        let to = &mut d_bias[pair % layer.heads * offsets..][..offsets];
        to.iter_mut().zip(sums).for_each(|(to, &from)| *to += from);
    }
}
