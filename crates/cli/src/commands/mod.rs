//! One file per command.

use std::time::Instant;

use crate::args::Command;
use crate::end::End;

mod archive;
mod bench;
mod data;
mod doctor;
mod list;
mod minimize;
mod report;
mod reproduce;
mod sample;
mod sweep;
mod train;

/// Runs a command; the process began at `started`.
pub fn run(command: Command, started: Instant) -> Result<(), End> {
    match command {
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Archive(args) => archive::run(&args),
        Command::Minimize(args) => minimize::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Sample(args) => sample::run(&args),
        Command::Rules(args) => list::rules(&args),
        Command::Problems(args) => list::problems(&args),
        Command::Data(args) => data::run(&args),
        Command::Bench(args) => bench::run(&args, started),
        Command::Doctor(args) => doctor::run(&args),
    }
}
