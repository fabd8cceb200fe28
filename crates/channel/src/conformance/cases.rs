//! The rules of the contract, one function each.

use super::{Draw, Fixture, Shape};
use crate::{Channel, Job, Region};
use model::{
    ChannelErrorKind, Completion, CopyDim, CopyWork, MemoryId, NdCopy, NodeId, Place, RegionId,
    RequestId, Stride, Work,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::sync::Arc;

/// Longer than any channel takes; a test that waits as long has failed.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// A request with what it must leave behind.
struct Trial {
    job: Job,
    expected: Vec<u8>,
}

/// Channels are handed regions, not ids.
fn place(offset: u64) -> Place {
    Place { region: RegionId { index: 0, generation: 0 }, offset }
}

fn job_of(
    request: u64,
    list: Vec<NdCopy>,
    at: (u64, u64),
    ends: (Arc<Region>, Arc<Region>),
) -> Job {
    let payload_bytes = list.iter().map(NdCopy::payload_bytes).sum();
    let (src, dst) = (place(at.0), place(at.1));
    let work = Work::Copy(CopyWork {
        list: list.into(),
        src,
        dst,
        payload_bytes,
        result_bytes: payload_bytes,
    });
    Job { request: RequestId(request), work, src: ends.0, dst: ends.1 }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a test's size")
}

/// A request for `shape` at random places of new regions of random content.
fn trial(fixture: &dyn Fixture, draw: &mut Draw, request: u64, shape: &Shape) -> Trial {
    let at = (draw.below(5000), draw.below(5000));
    let slack = (draw.below(5000), draw.below(5000));
    let src = draw.bytes(size(at.0 + shape.src_bytes + slack.0));
    let mut expected = draw.bytes(size(at.1 + shape.dst_bytes + slack.1));
    let ends = (fixture.source(&src), fixture.destination(&expected));
    layout::oracle::copy(&shape.copy, &src, size(at.0), &mut expected, size(at.1));
    Trial { job: job_of(request, vec![shape.copy.clone()], at, ends), expected }
}

/// A small request that must succeed.
fn small_trial(fixture: &dyn Fixture, draw: &mut Draw, request: u64) -> Trial {
    let shape = Shape::run(1 + draw.below(20_000));
    trial(fixture, draw, request, &shape)
}

/// Asks the channel, and sleeps until it has something to say where it has not.
///
/// # Panics
/// Where it says nothing for longer than any channel takes.
pub fn wait(channel: &mut dyn Channel, done: &mut Vec<Completion>) {
    let before = done.len();
    channel.poll(done);
    if done.len() > before {
        return;
    }
    if let Some(fd) = channel.wake_fd() {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&PATIENCE)).expect("poll works");
        assert_eq!(ready, 1, "the channel's descriptor never became readable");
    }
    channel.poll(done);
}

/// Waits until `count` requests have ended.
fn wait_for(channel: &mut dyn Channel, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        wait(channel, &mut done);
    }
    done
}

/// Runs `job` alone.
fn run_one(channel: &mut dyn Channel, job: Job) -> Completion {
    channel.submit(job).expect("an empty channel takes a job");
    wait_for(channel, 1).remove(0)
}

/// Runs all trials, as many at once as the channel takes, and compares.
fn run_all(fixture: &dyn Fixture, trials: Vec<Trial>) {
    let mut channel = fixture.channel();
    let mut checks = Vec::new();
    let mut done = Vec::new();
    for Trial { mut job, expected } in trials {
        checks.push((Arc::clone(&job.dst), job.work.clone(), expected));
        while let Err(back) = channel.submit(job) {
            wait(channel.as_mut(), &mut done);
            job = back;
        }
    }
    while done.len() < checks.len() {
        wait(channel.as_mut(), &mut done);
    }
    for completion in &done {
        assert_eq!(completion.result, Ok(()), "request {}", completion.request.0);
    }
    for (dst, work, expected) in checks {
        assert!(fixture.contents(&dst) == expected, "wrong bytes after {work:?}");
    }
}

pub(super) fn copies_match_the_oracle(fixture: &dyn Fixture) {
    for seed in 0..8 {
        let draw = &mut Draw::new(seed);
        let trials = (0..20).map(|request| {
            let field_bytes = [1, 4, 16, 300, 9000][size(draw.below(5))];
            let shape = Shape::draw(draw, field_bytes);
            trial(fixture, draw, request, &shape)
        });
        run_all(fixture, trials.collect());
    }
}

pub(super) fn long_runs_match_the_oracle(fixture: &dyn Fixture) {
    let draw = &mut Draw::new(100);
    let mut trials = Vec::new();
    for (request, bytes) in [4096, 1 << 16, (1 << 20) + 1, 5_000_000].into_iter().enumerate() {
        trials.push(trial(fixture, draw, request as u64, &Shape::run(bytes)));
    }
    run_all(fixture, trials);
}

pub(super) fn many_copies_in_one_request(fixture: &dyn Fixture) {
    let draw = &mut Draw::new(200);
    let src = draw.bytes(100_000);
    let mut expected = draw.bytes(100_000);
    let ends = (fixture.source(&src), fixture.destination(&expected));
    let mut list = Vec::new();
    for k in 0..50 {
        let mut copy = Shape::run(1 + draw.below(1900)).copy;
        copy.fields[0].src_offset = i64::try_from(draw.below(90_000)).expect("small") - 5;
        copy.fields[0].dst_offset = (k * 37 % 50) * 1950 - 5;
        layout::oracle::copy(&copy, &src, 5, &mut expected, 5);
        list.push(copy);
    }
    run_all(fixture, vec![Trial { job: job_of(0, list, (5, 5), ends), expected }]);
}

pub(super) fn an_empty_request_completes(fixture: &dyn Fixture) {
    let mut nowhere = Shape::run(1).copy;
    nowhere.dims.push(CopyDim { extent: 0, src_index: None, dst_index: None });
    nowhere.fields[0].strides.push(Stride { src: 1, dst: 1 });
    for list in [Vec::new(), vec![nowhere]] {
        let ends = (fixture.source(&[1]), fixture.destination(&[2]));
        let dst = Arc::clone(&ends.1);
        let done = run_one(fixture.channel().as_mut(), job_of(7, list, (0, 0), ends));
        assert_eq!(done, Completion { request: RequestId(7), result: Ok(()) });
        assert_eq!(fixture.contents(&dst), [2]);
    }
}

pub(super) fn a_malformed_copy_is_refused(fixture: &dyn Fixture) {
    let dim = |table: Option<Arc<[u64]>>| CopyDim { extent: 9, src_index: table, dst_index: None };
    let mut no_stride = Shape::run(1).copy;
    no_stride.dims.push(dim(None));
    let mut short_table = Shape::run(1).copy;
    short_table.dims.push(dim(Some([0, 1].into())));
    short_table.fields[0].strides.push(Stride { src: 1, dst: 1 });
    for copy in [no_stride, short_table] {
        let ends = (fixture.source(&[1; 64]), fixture.destination(&[2; 64]));
        let dst = Arc::clone(&ends.1);
        let done = run_one(fixture.channel().as_mut(), job_of(7, vec![copy], (0, 0), ends));
        assert!(done.result.is_err());
        assert_eq!(fixture.contents(&dst), [2; 64]);
    }
}

pub(super) fn out_of_bounds_touches_nothing(fixture: &dyn Fixture) {
    let before = Draw::new(300).bytes(64);
    let mut channel = fixture.channel();
    let shifted = |src_offset, dst_offset| {
        let mut copy = Shape::run(32).copy;
        (copy.fields[0].src_offset, copy.fields[0].dst_offset) = (src_offset, dst_offset);
        copy
    };
    let cases = [
        (shifted(0, 0), (33, 0)),
        (shifted(0, 0), (0, 33)),
        (shifted(-1, 0), (0, 0)),
        (shifted(0, -1), (0, 0)),
        (shifted(1, 0), (32, 0)),
        (shifted(0, 0), (u64::MAX, 0)),
        (shifted(0, 0), (0, u64::MAX - 16)),
    ];
    for (copy, at) in cases {
        let ends = (fixture.source(&before), fixture.destination(&before));
        let dst = Arc::clone(&ends.1);
        // A good copy beside the bad one must not run either.
        let list = vec![shifted(0, 0), copy.clone()];
        let result = run_one(channel.as_mut(), job_of(1, list, at, ends)).result;
        let kind = result.expect_err("it reaches outside").kind;
        assert_eq!(kind, ChannelErrorKind::OutOfBounds, "{copy:?} at {at:?}");
        assert!(fixture.contents(&dst) == before, "bytes changed by {copy:?} at {at:?}");
    }
    let good = small_trial(fixture, &mut Draw::new(301), 2);
    assert_eq!(run_one(channel.as_mut(), good.job).result, Ok(()), "after refused requests");
}

pub(super) fn a_foreign_region_is_refused(fixture: &dyn Fixture) {
    let memory = MemoryId { node: NodeId(9), index: 9 };
    let foreign = || Arc::new(Region::device(memory, 64, Arc::new(())));
    let mut channel = fixture.channel();
    let jobs = [(foreign(), fixture.destination(&[0; 64])), (fixture.source(&[0; 64]), foreign())];
    for ends in jobs {
        let job = job_of(1, vec![Shape::run(8).copy], (0, 0), ends);
        let result = run_one(channel.as_mut(), job).result;
        let kind = result.expect_err("no channel knows this region").kind;
        assert_eq!(kind, ChannelErrorKind::UnknownRegion);
    }
}

pub(super) fn a_full_channel_gives_back(fixture: &dyn Fixture) {
    let draw = &mut Draw::new(400);
    let mut channel = fixture.channel();
    let limit = u64::from(channel.capabilities().max_in_flight);
    for request in 0..limit {
        let job = small_trial(fixture, draw, request).job;
        assert!(channel.submit(job).is_ok(), "request {request} of {limit} was refused");
    }
    let back = channel.submit(small_trial(fixture, draw, limit).job);
    let job = back.expect_err("more than max_in_flight were taken");
    assert_eq!(job.request, RequestId(limit));
    wait_for(channel.as_mut(), 1);
    assert!(channel.submit(job).is_ok(), "there is room after a completion");
    channel.drain();
}

pub(super) fn each_request_completes_once(fixture: &dyn Fixture) {
    let draw = &mut Draw::new(500);
    let mut channel = fixture.channel();
    let mut done = Vec::new();
    for request in 0..60 {
        let mut job = small_trial(fixture, draw, request).job;
        while let Err(back) = channel.submit(job) {
            wait(channel.as_mut(), &mut done);
            job = back;
        }
    }
    while done.len() < 60 {
        wait(channel.as_mut(), &mut done);
    }
    channel.drain();
    channel.poll(&mut done);
    let names: HashSet<u64> = done.iter().map(|c| c.request.0).collect();
    assert_eq!((names.len(), done.len()), (60, 60));
}

/// Fills the channel; returns what must come of it.
fn fill(
    fixture: &dyn Fixture,
    channel: &mut dyn Channel,
    seed: u64,
) -> Vec<(Arc<Region>, Vec<u8>)> {
    let draw = &mut Draw::new(seed);
    let mut expected = Vec::new();
    for request in 0..u64::from(channel.capabilities().max_in_flight).min(32) {
        let trial = small_trial(fixture, draw, request);
        expected.push((Arc::clone(&trial.job.dst), trial.expected));
        channel.submit(trial.job).expect("there is room");
    }
    expected
}

pub(super) fn drain_waits_for_all(fixture: &dyn Fixture) {
    let mut channel = fixture.channel();
    let expected = fill(fixture, channel.as_mut(), 600);
    channel.drain();
    let mut done = Vec::new();
    wait(channel.as_mut(), &mut done);
    assert_eq!(done.len(), expected.len(), "one poll after drain says all");
    for (dst, bytes) in expected {
        assert!(fixture.contents(&dst) == bytes);
    }
}

pub(super) fn drop_waits_and_releases(fixture: &dyn Fixture) {
    let mut channel = fixture.channel();
    let expected = fill(fixture, channel.as_mut(), 700);
    drop(channel);
    for (dst, bytes) in expected {
        assert_eq!(Arc::strong_count(&dst), 1, "a dropped channel holds no region");
        assert!(fixture.contents(&dst) == bytes);
    }
}

pub(super) fn the_descriptor_wakes(fixture: &dyn Fixture) {
    let draw = &mut Draw::new(800);
    let mut channel = fixture.channel();
    for request in 0..20 {
        let Trial { job, expected } = small_trial(fixture, draw, request);
        let dst = Arc::clone(&job.dst);
        assert_eq!(run_one(channel.as_mut(), job).result, Ok(()));
        assert!(fixture.contents(&dst) == expected, "bytes are visible with the completion");
    }
}

pub(super) fn an_idle_descriptor_is_silent(fixture: &dyn Fixture) {
    let mut channel = fixture.channel();
    let count = fill(fixture, channel.as_mut(), 900).len();
    wait_for(channel.as_mut(), count);
    channel.poll(&mut Vec::new());
    let Some(fd) = channel.wake_fd() else { return };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&now)), Ok(0), "readable with nothing to say: a busy loop");
}

pub(super) fn a_commit_where_unable(fixture: &dyn Fixture) {
    let mut channel = fixture.channel();
    if channel.capabilities().commits {
        return;
    }
    let region = RegionId { index: 0, generation: 0 };
    let dst = fixture.destination(&[0; 8]);
    for work in [Work::Commit { region, sync: false }, Work::Abort { region }] {
        let job = Job { request: RequestId(1), work, src: Arc::clone(&dst), dst: Arc::clone(&dst) };
        assert!(run_one(channel.as_mut(), job).result.is_err(), "it said that it can't");
    }
}
