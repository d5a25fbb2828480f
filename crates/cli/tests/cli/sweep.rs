//! `untuned sweep`, and `untuned report` of what it leaves.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::{errors, program};

const EXPERIMENT: &str = "model = \"gpt\"
batch = 2
evaluate_tokens = 100
[scale.quick]
steps = 8
evaluate_every = 4
checkpoint_every = 3
smoothness_every = 2
[scale.quick.shape]
context = 8
blocks = 1
width = 16
heads = 2
";
/// Twelve trials; the last rate diverges.
const SWEEP: &str = "experiment = \"x.toml\"
seeds = [1, 2]
[[method]]
rule = \"gd\"
grid.lr = [0.1, 0.5, 3]
[[method]]
rule = \"clipped-gd:lr=0.1\"
grid.threshold = [1]
[[method]]
rule = \"inexact-polyak\"
[[method]]
rule = \"dog\"
";
const TRIALS: usize = 12;

/// A folder with an experiment, a sweep and a text.
fn bench() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("x.toml"), EXPERIMENT).expect("writable");
    fs::write(folder.path().join("sweep.toml"), SWEEP).expect("writable");
    fs::write(folder.path().join("text.txt"), "the quick brown fox jumps over a lazy dog\n".repeat(60))
        .expect("writable");
    folder
}

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = program();
    command.current_dir(folder).env_remove("UNTUNED_DATA").args(arguments.split_whitespace());
    command
}

fn run(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn sweep(folder: &Path, arguments: &str) -> Output {
    run(folder, &format!("sweep sweep.toml --data text.txt {arguments}"))
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    let said = errors(output) + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} in {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

fn trial(out: &Path, index: usize) -> PathBuf {
    out.join("trials").join(format!("{index:04}"))
}

fn summary(out: &Path, index: usize) -> Value {
    let bytes = fs::read(trial(out, index).join("summary.json")).expect("it ended");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// The trace and the evaluations without times.
fn recorded(run: &Path) -> Vec<Value> {
    let lines =
        ["trace.jsonl", "eval.jsonl"].map(|name| fs::read_to_string(run.join(name)).expect("readable"));
    let rows = lines.iter().flat_map(|text| text.lines()).map(|line| {
        let mut row: Value = serde_json::from_str(line).expect("JSON");
        row.as_object_mut().expect("an object").remove("seconds");
        row
    });
    rows.collect()
}

#[test]
fn every_trial_ends_and_is_not_made_again() {
    let folder = bench();
    let out = folder.path().join("out");
    let output = sweep(folder.path(), "--out out --workers 3");
    expect(&output, 0, &["12/12", "Inexact Polyak", "untuned report out", "diverged"]);
    for index in 0..TRIALS {
        let summary = summary(&out, index);
        assert_eq!(summary["seed"], index / 6 + 1, "seeds change slowest");
        assert!(summary["diverged"] == true || index % 6 != 2, "{summary}");
        assert!(!trial(&out, index).join("checkpoint").exists(), "weights are not kept");
    }
    let before = fs::read(trial(&out, 0).join("summary.json")).expect("readable");
    let began = Instant::now();
    expect(&sweep(folder.path(), "--out out"), 0, &["12 of 12 trials have ended before"]);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(fs::read(trial(&out, 0).join("summary.json")).expect("readable"), before);

    expect(
        &run(folder.path(), "sample out/trials/0000"),
        2,
        &["--keep-weights", "out/trials/0000/config.toml"],
    );

    // A trial is a function of its index, and a run's own configuration makes it again.
    expect(&sweep(folder.path(), "--out one --index 4 --keep-weights --csv"), 0, &["inexact-polyak"]);
    let one = trial(&folder.path().join("one"), 4);
    assert_eq!(recorded(&one), recorded(&trial(&out, 4)));
    assert!(one.join("checkpoint").is_dir() && one.join("trace.csv").is_file());
    expect(&run(folder.path(), "train out/trials/0004/config.toml --out again"), 0, &[]);
    assert_eq!(recorded(&folder.path().join("again")), recorded(&one));

    // The report needs nothing but the folders.
    expect(&run(folder.path(), "report out"), 0, &["report.html"]);
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    for part in [
        "untuned sweep sweep.toml",
        "Nano-GPT",
        "claim-networks-12",
        "Inexact Polyak",
        "data-points",
        "x-hyperparameters",
        "config.toml",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let csv = fs::read_to_string(out.join("runs.csv")).expect("a table");
    assert_eq!(csv.lines().count(), TRIALS + 1);
    for name in
        ["x-losses", "x-losses-all", "x-hyperparameters", "x-rates", "x-steps", "x-smoothness", "x-cost"]
    {
        for ending in ["svg", "png"] {
            let file = out.join(format!("figures/{name}.{ending}"));
            assert!(fs::metadata(&file).is_ok_and(|found| found.len() > 1000), "{}", file.display());
        }
    }
    let both = run(folder.path(), "report out one");
    expect(&both, 0, &["out/report.html", "one/report.html"]);
    expect(&run(folder.path(), "report out again --out both.html"), 0, &["both.html"]);
}

#[test]
fn a_sweep_that_is_killed_goes_on_to_the_same_numbers() {
    let folder = bench();
    let long =
        EXPERIMENT.replace("steps = 8", "steps = 400").replace("evaluate_every = 4", "evaluate_every = 100");
    fs::write(folder.path().join("x.toml"), long).expect("writable");
    fs::write(folder.path().join("sweep.toml"), SWEEP.replace("[1, 2]", "[1]")).expect("writable");
    let whole = sweep(folder.path(), "--out whole");
    expect(&whole, 0, &["6/6"]);
    let mut child = command(folder.path(), "sweep sweep.toml --data text.txt --out parts")
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let parts = folder.path().join("parts");
    let begun = |at: usize| trial(&parts, at).join("trace.jsonl").is_file();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !begun(1) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Not even this process can do anything about it: the workers notice by themselves.
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // A worker that still writes holds its trial.
        let again = sweep(folder.path(), "--out parts");
        if again.status.success() {
            break;
        }
        expect(&again, 4, &["another process"]);
        assert!(Instant::now() < deadline, "{}", errors(&again));
        std::thread::sleep(Duration::from_millis(100));
    }
    for index in 0..6 {
        let of = |out: &str| recorded(&trial(&folder.path().join(out), index));
        assert!(of("parts") == of("whole"), "trial {index}");
    }
}

#[test]
fn a_trial_that_fails_is_recorded_and_tried_again() {
    let folder = bench();
    let text = format!("{SWEEP}[[method]]\nrule = \"decsps\"\nset.data = \"missing.txt\"\n");
    fs::write(folder.path().join("sweep.toml"), text.replace("[1, 2]", "[1]")).expect("writable");
    expect(
        &run(folder.path(), "sweep sweep.toml --out out"),
        2,
        &["missing.txt, which does not exist", "--data"],
    );
    assert!(!folder.path().join("out").exists());
    fs::write(folder.path().join("missing.txt"), [0xFF]).expect("writable");
    let output = run(folder.path(), "sweep sweep.toml --out out");
    expect(&output, 4, &["1 trials failed", "missing.txt", "6/7"]);
    let out = folder.path().join("out");
    let failure = fs::read_to_string(trial(&out, 6).join("failure.json")).expect("recorded");
    assert!(failure.contains("missing.txt"), "{failure}");
    expect(&run(folder.path(), "report out"), 0, &[]);
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("failed: ") && page.contains("1 failed"));

    fs::copy(folder.path().join("text.txt"), folder.path().join("missing.txt")).expect("writable");
    expect(&run(folder.path(), "sweep sweep.toml --out out"), 0, &["6 of 7 trials have ended before"]);
    assert_eq!(summary(&out, 6)["rule"], "decsps");
    assert!(!trial(&out, 6).join("failure.json").exists());
}

#[test]
fn wrong_requests_end_with_2() {
    let folder = bench();
    let at = folder.path();
    expect(&sweep(at, "--index 12 --out o"), 2, &["--index 12", "12 trials", "0 to 11"]);
    expect(&sweep(at, "--scale huge"), 2, &["no scale `huge`"]);
    expect(&sweep(at, "--workers 0"), 2, &["workers"]);
    expect(&run(at, "sweep nowhere.toml"), 2, &["nowhere.toml"]);
    expect(&run(at, "sweep x.toml"), 2, &["`batch`", "experiment"]);
    expect(&sweep(at, "--out text.txt"), 2, &["text.txt is a file"]);
    expect(&sweep(at, "--out ."), 2, &["and no sweep"]);
    expect(&sweep(at, "--set bacth=3"), 2, &["`bacth`", "`batch`"]);
    expect(&sweep(at, "--index -1"), 2, &["'-1' for '--index"]);
    for list in ["", "--list"] {
        expect(
            &sweep(at, &format!("--set shape.widht=3 {list}")),
            2,
            &["trial 0", "did you mean `shape.width`?"],
        );
    }
    assert!(!at.join("untuned-runs").exists(), "nothing is begun");
    expect(&sweep(at, "--out o --index 0"), 0, &[]);
    fs::write(at.join("sweep.toml"), SWEEP.replace("0.1, 0.5", "0.2, 0.5")).expect("writable");
    expect(&sweep(at, "--out o"), 2, &["another sweep", "in trial 0, rule is", "lr=0.2", "--out"]);
    fs::write(at.join("sweep.toml"), SWEEP.replace("[1, 2]", "[\"a\"]")).expect("writable");
    expect(&sweep(at, "--out p"), 2, &["seeds is [\"a\"]", "seeds = [1, 2, 3]"]);
    expect(&run(at, "report nowhere"), 2, &["nowhere is not a folder"]);
    fs::create_dir(at.join("empty")).expect("writable");
    expect(&run(at, "report empty"), 2, &["no run", "empty"]);
    expect(&run(at, "report empty --live --out x.html"), 2, &["--live"]);
}

/// As the tasks of a scheduler's array do.
#[test]
fn many_processes_can_begin_a_sweep_at_once() {
    let folder = bench();
    let children: Vec<_> = (0..TRIALS)
        .map(|index| {
            command(
                folder.path(),
                &format!("sweep sweep.toml --data text.txt --threads 1 --out out --index {index}"),
            )
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
        })
        .collect();
    for child in children {
        expect(&child.wait_with_output().expect("it ends"), 0, &[]);
    }
    let left: Vec<_> = fs::read_dir(folder.path().join("out")).expect("a folder").flatten().collect();
    assert_eq!(left.len(), 2, "the plan and the trials, nothing that was written aside: {left:?}");
    // Until all trials have ended, nothing is selected.
    fs::remove_dir_all(trial(&folder.path().join("out"), 1)).expect("removable");
    expect(&run(folder.path(), "report out"), 0, &[]);
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("1 not finished") && page.contains("not finished / gd:lr="), "{page:.0}");
}

/// What another process is making has not ended.
#[test]
fn a_sweep_that_another_process_is_at_is_not_through() {
    let folder = bench();
    let one = "experiment = \"x.toml\"\nseeds = [1]\nsteps = [1000000]\n[[method]]\nrule = \"dog\"\n";
    fs::write(folder.path().join("sweep.toml"), one).expect("writable");
    let mut child =
        command(folder.path(), "sweep sweep.toml --data text.txt --threads 1 --out out --index 0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
    let trace = trial(&folder.path().join("out"), 0).join("trace.jsonl");
    let began = Instant::now();
    while fs::metadata(&trace).map_or(0, |found| found.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = sweep(folder.path(), "--out out");
    child.kill().expect("it can be ended");
    child.wait().expect("it ends");
    expect(&second, 4, &["1 trials are being made by another process", "same command again", "trial 0"]);
}

#[test]
fn trials_are_listed_with_their_indices() {
    let folder = bench();
    let output = sweep(folder.path(), "--list");
    expect(&output, 0, &["   8  gd:lr=3, 8 steps, seed 2", "  11  dog"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), TRIALS);
    assert!(!folder.path().join("untuned-runs").exists(), "nothing is made");
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn listed(sweep: &str, scale: &str) -> Vec<String> {
    let output = run(&root(), &format!("sweep experiments/{sweep} --scale {scale} --list"));
    expect(&output, 0, &[]);
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(|line| line.trim().to_string()).collect()
}

/// Every file beside the experiments that names one is a sweep with trials at every scale that it names.
#[test]
fn every_sweep_of_the_repository_can_be_listed() {
    let mut sweeps = 0;
    for entry in fs::read_dir(root().join("experiments")).expect("readable") {
        let path = entry.expect("readable").path();
        let text = fs::read_to_string(&path).expect("readable");
        let name = path.file_name().expect("a file").to_str().expect("UTF-8");
        if !text.contains("experiment = ") {
            continue;
        }
        sweeps += 1;
        let scales: Vec<&str> = ["quick", "paper", "h200"]
            .into_iter()
            .filter(|scale| text.contains(&format!("[scale.{scale}]")))
            .collect();
        assert!(!scales.is_empty(), "{name} names no scale");
        for scale in scales {
            assert!(!listed(name, scale).is_empty(), "{name} has no trial at scale {scale}");
        }
    }
    assert!(sweeps >= 9, "{sweeps} sweeps");
}

/// The runs in `docs` are those of the files that they are said to be of, all of them.
#[test]
fn runs_that_are_kept_are_of_their_sweeps() {
    for kind in ["methods", "held-out"] {
        for network in ["gpt", "lstm", "t5"] {
            let kept = root().join("docs").join(kind).join(network);
            let plan = fs::read(kept.join("plan.json")).expect("a plan");
            let plan: Vec<Value> = serde_json::from_slice(&plan).expect("JSON");
            let lines = listed(&format!("{network}-{kind}.toml"), "h200");
            assert_eq!(plan.len(), lines.len(), "{kind}/{network}");
            for (trial, line) in plan.iter().zip(&lines) {
                let config = &trial["config"];
                let (index, rule) = (&trial["index"], config["rule"].as_str().expect("a rule"));
                let begin = format!("{index}  {rule}, ");
                let end = format!(", seed {}", config["seed"]);
                assert!(
                    line.starts_with(&begin) && line.ends_with(&end),
                    "{kind}/{network}: {line} is {config}"
                );
                let index = index.as_u64().expect("an index");
                assert!(
                    kept.join(format!("trials/{index:04}/summary.json")).is_file(),
                    "{kind}/{network}: {line}"
                );
            }
        }
    }
}

/// Half-written and damaged files are gaps that are named, never wrong figures.
#[test]
fn a_report_names_what_it_cannot_read() {
    let folder = bench();
    fs::write(folder.path().join("sweep.toml"), SWEEP.replace("[1, 2]", "[1]")).expect("writable");
    expect(&sweep(folder.path(), "--out out"), 0, &[]);
    let out = folder.path().join("out");
    let trace = trial(&out, 4).join("trace.jsonl");
    let whole = fs::read_to_string(&trace).expect("readable");
    // Half-written: the run goes on, its last row is not there yet.
    fs::write(&trace, &whole[..whole.len() - 20]).expect("writable");
    fs::remove_file(trial(&out, 4).join("summary.json")).expect("removable");
    expect(&run(folder.path(), "report out"), 0, &[]);
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("1 not finished") && !page.contains("class=problems"));
    // A pipe is not waited for.
    let pipe = trial(&out, 3).join("summary.json");
    fs::remove_file(&pipe).expect("removable");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    expect(&run(folder.path(), "report out"), 0, &[]);
    fs::remove_file(&pipe).expect("removable");
    fs::write(&pipe, "{").expect("writable");
    expect(&run(folder.path(), "report out"), 0, &["summary.json", "left out"]);
    // Cut off, the run having ended: neither a figure nor an archive takes it for whole.
    let cut = trial(&out, 5).join("trace.jsonl");
    let before = fs::read_to_string(&cut).expect("readable");
    fs::write(&cut, before.lines().take(3).map(|line| format!("{line}\n")).collect::<String>())
        .expect("writable");
    let words = ["0005/trace.jsonl ends after 3 of 8 steps", "left out"];
    expect(&run(folder.path(), "report out"), 0, &words);
    expect(&run(folder.path(), "archive out --out kept"), 2, &words);
    fs::write(&cut, before).expect("writable");
    // Damaged in the middle.
    fs::write(&trace, whole.replacen("\"loss\"", "\"los", 1)).expect("writable");
    fs::write(trial(&out, 5).join("config.toml"), "model = 3").expect("writable");
    let output = run(folder.path(), "report out");
    expect(&output, 0, &["trace.jsonl", "line 1", "left out", "config.toml"]);
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("class=problems") && page.contains("line 1"));
}

/// A curve of DoG.
const DOG: &str = "class=\"series\" data-key=\"dog\"";

/// Sends a request; the whole answer.
fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("settable");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn the_live_page_follows_runs_and_stops() {
    let folder = bench();
    expect(&sweep(folder.path(), "--out out --index 4"), 0, &[]);
    let mut child = command(folder.path(), "report out --live")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("it says where");
    let port = address.trim().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("no port in {address:?}"));
    let get = |path: &str, host: &str| {
        ask(port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    let here = format!("127.0.0.1:{port}");
    let page = get("/", &here);
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("Inexact Polyak") && !page.contains(DOG),
        "{page:.300}"
    );
    assert!(get("/", "example.com").starts_with("HTTP/1.1 403"));
    for path in ["/../../etc/passwd", "/out/trials/0004/config.toml", "/%2e%2e/x.toml"] {
        assert!(get(path, &here).starts_with("HTTP/1.1 404"), "{path}");
    }
    expect(&sweep(folder.path(), "--out out --index 5"), 0, &[]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !get("/", &here).contains(DOG) {
        assert!(Instant::now() < deadline, "the page does not follow");
        std::thread::sleep(Duration::from_millis(200));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
