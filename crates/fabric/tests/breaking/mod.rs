//! A process that lives behind connections that have broken.

use rustix::net::{Shutdown, shutdown};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::fs;

/// Ends all connections of this process, which goes on: as a network's fault does, or who closes what is not his.
pub(crate) fn break_connections() {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        if fs::read_link(&path).is_ok_and(|open| open.to_string_lossy().starts_with("socket:")) {
            let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let socket = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).unwrap();
            // One that listens, or was never connected, has no end.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }
}
