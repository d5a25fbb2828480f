//! A run's trace as a file: one JSON object per line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use serde::Serialize;
use untuned::minimize::{Iterate, Observer, TRACED_DIMENSIONS};

/// One line. Numbers print so that they read back exactly; those that are not finite are null.
#[derive(Debug, Serialize)]
struct Line<'a> {
    step: u64,
    loss: f64,
    gap: Option<f64>,
    grad_norm: f64,
    step_size: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<&'a [f64]>,
}

/// Writes every iterate of a run to a file of JSON lines.
pub struct TraceFile {
    file: BufWriter<File>,
    f_star: Option<f64>,
    failed: Option<io::Error>,
    /// Nobody reads the pipe any more: the run goes on without a trace.
    closed: bool,
}

impl TraceFile {
    /// Creates or replaces the file.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path, f_star: Option<f64>) -> io::Result<TraceFile> {
        Ok(TraceFile { file: BufWriter::new(File::create(path)?), f_star, failed: None, closed: false })
    }

    /// Writes out what is still in memory.
    ///
    /// # Errors
    /// The first error of any write: the run was stopped there, and the file holds what came before.
    pub fn finish(mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.closed => Ok(()),
            None => self.file.flush().or_else(|e| if is_closed(&e) { Ok(()) } else { Err(e) }),
        }
    }
}

impl Observer for TraceFile {
    fn see(&mut self, i: &Iterate<'_>) -> ControlFlow<()> {
        if self.closed {
            return ControlFlow::Continue(());
        }
        let x = (i.x.len() <= TRACED_DIMENSIONS).then_some(i.x);
        let gap = self.f_star.map(|f| i.loss - f);
        let step_size = i.next.map(|n| n.rate);
        let line = Line { step: i.step, loss: i.loss, gap, grad_norm: i.grad_norm, step_size, x };
        let written = serde_json::to_writer(&mut self.file, &line).map_err(io::Error::from);
        match written.and_then(|()| self.file.write_all(b"\n")) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) if is_closed(&error) => {
                self.closed = true;
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// Whether the reader of a pipe went away, which is no error.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
