//! The passes of every rule and optimizer, for tests of the devices that run them.
//!
//! A session drives each method for some steps on plain vectors, and a watch sees every pass with its numbers. All methods of the
//! catalog take part: a new optimizer is tested by being there.

use std::cell::RefCell;
use std::convert::Infallible;
use std::marker::PhantomData;
use untuned::average::Average;
use untuned::formula::{Change, Measure, Number, TensorInfo};
use untuned::optimizers::OPTIMIZERS;
use untuned::spec::{DefaultValue, Info, Kind};
use untuned::{DenseF64, Method, MethodSpec, RunInfo, Session, SessionError, Space, StepOptions, catalog};
use untuned_net::arena::Layout;
use untuned_net::random::Site;

/// A formula once more: the passes take theirs by value, and it need not be one that can be copied.
pub struct Again<F>(PhantomData<F>);

impl<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize> Change<S, M, R> for Again<F> {
    #[inline(always)]
    fn each<N: Number>(scalars: [N; S], info: TensorInfo<N>, change: [N; M], read: [N; R]) -> [N; M] {
        F::each(scalars, info, change, read)
    }
}

impl<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize> Measure<S, R, K> for Again<F> {
    const NARROW: [bool; K] = F::NARROW;

    #[inline(always)]
    fn each<N: Number>(scalars: [N; S], info: TensorInfo<N>, read: [N; R]) -> [N; K] {
        F::each(scalars, info, read)
    }
}

/// Uses every operation, and makes 0 of zeros.
pub struct Everything;

impl Change<2, 2, 1> for Everything {
    #[inline(always)]
    fn each<N: Number>(
        [a, b]: [N; 2],
        TensorInfo { decay, scale }: TensorInfo<N>,
        [x, y]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let root = (a * g * g + N::of(0.5)).sqrt();
        [x - decay * x - scale * b * g / root, (-y).abs().max(g).min(N::of(3.0)) + x.above(b, g, y)]
    }
}

/// Uses every operation, too; the terms have both signs.
impl Measure<2, 2, 3> for Everything {
    #[inline(always)]
    fn each<N: Number>([a, b]: [N; 2], TensorInfo { decay, scale }: TensorInfo<N>, [x, g]: [N; 2]) -> [N; 3] {
        let root = (a * g * g + N::of(0.5)).sqrt();
        [x * g / root, (g + decay * x).abs().min(b) - x.max(g).above(b, -x, g), scale * x]
    }
}

/// Sees the passes of a method. All numbers of the vectors are f32.
pub trait Watch {
    /// One that changes vectors; `after` is what became of them in f64.
    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        before: [&[f64]; M],
        read: [&[f64]; R],
        after: [&[f64]; M],
    );

    /// One that sums.
    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        read: [&[f64]; R],
    );
}

/// Plain vectors whose passes are watched.
struct Watched<'a, W> {
    plain: DenseF64,
    watch: &'a RefCell<W>,
}

impl<W: Watch> Space for Watched<'_, W> {
    type Vector = Vec<f64>;
    type Sums = Vec<f64>;
    type Error = Infallible;

    const LARGEST: f64 = f32::MAX as f64;

    fn dimension(&self) -> u64 {
        self.plain.dimension()
    }

    fn zeros(&self) -> Result<Vec<f64>, Infallible> {
        self.plain.zeros()
    }

    fn sums(&self, count: usize) -> Result<Vec<f64>, Infallible> {
        self.plain.sums(count)
    }

    fn read(&self, sums: &mut Vec<f64>, values: &mut [f64]) -> Result<(), Infallible> {
        self.plain.read(sums, values)
    }

    fn copy(&self, from: &Vec<f64>, to: &mut Vec<f64>) {
        self.plain.copy(from, to);
    }

    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &self,
        formula: F,
        scalars: [f64; S],
        decay: f64,
        mut change: [&mut Vec<f64>; M],
        read: [&Vec<f64>; R],
    ) {
        let before = change.each_ref().map(|vector| vector.to_vec());
        self.plain.change(formula, scalars, decay, change.each_mut().map(|vector| &mut **vector), read);
        let (before, after) = (before.each_ref().map(Vec::as_slice), change.each_ref().map(|v| v.as_slice()));
        let read = read.map(Vec::as_slice);
        self.watch.borrow_mut().change(Again(PhantomData::<F>), scalars, decay, before, read, after);
        change.iter_mut().for_each(|vector| vector.iter_mut().for_each(|v| *v = f64::from(*v as f32)));
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
        self.watch.borrow_mut().measure(Again(PhantomData::<F>), scalars, decay, read.map(Vec::as_slice));
        self.plain.measure(formula, scalars, decay, read, sums, at);
    }
}

/// Every rule and optimizer, by itself and with each of its options: a word may choose other formulas, and so may a 0.
pub fn specs() -> Vec<String> {
    catalog().into_iter().flat_map(specs_of).collect()
}

fn specs_of(info: &Info) -> Vec<String> {
    let required = info.parameters.iter().filter(|parameter| parameter.default == DefaultValue::Required);
    let required: Vec<String> = required.map(|parameter| format!("{}=0.5", parameter.name)).collect();
    let spec = |option: Option<String>| {
        let given: Vec<String> = required.iter().cloned().chain(option).collect();
        format!("{}{}{}", info.name, if given.is_empty() { "" } else { ":" }, given.join(","))
    };
    let options = info.parameters.iter().filter(|parameter| parameter.default != DefaultValue::Required);
    let options = options.flat_map(|parameter| {
        let values = match parameter.kind {
            Kind::Word(words) => words,
            Kind::Fraction | Kind::NonNegative => &["0", "0.5"],
            _ => &[],
        };
        values.iter().map(|value| spec(Some(format!("{}={value}", parameter.name))))
    });
    let built = options.filter(|option| build(option).is_some());
    [spec(None)].into_iter().chain(built).collect()
}

fn build(spec: &str) -> Option<Method> {
    let parsed: MethodSpec = spec.parse().ok()?;
    parsed.build(&RunInfo { f_star: Some(0.0), ..RunInfo::new(LONG as u64) }).ok()
}

/// A method before its first step, at `x`. AdamW also averages its points: that pass belongs to no method of the catalog.
pub fn session<S: Space<Error: std::fmt::Debug>>(spec: &str, space: S, x: &S::Vector) -> Session<Method, S> {
    let method = build(spec).unwrap_or_else(|| panic!("{spec} cannot be built"));
    let mut session = Session::new(method, space).unwrap();
    if spec == "adamw" {
        session = session.average(Average::Exponential(0.9)).unwrap();
    }
    session.start(x).unwrap();
    session
}

/// The losses that a method sees, again and again: lower ones, and higher than before.
const LOSSES: [f64; 6] = [3.0, 2.0, 2.5, 1.5, 4.0, 0.5];

/// The steps of an optimizer without options: later in a run it may do with other passes.
pub const LONG: usize = 40;

/// Lets a method walk on the parameters of a layout while `watch` sees its passes.
pub fn walk<W: Watch>(spec: &str, layout: &Layout, watch: W) -> W {
    let watch = RefCell::new(watch);
    let plain = DenseF64 { dimension: layout.len(), tensors: layout.tensor_ranges() };
    let mut x: Vec<f64> = layout.initial(1).into_iter().map(f64::from).collect();
    let mut session = session(spec, Watched { plain, watch: &watch }, &x);
    session.options = StepOptions { rate: 0.9, clip: None, weight_decay: 0.3 };
    let steps = if OPTIMIZERS.iter().any(|info| info.name == spec) { LONG } else { LOSSES.len() };
    for (step, loss) in LOSSES.into_iter().cycle().take(steps).enumerate() {
        let mut gradient = vec![0.0f32; layout.len()];
        for (site, tensor) in layout.tensors().iter().enumerate() {
            let site = Site { seed: 3, site: site as u32, step: step as u32 };
            site.fill_normal(&mut gradient[tensor.view.range()], 0.1);
        }
        let gradient: Vec<f64> = gradient.into_iter().map(f64::from).collect();
        // A rule may refuse what an option makes of its numbers, but not its first step.
        if let Err(SessionError::Refused(refusal)) = session.advance(loss, &mut x, &gradient) {
            assert!(step > 0, "{spec}: {refusal}");
            break;
        }
    }
    session.write_evaluation_point(&x, &mut vec![0.0; layout.len()]);
    drop(session);
    watch.into_inner()
}
