//! `untuned minimize`.

use std::fmt::Write;
use std::ops::ControlFlow;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use untuned::minimize::{Iterate, Snapshot};
use untuned::spec::number;
use untuned::{MethodSpec, Minimizer, Outcome, Problem, Run, RunInfo};
use untuned_lab::trace::TraceFile;
use untuned_theory::explain::Accuracy;
use untuned_theory::{Explainer, Explanation, ProblemSpec};

use crate::args::Minimize;
use crate::end::End;
use crate::{interrupt, output};

/// What `--json` prints.
#[derive(Serialize)]
struct Printed {
    problem: String,
    rule: String,
    steps: u64,
    #[serde(rename = "final")]
    last: Value,
    best: Best,
    average: Option<Value>,
    outcome: &'static str,
    /// The step at which a run ended early, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
    below_bound: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
}

#[derive(Serialize)]
struct Value {
    loss: f64,
    gap: Option<f64>,
}

#[derive(Serialize)]
struct Best {
    loss: f64,
    gap: Option<f64>,
    step: u64,
}

#[derive(Serialize)]
struct Ended {
    step: u64,
    why: String,
}

pub fn run(args: &Minimize) -> Result<(), End> {
    let problem_spec: ProblemSpec = args.problem.parse().map_err(End::request)?;
    let rule_spec: MethodSpec = args.rule.parse().map_err(End::request)?;
    let problem = problem_spec.build().map_err(End::request)?;
    let problem = problem.as_ref();
    let run_info = RunInfo::of(problem, args.steps);
    let method = rule_spec.build(&run_info).map_err(End::request)?;
    if args.explain {
        // The paper's theory is about scalar rules.
        let rule = rule_spec.build_rule(&run_info);
        rule.map_err(|error| End::request(anyhow::anyhow!("--explain: {error}")))?;
    }
    let f_star = problem.known().f_star;

    let mut trace = match &args.trace {
        Some(path) => {
            output::check_parent(path, "--trace")?;
            let file = TraceFile::create(path, f_star);
            Some(file.map_err(|e| End::io(e, format!("--trace {}", path.display())))?)
        }
        None => None,
    };
    let bar = progress_bar(args.steps);
    let mut watch = |i: &Iterate<'_>| {
        if i.step.is_multiple_of(4096) {
            bar.set_position(i.step);
        }
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };

    let mut explainer = args.explain.then_some(&rule_spec).map(|rule| {
        let bound =
            if rule.spec().info().has("lower_bound") { rule.spec().number("lower_bound") } else { 0.0 };
        let explainer = Explainer::new(problem, rule, bound, args.steps).accuracy(accuracy(problem, f_star));
        if problem_spec.name() == "quartic" { explainer.quartic() } else { explainer }
    });
    let mut minimizer = Minimizer::new(problem).trace(false).average(Some(args.average)).observe(&mut watch);
    if let Some(trace) = &mut trace {
        minimizer = minimizer.observe(trace);
    }
    if let Some(explainer) = &mut explainer {
        minimizer = minimizer.observe(explainer);
    }
    let start = problem.start();
    let run = minimizer.run(method, &start, args.steps).map_err(End::request)?;
    bar.finish_and_clear();
    if let (Some(trace), Some(path)) = (trace, &args.trace) {
        trace.finish().map_err(|e| End::io(e, format!("cannot write {}", path.display())))?;
    }

    let explanation = explainer.map(|e| e.finish(&run));

    let printed = if args.json {
        let result = Printed { explanation, ..result(args, &problem_spec, &rule_spec, f_star, &run) };
        output::print_json(&result)
    } else {
        let explained = explanation.map_or(String::new(), |e| format!("\n{}", e.text()));
        output::print(&(words(args, &problem_spec, &rule_spec, f_star, &run) + &explained))
    };
    // A reader that went away changes nothing of how the run ended.
    printed.or_else(|end| if matches!(end, End::BrokenPipe) { Ok(()) } else { Err(end) })?;
    for note in notes(&rule_spec, f_star, &run).into_iter().chain(run.warning.clone()) {
        output::say(&format!("note: {note}"));
    }
    match run.outcome {
        Outcome::Stopped { .. } => Err(End::Interrupted),
        Outcome::Diverged { .. } | Outcome::Refused(_) => {
            let why = ended(&run).map_or(String::new(), |e| e.why);
            output::say(&format!("the run ended early: {why}"));
            Err(End::Run)
        }
        Outcome::Finished | Outcome::Stationary => Ok(()),
    }
}

/// What the gap may be off by beyond the rounding of the loss itself: some of the minima are computed, to 1e-12. The
/// quartic's is exact.
fn accuracy(problem: &dyn Problem, f_star: Option<f64>) -> Accuracy {
    let computed = problem.dimension() > 1;
    let value = if computed { 1e-12 * f_star.unwrap_or(0.0).abs().max(1.0) } else { 0.0 };
    Accuracy { value, ..Accuracy::default() }
}

/// A bar for runs of which somebody might see a part.
fn progress_bar(steps: u64) -> ProgressBar {
    if steps < 100_000 || !output::progress_is_seen() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} steps, {eta} left");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn ended(run: &Run) -> Option<Ended> {
    match &run.outcome {
        Outcome::Finished | Outcome::Stationary => None,
        Outcome::Diverged { step } => {
            let loss = run.last.loss;
            let what = if loss.is_finite() {
                "the gradient is not finite".to_string()
            } else {
                format!("the loss is {loss}")
            };
            Some(Ended { step: *step, why: format!("step {step}: {what}") })
        }
        Outcome::Refused(refusal) => Some(Ended { step: run.last.step, why: refusal.to_string() }),
        Outcome::Stopped { step } => Some(Ended { step: *step, why: "interrupted".to_string() }),
    }
}

fn outcome(run: &Run) -> &'static str {
    match run.outcome {
        Outcome::Stopped { .. } => "interrupted",
        other => other.word(),
    }
}

fn result(
    args: &Minimize,
    problem: &ProblemSpec,
    rule: &MethodSpec,
    f_star: Option<f64>,
    run: &Run,
) -> Printed {
    let gap = |snapshot: &Snapshot| f_star.map(|f| snapshot.loss - f);
    let value = |snapshot: &Snapshot| Value { loss: snapshot.loss, gap: gap(snapshot) };
    Printed {
        problem: problem.to_string(),
        rule: rule.to_string(),
        steps: args.steps,
        last: value(&run.last),
        best: Best { loss: run.best.loss, gap: gap(&run.best), step: run.best.step },
        average: run.average.as_ref().map(value),
        outcome: outcome(run),
        ended: ended(run),
        below_bound: run.below_bound,
        explanation: None,
    }
}

fn words(
    args: &Minimize,
    problem: &ProblemSpec,
    rule: &MethodSpec,
    f_star: Option<f64>,
    run: &Run,
) -> String {
    let mut text = format!("{problem} with {rule}, {} steps: {}\n\n", args.steps, outcome(run));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {:8} {:<24} gap", "", "loss");
    let mut row = |name: &str, snapshot: &Snapshot, note: String| {
        let gap = f_star.map_or("not known".to_string(), |f| gap_in_words(snapshot.loss, f));
        let _ = writeln!(text, "  {name:8} {:<24} {gap:<26} {note}", number(snapshot.loss));
    };
    row("last", &run.last, format!("at step {}", run.last.step));
    row("best", &run.best, format!("at step {}", run.best.step));
    if let Some(average) = &run.average {
        row("average", average, format!("{}, of the steps made", args.average));
    }
    text
}

/// What the user should know besides the result.
fn notes(rule: &MethodSpec, f_star: Option<f64>, run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if run.below_bound > 0 {
        let steps = run.below_bound;
        notes.push(format!(
            "the loss was below the rule's lower bound at {steps} steps: the bound is too high"
        ));
    }
    let given = ["lower_bound", "f_star"].into_iter().filter(|key| rule.spec().info().has(key));
    for (key, bound) in given.filter_map(|key| Some((key, rule.spec().optional(key)?))) {
        if let Some(f_star) = f_star.filter(|f| bound > *f) {
            let (bound, f_star) = (number(bound), number(f_star));
            notes.push(format!(
                "{key}={bound} is above the minimum {f_star}: the rule cannot get below {key}"
            ));
        }
    }
    // Without f*, against 0: few losses are negative.
    let (last, best) = (run.last.loss - f_star.unwrap_or(0.0), run.best.loss - f_star.unwrap_or(0.0));
    if last.is_finite() && best >= 0.0 && last > 10.0 * best.max(1e-15) {
        let what = if f_star.is_some() { "gap" } else { "loss" };
        notes.push(format!(
            "the last iterate is far worse than the best one ({what} {last:.2e} against {best:.2e}): use the best"
        ));
    }
    notes
}

/// The gap, or that it is too small to tell from rounding: a gap of 0 proves nothing.
fn gap_in_words(loss: f64, f_star: f64) -> String {
    let gap = loss - f_star;
    let rounding = f64::EPSILON * loss.abs().max(f_star.abs());
    if gap.is_finite() && gap.abs() <= rounding && rounding > 0.0 {
        format!("below rounding ({rounding:.1e})")
    } else {
        number(gap)
    }
}
