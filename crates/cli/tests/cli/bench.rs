//! `untuned bench`: its JSON is a contract; its numbers are only looked at.

use crate::{errors, json, program, untuned};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn measured(arguments: &str) -> Value {
    json(&untuned(&format!("bench {arguments} --json")))
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn a_step_of_every_network() {
    for (model, params, loss) in [("gpt", 804_096, 65f64.ln()), ("lstm", 346_088, 1000f64.ln())] {
        let step = measured(&format!("step --model {model} --preset tiny --batch 2 --steps 1 --threads 1"));
        let wanted = [
            "model",
            "device",
            "precision",
            "batch",
            "params",
            "ms",
            "tokens_per_s",
            "loss",
            "peak_bytes",
            "first_step_s",
        ];
        assert_eq!(keys(&step), wanted.into());
        assert_eq!((&step["device"], &step["precision"]), (&"cpu".into(), &"f32".into()));
        assert_eq!((&step["model"], &step["params"]), (&model.into(), &params.into()));
        assert!((step["loss"].as_f64().expect("finite") - loss).abs() < 0.2, "{step}");
    }
}

#[test]
fn a_rule() {
    let rule = measured("rule polyak:f_star=0.5 --steps 2");
    assert_eq!(keys(&rule), ["rule", "ns"].into());
    assert_eq!(rule["rule"], "polyak:f_star=0.5");
    assert!(rule["ns"].as_f64().is_some_and(|ns| ns > 0.0));
    let output = untuned("bench rule polyac");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("did you mean `polyak`"));
}

/// The first Ctrl-C ends it: there is nothing to keep.
#[test]
fn an_interrupt_ends_it() {
    let mut child = program()
        .args([
            "bench",
            "step",
            "--model",
            "gpt",
            "--preset",
            "tiny",
            "--batch",
            "1",
            "--steps",
            "4000000000",
        ])
        .args(["--threads", "1", "--device", "cpu"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    std::thread::sleep(Duration::from_secs(1));
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(asked.success());
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if began.elapsed() > Duration::from_secs(30) => {
                child.kill().expect("it can be ended");
                panic!("it goes on");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(130));
}

#[test]
fn wrong_requests() {
    for arguments in [
        "step --model gtp",
        "step --batch 0",
        "step --steps 0",
        "step --device tpu",
        "step --precision bf16",
        "update --device cuda:-1",
        "update --steps 0",
    ] {
        let output = untuned(&format!("bench {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
    }
}
