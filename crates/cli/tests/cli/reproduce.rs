//! `untuned reproduce` and `untuned report`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{errors, json, program};

/// Every file below a folder with its content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().to_string();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            found.insert(name, fs::read(&path).expect("readable"));
        }
    }
    found
}

#[test]
fn the_main_job_writes_everything_and_the_report_can_be_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("results");
    let reproduce = || program().args(["reproduce", "synthetic", "--json", "--out"]).arg(&out).output();
    let output = reproduce().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(json(&output).as_array().expect("a list").len(), 15, "fifteen claims");

    let written = files(&out);
    for wanted in [
        "report.html",
        "synthetic/synthetic.json",
        "synthetic/claims.json",
        "synthetic/curves.csv",
        "synthetic/steps.csv",
        "synthetic/grid.csv",
        "synthetic/figure-1.svg",
        "synthetic/figure-1.png",
    ] {
        assert!(
            written.get(wanted).is_some_and(|bytes| bytes.len() > 1000),
            "{wanted} in {:?}",
            written.keys()
        );
    }
    let page = String::from_utf8(written["report.html"].clone()).expect("UTF-8");
    for outside in ["http://", "https://", "src=\"", "url(/"] {
        let foreign: Vec<_> = page
            .match_indices(outside)
            .filter(|(at, _)| !page[*at..].starts_with("http://www.w3.org"))
            .collect();
        assert!(foreign.is_empty(), "the page must need nothing from outside: {outside}");
    }

    let again = reproduce().expect("the program starts");
    assert_eq!(again.status.code(), Some(2), "a folder that is not empty");
    assert!(errors(&again).contains("not empty"), "{}", errors(&again));

    for name in written
        .keys()
        .filter(|name| name.ends_with(".svg") || name.ends_with(".png") || name.ends_with(".html"))
    {
        fs::remove_file(out.join(name)).expect("removable");
    }
    let report = program().arg("report").arg(&out).output().expect("the program starts");
    assert_eq!(report.status.code(), Some(0), "{}", errors(&report));
    assert!(files(&out) == written, "figures and page come again from the data alone, to the same bytes");

    // A link is followed, a folder is refused before anything is written, and several folders have a page each.
    let (page, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
    fs::write(&page, "old").expect("writable");
    std::os::unix::fs::symlink(&page, &link).expect("a link");
    let report =
        |to: &Path| program().arg("report").arg(&out).arg("--out").arg(to).output().expect("it starts");
    assert_eq!(report(&link).status.code(), Some(0));
    assert!(fs::read(&page).expect("readable") == written["report.html"] && link.is_symlink());
    assert_eq!(report(folder.path()).status.code(), Some(2));
    let beside: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(beside.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{beside:?}");
    let both = program().arg("report").args([&out, &out]).output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&both.stdout).lines().count(), 2);

    fs::write(out.join("synthetic/synthetic.json"), "{\"version\": 3}").expect("writable");
    let damaged = program().arg("report").arg(&out).output().expect("the program starts");
    assert_eq!(damaged.status.code(), Some(2));
    assert!(errors(&damaged).contains("synthetic.json"), "{}", errors(&damaged));
}

#[test]
fn without_a_folder_it_writes_beside_you_and_replaces_only_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let reproduce = || {
        program()
            .args(["reproduce", "synthetic"])
            .current_dir(folder.path())
            .output()
            .expect("the program starts")
    };
    let output = reproduce();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let summary = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(summary.contains("15.") && summary.trim_end().ends_with("report.html"), "{summary}");
    let results = folder.path().join("untuned-results");
    fs::write(results.join("thesis.txt"), "mine").expect("writable");
    assert_eq!(reproduce().status.code(), Some(0), "an earlier run's results are replaced");
    assert!(results.join("thesis.txt").is_file());
    fs::write(results.join("synthetic/notes.txt"), "mine").expect("writable");
    let output = reproduce();
    assert_eq!(output.status.code(), Some(2), "a folder with more in it is left alone");
    assert!(errors(&output).contains("--resume") && results.join("synthetic/notes.txt").is_file());
    let resumed = program().args(["reproduce", "synthetic", "--resume"]).current_dir(folder.path()).output();
    assert_eq!(resumed.expect("it starts").status.code(), Some(0));
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("experiments")).expect("writable");
    fs::write(elsewhere.join("experiments/gpt.toml"), "mine").expect("writable");
    let foreign = program().args(["reproduce", "gpt", "--resume", "--out"]).arg(&elsewhere).output();
    assert_eq!(foreign.expect("it starts").status.code(), Some(2), "nothing of ours to go on with");
    assert_eq!(fs::read(elsewhere.join("experiments/gpt.toml")).expect("readable"), b"mine");
}

/// A network's experiment from the built-in files, made as small as it can be.
#[test]
fn a_networks_experiment_is_a_sweep_with_claims() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let small = "steps=3 evaluate_every=3 evaluate_tokens=60 batch=2 shape.hidden=4 shape.embedding=4 shape.layers=1 shape.bptt=6";
    let reproduce = |more: &[&str]| {
        let set = small.split_whitespace().flat_map(|set| ["--set", set]);
        let mut command = program();
        command.args(["reproduce", "lstm", "--json", "--out"]).arg(&out).args(set).args(more);
        command.output().expect("the program starts")
    };
    let output = reproduce(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let claims = json(&output);
    assert_eq!(claims.as_array().expect("a list").len(), 12);
    assert!(claims[1]["measured"].as_str().expect("words").contains("LSTM: Inexact Polyak"), "{claims}");
    let written = files(&out);
    for wanted in [
        "command.txt",
        "experiments/lstm-sweep.toml",
        "lstm/plan.json",
        "lstm/trials/0000/summary.json",
        "runs.csv",
    ] {
        assert!(written.contains_key(wanted), "{wanted}");
    }
    assert!(
        String::from_utf8_lossy(&written["command.txt"])
            .contains("untuned reproduce lstm --scale quick --set steps=3")
    );
    assert_eq!(reproduce(&[]).status.code(), Some(2), "not empty");
    let resumed = reproduce(&["--resume"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", errors(&resumed));
    assert!(errors(&resumed).contains("51 of 51 trials have ended before"), "{}", errors(&resumed));
    let other = reproduce(&["--resume", "--set", "batch=3"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(errors(&other).contains("another sweep"), "{}", errors(&other));
}

/// What was typed does not fit: nothing stands in the way of the command that does.
#[test]
fn a_refused_request_leaves_the_folder_as_good_as_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let reproduce = |set: &str| {
        let mut command = program();
        command.current_dir(folder.path()).env_remove("UNTUNED_DATA");
        command.args(["reproduce", "gpt", "--out", "out", "--set", set]).output().expect("the program starts")
    };
    for (set, word) in
        [("shape.widht=1", "`shape.width`"), ("bacth=1", "`batch`"), ("data=nowhere", "nowhere")]
    {
        let output = reproduce(set);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains(word), "{}", errors(&output));
        assert!(!folder.path().join("out/experiments").exists(), "{set}");
    }
}
