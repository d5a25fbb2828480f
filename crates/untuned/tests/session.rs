//! What a session promises to those who drive it and to those who write methods.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use untuned::optimizer::{Optimizer, named};
use untuned::prelude::*;

mod support;

use support::{Run, build};

/// Gradient descent that observes the point twice, and has one state vector.
#[derive(Debug, Clone)]
struct Twice {
    vector: &'static str,
}

impl Optimizer for Twice {
    fn needs(&self) -> Needs {
        Needs::LOSS
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m"), StateVector::zeros(self.vector)]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [_, last] = named(state);
        let (first, second) = (context.observe()?, context.observe()?);
        assert_eq!(first, second);
        context.space.copy(x, last);
        Step::new(0.5, &first).map_err(SessionError::from)
    }
}

#[test]
fn a_loss_is_read_once_however_often_a_method_observes() {
    let mut session = Session::new(Twice { vector: "last" }, DenseF64::new(1)).unwrap();
    let reads = Cell::new(0);
    let report = session.advance_reading(&mut vec![1.0], &vec![2.0], |_| {
        reads.set(reads.get() + 1);
        Some(3.0)
    });
    assert_eq!((report.unwrap().loss, reads.get()), (Some(3.0), 1));
}

#[test]
#[should_panic(expected = "has a state vector `m`, and another vector has this name")]
fn state_vectors_have_names_of_their_own() {
    let _ = Session::new(Twice { vector: "m" }, DenseF64::new(1));
}

#[test]
#[should_panic(expected = "has a state vector `average`, and another vector has this name")]
fn a_state_vector_has_not_the_name_of_one_of_the_session() {
    let _ = Session::new(Twice { vector: "average" }, DenseF64::new(1));
}

/// A method that breaks its contract, each in one way.
#[derive(Debug)]
enum Careless {
    UsesX0,
    MiscountsVectors,
    DoesNotObserve,
}

impl Optimizer for Careless {
    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m"), StateVector::zeros("v")]
    }

    fn step<S: Space>(
        &mut self,
        _: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        match self {
            Careless::UsesX0 => _ = vectors.x0(),
            Careless::MiscountsVectors => _ = named::<_, 1>(vectors.state),
            Careless::DoesNotObserve => {}
        }
        Ok(Step::STATIONARY)
    }
}

fn step_carelessly(method: Careless) {
    let mut session = Session::new(method, DenseF64::new(1)).unwrap();
    let _ = session.advance(1.0, &mut vec![1.0], &vec![1.0]);
}

#[test]
#[should_panic(expected = "a method that uses `x0` says so in `needs`")]
fn x0_is_there_for_methods_that_need_it() {
    step_carelessly(Careless::UsesX0);
}

#[test]
#[should_panic(expected = "declares 2 state vectors and uses 1")]
fn a_method_takes_as_many_vectors_as_it_declares() {
    step_carelessly(Careless::MiscountsVectors);
}

#[test]
#[should_panic(expected = "a method observes the point before it makes a step")]
fn a_step_without_an_observation_is_a_mistake() {
    step_carelessly(Careless::DoesNotObserve);
}

#[test]
fn a_load_that_fails_changes_nothing() {
    let mut run = Run::new(build("polyak-adam", 10), DenseF64::new(2), &[1.0, -1.0]);
    run.step(2.0, &[1.0, 3.0]).unwrap();
    let saved = run.session.save();
    run.step(1.0, &[0.5, 2.0]).unwrap();
    let before = run.state();
    let mut names = Vec::new();
    let failed = run.session.load(saved, &run.x.clone(), |_, name, to| {
        names.push(name);
        to.fill(f64::NAN);
        if name == "x0" { Err(NoVector) } else { Ok(()) }
    });
    assert!(failed.is_err() && run.state() == before);
    assert_eq!(names, ["m", "v", "x0"]);
}

#[derive(Debug)]
struct NoVector;

impl From<std::convert::Infallible> for NoVector {
    fn from(never: std::convert::Infallible) -> NoVector {
        match never {}
    }
}

#[test]
fn an_average_that_cannot_be_used_is_refused() {
    let session = || Session::new(build("gd:lr=0.5", 10), DenseF64::new(1)).unwrap();
    assert!(session().average(None).is_ok() && session().average(Average::Exponential(0.5)).is_ok());
    let error = session().average(Average::Polynomial(-5.0)).unwrap_err().to_string();
    assert!(error.contains("γ=-5 does not work"), "{error}");
}

/// From 1 the points are 0.5 and 0.25, and 0.125 and 0.0625 after the average began.
#[test]
fn an_average_can_begin_in_the_middle_of_a_run() {
    let mut session = Session::new(build("gd:lr=0.5", 10), DenseF64::new(1)).unwrap();
    let mut x = vec![1.0];
    let step = |session: &mut Session<_, _>, x: &mut Vec<f64>| {
        let gradient = x.clone();
        session.advance(0.5 * x[0] * x[0], x, &gradient).unwrap();
    };
    (0..2).for_each(|_| step(&mut session, &mut x));
    let mut session = session.average(Average::Uniform).unwrap();
    assert_eq!(session.evaluate(&x, |point| point[0]).unwrap(), 0.25, "no point is in it yet");
    (0..2).for_each(|_| step(&mut session, &mut x));
    assert_eq!(session.evaluate(&x, |point| point[0]).unwrap(), 0.5 * (0.125 + 0.0625));
    assert_eq!(session.vector_names(), ["average"]);
}
