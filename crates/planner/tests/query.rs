//! What a query may ask for, and how much of a search its payload is worth.

use isometry_planner::{ErrorKind, Options, PlanError, Query, plan};
use model::{Layout, MemoryId, NodeId};

const SAPLING: &str = include_str!("../../../clusters/sapling.toml");

/// What is wrong with a query between two host memories; `None` where it has a plan.
fn wrong(layouts: [&Layout; 2], extents: &[u64], fields: &[u64], phase: &[u64]) -> Option<String> {
    let topology = cluster::parse(SAPLING).unwrap();
    let memory = |index| MemoryId { node: NodeId(0), index };
    let ends = ((memory(0), layouts[0]), (memory(1), layouts[1]));
    let mut query = Query::whole(ends.0, ends.1, extents, fields);
    query.dst.phase = phase;
    match plan(&topology, &query, &Options::default()) {
        Ok(_) => None,
        Err(PlanError::Query { why }) => Some(why.to_owned()),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_query_that_contradicts_itself_is_refused_by_its_contradiction() {
    let [one, two, eight] = [1, 2, 8].map(Layout::row_major);
    let says = |found: Option<String>, part: &str| {
        assert!(found.as_ref().is_some_and(|why| why.contains(part)), "{found:?}, not {part}");
    };
    says(wrong([&one, &one], &[], &[4], &[]), "1 to 8 dimensions");
    says(wrong([&eight, &eight], &[2; 9], &[4], &[]), "1 to 8 dimensions");
    assert_eq!(wrong([&eight, &eight], &[2; 8], &[4], &[]), None);
    says(wrong([&one, &one], &[9], &[], &[]), "at least one field");
    says(wrong([&one, &one], &[9], &[4, 0], &[]), "at least one field");
    says(wrong([&two, &two], &[9, 9], &[4], &[1]), "a phase is needed");
    assert_eq!(wrong([&two, &two], &[9, 9], &[4], &[1, 0]), None);
    says(wrong([&two, &one], &[9, 9], &[4], &[]), "a layout has other dimensions");
    says(wrong([&two, &two], &[9], &[4], &[]), "a layout has other dimensions");
}

#[test]
fn two_nodes_have_so_many_memories_and_channels_and_no_more() {
    let refused = |memories: usize, channels: usize| {
        let memory = |i| format!("{{ name = \"m{i}\", kind = \"SYS\" }},");
        let channel = "{ kind = \"Memcpy\", from = [\"m0\"], to = [\"m1\"], throughput = 1e9 },";
        let text = format!(
            "[[node]]\nname = \"n\"\nmemory = [{}]\nchannel = [{}]",
            (0..memories).map(memory).collect::<String>(),
            channel.repeat(channels)
        );
        let topology = cluster::parse(&text).unwrap();
        let (layout, id) = (Layout::row_major(1), |index| MemoryId { node: NodeId(0), index });
        let query = Query::whole((id(0), &layout), (id(1), &layout), &[100], &[4]);
        match plan(&topology, &query, &Options::default()) {
            Ok(_) => None,
            Err(PlanError::Query { why }) => Some(why),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(64, 250), None);
    assert_eq!(refused(65, 1), Some("the nodes have more than 64 memories"));
    assert_eq!(refused(2, 251), Some("the nodes have more than 250 channels"));
}

#[test]
fn the_search_budget_grows_with_the_payload_within_limits() {
    let options = Options::default();
    let budgets = [1 << 20, 1 << 30, 1 << 40].map(|bytes| options.budget_for(bytes));
    assert_eq!(budgets, [32, 2048, 20_000]);
    assert_eq!(Options { budget: Some(7), ..options }.budget_for(1 << 30), 7);
}

#[test]
fn an_error_names_what_was_asked_for() {
    let [src, dst] = [(0, 1), (3, 2)].map(|(node, index)| MemoryId { node: NodeId(node), index });
    let says = |error: &PlanError, kind, text: &str| {
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
        assert!(!error.is_retryable());
    };
    let unknown = PlanError::UnknownMemory { memory: dst };
    says(&unknown, ErrorKind::Query, "memory 2 of node3 is not in the topology");
    let wrong = PlanError::Query { why: "at least one field is needed, and none of size 0" };
    let text = "wrong query: at least one field is needed, and none of size 0";
    says(&wrong, ErrorKind::Query, text);
    let text = "no path of channels leads from memory 1 of node0 to memory 2 of node3; where TH is 0 it \
                can't pass through";
    says(&PlanError::NoPath { src, dst }, ErrorKind::NoPath, text);
    let text = "every path from memory 1 of node0 to memory 2 of node3 needs an intermediate buffer \
                larger than TH allows: ask for more, or give running nodes more staging";
    says(&PlanError::Space { src, dst }, ErrorKind::Space, text);
    let named = unknown.told(|id| format!("m{}", id.index));
    assert_eq!(named, "m2 is not in the topology");
}
