//! What the operating system says, in the words of channels.

use channel::model::{ChannelError, ChannelErrorKind};
use rustix::io::Errno;
use std::path::Path;

/// The kind of error that `errno` is, from a file.
fn kind_of(errno: Errno) -> ChannelErrorKind {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ChannelErrorKind::NoSpace,
        Errno::NXIO | Errno::NODEV | Errno::BADF | Errno::STALE | Errno::NOMEDIUM => {
            ChannelErrorKind::DeviceLost
        }
        Errno::NOMEM => ChannelErrorKind::OutOfMemory,
        _ => ChannelErrorKind::Io,
    }
}

/// `errno` while doing `what` to the file at `path`.
pub(crate) fn failed(path: &Path, what: &str, errno: Errno) -> ChannelError {
    let detail = format!("{}: {what}: {}", path.display(), std::io::Error::from(errno));
    ChannelError { kind: kind_of(errno), detail, os_error: Some(errno.raw_os_error()) }
}

/// A file that can't be used for the reason `why`.
pub(crate) fn unfit(path: &Path, why: &str) -> ChannelError {
    let detail = format!("{}: {why}", path.display());
    ChannelError::new(ChannelErrorKind::Io, detail)
}

/// A file that holds `has` bytes, where byte `wanted` - 1 was needed.
pub(crate) fn short(path: &Path, what: &str, wanted: u64, has: u64) -> ChannelError {
    let path = path.display();
    let detail = format!("{path}: {what}: the file ended at byte {has}, byte {wanted} was needed");
    ChannelError::new(ChannelErrorKind::ShortRead, detail)
}
