//! What the paper says of its networks, each claim with the numbers that decide it.

use super::is_full;
use crate::claims::{Claim, Decided, Verdict};
use crate::compare::{AllCurves, Comparison, Fit, Method, Outcome, parameters, shown_loss, shown_range};
use crate::runs::Horizon;
use crate::train::Model;

/// The methods without anything to tune, in the paper's comparison.
const PARAMETER_FREE: [&str; 5] = ["inexact-polyak", "decsps", "adasps", "dog", "polyak-bound"];
/// “Well below the initial loss”: at least a quarter of it is gone.
const WELL_BELOW: f64 = 0.75;
/// “Far above the rest”: by a quarter.
const FAR_ABOVE: f64 = 1.25;
/// “Very unstable”: at some evaluation the test loss is so many times the lowest before it.
const UNSTABLE: f64 = 1.5;
/// “Does not matter”: the last and the best differ by so much of the best.
const SAME: f64 = 0.02;
/// “Correlates”.
const CORRELATED: f64 = 0.5;

/// The twelve claims, from the comparisons of the three networks with their curves. Of several of one network the one with the most of the
/// paper's methods counts, then the one with the most runs.
pub fn claims(comparisons: &[(&Comparison, &AllCurves)]) -> Claims {
    let of = |model: Model| {
        let networks = comparisons.iter().filter(|(c, _)| c.model == model);
        let networks = networks.filter_map(|(comparison, curves)| Network::of(comparison, curves));
        // Of equals the first.
        networks.rev().max_by_key(|n| (n.methods_of_the_paper(), n.comparison.runs.len()))
    };
    let networks: Vec<Network<'_>> = ALL.into_iter().filter_map(of).collect();
    // A verdict is about one scale: the one with the most methods.
    let methods = |scale: &str| {
        let of_scale = networks.iter().filter(|network| network.comparison.scale == scale);
        of_scale.map(Network::methods_of_the_paper).sum::<usize>()
    };
    let scale = networks.iter().map(|n| n.comparison.scale.clone()).max_by_key(|scale| methods(scale));
    let of_scale = |network: &Network<'_>| Some(&network.comparison.scale) == scale.as_ref();
    let facts = Facts { networks: networks.into_iter().filter(of_scale).collect() };
    let claims: [(&str, Decide); 12] = [
        ("Inexact Polyak is below DecSPS and AdaSPS on every network.", below_the_decreasing),
        ("DoG is the lowest parameter-free method on the LSTM.", |f| lowest(f, "dog", Model::Lstm)),
        ("DoG is very unstable on Nano-GPT and much higher than the others.", dog_on_gpt),
        ("Polyak with f* = 0 is the lowest parameter-free method on T5.", |f| {
            lowest(f, "polyak-bound", Model::T5)
        }),
        ("Polyak with f* = 0 diverges on the LSTM and Nano-GPT.", polyak_diverges),
        ("On T5, DecSPS and AdaSPS are far above the rest.", decreasing_far_above),
        ("Inexact Polyak trains every network.", trains),
        ("For networks the best iterate does not matter (last ≈ best).", last_and_best),
        ("The hyperparameters that the grid selects are the paper's.", selected),
        ("Nano-GPT with other numbers of steps ranks the methods the same.", other_horizons),
        ("Clipped SGD is at least as good as SGD.", clipping_helps),
        ("Local smoothness correlates with the gradient norm, and L/L₀ is in the thousands.", smoothness),
    ];
    let number = |(i, (claim, decide)): (usize, (&str, Decide))| decide(&facts).claim(i, claim);
    Claims { claims: claims.into_iter().enumerate().map(number).collect(), scale }
}

/// The claims on networks, and the scale of the runs that decide them.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// All twelve; none where no run has to do with them.
    pub claims: Vec<Claim>,
    /// The scale; nothing where there is no run.
    pub scale: Option<String>,
}

/// A network's comparison at its main horizon.
struct Network<'a> {
    comparison: &'a Comparison,
    curves: &'a AllCurves,
    methods: Vec<Method<'a>>,
}

impl<'a> Network<'a> {
    fn of(comparison: &'a Comparison, curves: &'a AllCurves) -> Option<Network<'a>> {
        let horizon = comparison.main_horizon()?;
        Some(Network { comparison, curves, methods: comparison.methods(horizon) })
    }

    fn methods_of_the_paper(&self) -> usize {
        let of_paper = PARAMETER_FREE.iter().chain(&["gd", "clipped-gd"]);
        of_paper.filter(|key| self.method(key).is_some()).count()
    }

    fn name(&self) -> &'static str {
        self.comparison.title()
    }

    fn method(&self, key: &str) -> Option<&Method<'a>> {
        self.methods.iter().find(|method| method.key == key)
    }

    /// Final test losses, last and best, of some methods.
    fn rows(&self, keys: &[&str]) -> Vec<Vec<String>> {
        let row = |method: &Method<'_>| {
            vec![
                self.name().to_string(),
                method.name(),
                shown_loss(method.test()),
                shown_range(method.test()),
                shown_loss(method.best_test()),
                if method.diverged() { "diverged".to_string() } else { String::new() },
            ]
        };
        keys.iter().filter_map(|key| self.method(key)).map(row).collect()
    }
}

struct Facts<'a> {
    networks: Vec<Network<'a>>,
}

impl<'a> Facts<'a> {
    fn network(&self, model: Model) -> Option<&Network<'a>> {
        self.networks.iter().find(|network| network.comparison.model == model)
    }

    /// The table of some methods on some networks.
    fn table(&self, models: &[Model], keys: &[&str]) -> Vec<Vec<String>> {
        let header = ["network", "method", "test loss", "range", "test loss of the best", ""];
        let networks = models.iter().filter_map(|model| self.network(*model));
        let rows = networks.flat_map(|network| network.rows(keys));
        std::iter::once(header.map(String::from).to_vec()).chain(rows).collect()
    }
}

const ALL: [Model; 3] = [Model::Lstm, Model::Gpt, Model::T5];

/// Decides one claim.
type Decide = fn(&Facts<'_>) -> Decided;

/// Whether something is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// The seeds overlap, or there are too few of them, or something was not run.
    Open,
}

impl Answer {
    fn of(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }

    fn and(self, other: Answer) -> Answer {
        match (self, other) {
            (Answer::No, _) | (_, Answer::No) => Answer::No,
            (Answer::Yes, Answer::Yes) => Answer::Yes,
            _ => Answer::Open,
        }
    }
}

/// Of several answers: some yes and some no hold in part; as long as one is open and the others agree, nothing is decided.
fn verdict(answers: &[Answer]) -> Verdict {
    let has = |answer| answers.contains(&answer);
    match (has(Answer::Yes), has(Answer::No), has(Answer::Open)) {
        (true, true, _) => Verdict::HoldsInPart,
        (true, false, false) => Verdict::Holds,
        (false, true, false) => Verdict::DoesNotHold,
        _ => Verdict::NotDecided,
    }
}

/// Whether `a` ends below `b` whatever the seed.
fn below(a: Option<&Method<'_>>, b: Option<&Method<'_>>) -> Answer {
    above(b, a, 1.0)
}

/// Whether `a` ends above so many times `b` whatever the seed: their ranges must not overlap, one seed has no range, and one that
/// diverged is above all that did not. As long as either has not ended, that is open.
fn above(a: Option<&Method<'_>>, b: Option<&Method<'_>>, times: f64) -> Answer {
    let (Some(a), Some(b)) = (a, b) else { return Answer::Open };
    let ended = |method: &Method<'_>| method.test().filter(|spread| spread.count > 1 && !method.diverged());
    match (ended(a), ended(b)) {
        (None, Some(_)) if a.diverged() => Answer::Yes,
        (Some(_), None) if b.diverged() => Answer::No,
        (Some(a), Some(b)) if a.low > times * b.high => Answer::Yes,
        (Some(a), Some(b)) if a.high < times * b.low => Answer::No,
        _ => Answer::Open,
    }
}

/// “Inexact Polyak 2.31”, “DoG diverged”.
fn result(method: &Method<'_>) -> String {
    match method.test() {
        _ if method.diverged() => format!("{} diverged", method.name()),
        Some(spread) => format!("{} {:.3}", method.name(), spread.mean),
        None if method.missing().1 > 0 => format!("{} failed", method.name()),
        None => format!("{} not finished", method.name()),
    }
}

fn results(network: &Network<'_>, keys: &[&str]) -> String {
    let all: Vec<String> = keys.iter().filter_map(|key| network.method(key)).map(result).collect();
    let all = if all.is_empty() { "not run".to_string() } else { all.join(", ") };
    format!("{}: {all}", network.name())
}

fn on_networks(facts: &Facts<'_>, models: &[Model], keys: &[&str]) -> String {
    let networks = models.iter().filter_map(|model| facts.network(*model));
    let all: Vec<String> = networks.map(|network| results(network, keys)).collect();
    if all.is_empty() { "Not run".to_string() } else { all.join("; ") }
}

fn below_the_decreasing(facts: &Facts<'_>) -> Decided {
    let keys = ["inexact-polyak", "decsps", "adasps"];
    let answers: Vec<Answer> = ALL
        .iter()
        .flat_map(|model| {
            let network = facts.network(*model);
            let method = move |key: &str| network.and_then(|n| n.method(key));
            ["decsps", "adasps"].map(|other| below(method("inexact-polyak"), method(other)))
        })
        .collect();
    Decided {
        verdict: verdict(&answers),
        measured: on_networks(facts, &ALL, &keys),
        table: facts.table(&ALL, &keys),
    }
}

/// Whether a method is below all other parameter-free ones: one that is above any settles it.
fn lowest(facts: &Facts<'_>, key: &str, model: Model) -> Decided {
    let network = facts.network(model);
    let others = PARAMETER_FREE.iter().filter(|other| **other != key);
    let method = |key: &str| network.and_then(|n| n.method(key));
    let answer = others.map(|other| below(method(key), method(other))).fold(Answer::Yes, Answer::and);
    Decided {
        verdict: verdict(&[answer]),
        measured: on_networks(facts, &[model], &PARAMETER_FREE),
        table: facts.table(&[model], &PARAMETER_FREE),
    }
}

fn dog_on_gpt(facts: &Facts<'_>) -> Decided {
    let network = facts.network(Model::Gpt);
    let method = |key: &str| network.and_then(|n| n.method(key));
    let others = ["inexact-polyak", "decsps", "adasps"];
    let higher = others
        .map(|other| above(method("dog"), method(other), FAR_ABOVE))
        .into_iter()
        .fold(Answer::Yes, Answer::and);
    let curves = network.zip(method("dog")).and_then(|(network, dog)| network.curves.of(dog));
    let rise = curves.and_then(|curves| curves.rise);
    let unstable = rise.map_or(Answer::Open, |rise| Answer::of(rise > UNSTABLE));
    let measured = on_networks(facts, &[Model::Gpt], &PARAMETER_FREE);
    Decided {
        verdict: verdict(&[higher, unstable]),
        measured: match rise {
            Some(rise) => format!("{measured}; DoG's test loss is at most {rise:.2} times its lowest before"),
            None => measured,
        },
        table: facts.table(&[Model::Gpt], &PARAMETER_FREE),
    }
}

fn polyak_diverges(facts: &Facts<'_>) -> Decided {
    let models = [Model::Lstm, Model::Gpt];
    let answer = |model: &Model| {
        let polyak = facts.network(*model).and_then(|n| n.method("polyak-bound"));
        let ended = polyak.filter(|polyak| polyak.test().is_some() || polyak.diverged());
        ended.map_or(Answer::Open, |polyak| Answer::of(polyak.diverged()))
    };
    let keys = ["polyak-bound", "inexact-polyak"];
    Decided {
        verdict: verdict(&models.iter().map(answer).collect::<Vec<_>>()),
        measured: on_networks(facts, &models, &keys),
        table: facts.table(&models, &keys),
    }
}

fn decreasing_far_above(facts: &Facts<'_>) -> Decided {
    let network = facts.network(Model::T5);
    let method = |key: &str| network.and_then(|n| n.method(key));
    let rest = ["inexact-polyak", "dog", "polyak-bound", "gd", "clipped-gd"];
    let answer = |key: &str| {
        rest.iter().map(|other| above(method(key), method(other), FAR_ABOVE)).fold(Answer::Yes, Answer::and)
    };
    let keys = ["decsps", "adasps", "inexact-polyak", "dog", "polyak-bound", "gd", "clipped-gd"];
    Decided {
        verdict: verdict(&[answer("decsps"), answer("adasps")]),
        measured: on_networks(facts, &[Model::T5], &keys),
        table: facts.table(&[Model::T5], &keys),
    }
}

fn trains(facts: &Facts<'_>) -> Decided {
    let mut words = Vec::new();
    let mut answer = |model: &Model| {
        let Some(network) = facts.network(*model) else { return Answer::Open };
        let Some(method) = network.method("inexact-polyak") else { return Answer::Open };
        let first = network.curves.of(method).and_then(|curves| curves.test.first()?.1).map(|s| s.mean);
        match (method.test(), first) {
            (Some(last), Some(first)) => {
                words.push(format!("{} {first:.3} → {:.3}", network.name(), last.mean));
                Answer::of(!method.diverged() && last.high < WELL_BELOW * first)
            }
            _ if method.diverged() => Answer::No,
            _ => Answer::Open,
        }
    };
    let answers: Vec<Answer> = ALL.iter().map(&mut answer).collect();
    Decided {
        verdict: verdict(&answers),
        measured: if words.is_empty() {
            "Not run".to_string()
        } else {
            format!("Test loss: {}", words.join(", "))
        },
        table: facts.table(&ALL, &["inexact-polyak"]),
    }
}

fn last_and_best(facts: &Facts<'_>) -> Decided {
    let (mut answers, mut same) = (Vec::new(), 0);
    let mut largest: Option<(f64, String)> = None;
    for network in &facts.networks {
        for method in network.methods.iter().filter(|method| !method.diverged()) {
            let (Some(last), Some(best)) = (method.test(), method.best_test()) else { continue };
            let away = (last.mean - best.mean).abs() / best.mean;
            // One seed decides nothing.
            answers.push(if last.count > 1 { Answer::of(away <= SAME) } else { Answer::Open });
            same += usize::from(away <= SAME);
            if largest.as_ref().is_none_or(|(so_far, _)| away > *so_far) {
                largest = Some((away, format!("{} on {}", method.name(), network.name())));
            }
        }
    }
    let keys: Vec<&str> = facts.networks.iter().flat_map(|n| &n.methods).map(|m| m.key.as_str()).collect();
    let keys: std::collections::BTreeSet<&str> = keys.into_iter().collect();
    Decided {
        verdict: verdict(&answers),
        measured: match largest {
            Some((away, who)) => format!(
                "Of {} methods that did not diverge, {same} end within 2 % of their best evaluation's test loss; the farthest is {who}, {:.1} %",
                answers.len(),
                100.0 * away
            ),
            None => "Not run".to_string(),
        },
        table: facts.table(&ALL, &keys.into_iter().collect::<Vec<_>>()),
    }
}

/// The paper's table of selected hyperparameters, seed by seed.
fn papers_selection(model: Model) -> (&'static str, &'static str) {
    match model {
        Model::Lstm => ("10 / 10 / 10", "(10, 0.5) / (50, 1) / (50, 0.5)"),
        Model::Gpt => ("0.001 / 0.001 / 0.001", "(0.001, ∞) / (0.001, 10) / (0.001, 10)"),
        Model::T5 => ("0.1 / 0.1 / 0.05", "(1, 2) / (1, 2) / (1, 2)"),
    }
}

fn selected(facts: &Facts<'_>) -> Decided {
    let mut table =
        vec![["network", "method", "selected here, seed by seed", "in the paper"].map(String::from).to_vec()];
    let (mut words, mut answers) = (Vec::new(), Vec::new());
    for network in &facts.networks {
        let (gd, clipped) = papers_selection(network.comparison.model);
        for (key, paper) in [("gd", gd), ("clipped-gd", clipped)] {
            let Some(method) = network.method(key).filter(|method| method.is_tuned()) else { continue };
            let of_seed = |seed: &u64| match method.outcome(*seed) {
                Outcome::Chosen(chosen) => pair(key, &chosen.run.config.rule.to_string()),
                _ => "–".to_string(),
            };
            let ours: Vec<String> = method.seeds().iter().map(of_seed).collect();
            words.push(format!("{} on {}: {}", method.name(), network.name(), parameters(method)));
            let at_paper = is_full(&network.comparison.scale);
            let seed_by_seed =
                ours.iter().zip(paper.split(" / ")).map(|(ours, paper)| Answer::of(ours == paper));
            if at_paper {
                answers.extend(seed_by_seed)
            } else {
                answers.push(Answer::Open)
            }
            table.push(vec![network.name().into(), method.name(), ours.join(" / "), paper.into()]);
        }
    }
    Decided {
        verdict: verdict(&answers),
        measured: match words.is_empty() {
            true => "Not run".to_string(),
            false if answers.contains(&Answer::Open) => {
                format!(
                    "{} (smaller networks, so that the paper's values need not be theirs)",
                    words.join("; ")
                )
            }
            false => words.join("; "),
        },
        table,
    }
}

/// As the paper writes what was selected for a method: a rate, or a rate and a threshold.
fn pair(method: &str, rule: &str) -> String {
    let values: Vec<&str> =
        rule.split([':', ',']).filter_map(|p| p.split_once('=')).map(|(_, v)| v).collect();
    match values.as_slice() {
        [rate] if method == "gd" => rate.to_string(),
        [rate] | [rate, "inf"] => format!("({rate}, ∞)"),
        [rate, threshold] => format!("({rate}, {threshold})"),
        _ => rule.to_string(),
    }
}

fn other_horizons(facts: &Facts<'_>) -> Decided {
    let not_run = || Decided { verdict: Verdict::NotDecided, measured: "Not run".into(), table: Vec::new() };
    let Some(network) = facts.network(Model::Gpt) else { return not_run() };
    let horizons = network.comparison.horizons();
    let (mut same, mut reversed, mut open) = (0, 0, 0);
    let methods: Vec<_> = horizons.iter().map(|horizon| network.comparison.methods(*horizon)).collect();
    for (at, here) in methods.iter().enumerate() {
        for there in &methods[at + 1..] {
            let find = |key: &str| there.iter().find(|method| method.key == key);
            for (i, a) in here.iter().enumerate() {
                for b in here[..i].iter().filter(|b| find(&a.key).is_some() && find(&b.key).is_some()) {
                    match (below(Some(a), Some(b)), below(find(&a.key), find(&b.key))) {
                        (Answer::Open, _) | (_, Answer::Open) => open += 1,
                        (here, there) if here == there => same += 1,
                        _ => reversed += 1,
                    }
                }
            }
        }
    }
    if same + reversed + open == 0 {
        return not_run();
    }
    let ranking = |horizon: Horizon| {
        let mut methods: Vec<(f64, String)> = network
            .comparison
            .methods(horizon)
            .iter()
            .filter(|method| !method.diverged())
            .filter_map(|method| Some((method.test()?.mean, method.name())))
            .collect();
        methods.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ranked: Vec<String> = methods.iter().map(|(loss, name)| format!("{name} {loss:.3}")).collect();
        vec![format!("T = {horizon}"), ranked.join(" < ")]
    };
    let mut table = vec![vec!["T".to_string(), "from the lowest test loss".to_string()]];
    table.extend(horizons.into_iter().map(ranking));
    Decided {
        verdict: match (same, reversed) {
            (_, 1..) if same > 0 => Verdict::HoldsInPart,
            (_, 1..) => Verdict::DoesNotHold,
            (1.., 0) => Verdict::Holds,
            _ => Verdict::NotDecided,
        },
        measured: format!(
            "Of the pairs of methods that were run with two T, {same} are ranked the same at both and {reversed} the other way round; {open} the \
             seeds do not tell apart"
        ),
        table,
    }
}

fn clipping_helps(facts: &Facts<'_>) -> Decided {
    let keys = ["gd", "clipped-gd"];
    let answer = |model: &Model| {
        let network = facts.network(*model);
        let [gd, clipped] = keys.map(|key| network.and_then(|n| n.method(key)));
        match (below(gd, clipped), gd.and_then(Method::test), clipped.and_then(Method::test)) {
            (Answer::Yes, ..) => Answer::No,
            (Answer::No, ..) => Answer::Yes,
            // At least as good: the seeds may overlap.
            (_, Some(gd), Some(clipped)) if clipped.count > 1 && clipped.mean <= gd.mean => Answer::Yes,
            _ => Answer::Open,
        }
    };
    Decided {
        verdict: verdict(&ALL.iter().map(answer).collect::<Vec<_>>()),
        measured: on_networks(facts, &ALL, &keys),
        table: facts.table(&ALL, &keys),
    }
}

fn smoothness(facts: &Facts<'_>) -> Decided {
    let header = [
        "network",
        "method",
        "points",
        "correlation",
        "L₀",
        "L₁",
        "largest smoothness",
        "smallest",
        "largest/smallest",
    ];
    let mut table = vec![header.map(String::from).to_vec()];
    let (mut answers, mut words) = (Vec::new(), Vec::new());
    for network in &facts.networks {
        for method in &network.methods {
            let Some(curves) = network.curves.of(method) else { continue };
            let Some(Fit { line, regression }) = curves.smoothness_fit() else { continue };
            let points = &curves.smoothness;
            let largest = points.iter().map(|p| p[1]).fold(0.0, f64::max);
            let smallest = points.iter().map(|p| p[1]).fold(f64::INFINITY, f64::min);
            // The smallest smoothness stands for L₀, which a line through the origin does not tell.
            let (correlation, ratio) = (regression.correlation.unwrap_or(0.0), largest / smallest);
            table.push(vec![
                network.name().into(),
                method.name(),
                points.len().to_string(),
                format!("{correlation:.2}"),
                format!("{:.3}", line.l0),
                format!("{:.3}", line.l1),
                format!("{largest:.3}"),
                format!("{smallest:.3}"),
                format!("{ratio:.0}"),
            ]);
            if method.key == "inexact-polyak" {
                answers.extend([Answer::of(correlation > CORRELATED), Answer::of(ratio >= 1000.0)]);
                words.push(format!(
                    "{}: correlation {correlation:.2}, largest over smallest smoothness {ratio:.0}",
                    network.name()
                ));
            }
        }
    }
    Decided {
        verdict: verdict(&answers),
        measured: match words.is_empty() {
            true => "Not measured".to_string(),
            false => format!("Along Inexact Polyak's runs, {}", words.join("; ")),
        },
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{compare, tests::run};

    #[test]
    fn verdicts_of_several_answers() {
        use Answer::{No, Open, Yes};
        for (answers, wanted) in [
            (&[Yes, Yes][..], Verdict::Holds),
            (&[No, No], Verdict::DoesNotHold),
            (&[Yes, No, Open], Verdict::HoldsInPart),
            (&[Yes, Open], Verdict::NotDecided),
            (&[No, Open], Verdict::NotDecided),
            (&[], Verdict::NotDecided),
        ] {
            assert_eq!(verdict(answers), wanted, "{answers:?}");
        }
    }

    #[test]
    fn without_runs_nothing_is_decided() {
        let all = claims(&[]).claims;
        assert_eq!(all.len(), 12);
        assert!(all.iter().all(|claim| claim.verdict == Verdict::NotDecided), "{all:?}");
    }

    /// DoG is above with 10 steps, overlaps with 20, and is below with 30; AdaSPS, with 10 and 20 only, is above both.
    #[test]
    fn every_two_horizons_are_compared() {
        let ended = |steps: u64, rule: &'static str, losses: [f64; 2]| {
            losses.into_iter().zip(1..).map(move |(loss, seed)| {
                let mut run = run(rule, seed, Some((loss, loss)));
                run.config.steps = Some(steps);
                run
            })
        };
        let runs = ended(10, "dog", [3.0, 3.1])
            .chain(ended(10, "decsps", [2.0, 2.1]))
            .chain(ended(10, "adasps", [4.0, 4.1]))
            .chain(ended(20, "dog", [2.0, 2.2]))
            .chain(ended(20, "decsps", [2.1, 2.3]))
            .chain(ended(20, "adasps", [3.0, 3.1]))
            .chain(ended(30, "dog", [1.0, 1.1]))
            .chain(ended(30, "decsps", [1.5, 1.6]));
        let comparisons = compare(runs.collect());
        let claim = &claims(&[(&comparisons[0], &AllCurves::default())]).claims[9];
        assert!(claim.claim.contains("other numbers of steps"), "{claim:?}");
        assert_eq!(claim.verdict, Verdict::HoldsInPart);
        let counted =
            "2 are ranked the same at both and 1 the other way round; 2 the seeds do not tell apart";
        assert!(claim.measured.contains(counted), "{claim:?}");
    }

    #[test]
    fn pairs_as_the_paper_writes_them() {
        assert_eq!(pair("gd", "gd:lr=0.1"), "0.1");
        assert_eq!(pair("clipped-gd", "clipped-gd:lr=50,threshold=0.5"), "(50, 0.5)");
        for unclipped in ["gd:lr=0.001", "clipped-gd:lr=0.001,threshold=inf"] {
            assert_eq!(pair("clipped-gd", unclipped), "(0.001, ∞)");
        }
    }
}
