//! Devices as memories of a machine. Those of OpenCL are the processor, by PoCL, twice, and what else there
//! is, or graphics processors alone where that is asked for; those of CUDA are emulated, or the system's where
//! that is. Without any the tests are skipped.

mod pair;

use fake_cuda::Fake;
use isometry::model::{
    ChannelKind, Curves, FieldSpace, IndexSpace, Memory, MemoryKind, Throughput,
};
use isometry::planner::Options;
use isometry::{
    Accelerators, ArgumentError, Array, CopyOptions, Cuda, Error, FileOptions, Foreign, Instance,
    Machine, MachineBuilder,
};
use pair::pair;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

/// Where this says `gpu`, tests of OpenCL run on graphics processors alone.
const CHOICE: &str = "ISOMETRY_OPENCL_TESTS";

/// The devices of OpenCL that tests run on: two where the processor is one.
fn opencl() -> Accelerators {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("POCL_DEVICES").is_none() {
            // SAFETY: all that reads variables here goes through std's lock, but for OpenCL, which
            // is first called behind this.
            unsafe { std::env::set_var("POCL_DEVICES", "pthread pthread") };
        }
    });
    let is_gpu = std::env::var_os(CHOICE).is_some_and(|choice| choice == "gpu");
    if is_gpu { Accelerators::Gpu } else { Accelerators::All }
}

/// Machines with the devices of this API, with the driver that emulates them.
struct Api {
    name: &'static str,
    builder: MachineBuilder,
    _fake: Option<Fake>,
}

fn apis() -> [Api; 2] {
    let builder = Machine::builder().lanes(1).staging(2 << 20).cuda(Cuda::None);
    let opencl = builder.clone().accelerators(opencl());
    let fake = Fake::load();
    let driver = fake.as_ref().map_or(Cuda::All, |fake| Cuda::Driver(fake.path().to_owned()));
    let cuda = builder.accelerators(Accelerators::None).cuda(driver);
    [
        Api { name: "OpenCL", builder: opencl, _fake: None },
        Api { name: "CUDA", builder: cuda, _fake: fake },
    ]
}

/// Runs `case` on machines with the devices of either API.
fn on_each(test: &str, case: impl Fn(&MachineBuilder)) {
    for api in apis() {
        let machine = api.builder.clone().assume(true).open().unwrap();
        match devices(&machine).len() {
            0 => println!("skipped: {test}: no device of {}", api.name),
            count => {
                println!("{test} runs on {count} devices of {}", api.name);
                case(&api.builder);
            }
        }
    }
}

/// As [`on_each`], for a machine that measures nothing.
fn on_machines(test: &str, case: impl Fn(&Machine)) {
    on_each(test, |builder| case(&builder.clone().assume(true).open().unwrap()));
}

/// As [`on_machines`], where the devices convert.
fn on_converting(test: &str, case: impl Fn(&Machine)) {
    on_machines(test, |machine| {
        let channels = &machine.topology().classes[0].channels;
        match channels.iter().any(|channel| channel.kind == ChannelKind::GpuConvert) {
            true => case(machine),
            false => println!("skipped: {test}: these devices convert nothing"),
        }
    });
}

/// The names of the memories of devices.
fn devices(machine: &Machine) -> Vec<String> {
    let topology = machine.topology();
    let memories = topology.classes[0].memories.iter();
    // And not what others put to.
    let is_own = |m: &&Memory| m.kind == MemoryKind::Fbm && !m.name.ends_with("_reg");
    memories.filter(is_own).map(|m| m.name.clone()).collect()
}

/// The last device: another than the first where there are two.
fn last(machine: &Machine) -> String {
    devices(machine).pop().unwrap()
}

fn noise(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Waits for a copy from `src` to `dst`.
fn copy(machine: &Machine, src: &Instance, dst: &Instance) {
    let event = machine.copy(src, dst, &CopyOptions::default()).unwrap();
    event.wait(None).unwrap();
}

/// The kinds of the channels on the way from `src` to `dst`.
fn hops(machine: &Machine, src: &Instance, dst: &Instance) -> Vec<ChannelKind> {
    let planned = machine.plan(src, dst, &Options::default()).unwrap();
    planned.plan.hops.iter().map(|hop| hop.kind).collect()
}

/// `array` in `memory`, with what `bytes` are as `rows`.
fn holding(
    machine: &Machine,
    bytes: &[u8],
    rows: &Array,
    (array, memory): (&Array, &str),
) -> Instance {
    let rows = machine.empty(rows.clone(), "sys").unwrap();
    rows.fill(bytes).unwrap();
    let there = machine.empty(array.clone(), memory).unwrap();
    copy(machine, &rows, &there);
    there
}

#[test]
fn devices_are_memories_with_channels() {
    on_machines("devices_are_memories_with_channels", |machine| {
        let (topology, last) = (machine.topology(), last(machine));
        let class = &topology.classes[0];
        let at = |name: &str| class.memories.iter().position(|m| m.name == name).unwrap();
        let kinds = ["zcm", "fbm", &last].map(|name| class.memories[at(name)].kind);
        assert_eq!(kinds, [MemoryKind::Zcm, MemoryKind::Fbm, MemoryKind::Fbm]);
        assert!(class.memories[at("fbm")].capacity_bytes.is_some());
        let edges = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|name| at(name) as u16);
            let joins =
                |c: &&isometry::model::Channel| c.from.contains(&from) && c.to.contains(&to);
            class.channels.iter().filter(joins).map(|c| c.kind).collect::<Vec<_>>()
        };
        assert_eq!(edges("sys", "fbm"), [ChannelKind::GpuWrite]);
        assert_eq!(edges("zcm", &last)[0], ChannelKind::GpuWrite);
        assert_eq!(edges("fbm", "zcm")[0], ChannelKind::GpuRead);
        let [inside, out, back] = [("fbm", "fbm"), ("fbm", "zcm"), ("zcm", "fbm")]
            .map(|(from, to)| edges(from, to).contains(&ChannelKind::GpuConvert));
        assert!(inside || !(out || back), "kernels are for all or for none");
        assert_eq!(edges(&last, &last)[0], ChannelKind::GpuCopy);
        assert_eq!(edges("sys", "zcm"), [ChannelKind::Memcpy]);
        if last != "fbm" {
            let direct = edges("fbm", &last);
            assert!(direct.is_empty() || direct == [ChannelKind::GpuCopy], "{direct:?}");
        }
    });
}

#[test]
fn an_array_is_turned_from_one_device_to_another() {
    on_machines("an_array_is_turned_from_one_device_to_another", |machine| {
        let rows = Array::of(&[("y", 1200), ("x", 700)], "<f4").unwrap();
        let bytes = noise(4 * 1200 * 700);
        let columns = rows.clone().laid_out("<F, y, x>").unwrap();
        let src = holding(machine, &bytes, &rows, (&rows, "fbm"));
        let dst = machine.empty(columns.clone(), &last(machine)).unwrap();
        let planned = machine.plan(&src, &dst, &Options::default()).unwrap();
        let topology = machine.topology();
        let kinds = planned.plan.memories.iter().map(|&id| topology.memory(id).unwrap().kind);
        let is_host = |kind| matches!(kind, MemoryKind::Sys | MemoryKind::Zcm);
        let ends = ["fbm", &last(machine)].map(|name| topology.memory_named(name).unwrap().index);
        let is_direct = topology.classes[0]
            .channels
            .iter()
            .any(|channel| channel.from.contains(&ends[0]) && channel.to.contains(&ends[1]));
        assert_eq!(kinds.into_iter().any(is_host), !is_direct);
        copy(machine, &src, &dst);
        machine.verify(&src, &dst).unwrap();
        let back = machine.empty(columns, "sys").unwrap();
        copy(machine, &dst, &back);
        let seen = back.to_vec().unwrap();
        for (y, x) in [(0, 0), (1, 0), (0, 1), (1199, 699), (600, 3)] {
            let (turned, plain) = (4 * (x * 1200 + y), 4 * (y * 700 + x));
            assert_eq!(seen[turned..turned + 4], bytes[plain..plain + 4], "({y}, {x})");
        }
    });
}

#[test]
fn what_a_device_has_is_converted_there() {
    on_converting("what_a_device_has_is_converted_there", |machine| {
        let matrix = Array::of(&[("y", 1201), ("x", 701)], "<f4").unwrap();
        let space = IndexSpace::of(&[("n", 100_003)]).unwrap();
        let records = Array::new(space, FieldSpace::packed(&[4, 1, 8]).unwrap());
        for (rows, layout) in [(matrix, "<F, y, x>"), (records, "<n, F>")] {
            let there = rows.clone().laid_out(layout).unwrap();
            let bytes = noise(rows.bytes().unwrap());
            let src = holding(machine, &bytes, &rows, (&rows, "fbm"));
            let dst = machine.empty(there, "fbm").unwrap();
            assert_eq!(hops(machine, &src, &dst), [ChannelKind::GpuConvert]);
            copy(machine, &src, &dst);
            let back = machine.empty(rows, "sys").unwrap();
            copy(machine, &dst, &back);
            assert!(back.to_vec().unwrap() == bytes, "{layout}");
        }
    });
}

#[test]
fn what_comes_to_a_device_is_converted_in_a_buffer_there() {
    on_converting("what_comes_to_a_device_is_converted_in_a_buffer_there", |machine| {
        let rows = Array::of(&[("y", 2111), ("x", 2003)], "<f4").unwrap();
        let columns = rows.clone().laid_out("<F, y, x>").unwrap();
        let bytes = noise(rows.bytes().unwrap());
        let src = machine.empty(rows.clone(), "sys").unwrap();
        src.fill(&bytes).unwrap();
        let there = machine.empty(columns, "fbm").unwrap();
        let planned = machine.plan(&src, &there, &Options::default()).unwrap();
        let fbm = machine.topology().memory_named("fbm").unwrap();
        assert!(planned.plan.memories.ends_with(&[fbm, fbm]), "{:?}", planned.plan.memories);
        let way = hops(machine, &src, &there);
        assert!(way.ends_with(&[ChannelKind::GpuWrite, ChannelKind::GpuConvert]), "{way:?}");
        copy(machine, &src, &there);
        let back = machine.empty(rows, "sys").unwrap();
        let way = hops(machine, &there, &back);
        assert!(way.starts_with(&[ChannelKind::GpuConvert, ChannelKind::GpuRead]), "{way:?}");
        copy(machine, &there, &back);
        assert!(back.to_vec().unwrap() == bytes, "turned there, and back on the way");
    });
}

#[test]
fn layouts_change_between_all_memories() {
    on_machines("layouts_change_between_all_memories", |machine| {
        let array = Array::of(&[("y", 60), ("x", 44)], "<u2").unwrap();
        let bytes = noise(2 * 60 * 44);
        let layouts = ["<F, x, y>", "<F, y, x>", "<x_in=4, F, y, x_out>"];
        let last = last(machine);
        let memories = ["sys", "zcm", "fbm", &last];
        for (from, to) in memories.iter().flat_map(|from| memories.map(|to| (*from, to))) {
            for (l, m) in [(0, 1), (1, 2), (2, 0), (1, 1)] {
                let [src, dst] = [l, m].map(|k| array.clone().laid_out(layouts[k]).unwrap());
                let src = holding(machine, &bytes, &array, (&src, from));
                let dst = machine.empty(dst, to).unwrap();
                copy(machine, &src, &dst);
                let rows = machine.empty(array.clone(), "sys").unwrap();
                copy(machine, &dst, &rows);
                let case = format!("{from} {} to {to} {}", layouts[l], layouts[m]);
                assert!(rows.to_vec().unwrap() == bytes, "{case}");
            }
        }
    });
}

#[test]
fn a_file_is_turned_on_its_way_to_a_device() {
    on_machines("a_file_is_turned_on_its_way_to_a_device", |machine| {
        let dir = tempfile::tempdir().unwrap();
        let rows = Array::of(&[("y", 2000), ("x", 900)], "|u1").unwrap();
        let bytes = noise(2000 * 900);
        let here = machine.empty(rows.clone(), "sys").unwrap();
        here.fill(&bytes).unwrap();
        let path = dir.path().join("rows.npy");
        let file = machine.create_file(&path, rows.clone(), &FileOptions::default()).unwrap();
        copy(machine, &here, &file);
        let topology = machine.topology();
        assert_eq!(topology.memory(file.memory()).unwrap().name, "dsk", "devices are no disks");
        let there = machine.empty(rows.laid_out("<F, y, x>").unwrap(), "fbm").unwrap();
        let kinds = hops(machine, &file, &there);
        assert_eq!(kinds[0], ChannelKind::DiskRead);
        assert!(matches!(kinds.last(), Some(ChannelKind::GpuWrite | ChannelKind::GpuConvert)));
        copy(machine, &file, &there);
        machine.verify(&here, &there).unwrap();
    });
}

#[test]
fn pages_and_boxes_of_a_device_are_copied() {
    on_machines("pages_and_boxes_of_a_device_are_copied", |machine| {
        let pool = Array::of(&[("page", 20), ("x", 500)], "|u1").unwrap();
        let bytes = noise(20 * 500);
        let there = holding(machine, &bytes, &pool, (&pool, "fbm"));
        let pages = [7, 3, 9, 10, 11];
        let some = Array::of(&[("page", 5), ("x", 400)], "|u1").unwrap();
        let here = machine.empty(some, "sys").unwrap();
        let taken = there.take("page", &pages).unwrap().select(&[("x", 50..450)]).unwrap();
        copy(machine, &taken, &here);
        let expected: Vec<u8> =
            pages.iter().flat_map(|&p| bytes[p as usize * 500 + 50..][..400].to_vec()).collect();
        assert!(here.to_vec().unwrap() == expected);
        let second = machine.empty(pool, &last(machine)).unwrap();
        let placed = second.take("page", &[0, 19, 5, 6, 7]).unwrap();
        copy(machine, &here, &placed.select(&[("x", 50..450)]).unwrap());
        machine.verify(&here, &placed.select(&[("x", 50..450)]).unwrap()).unwrap();
    });
}

#[test]
fn many_copies_at_once_arrive_whole() {
    on_machines("many_copies_at_once_arrive_whole", |machine| {
        let array = Array::of(&[("y", 100), ("x", 300)], "|u1").unwrap();
        let bytes = noise(100 * 300);
        let src = holding(machine, &bytes, &array, (&array, "fbm"));
        let turned = array.laid_out("<F, y, x>").unwrap();
        let last = last(machine);
        let copies: Vec<_> =
            [&last, "sys", "zcm", "fbm"].repeat(8).into_iter().enumerate().collect();
        let ended: Vec<_> = copies
            .into_iter()
            .map(|(n, memory)| {
                let dst = machine.empty(turned.clone(), memory).unwrap();
                let options = CopyOptions::with_priority(n as i32 % 3);
                (machine.copy(&src, &dst, &options).unwrap(), dst)
            })
            .collect();
        for (event, dst) in ended {
            event.wait(None).unwrap();
            machine.verify(&src, &dst).unwrap();
        }
    });
}

#[test]
fn memory_of_a_device_has_no_address_and_no_more_than_there_is() {
    on_machines("memory_of_a_device_has_no_address_and_no_more_than_there_is", |machine| {
        let there = machine.empty(Array::of(&[("x", 8)], "|u1").unwrap(), "fbm").unwrap();
        let not_host = Error::from(ArgumentError::NotHost { name: "fbm".into() }).to_string();
        for refused in [there.to_vec().err(), there.fill(&[1]).err(), there.first_byte().err()] {
            assert_eq!(refused.unwrap().to_string(), not_host);
        }
        let near = machine.empty(Array::of(&[("x", 8)], "|u1").unwrap(), "zcm").unwrap();
        assert_eq!(near.to_vec().unwrap(), [0; 8]);
        let huge = Array::of(&[("x", 1 << 50)], "|u1").unwrap();
        for memory in ["fbm", "zcm"] {
            let error = machine.empty(huge.clone(), memory).unwrap_err();
            assert!(matches!(error, Error::Channel(_)), "{error}");
        }
        // Still there, though its machine is closed.
        machine.close();
        assert_eq!(near.to_vec().unwrap(), [0; 8]);
    });
}

#[test]
fn there_are_none_where_none_are_asked_for() {
    let builder = Machine::builder().accelerators(Accelerators::None).cuda(Cuda::None);
    let machine = builder.assume(true).open().unwrap();
    assert!(machine.topology().classes[0].memories.iter().all(|m| m.kind == MemoryKind::Sys));
    let array = Array::of(&[("x", 8)], "|u1").unwrap();
    let foreign = Foreign::of_vec(vec![1; 8], vec![1]);
    machine.wrap(array.space.clone(), array.fields.clone(), foreign).unwrap();
    let error = machine.empty(array, "fbm").unwrap_err();
    assert!(error.to_string().starts_with("no memory `fbm`; there are sys"), "{error}");
}

#[test]
fn what_was_measured_of_devices_is_kept() {
    on_each("what_was_measured_of_devices_is_kept", |builder| {
        let cache = tempfile::tempdir().unwrap();
        let open = || builder.clone().cache_dir(cache.path()).open().unwrap();
        let (first, second) = (open(), open());
        let channels = |machine: &Machine| machine.topology().classes[0].channels.clone();
        for channel in channels(&first) {
            assert!(!channel.assumed && channel.curves.run.peak() > 1e6, "{channel:?}");
        }
        assert_eq!(channels(&first), channels(&second));
        let wires = first.topology().classes[0].wires.clone();
        let names: Vec<_> = wires.into_iter().map(|wire| wire.name).collect();
        assert_eq!(names, devices(&first));
    });
}

#[test]
fn devices_of_two_nodes_are_copied_between() {
    on_each("devices_of_two_nodes_are_copied_between", |builder| {
        let [first, second] = pair([builder.clone(), builder.clone()]);
        let array = Array::of(&[("y", 300), ("x", 200)], "<f4").unwrap();
        let src = holding(&first, &noise(4 * 300 * 200), &array, (&array, "fbm"));
        let turned = array.laid_out("<F, y, x>").unwrap();
        let turned = second.empty(turned, &last(&second)).unwrap();
        second.publish("turned", &turned).unwrap();
        let far = first.lookup("node1/turned", Some(Duration::from_secs(20))).unwrap();
        copy(&first, &src, &far);
        first.verify(&src, &far).unwrap();
    });
}

/// A file whose dimensions have these names.
fn called_yx() -> FileOptions {
    FileOptions { dims: Some(vec!["y".into(), "x".into()]), ..FileOptions::default() }
}

/// Where a layout changes on its way between host and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fast {
    Host,
    Device,
    Way,
}

/// Has all that was kept in `cache` say that channels move whole runs at one rate, and turn arrays fast
/// only where `fast` says.
fn keep(cache: &Path, fast: Fast) {
    for entry in std::fs::read_dir(cache).unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut kept) = cluster::parse_json(&std::fs::read_to_string(&path).unwrap()) else {
            continue;
        };
        for channel in &mut kept.classes[0].channels {
            let place = match channel.kind {
                ChannelKind::Memcpy => Some(Fast::Host),
                ChannelKind::GpuConvert if channel.from == channel.to => Some(Fast::Device),
                ChannelKind::GpuConvert => Some(Fast::Way),
                _ => None,
            };
            let turns = if place == Some(fast) { 4e9 } else { 1e7 };
            let curve = |bytes, rate| Throughput::measured(vec![(bytes, rate)]).unwrap();
            let (run, turned) = (curve(65536, 5e9), curve(4, turns));
            let [interleave, transpose, gather] = [0; 3].map(|_| Some(turned.clone()));
            channel.curves = Curves { run, interleave, transpose, gather };
            channel.latency_ns = 10_000;
        }
        std::fs::write(&path, cluster::to_json(&kept).to_string()).unwrap();
    }
}

impl Fast {
    /// The channels from host memory to a device, from a disk, and back to host memory.
    fn ways(self) -> [&'static [ChannelKind]; 3] {
        use ChannelKind::{DiskRead, GpuConvert, GpuRead, GpuWrite, Memcpy};
        match self {
            Fast::Host => [&[Memcpy, GpuWrite], &[DiskRead, Memcpy, GpuWrite], &[GpuRead, Memcpy]],
            Fast::Device => {
                [&[GpuWrite, GpuConvert], &[DiskRead, GpuWrite, GpuConvert], &[GpuConvert, GpuRead]]
            }
            Fast::Way => [&[Memcpy, GpuConvert], &[DiskRead, GpuConvert], &[GpuConvert, Memcpy]],
        }
    }
}

#[test]
fn a_layout_changes_where_the_curves_that_were_kept_say() {
    on_each("a_layout_changes_where_the_curves_that_were_kept_say", |builder| {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let builder = builder.clone().cache_dir(&cache);
        let rows = Array::of(&[("y", 2300), ("x", 1900)], "<f4").unwrap();
        let columns = rows.clone().laid_out("<F, y, x>").unwrap();
        let bytes = noise(rows.bytes().unwrap());
        let path = dir.path().join("rows.npy");
        let in_memory = |machine: &Machine| {
            let sys = machine.empty(rows.clone(), "sys").unwrap();
            sys.fill(&bytes).unwrap();
            sys
        };
        // What disks reach is measured, and kept, when a file of theirs is first used.
        let measures = builder.clone().open().unwrap();
        let converts_on_the_way =
            |c: &isometry::model::Channel| c.kind == ChannelKind::GpuConvert && c.from != c.to;
        if !measures.topology().classes[0].channels.iter().any(converts_on_the_way) {
            return println!("skipped: these devices convert nothing on the way");
        }
        let file = measures.create_file(&path, rows.clone(), &FileOptions::default()).unwrap();
        copy(&measures, &in_memory(&measures), &file);
        drop((measures, file));
        for fast in [Fast::Host, Fast::Device, Fast::Way] {
            keep(&cache, fast);
            let machine = builder.clone().open().unwrap();
            let there = machine.empty(columns.clone(), "fbm").unwrap();
            let [from_memory, from_disk, back] = fast.ways();
            let file = machine.open_file(&path, &called_yx()).unwrap();
            for (src, way) in [(in_memory(&machine), from_memory), (file, from_disk)] {
                assert_eq!(hops(&machine, &src, &there), way, "{fast:?}");
                copy(&machine, &src, &there);
                machine.verify(&src, &there).unwrap();
            }
            let again = machine.empty(rows.clone(), "sys").unwrap();
            assert_eq!(hops(&machine, &there, &again), back, "{fast:?}");
            copy(&machine, &there, &again);
            assert!(again.to_vec().unwrap() == bytes, "{fast:?}");
        }
    });
}
