//! Optimizers with vector state: against PyTorch, by hand, and what all of them promise.

#![allow(clippy::unwrap_used)]

use serde::Deserialize;
use untuned::optimizers::{AdamW, AnyOptimizer, Around, Method, OPTIMIZERS, Optimizer, OptimizerSpec};
use untuned::optimizers::{Plain, Space, catalog};
use untuned::{Observation, Refusal, RuleSpec, Setting, SpecError};

/// What `torch/adamw.py` wrote.
#[derive(Deserialize)]
struct Golden {
    start: Vec<f64>,
    decayed: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    decay: f64,
    clip: Option<f64>,
    warmup: u64,
    points: Vec<Vec<f64>>,
}

/// An optimizer at a point of a plain space, with what it keeps.
#[derive(Clone, PartialEq, Debug)]
struct Run<O> {
    optimizer: O,
    space: Plain,
    around: Around,
    x: Vec<f64>,
    kept: Vec<Vec<f64>>,
}

impl<O: Optimizer> Run<O> {
    fn new(optimizer: O, start: &[f64], decayed: usize) -> Run<O> {
        let space = Plain { dimension: start.len(), decayed: std::iter::once(0..decayed).collect() };
        let kept = optimizer.keeps().iter().map(|_| space.zeros().unwrap()).collect();
        Run { optimizer, space, around: Around::default(), x: start.to_vec(), kept }
    }

    fn step(&mut self, t: u64, gradient: &[f64]) -> Result<f64, Refusal> {
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        self.step_seen(&Observation::new(t, 1.0, norm), gradient)
    }

    fn step_seen(&mut self, seen: &Observation, gradient: &[f64]) -> Result<f64, Refusal> {
        let Run { optimizer, space, around, x, kept } = self;
        optimizer.step(space, seen, around, x, &gradient.to_vec(), kept)
    }
}

fn build(spec: &str) -> AnyOptimizer {
    match spec.parse::<OptimizerSpec>().unwrap().build(&Setting::new(10)).unwrap() {
        Method::Optimizer(optimizer) => optimizer,
        Method::Rule(rule) => panic!("{spec} is the rule {rule:?}"),
    }
}

/// The formula of `torch/adamw.py`.
fn gradient(x: &[f64], t: u64) -> Vec<f64> {
    let of = |(x, i): (&f64, u64)| {
        let (index, push) = (i as f64, ((t * i) % 7) as f64 - 3.0);
        0.5 * index * x + 0.1 * index * x * x * x + 0.25 * push
    };
    x.iter().zip(1..).map(of).collect()
}

#[test]
fn adamw_walks_as_in_pytorch() {
    let golden: Golden = serde_json::from_str(include_str!("torch/adamw.json")).unwrap();
    assert_eq!(golden.cases.len(), 2);
    for case in golden.cases {
        let Case { lr, beta1, beta2, eps, .. } = case;
        let spec = format!("adamw:lr={lr},beta1={beta1},beta2={beta2},eps={eps}");
        let mut run = Run::new(build(&spec), &golden.start, golden.decayed);
        assert_eq!(case.points.len(), 20);
        for t in 0..200 {
            let warm = (t + 1) as f64 / (case.warmup + 1) as f64;
            let rate = if t < case.warmup { warm } else { 1.0 };
            run.around = Around { rate, clip: case.clip, weight_decay: case.decay };
            run.step(t, &gradient(&run.x, t)).unwrap();
            if (t + 1) % 10 == 0 {
                for (got, want) in run.x.iter().zip(&case.points[t as usize / 10]) {
                    let error = (got - want).abs() / want.abs();
                    assert!(error < 1e-12, "{spec}, step {t}: {got} is not {want}");
                }
            }
        }
    }
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
    for entry in OPTIMIZERS {
        let mut run = Run::new(build(entry.name), &[1.0, -1.0], 2);
        run.around.weight_decay = 0.1;
        run.step(0, &[3.0, -4.0]).unwrap();
        let before = run.clone();
        for (loss, norm) in [
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
            (1.0, -1.0),
            // Its square is no number of f64.
            (1.0, 1e160),
        ] {
            let refused = run.step_seen(&Observation::new(1, loss, norm), &[norm, 0.0]);
            assert!(matches!(refused, Err(Refusal::Loss { .. } | Refusal::Gradient { .. })), "{refused:?}");
            assert_eq!(run, before, "{} after loss {loss}, norm {norm}", entry.name);
        }
        let mut large = before.clone();
        large.around.rate = f64::INFINITY;
        assert!(matches!(large.step(1, &[1.0, 1.0]), Err(Refusal::Overflow { .. })));
        assert_eq!((large.optimizer, large.x, large.kept), (before.optimizer, before.x, before.kept));
    }
}

#[test]
fn a_zero_gradient_moves_nothing_but_what_decays() {
    for entry in OPTIMIZERS {
        let mut run = Run::new(build(entry.name), &[1.0, -1.0], 1);
        run.around.weight_decay = 0.5;
        let rate = run.step(0, &[0.0, 0.0]).unwrap();
        assert_eq!(run.x, [1.0 - rate * 0.5, -1.0], "{}", entry.name);
    }
}

#[test]
fn its_numbers_read_back_to_the_same_next_step() {
    for entry in catalog() {
        let needed = match entry.name {
            "gd" => ":lr=0.1",
            "clipped-gd" => ":lr=0.1,threshold=inf",
            "polyak" => ":f_star=0",
            _ => "",
        };
        let spec: OptimizerSpec = format!("{}{needed}", entry.name).parse().unwrap();
        let method = spec.build(&Setting::new(10)).unwrap();
        let json = serde_json::to_string(&method).unwrap();
        assert!(json.starts_with(&format!("{{\"rule\":\"{}\"", entry.name)), "{json}");
        assert_eq!(serde_json::from_str::<Method>(&json).unwrap(), method);
        let rule = format!("{}{needed}", entry.name).parse::<RuleSpec>();
        if let Ok(rule) = rule {
            let alone = serde_json::to_string(&rule.build(&Setting::new(10)).unwrap()).unwrap();
            assert_eq!(json, alone, "a rule is written as it is alone");
        }
    }
    let mut whole = Run::new(build("adamw:beta1=0.7"), &[1.0, 2.0, 3.0], 2);
    for t in 0..7 {
        whole.step(t, &[0.1, -0.2, 0.3]).unwrap();
    }
    let json = serde_json::to_string(&whole.optimizer).unwrap();
    let mut parts = Run { optimizer: serde_json::from_str(&json).unwrap(), ..whole.clone() };
    whole.step(7, &[0.3, 0.2, -0.1]).unwrap();
    parts.step(7, &[0.3, 0.2, -0.1]).unwrap();
    assert_eq!(parts, whole);
}

#[test]
fn specs_of_both_tables_and_their_mistakes() {
    let spec: OptimizerSpec = " adamw : beta2 = .99 , lr = 1e-3 ".parse().unwrap();
    assert_eq!((spec.to_string().as_str(), spec.is_optimizer()), ("adamw:lr=0.001,beta2=0.99", true));
    assert!(!"sgd:lr=1".parse::<OptimizerSpec>().unwrap().is_optimizer());
    let AnyOptimizer::AdamW(adamw) = build("adamw");
    assert_eq!(adamw, AdamW::default());
    assert_eq!((adamw.lr, adamw.beta1, adamw.beta2, adamw.eps), (0.001, 0.9, 0.999, 1e-8));
    for (text, words) in [
        ("adamv", &["did you mean `adamw`?", "inexact-polyak", "level-polyak, adamw)"][..]),
        ("adsps", &["did you mean `adasps`?"]),
        ("adamw:beta3=1", &["`adamw` has no parameter `beta3`", "lr, beta1, beta2, eps"]),
        ("adamw:beta1=1", &["beta1=1 does not work", "from 0 on, below 1"]),
        ("adamw:beta2=-0.1", &["beta2=-0.1", "from 0 on, below 1"]),
        ("adamw:beta2=nan", &["beta2=nan", "below 1"]),
        ("adamw:lr=0", &["lr=0", "above 0"]),
        ("adamw:eps=0", &["eps=0", "above 0"]),
    ] {
        let error = text.parse::<OptimizerSpec>().unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    }
    let small: OptimizerSpec = "adamw:eps=1e-40".parse().unwrap();
    let error = small.build(&Setting::new(1)).unwrap_err().to_string();
    assert!(error.contains("eps=1e-40") && error.contains("at least 1.2e-38"), "{error}");
    for text in ["adamw", "adamw:lr=1", " adamw :nonsense"] {
        let error = text.parse::<RuleSpec>().unwrap_err();
        assert!(matches!(error, SpecError::Unfit { owner: "adamw", .. }), "{error:?}");
        assert!(error.to_string().contains("untuned train"), "{error}");
    }
}
