//! What the paper says of its synthetic experiment, each claim with the number that decides it.

use rayon::prelude::*;

use super::grid::Grid;
use super::steps::{StepsRow, growth_exponent, steps_per_decade};
use super::{L1, X0};
use crate::claims::{Claim, Decided, Verdict};

mod behaviour;
mod speed;
mod theory;

/// How many claims there are.
pub(super) const CLAIMS: usize = 15;

/// All claims, from 1.
pub(super) fn all(grid: &Grid, steps: &[StepsRow]) -> Vec<Claim> {
    let facts = Facts { grid, steps };
    let claims: [(&str, Decide); CLAIMS] = [
        ("Gradient descent slows down as L₁ grows.", speed::gd_slows_down),
        ("Tuned clipped gradient descent does not depend on L₁.", speed::clipping_does_not),
        ("Polyak's step size does not depend on L₁.", speed::polyak_does_not),
        ("DecSPS and AdaSPS degrade as L₁ grows.", speed::decreasing_steps_degrade),
        ("Inexact Polyak Stepsize does not depend on L₁.", speed::inexact_polyak_does_not),
        (
            "Polyak is no slower than clipped GD with Theorem 2's parameters and beats GD with 1/L.",
            speed::polyak_matches_clipping,
        ),
        ("Every assumption, lemma and proposition holds at every iterate.", theory::inequalities_hold),
        ("Every bound holds; the L-free term dominates for large T.", theory::bounds_hold),
        (
            "Inexact Polyak converges at least like T^(−½), and slower than clipped GD.",
            theory::rate_in_the_horizon,
        ),
        (
            "Polyak with a lower bound does not converge: the step explodes near the optimum.",
            behaviour::lower_bound_explodes,
        ),
        (
            "DecSPS's and AdaSPS's steps never increase; Polyak's and clipped GD's grow near the optimum.",
            behaviour::who_grows,
        ),
        ("D_T may grow for DecSPS and AdaSPS, whose rates depend on it.", theory::distances),
        ("A threshold too large gains nothing, one too small harms.", behaviour::thresholds),
        ("L ≈ L₀ + L₁ sup‖∇f‖.", theory::smoothness_by_the_gradient),
        (
            "The grid search selects the hyperparameters of the paper's table.",
            behaviour::selected_hyperparameters,
        ),
    ];
    let number = |(i, (claim, decide)): (usize, (&str, Decide))| decide(&facts).claim(i, claim);
    claims.into_par_iter().enumerate().map(number).collect()
}

struct Facts<'a> {
    grid: &'a Grid,
    steps: &'a [StepsRow],
}

/// Decides one claim.
type Decide = fn(&Facts) -> Decided;

impl Facts<'_> {
    fn steps(&self, key: &str) -> &StepsRow {
        self.steps
            .iter()
            .find(|row| row.key == key)
            .unwrap_or_else(|| panic!("no method `{key}` in the table of steps"))
    }

    /// The rows of the table of steps for these methods.
    fn table(&self, keys: &[&str]) -> Vec<Vec<String>> {
        let mut table = vec![header("steps to a gap of 1e-2")];
        table[0].extend(["steps per decade of L₁".to_string(), "exponent of L₁".to_string()]);
        for key in keys {
            let row = self.steps(key);
            let mut cells = vec![row.method.clone()];
            cells.extend(row.steps.iter().map(|s| count(*s)));
            cells.push(steps_per_decade(&row.steps).map_or("–".to_string(), |d| format!("{d:.1}")));
            let bound = if row.steps.contains(&None) { "≥ " } else { "" };
            cells.push(format!("{bound}{:.2}", growth_exponent(&row.steps)));
            table.push(cells);
        }
        table
    }

    fn exponent(&self, key: &str) -> f64 {
        growth_exponent(&self.steps(key).steps)
    }
}

fn header(first: &str) -> Vec<String> {
    std::iter::once(first.to_string()).chain(L1.map(|l1| format!("L₁ = {l1}"))).collect()
}

fn count(steps: Option<u64>) -> String {
    steps.map_or("> 1e6".to_string(), |s| s.to_string())
}

fn list(steps: &StepsRow) -> String {
    // Not to be broken at the end of a line.
    steps.steps.iter().map(|s| count(*s).replace(' ', "\u{a0}")).collect::<Vec<_>>().join(" / ")
}

/// Three digits: `49`, `9.38`, `0.0012`, `5.7e6`, `0`.
fn short(v: f64) -> String {
    let size = v.abs();
    if v == 0.0 {
        "0".to_string()
    } else if (100.0..1e5).contains(&size) {
        format!("{v:.0}")
    } else if (1e-2..100.0).contains(&size) {
        format!("{v:.2}").trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        format!("{v:.1e}")
    }
}

fn shorts(values: impl IntoIterator<Item = f64>) -> String {
    values.into_iter().map(short).collect::<Vec<_>>().join(" / ")
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_string()).chain(cells).collect()
}

/// `‖∇f(x_0)‖`, the longest gradient on `|x| ≤ |x_0|`.
fn first_gradient(l1: f64) -> f64 {
    l1 * l1 / 18.0 * X0.powi(3) + X0 / 2.0
}
