//! An observer that holds a run against the theory.

use std::ops::ControlFlow;

use serde::Serialize;
use untuned::MethodSpec;
use untuned::minimize::{Iterate, Observer, Run};
use untuned::problem::{Known, Problem};
use untuned::spec::number;

use crate::bounds::{self, Bound, Constants, Origin, Quantity, Speaks};
use crate::inequalities::{self as paper, Check, Gap, Pair, Verdict};
use crate::probe::{Clipping, Probe, Reading};

/// Checks assumptions, lemmas and propositions at every iterate of a run, and its result against the bounds.
///
/// Per step it measures two distances and keeps a copy of the last point and gradient. See the
/// [front page](crate) for an example.
pub struct Explainer<'a> {
    known: &'a Known,
    rule: &'a MethodSpec,
    lower_bound: f64,
    steps: u64,
    accuracy: Accuracy,
    quartic: bool,
    tallies: Tallies,
    probe: Probe,
    constants: Constants,
    d_t: Option<f64>,
    left_ball: Option<u64>,
    sizes: Option<StepSizes>,
    last_size: f64,
    /// The smallest loss of the iterates that a step was taken from.
    best: Option<f64>,
    /// The first step at which the condition of Lemma 4 failed.
    close: Option<u64>,
    previous: Option<Previous>,
}

/// The retained vectors, with what was measured of them.
struct Previous {
    x: Vec<f64>,
    gradient: Vec<f64>,
    grad_norm: f64,
    inside: bool,
}

/// Absolute errors of a problem's values beyond the rounding of the results, say of a long sum or an `f*` that is
/// itself computed. Zero by default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Accuracy {
    /// Of `f − f*`.
    pub value: f64,
    /// Of `‖∇f(x) − ∇f(y)‖`.
    pub gradient: f64,
}

/// How one inequality fared along the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tally {
    /// Its name in the paper.
    pub name: &'static str,
    /// The inequality.
    pub statement: &'static str,
    /// The constant it needs and the problem does not tell.
    pub not_known: Option<&'static str>,
    /// How often it applied.
    pub checked: u64,
    /// How often it did not: pairs too far apart, points outside the ball where `L` holds, `g = 0`.
    pub not_applicable: u64,
    /// How often both sides were equal up to rounding.
    pub within_rounding: u64,
    /// How often it failed by more than rounding.
    pub violated: u64,
    /// The largest [`Check::ratio`].
    pub tightest: Option<f64>,
    /// Its step; of a pair, the later one's.
    pub tightest_at: Option<u64>,
    /// The first step where it failed.
    pub violated_at: Option<u64>,
}

impl Tally {
    fn new(name: &'static str, statement: &'static str, not_known: Option<&'static str>) -> Tally {
        Tally {
            name,
            statement,
            not_known,
            checked: 0,
            not_applicable: 0,
            within_rounding: 0,
            violated: 0,
            tightest: None,
            tightest_at: None,
            violated_at: None,
        }
    }

    fn add(&mut self, step: u64, check: Option<Check>) {
        let Some(check) = check else {
            self.not_applicable += 1;
            return;
        };
        self.checked += 1;
        match check.verdict() {
            Verdict::Clear => {}
            Verdict::WithinRounding => self.within_rounding += 1,
            Verdict::Fails => {
                self.violated += 1;
                self.violated_at.get_or_insert(step);
            }
        }
        let ratio = check.ratio();
        if self.tightest.is_none_or(|tightest| ratio > tightest) {
            (self.tightest, self.tightest_at) = (Some(ratio), Some(step));
        }
    }
}

struct Tallies {
    assumption_1: Tally,
    assumption_2: Tally,
    lemma_1: Tally,
    lemma_2: Tally,
    lemma_6: Tally,
    proposition_1: Tally,
    proposition_2: Tally,
    proposition_3: Tally,
}

/// The step sizes of a run, without those at stationary points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepSizes {
    /// `η_0`.
    pub first: f64,
    /// The smallest.
    pub smallest: f64,
    /// The largest.
    pub largest: f64,
    /// How often a step was larger than the one before.
    pub increases: u64,
    /// The first such step.
    pub increased_at: Option<u64>,
}

/// A bound and what the run measured of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The bound.
    #[serde(flatten)]
    pub bound: Bound,
    /// The gap or squared distance at the iterate that the bound speaks of.
    pub measured: Option<f64>,
    /// What rounding may add to the measured value.
    pub rounding: f64,
    /// What comes of the comparison.
    pub judgement: Judgement,
}

/// What comes of comparing a measured value with a bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Measured is no larger than the bound.
    Holds,
    /// It is larger.
    Fails,
    /// The bound is a rate without constants: measured/rate.
    RateOnly(f64),
    /// The theorem does not speak of this run, and why.
    NotApplying(String),
    /// Something that the comparison needs is not known.
    NotKnown(String),
}

/// A run held against the theory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The rule that ran.
    pub rule: String,
    /// `T`.
    pub steps: u64,
    /// The steps that were made.
    pub made: u64,
    /// [`Outcome::word`](untuned::Outcome::word).
    pub outcome: &'static str,
    /// The constants of the bounds.
    pub constants: Constants,
    /// `L` holds no farther than this from the minimiser.
    pub l_radius: Option<f64>,
    /// `D_T = max_t ‖x_t − x*‖`.
    pub d_t: Option<f64>,
    /// The first step outside the ball where `L` holds.
    pub left_ball: Option<u64>,
    /// The step sizes; `None` where no step had a size above 0.
    pub step_sizes: Option<StepSizes>,
    /// Assumptions, lemmas and propositions along the run.
    pub inequalities: Vec<Tally>,
    /// The bounds of the rule that ran; none where the paper has none.
    pub bounds: Vec<Judged>,
    /// The lines fitted to the smoothness along the run.
    pub local_smoothness: Reading,
    /// The clipped gradient descent that the run amounts to.
    pub implied_clipping: Option<Clipping>,
}

impl<'a> Explainer<'a> {
    /// For a run of `steps` steps of `rule` on `problem`, whose loss never goes below `lower_bound`.
    pub fn new<P: Problem + ?Sized>(
        problem: &'a P,
        rule: &'a MethodSpec,
        lower_bound: f64,
        steps: u64,
    ) -> Explainer<'a> {
        let known = problem.known();
        let sigma_sq = known.f_star.map(|f_star| f_star - lower_bound);
        let constants = Constants {
            l: known.l,
            l0: known.l0_l1.map(|(l0, _)| l0),
            l1: known.l0_l1.map(|(_, l1)| l1),
            distance: None,
            sigma_sq,
        };
        let mut probe = Probe::new(constants.l1);
        // A million points are 24 MB; longer runs grow as they go.
        probe.reserve(steps.min(1 << 20) as usize);
        Explainer {
            known,
            rule,
            lower_bound,
            steps,
            accuracy: Accuracy::default(),
            quartic: false,
            tallies: Tallies::new(known),
            probe,
            constants,
            d_t: None,
            left_ball: None,
            sizes: None,
            last_size: f64::INFINITY,
            best: None,
            close: None,
            previous: None,
        }
    }

    /// The problem's values are no better than this.
    pub fn accuracy(mut self, accuracy: Accuracy) -> Self {
        self.accuracy = accuracy;
        self
    }

    /// The problem is the paper's quartic: checks Proposition 3 too.
    pub fn quartic(mut self) -> Self {
        self.quartic = true;
        self
    }

    /// `f − f*` with its error.
    fn gap(&self, loss: f64) -> Option<Gap> {
        self.known.f_star.map(|f_star| Gap::measured(loss, f_star).with_error(self.accuracy.value))
    }

    /// Whether `L` holds at this distance from the minimiser. The rounding of the last step onto the ball's edge does
    /// not count as leaving it.
    fn is_inside(&self, distance: Option<f64>) -> bool {
        match (self.known.l_radius, distance) {
            (None, _) => true,
            (Some(radius), Some(distance)) => distance <= radius * (1.0 + 4.0 * f64::EPSILON),
            (Some(_), None) => false,
        }
    }

    fn check_point(&mut self, seen: &Iterate<'_>, inside: bool) {
        let gap = self.gap(seen.loss);
        let (step, norm, tallies) = (seen.step, seen.grad_norm, &mut self.tallies);
        if let (Some(gap), Some(l)) = (gap, self.known.l) {
            tallies.lemma_1.add(step, if inside { paper::lemma_1(norm, gap, l) } else { None });
            tallies.proposition_2.add(step, if inside { paper::proposition_2(norm, gap, l) } else { None });
        }
        if let (Some(gap), Some((l0, l1))) = (gap, self.known.l0_l1) {
            tallies.lemma_2.add(step, paper::lemma_2(norm, gap, l0, l1));
            tallies.proposition_1.add(step, paper::proposition_1(norm, gap, l0, l1));
        }
        if let (true, Some((l0, l1)), [x]) = (self.quartic, self.known.l0_l1, seen.x) {
            tallies.proposition_3.add(step, paper::proposition_3(*x, l0, l1));
        }
    }

    fn check_pair(&mut self, step: u64, pair: &Pair, inside: bool) {
        self.probe.see(pair);
        let tallies = &mut self.tallies;
        if let Some(l) = self.known.l {
            tallies.assumption_1.add(step, if inside { paper::assumption_1(pair, l) } else { None });
        }
        if let Some((l0, l1)) = self.known.l0_l1 {
            tallies.assumption_2.add(step, paper::assumption_2(pair, l0, l1));
            tallies.lemma_6.add(step, paper::lemma_6(pair, l0, l1));
        }
    }

    fn note_size(&mut self, step: u64, size: f64) {
        if size == 0.0 {
            return;
        }
        let new = StepSizes { first: size, smallest: size, largest: size, increases: 0, increased_at: None };
        let sizes = self.sizes.get_or_insert(new);
        sizes.smallest = sizes.smallest.min(size);
        sizes.largest = sizes.largest.max(size);
        if size > self.last_size {
            sizes.increases += 1;
            sizes.increased_at.get_or_insert(step);
        }
        self.last_size = size;
    }

    /// The run is over: what came of it. Bounds at the average need the run's uniform average
    /// ([`Average::Uniform`](untuned::average::Average::Uniform), which [`Minimizer`](untuned::Minimizer) computes by
    /// default).
    pub fn finish(self, run: &Run) -> Explanation {
        let local_smoothness = self.probe.read();
        let bounds = self.bounds().into_iter().map(|bound| self.judge(bound, run)).collect();
        Explanation {
            rule: self.rule.to_string(),
            steps: self.steps,
            made: run.last.step,
            outcome: run.outcome.word(),
            constants: self.constants,
            l_radius: self.known.l_radius,
            d_t: self.d_t,
            left_ball: self.left_ball,
            step_sizes: self.sizes,
            bounds,
            inequalities: self.tallies.list(self.quartic),
            local_smoothness,
            implied_clipping: local_smoothness.clipping(),
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        let (c, steps) = (&self.constants, self.steps);
        let first = self.sizes.map(|sizes| sizes.first);
        match self.rule.name() {
            "gd" => vec![bounds::theorem_1(c, steps)],
            "clipped-gd" => vec![bounds::theorem_2(c, steps)],
            "polyak" => vec![
                bounds::theorem_3(c, steps),
                bounds::theorem_4(c, steps),
                bounds::polyak_lipschitz(c, self.known.lipschitz, steps),
                bounds::polyak_strongly_convex(c, self.known.strong_convexity, steps),
            ],
            "inexact-polyak" => vec![bounds::lemma_4(c, steps), bounds::theorem_5(c, steps)],
            "decsps" => vec![bounds::decsps_rate(c, self.d_t, first, steps)],
            "adasps" => vec![bounds::adasps_rate(c, self.d_t, steps)],
            _ => Vec::new(),
        }
    }

    fn judge(&self, bound: Bound, run: &Run) -> Judged {
        let gap = |loss: f64| self.gap(loss).map(|gap| (gap.value, gap.error));
        let measured = match (bound.quantity, bound.speaks) {
            (Quantity::SquaredDistance, _) => self.squared_distance(&run.last.x),
            (_, Speaks::Average) => run.average.as_ref().and_then(|average| gap(average.loss)),
            (_, Speaks::Best) => self.best.and_then(gap),
            (_, Speaks::Last) => gap(run.last.loss),
        };
        let measured = measured.filter(|(value, _)| value.is_finite());
        let judgement = if let Some(why) = self.why_not(&bound, run) {
            Judgement::NotApplying(why)
        } else {
            match (measured, bound.value) {
                (_, None) => Judgement::NotKnown(self.missing(&bound)),
                (None, _) if bound.speaks == Speaks::Average && run.average.is_none() => {
                    Judgement::NotKnown("the run kept no average".to_string())
                }
                (None, _) => Judgement::NotKnown("f* or the iterate".to_string()),
                (Some((value, _)), Some(rate)) if bound.constants == Origin::RateOnly => {
                    Judgement::RateOnly(if value <= 0.0 { 0.0 } else { value / rate })
                }
                (Some((value, error)), Some(limit)) if value > limit + error => Judgement::Fails,
                _ => Judgement::Holds,
            }
        };
        let (value, rounding) = measured.unzip();
        Judged { bound, measured: value, rounding: rounding.unwrap_or(0.0), judgement }
    }

    /// `‖x − x*‖²` and the rounding of a run that moves by measured gaps: where the gap is of the size of its error `e`
    /// Polyak's steps are noise, and strong convexity puts the points of such gaps within `4e/µ`.
    fn squared_distance(&self, x: &[f64]) -> Option<(f64, f64)> {
        let distance = self.known.distance_to_minimizer(x)?;
        let error = self.gap(self.known.f_star?)?.error;
        Some((distance * distance, 4.0 * error / self.known.strong_convexity?))
    }

    /// Why the theorem behind a bound does not speak of this run.
    fn why_not(&self, bound: &Bound, run: &Run) -> Option<String> {
        let (spec, c) = (self.rule.spec(), &self.constants);
        // A rate typed by hand has a few digits; six of them are enough to mean the theorem's.
        let agree = |given: f64, wanted: f64| given == wanted || (given / wanted - 1.0).abs() < 1e-6;
        if self.steps == 0 {
            return Some("it speaks of at least one step".to_string());
        }
        if !self.known.convex {
            return Some("the function is not known to be convex".to_string());
        }
        if run.last.step != self.steps {
            return Some(format!("the run made {} of {} steps", run.last.step, self.steps));
        }
        match spec.name() {
            "gd" => {
                let (given, wanted) = (spec.number("lr"), 1.0 / c.l?);
                if !agree(given, wanted) {
                    return Some(format!(
                        "lr is {}, the theorem has 1/L = {}",
                        number(given),
                        number(wanted)
                    ));
                }
            }
            "clipped-gd" => {
                let given = (spec.number("lr"), spec.number("threshold"));
                let wanted = (1.0 / c.l0?, c.l0? / c.l1?);
                if !(agree(given.0, wanted.0) && agree(given.1, wanted.1)) {
                    return Some(format!(
                        "the theorem has lr = 1/L0 = {} and threshold = L0/L1 = {}",
                        number(wanted.0),
                        number(wanted.1)
                    ));
                }
            }
            "polyak" => {
                let given = spec.optional("f_star").or(self.known.f_star)?;
                if given != self.known.f_star? {
                    return Some(format!(
                        "f_star is {}, the minimum is {}",
                        number(given),
                        number(self.known.f_star?)
                    ));
                }
            }
            "inexact-polyak" | "decsps" | "adasps" => {
                let given = spec.number("lower_bound");
                if given != self.lower_bound {
                    let l = number(self.lower_bound);
                    return Some(format!("the rule ran with lower_bound={}, not l = {l}", number(given)));
                }
                if c.sigma_sq.is_some_and(|sigma_sq| sigma_sq < 0.0) {
                    return Some(format!("l = {} is above f*", number(self.lower_bound)));
                }
            }
            _ => {}
        }
        if let (Some(step), "Lemma 4") = (self.close, bound.name) {
            return Some(format!("f − f* fell below σ²/√T at step {step}: see Theorem 5"));
        }
        // Theorem 5 needs L within the first distance only, and holds whatever comes after.
        let needs_ball = !matches!(bound.name, "Theorem 5" | "Polyak, G-Lipschitz");
        match self.left_ball {
            Some(step) if needs_ball => Some(format!("step {step} left the ball where L holds")),
            _ => None,
        }
    }

    /// Which constants a bound without a value lacks.
    fn missing(&self, bound: &Bound) -> String {
        let (c, formula) = (&self.constants, bound.formula);
        let table = [
            ("L", c.l.is_none() && formula.replace("L0", "").replace("L1", "").contains('L')),
            ("L0, L1", c.l0.is_none() && formula.contains("L0")),
            ("x*", c.distance.is_none()),
            ("f*", c.sigma_sq.is_none() && formula.contains('σ')),
            ("G", self.known.lipschitz.is_none() && formula.contains('G')),
            ("µ", self.known.strong_convexity.is_none() && formula.contains('µ')),
        ];
        let missing: Vec<_> = table.iter().filter(|(_, missing)| *missing).map(|(name, _)| *name).collect();
        if missing.is_empty() { "no value".to_string() } else { missing.join(", ") }
    }
}

impl Observer for Explainer<'_> {
    fn see(&mut self, seen: &Iterate<'_>) -> ControlFlow<()> {
        if !(seen.loss.is_finite() && seen.grad_norm.is_finite()) {
            return ControlFlow::Continue(());
        }
        let distance = self.known.distance_to_minimizer(seen.x);
        if seen.step == 0 {
            self.constants.distance = distance;
        }
        self.d_t = match (self.d_t, distance) {
            (Some(d_t), Some(distance)) => Some(d_t.max(distance)),
            (d_t, distance) => d_t.or(distance),
        };
        let inside = self.is_inside(distance);
        if !inside && distance.is_some() {
            self.left_ball.get_or_insert(seen.step);
        }

        self.check_point(seen, inside);
        if let Some(mut previous) = self.previous.take() {
            let pair = Pair::with_norms(
                (&previous.x, &previous.gradient, previous.grad_norm),
                (seen.x, seen.gradient, seen.grad_norm),
            )
            .with_error(self.accuracy.gradient);
            self.check_pair(seen.step, &pair, inside && previous.inside);
            previous.x.copy_from_slice(seen.x);
            previous.gradient.copy_from_slice(seen.gradient);
            (previous.grad_norm, previous.inside) = (seen.grad_norm, inside);
            self.previous = Some(previous);
        } else {
            let (x, gradient) = (seen.x.to_vec(), seen.gradient.to_vec());
            self.previous = Some(Previous { x, gradient, grad_norm: seen.grad_norm, inside });
        }

        if let Some(next) = seen.next {
            self.best = Some(self.best.map_or(seen.loss, |best| best.min(seen.loss)));
            self.note_size(seen.step, next.rate);
            if let (Some(gap), Some(sigma_sq)) = (self.gap(seen.loss), self.constants.sigma_sq) {
                if gap.value < sigma_sq / (self.steps as f64).sqrt() {
                    self.close.get_or_insert(seen.step);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Tallies {
    fn new(known: &Known) -> Tallies {
        let l = known.l.is_none().then_some("L");
        let l0_l1 = known.l0_l1.is_none().then_some("L0, L1");
        let f_star = known.f_star.is_none().then_some("f*");
        Tallies {
            assumption_1: Tally::new("Assumption 1", "‖∇f(x)−∇f(y)‖ ≤ L‖x−y‖", l),
            assumption_2: Tally::new("Assumption 2", "‖∇f(x)−∇f(y)‖ ≤ (L0+L1‖∇f(x)‖)‖x−y‖", l0_l1),
            lemma_1: Tally::new("Lemma 1", "‖g‖²/(2L) ≤ f−f*", l.or(f_star)),
            lemma_2: Tally::new("Lemma 2", "‖g‖²/(2(L0+L1‖g‖)) ≤ f−f*", l0_l1.or(f_star)),
            lemma_6: Tally::new("Lemma 6", "‖∇f(x)−∇f(y)‖ ≤ 2(L0+L1‖∇f(x)‖)‖x−y‖", l0_l1),
            proposition_1: Tally::new("Prop. 1", "min{1/(4L0), 1/(4L1‖g‖)} ≤ (f−f*)/‖g‖²", l0_l1.or(f_star)),
            proposition_2: Tally::new("Prop. 2", "1/(2L) ≤ (f−f*)/‖g‖²", l.or(f_star)),
            proposition_3: Tally::new("Prop. 3", "|f''| ≤ L0/2 + L1/2·|f'|", l0_l1),
        }
    }

    fn list(self, quartic: bool) -> Vec<Tally> {
        let mut list = vec![
            self.assumption_1,
            self.assumption_2,
            self.lemma_1,
            self.lemma_2,
            self.lemma_6,
            self.proposition_1,
            self.proposition_2,
        ];
        if quartic {
            list.push(self.proposition_3);
        }
        list
    }
}
