//! Optimality in the paper's model: on random graphs nothing that brute force finds is better.
//!
//! Brute force shares no code with the search: it walks every path, every sequence of layouts and
//! every integer blocking, with PREFIX and the complement of SUFFIX as section 4.2 defines them.

mod random;

use isometry_planner::{Choice, Options, PlanError, Query, plan};
use model::{Algorithm, Component, CostModel, Layout, Limit, Plan, Throughput, Topology};
use random::{Random, permutations, random_layouts, random_topology};

/// Edges of one node's graph: from, to, and the function.
struct Graph<'a> {
    edges: Vec<(usize, usize, &'a Throughput)>,
    th: Vec<u64>,
}

impl Graph<'_> {
    fn of(topology: &Topology) -> Graph<'_> {
        let class = &topology.classes[0];
        let mut edges = Vec::new();
        for channel in &class.channels {
            for &from in &channel.from {
                for &to in &channel.to {
                    edges.push((usize::from(from), usize::from(to), &channel.curves.run));
                }
            }
        }
        let th = class.memories.iter().map(|m| m.th_bytes.unwrap_or(topology.th_bytes));
        Graph { edges, th: th.collect() }
    }

    /// Every acyclic path, with each self-loop at most once.
    fn paths(&self, src: usize, dst: usize) -> Vec<Vec<usize>> {
        let mut found = Vec::new();
        self.walk(&mut vec![], (src, src, dst), &mut vec![src], &mut found);
        found
    }

    fn walk(
        &self,
        path: &mut Vec<usize>,
        (at, src, dst): (usize, usize, usize),
        visited: &mut Vec<usize>,
        found: &mut Vec<Vec<usize>>,
    ) {
        for (i, &(from, to, _)) in self.edges.iter().enumerate().filter(|(_, e)| e.0 == at) {
            let looped = path.iter().any(|&e| self.edges[e].0 == to && self.edges[e].1 == to);
            let again = if from == to { looped } else { visited.contains(&to) };
            let round = src == dst && to == dst && from != to;
            if again && !round {
                continue;
            }
            path.push(i);
            if to == dst {
                found.push(path.clone());
            }
            if !round && self.th[to] > 0 {
                visited.push(to);
                self.walk(path, (to, src, dst), visited, found);
                visited.pop();
            }
            path.pop();
        }
    }
}

/// What brute force knows of one blocking: all layouts, and PREFIX and the complement of SUFFIX
/// between each two.
struct Blocking {
    words: usize,
    src: usize,
    dst: usize,
    prefix: Vec<u64>,
    shuffle: Vec<u64>,
}

impl Blocking {
    fn of(case: &Case, factors: &[Option<u64>], every_order: bool) -> Blocking {
        let ends = case.layouts.clone().map(|layout| split(&layout, factors));
        let inner_first = |word: &Vec<Component>| {
            let at = |c: &Component| word.iter().position(|w| w == c);
            word.iter().all(|c| match c {
                Component::Inner { dim, .. } => at(c) < at(&Component::Outer(*dim)),
                _ => true,
            })
        };
        let mut words = permutations(&ends[0]);
        words.retain(|word| every_order || inner_first(word));
        let position = |end: &Vec<Component>| words.iter().position(|w| w == end).unwrap();
        let pairs = || words.iter().flat_map(|a| words.iter().map(move |b| (a, b)));
        Blocking {
            words: words.len(),
            src: position(&ends[0]),
            dst: position(&ends[1]),
            prefix: pairs().map(|(a, b)| case.prefix(a, b)).collect(),
            shuffle: pairs().map(|(a, b)| case.shuffle(a, b)).collect(),
        }
    }

    /// The best least throughput over all sequences of layouts along `path`.
    fn best(&self, graph: &Graph<'_>, path: &[usize]) -> f64 {
        let mut reached = vec![0.0f64; self.words];
        reached[self.src] = f64::INFINITY;
        for (i, &edge) in path.iter().enumerate() {
            let (from, to, tp) = graph.edges[edge];
            let between = i > 0 && i + 1 < path.len();
            let room = if between { graph.th[from].min(graph.th[to]) } else { u64::MAX };
            let mut known: Vec<(u64, f64)> = Vec::new();
            let mut next = vec![0.0f64; self.words];
            for a in (0..self.words).filter(|&a| reached[a] > 0.0) {
                for (b, best) in next.iter_mut().enumerate() {
                    let pair = a * self.words + b;
                    if self.shuffle[pair] <= room {
                        let rate = at(&mut known, tp, self.prefix[pair]);
                        *best = best.max(reached[a].min(rate));
                    }
                }
            }
            reached = next;
        }
        reached[self.dst]
    }
}

fn at(known: &mut Vec<(u64, f64)>, tp: &Throughput, request: u64) -> f64 {
    if let Some(&(_, rate)) = known.iter().find(|k| k.0 == request) {
        return rate;
    }
    known.push((request, tp.at(request)));
    tp.at(request)
}

/// `layout` with each dimension split by its factor, in place.
fn split(layout: &Layout, factors: &[Option<u64>]) -> Vec<Component> {
    let halves = |&c: &Component| match c {
        Component::Whole(dim) => match factors[usize::from(dim)] {
            Some(size) => vec![Component::Inner { dim, level: 1, size }, Component::Outer(dim)],
            None => vec![c],
        },
        other => vec![other],
    };
    layout.components().iter().flat_map(halves).collect()
}

struct Case {
    topology: Topology,
    ends: [usize; 2],
    extents: Vec<u64>,
    fields: Vec<u64>,
    layouts: [Layout; 2],
}

impl Case {
    fn random(random: &mut Random, rank: usize) -> Case {
        let extents: Vec<u64> =
            (0..rank).map(|_| random.within(2, if rank == 1 { 40 } else { 6 })).collect();
        let fields: Vec<u64> = (0..random.within(1, 3)).map(|_| 1 << random.below(4)).collect();
        let total = extents.iter().product::<u64>() * fields.iter().sum::<u64>();
        let topology = random_topology(random, total);
        let memories = topology.classes[0].memories.len() as u64;
        let (src, dst) = (random.below(memories), random.below(memories));
        let ends = [src as usize, dst as usize];
        Case { topology, ends, extents, fields, layouts: random_layouts(random, rank) }
    }

    /// The same, but each memory that may hold intermediates has a `TH` of its own.
    fn with_own_th(mut self, random: &mut Random) -> Case {
        let total = self.extents.iter().product::<u64>() * self.fields.iter().sum::<u64>();
        let memories = &mut self.topology.classes[0].memories;
        for memory in memories.iter_mut().filter(|memory| memory.th_bytes.is_none()) {
            memory.th_bytes = Some((total / random.within(1, 40)).max(1));
        }
        self
    }

    fn size(&self, component: Component, word: &[Component]) -> u64 {
        match component {
            Component::Fields => self.fields.iter().sum(),
            Component::Whole(dim) => self.extents[usize::from(dim)],
            Component::Inner { size, .. } => size,
            Component::Outer(dim) => {
                let inner = word.iter().find_map(|c| match c {
                    Component::Inner { dim: d, size, .. } if *d == dim => Some(*size),
                    _ => None,
                });
                self.extents[usize::from(dim)].div_ceil(inner.unwrap())
            }
        }
    }

    /// `field` counts where `part` is without `F`. Both halves of a dimension are the dimension,
    /// so that TOTAL is the same for every blocking.
    fn bytes(&self, part: &[Component], word: &[Component], field: u64) -> u64 {
        let fields = if part.contains(&Component::Fields) { 1 } else { field };
        let joined = |dim| {
            let halves = part.iter().filter(|c| c.dim() == Some(usize::from(dim)));
            halves.count() == 2
        };
        let size = |&c: &Component| match c {
            Component::Inner { dim, .. } if joined(dim) => 1,
            Component::Outer(dim) if joined(dim) => self.extents[usize::from(dim)],
            _ => self.size(c, word),
        };
        part.iter().map(size).product::<u64>() * fields
    }

    fn prefix(&self, a: &[Component], b: &[Component]) -> u64 {
        let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        self.bytes(&a[..same], a, *self.fields.iter().min().unwrap())
    }

    fn shuffle(&self, a: &[Component], b: &[Component]) -> u64 {
        if a == b {
            return 1;
        }
        let same = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
        self.bytes(&a[..a.len() - same], a, *self.fields.iter().max().unwrap())
    }

    fn plan(&self, algorithm: Algorithm) -> Result<Plan, PlanError> {
        let memory = |end: usize| random::memory(self.ends[end]);
        let ends = [(memory(0), &self.layouts[0]), (memory(1), &self.layouts[1])];
        let query = Query::whole(ends[0], ends[1], &self.extents, &self.fields);
        let options = Options {
            choice: Choice::Only(algorithm),
            model: CostModel::Paper,
            budget: Some(1_000_000),
            ..Options::default()
        };
        plan(&self.topology, &query, &options)
    }

    /// The best throughput of all.
    fn brute_force(&self, every_order: bool) -> f64 {
        let graph = Graph::of(&self.topology);
        let paths = graph.paths(self.ends[0], self.ends[1]);
        let mut best = 0.0f64;
        for factors in blockings(&self.extents) {
            let blocking = Blocking::of(self, &factors, every_order);
            for path in &paths {
                best = best.max(blocking.best(&graph, path));
            }
        }
        best
    }

    /// That a plan's own figures follow from its layouts.
    fn check(&self, plan: &Plan) {
        let graph = Graph::of(&self.topology);
        for (i, hop) in plan.hops.iter().enumerate() {
            let (a, b) = (plan.layouts[i].components(), plan.layouts[i + 1].components());
            assert!(hop.prefix_bytes <= self.prefix(a, b) || a == b, "{plan:#?}");
            assert!(hop.prefix_bytes >= self.prefix(a, b), "{plan:#?}");
            assert_eq!(hop.shuffle_bytes, self.shuffle(a, b), "{plan:#?}");
            let channel = &self.topology.classes[0].channels[usize::from(hop.channel.index)];
            assert_eq!(hop.throughput, channel.curves.run.at(hop.prefix_bytes));
            let pair = [plan.memories[i].index, plan.memories[i + 1].index];
            assert!(channel.from.contains(&pair[0]) && channel.to.contains(&pair[1]));
            if i > 0 && i + 1 < plan.hops.len() {
                let th = pair.map(|m| graph.th[usize::from(m)]);
                assert!(hop.shuffle_bytes <= th[0].min(th[1]), "{plan:#?}");
            }
        }
        let least = plan.hops.iter().map(|h| h.throughput).fold(f64::INFINITY, f64::min);
        assert_eq!(plan.throughput, least);
    }
}

impl Case {
    /// Whether `full`, which its requests bound, is faster on its own path with all the space it
    /// could want; `None` where another path is then better, or several hops bound it.
    fn space_helps(&self, full: &Plan) -> Option<bool> {
        let used = |index: usize| full.hops.iter().any(|h| usize::from(h.channel.index) == index);
        let mut topology = self.topology.clone();
        let class = &mut topology.classes[0];
        for (index, channel) in class.channels.iter_mut().enumerate() {
            if !used(index) {
                channel.from.clear();
            }
        }
        topology.th_bytes = u64::MAX;
        let (ends, extents, fields) = (self.ends, self.extents.clone(), self.fields.clone());
        let wide = Case { topology, ends, extents, fields, layouts: self.layouts.clone() };
        let wide = wide.plan(Algorithm::Full).unwrap();
        let slow = full.hops.iter().filter(|h| h.throughput <= full.throughput * (1.0 + 1e-9));
        let alike = wide.memories == full.memories && slow.count() == 1;
        alike.then_some(wide.throughput > full.throughput * (1.0 + 1e-6))
    }

    /// That `space` bounds a plan where space helps, and nowhere else; which, if that was seen.
    fn check_bound(&self, full: &Plan) -> Option<bool> {
        if !matches!(full.bound_by.why, Limit::Space | Limit::Request) {
            return None;
        }
        let helps = self.space_helps(full)?;
        assert_eq!(full.bound_by.why == Limit::Space, helps, "{full:#?}");
        Some(helps)
    }
}

/// Every blocking: each dimension whole, or with an inner half of 1 to its extent.
fn blockings(extents: &[u64]) -> Vec<Vec<Option<u64>>> {
    let mut all = vec![vec![]];
    for &extent in extents {
        let choices = || std::iter::once(None).chain((1..=extent).map(Some));
        let longer = |head: &Vec<Option<u64>>| {
            let head = head.clone();
            choices().map(move |c| [head.clone(), vec![c]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// In how many graphs full and simple differ, and in how many the full plan was seen to be bound
/// by space and by its requests.
#[derive(Default)]
struct Seen {
    differ: u64,
    space: u64,
    request: u64,
}

impl Case {
    /// What full does, where brute force does neither better nor worse.
    fn compare(&self, seed: u64, every_order: bool) -> Option<Plan> {
        let best = self.brute_force(every_order);
        let Ok(full) = self.plan(Algorithm::Full) else {
            assert_eq!(best, 0.0, "seed {seed}");
            return None;
        };
        assert!(!full.search.exhausted, "seed {seed}");
        self.check(&full);
        let short = full.throughput < best * (1.0 - 2e-7);
        assert!(!short, "seed {seed}: {best} beats {full:#?}");
        let over = full.throughput > best * (1.0 + 1e-9);
        assert!(!over, "seed {seed}: {best} is all there is, not {full:#?}");
        Some(full)
    }
}

/// Runs `count` graphs.
fn compare(count: u64, rank: usize, every_order: bool) -> Seen {
    let mut seen = Seen::default();
    for seed in 0..count {
        let case = Case::random(&mut Random::new(seed * 2 + rank as u64), rank);
        let Some(full) = case.compare(seed, every_order) else { continue };
        match case.check_bound(&full) {
            Some(true) => seen.space += 1,
            Some(false) => seen.request += 1,
            None => {}
        }
        let simple = case.plan(Algorithm::Simple).unwrap();
        seen.differ +=
            u64::from((&full.memories, &full.layouts) != (&simple.memories, &simple.layouts));
    }
    seen
}

#[test]
fn brute_force_never_beats_the_full_algorithm() {
    let (line, plane) = (compare(300, 1, true), compare(200, 2, false));
    let differ = line.differ + plane.differ;
    assert!(differ >= 150, "full and simple differ in {differ} of 500");
    let bound = [line.space + plane.space, line.request + plane.request];
    assert!(bound.iter().all(|&seen| seen >= 15), "by space and by requests: {bound:?}");
}

#[test]
fn nor_with_outer_halves_before_inner_ones() {
    compare(25, 2, true);
}

#[test]
fn nor_where_each_memory_has_a_th_of_its_own() {
    let feasible = |rank: usize| {
        let plan = |seed: u64| {
            let mut random = Random::new(seed * 2 + rank as u64);
            let case = Case::random(&mut random, rank).with_own_th(&mut random);
            case.compare(seed, false)
        };
        (0..150).filter_map(plan).count()
    };
    assert!(feasible(1) >= 100 && feasible(2) >= 100);
}
