//! The channels of a device against the contract of channels.

mod common;

use channel::conformance;
use common::{Host, Suite, devices};
use isometry_channel_opencl::Direction;

fn conforms(test: &str, which: usize, (direction, host, queues): (Direction, Host, usize)) {
    let Some(devices) = devices(test) else { return };
    conformance::run(&Suite::new(&devices[which], direction, host, queues));
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
