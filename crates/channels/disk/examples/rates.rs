//! Rates of a disk: the channel beside a bare io_uring loop with the same sizes and depth.
//!
//! `cargo run --release -p isometry-channel-disk --example rates -- DIRECTORY [MIB]`

use channel::model::{
    CopyWork, FieldCopy, MemoryId, NdCopy, NodeId, Place, RegionId, RequestId, Work,
};
use channel::{Channel, HostSpan, Job, Region};
use io_uring::{IoUring, opcode, types};
use isometry_channel_disk::{Cache, Direction, DiskChannel, DiskConfig, FileRegion, Interface};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

const MEMORY: MemoryId = MemoryId { node: NodeId(0), index: 0 };
const REPETITIONS: usize = 3;

/// One line of the table.
struct Setting {
    direction: Direction,
    request_bytes: u64,
    depth: u32,
    file_bytes: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let mib: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(512);
    println!("{:>6} {:>8} {:>5} {:>9} {:>9} {:>6}", "", "request", "depth", "raw", "channel", "");
    for direction in [Direction::Read, Direction::Write] {
        for (kib, depth) in [(64, 1), (64, 8), (256, 4), (1024, 1), (1024, 2), (1024, 4), (4096, 2)]
        {
            let (request_bytes, file_bytes) = (kib << 10, mib << 20);
            measure(&dir, &Setting { direction, request_bytes, depth, file_bytes });
        }
    }
}

/// Times both in turns and prints the medians in GB/s.
fn measure(dir: &Path, setting: &Setting) {
    let path = dir.join("isometry-rates.bin");
    write_file(&path, setting.file_bytes);
    let arena = arena(setting.request_bytes * u64::from(setting.depth));
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        raw.push(raw_seconds(&path, &arena, setting));
        ours.push(channel_seconds(&path, &arena, setting));
    }
    std::fs::remove_file(&path).expect("the file was written");
    let rate = |seconds: &mut Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        setting.file_bytes as f64 / seconds[seconds.len() / 2] / 1e9
    };
    let (raw, ours) = (rate(&mut raw), rate(&mut ours));
    let name = if setting.direction == Direction::Read { "read" } else { "write" };
    let (kib, depth) = (setting.request_bytes >> 10, setting.depth);
    println!("{name:>6} {kib:>4} KiB {depth:>5} {raw:>9.2} {ours:>9.2} {:>6.2}", ours / raw);
}

/// A file whose blocks are written, so that nothing is read from thin air.
fn write_file(path: &Path, bytes: u64) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("the directory can be written");
    let block: Vec<u8> = (0..1 << 20).map(|n: u32| (n >> 3) as u8).collect();
    for _ in 0..bytes >> 20 {
        file.write_all(&block).expect("the disk has room");
    }
    file.sync_all().expect("the disk works");
}

fn arena(bytes: u64) -> Arc<Region> {
    let len = usize::try_from(bytes).expect("a few MiB");
    let mut owner = vec![1u8; len + 4096].into_boxed_slice();
    let skip = owner.as_ptr().align_offset(4096);
    let start = NonNull::from(&mut owner[skip]);
    // SAFETY: the owner is the box, whose bytes don't move and are not reached otherwise.
    let span = unsafe { HostSpan::new(start, len) };
    Arc::new(Region::host(MEMORY, span, Arc::new(owner)))
}

fn direct(path: &Path) -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).expect("the file system does direct I/O")
}

/// Sequential requests, `depth` at once, with fixed buffers.
fn raw_seconds(path: &Path, arena: &Region, setting: &Setting) -> f64 {
    let (fd, len) = (direct(path), setting.request_bytes as u32);
    let base = arena.host_span().expect("host memory").start().as_ptr();
    let mut ring = IoUring::new(setting.depth).expect("io_uring is there");
    let iovec = libc::iovec { iov_base: base.cast(), iov_len: arena.len_bytes() as usize };
    // SAFETY: the arena outlives the ring.
    unsafe { ring.submitter().register_buffers(&[iovec]) }.expect("memory can be registered");
    let (mut next, mut free) = (0, (0..u64::from(setting.depth)).collect::<Vec<_>>());
    let start = Instant::now();
    while next < setting.file_bytes || free.len() < setting.depth as usize {
        while let Some(slot) = free.pop_if(|_| next < setting.file_bytes) {
            let at = base.wrapping_add((slot * setting.request_bytes) as usize);
            let fd = types::Fd(fd.as_raw_fd());
            let entry = match setting.direction {
                Direction::Read => opcode::ReadFixed::new(fd, at, len, 0).offset(next).build(),
                Direction::Write => opcode::WriteFixed::new(fd, at, len, 0).offset(next).build(),
            };
            // SAFETY: the slot's part of the arena is free until its completion.
            unsafe { ring.submission().push(&entry.user_data(slot)) }.expect("there is room");
            next += setting.request_bytes;
        }
        ring.submit_and_wait(1).expect("io_uring works");
        for entry in ring.completion() {
            assert_eq!(entry.result(), len as i32, "a whole request");
            free.push(entry.user_data());
        }
    }
    start.elapsed().as_secs_f64()
}

fn region(path: &Path, setting: &Setting) -> Arc<Region> {
    let file = match setting.direction {
        Direction::Read => FileRegion::open(path, 0..setting.file_bytes, Cache::Bypass),
        Direction::Write => FileRegion::create(path, &[], setting.file_bytes, Cache::Bypass),
    };
    Arc::new(file.expect("the file can be opened").into_region(MEMORY))
}

/// The same through the channel, sleeping on its descriptor.
fn channel_seconds(path: &Path, arena: &Arc<Region>, setting: &Setting) -> f64 {
    let file = region(path, setting);
    if setting.direction == Direction::Write {
        // As the other writes over blocks that are there, so does this.
        run_channel(&file, arena, setting);
    }
    run_channel(&file, arena, setting)
}

fn run_channel(file: &Arc<Region>, arena: &Arc<Region>, setting: &Setting) -> f64 {
    let (depth, direction) = (setting.depth, setting.direction);
    let arenas = vec![Arc::clone(arena)];
    let config = DiskConfig { direction, depth, interface: Interface::Best, arenas };
    let mut channel = DiskChannel::new(config).expect("a channel");
    let (mut next, mut free) = (0, (0..u64::from(depth)).collect::<Vec<_>>());
    let mut done = Vec::new();
    let start = Instant::now();
    while next < setting.file_bytes || free.len() < depth as usize {
        while let Some(slot) = free.pop_if(|_| next < setting.file_bytes) {
            channel.submit(job(slot, next, (file, arena), setting)).expect("there is room");
            next += setting.request_bytes;
        }
        let fd = channel.wake_fd().expect("it has one");
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        channel.poll(&mut done);
        for completion in done.drain(..) {
            assert_eq!(completion.result, Ok(()));
            free.push(completion.request.0);
        }
    }
    start.elapsed().as_secs_f64()
}

fn job(slot: u64, at: u64, (file, arena): (&Arc<Region>, &Arc<Region>), setting: &Setting) -> Job {
    let bytes = setting.request_bytes;
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides: Vec::new() };
    let list = [NdCopy { dims: Vec::new(), fields: vec![field] }].into();
    let place = |offset| Place { region: RegionId { index: 0, generation: 0 }, offset };
    let ends = [(file, place(at)), (arena, place(slot * bytes))];
    let [(src, from), (dst, to)] = match setting.direction {
        Direction::Read => ends,
        Direction::Write => [ends[1], ends[0]],
    };
    let work = Work::Copy(CopyWork {
        list,
        src: from,
        dst: to,
        payload_bytes: bytes,
        result_bytes: bytes,
    });
    Job { request: RequestId(slot), work, src: Arc::clone(src), dst: Arc::clone(dst) }
}
