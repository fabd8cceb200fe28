use super::*;
use model::{CopyDim, FieldCopy, NodeId};
use std::sync::Arc;

const HERE: MemoryId = MemoryId { node: NodeId(0), index: 0 };

fn place(region: RegionId, offset: u64) -> Place {
    Place { region, offset }
}

/// Two rows of three one-byte fields, turned into columns.
fn work(src: Place, dst: Place) -> CopyWork {
    let dim = CopyDim { extent: 2, src_index: None, dst_index: None };
    let strides = vec![Stride { src: 3, dst: 1 }];
    let field = |i: i64| FieldCopy {
        bytes: 1,
        src_offset: i,
        dst_offset: 2 * i,
        padding: 0,
        strides: strides.clone(),
    };
    let copy = NdCopy { dims: vec![dim], fields: (0..3).map(field).collect() };
    CopyWork { list: Arc::from([copy]), src, dst, payload_bytes: 6, result_bytes: 6 }
}

fn arena_and_instance() -> (Memories, RegionId, RegionId) {
    let mut memories = Memories::new(true);
    let arena = memories.add_arena(HERE, 16);
    let instance = memories.add_instance(HERE, (1..=8).collect());
    (memories, arena, instance)
}

#[test]
fn bytes_arrive_as_the_oracle_says() {
    let (mut memories, arena, instance) = arena_and_instance();
    let work = work(place(instance, 1), place(arena, 4));
    memories.begin(7, &work).unwrap();
    let taken = memories.read(&work);
    memories.scribble(&work, 0);
    assert_eq!(memories.bytes(arena)[4..10], [0; 6]);
    memories.write(&work, &taken);
    memories.end(7, &work).unwrap();
    let mut expected = vec![POISON; 16];
    for copy in work.list.iter() {
        layout::oracle::copy(copy, memories.bytes(instance), 1, &mut expected, 4);
    }
    assert_eq!(memories.bytes(arena), expected);
    assert_eq!(memories.bytes(arena)[4..10], [2, 5, 3, 6, 4, 7]);
}

#[test]
fn staging_is_written_before_it_is_read_and_read_before_it_is_written() {
    let (mut memories, arena, instance) = arena_and_instance();
    let fill = work(place(instance, 0), place(arena, 0));
    let drain = work(place(arena, 0), place(instance, 0));
    assert!(matches!(memories.begin(1, &drain), Err(Violation::ReadsUnwritten { .. })));

    let (mut memories, ..) = arena_and_instance();
    memories.begin(1, &fill).unwrap();
    assert!(matches!(memories.begin(1, &drain), Err(Violation::ReadsUnwritten { .. })));

    let (mut memories, ..) = arena_and_instance();
    memories.begin(1, &fill).unwrap();
    memories.end(1, &fill).unwrap();
    assert!(matches!(memories.begin(1, &fill), Err(Violation::OverwritesUnread { .. })));

    let (mut memories, ..) = arena_and_instance();
    memories.begin(1, &fill).unwrap();
    memories.end(1, &fill).unwrap();
    assert!(matches!(memories.begin(2, &drain), Err(Violation::ReadsUnwritten { .. })));
}

#[test]
fn what_was_read_is_poisoned_at_once() {
    let (mut memories, arena, instance) = arena_and_instance();
    let fill = work(place(instance, 0), place(arena, 0));
    let drain = work(place(arena, 0), place(instance, 0));
    memories.begin(1, &fill).unwrap();
    memories.write(&fill, &[1; 6]);
    memories.end(1, &fill).unwrap();
    memories.begin(1, &drain).unwrap();
    assert!(matches!(memories.forget(1, |_| true), Err(Violation::EndedInFlight)));
    memories.end(1, &drain).unwrap();
    assert_eq!(memories.bytes(arena), [POISON; 16]);
    assert_eq!((memories.forget(1, |_| true), memories.staged_bytes()), (Ok(0), 0));
}

#[test]
fn an_ended_transfer_gives_back_what_it_left() {
    let (mut memories, arena, instance) = arena_and_instance();
    let fill = work(place(instance, 0), place(arena, 0));
    memories.begin(1, &fill).unwrap();
    memories.end(1, &fill).unwrap();
    assert_eq!(memories.staged_bytes(), 6);
    assert_eq!((memories.forget(1, |_| true), memories.staged_bytes()), (Ok(6), 0));
    memories.begin(2, &fill).unwrap();
}

#[test]
fn no_copy_reaches_outside_its_region() {
    for payload in [true, false] {
        let mut memories = Memories::new(payload);
        let arena = memories.add_arena(HERE, 16);
        let instance = memories.add_length(HERE, 8);
        let outside = |e: Result<(), Violation>| matches!(e, Err(Violation::OutOfBounds { .. }));
        assert!(outside(memories.begin(1, &work(place(instance, 3), place(arena, 0)))));
        assert!(outside(memories.begin(1, &work(place(arena, 0), place(instance, 3)))));
        let unknown = RegionId { index: 9, generation: 0 };
        assert!(outside(memories.begin(1, &work(place(unknown, 0), place(arena, 0)))));
    }
}
