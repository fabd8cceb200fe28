//! Where a copy to, from or inside a device converts, by the curves.

use ChannelKind::{GpuConvert, GpuCopy, GpuRead, GpuWrite, Memcpy};
use isometry_planner::{Options, Query, plan};
use model::{Algorithm, Channel, ChannelKind, Component, Layout, Memory, Plan, Topology};

/// A device whose kernels turn 4 bytes at `converts`, while the processor does at `memcpy`; `room` is
/// the largest buffer that the device has for what passes through.
fn machine(converts: f64, memcpy: f64, room: u64) -> Topology {
    let text = format!(
        r#"
        th_bytes = 33554432
        [[node]]
        name = "n"
        memory = [
          {{ name = "sys", kind = "SYS" }},
          {{ name = "fbm", kind = "FBM", th_bytes = {room} }},
        ]
        channel = [
          {{ kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = [[4, 1e9], [4096, 1e10]],
             throughput_transpose = [[4, {memcpy:e}]] }},
          {{ kind = "GPUWrite", from = ["sys"], to = ["fbm"], throughput = [[64, 1e8], [65536, 2e10]],
             throughput_transpose = [[4, 1e7]], latency_ns = 10000 }},
          {{ kind = "GPURead", from = ["fbm"], to = ["sys"], throughput = [[64, 1e8], [65536, 2e10]],
             throughput_transpose = [[4, 1e7]], latency_ns = 10000 }},
          {{ kind = "GPUCopy", from = ["fbm"], to = ["fbm"], throughput = [[64, 1e9], [65536, 1e12]],
             throughput_transpose = [[4, 1e8]], latency_ns = 5000 }},
          {{ kind = "GPUConvert", from = ["fbm"], to = ["fbm"], throughput = [[64, 5e10], [4096, 6e11]],
             throughput_transpose = [[4, {converts:e}]], latency_ns = 5000 }},
        ]
        "#
    );
    cluster::parse(&text).unwrap()
}

/// The plan of a square of `side` elements of 4 bytes, turned where `turns`.
fn planned(topology: &Topology, ends: (&str, &str), turns: bool, side: u64) -> Plan {
    let order = |fast, slow| {
        Layout::new([Component::Fields, Component::Whole(fast), Component::Whole(slow)], 2).unwrap()
    };
    let (rows, columns) = (order(0, 1), order(1, 0));
    let [src, dst] = [ends.0, ends.1].map(|name| topology.memory_named(name).unwrap());
    let to = if turns { &columns } else { &rows };
    let extents = [side, side];
    let query = Query::whole((src, &rows), (dst, to), &extents, &[4]);
    plan(topology, &query, &Options::default()).unwrap()
}

fn kinds(plan: &Plan) -> Vec<ChannelKind> {
    plan.hops.iter().map(|hop| hop.kind).collect()
}

const FAST: f64 = 3e11;
const ROOM: u64 = 32 << 20;

#[test]
fn a_device_converts_what_it_has_where_that_is_faster() {
    let inside = ("fbm", "fbm");
    let fast = machine(FAST, 1e9, ROOM);
    assert_eq!(kinds(&planned(&fast, inside, true, 8192)), [GpuConvert]);
    assert_eq!(kinds(&planned(&fast, inside, false, 8192)), [GpuCopy], "as it is, by rects");
    let slow = machine(1e7, 1e10, ROOM);
    let by_host = kinds(&planned(&slow, inside, true, 8192));
    assert!(by_host.ends_with(&[GpuRead, Memcpy, GpuWrite]), "{by_host:?}");
    assert!(!by_host.contains(&GpuConvert), "{by_host:?}");
}

#[test]
fn the_simple_algorithm_takes_the_channel_that_converts() {
    let small = planned(&machine(FAST, 1e9, ROOM), ("fbm", "fbm"), true, 512);
    assert_eq!((small.algorithm, kinds(&small)), (Algorithm::Simple, vec![GpuConvert]));
    let small = planned(&machine(1e7, 1e9, ROOM), ("fbm", "fbm"), true, 512);
    assert_eq!((small.algorithm, kinds(&small)), (Algorithm::Simple, vec![GpuCopy]));
}

#[test]
fn what_comes_to_a_device_is_converted_on_the_faster_side() {
    let there = ("sys", "fbm");
    let device = planned(&machine(FAST, 1e9, ROOM), there, true, 8192);
    assert_eq!(kinds(&device), [GpuWrite, GpuConvert]);
    let staging = &device.buffers[0];
    assert_eq!([staging.memory; 2], [device.memories[1], device.memories[2]]);
    assert!((1..=ROOM).contains(&staging.bytes));
    let host = planned(&machine(5e9, 9e9, ROOM), there, true, 8192);
    assert_eq!(kinds(&host), [Memcpy, GpuWrite]);
    let back = planned(&machine(FAST, 1e9, ROOM), ("fbm", "sys"), true, 8192);
    assert_eq!(kinds(&back), [GpuConvert, GpuRead]);
}

#[test]
fn even_host_memory_is_turned_by_way_of_a_device_that_is_so_much_faster() {
    let way = kinds(&planned(&machine(FAST, 1e9, ROOM), ("sys", "sys"), true, 8192));
    assert!(way.ends_with(&[GpuWrite, GpuConvert, GpuRead]), "{way:?}");
}

#[test]
fn a_device_without_room_holds_nothing_that_passes_through() {
    let none = machine(FAST, 1e9, 0);
    assert_eq!(kinds(&planned(&none, ("sys", "fbm"), true, 8192)), [Memcpy, GpuWrite]);
    assert_eq!(kinds(&planned(&none, ("fbm", "fbm"), true, 8192)), [GpuConvert], "it needs none");
}

/// As [`machine`], with pinned memory that the kernels reach: they turn what is there on its way at `turns`.
fn reaching(converts: f64, memcpy: f64, turns: f64) -> Topology {
    let mut topology = machine(converts, memcpy, ROOM);
    let text = format!(
        r#"
        th_bytes = 33554432
        [[node]]
        name = "n"
        memory = [{{ name = "zcm", kind = "ZCM" }}, {{ name = "fbm", kind = "FBM" }}]
        channel = [
          {{ kind = "GPUWrite", from = ["zcm"], to = ["fbm"], throughput = [[64, 1e8], [65536, 2e10]],
             throughput_transpose = [[4, 1e7]], latency_ns = 10000 }},
          {{ kind = "GPUConvert", from = ["zcm"], to = ["fbm"], throughput = [[64, 5e9], [4096, 1.5e10]],
             throughput_transpose = [[4, {turns:e}]], latency_ns = 10000 }},
          {{ kind = "GPUConvert", from = ["fbm"], to = ["zcm"], throughput = [[64, 5e9], [4096, 1.5e10]],
             throughput_transpose = [[4, {turns:e}]], latency_ns = 10000 }},
        ]
        "#
    );
    let near = cluster::parse(&text).unwrap().classes.remove(0);
    let class = &mut topology.classes[0];
    let (zcm, fbm) = (class.memories.len() as u16, 1);
    class.memories.push(near.memories[0].clone());
    for channel in class.channels.iter_mut().filter(|c| c.kind == Memcpy) {
        channel.from.push(zcm);
        channel.to.push(zcm);
    }
    class.channels.extend(near.channels.into_iter().map(|mut channel| {
        let renamed = |end: &mut Vec<u16>| *end = vec![[zcm, fbm][usize::from(end[0])]];
        renamed(&mut channel.from);
        renamed(&mut channel.to);
        channel
    }));
    topology
}

#[test]
fn pinned_memory_is_converted_on_its_way_where_that_is_fastest() {
    let on_the_way = reaching(1e9, 1e9, 1.2e10);
    let here = |name: &str, plan: &Plan| plan.memories[1] == on_the_way.memory_named(name).unwrap();
    assert_eq!(kinds(&planned(&on_the_way, ("zcm", "fbm"), true, 8192)), [GpuConvert]);
    assert_eq!(kinds(&planned(&on_the_way, ("zcm", "fbm"), false, 8192)), [GpuWrite], "as it is");
    let there = planned(&on_the_way, ("sys", "fbm"), true, 8192);
    assert!(kinds(&there) == [Memcpy, GpuConvert] && here("zcm", &there), "{there:?}");
    let back = planned(&on_the_way, ("fbm", "sys"), true, 8192);
    assert!(kinds(&back) == [GpuConvert, Memcpy] && here("zcm", &back), "{back:?}");
    let small = planned(&on_the_way, ("zcm", "fbm"), true, 512);
    assert_eq!((small.algorithm, kinds(&small)), (Algorithm::Simple, vec![GpuConvert]));
}

#[test]
fn pinned_memory_is_not_converted_on_its_way_where_that_is_slow() {
    let there = reaching(FAST, 1e9, 1e8);
    let way = kinds(&planned(&there, ("zcm", "fbm"), true, 8192));
    assert_eq!(way, [GpuWrite, GpuConvert]);
    let here = reaching(1e8, 9e9, 1e8);
    for side in [512, 8192] {
        assert_eq!(kinds(&planned(&here, ("zcm", "fbm"), true, side)), [Memcpy, GpuWrite]);
    }
}

/// As [`machine`], with a second device, which the first copies to past the host.
fn joined(converts: f64, room: u64) -> Topology {
    let mut topology = machine(converts, 1e9, room);
    let class = &mut topology.classes[0];
    class.memories.push(Memory { name: "fbm1".to_owned(), ..class.memories[1].clone() });
    let inside = class.channels.iter().find(|channel| channel.kind == GpuCopy).unwrap();
    class.channels.push(Channel { to: vec![2], ..inside.clone() });
    topology
}

#[test]
fn what_goes_to_another_device_is_converted_in_its_own() {
    let ends = ("fbm", "fbm1");
    for (turns, side, expected) in [
        (true, 8192, &[GpuConvert, GpuCopy][..]),
        (true, 512, &[GpuConvert, GpuCopy]),
        (false, 8192, &[GpuCopy]),
        (false, 512, &[GpuCopy]),
    ] {
        assert_eq!(kinds(&planned(&joined(FAST, ROOM), ends, turns, side)), expected, "{side}");
    }
    for slower in [joined(1e7, ROOM), joined(FAST, 0)] {
        assert_eq!(kinds(&planned(&slower, ends, true, 512)), [GpuCopy]);
    }
}

#[test]
fn a_device_whose_rects_are_slow_below_a_line_is_sent_whole_lines() {
    // Of lines the rects move twice what the disk brings; of shorter rows less than the kernels turn.
    let text = r#"
        th_bytes = 33554432
        [[node]]
        name = "n"
        memory = [
          { name = "sys", kind = "SYS" },
          { name = "dsk", kind = "DSK", th_bytes = 0 },
          { name = "fbm", kind = "FBM", th_bytes = 0 },
        ]
        channel = [
          { kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = [[16, 1.2e10]] },
          { kind = "DiskRead", from = ["dsk"], to = ["sys"], throughput = [[4096, 2e8], [1048576, 3e9]] },
          { kind = "GPUWrite", from = ["sys"], to = ["fbm"], throughput = [[64, 6e9], [16384, 9e9]],
             throughput_transpose = [[4, 5e8], [64, 3e9]] },
          { kind = "GPUConvert", from = ["sys"], to = ["fbm"], throughput = [[64, 2e9], [16384, 4e9]],
             throughput_transpose = [[4, 2.4e9]] },
        ]
    "#;
    let way = planned(&cluster::parse(text).unwrap(), ("dsk", "fbm"), true, 8192);
    assert_eq!(kinds(&way), [ChannelKind::DiskRead, Memcpy, GpuWrite]);
    assert_eq!((way.hops[2].prefix_bytes, way.hops[2].throughput), (64, 6e9));
    assert!(way.throughput > 2.9e9, "as the disk: {}", way.throughput);
}
