use crate::formula::{Change, Number, TensorInfo};
use crate::optimizer::{Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, named};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps};
use crate::rule::{Refusal, Step};
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// Adagrad: `x ← x − η_t·g/(√s + eps)`, where `s` is `initial_accumulator` and the sum of all `g²`.
    ///
    /// `η_t = lr/(1 + t·lr_decay)`, `t` from 0, times the schedule's factor. The decay is a penalty, `λ·x` in the gradient, as in
    /// `torch.optim.Adagrad`. Refused steps do not count in `t`. `initial_accumulator` is added when the sum is used: the vector itself
    /// starts with 0.
    ///
    /// Published disagreement, as `eps_inside`: torch adds `eps` to the root (and begins with 0 and 1e-10), optax to the sum under it
    /// (and begins with 0.1 and 1e-7).
    ///
    /// Reference: Duchi, Hazan & Singer, *Adaptive subgradient methods*, 2011.
    ///
    /// ```
    /// use untuned::optimizers::Adagrad;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let adagrad = Adagrad { lr: 6.0, lr_decay: 1.0, initial_accumulator: 16.0, eps: 1.0, ..Default::default() };
    /// let mut session = Session::new(adagrad.build(&RunInfo::new(2))?, DenseF64::new(1))?;
    /// let mut x = vec![8.0];
    /// // 8 − 6·3/(√(16 + 9) + 1) and, at half the rate, 5 − 3·12/(√(25 + 144) + 1).
    /// for (gradient, wanted) in [(3.0, 5.0), (12.0, 5.0 - 36.0 / 14.0)] {
    ///     session.advance(1.0, &mut x, &vec![gradient])?;
    ///     assert_eq!(x[0], wanted);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Adagrad: "adagrad" {
        /// the learning rate
        lr: f64 = 0.01, Positive;
        /// how fast the rate falls: by 1 + t·lr_decay
        lr_decay: f64 = 0.0, NonNegative;
        /// what the sum of g² begins with
        initial_accumulator: f64 = 0.0, NonNegative;
        /// keeps the denominator from 0
        eps: f64 = 1e-10, Positive;
        /// add eps under the root (optax); no adds it to the root (torch)
        eps_inside: bool = false;
    }
    state: AdagradState,
    formula: "x − lr/(1 + t·lr_decay)·g/(√s + eps), s = initial_accumulator + Σg²",
    reference: "Duchi, Hazan & Singer 2011",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdagradState {
    /// `t`.
    steps: u64,
    /// The sum of all `‖g‖²`: an upper bound of every coordinate's sum.
    squares: f64,
}

impl Start for Adagrad {
    fn start(&self, _: &RunInfo) -> Result<AdagradState, SpecError> {
        check_eps::<Adagrad>("eps", self.eps)?;
        Ok(AdagradState { steps: 0, squares: 0.0 })
    }
}

/// `d = scale·g + decay·x`, `s ← s + d²`, `x ← x − size·d/(√(s + inside) + outside)`.
struct SumOfSquares;

impl Change<4, 2, 1> for SumOfSquares {
    #[inline(always)]
    fn each<N: Number>(
        [scale, size, inside, outside]: [N; 4],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, s]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let d = scale * g + decay * x;
        let s = s + d * d;
        [x - size * d / ((s + inside).sqrt() + outside), s]
    }
}

/// State: one vector. A step is one pass: it reads 3 vectors and writes 2.
impl Optimizer for Running<Adagrad> {
    fn name(&self) -> &str {
        Adagrad::INFO.name
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("sum")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [sum] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let AdagradState { steps, squares } = self.state;
        let scale = options.gradient_scale(seen.grad_norm);
        let norm = scale * seen.grad_norm;
        let squares = squares + norm * norm;
        if squares > S::LARGEST {
            return Err(Refusal::TooLarge { step: seen.step, grad_norm: seen.grad_norm }.into());
        }
        let step = Step::new(self.lr * options.rate / (1.0 + steps as f64 * self.lr_decay), &seen)?;
        check_held::<S>(&seen, &[step.size])?;
        let (inside, outside) = if self.eps_inside { (self.eps, 0.0) } else { (0.0, self.eps) };
        let scalars = [scale, step.size, self.initial_accumulator + inside, outside];
        context.change(SumOfSquares, scalars, options.weight_decay, [x, sum], [gradient]);
        self.state = AdagradState { steps: steps + 1, squares };
        Ok(step)
    }
}
