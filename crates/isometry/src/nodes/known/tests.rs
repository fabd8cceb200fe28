//! What a node makes of what it hears.

use super::*;
use model::{LinkEnd, Memory};

const REGION: RegionId = RegionId { index: 4, generation: 1 };

fn said() -> Introduction {
    of_memories(&[MemoryKind::Sys], None)
}

/// Of a node with these memories, one that is registered, and such devices.
fn of_memories(kinds: &[MemoryKind], reach: Option<PeerReach>) -> Introduction {
    let memory = |(i, &kind): (usize, &MemoryKind)| Memory {
        name: format!("memory{i}"),
        kind,
        capacity_bytes: None,
        th_bytes: Some(1 << 20),
        port: None,
    };
    let mut class = NodeClass {
        name: "node".to_owned(),
        first: 0,
        count: 1,
        memories: kinds.iter().enumerate().map(memory).collect(),
        channels: Vec::new(),
        wires: Vec::new(),
    };
    topology::add_registered(&mut class, 64);
    let memory = MemoryId { node: NodeId(0), index: kinds.len() as u16 };
    let registered = Registered { memory, region: REGION, bytes: 64, reach };
    Introduction::new(None, class, &registered, None)
}

#[test]
fn the_cluster_is_of_those_that_said_what_they_are() {
    let mut known = Known::default();
    assert!(known.changed(NodeId(2), Change::default()).is_none());
    known.hear(NodeId(2), said()).unwrap();
    let cluster = known.cluster();
    assert!(known.knows(NodeId(2)) && !known.knows(NodeId(0)) && !known.knows(NodeId(3)));
    assert_eq!((cluster.classes.len(), cluster.node_count()), (2, 3));
    assert_eq!(cluster.memory_named("node1.reg"), None);
    let again = cluster::parse_json(&cluster::to_json(&cluster).to_string()).unwrap();
    assert_eq!(again.classes, cluster.classes);
    known.hear(NodeId(0), said()).unwrap();
    known.hear(NodeId(1), said()).unwrap();
    let cluster = known.cluster();
    assert_eq!((cluster.classes.len(), cluster.node_count()), (1, 3));
    let mut changed = class();
    changed.memories[0].capacity_bytes = Some(5);
    let change = Change { class: Some(changed), ..Change::default() };
    let changed = known.changed(NodeId(1), change).unwrap();
    known.hear(NodeId(1), changed).unwrap();
    let later = known.cluster();
    assert_eq!(later.classes.len(), 3);
    assert!(later.generation > cluster.generation);
    let reg = MemoryId { node: NodeId(1), index: 1 };
    assert_eq!(known.registered(reg, REGION).unwrap().len_bytes(), 64);
    let other = RegionId { index: 5, ..REGION };
    assert!(known.registered(reg, other).is_none());
    assert!(known.registered(MemoryId { index: 0, ..reg }, REGION).is_none());
}

#[test]
fn nodes_of_a_name_are_those_that_have_and_had_it() {
    let mut known = Known::default();
    let called = |name: &str| Introduction { name: Some(name.to_owned()), ..said() };
    for (node, said) in [(0, said()), (1, called("a")), (4, called("b")), (5, called("a"))] {
        known.hear(NodeId(node), said).unwrap();
    }
    assert_eq!(known.named("a").collect::<Vec<_>>(), [NodeId(1), NodeId(5)]);
    assert_eq!(known.named("node0").count(), 0);
    assert_eq!((known.name(NodeId(4)), known.name(NodeId(0))), (Some("b"), None));
    assert_eq!(known.all(), "node0, a (node1), b (node4), a (node5)");
    let changed = known.changed(NodeId(4), Change::default()).unwrap();
    assert_eq!(changed, called("b"), "it keeps its name");
}

#[test]
fn why_a_device_is_lost_is_known_from_then_on() {
    let mut known = Known::default();
    known.hear(NodeId(1), said()).unwrap();
    let lost = MemoryId { node: NodeId(1), index: 0 };
    assert_eq!(known.why_lost(lost), None);
    let it_fell = || vec![(0, "it fell".to_owned())];
    for lost in [it_fell(), Vec::new()] {
        let changed = known.changed(NodeId(1), Change { lost, ..Change::default() }).unwrap();
        known.hear(NodeId(1), changed).unwrap();
    }
    assert_eq!(known.why_lost(lost), Some("it fell"), "other changes keep that");
    assert_eq!(known.why_lost(MemoryId { index: 1, ..lost }), None);
    assert_eq!(known.why_lost(MemoryId { node: NodeId(0), ..lost }), None);
}

fn on_device(own: u16, memory: u16) -> OnDevice {
    let region = RegionId { index: 9, generation: 0 };
    let window = Window { start: 0x7000, bytes: 32, key: vec![1, 2] };
    OnDevice::in_window(own, (memory, region), window)
}

/// Of a process of its own, with devices and no room yet.
fn opening(machine: u8, process: u32) -> Introduction {
    let reach = Some(PeerReach::Machine([machine; 32], process));
    Introduction { reach, ..on_devices(Vec::new()) }
}

/// And with room that others open.
fn exporting(process: u32) -> Introduction {
    let OnDevice { own, memory, region, bytes, .. } = on_device(0, 1);
    let room = OnDevice::exported(own, (memory, region), (bytes, IpcHandle([7; 64])));
    Introduction { rooms: vec![room], ..opening(1, process) }
}

#[test]
fn room_that_was_opened_stays_so_until_its_node_is_lost() {
    let mut known = Known::default();
    known.hear(NodeId(1), exporting(8)).unwrap();
    let memory = MemoryId { node: NodeId(1), index: 1 };
    let room = |known: &Known| known.registered(memory, on_device(0, 1).region);
    let before = room(&known).unwrap();
    let apart = vec![(0, MemoryId { node: NodeId(2), index: 1 })];
    known.hear(NodeId(1), Introduction { apart, ..exporting(8) }).unwrap();
    assert!(Arc::ptr_eq(&before, &room(&known).unwrap()), "the node has changed");
    let mut another = exporting(8);
    another.rooms[0].way = Way::Opened([[8; 32]; 2]);
    known.hear(NodeId(1), another).unwrap();
    assert!(!Arc::ptr_eq(&before, &room(&known).unwrap()), "and exports other memory");
    let host = || MemoryId { index: exporting(8).memory, ..memory };
    known.lose(NodeId(1));
    known.lose(NodeId(7));
    assert!(room(&known).is_none());
    assert!(known.registered(host(), REGION).is_some());
}

#[test]
fn who_is_heard_once_it_is_lost_has_no_rooms_and_is_linked_to_none() {
    let mut known = Known::default();
    known.hear(NodeId(0), opening(1, 8)).unwrap();
    known.lose(NodeId(1));
    known.hear(NodeId(1), exporting(9)).unwrap();
    let memory = MemoryId { node: NodeId(1), index: 1 };
    assert!(known.registered(memory, on_device(0, 1).region).is_none());
    assert!(!known.needs_rooms(NodeId(0)));
    known.hear(NodeId(2), exporting(9)).unwrap();
    assert!(known.needs_rooms(NodeId(0)), "its process has come back as another node");
}

#[test]
fn what_is_exported_is_linked_where_each_node_is_a_process() {
    let mut known = Known::default();
    let ends = |known: &Known| {
        let link = known.cluster().links.get(1).cloned();
        link.map_or((0, 0, 0), |link| (link.from.len(), link.to.len(), link.except.len()))
    };
    known.hear(NodeId(0), exporting(8)).unwrap();
    let apart = vec![(0, MemoryId { node: NodeId(0), index: 1 })];
    known.hear(NodeId(1), Introduction { apart, ..exporting(9) }).unwrap();
    assert_eq!(ends(&known), (2, 2, 1), "one does not reach the other");
    known.hear(NodeId(2), exporting(9)).unwrap();
    assert_eq!(ends(&known), (0, 0, 0));
    known.lose(NodeId(1));
    assert_eq!(ends(&known), (3, 3, 1), "its process has come back as another node");
}

#[test]
fn room_is_needed_once_another_would_put_there() {
    let mut known = Known::default();
    let needs = |known: &mut Known, node, said| {
        known.hear(NodeId(node), said).unwrap();
        known.needs_rooms(NodeId(0))
    };
    for (node, said, what) in [
        (0, opening(1, 8), "alone"),
        (1, said(), "a host"),
        (2, on_devices(Vec::new()), "of which a network reaches the devices"),
        (3, opening(2, 9), "of another machine"),
        (4, opening(1, 8), "of the same process"),
        (5, opening(1, 9), "of another process, among two that are of one"),
    ] {
        assert!(!needs(&mut known, node, said), "{what}");
    }
    let before = known.cluster().generation;
    known.lose(NodeId(4));
    assert!(known.cluster().generation > before);
    assert!(known.needs_rooms(NodeId(0)) && !known.needs_rooms(NodeId(1)));
    for rooms in [Rooms::Opened, Rooms::Withdrawn] {
        known.rooms = rooms;
        assert!(!known.needs_rooms(NodeId(0)), "{rooms:?}");
    }
}

#[test]
fn devices_of_one_machine_are_linked_and_those_of_two_are_not() {
    let mut known = Known::default();
    let of = |machine, process| {
        let Introduction { reach, .. } = opening(machine, process);
        Introduction { reach, ..exporting(process) }
    };
    // Numbers of processes are those of their machines.
    for (node, said) in
        [(0, of(1, 8)), (1, of(2, 8)), (2, of(1, 9)), (3, on_devices(vec![on_device(0, 1)]))]
    {
        known.hear(NodeId(node), said).unwrap();
    }
    let link = &known.cluster().links[1];
    let end = |class, memory| LinkEnd { class, memory };
    let joined = |from| [0, 1, 2, 3].map(|to| link.joins(end(from, 0), end(to, 1)));
    assert_eq!(joined(0), [true, false, true, false]);
    assert_eq!(joined(1), [false, true, false, false]);
    assert_eq!(joined(3), [false, false, false, true]);
}

#[test]
fn nodes_of_several_machines_look_alike_while_they_have_no_rooms() {
    let mut known = Known::default();
    let Introduction { rooms, .. } = exporting(8);
    let open = |machine| Introduction { rooms: rooms.clone(), ..opening(machine, 8) };
    let it_fell = || vec![(0, "it fell".to_owned())];
    let lost = |machine| Introduction { lost: it_fell(), ..open(machine) };
    for (node, said, classes) in [
        (0, opening(0, 8), 1),
        (1, opening(1, 8), 1),
        (2, opening(2, 8), 1),
        (1, open(1), 3),
        (2, open(2), 3),
        (1, lost(1), 2),
        (2, lost(2), 1),
    ] {
        known.hear(NodeId(node), said).unwrap();
        assert_eq!(known.cluster().classes.len(), classes, "{node}");
    }
}

/// Of a node with two memories of devices before that of its host, whose network reaches these.
fn on_devices(rooms: Vec<OnDevice>) -> Introduction {
    let kinds = [MemoryKind::Fbm, MemoryKind::Fbm, MemoryKind::Sys];
    Introduction { rooms, ..of_memories(&kinds, Some(PeerReach::Network)) }
}

#[test]
fn room_of_a_device_is_found_and_linked_until_it_is_lost() {
    let mut known = Known::default();
    for node in [0, 1] {
        known.hear(NodeId(node), on_devices(vec![on_device(0, 1)])).unwrap();
    }
    let memory = MemoryId { node: NodeId(1), index: 1 };
    let there = known.registered(memory, on_device(0, 1).region).unwrap();
    let span: &RemoteSpan = there.view().unwrap();
    assert_eq!((there.len_bytes(), span.node), (32, NodeId(1)));
    assert_eq!(span.window.as_ref().unwrap().start, 0x7000);
    assert!(known.registered(MemoryId { index: 0, ..memory }, on_device(0, 1).region).is_none());
    let ends = |known: &Known| {
        known.cluster().links.get(1).map(|link| (link.from.clone(), link.to.clone()))
    };
    let of_class = |class| (vec![LinkEnd { class, memory: 0 }], vec![LinkEnd { class, memory: 1 }]);
    assert_eq!(ends(&known), Some(of_class(0)));
    let lose = |known: &mut Known, node| {
        let change = Change { lost: vec![(0, "it fell".to_owned())], ..Change::default() };
        let changed = known.changed(NodeId(node), change).unwrap();
        known.hear(NodeId(node), changed).unwrap();
    };
    lose(&mut known, 1);
    assert_eq!(ends(&known), Some(of_class(0)), "that of the other");
    assert_eq!(known.cluster().classes.len(), 2);
    lose(&mut known, 0);
    assert_eq!(ends(&known), None);
}

#[test]
fn what_is_withdrawn_is_closed_once_no_job_has_it() {
    let mut known = Known::default();
    let ends = |known: &Known| {
        let ends = known.cluster().links[1].to.iter().map(|end| end.class).collect::<Vec<_>>();
        (ends, known.cluster().classes.len())
    };
    for node in [0, 1] {
        known.hear(NodeId(node), exporting(7 + node)).unwrap();
    }
    let (node, region) = (NodeId(1), on_device(0, 1).region);
    assert_eq!((known.exported(node), ends(&known)), (vec![region], (vec![0], 1)));
    let job = known.registered(MemoryId { node, index: 1 }, region).unwrap();
    let change = Change { rooms: Some(Vec::new()), ..Change::default() };
    let changed = known.changed(node, change).unwrap();
    let rooms = known.hear(node, changed).unwrap();
    known.withdraw(node, rooms);
    assert_eq!((known.exported(node), ends(&known)), (vec![], (vec![0], 2)));
    assert!(known.registered(job.memory(), region).is_none());
    assert!(known.take_withdrawn().is_empty());
    drop(job);
    let taken = known.take_withdrawn();
    assert!(taken.len() == 1 && known.take_withdrawn().is_empty());
    // Another of its rooms, that is closed before this one is.
    let other = Region::device(MemoryId { node, index: 2 }, 1, Arc::new(()));
    known.withdraw(node, vec![Arc::new(other)]);
    assert_eq!(known.take_withdrawn().len(), 1);
    assert_eq!(known.closed(vec![node]), BTreeSet::new());
    assert_eq!(known.closed(vec![node]), BTreeSet::from([node]));
}

fn class() -> NodeClass {
    cluster::parse_json(&said().topology).unwrap().classes.remove(0)
}

#[test]
fn nonsense_is_told() {
    let mut known = Known::default();
    let wrong = [
        Introduction { topology: "{".to_owned(), ..said() },
        Introduction { memory: 2, ..said() },
        on_devices(vec![on_device(0, 1), on_device(0, 4)]),
        on_devices(vec![on_device(4, 1)]),
        on_devices(vec![on_device(0, 2)]),
        on_devices(vec![on_device(2, 1)]),
        on_devices(vec![on_device(1, 1)]),
        on_devices(vec![OnDevice { way: Way::Window(0x7000, Vec::new()), ..on_device(0, 1) }]),
        Introduction { reach: None, ..on_devices(vec![on_device(0, 1)]) },
        Introduction { reach: Some(PeerReach::Network), ..exporting(1) },
        Introduction { reach: exporting(1).reach, ..on_devices(vec![on_device(0, 1)]) },
        Introduction { name: Some("a/b".to_owned()), ..said() },
        Introduction { name: Some("node3".to_owned()), ..said() },
        Introduction { topology: said().topology.replace("\"count\":1", "\"count\":0"), ..said() },
    ];
    for said in wrong {
        assert!(known.hear(NodeId(1), said.clone()).is_err(), "{said:?}");
    }
    assert!(!known.knows(NodeId(1)));
}
