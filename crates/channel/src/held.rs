//! How many requests a channel holds.

use crate::{DoneQueue, Job};
use model::Completion;

/// Counts the requests that a channel has taken and not yet told of.
///
/// Invariant: they are never more than the channel takes at once.
#[derive(Debug)]
pub struct Held {
    most: u32,
    count: u32,
}

impl Held {
    /// None yet, and at most `most` at once.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Held { most, count: 0 }
    }

    /// The most at once.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Counts `job`, or gives it back while as many are held as may be.
    ///
    /// # Errors
    /// The job itself.
    pub fn take(&mut self, job: Job) -> Result<Job, Job> {
        if self.count == self.most {
            return Err(job);
        }
        self.count += 1;
        Ok(job)
    }

    /// Counts `told` as no longer held.
    ///
    /// # Panics
    /// Where fewer were held.
    pub fn tell(&mut self, told: usize) {
        let told = u32::try_from(told).ok();
        let left = told.and_then(|told| self.count.checked_sub(told));
        self.count = left.expect("no more than were held");
    }

    /// Appends what has come to `queue` to `done`; none of it is held any more.
    ///
    /// # Panics
    /// Where fewer were held.
    pub fn poll(&mut self, queue: &DoneQueue<Completion>, done: &mut Vec<Completion>) {
        let first = done.len();
        queue.bell().clear();
        queue.take(done);
        self.tell(done.len() - first);
    }

    /// Blocks until all that are held have come to `queue`, where they stay.
    pub fn drain(&self, queue: &DoneQueue<Completion>) {
        let mut done = Vec::new();
        while done.len() < self.count as usize {
            queue.bell().wait();
            queue.bell().clear();
            queue.take(&mut done);
        }
        done.into_iter().for_each(|completion| queue.push(completion));
    }
}
