//! What all cases come to: how near the roof, and how far ahead of the peers.

use super::{ALONE, PATTERN, REQUIRED, ROOFS, STORES, UNABLE, aims};
use crate::Error;
use crate::report::{Bench, Measured};
use crate::stats::mean;

/// So many times as slow as NumPy a required peer says little of what it could do.
const FAR: f64 = 3.0;

/// What the note of these is called.
const FAR_NOTE: &str = "far slower than numpy";

/// Below this part of the best peer's speed a case counts as lost.
const LOST: f64 = 0.9;

/// A ratio's median, the interval that it lies in, and what it is of, run by run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure<'a> {
    pub(super) median: f64,
    pub(super) interval: [f64; 2],
    pub(super) runs: &'a [f64],
}

impl Figure<'_> {
    /// What an aim is held to.
    pub(super) fn upper(&self) -> f64 {
        self.interval[1]
    }
}

/// The notes that name a case's roof and its best peer.
pub(super) fn best(case: &Measured) -> Vec<(String, String)> {
    let named = |what: &str, (name, figure): (&str, Figure<'_>)| {
        (what.to_owned(), format!("{name} x{:.3}", figure.median))
    };
    let roof = roof(case).map(|r| named("roof", r));
    let peer = peer(case).map(|p| named("best peer", p));
    roof.into_iter().chain(peer).collect()
}

/// The note that names required peers far slower than NumPy.
pub(super) fn far(case: &Measured) -> Option<(String, String)> {
    let numpy = case.seconds.get("numpy")?;
    let times = |name: &&str| Some(case.seconds.get(*name)? / numpy);
    let far = REQUIRED.iter().filter_map(|name| Some((name, times(name).filter(|t| *t > FAR)?)));
    let all: Vec<String> = far.map(|(name, times)| format!("{name} x{times:.1}")).collect();
    Some((FAR_NOTE.to_owned(), all.join(", "))).filter(|(_, text)| !text.is_empty())
}

/// The faster of the plain copies, and what of its speed ours has.
pub(super) fn roof(case: &Measured) -> Option<(&str, Figure<'_>)> {
    fastest(case, |name| ROOFS.contains(&name))
}

/// The fastest peer, likewise.
pub(super) fn peer(case: &Measured) -> Option<(&str, Figure<'_>)> {
    let is_ours = |name: &str| STORES.contains(&name) || [PATTERN, ALONE].contains(&name);
    fastest(case, |name| !ROOFS.contains(&name) && !is_ours(name))
}

/// The fastest of those that are `wanted`, likewise.
pub(super) fn fastest(
    case: &Measured,
    wanted: impl Fn(&str) -> bool,
) -> Option<(&str, Figure<'_>)> {
    let names = case.ratio.keys().map(String::as_str).filter(|name| wanted(name));
    let name = names.min_by(|a, b| case.seconds[*a].total_cmp(&case.seconds[*b]))?;
    Some((name, figure(case, name)?))
}

/// What of the speed of `name` ours has.
pub(super) fn figure<'a>(case: &'a Measured, name: &str) -> Option<Figure<'a>> {
    let (ratio, interval) = (case.ratio.get(name)?, case.interval.get(name)?);
    let runs = case.ratios.get(name).map_or(&[][..], Vec::as_slice);
    Some(Figure { median: ratio[1], interval: *interval, runs })
}

/// Says what the cases so far come to. Returns the peers without which it says nothing.
pub(super) fn sum_up(bench: &mut Bench) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for threads in [1, 2] {
        let cases: Vec<&Measured> =
            bench.cases().iter().filter(|c| c.threads == threads && c.verified).collect();
        lines.extend(of_threads(threads, &cases));
        lines.extend(aims::lines(threads, &cases)?);
    }
    let is_void = |name: &&str| bench.is_absent(name) || is_never_timed(bench.cases(), name);
    let void: Vec<&str> = REQUIRED.into_iter().filter(is_void).collect();
    if !void.is_empty() {
        lines.push(format!("VOID: this table lacks {}", void.join(", ")));
    }
    lines.into_iter().try_for_each(|line| bench.sum_up(format!("# {line}")))?;
    Ok(void.into_iter().map(str::to_owned).collect())
}

/// Whether the peer `name` was asked to do cases that ours does, and failed or was unable in all.
fn is_never_timed(cases: &[Measured], name: &str) -> bool {
    let is_unable = |case: &Measured| {
        case.notes.get(UNABLE).is_some_and(|names| names.split(", ").any(|unable| unable == name))
    };
    let was_asked = |case: &Measured| case.notes.contains_key(name) || is_unable(case);
    let mut right = cases.iter().filter(|case| case.verified);
    right.clone().any(was_asked) && !right.any(|case| case.ratio.contains_key(name))
}

fn of_threads(threads: u32, cases: &[&Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    let label = if threads == 1 { "1 thread" } else { "2 threads" };
    let roofs = cases.iter().filter_map(|c| Some((roof(c)?.1.median, &*c.case)));
    let roofs: Vec<(f64, &str)> = roofs.collect();
    if let Some((least, name)) = least(&roofs) {
        let (count, mean) = (roofs.len(), mean(roofs.iter().map(|r| r.0)));
        lines.push(format!(
            "{label}, {count} cases, of the roof: geometric mean {mean:.3}, worst {least:.3} ({name})"
        ));
    }
    let peers = cases.iter().filter_map(|c| Some((peer(c)?.1.median, &*c.case)));
    let peers: Vec<(f64, &str)> = peers.collect();
    if let Some((least, name)) = least(&peers) {
        let count = peers.len();
        let ahead = peers.iter().filter(|p| p.0 >= 1.0).count();
        let lost = peers.iter().filter(|p| p.0 < LOST).count();
        lines.push(format!(
            "{label}, of the best peer: ahead in {ahead} of {count} cases, below {LOST} in {lost}, \
             worst {least:.3} ({name})"
        ));
    }
    lines
}

fn least<'a>(ratios: &[(f64, &'a str)]) -> Option<(f64, &'a str)> {
    ratios.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn case(name: &str, threads: u32, times: &[(&str, f64)]) -> Measured {
        let others = || times.iter().filter(|t| t.0 != "isometry");
        Measured {
            case: name.to_owned(),
            verified: true,
            threads,
            seconds: times.iter().map(|t| (t.0.to_owned(), t.1)).collect(),
            ratio: others().map(|t| (t.0.to_owned(), [0.0, t.1, 9.0])).collect(),
            interval: others().map(|t| (t.0.to_owned(), [t.1 - 0.01, t.1 + 0.01])).collect(),
            ratios: others().map(|t| (t.0.to_owned(), vec![t.1 - 0.01, t.1, t.1 + 0.01])).collect(),
            ..Measured::default()
        }
    }

    pub(in super::super) fn cases() -> [Measured; 3] {
        let one = ("isometry", 1.0);
        [
            case("a 1", 1, &[one, ("memcpy", 0.9), ("stream", 0.4), ("numpy", 3.0), ("mkl", 0.8)]),
            case("a 1, 2 threads", 2, &[("isometry", 0.5), ("memcpy", 0.9), ("one thread", 0.8)]),
            case("a 2", 1, &[one, ("memcpy", 0.9), ("stream", 2.0), ("numpy", 1.5)]),
        ]
    }

    #[test]
    fn the_roof_is_the_faster_copy_and_the_best_peer_the_fastest_other() {
        let [first, second, third] = cases();
        let runs = &first.ratios["stream"][..];
        let figure = Figure { median: 0.4, interval: [0.4 - 0.01, 0.4 + 0.01], runs };
        assert_eq!(roof(&first).unwrap(), ("stream", figure));
        assert_eq!(roof(&third).unwrap().0, "memcpy");
        assert_eq!(peer(&first).unwrap().0, "mkl");
        assert_eq!(peer(&second), None);
    }

    #[test]
    fn a_required_peer_far_behind_numpy_is_named() {
        let beside = |numpy| [("isometry", 1.0), ("numpy", numpy), ("onednn", 8.0), ("mkl", 99.0)];
        let (name, text) = far(&case("a", 1, &beside(2.0))).unwrap();
        assert_eq!((&*name, &*text), (FAR_NOTE, "onednn x4.0"));
        assert_eq!(far(&case("a", 1, &beside(3.0))), None);
        assert_eq!(far(&case("a", 1, &[("isometry", 1.0), ("onednn", 8.0)])), None);
    }

    #[test]
    fn the_counts_are_of_medians() {
        let [first, _, third] = cases();
        let lines = of_threads(1, &[&first, &third]);
        assert!(lines[0].contains("2 cases, of the roof: geometric mean 0.600, worst 0.400 (a 1)"));
        assert!(lines[1].contains("ahead in 1 of 2 cases, below 0.9 in 1, worst 0.800 (a 1)"));
    }

    #[test]
    fn a_peer_that_fails_everywhere_is_as_good_as_absent() {
        let asked = |mut case: Measured, note: (&str, &str)| {
            case.notes.insert(note.0.to_owned(), note.1.to_owned());
            case
        };
        let [first, second, _] = cases();
        let without = case("b", 1, &[("isometry", 1.0), ("memcpy", 0.9)]);
        assert!(!is_never_timed(&[first.clone(), second.clone(), without.clone()], "onednn"));
        let failed = asked(second, ("numpy", "failed: it is broken"));
        assert!(is_never_timed(std::slice::from_ref(&failed), "numpy"));
        assert!(!is_never_timed(&[first.clone(), failed], "numpy"));
        let unable = asked(without, (UNABLE, "hptt, onednn"));
        assert!(is_never_timed(&[first, unable.clone()], "onednn"));
        assert!(!is_never_timed(&[unable], "numpy"));
    }
}
