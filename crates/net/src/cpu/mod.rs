//! The networks on the CPU, in f32, and in f64 to prove gradients.
//!
//! Each file holds an operation's forward and backward side by side. Loops run inside [`math::dispatch`], which compiles them for
//! the instruction sets that the CPU may have. Work is cut in parts whose results do not depend on where the cuts are, so
//! that any number of threads gives the same bits.

mod attention;
mod embedding;
mod head;
mod lanes;
mod linear;
mod lstm;
pub mod math;
pub mod matrix;
mod norm;
mod panels;
mod regularizers;
pub(crate) mod relative_bias;
mod vector;

use crate::arena::View;
use crate::device::{
    Attention, Device, DeviceError, Dropout, Embedding, Head, Heads, Kind, Linear, Lstm, Norm, Regularizers,
    RelativeBias,
};
use math::Real;
use matrix::{Matrix, MatrixMut, Write};
use std::sync::Mutex;
use untuned::formula::{Change, Measure};
use untuned::space::TensorRange;

/// The CPU, with a number of threads, for one caller at a time: two threads that use the same one at once may wait for each
/// other without end.
pub struct Cpu<R> {
    pool: rayon::ThreadPool,
    /// Room for intermediate results, one per thread and one for a caller outside of the pool. They grow in the first step.
    scratch: Vec<Mutex<Vec<R>>>,
    /// Room that all threads share within one operation.
    shared: Mutex<Vec<R>>,
    /// Room for logits.
    shared_logits: Mutex<Vec<R>>,
    /// Partial sums.
    partial: Mutex<Vec<f64>>,
}

impl<R> std::fmt::Debug for Cpu<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cpu({} threads)", self.pool.current_num_threads())
    }
}

impl<R: Real> Cpu<R> {
    /// With this many threads, or as many as the machine has.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn new(threads: Option<usize>) -> Result<Self, DeviceError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.unwrap_or(0))
            .thread_name(|index| format!("untuned-{index}"))
            .build()
            .map_err(|error| DeviceError::Failed { device: "cpu".into(), reason: error.to_string() })?;
        let scratch = (0..=pool.current_num_threads()).map(|_| Mutex::default()).collect();
        Ok(Self {
            pool,
            scratch,
            shared: Mutex::default(),
            shared_logits: Mutex::default(),
            partial: Mutex::default(),
        })
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Rows in one part of a pass over `rows` rows of `width` numbers: about 16 KiB of numbers, or fewer when that leaves
    /// threads idle.
    fn rows_per_part(&self, rows: usize, width: usize) -> usize {
        (16384 / width.max(1)).clamp(1, rows.div_ceil(self.threads()).max(1))
    }

    /// Calls `work` with `len` numbers of this thread's scratch; what is in them is left over from before.
    fn with_scratch<T>(&self, len: usize, work: impl FnOnce(&mut [R]) -> T) -> T {
        let index = self.pool.current_thread_index().unwrap_or(self.threads());
        let mut scratch = lock(&self.scratch[index]);
        if scratch.len() < len {
            scratch.resize(len, R::ZERO);
        }
        work(&mut scratch[..len])
    }

    /// A product on all threads.
    fn product(&self, c: MatrixMut<'_, R>, a: Matrix<'_, R>, b: Matrix<'_, R>, write: Write) {
        self.pool.install(|| matrix::parallel_product(c, a, b, R::ONE, write, self.threads()));
    }
}

/// Buffers from this many bytes on are compared with the memory that is free.
const LARGE: u64 = 1 << 26;

/// The bytes that can be had without swapping, where the system says so.
fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The value of a lock, also after a panic of a thread that held it: it only ever guards scratch.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Grows a scratch where it is too short.
fn reserve<T: Clone + Default>(scratch: &mut Vec<T>, len: usize) -> &mut [T] {
    if scratch.len() < len {
        scratch.resize(len, T::default());
    }
    &mut scratch[..len]
}

impl Dropout {
    /// The multipliers of row `row` of a buffer `out.len()` wide.
    fn fill<R: Real>(&self, row: usize, out: &mut [R]) {
        let first = (row % self.period) as u64 * out.len() as u64;
        self.site.fill_dropout(first, out, self.probability);
    }
}

impl<R: Real> Device for Cpu<R> {
    type Parameters = Vec<R>;
    type Buffer = Vec<R>;
    type Ids = Vec<u32>;
    type Scalars = Vec<f64>;

    fn name(&self) -> String {
        "cpu".into()
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }

    fn parameters(&self, values: &[f32]) -> Result<Vec<R>, DeviceError> {
        let mut parameters = self.buffer(values.len(), Kind::Activation)?;
        self.set_parameters(&mut parameters, values);
        Ok(parameters)
    }

    fn set_parameters(&self, to: &mut Vec<R>, values: &[f32]) {
        self.set_buffer(to, values);
    }

    fn get_parameters(&self, from: &Vec<R>, values: &mut [f32]) -> Result<(), DeviceError> {
        self.get_buffer(from, values)
    }

    fn buffer(&self, len: usize, _kind: Kind) -> Result<Vec<R>, DeviceError> {
        let needed = (len as u64).saturating_mul(size_of::<R>() as u64);
        let refused = |free| DeviceError::OutOfMemory { device: self.name(), needed, free };
        // The system may promise more than there is, and kill whoever takes it at its word.
        let free = if needed > LARGE { available_memory() } else { None };
        if let Some(free) = free.filter(|&free| free < needed) {
            return Err(refused(format!("{free} are free")));
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len).map_err(|_| refused("and the system refuses them".into()))?;
        buffer.resize(len, R::ZERO);
        Ok(buffer)
    }

    fn set_buffer(&self, to: &mut Vec<R>, values: &[f32]) {
        for (to, &value) in to[..values.len()].iter_mut().zip(values) {
            *to = R::from_f32(value);
        }
    }

    fn get_buffer(&self, from: &Vec<R>, values: &mut [f32]) -> Result<(), DeviceError> {
        let len = values.len();
        for (value, &from) in values.iter_mut().zip(&from[..len]) {
            *value = from.to_f64() as f32;
        }
        Ok(())
    }

    fn ids(&self, len: usize) -> Result<Vec<u32>, DeviceError> {
        Ok(vec![0; len])
    }

    fn set_ids(&self, to: &mut Vec<u32>, values: &[u32]) {
        to[..values.len()].copy_from_slice(values);
    }

    fn scalars(&self, len: usize) -> Result<Vec<f64>, DeviceError> {
        Ok(vec![0.0; len])
    }

    fn read(&self, from: &Vec<f64>, values: &mut [f64]) -> Result<(), DeviceError> {
        let len = values.len();
        values.copy_from_slice(&from[..len]);
        Ok(())
    }

    fn change<F: Change<S, M, N>, const S: usize, const M: usize, const N: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        tensors: &[TensorRange],
        change: [&mut Vec<R>; M],
        read: [&Vec<R>; N],
    ) {
        let (change, read) = (change.map(Vec::as_mut_slice), read.map(Vec::as_slice));
        vector::change(self, formula, scalars, decay, tensors, change, read);
    }

    fn measure<F: Measure<S, N, K>, const S: usize, const N: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        tensors: &[TensorRange],
        read: [&Vec<R>; N],
        to: &mut Vec<f64>,
        at: usize,
    ) {
        let sums = vector::measure(self, formula, scalars, decay, tensors, read.map(Vec::as_slice));
        to[at..at + K].copy_from_slice(&sums);
    }

    fn copy_parameters(&self, from: &Vec<R>, to: &mut Vec<R>) {
        vector::copy(self, from, to);
    }

    fn clear(&self, parameters: &mut Vec<R>, view: View) {
        parameters[view.range()].fill(R::ZERO);
    }

    fn copy(&self, len: usize, from: &Vec<R>, to: &mut Vec<R>) {
        vector::copy(self, &from[..len], &mut to[..len]);
    }

    fn clear_buffer(&self, len: usize, buffer: &mut Vec<R>) {
        buffer[..len].fill(R::ZERO);
    }

    fn add(&self, len: usize, from: &Vec<R>, to: &mut Vec<R>) {
        vector::add(self, &from[..len], &mut to[..len]);
    }

    fn embedding(&self, layer: &Embedding, rows: usize, x: &Vec<R>, ids: &Vec<u32>, out: &mut Vec<R>) {
        embedding::forward(self, layer, x, &ids[..rows], out);
    }

    fn embedding_backward(
        &self,
        layer: &Embedding,
        rows: usize,
        ids: &Vec<u32>,
        d_out: &Vec<R>,
        dx: &mut Vec<R>,
    ) {
        embedding::backward(self, layer, &ids[..rows], d_out, dx);
    }

    fn add_norm(
        &self,
        norm: Norm,
        weight: View,
        rows: usize,
        x: &Vec<R>,
        stream_in: &Vec<R>,
        branch: Option<(&Vec<R>, Dropout, &mut Vec<R>)>,
        out: &mut Vec<R>,
        statistics: &mut Vec<R>,
    ) {
        let branch = branch.map(|(branch, dropout, stream)| (&branch[..], dropout, &mut stream[..]));
        norm::forward(self, norm, &x[weight.range()], rows, stream_in, branch, out, statistics);
    }

    fn add_norm_backward(
        &self,
        norm: Norm,
        weight: View,
        rows: usize,
        x: &Vec<R>,
        stream: &Vec<R>,
        statistics: &Vec<R>,
        d_out: &Vec<R>,
        dx: &mut Vec<R>,
        d_stream: &mut Vec<R>,
        d_branch: Option<(&mut Vec<R>, Dropout)>,
    ) {
        let d_branch = d_branch.map(|(branch, dropout)| (&mut branch[..], dropout));
        let (x, dx) = (&x[weight.range()], &mut dx[weight.range()]);
        norm::backward(self, norm, x, rows, stream, statistics, d_out, dx, d_stream, d_branch);
    }

    fn linear(
        &self,
        layer: &Linear,
        rows: usize,
        x: &Vec<R>,
        input: &Vec<R>,
        out: &mut Vec<R>,
        before: Option<&mut Vec<R>>,
    ) {
        linear::forward(self, layer, rows, x, input, out, before.map(|b| &mut b[..]));
    }

    fn linear_backward(
        &self,
        layer: &Linear,
        rows: usize,
        x: &Vec<R>,
        input: &Vec<R>,
        before: Option<&mut Vec<R>>,
        d_out: &Vec<R>,
        dx: &mut Vec<R>,
        d_input: Option<(&mut Vec<R>, Write)>,
    ) {
        let d_input = d_input.map(|(d, write)| (&mut d[..], write));
        linear::backward(self, layer, rows, x, input, before.map(|b| &mut b[..]), d_out, dx, d_input);
    }

    fn attention(
        &self,
        layer: &Attention,
        heads: Heads,
        q: &Vec<R>,
        kv: &Vec<R>,
        bias: Option<&Vec<R>>,
        out: &mut Vec<R>,
        logs: &mut Vec<R>,
    ) {
        attention::forward(self, layer, heads, q, kv, bias.map(|b| &b[..]), out, logs);
    }

    fn attention_backward(
        &self,
        layer: &Attention,
        heads: Heads,
        q: &Vec<R>,
        kv: &Vec<R>,
        bias: Option<&Vec<R>>,
        out: &Vec<R>,
        logs: &Vec<R>,
        d_out: &Vec<R>,
        d_q: &mut Vec<R>,
        d_kv: Option<&mut Vec<R>>,
        d_bias: Option<&mut Vec<R>>,
    ) {
        let saved = attention::Saved { q, kv, bias: bias.map(|b| &b[..]), out, logs };
        let d_bias = d_bias.map(|b| &mut b[..]);
        attention::backward(self, layer, heads, saved, d_out, d_q, d_kv.map(|d| &mut d[..]), d_bias);
    }

    fn relative_bias(&self, layer: &RelativeBias, x: &Vec<R>, out: &mut Vec<R>) {
        relative_bias::forward(layer, &x[layer.table.range()], out);
    }

    fn relative_bias_backward(&self, layer: &RelativeBias, d_out: &Vec<R>, dx: &mut Vec<R>) {
        relative_bias::backward(layer, d_out, &mut dx[layer.table.range()]);
    }

    fn lstm(
        &self,
        layer: &Lstm,
        x: &Vec<R>,
        input: &Vec<R>,
        carry: &mut Vec<R>,
        gates: &mut Vec<R>,
        cells: &mut Vec<R>,
        out: &mut Vec<R>,
    ) {
        lstm::forward(self, layer, x, input, carry, gates, cells, out);
    }

    fn lstm_backward(
        &self,
        layer: &Lstm,
        x: &Vec<R>,
        input: &Vec<R>,
        gates: &mut Vec<R>,
        cells: &Vec<R>,
        out: &Vec<R>,
        d_out: &Vec<R>,
        dx: &mut Vec<R>,
        d_input: &mut Vec<R>,
    ) {
        lstm::backward(self, layer, x, input, gates, cells, out, d_out, dx, d_input);
    }

    fn dropout(
        &self,
        dropout: Dropout,
        rows: usize,
        width: usize,
        (from, skip): (&Vec<R>, usize),
        to: &mut Vec<R>,
    ) {
        vector::dropout(
            self,
            dropout,
            width,
            &from[skip * width..(skip + rows) * width],
            &mut to[..rows * width],
        );
    }

    fn regularizers(
        &self,
        shape: Regularizers,
        dropped: &Vec<R>,
        raw: &Vec<R>,
        scalars: &mut Vec<f64>,
        at: usize,
    ) {
        let losses = regularizers::forward(self, shape, dropped, raw);
        scalars[at..at + 2].copy_from_slice(&losses);
    }

    fn regularizers_backward(
        &self,
        shape: Regularizers,
        dropped: &Vec<R>,
        raw: &Vec<R>,
        d_dropped: &Vec<R>,
        d_raw: &mut Vec<R>,
    ) {
        regularizers::backward(self, shape, dropped, raw, d_dropped, d_raw);
    }

    fn head(
        &self,
        layer: &Head,
        rows: usize,
        x: &Vec<R>,
        h: &Vec<R>,
        targets: &Vec<u32>,
        scalars: &mut Vec<f64>,
        at: usize,
        gradient: Option<(&mut Vec<R>, &mut Vec<R>)>,
    ) {
        let gradient = gradient.map(|(d_h, dx)| (&mut d_h[..], &mut dx[..]));
        scalars[at] = head::loss(self, layer, x, h, &targets[..rows], gradient);
    }

    fn logits(
        &self,
        layer: &Head,
        row: usize,
        x: &Vec<R>,
        h: &Vec<R>,
        out: &mut [f32],
    ) -> Result<(), DeviceError> {
        head::logits(layer, row, x, h, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_there_is_is_refused() {
        let cpu = Cpu::<f32>::new(Some(1)).unwrap();
        let error = cpu.buffer(1 << 45, Kind::Activation).unwrap_err();
        assert!(error.to_string().contains("140737488355328 bytes are needed"), "{error}");
        assert!(cpu.buffer(usize::MAX, Kind::Activation).is_err());
        assert_eq!(cpu.buffer(3, Kind::Activation).unwrap(), [0.0; 3]);
    }
}
