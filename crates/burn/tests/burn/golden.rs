//! A module walks as the official implementation of its optimizer does: the library's own traces, in f64.

use crate::cases::{self, Case, EVERY, Golden};
use crate::support::{self, Six, method};
use burn::tensor::DType;
use untuned::Optimizer as _;
use untuned_burn::Stepper;

#[test]
fn every_official_trace() {
    let (mut wrong, mut walked) = (Vec::new(), 0);
    for (allowed, golden) in cases::all() {
        for (case, loops) in golden.cases.iter().flat_map(|case| [(case, true), (case, false)]) {
            let error = walk(&golden, case, loops);
            if error > allowed {
                wrong.push(format!("{}, loops {loops}: {error:.1e}", case.spec));
            }
            walked += 1;
        }
    }
    assert!(wrong.is_empty() && walked > 140, "{walked} walks; wrong are:\n{}", wrong.join("\n"));
}

/// The largest error, relative to the largest number.
fn walk(golden: &Golden, case: &Case, loops: bool) -> f64 {
    let decayed = case.decayed.unwrap_or(golden.decayed);
    let method = method(&case.spec, golden.steps);
    // The official codes of scalar rules add λ·x to the gradient: to a rule that is another problem.
    let (mut decay, mut penalty) = (case.around.weight_decay, 0.0);
    if method.decays_everything() {
        std::mem::swap(&mut decay, &mut penalty);
    }
    let mut stepper = Stepper::from_method(method).weight_decay(decay).unwrap().loops(loops);
    // Where clipping has no effect the official code is given none either.
    if let Some(clip) = case.around.clip {
        stepper = stepper.clip(clip).unwrap();
    }
    let mut module = Six::new(&golden.start, decayed, DType::F64);
    let mut worst: f64 = 0.0;
    let mut compare = |got: Vec<f64>, want: &[f64]| worst = worst.max(support::error(&got, want, 0.0));
    for t in 0..golden.steps {
        stepper.set_rate(case.around.rate(t)).unwrap();
        let loss = module.loss(t, penalty, decayed);
        let gradients = module.gradients(&loss);
        stepper.step(loss, &mut module, gradients).unwrap_or_else(|error| panic!("{}: {error}", case.spec));
        if (t + 1) % EVERY == 0 {
            let row = (t / EVERY) as usize;
            compare(module.numbers(), &case.points[row]);
            if let Some(evaluation) = &case.evaluation {
                compare(stepper.evaluated(&module).unwrap().numbers(), &evaluation[row]);
            }
        }
    }
    worst
}
