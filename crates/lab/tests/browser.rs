//! The page in a browser: pointer, legends, switches, axes, keyboard, and the width of a phone.
//!
//! Needs Chromium or Chrome. Without one the tests say so and pass, unless `UNTUNED_REQUIRE_BROWSER` is set.

#![allow(clippy::unwrap_used)]

mod made;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde::Deserialize;
use untuned_lab::claims::{Claim, Verdict};
use untuned_lab::figure::{Axis, Cell, Figure, HeatMap, Legend, Panel, Series, Style, method_style};
use untuned_lab::live::{self, Source};
use untuned_lab::report::{self, Page, Results, Section, html};
use untuned_lab::synthetic;

const CHECK: &str = include_str!("browser/check.js");

/// In the head, before anything can go wrong.
const LISTEN: &str = "<script>window.seenErrors = [];\
    addEventListener('error', (e) => seenErrors.push(String(e.message)));\
    addEventListener('unhandledrejection', (e) => seenErrors.push(String(e.reason)));\
    console.error = (...said) => seenErrors.push(said.join(' '));</script>";

/// What the page was before its script ran, to replace it by.
const KEEP: &str = "<script>window.original = document.querySelector('main').innerHTML;</script>";

#[derive(Debug, Deserialize)]
struct Check {
    name: String,
    ok: bool,
    saw: String,
}

fn browser() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        assert!(
            env::var_os("UNTUNED_REQUIRE_BROWSER").is_none(),
            "UNTUNED_REQUIRE_BROWSER is set, and the PATH has none of {names:?}"
        );
        eprintln!("skipped: the PATH has none of {names:?}");
    }
    found
}

/// Opens the page in a window of this width and returns what the script saw.
fn open(browser: &Path, page: &str, width: u32) -> Vec<Check> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let with_script = page
        .replacen("<head>", &format!("<head>{LISTEN}"), 1)
        .replacen("</main>", &format!("</main>{KEEP}"), 1)
        .replacen("</body>", &format!("<script>{CHECK}</script></body>"), 1);
    assert_eq!(with_script.len(), page.len() + LISTEN.len() + KEEP.len() + CHECK.len() + 17);
    fs::write(&file, with_script).unwrap();
    // A window cannot be as narrow as a phone, a frame can.
    let frame = folder.path().join("frame.html");
    fs::write(
        &frame,
        format!(
            "<!doctype html><body><script>addEventListener('message', (event) => {{\
             const pre = document.createElement('pre'); pre.id = 'result'; pre.textContent = event.data;\
             document.body.append(pre); }});</script>\
             <iframe src=page.html style=\"width:{width}px;height:800px;border:0\"></iframe>"
        ),
    )
    .unwrap();
    let opened = if width < 600 { &frame } else { &file };
    let dom = folder.path().join("dom.html");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--window-size={},900", width.max(600)))
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("file://{}", opened.display()))
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(180) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser did not end within three minutes");
        }
        thread::sleep(Duration::from_millis(50));
    }
    let dom = fs::read_to_string(&dom).unwrap();
    let found = dom.rsplit_once("<pre id=\"result\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (text, _) = found.unwrap_or_else(|| panic!("no result in a page of {} bytes", dom.len()));
    serde_json::from_str(text).unwrap()
}

/// Every check passes, and these, by the beginnings of their names, were made.
fn passes(checks: &[Check], wanted: &[&str]) {
    let failed: Vec<&Check> = checks.iter().filter(|c| !c.ok).collect();
    let messages: Vec<String> = failed.iter().map(|c| format!("{}: {}", c.name, c.saw)).collect();
    assert!(failed.is_empty(), "{messages:#?}");
    for name in wanted.iter().chain(&ALWAYS) {
        assert!(checks.iter().any(|c| c.name.starts_with(name)), "`{name}` was not checked");
    }
}

const ALWAYS: [&str; 13] = [
    "width",
    "figures have a size",
    "one variant is seen",
    "hover",
    "legend hides only here",
    "legend by keyboard",
    "method hides everywhere",
    "method stays hidden in new content",
    "new content answers",
    "axis",
    "cell",
    "print opens details",
    "no errors",
];

/// A page with every kind of figure.
fn every_kind() -> String {
    let curve = |key: &str, rate: f64| {
        let points: Vec<(f64, f64)> =
            (0..=200).map(|t| (f64::from(t), 1.0 + 4.0 * (-rate * f64::from(t)).exp())).collect();
        let band: Vec<(f64, f64)> = points.iter().map(|p| (0.97 * p.1, 1.03 * p.1)).collect();
        Series::method(key, points).band(band)
    };
    let losses = |title: &str| {
        Panel::new(Axis::linear("step"), Axis::linear("test loss"))
            .title(title)
            .series(curve("inexact-polyak", 0.05))
            .series(curve("clipped-gd", 0.03))
            .series(curve("gd", 0.01))
    };
    let rates = Panel::new(Axis::log("learning rate"), Axis::linear("final test loss"))
        .series(Series::method("gd", [(1e-3, 4.0), (1e-2, 3.0), (1e-1, 2.0), (1.0, f64::INFINITY)]))
        .series(
            Series::level("Inexact Polyak", method_style("inexact-polyak"), 1.9)
                .key("inexact-polyak")
                .band([(1.8, 2.0)]),
        );
    let noise = |i: u32, k: f64| (f64::from(i) * k).sin() + 0.5 * (f64::from(i) * 1.7 * k).cos();
    let cloud: Vec<(f64, f64)> = (0..20_000)
        .map(|i| (10f64.powf(noise(i, 0.71)), 10f64.powf(noise(i, 0.71) + 0.4 * noise(i, 0.113))))
        .collect();
    let smoothness = Panel::new(Axis::log("‖∇f(x_{t})‖"), Axis::log("local smoothness"))
        .series(Series::new("LSTM", Style::nth(0), cloud).scatter());
    let cost = ["inexact-polyak", "clipped-gd", "gd", "dog", "decsps", "adasps"].iter().enumerate().fold(
        Panel::new(Axis::log("runs"), Axis::linear("best test loss")),
        |panel, (i, key)| {
            let runs = [1.0, 99.0, 11.0, 1.0, 1.0, 1.1][i];
            panel.series(Series::method(key, [(runs, 2.0 + 0.05 * i as f64)]).scatter().labelled())
        },
    );
    let rates_of_map = ["1", "0.5", "0.1", "0.05", "0.01", "0.005", "1e-3", "1e-4", "1e-5"];
    let thresholds = ["0.1", "0.5", "1", "1.5", "2", "5", "10", "15", "20", "50", "∞"];
    let cells = (0..rates_of_map.len() * thresholds.len()).map(|i| {
        let (row, column) = (i / thresholds.len(), i % thresholds.len());
        let cell = match (row, column) {
            (0, 8..) => Cell::diverged(),
            (0, _) => Cell::value(9.0 + i as f64 * 7.3),
            (8, 0..2) => Cell::not_run(),
            _ => Cell::value(3.0 + (row as f64 - 3.2).powi(2) * 0.11 + (column as f64 - 5.0).abs() * 0.07),
        };
        cell.selected((row, column) == (3, 5)).paper((row, column) == (3, 5) || (row, column) == (2, 6))
    });
    let map = HeatMap {
        rows: rates_of_map.map(Into::into).to_vec(),
        columns: thresholds.map(Into::into).to_vec(),
        cells: cells.collect(),
        value: Axis::linear("final test loss").range(3.0, 6.5),
    };
    let claim = Claim {
        number: 1,
        claim: "Inexact Polyak is as good as tuned clipped SGD.".into(),
        verdict: Verdict::NotDecided,
        measured: "1.9 against 2.0, with a spread of 0.2 over three seeds".into(),
        table: vec![vec!["method".into(), "loss".into()], vec!["SGD".into(), "2.0".into()]],
        recorded: Some("holds".into()),
    };
    let figures = [
        ("curves", Figure::new([losses("(a) LSTM"), losses("(b) GPT"), losses("(c) T5")])),
        ("rates", Figure::new([rates]).width(560.0)),
        ("smoothness", Figure::new([smoothness]).width(400.0)),
        ("cost", Figure::new([cost]).legend(Legend::None).width(480.0)),
        ("heat", Figure::new([Panel::heat("threshold", "learning rate", map).title("LSTM, clipped SGD")])),
    ];
    let figures =
        figures.iter().map(|(id, figure)| html::figure(id, figure, "A caption.")).collect::<String>();
    let sections = vec![
        Section::new("claims", "The claims", html::claims("lstm", "An introduction.", &[claim])),
        Section::new("figures", "The figures", figures),
        Section::new(
            "run",
            "The run",
            html::details(
                "the command",
                &html::code(
                    "untuned train lstm.toml --rule inexact-polyak --steps 100000 --seed 1 --device cuda:0 --out somewhere",
                ),
            ),
        ),
    ];
    Page { title: "Every kind of figure".into(), lead: "<p>A lead.</p>".into(), sections }.html()
}

#[test]
fn a_page_with_every_kind_of_figure() {
    let Some(browser) = browser() else { return };
    let page = every_kind();
    for width in [1200, 360] {
        passes(&open(&browser, &page, width), &["hover rates", "hover smoothness", "axis hover curves"]);
    }
}

#[test]
fn the_page_of_the_synthetic_experiment() {
    let Some(browser) = browser() else { return };
    let sections = report::synthetic::sections(&synthetic::run(|| ()));
    let page = Page { title: "synthetic".into(), lead: String::new(), sections }.html();
    for width in [1200, 360] {
        passes(&open(&browser, &page, width), &["hover figure-1", "axis figure-3", "cell grid-search"]);
    }
}

#[test]
fn the_page_of_runs() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    made::networks(folder.path());
    let page = Results::read(&[folder.path().into()]).unwrap().page().html();
    for width in [1200, 360] {
        passes(
            &open(&browser, &page, width),
            &[
                "hover gpt-losses",
                "hover lstm-smoothness",
                "hover t5-cost",
                "cell gpt-hyperparameters",
                "axis gpt-steps",
            ],
        );
    }
}

/// A page that is called something else after two seconds.
struct Changing(Instant);

impl Source for Changing {
    fn stamp(&self) -> u64 {
        self.0.elapsed().as_secs() / 2
    }

    fn page(&self) -> Result<String, String> {
        let title = if self.stamp() == 0 { "as it was" } else { "as it is now" };
        Ok(Page { title: title.into(), lead: String::new(), sections: Vec::new() }.html())
    }
}

/// What a browser says of its open pages at the port that it wrote into its profile.
fn open_pages(profile: &Path) -> Option<String> {
    let text = fs::read_to_string(profile.join("DevToolsActivePort")).ok()?;
    let port: u16 = text.lines().next()?.parse().ok()?;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    write!(stream, "GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    // It may keep the connection open: what came until then is the answer.
    let _ = stream.read_to_string(&mut answer);
    Some(answer)
}

#[test]
fn the_live_page_brings_itself_up_to_date() {
    let Some(browser) = browser() else { return };
    let profile = tempfile::tempdir().unwrap();
    let listener = live::bind(None).unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let ended = AtomicBool::new(false);
    let stop = || ended.load(Ordering::Relaxed);
    let shown = thread::scope(|scope| {
        scope.spawn(|| live::serve(listener, &Changing(Instant::now()), &stop).unwrap());
        let mut child = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(&address)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut shown = String::new();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(90) && !shown.contains("as it is now") {
            thread::sleep(Duration::from_millis(100));
            shown = open_pages(profile.path()).unwrap_or(shown);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        ended.store(true, Ordering::Relaxed);
        shown
    });
    assert!(shown.contains("as it is now"), "{shown}");
}
