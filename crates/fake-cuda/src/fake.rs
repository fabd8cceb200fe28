//! The fake driver as tests see it: where it lies, and what it is told.

use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where this says `system`, tests run on the system's driver.
const CHOICE: &str = "ISOMETRY_CUDA_TESTS";

/// A fake driver of its own for each value, since each is a file that the loader has not seen.
pub struct Fake {
    path: PathBuf,
    library: Library,
    _dir: TempDir,
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Fake {
    /// The fake driver; `None` where tests are asked to run on the system's.
    ///
    /// # Panics
    /// Where it can't be copied or loaded.
    #[must_use]
    pub fn load() -> Option<Self> {
        if std::env::var_os(CHOICE).is_some_and(|choice| choice == "system") {
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("libcuda.so.1");
        std::fs::copy(built(), &path).expect("the fake driver's copy");
        // SAFETY: it is the fake driver, which sets nothing up.
        let library = unsafe { Library::new(&path) }.expect("the fake driver loads");
        Some(Fake { path, library, _dir: dir })
    }

    /// Its library.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the next call of this name answer `code`.
    pub fn refuse(&self, call: &str, code: u32) {
        // SAFETY: the fake driver has it, with this type.
        let refuse: Symbol<'_, extern "C" fn(*const c_char, u32)> =
            unsafe { self.symbol(c"fake_refuse") };
        refuse(text(call).as_ptr(), code);
    }

    /// Has the next copy or launch of a device fail: alone, or as a fault that stays.
    pub fn fail(&self, device: c_int, code: u32, is_fault: bool) {
        // SAFETY: as for `refuse`.
        let fail: Symbol<'_, extern "C" fn(c_int, u32, bool)> =
            unsafe { self.symbol(c"fake_fail") };
        fail(device, code, is_fault);
    }

    /// Has a device's streams stand still, or go on.
    pub fn hold(&self, device: c_int, held: bool) {
        // SAFETY: as for `refuse`.
        let hold: Symbol<'_, extern "C" fn(c_int, bool)> = unsafe { self.symbol(c"fake_hold") };
        hold(device, held);
    }

    /// Has calls of this name wait, or go on.
    pub fn hold_call(&self, call: &str, held: bool) {
        // SAFETY: as for `refuse`.
        let hold: Symbol<'_, extern "C" fn(*const c_char, bool)> =
            unsafe { self.symbol(c"fake_hold_call") };
        hold(text(call).as_ptr(), held);
    }

    /// Has one stream of a device stand still, or go on.
    pub fn hold_stream(&self, device: c_int, stream: u64, held: bool) {
        // SAFETY: as for `refuse`.
        let hold: Symbol<'_, extern "C" fn(c_int, u64, bool)> =
            unsafe { self.symbol(c"fake_hold_stream") };
        hold(device, stream, held);
    }

    /// Has a stream of a device say that it is being captured, or not.
    pub fn capture(&self, device: c_int, stream: u64, captured: bool) {
        // SAFETY: as for `refuse`.
        let capture: Symbol<'_, extern "C" fn(c_int, u64, bool)> =
            unsafe { self.symbol(c"fake_capture") };
        capture(device, stream, captured);
    }

    /// Has addresses told to be among at most so many bytes, as where pages are mapped one by one.
    pub fn map(&self, most_bytes: usize) {
        // SAFETY: as for `refuse`.
        let map: Symbol<'_, extern "C" fn(usize)> = unsafe { self.symbol(c"fake_map") };
        map(most_bytes);
    }

    /// Has there be a third device, which the first reaches by a slower link than the second does.
    pub fn add_third(&self) {
        // SAFETY: as for `refuse`.
        let add: Symbol<'_, extern "C" fn()> = unsafe { self.symbol(c"fake_add_third") };
        add();
    }

    /// Chooses how late streams are.
    pub fn seed(&self, seed: u64) {
        // SAFETY: as for `refuse`.
        let choose: Symbol<'_, extern "C" fn(u64)> = unsafe { self.symbol(c"fake_seed") };
        choose(seed);
    }

    /// Has what devices allocate from now on lie where it is in the host's memory, as a network reaches
    /// that of devices that it knows.
    pub fn at_host_addresses(&self) {
        // SAFETY: as for `refuse`.
        let place: Symbol<'_, extern "C" fn()> = unsafe { self.symbol(c"fake_at_host_addresses") };
        place();
    }

    /// How often a call was made.
    #[must_use]
    pub fn count(&self, call: &str) -> u64 {
        // SAFETY: as for `refuse`.
        let count: Symbol<'_, extern "C" fn(*const c_char) -> u64> =
            unsafe { self.symbol(c"fake_count") };
        count(text(call).as_ptr())
    }

    /// How many of the driver's objects there are.
    #[must_use]
    pub fn live(&self) -> u64 {
        // SAFETY: as for `refuse`.
        let live: Symbol<'_, extern "C" fn() -> u64> = unsafe { self.symbol(c"fake_live") };
        live()
    }

    /// # Safety
    /// The fake driver has a function of this name, and of type `T`.
    pub(crate) unsafe fn symbol<T>(&self, name: &CStr) -> Symbol<'_, T> {
        // SAFETY: the caller's promise.
        unsafe { self.library.get(name) }.expect("the fake driver has it")
    }
}

fn text(call: &str) -> CString {
    CString::new(call).expect("names of calls")
}

/// Where cargo puts the fake driver of tests that depend on this crate: beside them.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("a test knows its program");
    this.with_file_name("libfake_cuda.so")
}
