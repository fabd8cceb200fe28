//! What is timed does what it says: on the emulated driver, and by PoCL where that is.

use super::*;
use fake_cuda::Fake;

const ROWS: Rows = Rows { count: 7, bytes: 24, pitch: 100 };
const MEMORIES: [usize; 2] = [700, 700];

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 37 + i / 251) as u8).collect()
}

fn together(content: &[u8]) -> Vec<u8> {
    content.chunks(ROWS.pitch).flat_map(|row| row[..ROWS.bytes].to_vec()).collect()
}

/// Rows go there, come back and move inside, from either kind of host memory.
fn moves_rows(device: &dyn RawDevice) {
    let machine = Machine::builder().assume(true).open().unwrap();
    let content = noise(700);
    for mut host in [device.pin(700).unwrap(), Host::plain(&machine, 700).unwrap()] {
        assert_eq!(host.bytes(), [0; 700]);
        host.bytes().copy_from_slice(&content);
        device.copy(Way::Write, &mut host, ROWS).unwrap();
        host.bytes().fill(1);
        device.copy(Way::Read, &mut host, ROWS).unwrap();
        assert_eq!(together(host.bytes()), together(&content));
        assert!(
            host.bytes().chunks(ROWS.pitch).all(|row| row[ROWS.bytes..].iter().all(|b| *b == 1))
        );
        host.bytes().copy_from_slice(&content);
        device.copy(Way::Write, &mut host, Rows::one(700)).unwrap();
        for (rows, expected) in [(ROWS, together(&content)), (Rows::one(700), content.clone())] {
            device.copy_inside(rows).unwrap();
            host.bytes().fill(1);
            device.copy(Way::ReadSecond, &mut host, Rows::one(expected.len())).unwrap();
            assert_eq!(host.bytes()[..expected.len()], expected);
        }
    }
}

/// What reaches outside of either side is refused.
fn refuses(device: &dyn RawDevice) {
    let mut host = device.pin(600).unwrap();
    let outside =
        [Rows::one(601), Rows { count: 7, ..ROWS }, Rows { count: 30, bytes: 24, pitch: 1 }];
    for rows in outside {
        for way in [Way::Write, Way::Read, Way::ReadSecond] {
            device.copy(way, &mut host, rows).unwrap_err();
        }
    }
    device.copy_inside(Rows::one(701)).unwrap_err();
    device.copy_inside(Rows { count: 8, ..ROWS }).unwrap_err();
}

#[test]
fn cudas_calls_do_what_they_say() {
    let Some(fake) = Fake::load() else { return };
    let open = |at| CudaDevice::open(fake.path(), at, MEMORIES).unwrap();
    let [first, second] = ["0000:00:00.0", "0000:01:00.0"].map(open);
    moves_rows(&first);
    moves_rows(&second);
    refuses(&first);
    let mut host = first.pin(700).unwrap();
    host.bytes().copy_from_slice(&noise(700));
    first.copy(Way::Write, &mut host, Rows::one(700)).unwrap();
    first.copy_across(&second, 700).unwrap();
    first.copy_across(&second, 701).unwrap_err();
    host.bytes().fill(0);
    second.copy(Way::Read, &mut host, Rows::one(700)).unwrap();
    assert_eq!(host.bytes(), noise(700));
    let calls = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"];
    let others = ["cuMemcpy2DAsync_v2", "cuMemcpyPeerAsync"];
    assert!(calls.iter().chain(&others).all(|call| fake.count(call) > 0));
    drop((host, first, second));
    assert_eq!(fake.live(), 0, "all is given back");
    assert_eq!(fake.count("cuCtxPushCurrent_v2"), fake.count("cuCtxPopCurrent_v2"));
}

#[test]
fn what_cuda_refuses_is_an_error_and_leaves_nothing() {
    let Some(fake) = Fake::load() else { return };
    let open = |at| CudaDevice::open(fake.path(), at, MEMORIES);
    assert!(open("0000:07:00.0").unwrap_err().to_string().contains("0000:07:00.0"));
    for call in ["cuInit", "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemAlloc_v2"] {
        fake.refuse(call, 2);
        let said = open("0000:00:00.0").unwrap_err().to_string();
        assert!(said.contains("CUDA's error 2"), "{call}: {said}");
        assert_eq!(fake.live(), 0, "{call}");
    }
    let device = open("0000:00:00.0").unwrap();
    fake.refuse("cuMemHostAlloc", 2);
    device.pin(64).unwrap_err();
    let mut host = device.pin(64).unwrap();
    fake.fail(0, 700, true);
    device.copy(Way::Write, &mut host, Rows::one(64)).unwrap_err();
    let nowhere = std::path::Path::new("/nowhere/libcuda.so.1");
    CudaDevice::open(nowhere, "0000:00:00.0", MEMORIES).unwrap_err();
}

#[test]
fn opencls_calls_do_what_they_say() {
    let found = match channel_opencl::find() {
        Ok(found) => found,
        Err(why) => return println!("skipped: opencls_calls_do_what_they_say: {why}"),
    };
    let name = &found[0].info().name;
    let device = OpenClDevice::open(name, 0, MEMORIES).unwrap();
    moves_rows(&device);
    refuses(&device);
    let said = OpenClDevice::open(name, 100, MEMORIES).unwrap_err().to_string();
    assert!(said.contains(name.as_str()), "{said}");
}
