//! One file per process for loaders that read files.

use std::path::PathBuf;

/// Writes the bytes to this process's file.
pub fn file(bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("untuned-fuzz-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the temporary folder can be written to");
    path
}
