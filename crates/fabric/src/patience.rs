use crate::config::MOST_RANKS;
use crate::fabric::Fabric;
use model::NodeId;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    static MOST: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// How long this thread waits, if not as long as a peer lives.
pub(crate) fn most() -> Option<Duration> {
    MOST.get()
}

/// While this lives, its thread gives up requests and puts once the peer has had no room for them, and has
/// said nothing either ([`Fabric::silence`]), for so long ([`Error::Silent`](crate::Error::Silent)): for
/// threads that serve several peers, of which one may be stopped. Replies, and others, wait as long as the
/// peer lives.
#[derive(Debug)]
#[must_use = "the thread is patient again once this is dropped"]
pub struct Patience {
    before: Option<Duration>,
    // It does not leave its thread.
    _here: PhantomData<*const ()>,
}

impl Patience {
    /// Waits no longer than `most` from now on.
    pub fn begin(most: Duration) -> Patience {
        Patience { before: MOST.replace(Some(most)), _here: PhantomData }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        MOST.set(self.before);
    }
}

/// When ranks were last heard.
#[derive(Debug)]
pub(crate) struct Heard {
    start: Instant,
    /// In milliseconds since the start.
    at: Vec<AtomicU64>,
}

impl Heard {
    pub(crate) fn new() -> Heard {
        let at = (0..MOST_RANKS).map(|_| AtomicU64::new(0)).collect();
        Heard { start: Instant::now(), at }
    }

    /// `from` has just been heard.
    pub(crate) fn note(&self, from: NodeId) {
        let now = self.start.elapsed().as_millis() as u64;
        self.at[from.0 as usize].store(now, Ordering::Relaxed);
    }

    /// How long ago that was; of one that was not, since the start.
    pub(crate) fn silence(&self, peer: NodeId) -> Duration {
        let heard = self.at.get(peer.0 as usize).map_or(0, |at| at.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(Duration::from_millis(heard))
    }
}

impl Fabric {
    /// How long ago a message of `peer` was taken, where ranks meet by a network; of one that sent none, and
    /// where they don't, for how long this fabric has been there.
    #[must_use]
    pub fn silence(&self, peer: NodeId) -> Duration {
        self.heard.silence(peer)
    }
}
