use std::ops::Range;

/// The vectors that an optimizer works on, and the passes over them that it is made of.
///
/// A pass is fused: it reads and writes every number once, because such passes are bound by memory. Plain vectors are
/// [`Plain`]; a device's buffer or a framework's tensors implement this beside it.
pub trait Space {
    /// The parameters, their gradient, or what an optimizer keeps beside them.
    type Vector;
    /// Why there is no room for a vector.
    type Error;

    /// The largest number that a vector holds: a gradient whose square is beyond it cannot be averaged.
    const LARGEST: f64;

    /// A vector of zeros.
    ///
    /// # Errors
    /// When there is no room for it.
    fn zeros(&self) -> Result<Self::Vector, Self::Error>;

    /// One step of Adam in one pass. In every coordinate, with `g` the scaled gradient:
    ///
    /// `m ← β1·m + (1 − β1)·g`, `v ← β2·v + (1 − β2)·g²`, `x ← keep·x − size·m/(root·√v + eps)`,
    ///
    /// with `keep` only in the coordinates that the space declares as decayed, and 1 in its place elsewhere.
    fn adam(
        &self,
        x: &mut Self::Vector,
        gradient: &Self::Vector,
        m: &mut Self::Vector,
        v: &mut Self::Vector,
        constants: &AdamConstants,
    );
}

/// The constants of [`Space::adam`], which are the same for all coordinates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConstants {
    /// Multiplies the gradient; below 1 where it is clipped.
    pub gradient_scale: f64,
    /// `β1`.
    pub beta1: f64,
    /// `β2`.
    pub beta2: f64,
    /// `1 − η·decay`.
    pub keep: f64,
    /// `η/(1 − β1ᵗ)`.
    pub size: f64,
    /// `1/√(1 − β2ᵗ)`.
    pub root: f64,
    /// Keeps the denominator from 0.
    pub eps: f64,
}

/// Plain vectors of f64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The length of a vector.
    pub dimension: usize,
    /// The coordinates that decay.
    pub decayed: Vec<Range<usize>>,
}

impl Space for Plain {
    type Vector = Vec<f64>;
    type Error = std::convert::Infallible;

    const LARGEST: f64 = f64::MAX;

    fn zeros(&self) -> Result<Vec<f64>, Self::Error> {
        Ok(vec![0.0; self.dimension])
    }

    fn adam(
        &self,
        x: &mut Vec<f64>,
        gradient: &Vec<f64>,
        m: &mut Vec<f64>,
        v: &mut Vec<f64>,
        constants: &AdamConstants,
    ) {
        let AdamConstants { gradient_scale, beta1, beta2, keep, size, root, eps } = *constants;
        for range in &self.decayed {
            x[range.clone()].iter_mut().for_each(|x| *x *= keep);
        }
        for (((x, g), m), v) in x.iter_mut().zip(gradient).zip(m).zip(v) {
            let g = gradient_scale * g;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *x -= size * *m / (root * v.sqrt() + eps);
        }
    }
}
