//! Copies inside host memory, against a naive model.

use isometry::engine::{Fifo, Policy, Rank, Standing};
use isometry::model::{ChannelKind, Dim, FieldSpace, IndexSpace, Outcome, Priority};
use isometry::{
    ArgumentError, Array, CopyOptions, Error, ErrorKind, FileOptions, Foreign, Instance, Machine,
    Mismatch,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn machine() -> Machine {
    Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap()
}

fn array(dims: &[(&str, u64)], dtype: &str, layout: &str) -> Array {
    Array::of(dims, dtype).unwrap().laid_out(layout).unwrap()
}

/// Bytes that differ from their neighbours and from most others.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn filled(machine: &Machine, array: Array) -> Instance {
    let instance = machine.empty(array, "sys").unwrap();
    instance.fill(&noise(instance.host_span().unwrap().len_bytes())).unwrap();
    instance
}

/// The value at `index` of `field`, by CONTRACTS.md's formula.
fn value(instance: &Instance, bytes: &[u8], index: &[i64], field: usize) -> Vec<u8> {
    let array = instance.array();
    let place =
        isometry::layout::Placement::of_layout(&array.layout, &array.space, &array.fields).unwrap();
    let at = usize::try_from(place.address(index, field)).unwrap();
    bytes[at..at + array.fields.fields()[field].bytes as usize].to_vec()
}

fn indices(space: &IndexSpace) -> Vec<Vec<i64>> {
    space.dims().iter().fold(vec![vec![]], |all, dim| {
        let longer = |index: &Vec<i64>| {
            (dim.lo..dim.hi).map(|i| index.iter().copied().chain([i]).collect()).collect::<Vec<_>>()
        };
        all.iter().flat_map(longer).collect()
    })
}

#[test]
fn every_layout_becomes_every_other() {
    let machine = machine();
    let dims = [("y", 5), ("x", 7), ("z", 3)];
    let dtype = "[('a', '<u2'), ('', '|V2'), ('b', '<f4'), ('c', '|u1')]";
    let layouts = [
        "<F, z, x, y>",
        "<F, y, x, z>",
        "<x, F, y, z>",
        "<z, y, x, F>",
        "<x_in=4, F, x_out, y, z>",
        "<y_in=2, x_in=3, F, y_out, z, x_out>",
        "<x_in=2, x_in2=2, z, F, y, x_out>",
    ];
    for from in layouts {
        let src = filled(&machine, array(&dims, dtype, from));
        let bytes = src.to_vec().unwrap();
        for to in layouts {
            let dst = machine.empty(array(&dims, dtype, to), "sys").unwrap();
            machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
            let copied = dst.to_vec().unwrap();
            for index in indices(src.space()) {
                for field in 0..3 {
                    let (a, b) =
                        (value(&src, &bytes, &index, field), value(&dst, &copied, &index, field));
                    assert_eq!(a, b, "{from} to {to} at {index:?}, field {field}");
                }
            }
        }
    }
}

#[test]
fn a_large_copy_goes_through_the_engine() {
    let machine = machine();
    let (rows, columns) = (700, 900);
    let src = filled(&machine, array(&[("y", rows), ("x", columns)], "<f4", "yx"));
    let dst = machine.empty(array(&[("y", rows), ("x", columns)], "<f4", "xy"), "sys").unwrap();
    let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    event.wait(Some(Duration::from_secs(20))).unwrap();
    let (a, b) = (src.to_vec().unwrap(), dst.to_vec().unwrap());
    for (y, x) in [(0, 0), (1, 0), (0, 1), (699, 899), (123, 456)] {
        let (i, j) = ((y * 900 + x) * 4, (x * 700 + y) * 4);
        assert_eq!(a[i..i + 4], b[j..j + 4]);
    }
    let total = rows * columns * 4;
    assert_eq!(event.progress(), (total, total));
    let report = &event.report()[0];
    assert_eq!((report.bytes(), report.times.hops.len()), (total, report.plan.hops.len()));
    assert!(report.times.hops.iter().all(|hop| hop.requests > 0));
}

#[test]
fn a_small_copy_is_done_at_once_and_counts_all_the_same() {
    let machine = machine();
    let src = filled(&machine, array(&[("y", 4), ("x", 6)], "<f4", "yx"));
    let dst = machine.empty(src.array().laid_out("xy").unwrap(), "sys").unwrap();
    let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    assert!(event.is_done() && matches!(event.clone().outcome(), Some(Ok(()))));
    assert_eq!(event.progress(), (96, 96));
    let reports = event.report();
    assert_eq!((reports.len(), &reports[0].outcome), (1, &Some(Outcome::Done)));
    let hop = &reports[0].times.hops[0];
    assert_eq!((reports[0].bytes(), hop.requests, hop.busy), (96, 1, reports[0].times.running));
    assert_eq!([hop.from, hop.to], [src.memory(), dst.memory()]);
}

#[test]
fn boxes_move_to_other_places_and_leave_the_rest() {
    let machine = machine();
    let src = filled(&machine, array(&[("n", 4), ("h", 6)], "|u1", "nh"));
    let dst = machine.empty(array(&[("h", 8), ("n", 5)], "|u1", "hn"), "sys").unwrap();
    dst.fill(&[0xee; 40]).unwrap();
    let from = src.select(&[("n", 1..3), ("h", 2..6)]).unwrap();
    let to = dst.select(&[("n", 3..5), ("h", 1..5)]).unwrap();
    machine.copy(&from, &to, &CopyOptions::default()).unwrap().wait(None).unwrap();
    let (a, b) = (src.to_vec().unwrap(), dst.to_vec().unwrap());
    for h in 0..8 {
        for n in 0..5 {
            let inside = n >= 3 && (1..5).contains(&h);
            let expected = if inside { a[(n - 2) * 6 + h + 1] } else { 0xee };
            assert_eq!(b[h * 5 + n], expected, "h {h}, n {n}");
        }
    }
}

#[test]
fn pages_are_taken_in_any_order() {
    let machine = machine();
    let pool = filled(&machine, array(&[("page", 16), ("x", 5)], "<u2", "page,x"));
    let dst = machine.empty(array(&[("page", 4), ("x", 5)], "<u2", "page,x"), "sys").unwrap();
    let pages = pool.take("page", &[7, 3, 9, 3]).unwrap();
    machine.copy(&pages, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    let (a, b) = (pool.to_vec().unwrap(), dst.to_vec().unwrap());
    for (i, page) in [7, 3, 9, 3].into_iter().enumerate() {
        assert_eq!(b[i * 10..(i + 1) * 10], a[page * 10..(page + 1) * 10]);
    }
    let back = pool.take("page", &[1, 2, 0, 2]).unwrap();
    let error = machine.copy(&dst, &back, &CopyOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Argument(ArgumentError::Destination(_))), "{error}");
}

#[test]
fn wrapped_arrays_of_any_strides() {
    let machine = machine();
    let space = IndexSpace::of(&[("y", 3), ("x", 4)]).unwrap();
    let fields = FieldSpace::packed(&[1]).unwrap();
    // SAFETY: the vector below lives in its owner; twelve bytes are reached, backwards from 11.
    let backwards = unsafe {
        let bytes = std::sync::Arc::new(noise(12));
        let last = std::ptr::NonNull::new(bytes.as_ptr().cast_mut().add(11)).unwrap();
        Foreign::new(last, vec![-4, -1], false, bytes)
    };
    let src = machine.wrap(space.clone(), fields.clone(), backwards).unwrap();
    let dst = machine.empty(Array::new(space.clone(), fields.clone()), "sys").unwrap();
    machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    let expected: Vec<u8> = noise(12).into_iter().rev().collect();
    assert_eq!(dst.to_vec().unwrap(), expected);
    let one =
        machine.wrap(space.clone(), fields.clone(), Foreign::of_static(b"a", vec![0, 0])).unwrap();
    machine.copy(&one, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    assert_eq!(dst.to_vec().unwrap(), [b'a'; 12]);
    let to_one =
        machine.wrap(space.clone(), fields.clone(), Foreign::of_vec(vec![0], vec![0, 0])).unwrap();
    let error = machine.copy(&dst, &to_one, &CopyOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let error = machine.copy(&dst, &one, &CopyOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Argument(ArgumentError::ReadOnly)));
    let error = machine.wrap(space, fields, Foreign::of_vec(vec![0; 11], vec![4, 1])).unwrap_err();
    assert!(matches!(error, Error::Argument(ArgumentError::Outside)));
}

#[test]
fn what_holds_the_same_is_told_in_any_order_of_entries() {
    let machine = machine();
    let src = filled(&machine, array(&[("y", 700), ("x", 900)], "<f4", "yx"));
    let dst = machine.empty(array(&[("x", 1000), ("y", 700)], "<f4", "xy"), "sys").unwrap();
    let pages: Vec<i64> = (0..700).rev().collect();
    let (from, to) = (src.take("y", &pages).unwrap(), dst.select(&[("x", 50..950)]).unwrap());
    machine.copy(&from, &to, &CopyOptions::default()).unwrap().wait(None).unwrap();
    machine.verify(&from, &to).unwrap();
    machine.verify(&to, &from).unwrap();
    let error = machine.verify(&src, &to).unwrap_err();
    assert_eq!(error.to_string(), "the two differ in y 0..700, x 0..900");
    let other = self::machine();
    let theirs = machine.verify(&src, &filled(&other, src.array()));
    assert!(matches!(theirs, Err(Error::Argument(ArgumentError::OtherMachine))));
    let narrow = dst.select(&[("x", 0..899)]).unwrap();
    assert!(matches!(machine.verify(&src, &narrow), Err(Error::Mismatch(Mismatch::Extent { .. }))));
    let none = machine.empty(array(&[("y", 0), ("x", 3)], "<f4", "yx"), "sys").unwrap();
    machine.verify(&none, &none).unwrap();
    let wrong = filled(&machine, array(&[("y", 700), ("x", 900)], "<i4", "yx"));
    assert!(matches!(machine.verify(&src, &wrong), Err(Error::Mismatch(Mismatch::Type { .. }))));
    // More indices than are told at once.
    let long = filled(&machine, array(&[("x", 300_000)], "|u1", "x"));
    let back = long.take("x", &(0..300_000).rev().collect::<Vec<_>>()).unwrap();
    let turned = machine.empty(long.array(), "sys").unwrap();
    machine.copy(&back, &turned, &CopyOptions::default()).unwrap().wait(None).unwrap();
    machine.verify(&back, &turned).unwrap();
    let mut bytes = turned.to_vec().unwrap();
    bytes[299_000] ^= 1;
    turned.fill(&bytes).unwrap();
    let error = machine.verify(&back, &turned).unwrap_err();
    assert_eq!(error.to_string(), "the two differ in x 262144..300000");
    machine.close();
    assert!(matches!(machine.verify(&src, &src), Err(Error::Closed)));
}

#[test]
fn what_differs_is_said() {
    let machine = machine();
    let src = filled(&machine, array(&[("y", 4), ("x", 4)], "<f4", "yx"));
    let refused = |dims: &[(&str, u64)], dtype: &str| {
        let dst = machine.empty(Array::of(dims, dtype).unwrap(), "sys").unwrap();
        match machine.copy(&src, &dst, &CopyOptions::default()).unwrap_err() {
            Error::Mismatch(mismatch) => mismatch,
            error => panic!("{error}"),
        }
    };
    assert!(matches!(refused(&[("y", 4), ("z", 4)], "<f4"), Mismatch::Dim { .. }));
    assert!(matches!(refused(&[("y", 4)], "<f4"), Mismatch::Dim { name } if name == "x"));
    assert!(matches!(
        refused(&[("y", 4), ("x", 5)], "<f4"),
        Mismatch::Extent { src: 4, dst: 5, .. }
    ));
    assert!(matches!(refused(&[("y", 4), ("x", 4)], "<f8"), Mismatch::Type { .. }));
    assert!(matches!(refused(&[("y", 4), ("x", 4)], "<i4"), Mismatch::Type { .. }));
    assert!(matches!(
        refused(&[("y", 4), ("x", 4)], "[('a', '<f4'), ('b', '<f4')]"),
        Mismatch::Field { .. }
    ));
    let opaque = machine.empty(Array::of(&[("y", 4), ("x", 4)], "|V4").unwrap(), "sys").unwrap();
    machine.copy(&src, &opaque, &CopyOptions::default()).unwrap().wait(None).unwrap();
}

#[test]
fn a_destination_may_not_overlap_its_source() {
    let machine = machine();
    let whole = filled(&machine, array(&[("y", 8), ("x", 8)], "|u1", "yx"));
    let part = |y: std::ops::Range<i64>, x: std::ops::Range<i64>| {
        whole.select(&[("y", y), ("x", x)]).unwrap()
    };
    let copy = |a: &Instance, b: &Instance| machine.copy(a, b, &CopyOptions::default()).map(drop);
    assert!(matches!(
        copy(&part(0..5, 0..8), &part(3..8, 0..8)),
        Err(Error::Argument(ArgumentError::Overlap))
    ));
    copy(&part(0..8, 0..4), &part(0..8, 4..8)).unwrap();
    copy(&part(0..4, 0..8), &part(4..8, 0..8)).unwrap();
    let bytes = whole.to_vec().unwrap();
    assert_eq!(bytes[0..4], bytes[36..40]);
    // Even and odd columns of one array, wrapped apart.
    let owner = std::sync::Arc::new(std::sync::Mutex::new(vec![0u8; 16]));
    let first = std::ptr::NonNull::new(owner.lock().unwrap().as_mut_ptr()).unwrap();
    let space = || IndexSpace::of(&[("i", 8)]).unwrap();
    let fields = || FieldSpace::packed(&[1]).unwrap();
    let wrap = |offset: usize, writable: bool| {
        // SAFETY: eight bytes two apart from offset 0 or 1 lie in the sixteen of the owner.
        let foreign = unsafe { Foreign::new(first.add(offset), vec![2], writable, owner.clone()) };
        machine.wrap(space(), fields(), foreign).unwrap()
    };
    copy(&wrap(0, false), &wrap(1, true)).unwrap();
    assert!(copy(&wrap(0, false), &wrap(0, true)).is_err());
    // Columns of one matrix, wrapped apart.
    let columns = |from: usize, writable: bool| {
        let space = IndexSpace::of(&[("y", 4), ("x", 2)]).unwrap();
        // SAFETY: two bytes from each of four rows of four lie in the sixteen of the owner.
        let foreign = unsafe { Foreign::new(first.add(from), vec![4, 1], writable, owner.clone()) };
        machine.wrap(space, fields(), foreign).unwrap()
    };
    copy(&columns(0, false), &columns(2, true)).unwrap();
    assert!(copy(&columns(0, false), &columns(1, true)).is_err());
}

#[test]
fn events_tell_their_end_in_every_way() {
    let machine = machine();
    let src = filled(&machine, array(&[("y", 512), ("x", 512)], "<f4", "yx"));
    let dst = machine.empty(array(&[("y", 512), ("x", 512)], "<f4", "xy"), "sys").unwrap();
    let event = machine.copy(&src, &dst, &CopyOptions::with_priority(3)).unwrap();
    let (sender, receiver) = mpsc::channel();
    // What is told first is there when the second has been told.
    event.notify(77);
    event.on_done(move |outcome| sender.send(outcome.is_ok()).unwrap());
    event.wait(None).unwrap();
    assert!(receiver.recv().unwrap() && event.is_done());
    assert!(matches!(event.outcome(), Some(Ok(()))));
    // A waiter may wake before the last callback has run: a loop sleeps on the descriptor.
    let fd = machine.finished_fd();
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
    let mut tokens = Vec::new();
    machine.take_finished(&mut tokens);
    assert_eq!(tokens, [77]);
    event.notify(78);
    machine.take_finished(&mut tokens);
    assert_eq!(tokens, [77, 78]);
    // A loop that has taken all sleeps again.
    let still = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&AT_ONCE));
    assert_eq!(still, Ok(0));
    block_on(event.clone()).unwrap();
    event.cancel();
    assert!(matches!(event.outcome(), Some(Ok(()))), "an event that has ended stays as it is");
    assert_eq!(Priority(3), Priority(CopyOptions::with_priority(3).priority));
}

/// Runs a future on this thread.
fn block_on(event: isometry::Event) -> Result<(), Error> {
    struct Parked(std::thread::Thread);
    impl std::task::Wake for Parked {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Parked(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut event = std::pin::pin!(event);
    loop {
        match event.as_mut().poll(&mut context) {
            std::task::Poll::Ready(outcome) => return outcome,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_copy_waits_for_others_and_fails_with_them() {
    let machine = machine();
    let other = self::machine();
    let dims = [("y", 600), ("x", 600)];
    let on = |m: &Machine, layout| m.empty(array(&dims, "<f4", layout), "sys").unwrap();
    let (a, b, c) =
        (filled(&machine, array(&dims, "<f4", "yx")), on(&machine, "xy"), on(&machine, "yx"));
    let first = machine.copy(&a, &b, &CopyOptions::default()).unwrap();
    let then = CopyOptions { after: vec![first.clone()], ..CopyOptions::default() };
    let second = machine.copy(&b, &c, &then).unwrap();
    second.wait(None).unwrap();
    assert!(first.is_done());
    assert_eq!(a.to_vec().unwrap(), c.to_vec().unwrap());
    let (d, e) = (on(&other, "yx"), on(&other, "xy"));
    let across = CopyOptions { after: vec![second, first], ..CopyOptions::default() };
    other.copy(&d, &e, &across).unwrap().wait(None).unwrap();
    let late = CopyOptions { deadline: Some(Duration::ZERO), ..CopyOptions::default() };
    let failed = machine.copy(&a, &b, &late).unwrap();
    assert!(matches!(failed.wait(None), Err(Error::TimedOut)) && failed.is_done());
    let after = CopyOptions { after: vec![failed], ..CopyOptions::default() };
    let error = machine.copy(&a, &b, &after).unwrap().wait(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transfer, "{error}");
    let error = machine.copy(&a, &d, &CopyOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Argument(ArgumentError::OtherMachine)));
}

#[test]
fn copies_wait_for_another_machine_without_a_thread_each() {
    let (machine, other) = (machine(), self::machine());
    let dims = [("y", 6000), ("x", 6000)];
    let on = |m: &Machine, layout| m.empty(array(&dims, "|u1", layout), "sys").unwrap();
    let (a, b) = (on(&machine, "yx"), on(&machine, "xy"));
    let small = other.empty(array(&[("x", 4)], "|u1", "x"), "sys").unwrap();
    let (from, to) =
        (&small.select(&[("x", 0..2)]).unwrap(), &small.select(&[("x", 2..4)]).unwrap());
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    for cancels in [false, true] {
        let first = machine.copy(&a, &b, &CopyOptions::default()).unwrap();
        let before = threads();
        let after = CopyOptions { after: vec![first.clone()], ..CopyOptions::default() };
        let waiting: Vec<_> = (0..500).map(|_| other.copy(from, to, &after).unwrap()).collect();
        assert!(threads() < before + 250, "others of this file start some too");
        if cancels {
            first.cancel();
        }
        let ends_well = first.wait(None).is_ok();
        assert!(waiting.iter().all(|event| event.wait(None).is_ok() == ends_well));
    }
}

#[test]
fn threads_that_fill_and_read_one_array_see_it_whole() {
    let machine = machine();
    let array = &machine.empty(array(&[("x", 1 << 16)], "|u1", "x"), "sys").unwrap();
    std::thread::scope(|threads| {
        for byte in [1u8, 2] {
            threads.spawn(move || {
                let whole = vec![byte; 1 << 16];
                (0..100).for_each(|_| array.fill(&whole).unwrap());
            });
        }
        for _ in 0..100 {
            let seen = array.to_vec().unwrap();
            assert!(seen.iter().all(|b| *b == seen[0]), "half of one, half of another");
        }
    });
}

#[test]
fn what_never_started_says_why_in_its_report() {
    let machine = machine();
    let whole = array(&[("y", 2048), ("x", 1024)], "|u1", "yx");
    let (src, dst) = (filled(&machine, whole.clone()), machine.empty(whole, "sys").unwrap());
    let deadline = Some(Duration::ZERO);
    let options = CopyOptions { deadline, ..CopyOptions::default() };
    let first = machine.copy(&src, &dst, &options).unwrap();
    assert!(first.wait(None).is_err());
    let options = CopyOptions { after: vec![first], ..CopyOptions::default() };
    let event = machine.copy(&src, &dst, &options).unwrap();
    let Err(Error::Transfer { error, .. }) = event.wait(None) else { panic!("it went well") };
    assert_eq!(event.report()[0].outcome, Some(Outcome::Failed(error)));
}

#[test]
fn many_copies_have_one_event() {
    let machine = machine();
    let dims = [("y", 300), ("x", 300)];
    let sources: Vec<_> = (0..3).map(|_| filled(&machine, array(&dims, "<f4", "yx"))).collect();
    let targets: Vec<_> =
        (0..3).map(|_| machine.empty(array(&dims, "<f4", "xy"), "sys").unwrap()).collect();
    let pairs: Vec<_> = sources.iter().zip(&targets).collect();
    let event = machine.copy_many(&pairs, &CopyOptions::default()).unwrap();
    event.wait(None).unwrap();
    assert_eq!((event.report().len(), event.progress()), (3, (1_080_000, 1_080_000)));
    assert_eq!(targets[0].to_vec().unwrap(), targets[2].to_vec().unwrap());
    machine.copy_many(&[], &CopyOptions::default()).unwrap().wait(None).unwrap();
}

#[test]
fn progress_stays_where_a_copy_was_cancelled() {
    let machine = machine();
    let src = filled(&machine, array(&[("y", 4096), ("x", 4096)], "<f4", "yx"));
    let dst = machine.empty(src.array().laid_out("xy").unwrap(), "sys").unwrap();
    let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    while event.progress().0 == 0 {
        std::thread::yield_now();
    }
    let before = event.progress().0;
    event.cancel();
    assert!(event.progress().0 >= before && before > 0);
}

#[test]
fn a_closed_machine_says_so_and_drains() {
    let machine = machine();
    let dims = [("y", 1024), ("x", 1024)];
    let src = filled(&machine, array(&dims, "<f4", "yx"));
    let dst = machine.empty(array(&dims, "<f4", "xy"), "sys").unwrap();
    let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    machine.close();
    assert!(event.is_done());
    event.wait(None).unwrap();
    assert!(matches!(machine.copy(&src, &dst, &CopyOptions::default()), Err(Error::Closed)));
    drop(machine);
    assert_eq!(src.to_vec().unwrap().len(), 4 << 20);
}

#[test]
fn closing_at_once_cancels() {
    let machine = machine();
    let dims = [("y", 2048), ("x", 2048)];
    let src = filled(&machine, array(&dims, "<f4", "yx"));
    let dst = machine.empty(array(&dims, "<f4", "xy"), "sys").unwrap();
    let events: Vec<_> =
        (0..4).map(|_| machine.copy(&src, &dst, &CopyOptions::default()).unwrap()).collect();
    machine.close_now();
    assert!(events.iter().all(isometry::Event::is_done));
    let last = events.last().unwrap();
    assert!(matches!(last.wait(None), Err(Error::Cancelled)), "{last:?}");
}

#[test]
fn plans_explain_themselves() {
    let machine = machine();
    let dims = [("y", 64), ("x", 64)];
    let src = machine.empty(array(&dims, "<f4", "yx"), "sys").unwrap();
    let dst = machine.empty(array(&dims, "<f4", "xy"), "sys").unwrap();
    let options = isometry::planner::Options::default();
    let planned = machine.plan(&src, &dst, &options).unwrap();
    assert!(!planned.cached && machine.plan(&src, &dst, &options).unwrap().cached);
    let json = planned.to_json();
    assert_eq!(json["memories"][0], "sys");
    assert_eq!(json["layouts"][0], "<F, x, y>");
    assert!(json["hops"][0]["channel"] == "Memcpy" && json["plan_ns"].is_u64());
    assert!(!planned.explain().is_empty());
}

#[test]
fn empty_arrays_are_copied_at_once() {
    let machine = machine();
    let dims = [("y", 0), ("x", 4)];
    let a = machine.empty(array(&dims, "<f4", "yx"), "sys").unwrap();
    let b = machine.empty(array(&dims, "<f4", "xy"), "sys").unwrap();
    machine.copy(&a, &b, &CopyOptions::default()).unwrap().wait(None).unwrap();
    assert!(b.to_vec().unwrap().is_empty());
}

#[test]
fn a_trace_has_tracks_and_counters() {
    let machine = Machine::builder().assume(true).lanes(1).trace(true).open().unwrap();
    let dims = [("y", 512), ("x", 512)];
    let src = filled(&machine, array(&dims, "<f4", "yx"));
    let dst = machine.empty(array(&dims, "<f4", "xy"), "sys").unwrap();
    machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    let json = machine.trace_json().unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
    assert!(of("M") >= 1 && of("X") >= 1 && of("C") >= 1, "{json}");
    assert!(self::machine().trace_json().is_none());
}

#[test]
fn a_trace_lists_what_was_asked_for() {
    let machine = Machine::builder().assume(true).lanes(1).trace(true).open().unwrap();
    let src =
        filled(&machine, array(&[("y", 512), ("x", 600)], "[('a', '<f4'), ('b', '<f8')]", "yx"));
    let dst =
        array(&[("x", 8), ("y", 512)], "[('b', '<f8'), ('a', '<f4')]", "<y_in=4, F, x, y_out>");
    let dst = machine.empty(dst, "sys").unwrap();
    let (from, to) = (src.select(&[("x", 590..598)]).unwrap(), dst.clone());
    let options = CopyOptions { priority: 3, ..CopyOptions::default() };
    machine.copy(&from, &to, &options).unwrap().wait(None).unwrap();
    let rows = src.take("y", &[5, 3]).unwrap();
    let few =
        machine.empty(array(&[("y", 2), ("x", 600)], "[('a', '<f4'), ('b', '<f8')]", "yx"), "sys");
    machine.copy(&rows, &few.unwrap(), &CopyOptions::default()).unwrap().wait(None).unwrap();
    let trace = machine.trace_json().unwrap();
    let [first, second] = &trace["copy"].as_array().unwrap()[..] else { panic!("{trace}") };
    assert_eq!((&first["from"], &first["to"]), (&"sys".into(), &"sys".into()));
    assert_eq!(first["dims"]["box"], "x=0..8,y=0..512");
    assert_eq!(first["dims"]["from"], "x=-590..10,y=0..512");
    assert_eq!((&first["dims"]["to"], &first["priority"]), (&"x=0..8,y=0..512".into(), &3.into()));
    assert_eq!(first["fields"].to_string(), "[8,4]");
    assert_eq!(first["from_layout"], "<F, x, y>");
    assert_eq!(first["to_layout"], "<y_in=4, F, x, y_out>");
    assert_eq!(second["dims"]["from"], "y=0..2,x=0..600");
    assert!(first["at_ns"].as_u64() < second["at_ns"].as_u64(), "{trace}");
}

#[test]
fn reports_and_traces_name_a_transfer_alike() {
    let machine = Machine::builder().assume(true).lanes(1).trace(true).open().unwrap();
    let whole = array(&[("y", 512), ("x", 1024)], "|u1", "yx");
    let (src, dst) = (filled(&machine, whole.clone()), machine.empty(whole, "sys").unwrap());
    let run = || {
        let event = machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
        event.wait(None).unwrap();
        let mut report = event.report().remove(0);
        report.times.hops[0].held_up_by = report.transfer;
        isometry::report_json(&report, &machine.topology())
    };
    let (first, second) = (run(), run());
    assert!(first["transfer"].is_string() && first["transfer"] != second["transfer"]);
    assert_eq!(second["hops"][0]["held_up_by"], second["transfer"]);
    let trace = machine.trace_json().unwrap();
    let named =
        |name: &str| trace["traceEvents"].as_array().unwrap().iter().any(|e| e["name"] == name);
    for report in [first, second] {
        let transfer = report["transfer"].as_str().unwrap();
        assert!(named(&format!("copy {transfer}")) && named(&format!("copy {transfer} hop 0")));
    }
}

/// What `work` says in the child of a fork. It must take no lock of another thread.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only does `work`, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the signal ends a child that waits for ever.
        unsafe { libc::alarm(20) };
        let result = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: ends the child without running what belongs to its parent.
        unsafe { libc::_exit(i32::from(!matches!(result, Ok(true)))) };
    }
    let mut status = -1;
    // SAFETY: `child` is ours, and `status` is there to be written.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
}

#[test]
fn a_child_of_a_fork_drops_what_a_closed_machine_left() {
    let machine = machine();
    let a = machine.empty(array(&[("x", 8)], "|u1", "x"), "sys").unwrap();
    machine.close();
    let mut left = Some((machine, a));
    assert!(in_child(|| left.take().is_some()));
}

#[test]
fn a_child_of_a_fork_drops_what_other_threads_were_using() {
    let machine = &machine();
    let one = || {
        let array = array(&[("x", 1)], "|u1", "x");
        machine.wrap(array.space, array.fields, Foreign::of_static(b"a", vec![1])).unwrap()
    };
    let is_over = AtomicBool::new(false);
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            drop(one());
        }
    };
    std::thread::scope(|threads| {
        (0..4).for_each(|_| drop(threads.spawn(work)));
        let mut left = Some(one());
        let all = (0..150).all(|_| in_child(|| left.take().is_some()));
        is_over.store(true, Ordering::Relaxed);
        assert!(all, "a child waited for a lock of its parent's");
    });
}

#[test]
fn a_child_of_a_fork_is_told_so() {
    let machine = machine();
    let array = array(&[("x", 8)], "|u1", "x");
    let (src, dst) = (filled(&machine, array.clone()), machine.empty(array, "sys").unwrap());
    let copy = || machine.copy(&src, &dst, &CopyOptions::default());
    assert!(in_child(|| matches!(copy(), Err(Error::Forked))));
    machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
}

#[test]
fn rows_that_share_bytes_are_not_copied_onto_each_other() {
    let machine = machine();
    let array = array(&[("y", 3), ("x", 4)], "|u1", "yx");
    // Each row begins in the middle of the one before.
    let foreign = Foreign::of_vec(noise(8), vec![2, 1]);
    let rows = machine.wrap(array.space, array.fields, foreign).unwrap();
    let row = |y: i64| rows.select(&[("y", y..y + 1)]).unwrap();
    let copy = |from, to| machine.copy(&row(from), &row(to), &CopyOptions::default());
    assert!(matches!(copy(0, 1), Err(Error::Argument(ArgumentError::Overlap))));
    copy(0, 2).map(drop).unwrap();
}

#[test]
fn a_panic_of_a_callback_holds_up_nobody() {
    let machine = machine();
    let whole = array(&[("y", 1024), ("x", 1024)], "|u1", "yx");
    let (src, dst) = (filled(&machine, whole.clone()), machine.empty(whole, "sys").unwrap());
    let copy = || machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let event = copy();
    // On this thread where the copy has ended already.
    let _ = catch_unwind(AssertUnwindSafe(|| event.on_done(|_| panic!("a callback of a user"))));
    event.on_done(move |_| sender.send(()).unwrap());
    event.wait(None).unwrap();
    assert_eq!(receiver.recv(), Ok(()));
    copy().wait(Some(Duration::from_secs(60))).unwrap();
}

/// Counts how often it is asked.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Policy for Counting {
    fn rank(&self, standing: &Standing) -> Rank {
        self.0.fetch_add(1, Ordering::Relaxed);
        Fifo.rank(standing)
    }
}

#[test]
fn each_kind_of_channel_has_the_policy_that_was_chosen_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let policies = [(); 2].map(|()| Arc::new(Counting::default()));
    let asked = || policies.each_ref().map(|p| p.0.load(Ordering::Relaxed) > 0);
    let builder = Machine::builder().assume(true).lanes(1);
    let builder = builder.policy(ChannelKind::Memcpy, policies[0].clone());
    let machine = builder.policy(ChannelKind::DiskWrite, policies[1].clone()).open().unwrap();
    let array = array(&[("y", 512), ("x", 512)], "<f4", "yx");
    let [src, dst] = [(); 2].map(|()| machine.empty(array.clone(), "sys").unwrap());
    machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    assert_eq!(asked(), [true, false]);
    let file =
        machine.create_file(dir.path().join("a.npy"), array, &FileOptions::default()).unwrap();
    machine.copy(&src, &file, &CopyOptions::default()).unwrap().wait(None).unwrap();
    assert_eq!(asked(), [true, true]);
}

/// The memory that one shard comes from is not where another is to lie: they are copied in any order.
#[test]
fn no_shard_lies_where_another_comes_from() {
    let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
    let dim = |lo: i64, hi: i64| IndexSpace::new(vec![Dim { name: "x".into(), lo, hi }]).unwrap();
    let fields = || FieldSpace::packed(&[4]).unwrap();
    let extent = 1 << 20;
    let shard = |lo, hi| machine.empty(Array::new(dim(lo, hi), fields()), "sys").unwrap();
    let (first, second) = (shard(0, extent), shard(extent, 2 * extent));
    let base = std::ptr::NonNull::new(first.first_byte().unwrap()).unwrap();
    // SAFETY: the owner is the instance whose bytes these are, and nothing is copied.
    let there = unsafe { Foreign::new(base, vec![4], true, Arc::new(first.clone())) };
    let there = machine.wrap(dim(extent, 2 * extent), fields(), there).unwrap();
    let (src, dst) = ([first, second], [there, shard(0, extent)]);
    let error = machine.reshard(&src, &dst, &CopyOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Argument(ArgumentError::Overlap)), "{error}");
}
