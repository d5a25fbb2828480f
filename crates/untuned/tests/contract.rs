//! One contract for all rules: what [`StepRule`] promises, on ordinary, tiny, huge and broken numbers.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use untuned::rules::{RULES, Rule};
use untuned::spec::number;
use untuned::{MethodSpec, Observation, Refusal, RunInfo, Step, StepKind, StepRule};

/// A rule with one choice of its options, and what is particular about it.
struct Case {
    /// The spec, for a function scaled by `a` (a power of four) over a space scaled by `b` (a power of two), with the
    /// lower bound `l` of the scaled function. Parameters that are losses scale with `a`, step sizes with `b²/a`,
    /// lengths of gradients with `a/b`, lengths in the space with `b`; `c_p` is one over the root of a loss.
    spec: fn(a: f64, b: f64, l: f64) -> String,
    /// Whether the rule looks at a lower bound.
    bounded: bool,
    /// The size of the first step for this `(f − l)/‖g‖²`, where it is that quotient times a number.
    first: Option<f64>,
    /// Whether a tiny gradient may lead to a step size that no 64-bit float can hold.
    explodes: bool,
}

const HORIZON: u64 = 16;

const CASES: &[Case] = &[
    Case {
        spec: |a, b, _| format!("gd:lr={}", number(0.3 * b * b / a)),
        bounded: false,
        first: None,
        explodes: false,
    },
    Case {
        spec: |a, b, _| {
            format!("clipped-gd:lr={},threshold={}", number(0.3 * b * b / a), number(2.5 * a / b))
        },
        bounded: false,
        first: None,
        explodes: false,
    },
    Case {
        spec: |a, b, _| format!("clipped-gd:lr={},threshold=inf", number(0.3 * b * b / a)),
        bounded: false,
        first: None,
        explodes: false,
    },
    Case {
        spec: |_, _, l| format!("polyak:f_star={}", number(l)),
        bounded: true,
        first: Some(1.0),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("polyak-bound:lower_bound={}", number(l)),
        bounded: true,
        first: Some(1.0),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("inexact-polyak:lower_bound={}", number(l)),
        bounded: true,
        first: Some(0.25),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("inexact-polyak:extend=keep,lower_bound={}", number(l)),
        bounded: true,
        first: Some(0.25),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("inexact-polyak:extend=grow,lower_bound={}", number(l)),
        bounded: true,
        first: Some(0.25),
        explodes: true,
    },
    Case {
        spec: |a, b, l| format!("decsps:gamma={},lower_bound={}", number(10.0 * b * b / a), number(l)),
        bounded: true,
        first: None,
        explodes: false,
    },
    Case {
        spec: |a, b, l| {
            let (gamma, shift) = (number(0.1 * b * b / a), number(0.125 * a / b));
            format!("decsps:c0=3,gamma={gamma},lower_bound={},grad_shift={shift}", number(l))
        },
        bounded: true,
        first: None,
        explodes: false,
    },
    Case {
        spec: |_, _, l| format!("adasps:c_scale=0.5,lower_bound={}", number(l)),
        bounded: true,
        first: Some(2.0),
        explodes: true,
    },
    Case {
        spec: |a, _, l| format!("adasps:c_p={},lower_bound={}", number(1.25 / a.sqrt()), number(l)),
        bounded: true,
        first: None,
        explodes: true,
    },
    // Covariant in x only from x_0 = 0: in general r̄_0 = eps_rel (1 + ‖x_0‖) has a length of its own, the 1.
    Case {
        spec: |a, b, _| format!("dog:eps_rel={},eps={}", number(1e-3 * b), number(0.1 * a / b * a / b)),
        bounded: false,
        first: None,
        explodes: true,
    },
    Case {
        spec: |a, b, _| {
            format!("dog:eps_rel={},eps={},eps_each=yes", number(1e-3 * b), number(0.1 * a / b * a / b))
        },
        bounded: false,
        first: None,
        explodes: true,
    },
    Case {
        spec: |_, b, _| format!("dog:eps_rel={},eps=0", number(1e-3 * b)),
        bounded: false,
        first: None,
        explodes: true,
    },
    Case {
        spec: |a, b, _| {
            let (first, eps) = (number(0.3 * b * b / a), number(0.1 * a / b * a / b));
            format!("dog:first_step={first},eps={eps}")
        },
        bounded: false,
        first: None,
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("anytime-polyak:lower_bound={}", number(l)),
        bounded: true,
        first: Some(1.0),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("level-polyak:lower_bound={}", number(l)),
        bounded: true,
        first: Some(1.0),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("adaptive-polyak:lower_bound={}", number(l)),
        bounded: true,
        first: Some(1.0),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("adaptive-polyak:variant=epochs,epochs=4,lower_bound={}", number(l)),
        bounded: true,
        first: Some(0.5),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("adaptive-polyak:variant=epochs,restart=best,lower_bound={}", number(l)),
        bounded: true,
        first: Some(0.5),
        explodes: true,
    },
    Case {
        spec: |_, _, l| format!("sps-max:eps=0,lower_bound={}", number(l)),
        bounded: true,
        first: Some(2.0),
        explodes: true,
    },
    Case {
        spec: |a, b, l| {
            let (most, eps) = (number(0.4 * b * b / a), number(0.1 * a / b * a / b));
            format!("sps-max:c=2,max_step={most},eps={eps},lower_bound={}", number(l))
        },
        bounded: true,
        first: None,
        explodes: false,
    },
    Case {
        spec: |a, b, l| {
            let first = number(0.3 * b * b / a);
            format!("sps-max:cap=smooth,first_step={first},gamma=4,epoch=3,eps=0,lower_bound={}", number(l))
        },
        bounded: true,
        first: None,
        explodes: false,
    },
    Case {
        spec: |_, _, l| format!("ali-g:eps=0,lower_bound={}", number(l)),
        bounded: true,
        first: Some(1.0),
        explodes: true,
    },
    Case {
        spec: |a, b, l| {
            let (most, eps) = (number(0.4 * b * b / a), number(0.1 * a / b * a / b));
            format!("ali-g:max_lr={most},eps={eps},lower_bound={}", number(l))
        },
        bounded: true,
        first: None,
        explodes: false,
    },
    Case {
        spec: |a, b, _| format!("dowg:r2={},eps={}", number(1e-3 * b * b), number(0.1 * a)),
        bounded: false,
        first: None,
        explodes: false,
    },
    Case {
        spec: |_, b, _| format!("dowg:lr=0.5,r2={},eps=0", number(1e-3 * b * b)),
        bounded: false,
        first: None,
        explodes: true,
    },
];

fn build(spec: &str) -> Rule {
    spec.parse::<MethodSpec>().unwrap().build_rule(&RunInfo::new(HORIZON)).unwrap()
}

impl Case {
    fn spec(&self, l: f64) -> String {
        (self.spec)(1.0, 1.0, l)
    }
}

/// All that any rule may ask for. The distance grows by ¼ a step; the gradient is one entry of this size.
fn seen(step: u64, loss: f64, grad_norm: f64) -> Observation {
    let (distance, grad_sum) = (Some(step as f64 / 4.0), Some(grad_norm));
    let (x0_norm, dimension) = (Some(0.0), Some(1));
    Observation { x0_norm, distance, grad_sum, dimension, ..Observation::new(step, loss, grad_norm) }
}

/// A few steps that ran: better, worse, a tie.
const ORDINARY: [(f64, f64); 9] = [
    (9.0, 3.0),
    (7.5, 2.0),
    (8.25, 5.0),
    (7.5, 1.5),
    (3.0, 0.125),
    (100.0, 40.0),
    (2.0, 1.0),
    (2.5, 0.75),
    (1.75, 0.5),
];

fn after(spec: &str, steps: usize) -> Rule {
    let mut rule = build(spec);
    for (t, &(loss, grad_norm)) in ORDINARY.iter().enumerate().take(steps) {
        rule.step(&seen(t as u64, loss, grad_norm)).unwrap();
    }
    rule
}

/// The state as bytes, which must also be what reads back to the same rule.
fn bytes(rule: &Rule) -> Vec<u8> {
    let bytes = serde_json::to_vec(rule).unwrap();
    let back: Rule =
        serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(&bytes)));
    assert_eq!(&back, rule);
    assert_eq!(serde_json::to_vec(&back).unwrap(), bytes);
    bytes
}

#[track_caller]
fn sound(spec: &str, step: Step) {
    assert!(step.size.is_finite() && step.size >= 0.0, "{spec}: {step:?}");
}

/// Asks the rule and checks what holds for any observation: a sound step, or an error that changes nothing.
#[track_caller]
fn ask(spec: &str, rule: &mut Rule, seen: &Observation) -> Result<Step, Refusal> {
    let (before, state) = (rule.clone(), bytes(rule));
    let answer = rule.step(seen);
    match answer {
        Ok(step) => sound(spec, step),
        Err(_) => {
            assert_eq!(*rule, before, "{spec}: {answer:?} changed the state");
            assert_eq!(bytes(rule), state, "{spec}: {answer:?} changed the state");
        }
    }
    answer
}

#[test]
fn every_rule_is_here() {
    let here: BTreeSet<_> = CASES.iter().map(|c| c.spec(0.0).parse::<MethodSpec>().unwrap().name()).collect();
    let all: BTreeSet<_> = RULES.iter().map(|info| info.name).collect();
    assert_eq!(here, all, "a rule of the catalog has no case in this file");
    // Every word of every option too.
    for info in RULES {
        for parameter in info.parameters {
            let untuned::spec::Kind::Word(words) = parameter.kind else { continue };
            for word in words {
                let given = format!("{}={word}", parameter.name);
                let default = parameter.default == untuned::spec::DefaultValue::Word(word);
                let used = CASES.iter().any(|c| {
                    let spec = c.spec(0.0);
                    spec.starts_with(&format!("{}:", info.name)) && spec.contains(&given)
                });
                assert!(used || default, "{}: no case has {given}", info.name);
            }
        }
    }
}

#[test]
fn ordinary_steps_are_positive() {
    for case in CASES {
        let spec = case.spec(0.0);
        let mut rule = build(&spec);
        for (t, (loss, grad_norm)) in ORDINARY.into_iter().enumerate() {
            let step = ask(&spec, &mut rule, &seen(t as u64, loss, grad_norm)).unwrap();
            assert!(step.size > 0.0, "{spec}: {step:?} at {t}");
        }
    }
}

/// Norms whose squares underflow or overflow, at losses of every size: a sound step, or a refusal for a size that no
/// float can hold.
#[test]
fn tiny_and_huge_gradients() {
    let norms =
        [1e-150, 1e-162, 1e-170, 1e-300, f64::MIN_POSITIVE, 1e-310, 5e-324, 1e150, 1e200, 1e300, f64::MAX];
    let losses = [0.0, 5e-324, 1e-310, 1e-300, 1e-200, 1e-17, 1.0, 1e17, 1e200, 1e300, f64::MAX];
    for case in CASES {
        let spec = case.spec(0.0);
        for norm in norms {
            for loss in losses {
                for steps in [0, 3] {
                    let mut rule = after(&spec, steps);
                    match ask(&spec, &mut rule, &seen(steps as u64, loss, norm)) {
                        Ok(_) => {}
                        Err(Refusal::Overflow { .. }) => {
                            assert!(case.explodes, "{spec}, f = {loss:e}, ‖g‖ = {norm:e}");
                        }
                        Err(other) => panic!("{spec}, f = {loss:e}, ‖g‖ = {norm:e}: {other}"),
                    }
                    // The rule is still of use.
                    ask(&spec, &mut rule, &seen(steps as u64 + 1, 2.0, 1.0)).unwrap();
                }
            }
        }
    }
}

/// `(f − l)/‖g‖²` is right also where `‖g‖²` is not a number of the normal range.
#[test]
fn quotients_beyond_the_range_of_the_square() {
    for (loss, norm, quotient) in [
        (1e-300, 1e-160, 1e20),
        (1e-300, 1e-170, 1e40),
        (1e-300, 1e-200, 1e100),
        (1e-310, 1e-300, 1e290),
        (1e-310, 1e-308, 1e306),
        (1e-320, 1e-310, 1e300),
        (1e300, 1e200, 1e-100),
        (1e308, 1e300, 1e-292),
    ] {
        for case in CASES {
            let (spec, Some(factor)) = (case.spec(0.0), case.first) else { continue };
            let got = build(&spec).step(&seen(0, loss, norm)).unwrap().size;
            // The subnormal 1e-310 and 1e-320 have few digits.
            let tolerance = if loss < 1e-315 { 1e-3 } else { 1e-12 };
            assert!(
                (got / (factor * quotient) - 1.0).abs() < tolerance,
                "{spec}: {got:e}, not {:e}",
                factor * quotient
            );
        }
    }
}

/// The candidate of DecSPS is infinite, that of AdaSPS after its first step: the other side of the `min` is the step.
#[test]
fn an_infinite_candidate_never_wins() {
    let tiny = |t| seen(t, 1.0, 1e-200);
    let mut decsps = build("decsps:gamma=10");
    assert_eq!(decsps.step(&tiny(0)).unwrap().size, 10.0, "c_0 γ_b/c_0");
    assert_eq!(decsps.step(&tiny(3)).unwrap().size, 5.0, "10/√4");
    for spec in ["adasps", "adasps:c_p=1"] {
        let mut adasps = build(spec);
        let first = adasps.step(&tiny(0)).unwrap_err();
        assert!(matches!(first, Refusal::Overflow { step: 0, .. }), "{first:?}");
        assert_eq!(adasps, build(spec), "a refused first step is not the first step");
        let size = adasps.step(&seen(1, 1.0, 2.0)).unwrap().size;
        assert_eq!(size, 0.25, "1/(1 · 4 · √1)");
        assert_eq!(adasps.step(&tiny(2)).unwrap().size, size);
    }
}

/// A candidate that is not a number does not win either: DecSPS's is 0/0 where the shift cancels a gradient at `f = l`,
/// AdaSPS's ∞/∞ where `f − l` overflows.
#[test]
fn a_candidate_that_is_no_number_never_wins() {
    let mut decsps = build("decsps:grad_shift=1");
    let cancelled = |t, loss| Observation { grad_sum: Some(-1.0), ..seen(t, loss, 1.0) };
    for (loss, kind) in [(0.0, StepKind::Regular), (-1.0, StepKind::BelowBound)] {
        let step = decsps.step(&cancelled(0, loss)).unwrap();
        assert_eq!((step.size, step.kind), (0.0, kind), "f − l is 0, so is the step");
    }
    assert_eq!(decsps, build("decsps:grad_shift=1"));

    for spec in ["adasps:lower_bound=-1e308", "adasps:lower_bound=-1e308,c_p=1"] {
        let mut adasps = build(spec);
        adasps.step(&seen(0, 1.0, 1e10)).unwrap();
        let refused = ask(spec, &mut adasps, &seen(1, 1.7e308, 1e10));
        assert!(matches!(refused, Err(Refusal::Overflow { .. })), "{refused:?}");
    }
}

/// AdaSPS's sum overflows: a sum of infinity would make every later step 0, and does not survive a checkpoint.
#[test]
fn a_sum_that_overflows_is_refused() {
    for spec in ["adasps", "adasps:c_p=1"] {
        let mut rule = build(spec);
        ask(spec, &mut rule, &seen(0, 1.7e308, 1e150)).unwrap();
        let refused = ask(spec, &mut rule, &seen(1, 1.7e308, 1e150));
        assert!(matches!(refused, Err(Refusal::Overflow { step: 1, .. })), "{refused:?}");
    }
    for spec in ["dog", "dog:eps=0", "dog:eps_each=yes"] {
        // √G_t is kept and not G_t: 1e200 is in its range, a second norm of this size is not.
        let mut rule = after(spec, 3);
        ask(spec, &mut rule, &seen(3, 1.0, 1e200)).unwrap();
        ask(spec, &mut rule, &seen(4, 1.0, 1.7e308)).unwrap();
        let refused = ask(spec, &mut rule, &seen(5, 1.0, 1.7e308));
        assert!(matches!(refused, Err(Refusal::Overflow { step: 5, .. })), "{refused:?}");
    }
}

/// DoWG keeps √v_t and not v_t: norms whose squares leave the range are no matter, but their sum can be one that no float holds.
#[test]
fn a_weighted_sum_that_overflows_is_refused() {
    let mut rule = build("dowg:r2=1");
    ask("dowg", &mut rule, &seen(0, 1.0, 1e200)).unwrap();
    ask("dowg", &mut rule, &seen(1, 1.0, 1.7e308)).unwrap();
    let refused = ask("dowg", &mut rule, &seen(2, 1.0, 1.7e308));
    assert!(matches!(refused, Err(Refusal::Overflow { step: 2, .. })), "{refused:?}");
}

#[test]
fn a_zero_gradient_is_stationary() {
    for case in CASES {
        for l in [0.0, 50.0] {
            let spec = case.spec(l);
            for steps in [0, 1, 4, 8] {
                let mut rule = after(&spec, steps);
                let before = (rule.clone(), bytes(&rule));
                let step = rule.step(&seen(steps as u64, 3.0, 0.0)).unwrap();
                assert_eq!((step.size, step.kind), (0.0, StepKind::Stationary), "{spec}");
                assert_eq!((rule.clone(), bytes(&rule)), before, "{spec}: the state changed");
            }
        }
    }
}

#[test]
fn broken_observations_are_refused() {
    let t = 4;
    let nan_or_inf = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for case in CASES {
        let spec = case.spec(0.0);
        let mut rule = after(&spec, t as usize);
        let step = t;
        for bad in nan_or_inf {
            for good_or_zero in [1.0, 0.0] {
                let refused = ask(&spec, &mut rule, &seen(t, bad, good_or_zero)).unwrap_err();
                assert!(matches!(refused, Refusal::Loss { step: 4, .. }), "{spec}: {refused:?}");
                assert!(refused.to_string().contains(&bad.to_string()), "{refused}");
            }
        }
        for bad in nan_or_inf.into_iter().chain([-1.0, -5e-324]) {
            let refused = ask(&spec, &mut rule, &seen(t, 1.0, bad)).unwrap_err();
            assert!(matches!(refused, Refusal::Gradient { step: 4, .. }), "{spec}: {refused:?}");
            assert!(refused.to_string().contains(&bad.to_string()), "{refused}");
        }
        for bad in nan_or_inf {
            let distance = Observation { distance: Some(bad), ..seen(t, 1.0, 1.0) };
            let refused = ask(&spec, &mut rule, &distance).unwrap_err();
            assert!(
                matches!(refused, Refusal::NotFinite { step: 4, what: "distance", .. }),
                "{spec}: {refused:?}"
            );
            let sum = Observation { grad_sum: Some(bad), ..seen(t, 1.0, 1.0) };
            let refused = ask(&spec, &mut rule, &sum).unwrap_err();
            assert!(
                matches!(refused, Refusal::NotFinite { step: 4, what: "grad_sum", .. }),
                "{spec}: {refused:?}"
            );
        }
        // The refusals left no trace: the next steps are those of a rule that never saw them.
        let mut untouched = after(&spec, t as usize);
        for t in step..8 {
            let (loss, grad_norm) = ORDINARY[t as usize];
            let seen = seen(t, loss, grad_norm);
            assert_eq!(rule.step(&seen), untouched.step(&seen), "{spec}");
        }
    }
}

/// What a rule needs beyond the gradient's norm, by its name and options; all others need the loss alone.
fn needed(spec: &str) -> &'static [&'static str] {
    match spec.split(':').next().unwrap() {
        "gd" | "clipped-gd" => &[],
        "dog" if !spec.contains("first_step") => &["x0_norm", "distance"],
        "dog" => &["distance"],
        "dowg" => &["distance"],
        _ if spec.contains("grad_shift") => &["loss", "grad_sum", "dimension"],
        _ => &["loss"],
    }
}

/// A value that is needed and is not there is refused by name, from the first step on, and is never taken for 0 or 1. What is not
/// needed may be missing.
#[test]
fn missing_values_are_refused() {
    type Without = fn(Observation) -> Observation;
    let without: [(&str, Without); 5] = [
        ("loss", |seen| Observation { loss: None, ..seen }),
        ("x0_norm", |seen| Observation { x0_norm: None, ..seen }),
        ("distance", |seen| Observation { distance: None, ..seen }),
        ("grad_sum", |seen| Observation { grad_sum: None, ..seen }),
        ("dimension", |seen| Observation { dimension: None, ..seen }),
    ];
    let mut refused = BTreeSet::new();
    for case in CASES {
        let spec = case.spec(0.0);
        let needed = needed(&spec);
        for steps in [0, 4] {
            for grad_norm in [1.5, 0.0] {
                let rule = after(&spec, steps);
                // None of the values is 0 or 1, what a careless rule would take in their place.
                let whole = at(steps, (7.0, grad_norm, 0.3));
                let whole = Observation { distance: Some(0.3), ..whole };
                let answer = rule.clone().step(&whole).unwrap();
                let needs = rule.needs();
                let flags = [
                    ("loss", needs.loss),
                    ("x0_norm", needs.x0_norm),
                    ("distance", needs.distance),
                    ("grad_sum", needs.grad_sum),
                    ("dimension", needs.dimension),
                ];
                for (what, flag) in flags {
                    assert_eq!(flag, needed.contains(&what), "{spec} and {what}");
                }
                for (what, without) in without {
                    let mut rule = rule.clone();
                    let lacking = ask(&spec, &mut rule, &without(whole));
                    if needed.contains(&what) {
                        assert_eq!(lacking, Err(Refusal::Missing { step: steps as u64, what }), "{spec}");
                        refused.insert(what);
                    } else {
                        assert_eq!(lacking, Ok(answer), "{spec} does not need {what}");
                    }
                }
            }
        }
    }
    assert_eq!(refused.len(), 5, "{refused:?}");
    let words = Refusal::Missing { step: 3, what: "x0_norm" }.to_string();
    assert!(words.contains("step 3") && words.contains("`x0_norm`"), "{words}");
}

/// The author of a rule reads a value with the method of its name.
#[test]
fn each_value_is_read_or_refused_by_name() {
    let values = |seen: Observation| {
        let dimension = seen.dimension().map(|n| n as f64);
        [seen.loss(), seen.x0_norm(), seen.distance(), seen.grad_sum(), dimension]
    };
    assert_eq!(values(at(3, (7.0, 1.5, 0.3))), [Ok(7.0), Ok(0.7), Ok(0.3), Ok(0.5), Ok(5.0)]);
    let names = ["loss", "x0_norm", "distance", "grad_sum", "dimension"];
    let nothing = Observation { loss: None, ..Observation::new(3, 7.0, 1.5) };
    assert_eq!(values(nothing), names.map(|what| Err(Refusal::Missing { step: 3, what })));
}

/// A loop of one's own that measures loss and norm alone: DoG and DecSPS with a shift are of no use there, and say why.
#[test]
fn a_bare_observation_is_not_enough_for_everyone() {
    let bare = Observation::new(0, 2.0, 1.0);
    for (spec, more, what) in [
        ("dog", Observation { distance: Some(0.0), ..bare }, "x0_norm"),
        ("dog", Observation { x0_norm: Some(1.0), ..bare }, "distance"),
        ("dog:first_step=0.1", bare, "distance"),
        ("dowg", bare, "distance"),
        ("decsps:grad_shift=1e-4", Observation { grad_sum: Some(1.0), ..bare }, "dimension"),
        ("decsps:grad_shift=1e-4", Observation { dimension: Some(1), ..bare }, "grad_sum"),
    ] {
        assert_eq!(ask(spec, &mut build(spec), &more), Err(Refusal::Missing { step: 0, what }), "{spec}");
    }
    build("decsps").step(&bare).unwrap();
}

/// DoG's first radius comes from `‖x_0‖`.
#[test]
fn a_broken_start_is_refused() {
    for bad in [f64::NAN, f64::INFINITY] {
        let first = Observation { x0_norm: Some(bad), ..seen(0, 1.0, 1.0) };
        let refused = ask("dog", &mut build("dog"), &first);
        assert!(refused.is_err(), "‖x_0‖ = {bad}: {refused:?}");
    }
}

#[test]
fn a_loss_below_the_bound() {
    for case in CASES {
        let spec = case.spec(1.0);
        // Within one epoch, where there are epochs.
        for &steps in if spec.contains("variant=epochs") { [0].as_slice() } else { &[0, 3] } {
            let mut rule = after(&spec, steps);
            let t = steps as u64;
            for (below, loss) in [(t, 0.5), (t + 1, -1e300)] {
                let step = ask(&spec, &mut rule, &seen(below, loss, 2.0)).unwrap();
                if case.bounded {
                    assert_eq!((step.size, step.kind), (0.0, StepKind::BelowBound), "{spec}");
                } else {
                    assert!(step.size > 0.0 && step.kind == StepKind::Regular, "{spec}: {step:?}");
                }
            }
            let later = ask(&spec, &mut rule, &seen(t + 2, 5.0, 2.0)).unwrap();
            assert!(later.size > 0.0 && later.kind == StepKind::Regular, "{spec}: {later:?}");
        }
    }
}

/// However far below: the state can be kept, and the rule goes on at once.
#[test]
fn a_first_loss_far_below_the_bound() {
    for case in CASES.iter().filter(|c| c.bounded) {
        for first in [-2.0, -2e307, -f64::MAX] {
            let spec = case.spec(1.0);
            let mut rule = build(&spec);
            let below = ask(&spec, &mut rule, &seen(0, first, 2.0)).unwrap();
            assert_eq!((below.size, below.kind), (0.0, StepKind::BelowBound), "{spec}");
            let later = ask(&spec, &mut rule, &seen(1, 5.0, 2.0)).unwrap();
            assert!(later.size > 0.0 && later.kind == StepKind::Regular, "{spec}: {later:?} after {first:e}");
        }
    }
}

/// A loss that equals the bound: size 0, nothing to report, and the next step is positive.
#[test]
fn a_loss_at_the_bound() {
    for case in CASES.iter().filter(|c| c.bounded) {
        let spec = case.spec(1.0);
        let mut rule = build(&spec);
        let at = ask(&spec, &mut rule, &seen(0, 1.0, 2.0)).unwrap();
        assert_eq!((at.size, at.kind), (0.0, StepKind::Regular), "{spec}");
        assert!(ask(&spec, &mut rule, &seen(1, 5.0, 2.0)).unwrap().size > 0.0, "{spec}");
    }
}

/// `f → a·f` and `x → b·x` turn `η` into `η·b²/a`, bit for bit, so that the iterates are the same but for the factor.
/// For `polyak`, `polyak-bound`, `inexact-polyak`, `anytime-polyak`, `adaptive-polyak`, `level-polyak` and `adasps` with `c_scale`
/// nothing but the bound has to be told about the scale: with `l = 0` the spec is the same.
#[test]
fn scale_covariance() {
    for case in CASES {
        for l in [0.0, 1.0] {
            let original = case.spec(l);
            for (a, b) in
                [(4f64.powi(20), 1.0), (4f64.powi(-30), 1.0), (1.0, 2f64.powi(25)), (4.0, 2f64.powi(-9))]
            {
                let scaled = (case.spec)(a, b, l * a);
                let (mut rule, mut other) = (build(&original), build(&scaled));
                for (t, (loss, norm)) in ORDINARY.into_iter().enumerate() {
                    let one = seen(t as u64, loss, norm);
                    let two = Observation {
                        loss: Some(loss * a),
                        grad_norm: norm * a / b,
                        distance: one.distance.map(|d| d * b),
                        grad_sum: one.grad_sum.map(|s| s * a / b),
                        ..one
                    };
                    let (one, two) = (rule.step(&one).unwrap(), other.step(&two).unwrap());
                    assert_eq!(one.size * (b * b / a), two.size, "{original} and {scaled} at {t}");
                    assert_eq!((one.kind, one.from), (two.kind, two.from), "{original} and {scaled} at {t}");
                }
                let scale_free = ["polyak", "inexact", "anytime", "adaptive", "level", "adasps:c_scale"];
                if l == 0.0 && scale_free.iter().any(|name| original.starts_with(name)) {
                    assert_eq!(original, scaled);
                }
            }
        }
    }
}

/// The same at the ends of the range: gradients of 1e-170 and losses to match give the steps of ordinary ones.
#[test]
fn scale_covariance_at_the_ends_of_the_range() {
    for case in CASES.iter().filter(|c| c.bounded) {
        if case.spec(0.0).contains("grad_shift") {
            continue; // ‖g + s‖² is put together from squares
        }
        if case.spec(0.0).contains(",eps=0.1") {
            continue; // an eps that scales as ‖g‖² is 0 there
        }
        let original = case.spec(0.0);
        // f·2^-1000 and x·2^-400: gradients of 2^-600, whose squares underflow.
        for (a, b) in [(4f64.powi(-490), 2f64.powi(-400)), (4f64.powi(480), 2f64.powi(350))] {
            let scaled = (case.spec)(a, b, 0.0);
            let (mut rule, mut other) = (build(&original), build(&scaled));
            for (t, (loss, norm)) in ORDINARY.into_iter().enumerate() {
                let one = rule.step(&seen(t as u64, loss, norm)).unwrap().size * (b / a * b);
                let two = other.step(&seen(t as u64, loss * a, norm * a / b)).unwrap().size;
                assert!(
                    (one / two - 1.0).abs() < 1e-12 || one == two,
                    "{original} at {t}: {one:e} and {two:e}"
                );
            }
        }
    }
}

/// Whether the rule was made for a number of steps and refuses more.
fn has_horizon(spec: &str) -> bool {
    spec.starts_with("inexact-polyak:lower_bound") || spec.contains("variant=epochs")
}

#[test]
fn steps_past_the_horizon() {
    for case in CASES {
        let spec = case.spec(0.0);
        let mut rule = build(&spec);
        let refused = has_horizon(&spec);
        for t in [HORIZON - 1, HORIZON, HORIZON + 1, 1000 * HORIZON, u64::MAX] {
            let answer = ask(&spec, &mut rule, &seen(t, 2.0, 1.0));
            let past = t >= HORIZON;
            assert_eq!(
                matches!(answer, Err(Refusal::PastHorizon { horizon: HORIZON, .. })),
                refused && past,
                "{spec}: {answer:?}"
            );
        }
    }
}

#[test]
fn a_run_of_no_steps_can_be_built() {
    for case in CASES {
        let spec = case.spec(0.0);
        let mut rule = spec.parse::<MethodSpec>().unwrap().build_rule(&RunInfo::new(0)).unwrap();
        match ask(&spec, &mut rule, &seen(0, 2.0, 1.0)) {
            Ok(step) => assert!(step.size > 0.0, "{spec}"),
            Err(Refusal::PastHorizon { step: 0, horizon: 0, .. }) => {
                assert!(has_horizon(&spec), "{spec}");
            }
            Err(other) => panic!("{spec}: {other}"),
        }
    }
}

/// The largest numbers of steps: nothing overflows.
#[test]
fn a_run_of_very_many_steps_can_be_built() {
    for case in CASES {
        for steps in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1] {
            let spec = case.spec(0.0);
            let mut rule = spec.parse::<MethodSpec>().unwrap().build_rule(&RunInfo::new(steps)).unwrap();
            ask(&spec, &mut rule, &seen(0, 2.0, 1.0)).unwrap();
            ask(&spec, &mut rule, &seen(1, 3.0, 1.0)).unwrap();
        }
    }
}

/// A state that no rule can be in is refused when it is read, and does not panic later.
#[test]
fn a_damaged_state_is_not_read() {
    let mut rule = build("adaptive-polyak:variant=epochs,epochs=4");
    rule.step(&seen(0, 8.0, 2.0)).unwrap();
    let text = String::from_utf8(bytes(&rule)).unwrap();
    assert!(text.contains(r#""length":4"#), "{text}");
    let damaged = text.replace(r#""length":4"#, r#""length":0"#);
    assert!(serde_json::from_str::<Rule>(&damaged).is_err(), "epochs of no steps: t % 0");
    assert!(serde_json::from_str::<Rule>(&text.replace("adaptive", "adaptable")).is_err());
    assert!(serde_json::from_str::<Rule>(&text[..text.len() - 1]).is_err());
}

/// A number of any size, often an ordinary one.
fn magnitude() -> impl Strategy<Value = f64> {
    let of = |low: f64, high: f64| (low..high, 1.0..10.0f64).prop_map(|(e, m)| m * 10f64.powf(e));
    prop_oneof![6 => of(-3.0, 3.0), 2 => of(-30.0, 30.0), 1 => of(-307.0, 307.0)]
}

/// Mostly sound, now and then broken, stationary or below the bound.
fn observation() -> impl Strategy<Value = (f64, f64, f64)> {
    let special = prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, 5e-324]);
    let loss = prop_oneof![12 => magnitude(), 1 => magnitude().prop_map(|v| -v), 1 => special.clone()];
    let norm = prop_oneof![12 => magnitude(), 1 => special];
    (loss, norm, magnitude())
}

fn at(t: usize, (loss, grad_norm, distance): (f64, f64, f64)) -> Observation {
    let distance = Some(if t == 0 { 0.0 } else { distance });
    let grad_sum = Some(grad_norm / 3.0);
    Observation {
        x0_norm: Some(0.7),
        distance,
        grad_sum,
        dimension: Some(5),
        ..Observation::new(t as u64, loss, grad_norm)
    }
}

/// Equal bit for bit, NaNs in a refusal too.
fn same(a: Result<Step, Refusal>, b: Result<Step, Refusal>) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Writing a rule out and reading it back at any moment changes none of the later steps.
    #[test]
    fn resume(
        case in 0..CASES.len(),
        observations in prop::collection::vec(observation(), 1..16),
        cut in 0usize..16,
        l in prop_oneof![Just(0.0), -3.0..3.0f64],
    ) {
        let spec = CASES[case].spec(l);
        let (mut whole, mut cut_in_two) = (build(&spec), build(&spec));
        for (t, &o) in observations.iter().enumerate() {
            if t == cut {
                cut_in_two = serde_json::from_slice(&bytes(&cut_in_two)).unwrap();
            }
            let (a, b) = (ask(&spec, &mut whole, &at(t, o)), cut_in_two.step(&at(t, o)));
            prop_assert!(same(a, b), "{}: {:?} and {:?}", spec, a, b);
        }
        prop_assert_eq!(bytes(&whole), bytes(&cut_in_two));
    }

    /// The sizes of DecSPS and AdaSPS never increase, apart from steps whose numerator is 0.
    #[test]
    fn decreasing_sizes(
        observations in prop::collection::vec((magnitude(), magnitude()), 1..200),
        spec in prop::sample::select(vec![
            "decsps", "decsps:c0=5,gamma=0.1", "decsps:grad_shift=0.1", "adasps", "adasps:c_scale=7", "adasps:c_p=1",
            "decsps:lower_bound=1", "adasps:lower_bound=1",
        ]),
    ) {
        let mut rule = build(spec);
        let mut last = f64::INFINITY;
        for (t, &(loss, norm)) in observations.iter().enumerate() {
            let Ok(step) = ask(spec, &mut rule, &seen(t as u64, loss, norm)) else { continue };
            if !spec.contains("bound=1") || loss > 1.0 {
                prop_assert!(step.size <= last, "{}: {} after {}", spec, step.size, last);
                last = step.size;
            }
        }
    }
}

/// `‖g + s‖²` is never formed where it leaves the range: (1e300)/(1e200)² is 1e-100.
#[test]
fn a_shifted_gradient_whose_square_leaves_the_range() {
    let mut rule = build("decsps:grad_shift=1e-4");
    let huge = seen(0, 1e300, 1e200);
    assert!((rule.step(&huge).unwrap().size / 1e-100 - 1.0).abs() < 1e-12);
    let mut rule = build("decsps:grad_shift=1e-170,gamma=1e300");
    let tiny = seen(0, 1e-200, 1e-170);
    assert!((rule.step(&tiny).unwrap().size / 2.5e139 - 1.0).abs() < 1e-12, "1e-200/(2e-170)²");
}
