//! Rows of a table by id, with positions added.

use super::Cpu;
use super::math::{Real, dispatch};
use crate::device::Embedding;
use rayon::prelude::*;

/// `out[r] = M_d ∘ (m_id · E[id] + P[r mod positions])`.
pub fn forward<R: Real>(cpu: &Cpu<R>, layer: &Embedding, x: &[R], ids: &[u32], out: &mut [R]) {
    let width = layer.table.columns;
    let table = &x[layer.table.range()];
    let positions = layer.positions.map(|(view, used)| (&x[view.range()], used));
    let part = cpu.rows_per_part(ids.len(), width);
    let one = |(index, (out, ids)): (usize, (&mut [R], &[u32]))| {
        for (row, (out, &id)) in out.chunks_exact_mut(width).zip(ids).enumerate() {
            let row = index * part + row;
            let from = &table[id as usize * width..][..width];
            let keep: R = keep_row(layer, id);
            layer.dropout.fill(row, out);
            match positions {
                Some((positions, used)) => {
                    let position = &positions[row % used * width..][..width];
                    dispatch(
                        #[inline(always)]
                        || {
                            for ((out, &from), &position) in out.iter_mut().zip(from).zip(position) {
                                *out *= keep * from + position;
                            }
                        },
                    );
                }
                None => dispatch(
                    #[inline(always)]
                    || out.iter_mut().zip(from).for_each(|(out, &from)| *out *= keep * from),
                ),
            }
        }
    };
    let out = &mut out[..ids.len() * width];
    cpu.pool.install(|| out.par_chunks_mut(part * width).zip(ids.par_chunks(part)).enumerate().for_each(one));
}

/// `dE[id] += m_id · M_d ∘ d_out[r]` over the rows with that id, in order; `dP[p] = Σ M_d ∘ d_out[r]` over those at position p.
pub fn backward<R: Real>(cpu: &Cpu<R>, layer: &Embedding, ids: &[u32], d_out: &[R], dx: &mut [R]) {
    let width = layer.table.columns;
    // Adds row `row` of the output's gradient, times `keep`, to `to`.
    let add_row = |row: usize, keep: R, mask: &mut [R], to: &mut [R]| {
        layer.dropout.fill(row, mask);
        let from = &d_out[row * width..][..width];
        dispatch(
            #[inline(always)]
            || {
                for ((to, &from), &mask) in to.iter_mut().zip(from).zip(&*mask) {
                    *to += keep * mask * from;
                }
            },
        );
    };
    // Each part owns some rows of the table, and looks at all ids.
    let part = layer.table.rows.div_ceil(cpu.threads());
    let table = |(index, to): (usize, &mut [R])| {
        let first = index * part;
        cpu.with_scratch(width, |mask| {
            for (row, &id) in ids.iter().enumerate() {
                let at = (id as usize).wrapping_sub(first);
                if at < to.len() / width {
                    add_row(row, keep_row(layer, id), mask, &mut to[at * width..][..width]);
                }
            }
        });
    };
    let d_table = &mut dx[layer.table.range()];
    cpu.pool.install(|| d_table.par_chunks_mut(part * width).enumerate().for_each(table));

    let Some((view, used)) = layer.positions else { return };
    let position = |(position, to): (usize, &mut [R])| {
        to.fill(R::ZERO);
        cpu.with_scratch(width, |mask| {
            for row in (position..ids.len()).step_by(used).filter(|_| position < used) {
                add_row(row, R::ONE, mask, to);
            }
        });
    };
    let d_positions = &mut dx[view.range()];
    cpu.pool.install(|| d_positions.par_chunks_mut(width).enumerate().for_each(position));
}

/// `m_id`.
fn keep_row<R: Real>(layer: &Embedding, id: u32) -> R {
    let mut keep = [R::ONE];
    if layer.row_dropout.is_active() {
        layer.row_dropout.fill(id as usize, &mut keep);
    }
    keep[0]
}
