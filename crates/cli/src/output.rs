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
    written.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => End::BrokenPipe,
        _ => End::io(e, "cannot write to standard output".to_string()),
    })
}

/// Prints one JSON value, the only thing on standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), End> {
    let text = serde_json::to_string_pretty(value).map_err(|e| End::System(e.into()))?;
    print(&(text + "\n"))
}

/// Writes a line to standard error. Where that fails, nothing else is done.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A word as a shell takes it: in quotes where it has more than plain characters.
pub fn shell_word(word: &str) -> String {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,".contains(c));
    if plain { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Checks that a file can be created at `path`: its folder must exist.
pub fn check_parent(path: &Path, what: &str) -> Result<(), End> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => return Ok(()),
    };
    let (shown, path) = (parent.display(), path.display());
    if parent.is_dir() {
        Ok(())
    } else if parent.exists() {
        Err(End::Request(anyhow!("{what} {path}: {shown} is not a folder; name a file in a folder")))
    } else {
        Err(End::Request(anyhow!(
            "{what} {path}: the folder {shown} does not exist; make it with `mkdir -p {shown}`"
        )))
    }
}

/// Writes a whole file; a reader never sees half of it. A link is followed; a device or a pipe is written to, not replaced.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), End> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let what = || format!("cannot write {}", path.display());
    match fs::metadata(&target) {
        Ok(found) if found.is_dir() => {
            return Err(End::Request(anyhow!("{}: is a folder; name a file", path.display())));
        }
        Ok(found) if !found.is_file() => return fs::write(&target, bytes).map_err(|e| End::io(e, what())),
        _ => {}
    }
    let mut aside = target.as_os_str().to_owned();
    aside.push(".new");
    let written = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, &target));
    written.map_err(|e| {
        let _ = fs::remove_file(&aside);
        End::io(e, what())
    })
}

/// Whether progress bars are seen by anybody.
pub fn progress_is_seen() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        let words = ["runs/gpt-1", "a b", "it's", ""];
        assert_eq!(words.map(shell_word), ["runs/gpt-1", "'a b'", "'it'\\''s'", "''"]);
    }
}
