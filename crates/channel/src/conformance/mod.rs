//! What every backend must do, as tests that a backend runs on itself.
//!
//! A backend gives a [`Fixture`] and calls [`run`]; a case that a capability rules out is left
//! out. Every case panics, with the seed where it drew numbers, when the channel breaks its
//! contract.

mod accelerator;
mod cases;
mod device;
mod immediate;
mod shape;

pub use accelerator::{DEVICE_CASES, DEVICE_CHANNELS, DeviceCase};
pub use cases::wait;
pub use device::{Accelerator, DeviceSuite, Ends, Host};
pub use device::{backwards, drop_held, job, memory, nested, run_one, submit_all, sys};
pub use immediate::Immediate;
pub use shape::{Draw, Shape};

use crate::{Channel, HostSpan, Region};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes what a backend is tested with.
pub trait Fixture {
    /// A channel with nothing in flight.
    fn channel(&self) -> Box<dyn Channel>;

    /// A region on the channel's source side that holds `bytes`.
    fn source(&self, bytes: &[u8]) -> Arc<Region>;

    /// A region on the channel's destination side that holds `bytes`.
    fn destination(&self, bytes: &[u8]) -> Arc<Region>;

    /// What a region that [`Fixture::destination`] made holds now.
    fn contents(&self, destination: &Region) -> Vec<u8>;
}

/// Whether huge pages were asked for in the middle of `span`; `None` where the kernel has none.
///
/// # Panics
/// Where the kernel doesn't tell.
#[must_use]
pub fn may_be_huge(span: HostSpan) -> Option<bool> {
    std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists().then(|| {
        let middle = span.start().as_ptr().addr() + span.len_bytes() / 2;
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("what is mapped");
        let range = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let of = |text| usize::from_str_radix(text, 16).ok();
            Some(of(from)?..of(to)?)
        };
        let is_its = |line: &&str| range(line).is_some_and(|range| range.contains(&middle));
        let mut lines = maps.lines().skip_while(|line| !is_its(line));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
        flags.expect("those of every mapping").split_whitespace().any(|flag| flag == "hg")
    })
}

/// One rule of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The rule.
    pub name: &'static str,
    /// Panics where the channel breaks it.
    pub check: fn(&dyn Fixture),
}

/// Every rule.
pub const CASES: &[Case] = &[
    Case { name: "random copies match the oracle", check: cases::copies_match_the_oracle },
    Case { name: "long runs match the oracle", check: cases::long_runs_match_the_oracle },
    Case { name: "many copies in one request", check: cases::many_copies_in_one_request },
    Case { name: "an empty request completes", check: cases::an_empty_request_completes },
    Case { name: "a malformed copy is refused", check: cases::a_malformed_copy_is_refused },
    Case { name: "out of bounds touches nothing", check: cases::out_of_bounds_touches_nothing },
    Case { name: "the wrong kind of region is refused", check: cases::a_foreign_region_is_refused },
    Case { name: "a full channel gives the job back", check: cases::a_full_channel_gives_back },
    Case { name: "completions name each request once", check: cases::each_request_completes_once },
    Case { name: "drain waits for all", check: cases::drain_waits_for_all },
    Case { name: "drop waits and releases", check: cases::drop_waits_and_releases },
    Case { name: "the descriptor wakes a sleeper", check: cases::the_descriptor_wakes },
    Case { name: "an idle descriptor is silent", check: cases::an_idle_descriptor_is_silent },
    Case { name: "a commit is an error where unable", check: cases::a_commit_where_unable },
];

/// Checks every rule on `fixture`.
///
/// # Panics
/// At the first rule that its channel breaks.
pub fn run(fixture: &dyn Fixture) {
    for case in CASES {
        judge(case.name, || (case.check)(fixture));
    }
}

/// Checks every rule on each kind of channel that a device has.
///
/// # Panics
/// At the first rule that one of them breaks.
pub fn run_channels(device: &Accelerator) {
    for &(direction, host) in DEVICE_CHANNELS.iter().filter(|(way, _)| device.has(*way)) {
        let fixture = DeviceSuite::new(device, direction, host);
        for case in CASES {
            let name = format!("{} ({direction:?}, {host:?})", case.name);
            judge(&name, || (case.check)(&fixture));
        }
    }
}

/// Checks every rule on the channel from a device to another that it reaches.
///
/// # Panics
/// At the first rule that it breaks.
pub fn run_to_peer([device, there]: &[Accelerator; 2]) {
    let fixture = DeviceSuite::to_peer(device, there);
    for case in CASES {
        judge(case.name, || (case.check)(&fixture));
    }
}

/// Checks every rule for devices on two of them.
///
/// # Panics
/// At the first rule that they break.
pub fn run_devices(devices: &[Accelerator; 2]) {
    for case in DEVICE_CASES {
        judge(case.name, || (case.check)(devices));
    }
}

fn judge(name: &str, check: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(check)).is_err() {
        panic!("it breaks the rule: {name}");
    }
}
