//! What memories and channels of devices must do besides the contract of channels, as cases for two
//! devices at once.

use super::device::{Accelerator, Host, backwards, job, memory, nested, run, run_one, sys};
use super::{Draw, Shape};
use crate::accelerator::{Direction, ELEMENT_BYTES, Reach};
use crate::{Job, Provider, Region};
use model::{ChannelErrorKind, Completion, CopyDim, FieldCopy, NdCopy, Stride};
use std::sync::Arc;
use std::thread;

/// The channels that a device may have, and the host memory at their other ends.
pub const DEVICE_CHANNELS: &[(Direction, Host)] = &[
    (Direction::Write, Host::Sys),
    (Direction::Write, Host::Zcm),
    (Direction::Read, Host::Sys),
    (Direction::Read, Host::Zcm),
    (Direction::Copy, Host::Sys),
    (Direction::Convert, Host::Sys),
    (Direction::ConvertWrite, Host::Zcm),
    (Direction::ConvertRead, Host::Zcm),
];

/// One rule for devices.
#[derive(Debug, Clone, Copy)]
pub struct DeviceCase {
    /// The rule.
    pub name: &'static str,
    /// Panics where the devices break it. They are two openings that share no memory.
    pub check: fn(&[Accelerator; 2]),
}

/// Every rule.
pub const DEVICE_CASES: &[DeviceCase] = &[
    DeviceCase { name: "regions are zeroed and aligned", check: regions_are_zeroed_and_aligned },
    DeviceCase { name: "too much is out of memory", check: too_much_is_out_of_memory },
    DeviceCase { name: "memory of another device is refused", check: another_device_is_refused },
    DeviceCase { name: "thousands of commands arrive whole", check: thousands_of_commands },
    DeviceCase { name: "rows move inside one region", check: rows_move_inside_one_region },
    DeviceCase { name: "boxes move inside one region", check: boxes_move_inside_one_region },
    DeviceCase { name: "an array is turned on another device", check: an_array_is_turned },
    DeviceCase { name: "elements of every width are converted", check: every_width_is_converted },
    DeviceCase { name: "kernels touch only what they reach", check: what_kernels_dont_reach },
    DeviceCase { name: "copies from several threads arrive whole", check: several_threads },
];

fn run_on(device: &Accelerator, direction: Direction, job: Job) -> Completion {
    run_one(device.channel(direction).as_mut(), job)
}

fn regions_are_zeroed_and_aligned([device, _]: &[Accelerator; 2]) {
    let sizes = [(0, 1), (1, 1), (5000, 4096), (100, 1 << 20), (77, 0), ((1 << 20) + 3, 64)];
    for (len, align) in sizes {
        let region = device.zcm.allocate(len, align).unwrap();
        let start = region.host_span().unwrap().start().as_ptr().addr() as u64;
        assert!(start.is_multiple_of(align.max(ELEMENT_BYTES)));
        assert_eq!((region.len_bytes(), region.memory()), (len, memory(1)));
        assert!(device.contents(&Arc::new(region)).iter().all(|&b| b == 0));
        let region = device.fbm.allocate(len, align).unwrap();
        assert_eq!((region.len_bytes(), region.memory()), (len, memory(2)));
        assert!(region.host_span().is_none());
        assert!(device.contents(&Arc::new(region)).iter().all(|&b| b == 0));
    }
}

fn too_much_is_out_of_memory([device, _]: &[Accelerator; 2]) {
    for len in [1 << 60, u64::MAX] {
        for provider in [&device.fbm as &dyn Provider, &device.zcm] {
            let error = provider.allocate(len, 4096).unwrap_err();
            assert_eq!(error.kind, ChannelErrorKind::OutOfMemory, "{error}");
        }
    }
    assert_eq!(device.contents(&device.fbm(&[7; 9])), [7; 9], "what is left can be used");
}

fn another_device_is_refused([first, second]: &[Accelerator; 2]) {
    let (ours, theirs) = (first.fbm(&[1; 64]), second.fbm(&[2; 64]));
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
        let done = run_on(first, direction, job(1, &[run(64)], (0, 0), ends));
        assert_eq!(done.result.unwrap_err().kind, ChannelErrorKind::UnknownRegion);
    }
    assert_eq!((first.contents(&ours), second.contents(&theirs)), (vec![1; 64], vec![2; 64]));
}

fn thousands_of_commands([device, _]: &[Accelerator; 2]) {
    const COUNT: usize = 3000;
    let bytes = Draw::new(1).bytes(COUNT);
    let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
    let ends = (device.fbm(&bytes), sys(&[0; COUNT]));
    let dst = Arc::clone(&ends.1);
    let copy = backwards(COUNT as u64);
    let done = run_on(device, Direction::Read, job(1, &[copy], (0, 0), ends));
    assert_eq!(done.result, Ok(()));
    assert_eq!(device.contents(&dst), reversed);
}

fn rows_move_inside_one_region([device, _]: &[Accelerator; 2]) {
    let region = device.fbm(&Draw::new(2).bytes(4096));
    let rows = |dst_stride| {
        let dim = CopyDim { extent: 10, src_index: None, dst_index: None };
        let strides = vec![Stride { src: 100, dst: dst_stride }];
        let field = FieldCopy { bytes: 40, src_offset: 0, dst_offset: 50, padding: 0, strides };
        NdCopy { dims: vec![dim], fields: vec![field] }
    };
    // Among the source's rows, behind them, and behind them at another pitch.
    for (copy, at) in [(rows(100), (0, 0)), (rows(100), (0, 1500)), (rows(60), (0, 3000))] {
        assert_moves_inside(device, &region, copy, at);
    }
}

/// Boxes at any place, to a place near by on either side, the last of which the region ends with.
fn boxes_move_inside_one_region([device, _]: &[Accelerator; 2]) {
    for seed in 0..40 {
        let draw = &mut Draw::new(seed);
        let [bytes, rows, slices] = [9, 9, 4].map(|most| 1 + draw.below(most));
        let row = bytes + draw.below(9);
        let slice = row * (rows + draw.below(3));
        let whole = (slices - 1) * slice + (rows - 1) * row + bytes;
        let near = draw.below(100);
        let far = near + whole + draw.below(100);
        let region = device.fbm(&draw.bytes((far + whole) as usize));
        let at = if draw.one_in(2) { (near, far) } else { (far, near) };
        let [row, slice] = [row, slice].map(u64::cast_signed);
        let copy = nested(bytes, &[(slices, slice, slice), (rows, row, row)]);
        assert_moves_inside(device, &region, copy, at);
    }
}

fn assert_moves_inside(device: &Accelerator, region: &Arc<Region>, copy: NdCopy, at: (u64, u64)) {
    let before = device.contents(region);
    let mut expected = before.clone();
    layout::oracle::copy(&copy, &before, at.0 as usize, &mut expected, at.1 as usize);
    let ends = (Arc::clone(region), Arc::clone(region));
    let done = run_on(device, Direction::Copy, job(1, &[copy], at, ends));
    assert_eq!(done.result, Ok(()), "at {at:?}");
    assert!(device.contents(region) == expected, "at {at:?}");
}

/// Elements of four bytes whose rows become columns.
fn turned(here: u64, there: u64) -> NdCopy {
    let [row, column] = [there, here].map(|count| 4 * count.cast_signed());
    nested(4, &[(here, row, 4), (there, 4, column)])
}

fn an_array_is_turned([first, second]: &[Accelerator; 2]) {
    let (rows, columns) = (37, 53);
    let bytes = Draw::new(3).bytes(4 * 37 * 53);
    let zeros = vec![0; bytes.len()];
    let mut expected = zeros.clone();
    layout::oracle::copy(&turned(rows, columns), &bytes, 0, &mut expected, 0);
    let stops = [first.fbm(&bytes), first.zcm(&zeros), second.fbm(&zeros), second.fbm(&zeros)];
    let legs = [
        (first, Direction::Read, turned(rows, columns)),
        (second, Direction::Write, run(bytes.len() as u64)),
        (second, Direction::Copy, turned(columns, rows)),
    ];
    for ((device, direction, copy), ends) in legs.into_iter().zip(stops.windows(2)) {
        let ends = (Arc::clone(&ends[0]), Arc::clone(&ends[1]));
        let done = run_on(device, direction, job(1, &[copy], (0, 0), ends));
        assert_eq!(done.result, Ok(()));
    }
    assert!(second.contents(&stops[2]) == expected);
    assert!(second.contents(&stops[3]) == bytes, "turned back");
}

/// Arrays that are turned, and structures that become columns and come back, of elements of 1 to 16
/// bytes: at any place, and of sizes that no tile divides; then all at multiples of 16, where kernels may
/// move several elements at once.
fn every_width_is_converted([device, _]: &[Accelerator; 2]) {
    let ways = Direction::ALL.into_iter().filter(|&way| way.converts() && device.has(way));
    ways.for_each(|way| every_width(device, way));
}

fn every_width(device: &Accelerator, way: Direction) {
    let mut channel = device.channel(way);
    for (seed, width) in (0..).zip([1, 2, 4, 8, 16].repeat(6)) {
        let draw = &mut Draw::new(seed);
        let grain = if seed < 15 { 1 } else { 16 };
        let rows = (1 + draw.below(150)).next_multiple_of(grain);
        let columns = [1 + draw.below(150), 3, 5][seed as usize % 3].next_multiple_of(grain);
        let [step, row, column] = [1, columns, rows].map(|n| (n * width).cast_signed());
        let copy = match seed % 2 {
            0 => nested(width, &[(rows, row, step), (columns, step, column)]),
            _ => nested(width, &[(columns, column, step), (rows, step, row)]),
        };
        let at = (draw.below(3) * width, draw.below(40));
        let at = (at.0.next_multiple_of(grain), at.1.next_multiple_of(grain));
        let src = draw.bytes((at.0 + copy.payload_bytes()) as usize);
        let mut expected = draw.bytes((at.1 + copy.payload_bytes() + 5) as usize);
        let from = device.side(&src, way.reads_device());
        let to = device.side(&expected, way.writes_device());
        layout::oracle::copy(&copy, &src, at.0 as usize, &mut expected, at.1 as usize);
        let done = run_one(channel.as_mut(), job(1, &[copy], at, (from, Arc::clone(&to))));
        assert_eq!(done.result, Ok(()));
        assert!(
            device.contents(&to) == expected,
            "{way:?}, seed {seed}: elements of {width} bytes"
        );
    }
}

/// Host memory is refused that kernels don't reach, or that starts where they can't begin.
fn what_kernels_dont_reach([first, second]: &[Accelerator; 2]) {
    let ways = [Direction::ConvertWrite, Direction::ConvertRead];
    for way in ways.into_iter().filter(|&way| first.has(way)) {
        let convert = |host: Arc<Region>| {
            let there = first.fbm(&[1; 64]);
            let ends = if way.reads_device() { (there, host) } else { (host, there) };
            let done = run_on(first, way, job(1, &[run(64)], (0, 0), ends));
            done.result.map_err(|error| error.kind)
        };
        let refused = Err(ChannelErrorKind::UnknownRegion);
        let by_another = if first.device.profile().reach == Reach::All { Ok(()) } else { refused };
        assert_eq!(convert(first.zcm(&[2; 64])), Ok(()));
        assert_eq!(convert(second.zcm(&[2; 64])), by_another);
        assert_eq!(convert(sys(&[2; 64])), refused);
        assert_eq!(convert(first.zcm_at(1, 64)), refused);
        let (other, (_, owner)) = (sys(&[2; 64]), first.device.pin(64).unwrap());
        let posing = Region::host(memory(1), other.host_span().unwrap(), owner);
        assert_eq!(convert(Arc::new(posing)), refused);
    }
}

/// Channels of all kinds at once, each driven by a thread of its own, on two devices.
fn several_threads(devices: &[Accelerator; 2]) {
    thread::scope(|scope| {
        for (seed, device) in (0..).zip(devices) {
            for direction in Direction::ALL.into_iter().filter(|&way| device.has(way)) {
                scope.spawn(move || drive(device, direction, seed));
            }
        }
    });
}

/// Rounds of random copies, as many at once as the channel takes.
fn drive(device: &Accelerator, direction: Direction, seed: u64) {
    let draw = &mut Draw::new(seed);
    let mut channel = device.channel(direction);
    for round in 0..12 {
        let mut expected = Vec::new();
        for request in 0..channel.capabilities().max_in_flight.into() {
            let shape = Shape::draw(draw, 300);
            let src = draw.bytes(shape.src_bytes as usize);
            let mut dst = draw.bytes(shape.dst_bytes as usize);
            let from = match direction {
                Direction::Write => sys(&src),
                _ => device.side(&src, direction.reads_device()),
            };
            let to = device.side(&dst, direction.writes_device());
            layout::oracle::copy(&shape.copy, &src, 0, &mut dst, 0);
            expected.push((Arc::clone(&to), dst));
            channel.submit(job(request, &[shape.copy], (0, 0), (from, to))).unwrap();
        }
        channel.drain();
        let mut done = Vec::new();
        channel.poll(&mut done);
        assert!(done.len() == expected.len() && done.iter().all(|c| c.result == Ok(())));
        let right = expected.iter().all(|(to, bytes)| device.contents(to) == *bytes);
        assert!(right, "{direction:?}, seed {seed}, round {round}");
    }
}
