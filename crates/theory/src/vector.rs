//! Steps along a vector, beside the sums of [`untuned::vector`]. Vectors of different lengths panic.

/// `x ← x − size · gradient`.
pub fn step_in_place(x: &mut [f64], size: f64, gradient: &[f64]) {
    assert_eq!(x.len(), gradient.len(), "vectors of one length");
    for (x, g) in x.iter_mut().zip(gradient) {
        *x -= size * g;
    }
}

/// `to ← from − size · gradient`.
pub fn step_into(to: &mut [f64], from: &[f64], size: f64, gradient: &[f64]) {
    assert!(to.len() == from.len() && from.len() == gradient.len(), "vectors of one length");
    for ((to, x), g) in to.iter_mut().zip(from).zip(gradient) {
        *to = x - size * g;
    }
}
