//! The methods that find their rate themselves, and those without a schedule: their special cases, and their stalls and blow-ups in
//! words.

#![allow(clippy::unwrap_used)]

mod support;

use support::{NORM, Run, Watched, build};
use untuned::{DenseF64, MethodSpec, Optimizer, RunInfo, StepKind, vector};

/// Every option that changes what is kept, measured or changed.
const VARIANTS: &[&str] = &[
    "prodigy",
    "prodigy:beta1=0,d0=0.01,decouple=no",
    "prodigy:d0=0.01,bias_correction=yes,safeguard_warmup=yes,growth_rate=1.1",
    "d-adapt-sgd",
    "d-adapt-sgd:d0=0.01,momentum=0.9,growth_rate=1.1",
    "d-adapt-adam",
    "d-adapt-adam:d0=0.01,decouple=yes,bias_correction=yes",
    "schedule-free-sgd:lr=0.1",
    "schedule-free-sgd:lr=0.1,warmup_steps=5,r=1.5,weight_lr_power=0.5,late_warmup=yes",
    "schedule-free-adamw:lr=0.1",
    "schedule-free-adamw:lr=0.1,bias_correction=rate,decay_at=z",
    "mechanic",
    "mechanic:store_delta=yes",
    "mechanic:form=optax",
    "mechanic:base=sgd-momentum",
    "mechanic:base=sgd-momentum,momentum=0,form=optax,store_delta=yes,betas=3",
];

/// A run with decay in the first coordinate.
fn begin(spec: &str, x: &[f64]) -> Run {
    let mut run = Run::new(build(spec, 100), DenseF64::new(x.len()).decaying(0..1), x);
    run.session.options.weight_decay = 0.1;
    run
}

/// A bowl, with a push that changes from step to step.
fn gradient(x: &[f64], t: u64) -> Vec<f64> {
    x.iter().zip(1..).map(|(x, i)| i as f64 * x + 0.1 * (((t * i) % 7) as f64 - 3.0)).collect()
}

#[test]
fn zero_gradients_move_nothing_and_do_not_stop_what_follows() {
    for spec in VARIANTS {
        let mut run = begin(spec, &[1.0, -2.0]);
        run.session.options.weight_decay = 0.0;
        for _ in 0..3 {
            run.step(1.0, &[0.0, 0.0]).unwrap();
            assert_eq!(run.x, [1.0, -2.0], "{spec}");
        }
        for t in 3..20 {
            run.step(1.0, &gradient(&run.x, t)).unwrap();
        }
        assert!(run.x != [1.0, -2.0] && run.x.iter().all(|x| x.is_finite()), "{spec}: {:?}", run.x);
        for _ in 20..40 {
            run.step(1.0, &[0.0, 0.0]).unwrap();
        }
        assert!(run.is_finite(), "{spec}");
    }
}

/// What is measured before the norm is known cannot be clipped; all others do as if the gradient had come clipped.
#[test]
fn clipping_is_a_scaled_gradient_or_refused_by_name() {
    for spec in VARIANTS {
        let (mut clipped, mut scaled) = (begin(spec, &[1.0, -2.0]), begin(spec, &[1.0, -2.0]));
        let mut watched = Run::new(build(spec, 100), Watched::new(DenseF64::new(2)), &[1.0, -2.0]);
        watched.step(1.0, &[1.0, 1.0]).unwrap();
        let measures = !watched.session.space().measured.borrow().is_empty();
        assert_eq!(clipped.method().clips(), !measures, "{spec}");
        clipped.session.options.clip = Some(0.5);
        for t in 0..5 {
            let g = gradient(&clipped.x, t);
            let scale = if clipped.method().clips() {
                clipped.session.options.gradient_scale(vector::norm(&g))
            } else {
                1.0
            };
            clipped.step(1.0, &g).unwrap();
            scaled.step(1.0, &g.iter().map(|g| scale * g).collect::<Vec<_>>()).unwrap();
            assert_eq!(clipped.x, scaled.x, "{spec}");
        }
    }
}

#[test]
fn a_schedule_that_ends_at_zero_ends_the_movement() {
    for spec in ["prodigy:d0=0.01", "d-adapt-sgd:d0=0.01", "d-adapt-adam:d0=0.01"] {
        let mut run = begin(spec, &[1.0, -2.0]);
        for t in 0..10 {
            run.step(1.0, &gradient(&run.x, t)).unwrap();
        }
        run.session.options.rate = 0.0;
        let before = run.contents();
        assert_eq!(run.step(1.0, &gradient(&run.x, 10)).unwrap().rate, 0.0);
        assert_eq!(run.contents(), before, "{spec}");
    }
}

/// D-Adaptation takes `‖g_0‖` from the first gradient that is not 0; until then it stands.
#[test]
fn d_adaptation_begins_with_the_first_gradient() {
    let mut run = begin("d-adapt-sgd:d0=0.5", &[1.0, 1.0]);
    let before = run.contents();
    assert_eq!(run.step(1.0, &[0.0, 0.0]).unwrap().kind, StepKind::Stationary);
    assert_eq!(run.contents(), before);
    assert_eq!(run.step(1.0, &[3.0, -4.0]).unwrap().rate, 0.1);
}

/// Two gradients that cancel: `s` is 0 again, which the estimate cannot be divided by, and the run must go on.
#[test]
fn gradients_that_cancel_do_not_stop_the_run() {
    for spec in ["prodigy:beta3=0.5,d0=0.5", "d-adapt-sgd:d0=0.5", "d-adapt-adam:beta2=0.25,d0=0.5"] {
        let mut run = begin(spec, &[1.0]);
        run.session.options.weight_decay = 0.0;
        run.step(1.0, &[2.0]).unwrap();
        // With √β2 = β3 = 1/2, half of the first is left of it in s.
        let back = if spec.starts_with("d-adapt-sgd") { -2.0 } else { -1.0 };
        let before = run.x.clone();
        run.step(1.0, &[back]).unwrap();
        assert_eq!(run.session.sums()[NORM + 2], 0.0, "{spec}");
        assert_eq!(
            run.x == before,
            !spec.starts_with("d-adapt-sgd"),
            "{spec}: as the official code, where it does not fail"
        );
        assert_eq!(run.vector("s"), &[0.0], "{spec}");
        let before = run.x.clone();
        assert!(run.step(1.0, &[2.0]).unwrap().rate > 0.0, "{spec}");
        assert!(run.x[0].is_finite() && run.x != before, "{spec}");
    }
}

/// Whether `Δ` is kept or computed matters only in `eps`, which is 1e-8 beside a scale of 0.1.
#[test]
fn mechanic_with_and_without_the_sum_of_the_steps() {
    for base in ["adamw", "sgd-momentum"] {
        let spec = format!("mechanic:base={base},s_init=0.01");
        let mut computed = begin(&spec, &[1.0, -2.0]);
        let mut stored = begin(&format!("{spec},store_delta=yes"), &[1.0, -2.0]);
        for t in 0..30 {
            computed.step(1.0, &gradient(&computed.x, t)).unwrap();
            stored.step(1.0, &gradient(&stored.x, t)).unwrap();
        }
        let apart = vector::distance(&computed.x, &stored.x);
        assert!(apart > 0.0 && apart < 1e-4, "{base}: {apart:e}");
        assert!((computed.x[0] - 1.0).abs() > 0.1, "{base} has hardly moved: {:?}", computed.x);
    }
}

/// A gradient that always points away from the start: no step was worth it.
#[test]
fn a_stuck_estimate_is_named() {
    for (spec, largest, words) in [
        ("prodigy:d0=1e-5", 1e-5, ["d0 = 1e-5 after 100 steps", "d0=1e-3 or d_coef=2"]),
        ("d-adapt-sgd", 1e-6, ["d0 = 1e-6 after 100 steps", "d0=1e-4"]),
        ("d-adapt-adam", 1e-6, ["d0 = 1e-6 after 100 steps", "d0=1e-4"]),
        (
            "mechanic:base=sgd-momentum,momentum=0",
            1e-8,
            ["none of its bets has won after 100 steps", "s_init=1e-6"],
        ),
    ] {
        let mut run = begin(spec, &[1.0]);
        run.session.options.weight_decay = 0.0;
        let mut sign = 1.0;
        for t in 0..100 {
            assert_eq!(run.method().warning(), None, "{spec}, step {t}");
            // Down from 1, so that the next gradient is that of a hill whose top is at 1.
            run.step(1.0, &[sign]).unwrap();
            sign = if run.x[0] < 1.0 { -1.0 } else { 1.0 };
        }
        assert!(
            run.method().estimate().is_some_and(|value| value <= largest),
            "{spec}: {:?}",
            run.method().estimate()
        );
        let warning = run.method().warning().unwrap_or_else(|| panic!("{spec} says nothing"));
        assert!(words.iter().all(|word| warning.contains(word)), "{spec}: {warning}");
    }
}

/// On a slope without end the estimate has none either.
#[test]
fn endless_growth_is_named() {
    for spec in ["prodigy", "d-adapt-sgd", "d-adapt-adam"] {
        let mut run = begin(spec, &[1.0]);
        run.session.options.weight_decay = 0.0;
        let named = (0..100).find(|_| {
            run.step(1.0, &[1.0]).unwrap();
            run.method().warning().is_some()
        });
        let warning = run.method().warning().unwrap_or_else(|| panic!("{spec} says nothing"));
        assert!(
            warning.contains("grows without end") && warning.contains("growth_rate"),
            "{spec}: {warning}"
        );
        assert!(named.unwrap() < 60, "{spec}: {named:?}");
        let mut bowl = begin(spec, &[1.0]);
        for t in 0..200 {
            bowl.step(1.0, &gradient(&bowl.x, t)).unwrap();
            assert_eq!(bowl.method().warning(), None, "{spec}, step {t}");
        }
    }
}

#[test]
fn mistakes_in_specs_are_explained() {
    for (spec, words) in [
        ("prodigy:d0=1e-30,eps=1e-20", ["d0·eps = 1e-50", "at least 1.2e-38"]),
        ("d-adapt-adam:eps=1e-40", ["eps=1e-40", "at least 1.2e-38"]),
        ("schedule-free-sgd:momentum=0", ["momentum=0", "above 0"]),
        ("schedule-free-adamw:beta1=0", ["beta1=0", "above 0"]),
        ("mechanic:base_eps=1e-40", ["base_eps=1e-40", "at least 1.2e-38"]),
        ("mechanic:momentum=0.5", ["`momentum` belongs to base=sgd-momentum", "leave `momentum` out"]),
        ("mechanic:base=sgd-momentum,beta2=0.5", ["`beta2` belongs to base=adamw", "leave `beta2` out"]),
    ] {
        let error = spec.parse::<MethodSpec>().unwrap().build(&RunInfo::new(1)).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    }
}
