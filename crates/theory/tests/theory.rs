//! The paper's theory, held against runs.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use untuned::{Function, Known, MethodSpec, Minimizer, Problem, Run, RunInfo};
use untuned_theory::bounds::{
    Constants, Speaks, theorem_1, theorem_1_rule, theorem_2_rule, theorem_3, theorem_4, theorem_5,
};
use untuned_theory::explain::{Accuracy, Explainer, Explanation, Judgement};
use untuned_theory::inequalities::{Gap, Pair, assumption_2, proposition_3, proposition_3_pair};
use untuned_theory::probe::{Line, Probe};
use untuned_theory::problems::Quartic;

fn explain<P: Problem>(problem: &P, rule: &str, lower_bound: f64, steps: u64) -> (Explanation, Run) {
    let spec: MethodSpec = rule.parse().unwrap();
    explain_spec(problem, &spec, lower_bound, steps, problem.dimension() == 1)
}

fn explain_spec<P: Problem>(
    problem: &P,
    spec: &MethodSpec,
    lower_bound: f64,
    steps: u64,
    quartic: bool,
) -> (Explanation, Run) {
    let rule = spec.build(&RunInfo::of(problem, steps)).unwrap();
    let mut explainer = Explainer::new(problem, spec, lower_bound, steps);
    if quartic {
        explainer = explainer.quartic();
    }
    let run = Minimizer::new(problem).observe(&mut explainer).run(rule, &problem.start(), steps).unwrap();
    (explainer.finish(&run), run)
}

fn constants(problem: &Quartic, lower_bound: f64) -> Constants {
    let known = problem.known();
    let (l0, l1) = known.l0_l1.unwrap();
    Constants {
        l: known.l,
        l0: Some(l0),
        l1: Some(l1),
        distance: known.distance_to_minimizer(&problem.start()),
        sigma_sq: known.f_star.map(|f_star| f_star - lower_bound),
    }
}

/// The best loss over `x_0 … x_{T−1}`, from the trace and not from the explainer.
fn best_before_last(run: &Run) -> f64 {
    let rows = &run.trace[..run.trace.len() - 1];
    rows.iter().map(|row| row.loss).fold(f64::INFINITY, f64::min)
}

/// The rules of the four theorems on this problem.
fn rules(c: &Constants) -> [MethodSpec; 4] {
    [
        theorem_1_rule(c).unwrap(),
        theorem_2_rule(c).unwrap(),
        "polyak".parse().unwrap(),
        "inexact-polyak".parse().unwrap(),
    ]
}

fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.log10()..high.log10()).prop_map(|e| 10f64.powf(e))
}

/// `L1 = 0` makes the quartic a parabola, where Assumption 1, Lemma 1 and Proposition 2 are equalities.
fn l1() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 9 => log_uniform(1e-3, 1e4)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_inequality_holds_at_every_iterate(
        l0 in log_uniform(1e-3, 1e3), l1 in l1(), x0 in log_uniform(1e-3, 1e2), negative: bool,
        f_star in prop_oneof![Just(0.0), Just(1.0), log_uniform(1e-6, 1e6)], steps in 1u64..600,
    ) {
        let problem = Quartic::new(l0, l1, if negative { -x0 } else { x0 }, f_star);
        for spec in rules(&constants(&problem, 0.0)) {
            let (explanation, run) = explain_spec(&problem, &spec, 0.0, steps, true);
            prop_assert_eq!(run.last.step, steps);
            prop_assert_eq!(explanation.inequalities.len(), 8);
            for tally in &explanation.inequalities {
                prop_assert_eq!(tally.violated, 0, "{}: {:?}", &spec, tally);
                let pairs = ["Assumption 1", "Assumption 2", "Lemma 6"].contains(&tally.name);
                prop_assert_eq!(tally.checked + tally.not_applicable, steps + u64::from(!pairs));
            }
            prop_assert!(explanation.bounds.iter().all(|b| b.judgement != Judgement::Fails), "{}", explanation.text());
            prop_assert!(explanation.text().lines().all(|line| line.chars().count() <= 100), "{}", explanation.text());
        }
    }

    #[test]
    fn every_bound_holds(
        l0 in log_uniform(1e-3, 1e3), l1 in l1(), x0 in log_uniform(1e-3, 1e2),
        sigma_sq in log_uniform(1e-4, 1e4), steps in 1u64..600,
    ) {
        let problem = Quartic::new(l0, l1, x0, sigma_sq);
        let c = constants(&problem, 0.0);
        let error = |loss: f64| Gap::measured(loss, sigma_sq).error;
        let [gd, _, polyak, inexact] = rules(&c);

        let average = explain_spec(&problem, &gd, 0.0, steps, true).1.average.unwrap().loss;
        let bound = theorem_1(&c, steps).value.unwrap();
        prop_assert!(average - sigma_sq <= bound / 2.0 + error(average), "half of the constant is provable too");

        let run = explain_spec(&problem, &polyak, 0.0, steps, true).1;
        let average = run.average.as_ref().unwrap().loss;
        prop_assert!(average - sigma_sq <= theorem_3(&c, steps).value.unwrap() + error(average));
        let best = best_before_last(&run);
        prop_assert!(best - sigma_sq <= theorem_4(&c, steps).value.unwrap() + error(best));

        let best = best_before_last(&explain_spec(&problem, &inexact, 0.0, steps, true).1);
        prop_assert!(best - sigma_sq <= theorem_5(&c, steps).value.unwrap() + error(best));
    }

    #[test]
    fn proposition_3_holds_everywhere(
        l0 in log_uniform(1e-6, 1e6), l1 in l1(), x in log_uniform(1e-9, 1e6), apart in -1.0..=1.0f64,
    ) {
        prop_assert!(proposition_3(x, l0, l1).unwrap().holds());
        let y = x + if l1 == 0.0 { apart } else { apart * 0.999 / l1 };
        if let Some(check) = proposition_3_pair(x, y, l0, l1) {
            prop_assert!(check.holds(), "{:?}", check);
        } else {
            prop_assert!(x == y || (x - y).abs() * l1 > 0.99);
        }
    }

    /// Against brute force: the best line is the level one, a ray from the origin, or one through two of the points.
    #[test]
    fn the_envelope_is_above_and_as_low_as_can_be(
        points in prop::collection::vec((0.0..10.0f64, 0.0..10.0f64), 1..12), round: bool, scale in log_uniform(1e-70, 1e70),
    ) {
        // Rounded to whole numbers there are equal abscissae, collinear points and zeros.
        let points: Vec<_> = points.iter().map(|&(x, y)| if round { (x.floor(), y.floor()) } else { (x, y) }).collect();
        let mut probe = Probe::new(Some(0.0));
        for &(x, y) in &points {
            probe.push(x * scale, y / scale, 1.0);
        }
        let fit = probe.read().envelope.unwrap();
        let fit = Line { l0: fit.l0 * scale, l1: fit.l1 * scale * scale };
        let slack = |line: Line| points.iter().map(|&(x, y)| line.l0 + line.l1 * x - y).sum::<f64>();
        let above = |line: Line| line.l0 >= 0.0 && line.l1 >= 0.0
            && points.iter().all(|&(x, y)| line.l0 + line.l1 * x >= y - 1e-9);
        prop_assert!(above(fit), "{fit:?}");

        let mut candidates = vec![Line { l0: points.iter().map(|p| p.1).fold(0.0, f64::max), l1: 0.0 }];
        for &(x, y) in &points {
            candidates.push(Line { l0: 0.0, l1: y / x });
            for &(v, w) in &points {
                let l1 = (w - y) / (v - x);
                candidates.push(Line { l0: y - l1 * x, l1 });
            }
        }
        let least = candidates.into_iter().filter(|line| above(*line)).map(slack).fold(f64::INFINITY, f64::min);
        prop_assert!(slack(fit) <= least + 1e-6 * (1.0 + least), "{} instead of {least}", slack(fit));
    }

    #[test]
    fn the_probe_recovers_known_constants(
        l0 in log_uniform(1e-3, 1e3), l1 in log_uniform(1e-3, 1e3), below in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 1..40),
    ) {
        // The ends of the range lie on the line, everything else on or below it; all steps are short enough.
        let mut probe = Probe::new(None);
        for (at, share) in below.into_iter().chain([(0.0, 1.0), (1.0, 1.0)]) {
            let norm = at * 100.0 * l0 / l1;
            probe.push(norm, (l0 + l1 * norm) * share, 1e-6 / l1);
        }
        let reading = probe.read();
        let line = reading.envelope.unwrap();
        prop_assert!((line.l0 / l0 - 1.0).abs() < 1e-9 && (line.l1 / l1 - 1.0).abs() < 1e-9, "{line:?}");
        let clipping = reading.clipping().unwrap();
        prop_assert!((clipping.lr * l0 - 1.0).abs() < 1e-9);
        prop_assert!((clipping.threshold.unwrap() * l1 / l0 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_probe_takes_anything(points in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 0..20), l1 in prop::option::of(0.0..2.0f64)) {
        let mut probe = Probe::new(l1);
        for (norm, smoothness, length) in points {
            probe.push(norm.abs(), smoothness, length.abs());
        }
        let reading = probe.read();
        for line in reading.envelope.iter().chain(reading.regression.iter().map(|r| &r.line)) {
            prop_assert!(line.l0.is_finite() && line.l1.is_finite());
        }
        prop_assert!(reading.envelope.is_none_or(|line| line.l0 >= 0.0 && line.l1 >= 0.0));
        prop_assert!(reading.regression.is_none_or(|r| r.correlation.is_none_or(|c| c.abs() <= 1.0)));
        prop_assert!(reading.clipping().is_none_or(|c| c.lr.is_finite()));
    }
}

/// The tests above can fail: with its constants divided by a hundred every bound is broken by some run.
#[test]
fn smaller_constants_are_refuted() {
    let mut broken = [false; 4];
    for l1 in [0.01, 0.1, 1.0, 10.0] {
        for steps in [1, 2, 10, 100] {
            let problem = Quartic::new(1.0, l1, 5.0, 1.0);
            let c = constants(&problem, 0.0);
            let [gd, _, polyak, inexact] = rules(&c);
            let run = |spec| explain_spec(&problem, spec, 0.0, steps, true).1;
            let (gd, polyak, inexact) = (run(&gd), run(&polyak), run(&inexact));
            let gaps = [
                (gd.average.unwrap().loss, theorem_1(&c, steps)),
                (polyak.average.as_ref().unwrap().loss, theorem_3(&c, steps)),
                (best_before_last(&polyak), theorem_4(&c, steps)),
                (best_before_last(&inexact), theorem_5(&c, steps)),
            ];
            for (broken, (loss, bound)) in broken.iter_mut().zip(gaps) {
                *broken |= loss - 1.0 > bound.value.unwrap() / 100.0;
            }
        }
    }
    assert_eq!(broken, [true; 4]);
}

/// And the inequalities are refuted where the problem claims constants that are too small: 0.3·L, or 0.1·L0 and 0.1·L1.
#[test]
fn wrong_constants_are_found() {
    let honest = Quartic::new(1.0, 10.0, 5.0, 1.0);
    let lying = |l: f64, l0: f64, l1: f64| {
        let known = Known {
            l: honest.known().l.map(|v| l * v),
            l0_l1: Some((l0, 10.0 * l1)),
            ..honest.known().clone()
        };
        let quartic = honest.clone();
        Function::new(honest.start(), move |x: &[f64], g: &mut [f64]| quartic.value_and_gradient(x, g))
            .with(known)
    };
    let violated = |problem: &dyn Problem, name: &str| {
        let spec: MethodSpec = "polyak".parse().unwrap();
        let rule = spec.build(&RunInfo::of(problem, 100)).unwrap();
        let mut explainer = Explainer::new(problem, &spec, 0.0, 100).quartic();
        let run = Minimizer::new(problem).observe(&mut explainer).run(rule, &problem.start(), 100).unwrap();
        explainer.finish(&run).inequalities.into_iter().find(|t| t.name == name).unwrap().violated
    };
    for name in ["Assumption 1", "Lemma 1", "Prop. 2"] {
        assert_eq!(violated(&lying(1.0, 1.0, 1.0), name), 0);
        assert!(violated(&lying(0.3, 1.0, 1.0), name) > 0, "{name}");
    }
    for name in ["Assumption 2", "Lemma 2", "Lemma 6", "Prop. 1"] {
        assert_eq!(violated(&lying(1.0, 1.0, 1.0), name), 0);
        assert!(violated(&lying(1.0, 0.1, 0.1), name) > 0, "{name}");
    }
}

#[test]
fn bounds_by_rule() {
    let problem = Quartic::new(1.0, 1.0, 5.0, 1.0);
    let names = |rule: &str| -> Vec<(&str, Speaks)> {
        explain(&problem, rule, 0.0, 50).0.bounds.iter().map(|b| (b.bound.name, b.bound.speaks)).collect()
    };
    use Speaks::{Average, Best, Last};
    assert_eq!(names("gd:lr=0.1"), [("Theorem 1", Average)]);
    assert_eq!(names("clipped-gd:lr=1,threshold=1"), [("Theorem 2", Average)]);
    assert_eq!(
        names("polyak"),
        [
            ("Theorem 3", Average),
            ("Theorem 4", Best),
            ("Polyak, G-Lipschitz", Best),
            ("Polyak, µ-convex", Last)
        ]
    );
    assert_eq!(names("inexact-polyak"), [("Lemma 4", Best), ("Theorem 5", Best)]);
    assert_eq!(names("decsps"), [("Table 1, DecSPS", Average)]);
    assert_eq!(names("adasps"), [("Table 1, AdaSPS", Average)]);
    assert_eq!(names("dog"), []);
    assert!(explain(&problem, "dog", 0.0, 50).0.text().contains("No theorem of the paper"));
}

#[track_caller]
fn not_applying(explanation: &Explanation, name: &str, why: &str) {
    let judged = explanation.bounds.iter().find(|b| b.bound.name == name).unwrap();
    match &judged.judgement {
        Judgement::NotApplying(given) => assert!(given.contains(why), "{given}"),
        other => panic!("{name}: {other:?}"),
    }
    assert!(explanation.text().contains(why));
}

#[test]
fn other_parameters_than_the_theorems() {
    let problem = Quartic::new(1.0, 1.0, 5.0, 1.0);
    let of = |rule: &str| explain(&problem, rule, 0.0, 50).0;
    not_applying(&of("gd:lr=0.1"), "Theorem 1", "lr is 0.1, the theorem has 1/L = 0.214");
    not_applying(&of("clipped-gd:lr=1,threshold=2"), "Theorem 2", "threshold = L0/L1 = 1");
    not_applying(&of("polyak:f_star=0.5"), "Theorem 4", "f_star is 0.5, the minimum is 1");
    not_applying(&of("inexact-polyak:lower_bound=0.5"), "Theorem 5", "not l = 0");
    let above = explain(&problem, "inexact-polyak:lower_bound=2", 2.0, 50).0;
    not_applying(&above, "Theorem 5", "l = 2 is above f*");
    not_applying(&explain(&problem, "inexact-polyak", 0.0, 0).0, "Theorem 5", "at least one step");
    let diverged = explain(&problem, "gd:lr=100", 0.0, 50).0;
    assert_eq!(diverged.outcome, "diverged");
    not_applying(&diverged, "Theorem 1", "of 50 steps");
    assert_eq!(diverged.left_ball, Some(1));

    // Clipped gradient descent with the theorem's parameters: a ratio, not a verdict.
    let clipped = of("clipped-gd:lr=1,threshold=1");
    assert!(matches!(clipped.bounds[0].judgement, Judgement::RateOnly(ratio) if ratio > 0.0 && ratio < 1.0));
}

/// Lemma 4's condition: after enough steps Inexact Polyak is closer than `σ²/√T`, after one step from afar it is not.
#[test]
fn lemma_4_has_a_condition() {
    let problem = Quartic::new(1.0, 1.0, 5.0, 1.0);
    not_applying(&explain(&problem, "inexact-polyak", 0.0, 1000).0, "Lemma 4", "fell below σ²/√T");
    let early = explain(&problem, "inexact-polyak", 0.0, 3).0;
    assert!(early.bounds.iter().all(|b| b.judgement == Judgement::Holds));
    let c = constants(&problem, 0.0);
    assert_eq!(early.bounds[0].bound.value, theorem_5(&c, 3).value);
    assert_eq!(early.constants, c);
}

#[test]
fn what_is_not_known_is_said() {
    let bowl = Function::new(vec![3.0, -2.0], |x: &[f64], g: &mut [f64]| {
        g.copy_from_slice(&[2.0 * x[0], 8.0 * x[1]]);
        x[0] * x[0] + 4.0 * x[1] * x[1]
    });
    let (explanation, _) = explain(&bowl, "polyak:f_star=0", 0.0, 40);
    let text = explanation.text();
    assert!(explanation.inequalities.iter().all(|t| t.checked == 0 && t.not_known.is_some()));
    assert!(text.contains("L0, L1                not known"), "{text}");
    assert_eq!(text.matches("L not known").count(), 3, "{text}");

    // What the probe reads needs no constants: the Hessian's eigenvalues are 2 and 8.
    let line = explanation.local_smoothness.envelope.unwrap();
    assert!(line.l0 > 2.0 && line.l0 < 8.01, "{line:?}");

    let known = Known { convex: true, f_star: Some(0.0), ..Known::default() };
    let bowl = bowl.with(known);
    let (explanation, _) = explain(&bowl, "polyak", 0.0, 40);
    assert_eq!(explanation.bounds[0].judgement, Judgement::NotKnown("L, x*".to_string()));
    assert_eq!(explanation.bounds[2].judgement, Judgement::NotKnown("x*, G".to_string()));
    assert_eq!(explanation.bounds[3].judgement, Judgement::NotKnown("L, x*, µ".to_string()));
}

/// A parabola in two dimensions: everything is an equality along the steep axis, and the classic rates apply.
#[test]
fn classic_rates_of_polyak() {
    let known = Known {
        convex: true,
        f_star: Some(0.0),
        minimizer: Some(vec![0.0, 0.0]),
        l: Some(8.0),
        l0_l1: Some((8.0, 0.0)),
        strong_convexity: Some(2.0),
        ..Known::default()
    };
    let bowl = Function::new(vec![3.0, -2.0], |x: &[f64], g: &mut [f64]| {
        g.copy_from_slice(&[2.0 * x[0], 8.0 * x[1]]);
        x[0] * x[0] + 4.0 * x[1] * x[1]
    })
    .with(known);
    for steps in [1, 5, 50, 5000] {
        let (explanation, _) = explain(&bowl, "polyak", 0.0, steps);
        assert_eq!(explanation.bounds[3].judgement, Judgement::Holds, "{}", explanation.text());
        assert!(explanation.inequalities.iter().all(|t| t.violated == 0), "{}", explanation.text());
    }

    // |x| + |y| has no L: only the Lipschitz rate is left.
    let known = Known {
        convex: true,
        f_star: Some(0.0),
        minimizer: Some(vec![0.0, 0.0]),
        lipschitz: Some(2f64.sqrt()),
        ..Known::default()
    };
    let cone = Function::new(vec![3.0, -2.5], |x: &[f64], g: &mut [f64]| {
        g.copy_from_slice(&[x[0].signum(), x[1].signum()]);
        x[0].abs() + x[1].abs()
    })
    .with(known);
    let (explanation, _) = explain(&cone, "polyak", 0.0, 30);
    assert_eq!(explanation.bounds[2].judgement, Judgement::Holds, "{}", explanation.text());
}

#[test]
fn a_coarse_f_star_needs_its_accuracy_stated() {
    let exact = Quartic::new(1.0, 0.0, 5.0, 1.0);
    let known = Known { f_star: Some(1.0 + 1e-12), ..exact.known().clone() };
    let coarse = Function::new(exact.start(), move |x: &[f64], g: &mut [f64]| exact.value_and_gradient(x, g))
        .with(known);
    let spec: MethodSpec = "gd:lr=0.5".parse().unwrap();
    let violated = |value: f64| {
        let rule = spec.build(&RunInfo::of(&coarse, 100)).unwrap();
        let mut explainer =
            Explainer::new(&coarse, &spec, 0.0, 100).accuracy(Accuracy { value, gradient: 0.0 });
        let run = Minimizer::new(&coarse).observe(&mut explainer).run(rule, &[5.0], 100).unwrap();
        explainer.finish(&run).inequalities.iter().map(|t| t.violated).sum::<u64>()
    };
    assert!(violated(0.0) > 0);
    assert_eq!(violated(1e-12), 0);
}

#[test]
fn step_sizes_and_distances_are_traced() {
    let problem = Quartic::new(1.0, 10.0, 5.0, 1.0);
    for rule in ["decsps", "adasps"] {
        let sizes = explain(&problem, rule, 0.0, 300).0.step_sizes.unwrap();
        assert_eq!((sizes.increases, sizes.increased_at), (0, None), "{rule}");
        assert_eq!(sizes.first, sizes.largest);
    }
    let (polyak, run) = explain(&problem, "polyak", 0.0, 30);
    let sizes = polyak.step_sizes.unwrap();
    assert_eq!(sizes.increased_at, Some(1));
    assert_eq!(Some(sizes.first), run.trace[0].step_size);
    assert_eq!(polyak.d_t, Some(5.0), "Polyak never moves away");
    assert_eq!(polyak.left_ball, None);

    let (exploding, run) = explain(&problem, "polyak-bound", 0.0, 100);
    let farthest = run.trace.iter().filter_map(|row| row.x.as_ref()).map(|x| x[0].abs()).fold(0.0, f64::max);
    assert_eq!(exploding.d_t, Some(farthest));
    let out =
        run.trace.iter().find(|row| row.x.as_ref().is_some_and(|x| x[0].abs() > 5.0)).map(|row| row.step);
    assert_eq!(exploding.left_ball, out);
}

/// The smoothness that the probe reads from a run is below the assumption's line, since Assumption 2 holds there.
#[test]
fn the_probe_on_the_quartic() {
    for l1 in [1.0, 10.0, 100.0, 1000.0] {
        let problem = Quartic::new(1.0, l1, 5.0, 1.0);
        let (explanation, _) = explain(&problem, "inexact-polyak", 0.0, 10_000);
        let reading = explanation.local_smoothness;
        let line = reading.envelope.unwrap();
        assert!(reading.points > 1000, "{reading:?}");
        // The quartic's smoothness is concave in the gradient's norm: a line that is low at the run's mean gradient
        // has a larger intercept and a smaller slope than Assumption 2's.
        let mean = reading.regression.unwrap().line;
        assert!(line.l0 > mean.l0 && line.l0 >= 0.5 && line.l1 < l1 / 2.0, "{l1}: {line:?}");
        assert!(reading.regression.unwrap().correlation.unwrap() > 0.9);
        assert!(explanation.implied_clipping.is_some());
    }
}

/// A gap of 0 in floating point is no proof of optimality, and is not printed as one.
#[test]
fn a_gap_of_zero_is_printed_as_its_rounding() {
    let (explanation, run) = explain(&Quartic::new(1.0, 10.0, 5.0, 1.0), "polyak", 0.0, 500);
    assert_eq!(run.best.loss, 1.0);
    assert_eq!(explanation.bounds[1].measured, Some(0.0));
    assert!(explanation.text().contains("≤2.22e-16"), "{}", explanation.text());
}

#[test]
fn explanations_serialize() {
    let problem = Quartic::new(1.0, 10.0, 5.0, 1.0);
    let (explanation, _) = explain(&problem, "inexact-polyak", 0.0, 100);
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["bounds"][1]["name"], "Theorem 5");
    assert_eq!(json["bounds"][1]["judgement"], "holds");
    assert_eq!(json["constants"]["l1"], 10.0);
    assert_eq!(json["inequalities"][0]["violated"], 0);
}

/// Assumption 2 is one-sided in print and two-sided in meaning: the check takes the order that is harder to meet.
#[test]
fn assumption_2_does_not_depend_on_the_order() {
    let (x, y) = ((&[1.0][..], &[10.0][..]), (&[1.5][..], &[12.0][..]));
    let there = assumption_2(&Pair::measured(x, y), 1.0, 0.5).unwrap();
    let back = assumption_2(&Pair::measured(y, x), 1.0, 0.5).unwrap();
    assert_eq!((there.left, there.right), (2.0, 3.0));
    assert_eq!((there.left, there.right), (back.left, back.right));
}
