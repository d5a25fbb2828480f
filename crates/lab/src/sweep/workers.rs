//! Processes that work a sweep off, side by side.
//!
//! A process a trial, so that one that is killed, runs out of memory or crashes leaves the others alone; starting one takes
//! milliseconds. A worker's standard input is a pipe that nobody writes to: when this process ends, however it ends, the worker reads
//! the end of it, saves its trial and stops.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::plan::{Plan, Trial};
use super::trial::{Failure, State, folder, recorded, state};
use crate::train::TrainError;

/// How often the display is asked to look again.
const TICK: Duration = Duration::from_millis(100);
/// So much of a worker's last words is kept.
const LAST_WORDS: usize = 2000;

/// The exit code of a worker whose trial another process is at.
pub const BUSY: i32 = 75;

/// Who watches a sweep, and may stop it.
pub trait Progress: Sync {
    /// A worker, counted from 0, begins with a trial.
    fn begins(&self, worker: usize, trial: &Trial);
    /// It ended, failed, or was stopped; how long its process ran.
    fn ended(&self, worker: usize, trial: &Trial, state: &State, wall: Duration);
    /// Called ten times a second.
    fn tick(&self);
    /// Whether to stop.
    fn stop(&self) -> bool;
}

/// Works off the trials that have not ended, `workers` at a time; `command` makes the process of a trial.
///
/// # Errors
/// When a process cannot be started. A trial that fails is a result.
pub fn work(
    plan: &Plan,
    out: &Path,
    workers: usize,
    command: &(dyn Fn(usize) -> Command + Sync),
    progress: &dyn Progress,
) -> Result<(), TrainError> {
    let waiting: Vec<&Trial> = plan
        .trials
        .iter()
        .filter(|trial| !matches!(state(&folder(out, trial.index)), State::Ended(_)))
        .collect();
    let next = AtomicUsize::new(0);
    let pipes: Vec<Mutex<Option<ChildStdin>>> = (0..workers).map(|_| Mutex::new(None)).collect();
    let worker = |number: usize| -> Result<(), TrainError> {
        while let Some(trial) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
            if progress.stop() {
                break;
            }
            progress.begins(number, trial);
            let began = Instant::now();
            let state = supervise(trial, out, command(trial.index), &pipes[number], progress)?;
            progress.ended(number, trial, &state, began.elapsed());
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> =
            (0..workers.min(waiting.len())).map(|n| scope.spawn(move || worker(n))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            progress.tick();
            if progress.stop() {
                for pipe in &pipes {
                    drop(lock(pipe).take());
                }
            }
            std::thread::sleep(TICK);
        }
        // A panic of a worker's thread would be a mistake of ours; it is passed on.
        let ends = threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        ends.collect()
    })
}

/// Starts a trial's process and waits for its end.
fn supervise(
    trial: &Trial,
    out: &Path,
    mut command: Command,
    pipe: &Mutex<Option<ChildStdin>>,
    progress: &dyn Progress,
) -> Result<State, TrainError> {
    let program = command.get_program().to_owned();
    let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(TrainError::io("start", Path::new(&program)))?;
    *lock(pipe) = child.stdin.take();
    let words = last_words(&mut child);
    let status = child.wait().map_err(TrainError::io("wait for", Path::new(&program)))?;
    drop(lock(pipe).take());
    let folder = folder(out, trial.index);
    Ok(match state(&folder) {
        State::Waiting | State::Begun if progress.stop() => State::Begun,
        State::Waiting | State::Begun if matches!(status.code(), Some(130 | BUSY)) => State::Begun,
        State::Waiting | State::Begun => {
            // Without a code the process was killed: what it said last was about something else.
            let error = match words.strip_prefix("error: ").filter(|_| status.code().is_some()) {
                Some(words) => words.to_string(),
                None => format!("its process ended with {status}; was it killed, or out of memory?"),
            };
            // Exit code 2 was said by a trial that did not begin; anything else did not get as far as recording it.
            if status.code() != Some(2) {
                recorded(&folder, &trial.config, TrainError::Request(error.clone()));
            }
            State::Failed(Failure { error })
        }
        state => state,
    })
}

/// The last line that a process says on standard error.
fn last_words(child: &mut Child) -> String {
    let mut end: Vec<u8> = Vec::new();
    let mut part = [0; 4096];
    if let Some(mut stderr) = child.stderr.take() {
        while let Ok(read @ 1..) = stderr.read(&mut part) {
            end.extend_from_slice(&part[..read]);
            end.drain(..end.len().saturating_sub(LAST_WORDS));
        }
    }
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    last.to_string()
}

/// A poisoned lock holds what it held: a pipe.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
