//! The two ends of a copy: files, of other nodes where that is said.

use crate::failure::Failure;
use isometry::{Array, Error, FileOptions, Instance, Machine};
use std::io;
use std::path::{Path, PathBuf};

/// A file, and the tensor in it that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End<'a> {
    /// The node whose file it is, where that is said.
    pub(crate) node: Option<&'a str>,
    pub(crate) path: &'a Path,
    tensor: Option<String>,
}

impl<'a> End<'a> {
    /// What `node1:/dir/model.safetensors#name` means. Any other `:` or `#` is part of the path.
    pub(crate) fn of(text: &'a Path) -> End<'a> {
        let (node, path) = split_node(text);
        let (before, name) = path.to_str().and_then(|p| p.rsplit_once('#')).unwrap_or_default();
        match before.ends_with(".safetensors") {
            true => End { node, path: Path::new(before), tensor: Some(name.to_owned()) },
            false => End { node, path, tensor: None },
        }
    }

    /// Opens the file.
    pub(crate) fn open(&self, machine: &Machine, options: FileOptions) -> Result<Instance, Error> {
        let options = FileOptions { tensor: self.tensor.clone(), ..options };
        match self.node {
            Some(node) => machine.open_file_at(node, self.path, &options),
            None => machine.open_file(self.path, &options),
        }
    }

    /// A file to be there.
    pub(crate) fn create(&self, machine: &Machine, array: Array) -> Result<Instance, Error> {
        let options = FileOptions { tensor: self.tensor.clone(), ..FileOptions::default() };
        match self.node {
            Some(node) => machine.create_file_at(node, self.path, array, &options),
            None => machine.create_file(self.path, array, &options),
        }
    }
}

/// Whether `text` names a file of a node.
pub(crate) fn names_node(text: &Path) -> bool {
    split_node(text).0.is_some()
}

/// The same end for a process whose working directory is another.
pub(crate) fn absolute(text: &Path) -> Result<PathBuf, Failure> {
    match names_node(text) {
        true => Ok(text.to_owned()),
        false => {
            let wrong = |e: io::Error| Failure::usage(format_args!("{}: {e}", text.display()));
            std::path::absolute(text).map_err(wrong)
        }
    }
}

/// `node1:/path`: a name, a colon and a path from the root.
fn split_node(text: &Path) -> (Option<&str>, &Path) {
    let is_name = |name: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !name.is_empty() && name.chars().all(allowed)
    };
    match text.to_str().and_then(|text| text.split_once(':')) {
        Some((node, path)) if is_name(node) && path.starts_with('/') => {
            (Some(node), Path::new(path))
        }
        _ => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_node_a_path_and_a_tensor() {
        let end = |text: &'static str| {
            let End { node, path, tensor } = End::of(Path::new(text));
            (node, path.to_str().unwrap(), tensor)
        };
        assert_eq!(end("a.npy"), (None, "a.npy", None));
        assert_eq!(end("node1:/a.npy"), (Some("node1"), "/a.npy", None));
        let tensor = Some("w:/b".to_owned());
        assert_eq!(end("n:/m.safetensors#w:/b"), (Some("n"), "/m.safetensors", tensor));
        for path in ["./node1:/a", "node1:a", ":/a", "no de:/a", "/a:/b", "a#b"] {
            assert_eq!(end(path), (None, path, None));
        }
        let far = Path::new("node1:/a");
        assert_eq!(absolute(far).unwrap(), far);
        assert!(absolute(Path::new("a")).unwrap().is_absolute());
    }
}
