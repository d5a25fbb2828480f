use untuned::StepKind;

/// What is to be said of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The number of the step, from 0.
    pub step: u64,
    /// The loss, where it was given.
    pub loss: Option<f64>,
    /// The norm of the whole gradient, before clipping.
    pub grad_norm: f64,
    /// The effective rate: what a unit of the (preconditioned) gradient was multiplied with.
    pub rate: f64,
    /// Whether it was an ordinary one.
    pub kind: StepKind,
}
