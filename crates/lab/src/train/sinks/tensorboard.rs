//! TensorBoard's event file: records of TFRecord, each an `Event` of protocol buffers.
//!
//! A record is its length (u64), a masked CRC-32C of the length, the data, a masked CRC-32C of the data; all little-endian. Of an
//! `Event` the fields `wall_time` = 1, `step` = 2, `file_version` = 3 and `summary` = 5 are written. A summary is a list of values
//! (1), each with `tag` = 1 and `simple_value` = 2.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Sink;
use crate::traces::{EvalRow, Split, TraceRow};
use crate::train::error::TrainError;

pub(super) const FOLDER: &str = "tensorboard";
/// One name for all parts of a run: TensorBoard would show a second file beside the first.
const FILE: &str = "events.out.tfevents.untuned";
const VERSION: &str = "brain.Event:2";

pub(super) struct TensorBoard {
    path: PathBuf,
    file: BufWriter<File>,
    /// When the run would have begun, had it never been stopped.
    began: f64,
    /// The time of the last step: an evaluation has none of its own.
    seconds: f64,
}

impl TensorBoard {
    /// Begins the file of a run that has taken this many seconds, in place of the one that was there.
    pub(super) fn create(folder: &Path, seconds: f64) -> Result<TensorBoard, TrainError> {
        let folder = folder.join(FOLDER);
        fs::create_dir_all(&folder).map_err(TrainError::io("make the folder", &folder))?;
        let path = folder.join(FILE);
        let file = File::create(&path).map_err(TrainError::io("write", &path))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let mut board = TensorBoard { path, file: BufWriter::new(file), began: now - seconds, seconds: 0.0 };
        board.event(0, |event| put_bytes(event, 3, VERSION.as_bytes()))?;
        Ok(board)
    }

    /// One event with the values that there are.
    fn values(&mut self, step: u64, values: &[(&str, Option<f64>)]) -> Result<(), TrainError> {
        let mut summary = Vec::new();
        for (tag, value) in values {
            let Some(value) = value else { continue };
            let mut one = Vec::new();
            put_bytes(&mut one, 1, tag.as_bytes());
            put_key(&mut one, 2, FOUR_BYTES);
            one.extend((*value as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &one);
        }
        self.event(step, |event| put_bytes(event, 5, &summary))
    }

    /// One event with what it holds.
    fn event(&mut self, step: u64, put_content: impl FnOnce(&mut Vec<u8>)) -> Result<(), TrainError> {
        let mut event = Vec::new();
        put_key(&mut event, 1, EIGHT_BYTES);
        event.extend((self.began + self.seconds).to_le_bytes());
        put_key(&mut event, 2, VARINT);
        put_varint(&mut event, step);
        put_content(&mut event);
        self.file.write_all(&record(&event)).map_err(TrainError::io("write", &self.path))
    }
}

impl Sink for TensorBoard {
    fn step(&mut self, row: &TraceRow) -> Result<(), TrainError> {
        self.seconds = row.seconds.unwrap_or(self.seconds);
        self.values(
            row.step,
            &[
                ("train/loss", row.loss),
                ("train/objective", row.objective),
                ("train/grad_norm", row.grad_norm),
                ("train/step_size", row.step_size),
                ("train/smoothness", row.smoothness),
                ("train/estimate", row.estimate),
            ],
        )
    }

    fn evaluation(&mut self, row: &EvalRow) -> Result<(), TrainError> {
        let tag = match row.split {
            Split::Train => "train/evaluated_loss",
            Split::Validation => "validation/loss",
            Split::Test => "test/loss",
        };
        self.values(row.step, &[(tag, row.loss)])
    }

    fn flush(&mut self) -> Result<(), TrainError> {
        self.file.flush().map_err(TrainError::io("write", &self.path))
    }
}

/// How protocol buffers store a field.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH_AND_BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

fn put_key(out: &mut Vec<u8>, field: u64, stored: u64) {
    put_varint(out, field << 3 | stored);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, LENGTH_AND_BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Seven bits to a byte, the lowest first; the eighth bit says that more follow.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend(length);
    out.extend(masked(crc32c(&length)).to_le_bytes());
    out.extend(data);
    out.extend(masked(crc32c(data)).to_le_bytes());
    out
}

/// As TFRecord stores a checksum, so that one of data that holds checksums is no weaker.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// Castagnoli's CRC, bits reflected.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, byte| CRC_TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32C, and the examples of RFC 3720, B.4.
    #[test]
    fn the_published_checksums() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    }

    /// The examples of the description of protocol buffers' encoding.
    #[test]
    fn the_published_encodings() {
        let mut out = Vec::new();
        put_key(&mut out, 1, VARINT);
        put_varint(&mut out, 150);
        assert_eq!(out, [0x08, 0x96, 0x01]);
        out.clear();
        put_bytes(&mut out, 2, b"testing");
        assert_eq!(out, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6E, 0x67]);
    }
}
