//! Copies: from two instances to an event.

use crate::event::{Calls, Event, State};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::matching::check_apart;
use crate::prepare::{Prepared, prepare};
use crate::report::{CopyReport, Direct};
use crate::runtime::Submission;
use crate::{ArgumentError, Error};
use engine::{Commit, Program};
use kernels::Stores;
use model::{ChannelError, ChannelErrorKind, CopyWork, Priority, TransferError, TransferId};
use planner::Options;
use std::sync::Arc;
use std::time::Duration;

/// How a copy is to run. The default: priority 0, no deadline, at once, any algorithm.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// The larger, the more urgent.
    pub priority: i32,
    /// Ends the copy as [`Error::TimedOut`] when it is not done by then, from now.
    pub deadline: Option<Duration>,
    /// What must have ended well before it starts; if one of them doesn't, the copy fails.
    pub after: Vec<Event>,
    /// How it is planned.
    pub planning: Options,
    /// Whether a file that the copy completes must survive a power failure when it ends.
    pub sync: bool,
}

impl CopyOptions {
    /// A copy of this priority.
    #[must_use]
    pub fn with_priority(priority: i32) -> Self {
        CopyOptions { priority, ..CopyOptions::default() }
    }

    fn is_immediate(&self) -> bool {
        self.after.is_empty() && self.deadline.is_none()
    }
}

impl Machine {
    /// Copies the box `src` into the box `dst`, whatever their memories, layouts and orders of
    /// dimensions, and returns at once.
    ///
    /// Dimensions and fields match by name, a lone field matches a lone field; extents and types
    /// must be equal. The bytes of `dst` outside of its box stay as they are. A copy that covers
    /// all of a created file commits it. A copy of up to 96 KiB that needs no intermediate buffer
    /// is done when this returns, unless something more urgent is running.
    ///
    /// Until the copy has ended, nobody else may write what it reads, or touch what it writes:
    /// neither the program nor another copy, which [`CopyOptions::after`] puts behind it. Where
    /// they do, bytes that both touch are unspecified, as with two threads that call `memcpy`.
    ///
    /// ```
    /// # use isometry::{Array, CopyOptions, Machine};
    /// # let machine = Machine::builder().assume(true).open()?;
    /// let image = machine.empty(Array::of(&[("h", 2), ("w", 2), ("c", 3)], "|u1")?, "sys")?;
    /// let planes = machine.empty(image.array().laid_out("chw")?, "sys")?;
    /// image.fill(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])?;
    /// machine.copy(&image, &planes, &CopyOptions::default())?.wait(None)?;
    /// assert_eq!(planes.to_vec()?, [1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12]);
    /// # Ok::<(), isometry::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Mismatch`] where the two don't match; [`ArgumentError::ReadOnly`],
    /// [`ArgumentError::Overlap`], [`ArgumentError::Destination`] for a destination that can't be
    /// written; [`ArgumentError::OtherMachine`]; [`Error::Plan`] where there is no path;
    /// [`Error::Closed`], [`Error::Forked`], [`Error::Busy`].
    pub fn copy(
        &self,
        src: &Instance,
        dst: &Instance,
        options: &CopyOptions,
    ) -> Result<Event, Error> {
        let ready = self.ready(src, dst, options)?;
        if let Some(busy) = self.run_here(&ready, options)? {
            let direct = Direct { prepared: ready.prepared, busy };
            return Ok(Event::new(Arc::new(State::done(&self.shared, direct))));
        }
        let state = Arc::new(State::new(&self.shared, 1, src.payload_bytes()));
        self.shared.submit(&state, submission(&ready, options))?;
        Ok(Event::new(state))
    }

    /// Several copies with one event, which ends when all of them have, and fails if one does.
    /// They may run in any order.
    ///
    /// # Errors
    /// As [`Machine::copy`]; none has started then.
    pub fn copy_many(
        &self,
        pairs: &[(&Instance, &Instance)],
        options: &CopyOptions,
    ) -> Result<Event, Error> {
        let ready = pairs.iter().map(|(src, dst)| self.ready(src, dst, options));
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        let event = self.event_of(&ready);
        for copy in &ready {
            self.begin(&event.state, copy, (options, None));
        }
        Ok(event)
    }

    /// The end of all of these copies, which are to begin.
    pub(crate) fn event_of(&self, copies: &[Ready<'_>]) -> Event {
        let total = copies.iter().map(|copy| copy.src.payload_bytes()).sum();
        let state = match copies.len() {
            0 => State::nothing(&self.shared),
            count => State::new(&self.shared, count, total),
        };
        Event::new(Arc::new(state))
    }

    /// Begins one of the copies of an event, behind some of the others where it is said which; what its
    /// transfer is called, if it is not over yet.
    pub(crate) fn begin(
        &self,
        state: &Arc<State>,
        copy: &Ready<'_>,
        (options, behind): (&CopyOptions, Option<Vec<TransferId>>),
    ) -> Option<TransferId> {
        let here = if behind.is_none() { self.run_here(copy, options) } else { Ok(None) };
        let begun = match here {
            Ok(Some(busy)) => {
                let prepared = Arc::clone(&copy.prepared);
                let report = Direct { prepared, busy }.report();
                state.finish(None, Ok(()), report).into_iter().for_each(Calls::call);
                return None;
            }
            Ok(None) => {
                self.shared.submit(state, Submission { behind, ..submission(copy, options) })
            }
            Err(error) => Err(error),
        };
        begun.unwrap_or_else(|error| {
            let report = report_of_refused(copy, &error);
            state.finish(None, Err(error), report).into_iter().for_each(Calls::call);
            None
        })
    }

    /// How a copy of `src` to `dst` would run, without running it.
    ///
    /// # Errors
    /// As [`Machine::copy`].
    pub fn plan(
        &self,
        src: &Instance,
        dst: &Instance,
        planning: &Options,
    ) -> Result<crate::Planned, Error> {
        self.check(src, dst)?;
        let (prepared, cached) = prepare(&self.shared, &src.view, &dst.view, planning)?;
        Ok(crate::Planned {
            plan: Arc::clone(&prepared.plan),
            topology: self.shared.topology(),
            space: dst.view.space.clone(),
            plan_time: prepared.plan_time,
            cached,
        })
    }

    pub(crate) fn ready<'a>(
        &self,
        src: &'a Instance,
        dst: &'a Instance,
        options: &CopyOptions,
    ) -> Result<Ready<'a>, Error> {
        self.check(src, dst)?;
        let (prepared, _) = prepare(&self.shared, &src.view, &dst.view, &options.planning)?;
        if src.may_share_bytes(dst) {
            check_apart((src, &prepared.program), (dst, &prepared.program))?;
        }
        Ok(Ready { prepared, src, dst })
    }

    fn check(&self, src: &Instance, dst: &Instance) -> Result<(), Error> {
        self.shared.check_open()?;
        let ours = |i: &Instance| Arc::ptr_eq(&i.holding.shared, &self.shared);
        if !ours(src) || !ours(dst) {
            return Err(ArgumentError::OtherMachine.into());
        }
        if !dst.holding.writable {
            return Err(ArgumentError::ReadOnly.into());
        }
        Ok(())
    }

    /// Runs what is cheaper than waking a thread, and returns what that took. `None` where it has
    /// to go the long way.
    fn run_here(
        &self,
        ready: &Ready<'_>,
        options: &CopyOptions,
    ) -> Result<Option<Duration>, Error> {
        let Some(list) = &ready.prepared.small else { return Ok(None) };
        let waits = !options.is_immediate() || ready.ahead().next().is_some();
        if waits || self.shared.urgency.exceeds(Priority(options.priority)) {
            return Ok(None);
        }
        let bytes = ready.prepared.program.payload_bytes();
        let (src, dst) = (ready.src.place(), ready.dst.place());
        let work = CopyWork {
            list: Arc::clone(list),
            src,
            dst,
            payload_bytes: bytes,
            result_bytes: bytes,
        };
        let started = self.shared.clock.now();
        let sides = (&*ready.src.holding.region, &*ready.dst.holding.region);
        channel_host::run_here(&work, sides, Stores::Cached)?;
        let ended = self.shared.clock.now();
        self.shared.tally().ran_here(bytes);
        let priority = Priority(options.priority);
        self.shared.note_direct(&ready.prepared, priority, (started, ended));
        Ok(Some(ended - started))
    }
}

/// A copy that has been checked and planned.
pub(crate) struct Ready<'a> {
    prepared: Arc<Prepared>,
    src: &'a Instance,
    dst: &'a Instance,
}

impl Ready<'_> {
    /// What its two instances were wrapped behind, but for what has ended well.
    fn ahead(&self) -> impl Iterator<Item = &Event> {
        [self.src, self.dst].into_iter().flat_map(Instance::ahead)
    }

    /// How it runs.
    pub(crate) fn program(&self) -> &Program {
        &self.prepared.program
    }
}

/// Of a copy that could not start, while others of its event may have.
fn report_of_refused(ready: &Ready<'_>, error: &Error) -> CopyReport {
    let plan = &ready.prepared.plan;
    let cause = match error {
        Error::Channel(cause) => cause.clone(),
        other => ChannelError::new(ChannelErrorKind::Io, other.to_string()),
    };
    CopyReport::of_none(plan, TransferError { hop: 0, memory: plan.memories[0], cause })
}

fn submission(ready: &Ready<'_>, options: &CopyOptions) -> Submission {
    let side = |i: &Instance| (Arc::clone(&i.holding), i.place());
    let commits = ready.dst.holding.is_created && ready.dst.view.is_whole();
    Submission {
        prepared: Arc::clone(&ready.prepared),
        src: side(ready.src),
        dst: side(ready.dst),
        priority: Priority(options.priority),
        deadline: options.deadline,
        after: options.after.iter().chain(ready.ahead()).cloned().collect(),
        behind: None,
        commit: commits.then_some(Commit { sync: options.sync }),
    }
}
