use crate::error::Error;
use crate::fabric::Fabric;
use crate::remote::{Answer, Ticket};
use model::{NdCopy, NodeId};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The bytes that are asked for at once of many that are waited for, and how often before the first
/// have come.
const TURN_BYTES: usize = 1 << 20;
const TURNS: usize = 4;

/// Puts and gets that may go on (GASNet's explicit handle).
///
/// What a get brings is in its buffer once this is over, and not before. Where this is dropped sooner,
/// puts go on, nobody hears what became of them, and gets bring nothing.
#[must_use = "a get is over when it was waited for"]
#[derive(Debug)]
pub struct Handle<'a> {
    fabric: &'a Fabric,
    pending: Vec<Pending<'a>>,
    /// Why the first one failed, to be told when all are over.
    failed: Option<Error>,
}

#[derive(Debug)]
struct Pending<'a> {
    ticket: Ticket<'a>,
    into: &'a mut [u8],
    how: How,
}

/// How an answer goes where it belongs.
#[derive(Debug)]
enum How {
    /// As it is.
    Whole,
    /// By copies, each of what lies from some byte of the answer on, to where offset 0 is this.
    Unpacked(Vec<(NdCopy, usize)>, usize),
}

impl Pending<'_> {
    fn take(&mut self, bytes: &[u8]) {
        match &self.how {
            How::Whole => self.into[..bytes.len()].copy_from_slice(bytes),
            How::Unpacked(copies, base) => {
                for (copy, at) in copies {
                    kernels::copy_slices(copy, bytes, *at, self.into, *base)
                        .expect("a part of what was checked");
                }
            }
        }
    }
}

impl<'a> Handle<'a> {
    /// Of what is over.
    #[inline]
    pub(crate) fn over(fabric: &'a Fabric) -> Handle<'a> {
        Handle { fabric, pending: Vec::new(), failed: None }
    }

    /// Of what was asked, whose answer goes to `into`.
    pub(crate) fn of(fabric: &'a Fabric, ticket: Ticket<'a>, into: &'a mut [u8]) -> Handle<'a> {
        let pending = vec![Pending { ticket, into, how: How::Whole }];
        Handle { fabric, pending, failed: None }
    }

    /// Of what was asked, whose answer goes to `into` by these copies.
    pub(crate) fn unpacking(
        fabric: &'a Fabric,
        ticket: Ticket<'a>,
        copies: Vec<(NdCopy, usize)>,
        (into, base): (&'a mut [u8], usize),
    ) -> Handle<'a> {
        let pending = vec![Pending { ticket, into, how: How::Unpacked(copies, base) }];
        Handle { fabric, pending, failed: None }
    }

    /// Waits for `other` too, of the same fabric.
    #[inline]
    pub fn join(&mut self, mut other: Handle<'a>) {
        // As where memory is mapped.
        if other.is_over() {
            return;
        }
        self.pending.append(&mut other.pending);
        self.failed = self.failed.take().or(other.failed);
    }

    /// Whether it is over, as far as is known without looking.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.pending.is_empty() && self.failed.is_none()
    }

    /// Polls, and returns whether it is over.
    ///
    /// # Errors
    /// [`Error::PeerLost`], once, when all are over or will never be; [`Error::InHandler`].
    pub fn try_wait(&mut self) -> Result<bool, Error> {
        self.fabric.outside("wait")?;
        self.fabric.poll();
        self.settle()
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// As [`Handle::try_wait`]; [`Error::Timeout`] after `most`, and it goes on.
    pub fn wait(&mut self, most: Option<Duration>) -> Result<(), Error> {
        let fabric = self.fabric;
        fabric.wait_while_not(most, self, Handle::settle, Handle::has_news)
    }

    /// Takes what has come, and returns whether that was all.
    fn settle(&mut self) -> Result<bool, Error> {
        while let Some(last) = self.pending.last_mut() {
            match last.ticket.settle() {
                Ok(None) => return Ok(false),
                Ok(Some(Answer { bytes, .. })) => last.take(&bytes),
                Err(error) => self.failed = self.failed.take().or(Some(error)),
            }
            self.pending.pop();
        }
        self.failed.take().map_or(Ok(true), Err)
    }

    /// Whether [`Handle::try_wait`] would find out something, as far as is known without looking: what
    /// a thread waits for that waits for other things too, by [`Fabric::wait_until`].
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.pending.last().is_none_or(|last| last.ticket.is_over())
    }
}

/// What of a [`Region`] is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Puts and fills.
    Puts,
    /// Gets.
    Gets,
    /// Both.
    All,
}

/// Puts and gets that are waited for together: GASNet's implicit handles, and its access regions.
///
/// A thread's implicit operations are those of a region that it keeps; an access region is one that
/// [ends](Region::end) in a [`Handle`].
#[derive(Debug)]
pub struct Region<'a> {
    puts: Handle<'a>,
    gets: Handle<'a>,
}

impl<'a> Region<'a> {
    /// As [`Fabric::put_nb`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn put(&mut self, to: NodeId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let fabric = self.puts.fabric;
        // Over at once, which a handle would say in more time than it takes.
        if fabric.reaches(to) {
            return fabric.put(to, at, bytes);
        }
        self.puts.join(fabric.put_nb(to, at, bytes)?);
        Ok(())
    }

    /// As [`Fabric::fill_nb`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, to: NodeId, place: (u64, usize), value: u8) -> Result<(), Error> {
        self.puts.join(self.puts.fabric.fill_nb(to, place, value)?);
        Ok(())
    }

    /// As [`Fabric::get_nb`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn get(&mut self, from: NodeId, at: u64, into: &'a mut [u8]) -> Result<(), Error> {
        let fabric = self.gets.fabric;
        // As for a put.
        if fabric.reaches(from) {
            return fabric.get(from, at, into);
        }
        self.gets.join(fabric.get_nb(from, at, into)?);
        Ok(())
    }

    /// As [`Fabric::put_copies`].
    ///
    /// # Errors
    /// As there.
    pub fn put_copies(
        &mut self,
        to: NodeId,
        copies: &[NdCopy],
        src: (&[u8], usize),
        at: u64,
    ) -> Result<(), Error> {
        self.puts.join(self.puts.fabric.put_copies(to, copies, src, at)?);
        Ok(())
    }

    /// As [`Fabric::get_copies`].
    ///
    /// # Errors
    /// As there.
    pub fn get_copies(
        &mut self,
        from: NodeId,
        copies: &[NdCopy],
        at: u64,
        dst: (&'a mut [u8], usize),
    ) -> Result<(), Error> {
        self.gets.join(self.gets.fabric.get_copies(from, copies, at, dst)?);
        Ok(())
    }

    /// Polls, and returns whether those are over.
    ///
    /// # Errors
    /// As [`Handle::try_wait`].
    pub fn try_wait(&mut self, which: Which) -> Result<bool, Error> {
        let puts = which == Which::Gets || self.puts.try_wait()?;
        let gets = which == Which::Puts || self.gets.try_wait()?;
        Ok(puts && gets)
    }

    /// Waits until those are over.
    ///
    /// # Errors
    /// As [`Handle::wait`].
    pub fn wait(&mut self, which: Which, most: Option<Duration>) -> Result<(), Error> {
        let start = Instant::now();
        if which != Which::Gets {
            self.puts.wait(most)?;
        }
        if which != Which::Puts {
            self.gets.wait(most.map(|most| most.saturating_sub(start.elapsed())))?;
        }
        Ok(())
    }

    /// All of them as one handle.
    pub fn end(mut self) -> Handle<'a> {
        self.puts.join(self.gets);
        self.puts
    }
}

impl Fabric {
    /// Copies `bytes`, which may be reused at once, to byte `at` of the segment of `to`.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    pub fn put_nb(&self, to: NodeId, at: u64, bytes: &[u8]) -> Result<Handle<'_>, Error> {
        match self.mapped(to) {
            Some(segment) => {
                segment.write(at, bytes).ok_or_else(|| self.beyond(to, at, bytes.len()))?;
                Ok(Handle::over(self))
            }
            None => Ok(Handle::of(self, self.ask_put(to, at, bytes)?, &mut [])),
        }
    }

    /// Copies what is from byte `at` on of the segment of `from` to `into`.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    pub fn get_nb<'a>(
        &'a self,
        from: NodeId,
        at: u64,
        into: &'a mut [u8],
    ) -> Result<Handle<'a>, Error> {
        match self.mapped(from) {
            Some(segment) => {
                let bytes = into.len();
                segment.read(at, into).ok_or_else(|| self.beyond(from, at, bytes))?;
                self.check_still(from)?;
                Ok(Handle::over(self))
            }
            None => Ok(Handle::of(self, self.ask_get(from, at, into.len())?, into)),
        }
    }

    /// As [`Fabric::get`] of what is not mapped. A get holds what it brings until it was waited for, so
    /// that much is asked for in turns.
    pub(crate) fn get_in_turns(&self, from: NodeId, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(from, at, into.len())?;
        let mut turns = VecDeque::with_capacity(TURNS);
        let starts = (at..).step_by(TURN_BYTES);
        for (at, some) in starts.zip(into.chunks_mut(TURN_BYTES)) {
            if turns.len() == TURNS {
                turns.pop_front().map_or(Ok(()), |mut turn: Handle<'_>| turn.wait(None))?;
            }
            turns.push_back(self.get_nb(from, at, some)?);
        }
        turns.into_iter().try_for_each(|mut turn| turn.wait(None))
    }

    /// Sets so many bytes from a place on of the segment of `to`.
    ///
    /// # Errors
    /// As [`Fabric::put`].
    pub fn fill_nb(
        &self,
        to: NodeId,
        (at, bytes): (u64, usize),
        value: u8,
    ) -> Result<Handle<'_>, Error> {
        match self.mapped(to) {
            Some(segment) => {
                segment.fill(at, bytes, value).ok_or_else(|| self.beyond(to, at, bytes))?;
                Ok(Handle::over(self))
            }
            None => Ok(Handle::of(self, self.ask_fill(to, (at, bytes), value)?, &mut [])),
        }
    }

    /// A region of no puts or gets yet.
    #[must_use]
    pub fn region(&self) -> Region<'_> {
        Region { puts: Handle::over(self), gets: Handle::over(self) }
    }

    /// Polls, and returns whether all of `handles` are over.
    ///
    /// # Errors
    /// As [`Handle::try_wait`], for the first of them that failed.
    pub fn try_all(&self, handles: &mut [Handle<'_>]) -> Result<bool, Error> {
        self.outside("wait")?;
        self.poll();
        all_settle(handles)
    }

    /// Polls, and returns whether one of `handles` that was not over is, or all were.
    ///
    /// # Errors
    /// As [`Handle::try_wait`], for the first of them that failed.
    pub fn try_some(&self, handles: &mut [Handle<'_>]) -> Result<bool, Error> {
        self.outside("wait")?;
        self.poll();
        some_settle(handles)
    }

    /// Waits until all of `handles` are over.
    ///
    /// # Errors
    /// As [`Handle::wait`], for the first of them that failed.
    pub fn wait_all(
        &self,
        handles: &mut [Handle<'_>],
        most: Option<Duration>,
    ) -> Result<(), Error> {
        let has_news =
            |all: &[Handle<'_>]| all.iter().find(|h| !h.is_over()).is_none_or(Handle::has_news);
        self.wait_while_not(most, handles, all_settle, has_news)
    }

    /// Waits until one of `handles` that is not over is; not at all if they all are.
    ///
    /// # Errors
    /// As [`Handle::wait`], for the first of them that failed.
    pub fn wait_some(
        &self,
        handles: &mut [Handle<'_>],
        most: Option<Duration>,
    ) -> Result<(), Error> {
        let has_news = |all: &[Handle<'_>]| all.iter().any(|h| !h.is_over() && h.has_news());
        self.wait_while_not(most, handles, some_settle, has_news)
    }

    /// Calls `settle` whenever `has_news`, until it says that all is over.
    fn wait_while_not<T: ?Sized>(
        &self,
        most: Option<Duration>,
        what: &mut T,
        settle: impl Fn(&mut T) -> Result<bool, Error>,
        has_news: impl Fn(&T) -> bool,
    ) -> Result<(), Error> {
        self.outside("wait")?;
        let start = Instant::now();
        while !settle(what)? {
            let left = most.map(|most| most.saturating_sub(start.elapsed()));
            self.wait_until(left, || has_news(what))?;
        }
        Ok(())
    }
}

fn all_settle(handles: &mut [Handle<'_>]) -> Result<bool, Error> {
    handles.iter_mut().try_fold(true, |all, handle| Ok(all && handle.settle()?))
}

fn some_settle(handles: &mut [Handle<'_>]) -> Result<bool, Error> {
    let mut open = handles.iter_mut().filter(|handle| !handle.is_over()).peekable();
    let none = open.peek().is_none();
    open.try_fold(none, |any, handle| Ok(any || handle.settle()?))
}
