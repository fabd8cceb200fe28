//! Memory of others that is pinned only where it is used: GASNet's Firehose, a distributed cache of
//! registrations, and the strategies that it is measured against.
//!
//! **Hazard.** A network reaches pinned memory only; all of it does not fit into what may be pinned,
//! and to pin some for each put costs a round trip and the system's time. **Guarantee.** What is in use
//! is pinned, and a rank never has more pinned than [`Settings::lent_bytes`] and
//! [`Settings::victim_bytes`] together, whatever its peers do. Who comes back to where it was asks
//! nobody. **Structure.** Each rank gives every other control of a part of what it may pin: a
//! *firehose* is a bucket of a peer's memory that this rank knows to be pinned (`hoses`). A miss moves
//! one that was not used for longest, by a message; the owner (`buckets`) counts who needs a bucket,
//! and keeps what nobody needs pinned too, as victims, until there is no room. Both are tables without
//! threads, locks or messages; `state` carries what they say. The work of a hit or a miss does not
//! grow with what is pinned.

mod arena;
mod buckets;
mod hoses;
mod registration;
mod run;
mod settings;
mod state;
#[cfg(test)]
mod tests;

pub use registration::{Mlock, Registration};
pub use settings::{Settings, Strategy};

use crate::active::Handlers;
use crate::conduit::Conduit;
use crate::config::Config;
use crate::error::Error;
use crate::fabric::Fabric;
use crate::handle::Handle;
use crate::shm::Shm;
use hoses::{Acquired, Failure};
use model::NodeId;
use run::Run;
use state::State;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was counted since the start. All but `victim_hits`, `evictions` and bytes are of buckets that
/// this rank needed, each time that it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Of others: nobody was asked, since they were known to be pinned.
    pub hits: u64,
    /// Their owner was asked.
    pub misses: u64,
    /// Their owner had been asked already, and not yet answered.
    pub joined: u64,
    /// Buckets that this rank may have pinned in place of others, which did not use them.
    pub stolen: u64,
    /// Of its own: they were pinned.
    pub local_hits: u64,
    /// They were not.
    pub local_misses: u64,
    /// Buckets of its own that others asked for while nobody needed them and they were still pinned.
    pub victim_hits: u64,
    /// Buckets of its own that were unpinned.
    pub evictions: u64,
    /// What is pinned of its memory.
    pub pinned_bytes: u64,
    /// The most that was.
    pub peak_bytes: u64,
}

/// Ranks that pin what they put to and get from, by one of several [`Strategy`]s.
///
/// It is of the ranks that were there at the start. As for any [`Fabric`], somebody at the other end has
/// to poll where it is asked to pin. All methods may be called by any thread. What is pinned when it is
/// dropped stays so until the memory is gone.
pub struct Firehose {
    fabric: Arc<Fabric>,
    state: Arc<State>,
    strategy: Strategy,
    bucket_bytes: u64,
    /// The most buckets that one hold has: of others, and of its own.
    most: u64,
    most_own: u64,
}

impl fmt::Debug for Firehose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Firehose");
        f.field("strategy", &self.strategy).field("bucket_bytes", &self.bucket_bytes);
        f.field("rank", &self.fabric.rank()).finish_non_exhaustive()
    }
}

impl Firehose {
    /// Joins the ranks that `config` speaks of, all of which join so with the same `settings`.
    ///
    /// # Errors
    /// As [`Shm::join`]; [`Error::Config`] for settings that can't be; [`Error::Unpinned`] where
    /// everything is to be pinned and can't be; [`Error::Late`] where this rank was not there at the
    /// start.
    pub fn join(
        config: &Config,
        handlers: Handlers,
        settings: &Settings,
        registration: Arc<dyn Registration>,
    ) -> Result<Firehose, Error> {
        settings.check(config.size.max(1))?;
        Firehose::over(Box::new(Shm::join(config)?), handlers, settings, registration)
    }

    /// The same over any conduit.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Unpinned`], [`Error::Late`].
    pub fn over(
        conduit: Box<dyn Conduit>,
        handlers: Handlers,
        settings: &Settings,
        registration: Arc<dyn Registration>,
    ) -> Result<Firehose, Error> {
        let state = Arc::new(State::new(&*conduit, settings, registration)?);
        let fabric = Arc::new(Fabric::over(conduit, state.handlers(handlers)));
        let buckets = fabric.segment().bytes().div_ceil(settings.bucket_bytes);
        if settings.strategy == Strategy::Everything && buckets > 0 {
            let all = state.hold_own(fabric.segment(), Run { start: 0, count: buckets });
            all.unwrap_or(Ok(())).map_err(|source| unpinned(fabric.rank(), source))?;
        }
        let most = state.hoses().rules().most();
        Ok(Firehose {
            fabric,
            state,
            strategy: settings.strategy,
            bucket_bytes: settings.bucket_bytes,
            most,
            most_own: settings.budget(buckets).kept,
        })
    }

    /// What it goes by.
    #[must_use]
    pub fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    /// Copies `bytes` to byte `at` of the segment of `to`, which need not be pinned before; it is there
    /// on return.
    ///
    /// # Errors
    /// As [`Fabric::put`]; [`Error::Unpinned`] where its owner can't pin it, and a part of it may be
    /// there; [`Error::InHandler`] where that has to be asked.
    pub fn put(&self, to: NodeId, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match self.strategy {
            // No network comes between a rank and itself.
            _ if to == self.fabric.rank() => self.fabric.put(to, at, bytes),
            Strategy::Everything => self.fabric.put(to, at, bytes),
            Strategy::Bounce => {
                let ticket = self.fabric.ask_put(to, at, bytes)?;
                Handle::of(&self.fabric, ticket, &mut []).wait(None)
            }
            _ => self.by_pieces(to, (at, bytes.len()), |at, piece| {
                self.fabric.put(to, at, &bytes[piece])
            }),
        }
    }

    /// Copies what is from byte `at` on of the segment of `from` to `into`.
    ///
    /// # Errors
    /// As [`Firehose::put`].
    pub fn get(&self, from: NodeId, at: u64, into: &mut [u8]) -> Result<(), Error> {
        match self.strategy {
            _ if from == self.fabric.rank() => self.fabric.get(from, at, into),
            Strategy::Everything => self.fabric.get(from, at, into),
            Strategy::Bounce => {
                let ticket = self.fabric.ask_get(from, at, into.len())?;
                Handle::of(&self.fabric, ticket, into).wait(None)
            }
            _ => self.by_pieces(from, (at, into.len()), |at, piece| {
                self.fabric.get(from, at, &mut into[piece])
            }),
        }
    }

    /// Has so many bytes from `at` on of a rank's segment pinned, this one's too, for as long as the
    /// hold lives; nobody waits here. They are pinned once it was waited for.
    ///
    /// Whoever waits for one while it holds others may wait for ever, where all that may be pinned is
    /// held by those who wait.
    ///
    /// # Errors
    /// As [`Fabric::put`]; [`Error::Late`] for one that was not there at the start;
    /// [`Error::TooMuch`] for more than [`Firehose::most_bytes`];
    /// [`Error::Unpinned`] where this rank's own can't be; [`Error::InHandler`] where somebody has to
    /// be asked.
    pub fn hold(&self, of: NodeId, at: u64, bytes: usize) -> Result<Hold<'_>, Error> {
        self.fabric.check(of, at, bytes)?;
        self.fabric.check_founder(of)?;
        let run = Run::over((at, bytes as u64), self.bucket_bytes);
        let is_own = of == self.fabric.rank();
        let most = if is_own { self.most_own } else { self.most };
        let is_free = !is_own && matches!(self.strategy, Strategy::Everything | Strategy::Bounce);
        let part = match is_own {
            _ if is_free || bytes == 0 => Part::None,
            _ if run.count > most => {
                let (bytes, most) = (run.count * self.bucket_bytes, most * self.bucket_bytes);
                return Err(Error::TooMuch { bytes, most });
            }
            true => self.hold_own(run)?,
            false => self.hold_of(of, run)?,
        };
        Ok(Hold { firehose: self, of, run, part })
    }

    /// The most bytes that a hold of a peer's memory may have, where they start a bucket; puts and gets
    /// may be of any size.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        self.most * self.bucket_bytes
    }

    /// What was counted so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.state.notice_lost(&self.fabric);
        let counts = self.state.hoses().counts();
        let buckets = self.state.buckets();
        let done = buckets.done();
        Statistics {
            hits: counts.hits,
            misses: counts.misses,
            joined: counts.joined,
            stolen: counts.stolen,
            local_hits: done.local_hits,
            local_misses: done.local_misses,
            victim_hits: done.victim_hits,
            evictions: done.unpins,
            pinned_bytes: buckets.pinned() * self.bucket_bytes,
            peak_bytes: done.peak * self.bucket_bytes,
        }
    }

    fn hold_own(&self, run: Run) -> Result<Part, Error> {
        match self.state.hold_own(self.fabric.segment(), run) {
            None => Ok(Part::Wanted),
            Some(Ok(())) => Ok(Part::Held),
            Some(Err(source)) => Err(unpinned(self.fabric.rank(), source)),
        }
    }

    fn hold_of(&self, of: NodeId, run: Run) -> Result<Part, Error> {
        let acquired = self.state.hoses().acquire(of, run);
        match acquired.map_err(|failure| self.failed(of, failure))? {
            Acquired::Now => Ok(Part::Held),
            Acquired::Later(id) => {
                if let Err(error) = self.fabric.outside("ask for memory to be pinned") {
                    self.state.hoses().leave(id);
                    return Err(error);
                }
                self.state.flush(&self.fabric);
                Ok(Part::Asked(id))
            }
        }
    }

    /// Calls `copy` for one piece after the other, with where it starts and what of the bytes it is,
    /// while it is pinned; the next one is asked for meanwhile.
    fn by_pieces(
        &self,
        of: NodeId,
        (at, bytes): (u64, usize),
        mut copy: impl FnMut(u64, Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.fabric.check(of, at, bytes)?;
        let mut done = 0;
        let mut next = || -> Result<_, Error> {
            if done == bytes {
                return Ok(None);
            }
            let start = at + done as u64;
            let end = (start / self.bucket_bytes + self.most) * self.bucket_bytes;
            let piece = done..bytes.min(done + (end - start) as usize);
            done = piece.end;
            Ok(Some((self.hold(of, start, piece.len())?, start, piece)))
        };
        let mut ahead = next()?;
        while let Some((mut hold, start, piece)) = ahead {
            ahead = next()?;
            hold.wait(None)?;
            copy(start, piece)?;
        }
        Ok(())
    }

    fn failed(&self, of: NodeId, failure: Failure) -> Error {
        match failure {
            Failure::Lost => self.fabric.lost_error(of),
            Failure::Refused(errno) => unpinned(of, io::Error::from_raw_os_error(errno)),
        }
    }
}

fn unpinned(peer: NodeId, source: io::Error) -> Error {
    Error::Unpinned { peer, source }
}

/// Memory that is pinned, once this was waited for, until it is dropped.
#[must_use = "memory is pinned while this lives"]
#[derive(Debug)]
pub struct Hold<'a> {
    firehose: &'a Firehose,
    of: NodeId,
    run: Run,
    part: Part,
}

/// How far a hold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It has nothing to hold.
    None,
    Held,
    /// Its owner was asked, or will be.
    Asked(u32),
    /// It waits for this rank to hold less of its own.
    Wanted,
}

impl Hold<'_> {
    /// Whether the memory is pinned, as far as is known without looking.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.part, Part::None | Part::Held)
    }

    /// Polls, and returns whether the memory is pinned.
    ///
    /// # Errors
    /// [`Error::PeerLost`]; [`Error::Unpinned`] where the owner can't pin it. Both come once, and the
    /// hold then holds nothing. [`Error::InHandler`].
    pub fn try_wait(&mut self) -> Result<bool, Error> {
        if self.is_held() {
            return Ok(true);
        }
        self.firehose.fabric.outside("wait")?;
        self.firehose.fabric.poll();
        self.settle()
    }

    /// Waits until the memory is pinned.
    ///
    /// # Errors
    /// As [`Hold::try_wait`]; [`Error::Timeout`] after `most`, and it goes on.
    #[inline]
    pub fn wait(&mut self, most: Option<Duration>) -> Result<(), Error> {
        if self.is_held() { Ok(()) } else { self.wait_long(most) }
    }

    fn wait_long(&mut self, most: Option<Duration>) -> Result<(), Error> {
        let (firehose, start) = (self.firehose, Instant::now());
        let _waits = (self.part == Part::Wanted).then(|| firehose.state.wait_for_room());
        while !self.settle()? {
            let left = most.map(|most| most.saturating_sub(start.elapsed()));
            firehose.fabric.wait_until(left, || self.has_news())?;
        }
        Ok(())
    }

    /// Takes what has come, and returns whether the memory is pinned.
    fn settle(&mut self) -> Result<bool, Error> {
        let Firehose { fabric, state, .. } = self.firehose;
        match self.part {
            Part::None | Part::Held => {}
            Part::Wanted => {
                self.part = Part::None;
                self.part = self.firehose.hold_own(self.run)?;
            }
            Part::Asked(id) => {
                state.notice_lost(fabric);
                state.flush(fabric);
                let outcome = state.hoses().outcome(id);
                match outcome {
                    None => {}
                    Some(Ok(())) => self.part = Part::Held,
                    Some(Err(failure)) => {
                        self.part = Part::None;
                        return Err(self.firehose.failed(self.of, failure));
                    }
                }
            }
        }
        Ok(self.is_held())
    }

    /// Whether [`Hold::settle`] would do something.
    fn has_news(&self) -> bool {
        let Firehose { fabric, state, .. } = self.firehose;
        match self.part {
            Part::None | Part::Held => true,
            Part::Wanted => state.buckets().has_room(self.run),
            Part::Asked(id) => {
                let hoses = state.hoses();
                hoses.is_over(id) || hoses.has_request() || fabric.lost(self.of).is_some()
            }
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let Firehose { fabric, state, .. } = self.firehose;
        match self.part {
            Part::None | Part::Wanted => {}
            Part::Asked(id) => {
                state.hoses().leave(id);
                // Others may get what this would have.
                fabric.wake();
            }
            Part::Held if self.of == fabric.rank() => state.let_go_own(fabric, self.run),
            Part::Held => {
                let has_served = state.hoses().release(self.of, self.run);
                if has_served {
                    fabric.wake();
                }
            }
        }
    }
}
