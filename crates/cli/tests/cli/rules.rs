//! `untuned rules` and `untuned problems`.

use crate::{json, untuned};

#[test]
fn the_list_of_rules_has_the_fields_of_the_contract() {
    let value = json(&untuned("rules --json"));
    let rules = value.as_array().expect("a list");
    let names: Vec<&str> = rules.iter().map(|r| r["name"].as_str().expect("a name")).collect();
    for wanted in [
        "gd",
        "clipped-gd",
        "polyak",
        "polyak-bound",
        "inexact-polyak",
        "decsps",
        "adasps",
        "dog",
        "anytime-polyak",
        "adaptive-polyak",
    ] {
        assert!(names.contains(&wanted), "{wanted} is missing from {names:?}");
    }
    for rule in rules {
        assert!(rule["formula"].is_string() && rule["reference"].is_string(), "{rule}");
        for parameter in rule["parameters"].as_array().expect("a list") {
            assert!(parameter["name"].is_string() && parameter["meaning"].is_string(), "{parameter}");
            assert!(parameter.get("default").is_some(), "{parameter}");
        }
    }
    let at = |name: &str| names.iter().position(|other| *other == name).expect("listed");
    assert!(at("level-polyak") < at("sgd-momentum"), "optimizers stand after the rules: {names:?}");
    assert!(at("adamw") < at("polyak-adam"), "{names:?}");
    let decsps = rules.iter().find(|r| r["name"] == "decsps").expect("decsps");
    assert_eq!(decsps["parameters"][0]["default"], 1.0);
    assert_eq!(decsps["parameters"][1]["default"], 10.0);
}

#[test]
fn every_listed_rule_and_problem_runs() {
    let (rules, problems) = (json(&untuned("rules --json")), json(&untuned("problems --json")));
    for problem in problems.as_array().expect("a list") {
        for rule in rules.as_array().expect("a list") {
            // A rate that must be given, or whose default is too large for the steepest problem.
            let given = |p: &&serde_json::Value| {
                p["required"] == true || (p["name"] == "lr" && rule["name"] == "schedule-free-sgd")
            };
            let pairs = rule["parameters"].as_array().expect("a list").iter().filter(given);
            let pairs: Vec<String> =
                pairs.map(|p| format!("{}=1e-5", p["name"].as_str().expect("a name"))).collect();
            let (name, problem) =
                (rule["name"].as_str().expect("a name"), problem["name"].as_str().expect("a name"));
            let spec =
                if pairs.is_empty() { name.to_string() } else { format!("{name}:{}", pairs.join(",")) };
            let output = untuned(&format!("minimize {problem} --rule {spec} --steps 20 --json"));
            assert_eq!(output.status.code(), Some(0), "{spec} on {problem}: {}", crate::errors(&output));
            assert!(json(&output)["best"]["loss"].is_f64());
        }
    }
}

#[test]
fn an_optimizer_is_no_scalar_rule() {
    for arguments in ["minimize quartic --rule adamw --steps 3 --explain", "bench rule adamw:lr=0.1"] {
        let output = untuned(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let error = crate::errors(&output);
        assert!(error.contains("`adamw`") && error.contains("`inexact-polyak`"), "{error}");
    }
}

#[test]
fn help_shows_examples() {
    for arguments in [
        "--help",
        "minimize --help",
        "reproduce --help",
        "report --help",
        "data --help",
        "data list --help",
        "data check --help",
        "data fetch --help",
    ] {
        let output = untuned(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8(output.stdout).expect("UTF-8").contains("Example"), "{arguments}");
    }
}
