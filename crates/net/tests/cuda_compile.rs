//! Every kernel compiles, in both precisions and for several architectures; compiled ones are kept; and what is missing is said.
//!
//! Needs NVRTC, but no GPU. Without it the tests say so and pass, unless `UNTUNED_REQUIRE_NVRTC` is set.

#![allow(clippy::unwrap_used)]

mod methods;

use methods::{Again, Everything, Watch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use untuned::formula::{Change, Measure, Operation, Program};
use untuned::space::{SquareDistance, SquareNorm};
use untuned_net::arena::{Initial, Layout};
use untuned_net::cuda::formula::{self, Pass};
use untuned_net::cuda::{Cuda, Precision, compile, libraries};
use untuned_net::formulas::{Combine, Part};

/// The compiler's version, if there is one.
fn compiler() -> Option<(u32, u32)> {
    match libraries::load_compiler() {
        Ok(version) => Some(version),
        Err(reason) => {
            assert!(
                std::env::var_os("UNTUNED_REQUIRE_NVRTC").is_none(),
                "UNTUNED_REQUIRE_NVRTC is set: {reason}"
            );
            println!("skipped: {reason}");
            None
        }
    }
}

/// What a file of machine code for a GPU starts with.
fn is_binary(binary: &[u8]) -> bool {
    binary.starts_with(b"\x7fELF")
}

#[test]
fn every_kernel() {
    let Some((major, minor)) = compiler() else { return };
    let known = compile::architectures().unwrap();
    let mut failed = Vec::new();
    // Each as on a GPU of this compute capability.
    for (major_of, minor_of) in [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)] {
        if !known.contains(&(10 * major_of + minor_of)) {
            continue;
        }
        let architecture = &compile::architecture((major_of, minor_of)).unwrap()[..];
        let start = Instant::now();
        std::thread::scope(|scope| {
            let all = compile::sources().iter().flat_map(|&(topic, _)| [(topic, false), (topic, true)]);
            let work = |(topic, bf16)| scope.spawn(move || compile::compile(topic, architecture, bf16));
            let threads: Vec<_> = all.map(work).collect();
            for thread in threads {
                match thread.join().unwrap() {
                    Ok(binary) => assert!(is_binary(&binary)),
                    Err(error) => failed.push(error.to_string()),
                }
            }
        });
        println!("{architecture} with NVRTC {major}.{minor}: {:.1} s", start.elapsed().as_secs_f64());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The formulas of passes, written down.
struct Programs(Vec<(Pass, Program)>);

impl Programs {
    fn add(&mut self, pass: Pass, program: Program) {
        if !self.0.contains(&(pass, program.clone())) {
            self.0.push((pass, program));
        }
    }
}

impl Watch for Programs {
    fn change<F: Change<S, M, R>, const S: usize, const M: usize, const R: usize>(
        &mut self,
        _: Again<F>,
        _: [f64; S],
        _: f64,
        _: [&[f64]; M],
        _: [&[f64]; R],
        _: [&[f64]; M],
    ) {
        self.add(Pass::Change, Program::of_change::<F, S, M, R>());
    }

    fn measure<F: Measure<S, R, K>, const S: usize, const R: usize, const K: usize>(
        &mut self,
        _: Again<F>,
        _: [f64; S],
        _: f64,
        _: [&[f64]; R],
    ) {
        self.add(Pass::Measure, Program::of_measure::<F, S, R, K>());
    }
}

/// All formulas: those of the methods, of the devices, and one that uses everything.
fn programs() -> Vec<(Pass, Program)> {
    let mut layout = Layout::default();
    layout.matrix("matrix", 2, 5, Initial::Normal(1.0));
    let mut programs = Programs(Vec::new());
    programs.add(Pass::Change, Program::of_change::<Part, 1, 1, 1>());
    programs.add(Pass::Change, Program::of_change::<Combine, 2, 1, 1>());
    programs.add(Pass::Change, Program::of_change::<Everything, 2, 2, 1>());
    programs.add(Pass::Measure, Program::of_measure::<Everything, 2, 2, 3>());
    programs.add(Pass::Measure, Program::of_measure::<SquareNorm, 0, 1, 1>());
    programs.add(Pass::Measure, Program::of_measure::<SquareDistance, 0, 2, 1>());
    methods::specs().iter().fold(programs, |programs, spec| methods::walk(spec, &layout, programs)).0
}

#[test]
fn every_formula() {
    let programs = programs();
    let mut texts = BTreeMap::new();
    for (pass, program) in &programs {
        let (kernel, text) = formula::kernel(*pass, program);
        assert!(kernel.name.starts_with(program.name) && kernel.arguments <= 40, "{kernel:?}");
        // Another text has another name.
        assert!(texts.insert(kernel.name, text.clone()).is_none_or(|other| other == text), "{kernel:?}");
    }
    for name in ["Adam", "SumAndSquare", "Squares", "SquaresAndDistance", "DescendFrom", "TakeIntoAverage"] {
        assert!(programs.iter().any(|(_, program)| program.name == name), "no method uses {name}");
    }
    println!("{} formulas", texts.len());
    if compiler().is_none() {
        return;
    }
    for architecture in ["sm_80", "sm_90a"] {
        for (name, text) in &texts {
            match compile::compile_text(name, text, architecture, false) {
                Ok(binary) => assert!(is_binary(&binary)),
                Err(error) => panic!("{error}\n{text}"),
            }
        }
    }
}

/// A kernel takes and loads only what its formula uses, and its constants are exact.
#[test]
fn a_formula_that_does_not_decay() {
    let program = Program {
        name: "Odd::<name>",
        scalars: 0,
        vectors: 2,
        operations: vec![
            Operation::Decay,
            Operation::Vector(0),
            Operation::Vector(1),
            Operation::Constant(0.1),
            Operation::Constant(f64::INFINITY),
            Operation::Smaller(2, 4),
            Operation::Multiply(5, 3),
        ],
        results: vec![6],
    };
    let (kernel, text) = formula::kernel(Pass::Change, &program);
    assert!(kernel.name.starts_with("Odd___name__") && !kernel.placed, "{kernel:?}");
    assert!(!text.contains("load4(v0 + i)") && text.contains("load4(v1 + i)"), "{text}");
    assert!(text.contains("0x3dcccccdu") && text.contains("0x7f800000u"), "{text}");
    let (measure, text) = formula::kernel(Pass::Measure, &program);
    assert!(text.contains("0x3fb999999999999aull") && measure.name != kernel.name, "{text}");
    if compiler().is_some() {
        compile::compile_text(measure.name, &text, "sm_80", true).unwrap();
    }
}

/// Each file with kernels is one of the sources.
#[test]
fn no_source_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    files.sort();
    let topics: Vec<String> = compile::sources().iter().map(|(topic, _)| topic.to_string()).collect();
    let names: Vec<String> =
        files.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().into()).collect();
    assert_eq!(topics, names);
}

#[test]
fn errors_come_with_the_log() {
    if compiler().is_none() {
        return;
    }
    let broken = "extern \"C\" __global__ void broken(float* x) {\n    *x = no_such_name;\n}\n";
    let error = compile::compile_text("broken", broken, "sm_80", false).unwrap_err().to_string();
    assert!(error.contains("broken.cu(2)") && error.contains("no_such_name"), "{error}");
    let error = compile::compile("vector", "sm_12345", false).unwrap_err().to_string();
    assert!(error.contains("vector.cu for sm_12345"), "{error}");
    let error = compile::architecture((99, 9)).unwrap_err().to_string();
    assert!(error.contains("does not know GPUs of sm_999"), "{error}");
    assert_eq!(compile::architecture((8, 0)).unwrap(), "sm_80");
    assert_eq!(compile::architecture((9, 0)).unwrap(), "sm_90a");
}

/// The only file in a folder.
fn entry(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn compiled_kernels_are_kept() {
    if compiler().is_none() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("made/when/needed");
    let cached = |bf16| compile::cached(Some(&folder), "vector", "sm_80", bf16).unwrap();
    let (binary, fresh) = cached(true);
    assert!(fresh && is_binary(&binary));
    assert_eq!(cached(true), (binary.clone(), false));
    let path = entry(&folder);
    let whole = std::fs::read(&path).unwrap();

    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    let cut = whole[..whole.len() - 1].to_vec();
    for content in [damaged, cut, b"short".to_vec(), Vec::new()] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(cached(true), (binary.clone(), true));
        assert_eq!(cached(true), (binary.clone(), false));
        assert_eq!(std::fs::read(entry(&folder)).unwrap(), whole);
    }

    // That of another is not taken, though it is whole.
    std::fs::remove_file(&path).unwrap();
    cached(false);
    std::fs::copy(entry(&folder), &path).unwrap();
    assert_eq!(cached(true), (binary, true));
}

#[test]
fn formulas_are_kept_by_their_text() {
    if compiler().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cached = |text: &str| compile::cached_text(Some(folder.path()), "f", text, "sm_80", false).unwrap();
    let (_, text) = formula::kernel(Pass::Change, &Program::of_change::<Combine, 2, 1, 1>());
    let (binary, fresh) = cached(&text);
    assert!(fresh && is_binary(&binary));
    assert_eq!(cached(&text), (binary, false));
    let other = text.replace(" + t", " - t");
    assert_ne!(other, text);
    assert!(cached(&other).1);
}

#[test]
fn a_folder_that_cannot_be_written_only_costs_time() {
    if compiler().is_none() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("a file");
    std::fs::write(&file, "no folder").unwrap();
    for folder in [Some(file.join("kernels")), Some(file), None] {
        for _ in 0..2 {
            let (binary, fresh) = compile::cached(folder.as_deref(), "vector", "sm_80", false).unwrap();
            assert!(fresh && is_binary(&binary));
        }
    }
}

#[test]
fn processes_do_not_disturb_each_other() {
    if compiler().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let binaries: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let cached = || compile::cached(Some(folder.path()), "vector", "sm_80", true).unwrap().0;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(cached)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(binaries.iter().all(|binary| *binary == binaries[0]));
    entry(folder.path());
}

#[test]
fn what_is_missing_is_said() {
    let survey = libraries::survey();
    println!("{survey:#?}");
    for part in [&survey.driver, &survey.nvrtc, &survey.cublaslt] {
        assert!(part.problem.is_some() || part.version.is_some() && part.path.is_some());
    }
    if survey.driver.version.is_some() {
        println!("skipped: there is a driver");
        return;
    }
    assert!(libraries::first_gpu().is_none() && survey.gpus.is_empty());
    for precision in [Precision::Bf16, Precision::Tf32, Precision::F32] {
        let error = Cuda::new(0, precision).unwrap_err().to_string();
        assert!(error.starts_with("cuda:0 failed") && error.contains("libcuda.so.1"), "{error}");
    }
}
