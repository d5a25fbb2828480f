//! Formulas in an arena on the CPU: against plain vectors in f64, with any number of threads, and the gaps stay 0.

#![allow(clippy::unwrap_used)]

mod methods;

use methods::{Again, Everything, Watch};
use untuned::formula::{Change, Measure, Number, Operation, Program, TensorInfo};
use untuned::optimizers::{AdamW, PolyakAdam};
use untuned::space::TensorRange;
use untuned::{DenseF64, Method, Optimizer as _, RunInfo, Session, Space, StepOptions};
use untuned_net::arena::{Initial, Layout};
use untuned_net::cpu::Cpu;
use untuned_net::cpu::math::Real;
use untuned_net::device::{Device, DeviceError};
use untuned_net::random::Site;
use untuned_net::space::ArenaSpace;

const STEPS: u32 = 30;

/// Matrices and vectors with gaps and without, shorter than a part of a pass, longer, and across its ends.
fn layout() -> Layout {
    let mut layout = Layout::default();
    layout.vector("first", 5, Initial::Normal(1.0));
    layout.matrix("small", 3, 7, Initial::Normal(1.0));
    layout.matrix("large", 300, 501, Initial::Normal(0.25));
    layout.vector("norm", 70_001, Initial::Normal(1.0));
    let parts = ["q", "k"].map(|name| (name.to_string(), 33, Initial::Normal(1.0)));
    layout.stacked(&parts, 5);
    layout.vector("last", 3, Initial::Normal(1.0));
    layout
}

/// The same without those that are large.
fn small_layout() -> Layout {
    let mut layout = Layout::default();
    layout.vector("first", 5, Initial::Normal(1.0));
    layout.matrix("matrix", 13, 21, Initial::Normal(1.0));
    layout.matrix("small", 3, 7, Initial::Uniform(0.1));
    layout.vector("last", 33, Initial::Normal(1.0));
    layout
}

/// The vectors of which the matrices decay. Of 150,651 numbers in matrices the 150,300 of the large one begin with the size ¼, all others
/// with 1.
fn plain(layout: &Layout) -> DenseF64 {
    let typical = 0.25f64.powf(150_300.0 / 150_651.0);
    let matrices = [("small", 1.0), ("large", 0.25), ("q", 1.0), ("k", 1.0)];
    let tensors = layout.tensors().iter().zip(layout.tensor_ranges()).map(|(tensor, found)| {
        let size = matrices.iter().find_map(|&(name, size)| (name == tensor.name).then_some(size / typical));
        assert!((found.scale / size.unwrap_or(1.0) - 1.0).abs() < 1e-14, "{tensor:?}, {found:?}");
        TensorRange { range: tensor.view.range(), decays: size.is_some(), scale: found.scale }
    });
    DenseF64 { dimension: layout.len(), tensors: tensors.collect() }
}

/// An arena with scales, of which the matrices decay.
fn space<'a, D: Device>(device: &'a D, layout: &Layout) -> ArenaSpace<'a, D> {
    ArenaSpace::new(device, layout, &PolyakAdam::default().build(&RunInfo::new(1)).unwrap())
}

/// Whether a pass has used the scales of tensors.
struct UsesScales(bool);

impl UsesScales {
    fn see(&mut self, program: &Program) {
        let mut operations = program.operations.iter().zip(program.used());
        self.0 |= operations.any(|(operation, used)| used && *operation == Operation::Scale);
    }
}

impl Watch for UsesScales {
    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &mut self,
        _: Again<F>,
        _: [f64; S],
        _: f64,
        _: [&[f64]; M],
        _: [&[f64]; R],
        _: [&[f64]; M],
    ) {
        self.see(&Program::of_change::<F, S, M, R>());
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &mut self,
        _: Again<F>,
        _: [f64; S],
        _: f64,
        _: [&[f64]; R],
    ) {
        self.see(&Program::of_measure::<F, S, R, K>());
    }
}

/// A space computes scales only for a method that asks for them: one that does not would see 1.
#[test]
fn methods_that_use_scales_say_so() {
    let layout = small_layout();
    let mut asking = 0;
    for spec in methods::specs() {
        let session = methods::session(&spec, DenseF64::new(layout.len()), &vec![0.0; layout.len()]);
        let needs = session.method().needs().scales;
        assert_eq!(methods::walk(&spec, &layout, UsesScales(false)).0, needs, "{spec}");
        asking += usize::from(needs);
    }
    assert!(asking > 0);
    // Others have an arena where all scales are 1.
    let (cpu, adamw) = (Cpu::<f64>::new(Some(1)).unwrap(), AdamW::default().build(&RunInfo::new(1)).unwrap());
    for (space, same) in [(space(&cpu, &layout), false), (ArenaSpace::new(&cpu, &layout, &adamw), true)] {
        let mut to = cpu.parameters(&vec![0.0; layout.len()]).unwrap();
        let ones = cpu.parameters(&vec![1.0; layout.len()]).unwrap();
        space.change(Scaled, [], 0.0, [&mut to], [&ones]);
        assert_eq!(to.iter().all(|&scale| scale == 1.0), same);
    }
}

/// `to = scale·v`.
struct Scaled;

impl Change<0, 1, 1> for Scaled {
    fn each<N: Number>(_: [N; 0], info: TensorInfo<N>, _: [N; 1], [v]: [N; 1]) -> [N; 1] {
        [info.scale * v]
    }
}

fn vector<R: Real>(values: &[f32]) -> Vec<R> {
    values.iter().map(|&value| R::from_f32(value)).collect()
}

/// The gradient of a step, of very different sizes, 0 in the gaps.
fn gradient(layout: &Layout, step: u32) -> Vec<f32> {
    let mut values = vec![0.0; layout.len()];
    for (site, tensor) in layout.tensors().iter().enumerate() {
        let deviation = 10f64.powi(3 - 2 * site as i32);
        Site { seed: 3, site: site as u32, step }.fill_normal(&mut values[tensor.view.range()], deviation);
    }
    values
}

/// A space whose norms are the same to the last bit as those of any other: where numbers pass 0, clipping shows the last bit.
struct SameNorms<S>(S);

impl<R: Real, S: Space<Vector = Vec<R>>> Space for SameNorms<S> {
    type Vector = Vec<R>;
    type Sums = S::Sums;
    type Error = S::Error;

    const LARGEST: f64 = S::LARGEST;

    fn dimension(&self) -> u64 {
        self.0.dimension()
    }

    fn zeros(&self) -> Result<Vec<R>, S::Error> {
        self.0.zeros()
    }

    fn copy(&self, from: &Vec<R>, to: &mut Vec<R>) {
        self.0.copy(from, to);
    }

    fn change<F: Change<C, M, N>, const C: usize, const M: usize, const N: usize>(
        &self,
        formula: F,
        scalars: [f64; C],
        decay: f64,
        change: [&mut Vec<R>; M],
        read: [&Vec<R>; N],
    ) {
        self.0.change(formula, scalars, decay, change, read);
    }

    fn measure<F: Measure<C, N, K>, const C: usize, const N: usize, const K: usize>(
        &self,
        formula: F,
        scalars: [f64; C],
        decay: f64,
        read: [&Vec<R>; N],
        sums: &mut S::Sums,
        at: usize,
    ) {
        self.0.measure(formula, scalars, decay, read, sums, at);
    }

    fn sums(&self, count: usize) -> Result<S::Sums, S::Error> {
        self.0.sums(count)
    }

    fn read(&self, sums: &mut S::Sums, values: &mut [f64]) -> Result<(), S::Error> {
        self.0.read(sums, values)
    }

    fn norm(&self, v: &Vec<R>, _: f64) -> Result<f64, S::Error> {
        Ok(v.iter().map(|v| v.to_f64() * v.to_f64()).sum::<f64>().sqrt())
    }
}

/// The point after all steps of AdamW, with `m` and `v`.
fn adamw<R: Real, S: Space<Vector = Vec<R>, Error: std::fmt::Debug>>(
    space: S,
    layout: &Layout,
) -> [Vec<R>; 3] {
    let method = AdamW { lr: 0.01, beta2: 0.99, ..AdamW::default() };
    let method = method.build(&RunInfo::new(u64::from(STEPS))).unwrap();
    let mut session = Session::new(method, SameNorms(space)).unwrap();
    let mut x = vector(&layout.initial(1));
    for step in 0..STEPS {
        let rate = f64::from(step + 1) / f64::from(STEPS);
        session.options = StepOptions { rate, clip: Some(1000.0), weight_decay: 0.3 };
        session.advance(1.0, &mut x, &vector(&gradient(layout, step))).unwrap();
    }
    let state: Vec<Vec<R>> = session.vectors().map(|(_, vector)| vector.clone()).collect();
    let [m, v] = state.try_into().unwrap();
    [x, m, v]
}

/// What `Everything` makes of two vectors, and its sums.
fn everything<R: Real, S: Space<Vector = Vec<R>>>(
    space: &S,
    layout: &Layout,
    sums: &mut S::Sums,
) -> [Vec<R>; 2] {
    let (mut x, mut y) = (vector(&layout.initial(1)), vector(&gradient(layout, 1)));
    let g = vector(&gradient(layout, 2));
    space.measure(Everything, [0.3, 0.2], 0.25, [&x, &g], sums, 1);
    for _ in 0..3 {
        space.change(Everything, [0.3, 0.2], 0.25, [&mut x, &mut y], [&g]);
    }
    [x, y]
}

/// Vectors and sums of both on the CPU.
fn on<R: Real>(threads: usize) -> ([Vec<R>; 3], [Vec<R>; 2], Vec<f64>) {
    let (cpu, layout) = (Cpu::<R>::new(Some(threads)).unwrap(), layout());
    let space = space(&cpu, &layout);
    let mut sums = cpu.scalars(5).unwrap();
    let everything = everything(&space, &layout, &mut sums);
    (adamw(space, &layout), everything, sums)
}

/// The largest difference, as a part of what the plain one has, or of 1 where that is smaller and `small` says so.
fn worst<R: Real>(got: &[R], want: &[f64], small: f64) -> f64 {
    let errors = got.iter().zip(want).map(|(got, want)| (got.to_f64() - want).abs() / want.abs().max(small));
    // NaN stays, unlike with the standard library's maximum.
    errors.fold(0.0, |most, error| if most.is_nan() || error <= most { most } else { error })
}

#[test]
fn adamw_is_the_plain_one() {
    let layout = layout();
    let want = adamw::<f64, _>(plain(&layout), &layout);
    for (index, got) in on::<f64>(2).0.iter().enumerate() {
        assert!(worst(got, &want[index], 1e-9) < 1e-12, "array {index} in f64");
    }
    let [x, m, v] = on::<f32>(2).0;
    // Thirty roundings of numbers near 1; a mean of gradients of both signs loses some more.
    assert!(worst(&x, &want[0], 1.0) < 1e-5, "{}", worst(&x, &want[0], 1.0));
    assert!(worst(&v, &want[2], f64::MIN_POSITIVE) < 1e-5, "{}", worst(&v, &want[2], f64::MIN_POSITIVE));
    for tensor in layout.tensors() {
        let (m, want) = (&m[tensor.view.range()], &want[1][tensor.view.range()]);
        let largest = want.iter().fold(0.0f64, |most, m| most.max(m.abs()));
        assert!(worst(m, want, largest) < 1e-6, "{}: {}", tensor.name, worst(m, want, largest));
    }
}

#[test]
fn every_operation_is_the_plain_one() {
    let layout = layout();
    let mut sums = vec![0.0; 5];
    let want = everything::<f64, _>(&plain(&layout), &layout, &mut sums);
    // The gradient has a tensor of deviation 1e-3 and one of 1e3; the sums are of 220 000 terms near 1.
    let check = |sums_of: &[f64]| {
        assert_eq!((sums_of[0], sums_of[4]), (0.0, 0.0), "only these indices are written");
        assert!(worst(sums_of, &sums, 220e3) < 1e-12, "{sums_of:?} and not {sums:?}");
    };
    let (_, got, sums) = on::<f64>(2);
    assert_eq!(got, want);
    check(&sums);
    // The terms are computed in f64 there, too.
    let (_, got, sums) = on::<f32>(2);
    got.iter().zip(&want).for_each(|(got, want)| assert!(worst(got, want, 1.0) < 1e-6));
    check(&sums);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let one = on::<f32>(1);
    for threads in [2, 3, 7] {
        assert!(on::<f32>(threads) == one, "{threads} threads");
    }
}

#[test]
fn gaps_stay_zero() {
    let layout = layout();
    let mut gap = vec![true; layout.len()];
    for tensor in layout.tensors() {
        gap[tensor.view.range()].fill(false);
    }
    assert!(gap.iter().any(|&gap| gap));
    let (adamw, everything, _) = on::<f32>(2);
    for array in adamw.iter().chain(&everything) {
        let bits = array.iter().zip(&gap).filter(|(_, gap)| **gap).map(|(value, _)| value.to_bits());
        assert!(bits.clone().count() > 20 && bits.into_iter().all(|bits| bits == 0));
    }
}

/// Runs every pass on the CPU, too.
struct OnCpu<'a, R> {
    cpu: Cpu<R>,
    layout: &'a Layout,
    spec: String,
    passes: usize,
}

impl<R: Real> OnCpu<'_, R> {
    fn vector(&self, values: &[f64]) -> Vec<R> {
        values.iter().map(|&value| R::from_f64(value)).collect()
    }
}

impl<R: Real> Watch for OnCpu<'_, R> {
    fn change<F: Change<S, M, N>, const S: usize, const M: usize, const N: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        before: [&[f64]; M],
        read: [&[f64]; N],
        after: [&[f64]; M],
    ) {
        self.passes += 1;
        let (mut vectors, read) = (before.map(|v| self.vector(v)), read.map(|v| self.vector(v)));
        let space = space(&self.cpu, self.layout);
        space.change(formula, scalars, decay, vectors.each_mut(), read.each_ref());
        let tolerance = if size_of::<R>() == 8 { 1e-15 } else { 1e-5 };
        for (got, want) in vectors.iter().zip(after) {
            let largest = want.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            let worst = worst(got, want, largest.max(f64::MIN_POSITIVE));
            assert!(worst <= tolerance, "{}: {}: {worst}", self.spec, std::any::type_name::<F>());
        }
    }

    fn measure<F: Measure<S, N, K>, const S: usize, const N: usize, const K: usize>(
        &mut self,
        formula: Again<F>,
        scalars: [f64; S],
        decay: f64,
        read: [&[f64]; N],
    ) {
        self.passes += 1;
        let mut sums = vec![f64::NAN; K];
        let vectors = read.map(|v| self.vector(v));
        let space = space(&self.cpu, self.layout);
        space.measure(formula, scalars, decay, vectors.each_ref(), &mut sums, 0);
        // What is exact, and what it becomes where terms are computed in the vectors' own numbers.
        let (mut exact, mut want) = ([0.0; K], [0.0; K]);
        let (mut sizes, tensors) = ([0.0; K], self.layout.tensor_ranges());
        for i in 0..self.layout.len() {
            let tensor = tensors.iter().find(|tensor| tensor.range.contains(&i));
            let (decays, scale) = tensor.map_or((false, 1.0), |tensor| (tensor.decays, tensor.scale));
            let info = TensorInfo { decay: if decays { decay } else { 0.0 }, scale };
            let terms = F::each(scalars, info, read.map(|v| v[i]));
            let own = F::each(scalars.map(R::of), info.of(), read.map(|v| R::of(v[i])));
            for k in 0..K {
                exact[k] += terms[k];
                want[k] += if F::NARROW[k] { own[k].into() } else { terms[k] };
                sizes[k] += terms[k].abs();
            }
        }
        for k in 0..K {
            let name = std::any::type_name::<F>();
            for (want, tolerance) in [(want[k], 1e-12), (exact[k], 1e-6)] {
                let error = (sums[k] - want).abs();
                assert!(error <= tolerance * sizes[k], "{}: sum {k} of {name}: {error}", self.spec);
            }
        }
    }
}

fn methods_are_the_plain_ones<R: Real>() {
    let layout = small_layout();
    for spec in methods::specs() {
        let cpu = Cpu::<R>::new(Some(1)).unwrap();
        let watch = OnCpu { cpu, layout: &layout, spec: spec.clone(), passes: 0 };
        assert!(methods::walk(&spec, &layout, watch).passes > 0, "{spec}");
    }
}

#[test]
fn every_method_is_the_plain_one_in_f64() {
    methods_are_the_plain_ones::<f64>();
}

#[test]
fn every_method_is_the_plain_one_in_f32() {
    methods_are_the_plain_ones::<f32>();
}

/// A method on the CPU in f32, at its point.
struct Walker<'a> {
    cpu: &'a Cpu<f32>,
    layout: &'a Layout,
    spec: &'a str,
    session: Session<Method, ArenaSpace<'a, Cpu<f32>>>,
    x: Vec<f32>,
}

impl<'a> Walker<'a> {
    fn new(spec: &'a str, layout: &'a Layout, cpu: &'a Cpu<f32>) -> Walker<'a> {
        let x = layout.initial(1);
        let session = methods::session(spec, space(cpu, layout), &x);
        Walker { cpu, layout, spec, session, x }
    }

    /// Whether the step was made.
    fn step(&mut self, loss: f64, gradient: &[f32], rate: f64) -> bool {
        let squares: f64 = gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum();
        self.session.options = StepOptions { rate, ..StepOptions::default() };
        let made = self.session.advance(loss, &mut self.x, &gradient.to_vec()).is_ok();
        let norm = self.session.seen().unwrap().grad_norm;
        assert!((norm * norm / squares - 1.0).abs() < 1e-12, "{}: {norm}² and not {squares}", self.spec);
        made
    }

    /// Makes a step; a refused one counts.
    fn walk(&mut self, loss: f64, gradient: &[f32]) {
        if !self.step(loss, gradient, 1.0) {
            self.session.skip();
        }
    }

    fn numbers(&self) -> impl Iterator<Item = f32> {
        self.x.iter().chain(self.session.vectors().flat_map(|(_, vector)| vector)).copied()
    }
}

/// Through what a checkpoint holds.
impl Clone for Walker<'_> {
    fn clone(&self) -> Self {
        let mut walker = Walker { x: self.x.clone(), ..Walker::new(self.spec, self.layout, self.cpu) };
        let mut saved = self.session.vectors();
        let filled = walker.session.load(self.session.save(), &self.x, |_, name, to| {
            let (other, from) = saved.next().expect("as many vectors");
            assert_eq!(name, other);
            to.clone_from(from);
            Ok::<(), DeviceError>(())
        });
        assert!(filled.is_ok(), "{filled:?}");
        walker
    }
}

/// A size beyond what 32-bit floats hold would be infinite in them, and NaN where the gradient is 0.
#[test]
fn an_accepted_step_writes_numbers_and_a_refused_one_nothing() {
    let layout = small_layout();
    let cpu = Cpu::<f32>::new(Some(1)).unwrap();
    let gradient = |step: u32, size: f32| -> Vec<f32> {
        let mut values = gradient(&layout, step);
        values.iter_mut().for_each(|g| *g *= size);
        values.iter_mut().step_by(3).for_each(|g| *g = 0.0);
        values
    };
    for spec in methods::specs() {
        let mut begun = Walker::new(&spec, &layout, &cpu);
        let mut refused = 0;
        for before in 0..4 {
            for rate in [1e-300, 1e-40, 1e-20, 1.0, 1e10, 1e60, 1e300] {
                for size in [1e-30, 1e-15, 1.0, 1e10, 1e14] {
                    for loss in [1e-300, 1e-30, 1.0, 1e30] {
                        let mut walker = begun.clone();
                        let what =
                            || format!("{spec}: rate {rate:e}, gradient {size:e}, loss {loss:e} at {before}");
                        if walker.step(loss, &gradient(before, size), rate) {
                            assert!(walker.numbers().all(f32::is_finite), "{}", what());
                        } else {
                            refused += 1;
                            let same =
                                walker.numbers().map(f32::to_bits).eq(begun.numbers().map(f32::to_bits));
                            assert!(same && walker.session.save() == begun.session.save(), "{}", what());
                        }
                    }
                }
            }
            begun.walk(3.0, &gradient(before, 1.0));
        }
        assert!(refused > 0, "{spec}: a rate of 1e300 was never refused");
    }
}

/// Their squares are no 32-bit floats; a method may measure other sums later than at first.
#[test]
fn the_norm_of_the_smallest_gradients_is_exact_also_with_a_methods_own_pass() {
    let layout = small_layout();
    let cpu = Cpu::<f32>::new(Some(1)).unwrap();
    for spec in methods::specs() {
        let mut walker = Walker::new(&spec, &layout, &cpu);
        for t in 0..methods::LONG as u32 {
            let gradient = gradient(&layout, t);
            let small: Vec<f32> = gradient.iter().map(|g| g * 1e-30).collect();
            walker.clone().step(3.0, &small, 1.0);
            walker.walk(3.0, &gradient);
        }
    }
}
