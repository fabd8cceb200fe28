//! One request on its way.
//!
//! **Hazard.** A device reads and writes memory of the host long after it was asked to.
//! **Guarantee.** A [`Transfer`] holds its job, and so both regions, until the last of its batches is
//! over, also where it is dropped.

use super::{Batch, Copier, Direction, ends, peer};
use crate::{Job, check_bounds};
use model::{ChannelError, ChannelErrorKind, Completion, Work};
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A job whose commands are queued in batches.
#[derive(Debug)]
pub(super) struct Transfer<C: Copier> {
    /// What is not known to be over. It is dropped, and so waited for, before the job.
    batches: Vec<Begun<C::Batch>>,
    commands: Peekable<C::Commands>,
    direction: Direction,
    error: Option<ChannelError>,
    job: Job,
}

/// A batch that was queued.
#[derive(Debug)]
struct Begun<B> {
    number: u64,
    batch: B,
    /// How many commands it has.
    count: usize,
    end: End,
}

/// The end of a batch, which one takes: who sees it, or who is called.
#[derive(Debug, Clone, Default)]
pub(super) struct End(Arc<AtomicBool>);

impl End {
    /// Whether nobody took it before.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

impl<C: Copier> Transfer<C> {
    /// `job`, all bytes of which lie in regions that `copier` can move between.
    pub(super) fn begin(job: Job, direction: Direction, copier: &C) -> Result<Self, ChannelError> {
        let Work::Copy(work) = &job.work else { return Err(no_commit()) };
        copier.health().check_for(direction)?;
        ends(copier, direction, (&job.src, &job.dst))?;
        check_bounds(work, job.src.len_bytes(), job.dst.len_bytes())?;
        let (bases, in_place) =
            ((work.src.offset, work.dst.offset), Arc::ptr_eq(&job.src, &job.dst));
        let commands = copier.commands(Arc::clone(&work.list), bases, in_place).peekable();
        Ok(Transfer { batches: Vec::new(), commands, direction, error: None, job })
    }

    /// Queues up to `most` more commands on a queue as batch `number`, and returns how many. What is
    /// refused ends the job; what was queued before still counts.
    pub(super) fn queue(
        &mut self,
        copier: &mut C,
        (queue, number): (usize, u64),
        most: usize,
    ) -> usize {
        let ends = copier
            .health()
            .check_for(self.direction)
            .and_then(|()| ends(copier, self.direction, (&self.job.src, &self.job.dst)));
        let ends = match ends {
            Ok(ends) => ends,
            Err(error) => {
                self.fail(error);
                return 0;
            }
        };
        // SAFETY: the commands of copies whose bounds were checked lie inside the regions, which this
        // value holds until the batch is over: it is dropped, and so waited for, before the job.
        let queued = unsafe { copier.copy(queue, ends, &mut self.commands.by_ref().take(most)) };
        let (count, end) = (queued.count, End::default());
        self.batches.extend(queued.batch.map(|batch| Begun { number, batch, count, end }));
        if let Err(error) = queued.result {
            // What promised to copy to another device does not.
            if error.kind == ChannelErrorKind::Io && peer(copier, &self.job.dst).is_some() {
                copier.health().lose_reach(self.job.dst.memory(), &error);
            }
            self.fail(error);
        }
        queued.count
    }

    /// Batch `number`, unless it is over or empty.
    pub(super) fn batch(&self, number: u64) -> Option<(&C::Batch, &End)> {
        let begun = self.batches.iter().find(|begun| begun.number == number)?;
        Some((&begun.batch, &begun.end))
    }

    /// The number of the batch that was begun first, if it is over and nobody is being called for it.
    pub(super) fn first_over(&self) -> Option<u64> {
        let first = self.batches.iter().min_by_key(|begun| begun.number)?;
        (first.batch.is_over() && first.end.take()).then_some(first.number)
    }

    /// Takes in that batch `number` is over; returns how many commands it had, 0 where that was
    /// known.
    pub(super) fn end_batch(&mut self, number: u64) -> usize {
        let Some(at) = self.batches.iter().position(|begun| begun.number == number) else {
            return 0;
        };
        let begun = self.batches.swap_remove(at);
        self.end(begun)
    }

    /// Blocks until all that is queued is over; returns how many commands that were.
    pub(super) fn wait(&mut self) -> usize {
        let batches = std::mem::take(&mut self.batches);
        batches.into_iter().map(|begun| self.end(begun)).sum()
    }

    /// Takes in that a batch is over, which nobody is to be called for any more; returns how many commands it had.
    fn end(&mut self, mut begun: Begun<C::Batch>) -> usize {
        begun.end.take();
        if let Err(error) = begun.batch.wait() {
            self.fail(error);
        }
        begun.count
    }

    /// Remembers the first error; nothing more is queued.
    fn fail(&mut self, error: ChannelError) {
        self.error.get_or_insert(error);
    }

    /// What it moves.
    pub(super) fn payload_bytes(&self) -> u64 {
        let Work::Copy(work) = &self.job.work else { return 0 };
        work.payload_bytes
    }

    /// Whether there are commands left to queue.
    pub(super) fn has_more(&mut self) -> bool {
        self.error.is_none() && self.commands.peek().is_some()
    }

    /// Whether all is over.
    pub(super) fn is_over(&mut self) -> bool {
        self.batches.is_empty() && !self.has_more()
    }

    /// How it ended.
    pub(super) fn completion(&mut self) -> Completion {
        let result = self.error.take().map_or(Ok(()), Err);
        Completion { request: self.job.request, result }
    }
}

fn no_commit() -> ChannelError {
    ChannelError::new(ChannelErrorKind::Io, "memory has nothing to commit or to abort")
}
