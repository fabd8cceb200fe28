//! One request on its way.
//!
//! **Hazard.** A device reads and writes memory of the host long after it was asked to.
//! **Guarantee.** A [`Transfer`] holds its job, and so both regions, and is not dropped before the
//! last of its commands is over.

use crate::cl::{Ends, Event, Queue};
use crate::device::Device;
use crate::error::{When, no_commit, unknown};
use crate::memory::DeviceSpan;
use crate::rects::Rects;
use channel::model::{ChannelError, Completion, CopyWork, Work};
use channel::{Job, Region, check_bounds};
use std::sync::Arc;

/// Which way a channel moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// GPUWrite: from host memory to the device's.
    Write,
    /// GPURead: from the device's memory to the host's.
    Read,
    /// GPUCopy: inside the device's memory.
    Copy,
}

/// A job whose commands are queued in batches.
#[derive(Debug)]
pub(crate) struct Transfer {
    job: Job,
    direction: Direction,
    device: Device,
    rects: std::iter::Peekable<Rects>,
    /// The commands of each batch that is not known to be over.
    batches: Vec<(u64, Vec<Event>)>,
    error: Option<ChannelError>,
}

impl Transfer {
    /// `job`, all bytes of which lie in regions that `device` can move between.
    pub(crate) fn begin(
        job: Job,
        direction: Direction,
        device: &Device,
    ) -> Result<Self, ChannelError> {
        let Work::Copy(work) = &job.work else { return Err(no_commit()) };
        device.check()?;
        ends((&job.src, &job.dst), direction, device)?;
        check_bounds(work, job.src.len_bytes(), job.dst.len_bytes())?;
        let rects = rects(work, Arc::ptr_eq(&job.src, &job.dst));
        let device = device.clone();
        Ok(Transfer { job, direction, device, rects, batches: Vec::new(), error: None })
    }

    /// Queues up to `most` more commands as batch `number`, and returns how many. What is refused
    /// ends the job; what was queued before still counts.
    pub(crate) fn queue(&mut self, queue: &Queue, number: u64, most: usize) -> usize {
        let mut events = Vec::new();
        let queued = self.queue_into(&mut events, queue, most);
        let count = events.len();
        if count > 0 {
            self.batches.push((number, events));
        }
        if let Err(error) = queued {
            self.fail(error);
        }
        count
    }

    fn queue_into(
        &mut self,
        events: &mut Vec<Event>,
        queue: &Queue,
        most: usize,
    ) -> Result<(), ChannelError> {
        self.device.check()?;
        let ends = ends((&self.job.src, &self.job.dst), self.direction, &self.device)?;
        for rect in self.rects.by_ref().take(most) {
            // SAFETY: the rects of copies whose bounds were checked lie inside the regions, which
            // this value holds until the event, which it holds too, is over.
            let event = unsafe { queue.copy(ends, &rect) };
            events.push(event.map_err(|failure| self.device.failed(failure, When::Asked))?);
        }
        Ok(())
    }

    /// The last command of batch `number`, after which the batch is over.
    pub(crate) fn last_of(&self, number: u64) -> Option<&Event> {
        self.batches.iter().find(|(n, _)| *n == number).and_then(|(_, events)| events.last())
    }

    /// Takes in that batch `number` is over; returns how many commands it had, 0 where that was
    /// known.
    pub(crate) fn end_batch(&mut self, number: u64) -> usize {
        let Some(at) = self.batches.iter().position(|(n, _)| *n == number) else { return 0 };
        let (_, events) = self.batches.swap_remove(at);
        for event in &events {
            if let Err(failure) = event.result() {
                let error = self.device.failed(failure, When::Ran);
                self.fail(error);
            }
        }
        events.len()
    }

    /// Blocks until all that is queued is over; returns how many commands that were.
    pub(crate) fn wait(&mut self) -> usize {
        let mut count = 0;
        for (_, events) in std::mem::take(&mut self.batches) {
            count += events.len();
            for event in events {
                if let Err(failure) = event.wait() {
                    let error = self.device.failed(failure, When::Ran);
                    self.fail(error);
                }
            }
        }
        count
    }

    /// Remembers the first error; nothing more is queued.
    fn fail(&mut self, error: ChannelError) {
        self.error.get_or_insert(error);
    }

    /// Whether there are commands left to queue.
    pub(crate) fn has_more(&mut self) -> bool {
        self.error.is_none() && self.rects.peek().is_some()
    }

    /// Whether all is over.
    pub(crate) fn is_over(&mut self) -> bool {
        self.batches.is_empty() && !self.has_more()
    }

    /// How it ended.
    pub(crate) fn completion(&mut self) -> Completion {
        let result = self.error.take().map_or(Ok(()), Err);
        Completion { request: self.job.request, result }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
impl Transfer {
    /// Has batch `number` hold a command more, which failed.
    pub(crate) fn fail_batch(&mut self, number: u64, failed: Event) {
        let batch = self.batches.iter_mut().find(|(n, _)| *n == number);
        batch.expect("a batch under way").1.push(failed);
    }
}

fn rects(work: &CopyWork, in_place: bool) -> std::iter::Peekable<Rects> {
    let bases = (work.src.offset, work.dst.offset);
    Rects::new(Arc::clone(&work.list), bases, in_place).peekable()
}

/// Where `src` and `dst` start, one of which is host memory unless both are the device's.
fn ends<'a>(
    (src, dst): (&'a Region, &'a Region),
    direction: Direction,
    device: &Device,
) -> Result<Ends<'a>, ChannelError> {
    let host = |region: &Region| {
        let span = region.host_span().ok_or_else(|| unknown(region, "host memory"))?;
        Ok(span.start())
    };
    let there = |region: &'a Region| {
        let span = region.view::<DeviceSpan>().filter(|s| s.buffer.is_of(device.context()));
        let what = || {
            format!("memory of OpenCL device `{}`, or of this opening of it", device.info().name)
        };
        span.map(|span| &span.buffer).ok_or_else(|| unknown(region, &what()))
    };
    Ok(match direction {
        Direction::Write => Ends::Write(host(src)?, there(dst)?),
        Direction::Read => Ends::Read(there(src)?, host(dst)?),
        Direction::Copy => Ends::Copy(there(src)?, there(dst)?),
    })
}
