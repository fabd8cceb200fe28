//! The processes of ranks of this machine, and whether those are gone that are lost.
//!
//! **Hazard.** A connection breaks, or is closed as a process ends, while that, or a device for it, writes yet to
//! memory of others. **Guarantee.** Of a rank that has not left and whose process is known nothing goes on once
//! [`Fabric::is_gone`] says so: the system has by then let go of all that the process had, and the number of the
//! process, which another may have next, is not asked. **Structure.** A [`Process`] is a pidfd, had while the rank
//! was there; a thread that sleeps on those that were asked for in vain wakes whoever waits.

use crate::conduit::{Conduit, Lost};
use crate::error::Error;
use crate::fabric::Fabric;
use crate::shm::watch::Watch;
use crate::standing::Standing;
use crate::tcp::closable::Closable;
use model::NodeId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The process of a rank.
#[derive(Debug)]
pub struct Process {
    /// Readable once it has ended.
    pidfd: Closable,
    has_ended: AtomicBool,
    is_watched: AtomicBool,
}

impl Process {
    /// That which the system calls so now; `None` where it has none, or none that can be waited for.
    pub(crate) fn numbered(number: u64) -> Option<Process> {
        let number = Pid::from_raw(i32::try_from(number).ok()?)?;
        pidfd_open(number, PidfdFlags::empty()).ok().map(Process::behind)
    }

    /// That of a pidfd.
    pub(crate) fn behind(pidfd: OwnedFd) -> Process {
        let (has_ended, is_watched) = Default::default();
        Process { pidfd: Closable::new(pidfd), has_ended, is_watched }
    }

    /// What others know this process by; `None` where the system has no such thing.
    pub(crate) fn own() -> Option<OwnedFd> {
        pidfd_open(getpid(), PidfdFlags::empty()).ok()
    }

    /// Its rank is lost: of one that has left nobody asks whether it has ended.
    pub(crate) fn part(&self, standing: &Standing) {
        if standing.lost() == Some(Lost::Left) {
            self.pidfd.close();
        }
    }

    fn has_ended(&self) -> bool {
        if let Some(pidfd) = self.pidfd.get()
            && is_readable(&pidfd)
        {
            self.has_ended.store(true, Ordering::Release);
            self.pidfd.close();
        }
        self.has_ended.load(Ordering::Acquire)
    }
}

fn is_readable(fd: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// The thread that sleeps until processes end, once one was asked for in vain.
#[derive(Debug, Default)]
pub(crate) struct Ends(OnceLock<Option<Watch>>);

impl Ends {
    /// Wakes who sleeps in `conduit` once `process` has ended.
    fn tell(&self, conduit: &Arc<dyn Conduit>, process: &Process) {
        let Some(pidfd) = process.pidfd.get() else { return };
        if process.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let start = || {
            let conduit = Arc::clone(conduit);
            Watch::new(move |_, _| conduit.wake())
        };
        let failed = |why: &Error| log::warn!("nobody is told when processes end: {why}");
        let watch = self.0.get_or_init(|| start().inspect_err(failed).ok());
        if let Some(watch) = watch {
            watch.watched().add(0, pidfd);
        }
    }
}

impl Fabric {
    /// Whether nothing of `peer`, which is lost, goes on any more: it has left, or its process has ended, which may
    /// be long after it was lost where only a connection broke. Where nobody knows its process, as that of another
    /// machine, one that has died or can't be reached is taken to be gone, and one that sent what no rank sends
    /// never is. Whoever waits in [`Fabric::wait_until`] looks again when that changes.
    #[must_use]
    pub fn is_gone(&self, peer: NodeId) -> bool {
        match (self.lost(peer), self.conduit().process(peer)) {
            (None, _) => false,
            (Some(Lost::Left), _) => true,
            (Some(why), None) => why == Lost::Died,
            (Some(_), Some(process)) => {
                // In this order: whoever waits hears of one that ends meanwhile.
                self.ends.tell(&self.conduit, process);
                process.has_ended()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_has_ended_is_known_to_have_for_good() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::numbered(child.id().into()).unwrap();
        assert!(!process.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(process.has_ended() && process.pidfd.get().is_none());
        assert!(process.has_ended(), "also where another has its number");
    }

    #[test]
    fn numbers_of_no_process_have_none() {
        assert!(
            [0, u64::from(u32::MAX), 1 << 40].map(Process::numbered).iter().all(Option::is_none)
        );
        assert!(!Process::behind(Process::own().unwrap()).has_ended());
    }
}
