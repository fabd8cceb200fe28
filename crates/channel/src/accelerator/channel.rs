//! GPUWrite, GPURead and GPUCopy (paper, table 2), and GPUConvert.

use super::transfer::Transfer;
use super::{Batch, Copier, Direction};
use crate::{Bell, Capabilities, Channel, DoneQueue, Held, Job};
use model::{ChannelError, ChannelErrorKind, Completion};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests held at once: while one is moved others are queued behind it, so that the device does
/// not wait. More would only stand in front of an urgent one.
const MAX_IN_FLIGHT: u32 = 4;

/// Commands that are reported together.
const BATCH_COMMANDS: usize = 128;

/// Commands queued at once, of all requests of a channel.
const MOST_COMMANDS: usize = 4 * BATCH_COMMANDS;

/// What a request moves at most whose end is looked for at once, and how long.
const LITTLE_BYTES: u64 = 128 << 10;
const MOMENT: Duration = Duration::from_micros(20);

/// The end of a batch: the slot of its transfer, and its number.
#[derive(Debug, Clone, Copy)]
struct Ended {
    slot: usize,
    batch: u64,
}

/// Moves bytes between a device and the host, or inside the device.
///
/// Each request becomes commands on the copier's queues, which follow each other in turn. When a
/// batch of them is over the channel's bell rings; more are queued by the next call of
/// [`Channel::poll`]. A small request that is alone is looked at for a moment before that. A device
/// that is lost takes no more requests: each ends at once with [`ChannelErrorKind::DeviceLost`].
#[derive(Debug)]
pub struct CommandChannel<C: Copier> {
    direction: Direction,
    copier: C,
    /// Not so where the host's cores may be what moves the bytes, since the memory is the host's.
    tells_late: bool,
    /// Batches begun; the next one's queue follows from it.
    batches: u64,
    /// Commands queued and not known to be over.
    commands: usize,
    /// The requests held, and those among them with commands left to queue, oldest first.
    slots: Vec<Option<Transfer<C>>>,
    waiting: VecDeque<usize>,
    ended: Arc<DoneQueue<Ended>>,
    done: Vec<Completion>,
    held: Held,
}

impl<C: Copier> CommandChannel<C> {
    /// A channel over `copier`, of a device that [shares the host's memory](super::Profile::shares_host_memory)
    /// or not, with nothing in flight.
    ///
    /// # Errors
    /// [`ChannelErrorKind::Io`] when the process has no descriptor left.
    pub fn new(
        copier: C,
        direction: Direction,
        shares_host_memory: bool,
    ) -> Result<Self, ChannelError> {
        let bell = Bell::new().map_err(|e| no_bell(&e))?;
        Ok(CommandChannel {
            direction,
            copier,
            tells_late: !shares_host_memory,
            batches: 0,
            commands: 0,
            slots: (0..MAX_IN_FLIGHT).map(|_| None).collect(),
            waiting: VecDeque::new(),
            ended: Arc::new(DoneQueue::new(Arc::new(bell))),
            done: Vec::new(),
            held: Held::new(MAX_IN_FLIGHT),
        })
    }

    fn take(&mut self, job: Job) {
        let request = job.request;
        match Transfer::begin(job, self.direction, &self.copier) {
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
        if self.waiting.is_empty() || !self.copier.is_ready(self.ended.bell()) {
            return;
        }
        let mut begun = Vec::new();
        while self.commands < MOST_COMMANDS
            && let Some(&slot) = self.waiting.front()
        {
            begun.extend(self.start_batch(slot));
            if !self.slots[slot].as_mut().is_some_and(Transfer::has_more) {
                self.waiting.pop_front();
                // Where it moves nothing, or was refused.
                self.retire(slot);
            }
        }
        if !begun.is_empty() && self.copier.flush().is_err() {
            // Waiting has it begin, or says why not.
            self.wait();
            return self.ended.bell().ring();
        }
        if !self.sees_end(&begun) {
            begun.into_iter().for_each(|batch| self.hear_end(batch));
        }
    }

    /// Queues the next commands of a slot's request, if they are taken.
    fn start_batch(&mut self, slot: usize) -> Option<Ended> {
        let batch = self.batches;
        self.batches += 1;
        let queue = (batch % self.copier.queues() as u64) as usize;
        let transfer = self.slots[slot].as_mut()?;
        self.commands += transfer.queue(&mut self.copier, (queue, batch), BATCH_COMMANDS);
        transfer.batch(batch).map(|_| Ended { slot, batch })
    }

    /// Whether all that the channel does has just begun, is little, and is over within a moment: to be called
    /// back, and woken, takes several times as long.
    fn sees_end(&mut self, begun: &[Ended]) -> bool {
        let &[Ended { slot, batch }] = begun else { return false };
        let is_alone = self.slots.iter().flatten().count() == 1;
        let looks = is_alone && self.tells_late;
        let Some(transfer) = self.slots[slot].as_mut().filter(|_| looks) else { return false };
        if transfer.payload_bytes() > LITTLE_BYTES || transfer.has_more() {
            return false;
        }
        let begun = Instant::now();
        while !transfer.batch(batch).is_some_and(|(batch, _)| batch.is_over()) {
            if begun.elapsed() > MOMENT {
                return false;
            }
            std::hint::spin_loop();
        }
        self.end(Ended { slot, batch });
        true
    }

    /// Has the end of a batch be heard of, once.
    fn hear_end(&mut self, Ended { slot, batch }: Ended) {
        let Some(transfer) = &mut self.slots[slot] else { return };
        let Some((queued, end)) = transfer.batch(batch) else { return };
        let (ended, end) = (Arc::clone(&self.ended), end.clone());
        let over = move || {
            // Who is called late is not to wake anybody.
            if end.take() {
                ended.push(Ended { slot, batch });
            }
        };
        if queued.when_over(Box::new(over)).is_err() {
            // Who is not called back has to wait; this is as rare as a lost device.
            self.commands -= transfer.wait();
            self.retire(slot);
            // For what is left of it.
            self.ended.bell().ring();
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
        let over = |(slot, transfer): (usize, &Option<Transfer<C>>)| {
            transfer.as_ref()?.first_over().map(|batch| Ended { slot, batch })
        };
        // What nobody has called for yet.
        ended.extend(self.slots.iter().enumerate().filter_map(over));
        ended.into_iter().for_each(|batch| self.end(batch));
        self.pump();
    }

    /// Takes in that a batch is over.
    fn end(&mut self, Ended { slot, batch }: Ended) {
        if let Some(transfer) = &mut self.slots[slot] {
            self.commands -= transfer.end_batch(batch);
            self.retire(slot);
        }
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
    let detail = format!("no descriptor for a channel of an accelerator: {error}");
    ChannelError {
        os_error: error.raw_os_error(),
        ..ChannelError::new(ChannelErrorKind::Io, detail)
    }
}

impl<C: Copier> Channel for CommandChannel<C> {
    fn capabilities(&self) -> Capabilities {
        let (max_in_flight, tells_late) = (self.held.most(), self.tells_late);
        Capabilities { max_in_flight, commits: false, tells_late }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let job = self.held.take(job)?;
        self.take(job);
        self.pump();
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.advance();
        self.held.tell(self.done.len());
        done.append(&mut self.done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ended.bell().as_fd())
    }

    fn drain(&mut self) {
        self.advance();
        while self.slots.iter().any(Option::is_some) {
            self.copier.get_ready();
            self.wait();
            self.pump();
        }
        if !self.done.is_empty() {
            self.ended.bell().ring();
        }
    }
}

impl<C: Copier> Drop for CommandChannel<C> {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests;
