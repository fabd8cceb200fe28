//! The simple algorithm (paper, section 4.4) and the baselines SPSL and SPDL (section 6.3).

use crate::graph::{Edge, Graph, MAX_MEMORIES};
use crate::path::{MAX_HOPS, Path, Solution};
use crate::rates::Rates;
use crate::shape::Shape;
use model::{Algorithm, ChannelKind};

/// How close, relatively, blocking comes to the best throughput of the path: the algorithm is for
/// transfers that take less time than an exact answer.
pub(crate) const TOLERANCE: f64 = 0.01;

/// Products of peaks nearer than this are equal.
const SAME: f64 = 1.0 + 1e-9;

/// The shortest path and where it converts.
#[derive(Debug)]
pub(crate) struct Simple {
    pub(crate) path: Path,
    pub(crate) solution: Solution,
}

/// The path that `algorithm` takes, with intermediates in the layouts of the ends. `None` where
/// no path leads to the destination.
pub(crate) fn search(
    algorithm: Algorithm,
    graph: &Graph<'_>,
    shape: &Shape,
    rates: &Rates<'_>,
) -> Option<Simple> {
    let shortest = shortest_path(graph, rates)?;
    let last = shortest.hops() - 1;
    let (path, pivot) = match algorithm {
        _ if shape.src == shape.dst && shape.mixable => (shortest, last),
        Algorithm::Spsl => (shortest, last),
        Algorithm::Spdl => (shortest, 0),
        Algorithm::Simple | Algorithm::Full => converting(graph, rates, shortest),
    };
    Some(Simple { path, solution: Solution::ends(shape, pivot) })
}

/// The path through a Memcpy channel, and the hop that is one. Without any, or where kernels between
/// two memories of the path convert faster than it, the hop that converts fastest, by whichever
/// channel does between its memories; or kernels inside one of them, where a path past the host has
/// no faster hop.
fn converting(graph: &Graph<'_>, rates: &Rates<'_>, path: Path) -> (Path, usize) {
    let ways = path.edges().iter().map(|edge| fastest_between(graph, rates, *edge));
    let converts = |edge: &Edge| rates.convert(edge.lane);
    let fastest = ways.enumerate().rev().max_by(|a, b| converts(&a.1).total_cmp(&converts(&b.1)));
    let Some((hop, edge)) = fastest else { return (path, 0) };
    let by_kernels = graph.lane(edge).kind == ChannelKind::GpuConvert;
    let is_faster = |(path, hop): &(Path, usize)| converts(&path.edges()[*hop]) >= converts(&edge);
    let found = match through(graph, &path, ChannelKind::Memcpy) {
        None if by_kernels => None,
        None => through(graph, &path, ChannelKind::GpuConvert).filter(is_faster),
        by_memcpy => by_memcpy.filter(|found| !by_kernels || is_faster(found)),
    };
    found.unwrap_or_else(|| (path.replaced(hop, edge), hop))
}

/// The path with a channel of this kind, and the hop that is one: the first on the path, or one put in after
/// the first memory that has such inside it, and can hold an intermediate.
fn through(graph: &Graph<'_>, path: &Path, kind: ChannelKind) -> Option<(Path, usize)> {
    let is_such = |edge: &Edge| graph.lane(*edge).kind == kind;
    if let Some(hop) = path.edges().iter().position(is_such) {
        return Some((*path, hop));
    }
    let starts = path.edges().iter().map(|e| e.from).chain([graph.dst]);
    let usable = |&(_, vertex): &(usize, u8)| path.hops() < MAX_HOPS && graph.th_bytes(vertex) > 0;
    for (at, vertex) in starts.enumerate().filter(usable) {
        let mut self_loop = None;
        graph.each_edge(1 << vertex, 1 << vertex, |edge| {
            self_loop = self_loop.or(is_such(&edge).then_some(edge));
        });
        if let Some(edge) = self_loop {
            return Some((path.with(at, edge), at));
        }
    }
    None
}

/// Of `edge` and those between the same memories the one that converts fastest, the first of equals.
fn fastest_between(graph: &Graph<'_>, rates: &Rates<'_>, edge: Edge) -> Edge {
    let mut best = edge;
    graph.each_edge(1 << edge.from, 1 << edge.to, |other| {
        if rates.convert(other.lane) > rates.convert(best.lane) {
            best = other;
        }
    });
    best
}

/// The best way found from a vertex to the destination: its product of peaks, 0 where there is none
/// yet, and its first edge.
#[derive(Clone, Copy)]
struct Way {
    score: f64,
    edge: Edge,
}

/// The path of fewest hops, then of the greatest sum of log peak throughputs (here the product of
/// the peaks), then the first in the order of the file: it is found from its end, so that each
/// choice between equals is that of an earlier edge.
pub(crate) fn shortest_path(graph: &Graph<'_>, rates: &Rates<'_>) -> Option<Path> {
    let (layers, hops) = layers(graph)?;
    let mut ways = [Way { score: 0.0, edge: Edge::NONE }; MAX_MEMORIES];
    ways[usize::from(graph.dst)].score = 1.0;
    let mut first = Way { score: 0.0, edge: Edge::NONE };
    for at in (0..hops).rev() {
        graph.each_edge(layers[at], layers[at + 1], |edge| {
            let score = ways[usize::from(edge.to)].score * rates.copy(edge.lane);
            let best = if at == 0 { &mut first } else { &mut ways[usize::from(edge.from)] };
            // They come in the order of the file, so that the first of equals stays.
            if score > best.score * SAME {
                *best = Way { score, edge };
            }
        });
    }
    let mut path = Path::EMPTY;
    path.push(first.edge);
    while path.hops() < hops {
        let at = path.edges()[path.hops() - 1].to;
        path.push(ways[usize::from(at)].edge);
    }
    Some(path)
}

/// For each number of hops from the source, the vertices that the shortest paths visit, as bits;
/// and the number of hops to the destination.
fn layers(graph: &Graph<'_>) -> Option<([u64; MAX_HOPS + 1], usize)> {
    let mut layers = [0u64; MAX_HOPS + 1];
    layers[0] = 1 << graph.src;
    let mut left = graph.intermediates() & !layers[0];
    for hops in 1..=MAX_HOPS {
        let reached = graph.after(layers[hops - 1]);
        if reached >> graph.dst & 1 == 1 {
            layers[hops] = 1 << graph.dst;
            for at in (1..hops).rev() {
                layers[at] &= graph.before(layers[at + 1]);
            }
            return Some((layers, hops));
        }
        layers[hops] = reached & left;
        left &= !reached;
    }
    None
}
