//! How the program ends: every failure has an exit code and a sentence.

use std::io;
use std::process::ExitCode;

use untuned_lab::sweep;
use untuned_lab::train::TrainError;

use crate::output;

/// Why a command did not end with exit code 0.
#[derive(Debug)]
pub enum End {
    /// The request was wrong: exit code 2.
    Request(anyhow::Error),
    /// The run diverged or was refused: exit code 3. What is to be said was said.
    Run,
    /// The system failed: exit code 4.
    System(anyhow::Error),
    /// The user stopped it: exit code 130.
    Interrupted,
    /// A worker's trial is another process's: the exit code that tells the process which started it.
    Busy,
    /// Nobody reads the output any more: not an error.
    BrokenPipe,
}

/// An error and its causes, but for those that an error's own words already end with.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl End {
    /// Prints the error and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            End::Request(error) => {
                output::say(&format!("error: {}", message(&error)));
                ExitCode::from(2)
            }
            End::Run => ExitCode::from(3),
            End::System(error) => {
                output::say(&format!("error: {}", message(&error)));
                ExitCode::from(4)
            }
            End::Interrupted => {
                output::say("interrupted; what was written is kept");
                ExitCode::from(130)
            }
            End::Busy => ExitCode::from(sweep::BUSY as u8),
            End::BrokenPipe => ExitCode::SUCCESS,
        }
    }

    /// A wrong request.
    pub fn request(error: impl Into<anyhow::Error>) -> End {
        End::Request(error.into())
    }

    /// A run that could not begin or go on.
    pub fn train(error: TrainError) -> End {
        if error.is_request() { End::Request(error.into()) } else { End::System(error.into()) }
    }

    /// An input or output error while doing `what`: a path that cannot be used is the request's fault, a full disk
    /// the system's.
    pub fn io(error: io::Error, what: String) -> End {
        use io::ErrorKind::{
            AlreadyExists, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        };
        let kind = error.kind();
        let error = anyhow::Error::from(error).context(what);
        match kind {
            NotFound | PermissionDenied | IsADirectory | NotADirectory | AlreadyExists | InvalidInput => {
                End::Request(error)
            }
            _ => End::System(error),
        }
    }
}
