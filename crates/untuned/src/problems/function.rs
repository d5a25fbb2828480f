use crate::problem::{Known, Problem};

/// A user's own function: a closure that returns the value and writes the gradient.
///
/// ```
/// use untuned::{Problem, RuleSpec, Setting, minimize, problems::Function};
///
/// let bowl = Function::new(vec![3.0, -2.0], |x, g| {
///     g.copy_from_slice(&[2.0 * x[0], 8.0 * x[1]]);
///     x[0] * x[0] + 4.0 * x[1] * x[1]
/// });
/// let mut rule = "polyak:f_star=0".parse::<RuleSpec>()?.build(&Setting::of(&bowl, 200))?;
/// let run = minimize(&bowl, &mut rule, &bowl.start(), 200)?;
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
