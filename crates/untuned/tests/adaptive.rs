//! The methods that find their rate themselves, and those without a schedule: their special cases, and their stalls and blow-ups in
//! words.

#![allow(clippy::unwrap_used)]

use untuned::optimizers::{Around, At, Keep, Method, Optimizer, OptimizerSpec, Plain};
use untuned::{Observation, Refusal, Setting, StepKind, vector};

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

#[derive(Clone, PartialEq, Debug)]
struct Run {
    method: Method,
    space: Plain,
    around: Around,
    x: Vec<f64>,
    kept: Vec<Vec<f64>>,
}

impl Run {
    fn new(spec: &str, x: &[f64]) -> Run {
        let method = spec.parse::<OptimizerSpec>().unwrap().build(&Setting::new(100)).unwrap();
        let space = Plain::new(x.len()).decaying(0..1);
        let x = x.to_vec();
        let kept = Keep::all(&space, &method.keeps(), &x).unwrap();
        let around = Around { weight_decay: 0.1, ..Around::default() };
        Run { method, space, around, x, kept }
    }

    fn sums(&mut self, gradient: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; 1 + self.method.measures()];
        let at = At {
            space: &self.space,
            around: &self.around,
            x: &mut self.x,
            gradient: &gradient.to_vec(),
            kept: &mut self.kept,
        };
        self.method.measure(&at, &mut sums, 0);
        sums
    }

    fn step(&mut self, t: u64, gradient: &[f64]) -> Result<f64, Refusal> {
        let sums = self.sums(gradient);
        let at = At {
            space: &self.space,
            around: &self.around,
            x: &mut self.x,
            gradient: &gradient.to_vec(),
            kept: &mut self.kept,
        };
        let seen = Observation::new(t, 1.0, vector::norm(gradient));
        self.method.step(&seen, &sums[1..], at).map(|step| step.size)
    }
}

/// A bowl, with a push that changes from step to step.
fn gradient(x: &[f64], t: u64) -> Vec<f64> {
    x.iter().zip(1..).map(|(x, i)| i as f64 * x + 0.1 * (((t * i) % 7) as f64 - 3.0)).collect()
}

#[test]
fn zero_gradients_move_nothing_and_do_not_stop_what_follows() {
    for spec in VARIANTS {
        let mut run = Run::new(spec, &[1.0, -2.0]);
        run.around.weight_decay = 0.0;
        for t in 0..3 {
            run.step(t, &[0.0, 0.0]).unwrap();
            assert_eq!(run.x, [1.0, -2.0], "{spec}");
        }
        for t in 3..20 {
            run.step(t, &gradient(&run.x, t)).unwrap();
        }
        assert!(run.x != [1.0, -2.0] && run.x.iter().all(|x| x.is_finite()), "{spec}: {:?}", run.x);
        for t in 20..40 {
            run.step(t, &[0.0, 0.0]).unwrap();
        }
        assert!(run.kept.iter().flatten().chain(&run.x).all(|x| x.is_finite()), "{spec}");
    }
}

/// What is measured before the norm is known cannot be clipped; all others do as if the gradient had come clipped.
#[test]
fn clipping_is_a_scaled_gradient_or_refused_by_name() {
    for spec in VARIANTS {
        let (mut clipped, mut scaled) = (Run::new(spec, &[1.0, -2.0]), Run::new(spec, &[1.0, -2.0]));
        assert_eq!(clipped.method.clips(), clipped.method.measures() == 0, "{spec}");
        clipped.around.clip = Some(0.5);
        for t in 0..5 {
            let g = gradient(&clipped.x, t);
            let scale =
                if clipped.method.clips() { clipped.around.gradient_scale(vector::norm(&g)) } else { 1.0 };
            clipped.step(t, &g).unwrap();
            scaled.step(t, &g.iter().map(|g| scale * g).collect::<Vec<_>>()).unwrap();
            assert_eq!(clipped.x, scaled.x, "{spec}");
        }
    }
}

#[test]
fn a_schedule_that_ends_at_zero_ends_the_movement() {
    for spec in ["prodigy:d0=0.01", "d-adapt-sgd:d0=0.01", "d-adapt-adam:d0=0.01"] {
        let mut run = Run::new(spec, &[1.0, -2.0]);
        for t in 0..10 {
            run.step(t, &gradient(&run.x, t)).unwrap();
        }
        run.around.rate = 0.0;
        let before = run.clone();
        assert_eq!(run.step(10, &gradient(&run.x, 10)), Ok(0.0));
        assert_eq!(run, before, "{spec}");
    }
}

/// D-Adaptation takes `‖g_0‖` from the first gradient that is not 0; until then it stands.
#[test]
fn d_adaptation_begins_with_the_first_gradient() {
    let mut run = Run::new("d-adapt-sgd:d0=0.5", &[1.0, 1.0]);
    let before = run.clone();
    let gradient = vec![0.0, 0.0];
    let sums = run.sums(&gradient);
    let at = At {
        space: &run.space,
        around: &run.around,
        x: &mut run.x,
        gradient: &gradient,
        kept: &mut run.kept,
    };
    let step = run.method.step(&Observation::new(0, 1.0, 0.0), &sums[1..], at).unwrap();
    assert_eq!(step.kind, StepKind::Stationary);
    assert_eq!(run, before);
    assert_eq!(run.step(1, &[3.0, -4.0]), Ok(0.1));
}

/// Two gradients that cancel: `s` is 0 again, which the estimate cannot be divided by, and the run must go on.
#[test]
fn gradients_that_cancel_do_not_stop_the_run() {
    for spec in ["prodigy:beta3=0.5,d0=0.5", "d-adapt-sgd:d0=0.5", "d-adapt-adam:beta2=0.25,d0=0.5"] {
        let mut run = Run::new(spec, &[1.0]);
        run.around.weight_decay = 0.0;
        run.step(0, &[2.0]).unwrap();
        // With √β2 = β3 = 1/2, half of the first is left of it in s.
        let back = if spec.starts_with("d-adapt-sgd") { -2.0 } else { -1.0 };
        assert_eq!(run.sums(&[back])[2], 0.0, "{spec}");
        let before = run.x.clone();
        run.step(1, &[back]).unwrap();
        assert_eq!(
            run.x == before,
            !spec.starts_with("d-adapt-sgd"),
            "{spec}: as the official code, where it does not fail"
        );
        let place = usize::from(!spec.starts_with("d-adapt-sgd")) * 2;
        assert_eq!(run.kept[place], [0.0], "{spec}");
        let before = run.x.clone();
        assert!(run.step(2, &[2.0]).unwrap() > 0.0, "{spec}");
        assert!(run.x[0].is_finite() && run.x != before, "{spec}");
    }
}

/// Whether `Δ` is kept or computed matters only in `eps`, which is 1e-8 beside a scale of 0.1.
#[test]
fn mechanic_with_and_without_the_sum_of_the_steps() {
    for base in ["adamw", "sgd-momentum"] {
        let spec = format!("mechanic:base={base},s_init=0.01");
        let mut computed = Run::new(&spec, &[1.0, -2.0]);
        let mut stored = Run::new(&format!("{spec},store_delta=yes"), &[1.0, -2.0]);
        for t in 0..30 {
            computed.step(t, &gradient(&computed.x, t)).unwrap();
            stored.step(t, &gradient(&stored.x, t)).unwrap();
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
        let mut run = Run::new(spec, &[1.0]);
        run.around.weight_decay = 0.0;
        let mut sign = 1.0;
        for t in 0..100 {
            assert_eq!(run.method.concern(), None, "{spec}, step {t}");
            // Down from 1, so that the next gradient is that of a hill whose top is at 1.
            run.step(t, &[sign]).unwrap();
            sign = if run.x[0] < 1.0 { -1.0 } else { 1.0 };
        }
        assert!(
            run.method.estimate().is_some_and(|value| value <= largest),
            "{spec}: {:?}",
            run.method.estimate()
        );
        let concern = run.method.concern().unwrap_or_else(|| panic!("{spec} says nothing"));
        assert!(words.iter().all(|word| concern.contains(word)), "{spec}: {concern}");
    }
}

/// On a slope without end the estimate has none either.
#[test]
fn endless_growth_is_named() {
    for spec in ["prodigy", "d-adapt-sgd", "d-adapt-adam"] {
        let mut run = Run::new(spec, &[1.0]);
        run.around.weight_decay = 0.0;
        let named = (0..100).find(|&t| {
            run.step(t, &[1.0]).unwrap();
            run.method.concern().is_some()
        });
        let concern = run.method.concern().unwrap_or_else(|| panic!("{spec} says nothing"));
        assert!(
            concern.contains("grows without end") && concern.contains("growth_rate"),
            "{spec}: {concern}"
        );
        assert!(named.unwrap() < 60, "{spec}: {named:?}");
        let mut bowl = Run::new(spec, &[1.0]);
        for t in 0..200 {
            bowl.step(t, &gradient(&bowl.x, t)).unwrap();
            assert_eq!(bowl.method.concern(), None, "{spec}, step {t}");
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
        let error = spec.parse::<OptimizerSpec>().unwrap().build(&Setting::new(1)).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    }
}
