//! The program as a user meets it: what it prints, writes and exits with.

mod archive;
mod bench;
mod data;
mod devices;
mod minimize;
mod reproduce;
mod rules;
mod sweep;
mod train;

use std::process::{Command, Output};

use serde_json::Value;

/// The program, ready to take arguments.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_untuned"))
}

/// Runs the program with these arguments, split at spaces.
pub fn untuned(arguments: &str) -> Output {
    program().args(arguments.split_whitespace()).output().expect("the program starts")
}

/// Standard error as text.
pub fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Standard output as one JSON value.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("not one JSON value: {e}; {}", errors(output)))
}
