//! Tests of the invariants that constructors hold.

use crate::*;

fn nhwc() -> IndexSpace {
    IndexSpace::of(&[("n", 2), ("h", 4), ("w", 6), ("c", 3)]).unwrap()
}

#[test]
fn an_index_space_refuses_what_breaks_it() {
    assert_eq!(IndexSpace::of(&[]), Err(ModelError::Rank { dims: 0 }));
    assert!(matches!(IndexSpace::of(&[("x", 1), ("x", 1)]), Err(ModelError::DimName { .. })));
    assert!(matches!(IndexSpace::of(&[("x y", 1)]), Err(ModelError::DimName { .. })));
    let fields = IndexSpace::of(&[("F", 1)]).unwrap_err();
    assert!(fields.to_string().contains("not `F`"), "{fields}");
    assert_eq!(IndexSpace::of(&[("x", 1 << 40), ("y", 1 << 40)]), Err(ModelError::TooLarge));
    let backwards = Dim { name: "x".into(), lo: 3, hi: 2 };
    assert!(matches!(IndexSpace::new(vec![backwards]), Err(ModelError::Bounds { .. })));
    assert_eq!(nhwc().entries(), 144);
}

#[test]
fn a_selection_stays_inside() {
    let space = IndexSpace::new(vec![Dim { name: "x".into(), lo: -4, hi: 4 }]).unwrap();
    let span = Span::Range { lo: -4, hi: 0 };
    assert_eq!(Selection::new(&space, vec![span]).unwrap().extents(), [4]);
    let refused = |span| Selection::new(&space, vec![span]).unwrap_err().to_string();
    let outside = "lie outside dimension `x` of -4..4, or run backwards";
    assert_eq!(refused(Span::Range { lo: -5, hi: 0 }), format!("indices -5..0 {outside}"));
    assert_eq!(refused(Span::Range { lo: 2, hi: 1 }), format!("indices 2..1 {outside}"));
    assert_eq!(refused(Span::List([3, -4, 4].into())), format!("indices -4..5 {outside}"));
    assert_eq!(Span::List([].into()).hull(), 0..0);
    assert_eq!(Selection::all(&space).extents(), [8]);
    let wide = IndexSpace::of(&[("x", 1 << 62), ("y", 1)]).unwrap();
    let all = Span::Range { lo: 0, hi: 1 << 62 };
    let twice = Selection::new(&wide, vec![all, Span::List([0, 0].into())]);
    assert_eq!(twice, Err(ModelError::TooLarge));
}

#[test]
fn a_field_space_refuses_overlap() {
    let field =
        |name: &str, bytes, offset| Field { name: name.into(), bytes, offset, dtype: "".into() };
    assert!(FieldSpace::new(vec![field("a", 4, 0), field("b", 4, 2)], 8).is_err());
    assert!(FieldSpace::new(vec![field("a", 4, 0), field("a", 4, 4)], 8).is_err());
    assert!(FieldSpace::new(vec![field("a", 4, 6)], 8).is_err());
    let padded = FieldSpace::new(vec![field("a", 1, 0), field("b", 8, 8)], 16).unwrap();
    assert!(!padded.is_packed());
    assert_eq!((padded.payload_bytes(), padded.item_bytes()), (9, 16));
    assert!(FieldSpace::packed(&[4, 4, 8]).unwrap().is_packed());
}

#[test]
fn a_layout_holds_each_dimension_once() {
    use Component::{Fields, Inner, Outer, Whole};
    let inner = |dim, level, size| Inner { dim, level, size };
    assert!(Layout::new(vec![Fields, Whole(0)], 1).is_ok());
    assert!(Layout::new(vec![inner(0, 1, 4), Fields, inner(0, 2, 8), Outer(0)], 1).is_ok());
    for wrong in [
        vec![Whole(0)],
        vec![Fields, Fields, Whole(0)],
        vec![Fields],
        vec![Fields, Whole(0), Outer(0)],
        vec![Fields, inner(0, 1, 4)],
        vec![Fields, Outer(0)],
        vec![Fields, inner(0, 2, 4), Outer(0)],
        vec![Fields, inner(0, 1, 0), Outer(0)],
        vec![Fields, Whole(1)],
    ] {
        assert!(Layout::new(wrong.clone(), 1).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_layout_prints_as_the_paper_writes_it() {
    use Component::{Fields, Inner, Outer, Whole};
    let space = IndexSpace::of(&[("y", 8), ("x", 8)]).unwrap();
    let inner = |dim, level, size| Inner { dim, level, size };
    let components = vec![inner(1, 1, 4), Fields, Whole(0), inner(1, 2, 8), Outer(1)];
    let layout = Layout::new(components, 2).unwrap();
    assert_eq!(layout.display(&space).to_string(), "<x_in=4, F, y, x_in2=8, x_out>");
    assert!(layout.blocks(1).eq([4, 8]));
    assert_eq!(Layout::row_major(2).display(&space).to_string(), "<F, x, y>");
}

#[test]
fn a_link_joins_its_ends_but_for_some_pairs() {
    let end = |memory| LinkEnd { class: 0, memory };
    let mut link = Link {
        kind: ChannelKind::RemoteMemcpy,
        from: vec![end(0), end(1)],
        to: vec![end(2), end(3)],
        groups: vec![],
        except: vec![],
        curves: Curves::all(Throughput::constant(1.0).unwrap()),
        latency_ns: 0,
        in_flight: None,
        assumed: true,
    };
    assert!(link.joins(end(1), end(2)) && !link.joins(end(2), end(1)));
    assert_eq!(link.starts().collect::<Vec<_>>(), [[end(0), end(1)]]);
    link.except.push([end(1), end(2)]);
    assert!(
        !link.joins(end(1), end(2)) && link.joins(end(1), end(3)) && link.joins(end(0), end(2))
    );
    assert_eq!(link.starts().collect::<Vec<_>>(), [[end(0)], [end(1)]]);
    link.from.clear();
    assert_eq!(link.starts().count(), 0);
}

#[test]
fn a_link_joins_nodes_of_one_group_where_it_has_groups() {
    let end = |class| LinkEnd { class, memory: 0 };
    let ends = vec![end(0), end(1), end(2), end(3)];
    let link = Link {
        kind: ChannelKind::RemoteMemcpy,
        from: ends.clone(),
        to: ends,
        groups: vec![7, 7, 0, 7],
        except: vec![],
        curves: Curves::all(Throughput::constant(1.0).unwrap()),
        latency_ns: 0,
        in_flight: None,
        assumed: true,
    };
    let joined = |from| [0, 1, 2, 3].map(|to| link.joins(end(from), end(to)));
    assert_eq!(joined(0), [true, true, false, true]);
    assert_eq!(joined(2), [false, false, true, false]);
    let starts: Vec<_> = link.starts().collect();
    assert_eq!(starts, [&[end(0), end(1)][..], &[end(2)], &[end(3)]]);
}

#[test]
fn memories_are_found_by_name() {
    let memory = Memory {
        name: "sys".into(),
        kind: MemoryKind::Sys,
        capacity_bytes: None,
        th_bytes: None,
        port: None,
    };
    let class = NodeClass {
        name: "n".into(),
        first: 0,
        count: 2,
        memories: vec![memory],
        channels: vec![],
        wires: vec![],
    };
    let mut topology = Topology {
        name: "pair".into(),
        generation: 0,
        th_bytes: 1 << 20,
        classes: vec![class],
        links: vec![],
    };
    let id = topology.memory_named("n1.sys").unwrap();
    assert_eq!(id, MemoryId { node: NodeId(1), index: 0 });
    assert_eq!(topology.memory_name(id).unwrap(), "n1.sys");
    assert_eq!(topology.memory_named("n2.sys"), None);
    assert_eq!(topology.memory_named("sys"), None);
    topology.classes[0].count = 1;
    assert!(topology.memory_named("sys").is_some());
    let two = NodeClass { first: 1, count: 2, ..topology.classes[0].clone() };
    topology.classes.push(two);
    let id = topology.memory_named("n2.sys").unwrap();
    assert_eq!((id.node, topology.node_name(id.node)), (NodeId(2), Some("n2".to_owned())));
    assert_eq!(topology.memory_named("n3.sys"), None);
}
