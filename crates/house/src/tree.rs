//! The files of the workspace.

use crate::Source;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Relative to the workspace's root, with `/`.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// Every text file of the workspace that is not ignored by `.gitignore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the workspace that this crate lies in.
    ///
    /// # Panics
    /// Where a file can't be read.
    #[must_use]
    pub fn workspace() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
        let mut paths = Vec::new();
        walk(root, &ignored(root), &mut paths);
        paths.sort();
        Tree { files: paths.iter().filter_map(|path| read(root, path)).collect() }
    }

    /// The Rust files, parsed; those that are test code as a whole are marked so.
    #[must_use]
    pub fn rust(&self) -> Vec<Source> {
        let rust = self.files.iter().filter(|f| f.path.ends_with(".rs"));
        let mut sources: Vec<_> = rust.map(|f| Source::parse(&f.path, &f.text)).collect();
        let tests: HashSet<_> = sources.iter().flat_map(|s| s.test_files.clone()).collect();
        for source in &mut sources {
            source.is_test |= tests.contains(&source.path);
        }
        sources
    }

    /// The manifests of the member crates.
    pub fn manifests(&self) -> impl Iterator<Item = &File> {
        let member = |f: &&File| f.path.starts_with("crates/") && f.path.ends_with("/Cargo.toml");
        self.files.iter().filter(member)
    }
}

fn ignored(root: &Path) -> HashSet<PathBuf> {
    let lines = fs::read_to_string(root.join(".gitignore")).expect("a .gitignore");
    let dirs = lines.lines().filter_map(|line| line.strip_suffix('/'));
    let mut dirs: HashSet<_> = dirs.map(|d| root.join(d.trim_start_matches('/'))).collect();
    dirs.insert(root.join(".git"));
    dirs
}

fn walk(dir: &Path, ignored: &HashSet<PathBuf>, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a directory entry").path();
        let skip = path.is_symlink() || path.ends_with("__pycache__") || ignored.contains(&path);
        match path.is_dir() {
            _ if skip => {}
            true if !path.file_name().is_some_and(is_cache) => walk(&path, ignored, paths),
            true => {}
            false => paths.push(path),
        }
    }
}

fn is_cache(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|n| n.starts_with('.') && n.ends_with("_cache"))
}

/// `None` for a file that is not text.
fn read(root: &Path, path: &Path) -> Option<File> {
    let text = String::from_utf8(fs::read(path).ok()?).ok()?;
    let path = path.strip_prefix(root).expect("a path below the root").to_str()?.to_owned();
    Some(File { path, text })
}
