//! What tests tell the fake driver, and ask it.

use crate::gpu::{COUNT, Code, DEFAULT_STREAMS, GPUS, Gpu, Stream};
use cudarc::driver::sys::CUstream;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_int};
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is told of calls, by their names.
#[derive(Default)]
pub(crate) struct Calls {
    /// How often each was made.
    counts: BTreeMap<&'static str, u64>,
    /// Which are to be refused, once.
    refused: BTreeMap<String, Code>,
    /// Which take until they are let go on.
    held: BTreeSet<String>,
    /// Memory of the host that was allocated, and how much of it.
    pub(crate) pinned: BTreeMap<usize, usize>,
    /// Where memory starts that was registered.
    pub(crate) registered: BTreeSet<usize>,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls {
    counts: BTreeMap::new(),
    refused: BTreeMap::new(),
    held: BTreeSet::new(),
    pinned: BTreeMap::new(),
    registered: BTreeSet::new(),
});

/// Told when calls may go on.
static RELEASED: Condvar = Condvar::new();

pub(crate) fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call, and waits while it is held; fails where it is to be refused.
pub(crate) fn enter(name: &'static str) -> Result<(), Code> {
    let mut calls = calls();
    *calls.counts.entry(name).or_default() += 1;
    let refused = calls.refused.remove(name);
    // A panic elsewhere leaves nothing half changed.
    drop(RELEASED.wait_while(calls, |calls| calls.held.contains(name)));
    refused.map_or(Ok(()), Err)
}

impl Calls {
    /// What of the host's memory is pinned from address `at` on, and how many bytes: what every device reaches
    /// there.
    pub(crate) fn pinned_at(&self, at: u64) -> Option<(*mut u8, usize)> {
        let (&start, &bytes) = self.pinned.range(..=at as usize).next_back()?;
        let left = bytes.checked_sub(at as usize - start)?;
        Some((with_exposed_provenance_mut(at as usize), left))
    }
}

fn text<'a>(name: *const c_char) -> &'a str {
    // SAFETY: tests hand over texts that live as long as the call.
    unsafe { CStr::from_ptr(name) }.to_str().expect("names of calls")
}

/// Has the next call of this name answer `code`, and do nothing.
#[unsafe(no_mangle)]
extern "C" fn fake_refuse(name: *const c_char, code: Code) {
    calls().refused.insert(text(name).to_owned(), code);
}

/// Has calls of this name wait, or go on.
#[unsafe(no_mangle)]
extern "C" fn fake_hold_call(name: *const c_char, held: bool) {
    let mut calls = calls();
    match held {
        true => calls.held.insert(text(name).to_owned()),
        false => calls.held.remove(text(name)),
    };
    RELEASED.notify_all();
}

/// Has the next copy or launch of a device fail: alone, or as a fault that every later call answers.
#[unsafe(no_mangle)]
extern "C" fn fake_fail(device: c_int, code: Code, is_fault: bool) {
    GPUS[device as usize].state().failure = Some((code, is_fault));
}

/// Has the streams of a device stand still, or go on.
#[unsafe(no_mangle)]
extern "C" fn fake_hold(device: c_int, held: bool) {
    GPUS[device as usize].state().held = held;
    GPUS[device as usize].tell();
}

/// Changes a stream, if it is there.
fn change(device: c_int, stream: u64, change: impl FnOnce(&mut Stream)) {
    let gpu = &GPUS[device as usize];
    let name = gpu.stream(stream as CUstream);
    gpu.state().streams.get_mut(&name).map(change);
    gpu.tell();
}

/// Has one stream of a device stand still, or go on.
#[unsafe(no_mangle)]
extern "C" fn fake_hold_stream(device: c_int, stream: u64, held: bool) {
    change(device, stream, |stream| stream.held = held);
}

/// Has a stream of a device say that it is being captured, or not.
#[unsafe(no_mangle)]
extern "C" fn fake_capture(device: c_int, stream: u64, captured: bool) {
    change(device, stream, |stream| stream.captured = captured);
}

/// Has addresses told to be among at most so many bytes.
#[unsafe(no_mangle)]
extern "C" fn fake_map(most_bytes: usize) {
    GPUS.iter().for_each(|gpu| gpu.state().most_mapped = most_bytes);
}

/// Has there be a third device.
#[unsafe(no_mangle)]
extern "C" fn fake_add_third() {
    COUNT.store(GPUS.len(), Ordering::Relaxed);
}

/// Chooses how late streams are.
#[unsafe(no_mangle)]
extern "C" fn fake_seed(seed: u64) {
    GPUS.iter().for_each(|gpu| gpu.state().seed = seed);
}

/// Has what devices allocate from now on lie where it is in the host's memory.
#[unsafe(no_mangle)]
extern "C" fn fake_at_host_addresses() {
    GPUS.iter().for_each(|gpu| gpu.state().is_host_memory = true);
}

/// How often a call was made.
#[unsafe(no_mangle)]
extern "C" fn fake_count(name: *const c_char) -> u64 {
    calls().counts.get(text(name)).copied().unwrap_or(0)
}

/// How many objects there are that somebody has to give back, once closed streams have ended.
#[unsafe(no_mangle)]
extern "C" fn fake_live() -> u64 {
    let of_device = |gpu: &Gpu| {
        let _ = gpu.wait_until(|state| !state.has_closed_streams());
        let state = gpu.state();
        let streams = state.streams.keys().filter(|name| !DEFAULT_STREAMS.contains(name)).count();
        let objects = [streams, state.events.len(), state.modules.len()];
        state.blocks.len() + objects.iter().sum::<usize>() + state.contexts
    };
    let of_host = |calls: &Calls| calls.pinned.len() + calls.registered.len();
    let of_host = of_host(&calls());
    (of_host + GPUS.iter().map(of_device).sum::<usize>()) as u64
}
