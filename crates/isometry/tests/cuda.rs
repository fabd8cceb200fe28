//! What a machine does whose devices of CUDA fail, are lost or are not there: all of it emulated.

mod pair;

use fake_cuda::Fake;
use isometry::model::{Channel, ChannelErrorKind, ChannelKind, MemoryKind};
use isometry::planner::Options;
use isometry::{Accelerators, Array, CopyOptions, Cuda, Error, Instance, Machine, MachineBuilder};
use pair::pair;
use std::time::Duration;

/// What a driver answers to a call where a device is another's, or gone.
const UNAVAILABLE: u32 = 46;

/// What a fault is after which a device does nothing any more.
const ILLEGAL_ADDRESS: u32 = 700;

fn builder(cuda: Cuda) -> MachineBuilder {
    let builder = Machine::builder().lanes(1).staging(2 << 20).assume(true);
    builder.accelerators(Accelerators::None).cuda(cuda)
}

/// A machine of two emulated devices, and their driver; none where tests run on the system's.
fn machine(test: &str) -> Option<(Fake, Machine)> {
    let Some(fake) = Fake::load() else {
        println!("skipped: {test}: it needs the fake driver, and the system's is asked for");
        return None;
    };
    let machine = builder(Cuda::Driver(fake.path().to_owned())).open().unwrap();
    Some((fake, machine))
}

fn rows() -> Array {
    Array::of(&[("y", 300), ("x", 200)], "<f4").unwrap()
}

fn noise(machine: &Machine) -> Instance {
    let bytes: Vec<u8> = (0..rows_bytes()).map(|i| (i * 7 + i / 251) as u8).collect();
    let host = machine.empty(rows(), "sys").unwrap();
    host.fill(&bytes).unwrap();
    host
}

fn rows_bytes() -> u64 {
    4 * 300 * 200
}

fn copy(machine: &Machine, src: &Instance, dst: &Instance) -> Result<(), Error> {
    machine.copy(src, dst, &CopyOptions::default())?.wait(None)
}

/// The kind of the channel's error that a copy ended with, and what it says.
fn failure(result: Result<(), Error>) -> (ChannelErrorKind, String) {
    match result.unwrap_err() {
        Error::Transfer { error, .. } => (error.cause.kind, error.cause.detail),
        other => panic!("no transfer has failed: {other}"),
    }
}

/// A machine whose first device was lost in a copy to it, with what was copied and what it was to become.
fn with_a_loss(test: &str) -> Option<(Fake, Machine, Instance, Instance)> {
    let (fake, machine) = machine(test)?;
    let (src, dst) = (noise(&machine), machine.empty(rows(), "fbm").unwrap());
    copy(&machine, &src, &dst).unwrap();
    fake.fail(0, ILLEGAL_ADDRESS, true);
    let (kind, detail) = failure(copy(&machine, &src, &dst));
    assert_eq!(kind, ChannelErrorKind::DeviceLost);
    assert!(detail.contains("Emulated 0") && detail.contains("ILLEGAL_ADDRESS"), "{detail}");
    Some((fake, machine, src, dst))
}

#[test]
fn without_a_driver_a_machine_has_no_devices() {
    let machine = builder(Cuda::Driver("/nowhere/libcuda.so.1".into())).open().unwrap();
    assert!(machine.topology().classes[0].memories.iter().all(|m| m.kind == MemoryKind::Sys));
    let error = machine.empty(rows(), "fbm").unwrap_err();
    assert!(error.to_string().starts_with("no memory `fbm`; there are sys"), "{error}");
}

#[test]
fn devices_are_known_by_their_driver() {
    let test = "devices_are_known_by_their_driver";
    let Some((fake, machine)) = machine(test) else { return };
    let memories = machine.topology().classes[0].memories.clone();
    let names: Vec<_> = memories.iter().map(|memory| memory.name.as_str()).collect();
    assert_eq!(names[names.len() - 3..], ["zcm", "fbm", "fbm1"]);
    assert_eq!(memories[names.len() - 1].capacity_bytes, Some(64 << 20));
    drop(machine);
    assert_eq!(fake.live(), 0, "all is given back");
}

#[test]
fn a_device_that_is_full_says_so_and_goes_on() {
    let test = "a_device_that_is_full_says_so_and_goes_on";
    let Some((_fake, machine)) = machine(test) else { return };
    let half = || machine.empty(Array::of(&[("x", 33 << 20)], "|u1").unwrap(), "fbm");
    let first = half().unwrap();
    let Error::Channel(error) = half().unwrap_err() else { panic!("no memory") };
    assert_eq!(error.kind, ChannelErrorKind::OutOfMemory);
    let expected = "for CUDA device `Emulated 0`: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)";
    assert!(error.detail.contains(expected), "{error}");
    drop(first);
    half().unwrap();
}

#[test]
fn a_copy_that_fails_is_that_copys_error_alone() {
    let test = "a_copy_that_fails_is_that_copys_error_alone";
    let Some((fake, machine)) = machine(test) else { return };
    let (src, dst) = (noise(&machine), machine.empty(rows(), "fbm").unwrap());
    fake.fail(0, 801, false);
    let (kind, detail) = failure(copy(&machine, &src, &dst));
    assert_eq!(kind, ChannelErrorKind::Io);
    assert!(detail.contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{detail}");
    copy(&machine, &src, &dst).unwrap();
    machine.verify(&src, &dst).unwrap();
}

#[test]
fn a_lost_device_is_an_end_that_no_plan_leads_to() {
    let test = "a_lost_device_is_an_end_that_no_plan_leads_to";
    let Some((_fake, machine, src, dst)) = with_a_loss(test) else { return };
    let other = machine.empty(rows(), "fbm1").unwrap();
    for (src, dst) in [(&src, &dst), (&dst, &src), (&dst, &other), (&other, &dst)] {
        let planned = machine.plan(src, dst, &Options::default()).map(drop);
        let started = machine.copy(src, dst, &CopyOptions::default()).map(drop);
        for refused in [planned, started] {
            let error = refused.unwrap_err();
            let told = error.to_string();
            assert!(matches!(error, Error::Plan { .. }), "{error}");
            assert!(told.contains("CUDA device `Emulated 0` is lost"), "{told}");
            assert!(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{told}");
        }
    }
    let Error::Channel(error) = machine.empty(rows(), "fbm").unwrap_err() else { panic!("lost") };
    assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
}

#[test]
fn what_a_device_has_no_kernels_for_is_converted_another_way() {
    let test = "what_a_device_has_no_kernels_for_is_converted_another_way";
    let Some((fake, machine)) = machine(test) else { return };
    let (src, there) = (noise(&machine), machine.empty(rows(), "fbm").unwrap());
    copy(&machine, &src, &there).unwrap();
    let near = machine.empty(rows(), "zcm").unwrap();
    copy(&machine, &src, &near).unwrap();
    let turned = machine.empty(rows().laid_out("<F, y, x>").unwrap(), "fbm").unwrap();
    let converts = |from: &Instance| {
        let planned = machine.plan(from, &turned, &Options::default()).unwrap();
        planned.plan.hops.iter().any(|hop| hop.kind == ChannelKind::GpuConvert)
    };
    assert!(converts(&there) && converts(&near));
    fake.refuse("cuModuleLoadData", 222);
    let (kind, detail) = failure(copy(&machine, &there, &turned));
    assert_eq!(kind, ChannelErrorKind::Io);
    assert!(detail.contains("`Emulated 0` has no kernels"), "{detail}");
    for from in [&there, &near] {
        assert!(!converts(from));
        copy(&machine, from, &turned).unwrap();
        machine.verify(&src, &turned).unwrap();
    }
}

/// Whether any channel joins `memory`.
fn is_joined(machine: &Machine, memory: &str) -> bool {
    let topology = machine.topology();
    let memory = topology.memory_named(memory).unwrap().index;
    let joins = |channel: &Channel| channel.from.contains(&memory) || channel.to.contains(&memory);
    topology.classes[0].channels.iter().any(joins)
}

#[test]
fn what_an_allocation_finds_lost_is_closed_at_once() {
    let test = "what_an_allocation_finds_lost_is_closed_at_once";
    for (call, memory) in [("cuMemAlloc_v2", "fbm"), ("cuMemHostAlloc", "zcm")] {
        let Some((fake, machine)) = machine(test) else { return };
        let (src, dst) = (noise(&machine), machine.empty(rows(), "fbm").unwrap());
        fake.refuse(call, UNAVAILABLE);
        let Error::Channel(error) = machine.empty(rows(), memory).unwrap_err() else {
            panic!("an allocation")
        };
        assert_eq!(error.kind, ChannelErrorKind::DeviceLost);
        assert!(!is_joined(&machine, "fbm") && is_joined(&machine, "fbm1"));
        let refused = machine.plan(&src, &dst, &Options::default()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("CUDA device `Emulated 0` is lost"), "{refused}");
        let near = machine.empty(rows(), "zcm").unwrap();
        copy(&machine, &src, &near).unwrap();
        machine.verify(&src, &near).unwrap();
    }
}

#[test]
fn what_is_lost_as_a_machine_is_opened_is_closed_from_the_start() {
    let test = "what_is_lost_as_a_machine_is_opened_is_closed_from_the_start";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    // Its first device pins the staging near to both.
    fake.refuse("cuMemHostAlloc", UNAVAILABLE);
    let machine = builder(Cuda::Driver(fake.path().to_owned())).open().unwrap();
    assert!(!is_joined(&machine, "fbm") && is_joined(&machine, "fbm1"));
    let (src, dst) = (noise(&machine), machine.empty(rows(), "fbm1").unwrap());
    copy(&machine, &src, &dst).unwrap();
    machine.verify(&src, &dst).unwrap();
}

#[test]
fn others_go_on_where_a_device_is_lost() {
    let Some((_fake, machine, src, _)) = with_a_loss("others_go_on_where_a_device_is_lost") else {
        return;
    };
    assert!(!is_joined(&machine, "fbm"));
    let turned = rows().laid_out("<F, y, x>").unwrap();
    let stops = ["fbm1", "zcm", "fbm1", "sys"].map(|m| machine.empty(turned.clone(), m).unwrap());
    let mut before = &src;
    for stop in &stops {
        copy(&machine, before, stop).unwrap();
        machine.verify(&src, stop).unwrap();
        before = stop;
    }
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("rows.npy");
    let file = machine.create_file(&path, rows(), &isometry::FileOptions::default()).unwrap();
    copy(&machine, &stops[0], &file).unwrap();
    machine.verify(&src, &file).unwrap();
}

#[test]
fn what_another_device_has_in_flight_arrives() {
    let test = "what_another_device_has_in_flight_arrives";
    let Some((fake, machine)) = machine(test) else { return };
    let src = noise(&machine);
    let [first, second] = ["fbm", "fbm1"].map(|m| machine.empty(rows(), m).unwrap());
    fake.hold(1, true);
    let held = machine.copy(&src, &second, &CopyOptions::default()).unwrap();
    fake.refuse("cuMemcpyHtoDAsync_v2", UNAVAILABLE);
    let (kind, _) = failure(copy(&machine, &src, &first));
    assert_eq!(kind, ChannelErrorKind::DeviceLost);
    assert!(!held.is_done());
    fake.hold(1, false);
    held.wait(None).unwrap();
    machine.verify(&src, &second).unwrap();
}

#[test]
fn devices_of_two_apis_are_memories_of_one_machine() {
    let test = "devices_of_two_apis_are_memories_of_one_machine";
    let Some(fake) = Fake::load() else { return };
    let both = builder(Cuda::Driver(fake.path().to_owned())).accelerators(Accelerators::All);
    let machine = both.open().unwrap();
    let memories = machine.topology().classes[0].memories.clone();
    if !memories.iter().any(|memory| memory.name == "fbm2") {
        println!("skipped: {test}: no device of OpenCL");
        return;
    }
    assert!(memories.iter().any(|memory| memory.name == "zcm1"));
    let (src, turned) = (noise(&machine), rows().laid_out("<F, y, x>").unwrap());
    let mut before = src.clone();
    for memory in ["fbm", "fbm2", "zcm1", "fbm1", "zcm", "fbm2"] {
        let stop = machine.empty(turned.clone(), memory).unwrap();
        copy(&machine, &before, &stop).unwrap();
        machine.verify(&src, &stop).unwrap();
        before = stop;
    }
}

/// A node with two emulated devices, memory of each, and another node that has found both, and what it
/// copies there.
struct Far {
    fake: Fake,
    nodes: [Machine; 2],
    own: [Instance; 2],
    src: Instance,
    found: [Instance; 2],
}

impl Far {
    fn new() -> Option<Self> {
        let fake = Fake::load()?;
        let with = builder(Cuda::Driver(fake.path().to_owned()));
        let nodes = pair([with, builder(Cuda::None)]);
        let own = ["fbm", "fbm1"].map(|memory| {
            let there = nodes[0].empty(rows(), memory).unwrap();
            nodes[0].publish(memory, &there).unwrap();
            there
        });
        let found = ["fbm", "fbm1"].map(|name| Far::found(&nodes[1], name));
        let src = noise(&nodes[1]);
        copy(&nodes[1], &src, &found[0]).unwrap();
        Some(Far { fake, nodes, own, src, found })
    }

    /// What the node with devices publishes as `name`.
    fn found(other: &Machine, name: &str) -> Instance {
        other.lookup(&format!("node0/{name}"), Some(Duration::from_secs(20))).unwrap()
    }

    /// The other node plans no more to the first device, and says why, and copies to the second.
    fn check(&self) {
        let Far { nodes: [_, other], src, found: [lost, second], .. } = self;
        for (from, to) in [(src, lost), (lost, src), (lost, second)] {
            let planned = other.plan(from, to, &Options::default()).map(drop);
            let started = other.copy(from, to, &CopyOptions::default()).map(drop);
            for refused in [planned, started] {
                let error = refused.unwrap_err();
                assert!(matches!(error, Error::Plan { .. }), "{error}");
                let told = error.to_string();
                assert!(told.contains("`node0.fbm`"), "{told}");
                assert!(told.contains("CUDA device `Emulated 0` is lost"), "{told}");
                assert!(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{told}");
            }
        }
        copy(other, src, second).unwrap();
        other.verify(src, second).unwrap();
    }
}

#[test]
fn other_nodes_hear_that_a_device_is_lost_and_why() {
    let test = "other_nodes_hear_that_a_device_is_lost_and_why";
    let Some(far) = Far::new() else { return println!("skipped: {test}") };
    let [here, other] = &far.nodes;
    far.fake.fail(0, ILLEGAL_ADDRESS, true);
    let (kind, _) = failure(copy(here, &noise(here), &far.own[0]));
    assert_eq!(kind, ChannelErrorKind::DeviceLost);
    // What a node says comes in order: who hears this has heard of the loss.
    here.publish("after", &noise(here)).unwrap();
    Far::found(other, "after");
    far.check();
}

#[test]
fn a_node_whose_copy_loses_a_far_device_plans_no_other_there() {
    let test = "a_node_whose_copy_loses_a_far_device_plans_no_other_there";
    let Some(far) = Far::new() else { return println!("skipped: {test}") };
    far.fake.fail(0, ILLEGAL_ADDRESS, true);
    let (kind, detail) = failure(copy(&far.nodes[1], &far.src, &far.found[0]));
    assert_eq!(kind, ChannelErrorKind::DeviceLost);
    assert!(detail.contains("Emulated 0") && detail.contains("ILLEGAL_ADDRESS"), "{detail}");
    far.check();
}

#[test]
fn a_device_that_is_lost_as_it_converts_pinned_memory_is_closed() {
    let test = "a_device_that_is_lost_as_it_converts_pinned_memory_is_closed";
    let Some((fake, machine)) = machine(test) else { return };
    let (src, near) = (noise(&machine), machine.empty(rows(), "zcm").unwrap());
    copy(&machine, &src, &near).unwrap();
    let turned = rows().laid_out("<F, y, x>").unwrap();
    let [first, second] = ["fbm", "fbm1"].map(|m| machine.empty(turned.clone(), m).unwrap());
    for (device, memory, there) in [(0, "fbm", &first), (1, "fbm1", &second)] {
        let planned = machine.plan(&near, there, &Options::default()).unwrap();
        let kinds: Vec<_> = planned.plan.hops.iter().map(|hop| hop.kind).collect();
        assert_eq!(kinds, [ChannelKind::GpuConvert], "also of what another device has pinned");
        copy(&machine, &near, there).unwrap();
        machine.verify(&src, there).unwrap();
        fake.fail(device, ILLEGAL_ADDRESS, true);
        let (kind, detail) = failure(copy(&machine, &near, there));
        assert_eq!(kind, ChannelErrorKind::DeviceLost);
        assert!(detail.contains(&format!("Emulated {device}")), "{detail}");
        assert!(!is_joined(&machine, memory));
    }
    machine.verify(&src, &near).unwrap();
}

/// The memories that a copy passes, and the kinds of its hops.
fn way(machine: &Machine, src: &Instance, dst: &Instance) -> (Vec<String>, Vec<ChannelKind>) {
    let plan = machine.plan(src, dst, &Options::default()).unwrap().plan;
    let topology = machine.topology();
    let names = plan.memories.iter().map(|&memory| topology.short_name(memory));
    (names.collect(), plan.hops.iter().map(|hop| hop.kind).collect())
}

#[test]
fn devices_copy_to_each_other_past_the_host() {
    let test = "devices_copy_to_each_other_past_the_host";
    let Some((fake, machine)) = machine(test) else { return };
    let src = noise(&machine);
    let [first, second, back] =
        ["fbm", "fbm1", "fbm"].map(|memory| machine.empty(rows(), memory).unwrap());
    copy(&machine, &src, &first).unwrap();
    let calls = || ["PeerAsync", "DtoHAsync_v2"].map(|call| fake.count(&format!("cuMemcpy{call}")));
    for (sent, (from, to)) in (1..).zip([(&first, &second), (&second, &back)]) {
        let (memories, kinds) = way(&machine, from, to);
        assert_eq!((memories.len(), &kinds[..]), (2, &[ChannelKind::GpuCopy][..]), "{memories:?}");
        let [before, read] = calls();
        copy(&machine, from, to).unwrap();
        assert!(calls()[0] > before && calls()[1] == read, "copy {sent} went straight");
        machine.verify(&src, to).unwrap();
    }
    let turned = machine.empty(rows().laid_out("<F, y, x>").unwrap(), "fbm1").unwrap();
    let (memories, kinds) = way(&machine, &first, &turned);
    assert_eq!(kinds, [ChannelKind::GpuConvert, ChannelKind::GpuCopy], "{memories:?}");
    copy(&machine, &first, &turned).unwrap();
    machine.verify(&src, &turned).unwrap();
}

#[test]
fn a_device_that_does_not_reach_another_copies_to_it_by_the_host() {
    let test = "a_device_that_does_not_reach_another_copies_to_it_by_the_host";
    for call in ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"] {
        let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
        fake.refuse(call, 217);
        let machine = builder(Cuda::Driver(fake.path().to_owned())).open().unwrap();
        let src = noise(&machine);
        let [first, second] = ["fbm", "fbm1"].map(|m| machine.empty(rows(), m).unwrap());
        copy(&machine, &src, &first).unwrap();
        let (memories, _) = way(&machine, &first, &second);
        assert_eq!(memories, ["fbm", "zcm", "fbm1"]);
        copy(&machine, &first, &second).unwrap();
        machine.verify(&src, &second).unwrap();
        let (memories, _) = way(&machine, &second, &first);
        assert_eq!(memories, ["fbm1", "fbm"], "that one reaches the first");
    }
}

#[test]
fn what_a_device_refuses_to_copy_to_another_goes_by_the_host_from_then_on() {
    let test = "what_a_device_refuses_to_copy_to_another_goes_by_the_host_from_then_on";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    let machine = builder(Cuda::Driver(fake.path().to_owned())).open().unwrap();
    let src = noise(&machine);
    let [first, second] = ["fbm", "fbm1"].map(|m| machine.empty(rows(), m).unwrap());
    copy(&machine, &src, &first).unwrap();
    fake.refuse("cuMemcpyPeerAsync", 217);
    let error = copy(&machine, &first, &second).unwrap_err();
    assert!(error.to_string().contains("PEER_ACCESS_UNSUPPORTED (217)"), "{error}");
    let (memories, _) = way(&machine, &first, &second);
    assert_eq!(memories, ["fbm", "zcm", "fbm1"]);
    copy(&machine, &first, &second).unwrap();
    machine.verify(&src, &second).unwrap();
    let (memories, _) = way(&machine, &second, &first);
    assert_eq!(memories, ["fbm1", "fbm"], "that one was not refused");
    let inside = machine.empty(rows(), "fbm").unwrap();
    assert_eq!(way(&machine, &first, &inside).0, ["fbm", "fbm"]);
}

#[test]
fn what_devices_copy_to_each_other_is_measured_and_kept() {
    let test = "what_devices_copy_to_each_other_is_measured_and_kept";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let builder = builder(Cuda::Driver(fake.path().to_owned())).assume(false);
        builder.cache_dir(dir.path()).open().unwrap()
    };
    let rates = |machine: Machine| {
        let channels = machine.topology().classes[0].channels.clone();
        let joins_two = |c: &Channel| c.kind == ChannelKind::GpuCopy && c.from != c.to;
        let channels = channels.into_iter().filter(joins_two);
        let channels = channels.inspect(|channel| assert!(!channel.assumed));
        channels.map(|channel| (channel.curves, channel.latency_ns)).collect::<Vec<_>>()
    };
    let measured = rates(open());
    assert_eq!(measured.len(), 2);
    let before = fake.count("cuMemcpyPeerAsync");
    assert!(before > 0);
    assert_eq!(rates(open()), measured);
    assert_eq!(fake.count("cuMemcpyPeerAsync"), before, "what is kept is not measured");
}

#[test]
fn links_of_each_rank_have_a_channel_of_their_own() {
    let test = "links_of_each_rank_have_a_channel_of_their_own";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    fake.add_third();
    let machine = builder(Cuda::Driver(fake.path().to_owned())).open().unwrap();
    let class = &machine.topology().classes[0];
    let names = |memories: &[u16]| -> Vec<&str> {
        memories.iter().map(|&memory| class.memories[usize::from(memory)].name.as_str()).collect()
    };
    let joins_two = |c: &&Channel| c.kind == ChannelKind::GpuCopy && c.from != c.to;
    let joining = class.channels.iter().filter(joins_two);
    let ends: Vec<_> = joining.map(|c| (names(&c.from), names(&c.to))).collect();
    let [first, second, third] = ["fbm", "fbm1", "fbm2"];
    let of_first = [(vec![first], vec![second]), (vec![first], vec![third])];
    let of_second = [(vec![second], vec![first, third])];
    let of_third = [(vec![third], vec![second]), (vec![third], vec![first])];
    assert_eq!(ends, [&of_first[..], &of_second, &of_third].concat(), "the faster one first");
    let src = noise(&machine);
    let [near, far] = ["fbm", "fbm2"].map(|memory| machine.empty(rows(), memory).unwrap());
    copy(&machine, &src, &near).unwrap();
    assert_eq!(way(&machine, &near, &far).0, [first, third]);
    copy(&machine, &near, &far).unwrap();
    machine.verify(&src, &far).unwrap();
}

#[test]
fn a_way_to_another_device_that_cannot_be_measured_is_none() {
    let test = "a_way_to_another_device_that_cannot_be_measured_is_none";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    fake.refuse("cuMemcpyPeerAsync", 217);
    let dir = tempfile::tempdir().unwrap();
    let builder = builder(Cuda::Driver(fake.path().to_owned())).assume(false);
    let machine = builder.cache_dir(dir.path()).open().unwrap();
    let [first, second] = ["fbm", "fbm1"].map(|m| machine.empty(rows(), m).unwrap());
    let by_host = way(&machine, &first, &second).0;
    assert!(by_host.len() == 3 && ["sys", "zcm"].contains(&&*by_host[1]), "{by_host:?}");
    assert_eq!(way(&machine, &second, &first).0, ["fbm1", "fbm"], "that was measured");
    let src = noise(&machine);
    copy(&machine, &src, &first).unwrap();
    copy(&machine, &first, &second).unwrap();
    machine.verify(&src, &second).unwrap();
}

#[test]
fn a_device_that_is_lost_is_copied_to_from_no_other() {
    let test = "a_device_that_is_lost_is_copied_to_from_no_other";
    let Some((fake, machine)) = machine(test) else { return };
    let src = noise(&machine);
    let [first, second] = ["fbm", "fbm1"].map(|m| machine.empty(rows(), m).unwrap());
    copy(&machine, &src, &second).unwrap();
    fake.fail(1, ILLEGAL_ADDRESS, true);
    let (kind, detail) = failure(copy(&machine, &second, &first));
    assert_eq!(kind, ChannelErrorKind::DeviceLost);
    assert!(detail.contains("Emulated 1"), "{detail}");
    assert!(!is_joined(&machine, "fbm1") && is_joined(&machine, "fbm"));
    let refused = machine.plan(&first, &second, &Options::default()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("CUDA device `Emulated 1` is lost"), "{refused}");
    copy(&machine, &src, &first).unwrap();
    machine.verify(&src, &first).unwrap();
}

/// Two nodes, the first of which has emulated devices; what the other publishes, and memory of a device.
fn receiving(fake: &Fake) -> ([Machine; 2], Instance, Instance) {
    let with = builder(Cuda::Driver(fake.path().to_owned()));
    let nodes = pair([with, builder(Cuda::None)]);
    nodes[1].publish("rows", &noise(&nodes[1])).unwrap();
    let src = nodes[0].lookup("node1/rows", Some(Duration::from_secs(20))).unwrap();
    let dst = nodes[0].empty(rows(), "fbm").unwrap();
    (nodes, src, dst)
}

/// The host memories at the ends of channels of this kind that `fbm` is the other end of, apart for each.
fn hosts_of_fbm(machine: &Machine, kind: ChannelKind) -> Vec<Vec<String>> {
    let topology = machine.topology();
    let class = &topology.classes[0];
    let name = |end: &u16| class.memories[usize::from(*end)].name.clone();
    let sides = class.channels.iter().filter(|channel| channel.kind == kind).map(|channel| {
        let (from, to) = (&channel.from, &channel.to);
        if kind == ChannelKind::GpuWrite { (to, from) } else { (from, to) }
    });
    let its = sides.filter(|(device, _)| device.iter().any(|end| name(end) == "fbm"));
    its.map(|(_, host)| host.iter().map(name).collect()).collect()
}

#[test]
fn what_comes_by_a_network_goes_from_registered_memory_to_a_device() {
    let test = "what_comes_by_a_network_goes_from_registered_memory_to_a_device";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    let (nodes, src, dst) = receiving(&fake);
    for kind in [ChannelKind::GpuWrite, ChannelKind::GpuRead] {
        let hosts = hosts_of_fbm(&nodes[0], kind);
        assert_eq!(hosts, [&["sys"][..], &["zcm"], &["reg"]], "each is measured apart");
    }
    assert_eq!(fake.count("cuMemHostRegister_v2"), 1, "for both devices");
    let (memories, kinds) = way(&nodes[0], &src, &dst);
    assert_eq!(memories, ["node1.sys", "node0.reg", "node0.fbm"]);
    assert_eq!(kinds, [ChannelKind::RemoteMemcpy, ChannelKind::GpuWrite]);
    copy(&nodes[0], &src, &dst).unwrap();
    nodes[0].verify(&src, &dst).unwrap();
    drop((nodes, src, dst));
    assert_eq!(fake.count("cuMemHostUnregister"), 1);
    assert_eq!(fake.live(), 0, "all is given back");
}

#[test]
fn registered_memory_that_a_driver_does_not_take_is_plain_host_memory() {
    let test = "registered_memory_that_a_driver_does_not_take_is_plain_host_memory";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    fake.refuse("cuMemHostRegister_v2", 2);
    let (nodes, src, dst) = receiving(&fake);
    assert_eq!(hosts_of_fbm(&nodes[0], ChannelKind::GpuWrite), [&["sys", "reg"][..], &["zcm"]]);
    let (memories, _) = way(&nodes[0], &src, &dst);
    assert_eq!(memories, ["node1.sys", "node0.reg", "node0.fbm"]);
    copy(&nodes[0], &src, &dst).unwrap();
    nodes[0].verify(&src, &dst).unwrap();
}
