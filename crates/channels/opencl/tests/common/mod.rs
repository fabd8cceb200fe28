//! What the tests of this crate share: two devices.

use isometry_channel_opencl::{Device, Found, find};
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
