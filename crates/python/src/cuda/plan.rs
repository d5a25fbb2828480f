//! Which passes the steps of a method may make: what is given to the device before anybody knows which of them a step needs.

use untuned::formula::Program;
use untuned::{Method, SessionState, StepOptions};

use super::script::{GRADIENT, Kind, PARAMETERS, Pass, Script, Session, place};

/// The caller's numbers at the beginning of the sums: the loss, and whether a GradScaler found infinities.
pub const LOSS: usize = 0;
pub const FOUND_INFINITE: usize = 1;
pub const RESERVED: usize = 2;
/// Room for all that a step measures.
pub const SUMS: usize = RESERVED + 4 + untuned::optimizer::MOST_SUMS;

/// The steps that are rehearsed before the first one. A method whose passes change later is found in time: one more is rehearsed in
/// each step.
const AHEAD: usize = 20_000;

/// A pass that a step may make.
#[derive(Debug, Clone)]
pub struct Planned {
    pub pass: Pass,
    pub program: Program,
    /// Where its numbers begin in the buffer of scalars: whether it is made, the decay, and the scalars.
    pub offset: usize,
}

impl Planned {
    /// The length of its numbers.
    fn len(&self) -> usize {
        2 + self.program.scalars
    }
}

/// Passes in the order in which steps make them. Each step makes some of them.
#[derive(Debug, Clone, Default)]
pub struct Plan(pub Vec<Planned>);

impl Plan {
    /// Takes up the passes of a step. Returns whether the plan has grown.
    pub fn include(&mut self, passes: &[Pass]) -> bool {
        let (mut from, before) = (0, self.0.len());
        for pass in passes {
            match self.find(from, pass) {
                Some(at) => from = at + 1,
                None => {
                    let program = (pass.formula.program)();
                    self.0.insert(from, Planned { pass: pass.clone(), program, offset: 0 });
                    from += 1;
                }
            }
        }
        let mut offset = 0;
        for planned in &mut self.0 {
            planned.offset = offset;
            offset += planned.len();
        }
        self.0.len() > before
    }

    fn find(&self, from: usize, pass: &Pass) -> Option<usize> {
        (from..self.0.len()).find(|&at| self.0[at].pass.is_like(pass))
    }

    /// The length of the buffer of scalars.
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| last.offset + last.len())
    }

    /// Writes the numbers of a step's passes. All other passes are not made.
    ///
    /// # Errors
    /// When the plan lacks one: none is made then.
    pub fn write(&self, passes: &[Pass], to: &mut [f64]) -> Result<(), String> {
        to[..self.len()].fill(0.0);
        let mut from = 0;
        for pass in passes {
            let Some(at) = self.find(from, pass) else {
                to[..self.len()].fill(0.0);
                return Err(format!("the step needs a pass that was not planned: {pass:?}"));
            };
            let numbers = &mut to[self.0[at].offset..];
            (numbers[0], numbers[1]) = (1.0, pass.decay);
            numbers[2..2 + pass.scalars.len()].copy_from_slice(&pass.scalars);
            from = at + 1;
        }
        Ok(())
    }
}

/// The numbers of a step that Python gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    pub rate: f64,
    pub weight_decay: f64,
    /// Whether the loss is known.
    pub has_loss: bool,
    /// The number of parameters.
    pub dimension: u64,
}

/// What the scalar part of a step asks for before anything is measured.
pub fn measures(session: &mut Session, options: Options) -> Vec<Pass> {
    advance(session, options, None).1
}

/// What the scalar part of a step makes of what was measured: the step, and the passes that change vectors.
pub fn changes(session: &mut Session, options: Options, sums: Vec<f64>) -> (Made, Vec<Pass>) {
    let (made, mut passes) = advance(session, options, Some(sums));
    passes.retain(|pass| pass.kind == Kind::Change);
    (made, passes)
}

type Made = Result<untuned::Report, untuned::SessionError<super::script::NotMeasured>>;

fn advance(session: &mut Session, options: Options, found: Option<Vec<f64>>) -> (Made, Vec<Pass>) {
    session.options = StepOptions { rate: options.rate, weight_decay: options.weight_decay, clip: None };
    let space = session.space_mut();
    (space.found, space.dimension) = (found, options.dimension);
    let made = session
        .advance_reading(&mut { PARAMETERS }, &GRADIENT, |read| options.has_loss.then_some(read[LOSS]));
    let passes = session.space_mut().take();
    (made, passes)
}

/// A session on places, which goes on from these numbers.
pub fn session(state: SessionState<Method>, average: Option<untuned::Average>) -> Session {
    let session = Session::reserving(state.method.clone(), Script::default(), RESERVED);
    let session = session.unwrap_or_else(|_| unreachable!("there is room for sums"));
    let mut session = session.average(average).unwrap_or_else(|error| unreachable!("{error}"));
    place(&mut session);
    session.rewind(state);
    session
}

/// The passes that the steps of a method will make, found by steps with numbers that are made up.
#[derive(Debug)]
pub struct Rehearsal {
    sessions: [Session; 2],
    options: Options,
    random: u64,
    pub measures: Plan,
    pub changes: Plan,
}

impl Rehearsal {
    /// Of a run that goes on from this session.
    pub fn new(session: &Session, options: Options) -> Rehearsal {
        let mut rehearsal = Rehearsal {
            sessions: [session.clone(), session.clone()],
            options,
            random: 1,
            measures: Plan::default(),
            changes: Plan::default(),
        };
        (0..AHEAD).for_each(|_| _ = rehearsal.step());
        rehearsal
    }

    /// Makes one step more. Returns whether a plan has grown.
    pub fn step(&mut self) -> bool {
        let mut grown = false;
        for signed in [false, true] {
            let mut sums: Vec<f64> = (0..SUMS).map(|_| self.number()).collect();
            if signed {
                // Sums of a method's own may have any sign.
                sums[RESERVED + 4..].iter_mut().for_each(|sum| *sum = 4.0 * (*sum - 1.0));
            }
            let session = &mut self.sessions[usize::from(signed)];
            let (made, passes) = advance(session, self.options, Some(sums));
            if made.is_err() {
                session.skip();
            }
            let (changes, measures): (Vec<Pass>, Vec<Pass>) =
                passes.into_iter().partition(|pass| pass.kind == Kind::Change);
            grown |= self.measures.include(&measures) | self.changes.include(&changes);
        }
        grown
    }

    /// A number between 0.5 and 1.5.
    fn number(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        0.5 + (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}
