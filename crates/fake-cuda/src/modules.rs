//! Calls for kernels, and what runs in their place.
//!
//! What is launched is the text that PTX was lowered from, compiled for the host by the system's C compiler
//! when a module is first loaded. A group's work items run one after the other there, so that what they do
//! to each other is not seen; PTX itself is only looked at for the names of its kernels.

use crate::gpu::{Code, Command};
use crate::{INVALID_VALUE, call_in, give};
use channel::accelerator::{GROUP_ITEMS, KERNELS, Parameters};
use cudarc::driver::sys::{CUfunction, CUmodule, CUresult, CUstream};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command as Process;
use std::sync::OnceLock;

const HEAD: &str = include_str!("host.h");
const TAIL: &str = include_str!("host.c");

type Find = unsafe extern "C" fn(*const c_char) -> c_int;
type Run =
    unsafe extern "C" fn(c_int, *const u8, i64, *mut u8, i64, *const Parameters, c_uint) -> c_int;

/// The kernels, compiled for the host.
struct Host {
    find: Find,
    run: Run,
}

/// They, or `None` where there is no C compiler.
fn host() -> Option<&'static Host> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    HOST.get_or_init(|| {
        let dir = tempfile::tempdir().ok()?;
        let (text, built) = (dir.path().join("kernels.c"), dir.path().join("kernels.so"));
        std::fs::write(&text, [HEAD, KERNELS, TAIL].concat()).ok()?;
        compile(&text, &built)?;
        // SAFETY: it is what was compiled just now, which sets nothing up; it is never unloaded.
        unsafe {
            let library = Library::new(&built).ok()?;
            let (find, run) = (*library.get("host_find").ok()?, *library.get("host_run").ok()?);
            std::mem::forget(library);
            Some(Host { find, run })
        }
    })
    .as_ref()
}

fn compile(text: &Path, built: &Path) -> Option<()> {
    let mut compiler = Process::new("cc");
    compiler.args(["-O2", "-fno-strict-aliasing", "-fPIC", "-shared", "-o"]);
    compiler.args([built, text]).status().ok()?.success().then_some(())
}

/// One launch of a kernel.
pub(crate) struct Launch {
    kernel: c_int,
    groups: c_uint,
    /// Where the memory of either side starts.
    pub(crate) src: u64,
    pub(crate) dst: u64,
    parameters: Parameters,
}

impl Launch {
    /// Runs it between memories of so many bytes; false where it would reach outside of them.
    ///
    /// # Safety
    /// Both are there for as many bytes, and nobody else uses them meanwhile.
    pub(crate) unsafe fn run(&self, src: (*const u8, usize), dst: (*mut u8, usize)) -> bool {
        let Some(host) = host() else { return false };
        let [src_bytes, dst_bytes] = [src.1 as i64, dst.1 as i64];
        let (kernel, parameters, groups) = (self.kernel, &self.parameters, self.groups);
        // SAFETY: the caller's promise, and it looks first whether it stays inside.
        let ran =
            unsafe { (host.run)(kernel, src.0, src_bytes, dst.0, dst_bytes, parameters, groups) };
        ran != 0
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> Code {
    call_in("cuModuleLoadData", |gpu, _| {
        // SAFETY: callers hand over texts that end with a zero.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
        if !text.contains("\n.version ") || !text.contains("\n.target sm_") {
            return Err(CUresult::CUDA_ERROR_INVALID_PTX as Code);
        }
        host().ok_or(CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND as Code)?;
        let mut state = gpu.state();
        let name = state.name();
        state.modules.insert(name, text);
        give(module, name as CUmodule)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: CUmodule) -> Code {
    call_in("cuModuleUnload", |gpu, _| {
        gpu.state().modules.remove(&(module as u64)).map(drop).ok_or(INVALID_VALUE)
    })
}

/// A function is the number of its kernel, and one.
#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Code {
    call_in("cuModuleGetFunction", |gpu, _| {
        let state = gpu.state();
        let text = state.modules.get(&(module as u64)).ok_or(INVALID_VALUE)?;
        // SAFETY: callers hand over texts that end with a zero.
        let entry = format!(".entry {}(", unsafe { CStr::from_ptr(name) }.to_string_lossy());
        // SAFETY: as above.
        let number = host().map_or(-1, |host| unsafe { (host.find)(name) });
        if number < 0 || !text.contains(&entry) {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND as Code);
        }
        give(function, (number as usize + 1) as CUfunction)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: CUfunction,
    groups: c_uint,
    groups_y: c_uint,
    groups_z: c_uint,
    items: c_uint,
    items_y: c_uint,
    items_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    call_in("cuLaunchKernel", |gpu, _| {
        let flat = [groups_y, groups_z, items_y, items_z] == [1; 4];
        let whole = groups > 0 && items as usize == GROUP_ITEMS && shared_bytes == 0;
        if !flat || !whole || !extra.is_null() || arguments.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: callers hand over the places of all that the kernels take, in their order.
        let (src, dst, parameters) = unsafe {
            let place = |n: usize| *arguments.add(n);
            (*place(0).cast::<u64>(), *place(1).cast::<u64>(), *place(2).cast::<Parameters>())
        };
        let kernel = (function as usize as c_int) - 1;
        let launch = Launch { kernel, groups, src, dst, parameters };
        let asked = gpu.state().ask(stream as u64, Command::Launch(Box::new(launch)));
        gpu.tell();
        if asked { Ok(()) } else { Err(INVALID_VALUE) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::accelerator::Launches;
    use channel::conformance::nested;

    /// What a square of bytes becomes, turned, where both sides have so many bytes.
    fn turned(src_bytes: usize, dst_bytes: usize) -> (bool, Vec<u8>) {
        let square = nested(1, &[(100, 100, 1), (100, 1, 100)]);
        let launches: Vec<_> = Launches::new([square].into(), (0, 0)).collect();
        let [launch] = &launches[..] else { panic!("one launch: {launches:?}") };
        let name = std::ffi::CString::new(launch.kernel.name()).unwrap();
        // SAFETY: a text that ends with a zero.
        let kernel = unsafe { (host().unwrap().find)(name.as_ptr()) };
        let (groups, parameters) = (launch.groups() as c_uint, launch.parameters());
        let launch = Launch { kernel, groups, src: 0, dst: 0, parameters };
        let src: Vec<u8> = (0..src_bytes).map(|at| (at / 100 + at % 7) as u8).collect();
        let mut dst = vec![0xa5; dst_bytes];
        let (from, to) = ((src.as_ptr(), src.len()), (dst.as_mut_ptr(), dst.len()));
        // SAFETY: they are as long, and this test's.
        (unsafe { launch.run(from, to) }, dst)
    }

    #[test]
    fn a_launch_stays_inside_its_memory_or_does_nothing() {
        let (ran, dst) = turned(10_000, 10_000);
        let expected: Vec<u8> = (0..10_000)
            .map(|at| at % 100 * 100 + at / 100)
            .map(|at| (at / 100 + at % 7) as u8)
            .collect();
        assert!(ran && dst == expected);
        for (src_bytes, dst_bytes) in [(9_999, 10_000), (10_000, 9_999)] {
            assert_eq!(turned(src_bytes, dst_bytes), (false, vec![0xa5; dst_bytes]));
        }
    }
}
