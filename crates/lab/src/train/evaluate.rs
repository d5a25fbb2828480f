//! The loss over a whole split.

use untuned_net::device::Device;
use untuned_net::models::{Network, SCALARS, loss_of};

use super::data::{Batches, Filled};
use super::error::TrainError;

/// The mean loss over a split, each target with the same weight; nothing where it is not finite.
///
/// What the network carries begins at zero, and is afterwards what it was before.
pub(super) fn evaluate<D: Device>(
    device: &D,
    network: &mut dyn Network<D>,
    x: &D::Parameters,
    split: &mut Batches,
    filled: &mut Filled,
    scalars: &mut D::Scalars,
) -> Result<Option<f64>, TrainError> {
    let carry = network.carry(device)?;
    network.set_carry(device, &[]);
    let (mut sum, mut targets, mut n) = (0.0, 0, 0);
    let (mut next, mut more) = (Filled::default(), split.fill(0, filled)?);
    while more {
        let feed = filled.feed();
        device.together(|| network.loss(device, feed, x, scalars));
        // Made while the device works.
        n += 1;
        let filled_next = split.fill(n, &mut next);
        let mut values = [0.0; SCALARS];
        device.read(scalars, &mut values)?;
        sum += loss_of(&values).plain * feed.targets.len() as f64;
        targets += feed.targets.len();
        more = filled_next?;
        std::mem::swap(filled, &mut next);
    }
    network.set_carry(device, &carry);
    let mean = sum / targets as f64;
    Ok(mean.is_finite().then_some(mean))
}
