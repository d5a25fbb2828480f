//! Reads from the device. Each of them makes the CPU wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Tensor, TensorData, Transaction};

use crate::StepError;

/// Makes all reads from a device, and counts them. Clones have one count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reads(Arc<AtomicU64>);

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// A read elsewhere is not counted. The one exception takes memory that is in reach already.
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
