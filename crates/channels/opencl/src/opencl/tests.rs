//! What a channel does while its commands are held, fail, or have no device any more.

use super::*;
use crate::cl::{Event, Failure, Hold, Queue};
use crate::common::{devices, under_test};
use crate::copier::Commands;
use crate::error::When;
use crate::memory::{FbmProvider, ZcmProvider};
use ::channel::accelerator::Batch;
use ::channel::conformance::{Shape, job, memory, run_one, sys};
use ::channel::model::ChannelErrorKind;
use ::channel::{Provider, Region};
use cl3::error_codes::{CL_DEVICE_NOT_AVAILABLE, CL_MAP_FAILURE, CL_OUT_OF_RESOURCES};
use std::sync::Arc;
use std::thread;

const BYTES: usize = 100_000;

type Ends = (Arc<Region>, Arc<Region>);

/// A channel of two queues that reads from `device`, and the ends of so many jobs.
fn filled(device: &Device, jobs: u64) -> (OpenClChannel, Vec<Ends>) {
    let channel = OpenClChannel::with_queues(device, Direction::Read, 2).unwrap();
    let there = under_test(device, 1);
    let ends = |n: u64| (there.fbm(&[n as u8 + 1; BYTES]), sys(&[0; BYTES]));
    (channel, (0..jobs).map(ends).collect())
}

fn hold(channel: &OpenClChannel) -> Vec<Hold> {
    channel.inner.copier().queues.iter().map(Queue::hold).collect()
}

fn submit_all(channel: &mut OpenClChannel, ends: &[Ends]) {
    for (n, (src, dst)) in (0..).zip(ends) {
        let ends = (Arc::clone(src), Arc::clone(dst));
        channel.submit(job(n, &[Shape::run(BYTES as u64).copy], (0, 0), ends)).unwrap();
    }
}

#[test]
fn a_dropped_channel_waits_and_holds_its_regions_until_then() {
    let test = "a_dropped_channel_waits_and_holds_its_regions_until_then";
    let Some([device, _]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 4);
    let holds = hold(&channel);
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
        assert_eq!(under_test(&device, 1).contents(dst), [n as u8 + 1; BYTES]);
    }
}

#[test]
fn a_command_that_fails_is_named() {
    let Some([device, _]) = devices("a_command_that_fails_is_named") else { return };
    // It is not the device that fails it: PoCL aborts where a command does.
    let failed = |code| {
        let failure = Failure { call: "clEnqueueReadBuffer", code };
        let mut batch = Commands::of(&device, Event::failed(device.context(), failure));
        batch.wait().unwrap_err()
    };
    let error = failed(CL_MAP_FAILURE);
    assert_eq!(error.kind, ChannelErrorKind::Io);
    assert!(error.detail.ends_with("clEnqueueReadBuffer: CL_MAP_FAILURE (-12)"), "{error}");
    assert!(!device.is_lost());
    assert_eq!(failed(CL_OUT_OF_RESOURCES).kind, ChannelErrorKind::DeviceLost);
    assert!(device.is_lost());
}

#[test]
fn a_lost_device_refuses_all_that_comes_later() {
    let test = "a_lost_device_refuses_all_that_comes_later";
    let Some([device, other]) = devices(test) else { return };
    let (mut channel, ends) = filled(&device, 1);
    let holds = hold(&channel);
    submit_all(&mut channel, &ends);
    let gone = Failure { call: "clFlush", code: CL_DEVICE_NOT_AVAILABLE };
    let told = device.failed(gone, When::Asked);
    assert!(device.is_lost() && told.kind == ChannelErrorKind::DeviceLost);
    holds.into_iter().for_each(Hold::end);
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    assert_eq!(done[0].result, Ok(()), "what was queued before is over");
    let refused = run_one(&mut channel, job(1, &[Shape::run(8).copy], (0, 0), ends[0].clone()));
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
    let _usable = under_test(&other, 1).zcm(&[1; 8]);
}
