use crate::error::Error;
use crate::nearby::Machine;
use crate::pmix;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// The variable that says where ranks meet.
pub const ROOT: &str = "ISOMETRY_ROOT";
/// The variable that says which rank this is.
pub const RANK: &str = "ISOMETRY_RANK";
/// The variable that says how many ranks there are.
pub const SIZE: &str = "ISOMETRY_SIZE";
/// The variable that holds the cluster's key.
pub const KEY: &str = "ISOMETRY_KEY";
/// The variable that says how many ranks there may be, those that come later among them.
pub const CAPACITY: &str = "ISOMETRY_CAPACITY";

/// The variable that says where UCX's library lies.
pub const UCX: &str = "ISOMETRY_UCX";
/// The variable that says where PMIx's library lies.
pub const PMIX: &str = "ISOMETRY_PMIX";

/// What a root starts with where ranks of one machine are to be as apart as those of several.
pub const APART: &str = "apart:";

/// What a root starts with where ranks meet to speak by UCX.
const BY_UCX: &str = "ucx:";

/// What a root on one machine starts with.
const LOCAL: &str = "local:";

/// The most ranks there may ever be: each has queues for all.
pub const MOST_RANKS: u32 = 256;

/// How many ports are looked at for one that is free.
const TRIES: usize = 100;

/// The most bytes of a rank's name.
const MOST_NAME: usize = 255;

/// Who joins what.
#[derive(Clone)]
pub struct Config {
    /// Where ranks meet: `local:NAME` on one machine, by shared memory; `HOST:PORT` where rank 0
    /// listens, by TCP; `ucx:HOST:PORT` by UCX, where it listens too. Those of one machine then map each
    /// other's memory, unless `apart:` stands before that.
    pub root: String,
    /// Which rank this is, less than `size`.
    pub rank: u32,
    /// How many join at the start, at most 256.
    pub size: u32,
    /// How many there may be in all, each counted that ever joins, at most 256: `size` where nobody may
    /// come later. The same for all that join at the start.
    pub capacity: u32,
    /// Whether this rank comes later: rank 0 then says which one it is, and the rest.
    pub is_late: bool,
    /// What all ranks know and no one else does; not empty where there are several.
    pub key: Vec<u8>,
    /// How many bytes of memory this rank publishes, all zero at first.
    pub segment_bytes: u64,
    /// How long to wait for others to join, or, as one that comes later, to have joined. Default: a minute.
    pub timeout: Duration,
    /// What this rank is called, 1 to 255 bytes that the fabric does not look into: no rank comes later
    /// under the name of another while that is there. Default: none.
    pub name: Option<String>,
    /// How long a machine may be silent before its ranks are lost, over TCP, in whole seconds and at
    /// least two. Default: five seconds.
    pub silence: Duration,
    /// Where UCX's library lies, unless the system knows it. Default: the system does.
    pub ucx: Option<PathBuf>,
}

// The key is a secret.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Config {
            root,
            rank,
            size,
            capacity,
            is_late,
            segment_bytes,
            timeout,
            name,
            silence,
            ucx,
            ..
        } = self;
        let mut f = f.debug_struct("Config");
        f.field("root", root).field("rank", rank).field("size", size);
        f.field("capacity", capacity).field("is_late", is_late);
        f.field("segment_bytes", segment_bytes).field("timeout", timeout);
        f.field("name", name).field("silence", silence).field("ucx", ucx).finish_non_exhaustive()
    }
}

impl Config {
    /// A rank of several that meet at `root`.
    #[must_use]
    pub fn new(root: &str, (rank, size): (u32, u32), key: &[u8]) -> Config {
        let (root, key) = (root.to_owned(), key.to_vec());
        Config {
            root,
            rank,
            size,
            capacity: size,
            is_late: false,
            key,
            segment_bytes: 0,
            timeout: Duration::from_secs(60),
            name: None,
            silence: Duration::from_secs(5),
            ucx: None,
        }
    }

    /// The machine of this process, as no process of another calls its own: those that call it the same know each
    /// other by their numbers. `None` where ranks of one machine are to be apart, or the system doesn't say.
    #[must_use]
    pub fn machine(&self) -> Option<[u8; 32]> {
        self.is_near().then(Machine::this)?.map(Machine::to_bytes)
    }

    /// A rank that joins those which have met at `root`.
    #[must_use]
    pub fn later(root: &str, key: &[u8]) -> Config {
        Config { is_late: true, ..Config::new(root, (0, 1), key) }
    }

    /// What the variables [`ROOT`], [`RANK`], [`SIZE`] and [`KEY`] say, as `lookup` gives them. Where the
    /// first three are not set, but `PMIX_NAMESPACE` is, as by `mpirun` or `srun --mpi=pmix`, PMIx says
    /// which rank this is, and rank 0 hands out the rest, but for a key that is set: each rank of the job
    /// is to call this equally often, and waits here for the others, up to a minute where PMIx can tell.
    /// One rank alone where none is set; one that comes [later](Config::later) where [`ROOT`] and [`KEY`]
    /// are, and neither [`RANK`] nor [`SIZE`]. Where those are, [`CAPACITY`] may be, and nowhere else.
    ///
    /// # Errors
    /// [`Error::Config`] where one is missing, can't be, or would change nothing, or PMIx can't be loaded;
    /// [`Error::Io`] for what PMIx says.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let no_capacity = |why: &str| match lookup(CAPACITY) {
            Some(_) => Err(Error::Config { name: CAPACITY, why: why.to_owned() }),
            None => Ok(()),
        };
        if [ROOT, RANK, SIZE].iter().all(|name| lookup(name).is_none()) {
            if lookup(pmix::NAMESPACE).is_some() {
                no_capacity(
                    "PMIx says where ranks meet, which none that comes later knows: unset it",
                )?;
                return Config::by_pmix(&lookup);
            }
            no_capacity(
                "a rank alone has none: unset it, or set the other variables of a rank too",
            )?;
            return Ok(Config::new("local:alone", (0, 1), &[]));
        }
        let text = |name: &'static str| {
            lookup(name).ok_or(Error::Config { name, why: "is not set, others are".to_owned() })
        };
        let number = |name: &'static str| {
            let text = text(name)?;
            let why = || format!("`{text}` is no rank or number of ranks");
            text.parse::<u32>().map_err(|_| Error::Config { name, why: why() })
        };
        let mut config = if [RANK, SIZE].iter().all(|name| lookup(name).is_none()) {
            no_capacity(
                "is said by the ranks at the start, not by one that comes later: unset it",
            )?;
            Config::later(&text(ROOT)?, text(KEY)?.as_bytes())
        } else {
            let size = number(SIZE)?;
            let capacity = lookup(CAPACITY).map_or(Ok(size), |_| number(CAPACITY))?;
            let key = if capacity > 1 { text(KEY)? } else { String::new() };
            let config = Config::new(&text(ROOT)?, (number(RANK)?, size), key.as_bytes());
            Config { capacity, ..config }
        };
        config.ucx = lookup(UCX).map(PathBuf::from);
        config.check()?;
        Ok(config)
    }

    fn by_pmix(lookup: &impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let mut config = pmix::config(lookup)?;
        if let Some(key) = lookup(KEY) {
            config.key = key.into_bytes();
        }
        config.check()?;
        Ok(config)
    }

    /// Whether ranks of one machine that meet by a network map each other's memory.
    pub(crate) fn is_near(&self) -> bool {
        !self.root.starts_with(APART)
    }

    /// Whether others may come later than those at the start.
    pub(crate) fn is_open(&self) -> bool {
        self.capacity > self.size
    }

    /// Whether a rank may come that calls this one, once this one has joined.
    pub(crate) fn may_be_called_later(&self) -> bool {
        self.capacity > self.size.max(self.rank + 1)
    }

    /// The meeting place.
    pub(crate) fn check(&self) -> Result<Root<'_>, Error> {
        let wrong = |name, why: String| Err(Error::Config { name, why });
        let Some(root) = Root::of(&self.root) else {
            let is =
                "should be `HOST:PORT`, `ucx:HOST:PORT`, either behind `apart:`, or `local:NAME`";
            let why = format!("`{}` {is} of up to 64 letters, digits, `_`, `-`", self.root);
            return wrong(ROOT, why);
        };
        if !(1..=MOST_RANKS).contains(&self.size) {
            return wrong(SIZE, format!("{} ranks; it takes 1 to {MOST_RANKS}", self.size));
        }
        if self.rank >= self.size {
            return wrong(RANK, format!("rank {} of {} ranks", self.rank, self.size));
        }
        if !(self.size..=MOST_RANKS).contains(&self.capacity) {
            let why =
                format!("{} ranks in all; it takes {} to {MOST_RANKS}", self.capacity, self.size);
            return wrong(CAPACITY, why);
        }
        let is_open = self.is_late || self.is_open();
        if matches!(root, Root::Ucx(_)) && is_open {
            return wrong(ROOT, format!("`{}`: over UCX no rank comes later", self.root));
        }
        if self.name.as_ref().is_some_and(|name| !(1..=MOST_NAME).contains(&name.len())) {
            return wrong("name", format!("a rank's has 1 to {MOST_NAME} bytes"));
        }
        if (self.size > 1 || is_open) && self.key.is_empty() {
            return wrong(KEY, "is empty; ranks need a secret that no one else knows".to_owned());
        }
        Ok(root)
    }
}

/// Where ranks meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root<'a> {
    /// At this name, on one machine.
    Local(&'a str),
    /// At this host and port.
    At(&'a str),
    /// At this host and port, to speak by UCX.
    Ucx(&'a str),
}

impl Root<'_> {
    fn of(root: &str) -> Option<Root<'_>> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if let Some(name) = root.strip_prefix(LOCAL) {
            let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(allowed);
            return is_name.then_some(Root::Local(name));
        }
        let root = root.strip_prefix(APART).unwrap_or(root);
        let (by_ucx, root) = root.strip_prefix(BY_UCX).map_or((false, root), |root| (true, root));
        let (host, port) = root.rsplit_once(':')?;
        let is_place = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
        is_place.then_some(if by_ucx { Root::Ucx(root) } else { Root::At(root) })
    }
}

/// Fills `bytes` with what nobody can foretell.
pub(crate) fn choose(bytes: &mut [u8]) -> Result<(), Error> {
    let failed = |e| Error::Io { doing: "choosing at random", source: io::Error::other(e) };
    getrandom::fill(bytes).map_err(failed)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A port among those that systems give to nobody unasked.
fn drawn_port() -> Result<u16, Error> {
    let mut drawn = [0; 2];
    choose(&mut drawn)?;
    Ok(1 << 14 | u16::from_le_bytes(drawn) >> 2)
}

/// Such a port of this machine that is free now, and so as good as nobody's until it is listened at.
pub(crate) fn free_port(ip: Ipv4Addr) -> Result<u16, Error> {
    let failed = Error::io("looking for a free port");
    let bind = || {
        let listener = TcpListener::bind((ip, drawn_port()?));
        Ok(listener.and_then(|listener| listener.local_addr()).map_err(&failed)?.port())
    };
    (1..TRIES).fold(bind(), |bound, _| bound.or_else(|_: Error| bind()))
}

/// Ranks that are to be started.
#[derive(Clone)]
pub struct Job {
    root: String,
    key: String,
    size: u32,
}

// The key is a secret.
impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("root", &self.root)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// `size` ranks that meet where no others do, with a key of their own.
    ///
    /// # Errors
    /// [`Error::Config`] where there may not be so many; [`Error::Io`] where nothing is random.
    pub fn new(size: u32) -> Result<Job, Error> {
        let mut name = [0; 8];
        choose(&mut name)?;
        Job::at(format!("{LOCAL}{}", hex(&name)), size)
    }

    /// `size` ranks that meet by TCP at a port of this machine that is free now, and are as apart as those of
    /// several.
    ///
    /// # Errors
    /// As [`Job::new`]; [`Error::Io`] where no port is free.
    pub fn loopback(size: u32) -> Result<Job, Error> {
        let ip = Ipv4Addr::LOCALHOST;
        Job::at(format!("{APART}{ip}:{}", free_port(ip)?), size)
    }

    /// As [`Job::loopback`], to speak by UCX.
    ///
    /// # Errors
    /// As there.
    pub fn ucx(size: u32) -> Result<Job, Error> {
        let job = Job::loopback(size)?;
        Ok(Job { root: job.root.replace(APART, &format!("{APART}{BY_UCX}")), ..job })
    }

    /// `size` ranks that meet by TCP at `port` of `host`, a name or an address (`[::1]`), where rank 0 is
    /// to be; unless given, a port that is drawn among those that systems give to nobody unasked. Where
    /// it is taken, rank 0 finds that out when it joins.
    ///
    /// # Errors
    /// As [`Job::new`]; [`Error::Config`] where there can be no such host.
    pub fn across(host: &str, port: Option<u16>, size: u32) -> Result<Job, Error> {
        let port = port.map_or_else(drawn_port, Ok)?;
        let root = format!("{host}:{port}");
        if !matches!(Root::of(&root), Some(Root::At(_))) {
            let why = format!("ranks can't meet at `{root}`: it should be a host and a port");
            return Err(Error::Config { name: ROOT, why });
        }
        Job::at(root, size)
    }

    fn at(root: String, size: u32) -> Result<Job, Error> {
        let mut key = [0; 32];
        choose(&mut key)?;
        let job = Job { root, key: hex(&key), size };
        Config::new(&job.root, (0, size), job.key.as_bytes()).check()?;
        Ok(job)
    }

    /// Where its ranks meet, and their key.
    pub(crate) fn secret(&self) -> (&str, &str) {
        (&self.root, &self.key)
    }

    /// The variables that a process finds in its environment as `rank`, and their values.
    #[must_use]
    pub fn variables(&self, rank: u32) -> [(&'static str, String); 4] {
        let Job { root, key, size } = self;
        [
            (ROOT, root.clone()),
            (RANK, rank.to_string()),
            (SIZE, size.to_string()),
            (KEY, key.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Config, Error> {
        let get = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned());
        Config::from_variables(get)
    }

    #[test]
    fn variables_are_all_there_or_none() {
        let alone = from(&[]).unwrap();
        assert_eq!((alone.rank, alone.size), (0, 1));
        let all = [(ROOT, "local:a"), (RANK, "1"), (SIZE, "2"), (KEY, "k")];
        let config = from(&all).unwrap();
        assert_eq!((config.rank, config.size, config.key.as_slice()), (1, 2, &b"k"[..]));
        assert!(!format!("{config:?}").contains("key"));
        for missing in 0..4 {
            let some: Vec<_> =
                all.iter().enumerate().filter(|v| v.0 != missing).map(|v| *v.1).collect();
            let error = from(&some).unwrap_err().to_string();
            assert!(error.starts_with(all[missing].0), "{error}");
        }
    }

    #[test]
    fn who_has_no_rank_comes_later_and_the_others_say_how_many_there_may_be() {
        let late = from(&[(ROOT, "local:a"), (KEY, "k")]).unwrap();
        assert!(late.is_late && late.key == b"k");
        let error = from(&[(ROOT, "local:a")]).unwrap_err().to_string();
        assert!(error.starts_with(KEY), "{error}");
        let all = [(ROOT, "local:a"), (RANK, "0"), (SIZE, "1"), (KEY, "k")];
        let of = |capacity| from(&[&all[..], &[(CAPACITY, capacity)]].concat());
        let open = of("256").unwrap();
        assert_eq!((open.capacity, open.size, open.is_late), (256, 1, false));
        let closed = from(&all).unwrap();
        assert_eq!((closed.capacity, closed.is_late), (1, false));
        for wrong in ["0", "257", "many"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.starts_with(CAPACITY) || wrong == "many", "{error}");
        }
        let keyless = [&all[..3], &[(CAPACITY, "2")]].concat();
        assert!(from(&keyless).unwrap_err().to_string().starts_with(KEY));
        for variables in [
            &[(ROOT, "ucx:a:7"), (KEY, "k")][..],
            &[&[(ROOT, "ucx:a:7"), (CAPACITY, "2")], &all[1..]].concat(),
        ] {
            let error = from(variables).unwrap_err().to_string();
            assert!(error.contains("over UCX no rank comes later"), "{error}");
        }
    }

    #[test]
    fn a_capacity_that_would_change_nothing_is_refused() {
        let pmix = [(pmix::NAMESPACE, "job")];
        for variables in [&[][..], &[(ROOT, "local:a"), (KEY, "k")], &pmix] {
            let error = from(&[variables, &[(CAPACITY, "4")]].concat()).unwrap_err().to_string();
            assert!(error.starts_with(CAPACITY) && error.contains("unset it"), "{error}");
        }
    }

    #[test]
    fn a_name_has_some_bytes_and_not_too_many() {
        let named = |bytes| Config { name: Some("n".repeat(bytes)), ..Config::later("a:1", b"k") };
        assert!([1, 255].into_iter().all(|bytes| named(bytes).check().is_ok()));
        assert!([0, 256].into_iter().all(|bytes| named(bytes).check().is_err()));
    }

    #[test]
    fn ranks_are_of_one_machine_unless_they_are_to_be_apart() {
        let machine = |root: &str| Config::new(root, (0, 1), &[]).machine();
        let [shared, near, apart] = ["local:a", "a:80", "apart:a:80"].map(machine);
        assert!(shared.is_some() && shared == near && apart.is_none());
    }

    #[test]
    fn a_root_is_a_name_or_a_host_and_port() {
        assert_eq!(Root::of("local:a-1"), Some(Root::Local("a-1")));
        for at in ["10.0.0.1:80", "[::1]:7000", "node-3:65535"] {
            assert_eq!(Root::of(at), Some(Root::At(at)));
            assert_eq!(Root::of(&format!("ucx:{at}")), Some(Root::Ucx(at)));
        }
    }

    /// Others are given as local ports to whoever connects or listens.
    const UNASKED: std::ops::Range<u16> = 1 << 14..1 << 15;

    #[test]
    fn ports_that_are_free_are_nobodys_in_a_moment() {
        let ip = Ipv4Addr::LOCALHOST;
        for _ in 0..100 {
            let port = free_port(ip).unwrap();
            assert!(UNASKED.contains(&port), "{port}");
            TcpListener::bind((ip, port)).unwrap();
        }
    }

    #[test]
    fn a_job_across_hosts_meets_at_the_first() {
        let root = |host, port| Job::across(host, port, 2).map(|job| job.root);
        assert_eq!(root("node-3", Some(80)).unwrap(), "node-3:80");
        let drawn = root("[::1]", None).unwrap();
        let port = drawn.strip_prefix("[::1]:").unwrap().parse::<u16>().unwrap();
        assert!(UNASKED.contains(&port), "{port}");
        assert!(root("", None).is_err() && root("a", Some(0)).is_err());
        assert!(root("local", None).is_err(), "it would be a name on one machine");
    }

    #[test]
    fn what_cant_be_is_named() {
        let all = [(ROOT, "local:a"), (RANK, "1"), (SIZE, "2"), (KEY, "k")];
        let wrong = [
            (ROOT, "10.0.0.1"),
            (ROOT, ":80"),
            (ROOT, "host:0"),
            (ROOT, "host:65536"),
            (ROOT, "local:"),
            (ROOT, "local:a/b"),
            (RANK, "2"),
            (RANK, "-1"),
            (SIZE, "0"),
            (SIZE, "257"),
            (KEY, ""),
        ];
        for (name, value) in wrong {
            let changed = all.map(|v| if v.0 == name { (name, value) } else { v });
            let error = from(&changed).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{name}={value}: {error}");
        }
    }
}
