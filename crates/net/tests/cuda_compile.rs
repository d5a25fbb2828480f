//! Every kernel compiles, in both precisions and for several architectures; compiled ones are kept; and what is missing is said.
//!
//! Needs NVRTC, but no GPU. Without it the tests say so and pass, unless `UNTUNED_REQUIRE_NVRTC` is set.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Instant;
use untuned_net::cuda::{Cuda, Precision, compile, libraries};

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
