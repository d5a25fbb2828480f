//! Any text as an experiment's file, with any option beside it: an error, or a configuration that its own copy resolves to again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned_lab::train::{Config, Overrides, Shape};

fuzz_target!(|input: (&str, Option<&str>)| {
    let (text, set) = input;
    let mut overrides = Overrides::default();
    if set.is_some_and(|set| overrides.set(set).is_err()) {
        return;
    }
    match Config::resolve(text, "fuzzed", "fuzzed", &overrides) {
        Ok(config) => {
            let _ = Shape::of(&config);
            let again = Config::resolve(&config.to_toml(), "copy", "copy", &Overrides::default());
            assert_eq!(again.expect("its own copy"), config);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
