//! Which nodes a search visits, and the edges between them.

use super::*;

/// Classes `b` of two nodes, `a`, `c` and `d` of one each, with links between these pairs.
fn topology(links: &[(&str, &str)]) -> Topology {
    let class = |(name, count)| {
        format!(
            "[[node]]\nname = \"{name}\"\ncount = {count}\n\
             memory = [ {{ name = \"m\", kind = \"REG\" }}, {{ name = \"o\", kind = \"SYS\" }} ]\n\
             channel = [ {{ kind = \"Memcpy\", from = [\"m\"], to = [\"o\", \"m\"], \
             throughput = 1e9 }} ]\n"
        )
    };
    let link = |(from, to): &(&str, &str)| {
        format!(
            "[[link]]\nkind = \"RemoteMemcpy\"\nfrom = [\"{from}.m\"]\nto = [\"{to}.m\"]\n\
             throughput = 1e9\n"
        )
    };
    let classes = [("b", 2), ("a", 1), ("c", 1), ("d", 1)].map(class);
    let links: Vec<_> = links.iter().map(link).collect();
    cluster::parse(&(classes.concat() + &links.concat())).unwrap()
}

const B0: NodeId = NodeId(0);
const B1: NodeId = NodeId(1);
const A: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const D: NodeId = NodeId(4);

#[test]
fn a_search_visits_a_shortest_chain_of_nodes() {
    let row = topology(&[("a", "b"), ("b", "c"), ("c", "d")]);
    assert_eq!(nodes_between(&row, A, A), [A]);
    assert_eq!(nodes_between(&row, A, B1), [A, B1]);
    assert_eq!(nodes_between(&row, A, C), [A, B0, C]);
    assert_eq!(nodes_between(&row, A, D), [A, B0, C, D]);
    // Against the links there is no chain; a search of the two finds that out.
    assert_eq!(nodes_between(&row, D, A), [D, A]);
    assert_eq!(nodes_between(&row, B0, B1), [B0, B1]);
    let shorter = topology(&[("a", "b"), ("b", "c"), ("c", "d"), ("a", "c")]);
    assert_eq!(nodes_between(&shorter, A, D), [A, C, D]);
    let star = topology(&[("b", "a"), ("a", "b"), ("a", "c")]);
    assert_eq!(nodes_between(&star, B0, B1), [B0, A, B1]);
    assert_eq!(nodes_between(&star, B1, C), [B1, A, C]);
}

#[test]
fn links_join_nodes_of_their_classes_in_their_direction() {
    let row = topology(&[("a", "b"), ("b", "b")]);
    let m = |node| MemoryId { node, index: 0 };
    let ends = (m(A), m(B1));
    let graph = Graph::of(&row, &[A, B0, B1], ends, &Options::default()).unwrap();
    // Two vertices a node; lanes are the three channels, then the links that start at each node.
    assert_eq!((graph.src, graph.dst, graph.vertices.len(), graph.lanes.len()), (0, 4, 6, 6));
    let edges = |from: u8| {
        let mut found = Vec::new();
        graph.each_edge(1 << from, u64::MAX, |edge| found.push((edge.lane, edge.order, edge.to)));
        found
    };
    assert_eq!(edges(0), [(0, 0, 1), (0, 1, 0), (3, 0, 2), (3, 1, 4)]);
    assert_eq!(edges(2), [(1, 0, 3), (1, 1, 2), (4, 0, 4)]);
    assert_eq!(edges(4), [(2, 0, 5), (2, 1, 4), (5, 0, 2)]);
    assert_eq!(edges(1), []);
    assert_eq!(graph.after(1 << 2), 0b01_1100);
    assert_eq!(graph.before(1 << 4), 0b01_0101);
    assert_eq!(graph.intermediates(), 0b11_1111);
    assert_eq!(Some(graph.lanes[4].id), ChannelId::of_link(B0, 1));
    let alone = Graph::of(&row, &[A], (m(A), m(A)), &Options::default()).unwrap();
    assert_eq!(alone.lanes.len(), 1);
}

#[test]
fn a_link_joins_no_pair_that_it_excepts() {
    let mut row = topology(&[("a", "c")]);
    let [m, o] = [0, 1].map(|index| move |node| MemoryId { node, index });
    let [from, to] = [1, 2].map(|class| [0, 1].map(|memory| LinkEnd { class, memory }));
    (row.links[0].from, row.links[0].to) = (from.to_vec(), to.to_vec());
    let edges = |row: &Topology| {
        let graph = Graph::of(row, &[A, C], (m(A), m(C)), &Options::default()).unwrap();
        let mut found = Vec::new();
        graph.each_edge(0b11, 0b1100, |edge| found.push((edge.from, edge.order, edge.to)));
        (found, [graph.after(0b10), graph.before(0b100) & 0b11])
    };
    let both = |from| [(from, 0, 2), (from, 1, 3)];
    assert_eq!(edges(&row), ([both(0), both(1)].concat(), [0b1100, 0b11]));
    row.links[0].except = vec![[from[1], to[0]]];
    assert_eq!(edges(&row), (vec![(0, 0, 2), (0, 1, 3), (1, 1, 3)], [0b1000, 0b01]));
    let ends = (o(A), m(C));
    let graph = Graph::of(&row, &[A, C], ends, &Options::default()).unwrap();
    let [first, second] = &graph.lanes[2..] else { panic!("{:?}", graph.lanes) };
    assert_eq!((first.id, first.excludes(second)), (second.id, true), "it is one channel");
}
