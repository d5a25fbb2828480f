//! `untuned bench`: how long things take on this machine.

use std::time::Instant;

use untuned::{MethodSpec, RunInfo};
use untuned_lab::bench::{self, StepBench};
use untuned_lab::train::DeviceChoice;

use crate::args::{Bench, BenchDevice, BenchRule, BenchStep, BenchUpdate};
use crate::end::End;
use crate::interrupt;
use crate::output::{print, print_json};

/// Runs one of the benchmarks; the process began at `started`.
pub fn run(args: &Bench, started: Instant) -> Result<(), End> {
    interrupt::at_once();
    match args {
        Bench::Step(args) => step(args, started),
        Bench::Update(args) => update(args),
        Bench::Rule(args) => rule(args),
    }
}

impl BenchDevice {
    fn choice(&self) -> Result<DeviceChoice, End> {
        DeviceChoice::of(&self.device, &self.precision).map_err(End::request)
    }
}

fn step(args: &BenchStep, started: Instant) -> Result<(), End> {
    let bench = StepBench {
        model: args.model.into(),
        preset: args.preset.into(),
        batch: usize::from(args.batch.get()),
        steps: args.steps.get(),
        started,
    };
    let time =
        bench::step(bench, args.device.choice()?, args.threads.map(usize::from)).map_err(End::train)?;
    if args.json {
        return print_json(&time);
    }
    print(&format!(
        "{} on {} ({}), {} parameters, batch {}: {:.2} ms a step, {:.0} tokens/s, loss {:.4}, the first after {:.1} s\n",
        time.model,
        time.device,
        time.precision,
        time.params,
        time.batch,
        time.ms,
        time.tokens_per_s,
        time.loss,
        time.first_step_s
    ))
}

fn update(args: &BenchUpdate) -> Result<(), End> {
    let rule: MethodSpec = args.rule.parse().map_err(End::request)?;
    let threads = args.threads.map(usize::from);
    let time = bench::update(&rule, args.steps.get(), args.device.choice()?, threads).map_err(End::train)?;
    if args.json {
        return print_json(&time);
    }
    print(&format!(
        "norm and update of {} parameters with {} on {}: {:.2} ms, {} bytes a parameter, {:.1} GB/s; a copy has {:.1} GB/s\n",
        time.params,
        time.rule,
        time.device,
        time.ms,
        time.bytes_per_param,
        time.bytes_per_s / 1e9,
        time.copy_bytes_per_s / 1e9
    ))
}

fn rule(args: &BenchRule) -> Result<(), End> {
    let spec: MethodSpec = args.rule.parse().map_err(End::request)?;
    let rule = spec.build_rule(&RunInfo { steps: u64::MAX, f_star: Some(0.0) }).map_err(End::request)?;
    let time = bench::rule(spec.to_string(), &rule, args.steps.get()).map_err(End::request)?;
    if args.json {
        return print_json(&time);
    }
    print(&format!("{}: {:.1} ns a step\n", time.rule, time.ns))
}
