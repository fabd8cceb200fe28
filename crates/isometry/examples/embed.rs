//! A host program that brings its own memory and its own events, as a task runtime would.
//!
//! The runtime owns one arena and cuts arrays out of it; Isometry copies between them in place.
//! It has an event loop with one descriptor for each source of events; the machine is one of
//! them, however many copies run. A copy waits for others without any thread doing so.
//!
//! Run with `cargo run -p isometry --example embed`.

use isometry::model::{FieldSpace, IndexSpace};
use isometry::{CopyOptions, Error, Event, Foreign, Instance, Machine};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// The runtime's memory: it lives as long as any array in it is used.
struct Arena {
    bytes: Box<[u8]>,
}

impl Arena {
    fn new(len: usize) -> Arc<Self> {
        Arc::new(Arena { bytes: vec![0; len].into() })
    }

    /// The array of `space` at `offset`, with `strides`, for copies to read and write.
    fn array(self: &Arc<Self>, offset: usize, strides: Vec<i64>) -> Foreign {
        let base = NonNull::from(&self.bytes[offset]);
        // SAFETY: `main` asks for arrays that lie inside the arena and don't overlap, and looks
        // at their bytes only when no copy that touches them runs. The box is never resized.
        unsafe { Foreign::new(base, strides, true, Arc::clone(self) as _) }
    }
}

/// What the runtime does when a copy has ended.
type Continuation = Box<dyn FnOnce(&mut Runtime) -> Result<(), Error>>;

struct Runtime {
    machine: Machine,
    waiting: HashMap<u64, (Event, Continuation)>,
    next: u64,
}

impl Runtime {
    /// Runs `then` on the loop when `event` has ended.
    fn when(&mut self, event: Event, then: Continuation) {
        self.next += 1;
        self.waiting.insert(self.next, (event.clone(), then));
        event.notify(self.next);
    }

    /// The event loop: sleeps on the machine's descriptor until nothing is waited for.
    fn run(&mut self) -> Result<(), Error> {
        let mut tokens = Vec::new();
        while !self.waiting.is_empty() {
            let fd = self.machine.finished_fd();
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
            self.machine.take_finished(&mut tokens);
            for token in tokens.drain(..) {
                let Some((event, then)) = self.waiting.remove(&token) else { continue };
                event.outcome().unwrap_or(Ok(()))?;
                then(self)?;
            }
        }
        Ok(())
    }
}

const ROWS: u64 = 480;
const COLUMNS: u64 = 640;
const BYTES: usize = (ROWS * COLUMNS * 4) as usize;

fn instance(machine: &Machine, foreign: Foreign) -> Result<Instance, Error> {
    let space = IndexSpace::of(&[("row", ROWS), ("column", COLUMNS)])?;
    machine.wrap(space, FieldSpace::packed(&[4])?, foreign)
}

fn main() -> Result<(), Error> {
    let arena = Arena::new(3 * BYTES);
    let machine = Machine::builder().assume(true).open()?;
    let (row, column) =
        (i64::try_from(COLUMNS).unwrap_or(0) * 4, i64::try_from(ROWS).unwrap_or(0) * 4);
    let a = instance(&machine, arena.array(0, vec![row, 4]))?;
    let b = instance(&machine, arena.array(BYTES, vec![4, column]))?;
    let c = instance(&machine, arena.array(2 * BYTES, vec![row, 4]))?;
    a.fill(&(0..BYTES).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<_>>())?;

    let mut runtime = Runtime { machine, waiting: HashMap::new(), next: 0 };
    let turned = runtime.machine.copy(&a, &b, &CopyOptions::default())?;
    // Starts when `turned` has ended; nobody waits for it.
    let after = CopyOptions { after: vec![turned.clone()], ..CopyOptions::with_priority(1) };
    let back = runtime.machine.copy(&b, &c, &after)?;
    let same = move |_: &mut Runtime| {
        println!("turned twice: {}", if a.to_vec()? == c.to_vec()? { "the same" } else { "WRONG" });
        Ok(())
    };
    runtime.when(back, Box::new(same));
    runtime.when(
        turned,
        Box::new(|_| {
            println!("turned once");
            Ok(())
        }),
    );
    runtime.run()
}
