//! What the tests of this crate share: the fake driver, and two devices of it or of the system's.
#![allow(dead_code, reason = "each test program uses a part of it")]

use fake_cuda::Fake;
use isometry_channel_cuda::{Device, Found, find, find_in};

/// The fake driver, unless tests run on the system's: then the test is skipped.
pub(crate) fn fake(test: &str) -> Option<Fake> {
    let fake = Fake::load();
    if fake.is_none() {
        println!("skipped: {test}: it needs the fake driver, and the system's is asked for");
    }
    fake
}

/// Both devices of a fake driver.
pub(crate) fn emulated(fake: &Fake) -> [Device; 2] {
    let found = find_in(fake.path()).expect("two emulated devices");
    [found[0].open().unwrap(), found[1].open().unwrap()]
}

/// Two devices, and the driver that they are of unless it is the system's. There they are one and the
/// same where there is no second, and without any the test is skipped.
pub(crate) fn devices(test: &str, seed: u64) -> Option<(Option<Fake>, [Device; 2])> {
    if let Some(fake) = Fake::load() {
        fake.seed(seed);
        let devices = emulated(&fake);
        return Some((Some(fake), devices));
    }
    match find() {
        Ok(found) => {
            let open = |found: &Found| found.open().expect("a device that was found opens");
            let devices = [open(&found[0]), open(found.get(1).unwrap_or(&found[0]))];
            let names = devices.each_ref().map(|device| &device.info().name);
            println!("{test} runs on {names:?}");
            Some((None, devices))
        }
        Err(why) => {
            println!("skipped: {test}: {why}");
            None
        }
    }
}
