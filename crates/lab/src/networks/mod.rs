//! The paper's network experiments (Section 6.2, Appendices D.2 and E): the sweeps that make them, and what they show of its claims.

mod claims;
mod recorded;

pub use claims::{Claims, claims};
pub use recorded::{FULL_SCALES, Recorded, is_full, record, with_recorded};

/// The files of `experiments/`, so that the program needs no other.
const FILES: [(&str, &str); 6] = [
    ("gpt.toml", include_str!("../../../../experiments/gpt.toml")),
    ("gpt-sweep.toml", include_str!("../../../../experiments/gpt-sweep.toml")),
    ("lstm.toml", include_str!("../../../../experiments/lstm.toml")),
    ("lstm-sweep.toml", include_str!("../../../../experiments/lstm-sweep.toml")),
    ("t5.toml", include_str!("../../../../experiments/t5.toml")),
    ("t5-sweep.toml", include_str!("../../../../experiments/t5-sweep.toml")),
];

/// The experiment's and the sweep's file of a network: name and text.
pub fn files(network: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = [format!("{network}.toml"), sweep_file(network)];
    FILES.into_iter().filter(move |(name, _)| names.iter().any(|wanted| wanted == name))
}

/// The name of a network's sweep.
pub fn sweep_file(network: &str) -> String {
    format!("{network}-sweep.toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Plan;
    use crate::train::{Model, Overrides};

    #[test]
    fn every_sweep_is_right_at_every_scale() {
        for (model, paper) in [(Model::Lstm, 6 * 11), (Model::Gpt, 9 * 11), (Model::T5, 5 * 4)] {
            for scale in ["quick", "paper", "h200"] {
                let overrides = Overrides { scale: Some(scale.into()), ..Overrides::default() };
                let text = |name: &str| files(model.name()).find(|(file, _)| *file == name).unwrap().1;
                let experiment = |file: &str| Ok((text(file).to_string(), file.to_string(), "x".to_string()));
                let sweep = text(&sweep_file(model.name()));
                let plan = Plan::resolve(sweep, "sweep", experiment, &overrides).unwrap();
                let of = |seed, rule: &str| {
                    let named = plan.trials.iter().filter(|t| t.config.rule.name() == rule);
                    named.filter(|t| t.config.seed == seed).count()
                };
                for rule in ["polyak-bound", "decsps", "adasps", "dog", "inexact-polyak"] {
                    assert!((1..=3).all(|seed| of(seed, rule) >= 1), "{rule} of {model:?} at {scale}");
                }
                if scale != "quick" {
                    // In the first seed: on an H200 the other T have the optimum and its neighbours, T5 four times the steps at its optimum.
                    let grid = of(1, "gd") + of(1, "clipped-gd");
                    let wanted = match (model, scale) {
                        (Model::Gpt, "paper") => 3 * paper,
                        (Model::Gpt, _) => paper + 2 * 9,
                        (Model::T5, "h200") => paper + 1,
                        _ => paper,
                    };
                    assert_eq!(
                        grid, wanted,
                        "the paper's grid of {model:?} at {scale}, without clipping included"
                    );
                }
            }
        }
    }
}
