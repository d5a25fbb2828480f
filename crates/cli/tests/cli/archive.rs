//! `untuned archive`, and what the other commands make of an archive.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::{errors, program};

const EXPERIMENT: &str = "model = \"gpt\"
batch = 2
steps = 6
evaluate_every = 3
evaluate_tokens = 100
smoothness_every = 2
[shape]
context = 8
blocks = 1
width = 16
heads = 2
";
const SWEEP: &str = "experiment = \"x.toml\"
seeds = [1]
[[method]]
rule = \"gd\"
grid.lr = [0.1, 0.5]
[[method]]
rule = \"inexact-polyak\"
";

fn run(folder: &Path, arguments: &str) -> Output {
    let mut command = program();
    command.current_dir(folder).env_remove("UNTUNED_DATA").args(arguments.split_whitespace());
    command.output().expect("the program starts")
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    let said = errors(output) + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} in {said}");
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => drop(all.insert(path.clone(), fs::read(&path).expect("readable"))),
        }
    }
    all
}

#[test]
fn a_sweep_is_kept_and_reported_and_never_trained_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, text) = (folder.path(), "the quick brown fox jumps over a lazy dog\n".repeat(60));
    for (name, text) in [("x.toml", EXPERIMENT), ("sweep.toml", SWEEP), ("text.txt", text.as_str())] {
        fs::write(here.join(name), text).expect("writable");
    }
    let data = here.join("text.txt").display().to_string();
    let sweep = format!("sweep {} --data {data}", here.join("sweep.toml").display());
    expect(&run(here, &format!("{sweep} --out s --keep-weights")), 0, &["3/3"]);
    // What was made on one machine, and the rest from another.
    fs::rename(here.join("s/trials/0002"), here.join("later")).expect("movable");
    expect(&run(here, "archive s --out kept/s"), 0, &["2 runs added to kept/s", "kB"]);
    // A trial that was not made is missed in the tables, and not looked for by the figures.
    let early = run(here, "report kept/s --out early.html");
    expect(&early, 0, &["early.html"]);
    assert!(!errors(&early).contains("cannot read"), "{}", errors(&early));
    fs::rename(here.join("later"), here.join("s/trials/0002")).expect("movable");
    expect(&run(here, "archive s --out kept/s"), 0, &["1 runs added to kept/s, 0 replaced, 2 were there"]);

    let kept = here.join("kept");
    let before = files(&kept);
    let names = |name: &str| before.keys().filter(|path| path.ends_with(name)).count();
    for name in ["config.toml", "meta.json", "summary.json", "trace.jsonl.gz", "eval.jsonl.gz"] {
        assert_eq!(names(name), 3, "{name}");
    }
    assert_eq!((names("plan.json"), names("command.txt"), before.len()), (1, 1, 17));
    let place = here.display().to_string();
    for (path, bytes) in &before {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(&place) && !text.contains("tmp"), "{}: {text}", path.display());
    }
    let command = String::from_utf8_lossy(&before[&kept.join("s/command.txt")]).into_owned();
    assert_eq!(command, "untuned sweep sweep.toml --data text.txt\n");

    // A report of either has the same numbers.
    for name in ["s", "kept/s"] {
        let out = name.replace('/', "-");
        fs::create_dir(here.join(format!("page-{out}"))).expect("writable");
        expect(&run(here, &format!("report {name} --out page-{out}/report.html")), 0, &["report.html"]);
    }
    let read = |name: &str, file: &str| fs::read_to_string(here.join(name).join(file)).expect("a file");
    let numbers = |name: &str| read(name, "runs.csv").replace(&place, "");
    assert_eq!(numbers("page-kept-s"), numbers("page-s"));
    assert_eq!(read("page-kept-s", "figures/x-losses.svg"), read("page-s", "figures/x-losses.svg"));
    assert!(!read("page-kept-s", "report.html").contains(&place));

    // Nothing is trained in an archive.
    expect(&run(here, &format!("{sweep} --out kept/s")), 2, &["archive", "--out"]);
    expect(&run(here, &format!("{sweep} --out kept/s --index 2")), 2, &["archive", "--out"]);
    let resume =
        "train x.toml --rule inexact-polyak --set smoothness_every=2 --resume --out kept/s/trials/0002";
    expect(&run(here, resume), 0, &["kept/s/trials/0002"]);
    assert_eq!(files(&kept), before);
    let summary = kept.join("s/trials/0002/summary.json");
    fs::remove_file(&summary).expect("removable");
    expect(&run(here, resume), 2, &["had not ended", "--out"]);
    expect(&run(here, "archive s --out kept/s"), 0, &["0 runs added to kept/s, 1 replaced, 2 were there"]);
    assert_eq!(files(&kept), before);

    // Wrong requests.
    expect(&run(here, "archive nothing --out kept"), 2, &["nothing is not a folder"]);
    expect(&run(here, "archive s --out s/kept"), 2, &["outside"]);
    expect(&run(here, "archive s --out s --rows 0"), 2, &["--rows"]);
    let record = "report kept/s --out page.html --record claims.json";
    expect(&run(here, record), 2, &["scales `paper`"]);
    assert!(!here.join("claims.json").exists());
    expect(&run(here, "report kept/s s --record claims.json"), 2, &["--out"]);
}

/// Verdicts on runs at the paper's scale can be kept.
#[test]
fn verdicts_at_full_scale_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let scaled = EXPERIMENT.replace("[shape]", "[scale.paper]\nseed = 1\n[shape]");
    fs::write(here.join("x.toml"), scaled).expect("writable");
    fs::write(here.join("sweep.toml"), format!("[scale.paper]\n{SWEEP}")).expect("writable");
    expect(&run(here, "sweep sweep.toml --scale paper --out s"), 0, &["3/3"]);
    expect(&run(here, "archive s --out kept"), 0, &["3 runs added"]);
    let mut made = Vec::new();
    for name in ["s", "kept"] {
        expect(&run(here, &format!("report {name} --record {name}.json")), 0, &["report.html"]);
        made.push(fs::read_to_string(here.join(format!("{name}.json"))).expect("verdicts"));
    }
    assert_eq!(made[0], made[1]);
    assert_eq!(made[0].matches("\"verdict\"").count(), 12, "{}", made[0]);
    expect(&run(here, "report kept --live --record x.json"), 2, &["--record"]);
}
