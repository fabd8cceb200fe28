//! What the kernels execute, counted: the check that doesn't depend on what else a machine does.
//!
//! callgrind counts the instructions of some cases, and the misses of a last-level cache that it
//! imitates, the same on every machine. It knows no AVX-512, so that the instance for AVX2 runs
//! anywhere on x86-64. A file says which cases, how large, and the most that each may take.

use super::family;
use super::problem::Problem;
use crate::problems::Dims;
use crate::{Error, native};
use model::Crossover;
use serde::Deserialize;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What callgrind is to count, and of which caches.
const CALLGRIND: [&str; 5] = [
    "--tool=callgrind",
    "--toggle-collect=*isometry_counted*",
    "--cache-sim=yes",
    "--D1=32768,8,64",
    "--LL=2097152,16,64",
];

/// A line of the cache.
const LINE_BYTES: f64 = 64.0;

/// A limit that is written leaves this much room, for another libc or compiler.
const ROOM: f64 = 1.02;

/// A limit this much above the count says less than it could.
const LOOSE: f64 = 1.1;

/// What the file starts with.
const HEAD: &str = "\
# What the kernels may take at most for each byte of the payload: instructions, and bytes from or to
# memory (lines that miss a cache of 2 MiB, whichever way they are written; 2 is the least). The
# problems are those of the other files, with other extents. `make counts` checks this file,
# `make counts WRITE=1` writes it anew.
";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// A problem, and the most that it may take for each byte of its payload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The problem.
    name: String,
    /// Its extents here, if not its own.
    dims: Option<String>,
    instructions: f64,
    memory_bytes: f64,
}

/// What was counted of a case, for each byte of its payload.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    instructions: f64,
    memory_bytes: f64,
}

/// What came of a check.
#[derive(Debug)]
pub struct Counts {
    /// Each case, what was counted, and its limits.
    pub table: String,
    /// The cases that are above theirs.
    pub above: Vec<String>,
}

/// Runs the case `name` of `file` once, for a tool that counts.
///
/// # Errors
/// Where the file can't be read or has no such case, or the case can't be set up.
pub fn run_counted(file: &Path, name: &str) -> Result<(), Error> {
    let cases = read(file)?;
    let case = cases.iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| wrong(name, "no case has this name"))?;
    let problem = case.problem(&family::problems(Crossover::default())?)?;
    native::counted(&problem.copies()?, problem.side_bytes()?)
}

/// Has valgrind count what the cases of `file` execute, each run by the command that `program`
/// makes of its name and that calls [`run_counted`]. With `write` the file gets new limits.
///
/// # Errors
/// As [`run_counted`]; where valgrind is not there, or fails.
pub fn check_counts(
    file: &Path,
    write: bool,
    program: impl Fn(&str) -> Command,
) -> Result<Counts, Error> {
    let (cases, all) = (read(file)?, family::problems(Crossover::default())?);
    let count = |case: &Case| {
        let bytes = case.problem(&all)?.payload_bytes();
        let output = under_callgrind(&program(&case.name))?;
        let counted = Counted::read(&output, bytes);
        counted.ok_or_else(|| Error::part("reading what callgrind wrote")("it has no totals"))
    };
    let counted = cases.iter().map(count).collect::<Result<Vec<_>, _>>()?;
    if write {
        fs::write(file, written(&cases, &counted)).map_err(Error::io("writing the limits"))?;
    }
    Ok(compared(&cases, &counted))
}

fn read(file: &Path) -> Result<Vec<Case>, Error> {
    let text = fs::read_to_string(file).map_err(Error::io("reading the limits"))?;
    Ok(crate::problems::read::<File>("kernels/counts", &text)?.case)
}

fn wrong(name: &str, why: &str) -> Error {
    Error::Problems { group: "kernels/counts", why: format!("`{name}`: {why}") }
}

impl Case {
    /// The problem among `all`, in this case's size.
    fn problem(&self, all: &[Problem]) -> Result<Problem, Error> {
        let known = all.iter().find(|p| p.name == self.name).cloned();
        let known = known.ok_or_else(|| wrong(&self.name, "no problem has this name"))?;
        let Some(dims) = &self.dims else { return Ok(known) };
        let dims = Dims::try_from(dims.clone()).map_err(|why| wrong(&self.name, &why))?;
        known.resized(&dims).ok_or_else(|| wrong(&self.name, "its dimensions have other names"))
    }
}

/// What callgrind writes about `program`.
fn under_callgrind(program: &Command) -> Result<String, Error> {
    let dir = tempfile::tempdir().map_err(Error::io("making a directory"))?;
    let out = dir.path().join("counts");
    let mut to = OsString::from("--callgrind-out-file=");
    to.push(&out);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(CALLGRIND).arg(to).arg(program.get_program()).args(program.get_args());
    let ended = valgrind.output().map_err(Error::io("running valgrind"))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(Error::part("running valgrind")(format_args!("{}: {said}", ended.status)));
    }
    fs::read_to_string(out).map_err(Error::io("reading what callgrind wrote"))
}

impl Counted {
    /// What callgrind's `output` says in all of a payload of so many bytes: a line of names,
    /// `events: Ir Dr …`, and one of numbers, `totals: 12 34 …`.
    fn read(output: &str, payload_bytes: u64) -> Option<Self> {
        let line = |name| output.lines().find_map(|line| line.strip_prefix(name));
        let names: Vec<_> = line("events:")?.split_whitespace().collect();
        let numbers: Vec<_> = line("totals:")?.split_whitespace().collect();
        let count = |name| {
            let at = names.iter().position(|&n| n == name)?;
            numbers.get(at)?.parse::<f64>().ok().map(|count| count / payload_bytes as f64)
        };
        let lines = count("DLmr")? + count("DLmw")?;
        let instructions = count("Ir")?;
        // A function that no one called counts as nothing.
        (instructions > 0.0).then_some(Counted { instructions, memory_bytes: LINE_BYTES * lines })
    }

    /// What was counted beside its limit.
    fn beside(self, case: &Case) -> [(f64, f64); 2] {
        [(self.instructions, case.instructions), (self.memory_bytes, case.memory_bytes)]
    }
}

/// The table of counts and limits.
fn compared(cases: &[Case], counted: &[Counted]) -> Counts {
    let mut counts = Counts { table: String::new(), above: Vec::new() };
    let heads = ["instructions/B", "limit", "memory B/B", "limit"];
    let heads = heads.map(|head| format!("{head:>15}")).concat();
    let _ = writeln!(counts.table, "{:56}{heads}", "");
    for (case, counted) in cases.iter().zip(counted) {
        let both = counted.beside(case);
        let is_above = both.iter().any(|(count, limit)| count > limit);
        let is_loose = both.iter().any(|(count, limit)| *limit > count * LOOSE);
        let mut line = format!("{:56}", case.name);
        for (count, limit) in both {
            let _ = write!(line, "{count:>15.3}{limit:>15.3}");
        }
        if is_above {
            line.push_str("  ABOVE");
            counts.above.push(case.name.clone());
        }
        if is_loose {
            line.push_str("  below by more than 10%");
        }
        let _ = writeln!(counts.table, "{line}");
    }
    counts
}

/// The file with what was counted as its limits.
fn written(cases: &[Case], counted: &[Counted]) -> String {
    let limit = |count: f64| (count * ROOM * 1000.0).ceil() / 1000.0;
    let mut text = HEAD.to_owned();
    for (case, counted) in cases.iter().zip(counted) {
        let _ = write!(text, "\n[[case]]\nname = {:?}\n", case.name);
        if let Some(dims) = &case.dims {
            let _ = writeln!(text, "dims = {dims:?}");
        }
        let _ = writeln!(text, "instructions = {:?}", limit(counted.instructions));
        let _ = writeln!(text, "memory_bytes = {:?}", limit(counted.memory_bytes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "# callgrind format\nversion: 1\ndesc: Trigger: Program termination\n\
        events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nsummary: 500 9 9 9 9 9 9 11 21\n\n\
        fn=(1) isometry_counted\n80 500 9 9 9 9 9 9 11 21\n\n\
        totals: 500 9 9 9 9 9 9 11 21\n";

    fn case(name: &str, limits: (f64, f64)) -> Case {
        let dims = Some("y=128, x=64".to_owned());
        let (instructions, memory_bytes) = limits;
        Case { name: name.to_owned(), dims, instructions, memory_bytes }
    }

    #[test]
    fn what_callgrind_writes_is_read() {
        let counted = Counted { instructions: 0.5, memory_bytes: 2.048 };
        assert_eq!(Counted::read(OUTPUT, 1000), Some(counted));
        assert_eq!(Counted::read(&OUTPUT.replace("totals:", "total:"), 1000), None);
        assert_eq!(Counted::read(&OUTPUT.replace("DLmr", "LLmr"), 1000), None);
        assert_eq!(Counted::read(&OUTPUT.replace("500", "0"), 1000), None, "never called");
        assert_eq!(Counted::read(&OUTPUT.replace("500", "a"), 1000), None);
    }

    #[test]
    fn what_is_above_its_limit_or_far_below_is_told() {
        let counted = Counted { instructions: 0.5, memory_bytes: 2.0 };
        let cases = [
            case("level", (0.5, 2.0)),
            case("slow", (0.499, 2.0)),
            case("greedy", (0.54, 1.99)),
            case("loose", (0.5, 2.3)),
        ];
        let counts = compared(&cases, &[counted; 4]);
        assert_eq!(counts.above, ["slow", "greedy"]);
        let lines: Vec<_> = counts.table.lines().skip(1).collect();
        assert!(lines[0].ends_with("2.000") && lines[1].ends_with("ABOVE"), "{lines:?}");
        assert!(lines[2].ends_with("ABOVE") && lines[3].ends_with("10%"), "{lines:?}");
    }

    #[test]
    fn limits_that_are_written_hold_and_are_tight() {
        let counted = Counted { instructions: 0.5, memory_bytes: 2.0 };
        let mut cases = vec![case("transpose 256x256 u1", (9.0, 9.0)), case("b", (0.1, 0.1))];
        cases[1].dims = None;
        let text = written(&cases, &[counted; 2]);
        let again = crate::problems::read::<File>("kernels/counts", &text).unwrap().case;
        assert_eq!((&again[0].name, &again[0].dims), (&cases[0].name, &cases[0].dims));
        assert_eq!((again[1].instructions, again[1].memory_bytes), (0.51, 2.04));
        let counts = compared(&again, &[counted; 2]);
        assert!(counts.above.is_empty() && !counts.table.contains("10%"), "{}", counts.table);
    }

    #[test]
    fn the_cases_are_problems_of_a_few_mebibytes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/problems/kernels");
        let (cases, all) = (
            read(&path.join("counts.toml")).unwrap(),
            family::problems(Crossover::default()).unwrap(),
        );
        for case in cases {
            let bytes = case.problem(&all).unwrap().payload_bytes();
            assert!((1 << 20..=10 << 20).contains(&bytes), "{}: {bytes} B", case.name);
        }
    }

    #[test]
    fn a_case_has_its_problems_dimensions() {
        let all = family::problems(Crossover::default()).unwrap();
        let good = case("transpose 256x256 u1", (1.0, 2.0));
        assert_eq!(good.problem(&all).unwrap().payload_bytes(), 128 * 64);
        let refusal = |case: Case| case.problem(&all).unwrap_err().to_string();
        assert!(refusal(case("transpose", (1.0, 2.0))).contains("no problem"));
        let dims = |dims: &str| Case { dims: Some(dims.to_owned()), ..good.clone() };
        assert!(refusal(dims("x=64, y=128")).contains("other names"));
        assert!(refusal(dims("y=128")).contains("other names"));
        assert!(refusal(dims("y=128, x=0")).contains("slowest first"));
    }
}
