//! What is kept of runs makes the same report, and the committed verdicts are those of the committed runs.

#![allow(clippy::unwrap_used)]

mod made;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use made::{Run, STEPS};
use untuned_lab::archive::{Archived, ROWS, archive};
use untuned_lab::compare::{self, AllCurves, Comparison};
use untuned_lab::networks;
use untuned_lab::report::Results;
use untuned_lab::runs;
use untuned_lab::traces::{BandBin, TraceRow, read_trace};

fn results(folder: &Path) -> Results {
    Results::read(&[folder.into()]).unwrap()
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => drop(all.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    all
}

fn run(seed: u64, last: f64) -> Run<'static> {
    Run { model: "gpt", rule: "inexact-polyak", seed, steps: STEPS, first: 4.0, last: Some(last) }
}

#[test]
fn an_archive_makes_the_same_page() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, kept) = (folder.path().join("whole"), folder.path().join("kept"));
    made::networks(&whole);
    fs::create_dir_all(whole.join("gpt/trials/0000/checkpoint")).unwrap();
    fs::write(whole.join("gpt/trials/0000/checkpoint/weights"), [0; 1000]).unwrap();
    fs::write(whole.join("command.txt"), "untuned reproduce gpt --data /far/away/text.txt\n").unwrap();
    fs::write(whole.join("lstm/trials/0003/failure.json"), "{\"error\":\"cannot read /far/away/x\"}")
        .unwrap();
    fs::remove_file(whole.join("lstm/trials/0003/summary.json")).unwrap();
    let done = archive(&whole, &kept, ROWS).unwrap();
    let count = runs::find(&whole).runs.len();
    assert_eq!((done.added, done.replaced, done.same), (count, 0, 0));
    assert_eq!((done.notes, done.problems), (vec![], vec![]));
    let before = files(&kept);
    assert_eq!(before.values().map(|bytes| bytes.len() as u64).sum::<u64>(), done.bytes);
    assert!(before.keys().all(|path| !path.to_string_lossy().contains("checkpoint")));
    let here = folder.path().to_string_lossy().into_owned();
    for words in before.values().map(|bytes| String::from_utf8_lossy(bytes)) {
        assert!(!words.contains("/far") && !words.contains(&here), "{words}");
    }

    let (of_whole, of_kept) = (results(&whole), results(&kept));
    assert_eq!(of_kept.problems, Vec::<String>::new());
    assert_eq!(of_kept.claims(), of_whole.claims());
    assert_eq!(
        compare::csv(&of_kept.comparisons).unwrap(),
        compare::csv(&of_whole.comparisons).unwrap().strip()
    );
    let page = |results: &Results| String::from_utf8(results.page().html().into_bytes().strip()).unwrap();
    assert_eq!(page(&of_kept), page(&of_whole));

    // The same again changes nothing, elsewhere it gives the same bytes, and an archive can be archived.
    assert_eq!(archive(&whole, &kept, ROWS).unwrap(), Archived { same: count, ..Archived::default() });
    assert_eq!(files(&kept), before);
    for from in [&whole, &kept] {
        let other = folder.path().join(format!("from-{}", from.file_name().unwrap().display()));
        archive(from, &other, ROWS).unwrap();
        let there = files(&other).into_iter();
        let there: BTreeMap<_, _> =
            there.map(|(path, bytes)| (kept.join(path.strip_prefix(&other).unwrap()), bytes)).collect();
        assert_eq!(there, before);
    }
}

/// The places that an archive does not keep.
trait Strip {
    fn strip(self) -> Vec<u8>;
}

impl Strip for Vec<u8> {
    fn strip(self) -> Vec<u8> {
        String::from_utf8(self).unwrap().replace("/far/away/", "").into_bytes()
    }
}

/// Replaces a run's trace by one of so many steps with noise of this size.
fn with_noise(folder: &Path, steps: u64, noise: f64) {
    for name in ["config.toml", "meta.json", "summary.json"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let text = text.replace(&format!("steps = {STEPS}"), &format!("steps = {steps}"));
        fs::write(
            folder.join(name),
            text.replace(&format!("\"steps\":{STEPS}"), &format!("\"steps\":{steps}")),
        )
        .unwrap();
    }
    let evaluations = fs::read_to_string(folder.join("eval.jsonl")).unwrap();
    let last = evaluations.replace(&format!("\"step\":{STEPS},"), &format!("\"step\":{steps},"));
    fs::write(folder.join("eval.jsonl"), last).unwrap();
    let mut trace = String::new();
    let mut state = 1u64;
    for step in 0..steps {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        let loss = 1.5 + 2.5 * (-(step as f64) / 300.0).exp() + noise * draw;
        let (norm, seconds) = (0.5 + 0.2 * draw, 0.00413 * step as f64);
        let size = if step == 1234 { "null".to_string() } else { (0.1 + 0.01 * draw).to_string() };
        let smoothness =
            if step % 50 == 7 { format!("\"smoothness\":{},", 3.0 + norm) } else { String::new() };
        writeln!(
            trace,
            "{{\"step\":{step},\"loss\":{loss},\"objective\":{loss},\"grad_norm\":{norm},\"step_size\":{size},{smoothness}\"seconds\":{seconds}}}"
        )
        .unwrap();
    }
    fs::write(folder.join("trace.jsonl"), trace).unwrap();
}

#[test]
fn thinned_curves_look_like_the_whole_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, kept) = (folder.path().join("whole"), folder.path().join("kept"));
    for seed in 1..=3 {
        run(seed, 1.5).write(&whole.join(seed.to_string()));
        with_noise(&whole.join(seed.to_string()), 5000, 0.2);
    }
    let done = archive(&whole, &kept, ROWS).unwrap();
    assert!(done.bytes < 3 * 20_000, "{} bytes", done.bytes);
    let read = |folder: &Path| -> (Comparison, AllCurves) {
        let comparison = compare::compare(runs::find(folder).runs).remove(0);
        let curves = AllCurves::read(&comparison);
        (comparison, curves)
    };
    let ((a, of_whole), (b, of_kept)) = (read(&whole), read(&kept));
    let horizon = a.main_horizon().unwrap();
    let of_whole = of_whole.of(&a.method(horizon, "inexact-polyak").unwrap()).unwrap();
    let of_kept = of_kept.of(&b.method(horizon, "inexact-polyak").unwrap()).unwrap();
    assert_eq!((of_whole.every, of_kept.every), (1, 25));
    assert_eq!(of_kept.smoothness, of_whole.smoothness, "every measurement is kept");
    assert_eq!(of_kept.test, of_whole.test);
    assert_eq!(of_kept.train.bins.len(), 100);
    for bin in &of_kept.train.bins {
        // The mean of the whole curve over the same steps; no bin is empty, so that no line breaks.
        let inside = |other: &&BandBin| other.from < bin.to && other.to > bin.from;
        let means: Vec<f64> =
            of_whole.train.bins.iter().filter(inside).map(|bin| bin.means.unwrap().mean).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let kept = bin.means.unwrap().mean;
        // The three seeds have the same noise here, which is uniform within ± 0.1.
        assert!((kept - mean).abs() < 0.25, "step {}: {kept} and {mean}", bin.from);
    }
    let caption =
        |comparison: &Comparison, curves: &AllCurves| compare::draw(comparison, curves)[0].caption.clone();
    let (comparison, curves) = read(&kept);
    assert!(caption(&comparison, &curves).contains("One in 25 steps was kept"));
    let trace = fs::read_to_string(whole.join("1/trace.jsonl")).unwrap();
    let mut rows = Vec::new();
    read_trace(&kept.join("1/trace.jsonl"), |row| rows.push(row)).unwrap();
    let whole: Vec<TraceRow> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().all(|row| *row == whole[row.step as usize]), "rows are as they were written");
    assert!(rows.iter().any(|row| row.step == 1234) && rows.last().unwrap().step == 4999);
}

#[test]
fn what_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A run's own folder becomes one in the archive.
    run(1, 2.0).write(&path("a"));
    run(2, 2.0).write(&path("b"));
    fs::remove_file(path("b/summary.json")).unwrap();
    for name in ["a", "b"] {
        assert_eq!(archive(&path(name), &path("kept"), ROWS).unwrap().added, 1);
    }
    assert_eq!(runs::find(&path("kept")).runs.iter().filter(|run| run.summary().is_some()).count(), 1);
    // One that has ended since takes the place of itself.
    run(2, 2.0).write(&path("b"));
    let done = archive(&path("b"), &path("kept"), ROWS).unwrap();
    assert_eq!((done.added, done.replaced, done.same), (0, 1, 0));
    let before = files(&path("kept"));
    // One that differs, or has not ended, does not.
    for unfinished in [false, true] {
        run(1, 1.0).write(&path("a"));
        if unfinished {
            fs::remove_file(path("a/summary.json")).unwrap();
        }
        let done = archive(&path("a"), &path("kept"), ROWS).unwrap();
        assert_eq!((done.added, done.replaced, done.same), (0, 0, 1));
        assert!(done.notes[0].contains("stays as it was"), "{:?}", done.notes);
    }
    assert_eq!(files(&path("kept")), before);

    let refused = |from: &str, to: &str| archive(&path(from), &path(to), ROWS).unwrap_err().to_string();
    run(3, 2.0).write(&path("other/a"));
    let error = refused("other", "kept");
    assert!(
        error.contains("kept/a") && error.contains("seed is 1 in the archive and 3 in this run"),
        "{error}"
    );
    assert!(refused("other", "other/kept").contains("outside"));
    run(3, 2.0).write(&path("whole/a"));
    assert!(refused("other", "whole").contains("a whole run"));
    fs::create_dir(path("empty")).unwrap();
    assert!(refused("empty", "kept").contains("no run"));
    assert_eq!(files(&path("kept")), before);

    // A damaged run is named; the others are kept.
    run(4, 2.0).write(&path("some/c"));
    run(5, 2.0).write(&path("some/d"));
    fs::write(path("some/c/trace.jsonl"), "{}\n").unwrap();
    let done = archive(&path("some"), &path("kept"), ROWS).unwrap();
    assert!(done.added == 1 && done.problems[0].contains("trace.jsonl, line 1"), "{:?}", done.problems);
    // So is a damaged archive, on the page.
    let trace = path("kept/d/trace.jsonl.gz");
    let bytes = fs::read(&trace).unwrap();
    fs::write(&trace, &bytes[..bytes.len() / 2]).unwrap();
    let results = results(&path("kept"));
    assert!(
        results.problems.len() == 1 && results.problems[0].contains("d/trace.jsonl.gz"),
        "{:?}",
        results.problems
    );
    assert!(results.page().html().contains("d/trace.jsonl.gz"));
}

/// A verdict at full scale that no run decides cannot be committed.
#[test]
fn the_recorded_verdicts_are_those_of_the_archived_runs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runs");
    let recorded = fs::read(docs.join("claims.json")).unwrap();
    if runs::find(&docs).runs.is_empty() {
        eprintln!("skipped: no run was archived in docs/runs, so that there is no verdict to make again");
        assert_eq!(recorded, b"[]\n", "verdicts without runs");
        return;
    }
    let found = results(&docs);
    assert_eq!(found.problems, Vec::<String>::new());
    let made = networks::record(&found.networks).unwrap_or_else(|| b"[]\n".to_vec());
    assert_eq!(
        String::from_utf8(recorded).unwrap(),
        String::from_utf8(made).unwrap(),
        "make it again: untuned report docs/runs --out PAGE.html --record docs/runs/claims.json"
    );
}
