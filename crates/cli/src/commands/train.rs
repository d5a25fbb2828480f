//! `untuned train`.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use toml::Value;
use untuned::spec;
use untuned_lab::train::checkpoint::{self, Evaluation};
use untuned_lab::train::run::{Beginning, Stepped};
use untuned_lab::train::{
    Ended, Options, Outcome, Overrides, Sinks, Summary, TrainError, Watch, folder, train,
};

use crate::args::Train;
use crate::end::End;
use crate::{interrupt, output};

/// The numbers beside the bar change this often.
const REFRESH: Duration = Duration::from_millis(100);

pub fn run(args: &Train) -> Result<(), End> {
    let typed = Typed {
        rule: args.rule.as_deref(),
        steps: args.steps,
        seed: args.seed,
        device: args.device.as_deref(),
        precision: args.precision.as_deref(),
        data: args.data.as_deref(),
        set: &args.set,
    };
    let overrides = typed.overrides(args.scale.clone())?;
    let opened = folder::open(&args.experiment, &overrides, args.out.as_deref(), args.resume);
    let opened = opened.map_err(End::train)?;
    let mut progress = Progress::new();
    let ended = train(&opened, &options(args), &mut progress);
    progress.finish();
    let ended = ended.map_err(|error| failed(error, &opened.folder))?;
    report(args, &opened.folder, &ended)
}

fn options(args: &Train) -> Options {
    let sinks = Sinks { csv: args.csv, tensorboard: args.tensorboard };
    Options { threads: args.threads.map(usize::from), sinks, drops_weights: false }
}

/// What was typed beside a file's name and its scale.
#[derive(Default)]
pub struct Typed<'a> {
    pub rule: Option<&'a str>,
    pub steps: Option<u64>,
    pub seed: Option<u64>,
    pub device: Option<&'a str>,
    pub precision: Option<&'a str>,
    pub data: Option<&'a Path>,
    pub set: &'a [String],
}

impl Typed<'_> {
    /// As overrides of a file; data that was not named is where `UNTUNED_DATA` says.
    pub fn overrides(&self, scale: Option<String>) -> Result<Overrides, End> {
        let data = std::env::var("UNTUNED_DATA").ok().filter(|data| !data.is_empty());
        let mut overrides = Overrides { scale, default_data: data, ..Overrides::default() };
        for text in self.set {
            overrides.set(text).map_err(End::request)?;
        }
        let whole = |key: &str, value: u64| match i64::try_from(value) {
            Ok(value) => Ok(Value::Integer(value)),
            Err(_) => Err(End::Request(anyhow::anyhow!("--{key} {value}: give at most {}", i64::MAX))),
        };
        let text = |value: &str| Value::String(value.into());
        let typed = [
            ("rule", self.rule.map(text)),
            ("steps", self.steps.map(|steps| whole("steps", steps)).transpose()?),
            ("seed", self.seed.map(|seed| whole("seed", seed)).transpose()?),
            ("device", self.device.map(text)),
            ("precision", self.precision.map(text)),
            ("data", self.data.map(|data| text(&data.to_string_lossy()))),
        ];
        let typed = typed.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?)));
        overrides.values.extend(typed);
        Ok(overrides)
    }
}

/// An error in the middle of a run leaves its last checkpoint.
fn failed(error: TrainError, folder: &Path) -> End {
    let kept = checkpoint::list(&folder.join(folder::CHECKPOINT));
    if !error.is_request() && kept.is_ok_and(|kept| !kept.is_empty()) {
        output::say(&format!("the last checkpoint in {} is intact; add --resume to go on", folder.display()));
    }
    End::train(error)
}

/// Says how a run ended; the exit code follows from it.
fn report(args: &Train, folder: &Path, ended: &Ended) -> Result<(), End> {
    if let Some(summary) = &ended.summary {
        output::print(&words(summary, ended, folder))?;
    }
    match &ended.outcome {
        Outcome::Interrupted { step } => {
            let [experiment, out] =
                [&args.experiment, folder].map(|path| output::shell_word(&path.display().to_string()));
            output::say(&format!(
                "saved at step {step}; go on with `untuned train {experiment} --out {out} --resume`"
            ));
            Err(End::Interrupted)
        }
        Outcome::Refused { step, reason } => {
            output::say(&format!("error: the run was ended at step {step} after refused steps ({reason})"));
            Err(End::Run)
        }
        Outcome::GivenUp { step } => {
            output::say(&format!(
                "error: the run was given up at step {step}: its validation loss is not below the first (give_up_after)"
            ));
            Err(End::Run)
        }
        Outcome::Finished | Outcome::Already => match &ended.summary {
            Some(summary) if summary.diverged => {
                output::say(
                    "error: the run diverged: a loss or a gradient was not finite, the last losses are above the first, or it was given up",
                );
                Err(End::Run)
            }
            _ => Ok(()),
        },
    }
}

/// What came out of a run.
pub fn words(summary: &Summary, ended: &Ended, folder: &Path) -> String {
    let missing = if summary.steps == 0 || summary.diverged { "none" } else { "not finite" };
    let shown = |loss: Option<f64>| loss.map_or(missing.to_string(), spec::loss);
    let Summary { rule, steps, seed, seconds, .. } = summary;
    let mut text = String::new();
    if ended.outcome == Outcome::Already {
        let _ = writeln!(text, "This run has ended before; name a new folder with --out for another.");
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{rule}, {steps} steps, seed {seed}, {seconds:.0} s");
    let _ = writeln!(text, "  train loss       {}", shown(summary.final_train_loss));
    let _ = writeln!(
        text,
        "  validation loss  {} (best {})",
        shown(summary.final_validation_loss),
        shown(summary.best_validation_loss)
    );
    let above = ended.best_loss.zip(summary.final_test_loss).map_or(String::new(), |(best, loss)| {
        format!(" ({} above the best possible {best:.4})", spec::loss(loss - best))
    });
    let _ = writeln!(text, "  test loss        {}{above}", shown(summary.final_test_loss));
    if ended.refusals > 0 {
        let _ = writeln!(text, "  refused steps    {}", ended.refusals);
    }
    let _ = writeln!(text, "{}", folder.display());
    text
}

/// A bar on a terminal, a line per evaluation elsewhere.
pub struct Progress {
    bar: ProgressBar,
    seen: bool,
    steps: u64,
    done: u64,
    began: Instant,
    refreshed: Instant,
    tokens: u64,
    last: Option<Stepped>,
}

impl Progress {
    pub fn new() -> Progress {
        let now = Instant::now();
        let (seen, bar) = (output::progress_is_seen(), ProgressBar::hidden());
        Progress { bar, seen, steps: 0, done: 0, began: now, refreshed: now, tokens: 0, last: None }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Loss, step size, speed and the time left.
    fn numbers(&self) -> String {
        let Some(last) = self.last else { return String::new() };
        let elapsed = self.began.elapsed().as_secs_f64().max(1e-9);
        let made = last.step + 1 - self.done;
        let left = elapsed / made as f64 * (self.steps - last.step - 1) as f64;
        let size = last.size.map_or("refused".to_string(), |size| format!("{size:.3e}"));
        let speed = self.tokens as f64 / elapsed;
        let loss = spec::loss(last.loss);
        format!("loss {loss}, step size {size}, {speed:.0} tokens/s, {left:.0} s left")
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| output::say(text));
    }
}

impl Watch for Progress {
    fn begins(&mut self, beginning: &Beginning<'_>) {
        let Beginning { data, parameters, steps, done, device } = beginning;
        self.say(&format!(
            "{parameters} parameters, {steps} steps, {device}; {}{}",
            data.what,
            data.train_ids.map_or(String::new(), |ids| format!(", {ids} ids to train on"))
        ));
        if let Some((entropy, best)) = data.entropy.zip(data.best_loss) {
            self.say(&format!("entropy {entropy:.4} nats; the best possible loss is {best:.4}"));
        }
        if *done > 0 {
            self.say(&format!("going on at step {done}"));
        }
        (self.steps, self.done, self.began) = (*steps, *done, Instant::now());
        if self.seen {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = ProgressBar::new(*steps).with_style(style).with_position(*done);
        }
    }

    fn stepped(&mut self, stepped: &Stepped) {
        self.tokens += stepped.tokens as u64;
        self.last = Some(*stepped);
        if self.seen && self.refreshed.elapsed() >= REFRESH {
            self.refreshed = Instant::now();
            self.bar.set_message(self.numbers());
            self.bar.set_position(stepped.step + 1);
        }
    }

    fn evaluated(&mut self, evaluation: &Evaluation) {
        let Evaluation { step, validation, test } = evaluation;
        let shown = |loss: &Option<f64>| loss.map_or("not finite".to_string(), spec::loss);
        let numbers = if self.seen { String::new() } else { self.numbers() };
        let comma = if numbers.is_empty() { "" } else { "; " };
        let steps = self.steps;
        let (validation, test) = (shown(validation), shown(test));
        self.say(&format!("step {step}/{steps}: validation {validation}, test {test}{comma}{numbers}"));
    }

    fn note(&mut self, text: &str) {
        self.say(&format!("note: {text}"));
    }

    fn stop(&self) -> bool {
        interrupt::asked()
    }
}
