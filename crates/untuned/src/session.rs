//! The one driver of every method: observes a point, lets the method make its step, and keeps what belongs to the run.

use serde::{Deserialize, Serialize};

use crate::average::Average;
use crate::formula::{Measure, Number, TensorInfo};
use crate::optimizer::{
    DISTANCE, GRAD_SUM, JumpPoints, JumpVectors, MOST_SUMS, NORM, OWN, Optimizer, Points, ReservedLoss,
    SessionError, StateVector, StepContext, StepOptions, Vectors, X0_NORM,
};
use crate::rule::{Needs, Observation, StepKind};
use crate::space::Space;
use crate::spec::SpecError;

/// A method at work: its state vectors, the clock, `‖x_0‖`, and the options around a step.
///
/// The parameters and the gradient belong to the caller. The space knows which tensors are frozen, and leaves them alone. `minimize`, the program's training loop, its benchmarks and the adapters for
/// other frameworks all drive methods through this type.
///
/// ```
/// use untuned::{DenseF64, RunInfo, Session, optimizers::PolyakAdam};
///
/// let steps = 300;
/// let method = PolyakAdam::default().build(&RunInfo::new(steps))?; // no learning rate
/// let mut session = Session::new(method, DenseF64::new(2))?;
/// let (mut x, mut loss) = (vec![3.0, -2.0], f64::NAN);
/// for _ in 0..steps {
///     loss = x[0] * x[0] + 10.0 * x[1] * x[1];
///     let gradient = vec![2.0 * x[0], 20.0 * x[1]];
///     session.advance(loss, &mut x, &gradient)?;
/// }
/// assert!(loss < 0.01, "{loss}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Session<M, S: Space> {
    method: M,
    /// What the method says that it needs.
    needs: Needs,
    space: S,
    /// The options of the next step.
    pub options: StepOptions,
    numbers: Numbers,
    average: Option<Average>,
    vectors: Option<SessionVectors<S::Vector>>,
    reserved: usize,
    sums: S::Sums,
    values: Vec<f64>,
    seen: Option<Observation>,
    last: Option<Report>,
}

/// The numbers of a session that are not the method's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Numbers {
    /// The step that comes.
    step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    x0_norm: Option<f64>,
    #[serde(flatten)]
    kept: JumpPoints,
    /// The points in the average.
    #[serde(default, skip_serializing_if = "is_zero")]
    averaged: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The numbers of a checkpoint, without the vectors. They read back to the same bits in formats that store f64 exactly (`serde_json`
/// needs its feature `float_roundtrip`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionState<M> {
    /// The method, with its numbers.
    pub method: M,
    #[serde(flatten)]
    numbers: Numbers,
}

impl<M> SessionState<M> {
    /// A method before its first step.
    pub fn new(method: M) -> SessionState<M> {
        SessionState { method, numbers: Numbers::default() }
    }
}

/// The vectors of a session.
#[derive(Debug, Clone)]
struct SessionVectors<V> {
    /// The method's own.
    state: Vec<V>,
    x0: Option<V>,
    jump: JumpVectors<V>,
    average: Option<V>,
}

/// What a step was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The number of the step, from 0.
    pub step: u64,
    /// The loss before it, where it was given.
    pub loss: Option<f64>,
    /// The norm of the whole gradient, before any clipping.
    pub grad_norm: f64,
    /// The effective learning rate: what a unit of the (preconditioned) gradient was multiplied with.
    pub rate: f64,
    /// Whether it was an ordinary step, one without a gradient, or one below the method's lower bound.
    pub kind: StepKind,
}

/// `g` and `g²`.
struct SumAndSquare;

impl Measure<0, 1, 2> for SumAndSquare {
    #[inline(always)]
    fn each<N: Number>(_: [N; 0], _: TensorInfo<N>, [g]: [N; 1]) -> [N; 2] {
        [g, g * g]
    }
}

impl<M: Optimizer, S: Space> Session<M, S> {
    /// A method before its first step.
    ///
    /// # Errors
    /// When there is no memory for its sums.
    ///
    /// # Panics
    /// When a state vector of the method has the name of another one, or of [one of the session's](StateVector::name).
    pub fn new(method: M, space: S) -> Result<Session<M, S>, S::Error> {
        Session::reserving(method, space, 0)
    }

    /// The same, with room for `reserved` numbers of the caller at the beginning of [`Session::sums`]: a loss that is still on the
    /// device can then be read together with what the method measures.
    ///
    /// # Errors
    /// When there is no memory for its sums.
    ///
    /// # Panics
    /// As [`Session::new`].
    pub fn reserving(method: M, space: S, reserved: usize) -> Result<Session<M, S>, S::Error> {
        check_names(&method);
        let count = reserved + OWN + MOST_SUMS;
        Ok(Session {
            sums: space.sums(count)?,
            values: vec![0.0; count],
            needs: method.needs(),
            method,
            space,
            options: StepOptions::default(),
            numbers: Numbers::default(),
            average: None,
            vectors: None,
            reserved,
            seen: None,
            last: None,
        })
    }

    /// Averages the points of the steps that come. The average is then the [point to evaluate](Session::evaluate), also where the
    /// method has one of its own.
    ///
    /// # Errors
    /// When the average's number [cannot be used](Average::check).
    pub fn average(mut self, average: impl Into<Option<Average>>) -> Result<Session<M, S>, SpecError> {
        self.average = average.into().map(Average::check).transpose()?;
        // Points of another average do not count.
        self.numbers.averaged = 0;
        if let Some(vectors) = &mut self.vectors {
            vectors.average = None;
        }
        Ok(self)
    }

    /// Makes room for the vectors, and copies what the method needs of the start. The first step calls this if you did not.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn start(&mut self, x: &S::Vector) -> Result<(), S::Error> {
        self.vectors = Some(self.vectors_at(&self.method, x)?);
        Ok(())
    }

    /// The vectors of a run of this method that starts at `x`.
    fn vectors_at(&self, method: &M, x: &S::Vector) -> Result<SessionVectors<S::Vector>, S::Error> {
        let Session { space, average, .. } = self;
        let needs = method.needs();
        let copy = || -> Result<S::Vector, S::Error> {
            let mut vector = space.zeros()?;
            space.copy(x, &mut vector);
            Ok(vector)
        };
        let state = |vector: StateVector| if vector.copies_parameters { copy() } else { space.zeros() };
        Ok(SessionVectors {
            state: method.state().into_iter().map(state).collect::<Result<_, _>>()?,
            x0: keeps_x0(needs).then(copy).transpose()?,
            jump: JumpVectors {
                origin_gradient: needs.origin.then(|| space.zeros()).transpose()?,
                best: if needs.best { Some([space.zeros()?, space.zeros()?]) } else { None },
            },
            average: average.map(|_| copy()).transpose()?,
        })
    }

    /// Makes a step: `loss` is the one that was differentiated, and `gradient` is its gradient at `x`.
    ///
    /// # Errors
    /// A refused step leaves `x`, the method and its vectors exactly as they were, and does not count. One exception: a rule of your
    /// own whose answer breaks [its contract](crate::StepRule) has changed already.
    ///
    /// # Panics
    /// When the method makes a step without [observing](StepContext::observe) the point.
    pub fn advance(
        &mut self,
        loss: f64,
        x: &mut S::Vector,
        gradient: &S::Vector,
    ) -> Result<Report, SessionError<S::Error>> {
        self.step(x, None, gradient, Some(loss), None)
    }

    /// [`Session::advance`], which writes the next point to `to` where that is given: `x` stays. A rule takes no copy for that.
    pub(crate) fn advance_to(
        &mut self,
        loss: f64,
        x: &mut S::Vector,
        to: Option<&mut S::Vector>,
        gradient: &S::Vector,
    ) -> Result<Report, SessionError<S::Error>> {
        self.step(x, to, gradient, Some(loss), None)
    }

    /// Makes a step whose loss is computed from the [reserved](Session::reserving) numbers, once they are read. `None` stands for a
    /// loss that nobody knows: a method that needs it refuses the step.
    ///
    /// # Errors
    /// As [`Session::advance`].
    ///
    /// # Panics
    /// As [`Session::advance`].
    pub fn advance_reading(
        &mut self,
        x: &mut S::Vector,
        gradient: &S::Vector,
        loss: impl FnOnce(&[f64]) -> Option<f64>,
    ) -> Result<Report, SessionError<S::Error>> {
        let mut loss = Some(loss);
        let mut reserved = |read: &[f64]| loss.take().and_then(|loss| loss(read));
        self.step(x, None, gradient, None, Some(&mut reserved))
    }

    #[inline(always)]
    fn step(
        &mut self,
        x: &mut S::Vector,
        to: Option<&mut S::Vector>,
        gradient: &S::Vector,
        loss: Option<f64>,
        reserved_loss: Option<ReservedLoss<'_>>,
    ) -> Result<Report, SessionError<S::Error>> {
        let starts = self.vectors.is_none();
        if starts {
            self.start(x).map_err(SessionError::Device)?;
        }
        let result = self.step_from(x, to, gradient, loss, reserved_loss);
        if starts && result.is_err() {
            // The next step may be from another point: that one is then the start.
            self.vectors = None;
        }
        result
    }

    #[inline(always)]
    fn step_from(
        &mut self,
        x: &mut S::Vector,
        to: Option<&mut S::Vector>,
        gradient: &S::Vector,
        loss: Option<f64>,
        reserved_loss: Option<ReservedLoss<'_>>,
    ) -> Result<Report, SessionError<S::Error>> {
        let Session {
            method,
            needs,
            space,
            options,
            numbers,
            average,
            vectors,
            reserved,
            sums,
            values,
            seen,
            last,
        } = self;
        let seen = seen.insert(Observation {
            step: numbers.step,
            loss,
            x0_norm: numbers.x0_norm,
            dimension: Some(space.dimension()),
            ..Observation::UNKNOWN
        });
        let Some(vectors) = vectors else { unreachable!("the vectors are made before a step") };
        let at = *reserved;
        let SessionVectors { state, x0, jump, average: mean } = vectors;
        // An average that was asked for after the start.
        let begun = if average.is_some() && mean.is_none() {
            Some(space.zeros().map_err(SessionError::Device)?)
        } else {
            None
        };
        let x0 = x0.as_ref();
        if let (Some(x0), true) = (x0, needs.distance) {
            seen.distance = space.measure_distance(x, x0, sums, at + DISTANCE);
        }
        if let (Some(x0), true, None) = (x0, needs.x0_norm, numbers.x0_norm) {
            space.measure_norm(x0, sums, at + X0_NORM);
        }
        if needs.grad_sum {
            const { assert!(GRAD_SUM + 1 == NORM) };
            space.measure(SumAndSquare, [], 0.0, [gradient], sums, at + GRAD_SUM);
        }
        let mut context = StepContext {
            space: &*space,
            options: &*options,
            needs,
            gradient,
            x0: x0.filter(|_| needs.x0_norm),
            // The same, for a shorter time.
            loss: reserved_loss.map(|loss| loss as ReservedLoss<'_>),
            reserved: at,
            norm_measured: needs.grad_sum,
            measured: at + OWN,
            sums,
            values,
            seen: &mut *seen,
        };
        let (from, x) = match to {
            Some(to) if method.steps_from() => (Some(&*x), to),
            Some(to) => {
                space.copy(x, to);
                (None, to)
            }
            None => (None, x),
        };
        let points = Points { from, x0, vectors: jump, kept: &mut numbers.kept };
        let vectors = Vectors { x: &mut *x, gradient, state, points };
        let made = method.step(&mut context, vectors)?;
        if begun.is_some() {
            *mean = begun;
        }
        let Observation { step, loss, grad_norm, x0_norm, .. } = *seen;
        assert!(!grad_norm.is_nan(), "a method observes the point before it makes a step");
        if let (Some(average), Some(mean)) = (average, mean) {
            numbers.averaged = numbers.averaged.saturating_add(1);
            average.take(space, mean, x, numbers.averaged);
        }
        (numbers.step, numbers.x0_norm) = (step.saturating_add(1), x0_norm);
        let report = Report { step, loss, grad_norm, rate: made.size, kind: made.kind };
        *last = Some(report);
        Ok(report)
    }

    /// Counts a step that was not made, for a loop that counts refused steps.
    pub fn skip(&mut self) {
        self.numbers.step = self.numbers.step.saturating_add(1);
    }

    /// Whether the point to evaluate is not the one that is trained.
    pub fn has_evaluation_point(&self) -> bool {
        self.average.is_some() || self.method.has_evaluation_point()
    }

    /// Writes the point to evaluate to `to`: the average, the method's own point, or `x`. Before the first step it is `x`.
    pub fn write_evaluation_point(&self, x: &S::Vector, to: &mut S::Vector) {
        match &self.vectors {
            Some(SessionVectors { average: Some(mean), .. }) => self.space.copy(mean, to),
            Some(vectors) if self.method.has_evaluation_point() => {
                self.method.write_evaluation_point(&self.space, x, &vectors.state, to);
            }
            _ => self.space.copy(x, to),
        }
    }

    /// Calls `work` with the point to evaluate. For averages and Schedule-Free methods that is not `x`.
    ///
    /// # Errors
    /// When there is no memory for that point.
    pub fn evaluate<T>(&self, x: &S::Vector, work: impl FnOnce(&S::Vector) -> T) -> Result<T, S::Error> {
        if !self.has_evaluation_point() {
            return Ok(work(x));
        }
        let mut point = self.space.zeros()?;
        self.write_evaluation_point(x, &mut point);
        Ok(work(&point))
    }

    /// The method, with its numbers.
    pub fn method(&self) -> &M {
        &self.method
    }

    /// The space of the vectors.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// The space, mutable: to restore the scales of a checkpoint.
    pub fn space_mut(&mut self) -> &mut S {
        &mut self.space
    }

    /// The sums of the next step. The first ones are [the caller's](Session::reserving).
    pub fn sums(&mut self) -> &mut S::Sums {
        &mut self.sums
    }

    /// The number of the step that comes, from 0.
    pub fn steps(&self) -> u64 {
        self.numbers.step
    }

    /// `‖x_0‖`, where the method needs it and a step was made.
    pub fn x0_norm(&self) -> Option<f64> {
        self.numbers.x0_norm
    }

    /// What the last step saw, also where it was refused. The norm is NaN where the method refused the step before it observed.
    pub fn seen(&self) -> Option<&Observation> {
        self.seen.as_ref()
    }

    /// The last step that was made.
    pub fn last(&self) -> Option<&Report> {
        self.last.as_ref()
    }

    /// The numbers of a checkpoint. It needs the parameters and the [vectors](Session::vectors), too.
    pub fn save(&self) -> SessionState<M>
    where
        M: Clone,
    {
        SessionState { method: self.method.clone(), numbers: self.numbers }
    }

    /// Goes on from a checkpoint. `fill` gets each vector with its name, and writes it. `x` is any vector of the parameters.
    ///
    /// # Errors
    /// When there is no memory for the vectors, or `fill` fails. The session is then as it was.
    pub fn load<E: From<S::Error>>(
        &mut self,
        state: SessionState<M>,
        x: &S::Vector,
        mut fill: impl FnMut(&S, &'static str, &mut S::Vector) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut vectors = self.vectors_at(&state.method, x)?;
        for (name, to) in self.names(&state.method).into_iter().zip(vectors.each_mut()) {
            fill(&self.space, name, to)?;
        }
        self.vectors = Some(vectors);
        self.rewind(state);
        Ok(())
    }

    /// Whether a state is of a run with the same needs and the same vectors as this one.
    pub fn accepts(&self, state: &SessionState<M>) -> bool {
        state.method.needs() == self.needs && state.method.state() == self.method.state()
    }

    /// Sets the numbers alone: the vectors stay what they are.
    pub fn rewind(&mut self, state: SessionState<M>) {
        (self.method, self.numbers) = (state.method, state.numbers);
        self.needs = self.method.needs();
        (self.seen, self.last) = (None, None);
    }

    /// The names of all vectors that a run of the method has, in order.
    pub fn vector_names(&self) -> Vec<&'static str> {
        self.names(&self.method)
    }

    fn names(&self, method: &M) -> Vec<&'static str> {
        let needs = method.needs();
        let state = method.state().into_iter().map(|vector| vector.name);
        let present =
            [keeps_x0(needs), needs.origin, needs.best, needs.best, self.average.is_some()].into_iter();
        state
            .chain(SESSION_VECTORS.into_iter().zip(present).filter_map(|(name, is)| is.then_some(name)))
            .collect()
    }

    /// All vectors with their names; none before the start.
    pub fn vectors(&self) -> impl Iterator<Item = (&'static str, &S::Vector)> {
        self.vector_names().into_iter().zip(self.vectors.iter().flat_map(SessionVectors::each))
    }

    /// All vectors with their names, mutable. A space over a framework's memory sets new addresses here before each step.
    pub fn vectors_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut S::Vector)> {
        self.vector_names().into_iter().zip(self.vectors.iter_mut().flat_map(SessionVectors::each_mut))
    }
}

impl<V> SessionVectors<V> {
    fn each(&self) -> impl Iterator<Item = &V> {
        let SessionVectors { state, x0, jump: JumpVectors { origin_gradient, best }, average } = self;
        state.iter().chain(x0).chain(origin_gradient).chain(best.iter().flatten()).chain(average)
    }

    fn each_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let SessionVectors { state, x0, jump: JumpVectors { origin_gradient, best }, average } = self;
        state.iter_mut().chain(x0).chain(origin_gradient).chain(best.iter_mut().flatten()).chain(average)
    }
}

/// The names of the vectors that are the session's own.
const SESSION_VECTORS: [&str; 5] = ["x0", "origin_gradient", "best", "best_gradient", "average"];

/// A checkpoint finds vectors by their names.
fn check_names<M: Optimizer>(method: &M) {
    let state = method.state();
    for (i, StateVector { name, .. }) in state.iter().enumerate() {
        let others = state[..i].iter().map(|other| other.name);
        assert!(
            !others.chain(SESSION_VECTORS).any(|other| other == *name),
            "`{}` has a state vector `{name}`, and another vector has this name",
            method.name()
        );
    }
}

fn keeps_x0(needs: Needs) -> bool {
    needs.x0 || needs.distance || needs.origin || needs.x0_norm
}
