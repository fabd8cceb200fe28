//! RemoteMemcpy between devices of one machine: to memory that another process has exported, and this one opens.
//!
//! **Hazard.** Memory is opened again and again, is closed while a device writes it, or is another machine's.
//! **Guarantee.** Each device opens what it copies to once, at the first copy; it is closed once nobody knows
//! the region any more and no job holds it, which whoever withdraws it for its owner can see. What can't be
//! opened is the error of that job, and the device's health says so from then on, unless the process is lost
//! that has exported it. Nobody waits meanwhile who submits or polls. **Structure.** [`Exported`] is what is behind a
//! region of another process, and keeps what was opened, by threads of the link's ([`opener`](super::opener)); a
//! [`DeviceLink`] hands each job to the device whose memory it reads, whose channel copies as inside its own
//! memory.

use super::opener::Opener;
use channel::accelerator::{Device, Direction, IpcHandle};
use channel::model::{ChannelError, ChannelErrorKind, Completion, MemoryId, RequestId};
use channel::{Bell, Capabilities, Channel, Held, Job, Region};
use fabric::Fabric;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Memory of a device of another process of this machine, as that has exported it.
#[derive(Debug)]
pub struct Exported {
    handle: IpcHandle,
    /// As each device that has opened it finds it, by that one's own memory.
    opened: Mutex<BTreeMap<MemoryId, Arc<Region>>>,
    /// Held by who has it opened.
    opening: Mutex<()>,
}

impl Exported {
    /// What `handle` is of. The process is one of this machine.
    #[must_use]
    pub fn new(handle: IpcHandle) -> Self {
        Exported { handle, opened: Mutex::default(), opening: Mutex::default() }
    }

    /// The region of `len_bytes` bytes that it is, in `memory`.
    #[must_use]
    pub fn into_region(self, memory: MemoryId, len_bytes: u64) -> Region {
        Region::device(memory, len_bytes, Arc::new(self))
    }

    /// Whether nobody but the caller has `room`, and no job what any device has opened of it. Where that is so
    /// and nobody is given it, dropping it closes what is open.
    #[must_use]
    pub fn is_idle(room: &Arc<Region>) -> bool {
        // In this order: who has the region may open it.
        Arc::strong_count(room) == 1
            && room.view::<Exported>().is_none_or(|exported| {
                exported.all().values().all(|region| Arc::strong_count(region) == 1)
            })
    }

    /// The region that this is behind, as the device finds it that has memory `own`, once it has opened that.
    fn opened(&self, own: MemoryId) -> Option<Arc<Region>> {
        self.all().get(&own).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<MemoryId, Arc<Region>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region `there`, which this is behind, as the device finds it that has memory `own`. Blocks where that has
    /// not opened it before, or while another does.
    pub(crate) fn open(
        &self,
        fabric: &Fabric,
        (own, device): (MemoryId, &dyn Device),
        there: &Region,
    ) -> Result<Arc<Region>, ChannelError> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = self.opened(own) {
            return Ok(region);
        }
        let (memory, len_bytes) = (there.memory(), there.len_bytes());
        if let Some(why) = device.health().unreached().remove(&memory) {
            return Err(ChannelError::new(ChannelErrorKind::Io, why));
        }
        let interop = device.interop().ok_or_else(|| unknown(there))?;
        let owner = interop
            .import(&self.handle, len_bytes)
            .map_err(|error| refused(fabric, (device, memory), error))?;
        let region = Arc::new(Region::device(memory, len_bytes, owner));
        self.all().insert(own, Arc::clone(&region));
        Ok(region)
    }
}

/// How long it may take to hear that a process has ended, whose memory can't be opened any more.
const LAST_SIGN: Duration = Duration::from_millis(100);

/// Why `device` can't open `memory`, of another node: one of the two is lost, or the device does not reach it,
/// which its health says from now on.
fn refused(
    fabric: &Fabric,
    (device, memory): (&dyn Device, MemoryId),
    error: ChannelError,
) -> ChannelError {
    let node = memory.node;
    if error.kind == ChannelErrorKind::DeviceLost {
        return error;
    }
    let _ = fabric.sleep_until(Some(LAST_SIGN), || fabric.lost(node).is_some());
    if let Some(why) = fabric.lost(node) {
        let lost = fabric::Error::PeerLost { peer: node, why };
        return ChannelError::new(ChannelErrorKind::PeerLost, lost.to_string());
    }
    let detail = format!("memory of a device of {node} can't be opened: {}", error.detail);
    device.health().lose_reach(memory, &detail);
    ChannelError { detail, ..error }
}

/// A device, and what copies from its memory, or why nothing does.
struct Lane {
    device: Arc<dyn Device>,
    channel: Result<Box<dyn Channel>, ChannelError>,
}

impl Lane {
    fn channel(&mut self) -> Option<&mut Box<dyn Channel>> {
        self.channel.as_mut().ok()
    }

    /// Hands over `job`, whose destination is open.
    fn submit(&mut self, job: Job) -> Result<(), ChannelError> {
        let channel = self.channel.as_mut().map_err(|why| why.clone())?;
        let no_room = |job| ChannelError::new(ChannelErrorKind::Io, format!("no room for {job:?}"));
        channel.submit(job).map_err(no_room)
    }
}

/// Copies from memories of this node's devices to [`Exported`] ones. The first copy of a device to one waits until
/// that is open, or is known not to be.
pub struct DeviceLink {
    lanes: BTreeMap<MemoryId, Lane>,
    opener: Opener,
    /// What was refused, and is to be told.
    done: Vec<Completion>,
    bell: Arc<Bell>,
    /// Readable where the bell is, or what one of the lanes is waited for by.
    watch: OwnedFd,
    held: Held,
}

impl fmt::Debug for DeviceLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.lanes.keys().collect::<Vec<_>>();
        f.debug_struct("DeviceLink").field("lanes", &lanes).finish_non_exhaustive()
    }
}

impl DeviceLink {
    /// A link from these memories, each of a device, to such of the ranks of `fabric`. One that makes no channel
    /// reaches none.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(
        fabric: Arc<Fabric>,
        devices: impl IntoIterator<Item = (MemoryId, Arc<dyn Device>)>,
    ) -> io::Result<Self> {
        let lane = |(own, device): (MemoryId, Arc<dyn Device>)| {
            let channel = device.channel(Direction::Copy, None);
            (own, Lane { device, channel })
        };
        let lanes: BTreeMap<_, _> = devices.into_iter().map(lane).collect();
        // No lane is full then: all of them may be for one.
        let channels = lanes.values().filter_map(|lane| lane.channel.as_ref().ok());
        let most = channels.map(|channel| channel.capabilities().max_in_flight).min();
        let (bell, watch) = watched(&lanes)?;
        let bell = Arc::new(bell);
        Ok(DeviceLink {
            lanes,
            opener: Opener::new(fabric, &bell),
            done: Vec::new(),
            bell,
            watch,
            held: Held::new(most.unwrap_or(1)),
        })
    }

    /// Hands `job` to its device, or to who opens where it goes; where there is no way, returns why.
    fn start(&mut self, job: Job) -> Result<(), ChannelError> {
        let own = job.src.memory();
        let lane = self.lanes.get_mut(&own).ok_or_else(|| unknown(&job.src))?;
        let there: &Exported = job.dst.view().ok_or_else(|| unknown(&job.dst))?;
        if let Err(why) = &lane.channel {
            lane.device.health().lose_reach(job.dst.memory(), why);
            return Err(why.clone());
        }
        match there.opened(own) {
            Some(dst) => lane.submit(Job { dst, ..job }),
            None => self.opener.ask(Arc::clone(&lane.device), job),
        }
    }

    /// Goes on with the jobs whose destinations have been opened, or can't be.
    fn go_on(&mut self) {
        for (job, opened) in self.opener.answers() {
            let (request, own) = (job.request, job.src.memory());
            let lane = self.lanes.get_mut(&own).expect("it has asked for this");
            let started = opened.and_then(|dst| lane.submit(Job { dst, ..job }));
            self.done.extend(started.err().map(|error| refusal(request, error)));
        }
    }
}

fn refusal(request: RequestId, error: ChannelError) -> Completion {
    Completion { request, result: Err(error) }
}

/// A bell, and a descriptor that is readable where that is, or one of the lanes'.
fn watched(lanes: &BTreeMap<MemoryId, Lane>) -> io::Result<(Bell, OwnedFd)> {
    let (bell, watch) = (Bell::new()?, create(CreateFlags::CLOEXEC)?);
    let of_lanes = lanes.values().filter_map(|lane| lane.channel.as_ref().ok()?.wake_fd());
    for fd in of_lanes.chain([bell.as_fd()]) {
        add(&watch, fd, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok((bell, watch))
}

impl Channel for DeviceLink {
    fn capabilities(&self) -> Capabilities {
        let mut channels = self.lanes.values().filter_map(|lane| lane.channel.as_ref().ok());
        let tells_late = channels.any(|channel| channel.capabilities().tells_late);
        Capabilities { max_in_flight: self.held.most(), commits: false, tells_late }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let job = self.held.take(job)?;
        let request = job.request;
        if let Err(error) = self.start(job) {
            self.done.push(refusal(request, error));
            self.bell.ring();
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        let before = done.len();
        self.bell.clear();
        self.go_on();
        done.append(&mut self.done);
        self.lanes.values_mut().filter_map(Lane::channel).for_each(|channel| channel.poll(done));
        self.held.tell(done.len() - before);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn drain(&mut self) {
        while self.opener.is_asked() {
            self.bell.wait();
            self.bell.clear();
            self.go_on();
        }
        if !self.done.is_empty() {
            self.bell.ring();
        }
        self.lanes.values_mut().filter_map(Lane::channel).for_each(|channel| channel.drain());
    }
}

fn unknown(region: &Region) -> ChannelError {
    let detail = format!("a copy of {region:?}, which joins no device of this node to another's");
    ChannelError::new(ChannelErrorKind::UnknownRegion, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::model::NodeId;

    #[test]
    fn a_region_is_idle_once_no_job_has_it_nor_what_was_opened_of_it() {
        let memory = MemoryId { node: NodeId(1), index: 0 };
        let room = Arc::new(Exported::new(IpcHandle([1; 64])).into_region(memory, 64));
        assert!(Exported::is_idle(&room));
        let is_idle_without = |job: Arc<Region>| {
            assert!(!Exported::is_idle(&room));
            drop(job);
            Exported::is_idle(&room)
        };
        assert!(is_idle_without(Arc::clone(&room)));
        let opened = Arc::new(Region::device(memory, 64, Arc::new(())));
        let exported: &Exported = room.view().unwrap();
        exported.opened.lock().unwrap().insert(memory, Arc::clone(&opened));
        assert!(is_idle_without(opened));
    }
}
