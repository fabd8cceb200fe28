//! Who carries out operations.

use crate::op::Op;
use rustix::io::Errno;

/// An operation that came back.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The operation.
    pub(crate) op: Box<Op>,
    /// The bytes moved, or why none were.
    pub(crate) result: Result<usize, Errno>,
}

/// Carries out operations, and rings the channel's bell when one has ended.
pub(crate) trait Executor: Send {
    /// Takes `op`. The channel bounds how many are in flight.
    fn start(&mut self, op: Box<Op>);

    /// Passes on to the kernel what was taken.
    fn flush(&mut self);

    /// Appends the operations that ended since the last call.
    fn reap(&mut self, ended: &mut Vec<Ended>);
}
