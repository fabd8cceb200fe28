//! A channel slowed down to a given rate, for tests and demonstrations of slow devices.

use crate::{Capabilities, Channel, Job};
use model::{Completion, RequestId, Time, Work};
use rustix::event::{epoll, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A channel whose completions come no faster than a rate: each request is held until the line,
/// which carries one after the other, would have carried it.
#[derive(Debug)]
pub struct Throttle<C, F> {
    inner: C,
    clock: F,
    bytes_per_second: f64,
    /// When the line has carried all that was submitted.
    line_free: Time,
    due: HashMap<RequestId, Time>,
    /// Ended in truth, not yet on the line's account.
    held: VecDeque<Completion>,
    timer: OwnedFd,
    /// Readable when the timer or the inner channel is.
    either: OwnedFd,
}

impl<C: Channel, F: Fn() -> Time + Send> Throttle<C, F> {
    /// `inner` at no more than `bytes_per_second`, by `clock`, whose seconds are real ones.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(inner: C, bytes_per_second: f64, clock: F) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&either, &timer, data, epoll::EventFlags::IN)?;
        if let Some(fd) = inner.wake_fd() {
            epoll::add(&either, fd, data, epoll::EventFlags::IN)?;
        }
        let (due, held, line_free) = (HashMap::new(), VecDeque::new(), Time(0));
        Ok(Throttle { inner, clock, bytes_per_second, line_free, due, held, timer, either })
    }

    fn is_due(&self, completion: &Completion, now: Time) -> bool {
        self.due.get(&completion.request).is_none_or(|&due| due <= now)
    }

    fn collect(&mut self) {
        let mut ended = Vec::new();
        self.inner.poll(&mut ended);
        self.held.extend(ended);
    }

    /// Sets the timer to the first completion held, or stops it.
    fn arm(&self, now: Time) {
        let next = self.held.iter().filter_map(|c| self.due.get(&c.request)).min();
        // A timer of 0 would be off: what is due already rings after a nanosecond.
        let wait = next.map_or(Duration::ZERO, |due| due.since(now).max(Duration::from_nanos(1)));
        let value = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)
            .expect("a relative time below 2^63 seconds is valid");
    }
}

impl<C: Channel, F: Fn() -> Time + Send> Channel for Throttle<C, F> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        if self.due.len() >= self.capabilities().max_in_flight as usize {
            return Err(job);
        }
        let request = job.request;
        let payload_bytes = match &job.work {
            Work::Copy(copy) => copy.payload_bytes,
            Work::Commit { .. } | Work::Abort { .. } => 0,
        };
        self.inner.submit(job)?;
        let start = self.line_free.max((self.clock)());
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
        let seconds = payload_bytes as f64 / self.bytes_per_second;
        self.line_free = start + Duration::from_secs_f64(seconds);
        self.due.insert(request, self.line_free);
        // What is done already does not ring.
        self.collect();
        self.arm((self.clock)());
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.collect();
        let now = (self.clock)();
        for _ in 0..self.held.len() {
            let Some(completion) = self.held.pop_front() else { break };
            if self.is_due(&completion, now) {
                self.due.remove(&completion.request);
                done.push(completion);
            } else {
                self.held.push_back(completion);
            }
        }
        self.arm(now);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.either.as_fd())
    }

    fn drain(&mut self) {
        self.inner.drain();
        self.collect();
        loop {
            let now = (self.clock)();
            let Some(last) = self.due.values().max().filter(|&&due| due > now) else { break };
            let wait = Timespec::try_from(last.since(now)).ok();
            match poll(&mut [], wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("sleeping failed: {error}"),
            }
        }
        self.arm((self.clock)());
    }
}
