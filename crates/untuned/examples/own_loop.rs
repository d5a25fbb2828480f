//! A training loop of one's own with `polyak-adam`: no learning rate, no clipping, no warm-up.
//!
//! `cargo run --release -p untuned --example own_loop`

use untuned::prelude::*;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let steps = 500;
    let method = PolyakAdam::default().build(&RunInfo::new(steps))?;
    let mut session = Session::new(method, DenseF64::new(2))?;
    let mut x = vec![-1.0, 2.0];
    for step in 0..steps {
        let (loss, gradient) = loss_and_gradient(&x);
        let report = session.advance(loss, &mut x, &gradient)?;
        if step % 100 == 0 {
            println!("step {step}: loss {loss:.6}, rate {:.2e}", report.rate);
        }
    }
    let (loss, _) = loss_and_gradient(&x);
    println!("step {steps}: loss {loss:.6} at {x:.3?}");
    assert!(loss < 1e-3, "{loss}");
    Ok(())
}

/// A narrow bowl whose minimum is 0 at (1, 1).
fn loss_and_gradient(x: &[f64]) -> (f64, Vec<f64>) {
    let (a, b) = (x[0] - 1.0, x[1] - 1.0);
    (a * a + 25.0 * b * b, vec![2.0 * a, 50.0 * b])
}
