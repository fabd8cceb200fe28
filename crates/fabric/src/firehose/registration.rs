use crate::segment::Segment;
use std::fmt::Debug;
use std::io;

/// How memory is made ready for transfers by others.
///
/// Calls come one at a time, from any thread; those that pin take as long as they take, and others
/// that need this rank's memory wait for them.
pub trait Registration: Debug + Send + Sync {
    /// Pins so many bytes from `at` on of `memory`: whole buckets, but at its end. None of them is
    /// pinned yet.
    ///
    /// # Errors
    /// What the system says. None of them is pinned then.
    fn pin(&self, memory: &Segment, at: u64, bytes: u64) -> io::Result<()>;

    /// Unpins so many bytes from `at` on, all of which are pinned, not always by one call.
    ///
    /// # Errors
    /// What the system says; it is logged, and they count as unpinned.
    fn unpin(&self, memory: &Segment, at: u64, bytes: u64) -> io::Result<()>;
}

/// Keeps memory in place by mlock, as a network's driver does, and tells no device.
///
/// The system may refuse: who is not privileged has a limit (RLIMIT_MEMLOCK). What is pinned stays so
/// until it is unpinned or its mapping is gone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mlock;

impl Registration for Mlock {
    fn pin(&self, memory: &Segment, at: u64, bytes: u64) -> io::Result<()> {
        memory.lock(at, bytes)
    }

    fn unpin(&self, memory: &Segment, at: u64, bytes: u64) -> io::Result<()> {
        memory.unlock(at, bytes)
    }
}
