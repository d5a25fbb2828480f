//! Optimizers with vector state: by hand, and what all of them promise. Against the official implementations: `official`.

#![allow(clippy::unwrap_used)]

mod support;

use support::{NORM, Run, Watched, build, with_required};
use untuned::optimizers::{AdamW, OPTIMIZERS, PolyakAdam};
use untuned::rules::RULES;
use untuned::space::TensorRange;
use untuned::spec::{DefaultValue, Kind};
use untuned::{
    DenseF64, Method, MethodSpec, Optimizer, Refusal, Report, RunInfo, Session, SpecError, StepKind,
    StepOptions, catalog,
};

/// A run of at most 1000 steps in which the first coordinates decay.
fn begin(spec: &str, start: &[f64], decayed: usize) -> Run {
    Run::new(build(spec, 1000), DenseF64::new(start.len()).decaying(0..decayed), start)
}

/// Options that matter together, or are numbers.
const COMBINED: &[&str] = &[
    "prodigy:beta1=0,d0=0.01,growth_rate=1.1",
    "d-adapt-sgd:d0=0.01,momentum=0.9,growth_rate=1.1",
    "d-adapt-adam:d0=0.01,decouple=yes,bias_correction=yes",
    "schedule-free-sgd:lr=0.1,warmup_steps=5,r=1.5,weight_lr_power=0.5,late_warmup=yes",
    "schedule-free-adamw:lr=0.1,bias_correction=rate,decay_at=z",
    "mechanic:base=sgd-momentum,store_delta=yes",
    "mechanic:base=sgd-momentum,momentum=0,form=optax,betas=3",
];

/// Every optimizer with its defaults, and once with each word of each of its options, where the word fits by itself.
fn specs() -> Vec<String> {
    let mut specs: Vec<_> = COMBINED.iter().map(|spec| spec.to_string()).collect();
    for info in OPTIMIZERS {
        specs.push(info.name.to_string());
        for parameter in info.parameters {
            let Kind::Word(words) = parameter.kind else { continue };
            for word in words.iter().filter(|word| parameter.default != DefaultValue::Word(word)) {
                let spec = format!("{}:{}={word}", info.name, parameter.name);
                match spec.parse::<MethodSpec>().unwrap().build(&RunInfo::new(1000)) {
                    Ok(_) => specs.push(spec),
                    Err(SpecError::Unfit { .. }) => {}
                    Err(other) => panic!("{spec}: {other}"),
                }
            }
        }
    }
    assert!(specs.len() >= 2 * OPTIMIZERS.len(), "{specs:?}");
    specs
}

/// Every scalar rule, and the options that keep other vectors.
fn rules() -> impl Iterator<Item = String> {
    let options = [
        "adaptive-polyak:variant=epochs",
        "adaptive-polyak:variant=epochs,restart=best",
        "decsps:grad_shift=0.1",
    ];
    RULES.iter().map(|info| with_required(info.name)).chain(options.map(String::from))
}

/// `Σ (i/2)·x_i²`, pushed about from step to step, and 9.
fn problem(x: &[f64], t: u64) -> (f64, Vec<f64>) {
    let push = |i: u64| 0.5 * (((t * i) % 5) as f64 - 2.0);
    let loss = x.iter().zip(1..).map(|(x, i)| 0.5 * i as f64 * x * x + push(i) * x).sum::<f64>() + 9.0;
    (loss, x.iter().zip(1..).map(|(x, i)| i as f64 * x + push(i)).collect())
}

fn step_on_problem(run: &mut Run, t: u64) -> Result<Report, Refusal> {
    let (loss, gradient) = problem(&run.x, t);
    run.step(loss, &gradient)
}

const START: [f64; 5] = [1.0, -2.0, 0.5, 3.0, -1.5];

/// A run with decay in the first three coordinates, some steps in.
fn after(spec: &str, steps: u64) -> Run {
    let mut run = begin(spec, &START, 3);
    run.session.options.weight_decay = 0.1;
    (0..steps).for_each(|t| assert!(step_on_problem(&mut run, t).is_ok()));
    run
}

/// The same in a space that can be told to hand out wrong numbers.
fn watched_after(spec: &str, steps: u64) -> Run<Method, Watched> {
    let space = Watched::new(DenseF64::new(START.len()).decaying(0..3));
    let mut run = Run::new(build(spec, 1000), space, &START);
    run.session.options.weight_decay = 0.1;
    for t in 0..steps {
        let (loss, gradient) = problem(&run.x, t);
        run.step(loss, &gradient).unwrap();
    }
    run
}

/// With halves for both weights every number below is short.
#[test]
fn two_steps_by_hand() {
    let mut run = begin("adamw:lr=0.5,beta1=0.5,beta2=0.5,eps=1", &[1.0, 1.0], 1);
    run.session.options.weight_decay = 0.5;
    assert_eq!(run.step(1.0, &[3.0, -1.0]).unwrap().rate, 0.5);
    // m = 3/2 and −1/2, v = 9/2 and 1/2; corrected they are g and g²: 0.5·3/(3 + 1), and 0.5·1/(1 + 1).
    assert_eq!([run.vector("m"), run.vector("v")], [&[1.5, -0.5], &[4.5, 0.5]]);
    assert!((run.x[0] - (0.75 - 0.375)).abs() < 1e-15 && (run.x[1] - 1.25).abs() < 1e-15, "{:?}", run.x);

    run.session.options.rate = 0.5;
    assert_eq!(run.step(1.0, &[0.0, 1.0]).unwrap().rate, 0.25);
    // m = 3/4 and 1/4, over 3/4: 1 and 1/3. v = 9/4 and 3/4, over 3/4: 3 and 1. The decay is 0.25·0.5.
    assert_eq!([run.vector("m"), run.vector("v")], [&[0.75, 0.25], &[2.25, 0.75]]);
    let wanted = [0.375 * 0.875 - 0.25 / (3f64.sqrt() + 1.0), 1.25 - 0.25 / 3.0 / 2.0];
    assert!(run.x.iter().zip(wanted).all(|(x, w)| (x - w).abs() < 1e-15), "{:?} {wanted:?}", run.x);
}

#[test]
fn clipping_scales_the_whole_gradient() {
    let options = StepOptions { clip: Some(2.0), ..StepOptions::default() };
    assert_eq!(options.gradient_scale(1.0), 1.0);
    assert_eq!(options.gradient_scale(8.0), 2.0 / (8.0 + 1e-6));
    assert_eq!(StepOptions::default().gradient_scale(1e300), 1.0);
    let adamw = AdamW::default().build(&RunInfo::new(1)).unwrap();
    let mut run = Run::new(adamw, DenseF64::new(2), &[0.0, 0.0]);
    run.session.options = options;
    run.step(1.0, &[6.0, 8.0]).unwrap();
    let scale = 2.0 / (10.0 + 1e-6);
    assert!((run.vector("m")[1] - 0.1 * 8.0 * scale).abs() < 1e-15, "{:?}", run.vector("m"));
}

#[test]
fn a_refused_step_changes_nothing() {
    for spec in specs().into_iter().chain(rules()) {
        for steps in [0, 3] {
            let mut run = watched_after(&spec, steps);
            let before = run.state();
            let mut refuses = |what: &str, loss: f64, norm: Option<f64>, gradient: &[f64]| {
                run.session.space().wrong_norm.set(norm);
                let refused = run.step(loss, gradient);
                run.session.space().wrong_norm.set(None);
                assert!(refused.is_err(), "{spec}, {what}: {refused:?}");
                assert_eq!(run.state(), before, "{spec}, {what}");
            };
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                refuses("the loss", bad, None, &[1.0, 0.0, 0.0, 0.0, 0.0]);
                refuses("the norm", 1.0, Some(bad), &[1.0, 0.0, 0.0, 0.0, 0.0]);
                refuses("the gradient", 1.0, None, &[bad, 0.0, 0.0, 0.0, 0.0]);
            }
            refuses("a norm below 0", 1.0, Some(-1.0), &[1.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }
}

#[test]
fn an_option_that_cannot_be_used_is_refused_by_name() {
    let default = StepOptions::default();
    let bad = [-1.0, f64::NAN, f64::INFINITY];
    let rates = bad.map(|rate| ("rate", StepOptions { rate, ..default }));
    let decays = bad.map(|weight_decay| ("weight_decay", StepOptions { weight_decay, ..default }));
    let clips = [0.0, -1.0, f64::NAN].map(|clip| ("clip", StepOptions { clip: Some(clip), ..default }));
    for spec in specs().into_iter().chain(rules()) {
        for steps in [0, 3] {
            let mut run = after(&spec, steps);
            let before = run.state();
            for (name, options) in [rates, decays, clips].concat() {
                run.session.options = options;
                let refused = step_on_problem(&mut run, steps).unwrap_err();
                assert!(
                    matches!(refused, Refusal::Option { what, .. } if what == name),
                    "{spec}: {refused:?}"
                );
                assert!(refused.to_string().contains(&format!("the option `{name}` is ")), "{refused}");
                assert_eq!(run.state(), before, "{spec}, {options:?}");
            }
        }
    }
}

/// Where a method reads the gradient before its step, nobody else needs to do so for its norm.
#[test]
fn the_norm_comes_with_a_methods_own_pass_over_the_gradient() {
    let reads = ["momo", "prodigy", "d-adapt", "mechanic"];
    for spec in specs() {
        for steps in [0, 3] {
            let mut run = watched_after(&spec, steps);
            run.session.space().norm_passes.set(0);
            run.session.space().measured.borrow_mut().clear();
            run.step(1.0, &[1e-30, 3.0, 0.0, -4.0, 2.0]).unwrap();
            let space = run.session.space();
            assert_eq!(space.squared_norm.get(), 29.0, "{spec}");
            let found = space.measured.borrow().contains(&NORM);
            assert_eq!(space.norm_passes.get(), u64::from(!found), "{spec}");
            let always = reads.iter().any(|name| spec.starts_with(name));
            // In its first steps each of them needs its sums.
            assert_eq!(found, always || spec.starts_with("polyak-adam"), "{spec}");
        }
    }
}

#[test]
fn a_sum_that_is_no_number_is_refused() {
    let mut measured = 0;
    for spec in specs() {
        let mut run = watched_after(&spec, 3);
        let before = run.state();
        let (loss, gradient) = problem(&run.x, 3);
        // What the step measures, from one that is made elsewhere.
        let mut other = run.clone();
        other.session.space().measured.borrow_mut().clear();
        other.step(loss, &gradient).unwrap();
        let own: Vec<usize> = other.session.space().measured.take();
        for which in own.into_iter().filter(|index| *index != NORM) {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                run.session.space().wrong_sum.set(Some((which, bad)));
                let refused = run.step(loss, &gradient);
                assert!(refused.is_err(), "{spec}, sum {which} is {bad}: {refused:?}");
                assert_eq!(run.state(), before, "{spec}, sum {which} is {bad}");
                measured += 1;
            }
        }
    }
    assert!(measured > 0);
}

/// Numbers of any size: the step is refused and changes nothing, or all is finite after it and after the next ones.
#[test]
fn a_huge_gradient_is_refused_or_handled() {
    for spec in specs() {
        for size in [1e100, 1e150, 1e153, 1.3e154, 1e160, 1e200, 1e307, f64::MAX] {
            for steps in [0, 3] {
                let mut run = after(&spec, steps);
                for t in steps..steps + 3 {
                    let before = run.state();
                    let gradient = [0.0, size, 0.0, -1.0, 0.0];
                    if run.step(1.0, &gradient).is_err() {
                        assert_eq!(run.state(), before, "{spec}, {size:e}");
                    }
                    assert!(run.is_finite(), "{spec}, {size:e} at {t}: {run:?}");
                }
                // What comes after it is refused, or finite as well.
                for t in steps + 3..steps + 6 {
                    let _ = run.step(1.0, &[1.0; 5]);
                    assert!(run.is_finite(), "{spec}, {size:e} before {t}: {run:?}");
                }
            }
        }
    }
}

#[test]
fn tiny_gradients_are_fine() {
    for spec in specs() {
        // The rate of d-adapt-sgd is over the norm of the first gradient, without the decay: beside a tiny one any decay is huge, and
        // 1e-6 over the tiniest is no number.
        let over_norm = spec.starts_with("d-adapt-sgd");
        for size in [1e-30, 1e-150, 1e-200, 1e-310, 5e-324] {
            let mut run = after(&spec, 0);
            if over_norm {
                run.session.options.weight_decay = 0.0;
            }
            if over_norm && size == 5e-324 {
                let refused = run.step(1.0, &[0.0, size, 0.0, -size, 0.0]);
                assert!(matches!(refused, Err(Refusal::Overflow { .. })), "{spec}: {refused:?}");
                continue;
            }
            for t in 0..5 {
                run.step(1.0, &[0.0, size, 0.0, -size, 0.0]).unwrap();
                assert!(run.is_finite(), "{spec}, {size:e} at {t}: {run:?}");
            }
        }
    }
}

/// From the first step on: the vectors begin with 0, and 0/0 is near. What does not decay stays, up to rounding where the point is
/// put together from others.
#[test]
fn zero_gradients_move_nothing_but_what_decays() {
    for spec in specs() {
        for decay in [0.0, 0.5] {
            let mut run = begin(&spec, &[1.0, -1.0, 0.3], 1);
            run.session.options.weight_decay = decay;
            let mut last = 1.0;
            for t in 0..20 {
                let rate = run.step(1.0, &[0.0; 3]).unwrap().rate;
                assert!(rate.is_finite() && rate >= 0.0 && run.is_finite(), "{spec}: {rate} and {run:?}");
                let moved = [run.x[1] + 1.0, run.x[2] - 0.3].map(f64::abs);
                assert!(moved.iter().all(|moved| *moved < 1e-14), "{spec} at {t}: {:?}", run.x);
                if decay == 0.0 {
                    assert!((run.x[0] - 1.0).abs() < 1e-14, "{spec} at {t}: {:?}", run.x);
                }
                // Momentum, and a rate that is found from a decay that is part of the gradient, may swing about 0.
                let coupled = spec.starts_with("d-adapt-adam") && !spec.contains("decouple=yes");
                let swings = coupled || spec.contains("decouple=no") || spec.starts_with("schedule-free");
                let shrinks = run.x[0] > 0.0 && run.x[0] <= last + 1e-14;
                assert!(shrinks || (swings && run.x[0].abs() <= 1.0), "{spec} at {t}: {:?}", run.x);
                last = run.x[0];
            }
        }
    }
}

/// The gaps of an arena and frozen parameters: a run with coordinates of zeros is the run without them.
#[test]
fn a_coordinate_of_zeros_stays_zero_and_adds_nothing() {
    for spec in specs() {
        let mut dense = after(&spec, 0);
        let (mut x, mut decayed) = (vec![0.0], 3);
        START.iter().for_each(|&start| x.extend([start, 0.0]));
        decayed = 2 * decayed + 1;
        let mut sparse = begin(&spec, &x, decayed);
        sparse.session.options = dense.session.options;
        for t in 0..20 {
            let (loss, gradient) = problem(&dense.x, t);
            let mut spread = vec![0.0];
            gradient.iter().for_each(|&g| spread.extend([g, 0.0]));
            let (one, two) = (dense.step(loss, &gradient), sparse.step(loss, &spread));
            assert_eq!(one, two, "{spec} at {t}");
            assert_eq!(dense.session.save(), sparse.session.save(), "{spec} at {t}");
            assert_eq!(dense.session.sums(), sparse.session.sums(), "{spec} at {t}");
            let kept = dense.session.vectors().zip(sparse.session.vectors()).map(|((_, a), (_, b))| (a, b));
            for (dense, sparse) in std::iter::once((&dense.x, &sparse.x)).chain(kept) {
                assert!(sparse.iter().step_by(2).all(|&zero| zero == 0.0), "{spec} at {t}: {sparse:?}");
                assert!(sparse.iter().skip(1).step_by(2).eq(dense), "{spec} at {t}: {sparse:?} {dense:?}");
            }
        }
    }
}

#[test]
fn what_is_saved_goes_on_bit_for_bit() {
    for spec in specs().into_iter().chain(rules()) {
        for (steps, more) in [(0, 20), (1, 20), (7, 20), (130, 130)] {
            let mut whole = after(&spec, steps);
            let mut parts = whole.resumed();
            assert_eq!(parts.state(), whole.state(), "{spec}");
            assert_eq!(parts.method().estimate(), whole.method().estimate(), "{spec}");
            assert_eq!(parts.method().warning(), whole.method().warning(), "{spec}");
            for t in steps..steps + more {
                assert_eq!(step_on_problem(&mut whole, t), step_on_problem(&mut parts, t), "{spec} at {t}");
                assert_eq!(parts.state(), whole.state(), "{spec} at {t}");
            }
            assert_ne!(whole.x, START, "{spec} goes somewhere");
        }
    }
}

/// A first step that is refused is no start: the next one may be from another point.
#[test]
fn the_first_step_that_is_made_is_the_start() {
    for (spec, name) in [("polyak-adam", "x0"), ("prodigy", "x0"), ("schedule-free-sgd", "z"), ("dog", "x0")]
    {
        let mut session = Session::new(build(spec, 10), DenseF64::new(2)).unwrap();
        let mut elsewhere = vec![7.0, 7.0];
        assert!(session.advance(f64::NAN, &mut elsewhere, &vec![1.0, 1.0]).is_err());
        assert_eq!((session.vectors().count(), session.steps(), session.x0_norm()), (0, 0, None), "{spec}");
        let mut x = vec![3.0, 4.0];
        let report = session.advance(2.0, &mut x, &vec![0.0, 0.0]).unwrap();
        assert_eq!((report.step, session.steps()), (0, 1), "{spec}");
        let start = session.vectors().find(|(other, _)| *other == name).unwrap().1;
        assert_eq!(start, &[3.0, 4.0], "{spec}");
        assert_eq!(session.x0_norm(), (spec == "dog").then_some(5.0), "{spec}");
    }
}

/// The caller's numbers stand before those of the method, and the loss may be made of them; the steps are the same.
#[test]
fn a_loss_from_reserved_sums_makes_the_same_steps() {
    for spec in specs().into_iter().chain(rules()) {
        let mut plain = after(&spec, 0);
        let space = DenseF64::new(START.len()).decaying(0..3);
        let mut session = Session::reserving(build(&spec, 1000), space, 6).unwrap();
        session.options.weight_decay = 0.1;
        let mut x = START.to_vec();
        for t in 0..20 {
            let (loss, gradient) = problem(&x, t);
            session.sums()[..6].copy_from_slice(&[1.0, 1.0, 1.0, 1.0, 1.0, loss]);
            let reserved = session.advance_reading(&mut x, &gradient, |sums| {
                assert_eq!(sums[..5], [1.0; 5], "{spec} at {t}: nobody else writes there");
                Some(sums[5])
            });
            assert_eq!(step_on_problem(&mut plain, t).unwrap(), reserved.unwrap(), "{spec} at {t}");
            assert_eq!(plain.x, x, "{spec} at {t}");
        }
        let mut counts = Vec::new();
        let _ = session.advance_reading(&mut x, &[0.0; 5].to_vec(), |sums| {
            counts.push(sums.len());
            Some(1.0)
        });
        assert_eq!(counts, [6], "{spec}: it sees its own numbers, once");
    }
}

/// Another rate of the run is another step, and decay another point: nothing that a run puts around an optimizer is lost.
#[test]
fn what_is_around_matters() {
    for spec in specs() {
        let run = |change: fn(&mut StepOptions)| {
            let mut run = after(&spec, 1);
            change(&mut run.session.options);
            step_on_problem(&mut run, 1).unwrap();
            run
        };
        let plain = run(|_| {});
        assert_ne!(run(|options| options.rate = 1e-3).x, plain.x, "{spec}: the rate");
        let heavy = run(|options| options.weight_decay = 0.9);
        assert_ne!(heavy.x[..3], plain.x[..3], "{spec}: the decay");
        let clipped = run(|options| options.clip = Some(1e-3));
        assert_eq!(clipped.state() != plain.state(), plain.method().clips(), "{spec}: the clipping");
    }
}

#[test]
fn momo_says_when_its_bound_is_above_the_loss() {
    for name in ["momo", "momo-adam"] {
        let mut run = begin(&format!("{name}:lower_bound=8.5"), &START, 0);
        let gradient = [0.0, 1.0, 0.0, 0.0, 0.0];
        run.step(8.6, &gradient).unwrap();
        assert_eq!(run.method().warning(), None);
        for loss in [8.25, 7.75, 8.0] {
            run.step(loss, &gradient).unwrap();
        }
        let warning = run.method().warning().unwrap();
        assert!(warning.contains("7.75") && warning.contains("lower_bound=8.5"), "{warning}");
    }
}

/// Below the bound from the first step on: no step, and it is said so.
#[test]
fn momo_stands_still_below_its_bound() {
    for name in ["momo", "momo-adam"] {
        let mut run = begin(&format!("{name}:lower_bound=2"), &[3.0], 0);
        let before = run.x.clone();
        assert_eq!(run.step(1.0, &[1.0]).unwrap().rate, 0.0, "{name}");
        assert_eq!(run.x, before);
        // Above it, but without a gradient there is no step either.
        let mut run = begin(name, &[3.0], 0);
        assert_eq!(run.step(1.0, &[0.0]).unwrap().rate, 0.0, "{name}");
    }
}

#[test]
fn what_is_written_names_the_method_and_reads_back() {
    for info in catalog() {
        let spec: MethodSpec = with_required(info.name).parse().unwrap();
        let method = spec.build(&RunInfo::new(1000)).unwrap();
        let json = serde_json::to_string(&method).unwrap();
        let tag = if spec.is_rule() { "\"rule\"" } else { "{\"method\"" };
        assert!(json.contains(&format!("{tag}:\"{}\"", info.name)), "{json}");
        assert_eq!(serde_json::from_str::<Method>(&json).unwrap(), method);
        if spec.is_rule() {
            let alone = serde_json::to_string(&spec.build_rule(&RunInfo::new(1000)).unwrap()).unwrap();
            assert_eq!(
                json,
                alone.replacen('{', "{\"method\":\"scalar-rule\",", 1),
                "a rule is written as it is alone"
            );
        }
    }
}

#[test]
fn specs_of_both_tables_and_their_mistakes() {
    let spec: MethodSpec = " adamw : beta2 = .99 , lr = 1e-3 ".parse().unwrap();
    assert_eq!((spec.to_string().as_str(), spec.is_rule()), ("adamw:lr=0.001,beta2=0.99", false));
    assert!("sgd:lr=1".parse::<MethodSpec>().unwrap().is_rule());
    let Method::AdamW(adamw) = build("adamw", 1) else { panic!("another optimizer") };
    assert_eq!(adamw.parameters(), &AdamW::default());
    assert_eq!((adamw.lr, adamw.beta1, adamw.beta2, adamw.eps), (0.001, 0.9, 0.999, 1e-8));
    for (text, words) in [
        ("adamv", &["did you mean `adamw`?", "inexact-polyak", "dowg, sgd-momentum, adagrad, adamw"][..]),
        ("adsps", &["did you mean `adasps`?"]),
        ("adamw:beta3=1", &["`adamw` has no parameter `beta3`", "lr, beta1, beta2, eps"]),
        ("adamw:beta1=1", &["beta1=1 does not work", "from 0 on, below 1"]),
        ("adamw:beta2=-0.1", &["beta2=-0.1", "from 0 on, below 1"]),
        ("adamw:beta2=nan", &["beta2=nan", "below 1"]),
        ("adamw:lr=0", &["lr=0", "above 0"]),
        ("adamw:eps=0", &["eps=0", "above 0"]),
        ("sgd-momentum:nesterov=true", &["nesterov=true", "one of no, yes"]),
        ("momo-adam:beta1=1", &["beta1=1", "below 1"]),
    ] {
        let error = text.parse::<MethodSpec>().unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    }
    // That of Mechanic is beside a number, not beside those of a vector.
    let with_eps = OPTIMIZERS.iter().filter(|info| info.has("eps") && info.name != "mechanic");
    for name in with_eps.map(|info| info.name) {
        let small: MethodSpec = format!("{name}:eps=1e-40").parse().unwrap();
        let error = small.build(&RunInfo::new(1)).unwrap_err().to_string();
        assert!(error.contains("32-bit floats") && error.contains("at least 1.2e-38"), "{name}: {error}");
    }
    for (text, words) in [
        ("sgd-momentum:nesterov=yes,momentum=0", "momentum above 0"),
        ("sgd-momentum:nesterov=yes,dampening=0.1", "no dampening"),
        ("sgd-momentum:momentum=0,dampening=0.5", "`dampening` belongs to a momentum above 0"),
        ("momo-adam:divide=no,decay_first=yes", "divide=yes"),
    ] {
        let error = text.parse::<MethodSpec>().unwrap().build(&RunInfo::new(1)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    for text in ["adamw", "adamw:lr=1"] {
        let error = text.parse::<MethodSpec>().unwrap().build_rule(&RunInfo::new(1)).unwrap_err();
        assert!(matches!(error, SpecError::Unfit { owner: "adamw", .. }), "{error:?}");
        assert!(error.to_string().contains("not a scalar rule; use a rule such as"), "{error}");
    }
}

/// With f − l = 14 and Σg²/D = 7, then 7 and 7: η is ½·2, then ½·(0.99·0.14 + 0.07)/(0.99·0.07 + 0.07), where the batch's own step is 1.
#[test]
fn polyak_adam_tells_what_part_of_polyaks_step_it_makes() {
    let mut run = begin("polyak-adam:eps=1e-30,beta2=0", &[1.0, 1.0], 0);
    assert_eq!(run.method().estimate(), None);
    for (loss, part) in [(14.0, 0.5), (7.0, 0.5 * (0.99 * 0.14 + 0.07) / (0.99 * 0.07 + 0.07))] {
        run.step(loss, &[3.0, -4.0]).unwrap();
        assert!((run.method().estimate().unwrap() - part).abs() < 1e-14, "{:?}", run.method().estimate());
    }
}

/// With D = |g| = (3, 4) and the scales 4 and 1, Σs·g²/D is 4·3 + 4 = 16. Polyak's step is ½·16/16 first, and moves x by (−½·4, ½); then
/// R² = 2²·3/4 + (½)²·4 = 4 and G = 32, and DoG's step of 1.5·2/√32 is longer than Polyak's of ½·0.32/16. What decays does so by
/// 0.1·η·s.
#[test]
fn polyak_adam_makes_dogs_step_where_it_is_longer_and_each_tensors_in_its_scale() {
    let tensors = vec![
        TensorRange { range: 0..1, decays: true, scale: 4.0 },
        TensorRange { range: 1..2, decays: false, scale: 1.0 },
    ];
    let method = build("polyak-adam:eps=1e-30,beta1=0,beta2=0,average=0,decay=none", 1000);
    let mut run = Run::new(method, DenseF64 { dimension: 2, tensors }, &[1.0, 1.0]);
    let dog = 3.0 / 32f64.sqrt();
    let points = [[-1.0, 1.5], [-(1.0 - 0.4 * dog) - 4.0 * dog, 1.5 + dog]];
    for (t, (loss, size, point)) in [(16.0, 0.5, points[0]), (0.32, dog, points[1])].into_iter().enumerate() {
        run.session.options.weight_decay = if t == 1 { 0.1 } else { 0.0 };
        let rate = run.step(loss, &[3.0, -4.0]).unwrap().rate;
        assert!((rate - size).abs() < 1e-15, "{rate} and not {size} at {t}");
        assert!(run.x.iter().zip(point).all(|(x, want)| (x - want).abs() < 1e-15), "{:?} at {t}", run.x);
    }
}

/// With D = 1 (beta2 = 0 and |g| = 1) Σg²/D is 2 until the means are full, after a hundred steps; then g is three times as long, which
/// nobody sees in the hundred and first to seventh step. The eighth brings 6, which counts for all eight in the mean and in G.
#[test]
fn polyak_adam_measures_in_one_of_eight_steps_once_its_means_are_full() {
    let mut run = begin("polyak-adam:eps=1e-30,beta2=0,beta1=0,decay=none,dog=0", &[1.0, 1.0], 0);
    let mut step = |g: f64| run.step(8.0, &[g, -g]).unwrap().rate;
    (0..100).for_each(|t| assert!((step(1.0) - 0.5 * 8.0 / 2.0).abs() < 1e-13, "at {t}"));
    (100..107).for_each(|t| assert!((step(3.0) - 0.5 * 8.0 / 2.0).abs() < 1e-13, "at {t}"));
    let (full, kept) = (1.0 - 0.99f64.powi(108), 0.99f64.powi(8));
    let mean = (kept * (1.0 - 0.99f64.powi(100)) * 2.0 + (1.0 - kept) * 6.0) / full;
    assert!((step(3.0) - 0.5 * 8.0 / mean).abs() < 1e-13);
    assert!((step(1.0) - 0.5 * 8.0 / mean).abs() < 1e-13);

    // Each step goes 1.5·R/√G far in each coordinate, and R is as old as the last time that the run was a sixteenth longer.
    let mut run = begin("polyak-adam:eps=1e-30,beta2=0,beta1=0,decay=none,factor=1e-9", &[1.0, 1.0], 0);
    let later = [50, 53, 56, 59, 62, 66, 70, 74, 78, 83, 88, 93, 99, 107, 115, 123, 131, 139, 155];
    let (mut far, mut total) = (0.0f64, 0.0);
    for t in 0..160 {
        let moved: f64 = run.x.iter().map(|x| (x - 1.0) * (x - 1.0)).sum();
        if t < 32 || t < 48 && t % 2 == 1 || later.contains(&t) {
            far = far.max(moved.sqrt());
        }
        total += if t < 100 { 2.0 } else { f64::from(u8::from(t % 8 == 3)) * 16.0 };
        let size = run.step(8.0, &[1.0, -1.0]).unwrap().rate;
        let wanted = (1e-9 * 8.0 / 2.0f64).max(1.5 * far / f64::sqrt(total));
        assert!((size / wanted - 1.0).abs() < 1e-12, "{size} and not {wanted} at {t}");
    }
}

#[test]
fn polyak_adam_says_when_the_loss_rises() {
    let mut run = begin("polyak-adam:lower_bound=1", &[1.0, 1.0], 0);
    for t in 0..100 {
        assert_eq!(run.method().warning(), None);
        run.step(if t == 0 { 4.0 } else { 5.0 }, &[3.0, -4.0]).unwrap();
    }
    let warning = run.method().warning().unwrap();
    assert!(
        warning.contains("first was 4.0000")
            && warning.contains("Try factor=0.25,dog=0.75, or a lower_bound")
            && warning.contains("(now 1)"),
        "{warning}"
    );
    for _ in 100..300 {
        run.step(3.0, &[3.0, -4.0]).unwrap();
    }
    assert_eq!(run.method().warning(), None);
    run.step(1e157, &[3.0, -4.0]).unwrap();
    let warning = run.method().warning().unwrap();
    assert!(
        warning.contains("the mean loss is 1.0") && warning.contains("e155 after 301 steps"),
        "{warning}"
    );
}

/// Methods that look at the loss refuse a step without it, by its name; the others make it. Nothing stands in for it.
#[test]
fn a_step_without_a_loss_is_refused_where_it_is_needed() {
    let gradient = [1.0, -1.0, 0.5, 0.25, -2.0];
    let (mut refused, mut made) = (0, 0);
    for spec in specs().into_iter().chain(rules()) {
        for steps in [0, 3] {
            let mut run = after(&spec, steps);
            let before = run.state();
            let name = spec.split(':').next().unwrap();
            let rule_without = ["gd", "clipped-gd", "dog", "dowg"].contains(&name);
            let is_rule = matches!(run.method(), Method::Rule(_));
            let needs =
                if is_rule { !rule_without } else { ["momo", "momo-adam", "polyak-adam"].contains(&name) };
            match run.step_with(None, &gradient) {
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Missing { step: steps, what: "loss" }, "{spec}");
                    assert_eq!(run.state(), before, "{spec}");
                    assert!(needs, "{spec} refuses");
                    refused += 1;
                }
                Ok(report) => {
                    assert_eq!((report.loss, needs), (None, false), "{spec}");
                    made += 1;
                }
            }
        }
    }
    assert!(refused > 10 && made > 10, "{refused} and {made}");
}

/// On networks polyak-adam and adamw come with a decay, the others with none; the text and the method agree.
#[test]
fn the_decay_that_belongs_to_a_method() {
    for info in catalog() {
        let spec: MethodSpec = with_required(info.name).parse().unwrap();
        let wanted = match info.name {
            "polyak-adam" => 0.1,
            "adamw" => 0.01,
            _ => 0.0,
        };
        let method = spec.build(&RunInfo::new(1)).unwrap();
        assert_eq!((spec.weight_decay(), method.default_weight_decay()), (wanted, wanted), "{}", info.name);
    }
    assert_eq!(PolyakAdam::default().build(&RunInfo::new(1)).unwrap().default_weight_decay(), 0.1);
}

/// As [`polyak_adam_tells_what_part_of_polyaks_step_it_makes`], with η = 1 at first: what decays is multiplied by 1 − η·λ·s, and by 0
/// where that is negative.
#[test]
fn polyak_adam_decays_to_zero_and_not_beyond() {
    for (decay, left) in [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0), (3.0, 0.0)] {
        let mut run = begin("polyak-adam:eps=1e-30", &[5.0, 1.0], 1);
        run.session.options.weight_decay = decay;
        run.step(14.0, &[3.0, -4.0]).unwrap();
        assert!((run.x[0] - (5.0 * left - 0.1)).abs() < 1e-14, "{decay}: {:?}", run.x);
        assert!((run.x[1] - 1.1).abs() < 1e-14, "{decay}: {:?}", run.x);
    }
}

/// A run on a slope that never ends: the distance grows from step to step, and DoG's step with it, so that a step that measures it a
/// little sooner or later goes elsewhere. Saved between two steps that measure, it must go on from there.
#[test]
fn polyak_adam_goes_on_from_the_middle_of_a_run() {
    let slope = |t: u64| {
        let push = |i: u64| 0.3 * (((t * i) % 5) as f64 - 2.0);
        (50.0 + push(3), vec![1.0 + push(1), -2.0 + push(2), 0.5, 1.5 + push(4), -1.0])
    };
    for spec in [
        "polyak-adam",
        "polyak-adam:factor=1e-6",
        "polyak-adam:factor=1e-6,average=0.995",
        "polyak-adam:cap=yes",
    ] {
        for saved in [117, 250, 400] {
            let mut whole = begin(spec, &START, 3);
            whole.session.options.weight_decay = 0.001;
            for t in 0..saved {
                let (loss, gradient) = slope(t);
                whole.step(loss, &gradient).unwrap();
            }
            let mut parts = whole.resumed();
            let warning = whole.method().warning();
            assert!(warning.is_some(), "{spec}, {saved}: the mean loss is above the first one");
            assert_eq!(parts.method().warning(), warning, "{spec}, {saved}");
            assert_eq!(parts.method().estimate(), whole.method().estimate(), "{spec}, {saved}");
            for t in saved..saved + 100 {
                let (loss, gradient) = slope(t);
                assert_eq!(
                    whole.step(loss, &gradient),
                    parts.step(loss, &gradient),
                    "{spec}, {saved}, at {t}"
                );
                assert_eq!(whole.state(), parts.state(), "{spec}, {saved}, at {t}");
            }
        }
    }
}

/// A run that goes away from its start and comes back: R is the greatest distance, not the last one. With D = |g| = 1 each step goes
/// 1.5·R/√G far in each coordinate, and at the beginning each of them measures.
#[test]
fn polyak_adam_remembers_how_far_it_was() {
    let mut run = begin("polyak-adam:eps=1e-30,beta2=0,beta1=0,decay=none,factor=1e-9", &[1.0, 1.0], 0);
    let (mut farthest, mut nearer) = (0.0f64, 0);
    for t in 0..32 {
        let moved = f64::sqrt(run.x.iter().map(|x| (x - 1.0) * (x - 1.0)).sum());
        nearer += u64::from(moved < 0.9 * farthest);
        farthest = farthest.max(moved);
        let wanted = (1e-9 * 8.0 / 2.0f64).max(1.5 * farthest / f64::sqrt(2.0 * (t + 1) as f64));
        let side = if t < 12 { 1.0 } else { -1.0 };
        let size = run.step(8.0, &[side, -side]).unwrap().rate;
        assert!((size / wanted - 1.0).abs() < 1e-12, "{size} and not {wanted} at {t}");
    }
    assert!(nearer >= 2, "it came back in {nearer} steps");
}

#[test]
fn polyak_adam_makes_as_many_steps_as_it_was_made_for() {
    let begin = |spec| Run::new(build(spec, 5), DenseF64::new(2), &[1.0, 1.0]);
    let mut run = begin("polyak-adam:eps=1e-30,beta2=0,dog=0,average=0");
    for t in 0..5 {
        // ½·8/2, and what is left of the run.
        let rate = run.step(8.0, &[1.0, -1.0]).unwrap().rate;
        assert!((rate - 2.0 * (5.0 - t as f64) / 5.0).abs() < 1e-14, "{rate} at {t}");
    }
    for _ in 0..2 {
        let before = run.state();
        let refused = run.step(8.0, &[1.0, -1.0]).unwrap_err();
        assert!(matches!(refused, Refusal::PastHorizon { step: 5, horizon: 5, .. }), "{refused:?}");
        assert!(refused.to_string().contains("decay=none"), "{refused}");
        assert_eq!(run.state(), before);
    }
    let mut endless = begin("polyak-adam:decay=none");
    (0..10).for_each(|_| assert!(endless.step(8.0, &[1.0, -1.0]).unwrap().rate > 0.0));
    let mut empty = Run::new(build("polyak-adam", 0), DenseF64::new(1), &[1.0]);
    let refused = empty.step(8.0, &[1.0]).unwrap_err();
    assert!(matches!(refused, Refusal::PastHorizon { step: 0, horizon: 0, .. }), "{refused:?}");
}

/// The loss is below the bound: the gap counts as 0, and the step says so.
#[test]
fn polyak_adam_marks_losses_below_its_bound() {
    let mut run = begin("polyak-adam:lower_bound=2,eps=1e-30,beta2=0,dog=0,decay=none", &[1.0, 1.0], 0);
    for (loss, kind) in [
        (4.0, StepKind::Regular),
        (2.0, StepKind::Regular),
        (1.0, StepKind::BelowBound),
        (3.0, StepKind::Regular),
    ] {
        assert_eq!(run.step(loss, &[1.0, -1.0]).unwrap().kind, kind, "{loss}");
    }
    let mut below = begin("polyak-adam:lower_bound=2,dog=0", &[1.0, 1.0], 0);
    let report = below.step(1.0, &[1.0, -1.0]).unwrap();
    assert_eq!((report.rate, report.kind), (0.0, StepKind::BelowBound));
    assert_eq!(below.x, [1.0, 1.0]);
}

/// With D = |g|, Σg²/D is 2 for a hundred steps and the means are full. Then a batch comes whose gradient is 30 times as long: its own
/// Polyak step is 8/60, which `cap=yes` does not exceed in any step, and not only in one of eight.
#[test]
fn polyak_adam_caps_every_step() {
    let mut run = begin("polyak-adam:eps=1e-30,beta2=0,beta1=0,decay=none,cap=yes", &[1.0, 1.0], 0);
    for t in 0..100 {
        assert!(run.step(8.0, &[1.0, -1.0]).unwrap().rate <= 4.0 + 1e-13, "at {t}");
    }
    for t in 100..120 {
        let g = if t % 3 == 0 { 30.0 } else { 20.0 };
        let rate = run.step(8.0, &[g, -g]).unwrap().rate;
        assert!(rate <= 8.0 / (2.0 * g), "{rate} at {t}");
        if t < 103 {
            assert_eq!((rate, run.method().estimate()), (8.0 / (2.0 * g), Some(1.0)), "at {t}");
        }
    }
}
