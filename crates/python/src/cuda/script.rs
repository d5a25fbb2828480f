//! A step as a list of passes. The space here owns no numbers: it writes down what a method asks for, and says what was measured.

use std::cell::RefCell;

use untuned::Space;
use untuned::formula::{Change, Measure, Program};

use crate::space::Copy;

/// The places of the vectors in a step. State vectors follow from `STATE` on, and behind them what an evaluation point is written to.
pub const PARAMETERS: usize = 0;
pub const GRADIENT: usize = 1;
pub const STATE: usize = 2;
/// A vector of a session before it has a place.
const NOWHERE: usize = usize::MAX;

/// What a pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Its results replace the numbers of the first vectors.
    Change,
    /// Its results are summed, to the sums from here on.
    Measure { at: usize },
}

/// A pass without its numbers.
#[derive(Debug, Clone, Copy)]
pub struct Formula {
    name: &'static str,
    pub program: fn() -> Program,
}

impl PartialEq for Formula {
    fn eq(&self, other: &Formula) -> bool {
        self.name == other.name
    }
}

/// A pass over the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    pub kind: Kind,
    pub formula: Formula,
    /// The places of its vectors: those that change stand first.
    pub vectors: Vec<usize>,
    pub decay: f64,
    pub scalars: Vec<f64>,
}

impl Pass {
    /// Whether the other one differs in numbers only.
    pub fn is_like(&self, other: &Pass) -> bool {
        (self.kind, self.formula, &self.vectors) == (other.kind, other.formula, &other.vectors)
    }
}

/// The space that writes passes down.
#[derive(Debug, Clone, Default)]
pub struct Script {
    passes: RefCell<Vec<Pass>>,
    /// What was measured. A step ends where it reads and there is nothing.
    pub found: Option<Vec<f64>>,
    /// The number of parameters.
    pub dimension: u64,
}

/// A step ended where it read what was not measured yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotMeasured;

impl Script {
    /// The passes since this was last asked.
    pub fn take(&self) -> Vec<Pass> {
        self.passes.take()
    }

    fn note<const S: usize>(
        &self,
        kind: Kind,
        formula: Formula,
        vectors: Vec<usize>,
        decay: f64,
        scalars: [f64; S],
    ) {
        let scalars = scalars.to_vec();
        self.passes.borrow_mut().push(Pass { kind, formula, vectors, decay, scalars });
    }
}

/// A session that works on places. The vectors that it keeps have the places from `STATE` on.
pub type Session = untuned::Session<untuned::Method, Script>;

/// Gives the vectors of a session their places.
pub fn place(session: &mut Session) {
    if session.start(&PARAMETERS).is_err() {
        unreachable!("there is room for places");
    }
    session.space_mut().take();
    (STATE..).zip(session.vectors_mut()).for_each(|(place, (_, vector))| *vector = place);
}

impl Space for Script {
    type Vector = usize;
    type Sums = ();
    type Error = NotMeasured;

    const LARGEST: f64 = f32::MAX as f64;

    fn dimension(&self) -> u64 {
        self.dimension
    }

    fn zeros(&self) -> Result<usize, NotMeasured> {
        Ok(NOWHERE)
    }

    /// Does nothing where a session starts: PyTorch has filled the vector.
    fn copy(&self, from: &usize, to: &mut usize) {
        if *to != NOWHERE {
            self.change(Copy, [], 0.0, [to], [from]);
        }
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut usize; M],
        read: [&usize; R],
    ) {
        let vectors = change.into_iter().map(|v| *v).chain(read.into_iter().copied()).collect();
        let formula = Formula { name: std::any::type_name::<F>(), program: Program::of_change::<F, S, M, R> };
        self.note(Kind::Change, formula, vectors, decay, scalars);
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        _: F,
        scalars: [f64; S],
        decay: f64,
        read: [&usize; R],
        (): &mut (),
        at: usize,
    ) {
        let formula =
            Formula { name: std::any::type_name::<F>(), program: Program::of_measure::<F, S, R, K> };
        self.note(Kind::Measure { at }, formula, read.into_iter().copied().collect(), decay, scalars);
    }

    fn sums(&self, _: usize) -> Result<(), NotMeasured> {
        Ok(())
    }

    fn read(&self, (): &mut (), values: &mut [f64]) -> Result<(), NotMeasured> {
        let found = self.found.as_ref().ok_or(NotMeasured)?;
        values.copy_from_slice(&found[..values.len()]);
        Ok(())
    }
}
