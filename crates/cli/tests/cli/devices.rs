//! `untuned doctor`, and devices that are not there.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::{errors, json, program, untuned};

/// What `untuned doctor` says of libraries and GPUs.
fn survey() -> Value {
    json(&untuned("doctor --json"))
}

/// The first thing that is missing for any GPU; nothing where one can be used.
fn missing() -> Option<String> {
    let survey = survey();
    let problems =
        ["driver", "nvrtc", "cublaslt"].map(|part| survey[part]["problem"].as_str().map(String::from));
    problems.into_iter().flatten().next()
}

const EXPERIMENT: &str = "model = \"gpt\"\nsteps = 1\nbatch = 1\nevaluate_tokens = 64\n\
    [shape]\ncontext = 8\nblocks = 1\nwidth = 8\nheads = 1\n";

#[test]
fn the_doctor_reports_what_is_there_and_ends_with_0() {
    let survey = survey();
    assert!(survey["cpu"]["threads"].as_u64().is_some_and(|threads| threads > 0), "{survey}");
    assert!(survey["gpus"].is_array() && survey["cache"].is_object(), "{survey}");
    let output = untuned("doctor");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for words in ["CPU", "GPU driver", "NVRTC", "cuBLASLt", "kernel cache", "`--device auto` is"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    if let Some(problem) = missing() {
        assert!(text.contains(&problem) && text.contains("auto` is cpu in f32"), "{problem} in {text}");
    }
}

#[test]
fn a_gpu_that_cannot_be_used_is_exit_4_and_says_what_is_missing() {
    let Some(problem) = missing() else {
        eprintln!("skipped: there are all libraries for a GPU");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("x.toml"), EXPERIMENT).expect("writable");
    let sweep = "experiment = \"x.toml\"\nseeds = [1, 2]\n[[method]]\nrule = \"inexact-polyak\"\n";
    fs::write(folder.path().join("sweep.toml"), sweep).expect("writable");
    let run = |arguments: &str| {
        let mut command = program();
        command.current_dir(folder.path()).env_remove("UNTUNED_DATA").args(arguments.split_whitespace());
        command.output().expect("the program starts")
    };
    let fails = |output: &Output, words: &str| {
        let errors = errors(output);
        assert_eq!(output.status.code(), Some(4), "{errors}");
        assert!(errors.contains(words) && errors.contains("cuda:0"), "{words} in {errors}");
    };
    for arguments in [
        "train x.toml --out run --device cuda:0",
        "train x.toml --out run --device cuda --precision tf32",
        "train x.toml --out run --set device=cuda:0",
        "sweep sweep.toml --out sweep --device cuda:0",
        "bench step --device cuda:0 --precision bf16",
        "bench update --device cuda:0",
    ] {
        fails(&run(arguments), &problem);
        assert!(!folder.path().join("run").exists(), "{arguments}: nothing is written");
    }
    assert!(!folder.path().join("sweep/trials/0000").exists(), "said once, not by every trial");

    // Without a GPU, `auto` is the CPU; what it trained can be sampled there too.
    let trained = run("train x.toml --out run --device auto");
    assert_eq!(trained.status.code(), Some(0), "{}", errors(&trained));
    let config = fs::read_to_string(folder.path().join("run/config.toml")).expect("written");
    assert!(config.contains("device = \"cpu\"\nprecision = \"f32\"\n"), "{config}");
    assert_eq!(run("sample run --length 3 --device cpu").status.code(), Some(0));
    fails(&run("sample run --length 3 --device cuda:0"), &problem);

    // The device decides over a run's numbers.
    for (arguments, words) in [
        ("--device cuda:0", "device is \"cpu\" in run and \"cuda:0\" in this request"),
        ("--precision tf32 --device cuda:0", "in this request"),
    ] {
        let output = run(&format!("train x.toml --out run --resume {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains(words), "{}", errors(&output));
    }
}
