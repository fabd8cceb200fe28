//! Memories of devices, and copies between them.

mod common;

use channel::conformance::{Draw, Shape};
use channel::layout;
use channel::model::{ChannelErrorKind, CopyDim, FieldCopy, NdCopy, Stride};
use channel::{Channel, Provider};
use common::{backwards, contents, devices, fbm, job, memory, run, run_one, sys, zcm};
use isometry_channel_opencl::{Device, Direction, FbmProvider, OpenClChannel, ZcmProvider};
use std::sync::Arc;
use std::thread;

fn channel(device: &Device, direction: Direction) -> OpenClChannel {
    OpenClChannel::new(device, direction).unwrap()
}

#[test]
fn devices_say_what_they_are() {
    let Some(devices) = devices("devices_say_what_they_are") else { return };
    for device in devices {
        let info = device.info();
        assert!(!info.name.is_empty() && !info.platform.is_empty(), "{info:?}");
        assert!(info.version.starts_with("OpenCL "), "{info:?}");
        assert!(info.most_bytes > 0 && info.most_bytes <= info.memory_bytes, "{info:?}");
        assert!(!device.is_lost());
    }
}

#[test]
fn regions_are_zeroed_and_aligned() {
    let Some([device, _]) = devices("regions_are_zeroed_and_aligned") else { return };
    let near = ZcmProvider::new(memory(1), device.clone());
    let there = FbmProvider::new(memory(2), device.clone());
    for (len, align) in [(0, 1), (1, 1), (5000, 4096), (100, 1 << 20), (77, 0), ((1 << 20) + 3, 64)]
    {
        let region = near.allocate(len, align).unwrap();
        let start = region.host_span().unwrap().start().as_ptr().addr() as u64;
        assert!(start.is_multiple_of(align.max(1)));
        assert_eq!((region.len_bytes(), region.memory()), (len, memory(1)));
        assert!(contents(&device, &Arc::new(region)).iter().all(|&b| b == 0));
        let region = there.allocate(len, align).unwrap();
        assert_eq!((region.len_bytes(), region.memory()), (len, memory(2)));
        assert!(region.host_span().is_none());
        if len > 0 {
            assert!(contents(&device, &Arc::new(region)).iter().all(|&b| b == 0));
        }
    }
}

#[test]
fn too_much_is_refused_by_a_clear_error() {
    let Some([device, _]) = devices("too_much_is_refused_by_a_clear_error") else { return };
    let most = device.info().most_bytes;
    for len in [most + 1, 1 << 60, u64::MAX] {
        for provider in [
            &FbmProvider::new(memory(2), device.clone()) as &dyn Provider,
            &ZcmProvider::new(memory(1), device.clone()),
        ] {
            let error = provider.allocate(len, 4096).unwrap_err();
            assert_eq!(error.kind, ChannelErrorKind::OutOfMemory, "{error}");
            assert!(error.detail.contains(&most.to_string()), "{error}");
        }
    }
    assert!(!device.is_lost());
}

#[test]
fn memory_of_another_device_is_refused() {
    let Some([first, second]) = devices("memory_of_another_device_is_refused") else { return };
    let (ours, theirs) = (fbm(&first, &[1; 64]), fbm(&second, &[2; 64]));
    let cases = [
        (Direction::Copy, (&ours, &theirs)),
        (Direction::Copy, (&theirs, &ours)),
        (Direction::Write, (&sys(&[3; 64]), &theirs)),
        (Direction::Read, (&theirs, &sys(&[3; 64]))),
        (Direction::Write, (&ours, &ours)),
        (Direction::Read, (&ours, &ours)),
    ];
    for (direction, (src, dst)) in cases {
        let ends = (Arc::clone(src), Arc::clone(dst));
        let done = run_one(&mut channel(&first, direction), job(1, &[run(64)], (0, 0), ends));
        assert_eq!(done.result.unwrap_err().kind, ChannelErrorKind::UnknownRegion);
    }
    assert_eq!((contents(&first, &ours), contents(&second, &theirs)), (vec![1; 64], vec![2; 64]));
}

#[test]
fn a_request_of_thousands_of_commands_arrives_whole() {
    let test = "a_request_of_thousands_of_commands_arrives_whole";
    let Some([device, _]) = devices(test) else { return };
    const COUNT: usize = 3000;
    let bytes = Draw::new(1).bytes(COUNT);
    let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
    let ends = (fbm(&device, &bytes), sys(&[0; COUNT]));
    let dst = Arc::clone(&ends.1);
    for queues in [1, 2] {
        let mut channel = OpenClChannel::with_queues(&device, Direction::Read, queues).unwrap();
        let copy = backwards(COUNT as u64);
        let done = run_one(&mut channel, job(1, &[copy], (0, 0), ends.clone()));
        assert_eq!(done.result, Ok(()));
        assert_eq!(contents(&device, &dst), reversed);
    }
}

#[test]
fn a_copy_inside_one_region_moves_its_rows() {
    let Some([device, _]) = devices("a_copy_inside_one_region_moves_its_rows") else { return };
    let bytes = Draw::new(2).bytes(4096);
    let region = fbm(&device, &bytes);
    let rows = |dst_stride| {
        let dim = CopyDim { extent: 10, src_index: None, dst_index: None };
        let strides = vec![Stride { src: 100, dst: dst_stride }];
        let field = FieldCopy { bytes: 40, src_offset: 0, dst_offset: 50, strides };
        NdCopy { dims: vec![dim], fields: vec![field] }
    };
    // Among the source's rows, behind them, and behind them at another pitch.
    for (copy, at) in [(rows(100), (0, 0)), (rows(100), (0, 1500)), (rows(60), (0, 3000))] {
        let mut expected = contents(&device, &region);
        let before = expected.clone();
        layout::oracle::copy(&copy, &before, at.0 as usize, &mut expected, at.1 as usize);
        let ends = (Arc::clone(&region), Arc::clone(&region));
        let done = run_one(&mut channel(&device, Direction::Copy), job(1, &[copy], at, ends));
        assert_eq!(done.result, Ok(()));
        assert!(contents(&device, &region) == expected, "at {at:?}");
    }
}

#[test]
fn an_array_is_turned_from_one_device_to_another() {
    let Some([first, second]) = devices("an_array_is_turned_from_one_device_to_another") else {
        return;
    };
    let (rows, columns) = (37u64, 53u64);
    let turned = |here: u64, there: u64| {
        let dims = [here, there].map(|extent| CopyDim { extent, src_index: None, dst_index: None });
        let strides =
            vec![Stride { src: 4 * there as i64, dst: 4 }, Stride { src: 4, dst: 4 * here as i64 }];
        let field = FieldCopy { bytes: 4, src_offset: 0, dst_offset: 0, strides };
        NdCopy { dims: dims.into(), fields: vec![field] }
    };
    let bytes = Draw::new(3).bytes((4 * rows * columns) as usize);
    let zeros = vec![0; bytes.len()];
    let mut expected = zeros.clone();
    layout::oracle::copy(&turned(rows, columns), &bytes, 0, &mut expected, 0);
    let stops =
        [fbm(&first, &bytes), zcm(&first, &zeros), fbm(&second, &zeros), fbm(&second, &zeros)];
    let legs = [
        (&first, Direction::Read, turned(rows, columns)),
        (&second, Direction::Write, run(bytes.len() as u64)),
        (&second, Direction::Copy, turned(columns, rows)),
    ];
    for ((device, direction, copy), ends) in legs.into_iter().zip(stops.windows(2)) {
        let ends = (Arc::clone(&ends[0]), Arc::clone(&ends[1]));
        let done = run_one(&mut channel(device, direction), job(1, &[copy], (0, 0), ends));
        assert_eq!(done.result, Ok(()));
    }
    assert!(contents(&second, &stops[2]) == expected);
    assert!(contents(&second, &stops[3]) == bytes, "turned back");
}

/// Channels of all kinds at once, each driven by a thread of its own, on two devices.
#[test]
fn many_copies_from_several_threads_arrive_whole() {
    let Some(devices) = devices("many_copies_from_several_threads_arrive_whole") else { return };
    let drive = |device: &Device, direction: Direction, seed: u64| {
        let draw = &mut Draw::new(seed);
        let mut channel = OpenClChannel::with_queues(device, direction, 2).unwrap();
        for round in 0..12 {
            let mut expected = Vec::new();
            for request in 0..channel.capabilities().max_in_flight.into() {
                let shape = Shape::draw(draw, 300);
                let src = draw.bytes(shape.src_bytes as usize);
                let mut dst = draw.bytes(shape.dst_bytes as usize);
                let (from, to) = match direction {
                    Direction::Write => (sys(&src), fbm(device, &dst)),
                    Direction::Read => (fbm(device, &src), zcm(device, &dst)),
                    Direction::Copy => (fbm(device, &src), fbm(device, &dst)),
                };
                layout::oracle::copy(&shape.copy, &src, 0, &mut dst, 0);
                expected.push((Arc::clone(&to), dst));
                channel.submit(job(request, &[shape.copy], (0, 0), (from, to))).unwrap();
            }
            channel.drain();
            let mut done = Vec::new();
            channel.poll(&mut done);
            assert!(done.len() == expected.len() && done.iter().all(|c| c.result == Ok(())));
            let right = expected.iter().all(|(to, bytes)| contents(device, to) == *bytes);
            assert!(right, "{direction:?}, seed {seed}, round {round}");
        }
    };
    thread::scope(|scope| {
        for (seed, device) in (0..).zip(&devices) {
            for direction in [Direction::Write, Direction::Read, Direction::Copy] {
                scope.spawn(move || drive(device, direction, seed));
            }
        }
    });
}
