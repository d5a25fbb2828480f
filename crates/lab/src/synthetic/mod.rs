//! The paper's synthetic experiment (Section 6.1, Appendix D.1): the figure's panels, the grid search, the steps that
//! each method needs, and the claims with the numbers that decide them.
//!
//! [`run`] computes everything; what it returns serializes, and the figures and the report are made from that alone.

use serde::{Deserialize, Serialize};

mod claims;
mod figures;
mod files;
mod grid;
mod measure;
mod panels;
mod steps;

pub use crate::claims::{Claim, Verdict};
pub use figures::{caption, figures};
pub use files::{RESULTS_FILE, ResultsError, files, read};
pub use grid::{Cell, Grid, Selection};
pub use measure::{Measured, measure};
pub use panels::{Abscissa, Curve, PanelData};
pub use steps::{GAP, MOST_STEPS, StepsRow, growth_exponent, steps_per_decade};

/// The `L1` of the paper's figure.
pub const L1: [f64; 4] = [1.0, 10.0, 100.0, 1000.0];
/// The paper's start.
pub const X0: f64 = 5.0;
/// A start that no `lr · threshold` of the grid divides.
pub const OTHER_X0: f64 = 4.7;
/// The paper's minimum.
pub const F_STAR: f64 = 1.0;
/// The steps of GD, clipped GD and Polyak in the figure; also of the grid search. The paper does not print them.
pub const SHORT: u64 = 500;
/// The steps of DecSPS and AdaSPS in the figure, and the horizon of Inexact Polyak where one is needed.
pub const LONG: u64 = 10_000;

/// Everything that the experiment found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Synthetic {
    /// The version of the program that computed it.
    pub version: String,
    /// The curves of the figures.
    pub panels: Vec<PanelData>,
    /// The appendix's grid search.
    pub grid: Grid,
    /// Steps to a gap of [`GAP`] for every method and `L1`.
    pub steps: Vec<StepsRow>,
    /// The fifteen claims.
    pub claims: Vec<Claim>,
}

/// Runs the whole experiment on all cores; `done` is called after each of [`PARTS`] parts.
pub fn run(done: impl Fn() + Sync) -> Synthetic {
    let search = || {
        let grid = Grid::search();
        done();
        grid
    };
    let (panels, (grid, steps)) =
        rayon::join(|| panels::all(&done), || rayon::join(search, || steps::table(&done)));
    let claims = claims::all(&grid, &steps);
    done();
    Synthetic { version: env!("CARGO_PKG_VERSION").to_string(), panels, grid, steps, claims }
}

/// How often [`run`] calls back.
pub const PARTS: usize = panels::PANELS.len() + steps::METHODS.len() + 2;
