//! A session over plain vectors, as the tests of methods use it.

#![allow(dead_code, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};

use serde::Serialize;
use serde::de::DeserializeOwned;
use untuned::formula::{Change, Measure};
use untuned::optimizer::Optimizer;
use untuned::space::SquareNorm;
use untuned::{
    Average, DenseF64, Method, MethodSpec, Refusal, Report, RunInfo, Session, SessionError, SessionState,
    Space,
};

/// The method that a spec names, for a run of `steps` steps.
pub fn build(spec: &str, steps: u64) -> Method {
    let parsed: MethodSpec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    parsed.build(&RunInfo::new(steps)).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// The name of a method with what it must be given to be built.
pub fn with_required(name: &str) -> String {
    let needed = match name {
        "gd" => ":lr=0.1",
        "clipped-gd" => ":lr=0.1,threshold=inf",
        "polyak" => ":f_star=0",
        _ => "",
    };
    format!("{name}{needed}")
}

/// A session and the point that it trains.
#[derive(Clone, Debug)]
pub struct Run<M = Method, S: Space<Vector = Vec<f64>, Sums = Vec<f64>> = DenseF64> {
    pub session: Session<M, S>,
    pub average: Option<Average>,
    pub x: Vec<f64>,
}

impl<M, S> Run<M, S>
where
    M: Optimizer + Clone + Serialize + DeserializeOwned,
    S: Space<Vector = Vec<f64>, Sums = Vec<f64>> + Clone,
{
    pub fn new(method: M, space: S, x: &[f64]) -> Run<M, S> {
        let Ok(mut session) = Session::new(method, space) else { panic!("no room for the sums") };
        let x = x.to_vec();
        assert!(session.start(&x).is_ok(), "no room for the vectors");
        Run { session, average: None, x }
    }

    /// The same, with an average of its points.
    pub fn averaged(self, average: Average) -> Run<M, S> {
        let mut session = self.session.average(average).unwrap();
        assert!(session.start(&self.x).is_ok(), "no room for the vectors");
        Run { session, average: Some(average), x: self.x }
    }

    /// Makes a step from a point with this loss and gradient.
    pub fn step(&mut self, loss: f64, gradient: &[f64]) -> Result<Report, Refusal> {
        self.step_with(Some(loss), gradient)
    }

    /// The same, where nobody may know the loss.
    pub fn step_with(&mut self, loss: Option<f64>, gradient: &[f64]) -> Result<Report, Refusal> {
        let made = self.session.advance_reading(&mut self.x, &gradient.to_vec(), |_| loss);
        made.map_err(|error| match error {
            SessionError::Refused(refusal) => refusal,
            SessionError::Device(_) => panic!("the device failed"),
        })
    }

    pub fn method(&self) -> &M {
        self.session.method()
    }

    /// The vector of this name that the session keeps.
    #[track_caller]
    pub fn vector(&self, name: &str) -> &Vec<f64> {
        let found = self.session.vectors().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("no vector {name} in {:?}", self.session.vector_names())).1
    }

    /// The point to evaluate.
    pub fn evaluated(&self) -> Vec<f64> {
        let mut to = vec![f64::NAN; self.x.len()];
        self.session.write_evaluation_point(&self.x, &mut to);
        to
    }

    pub fn is_finite(&self) -> bool {
        let kept = self.session.vectors().flat_map(|(_, vector)| vector);
        self.x.iter().chain(kept).all(|x| x.is_finite())
    }

    /// All that a checkpoint has of it, to the bit.
    pub fn state(&self) -> (String, Contents) {
        (serde_json::to_string(&self.session.save()).unwrap(), self.contents())
    }

    /// The same without the numbers of the session, such as the number of the step.
    pub fn contents(&self) -> Contents {
        let vectors = self.session.vectors().map(|(name, vector)| (name, bits(vector))).collect();
        Contents { method: serde_json::to_string(self.method()).unwrap(), x: bits(&self.x), vectors }
    }

    /// Another session that goes on from what this one saves.
    pub fn resumed(&self) -> Run<M, S> {
        let json = serde_json::to_string(&self.session.save()).unwrap();
        let state: SessionState<M> = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));
        let mut run =
            Run::new(state.method.clone(), self.session.space().clone(), &vec![f64::NAN; self.x.len()]);
        if let Some(average) = self.average {
            run = run.averaged(average);
        }
        run.session.options = self.session.options;
        let filled = run.session.load(state, &run.x, |_, name, to| {
            to.clone_from(self.vector(name));
            Ok::<(), S::Error>(())
        });
        assert!(filled.is_ok(), "no room for the vectors");
        run.x.clone_from(&self.x);
        run
    }
}

/// A method with its numbers, its point and its vectors, to the bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    method: String,
    x: Vec<u64>,
    vectors: Vec<(&'static str, Vec<u64>)>,
}

fn bits(v: &[f64]) -> Vec<u64> {
    v.iter().map(|x| x.to_bits()).collect()
}

/// The index of the gradient's squared norm in the sums of a session. The sums of a method's own stand behind it.
pub const NORM: usize = 3;

/// Plain vectors that write down what is measured, and hand out wrong numbers where they are told to.
#[derive(Clone, Debug)]
pub struct Watched {
    pub dense: DenseF64,
    /// What is read of one sum, in place of what was measured.
    pub wrong_sum: Cell<Option<(usize, f64)>>,
    /// The norm of every vector, in place of what it is.
    pub wrong_norm: Cell<Option<f64>>,
    /// The indices of the sums that were measured, apart from norms and distances.
    pub measured: RefCell<Vec<usize>>,
    /// The passes that were made for a norm alone.
    pub norm_passes: Cell<u64>,
    /// The last squared norm that was read.
    pub squared_norm: Cell<f64>,
}

impl Watched {
    pub fn new(dense: DenseF64) -> Watched {
        Watched {
            dense,
            wrong_sum: Cell::new(None),
            wrong_norm: Cell::new(None),
            measured: RefCell::new(Vec::new()),
            norm_passes: Cell::new(0),
            squared_norm: Cell::new(f64::NAN),
        }
    }
}

impl Space for Watched {
    type Vector = Vec<f64>;
    type Sums = Vec<f64>;
    type Error = std::convert::Infallible;

    const LARGEST: f64 = DenseF64::LARGEST;

    fn dimension(&self) -> u64 {
        self.dense.dimension()
    }

    fn zeros(&self) -> Result<Vec<f64>, Self::Error> {
        self.dense.zeros()
    }

    fn copy(&self, from: &Vec<f64>, to: &mut Vec<f64>) {
        self.dense.copy(from, to);
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        change: [&mut Vec<f64>; M],
        read: [&Vec<f64>; R],
    ) {
        self.dense.change(formula, scalars, decay, change, read);
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        read: [&Vec<f64>; R],
        sums: &mut Vec<f64>,
        at: usize,
    ) {
        self.measured.borrow_mut().extend(at..at + K);
        self.dense.measure(formula, scalars, decay, read, sums, at);
    }

    fn sums(&self, count: usize) -> Result<Vec<f64>, Self::Error> {
        self.dense.sums(count)
    }

    fn read(&self, sums: &mut Vec<f64>, values: &mut [f64]) -> Result<(), Self::Error> {
        self.dense.read(sums, values)?;
        if let Some((index, wrong)) = self.wrong_sum.get() {
            values[index] = wrong;
        }
        Ok(())
    }

    fn measure_norm(&self, v: &Vec<f64>, sums: &mut Vec<f64>, at: usize) {
        self.norm_passes.set(self.norm_passes.get() + 1);
        self.dense.measure(SquareNorm, [], 0.0, [v], sums, at);
    }

    fn norm(&self, v: &Vec<f64>, squares: f64) -> Result<f64, Self::Error> {
        self.squared_norm.set(squares);
        self.wrong_norm.get().map_or_else(|| self.dense.norm(v, squares), Ok)
    }

    fn measure_distance(&self, a: &Vec<f64>, b: &Vec<f64>, sums: &mut Vec<f64>, at: usize) -> Option<f64> {
        self.dense.measure_distance(a, b, sums, at)
    }
}
