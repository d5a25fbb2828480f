//! Ctrl-C: the first one asks the work to stop where it keeps everything, the second one ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C, a termination request and a closed terminal.
pub fn install() {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) || AT_ONCE.load(Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without a handler Ctrl-C still ends the program: nothing to tell the user about.
    let _ = ctrlc::set_handler(handler);
}

/// From now on the first Ctrl-C ends the program: nothing would be lost.
pub fn at_once() {
    AT_ONCE.store(true, Ordering::Relaxed);
}

/// Asks to stop, as Ctrl-C does.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Whether the user asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
