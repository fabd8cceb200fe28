//! What the tests of this crate share: the fake driver, and two devices of it or of the system's.
#![allow(dead_code, reason = "each test program uses a part of it")]

use isometry_channel_cuda::{Device, Found, find, find_in};
use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where this says `system`, tests that can use the system's driver do, and the others are skipped.
const CHOICE: &str = "ISOMETRY_CUDA_TESTS";

fn is_real() -> bool {
    std::env::var_os(CHOICE).is_some_and(|choice| choice == "system")
}

/// A fake driver of its own for each value, since each is a file that the loader has not seen.
pub(crate) struct Fake {
    path: PathBuf,
    library: Library,
    _dir: TempDir,
}

impl Fake {
    /// The fake driver, unless tests run on the system's: then the test is skipped.
    pub(crate) fn load(test: &str) -> Option<Self> {
        if is_real() {
            println!(
                "skipped: {test}: it needs the fake driver, and {CHOICE} asks for the system's"
            );
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libcuda.so.1");
        std::fs::copy(built(), &path).expect("the fake driver's copy");
        // SAFETY: it is the fake driver, which sets nothing up.
        let library = unsafe { Library::new(&path) }.expect("the fake driver loads");
        Some(Fake { path, library, _dir: dir })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn devices(&self) -> [Device; 2] {
        let found = find_in(&self.path).expect("two emulated devices");
        [found[0].open().unwrap(), found[1].open().unwrap()]
    }

    /// Has the next call of this name answer `code`.
    pub(crate) fn refuse(&self, call: &str, code: u32) {
        let name = CString::new(call).unwrap();
        // SAFETY: the fake driver has it, with this type.
        unsafe {
            let refuse = self.library.get::<extern "C" fn(*const c_char, u32)>("fake_refuse");
            refuse.unwrap()(name.as_ptr(), code);
        }
    }

    /// Has the next copy of a device fail: alone, or as a fault that stays.
    pub(crate) fn fail(&self, device: c_int, code: u32, is_fault: bool) {
        // SAFETY: as for `refuse`.
        unsafe {
            let fail = self.library.get::<extern "C" fn(c_int, u32, bool)>("fake_fail");
            fail.unwrap()(device, code, is_fault);
        }
    }

    /// Has a device's streams stand still, or go on.
    pub(crate) fn hold(&self, device: c_int, held: bool) {
        // SAFETY: as for `refuse`.
        unsafe {
            let hold = self.library.get::<extern "C" fn(c_int, bool)>("fake_hold");
            hold.unwrap()(device, held);
        }
    }

    /// Chooses how late streams are.
    pub(crate) fn seed(&self, seed: u64) {
        // SAFETY: as for `refuse`.
        unsafe { self.library.get::<extern "C" fn(u64)>("fake_seed").unwrap()(seed) };
    }

    /// How often a call was made.
    pub(crate) fn count(&self, call: &str) -> u64 {
        let name = CString::new(call).unwrap();
        // SAFETY: as for `refuse`.
        unsafe {
            let count = self.library.get::<extern "C" fn(*const c_char) -> u64>("fake_count");
            count.unwrap()(name.as_ptr())
        }
    }

    /// How many of the driver's objects there are.
    pub(crate) fn live(&self) -> u64 {
        // SAFETY: as for `refuse`.
        unsafe { self.library.get::<extern "C" fn() -> u64>("fake_live").unwrap()() }
    }
}

/// Where cargo puts the fake driver when it builds all tests of the crate.
fn built() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let path = this.parent().and_then(Path::parent).unwrap().join("examples/libfake_cuda.so");
    assert!(
        path.exists(),
        "cargo build -p isometry-channel-cuda --example fake_cuda makes {path:?}"
    );
    path
}

/// Two devices, and the driver that they are of unless it is the system's. There they are one and the
/// same where there is no second, and without any the test is skipped.
pub(crate) fn devices(test: &str, seed: u64) -> Option<(Option<Fake>, [Device; 2])> {
    if !is_real() {
        let fake = Fake::load(test)?;
        fake.seed(seed);
        let devices = fake.devices();
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
