//! Runs of one experiment side by side: every method with its seeds and its grid, what the selection chooses, and what came out.
//!
//! The parameters of a method are selected as the paper does: for each seed the run with the lowest validation loss, of which the
//! test loss is reported.

mod curves;
mod figures;
mod league;
mod tables;

pub use curves::{AllCurves, Curves, Fit};
pub use figures::{Drawn, draw};
pub use league::leagues;
pub use tables::{MOST_ROWS, common_configuration, csv, results, runs as run_table, summary};
pub(crate) use tables::{parameters, shown_loss, shown_range};

use std::collections::{BTreeMap, BTreeSet};

use crate::figure::{method_name, method_order};
use crate::runs::{Horizon, Run, Standing};
use crate::train::{Model, Summary};

/// Runs that can be compared: the same network, data and batch.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The experiment's name.
    pub name: String,
    /// A name for files and links that no other comparison of the same report has.
    pub slug: String,
    /// Its scale.
    pub scale: String,
    /// The network.
    pub model: Model,
    /// What it is trained on, in words.
    pub data: String,
    /// The best possible loss, where it is known.
    pub best_loss: Option<f64>,
    /// The number of parameters, where a run has begun.
    pub parameters: Option<u64>,
    /// All runs.
    pub runs: Vec<Run>,
}

/// Sorts runs into comparisons: in the paper's order of the networks, then by name and scale.
pub fn compare(runs: Vec<Run>) -> Vec<Comparison> {
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<Run>> = BTreeMap::new();
    for run in runs {
        let mut key = vec![
            ("name".to_string(), run.config.name.clone()),
            ("scale".to_string(), run.config.scale.clone()),
            ("data".to_string(), run.config.data.clone()),
        ];
        let network = |key: &str| {
            ["model", "preset", "batch", "device", "precision"].contains(&key) || key.starts_with("shape.")
        };
        key.extend(run.config.identity().into_iter().filter(|(key, _)| network(key)));
        groups.entry(key).or_default().push(run);
    }
    let mut comparisons: Vec<Comparison> = groups.into_values().filter_map(Comparison::of).collect();
    comparisons.sort_by_key(|comparison| match comparison.model {
        Model::Lstm => 0,
        Model::Gpt => 1,
        Model::T5 => 2,
    });
    name_apart(&mut comparisons);
    comparisons
}

/// Gives comparisons of the same name different ones for files and links: their scale, then a number.
fn name_apart(comparisons: &mut [Comparison]) {
    let mut taken = BTreeSet::new();
    for at in 0..comparisons.len() {
        let Comparison { name, scale, .. } = &comparisons[at];
        let twice = comparisons.iter().filter(|other| other.name == *name).count() > 1;
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = if twice { format!("{name}-{scale}") } else { name.clone() };
        let name: String = name.chars().map(plain).collect();
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
        let slug = free.unwrap_or(name);
        taken.insert(slug.clone());
        comparisons[at].slug = slug;
    }
}

impl Comparison {
    fn of(runs: Vec<Run>) -> Option<Comparison> {
        let first = &runs.first()?.config;
        let (name, scale, model) = (first.name.clone(), first.scale.clone(), first.model);
        let meta = runs.iter().find_map(|run| run.meta.as_ref());
        let data = meta.map_or_else(|| first.data.clone(), |meta| meta.data.what.clone());
        let (best_loss, parameters) = (meta.and_then(|m| m.data.best_loss), meta.map(|m| m.parameters));
        Some(Comparison { slug: name.clone(), name, scale, model, data, best_loss, parameters, runs })
    }

    /// The network's name as the paper writes it.
    pub fn title(&self) -> &'static str {
        match self.model {
            Model::Lstm => "LSTM",
            Model::Gpt => "Nano-GPT",
            Model::T5 => "T5",
        }
    }

    /// The horizons for which there are runs, ascending.
    pub fn horizons(&self) -> Vec<Horizon> {
        self.runs.iter().map(Run::horizon).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The horizon with the most methods; of several, the middle one, as the paper's 5000 lies between 2500 and 7500.
    pub fn main_horizon(&self) -> Option<Horizon> {
        let count = |horizon: &Horizon| self.methods(*horizon).len();
        let horizons = self.horizons();
        let most = horizons.iter().map(count).max()?;
        let full: Vec<Horizon> = horizons.into_iter().filter(|horizon| count(horizon) == most).collect();
        full.get(full.len() / 2).copied()
    }

    /// The methods that were run for so long, those of the paper first.
    pub fn methods(&self, horizon: Horizon) -> Vec<Method<'_>> {
        let mut methods: BTreeMap<(usize, String), Vec<&Run>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.horizon() == horizon) {
            let key = run.method();
            methods.entry((method_order(&key), key)).or_default().push(run);
        }
        // Without clipping is a threshold too: the paper's grid has it as ∞.
        let unclipped: Vec<&Run> =
            methods.iter().filter(|((_, key), _)| key == "gd").flat_map(|(_, runs)| runs.clone()).collect();
        let methods = methods.into_iter().map(|((_, key), runs)| {
            let unclipped = if key == "clipped-gd" { unclipped.clone() } else { Vec::new() };
            Method::of(key, horizon, runs, unclipped)
        });
        methods.collect()
    }

    /// The method with this key.
    pub fn method(&self, horizon: Horizon, key: &str) -> Option<Method<'_>> {
        self.methods(horizon).into_iter().find(|method| method.key == key)
    }
}

/// A method of a comparison with all its runs: several seeds, and several parameters where it has a grid.
#[derive(Debug, Clone)]
pub struct Method<'a> {
    /// What its runs call it: a rule's name, unless the sweep says another.
    pub key: String,
    /// How long its runs were to be.
    pub horizon: Horizon,
    /// Its own runs.
    pub runs: Vec<&'a Run>,
    /// The runs of plain gradient descent, which belong to the grid of clipped gradient descent too.
    unclipped: Vec<&'a Run>,
    /// By rule, the keys of [`Optimizer`](crate::train::config::Optimizer) in which its runs differ.
    varied_keys: BTreeMap<&'static str, BTreeSet<String>>,
    is_tuned: bool,
}

/// The run of a method that stands for a seed.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The seed.
    pub seed: u64,
    /// The run.
    pub run: &'a Run,
    /// What came out of it.
    pub summary: &'a Summary,
}

/// What became of a seed of a method.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// The run that stands for it, which may have diverged where there was nothing to choose from.
    Chosen(Chosen<'a>),
    /// Every run of its grid diverged.
    AllDiverged,
    /// Some have not ended, or all failed.
    Unfinished,
}

/// Some values: their mean, the lowest and the highest.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Spread {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

impl Spread {
    /// Of no value there is none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let count = values.len();
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Spread { mean: values.iter().sum::<f64>() / count as f64, low, high, count })
    }
}

impl<'a> Method<'a> {
    fn of(key: String, horizon: Horizon, runs: Vec<&'a Run>, unclipped: Vec<&'a Run>) -> Method<'a> {
        let mut method =
            Method { key, horizon, runs, unclipped, varied_keys: BTreeMap::new(), is_tuned: false };
        let mut seen: BTreeMap<&str, Vec<BTreeMap<String, String>>> = BTreeMap::new();
        for run in method.grid() {
            let kinds = seen.entry(run.config.rule.name()).or_default();
            let keys = run.config.optimizer.keys();
            if !kinds.contains(&keys) {
                kinds.push(keys);
            }
        }
        for (rule, kinds) in seen {
            let all: BTreeSet<&String> = kinds.iter().flat_map(BTreeMap::keys).collect();
            let differs = |key: &&String| kinds.iter().any(|kind| kind.get(*key) != kinds[0].get(*key));
            method.varied_keys.insert(rule, all.into_iter().filter(differs).cloned().collect());
        }
        method.is_tuned = method.variants().len() > 1;
        method
    }

    /// Its name in figures.
    pub fn name(&self) -> String {
        method_name(&self.key).to_string()
    }

    /// All runs of its grid.
    pub fn grid(&self) -> impl Iterator<Item = &'a Run> + '_ {
        self.runs.iter().chain(&self.unclipped).copied()
    }

    /// The parameters of a run of the grid: the rule, and the options of the update in which runs of the same rule differ.
    pub fn variant(&self, run: &Run) -> String {
        let varied = self.varied_keys.get(run.config.rule.name());
        let keys = varied.into_iter().flatten();
        let values = run.config.optimizer.keys();
        keys.fold(run.config.rule.to_string(), |label, key| match values.get(key) {
            Some(value) => format!("{label}, {key}={value}"),
            None => format!("{label}, no {key}"),
        })
    }

    /// The different parameters that were tried.
    pub fn variants(&self) -> BTreeSet<String> {
        self.grid().map(|run| self.variant(run)).collect()
    }

    /// Whether there was anything to select.
    pub fn is_tuned(&self) -> bool {
        self.is_tuned
    }

    /// Its seeds, ascending.
    pub fn seeds(&self) -> Vec<u64> {
        self.runs.iter().map(|run| run.config.seed).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The runs of its grid with a seed.
    fn of_seed(&self, seed: u64) -> impl Iterator<Item = &'a Run> + '_ {
        self.grid().filter(move |run| run.config.seed == seed)
    }

    /// What became of a seed. Of a grid the run with the lowest validation loss at the end is chosen, the first of equals, none that
    /// diverged; but only when the whole grid has ended.
    pub fn outcome(&self, seed: u64) -> Outcome<'a> {
        if self.of_seed(seed).any(|run| run.standing == Standing::Unfinished) {
            return Outcome::Unfinished;
        }
        let ended = self.of_seed(seed).filter_map(|run| Some(Chosen { seed, run, summary: run.summary()? }));
        let ended: Vec<Chosen<'a>> = ended.collect();
        if ended.is_empty() {
            return Outcome::Unfinished;
        }
        if !self.is_tuned() {
            return Outcome::Chosen(ended[0]);
        }
        let loss = |c: &Chosen<'_>| c.summary.final_validation_loss.filter(|_| !c.summary.diverged);
        let left = ended.into_iter().filter_map(|chosen| Some((loss(&chosen)?, chosen)));
        left.min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(Outcome::AllDiverged, |(_, chosen)| Outcome::Chosen(chosen))
    }

    /// The run that stands for a seed, where there is one.
    pub fn chosen(&self, seed: u64) -> Option<Chosen<'a>> {
        match self.outcome(seed) {
            Outcome::Chosen(chosen) => Some(chosen),
            Outcome::AllDiverged | Outcome::Unfinished => None,
        }
    }

    /// The runs that stand for the seeds.
    pub fn all_chosen(&self) -> Vec<Chosen<'a>> {
        self.seeds().into_iter().filter_map(|seed| self.chosen(seed)).collect()
    }

    /// The test losses at the end; nothing where a seed has none, or one that is not finite.
    pub fn test(&self) -> Option<Spread> {
        self.spread(|summary| summary.final_test_loss)
    }

    /// The test losses at the evaluation with the lowest validation loss.
    pub fn best_test(&self) -> Option<Spread> {
        self.spread(|summary| summary.best_test_loss)
    }

    fn spread(&self, value: impl Fn(&Summary) -> Option<f64>) -> Option<Spread> {
        let seeds = self.seeds();
        let chosen = self.all_chosen();
        let values: Option<Vec<f64>> = chosen.iter().map(|chosen| value(chosen.summary)).collect();
        values.filter(|values| values.len() == seeds.len()).and_then(|values| Spread::of(&values))
    }

    /// Whether a seed diverged: the run that stands for it, or its whole grid.
    pub fn diverged(&self) -> bool {
        self.seeds().into_iter().any(|seed| match self.outcome(seed) {
            Outcome::Chosen(chosen) => chosen.summary.diverged,
            Outcome::AllDiverged => true,
            Outcome::Unfinished => false,
        })
    }

    /// The training steps that one seed cost, the whole grid included: the most of any complete seed, because others may have been
    /// run with what the first one's grid selected.
    pub fn cost(&self) -> Option<u64> {
        let complete = |seed: &u64| !matches!(self.outcome(*seed), Outcome::Unfinished);
        let steps = |seed: u64| self.of_seed(seed).filter_map(|run| run.summary()).map(|s| s.steps).sum();
        self.seeds().into_iter().filter(complete).map(steps).max()
    }

    /// How many runs have not ended, and how many failed.
    pub fn missing(&self) -> (usize, usize) {
        let count = |wanted: fn(&Standing) -> bool| self.runs.iter().filter(|r| wanted(&r.standing)).count();
        (count(|s| *s == Standing::Unfinished), count(|s| matches!(s, Standing::Failed(_))))
    }
}

/// The value of a numeric parameter in a rule's spec.
pub fn parameter(run: &Run, name: &str) -> Option<f64> {
    let spec = run.config.rule.to_string();
    let (_, parameters) = spec.split_once(':')?;
    parameters.split(',').filter_map(|p| p.split_once('=')).find(|(key, _)| *key == name)?.1.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::train::{Config, Overrides};

    /// A run of a rule with its validation and test loss; one without diverged.
    pub(crate) fn run(rule: &str, seed: u64, losses: Option<(f64, f64)>) -> Run {
        let mut overrides = Overrides::default();
        overrides.set(&format!("rule={rule}")).unwrap();
        overrides.set(&format!("seed={seed}")).unwrap();
        let config = Config::resolve("model = \"gpt\"\nsteps = 10", "x.toml", "x", &overrides).unwrap();
        let summary = Summary {
            rule: rule.into(),
            steps: 10,
            seed,
            final_train_loss: Some(1.0),
            final_validation_loss: losses.map(|l| l.0),
            final_test_loss: losses.map(|l| l.1),
            best_validation_loss: losses.map(|l| l.0),
            best_test_loss: losses.map(|l| l.1),
            diverged: losses.is_none(),
            seconds: 1.0,
        };
        Run {
            folder: rule.into(),
            name: rule.into(),
            config,
            meta: None,
            standing: Standing::Ended(Box::new(summary)),
        }
    }

    const T: Horizon = Horizon::Steps(10);

    fn comparison(runs: Vec<Run>) -> Comparison {
        let mut all = compare(runs);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn the_selection_looks_at_validation_and_reports_test_for_each_seed() {
        let all = comparison(vec![
            run("gd:lr=1", 1, Some((2.0, 2.5))),
            run("gd:lr=0.1", 1, Some((2.2, 2.1))),
            run("gd:lr=10", 1, None),
            run("gd:lr=1", 2, Some((3.0, 3.1))),
            run("gd:lr=0.1", 2, Some((2.9, 3.3))),
            run("gd:lr=10", 2, None),
            run("dog", 1, Some((9.0, 8.0))),
        ]);
        let gd = all.method(T, "gd").unwrap();
        let chosen: Vec<_> = gd.all_chosen().iter().map(|c| c.run.config.rule.to_string()).collect();
        assert_eq!(chosen, ["gd:lr=1", "gd:lr=0.1"], "the lowest validation loss, not the lowest test loss");
        assert_eq!(gd.test(), Some(Spread { mean: 2.9, low: 2.5, high: 3.3, count: 2 }));
        assert_eq!((gd.cost(), gd.is_tuned(), gd.diverged()), (Some(30), true, false));
        let dog = all.method(T, "dog").unwrap();
        assert_eq!((dog.cost(), dog.is_tuned(), dog.test().unwrap().mean), (Some(10), false, 8.0));
    }

    #[test]
    fn a_seed_that_takes_over_the_selection_makes_the_grid_no_cheaper() {
        let all = comparison(vec![
            run("gd:lr=1", 1, Some((2.0, 2.5))),
            run("gd:lr=0.1", 1, Some((2.2, 2.1))),
            run("gd:lr=1", 2, Some((3.0, 3.1))),
        ]);
        let gd = all.method(T, "gd").unwrap();
        assert_eq!((gd.cost(), gd.test().unwrap().mean), (Some(20), 2.8));
    }

    #[test]
    fn no_clipping_belongs_to_the_grid_of_clipping() {
        let all = comparison(vec![
            run("gd:lr=1", 1, Some((2.0, 2.5))),
            run("clipped-gd:lr=1,threshold=1", 1, Some((2.1, 2.1))),
            run("clipped-gd:lr=1,threshold=2", 1, None),
        ]);
        let clipped = all.method(T, "clipped-gd").unwrap();
        assert_eq!(clipped.chosen(1).unwrap().run.config.rule.to_string(), "gd:lr=1");
        assert_eq!(clipped.cost(), Some(30));
        assert_eq!(parameter(clipped.runs[0], "threshold"), Some(1.0));
        assert_eq!(parameter(all.method(T, "gd").unwrap().runs[0], "threshold"), None);
    }

    #[test]
    fn what_diverged_or_is_missing_is_said() {
        let mut unfinished = run("dog", 2, None);
        unfinished.standing = Standing::Unfinished;
        let all = comparison(vec![
            run("polyak-bound", 1, None),
            run("gd:lr=1", 1, None),
            run("gd:lr=2", 1, None),
            run("dog", 1, Some((1.0, 1.0))),
            unfinished,
        ]);
        let of = |key: &str| all.method(T, key).unwrap();
        assert!(of("polyak-bound").diverged() && of("polyak-bound").test().is_none());
        assert!(of("gd").diverged() && of("gd").chosen(1).is_none());
        assert_eq!(
            (of("dog").missing(), of("dog").test()),
            ((1, 0), None),
            "a mean of fewer seeds is no mean"
        );
    }

    #[test]
    fn a_grid_that_has_not_ended_selects_nothing() {
        let mut unfinished = run("gd:lr=2", 1, None);
        unfinished.standing = Standing::Unfinished;
        let all = comparison(vec![
            run("gd:lr=1", 1, None),
            unfinished,
            run("clipped-gd:lr=1,threshold=1", 1, Some((2.0, 2.0))),
            run("gd:lr=1", 2, None),
            run("gd:lr=2", 2, None),
        ]);
        let of = |key: &str| all.method(T, key).unwrap();
        assert!(
            matches!(of("gd").outcome(1), Outcome::Unfinished)
                && matches!(of("gd").outcome(2), Outcome::AllDiverged)
        );
        assert!(matches!(of("clipped-gd").outcome(1), Outcome::Unfinished), "gd's runs are part of its grid");
        assert_eq!((of("gd").cost(), of("clipped-gd").cost()), (Some(20), None));
    }

    #[test]
    fn what_surrounds_a_rule_is_a_parameter_too() {
        let decayed = |decay: f64, losses| {
            let mut run = run("dog", 1, Some(losses));
            run.config.optimizer.weight_decay = decay;
            run
        };
        let all = comparison(vec![decayed(0.1, (3.0, 3.0)), decayed(0.2, (2.0, 2.0))]);
        let dog = all.method(T, "dog").unwrap();
        assert_eq!(
            dog.variants().into_iter().collect::<Vec<_>>(),
            ["dog, optimizer.weight_decay=0.1", "dog, optimizer.weight_decay=0.2"]
        );
        assert_eq!(dog.test().unwrap().mean, 2.0);
    }

    #[test]
    fn other_experiments_stay_apart() {
        let mut other = run("dog", 1, None);
        other.config.batch = 3;
        let mut longer = run("dog", 1, None);
        longer.config.steps = Some(20);
        let all = compare(vec![run("dog", 1, None), other, longer]);
        let horizons: Vec<_> = all.iter().map(|c| c.horizons()).collect();
        let of = Horizon::Steps;
        assert_eq!(
            horizons,
            [vec![of(10)], vec![of(10), of(20)]],
            "another batch is another experiment, another T is not"
        );
        assert_eq!(
            [&all[0].slug, &all[1].slug],
            ["x-quick", "x-quick-2"],
            "their figures must not share a file"
        );
    }
}
