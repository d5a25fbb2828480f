//! A run that is saved in Burn's own formats and loaded goes on to the same bits.

use crate::support::{self, START, Six, specs, step};
use burn::module::Module;
use burn::optim::OptimizerRecord;
use burn::store::ModuleRecord;
use burn::tensor::DType;
use untuned::Average;
use untuned_burn::{StepError, Stepper};

/// Saves module and stepper to bytes, makes new ones and loads them.
fn reload(module: &Six, stepper: &Stepper, mut fresh: Stepper, dtype: DType) -> (Six, Stepper) {
    let weights = module.clone().into_record().into_bytes().unwrap();
    let state = stepper.to_record().unwrap().into_bytes().unwrap();
    let module = Six::new(&[0.0; 6], 4, dtype).load_record(ModuleRecord::from_bytes(weights).unwrap());
    fresh.load_record(OptimizerRecord::from_bytes(state).unwrap(), &module).unwrap();
    (module, fresh)
}

#[test]
fn every_method_goes_on_bit_for_bit() {
    for spec in specs() {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            for steps in [0, 1, 7] {
                let new = || Stepper::new(&spec, 20).unwrap().weight_decay(0.01).unwrap().keep_best();
                let (mut whole, mut module) = (new(), Six::new(&START, 4, dtype));
                for t in 0..steps {
                    step(&mut whole, &mut module, t);
                }
                let (mut other, mut parts) = reload(&module, &whole, new(), dtype);
                assert_eq!(other.bits(), module.bits(), "{spec}");
                for t in steps..steps + 8 {
                    let reports = (step(&mut whole, &mut module, t), step(&mut parts, &mut other, t));
                    assert_eq!(reports.0, reports.1, "{spec}, {dtype:?} at {t}");
                    assert_eq!(other.bits(), module.bits(), "{spec}, {dtype:?} at {t}");
                }
                let bytes = |stepper: &Stepper| stepper.to_record().unwrap().into_bytes().unwrap().len();
                assert_eq!(bytes(&whole), bytes(&parts), "{spec}");
                let best = |stepper: &Stepper, module: &Six| {
                    stepper.best(module).unwrap().map(|(loss, best)| (loss, best.bits()))
                };
                assert_eq!(best(&whole, &module), best(&parts, &other), "{spec}");
            }
        }
    }
}

#[test]
fn through_files_and_with_an_average() {
    let folder = tempfile::tempdir().unwrap();
    let new = || Stepper::from_method(support::method("dog", 20)).average(Average::Polynomial(8.0)).unwrap();
    let (mut whole, mut module) = (new(), Six::new(&START, 4, DType::F32));
    for t in 0..5 {
        step(&mut whole, &mut module, t);
    }
    module.clone().into_record().save(folder.path().join("model")).unwrap();
    whole.save(folder.path().join("stepper")).unwrap();
    assert!(folder.path().join("stepper.bpk").exists(), "a burnpack file");

    let record = ModuleRecord::load(folder.path().join("model")).unwrap();
    let mut other = Six::new(&[0.0; 6], 4, DType::F32).load_record(record);
    let mut parts = new();
    parts.load(folder.path().join("stepper"), &other).unwrap();
    for t in 5..10 {
        assert_eq!(step(&mut whole, &mut module, t), step(&mut parts, &mut other, t));
    }
    assert_eq!(module.bits(), other.bits());
    let evaluated = whole.evaluated(&module).unwrap();
    assert_eq!(evaluated.bits(), parts.evaluated(&other).unwrap().bits());
    assert_ne!(evaluated.bits(), module.bits(), "the average is another point");
    assert!(parts.load(folder.path().join("nothing"), &other).is_err());
}

#[test]
fn a_record_that_does_not_fit_is_refused_and_changes_nothing() {
    let (mut adamw, mut module) = (Stepper::new("adamw", 9).unwrap(), Six::new(&START, 4, DType::F32));
    step(&mut adamw, &mut module, 0);
    let record = || adamw.to_record().unwrap();

    let mut prodigy = Stepper::new("prodigy", 9).unwrap();
    let error = prodigy.load_record(record(), &module).unwrap_err().to_string();
    assert!(error.contains("the state of `adamw` for 9 steps, and this is `prodigy` for 9 steps"), "{error}");

    let mut fresh = Stepper::new("adamw", 9).unwrap();
    let error = fresh.load_record(record(), &Six::new(&START, 4, DType::F32)).unwrap_err().to_string();
    assert!(error.contains("no vector `m` of `matrix`"), "{error}");

    let mut fewer = module.clone();
    fewer.list = fewer.list.map(|list| list.set_require_grad(false));
    let error = fresh.load_record(record(), &fewer).unwrap_err().to_string();
    assert!(error.contains("no parameter of the module has the vector"), "{error}");
    assert_eq!(fresh.steps(), 0);

    let other = burn::optim::SgdConfig::new().init().to_record();
    assert!(matches!(fresh.load_record(other, &module), Err(StepError::Record(_))));
    fresh.load_record(record(), &module).unwrap();
    assert_eq!(fresh.steps(), 1);
}

/// What the version before this one wrote: no number of a format, and other fields.
#[test]
fn a_record_of_an_older_layout_is_refused() {
    let numbers = r#"{"made_for":{},"method":{"rule":"adamw"},"around":{},"step":1,"x0_norm":2.5}"#;
    for (text, who, found) in [(numbers, "an older", 1), (r#"{"format":3}"#, "a newer", 3)] {
        let writer = burn_pack::Writer::new(Vec::new()).with_metadata("untuned", text);
        let record = OptimizerRecord::from_bytes(writer.into_bytes().unwrap()).unwrap();
        let (mut fresh, module) = (Stepper::new("adamw", 9).unwrap(), Six::new(&START, 4, DType::F32));
        let error = fresh.load_record(record, &module).unwrap_err();
        let words =
            format!("the record was written by {who} version (format {found}), and this one reads format 2");
        assert_eq!(error.to_string(), words);
    }
}

/// Another parameter, another number of steps and another average make another run, also where a rule does not look at them.
#[test]
fn a_record_of_another_configuration_is_refused() {
    let made = |method: &str| Stepper::from_method(support::method(method, 9));
    let averaged =
        |decay| Stepper::from_method(support::method("dog", 9)).average(Average::Polynomial(decay)).unwrap();
    let new = |spec: &str, steps| Stepper::new(spec, steps).unwrap();
    let cases = [
        (
            new("adamw:lr=0.01", 9),
            new("adamw:lr=0.1", 9),
            ["`adamw:lr=0.01` for 9 steps", "`adamw:lr=0.1` for 9"],
        ),
        (new("decsps", 9), new("decsps", 99), ["`decsps` for 9 steps", "`decsps` for 99 steps"]),
        (new("gd:lr=0.1", 9), new("gd:lr=0.1", 99), ["for 9 steps", "for 99 steps"]),
        (averaged(8.0), new("dog", 9), ["`dog`, averaged (Polynomial(8.0))", "this is `dog` for 9 steps"]),
        (
            new("dog", 9),
            averaged(8.0),
            ["the state of `dog` for 9", "this is `dog`, averaged (Polynomial(8.0))"],
        ),
        (averaged(8.0), averaged(4.0), ["Polynomial(8.0)", "Polynomial(4.0)"]),
        (made("gd:lr=0.1"), made("gd:lr=0.25"), ["0.1", "0.25"]),
    ];
    for (mut saved, mut fresh, words) in cases {
        let mut module = Six::new(&START, 4, DType::F32);
        step(&mut saved, &mut module, 0);
        let before = (fresh.method().clone(), fresh.steps());
        let error = fresh.load_record(saved.to_record().unwrap(), &module).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert_eq!((fresh.method().clone(), fresh.steps()), before);
    }
    // The same method in other words.
    for mut fresh in [new("adamw:lr=0.001", 9), made("adamw").weight_decay(0.01).unwrap()] {
        let (mut saved, mut module) = (new("adamw", 9), Six::new(&START, 4, DType::F32));
        step(&mut saved, &mut module, 0);
        fresh.load_record(saved.to_record().unwrap(), &module).unwrap();
        assert_eq!(fresh.steps(), 1);
    }
}

/// A factor of the rate changes in a run and goes on; what is the same in all of it must be said again.
#[test]
fn what_is_around_is_part_of_a_record() {
    let new = |decay: f64| Stepper::new("adamw", 9).unwrap().weight_decay(decay).unwrap();
    let (mut saved, mut module) = (new(0.5).clip(2.0).unwrap(), Six::new(&START, 4, DType::F32));
    saved.set_rate(0.25).unwrap();
    step(&mut saved, &mut module, 0);
    for (mut fresh, words) in [
        (new(0.25).clip(2.0).unwrap(), "its weight decay is 0.5, and here it is 0.25"),
        (new(0.5), "its clipping norm is 2, and here it is none"),
        (new(0.5).clip(3.0).unwrap(), "its clipping norm is 2, and here it is 3"),
    ] {
        let error = fresh.load_record(saved.to_record().unwrap(), &module).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(fresh.steps(), 0);
    }
    let (mut other, mut parts) = reload(&module, &saved, new(0.5).clip(2.0).unwrap(), DType::F32);
    assert_eq!(step(&mut parts, &mut other, 1), step(&mut saved, &mut module, 1));
    assert_eq!(other.bits(), module.bits());
}
