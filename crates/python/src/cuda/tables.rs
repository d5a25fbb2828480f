//! The tables that kernels read: the tensors' options, their chunks, and the addresses of all vectors.
#![allow(unsafe_code, reason = "copies to the device")]

use std::sync::Arc;

use untuned_cuda::device::{Context, Memory, Pinned};

use super::kernels::CHUNK;
use super::launch::{Event, Stream};
use super::{Error, no_memory, words};
use crate::space::{Float, Tensor, Vector};

/// The tensors of a step: for each vector, the address of each tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensors {
    pub tensors: Vec<Tensor>,
    /// The parameters, the gradients, the state vectors, and what an evaluation point is written to.
    pub vectors: Vec<Vec<usize>>,
}

impl Tensors {
    /// In the order in which a step counts vectors.
    pub fn new(tensors: Vec<Tensor>, x: Vector, gradient: Vector, state: Vec<Vector>, to: Vector) -> Tensors {
        let vectors = [x, gradient].into_iter().chain(state).chain([to]).map(|v| v.addresses).collect();
        Tensors { tensors, vectors }
    }

    /// The number of parameters, on all ranks together.
    pub fn dimension(&self) -> u64 {
        self.tensors.iter().filter(|tensor| tensor.active).map(|tensor| tensor.options.numbers).sum()
    }
}

/// A tensor as the kernels have it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Row {
    len: u64,
    decay: f64,
    scale: f64,
    rate: f64,
    share: f64,
}

/// A table on the device, and how it comes there.
#[derive(Default)]
pub struct Table {
    memory: Option<Memory>,
    /// Memory of the host, and when it was copied.
    stages: Vec<(Pinned, Event)>,
}

impl Table {
    pub fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address)
    }

    fn put<N: Copy>(&mut self, context: &Arc<Context>, stream: Stream, numbers: &[N]) -> Result<(), Error> {
        let bytes = size_of_val(numbers);
        if self.memory.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            // The driver waits for kernels that use the old one before it frees it.
            self.memory = Some(Memory::new(context, 2 * bytes).map_err(no_memory)?);
            self.stages.clear();
        }
        let free = self.stages.iter().position(|(_, event)| event.has_come());
        let at = match free {
            Some(at) => at,
            None => {
                let stage = Pinned::new(context, 2 * bytes).map_err(words)?;
                self.stages.push((stage, Event::new(context).map_err(words)?));
                self.stages.len() - 1
            }
        };
        let (stage, event) = &mut self.stages[at];
        stage.as_mut_slice::<N>()[..numbers.len()].copy_from_slice(numbers);
        // SAFETY: both have so many bytes, and the event says when the host's may change.
        unsafe {
            stream.upload(context, stage.address(), self.memory.as_ref().map_or(0, |m| m.address), bytes)
        }
        .map_err(words)?;
        event.record(context, stream).map_err(words)
    }
}

/// The tables that the kernels read: the tensors' options and chunks, and the addresses.
#[derive(Default)]
pub struct Tables {
    pub of: Option<Tensors>,
    pub rows: Table,
    pub chunks: Table,
    pub addresses: Table,
    /// For each type, its first chunk and how many it has.
    pub groups: Vec<(Float, u32, u32)>,
    /// The number of chunks.
    pub count: u32,
}

impl Tables {
    /// Uploads what differs from the last step's.
    pub fn put(&mut self, context: &Arc<Context>, stream: Stream, tensors: &Tensors) -> Result<(), Error> {
        let same_tensors = self.of.as_ref().is_some_and(|of| of.tensors == tensors.tensors);
        let same_vectors = self.of.as_ref().is_some_and(|of| of.vectors == tensors.vectors);
        if same_tensors && same_vectors {
            return Ok(());
        }
        // Nothing is known to be there until all is.
        self.of = None;
        if !same_tensors {
            let row = |tensor: &Tensor| {
                let options = tensor.options;
                let (decay, scale, rate, share) = (options.decay, options.scale, options.rate, options.share);
                Row { len: tensor.len as u64, decay, scale, rate, share }
            };
            let rows: Vec<Row> = tensors.tensors.iter().map(row).collect();
            let mut chunks: Vec<[u32; 2]> = Vec::new();
            self.groups.clear();
            for float in [Float::F32, Float::Bf16, Float::F16, Float::F64] {
                let first = chunks.len();
                let of_type = |(_, tensor): &(u32, &Tensor)| tensor.active && tensor.float == float;
                for (index, tensor) in (0..).zip(&tensors.tensors).filter(of_type) {
                    chunks.extend((0..tensor.len.div_ceil(CHUNK)).map(|number| [index, number as u32]));
                }
                if chunks.len() > first {
                    self.groups.push((float, first as u32, (chunks.len() - first) as u32));
                }
            }
            self.count = chunks.len() as u32;
            self.rows.put(context, stream, &rows)?;
            self.chunks.put(context, stream, &chunks)?;
        }
        if !same_vectors || !same_tensors {
            let count = tensors.tensors.len();
            let at = |vector: &Vec<usize>, tensor: usize| vector.get(tensor).copied().unwrap_or(0) as u64;
            let addresses: Vec<u64> =
                tensors.vectors.iter().flat_map(|vector| (0..count).map(move |t| at(vector, t))).collect();
            self.addresses.put(context, stream, &addresses)?;
        }
        self.of = Some(tensors.clone());
        Ok(())
    }
}
