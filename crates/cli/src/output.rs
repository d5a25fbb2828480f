//! Words and values on standard output, with a broken pipe as an ordinary end.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use crate::end::End;

/// Prints text.
pub fn print(text: &str) -> Result<(), End> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| End::io(e, "cannot write to standard output".to_string()))
}

/// Prints one JSON value, the only thing on standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), End> {
    let text = serde_json::to_string_pretty(value).map_err(|e| End::System(e.into()))?;
    print(&(text + "\n"))
}

/// Checks that a file can be created at `path`: its folder must exist.
pub fn check_parent(path: &Path, option: &str) -> Result<(), End> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => return Ok(()),
    };
    if parent.is_dir() {
        return Ok(());
    }
    let (path, parent) = (path.display(), parent.display());
    Err(End::Request(anyhow!(
        "{option} {path}: the folder {parent} does not exist; make it with `mkdir -p {parent}`"
    )))
}

/// Writes a whole file; a reader never sees half of it.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), End> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let written = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    written.map_err(|e| End::io(e, format!("cannot write {}", path.display())))
}

/// Whether progress bars are seen by anybody.
pub fn progress_is_seen() -> bool {
    io::stderr().is_terminal()
}
