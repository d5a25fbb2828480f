//! `untuned sweep`.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use untuned::spec;
use untuned_lab::compare::{compare, summary};
use untuned_lab::report::COMMAND;
use untuned_lab::runs;
use untuned_lab::sweep::{self, Plan, PlanError, State, Trial};
use untuned_lab::train::config::GENERATED;
use untuned_lab::train::folder::RUNS;
use untuned_lab::train::{Config, DeviceChoice, Options, Outcome, Overrides, Sinks, TrainError};

use super::train::{self, Typed};
use crate::args::{Shared, Sweep};
use crate::end::End;
use crate::{interrupt, output};

pub fn run(args: &Sweep) -> Result<(), End> {
    let overrides = overrides(args)?;
    let plan = Plan::read(&args.sweep, &overrides).map_err(End::plan)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&args.sweep, &plan));
    if args.list {
        return output::print(&list(&plan));
    }
    if let Some(index) = args.index {
        return one(args, &plan, index, &out);
    }
    let work = Work {
        sweep: &args.sweep,
        plan: &plan,
        out: &out,
        scale: args.scale.as_deref(),
        shared: &args.shared,
    };
    work.check()?;
    let mut words = vec!["sweep".to_string(), args.sweep.display().to_string()];
    words.extend(args.scale.iter().flat_map(|scale| ["--scale".to_string(), scale.clone()]));
    record(&out, words, &args.shared, std::env::var("UNTUNED_DATA").ok().filter(|data| !data.is_empty()))?;
    let open = work.off("trials")?;
    let found = runs::find(&out);
    output::print(&format!("{}{}\n", summary(&compare(found.runs)), out.display()))?;
    output::say(&format!("figures and a page: untuned report {}", out.display()));
    open.end()
}

/// Adds a command to the file that keeps those which made what is in the folder; `data` is where it is when it was not named.
pub fn record(out: &Path, mut words: Vec<String>, shared: &Shared, data: Option<String>) -> Result<(), End> {
    words.extend(shared.set.iter().flat_map(|set| ["--set".to_string(), set.clone()]));
    for (option, word) in [("--device", &shared.device), ("--precision", &shared.precision)] {
        words.extend(word.iter().flat_map(|word| [option.to_string(), word.clone()]));
    }
    let data = shared.data.as_ref().map(|data| data.display().to_string()).or(data);
    words.extend(data.into_iter().flat_map(|data| ["--data".to_string(), data]));
    let words: Vec<String> = words.iter().map(|word| output::shell_word(word)).collect();
    let command = format!("untuned {}", words.join(" "));
    let path = out.join(COMMAND);
    let mut all = std::fs::read_to_string(&path).unwrap_or_default();
    if !all.lines().any(|line| line == command) {
        all += &format!("{command}\n");
        output::write_file(&path, all.as_bytes())?;
    }
    Ok(())
}

/// So many of the trials that have not ended are named.
const SHOWN: usize = 3;

/// Trials that have not ended, a sentence for each.
#[derive(Debug, Default)]
pub struct Open {
    /// Why one failed.
    failed: Vec<String>,
    /// Which one another process is making.
    elsewhere: Vec<String>,
}

impl Open {
    /// Those of several sweeps.
    pub fn extend(&mut self, other: Open) {
        self.failed.extend(other.failed);
        self.elsewhere.extend(other.elsewhere);
    }

    /// Trials that have not ended make an exit code; those that diverged are results like others.
    pub fn end(self) -> Result<(), End> {
        let elsewhere = "are being made by another process; when it is through, type the same command again";
        let (trials, what) = match self.failed.is_empty() {
            true => (self.elsewhere, elsewhere),
            false => (self.failed, "failed and are tried again when the sweep is"),
        };
        if trials.is_empty() {
            return Ok(());
        }
        let shown = trials.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more = if trials.len() > SHOWN { "; …" } else { "" };
        Err(End::System(anyhow!("{} trials {what}: {shown}{more}", trials.len())))
    }
}

fn overrides(args: &Sweep) -> Result<Overrides, End> {
    let shared = &args.shared;
    let typed = Typed {
        data: shared.data.as_deref(),
        device: shared.device.as_deref(),
        precision: shared.precision.as_deref(),
        set: &shared.set,
        ..Typed::default()
    };
    typed.overrides(args.scale.clone())
}

/// `untuned-runs/NAME-SCALE`.
fn default_folder(sweep: &Path, plan: &Plan) -> PathBuf {
    let name = sweep.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let scale = plan.trials.first().map_or("", |trial| &trial.config.scale);
    Path::new(RUNS).join(format!("{name}-{scale}"))
}

/// Every trial: index, rule, steps and seed.
fn list(plan: &Plan) -> String {
    let mut text = String::new();
    for Trial { index, config, label } in &plan.trials {
        let Config { seed, .. } = config;
        let steps = match (config.steps, config.epochs) {
            (Some(steps), _) => format!("{steps} steps"),
            (_, epochs) => format!("{} epochs", epochs.unwrap_or(0)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{index:4}  {label}, {steps}, seed {seed}");
    }
    text
}

/// A place for data that does not exist is a slip in the request, not a failure of every trial.
pub fn check_data(plan: &Plan) -> Result<(), End> {
    let missing = |config: &Config| config.data != GENERATED && !Path::new(&config.data).exists();
    match plan.trials.iter().find(|trial| missing(&trial.config)) {
        Some(trial) => Err(End::Request(anyhow!(
            "trial {} ({}) is to train on {}, which does not exist; give a file or a folder with --data",
            trial.index,
            trial.label,
            trial.config.data
        ))),
        None => Ok(()),
    }
}

/// One trial in this process.
fn one(args: &Sweep, plan: &Plan, index: usize, out: &Path) -> Result<(), End> {
    let trial = plan.trial(index).map_err(End::plan)?;
    check_data(plan)?;
    plan.claim(out).map_err(End::plan)?;
    if args.worker {
        stop_with_standard_input();
    }
    let shared = &args.shared;
    let threads = shared.threads.map(usize::from);
    let options = Options { threads, sinks: shared.sinks(), drops_weights: !shared.keep_weights };
    let mut progress = train::Progress::new();
    let ended = sweep::run_trial(trial, out, &options, &mut progress);
    progress.finish();
    let folder = sweep::folder(out, index);
    if let (true, Err(TrainError::Busy { .. })) = (args.worker, &ended) {
        return Err(End::Busy);
    }
    let ended = ended.map_err(End::train)?;
    if let Some(summary) = &ended.summary {
        output::print(&train::words(summary, &ended, &folder))?;
    }
    // A trial that diverged is a result: only the sweep's table says so.
    if let Outcome::Interrupted { .. } = ended.outcome { Err(End::Interrupted) } else { Ok(()) }
}

/// The process that started this one holds the other end of standard input: when it is gone, the trial is saved and stops.
fn stop_with_standard_input() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        interrupt::ask();
    });
}

/// A sweep to work off with processes.
pub struct Work<'a> {
    pub sweep: &'a Path,
    pub plan: &'a Plan,
    pub out: &'a Path,
    pub scale: Option<&'a str>,
    pub shared: &'a Shared,
}

impl Work<'_> {
    /// Takes the folder for this sweep, unless it is another's or the data is not there.
    pub fn check(&self) -> Result<(), End> {
        check_data(self.plan)?;
        self.plan.claim(self.out).map_err(End::plan)
    }

    /// Works it off; what has not ended.
    pub fn off(&self, name: &str) -> Result<Open, End> {
        self.check()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let usual = if self.opens_gpus()? { 1 } else { cores };
        let workers = self.shared.workers.map_or(usual, usize::from);
        let threads = self.shared.threads.map_or((cores / workers).max(1), usize::from);
        let program = std::env::current_exe().map_err(|e| End::io(e, "cannot find this program".into()))?;
        let command = |index: usize| self.command(&program, index, threads);
        let display = Display::new(name, self.plan, self.out, workers);
        let done = sweep::work(self.plan, self.out, workers, &command, &display);
        display.all.clear().ok();
        done.map_err(End::train)?;
        if interrupt::asked() {
            return Err(End::Interrupted);
        }
        Ok(display.open.into_inner().unwrap_or_default())
    }

    /// Whether trials that have not ended compute on GPUs. Each is opened once here, so that a missing one is said once and its
    /// kernels are compiled before several processes want them.
    fn opens_gpus(&self) -> Result<bool, End> {
        let mut gpus = Vec::new();
        for Trial { index, config, .. } in &self.plan.trials {
            let device = config.device_choice().map_err(End::request)?;
            let ended = || matches!(sweep::state(&sweep::folder(self.out, *index)), State::Ended(_));
            if device != DeviceChoice::Cpu && !gpus.contains(&device) && !ended() {
                device.check().map_err(End::train)?;
                gpus.push(device);
            }
        }
        Ok(!gpus.is_empty())
    }

    /// The process of a trial.
    fn command(&self, program: &Path, index: usize, threads: usize) -> Command {
        let shared = self.shared;
        let mut command = Command::new(program);
        command.arg("sweep").arg(self.sweep).arg("--out").arg(self.out).arg("--worker");
        command.args(["--index", &index.to_string(), "--threads", &threads.to_string()]);
        for (option, value) in [
            ("--scale", self.scale),
            ("--device", shared.device.as_deref()),
            ("--precision", shared.precision.as_deref()),
        ] {
            command.args(value.iter().flat_map(|value| [option, value]));
        }
        if let Some(data) = &shared.data {
            command.arg("--data").arg(data);
        }
        command.args(shared.set.iter().flat_map(|set| ["--set", set]));
        for (option, wanted) in [
            ("--csv", shared.csv),
            ("--tensorboard", shared.tensorboard),
            ("--keep-weights", shared.keep_weights),
        ] {
            command.args(wanted.then_some(option));
        }
        command
    }
}

impl Shared {
    /// What is written beside the traces.
    pub fn sinks(&self) -> Sinks {
        Sinks { csv: self.csv, tensorboard: self.tensorboard }
    }
}

/// A bar for all trials and one for each worker on a terminal, a line per trial elsewhere.
struct Display<'a> {
    plan: &'a Plan,
    out: &'a Path,
    seen: bool,
    all: MultiProgress,
    total: ProgressBar,
    workers: Vec<Mutex<Option<(usize, ProgressBar)>>>,
    done: Mutex<usize>,
    open: Mutex<Open>,
    began: Instant,
}

impl<'a> Display<'a> {
    fn new(name: &str, plan: &'a Plan, out: &'a Path, workers: usize) -> Display<'a> {
        let ended =
            |trial: &&Trial| matches!(sweep::state(&sweep::folder(out, trial.index)), State::Ended(_));
        let done = plan.trials.iter().filter(ended).count();
        let seen = output::progress_is_seen();
        let all = MultiProgress::new();
        let style =
            ProgressStyle::with_template("{msg:8} {bar:30} {pos}/{len} trials, {elapsed} gone, {eta} left");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let total = match seen {
            true => all.add(ProgressBar::new(plan.trials.len() as u64).with_style(style)),
            false => ProgressBar::hidden(),
        };
        total.set_message(name.to_string());
        total.set_position(done as u64);
        total.reset_eta();
        if done > 0 {
            output::say(&format!("{name}: {done} of {} trials have ended before", plan.trials.len()));
        }
        let workers = (0..workers).map(|_| Mutex::new(None)).collect();
        let (done, open) = (Mutex::new(done), Mutex::default());
        Display { plan, out, seen, all, total, workers, done, open, began: Instant::now() }
    }

    fn say(&self, text: &str) {
        self.all.suspend(|| output::say(text));
    }
}

fn named(trial: &Trial) -> String {
    format!("trial {} ({}, seed {})", trial.index, trial.label, trial.config.seed)
}

impl sweep::Progress for Display<'_> {
    fn begins(&self, worker: usize, trial: &Trial) {
        if !self.seen {
            return;
        }
        let style = ProgressStyle::with_template("         {bar:30} {pos}/{len} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = self.all.add(ProgressBar::new(trial.config.steps.unwrap_or(0)).with_style(style));
        bar.set_message(named(trial));
        if let Ok(mut slot) = self.workers[worker].lock() {
            *slot = Some((trial.index, bar));
        }
    }

    fn ended(&self, worker: usize, trial: &Trial, state: &State, wall: Duration) {
        if let Some((_, bar)) = self.workers[worker].lock().ok().and_then(|mut slot| slot.take()) {
            bar.finish_and_clear();
        }
        let result = match state {
            State::Ended(summary) if summary.diverged => "diverged".to_string(),
            State::Ended(summary) => match summary.final_test_loss {
                Some(loss) => format!("test {}", spec::loss(loss)),
                None => "test not finite".to_string(),
            },
            State::Failed(failure) => {
                if let Ok(mut open) = self.open.lock() {
                    open.failed.push(format!("{}: {}", named(trial), failure.error));
                }
                format!("failed: {}", failure.error)
            }
            State::Begun | State::Waiting if interrupt::asked() => "stopped".to_string(),
            State::Begun | State::Waiting => {
                if let Ok(mut open) = self.open.lock() {
                    open.elsewhere.push(named(trial));
                }
                "another process is at it".to_string()
            }
        };
        let done = self.done.lock().map_or(0, |mut done| {
            *done += usize::from(matches!(state, State::Ended(_)));
            *done
        });
        self.total.set_position(done as u64);
        let failed = matches!(state, State::Failed(_));
        if failed || !self.seen {
            let (all, wall, since) =
                (self.plan.trials.len(), wall.as_secs_f64(), self.began.elapsed().as_secs());
            self.say(&format!("{done}/{all} after {since} s: {}, {result} [{wall:.2} s]", named(trial)));
        }
    }

    fn tick(&self) {
        for slot in &self.workers {
            let Ok(slot) = slot.lock() else { continue };
            if let Some((index, bar)) = &*slot
                && let Some(tail) = sweep::tail(&sweep::folder(self.out, *index))
            {
                bar.set_position(tail.step + 1);
                let loss = tail.loss.map_or("not finite".to_string(), spec::loss);
                bar.set_message(format!("{}, loss {loss}", named(&self.plan.trials[*index])));
            }
        }
        self.total.tick();
    }

    fn stop(&self) -> bool {
        interrupt::asked()
    }
}

impl End {
    /// A sweep that could not begin.
    pub fn plan(error: PlanError) -> End {
        match error {
            PlanError::Folder(error) => End::train(error),
            error => End::request(error),
        }
    }
}
