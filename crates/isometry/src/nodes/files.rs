//! Files that a node opens and makes for others.
//!
//! **Hazard.** A path leads out of what is served, by `..` or a symbolic link; a disk that is used for
//! the first time is measured, and others would not be heard meanwhile; who asked dies, and the file
//! stays open. **Guarantee.** Nothing is opened or made but below the directories that are served, as
//! they are once links are followed. A thread of their own opens files. What was opened is kept until
//! who asked gives it back or is lost. **Structure.** [`Asked`] is a question, [`Answered`] what comes
//! back; [`Served`] has the directories, the questions that wait, and what is lent to whom.

use super::described::{Described, Entries};
use crate::disks::{check_path, parent};
use crate::file;
use crate::instance::Instance;
use crate::runtime::Shared;
use crate::{Array, Error, ErrorKind, FileOptions};
use model::{Layout, NodeId, RegionId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many files one node may have open here: each takes a descriptor.
const MOST_LENT: usize = 256;

/// A question for a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    path: Vec<u8>,
    /// What a file that is to be made holds; one that is there is opened.
    made: Option<SaidArray>,
    dims: Option<Vec<String>>,
    tensor: Option<String>,
    raw: Option<SaidArray>,
    raw_offset: u64,
    buffered: bool,
}

/// Its answer.
pub(super) type Answered = Result<Described, Refused>;

/// Why there is no such file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Refused {
    kind: ErrorKind,
    os_error: Option<i32>,
    /// In words, without the path.
    told: String,
}

/// An array as it is said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SaidArray {
    entries: Entries,
    layout: Layout,
}

impl SaidArray {
    fn of(array: &Array) -> SaidArray {
        let entries = Entries::of(&array.space, &array.fields);
        SaidArray { entries, layout: array.layout.clone() }
    }

    fn array(&self) -> Result<Array, Error> {
        let (space, fields) = self.entries.spaces()?;
        layout::Placement::of_layout(&self.layout, &space, &fields)?;
        Ok(Array { space, fields, layout: self.layout.clone() })
    }
}

impl Asked {
    /// Asks for the file at `path`: to be made where there is an array, else as it is.
    pub(super) fn of(path: &Path, made: Option<&Array>, options: &FileOptions) -> Asked {
        Asked {
            path: path.as_os_str().as_bytes().to_vec(),
            made: made.map(SaidArray::of),
            dims: options.dims.clone(),
            tensor: options.tensor.clone(),
            raw: options.raw.as_ref().map(SaidArray::of),
            raw_offset: options.raw_offset,
            buffered: options.buffered,
        }
    }

    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    fn options(&self) -> Result<FileOptions, Error> {
        Ok(FileOptions {
            dims: self.dims.clone(),
            tensor: self.tensor.clone(),
            raw: self.raw.as_ref().map(SaidArray::array).transpose()?,
            raw_offset: self.raw_offset,
            buffered: self.buffered,
        })
    }
}

impl Refused {
    pub(super) fn of(error: &Error) -> Refused {
        let (os_error, told) = match error {
            Error::Io { error, .. } => (error.raw_os_error(), error.to_string()),
            Error::File { error, .. } => (None, error.to_string()),
            other => (None, other.to_string()),
        };
        Refused { kind: error.kind(), os_error, told }
    }

    pub(super) fn not_served(why: &str) -> Refused {
        let os_error = Some(rustix::io::Errno::ACCESS.raw_os_error());
        Refused { kind: ErrorKind::Io, os_error, told: why.to_owned() }
    }

    pub(super) fn busy() -> Refused {
        let told = "the node does as much for others already as it can".to_owned();
        Refused { kind: ErrorKind::State, os_error: None, told }
    }

    /// As the error of who asked.
    pub(super) fn error(self, node: &str, path: &Path) -> Error {
        let Refused { kind, os_error, told } = self;
        Error::FarFile { node: node.to_owned(), path: path.to_owned(), kind, os_error, told }
    }

    /// The same, of what is no file.
    pub(super) fn far(self, node: NodeId) -> Error {
        Error::Far { node, kind: self.kind, told: self.told }
    }
}

/// What this node has for others.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// As they are once links are followed.
    dirs: Vec<PathBuf>,
    lent: Mutex<HashMap<(NodeId, RegionId), Instance>>,
}

impl Served {
    /// What lies in these directories.
    ///
    /// # Errors
    /// [`Error::Io`] where one is not there or is none.
    pub(super) fn new(dirs: &[PathBuf]) -> Result<Served, Error> {
        let dir = |path: &PathBuf| {
            check_path(path)?;
            let found = path.canonicalize().and_then(|dir| match dir.is_dir() {
                true => Ok(dir),
                false => Err(rustix::io::Errno::NOTDIR.into()),
            });
            found.map_err(|error| Error::io(path, error))
        };
        let dirs = dirs.iter().map(dir).collect::<Result<_, _>>()?;
        Ok(Served { dirs, ..Served::default() })
    }

    /// Whether anything is served.
    pub(super) fn serves_any(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// Keeps what was opened for a node; `false` where that one has too much already.
    pub(super) fn lend(&self, to: NodeId, instance: &Instance) -> bool {
        let mut lent = self.lent();
        if lent.keys().filter(|(node, _)| *node == to).count() >= MOST_LENT {
            return false;
        }
        lent.insert((to, instance.place().region), instance.clone());
        true
    }

    /// Something that is lent and lies in a region.
    pub(super) fn lent_in(&self, region: RegionId) -> Option<Instance> {
        self.lent().iter().find(|((_, lent), _)| *lent == region).map(|(_, i)| i.clone())
    }

    /// Takes back what a node was lent; returns whether it was.
    pub(super) fn take_back(&self, from: NodeId, region: RegionId) -> bool {
        // Without the lock when it is dropped: a file may be deleted then.
        let lent = self.lent().remove(&(from, region));
        lent.is_some()
    }

    /// Takes back all that a node was lent; returns the regions.
    pub(super) fn take_back_all(&self, is_from: impl Fn(NodeId) -> bool) -> Vec<RegionId> {
        let taken: Vec<_> = self.lent().extract_if(|(node, _), _| is_from(*node)).collect();
        taken.iter().map(|((_, region), _)| *region).collect()
    }

    fn lent(&self) -> MutexGuard<'_, HashMap<(NodeId, RegionId), Instance>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a file that is there, once links are followed.
    fn existing(&self, path: &Path) -> Result<PathBuf, Refused> {
        check_path(path).map_err(|error| Refused::of(&error.into()))?;
        let real = path.canonicalize().map_err(|error| self.missing(path, error))?;
        self.inside(real)
    }

    /// The path of one that is to be made.
    fn new_one(&self, path: &Path) -> Result<PathBuf, Refused> {
        let Some(name) = path.file_name() else {
            return Err(Refused::of(&Error::io(path, rustix::io::Errno::ISDIR.into())));
        };
        let mut real = self.existing(parent(path))?.join(name);
        if path.as_os_str().as_bytes().ends_with(b"/") {
            // A directory's name stays one.
            real.push("");
        }
        Ok(real)
    }

    fn inside(&self, real: PathBuf) -> Result<PathBuf, Refused> {
        match self.dirs.iter().any(|dir| real.starts_with(dir)) {
            true => Ok(real),
            false => Err(Refused::not_served("it is not in a directory that the node serves")),
        }
    }

    /// What is wrong with a path that leads nowhere; of what lies elsewhere nothing is told.
    fn missing(&self, path: &Path, error: io::Error) -> Refused {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        match self.inside(path.to_owned()) {
            Ok(_) if !climbs => Refused::of(&Error::io(path, error)),
            Ok(_) => Refused::not_served("it is not in a directory that the node serves"),
            Err(refused) => refused,
        }
    }

    pub(super) fn open(&self, shared: &Arc<Shared>, asked: &Asked) -> Result<Instance, Refused> {
        let path = asked.path();
        if !path.is_absolute() {
            return Err(Refused::not_served("a path on another node is absolute"));
        }
        let refused = |error: Error| Refused::of(&error);
        let options = asked.options().map_err(refused)?;
        let opened = match &asked.made {
            None => file::open(shared, &self.existing(path)?, &options),
            Some(array) => {
                let (path, array) = (self.new_one(path)?, array.array().map_err(refused)?);
                file::create(shared, &path, array, &options)
            }
        };
        opened.map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const NOT_SERVED: Option<i32> = Some(13);

    #[test]
    fn nothing_leads_out_of_what_is_served() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (inside, outside) = (root.join("in"), root.join("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(inside.join("a"), "").unwrap();
        fs::write(outside.join("a"), "").unwrap();
        symlink(&outside, inside.join("away")).unwrap();
        symlink(outside.join("a"), inside.join("link")).unwrap();
        symlink(&inside, root.join("back")).unwrap();
        let served = Served::new(&[root.join("back")]).unwrap();
        let number = |found: Result<PathBuf, Refused>| found.map_err(|refused| refused.os_error);
        for path in ["in/a", "back/a", "in/../in/a", "in/away/../in/a"] {
            assert_eq!(number(served.existing(&root.join(path))), Ok(inside.join("a")), "{path}");
        }
        for path in ["out/a", "in/link", "in/away/a", "in/../out/a", "out/none", "in/../none", ""] {
            let path = root.join(path);
            assert_eq!(number(served.existing(&path)), Err(NOT_SERVED), "{path:?}");
        }
        assert_eq!(number(served.existing(&inside.join("none"))), Err(Some(2)));
        assert_eq!(number(served.new_one(&root.join("back/b"))), Ok(inside.join("b")));
        assert_eq!(number(served.new_one(&inside.join("b/"))), Ok(inside.join("b/")));
        // A link is replaced, and what it leads to stays.
        assert_eq!(number(served.new_one(&inside.join("link"))), Ok(inside.join("link")));
        for path in ["in/away/b", "in/../b", "b", "out/b"] {
            assert_eq!(number(served.new_one(&root.join(path))), Err(NOT_SERVED), "{path}");
        }
        assert_eq!(number(served.new_one(&inside.join("none/b"))), Err(Some(2)));
        assert_eq!(number(served.new_one(&inside.join(".."))), Err(Some(21)));
        assert!(Served::new(&[root.join("none")]).is_err());
        assert!(Served::new(&[inside.join("a")]).is_err(), "a file is no directory");
    }

    #[test]
    fn a_question_says_all_that_a_file_leaves_open() {
        let array = Array::of(&[("y", 4), ("x", 5)], "<f4").unwrap().laid_out("xy").unwrap();
        let options = FileOptions {
            dims: Some(vec!["y".to_owned()]),
            tensor: Some("t".to_owned()),
            raw: Some(array.clone()),
            raw_offset: 7,
            buffered: true,
        };
        let asked = Asked::of(Path::new("/a b"), Some(&array), &options);
        let bytes = postcard::to_allocvec(&asked).unwrap();
        let heard: Asked = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(heard, asked);
        let again = heard.options().unwrap();
        assert_eq!(format!("{again:?}"), format!("{options:?}"));
        assert_eq!(heard.made.unwrap().array().unwrap(), array);
        assert_eq!(asked.path(), Path::new("/a b"));
    }
}
