//! `untuned bench`: how long things take on this machine.

use untuned::{RuleSpec, Setting};
use untuned_lab::bench;

use crate::args::{Bench, BenchRule, BenchStep, BenchUpdate};
use crate::end::End;
use crate::output::{print, print_json};

/// Runs one of the benchmarks.
pub fn run(args: &Bench) -> Result<(), End> {
    match args {
        Bench::Step(args) => step(args),
        Bench::Update(args) => update(args),
        Bench::Rule(args) => rule(args),
    }
}

fn step(args: &BenchStep) -> Result<(), End> {
    let threads = args.threads.map(usize::from);
    let time = bench::step(
        args.model.into(),
        args.preset.into(),
        usize::from(args.batch.get()),
        args.steps.get(),
        threads,
    )
    .map_err(|error| End::System(error.into()))?;
    if args.json {
        return print_json(&time);
    }
    print(&format!(
        "{} on {} ({}), {} parameters, batch {}: {:.2} ms a step, {:.0} tokens/s, loss {:.4}\n",
        time.model,
        time.device,
        time.precision,
        time.params,
        time.batch,
        time.ms,
        time.tokens_per_s,
        time.loss
    ))
}

fn update(args: &BenchUpdate) -> Result<(), End> {
    let threads = args.threads.map(usize::from);
    let time = bench::update(args.steps.get(), threads).map_err(|error| End::System(error.into()))?;
    if args.json {
        return print_json(&time);
    }
    print(&format!(
        "norm and update of {} parameters on {}: {:.2} ms, {:.1} GB/s; a copy has {:.1} GB/s\n",
        time.params,
        time.device,
        time.ms,
        time.bytes_per_s / 1e9,
        time.copy_bytes_per_s / 1e9
    ))
}

fn rule(args: &BenchRule) -> Result<(), End> {
    let spec: RuleSpec = args.rule.parse().map_err(End::request)?;
    let rule = spec.build(&Setting { steps: u64::MAX, f_star: Some(0.0) }).map_err(End::request)?;
    let time = bench::rule(spec.to_string(), &rule, args.steps.get()).map_err(End::request)?;
    if args.json {
        return print_json(&time);
    }
    print(&format!("{}: {:.1} ns a step\n", time.rule, time.ns))
}
