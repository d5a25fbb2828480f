//! What can be typed: the one definition behind parsing and `--help`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use untuned::Average;
use untuned_lab::train;
use untuned_net::data::files;

/// Training without tuning: the step size and the clipping threshold set themselves.
#[derive(Debug, Parser)]
#[command(
    name = "untuned",
    version,
    after_help = "\
Examples:
  untuned reproduce                                         the paper's experiments, with a report
  untuned minimize quartic:l1=1000 --rule inexact-polyak --steps 10000
  untuned train experiments/gpt.toml                        a small GPT on the generated corpus
  untuned sweep experiments/gpt-sweep.toml                  every method, a grid, three seeds
  untuned report untuned-runs --live                        a page that follows the runs
  untuned archive untuned-runs --out kept                   what a report needs, without weights
  untuned sample untuned-runs/gpt-quick-inexact-polyak-s1   text from it
  untuned rules                                             every rule with its formula
  untuned data                                              the data files, and which of them are here
  untuned bench step --model gpt --preset paper --batch 4   how long a training step takes here
  untuned doctor                                            which GPUs can be used, and what is missing

Exit codes: 0 done, 2 the request was wrong, 3 the run diverged or was refused,
            4 the system failed, 130 interrupted."
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Those of this process; a request that cannot be read ends it.
    pub fn read() -> Args {
        let found = with_negative_numbers(Args::command()).get_matches();
        Args::from_arg_matches(&found).unwrap_or_else(|error| error.exit())
    }
}

/// A negative number behind an option is its value, so that an error names the option.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let taken = |arg: clap::Arg| {
        let takes = arg.get_action().takes_values();
        if takes { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(taken).mut_subcommands(with_negative_numbers)
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Reproduce(Reproduce),
    Minimize(Minimize),
    Train(Train),
    Sweep(Sweep),
    Sample(Sample),
    Report(Report),
    Archive(Archive),
    /// List the rules: formula, parameters with defaults, reference
    Rules(List),
    /// List the test problems: formula, what is known of them, parameters with defaults
    Problems(List),
    Data(Data),
    #[command(subcommand)]
    Bench(Bench),
    Doctor(Doctor),
}

/// Run the paper's experiments and write figures, tables and a report
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned reproduce                              everything, small, into untuned-results/: three minutes on two cores
  untuned reproduce synthetic --out results      Section 6.1, into a folder of your choice
  untuned reproduce gpt --scale paper --data tinyshakespeare.txt --out gpt
  untuned reproduce gpt --scale paper --data tinyshakespeare.txt --out gpt --resume

Everything is written as JSON and CSV too; `untuned report DIR` makes figures and page again from it.
The networks' experiments are sweeps: their files and their runs are in the folder.")]
pub struct Reproduce {
    /// The experiments; all of them when none is named
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<Experiment>,
    /// How large: `quick` for a CPU in minutes, `paper` for the paper's size (the synthetic experiment is always full size)
    #[arg(long, default_value = "quick")]
    pub scale: Scale,
    /// The folder for the results, new or empty [default: untuned-results, replacing earlier quick ones]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the results in the folder: runs that have ended are not made again
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub shared: Shared,
    /// Print the claims as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// How trials are made.
#[derive(Debug, Clone, clap::Args)]
pub struct Shared {
    /// Trials side by side, each a process [default: as many as there are cores; 1 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Threads of each trial [default: the cores divided by the workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Where to compute: cpu, cuda:0 (a GPU by its number) or auto, which takes a GPU where one can be used [default: auto; of
    /// `reproduce` at the quick scale: cpu]
    #[arg(long, value_name = "D")]
    pub device: Option<String>,
    /// What to compute in: f32, tf32, bf16 or auto, which is bf16 on a GPU and f32 on the CPU [default: auto]
    #[arg(long, value_name = "P")]
    pub precision: Option<String>,
    /// A text file or a folder with data [default: $UNTUNED_DATA, else the generated corpus]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Override any key of the experiment in every trial, like batch=16; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write trace.csv and eval.csv of every trial too
    #[arg(long)]
    pub csv: bool,
    /// Write events for TensorBoard of every trial too
    #[arg(long)]
    pub tensorboard: bool,
    /// Keep the weights of trials that have ended; else their traces and summaries stay
    #[arg(long)]
    pub keep_weights: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Section 6.1: the convex function on which everything is known
    Synthetic,
    /// Section 6.2: AWD-LSTM on words
    Lstm,
    /// Section 6.2: Nano-GPT on characters
    Gpt,
    /// Section 6.2: T5 on documents with gaps
    T5,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    Quick,
    Paper,
}

/// Minimise a test problem with a rule
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned minimize quartic:l1=1000 --rule inexact-polyak --steps 10000
  untuned minimize quartic --rule clipped-gd:lr=0.1,threshold=10 --steps 500 --json
  untuned minimize logistic --rule polyak --steps 1000 --trace trace.jsonl
  untuned minimize quartic:l1=100 --rule polyak --steps 500 --explain

`untuned problems` and `untuned rules` list what can stand for PROBLEM and RULE.")]
pub struct Minimize {
    /// The problem, like quartic:l1=1000
    pub problem: String,
    /// The rule, like inexact-polyak or clipped-gd:lr=0.1,threshold=10
    #[arg(long)]
    pub rule: String,
    /// T, the number of steps
    #[arg(long, value_name = "T")]
    pub steps: u64,
    /// Write every iterate to this file, a JSON object per line
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The average of the iterates to evaluate at the end: uniform (the mean of x_0 … x_{T−1}, of which Theorems 1 to 3 speak),
    /// polynomial:8 (as the authors of DoG ask for) or ema:0.999
    #[arg(long, value_name = "AVERAGE", default_value = "uniform")]
    pub average: Average,
    /// Print the theory's bounds beside what was measured, and the local smoothness along the run
    #[arg(long)]
    pub explain: bool,
    /// Print the result as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Train a network as an experiment's file says
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned train experiments/gpt.toml                              a minute on two cores, on the generated corpus
  untuned train experiments/gpt.toml --data my-text.txt --steps 5000 --out runs/mine
  untuned train experiments/lstm.toml --rule clipped-gd:lr=30,threshold=0.25 --set batch=20
  untuned train experiments/gpt.toml --out runs/mine --resume     goes on where a run was stopped or killed
  untuned train experiments/gpt.toml --scale paper --device cuda:0 --precision bf16
  untuned train experiments/gpt.toml --tensorboard                watch it with tensorboard --logdir untuned-runs

Ctrl-C saves a checkpoint and says how to go on. Every number of threads gives the same bits.")]
pub struct Train {
    /// The experiment, like experiments/gpt.toml
    #[arg(value_name = "EXPERIMENT.toml")]
    pub experiment: PathBuf,
    /// Which table [scale.NAME] of the experiment to take [default: quick]
    #[arg(long, value_name = "NAME")]
    pub scale: Option<String>,
    /// The rule, like inexact-polyak or clipped-gd:lr=0.1,threshold=10
    #[arg(long)]
    pub rule: Option<String>,
    /// T, the number of steps
    #[arg(long, value_name = "T")]
    pub steps: Option<u64>,
    /// What all randomness comes from
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Where to compute: cpu, cuda:0 (a GPU by its number) or auto, which takes a GPU where one can be used [default: auto]
    #[arg(long, value_name = "D")]
    pub device: Option<String>,
    /// What to compute in: f32, tf32, bf16 or auto, which is bf16 on a GPU and f32 on the CPU [default: auto]
    #[arg(long, value_name = "P")]
    pub precision: Option<String>,
    /// A text file or a folder with data [default: $UNTUNED_DATA, else the generated corpus]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The run's folder, new or empty [default: untuned-runs/NAME-SCALE-RULE-sSEED]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run in the folder; without a checkpoint in it, from the beginning
    #[arg(long)]
    pub resume: bool,
    /// Write trace.csv and eval.csv too; a run that is resumed goes on with them
    #[arg(long)]
    pub csv: bool,
    /// Write events for TensorBoard too, into RUN/tensorboard; a run that is resumed goes on with them
    #[arg(long)]
    pub tensorboard: bool,
    /// Override any key of the experiment, like batch=16 or shape.width=64; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Threads that compute [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Train with a grid of parameters, several seeds and several methods, side by side
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned sweep experiments/gpt-sweep.toml                        into untuned-runs/gpt-sweep-quick
  untuned sweep experiments/gpt-sweep.toml --list                 every trial with its index
  untuned sweep experiments/gpt-sweep.toml --index 7 --out s      one trial, for a scheduler
  sbatch --array=0-152 --wrap 'untuned sweep s.toml --out s --index $SLURM_ARRAY_TASK_ID'

The same command again goes on: trials that have ended are skipped, one that was killed
resumes to the same bits, one that failed is tried again. `untuned report DIR` makes figures
and a page, also while it runs; `--live` follows it.")]
pub struct Sweep {
    /// The sweep, like experiments/gpt-sweep.toml
    #[arg(value_name = "SWEEP.toml")]
    pub sweep: PathBuf,
    /// Which table [scale.NAME] of the sweep and its experiment to take [default: quick]
    #[arg(long, value_name = "NAME")]
    pub scale: Option<String>,
    /// Make this trial only, in this process
    #[arg(long, value_name = "K")]
    pub index: Option<usize>,
    /// Print the trials instead of making them
    #[arg(long)]
    pub list: bool,
    /// The sweep's folder [default: untuned-runs/NAME-SCALE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub shared: Shared,
    /// Stop when standard input ends.
    #[arg(long, hide = true)]
    pub worker: bool,
}

/// Write text with a trained network
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  untuned sample untuned-runs/gpt-quick-inexact-polyak-s1 --prompt \"ba\" --length 300")]
pub struct Sample {
    /// The folder of a run of `untuned train`
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What the text begins with; without one, the beginning of a line
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prompt: String,
    /// How many characters (GPT) or words (LSTM) to add
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub length: usize,
    /// 0 takes the likeliest, 1 draws by the network's own probabilities
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    pub temperature: f64,
    /// What the draws come from
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Where to compute, wherever the run was trained: cpu, cuda:0 (a GPU by its number) or auto
    #[arg(long, value_name = "D", default_value = "auto")]
    pub device: String,
    /// What to compute in: f32, tf32, bf16 or auto, which is bf16 on a GPU and f32 on the CPU
    #[arg(long, value_name = "P", default_value = "auto")]
    pub precision: String,
    /// Take the weights with the lowest validation loss, where the run kept them (keep_best = "validation")
    #[arg(long)]
    pub best: bool,
    /// Threads that compute [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Make figures, tables and a page from what `reproduce`, `sweep` and `train` wrote
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned report untuned-results                          into untuned-results/report.html
  untuned report runs/a runs/b --out both.html            runs side by side
  untuned report untuned-runs --live                      a page on this machine that follows runs as they go")]
pub struct Report {
    /// Folders that `untuned reproduce`, `sweep` or `train` wrote; runs are found at any depth
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// Where the page goes; figures and tables go beside it [default, for one DIR: DIR/report.html]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Serve the page on loopback instead, and bring it up to date while runs go on; Ctrl-C ends it
    #[arg(long)]
    pub live: bool,
    /// The port of the live page [default: any free one]
    #[arg(long, value_name = "P", requires = "live")]
    pub port: Option<u16>,
    /// Write the verdicts on the claims to this file too, where the runs are of the scale `paper`
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    pub record: Option<PathBuf>,
}

/// Keep what a report needs of runs, in little space: no weights, thinned and compressed traces
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned archive untuned-runs/gpt-sweep-paper --out docs/runs/gpt
  untuned archive machine-1/sweep machine-2/sweep --out docs/runs/gpt    trials of one sweep that were made apart
  untuned report docs/runs/gpt                                           from the archive alone

What is in OUT stays: runs are added, and one that had not ended is replaced when it has.
Paths of this machine are left out: of the data's the name at its end is kept.")]
pub struct Archive {
    /// Runs or folders of runs; what is below each of them is laid over OUT
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// The folder of the archive, made if it does not exist
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// About so many rows of each trace are kept; smoothness measurements and the first refused steps beside them
    #[arg(long, value_name = "N", default_value_t = untuned_lab::archive::ROWS, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
}

#[derive(Debug, clap::Args)]
pub struct List {
    /// Print the list as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// List, check or fetch the data files of the network experiments
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  untuned data                                   what is known, and what of it is here
  untuned data fetch tiny-shakespeare            into $UNTUNED_DATA, or untuned-data/
  untuned data check ptb path/to/ptb             files that were given by hand"
)]
pub struct Data {
    #[command(subcommand)]
    pub command: Option<DataCommand>,
    #[command(flatten)]
    pub list: DataList,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    List(DataList),
    Check(DataCheck),
    Fetch(DataFetch),
}

/// List the known files: what they are, size, licence, and whether they are here
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  untuned data list --data path/to/data --json")]
pub struct DataList {
    /// The folder to look in [default: $UNTUNED_DATA, or untuned-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the list as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Check a file, or all files of a data set, by size and SHA-256
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned data check ptb                         in $UNTUNED_DATA, or untuned-data/
  untuned data check ptb path/to/ptb             in a folder of your choice
  untuned data check ptb.train corpus.txt        a file whatever it is called

Exit code 2 when a file is missing or differs.")]
pub struct DataCheck {
    /// The file or the data set
    #[arg(value_parser = PossibleValuesParser::new(files::names()))]
    pub name: String,
    /// The file, or the folder that holds it [default: $UNTUNED_DATA, or untuned-data]
    pub path: Option<PathBuf>,
    /// Print what was found as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Download a file, or all files of a data set, and verify size and SHA-256
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned data fetch tiny-shakespeare            into $UNTUNED_DATA, or untuned-data/
  untuned data fetch tiny-shakespeare --out path/to/data

A file that is there and right is not downloaded again; one that differs is left alone.")]
pub struct DataFetch {
    /// The file or the data set
    #[arg(value_parser = PossibleValuesParser::new(files::names()))]
    pub name: String,
    /// The data folder, made if it does not exist [default: $UNTUNED_DATA, or untuned-data]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Another address of the file, which is verified as ever
    #[arg(long, value_name = "URL", hide = true)]
    pub from: Option<String>,
    /// Print what is there now as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Measure how long things take on this machine
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  untuned bench step --model gpt --preset paper --batch 4
  untuned bench step --model gpt --preset paper --batch 64 --device cuda:0
  untuned bench update --rule adamw --json
  untuned bench rule inexact-polyak")]
pub enum Bench {
    Step(BenchStep),
    Update(BenchUpdate),
    Rule(BenchRule),
}

/// Where a benchmark runs.
#[derive(Debug, clap::Args)]
pub struct BenchDevice {
    /// Where to compute: cpu, cuda:0 (a GPU by its number) or auto
    #[arg(long, value_name = "D", default_value = "cpu")]
    pub device: String,
    /// What to compute in: f32, tf32, bf16 or auto, which is bf16 on a GPU and f32 on the CPU
    #[arg(long, value_name = "P", default_value = "auto")]
    pub precision: String,
}

/// A training step on random ids: forward, backward, norm, Inexact Polyak's update
#[derive(Debug, clap::Args)]
pub struct BenchStep {
    /// The network
    #[arg(long, default_value = "gpt")]
    pub model: Model,
    /// Its size
    #[arg(long, default_value = "tiny")]
    pub preset: Preset,
    /// Sequences in a batch
    #[arg(long, value_name = "B", default_value = "8")]
    pub batch: NonZero<u16>,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value = "20")]
    pub steps: NonZero<u32>,
    #[command(flatten)]
    pub device: BenchDevice,
    /// Threads that compute [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print the result as one JSON value
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    Gpt,
    Lstm,
    T5,
}

impl From<Model> for train::Model {
    fn from(model: Model) -> Self {
        match model {
            Model::Gpt => Self::Gpt,
            Model::Lstm => Self::Lstm,
            Model::T5 => Self::T5,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    Tiny,
    Small,
    Paper,
}

impl From<Preset> for train::Preset {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Tiny => Self::Tiny,
            Preset::Small => Self::Small,
            Preset::Paper => Self::Paper,
        }
    }
}

/// The gradient's norm and the update of 67 million parameters
#[derive(Debug, clap::Args)]
pub struct BenchUpdate {
    /// The rule or optimizer, like adamw or prodigy
    #[arg(long, value_name = "RULE", default_value = "inexact-polyak")]
    pub rule: String,
    /// Updates that are timed, rounded up to a multiple of 64
    #[arg(long, value_name = "N", default_value = "64")]
    pub steps: NonZero<u32>,
    #[command(flatten)]
    pub device: BenchDevice,
    /// Threads that compute [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print the result as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Say which devices can be used here, what was found for them, and what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned doctor
  untuned doctor --json

Exit code 0 whether there is a GPU or not: everything runs on the CPU too.")]
pub struct Doctor {
    /// Print what was found as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// One step of a rule's own arithmetic
#[derive(Debug, clap::Args)]
pub struct BenchRule {
    /// The rule, like inexact-polyak or clipped-gd:lr=0.1,threshold=10
    #[arg(default_value = "inexact-polyak")]
    pub rule: String,
    /// Thousands of steps that are timed
    #[arg(long, value_name = "N", default_value = "1000")]
    pub steps: NonZero<u32>,
    /// Print the result as one JSON value
    #[arg(long)]
    pub json: bool,
}
