//! What can be typed: the one definition behind parsing and `--help`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand, ValueEnum};
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
  untuned rules                                             every rule with its formula
  untuned data                                              the data files, and which of them are here

Exit codes: 0 done, 2 the request was wrong, 3 the run diverged or was refused,
            4 the system failed, 130 interrupted."
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Reproduce(Reproduce),
    Minimize(Minimize),
    Report(Report),
    /// List the rules: formula, parameters with defaults, reference
    Rules(List),
    /// List the test problems: formula, what is known of them, parameters with defaults
    Problems(List),
    Data(Data),
}

/// Run the paper's experiments and write figures, tables and a report
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  untuned reproduce                              everything, into untuned-results/
  untuned reproduce synthetic --out results      Section 6.1, into a folder of your choice

Everything is written as JSON and CSV too; `untuned report DIR` makes figures and page again from it.")]
pub struct Reproduce {
    /// The experiments; all of them when none is named
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<Experiment>,
    /// How large: `quick` for a CPU in minutes, `paper` for the paper's size (the synthetic experiment is always full size)
    #[arg(long, default_value = "quick")]
    pub scale: Scale,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    pub device: Device,
    /// The folder for the results, new or empty [default: untuned-results, replacing an earlier run's]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the claims as one JSON value
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Section 6.1: the convex function on which everything is known
    Synthetic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    Quick,
    Paper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    Cpu,
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
    /// Which average of the iterates to evaluate at the end
    #[arg(long, default_value = "uniform")]
    pub average: Averaging,
    /// Print the theory's bounds beside what was measured, and the local smoothness along the run
    #[arg(long)]
    pub explain: bool,
    /// Print the result as one JSON value
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Averaging {
    /// The mean of x_0 … x_{T−1}, of which Theorems 1 to 3 speak
    Uniform,
    /// Polynomial decay with γ = 8, as the authors of DoG ask for
    Polynomial,
}

/// Make the figures and the page again from what `reproduce` wrote
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  untuned report untuned-results --out report.html")]
pub struct Report {
    /// Folders that `untuned reproduce` wrote
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// Where the page goes, for one DIR [default: DIR/report.html]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
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
