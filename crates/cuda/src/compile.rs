//! NVRTC: kernels are compiled at first use for the device at hand, and kept on disk.
//!
//! An entry is found by a hash of everything that it was made of, and holds a hash of itself: what is damaged, cut short or
//! foreign is compiled again. A folder that cannot be written only costs time.
#![allow(unsafe_code, reason = "calls of the compiler")]

use crate::{Failure, libraries};
use cudarc::nvrtc::sys as nvrtc;
use sha2::{Digest, Sha256};
use std::ffi::{CStr, CString, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the compiler's thread may put on its stack: it recurses deeply.
pub const STACK: usize = 32 << 20;

/// The text of kernels, and how it is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name, for the compiler's messages and in the cache.
    pub name: &'a str,
    /// All of it.
    pub text: &'a str,
    /// Options beside the architecture and the language, like `-DBF16=1`.
    pub options: &'a [&'a str],
}

fn failed(reason: String) -> Failure {
    Failure { part: "NVRTC".into(), reason }
}

impl Source<'_> {
    fn all_options(&self, architecture: &str) -> Vec<String> {
        let fixed =
            [format!("--gpu-architecture={architecture}"), "--std=c++17".into(), "--fmad=true".into()];
        fixed.into_iter().chain(self.options.iter().map(|option| option.to_string())).collect()
    }

    /// Compiles it for an architecture like `sm_90a`. Needs no GPU.
    ///
    /// # Errors
    /// When there is no compiler, it does not know the architecture, or the source has errors: its log.
    pub fn compile(&self, architecture: &str) -> Result<Vec<u8>, Failure> {
        let name = self.name;
        let version = libraries::load_compiler()?;
        let said = |what: &str, result| match result {
            nvrtc::nvrtcResult::NVRTC_SUCCESS => Ok(()),
            // SAFETY: the compiler answers with a text of its own.
            result => Err(failed(format!("{name}.cu: {what}: {}", unsafe {
                CStr::from_ptr(nvrtc::nvrtcGetErrorString(result)).to_string_lossy()
            }))),
        };
        let as_c =
            |text: String| CString::new(text).map_err(|_| failed(format!("{name}.cu holds a zero byte")));
        let source = as_c(self.text.to_string())?;
        let file = as_c(format!("{name}.cu"))?;
        let options = self.all_options(architecture).into_iter().map(as_c).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let none = std::ptr::null();
        let mut program = Program(std::ptr::null_mut());
        // SAFETY: all texts end with a zero byte and outlive the calls; the compiler writes as many bytes as it said before.
        unsafe {
            let (to, source) = (&mut program.0, source.as_ptr());
            said("start", nvrtc::nvrtcCreateProgram(to, source, file.as_ptr(), 0, none, none))?;
            let result = nvrtc::nvrtcCompileProgram(program.0, addresses.len() as c_int, addresses.as_ptr());
            if result != nvrtc::nvrtcResult::NVRTC_SUCCESS {
                let mut size = 0;
                said("log", nvrtc::nvrtcGetProgramLogSize(program.0, &mut size))?;
                let mut log = vec![0u8; size];
                said("log", nvrtc::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()))?;
                let log = String::from_utf8_lossy(&log);
                let (log, (major, minor)) = (log.trim_end_matches(['\0', '\n']), version);
                return Err(failed(format!("{name}.cu for {architecture} with {major}.{minor}: {log}")));
            }
            let mut size = 0;
            said("result", nvrtc::nvrtcGetCUBINSize(program.0, &mut size))?;
            let mut binary = vec![0u8; size];
            said("result", nvrtc::nvrtcGetCUBIN(program.0, binary.as_mut_ptr().cast()))?;
            Ok(binary)
        }
    }

    /// The compiled kernels, from the folder or compiled and put there; whether they were compiled.
    ///
    /// # Errors
    /// As [`Source::compile`].
    pub fn cached(&self, folder: Option<&Path>, architecture: &str) -> Result<(Vec<u8>, bool), Failure> {
        let key = self.key(architecture)?;
        let kept = folder.and_then(|folder| entry(&folder.join(self.file_name(&key)), &key));
        match kept {
            Some(binary) => Ok((binary, false)),
            None => Ok((self.rebuild(folder, architecture)?, true)),
        }
    }

    /// Compiles it and puts it into the folder, where that can be written.
    ///
    /// # Errors
    /// As [`Source::compile`].
    pub fn rebuild(&self, folder: Option<&Path>, architecture: &str) -> Result<Vec<u8>, Failure> {
        let binary = self.compile(architecture)?;
        if let Some(folder) = folder {
            let key = self.key(architecture)?;
            let entry = [&checksum(&key, &binary)[..], &binary].concat();
            let temporary = folder.join(temporary_name());
            let written = std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&temporary, entry))
                .and_then(|()| std::fs::rename(&temporary, folder.join(self.file_name(&key))));
            if written.is_err() {
                let _ = std::fs::remove_file(temporary);
            }
        }
        Ok(binary)
    }

    /// Everything that the kernels are made of.
    fn key(&self, architecture: &str) -> Result<[u8; 32], Failure> {
        let (major, minor) = libraries::load_compiler()?;
        let mut hash = Sha256::new();
        let version = format!("NVRTC {major}.{minor}, untuned {}", env!("CARGO_PKG_VERSION"));
        let options = self.all_options(architecture).join(" ");
        for part in [self.name, self.text, &options, &version] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Ok(hash.finalize().into())
    }

    fn file_name(&self, key: &[u8; 32]) -> String {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}.cubin", self.name)
    }
}

/// Ends with the scope.
struct Program(nvrtc::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it was made by the compiler and is not used again.
            unsafe { nvrtc::nvrtcDestroyProgram(&mut self.0) };
        }
    }
}

/// What the compiler calls a compute capability: with its own instructions from 9.0 on.
///
/// # Errors
/// When the compiler is missing or too old to know it.
pub fn architecture((major, minor): (u32, u32)) -> Result<String, Failure> {
    let number = 10 * major + minor;
    let known = architectures()?;
    if !known.contains(&number) {
        let (major, minor) = libraries::load_compiler()?;
        let reason =
            format!("{major}.{minor} does not know GPUs of sm_{number}; install that of a newer CUDA");
        return Err(failed(reason));
    }
    Ok(format!("sm_{number}{}", if major >= 9 { "a" } else { "" }))
}

/// The architectures that the compiler knows: 80 is `sm_80`.
///
/// # Errors
/// When there is no compiler.
pub fn architectures() -> Result<Vec<u32>, Failure> {
    libraries::load_compiler()?;
    let mut count = 0;
    // SAFETY: the compiler writes a number, and then as many numbers.
    let known = unsafe {
        nvrtc::nvrtcGetNumSupportedArchs(&mut count);
        let mut known = vec![0; count.max(0) as usize];
        nvrtc::nvrtcGetSupportedArchs(known.as_mut_ptr());
        known
    };
    Ok(known.into_iter().map(|number| number as u32).collect())
}

/// Where compiled kernels are kept: `kernels` in the folder that `UNTUNED_CACHE` names, else `untuned/kernels` in the user's folder
/// for caches.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let ours = variable("UNTUNED_CACHE").or_else(|| Some(caches()?.join("untuned")));
    ours.map(|folder| folder.join("kernels"))
}

/// Whether a file can be made in a folder, or where it does not exist in the one that it would be made in.
pub fn try_to_write(folder: &Path) -> std::io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let path = there.join(temporary_name());
    std::fs::write(&path, [])?;
    std::fs::remove_file(path)
}

/// A name that no other thread and no other process uses.
fn temporary_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(".{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Of an entry's content, and of where it belongs.
fn checksum(key: &[u8; 32], binary: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(key).chain_update(binary).finalize().into()
}

/// What an entry holds, if it is whole.
fn entry(path: &Path, key: &[u8; 32]) -> Option<Vec<u8>> {
    let content = std::fs::read(path).ok()?;
    let (sum, binary) = content.split_at_checked(32)?;
    (sum == checksum(key, binary)).then(|| binary.to_vec())
}
