//! What devices say of themselves, where there is none, and how many copies a request takes.

mod common;

use channel::Provider;
use channel::accelerator::{Device, Direction, Interop};
use channel::conformance::{Accelerator, Shape, job, nested, run_one, sys};
use channel::model::{ChannelErrorKind, CopyDim, FieldCopy, NdCopy, Stride};
use common::{devices, emulated, fake};
use isometry_channel_cuda::{Absent, find, find_in};
use std::path::Path;
use std::sync::Arc;

#[test]
fn devices_say_what_they_are() {
    let Some((fake, devices)) = devices("devices_say_what_they_are", 1) else { return };
    for device in &devices {
        let info = device.info();
        println!("on {info:?}");
        assert!(!info.name.is_empty() && info.bus_id.contains(':'), "{info:?}");
        assert!(info.cuda_version >= (12, 0) && info.capability.0 > 0, "{info:?}");
        assert!(info.memory_bytes > 0 && info.most_pitch_bytes > 0, "{info:?}");
        assert!(!device.health().is_lost());
    }
    if fake.is_some() {
        let info = devices[1].info();
        assert_eq!((info.name.as_str(), info.bus_id.as_str()), ("Emulated 1", "0000:01:00.0"));
        assert_eq!((info.cuda_version, info.capability), ((12, 8), (8, 6)));
        assert_eq!((info.memory_bytes, info.most_pitch_bytes), (64 << 20, 65_536));
    }
}

#[test]
fn a_device_takes_memory_of_another_that_it_reaches_as_a_destination_alone() {
    let test = "a_device_takes_memory_of_another_that_it_reaches_as_a_destination_alone";
    let Some(fake) = fake(test) else { return };
    let devices = emulated(&fake);
    let [own, peer] = &devices;
    let copied = |[first, second]: &[Accelerator; 2]| {
        let (ours, theirs) = (first.fbm(&[1; 64]), second.fbm(&[2; 64]));
        [(&ours, &theirs), (&theirs, &ours)].map(|(src, dst)| {
            let job = job(1, &[Shape::run(64).copy], (0, 0), (Arc::clone(src), Arc::clone(dst)));
            let done = run_one(first.channel(Direction::Copy).as_mut(), job).result;
            done.map(|()| second.contents(&theirs)).map_err(|error| error.kind)
        })
    };
    let under_test = devices.clone().map(|device| Accelerator::new(device, 1));
    let refused = || Err(ChannelErrorKind::UnknownRegion);
    assert_eq!(own.reach(own).unwrap(), None, "it is no other device");
    for call in ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"] {
        fake.refuse(call, 217);
        let error = own.reach(peer).unwrap_err();
        assert!(error.detail.contains(call) && error.detail.contains("(217)"), "{}", error.detail);
        assert_eq!(copied(&under_test), [refused(), refused()]);
    }
    fake.refuse("cuDeviceGetP2PAttribute", 217);
    assert_eq!(own.reach(peer).unwrap(), Some(i32::MAX), "by the last of its links");
    assert_eq!(own.reach(peer).unwrap(), Some(0), "also where it was enabled before");
    assert_eq!(copied(&under_test), [Ok(vec![1; 64]), refused()]);
    let [first, second] = under_test;
    assert_eq!(copied(&[second, first]), [refused(), refused()], "the other way nobody asked");
}

#[test]
fn a_missing_library_is_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("libcuda.so.1");
    std::fs::write(&empty, "").unwrap();
    // A library that is there, and is another.
    let others = [dir.path().join("nowhere"), empty, Path::new("libm.so.6").into()];
    for library in others {
        let absent = find_in(&library).unwrap_err();
        let Absent::Library { library: named, .. } = &absent else { panic!("{absent}") };
        assert_eq!(*named, library.display().to_string());
        assert!(absent.to_string().starts_with("no CUDA: "), "{absent}");
    }
    assert!(find_in(Path::new("libm.so.6")).unwrap_err().to_string().contains("cuInit"));
    // Whatever there is here, asking for it is safe, and says the same again.
    let said = || find().map(|found| found.len());
    assert_eq!(said(), said());
}

#[test]
fn a_driver_without_devices_is_one_sentence() {
    let Some(fake) = fake("a_driver_without_devices_is_one_sentence") else { return };
    fake.refuse("cuInit", 100);
    assert_eq!(find_in(fake.path()).unwrap_err(), Absent::Device);
    fake.refuse("cuInit", 34);
    let said = find_in(fake.path()).unwrap_err().to_string();
    assert_eq!(said, "CUDA doesn't work: cuInit: CUDA_ERROR_STUB_LIBRARY (34)");
    fake.refuse("cuDeviceGetName", 999);
    assert_eq!(find_in(fake.path()).unwrap().len(), 1, "one that fails is left out");
    fake.refuse("cuDevicePrimaryCtxRetain", 46);
    let refused = find_in(fake.path()).unwrap()[0].open().unwrap_err().to_string();
    assert!(refused.contains("CUDA_ERROR_DEVICE_UNAVAILABLE (46)"), "{refused}");
}

/// Elements of `bytes` in loops of (extent, source stride, destination stride).
fn copy(bytes: u64, loops: &[(u64, i64, i64)]) -> NdCopy {
    let dim =
        |&(extent, ..): &(u64, i64, i64)| CopyDim { extent, src_index: None, dst_index: None };
    let strides = loops.iter().map(|&(_, src, dst)| Stride { src, dst }).collect();
    let field = FieldCopy { bytes, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims: loops.iter().map(dim).collect(), fields: vec![field] }
}

#[test]
fn a_request_takes_as_few_copies_as_rects() {
    let Some(fake) = fake("a_request_takes_as_few_copies_as_rects") else { return };
    let [device, _] = emulated(&fake);
    let there = Accelerator::new(device, 1);
    let calls = ["cuMemcpyHtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2"];
    let counts = || calls.map(|call| fake.count(call));
    for (copy, expected) in [
        (copy(4, &[(100, 4, 4), (10, 400, 400)]), [1, 0, 0]),
        (copy(100, &[(50, 1000, 200)]), [0, 1, 0]),
        (copy(12, &[(4, 10_000, 240), (20, 100, 12)]), [0, 0, 1]),
        // The rows are farther apart than the device's pitch is long.
        (copy(8, &[(3, 70_000, 8)]), [3, 0, 0]),
    ] {
        let ends = (sys(&[7; 200_000]), there.fbm(&[0; 50_000]));
        let dst = Arc::clone(&ends.1);
        let mut channel = there.channel(Direction::Write);
        let before = counts();
        let done = run_one(channel.as_mut(), job(1, std::slice::from_ref(&copy), (0, 0), ends));
        assert_eq!(done.result, Ok(()));
        let mut made = counts();
        made.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
        assert_eq!(made, expected, "{copy:?}");
        let written = there.contents(&dst).iter().filter(|&&byte| byte == 7).count() as u64;
        assert_eq!(written, copy.payload_bytes());
    }
}

#[test]
fn all_is_given_back() {
    let Some(fake) = fake("all_is_given_back") else { return };
    let devices = emulated(&fake);
    for device in &devices {
        let there = Accelerator::new(device.clone(), 3);
        let ends = (there.zcm(&[1; 1000]), there.fbm(&[2; 1000]));
        let mut channel = there.channel(Direction::Write);
        let made = fake.count("cuEventCreate");
        for request in 0..8 {
            let job = job(request, &[Shape::run(1000).copy], (0, 0), ends.clone());
            assert_eq!(run_one(channel.as_mut(), job).result, Ok(()));
        }
        assert_eq!(fake.count("cuEventCreate"), made + 1, "an event is used again");
        let job = job(9, &[Shape::run(1000).copy], (0, 0), ends.clone());
        channel.submit(job).unwrap();
        drop(channel);
        assert_eq!(there.contents(&ends.1), [1; 1000]);
    }
    assert!(fake.live() > 0);
    drop(devices);
    assert_eq!(fake.live(), 0);
    assert_eq!(fake.count("cuCtxPushCurrent_v2"), fake.count("cuCtxPopCurrent_v2"));
}

#[test]
fn what_is_freed_makes_room() {
    let Some(fake) = fake("what_is_freed_makes_room") else { return };
    let [device, _] = emulated(&fake);
    let most = device.info().memory_bytes;
    let Accelerator { fbm, zcm, device, .. } = Accelerator::new(device, 1);
    let half = fbm.allocate(most / 2, 64).unwrap();
    let error = fbm.allocate(most / 2 + 1, 64).unwrap_err().to_string();
    let expected = "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)";
    assert!(error.contains(expected) && error.contains("Emulated 0"), "{error}");
    drop(half);
    fbm.allocate(most, 64).unwrap();
    let error = zcm.allocate(2 << 30, 64).unwrap_err();
    assert!(error.to_string().contains("cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
    assert!(!device.health().is_lost());
}

#[test]
fn all_devices_copy_from_and_to_memory_that_one_has_registered() {
    let test = "all_devices_copy_from_and_to_memory_that_one_has_registered";
    let Some((_fake, devices)) = devices(test, 3) else { return };
    let (src, dst) = (sys(&[7; 1 << 20]), sys(&[0; 1 << 20]));
    let _registered = [&src, &dst].map(|host| devices[0].register(host).unwrap());
    for device in devices {
        let there = Accelerator::new(device, 2);
        let memory = there.fbm(&[0; 1 << 20]);
        let ways = [(Direction::Write, (&src, &memory)), (Direction::Read, (&memory, &dst))];
        for (direction, (from, to)) in ways {
            let copies = [nested(100, &[(500, 2000, 1000)]), Shape::run(100).copy];
            let job = job(1, &copies, (0, 0), (Arc::clone(from), Arc::clone(to)));
            assert_eq!(run_one(there.channel(direction).as_mut(), job).result, Ok(()));
        }
        assert_eq!(there.contents(&memory)[..100], [7; 100]);
        assert_eq!(there.contents(&dst)[..100], [7; 100]);
    }
}

#[test]
fn memory_of_the_host_is_registered_as_long_as_what_says_so() {
    let test = "memory_of_the_host_is_registered_as_long_as_what_says_so";
    let Some(fake) = fake(test) else { return };
    let [device, other] = emulated(&fake);
    let (before, host) = (fake.live(), sys(&[7; 64]));
    fake.refuse("cuMemHostRegister_v2", 2);
    let error = device.register(&host).unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::OutOfMemory);
    assert!(error.detail.contains("cuMemHostRegister"), "{}", error.detail);
    assert!(device.register(&sys(&[])).is_err(), "it has no bytes");
    assert_eq!((fake.live(), Arc::strong_count(&host)), (before, 1));
    let registered = device.register(&host).unwrap();
    let again = other.register(&host).unwrap_err();
    assert!(again.detail.contains("(712)") && !other.health().is_lost(), "{}", again.detail);
    assert_eq!(fake.live(), before + 1);
    let weak = Arc::downgrade(&host);
    drop(host);
    assert!(weak.upgrade().is_some(), "it is kept");
    drop(registered);
    assert_eq!((fake.live(), weak.strong_count()), (before, 0));
}
