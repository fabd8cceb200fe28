//! Ranks that a launcher started which speaks PMIx: `mpirun` of Open MPI 5, or `srun --mpi=pmix`.
//!
//! **Hazard.** A process has one client of PMIx, which MPI may use as well, and not every version of it can
//! be begun again once it has ended; a launcher takes a rank that began and did not end it for one that
//! failed. **Guarantee.** It is begun once, ended when the process exits, and never unloaded.
//! **Structure.** [`raw`] is the library; a [`Client`] says which rank this is, and hands out what rank 0
//! chose, once for each time that ranks join.

mod raw;

use crate::config::{Config, Job, PMIX, free_port};
use crate::error::Error;
use crate::locks::{lock, try_lock};
use raw::{Api, Info, Process, Status, Value};
use rustix::system::uname;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_int};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Mutex;

/// The variable by which a launcher says that it speaks PMIx: the name of the job.
pub(crate) const NAMESPACE: &str = "PMIX_NAMESPACE";

/// Where the launcher's own files lie, if it says so.
const PREFIX: &str = "PMIX_PREFIX";

/// Where the system keeps the library, if it has it, and where launchers that bring one do.
const LIBRARY: &str = "libpmix.so.2";
const BROUGHT: [&str; 2] = ["lib", "lib/openmpi"];

/// How long ranks wait for each other here, where the library can tell.
const WAIT_SECONDS: c_int = 60;

/// There is one for each process.
static CLIENT: Mutex<Option<Client>> = Mutex::new(None);

/// Which rank this is, and where all meet; returns when all have asked.
///
/// # Errors
/// [`Error::Config`] where the library can't be loaded or is too old, or there are too many ranks;
/// [`Error::Io`] for what PMIx says, not all ranks asking in time among it.
pub(crate) fn config(lookup: &impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
    let mut client = lock(&CLIENT);
    if client.is_none() {
        *client = Some(Client::begin(load(lookup)?)?);
    }
    let client = client.as_mut().expect("it is there now");
    client.config()
}

/// Loads the library that is named, else the system's, else the launcher's.
fn load(lookup: &impl Fn(&str) -> Option<String>) -> Result<Api, Error> {
    if let Some(named) = lookup(PMIX) {
        return Api::load(Path::new(&named)).map_err(unloaded);
    }
    let brought = lookup(PREFIX).map(PathBuf::from).into_iter();
    let brought = brought.flat_map(|prefix| BROUGHT.map(|dir| prefix.join(dir).join(LIBRARY)));
    let system = Api::load(Path::new(LIBRARY));
    brought.fold(system, |loaded, path| loaded.or_else(|_| Api::load(&path))).map_err(unloaded)
}

fn unloaded(error: libloading::Error) -> Error {
    let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let why = format!(
        "{NAMESPACE} is set, but PMIx can't be loaded: install Debian's libpmix2, or name libpmix.so.2 \
         ({error})"
    );
    Error::Config { name: PMIX, why }
}

struct Client {
    api: Api,
    /// The process that began it; a copy that it forks off has no part in it.
    pid: u32,
    me: Process,
    /// How often this process has asked.
    asked: u32,
}

impl Client {
    fn begin(api: Api) -> Result<Client, Error> {
        // SAFETY: it returns a string that stays.
        let version = unsafe { CStr::from_ptr((api.version)()) }.to_string_lossy();
        if major(&version).is_none_or(|major| major < raw::LEAST_VERSION) {
            let why = format!("`{version}` is too old: it takes version {}", raw::LEAST_VERSION);
            return Err(Error::Config { name: PMIX, why });
        }
        let mut client = Client { api, pid: std::process::id(), me: Process::nobody(), asked: 0 };
        // SAFETY: the place is there, and nothing else is given.
        let begun = unsafe { (client.api.init)(&raw mut client.me, std::ptr::null(), 0) };
        client.checked("beginning PMIx", begun)?;
        // SAFETY: the function may run on whatever thread exits. Where there is no room for it, the
        // launcher complains, and nothing else happens.
        unsafe { libc::atexit(end) };
        Ok(client)
    }

    fn config(&mut self) -> Result<Config, Error> {
        let rank = self.me.rank;
        let size = self.number(raw::JOB_SIZE)?;
        let alone = Config::new("local:alone", (rank, size), b"unused");
        // What can't be is said by all, so that nobody waits.
        alone.check()?;
        if size == 1 {
            return Ok(alone);
        }
        self.asked += 1;
        let name = CString::new(format!("isometry.{}", self.asked)).expect("it has no zero");
        let published = if rank == 0 { self.publish(&name, size) } else { Ok(()) };
        // Others come to it whatever has become of that.
        self.fence()?;
        published?;
        let handed = self.text(&name)?;
        let (root, key) = handed.split_once(' ').unwrap_or((&handed, ""));
        Ok(Config::new(root, (rank, size), key.as_bytes()))
    }

    /// As rank 0: chooses a key, and where to meet.
    fn publish(&self, name: &CStr, size: u32) -> Result<(), Error> {
        let is_one_node = self.number(raw::LOCAL_SIZE).is_ok_and(|local| local == size);
        let job = if is_one_node { Job::new(size)? } else { here(size)? };
        let (root, key) = job.secret();
        let text = CString::new(format!("{root} {key}")).expect("it has no zero");
        let value = Value::text(&text);
        // SAFETY: name and value are there, and copied.
        let put = unsafe { (self.api.put)(raw::GLOBAL, name.as_ptr(), &raw const value) };
        self.checked("publishing a key by PMIx", put)?;
        // SAFETY: it began.
        self.checked("publishing a key by PMIx", unsafe { (self.api.commit)() })
    }

    /// Waits for all ranks of the job, and takes what they published.
    fn fence(&self) -> Result<(), Error> {
        let wishes = [
            Info::new(raw::COLLECT, Value::flag(true)),
            Info::new(raw::TIMEOUT, Value::integer(WAIT_SECONDS)),
        ];
        // SAFETY: as many wishes as it is told; no processes stand for all.
        let met = unsafe { (self.api.fence)(std::ptr::null(), 0, wishes.as_ptr(), wishes.len()) };
        self.checked("waiting for all ranks by PMIx", met)
    }

    /// What is known of the whole job.
    fn number(&self, name: &CStr) -> Result<u32, Error> {
        self.get(raw::ANY_RANK, name, |value| match value.kind {
            // SAFETY: it is of that kind.
            raw::UINT32 => Some(unsafe { value.data.number }),
            _ => None,
        })
    }

    /// What rank 0 published.
    fn text(&self, name: &CStr) -> Result<String, Error> {
        self.get(0, name, |value| {
            if value.kind != raw::STRING {
                return None;
            }
            // SAFETY: it is of that kind: a string, which was allocated for the caller.
            unsafe {
                let text = CStr::from_ptr(value.data.text).to_str().map(str::to_owned);
                libc::free(value.data.text.cast());
                text.ok()
            }
        })
    }

    /// What `read` makes of a value.
    fn get<T>(
        &self,
        rank: u32,
        name: &CStr,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Error> {
        const DOING: &str = "asking PMIx";
        let of = Process { rank, ..self.me.clone() };
        let mut value = null_mut();
        // SAFETY: process, name and place are there, and no wishes.
        let got = unsafe {
            (self.api.get)(&raw const of, name.as_ptr(), std::ptr::null(), 0, &raw mut value)
        };
        self.checked(DOING, got)?;
        // SAFETY: it was allocated for the caller, who alone has it, and frees it once.
        let read = unsafe {
            let read = value.as_ref().and_then(read);
            libc::free(value.cast());
            read
        };
        let odd = || format!("what it says of {} is of another kind", name.to_string_lossy());
        read.ok_or_else(|| Error::Io { doing: DOING, source: io::Error::other(odd()) })
    }

    fn checked(&self, doing: &'static str, status: Status) -> Result<(), Error> {
        if status == raw::SUCCESS {
            return Ok(());
        }
        // SAFETY: it returns a string that stays.
        let said = unsafe { CStr::from_ptr((self.api.error)(status)) }.to_string_lossy();
        Err(Error::Io { doing, source: io::Error::other(format!("PMIx says {said}")) })
    }
}

/// Ranks that meet at a port of this machine that is free now.
fn here(size: u32) -> Result<Job, Error> {
    let port = free_port(Ipv4Addr::UNSPECIFIED)?;
    let name = uname();
    Job::across(&name.nodename().to_string_lossy(), Some(port), size)
}

/// The first number in `OpenPMIx 5.0.1 (…)`.
fn major(version: &str) -> Option<u32> {
    let start = version.find(|c: char| c.is_ascii_digit())?;
    version[start..].split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Tells the launcher that this process is about to exit as it should.
extern "C" fn end() {
    // Where another thread still waits in it, it is left alone.
    let Some(client) = try_lock(&CLIENT).and_then(|mut client| client.take()) else { return };
    if client.pid == std::process::id() {
        // SAFETY: it began, and nobody uses it any more. Nobody is there to hear of an error.
        unsafe { (client.api.finalize)(std::ptr::null(), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_first_number() {
        assert_eq!(major("OpenPMIx 5.0.11rc1 (PMIx Standard: 5.1, Stable ABI: 5.0)"), Some(5));
        assert_eq!(major("PMIx 10.2"), Some(10));
        assert_eq!((major("PMIx"), major("")), (None, None));
    }
}
