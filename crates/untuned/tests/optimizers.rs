//! Optimizers with vector state: by hand, and what all of them promise. Against the official implementations: `official`.

#![allow(clippy::unwrap_used)]

use untuned::optimizers::{AdamW, AnyOptimizer, Around, Method, OPTIMIZERS, Optimizer, OptimizerSpec};
use untuned::optimizers::{At, Keep, Place, Plain, catalog};
use untuned::spec::{Fallback, Kind};
use untuned::{Observation, Refusal, RuleSpec, Setting, SpecError, vector};

/// An optimizer at a point of a plain space, with what it keeps.
#[derive(Clone, PartialEq, Debug)]
struct Run<O> {
    optimizer: O,
    space: Plain,
    around: Around,
    sums: Vec<f64>,
    x: Vec<f64>,
    kept: Vec<Vec<f64>>,
}

impl<O: Optimizer> Run<O> {
    fn new(optimizer: O, start: &[f64], decayed: usize) -> Run<O> {
        let space = Plain::new(start.len()).decaying(0..decayed);
        let x = start.to_vec();
        let kept = Keep::all(&space, &optimizer.keeps(), &x).unwrap();
        let sums = vec![0.0; 1 + optimizer.measures()];
        Run { optimizer, space, around: Around::default(), sums, x, kept }
    }

    fn step(&mut self, t: u64, gradient: &[f64]) -> Result<f64, Refusal> {
        self.step_seen(&Observation::new(t, 1.0, vector::norm(gradient)), gradient)
    }

    fn step_seen(&mut self, seen: &Observation, gradient: &[f64]) -> Result<f64, Refusal> {
        let Run { optimizer, space, around, sums, x, kept } = self;
        let gradient = &gradient.to_vec();
        optimizer.measure(&At { space, around, x, gradient, kept }, sums, 0);
        optimizer.step(seen, &sums[1..], At { space, around, x, gradient, kept }).map(|step| step.size)
    }
}

fn build(spec: &str) -> AnyOptimizer {
    match spec.parse::<OptimizerSpec>().unwrap().build(&Setting::new(1000)).unwrap() {
        Method::Optimizer(optimizer) => optimizer,
        other => panic!("{spec} is {other:?}"),
    }
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
    for entry in OPTIMIZERS {
        specs.push(entry.name.to_string());
        for parameter in entry.parameters {
            let Kind::Word(words) = parameter.kind else { continue };
            for word in words.iter().filter(|word| parameter.default != Fallback::Word(word)) {
                let spec = format!("{}:{}={word}", entry.name, parameter.name);
                match spec.parse::<OptimizerSpec>().unwrap().build(&Setting::new(1000)) {
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

/// `Σ (i/2)·x_i²`, pushed about from step to step, and 9.
fn problem(x: &[f64], t: u64) -> (f64, Vec<f64>) {
    let push = |i: u64| 0.5 * (((t * i) % 5) as f64 - 2.0);
    let loss = x.iter().zip(1..).map(|(x, i)| 0.5 * i as f64 * x * x + push(i) * x).sum::<f64>() + 9.0;
    (loss, x.iter().zip(1..).map(|(x, i)| i as f64 * x + push(i)).collect())
}

impl<O: Optimizer> Run<O> {
    fn step_on_problem(&mut self, t: u64) -> Result<f64, Refusal> {
        let (loss, gradient) = problem(&self.x, t);
        self.step_seen(&Observation::new(t, loss, vector::norm(&gradient)), &gradient)
    }

    fn is_finite(&self) -> bool {
        self.x.iter().chain(self.kept.iter().flatten()).all(|x| x.is_finite())
    }
}

impl Run<AnyOptimizer> {
    /// All that a checkpoint has of it.
    fn state(&self) -> (String, Vec<u64>) {
        let numbers = self.x.iter().chain(self.kept.iter().flatten()).map(|x| x.to_bits());
        (serde_json::to_string(&self.optimizer).unwrap(), numbers.collect())
    }
}

const START: [f64; 5] = [1.0, -2.0, 0.5, 3.0, -1.5];

/// A run with decay in the first three coordinates, some steps in.
fn after(spec: &str, steps: u64) -> Run<AnyOptimizer> {
    let mut run = Run::new(build(spec), &START, 3);
    run.around.weight_decay = 0.1;
    (0..steps).for_each(|t| assert!(run.step_on_problem(t).is_ok()));
    run
}

/// With halves for both weights every number below is short.
#[test]
fn two_steps_by_hand() {
    let adamw = build("adamw:lr=0.5,beta1=0.5,beta2=0.5,eps=1");
    let mut run = Run::new(adamw, &[1.0, 1.0], 1);
    run.around.weight_decay = 0.5;
    assert_eq!(run.step(0, &[3.0, -1.0]), Ok(0.5));
    // m = 3/2 and −1/2, v = 9/2 and 1/2; corrected they are g and g²: 0.5·3/(3 + 1), and 0.5·1/(1 + 1).
    assert_eq!(run.kept, [[1.5, -0.5], [4.5, 0.5]]);
    assert!((run.x[0] - (0.75 - 0.375)).abs() < 1e-15 && (run.x[1] - 1.25).abs() < 1e-15, "{:?}", run.x);

    run.around.rate = 0.5;
    assert_eq!(run.step(1, &[0.0, 1.0]), Ok(0.25));
    // m = 3/4 and 1/4, over 3/4: 1 and 1/3. v = 9/4 and 3/4, over 3/4: 3 and 1. The decay is 0.25·0.5.
    assert_eq!(run.kept, [[0.75, 0.25], [2.25, 0.75]]);
    let wanted = [0.375 * 0.875 - 0.25 / (3f64.sqrt() + 1.0), 1.25 - 0.25 / 3.0 / 2.0];
    assert!(run.x.iter().zip(wanted).all(|(x, w)| (x - w).abs() < 1e-15), "{:?} {wanted:?}", run.x);
}

#[test]
fn clipping_scales_the_whole_gradient() {
    let around = Around { clip: Some(2.0), ..Around::default() };
    assert_eq!(around.gradient_scale(1.0), 1.0);
    assert_eq!(around.gradient_scale(8.0), 2.0 / (8.0 + 1e-6));
    assert_eq!(Around::default().gradient_scale(1e300), 1.0);
    let mut run = Run::new(AdamW::default(), &[0.0, 0.0], 0);
    run.around = around;
    run.step(0, &[6.0, 8.0]).unwrap();
    let scale = 2.0 / (10.0 + 1e-6);
    assert!((run.kept[0][1] - 0.1 * 8.0 * scale).abs() < 1e-15, "{:?}", run.kept);
}

#[test]
fn a_refused_step_changes_nothing() {
    for spec in specs() {
        for steps in [0, 3] {
            let mut run = after(&spec, steps);
            let before = run.state();
            let mut refuses = |what: &str, loss: f64, norm: f64, gradient: &[f64]| {
                let refused = run.step_seen(&Observation::new(steps, loss, norm), gradient);
                assert!(refused.is_err(), "{spec}, {what}: {refused:?}");
                assert_eq!(run.state(), before, "{spec}, {what}");
            };
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                refuses("the loss", bad, 1.0, &[1.0, 0.0, 0.0, 0.0, 0.0]);
                refuses("the norm", 1.0, bad, &[bad, 0.0, 0.0, 0.0, 0.0]);
            }
            refuses("a norm below 0", 1.0, -1.0, &[1.0, 0.0, 0.0, 0.0, 0.0]);
            run.around.rate = f64::INFINITY;
            let refused = run.step_on_problem(steps);
            assert!(matches!(refused, Err(Refusal::Overflow { .. })), "{spec}: {refused:?}");
            assert_eq!(run.state(), before, "{spec}, an infinite rate");
        }
    }
}

/// Where a method reads the gradient before its step, nobody else needs to do so for its norm; otherwise that place stays as it is.
#[test]
fn the_norm_comes_with_a_methods_own_pass_over_the_gradient() {
    let reads = ["momo", "prodigy", "d-adapt", "mechanic"];
    for spec in specs() {
        for steps in [0, 3] {
            let mut run = after(&spec, steps);
            let gradient = vec![1e-30, 3.0, 0.0, -4.0, 2.0];
            let Run { optimizer, space, around, sums, x, kept } = &mut run;
            sums[0] = -1.0;
            let found = optimizer.measure(&At { space, around, x, gradient: &gradient, kept }, sums, 0);
            assert_eq!(sums[0], if found { 29.0 } else { -1.0 }, "{spec}");
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
        let mut run = after(&spec, 3);
        let before = run.state();
        let (loss, gradient) = problem(&run.x, 3);
        let seen = Observation::new(3, loss, vector::norm(&gradient));
        for which in 1..=run.optimizer.measures() {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let Run { optimizer, space, around, sums, x, kept } = &mut run;
                optimizer.measure(&At { space, around, x, gradient: &gradient, kept }, sums, 0);
                sums[which] = bad;
                let at = At { space, around, x, gradient: &gradient, kept };
                let refused = optimizer.step(&seen, &sums[1..], at);
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
                    if run.step_seen(&Observation::new(t, 1.0, size), &gradient).is_err() {
                        assert_eq!(run.state(), before, "{spec}, {size:e}");
                    }
                    assert!(run.is_finite(), "{spec}, {size:e} at {t}: {run:?}");
                }
                // What comes after it is refused, or finite as well.
                for t in steps + 3..steps + 6 {
                    let _ = run.step(t, &[1.0; 5]);
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
                run.around.weight_decay = 0.0;
            }
            if over_norm && size == 5e-324 {
                let refused = run.step(0, &[0.0, size, 0.0, -size, 0.0]);
                assert!(matches!(refused, Err(Refusal::Overflow { .. })), "{spec}: {refused:?}");
                continue;
            }
            for t in 0..5 {
                run.step(t, &[0.0, size, 0.0, -size, 0.0]).unwrap();
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
            let mut run = Run::new(build(&spec), &[1.0, -1.0, 0.3], 1);
            run.around.weight_decay = decay;
            let mut last = 1.0;
            for t in 0..20 {
                let rate = run.step(t, &[0.0; 3]).unwrap();
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
        let mut sparse = Run::new(build(&spec), &x, decayed);
        sparse.around = dense.around;
        for t in 0..20 {
            let (loss, gradient) = problem(&dense.x, t);
            let seen = Observation::new(t, loss, vector::norm(&gradient));
            let mut spread = vec![0.0];
            gradient.iter().for_each(|&g| spread.extend([g, 0.0]));
            let (one, two) = (dense.step_seen(&seen, &gradient), sparse.step_seen(&seen, &spread));
            assert_eq!(one, two, "{spec} at {t}");
            assert_eq!(dense.optimizer, sparse.optimizer, "{spec} at {t}");
            assert_eq!(dense.sums, sparse.sums, "{spec} at {t}");
            let pairs = std::iter::once((&dense.x, &sparse.x)).chain(dense.kept.iter().zip(&sparse.kept));
            for (dense, sparse) in pairs {
                assert!(sparse.iter().step_by(2).all(|&zero| zero == 0.0), "{spec} at {t}: {sparse:?}");
                assert!(sparse.iter().skip(1).step_by(2).eq(dense), "{spec} at {t}: {sparse:?} {dense:?}");
            }
        }
    }
}

#[test]
fn what_is_saved_goes_on_bit_for_bit() {
    for spec in specs() {
        for steps in [0, 1, 7] {
            let mut whole = after(&spec, steps);
            let json = serde_json::to_string(&whole.optimizer).unwrap();
            let mut parts = Run { optimizer: serde_json::from_str(&json).unwrap(), ..whole.clone() };
            assert_eq!(parts.state(), whole.state(), "{spec}");
            for t in steps..steps + 20 {
                assert_eq!(whole.step_on_problem(t), parts.step_on_problem(t), "{spec} at {t}");
                assert_eq!(parts.state(), whole.state(), "{spec} at {t}");
            }
            assert_ne!(whole.x, START, "{spec} goes somewhere");
        }
    }
}

/// Another rate of the run is another step, and decay another point: nothing that a run puts around an optimizer is lost.
#[test]
fn what_is_around_matters() {
    for spec in specs() {
        let run = |change: fn(&mut Around)| {
            let mut run = after(&spec, 1);
            change(&mut run.around);
            run.step_on_problem(1).unwrap();
            run
        };
        let plain = run(|_| {});
        assert_ne!(run(|around| around.rate = 1e-3).x, plain.x, "{spec}: the rate");
        let heavy = run(|around| around.weight_decay = 0.9);
        assert_ne!(heavy.x[..3], plain.x[..3], "{spec}: the decay");
        let clipped = run(|around| around.clip = Some(1e-3));
        assert_eq!(clipped.state() != plain.state(), plain.optimizer.clips(), "{spec}: the clipping");
    }
}

#[test]
fn momo_says_when_its_bound_is_above_the_loss() {
    for name in ["momo", "momo-adam"] {
        let mut run = Run::new(build(&format!("{name}:lower_bound=8.5")), &START, 0);
        let seen = |t, loss| Observation::new(t, loss, 1.0);
        let gradient = [0.0, 1.0, 0.0, 0.0, 0.0];
        run.step_seen(&seen(0, 8.6), &gradient).unwrap();
        assert_eq!(run.optimizer.concern(), None);
        for (t, loss) in [(1, 8.25), (2, 7.75), (3, 8.0)] {
            run.step_seen(&seen(t, loss), &gradient).unwrap();
        }
        let concern = run.optimizer.concern().unwrap();
        assert!(concern.contains("7.75") && concern.contains("lower_bound=8.5"), "{concern}");
    }
}

/// Below the bound from the first step on: no step, and it is said so.
#[test]
fn momo_stands_still_below_its_bound() {
    for name in ["momo", "momo-adam"] {
        let mut run = Run::new(build(&format!("{name}:lower_bound=2")), &[3.0], 0);
        let before = run.x.clone();
        assert_eq!(run.step(0, &[1.0]), Ok(0.0), "{name}");
        assert_eq!(run.x, before);
        // Above it, but without a gradient there is no step either.
        let mut run = Run::new(build(name), &[3.0], 0);
        assert_eq!(run.step(0, &[0.0]), Ok(0.0), "{name}");
    }
}

#[test]
fn what_is_written_names_the_method_and_reads_back() {
    for entry in catalog() {
        let needed = match entry.name {
            "gd" => ":lr=0.1",
            "clipped-gd" => ":lr=0.1,threshold=inf",
            "polyak" => ":f_star=0",
            _ => "",
        };
        let spec: OptimizerSpec = format!("{}{needed}", entry.name).parse().unwrap();
        let method = spec.build(&Setting::new(1000)).unwrap();
        let json = serde_json::to_string(&method).unwrap();
        assert!(json.contains(&format!("{{\"rule\":\"{}\"", entry.name)), "{json}");
        assert_eq!(serde_json::from_str::<Method>(&json).unwrap(), method);
        let rule = format!("{}{needed}", entry.name).parse::<RuleSpec>();
        if let Ok(rule) = rule {
            let alone = serde_json::to_string(&rule.build(&Setting::new(1000)).unwrap()).unwrap();
            assert!(json.contains(&alone), "a rule is written as it is alone");
        }
    }
}

#[test]
fn specs_of_both_tables_and_their_mistakes() {
    let spec: OptimizerSpec = " adamw : beta2 = .99 , lr = 1e-3 ".parse().unwrap();
    assert_eq!((spec.to_string().as_str(), spec.is_optimizer()), ("adamw:lr=0.001,beta2=0.99", true));
    assert!(!"sgd:lr=1".parse::<OptimizerSpec>().unwrap().is_optimizer());
    let AnyOptimizer::AdamW(adamw) = build("adamw") else { panic!("another optimizer") };
    assert_eq!(adamw, AdamW::default());
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
        let error = text.parse::<OptimizerSpec>().unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    }
    // That of Mechanic is beside a number, not beside those of a vector.
    let with_eps = OPTIMIZERS.iter().filter(|entry| entry.has("eps") && entry.name != "mechanic");
    for name in with_eps.map(|entry| entry.name) {
        let small: OptimizerSpec = format!("{name}:eps=1e-40").parse().unwrap();
        let error = small.build(&Setting::new(1)).unwrap_err().to_string();
        assert!(error.contains("32-bit floats") && error.contains("at least 1.2e-38"), "{name}: {error}");
    }
    for (text, words) in [
        ("sgd-momentum:nesterov=yes,momentum=0", "momentum above 0"),
        ("sgd-momentum:nesterov=yes,dampening=0.1", "no dampening"),
        ("momo-adam:divide=no,decay_first=yes", "divide=yes"),
    ] {
        let error = text.parse::<OptimizerSpec>().unwrap().build(&Setting::new(1)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    for text in ["adamw", "adamw:lr=1", " adamw :nonsense"] {
        let error = text.parse::<RuleSpec>().unwrap_err();
        assert!(matches!(error, SpecError::Unfit { owner: "adamw", .. }), "{error:?}");
        assert!(error.to_string().contains("no scalar rule"), "{error}");
    }
}

/// With f − l = 14 and Σg²/D = 7, then 7 and 7: η is ½·2, then ½·(0.99·0.14 + 0.07)/(0.99·0.07 + 0.07), where the batch's own step is 1.
#[test]
fn polyak_adam_tells_what_part_of_polyaks_step_it_makes() {
    let mut run = Run::new(build("polyak-adam:eps=1e-30,beta2=0"), &[1.0, 1.0], 0);
    assert_eq!(run.optimizer.estimate(), None);
    for (t, loss, part) in [(0, 14.0, 0.5), (1, 7.0, 0.5 * (0.99 * 0.14 + 0.07) / (0.99 * 0.07 + 0.07))] {
        run.step_seen(&Observation::new(t, loss, 5.0), &[3.0, -4.0]).unwrap();
        assert!((run.optimizer.estimate().unwrap() - part).abs() < 1e-14, "{:?}", run.optimizer.estimate());
    }
}

/// With D = |g| = (3, 4) and the scales 4 and 1, Σs·g²/D is 4·3 + 4 = 16. Polyak's step is ½·16/16 first, and moves x by (−½·4, ½); then
/// R² = 2²·3/4 + (½)²·4 = 4 and G = 32, and DoG's step of 1.5·2/√32 is longer than Polyak's of ½·0.32/16. What decays does so by
/// 0.1·η·s.
#[test]
fn polyak_adam_makes_dogs_step_where_it_is_longer_and_each_tensors_in_its_scale() {
    let mut run =
        Run::new(build("polyak-adam:eps=1e-30,beta1=0,beta2=0,average=0,decay=none"), &[1.0, 1.0], 0);
    run.space.places = vec![
        Place { range: 0..1, decays: true, scale: 4.0 },
        Place { range: 1..2, decays: false, scale: 1.0 },
    ];
    let dog = 3.0 / 32f64.sqrt();
    let points = [[-1.0, 1.5], [-(1.0 - 0.4 * dog) - 4.0 * dog, 1.5 + dog]];
    for (t, (loss, size, point)) in [(16.0, 0.5, points[0]), (0.32, dog, points[1])].into_iter().enumerate() {
        run.around.weight_decay = if t == 1 { 0.1 } else { 0.0 };
        let rate = run.step_seen(&Observation::new(t as u64, loss, 5.0), &[3.0, -4.0]).unwrap();
        assert!((rate - size).abs() < 1e-15, "{rate} and not {size} at {t}");
        assert!(run.x.iter().zip(point).all(|(x, want)| (x - want).abs() < 1e-15), "{:?} at {t}", run.x);
    }
}

/// With D = 1 (beta2 = 0 and |g| = 1) Σg²/D is 2 until the means are full, after a hundred steps; then g is three times as long, which
/// nobody sees in the hundred and first to seventh step. The eighth brings 6, which counts for all eight in the mean and in G.
#[test]
fn polyak_adam_measures_in_one_of_eight_steps_once_its_means_are_full() {
    let mut run = Run::new(build("polyak-adam:eps=1e-30,beta2=0,beta1=0,decay=none,dog=0"), &[1.0, 1.0], 0);
    let mut step = |t: u64, g: f64| run.step_seen(&Observation::new(t, 8.0, g), &[g, -g]).unwrap();
    (0..100).for_each(|t| assert!((step(t, 1.0) - 0.5 * 8.0 / 2.0).abs() < 1e-13, "at {t}"));
    (100..107).for_each(|t| assert!((step(t, 3.0) - 0.5 * 8.0 / 2.0).abs() < 1e-13, "at {t}"));
    let (full, kept) = (1.0 - 0.99f64.powi(108), 0.99f64.powi(8));
    let mean = (kept * (1.0 - 0.99f64.powi(100)) * 2.0 + (1.0 - kept) * 6.0) / full;
    assert!((step(107, 3.0) - 0.5 * 8.0 / mean).abs() < 1e-13);
    assert!((step(108, 1.0) - 0.5 * 8.0 / mean).abs() < 1e-13);

    // Each step goes 1.5·R/√G far in each coordinate, and R is as old as the last time that the run was a sixteenth longer.
    let mut run =
        Run::new(build("polyak-adam:eps=1e-30,beta2=0,beta1=0,decay=none,factor=1e-9"), &[1.0, 1.0], 0);
    let later = [50, 53, 56, 59, 62, 66, 70, 74, 78, 83, 88, 93, 99, 107, 115, 123, 131, 139, 155];
    let (mut far, mut total) = (0.0f64, 0.0);
    for t in 0..160 {
        let moved: f64 = run.x.iter().map(|x| (x - 1.0) * (x - 1.0)).sum();
        if t < 32 || t < 48 && t % 2 == 1 || later.contains(&t) {
            far = far.max(moved.sqrt());
        }
        total += if t < 100 { 2.0 } else { f64::from(u8::from(t % 8 == 3)) * 16.0 };
        let size = run.step_seen(&Observation::new(t, 8.0, 1.0), &[1.0, -1.0]).unwrap();
        let wanted = (1e-9 * 8.0 / 2.0f64).max(1.5 * far / f64::sqrt(total));
        assert!((size / wanted - 1.0).abs() < 1e-12, "{size} and not {wanted} at {t}");
    }
}

#[test]
fn polyak_adam_says_when_the_loss_rises() {
    let mut run = Run::new(build("polyak-adam:lower_bound=1"), &[1.0, 1.0], 0);
    for t in 0..100 {
        assert_eq!(run.optimizer.concern(), None);
        run.step_seen(&Observation::new(t, if t == 0 { 4.0 } else { 5.0 }, 5.0), &[3.0, -4.0]).unwrap();
    }
    let concern = run.optimizer.concern().unwrap();
    assert!(
        concern.contains("first was 4.0000") && concern.contains("lower_bound = 1; try factor=0.25,dog=0.75"),
        "{concern}"
    );
    for t in 100..300 {
        run.step_seen(&Observation::new(t, 3.0, 5.0), &[3.0, -4.0]).unwrap();
    }
    assert_eq!(run.optimizer.concern(), None);
    run.step_seen(&Observation::new(300, 1e157, 5.0), &[3.0, -4.0]).unwrap();
    let concern = run.optimizer.concern().unwrap();
    assert!(
        concern.contains("the mean loss is 1.0") && concern.contains("e155 after 301 steps"),
        "{concern}"
    );
}
