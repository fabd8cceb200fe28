//! Taking what comes, and waiting for it.

use crate::conduit::{QUEUES, Queue};
use crate::error::Error;
use crate::fabric::Fabric;
use crate::held::{self, NoInterrupt};
use crate::message::Message;
use model::NodeId;
use std::time::{Duration, Instant};

/// Looks at the clock, and at all that may have come, once in so many polls.
const POLLS: u32 = 16;

impl Fabric {
    /// Runs the handlers of messages that have come, and returns how many; none in a handler or a
    /// [`NoInterrupt`] section.
    pub fn poll(&self) -> usize {
        self.look(false)
    }

    /// As [`Fabric::poll`], unless that is a glance, which may leave out what takes long to look at.
    fn look(&self, is_glance: bool) -> usize {
        if held::is_held() {
            return 0;
        }
        QUEUES.iter().map(|&queue| self.receive(queue, is_glance)).sum()
    }

    /// Polls, and then sleeps, until `is_over`, which is looked at after every message and whenever
    /// [`Fabric::wake`] is called.
    ///
    /// # Errors
    /// [`Error::Timeout`] where that takes longer than `most`; [`Error::InHandler`].
    pub fn wait_until(
        &self,
        most: Option<Duration>,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.wait(most, self.capabilities().spin, is_over)
    }

    /// As [`Fabric::wait_until`], but sleeps as soon as nothing comes: for threads that serve others,
    /// which may want the core.
    ///
    /// # Errors
    /// As [`Fabric::wait_until`].
    pub fn sleep_until(
        &self,
        most: Option<Duration>,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.wait(most, Duration::ZERO, is_over)
    }

    /// Polls for `spin` after each message before it sleeps.
    fn wait(
        &self,
        most: Option<Duration>,
        spin: Duration,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.outside("wait")?;
        let start = Instant::now();
        let mut idle_since = start;
        let mut polls = 0_u32;
        while !is_over() {
            polls = polls.wrapping_add(1);
            let is_glance = !spin.is_zero() && !polls.is_multiple_of(POLLS);
            if self.look(is_glance) > 0 {
                idle_since = Instant::now();
                continue;
            }
            if is_glance {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let left = most.map(|most| most.saturating_sub(now - start));
            if let Some(waited) = most.filter(|_| left == Some(Duration::ZERO)) {
                return Err(Error::Timeout { waited });
            }
            if now - idle_since >= spin {
                self.sleep(&QUEUES, &is_over, left);
            }
        }
        Ok(())
    }

    /// Wakes the threads that wait in [`Fabric::wait_until`], so that they look again.
    pub fn wake(&self) {
        self.conduit().wake();
    }

    /// Runs what has come, of the queues that are taken while `queue` has no room.
    pub(crate) fn drain(&self, queue: Queue) -> usize {
        drained(queue).iter().map(|&queue| self.receive(queue, false)).sum()
    }

    /// As [`Conduit::sleep`](crate::Conduit::sleep), but for what is another thread's turn to take until that is
    /// over.
    pub(crate) fn sleep(
        &self,
        queues: &[Queue],
        is_over: impl Fn() -> bool,
        most: Option<Duration>,
    ) {
        let is_missed = |queue: &&Queue| self.turn(**queue).is_missed();
        let (missed, taken): (Vec<Queue>, Vec<Queue>) = queues.iter().partition(is_missed);
        // It may have been over before this thread could be woken.
        let is_over = || is_over() || !missed.iter().all(|queue| is_missed(&queue));
        self.conduit().sleep(&taken, &is_over, most);
    }

    fn receive(&self, queue: Queue, is_glance: bool) -> usize {
        let Some(turn) = self.turn(queue).take(|| self.wake()) else { return 0 };
        let section = NoInterrupt::begin();
        let mut run = |from: NodeId, message: Message<'_>| {
            if self.conduit().puts().is_some() {
                self.heard.note(from);
            }
            self.run((from, queue), message);
        };
        let count = match is_glance {
            true => self.conduit().glance(queue, &mut run),
            false => self.conduit().receive(queue, &mut run),
        };
        drop((section, turn));
        if count > 0 {
            // Others may wait for what a handler did, or for what was left.
            self.conduit().wake();
        }
        count
    }
}

/// What a request waits for is that its receiver takes anything, which may wait for this rank; what a
/// reply waits for is only that its receiver takes replies.
pub(crate) fn drained(queue: Queue) -> &'static [Queue] {
    match queue {
        Queue::Request => &QUEUES,
        Queue::Reply => &[Queue::Reply],
    }
}
