//! Parameters as structs: they are the table's, their text's, and nothing that the table does not allow can be built.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fmt::Display;

use support::{Run, build, with_required};
use untuned::parameters::Parameters;
use untuned::prelude::*;
use untuned::spec::{DefaultValue, Kind, Spec, Value};
use untuned::{Method, Optimizer, SpecError, catalog};

/// A check for every method, each by its struct.
macro_rules! every {
    ($($name:ident),* $(,)?) => {
        /// The names of all methods whose structs are checked here.
        const CHECKED: &[&str] = &[$(<$name as Parameters>::INFO.name),*];

        #[test]
        fn defaults_are_those_of_the_table_and_of_the_bare_text() {
            $(default_is_the_tables::<$name>();)*
        }

        #[test]
        fn every_parameter_is_read_and_printed() {
            $(each_parameter_reads_and_prints::<$name>();)*
        }
    };
}

every!(
    Gd,
    ClippedGd,
    Polyak,
    PolyakBound,
    InexactPolyak,
    Decsps,
    Adasps,
    Dog,
    AnytimePolyak,
    AdaptivePolyak,
    LevelPolyak,
    SpsMax,
    AliG,
    Dowg,
    SgdMomentum,
    Adagrad,
    AdamW,
    Momo,
    MomoAdam,
    Cocob,
    DAdaptSgd,
    DAdaptAdam,
    Prodigy,
    ScheduleFreeSgd,
    ScheduleFreeAdamW,
    Mechanic,
    PolyakAdam,
);

#[test]
fn every_method_is_here() {
    let here: BTreeSet<_> = CHECKED.iter().copied().collect();
    let all: BTreeSet<_> = catalog().iter().map(|info| info.name).collect();
    assert_eq!((here.len(), &here), (CHECKED.len(), &all));
}

fn read<P: Parameters>(text: &str) -> P {
    P::from_spec(&Spec::parse(text, "method", &catalog()).unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn default_is_the_tables<P: Parameters + Display>() {
    let (default, name) = (P::default(), P::INFO.name);
    assert_eq!(default.values().len(), P::INFO.parameters.len(), "{name}");
    for (parameter, value) in P::INFO.parameters.iter().zip(default.values()) {
        let same = match (parameter.default, value) {
            (DefaultValue::Number(table), Some(Value::Number(v))) => table.to_bits() == v.to_bits(),
            (DefaultValue::Word(table), Some(Value::Word(word))) => table == word,
            (DefaultValue::Derived(_), None) => true,
            (DefaultValue::Required, Some(Value::Number(v))) => v.is_nan(),
            _ => false,
        };
        assert!(same, "{name}: {} is {value:?} and not {:?}", parameter.name, parameter.default);
    }
    let required = P::INFO.parameters.iter().any(|parameter| parameter.default == DefaultValue::Required);
    if !required {
        assert_eq!(read::<P>(name), default, "{name}");
        assert_eq!(default.to_string(), name);
    }
    // The text, the method made of it, and back.
    let spec: MethodSpec = with_required(name).parse().unwrap();
    let json = serde_json::to_value(spec.build(&RunInfo::new(100)).unwrap()).unwrap();
    assert_eq!(json["parameters"], spec.to_string(), "{name}: {json}");
    assert_eq!(read::<P>(&spec.to_string()).to_string(), spec.to_string());
}

/// A value that is not the default, and differs from parameter to parameter.
fn another(kind: Kind, default: DefaultValue, place: usize) -> Value {
    match kind {
        Kind::Word(words) => {
            Value::Word(words.iter().find(|word| default != DefaultValue::Word(word)).expect("two words"))
        }
        Kind::Whole(low, _) => Value::Number((low + 1 + place as u64) as f64),
        _ => Value::Number((0.5 + place as f64) / 32.0),
    }
}

fn each_parameter_reads_and_prints<P: Parameters + Display>() {
    let others: Vec<Value> = P::INFO
        .parameters
        .iter()
        .enumerate()
        .map(|(place, parameter)| another(parameter.kind, parameter.default, place))
        .collect();
    let pairs = P::INFO.parameters.iter().zip(&others).map(|(p, value)| format!("{}={value}", p.name));
    let pairs: Vec<_> = pairs.collect();
    let text = if pairs.is_empty() {
        P::INFO.name.to_string()
    } else {
        format!("{}:{}", P::INFO.name, pairs.join(","))
    };
    let parameters = read::<P>(&text);
    assert_eq!(parameters.values(), others.into_iter().map(Some).collect::<Vec<_>>(), "{text}");
    assert_eq!(parameters.to_string(), text);
}

/// What a method starts with follows from the parameters of the struct, as it does from those of a text.
#[test]
fn a_state_follows_its_parameters() {
    let run = RunInfo::new(100);
    let prodigy = Prodigy { d0: 1e-5, ..Default::default() }.build(&run).unwrap();
    assert_eq!(prodigy.estimate(), Some(1e-5));
    let mut session = Session::new(prodigy.clone(), DenseF64::new(1)).unwrap();
    assert_eq!(session.advance(1.0, &mut vec![1.0], &vec![1.0]).unwrap().rate, 1e-5);
    assert_eq!(prodigy.parameters().to_string(), "prodigy:d0=1e-5");
    assert_eq!(Method::Prodigy(prodigy), build("prodigy:d0=1e-5", 100));

    let mechanic = Mechanic { form: MechanicForm::Optax, s_init: Some(0.25), betas: 3, ..Default::default() };
    let mechanic = mechanic.build(&run).unwrap();
    assert_eq!(mechanic.estimate(), Some(0.75), "three scales of s_init");
    assert_eq!(Method::Mechanic(mechanic), build("mechanic:form=optax,s_init=0.25,betas=3", 100));

    let pairs = [
        (
            Rule::Decsps(Decsps { c0: 2.0, gamma: 3.0, ..Default::default() }.build(&run).unwrap()),
            "decsps:c0=2,gamma=3",
        ),
        (Rule::Dowg(Dowg { r2: Some(4.0), ..Default::default() }.build(&run).unwrap()), "dowg:r2=4"),
        (Rule::Dog(Dog { eps: 4.0, ..Default::default() }.build(&run).unwrap()), "dog:eps=4"),
        (Rule::InexactPolyak(InexactPolyak::default().build(&run).unwrap()), "inexact-polyak"),
        (Rule::Polyak(Polyak { f_star: Some(2.0) }.build(&run).unwrap()), "polyak:f_star=2"),
        (
            Rule::SpsMax(
                SpsMax { cap: SpsMaxCap::Smooth, first_step: 0.5, ..Default::default() }.build(&run).unwrap(),
            ),
            "sps-max:cap=smooth,first_step=0.5",
        ),
    ];
    for (rule, text) in pairs {
        assert_eq!(rule, text.parse::<MethodSpec>().unwrap().build_rule(&run).unwrap(), "{text}");
    }
    // The first step of DecSPS is at most γ, whichever way it was given.
    let decsps = Decsps { gamma: 0.25, ..Default::default() }.build(&run).unwrap();
    let mut run = Run::new(decsps, DenseF64::new(1), &[1.0]);
    assert_eq!(run.step(8.0, &[1.0]).unwrap().rate, 0.25);
}

#[track_caller]
fn refused<M: std::fmt::Debug>(built: Result<M, SpecError>, method: &str, words: &[&str]) {
    let error = built.unwrap_err().to_string();
    assert!(error.contains(&format!("`{method}`")), "{error}");
    for word in words {
        assert!(error.contains(word), "{error:?} does not say {word:?}");
    }
}

/// What no text could have is refused where it is built, with the name of the parameter.
#[test]
fn values_out_of_range_are_refused_where_they_are_built() {
    let run = RunInfo::new(100);
    let nan = f64::NAN;
    for (lr, word) in [(-1.0, "lr=-1"), (0.0, "lr=0"), (nan, "lr=NaN"), (f64::INFINITY, "lr=inf")] {
        refused(AdamW { lr, ..Default::default() }.build(&run), "adamw", &[word, "lr must be", "above 0"]);
    }
    refused(AdamW { beta1: 1.0, ..Default::default() }.build(&run), "adamw", &["beta1=1", "below 1"]);
    refused(AdamW { eps: 0.0, ..Default::default() }.build(&run), "adamw", &["eps=0", "above 0"]);
    refused(
        AdamW { eps: 1e-40, ..Default::default() }.build(&run),
        "adamw",
        &["eps=1e-40", "at least 1.2e-38"],
    );
    refused(PolyakAdam { eps: 1e-40, ..Default::default() }.build(&run), "polyak-adam", &["eps=1e-40"]);
    refused(
        PolyakAdam { dog: nan, ..Default::default() }.build(&run),
        "polyak-adam",
        &["dog=NaN", "0 or more"],
    );
    refused(Gd::default().build(&run), "gd", &["needs `lr`", "the learning rate", "gd:lr=0.1"]);
    refused(Gd { lr: nan }.build(&run), "gd", &["needs `lr`"]);
    refused(Gd { lr: -0.5 }.build(&run), "gd", &["lr=-0.5", "above 0"]);
    refused(ClippedGd::default().build(&run), "clipped-gd", &["needs `lr`"]);
    refused(ClippedGd { lr: 1.0, ..Default::default() }.build(&run), "clipped-gd", &["needs `threshold`"]);
    refused(ClippedGd { lr: 1.0, threshold: -1.0 }.build(&run), "clipped-gd", &["threshold=-1", "or inf"]);
    refused(
        Prodigy { beta3: Some(1.0), ..Default::default() }.build(&run),
        "prodigy",
        &["beta3=1", "below 1"],
    );
    refused(Prodigy { beta3: Some(nan), ..Default::default() }.build(&run), "prodigy", &["beta3=NaN"]);
    refused(Prodigy { growth_rate: nan, ..Default::default() }.build(&run), "prodigy", &["growth_rate=NaN"]);
    refused(Decsps { grad_shift: -1.0, ..Default::default() }.build(&run), "decsps", &["grad_shift=-1"]);
    let endless = LevelPolyak { lower_bound: f64::NEG_INFINITY };
    refused(endless.build(&run), "level-polyak", &["lower_bound=-inf", "finite"]);
    refused(Polyak { f_star: Some(f64::INFINITY) }.build(&run), "polyak", &["f_star=inf", "finite"]);
    refused(
        Mechanic { betas: 16, ..Default::default() }.build(&run),
        "mechanic",
        &["betas=16", "from 1 to 15"],
    );
    let no_epoch = SpsMax { cap: SpsMaxCap::Smooth, epoch: 0, ..Default::default() };
    refused(no_epoch.build(&run), "sps-max", &["epoch=0", "whole number from 1"]);
    let none =
        AdaptivePolyak { variant: AdaptivePolyakVariant::Epochs, epochs: Some(0), ..Default::default() };
    refused(none.build(&run), "adaptive-polyak", &["epochs=0", "whole number"]);
}
