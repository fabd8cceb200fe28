//! The channels of a device against the contract of channels, and devices against theirs.

mod common;

use channel::conformance::{self, Accelerator};
use common::devices;

#[test]
fn channels_conform() {
    let Some(devices) = devices("channels_conform") else { return };
    for (device, queues) in devices.into_iter().zip([1, 3]) {
        conformance::run_channels(&Accelerator::new(device, queues));
    }
}

#[test]
fn devices_conform() {
    let Some(devices) = devices("devices_conform") else { return };
    for queues in [1, 2] {
        conformance::run_devices(&devices.clone().map(|device| Accelerator::new(device, queues)));
    }
}
