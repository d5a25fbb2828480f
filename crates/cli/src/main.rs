//! The program `untuned`: arguments in, library calls, words out.

use std::process::ExitCode;
use std::time::Instant;

mod args;
mod commands;
mod end;
mod interrupt;
mod output;

fn main() -> ExitCode {
    let started = Instant::now();
    let args = args::Args::read();
    interrupt::install();
    match commands::run(args.command, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(end) => end.report(),
    }
}
