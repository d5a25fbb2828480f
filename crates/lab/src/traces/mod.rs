//! The lines that a training run writes, `trace.jsonl` and `eval.jsonl`, read back one by one in bounded memory. Where such a file is
//! missing, its compressed form in an archive is read: the same name with `.gz`.

mod binned;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use binned::{Band, BandBin, Bin, Binned, DEFAULT_BINS, Extent, UnlikeRuns};

/// The longest line that is read: a hundred times the longest that a run writes.
const LONGEST_LINE: usize = 1 << 16;

/// What is read from the system at once. Larger ones are not faster.
const BUFFER: usize = 1 << 18;

/// A line of `trace.jsonl`: the point before a step, and the step taken from it. A number that was not finite is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TraceRow {
    /// The step's number, from 0.
    pub step: u64,
    /// The mean cross-entropy.
    pub loss: Option<f64>,
    /// What was differentiated.
    pub objective: Option<f64>,
    /// The norm of the gradient.
    pub grad_norm: Option<f64>,
    /// The step size; `None` also where the step was refused.
    pub step_size: Option<f64>,
    /// The local smoothness; left out where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothness: Option<f64>,
    /// What the method finds out on the way; left out where it finds out nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<f64>,
    /// The time since the run began.
    pub seconds: Option<f64>,
}

/// A line of `eval.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvalRow {
    /// The steps that were made before.
    pub step: u64,
    /// What was evaluated.
    pub split: Split,
    /// The loss on the whole split; `None` where it was not finite.
    pub loss: Option<f64>,
}

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say what they are")]
pub enum Split {
    Train,
    Validation,
    Test,
}

/// What was read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The lines that were read.
    pub rows: u64,
    /// The file ends in the middle of a line, which was left out: the run is being written, or was killed.
    pub unfinished: bool,
}

/// Why a file of lines cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum TraceError {
    /// The system cannot read it.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A folder, a pipe, a device.
    #[error("{path} is not a file; name the folder of a run that `untuned train` made", path = path.display())]
    NotAFile { path: PathBuf },
    /// A line is not what a run writes.
    #[error("{path}, line {line}: {problem}; remove the line, or make the run again", path = path.display())]
    Line {
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        problem: String,
    },
    /// Its last rows are not there.
    #[error("{path} ends after {found} of {steps} steps; make the run again", path = path.display())]
    Short { path: PathBuf, found: u64, steps: u64 },
}

/// Reads a `trace.jsonl` and hands over its rows in order. Unknown keys are ignored, a last line without its end is left out.
///
/// # Errors
/// When the file cannot be read, a line is broken, or a step does not come after the one before it. The rows before that
/// line were handed over.
pub fn read_trace(path: &Path, mut row: impl FnMut(TraceRow)) -> Result<Read, TraceError> {
    let mut last = None;
    each_line(path, |text| {
        let next: TraceRow = object(text)?;
        if let Some(last) = last.filter(|last| next.step <= *last) {
            return Err(format!("step {} does not come after step {last}", next.step));
        }
        last = Some(next.step);
        row(next);
        Ok(())
    })
}

/// Reads an `eval.jsonl`, as [`read_trace`] reads a trace; a step may repeat, because it has a line for each split.
///
/// # Errors
/// When the file cannot be read, a line is broken, or a step comes after a later one.
pub fn read_eval(path: &Path) -> Result<Vec<EvalRow>, TraceError> {
    let mut rows: Vec<EvalRow> = Vec::new();
    each_line(path, |text| {
        let next: EvalRow = object(text)?;
        if let Some(last) = rows.last().filter(|last| next.step < last.step) {
            return Err(format!("step {} comes after step {}", next.step, last.step));
        }
        rows.push(next);
        Ok(())
    })?;
    Ok(rows)
}

/// Where the compressed form of a file of lines is.
pub fn compressed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

/// Calls `line` with every line that has its end.
fn each_line(path: &Path, mut line: impl FnMut(&[u8]) -> Result<(), String>) -> Result<Read, TraceError> {
    let archived = Some(compressed(path)).filter(|archived| !path.exists() && archived.exists());
    let path = archived.as_deref().unwrap_or(path);
    let io = |source| TraceError::Io { path: path.into(), source };
    // A pipe would be waited for without end.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(TraceError::NotAFile { path: path.into() });
    }
    let file = File::open(path).map_err(io)?;
    let file: Box<dyn io::Read> = match archived.is_some() {
        true => Box::new(GzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut file = BufReader::with_capacity(BUFFER, file);
    let mut text = Vec::new();
    let mut rows = 0;
    loop {
        text.clear();
        (&mut file).take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut text).map_err(io)?;
        let broken = |problem| TraceError::Line { path: path.into(), line: rows + 1, problem };
        if text.len() > LONGEST_LINE {
            return Err(broken(format!("it is longer than {LONGEST_LINE} bytes")));
        }
        if text.pop_if(|last| *last == b'\n').is_none() {
            return Ok(Read { rows, unfinished: !text.is_empty() });
        }
        line(&text).map_err(broken)?;
        rows += 1;
    }
}

/// What a line says, or what is wrong with it. A parser by hand for a `TraceRow` is 1.7 times as fast: not worth its hundred lines.
fn object<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // `serde` would also take a list of the values without their names.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is not a JSON object".into());
    }
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        format!("{what} at column {}", error.column())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// Reads some bytes as a trace.
    fn trace(bytes: &[u8]) -> (Vec<TraceRow>, Result<Read, TraceError>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        let mut rows = Vec::new();
        let read = read_trace(file.path(), |row| rows.push(row));
        (rows, read)
    }

    fn eval(bytes: &[u8]) -> Result<Vec<EvalRow>, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        read_eval(file.path())
    }

    fn row(step: u64, loss: Option<f64>) -> TraceRow {
        let none = None;
        TraceRow {
            step,
            loss,
            objective: none,
            grad_norm: none,
            step_size: none,
            smoothness: none,
            estimate: none,
            seconds: none,
        }
    }

    const THREE: &str = concat!(
        r#"{"step":0,"loss":3.25,"objective":3.5,"grad_norm":4.9,"step_size":0.0026,"seconds":1.04}"#,
        "\n",
        r#"{"step":1,"loss":null,"objective":null,"grad_norm":null,"step_size":null,"seconds":2}"#,
        "\n",
        r#"{"step":7,"loss":-1e-320,"objective":1.7976931348623157e308,"grad_norm":0.1,"step_size":5,"smoothness":12.5,"seconds":3.5}"#,
        "\n",
    );

    fn three() -> [TraceRow; 3] {
        let first = TraceRow {
            objective: Some(3.5),
            grad_norm: Some(4.9),
            step_size: Some(0.0026),
            seconds: Some(1.04),
            ..row(0, Some(3.25))
        };
        let last = TraceRow {
            objective: Some(f64::MAX),
            grad_norm: Some(0.1),
            step_size: Some(5.0),
            smoothness: Some(12.5),
            seconds: Some(3.5),
            ..row(7, Some(-1e-320))
        };
        [first, TraceRow { seconds: Some(2.0), ..row(1, None) }, last]
    }

    #[test]
    fn a_file_cut_at_any_byte_gives_its_whole_lines() {
        for length in 0..=THREE.len() {
            let cut = &THREE.as_bytes()[..length];
            let (rows, read) = trace(cut);
            let whole = cut.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(rows, three()[..whole]);
            let unfinished = cut.last().is_some_and(|last| *last != b'\n');
            assert_eq!(read.unwrap(), Read { rows: whole as u64, unfinished });
        }
    }

    #[test]
    fn evaluations_cut_at_any_byte() {
        let text = concat!(
            r#"{"step":0,"split":"validation","loss":2.5}"#,
            "\n",
            r#"{"step":0,"split":"test","loss":null}"#,
            "\n",
            r#"{"step":10,"split":"validation","loss":1.5,"later":[1]}"#,
            "\n"
        );
        let wanted =
            [(0, Split::Validation, Some(2.5)), (0, Split::Test, None), (10, Split::Validation, Some(1.5))];
        let wanted = wanted.map(|(step, split, loss)| EvalRow { step, split, loss });
        for length in 0..=text.len() {
            let cut = &text.as_bytes()[..length];
            let whole = cut.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(eval(cut).unwrap(), wanted[..whole]);
        }
    }

    #[test]
    fn unknown_keys_any_order_and_spaces_are_fine() {
        let text = b" { \"later\": {\"x\": [1, \"}\"]}, \"loss\": 2, \"step\": 3 } \r\n{\"step\":4}\n";
        let (rows, read) = trace(text);
        assert_eq!(read.unwrap(), Read { rows: 2, unfinished: false });
        assert_eq!(rows, [row(3, Some(2.0)), row(4, None)]);
    }

    #[test]
    fn a_broken_line_is_named() {
        let broken = [
            ("{\"step\":1,\"loss\":}", "expected value at column 18"),
            ("{\"step\":1,\"loss\":1", "EOF while parsing an object at column"),
            ("", "not a JSON object"),
            ("[1,2,3,4,5,6,7]", "not a JSON object"),
            ("{}", "missing field `step`"),
            ("{\"step\":-1}", "invalid value: integer `-1`"),
            ("{\"step\":null}", "invalid type: null"),
            ("{\"step\":1,\"loss\":\"much\"}", "invalid type: string \"much\""),
            ("{\"step\":1,\"loss\":1e999}", "number out of range"),
            ("{\"step\":1,\"step\":1}", "duplicate field `step`"),
            ("{\"step\":1}{\"step\":2}", "trailing characters"),
            ("{\"step\":0}", "step 0 does not come after step 0"),
        ];
        for (line, problem) in broken {
            let (rows, read) = trace(format!("{{\"step\":0}}\n{line}\n{{\"step\":9}}\n").as_bytes());
            let message = read.unwrap_err().to_string();
            assert!(message.contains(", line 2: ") && message.contains(problem), "{line}: {message}");
            assert_eq!(rows.len(), 1, "{line}");
        }
        let message = trace(b"\xff\xfe\n").1.unwrap_err().to_string();
        assert!(message.contains("line 1"), "{message}");
        let message = eval(b"{\"step\":5,\"split\":\"test\"}\n{\"step\":4,\"split\":\"test\"}\n");
        assert!(message.unwrap_err().to_string().contains("line 2: step 4 comes after step 5"));
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let longest = format!("{{\"step\":0,\"later\":\"{}\"}}\n", "x".repeat(LONGEST_LINE - 22));
        assert_eq!(longest.len(), LONGEST_LINE);
        assert_eq!(trace(longest.as_bytes()).1.unwrap().rows, 1);
        for end in ["", "\n"] {
            let (_, read) = trace(format!("{}{end}", " ".repeat(LONGEST_LINE + 1)).as_bytes());
            assert!(read.unwrap_err().to_string().contains("line 1: it is longer than 65536 bytes"));
        }
    }

    #[test]
    fn the_compressed_form_is_read_where_the_file_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        let mut bytes = Vec::new();
        let mut encoder = flate2::write::GzEncoder::new(&mut bytes, flate2::Compression::best());
        io::Write::write_all(&mut encoder, THREE.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let read = |bytes: &[u8]| {
            fs::write(compressed(&path), bytes).unwrap();
            let mut rows = Vec::new();
            read_trace(&path, |row| rows.push(row)).map(|read| (rows, read.unfinished))
        };
        assert_eq!(read(&bytes).unwrap(), (three().to_vec(), false));
        // Cut or changed anywhere it is an error that names the file: its checksum covers every byte.
        for cut in 0..bytes.len() {
            let message = read(&bytes[..cut]).unwrap_err().to_string();
            assert!(message.contains("trace.jsonl.gz"), "{message}");
        }
        for at in 10..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
        fs::write(&path, "{\"step\":5}\n").unwrap();
        assert_eq!(read(&bytes).unwrap().0, [row(5, None)], "the file itself counts first");
    }

    #[test]
    fn only_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let found = read_trace(folder.path(), |_| {});
        assert!(matches!(found, Err(TraceError::NotAFile { .. })), "{found:?}");
        let found = read_eval(&folder.path().join("eval.jsonl"));
        assert!(matches!(found, Err(TraceError::Io { .. })), "{found:?}");
        assert!(found.unwrap_err().to_string().contains("eval.jsonl"));
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>(), -10.0..10.0f64, Just(f64::NAN), Just(f64::MAX), Just(5e-324)]
    }

    proptest! {
        #[test]
        fn numbers_read_back_exactly(values in proptest::collection::vec(number(), 0..40)) {
            let mut text = String::new();
            for (step, value) in values.iter().enumerate() {
                let line = serde_json::json!({"step": step, "loss": value, "seconds": value});
                text.push_str(&format!("{line}\n"));
            }
            let (rows, read) = trace(text.as_bytes());
            prop_assert_eq!(read.unwrap(), Read { rows: values.len() as u64, unfinished: false });
            let bits = |value: Option<f64>| value.map(f64::to_bits);
            for (row, value) in rows.iter().zip(values) {
                let wanted = value.is_finite().then_some(value.to_bits());
                prop_assert_eq!((bits(row.loss), bits(row.seconds), row.objective), (wanted, wanted, None));
            }
        }

        #[test]
        fn any_bytes_are_rows_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let whole = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            match trace(&bytes).1 {
                Ok(read) => prop_assert_eq!((read.rows, whole), (0, 0)),
                Err(TraceError::Line { line, .. }) => prop_assert!(line <= whole),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
