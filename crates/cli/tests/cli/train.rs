//! `untuned train` and `untuned sample`.

use std::collections::BTreeSet;
use std::fs;
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
steps = 12
evaluate_every = 5
checkpoint_every = 4
[scale.quick.shape]
context = 8
blocks = 1
width = 16
heads = 2
";
const WORDS: [&str; 9] = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"];

/// A folder with an experiment `x.toml` and a text.
fn bench() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("x.toml"), EXPERIMENT).expect("writable");
    fs::write(folder.path().join("text.txt"), (WORDS.join(" ") + "\n").repeat(60)).expect("writable");
    folder
}

/// `untuned train x.toml --data text.txt` with more arguments, split at spaces.
fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = program();
    command.current_dir(folder).env_remove("UNTUNED_DATA").args(["train", "x.toml", "--data", "text.txt"]);
    command.args(arguments.split_whitespace());
    command
}

fn train(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    let errors = errors(output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    for word in words {
        assert!(errors.contains(word), "{word:?} in {errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// What must be the same for every way to the end: the trace without times, the evaluations, the last weights.
fn left(run: &Path, step: u64) -> (Vec<Value>, Vec<u8>, Vec<u8>) {
    let mut trace = lines(&run.join("trace.jsonl"));
    for row in &mut trace {
        row.as_object_mut().expect("an object").remove("seconds");
    }
    let weights = run.join(format!("checkpoint/step-{step:09}/weights.safetensors"));
    (trace, fs::read(run.join("eval.jsonl")).expect("readable"), fs::read(weights).expect("readable"))
}

#[test]
fn a_run_writes_the_folder_that_is_promised() {
    let folder = bench();
    let output = train(folder.path(), "--out run");
    expect(&output, 0, &["parameters, 12 steps", "step 12/12: validation", "tokens/s"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("test loss"));
    let run = folder.path().join("run");
    let names: BTreeSet<String> = fs::read_dir(&run)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let wanted = ["checkpoint", "config.toml", "eval.jsonl", "meta.json", "summary.json", "trace.jsonl"];
    assert_eq!(names, wanted.map(String::from).into());

    let trace = lines(&run.join("trace.jsonl"));
    assert_eq!(trace.len(), 12);
    for (step, row) in trace.iter().enumerate() {
        let wanted = ["step", "loss", "objective", "grad_norm", "step_size", "seconds"];
        assert_eq!(keys(row), wanted.into());
        assert_eq!(row["step"], step);
        assert!(row["step_size"].as_f64().is_some_and(|size| size > 0.0), "{row}");
    }
    let eval = lines(&run.join("eval.jsonl"));
    let at: Vec<_> = eval.iter().map(|row| (row["step"].as_u64(), row["split"].as_str())).collect();
    let wanted = [0, 5, 10, 12].map(|step| ["validation", "test"].map(|split| (Some(step), Some(split))));
    assert_eq!(at, wanted.concat());
    assert!(eval.iter().all(|row| keys(row) == ["step", "split", "loss"].into() && row["loss"].is_f64()));

    let summary = read_json(&run.join("summary.json"));
    let wanted = [
        "rule",
        "steps",
        "seed",
        "final_train_loss",
        "final_validation_loss",
        "final_test_loss",
        "best_validation_loss",
        "best_test_loss",
        "diverged",
        "seconds",
    ];
    assert_eq!(keys(&summary), wanted.into());
    assert_eq!((&summary["rule"], &summary["steps"]), (&"inexact-polyak".into(), &12.into()));
    assert_eq!(summary["final_test_loss"], eval[7]["loss"]);
    assert_eq!(summary["diverged"], false);
    let meta = read_json(&run.join("meta.json"));
    assert_eq!(meta["data"]["sha256"][0][0], "text.txt");
    assert_eq!((&meta["device"], &meta["steps"]), (&"cpu".into(), &12.into()));
    assert_eq!((&meta["precision"], meta.get("gpu")), (&"f32".into(), None));

    // The folder is taken, unless the run is to go on; then it has ended.
    expect(&train(folder.path(), "--out run"), 2, &["run is not empty", "--resume", "--out"]);
    let before = fs::read(run.join("trace.jsonl")).expect("readable");
    let again = train(folder.path(), "--out run --resume");
    expect(&again, 0, &[]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("has ended before"));
    assert_eq!(fs::read(run.join("trace.jsonl")).expect("readable"), before);
}

/// A table without its last column, which in a trace is the time.
fn table(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().map(|line| line.rsplit_once(',').expect("columns").0.to_string()).collect()
}

#[test]
fn tables_and_events_stand_beside_the_lines() {
    let folder = bench();
    let arguments = "--out run --csv --tensorboard --set smoothness_every=4 --set method=mine";
    expect(&train(folder.path(), arguments), 0, &[]);
    let run = folder.path().join("run");
    let trace = table(&run.join("trace.csv"));
    assert_eq!(
        (trace.len(), &trace[0][..]),
        (13, "step,loss,objective,grad_norm,step_size,smoothness,estimate")
    );
    let measured: Vec<_> = (0..12).filter(|step| !trace[step + 1].ends_with(",,")).collect();
    assert_eq!(measured, [0, 4, 8]);
    assert_eq!(table(&run.join("eval.csv")).len(), 9);
    let events = fs::read_dir(run.join("tensorboard")).expect("a folder").flatten();
    let names: Vec<_> = events.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.len() == 1 && names[0].starts_with("events.out.tfevents."), "{names:?}");
    let config = fs::read_to_string(run.join("config.toml")).expect("readable");
    assert!(config.contains("method = \"mine\"") && !config.contains("csv"), "{config}");
}

#[test]
fn a_run_without_hope_ends_with_3_and_has_ended() {
    let folder = bench();
    let arguments = "--rule gd:lr=1e-30 --set give_up_after=0.5 --out run";
    let words = ["given up at step 10", "not below the first", "give_up_after"];
    expect(&train(folder.path(), arguments), 3, &words);
    let summary = read_json(&folder.path().join("run/summary.json"));
    assert_eq!((&summary["diverged"], &summary["steps"]), (&true.into(), &10.into()));
    let again = train(folder.path(), &format!("{arguments} --resume"));
    expect(&again, 3, &["given up"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("has ended before"));
}

#[test]
fn without_a_folder_the_name_says_what_it_is() {
    let folder = bench();
    expect(&train(folder.path(), "--rule sgd:lr=0.5 --seed 7 --steps 1"), 0, &[]);
    assert!(folder.path().join("untuned-runs/x-quick-gd-lr=0.5-s7/summary.json").is_file());
}

#[test]
fn killed_many_times_it_ends_with_the_same_bits() {
    let folder = bench();
    let arguments = "--steps 500 --set checkpoint_every=9 --set evaluate_every=50 --rule adaptive-polyak --csv --tensorboard";
    let began = Instant::now();
    expect(&train(folder.path(), &format!("{arguments} --out whole --threads 2")), 0, &[]);
    let (whole, said) = (began.elapsed(), folder.path().join("said"));
    let (mut kills, mut rounds, mut random) = (0, 0, 12345u64);
    // A machine that is quick at some times and slow at others ends a run after few kills: then another follows.
    for run in 0.. {
        if kills >= 12 {
            break;
        }
        let run = format!("killed-{run}");
        loop {
            rounds += 1;
            let arguments = format!("{arguments} --out {run} --resume --threads {}", 1 + rounds % 3);
            let mut child = command(folder.path(), &arguments)
                .stdout(Stdio::null())
                .stderr(fs::File::create(&said).expect("writable"))
                .spawn()
                .expect("the program starts");
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let share = (random >> 33) as f64 / (1u64 << 31) as f64;
            std::thread::sleep(whole.mul_f64(share / 5.0));
            if kills >= 12 || child.try_wait().expect("a child").is_some() {
                let code = child.wait().expect("a child").code();
                assert_eq!(code, Some(0), "{}", fs::read_to_string(&said).expect("text"));
                break;
            }
            child.kill().expect("a child that runs");
            child.wait().expect("a child");
            kills += 1;
        }
        let run = folder.path().join(run);
        let whole = folder.path().join("whole");
        assert!(left(&run, 500) == left(&whole, 500), "after {kills} kills");
        assert!(table(&run.join("trace.csv")) == table(&whole.join("trace.csv")), "after {kills} kills");
        let length =
            |run: &Path| fs::metadata(run.join("tensorboard/events.out.tfevents.untuned")).map(|f| f.len());
        assert_eq!(
            length(&run).ok(),
            length(&whole).ok(),
            "every event is of one length, whenever it was written"
        );
        assert!(run.join("summary.json").is_file());
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_says_how_to_go_on() {
    let folder = bench();
    let mut child = command(folder.path(), "--steps 1000000 --out run")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let trace = folder.path().join("run/trace.jsonl");
    let began = Instant::now();
    while fs::metadata(&trace).map_or(0, |found| found.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(asked.success());
    let code = child.wait().expect("a child").code();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut said).expect("text");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("go on with `untuned train x.toml --out run --resume`"), "{said}");
    let made = lines(&trace).len() as u64;
    assert!(folder.path().join(format!("run/checkpoint/step-{made:09}")).is_dir(), "saved where it stood");
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_is_used() {
    let folder = bench();
    let path = |run: &str| folder.path().join(run);
    expect(&train(folder.path(), "--out whole --steps 10"), 0, &[]);
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 3] = [
        ("weights.safetensors", |file| {
            let mut bytes = fs::read(file).expect("readable");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            fs::write(file, bytes).expect("writable");
        }),
        ("state.json", |file| {
            let bytes = fs::read(file).expect("readable");
            fs::write(file, &bytes[..bytes.len() / 2]).expect("writable");
        }),
        ("vocabulary.json", |file| fs::remove_file(file).expect("removable")),
    ];
    for (file, damage) in damages {
        let run = path("run");
        expect(&train(folder.path(), "--out run --steps 10"), 0, &[]);
        fs::remove_file(run.join("summary.json")).expect("removable");
        damage(&run.join("checkpoint/step-000000010").join(file));
        expect(
            &train(folder.path(), "--out run --steps 10 --resume"),
            0,
            &["step-000000010", file, "step 8"],
        );
        assert!(left(&run, 10) == left(&path("whole"), 10), "{file}");

        // All of them damaged: nothing is guessed.
        fs::remove_file(run.join("summary.json")).expect("removable");
        for step in fs::read_dir(run.join("checkpoint")).expect("a folder").flatten() {
            damage(&step.path().join(file));
        }
        let none = train(folder.path(), "--out run --steps 10 --resume");
        expect(&none, 2, &["no checkpoint can be used", file]);
        let prompt = program().arg("sample").arg(&run).output().expect("the program starts");
        expect(&prompt, 2, &["no checkpoint can be used"]);
        fs::remove_dir_all(&run).expect("removable");
    }
}

#[test]
fn what_contradicts_the_run_is_refused() {
    let folder = bench();
    let interrupted = |run: &str| {
        expect(&train(folder.path(), &format!("--out {run}")), 0, &[]);
        fs::remove_file(folder.path().join(run).join("summary.json")).expect("removable");
    };
    interrupted("run");
    for (arguments, words) in [
        ("--steps 13", &["steps is 12 in run and 13 in this request"][..]),
        ("--rule dog", &["rule is \"inexact-polyak\"", "\"dog\""]),
        ("--seed 2", &["seed is 1"]),
        ("--set batch=3", &["batch is 2", "3"]),
        ("--set shape.width=32", &["shape.width is 16", "32"]),
        ("--set optimizer.weight_decay=0.1", &["optimizer.weight_decay"]),
        ("--set optimizer={weight_decay=0.1}", &["optimizer.weight_decay"]),
        ("--set shape={width=32}", &["shape.width is 16", "32"]),
    ] {
        expect(&train(folder.path(), &format!("--out run --resume {arguments}")), 2, words);
    }
    // What the file says now is reported, and does not change the run.
    let edited = EXPERIMENT.replace("batch = 2", "batch = 4");
    fs::write(folder.path().join("x.toml"), &edited).expect("writable");
    expect(&train(folder.path(), "--out run --resume"), 0, &["batch would now be 4; the run goes on with 2"]);
    // Nor may the saved copy be changed by hand.
    interrupted("edited");
    let saved = folder.path().join("edited/config.toml");
    let text = fs::read_to_string(&saved).expect("readable").replace("seed = 1", "seed = 2");
    fs::write(&saved, text).expect("writable");
    expect(
        &train(folder.path(), "--out edited --resume"),
        2,
        &["made with seed = 1, and config.toml says 2"],
    );
    // Another text is another run.
    interrupted("other");
    fs::write(folder.path().join("text.txt"), "another text. ".repeat(60)).expect("writable");
    expect(&train(folder.path(), "--out other --resume"), 2, &["the data is not what the run began with"]);
    // A folder of something else.
    fs::create_dir(folder.path().join("mine")).expect("a folder");
    fs::write(folder.path().join("mine/thesis.txt"), "x").expect("writable");
    expect(&train(folder.path(), "--out mine --resume"), 2, &["thesis.txt", "not a run's folder"]);
    // Without a checkpoint, from the beginning.
    expect(&train(folder.path(), "--out new --resume"), 0, &[]);
}

#[test]
fn wrong_requests_end_with_2_and_say_what_to_type() {
    let folder = bench();
    for (arguments, words) in [
        ("--set bacth=3", &["unknown key `bacth`", "did you mean `batch`"][..]),
        ("--set batch=many", &["batch", "many"]),
        ("--set batch=0", &["batch is 0"]),
        ("--set shape.widht=8", &["shape.widht", "did you mean `shape.width`"]),
        ("--set shape.width=7", &["shape.heads is 2", "divides"]),
        ("--set shape.context=60000", &["too short", "text.txt"]),
        ("--set nothing", &["--set key=value"]),
        ("--rule polyac", &["polyac", "did you mean `polyak`"]),
        ("--rule polyak", &["f_star"]),
        ("--rule gd", &["lr"]),
        ("--scale papr", &["papr", "quick"]),
        ("--device tpu", &["device is tpu", "cuda:0"]),
        ("--device cuda:x", &["device is cuda:x", "the GPU's number"]),
        ("--device cpu --precision bf16", &["precision is bf16", "give f32"]),
        ("--precision half", &["precision is half", "bf16"]),
        ("--threads 0", &["--threads"]),
        ("--set epochs=3", &["give steps"]),
        ("--set evaluate_every=epoch", &["evaluate_every is epoch", "give steps"]),
        ("--set evaluate_every=0", &["evaluate_every is 0", "or \"epoch\""]),
        ("--set model=gtp", &["gtp", "gpt"]),
        ("--seed 18446744073709551615", &["--seed"]),
        ("--data missing.txt", &["missing.txt"]),
    ] {
        let arguments = format!("{arguments} --out run");
        let output = if arguments.contains("--data") {
            program().current_dir(folder.path()).args(["train", "x.toml"]).args(arguments.split(' ')).output()
        } else {
            command(folder.path(), &arguments).output()
        };
        expect(&output.expect("the program starts"), 2, words);
        assert!(!folder.path().join("run").exists(), "{arguments}: nothing is written");
    }
    let missing = program().args(["train", "missing.toml"]).output().expect("the program starts");
    expect(&missing, 2, &["missing.toml"]);
    for (text, words) in
        [("", &["text.txt is empty"][..]), ("ab", &["too short"]), ("\u{0}\u{1}", &["too short"])]
    {
        fs::write(folder.path().join("text.txt"), text).expect("writable");
        expect(&train(folder.path(), "--out run"), 2, words);
    }
    fs::write(folder.path().join("text.txt"), b"abc\xff").expect("writable");
    expect(&train(folder.path(), "--out run"), 2, &["not UTF-8"]);
    fs::write(folder.path().join("x.toml"), b"model = \xff").expect("writable");
    expect(&train(folder.path(), "--out run"), 2, &["x.toml", "UTF-8"]);
}

#[test]
fn a_run_that_diverges_ends_with_3_and_its_checkpoint_loads() {
    let folder = bench();
    let output = train(folder.path(), "--rule gd:lr=1e300 --steps 100 --set max_refusals=4 --out run");
    expect(&output, 3, &["ended at step 3", "refused", "the step size is 1e300"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("refused steps    4"));
    let run = folder.path().join("run");
    assert_eq!(read_json(&run.join("summary.json"))["diverged"], true);
    let trace = lines(&run.join("trace.jsonl"));
    assert_eq!(trace.len(), 4);
    assert!(trace.iter().all(|row| row["step_size"].is_null() && row["loss"].is_number()));
    let sample = program().arg("sample").arg(&run).args(["--length", "5"]).output().expect("it starts");
    expect(&sample, 0, &[]);
    expect(&train(folder.path(), "--resume --out run"), 3, &[]);

    // Fewer steps than may be refused in a row, and none of them made.
    let output = train(folder.path(), "--rule gd:lr=1e300 --steps 3 --out short");
    expect(&output, 3, &["ended at step 2", "refused"]);
    assert_eq!(read_json(&folder.path().join("short/summary.json"))["diverged"], true);
}

/// A step so large that the weights are finite and the gradient is not: the loss alone would not tell.
#[test]
fn a_run_ended_by_its_gradients_has_diverged_too() {
    let folder = bench();
    let arguments = "--rule gd:lr=1e30 --set max_refusals=3 --out run";
    expect(&train(folder.path(), arguments), 3, &["refused steps"]);
    let summary = read_json(&folder.path().join("run/summary.json"));
    assert_eq!((&summary["diverged"], &summary["final_test_loss"]), (&true.into(), &Value::Null));
    expect(&train(folder.path(), &format!("{arguments} --resume")), 3, &["diverged"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_waited_for() {
    let folder = bench();
    fs::remove_file(folder.path().join("text.txt")).expect("removable");
    let made = Command::new("mkfifo").arg(folder.path().join("text.txt")).status();
    assert!(made.expect("mkfifo starts").success());
    expect(&train(folder.path(), "--out run"), 2, &["text.txt is not a file"]);
}

#[test]
fn samples_hold_only_what_was_trained_on() {
    let folder = bench();
    expect(&train(folder.path(), "--out run --set keep_best=validation"), 0, &[]);
    let sample = |run: &str, arguments: &[&str]| {
        let mut command = program();
        command.current_dir(folder.path()).args(["sample", run]).args(arguments);
        command.output().expect("the program starts")
    };
    let text = |output: Output| String::from_utf8(output.stdout).expect("UTF-8");
    let one = sample("run", &["--prompt", "the q", "--length", "40"]);
    expect(&one, 0, &[]);
    let one = text(one);
    assert!(one.starts_with("the q") && one.chars().count() == 46, "{one:?}");
    assert!(one.trim_end().chars().all(|c| WORDS.concat().contains(c) || c == ' ' || c == '\n'), "{one:?}");
    assert_eq!(text(sample("run", &["--prompt", "the q", "--length", "40"])), one, "by the seed");
    assert_ne!(text(sample("run", &["--prompt", "the q", "--length", "40", "--seed", "2"])), one);
    let greedy = |seed| text(sample("run", &["--temperature", "0", "--length", "20", "--seed", seed]));
    assert_eq!(greedy("1"), greedy("2"));
    expect(&sample("run", &["--prompt", "the Zoo!"]), 2, &["characters", "'!'", "'Z'"]);
    expect(&sample("run", &["--temperature", "-1"]), 2, &["--temperature"]);
    expect(&sample("nowhere", &[]), 2, &["nowhere", "not a run's folder"]);
    assert!(text(sample("run", &["--prompt", " ", "--length", "3"])).starts_with(' '), "a space is text");
    assert_eq!(text(sample("run", &["--length", "3"])).chars().count(), 4, "nothing but what was drawn");
    expect(&sample("run", &["--best"]), 0, &[]);

    // Words.
    let lstm = "model = \"lstm\"\nbatch = 2\nsteps = 4\n[shape]\nbptt = 5\nembedding = 16\nhidden = 16\nlayers = 2\n";
    fs::write(folder.path().join("x.toml"), lstm).expect("writable");
    let output = train(folder.path(), "--out words");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", errors(&output));
    let words = text(sample("words", &["--prompt", "quick fox", "--length", "30"]));
    assert!(words.starts_with("quick fox"), "{words}");
    assert!(words.split_whitespace().all(|word| WORDS.contains(&word)), "{words}");
    expect(&sample("words", &["--prompt", "quick wolf"]), 2, &["\"wolf\""]);
    expect(&sample("words", &["--best"]), 2, &["kept no best weights", "keep_best=validation"]);

    // Gaps.
    let t5 = "model = \"t5\"\nbatch = 2\nsteps = 2\ndata = \"generated\"\nevaluate_tokens = 64\n[shape]\ninputs = 16
        width = 16\nheads = 2\nhead_width = 8\nfeed_forward = 32\nlayers = 1\nvocabulary = 400\n";
    fs::write(folder.path().join("t5.toml"), t5).expect("writable");
    let output = program().current_dir(folder.path()).args(["train", "t5.toml", "--out", "gaps"]).output();
    let output = output.expect("the program starts");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", errors(&output));
    expect(&sample("gaps", &["--prompt", "<extra_id_0> .", "--length", "9"]), 0, &[]);
    expect(&sample("gaps", &["--prompt", "wolf"]), 2, &["\"wolf\""]);
}

/// A file system that is as good as full. Needs root; elsewhere the test says that it was skipped.
struct Small {
    path: PathBuf,
}

impl Small {
    fn mount(path: PathBuf, size: &str) -> Option<Small> {
        fs::create_dir(&path).ok()?;
        let option = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(&path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Small { path })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

#[test]
fn a_full_disk_ends_with_4_and_loses_nothing() {
    let folder = bench();
    let Some(small) = Small::mount(folder.path().join("small"), "192k") else {
        eprintln!("skipped: no small file system can be mounted here (it needs root)");
        return;
    };
    // Three checkpoints of about 20 KiB fit; the trace grows until nothing does.
    let arguments = "--steps 4000 --set evaluate_every=1000 --set checkpoint_every=50";
    let output = train(folder.path(), &format!("{arguments} --out small/run"));
    expect(&output, 4, &["cannot write", "No space left", "--resume"]);
    // Moved to where there is room, the run goes on to the same bits.
    let copied =
        Command::new("cp").arg("-r").arg(small.path.join("run")).arg(folder.path().join("run")).status();
    assert!(copied.expect("cp").success());
    expect(&train(folder.path(), &format!("{arguments} --out run --resume")), 0, &["going on at step"]);
    expect(&train(folder.path(), &format!("{arguments} --out whole")), 0, &[]);
    assert!(left(&folder.path().join("run"), 4000) == left(&folder.path().join("whole"), 4000));
}
