//! What the engine costs: a transfer of one request from submission to event, and a request of a
//! long transfer that changes the layout. Prints nanoseconds.

#[path = "../tests/support/mod.rs"]
mod support;

use isometry_engine::{Engine, Program, Transfer};
use layout::Placement;
use model::{Component, FieldSpace, IndexSpace, Layout, Selection, Time};
use std::sync::Arc;
use std::time::Instant;
use support::{done, engine, plan, run_program, transfer};

const TRANSFERS: u32 = 1_000_000;

fn main() {
    small();
    batch();
    for request_bytes in [64 << 10, 1 << 20] {
        converting(request_bytes);
    }
}

fn print(what: &str, since: Instant, count: u32) {
    println!("{what}: {:.0} ns", since.elapsed().as_secs_f64() * 1e9 / f64::from(count));
}

/// One transfer of one request at a time.
fn small() {
    let (mut engine, program) = (engine(4, 8, 0), run_program(64, 1, 4096, 0));
    let start = Instant::now();
    for now in 0..TRANSFERS {
        let id = engine.submit(Time(now.into()), transfer(&program)).unwrap();
        let request = engine.poll_request().unwrap();
        engine.handle_completion(Time(now.into()), done(&request));
        assert!(engine.poll_event().is_some());
        engine.forget(id);
    }
    print("a transfer of one request", start, TRANSFERS);
}

/// Many transfers submitted before the first is served.
fn batch() {
    let (mut engine, program) = (engine(4, 8, 0), run_program(64, 1, 4096, 0));
    let start = Instant::now();
    for round in 0..TRANSFERS / 100_000 {
        for _ in 0..100_000 {
            engine.submit(Time(round.into()), transfer(&program)).unwrap();
        }
        while let Some(request) = engine.poll_request() {
            engine.handle_completion(Time(round.into()), done(&request));
        }
        while let Some(event) = engine.poll_event() {
            engine.forget(event.transfer);
        }
    }
    print("a transfer of one request, 100000 at a time", start, TRANSFERS);
}

/// 128 images from NHWC through two rings to NCHW.
fn converting(request_bytes: u64) {
    let program = Arc::new(images(128, request_bytes));
    for what in ["first run", "again"] {
        let mut engine: Engine = engine(3, 8, 64 << 20);
        engine.submit(Time(0), Transfer { ..transfer(&program) }).unwrap();
        let (start, mut requests) = (Instant::now(), 0);
        while let Some(request) = engine.poll_request() {
            engine.handle_completion(Time(0), done(&request));
            requests += 1;
        }
        assert!(engine.poll_event().is_some());
        print(&format!("a converting request of {request_bytes} bytes, {what}"), start, requests);
    }
}

fn images(count: u64, request_bytes: u64) -> Program {
    let space = IndexSpace::of(&[("n", count), ("h", 224), ("w", 224), ("c", 3)]).unwrap();
    let fields = FieldSpace::packed(&[4]).unwrap();
    let whole = |dims: &[u8]| {
        let dims = dims.iter().map(|&d| Component::Whole(d));
        Layout::new(std::iter::once(Component::Fields).chain(dims), 4).unwrap()
    };
    let (nhwc, nchw) = (whole(&[3, 2, 1, 0]), whole(&[2, 1, 3, 0]));
    let part = |layout: &Layout| {
        let placement = Placement::of_layout(layout, &space, &fields).unwrap();
        placement.select(&Selection::all(&space), &[0]).unwrap()
    };
    let layouts = vec![nhwc.clone(), nhwc.clone(), nchw.clone(), nchw.clone()];
    let mut plan = plan(layouts, &[request_bytes; 3], &[8 << 20; 2], 3);
    plan.phase = vec![0; 4];
    let start = Instant::now();
    let program = Program::compile(&plan, part(&nhwc), part(&nchw)).unwrap();
    print("compiling that", start, 1);
    program
}
