//! The machine: what it is made of, and everything that starts on it.

use crate::builder::MachineBuilder;
use crate::instance::{Holding, Instance};
use crate::memory::{Foreign, Placed};
use crate::nodes::Service;
use crate::runtime::{Driver, Shared};
use crate::view::View;
use crate::{ArgumentError, Array, Error};
use channel::Provider;
use channel_host::{Cores, HostProvider, Pages};
use layout::Placement;
use model::{ChannelError, FieldSpace, IndexSpace, MemoryId, MemoryKind, NodeClass, Topology};
use serde_json::Value;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Where instances start: on a line of the cache, and on what direct I/O wants.
const ALIGN_BYTES: u64 = 4096;

/// The memories of this machine, the channels between them, and what runs on them.
///
/// All methods may be called by any thread. Dropping it waits until everything that was submitted
/// has ended, as [`Machine::close`] does. Several machines in one process work beside each other.
/// In a process that forked, the child's copy only says so: [`Error::Forked`].
pub struct Machine {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Threads>,
}

/// What runs for a machine, until it is closed.
#[derive(Default)]
struct Threads {
    driver: Option<Driver>,
    /// Hears other nodes, where there are any.
    service: Option<Service>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("topology", &self.topology().name).finish_non_exhaustive()
    }
}

impl Machine {
    /// The machine as it is found. The first time, its channels are measured, which takes about a
    /// second; after that the figures come from the user's cache directory.
    ///
    /// # Errors
    /// As [`MachineBuilder::open`].
    pub fn open() -> Result<Self, Error> {
        MachineBuilder::default().open()
    }

    /// A machine with other settings than the default ones.
    #[must_use]
    pub fn builder() -> MachineBuilder {
        MachineBuilder::default()
    }

    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self, Error> {
        let refused = |e| Error::resource("starting the driver's threads", e);
        // Dropped, it ends those that were started.
        let mut machine = Machine::handle(&shared);
        let threads = machine.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        threads.service = Service::start(&shared).map_err(refused)?;
        threads.driver = Some(Driver::start(&shared).map_err(refused)?);
        Ok(machine)
    }

    /// Another handle to a machine, which owns none of its threads: dropping it closes nothing.
    pub(crate) fn handle(shared: &Arc<Shared>) -> Machine {
        Machine { shared: Arc::clone(shared), threads: Mutex::default() }
    }

    /// Memories, channels and their measured curves, as they are now: a file system joins them on
    /// its first use.
    #[must_use]
    pub fn topology(&self) -> Arc<Topology> {
        self.shared.topology()
    }

    /// A zeroed instance in the memory called `memory`: `sys`, or another host memory of
    /// [`Machine::topology`], or that of an accelerator, which has no address here. Host memory is of
    /// huge pages, if it is as much as one and the kernel has them.
    ///
    /// # Errors
    /// [`ArgumentError::NoMemory`], [`ArgumentError::NotHost`]; [`Error::Channel`] where there is
    /// not that much memory; [`Error::Closed`], [`Error::Forked`].
    pub fn empty(&self, array: Array, memory: &str) -> Result<Instance, Error> {
        self.shared.check_open()?;
        let id = self.shared.memory_named(memory)?;
        let provider = self.shared.provider(id);
        let is_here = id.node == self.shared.here();
        match self.topology().memory(id).map(|memory| memory.kind) {
            Some(MemoryKind::Sys) if is_here => {}
            _ if provider.is_some() => {}
            // Also of a device what the network reaches.
            Some(kind) if kind == MemoryKind::Reg || is_here && kind == MemoryKind::Fbm => {
                return Err(ArgumentError::BuffersOnly { name: memory.to_owned() }.into());
            }
            _ => return Err(ArgumentError::NotHost { name: memory.to_owned() }.into()),
        }
        let bytes = array.bytes()?;
        let region = match provider {
            Some(provider) => {
                // A device that is lost may say so here first.
                let told = |_: &ChannelError| self.shared.close_lost();
                provider.allocate(bytes, ALIGN_BYTES).inspect_err(told)?
            }
            None => {
                let node = numa_node(&self.shared.class(), id);
                let pages = Pages { node, huge: true, ..Pages::default() };
                HostProvider::new(id, pages).allocate(bytes, ALIGN_BYTES)?
            }
        };
        let holding = Holding::new(&self.shared, region, true);
        Ok(Instance::new(Arc::new(holding), 0, View::of_array(id, array)))
    }

    /// An instance in memory that somebody else owns, used in place.
    ///
    /// ```
    /// # use isometry::{Array, Foreign, Machine};
    /// # let machine = Machine::builder().assume(true).open()?;
    /// let array = Array::of(&[("y", 2), ("x", 3)], "|u1")?;
    /// // Rows four bytes apart: one byte of each is padding.
    /// let foreign = Foreign::of_vec(vec![1, 2, 3, 0, 4, 5, 6, 0], vec![4, 1]);
    /// let rows = machine.wrap(array.space, array.fields, foreign)?;
    /// assert_eq!((rows.strides()?, rows.payload_bytes()), (vec![4, 1], 6));
    /// # Ok::<(), isometry::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Layout`] where the number of strides differs from that of dimensions;
    /// [`ArgumentError::Outside`] where they reach outside of memory whose length is known;
    /// [`ArgumentError::NoDevice`] for an address that no device has; [`Error::Channel`] where that is lost;
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn wrap(
        &self,
        space: IndexSpace,
        fields: FieldSpace,
        foreign: Foreign,
    ) -> Result<Instance, Error> {
        self.shared.check_open()?;
        let span = Placement::of_strides(&space, &fields, &foreign.strides)?.span();
        let Placed { region, base, after } =
            self.shared.heard(foreign.placed(&self.shared, &span))?;
        let view = View::of_strides(region.memory(), (space, fields), foreign.strides);
        let mut holding = Holding::new(&self.shared, region, foreign.writable);
        holding.after = after;
        Ok(Instance::new(Arc::new(holding), base, view))
    }

    /// A descriptor that is readable while [`Machine::take_finished`] has something: one for all
    /// events of the machine, for an event loop to watch.
    #[must_use]
    pub fn finished_fd(&self) -> BorrowedFd<'_> {
        self.shared.finished.bell().as_fd()
    }

    /// Appends the tokens of the events that have ended since the last call, of those that were
    /// asked for by [`crate::Event::notify`].
    pub fn take_finished(&self, tokens: &mut Vec<u64>) {
        self.shared.finished.bell().clear();
        self.shared.finished.take(tokens);
    }

    /// What the machine did since it was opened, as Chrome's and Perfetto's trace format: a track
    /// for each channel, a counter for each staging buffer. `None` unless it was opened with
    /// [`MachineBuilder::trace`], and in the child of a fork.
    #[must_use]
    pub fn trace_json(&self) -> Option<Value> {
        self.shared.trace_json()
    }

    /// Whether it stayed in the process that forked this one: nothing moves here.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        !self.shared.is_of_this_process()
    }

    /// Takes no more copies, and waits until all that were submitted have ended. Created files
    /// that were not committed are deleted. A node leaves the others, to which it is lost from then on.
    /// Must not be called by a callback of [`Event::on_done`](crate::Event::on_done), nor when memory that was
    /// lent to a copy is given back: either may run on a thread that this waits for. Nor may the machine be
    /// dropped there.
    pub fn close(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Threads { driver, service } = std::mem::take(&mut *threads);
        drop(threads);
        if driver.is_none() && service.is_none() {
            return;
        }
        if !self.shared.is_of_this_process() {
            // The threads stayed with the parent: there is nothing to wait for here.
            std::mem::forget((driver, service));
            return;
        }
        self.shared.close();
        if let Some(driver) = driver {
            driver.join(&self.shared);
        }
        if let Some(service) = service {
            service.join(&self.shared.regions);
        }
        self.shared.end_fences();
        self.shared.discard_created();
    }

    /// As [`Machine::close`], but what runs is cancelled.
    pub fn close_now(&self) {
        if self.shared.is_of_this_process() {
            self.shared.close();
            self.shared.cancel_all();
        }
        self.close();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.close();
    }
}

/// The kernel's number of the node that `memory` lies in; `None` where there is only one.
fn numa_node(class: &NodeClass, memory: MemoryId) -> Option<u32> {
    let plain = class.memories.iter().filter(|m| m.kind == MemoryKind::Sys).count();
    if plain < 2 {
        return None;
    }
    Cores::detect().nodes.get(usize::from(memory.index)).map(|node| node.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CopyOptions;
    use crate::event::{Event, State};
    use channel::Region;
    use channel::conformance::may_be_huge;
    use fabric::Config;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    #[test]
    fn a_machine_whose_driver_did_not_start_ends_what_had_started() {
        let builder = Machine::builder().assume(true).lanes(1).staging(1 << 20);
        let machine = builder.join(&Config::new("local:alone", (0, 1), b"")).unwrap();
        let shared = Arc::downgrade(&machine.shared);
        let driver = machine.threads.lock().unwrap().driver.take().unwrap();
        machine.shared.close();
        driver.join(&machine.shared);
        drop(machine);
        assert_eq!(shared.strong_count(), 0, "a thread still has it");
    }

    /// Says that it goes, and waits until it may.
    struct Kept(Sender<()>, Mutex<Receiver<()>>);

    impl Drop for Kept {
        fn drop(&mut self) {
            let _ = self.0.send(());
            let _ = self.1.get_mut().map(|told| told.recv());
        }
    }

    #[test]
    fn a_machine_closes_when_another_thread_has_told_of_what_it_saw_end() {
        let open = || Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap();
        let (machine, other) = (open(), open());
        let array = Array::of(&[("b", 64)], "|u1").unwrap();
        let dst = machine.empty(array.clone(), "sys").unwrap();
        let ((goes, going), (tell, told)) = (channel(), channel());
        let sys = machine.shared.memory_named("sys").unwrap();
        // Nothing reads it: the copy does not start.
        let region = Region::device(sys, 64, Arc::new(Kept(goes, Mutex::new(told))));
        let holding = Arc::new(Holding::new(&machine.shared, region, false));
        let src = Instance::new(holding, 0, View::of_array(sys, array));
        let never = Event::new(Arc::new(State::new(&other.shared, 1, 0)));
        let options = CopyOptions { after: vec![never], ..CopyOptions::default() };
        let event = machine.copy(&src, &dst, &options).unwrap();
        drop(src);
        thread::scope(|scope| {
            let tell = tell;
            scope.spawn(|| event.cancel());
            going.recv().unwrap();
            let closes = scope.spawn(|| machine.close());
            while !machine.shared.is_closed() {
                thread::yield_now();
            }
            for _ in 0..1000 {
                assert!(!closes.is_finished() && !event.is_done());
                thread::yield_now();
            }
            tell.send(()).unwrap();
        });
        assert!(event.is_done());
    }

    #[test]
    fn instances_ask_for_huge_pages() {
        let machine = Machine::builder().assume(true).open().unwrap();
        let asks = |bytes| {
            let instance = machine.empty(Array::of(&[("b", bytes)], "|u1").unwrap(), "sys");
            may_be_huge(instance.unwrap().host_span().unwrap())
        };
        assert_ne!(asks(4 << 20), Some(false));
        assert_ne!(asks(4096), Some(true));
    }
}
