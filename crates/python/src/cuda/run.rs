//! The scalar part of steps: what the host decides when the device has measured.
#![allow(unsafe_code, reason = "memory that the device writes, and functions that the driver calls")]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use untuned::{Method, Optimizer as _, Refusal, SessionError, SessionState};

use super::plan::{self, FOUND_INFINITE, Options, Plan, SUMS};
use super::{Error, lock, script};

/// Room for the scalars of all passes of a plan.
pub const SCALARS: usize = 1024;

/// A step that was not made.
#[derive(Debug, Clone)]
pub struct Refused {
    pub refusal: Refusal,
    /// How many there were in a row.
    pub in_a_row: u64,
}

/// How the run goes, as far as the device has come.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The effective rate and the gradient's norm of the last step that was made.
    pub last: Option<(f64, f64)>,
    pub steps: u64,
    pub estimate: Option<f64>,
    pub warning: Option<String>,
    pub refused: u64,
    pub in_a_row: u64,
    /// What was refused since this was last asked.
    pub refusals: Vec<Refused>,
}

/// A method's numbers, as far as the device has come.
#[derive(Debug)]
pub struct Run {
    pub session: script::Session,
    last: Option<(f64, f64)>,
    refused: u64,
    in_a_row: u64,
    refusals: VecDeque<Refused>,
    /// A defect of ours.
    pub broken: Option<String>,
}

/// The most refusals that are kept until Python asks.
const MOST_REFUSALS: usize = 1000;

impl Run {
    /// A run of which so many steps were refused before, and in a row.
    pub fn new(session: script::Session, refused: u64, in_a_row: u64) -> Run {
        Run { session, last: None, refused, in_a_row, refusals: VecDeque::new(), broken: None }
    }

    /// Goes on from other numbers.
    pub fn rewind(&mut self, state: SessionState<Method>, refused: u64, in_a_row: u64) {
        self.session.rewind(state);
        (self.refused, self.in_a_row, self.last) = (refused, in_a_row, None);
        self.refusals.clear();
    }

    /// How it goes.
    pub fn progress(&mut self) -> Result<Progress, Error> {
        if let Some(problem) = &self.broken {
            return Err(problem.clone());
        }
        let method = self.session.method();
        Ok(Progress {
            last: self.last,
            steps: self.session.steps(),
            estimate: method.estimate(),
            warning: method.warning(),
            refused: self.refused,
            in_a_row: self.in_a_row,
            refusals: self.refusals.drain(..).collect(),
        })
    }

    /// The scalar part of a step. Returns the passes that change vectors: none where the step is not made.
    pub fn decide(&mut self, options: Options, sums: &[f64]) -> Vec<script::Pass> {
        if sums[FOUND_INFINITE] > 0.0 {
            self.session.skip();
            return Vec::new();
        }
        let (made, passes) = plan::changes(&mut self.session, options, sums.to_vec());
        match made {
            Ok(report) => {
                self.last = Some((report.rate, report.grad_norm));
                self.in_a_row = 0;
                return passes;
            }
            Err(SessionError::Refused(refusal)) => {
                self.session.skip();
                (self.refused, self.in_a_row) = (self.refused + 1, self.in_a_row + 1);
                if self.refusals.len() == MOST_REFUSALS {
                    self.refusals.pop_front();
                }
                self.refusals.push_back(Refused { refusal, in_a_row: self.in_a_row });
            }
            Err(SessionError::Device(_)) => self.broken = Some("a step read what was not measured".into()),
        }
        Vec::new()
    }
}

/// What a step's functions of the host need. The buffers are the engine's, which outlives the step.
pub struct Job {
    pub run: Arc<Mutex<Run>>,
    pub measures: Arc<Plan>,
    pub changes: Arc<Plan>,
    pub options: Options,
    /// The addresses of pinned memory.
    pub measure_scalars: usize,
    pub change_scalars: usize,
    pub sums: usize,
    /// Whether a graph has it, and may come again.
    pub repeats: bool,
}

impl Job {
    /// # Safety
    /// The address is that of so many numbers, which nobody else uses meanwhile.
    pub unsafe fn numbers<'a>(address: usize, len: usize) -> &'a mut [f64] {
        // SAFETY: as the caller says.
        unsafe { std::slice::from_raw_parts_mut(address as *mut f64, len) }
    }

    /// Does the work of a function of the host. Nothing may unwind into the driver.
    fn guarded(&self, plan: &Plan, scalars: usize, passes: impl FnOnce(&mut Run) -> Vec<script::Pass>) {
        // SAFETY: the engine has room for so many, and the stream's order keeps others off.
        let to = unsafe { Job::numbers(scalars, SCALARS) };
        let mut run = lock(&self.run);
        let done = catch_unwind(AssertUnwindSafe(|| plan.write(&passes(&mut run), to)));
        let problem = match done {
            Ok(Ok(())) => return,
            Ok(Err(problem)) => problem,
            Err(panic) => {
                to[..plan.len()].fill(0.0);
                match panic.downcast::<String>() {
                    Ok(text) => *text,
                    Err(_) => "a function of the host panicked".into(),
                }
            }
        };
        run.broken.get_or_insert(problem);
    }
}

/// Says which passes measure, and with which scalars.
///
/// # Safety
/// `data` is the address of a [`Job`].
pub unsafe extern "C" fn before_measuring(data: *mut c_void) {
    // SAFETY: the stream calls this before the other function, which may free it.
    let job = unsafe { &*data.cast::<Job>() };
    job.guarded(&job.measures, job.measure_scalars, |run| plan::measures(&mut run.session, job.options));
}

/// Decides on the step, and says which passes change vectors.
///
/// # Safety
/// As [`before_measuring`], which comes before. Nobody uses the job after this, but a graph that has it.
pub unsafe extern "C" fn after_measuring(data: *mut c_void) {
    // SAFETY: as above.
    let job = unsafe { &*data.cast::<Job>() };
    // SAFETY: the copy of the sums is made.
    let sums = unsafe { Job::numbers(job.sums, SUMS) };
    job.guarded(&job.changes, job.change_scalars, |run| run.decide(job.options, sums));
    if !job.repeats {
        // SAFETY: it was made for this step, and nobody uses it any more.
        drop(unsafe { Box::from_raw(data.cast::<Job>()) });
    }
}
