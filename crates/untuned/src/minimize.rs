//! The deterministic loop: `x_{t+1} = x_t − η_t ∇f(x_t)`, with trace, best iterate and average iterate.

use std::ops::ControlFlow;

use thiserror::Error;

use crate::average::Average;
use crate::optimizers::{Around, At, Keep, Optimizer, Plain};
use crate::problem::Problem;
use crate::rule::{Needs, Observation, Point, Refusal, Step, StepKind, StepRule};
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
pub fn minimize<P, R>(problem: &P, rule: &mut R, x0: &[f64], steps: u64) -> Result<Run, StartError>
where
    P: Problem + ?Sized,
    R: StepRule + ?Sized,
{
    Minimizer::new(problem).run(rule, x0, steps)
}

/// A start that the problem cannot take.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StartError {
    /// Another number of variables.
    #[error("the start has {given} variables, the problem {wanted}")]
    Dimension {
        /// The start's.
        given: usize,
        /// The problem's.
        wanted: usize,
    },
    /// A variable is NaN or infinite.
    #[error("variable {index} of the start is {value}; it must be finite")]
    NotFinite {
        /// Which one.
        index: usize,
        /// Its value.
        value: f64,
    },
}

/// One iterate as an [`Observer`] sees it: the point, and the step that will be taken from it.
#[derive(Debug, Clone, Copy)]
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
    /// The rule's answer here; `None` at `x_T` and where the run diverged or was refused. A run that an observer stops here
    /// does not take it.
    pub next: Option<Step>,
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
        Row { step: i.step, loss: i.loss, grad_norm: i.grad_norm, step_size: i.next.map(|n| n.size), x }
    }
}

/// An iterate that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// `t`.
    pub step: u64,
    /// Its loss.
    pub loss: f64,
    /// The point.
    pub x: Vec<f64>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// All steps were made.
    Finished,
    /// All steps were made, and the last gradient was 0.
    Stationary,
    /// The loss or the gradient at `x_step` is not finite.
    Diverged {
        /// Where.
        step: u64,
    },
    /// The rule gave no step.
    Refused(Refusal),
    /// An observer stopped the run at this step.
    Stopped {
        /// Where.
        step: u64,
    },
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
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// The last iterate.
    pub last: Kept,
    /// The best iterate; ties go to the later one. Its loss is infinite only when that of `x_0` was not finite.
    pub best: Kept,
    /// The average of `x_0 … x_{T−1}` and its loss, if it was asked for.
    pub average: Option<Kept>,
    /// How often the loss was below the rule's lower bound.
    pub below_bound: u64,
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

    /// Runs the loop.
    ///
    /// # Errors
    /// As [`minimize`].
    pub fn run<R: StepRule + ?Sized>(
        mut self,
        rule: &mut R,
        x0: &[f64],
        steps: u64,
    ) -> Result<Run, StartError> {
        let problem = self.problem;
        let wanted = self.check(x0)?;
        let needs = rule.needs();
        let x0_norm = vector::norm(x0);
        let mut points = Points::new(x0, needs);
        let mut average = self.average.map(|kind| (kind, x0.to_vec()));
        let mut trace = Vec::new();
        let mut below_bound = 0;
        let mut step = 0;

        let (outcome, loss) = loop {
            let (x, gradient) = points.here();
            let loss = problem.value_and_gradient(x, gradient);
            let grad_norm = vector::norm(gradient);
            let finite = loss.is_finite() && grad_norm.is_finite();
            if finite {
                points.offer_best(step, loss);
            }
            if step == 0 {
                points.keep_origin_gradient();
            }
            let (x, gradient) = points.here();

            let answer = if !finite {
                Err(Outcome::Diverged { step })
            } else if step == steps {
                Err(if grad_norm == 0.0 { Outcome::Stationary } else { Outcome::Finished })
            } else {
                let distance = needs.distance.then(|| vector::distance(x, x0));
                let grad_sum = needs.grad_sum.then(|| vector::sum(gradient));
                let dimension = wanted as u64;
                let seen = Observation { step, loss, grad_norm, x0_norm, distance, grad_sum, dimension };
                rule.step(&seen).and_then(|next| needs.allow(next, &seen)).map_err(Outcome::Refused)
            };

            let iterate = Iterate { step, x, gradient, loss, grad_norm, next: answer.ok() };
            let stopped = self.show(&iterate, &mut trace);
            let next = match answer {
                Err(outcome) => break (outcome, loss),
                Ok(_) if stopped => break (Outcome::Stopped { step }, loss),
                Ok(next) => next,
            };

            if next.kind == StepKind::BelowBound {
                below_bound += 1;
            }
            if let Some((kind, mean)) = &mut average {
                kind.add(mean, x, step + 1);
            }
            points.advance(x0, next);
            step += 1;
        };

        let average = average.map(|(_, x)| Kept { step, loss: problem.value(&x), x });
        let (last, best) = points.finish(step, loss);
        Ok(Run { outcome, last, best, average, below_bound, trace })
    }

    /// Runs the loop with a method that moves the point itself. Where it has a [point to be
    /// evaluated](Optimizer::evaluated) that is not the one it trains, that one stands for the average.
    ///
    /// # Errors
    /// As [`minimize`].
    pub fn optimize<O: Optimizer>(
        mut self,
        optimizer: &mut O,
        x0: &[f64],
        steps: u64,
    ) -> Result<Run, StartError> {
        let problem = self.problem;
        let wanted = self.check(x0)?;
        let (space, around) = (Plain::new(wanted), Around::default());
        let (mut x, mut gradient) = (x0.to_vec(), vec![0.0; wanted]);
        let Ok(mut kept) = Keep::all(&space, &optimizer.keeps(), &x);
        let mut sums = vec![0.0; 1 + optimizer.measures()];
        let x0_norm = vector::norm(x0);
        let mut best = Kept { step: 0, loss: f64::INFINITY, x: x0.to_vec() };
        let mut average = self.average.map(|kind| (kind, x0.to_vec()));
        let (mut trace, mut below_bound, mut step) = (Vec::new(), 0, 0);
        // Observers see the point that a step was made from.
        let mut from = x0.to_vec();

        let (outcome, loss) = loop {
            let loss = problem.value_and_gradient(&x, &mut gradient);
            let grad_norm = vector::norm(&gradient);
            let finite = loss.is_finite() && grad_norm.is_finite();
            from.copy_from_slice(&x);
            if finite && loss <= best.loss {
                (best.step, best.loss) = (step, loss);
                best.x.copy_from_slice(&x);
            }
            let answer = if !finite {
                Err(Outcome::Diverged { step })
            } else if step == steps {
                Err(if grad_norm == 0.0 { Outcome::Stationary } else { Outcome::Finished })
            } else {
                let dimension = wanted as u64;
                let seen = Observation { x0_norm, dimension, ..Observation::new(step, loss, grad_norm) };
                let at =
                    At { space: &space, around: &around, x: &mut x, gradient: &gradient, kept: &mut kept };
                // The norm above is right for the smallest numbers and the largest, too.
                optimizer.measure(&at, &mut sums, 0);
                optimizer.step(&seen, &sums[1..], at).map_err(Outcome::Refused)
            };
            let next = answer.ok();
            let iterate = Iterate { step, x: &from, gradient: &gradient, loss, grad_norm, next };
            let stopped = self.show(&iterate, &mut trace);
            match answer {
                Err(outcome) => break (outcome, loss),
                Ok(_) if stopped => break (Outcome::Stopped { step }, loss),
                Ok(next) => below_bound += u64::from(next.kind == StepKind::BelowBound),
            }
            if let Some((kind, mean)) = &mut average {
                kind.add(mean, &from, step + 1);
            }
            step += 1;
        };

        // Where an observer stopped the run, the optimizer has made the step that the run does not take: what it would evaluate is
        // that of the point after it.
        let evaluated = average.map(|(_, mut point)| {
            optimizer.evaluated(&space, &x, &kept, &mut point);
            Kept { step, loss: problem.value(&point), x: point }
        });
        let last = Kept { step, loss, x: from };
        Ok(Run { outcome, last, best, average: evaluated, below_bound, trace })
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

/// The iterates that the loop holds. The best one is kept without copying: when the current point is the best, the
/// next one is written beside it; when not, in its place.
struct Points {
    x: [Vec<f64>; 2],
    gradient: [Vec<f64>; 2],
    here: usize,
    best: Best,
    needs: Needs,
    origin_gradient: Vec<f64>,
}

struct Best {
    step: u64,
    loss: f64,
    /// Which of the two buffers holds the best point (and its gradient, where a rule needs it).
    at: usize,
}

impl Points {
    fn new(x0: &[f64], needs: Needs) -> Points {
        let second = if needs.best { vec![0.0; x0.len()] } else { Vec::new() };
        Points {
            x: [x0.to_vec(), vec![0.0; x0.len()]],
            gradient: [vec![0.0; x0.len()], second],
            here: 0,
            best: Best { step: 0, loss: f64::INFINITY, at: 0 },
            needs,
            origin_gradient: Vec::new(),
        }
    }

    /// Which gradient buffer belongs to the current point.
    fn gradient_at(&self) -> usize {
        if self.needs.best { self.here } else { 0 }
    }

    /// The current point and its gradient.
    fn here(&mut self) -> (&[f64], &mut [f64]) {
        let at = self.gradient_at();
        (&self.x[self.here], &mut self.gradient[at])
    }

    fn offer_best(&mut self, step: u64, loss: f64) {
        if loss <= self.best.loss {
            self.best = Best { step, loss, at: self.here };
        }
    }

    fn keep_origin_gradient(&mut self) {
        if self.needs.origin {
            self.origin_gradient = self.gradient[self.gradient_at()].clone();
        }
    }

    fn advance(&mut self, x0: &[f64], next: Step) {
        let to = 1 - self.best.at;
        let [first, second] = &mut self.x;
        let (target, other) = if to == 0 { (first, &*second) } else { (second, &*first) };
        let gradient = &self.gradient;
        match next.from {
            Point::Here if to == self.here => {
                vector::step_in_place(target, next.size, &gradient[if self.needs.best { to } else { 0 }]);
            }
            Point::Here => {
                vector::step_into(
                    target,
                    other,
                    next.size,
                    &gradient[if self.needs.best { 1 - to } else { 0 }],
                );
            }
            Point::Best => vector::step_into(target, other, next.size, &gradient[1 - to]),
            Point::Origin => vector::step_into(target, x0, next.size, &self.origin_gradient),
        }
        self.here = to;
    }

    /// The last and the best iterate; a copy is made only where they are one.
    fn finish(self, step: u64, loss: f64) -> (Kept, Kept) {
        let [first, second] = self.x;
        let (here, other) = if self.here == 0 { (first, second) } else { (second, first) };
        let best = if self.best.at == self.here { here.clone() } else { other };
        let last = Kept { step, loss, x: here };
        (last, Kept { step: self.best.step, loss: self.best.loss, x: best })
    }
}
