//! A machine whose accelerators have nothing to do uses no processor: its threads sleep, and nothing wakes
//! them. Devices of OpenCL are the processor, by PoCL; those of CUDA are emulated, or the system's where that
//! is asked for. Alone in its process: the threads of others would count.

use fake_cuda::Fake;
use isometry::model::{Memory, MemoryKind};
use isometry::{Accelerators, Array, CopyOptions, Cuda, FileOptions, Machine, MachineBuilder};
use rustix::thread::gettid;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How long nothing is asked of a machine, and how much of that threads of drivers may run.
const IDLE: Duration = Duration::from_millis(500);
const MOST_BUSY: Duration = Duration::from_millis(5);

/// What the names of a machine's threads begin with.
const OURS: &str = "isometry-";

/// After so long whoever was busy with the last copy has gone to sleep.
const SETTLED: Duration = Duration::from_millis(200);

/// What a thread has done so far: how long it ran, and how often it went to sleep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Work {
    name: String,
    ran: Duration,
    slept: u64,
}

/// The work of each thread of this process, by its number.
fn work() -> BTreeMap<String, Work> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let paths = tasks.map(|task| task.unwrap().path());
    let number = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    paths.filter_map(|path| Some((number(&path)?, of_thread(&path)?))).collect()
}

/// `None` where the thread has just ended.
fn of_thread(task: &Path) -> Option<Work> {
    let read = |name| fs::read_to_string(task.join(name)).ok();
    let ran_ns = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
    let status = read("status")?;
    let slept = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
    let name = read("comm")?.trim().to_owned();
    Some(Work { name, ran: Duration::from_nanos(ran_ns), slept: slept.trim().parse().ok()? })
}

/// What other threads do while this one sleeps: those that do anything.
fn done_while_idle() -> Vec<Work> {
    thread::sleep(SETTLED);
    let before = work();
    thread::sleep(IDLE);
    let this = gettid().as_raw_nonzero().to_string();
    let others = work().into_iter().filter(|(thread, _)| *thread != this);
    let since = |(thread, after): (String, Work)| {
        let before = before.get(&thread).cloned().unwrap_or_default();
        Work { ran: after.ran - before.ran, slept: after.slept - before.slept, ..after }
    };
    others.map(since).filter(|work| work.slept > 0 || !work.ran.is_zero()).collect()
}

/// Every channel of the machine has had something to do.
fn use_all(machine: &Machine, dir: &Path) {
    let rows = Array::of(&[("y", 700), ("x", 500)], "<f4").unwrap();
    let columns = rows.clone().laid_out("<F, y, x>").unwrap();
    let file = dir.join("rows.npy");
    let file = machine.create_file(&file, rows.clone(), &FileOptions::default()).unwrap();
    let memories = ["sys", "fbm", "zcm", "fbm", "sys"];
    let mut last = machine.empty(rows.clone(), "sys").unwrap();
    for (step, memory) in memories.into_iter().enumerate() {
        let array = if step % 2 == 0 { &columns } else { &rows };
        let next = machine.empty(array.clone(), memory).unwrap();
        machine.copy(&last, &next, &CopyOptions::default()).unwrap().wait(None).unwrap();
        last = next;
    }
    machine.copy(&last, &file, &CopyOptions::default()).unwrap().wait(None).unwrap();
}

fn sleeps(api: &str, builder: MachineBuilder) {
    let machine = builder.lanes(2).staging(2 << 20).assume(true).open().unwrap();
    let is_fbm = |memory: &Memory| memory.kind == MemoryKind::Fbm;
    if !machine.topology().classes[0].memories.iter().any(is_fbm) {
        return println!("skipped: an_idle_machine_sleeps: no device of {api}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert_idle(api);
    use_all(&machine, dir.path());
    assert_idle(api);
}

/// Our threads do nothing at all, and a driver's next to nothing.
fn assert_idle(api: &str) {
    let done = done_while_idle();
    let ours: Vec<_> = done.iter().filter(|work| work.name.starts_with(OURS)).collect();
    assert!(ours.is_empty(), "{api}: {ours:?}");
    let ran: Duration = done.iter().map(|work| work.ran).sum();
    assert!(ran <= MOST_BUSY, "{api}: {ran:?} of {IDLE:?}, {done:?}");
    assert!(work().values().any(|work| work.name.starts_with(OURS)), "there are threads");
}

#[test]
fn an_idle_machine_sleeps() {
    let none = || Machine::builder().accelerators(Accelerators::None).cuda(Cuda::None);
    sleeps("OpenCL", none().accelerators(Accelerators::All));
    let fake = Fake::load();
    let driver = fake.as_ref().map_or(Cuda::All, |fake| Cuda::Driver(fake.path().to_owned()));
    sleeps("CUDA", none().cuda(driver));
}
