//! What a channel does while its commands are held, fail, or have no device any more.

use super::*;
use crate::cl::{Failure, Hold};
use crate::common::devices;
use channel::accelerator::{CommandChannel, Direction};
use channel::conformance::{Accelerator, Shape, drop_held, job, nested, run_one, submit_all};
use channel::model::ChannelErrorKind;
use channel::{Channel, Provider};
use cl3::error_codes::{CL_DEVICE_NOT_AVAILABLE, CL_MAP_FAILURE, CL_OUT_OF_RESOURCES};
use cl3::memory::CL_MEM_READ_WRITE;
use std::ptr::NonNull;

/// A channel of two queues that reads from `device`, and what holds them.
fn held(device: &Device) -> (CommandChannel<Queues>, Vec<Hold>) {
    let queues = Queues::new(device, 2).unwrap();
    let holds = queues.queues.iter().map(Queue::hold).collect();
    let shares_host_memory = device.profile().shares_host_memory;
    (CommandChannel::new(queues, Direction::Read, shares_host_memory).unwrap(), holds)
}

#[test]
fn a_dropped_channel_waits_and_holds_its_regions_until_then() {
    let test = "a_dropped_channel_waits_and_holds_its_regions_until_then";
    let Some([device, _]) = devices(test) else { return };
    let reads = Accelerator::new(device.clone(), 1).reads(4);
    let (mut channel, holds) = held(&device);
    submit_all(&mut channel, &reads);
    drop_held(Box::new(channel), &reads, || holds.into_iter().for_each(Hold::end));
}

#[test]
fn a_row_that_a_buffer_ends_within_has_a_command() {
    let test = "a_row_that_a_buffer_ends_within_has_a_command";
    let Some([device, _]) = devices(test) else { return };
    let mut queues = Queues::new(&device, 1).unwrap();
    // Two rows that are 960 bytes apart: from the start of one to where a third would start are 1920.
    let rows: CopyList = [nested(16, &[(2, 960, 960)])].into();
    let of = |len| Buffer::new(device.context(), CL_MEM_READ_WRITE, len).unwrap();
    let (long, other, short) = (of(1920), of(1920), of(1904));
    let mut bytes = [0u8; 976];
    let host = NonNull::new(bytes.as_mut_ptr()).unwrap();
    let cases = [
        (Ends::Write(host, &long), 1),
        (Ends::Write(host, &short), 2),
        (Ends::Read(&long, host), 1),
        (Ends::Read(&short, host), 2),
        (Ends::Copy(&long, &other), 1),
        (Ends::Copy(&long, &short), 2),
        (Ends::Copy(&short, &long), 2),
    ];
    for (ends, count) in cases {
        let mut rects = queues.commands(rows.clone(), (0, 0), false);
        // SAFETY: both ends hold the rows, and outlive the batch, which this drops.
        let queued = unsafe { queues.copy(0, ends, &mut rects) };
        assert_eq!((queued.count, queued.result), (count, Ok(())), "{ends:?}");
    }
}

#[test]
fn rows_two_gigabytes_apart_are_runs() {
    let Some([device, _]) = devices("rows_two_gigabytes_apart_are_runs") else { return };
    let queues = Queues::new(&device, 1).unwrap();
    let count =
        |pitch| queues.commands([nested(16, &[(3, pitch, 16)])].into(), (0, 0), false).count();
    assert_eq!([(1 << 31) - 1, 1 << 31].map(count), [1, 3]);
}

#[test]
fn a_command_that_fails_is_named() {
    let Some([device, _]) = devices("a_command_that_fails_is_named") else { return };
    // It is not the device that fails it: PoCL aborts where a command does.
    let failed = |code| {
        let failure = Failure { call: "clEnqueueReadBuffer", code };
        let events = vec![Event::failed(device.context(), failure)];
        Commands { device: device.clone(), events }.wait().unwrap_err()
    };
    let error = failed(CL_MAP_FAILURE);
    assert_eq!(error.kind, ChannelErrorKind::Io);
    let expected = format!(
        "OpenCL device `{}`: clEnqueueReadBuffer: CL_MAP_FAILURE (-12)",
        device.info().name
    );
    assert_eq!(error.detail, expected);
    assert!(!device.health().is_lost());
    assert_eq!(failed(CL_OUT_OF_RESOURCES).kind, ChannelErrorKind::DeviceLost);
    assert!(device.health().is_lost());
}

#[test]
fn a_lost_device_refuses_all_that_comes_later() {
    let test = "a_lost_device_refuses_all_that_comes_later";
    let Some([device, other]) = devices(test) else { return };
    let there = Accelerator::new(device.clone(), 1);
    let reads = there.reads(1);
    let (mut channel, holds) = held(&device);
    submit_all(&mut channel, &reads);
    let gone = Failure { call: "clFlush", code: CL_DEVICE_NOT_AVAILABLE };
    let told = device.failed(gone, When::Asked);
    assert!(device.health().is_lost() && told.kind == ChannelErrorKind::DeviceLost);
    holds.into_iter().for_each(Hold::end);
    channel.drain();
    let mut done = Vec::new();
    channel.poll(&mut done);
    assert_eq!(done[0].result, Ok(()), "what was queued before is over");
    let refused = run_one(&mut channel, job(1, &[Shape::run(8).copy], (0, 0), reads[0].clone()));
    let error = refused.result.unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    assert!(error.detail.contains("is lost") && error.detail.contains("clFlush"), "{error}");
    let kinds = [
        device.channel(Direction::Copy, None).map(drop),
        device.channel(Direction::Convert, None).map(drop),
        there.fbm.allocate(8, 1).map(drop),
        there.zcm.allocate(8, 1).map(drop),
    ];
    for result in kinds {
        assert_eq!(result.unwrap_err().kind, ChannelErrorKind::DeviceLost);
    }
    assert!(!other.health().is_lost());
    let _usable = Accelerator::new(other, 1).zcm(&[1; 8]);
}
