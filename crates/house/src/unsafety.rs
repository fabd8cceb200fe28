//! Unsafe code lives at the edge, and says why it is sound (STYLE.md, 18).

use crate::{Finding, Source};

/// Where unsafe code may stand: whole crates, and single modules of others.
pub const ALLOWED: [&str; 27] = [
    "crates/kernels/",
    "crates/channel/src/accelerator/",
    "crates/channel/src/conformance/device",
    "crates/channel/src/region",
    "crates/fake-cuda/",
    "crates/channels/cuda/src/driver",
    "crates/channels/cuda/src/copier",
    "crates/channels/cuda/src/interop",
    "crates/channels/host/",
    "crates/channels/disk/",
    "crates/channels/opencl/src/cl",
    "crates/channels/opencl/src/copier",
    "crates/channels/opencl/tests/common",
    "crates/channels/remote/",
    "crates/fabric/src/pmix/",
    "crates/fabric/src/segment",
    "crates/fabric/src/ucx/",
    "crates/fabric/src/windows",
    "crates/bench/src/ring",
    "crates/bench/src/native/",
    "crates/isometry/src/memory",
    "crates/isometry/src/wake",
    // They bring memory of their own.
    "crates/isometry/examples/embed",
    "crates/isometry/tests/accelerators",
    "crates/isometry/tests/host",
    "crates/isometry/tests/interop",
    "crates/python/",
];

/// Crate roots that don't forbid unsafe code although nothing below them may hold any.
#[must_use]
pub fn unforbidden(source: &Source) -> Option<Finding> {
    let root = ["/src/lib.rs", "/src/main.rs"].iter().any(|end| source.path.ends_with(end))
        || source.path.contains("/src/bin/");
    let dir = format!("{}/", source.crate_dir());
    let excused = ALLOWED.iter().any(|allowed| allowed.starts_with(&dir));
    (root && !excused && !source.forbids_unsafe)
        .then(|| Finding::new(&source.path, 1, "a crate's root says #![forbid(unsafe_code)]"))
}

/// Unsafe code outside [`ALLOWED`].
#[must_use]
pub fn misplaced(source: &Source) -> Vec<Finding> {
    if ALLOWED.iter().any(|allowed| source.path.starts_with(allowed)) {
        return Vec::new();
    }
    let what = "unsafe code lives in kernels, backends and registered memory only";
    source.unsafe_lines.iter().map(|&line| Finding::new(&source.path, line, what)).collect()
}

/// Unsafe blocks and implementations without a `SAFETY` comment on their statement.
#[must_use]
pub fn unexplained(source: &Source) -> Vec<Finding> {
    let bare = source.unsafe_lines.iter().filter(|&&line| !is_explained(&source.lines, line));
    let what = "a `// SAFETY:` comment above says which invariant holds and who keeps it";
    bare.map(|&line| Finding::new(&source.path, line, what)).collect()
}

fn is_explained(lines: &[String], line: usize) -> bool {
    if lines[line - 1].contains("// SAFETY:") {
        return true;
    }
    for above in lines[..line - 1].iter().rev().map(|l| l.trim()) {
        if above.starts_with("//") {
            if above.contains("SAFETY:") {
                return true;
            }
        } else if above.is_empty() || above.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(path, text)
    }

    #[test]
    fn a_root_that_forbids_nothing_is_found() {
        assert!(unforbidden(&source("crates/model/src/lib.rs", "")).is_some());
        assert!(unforbidden(&source("crates/cli/src/main.rs", "")).is_some());
        let forbids = "#![forbid(unsafe_code)]";
        assert_eq!(unforbidden(&source("crates/model/src/lib.rs", forbids)), None);
        assert_eq!(unforbidden(&source("crates/kernels/src/lib.rs", "")), None);
        assert!(unforbidden(&source("crates/channelling/src/lib.rs", "")).is_some());
    }

    #[test]
    fn unsafe_code_elsewhere_is_found() {
        let text = "fn f() { unsafe { g() } }\nunsafe impl Send for S {}";
        let lines =
            |path| misplaced(&source(path, text)).iter().map(|f| f.line).collect::<Vec<_>>();
        assert_eq!(lines("crates/engine/src/ring.rs"), [1, 2]);
        assert_eq!(lines("crates/isometry/src/machine.rs"), [1, 2]);
        assert_eq!(lines("crates/kernels/src/block.rs"), []);
    }

    #[test]
    fn an_unsafe_block_without_its_reason_is_found() {
        let text = "fn f() {
    // SAFETY: `g` has no precondition.
    let x =
        unsafe { g() };
    unsafe { g() };
}
// SAFETY: as above
#[rustfmt::skip]
unsafe impl Send for S {}

unsafe impl Sync for S {}
";
        let found = unexplained(&source("crates/kernels/src/lib.rs", text));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [5, 11]);
    }
}
