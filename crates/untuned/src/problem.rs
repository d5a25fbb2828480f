//! What a problem is: a value, a gradient, a start, and what is known of it. [`Function`] makes one of a closure.

use crate::vector;

/// A function to minimise.
pub trait Problem: Sync {
    /// The number of variables.
    fn dimension(&self) -> usize;

    /// `x_0`.
    fn start(&self) -> Vec<f64>;

    /// `f(x)`, and its gradient (a subgradient where `f` has a kink) written over all of `gradient`.
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64;

    /// What is known of the function on the way from [`Problem::start`].
    fn known(&self) -> &Known;

    /// `f(x)`.
    fn value(&self, x: &[f64]) -> f64 {
        self.value_and_gradient(x, &mut vec![0.0; self.dimension()])
    }
}

/// What is known of a problem. Nothing is guessed: what is `None` is not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// Whether the function is convex.
    pub convex: bool,
    /// `f*`, exactly or to 1e-12.
    pub f_star: Option<f64>,
    /// A minimiser.
    pub minimizer: Option<Vec<f64>>,
    /// `L`: the gradient's Lipschitz constant (Assumption 1).
    pub l: Option<f64>,
    /// `L` holds for points no farther than this from the minimiser; `None`: everywhere.
    pub l_radius: Option<f64>,
    /// `L0` and `L1` (Assumption 2).
    pub l0_l1: Option<(f64, f64)>,
    /// `G`: no (sub)gradient is longer.
    pub lipschitz: Option<f64>,
    /// `µ`: the constant of strong convexity.
    pub strong_convexity: Option<f64>,
}

impl Known {
    /// The same, with every constant that overflowed or is NaN dropped, and a `µ` that is 0 too: it says nothing.
    pub fn finite(mut self) -> Known {
        let finite = |v: &f64| v.is_finite();
        self.f_star = self.f_star.filter(finite);
        self.minimizer = self.minimizer.filter(|m| m.iter().all(finite));
        self.l = self.l.filter(finite);
        self.l_radius = self.l_radius.filter(|_| self.l.is_some());
        self.l0_l1 = self.l0_l1.filter(|(l0, l1)| l0.is_finite() && l1.is_finite());
        self.lipschitz = self.lipschitz.filter(finite);
        self.strong_convexity = self.strong_convexity.filter(|v| v.is_finite() && *v > 0.0);
        self
    }

    /// `‖x − x*‖`, where a minimiser is known.
    pub fn distance_to_minimizer(&self, x: &[f64]) -> Option<f64> {
        self.minimizer.as_ref().map(|m| vector::distance(x, m))
    }
}

/// A user's own function: a closure that returns the value and writes the gradient.
///
/// ```
/// use untuned::prelude::*;
///
/// let bowl = Function::new(vec![3.0, -2.0], |x, g| {
///     g.copy_from_slice(&[2.0 * x[0], 8.0 * x[1]]);
///     x[0] * x[0] + 4.0 * x[1] * x[1]
/// });
/// let rule = Polyak { f_star: Some(0.0) }.build(&RunInfo::of(&bowl, 200))?;
/// let run = minimize(&bowl, rule, &bowl.start(), 200)?;
/// assert!(run.best.loss < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Function<F> {
    start: Vec<f64>,
    f: F,
    known: Known,
}

impl<F: Fn(&[f64], &mut [f64]) -> f64 + Sync> Function<F> {
    /// Nothing is known of it; [`Function::with`] says more.
    pub fn new(start: Vec<f64>, f: F) -> Function<F> {
        Function { start, f, known: Known::default() }
    }

    /// The same function with what is known of it.
    pub fn with(mut self, known: Known) -> Function<F> {
        self.known = known;
        self
    }
}

impl<F: Fn(&[f64], &mut [f64]) -> f64 + Sync> Problem for Function<F> {
    fn dimension(&self) -> usize {
        self.start.len()
    }
    fn start(&self) -> Vec<f64> {
        self.start.clone()
    }
    fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        (self.f)(x, gradient)
    }
    fn known(&self) -> &Known {
        &self.known
    }
}
