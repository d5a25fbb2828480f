//! Threads for passes: torch's own where they can be found, because they spin after a loop and would take the cores from others.
//!
//! A child that was forked has none of its parent's threads. OpenMP hangs there if the parent has used it, and torch may have: a child
//! runs on a pool of rayon of its own, or without threads where its parent had one.

#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// `GOMP_parallel` of the OpenMP library that torch brings: runs a function on so many threads, and waits for all.
type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

/// The one in this process, if there is one.
fn openmp() -> Option<Parallel> {
    static FOUND: OnceLock<Option<Parallel>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends with 0. A symbol of this name has this signature, which is part of GCC's ABI.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"GOMP_parallel".as_ptr());
            (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, Parallel>(symbol))
        }
    })
}

/// The process that imported this module.
static IMPORTED_BY: AtomicU32 = AtomicU32::new(0);

/// The process that started rayon's threads.
static RAYON_STARTED_BY: AtomicU32 = AtomicU32::new(0);

/// Makes this process the owner of something that has none, and returns whether it is the owner.
fn owns(owner: &AtomicU32) -> bool {
    let process = std::process::id();
    match owner.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == process,
    }
}

/// Remembers the process that imports this module.
pub fn import() {
    owns(&IMPORTED_BY);
}

/// The threads that a pass runs on.
enum Pool {
    OpenMp(Parallel),
    Rayon,
    /// The caller's thread alone.
    None,
}

impl Pool {
    /// The pool of this process. The environment variable `UNTUNED_THREADS=rayon` leaves OpenMP out.
    fn here() -> Pool {
        static LEAVE_OPENMP_OUT: OnceLock<bool> = OnceLock::new();
        let leave_out = *LEAVE_OPENMP_OUT
            .get_or_init(|| std::env::var_os("UNTUNED_THREADS").is_some_and(|v| v == "rayon"));
        if owns(&IMPORTED_BY)
            && !leave_out
            && let Some(parallel) = openmp()
        {
            return Pool::OpenMp(parallel);
        }
        if owns(&RAYON_STARTED_BY) { Pool::Rayon } else { Pool::None }
    }
}

/// The name of this process's pool, for tests.
pub fn pool() -> &'static str {
    match Pool::here() {
        Pool::OpenMp(_) => "openmp",
        Pool::Rayon => "rayon",
        Pool::None => "none",
    }
}

/// The work of all threads: each takes the next task until none is left.
struct Tasks<'a> {
    next: AtomicUsize,
    count: usize,
    work: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

impl Tasks<'_> {
    fn run(&self) {
        // A panic must not leave a thread that is not ours.
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= self.count {
                    return;
                }
                (self.work)(task);
            }
        }));
        if let (Err(panic), Ok(mut first)) = (result, self.panic.lock()) {
            first.get_or_insert(panic);
        }
    }
}

/// Runs this many tasks on up to `threads` threads. The order is not fixed: tasks must not depend on each other.
pub fn run(threads: usize, count: usize, work: &(dyn Fn(usize) + Sync)) {
    let threads = threads.min(count);
    let pool = if threads > 1 { Pool::here() } else { Pool::None };
    let tasks = Tasks { next: AtomicUsize::new(0), count, work, panic: Mutex::new(None) };
    match pool {
        Pool::OpenMp(parallel) => {
            unsafe extern "C" fn one(tasks: *mut c_void) {
                // SAFETY: `run` passes its `Tasks`, and waits for all threads before they end.
                unsafe { &*tasks.cast::<Tasks<'_>>() }.run();
            }
            // SAFETY: `one` takes the pointer that it is given here, and no panic leaves it.
            unsafe { parallel(one, (&raw const tasks).cast_mut().cast(), threads as c_uint, 0) };
        }
        Pool::Rayon => rayon::scope(|scope| (0..threads).for_each(|_| scope.spawn(|_| tasks.run()))),
        Pool::None => return (0..count).for_each(work),
    }
    if let Some(panic) = tasks.panic.into_inner().ok().flatten() {
        resume_unwind(panic);
    }
}
