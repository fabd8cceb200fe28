//! Many threads on one machine at once: what is submitted ends, whatever else happens.

use isometry::{Array, CopyOptions, Error, Event, Instance, Machine};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const THREADS: u64 = 4;
const ROUNDS: u64 = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

struct Pair {
    src: Instance,
    dst: Instance,
    file: Instance,
}

impl Pair {
    /// Arrays of a thread's own, from a few bytes to a few hundred kilobytes.
    fn new(machine: &Machine, dir: &std::path::Path, (name, side): (String, u64)) -> Self {
        let array = Array::of(&[("y", side), ("x", side)], "<u2").unwrap();
        let src = machine.empty(array.clone(), "sys").unwrap();
        let bytes = src.host_span().unwrap().len_bytes();
        src.fill(&(0..bytes).map(|i| (i % 251) as u8).collect::<Vec<_>>()).unwrap();
        let turned = array.laid_out("xy").unwrap();
        let dst = machine.empty(turned.clone(), "sys").unwrap();
        let file = machine.create_file(dir.join(name), turned, &Default::default()).unwrap();
        Pair { src, dst, file }
    }

    fn is_turned(&self, side: u64) -> bool {
        let (a, b) = (self.src.to_vec().unwrap(), self.dst.to_vec().unwrap());
        let side = side as usize;
        (0..side * side).all(|i| {
            let j = (i % side) * side + i / side;
            a[2 * i..2 * i + 2] == b[2 * j..2 * j + 2]
        })
    }
}

/// One thread's copies, each followed by something that its user may do.
fn work(machine: &Machine, dir: &std::path::Path, seed: u64, ended: &Arc<AtomicUsize>) -> u64 {
    let mut random = Random(seed);
    let mut submitted = 0;
    let mut last: Option<Event> = None;
    for round in 0..ROUNDS {
        let side = [3, 40, 300][random.below(3) as usize];
        let pair = Pair::new(machine, dir, (format!("{seed}-{round}.npy"), side));
        let target = if random.below(4) == 0 { &pair.file } else { &pair.dst };
        let options = CopyOptions {
            priority: random.below(3) as i32,
            after: last.take().filter(|_| random.below(2) == 0).into_iter().collect(),
            ..CopyOptions::default()
        };
        let event = machine.copy(&pair.src, target, &options).unwrap();
        submitted += 1;
        let ended = Arc::clone(ended);
        event.on_done(move |_| {
            ended.fetch_add(1, Ordering::Relaxed);
        });
        match random.below(4) {
            0 => event.cancel(),
            1 => drop(event),
            2 => last = Some(event),
            _ => match event.wait(Some(Duration::from_secs(60))) {
                Ok(()) if std::ptr::eq(target, &pair.dst) => assert!(pair.is_turned(side)),
                Ok(()) => {}
                // What it waited for was cancelled.
                Err(Error::Transfer { .. }) => assert!(!options.after.is_empty()),
                Err(error) => panic!("{error}"),
            },
        }
    }
    submitted
}

#[test]
fn everything_that_is_submitted_ends() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::builder().assume(true).lanes(2).staging(1 << 20).open().unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let submitted: u64 = std::thread::scope(|scope| {
        let one = |seed| {
            let (machine, dir, ended) = (&machine, dir.path(), &ended);
            scope.spawn(move || work(machine, dir, seed, ended))
        };
        let threads: Vec<_> = (1..=THREADS).map(one).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    machine.close();
    assert_eq!(ended.load(Ordering::Relaxed) as u64, submitted);
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

#[test]
fn no_request_ends_before_it_began() {
    let machine = Machine::builder().assume(true).lanes(1).trace(true).open().unwrap();
    let copies = || {
        let array = || Array::of(&[("x", 256 << 10)], "|u1").unwrap();
        let (src, dst) = (machine.empty(array(), "sys").unwrap(), machine.empty(array(), "sys"));
        let dst = dst.unwrap();
        for _ in 0..2000 {
            machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
        }
    };
    std::thread::scope(|threads| (0..THREADS).for_each(|_| drop(threads.spawn(copies))));
    let trace = machine.trace_json().unwrap();
    let times = trace["traceEvents"].as_array().unwrap().iter().filter_map(|e| e["dur"].as_f64());
    let times: Vec<_> = times.collect();
    let negative = times.iter().filter(|&&time| time < 0.0).count();
    assert_eq!((negative, times.len()), (0, 8000));
}
