use std::ops::ControlFlow;

use untuned::minimize::Iterate;
use untuned::{MethodSpec, Minimizer, Outcome, RunInfo};
use untuned_theory::problems::Quartic;

use super::{F_STAR, GAP};

/// What one run on the quartic showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// How it ended.
    pub outcome: Outcome,
    /// The first step whose gap is at most [`GAP`].
    pub reached: Option<u64>,
    /// The gap at the last iterate; infinite for a run that diverged.
    pub last_gap: f64,
    /// The smallest gap.
    pub best_gap: f64,
    /// The largest `|x_t|`, relative to `|x_0|`: `D_T/D_0`.
    pub spread: f64,
    /// The first step size.
    pub first_step: f64,
    /// The last step size.
    pub last_step: f64,
    /// The largest step size.
    pub largest_step: f64,
    /// How often a step was larger than the one before.
    pub increases: u64,
    /// The steps that were made.
    pub steps: u64,
}

/// Runs `rule` on the paper's quartic with this `L1` and start, over a horizon of `horizon` steps but for at most
/// `steps`; with `until_reached`, only to the first gap of [`GAP`].
///
/// # Panics
/// When the rule is not a valid spec: these are the experiment's own.
pub fn measure(rule: &str, l1: f64, x0: f64, horizon: u64, steps: u64, until_reached: bool) -> Measured {
    let problem = Quartic::new(1.0, l1, x0, F_STAR);
    let spec: MethodSpec = rule.parse().unwrap_or_else(|e| panic!("{rule}: {e}"));
    let mut rule = spec.build_rule(&RunInfo::of(&problem, horizon)).unwrap_or_else(|e| panic!("{spec}: {e}"));
    let mut seen = Measured {
        outcome: Outcome::Finished,
        reached: None,
        last_gap: f64::INFINITY,
        best_gap: f64::INFINITY,
        spread: 0.0,
        first_step: f64::NAN,
        last_step: f64::NAN,
        largest_step: 0.0,
        increases: 0,
        steps: 0,
    };
    let mut watch = |i: &Iterate<'_>| {
        seen.spread = seen.spread.max(i.x[0].abs() / x0.abs());
        if seen.reached.is_none() && i.loss - F_STAR <= GAP {
            seen.reached = Some(i.step);
        }
        if let Some(next) = i.next {
            if i.step == 0 {
                seen.first_step = next.rate;
            } else if next.rate > seen.last_step {
                seen.increases += 1;
            }
            seen.last_step = next.rate;
            seen.largest_step = seen.largest_step.max(next.rate);
        }
        if until_reached && seen.reached.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let loop_ = Minimizer::new(&problem).trace(false).average(None).observe(&mut watch);
    let run = loop_.run(&mut rule, &[x0], steps).unwrap_or_else(|e| panic!("{spec}: {e}"));
    seen.outcome = run.outcome;
    seen.steps = run.last.step;
    seen.best_gap = run.best.loss - F_STAR;
    if !matches!(run.outcome, Outcome::Diverged { .. }) {
        seen.last_gap = run.last.loss - F_STAR;
    }
    seen
}
