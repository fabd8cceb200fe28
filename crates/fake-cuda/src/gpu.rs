//! A device of the fake driver: its memory, and streams that are threads.
//!
//! Copies run as late as the seed likes, one after the other in each stream, and look at memory only
//! then. What has been freed by then is a fault, as on a device.

use crate::FIRST_ADDRESS;
use crate::control::calls;
use crate::memory::Block;
use crate::modules::Launch;
use channel::accelerator::ELEMENT_BYTES;
use cudarc::driver::sys::{CUresult, CUstream};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A result as a number: tests also inject ones that no header has.
pub(crate) type Code = u32;

/// What a device has.
pub(crate) const MEMORY_BYTES: usize = 64 << 20;

/// The longest pitch, far below a device's, so that tests exceed it.
pub(crate) const MAX_PITCH_BYTES: usize = 65_536;

/// How many commands a stream takes before it carries one out: the driver has whoever asks for more wait, and
/// this one whoever records an event.
const MOST_QUEUED: usize = 1024;

/// One end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Host(usize),
    Device(u64),
}

/// Rows and slices of bytes; pitches are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy3 {
    pub(crate) src: End,
    pub(crate) dst: End,
    pub(crate) size: [usize; 3],
    pub(crate) src_pitch: [usize; 2],
    pub(crate) dst_pitch: [usize; 2],
}

/// Called with the stream, a result and this.
pub(crate) type Call = unsafe extern "C" fn(CUstream, Code, *mut c_void);

/// What a stream does.
pub(crate) enum Command {
    Copy(Copy3),
    /// To another device's memory.
    Send(Copy3, &'static Gpu),
    Launch(Box<Launch>),
    Fill(u64, u8, usize),
    Event(u64),
    /// Until an event was over so many times.
    Wait(u64, u64),
    Call(Call, usize),
}

#[derive(Default)]
pub(crate) struct Stream {
    commands: VecDeque<Command>,
    /// Whether one of them is being carried out.
    busy: bool,
    closed: bool,
    /// Whether it stands still.
    pub(crate) held: bool,
    /// Whether what it is asked is recorded in place of carried out; nothing records here.
    pub(crate) captured: bool,
    /// What copies since the last event failed with.
    error: Code,
}

/// How often an event was recorded and was over, and what came before it failed with.
#[derive(Default)]
pub(crate) struct Event {
    recorded: u64,
    over: u64,
    error: Code,
    /// Whether nobody has it any more, but streams.
    destroyed: bool,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    /// What was loaded, as it was handed over.
    pub(crate) modules: BTreeMap<u64, String>,
    pub(crate) contexts: usize,
    /// Whether streams stand still.
    pub(crate) held: bool,
    /// What every call answers, once a fault has come.
    pub(crate) fault: Code,
    /// What the next copy fails with, and whether that is a fault.
    pub(crate) failure: Option<(Code, bool)>,
    pub(crate) seed: u64,
    /// Whether what is allocated lies where it is in the host's memory.
    pub(crate) is_host_memory: bool,
    /// The most bytes that an address is told to be among, as where pages are mapped one by one.
    pub(crate) most_mapped: usize,
    names: u64,
}

pub(crate) struct Gpu {
    state: Mutex<State>,
    changed: Condvar,
    /// The other devices to whose memory access is enabled, one bit for each.
    pub(crate) reached: AtomicU32,
}

/// The handles of the default streams, that of all threads and that of each, which here is one too.
pub(crate) const DEFAULT_STREAMS: [u64; 2] = [1, 2];

/// Objects of each have different names, behind those of the default streams.
pub(crate) static GPUS: [Gpu; 3] = [Gpu::new(2), Gpu::new(1 << 16), Gpu::new(2 << 16)];

/// How many of them there are for who asks.
pub(crate) static COUNT: AtomicUsize = AtomicUsize::new(2);

impl Gpu {
    const fn new(names: u64) -> Self {
        let state = State {
            blocks: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            contexts: 0,
            held: false,
            fault: 0,
            failure: None,
            seed: 0,
            is_host_memory: false,
            most_mapped: usize::MAX,
            names,
        };
        let reached = AtomicU32::new(0);
        Gpu { state: Mutex::new(state), changed: Condvar::new(), reached }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever sleeps that the state is another.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    /// A stream, whose thread ends when it is closed and empty.
    pub(crate) fn open_stream(&'static self) -> u64 {
        let mut state = self.state();
        let name = state.name();
        self.start(&mut state, name);
        name
    }

    fn start(&'static self, state: &mut State, name: u64) {
        state.streams.insert(name, Stream::default());
        thread::spawn(move || self.run(name));
    }

    /// The stream that a handle means; a default one is there from its first use on.
    pub(crate) fn stream(&'static self, handle: CUstream) -> u64 {
        let name = (handle as u64).max(DEFAULT_STREAMS[0]);
        let mut state = self.state();
        if DEFAULT_STREAMS.contains(&name) && !state.streams.contains_key(&name) {
            self.start(&mut state, name);
        }
        name
    }

    /// Carries out what a stream is asked to, in its order.
    fn run(&self, name: u64) {
        let mut state = self.state();
        loop {
            let stream = state.streams.get_mut(&name).expect("a stream ends here only");
            let ended = stream.closed && stream.commands.is_empty();
            if ended {
                state.streams.remove(&name);
                self.tell();
                return;
            }
            if state.is_still(name) {
                state = self.wait(state);
                continue;
            }
            let stream = state.streams.get_mut(&name).expect("as above");
            let command = stream.commands.pop_front().expect("it has one");
            stream.busy = true;
            let is_late = state.draw(4) == 0;
            drop(state);
            if is_late {
                thread::yield_now();
            }
            self.carry_out(name, command);
            state = self.state();
            state.streams.get_mut(&name).expect("as above").busy = false;
            self.tell();
        }
    }

    fn carry_out(&self, name: u64, command: Command) {
        let mut state = self.state();
        match command {
            Command::Copy(copy) => state.copy(name, &copy),
            Command::Send(copy, peer) => {
                drop(state);
                self.send(name, &copy, peer);
            }
            Command::Launch(launch) => state.launch(name, &launch),
            Command::Fill(at, byte, bytes) => match state.bytes(at, bytes) {
                Some(place) => place.fill(byte),
                None => state.fault = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Code,
            },
            Command::Event(event) => {
                let error = state.streams.get_mut(&name).map(|s| std::mem::take(&mut s.error));
                state.end_event(event, error.unwrap_or(0));
            }
            Command::Wait(..) => {}
            Command::Call(call, data) => {
                let fault = state.fault;
                drop(state);
                // SAFETY: who added it promised that it may be called once with this.
                unsafe { call(name as CUstream, fault, data as *mut c_void) };
            }
        }
    }

    /// Copies to a peer's memory, unless that fails; one state is locked at a time. What is not there any more
    /// is a fault of this device.
    fn send(&self, stream: u64, copy: &Copy3, peer: &Gpu) {
        if self.state().fails(stream) {
            return;
        }
        let is_there = copy.rows().all(|(src, dst)| {
            let row = self.state().read(src, copy.size[0]);
            row.is_some_and(|row| peer.state().write(dst, &row))
        });
        if !is_there {
            self.state().fault = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Code;
        }
    }

    /// Blocks until `over` holds, or a fault has come, which it returns.
    pub(crate) fn wait_until(&self, mut over: impl FnMut(&State) -> bool) -> Result<(), Code> {
        let mut state = self.state();
        while state.fault == 0 && !over(&state) {
            state = self.wait(state);
        }
        if state.fault == 0 { Ok(()) } else { Err(state.fault) }
    }
}

impl State {
    /// A number for an object.
    pub(crate) fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// An address for memory of device `number`, far from others, so that nothing that goes too far finds
    /// another's.
    pub(crate) fn far_away(&mut self, number: usize) -> u64 {
        FIRST_ADDRESS + ((number as u64) << 56) + (self.name() << 32)
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % below
    }

    /// Adds `command` to a stream; false where there is no such stream.
    pub(crate) fn ask(&mut self, stream: u64, command: Command) -> bool {
        let open = self.streams.get_mut(&stream).filter(|stream| !stream.closed);
        let Some(stream) = open else { return false };
        if let Command::Event(event) = &command {
            self.events.entry(*event).or_default().recorded += 1;
        }
        stream.commands.push_back(command);
        true
    }

    /// Whether a stream has nothing that it may carry out now.
    fn is_still(&self, name: u64) -> bool {
        let stream = &self.streams[&name];
        match stream.commands.front() {
            _ if self.held || stream.held => true,
            None => true,
            Some(Command::Wait(event, times)) if self.fault == 0 => {
                self.events.get(event).is_some_and(|event| event.over < *times)
            }
            Some(_) => false,
        }
    }

    /// Has a stream wait for what an event was last recorded behind; false where there is none of either.
    pub(crate) fn wait_in(&mut self, stream: u64, event: u64) -> bool {
        let Some(times) = self.events.get(&event).map(|event| event.recorded) else { return false };
        self.ask(stream, Command::Wait(event, times))
    }

    /// An event is over once more, and what came before it has failed with `error`, if any.
    fn end_event(&mut self, name: u64, error: Code) {
        let Some(event) = self.events.get_mut(&name) else { return };
        event.over += 1;
        event.error = error;
        self.forget_event(name);
    }

    /// Has an event go once it is over; false where there is none.
    pub(crate) fn destroy_event(&mut self, name: u64) -> bool {
        let Some(event) = self.events.get_mut(&name) else { return false };
        event.destroyed = true;
        self.forget_event(name);
        true
    }

    fn forget_event(&mut self, name: u64) {
        if self.events.get(&name).is_some_and(|e| e.destroyed && e.over == e.recorded) {
            self.events.remove(&name);
        }
    }

    /// The bytes that one at `at` is told to be among.
    pub(crate) fn mapped(&self, at: u64) -> Option<(u64, usize)> {
        let (start, block) = self.blocks.range(..=at).next_back()?;
        let part = (at - start) / self.most_mapped as u64;
        let from = part as usize * self.most_mapped;
        let bytes = block.len().checked_sub(from)?.min(self.most_mapped);
        let start = start + from as u64;
        (at < start + bytes as u64).then_some((start, bytes))
    }

    /// Whether a stream has nothing left to do.
    pub(crate) fn is_idle(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_none_or(|s| s.commands.is_empty() && !s.busy)
    }

    /// Whether a stream has as much to do as it takes.
    pub(crate) fn is_full(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|stream| stream.commands.len() >= MOST_QUEUED)
    }

    /// Has a stream end when it is empty; false where there is none.
    pub(crate) fn close_stream(&mut self, stream: u64) -> bool {
        self.streams.get_mut(&stream).map(|stream| stream.closed = true).is_some()
    }

    pub(crate) fn has_closed_streams(&self) -> bool {
        self.streams.values().any(|stream| stream.closed)
    }

    /// What copies before an event failed with, once it is over.
    pub(crate) fn event_error(&self, event: u64) -> Option<Code> {
        let event = self.events.get(&event)?;
        (event.over == event.recorded).then_some(event.error)
    }

    /// The bytes from `at` on, where they are all of one allocation.
    fn bytes(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        self.rest(at)?.get_mut(..bytes)
    }

    /// Whether the bytes from `at` on are all of one allocation.
    pub(crate) fn has(&self, at: u64, bytes: usize) -> bool {
        let before = self.blocks.range(..=at).next_back();
        before.is_some_and(|(start, block)| {
            let from = (at - start) as usize;
            from.checked_add(bytes).is_some_and(|to| to <= block.len())
        })
    }

    /// Whether the device has a fault, or what comes next is to fail, and then does.
    fn fails(&mut self, stream: u64) -> bool {
        if self.fault != 0 {
            return true;
        }
        let Some((code, is_fault)) = self.failure.take() else { return false };
        let place = match self.streams.get_mut(&stream).filter(|_| !is_fault) {
            Some(stream) => &mut stream.error,
            None => &mut self.fault,
        };
        *place = code;
        true
    }

    /// Runs a kernel, unless it fails; one that reaches outside of its memory is a fault, and so is one that
    /// counts from where its widest elements don't start.
    fn launch(&mut self, stream: u64, launch: &Launch) {
        if self.fails(stream) {
            return;
        }
        // Held until it is over: nobody gives memory of the host back meanwhile.
        let calls = calls();
        let mut place = |at| {
            let own = self.rest(at).map(|rest| (rest.as_mut_ptr(), rest.len()));
            own.or_else(|| calls.pinned_at(at))
        };
        let starts_well = |at: u64| at.is_multiple_of(ELEMENT_BYTES);
        let are_aligned = starts_well(launch.src) && starts_well(launch.dst);
        let ran = match (place(launch.src), place(launch.dst)) {
            // SAFETY: they are there as long as state and calls are locked, and who has launched it sees to
            // it that nobody else uses what it touches.
            (Some((src, len)), Some(dst)) if are_aligned => unsafe {
                launch.run((src.cast_const(), len), dst)
            },
            _ => false,
        };
        drop(calls);
        if !ran {
            self.fault = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Code;
        }
    }

    /// An allocation's bytes from `at` on.
    fn rest(&mut self, at: u64) -> Option<&mut [u8]> {
        let (start, block) = self.blocks.range_mut(..=at).next_back()?;
        block.bytes_mut().get_mut(usize::try_from(at - start).ok()?..)
    }

    /// Copies, unless that fails.
    fn copy(&mut self, stream: u64, copy: &Copy3) {
        if self.fails(stream) {
            return;
        }
        let is_there = copy.rows().all(|(src, dst)| {
            let row = self.read(src, copy.size[0]);
            row.is_some_and(|row| self.write(dst, &row))
        });
        if !is_there {
            self.fault = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Code;
        }
    }

    /// What lies at one end; `None` where memory of the device is not there any more.
    fn read(&mut self, src: End, bytes: usize) -> Option<Vec<u8>> {
        match src {
            End::Device(at) => self.bytes(at, bytes).map(|place| place.to_vec()),
            End::Host(at) => {
                // SAFETY: who asked keeps the memory of the host until this is over.
                let place = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
                Some(place.to_vec())
            }
        }
    }

    /// Puts `row` at the other; false where memory of the device is not there any more.
    fn write(&mut self, dst: End, row: &[u8]) -> bool {
        match dst {
            End::Device(at) => {
                self.bytes(at, row.len()).map(|place| place.copy_from_slice(row)).is_some()
            }
            End::Host(at) => {
                // SAFETY: as in `read`.
                unsafe { (at as *mut u8).copy_from(row.as_ptr(), row.len()) };
                true
            }
        }
    }
}

impl Copy3 {
    /// Where each row starts on either side.
    fn rows(&self) -> impl Iterator<Item = (End, End)> {
        let [_, rows, slices] = self.size;
        let places = (0..slices).flat_map(move |z| (0..rows).map(move |y| (y, z)));
        places.map(|(y, z)| {
            let way = |[row, slice]: [usize; 2]| y * row + z * slice;
            (self.src.by(way(self.src_pitch)), self.dst.by(way(self.dst_pitch)))
        })
    }
}

impl End {
    fn by(self, bytes: usize) -> End {
        match self {
            End::Host(at) => End::Host(at + bytes),
            End::Device(at) => End::Device(at + bytes as u64),
        }
    }
}
