//! CSV files and TensorBoard's events hold what the JSON lines hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use untuned_lab::train::{Options, Outcome, Sinks};

use crate::{Bench, GPT, rows};

const BOTH: Options =
    Options { threads: Some(2), sinks: Sinks { csv: true, tensorboard: true }, drops_weights: false };
const EVENTS: &str = "tensorboard/events.out.tfevents.untuned";
const SET: [&str; 2] = ["rule=gd:lr=0.1", "smoothness_every=2"];

/// Steps and values by tag.
type Curves = BTreeMap<String, Vec<(u64, f32)>>;

/// A value of an event: its step, tag and number.
type Scalar = (u64, String, f32);

fn curves_of(scalars: Vec<Scalar>) -> Curves {
    let mut curves = Curves::new();
    for (step, tag, value) in scalars {
        curves.entry(tag).or_default().push((step, value));
    }
    curves
}

/// What the JSON lines say.
fn curves_of_rows(run: &Path) -> Curves {
    let mut scalars = Vec::new();
    let mut add = |tag: String, row: &Value, key: &str| {
        if let Some(value) = row[key].as_f64() {
            scalars.push((row["step"].as_u64().unwrap(), tag, value as f32));
        }
    };
    for row in rows(&run.join("trace.jsonl")) {
        for key in ["loss", "objective", "grad_norm", "step_size", "smoothness", "estimate"] {
            add(format!("train/{key}"), &row, key);
        }
    }
    for row in rows(&run.join("eval.jsonl")) {
        add(format!("{}/loss", row["split"].as_str().unwrap()), &row, "loss");
    }
    curves_of(scalars)
}

/// CRC-32C bit by bit, masked.
fn checksum(data: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for bit in data.iter().flat_map(|byte| (0..8).map(move |at| u32::from(byte >> at & 1))) {
        let out = (crc & 1) ^ bit;
        crc = (crc >> 1) ^ (0x82F6_3B78 * out);
    }
    let crc = !crc;
    crc.rotate_left(17).wrapping_add(0xA282_EAD8)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The fields of a message by number; a varint as its eight bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let value = match key & 7 {
            0 => varint(&mut message).to_le_bytes().to_vec(),
            1 => take(&mut message, 8).to_vec(),
            2 => {
                let length = varint(&mut message) as usize;
                take(&mut message, length).to_vec()
            }
            5 => take(&mut message, 4).to_vec(),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn field(message: &[u8], number: u64) -> Option<Vec<u8>> {
    fields(message).into_iter().find(|(found, _)| *found == number).map(|(_, value)| value)
}

/// The events of a file whose checksums are right: wall times, and values in their order.
fn read_events(path: &Path) -> (Vec<f64>, Vec<Scalar>) {
    let bytes = fs::read(path).unwrap();
    let mut bytes = &bytes[..];
    let (mut times, mut scalars) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let length = take(&mut bytes, 8);
        assert_eq!(take(&mut bytes, 4), checksum(length).to_le_bytes());
        let event = take(&mut bytes, u64::from_le_bytes(length.try_into().unwrap()) as usize);
        assert_eq!(take(&mut bytes, 4), checksum(event).to_le_bytes());
        let version = field(event, 3);
        assert_eq!(version.as_deref(), times.is_empty().then_some(&b"brain.Event:2"[..]));
        times.push(f64::from_le_bytes(field(event, 1).unwrap().try_into().unwrap()));
        let step = u64::from_le_bytes(field(event, 2).unwrap().try_into().unwrap());
        for (number, value) in fields(&field(event, 5).unwrap_or_default()) {
            assert_eq!(number, 1);
            let tag = String::from_utf8(field(&value, 1).unwrap()).unwrap();
            let number = f32::from_le_bytes(field(&value, 2).unwrap().try_into().unwrap());
            scalars.push((step, tag, number));
        }
    }
    (times, scalars)
}

/// A table as text, without the column of times.
fn table(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    let mut rows: Vec<Vec<String>> =
        text.lines().map(|line| line.split(',').map(String::from).collect()).collect();
    if let Some(times) = rows[0].iter().position(|name| name == "seconds") {
        rows.iter_mut().for_each(|row| drop(row.remove(times)));
    }
    rows
}

#[track_caller]
fn assert_same(bench: &Bench, run: &str, other: &str) {
    let [run, other] = [run, other].map(|name| bench.path(name));
    for file in ["trace.csv", "eval.csv"] {
        assert_eq!(table(&run.join(file)), table(&other.join(file)), "{file}");
    }
    assert_eq!(read_events(&run.join(EVENTS)).1, read_events(&other.join(EVENTS)).1);
}

#[test]
fn they_hold_every_row() {
    let bench = Bench::new();
    // The second run has rows without numbers, the third an estimate in each.
    for (run, rule) in
        [("learns", "rule=gd:lr=0.1"), ("wild", "rule=adamw:lr=3e37"), ("estimates", "rule=prodigy")]
    {
        let set = [rule, "smoothness_every=2", "max_refusals=9"];
        bench.train_as(&bench.open(GPT, run, &set, false), &BOTH, None);
        let run = bench.path(run);
        for (lines, file, columns) in [
            (
                "trace.jsonl",
                "trace.csv",
                "step,loss,objective,grad_norm,step_size,smoothness,estimate,seconds",
            ),
            ("eval.jsonl", "eval.csv", "step,split,loss"),
        ] {
            let text = fs::read_to_string(run.join(file)).unwrap();
            let (header, body) = text.split_once('\n').unwrap();
            assert_eq!(header, columns);
            let rows = rows(&run.join(lines));
            assert_eq!(body.lines().count(), rows.len(), "{file}");
            for (line, row) in body.lines().zip(rows) {
                let keys = row.as_object().unwrap().keys();
                assert!(keys.clone().all(|key| columns.split(',').any(|column| column == key)), "{row}");
                for (cell, column) in line.split(',').zip(columns.split(',')) {
                    match &row[column] {
                        Value::Null => assert_eq!(cell, "", "{column} of {row}"),
                        Value::String(word) => assert_eq!(cell, word),
                        number => assert_eq!(cell.parse::<f64>().ok(), number.as_f64(), "{column} of {row}"),
                    }
                }
            }
        }
        let (times, scalars) = read_events(&run.join(EVENTS));
        assert_eq!(curves_of(scalars), curves_of_rows(&run));
        assert!(times.is_sorted() && times[0] > 1.7e9 && times[times.len() - 1] < times[0] + 600.0);
    }
}

#[test]
fn a_run_in_parts_leaves_the_same() {
    let bench = Bench::new();
    bench.train_as(&bench.open(GPT, "whole", &SET, false), &BOTH, None);
    bench.train_as(&bench.open(GPT, "parts", &SET, false), &BOTH, Some(5));
    // As after a kill: rows were written that no checkpoint knows.
    fs::remove_dir_all(bench.path("parts/checkpoint/step-000000005")).unwrap();
    bench.train_as(&bench.open(GPT, "parts", &SET, true), &BOTH, Some(3));
    // A sink goes on though it is not asked for again.
    let (ended, _) = bench.train(&bench.open(GPT, "parts", &SET, true), 2, None);
    assert_eq!(ended.outcome, Outcome::Finished);
    assert_same(&bench, "parts", "whole");
}

#[test]
fn a_run_that_has_ended_can_be_written_again() {
    let bench = Bench::new();
    bench.train_as(&bench.open(GPT, "whole", &SET, false), &BOTH, None);
    bench.train(&bench.open(GPT, "plain", &SET, false), 2, None);
    assert!(!bench.path("plain/trace.csv").exists() && !bench.path("plain/tensorboard").exists());
    let (ended, _) = bench.train_as(&bench.open(GPT, "plain", &SET, true), &BOTH, None);
    assert_eq!(ended.outcome, Outcome::Already);
    assert_same(&bench, "plain", "whole");
}

#[test]
fn a_sink_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let opened = bench.open(GPT, "run", &SET, false);
    fs::create_dir_all(bench.path("run/trace.csv")).unwrap();
    let mut watch = crate::StopAfter::default();
    let error = untuned_lab::train::train(&opened, &BOTH, &mut watch).unwrap_err();
    assert!(error.to_string().contains("trace.csv"), "{error}");
}

/// Prints tags, steps and values as TensorBoard reads them.
const READ_BY_TENSORBOARD: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})
events.Reload()
tags = events.Tags()['scalars']
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags}))
";

/// A Python that has TensorBoard: the one that is named, or the system's.
fn python() -> Result<String, String> {
    let python = std::env::var("UNTUNED_TENSORBOARD_PYTHON").unwrap_or_else(|_| "python3".into());
    match Command::new(&python).args(["-c", "import tensorboard"]).output() {
        Ok(output) if output.status.success() => Ok(python),
        Ok(output) => Err(format!("{python}: {}", String::from_utf8_lossy(&output.stderr).trim_end())),
        Err(error) => Err(format!("{python}: {error}")),
    }
}

#[test]
fn tensorboard_itself_reads_the_events() {
    let python = match python() {
        Ok(python) => python,
        Err(reason) if std::env::var_os("UNTUNED_REQUIRE_TENSORBOARD").is_some() => panic!("{reason}"),
        Err(reason) => {
            eprintln!("skipped: no TensorBoard here; name a Python in UNTUNED_TENSORBOARD_PYTHON ({reason})");
            return;
        }
    };
    let bench = Bench::new();
    bench.train_as(&bench.open(GPT, "run", &SET, false), &BOTH, None);
    let run = bench.path("run");
    let output = Command::new(python).args(["-c", READ_BY_TENSORBOARD]).arg(run.join("tensorboard")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Curves = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.len(), 7, "{found:?}");
    assert_eq!(found, curves_of_rows(&run));
}
