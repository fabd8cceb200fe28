//! The file that a trace goes to: whole under its name, or as it was before.

use crate::failure::Failure;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A trace that is being written. Dropped before [`TraceFile::commit`] it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    out: Out,
}

#[derive(Debug)]
enum Out {
    /// A file beside the one that it becomes.
    Aside(NamedTempFile, PathBuf),
    /// What is no regular file: a pipe, a terminal.
    Direct(File),
}

impl TraceFile {
    /// A file that can be written, empty.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let out = Out::open(path).map_err(|e| unwritten(path, &e))?;
        Ok(TraceFile { path: path.to_owned(), out })
    }

    /// Gives the trace its name.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        let TraceFile { path, out } = self;
        match out {
            Out::Direct(_) => Ok(()),
            Out::Aside(file, target) => match file.persist(target) {
                Ok(_) => Ok(()),
                Err(failed) => Err(unwritten(&path, &failed.error)),
            },
        }
    }

    /// Writes the whole trace.
    pub(crate) fn write_whole(mut self, text: &str) -> Result<(), Failure> {
        self.write_all(text.as_bytes()).map_err(|e| unwritten(&self.path, &e))?;
        self.commit()
    }
}

impl Out {
    fn open(path: &Path) -> io::Result<Self> {
        // What a link leads to is written, not the link.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&target).is_ok_and(|meta| !meta.is_file()) {
            return Ok(Out::Direct(File::options().write(true).open(target)?));
        }
        let dir = match target.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let create = |path: &Path| File::options().write(true).create_new(true).open(path);
        let file = tempfile::Builder::new().prefix(".iso-trace-").make_in(dir, create)?;
        let (file, aside) = file.into_parts();
        Ok(Out::Aside(NamedTempFile::from_parts(file, aside), target))
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::Aside(file, _) => file.write(bytes),
            Out::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses a trace that would overwrite what the command reads or writes.
pub(crate) fn check_apart(
    trace: Option<&Path>,
    others: [&Path; 2],
    what: &str,
) -> Result<(), Failure> {
    let trace = trace.and_then(place_of);
    match trace.is_some() && others.map(place_of).contains(&trace) {
        true => Err(Failure::usage(format_args!("--trace names {what}"))),
        false => Ok(()),
    }
}

/// Where a file is, or is to be, by whatever way `path` leads there.
fn place_of(path: &Path) -> Option<PathBuf> {
    let dir = Path::new(".").join(path.parent()?);
    path.canonicalize().ok().or_else(|| Some(dir.canonicalize().ok()?.join(path.file_name()?)))
}

/// A trace that could not be written.
pub(crate) fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("trace: {}: {error}", path.display()))
}
