//! A group of cases: its table and its JSON.

use crate::{Ratio, median};
use regex::Regex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// One that runs the work of a case, by name. The first of a case is ours.
pub struct Contender<'a> {
    /// As in the table: `isometry`, `memcpy`, …
    pub name: &'a str,
    /// Runs the work once.
    pub run: &'a mut dyn FnMut(),
}

/// What a case moves, and how often it runs.
#[derive(Debug, Clone)]
pub struct Case {
    /// `transpose 8192x8192 f4`.
    pub name: String,
    /// Payload, counted once.
    pub bytes: u64,
    /// Threads that may work on it.
    pub threads: u32,
    /// How often each contender runs, after one run to warm up.
    pub runs: usize,
}

/// A group of benchmark cases, printed as they run and written as JSON at the end.
#[derive(Debug)]
pub struct Group {
    filter: Option<Regex>,
    report: Report,
}

#[derive(Debug, Serialize)]
struct Report {
    group: String,
    machine: String,
    absent: Vec<String>,
    cases: Vec<Measured>,
}

#[derive(Debug, Default, Serialize)]
struct Measured {
    case: String,
    verified: bool,
    bytes: u64,
    threads: u32,
    runs: usize,
    seconds: BTreeMap<String, f64>,
    ratio: BTreeMap<String, [f64; 3]>,
    interval: BTreeMap<String, [f64; 2]>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    figures: BTreeMap<String, f64>,
}

impl Group {
    /// The group `name`, filtered by the program's first argument: a regular expression on the
    /// names of cases.
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn from_args(name: &str) -> Result<Self, regex::Error> {
        let pattern = std::env::args().nth(1).filter(|a| !a.is_empty());
        let filter = pattern.map(|p| Regex::new(&p)).transpose()?;
        let report = Report {
            group: name.to_owned(),
            machine: machine(),
            absent: Vec::new(),
            cases: Vec::new(),
        };
        println!("# {name} on {}", report.machine);
        Ok(Group { filter, report })
    }

    /// Whether the case `name` was asked for; set one up only then.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|f| f.is_match(name))
    }

    /// Notes a contender that is not installed.
    pub fn absent(&mut self, name: &str) {
        self.report.absent.push(name.to_owned());
    }

    /// Runs ours once, verifies, and if the result is right times all `contenders` alternating.
    /// A case that fails to verify is reported as such and not timed.
    pub fn run(
        &mut self,
        case: &Case,
        contenders: &mut [Contender<'_>],
        verify: &mut dyn FnMut() -> bool,
    ) {
        (contenders[0].run)();
        let verified = verify();
        let seconds = if verified { alternate(contenders, case.runs) } else { Vec::new() };
        let names: Vec<_> = contenders.iter().map(|c| c.name).collect();
        self.record(case, verified, &names, &seconds);
    }

    /// Adds a case that was timed elsewhere: `seconds[i]` are the runs of `names[i]`, ours first,
    /// paired by position.
    pub fn record(&mut self, case: &Case, verified: bool, names: &[&str], seconds: &[Vec<f64>]) {
        let mut measured = Measured {
            case: case.name.clone(),
            verified,
            bytes: case.bytes,
            threads: case.threads,
            runs: seconds.first().map_or(0, Vec::len),
            ..Measured::default()
        };
        for (i, (name, times)) in names.iter().zip(seconds).enumerate() {
            measured.seconds.insert((*name).to_owned(), median(times));
            if i > 0 {
                let ratio = Ratio::paired(times, &seconds[0]);
                measured.ratio.insert((*name).to_owned(), ratio.quartiles);
                measured.interval.insert((*name).to_owned(), ratio.interval);
            }
        }
        print_case(&measured);
        self.report.cases.push(measured);
    }

    /// Adds a figure of its own to the last case: a count, a rate, a prediction.
    pub fn figure(&mut self, name: &str, value: f64) {
        if let Some(case) = self.report.cases.last_mut() {
            println!("    {name} = {value:.6}");
            case.figures.insert(name.to_owned(), value);
        }
    }

    /// Writes `bench/out/GROUP.json` below the working directory. Returns whether every case was
    /// verified.
    ///
    /// # Errors
    /// What the file system said.
    pub fn finish(self) -> std::io::Result<bool> {
        let folder = Path::new("bench/out");
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.json", self.report.group));
        std::fs::write(&path, serde_json::to_string_pretty(&self.report)? + "\n")?;
        println!("# absent: {:?}; written to {}", self.report.absent, path.display());
        let wrong: Vec<_> = self.report.cases.iter().filter(|c| !c.verified).collect();
        wrong.iter().for_each(|c| println!("# WRONG RESULT: {}", c.case));
        Ok(wrong.is_empty())
    }
}

/// The seconds that `run` takes.
pub fn seconds_of(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn alternate(contenders: &mut [Contender<'_>], runs: usize) -> Vec<Vec<f64>> {
    contenders.iter_mut().skip(1).for_each(|c| (c.run)());
    let mut seconds = vec![Vec::with_capacity(runs); contenders.len()];
    for _ in 0..runs {
        for (contender, times) in contenders.iter_mut().zip(&mut seconds) {
            times.push(seconds_of(&mut contender.run));
        }
    }
    seconds
}

fn print_case(measured: &Measured) {
    let mark = if measured.verified { "" } else { "  WRONG RESULT" };
    println!("{:48} {} B, {} runs{mark}", measured.case, measured.bytes, measured.runs);
    for (name, seconds) in &measured.seconds {
        let ratio = match (measured.ratio.get(name), measured.interval.get(name)) {
            (Some([low, middle, high]), Some([from, to])) => {
                format!("x{middle:.3} [{low:.3} .. {high:.3}], median in {from:.3} .. {to:.3}")
            }
            _ => String::new(),
        };
        println!("    {name:16} {:>12.3} us  {ratio}", seconds * 1e6);
    }
}

/// The processor's name and the number of cores that this process may use.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
    format!("{}, {cores} cores", model.unwrap_or(std::env::consts::ARCH))
}
