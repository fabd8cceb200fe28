//! The requests that a channel holds, and where each of them stands.
//!
//! A request is queued while it has operations to start, and ends when none of its own is in
//! flight any more. After an error it starts no more of them.

use crate::error::unfit;
use crate::file::FileRegion;
use crate::pieces::{Direction, Origin, Walk};
use crate::plan::{Plan, plans};
use crate::span::Span;
use crate::threads::Settle;
use channel::model::{ChannelError, ChannelErrorKind, Completion, CopyWork, Work};
use channel::{Job, Region, check_bounds};
use std::collections::VecDeque;
use std::sync::Arc;

/// A request at work.
#[derive(Debug)]
pub(crate) struct Active {
    job: Job,
    /// What is left to move; nothing for a commit or an abort.
    walk: Option<Walk>,
    /// The operations of the last span that have not started.
    plans: VecDeque<Plan>,
    /// Operations in flight.
    ops: u32,
    queued: bool,
    error: Option<ChannelError>,
}

impl Active {
    /// Checks `job`; nothing has been touched when it is refused.
    pub(crate) fn begin(job: Job, direction: Direction) -> Result<Self, ChannelError> {
        let walk = match &job.work {
            Work::Copy(work) => Some(walk(work, &job, direction)?),
            Work::Commit { .. } | Work::Abort { .. } => {
                check_settles(&job.dst, direction)?;
                None
            }
        };
        let plans = VecDeque::new();
        Ok(Active { job, walk, plans, ops: 0, queued: false, error: None })
    }

    /// For a commit, whether it syncs; for an abort, `None` within.
    pub(crate) fn settles(&self) -> Option<Option<bool>> {
        match self.job.work {
            Work::Copy(_) => None,
            Work::Commit { sync, .. } => Some(Some(sync)),
            Work::Abort { .. } => Some(None),
        }
    }

    /// The file of the request.
    pub(crate) fn file(&self) -> Option<&FileRegion> {
        self.job.src.view().or_else(|| self.job.dst.view())
    }

    /// What to start next, if anything.
    pub(crate) fn next_plan(&mut self, direction: Direction) -> Option<Plan> {
        if self.error.is_some() {
            return None;
        }
        if self.plans.is_empty() {
            let span = Span::take(self.walk.as_mut()?, direction)?;
            let more = plans(span, direction, self.file()?);
            self.plans.extend(more);
        }
        self.plans.pop_front()
    }
}

/// The pieces of `work`, once it is known to be possible.
fn walk(work: &CopyWork, job: &Job, direction: Direction) -> Result<Walk, ChannelError> {
    let ((file, file_at), (memory, memory_at)) = match direction {
        Direction::Read => ((&job.src, work.src.offset), (&job.dst, work.dst.offset)),
        Direction::Write => ((&job.dst, work.dst.offset), (&job.src, work.src.offset)),
    };
    let view = view(file)?;
    let span = memory.host_span().ok_or_else(|| unknown("no host memory", memory))?;
    check_bounds(work, job.src.len_bytes(), job.dst.len_bytes())?;
    if direction == Direction::Write {
        view.check_writable()?;
    }
    let origin = Origin {
        file: view.data_offset().wrapping_add(file_at),
        memory: (span.start().as_ptr() as u64).wrapping_add(memory_at),
    };
    Ok(Walk::new(Arc::clone(&work.list), direction, origin))
}

fn check_settles(region: &Region, direction: Direction) -> Result<(), ChannelError> {
    let file = view(region)?;
    if direction == Direction::Write {
        return Ok(());
    }
    Err(unfit(file.path(), "a channel that reads neither commits nor aborts"))
}

fn view(region: &Region) -> Result<&FileRegion, ChannelError> {
    region.view::<FileRegion>().ok_or_else(|| unknown("no file", region))
}

fn unknown(what: &str, region: &Region) -> ChannelError {
    let detail = format!("a disk channel was handed {region:?}, which is {what}");
    ChannelError::new(ChannelErrorKind::UnknownRegion, detail)
}

/// The requests at work, in slots.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    slots: Vec<Option<Active>>,
    free: Vec<usize>,
    /// Requests with operations to start, in the order in which they came.
    starting: VecDeque<usize>,
    ops: u32,
}

impl Flight {
    /// Gives `active` a slot.
    pub(crate) fn add(&mut self, active: Active) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(active);
                slot
            }
            None => {
                self.slots.push(Some(active));
                self.slots.len() - 1
            }
        }
    }

    /// The request in `slot`, which is taken.
    pub(crate) fn get(&mut self, slot: usize) -> &mut Active {
        self.slots[slot].as_mut().expect("a slot is taken until its request retires")
    }

    /// Queues `slot` behind all others.
    pub(crate) fn queue(&mut self, slot: usize) {
        self.get(slot).queued = true;
        self.starting.push_back(slot);
    }

    /// The request whose operations start next.
    pub(crate) fn first(&self) -> Option<usize> {
        self.starting.front().copied()
    }

    /// Takes the first request, which has nothing more to start, off the queue.
    pub(crate) fn unqueue(&mut self) {
        if let Some(slot) = self.starting.pop_front() {
            self.get(slot).queued = false;
        }
    }

    /// The commit or abort of `slot`, which is in flight from here on.
    pub(crate) fn settle(&mut self, slot: usize, commit: Option<bool>) -> Settle {
        self.started(slot);
        Settle { slot, region: Arc::clone(&self.get(slot).job.dst), commit }
    }

    /// Counts an operation of `slot` in.
    pub(crate) fn started(&mut self, slot: usize) {
        self.ops += 1;
        self.get(slot).ops += 1;
    }

    /// Counts an operation of `slot` out. The first error of a request is its result.
    pub(crate) fn ended(&mut self, slot: usize, result: Result<(), ChannelError>) {
        self.ops -= 1;
        let active = self.get(slot);
        active.ops -= 1;
        if active.error.is_none() {
            active.error = result.err();
        }
    }

    /// Lets go of the request in `slot`, and of its regions, if it has ended.
    pub(crate) fn retire(&mut self, slot: usize) -> Option<Completion> {
        let active = self.get(slot);
        if active.ops > 0 || active.queued {
            return None;
        }
        let active = self.slots[slot].take()?;
        self.free.push(slot);
        let result = active.error.map_or(Ok(()), Err);
        Some(Completion { request: active.job.request, result })
    }

    /// Operations in flight.
    pub(crate) fn ops(&self) -> u32 {
        self.ops
    }

    /// Whether no request is at work.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}
