//! A thread that decides on steps as soon as the device has measured.
//!
//! The driver calls a function of the host some hundred microseconds after the device has come to it, in which the device does nothing.
//! So the device writes a word into memory of the host instead, and waits for another. This thread looks at the first one, and writes
//! the second. It looks without a pause from the moment when the step's first pass begins, and now and then before that.
//!
//! A graph that is played again calls the driver's function: nobody tells this thread that the graph begins.
#![allow(unsafe_code, reason = "words that the device writes")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use untuned_cuda::Failure;
use untuned_cuda::device::{Context, Pinned};

use super::launch::Stream;
use super::lock;

/// The shortest and the longest pause between two looks.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(200)];
/// What part of the time that a step has waited a pause may be.
const PART: u32 = 256;

/// The words, each in a cache line of its own.
#[derive(Debug, Clone, Copy)]
enum Word {
    /// The device writes a step's number here before its first pass,
    Near = 0,
    /// and here when its sums are in the host's memory.
    Measured = 1,
    /// The thread writes it here when it has decided.
    Decided = 2,
}

const LINE: usize = 64;

struct Step {
    number: u32,
    decide: Box<dyn FnOnce() + Send>,
}

struct Shared {
    /// The address of the words.
    words: usize,
    steps: Mutex<VecDeque<Step>>,
    more: Condvar,
    ends: AtomicBool,
}

impl Shared {
    fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: the memory lives as long as the decider, which waits for the thread; only atomic operations touch it.
        unsafe { &*((self.words + LINE * word as usize) as *const AtomicU32) }
    }

    /// Waits until a step's sums are there. Returns false where the thread is to end.
    fn arrives(&self, number: u32) -> bool {
        let given = Instant::now();
        while self.word(Word::Measured).load(Ordering::Acquire) != number {
            if self.ends.load(Ordering::Relaxed) {
                return false;
            }
            match self.word(Word::Near).load(Ordering::Relaxed) == number {
                true => std::hint::spin_loop(),
                false => std::thread::sleep((given.elapsed() / PART).clamp(PAUSES[0], PAUSES[1])),
            }
        }
        true
    }

    fn work(&self) {
        loop {
            let mut steps = lock(&self.steps);
            while steps.is_empty() && !self.ends.load(Ordering::Relaxed) {
                steps = self.more.wait(steps).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            let Some(Step { number, decide }) = steps.pop_front() else { return };
            drop(steps);
            if !self.arrives(number) {
                return;
            }
            decide();
            self.word(Word::Decided).store(number, Ordering::Release);
        }
    }
}

/// The thread, and what the device writes for it.
pub struct Decider {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    number: u32,
    /// The process that has the thread: a fork has none.
    process: u32,
    _words: Pinned,
}

impl Decider {
    pub fn new(context: &Arc<Context>) -> Result<Decider, Failure> {
        let words = Pinned::new(context, 3 * LINE)?;
        let shared = Arc::new(Shared {
            words: words.address() as usize,
            steps: Mutex::default(),
            more: Condvar::new(),
            ends: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("untuned".into())
            .spawn(move || theirs.work())
            .map_err(|error| Failure { part: "a thread".into(), reason: error.to_string() })?;
        Ok(Decider { shared, thread: Some(thread), number: 0, process: std::process::id(), _words: words })
    }

    fn address(&self, word: Word) -> u64 {
        (self.shared.words + LINE * word as usize) as u64
    }

    /// Says that a step's passes begin now.
    pub fn begin(&mut self, context: &Context, stream: Stream) -> Result<(), Failure> {
        self.number = self.number.wrapping_add(1);
        // SAFETY: the word is there as long as the decider.
        unsafe { stream.write(context, self.address(Word::Near), self.number) }
    }

    /// Lets the thread decide on the step when the device has come here, and the device wait for it.
    pub fn decide(
        &mut self,
        context: &Context,
        stream: Stream,
        decide: Box<dyn FnOnce() + Send>,
    ) -> Result<(), Failure> {
        let number = self.number;
        // SAFETY: the words are there as long as the decider.
        unsafe { stream.write(context, self.address(Word::Measured), number) }?;
        lock(&self.shared.steps).push_back(Step { number, decide });
        self.shared.more.notify_one();
        // SAFETY: as above; the thread writes the word.
        unsafe { stream.wait_for(context, self.address(Word::Decided), number) }
    }
}

impl Drop for Decider {
    /// The device must have made all steps, or have failed.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.shared.ends.store(true, Ordering::Relaxed);
        // The thread may be between its look at this and its wait.
        drop(lock(&self.shared.steps));
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
