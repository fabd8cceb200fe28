//! The default model against brute force: every path, order of layouts and blocking of small
//! cases, priced by the model's own prediction.

use crate::graph::{Edges, Graph};
use crate::path::{Path, Solution};
use crate::predict::{Case, granules};
use crate::shape::{Factors, Shape, WHOLE};
use crate::word::Word;
use crate::{Choice, Options, Query};
use model::{
    Algorithm, Component, CostModel, Curves, Layout, Limit, MemoryKind, NodeId, Throughput,
    Topology, Wire,
};
use random::{Random, random_layouts, random_topology};

#[path = "../tests/random/mod.rs"]
mod random;

/// A topology with rates of GB/s, kilobytes where the curves bend, and latencies.
fn timed_topology(random: &mut Random, payload: u64) -> Topology {
    let mut topology = random_topology(random, payload);
    for channel in &mut topology.classes[0].channels {
        let run = &channel.curves.run;
        let scaled = run.points().iter().map(|p| (p.0 * 256, p.1 * 1e3)).collect();
        if !run.is_constant() {
            channel.curves = Curves::all(Throughput::through(scaled).unwrap());
        } else {
            channel.curves = Curves::all(Throughput::constant(run.peak() * 1e3).unwrap());
        }
        channel.latency_ns = random.below(20_000);
    }
    topology
}

struct Brute<'a> {
    graph: &'a Graph<'a>,
    edges: &'a Edges,
    shape: &'a Shape,
    /// Each blocking with all orders of its atoms.
    orders: Vec<(Factors, Vec<Word>)>,
    best: f64,
}

impl Brute<'_> {
    fn walk(&mut self, path: &mut Path, at: u8, visited: &mut Vec<u8>, loops: &mut Vec<u8>) {
        for &edge in self.edges.out(at) {
            let taken = if edge.from == edge.to { &*loops } else { &*visited };
            let round = self.graph.src == self.graph.dst && edge.to == self.graph.dst;
            if taken.contains(&edge.to) && !(round && edge.from != edge.to) {
                continue;
            }
            path.push(edge);
            if edge.to == self.graph.dst {
                self.price(path);
            }
            if path.hops() < 4 && self.graph.th_bytes(edge.to) > 0 && !visited.contains(&edge.to) {
                visited.push(edge.to);
                self.walk(path, edge.to, visited, loops);
                visited.pop();
            } else if path.hops() < 4 && self.graph.th_bytes(edge.to) > 0 && edge.from == edge.to {
                loops.push(edge.to);
                self.walk(path, edge.to, visited, loops);
                loops.pop();
            }
            path.pop();
        }
    }

    fn price(&mut self, path: &Path) {
        for (factors, words) in std::mem::take(&mut self.orders) {
            for pivot in 0..path.hops() {
                for &before in &words {
                    for &after in &words {
                        let solution = Solution { factors, pivot, before, after };
                        self.offer(path, &solution);
                    }
                }
            }
            self.orders.push((factors, words));
        }
    }

    fn offer(&mut self, path: &Path, solution: &Solution) {
        let pivot = solution.pivot;
        if pivot > 0 && pivot + 1 < path.hops() {
            let window = solution.before.below_suffix(&solution.after);
            let edge = path.edges()[pivot];
            let th = self.graph.th_bytes(edge.from).min(self.graph.th_bytes(edge.to));
            let granule = self.shape.shuffle_bytes(window, &solution.factors);
            if solution.before != solution.after && granule > th / granules(CostModel::Default) {
                return;
            }
        }
        let (graph, shape, model) = (self.graph, self.shape, CostModel::Default);
        let seconds = Case { graph, shape, model, path, solution }.predict().seconds;
        self.best = self.best.min(seconds);
    }
}

/// All orders of the atoms of `word`.
fn orders(word: &Word) -> Vec<Word> {
    let mut all = vec![Word::EMPTY];
    for _ in word.atoms() {
        let longer = |head: &Word| {
            let head = *head;
            let rest = word.atoms().iter().filter(move |&&a| head.set() >> a & 1 == 0);
            rest.map(move |&atom| {
                let mut longer = head;
                longer.push(atom);
                longer
            })
            .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Two wires that channels cross at random, one of them half duplex, and a disk.
fn add_wires(random: &mut Random, topology: &mut Topology) {
    let class = &mut topology.classes[0];
    let mut wire = |half_duplex| Wire {
        name: format!("w{half_duplex}"),
        rate: random.within(1, 20) as f64 * 5e8,
        half_duplex,
    };
    class.wires = vec![wire(true), wire(false)];
    class.memories[1].kind = MemoryKind::Dsk;
    for channel in &mut class.channels {
        channel.wire = [Some(0), Some(0), Some(1), None][random.below(4) as usize];
    }
}

/// How much longer the plan takes than the best of brute force; `None` without any plan.
fn excess(seed: u64, wires: bool) -> Option<f64> {
    let mut random = Random::new(seed);
    let extents = [random.within(4, 24)];
    let fields: Vec<u64> = (0..random.within(1, 3)).map(|_| 64 << random.below(5)).collect();
    let payload = extents[0] * fields.iter().sum::<u64>();
    let mut topology = timed_topology(&mut random, payload);
    if wires {
        add_wires(&mut random, &mut topology);
    }
    let layouts = random_layouts(&mut random, 1);
    let memories = topology.classes[0].memories.len() as u64;
    let ends = [(); 2].map(|()| random::memory(random.below(memories) as usize));
    let query = Query::whole((ends[0], &layouts[0]), (ends[1], &layouts[1]), &extents, &fields);
    let options = Options {
        choice: Choice::Only(Algorithm::Full),
        budget: Some(100_000),
        ..Options::default()
    };
    let graph = Graph::of(&topology, &[NodeId(0)], (ends[0], ends[1]), &options).ok()?;
    let shape = Shape::of(&query).ok()?;
    let blockings = (1..extents[0]).map(|c| {
        let mut factors = WHOLE;
        factors[0] = c;
        (factors, orders(&shape.compact(&shape.src, &factors)))
    });
    let orders = blockings.collect();
    let edges = Edges::of(&graph);
    let mut brute =
        Brute { graph: &graph, edges: &edges, shape: &shape, orders, best: f64::INFINITY };
    let mut path = Path::EMPTY;
    brute.walk(&mut path, graph.src, &mut vec![graph.src], &mut vec![]);
    let plan = crate::plan(&topology, &query, &options);
    assert_eq!(plan.is_ok(), brute.best.is_finite(), "seed {seed}");
    Some(plan.ok()?.seconds? / brute.best - 1.0)
}

#[test]
fn brute_force_beats_the_default_model_by_a_tenth_at_most() {
    compare(0..60, false);
}

#[test]
fn nor_by_more_where_hops_share_wires() {
    compare(100..140, true);
}

fn compare(seeds: std::ops::Range<u64>, wires: bool) {
    let enough = (seeds.end - seeds.start) * 2 / 3;
    let found: Vec<_> = seeds.filter_map(|seed| Some((seed, excess(seed, wires)?))).collect();
    assert!(found.len() as u64 > enough);
    for (seed, excess) in found {
        assert!(excess <= 0.10, "seed {seed}: {:.1}% over the best", excess * 100.0);
    }
}

#[test]
fn a_channel_that_hops_share_bounds_as_a_channel() {
    let text = r#"
[[node]]
name = "n"
memory = [ { name = "a", kind = "SYS" }, { name = "b", kind = "ZCM" }, { name = "c", kind = "REG" } ]
channel = [ { kind = "Memcpy", from = ["a", "b"], to = ["b", "c"], throughput = 6e9 } ]
"#;
    let topology = cluster::parse(text).unwrap();
    let (order, ends) = (Layout::row_major(1), [0, 2].map(random::memory));
    let query = Query::whole((ends[0], &order), (ends[1], &order), &[1 << 24], &[8]);
    let shape = Shape::of(&query).unwrap();
    let graph =
        Graph::of(&topology, &[NodeId(0)], (ends[0], ends[1]), &Options::default()).unwrap();
    let (mut path, edges) = (Path::EMPTY, Edges::of(&graph));
    for (from, to) in [(0, 1), (1, 2)] {
        path.push(*edges.out(from).iter().find(|edge| edge.to == to).unwrap());
    }
    let solution = Solution::ends(&shape, 0);
    let (shape, model) = (&shape, CostModel::Default);
    let case = Case { graph: &graph, shape, model, path: &path, solution: &solution };
    let predicted = case.predict();
    assert!((predicted.throughput - 3e9).abs() < 1.0, "{}", predicted.throughput);
    assert_eq!((predicted.bound.hop, predicted.bound.why), (0, Limit::Channel));
    // No hop waits for another that the channel doesn't do anyway.
    assert!((predicted.seconds - (8 << 24) as f64 / 3e9).abs() < 1e-9);
}

fn layout(components: &[Component], rank: usize) -> Layout {
    Layout::new(components.iter().copied(), rank).unwrap()
}

#[test]
fn blocks_of_both_ends_are_refined_where_they_nest() {
    use Component::{Fields, Outer};
    let inner = |size| Component::Inner { dim: 0, level: 1, size };
    let four = layout(&[inner(4), Fields, Outer(0)], 1);
    let eight = layout(&[inner(8), Fields, Outer(0)], 1);
    let six = layout(&[inner(6), Fields, Outer(0)], 1);
    let ends = |a, b| {
        let memory = random::memory(0);
        Shape::of(&Query::whole((memory, a), (memory, b), &[96], &[4])).unwrap()
    };
    let nested = ends(&four, &eight);
    assert!(nested.mixable);
    assert_eq!((nested.src.atoms(), nested.dst.atoms()), (&[1, 0, 2, 3][..], &[1, 2, 0, 3][..]));
    assert!(!ends(&four, &six).mixable);
}

#[test]
fn blocks_that_start_at_different_places_are_not_mixed() {
    use Component::{Fields, Outer};
    let inner = |size| Component::Inner { dim: 0, level: 1, size };
    let four = layout(&[inner(4), Fields, Outer(0)], 1);
    let memory = random::memory(0);
    let mut query = Query::whole((memory, &four), (memory, &four), &[64], &[4]);
    query.src.phase = &[1];
    assert!(!Shape::of(&query).unwrap().mixable);
    query.dst.phase = &[1];
    let shape = Shape::of(&query).unwrap();
    assert!(shape.mixable && shape.src == shape.dst && shape.phase[0] == 1);
}

#[test]
fn a_box_starts_where_it_does_in_the_largest_block() {
    use Component::{Fields, Outer};
    let inner = |size| Component::Inner { dim: 0, level: 1, size };
    let layouts = [4, 8].map(|size| layout(&[inner(size), Fields, Outer(0)], 1));
    let memory = random::memory(0);
    for (from, to) in [(0, 1), (1, 0)] {
        let phases = [[1], [5]];
        let ends = ((memory, &layouts[from]), (memory, &layouts[to]));
        let mut query = Query::whole(ends.0, ends.1, &[64], &[4]);
        (query.src.phase, query.dst.phase) = (&phases[from], &phases[to]);
        let shape = Shape::of(&query).unwrap();
        assert!(shape.mixable && shape.phase[0] == 5);
    }
}
