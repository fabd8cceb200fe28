//! What becomes of requests when the driver refuses a call, when copies fail, and when a device is
//! lost: all of it emulated.

mod common;

use channel::accelerator::{Device as _, Direction, Interop as _};
use channel::conformance::{Accelerator, Ends, Shape, backwards, drop_held, job, run_one};
use channel::conformance::{nested, submit_all, sys, wait};
use channel::model::{ChannelError, ChannelErrorKind, Completion, NdCopy};
use channel::{Channel, Provider};
use common::{emulated, fake};
use fake_cuda::Fake;
use isometry_channel_cuda::Device;
use std::sync::Arc;

/// Every call that a request may take, with a copy that takes it.
fn calls() -> [(&'static str, Direction, NdCopy); 10] {
    let run = || Shape::run(64).copy;
    [
        ("cuMemcpyHtoDAsync", Direction::Write, run()),
        ("cuMemcpyDtoHAsync", Direction::Read, run()),
        ("cuMemcpyDtoDAsync", Direction::Copy, run()),
        ("cuMemcpy2DAsync", Direction::Write, nested(8, &[(5, 20, 10)])),
        ("cuMemcpy3DAsync", Direction::Read, nested(8, &[(5, 20, 10), (3, 200, 100)])),
        ("cuLaunchKernel", Direction::Convert, run()),
        ("cuLaunchKernel", Direction::ConvertWrite, run()),
        ("cuLaunchKernel", Direction::ConvertRead, run()),
        ("cuEventCreate", Direction::Write, run()),
        ("cuEventRecord", Direction::Write, run()),
    ]
}

/// The name of a call in the library.
fn symbol(call: &str) -> String {
    if call.starts_with("cuMemcpy") { format!("{call}_v2") } else { call.to_owned() }
}

fn under_test(device: &Device) -> Accelerator {
    Accelerator::new(device.clone(), 1)
}

fn ends(device: &Device, direction: Direction) -> Ends {
    let there = under_test(device);
    let side = |byte, is_device| match (is_device, direction.converts()) {
        (false, false) => sys(&[byte; 1000]),
        _ => there.side(&[byte; 1000], is_device),
    };
    (side(1, direction.reads_device()), side(0, direction.writes_device()))
}

#[test]
fn a_refused_call_ends_its_request_by_name() {
    let Some(fake) = fake("a_refused_call_ends_its_request_by_name") else { return };
    let [device, _] = emulated(&fake);
    for (call, direction, copy) in calls() {
        for (code, name) in [(801, "CUDA_ERROR_NOT_SUPPORTED"), (4321, "an error without a name")] {
            let mut channel = device.channel(direction, None).unwrap();
            let ends = ends(&device, direction);
            let again = job(2, std::slice::from_ref(&copy), (0, 0), ends.clone());
            fake.refuse(&symbol(call), code);
            let done = run_one(channel.as_mut(), job(1, std::slice::from_ref(&copy), (0, 0), ends));
            let error = done.result.unwrap_err();
            assert_eq!(error.kind, ChannelErrorKind::Io);
            let expected = format!("CUDA device `Emulated 0`: {call}: {name} ({code})");
            assert_eq!(error.detail, expected);
            assert_eq!(run_one(channel.as_mut(), again).result, Ok(()), "the channel goes on");
        }
    }
    let waited = fake.count("cuStreamSynchronize");
    assert_eq!(waited, 2, "copies without an event behind them are waited for by their stream");
    assert!(!device.health().is_lost());
}

#[test]
fn who_is_not_called_back_waits() {
    let Some(fake) = fake("who_is_not_called_back_waits") else { return };
    let [device, _] = emulated(&fake);
    let mut channel = device.channel(Direction::Write, None).unwrap();
    // So much that its end is not waited for at once.
    const BYTES: usize = 1 << 20;
    let dst = under_test(&device).fbm(&[0; BYTES]);
    fake.refuse("cuStreamAddCallback", 801);
    let ends = (sys(&[1; BYTES]), Arc::clone(&dst));
    channel.submit(job(1, &[Shape::run(BYTES as u64).copy], (0, 0), ends)).unwrap();
    let done = polled(channel.as_mut());
    assert_eq!(done[0].result, Ok(()));
    assert_eq!(under_test(&device).contents(&dst), [1; BYTES]);
}

#[test]
fn out_of_memory_under_a_request_is_not_the_devices_end() {
    let test = "out_of_memory_under_a_request_is_not_the_devices_end";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    let mut channel = device.channel(Direction::Write, None).unwrap();
    let ends = ends(&device, Direction::Write);
    fake.refuse("cuMemcpyHtoDAsync_v2", 2);
    let done = run_one(channel.as_mut(), job(1, &[Shape::run(8).copy], (0, 0), ends));
    assert_eq!(done.result.unwrap_err().kind, ChannelErrorKind::OutOfMemory);
    assert!(!device.health().is_lost());
}

#[test]
fn a_refusal_in_the_middle_waits_for_what_was_queued() {
    let test = "a_refusal_in_the_middle_waits_for_what_was_queued";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    let mut channel = device.channel(Direction::Write, Some(1)).unwrap();
    let ends = ends(&device, Direction::Write);
    fake.hold(0, true);
    // The run is queued, and the rows behind it are refused.
    fake.refuse("cuMemcpy2DAsync_v2", 801);
    let list = [Shape::run(8).copy, nested(8, &[(5, 20, 10)])];
    channel.submit(job(1, &list, (0, 0), ends.clone())).unwrap();
    assert_eq!(polled(channel.as_mut()), [], "one copy is not over");
    fake.hold(0, false);
    channel.drain();
    let error = polled(channel.as_mut())[0].result.clone().unwrap_err();
    assert!(error.detail.contains("cuMemcpy2DAsync"), "{error}");
    let written = under_test(&device).contents(&ends.1);
    assert_eq!((&written[..8], &written[8..]), (&[1; 8][..], &[0; 992][..]));
}

/// A channel from the first device to the second, which it reaches, and memory of both.
fn to_peer([first, second]: &[Device; 2]) -> (Box<dyn Channel>, Ends) {
    assert!(first.reach(second).unwrap().is_some());
    let ends = (under_test(first).fbm(&[1; 1000]), under_test(second).fbm(&[0; 1000]));
    (first.channel(Direction::Copy, None).unwrap(), ends)
}

/// Has an opening of the second device hear that it is lost.
fn lose(fake: &Fake, second: &Device) {
    let mut channel = second.channel(Direction::Write, None).unwrap();
    let ends = ends(second, Direction::Write);
    fake.fail(1, 700, true);
    let done = run_one(channel.as_mut(), job(1, &[Shape::run(8).copy], (0, 0), ends));
    assert!(done.result.is_err() && second.health().is_lost());
}

fn is_refused_by_the_second(devices: &[Device; 2], result: Result<(), ChannelError>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    let parts = ["Emulated 1", "ILLEGAL_ADDRESS (700)"];
    assert!(parts.iter().all(|part| error.detail.contains(part)), "{error}");
    assert_eq!(devices.each_ref().map(|device| device.health().is_lost()), [false, true]);
}

#[test]
fn nothing_goes_to_a_peer_that_is_known_to_be_lost() {
    let test = "nothing_goes_to_a_peer_that_is_known_to_be_lost";
    let Some(fake) = fake(test) else { return };
    let devices = emulated(&fake);
    let (mut channel, ends) = to_peer(&devices);
    fake.hold(0, true);
    // More than what is queued at once: the rest finds the peer lost.
    let list = vec![Shape::run(1000).copy; 600];
    channel.submit(job(1, &list, (0, 0), ends.clone())).unwrap();
    let queued = fake.count("cuMemcpyPeerAsync");
    lose(&fake, &devices[1]);
    fake.hold(0, false);
    channel.drain();
    is_refused_by_the_second(&devices, polled(channel.as_mut()).remove(0).result);
    let next = run_one(channel.as_mut(), job(2, &list, (0, 0), ends));
    is_refused_by_the_second(&devices, next.result);
    assert_eq!(fake.count("cuMemcpyPeerAsync"), queued, "nothing more was asked");
}

#[test]
fn a_copy_that_hears_first_of_a_peers_loss_loses_that_one_alone() {
    let test = "a_copy_that_hears_first_of_a_peers_loss_loses_that_one_alone";
    let Some(fake) = fake(test) else { return };
    let devices = emulated(&fake);
    let (mut channel, ends) = to_peer(&devices);
    // By another opening of it.
    let [_, same] = emulated(&fake);
    lose(&fake, &same);
    let done = run_one(channel.as_mut(), job(1, &[Shape::run(8).copy], (0, 0), ends));
    is_refused_by_the_second(&devices, done.result);
}

fn polled(channel: &mut dyn Channel) -> Vec<Completion> {
    let mut done = Vec::new();
    channel.poll(&mut done);
    done.sort_by_key(|completion| completion.request);
    done
}

/// A channel of so many streams that reads from the first device, which stands still, and as many
/// jobs in flight.
fn in_flight(
    fake: &Fake,
    device: &Device,
    jobs: u8,
    streams: usize,
) -> (Box<dyn Channel>, Vec<Ends>) {
    let reads = under_test(device).reads(jobs);
    let mut channel = device.channel(Direction::Read, Some(streams)).unwrap();
    fake.hold(0, true);
    submit_all(channel.as_mut(), &reads);
    (channel, reads)
}

#[test]
fn a_copy_that_fails_ends_its_request_alone() {
    let Some(fake) = fake("a_copy_that_fails_ends_its_request_alone") else { return };
    let [device, _] = emulated(&fake);
    let (mut channel, ends) = in_flight(&fake, &device, 3, 1);
    fake.fail(0, 801, false);
    fake.hold(0, false);
    channel.drain();
    let done = polled(channel.as_mut());
    let error = done[0].result.clone().unwrap_err();
    assert!(error.detail.contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{error}");
    for n in [1, 2] {
        assert_eq!(done[n].result, Ok(()));
        let read = under_test(&device).contents(&ends[n].1);
        assert!(read.iter().all(|&byte| byte == n as u8 + 1));
    }
    assert!(!device.health().is_lost());
}

#[test]
fn a_fault_ends_all_in_flight_and_all_that_comes_later() {
    let test = "a_fault_ends_all_in_flight_and_all_that_comes_later";
    for (code, name) in [(700, "ILLEGAL_ADDRESS"), (719, "LAUNCH_FAILED")] {
        let Some(fake) = fake(test) else { return };
        let [device, other] = emulated(&fake);
        let (mut channel, ends) = in_flight(&fake, &device, 4, 2);
        fake.fail(0, code, true);
        fake.hold(0, false);
        let mut done = Vec::new();
        while done.len() < 4 {
            // The driver calls back also after a fault: nobody drains here.
            wait(channel.as_mut(), &mut done);
        }
        for completion in done {
            let error = completion.result.unwrap_err();
            assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
            assert!(error.detail.contains(name), "{error}");
        }
        refuses_all(&device, channel.as_mut(), &ends[0], name);
        assert!(!other.health().is_lost());
        let there = under_test(&other);
        assert_eq!(there.contents(&there.fbm(&[5; 8])), [5; 8]);
    }
}

/// Nothing of a lost device does anything any more, and says why.
fn refuses_all(device: &Device, channel: &mut dyn Channel, ends: &Ends, why: &str) {
    assert!(device.health().is_lost());
    let there = under_test(device);
    let later = job(9, &[Shape::run(8).copy], (0, 0), ends.clone());
    let results = [
        run_one(channel, later).result,
        device.channel(Direction::Copy, None).map(drop),
        there.fbm.allocate(8, 1).map(drop),
        there.zcm.allocate(8, 1).map(drop),
    ];
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
        assert!(error.detail.contains("is lost") && error.detail.contains(why), "{error}");
    }
}

#[test]
fn a_device_that_is_gone_when_asked_closes_the_channel() {
    let Some(fake) = fake("a_device_that_is_gone_when_asked_closes_the_channel") else {
        return;
    };
    let [device, _] = emulated(&fake);
    let mut channel = device.channel(Direction::Write, None).unwrap();
    let ends = ends(&device, Direction::Write);
    fake.refuse("cuMemcpyHtoDAsync_v2", 46);
    let done = run_one(channel.as_mut(), job(1, &[Shape::run(8).copy], (0, 0), ends.clone()));
    let error = done.result.unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
    let expected = "cuMemcpyHtoDAsync: CUDA_ERROR_DEVICE_UNAVAILABLE (46)";
    assert!(error.detail.ends_with(expected), "{error}");
    refuses_all(&device, channel.as_mut(), &ends, "CUDA_ERROR_DEVICE_UNAVAILABLE");
}

#[test]
fn a_dropped_channel_waits_and_holds_its_regions_until_then() {
    let test = "a_dropped_channel_waits_and_holds_its_regions_until_then";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    let (channel, reads) = in_flight(&fake, &device, 4, 2);
    drop_held(channel, &reads, || fake.hold(0, false));
}

#[test]
fn a_channel_of_a_lost_device_is_dropped_with_a_long_request_in_flight() {
    let test = "a_channel_of_a_lost_device_is_dropped_with_a_long_request_in_flight";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    let there = under_test(&device);
    let ends = (there.fbm(&[1; 3000]), sys(&[0; 3000]));
    let mut channel = device.channel(Direction::Read, None).unwrap();
    fake.hold(0, true);
    channel.submit(job(1, &[backwards(3000)], (0, 0), ends.clone())).unwrap();
    fake.fail(0, 700, true);
    fake.hold(0, false);
    drop(channel);
    assert!(device.health().is_lost());
    assert_eq!((Arc::strong_count(&ends.0), Arc::strong_count(&ends.1)), (1, 1));
}

/// Copies inside a device, by rects or by kernels.
fn inside(device: &Device, direction: Direction) -> Completion {
    let mut channel = device.channel(direction, None).unwrap();
    let ends = ends(device, direction);
    let dst = Arc::clone(&ends.1);
    let done = run_one(channel.as_mut(), job(1, &[Shape::run(1000).copy], (0, 0), ends));
    let copied = under_test(device).contents(&dst) == [1; 1000];
    assert_eq!(copied, done.result.is_ok());
    done
}

#[test]
fn kernels_are_loaded_once_by_the_first_conversion() {
    let test = "kernels_are_loaded_once_by_the_first_conversion";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    let ways = [Direction::Copy, Direction::Convert, Direction::Copy, Direction::Convert];
    for (direction, loaded) in ways.into_iter().zip([0, 1, 1, 1]) {
        assert_eq!(inside(&device, direction).result, Ok(()));
        assert_eq!(fake.count("cuModuleLoadData"), loaded);
    }
    drop(device);
    assert_eq!(fake.count("cuModuleUnload"), 1);
}

#[test]
fn kernels_that_cant_be_loaded_end_conversions_and_nothing_else() {
    let test = "kernels_that_cant_be_loaded_end_conversions_and_nothing_else";
    let Some(fake) = fake(test) else { return };
    let [device, other] = emulated(&fake);
    fake.refuse("cuModuleLoadData", 222);
    for _ in 0..2 {
        let error = inside(&device, Direction::Convert).result.unwrap_err();
        assert_eq!(error.kind, ChannelErrorKind::Io);
        let expected = "CUDA device `Emulated 0` has no kernels, and converts nothing: \
            cuModuleLoadData: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)";
        assert_eq!(error.detail, expected);
    }
    assert_eq!(inside(&device, Direction::Copy).result, Ok(()));
    assert_eq!(inside(&other, Direction::Convert).result, Ok(()));
    assert!(!device.health().is_lost());
}

#[test]
fn a_device_lost_while_kernels_are_loaded_is_lost() {
    let test = "a_device_lost_while_kernels_are_loaded_is_lost";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    let mut channel = device.channel(Direction::Convert, None).unwrap();
    let ends = ends(&device, Direction::Convert);
    fake.refuse("cuModuleLoadData", 46);
    let done = run_one(channel.as_mut(), job(1, &[Shape::run(8).copy], (0, 0), ends.clone()));
    assert_eq!(done.result.unwrap_err().kind, ChannelErrorKind::DeviceLost);
    refuses_all(&device, channel.as_mut(), &ends, "CUDA_ERROR_DEVICE_UNAVAILABLE");
}

#[test]
fn a_launch_that_fails_ends_its_request_alone() {
    let Some(fake) = fake("a_launch_that_fails_ends_its_request_alone") else { return };
    let [device, other] = emulated(&fake);
    for (n, device, way) in [(0, device, Direction::Convert), (1, other, Direction::ConvertWrite)] {
        let ends = ends(&device, way);
        let mut channel = device.channel(way, None).unwrap();
        for (code, is_fault) in [(801, false), (719, true)] {
            let [once, again] = [1, 2].map(|n| job(n, &[Shape::run(8).copy], (0, 0), ends.clone()));
            fake.fail(n, code, is_fault);
            let done = run_one(channel.as_mut(), once);
            assert!(done.result.unwrap_err().detail.contains(&format!("({code})")));
            assert_eq!(run_one(channel.as_mut(), again).result.is_err(), is_fault);
        }
        assert!(device.health().is_lost());
    }
}

#[test]
fn what_kernels_reach_stays_pinned_until_they_are_over() {
    let test = "what_kernels_reach_stays_pinned_until_they_are_over";
    let Some(fake) = fake(test) else { return };
    let [device, _] = emulated(&fake);
    for way in [Direction::ConvertWrite, Direction::ConvertRead] {
        let mut channel = device.channel(way, None).unwrap();
        let ends = ends(&device, way);
        let [first, second] =
            [1, 2].map(|n| job(n, &[Shape::run(1000).copy], (0, 0), ends.clone()));
        // So that the kernels are there when the device stands still.
        assert_eq!(run_one(channel.as_mut(), first).result, Ok(()));
        let freed = fake.count("cuMemFreeHost");
        fake.hold(0, true);
        channel.submit(second).unwrap();
        drop(ends);
        assert_eq!((polled(channel.as_mut()), fake.count("cuMemFreeHost")), (vec![], freed));
        fake.hold(0, false);
        channel.drain();
        assert_eq!(polled(channel.as_mut())[0].result, Ok(()));
        assert_eq!(fake.count("cuMemFreeHost"), freed + 1, "{way:?}");
    }
}
