//! Steps on an NVIDIA GPU that do not wait for it.
//!
//! A step is given to the device whole, before anybody knows what its gradient is: passes that measure, a copy of the sums to the host,
//! a wait for what the host decides, a copy of that to the device, passes that change the parameters. What decides is the scalar part of
//! the method, the same code as everywhere: [another thread](decider) runs it when the sums are there, while the calling one has gone on.
//! What a refused step would have done is not done: the passes that change are told so, and Python hears of it at a later step.
//!
//! Which passes a step makes is not known when it is given to the device. So all that the method [may make](plan) are given to it, and
//! those that the step does not make end at once.
#![allow(unsafe_code, reason = "addresses of torch's tensors, and functions that the driver calls")]

pub mod check;
mod decider;
mod kernels;
mod launch;
mod plan;
mod run;
mod script;
mod tables;

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use untuned::space::SquareNorm;
use untuned::{Average, Method, Optimizer as _, SessionState, Space as _};
use untuned_cuda::device::{Context, Memory, MemoryError, Pinned};
use untuned_cuda::{Failure, libraries};

use crate::space::{Float, Tensor};
use decider::Decider;
use kernels::{BLOCK, CHUNK, Kernel, MOST_BLOCKS, MOST_MEASURES};
pub use launch::Stream;
use launch::{Event, Kernels, Relaxed, SideStream};
pub use plan::SUMS;
use plan::{Options, Plan, Rehearsal};
pub use run::Progress;
use run::{Job, Run, SCALARS, after_measuring, before_measuring};
use script::{Kind, Script};
use tables::Tables;
pub use tables::Tensors;

/// What failed, in words.
pub type Error = String;

fn words(failure: Failure) -> Error {
    failure.to_string()
}

fn no_memory(error: MemoryError) -> Error {
    error.to_string()
}

/// A loss that is on the device, or known, or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    None,
    Known(f64),
    /// The address of an f64.
    At(u64),
}

/// What Python gives of a step beside its tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given {
    pub stream: Stream,
    pub loss: Loss,
    /// The addresses of an f32 that is above 0 where a GradScaler found infinities, and of its scale; 0 where there is none.
    pub found_infinite: u64,
    pub grad_scale: u64,
    pub rate: f64,
    pub weight_decay: f64,
}

/// What a step has started, between its two halves.
struct Started {
    given: Given,
    options: Options,
    capturing: bool,
    job: *mut Job,
}

/// Memory that all steps use, one after the other.
struct Buffers {
    /// The chunks' sums.
    partial: Option<Memory>,
    measure_scalars: Memory,
    change_scalars: Memory,
    host_measure_scalars: Pinned,
    host_change_scalars: Pinned,
    host_sums: Pinned,
}

/// A method at work on a GPU.
pub struct Engine {
    tables: Tables,
    /// Those of graphs.
    recorded: Vec<Tables>,
    buffers: ManuallyDrop<Buffers>,
    side: SideStream,
    measure_scalars_ready: Event,
    decided: Event,
    ended: Event,
    kernels: Kernels,
    run: Arc<Mutex<Run>>,
    rehearsal: Option<Rehearsal>,
    /// What was rehearsed, as jobs use it.
    plans: (Arc<Plan>, Arc<Plan>),
    names: Names,
    state: usize,
    /// Whether the method may go back to an earlier point. Its steps wait for the device.
    waits: bool,
    started: Option<Started>,
    decider: Option<Decider>,
    pub ordinal: u32,
    context: Arc<Context>,
}

/// The names of the plans' kernels, for each type of tensors.
type Names = Vec<(Float, Vec<String>, Vec<String>)>;

// SAFETY: `started` holds an address that only the driver's functions and this engine use, in the order of the stream.
unsafe impl Send for Engine {}
// SAFETY: there is no way to change it through a shared reference, but for the run, which has a lock.
unsafe impl Sync for Engine {}

impl Engine {
    /// An engine on the n-th GPU that goes on from these numbers.
    pub fn new(
        ordinal: u32,
        state: SessionState<Method>,
        average: Option<Average>,
        (refused, in_a_row): (u64, u64),
    ) -> Result<Engine, Error> {
        libraries::load_compiler().map_err(words)?;
        let context = Context::new(ordinal).map_err(words)?;
        let _visit = context.visit();
        let _relaxed = Relaxed::new();
        let session = plan::session(state, average);
        let needs = session.method().needs();
        let room = |bytes| Memory::new(&context, bytes).map_err(no_memory);
        let pinned = |count| Pinned::new(&context, 8 * count).map_err(words);
        let event = || Event::new(&context).map_err(words);
        let count = session.vector_names().len();
        Ok(Engine {
            tables: Tables::default(),
            recorded: Vec::new(),
            buffers: ManuallyDrop::new(Buffers {
                partial: None,
                measure_scalars: room(8 * SCALARS)?,
                change_scalars: room(8 * SCALARS)?,
                host_measure_scalars: pinned(SCALARS)?,
                host_change_scalars: pinned(SCALARS)?,
                host_sums: pinned(SUMS)?,
            }),
            side: SideStream::new(&context).map_err(words)?,
            measure_scalars_ready: event()?,
            decided: event()?,
            ended: event()?,
            kernels: Kernels::default(),
            run: Arc::new(Mutex::new(Run::new(session, refused, in_a_row))),
            rehearsal: None,
            plans: Default::default(),
            names: Vec::new(),
            state: count,
            waits: needs.best || needs.origin,
            started: None,
            decider: None,
            ordinal,
            context: context.clone(),
        })
    }

    /// Starts the passes that measure. Afterwards the sums, the loss in front of them, are at this address, for
    /// [`Engine::change`] to read. `sums` has room for [`SUMS`] numbers.
    pub fn measure(&mut self, tensors: &Tensors, given: Given, sums: u64) -> Result<(), Error> {
        let context = self.context.clone();
        let _visit = context.visit();
        let stream = given.stream;
        let capturing = stream.is_capturing(&context).map_err(words)?;
        if capturing && (self.waits || self.rehearsal.is_none()) {
            return Err(match self.waits {
                true => {
                    "this method waits for the device in each step, and cannot be recorded in a graph".into()
                }
                false => "make one step before you record a graph: it compiles the kernels".to_string(),
            });
        }
        let options = Options {
            rate: given.rate,
            weight_decay: given.weight_decay,
            has_loss: given.loss != Loss::None,
            dimension: tensors.dimension(),
        };
        // An error leaves nothing behind.
        self.started = None;
        if !capturing {
            stream.after(&context, &self.ended).map_err(words)?;
        }
        self.put_tables(tensors, stream, capturing)?;
        if self.waits {
            stream.wait(&context).map_err(words)?;
            let passes = plan::measures(&mut lock(&self.run).session, options);
            let mut plan = Plan::default();
            plan.include(&passes);
            self.plans.0 = Arc::new(plan);
            self.name_kernels()?;
            // SAFETY: the stream has come to its end, so that nobody else uses it.
            let to = unsafe { Job::numbers(self.buffers.host_measure_scalars.address() as usize, SCALARS) };
            self.plans.0.write(&passes, to)?;
            self.upload_measure_scalars(stream)?;
        } else {
            self.rehearse(options)?;
        }
        self.make_room_for_partial_sums(capturing)?;
        let job = Box::into_raw(Box::new(Job {
            run: self.run.clone(),
            measures: self.plans.0.clone(),
            changes: self.plans.1.clone(),
            options,
            measure_scalars: self.buffers.host_measure_scalars.address() as usize,
            change_scalars: self.buffers.host_change_scalars.address() as usize,
            sums: self.buffers.host_sums.address() as usize,
            repeats: capturing,
        }));
        self.started = Some(Started { given, options, capturing, job });
        if !self.waits {
            // Beside the backward pass, which this stream is still at. A graph may be played on any stream, and is alone there.
            let alone = capturing || !self.recorded.is_empty();
            let lane = if alone { stream } else { self.side.0 };
            if !alone {
                lane.after(&context, &self.decided).map_err(words)?;
            }
            // SAFETY: the second function, which comes later, frees the job.
            unsafe { lane.call(&context, before_measuring, job.cast()) }.map_err(words)?;
            self.upload_measure_scalars(lane)?;
            if !alone {
                self.measure_scalars_ready.record(&context, lane).map_err(words)?;
                stream.after(&context, &self.measure_scalars_ready).map_err(words)?;
            }
        }
        if !self.waits && !capturing {
            let decider = match &mut self.decider {
                Some(decider) => decider,
                none => none.insert(Decider::new(&context).map_err(words)?),
            };
            decider.begin(&context, stream).map_err(words)?;
        }
        self.launch_measures(given, sums)
    }

    /// Starts the function that decides on the step, and the passes that change vectors.
    pub fn change(&mut self, sums: u64) -> Result<(), Error> {
        let Some(Started { given, options, capturing, job }) = self.started.take() else {
            return Err("nothing was measured".into());
        };
        let context = self.context.clone();
        let _visit = context.visit();
        let stream = given.stream;
        // SAFETY: both have room for so many, and the stream's order keeps others off.
        unsafe { stream.download(&context, sums, self.buffers.host_sums.address(), 8 * SUMS) }
            .map_err(words)?;
        if self.waits {
            // SAFETY: no function has it.
            drop(unsafe { Box::from_raw(job) });
            stream.wait(&context).map_err(words)?;
            let sums: Vec<f64> = self.buffers.host_sums.as_slice()[..SUMS].to_vec();
            let passes = lock(&self.run).decide(options, &sums);
            let mut plan = Plan::default();
            plan.include(&passes);
            self.plans.1 = Arc::new(plan);
            self.name_kernels()?;
            self.plans.1.write(&passes, self.buffers.host_change_scalars.as_mut_slice())?;
        } else if let (Some(decider), false) = (&mut self.decider, capturing) {
            let job = job as usize;
            // SAFETY: nobody uses the job after it.
            let decide = Box::new(move || unsafe { after_measuring(job as *mut c_void) });
            decider.decide(&context, stream, decide).map_err(words)?;
            self.decided.record(&context, stream).map_err(words)?;
        } else {
            // SAFETY: the graph may come again, and so the job stays.
            unsafe { stream.call(&context, after_measuring, job.cast()) }.map_err(words)?;
        }
        let (from, to) = (self.buffers.host_change_scalars.address(), self.buffers.change_scalars.address);
        // SAFETY: both have room for so many, and the stream's order keeps others off.
        unsafe { stream.upload(&context, from, to, 8 * self.plans.1.len().max(1)) }.map_err(words)?;
        self.launch_changes(given.stream, given.grad_scale)?;
        if !capturing {
            self.ended.record(&context, stream).map_err(words)?;
        }
        Ok(())
    }

    fn upload_measure_scalars(&self, lane: Stream) -> Result<(), Error> {
        let (from, to) = (self.buffers.host_measure_scalars.address(), self.buffers.measure_scalars.address);
        // SAFETY: both have room for so many, and the stream's order keeps others off.
        unsafe { lane.upload(&self.context, from, to, 8 * self.plans.0.len().max(1)) }.map_err(words)
    }

    /// The tables of this step, on the device before its kernels.
    fn put_tables(&mut self, tensors: &Tensors, stream: Stream, capturing: bool) -> Result<(), Error> {
        let context = self.context.clone();
        if capturing {
            // A graph needs tables that do not change any more. They are there before it is played.
            let _relaxed = Relaxed::new();
            let mut tables = Tables::default();
            tables.put(&context, self.side.0, tensors)?;
            self.side.0.wait(&context).map_err(words)?;
            self.recorded.push(tables);
        } else {
            self.tables.put(&context, stream, tensors)?;
        }
        Ok(())
    }

    /// The tables of the step that was put last.
    fn tables(&self, capturing: bool) -> &Tables {
        match self.recorded.last() {
            Some(tables) if capturing => tables,
            _ => &self.tables,
        }
    }

    fn make_room_for_partial_sums(&mut self, capturing: bool) -> Result<(), Error> {
        let terms: usize = self.plans.0.0.iter().map(|planned| planned.program.results.len()).sum();
        let needed = 8 * terms * self.tables(capturing).count as usize;
        if self.buffers.partial.as_ref().is_none_or(|memory| memory.bytes < needed) {
            if capturing {
                return Err("make one step with these parameters before you record a graph".into());
            }
            if !self.recorded.is_empty() {
                // A graph may use it.
                std::mem::forget(self.buffers.partial.take());
            }
            self.buffers.partial = Some(Memory::new(&self.context, needed).map_err(no_memory)?);
        }
        Ok(())
    }

    /// Finds out which passes the next steps may make, and has their kernels ready.
    fn rehearse(&mut self, options: Options) -> Result<(), Error> {
        let grown = match &mut self.rehearsal {
            Some(rehearsal) => rehearsal.step(),
            None => {
                let rehearsal = Rehearsal::new(&lock(&self.run).session, options);
                self.rehearsal = Some(rehearsal);
                true
            }
        };
        if let (true, Some(rehearsal)) = (grown, &self.rehearsal) {
            self.plans = (Arc::new(rehearsal.measures.clone()), Arc::new(rehearsal.changes.clone()));
            self.names.clear();
        }
        self.name_kernels()
    }

    /// Has the kernels of the plans for all types of the tensors.
    fn name_kernels(&mut self) -> Result<(), Error> {
        let (measures, changes) = &self.plans;
        if measures.len() > SCALARS || changes.len() > SCALARS || measures.0.len() > MOST_MEASURES {
            return Err("the method makes too many passes".into());
        }
        if self.waits {
            self.names.clear();
        }
        let groups = self.recorded.last().into_iter().chain([&self.tables]).flat_map(|tables| &tables.groups);
        let new: Vec<Float> =
            groups.map(|group| group.0).filter(|&of| self.names.iter().all(|n| n.0 != of)).collect();
        for float in new {
            let of = |plan: &Plan| -> Vec<Kernel> {
                plan.0.iter().map(|planned| kernels::kernel(planned, float, self.state)).collect()
            };
            let (measures, changes) = (of(measures), of(changes));
            self.kernels.load(&self.context, &[measures.clone(), changes.clone()].concat()).map_err(words)?;
            let names = |kernels: Vec<Kernel>| kernels.into_iter().map(|kernel| kernel.name).collect();
            self.names.retain(|known| known.0 != float);
            self.names.push((float, names(measures), names(changes)));
        }
        Ok(())
    }

    fn launch_measures(&self, given: Given, sums: u64) -> Result<(), Error> {
        let plan = self.plans.0.clone();
        let capturing = self.started.as_ref().is_some_and(|started| started.capturing);
        let tables = self.tables(capturing);
        let mut all = [[0u32; 4]; MOST_MEASURES];
        let mut partial = 0;
        for (index, planned) in plan.0.iter().enumerate() {
            let Kind::Measure { at } = planned.pass.kind else {
                unreachable!("a plan of passes that measure")
            };
            let terms = planned.program.results.len() as u32;
            all[index] = [planned.offset as u32, terms, at as u32, partial];
            let from =
                self.buffers.partial.as_ref().map_or(0, |memory| memory.address) + 8 * u64::from(partial);
            for (float, measures, _) in &self.names {
                let Some(group) = tables.groups.iter().find(|group| group.0 == *float) else { continue };
                let scalars = self.buffers.measure_scalars.address + 8 * planned.offset as u64;
                let vectors = &planned.pass.vectors;
                let (stream, scale) = (given.stream, given.grad_scale);
                self.launch(stream, tables, &measures[index], *group, scalars, scale, from, vectors)?;
            }
            partial += terms * tables.count;
        }
        let mut chunks = tables.chunks.address();
        let mut count = tables.count;
        let mut rows = tables.rows.address();
        let mut scalars = self.buffers.measure_scalars.address;
        let mut from = self.buffers.partial.as_ref().map_or(0, |memory| memory.address);
        let mut to = sums;
        let (mut loss, mut value) = match given.loss {
            Loss::None => (0, 0.0),
            Loss::Known(value) => (0, value),
            Loss::At(address) => (address, 0.0),
        };
        let mut found = given.found_infinite;
        let mut arguments = [
            (&raw mut chunks).cast(),
            (&raw mut count).cast(),
            (&raw mut rows).cast(),
            (&raw mut scalars).cast(),
            (&raw mut from).cast(),
            (&raw mut to).cast(),
            (&raw mut loss).cast(),
            (&raw mut value).cast::<c_void>(),
            (&raw mut found).cast(),
            (&raw mut all).cast(),
        ];
        let function = self.kernels.function("add_up");
        // SAFETY: these are its arguments; all memory that they name is there.
        unsafe { given.stream.launch(&self.context, function, plan.0.len() as u32, 1024, &mut arguments) }
            .map_err(words)
    }

    fn launch_changes(&self, stream: Stream, grad_scale: u64) -> Result<(), Error> {
        let capturing = stream.is_capturing(&self.context).map_err(words)?;
        let (plan, tables) = (self.plans.1.clone(), self.tables(capturing));
        for (index, planned) in plan.0.iter().enumerate() {
            for (float, _, changes) in self.names.iter().rev() {
                let Some(group) = tables.groups.iter().find(|group| group.0 == *float) else { continue };
                let scalars = self.buffers.change_scalars.address + 8 * planned.offset as u64;
                let vectors = &planned.pass.vectors;
                self.launch(stream, tables, &changes[index], *group, scalars, grad_scale, 0, vectors)?;
            }
        }
        Ok(())
    }

    /// Starts a pass over the tensors of a type.
    #[allow(clippy::too_many_arguments)]
    fn launch(
        &self,
        stream: Stream,
        tables: &Tables,
        name: &str,
        (_, first, count): (Float, u32, u32),
        scalars: u64,
        grad_scale: u64,
        partial: u64,
        vectors: &[usize],
    ) -> Result<(), Error> {
        let stride = tables.of.as_ref().map_or(0, |of| of.tensors.len()) as u64;
        let fixed = [
            tables.chunks.address(),
            u64::from(first),
            u64::from(count),
            tables.rows.address(),
            tables.addresses.address(),
            stride,
            scalars,
            grad_scale,
            partial,
        ];
        let mut values: Vec<u64> =
            fixed.into_iter().chain(vectors.iter().map(|&place| place as u64)).collect();
        let mut arguments: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let blocks = count.min(MOST_BLOCKS * self.context.multiprocessors);
        let function = self.kernels.function(name);
        // SAFETY: these are its arguments; `tensors::read` has checked the addresses, and Python keeps the tensors.
        unsafe { stream.launch(&self.context, function, blocks, BLOCK, &mut arguments) }.map_err(words)
    }

    /// Writes the point to evaluate to the last vector. Waits for the device.
    pub fn write_evaluation_point(&mut self, tensors: &Tensors, stream: Stream) -> Result<(), Error> {
        self.wait()?;
        let context = self.context.clone();
        let _visit = context.visit();
        let passes = {
            let run = lock(&self.run);
            let mut to = script::STATE + self.state;
            run.session.write_evaluation_point(&script::PARAMETERS, &mut to);
            run.session.space().take()
        };
        self.put_tables(tensors, stream, false)?;
        self.alone(stream, |engine| {
            let mut plan = Plan::default();
            plan.include(&passes);
            engine.plans.1 = Arc::new(plan);
            engine.name_kernels()?;
            engine.plans.1.write(&passes, engine.buffers.host_change_scalars.as_mut_slice())?;
            let (from, to) =
                (engine.buffers.host_change_scalars.address(), engine.buffers.change_scalars.address);
            // SAFETY: both have room for so many, and the stream's order keeps others off.
            unsafe { stream.upload(&context, from, to, 8 * engine.plans.1.len().max(1)) }.map_err(words)?;
            engine.launch_changes(stream, 0)
        })
    }

    /// `Σ v²` of each tensor. Waits for the device. `sums` has room for [`SUMS`] numbers.
    pub fn squares(&mut self, tensors: &Tensors, stream: Stream, sums: u64) -> Result<Vec<f64>, Error> {
        self.wait()?;
        let context = self.context.clone();
        let _visit = context.visit();
        self.put_tables(tensors, stream, false)?;
        self.alone(stream, |engine| {
            let space = Script::default();
            space.measure(SquareNorm, [], 0.0, [&script::PARAMETERS], &mut (), plan::RESERVED);
            let passes = space.take();
            let mut plan = Plan::default();
            plan.include(&passes);
            engine.plans.0 = Arc::new(plan);
            engine.name_kernels()?;
            engine.make_room_for_partial_sums(false)?;
            engine.plans.0.write(&passes, engine.buffers.host_measure_scalars.as_mut_slice())?;
            engine.upload_measure_scalars(stream)?;
            let (loss, rate) = (Loss::None, 1.0);
            let given = Given { stream, loss, found_infinite: 0, grad_scale: 0, rate, weight_decay: 0.0 };
            engine.launch_measures(given, sums)?;
            let count = engine.tables.count as usize;
            let parts = Pinned::new(&context, 8 * count).map_err(words)?;
            let from = engine.buffers.partial.as_ref().map_or(0, |memory| memory.address);
            // SAFETY: both have room for so many.
            unsafe { stream.download(&context, from, parts.address(), 8 * count) }.map_err(words)?;
            stream.wait(&context).map_err(words)?;
            let mut squares = vec![0.0; tensors.tensors.len()];
            let mut parts = parts.as_slice::<f64>().iter();
            for (float, ..) in &engine.tables.groups {
                let of_type = |(_, t): &(usize, &Tensor)| t.active && t.float == *float;
                for (index, tensor) in tensors.tensors.iter().enumerate().filter(of_type) {
                    squares[index] = parts.by_ref().take(tensor.len.div_ceil(CHUNK)).sum();
                }
            }
            Ok(squares)
        })
    }

    /// Does something with plans of its own, and waits until it is done.
    fn alone<T>(
        &mut self,
        stream: Stream,
        work: impl FnOnce(&mut Engine) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let before = (self.plans.clone(), std::mem::take(&mut self.names));
        self.plans = Default::default();
        let done = work(self);
        (self.plans, self.names) = before;
        stream.wait(&self.context).map_err(words)?;
        done
    }

    /// Waits until the device has come to the end of all steps.
    pub fn wait(&self) -> Result<(), Error> {
        let _visit = self.context.visit();
        self.context.synchronize().map_err(words)?;
        match &lock(&self.run).broken {
            Some(problem) => Err(problem.clone()),
            None => Ok(()),
        }
    }

    /// The numbers of the session. Only what the device has come to is in them.
    pub fn save(&self) -> SessionState<Method> {
        lock(&self.run).session.save()
    }

    /// Goes on from other numbers.
    pub fn rewind(&mut self, state: SessionState<Method>, refused: u64, in_a_row: u64) {
        lock(&self.run).rewind(state, refused, in_a_row);
        self.rehearsal = None;
    }

    /// How the run goes, as far as the device has come.
    pub fn progress(&self) -> Result<Progress, Error> {
        lock(&self.run).progress()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _visit = self.context.visit();
        let _ = self.context.synchronize();
        self.decider = None;
        if self.recorded.is_empty() {
            self.kernels.unload();
        } else {
            // A graph may be played again as long as the process lives, and then uses all of these.
            std::mem::forget(std::mem::take(&mut self.recorded));
            std::mem::forget(self.buffers.partial.take());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
