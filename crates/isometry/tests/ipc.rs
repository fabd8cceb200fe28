//! Nodes of one machine, each a process, that open memory of each other's devices. The devices are emulated, what
//! one has exported being a file that the others map, but where the system's are asked for and are enough.

#[path = "../../fabric/tests/breaking/mod.rs"]
mod breaking;

use breaking::break_connections;
use fake_cuda::Fake;
use isometry::fabric::{Config, Job};
use isometry::model::NodeId;
use isometry::planner::Options;
use isometry::{
    Accelerators, Array, CopyOptions, Cuda, Error, ErrorKind, Instance, Machine, MachineBuilder,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// The call that allocates memory of a device.
const ALLOCATE: &str = "cuMemAlloc_v2";

/// The call that exports some, the one that opens what another process has exported, and the one that closes it.
const EXPORT: &str = "cuIpcGetMemHandle";
const OPEN: &str = "cuIpcOpenMemHandle_v2";
const CLOSE: &str = "cuIpcCloseMemHandle";

/// Where this is set, the process is one of a test's nodes.
const NODE: &str = "ISOMETRY_ROOT";

/// Starts `test` again as two processes, which join each other, and hands them to `watch`; in each of these
/// runs `node` with what its rank is and its devices' driver. Where these have no fault, all is given back then.
fn nodes(test: &str, node: impl Fn(u32, &Machine, &Fake), watch: impl Fn(&mut [Child; 2])) {
    nodes_that_leave([0; 2], test, node, watch);
}

/// As [`nodes`], but each leaves so many of its driver's objects.
fn nodes_that_leave(
    left: [u64; 2],
    test: &str,
    node: impl Fn(u32, &Machine, &Fake),
    watch: impl Fn(&mut [Child; 2]),
) {
    nodes_of(&[Job::new(2).unwrap()], left, test, (node, watch));
}

/// As [`nodes_that_leave`], once for each job.
fn nodes_of(
    jobs: &[Job],
    left: [u64; 2],
    test: &str,
    (node, watch): (impl Fn(u32, &Machine, &Fake), impl Fn(&mut [Child; 2])),
) {
    let Some(fake) = fake(test) else { return };
    let node = || {
        let machine = join(&fake);
        node(machine.rank(), &machine, &fake);
        let has_fault =
            ["fbm", "fbm1"].iter().any(|memory| machine.empty(array("yx"), memory).is_err());
        let rank = machine.rank();
        machine.close_now();
        drop(machine);
        let left = left[rank as usize];
        assert!(has_fault || fake.live() == left, "{} are left, not {left}", fake.live());
    };
    processes_of(jobs, test, (node, watch));
}

/// Starts `test` again as the two processes of each job, and hands them to `watch`; in each of these runs `node`.
fn processes_of(
    jobs: &[Job],
    test: &str,
    (node, watch): (impl FnOnce(), impl Fn(&mut [Child; 2])),
) {
    if env::var_os(NODE).is_some() {
        return node();
    }
    let pair = |job: &Job| [0, 1].map(|rank| start(test, &job.variables(rank)));
    jobs.iter().for_each(|job| watch(&mut pair(job)));
}

/// A driver of devices, unless the system's is asked for.
fn fake(test: &str) -> Option<Fake> {
    let fake = Fake::load();
    if fake.is_none() {
        println!("skipped: {test}: it needs the fake driver, and the system's is asked for");
    }
    fake
}

fn with_devices(fake: &Fake) -> MachineBuilder {
    on_hosts().cuda(Cuda::Driver(fake.path().to_owned()))
}

fn on_hosts() -> MachineBuilder {
    let builder = Machine::builder().assume(true).lanes(1).staging(8 << 20);
    builder.accelerators(Accelerators::None).cuda(Cuda::None)
}

/// As what this process was started.
fn config() -> Config {
    Config::from_variables(|name| env::var(name).ok()).unwrap()
}

/// Joins the nodes that this process's variables speak of, with the devices of `fake`.
fn join(fake: &Fake) -> Machine {
    with_devices(fake).join(&config()).unwrap()
}

fn start(test: &str, variables: &[(&str, String)]) -> Child {
    // Whatever becomes of it, nobody waits for it for ever.
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).stdout(Stdio::null());
    command.envs(variables.iter().cloned()).spawn().unwrap()
}

/// Waits until all have ended well.
fn end_well<const N: usize>(children: &mut [Child; N]) {
    let ended = children.each_mut().map(|child| child.wait().unwrap());
    assert!(ended.iter().all(|status| status.success()), "{ended:?}");
}

fn array(layout: &str) -> Array {
    Array::of(&[("y", 700), ("x", 900)], "<f4").unwrap().laid_out(layout).unwrap()
}

/// Of different values.
fn noise() -> Vec<u8> {
    (0..700 * 900_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn try_copy(machine: &Machine, src: &Instance, dst: &Instance) -> Result<(), Error> {
    machine.copy(src, dst, &CopyOptions::default())?.wait(PATIENCE)
}

fn copy(machine: &Machine, src: &Instance, dst: &Instance) {
    try_copy(machine, src, dst).unwrap();
}

/// Rows of noise in a device's memory.
fn rows(machine: &Machine, memory: &str) -> Instance {
    let host = machine.empty(array("yx"), "sys").unwrap();
    host.fill(&noise()).unwrap();
    let rows = machine.empty(array("yx"), memory).unwrap();
    copy(machine, &host, &rows);
    rows
}

/// Whether `there` has the noise, as rows.
fn is_noise(machine: &Machine, there: &Instance) -> bool {
    let host = machine.empty(array("yx"), "sys").unwrap();
    copy(machine, there, &host);
    host.to_vec().unwrap() == noise()
}

/// The memories on the way.
fn path(machine: &Machine, src: &Instance, dst: &Instance) -> Vec<String> {
    let plan = machine.plan(src, dst, &Options::default()).unwrap().to_json();
    let names = plan["memories"].as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn found(machine: &Machine, name: &str) -> Instance {
    machine.lookup(name, PATIENCE).unwrap()
}

/// Waits for something that another thread is about to see.
fn comes(is_there: impl Fn() -> bool) -> bool {
    let end = Instant::now() + PATIENCE.unwrap();
    while !is_there() && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    is_there()
}

/// Also where both are one.
#[test]
fn an_array_goes_from_device_to_device_of_another_process() {
    let test = "an_array_goes_from_device_to_device_of_another_process";
    let fake = Fake::load();
    let cuda = || fake.as_ref().map_or(Cuda::All, |fake| Cuda::Driver(fake.path().to_owned()));
    // That of the last device there is.
    let last = |machine: &Machine| {
        let memories = of_devices(machine, machine.rank());
        memories.into_iter().rfind(|name| !name.ends_with(ROOM))
    };
    if env::var_os(NODE).is_none() && last(&on_hosts().cuda(cuda()).open().unwrap()).is_none() {
        return println!("skipped: {test}: there is no device");
    }
    let node = || {
        let machine = on_hosts().cuda(cuda()).join(&config()).unwrap();
        let last = &*last(&machine).unwrap();
        let is_opened = |devices| fake.as_ref().is_none_or(|fake| fake.count(OPEN) == devices);
        if machine.rank() == 0 {
            let sources = BTreeSet::from(["fbm", last]).into_iter();
            sources.for_each(|name| machine.publish(name, &rows(&machine, name)).unwrap());
            let back = machine.empty(array("xy"), "fbm").unwrap();
            machine.publish("back", &back).unwrap();
            machine.barrier(PATIENCE).unwrap();
            assert!(is_noise(&machine, &back));
            assert!(is_opened(2), "each device once");
        } else {
            for (memory, layout) in [("fbm", "yx"), ("fbm", "xy"), (last, "yx"), ("fbm", "yx")] {
                let there = found(&machine, &format!("node0/{memory}"));
                let here = machine.empty(array(layout), "fbm").unwrap();
                let way = [&format!("node0.{memory}"), "node1.fbm_reg", "node1.fbm"];
                assert_eq!(path(&machine, &there, &here), way, "{layout}");
                copy(&machine, &there, &here);
                assert!(is_noise(&machine, &here), "{memory}, {layout}");
            }
            let source = rows(&machine, last);
            copy(&machine, &source, &found(&machine, "node0/back"));
            machine.barrier(PATIENCE).unwrap();
            assert!(is_opened(1), "the device that it was copied from");
        }
        assert!(fake.as_ref().is_none_or(|fake| fake.count(CLOSE) == 0));
        machine.barrier(PATIENCE).unwrap();
        machine.close_now();
        drop(machine);
        assert_eq!(fake.as_ref().map_or(0, Fake::live), 0);
    };
    // By shared memory, and by a network that finds both on one machine.
    let jobs = [Job::new(2).unwrap(), Job::across("127.0.0.1", None, 2).unwrap()];
    processes_of(&jobs, test, (node, end_well));
}

/// What the names of memories end with that others put to.
const ROOM: &str = "_reg";

/// The memories of a node's devices, as `machine` knows them.
fn of_devices(machine: &Machine, node: u32) -> Vec<String> {
    let topology = machine.topology();
    let (class, _) = topology.class_of(NodeId(node)).unwrap();
    let names = topology.classes[class].memories.iter().map(|memory| memory.name.clone());
    names.filter(|name| name.starts_with("fbm")).collect()
}

/// Those that others put to.
fn rooms(machine: &Machine, node: u32) -> Vec<String> {
    let memories = of_devices(machine, node).into_iter();
    memories.filter(|name| name.ends_with(ROOM)).collect()
}

#[test]
fn devices_of_nodes_that_are_to_be_apart_are_not_linked() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 0 {
            machine.publish("rows", &rows(machine, "fbm")).unwrap();
        } else {
            let (there, here) =
                (found(machine, "node0/rows"), machine.empty(array("xy"), "fbm").unwrap());
            copy(machine, &there, &here);
            assert!(is_noise(machine, &here));
        }
        machine.barrier(PATIENCE).unwrap();
        assert!([0, 1].iter().all(|&node| rooms(machine, node).is_empty()));
        assert_eq!(fake.count(EXPORT), 0);
    };
    let test = "devices_of_nodes_that_are_to_be_apart_are_not_linked";
    nodes_of(&[Job::loopback(2).unwrap()], [0; 2], test, (node, end_well));
}

fn config_of(variables: &[(&str, String)]) -> Config {
    let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
    Config::from_variables(find).unwrap()
}

/// The first node of three at most, in this process, and what others join it by.
fn founder_of_three(fake: &Fake) -> (Machine, [(&'static str, String); 2]) {
    let job = Job::new(1).unwrap().variables(0);
    let capacity = [("ISOMETRY_CAPACITY", "3".to_owned())];
    let config = config_of(&[&job[..], &capacity].concat());
    let [root, _, _, key] = job;
    (with_devices(fake).join(&config).unwrap(), [root, key])
}

#[test]
fn room_is_made_once_another_node_has_devices() {
    let test = "room_is_made_once_another_node_has_devices";
    let Some(fake) = fake(test) else { return };
    if env::var_os(NODE).is_some() {
        let machine = with_devices(&fake).join(&config()).unwrap();
        assert_eq!([0, 2].map(|node| rooms(&machine, node).len()), [2, 2]);
        let (there, here) = (found(&machine, "node0/rows"), rows(&machine, "fbm"));
        machine.publish("rows", &here).unwrap();
        copy(&machine, &there, &here);
        found(&machine, "node0/done");
        return;
    }
    let (founder, later) = founder_of_three(&fake);
    founder.publish("rows", &rows(&founder, "fbm")).unwrap();
    let alone = fake.count(ALLOCATE);
    let host = on_hosts().join(&config_of(&later)).unwrap();
    assert!(is_noise(&host, &found(&host, "node0/rows")));
    assert_eq!((rooms(&founder, 0).len(), fake.count(ALLOCATE)), (0, alone), "a host puts to none");
    assert_eq!(fake.count(EXPORT), 0);
    founder.publish("plain", &founder.empty(word(), "sys").unwrap()).unwrap();
    fake.hold(0, true);
    let mut newcomer = start(test, &later);
    assert!(comes(|| fake.count(ALLOCATE) > alone));
    found(&host, "node0/plain");
    assert_eq!(fake.count(EXPORT), 0, "who makes room, and has none yet, hears others");
    fake.hold(0, false);
    let (there, here) =
        (found(&founder, "node2/rows"), founder.empty(array("xy"), "fbm1").unwrap());
    assert_eq!(path(&founder, &there, &here), ["node2.fbm", "node0.fbm1_reg", "node0.fbm1"]);
    copy(&founder, &there, &here);
    assert!(is_noise(&founder, &here));
    assert_eq!(fake.count(EXPORT), 2, "once for each device");
    founder.publish("done", &here).unwrap();
    assert!(newcomer.wait().unwrap().success());
    assert_eq!(founder.nodes().iter().filter(|node| node.lost.is_none()).count(), 2);
}

#[test]
fn devices_are_linked_once_no_two_nodes_are_of_one_process() {
    let test = "devices_are_linked_once_no_two_nodes_are_of_one_process";
    let Some(fake) = fake(test) else { return };
    if env::var_os(NODE).is_some() {
        let machine = join(&fake);
        machine.publish("rows", &rows(&machine, "fbm")).unwrap();
        found(&machine, "node0/done");
        return;
    }
    let (founder, later) = founder_of_three(&fake);
    let second = with_devices(&fake).join(&config_of(&later)).unwrap();
    let mut other = start(test, &later);
    let (there, here) =
        (found(&founder, "node2/rows"), founder.empty(array("xy"), "fbm1").unwrap());
    assert_eq!([0, 1, 2].map(|node| rooms(&founder, node).len()), [0; 3]);
    second.close_now();
    drop(second);
    let way = ["node2.fbm", "node0.fbm1_reg", "node0.fbm1"];
    assert!(comes(|| path(&founder, &there, &here) == way));
    copy(&founder, &there, &here);
    assert!(is_noise(&founder, &here));
    founder.publish("done", &here).unwrap();
    assert!(other.wait().unwrap().success());
}

#[test]
fn where_a_device_does_not_reach_another_later_copies_go_another_way() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 0 {
            fake.refuse(OPEN, 217);
            machine.publish("rows", &rows(machine, "fbm")).unwrap();
            machine.publish("other", &rows(machine, "fbm1")).unwrap();
            machine.barrier(PATIENCE).unwrap();
            assert_eq!(fake.count(OPEN), 3, "one was refused, once");
            return;
        }
        let [there, other] = ["node0/rows", "node0/other"].map(|name| found(machine, name));
        let here = machine.empty(array("yx"), "fbm").unwrap();
        let error = try_copy(machine, &there, &here).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transfer, "{error}");
        for part in ["PEER_ACCESS_UNSUPPORTED (217)", "Emulated 0", "node1"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        let goes_straight = |src| path(machine, src, &here)[1] == "node1.fbm_reg";
        assert!(comes(|| !goes_straight(&there)), "{:?}", path(machine, &there, &here));
        copy(machine, &there, &here);
        assert!(is_noise(machine, &here));
        assert!(goes_straight(&other));
        copy(machine, &other, &here);
        let near = machine.empty(array("yx"), "fbm1").unwrap();
        assert_eq!(path(machine, &there, &near)[1], "node1.fbm1_reg");
        copy(machine, &there, &near);
        assert!(is_noise(machine, &near));
        machine.barrier(PATIENCE).unwrap();
    };
    let test = "where_a_device_does_not_reach_another_later_copies_go_another_way";
    nodes(test, node, end_well);
}

#[test]
fn a_process_that_dies_is_an_error_and_what_was_open_is_closed() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 1 {
            machine.publish("there", &machine.empty(array("yx"), "fbm").unwrap()).unwrap();
            found(machine, "node0/begun");
            std::process::abort();
        }
        let (here, there) = (rows(machine, "fbm"), found(machine, "node1/there"));
        copy(machine, &here, &there);
        // What is on its way waits for the device.
        fake.hold(0, true);
        let event = machine.copy(&here, &there, &CopyOptions::default()).unwrap();
        machine.publish("begun", &here).unwrap();
        thread::sleep(Duration::from_millis(50));
        fake.hold(0, false);
        let error = event.wait(PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        assert!(comes(|| fake.count(CLOSE) == 1), "nobody knows it any more");
        assert!(try_copy(machine, &here, &there).is_err());
        assert!(is_noise(machine, &here), "the device goes on");
    };
    nodes("a_process_that_dies_is_an_error_and_what_was_open_is_closed", node, |children| {
        let [first, second] = children.each_mut().map(|child| child.wait().unwrap());
        assert!(first.success() && !second.success(), "{first}, {second}");
    });
}

/// What it has begun may go on, as its devices know nothing of connections.
#[test]
fn what_a_process_writes_that_can_t_be_reached_is_kept_until_it_ends() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 1 {
            publish_process(machine);
            let (here, there) = (rows(machine, "fbm"), found(machine, "node0/there"));
            copy(machine, &here, &there);
            fake.hold(0, true);
            let _event = machine.copy(&here, &there, &CopyOptions::default()).unwrap();
            machine.publish("begun", &here).unwrap();
            found(machine, "node0/heard");
            break_connections();
            loop {
                thread::park();
            }
        }
        let used = || {
            let staging = machine.status().unwrap().staging;
            staging.iter().map(|memory| memory.used_bytes).sum::<u64>()
        };
        let there = machine.empty(array("yx"), "fbm").unwrap();
        machine.publish("there", &there).unwrap();
        let (process, _) = (process_of(machine, "node1"), found(machine, "node1/begun"));
        assert!(comes(|| used() > 0));
        machine.publish("heard", &there).unwrap();
        assert!(comes(|| machine.nodes()[1].lost.is_some()));
        assert!(comes(|| machine.status().unwrap().transfers.is_empty()), "it has failed");
        // Long enough for what is given back at once.
        thread::sleep(Duration::from_millis(100));
        assert!(used() > 0, "its device writes there yet");
        kill_process(process, Signal::KILL).unwrap();
        assert!(comes(|| used() == 0));
        assert!(is_noise(machine, &there));
    };
    // By shared memory, and by a network that finds both on one machine.
    let jobs = [Job::new(2).unwrap(), Job::across("127.0.0.1", None, 2).unwrap()];
    let watch = |children: &mut [Child; 2]| {
        let [first, second] = children.each_mut().map(|child| child.wait().unwrap());
        assert!(first.success() && !second.success(), "{first}, {second}");
    };
    let test = "what_a_process_writes_that_can_t_be_reached_is_kept_until_it_ends";
    nodes_of(&jobs, [0; 2], test, (node, watch));
}

#[test]
fn a_node_that_leaves_is_copied_to_no_more() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 1 {
            machine.publish("there", &machine.empty(array("yx"), "fbm").unwrap()).unwrap();
            found(machine, "node0/copied");
            return;
        }
        let (here, there) = (rows(machine, "fbm"), found(machine, "node1/there"));
        copy(machine, &here, &there);
        machine.publish("copied", &here).unwrap();
        assert!(comes(|| fake.count(CLOSE) == 1));
        let error = try_copy(machine, &here, &there).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        assert!(is_noise(machine, &here), "the device is not lost");
    };
    nodes("a_node_that_leaves_is_copied_to_no_more", node, end_well);
}

#[test]
fn others_are_heard_while_a_driver_closes() {
    let test = "others_are_heard_while_a_driver_closes";
    let Some(fake) = fake(test) else { return };
    if env::var_os(NODE).is_some() {
        let machine = join(&fake);
        machine.publish("there", &machine.empty(array("yx"), "fbm").unwrap()).unwrap();
        found(&machine, "node0/done");
        return;
    }
    let (founder, later) = founder_of_three(&fake);
    let host = on_hosts().join(&config_of(&later)).unwrap();
    let mut leaver = start(test, &later);
    let (here, there) = (rows(&founder, "fbm"), found(&founder, "node2/there"));
    copy(&founder, &here, &there);
    fake.hold_call(CLOSE, true);
    founder.publish("done", &here).unwrap();
    assert!(comes(|| fake.count(CLOSE) == 1));
    let plain = founder.empty(array("yx"), "sys").unwrap();
    founder.publish("plain", &plain).unwrap();
    let heard = host.lookup("node0/plain", PATIENCE);
    let copied = try_copy(&founder, &here, &plain);
    // Before anything fails: who closes waits for that.
    fake.hold_call(CLOSE, false);
    heard.unwrap();
    copied.unwrap();
    assert!(leaver.wait().unwrap().success());
}

#[test]
fn a_node_that_closes_waits_for_what_others_have_begun() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 1 {
            machine.publish("there", &machine.empty(array("yx"), "fbm").unwrap()).unwrap();
            found(machine, "node0/begun");
            return;
        }
        let (here, there) = (rows(machine, "fbm"), found(machine, "node1/there"));
        fake.hold(0, true);
        let event = machine.copy(&here, &there, &CopyOptions::default()).unwrap();
        assert!(comes(|| fake.count(OPEN) == 1));
        machine.publish("begun", &here).unwrap();
        // Long enough for the other to give back what it does not wait with.
        thread::sleep(Duration::from_millis(200));
        assert_eq!(fake.count(CLOSE), 0, "the device has it yet");
        fake.hold(0, false);
        assert!(event.wait(PATIENCE).is_err());
        assert!(comes(|| fake.count(CLOSE) == 1));
        assert!(is_noise(machine, &here), "the device is not lost");
    };
    nodes("a_node_that_closes_waits_for_what_others_have_begun", node, end_well);
}

fn word() -> Array {
    Array::of(&[("x", 4)], "|u1").unwrap()
}

/// Lets others know which process this is.
fn publish_process(machine: &Machine) {
    let number = machine.empty(word(), "sys").unwrap();
    number.fill(&std::process::id().to_le_bytes()).unwrap();
    machine.publish("process", &number).unwrap();
}

/// Which process `node` is.
fn process_of(machine: &Machine, node: &str) -> Pid {
    let number = machine.empty(word(), "sys").unwrap();
    copy(machine, &found(machine, &format!("{node}/process")), &number);
    let number = i32::from_le_bytes(number.to_vec().unwrap().try_into().unwrap());
    Pid::from_raw(number).unwrap()
}

/// Stops all threads of a process.
fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let is_stopped = |thread: PathBuf| {
        let state = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    assert!(comes(|| {
        let mut threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
        threads.all(|thread| is_stopped(thread.unwrap().path()))
    }));
}

#[test]
fn memory_that_others_do_not_close_in_time_is_left() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 1 {
            machine.publish("there", &machine.empty(array("yx"), "fbm").unwrap()).unwrap();
            return stop(process_of(machine, "node0"));
        }
        let (here, there) = (rows(machine, "fbm"), found(machine, "node1/there"));
        copy(machine, &here, &there);
        publish_process(machine);
        assert!(comes(|| fake.count(CLOSE) == 1));
    };
    // The room of each device, and its context.
    let left = [0, 4];
    nodes_that_leave(left, "memory_that_others_do_not_close_in_time_is_left", node, |children| {
        let [stopped, closes] = children;
        let ended = closes.wait().unwrap();
        kill_process_group(Pid::from_child(stopped), Signal::CONT).unwrap();
        assert!(ended.success() && stopped.wait().unwrap().success(), "{ended}");
    });
}

#[test]
fn a_device_that_is_lost_is_linked_no_more() {
    let node = |rank, machine: &Machine, fake: &Fake| {
        if rank == 0 {
            machine.publish("rows", &rows(machine, "fbm")).unwrap();
            machine.publish("other", &rows(machine, "fbm1")).unwrap();
            machine.barrier(PATIENCE).unwrap();
            fake.fail(0, 719, true);
            machine.barrier(PATIENCE).unwrap();
            machine.barrier(PATIENCE).unwrap();
            return;
        }
        let [there, other] = ["node0/rows", "node0/other"].map(|name| found(machine, name));
        let here = machine.empty(array("yx"), "fbm").unwrap();
        copy(machine, &there, &here);
        machine.barrier(PATIENCE).unwrap();
        machine.barrier(PATIENCE).unwrap();
        let error = try_copy(machine, &there, &here).unwrap_err();
        assert!(error.to_string().contains("719"), "{error}");
        assert!(comes(|| machine.plan(&there, &here, &Options::default()).is_err()));
        copy(machine, &other, &here);
        assert!(is_noise(machine, &here));
        assert_eq!(path(machine, &other, &here)[1], "node1.fbm_reg");
        machine.barrier(PATIENCE).unwrap();
    };
    nodes("a_device_that_is_lost_is_linked_no_more", node, end_well);
}

#[test]
fn who_comes_as_a_node_closes_is_not_waited_for() {
    let test = "who_comes_as_a_node_closes_is_not_waited_for";
    let Some(fake) = Fake::load() else { return println!("skipped: {test}") };
    // Where files say what others can't hear of who has not joined, or has left.
    const SIGNS: &str = "ISOMETRY_TEST_SIGNS";
    if env::var_os(NODE).is_none() {
        let (job, dir) = (Job::new(2).unwrap(), tempfile::tempdir().unwrap());
        let signs = (SIGNS, dir.path().to_str().unwrap().to_owned());
        let capacity = ("ISOMETRY_CAPACITY", "3".to_owned());
        let founder =
            |rank| [&job.variables(rank)[..], &[signs.clone(), capacity.clone()]].concat();
        // Who comes later has no rank yet.
        let mut later = founder(0);
        later.retain(|(name, _)| ["ISOMETRY_ROOT", "ISOMETRY_KEY", SIGNS].contains(name));
        return end_well(&mut [founder(0), founder(1), later].map(|of| start(test, &of)));
    }
    let sign = |name| PathBuf::from(env::var_os(SIGNS).unwrap()).join(name);
    match env::var("ISOMETRY_RANK").as_deref() {
        Ok("0") => {
            let machine = join(&fake);
            machine.publish("there", &machine.empty(array("yx"), "fbm").unwrap()).unwrap();
            found(&machine, "node1/opened");
            fs::write(sign("met"), "").unwrap();
            assert!(comes(|| machine.size() == 3));
            machine.close_now();
            drop(machine);
            assert_eq!(fake.live(), 0, "who has heard of nothing has nothing open");
            fs::write(sign("closed"), "").unwrap();
        }
        Ok(_) => {
            let machine = join(&fake);
            let here = rows(&machine, "fbm");
            copy(&machine, &here, &found(&machine, "node0/there"));
            machine.publish("opened", &rows(&machine, "sys")).unwrap();
            copy(&machine, &found(&machine, "node2/there"), &here);
        }
        Err(_) => {
            assert!(comes(|| sign("met").exists()));
            // It has joined the others, and says what it is once its device goes on.
            fake.hold(0, true);
            let machine = thread::scope(|scope| {
                let joining = scope.spawn(|| join(&fake));
                assert!(comes(|| sign("closed").exists()));
                fake.hold(0, false);
                joining.join().unwrap()
            });
            machine.publish("there", &rows(&machine, "fbm")).unwrap();
            let gone = machine.lookup("node1/never", PATIENCE).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::PeerLost, "{gone}");
        }
    }
}
