use super::{At, Change, Here, Keep, Number, Optimizer, Space};
use crate::average::Average;
use crate::rule::{Observation, Refusal, Step};
use serde::{Deserialize, Serialize};

/// An optimizer and a running average of the points that it reaches; the average is evaluated.
///
/// `x̄ ← x̄ + w·(x − x̄)` after every step, with the weights of [`Average`]; the first point is copied. Training goes on as without it.
/// Where the optimizer itself evaluates another point than the one that is trained, the average is still that of the trained ones.
///
/// ```
/// # use untuned::{Observation, Setting, average::Average};
/// use untuned::optimizers::{Around, Averaged, Keep, Optimizer, OptimizerSpec, Plain, At};
///
/// let adamw = "adamw:lr=2,eps=1e-12".parse::<OptimizerSpec>()?.build(&Setting::new(2))?;
/// let mut adamw = Averaged::new(adamw, Average::Exponential(0.75));
/// let (space, around) = (Plain::new(1), Around::default());
/// let (mut x, mut mean) = (vec![8.0], vec![0.0]);
/// let mut kept = Keep::all(&space, &adamw.keeps(), &x)?;
/// for t in 0..2 {
///     let at = At { space: &space, around: &around, x: &mut x, gradient: &vec![4.0], kept: &mut kept };
///     adamw.step(&Observation::new(t, 7.0, 4.0), &[], at)?;
/// }
/// // From 8 to 6 to 4: the first is copied, and of the second comes a quarter.
/// assert!(adamw.evaluated(&space, &x, &kept, &mut mean));
/// assert!((x[0] - 4.0).abs() < 1e-9 && (mean[0] - 5.5).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Averaged<O> {
    /// The optimizer.
    pub optimizer: O,
    /// The weights.
    pub average: Average,
    /// The points in the average.
    count: u64,
}

impl<O> Averaged<O> {
    /// An average without points.
    pub fn new(optimizer: O, average: Average) -> Averaged<O> {
        Averaged { optimizer, average, count: 0 }
    }
}

/// `mean ← mean + weight·(x − mean)`.
struct Take;

impl Change<1, 1, 1> for Take {
    #[inline(always)]
    fn each<N: Number>([weight]: [N; 1], _: Here<N>, [mean]: [N; 1], [x]: [N; 1]) -> [N; 1] {
        [mean + weight * (x - mean)]
    }
}

/// State: one vector more. A step is one pass more: it reads 2 vectors and writes one.
impl<O: Optimizer> Optimizer for Averaged<O> {
    fn keeps(&self) -> Vec<Keep> {
        let mut keeps = self.optimizer.keeps();
        keeps.push(Keep::parameters("average"));
        keeps
    }

    fn measures(&self) -> usize {
        self.optimizer.measures()
    }

    fn measure<S: Space>(&self, at: &At<'_, S>, sums: &mut S::Sums, first: usize) -> bool {
        self.optimizer.measure(at, sums, first)
    }

    fn step<S: Space>(&mut self, seen: &Observation, sums: &[f64], at: At<'_, S>) -> Result<Step, Refusal> {
        let Some((mean, kept)) = at.kept.split_last_mut() else { panic!("an average keeps a vector") };
        let step = self.optimizer.step(seen, sums, At { x: &mut *at.x, kept, ..at })?;
        self.count += 1;
        if self.count == 1 {
            at.space.copy(at.x, mean);
        } else {
            at.space.change(Take, [self.average.weight(self.count)], 0.0, [mean], [&*at.x]);
        }
        Ok(step)
    }

    /// The average. Before the first step it is the parameters.
    fn evaluated<S: Space>(&self, space: &S, _: &S::Vector, kept: &[S::Vector], to: &mut S::Vector) -> bool {
        let Some(mean) = kept.last() else { panic!("an average keeps a vector") };
        space.copy(mean, to);
        true
    }

    fn clips(&self) -> bool {
        self.optimizer.clips()
    }

    fn estimate(&self) -> Option<f64> {
        self.optimizer.estimate()
    }

    fn concern(&self) -> Option<String> {
        self.optimizer.concern()
    }
}
