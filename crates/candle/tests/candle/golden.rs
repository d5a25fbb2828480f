//! Every method walks as its official implementation does: the traces of the library's own test, with Candle's variables.

use crate::cases::{self, Case, EVERY, Golden, problem};
use crate::support::{Run, difference};
use candle_core::DType;
use candle_nn::Optimizer as _;
use untuned::Optimizer as _;
use untuned_candle::Config;

#[test]
fn walks_as_the_official_implementations() {
    let mut walked = 0;
    for (allowed, golden) in cases::all() {
        for (case, fused) in golden.cases.iter().flat_map(|case| [(case, true), (case, false)]) {
            let error = walk(&golden, case, fused);
            assert!(error < allowed, "{}, fused {fused}: {error:.1e}", case.spec);
            walked += 1;
        }
    }
    assert!(walked > 100, "{walked}");
}

fn walk(golden: &Golden, case: &Case, fused: bool) -> f64 {
    let mut config = Config::new(&case.spec, golden.steps).unwrap();
    let decayed = case.decayed.unwrap_or(golden.decayed);
    (config.clip, config.weight_decay, config.fused) = (case.around.clip, case.around.weight_decay, fused);
    // The official codes of scalar rules add λ·x to the gradient: to a rule that is another problem.
    let mut penalty = 0.0;
    if config.method.decays_everything() {
        std::mem::swap(&mut penalty, &mut config.weight_decay);
    }
    if config.method.decays_everything() || config.clip.is_some_and(|clip| clip <= 0.0) {
        config.clip = None;
    }
    let mut run = Run::new(config, &golden.start, decayed, DType::F64);
    let mut worst: f64 = 0.0;
    for t in 0..golden.steps {
        let x = run.x();
        let (loss, mut gradient) = problem(&x, t);
        (0..decayed).for_each(|i| gradient[i] += penalty * x[i]);
        run.optimizer.set_learning_rate(case.around.rate(t));
        run.step(loss, &gradient).unwrap();
        if (t + 1) % EVERY == 0 {
            let row = (t / EVERY) as usize;
            worst = worst.max(difference(&run.x(), &case.points[row]));
            if let Some(evaluation) = &case.evaluation {
                worst = worst.max(difference(&run.evaluated(), &evaluation[row]));
            }
        }
    }
    worst
}
