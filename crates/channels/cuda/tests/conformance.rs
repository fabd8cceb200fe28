//! The channels of a device against the contract of channels, and devices against theirs: on two
//! emulated devices, or on the system's.

mod common;

use channel::conformance::{self, DeviceSuite, Host};
use common::{devices, under_test};
use isometry_channel_cuda::Direction;

fn conforms(test: &str, which: usize, (direction, host, streams): (Direction, Host, usize)) {
    let Some((_fake, devices)) = devices(test, 1) else { return };
    let device = under_test(&devices[which], streams);
    conformance::run(&DeviceSuite::new(&device, direction, host));
}

#[test]
fn writes_from_host_memory_conform() {
    conforms("writes_from_host_memory_conform", 0, (Direction::Write, Host::Sys, 1));
}

#[test]
fn writes_from_pinned_memory_conform() {
    conforms("writes_from_pinned_memory_conform", 1, (Direction::Write, Host::Zcm, 2));
}

#[test]
fn reads_to_host_memory_conform() {
    conforms("reads_to_host_memory_conform", 1, (Direction::Read, Host::Sys, 2));
}

#[test]
fn reads_to_pinned_memory_conform() {
    conforms("reads_to_pinned_memory_conform", 0, (Direction::Read, Host::Zcm, 1));
}

#[test]
fn copies_inside_a_device_conform() {
    conforms("copies_inside_a_device_conform", 0, (Direction::Copy, Host::Sys, 3));
}

fn devices_of(test: &str, streams: usize, seed: u64) {
    let Some((_fake, devices)) = devices(test, seed) else { return };
    conformance::run_devices(&devices.each_ref().map(|device| under_test(device, streams)));
}

#[test]
fn devices_by_one_stream_conform() {
    devices_of("devices_by_one_stream_conform", 1, 2);
}

#[test]
fn devices_by_two_streams_conform() {
    devices_of("devices_by_two_streams_conform", 2, 3);
}
