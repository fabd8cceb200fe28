//! The cases of a group as they are timed: a table, and at the end JSON.

use crate::settings::{Output, Settings, Stop};
use crate::stats::{Ratio, median};
use crate::turns::{self, SLOW_RUNS};
use crate::{Error, process};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

/// The fewest runs that a time budget leaves of a case: a median with something on either side.
const LEAST_RUNS: usize = 5;

/// What a group found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What `bench/out/GROUP.json` holds.
    pub json: serde_json::Value,
    /// The cases whose result was wrong.
    pub wrong: Vec<String>,
    /// The contenders that this machine does not have.
    pub absent: Vec<String>,
    /// The contenders that are required, and absent or never right: without them it says nothing.
    pub void: Vec<String>,
}

/// One that runs the work of a case, by name. The first of a case is ours.
pub(crate) struct Contender<'a> {
    /// As in the table: `isometry`, `memcpy`, …
    pub(crate) name: &'a str,
    /// Runs the work once.
    pub(crate) run: &'a mut dyn FnMut() -> Result<(), Error>,
}

/// What a case moves, and how often it runs.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// `transpose 8192x8192 f4`.
    pub(crate) name: String,
    /// Payload, counted once.
    pub(crate) bytes: u64,
    /// Threads that may work on it.
    pub(crate) threads: u32,
    /// How often each contender runs, after one run to warm up.
    pub(crate) runs: usize,
    /// How many calls are timed together as one run: their mean. Where these are several, another
    /// goes before them off the clock, so that nobody pays for what the contender before has left
    /// in the caches.
    pub(crate) calls: usize,
}

/// A group at work.
#[derive(Debug)]
pub(crate) struct Bench {
    settings: Settings,
    /// So many times as slow as ours one is timed no more.
    slow: Option<f64>,
    found: Found,
}

#[derive(Debug, Serialize)]
struct Found {
    group: String,
    machine: String,
    absent: Vec<String>,
    /// Of those beside ours that tell theirs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    versions: BTreeMap<String, String>,
    /// Cases that this machine has no room for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    cases: Vec<Measured>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    summary: Vec<String>,
}

/// What a case came to.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Measured {
    pub(crate) case: String,
    pub(crate) verified: bool,
    pub(crate) bytes: u64,
    pub(crate) threads: u32,
    pub(crate) runs: usize,
    pub(crate) seconds: BTreeMap<String, f64>,
    /// Of each contender's time to ours: p25, p50, p75.
    pub(crate) ratio: BTreeMap<String, [f64; 3]>,
    /// The 95% intervals of the medians of these.
    pub(crate) interval: BTreeMap<String, [f64; 2]>,
    /// Run by run.
    #[serde(skip)]
    pub(crate) ratios: BTreeMap<String, Vec<f64>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) figures: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) notes: BTreeMap<String, String>,
}

impl Bench {
    /// The group `name`, without a case yet.
    pub(crate) fn new(name: &str, settings: &Settings) -> Result<Self, Error> {
        let machine = process::machine();
        let (group, absent, cases) = (name.to_owned(), Vec::new(), Vec::new());
        let (left_out, summary) = (Vec::new(), Vec::new());
        let versions = BTreeMap::new();
        let found = Found { group, machine, absent, versions, left_out, cases, summary };
        let bench = Bench { settings: settings.clone(), slow: None, found };
        bench.line(format_args!("# {name} on {}", bench.found.machine))?;
        Ok(bench)
    }

    /// Says that the machine has `device` too, which cases run on.
    pub(crate) fn also_on(&mut self, device: &str) -> Result<(), Error> {
        self.found.machine += &format!("; {device}");
        self.line(format_args!("# {device}"))
    }

    /// Has who is more than `times` as slow as ours run [`SLOW_RUNS`] times in a case and no more, so
    /// that the others have their runs before its time is over.
    pub(crate) fn leave_slow(&mut self, times: f64) {
        self.slow = Some(times);
    }

    /// How the group is to run.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What ends it.
    pub(crate) fn stop(&self) -> Stop {
        self.settings.stop.clone()
    }

    /// Whether the case `name` was asked for; set one up only then.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.settings.filter.as_ref().is_none_or(|f| f.is_match(name))
    }

    /// How often to run what a problem says runs `runs` times.
    pub(crate) fn runs(&self, runs: usize) -> usize {
        self.settings.runs.unwrap_or(runs).max(1)
    }

    /// Notes a contender that this machine does not have, and says `why`.
    pub(crate) fn absent(&mut self, name: &str, why: &Error) {
        self.say(format_args!("{name} is absent: {why}"));
        if !self.found.absent.iter().any(|known| known == name) {
            self.found.absent.push(name.to_owned());
        }
    }

    /// Notes the version of a contender, where it tells one.
    pub(crate) fn beside(&mut self, name: &str, version: Option<String>) -> Result<(), Error> {
        let Some(version) = version else { return Ok(()) };
        self.line(format_args!("# {name} {version}"))?;
        self.found.versions.insert(name.to_owned(), version);
        Ok(())
    }

    /// Whether nobody has that contender.
    pub(crate) fn is_absent(&self, name: &str) -> bool {
        self.found.absent.iter().any(|absent| absent == name)
    }

    /// Notes a case that is not run, and says `why`.
    pub(crate) fn leave_out(&mut self, case: &str, why: impl Display) {
        self.say(format_args!("{case} is left out: {why}"));
        self.found.left_out.push(case.to_owned());
    }

    /// The cases so far.
    pub(crate) fn cases(&self) -> &[Measured] {
        &self.found.cases
    }

    /// Says on standard error how far it is.
    pub(crate) fn say(&self, what: impl Display) {
        // Whoever read it may have gone.
        let _ = writeln!(std::io::stderr(), "{}: {what}", self.found.group);
    }

    /// Prints a line of the table.
    pub(crate) fn line(&self, line: impl Display) -> Result<(), Error> {
        let written = match self.settings.output {
            Output::Standard => writeln!(std::io::stdout(), "{line}"),
            Output::Error => writeln!(std::io::stderr(), "{line}"),
        };
        written.map_err(Error::Output)
    }

    /// Runs ours once, verifies, and if the result is right times all `contenders` alternating.
    pub(crate) fn run(
        &mut self,
        case: &Case,
        contenders: &mut [Contender<'_>],
        verify: &mut dyn FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        (contenders[0].run)()?;
        let verified = verify()?;
        self.time((case, verified), contenders, &mut || Ok(()))
    }

    /// The second half of [`Bench::run`], where ours ran once and `verified` says how. Before
    /// each run, off the clock, `settle` undoes what the one before has left.
    pub(crate) fn time(
        &mut self,
        (case, verified): (&Case, bool),
        contenders: &mut [Contender<'_>],
        settle: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let seconds = if verified { self.alternate(case, contenders, settle)? } else { Vec::new() };
        let names: Vec<_> = contenders.iter().map(|c| c.name).collect();
        self.record(case, verified, &names, &seconds)?;
        let most = seconds.first().map_or(0, Vec::len);
        let left = names.iter().zip(&seconds).filter(|(_, times)| times.len() < most);
        let told = format!("x {} or more slower: {SLOW_RUNS} runs", self.slow.unwrap_or_default());
        left.into_iter().try_for_each(|(name, _)| self.note(name, &told))
    }

    /// Times `contenders` in turns, until the case has its runs or its time is over; that of those who
    /// are left out is not counted.
    fn alternate(
        &self,
        case: &Case,
        contenders: &mut [Contender<'_>],
        settle: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let count = contenders.len();
        let mut spent = vec![Duration::ZERO; count];
        for k in 1..count {
            spent[k] = Duration::from_secs_f64(timed(|| (contenders[k].run)())?);
        }
        let runs = self.runs(case.runs);
        let least = self.settings.runs.unwrap_or(LEAST_RUNS);
        let mut seconds = vec![Vec::with_capacity(runs); count];
        let mut left_out = Vec::new();
        for round in 0..runs {
            if round == SLOW_RUNS
                && let Some(times) = self.slow
            {
                left_out = turns::slow(&seconds, times);
            }
            let takes_part = |k: &usize| !left_out.contains(k);
            let all: Duration = (0..count).filter(takes_part).map(|k| spent[k]).sum();
            if round >= least && all > self.settings.budget {
                break;
            }
            for k in turns::order(round, count).filter(takes_part) {
                self.settings.stop.check()?;
                let started = Instant::now();
                settle()?;
                seconds[k].push(timed_calls(&mut contenders[k].run, case.calls)?);
                spent[k] += started.elapsed();
            }
        }
        Ok(seconds)
    }

    /// Adds a case that was timed elsewhere: `seconds[i]` are the runs of `names[i]`, ours first,
    /// paired by position.
    pub(crate) fn record(
        &mut self,
        case: &Case,
        verified: bool,
        names: &[&str],
        seconds: &[Vec<f64>],
    ) -> Result<(), Error> {
        let measured = measured(case, verified, names, seconds);
        self.line(table(&measured))?;
        self.found.cases.push(measured);
        Ok(())
    }

    /// Adds a figure of its own to the last case: a count, a rate, a prediction.
    pub(crate) fn figure(&mut self, name: &str, value: f64) -> Result<(), Error> {
        let Some(case) = self.found.cases.last_mut() else { return Ok(()) };
        case.figures.insert(name.to_owned(), value);
        self.line(format_args!("    {name} = {value:.6}"))
    }

    /// Adds a word of its own to the last case, behind what there is of that name.
    pub(crate) fn note(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let Some(case) = self.found.cases.last_mut() else { return Ok(()) };
        let known = case.notes.entry(name.to_owned()).or_default();
        *known += if known.is_empty() { "" } else { "; " };
        *known += text;
        self.line(format_args!("    {name}: {text}"))
    }

    /// Adds a line about all cases.
    pub(crate) fn sum_up(&mut self, line: String) -> Result<(), Error> {
        self.line(&line)?;
        self.found.summary.push(line);
        Ok(())
    }

    /// Writes `GROUP.json`, unless no case was asked for: an earlier report then stays.
    pub(crate) fn finish(self) -> Result<Report, Error> {
        let json = serde_json::to_value(&self.found).map_err(Error::part("making JSON"))?;
        if self.found.cases.is_empty() && self.found.left_out.is_empty() {
            self.say("no case has a name that matches");
        } else {
            self.write(&json)?;
        }
        let wrong = self.found.cases.iter().filter(|c| !c.verified).map(|c| c.case.clone());
        let (wrong, absent) = (wrong.collect(), self.found.absent.clone());
        Ok(Report { json, wrong, absent, void: Vec::new() })
    }

    fn write(&self, json: &Value) -> Result<(), Error> {
        let folder = &self.settings.out;
        std::fs::create_dir_all(folder).map_err(Error::io("making the reports' directory"))?;
        let path = folder.join(format!("{}.json", self.found.group));
        std::fs::write(&path, format!("{json:#}\n")).map_err(Error::io("writing the report"))?;
        let absent = self.found.absent.join(", ");
        let absent = if absent.is_empty() { String::new() } else { format!("absent: {absent}; ") };
        self.line(format_args!("# {absent}written to {}", path.display()))
    }
}

/// The seconds that `run` takes.
pub(crate) fn timed(run: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64())
}

/// The mean of so many calls of `run`; where they are several, after one off the clock.
fn timed_calls(run: &mut dyn FnMut() -> Result<(), Error>, calls: usize) -> Result<f64, Error> {
    if calls > 1 {
        run()?;
    }
    let seconds = timed(|| (0..calls.max(1)).try_for_each(|_| run()))?;
    Ok(seconds / calls.max(1) as f64)
}

fn measured(case: &Case, verified: bool, names: &[&str], seconds: &[Vec<f64>]) -> Measured {
    let mut measured = Measured {
        case: case.name.clone(),
        verified,
        bytes: case.bytes,
        threads: case.threads,
        runs: seconds.first().map_or(0, Vec::len),
        ..Measured::default()
    };
    for (i, (name, times)) in names.iter().zip(seconds).filter(|(_, t)| !t.is_empty()).enumerate() {
        measured.seconds.insert((*name).to_owned(), median(times));
        if i > 0 {
            let ratio = Ratio::paired(times, &seconds[0]);
            measured.ratio.insert((*name).to_owned(), ratio.quartiles);
            measured.interval.insert((*name).to_owned(), ratio.interval);
            measured.ratios.insert((*name).to_owned(), ratio.runs);
        }
    }
    measured
}

/// The lines of a case.
fn table(measured: &Measured) -> String {
    let mark = if measured.verified { "" } else { "  WRONG RESULT" };
    let (bytes, runs) = (measured.bytes, measured.runs);
    let mut text = format!("{:48} {bytes} B, {runs} runs{mark}", measured.case);
    for (name, seconds) in &measured.seconds {
        let ratio = match (measured.ratio.get(name), measured.interval.get(name)) {
            (Some([low, middle, high]), Some([from, to])) => {
                format!("  x{middle:.3} [{low:.3} .. {high:.3}], median in {from:.3} .. {to:.3}")
            }
            _ => String::new(),
        };
        text += &format!("\n    {name:16} {:>12.3} us{ratio}", seconds * 1e6);
    }
    text
}
