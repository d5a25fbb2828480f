//! `untuned minimize`, by what it prints, writes and exits with.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{errors, json, program, untuned};
use serde_json::Value;

fn rows(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the trace is there");
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

#[test]
fn json_has_the_fields_of_the_contract() {
    let output = untuned("minimize quartic:l1=10 --rule polyak --steps 20 --json");
    assert_eq!(output.status.code(), Some(0));
    let value = json(&output);
    assert_eq!(value["problem"], "quartic:l1=10");
    assert_eq!(value["rule"], "polyak");
    assert_eq!(value["steps"], 20);
    assert_eq!(value["outcome"], "finished");
    let loss = value["final"]["loss"].as_f64().expect("a number");
    assert_eq!(value["final"]["gap"].as_f64().expect("a number"), loss - 1.0);
    assert!(
        value["best"]["step"].is_u64() && value["best"]["loss"].is_f64() && value["best"]["gap"].is_f64()
    );
}

/// By hand: f(5) = 625/72 + 25/4 + 1, f'(5) = 125/18 + 5/2, and one step of GD from there.
#[test]
fn a_step_by_hand_in_the_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    let output = program()
        .args(["minimize", "quartic", "--rule", "gd:lr=0.1", "--steps", "1", "--trace"])
        .arg(&path)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let rows = rows(&path);
    assert_eq!(rows.len(), 2);
    let number = |row: usize, key: &str| rows[row][key].as_f64().expect("a number");
    let gradient = 125.0 / 18.0 + 2.5;
    assert!((number(0, "loss") - (625.0 / 72.0 + 6.25 + 1.0)).abs() < 1e-12);
    assert!((number(0, "gap") - (625.0 / 72.0 + 6.25)).abs() < 1e-12);
    assert!((number(0, "grad_norm") - gradient).abs() < 1e-12);
    assert_eq!(number(0, "step_size"), 0.1);
    assert_eq!(rows[0]["x"], serde_json::json!([5.0]));
    assert!((rows[1]["x"][0].as_f64().expect("a number") - (5.0 - 0.1 * gradient)).abs() < 1e-12);
    assert!(rows[1]["step_size"].is_null() && rows[1]["step"] == 1);
}

#[test]
fn points_of_many_variables_stay_out_of_the_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    for (problem, with_x) in [("quadratic:dim=16", true), ("quadratic:dim=17", false)] {
        let path = folder.path().join("trace.jsonl");
        let arguments = ["minimize", problem, "--rule", "gd:lr=0.1", "--steps", "3", "--trace"];
        let output = program().args(arguments).arg(&path).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(rows(&path).iter().all(|row| row.get("x").is_some() == with_x), "{problem}");
    }
}

#[test]
fn no_steps_is_a_run_of_one_row() {
    let folder = tempfile::tempdir().expect("a folder");
    for rule in ["inexact-polyak", "adaptive-polyak:variant=epochs", "dog"] {
        let path = folder.path().join("trace.jsonl");
        let arguments = ["minimize", "quartic", "--rule", rule, "--steps", "0", "--json", "--trace"];
        let output = program().args(arguments).arg(&path).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert_eq!(json(&output)["best"]["step"], 0);
        assert_eq!(rows(&path).len(), 1);
    }
}

#[test]
fn a_divergence_is_reported_where_it_happened_and_keeps_its_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    let arguments =
        ["minimize", "quartic:l1=1000", "--rule", "gd:lr=1", "--steps", "100", "--json", "--trace"];
    let output = program().args(arguments).arg(&path).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(3));
    let value = json(&output);
    assert_eq!(value["outcome"], "diverged");
    let rows = rows(&path);
    let last = rows.last().expect("a row");
    assert_eq!(last["step"], value["ended"]["step"]);
    assert!(last["loss"].is_null() && value["final"]["loss"].is_null());
    assert!(rows[..rows.len() - 1].iter().all(|row| row["loss"].is_f64()), "finite up to there");
    assert!(errors(&output).contains(&format!("step {}", last["step"])), "{}", errors(&output));
}

#[test]
fn a_stationary_start_makes_all_its_steps() {
    let value = json(&untuned("minimize quartic:x0=0 --rule inexact-polyak --steps 7 --json"));
    assert_eq!(value["outcome"], "stationary");
    assert_eq!(value["best"]["step"], 7, "ties go to the later iterate");
}

#[test]
fn a_gap_that_is_not_known_is_null() {
    let value = json(&untuned("minimize rosenbrock --rule gd:lr=0.001 --steps 5 --json"));
    assert!(value["final"]["gap"].is_f64());
    let output = untuned("minimize quartic --rule polyak --steps 500");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("below rounding") && !text.contains(" 0 "), "a gap of 0 proves nothing: {text}");
}

#[test]
fn wrong_requests_say_what_to_type() {
    for (arguments, wanted) in [
        ("minimize quartic --rule inexact-poliak --steps 5", "did you mean `inexact-polyak`"),
        ("minimize quatric --rule polyak --steps 5", "did you mean `quartic`"),
        ("minimize quartic:l2=3 --rule polyak --steps 5", "did you mean `l0`"),
        ("minimize quartic:l1=nan --rule polyak --steps 5", "l1=nan"),
        ("minimize quartic:x0=inf --rule polyak --steps 5", "x0=inf"),
        ("minimize quartic --rule gd:lr=-1 --steps 5", "lr=-1"),
        ("minimize quartic --rule gd --steps 5", "gd:lr="),
        ("minimize quartic --rule gd:lr=0.1,lr=0.2 --steps 5", "twice"),
        ("minimize quartic --rule clipped-gd:lr --steps 5", "key=value"),
        ("minimize quartic --rule polyak --steps -3", "-3"),
        ("minimize quartic --rule polyak --steps many", "many"),
        ("minimize quartic --rule polyak", "--steps"),
        (
            "minimize quartic --rule polyak --steps 5 --trace no/such/folder/t.jsonl",
            "mkdir -p no/such/folder",
        ),
        ("minimize quartic --rule polyak --steps 5 --trace .", "--trace ."),
        (
            "minimize quartic --rule polyak --steps 5 --average mean",
            "\"mean\" is no average; write \"uniform\"",
        ),
        ("reproduce --out no/such/folder/results", "mkdir -p no/such/folder"),
        ("reproduce lstn", "synthetic"),
        ("report no-such-folder", "no-such-folder"),
        ("frobnicate", "frobnicate"),
    ] {
        let output = untuned(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", errors(&output));
        assert!(errors(&output).contains(wanted), "{arguments}: {}", errors(&output));
        assert!(output.stdout.is_empty(), "{arguments}: nothing on standard output");
    }
}

#[test]
fn ctrl_c_keeps_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    let arguments =
        ["minimize", "quartic", "--rule", "decsps", "--steps", "1000000000000", "--json", "--trace"];
    let child = program().args(arguments).arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    let started = Instant::now();
    while fs::metadata(&path).map_or(0, |m| m.len()) < 100_000 {
        assert!(started.elapsed() < Duration::from_secs(60), "the trace does not grow");
        sleep(Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(json(&output)["outcome"], "interrupted");
    let rows = rows(&path);
    assert_eq!(
        rows.last().expect("a row")["step"],
        rows.len() as u64 - 1,
        "every row up to the last is there"
    );
}

#[test]
fn a_full_disk_is_the_systems_failure() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("skipped: there is no /dev/full here");
        return;
    }
    let output = untuned("minimize quartic --rule polyak --steps 100000 --trace /dev/full");
    assert_eq!(output.status.code(), Some(4), "{}", errors(&output));
}

#[test]
fn a_broken_pipe_is_not_an_error() {
    for arguments in ["rules", "problems", "rules --json", "minimize quartic --rule polyak --steps 10"] {
        let mut child = program()
            .args(arguments.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the program ends");
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", errors(&output));
        assert!(output.stderr.is_empty(), "{arguments}: {}", errors(&output));
    }
}

/// What cannot be said on standard error is not said; the exit code stays.
#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        println!("skipped: there is no /dev/full here");
        return;
    };
    for (arguments, code) in [
        ("minimize quartc --rule polyak --steps 4", 2),
        ("minimize quartic:l1=1000 --rule gd:lr=1 --steps 9 --json", 3),
    ] {
        let errors = Stdio::from(full.try_clone().expect("a handle"));
        let status =
            program().args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(errors).status();
        assert_eq!(status.expect("the program starts").code(), Some(code), "{arguments}");
    }
}

#[test]
fn a_diverged_run_into_a_closed_pipe_is_still_diverged() {
    let arguments = "minimize quartic:l1=1000 --rule gd:lr=1 --steps 9".split(' ');
    let mut child =
        program().args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
}

#[test]
fn a_trace_that_nobody_reads_any_more_leaves_the_run_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let reader = std::process::Command::new("head").arg("-c1").arg(&pipe).stdout(Stdio::null()).spawn();
    let arguments = ["minimize", "quartic", "--rule", "decsps", "--steps", "20000", "--json", "--trace"];
    let output = program().args(arguments).arg(&pipe).output().expect("the program starts");
    reader.expect("head runs").wait().expect("head ends");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(json(&output)["outcome"], "finished");
}

#[test]
fn notes_go_to_standard_error() {
    for (arguments, wanted) in [
        ("minimize quartic:l1=1000 --rule inexact-polyak --steps 10000 --json", "use the best"),
        ("minimize quartic --rule polyak:f_star=3 --steps 50 --json", "f_star=3 is above the minimum 1"),
        (
            "minimize quartic --rule level-polyak:lower_bound=3 --steps 50",
            "lower_bound=3 is above the minimum 1",
        ),
    ] {
        let output = untuned(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(errors(&output).contains(wanted), "{arguments}: {}", errors(&output));
    }
}

/// The average with d = 0 is the last point that a step was made from.
#[test]
fn the_average_is_chosen_as_a_text() {
    let value = |average: &str| {
        let output = untuned(&format!("minimize quartic --rule dog --steps 9 --average {average}"));
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let text = String::from_utf8(output.stdout).expect("text");
        let line =
            text.lines().find(|line| line.trim_start().starts_with("average")).expect("a row").to_string();
        assert!(line.ends_with(&format!("{average}, of the steps made")), "{line}");
        line.split_whitespace().nth(1).expect("a loss").to_string()
    };
    let [mean, late, earlier] = ["uniform", "ema:0", "ema:0.5"].map(value);
    assert!(mean != late && late != earlier && mean != earlier);
}
