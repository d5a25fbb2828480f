//! The program `untuned`: arguments in, library calls, words out.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod commands;
mod end;
mod interrupt;
mod output;

fn main() -> ExitCode {
    let args = args::Args::parse();
    interrupt::install();
    match commands::run(args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(end) => end.report(),
    }
}
