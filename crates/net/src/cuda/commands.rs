//! Commands for the device. They are started one by one, or collected and played as a CUDA graph.
//!
//! A graph belongs to the very commands that it was made of, addresses and sizes included, so it can never be the wrong one.
//! What changes from step to step is not in the commands: the ids are copied from host memory that stays where it is, and the
//! step of the random numbers stands in device memory.
#![allow(unsafe_code)]

use super::Cuda;
use crate::device::{DeviceError, Dropout};
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::c_void;
use untuned_cuda::Failure;
use untuned_cuda::device::Context;

/// The most arguments of a kernel.
pub const ARGUMENTS: usize = 40;
/// Graphs that are kept; the one that was not used for longest goes first.
const GRAPHS: usize = 128;

/// A number or an address that a kernel gets; each takes eight bytes, of which a kernel reads as many as its parameter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument(pub u64);

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self(value.into())
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

/// As a `u32`, which every size of a layer fits.
impl From<usize> for Argument {
    fn from(value: usize) -> Self {
        Self(u32::try_from(value).expect("sizes of layers fit 32 bits").into())
    }
}

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self(value.to_bits().into())
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

/// A kernel with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    name: &'static str,
    grid: [u32; 3],
    block: u32,
    shared: u32,
    /// All blocks run at once, and may wait for each other.
    cooperative: bool,
    arguments: [u64; ARGUMENTS],
    count: usize,
}

impl Launch {
    /// `grid` blocks of `block` threads.
    pub fn new(name: &'static str, grid: [usize; 3], block: usize) -> Self {
        let grid = grid.map(|size| u32::try_from(size).expect("grids fit 32 bits"));
        let (block, arguments) = (block as u32, [0; ARGUMENTS]);
        Self { name, grid, block, shared: 0, cooperative: false, arguments, count: 0 }
    }

    /// One thread for each of `len` numbers, in blocks of 256.
    pub fn over(name: &'static str, len: usize) -> Self {
        Self::new(name, [len.div_ceil(256), 1, 1], 256)
    }

    /// Bytes of dynamic shared memory.
    pub fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes as u32, ..self }
    }

    /// All blocks run at once, and may wait for each other.
    pub fn cooperative(self) -> Self {
        Self { cooperative: true, ..self }
    }

    /// The next argument.
    pub fn with(mut self, argument: impl Into<Argument>) -> Self {
        self.arguments[self.count] = argument.into().0;
        self.count += 1;
        self
    }

    /// The next six: `DROPOUT(d)` in the kernel.
    pub fn dropout(self, cuda: &Cuda, dropout: Dropout) -> Self {
        let Dropout { site, probability, period } = dropout;
        if dropout.is_active() {
            cuda.use_step(site.step);
        }
        // As `Site::fill_dropout` has it.
        let limit = ((probability * 16_777_216.0).ceil() as u32) << 8;
        let period = u32::try_from(period).unwrap_or(u32::MAX);
        let keep = (1.0 - probability).recip();
        self.with(site.seed).with(site.site).with(limit).with(keep).with(cuda.step_address()).with(period)
    }
}

/// Something that the device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "most commands are kernels, so the room that the others waste is small"
)]
pub enum Command {
    /// Starts a kernel.
    Kernel(Launch),
    /// A product of matrices, by its plan's number.
    Product {
        /// Which.
        plan: usize,
        /// The addresses of both factors and the result.
        operands: [u64; 3],
    },
    /// From host memory that stays where it is.
    Upload {
        /// Where it stands.
        from: u64,
        /// Where it goes.
        to: u64,
        /// How much.
        bytes: usize,
    },
    /// To host memory that stays where it is.
    Download {
        /// Where it stands.
        from: u64,
        /// Where it goes.
        to: u64,
        /// How much.
        bytes: usize,
    },
    /// Within the device.
    Copy {
        /// Where it stands.
        from: u64,
        /// Where it goes.
        to: u64,
        /// How much.
        bytes: usize,
    },
    /// Sets 32-bit words.
    Fill {
        /// Where.
        to: u64,
        /// To what.
        word: u32,
        /// How many.
        words: usize,
    },
}

struct Graph {
    commands: Vec<Command>,
    /// Made when the commands come for the second time.
    playable: Option<sys::CUgraphExec>,
    used: u64,
}

/// What was submitted, and what is known of it.
#[derive(Default)]
pub struct Commands {
    collecting: bool,
    collected: Vec<Command>,
    /// The step of the random numbers in device memory, and the one that the collected commands are for.
    step: Option<u32>,
    collected_step: Option<u32>,
    graphs: HashMap<u64, Graph>,
    used: u64,
    /// Whether the device may still read host memory that a command named.
    pub reading: bool,
    /// What went wrong first. Nothing is started after it.
    pub failed: Option<DeviceError>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Commands {}

impl Cuda {
    /// Submits a command: it starts now, or with all that is collected.
    pub(super) fn submit(&self, command: Command) {
        let mut commands = self.commands();
        match commands.collecting {
            true => commands.collected.push(command),
            false => self.start(&mut commands, &[command]),
        }
    }

    /// Starts a kernel.
    pub(super) fn launch(&self, launch: Launch) {
        if launch.grid.iter().all(|&size| size > 0) {
            self.submit(Command::Kernel(launch));
        }
    }

    /// The step of the random numbers from here on.
    fn use_step(&self, step: u32) {
        let mut commands = self.commands();
        if commands.collecting {
            debug_assert!(commands.collected_step.is_none_or(|other| other == step), "one step at a time");
            commands.collected_step = Some(step);
        } else {
            self.put_step(&mut commands, step);
        }
    }

    fn put_step(&self, commands: &mut Commands, step: u32) {
        if commands.step != Some(step) {
            commands.step = Some(step);
            self.start(commands, &[Command::Fill { to: self.step_address(), word: step, words: 1 }]);
        }
    }

    /// From here on commands are collected; whether they were before.
    pub(super) fn collect(&self) -> bool {
        std::mem::replace(&mut self.commands().collecting, true)
    }

    /// Whether commands are collected.
    pub(super) fn is_collecting(&self) -> bool {
        self.commands().collecting
    }

    /// Starts what was collected: as a graph when the same came before.
    pub(super) fn start_collected(&self) {
        let mut commands = self.commands();
        let commands = &mut *commands;
        commands.collecting = false;
        let collected = std::mem::take(&mut commands.collected);
        if let Some(step) = commands.collected_step.take() {
            self.put_step(commands, step);
        }
        if commands.failed.is_none() {
            self.play(commands, &collected);
        }
        commands.collected = collected;
        commands.collected.clear();
    }

    fn play(&self, commands: &mut Commands, collected: &[Command]) {
        commands.used += 1;
        let (hash, used) = (hash(collected), commands.used);
        let known = commands.graphs.get_mut(&hash).filter(|graph| graph.commands == collected);
        let Some(graph) = known else {
            if commands.graphs.len() >= GRAPHS {
                forget_oldest(commands);
            }
            let graph = Graph { commands: collected.to_vec(), playable: None, used };
            if let Some(Graph { playable: Some(playable), .. }) = commands.graphs.insert(hash, graph) {
                destroy(playable);
            }
            return self.start(commands, collected);
        };
        graph.used = used;
        let playable = match graph.playable {
            Some(playable) => playable,
            None => match self.record(collected) {
                Ok(playable) => *graph.playable.insert(playable),
                Err(error) => {
                    commands.failed = Some(error);
                    return;
                }
            },
        };
        self.context.enter();
        commands.reading = true;
        // SAFETY: the graph and the stream live.
        if let Err(error) = self.context.check(unsafe { sys::cuGraphLaunch(playable, self.stream) }) {
            commands.failed = Some(error.into());
        }
    }

    /// A graph of the commands.
    fn record(&self, collected: &[Command]) -> Result<sys::CUgraphExec, DeviceError> {
        let context = &self.context;
        context.enter();
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let (mut graph, mut playable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver writes both handles; the graph is not used after it is destroyed.
        unsafe {
            context.check(sys::cuStreamBeginCapture_v2(self.stream, mode))?;
            let started = collected.iter().try_for_each(|command| self.execute(command));
            let ended = context.check(sys::cuStreamEndCapture(self.stream, &mut graph));
            started?;
            ended?;
            let made = context.check(sys::cuGraphInstantiateWithFlags(&mut playable, graph, 0));
            sys::cuGraphDestroy(graph);
            made?;
        }
        Ok(playable)
    }

    /// Starts commands one by one.
    fn start(&self, commands: &mut Commands, list: &[Command]) {
        if commands.failed.is_some() {
            return;
        }
        self.context.enter();
        for command in list {
            commands.reading |= matches!(command, Command::Upload { .. });
            if let Err(error) = self.execute(command) {
                commands.failed = Some(error);
                return;
            }
        }
    }

    fn execute(&self, command: &Command) -> Result<(), DeviceError> {
        let (stream, context) = (self.stream, &self.context);
        let result = match *command {
            Command::Kernel(launch) => return self.execute_kernel(&launch),
            Command::Product { plan, operands } => {
                return self.products.execute(context, stream, plan, operands);
            }
            // SAFETY (all of these): the addresses are of memory that is as long as the command says.
            Command::Upload { from, to, bytes } => unsafe {
                sys::cuMemcpyHtoDAsync_v2(to, from as *const c_void, bytes, stream)
            },
            Command::Download { from, to, bytes } => unsafe {
                sys::cuMemcpyDtoHAsync_v2(to as *mut c_void, from, bytes, stream)
            },
            Command::Copy { from, to, bytes } => unsafe {
                sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
            },
            Command::Fill { to, word, words } => unsafe { sys::cuMemsetD32Async(to, word, words, stream) },
        };
        Ok(context.check(result)?)
    }

    fn execute_kernel(&self, launch: &Launch) -> Result<(), DeviceError> {
        let Launch { name, grid, block, shared, cooperative, arguments, count } = launch;
        let function = self.kernels.function(name);
        let mut values = *arguments;
        let mut addresses: [*mut c_void; ARGUMENTS] = [std::ptr::null_mut(); ARGUMENTS];
        for (address, value) in addresses.iter_mut().zip(&mut values[..*count]) {
            *address = std::ptr::from_mut(value).cast();
        }
        let ([x, y, z], room, stream) = (*grid, addresses.as_mut_ptr(), self.stream);
        // SAFETY: the kernel takes these arguments, each no longer than eight bytes.
        let result = unsafe {
            match cooperative {
                true => {
                    sys::cuLaunchCooperativeKernel(function, x, y, z, *block, 1, 1, *shared, stream, room)
                }
                false => {
                    let none = std::ptr::null_mut();
                    sys::cuLaunchKernel(function, x, y, z, *block, 1, 1, *shared, stream, room, none)
                }
            }
        };
        self.context.check(result).map_err(|Failure { part, reason }| {
            let reason = format!("{name} over {x}·{y}·{z} blocks of {block} threads: {reason}");
            DeviceError::from(Failure { part, reason })
        })
    }

    /// Waits until everything that was started is done.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        let mut commands = self.commands();
        if let Some(error) = &commands.failed {
            return Err(error.clone());
        }
        self.context.enter();
        // SAFETY: the stream lives.
        let done =
            self.context.check(unsafe { sys::cuStreamSynchronize(self.stream) }).map_err(DeviceError::from);
        commands.reading = false;
        if !commands.collecting {
            super::lock(&self.retired).clear();
        }
        if let Err(error) = &done {
            commands.failed = Some(error.clone());
        }
        done
    }
}

impl Commands {
    /// Before the context goes.
    pub fn forget_all(&mut self, context: &Context) {
        context.enter();
        self.graphs.drain().filter_map(|(_, graph)| graph.playable).for_each(destroy);
    }
}

fn forget_oldest(commands: &mut Commands) {
    let oldest = commands.graphs.iter().min_by_key(|(_, graph)| graph.used).map(|(&hash, _)| hash);
    if let Some(Graph { playable: Some(playable), .. }) =
        oldest.and_then(|hash| commands.graphs.remove(&hash))
    {
        destroy(playable);
    }
}

fn destroy(playable: sys::CUgraphExec) {
    // SAFETY: it is not used again; the driver waits until it has been played.
    unsafe { sys::cuGraphExecDestroy(playable) };
}

/// A number that other commands hardly share; equality is checked where it matters. The standard library's hashes take longer than
/// the rest of collecting a step.
fn hash(commands: &[Command]) -> u64 {
    let mut hash = 0u64;
    let mut take = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for command in commands {
        match *command {
            Command::Kernel(launch) => {
                take(launch.name.as_ptr() as u64);
                take(u64::from(launch.grid[0]) << 32 | u64::from(launch.grid[1]));
                launch.arguments[..launch.count].iter().for_each(|&argument| take(argument));
            }
            Command::Product { plan, operands } => {
                take(plan as u64);
                operands.into_iter().for_each(&mut take);
            }
            Command::Upload { from, to, bytes }
            | Command::Download { from, to, bytes }
            | Command::Copy { from, to, bytes } => [from, to, bytes as u64].into_iter().for_each(&mut take),
            Command::Fill { to, word, words } => {
                [to, word.into(), words as u64].into_iter().for_each(&mut take)
            }
        }
    }
    hash
}
