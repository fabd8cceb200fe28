//! A process that lives behind connections that have broken.

use rustix::net::{Shutdown, shutdown};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, getppid, pidfd_getfd, pidfd_open};
use std::collections::HashSet;
use std::fs;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Ends all connections of this process, which goes on: as a network's fault does, or who closes what is not his.
/// Not those that it has of the process that started it: UCX's sockets are handed on, and shut for both.
pub(crate) fn break_connections() {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let parent = getppid().unwrap().as_raw_nonzero().to_string();
    let inherited: HashSet<_> = sockets(&parent).map(|(_, socket)| socket).collect();
    for (number, _) in sockets("self").filter(|(_, socket)| !inherited.contains(socket)) {
        let socket = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).unwrap();
        // One that listens, or was never connected, has no end.
        let _ = shutdown(&socket, Shutdown::Both);
    }
}

/// The sockets that a process has open: by which numbers, and which they are.
fn sockets(process: &str) -> impl Iterator<Item = (RawFd, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    entries.filter_map(|entry| {
        let path = entry.unwrap().path();
        let open = fs::read_link(&path)
            .ok()
            .filter(|open| open.to_string_lossy().starts_with("socket:"))?;
        Some((path.file_name()?.to_str()?.parse().ok()?, open))
    })
}
