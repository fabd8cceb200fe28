//! Files that are full, short, gone, directories or half-written: each a clear error, and nothing
//! left behind.

mod common;

use channel::model::{ChannelErrorKind, CopyDim, FieldCopy, NdCopy, Stride, Work};
use channel::{Channel, Job, Provider, Region};
use common::{
    DSK, bytes_of, channel, directory, file_bytes, finish, memory, names, random, run_at, run_of,
    settle,
};
use isometry_channel_disk::{
    Cache, Direction, DiskChannel, DiskConfig, DiskProvider, FileRegion, Interface, clean_stale,
    operations,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

const BOTH: [Interface; 2] = [Interface::Best, Interface::Threads];

fn created(path: &Path, header: &[u8], len_bytes: u64) -> Arc<Region> {
    let file = FileRegion::create(path, header, len_bytes, Cache::Bypass).unwrap();
    Arc::new(file.into_region(DSK))
}

fn opened(path: &Path, len_bytes: u64) -> Arc<Region> {
    Arc::new(FileRegion::open(path, 0..len_bytes, Cache::Bypass).unwrap().into_region(DSK))
}

#[test]
fn a_committed_file_replaces_what_was_there() {
    for (interface, sync) in BOTH.into_iter().zip([true, false]) {
        let dir = directory();
        let path = dir.path().join("a.bin");
        fs::write(&path, "old").unwrap();
        let (bytes, mut writer) = (random(1, 300_000), channel(Direction::Write, interface, 4));
        let file = created(&path, b"header", 300_000);
        let job = run_of(1, 300_000, &memory(&bytes, 6), &file);
        assert_eq!(finish(&mut writer, job).result, Ok(()));
        assert_eq!(fs::read(&path).unwrap(), b"old", "not before the commit");
        assert_eq!(finish(&mut writer, settle(2, &file, Some(sync))).result, Ok(()));
        assert!(fs::read(&path).unwrap() == [b"header".as_slice(), &bytes].concat());
        assert_eq!(names(dir.path()), ["a.bin"]);
        let again = finish(&mut writer, settle(3, &file, Some(sync))).result.unwrap_err();
        assert!(again.detail.contains("committed already"), "{again}");
        let late = run_of(4, 8, &memory(&bytes, 0), &file);
        assert!(finish(&mut writer, late).result.is_err(), "a committed file is closed to writes");
    }
}

#[test]
fn a_file_aborted_or_dropped_is_deleted() {
    let dir = directory();
    let path = dir.path().join("b.bin");
    let mut writer = channel(Direction::Write, Interface::Best, 4);
    let file = created(&path, b"", 5000);
    let half = run_of(1, 2500, &memory(&[1; 2500], 0), &file);
    assert_eq!(finish(&mut writer, half).result, Ok(()));
    assert_eq!(names(dir.path()).len(), 1);
    assert_eq!(finish(&mut writer, settle(2, &file, None)).result, Ok(()));
    assert_eq!(names(dir.path()).len(), 0);
    assert!(finish(&mut writer, settle(3, &file, Some(true))).result.is_err());
    drop(created(&path, b"", 5000));
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn a_forked_child_leaves_its_parents_file() {
    let dir = directory();
    let path = dir.path().join("a.bin");
    let file = FileRegion::create(&path, b"whole", 0, Cache::Use).unwrap();
    // SAFETY: the child drops a file, for which it waits for no other thread, and leaves by
    // `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(file);
        // SAFETY: ends the child without running what belongs to its parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: `child` is ours, and `status` is there to be written.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((status, file.commit(false)), (0, Ok(())));
    assert_eq!(fs::read(&path).unwrap(), b"whole");
}

#[test]
fn dropping_a_channel_in_the_middle_leaves_no_file() {
    let dir = directory();
    let mut writer = channel(Direction::Write, Interface::Best, 8);
    let file = created(&dir.path().join("c.bin"), b"", 8 << 20);
    let source = memory(&random(2, 8 << 20), 0);
    for request in 0..8 {
        let at = request << 20;
        writer.submit(run_at(request, 1 << 20, (&source, at), (&file, at))).unwrap();
    }
    drop(writer);
    assert_eq!((Arc::strong_count(&file), Arc::strong_count(&source)), (1, 1));
    let view: &FileRegion = file.view().unwrap();
    assert!(file_bytes(view, 8 << 20) == bytes_of(&source), "drop waited for the writes");
    drop(file);
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn a_file_that_ends_early_is_a_short_read() {
    for interface in BOTH {
        let dir = directory();
        let path = dir.path().join("d.bin");
        fs::write(&path, vec![7; 300_000]).unwrap();
        let early = FileRegion::open(&path, 0..300_001, Cache::Bypass).unwrap_err();
        assert_eq!(early.kind, ChannelErrorKind::ShortRead);
        let (file, target) = (opened(&path, 300_000), memory(&[0; 300_000], 0));
        // It shrinks after it was opened.
        File::options().write(true).open(&path).unwrap().set_len(100_000).unwrap();
        let mut reader = channel(Direction::Read, interface, 4);
        let error = finish(&mut reader, run_of(1, 300_000, &file, &target)).result.unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::ShortRead);
        for part in ["d.bin", "reading 300000 bytes at 0", "byte 100000", "byte 300000"] {
            assert!(error.detail.contains(part), "{part} is missing in: {error}");
        }
        let good = run_of(2, 100_000, &file, &target);
        assert_eq!(finish(&mut reader, good).result, Ok(()), "others go on");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = directory();
    let open = |path: &Path| FileRegion::open(path, 0..1, Cache::Bypass).unwrap_err();
    assert!(open(dir.path()).detail.contains("Is a directory"));
    assert!(open(&dir.path().join("none")).detail.contains("No such file"));
    assert!(open(Path::new("/dev/null")).detail.contains("not a regular file"));
    let create = |path: &Path| FileRegion::create(path, b"", 1, Cache::Bypass).unwrap_err();
    fs::create_dir(dir.path().join("sub")).unwrap();
    assert!(create(&dir.path().join("sub")).detail.contains("Is a directory"));
    for directory in ["x/", "x//", "x/."] {
        assert!(create(&dir.path().join(directory)).detail.contains("Is a directory"));
    }
    std::os::unix::fs::symlink("/dev/full", dir.path().join("device")).unwrap();
    assert!(create(&dir.path().join("device")).detail.contains("not a regular file"));
    assert!(create(&dir.path().join("none/x")).detail.contains("No such file"));
    assert!(create(Path::new("/")).detail.contains("names no file"));
    let long = create(&dir.path().join("n".repeat(256)));
    assert!(long.detail.contains("File name too long"), "{long}");
    let huge = FileRegion::create(&dir.path().join("x"), b"", u64::MAX, Cache::Bypass);
    assert_eq!(huge.unwrap_err().kind, ChannelErrorKind::NoSpace);
    assert_eq!(names(dir.path()), ["device", "sub"]);
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    // Not even root writes there.
    let error = FileRegion::create(Path::new("/proc/x"), b"", 1, Cache::Bypass).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::Io);
    assert!(error.detail.contains("/proc/x"), "{error}");
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = directory();
    let path = dir.path().join("secret");
    fs::write(&path, [1; 8]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        println!("skipped: a_file_that_may_not_be_read_is_named: root reads everything");
        return;
    }
    let error = FileRegion::open(&path, 0..8, Cache::Bypass).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::Io);
    assert!(error.detail.contains("secret"), "{error}");
}

#[test]
fn a_file_for_reading_is_not_written_and_a_reader_commits_nothing() {
    let dir = directory();
    let path = dir.path().join("e.bin");
    fs::write(&path, [1; 64]).unwrap();
    let file = opened(&path, 64);
    let mut writer = channel(Direction::Write, Interface::Best, 2);
    let error = finish(&mut writer, run_of(1, 64, &memory(&[2; 64], 0), &file)).result.unwrap_err();
    assert!(error.detail.contains("for reading only"), "{error}");
    assert!(finish(&mut writer, settle(2, &file, Some(false))).result.is_err());
    assert_eq!(finish(&mut writer, settle(3, &file, None)).result, Ok(()), "nothing to undo");
    let mut reader = channel(Direction::Read, Interface::Best, 2);
    assert!(finish(&mut reader, settle(4, &file, Some(false))).result.is_err());
    assert_eq!(fs::read(&path).unwrap(), [1; 64]);
}

/// A file system of 1 MiB, where the process may mount one.
fn small_disk(dir: &Path) -> Result<(), rustix::io::Errno> {
    mount("none", dir, "tmpfs", MountFlags::empty(), Some(c"size=1m"))
}

#[test]
fn a_full_disk_shows_before_anything_is_written() {
    let dir = directory();
    if let Err(errno) = small_disk(dir.path()) {
        println!("skipped: a_full_disk_shows_before_anything_is_written: no mount: {errno}");
        return;
    }
    let full = FileRegion::create(&dir.path().join("f"), b"head", 2 << 20, Cache::Bypass);
    let left = names(dir.path());
    let fits = FileRegion::create(&dir.path().join("f"), b"head", 1 << 19, Cache::Bypass).is_ok();
    unmount(dir.path(), UnmountFlags::DETACH).unwrap();
    assert_eq!(full.unwrap_err().kind, ChannelErrorKind::NoSpace);
    assert_eq!((left.len(), fits), (0, true), "nothing is left behind, and what fits fits");
}

#[test]
fn a_disk_that_fills_up_in_the_middle_is_no_space() {
    for interface in BOTH {
        let dir = directory();
        if let Err(errno) = small_disk(dir.path()) {
            println!("skipped: a_disk_that_fills_up_in_the_middle_is_no_space: no mount: {errno}");
            return;
        }
        let path = dir.path().join("f");
        let file = created(&path, b"", 1 << 19);
        // Somebody punches out what was reserved, and fills the disk.
        let hidden = dir.path().join(&names(dir.path())[0]);
        File::options().write(true).open(hidden).unwrap().set_len(0).unwrap();
        let _ = fs::write(dir.path().join("other"), vec![1; 2 << 20]);
        let mut writer = channel(Direction::Write, interface, 4);
        let job = run_of(1, 1 << 19, &memory(&vec![1; 1 << 19], 0), &file);
        let error = finish(&mut writer, job).result;
        drop((writer, file));
        let left = names(dir.path());
        unmount(dir.path(), UnmountFlags::DETACH).unwrap();
        assert_eq!(error.unwrap_err().kind, ChannelErrorKind::NoSpace);
        assert_eq!(left, ["other"]);
    }
}

/// A device that is gone answers every operation with an error of its own; a descriptor that was
/// closed beneath the file is as gone as it gets.
#[test]
fn a_lost_disk_is_a_lost_device() {
    for interface in BOTH {
        let dir = directory();
        let path = dir.path().join("g.bin");
        fs::write(&path, vec![7; 4096]).unwrap();
        let file = FileRegion::open(&path, 0..4096, Cache::Use).unwrap();
        replace_by_unreadable(&file);
        let file = Arc::new(file.into_region(DSK));
        let mut reader = channel(Direction::Read, interface, 4);
        let target = memory(&[0; 4096], 0);
        let error = finish(&mut reader, run_of(1, 4096, &file, &target)).result.unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::DeviceLost, "{error}");
        assert!(error.detail.contains("g.bin"), "{error}");
    }
}

/// Puts a descriptor that can't be read in the place of the file's.
fn replace_by_unreadable(file: &FileRegion) {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    let write_only = File::options().write(true).open("/dev/null").unwrap();
    // SAFETY: the descriptor is the file's, which keeps it; this owner is forgotten.
    let mut place = unsafe { OwnedFd::from_raw_fd(file.as_fd().as_raw_fd()) };
    rustix::io::dup2(&write_only, &mut place).unwrap();
    std::mem::forget(place);
}

#[test]
fn millions_of_tiny_runs_stay_small_and_right() {
    // Every 16th group of 4 bytes: what a planner never asks for.
    let (count, dir) = (50_000u64, directory());
    let bytes = random(3, 64 * 50_000);
    fs::write(dir.path().join("h.bin"), &bytes).unwrap();
    let file = opened(&dir.path().join("h.bin"), bytes.len() as u64);
    let target = memory(&vec![0; 200_000], 0);
    let dim = CopyDim { extent: count, src_index: None, dst_index: None };
    let strides = vec![Stride { src: 64, dst: 4 }];
    let field = FieldCopy { bytes: 4, src_offset: 0, dst_offset: 0, padding: 0, strides };
    let mut job = run_of(1, 4, &file, &target);
    if let Work::Copy(work) = &mut job.work {
        work.list = [NdCopy { dims: vec![dim], fields: vec![field] }].into();
    }
    let mut reader = channel(Direction::Read, Interface::Best, 4);
    assert_eq!(finish(&mut reader, job).result, Ok(()));
    let expected: Vec<u8> = bytes.chunks(64).flat_map(|c| c[..4].to_vec()).collect();
    assert!(bytes_of(&target) == expected);
}

/// Structures of 1, 4 and 600 bytes at 0, 4 and 8 of 624, packed in memory.
fn padded(count: u64, (src, dst): (&Arc<Region>, &Arc<Region>)) -> Job {
    let fields = [(1, 0, 0, 3), (4, 1, 4, 0), (600, 5, 8, 16)].map(|(bytes, src, dst, padding)| {
        let strides = vec![Stride { src: 605, dst: 624 }];
        FieldCopy { bytes, src_offset: src, dst_offset: dst, padding, strides }
    });
    let dim = CopyDim { extent: count, src_index: None, dst_index: None };
    let mut job = run_of(1, 605 * count, src, dst);
    if let Work::Copy(work) = &mut job.work {
        work.list = [NdCopy { dims: vec![dim], fields: fields.to_vec() }].into();
    }
    job
}

#[test]
fn structures_are_written_with_their_padding_which_is_zero() {
    let (count, dir) = (5000u64, directory());
    let bytes = random(5, 605 * count as usize);
    let expected: Vec<u8> = bytes
        .chunks(605)
        .flat_map(|one| [&one[..1], &[0; 3], &one[1..], &[0; 16]].concat())
        .collect();
    let source = memory(&bytes, 0);
    for (name, cache) in [("k", Cache::Use), ("l", Cache::Bypass)] {
        let path = dir.path().join(name);
        // What is in the buffers before.
        let mut writer = channel(Direction::Write, Interface::Best, 4);
        let before = created(&dir.path().join("m"), b"", 605 * count);
        assert_eq!(
            finish(&mut writer, run_of(1, 605 * count - 7, &source, &before)).result,
            Ok(())
        );
        let file = FileRegion::create(&path, b"head", 624 * count, cache).unwrap();
        let file = Arc::new(file.into_region(DSK));
        assert_eq!(finish(&mut writer, padded(count, (&source, &file))).result, Ok(()));
        assert_eq!(finish(&mut writer, settle(2, &file, Some(false))).result, Ok(()));
        let written = fs::read(&path).unwrap();
        assert!(&written[..4] == b"head" && written[4..] == expected, "{cache:?}");
    }
}

#[test]
fn padding_does_not_cost_an_operation() {
    let dir = directory();
    let source = memory(&[1; 605 * 5000], 0);
    let file = FileRegion::create(&dir.path().join("n"), b"", 624 * 5000, Cache::Use).unwrap();
    let file = Arc::new(file.into_region(DSK));
    let made = operations(padded(5000, (&source, &file)), Direction::Write).unwrap();
    assert!(made.len() < 40, "{}", made.len());
    let mut gaps = padded(5000, (&source, &file));
    if let Work::Copy(work) = &mut gaps.work {
        let mut copy = work.list[0].clone();
        copy.fields.iter_mut().for_each(|field| field.padding = 0);
        work.list = [copy].into();
    }
    let made = operations(gaps, Direction::Write).unwrap();
    assert_eq!(made.len(), 10_000, "what isn't padding is not to be written");
}

#[test]
fn registered_memory_gives_the_same_bytes() {
    let dir = directory();
    let arena = memory(&vec![0; 4 << 20], 0);
    let path = dir.path().join("i.bin");
    let bytes = random(4, 4 << 20);
    let (depth, interface, arenas) = (4, Interface::Best, vec![Arc::clone(&arena)]);
    let config = |direction| DiskConfig { direction, depth, interface, arenas: arenas.clone() };
    let mut writer = DiskChannel::new(config(Direction::Write)).unwrap();
    let mut reader = DiskChannel::new(config(Direction::Read)).unwrap();
    if reader.registered_buffers() == 0 {
        // The memlock limit is spent; then it works without.
        println!("skipped: registered_memory_gives_the_same_bytes: its registration: refused");
    }
    fs::write(&path, &bytes).unwrap();
    let (from, to) = (opened(&path, 4 << 20), created(&dir.path().join("j"), b"", 4 << 20));
    assert_eq!(finish(&mut reader, run_of(1, 4 << 20, &from, &arena)).result, Ok(()));
    assert!(bytes_of(&arena) == bytes);
    assert_eq!(finish(&mut writer, run_of(2, 4 << 20, &arena, &to)).result, Ok(()));
    assert!(file_bytes(to.view().unwrap(), 4 << 20) == bytes);
}

#[test]
fn scratch_files_have_no_name_and_leave_none() {
    let dir = directory();
    let provider = DiskProvider::new(DSK, dir.path().to_owned(), Cache::Bypass);
    let region = provider.allocate(10_000, 4096).unwrap();
    let file: &FileRegion = region.view().unwrap();
    assert!(file_bytes(file, 10_000).iter().all(|&b| b == 0));
    assert_eq!(clean_stale(dir.path()).unwrap(), 0, "its maker lives");
    drop(region);
    assert_eq!(names(dir.path()).len(), 0);
}
