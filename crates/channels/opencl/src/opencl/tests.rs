//! What a channel does while its commands are held, fail, or have no device any more.

use super::*;
use crate::cl::{Event, Failure, Hold};
use crate::common::{devices, fbm, job, memory, run, run_one, sys, zcm};
use crate::memory::{FbmProvider, ZcmProvider};
use ::channel::model::ChannelErrorKind;
use ::channel::{Provider, Region};
use cl3::error_codes::{CL_DEVICE_NOT_AVAILABLE, CL_MAP_FAILURE, CL_OUT_OF_RESOURCES};
use std::thread;

const BYTES: usize = 100_000;

type Ends = (Arc<Region>, Arc<Region>);

/// A channel of two queues that reads from `device`, and the ends of so many jobs.
fn filled(device: &Device, jobs: u64) -> (OpenClChannel, Vec<Ends>) {
    let channel = OpenClChannel::with_queues(device, Direction::Read, 2).unwrap();
    let ends = |n: u64| (fbm(device, &[n as u8 + 1; BYTES]), sys(&[0; BYTES]));
    (channel, (0..jobs).map(ends).collect())
}

fn submit_all(channel: &mut OpenClChannel, ends: &[Ends]) {
    for (n, (src, dst)) in (0..).zip(ends) {
        let ends = (Arc::clone(src), Arc::clone(dst));
        channel.submit(job(n, &[run(BYTES as u64)], (0, 0), ends)).unwrap();
    }
}

/// Has a command of the first request fail. It is not the device that fails it: PoCL aborts where a
/// command does.
fn fail_first(channel: &mut OpenClChannel, code: i32) {
    let failure = Failure { call: "clEnqueueReadBuffer", code };
    let failed = Event::failed(channel.device.context(), failure);
    channel.slots[0].as_mut().unwrap().fail_batch(0, failed);
    channel.commands += 1;
}

#[test]
fn a_dropped_channel_waits_and_holds_its_regions_until_then() {
    let test = "a_dropped_channel_waits_and_holds_its_regions_until_then";
    let Some([device, _]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 4);
    let holds: Vec<_> = channel.queues.iter().map(Queue::hold).collect();
    submit_all(&mut channel, &ends);
    thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(channel));
        let held = ends
            .iter()
            .all(|(src, dst)| (Arc::strong_count(src), Arc::strong_count(dst)) == (2, 2));
        assert!(held && !dropped.is_finished());
        holds.into_iter().for_each(Hold::end);
    });
    for (n, (src, dst)) in ends.iter().enumerate() {
        assert_eq!((Arc::strong_count(src), Arc::strong_count(dst)), (1, 1));
        assert_eq!(crate::common::contents(&device, dst), [n as u8 + 1; BYTES]);
    }
}

#[test]
fn a_full_channel_takes_more_only_after_a_poll() {
    let test = "a_full_channel_takes_more_only_after_a_poll";
    let Some([device, _]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, u64::from(MAX_IN_FLIGHT));
    let holds: Vec<_> = channel.queues.iter().map(Queue::hold).collect();
    submit_all(&mut channel, &ends);
    let mut done = Vec::new();
    channel.poll(&mut done);
    assert!(done.is_empty(), "held commands are not over");
    let again = job(9, &[run(1)], (0, 0), ends[0].clone());
    let again = channel.submit(again).unwrap_err();
    holds.into_iter().for_each(Hold::end);
    while done.is_empty() {
        channel.ended.bell().wait();
        channel.poll(&mut done);
    }
    channel.submit(again).unwrap();
}

#[test]
fn a_command_that_fails_ends_its_request_alone() {
    let test = "a_command_that_fails_ends_its_request_alone";
    let Some([device, _]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 2);
    let holds: Vec<_> = channel.queues.iter().map(Queue::hold).collect();
    submit_all(&mut channel, &ends);
    fail_first(&mut channel, CL_MAP_FAILURE);
    holds.into_iter().for_each(Hold::end);
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    done.sort_by_key(|completion| completion.request);
    let error = done[0].result.clone().unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::Io);
    assert!(error.detail.ends_with("clEnqueueReadBuffer: CL_MAP_FAILURE (-12)"), "{error}");
    assert_eq!(done[1].result, Ok(()));
    assert!(!device.is_lost());
}

#[test]
fn a_device_that_fails_for_want_of_resources_is_lost() {
    let test = "a_device_that_fails_for_want_of_resources_is_lost";
    let Some([device, _]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 1);
    submit_all(&mut channel, &ends);
    fail_first(&mut channel, CL_OUT_OF_RESOURCES);
    let mut done = Vec::new();
    while done.is_empty() {
        channel.ended.bell().wait();
        channel.poll(&mut done);
    }
    assert_eq!(done[0].result.clone().unwrap_err().kind, ChannelErrorKind::DeviceLost);
    assert!(device.is_lost());
}

#[test]
fn a_lost_device_refuses_all_that_comes_later() {
    let test = "a_lost_device_refuses_all_that_comes_later";
    let Some([device, other]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 1);
    let holds: Vec<_> = channel.queues.iter().map(Queue::hold).collect();
    submit_all(&mut channel, &ends);
    let gone = Failure { call: "clFlush", code: CL_DEVICE_NOT_AVAILABLE };
    let told = device.failed(gone, When::Asked);
    assert!(device.is_lost() && told.kind == ChannelErrorKind::DeviceLost);
    holds.into_iter().for_each(Hold::end);
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    assert_eq!(done[0].result, Ok(()), "what was queued before is over");
    let refused = run_one(&mut channel, job(1, &[run(8)], (0, 0), ends[0].clone()));
    let error = refused.result.unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    assert!(error.detail.contains("is lost") && error.detail.contains("clFlush"), "{error}");
    let kinds = [
        OpenClChannel::new(&device, Direction::Copy).map(drop),
        FbmProvider::new(memory(0), device.clone()).allocate(8, 1).map(drop),
        ZcmProvider::new(memory(0), device.clone()).allocate(8, 1).map(drop),
    ];
    for result in kinds {
        assert_eq!(result.unwrap_err().kind, ChannelErrorKind::DeviceLost);
    }
    assert!(!other.is_lost());
    zcm(&other, &[1; 8]);
}

#[test]
fn a_device_lost_under_a_long_request_ends_it() {
    let test = "a_device_lost_under_a_long_request_ends_it";
    let Some([device, _]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 1);
    let holds: Vec<_> = channel.queues.iter().map(Queue::hold).collect();
    // Runs of one byte, every other one: no rects, since the source goes backwards.
    let copy = crate::common::backwards(MOST_COMMANDS as u64 + 1);
    channel.submit(job(0, &[copy], (0, 0), ends[0].clone())).unwrap();
    assert_eq!((channel.commands, channel.waiting.len()), (MOST_COMMANDS, 1));
    device.failed(Failure { call: "clFlush", code: CL_DEVICE_NOT_AVAILABLE }, When::Asked);
    holds.into_iter().for_each(Hold::end);
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    assert_eq!(done[0].result.clone().unwrap_err().kind, ChannelErrorKind::DeviceLost);
    assert_eq!((channel.commands, channel.held), (0, 0));
}
