//! What the tests of this crate share: two devices.
#![allow(dead_code, reason = "each test program uses a part of it")]

use channel::conformance::{Accelerator, memory};
use isometry_channel_opencl::{Device, FbmProvider, Found, OpenClChannel, ZcmProvider, find};
use std::sync::OnceLock;

/// Two devices, each a context of its own; they are one and the same where there is no second.
/// Without any it says so, and the test is skipped.
pub(crate) fn devices(test: &str) -> Option<[Device; 2]> {
    static FOUND: OnceLock<Result<Vec<Found>, isometry_channel_opencl::Absent>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if std::env::var_os("POCL_DEVICES").is_none() {
            // SAFETY: all that reads variables here goes through std's lock, but for OpenCL, which
            // is first called behind this.
            unsafe { std::env::set_var("POCL_DEVICES", "pthread pthread") };
        }
        find()
    });
    match found {
        Ok(found) => {
            let open = |found: &Found| found.open().expect("a device that was found opens");
            Some([open(&found[0]), open(found.get(1).unwrap_or(&found[0]))])
        }
        Err(why) => {
            println!("skipped: {test}: {why}");
            None
        }
    }
}

/// The memories and channels of `device`, these of so many queues.
pub(crate) fn under_test(device: &Device, queues: usize) -> Accelerator {
    let owned = device.clone();
    Accelerator {
        fbm: Box::new(FbmProvider::new(memory(2), device.clone())),
        zcm: Box::new(ZcmProvider::new(memory(1), device.clone())),
        channel: Box::new(move |direction| {
            let channel = OpenClChannel::with_queues(&owned, direction, queues);
            Box::new(channel.expect("a channel"))
        }),
    }
}
