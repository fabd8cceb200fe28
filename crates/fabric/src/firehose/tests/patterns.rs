//! The slides' access patterns, by programs that really multiply and sort, and what they cost.
//!
//! All puts are of 8 bytes, as in the slides' kernels, and buckets are pages. The oracle of each
//! owner is one table of all that its peers use, the least recently used first out.

use super::super::hoses::{Counts, Rules};
use super::super::run::Run;
use super::world::World;
use model::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Of 8 bytes, in a bucket.
const PLACES: usize = 512;

/// Which node puts to which bucket of whose memory.
type Touch = (usize, usize, u64);

/// Cannon's algorithm on `q`² nodes with blocks of `b`² numbers; checks the product.
///
/// A node's memory is two buffers for blocks of each factor, in turns.
fn cannon(q: usize, b: usize) -> Vec<Touch> {
    let (n, block) = (q * b, b * b);
    let [left, right] = [7, 5].map(|by| (0..n * n).map(|i| i * by % 11).collect::<Vec<_>>());
    let part = |of: &[usize], node: usize| {
        let (y, x) = (node / q * b, node % q * b);
        (0..block).map(|i| of[(y + i / b) * n + x + i % b]).collect::<Vec<_>>()
    };
    let nodes = 0..q * q;
    let mut factors = [&left, &right].map(|of| nodes.clone().map(|node| part(of, node)).collect());
    let mut product = vec![vec![0; block]; q * q];
    let mut touches = Vec::new();
    for step in 0..q {
        // First each row and column by its own number, then all by one.
        let by = |line: usize| if step == 0 { line } else { 1 };
        for (factor, blocks) in factors.iter_mut().enumerate() {
            let to = |node: usize| {
                let (y, x) = (node / q, node % q);
                match factor {
                    0 => y * q + (x + q - by(y) % q) % q,
                    _ => (y + q - by(x) % q) % q * q + x,
                }
            };
            shift(blocks, to, (2 * factor + step % 2) * block, &mut touches);
        }
        for (node, sum) in product.iter_mut().enumerate() {
            let (one, other) = (&factors[0][node], &factors[1][node]);
            for i in 0..block {
                let terms = (0..b).map(|k| one[i / b * b + k] * other[k * b + i % b]);
                sum[i] += terms.sum::<usize>();
            }
        }
    }
    let whole: Vec<usize> = (0..n * n)
        .map(|i| (0..n).map(|k| left[i / n * n + k] * right[k * n + i % n]).sum())
        .collect();
    nodes.for_each(|node| assert!(product[node] == part(&whole, node), "the product"));
    touches
}

/// Sends each node's block to the buffer at `at` of another, all at once, number by number.
fn shift(
    blocks: &mut Vec<Vec<usize>>,
    to: impl Fn(usize) -> usize,
    at: usize,
    touches: &mut Vec<Touch>,
) {
    let nodes = blocks.len();
    for i in 0..blocks[0].len() {
        let sends = (0..nodes).filter(|&node| to(node) != node);
        touches.extend(sends.map(|node| (node, to(node), ((at + i) / PLACES) as u64)));
    }
    let mut came = vec![Vec::new(); nodes];
    blocks.drain(..).enumerate().for_each(|(node, block)| came[to(node)] = block);
    *blocks = came;
}

/// Bitonic sort of `keys` numbers that are dealt out to `nodes` one by one; checks the order.
///
/// A node's memory is a buffer for what its partner of a step has.
fn bitonic(nodes: usize, keys: usize) -> Vec<Touch> {
    let mut all: Vec<usize> = (0..keys).map(|i| i * 7919 % 10_007).collect();
    let mut touches = Vec::new();
    let mut half = 2;
    while half <= keys {
        let mut apart = half / 2;
        while apart > 0 {
            if apart < nodes {
                let send = |i: usize| (i % nodes, (i ^ apart) % nodes, (i / nodes / PLACES) as u64);
                touches.extend((0..keys).map(send));
            }
            for i in (0..keys).filter(|i| i & apart == 0) {
                let is_wrong = all[i] > all[i | apart];
                if is_wrong == (i & half == 0) {
                    all.swap(i, i | apart);
                }
            }
            apart /= 2;
        }
        half *= 2;
    }
    assert!(all.is_sorted());
    touches
}

/// Puts of node 0 to anywhere in `buckets` of node 1.
fn random(buckets: u64, puts: usize) -> Vec<Touch> {
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % buckets
    };
    (0..puts).map(|_| (0, 1, next())).collect()
}

/// Whom an owner serves, and of what.
fn sets(touches: &[Touch]) -> BTreeMap<usize, BTreeSet<(usize, u64)>> {
    let mut sets: BTreeMap<usize, BTreeSet<_>> = BTreeMap::new();
    for &(node, owner, bucket) in touches {
        sets.entry(owner).or_default().insert((node, bucket));
    }
    sets
}

fn first_touches(touches: &[Touch]) -> u64 {
    sets(touches).values().map(|set| set.len() as u64).sum()
}

/// The misses of a table of `most` for each owner, the least recently used first out.
fn oracle(touches: &[Touch], most: usize) -> u64 {
    type Table = (HashMap<(usize, u64), usize>, BTreeMap<usize, (usize, u64)>);
    let mut tables: HashMap<usize, Table> = HashMap::new();
    let mut misses = 0;
    for (now, &(node, owner, bucket)) in touches.iter().enumerate() {
        let (when, order) = tables.entry(owner).or_default();
        match when.insert((node, bucket), now) {
            Some(before) => _ = order.remove(&before),
            None => misses += 1,
        }
        order.insert(now, (node, bucket));
        if when.len() > most {
            let (_, oldest) = order.pop_first().unwrap();
            when.remove(&oldest);
        }
    }
    misses
}

/// Runs them one by one where each owner lends `lent` buckets; the sums of all nodes' counts.
fn run(touches: &[Touch], nodes: usize, lent: u64) -> (Counts, World) {
    let end = touches.iter().map(|&(_, _, bucket)| bucket + 1).max().unwrap();
    let share = (lent / (nodes as u64 - 1)).max(1);
    let floor = share.div_ceil(32);
    let rules = Rules { share, floor, region: 1, runs: 128, stays: true };
    let mut world = World::new(nodes, rules, (0, u64::MAX), end);
    for &(node, owner, bucket) in touches {
        world.touch(node, NodeId(owner as u32), Run::one(bucket));
    }
    let add = |a: Counts, b: Counts| Counts {
        hits: a.hits + b.hits,
        joined: a.joined + b.joined,
        misses: a.misses + b.misses,
        stolen: a.stolen + b.stolen,
    };
    let counts = world.nodes.iter().map(|node| node.hoses.counts());
    let sum = counts.fold(Counts::default(), add);
    assert_eq!(sum.hits + sum.misses, touches.len() as u64);
    (sum, world)
}

/// Of each pattern: its name, its touches, how many nodes, and the fewest hits of all in percent.
fn patterns() -> [(&'static str, Vec<Touch>, usize, f64); 5] {
    [
        ("one place", vec![(0, 1, 3); 10_000], 2, 99.98),
        ("random", random(200, 20_000), 2, 99.0),
        // Blocks of 32 pages.
        ("cannon", cannon(2, 128), 4, 99.8),
        ("cannon, 9 nodes", cannon(3, 128), 9, 99.8),
        // 2^15 keys: 16 pages for each node.
        ("bitonic sort", bitonic(4, 1 << 15), 4, 99.98),
    ]
}

#[test]
fn misses_are_first_touches_while_the_budget_covers_all() {
    for (name, touches, nodes, least) in patterns() {
        let sets = sets(&touches);
        let of = |set: &BTreeSet<(usize, u64)>, node| set.iter().filter(|of| of.0 == node).count();
        let most = sets.values().flat_map(|set| (0..nodes).map(move |node| of(set, node))).max();
        let lent = most.unwrap() as u64 * (nodes as u64 - 1);
        let (counts, _) = run(&touches, nodes, lent);
        assert_eq!(counts.misses, first_touches(&touches), "{name}");
        let hits = 100.0 * counts.hits as f64 / touches.len() as f64;
        println!("{name}: {} puts, {} misses, {hits:.3}% hits", touches.len(), counts.misses);
        assert!(hits >= least, "{name}: {hits}% of {}", touches.len());
    }
}

#[test]
fn misses_are_few_more_than_those_of_the_least_recently_used() {
    for (name, touches, nodes, _) in patterns() {
        let set = sets(&touches).values().map(BTreeSet::len).max().unwrap() as u64;
        for percent in [25, 50, 75] {
            let lent = (set * percent / 100).max(nodes as u64 - 1);
            let (counts, _) = run(&touches, nodes, lent);
            let expected = oracle(&touches, lent as usize);
            let ratio = counts.misses as f64 / expected as f64;
            println!("{name}, {percent}%: {} misses, {ratio:.3} of {expected}", counts.misses);
            assert!(ratio <= 1.1, "{name}, {percent}%: {} of {expected}", counts.misses);
        }
    }
}

/// Where one of four nodes puts all there is, it gets what others don't use.
#[test]
fn who_needs_more_takes_what_others_leave() {
    let touches = random(300, 60_000);
    let lent = 150;
    let (counts, world) = run(&touches, 4, lent);
    let expected = oracle(&touches, lent as usize);
    let ratio = counts.misses as f64 / expected as f64;
    println!("{ratio:.3} of {expected}, {} stolen", counts.stolen);
    assert!(ratio <= 1.1, "{} of {expected}", counts.misses);
    assert_eq!(world.nodes[0].hoses.limit(NodeId(1)), 150 - 2 * 2);
}

/// And gives it back to who needs it.
#[test]
fn who_gave_gets_it_back() {
    let both = random(300, 60_000).into_iter().enumerate();
    let both = both.map(|(i, (_, owner, bucket))| ([0, 2][i % 2], owner, bucket));
    let touches: Vec<_> = random(300, 60_000).into_iter().chain(both).collect();
    let (_, world) = run(&touches, 4, 150);
    let limits = [0, 2, 3].map(|node: usize| world.nodes[node].hoses.limit(NodeId(1)));
    assert_eq!(limits.iter().sum::<u64>(), 150, "{limits:?}");
    assert!(limits[1] >= 50, "{limits:?}");
}
