//! What cases are to reach, and how each aim stands.

use super::summary::{Figure, fastest, figure, peer, roof};
use super::{ALONE, PATTERN, STORES};
use crate::report::Measured;
use crate::stats::{mean, mean_interval};
use crate::{Error, problems};
use regex::Regex;
use serde::Deserialize;

const AIMS: &str = include_str!("../../../../../bench/problems/kernels/aims.toml");

/// An interval that holds an aim and is wider than this part of it decides nothing.
const WIDE: f64 = 0.1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aims {
    aim: Vec<Aim>,
}

/// What cases are to reach.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aim {
    about: String,
    /// The cases, by name.
    cases: String,
    /// Those of one thread, or of two.
    #[serde(default = "one_thread")]
    threads: u32,
    #[serde(default)]
    of: Of,
    /// Each case, or their geometric mean.
    #[serde(default)]
    by: By,
    reach: f64,
    /// The part of the cases that is to reach it.
    #[serde(default = "all")]
    share: f64,
}

fn one_thread() -> u32 {
    1
}

fn all() -> f64 {
    1.0
}

/// Of the speed of which contender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    /// The faster plain copy.
    #[default]
    Roof,
    Memcpy,
    /// The same kernels with the better kind of stores.
    Stores,
    /// The best peer.
    Peer,
    /// The same on one thread.
    Alone,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Each,
    Mean,
}

/// A case's figure, and the case.
type Found<'a> = (Figure<'a>, &'a Measured);

/// How each aim about cases of so many threads stands.
pub(super) fn lines(threads: u32, cases: &[&Measured]) -> Result<Vec<String>, Error> {
    let aims: Aims = problems::read("kernels/aims", AIMS)?;
    let about = aims.aim.iter().filter(|aim| aim.threads == threads);
    about.filter_map(|aim| aim.line(cases).transpose()).collect()
}

impl Aim {
    /// How it stands, in a line; none where no case was measured.
    fn line(&self, cases: &[&Measured]) -> Result<Option<String>, Error> {
        let pattern = Regex::new(&self.cases).map_err(Error::part("reading an aim"))?;
        let matching = cases.iter().filter(|c| pattern.is_match(&c.case));
        let all: Vec<Found<'_>> = matching.filter_map(|c| Some((self.figure(c)?, *c))).collect();
        let Some(worst) = all.iter().min_by(|a, b| a.0.upper().total_cmp(&b.0.upper())) else {
            return Ok(None);
        };
        let short: Vec<_> = all.iter().filter(|f| f.0.upper() < self.reach).copied().collect();
        let (is_reached, text) = match self.by {
            By::Mean => self.of_mean(&all),
            By::Each => self.of_each(&all, &short, worst),
        };
        let mark = if is_reached { "reached" } else { "MISSED " };
        let mut line = format!("{mark} {}: {text}", self.about);
        if self.by == By::Each || !is_reached {
            line += &named("; short: ", &short);
        }
        if !is_reached {
            let why = if self.by == By::Mean { &all } else { &short };
            line += &self.traffic(why).unwrap_or_default();
        }
        Ok(Some(line))
    }

    fn figure<'a>(&self, case: &'a Measured) -> Option<Figure<'a>> {
        match self.of {
            Of::Roof => roof(case).map(|r| r.1),
            Of::Memcpy => figure(case, "memcpy"),
            Of::Stores => fastest(case, |name| STORES.contains(&name)).map(|s| s.1),
            Of::Peer => peer(case).map(|p| p.1),
            Of::Alone => figure(case, ALONE),
        }
    }

    /// Whether the mean of `all` reaches it, in words too.
    fn of_mean(&self, all: &[Found<'_>]) -> (bool, String) {
        let median = mean(all.iter().map(|f| f.0.median));
        let runs: Vec<&[f64]> = all.iter().map(|f| f.0.runs).collect();
        let [low, high] = mean_interval(&runs);
        let undecided = if self.is_undecided([low, high]) { ", undecided" } else { "" };
        let text = format!(
            "{median:.3} ({low:.3} .. {high:.3}{undecided}) of {}, aim {}",
            all.len(),
            self.reach
        );
        (high >= self.reach, text)
    }

    /// Whether as many of `all` as should reach it, in words too.
    fn of_each(&self, all: &[Found<'_>], short: &[Found<'_>], worst: &Found<'_>) -> (bool, String) {
        let (count, good, reach) = (all.len(), all.len() - short.len(), self.reach);
        let undecided = all.iter().filter(|f| self.is_undecided(f.0.interval)).copied();
        let undecided = named("; undecided: ", &undecided.collect::<Vec<_>>());
        let share =
            if self.share < 1.0 { format!(", {} asked", self.share) } else { String::new() };
        let text = format!("{good} of {count} at {reach}{share}, worst {}{undecided}", told(worst));
        (good as f64 >= self.share * count as f64, text)
    }

    /// Whether an interval holds the aim, and is wide.
    fn is_undecided(&self, [low, high]: [f64; 2]) -> bool {
        low < self.reach && self.reach <= high && high - low > WIDE * self.reach
    }

    /// What the traffic without the conversion says of cases that fall short: where ours is faster than it,
    /// nothing.
    fn traffic(&self, cases: &[Found<'_>]) -> Option<String> {
        let of_pattern = |f: &Found<'_>| Some((f.0.median, figure(f.1, PATTERN)?.median));
        let copies = self.of == Of::Roof || self.of == Of::Memcpy;
        let ratios: Vec<(f64, f64)> =
            cases.iter().filter(|_| copies).filter_map(of_pattern).collect();
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

/// All of `cases`, behind `what` they are; nothing of none.
fn named(what: &str, cases: &[Found<'_>]) -> String {
    let all: Vec<String> = cases.iter().map(told).collect();
    if all.is_empty() { String::new() } else { format!("{what}{}", all.join(", ")) }
}

fn told((figure, case): &Found<'_>) -> String {
    let (Figure { median, interval: [low, high], .. }, name) = (figure, &case.case);
    format!("{median:.3} ({low:.3} .. {high:.3}, {name})")
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{case, cases};
    use super::*;
    use crate::groups::kernels::family;
    use model::Crossover;

    fn aim(of: Of, by: By, reach: f64) -> Aim {
        let (about, cases) = ("it".to_owned(), "^a ".to_owned());
        Aim { about, cases, threads: 1, of, by, reach, share: 1.0 }
    }

    #[test]
    fn an_aim_is_reached_by_the_upper_end_of_the_interval() {
        let [first, _, third] = cases();
        let cases = [&first, &third];
        let line = |aim: Aim| aim.line(&cases).unwrap().unwrap();
        assert_eq!(
            line(aim(Of::Roof, By::Each, 0.4)),
            "reached it: 2 of 2 at 0.4, worst 0.400 (0.390 .. 0.410, a 1)"
        );
        assert!(line(aim(Of::Roof, By::Each, 0.42)).starts_with("MISSED  it: 1 of 2 at 0.42"));
        assert!(line(aim(Of::Memcpy, By::Each, 0.905)).starts_with("reached it: 2 of 2"));
        let either = case("a 3", 1, &[("isometry", 1.0), ("cached", 1.1), ("streamed", 0.8)]);
        let of_stores = aim(Of::Stores, By::Each, 0.95).line(&[&first, &either]).unwrap().unwrap();
        assert!(of_stores.starts_with("MISSED  it: 0 of 1 at 0.95, worst 0.800"), "{of_stores}");
        assert_eq!((peer(&either), roof(&either)), (None, None));
        let none = Aim { cases: "^b".to_owned(), ..aim(Of::Roof, By::Mean, 0.7) };
        assert_eq!(none.line(&cases).unwrap(), None);
    }

    #[test]
    fn a_mean_is_judged_by_the_interval_of_the_mean() {
        let [first, _, third] = cases();
        let line = |reach| aim(Of::Roof, By::Mean, reach).line(&[&first, &third]).unwrap().unwrap();
        let reached = line(0.6);
        assert!(reached.starts_with("reached it: 0.600 (0.589 .. 0.611) of 2"), "{reached}");
        assert!(reached.ends_with(") of 2, aim 0.6"), "{reached}");
        let missed = line(0.7);
        assert!(missed.starts_with("MISSED  it: 0.600 ("), "{missed}");
        assert!(missed.ends_with("aim 0.7; short: 0.400 (0.390 .. 0.410, a 1)"), "{missed}");
    }

    #[test]
    fn every_case_that_is_short_is_named() {
        let [first, _, third] = cases();
        let missed = aim(Of::Roof, By::Each, 0.95).line(&[&first, &third]).unwrap().unwrap();
        let short = "; short: 0.400 (0.390 .. 0.410, a 1), 0.900 (0.890 .. 0.910, a 2)";
        assert!(missed.ends_with(short), "{missed}");
        let enough = Aim { share: 0.5, ..aim(Of::Roof, By::Each, 0.5) };
        let enough = enough.line(&[&first, &third]).unwrap().unwrap();
        assert!(enough.starts_with("reached it: 1 of 2 at 0.5, 0.5 asked, worst"), "{enough}");
        assert!(enough.ends_with("; short: 0.400 (0.390 .. 0.410, a 1)"), "{enough}");
        let more = Aim { share: 0.95, ..aim(Of::Roof, By::Each, 0.5) };
        assert!(more.line(&[&first, &third]).unwrap().unwrap().starts_with("MISSED"));
    }

    #[test]
    fn what_is_reached_by_a_wide_interval_is_told_to_be_undecided() {
        let [mut first, ..] = cases();
        let line = |case: &Measured| aim(Of::Memcpy, By::Each, 1.0).line(&[case]).unwrap().unwrap();
        assert!(line(&first).starts_with("MISSED"));
        first.interval.insert("memcpy".to_owned(), [0.85, 1.05]);
        let undecided = "reached it: 1 of 1 at 1, worst 0.900 (0.850 .. 1.050, a 1); undecided: 0.900 \
                         (0.850 .. 1.050, a 1)";
        assert_eq!(line(&first), undecided);
        first.interval.insert("memcpy".to_owned(), [0.97, 1.05]);
        assert!(!line(&first).contains("undecided"));
        first.interval.insert("memcpy".to_owned(), [1.0, 1.5]);
        assert!(!line(&first).contains("undecided"));
    }

    #[test]
    fn peers_and_one_thread_are_aims_too() {
        let [first, second, third] = cases();
        let of_peer = aim(Of::Peer, By::Each, 0.9).line(&[&first, &third]).unwrap().unwrap();
        assert!(of_peer.starts_with("MISSED  it: 1 of 2 at 0.9, worst 0.800"), "{of_peer}");
        let two = Aim { threads: 2, ..aim(Of::Alone, By::Each, 1.0) };
        let alone = two.line(&[&second]).unwrap().unwrap();
        assert!(alone.starts_with("MISSED  it: 0 of 1 at 1, worst 0.800"), "{alone}");
        assert_eq!(aim(Of::Alone, By::Each, 1.0).line(&[&first]).unwrap(), None);
    }

    #[test]
    fn what_falls_short_is_told_with_its_traffic() {
        let one = ("isometry", 1.0);
        let cases = [
            case("a 1", 1, &[one, ("memcpy", 0.4), ("pattern", 0.8)]),
            case("a 2", 1, &[one, ("memcpy", 0.5), ("pattern", 0.5)]),
        ];
        let line = |aim: Aim| aim.line(&cases.iter().collect::<Vec<_>>()).unwrap().unwrap();
        let each = line(aim(Of::Roof, By::Each, 0.5));
        let why = "is at 0.500 without converting, 0 of 1 below 0.5, and ours at 0.800 of that, faster in 0";
        assert!(each.starts_with("MISSED  it: 1 of 2 at 0.5") && each.contains(why), "{each}");
        let mean = line(aim(Of::Roof, By::Mean, 0.7));
        let why = "is at 0.707 without converting, 1 of 2 below 0.7, and ours at 0.632 of that";
        assert!(mean.contains(why), "{mean}");
        assert!(!line(aim(Of::Roof, By::Each, 0.4)).contains("without converting"));
        let faster = case("a 3", 1, &[one, ("memcpy", 0.4), ("pattern", 1.25)]);
        let why = aim(Of::Roof, By::Each, 0.6).line(&[&faster]).unwrap().unwrap();
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
            assert!([1, 2].contains(&aim.threads) && aim.share > 0.0, "{}", aim.about);
        }
    }
}
