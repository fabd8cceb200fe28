//! The channels of a device against the contract of channels, and devices against theirs.

mod common;

use channel::conformance::{self, DeviceSuite, Host};
use common::{devices, under_test};
use isometry_channel_opencl::Direction;

fn conforms(test: &str, which: usize, (direction, host, queues): (Direction, Host, usize)) {
    let Some(devices) = devices(test) else { return };
    let device = under_test(&devices[which], queues);
    conformance::run(&DeviceSuite::new(&device, direction, host));
}

#[test]
fn writes_from_host_memory_conform() {
    conforms("writes_from_host_memory_conform", 0, (Direction::Write, Host::Sys, 1));
}

#[test]
fn writes_from_pinned_memory_conform() {
    conforms("writes_from_pinned_memory_conform", 1, (Direction::Write, Host::Zcm, 1));
}

#[test]
fn reads_to_host_memory_conform() {
    conforms("reads_to_host_memory_conform", 1, (Direction::Read, Host::Sys, 1));
}

#[test]
fn reads_to_pinned_memory_conform() {
    conforms("reads_to_pinned_memory_conform", 0, (Direction::Read, Host::Zcm, 1));
}

#[test]
fn copies_inside_a_device_conform() {
    conforms("copies_inside_a_device_conform", 0, (Direction::Copy, Host::Sys, 1));
}

#[test]
fn several_queues_conform() {
    for direction in [Direction::Write, Direction::Read, Direction::Copy] {
        conforms("several_queues_conform", 1, (direction, Host::Sys, 3));
    }
}

#[test]
fn devices_conform() {
    let Some(devices) = devices("devices_conform") else { return };
    for queues in [1, 2] {
        conformance::run_devices(&devices.each_ref().map(|device| under_test(device, queues)));
    }
}
