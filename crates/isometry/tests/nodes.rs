//! Machines that have joined each other, as nodes of one process.

mod coming;
mod exposition;

use isometry::fabric::{APART, Config, Fabric, Handlers, Job};
use isometry::model::{Dim, FieldSpace, IndexSpace};
use isometry::{
    ArgumentError, Array, CopyOptions, Error, ErrorKind, FileOptions, Instance, Machine,
    MachineBuilder,
};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn config(job: &Job, rank: u32) -> Config {
    let variables = job.variables(rank);
    let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
    Config::from_variables(lookup).unwrap()
}

/// Tries something with nodes that have joined each other by shared memory, and by TCP, with each other's
/// memory mapped or not.
fn over_each(size: u32, run: impl Fn(Vec<Machine>)) {
    run(joined(&Job::new(size).unwrap(), size));
    run(joined(&Job::loopback(size).unwrap(), size));
    let job = Job::loopback(size).unwrap();
    run(joined_by(size, &[], |rank| {
        let config = config(&job, rank);
        Config { root: config.root.replace(APART, ""), ..config }
    }));
}

fn joined(job: &Job, size: u32) -> Vec<Machine> {
    serving(job, size, &[])
}

/// Nodes of which each serves what is in its directory, where it has one.
fn serving(job: &Job, size: u32, dirs: &[&Path]) -> Vec<Machine> {
    joined_by(size, dirs, |rank| config(job, rank))
}

fn joined_by(size: u32, dirs: &[&Path], config: impl Fn(u32) -> Config + Sync) -> Vec<Machine> {
    let join = |rank: u32| {
        let builder = Machine::builder().assume(true).lanes(1).staging(8 << 20);
        let dirs = dirs.get(rank as usize).into_iter();
        dirs.fold(builder, MachineBuilder::serve_files).join(&config(rank)).unwrap()
    };
    thread::scope(|scope| {
        let join = &join;
        let joining: Vec<_> = (0..size).map(|rank| scope.spawn(move || join(rank))).collect();
        joining.into_iter().map(|node| node.join().unwrap()).collect()
    })
}

/// Rows of `f4`, of different values.
fn matrix(machine: &Machine, (y, x): (u64, u64), layout: &str) -> Instance {
    let array = Array::of(&[("y", y), ("x", x)], "<f4").unwrap();
    machine.empty(array.laid_out(layout).unwrap(), "sys").unwrap()
}

fn fill(instance: &Instance) {
    let bytes = instance.host_span().unwrap().len_bytes();
    let words = (0..bytes as u32 / 4).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes());
    instance.fill(&words.collect::<Vec<_>>()).unwrap();
}

/// What `owner` publishes as `name`, found by another node.
fn published(
    nodes: &[Machine],
    (owner, finder): (usize, usize),
    name: &str,
    it: &Instance,
) -> Instance {
    nodes[owner].publish(name, it).unwrap();
    nodes[finder].lookup(&format!("node{owner}/{name}"), PATIENCE).unwrap()
}

/// Copies, and waits for the end.
fn copy(machine: &Machine, src: &Instance, dst: &Instance) {
    machine.copy(src, dst, &CopyOptions::default()).unwrap().wait(PATIENCE).unwrap();
}

/// Of a file whose dimensions have no names.
fn called_yx() -> FileOptions {
    FileOptions { dims: Some(vec!["y".to_owned(), "x".to_owned()]), ..FileOptions::default() }
}

/// A `.npy` file at `path` with what `rows` has.
fn write(machine: &Machine, rows: &Instance, path: &Path) {
    let file = machine.create_file(path, rows.array(), &FileOptions::default()).unwrap();
    copy(machine, rows, &file);
}

/// Whether `columns` has what `rows` has, the other way round.
fn is_transposed(rows: &Instance, columns: &Instance) -> bool {
    let (from, to) = (rows.to_vec().unwrap(), columns.to_vec().unwrap());
    let [y, x] = [0, 1].map(|dim| rows.extents()[dim] as usize);
    let at = |bytes: &[u8], i: usize| bytes[4 * i..4 * i + 4].to_vec();
    (0..y).all(|j| (0..x).all(|i| at(&from, j * x + i) == at(&to, i * y + j)))
}

#[test]
fn a_node_copies_what_another_publishes_in_its_own_layout() {
    over_each(2, |nodes| {
        let rows = matrix(&nodes[0], (700, 900), "yx");
        fill(&rows);
        let there = published(&nodes, (0, 1), "rows", &rows);
        let here = matrix(&nodes[1], (700, 900), "xy");
        let event = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
        event.wait(PATIENCE).unwrap();
        assert!(is_transposed(&rows, &here));
        assert_eq!(event.progress(), (700 * 900 * 4, 700 * 900 * 4));
        let plan = nodes[1].plan(&there, &here, &Default::default()).unwrap();
        let path = plan.to_json()["memories"].clone();
        assert_eq!(path, serde_json::json!(["node0.sys", "node1.reg", "node1.sys"]));
    });
}

#[test]
fn a_node_copies_into_what_another_publishes() {
    over_each(2, |nodes| {
        let columns = matrix(&nodes[1], (300, 500), "xy");
        let there = published(&nodes, (1, 0), "columns", &columns);
        let rows = matrix(&nodes[0], (300, 500), "yx");
        fill(&rows);
        copy(&nodes[0], &rows, &there);
        assert!(is_transposed(&rows, &columns));
    });
}

#[test]
fn nodes_tell_what_each_of_them_has_moved() {
    over_each(2, |mut nodes| {
        let rows = matrix(&nodes[0], (300, 500), "yx");
        let there = published(&nodes, (1, 0), "columns", &matrix(&nodes[1], (300, 500), "xy"));
        copy(&nodes[0], &rows, &there);
        let told = |machine: &Machine| exposition::samples(&machine.metrics().unwrap());
        let [first, second] = [&nodes[0], &nodes[1]].map(told);
        let foreign = |key: &&String| !key.contains("{node=\"node0\"");
        assert_eq!(first.keys().find(foreign), None);
        assert!(second.keys().all(|key| key.contains("{node=\"node1\"")));
        let link = r#"node="node0",channel="RemoteMemcpy",peer="node1""#;
        assert_eq!(first[&format!("isometry_moved_bytes_total{{{link}}}")], 600_000.0);
        let link = r#"node="node1",channel="RemoteMemcpy",peer="node0""#;
        assert_eq!(second[&format!("isometry_moved_bytes_total{{{link}}}")], 0.0);
        let received = r#"isometry_received_bytes_total{node="node1",peer="node0"}"#;
        assert_eq!(second[received], 600_000.0);
        assert_eq!(first[r#"isometry_copies_submitted_total{node="node0"}"#], 1.0);
        assert_eq!(second[r#"isometry_copies_submitted_total{node="node1"}"#], 0.0);
        let up = r#"isometry_peer_up{node="node0",peer="node1"}"#;
        assert_eq!(first[up], 1.0);
        nodes.truncate(1);
        while told(&nodes[0])[up] != 0.0 {
            thread::yield_now();
        }
        exposition::assert_grown(&first, &told(&nodes[0]));
    });
}

#[test]
fn anyone_may_ask_for_a_copy_between_any_two() {
    over_each(3, |nodes| {
        let rows = matrix(&nodes[2], (300, 500), "yx");
        let columns = matrix(&nodes[0], (300, 500), "xy");
        fill(&rows);
        let from = published(&nodes, (2, 1), "rows", &rows);
        let to = published(&nodes, (0, 1), "columns", &columns);
        copy(&nodes[1], &from, &to);
        assert!(is_transposed(&rows, &columns));
    });
}

/// A node that asks for a copy inside another has no part in it.
#[test]
fn a_copy_inside_another_node_is_asked_for() {
    over_each(2, |nodes| {
        let (rows, columns) =
            (matrix(&nodes[0], (300, 500), "yx"), matrix(&nodes[0], (300, 500), "xy"));
        fill(&rows);
        let from = published(&nodes, (0, 1), "rows", &rows);
        let to = published(&nodes, (0, 1), "columns", &columns);
        copy(&nodes[1], &from, &to);
        assert!(is_transposed(&rows, &columns));
    });
}

#[test]
fn pages_of_another_node_come_in_any_order_and_layout() {
    over_each(2, |nodes| {
        let pages = |machine: &Machine, count, layout: &str| {
            let dims = [("page", count), ("n", 16), ("h", 4), ("c", 8)];
            let dims = dims.map(|(name, extent): (&str, u64)| (name, extent));
            let array = Array::of(&dims, "<u2").unwrap();
            machine.empty(array.laid_out(layout).unwrap(), "sys").unwrap()
        };
        let pool = pages(&nodes[0], 64, "page,n,h,c");
        fill(&pool);
        let there = published(&nodes, (0, 1), "pool", &pool);
        let wanted: Vec<i64> = (0..48).map(|i| i * 37 % 64).collect();
        let here = pages(&nodes[1], 48, "page,h,n,c");
        let some = there.take("page", &wanted).unwrap();
        copy(&nodes[1], &some, &here);
        let (from, to) = (pool.to_vec().unwrap(), here.to_vec().unwrap());
        let run = |bytes: &[u8], at: usize| bytes[16 * at..16 * at + 16].to_vec();
        for (i, &page) in wanted.iter().enumerate() {
            for (n, h) in (0..16).flat_map(|n| (0..4).map(move |h| (n, h))) {
                let source = (page as usize * 16 + n) * 4 + h;
                assert_eq!(run(&from, source), run(&to, (i * 4 + h) * 16 + n), "page {page}");
            }
        }
    });
}

/// It is refused at once, and not sent again and again.
#[test]
fn a_copy_of_more_fields_than_others_take_is_refused() {
    over_each(2, |nodes| {
        let records = |machine: &Machine| {
            let fields = FieldSpace::packed(&vec![1; 5000]).unwrap();
            let array = Array::new(IndexSpace::of(&[("x", 4)]).unwrap(), fields);
            machine.empty(array, "sys").unwrap()
        };
        let there = published(&nodes, (0, 1), "records", &records(&nodes[0]));
        let here = records(&nodes[1]);
        let error = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plan, "{error}");
        assert!(error.to_string().contains("5000 fields"), "{error}");
    });
}

#[test]
fn a_file_of_another_node_is_read_and_one_is_made_there() {
    over_each(2, |nodes| {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["a.npy", "b.npy"].map(|name| dir.path().join(name));
        let rows = matrix(&nodes[0], (300, 500), "yx");
        fill(&rows);
        write(&nodes[0], &rows, &first);
        let file = nodes[0].open_file(&first, &Default::default()).unwrap();
        nodes[0].publish("file", &file).unwrap();
        let array = file.array().laid_out("d1,d0").unwrap();
        let made = nodes[1].create_file(&second, array, &Default::default()).unwrap();
        let to = published(&nodes, (1, 0), "made", &made);
        assert!(!second.exists());
        copy(&nodes[0], &file, &to);
        // Committed on the far node, so that it is there in whole.
        let back = nodes[1].open_file(&second, &called_yx()).unwrap();
        let columns = matrix(&nodes[1], (500, 300), "yx");
        copy(&nodes[1], &back, &columns);
        assert!(is_transposed(&rows, &columns));
    });
}

#[test]
fn files_of_other_nodes_are_opened_and_made() {
    for job in [Job::new(3).unwrap(), Job::loopback(3).unwrap()] {
        let dir = tempfile::tempdir().unwrap();
        let nodes = serving(&job, 3, &[dir.path(); 3]);
        let rows = matrix(&nodes[1], (300, 500), "yx");
        fill(&rows);
        let [first, second] = ["a.npy", "b.npy"].map(|name| dir.path().join(name));
        write(&nodes[1], &rows, &first);
        let file = nodes[0].open_file_at("node1", &first, &called_yx()).unwrap();
        assert_eq!((file.memory().node.0, file.is_writable()), (1, false));
        let array = file.array().laid_out("xy").unwrap();
        let made = nodes[0].create_file_at("node2", &second, array, &Default::default()).unwrap();
        assert!(!second.exists());
        copy(&nodes[0], &file, &made);
        assert!(second.exists(), "committed where it lies");
        let columns = matrix(&nodes[2], (500, 300), "yx");
        let back = nodes[2].open_file(&second, &called_yx()).unwrap();
        copy(&nodes[2], &back, &columns);
        assert!(is_transposed(&rows, &columns));
        // By its own name a node has all files.
        assert_eq!(
            nodes[0].open_file_at("node0", &second, &called_yx()).unwrap().memory().node.0,
            0
        );
    }
}

/// What is left of files that were to be made, once their nodes have heard that nobody wants them.
fn wait_until_empty(dir: &Path) {
    while fs::read_dir(dir).unwrap().next().is_some() {
        thread::yield_now();
    }
}

#[test]
fn a_file_that_is_given_back_or_whose_asker_leaves_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = serving(&Job::new(3).unwrap(), 3, &[dir.path(); 3]);
    let array = Array::of(&[("y", 4), ("x", 4)], "<f4").unwrap();
    let create = |machine: &Machine, name: &str| {
        let path = dir.path().join(name);
        machine.create_file_at("node1", path, array.clone(), &Default::default()).unwrap()
    };
    let (first, second) = (create(&nodes[0], "a.npy"), create(&nodes[0], "b.npy"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    drop((first, second));
    wait_until_empty(dir.path());
    let (left, kept) = (create(&nodes[2], "a.npy"), create(&nodes[0], "b.npy"));
    let leaving = nodes.pop().unwrap();
    leaving.close();
    drop((left, leaving));
    while fs::read_dir(dir.path()).unwrap().count() > 1 {
        thread::yield_now();
    }
    let rows = matrix(&nodes[0], (4, 4), "yx");
    copy(&nodes[0], &rows, &kept);
    assert!(dir.path().join("b.npy").exists());
}

#[test]
fn files_that_are_not_there_or_not_served_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let served = dir.path().join("served");
    fs::create_dir(&served).unwrap();
    let nodes = serving(&Job::new(2).unwrap(), 2, &[&served]);
    let refused = |asker: usize, node: &str, path: &Path| {
        let opened = nodes[asker].open_file_at(node, path, &FileOptions::default());
        match opened.unwrap_err() {
            Error::FarFile { kind, os_error, told, .. } => (kind, os_error, told),
            other => panic!("{other}"),
        }
    };
    let none = served.join("none.npy");
    assert_eq!(refused(1, "node0", &none).1, Some(2));
    let error = nodes[1].open_file_at("node0", &none, &FileOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("node0:{}: ", none.display())), "{error}");
    let outside = refused(1, "node0", &dir.path().join("a.npy"));
    assert_eq!((outside.0, outside.1), (ErrorKind::Io, Some(13)));
    assert_eq!(refused(1, "node0", Path::new("a.npy")).1, Some(13));
    assert!(refused(0, "node1", &none).2.contains("serves no files"));
    fs::write(served.join("wrong.npy"), "nonsense").unwrap();
    assert_eq!(refused(1, "node0", &served.join("wrong.npy")).0, ErrorKind::FileFormat);
    fs::write(served.join("raw"), "nonsense").unwrap();
    assert_eq!(refused(1, "node0", &served.join("raw")).0, ErrorKind::Argument);
    let unknown = nodes[1].open_file_at("node2", &none, &FileOptions::default());
    assert!(matches!(unknown, Err(Error::Argument(ArgumentError::NoNode { .. }))));
    let array = Array::of(&[("x", 4)], "<f4").unwrap();
    let made = nodes[1].create_file_at("node0", dir.path().join("b"), array, &Default::default());
    assert!(matches!(made, Err(Error::FarFile { os_error: Some(13), .. })));
    assert_eq!(nodes[1].split_node("node0:/a:b"), Some(("node0", "/a:b")));
    assert_eq!(nodes[1].split_node("node2:/a"), None);
    let gone = Machine::builder().assume(true).serve_files(dir.path().join("gone"));
    let gone = gone.join(&config(&Job::new(1).unwrap(), 0));
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::Io);
}

/// Each side is read where it lies: also by who has neither.
#[test]
fn what_two_nodes_hold_is_compared_by_checksums() {
    over_each(3, |nodes| {
        let rows = matrix(&nodes[0], (3000, 1000), "yx");
        fill(&rows);
        let columns = matrix(&nodes[1], (3000, 1000), "xy");
        let from = published(&nodes, (0, 2), "rows", &rows);
        let to = published(&nodes, (1, 2), "columns", &columns);
        let here = nodes[1].lookup("node0/rows", PATIENCE).unwrap();
        copy(&nodes[2], &from, &to);
        nodes[2].verify(&from, &to).unwrap();
        nodes[1].verify(&here, &columns).unwrap();
        // Of the third box of rows, each of which has 1,048,576 entries at most.
        let bytes = columns.host_span().unwrap().len_bytes();
        let mut damaged = columns.to_vec().unwrap();
        damaged[4 * (17 * 3000 + 2500)] ^= 1;
        columns.fill(&damaged[..bytes]).unwrap();
        for error in [nodes[2].verify(&from, &to), nodes[1].verify(&columns, &here)] {
            let error = error.unwrap_err();
            assert_eq!(error.to_string(), "the two differ in y 2096..3000, x 0..1000");
            assert_eq!(error.kind(), ErrorKind::Transfer);
        }
        let (above, below) = (0..2096, 2096..3000);
        let part =
            |of: &Instance, y: &std::ops::Range<i64>| of.select(&[("y", y.clone())]).unwrap();
        nodes[2].verify(&part(&from, &above), &part(&to, &above)).unwrap();
        nodes[2].verify(&part(&from, &below), &part(&to, &below)).unwrap_err();
        let error = nodes[2].verify(&part(&from, &above), &to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
        let interrupted = nodes[2].verify_unless(&from, &to, &|| true);
        assert!(matches!(interrupted, Err(Error::TimedOut)));
    });
}

#[test]
fn checksums_are_of_what_is_open_to_others_and_of_nodes_that_are_there() {
    over_each(2, |mut nodes| {
        let rows = matrix(&nodes[1], (30, 40), "yx");
        let there = published(&nodes, (1, 0), "rows", &rows);
        let here = matrix(&nodes[0], (30, 40), "xy");
        copy(&nodes[0], &there, &here);
        nodes[1].close();
        drop(nodes.pop());
        let error = nodes[0].verify(&there, &here).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        drop(nodes.pop().unwrap());
    });
}

/// One that is small enough to run on its caller's thread runs where its memory is all the same.
#[test]
fn a_small_copy_inside_another_node_is_asked_for() {
    over_each(2, |nodes| {
        let (rows, columns) = (matrix(&nodes[0], (3, 5), "yx"), matrix(&nodes[0], (3, 5), "xy"));
        fill(&rows);
        let from = published(&nodes, (0, 1), "rows", &rows);
        let to = published(&nodes, (0, 1), "columns", &columns);
        copy(&nodes[1], &from, &to);
        assert!(is_transposed(&rows, &columns));
        let status = nodes[1].status().unwrap();
        assert_eq!((status.nodes[0].lost.clone(), status.transfers.len()), (None, 0));
        assert_eq!(status.staging.len(), 2, "{status}");
        assert_eq!((status.plan_hits, status.plan_misses), (0, 1));
    });
}

#[test]
fn many_copies_go_both_ways_at_once() {
    over_each(2, |nodes| {
        let pair = |from: usize| {
            let (rows, columns) = (
                matrix(&nodes[from], (200, 300), "yx"),
                matrix(&nodes[1 - from], (200, 300), "xy"),
            );
            fill(&rows);
            (rows, columns)
        };
        let pairs: Vec<_> = (0..40).map(|i| pair(i % 2)).collect();
        let mut events = Vec::new();
        for (i, (rows, columns)) in pairs.iter().enumerate() {
            let (from, to) = (i % 2, 1 - i % 2);
            let there = published(&nodes, (from, to), &format!("rows-{i}"), rows);
            let options = CopyOptions::with_priority(i as i32 % 3);
            events.push(nodes[to].copy(&there, columns, &options).unwrap());
        }
        events.iter().for_each(|event| event.wait(PATIENCE).unwrap());
        assert!(pairs.iter().all(|(rows, columns)| is_transposed(rows, columns)));
    });
}

#[test]
fn what_can_t_be_is_named() {
    over_each(2, |nodes| {
        let rows = matrix(&nodes[0], (4, 4), "yx");
        let refused = |result: Result<(), Error>| match result.unwrap_err() {
            Error::Argument(error) => error,
            other => panic!("{other}"),
        };
        let name = |name: &str| ArgumentError::Name { name: name.to_owned() };
        assert_eq!(refused(nodes[0].publish("a/b", &rows)), name("a/b"));
        assert_eq!(refused(nodes[1].publish("a", &rows)), ArgumentError::OtherMachine);
        nodes[0].publish("a", &rows).unwrap();
        let twice = ArgumentError::Published { name: "a".to_owned() };
        assert_eq!(refused(nodes[0].publish("a", &rows)), twice);
        let there = nodes[1].lookup("node0/a", PATIENCE).unwrap();
        assert_eq!(refused(nodes[1].publish("a", &there)), ArgumentError::NotHere);
        assert!(there.to_vec().is_err());
        for name in ["node2/a", "a", "node0.sys/a", "/a"] {
            let error = nodes[1].lookup(name, PATIENCE).unwrap_err();
            assert!(
                matches!(error, Error::Argument(ArgumentError::NoNode { .. })),
                "{name}: {error}"
            );
        }
        let soon = Some(Duration::from_millis(1));
        for node in &nodes {
            let error = node.lookup("node0/none", soon).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        let array = rows.array();
        assert!(matches!(
            nodes[0].empty(array.clone(), "reg"),
            Err(Error::Argument(ArgumentError::BuffersOnly { .. }))
        ));
        assert!(nodes[0].empty(array.clone(), "node1.sys").is_err());
        assert!(nodes[0].empty(array, "node0.sys").is_ok());
        let alone = Machine::builder().assume(true).lanes(1).open().unwrap();
        assert!(matches!(
            alone.lookup("node0/a", None),
            Err(Error::Argument(ArgumentError::NotJoined))
        ));
        assert_eq!((alone.rank(), alone.size(), nodes[1].rank(), nodes[1].size()), (0, 1, 1, 2));
    });
}

/// Whoever waits for a node that leaves hears of it, and the others go on.
#[test]
fn a_node_that_leaves_is_an_error_for_who_waits_for_it() {
    over_each(3, |mut nodes| {
        let rows = matrix(&nodes[0], (300, 500), "yx");
        fill(&rows);
        nodes[0].publish("rows", &rows).unwrap();
        let left = nodes.pop().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| nodes[1].lookup("node2/never", PATIENCE));
            let barrier = scope.spawn(|| nodes[0].barrier(PATIENCE));
            // Whoever holds what has closed holds nobody else up.
            left.close();
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerLost);
            assert!(error.to_string().contains("rank 2"), "{error}");
            assert_eq!(barrier.join().unwrap().unwrap_err().kind(), ErrorKind::PeerLost);
        });
        let there = nodes[1].lookup("node0/rows", PATIENCE).unwrap();
        let here = matrix(&nodes[1], (300, 500), "xy");
        copy(&nodes[1], &there, &here);
        assert!(is_transposed(&rows, &here));
    });
}

/// Whoever asks it all the time doesn't keep it, and hears at once that it leaves.
#[test]
fn a_node_closes_while_others_ask_for_copies() {
    over_each(2, |nodes| {
        let rows = matrix(&nodes[0], (300, 500), "yx");
        let there = published(&nodes, (0, 1), "rows", &rows);
        let begun = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let here = matrix(&nodes[1], (300, 500), "xy");
                copy(&nodes[1], &there, &here);
                begun.wait();
                let again = || nodes[1].copy(&there, &here, &CopyOptions::default());
                let mut copies = std::iter::repeat_with(|| again()?.wait(PATIENCE));
                copies.find_map(Result::err).unwrap()
            });
            begun.wait();
            let start = Instant::now();
            nodes[0].close();
            assert_eq!(asking.join().unwrap().kind(), ErrorKind::PeerLost);
            // No lease has to run out.
            assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        });
    });
}

/// It has written all when it leaves, and the other has yet to take it.
#[test]
fn a_copy_that_was_begun_ends_well_although_its_node_closes() {
    for round in 0..25 {
        over_each(2, |nodes| {
            let rows = matrix(&nodes[0], (300, 500), "yx");
            fill(&rows);
            let there = published(&nodes, (0, 1), "rows", &rows);
            let here = matrix(&nodes[1], (300, 500), "xy");
            let event = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
            while event.progress().0 == 0 && !event.is_done() {
                thread::yield_now();
            }
            (0..100 * round).for_each(|_| std::hint::spin_loop());
            nodes[0].close();
            event.wait(PATIENCE).unwrap();
            assert!(is_transposed(&rows, &here));
        });
    }
}

#[test]
fn a_copy_is_cancelled_on_all_nodes() {
    over_each(2, |nodes| {
        let rows = matrix(&nodes[0], (4000, 4000), "yx");
        let there = published(&nodes, (0, 1), "rows", &rows);
        let here = matrix(&nodes[1], (4000, 4000), "xy");
        let event = nodes[1].copy(&there, &here, &CopyOptions::default()).unwrap();
        event.cancel();
        let ended = event.wait(PATIENCE);
        assert!(matches!(ended, Ok(()) | Err(Error::Cancelled)), "{ended:?}");
        let late = CopyOptions { deadline: Some(Duration::from_micros(50)), ..Default::default() };
        let event = nodes[1].copy(&there, &here, &late).unwrap();
        assert!(matches!(event.wait(PATIENCE), Err(Error::TimedOut)));
        // Staging has come back: as many copies as ever run.
        for _ in 0..3 {
            copy(&nodes[1], &there, &here);
        }
    });
}

/// Columns of all nodes become rows on all nodes, and a replica of all on each.
#[test]
fn an_array_is_partitioned_anew_over_the_nodes() {
    over_each(3, |nodes| {
        let shard = |node: usize, (y, x): ((i64, i64), (i64, i64)), layout: &str| {
            let dim = |name: &str, (lo, hi)| Dim { name: name.into(), lo, hi };
            let space = IndexSpace::new(vec![dim("y", y), dim("x", x)]).unwrap();
            let array = Array::new(space, FieldSpace::packed(&[4]).unwrap());
            nodes[node].empty(array.laid_out(layout).unwrap(), "sys").unwrap()
        };
        let entry = |y: i64, x: i64| (y * 1000 + x) as u32;
        let (all_y, all_x) = ((-5, 91), (0, 120));
        let thirds = |(lo, hi): (i64, i64), i: i64| {
            let third = (hi - lo) / 3;
            (lo + i * third, lo + (i + 1) * third)
        };
        let mut whole = Vec::new();
        for (node, third) in (0..).map(|i| (i as usize, i)).take(3) {
            let columns = shard(node, (all_y, thirds(all_x, third)), "yx");
            let (lo, hi) = thirds(all_x, third);
            let words = (all_y.0..all_y.1).flat_map(|y| (lo..hi).map(move |x| entry(y, x)));
            columns.fill(&words.flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
            let rows = shard(node, (thirds(all_y, third), all_x), "xy");
            let replica = shard(node, (all_y, all_x), if node == 1 { "xy" } else { "yx" });
            for (name, shard) in [("columns", &columns), ("rows", &rows), ("replica", &replica)] {
                nodes[node].publish(name, shard).unwrap();
            }
            whole.push(replica);
        }
        let there = |name: &str| -> Vec<Instance> {
            let of = |node| nodes[1].lookup(&format!("node{node}/{name}"), PATIENCE).unwrap();
            (0..3).map(of).collect()
        };
        let (columns, rows, replicas) = (there("columns"), there("rows"), there("replica"));
        let options = CopyOptions::default();
        nodes[1].reshard(&columns, &rows, &options).unwrap().wait(PATIENCE).unwrap();
        let event = nodes[1].reshard(&rows, &replicas, &options).unwrap();
        event.wait(PATIENCE).unwrap();
        assert_eq!(event.progress(), (3 * 96 * 120 * 4, 3 * 96 * 120 * 4));
        // The first is filled from three; the others from the first.
        assert_eq!(event.report().len(), 5);
        for (replica, is_turned) in whole.iter().zip([false, true, false]) {
            let bytes = replica.to_vec().unwrap();
            let words: Vec<u32> =
                bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
            for (y, x) in (0..96).flat_map(|y| (0..120).map(move |x| (y, x))) {
                let at = if is_turned { x * 96 + y } else { y * 120 + x };
                assert_eq!(words[at as usize], entry(y - 5, x));
            }
        }
        let error = nodes[1].reshard(&columns[..2], &rows, &options).unwrap_err();
        assert!(error.to_string().contains("x 80..120"), "{error}");
    });
}

/// By one node, for all.
#[test]
fn the_link_between_nodes_is_measured() {
    let kept = tempfile::tempdir().unwrap();
    let job = Job::new(3).unwrap();
    let join = |rank| {
        let builder = Machine::builder().lanes(1).staging(64 << 20).cache_dir(kept.path());
        builder.join(&config(&job, rank)).unwrap()
    };
    let nodes: Vec<_> = thread::scope(|scope| {
        let join = &join;
        let joining: Vec<_> = (0..3).map(|rank| scope.spawn(move || join(rank))).collect();
        joining.into_iter().map(|node| node.join().unwrap()).collect()
    });
    for node in &nodes {
        let topology = node.topology();
        let link = &topology.links[0];
        assert!(!link.assumed && link.latency_ns > 0);
        assert!(link.curves.run.peak() > 1e8, "{:?}", link.curves.run);
        assert_eq!(*link, nodes[0].topology().links[0]);
    }
}

/// What it published does not keep it: the others hear that it has left.
#[test]
fn a_node_that_published_leaves_when_it_is_dropped() {
    over_each(2, |mut nodes| {
        let rows = matrix(&nodes[1], (4, 4), "yx");
        nodes[1].publish("rows", &rows).unwrap();
        drop((rows, nodes.pop()));
        let error = nodes[0].lookup("node1/never", PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
    });
}

#[test]
fn a_barrier_without_a_node_that_has_left_fails_each_time() {
    over_each(2, |mut nodes| {
        drop(nodes.pop());
        // Until that is known here.
        assert!(nodes[0].lookup("node1/never", PATIENCE).is_err());
        for _ in 0..3 {
            assert_eq!(nodes[0].barrier(PATIENCE).unwrap_err().kind(), ErrorKind::PeerLost);
        }
    });
}

#[test]
fn a_file_of_another_node_is_asked_for_by_who_wants_it() {
    over_each(2, |nodes| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let rows = matrix(&nodes[0], (300, 500), "yx");
        fill(&rows);
        write(&nodes[0], &rows, &path);
        let file = nodes[0].open_file(&path, &called_yx()).unwrap();
        let there = published(&nodes, (0, 1), "file", &file);
        let here = matrix(&nodes[1], (300, 500), "xy");
        copy(&nodes[1], &there, &here);
        assert!(is_transposed(&rows, &here));
    });
}

#[test]
fn nothing_that_can_t_be_a_name_is_waited_for() {
    over_each(2, |nodes| {
        for node in &nodes {
            let error = node.lookup("node0/a b", Some(Duration::from_secs(2))).unwrap_err();
            assert!(matches!(error, Error::Argument(ArgumentError::Name { .. })), "{error}");
        }
    });
}

/// A box by the names of its dimensions, in whichever order a shard has them.
#[test]
fn shards_may_have_their_dimensions_in_any_order() {
    let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
    let shard = |dims: [(&str, i64, i64); 2]| {
        let dim = |(name, lo, hi): (&str, i64, i64)| Dim { name: name.into(), lo, hi };
        let space = IndexSpace::new(dims.map(dim).to_vec()).unwrap();
        machine.empty(Array::new(space, FieldSpace::packed(&[4]).unwrap()), "sys").unwrap()
    };
    let all = shard([("y", 0, 8), ("x", 0, 8)]);
    fill(&all);
    let one = shard([("y", 0, 4), ("x", 4, 8)]);
    let two = shard([("x", 0, 4), ("y", 4, 8)]);
    let event =
        machine.reshard(std::slice::from_ref(&all), &[one, two.clone()], &CopyOptions::default());
    event.unwrap().wait(PATIENCE).unwrap();
    let (from, to) = (all.to_vec().unwrap(), two.to_vec().unwrap());
    for (x, y) in (0..4).flat_map(|x| (0..4).map(move |y| (x, y))) {
        let (there, here) = (4 * ((y + 4) * 8 + x), 4 * (x * 4 + y));
        assert_eq!(from[there..there + 4], to[here..here + 4], "x {x}, y {}", y + 4);
    }
}

/// As where there are more nodes than rows.
#[test]
fn a_shard_may_be_empty() {
    let machine = Machine::builder().assume(true).lanes(1).staging(8 << 20).open().unwrap();
    let shard = |lo: i64, hi: i64| {
        let space = IndexSpace::new(vec![Dim { name: "x".into(), lo, hi }]).unwrap();
        machine.empty(Array::new(space, FieldSpace::packed(&[4]).unwrap()), "sys").unwrap()
    };
    let (src, dst) = (vec![shard(0, 4)], vec![shard(0, 4), shard(4, 4)]);
    machine.reshard(&src, &dst, &CopyOptions::default()).unwrap().wait(PATIENCE).unwrap();
    machine.reshard(&dst, &src, &CopyOptions::default()).unwrap().wait(PATIENCE).unwrap();
}

/// Also where it is a replica that others have.
#[test]
fn a_shard_comes_from_its_own_node_where_that_has_it() {
    let nodes = joined(&Job::new(2).unwrap(), 2);
    let pairs =
        [0, 1].map(|node: usize| ["src", "dst"].map(|_| matrix(&nodes[node], (40, 40), "yx")));
    let shards = |which: usize, name: &str| {
        let of = |node: usize| {
            nodes[node].publish(name, &pairs[node][which]).unwrap();
            nodes[0].lookup(&format!("node{node}/{name}"), PATIENCE).unwrap()
        };
        [0, 1].map(of)
    };
    let (src, dst) = (shards(0, "src"), shards(1, "dst"));
    let event = nodes[0].reshard(&src, &dst, &CopyOptions::default()).unwrap();
    event.wait(PATIENCE).unwrap();
    for report in event.report() {
        let on = |at: usize| report.plan.memories[at].node;
        assert_eq!(on(0), on(report.plan.memories.len() - 1), "{:?}", report.plan.memories);
    }
}
