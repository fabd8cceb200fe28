//! A process that runs out of descriptors. Alone in its process: the limit is everybody's.

use isometry::{CopyOptions, Error, FileOptions, Instance, Machine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::time::Duration;

/// What `work` gives where the process may open as many descriptors more as `spare`.
fn with_spare<T>(spare: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + spare), ..before }).unwrap();
    let result = work();
    setrlimit(Resource::Nofile, before).unwrap();
    result
}

fn open(machine: &Machine, path: &Path) -> Result<Instance, Error> {
    let raw = isometry::Array::of(&[("x", 1 << 20)], "|u1").unwrap();
    machine.open_file(path, &FileOptions { raw: Some(raw), ..FileOptions::default() })
}

#[test]
fn a_disk_is_used_whole_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.raw");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    for spare in 0.. {
        let machine = Machine::builder().assume(true).lanes(1).open().unwrap();
        let read = || open(&machine, &path).map(|src| sum(&machine, &src));
        match with_spare(spare, read) {
            Err(error) => assert!(error.to_string().contains("open files"), "{error}"),
            Ok(sum) => return assert_eq!((sum, spare > 4), (7 << 20, true), "{spare}"),
        }
        // Nothing of what was refused is in the way.
        assert_eq!(sum(&machine, &open(&machine, &path).unwrap()), 7 << 20);
    }
}

/// Of the bytes of `src`, once they are in memory.
fn sum(machine: &Machine, src: &Instance) -> u64 {
    let dst = machine.empty(src.array(), "sys").unwrap();
    let event = machine.copy(src, &dst, &CopyOptions::default()).unwrap();
    event.wait(Some(Duration::from_secs(30))).unwrap();
    dst.to_vec().unwrap().into_iter().map(u64::from).sum()
}
