//! The table of the README has every method, and says of it what is so.

use crate::support::{START, Six, spec};
use burn::tensor::DType;
use untuned::catalog;
use untuned_burn::{Rate, Stepper};

/// The last column: its first number, "a copy" being one and "nothing" none.
fn copies(words: &str) -> usize {
    match words.split([' ', ':']).next() {
        Some("nothing") => 0,
        Some("a") => 1,
        number => number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{words}")),
    }
}

#[test]
fn the_table_of_methods() {
    let text = include_str!("../../README.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let mut names = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for name in cells[1].split(", ").map(|name| name.trim_matches('`')) {
            names.push(name);
            let spec = spec(name, &[]);
            let mut stepper = Stepper::new(&spec, 9).unwrap();
            let mut module = Six::new(&START, 4, DType::F32);
            let loss = module.loss(0, 0.0, 0);
            let gradients = module.gradients(&loss);
            stepper.step(loss, &mut module, gradients).unwrap();
            assert_eq!(cells[2], "yes");
            assert_eq!(cells[3] == "yes", Rate::new(&spec, 9).is_ok(), "{name}");
            assert_eq!(copies(cells[4]), stepper.memory() / (4 * START.len()), "{name}");
        }
    }
    let mut known: Vec<_> = catalog().iter().map(|entry| entry.name).collect();
    names.sort();
    known.sort();
    assert_eq!(names, known);
}
