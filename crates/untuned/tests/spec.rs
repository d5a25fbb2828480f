//! Spec strings: what is printed reads back, what is wrong is named, and nothing panics.

#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use support::Run;
use untuned::rules::RULES;
use untuned::spec::{DefaultValue, Info, Kind, Parameter, Spec, Value, number};
use untuned::{DenseF64, Method, MethodSpec, Observation, RunInfo, SpecError, StepRule, catalog};
use untuned_theory::{ProblemSpec, problems};

/// The entries of both catalogs, each with what it is called there.
fn entries() -> Vec<(&'static str, &'static Info)> {
    let rules = catalog().into_iter().map(|e| ("method", e));
    rules.chain(problems::catalog().into_iter().map(|e| ("problem", e))).collect()
}

fn parse(what: &'static str, text: &str) -> Result<Spec, SpecError> {
    match what {
        "method" => Spec::parse(text, what, &catalog()),
        _ => Spec::parse(text, what, &problems::catalog()),
    }
}

/// Floats of every bit pattern that the kind allows, the ends of the range among them.
fn value(parameter: &'static Parameter) -> BoxedStrategy<Value> {
    let any = prop_oneof![
        4 => any::<u64>().prop_map(f64::from_bits),
        2 => -1e9..1e9f64,
        1 => (-100i32..100).prop_map(f64::from),
        1 => prop::sample::select(vec![
            f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.1, 1e-4, 1e7, 9_999_999.999, 1e22, f64::EPSILON, 1.0 / 3.0,
        ]),
    ];
    let finite = any.prop_filter_map("finite", |v| v.is_finite().then_some(v));
    let number = |s: BoxedStrategy<f64>| s.prop_map(Value::Number).boxed();
    match parameter.kind {
        Kind::Finite => number(prop_oneof![9 => finite, 1 => prop::sample::select(vec![0.0, -0.0])].boxed()),
        Kind::NonNegative => number(prop_oneof![9 => finite.prop_map(f64::abs), 1 => Just(0.0)].boxed()),
        Kind::Positive => number(finite.prop_map(|v| if v == 0.0 { 1.0 } else { v.abs() }).boxed()),
        Kind::PositiveOrInfinite => {
            let positive = finite.prop_map(|v| if v == 0.0 { 1.0 } else { v.abs() });
            number(prop_oneof![4 => positive, 1 => Just(f64::INFINITY)].boxed())
        }
        Kind::Fraction => number(prop_oneof![9 => 0.0..1.0f64, 1 => Just(0.0)].boxed()),
        Kind::Whole(low, high) => {
            number(prop_oneof![Just(low), Just(high), low..=high].prop_map(|v| v as f64).boxed())
        }
        Kind::Word(words) => prop::sample::select(words).prop_map(Value::Word).boxed(),
        other => panic!("no values for {other:?}"),
    }
}

/// A valid spec: the catalog, the text, the name that it must print and the parameters given, in the catalog's order.
type Valid = (&'static str, String, &'static Info, Vec<(&'static str, Value)>);

fn valid() -> impl Strategy<Value = Valid> {
    prop::sample::select(entries()).prop_flat_map(|(what, info)| {
        let given: Vec<_> = info
            .parameters
            .iter()
            .map(|p| {
                let v = value(p).prop_map(|v| (p.name, v));
                if p.default == DefaultValue::Required {
                    v.prop_map(Some).boxed()
                } else {
                    prop::option::weighted(0.6, v).boxed()
                }
            })
            .collect();
        let names: Vec<_> = [info.name].into_iter().chain(info.aliases.iter().copied()).collect();
        let spaces = prop::collection::vec(prop::sample::select(vec!["", "", "", " ", "\t", "  "]), 32);
        (given, prop::sample::select(names), spaces, any::<u64>()).prop_map(
            move |(given, name, spaces, order)| {
                let given: Vec<_> = given.into_iter().flatten().collect();
                let mut shuffled = given.clone();
                shuffled.sort_by_key(|(name, _)| {
                    name.bytes().fold(order, |h, b| (h ^ u64::from(b)).wrapping_mul(0x9E37_79B9_7F4A_7C15))
                });
                let mut spaces = spaces.iter().cycle();
                let mut space = || *spaces.next().unwrap();
                let pairs: Vec<_> = shuffled
                    .iter()
                    .map(|(name, v)| format!("{}{name}{}={}{v}{}", space(), space(), space(), space()))
                    .collect();
                let colon = if pairs.is_empty() { "" } else { ":" };
                let text = format!("{}{name}{}{colon}{}", space(), space(), pairs.join(","));
                (what, text, info, given)
            },
        )
    })
}

fn same_bits(a: Option<Value>, b: Value) -> bool {
    match (a, b) {
        (Some(Value::Number(a)), Value::Number(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == Some(b),
    }
}

/// The size of the step with the number `t`; 0 where it is refused.
fn size_at(method: Method, t: u64) -> f64 {
    if let Method::Rule(mut rule) = method.clone() {
        // All that any rule may ask for.
        let (x0_norm, distance, grad_sum, dimension) = (Some(1.0), Some(0.25), Some(0.5), Some(1));
        let plain = Observation::new(t, 2.0, 0.5);
        let _ = rule.step(&Observation { x0_norm, distance, grad_sum, dimension, ..plain });
    }
    let mut run = Run::new(method, DenseF64::new(1), &[1.0]);
    let mut numbers = serde_json::to_value(run.session.save()).unwrap();
    numbers["step"] = t.into();
    run.session.rewind(serde_json::from_value(numbers).unwrap());
    run.step(2.0, &[0.5]).map_or(0.0, |report| report.rate)
}

/// What holds for any text: a spec that prints and reads back to itself, or an error that names the piece at fault.
fn check(what: &'static str, text: &str) -> Result<(), TestCaseError> {
    match parse(what, text) {
        Ok(spec) => {
            let printed = spec.to_string();
            prop_assert_eq!(parse(what, &printed), Ok(spec.clone()), "{:?} printed {:?}", text, printed);
            if what == "method" {
                // Building and one step: refused or not, without a panic.
                for steps in [0, 1, 1000, u64::MAX] {
                    let run = RunInfo { steps, f_star: Some(0.0) };
                    if let Ok(method) = printed.parse::<MethodSpec>().unwrap().build(&run) {
                        for t in [0, 1, steps] {
                            let size = size_at(method.clone(), t);
                            prop_assert!(size.is_finite() && size >= 0.0, "{:?}: {}", text, size);
                        }
                    }
                }
            } else {
                // Building it, unless that takes long: a large problem is built like a small one.
                let problem = printed.parse::<ProblemSpec>().unwrap();
                let sizes = ["n", "dim"].into_iter().filter(|key| problem.spec().info().has(key));
                if sizes.map(|key| problem.spec().number(key)).all(|size| size <= 30.0) {
                    // Parameters that do not fit together are refused in words.
                    if let Err(error) = problem.build() {
                        prop_assert!(matches!(error, SpecError::Unfit { .. }), "{:?}: {}", text, error);
                    }
                }
            }
        }
        Err(error) => {
            let message = error.to_string();
            let (piece, inside): (&str, &str) = match &error {
                SpecError::UnknownName { given, .. } => (given, text),
                SpecError::UnknownParameter { given, .. } => (given, text),
                SpecError::NotAPair { given, .. } => (given, text),
                SpecError::BadValue { given, .. } => (given, text),
                SpecError::Twice { name, .. } => (name, text),
                SpecError::Missing { name, .. } => (name, name),
                SpecError::Unfit { owner, .. } => (owner, owner),
                other => {
                    return Err(TestCaseError::fail(format!(
                        "{text:?}: an error of another kind: {other:?}"
                    )));
                }
            };
            prop_assert!(!message.is_empty());
            prop_assert!(message.contains(piece), "{:?}: {} does not name {:?}", text, message, piece);
            // A very long piece is cut, and says so.
            let shown = if text.len() > 80 { piece.trim_end_matches('…') } else { piece };
            prop_assert!(inside.contains(shown), "{:?}: {:?} is not in the text", text, piece);
            if let SpecError::NotAPair { example, .. } | SpecError::Missing { example, .. } = &error {
                prop_assert!(parse(what, example).is_ok(), "the example {:?} does not parse", example);
            }
        }
    }
    Ok(())
}

/// One change to a text: a piece taken out, doubled or replaced.
fn mutate(text: &str, at: usize, length: usize, with: &str, kind: u8) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = at % (chars.len() + 1);
    let end = (at + length).min(chars.len());
    let piece: Vec<char> = match kind {
        0 => Vec::new(),
        1 => chars[at..end].iter().chain(&chars[at..end]).copied().collect(),
        2 => with.chars().collect(),
        _ => with.chars().chain(chars[at..end].iter().copied()).collect(),
    };
    chars.splice(at..end, piece);
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_reads_back((what, text, info, given) in valid()) {
        let spec = parse(what, &text).map_err(|e| TestCaseError::fail(format!("{text:?}: {e}")))?;
        prop_assert_eq!(spec.name(), info.name);
        for &(name, value) in &given {
            prop_assert!(spec.is_given(name));
            prop_assert!(same_bits(spec.value(name), value), "{}: {} is {:?}", text, name, spec.value(name));
        }
        for parameter in info.parameters {
            if given.iter().all(|(name, _)| *name != parameter.name) {
                prop_assert!(!spec.is_given(parameter.name));
                match parameter.default {
                    DefaultValue::Number(v) => prop_assert_eq!(spec.number(parameter.name), v),
                    DefaultValue::Word(w) => prop_assert_eq!(spec.word(parameter.name), w),
                    DefaultValue::Derived(_) => prop_assert_eq!(spec.value(parameter.name), None),
                    DefaultValue::Required => prop_assert!(false, "{} passed without {}", text, parameter.name),
                }
            }
        }
        // The printed form: the catalog's name and order, no spaces, the shortest numbers.
        let pairs: Vec<_> = given.iter().map(|(name, v)| format!("{name}={v}")).collect();
        let colon = if pairs.is_empty() { "" } else { ":" };
        prop_assert_eq!(spec.to_string(), format!("{}{}{}", info.name, colon, pairs.join(",")));
        let back = parse(what, &spec.to_string());
        prop_assert_eq!(&back, &Ok(spec));
        let back = back.unwrap();
        for &(name, value) in &given {
            prop_assert!(same_bits(back.value(name), value));
        }
        if what == "method" {
            let spec: MethodSpec = text.parse().unwrap();
            let json = serde_json::to_string(&spec).unwrap();
            prop_assert_eq!(serde_json::from_str::<MethodSpec>(&json).unwrap(), spec);
        }
    }

    #[test]
    fn mutations_of_valid_specs(
        (what, text, ..) in valid(),
        changes in prop::collection::vec(
            (any::<usize>(), 0usize..6, prop_oneof![
                prop::sample::select(vec![
                    ":", ",", "=", "-", ".", "e", "E999", "inf", "nan", "NaN", "0", "1e400", "é", "\u{0}", "\n", " ",
                    "\u{a0}", "𝟙", "lr", "lower_bound", "=1,", "==", "::", "--1", "+", "_", "0x10", "1_000", "∞",
                ]).prop_map(String::from),
                "\\PC{0,3}",
            ], 0u8..4),
            1..4,
        ),
    ) {
        let mut text = text;
        for (at, length, with, kind) in changes {
            text = mutate(&text, at, length, &with, kind);
        }
        check(what, &text)?;
    }

    #[test]
    fn any_text(text in prop_oneof!["\\PC{0,40}", "[a-z:=,.0-9-]{0,40}", "(gd|dog|decsps):[a-z0-9_=,]{0,20}"]) {
        check("method", &text)?;
        check("problem", &text)?;
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let text = String::from_utf8_lossy(&bytes);
        check("method", &text)?;
        check("problem", &text)?;
    }

    #[test]
    fn numbers_read_back(bits in any::<u64>()) {
        let v = f64::from_bits(bits);
        if !v.is_nan() {
            prop_assert_eq!(number(v).parse::<f64>().unwrap().to_bits(), bits);
            prop_assert!(number(v).len() <= 25, "{}", number(v));
        }
    }
}

#[track_caller]
fn rule_error(text: &str) -> (SpecError, String) {
    let error = text.parse::<MethodSpec>().unwrap_err();
    let message = error.to_string();
    (error, message)
}

#[track_caller]
fn says(text: &str, pieces: &[&str]) {
    let (_, message) = rule_error(text);
    for piece in pieces {
        assert!(message.contains(piece), "{text:?}: {message:?} does not say {piece:?}");
    }
}

#[test]
fn an_unknown_rule_suggests_the_nearest() {
    for (text, nearest) in [
        ("inexact-poliak", "inexact-polyak"),
        ("inexact_polyak", "inexact-polyak"),
        ("clipped-sg:lr=1", "clipped-sgd"),
        ("Polyak", "polyak"),
        ("SGD:lr=1", "sgd"),
        ("sdg", "sgd"),
        ("adsps", "adasps"),
        ("decsp", "decsps"),
        ("polyak-bond", "polyak-bound"),
    ] {
        says(text, &[&format!("did you mean `{nearest}`?"), text.split(':').next().unwrap()]);
    }
    let (error, message) = rule_error("lion");
    assert!(matches!(error, SpecError::UnknownName { what: "method", .. }));
    for info in RULES {
        assert!(message.contains(info.name), "{message} lists {}", info.name);
    }
    for text in ["something-else-entirely", "", "x", "zz", "x:lr=1"] {
        assert!(!rule_error(text).1.contains("did you mean"), "{text:?} is near nothing");
    }
}

#[test]
fn an_unknown_parameter_names_the_known_ones() {
    says("decsps:c_0=1", &["`decsps`", "`c_0`", "did you mean `c0`?", "c0, gamma, lower_bound, grad_shift"]);
    says("gd:rate=1", &["`rate`", "`gd` takes lr"]);
    says("inexact-polyak:steps=5", &["`steps`", "lower_bound, extend"]);
    says("gd:LR=1", &["`LR`", "did you mean `lr`?"]);
    says("gd:lr=1,=2", &["no parameter ``", "lr"]);
}

#[test]
fn bad_values() {
    for (text, given) in [
        ("gd:lr=-1", "lr=-1"),
        ("gd:lr=nan", "lr=nan"),
        ("gd:lr=NaN", "lr=NaN"),
        ("gd:lr=inf", "lr=inf"),
        ("gd:lr=0", "lr=0"),
        ("gd:lr=-0", "lr=-0"),
        ("gd:lr=1e400", "lr=1e400"),
        ("gd:lr=1e-400", "lr=1e-400"),
        ("gd:lr=0,1", "lr=0"),
        ("gd:lr=1;2", "lr=1;2"),
        ("gd:lr=fast", "lr=fast"),
        ("gd:lr=0x10", "lr=0x10"),
        ("gd:lr=1_000", "lr=1_000"),
        ("gd:lr=١", "lr=١"),
        ("gd:lr==1", "lr==1"),
        ("clipped-gd:lr=1,threshold=0", "threshold=0"),
        ("clipped-gd:lr=1,threshold=nan", "threshold=nan"),
        ("clipped-gd:lr=1,threshold=-inf", "threshold=-inf"),
        ("polyak:f_star=inf", "f_star=inf"),
        ("polyak-bound:lower_bound=-inf", "lower_bound=-inf"),
        ("decsps:grad_shift=-1e-4", "grad_shift=-1e-4"),
        ("adaptive-polyak:variant=epochs,epochs=0", "epochs=0"),
        ("adaptive-polyak:variant=epochs,epochs=2.5", "epochs=2.5"),
        ("adaptive-polyak:variant=epochs,epochs=1e7", "epochs=1e7"),
    ] {
        let (error, _) = rule_error(text);
        assert!(matches!(error, SpecError::BadValue { .. }), "{text}: {error:?}");
        says(text, &[given, "must be"]);
    }
    says("inexact-polyak:extend=always", &["extend=always", "one of never, keep, grow"]);
    says("dog:eps_each=true", &["eps_each=true", "one of no, yes"]);
    says("adaptive-polyak:variant=epochs,epochs=0", &["whole number from 1 to 1000000"]);
}

#[test]
fn pairs_that_are_none() {
    says("gd:lr=1,lr=2", &["`lr` is given twice"]);
    says("gd:lr=1,lr=1", &["`lr` is given twice"]);
    says("gd", &["needs `lr`", "the learning rate", "gd:lr=0.1"]);
    says("sgd", &["needs `lr`"]);
    says("clipped-gd:lr=1", &["needs `threshold`"]);
    says("gd:lr=", &["lr= does not work", "number"]);
    says("gd:lr", &["`lr` is not key=value", "`gd:lr=0.1`"]);
    says("gd:0.1", &["`0.1` is not key=value"]);
    for text in ["gd:", "gd:lr=1,", "gd:,lr=1", "gd:lr=1,,", "inexact-polyak:", "gd: "] {
        let (error, _) = rule_error(text);
        assert!(matches!(error, SpecError::NotAPair { .. }), "{text}: {error:?}");
    }
    says("gd:lr=1:2", &["lr=1:2"]);
}

#[test]
fn names_and_spaces() {
    for (text, printed) in [
        ("sgd:lr=0.1", "gd:lr=0.1"),
        ("clipped-sgd:threshold=inf,lr=.5", "clipped-gd:lr=0.5,threshold=inf"),
        ("  gd : lr = 1e-1  ", "gd:lr=0.1"),
        ("gd:lr=1e-8", "gd:lr=1e-8"),
        ("gd:lr=0.00000001", "gd:lr=1e-8"),
        ("gd:lr=+1", "gd:lr=1"),
        ("clipped-gd:lr=1,threshold=infinity", "clipped-gd:lr=1,threshold=inf"),
        ("adaptive-polyak:epochs=3.0,variant=epochs", "adaptive-polyak:variant=epochs,epochs=3"),
        ("inexact-polyak", "inexact-polyak"),
        ("inexact-polyak:lower_bound=0", "inexact-polyak:lower_bound=0"),
        ("polyak:f_star=-1e-12", "polyak:f_star=-1e-12"),
        ("gd:lr=123456789", "gd:lr=1.23456789e8"),
    ] {
        assert_eq!(text.parse::<MethodSpec>().unwrap().to_string(), printed, "{text:?}");
    }
    for text in [
        "",
        " ",
        ":",
        "g d:lr=1",
        "gd lr=1",
        "gd\u{200b}:lr=1",
        "ｇｄ:lr=1",
        "ポリヤク",
        "gd;lr=1",
        "GD:lr=1",
    ] {
        let (error, message) = rule_error(text);
        assert!(matches!(error, SpecError::UnknownName { .. }), "{text:?}: {error:?}");
        assert!(message.contains(text.split(':').next().unwrap().trim()), "{message}");
    }
}

#[test]
fn specs_in_serde() {
    let spec: MethodSpec = serde_json::from_str(r#""sgd:lr=0.1""#).unwrap();
    assert_eq!(serde_json::to_string(&spec).unwrap(), r#""gd:lr=0.1""#);
    let error = serde_json::from_str::<MethodSpec>(r#""sgd:lr=-0.1""#).unwrap_err().to_string();
    assert!(error.contains("lr=-0.1"), "{error}");
}

#[test]
fn problems_too() {
    for (text, printed) in [
        ("quartic", "quartic"),
        (" quartic : l1 = 1000 ", "quartic:l1=1000"),
        ("quartic:f_star=-1,x0=-5,l1=0,l0=2", "quartic:l0=2,l1=0,x0=-5,f_star=-1"),
    ] {
        let spec: ProblemSpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), printed);
        assert_eq!(printed.parse::<ProblemSpec>().unwrap(), spec);
    }
    for (text, pieces) in [
        ("quartik", ["unknown problem `quartik`", "did you mean `quartic`?"]),
        ("quartic:l2=1", ["no parameter `l2`", "l0, l1, x0, f_star"]),
        ("quartic:l0=0", ["l0=0", "above 0"]),
        ("quartic:l1=-1", ["l1=-1", "0 or more"]),
        ("quartic:x0=inf", ["x0=inf", "finite"]),
        ("quartic:x0=5,x0=5", ["`x0`", "twice"]),
        ("quartic:x0", ["`x0`", "key=value"]),
        ("gd:lr=1", ["unknown problem `gd`", "quartic"]),
    ] {
        let message = text.parse::<ProblemSpec>().unwrap_err().to_string();
        for piece in pieces {
            assert!(message.contains(piece), "{text}: {message:?} does not say {piece:?}");
        }
    }
    let problem = "quartic:l1=10,x0=-3,f_star=2".parse::<ProblemSpec>().unwrap().build().unwrap();
    assert_eq!(problem.start(), [-3.0]);
    assert_eq!(problem.known().f_star, Some(2.0));
    // 100/72·81 + 9/4 + 2 = 112.5 + 4.25
    assert!((problem.value(&[-3.0]) - 116.75).abs() < 1e-12);
}

/// The catalog itself: names that can be typed, and defaults that the parameter itself would accept.
#[test]
fn the_catalog_is_sound() {
    let mut names = Vec::new();
    for (what, info) in entries() {
        names.extend([(what, info.name)]);
        names.extend(info.aliases.iter().map(|a| (what, *a)));
        assert!(!info.formula.is_empty() && !info.reference.is_empty(), "{}", info.name);
        for parameter in info.parameters {
            assert!(!parameter.meaning.is_empty());
            assert!(
                parameter.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            let default = match parameter.default {
                DefaultValue::Number(v) => number(v),
                DefaultValue::Word(w) => w.to_string(),
                DefaultValue::Required | DefaultValue::Derived(_) => continue,
            };
            let required = info.parameters.iter().filter(|p| p.default == DefaultValue::Required);
            let mut pairs: Vec<_> = required.map(|p| format!("{}=1", p.name)).collect();
            pairs.push(format!("{}={default}", parameter.name));
            parse(what, &format!("{}:{}", info.name, pairs.join(","))).unwrap();
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two entries share a name");
    assert!(
        names
            .iter()
            .all(|(_, n)| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'))
    );
}
