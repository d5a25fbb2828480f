//! `untuned doctor`: which devices can be used here, and what is missing.

use std::fmt::Write;
use std::time::Instant;

use serde::Serialize;
use untuned_lab::train::DeviceChoice;
use untuned_net::cuda::libraries::{self, Cache, Gpu, Part, Survey};

use crate::args::Doctor;
use crate::end::End;
use crate::output;

/// What was found.
#[derive(Serialize)]
struct Found {
    version: &'static str,
    cpu: CpuInfo,
    #[serde(flatten)]
    cuda: Survey,
    /// What came of opening each GPU that can be used.
    opened: Vec<Opened>,
    /// What `--device auto` stands for.
    auto: String,
}

#[derive(Serialize)]
struct CpuInfo {
    threads: usize,
    architecture: &'static str,
    /// The widest instructions that are used.
    instructions: &'static str,
}

#[derive(Serialize)]
struct Opened {
    name: String,
    /// Kernels compiled or read, libraries started.
    seconds: f64,
    problem: Option<String>,
}

pub fn run(args: &Doctor) -> Result<(), End> {
    let found = look()?;
    if args.json { output::print_json(&found) } else { output::print(&words(&found)) }
}

fn look() -> Result<Found, End> {
    let cpu = CpuInfo {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        architecture: std::env::consts::ARCH,
        instructions: instructions(),
    };
    let cuda = libraries::survey();
    let libraries_found =
        [&cuda.driver, &cuda.nvrtc, &cuda.cublaslt].iter().all(|part| part.problem.is_none());
    let usable = cuda.gpus.iter().filter(|gpu| libraries_found && gpu.problem.is_none());
    let opened = usable.map(|gpu| open(&gpu.name)).collect::<Result<_, _>>()?;
    let auto = DeviceChoice::of("auto", "auto").map_err(End::request)?;
    let auto = format!("{} in {}", auto.device(), auto.precision());
    Ok(Found { version: env!("CARGO_PKG_VERSION"), cpu, cuda, opened, auto })
}

fn open(name: &str) -> Result<Opened, End> {
    let device = DeviceChoice::of(name, "auto").map_err(End::request)?;
    let start = Instant::now();
    let problem = device.check().err().map(|error| error.to_string());
    Ok(Opened { name: name.into(), seconds: start.elapsed().as_secs_f64(), problem })
}

/// The widest instructions of the CPU that the networks have code for.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "AVX2 and FMA";
        }
        "SSE2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        "NEON"
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "plain ones"
    }
}

fn words(found: &Found) -> String {
    let Found { version, cpu, cuda, opened, auto } = found;
    let Survey { driver, gpus, nvrtc, cublaslt, cache } = cuda;
    let threads = if cpu.threads == 1 { "1 thread".into() } else { format!("{} threads", cpu.threads) };
    let mut text = format!(
        "untuned {version}\n\nCPU           {threads}, {} with {}: usable\n",
        cpu.architecture, cpu.instructions
    );
    add_line(&mut text, "GPU driver", library(driver, "for CUDA up to"));
    if gpus.is_empty() && driver.problem.is_none() {
        add_line(&mut text, "GPU", "the driver finds none".into());
    }
    for gpu in gpus {
        add_line(&mut text, &gpu.name, described(gpu, opened.iter().find(|opened| opened.name == gpu.name)));
    }
    add_line(&mut text, "NVRTC", library(nvrtc, "CUDA"));
    add_line(&mut text, "cuBLASLt", library(cublaslt, "CUDA"));
    add_line(&mut text, "kernel cache", cached(cache));
    text + "\n" + &conclusion(found, auto)
}

/// Adds a line to the list.
fn add_line(text: &mut String, name: &str, what: String) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name:12}  {what}");
}

fn library(part: &Part, before: &str) -> String {
    let Part { version, path, problem } = part;
    match problem {
        Some(problem) => format!("not usable: {problem}"),
        None => {
            let version = version.as_ref().map_or("found".into(), |version| format!("{before} {version}"));
            version + &path.as_ref().map_or(String::new(), |path| format!(", {path}"))
        }
    }
}

fn described(gpu: &Gpu, opened: Option<&Opened>) -> String {
    let Gpu { model, capability, memory, free, problem, .. } = gpu;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let free = free.map_or(String::new(), |free| format!(", {:.1} of them free", gib(free)));
    let state = match (problem, opened) {
        (Some(problem), _) => format!("not usable: {problem}"),
        (None, Some(Opened { problem: Some(problem), .. })) => format!("could not be opened: {problem}"),
        (None, Some(Opened { seconds, .. })) => format!("usable, opened in {seconds:.2} s"),
        (None, None) => "not opened, because a library is missing".into(),
    };
    format!("{model}, compute capability {capability}, {:.1} GiB{free}: {state}", gib(*memory))
}

fn cached(cache: &Cache) -> String {
    let folder = cache.folder.as_deref().unwrap_or("none");
    match &cache.problem {
        Some(problem) => format!("{folder}: not usable, so kernels are compiled at every start: {problem}"),
        None => folder.into(),
    }
}

/// What runs where, and what to do about what does not.
fn conclusion(found: &Found, auto: &str) -> String {
    let opened = found.opened.iter().any(|opened| opened.problem.is_none());
    let advice = match (&found.cuda, opened) {
        (_, true) => "",
        (Survey { driver: Part { version: None, .. }, .. }, _) => {
            "To compute on an NVIDIA GPU, install its driver first. "
        }
        (Survey { gpus, .. }, _) if gpus.is_empty() => {
            "To compute on a GPU, let the driver see one: `nvidia-smi` lists them, CUDA_VISIBLE_DEVICES hides them. "
        }
        _ => "To compute on the GPU, mend what is not usable above. ",
    };
    format!("{advice}`--device auto` is {auto}. docs/gpu.md says more.\n")
}
