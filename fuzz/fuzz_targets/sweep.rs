//! Any text as a sweep's file: an error that says something, or trials that are all different.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_lab::sweep::Plan;
use untuned_lab::train::Overrides;

const EXPERIMENT: &str = "model = \"gpt\"\nsteps = 10\n[scale.quick]\nbatch = 2\n[scale.paper]\nbatch = 4\n";

fuzz_target!(|text: &str| {
    let experiment = |_: &str| Ok((EXPERIMENT.to_string(), "x.toml".to_string(), "x".to_string()));
    match Plan::resolve(text, "fuzzed", experiment, &Overrides::default()) {
        Ok(plan) => assert!(plan.trials.iter().enumerate().all(|(at, trial)| trial.index == at)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
