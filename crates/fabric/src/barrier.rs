//! Barriers, split in two: a rank says that it has come, and waits for all others later.
//!
//! In round `k` a rank tells the one `2^k` further on what it knows, and waits for the one `2^k`
//! before it; after log2 of their number, rounded up, all know of all. What they know is whether the
//! ids that were given agree. A barrier's messages may come before its rank has come to it, so those
//! of two barriers are kept; no one comes to the second before all have come to the first. Barriers are
//! of the ranks that were there at the start.

use crate::active::Call;
use crate::conduit::{Lost, Queue};
use crate::error::Error;
use crate::fabric::Fabric;
use crate::message::{Message, Payload};
use model::NodeId;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The index of the handler of this.
pub(crate) const HANDLER: u8 = 0;

/// Who may meet at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Whoever comes.
    Anonymous,
    /// Those that come anonymously or with this id.
    Named(u32),
}

/// What is known of the ids of some ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// They agree.
    Agreed(Barrier),
    /// They don't.
    Mismatch,
}

impl Known {
    fn and(self, other: Known) -> Known {
        match (self, other) {
            (Known::Agreed(Barrier::Anonymous), known) => known,
            (known, Known::Agreed(Barrier::Anonymous)) => known,
            (one, other) if one == other => one,
            _ => Known::Mismatch,
        }
    }

    fn words(self) -> [u32; 2] {
        match self {
            Known::Agreed(Barrier::Anonymous) => [0, 0],
            Known::Agreed(Barrier::Named(id)) => [1, id],
            Known::Mismatch => [2, 0],
        }
    }

    fn of([kind, id]: [u32; 2]) -> Known {
        match kind {
            0 => Known::Agreed(Barrier::Anonymous),
            1 => Known::Agreed(Barrier::Named(id)),
            _ => Known::Mismatch,
        }
    }
}

/// The barrier that a rank is at.
#[derive(Debug)]
pub(crate) struct Rounds {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Which of the two whose messages are kept.
    parity: usize,
    /// What is known, and the round that is waited for, between coming and leaving.
    at: Option<(Known, usize)>,
    /// What others said, by parity and round.
    heard: [Vec<Option<Known>>; 2],
}

impl Rounds {
    pub(crate) fn new(founders: u32) -> Rounds {
        let rounds = founders.next_power_of_two().ilog2() as usize;
        let heard = [vec![None; rounds], vec![None; rounds]];
        Rounds { state: Mutex::new(State { parity: 0, at: None, heard }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the message that is waited for has come.
    fn has_heard(&self) -> bool {
        let state = self.lock();
        let round = state.at.map_or(0, |(_, round)| round);
        state.heard[state.parity].get(round).is_none_or(Option::is_some)
    }
}

/// Hears what another rank knows.
pub(crate) fn arrived(call: &Call<'_>) {
    let &[parity, round, kind, id] = call.args() else { return };
    if call.source().0 >= call.fabric().founders() {
        return;
    }
    let mut state = call.fabric().rounds().lock();
    let heard = state.heard.get_mut(parity as usize);
    if let Some(heard) = heard.and_then(|heard| heard.get_mut(round as usize)) {
        *heard = Some(Known::of([kind, id]));
    }
}

impl Fabric {
    /// Says that this rank has come to a barrier.
    ///
    /// # Errors
    /// [`Error::PeerLost`]; [`Error::InHandler`] in a handler; [`Error::Late`] where this rank was not
    /// there at the start.
    ///
    /// # Panics
    /// Where it has come already, and not left by [`Fabric::barrier_try`] or
    /// [`Fabric::barrier_wait`].
    pub fn barrier_notify(&self, barrier: Barrier) -> Result<(), Error> {
        self.outside("come to barriers")?;
        self.check_founder(self.rank())?;
        let known = Known::Agreed(barrier);
        let parity = {
            let mut state = self.rounds().lock();
            assert!(state.at.is_none(), "this rank has come to the barrier already");
            state.at = Some((known, 0));
            state.parity
        };
        self.tell((parity, 0), known)
    }

    /// Leaves the barrier if all have come, and says whether they have. `barrier` is as it was on
    /// coming.
    ///
    /// # Errors
    /// [`Error::BarrierMismatch`], once all have come with different ids; [`Error::PeerLost`] while
    /// someone who has not come is lost.
    ///
    /// # Panics
    /// Where this rank has not come.
    pub fn barrier_try(&self, barrier: Barrier) -> Result<bool, Error> {
        self.poll();
        self.advance(barrier)
    }

    /// Waits until all have come, and leaves.
    ///
    /// # Errors
    /// As [`Fabric::barrier_try`]; [`Error::Timeout`] after `most`.
    ///
    /// # Panics
    /// As [`Fabric::barrier_try`].
    pub fn barrier_wait(&self, barrier: Barrier, most: Option<Duration>) -> Result<(), Error> {
        while !self.advance(barrier)? {
            self.wait_until(most, || self.rounds().has_heard() || self.is_stuck().is_some())?;
        }
        Ok(())
    }

    /// Comes to an anonymous barrier and waits for all others.
    ///
    /// # Errors
    /// As [`Fabric::barrier_notify`] and [`Fabric::barrier_wait`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.barrier_notify(Barrier::Anonymous)?;
        self.barrier_wait(Barrier::Anonymous, None)
    }

    /// Takes what was heard, and tells the next round of it; returns whether all have come.
    fn advance(&self, barrier: Barrier) -> Result<bool, Error> {
        loop {
            let (step, known) = {
                let mut state = self.rounds().lock();
                let (known, round) = state.at.expect("this rank has come to a barrier");
                let parity = state.parity;
                let Some(heard) = state.heard[parity].get_mut(round) else {
                    (state.at, state.parity) = (None, 1 - parity);
                    return settle(known.and(Known::Agreed(barrier)), barrier).map(|()| true);
                };
                let Some(heard) = heard.take() else { break };
                let known = known.and(heard);
                state.at = Some((known, round + 1));
                ((parity, round + 1), known)
            };
            self.tell(step, known)?;
        }
        match self.is_stuck() {
            // What it had sent before may not have been heard yet.
            Some(_) if self.poll() > 0 || self.rounds().has_heard() => self.advance(barrier),
            Some(peer) => Err(self.lost_error(peer)),
            None => Ok(false),
        }
    }

    /// Tells the rank of a round what is known, if there is such a round.
    fn tell(&self, (parity, round): (usize, usize), known: Known) -> Result<(), Error> {
        let distance = 1_u32.checked_shl(round as u32).filter(|&d| d < self.founders());
        let Some(distance) = distance else { return Ok(()) };
        let to = NodeId((self.rank().0 + distance) % self.founders());
        let [kind, id] = known.words();
        let args = [parity as u32, round as u32, kind, id];
        let message = Message { handler: HANDLER, args: &args, payload: Payload::None, rest: &[] };
        self.send(to, Queue::Request, &message)
    }

    /// Who will not come: one that died, or that left although it was to tell this rank something.
    fn is_stuck(&self) -> Option<NodeId> {
        let round = self.rounds().lock().at.map_or(0, |(_, round)| round);
        let (size, distance) = (self.founders(), 1_u32.checked_shl(round as u32).unwrap_or(0));
        let teller = (self.rank().0 + size - distance % size) % size;
        let will_not = |peer: &NodeId| match self.lost(*peer) {
            Some(Lost::Died | Lost::Broken) => true,
            Some(Lost::Left) => peer.0 == teller,
            None => false,
        };
        (0..size).map(NodeId).find(will_not)
    }
}

fn settle(known: Known, barrier: Barrier) -> Result<(), Error> {
    match (known, barrier) {
        (Known::Agreed(_), _) => Ok(()),
        (_, Barrier::Named(id)) => Err(Error::BarrierMismatch { id: Some(id) }),
        (_, Barrier::Anonymous) => Err(Error::BarrierMismatch { id: None }),
    }
}
