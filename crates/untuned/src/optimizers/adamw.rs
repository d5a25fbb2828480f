use super::shared::{BiasCorrection, moments};
use crate::formula::{Change, Number, TensorInfo};
use crate::optimizer::{
    Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, check_square, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, check_eps};
use crate::rule::Step;
use crate::space::Space;
use crate::spec::SpecError;

parameters! {
    /// AdamW: `x ← x·(1 − η·decay) − η·m̂/(√v̂ + eps)`.
    ///
    /// `m` and `v` are running means of the gradient and of its square. They start at 0; `m̂ = m/(1 − β1ᵗ)` and `v̂ = v/(1 − β2ᵗ)`
    /// correct for that, `t` counting from 1. `η` is `lr` times the schedule's factor. Weight decay is decoupled, and `eps` stands
    /// outside of the root, as in `torch.optim.AdamW`. Refused steps do not count in `t`.
    ///
    /// References: Kingma & Ba, *Adam*, 2015; Loshchilov & Hutter, *Decoupled weight decay regularization*, 2019.
    ///
    /// ```
    /// use untuned::optimizers::AdamW;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let adamw = AdamW::default().build(&RunInfo::new(1))?;
    /// let mut session = Session::new(adamw, DenseF64::new(2).decaying(0..1))?;
    /// session.options.weight_decay = 0.1;
    /// let mut x = vec![1.0, 1.0];
    /// let report = session.advance(7.0, &mut x, &vec![3.0, -4.0])?;
    /// assert_eq!(report.rate, 0.001);
    /// // The first step has length `lr` in every coordinate, whatever the gradient's.
    /// assert!((x[0] - (1.0 - 0.0001 - 0.001)).abs() < 1e-11 && (x[1] - (1.0 + 0.001)).abs() < 1e-11);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct AdamW: "adamw" {
        /// the learning rate
        lr: f64 = 0.001, Positive;
        /// β1, the weight of the old mean of g
        beta1: f64 = 0.9, Fraction;
        /// β2, the weight of the old mean of g²
        beta2: f64 = 0.999, Fraction;
        /// added to the root of the mean of g²
        eps: f64 = 1e-8, Positive;
    }
    state: BiasCorrection,
    formula: "x·(1 − lr·decay) − lr·m̂/(√v̂ + eps), m̂ and v̂ the means of g and g² with weights beta1 and beta2",
    reference: "Loshchilov & Hutter 2019; Kingma & Ba 2015",
    weight_decay: 0.01,
}

impl Start for AdamW {
    fn start(&self, _: &RunInfo) -> Result<BiasCorrection, SpecError> {
        check_eps::<AdamW>("eps", self.eps)?;
        Ok(BiasCorrection::START)
    }
}

/// `m ← β1·m + (1 − β1)·g`, `v ← β2·v + (1 − β2)·g²`, `x ← x·(1 − decay) − size·m/(root·√v + eps)`, with `g` the scaled gradient.
struct Adam;

impl Change<8, 3, 1> for Adam {
    #[inline(always)]
    fn each<N: Number>(
        [scale, old_m, new_m, old_v, new_v, size, root, eps]: [N; 8],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, m, v]: [N; 3],
        [g]: [N; 1],
    ) -> [N; 3] {
        let [m, v] = moments([old_m, new_m, old_v, new_v], [m, v], scale * g);
        [x * (N::of(1.0) - decay) - size * m / (root * v.sqrt() + eps), m, v]
    }
}

/// State: two vectors. A step is one pass: it reads 4 vectors and writes 3.
impl Optimizer for Running<AdamW> {
    fn name(&self) -> &str {
        AdamW::INFO.name
    }

    fn state(&self) -> Vec<StateVector> {
        vec![StateVector::zeros("m"), StateVector::zeros("v")]
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let [m, v] = named(state);
        let seen = context.observe()?;
        let options = context.options;
        let scale = options.gradient_scale(seen.grad_norm);
        check_square::<S>(&seen, scale)?;
        let step = Step::new(self.lr * options.rate, &seen)?;
        let correction = self.state.next(self.beta1, self.beta2);
        let (size, root) = (step.size / correction.mean(), correction.root().recip());
        check_held::<S>(&seen, &[size])?;
        let scalars =
            [scale, self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2, size, root, self.eps];
        context.change(Adam, scalars, step.size * options.weight_decay, [x, m, v], [gradient]);
        self.state = correction;
        Ok(step)
    }

    fn default_weight_decay(&self) -> f64 {
        AdamW::INFO.weight_decay
    }
}
