//! The first steps of every rule and every option, computed by hand from the formulas.

#![allow(clippy::unwrap_used)]

use untuned::rules::Rule;
use untuned::{MethodSpec, Observation, Point, Refusal, RunInfo, SpecError, Step, StepKind, StepRule};

fn rule(spec: &str, steps: u64) -> Rule {
    build(spec, RunInfo::new(steps)).unwrap()
}

fn build(spec: &str, run: RunInfo) -> Result<Rule, SpecError> {
    spec.parse::<MethodSpec>().unwrap().build_rule(&run)
}

/// One step at `t` with this loss and gradient norm.
fn step(rule: &mut Rule, t: u64, loss: f64, grad_norm: f64) -> Step {
    rule.step(&Observation::new(t, loss, grad_norm)).unwrap()
}

fn size(rule: &mut Rule, t: u64, loss: f64, grad_norm: f64) -> f64 {
    step(rule, t, loss, grad_norm).size
}

/// Equal but for the last bits, where the hand's value has a root in it.
#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() <= 4.0 * f64::EPSILON * want.abs(), "{got} is not {want}");
}

#[test]
fn gd() {
    for spec in ["gd:lr=0.5", "sgd:lr=0.5"] {
        let mut r = rule(spec, 10);
        assert_eq!(step(&mut r, 0, 7.0, 2.0), Step { size: 0.5, from: Point::Here, kind: StepKind::Regular });
        assert_eq!(size(&mut r, 1, -7.0, 1e9), 0.5);
    }
}

#[test]
fn clipped_gd() {
    let mut r = rule("clipped-gd:lr=0.5,threshold=4", 10);
    assert_eq!(size(&mut r, 0, 7.0, 8.0), 0.25, "0.5 · min(1, 4/8)");
    assert_eq!(size(&mut r, 1, 7.0, 4.0), 0.5, "0.5 · min(1, 4/4)");
    assert_eq!(size(&mut r, 2, 7.0, 2.0), 0.5, "0.5 · min(1, 4/2)");
    let mut r = rule("clipped-sgd:lr=0.5,threshold=inf", 10);
    assert_eq!(size(&mut r, 0, 7.0, 1e300), 0.5, "no clipping");
}

#[test]
fn polyak() {
    let mut r = rule("polyak:f_star=1", 10);
    assert_eq!(size(&mut r, 0, 7.0, 2.0), 1.5, "(7 − 1)/4");
    assert_eq!(size(&mut r, 1, 3.0, 0.5), 8.0, "(3 − 1)/0.25");
    let at_the_minimum = step(&mut r, 2, 1.0, 0.5);
    assert_eq!((at_the_minimum.size, at_the_minimum.kind), (0.0, StepKind::Regular), "(1 − 1)/0.25");

    let known = RunInfo { steps: 10, f_star: Some(3.0) };
    assert_eq!(size(&mut build("polyak", known).unwrap(), 0, 7.0, 2.0), 1.0, "(7 − 3)/4");
    assert_eq!(size(&mut build("polyak:f_star=-1", known).unwrap(), 0, 7.0, 2.0), 2.0, "the spec goes first");
    let unknown = build("polyak", RunInfo::new(10)).unwrap_err();
    assert!(matches!(unknown, SpecError::Unfit { owner: "polyak", .. }), "{unknown:?}");
    assert!(unknown.to_string().contains("f_star"), "{unknown}");
}

#[test]
fn polyak_bound() {
    assert_eq!(size(&mut rule("polyak-bound", 10), 0, 7.0, 2.0), 1.75, "7/4");
    let mut r = rule("polyak-bound:lower_bound=-1", 10);
    assert_eq!(size(&mut r, 0, 7.0, 2.0), 2.0, "(7 + 1)/4");
    assert_eq!(size(&mut r, 1, -0.5, 0.5), 2.0, "(−0.5 + 1)/0.25");
}

#[test]
fn inexact_polyak() {
    let mut r = rule("inexact-polyak:lower_bound=-1", 16);
    assert_eq!(size(&mut r, 0, 7.0, 2.0), 0.5, "(7 + 1)/(√16 · 4)");
    assert_eq!(size(&mut r, 1, 7.0, 1.0), 2.0, "(7 + 1)/(√16 · 1): √T, whatever t is");
    assert_eq!(size(&mut r, 15, 3.0, 2.0), 0.25, "(3 + 1)/(√16 · 4), the last step");
    near(size(&mut rule("inexact-polyak", 2), 0, 7.0, 2.0), 7.0 / (4.0 * 2f64.sqrt()));
}

#[test]
fn inexact_polyak_past_its_horizon() {
    let past = Observation::new(16, 10.0, 1.0);
    for spec in ["inexact-polyak", "inexact-polyak:extend=never"] {
        let mut r = rule(spec, 16);
        assert_eq!(size(&mut r, 15, 10.0, 1.0), 2.5, "10/4");
        let refused = r.step(&past).unwrap_err();
        assert!(matches!(refused, Refusal::PastHorizon { step: 16, horizon: 16, .. }), "{refused:?}");
        assert!(refused.to_string().contains("extend=keep"), "says what to write: {refused}");
    }
    let mut keep = rule("inexact-polyak:extend=keep", 16);
    assert_eq!(keep.step(&past).unwrap().size, 2.5, "10/√16");
    assert_eq!(size(&mut keep, 24, 10.0, 1.0), 2.5, "10/√16");
    let mut grow = rule("inexact-polyak:extend=grow", 16);
    assert_eq!(size(&mut grow, 3, 10.0, 1.0), 2.5, "10/√16: within the horizon nothing grows");
    assert_eq!(size(&mut grow, 15, 10.0, 1.0), 2.5, "10/√16, the last step of the horizon");
    near(grow.step(&past).unwrap().size, 10.0 / 17f64.sqrt());
    assert_eq!(size(&mut grow, 24, 10.0, 1.0), 2.0, "10/√25");
}

/// A horizon of 0 steps: nothing may be divided by √0.
#[test]
fn inexact_polyak_with_an_empty_horizon() {
    let seen = Observation::new(0, 10.0, 1.0);
    let refused = rule("inexact-polyak", 0).step(&seen).unwrap_err();
    assert!(matches!(refused, Refusal::PastHorizon { step: 0, horizon: 0, .. }), "{refused:?}");
    assert_eq!(rule("inexact-polyak:extend=keep", 0).step(&seen).unwrap().size, 10.0, "as for T = 1");
    assert_eq!(rule("inexact-polyak:extend=grow", 0).step(&seen).unwrap().size, 10.0, "10/√1");
}

#[test]
fn decsps() {
    let mut r = rule("decsps", 10);
    assert_eq!(size(&mut r, 0, 8.0, 2.0), 2.0, "min{{8/4, 1·10}}/1");
    near(size(&mut r, 1, 9.0, 3.0), 1.0 / 2f64.sqrt()); // min{9/9, 1·2}/√2
    near(size(&mut r, 2, 32.0, 2.0), 1.0 / 3f64.sqrt()); // min{32/4, √2·1/√2 = 1}/√3
    assert_eq!(size(&mut r, 3, 1.0, 4.0), 0.03125, "min{{1/16, 1}}/√4");
}

#[test]
fn decsps_options() {
    let mut r = rule("decsps:c0=2,gamma=0.25", 10);
    assert_eq!(size(&mut r, 0, 8.0, 2.0), 0.25, "min{{8/4, 2·0.25}}/2: the first step is at most γ");
    near(size(&mut r, 1, 1.0, 2.0), 0.125 / 2f64.sqrt()); // min{1/4, 2·0.25 = 0.5}/(2√2)
    near(size(&mut r, 2, 5.0, 1.0), 0.125 / 3f64.sqrt()); // min{5, 2√2·0.125/√2 = 0.25}/(2√3)
    assert_eq!(size(&mut r, 3, 5.0, 1.0), 0.0625, "min{{5, 0.25}}/(2√4)");
    let mut r = rule("decsps:c0=2", 10);
    assert_eq!(size(&mut r, 0, 8.0, 0.5), 10.0, "min{{8/0.25 = 32, 2·10 = 20}}/2");
    let mut r = rule("decsps:lower_bound=-1", 10);
    assert_eq!(size(&mut r, 0, 7.0, 4.0), 0.5, "min{{8/16, 10}}/1");
}

/// g = (3, 4), each entry shifted by 1: ‖(4, 5)‖² = 16 + 25 = 41.
#[test]
fn decsps_with_a_shifted_gradient() {
    let mut r = rule("decsps:grad_shift=1", 10);
    assert!(r.needs().grad_sum);
    let seen = Observation { grad_sum: Some(7.0), dimension: Some(2), ..Observation::new(0, 82.0, 5.0) };
    near(r.step(&seen).unwrap().size, 2.0);
    // Without the sum there is no answer.
    let refused = r.step(&Observation::new(1, 82.0, 5.0)).unwrap_err();
    assert_eq!(refused, Refusal::Missing { step: 1, what: "grad_sum" });
    assert!(!rule("decsps:grad_shift=0", 10).needs().grad_sum, "nobody pays for what is not used");
}

#[test]
fn adasps() {
    let mut r = rule("adasps", 10); // c_p = 1/√9
    near(size(&mut r, 0, 9.0, 3.0), 1.0); // 9·3/(9 · √9): Polyak's step
    near(size(&mut r, 1, 16.0, 8.0), 0.15); // 16·3/(64 · √25)
    near(size(&mut r, 2, 11.0, 1.0), 0.15); // min{11·3/(1 · √36) = 5.5, 0.15}
    near(size(&mut r, 3, 28.0, 20.0), 0.02625); // 28·3/(400 · √64)
}

#[test]
fn adasps_options() {
    let mut r = rule("adasps:c_scale=2,lower_bound=-7", 10); // f − l = 9, c_p = 2/3
    near(size(&mut r, 0, 2.0, 3.0), 0.5); // 9·3/(2 · 9 · √9)
    near(size(&mut r, 1, 9.0, 8.0), 0.075); // f − l = 16: 16·3/(2 · 64 · √25)
    let mut r = rule("adasps:c_p=0.5", 10);
    near(size(&mut r, 0, 4.0, 2.0), 1.0); // 4/(0.5 · 4 · √4)
    near(size(&mut r, 1, 5.0, 1.0), 1.0); // min{5/(0.5 · 1 · √9) = 10/3, 1}
    near(size(&mut r, 2, 16.0, 8.0), 0.1); // 16/(0.5 · 64 · √25)
    let both = build("adasps:c_scale=2,c_p=1", RunInfo::new(10)).unwrap_err();
    assert!(both.to_string().contains("c_scale") && both.to_string().contains("c_p"), "{both}");
}

fn seen_at(t: u64, distance: f64, grad_norm: f64) -> Observation {
    Observation { x0_norm: Some(3.0), distance: Some(distance), ..Observation::new(t, 7.0, grad_norm) }
}

#[test]
fn dog() {
    let mut r = rule("dog:eps_rel=0.5,eps=7", 10);
    let mut size = |t, distance, grad_norm| r.step(&seen_at(t, distance, grad_norm)).unwrap().size;
    assert_eq!(size(0, 0.0, 3.0), 0.5, "r̄ = 0.5·(1 + 3) = 2, G = 9 + 7");
    assert_eq!(size(1, 5.0, 3.0), 1.0, "r̄ = 5, G = 16 + 9");
    near(size(2, 1.0, 12.0), 5.0 / 13.0); // r̄ stays 5; G = 25 + 144 = 169
}

#[test]
fn dog_options() {
    let mut r = rule("dog:eps_rel=0.5,eps=16,eps_each=yes", 10);
    near(r.step(&seen_at(0, 0.0, 3.0)).unwrap().size, 0.4); // 2/√(9 + 16)
    near(r.step(&seen_at(1, 5.0, 20.0)).unwrap().size, 5.0 / 21.0); // 5/√(25 + 400 + 16 = 441)
    let mut r = rule("dog:eps_rel=0.5,eps=16,eps_each=no", 10);
    near(r.step(&seen_at(0, 0.0, 3.0)).unwrap().size, 0.4); // 2/√(9 + 16)
    near(r.step(&seen_at(1, 5.0, 12.0)).unwrap().size, 5.0 / 13.0); // 5/√(25 + 144)
    let mut r = rule("dog:eps_rel=0.5,eps=0", 10);
    near(r.step(&seen_at(0, 0.0, 4.0)).unwrap().size, 0.5); // 2/√16
    // By default r̄_0 = 1e-6·(1 + 3), and G = 1 + 1e-8.
    near(rule("dog", 10).step(&seen_at(0, 0.0, 1.0)).unwrap().size, 4e-6 / (1.0f64 + 1e-8).sqrt());
    assert!(rule("dog", 10).needs().distance);
    assert!(rule("dog", 10).needs().x0_norm);
    for (seen, what) in [
        (Observation { distance: None, ..seen_at(4, 0.0, 1.0) }, "distance"),
        (Observation { x0_norm: None, ..seen_at(4, 0.0, 1.0) }, "x0_norm"),
    ] {
        let refused = rule("dog", 10).step(&seen).unwrap_err();
        assert_eq!(refused, Refusal::Missing { step: 4, what });
    }

    let mut r = rule("dog:lr=0.5,first_step=0.25,eps=7", 10);
    assert_eq!(r.step(&seen_at(0, 0.0, 3.0)).unwrap().size, 0.25, "as given, without lr");
    assert_eq!(r.step(&seen_at(1, 5.0, 3.0)).unwrap().size, 0.5, "0.5 · 5/√(7 + 9 + 9)");
    let both = build("dog:eps_rel=0.1,first_step=1", RunInfo::new(10)).unwrap_err();
    assert!(both.to_string().contains("eps_rel") && both.to_string().contains("first_step"), "{both}");
}

#[test]
fn dowg() {
    // By default r̄_0² = eps = 1e-4.
    near(rule("dowg", 10).step(&seen_at(0, 0.0, 1.0)).unwrap().size, 1e-4 / (0.01 + 1e-4));
    let mut r = rule("dowg:lr=0.5,r2=4,eps=2", 10);
    assert_eq!(r.step(&seen_at(0, 0.0, 3.0)).unwrap().size, 0.25, "0.5 · 4/(√(4 · 9) + 2)");
    near(r.step(&seen_at(1, 4.0, 2.0)).unwrap().size, 0.5 * 16.0 / 12.0); // √(36 + 16 · 4) + 2
    near(r.step(&seen_at(2, 1.0, 0.0)).unwrap().size, 0.0);
    near(r.step(&seen_at(3, 1.0, 6.0)).unwrap().size, 0.5 * 16.0 / 28.0); // √(100 + 16 · 36) + 2: r̄ stays
    assert!(rule("dowg", 10).needs().distance);
    let refused = rule("dowg", 10).step(&Observation::new(4, 7.0, 1.0)).unwrap_err();
    assert_eq!(refused, Refusal::Missing { step: 4, what: "distance" });
    let nothing = build("dowg:eps=0", RunInfo::new(10)).unwrap_err();
    assert!(nothing.to_string().contains("r2"), "{nothing}");
    near(rule("dowg:eps=0,r2=4", 10).step(&seen_at(0, 0.0, 8.0)).unwrap().size, 0.25); // 4/√(4 · 64)
}

#[test]
fn sps_max() {
    let mut r = rule("sps-max:eps=0", 10);
    near(size(&mut r, 0, 8.0, 4.0), 1.0); // 8/(0.5 · 16)
    near(size(&mut r, 1, 8.0, 0.01), 160_000.0); // 8/(0.5 · 1e-4): no cap
    let mut r = rule("sps-max:c=0.25,max_step=2,eps=3,lower_bound=-1", 10);
    near(size(&mut r, 0, 6.0, 4.0), 1.0); // (6 + 1)/(0.25 · 16 + 3)
    assert_eq!(size(&mut r, 1, 6.0, 2.0), 1.75, "(6 + 1)/(0.25 · 4 + 3)");
    assert_eq!(size(&mut r, 2, 60.0, 2.0), 2.0, "61/4 is beyond the cap");
    // ∞/∞ is no candidate, and no cap either.
    let mut r = rule("sps-max:c=1e10,max_step=2,lower_bound=-1e308", 10);
    let refused = r.step(&Observation::new(0, 1.7e308, 1.7e308)).unwrap_err();
    assert!(matches!(refused, Refusal::Overflow { .. }), "{refused:?}");
}

#[test]
fn sps_max_with_a_smooth_cap() {
    let mut r = rule("sps-max:cap=smooth,c=1,first_step=1,gamma=4,epoch=2,eps=0", 10); // grows by √4 a step
    assert_eq!(size(&mut r, 0, 9.0, 1.0), 2.0, "2 · 1 and not 9/1");
    assert_eq!(size(&mut r, 1, 9.0, 1.0), 4.0, "2 · 2");
    let below = step(&mut r, 2, -1.0, 1.0);
    assert_eq!((below.size, below.kind), (0.0, StepKind::BelowBound));
    assert_eq!(size(&mut r, 3, 3.0, 1.0), 3.0, "3/1 and not 2 · 4: the step of size 0 is not remembered");
    assert_eq!(size(&mut r, 4, 9.0, 1.0), 6.0, "2 · 3");
    assert_eq!(size(&mut r, 5, 1e-300, 1e100), 0.0, "1e-500 is no float");
    assert_eq!(size(&mut r, 6, 99.0, 1.0), 12.0, "2 · 6: that 0 is not remembered either");
    // By default the factor is 2 in 500 steps.
    near(size(&mut rule("sps-max:cap=smooth", 10), 0, 9.0, 1.0), 2f64.powf(1.0 / 500.0));
    for (spec, other) in [
        ("sps-max:cap=smooth,max_step=1", "cap=constant"),
        ("sps-max:gamma=3", "cap=smooth"),
        ("sps-max:cap=constant,epoch=2", "cap=smooth"),
        ("sps-max:first_step=2", "cap=smooth"),
    ] {
        let wrong = build(spec, RunInfo::new(10)).unwrap_err();
        assert!(wrong.to_string().contains(other), "{spec}: {wrong}");
    }
}

#[test]
fn ali_g() {
    let mut r = rule("ali-g:eps=7,max_lr=0.5", 10);
    assert_eq!(size(&mut r, 0, 4.0, 3.0), 0.25, "4/(9 + 7)");
    assert_eq!(size(&mut r, 1, 32.0, 3.0), 0.5, "32/16 is beyond the largest step");
    near(size(&mut rule("ali-g:lower_bound=1", 10), 0, 4.0, 2.0), 3.0 / (4.0 + 1e-5));
}

#[test]
fn anytime_polyak() {
    let mut r = rule("anytime-polyak:lower_bound=-1", 1);
    assert_eq!(size(&mut r, 0, 7.0, 2.0), 2.0, "(7 + 1)/(√1 · 4)");
    near(size(&mut r, 1, 7.0, 2.0), 2.0 / 2f64.sqrt());
    near(size(&mut r, 2, 7.0, 2.0), 2.0 / 3f64.sqrt());
    assert_eq!(size(&mut r, 3, 7.0, 2.0), 1.0, "(7 + 1)/(√4 · 4); there is no horizon");
    assert_eq!(size(&mut rule("anytime-polyak", 1), 3, 7.0, 2.0), 0.875, "7/(√4 · 4)");
}

#[test]
fn adaptive_polyak_continuous() {
    for spec in ["adaptive-polyak", "adaptive-polyak:variant=continuous"] {
        let mut r = rule(spec, 10);
        assert!(r.needs().best);
        let full = step(&mut r, 0, 8.0, 2.0);
        assert_eq!((full.size, full.from), (2.0, Point::Here), "8/4");
        let better = step(&mut r, 1, 6.0, 1.0);
        assert_eq!((better.size, better.from), (6.0, Point::Here), "6/1");
        let worse = step(&mut r, 2, 7.0, 5.0);
        assert_eq!((worse.size, worse.from), (3.0, Point::Best), "f̃ = (6 + 0)/2 = 3; (6 − 3)/1²");
        // No better: f̃ = (6 + 3)/2 = 4.5. The tie makes the later point the best one: (6 − 4.5)/3².
        let tie = step(&mut r, 3, 6.0, 3.0);
        assert_eq!((tie.size, tie.from), (1.5 / 9.0, Point::Best));
        // Below f̃, which was 1.5 below 6: now 16 · 1.5 below 4, and not below 0.
        let below = step(&mut r, 4, 4.0, 1.0);
        assert_eq!((below.size, below.from), (4.0, Point::Here), "4/1");
        let worse = step(&mut r, 5, 5.0, 1.0);
        assert_eq!((worse.size, worse.from), (2.0, Point::Best), "f̃ = (4 + 0)/2; (4 − 2)/1");
        // A loss that reaches f̃ disproves it too: 16 · 2 below 2, and not below 0.
        let reached = step(&mut r, 6, 2.0, 1.0);
        assert_eq!((reached.size, reached.kind), (2.0, StepKind::Regular), "2/1");
    }
    assert_eq!(size(&mut rule("adaptive-polyak:lower_bound=2", 10), 0, 8.0, 2.0), 1.5, "(8 − 2)/4");
}

#[test]
fn level_polyak() {
    let mut r = rule("level-polyak:lower_bound=-2", 10);
    assert_eq!(size(&mut r, 0, 8.0, 2.0), 2.5, "δ = 8 + 2 = 10, f̃ = −2: (8 + 2)/4");
    assert_eq!(size(&mut r, 1, 7.0, 2.0), 2.25, "better, but not by δ/2 = 5: f̃ stays, (7 + 2)/4");
    assert_eq!(size(&mut r, 2, 9.0, 1.0), 11.0, "worse, once: (9 + 2)/1");
    assert_eq!(
        size(&mut r, 3, 7.0, 1.0),
        4.5,
        "no better, twice: δ = (7 + 2)/2 = 4.5, f̃ = 7 − 4.5 = 2.5, (7 − 2.5)/1"
    );
    assert_eq!(size(&mut r, 4, 7.5, 1.0), 5.0, "worse, once again: (7.5 − 2.5)/1");
    assert_eq!(size(&mut r, 5, 6.0, 1.0), 3.5, "better, but not by δ/2 = 2.25: (6 − 2.5)/1");
    assert_eq!(size(&mut r, 6, 8.0, 1.0), 5.5, "worse, and the failure before 6 is forgotten: (8 − 2.5)/1");
    assert_eq!(
        size(&mut r, 7, 4.5, 1.0),
        6.5,
        "7 − 4.5 = 2.5 is more than δ/2: δ = 9, f̃ = max(−2, 4.5 − 9), (4.5 + 2)/1"
    );
    assert_eq!(
        size(&mut r, 8, 0.5, 1.0),
        2.5,
        "4.5 − 0.5 = 4 is more than half of 4.5 + 2: f̃ = −2 again, (0.5 + 2)/1"
    );
    let below = step(&mut r, 9, -3.0, 1.0);
    assert_eq!((below.size, below.kind), (0.0, StepKind::BelowBound));
}

/// A loss that is the best one again has not improved: two of them halve δ, as the first and as the second of the two.
#[test]
fn level_polyak_takes_a_tie_for_a_failure() {
    let mut r = rule("level-polyak", 10);
    assert_eq!(size(&mut r, 0, 8.0, 1.0), 8.0, "δ = 8, f̃ = 0");
    assert_eq!(size(&mut r, 1, 8.0, 1.0), 8.0, "the same, once");
    assert_eq!(size(&mut r, 2, 8.0, 1.0), 4.0, "twice: δ = 4, f̃ = 4, (8 − 4)/1");
    assert_eq!(size(&mut r, 3, 8.0, 1.0), 4.0, "the same, once");
    assert_eq!(size(&mut r, 4, 9.0, 1.0), 3.0, "worse, twice: δ = 2, f̃ = 6, (9 − 6)/1");
    assert_eq!(size(&mut r, 5, 7.0, 1.0), 4.0, "better by just half of δ: δ = 4, f̃ = 3, (7 − 3)/1");
}

#[test]
fn adaptive_polyak_epochs_from_the_origin() {
    for spec in
        ["adaptive-polyak:variant=epochs,epochs=3", "adaptive-polyak:variant=epochs,epochs=3,restart=origin"]
    {
        let mut r = rule(spec, 6); // epochs of 2 steps
        assert!(r.needs().origin && !r.needs().best);
        assert_eq!(size(&mut r, 0, 8.0, 2.0), 1.0, "8/(2·4)");
        assert_eq!(size(&mut r, 1, 4.0, 1.0), 2.0, "4/(2·1)");
        // The best of 8, 4, 6 is 4, so f̃ = 2: (8 − 2)/(2·4) from x_0.
        let second = step(&mut r, 2, 6.0, 1.0);
        assert_eq!((second.size, second.from), (0.75, Point::Origin));
        assert_eq!(size(&mut r, 3, 5.0, 1.0), 1.5, "(5 − 2)/(2·1)");
        // The best of x_0, 5, 3 is 3, and the 4 of the first epoch does not count: f̃ = 2.5; (8 − 2.5)/(2·4).
        let third = step(&mut r, 4, 3.0, 1.0);
        assert_eq!((third.size, third.from), (0.6875, Point::Origin));
    }
}

#[test]
fn adaptive_polyak_epochs_from_the_best() {
    let mut r = rule("adaptive-polyak:variant=epochs,epochs=3,restart=best,lower_bound=-2", 6);
    assert!(r.needs().best && !r.needs().origin);
    assert_eq!(size(&mut r, 0, 8.0, 2.0), 1.25, "(8 + 2)/(2·4)");
    assert_eq!(size(&mut r, 1, 4.0, 2.0), 0.75, "(4 + 2)/(2·4)");
    // f̃ = (4 − 2)/2 = 1: (4 − 1)/(2·2²) from the best.
    let second = step(&mut r, 2, 6.0, 1.0);
    assert_eq!((second.size, second.from), (0.375, Point::Best));
    assert_eq!(size(&mut r, 3, 5.0, 1.0), 2.0, "(5 − 1)/(2·1)");
    // The epoch started at 4 and saw 5 and 6: f̃ = (4 + 1)/2 = 2.5; (4 − 2.5)/(2·4).
    let third = step(&mut r, 4, 6.0, 1.0);
    assert_eq!((third.size, third.from), (0.1875, Point::Best));
}

/// The catalog says: log2(T), rounded up. T = 9: 4 epochs of ⌈9/4⌉ = 3 steps. T = 16: 4 epochs of 4. T = 1: one epoch.
#[test]
fn adaptive_polyak_chooses_the_number_of_epochs() {
    for (steps, length) in [(9, 3), (16, 4), (8, 3), (1000, 100), (1024, 103)] {
        let mut r = rule("adaptive-polyak:variant=epochs", steps);
        let restart = (0..=length).find(|&t| step(&mut r, t, 8.0, 2.0).from == Point::Origin);
        assert_eq!(restart, Some(length), "T = {steps}");
    }
    // One epoch: nothing starts again.
    for steps in [1, 2] {
        let mut r = rule("adaptive-polyak:variant=epochs", steps);
        assert!((0..steps).all(|t| step(&mut r, t, 8.0, 2.0).from == Point::Here), "T = {steps}");
    }
}

#[test]
fn adaptive_polyak_options_that_do_not_fit() {
    for key in ["epochs=3", "restart=best"] {
        let wrong = build(&format!("adaptive-polyak:{key}"), RunInfo::new(10)).unwrap_err();
        assert!(wrong.to_string().contains("variant=epochs"), "{wrong}");
    }
}
