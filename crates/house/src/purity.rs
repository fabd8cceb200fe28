//! Planner and engine have no clock, thread, I/O or environment, and the same floats everywhere
//! (STYLE.md, 3); a library neither prints nor exits.

use crate::{Finding, Named, Source};

/// The crates that take time and everything else as arguments.
pub const PURE: [&str; 6] = [
    "crates/model",
    "crates/layout",
    "crates/planner",
    "crates/engine",
    "crates/wire",
    "crates/sim",
];

/// The crates that talk to people.
pub const TALKING: [&str; 3] = ["crates/bench", "crates/cli", "crates/house"];

const OUTSIDE: [&str; 10] = [
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::*",
    "std::thread",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
];

/// Methods of floats whose result may differ between machines; `libm` has the same everywhere.
const INEXACT: [&str; 14] = [
    "ln", "log2", "log10", "log", "exp", "exp2", "powf", "powi", "sin", "cos", "tan", "tanh",
    "cbrt", "hypot",
];

const PRINTING: [&str; 4] = ["print", "println", "eprint", "eprintln"];

/// What reaches outside of a [`PURE`] crate; its examples are programs, and may.
#[must_use]
pub fn impure(source: &Source) -> Vec<Finding> {
    let example = source.path.contains("/examples/");
    if source.is_test || example || !PURE.contains(&source.crate_dir()) {
        return Vec::new();
    }
    let paths = shipped(&source.paths).filter(|p| is_outside(&p.name));
    let methods = shipped(&source.methods).filter(|m| INEXACT.contains(&m.name.as_str()));
    let floats = shipped(&source.paths).filter(|p| is_inexact(&p.name));
    let outside = paths.map(|p| finding(source, p, "it is the caller's: take it as an argument"));
    let inexact = methods.chain(floats).map(|m| finding(source, m, "differs by machine: use libm"));
    outside.chain(inexact).collect()
}

/// What prints, or ends the process, in a library.
#[must_use]
pub fn talkative(source: &Source) -> Vec<Finding> {
    let example = source.path.contains("/examples/");
    if source.is_test || example || TALKING.contains(&source.crate_dir()) {
        return Vec::new();
    }
    let prints = shipped(&source.macros).filter(|m| PRINTING.contains(&m.name.as_str()));
    let exits = shipped(&source.paths).filter(|p| p.name.ends_with("process::exit"));
    prints.chain(exits).map(|n| finding(source, n, "a library neither prints nor exits")).collect()
}

fn shipped(names: &[Named]) -> impl Iterator<Item = &Named> {
    names.iter().filter(|n| !n.is_test)
}

fn finding(source: &Source, named: &Named, why: &str) -> Finding {
    Finding::new(&source.path, named.line, format!("`{}`: {why}", named.name))
}

fn is_outside(path: &str) -> bool {
    let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("::"));
    path == "std::time" || OUTSIDE.iter().any(|prefix| path == *prefix || below(prefix))
}

fn is_inexact(path: &str) -> bool {
    let float = path.strip_prefix("f64::").or_else(|| path.strip_prefix("f32::"));
    float.is_some_and(|method| INEXACT.contains(&method))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str, rule: fn(&Source) -> Vec<Finding>) -> Vec<usize> {
        rule(&Source::parse(path, text)).iter().map(|f| f.line).collect()
    }

    const IMPURE: &str = "use std::time::{Duration, Instant};
use std::fs;
fn f() { std::env::var(x); }
fn g() { std::time::SystemTime::now(); }
fn h(x: f64) { x.sqrt(); x.ln(); }
fn i(x: f64) { f64::exp(x); libm::exp(x); }
#[cfg(test)]
mod tests { use std::thread; }
";

    #[test]
    fn what_reaches_outside_a_pure_crate_is_found() {
        let mut found = lines("crates/engine/src/lib.rs", IMPURE, impure);
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 4, 5, 6]);
        assert_eq!(lines("crates/isometry/src/lib.rs", IMPURE, impure), []);
        assert_eq!(lines("crates/engine/tests/a.rs", IMPURE, impure), []);
        assert_eq!(lines("crates/engine/examples/a.rs", IMPURE, impure), []);
    }

    #[test]
    fn a_talkative_library_is_found() {
        let text = "fn f() { println!(); }\nfn g() { std::process::exit(1) }";
        assert_eq!(lines("crates/isometry/src/lib.rs", text, talkative), [1, 2]);
        assert_eq!(lines("crates/cli/src/main.rs", text, talkative), []);
    }
}
