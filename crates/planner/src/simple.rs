//! The simple algorithm (paper, section 4.4) and the baselines SPSL and SPDL (section 6.3).

use crate::graph::Graph;
use crate::path::{MAX_HOPS, Path, Solution};
use crate::rates::Rates;
use crate::shape::Shape;
use model::{Algorithm, ChannelKind};

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
    rates: &Rates,
) -> Option<Simple> {
    let shortest = shortest_path(graph, rates)?;
    let last = shortest.hops() - 1;
    let (path, pivot) = match algorithm {
        _ if shape.src == shape.dst && shape.mixable => (shortest, last),
        Algorithm::Spsl => (shortest, last),
        Algorithm::Spdl => (shortest, 0),
        Algorithm::Simple | Algorithm::Full => with_memcpy(graph, rates, shortest),
    };
    Some(Simple { path, solution: Solution::ends(shape, pivot) })
}

/// The path through a Memcpy channel, and the hop that is one: the first on the path, or one put
/// in after the first host memory that can hold an intermediate. Without any, the hop that
/// converts fastest.
fn with_memcpy(graph: &Graph<'_>, rates: &Rates, path: Path) -> (Path, usize) {
    let is_memcpy = |&e: &u16| graph.lane(e).kind == ChannelKind::Memcpy;
    if let Some(hop) = path.edges().iter().position(is_memcpy) {
        return (path, hop);
    }
    let starts = path.steps(graph).map(|e| e.from).chain([graph.dst]);
    for (at, vertex) in starts.enumerate().filter(|_| path.hops() < MAX_HOPS) {
        let self_loop = graph.out(vertex).find(|(i, e)| e.to == vertex && is_memcpy(i));
        if let Some((edge, _)) = self_loop.filter(|_| graph.th_bytes(vertex) > 0) {
            return (path.with(at, edge), at);
        }
    }
    let converts = |e: &u16| rates.convert(graph, graph.edge(*e).lane);
    let fastest = (0..path.hops())
        .rev()
        .max_by(|&a, &b| converts(&path.edges()[a]).total_cmp(&converts(&path.edges()[b])));
    (path, fastest.unwrap_or(0))
}

/// The path of fewest hops, then of the greatest sum of log peak throughputs (here the product of
/// the peaks), then the first in the order of the file.
pub(crate) fn shortest_path(graph: &Graph<'_>, rates: &Rates) -> Option<Path> {
    let mut best: Vec<Option<(f64, Path)>> = vec![None; graph.vertices.len()];
    let mut frontier = vec![(graph.src, 1.0, Path::EMPTY)];
    let mut seen = 1u128 << graph.src;
    for _ in 0..MAX_HOPS {
        let mut next = 0u128;
        let mut reached: Option<(f64, Path)> = None;
        for (vertex, score, path) in &frontier {
            for (index, edge) in graph.out(*vertex) {
                let score = score * rates.copy(edge.lane);
                let mut longer = *path;
                longer.push(index);
                if edge.to == graph.dst {
                    keep(&mut reached, score, longer);
                } else if seen & (1 << edge.to) == 0 && graph.th_bytes(edge.to) > 0 {
                    next |= 1 << edge.to;
                    keep(&mut best[usize::from(edge.to)], score, longer);
                }
            }
        }
        if let Some((_, path)) = reached {
            return Some(path);
        }
        seen |= next;
        let vertices = (0..graph.vertices.len() as u8).filter(|v| next & (1 << v) != 0);
        let found = vertices.filter_map(|v| best[usize::from(v)].map(|(s, p)| (v, s, p)));
        frontier = found.collect();
    }
    None
}

fn keep(best: &mut Option<(f64, Path)>, score: f64, path: Path) {
    if best.is_none_or(|(s, _)| score > s * (1.0 + 1e-9)) {
        *best = Some((score, path));
    }
}
