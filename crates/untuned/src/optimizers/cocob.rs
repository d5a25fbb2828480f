use crate::formula::{Change, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, check_square, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps};
use crate::rule::{Needs, Step};
use crate::space::Space;
use crate::spec::SpecError;

parameters! {
    /// COCOB, continuous coin betting: `x ← x_0 + (L + R)·θ/(L·max(G + L, alpha·L))`, in every coordinate by itself.
    ///
    /// `L` is the largest `|g|` so far, at least `eps`; `G` is the sum of all `|g|`, `θ` the sum of all `−g`, and the reward
    /// `R ← max(R − g·(x − x_0), 0)` is what the bets on the sign of the next gradient have won. It has no learning rate: the
    /// schedule's factor multiplies the gradient, as in optax, and is reported as the rate. The decay is a penalty, `λ·x` in the gradient.
    ///
    /// Reference: Orabona & Tommasi, *Training deep networks without learning rates through coin betting*, 2017.
    ///
    /// ```
    /// use untuned::optimizers::Cocob;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let cocob = Cocob { alpha: 4.0, ..Default::default() };
    /// let mut session = Session::new(cocob.build(&RunInfo::new(2))?, DenseF64::new(1))?;
    /// let mut x = vec![8.0];
    /// // L = 2, G = 2, θ = −2, R = 0: 8 − 2·2/(2·8). Then G = 4, θ = −4, R = 2·0.25: 8 − 2.5·4/(2·8).
    /// for wanted in [7.75, 7.375] {
    ///     session.advance(1.0, &mut x, &vec![2.0])?;
    ///     assert_eq!(x[0], wanted);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Cocob: "cocob" {
        /// roughly the number of steps in which it warms up
        alpha: f64 = 100.0, NonNegative;
        /// the smallest L
        eps: f64 = 1e-8, Positive;
    }
    state: (),
    formula: "x_0 + (L + R)·θ/(L·max(G + L, alpha·L)), L = max|g|, G = Σ|g|, θ = −Σg, R = Σ−g·(x − x_0)",
    reference: "Orabona & Tommasi 2017",
}

impl Start for Cocob {
    fn start(&self, _: &RunInfo) -> Result<(), SpecError> {
        check_eps::<Cocob>("eps", self.eps)
    }
}

/// `d = rate·(scale·g + decay·x)`, `L ← max(L, |d|)`, `θ ← θ − d`, `G ← G + |d|`, `R ← max(R − d·(x − x_0), 0)`,
/// `x ← x_0 + (R/L' + 1)·θ/max(G + L', α·L')` with `L' = max(L, eps)`: quotients first, because the products leave the range of floats.
struct Bet;

impl Change<4, 5, 2> for Bet {
    #[inline(always)]
    fn each<N: Number>(
        [scale, rate, alpha, eps]: [N; 4],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, theta, sum, largest, reward]: [N; 5],
        [x0, g]: [N; 2],
    ) -> [N; 5] {
        let d = rate * (scale * g + decay * x);
        let largest = largest.max(d.abs());
        let theta = theta - d;
        let sum = sum + d.abs();
        let reward = (reward - d * (x - x0)).max(N::of(0.0));
        let scale = largest.max(eps);
        let bet = (reward / scale + N::of(1.0)) * (theta / (sum + scale).max(alpha * scale));
        [x0 + bet, theta, sum, largest, reward]
    }
}

/// State: `x_0` and four vectors. A step is one pass: it reads 7 vectors and writes 5.
impl Optimizer for Running<Cocob> {
    fn name(&self) -> &str {
        Cocob::INFO.name
    }

    fn needs(&self) -> Needs {
        Needs { x0: true, ..Needs::NOTHING }
    }

    fn state(&self) -> Vec<StateVector> {
        ["theta", "sum", "largest", "reward"].map(StateVector::zeros).to_vec()
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        vectors: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let x0 = vectors.x0();
        let Vectors { x, gradient, state, .. } = vectors;
        let [theta, sum, largest, reward] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let scale = options.gradient_scale(seen.grad_norm);
        let step = Step::new(options.rate, &seen)?;
        check_square::<S>(&seen, scale)?;
        check_held::<S>(&seen, &[step.size, step.size * scale * seen.grad_norm])?;
        let scalars = [scale, step.size, self.alpha, self.eps];
        let change = [x, theta, sum, largest, reward];
        context.change(Bet, scalars, options.weight_decay, change, [x0, gradient]);
        Ok(step)
    }
}
