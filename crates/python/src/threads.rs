//! Threads for passes: torch's own where they can be found, because they spin after a loop and would take the cores from others.

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

/// Whether this process is the one that first ran something on threads. A child that was forked has none of them.
fn has_threads() -> bool {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    match OWNER.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == process,
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
    if threads <= 1 || !has_threads() {
        return (0..count).for_each(work);
    }
    let tasks = Tasks { next: AtomicUsize::new(0), count, work, panic: Mutex::new(None) };
    if let Some(parallel) = openmp() {
        unsafe extern "C" fn one(tasks: *mut c_void) {
            // SAFETY: `run` passes its `Tasks`, and waits for all threads before they end.
            unsafe { &*tasks.cast::<Tasks<'_>>() }.run();
        }
        // SAFETY: `one` takes the pointer that it is given here, and no panic leaves it.
        unsafe { parallel(one, (&raw const tasks).cast_mut().cast(), threads as c_uint, 0) };
    } else {
        rayon::scope(|scope| (0..threads).for_each(|_| scope.spawn(|_| tasks.run())));
    }
    if let Some(panic) = tasks.panic.into_inner().ok().flatten() {
        resume_unwind(panic);
    }
}
