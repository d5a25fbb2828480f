//! Averages as an option of a session: against the official implementations, by hand, and what they leave as it was.

#![allow(clippy::unwrap_used)]

mod support;

use serde::Deserialize;
use support::{Run, build, with_required};
use untuned::{Average, DenseF64, Refusal, catalog, vector};

/// What `official/official.py` wrote of the averages.
#[derive(Deserialize)]
struct Golden {
    steps: u64,
    start: Vec<f64>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    spec: String,
    average: String,
    points: Vec<Vec<f64>>,
    evaluation: Vec<Vec<f64>>,
}

/// A run of 200 steps.
fn begin(spec: &str, x: &[f64]) -> Run {
    Run::new(build(spec, 200), DenseF64::new(x.len()), x)
}

/// A step of the problem, with a loss that is given.
fn step(run: &mut Run, t: u64, loss: f64) -> Result<f64, Refusal> {
    run.step(loss, &gradient(&run.x, t)).map(|report| report.rate)
}

/// The gradient of the problem of `official.py`.
fn gradient(x: &[f64], t: u64) -> Vec<f64> {
    let of = |(x, i): (&f64, u64)| {
        let (index, push) = (i as f64, ((t * i) % 7) as f64 - 3.0);
        0.5 * index * x + 0.1 * index * x * x * x + 0.25 * push
    };
    x.iter().zip(1..).map(of).collect()
}

#[test]
fn averages_as_the_official_ones() {
    let golden: Golden = serde_json::from_str(include_str!("official/averages.json")).unwrap();
    let averages = [
        ("PolynomialDecayAverager(model)", Average::Polynomial(8.0)),
        ("PolynomialDecayAverager(model, gamma=2.0)", Average::Polynomial(2.0)),
        ("get_ema_multi_avg_fn(0.95)", Average::Exponential(0.95)),
    ];
    assert_eq!(golden.cases.len(), averages.len());
    for (case, (words, average)) in golden.cases.iter().zip(averages) {
        assert!(case.average.contains(words), "{}", case.average);
        // Without momentum it is gradient descent, and any rule can be averaged.
        assert_eq!(case.spec, "sgd-momentum:lr=0.02,momentum=0");
        let mut run = begin("gd:lr=0.02", &golden.start).averaged(average);
        assert_eq!(run.evaluated(), golden.start, "before the first step");
        for t in 0..golden.steps {
            step(&mut run, t, 1.0).unwrap();
            if (t + 1) % 10 == 0 {
                let row = (t / 10) as usize;
                for (got, want) in [(&run.x, &case.points[row]), (&run.evaluated(), &case.evaluation[row])] {
                    let scale = want.iter().fold(0.0, |scale: f64, want| scale.max(want.abs()));
                    let error = vector::distance(got, want) / scale;
                    assert!(error < 1e-12, "{average:?}, step {t}: {got:?} is not {want:?}");
                }
            }
        }
    }
}

/// Training goes as without the average, which is that of the points after the steps, whatever the optimizer; a refused step
/// leaves it alone, and it goes on from its bytes as if nothing had been.
#[test]
fn every_method_can_be_averaged() {
    for info in catalog() {
        let (name, spec) = (info.name, with_required(info.name));
        let average = Average::Polynomial(8.0);
        let start = [1.0, -2.0, 0.5];
        let mut alone = begin(&spec, &start);
        let mut run = begin(&spec, &start).averaged(average);
        assert!(run.session.has_evaluation_point(), "{name}");
        let mut mean = vec![f64::NAN; 3];
        for t in 0..7 {
            let before = run.state();
            assert!(step(&mut run, t, f64::NAN).is_err(), "{name}");
            assert_eq!(run.state(), before, "{name}");
            assert_eq!(step(&mut run, t, 4.0), step(&mut alone, t, 4.0), "{name}");
            assert_eq!(run.x, alone.x, "{name}");
            let weight = average.weight(t + 1);
            for (mean, x) in mean.iter_mut().zip(&run.x) {
                *mean = if t == 0 { *x } else { *mean + weight * (x - *mean) };
            }
            assert!(vector::distance(&mean, &run.evaluated()) < 1e-12, "{name}");
        }
        let mut parts = run.resumed();
        step(&mut run, 7, 4.0).unwrap();
        step(&mut parts, 7, 4.0).unwrap();
        assert_eq!(run.state(), parts.state(), "{name}");
        assert_eq!(run.evaluated(), parts.evaluated(), "{name}");
    }
}

/// A point far smaller than the start, which `x̄ + 1·(x − x̄)` would round away.
#[test]
fn the_first_point_is_copied() {
    for average in [Average::Uniform, Average::Polynomial(8.0), Average::Exponential(0.99)] {
        let space = DenseF64::new(1).decaying(0..1);
        let mut run = Run::new(build("gd:lr=1", 200), space, &[0.3]).averaged(average);
        run.session.options.weight_decay = 1.0 - 1e-9;
        run.step(1.0, &[1e-30]).unwrap();
        assert!(run.x[0] > 0.0 && run.x[0] < 1e-9);
        assert_eq!(run.evaluated(), run.x, "{average:?}");
    }
}
