//! What the tests of this crate share: two devices.

use isometry_channel_opencl::{Device, DeviceKind, Found, find};
use std::sync::OnceLock;

/// Where this says `gpu`, tests run on graphics processors alone.
const CHOICE: &str = "ISOMETRY_OPENCL_TESTS";

/// The devices that tests run on. Without any it says so, and the test is skipped.
pub(crate) fn found(test: &str) -> Option<&'static [Found]> {
    static FOUND: OnceLock<Result<Vec<Found>, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if std::env::var_os("POCL_DEVICES").is_none() {
            // SAFETY: all that reads variables here goes through std's lock, but for OpenCL, which
            // is first called behind this.
            unsafe { std::env::set_var("POCL_DEVICES", "pthread pthread") };
        }
        let mut found = find().map_err(|why| why.to_string())?;
        if std::env::var_os(CHOICE).is_some_and(|choice| choice == "gpu") {
            found.retain(|found| found.info().kind == DeviceKind::Gpu);
        }
        if found.is_empty() { Err("no graphics processor".to_owned()) } else { Ok(found) }
    });
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            println!("skipped: {test}: {why}");
            None
        }
    }
}

/// Two of them, each a context of its own; they are one and the same where there is no second.
pub(crate) fn devices(test: &str) -> Option<[Device; 2]> {
    let found = found(test)?;
    let open = |found: &Found| found.open().expect("a device that was found opens");
    let devices = [open(&found[0]), open(found.get(1).unwrap_or(&found[0]))];
    let names = devices.each_ref().map(|device| &device.info().name);
    println!("{test} runs on {names:?}");
    Some(devices)
}
