//! What is saved goes on to the same bits; a file of something else is refused.

use crate::support::{self, MATRIX, Run, START, specs};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Optimizer as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use untuned::{Average, Optimizer};
use untuned_candle::{Config, Error, Untuned};

fn bits<M: Optimizer + Clone>(run: &mut Run<M>) -> Vec<u64> {
    let mut all = run.x();
    all.extend(run.evaluated());
    all.iter().map(|x| x.to_bits()).collect()
}

/// Saved before the first step, after it, and later, a run goes on as if nothing had been.
pub fn goes_on<M>(config: &Config<M>, dtype: DType)
where
    M: Optimizer + Clone + Serialize + DeserializeOwned,
{
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let what = config.text.as_ref().map_or("", |(spec, _)| spec.as_str());
    for before in [0, 1, 7] {
        let mut whole = Run::new(config.clone(), &START, MATRIX, dtype);
        whole.optimizer.set_learning_rate(0.5);
        for t in 0..before {
            whole.step_on_problem(t).unwrap();
        }
        whole.optimizer.save(&path).unwrap();
        // Another program begins somewhere else: what it loads is all it knows.
        let mut parts = Run::new(config.clone(), &[0.5; START.len()], MATRIX, dtype);
        parts.optimizer.load(&path).unwrap();
        assert_eq!(parts.optimizer.steps(), before);
        assert_eq!(bits(&mut parts), bits(&mut whole), "{what}");
        for t in before..before + 10 {
            let (one, two) = (whole.step_on_problem(t).unwrap(), parts.step_on_problem(t).unwrap());
            assert_eq!(one, two, "{what} at {t}");
            assert_eq!(bits(&mut parts), bits(&mut whole), "{what} at {t}");
        }
    }
}

#[test]
fn every_method_goes_on_bit_for_bit() {
    for spec in specs() {
        for average in [None, Some(Average::Polynomial(8.0))] {
            for (dtype, fused) in [(DType::F32, true), (DType::F64, false), (DType::BF16, false)] {
                let config = Config { average, fused, weight_decay: 0.01, ..Config::new(&spec, 40).unwrap() };
                goes_on(&config, dtype);
            }
        }
    }
}

#[test]
fn a_file_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let mut saved = Run::new(Config::new("adamw", 40).unwrap(), &START, MATRIX, DType::F32);
    saved.step_on_problem(0).unwrap();
    saved.optimizer.save(&path).unwrap();
    let loads = |config: Config, matrix: usize, dtype: DType| {
        let mut other = Run::new(config, &START, matrix, dtype);
        let result = other.optimizer.load(&path);
        if result.is_err() {
            let start = Run::new(Config::new("adamw", 40).unwrap(), &START, matrix, dtype);
            assert_eq!(other.x(), start.x());
            assert_eq!(other.optimizer.steps(), 0);
        }
        result.map_err(|error| error.to_string())
    };
    let config = |spec: &str, steps| Config::new(spec, steps).unwrap();
    let refused = |result: Result<(), String>, words: &[&str]| {
        let error = result.unwrap_err();
        assert!(error.contains("state.safetensors"), "{error}");
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error}");
    };
    loads(config("adamw", 40), MATRIX, DType::F32).unwrap();
    refused(loads(config("prodigy", 40), MATRIX, DType::F32), &["`adamw", "`prodigy", "40 steps"]);
    refused(loads(config("adamw:lr=0.01", 40), MATRIX, DType::F32), &["lr=0.01"]);
    refused(loads(config("adamw", 80), MATRIX, DType::F32), &["40 steps", "80 steps"]);
    let averaged = Config { average: Some(Average::Uniform), ..config("adamw", 40) };
    refused(loads(averaged, MATRIX, DType::F32), &["averaged (Uniform)"]);
    let decays = Config { weight_decay: 0.25, ..config("adamw", 40) };
    refused(loads(decays, MATRIX, DType::F32), &["its weight decay is 0.01, and here it is 0.25"]);
    let clipped = Config { clip: Some(3.5), ..config("adamw", 40) };
    refused(loads(clipped, MATRIX, DType::F32), &["its clipping norm is none, and here it is 3.5"]);
    refused(loads(config("adamw", 40), 3, DType::F32), &["layer.bias", "[3]", "[4]"]);
    refused(loads(config("adamw", 40), MATRIX, DType::F64), &["f32", "f64"]);
    let frozen = Config { frozen: vec!["layer.bias".into()], ..config("adamw", 40) };
    refused(loads(frozen, MATRIX, DType::F32), &["layer.bias", "no such variable"]);
    let names =
        [("layer.weight".to_string(), saved.vars[0].clone()), ("more".to_string(), saved.vars[1].clone())];
    let mut other = Untuned::named(names, config("adamw", 40)).unwrap();
    refused(other.load(&path).map_err(|error| error.to_string()), &["no tensor", "more"]);
}

#[test]
fn a_damaged_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let mut run = Run::new(Config::new("adamw", 40).unwrap(), &START, MATRIX, DType::F32);
    run.optimizer.save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 7, 8, 50, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(run.optimizer.load(&path).is_err(), "{length} bytes");
    }
    // Weights alone, as `VarMap::save` writes them.
    let weights = std::collections::HashMap::from([("x", Tensor::new(1f32, &Device::Cpu).unwrap())]);
    candle_core::safetensors::save(&weights, &path).unwrap();
    let error = run.optimizer.load(&path).unwrap_err().to_string();
    assert!(error.contains("no state of an optimizer"), "{error}");
    // The first layout had no number, the third called the method otherwise, and the next one will have another number.
    for (numbers, words) in [
        (
            r#"{"made_for": {"spec": "adamw", "steps": 40}, "step": 0}"#,
            "an older version wrote it (format 1)",
        ),
        (r#"{"format": 3, "made_for": {"description": "`adamw`"}}"#, "an older version wrote it (format 3)"),
        (r#"{"format": 5}"#, "a newer version wrote it (format 5)"),
    ] {
        let metadata = std::collections::HashMap::from([("untuned".to_string(), numbers.to_string())]);
        std::fs::write(&path, safetensors::serialize(&weights, Some(metadata)).unwrap()).unwrap();
        let error = run.optimizer.load(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("{words}; this one reads format 4")), "{error}");
    }
    let error = run.optimizer.load(folder.path().join("missing")).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    let error = run.optimizer.save(folder.path().join("no/such/folder")).unwrap_err().to_string();
    assert!(error.contains("folder"), "{error}");
    std::fs::write(&path, whole).unwrap();
    run.optimizer.load(&path).unwrap();
}

/// Over a good file nothing is written that cannot be read.
#[test]
fn a_rate_that_is_no_number_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let mut run = Run::new(Config::new("adamw", 40).unwrap(), &START, MATRIX, DType::F32);
    run.optimizer.save(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    for bad in [f64::NAN, f64::INFINITY] {
        run.optimizer.set_learning_rate(bad);
        let error = run.optimizer.save(&path).unwrap_err();
        assert!(matches!(error, Error::Number { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), good);
    }
    run.optimizer.load(&path).unwrap();
    assert_eq!(run.optimizer.learning_rate(), 1.0);
}

/// The bits of a file are a function of the state, and nothing is left beside it.
#[test]
fn saving_is_repeatable_and_leaves_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(Config::new("prodigy", 40).unwrap(), &START, MATRIX, DType::F32);
    run.step_on_problem(0).unwrap();
    for name in ["a", "b"] {
        run.optimizer.save(folder.path().join(name)).unwrap();
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("a"), read("b"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn evaluation_and_the_end() {
    for spec in ["schedule-free-sgd:lr=0.1", "schedule-free-adamw:lr=0.1", "adamw"] {
        let mut run = Run::new(Config::new(spec, 40).unwrap(), &START, MATRIX, DType::F32);
        for t in 0..10 {
            run.step_on_problem(t).unwrap();
        }
        let (trained, evaluated) = (run.x(), run.evaluated());
        assert_eq!(run.x(), trained, "{spec}");
        assert_eq!(trained != evaluated, spec.starts_with("schedule-free"), "{spec}");
        let work = || run.optimizer.evaluate(|| panic!("in the middle"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        assert_eq!(run.x(), trained, "{spec}: after a panic");
        let vars: [Var; 2] = run.vars.clone();
        run.optimizer.finish().unwrap();
        assert_eq!(vars.iter().flat_map(support::numbers).collect::<Vec<_>>(), evaluated, "{spec}");
    }
}
