//! Any bytes as the weights of a checkpoint, or as the arrays beside them: a reason, or numbers of the right length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_lab::train::checkpoint::{read_arrays, read_weights};
use untuned_net::arena::{Initial, Layout};

fuzz_target!(|bytes: &[u8]| {
    let mut layout = Layout::default();
    layout.matrix("a", 2, 3, Initial::Constant(0.0));
    layout.vector("b", 4, Initial::Constant(0.0));
    match read_weights(bytes, &layout) {
        Ok(weights) => assert_eq!(weights.len(), layout.len()),
        Err(reason) => assert!(!reason.is_empty()),
    }
    let _ = read_arrays(bytes);
});
