//! `untuned archive`.

use anyhow::anyhow;
use untuned_lab::archive::{ArchiveError, archive};

use crate::args::Archive;
use crate::end::End;
use crate::{interrupt, output};

pub fn run(args: &Archive) -> Result<(), End> {
    interrupt::at_once();
    let mut left_out = 0;
    for folder in &args.folders {
        if !folder.is_dir() {
            return Err(End::Request(anyhow!(
                "{} is not a folder; give one that `untuned reproduce`, `sweep` or `train` wrote",
                folder.display()
            )));
        }
        let done = archive(folder, &args.out, args.rows).map_err(End::archive)?;
        for note in done.notes.iter().chain(&done.problems) {
            output::say(&format!("note: {note}"));
        }
        left_out += done.problems.len();
        let (folder, out) = (folder.display(), args.out.display());
        output::print(&format!(
            "{folder}: {} runs added to {out}, {} replaced, {} were there; {:.1} kB\n",
            done.added,
            done.replaced,
            done.same,
            done.bytes as f64 / 1000.0
        ))?;
    }
    match left_out {
        0 => Ok(()),
        count => {
            Err(End::Request(anyhow!("{count} runs could not be read and were left out, as noted above")))
        }
    }
}

impl End {
    /// Runs that could not be archived.
    fn archive(error: ArchiveError) -> End {
        match error {
            ArchiveError::Io { what, path, source } => {
                End::io(source, format!("cannot {what} {}", path.display()))
            }
            error => End::request(error),
        }
    }
}
