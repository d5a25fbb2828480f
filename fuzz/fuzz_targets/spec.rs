//! Any text as a spec string of a method or a problem: an error that says something, or a spec that reads back, builds
//! and steps without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use untuned::{MethodSpec, Observation, RunInfo, StepRule};
use untuned_theory::ProblemSpec;

fuzz_target!(|text: &str| {
    match text.parse::<MethodSpec>() {
        Ok(spec) => {
            assert_eq!(spec.to_string().parse::<MethodSpec>().as_ref(), Ok(&spec));
            let _ = spec.build(&RunInfo::new(7));
            for steps in [0, 7, u64::MAX] {
                let run = RunInfo { steps, f_star: Some(0.0) };
                let built = spec.build(&run);
                let Ok(mut rule) = spec.build_rule(&run) else { continue };
                assert!(built.is_ok(), "{text}: a rule is a method");
                for (t, loss, grad_norm) in
                    [(0, 2.0, 0.5), (1, 1e300, 1e-200), (2, -1.0, 0.0), (u64::MAX, 1.0, 1.0)]
                {
                    let seen = Observation {
                        x0_norm: Some(0.0),
                        distance: Some(1.0),
                        grad_sum: Some(-grad_norm),
                        dimension: Some(1),
                        ..Observation::new(t, loss, grad_norm)
                    };
                    if let Ok(step) = rule.step(&seen) {
                        assert!(step.size.is_finite() && step.size >= 0.0, "{text}: {step:?}");
                    }
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match text.parse::<ProblemSpec>() {
        Ok(spec) => {
            assert_eq!(spec.to_string().parse::<ProblemSpec>().as_ref(), Ok(&spec));
            // A large problem is built like a small one, only slower.
            let sizes = ["n", "dim"].into_iter().filter(|key| spec.spec().info().has(key));
            if sizes.map(|key| spec.spec().number(key)).all(|size| size <= 100.0) {
                if let Ok(problem) = spec.build() {
                    problem.value(&problem.start());
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
