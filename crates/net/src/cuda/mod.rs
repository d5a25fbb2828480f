//! The networks on an NVIDIA GPU.
//!
//! Each topic has a `.rs` file that launches and a `.cu` file with its kernels, forward and backward side by side; `formula` writes
//! kernels itself, for the passes of optimizers. Operations become
//! `commands`; the driver's libraries are found and loaded when a device is opened, so that the same program runs without them.
//!
//! Sums have a fixed order: the same seed gives the same bits on the same GPU. Nothing is added up with atomic operations.

mod attention;
mod commands;
pub mod compile;
mod embedding;
pub mod formula;
mod head;
mod linear;
mod lstm;
mod norm;
mod product;
mod regularizers;
mod relative_bias;
mod vector;

use crate::arena::View;
use crate::device::{
    Attention, Device, DeviceError, Dropout, Embedding, Head, Heads, Kind, Linear, Lstm, Norm, Regularizers,
    RelativeBias, Write,
};
use commands::{Command, Commands};
use compile::Kernels;
use cudarc::driver::sys;
use product::{Matrix, Products, Type};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use untuned::formula::Program;
use untuned::formula::{Change, Measure};
use untuned::space::TensorRange;
use untuned_cuda::device::{Context, Memory, Pinned};
pub use untuned_cuda::libraries;

/// The widest head of an attention.
pub const WIDEST_HEAD: usize = 256;
/// The most sequences of a batch in an attention: the third size of a grid goes no further.
pub const MOST_SEQUENCES: usize = 65_535;
/// The most numbers of a buffer: kernels count them, and a last block's threads beyond them, in 32 bits.
const LONGEST: usize = (1 << 32) - (1 << 16);

/// What the networks compute in. Weights are kept, and sums, losses, norms and rules computed, in f32 or better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Activations and the factors of products in bf16.
    Bf16,
    /// Everything in f32, the factors of products rounded to TF32.
    Tf32,
    /// Everything in f32.
    F32,
}

impl Precision {
    /// As a user writes it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Bf16 => "bf16",
            Precision::Tf32 => "tf32",
            Precision::F32 => "f32",
        }
    }
}

/// Room for intermediate results, each for one use at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scratch {
    /// Logits.
    Logits,
    /// Their gradient.
    LogitGradients,
    /// Partial sums of an operation.
    Partial,
    /// The partial sums of a sum of partial results.
    Sums,
    /// The losses of rows.
    Losses,
    /// The one-hot matrix of ids.
    OneHot,
    /// The gradient of an embedding's rows after its dropout.
    Masked,
    /// Row sums of an attention's backward pass.
    AttentionSums,
    /// Partial sums of the gradient of its biases.
    AttentionBias,
    /// The masked hidden-to-hidden matrix of an LSTM.
    LstmHidden,
    /// Its input matrix, padded.
    LstmInput,
    /// Its inputs, padded.
    LstmRows,
    /// What its positions hand on, and where its blocks wait for each other.
    LstmState,
    /// The gradient of a matrix before its mask.
    LstmGradient,
}

/// A GPU.
pub struct Cuda {
    context: Arc<Context>,
    stream: sys::CUstream,
    precision: Precision,
    kernels: Kernels,
    products: Products,
    /// The step of the random numbers.
    step: Memory,
    /// Counts blocks that are done, for kernels whose last block sums up. It is 0 between kernels.
    ticket: Memory,
    commands: Mutex<Commands>,
    scratch: Mutex<HashMap<Scratch, Memory>>,
    /// Scratch and attached memory that was too small, until the device no longer uses it.
    retired: Mutex<Vec<Memory>>,
    /// Numbers that never change, by what they are.
    tables: Mutex<HashMap<Vec<u32>, Memory>>,
}

// SAFETY: the driver's handles may be used from any thread, and all that changes is behind locks.
#[allow(unsafe_code)]
unsafe impl Send for Cuda {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Cuda {}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cuda({}, {}, {})", self.context.device, self.context.model, self.precision.name())
    }
}

/// The value of a lock, also after a panic of a thread that held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All parameters, or all gradients, in f32.
pub struct Parameters {
    memory: Memory,
    len: usize,
    /// The same in bf16, for products; made at the first product and kept up to date from then on.
    narrow: OnceLock<Memory>,
}

/// Activations or statistics.
pub struct Buffer {
    memory: Memory,
    kind: Type,
    len: usize,
    /// What else belongs to its content: the bits of an attention's dropout to the logarithms of the forward pass.
    attached: Option<Memory>,
}

/// Ids, and the host memory that they are copied from.
pub struct Ids {
    memory: Memory,
    staging: Pinned,
}

/// Numbers in f64, and the host memory that they are copied to.
pub struct Scalars {
    memory: Memory,
    staging: Pinned,
    len: usize,
}

impl Parameters {
    fn address(&self) -> u64 {
        self.memory.address
    }

    /// Where a view begins.
    fn at(&self, view: View) -> u64 {
        self.memory.address + 4 * view.offset as u64
    }

    /// A view as a matrix in f32.
    fn matrix(&self, view: View) -> Matrix {
        Matrix::new(self.at(view), view.rows, view.columns, Type::F32)
    }

    /// The address of the numbers in bf16, or 0.
    fn narrow_address(&self) -> u64 {
        self.narrow.get().map_or(0, |memory| memory.address)
    }
}

impl Buffer {
    fn address(&self) -> u64 {
        self.memory.address
    }

    /// The address of the n-th number.
    fn at(&self, number: usize) -> u64 {
        self.memory.address + (number * self.kind.size()) as u64
    }

    /// Its start as a matrix.
    fn matrix(&self, rows: usize, columns: usize) -> Matrix {
        debug_assert!(rows * columns <= self.len, "{rows} × {columns} in {}", self.len);
        Matrix::new(self.address(), rows, columns, self.kind)
    }
}

impl Ids {
    fn address(&self) -> u64 {
        self.memory.address
    }
}

impl Scalars {
    /// The address of the n-th number.
    fn at(&self, number: usize) -> u64 {
        debug_assert!(number < self.len);
        self.memory.address + 8 * number as u64
    }
}

impl Cuda {
    /// The n-th GPU.
    ///
    /// # Errors
    /// When a library, the driver or the GPU is missing, or the GPU is too old.
    #[allow(unsafe_code)]
    pub fn new(ordinal: u32, precision: Precision) -> Result<Self, DeviceError> {
        libraries::load(&format!("cuda:{ordinal}"))?;
        let context = Context::new(ordinal)?;
        context.enter();
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes a handle.
        context.check(unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        let cuda = Self {
            kernels: Kernels::load(&context, precision == Precision::Bf16)?,
            products: Products::new(&context, precision == Precision::Tf32)?,
            step: Memory::new(&context, 4)?,
            ticket: Memory::new(&context, 4)?,
            stream,
            precision,
            commands: Mutex::default(),
            scratch: Mutex::default(),
            retired: Mutex::default(),
            tables: Mutex::default(),
            context,
        };
        cuda.submit(Command::Fill { to: cuda.ticket.address, word: 0, words: 1 });
        cuda.wait()?;
        Ok(cuda)
    }

    /// What its maker calls it.
    pub fn model(&self) -> &str {
        &self.context.model
    }

    /// Free and all bytes of its memory.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        Ok(self.context.memory()?)
    }

    /// What activations are stored in.
    fn kind(&self) -> Type {
        match self.precision {
            Precision::Bf16 => Type::Bf16,
            Precision::Tf32 | Precision::F32 => Type::F32,
        }
    }

    fn commands(&self) -> MutexGuard<'_, Commands> {
        lock(&self.commands)
    }

    fn step_address(&self) -> u64 {
        self.step.address
    }

    fn ticket_address(&self) -> u64 {
        self.ticket.address
    }

    /// Keeps the first error for the next read.
    fn fail(&self, error: impl Into<DeviceError>) {
        self.commands().failed.get_or_insert_with(|| error.into());
    }

    /// At least so many bytes for intermediate results. Where there is no room, the next read says so.
    fn scratch(&self, of: Scratch, bytes: usize) -> u64 {
        let mut scratch = lock(&self.scratch);
        if scratch.get(&of).is_none_or(|memory| memory.bytes < bytes) {
            // Commands that were collected but not started may name it.
            lock(&self.retired).extend(scratch.remove(&of));
            match Memory::new(&self.context, bytes) {
                Ok(memory) => _ = scratch.insert(of, memory),
                Err(error) => {
                    self.fail(error);
                    return 0;
                }
            }
        }
        scratch[&of].address
    }

    /// At least so many bytes that belong to the content of a buffer. Where there is no room, the next read says so.
    fn attach(&self, to: &mut Buffer, bytes: usize) -> u64 {
        if to.attached.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            // Commands that were collected but not started may name it.
            lock(&self.retired).extend(to.attached.take());
            match Memory::new(&self.context, bytes) {
                Ok(memory) => to.attached = Some(memory),
                Err(error) => self.fail(error),
            }
        }
        to.attached.as_ref().map_or(0, |memory| memory.address)
    }

    /// The address of these numbers, which are copied to the device when they are first asked for.
    fn table(&self, numbers: &[u32]) -> u64 {
        let mut tables = lock(&self.tables);
        if let Some(memory) = tables.get(numbers) {
            return memory.address;
        }
        let made = Memory::new(&self.context, size_of_val(numbers));
        let uploaded = made
            .map_err(DeviceError::from)
            .and_then(|memory| self.upload(memory.address, numbers).map(|()| memory));
        match uploaded {
            Ok(memory) => tables.entry(numbers.to_vec()).or_insert(memory).address,
            Err(error) => {
                self.fail(error);
                0
            }
        }
    }

    /// A matrix of parameters as a product takes it: in bf16 where activations are.
    fn weight(&self, x: &Parameters, view: View) -> Matrix {
        match self.kind() {
            Type::F32 => x.matrix(view),
            Type::Bf16 => {
                let address = self.narrow(x) + 2 * view.offset as u64;
                Matrix::new(address, view.rows, view.columns, Type::Bf16)
            }
        }
    }

    /// The address of the parameters in bf16.
    fn narrow(&self, x: &Parameters) -> u64 {
        if x.narrow_address() == 0 {
            match Memory::new(&self.context, 2 * x.len) {
                Ok(memory) => {
                    let _ = x.narrow.set(memory);
                    vector::narrow(self, x);
                }
                Err(error) => self.fail(error),
            }
        }
        x.narrow_address()
    }

    fn copy_bytes(&self, from: u64, to: u64, bytes: usize) {
        if bytes > 0 {
            self.submit(Command::Copy { from, to, bytes });
        }
    }

    /// Zeros over whole words of 32 bits; half a word at the end stays.
    fn zero_bytes(&self, to: u64, bytes: usize) {
        if bytes >= 4 {
            self.submit(Command::Fill { to, word: 0, words: bytes / 4 });
        }
    }

    /// Bytes from the host, at once.
    #[allow(unsafe_code)]
    fn upload<N: Copy>(&self, to: u64, values: &[N]) -> Result<(), DeviceError> {
        self.wait()?;
        self.context.enter();
        let bytes = size_of_val(values);
        // SAFETY: the device's memory is as long; the driver has read the slice when it returns from the wait.
        self.context
            .check(unsafe { sys::cuMemcpyHtoDAsync_v2(to, values.as_ptr().cast(), bytes, self.stream) })?;
        self.wait()
    }

    /// Bytes to the host.
    #[allow(unsafe_code)]
    fn download<N: Copy>(&self, from: u64, values: &mut [N]) -> Result<(), DeviceError> {
        debug_assert!(!self.is_collecting(), "nothing is read together");
        self.wait()?;
        self.context.enter();
        let bytes = size_of_val(values);
        // SAFETY: the device's memory is as long; the slice is not read before the wait is over.
        self.context.check(unsafe {
            sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), from, bytes, self.stream)
        })?;
        self.wait()
    }
}

impl Drop for Cuda {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.context.enter();
        // SAFETY: nothing uses the stream after this; the driver finishes what was started.
        unsafe {
            sys::cuStreamSynchronize(self.stream);
            lock(&self.commands).forget_all(&self.context);
            sys::cuStreamDestroy_v2(self.stream);
        }
    }
}

/// The nearest bf16, ties to even.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    match value.is_nan() {
        true => (bits >> 16) as u16 | 0x40,
        false => ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16,
    }
}

fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

impl Device for Cuda {
    type Parameters = Parameters;
    type Buffer = Buffer;
    type Ids = Ids;
    type Scalars = Scalars;

    fn name(&self) -> String {
        self.context.device.clone()
    }

    fn together<T>(&self, work: impl FnOnce() -> T) -> T {
        let inside = self.collect();
        let result = work();
        if !inside {
            self.start_collected();
        }
        result
    }

    fn parameters(&self, values: &[f32]) -> Result<Parameters, DeviceError> {
        let memory = Memory::new(&self.context, 4 * values.len())?;
        self.upload(memory.address, values)?;
        Ok(Parameters { memory, len: values.len(), narrow: OnceLock::new() })
    }

    fn set_parameters(&self, to: &mut Parameters, values: &[f32]) {
        if let Err(error) = self.upload(to.address(), values) {
            self.fail(error);
        }
        vector::narrow(self, to);
    }

    fn get_parameters(&self, from: &Parameters, values: &mut [f32]) -> Result<(), DeviceError> {
        self.download(from.address(), values)
    }

    fn buffer(&self, len: usize, kind: Kind) -> Result<Buffer, DeviceError> {
        let kind = match kind {
            Kind::Activation => self.kind(),
            Kind::Statistic => Type::F32,
        };
        if len > LONGEST {
            let (needed, most) = ((len * kind.size()) as u64, LONGEST * kind.size());
            let free = format!("and a buffer has at most {most}");
            return Err(DeviceError::OutOfMemory { device: self.name(), needed, free });
        }
        let memory = Memory::new(&self.context, len * kind.size())?;
        self.zero_bytes(memory.address, memory.bytes);
        Ok(Buffer { memory, kind, len, attached: None })
    }

    fn set_buffer(&self, to: &mut Buffer, values: &[f32]) {
        let done = match to.kind {
            Type::F32 => self.upload(to.address(), values),
            Type::Bf16 => {
                let values: Vec<u16> = values.iter().map(|&value| to_bf16(value)).collect();
                self.upload(to.address(), &values)
            }
        };
        if let Err(error) = done {
            self.fail(error);
        }
    }

    fn get_buffer(&self, from: &Buffer, values: &mut [f32]) -> Result<(), DeviceError> {
        match from.kind {
            Type::F32 => self.download(from.address(), values),
            Type::Bf16 => {
                let mut narrow = vec![0u16; values.len()];
                self.download(from.address(), &mut narrow)?;
                values.iter_mut().zip(narrow).for_each(|(value, bits)| *value = from_bf16(bits));
                Ok(())
            }
        }
    }

    fn ids(&self, len: usize) -> Result<Ids, DeviceError> {
        let (memory, staging) = (Memory::new(&self.context, 4 * len)?, Pinned::new(&self.context, 4 * len)?);
        self.zero_bytes(memory.address, memory.bytes);
        Ok(Ids { memory, staging })
    }

    fn set_ids(&self, to: &mut Ids, values: &[u32]) {
        // The device may still read what was put there before.
        let reading = self.commands().reading;
        if reading && self.wait().is_err() {
            return;
        }
        to.staging.as_mut_slice()[..values.len()].copy_from_slice(values);
        let (from, to) = (to.staging.address(), to.address());
        self.submit(Command::Upload { from, to, bytes: size_of_val(values) });
    }

    fn scalars(&self, len: usize) -> Result<Scalars, DeviceError> {
        let (memory, staging) = (Memory::new(&self.context, 8 * len)?, Pinned::new(&self.context, 8 * len)?);
        self.zero_bytes(memory.address, memory.bytes);
        Ok(Scalars { memory, staging, len })
    }

    fn read(&self, from: &Scalars, values: &mut [f64]) -> Result<(), DeviceError> {
        debug_assert!(!self.is_collecting(), "nothing is read together");
        let bytes = size_of_val(values);
        self.submit(Command::Download { from: from.memory.address, to: from.staging.address(), bytes });
        self.wait()?;
        values.copy_from_slice(&from.staging.as_slice()[..values.len()]);
        Ok(())
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        tensors: &[TensorRange],
        change: [&mut Parameters; M],
        read: [&Parameters; R],
    ) {
        const { assert!(M > 0, "a pass changes something") };
        let program = Program::of_change::<F, S, M, R>();
        formula::change(self, program, &scalars, decay, tensors, &change, &read);
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        tensors: &[TensorRange],
        read: [&Parameters; R],
        to: &mut Scalars,
        at: usize,
    ) {
        const { assert!(R > 0 && K > 0, "a pass sums something") };
        debug_assert!(at + K <= to.len);
        let program = Program::of_measure::<F, S, R, K>();
        formula::measure(self, program, &scalars, decay, tensors, &read, to.at(at));
    }

    fn copy_parameters(&self, from: &Parameters, to: &mut Parameters) {
        self.copy_bytes(from.address(), to.address(), 4 * from.len);
        vector::narrow(self, to);
    }

    fn clear(&self, parameters: &mut Parameters, view: View) {
        self.zero_bytes(parameters.at(view), 4 * view.len());
        vector::narrow(self, parameters);
    }

    fn copy(&self, len: usize, from: &Buffer, to: &mut Buffer) {
        debug_assert_eq!(from.kind, to.kind);
        self.copy_bytes(from.address(), to.address(), len * from.kind.size());
    }

    fn clear_buffer(&self, len: usize, buffer: &mut Buffer) {
        // Whole words: a bf16 too many at the end is cleared with its neighbour, which nobody uses.
        self.zero_bytes(buffer.address(), (len * buffer.kind.size()).next_multiple_of(4));
    }

    fn add(&self, len: usize, from: &Buffer, to: &mut Buffer) {
        vector::add(self, len, from, to);
    }

    fn embedding(&self, layer: &Embedding, rows: usize, x: &Parameters, ids: &Ids, out: &mut Buffer) {
        embedding::forward(self, layer, rows, x, ids, out);
    }

    fn embedding_backward(
        &self,
        layer: &Embedding,
        rows: usize,
        ids: &Ids,
        d_out: &Buffer,
        dx: &mut Parameters,
    ) {
        embedding::backward(self, layer, rows, ids, d_out, dx);
    }

    fn add_norm(
        &self,
        norm: Norm,
        weight: View,
        rows: usize,
        x: &Parameters,
        stream_in: &Buffer,
        branch: Option<(&Buffer, Dropout, &mut Buffer)>,
        out: &mut Buffer,
        statistics: &mut Buffer,
    ) {
        norm::forward(self, norm, weight, rows, x, stream_in, branch, out, statistics);
    }

    fn add_norm_backward(
        &self,
        norm: Norm,
        weight: View,
        rows: usize,
        x: &Parameters,
        stream: &Buffer,
        statistics: &Buffer,
        d_out: &Buffer,
        dx: &mut Parameters,
        d_stream: &mut Buffer,
        d_branch: Option<(&mut Buffer, Dropout)>,
    ) {
        norm::backward(self, norm, weight, rows, x, stream, statistics, d_out, dx, d_stream, d_branch);
    }

    fn linear(
        &self,
        layer: &Linear,
        rows: usize,
        x: &Parameters,
        input: &Buffer,
        out: &mut Buffer,
        before: Option<&mut Buffer>,
    ) {
        linear::forward(self, layer, rows, x, input, out, before);
    }

    fn linear_backward(
        &self,
        layer: &Linear,
        rows: usize,
        x: &Parameters,
        input: &Buffer,
        before: Option<&mut Buffer>,
        d_out: &Buffer,
        dx: &mut Parameters,
        d_input: Option<(&mut Buffer, Write)>,
    ) {
        linear::backward(self, layer, rows, x, input, before, d_out, dx, d_input);
    }

    fn attention(
        &self,
        layer: &Attention,
        heads: Heads,
        q: &Buffer,
        kv: &Buffer,
        bias: Option<&Buffer>,
        out: &mut Buffer,
        logs: &mut Buffer,
    ) {
        attention::forward(self, layer, heads, q, kv, bias, out, logs);
    }

    fn attention_backward(
        &self,
        layer: &Attention,
        heads: Heads,
        q: &Buffer,
        kv: &Buffer,
        bias: Option<&Buffer>,
        out: &Buffer,
        logs: &Buffer,
        d_out: &Buffer,
        d_q: &mut Buffer,
        d_kv: Option<&mut Buffer>,
        d_bias: Option<&mut Buffer>,
    ) {
        attention::backward(self, layer, heads, q, kv, bias, out, logs, d_out, d_q, d_kv, d_bias);
    }

    fn relative_bias(&self, layer: &RelativeBias, x: &Parameters, out: &mut Buffer) {
        relative_bias::forward(self, layer, x, out);
    }

    fn relative_bias_backward(&self, layer: &RelativeBias, d_out: &Buffer, dx: &mut Parameters) {
        relative_bias::backward(self, layer, d_out, dx);
    }

    fn lstm(
        &self,
        layer: &Lstm,
        x: &Parameters,
        input: &Buffer,
        carry: &mut Buffer,
        gates: &mut Buffer,
        cells: &mut Buffer,
        out: &mut Buffer,
    ) {
        lstm::forward(self, layer, x, input, carry, gates, cells, out);
    }

    fn lstm_backward(
        &self,
        layer: &Lstm,
        x: &Parameters,
        input: &Buffer,
        gates: &mut Buffer,
        cells: &Buffer,
        out: &Buffer,
        d_out: &Buffer,
        dx: &mut Parameters,
        d_input: &mut Buffer,
    ) {
        lstm::backward(self, layer, x, input, gates, cells, out, d_out, dx, d_input);
    }

    fn dropout(
        &self,
        dropout: Dropout,
        rows: usize,
        width: usize,
        (from, skip_rows): (&Buffer, usize),
        to: &mut Buffer,
    ) {
        vector::dropout(self, dropout, rows, width, from.at(skip_rows * width), to);
    }

    fn regularizers(
        &self,
        shape: Regularizers,
        dropped: &Buffer,
        raw: &Buffer,
        scalars: &mut Scalars,
        at: usize,
    ) {
        regularizers::forward(self, shape, dropped, raw, scalars.at(at), scalars.at(at + 1));
    }

    fn regularizers_backward(
        &self,
        shape: Regularizers,
        dropped: &Buffer,
        raw: &Buffer,
        d_dropped: &Buffer,
        d_raw: &mut Buffer,
    ) {
        regularizers::backward(self, shape, dropped, raw, d_dropped, d_raw);
    }

    fn head(
        &self,
        layer: &Head,
        rows: usize,
        x: &Parameters,
        h: &Buffer,
        targets: &Ids,
        scalars: &mut Scalars,
        at: usize,
        gradient: Option<(&mut Buffer, &mut Parameters)>,
    ) {
        head::loss(self, layer, rows, x, h, targets, scalars.at(at), gradient);
    }

    fn logits(
        &self,
        layer: &Head,
        row: usize,
        x: &Parameters,
        h: &Buffer,
        out: &mut [f32],
    ) -> Result<(), DeviceError> {
        head::logits(self, layer, row, x, h, out)
    }
}
