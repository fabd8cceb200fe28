//! Who may depend on whom: the table of DESIGN.md.

use crate::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};
use toml::Table;

/// Each crate's name in a manifest, and what it may depend on; it may also use whatever these may.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("layout", &["model"]),
    ("kernels", &["layout"]),
    ("planner", &["model", "layout"]),
    ("channel", &["model", "layout"]),
    ("engine", &["model", "layout", "channel"]),
    ("wire", &["model", "layout", "engine"]),
    ("fabric", &["model", "layout", "kernels"]),
    ("channel-host", &["channel", "kernels"]),
    ("channel-disk", &["channel", "kernels"]),
    ("fake-cuda", &["channel"]),
    ("channel-cuda", &["channel"]),
    ("channel-opencl", &["channel"]),
    ("channel-remote", &["channel", "fabric"]),
    ("cluster", &["model"]),
    ("files", &["model", "layout"]),
    ("sim", &["planner", "engine", "wire", "channel", "cluster"]),
    (
        "isometry",
        &[
            "planner",
            "engine",
            "kernels",
            "channel-host",
            "channel-disk",
            "channel-cuda",
            "channel-opencl",
            "channel-remote",
            "cluster",
            "fabric",
            "files",
            "wire",
        ],
    ),
    ("bench", &["isometry"]),
    ("cli", &["isometry", "sim", "bench"]),
    ("peers", &["bench"]),
    ("python", &["isometry"]),
    ("house", &[]),
];

/// The crates of ours that a manifest names under `[dependencies]`, and those it also names under
/// `[dev-dependencies]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The crate, as others' manifests call it.
    pub name: String,
    /// The file.
    pub path: String,
    /// Ours among its dependencies, with the line of each.
    pub uses: Vec<(String, usize)>,
    /// Ours among its dependencies and those of its tests.
    pub uses_in_tests: Vec<String>,
}

impl Manifest {
    /// Reads `file`.
    ///
    /// # Panics
    /// Where it is not TOML.
    #[must_use]
    pub fn parse(file: &File) -> Self {
        let table: Table = file.text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.path));
        let names = |section: &str| dependencies(&table, section);
        let ours = |name: &String| ALLOWED.iter().any(|(known, _)| known == name);
        let line = |name: &str| line_of(&file.text, name);
        let uses: Vec<_> = names("dependencies").into_iter().filter(ours).collect();
        let tests = names("dev-dependencies").into_iter().filter(ours);
        Manifest {
            name: name_of(&file.path),
            path: file.path.clone(),
            uses_in_tests: uses.iter().cloned().chain(tests).collect(),
            uses: uses.into_iter().map(|name| (name.clone(), line(&name))).collect(),
        }
    }
}

/// Dependencies that the table doesn't allow, and crates that it doesn't name.
#[must_use]
pub fn forbidden(manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests {
        let Some(allowed) = closure(&manifest.name) else {
            findings.push(Finding::new(&manifest.path, 1, "the table doesn't name this crate"));
            continue;
        };
        for (used, line) in manifest.uses.iter().filter(|(used, _)| !allowed.contains(used)) {
            let what = format!("`{}` may not depend on `{used}`", manifest.name);
            findings.push(Finding::new(&manifest.path, *line, what));
        }
    }
    findings
}

/// Crates that, through the tests of others, come back to themselves.
#[must_use]
pub fn cycles(manifests: &[Manifest]) -> Vec<Finding> {
    let edges: BTreeMap<_, _> =
        manifests.iter().map(|m| (m.name.as_str(), m.uses_in_tests.as_slice())).collect();
    let cyclic = manifests.iter().filter(|m| reaches(&edges, &m.name, &m.name));
    cyclic.map(|m| Finding::new(&m.path, 1, "its dependencies lead back to it")).collect()
}

fn reaches(edges: &BTreeMap<&str, &[String]>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        for used in edges.get(name).into_iter().copied().flatten() {
            if used == to {
                return true;
            }
            if seen.insert(used) {
                next.push(used);
            }
        }
    }
    false
}

fn closure(name: &str) -> Option<BTreeSet<String>> {
    let (_, direct) = ALLOWED.iter().find(|(known, _)| *known == name)?;
    let mut all: BTreeSet<_> = direct.iter().map(|&d| d.to_owned()).collect();
    for used in *direct {
        all.extend(closure(used)?);
    }
    Some(all)
}

fn dependencies(table: &Table, section: &str) -> Vec<String> {
    let section = table.get(section).and_then(|s| s.as_table());
    section.map(|s| s.keys().cloned().collect()).unwrap_or_default()
}

/// `channel-host` for `crates/channels/host/Cargo.toml`.
fn name_of(path: &str) -> String {
    let dir = path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml");
    dir.replace("channels/", "channel-")
}

fn line_of(text: &str, name: &str) -> usize {
    let is_key = |line: &str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|r| r.starts_with(['.', ' ', '=']))
    };
    text.lines().position(is_key).map_or(1, |i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(path: &str, text: &str) -> Manifest {
        Manifest::parse(&File { path: path.into(), text: text.into() })
    }

    #[test]
    fn a_dependency_upward_or_sideways_is_found() {
        let engine = "[dependencies]\nmodel.workspace = true\nplanner = { workspace = true }\n";
        let found = forbidden(&[manifest("crates/engine/Cargo.toml", engine)]);
        assert_eq!(
            found[0].to_string(),
            "crates/engine/Cargo.toml:3: `engine` may not depend on `planner`"
        );
        let disk = "[dependencies]\nchannel-host.workspace = true\nmodel.workspace = true\n";
        let found = forbidden(&[manifest("crates/channels/disk/Cargo.toml", disk)]);
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert_eq!(forbidden(&[manifest("crates/new/Cargo.toml", "")]).len(), 1);
    }

    #[test]
    fn tests_may_look_upward_but_not_in_circles() {
        let sim = manifest("crates/sim/Cargo.toml", "[dependencies]\nengine.workspace = true\n");
        let text = "[dev-dependencies]\nsim.workspace = true\n";
        let planner = manifest("crates/planner/Cargo.toml", text);
        assert_eq!(forbidden(&[sim.clone(), planner.clone()]), []);
        assert_eq!(cycles(&[sim.clone(), planner]), []);
        let engine = manifest("crates/engine/Cargo.toml", text);
        assert_eq!(cycles(&[sim, engine]).len(), 2);
    }
}
