//! Any bytes as a run's trace and evaluations: an error that names the line, or rows with ascending steps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_lab::traces::{read_eval, read_trace};

mod shared;

fuzz_target!(|bytes: &[u8]| {
    let path = shared::file(bytes);
    let mut last = None;
    let read = read_trace(&path, |row| {
        assert!(last.is_none_or(|last| last < row.step));
        last = Some(row.step);
    });
    assert!(read.map_or_else(|error| !error.to_string().is_empty(), |read| read.rows <= bytes.len() as u64));
    let _ = read_eval(&path);
});
