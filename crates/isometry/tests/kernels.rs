//! When the kernels of devices are compiled. A program of its own, since it counts what the whole process
//! logs.

use isometry::{Accelerators, Array, CopyOptions, Cuda, Machine};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the compilations that are told.
struct Counter(AtomicUsize);

impl log::Log for Counter {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().starts_with("compiled kernels for OpenCL device") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

static COUNTER: Counter = Counter(AtomicUsize::new(0));

fn compiled() -> usize {
    COUNTER.0.load(Ordering::Relaxed)
}

/// Turns an array in the memory of a device.
fn turn(machine: &Machine) {
    let rows = Array::of(&[("y", 1201), ("x", 701)], "<f4").unwrap();
    let columns = rows.clone().laid_out("<F, y, x>").unwrap();
    let bytes: Vec<u8> = (0..4 * 1201 * 701).map(|i: u32| (i ^ i >> 9) as u8).collect();
    let copy = |src, dst| {
        machine.copy(src, dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    };
    let [from, here, back] = ["sys", "fbm", "sys"].map(|m| machine.empty(rows.clone(), m).unwrap());
    from.fill(&bytes).unwrap();
    copy(&from, &here);
    let turned = machine.empty(columns, "fbm").unwrap();
    copy(&here, &turned);
    copy(&turned, &back);
    assert!(back.to_vec().unwrap() == bytes);
}

#[test]
fn a_machine_whose_devices_are_known_compiles_nothing_before_it_converts() {
    log::set_logger(&COUNTER).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let dir = tempfile::tempdir().unwrap();
    let builder = || {
        let builder = Machine::builder().lanes(1).staging(8 << 20).cuda(Cuda::None);
        builder.accelerators(Accelerators::All).cache_dir(dir.path())
    };
    let first = builder().open().unwrap();
    if first.topology().memory_named("fbm").is_none() {
        return println!("skipped: there is no device of OpenCL");
    }
    assert_ne!(compiled(), 0, "their kernels were measured");
    let before = compiled();
    let _second = builder().open().unwrap();
    assert_eq!(compiled(), before, "what was measured is kept");
    // By what is assumed a device converts what it has, whatever else this processor does.
    let assumed = builder().assume(true).open().unwrap();
    assert_eq!(compiled(), before, "nothing is measured");
    turn(&assumed);
    assert_eq!(compiled(), before + 1);
    turn(&assumed);
    assert_eq!(compiled(), before + 1, "they are there");
}
