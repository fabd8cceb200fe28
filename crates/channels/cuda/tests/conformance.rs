//! The channels of a device against the contract of channels, and devices against theirs: on two
//! emulated devices, or on the system's.

mod common;

use channel::accelerator::Interop as _;
use channel::conformance::{self, Accelerator};
use common::devices;

#[test]
fn channels_conform() {
    let Some((_fake, devices)) = devices("channels_conform", 1) else { return };
    for (device, streams) in devices.into_iter().zip([1, 3]) {
        conformance::run_channels(&Accelerator::new(device, streams));
    }
}

#[test]
fn devices_conform() {
    for streams in [1, 2] {
        let Some((_fake, devices)) = devices("devices_conform", 1 + streams as u64) else { return };
        conformance::run_devices(&devices.map(|device| Accelerator::new(device, streams)));
    }
}

#[test]
fn channels_to_another_device_conform() {
    let test = "channels_to_another_device_conform";
    let Some((fake, [first, second])) = devices(test, 5) else { return };
    if first.reach(&second).unwrap().is_none() {
        assert!(fake.is_none(), "an emulated device reaches the other");
        return println!("skipped: {test}: no device copies straight to another");
    }
    let devices = [first, second].map(|device| Accelerator::new(device, 2));
    conformance::run_to_peer(&devices);
    let Some(fake) = fake else { return };
    assert!(fake.count("cuMemcpyPeerAsync") > 0 && fake.count("cuMemcpy3DPeerAsync") > 0);
}
