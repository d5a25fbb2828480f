use super::scalar::Descend;
use super::{At, Change, Here, Keep, Named, Number, Optimizer, Space};
use crate::rule::{Observation, Refusal, Step};
use crate::rules::Setting;
use crate::spec::{Entry, Fallback, Kind, Parameter, Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Gradient descent with momentum: `b ← momentum·b + (1 − dampening)·g`, `x ← x − η·b`.
///
/// At the first step `b = g`, whatever the dampening. With `nesterov=yes` the step is `x ← x − η·(g + momentum·b)`. `η` is `lr` times
/// what warm-up and schedule make of it. The decay is a penalty, `λ·x` in the gradient, as in `torch.optim.SGD`; with `decouple=yes`
/// it is `x·(1 − η·λ)` apart from the momentum (SGDW).
///
/// The momentum is 0.9 by default: that of `torch.optim.SGD` is 0, which is `gd`.
///
/// References: Polyak 1964; Sutskever, Martens, Dahl & Hinton, *On the importance of initialization and momentum*, 2013.
///
/// ```
/// # use untuned::{Observation, OptimizerSpec, Setting};
/// use untuned::optimizers::{Around, Keep, Optimizer, Plain, At};
///
/// let mut sgd = "sgd-momentum:lr=0.5,momentum=0.5".parse::<OptimizerSpec>()?.build(&Setting::new(9))?;
/// let (space, mut x) = (Plain::new(1), vec![8.0]);
/// let mut kept = Keep::all(&space, &sgd.keeps(), &x)?;
/// for (t, (gradient, b)) in [(4.0, 4.0), (2.0, 4.0), (0.0, 2.0)].into_iter().enumerate() {
///     let (before, seen) = (x[0], Observation::new(t as u64, 1.0, gradient));
///     let at = At { space: &space, around: &Around::default(), x: &mut x, gradient: &vec![gradient], kept: &mut kept };
///     sgd.step(&seen, &[], at)?;
///     assert_eq!(x[0], before - 0.5 * b);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SgdMomentum {
    /// The learning rate.
    pub lr: f64,
    /// How much of `b` is kept in a step.
    pub momentum: f64,
    /// How much of a gradient does not go into `b`.
    pub dampening: f64,
    /// Whether the step looks ahead.
    pub nesterov: bool,
    /// Whether the decay is apart from the gradient.
    pub decouple: bool,
    /// Whether there was a step.
    begun: bool,
}

impl Named for SgdMomentum {
    const ENTRY: Entry = Entry {
        name: "sgd-momentum",
        aliases: &[],
        formula: "x − lr·b, b = momentum·b + (1 − dampening)·g",
        parameters: &[
            Parameter {
                name: "lr",
                kind: Kind::Positive,
                default: Fallback::Number(0.001),
                meaning: "the learning rate",
            },
            Parameter {
                name: "momentum",
                kind: Kind::Fraction,
                default: Fallback::Number(0.9),
                meaning: "how much of b is kept in a step",
            },
            Parameter {
                name: "dampening",
                kind: Kind::Fraction,
                default: Fallback::Number(0.0),
                meaning: "how much of g does not go into b",
            },
            Parameter {
                name: "nesterov",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "a step of g + momentum·b in place of b",
            },
            Parameter {
                name: "decouple",
                kind: Kind::Word(&["no", "yes"]),
                default: Fallback::Word("no"),
                meaning: "weight decay in the gradient (torch's SGD) or apart from it (SGDW)",
            },
        ],
        reference: "Polyak 1964; Sutskever, Martens, Dahl & Hinton 2013",
    };

    fn from_spec(spec: &Spec, _: &Setting) -> Result<SgdMomentum, SpecError> {
        let (lr, momentum, dampening) =
            (spec.number("lr"), spec.number("momentum"), spec.number("dampening"));
        let (nesterov, decouple) = (spec.word("nesterov") == "yes", spec.word("decouple") == "yes");
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            let why = "nesterov=yes needs a momentum above 0 and no dampening".to_string();
            return Err(SpecError::Unfit { owner: spec.name(), why });
        }
        Ok(SgdMomentum { lr, momentum, dampening, nesterov, decouple, begun: false })
    }
}

/// `d = scale·g + penalty·decay·x`, `b ← old·b + new·d`, `x ← x·(1 − apart·decay) − size·(ahead·d + along·b)`.
struct Momentum;

impl Change<8, 2, 1> for Momentum {
    #[inline(always)]
    fn each<N: Number>(
        [scale, penalty, apart, old, new, size, ahead, along]: [N; 8],
        Here { decay, .. }: Here<N>,
        [x, b]: [N; 2],
        [g]: [N; 1],
    ) -> [N; 2] {
        let d = scale * g + penalty * decay * x;
        let b = old * b + new * d;
        [x * (N::of(1.0) - apart * decay) - size * (ahead * d + along * b), b]
    }
}

/// State: one vector, or none without momentum. A step is one pass: it reads 3 vectors and writes 2, or reads 2 and writes one.
impl Optimizer for SgdMomentum {
    fn keeps(&self) -> Vec<Keep> {
        if self.momentum == 0.0 { Vec::new() } else { vec![Keep::zeros("momentum")] }
    }

    fn step<S: Space>(&mut self, seen: &Observation, _: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        seen.check()?;
        let scale = at.around.gradient_scale(seen.grad_norm);
        let step = Step::new(self.lr * at.around.rate, seen)?;
        let rate = step.size;
        super::check_held::<S>(seen, &[rate])?;
        // The largest that b and the step can become of gradients of this length.
        let longest = 2.0 * scale * seen.grad_norm / (1.0 - self.momentum);
        if longest.max(longest * rate) > S::LARGEST {
            return Err(Refusal::TooLarge { step: seen.step, grad_norm: seen.grad_norm });
        }
        match at.kept {
            [] => {
                // Without momentum both decays are one.
                at.space.change(
                    Descend,
                    [rate * scale],
                    rate * at.around.weight_decay,
                    [at.x],
                    [at.gradient],
                );
            }
            [b] => {
                let new = if self.begun { 1.0 - self.dampening } else { 1.0 };
                let (penalty, apart) = if self.decouple { (0.0, rate) } else { (1.0, 0.0) };
                let (ahead, along) = if self.nesterov { (1.0, self.momentum) } else { (0.0, 1.0) };
                let scalars = [scale, penalty, apart, self.momentum, new, rate, ahead, along];
                at.space.change(Momentum, scalars, at.around.weight_decay, [at.x, b], [at.gradient]);
            }
            more => panic!("momentum is one vector, not {}", more.len()),
        }
        self.begun = true;
        Ok(step)
    }
}
