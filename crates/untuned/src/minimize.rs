//! The deterministic loop: `x_{t+1} = x_t − η_t ∇f(x_t)`, with trace, best iterate and average iterate.

use std::convert::Infallible;
use std::ops::ControlFlow;

use thiserror::Error;

use crate::average::Average;
use crate::optimizer::{Optimizer, SessionError};
use crate::problem::Problem;
use crate::rule::{Refusal, StepKind};
use crate::session::{Report, Session};
use crate::space::DenseF64;
use crate::spec::SpecError;
use crate::vector;

/// Points of problems with at most this many variables are kept in a trace.
pub const TRACED_DIMENSIONS: usize = 16;

/// Makes `steps` steps from `x0` and keeps everything: trace, best iterate, uniform average.
///
/// [`Minimizer`] is the same with choices: observers, another average, no trace.
///
/// # Errors
/// When `x0` does not have the problem's dimension or is not finite. A run that diverges is not an error: it is an
/// [`Outcome`], with the trace up to there.
pub fn minimize<P, M>(problem: &P, method: M, x0: &[f64], steps: u64) -> Result<Run, StartError>
where
    P: Problem + ?Sized,
    M: Optimizer,
{
    Minimizer::new(problem).run(method, x0, steps)
}

/// A start that the problem cannot take, or an average that cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum StartError {
    /// Another number of variables.
    #[error("the start has {given} variables, the problem {wanted}")]
    Dimension { given: usize, wanted: usize },
    /// The average's number cannot be used.
    #[error(transparent)]
    Average(#[from] SpecError),
    /// A variable is NaN or infinite.
    #[error("variable {index} of the start is {value}; it must be finite")]
    NotFinite { index: usize, value: f64 },
}

/// One iterate as an [`Observer`] sees it: the point, and the step that will be taken from it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Iterate<'a> {
    /// `t`.
    pub step: u64,
    /// `x_t`.
    pub x: &'a [f64],
    /// `∇f(x_t)`.
    pub gradient: &'a [f64],
    /// `f(x_t)`.
    pub loss: f64,
    /// `‖∇f(x_t)‖`.
    pub grad_norm: f64,
    /// The step from this point. `None` at `x_T`, and where the run diverged or was refused. A run that an observer stops here does not
    /// take it.
    pub next: Option<Report>,
}

/// Something that watches a run: a progress bar, a trace file, a check. Breaking stops the run.
pub trait Observer {
    /// Called once for every iterate `x_0 … x_T`.
    fn see(&mut self, iterate: &Iterate<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(&Iterate<'_>) -> ControlFlow<()>> Observer for F {
    fn see(&mut self, iterate: &Iterate<'_>) -> ControlFlow<()> {
        self(iterate)
    }
}

/// One line of a trace: the point `x_t` and the step taken from it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// `t`.
    pub step: u64,
    /// `f(x_t)`; not finite only in the last row of a run that diverged.
    pub loss: f64,
    /// `‖∇f(x_t)‖`.
    pub grad_norm: f64,
    /// `η_t`; `None` at `x_T` and where the run diverged or was refused.
    pub step_size: Option<f64>,
    /// `x_t`, for problems of at most [`TRACED_DIMENSIONS`] variables.
    pub x: Option<Vec<f64>>,
}

impl From<&Iterate<'_>> for Row {
    fn from(i: &Iterate<'_>) -> Row {
        let x = (i.x.len() <= TRACED_DIMENSIONS).then(|| i.x.to_vec());
        Row { step: i.step, loss: i.loss, grad_norm: i.grad_norm, step_size: i.next.map(|n| n.rate), x }
    }
}

/// An iterate that was kept.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// `t`.
    pub step: u64,
    /// Its loss.
    pub loss: f64,
    /// The point.
    pub x: Vec<f64>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "a step is that of the end")]
pub enum Outcome {
    /// All steps were made.
    Finished,
    /// All steps were made, and the last gradient was 0.
    Stationary,
    /// The loss or the gradient at `x_step` is not finite.
    Diverged { step: u64 },
    /// The method made no step.
    Refused(Refusal),
    /// An observer stopped the run at this step.
    Stopped { step: u64 },
}

impl Outcome {
    /// The outcome as one word: `finished`, `stationary`, `diverged`, `refused` or `stopped`.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Stationary => "stationary",
            Outcome::Diverged { .. } => "diverged",
            Outcome::Refused(_) => "refused",
            Outcome::Stopped { .. } => "stopped",
        }
    }
}

/// What a run leaves.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// The last iterate.
    pub last: Snapshot,
    /// The best iterate; ties go to the later one. Its loss is infinite only when that of `x_0` was not finite.
    pub best: Snapshot,
    /// The average of `x_0 … x_{T−1}` and its loss, if it was asked for.
    pub average: Option<Snapshot>,
    /// How often the loss was below the method's lower bound.
    pub below_bound: u64,
    /// What the method [warns](Optimizer::warning) of at the end.
    pub warning: Option<String>,
    /// One row per iterate, if it was asked for.
    pub trace: Vec<Row>,
}

/// The loop with its choices.
pub struct Minimizer<'a, P: Problem + ?Sized> {
    problem: &'a P,
    observers: Vec<&'a mut dyn Observer>,
    average: Option<Average>,
    trace: bool,
}

impl<'a, P: Problem + ?Sized> Minimizer<'a, P> {
    /// With a trace and the uniform average, without observers.
    pub fn new(problem: &'a P) -> Self {
        Minimizer { problem, observers: Vec::new(), average: Some(Average::Uniform), trace: true }
    }

    /// Shows every iterate to `observer` too.
    pub fn observe(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observers.push(observer);
        self
    }

    /// Keeps this average, or none: it costs a pass over the parameters per step.
    pub fn average(mut self, average: Option<Average>) -> Self {
        self.average = average;
        self
    }

    /// Whether the run keeps a row per iterate in memory.
    pub fn trace(mut self, keep: bool) -> Self {
        self.trace = keep;
        self
    }

    /// Runs the loop. A scalar rule can be passed by `&mut`. If the method has its own evaluation point, `average` holds that point.
    ///
    /// # Errors
    /// As [`minimize`].
    pub fn run<M: Optimizer>(mut self, method: M, x0: &[f64], steps: u64) -> Result<Run, StartError> {
        let problem = self.problem;
        let dimension = self.check(x0)?;
        let Ok(mut session) = Session::new(method, DenseF64::new(dimension));
        let mut gradient = vec![0.0; dimension];
        // The current point, the best one, and room for the next one. They change places.
        let [x, best, next] = &mut [x0.to_vec(), x0.to_vec(), x0.to_vec()];
        let (mut x, mut best, mut next, mut best_step, mut best_loss) = (x, best, next, 0, f64::INFINITY);
        let mut average = self.average.map(Average::check).transpose()?.map(|kind| (kind, x0.to_vec()));
        // A method's own point stands for the average.
        let own = session.has_evaluation_point();
        let is_rule = session.method().steps_from();
        let traced = self.trace && dimension <= TRACED_DIMENSIONS;
        let seen = traced || (average.is_some() && !own) || !self.observers.is_empty();
        let (mut trace, mut below_bound, mut step) = (Vec::new(), 0, 0);

        let (outcome, loss) = loop {
            let loss = problem.value_and_gradient(x, &mut gradient);
            let is_lowest = loss <= best_loss;
            // `x` is needed after the step where it may be the best point, or somebody looks at it.
            let beside = is_lowest || seen;
            let (answer, grad_norm) = if step < steps {
                // The next point takes the memory of the last best one: fewer buffers are in the cache.
                let replaces = is_lowest && is_rule;
                if replaces {
                    std::mem::swap(&mut best, &mut next);
                }
                let answer = session.advance_to(loss, x, Some(&mut *next).filter(|_| beside), &gradient);
                if replaces && answer.is_err() {
                    std::mem::swap(&mut best, &mut next);
                }
                let grad_norm = session.seen().map_or(f64::NAN, |seen| seen.grad_norm);
                (answer.map_err(|error| ended(error, step)), grad_norm)
            } else {
                let grad_norm = vector::norm(&gradient);
                let end = match grad_norm {
                    _ if !(loss.is_finite() && grad_norm.is_finite()) => Outcome::Diverged { step },
                    0.0 => Outcome::Stationary,
                    _ => Outcome::Finished,
                };
                (Err(end), grad_norm)
            };
            let iterate = Iterate { step, x, gradient: &gradient, loss, grad_norm, next: answer.ok() };
            let stopped = self.show(&iterate, &mut trace);
            // What a step was made from is finite.
            let is_best = is_lowest && (answer.is_ok() || (loss.is_finite() && grad_norm.is_finite()));
            if is_best {
                (best_step, best_loss) = (step, loss);
            }
            let end = match answer {
                Err(outcome) => Some(outcome),
                Ok(_) if stopped => Some(Outcome::Stopped { step }),
                Ok(report) => {
                    below_bound += u64::from(report.kind == StepKind::BelowBound);
                    None
                }
            };
            if let Some(outcome) = end {
                if is_best {
                    best.copy_from_slice(x);
                }
                break (outcome, loss);
            }
            if let Some((kind, mean)) = average.as_mut().filter(|_| !own) {
                kind.take(session.space(), mean, x, step + 1);
            }
            if beside {
                std::mem::swap(&mut x, &mut next);
            }
            if is_best {
                std::mem::swap(&mut best, &mut next);
            }
            step += 1;
        };

        // Where an observer stopped the run, the method has made the step that the run does not take: the evaluation point is then one
        // step ahead.
        let trained = if matches!(outcome, Outcome::Stopped { .. }) { next } else { &*x };
        let average = average.map(|(_, mut point)| {
            if own {
                session.write_evaluation_point(trained, &mut point);
            }
            Snapshot { step, loss: problem.value(&point), x: point }
        });
        let last = Snapshot { step, loss, x: std::mem::take(x) };
        let best = Snapshot { step: best_step, loss: best_loss, x: std::mem::take(best) };
        let warning = session.method().warning();
        Ok(Run { outcome, last, best, average, below_bound, warning, trace })
    }

    /// The problem's dimension, where the start fits it.
    fn check(&self, x0: &[f64]) -> Result<usize, StartError> {
        let wanted = self.problem.dimension();
        if x0.len() != wanted {
            return Err(StartError::Dimension { given: x0.len(), wanted });
        }
        match x0.iter().position(|v| !v.is_finite()) {
            Some(index) => Err(StartError::NotFinite { index, value: x0[index] }),
            None => Ok(wanted),
        }
    }

    /// Shows an iterate to all observers, also those after one that stops the run, and says whether one did.
    fn show(&mut self, iterate: &Iterate<'_>, trace: &mut Vec<Row>) -> bool {
        if self.trace {
            trace.push(Row::from(iterate));
        }
        let mut stopped = false;
        for observer in &mut self.observers {
            stopped |= observer.see(iterate).is_break();
        }
        stopped
    }
}

/// How a run ends whose step was not made.
fn ended(error: SessionError<Infallible>, step: u64) -> Outcome {
    match error {
        SessionError::Refused(Refusal::Loss { .. } | Refusal::Gradient { .. }) => Outcome::Diverged { step },
        SessionError::Refused(refusal) => Outcome::Refused(refusal),
        SessionError::Device(never) => match never {},
    }
}
