//! What all cases come to: how near the roof, how far ahead of the peers, and each aim.

use super::{ALONE, PATTERN, REQUIRED, ROOFS, STORES};
use crate::report::{Bench, Measured};
use crate::{Error, problems};
use regex::Regex;
use serde::Deserialize;

const AIMS: &str = include_str!("../../../../../bench/problems/kernels/aims.toml");

/// So many times as slow as NumPy a required peer says little of what it could do.
const FAR: f64 = 3.0;

/// What the note of these is called.
const FAR_NOTE: &str = "far slower than numpy";

/// Below this part of the best peer's speed a case counts as lost.
const LOST: f64 = 0.9;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aims {
    aim: Vec<Aim>,
}

/// What cases of one thread are to reach.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aim {
    about: String,
    /// The cases, by name.
    cases: String,
    /// Of the roof, of memcpy, or of the better kind of stores.
    #[serde(default)]
    of: Of,
    /// Each case, or their geometric mean.
    #[serde(default)]
    by: By,
    reach: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    #[default]
    Roof,
    Memcpy,
    Stores,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Each,
    Mean,
}

/// A ratio's median, and the upper end of the interval that it lies in.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reached {
    median: f64,
    upper: f64,
}

/// The notes that name a case's roof and its best peer.
pub(super) fn best(case: &Measured) -> Vec<(String, String)> {
    let named = |what: &str, (name, reached): (&str, Reached)| {
        (what.to_owned(), format!("{name} x{:.3}", reached.median))
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
fn roof(case: &Measured) -> Option<(&str, Reached)> {
    fastest(case, |name| ROOFS.contains(&name))
}

/// The fastest peer, likewise.
fn peer(case: &Measured) -> Option<(&str, Reached)> {
    let is_ours = |name: &str| STORES.contains(&name) || [PATTERN, ALONE].contains(&name);
    fastest(case, |name| !ROOFS.contains(&name) && !is_ours(name))
}

fn fastest(case: &Measured, wanted: impl Fn(&str) -> bool) -> Option<(&str, Reached)> {
    let names = case.ratio.keys().map(String::as_str).filter(|name| wanted(name));
    let name = names.min_by(|a, b| case.seconds[*a].total_cmp(&case.seconds[*b]))?;
    Some((name, reached(case, name)?))
}

fn reached(case: &Measured, name: &str) -> Option<Reached> {
    Some(Reached { median: case.ratio.get(name)?[1], upper: case.interval.get(name)?[1] })
}

/// Says what the cases so far come to.
pub(super) fn sum_up(bench: &mut Bench) -> Result<(), Error> {
    let mut lines = Vec::new();
    for threads in [1, 2] {
        let cases: Vec<&Measured> =
            bench.cases().iter().filter(|c| c.threads == threads && c.verified).collect();
        lines.extend(of_threads(threads, &cases));
        if threads == 1 {
            let aims: Aims = problems::read("kernels/aims", AIMS)?;
            for aim in &aims.aim {
                lines.extend(aim.line(&cases)?);
            }
        }
    }
    lines.extend(not_slower(bench.cases()));
    let absent: Vec<&str> = REQUIRED.into_iter().filter(|name| bench.is_absent(name)).collect();
    if !absent.is_empty() {
        lines.push(format!("VOID: this table lacks {}", absent.join(", ")));
    }
    lines.into_iter().try_for_each(|line| bench.sum_up(format!("# {line}")))
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

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v.ln(), count + 1.0));
    f64::exp(sum / count)
}

/// Whether two threads are never slower than one, timed in turn with them.
fn not_slower(cases: &[Measured]) -> Option<String> {
    let ratios: Vec<(Reached, &str)> =
        cases.iter().filter_map(|c| Some((reached(c, ALONE)?, &*c.case))).collect();
    let (worst, name) = ratios.iter().min_by(|a, b| a.0.upper.total_cmp(&b.0.upper))?;
    let (count, slower) = (ratios.len(), ratios.iter().filter(|r| r.0.upper < 1.0).count());
    let Reached { median, upper } = worst;
    Some(format!(
        "2 threads over 1: slower in {slower} of {count} cases, worst x{median:.3} (up to \
         {upper:.3}, {name})"
    ))
}

impl Aim {
    /// How it stands, in a line; none where no case was measured.
    fn line(&self, cases: &[&Measured]) -> Result<Option<String>, Error> {
        let pattern = Regex::new(&self.cases).map_err(Error::part("reading an aim"))?;
        let of = |case: &Measured| match self.of {
            Of::Roof => roof(case).map(|r| r.1),
            Of::Memcpy => reached(case, "memcpy"),
            Of::Stores => fastest(case, |name| STORES.contains(&name)).map(|s| s.1),
        };
        let matching = cases.iter().filter(|c| pattern.is_match(&c.case));
        let all: Vec<(Reached, &Measured)> = matching.filter_map(|c| Some((of(c)?, *c))).collect();
        let Some((worst, case)) = all.iter().min_by(|a, b| a.0.upper.total_cmp(&b.0.upper)) else {
            return Ok(None);
        };
        let (about, reach, count) = (&self.about, self.reach, all.len());
        let (is_reached, text, short) = match self.by {
            By::Mean => {
                let median = mean(all.iter().map(|r| r.0.median));
                let upper = mean(all.iter().map(|r| r.0.upper));
                let text = format!("{median:.3} (up to {upper:.3}) of {count}, aim {reach}");
                (upper >= reach, text, all.clone())
            }
            By::Each => {
                let short: Vec<_> = all.iter().filter(|r| r.0.upper < reach).copied().collect();
                let Reached { median, upper } = worst;
                let (good, name) = (count - short.len(), &case.case);
                let text = format!(
                    "{good} of {count} at {reach}, worst {median:.3} (up to {upper:.3}, {name})"
                );
                (short.is_empty(), text, short)
            }
        };
        let mark = if is_reached { "reached" } else { "MISSED " };
        let why = if is_reached { None } else { self.traffic(&short) };
        Ok(Some(format!("{mark} {about}: {text}{}", why.unwrap_or_default())))
    }

    /// What the traffic without the conversion says of cases that fall short: where ours is faster than it,
    /// nothing.
    fn traffic(&self, cases: &[(Reached, &Measured)]) -> Option<String> {
        let of_pattern =
            |r: &(Reached, &Measured)| Some((r.0.median, reached(r.1, PATTERN)?.median));
        let ratios: Vec<(f64, f64)> = cases.iter().filter_map(of_pattern).collect();
        let (count, reach) = (ratios.len(), self.reach);
        if count == 0 {
            return None;
        }
        let without = mean(ratios.iter().map(|(ours, of)| ours / of));
        let ours = mean(ratios.iter().map(|(_, of)| *of));
        let below = ratios.iter().filter(|(ours, of)| ours / of < reach).count();
        let faster = ratios.iter().filter(|(_, of)| *of > 1.0).count();
        Some(format!(
            "; what falls short is at {without:.3} without converting, {below} of {count} below {reach}, \
             and ours at {ours:.3} of that, faster in {faster}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::kernels::family;
    use model::Crossover;

    fn case(name: &str, threads: u32, times: &[(&str, f64)]) -> Measured {
        let others = || times.iter().filter(|t| t.0 != "isometry");
        Measured {
            case: name.to_owned(),
            verified: true,
            threads,
            seconds: times.iter().map(|t| (t.0.to_owned(), t.1)).collect(),
            ratio: others().map(|t| (t.0.to_owned(), [0.0, t.1, 9.0])).collect(),
            interval: others().map(|t| (t.0.to_owned(), [0.0, t.1 + 0.1])).collect(),
            ..Measured::default()
        }
    }

    fn cases() -> [Measured; 3] {
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
        assert_eq!(roof(&first).unwrap(), ("stream", Reached { median: 0.4, upper: 0.5 }));
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
    fn two_threads_are_slower_where_all_of_the_interval_is() {
        let two = |name, one| case(name, 2, &[("isometry", 1.0), ("one thread", one)]);
        let noisy = not_slower(&[two("a, 2 threads", 1.5), two("b, 2 threads", 0.95)]).unwrap();
        assert!(noisy.contains("slower in 0 of 2 cases, worst x0.950 (up to 1.050, b, 2 threads)"));
        let slower = not_slower(&[two("a, 2 threads", 0.85)]).unwrap();
        assert!(slower.contains("slower in 1 of 1 cases"), "{slower}");
        assert_eq!(not_slower(&[case("a", 1, &[("isometry", 1.0)])]), None);
    }

    #[test]
    fn an_aim_is_reached_by_the_upper_end_of_the_interval() {
        let [first, _, third] = cases();
        let cases = [&first, &third];
        let aim =
            |of, by, reach| Aim { about: "it".to_owned(), cases: "^a ".to_owned(), of, by, reach };
        let line = |aim: Aim| aim.line(&cases).unwrap().unwrap();
        assert_eq!(
            line(aim(Of::Roof, By::Each, 0.5)),
            "reached it: 2 of 2 at 0.5, worst 0.400 (up to 0.500, a 1)"
        );
        assert!(line(aim(Of::Roof, By::Each, 0.51)).starts_with("MISSED  it: 1 of 2 at 0.51"));
        assert!(line(aim(Of::Memcpy, By::Each, 0.95)).starts_with("reached it: 2 of 2"));
        let either = case("a 3", 1, &[("isometry", 1.0), ("cached", 1.1), ("streamed", 0.8)]);
        let of_stores = aim(Of::Stores, By::Each, 0.95).line(&[&first, &either]).unwrap().unwrap();
        assert!(of_stores.starts_with("MISSED  it: 0 of 1 at 0.95, worst 0.800"), "{of_stores}");
        assert_eq!((peer(&either), roof(&either)), (None, None));
        let mean = line(aim(Of::Roof, By::Mean, 0.7));
        assert_eq!(mean, "reached it: 0.600 (up to 0.707) of 2, aim 0.7");
        let none = Aim { cases: "^b".to_owned(), ..aim(Of::Roof, By::Mean, 0.7) };
        assert_eq!(none.line(&cases).unwrap(), None);
    }

    #[test]
    fn what_falls_short_is_told_with_its_traffic() {
        let one = ("isometry", 1.0);
        let cases = [
            case("a 1", 1, &[one, ("memcpy", 0.4), ("pattern", 0.8)]),
            case("a 2", 1, &[one, ("memcpy", 0.5), ("pattern", 0.5)]),
        ];
        let aim = |by, reach| Aim {
            about: "it".to_owned(),
            cases: "^a ".to_owned(),
            of: Of::Roof,
            by,
            reach,
        };
        let line = |aim: Aim| aim.line(&cases.iter().collect::<Vec<_>>()).unwrap().unwrap();
        let each = line(aim(By::Each, 0.6));
        let why = "is at 0.500 without converting, 1 of 1 below 0.6, and ours at 0.800 of that, faster in 0";
        assert!(each.starts_with("MISSED  it: 1 of 2 at 0.6") && each.contains(why), "{each}");
        let mean = line(aim(By::Mean, 0.7));
        let why = "is at 0.707 without converting, 1 of 2 below 0.7, and ours at 0.632 of that";
        assert!(mean.contains(why), "{mean}");
        assert!(!line(aim(By::Each, 0.5)).contains("without converting"));
        let faster = case("a 3", 1, &[one, ("memcpy", 0.4), ("pattern", 1.25)]);
        let why = aim(By::Each, 0.6).line(&[&faster]).unwrap().unwrap();
        assert!(why.ends_with("and ours at 1.250 of that, faster in 1"), "{why}");
        assert_eq!(peer(&cases[0]), None);
    }

    #[test]
    fn every_aim_is_about_some_case() {
        let problems = family::problems(Crossover::default()).unwrap();
        let aims: Aims = problems::read("kernels/aims", AIMS).unwrap();
        for aim in aims.aim {
            let pattern = Regex::new(&aim.cases).unwrap();
            assert!(problems.iter().any(|p| pattern.is_match(&p.name)), "{}", aim.about);
        }
    }
}
