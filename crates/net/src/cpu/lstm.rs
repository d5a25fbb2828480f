//! An LSTM over a whole sequence.
//!
//! What does not depend on the step before is one product over all positions. What does is a product of few rows, the batch, with a
//! matrix of 21 MB (in the paper's shape) at every position: that matrix is packed once per pass, and the task that multiplies
//! one of its [`panels`](super::panels) applies what follows, too.
#![allow(unsafe_code)]

use super::math::{Real, dispatch};
use super::matrix::{Matrix, MatrixMut, Shared, Write};
use super::panels::{ROWS, Room, WIDTH, multiply_tiles, sweep};
use super::{Cpu, lock, vector};
use crate::device::{Dropout, Lstm};
use rayon::prelude::*;
use std::ops::Range;

/// Units whose four gates stand side by side in a panel: a vector of each gate.
const UNITS: usize = WIDTH / 4;

/// The first numbers of a slice, and 0 where it is shorter.
#[inline(always)]
fn load<R: Real>(from: &[R]) -> [R; UNITS] {
    match from.first_chunk() {
        Some(from) => *from,
        None => {
            let mut values = [R::ZERO; UNITS];
            values[..from.len()].copy_from_slice(from);
            values
        }
    }
}

/// As many of the values as the slice holds.
#[inline(always)]
fn store<R: Real>(values: &[R; UNITS], to: &mut [R]) {
    match to.first_chunk_mut() {
        Some(to) => *to = *values,
        None => to.copy_from_slice(&values[..to.len()]),
    }
}

/// What comes before the product for [`UNITS`] units of one sequence: the inputs' part of the arguments, and the biases.
#[inline(always)]
fn start<R: Real>(inputs: [&[R]; 4], biases: [&[R]; 2], hidden: usize, arguments: &mut [R; WIDTH]) {
    for (gate, to) in arguments.as_chunks_mut::<UNITS>().0.iter_mut().enumerate() {
        let (x, at) = (load(inputs[gate]), gate * hidden..gate * hidden + inputs[gate].len());
        let (b, b2) = (load(&biases[0][at.clone()]), load(&biases[1][at]));
        for u in 0..UNITS {
            to[u] = x[u] + (b[u] + b2[u]);
        }
    }
}

/// What follows the product for [`UNITS`] units of one sequence; `arguments` are those of the four gates.
#[inline(always)]
fn activate<R: Real>(
    arguments: &[R; WIDTH],
    gates: [&mut [R]; 4],
    last_cells: &[R],
    cells: &mut [R],
    out: &mut [R],
    next: &mut [R],
    row: usize,
) {
    let (i, f, g, o) = (
        load(&arguments[..UNITS]),
        load(&arguments[UNITS..]),
        load(&arguments[2 * UNITS..]),
        load(&arguments[3 * UNITS..]),
    );
    let (mut values, mut c, mut h) = ([[R::ZERO; UNITS]; 4], load(last_cells), [R::ZERO; UNITS]);
    for u in 0..UNITS {
        let (i, f, g, o) = (i[u].sigmoid(), f[u].sigmoid(), g[u].tanh(), o[u].sigmoid());
        c[u] = f.mul_add(c[u], i * g);
        h[u] = o * c[u].tanh();
        (values[0][u], values[1][u], values[2][u], values[3][u]) = (i, f, g, o);
    }
    for (to, values) in gates.into_iter().zip(&values) {
        store(values, to);
    }
    store(&c, cells);
    store(&h, out);
    for (to, h) in next.as_chunks_mut::<ROWS>().0.iter_mut().zip(h) {
        to[row] = h;
    }
}

/// The backward pass through [`activate`]; `cells` are those before and after.
#[inline(always)]
fn activate_backward<R: Real>(
    gates: [&mut [R]; 4],
    sums: &[R],
    cells: [&[R]; 2],
    d_out: &[R],
    d_cells: &mut [R],
    next: [&mut [R]; 4],
    row: usize,
) {
    let (i, f, g, o) = (load(gates[0]), load(gates[1]), load(gates[2]), load(gates[3]));
    let (last_c, c, mut d_c) = (load(cells[0]), load(cells[1]), load(d_cells));
    let (d_out, sums) = (load(d_out), load(sums));
    let mut e = [[R::ZERO; UNITS]; 4];
    for u in 0..UNITS {
        let d_h = d_out[u] + sums[u];
        let c = c[u].tanh();
        let d = d_c[u] + d_h * o[u] * (R::ONE - c * c);
        e[0][u] = d * g[u] * i[u] * (R::ONE - i[u]);
        e[1][u] = d * last_c[u] * f[u] * (R::ONE - f[u]);
        e[2][u] = d * i[u] * (R::ONE - g[u] * g[u]);
        e[3][u] = d_h * c * o[u] * (R::ONE - o[u]);
        d_c[u] = d * f[u];
    }
    store(&d_c, d_cells);
    for ((gates, next), e) in gates.into_iter().zip(next).zip(&e) {
        store(e, gates);
        for (to, &e) in next.as_chunks_mut::<ROWS>().0.iter_mut().zip(e) {
            to[row] = e;
        }
    }
}

/// Row `row` of `M ∘ W_hh`.
fn masked_row<R: Real>(drop: &Dropout, weight: &[R], row: usize, out: &mut [R]) {
    drop.fill(row, out);
    let from = &weight[row * out.len()..][..out.len()];
    dispatch(
        #[inline(always)]
        || out.iter_mut().zip(from).for_each(|(out, &from)| *out *= from),
    );
}

/// `(M ∘ W_hh)ᵀ` in panels of [`UNITS`] units with their four gates.
fn pack_forward<R: Real>(cpu: &Cpu<R>, layer: &Lstm, weight: &[R], panels: &mut [R]) {
    let hidden = layer.hidden();
    let one = |(index, panel): (usize, &mut [R])| {
        let units = UNITS.min(hidden - index * UNITS);
        let (panel, _) = panel.as_chunks_mut::<WIDTH>();
        cpu.with_scratch(UNITS * hidden, |masked| {
            masked[units * hidden..].fill(R::ZERO);
            for gate in 0..4 {
                for (unit, out) in masked.chunks_exact_mut(hidden).take(units).enumerate() {
                    masked_row(&layer.weight_drop, weight, gate * hidden + index * UNITS + unit, out);
                }
                for (k, to) in panel.iter_mut().enumerate() {
                    for (unit, to) in to[gate * UNITS..][..UNITS].iter_mut().enumerate() {
                        *to = masked[unit * hidden + k];
                    }
                }
            }
        });
    };
    cpu.pool.install(|| panels.par_chunks_mut(hidden * WIDTH).enumerate().for_each(one));
}

/// `M ∘ W_hh` in panels of [`WIDTH`] columns.
fn pack_backward<R: Real>(cpu: &Cpu<R>, layer: &Lstm, weight: &[R], panels: &mut [R]) {
    let hidden = layer.hidden();
    let inner = 4 * hidden;
    let to = Shared::new(panels);
    let one = |row: usize| {
        cpu.with_scratch(hidden, |masked| {
            masked_row(&layer.weight_drop, weight, row, masked);
            for (panel, from) in masked.chunks(WIDTH).enumerate() {
                // SAFETY: no other task has this row of the panels.
                let to = unsafe { to.slice((panel * inner + row) * WIDTH, WIDTH) };
                to[..from.len()].copy_from_slice(from);
                to[from.len()..].fill(R::ZERO);
            }
        });
    };
    cpu.pool.install(|| (0..inner).into_par_iter().for_each(one));
}

/// `i, f, g, o` = σ, σ, tanh, σ of `W_ih·x_t + b_ih + (M ∘ W_hh)·h_{t−1} + b_hh`; `c_t = f∘c_{t−1} + i∘g`; `h_t = o∘tanh(c_t)`.
#[allow(clippy::too_many_arguments)]
pub fn forward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Lstm,
    x: &[R],
    input: &[R],
    carry: &mut [R],
    gates: &mut [R],
    cells: &mut [R],
    out: &mut [R],
) {
    let (time, batch, hidden, inputs) = (layer.time, layer.batch, layer.hidden(), layer.inputs());
    let (rows, state) = (time * batch, batch * hidden);
    let weight = Matrix::new(&x[layer.input_weight.range()], 4 * hidden, inputs, inputs);
    let input = Matrix::new(input, rows, inputs, inputs);
    cpu.product(MatrixMut::new(gates, rows, 4 * hidden, 4 * hidden), input, weight.t(), Write::Set);

    let (panels, tiles) = (hidden.div_ceil(UNITS), batch.div_ceil(ROWS));
    let mut scratch = lock(&cpu.shared);
    let room = Room::new(&mut scratch, panels, hidden, batch, 0);
    pack_forward(cpu, layer, &x[layer.hidden_weight.range()], room.panels);
    let (carried_h, carried_c) = carry[..2 * state].split_at_mut(state);
    out[..state].copy_from_slice(carried_h);
    cells[..state].copy_from_slice(carried_c);
    for (sequence, h) in carried_h.chunks_exact(hidden).enumerate() {
        let (tile, row) = (sequence / ROWS, sequence % ROWS);
        h.iter().enumerate().for_each(|(k, &h)| room.rows[(tile * hidden + k) * ROWS + row] = h);
    }

    let biases = [&x[layer.input_bias.range()], &x[layer.hidden_bias.range()]];
    let half = tiles * hidden * ROWS;
    let (shared_gates, shared_cells, shared_out) = (Shared::new(gates), Shared::new(cells), Shared::new(out));
    let shared_rows = Shared::new(room.rows);
    let weights = &*room.panels;
    let one = |step: usize, panel: usize, tiles: Range<usize>| {
        let (now, next) = (step % 2 * half, (step + 1) % 2 * half);
        let (first, count) = (panel * UNITS, UNITS.min(hidden - panel * UNITS));
        cpu.with_scratch(tiles.len() * ROWS * WIDTH, |sums| {
            let sums = sums.as_chunks_mut::<WIDTH>().0.as_chunks_mut::<ROWS>().0;
            let row_of = |tile: usize, row: usize| step * batch + tile * ROWS + row;
            // SAFETY (here and below): no other task has these units of these sequences.
            let gate_of = |at: usize, gate: usize| unsafe {
                shared_gates.slice((at * 4 + gate) * hidden + first, count)
            };
            // All at once, so that the CPU fetches many at a time: none of them is in a cache. Rows beyond the batch keep
            // what is left in the scratch, and nobody reads their sums.
            for (tile, sums) in tiles.clone().zip(&mut *sums) {
                for (row, sums) in sums.iter_mut().enumerate().take(batch - tile * ROWS) {
                    let at = row_of(tile, row);
                    let inputs = [gate_of(at, 0), gate_of(at, 1), gate_of(at, 2), gate_of(at, 3)];
                    let biases = biases.map(|bias| &bias[first..]);
                    dispatch(
                        #[inline(always)]
                        || start(inputs.map(|input| &*input), biases, hidden, sums),
                    );
                }
            }
            // SAFETY: these were written at the last step, and nobody writes them at this one.
            let before =
                unsafe { shared_rows.read(now + tiles.start * hidden * ROWS, tiles.len() * hidden * ROWS) };
            multiply_tiles(before, &weights[panel * hidden * WIDTH..][..hidden * WIDTH], hidden, sums);
            for (tile, sums) in tiles.zip(sums) {
                let next = unsafe { shared_rows.slice(next + (tile * hidden + first) * ROWS, count * ROWS) };
                for (row, sums) in sums.iter().enumerate().take(batch - tile * ROWS) {
                    let at = row_of(tile, row);
                    let gates = [gate_of(at, 0), gate_of(at, 1), gate_of(at, 2), gate_of(at, 3)];
                    let last_cells = unsafe { shared_cells.read(at * hidden + first, count) };
                    let cells = unsafe { shared_cells.slice((at + batch) * hidden + first, count) };
                    let out = unsafe { shared_out.slice((at + batch) * hidden + first, count) };
                    dispatch(
                        #[inline(always)]
                        || activate(sums, gates, last_cells, cells, out, next, row),
                    );
                }
            }
        });
    };
    sweep(cpu, time, panels, tiles, weights.len(), one);
    carried_h.copy_from_slice(&out[time * state..][..state]);
    carried_c.copy_from_slice(&cells[time * state..][..state]);
}

/// From the last position to the first, with `e` the gradient of the arguments of the gates (it overwrites the gates):
/// `dh_t = d_out_t + e_{t+1}·(M ∘ W_hh)`; `dc_t = dc_{t+1}∘f_{t+1} + dh_t∘o∘(1 − tanh²(c_t))`; `e_i = dc∘g∘i(1 − i)`,
/// `e_f = dc∘c_{t−1}∘f(1 − f)`, `e_g = dc∘i∘(1 − g²)`, `e_o = dh∘tanh(c)∘o(1 − o)`.
///
/// Then `dW_ih = eᵀ·x`, `dW_hh = M ∘ (eᵀ·h_{t−1})`, `db_ih = db_hh = Σ_rows e`, `d_x = e·W_ih`.
#[allow(clippy::too_many_arguments)]
pub fn backward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Lstm,
    x: &[R],
    input: &[R],
    gates: &mut [R],
    cells: &[R],
    out: &[R],
    d_out: &[R],
    dx: &mut [R],
    d_input: &mut [R],
) {
    let (hidden, inputs, rows) = (layer.hidden(), layer.inputs(), layer.time * layer.batch);
    recurrent_backward(cpu, layer, &x[layer.hidden_weight.range()], gates, cells, d_out);

    let e = Matrix::new(&gates[..rows * 4 * hidden], rows, 4 * hidden, 4 * hidden);
    let input = Matrix::new(input, rows, inputs, inputs);
    let d_weight = &mut dx[layer.input_weight.range()];
    cpu.product(MatrixMut::new(d_weight, 4 * hidden, inputs, inputs), e.t(), input, Write::Set);
    let before = Matrix::new(out, rows, hidden, hidden);
    let d_weight = &mut dx[layer.hidden_weight.range()];
    cpu.product(MatrixMut::new(d_weight, 4 * hidden, hidden, hidden), e.t(), before, Write::Set);
    if layer.weight_drop.is_active() {
        let mask = |(row, d_weight): (usize, &mut [R])| {
            cpu.with_scratch(hidden, |mask| {
                layer.weight_drop.fill(row, mask);
                dispatch(
                    #[inline(always)]
                    || d_weight.iter_mut().zip(&*mask).for_each(|(d, &mask)| *d *= mask),
                );
            });
        };
        cpu.pool.install(|| d_weight.par_chunks_mut(hidden).enumerate().for_each(mask));
    }
    vector::column_sums(cpu, e.numbers(), &mut dx[layer.input_bias.range()], Write::Set);
    dx.copy_within(layer.input_bias.range(), layer.hidden_bias.offset);
    let weight = Matrix::new(&x[layer.input_weight.range()], 4 * hidden, inputs, inputs);
    cpu.product(MatrixMut::new(d_input, rows, inputs, inputs), e, weight, Write::Set);
}

/// The part of [`backward`] that goes position by position: `gates` becomes `e`.
fn recurrent_backward<R: Real>(
    cpu: &Cpu<R>,
    layer: &Lstm,
    weight: &[R],
    gates: &mut [R],
    cells: &[R],
    d_out: &[R],
) {
    let (time, batch, hidden) = (layer.time, layer.batch, layer.hidden());
    let inner = 4 * hidden;
    let (panels, tiles) = (hidden.div_ceil(WIDTH), batch.div_ceil(ROWS));
    let mut scratch = lock(&cpu.shared);
    let room = Room::new(&mut scratch, panels, inner, batch, batch * hidden);
    pack_backward(cpu, layer, weight, room.panels);
    let half = tiles * inner * ROWS;
    let (shared_gates, shared_rows) = (Shared::new(gates), Shared::new(room.rows));
    let d_cells = Shared::new(room.d_cells);
    let weights = &*room.panels;
    let one = |step: usize, panel: usize, tiles: Range<usize>| {
        let (now, next) = (step % 2 * half, (step + 1) % 2 * half);
        let units = panel * WIDTH..hidden.min((panel + 1) * WIDTH);
        cpu.with_scratch(tiles.len() * ROWS * WIDTH, |sums| {
            let sums = sums.as_chunks_mut::<WIDTH>().0.as_chunks_mut::<ROWS>().0;
            // SAFETY: these were written at the last step, and nobody writes them at this one.
            let after =
                unsafe { shared_rows.read(now + tiles.start * inner * ROWS, tiles.len() * inner * ROWS) };
            sums.fill([[R::ZERO; WIDTH]; ROWS]);
            multiply_tiles(after, &weights[panel * inner * WIDTH..][..inner * WIDTH], inner, sums);
            for (tile, sums) in tiles.zip(sums) {
                for (row, sums) in sums.iter().enumerate().take(batch - tile * ROWS) {
                    let sequence = tile * ROWS + row;
                    let at = (time - 1 - step) * batch + sequence;
                    for first in units.clone().step_by(UNITS) {
                        let count = UNITS.min(units.end - first);
                        // SAFETY (here and below): no other task has these units of this sequence.
                        let gate = |gate: usize| unsafe {
                            shared_gates.slice(at * inner + gate * hidden + first, count)
                        };
                        let next = |gate: usize| unsafe {
                            let start = tile * inner + gate * hidden + first;
                            shared_rows.slice(next + start * ROWS, count * ROWS)
                        };
                        let gates = [gate(0), gate(1), gate(2), gate(3)];
                        let next = [next(0), next(1), next(2), next(3)];
                        let d_cells = unsafe { d_cells.slice(sequence * hidden + first, count) };
                        let [last_c, c] = [at, at + batch].map(|row| &cells[row * hidden + first..][..count]);
                        let d_out = &d_out[at * hidden + first..][..count];
                        let sums = &sums[first - units.start..];
                        dispatch(
                            #[inline(always)]
                            || activate_backward(gates, sums, [last_c, c], d_out, d_cells, next, row),
                        );
                    }
                }
            }
        });
    };
    sweep(cpu, time, panels, tiles, weights.len(), one);
}
