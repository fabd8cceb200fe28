//! The simplest channel there is.

use crate::{Capabilities, Channel, Job};
use model::{ChannelError, Completion};
use std::os::fd::BorrowedFd;

/// A channel that works within [`Channel::submit`], by a function.
#[derive(Debug)]
pub struct Immediate<F> {
    carry_out: F,
    max_in_flight: u32,
    done: Vec<Completion>,
}

impl<F: FnMut(&Job) -> Result<(), ChannelError> + Send> Immediate<F> {
    /// One that holds so many requests, until they are asked for, and ends each as `carry_out` says.
    #[must_use]
    pub fn new(max_in_flight: u32, carry_out: F) -> Self {
        Immediate { carry_out, max_in_flight, done: Vec::new() }
    }
}

impl<F: FnMut(&Job) -> Result<(), ChannelError> + Send> Channel for Immediate<F> {
    fn capabilities(&self) -> Capabilities {
        let max_in_flight = self.max_in_flight;
        Capabilities { max_in_flight, commits: false, tells_late: false }
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        if self.done.len() == self.max_in_flight as usize {
            return Err(job);
        }
        let result = (self.carry_out)(&job);
        self.done.push(Completion { request: job.request, result });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn drain(&mut self) {}
}
