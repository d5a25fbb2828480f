//! Reads from the device, of which every one makes the processor wait.

use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Tensor, TensorData, Transaction};

use crate::StepError;

/// All reads from a device are made here, and counted.
#[derive(Debug, Default)]
pub(crate) struct Reads(AtomicU64);

impl Reads {
    /// Reads tensors, all that are on one device at once.
    pub(crate) fn read(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<TensorData>, StepError> {
        let mut found: Vec<(usize, TensorData)> = Vec::with_capacity(tensors.len());
        let mut rest: Vec<(usize, Tensor<1>)> = tensors.into_iter().enumerate().collect();
        while let Some((_, first)) = rest.first() {
            let device = first.device();
            let (here, there): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|(_, tensor)| tensor.device() == device);
            let (places, here): (Vec<usize>, Vec<Tensor<1>>) = here.into_iter().unzip();
            self.0.fetch_add(1, Ordering::Relaxed);
            let all = here.into_iter().fold(Transaction::default(), Transaction::register);
            let data = all.try_execute().map_err(|error| StepError::Read(error.to_string()))?;
            found.extend(places.into_iter().zip(data));
            rest = there;
        }
        found.sort_by_key(|&(place, _)| place);
        Ok(found.into_iter().map(|(_, data)| data).collect())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clone for Reads {
    /// A count of its own, from here on.
    fn clone(&self) -> Reads {
        Reads(AtomicU64::new(self.count()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// What reads elsewhere is not counted. The one exception takes memory that is in reach already.
    #[test]
    fn nothing_reads_elsewhere() {
        let mut found = Vec::new();
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let reads = ["into_data(", "to_data(", "into_scalar(", "Transaction", "_async("];
            let lines = text.lines().filter(|line| reads.iter().any(|read| line.contains(read)));
            if !path.ends_with("reads.rs") {
                found.extend(lines.map(|line| line.trim().to_string()));
            }
        }
        assert_eq!(
            found,
            ["if self.host[at] { Part::Host(tensor.into_data()) } else { Part::Device(tensor) }"]
        );
    }
}
