//! The socket at which a node listens to whoever asks it, and which of them is meant.
//!
//! **Hazard.** Another user connects, or has put a directory of his own where ours should be; a node
//! that was killed leaves its socket behind. **Guarantee.** The directory is this user's, and nobody
//! else may look into it; a socket at which nobody listens any more is replaced. **Structure.**
//! [`Control`] is the socket of a node; [`connect`] finds the one that is meant.

use crate::failure::Failure;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The variable that says where the node that is asked listens.
const SOCKET: &str = "ISOMETRY_SOCKET";

/// A socket that listens. Dropping it removes it.
pub(crate) struct Control {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
}

impl Control {
    /// Listens for the rank of this root.
    pub(crate) fn listen(root: &str, rank: u32) -> Result<Control, Failure> {
        let dir = dir()?;
        let failed = |e| unusable(&dir, e);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => check_private(&dir)?,
        }
        Control::bind(dir.join(name(root, rank)))
    }

    fn bind(path: PathBuf) -> Result<Control, Failure> {
        let failed = |e| unusable(&path, e);
        if UnixStream::connect(&path).is_ok() {
            return Err(failed(io::Error::new(ErrorKind::AddrInUse, "another node listens there")));
        }
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Control { listener, path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// A connection to the node that is meant: whose socket is given, else that of the environment, else
/// the only one that there is.
pub(crate) fn connect(given: Option<&Path>) -> Result<UnixStream, Failure> {
    let named = given.map(Path::to_owned).or_else(|| std::env::var_os(SOCKET).map(PathBuf::from));
    match named {
        Some(path) => UnixStream::connect(&path).map_err(|e| {
            Failure::failed(format_args!("no node listens at {}: {e}", path.display()))
        }),
        None => only_one(&dir()?),
    }
}

fn only_one(dir: &Path) -> Result<UnixStream, Failure> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let there = files.filter_map(|path| Some((UnixStream::connect(&path).ok()?, path)));
    let mut there: Vec<_> = there.collect();
    match there.len() {
        1 => Ok(there.remove(0).0),
        0 => Err(Failure::failed("no node runs here: start one by `iso node`")),
        _ => {
            let mut paths: Vec<_> =
                there.iter().map(|(_, path)| path.display().to_string()).collect();
            paths.sort();
            let paths = paths.join("\n  ");
            Err(Failure::usage(format_args!(
                "several nodes run here; --socket says which:\n  {paths}"
            )))
        }
    }
}

/// Where the sockets of this user lie.
fn dir() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let dir = match runtime {
        Some(dir) => PathBuf::from(dir).join("isometry"),
        None => std::env::temp_dir().join(format!("isometry-{}", geteuid().as_raw())),
    };
    std::path::absolute(&dir).map_err(|e| unusable(&dir, e))
}

/// What a socket is called: no more than names of files and sockets may have.
fn name(root: &str, rank: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let root: String = root.chars().map(plain).take(40).collect();
    format!("{root}.{rank}.sock")
}

/// That nobody else can look into a directory, or replace what is in it.
fn check_private(dir: &Path) -> Result<(), Failure> {
    let found = fs::symlink_metadata(dir).map_err(|e| unusable(dir, e))?;
    let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
    match is_ours && found.mode() & 0o077 == 0 {
        true => Ok(()),
        false => {
            let why = "is no directory that is this user's alone";
            Err(unusable(dir, io::Error::new(ErrorKind::PermissionDenied, why)))
        }
    }
}

fn unusable(path: &Path, error: io::Error) -> Failure {
    Failure::failed(format_args!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_one_nodes_and_what_a_dead_one_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name("127.0.0.1:99", 3));
        assert!(path.ends_with("127-0-0-1-99.3.sock"));
        assert!(only_one(dir.path()).is_err());
        let control = Control::bind(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let taken = Control::bind(path.clone()).err().unwrap();
        assert!(matches!(&taken, Failure::Failed(why) if why.contains("another node listens")));
        assert!(only_one(dir.path()).is_ok());
        let other = Control::bind(dir.path().join("b")).unwrap();
        let several = only_one(dir.path()).err().unwrap();
        assert!(matches!(&several, Failure::Usage(why) if why.contains("99.3.sock")));
        drop((control, other));
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a killed node leaves it");
        // A process that another test starts may have the socket until it runs its program.
        while UnixStream::connect(&path).is_ok() {
            std::thread::yield_now();
        }
        drop(Control::bind(path.clone()).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(check_private(dir.path()).is_ok());
        fs::set_permissions(dir.path(), Permissions::from_mode(0o710)).unwrap();
        assert!(check_private(dir.path()).is_err());
    }
}
