//! Averages as wrappers of optimizers: against the official implementations, by hand, and what they leave as it was.

#![allow(clippy::unwrap_used)]

use serde::Deserialize;
use untuned::average::Average;
use untuned::optimizers::{Around, At, Averaged, Keep, Method, Optimizer, OptimizerSpec, Plain, catalog};
use untuned::{Observation, Refusal, Setting, vector};

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

/// An optimizer on the way.
#[derive(Clone, PartialEq, Debug)]
struct Run<O> {
    optimizer: O,
    space: Plain,
    x: Vec<f64>,
    kept: Vec<Vec<f64>>,
}

impl<O: Optimizer> Run<O> {
    fn new(optimizer: O, x: &[f64]) -> Run<O> {
        let space = Plain::new(x.len());
        let x = x.to_vec();
        let kept = Keep::all(&space, &optimizer.keeps(), &x).unwrap();
        Run { optimizer, space, x, kept }
    }

    fn step(&mut self, t: u64, loss: f64) -> Result<f64, Refusal> {
        let Run { optimizer, space, x, kept } = self;
        let gradient = &gradient(x, t);
        let around = Around::default();
        let mut sums = vec![0.0; 1 + optimizer.measures()];
        optimizer.measure(&At { space, around: &around, x, gradient, kept }, &mut sums, 0);
        let seen = Observation::new(t, loss, vector::norm(gradient));
        optimizer
            .step(&seen, &sums[1..], At { space, around: &around, x, gradient, kept })
            .map(|step| step.size)
    }

    fn evaluated(&self) -> Vec<f64> {
        let mut to = vec![f64::NAN; self.x.len()];
        assert!(self.optimizer.evaluated(&self.space, &self.x, &self.kept, &mut to));
        to
    }
}

/// The gradient of the problem of `official.py`.
fn gradient(x: &[f64], t: u64) -> Vec<f64> {
    let of = |(x, i): (&f64, u64)| {
        let (index, push) = (i as f64, ((t * i) % 7) as f64 - 3.0);
        0.5 * index * x + 0.1 * index * x * x * x + 0.25 * push
    };
    x.iter().zip(1..).map(of).collect()
}

fn build(spec: &str) -> Method {
    spec.parse::<OptimizerSpec>().unwrap().build(&Setting::new(200)).unwrap()
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
        let mut run = Run::new(Averaged::new(build("gd:lr=0.02"), average), &golden.start);
        assert_eq!(run.evaluated(), golden.start, "before the first step");
        for t in 0..golden.steps {
            run.step(t, 1.0).unwrap();
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
    for entry in catalog() {
        let needed = match entry.name {
            "gd" => ":lr=0.1",
            "clipped-gd" => ":lr=0.1,threshold=inf",
            "polyak" => ":f_star=0",
            _ => "",
        };
        let method = build(&format!("{}{needed}", entry.name));
        let average = Average::Polynomial(8.0);
        let start = [1.0, -2.0, 0.5];
        let mut alone = Run::new(method.clone(), &start);
        let mut run = Run::new(Averaged::new(method, average), &start);
        let mut mean = vec![f64::NAN; 3];
        for t in 0..7 {
            let before = run.clone();
            assert!(run.step(t, f64::NAN).is_err(), "{}", entry.name);
            assert_eq!(run, before, "{}", entry.name);
            assert_eq!(run.step(t, 4.0), alone.step(t, 4.0), "{}", entry.name);
            assert_eq!(run.x, alone.x, "{}", entry.name);
            average.add(&mut mean, &run.x, t + 1);
            assert!(vector::distance(&mean, &run.evaluated()) < 1e-12, "{}", entry.name);
        }
        let json = serde_json::to_string(&run.optimizer).unwrap();
        let mut parts = Run { optimizer: serde_json::from_str(&json).unwrap(), ..run.clone() };
        run.step(7, 4.0).unwrap();
        parts.step(7, 4.0).unwrap();
        assert_eq!(run, parts, "{}", entry.name);
    }
}

/// A point far smaller than the start, which `x̄ + 1·(x − x̄)` would round away.
#[test]
fn the_first_point_is_copied() {
    for average in [Average::Uniform, Average::Polynomial(8.0), Average::Exponential(0.99)] {
        let mut run = Run::new(Averaged::new(build("gd:lr=1"), average), &[0.3]);
        run.space = run.space.decaying(0..1);
        let Run { optimizer, space, x, kept } = &mut run;
        let around = Around { weight_decay: 1.0 - 1e-9, ..Around::default() };
        let at = At { space, around: &around, x, gradient: &vec![1e-30], kept };
        optimizer.step(&Observation::new(0, 1.0, 1e-30), &[], at).unwrap();
        assert!(run.x[0] > 0.0 && run.x[0] < 1e-9);
        assert_eq!(run.evaluated(), run.x, "{average:?}");
    }
}
