//! What every problem of the table claims, checked at random points: its gradient, its minimum and its constants.

use std::sync::LazyLock;

use proptest::prelude::*;
use untuned::minimize::Minimizer;
use untuned::spec::{Info, Kind, Parameter};
use untuned::{MethodSpec, Problem, RunInfo, vector};
use untuned_theory::problems::{ProblemSpec, catalog};

type Boxed = Box<dyn Problem + Send>;

/// Beyond the defaults of the whole table.
const VARIANTS: &[&str] = &[
    "quartic:l1=1000",
    "quartic:l1=0,l0=3,x0=-2,f_star=-7",
    "separable-quartic:dim=23,l1=100,start=equal",
    "quadratic:dim=1",
    "quadratic:dim=9,condition=1e6,scale=-3,f_star=2",
    "sum-exp:dim=1,sharpness=3",
    "sum-exp:dim=25,sharpness=0.2,distance=4,seed=9",
    "l4-regression:noise=0,seed=2",
    "l4-regression:n=12,dim=11,noise=2",
    "l4-regression:n=6,dim=1",
    "absolute:n=3,dim=8,f_star=1",
    "absolute:n=40,dim=2",
    "rosenbrock:dim=7",
    #[cfg(feature = "datasets")]
    "logistic:l2=0",
    #[cfg(feature = "datasets")]
    "logistic:l2=1",
];

static PROBLEMS: LazyLock<Vec<(&str, Boxed)>> = LazyLock::new(|| {
    let names = catalog().into_iter().map(|entry| entry.name);
    names.chain(VARIANTS.iter().copied()).map(|spec| (spec, build(spec))).collect()
});

fn build(spec: &str) -> Boxed {
    let parsed: ProblemSpec = spec.parse().unwrap_or_else(|wrong| panic!("{spec}: {wrong}"));
    parsed.build().unwrap_or_else(|wrong| panic!("{spec}: {wrong}"))
}

fn evaluate(problem: &Boxed, x: &[f64]) -> (f64, Vec<f64>) {
    // NaN shows an entry that the problem forgot to write.
    let mut gradient = vec![f64::NAN; x.len()];
    (problem.value_and_gradient(x, &mut gradient), gradient)
}

fn dot_difference(g: &[f64], y: &[f64], x: &[f64]) -> f64 {
    g.iter().zip(y).zip(x).map(|((g, y), x)| g * (y - x)).sum()
}

/// `base + length·direction/‖direction‖`, with as much of `direction` as the problem has variables.
fn away(base: &[f64], length: f64, direction: &[f64]) -> Vec<f64> {
    let direction = &direction[..base.len()];
    let norm = vector::norm(direction).max(f64::MIN_POSITIVE);
    base.iter().zip(direction).map(|(b, d)| b + length * d / norm).collect()
}

fn centre(problem: &Boxed) -> Vec<f64> {
    problem.known().minimizer.clone().unwrap_or_else(|| problem.start())
}

/// How far from [`centre`] the points are: as far as the start, or where the constants hold.
fn radius(problem: &Boxed) -> f64 {
    let known = problem.known();
    let start = known.distance_to_minimizer(&problem.start()).filter(|d| *d > 0.0);
    known.l_radius.or(start).unwrap_or(2.0)
}

/// A direction with a component in every variable; the largest problem of [`PROBLEMS`] has 31.
fn direction() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![-1.0..-0.01, 0.01..1.0], 32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Central differences. Their error is the truncation, of which the change from `h` to `2h` is three times the
    /// leading term, and the rounding of `f`, here at most 1e-14 of it, over `h`.
    #[test]
    fn gradients_are_those_of_the_value(to in direction(), part in 0.2..1.0f64) {
        for (name, problem) in PROBLEMS.iter() {
            let x = away(&centre(problem), part * radius(problem), &to);
            let (f, gradient) = evaluate(problem, &x);
            let norm = vector::norm(&gradient);
            let at = |i: usize, h: f64| {
                let mut moved = x.clone();
                moved[i] += h;
                evaluate(problem, &moved)
            };
            for i in 0..x.len() {
                let h = 1e-5 * x[i].abs().max(radius(problem) * 0.1);
                let difference = |h: f64| (at(i, h).0 - at(i, -h).0) / (2.0 * h);
                let smooth = problem.known().l.is_some() || !problem.known().convex;
                if !smooth && at(i, 2.0 * h).1 != at(i, -2.0 * h).1 {
                    // A kink of `absolute` lies between the points.
                    continue;
                }
                let (near, far) = (difference(h), difference(2.0 * h));
                let tolerance = (near - far).abs() + 1e-14 * f.abs() / h;
                prop_assert!(tolerance <= 1e-4 * norm, "{name}: a test without teeth: {tolerance} for {norm}");
                let error = (near - gradient[i]).abs();
                prop_assert!(error <= tolerance, "{name}: ∂{i} is {}, differences give {near} ± {tolerance}", gradient[i]);
            }
        }
    }

    /// `f(y) ≥ f(x) + ∇f(x)·(y − x) + µ/2·‖y − x‖²`, with `µ = 0` where none is claimed.
    #[test]
    fn convex_problems_are_convex(a in direction(), b in direction(), far in 0.0..3.0f64, near in 0.0..1.0f64) {
        for (name, problem) in PROBLEMS.iter().filter(|(_, p)| p.known().convex) {
            let x = away(&centre(problem), far * radius(problem), &a);
            let y = away(&x, near * radius(problem), &b);
            let ((fx, g), (fy, _)) = (evaluate(problem, &x), evaluate(problem, &y));
            let apart = vector::distance(&x, &y);
            let strength = problem.known().strong_convexity.unwrap_or(0.0) / 2.0 * apart * apart;
            let line = fx + dot_difference(&g, &y, &x) + strength;
            let rounding = 1e-12 * (fx.abs() + fy.abs() + vector::norm(&g) * apart);
            prop_assert!(fy >= line - rounding, "{name}: {fy} < {line}");
        }
    }

    #[test]
    fn nothing_is_below_the_minimum(to in direction(), part in 0.0..3.0f64) {
        for (name, problem) in PROBLEMS.iter() {
            let Some(f_star) = problem.known().f_star else { continue };
            let f = problem.value(&away(&centre(problem), part * radius(problem), &to));
            prop_assert!(f >= f_star - 1e-12 * f_star.abs().max(1.0), "{name}: {f} < {f_star}");
        }
    }

    /// Assumption 1: `‖∇f(x) − ∇f(y)‖ ≤ L‖x − y‖`, within the radius for which it is claimed.
    #[test]
    fn gradients_are_lipschitz(a in direction(), b in direction(), one in 0.0..1.0f64, two in 0.0..1.0f64) {
        for (name, problem) in PROBLEMS.iter() {
            let Some(l) = problem.known().l else { continue };
            // A hair inside the ball, so that rounding does not carry the point out of it.
            let everywhere = if problem.known().l_radius.is_some() { 1.0 - 1e-12 } else { 10.0 };
            let reach = everywhere * radius(problem);
            let (x, y) = (away(&centre(problem), one * reach, &a), away(&centre(problem), two * reach, &b));
            let (gx, gy) = (evaluate(problem, &x).1, evaluate(problem, &y).1);
            let rounding = 1e-13 * (vector::norm(&gx) + vector::norm(&gy));
            let (change, apart) = (vector::distance(&gx, &gy), vector::distance(&x, &y));
            prop_assert!(change <= l * apart + rounding, "{name}: {change} > {l}·{apart}");
        }
    }

    /// Assumption 2: `‖∇f(x) − ∇f(y)‖ ≤ (L0 + L1‖∇f(x)‖)‖x − y‖` where `‖x − y‖ ≤ 1/L1`.
    #[test]
    fn gradients_are_l0_l1_smooth(a in direction(), b in direction(), far in 0.0..2.0f64, near in 0.0..1.0f64) {
        for (name, problem) in PROBLEMS.iter() {
            let Some((l0, l1)) = problem.known().l0_l1 else { continue };
            let x = away(&centre(problem), far * radius(problem), &a);
            let reach = if l1 > 0.0 { (1.0 - 1e-12) / l1 } else { 10.0 };
            let y = away(&x, near * reach, &b);
            let (gx, gy) = (evaluate(problem, &x).1, evaluate(problem, &y).1);
            let bound = (l0 + l1 * vector::norm(&gx)) * vector::distance(&x, &y);
            let rounding = 1e-13 * (vector::norm(&gx) + vector::norm(&gy));
            let change = vector::distance(&gx, &gy);
            prop_assert!(change <= bound + rounding, "{name}: {change} > {bound}");
        }
    }

    #[test]
    fn no_gradient_is_longer_than_g(a in direction(), b in direction(), far in 0.0..100.0f64) {
        for (name, problem) in PROBLEMS.iter() {
            let Some(most) = problem.known().lipschitz else { continue };
            let x = away(&centre(problem), far, &a);
            let y = away(&x, far, &b);
            let ((fx, g), (fy, _)) = (evaluate(problem, &x), evaluate(problem, &y));
            prop_assert!(vector::norm(&g) <= most, "{name}: {} > {most}", vector::norm(&g));
            let rounding = 1e-12 * (fx.abs() + fy.abs());
            prop_assert!((fx - fy).abs() <= most * vector::distance(&x, &y) + rounding, "{name}");
        }
    }

    #[test]
    fn no_text_panics(name in 0..32usize, rest in "[:=,a-z0-9e.+_-]{0,30}") {
        let names = catalog();
        let text = format!("{}{rest}", names[name % names.len()].name);
        if let Ok(spec) = text.parse::<ProblemSpec>() {
            prop_assert_eq!(spec.to_string().parse::<ProblemSpec>(), Ok(spec));
        }
    }
}

/// Assumption 1 where it is tightest: between neighbours at the edge of the ball, along each axis. Random pairs hardly
/// ever come near it in many variables.
#[test]
fn gradients_are_lipschitz_at_the_edge() {
    for (name, problem) in PROBLEMS.iter() {
        let Some(l) = problem.known().l else { continue };
        let reach = (1.0 - 1e-12) * radius(problem);
        for (i, side) in (0..problem.dimension()).flat_map(|i| [(i, reach), (i, -reach)]) {
            let (mut x, mut y) = (centre(problem), centre(problem));
            x[i] += side;
            y[i] += 0.999 * side;
            let (change, apart) = (
                vector::distance(&evaluate(problem, &x).1, &evaluate(problem, &y).1),
                vector::distance(&x, &y),
            );
            // The difference of neighbours loses three digits.
            assert!(change <= l * apart * (1.0 + 1e-9), "{name}: {change} > {l}·{apart}");
        }
    }
}

#[test]
fn the_minimum_is_where_it_is_said_to_be() {
    for (name, problem) in PROBLEMS.iter() {
        let known = problem.known();
        let (Some(x), Some(f_star)) = (&known.minimizer, known.f_star) else {
            assert_eq!(*name, "logistic:l2=0", "the only one whose minimum is not known");
            continue;
        };
        let (f, gradient) = evaluate(problem, x);
        assert!(
            (f - f_star).abs() <= 1e-12 * f_star.abs().max(1.0),
            "{name}: {f} at the minimiser of {f_star}"
        );
        let scale = vector::norm(&evaluate(problem, &problem.start()).1);
        assert!(vector::norm(&gradient) <= 1e-11 * scale, "{name}: {} of {scale}", vector::norm(&gradient));
    }
}

#[test]
fn rosenbrock_is_not_convex_and_says_so() {
    let problem = build("rosenbrock");
    assert!(!problem.known().convex);
    let (left, right, middle) = ([-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]);
    let chord = (problem.value(&left) + problem.value(&right)) / 2.0;
    assert!(problem.value(&middle) > chord, "{} lies above the chord at {chord}", problem.value(&middle));
    assert_eq!(problem.start(), [-1.2, 1.0]);
    assert!((problem.value(&problem.start()) - 24.2).abs() < 1e-12, "the textbook's first value");
}

#[cfg(feature = "datasets")]
#[test]
fn the_logistic_minimum_is_proved() {
    for l2 in ["1e-6", "1e-3", "1"] {
        let problem = build(&format!("logistic:l2={l2}"));
        let known = problem.known();
        assert_eq!(problem.dimension(), 31, "30 features and the intercept");
        let (Some(x), Some(mu)) = (&known.minimizer, known.strong_convexity) else {
            panic!("l2={l2}: no minimum")
        };
        let norm = vector::norm(&evaluate(&problem, x).1);
        assert!(norm * norm / (2.0 * mu) <= 1e-12, "l2={l2}: ‖g‖ = {norm}");
    }
    assert!((build("logistic").value(&[0.0; 31]) - 2f64.ln()).abs() < 1e-12);
}

#[cfg(not(feature = "datasets"))]
#[test]
fn without_the_data_sets_there_is_no_named_logistic_problem() {
    assert!("logistic".parse::<ProblemSpec>().is_err());
}

fn polyak(problem: &Boxed, steps: u64) -> untuned::Run {
    let spec: MethodSpec = "polyak".parse().expect("a rule");
    let rule = spec.build(&RunInfo::of(problem.as_ref(), steps)).expect("f* is known");
    let minimizer = Minimizer::new(problem.as_ref()).average(None).trace(false);
    minimizer.run(rule, &problem.start(), steps).expect("a good start")
}

/// Section 2.3: on a convex function with kinks, Polyak's step gives the optimal rate. Each step has
/// `d²_{t+1} ≤ d²_t − (f_t − f*)²/‖g_t‖²`, so `Σ_t (f_t − f*)² ≤ G²D²` and the best gap is at most `G·D/√T`.
#[test]
fn polyak_is_optimal_without_smoothness() {
    for (name, problem) in PROBLEMS.iter().filter(|(name, _)| name.starts_with("absolute")) {
        let known = problem.known();
        let d = known.distance_to_minimizer(&problem.start()).expect("a known minimiser");
        let (g, f_star) = (known.lipschitz.expect("a known G"), known.f_star.expect("a known f*"));
        for steps in [1, 10, 100, 1_000, 10_000] {
            let gap = polyak(problem, steps).best.loss - f_star;
            let bound = g * d / (steps as f64).sqrt();
            assert!(gap <= bound, "{name}: {gap} > {bound} after {steps}");
        }
    }
}

/// Section 2.3: on a smooth and strongly convex function, Polyak's step converges linearly. Again
/// `d²_{t+1} ≤ d²_t − (f_t − f*)²/‖g_t‖²`; with `(f − f*)/‖g‖² ≥ 1/(2L)` (Proposition 2) and `f − f* ≥ µ/2·d²` that is
/// `d²_{t+1} ≤ (1 − µ/(4L))·d²_t`. The distance never grows, so the `L` of the first ball holds for the whole run.
#[test]
fn polyak_is_linear_under_strong_convexity() {
    let smooth = ["quadratic", "quadratic:dim=9,condition=1e6,scale=-3,f_star=2", "sum-exp"];
    for name in
        smooth.into_iter().chain(["sum-exp:dim=25,sharpness=0.2,distance=4,seed=9", "sum-exp:sharpness=1"])
    {
        let problem = build(name);
        let known = problem.known();
        let (Some(l), Some(mu), Some(f_star)) = (known.l, known.strong_convexity, known.f_star) else {
            panic!("{name}: constants are missing")
        };
        let d = known.distance_to_minimizer(&problem.start()).expect("a known minimiser");
        for steps in [1, 10, 100, 1_000, 10_000] {
            let last = polyak(&problem, steps).last;
            let apart = known.distance_to_minimizer(&last.x).expect("a known minimiser");
            let rate = (1.0 - mu / (4.0 * l)).powf(steps as f64);
            // The run stalls where `f` rounds to `f*`, at `µ/2·d² ≈ 1e-16·f*` per rounding.
            let floor = 2.0 / mu * 10.0 * f64::EPSILON * f_star.abs();
            let bound = d * d * rate + floor;
            assert!(apart * apart <= bound, "{name}: {} > {bound} after {steps}", apart * apart);
        }
    }
}

/// The values of a parameter at the edges of what is allowed; sizes stay small here.
fn edges(parameter: &Parameter) -> Vec<String> {
    let texts: &[&str] = match parameter.kind {
        Kind::Whole(low, _) => return vec![low.to_string(), (low + 1).to_string()],
        Kind::Word(words) => words,
        _ => &["-1.7e308", "-1", "0", "5e-324", "1e-170", "1", "1e155", "1.7e308"],
    };
    texts.iter().map(|t| t.to_string()).collect()
}

/// Every combination of the parameters' edges.
fn edge_specs(entry: &Info) -> Vec<String> {
    let mut specs = vec![entry.name.to_string()];
    for (i, parameter) in entry.parameters.iter().enumerate() {
        let separator = if i == 0 { ':' } else { ',' };
        let values = edges(parameter);
        let with = |spec: &String, value: &String| format!("{spec}{separator}{}={value}", parameter.name);
        specs = specs.iter().flat_map(|s| values.iter().map(move |v| with(s, v))).collect();
    }
    specs
}

#[test]
fn extreme_parameters_neither_panic_nor_claim_infinite_constants() {
    let mut built = 0;
    for spec in catalog().into_iter().flat_map(edge_specs) {
        let Ok(problem) = spec.parse::<ProblemSpec>().and_then(|s| s.build()) else { continue };
        built += 1;
        let known = problem.known();
        let (l0, l1) = known.l0_l1.unzip();
        let constants =
            [known.f_star, known.l, known.l_radius, l0, l1, known.lipschitz, known.strong_convexity];
        assert!(constants.into_iter().flatten().all(f64::is_finite), "{spec}: {known:?}");
        assert!(known.minimizer.iter().flatten().all(|v| v.is_finite()), "{spec}: {known:?}");
        let x = problem.start();
        assert_eq!((x.len(), evaluate(&problem, &x).1.len()), (problem.dimension(), problem.dimension()));
    }
    assert!(built > 1_000, "{built} of the combinations are allowed");
}

#[test]
fn the_largest_sizes_are_built_and_evaluated() {
    for entry in catalog() {
        let sizes: Vec<String> = entry
            .parameters
            .iter()
            .filter_map(|p| match p.kind {
                Kind::Whole(_, high) => Some(format!("{}={high}", p.name)),
                _ => None,
            })
            .collect();
        if sizes.is_empty() {
            continue;
        }
        let spec = format!("{}:{}", entry.name, sizes.join(","));
        let clock = std::time::Instant::now();
        let problem = build(&spec);
        let f = evaluate(&problem, &problem.start()).0;
        println!("{spec}: {:?}", clock.elapsed());
        assert!(f.is_finite() && problem.known().f_star.is_some(), "{spec}: {f}");
    }
}

#[test]
fn sizes_beyond_the_limits_and_misfits_are_refused_in_words() {
    for (spec, word) in [
        ("quadratic:dim=1e9", "whole number"),
        ("quadratic:condition=0.5", "1 or more"),
        ("separable-quartic:dim=0", "whole number"),
        ("l4-regression:n=5,dim=9", "at least dim"),
        ("absolute:n=1e18", "whole number"),
        ("rosenbrock:dim=1", "whole number"),
        ("sum-exp:sharpness=0", "above 0"),
        ("sum-exp:seed=-1", "whole number"),
    ] {
        let wrong = spec.parse::<ProblemSpec>().and_then(|s| s.build().map(|_| ()));
        let Err(wrong) = wrong else { panic!("{spec} was taken") };
        assert!(wrong.to_string().contains(word), "{spec}: {wrong}");
    }
}

/// The seeded data must stay what they are: published numbers depend on them.
#[test]
fn the_seeded_data_do_not_change() {
    for (spec, expected) in [
        ("sum-exp", 100.10764336599205),
        ("l4-regression", 277.95790051735673),
        ("absolute", 45.59684793664065),
    ] {
        let problem = build(spec);
        let f = problem.value(&problem.start());
        assert!((f - expected).abs() <= 1e-9 * expected, "{spec}: {f:?}");
    }
}
