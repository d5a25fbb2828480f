//! Where the driver, the compiler (NVRTC) and the products' library (cuBLASLt) are found, of CUDA 12 or 13.
//!
//! The bindings open a library by its bare name, and panic where the loader finds none. So each is opened here first: as they
//! would, and else from the places where CUDA and its Python packages are installed. A library that is open is found by its bare
//! name from then on, and stays open until the program ends.
#![allow(unsafe_code)]

use crate::{Failure, compile, driver};
use cudarc::driver::sys;
use libloading::Library;
use serde::Serialize;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Versions of CUDA whose libraries are used, the better first.
const MAJORS: [u32; 2] = [13, 12];
/// The least compute capability: earlier ones know neither bf16 nor asynchronous copies.
pub const LEAST_CAPABILITY: u32 = 8;
const HOW_TO_GET: &str = "install CUDA, or `pip install nvidia-cublas nvidia-cuda-nvrtc` and activate that Python environment \
     or name its library folders in LD_LIBRARY_PATH";

/// A library that stays open.
struct Found {
    path: String,
    /// Major and minor.
    version: (u32, u32),
    /// The library, and what it asks the loader for by name.
    _open: Vec<Library>,
}

static DRIVER: OnceLock<Result<Found, String>> = OnceLock::new();
static COMPILER: OnceLock<Result<Found, String>> = OnceLock::new();
static PRODUCTS: OnceLock<Result<Found, String>> = OnceLock::new();

/// Loads the driver, the compiler and the products' library.
///
/// # Errors
/// When one of them is missing: which, and how to get it.
pub fn load(device: &str) -> Result<(), Failure> {
    for part in [found_driver(), found_compiler(), found_products()] {
        part.map_err(|reason| Failure { part: device.into(), reason: reason.into() })?;
    }
    Ok(())
}

/// Loads the driver alone.
///
/// # Errors
/// When it is missing or too old: how to get it.
pub fn load_driver(device: &str) -> Result<(), Failure> {
    found_driver().map(|_| ()).map_err(|reason| Failure { part: device.into(), reason: reason.into() })
}

/// Loads the compiler alone, which needs no GPU, and says its version.
///
/// # Errors
/// When it is missing.
pub fn load_compiler() -> Result<(u32, u32), Failure> {
    let failed = |reason: &str| Failure { part: "NVRTC".into(), reason: reason.into() };
    found_compiler().map(|found| found.version).map_err(failed)
}

/// The number of the first GPU that can be used, where all libraries are.
pub fn first_gpu() -> Option<u32> {
    load("cuda").ok()?;
    (0..).zip(gpus().ok()?).find(|(_, gpu)| gpu.problem.is_none()).map(|(ordinal, _)| ordinal)
}

/// What is there for a GPU, and what is missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survey {
    /// The driver; its version is that of the newest CUDA that it knows.
    pub driver: Part,
    /// The GPUs that it finds.
    pub gpus: Vec<Gpu>,
    /// The compiler of the kernels.
    pub nvrtc: Part,
    /// The library of products.
    pub cublaslt: Part,
    /// Where compiled kernels are kept.
    pub cache: Cache,
}

/// A library.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Its version.
    pub version: Option<String>,
    /// The file.
    pub path: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// As a user writes it: `cuda:0`.
    pub name: String,
    /// What its maker calls it.
    pub model: String,
    /// Its compute capability, like `9.0`.
    pub capability: String,
    /// All bytes of its memory.
    pub memory: u64,
    /// The free ones, where the driver says.
    pub free: Option<u64>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// The folder of compiled kernels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cache {
    /// Where it is; without a home folder there is none.
    pub folder: Option<String>,
    /// Why it cannot be written: kernels are then compiled at every start.
    pub problem: Option<String>,
}

/// Looks at everything that a GPU needs.
pub fn survey() -> Survey {
    let (mut driver, mut gpus_found) = (part(found_driver()), Vec::new());
    if driver.problem.is_none() {
        match gpus() {
            Ok(gpus) => gpus_found = gpus,
            Err(reason) => driver.problem = Some(reason),
        }
    }
    for (gpu, ordinal) in gpus_found.iter_mut().zip(0..) {
        if gpu.problem.is_none() {
            match free_memory(ordinal) {
                Ok(free) => gpu.free = Some(free),
                Err(reason) => gpu.problem = Some(reason),
            }
        }
    }
    let folder = compile::cache_folder();
    let problem = match &folder {
        None => Some("there is no home folder; name one in UNTUNED_CACHE".into()),
        Some(folder) => compile::try_to_write(folder).err().map(|error| error.to_string()),
    };
    let cache = Cache { folder: folder.map(|folder| folder.display().to_string()), problem };
    Survey {
        driver,
        gpus: gpus_found,
        nvrtc: part(found_compiler()),
        cublaslt: part(found_products()),
        cache,
    }
}

fn part(found: Result<&'static Found, &'static str>) -> Part {
    match found {
        Ok(Found { path, version: (major, minor), .. }) => {
            Part { version: Some(format!("{major}.{minor}")), path: Some(path.clone()), problem: None }
        }
        Err(reason) => Part { version: None, path: None, problem: Some(reason.into()) },
    }
}

/// All GPUs. The driver must have been found.
fn gpus() -> Result<Vec<Gpu>, String> {
    let said = |result| match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(driver::words(result)),
    };
    let mut count = 0;
    // SAFETY: the driver writes a number.
    unsafe {
        match sys::cuInit(0) {
            // There is none, or CUDA_VISIBLE_DEVICES hides all.
            sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(Vec::new()),
            result => said(result)?,
        }
        said(sys::cuDeviceGetCount(&mut count))?;
    }
    (0..count).map(|ordinal| gpu(ordinal).map_err(driver::words)).collect()
}

fn gpu(ordinal: c_int) -> Result<Gpu, sys::CUresult> {
    use sys::CUdevice_attribute_enum as Attribute;
    let said = |result| if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) };
    let (mut device, mut major, mut minor, mut memory) = (0, 0, 0, 0);
    // SAFETY: every pointer is to a value of the type that the driver writes.
    unsafe {
        said(sys::cuDeviceGet(&mut device, ordinal))?;
        let capability = Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        said(sys::cuDeviceGetAttribute(&mut major, capability, device))?;
        let capability = Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
        said(sys::cuDeviceGetAttribute(&mut minor, capability, device))?;
        said(sys::cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let old = (major as u32) < LEAST_CAPABILITY;
    Ok(Gpu {
        name: format!("cuda:{ordinal}"),
        model: driver::model_name(device),
        capability: format!("{major}.{minor}"),
        memory: memory as u64,
        free: None,
        problem: old.then(|| format!("its compute capability is below {LEAST_CAPABILITY}.0")),
    })
}

/// The free bytes of a GPU, which only a context of it knows.
fn free_memory(ordinal: c_int) -> Result<u64, String> {
    let (mut device, mut context, mut free, mut total) = (0, std::ptr::null_mut(), 0, 0);
    let mut result;
    // SAFETY: the driver writes both handles and both numbers; the context is given back as often as it is taken.
    unsafe {
        result = sys::cuDeviceGet(&mut device, ordinal);
        if result == sys::CUresult::CUDA_SUCCESS {
            result = sys::cuDevicePrimaryCtxRetain(&mut context, device);
        }
        if result == sys::CUresult::CUDA_SUCCESS {
            result = sys::cuCtxPushCurrent_v2(context);
            if result == sys::CUresult::CUDA_SUCCESS {
                result = sys::cuMemGetInfo_v2(&mut free, &mut total);
                sys::cuCtxPopCurrent_v2(&mut context);
            }
            sys::cuDevicePrimaryCtxRelease_v2(device);
        }
    }
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(free as u64),
        result => Err(driver::words(result)),
    }
}

fn found_driver() -> Result<&'static Found, &'static str> {
    let found = DRIVER.get_or_init(|| {
        let found = find("cuda", &["libcuda.so.1".into()], "cuDriverGetVersion", driver_version)?;
        let Some(found) = found else {
            return Err("there is no NVIDIA driver: libcuda.so.1 is neither in the loader's path nor where drivers are \
                        installed. In a container, start it with access to the GPU"
                .into());
        };
        match found.version {
            (major, minor) if major < 12 => Err(format!(
                "{} is of a driver for CUDA {major}.{minor}; one for 12.0 or later is needed",
                found.path
            )),
            _ => Ok(found),
        }
    });
    found.as_ref().map_err(String::as_str)
}

fn found_compiler() -> Result<&'static Found, &'static str> {
    let found = COMPILER.get_or_init(|| {
        let mut found = find_for_driver("nvrtc", "nvrtcVersion", compiler_version)?;
        // It opens a second file by its bare name when it compiles.
        let (major, minor) = found.version;
        let builtins = format!("libnvrtc-builtins.so.{major}.{minor}");
        let beside = Path::new(&found.path).with_file_name(builtins);
        if beside.exists() {
            found._open.push(open(&beside)?);
        }
        Ok(found)
    });
    found.as_ref().map_err(String::as_str)
}

fn found_products() -> Result<&'static Found, &'static str> {
    let found =
        PRODUCTS.get_or_init(|| find_for_driver("cublasLt", "cublasLtGetCudartVersion", products_version));
    found.as_ref().map_err(String::as_str)
}

/// Finds a library of a version that the driver can run; without a driver, of any.
fn find_for_driver(
    name: &str,
    symbol: &str,
    version: fn(&Library) -> Result<(u32, u32), String>,
) -> Result<Found, String> {
    let newest = found_driver().map_or(u32::MAX, |driver| driver.version.0);
    let majors: Vec<u32> = MAJORS.into_iter().filter(|&major| major <= newest).collect();
    // The version that the other library has comes first.
    let other = [&COMPILER, &PRODUCTS].into_iter().find_map(|other| other.get()?.as_ref().ok());
    let (same, rest): (Vec<u32>, Vec<u32>) =
        majors.iter().partition(|&&major| other.is_some_and(|other| other.version.0 == major));
    let files: Vec<String> = same.iter().chain(&rest).map(|major| format!("lib{name}.so.{major}")).collect();
    let Some(found) = find(name, &files, symbol, version)? else {
        return Err(format!(
            "{} is missing: neither in the loader's path nor in CUDA_HOME, /usr/local/cuda* or a Python environment; {HOW_TO_GET}",
            files.join(" or ")
        ));
    };
    let (major, minor) = found.version;
    if majors.contains(&major) {
        return Ok(found);
    }
    let wanted: Vec<String> = majors.iter().map(u32::to_string).collect();
    Err(format!(
        "{} is of CUDA {major}.{minor}, where the driver needs one of CUDA {}; put that one first in LD_LIBRARY_PATH",
        found.path,
        wanted.join(" or ")
    ))
}

/// Opens a library as the bindings would, and else the first of the files that one of the folders has.
fn find(
    name: &str,
    files: &[String],
    symbol: &str,
    version: fn(&Library) -> Result<(u32, u32), String>,
) -> Result<Option<Found>, String> {
    let bare = cudarc::get_lib_name_candidates(name).into_iter().find_map(|name| open(Path::new(&name)).ok());
    let library = match bare {
        Some(library) => library,
        None => {
            let folders = folders();
            let paths = files.iter().flat_map(|file| folders.iter().map(move |folder| folder.join(file)));
            match paths.into_iter().find(|path| path.exists()) {
                Some(path) => open(&path)?,
                None => return Ok(None),
            }
        }
    };
    let path = path_of(&library, symbol).unwrap_or_else(|| format!("lib{name}"));
    let version = version(&library).map_err(|reason| format!("{path}: {reason}"))?;
    Ok(Some(Found { path, version, _open: vec![library] }))
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: the initialisation of these libraries asks nothing of the program.
    unsafe { Library::new(path) }.map_err(|error| format!("{} cannot be opened: {error}", path.display()))
}

/// The file that a library was loaded from: the mapping that its function lies in.
fn path_of(library: &Library, symbol: &str) -> Option<String> {
    // SAFETY: the function is not called.
    let function = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.ok()?;
    let address = *function as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
        let ends = ends.map(|(start, end)| [start, end].map(|end| usize::from_str_radix(end, 16)));
        matches!(ends, Some([Ok(start), Ok(end)]) if (start..end).contains(&address))
    })?;
    line.find('/').map(|start| line[start..].to_string())
}

fn driver_version(library: &Library) -> Result<(u32, u32), String> {
    let mut version: c_int = 0;
    // SAFETY: the function has this type in every version, and writes a number.
    let result = unsafe {
        let function = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion");
        function.map_err(|error| error.to_string())?(&mut version)
    };
    match result {
        0 => Ok((version as u32 / 1000, version as u32 % 1000 / 10)),
        34 => Err("is a stub to link with, not a driver; take its folder out of LD_LIBRARY_PATH".into()),
        other => Err(format!("cuDriverGetVersion says {other}")),
    }
}

fn compiler_version(library: &Library) -> Result<(u32, u32), String> {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: as above.
    let result = unsafe {
        let function = library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion");
        function.map_err(|error| error.to_string())?(&mut major, &mut minor)
    };
    match result {
        0 => Ok((major as u32, minor as u32)),
        other => Err(format!("nvrtcVersion says {other}")),
    }
}

/// The version of the CUDA that it is a part of.
fn products_version(library: &Library) -> Result<(u32, u32), String> {
    // SAFETY: as above.
    let version = unsafe {
        let function = library.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetCudartVersion");
        function.map_err(|error| error.to_string())?() as u32
    };
    Ok((version / 1000, version % 1000 / 10))
}

/// Where libraries may lie that the loader does not know of, the likelier ones first.
fn folders() -> Vec<PathBuf> {
    let architecture = std::env::consts::ARCH;
    let mut folders = Vec::new();
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(variable);
    for root in named.chain(children(Path::new("/usr/local"), "cuda")) {
        let places = ["lib64".into(), format!("targets/{architecture}-linux/lib"), "lib".into()];
        folders.extend(places.map(|place| root.join(place)));
    }
    let system = [
        format!("/usr/lib/{architecture}-linux-gnu"),
        "/usr/lib64".into(),
        "/usr/local/nvidia/lib64".into(),
        "/usr/lib/wsl/lib".into(),
        "/run/opengl-driver/lib".into(),
    ];
    folders.extend(system.map(PathBuf::from));
    let mut environments: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
    if let Some(python) = python() {
        // A virtual environment's is a link to the one that it was made with.
        let real = python.canonicalize().ok();
        let programs = [Some(python), real].into_iter().flatten();
        environments.extend(programs.filter_map(|program| Some(program.parent()?.parent()?.to_path_buf())));
    }
    environments.push("/usr/local".into());
    environments.extend(variable("HOME").map(|home| home.join(".local")));
    for environment in environments {
        for python in children(&environment.join("lib"), "python3") {
            for packages in ["site-packages/nvidia", "dist-packages/nvidia"] {
                let packages = children(&python.join(packages), "");
                folders.extend(packages.into_iter().map(|package| package.join("lib")));
            }
        }
    }
    folders
}

/// The `python3` that a shell would start.
fn python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|program| program.exists())
}

/// What a folder holds whose name starts so, the last name first: `cuda-13.0` before `cuda-12.8`.
fn children(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.reverse();
    paths
}
