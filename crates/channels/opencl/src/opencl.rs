//! GPUWrite, GPURead and GPUCopy (paper, table 2).

use crate::cl::Queue;
use crate::device::Device;
use crate::error::When;
use crate::transfer::{Direction, Transfer};
use channel::model::{ChannelError, Completion};
use channel::{Bell, Capabilities, Channel, DoneQueue, Job};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Requests held at once: while one is moved others are queued behind it, so that the device does
/// not wait. More would only stand in front of an urgent one.
const MAX_IN_FLIGHT: u32 = 4;

/// Queues of a channel unless its user says otherwise. Several let a device use several engines for
/// copies, where it has them. On PoCL, whose queues are threads, two took 1.0 to 0.7 times as long as
/// one for rows of 4 KiB and more, and up to twice as long for shorter ones and whole runs
/// (`examples/queues.rs`), which says nothing of a device: that is still to be measured.
const QUEUES: usize = 1;

/// Commands that are reported together.
const BATCH_COMMANDS: usize = 128;

/// Commands queued at once, of all requests.
const MOST_COMMANDS: usize = 4 * BATCH_COMMANDS;

/// The end of a batch, as OpenCL reports it: the slot of its transfer, and its number.
#[derive(Debug, Clone, Copy)]
struct Ended {
    slot: usize,
    batch: u64,
}

/// Moves bytes between a device and the host, or inside the device.
///
/// Each request becomes commands on queues that are made once and kept. OpenCL calls back when a
/// batch of them is over, which rings the channel's bell; more are queued by the next call of
/// [`Channel::poll`]. A device that is lost takes no more requests: each ends at once with
/// [`channel::model::ChannelErrorKind::DeviceLost`], on all channels of the device.
#[derive(Debug)]
pub struct OpenClChannel {
    direction: Direction,
    device: Device,
    queues: Vec<Queue>,
    /// Batches begun; the next one's queue follows from it.
    batches: u64,
    /// Commands queued and not known to be over.
    commands: usize,
    /// The requests held, and those among them with commands left to queue, oldest first.
    slots: Vec<Option<Transfer>>,
    waiting: VecDeque<usize>,
    ended: Arc<DoneQueue<Ended>>,
    done: Vec<Completion>,
    /// Taken and not yet polled.
    held: u32,
}

impl OpenClChannel {
    /// A channel of `device` with nothing in flight.
    ///
    /// # Errors
    /// As [`OpenClChannel::with_queues`].
    pub fn new(device: &Device, direction: Direction) -> Result<Self, ChannelError> {
        Self::with_queues(device, direction, QUEUES)
    }

    /// A channel that spreads its commands over so many queues, at least one.
    ///
    /// # Errors
    /// What the device says where it makes no queue, or is lost;
    /// [`channel::model::ChannelErrorKind::Io`] when the process has no descriptor left.
    pub fn with_queues(
        device: &Device,
        direction: Direction,
        queues: usize,
    ) -> Result<Self, ChannelError> {
        device.check()?;
        let queues: Result<_, _> =
            (0..queues.max(1)).map(|_| Queue::new(device.context())).collect();
        let queues = queues.map_err(|failure| device.failed(failure, When::Asked))?;
        let bell = Bell::new().map_err(|e| no_bell(&e))?;
        Ok(OpenClChannel {
            direction,
            device: device.clone(),
            queues,
            batches: 0,
            commands: 0,
            slots: (0..MAX_IN_FLIGHT).map(|_| None).collect(),
            waiting: VecDeque::new(),
            ended: Arc::new(DoneQueue::new(Arc::new(bell))),
            done: Vec::new(),
            held: 0,
        })
    }

    fn take(&mut self, job: Job) {
        let request = job.request;
        match Transfer::begin(job, self.direction, &self.device) {
            Err(error) => self.done.push(Completion { request, result: Err(error) }),
            Ok(transfer) => {
                let free = self.slots.iter().position(Option::is_none);
                let slot = free.expect("as many slots as requests are held");
                self.slots[slot] = Some(transfer);
                self.waiting.push_back(slot);
            }
        }
    }

    /// Queues commands while there is room, and has the device begin.
    fn pump(&mut self) {
        let before = self.batches;
        while self.commands < MOST_COMMANDS
            && let Some(&slot) = self.waiting.front()
        {
            self.start_batch(slot);
            if !self.slots[slot].as_mut().is_some_and(Transfer::has_more) {
                self.waiting.pop_front();
                // Where it moves nothing, or was refused.
                self.retire(slot);
            }
        }
        if self.batches != before {
            self.flush();
        }
    }

    fn start_batch(&mut self, slot: usize) {
        let batch = self.batches;
        self.batches += 1;
        let queue = &self.queues[(batch % self.queues.len() as u64) as usize];
        let Some(transfer) = &mut self.slots[slot] else { return };
        self.commands += transfer.queue(queue, batch, BATCH_COMMANDS);
        let Some(last) = transfer.last_of(batch) else { return };
        let ended = Arc::clone(&self.ended);
        if let Err(failure) = last.when_over(move || ended.push(Ended { slot, batch })) {
            // Who is not called back has to wait; this is as rare as a lost device.
            self.device.failed(failure, When::Asked);
            self.commands -= transfer.wait();
        }
    }

    /// Has the device begin.
    fn flush(&mut self) {
        let flushed: Result<(), _> = self.queues.iter().try_for_each(Queue::flush);
        if let Err(failure) = flushed {
            // Waiting has it begin, or says why not.
            self.device.failed(failure, When::Asked);
            self.wait();
        }
    }

    /// Blocks until what is queued is over, by waiting for commands and not for calls: these may
    /// come later, and find nothing to do.
    fn wait(&mut self) {
        for transfer in self.slots.iter_mut().flatten() {
            self.commands -= transfer.wait();
        }
        (0..self.slots.len()).for_each(|slot| self.retire(slot));
    }

    /// Takes in what has ended, and queues what that made room for.
    fn advance(&mut self) {
        self.ended.bell().clear();
        let mut ended = Vec::new();
        self.ended.take(&mut ended);
        for Ended { slot, batch } in ended {
            if let Some(transfer) = &mut self.slots[slot] {
                self.commands -= transfer.end_batch(batch);
                self.retire(slot);
            }
        }
        self.pump();
    }

    /// Gives back the slot of a request that is over, for one that starts behind all others.
    fn retire(&mut self, slot: usize) {
        if let Some(mut over) = self.slots[slot].take_if(|transfer| transfer.is_over()) {
            self.waiting.retain(|&waits| waits != slot);
            self.done.push(over.completion());
        }
    }
}

fn no_bell(error: &io::Error) -> ChannelError {
    let detail = format!("no descriptor for a channel of OpenCL's: {error}");
    let kind = channel::model::ChannelErrorKind::Io;
    ChannelError { os_error: error.raw_os_error(), ..ChannelError::new(kind, detail) }
}

impl Channel for OpenClChannel {
    fn capabilities(&self) -> Capabilities {
        Capabilities { max_in_flight: MAX_IN_FLIGHT, commits: false }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        if self.held == MAX_IN_FLIGHT {
            return Err(job);
        }
        self.held += 1;
        self.take(job);
        self.pump();
        if !self.done.is_empty() {
            self.ended.bell().ring();
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.advance();
        self.held -= u32::try_from(self.done.len()).expect("no more than were held");
        done.append(&mut self.done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ended.bell().as_fd())
    }

    fn drain(&mut self) {
        self.advance();
        while self.slots.iter().any(Option::is_some) {
            self.wait();
            self.pump();
        }
        if !self.done.is_empty() {
            self.ended.bell().ring();
        }
    }
}

impl Drop for OpenClChannel {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests;
