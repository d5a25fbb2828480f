use crate::formula::{Change, Number, TensorInfo};
use crate::optimizer::{
    Descend, Optimizer, SessionError, StateVector, StepContext, Vectors, check_held, named,
};
use crate::parameters::{Parameters as _, RunInfo, Running, Start, refuse_others, unfit};
use crate::rule::{Refusal, Step};
use crate::space::Space;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

parameters! {
    /// Gradient descent with momentum: `b ← momentum·b + (1 − dampening)·g`, `x ← x − η·b`.
    ///
    /// At the first step `b = g`, whatever the dampening. With `nesterov=yes` the step is `x ← x − η·(g + momentum·b)`. `η` is `lr`
    /// times the schedule's factor. The decay is a penalty, `λ·x` in the gradient, as in `torch.optim.SGD`; with `decouple=yes` it is
    /// decoupled, `x·(1 − η·λ)` (SGDW).
    ///
    /// The momentum is 0.9 by default: that of `torch.optim.SGD` is 0, which is `gd`.
    ///
    /// References: Polyak 1964; Sutskever, Martens, Dahl & Hinton, *On the importance of initialization and momentum*, 2013.
    ///
    /// ```
    /// use untuned::optimizers::SgdMomentum;
    /// use untuned::{DenseF64, RunInfo, Session};
    ///
    /// let sgd = SgdMomentum { lr: 0.5, momentum: 0.5, ..Default::default() };
    /// let mut session = Session::new(sgd.build(&RunInfo::new(3))?, DenseF64::new(1))?;
    /// let mut x = vec![8.0];
    /// for (gradient, b) in [(4.0, 4.0), (2.0, 4.0), (0.0, 2.0)] {
    ///     let before = x[0];
    ///     session.advance(1.0, &mut x, &vec![gradient])?;
    ///     assert_eq!(x[0], before - 0.5 * b);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct SgdMomentum: "sgd-momentum" {
        /// the learning rate
        lr: f64 = 0.001, Positive;
        /// the weight of the old b
        momentum: f64 = 0.9, Fraction;
        /// how much of g does not go into b
        dampening: f64 = 0.0, Fraction;
        /// a step of g + momentum·b in place of b
        nesterov: bool = false;
        /// decoupled weight decay (SGDW); no adds it to g (torch)
        decouple: bool = false;
    }
    state: SgdMomentumState,
    formula: "x − lr·b, b = momentum·b + (1 − dampening)·g",
    reference: "Polyak 1964; Sutskever, Martens, Dahl & Hinton 2013",
}

/// What is known of the steps before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SgdMomentumState {
    /// Whether there was a step.
    begun: bool,
}

impl Start for SgdMomentum {
    fn start(&self, _: &RunInfo) -> Result<SgdMomentumState, SpecError> {
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(unfit::<SgdMomentum>("nesterov=yes needs a momentum above 0 and no dampening"));
        }
        if self.momentum == 0.0 {
            refuse_others(self, &["dampening"], "a momentum above 0")?;
        }
        Ok(SgdMomentumState { begun: false })
    }
}

/// `d = scale·g + penalty·decay·x`, `b ← old·b + new·d`, `x ← x·(1 − apart·decay) − size·(ahead·d + along·b)`.
struct Momentum;

impl Change<8, 2, 1> for Momentum {
    #[inline(always)]
    fn each<N: Number>(
        [scale, penalty, apart, old, new, size, ahead, along]: [N; 8],
        TensorInfo { decay, .. }: TensorInfo<N>,
        [x, b]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let d = scale * g + penalty * decay * x;
        let b = old * b + new * d;
        [x * (N::of(1.0) - apart * decay) - size * (ahead * d + along * b), b]
    }
}

/// State: one vector, or none without momentum. A step is one pass: it reads 3 vectors and writes 2, or reads 2 and writes one.
impl Optimizer for Running<SgdMomentum> {
    fn name(&self) -> &str {
        SgdMomentum::INFO.name
    }

    fn state(&self) -> Vec<StateVector> {
        if self.momentum == 0.0 { Vec::new() } else { vec![StateVector::zeros("momentum")] }
    }

    fn step<S: Space>(
        &mut self,
        context: &mut StepContext<'_, S>,
        Vectors { x, gradient, state, .. }: Vectors<'_, S>,
    ) -> Result<Step, SessionError<S::Error>> {
        let seen = context.observe()?;
        let options = context.options;
        let scale = options.gradient_scale(seen.grad_norm);
        let step = Step::new(self.lr * options.rate, &seen)?;
        let rate = step.size;
        check_held::<S>(&seen, &[rate])?;
        // The largest that b and the step can become of gradients of this length.
        let longest = 2.0 * scale * seen.grad_norm / (1.0 - self.momentum);
        if longest.max(longest * rate) > S::LARGEST {
            return Err(Refusal::TooLarge { step: seen.step, grad_norm: seen.grad_norm }.into());
        }
        if self.momentum == 0.0 {
            // Without momentum both decays are one.
            context.change(Descend, [rate * scale], rate * options.weight_decay, [x], [gradient]);
        } else {
            let [b] = named(state);
            let new = if self.state.begun { 1.0 - self.dampening } else { 1.0 };
            let (penalty, apart) = if self.decouple { (0.0, rate) } else { (1.0, 0.0) };
            let (ahead, along) = if self.nesterov { (1.0, self.momentum) } else { (0.0, 1.0) };
            let scalars = [scale, penalty, apart, self.momentum, new, rate, ahead, along];
            context.change(Momentum, scalars, options.weight_decay, [x, b], [gradient]);
        }
        self.state.begun = true;
        Ok(step)
    }
}
