//! A step-size rule of one's own: Polyak's step, but never longer than the last one times two.
//!
//! `cargo run --release -p untuned --example own_rule`

use untuned::prelude::*;

/// `η_t = min{(f − l)/‖g‖², 2·η_{t−1}}`.
#[derive(Debug, Clone, Default)]
struct CautiousPolyak {
    lower_bound: f64,
    /// `η_{t−1}`; nothing before the first step.
    last: Option<f64>,
}

impl StepRule for CautiousPolyak {
    fn step(&mut self, seen: &Observation) -> Result<Step, Refusal> {
        seen.check(self.needs())?;
        if seen.grad_norm == 0.0 {
            return Ok(Step::STATIONARY);
        }
        let gap = seen.above(self.lower_bound)?;
        let polyak = seen.over_squared_norm(gap.value);
        let step = Step::new(self.last.map_or(polyak, |last| polyak.min(2.0 * last)), seen)?.mark(gap);
        self.last = Some(step.size);
        Ok(step)
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problem = Function::new(vec![3.0, -2.0], |x, gradient| {
        gradient.copy_from_slice(&[2.0 * x[0], 40.0 * x[1].powi(3)]);
        x[0] * x[0] + 10.0 * x[1].powi(4)
    });
    let run = minimize(&problem, CautiousPolyak::default(), &problem.start(), 200)?;
    println!("{}: loss {:.2e} after 200 steps", run.outcome.word(), run.best.loss);
    assert!(run.best.loss < 1e-6, "{}", run.best.loss);
    Ok(())
}
