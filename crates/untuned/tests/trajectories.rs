//! Early trajectories of every rule on the paper's quartic against a computation with 256 bits (77 digits).
//!
//! The rules are written here a second time, straight from their formulas and over the whole history of a run: no
//! running sums, no state, nothing of the library.
//!
//! How near the two must be is not guessed. The exact run is repeated with a relative error of 2⁻¹⁰⁰ of changing sign
//! in every loss, gradient, step size and iterate; how far these runs part is how much the method magnifies an error.
//! Double precision makes errors of a few times 2⁻⁵³ in the same places, so its distance from the exact run may be
//! that magnification times `ROUNDINGS`·2⁻⁵³. Where a method is chaotic (Inexact Polyak near the optimum) the allowance
//! grows by itself, and each case says how many of its steps must be compared to nine digits, so that no
//! comparison is empty.

#![allow(clippy::unwrap_used)]

use dashu_float::{FBig, ops::Abs, round::mode::HalfEven};
use untuned::{MethodSpec, Point, RunInfo, minimize};
use untuned_theory::problems::Quartic;

type Big = FBig<HalfEven, 2>;

const BITS: usize = 256;
const STEPS: usize = 25;
const X0: f64 = 5.0;
const F_STAR: f64 = 1.0;
/// The longest chain, `f`, rounds about eight times; twice that for constants that are rounded once for a whole run.
const ROUNDINGS: f64 = 16.0;

fn big(v: f64) -> Big {
    Big::try_from(v).unwrap().with_precision(BITS).value()
}

fn double(v: &Big) -> f64 {
    v.to_f64().value()
}

fn min(a: Big, b: Big) -> Big {
    if b < a { b } else { a }
}

/// A rule as this file knows it.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Gd { lr: f64 },
    ClippedGd { lr: f64, threshold: f64 },
    Polyak,
    PolyakBound { l: f64 },
    InexactPolyak { l: f64, horizon: u64 },
    Decsps { c0: f64, gamma: f64, l: f64, shift: f64 },
    AdaspsScaled { c_scale: f64, l: f64 },
    AdaspsConstant { c_p: f64, l: f64 },
    Dog { eps_rel: f64, eps: f64, each: bool },
    AnytimePolyak { l: f64 },
    Continuous { l: f64 },
    Level { l: f64 },
    Epochs { l: f64, length: usize, restart: Point },
}

/// One iterate of an exact run.
#[derive(Debug, Clone)]
struct Seen {
    x: Big,
    f: Big,
    g: Big,
    size: Big,
    /// Which iterate the step started from.
    from: usize,
    /// `f̃` of Adaptive and Level Polyak after this step.
    bound: Big,
    /// How far Adaptive Polyak's `f̃` was below the value that it was set from.
    aim: Big,
}

/// Signs that look random, the same every time.
struct Wobble {
    state: u64,
    size: Big,
}

impl Wobble {
    fn new(seed: u64) -> Wobble {
        let size = if seed == 0 { Big::ZERO } else { big(2f64.powi(-100)) };
        Wobble { state: seed, size }
    }

    fn on(&mut self, v: Big) -> Big {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let error = &self.size * &v;
        if self.state >> 63 == 0 { v + error } else { v - error }
    }
}

/// Adaptive Polyak's `f̃` and its aim at this loss: one that reaches `f̃` sends it sixteen times as far down.
fn disproved(now: &Seen, before: &Seen, l: f64) -> (Big, Big) {
    if now.f > before.bound {
        return (before.bound.clone(), before.aim.clone());
    }
    let aim = &before.aim * big(16.0);
    let bound = &now.f - &aim;
    (if bound < big(l) { big(l) } else { bound }, aim)
}

/// The step size at the last entry of `past`, the index of the entry that the step starts from, `f̃` and its aim. A numerator
/// below 0 is 0.
fn decide(rule: Rule, past: &[Seen]) -> (Big, usize, Big, Big) {
    let t = past.len() - 1;
    let now = &past[t];
    let squared = |s: &Seen| &s.g * &s.g;
    let before = past[..t].last();
    let none = Big::ZERO;
    let best_of = |range: &[Seen]| range.iter().map(|s| s.f.clone()).reduce(min).unwrap();
    let size = match rule {
        Rule::Gd { lr } => big(lr),
        Rule::ClippedGd { lr, threshold } if threshold.is_infinite() => big(lr),
        Rule::ClippedGd { lr, threshold } => big(lr) * min(big(1.0), big(threshold) / now.g.clone().abs()),
        Rule::Polyak => (&now.f - big(F_STAR)) / squared(now),
        Rule::PolyakBound { l } => (&now.f - big(l)) / squared(now),
        Rule::InexactPolyak { l, horizon } => (&now.f - big(l)) / (big(horizon as f64).sqrt() * squared(now)),
        Rule::AnytimePolyak { l } => (&now.f - big(l)) / (big((t + 1) as f64).sqrt() * squared(now)),
        Rule::Decsps { c0, gamma, l, shift } => {
            let c = |s: usize| big(c0) * big((s + 1) as f64).sqrt();
            let shifted = &now.g + big(shift);
            let polyak = (&now.f - big(l)) / (&shifted * &shifted);
            let limit = before.map_or(big(c0) * big(gamma), |b| c(t - 1) * &b.size);
            min(polyak, limit) / c(t)
        }
        Rule::AdaspsScaled { l, .. } | Rule::AdaspsConstant { l, .. } => {
            let c_p = match rule {
                Rule::AdaspsConstant { c_p, .. } => big(c_p),
                Rule::AdaspsScaled { c_scale, .. } => big(c_scale) / (&past[0].f - big(l)).sqrt(),
                _ => unreachable!(),
            };
            let sum = past.iter().fold(Big::ZERO, |sum, s| sum + (&s.f - big(l)));
            let candidate = (&now.f - big(l)) / (c_p * squared(now) * sum.sqrt());
            before.map_or(candidate.clone(), |b| min(candidate, b.size.clone()))
        }
        Rule::Dog { eps_rel, eps, each } => {
            let origin = &past[0].x;
            let first = big(eps_rel) * (big(1.0) + origin.clone().abs());
            let r = past.iter().fold(first, |r, s| {
                let far = (&s.x - origin).abs();
                if far > r { far } else { r }
            });
            let count = if each { t + 1 } else { 1 };
            let sum = past.iter().fold(big(eps) * big(count as f64), |sum, s| sum + squared(s));
            r / sum.sqrt()
        }
        // A step that fails to improve: back to the best iterate, and f̃ ← (best + f̃)/2.
        Rule::Continuous { l } => {
            let Some(b) = before else {
                return ((&now.f - big(l)) / squared(now), 0, big(l), &now.f - big(l));
            };
            let best = best_of(&past[..t]);
            let (trusted, aim) = disproved(now, b, l);
            if now.f < best {
                return ((&now.f - &trusted) / squared(now), t, trusted, aim);
            }
            let bound = (&best + &trusted) / big(2.0);
            let at = past.iter().rposition(|s| s.f == best).unwrap();
            let aim = &best - &bound;
            return ((&best - &bound) / squared(&past[at]), at, bound, aim);
        }
        // Towards f̃ = max(l, best − δ). `from` is the best value when f̃ was set; it follows from the history.
        Rule::Level { l } => {
            let (mut best, mut from, mut target) = (past[0].f.clone(), past[0].f.clone(), big(l));
            let mut failures = 0;
            for s in &past[1..] {
                let delta = &from - &target;
                let aimed =
                    |best: &Big, delta: Big| if best - &delta < big(l) { big(l) } else { best - delta };
                if s.f >= best {
                    failures += 1;
                    if failures == 2 {
                        target = aimed(&best, (&best - &target) / big(2.0));
                        (from, failures) = (best.clone(), 0);
                    }
                } else {
                    failures = 0;
                    best = s.f.clone();
                    if best <= &from - &delta / big(2.0) {
                        target = aimed(&best, delta * big(2.0));
                        from = best.clone();
                    }
                }
            }
            return ((&now.f - &target) / squared(now), t, target, none);
        }
        // Half steps; after `length` of them f̃ ← (best of the epoch + f̃)/2 and back to x_0 or to the best iterate.
        Rule::Epochs { l, length, restart } => {
            let (bound, aim) = before.map_or((big(l), &now.f - big(l)), |b| disproved(now, b, l));
            if t == 0 || t % length != 0 {
                return ((&now.f - &bound) / (big(2.0) * squared(now)), t, bound, aim);
            }
            // An epoch is the point that its first step started from and the `length` points that followed.
            let first = t - length;
            let best = min(past[past[first].from].f.clone(), best_of(&past[first + 1..]));
            let bound = (&best + bound) / big(2.0);
            let aim = best - &bound;
            let at = match restart {
                Point::Best => {
                    let best = best_of(past);
                    past.iter().rposition(|s| s.f == best).unwrap()
                }
                _ => 0,
            };
            return ((&past[at].f - &bound) / (big(2.0) * squared(&past[at])), at, bound, aim);
        }
    };
    (size, t, none.clone(), none)
}

/// `STEPS` steps on the quartic; with a seed other than 0, with small errors everywhere.
fn run(rule: Rule, l1: f64, seed: u64) -> Vec<Seen> {
    let mut wobble = Wobble::new(seed);
    let mut past: Vec<Seen> = Vec::new();
    let mut x = big(X0);
    for _ in 0..STEPS {
        let square = &x * &x;
        let f = big(l1 * l1) / big(72.0) * &square * &square + &square / big(4.0) + big(F_STAR);
        let g = big(l1 * l1) / big(18.0) * &square * &x + &x / big(2.0);
        let (f, g) = (wobble.on(f), wobble.on(g));
        past.push(Seen { x, f, g, size: Big::ZERO, from: 0, bound: Big::ZERO, aim: Big::ZERO });
        let (size, from, bound, aim) = decide(rule, &past);
        let size = wobble.on(if size < Big::ZERO { Big::ZERO } else { size });
        x = wobble.on(&past[from].x - &size * &past[from].g);
        let last = past.last_mut().unwrap();
        (last.size, last.from, last.bound, last.aim) = (size, from, bound, aim);
    }
    past
}

/// A number of an iterate: the point, the loss or the step size.
type Part = fn(&Seen) -> &Big;

/// The largest distance of any of the runs with errors from the exact one, per unit of error.
fn magnification(exact: &[Seen], wobbled: &[Vec<Seen>], t: usize, part: Part) -> f64 {
    let distance = |run: &Vec<Seen>| double(&((part(&run[t]) - part(&exact[t])).abs() * big(2f64.powi(100))));
    wobbled.iter().map(distance).fold(0.0, f64::max)
}

/// Compares the library's run with the exact one; returns at how many steps, from the first on, `x_t` was compared to
/// nine digits.
fn compare(spec: &str, rule: Rule, l1: f64, horizon: u64) -> usize {
    let problem = Quartic::new(1.0, l1, X0, F_STAR);
    let ours = spec.parse::<MethodSpec>().unwrap().build(&RunInfo::of(&problem, horizon)).unwrap();
    let rows = minimize(&problem, ours, &[X0], STEPS as u64).unwrap().trace;
    let exact = run(rule, l1, 0);
    let wobbled: Vec<_> = (1..=6).map(|seed| run(rule, l1, seed)).collect();
    // Level Polyak sets its target anew at up to all of the steps, and each time from the one before.
    let roundings = if matches!(rule, Rule::Level { .. }) { 4.0 * ROUNDINGS } else { ROUNDINGS };
    let mut tight = 0;
    for (t, (row, exact_t)) in rows.iter().zip(&exact).enumerate() {
        let parts: [(&str, f64, Part); 3] = [
            ("x", row.x.as_ref().unwrap()[0], |s| &s.x),
            ("loss", row.loss, |s| &s.f),
            ("size", row.step_size.unwrap(), |s| &s.size),
        ];
        // Clipped GD can land on 0 exactly where the exact run lands within a rounding error of it.
        let landed = row.grad_norm == 0.0;
        for (what, got, part) in parts.into_iter().take(if landed { 2 } else { 3 }) {
            let want = double(part(exact_t));
            let unit = magnification(&exact, &wobbled, t, part).max(want.abs());
            let allowed = roundings * f64::EPSILON / 2.0 * unit;
            // Where even the first digit is magnified away there is nothing left to compare.
            if allowed < 0.1 * want.abs() || want == 0.0 {
                assert!(
                    (got - want).abs() <= allowed,
                    "{spec}, L1 = {l1}, T = {horizon}, t = {t}: {what} is {got:e}, exactly {want:e}, allowed ± {allowed:e}"
                );
            }
            if what == "x" && tight == t && allowed <= 1e-9 * want.abs() {
                tight += 1;
            }
        }
        if landed {
            break;
        }
    }
    tight
}

/// All `L1` of the paper; `tight` are the steps that must be compared to nine digits, for `L1` = 1, 10, 100, 1000.
fn all(tight: [usize; 4], spec: impl Fn(f64) -> (String, Rule), horizons: &[u64]) {
    for (l1, wanted) in [1.0, 10.0, 100.0, 1000.0].into_iter().zip(tight) {
        let (text, rule) = spec(l1);
        for &horizon in horizons {
            let got = compare(&text, rule, l1, horizon);
            assert!(
                got >= wanted,
                "{text}, L1 = {l1}, T = {horizon}: nine digits for {got} steps, not {wanted}"
            );
        }
    }
}

#[test]
fn gd() {
    // Half of 1/L on |x| ≤ 5, where L = L1²·25/6 + 1/2.
    let lr = |l1: f64| 0.5 / (l1 * l1 * 25.0 / 6.0 + 0.5);
    all([25; 4], |l1| (format!("gd:lr={}", lr(l1)), Rule::Gd { lr: lr(l1) }), &[100]);
}

#[test]
fn clipped_gd() {
    for (lr, threshold) in [(0.1, 10.0), (0.1, 7.0), (0.25, 1.0)] {
        let rule = Rule::ClippedGd { lr, threshold };
        all([5; 4], |_| (format!("clipped-gd:lr={lr},threshold={threshold}"), rule), &[100]);
    }
    let rule = Rule::ClippedGd { lr: 1e-7, threshold: f64::INFINITY };
    all([25; 4], |_| ("clipped-gd:lr=1e-7,threshold=inf".to_string(), rule), &[100]);
}

#[test]
fn polyak() {
    // f − f* cancels as x → 0; the sooner, the smaller L1.
    all([12, 17, 21, 25], |_| ("polyak".to_string(), Rule::Polyak), &[100]);
}

#[test]
fn polyak_bound() {
    for l in [0.0, 0.75, -2.0] {
        all([14, 25, 25, 25], |_| (format!("polyak-bound:lower_bound={l}"), Rule::PolyakBound { l }), &[100]);
    }
}

#[test]
fn inexact_polyak() {
    for l in [0.0, 0.75, -2.0] {
        for horizon in [100, 10_000] {
            let rule = Rule::InexactPolyak { l, horizon };
            all([25; 4], |_| (format!("inexact-polyak:lower_bound={l}"), rule), &[horizon]);
        }
    }
}

#[test]
fn decsps() {
    for (c0, gamma, l, shift) in
        [(1.0, 10.0, 0.0, 0.0), (5.0, 0.125, 0.5, 0.0), (0.5, 10.0, -1.0, 0.0), (1.0, 10.0, 0.0, 1e-4)]
    {
        let rule = Rule::Decsps { c0, gamma, l, shift };
        let text = format!("decsps:c0={c0},gamma={gamma},lower_bound={l},grad_shift={shift}");
        all([25; 4], |_| (text.clone(), rule), &[100]);
    }
}

#[test]
fn adasps() {
    for (c, l) in [(1.0, 0.0), (0.3, 0.5), (4.0, -1.0)] {
        let scaled = Rule::AdaspsScaled { c_scale: c, l };
        all([25; 4], |_| (format!("adasps:c_scale={c},lower_bound={l}"), scaled), &[100]);
        let constant = Rule::AdaspsConstant { c_p: c, l };
        all([25; 4], |_| (format!("adasps:c_p={c},lower_bound={l}"), constant), &[100]);
    }
}

#[test]
fn dog() {
    for (eps_rel, eps, each) in
        [(1e-6, 1e-8, false), (1e-2, 0.0, false), (1e-3, 4.0, true), (1e-3, 4.0, false)]
    {
        let word = if each { "yes" } else { "no" };
        let text = format!("dog:eps_rel={eps_rel},eps={eps},eps_each={word}");
        all([25; 4], |_| (text.clone(), Rule::Dog { eps_rel, eps, each }), &[100]);
    }
}

#[test]
fn anytime_polyak() {
    for l in [0.0, 0.75, -2.0] {
        all(
            [20, 25, 25, 25],
            |_| (format!("anytime-polyak:lower_bound={l}"), Rule::AnytimePolyak { l }),
            &[100],
        );
    }
}

#[test]
fn adaptive_polyak_continuous() {
    for l in [0.0, 0.75, -2.0] {
        all(
            [22, 25, 25, 25],
            |_| (format!("adaptive-polyak:lower_bound={l}"), Rule::Continuous { l }),
            &[100, 10_000],
        );
    }
}

#[test]
fn level_polyak() {
    for l in [0.0, 0.75, -2.0] {
        all([16, 25, 25, 25], |_| (format!("level-polyak:lower_bound={l}"), Rule::Level { l }), &[100]);
    }
}

#[test]
fn adaptive_polyak_epochs() {
    for (word, restart) in [("origin", Point::Origin), ("best", Point::Best)] {
        for l in [0.0, -2.0] {
            // 25 steps in 5 epochs of 5.
            let rule = Rule::Epochs { l, length: 5, restart };
            let text = format!("adaptive-polyak:lower_bound={l},variant=epochs,epochs=5,restart={word}");
            all([25; 4], |_| (text.clone(), rule), &[25]);
        }
    }
}
